"""Links on which sends wait for their receives, and exchanges (SPEC 25; their times are held by test_plain_machine)."""

import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest

from drawing import draw
from lib import Cost, Deadlock, Model, PuzzleError, Run, run, schedule
from lib.course.specs import cost_named, machine_of, puzzles
from lib.grading.judge import check
from lib.machine.cost import LINKS
from lib.machine.simulator import LocalSimulator
from lib.record.figures.chain import chain_of, slack_of
from lib.recording.recorder import recorded_run
from lib.recording.replay import Replay
from tests.test_tiers import TwoTiers


async def ring(model: Model, way: str) -> None:
    """Every rank hands its input to the next one."""
    before, after = (model.rank - 1) % model.RANKS, (model.rank + 1) % model.RANKS
    mine = model.activations["own"] = model.get_activation([model.rank])
    if way == "exchange":
        [model.activations["came"]] = await model.exchange([(after, mine)], [before])
    elif way == "posted first":
        coming = model.receive(src=before)
        await model.pass_to(after, mine)
        model.activations["came"] = await coming
    elif way == "all send first" or (model.rank % 2 == 0 if way == "even send first" else model.rank):
        await model.pass_to(after, mine)
        model.activations["came"] = await model.receive(src=before)
    else:
        model.activations["came"] = await model.receive(src=before)
        await model.pass_to(after, mine)


def time_of(fn: Callable[[Model], Any], **size: Any) -> float:
    """The time of a run, and infinity of one that hangs."""
    try:
        return run(fn, **size).time
    except Deadlock:
        return math.inf


@pytest.mark.parametrize(
    ("way", "times"),
    [
        ("all send first", (0.4, math.inf, math.inf)),
        ("one receives first", (0.8, 1.0, 1.0)),
        ("even send first", (0.8, 0.8, 0.8)),
        ("posted first", (0.4, 0.4, math.inf)),
        ("exchange", (0.4, 0.4, 0.4)),
    ],
)
def test_a_ring_of_four(way: str, times: tuple[float, ...]) -> None:
    assert tuple(time_of(partial(ring, way=way), ranks=4, batches=4, links=links) for links in LINKS) == times


def test_what_is_expected_from_the_same_node_holds_up_no_send_to_another_one() -> None:
    async def round_trip(model: Model) -> None:
        if model.rank < 3:
            coming = model.receive(src=(1, 2, 0)[model.rank])
            model.activations[0] = await coming if model.rank else model.get_activation([0])
            await model.pass_to((2, 0, 1)[model.rank], model.activations[0])
            await coming

    size: dict[str, Any] = {"ranks": 4, "batches": 4, "links": "ordered", "node_size": 2}
    assert time_of(round_trip, **size, cost=TwoTiers()) < time_of(round_trip, **size) == math.inf


ROWS = """
0F0,0SEND_F0,2RECV_F0,0F1,0SEND_F1,2RECV_F1,2F0,2SEND_F0,2F1,2SEND_F1,2RECV_B0,0F2,0SEND_F2,2B0,2SEND_B0,2RECV_B1,0F3,0SEND_F3,2RECV_F2,2B1,2SEND_B1,0RECV_B0,2F2,2SEND_F2,2RECV_F3,0B0,0RECV_B1,2F3,2SEND_F3,0B1,2RECV_B2,2B2,2SEND_B2,2RECV_B3,2B3,2SEND_B3,0RECV_B2,0B2,0RECV_B3,0B3
1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3RECV_F1,3B0,3SEND_B0,1RECV_F2,3F1,1RECV_B0,3B1,3SEND_B1,1RECV_F3,1F2,1SEND_F2,1RECV_B1,1B0,1SEND_B0,3RECV_F2,1F3,1SEND_F3,1B1,1SEND_B1,3RECV_F3,3F2,3B2,3SEND_B2,1RECV_B2,3F3,3B3,3SEND_B3,1RECV_B3,1B2,1SEND_B2,1B3,1SEND_B3
"""  # Interleaved1F1B as PyTorch 2.13 prints it, without what concerns weights
DEFERRED = """
0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,0F2,0SEND_F2,2RECV_B0,2B0,2SEND_B0,0F3,0SEND_F3,2RECV_B1,2B1,2SEND_B1,2RECV_F2,2F2,2SEND_F2,0RECV_B0,0B0,2RECV_F3,2F3,2SEND_F3,0RECV_B1,0B1,2RECV_B2,2B2,2SEND_B2,2RECV_B3,2B3,2SEND_B3,0RECV_B2,0B2,0RECV_B3,0B3
1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3B0,3SEND_B0,3RECV_F1,3F1,3B1,3SEND_B1,1RECV_F2,1F2,1SEND_F2,1RECV_B0,1B0,1SEND_B0,1RECV_F3,1F3,1SEND_F3,1RECV_B1,1B1,1SEND_B1,3RECV_F2,3F2,3B2,3SEND_B2,3RECV_F3,3F3,3B3,3SEND_B3,1RECV_B2,1B2,1SEND_B2,1RECV_B3,1B3,1SEND_B3
"""  # and with each receive before the work that reads it, as defer_pp_recv=True has it (PR 172833)


