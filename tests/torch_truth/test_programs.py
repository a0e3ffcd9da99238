"""Whether programs of solutions/ do what PyTorch does, or differ from it as the table says."""

from typing import Any

import pytest

from lib import run
from lib.course.specs import cost_named
from lib.engines.like import COUNTERPARTS, NONE, first_difference, side_by_side
from tests.programs import COURSE
from tests.test_closed_forms import program

IDENTICAL = [
    ("p00_basic", "basic", "basic", [(1, 1, 1), (1, 5, 3)]),
    ("p01_grad_accum", "grad_accum", "grad_accum", [(1, 1, 1), (1, 5, 3)]),
    ("p02_ddp", "ddp_as_pytorch", "ddp", [(1, 1, 1), (4, 2, 4), (3, 7, 3)]),
    ("p12_prefetch", "prefetch", "prefetch", [(1, 1, 1), (4, 6, 4), (2, 2, 2), (5, 1, 5)]),
    ("p05_pipeline", "pipeline", "pipeline", [(1, 1, 1), (4, 8, 4), (3, 3, 7)]),
    ("p06_gpipe", "gpipe", "gpipe", [(1, 2, 3), (2, 2, 2), (4, 8, 4), (4, 4, 8), (5, 10, 16), (3, 6, 2)]),
    ("p13_one_f_one_b", "one_f_one_b", "one_f_one_b", [(1, 2, 3), (2, 2, 2), (4, 8, 4), (4, 4, 8), (5, 10, 16)]),
    ("p14_interleaved", "interleaved", "interleaved", [(2, 4, 2), (4, 8, 8), (4, 8, 4), (3, 9, 6), (2, 8, 6)]),
    ("p16_zero_bubble", "zb_h1", "zero_bubble", [(2, 2, 2), (4, 4, 8), (4, 4, 4), (3, 3, 9)]),
    ("p29_zbv", "as_pytorch_does", "zbv", [(1, 2, 3), (2, 4, 4), (4, 8, 8), (4, 16, 8), (3, 12, 9), (4, 8, 2)]),
    ("p30_dualpipe", "in_halves", "dualpipe", [(2, 2, 4), (2, 4, 4), (4, 8, 8), (4, 16, 12), (6, 12, 14)]),
    ("p30_dualpipe", "cut_in_half", "dualpipe", [(2, 4, 4), (4, 8, 8)]),
]


@pytest.mark.parametrize(("file", "name", "puzzle", "sizes"), IDENTICAL)
def test_said_to_be_identical(file: str, name: str, puzzle: str, sizes: list[tuple[int, int, int]]) -> None:
    for ranks, layers, batches in sizes:
        mesh = {"half": 2, "place": ranks // 2} if puzzle == "dualpipe" else None
        models = run(program(file, name), ranks, layers, batches, mesh=mesh).models
        found = first_difference(models, COUNTERPARTS[puzzle])
        assert found is None, side_by_side(name, models, COUNTERPARTS[puzzle], found)


def test_every_puzzle_has_a_counterpart_or_a_reason_why_not() -> None:
    assert sorted([*COUNTERPARTS, *NONE]) == sorted(COURSE)


def test_a_v_that_does_something_else_is_found_out() -> None:
    """The last weight halves of ZB-V; a micro-batch too few ahead; a whole backward, where PyTorch has halves."""
    size: dict[str, Any] = {"ranks": 4, "layers": 8, "batches": 8}
    halves = size | {"mesh": {"half": 2, "place": 2}}
    for file, name, puzzle, machine, says in (
        ("p29_zbv", "zbv", "zbv", size, (1, "1BW4", "6BI7", "weight's half of a backward later")),
        ("p29_zbv", "zb_v", "zbv", size, (1, "1BW4", "6BI7", "weight's half of a backward later")),
        ("p30_dualpipe", "dualpipe", "dualpipe", halves, (0, "7B0", "7BI0", "in two halves")),
    ):
        found = first_difference(run(program(file, name), **machine).models, COUNTERPARTS[puzzle])
        assert found is not None and says[-1] in found.why
        assert (found.rank, str(found.yours[found.place][0]), str(found.theirs[found.place])) == says[:3]


def test_waiting_for_each_call_starts_the_collectives_in_another_order() -> None:
    size: dict[str, Any] = {"ranks": 4, "layers": 6, "batches": 4, "cost": cost_named("long_gathers")}
    found = first_difference(run(program("p12_prefetch", "fsdp_blocking"), **size).models, COUNTERPARTS["fsdp"])
    assert found is not None and found.why.startswith("FSDP2 issues the next all-gather before this backward")
    assert (found.rank, str(found.yours[found.place][0]), str(found.theirs[found.place])) == (0, "5B0", "4AG")
