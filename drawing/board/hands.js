"use strict";
// The page: levels, what is said, and what fingers, keys and buttons do. The build puts in LEVELS and KNOWN.

let level, machine, rows;  // the level (null: a machine of one's own), its machine, and the order on the board
let result, geo, best;  // what the machine makes of it, where it is drawn, and the fastest order that is known
let chosen, hinted, chain;  // a piece, the name of another, a chain of waiting
let past = [], future = [], last = null;  // orders before and after, and the move that later pieces can repeat
let drag, playing, now;  // a move by hand, and a replay with its moment

// Where a piece stands, alone or in a pair.
const cellOf = (piece, order = rows) => {
  const id = name(parts(piece)[0]), there = row => row.findIndex(one => parts(one).some(part => name(part) === id));
  const rank = order.findIndex(row => there(row) >= 0);
  return rank < 0 ? null : {rank, at: there(order[rank]), piece: order[rank][there(order[rank])]};
};
// When a piece begins, in what came of an order.
function beginOf(piece, {boxes, messages}) {
  const id = name(parts(piece)[0]), box = boxes.flat().find(box => name(box) === id);
  return (box ?? messages.find(message => name(sendOf(message)) === id)).begin;
}
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
  const kind = order ? `this is ${order}` : whole ? "" : `boxes so far: ${workOf(rows).length}`;
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

// What was done, and what it gives, beside what is asked: the figures may be out of sight.
function report(words) {
  const {time, memory, bubble} = goal(), of = (value, most) => most ? `${value} of ${most}` : value;
  const idle = bubble ? `, ${of((result.bubble * 100).toFixed(1), bubble * 100)} % idle` : "";
  const much = of(thousands(result.memory), memory && thousands(memory));
  say(`${words} ${of(ticks(result.time), time)} ticks${idle}, ${much} thousand elements.`.trim());
}

// -- show

function show() {
  const inFocus = $("board").contains(document.activeElement);
  result = play(rows, machine);
  if (chosen && !isSend(chosen)) chosen = cellOf(chosen)?.piece ?? null;
  const whole = isWhole(rows, machine), done = isReached();
  const marks = {chosen, hinted, chain, now, goal: goal().time * TICK, bound: boundHere()};
  geo = drawBoard({machine, rows, result, ...marks, ghosts: !whole, until: drag?.until});
  if (inFocus && !$("board").contains(document.activeElement)) $("board").querySelector("[tabindex='0']")?.focus();
  figures();
  $("done").hidden = !done;
  if (done) reached();
  $("undo").disabled = !past.length;
  $("redo").disabled = !future.length;
  $("why").disabled = !rows.flat().length;
  $("hint").disabled = !level || done;
  $("pair").hidden = !pairWith();
  $("repeat").hidden = !(chosen && last && whole);
  $("pair").textContent = chosen?.both ? "One after the other" : "Let it overlap";
  $("keyW").hidden = !machine.halves;
  $("keyM").hidden = !machine.message;
  if (drag) return;  // the rest can wait until it is let go
  history.replaceState(null, "", asAddress(level, rows, machine));
  if (document.activeElement !== $("rows")) $("rows").value = forTorch(rows, machine);
  $("format").hidden = !rows.flat().some(isSend);
}

function change(next, words = "") {
  past.push(rows);
  future = [];
  hinted = chain = null;
  rows = withoutEarlySends(next, machine);
  show();
  report(words);
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
  const coarse = matchMedia("(pointer: coarse)").matches;
  const hand = coarse ? "Tap a box. Then drag it" : "Drag a box, or move it with Shift and the arrow keys,";
  say(rows.flat().length ? `${hand} earlier or later.` : `${coarse ? "Tap" : "Choose"} a dashed box to add it.`);
}
const start = to => to ? begin(to, to.machine, startOf(to)) : begin(null, machine ?? FREE, rows ?? emptyRows(FREE));

// -- links, and what was found

// The link to what is on the board: a page in a file, or in a notebook, is nowhere that others can open.
const link = () => `${/^http/.test(location) ? location.href.split("#")[0] : `${SITE}board.html`}`
  + asAddress(level, rows, machine);
const finding = () => ({
  title: `${ticks(result.time)} ticks in ${result.memory.toLocaleString("en-US")} elements`,
  body: `Known so far: ${level.best.time} ticks. The bound: ${ticks(boundHere())}.\n\n${link()}\n\n${asText(rows)}\n`,
});

