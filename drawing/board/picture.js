"use strict";
// The picture: a button for each piece of work, so that fingers, keys and screen readers find it; memory, lines and the
// longest chain in drawings below and above. On a narrow page time runs downwards, and ranks are columns.

const $ = id => document.getElementById(id);
const ticks = units => String(Math.round(units / TICK * 100) / 100);
const thousands = elements => Math.round(elements / 1000).toLocaleString("en-US");
const NAMES = {F: "forward", B: "backward", I: "backward for the input", W: "backward for the weight",
  SEND_F: "message with the output", SEND_B: "message with the gradient"};
const inWords = piece => piece.both ? piece.both.map(inWords).join(" beside ")
  : `${NAMES[piece.kind]} of stage ${piece.stage}, micro-batch ${piece.mb}`;

// The shares of a lane: pieces of work, messages, memory.
const WORK = [.03, .6], LINK = [.62, .7], MEMORY = [.72, .96];

// Where things lie. `spot` gives the corner and the size of a span of time on a rank, in a share of its lane.
function layout(width, ranks, until) {
  const tall = width < 700, head = 20, pad = tall ? 24 : 54, open = until / TICK;
  const lane = tall ? (width - pad) / ranks : Math.max(46, Math.min(88, 420 / ranks));
  const step = tall ? Math.max(20, Math.min(30, 860 / open)) : (width - pad - 6) / open;
  const height = tall ? head + open * step + 6 : head + ranks * lane;
  const at = time => (tall ? head : pad) + time / TICK * step;
  const across = (rank, share) => (tall ? pad : head) + (rank + share) * lane;
  const spot = (rank, begin, end, [from, to]) => {
    const along = at(begin), long = Math.max(2, at(end) - along - 1);
    const side = across(rank, from), wide = (to - from) * lane;
    return tall ? {x: side, y: along, w: wide, h: long} : {x: along, y: side, w: long, h: wide};
  };
  return {tall, pad, head, step, width, height, until, at, across, spot, looks: `${width} ${ranks} ${until}`};
}

const nodes = new Map();  // the buttons, by name
let under, lists, over;  // what is drawn below them and above them, and for screen readers the lists of them

// Put a button where a piece of work lies. Most stay as they are from one picture to the next, and are left alone.
function dress(id, piece, rank, begin, end, share, classes, geo) {
  const looks = [geo.looks, rank, begin, end, ...share, classes].join(" ");
  if (!nodes.has(id)) nodes.set(id, $("board").appendChild(Object.assign(document.createElement("button"), {id})));
  const node = nodes.get(id);
  node.seen = true;
  if (node.looks === looks) return;
  const spot = geo.spot(rank, begin, end, share), [x, y, w, h] = Object.values(spot).map(side => side.toFixed(1));
  const ghost = id.startsWith("+"), words = isSend(piece) ? "" : shown(piece, spot) || (ghost ? "+" : "");
  const label = `${inWords(piece)}, rank ${rank}, at ${ticks(begin)}`;
  node.style.cssText = `transform:translate(${x}px,${y}px);width:${w}px;height:${h}px`;
  node.setAttribute("aria-label", ghost ? `Add ${name(piece)}, ${label}` : `${id}, ${label}`);
  if (node.textContent !== words) node.textContent = words;
  Object.assign(node, {className: classes, looks, rank, begins: begin});
}

// What of a name there is room for.
function shown({stage, kind, mb}, {w, h}) {
  return h < 11 || w < 11 ? "" : w > 27 ? stage + kind + mb : w > 18 ? kind + mb : String(mb);
}

