"use strict";
// Orders as text: rows as PyTorch writes and reads them, and the address of a board.

const fail = words => { throw new Error(words); };

const received = ({stage, back, mb}) => back ? `${stage - 1}RECV_B${mb}` : `${stage + 1}RECV_F${mb}`;
const inText = piece => piece.both ? `(${piece.both.map(name).join(";")})OVERLAP_F_B`
  : piece.send ? name(sendOf(piece.send)) : piece.receive ? received(piece.receive) : name(piece);
const asText = rows => rows.map(row => row.map(inText).join(",")).join("\n");

// CSV as torch.distributed.pipelining loads it: work alone, to which it adds messages; or, if a send is late, with all
// messages, which it takes with format="compute_comms".
const forTorch = (rows, machine, all = rows.flat().some(isSend)) =>
  asText(all ? withMessages(rows, rankOf(machine), true).whole : rows);

const NOT_ON_THE_BOARD = /^\d+(UNSHARD|RESHARD|REDUCE_GRAD|RECV_[FB]\d+)$/;  // receives follow from sends
const PAIR = /^(?:\((\d+F\d+);(\d+[BIW]\d+)\)OVERLAP_F_B|(\d+F\d+)_(\d+[BIW]\d+))$/;
const ACTIONS = "An action is 0F0, 0B0, 0I0, 0W0, 0SEND_F0, or (0F1;1B0)OVERLAP_F_B.";
function readPiece(text, where) {
  if (!text || text === "None" || NOT_ON_THE_BOARD.test(text)) return null;
  const pair = PAIR.exec(text)?.slice(1).filter(Boolean);
  if (pair) return {both: pair.map(one => readPiece(one, where))};
  const found = /^(\d+)(F|B|I|W|SEND_F|SEND_B)(\d+)$/.exec(text)
    ?? fail(`'${text}' is no action of a schedule, in ${where}. ${ACTIONS}`);
  return {stage: +found[1], kind: found[2], mb: +found[3]};
}