@pytest.mark.parametrize(
    ("rows", "receives", "times"),
    [
        (ROWS, "at use", (20.2, 20.2, 20.8)),  # ordered: a receive that was posted early holds up the send behind it
        (ROWS, "at once", (32.4, 32.8, 32.8)),
        (DEFERRED, "at use", (20.9, 21.6, math.inf)),
        (DEFERRED, "at once", (20.9, 21.6, math.inf)),
    ],
)
def test_rows_say_whether_they_hang_as_the_machine_does(rows: str, receives: str, times: tuple[float, ...]) -> None:
    plan, quick = schedule(rows, receives), Cost(send=0.1, receive=0.1)
    assert tuple(time_of(plan, **plan.sizes, cost=quick, links=links) for links in LINKS) == times
    for links, time in zip(LINKS, times, strict=True):
        if time < math.inf:
            again = schedule(rows, receives, links)
            done = run(again, **again.sizes, cost=quick)
            assert (done.time, done.links) == (time, links)
            assert_chain_explains(done)
        else:
            with pytest.raises(PuzzleError, match="behind 0SEND_F1: rank 1 has not posted 1RECV_F1; rank 1 waits"):
                schedule(rows, receives, links)


def assert_chain_explains(done: Run) -> None:
    """The longest chain takes the time of the run, and nothing on it has room."""
    chain, rooms = chain_of(done.events), slack_of(done.events)
    on_chain = {id(event) for event in chain.events}
    assert chain.time == done.time and min(rooms) >= 0
    assert not any(room for event, room in zip(done.events, rooms, strict=True) if id(event) in on_chain)


@pytest.mark.parametrize("links", LINKS)
def test_a_recording_of_exchanges_is_replayed_as_it_ran(links: str) -> None:
    size, around = {"ranks": 3, "layers": 1, "batches": 3, "links": links}, partial(ring, way="exchange")
    done, shape = run(around, **size), machine_of(size, "default")
    assert_chain_explains(done)
    recording, error = recorded_run(around, shape, 1, 3, None)
    assert error is None
    replay = Replay(LocalSimulator(shape, graded=True), 1, 3)
    replay.play({part: recording[part] for part in ("calls", "failed")}, math.inf)
    assert replay.outcome("").events == done.events


def test_a_deadlock_names_the_first_call_of_each_rank_in_a_circle() -> None:
    with pytest.raises(Deadlock) as caught:
        run(partial(ring, way="all send first"), ranks=4, batches=4, links="rendezvous")
    rows = str(caught.value).splitlines()[1:]
    for rank, row in zip(range(4), rows, strict=True):
        after = (rank + 1) % 4
        said = f"rank {rank}: its first call is the send to rank {after}, which waits for a receive that rank {after}"
        assert row.strip().startswith(f"{said} has not posted [line ") and "in ring" in row
    assert caught.value.run is not None and caught.value.run.failure is not None
    assert caught.value.run.failure.knot() == [0, 1, 2, 3]


def test_what_is_refused() -> None:
    around = partial(ring, way="posted first")
    for how, said in (
        ({"links": "patient"}, "links"),
        ({"links": "rendezvous", "mesh": {"a": 2}, "represent": True}, "cannot be proved what ranks do"),
    ):
        with pytest.raises(PuzzleError, match=said):
            run(around, ranks=2, batches=2, **how)
    with pytest.raises(PuzzleError, match="a receive says from whom"):
        run(lambda model: model.receive(), ranks=2, links="ordered")


LATER = dict.fromkeys(("zero_bubble", "zbv", "dualpipe"), "sends_later") | {"interleaved": "interleaved_ahead"}
LATER |= {"one_f_one_b": "one_f_one_b_in_51_6", "breadth_first": "breadth_first_in_45_2"}
"""Of each pipeline that hangs where sends wait a variant that does not, as its page says."""


@pytest.mark.parametrize("name", LATER)
def test_a_pipeline_that_awaits_its_sends_at_the_end_does_not_hang(name: str) -> None:
    puzzle = puzzles()[name]
    page, size = import_module(f"solutions.{puzzle.file}"), puzzle.size | {"links": "rendezvous"}
    assert time_of(getattr(page, name), **size, cost=cost_named(puzzle.cost)) == math.inf
    check(run(getattr(page, LATER[name]), **size, cost=cost_named(puzzle.cost)), puzzle, size)


def test_a_send_is_seen_to_wait_while_its_rank_computes() -> None:
    async def pair(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([model.rank])
        call = None if model.rank else model.pass_to(1, model.activations[0])
        model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
        await (call or model.receive(0))

    done = run(pair, 2, 1, 2, links="rendezvous")
    [sent] = [event for event in done.events if event.kind == "pass_to"]
    assert (sent.ready, sent.start, sent.waited) == (0, 1, 1)
    assert "it has waited 1 tick for its receive" in draw(done).svg()
