"use strict";
// What has to hold on the page: the tests add this script to it. Each check returns what is wrong.

// Rows that are refused, and what the board and `schedule` both say of them.
const WRONG = {
  "0F0,0X0": "'0X0' is no action of a schedule",
  "0F0,0B0\n0F1,1F0": "tage 0 is on rank 0 already",
  "0F0,0F1,0B0\n": "0B1 is missing",
  "0F0,0F0,0B0\n": "0F0 stands there 2 times",
  "0F0,0B0,0I0,0W0\n": "0B0 stands there beside one of its halves",
  "0F0,0B0,0F1,0B1\n1F0,1F1,1B1,1B0": "come to no end: rank 0 waits in column 2, 0B0, for 1SEND_B0 of rank 1; rank 1",
};
const ODD = ["0F0,0F1,0SEND_F0,0B0,0B1\n1F0,1B0,1F1,1B1", "0F1,0F0,(0F2;0B1)OVERLAP_F_B,0B0,0B2"];
const NAMED = ["one at a time", "GPipe", "1F1B", null, null, "ZB-H1", "interleaved", "ZB-V", "DualPipeV", null];
const wrong = (is, what) => is ? [] : [what];
const pasted = text => {
  $("rows").value = text;
  load();
  return $("say").textContent;
};

const CHECKS = {
  // A level begins short of its goal, and a stored order reaches it, with the figures and the name that it has.
  levels: () => LEVELS.flatMap((level, at) => {
    start(level);
    const before = isReached(), best = level.best;
    begin(level, machine, fromTokens(best.rows, machine));
    return [...wrong(!before, `${level.id} begins at its goal`),
      ...wrong(isReached() === !level.open, `${level.id}: the stored order`),
      ...wrong(result.time === best.time * TICK && result.memory === best.memory, `${level.id}: figures`),
      ...wrong(named(rows, machine, knownHere()) === NAMED[at], `${level.id} is ${named(rows, machine, knownHere())}`),
      ...wrong(location.hash.length < 150 && level.words.split("\n").length === 2, `${level.id} is long`)];
  }),
  // No move ends in a deadlock, many bring something with them, and short addresses keep the order.
  moves: () => {
    let seed = 1, came = 0;
    const random = below => (seed = seed * 16807 % 2147483647) % below;
    const found = LEVELS.slice(1).flatMap(level => upTo(60).flatMap(turn => {
      if (!turn) start(level);
      const rank = random(machine.ranks), at = random(rows[rank].length), to = random(rows[rank].length);
      const next = at === to ? {rows, came: []} : move(rows, machine, rank, at, to);
      [rows, came] = [next.rows, came + (next.came.length > 0)];
      const address = asAddress(null, rows, machine), kept = turn % 10 || same(fromAddress(address, []).rows, rows);
      const short = address.length < (machine.place === "line" ? 200 : 360);
      return wrong(play(rows, machine).whole && kept && short, `${level.id}, move ${turn}: ${address}`);
    }));
    return [...found, ...wrong(came > 100, "nothing comes along")];
  },
  // Rows for PyTorch, the same with all messages, and whether it has to be told that they are there.
  torch: () => {
    const levels = LEVELS.flatMap(({machine, ...level}) => [startOf({machine, ...level}),
      fromTokens(level.best.rows, machine)].map(rows => ({rows, machine})));
    return [...levels, ...ODD.map(text => readRows(text, FREE))].filter(({rows}) => rows.flat().length).map(
      ({rows, machine}) => [forTorch(rows, machine), forTorch(rows, machine, true), rows.flat().some(isSend)]);
  },
  // A broken address has a clear sentence, and an empty board.
  broken: () => {
    start(LEVELS[4]);
    const whole = location.hash, others = ["#nothing", "#99x99-line", "#2x2-line.=0F0,0B0~1F1"];
    return [whole.slice(0, -3), whole.replace("s.", "s.x"), ...others].flatMap(address => {
      history.replaceState(null, "", address);
      arrive();
      const clear = /^This link is broken: .+\. Here is an empty board\.$/.test($("say").textContent);
      return wrong(clear && !rows.flat().length, `${address}: ${$("say").textContent}`);
    });
  },
  // Four backwards, dragged ahead by a pointer, and each once more for later micro-batches, make 1F1B of GPipe.
  hands: () => {
    start(LEVELS[2]);
    const drag = (id, to) => {
      const box = nodes.get(id), at = id => nodes.get(id).getBoundingClientRect();
      const event = (kind, {x, y}) => box.dispatchEvent(new PointerEvent(kind,
        {bubbles: true, pointerType: "mouse", clientX: x + 5, clientY: y + 9}));
      box.setPointerCapture = () => {};  // which only a real pointer has
      event("pointerdown", at(id));
      for (const kind of ["pointermove", "pointerup"]) event(kind, at(to));
      $("repeat").click();
    };
    [["3B0", "3F1"], ["2B0", "2F2"], ["1B0", "1F3"], ["0B0", "0F4"]].forEach(pair => drag(...pair));
    return wrong($("figures").textContent.includes("this is 1F1B") && !$("done").hidden, asText(rows));
  },
  // Keys build the first level, undo and redo, and the focus stays on the board.
  keys: () => {
    start(LEVELS[0]);
    nodes.get("+0F0").focus();
    const press = key => key === "Enter" ? document.activeElement.click()
      : document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    "Enter ArrowDown Enter ArrowRight Enter ArrowUp ArrowRight Enter z z y y".split(" ").forEach(press);
    const inside = $("board").contains(document.activeElement), sends = $("found").checkVisibility();
    return wrong(isReached() && inside && !sends, asText(rows));
  },
  // What is better than known can be sent, with its link and its rows.
  sent: () => {
    const level = {...LEVELS.at(-1), goal: {time: LEVELS.at(-1).best.time}};
    begin(level, level.machine, fromTokens(level.best.rows, level.machine));
    const text = Object.values(finding()).join("\n");
    return wrong(text.includes(asText(rows)) && text.includes(location.hash)
      && $("found").checkVisibility() === !ISSUES && $("send").checkVisibility() === Boolean(ISSUES), text);
  },
  // A row reads back as it was written, with late sends or with micro-batches out of order.
  odd: () => ODD.flatMap(text => {
    pasted(text);
    pasted($("rows").value);
    return wrong(asText(rows) === text && same(fromAddress(location.hash, LEVELS).rows, rows), $("rows").value);
  }),
  pasted: () => Object.keys(WRONG).flatMap(text => wrong(pasted(text).includes(WRONG[text]), pasted(text))),
};