// -- progress

const KEPT = "llm-training-puzzles board";
// What is kept of levels that were solved, and more. Some browsers keep nothing.
function keep(more) {
  try {
    const all = {...JSON.parse(localStorage.getItem(KEPT)), ...more};
    localStorage.setItem(KEPT, JSON.stringify(all));
    return all;
  } catch {
    return more;
  }
}
function list(all) {
  LEVELS.forEach((one, at) => { $("level").options[at].text = `${at + 1}. ${one.title}${all[one.id] ? " ✓" : ""}`; });
}
function reached() {
  list(keep({[level.id]: asAddress(level, rows, machine)}));
  $("said").textContent = level.open ? "Nobody that we know of has had this before. Please send it to us."
    : result.time <= boundHere() ? "Done, and no order is faster." : "Done.";
  $("on").hidden = level === LEVELS.at(-1);
  $("function").href = level.puzzle;
  $("send").hidden = !level.open || !ISSUES;
  $("found").hidden = !level.open || Boolean(ISSUES);
  if (level.open) $("send").href = `${ISSUES}?${new URLSearchParams(finding())}`;
}

// -- what can be done with a piece

const focus = piece => nodes.get(name(parts(piece)[0]))?.focus({preventScroll: true});
const inRow = (rank, edit) => rows.map((row, place) => place === rank ? edit(row) : row);

