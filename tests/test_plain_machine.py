"""The machine against a slow and plain one that was written from the contract alone.

PLAIN_EXAMPLES=20000 makes it a long search (see tests/turns.py, too).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace

import pytest

from lib import Deadlock, PuzzleError, run
from tests.plain_machine import LeftOver, Plain, Stuck
from tests.plain_programs import Program, Step, inputs_at_will, perform, program_of
from tests.turns import examples

pytestmark = pytest.mark.usefixtures(inputs_at_will.__name__)
SEEDS = examples(range(int(os.environ.get("PLAIN_EXAMPLES", "1500"))))
COUNTS: Counter[str] = Counter()


def disagreement(program: Program, order: list[int]) -> str:
    """What the two machines say that differs; empty if nothing does."""
    try:
        plain: Plain | str = Plain(program)
    except Stuck:
        plain = "stuck"
    except LeftOver:
        plain = "left over"
    COUNTS["ended" if isinstance(plain, Plain) else plain] += 1
    try:
        real = run(perform(program), **program.size, _order=order)
    except PuzzleError as error:
        verdict = "stuck" if isinstance(error, Deadlock) else "left over" if "never" in error.problem else str(error)
        return "" if plain == verdict else f"real: {verdict}\nplain: {plain}"
    if isinstance(plain, str):
        return f"real: ended\nplain: {plain}"
    COUNTS.update(event.kind for event in real.events)
    COUNTS.update(f"{len(event.layers)} layers" for event in real.events)
    events = [(e.rank, e.kind, e.group, e.elements, e.issued, e.start, e.end, e.held) for e in real.events]
    for mine, wanted in zip(events, plain.events(), strict=True):
        if mine != wanted:
            return f"real:  {mine}\nplain: {wanted}"
    figures = f"real: {(real.time, real.memory)}, plain: {(plain.time, plain.memory)}"
    return "" if (real.time, real.memory) == (plain.time, plain.memory) else figures


def reduced(program: Program, order: list[int]) -> Program:
    """The program with as many steps dropped as can be while the machines disagree."""
    for size in (8, 4, 2, 1, 1):
        for rank, (before, branches, after) in enumerate(program.scripts):
            for place, steps in enumerate([before, *branches, after]):
                for at in reversed(range(0, len(steps), size)):
                    parts = [list(part) for part in (before, *branches, after)]
                    parts[place] = [*steps[:at], *steps[at + size :]]
                    scripts = list(program.scripts)
                    scripts[rank] = (parts[0], parts[1:-1], parts[-1])
                    shorter = replace(program, scripts=tuple(scripts))
                    if disagreement(shorter, order):
                        program, before, branches, after = shorter, parts[0], parts[1:-1], parts[-1]
                        steps = parts[place]
    return program


def search(seed: int) -> None:
    """Make a program, predict, run, compare."""
    chance = random.Random(seed)
    program = program_of(chance)
    order = chance.sample(range(len(program.scripts)), len(program.scripts))
    if disagreement(program, order):
        program = reduced(program, order)
        pytest.fail(f"{disagreement(program, order)}\n{program}\nstarted in the order {order}")


def test_programs_run_as_the_plain_machine_says() -> None:
    COUNTS.clear()
    for seed in SEEDS:
        search(seed)
    print(dict(COUNTS))
    assert COUNTS["ended"] > len(SEEDS) / 2  # and it has seen programs of all kinds
    assert COUNTS["stuck"] > len(SEEDS) / 10
    assert COUNTS["left over"] > len(SEEDS) / 200
    for kind in ("forward", "backward", "update", "allgather", "scatterreduce", "allreduce", "pass_to", "receive"):
        assert COUNTS[kind] > len(SEEDS) / 60, kind
    for layers in (1, 2, 3):
        assert COUNTS[f"{layers} layers"] > len(SEEDS) / 60, layers


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_an_await_resumes_in_the_order_of_the_ends_whoever_starts_first(order: list[int]) -> None:
    """The sum (there at 0.3) comes before the message (0.7), though both are there when the clock stands at 1."""
    branches: list[list[Step]] = [
        [("receive", None, "message"), ("await", "message", None), ("take", 1, "x")],
        [("zero", None, 0), ("meet", "allreduce", None, None, "sum"), ("await", "sum", None), ("forward", "X")],
        [("forward", "X")],
    ]
    other: list[Step] = [
        *(("zero", None, 0), ("meet", "allreduce", None, None, "sum"), ("await", "sum", None)),
        *(("send", 0, "text", "message"), ("await", "message", None)),
    ]
    program = Program((([("take", 1, "X")], branches, []), ([], [other], [])))
    assert disagreement(program, order) == ""
    assert [event.issued for event in run(perform(program), **program.size, _order=order).events][5:7] == [1.0, 2.0]


def test_a_machine_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge itself: a plain machine with another price disagrees, and the program is made small."""
    steps: list[Step] = [("take", 1, "x"), ("forward", "x"), ("store", "y"), ("forward", "x"), ("drop", "y")]
    program = Program(((steps, [[]], []),))
    assert disagreement(program, [0]) == ""
    price = Plain.price
    monkeypatch.setattr(Plain, "price", lambda *args, **how: 2 * price(*args, **how))
    assert "forward" in disagreement(program, [0])
    assert reduced(program, [0]).scripts[0][0] == [("take", 1, "x"), ("forward", "x")]
