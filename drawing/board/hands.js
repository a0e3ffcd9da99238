"use strict";
// The page: levels, what is said, and what fingers, keys and buttons do. The build puts in LEVELS and KNOWN.

let level, machine, rows;  // the level (null: a machine of one's own), its machine, and the order on the board
let result, geo, best;  // what the machine makes of it, where it is drawn, and the fastest order that is known
let chosen, hinted, chain, now;  // a piece, the name of another, a chain of waiting, the moment of a replay
let past = [], future = [], last = null;  // orders before and after, and the move that later pieces can repeat
let drag = null, playing = null;

// Where a piece stands, alone or in a pair.
const cellOf = piece => {
  const id = name(parts(piece)[0]), there = row => row.findIndex(one => parts(one).some(part => name(part) === id));
  const rank = rows.findIndex(row => there(row) >= 0);
  return rank < 0 ? null : {rank, at: there(rows[rank]), piece: rows[rank][there(rows[rank])]};
};
const say = (words, bad = false) => {
  $("say").textContent = words;
  $("say").className = bad ? "bad" : "";
};

// -- what is known

const fits = other => ["place", "ranks", "batches"].every(key => other[key] === machine[key]);
const knownHere = () => KNOWN.filter(one => fits(one.machine));
const goal = () => level?.goal ?? {};
const boundHere = () => level?.bound ? level.bound * TICK : boundOf(machine);
const within = (value, most) => !most || value <= most + 1e-9;
const isReached = () => level && isWhole(rows, machine) && within(result.time, goal().time * TICK)
  && within(result.memory, goal().memory) && within(result.bubble, goal().bubble);

// The fastest order that is known of this machine, in units of time.
function bestKnown() {
  if (level) return level.best.time * TICK;
  const orders = [...Object.keys(RULES).map(rule => byRule(rule, machine)).filter(Boolean),
    ...knownHere().map(one => fromTokens(one.rows, machine))];
  const fit = orders.map(order => play(order, machine)).filter(one => within(one.memory, machine.cap));
  return fit.length ? Math.min(...fit.map(one => one.time)) : null;
}

function figures() {
  const whole = isWhole(rows, machine), {time, memory, bubble} = goal(), cap = memory || machine.cap;
  const order = whole && named(rows, machine, knownHere());
  const above = least => whole && result.time > least ? ` (+${((result.time / least - 1) * 100).toFixed(1)} %)` : "";
  const known = [["bound", boundHere()], ["best known", best]].filter(([, units]) => units)
    .map(([what, units]) => `${what} ${ticks(units)}${above(units)}`);
  const kind = order ? `this is ${order}` : whole ? "" : `${workOf(rows).length} boxes so far`;
  const card = (title, value, more, most, ok) => {
    const color = most && whole ? ok ? "ok" : "no" : "";
    const below = more.filter(Boolean).join("<br>");
    return `<div class="${color}"><small>${title}</small><b>${value}</b><small>${below}</small></div>`;
  };
  $("figures").innerHTML = [
    card("ticks", ticks(result.time), [time && `goal ${time}`, ...known], time, within(result.time, time * TICK)),
    card("bubble", `${(result.bubble * 100).toFixed(1)} %`, [bubble && `goal ${bubble * 100} %`, kind],
      bubble, within(result.bubble, bubble)),
    card("memory, thousands", thousands(result.memory), [cap && `at most ${thousands(cap)}`],
      cap, within(result.memory, cap)),
  ].join("");
}

// -- show

function show() {
  result = play(rows, machine);
  if (chosen && !isSend(chosen)) chosen = cellOf(chosen)?.piece ?? null;
  const whole = isWhole(rows, machine), done = isReached();
  const marks = {chosen, hinted, chain, now, goal: goal().time * TICK, bound: boundHere()};
  geo = drawBoard({machine, rows, result, ...marks, ghosts: !whole, until: drag?.until});
  figures();
  $("done").hidden = !done;
  if (done) reached();
  $("undo").disabled = !past.length;
  $("redo").disabled = !future.length;
  $("why").disabled = !rows.flat().length;
  $("hint").disabled = !level || done;
  const can = {out: chosen && !isSend(chosen), pair: pairWith(), cut: cutOf(), repeat: chosen && last && whole};
  for (const id of Object.keys(can)) $(id).hidden = !can[id] || Boolean(drag);
  $("pair").textContent = chosen?.both ? "One after the other" : "Let it overlap";
  $("cut").textContent = can.cut?.length === 1 ? "Both halves at once" : "Cut in two";
  $("keyW").hidden = !machine.halves;
  $("keyM").hidden = !machine.message;
  history.replaceState(null, "", asAddress(level, rows, machine));
  if (document.activeElement !== $("rows")) $("rows").value = asText(rows);
}