// Rows of PyTorch, as CSV or as printed lists, with the machine that they are for: at `machine`'s prices.
function readRows(text, machine) {
  const lines = text.split("\n").map(line => line.trim()).filter(line => line && !line.startsWith("#"));
  const rows = lines.map((line, rank) => line.replace(/^(Rank \d+: *)?\[?|\]?,?$/gi, "").split(",").map((cell, at) =>
    readPiece(cell.trim().replace(/^['"]|['"]$/g, ""), `the row of rank ${rank}, column ${at + 1}`)).filter(Boolean));
  const home = new Map(), count = new Map(), work = workOf(rows);
  if (!work.length) fail("These rows have no work in them: no F, no B, no I, no W.");
  rows.forEach((row, rank) => row.flatMap(parts).forEach(part => {
    const there = home.get(part.stage) ?? rank;
    if (there !== rank) fail(`Stage ${part.stage} is on rank ${there} already, not on rank ${rank}: ${name(part)}.`);
    home.set(part.stage, rank);
    count.set(name(part), (count.get(name(part)) ?? 0) + 1);
  }));
  const ranks = rows.length, batches = 1 + Math.max(...work.map(part => part.mb));
  const lies = of => of.length === home.size && of.every((rank, stage) => home.get(stage) === rank);
  const place = Object.keys(PLACES).find(place => lies(PLACES[place](ranks)))
    ?? fail("On the board stages lie in a line, in a ring, or in a V: one on each rank, or two.");
  if (ranks > 16 || batches > 32) fail("The board has room for 16 ranks and 32 micro-batches.");
  for (const [piece, times] of count) if (times > 1) fail(`${piece} stands there ${times} times.`);
  home.forEach((_, stage) => upTo(batches).forEach(mb => checkOnce(kind => name({stage, kind, mb}), count)));
  const read = {...machine, ranks, batches, place, halves: +work.some(part => part.kind === "I")};
  return {machine: read, rows: checked(withoutEarlySends(rows, read), read)};
}

// Each stage does each micro-batch once forward and once backward: F and B, or F, I and W.
function checkOnce(piece, count) {
  const [F, B, I, W] = ["F", "B", "I", "W"].map(kind => count.has(piece(kind)));
  if (B && (I || W)) fail(`${piece("B")} stands there beside one of its halves, I or W.`);
  const missing = !F ? "F" : B || I && W ? null : I ? "W" : W ? "I" : "B";
  if (missing) fail(`${piece(missing)} is missing: each stage does each micro-batch once forward and once backward.`);
}

// A send that stands right after what it sends is no late one.
function withoutEarlySends(rows, machine) {
  const isEarly = (send, maker) => maker && parts(maker).some(part => {
    const message = messageOf(part, rankOf(machine));
    return message && name(sendOf(message)) === name(send);
  });
  return rows.map(row => row.filter((piece, at) =>
    !isSend(piece) || !isEarly(piece, row.slice(0, at).findLast(one => !isSend(one)))));
}

function checked(rows, machine) {
  const {whole, at} = play(rows, machine), of = rankOf(machine), last = of.length - 1;
  if (whole) return rows;
  const made = new Set(rows.flatMap((row, rank) => row.slice(0, at[rank]).flatMap(parts).flatMap(makes)));
  const waits = rows.flatMap((row, rank) => {
    const piece = row[at[rank]], needed = piece && parts(piece).flatMap(part => needs(part, last));
    if (!needed) return [];
    const [, stage, kind, mb] = /(\d+)(\D)(\d+)/.exec(needed.find(result => !made.has(result)) ?? needed[0]);
    const from = of[stage] === rank ? "" : "SEND_", sender = from ? ` of rank ${of[stage]}` : "";
    const what = `${stage}${from}${kind.replace("G", "B")}${mb}${sender}`;
    return [`rank ${rank} waits in column ${at[rank] + 1}, ${name(piece)}, for ${what}`];
  });
  return fail(`These rows come to no end: ${waits.join("; ")}.`);
}

// An order as a letter for each piece, small for a rank's second stage. Micro-batches come in order: a forward or a
// backward does the first that is left, and a W the first with an I. Where they do not, ^ and a letter before the piece
// say which it is: ^B the second that is left, ^I the third, and another ^ means eleven later. A + joins the next two
// pieces, a > holds a result back, and a < sends the first that is held back.
const LETTERS = "/FBIWfbiw+><^", NUMBERS = LETTERS.slice(1, -1);
function asTokens(rows, machine) {
  const of = rankOf(machine), late = new Set(rows.flat().filter(isSend).map(name));
  return rows.map((row, rank) => {
    const left = leftOf(machine), held = [];
    const take = (list, one) => {
      const at = list.indexOf(one);
      list.splice(at, 1);
      return at ? "^".repeat(1 + Math.floor(at / NUMBERS.length)) + NUMBERS[at % NUMBERS.length] : "";
    };
    const letter = part => {
      const {stage, kind, mb} = part, own = stage === of.indexOf(rank) ? kind : kind.toLowerCase();
      const message = messageOf(part, of), send = message && name(sendOf(message));
      if (late.has(send)) held.push(send);
      if (kind === "I") left(stage, "W").push(mb);
      return take(left(stage, kind), mb) + own + (late.has(send) ? ">" : "");
    };
    return row.map(piece => isSend(piece) ? `${take(held, name(piece))}<`
      : (piece.both ? "+" : "") + parts(piece).map(letter).join("")).join("");
  }).join("/");
}
function fromTokens(tokens, machine) {
  const of = rankOf(machine), lines = tokens.split("/");
  if (lines.length !== machine.ranks) fail(`it has ${lines.length} rows, for ${machine.ranks} ranks`);
  return lines.map((line, rank) => {
    const left = leftOf(machine), held = [], row = [], first = of.indexOf(rank);
    let joined = 0;
    for (const [, marks, number, letter] of line.matchAll(/(?:(\^+)(.))?(.)/g)) {
      const at = marks ? (marks.length - 1) * NUMBERS.length + NUMBERS.indexOf(number) : 0;
      const take = list => list.splice(at, 1)[0] ?? fail("it has more work than there is");
      const kind = letter.toUpperCase(), last = row.at(-1) && parts(row.at(-1)).at(-1);
      const stage = letter === kind ? first : of.indexOf(rank, first + 1);
      if (letter === "+") joined = 2;
      else if (letter === ">") held.push(sendOf(last && messageOf(last, of) || fail("it sends what there is not")));
      else if (letter === "<") row.push(take(held));
      else {
        const mb = take(stage < 0 ? [] : left(stage, kind));
        if (kind === "I") left(stage, "W").push(mb);
        row.push(joined === 1 ? {both: [row.pop(), {stage, kind, mb}]} : {stage, kind, mb});
        joined--;
      }
    }
    return row;
  });
}
// The micro-batches that a stage still has to do, forward or backward; or of which it has only I.
function leftOf({batches}) {
  const lists = {};
  return (stage, kind) => lists[stage + kind.replace("I", "B")] ??= kind === "W" ? [] : upTo(batches);
}

// Letters as a number, in digits that every program takes for a part of a link; the last one checks the others.
const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
function rewrite(word, from, to) {
  let number = 0n, found = "";
  for (const letter of word) number = number * BigInt(from.length) + BigInt(from.indexOf(letter));
  for (; number > 0n; number /= BigInt(to.length)) found = to[Number(number % BigInt(to.length))] + found;
  return found;
}
const check = code => DIGITS[[...code].reduce((sum, digit) => (sum * 7 + DIGITS.indexOf(digit)) % 61, 1)];
function pack(tokens) {
  const code = rewrite(`F${tokens}`, LETTERS, DIGITS);  // an F, since a number has no / at its head
  return code + check(code);
}
function unpack(packed) {
  const code = packed.slice(0, -1);
  if (/\W|_/.test(packed) || check(code) !== packed.at(-1)) fail("a part of it is missing, or was changed");
  return rewrite(code, DIGITS, LETTERS).slice(1);
}

// The address of a board: its level, or its machine, and its rows.
const FIELDS = {b: "backward", s: "message", o: "overlapped", c: "cap"};
const LIMITS = {
  ranks: [1, 16], batches: [1, 32], backward: [.1, 99], message: [0, 99], overlapped: [0, 1], cap: [0, 1e9],
};
function asAddress(level, rows, machine) {
  const more = Object.entries(FIELDS).filter(([, field]) => machine[field] !== FREE[field]);
  const own = [`${machine.ranks}x${machine.batches}`, machine.place, ...(machine.halves ? ["h"] : []),
    ...more.map(([letter, field]) => letter + machine[field])];
  return `#${level?.id ?? own.join("-")}.${pack(asTokens(rows, machine))}`;
}

// Throws what is wrong with an address; null for one that says nothing.
function fromAddress(hash, levels) {
  if (hash.length < 2) return null;
  const [, head, code] = /^#(.*?)(?:\.([^.]*))?$/.exec(hash), level = levels.find(one => one.id === head) ?? null;
  const machine = level?.machine ?? readMachine(head);
  if (!code) return {level, machine, rows: level ? startOf(level) : emptyRows(machine)};
  return {level, machine, rows: checked(fromTokens(unpack(code), machine), machine)};
}
function readMachine(head) {
  const [, ranks, batches, place, h, more] = /^(\d+)x(\d+)-(line|ring|v)(-h)?((?:-[bsoc][\d.]+)*)$/.exec(head)
    ?? fail("it names no level, and no machine");
  const machine = {...FREE, ranks: +ranks, batches: +batches, place, halves: h ? 1 : 0};
  for (const [, letter, value] of more.matchAll(/-([bsoc])([\d.]+)/g)) machine[FIELDS[letter]] = +value;
  const fits = ([field, [least, most]]) => machine[field] >= least && machine[field] <= most;
  return Object.entries(LIMITS).every(fits) ? machine : fail("its machine has no place on the board");
}
function startOf({start, machine}) {
  return start in RULES ? byRule(start, machine) : start ? fromTokens(start, machine) : emptyRows(machine);
}
