"""A layer in three steps on real tensors: gathers and rings, in order and zigzag, beside training as a whole."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from lib import Cost, Model, PuzzleError, run
from tests.marks import needs_processes, needs_torch
from tests.slices import PROGRAMS, gathering, heads, in_steps, ring

SIZE: dict[str, Any] = {"layers": 2, "batches": 1, "layer": "block", "length": 24, "hidden": 32}


@needs_torch
@pytest.mark.parametrize(("dtype", "most"), [("float64", 1e-14), ("float32", 5e-6)])
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_agree_with_training_as_a_whole(name: str, ranks: int, dtype: str, most: float) -> None:
    done = run(PROGRAMS[name], ranks=ranks, engine="local", dtype=dtype, **SIZE)
    assert done.agreement.relative <= most


@needs_torch
@pytest.mark.parametrize(("dtype", "most"), [("float64", 1e-14), ("float32", 5e-6)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("zigzag", [False, True])
def test_heads_agree_with_training_as_a_whole(zigzag: bool, ranks: int, dtype: str, most: float) -> None:
    size = {**SIZE, "hidden": 64}
    assert run(heads(zigzag), ranks=ranks, engine="local", dtype=dtype, **size).agreement.relative <= most


@needs_torch
def test_heads_inside_of_a_node_and_a_ring_of_nodes() -> None:
    size = {**SIZE, "hidden": 64, "mesh": {"node": 2, "gpu": 2}, "engine": "local", "dtype": "float64"}
    for zigzag in (False, True):
        assert run(heads(zigzag, mesh=True), ranks=4, **size).agreement.relative <= 1e-14


@needs_torch
@pytest.mark.parametrize(("ranks", "hidden", "fix"), [(3, 64, "2, 4 or 8 parts"), (4, 32, "hidden=64")])
def test_heads_are_not_cut_inside_of_one(ranks: int, hidden: int, fix: str) -> None:
    with pytest.raises(PuzzleError, match=f"heads here, and they are cut into {ranks} parts") as told:
        run(heads(), ranks=ranks, engine="local", **{**SIZE, "hidden": hidden})
    assert fix in str(told.value)


@needs_torch
def test_tokens_that_ranks_do_not_divide() -> None:
    """Twenty-three tokens in slices of six and five, and a mesh of data and context."""
    size = {**SIZE, "length": 23}
    assert run(gathering(zigzag=True), ranks=4, engine="local", dtype="float64", **size).agreement.relative <= 1e-14
    mesh = {"data": 2, "context": 3}
    program = gathering(zigzag=True, axis="context")
    done = run(program, 6, mesh=mesh, engine="local", dtype="float64", **{**size, "batches": 2})
    assert done.agreement.relative <= 1e-14


@needs_torch
def test_a_layer_without_attention_says_so() -> None:
    with pytest.raises(PuzzleError, match="has no attention") as told:
        run(in_steps, ranks=1, engine="local", **{**SIZE, "layer": "mlp"})
    assert 'layer="block"' in str(told.value)


@needs_torch
@pytest.mark.parametrize(
    "program", [gathering(mistake="own keys only"), ring(mistake="added twice"), heads(mistake="not brought home")]
)
def test_numbers_find_mistakes_without_the_rules(program: Callable[[Model], Any]) -> None:
    done = run(program, ranks=4, engine="local", dtype="float64", _strict=False, **{**SIZE, "hidden": 64})
    assert not done.agreement.relative <= 1e-4


SLICED = [(PROGRAMS[name], SIZE) for name in ("gather, zigzag", "ring")]
OF_HEADS = [(heads(zigzag), {**SIZE, "hidden": 64}) for zigzag in (False, True)]


@needs_processes
@pytest.mark.process
@pytest.mark.parametrize(("program", "size"), [*SLICED, *OF_HEADS])
def test_real_processes(program: Any, size: dict[str, Any]) -> None:
    """The same numbers as in one process, and as much is stored as the simulated machine says; of heads, too, of which
    each rank sends each other one only its own."""
    done = run(program, ranks=2, engine="processes", dtype="float64", **size)
    assert done.agreement.relative <= 1e-14
    right, counted = done.stored
    assert right == counted > 0


@needs_processes
@pytest.mark.process
@pytest.mark.slow
def test_the_sends_of_a_ring_are_measured_beside_its_compute() -> None:
    """Ring attention hides its sends behind attention. So most of them begin while the rank attends, on each rank: a
    ring does not send from one rank after the other."""
    only_attention = Cost(project=0, attend=1, rest=0, backward_rest=0, backward_attend=1, backward_project=0, update=0)
    how = {"cost": only_attention, "pace": 3.0, "timeout": 60, **SIZE, "layers": 1}
    done = run(PROGRAMS["ring, zigzag"], ranks=4, engine="processes", dtype="float64", **how)
    assert done.agreement.relative <= 1e-14
    for rank in range(4):
        own = [event for event in done.measured.events if event.rank == rank]
        pairs = [pair for pair in pairwise(own) if [event.kind for event in pair] == ["pass_to", "attend"]]
        assert len(pairs) == 3  # one hop less than ranks
        beside = [send for send, attend in pairs if send.start < attend.end]
        assert all(event.length > 0 for event, _ in pairs) and len(beside) > len(pairs) / 2