// Show it, and leave the focus of the keys on the board if it was there: its button may be gone.
function showInFocus() {
  const inside = $("board").contains(document.activeElement);
  show();
  if (inside && !$("board").contains(document.activeElement)) $("board").querySelector("[tabindex='0']")?.focus();
}
function change(next, words = "") {
  past.push(rows);
  future = [];
  hinted = chain = null;
  rows = withoutEarlySends(next, machine);
  showInFocus();
  say(`${words} ${ticks(result.time)} ticks, ${thousands(result.memory)} thousand elements.`.trim());
}

const SETTINGS = ["ranks", "batches", "place", "backward", "message", "overlapped", "cap"];
function begin(to, of, order) {
  [level, machine, rows, past, future, chosen, hinted, chain, last] = [to, of, order, [], [], null, null, null, null];
  stop();
  best = bestKnown();
  $("level").value = level?.id ?? "";
  $("words").textContent = level?.words ?? "A machine of your own: choose it below, and an order to begin with.";
  for (const id of SETTINGS) $(id).value = machine[id];
  $("halves").checked = machine.halves;
  $("before").disabled = level === LEVELS[0];
  $("next").disabled = !level;
  $("board").classList.add("still");
  show();
  setTimeout(() => $("board").classList.remove("still"), 50);
  const hand = matchMedia("(pointer: coarse)").matches ? "Tap a box. Then drag it" : "Drag a box";
  say(rows.flat().length ? `${hand} earlier or later.` : "Tap a dashed box to add it.");
}
const start = to => to ? begin(to, to.machine, startOf(to)) : begin(null, machine ?? FREE, rows ?? emptyRows(FREE));

// -- progress

const KEPT = "llm-training-puzzles board";
function progress() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};  // a browser that keeps nothing
  }
}
function reached() {
  try {
    localStorage.setItem(KEPT, JSON.stringify({...progress(), [level.id]: asAddress(level, rows, machine)}));
  } catch { /* a browser that keeps nothing */ }
  list();
  const following = LEVELS[LEVELS.indexOf(level) + 1];
  const said = level.open ? "Nobody that we know of has had this before. Please send us the link."
    : result.time <= boundHere() ? "Done, and no order is faster." : "Done.";
  $("said").textContent = said;
  $("on").hidden = !following;
  $("on").onclick = () => start(following);
  $("function").href = level.puzzle;
}
function list() {
  const all = progress();
  LEVELS.forEach((one, at) => { $("level").options[at].text = `${at + 1}. ${one.title}${all[one.id] ? " ✓" : ""}`; });
}

// -- what can be done with a piece

const focus = piece => nodes.get(name(parts(piece)[0]))?.focus({preventScroll: true});
const inRow = (rank, edit) => rows.map((row, place) => place === rank ? edit(row) : row);

function choose(piece) {
  if (!chosen || name(piece) !== name(chosen)) last = null;
  [chosen, chain, hinted] = [piece, null, null];
  show();
  focus(piece);
  say(`${name(piece)}: ${inWords(piece)}, at ${ticks(nodes.get(name(parts(piece)[0])).begins)}.`);
}
function add(piece) {
  const rank = rankOf(machine)[piece.stage];
  [chosen, last] = [piece, null];
  change(inRow(rank, row => [...row, piece]), `${name(piece)}, on rank ${rank}.`);
  focus(piece);
}

// The order with a message as a piece of its row, which it is only if it is late.
function withSend(piece) {
  if (!isSend(piece) || cellOf(piece)) return rows;
  const maker = cellOf({...piece, kind: piece.kind === "SEND_F" ? "F" : "B"}) ?? cellOf({...piece, kind: "I"});
  return inRow(maker.rank, row => row.toSpliced(maker.at + 1, 0, piece));
}
const whereIn = (order, piece) => {
  const rank = order.findIndex(row => row.some(one => name(one) === name(piece)));
  return {rank, at: order[rank].findIndex(one => name(one) === name(piece))};
};
// What comes of moving a piece of an order; null if it cannot be.
function moved(order, {rank, at}, to) {
  const done = to === at ? null : move(order, machine, rank, at, to);
  if (!done || !play(done.rows, machine).whole) return null;
  const came = done.came.map(name).join(", "), words = `${name(order[rank][at])} is ${to < at ? "earlier" : "later"}.`;
  return {rows: done.rows, words: came ? `${words} With it: ${came}.` : words};
}
function step(way) {
  const order = withSend(chosen), there = whereIn(order, chosen), to = there.at + way;
  if (to < 0 || to >= order[there.rank].length) return;
  const done = moved(order, there, to);
  if (!done) return say("It cannot go there.", true);
  last = {before: way < 0};
  change(done.rows, done.words);
  focus(chosen);
}
function again() {
  if (!last || !chosen || !cellOf(chosen)) return;
  const {rank, at} = cellOf(chosen), next = repeat(rows, machine, rank, at, last.before);
  if (next) change(next, "The same for later micro-batches."); else say("There is nothing like it later.");
}

