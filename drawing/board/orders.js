"use strict";
// Orders of work: what can be done next, what comes along when a piece moves, which orders have a name, and hints.
//
// A machine: ranks, batches, place (line, ring or v), halves (whether backwards are in two halves), backward and
// message (their ticks, a message's at either end), overlapped (0 to 1), and cap (elements a rank may hold; 0: any
// number).

const TICK = 1000;  // units of time
const SIZES = {kept: 524288, grad: 262144, activation: 131072};  // elements of one layer
const FREE = {ranks: 4, batches: 8, place: "line", halves: 0, backward: 1, message: 0, overlapped: 0, cap: 0};

function pricesOf({backward, message, overlapped}) {
  const B = Math.round(backward * TICK), end = Math.round(message * TICK);
  return {F: TICK, B, I: B / 2, W: B / 2, LOSS: 0, update: TICK / 2, send: end, receive: end, overlapped, ...SIZES};
}
const rankOf = machine => PLACES[machine.place](machine.ranks);
const played = new WeakMap();  // what came of rows, with the machine: rows and machines are never changed
function play(rows, machine) {
  if (played.get(rows)?.machine !== machine) {
    played.set(rows, {machine, result: evaluate(rows, rankOf(machine), pricesOf(machine))});
  }
  return played.get(rows).result;
}
function boundOf(machine) {
  const {ranks, batches, halves} = machine;
  return bound(rankOf(machine), ranks, batches, halves, pricesOf(machine));
}

const emptyRows = machine => upTo(machine.ranks).map(() => []);
const same = (one, other) => asText(one) === asText(other);
const workOf = rows => rows.flat().flatMap(parts).filter(part => !isSend(part));
const isWhole = (rows, machine) =>
  workOf(rows).filter(part => part.kind !== "I").length === 2 * rankOf(machine).length * machine.batches;

// What a rank could do next: of each kind and stage the first micro-batch that is left, if what it reads is made.
function ready(rows, machine, rank) {
  const of = rankOf(machine), work = workOf(rows), done = new Set(work.map(name)), made = new Set(work.flatMap(makes));
  const kinds = ["F", ...(!machine.halves || machine.overlapped ? ["B"] : []), ...(machine.halves ? ["I", "W"] : [])];
  const has = (stage, kind, mb) => done.has(name({stage, kind, mb}));
  const isDone = (stage, kind, mb) => has(stage, kind, mb) || kind === "B" && has(stage, "I", mb)
    || kind !== "F" && has(stage, "B", mb);
  return upTo(of.length).filter(stage => of[stage] === rank).flatMap(stage => kinds.flatMap(kind => {
    const mb = upTo(machine.batches).find(mb => !isDone(stage, kind, mb)), piece = {stage, kind, mb};
    const can = mb !== undefined && needs(piece, of.length - 1).every(result => made.has(result));
    return can ? [piece] : [];
  }));
}

// Move the piece `at` of a rank's row to another place in it. If it moves ahead of what it needs, that comes along, on
// all ranks, no farther than it must; and so does what needs it if it is put off. So no move ends in a deadlock.
// Returns the rows, and what came along.
function move(rows, machine, rank, at, to) {
  const last = rankOf(machine).length - 1, ahead = to < at, came = new Set();
  const next = rows.map(row => [...row]), [chosen] = next[rank].splice(at, 1);
  next[rank].splice(to, 0, chosen);
  const rowOf = new Map(next.flatMap(row => row.map(piece => [piece, row]))), all = [...rowOf.keys()];
  const makers = new Map(all.flatMap(piece => parts(piece).flatMap(makes).map(result => [result, piece])));
  const reads = new Map(), readers = new Map(all.map(piece => [piece, []]));
  for (const piece of all) {
    reads.set(piece, parts(piece).flatMap(part => needs(part, last)).map(result => makers.get(result)));
    reads.get(piece).forEach(maker => readers.get(maker).push(piece));
  }
  const [before, after] = ahead ? [reads, readers] : [readers, reads];
  const beside = piece => rowOf.get(piece)[rowOf.get(piece).indexOf(piece) + (ahead ? 1 : -1)];
  const beyond = piece => {  // all that waits for a piece; if it is put off, all that it waits for
    const found = new Set([piece]);
    for (const one of found) for (const other of [...after.get(one), beside(one)]) if (other) found.add(other);
    return found;
  };
  const bring = piece => before.get(piece).forEach(other => {
    const waiting = beyond(piece), row = rowOf.get(other), was = row.indexOf(other);
    if (!waiting.has(other)) return;
    row.splice(was, 1);
    const there = ahead ? row.findIndex(one => waiting.has(one)) : row.findLastIndex(one => waiting.has(one)) + 1;
    row.splice(!ahead ? Math.max(was, there) : there < 0 ? was : Math.min(was, there), 0, other);
    came.add(other);
    bring(other);
  });
  bring(chosen);
  return {rows: next, came: [...came]};
}

