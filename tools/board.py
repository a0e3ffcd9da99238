"""Random schedules, and what the board's engine in JavaScript and the machine make of each: the tests compare them.

    python -m tools.board [--count 100]

puts small mistakes into the engine, one at a time, and lists those that no schedule shows.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from random import Random
from typing import Any

from lib import Cost, PuzzleError, run, schedule
from lib.record.figures.score import idle_share
from lib.record.table import SEND
from lib.schedules.figures import Prices
from lib.schedules.task import PLACEMENTS, Task
from solutions.build.pages.board import SCRIPTS, SOURCE
from solutions.build.sources.files import ROOT

LETTERS = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W", "loss": "LOSS"}
STUCK = re.compile(r"rank (\d+) waits in column (\d+)")
ENDING = 500
"""Random rows that come to an end, which are looked at, with what comes to none on the way there."""
IN_PAGE = """cases => cases.map(({rows, rankOf, ranks, batches, prices, per}) => {
    const pieces = row => row.map(text => readPiece(text, ""));
    const {whole, at, time, bubble, peaks, memory, boxes, messages} = evaluate(rows.map(pieces), rankOf, prices);
    const steps = new Set(boxes.flat());
    for (const step of steps) if (step.after) steps.add(step.after);
    return {
        whole, at, peaks, memory, time: time / per, bubble: +bubble.toFixed(9),
        gaps: [...steps].filter(one => one.begin !== (one.after?.end ?? 0)).length,
        boxes: boxes.flat().filter(one => one.kind !== "UPDATE").map(one =>
            [one.kind, one.stage, one.mb, one.rank, one.begin / per, one.end / per]),
        messages: messages.map(one => [one.from, one.to, one.begin / per, one.end / per]),
        bounds: [false, true].map(halves => +(bound(rankOf, ranks, batches, halves, prices) / per).toFixed(9)),
    };
})"""


class Case:
    """Random rows: where the stages lie, in which order each rank works, what is sent late, which pieces overlap."""

    def __init__(self, seed: int) -> None:
        rnd = Random(seed)
        some, size = rnd.choice, (rnd.choice([1, 2, 3, 3, 4, 4]), rnd.randint(1, 5))
        self.placement, (self.ranks, self.batches) = some(["line", "ring", "v"]), size
        self.rank_of = PLACEMENTS[self.placement](self.ranks)
        halves = {"backward_input": some([None, None, 0.5, 1.25]), "backward_weight": some([None, None, 0.5, 0.75])}
        messages = {"send": some([0, 0, 0.2, 0.5, 1]), "receive": some([0, 0.2, 0.1, 1])}
        if rnd.random() < 0.2:
            halves, messages = {}, {"send": 1, "receive": 1}  # much happens at one time then
        work = {"forward": some([1, 2, 0.5]), "backward": some([1, 2, 1.5]), "loss": some([0, 0, 0.25])}
        prices: dict[str, Any] = {**work, **halves, **messages, "update": some([0.5, 0])}
        self.cost = Cost(**prices, overlapped=some([0, 1, 0.5]))
        share, late = some([0, 0.5, 1]), some([0, 0, 0.2])
        every = [(stage, mb) for mb in range(self.batches) for stage in range(len(self.rank_of))]
        self.cut = {one: rnd.random() < share for one in every}
        all_of_it = [(stage, kind, mb) for stage, mb in every for kind in ("FIW" if self.cut[stage, mb] else "FB")]
        sends = [send for one in all_of_it if rnd.random() < late and (send := self.send_of(*one))]
        self.rows = self.in_order(rnd, all_of_it + sends, rnd.random() < 0.85)
        if rnd.random() < 0.7:
            self.rows = [self.with_pairs(rnd, row) for row in self.rows]

    def send_of(self, stage: int, kind: str, mb: int) -> tuple[int, str, int] | None:
        """The send of what a piece of work makes, if another rank reads it."""
        reader = stage + (1 if kind == "F" else -1)
        there = kind != "W" and 0 <= reader < len(self.rank_of) and self.rank_of[reader] != self.rank_of[stage]
        return (stage, "SEND_F" if kind == "F" else "SEND_B", mb) if there else None

    def needs(self, stage: int, kind: str, mb: int) -> set[tuple[int, str, int]]:
        """What has to be done before a piece of work."""
        back = {at: "I" if cut else "B" for (at, other), cut in self.cut.items() if other == mb}
        if kind == "F":
            return {(stage - 1, "F", mb), (stage - 1, "SEND_F", mb)}
        if kind in ("W", "SEND_F", "SEND_B"):
            return {(stage, {"W": "I", "SEND_F": "F"}.get(kind, back[stage]), mb)}
        return {(stage, "F", mb), (stage + 1, back.get(stage + 1, ""), mb), (stage + 1, "SEND_B", mb)}

    def in_order(self, rnd: Random, left: list[tuple[int, str, int]], strict: bool) -> list[list[str]]:
        """Rows of work that can be done when its turn comes; or, unless strict, that may wait for what comes too late
        on another rank."""
        rows: list[list[str]] = [[] for _ in range(self.ranks)]
        ahead, rank_of = rnd.choice([0, 1, 2, 9]), {one: self.rank_of[one[0]] for one in left}
        needs = {one: self.needs(*one) & rank_of.keys() for one in left}
        if not strict:
            needs = {one: {other for other in its if rank_of[other] == rank_of[one]} for one, its in needs.items()}
        while left:
            ready = [one for one in left if needs[one].isdisjoint(left)]
            stage, kind, mb = one = rnd.choice([one for one in ready if one[2] <= ready[0][2] + ahead])
            left.remove(one)
            rows[self.rank_of[stage]].append(f"{stage}{kind}{mb}")
        return rows

    def with_pairs(self, rnd: Random, row: list[str]) -> list[str]:
        """A row in which some forwards overlap with the backward after them."""
        found = list[str]()
        for piece in row:
            pair = re.fullmatch(r"\d+F(\d+) \d+[BIW](\d+)", f"{found[-1] if found else ''} {piece}")
            joined = pair and pair[1] != pair[2] and rnd.random() < 0.5
            found[-1:] = [f"{found[-1]}_{piece}"] if joined else [*found[-1:], piece]
        return found

    def on_the_board(self) -> dict[str, Any]:
        """What the board is given."""
        prices = Prices.of(self.cost)
        named = {**prices.work, **prices._asdict(), "LOSS": prices.loss, "overlapped": self.cost.overlapped, "work": 0}
        given = {"prices": {name: float(price) for name, price in named.items()}, "per": float(self.cost.per_tick)}
        return {"rows": self.rows, "rankOf": self.rank_of, "ranks": self.ranks, "batches": self.batches, **given}

    def on_the_machine(self) -> dict[str, Any]:
        """What a run gives, in the words of the board."""
        try:
            plan = schedule(self.rows)
        except PuzzleError as error:
            assert "come to no end" in str(error), error
            stuck = {int(rank): int(column) - 1 for rank, column in STUCK.findall(str(error))}
            return {"whole": False, "at": [stuck.get(rank, len(row)) for rank, row in enumerate(self.rows)]}
        done = run(plan, plan.ranks, plan.stages, plan.micro_batches, cost=self.cost)
        samples = [[sum(one.held) for one in done.events if one.rank == rank] for rank in range(done.ranks)]
        boxes = [
            [kind, (one.layer or 0) - (kind == "LOSS"), min(one.batches), one.rank, one.start, one.end]
            for one in done.events
            if (kind := LETTERS.get(one.kind))
        ]
        sent = [[one.rank, one.op[1], one.start, one.end] for one in done.events if one.kind == SEND.kind and one.op]
        bubble = round(idle_share(done.events, done.ranks, done.time), 9)
        figures = {"time": done.time, "memory": done.memory, "peaks": [*map(max, samples)], "bubble": bubble}
        bounds = [Task(self.placement, self.ranks, self.batches, self.cost, cut, None).bound() for cut in (False, True)]
        known = {"bounds": [round(float(bound), 9) for bound in bounds]} if not self.cost.overlapped else {}
        ends = {"whole": True, "at": [*map(len, self.rows)], "gaps": 0}
        return {**ends, **figures, **known, "boxes": sorted(boxes), "messages": sorted(sent)}


def cases(ending: int = ENDING) -> tuple[list[Case], list[dict[str, Any]]]:
    """Random schedules, so many of which come to their end, and what a run gives for each."""
    found, wanted = list[Case](), list[dict[str, Any]]()
    while sum(want["whole"] for want in wanted) < ending:
        found.append(Case(len(found)))
        wanted.append(found[-1].on_the_machine())
    return found, wanted


def agrees(one: dict[str, Any], want: dict[str, Any]) -> bool:
    """Whether the board says of a schedule what a run gives, and of none that it is faster than its bound."""
    known = {name: sorted(one[name]) if name in ("boxes", "messages") else one[name] for name in want}
    return known == want and (not want["whole"] or one["bounds"][1] <= want["time"] + 1e-6)


CHANGES = [
    *[("+", "-"), ("-", "+"), ("Math.max", "Math.min"), ("Math.min", "Math.max"), ("<", "<="), ("<=", "<")],
    *[(">", ">="), (">=", ">"), ("===", "!=="), ("!==", "==="), ("+=", "-="), ("-=", "+="), ("&&", "||"), ("||", "&&")],
    *[("prices.send", "prices.receive"), ("prices.activation", "prices.grad"), ("return false", "return true")],
    *[("continue;", ";"), ("break;", ";"), ("?? 0", "?? 1"), ("2 * ", "1 * "), (".shift()", ".pop()")],
    *[(".at(-1)", ".at(0)"), ("= 0;", "= 1;"), ("++", "--")],
]
"""Small mistakes: what stands there, and what stands there instead."""
OPERATORS = ("+", "-", "<", "<=", ">", ">=", "===", "!==", "+=", "-=", "&&", "||")
GUARD = """let turns = 0;
const go = () => { if (++turns > 1e6) throw new Error("no end"); return true; };
"""


def mutants(engine: str) -> list[tuple[int, str, str]]:
    """Each mistake that can be made: the line, the change, and the engine that has it."""
    found = []
    for one, other in CHANGES:
        operator = re.escape(f" {one} ") if one in OPERATORS else re.escape(one)
        for match in re.finditer(operator, engine):
            begin = engine.rfind("\n", 0, match.start()) + 1
            if "//" not in engine[begin : match.start()]:
                line = engine.count("\n", 0, begin) + 1
                changed = engine[: match.start()] + match[0].replace(one, other) + engine[match.end() :]
                found.append((line, f"{one} becomes {other}", changed))
    return found


def main() -> None:
    """Try some of the mutants in a browser, and list those that nobody notices."""
    from tests.browser import Browser

    parser = argparse.ArgumentParser(prog="python -m tools.board", description="Mistakes in the board's engine.")
    parser.add_argument("--count", type=int, default=100, help="how many mistakes are tried (100)")
    engine = (ROOT / SOURCE / "engine.js").read_text(encoding="utf-8")
    some = mutants(engine)
    random.Random(0).shuffle(some)
    some = some[: parser.parse_args().count]
    schedules, wanted = cases()
    given = json.dumps([case.on_the_board() for case in schedules])
    rest = "\n".join((ROOT / SOURCE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS[1:3])

    def noticed(page: Any, code: str) -> bool:
        ends = re.sub(r"while \((.*)\)( \{|;)", r"while (go() && (\1))\2", code).replace(
            "for (;;) {", "for (;;) { go();"
        )
        script = f"() => {{ {GUARD} {ends} {rest} return ({IN_PAGE})({given}); }}"
        try:
            return not all(map(agrees, page.evaluate(script), wanted))
        except Exception:  # it throws, or comes to no end
            return True

    with Browser() as browser:
        assert not browser.visit("about:blank", lambda page: noticed(page, engine))
        alive = browser.visit("about:blank", lambda page: [one for one in some if not noticed(page, one[2])])
    print(f"{len(some) - len(alive)} of {len(some)} mistakes are noticed.")
    for line, change, _ in sorted(alive):
        print(f"{line}: {change}: {engine.splitlines()[line - 1].strip()}")


if __name__ == "__main__":
    main()
