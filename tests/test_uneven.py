"""Machines that are not even: what a slow rank or a slow link costs, by closed forms."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lib import Cost, PuzzleError, RingCost, Uneven, run
from lib.real import A100_MEGATRON, GPT_2_XL
from solutions.p02_ddp import ddp
from solutions.p13_one_f_one_b import one_f_one_b

FREE: dict[str, Any] = {"collective": 0, "collective_across": 0, "send": 0, "receive": 0, "update": 0}


@pytest.mark.parametrize("rank", [0, 2])
def test_data_parallel_waits_for_the_slowest(rank: int) -> None:
    """All that the slow rank computes takes longer, and all others wait for its gradients."""
    slow = Cost(**FREE, uneven=Uneven(slow={rank: 1.1}))
    assert run(ddp, 4, 8, 4, cost=slow).time == pytest.approx(1.1 * 16)
    assert run(ddp, 4, 8, 4, cost=Cost(**FREE)).time == 16


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_pipeline_is_as_slow_as_its_slowest_stage(rank: int) -> None:
    """In 1F1B the slow stage hardly waits: m micro-batches of its own, and no more than the bubble of the others."""
    even, slow = (
        run(one_f_one_b, 4, 4, 12, cost=Cost(**FREE, uneven=uneven)).time
        for uneven in (None, Uneven(slow={rank: 1.25}))
    )
    assert even == (12 + 3) * 2
    assert 12 * 2 * 1.25 + 3 <= slow <= 12 * 2 * 1.25 + 3 * 2


def test_a_slow_link_slows_what_goes_over_it() -> None:
    cost = RingCost(uneven=Uneven(links={(1, 0): 3}))
    took, plain = (
        min(e.end - e.start for e in run(ddp, 4, 2, 4, cost=each).events if e.kind == "allreduce")
        for each in (cost, RingCost())
    )
    assert took == pytest.approx(3 * plain)
    sends = [
        [(e.rank, e.end - e.start) for e in run(one_f_one_b, 2, 2, 4, cost=each).events if e.kind == "pass_to"]
        for each in (cost, RingCost())
    ]
    assert sends[0] and sends[0][0][1] == pytest.approx(3 * sends[1][0][1])


def test_jitter_is_always_the_same_and_within_its_bounds() -> None:
    runs = [run(ddp, 4, 4, 4, cost=Cost(uneven=Uneven(jitter=0.2, seed=seed))) for seed in (1, 1, 2)]
    assert runs[0].events == runs[1].events != runs[2].events
    lengths = [e.end - e.start for e in runs[0].events if e.kind in ("forward", "backward")]
    assert all(1 <= length <= 1.2 for length in lengths) and len({*lengths}) > 8
    for one in runs:
        one.verify()


def test_real_prices_may_be_uneven() -> None:
    cost = A100_MEGATRON.cost(GPT_2_XL)
    slow = replace(cost, uneven=Uneven(slow={0: 1.1}))
    plain, slower = (run(ddp, 2, 48, 2, cost=each) for each in (cost, slow))
    assert 1.05 < slower.seconds / plain.seconds < 1.1


@pytest.mark.parametrize(
    "text", ["Uneven()", "Uneven(slow={0: 1.1, 3: 2})", "Uneven(links={(0, 1): 2.5}, jitter=0.05, seed=3)"]
)
def test_it_is_shown_as_it_is_written(text: str) -> None:
    """What a grade says of a puzzle's prices can be pasted into a call of ``run``."""
    assert repr(eval(text, {"Uneven": Uneven})) == text


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Uneven(slow={0: 0.5}), r"slow cannot be(.|\n)*a number from 1 up"),
        (lambda: Uneven(slow={-1: 2}), "slow must be a whole number from 0 up"),
        (lambda: Uneven(links={(1, 1): 2}), "a link is between two ranks"),
        (lambda: Uneven(links={3: 2}), "a link is between two ranks"),  # type: ignore[dict-item]
        (lambda: Uneven(jitter=-1), "jitter cannot be"),
        (lambda: Cost(uneven=1.1), "uneven is no Uneven"),  # type: ignore[arg-type]
        (
            lambda: run(ddp, 4, 2, 4, cost=Cost(uneven=Uneven(slow={1: 2})), represent=True),
            "ranks do not all do the same",
        ),
    ],
)
def test_what_cannot_be_uneven_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(PuzzleError, match=said):
        make()