// Do for later micro-batches what was done for one: it stands right before another piece, or right after it.
function repeat(rows, machine, rank, at, before) {
  const beside = rows[rank][before ? at + 1 : at - 1];
  if (!beside) return null;
  const [chosen] = parts(rows[rank][at]), [other] = parts(beside);
  const find = (row, {stage, kind}, mb) => row.findIndex(piece => parts(piece).some(part =>
    part.stage === stage && part.kind === kind && part.mb === mb));
  let next = rows;
  for (let more = 1; chosen.mb + more < machine.batches; more++) {
    const from = find(next[rank], chosen, chosen.mb + more), there = find(next[rank], other, other.mb + more);
    const to = there - (from < there) + !before;
    if (from < 0 || there < 0 || to === from) continue;
    const moved = move(next, machine, rank, from, to).rows;
    if (play(moved, machine).whole) next = moved;
  }
  return same(next, rows) ? null : next;
}

// The orders that follow one rule for all sizes, each as all of its work in turn; null where there is none. `up` and
// `down` have the stages, each as the work that it does for a micro-batch.
const stageByStage = ({batches}, up, down) => [...up, ...down].flatMap(stage => upTo(batches).flatMap(stage));
const RULES = {
  "one at a time": ({batches}, up, down) => upTo(batches).flatMap(mb => [...up, ...down].flatMap(stage => stage(mb))),
  "GPipe": (machine, up, down) => machine.place === "line" ? stageByStage(machine, up, down) : null,
  "breadth first": (machine, up, down) => machine.place === "line" ? null : stageByStage(machine, up, down),
  "1F1B": ({ranks, batches, place}, up, down) => place !== "line" ? null : upTo(ranks).flatMap(rank => {
    const ahead = Math.min(ranks - rank, batches), later = mb => mb < batches ? up[rank](mb) : [];
    const steady = upTo(batches).flatMap(mb => [...down[ranks - 1 - rank](mb), ...later(mb + ahead)]);
    return [...upTo(ahead).flatMap(up[rank]), ...steady];
  }),
};
function byRule(rule, machine) {
  const of = rankOf(machine), rows = emptyRows(machine), back = machine.halves ? ["I", "W"] : ["B"];
  const does = kinds => of.map((_, stage) => mb => kinds.map(kind => ({stage, kind, mb})));
  const order = RULES[rule](machine, does(["F"]), does(back).reverse());
  order?.forEach(piece => rows[of[piece.stage]].push(piece));
  return order && rows;
}

// The name of an order, if whole rows agree with it. Two halves side by side are a whole backward.
function named(rows, machine, known) {
  const plain = rows => asText(rows).replace(/\b(\d+)I(\d+),\1W\2\b/g, "$1B$2"), mine = plain(rows);
  const rule = Object.keys(RULES).find(rule => plain(byRule(rule, machine) ?? []) === mine);
  return rule ?? known.find(one => plain(fromTokens(one.rows, machine)) === mine)?.name ?? null;
}

// The first piece, as a stored order begins them, that does not stand where that order has it; and what is before it.
function hint(rows, machine, goal) {
  const begins = new Map(play(goal, machine).boxes.flat().map(box => [name(box), box.begin]));
  const all = goal.flatMap((row, rank) => row.map((piece, at) => ({piece, rank, at, before: row[at - 1] ?? null})));
  const first = ({piece}) => begins.get(name(parts(piece)[0]));
  const other = ({piece, rank, at}) => !rows[rank][at] || name(rows[rank][at]) !== name(piece);
  return all.filter(other).sort((one, two) => first(one) - first(two))[0] ?? null;
}