// view: {machine, rows, result, chosen, hinted, chain, now, goal, bound, ghosts: whether what can be done next is
// shown, until: the end of the time that is shown, which stays while a piece is dragged}
function drawBoard(view) {
  if (!under) {
    const drawing = '<svg aria-hidden="true"></svg>';
    $("board").innerHTML = `${drawing}<div></div>${drawing.replace(" ", ' style="z-index:4" ')}`;
    [under, lists, over] = $("board").children;
  }
  const {machine, rows, result, chosen, hinted} = view, of = rankOf(machine);
  const ghosts = view.ghosts ? upcoming(view) : [], marked = chosen ? parts(chosen).map(name) : [];
  const end = Math.max(result.time, view.goal || 0, view.bound, ...ghosts.map(({end}) => end));
  const until = view.until ?? end + TICK / 4;
  const geo = layout($("board").clientWidth || 900, machine.ranks, until);
  $("board").style.height = `${geo.height}px`;
  nodes.forEach(node => { node.seen = false; });
  const show = (piece, {begin, end}, share, kind) => {
    const id = name(piece), second = kind !== "message" && piece.stage !== of.indexOf(of[piece.stage]);
    const mark = marked.includes(id) ? "chosen" : chosen && parts(chosen)[0].mb === piece.mb ? "kin" : "";
    const classes = [kind, second && "second", mark, hinted === id && "hinted"].filter(Boolean).join(" ");
    dress(id, piece, of[piece.stage], begin, end, share, classes, geo);
  };
  rows.forEach((row, rank) => {
    const boxes = result.boxes[rank].filter(box => NAMES[box.kind]).values();
    for (const piece of row.filter(piece => !isSend(piece))) {
      const all = parts(piece), mine = all.map(() => boxes.next().value), span = {...mine[0], end: mine.at(-1).end};
      const share = at => WORK[0] + at * (WORK[1] - WORK[0]) / all.length;
      all.forEach((part, at) => show(part, span, [share(at), share(at + 1)], part.kind));
    }
  });
  for (const message of machine.message ? result.messages : []) show(sendOf(message), message, LINK, "message");
  for (const {piece, rank, begin, end} of ghosts) {
    const id = `+${name(piece)}`;
    dress(id, piece, rank, begin, end, WORK, `ghost ${piece.kind}${hinted === id ? " hinted" : ""}`, geo);
  }
  for (const [id, node] of nodes) if (!node.seen) {
    node.remove();
    nodes.delete(id);
  }
  const reached = nodes.get(marked[0]) ?? nodes.values().next().value;  // by the tab key; arrows go on from there
  nodes.forEach(node => { if (node.tabIndex !== (node === reached) - 1) node.tabIndex = (node === reached) - 1; });
  $("board").classList.toggle("many", nodes.size > 400);
  redraw(under, ground(view, geo));
  if (!view.until) redraw(lists, heard(view));
  redraw(over, lines(view, geo));
  return geo;
}
const redraw = (place, words) => { if (place.drawn !== words) place.innerHTML = place.drawn = words; };

// What can be done next, where it would stand: as soon as its rank is free, and what it reads has come.
function upcoming({machine, rows, result}) {
  const prices = pricesOf(machine), last = rankOf(machine).length - 1;
  return upTo(machine.ranks).flatMap(rank => {
    let free = result.clocks[rank];
    return ready(rows, machine, rank).map(piece => {
      const begin = Math.max(free, ...needs(piece, last).map(read => result.arrived.get(read) ?? 0));
      return {piece, rank, begin, end: free = begin + prices[piece.kind]};
    });
  });
}

// For screen readers: the boxes of each rank in the order of time, and what it holds.
function heard({machine: {ranks, cap}, result}) {
  const all = [...nodes.values()].sort((one, other) => one.begins - other.begins);
  return upTo(ranks).map(rank => {
    const mine = all.filter(node => node.rank === rank).map(node => node.id).join(" ");
    const over = result.curves[rank].filter(({held}) => cap && held > cap).map(({time}) => ticks(time));
    const much = over.length ? `, too much as work begins from ${over[0]} to ${over.at(-1)}` : "";
    const words = `Rank ${rank}, holds at most ${thousands(result.peaks[rank])} thousand elements${much}`;
    return `<div role="group" aria-label="${words}" aria-owns="${mine}"></div>`;
  }).join("");
}

const rect = (kind, {x, y, w, h}) =>
  `<rect class="${kind}" x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${w.toFixed(1)}" height="${h.toFixed(1)}"/>`;
const text = (kind, x, y, words, anchor = "start") =>
  `<text class="${kind}" x="${x}" y="${y}" text-anchor="${anchor}">${words}</text>`;
