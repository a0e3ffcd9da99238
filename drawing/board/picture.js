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
  return {tall, pad, head, step, width, height, until, at, across, spot};
}

const nodes = new Map();  // the buttons, by name
let under, over;  // what is drawn below them and above them

// Change of a button only what differs: most stay as they are.
function dress(id, rank, begins, {x, y, w, h}, classes, words, label) {
  if (!nodes.has(id)) {
    nodes.set(id, document.createElement("button"));
    nodes.get(id).dataset.id = id;
    $("board").append(nodes.get(id));
  }
  const node = nodes.get(id), place = `translate(${x.toFixed(1)}px,${y.toFixed(1)}px)`;
  const style = `transform:${place};width:${w.toFixed(1)}px;height:${h.toFixed(1)}px`;
  if (node.looks !== style) node.style.cssText = node.looks = style;
  if (node.className !== classes) node.className = classes;
  if (node.textContent !== words) node.textContent = words;
  if (node.label !== label) node.setAttribute("aria-label", node.label = label);
  Object.assign(node, {rank, begins, seen: true});
}

// What of a name there is room for.
function shown({stage, kind, mb}, {w, h}) {
  return h < 11 || w < 11 ? "" : w > 27 ? stage + kind + mb : w > 18 ? kind + mb : String(mb);
}

// view: {machine, rows, result, chosen, hinted, chain, now, goal, bound, ghosts: whether what can be done next is
// shown, until: the end of the time that is shown, which stays while a piece is dragged}
function drawBoard(view) {
  if (!under) {
    $("board").innerHTML = '<svg aria-hidden="true"></svg><svg aria-hidden="true" style="z-index:4"></svg>';
    [under, over] = $("board").children;
  }
  const {machine, rows, result, chosen, hinted} = view, of = rankOf(machine), prices = pricesOf(machine);
  const ghosts = upTo(machine.ranks).map(rank => view.ghosts ? ready(rows, machine, rank) : []);
  const ends = ghosts.map((all, rank) => all.reduce((end, piece) => end + prices[piece.kind], result.clocks[rank]));
  const until = view.until ?? Math.max(result.time, view.goal || 0, view.bound, ...ends) + TICK / 4;
  const geo = layout($("board").clientWidth || 900, machine.ranks, until);
  const marked = chosen ? parts(chosen).map(name) : [];
  $("board").style.height = `${geo.height}px`;
  nodes.forEach(node => { node.seen = false; });
  const show = (piece, begin, spot, kind) => {
    const id = name(piece), second = kind !== "message" && piece.stage !== of.indexOf(of[piece.stage]);
    const mark = marked.includes(id) ? "chosen" : chosen && parts(chosen)[0].mb === piece.mb ? "kin" : "";
    const classes = [kind, second && "second", mark, hinted === id && "hinted"].filter(Boolean).join(" ");
    const words = kind === "message" ? "" : shown(piece, spot), rank = of[piece.stage];
    dress(id, rank, begin, spot, classes, words, `${id}, ${inWords(piece)}, rank ${rank}, at ${ticks(begin)}`);
  };
  rows.forEach((row, rank) => {
    const boxes = new Map(result.boxes[rank].map(box => [name(box), box]));
    for (const piece of row.filter(piece => !isSend(piece))) {
      const all = parts(piece), {begin} = boxes.get(name(all[0])), {end} = boxes.get(name(all.at(-1)));
      const share = at => WORK[0] + at * (WORK[1] - WORK[0]) / all.length;
      all.forEach((part, at) => show(part, begin, geo.spot(rank, begin, end, [share(at), share(at + 1)]), part.kind));
    }
  });
  for (const message of machine.message ? result.messages : []) {
    const {from, begin, end} = message;
    show(sendOf(message), begin, geo.spot(from, begin, end, LINK), "message");
  }
  ghosts.forEach((all, rank) => all.reduce((begin, piece) => {
    const id = `+${name(piece)}`, end = begin + prices[piece.kind], spot = geo.spot(rank, begin, end, WORK);
    const classes = `ghost ${piece.kind}${hinted === id ? " hinted" : ""}`;
    const label = `Add ${name(piece)}, ${inWords(piece)}, on rank ${rank}`;
    dress(id, rank, begin, spot, classes, shown(piece, spot) || "+", label);
    return end;
  }, result.clocks[rank]));
  for (const [id, node] of nodes) if (!node.seen) {
    node.remove();
    nodes.delete(id);
  }
  const reached = nodes.get(marked[0]) ?? nodes.values().next().value;  // by the tab key; arrows go on from there
  nodes.forEach(node => { if (node.tabIndex !== (node === reached) - 1) node.tabIndex = (node === reached) - 1; });
  under.innerHTML = ground(view, geo);
  over.innerHTML = lines(view, geo);
  return geo;
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
    const all = [...most], end = Math.max(result.clocks[rank], all.at(-1)?.[0] ?? 0);
    return all.map(([time, held], at) => {
      const spot = geo.spot(rank, time, all[at + 1]?.[0] ?? end, share(held));
      return rect(cap && held > cap ? "over" : "memory", tall ? {...spot, h: spot.h + 1} : {...spot, w: spot.w + 1});
    });
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
