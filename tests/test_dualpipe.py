"""DualPipe against the report of DeepSeek-V3: bubble, memory and copies (arXiv 2412.19437, table 2)."""

from typing import Any

import pytest

from lib import Cost, Run, run
from solutions.p30_dualpipe import cut_in_half, dualpipe, in_halves

SIZES = [(2, 2, 4), (2, 4, 10), (4, 4, 8), (4, 8, 12), (6, 12, 14), (8, 8, 16), (8, 16, 20)]
"""Ranks, layers and micro-batches. The last one is what the report and the README of DualPipe draw."""


def step(fn: Any, ranks: int, layers: int, batches: int, saved: float) -> Run:
    """A step with free messages and half of a backward in a forward."""
    given: dict[str, Any] = {"backward": 2, "send": 0, "send_across": 0, "receive": 0, "overlapped": saved}
    return run(
        fn, ranks=ranks, layers=layers, batches=batches, mesh={"half": 2, "place": ranks // 2}, cost=Cost(**given)
    )


def waited(done: Run, rank: int) -> float:
    """The ticks in which a rank computes nothing, until its last backward is done."""
    work = [one for one in done.events if one.rank == rank and one.kind.startswith(("forward", "backward"))]
    return max(one.end for one in work) - sum(one.length for one in work)


@pytest.mark.parametrize("saved", [0, 0.5, 1])
@pytest.mark.parametrize(("ranks", "layers", "batches"), SIZES)
def test_the_bubble_is_that_of_the_report(ranks: int, layers: int, batches: int, saved: float) -> None:
    """(PP/2 - 1)(F&B + B - 3W), where B is a whole backward and F&B a pair, on the ranks in the middle. These have the
    most pairs; ranks further out have as much less of a bubble as their pairs save less."""
    done, thick = step(in_halves, ranks, layers, batches, saved), layers // ranks
    forward, backward, weight = thick, 2 * thick, thick
    pair = forward + backward - saved * forward
    middle = [ranks // 2 - 1, ranks - 1]  # the last places of both halves
    assert [waited(done, rank) for rank in middle] == [(ranks / 2 - 1) * (pair + backward - 3 * weight)] * 2


@pytest.mark.parametrize("fn", [dualpipe, in_halves, cut_in_half])
@pytest.mark.parametrize(("ranks", "layers", "batches"), SIZES)
def test_a_rank_has_a_micro_batch_more_than_ranks_in_its_stages(fn: Any, ranks: int, layers: int, batches: int) -> None:
    """PP + 1 at the most, on every rank: those of which a stage has begun its forward, and not ended its backward."""
    done = step(fn, ranks, layers, batches, 1)
    for rank in range(ranks):
        mine = [one for one in done.events if one.rank == rank and one.kind.startswith(("forward", "backward"))]
        stages = [(one.layer or 0) * ranks // layers for one in mine]
        spans = []
        for stage in {*stages}:
            for mb in range(batches):
                own = [one for one, at in zip(mine, stages, strict=True) if at == stage and one.batches == {mb}]
                spans += [(own[0].start, own[-1].end)] if own else []
        most = max(sum(start <= moment < end for start, end in spans) for moment, _ in spans)
        assert most == ranks + 1


@pytest.mark.parametrize(("ranks", "layers", "batches"), SIZES)
def test_cut_in_half_it_is_as_fast_and_sends_less(ranks: int, layers: int, batches: int) -> None:
    both, cut = (step(fn, ranks, layers, batches, 1) for fn in (in_halves, cut_in_half))
    less = 0 if ranks > 2 else both.cost.activation_elements  # where every rank is the last place
    assert (cut.time, cut.memory) == (both.time, both.memory - less)
    sent = [sum(one.kind == "pass_to" for one in done.events) for done in (both, cut)]
    assert sent[0] - sent[1] == 2 * batches