// A line from one place in time and across the ranks to another.
function line(kind, {tall}, [time, side], [till, other]) {
  const [x1, y1, x2, y2] = tall ? [side, time, other, till] : [time, side, till, other];
  return `<line class="${kind}" x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}"/>`;
}
function across(kind, geo, time) {
  const at = geo.at(time), from = geo.tall ? geo.pad : geo.head - 4;
  return line(kind, geo, [at, from], [at, geo.tall ? geo.width : geo.height]);
}

// Lanes, the axis of time, updates, and what each rank holds.
function ground({machine, result}, geo) {
  const every = geo.step > 24 ? 1 : geo.step > 12 ? 2 : geo.step > 5 ? 5 : 10, {tall, until} = geo, {cap} = machine;
  const lanes = upTo(machine.ranks).map(rank => {
    const middle = geo.across(rank, .3), words = tall && machine.ranks > 6 ? rank : `rank ${rank}`;
    const label = tall ? text("rank", middle, 13, words, "middle") : text("rank", 2, middle + 4, words);
    return rect("lane", geo.spot(rank, 0, until, WORK)) + label;
  });
  const axis = upTo(Math.floor(until / TICK / every) + 1).map(number => {
    const time = number * every * TICK, [x, y] = tall ? [1, geo.at(time) + 4] : [geo.at(time) + 2, 12];
    return across("line", geo, time) + text("tick", x, y, time / TICK);
  });
  const top = Math.max(result.memory, cap, 1) * 1.03, high = held => held / top * (MEMORY[1] - MEMORY[0]);
  const share = held => tall ? [MEMORY[0], MEMORY[0] + high(held)] : [MEMORY[1] - high(held), MEMORY[1]];
  const memory = result.curves.flatMap((curve, rank) => {
    const most = new Map();  // of what is held at one time
    curve.forEach(({time, held}) => most.set(time, Math.max(held, most.get(time) ?? 0)));
    const all = [...most], end = Math.max(result.clocks[rank], all.at(-1)?.[0] ?? 0), bars = {memory: "", over: ""};
    all.forEach(([time, held], at) => {
      const {x, y, w, h} = geo.spot(rank, time, all[at + 1]?.[0] ?? end, share(held));
      const [wide, high] = (tall ? [w, h + 1] : [w + 1, h]).map(side => side.toFixed(1));
      bars[cap && held > cap ? "over" : "memory"] += `M${x.toFixed(1)} ${y.toFixed(1)}h${wide}v${high}h-${wide}z`;
    });
    return Object.entries(bars).map(([kind, bar]) => `<path class="${kind}" d="${bar}"/>`);
  });
  const caps = upTo(cap ? machine.ranks : 0).map(rank => {
    const side = geo.across(rank, share(cap)[tall ? 1 : 0]);
    return line("cap", geo, [geo.at(0), side], [geo.at(until), side]);
  });
  const updates = result.boxes.flat().filter(box => box.kind === "UPDATE" && box.end > box.begin)
    .map(box => rect("update", geo.spot(box.rank, box.begin, box.end, WORK)));
  return [...lanes, ...axis, ...memory, ...caps, ...updates].join("");
}

// The bound, the goal, the chain, and the moment of a replay with its messages.
function lines({result, bound, goal, chain, now}, geo) {
  const all = [across("bound", geo, bound), goal ? across("goal", geo, goal) : ""];
  const middle = (rank, time) => {
    const along = geo.at(time), side = geo.across(rank, .32);
    return geo.tall ? [side, along] : [along, side];
  };
  if (chain) {
    const ends = ({kind, rank, from, to, begin, end}) => kind ? [middle(rank, begin), middle(rank, end)]
      : to === undefined ? [] : [middle(from, begin), middle(to, end)];
    const points = chain.flatMap(ends).map(point => point.map(Math.round).join(",")).join(" ");
    all.push(`<polyline class="way" points="${points}"/><polyline class="chain" points="${points}"/>`);
  }
  for (const {from, to, begin, end} of now === undefined ? [] : result.messages) {
    const part = (now - begin) / Math.max(end - begin, TICK * .3), [a, b] = [middle(from, now), middle(to, now)];
    const [x, y] = [0, 1].map(at => a[at] + (b[at] - a[at]) * part);
    if (part >= 0 && part <= 1) all.push(`<circle class="dot" cx="${x}" cy="${y}" r="6"/>`);
  }
  if (now !== undefined) all.push(across("now", geo, now));
  return all.join("");
}