// The order with a pair where there was none, or without it.
function pairWith() {
  if (!chosen || !machine.overlapped || isSend(chosen)) return null;
  const {rank, at} = cellOf(chosen), first = chosen.kind === "F" || chosen.both ? at : at - 1;
  if (chosen.both) return inRow(rank, row => row.toSpliced(at, 1, ...chosen.both));
  const [one, other] = [rows[rank][first], rows[rank][first + 1]];
  if (one?.kind !== "F" || !other || !"BIW".includes(other.kind) || one.mb === other.mb) return null;
  const next = inRow(rank, row => row.toSpliced(first, 2, {both: [one, other]}));
  return play(next, machine).whole ? next : null;
}
function pair() {
  const next = pairWith();
  if (next) change(next);
}
// The two halves of a backward, to stand in its place; or the backward, in place of its first half.
function cutOf() {
  if (!chosen || !machine.halves || !"BIW".includes(chosen.kind)) return null;
  const [B, I, W] = ["B", "I", "W"].map(kind => ({...chosen, kind}));
  if (chosen.kind === "B") return [I, W];
  return [I, W].every(half => cellOf(half) && !cellOf(half).piece.both) ? [B] : null;
}
function cut() {
  const pieces = cutOf();
  if (!pieces) return;
  const two = pieces.length > 1, {rank, at} = cellOf(two ? chosen : {...chosen, kind: "I"});
  const gone = name({...chosen, kind: "W"});
  const next = inRow(rank, row => row.toSpliced(at, 1, ...pieces).filter(piece => two || name(piece) !== gone));
  chosen = pieces[0];
  change(next);
}
function takeOut() {
  if (!chosen || isSend(chosen)) return;
  const gone = following(rows, machine, chosen), others = gone.size > 1 ? `, and ${gone.size - 1} that need it` : "";
  const words = `${name(chosen)} is out${others}.`;
  chosen = null;
  change(rows.map(row => row.filter(piece => !gone.has(piece))), words);
}

// -- why, and hints

// Back along what made each step begin when it did: work on its own rank, or a message.
function why() {
  chain = chain ? null : [];
  if (!chain) return show();
  const boxes = result.boxes.flat(), end = boxes.reduce((end, box) => box.end >= end.end ? box : end);
  const box = chosen && boxes.find(box => name(box) === name(parts(chosen)[0])) || end;
  for (let step = box; step; step = step.after) chain.unshift(step);
  const work = chain.filter(step => NAMES[step.kind]), before = work.filter(step => step !== box).at(-1);
  show();
  const what = box.kind === "UPDATE" ? `The last update, on rank ${box.rank},` : name(box);
  const after = before ? `, right after ${name(before)} on rank ${before.rank}. The red line goes back from there` : "";
  say(`${what} begins at ${ticks(box.begin)}${after}.`);
}

function hintNow() {
  const found = hint(rows, machine, fromTokens(level.best.rows, machine));
  if (!found) return say("This is the best order that we know.");
  const [piece] = parts(found.piece), there = cellOf(piece), id = name(piece);
  if (there) chosen = there.piece;
  hinted = there ? id : `+${id}`;
  show();
  const after = found.before ? `right after ${name(found.before)}` : "first";
  const what = found.piece.both ? `${name(found.piece).replace("+", " and ")} overlap, and come` : `${id} comes`;
  say(`Rank ${found.rank}: ${what} ${after}.`);
}

// -- replay

function stop() {
  cancelAnimationFrame(playing);
  playing = null;
  now = undefined;
  $("play").textContent = "Replay";
  nodes.forEach(node => node.classList.remove("late"));
}
function replay() {
  const was = playing;
  stop();
  chain = null;
  show();
  if (was) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches, began = performance.now();
  const long = Math.max(2500, Math.min(12000, result.time / TICK * 280));
  $("play").textContent = "Stop";
  const frame = moment => {
    const share = Math.min(1, (moment - began) / long), time = share * result.time;
    now = calm ? Math.floor(time / TICK) * TICK : time;  // a step a tick, and nothing that glides
    nodes.forEach(node => node.classList.toggle("late", node.begins > now));
    over.innerHTML = lines({result, bound: boundHere(), goal: goal().time * TICK, now}, geo);
    if (share < 1) playing = requestAnimationFrame(frame);
    else stop(), show();
  };
  playing = requestAnimationFrame(frame);
}

