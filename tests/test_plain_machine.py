"""The machine against a slow and plain one that was written from the contract alone.

PLAIN_EXAMPLES=20000 makes it a long search (see tests/slow.py, too).
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from lib import Deadlock, Model, PuzzleError, Run, run
from lib.machine.cost import LINKS
from tests.plain_machine import AllRefused, LeftOver, Plain, Refused, Stuck
from tests.plain_programs import Program, Step, inputs_at_will, perform, program_of
from tests.plain_sharded import sharded_program
from tests.plain_tensors import union
from tests.slow import some

pytestmark = pytest.mark.usefixtures(inputs_at_will.__name__)
SEEDS = some(range(int(os.environ.get("PLAIN_EXAMPLES", "1500"))))
SHARDED = some(range(int(os.environ.get("PLAIN_EXAMPLES", "400"))))
COUNTS: Counter[Any] = Counter()


WORDS = {
    "gaps": "gaps",
    "shard twice": "a shard would be counted more than once",
    "not one thing": "not parts of one tensor",
    "different layers": "different layers do not add up",
    "micro-batch twice": "would be counted more than once",
    "different shards": "different shards do not add up",
    "taken before": "taken that piece",
    "incomplete": "the weight is not complete",
    "updated": "has been updated already",
    "other layer": "of layer",
    "other micro-batches": "different micro-batches",
    "micro-batch missing": "is missing micro-batch",
    "other step": "of different steps",
    "other shards": "of different shards",
    "not covered": "is missing shards",
    "different calls": " calls ",
}
"""What an error says of what is wrong."""
COMMON = ("different calls", "micro-batch missing", "incomplete", "other shards", "different shards", "shard twice")
"""Of that, what is often wrong in random programs."""


def disagreement(program: Program, order: list[int]) -> str:
    """What the two machines say that differs; empty if nothing does."""
    plain = predicted(program, strict=True)
    COUNTS[plain if isinstance(plain, str) else "ended" if isinstance(plain, Plain) else "refused"] += 1
    COUNTS[program.links, "stuck" if plain == "stuck" else isinstance(plain, Plain)] += 1
    try:
        real = run(perform(program), **program.size, _order=order)
    except PuzzleError as error:
        if isinstance(plain, list):
            differs = "" if any(same_error(error, one) for one in plain) else f"real: {error}\nplain: {plain}"
            return differs or without_rules(program, order, plain)
        verdict = "stuck" if isinstance(error, Deadlock) else "left over" if "never" in error.problem else str(error)
        return "" if plain == verdict else f"real: {verdict}\nplain: {plain}"
    if not isinstance(plain, Plain):
        return f"real: ended\nplain: {plain}"
    COUNTS.update(event.kind for event in real.events)
    COUNTS.update(f"{len(event.layers)} layers" for event in real.events)
    events = [(e.rank, e.kind, e.group, e.elements, e.issued, e.start, e.end, e.held) for e in real.events]
    for mine, wanted in zip(events, plain.events(), strict=True):
        if mine != wanted:
            return f"real:  {mine}\nplain: {wanted}"
    for rank, model in enumerate(real.models):
        if (ends := left(model)) != plain.left(rank):
            return f"rank {rank} ends with\nreal:  {ends}\nplain: {plain.left(rank)}"
    COUNTS["right" if plain.right else "wrong"] += 1
    figures = [
        (one.time, one.memory, "right" if good else "wrong")
        for one, good in ((real, right(real)), (plain, plain.right))
    ]
    return "" if figures[0] == figures[1] else f"real: {figures[0]}, plain: {figures[1]}"


def predicted(program: Program, strict: bool) -> Plain | str | list[Refused]:
    """What the plain machine says: itself, if the program ends."""
    try:
        return Plain(program, strict)
    except Stuck:
        return "stuck"
    except LeftOver:
        return "left over"
    except AllRefused as error:
        return error.args[0]


def same_error(error: PuzzleError, refused: Refused) -> bool:
    """Whether an error names the place of what is refused, as far as it says one, and something that is wrong there."""
    place = error.place
    for said, known in ((place.rank, refused.ranks), (place.operation, [refused.kind]), (place.layer, [refused.layer])):
        if said not in (None, "", *known):
            return False
    found = [wrong for wrong in refused.wrong if WORDS[wrong] in error.problem]
    COUNTS.update(found)
    return bool(found)


def without_rules(program: Program, order: list[int], refused: list[Refused]) -> str:
    """What differs where the rules about sets are off, so that only values tell right from wrong."""
    if any("different calls" in one.wrong for one in refused):
        return ""
    plain = predicted(program, strict=False)
    wanted = isinstance(plain, Plain) and plain.right
    try:
        real = right(run(perform(program), **program.size, _order=order, _strict=False))
    except PuzzleError:
        real = False
    COUNTS[f"{'right' if wanted else 'wrong'} without rules"] += 1
    return "" if real == wanted else f"without rules, real: right is {real}, plain: {wanted} ({plain}; {refused})"


def right(real: Run) -> bool:
    """Whether the final weights are right."""
    try:
        real.verify()
    except PuzzleError:
        return False
    return True


def left(model: Model) -> list[tuple[Any, ...]]:
    """What a rank ends with: which pieces of what."""
    ends = []
    for store in model.storage():
        for one in store.values():
            shards, total = sorted(getattr(one, "shards", {0})), getattr(one, "total", 1)
            piece = union([((Fraction(shard, total), Fraction(shard + 1, total)),) for shard in shards])
            batches = sorted(getattr(one, "batches", ()))
            ends.append((type(one).__name__, one.layer, getattr(one, "step", 0), batches, piece))
    return sorted(ends)


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


def search(seed: int, program_of: Callable[[random.Random], Program]) -> None:
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
        search(seed, program_of)
    assert COUNTS["ended"] > len(SEEDS) / 2  # and it has seen programs of all kinds
    assert COUNTS["stuck"] > len(SEEDS) / 10
    assert min(COUNTS[links, end] for links in LINKS for end in (True, "stuck")) > len(SEEDS) / 60
    assert COUNTS["left over"] > len(SEEDS) / 200
    for kind in ("forward", "backward", "update", "allgather", "scatterreduce", "allreduce", "pass_to", "receive"):
        assert COUNTS[kind] > len(SEEDS) / 60, kind
    for layers in (1, 2, 3):
        assert COUNTS[f"{layers} layers"] > len(SEEDS) / 60, layers


def test_programs_with_pieces_run_as_the_plain_machine_says() -> None:
    COUNTS.clear()
    for seed in SHARDED:
        search(seed, sharded_program)
    assert COUNTS["right"] > len(SHARDED) / 3  # and it has seen programs of all kinds
    for kind in ("update", "allgather", "scatterreduce", "allreduce", "pass_to", "receive"):
        assert COUNTS[kind] > len(SHARDED) / 10, kind
    for verdict in ("wrong", "stuck", "refused", "wrong without rules", *COMMON) if len(SHARDED) > 300 else ():
        assert COUNTS[verdict] > len(SHARDED) / 300, verdict


TRAIN: list[Step] = [
    *(("load", 0, 0, 1, "P", "S"), ("take", 1, "X"), ("forward", 0, "X", "P"), ("store", "Y"), ("loss", "Y")),
    *(("store", "Y"), ("backward", 0, "X", "Y", "P", ""), ("store", "D")),
]
UPDATE: list[Step] = [("update", 0, "D", "P", "S", ""), ("store", "P")]
FIRST: list[Step] = [("load", 0, 0, 4, "P", "S"), ("load", 0, 2, 4, "Q", "T")]
REFUSED: dict[str, list[Step]] = {
    "gaps": [*FIRST, ("combine", "P", "Q", "P"), ("shard", "P", "P", 0, 2)],
    "shard twice": [*FIRST, ("shard", "P", "Q", 1, 2), ("combine", "P", "Q", "P")],
    "not one thing": [*FIRST, ("load", 1, 1, 4, "Q", "T"), ("combine", "P", "Q", "P")],
    "different layers": [
        *(("load", 0, 0, 1, "P", "S"), ("load", 1, 0, 1, "Q", "T"), ("take", 1, "X"), ("forward", 0, "X", "P")),
        *(("store", "Y"), ("forward", 1, "Y", "Q"), ("loss", None), ("store", "Z"), ("backward", 1, "Y", "Z", "Q", "")),
        *(("store", "E"), ("zero", "D", 0), ("add", "D", "E", "D")),
    ],
    "micro-batch twice": [*TRAIN, ("add", "D", "D", "D")],
    "different shards": [
        *(*TRAIN, ("take", 1, "X", 1), ("forward", 0, "X", "P"), ("store", "Y"), ("loss", "Y"), ("store", "Y")),
        *(("backward", 0, "X", "Y", "P", ""), ("store", "E"), ("shard", "D", "D", 0, 2), ("shard", "E", "E", 1, 2)),
        ("add", "D", "E", "D"),
    ],
    "taken before": [*FIRST, ("load", 0, 1, 2, "Q", "")],
    "incomplete": [*FIRST, ("take", 1, "X"), ("forward", 0, "X", "P")],
    "updated": [*TRAIN, *UPDATE, ("forward", 0, "X", "P")],
    "other layer": [("load", 1, 0, 1, "P", "S"), ("take", 1, "X"), ("forward", 0, "X", "P")],
    "other micro-batches": [*TRAIN, ("take", 1, "X", 1), ("backward", 0, "X", "Y", "P", "")],
    "micro-batch missing": [*TRAIN, *UPDATE],
    "other step": [*TRAIN, *UPDATE, *UPDATE],
    "other shards": [*TRAIN, ("shard", "P", "P", 0, 2), *UPDATE],
    "not covered": [*TRAIN, ("shard", "D", "D", 0, 2), *UPDATE],
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_is_wrong_is_refused_for_its_own_reason(wrong: str) -> None:
    """The rarest of them random programs hardly ever do."""
    own = 2 if wrong in ("different shards", "other micro-batches", "micro-batch missing") else 1
    layers = 2 if wrong in ("not one thing", "different layers", "other layer") else 1
    program = Program(((REFUSED[wrong], [[]], []),), own=own, layers=layers, loaded=False)
    [refused] = predicted(program, strict=True)
    assert refused.wrong == {wrong}
    assert disagreement(program, [0]) == ""


def test_a_machine_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge itself: a plain machine with another price disagrees, and the program is made small."""
    steps: list[Step] = [("take", 1, "x"), ("forward", "x"), ("store", "y"), ("forward", "x"), ("drop", "y")]
    program = Program(((steps, [[]], []),))
    assert disagreement(program, [0]) == ""
    price = Plain.price
    monkeypatch.setattr(Plain, "price", lambda *args, **how: 2 * price(*args, **how))
    assert "forward" in disagreement(program, [0])
    assert reduced(program, [0]).scripts[0][0] == [("take", 1, "x"), ("forward", "x")]
