"""Links on which sends wait for their receives, and exchanges (SPEC 25; their times are held by test_plain_machine)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lib import Cost, Deadlock, Model, PuzzleError, Run, run, schedule
from lib.course.specs import machine_of
from lib.machine.cost import LINKS
from lib.machine.simulator import LocalSimulator
from lib.record.figures.chain import chain_of, slack_of
from lib.recording.recorder import recorded_run
from lib.recording.replay import Replay

Ring = Callable[[Model, int, int, Any], Any]


async def all_send_first(model: Model, before: int, after: int, mine: Any) -> Any:
    await model.pass_to(after, mine)
    return await model.receive(src=before)


async def one_breaks_it(model: Model, before: int, after: int, mine: Any) -> Any:
    if model.rank:
        return await all_send_first(model, before, after, mine)
    return await odd_receive_first(model, before, after, mine, odd=True)


async def odd_receive_first(model: Model, before: int, after: int, mine: Any, odd: bool | None = None) -> Any:
    if not (model.rank % 2 if odd is None else odd):
        return await all_send_first(model, before, after, mine)
    came = await model.receive(src=before)
    await model.pass_to(after, mine)
    return came


async def posted_first(model: Model, before: int, after: int, mine: Any) -> Any:
    coming = model.receive(src=before)
    await model.pass_to(after, mine)
    return await coming


async def exchanged(model: Model, before: int, after: int, mine: Any) -> Any:
    [came] = await model.exchange([(after, mine)], [before])
    return came


def ring(way: Ring) -> Callable[[Model], Any]:
    """Every rank hands its input to the next one."""

    async def around(model: Model) -> Model:
        own = model.get_activation([model.rank])
        model.activations["own"] = own
        before, after = (model.rank - 1) % model.RANKS, (model.rank + 1) % model.RANKS
        model.activations["came"] = await way(model, before, after, own)
        return model

    return around


def time_of(fn: Callable[[Model], Any], **size: Any) -> float:
    """The time of a run, and infinity of one that hangs."""
    try:
        return run(fn, **size).time
    except Deadlock:
        return math.inf


@pytest.mark.parametrize(
    ("way", "times"),
    [
        (all_send_first, (0.4, math.inf, math.inf)),
        (one_breaks_it, (0.8, 1.0, 1.0)),
        (odd_receive_first, (0.8, 0.8, 0.8)),
        (posted_first, (0.4, 0.4, math.inf)),
        (exchanged, (0.4, 0.4, 0.4)),
    ],
)
def test_a_ring_of_four(way: Ring, times: tuple[float, ...]) -> None:
    assert tuple(time_of(ring(way), ranks=4, batches=4, links=links) for links in LINKS) == times


INTERLEAVED = """
0F0,0SEND_F0,2RECV_F0,0F1,0SEND_F1,2RECV_F1,2F0,2SEND_F0,2F1,2SEND_F1,2RECV_B0,0F2,0SEND_F2,2B0,2SEND_B0,2RECV_B1,0F3,0SEND_F3,2RECV_F2,2B1,2SEND_B1,0RECV_B0,2F2,2SEND_F2,2RECV_F3,0B0,0RECV_B1,2F3,2SEND_F3,0B1,2RECV_B2,2B2,2SEND_B2,2RECV_B3,2B3,2SEND_B3,0RECV_B2,0B2,0RECV_B3,0B3
"""