// -- fingers, mouse, keys

const pieceOf = node => {
  const [, stage, kind, mb] = /^\+?(\d+)([A-Z_]+)(\d+)$/.exec(node.dataset.id), piece = {stage: +stage, kind, mb: +mb};
  return cellOf(piece)?.piece ?? piece;
};
const isChosen = node => chosen && parts(chosen).some(part => name(part) === node.dataset.id);
const buttonOf = event => event.target.closest("#board button");

// With a finger, a first tap chooses: so that a swipe over boxes scrolls, and only the chosen one is dragged.
function press(event) {
  const node = buttonOf(event);
  if (!node || node.classList.contains("ghost") || event.button) return;
  if (playing) replay();
  const piece = pieceOf(node), was = isChosen(node);
  if (event.pointerType === "touch" && !was) return;
  if (!was) choose(piece);
  const order = withSend(piece), there = whereIn(order, piece);
  const middle = new Map(result.boxes[there.rank].map(box => [name(box), (box.begin + box.end) / 2]));
  result.messages.forEach(one => middle.set(name(sendOf(one)), one.issued));
  const others = order[there.rank].filter(one => name(one) !== name(piece)).map(one => middle.get(name(parts(one)[0])));
  const from = [event.clientX, event.clientY];
  drag = {order, there, others, from, was: rows, until: geo.until, to: there.at, words: ""};
  node.setPointerCapture(event.pointerId);
}
function pull(event) {
  if (!drag) return;
  const far = Math.hypot(event.clientX - drag.from[0], event.clientY - drag.from[1]);
  if (drag.to === drag.there.at && far < 5) return;
  const {left, top} = $("board").getBoundingClientRect();
  const time = (geo.tall ? event.clientY - top - geo.head : event.clientX - left - geo.pad) / geo.step * TICK;
  const to = drag.others.filter(middle => middle < time).length;
  if (to === drag.to) return;
  const done = moved(drag.order, drag.there, to);
  rows = done?.rows ?? drag.order;
  Object.assign(drag, {to, words: done?.words ?? ""});
  show();
  say(done?.words ?? (to === drag.there.at ? "Where it was." : "It cannot go there."), !done && to !== drag.there.at);
}
function release(event) {
  if (!drag) return;
  const {was, words, to, there} = drag, next = withoutEarlySends(rows, machine);
  [rows, drag] = [was, null];
  if (event.type === "pointercancel" || same(next, was)) return show();
  last = {before: to < there.at};
  change(next, words);
}
function click(event) {
  const node = buttonOf(event);
  if (!node) return;
  if (node.classList.contains("ghost")) add(pieceOf(node));
  else if (!isChosen(node)) choose(pieceOf(node));
}

// The keys for back and on in time, and for the rank before and the rank after.
const arrows = () => (geo.tall ? "Up Down Left Right" : "Left Right Up Down").split(" ").map(way => `Arrow${way}`);
// The button beside this one on its rank, or the nearest on the next rank that has any.
function beside(key) {
  const [back, on, up] = arrows(), all = [...nodes.values()];
  const here = all.find(node => node === document.activeElement) ?? all[0];
  const far = node => Math.abs(node.begins - here.begins), apart = node => Math.abs(node.rank - here.rank);
  const there = all.filter(node => key === back ? node.rank === here.rank && node.begins < here.begins
    : key === on ? node.rank === here.rank && node.begins > here.begins
    : key === up ? node.rank < here.rank : node.rank > here.rank);
  return there.sort((one, other) => apart(one) - apart(other) || far(one) - far(other))[0];
}
function travel(one, other, words) {
  if (!one.length) return;
  other.push(rows);
  rows = one.pop();
  hinted = chain = last = null;
  showInFocus();
  say(words);
}
const undo = () => travel(past, future, "Undone."), redo = () => travel(future, past, "Done again.");
const help = () => level && !isReached() && hintNow();
const KEYS = {
  z: undo, y: redo, p: replay, h: help, r: again, o: pair, x: cut, q: why, delete: takeOut, backspace: takeOut,
};
function typed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.toLowerCase(), [back, on] = arrows();
  if (event.key.startsWith("Arrow")) {
    const other = event.shiftKey ? null : beside(event.key);
    if (event.shiftKey && chosen && [back, on].includes(event.key)) step(event.key === on ? 1 : -1);
    else if (other?.classList.contains("ghost")) other.focus();
    else if (other) choose(pieceOf(other));
  } else if ("fbiw".includes(key)) {
    const rank = document.activeElement.rank ?? 0, kind = key.toUpperCase();
    const piece = ready(rows, machine, rank).find(one => one.kind === kind);
    if (piece) add(piece); else say(`Rank ${rank} has no ${kind} to do now.`);
  } else if (KEYS[key]) KEYS[key]();
  else return;
  event.preventDefault();
}

