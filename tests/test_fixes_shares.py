"""What is told of shares of the batch that are not even, or that one rank has not, and of what only looks like a way
out: rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import grade
from lib.grading.verdict import FAIL
from tests.corpus import Program, changed
from tests.corpus.mistakes import MINE
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words

IN_TURN = "range(model.rank, model.BATCHES, model.RANKS)"
FAIR = "10 for rank 0, which is slow (a forward takes it 1.1 times as long), and 11 for each of the others"


def straggler(name: str, mine: str) -> Program:
    """The solution of R9 with another share of the batch for each rank."""
    return changed("repair_straggler", name, (MINE, mine))


def on(rank: str) -> str:
    """The micro-batches of a rank: ``rank`` says on which one ``b`` is."""
    return f"[b for b in range(model.BATCHES) if ({rank}) == model.rank]"


DEALT = "b % model.RANKS"
BLOCKS = "[*range({0} * (model.BATCHES // 4) + 3, model.BATCHES)][: model.BATCHES // 4] if {0} else [*range(13)]"
BY_SPEED = """\
    speed = [1 / 1.1] + [1.0] * (model.RANKS - 1)
    cut = [round(model.BATCHES * sum(speed[:i]) / sum(speed)) for i in range(model.RANKS + 1)]
    mine = range(cut[model.rank], cut[model.rank + 1])
"""
COSTS = [
    Row(straggler("two of the slow rank for the last", on(f"model.RANKS - 1 if b in (36, 40) else {DEALT}")), ("rank 3 has 12 micro-batches, and rank 0 has 9: share them out, " + FAIR,)),
    Row(straggler("one of the slow rank for the second", on(f"1 if b == 40 else {DEALT}")), ("rank 1 has 12 micro-batches, and rank 3 has 10: share them out, " + FAIR,)),
    Row(straggler("the rest for the slow rank", BLOCKS.format("model.rank")), ("rank 0 has 13 micro-batches, and rank 1 has 10: share them out, " + FAIR,), ("let the slow rank",)),
    Row(straggler("the rest for the second rank", BLOCKS.format("(model.rank - 1) % 4")), ("rank 1 has 13 micro-batches, and rank 2 has 10: share them out, " + FAIR,)),
    Row(straggler("in turn", IN_TURN), ("rank 0 is the slow one", "it has 11 micro-batches, rank 3 has 10: let the slow rank be the one that has 10"), ("share them out",)),
]  # fmt: skip
ROWS = [
    Row(straggler("one too late", "range(model.rank + 1, model.BATCHES, model.RANKS)"), ("they begin with micro-batches 1-4: let them begin with 0-3, range(first, model.BATCHES, model.RANKS)", "those that begin with 3 have one less, so let rank 0, which is slow, be one of these"), ("give it to",)),
    Row(straggler("one too late, in reverse", "range(model.RANKS - model.rank, model.BATCHES, model.RANKS)"), ("they begin with micro-batches 1-4: let them begin with 0-3",), ("give it to",)),
    Row(straggler("two too late", "range(model.rank + 2, model.BATCHES, model.RANKS)"), ("they begin with micro-batches 2-5: let them begin with 0-3",), ("give each",)),
    Row(straggler("one is left out", on(f"None if b == 40 else {DEALT}")), ("rank 3 has 10: give it to rank 3",), ("begin with",)),
    Row(straggler("one of the last is left out", on(f"None if b == 39 else {DEALT}")), ("rank 3 has 9: share out all 43, " + FAIR,), ("begin with", "give it to")),
    Row(straggler("the last ones are left out", on(f"None if b >= 41 else {DEALT}")), ("rank 3 has 10: share out all 43, " + FAIR,), ("begin with", "give each of them")),
    Row(straggler("none for the slow rank", "range(model.rank - 1, model.BATCHES, model.RANKS - 1) if model.rank else []"), ("There are 43 for 4 ranks, so give each rank some: " + FAIR,), ("fake_grad",)),
    Row(changed("repair_straggler", "by speed", ("    mine = " + MINE + "\n", BY_SPEED)), ("with 3 ranks, 3 layers, 5 micro-batches", "rank 0 is the slow one", "it has 2 micro-batches, rank 1 has 1: let the slow rank be the one that has 1"), ("whatever model.RANKS",)),
]  # fmt: skip


@pytest.mark.parametrize("row", COSTS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_what_costs_time_leads_to_the_fix(row: Row) -> None:
    here = grade(function(row.program), row.program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == FAIL and here.right, here.message
    assert all(words in here.costs_time for words in row.says), here.costs_time
    assert not any(words in here.costs_time for words in row.never), here.costs_time


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    check_words(row)