function choose(piece) {
  if (!chosen || name(piece) !== name(chosen)) last = null;
  [chosen, chain, hinted] = [piece, null, null];
  show();
  focus(piece);
  say(`${name(piece)}: ${inWords(piece)}, at ${ticks(beginOf(piece, result))}.`);
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
// What comes of moving a piece of an order: the rows, or null if it cannot be, and words for it.
function moved(order, {rank, at}, to) {
  if (to === at) return {rows: null, words: "Where it was."};
  const {rows: next, came} = move(order, machine, rank, at, to), way = to < at ? "earlier" : "later";
  const piece = order[rank][at], done = play(next, machine);
  if (!done.whole || same(next, order)) {
    const why = to < at ? "it needs what stands before it" : "what stands after it needs it";
    return {rows: null, words: `${name(piece)} cannot be ${way}: ${why}.`};
  }
  const with_ = came.length ? ` With it: ${came.map(name).join(", ")}.` : "";
  return {rows: next, words: `${name(piece)} is ${way}, at ${ticks(beginOf(piece, done))}.${with_}`};
}
function step(way) {
  const order = withSend(chosen), there = cellOf(chosen, order), to = there.at + way;
  if (!order[there.rank][to]) return;
  const done = moved(order, there, to);
  if (!done.rows) return say(done.words, true);
  last = {before: way < 0};
  change(done.rows, done.words);
  focus(chosen);
}
function again() {
  if (!last || !chosen || !cellOf(chosen)) return;
  const {rank, at} = cellOf(chosen), next = repeat(rows, machine, rank, at, last.before);
  last = null;
  if (next) change(next, "The same for later micro-batches.");
  else show(), say("There is nothing to change for later micro-batches.");
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
const pair = () => pairWith() && change(pairWith());

// -- why, and hints

// Back along what made each step begin when it did: work on its own rank, or a message.
function why() {
  chain = chain ? null : [];
  if (!chain) return show();
  const boxes = result.boxes.flat(), end = boxes.reduce((end, box) => box.end >= end.end ? box : end);
  const box = chosen && boxes.find(box => name(box) === name(parts(chosen)[0])) || end;
  for (let step = box; step; step = step.after) chain.unshift(step);
  const work = [...chain.slice(0, -1).filter(step => NAMES[step.kind]), box], before = work.at(-2);
  show();
  const what = box.kind === "UPDATE" ? `The last update, on rank ${box.rank},` : name(box);
  const back = work.slice(0, -2).slice(-7).reverse().map(name).join(", ");
  const after = before ? `, right after ${name(before)} on rank ${before.rank}${back && `; that after ${back}`}` : "";
  say(`${what} begins at ${ticks(box.begin)}${after}.`);
}

function hintNow() {
  if (!level || isReached()) return;
  const found = hint(rows, machine, fromTokens(level.best.rows, machine));
  if (!found) return say("This is the best order that we know.");
  const [piece] = parts(found.piece), there = cellOf(piece), id = name(piece);
  if (there) chosen = there.piece;
  hinted = there ? id : `+${id}`;
  show();
  if ($("board").contains(document.activeElement)) nodes.get(hinted)?.focus();
  nodes.get(hinted)?.scrollIntoView({block: "nearest"});
  const what = found.piece.both ? `${name(found.piece).replace("+", " and ")} overlap, and come` : `${id} comes`;
  say(`Rank ${found.rank}: ${what} ${found.before ? `right after ${name(found.before)}` : "first"}.`);
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
    redraw(over, lines({result, bound: boundHere(), goal: goal().time * TICK, now}, geo));
    if (share < 1) playing = requestAnimationFrame(frame);
    else stop(), show();
  };
  playing = requestAnimationFrame(frame);
}

// -- fingers, mouse, keys

const pieceOf = node => {
  const [, stage, kind, mb] = /^\+?(\d+)([A-Z_]+)(\d+)$/.exec(node.id), piece = {stage: +stage, kind, mb: +mb};
  return cellOf(piece)?.piece ?? piece;
};
const isChosen = node => chosen && parts(chosen).some(part => name(part) === node.id);
const buttonOf = event => event.target.closest("#board button");

// With a finger, a first tap chooses: so that a swipe over boxes scrolls, and only the chosen one is dragged.
function press(event) {
  const node = buttonOf(event);
  if (!node || node.classList.contains("ghost") || event.button) return;
  if (playing) replay();
  const piece = pieceOf(node), was = isChosen(node);
  if (event.pointerType === "touch" && !was) return;
  if (!was) choose(piece);
  const order = withSend(piece), there = cellOf(piece, order);
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
  const {left, top} = $("board").getBoundingClientRect(), end = $("dock").getBoundingClientRect().top;
  if (geo.tall) scrollBy(0, event.clientY < 50 ? -12 : event.clientY > end - 20 ? 12 : 0);  // on, at the edge
  const time = (geo.tall ? event.clientY - top - geo.head : event.clientX - left - geo.pad) / geo.step * TICK;
  const to = drag.others.filter(middle => middle < time).length;
  if (to === drag.to) return;
  const done = moved(drag.order, drag.there, to);
  rows = done.rows ?? drag.order;
  Object.assign(drag, {to, words: done.words});
  show();
  say(done.words, !done.rows && to !== drag.there.at);
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
  if (node?.classList.contains("ghost")) add(pieceOf(node));
  else if (node && !isChosen(node)) choose(pieceOf(node));
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
  show();
  report(words);
}
const undo = () => travel(past, future, "Undone."), redo = () => travel(future, past, "Done again.");
const KEYS = {z: undo, y: redo, p: replay, h: hintNow, r: again, o: pair, q: why};
function typed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const [back, on] = arrows(), does = KEYS[event.key.toLowerCase()];
  if (event.key.startsWith("Arrow")) {
    const other = event.shiftKey ? null : beside(event.key);
    if (event.shiftKey && chosen && [back, on].includes(event.key)) step(event.key === on ? 1 : -1);
    else if (other?.classList.contains("ghost")) other.focus();
    else if (other) choose(pieceOf(other));
  } else if (does) does(); else return;
  event.preventDefault();
}

// -- the rest of the page

async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
    say("Copied.");
  } catch {
    Object.assign($("rows"), {value: words}).closest("details").open = true;
    say("This browser lets no page copy. Please copy it from below.", true);
  }
}
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
  const orders = ["choose", "nothing", ...Object.keys(RULES), ...new Set(KNOWN.map(one => one.name))];
  orders.forEach(order => $("order").add(new Option(order, order)));
  list(keep({}));
  const at = () => level ? LEVELS.indexOf(level) : LEVELS.length;
  const does = {
    why, repeat: again, pair, undo, redo, hint: hintNow, play: replay, load,
    before: () => start(LEVELS[at() - 1]), next: () => start(LEVELS[at() + 1]), on: () => start(LEVELS[at() + 1]),
    again: () => change(level ? startOf(level) : emptyRows(machine), "From the start."),
    share: () => copy(link()), found: () => copy(Object.values(finding()).join("\n\n")),
    csv: () => copy(forTorch(rows, machine)),
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