// -- the rest of the page

async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
    say("Copied.");
  } catch {
    say("This browser lets no page copy. Please copy it by hand.", true);
  }
}
const program = ({backward, message, overlapped}) => `from lib import Cost, run, schedule

plan = schedule("""
${asText(rows)}
""")
cost = Cost(backward=${backward}, send=${message}, receive=${message}, overlapped=${overlapped})
done = run(plan, **plan.sizes, cost=cost)
print(done.time, done.memory)  # ${ticks(result.time)}, ${result.memory}
`;
// The machine that the fields say. Another number of pieces begins with another order.
function otherMachine() {
  const next = {...machine, place: $("place").value, halves: +$("halves").checked};
  for (const [id, [least, most]] of Object.entries(LIMITS)) {
    next[id] = Math.max(least, Math.min(most, +$(id).value || 0));
  }
  [next.ranks, next.batches] = [next.ranks, next.batches].map(Math.round);
  begin(null, next, fits(next) && next.halves === machine.halves ? rows : byRule("one at a time", next));
}
function beginWith(order) {
  const stored = KNOWN.find(one => one.name === order), of = stored ? {...machine, ...stored.machine} : machine;
  const next = stored ? fromTokens(stored.rows, of) : order in RULES ? byRule(order, of) : emptyRows(of);
  if (next) begin(null, of, next); else say(`There is no ${order} of a ${machine.place}.`, true);
}
function load() {
  try {
    const read = readRows($("rows").value, machine);
    if (level && fits(read.machine) && machine.halves >= read.machine.halves) change(read.rows, "These are your rows.");
    else begin(null, read.machine, read.rows);
  } catch (error) {
    say(error.message, true);
  }
}

// Show what the address says; or in a notebook, which has put in a run of its own, that.
function arrive() {
  try {
    const given = globalThis.OPENED, read = given && readRows(given.rows, {...FREE, ...given});
    const found = read ? {level: null, ...read} : fromAddress(location.hash, LEVELS);
    if (found) begin(found.level, found.machine, found.rows); else start(LEVELS[0]);
  } catch (error) {
    begin(null, FREE, emptyRows(FREE));
    say(`This link is broken: ${error.message}. Here is an empty board.`, true);
  }
}
function open() {
  LEVELS.forEach(one => $("level").add(new Option(one.title, one.id)));
  $("level").add(new Option("A machine of your own", ""));
  const orders = ["nothing", ...Object.keys(RULES), ...new Set(KNOWN.map(one => one.name))];
  for (const order of ["choose", ...orders]) $("order").add(new Option(order, order));
  list();
  const at = () => level ? LEVELS.indexOf(level) : LEVELS.length;
  const does = {
    why, repeat: again, pair, cut, out: takeOut, undo, redo, hint: hintNow, play: replay, load,
    before: () => start(LEVELS[at() - 1]), next: () => start(LEVELS[at() + 1]),
    again: () => change(level ? startOf(level) : emptyRows(machine), "From the start."),
    share: () => copy(location.href), csv: () => copy(asText(rows)), program: () => copy(program(machine)),
  };
  for (const [id, action] of Object.entries(does)) $(id).onclick = action;
  $("level").onchange = () => start(LEVELS.find(one => one.id === $("level").value));
  for (const id of [...SETTINGS, "halves"]) $(id).onchange = otherMachine;
  $("order").onchange = () => beginWith($("order").value);
  const pointer = {pointerdown: press, pointermove: pull, pointerup: release, pointercancel: release};
  const board = $("board"), hands = {...pointer, click, keydown: typed};
  for (const [event, action] of Object.entries(hands)) board.addEventListener(event, action);
  board.addEventListener("touchmove", event => drag && event.preventDefault(), {passive: false});
  addEventListener("hashchange", () => location.hash !== asAddress(level, rows, machine) && arrive());
  new ResizeObserver(() => board.clientWidth !== geo?.width && show()).observe(board);
  arrive();
}
open();
