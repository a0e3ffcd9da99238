"""Timing of lanes, messages, meshes and boxes; deadlocks and mismatches."""

import asyncio
from typing import Any

import pytest

from lib import Deadlock, Dist, Model, PuzzleError, run


def test_the_log_says_of_each_record_what_it_was_of() -> None:
    async def program(model: Model) -> None:
        model.weights[1], model.opt_states[1] = model.load_weights(1)
        shard, _ = model.load_weights(0, model.rank, 2)
        model.weights[0] = await model.allgather(shard, 0)
        model.activations[0] = model.get_activation([1, 0])
        model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
        if model.rank == 0:
            await model.pass_to(1, model.activations[1])
            await model.pass_to(1, 7)
        else:
            model.activations["copy"] = await model.receive()
            await model.receive()
        model.loss(model.forward(1, model.activations[1], model.weights[1]))

    weight, both, none = 512 * 512, frozenset({0, 1}), frozenset[int]()
    events = run(program, ranks=2, layers=2, batches=2).events
    for rank, message in ((0, "pass_to"), (1, "receive")):
        found = [(e.kind, e.layer, e.batches, e.group, e.tensor, e.elements) for e in events if e.rank == rank]
        assert found == [
            ("load_weights", 1, none, (), None, 0),
            ("load_weights", 0, none, (), None, 0),
            ("allgather", 0, none, (0, 1), "Weight", weight // 2),
            ("get_activation", 0, both, (), None, 0),
            ("forward", 0, both, (), None, 0),
            (message, 1, both, (0, 1), "Activation", weight),
            (message, None, none, (0, 1), None, 0),
            ("forward", 1, both, (), None, 0),
            ("loss", 2, both, (), None, 0),
            ("end", None, none, (), None, 0),
        ]
        assert [e.op is None for e in events if e.rank == rank] == [e[3] == () for e in found]


def test_the_log_so_far_is_the_beginning_of_the_log() -> None:
    """Also while calls are on their way, of which it is known when they end."""
    seen: list[tuple[int, list[Any]]] = []

    async def program(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0, model.rank, 2)
        model.activations[0] = model.get_activation([0])
        seen.append((model.rank, model.log))
        calls = [model.allreduce(model.fake_grad(0, []), 0), model.allgather(model.weights.pop(0), 0)]
        seen.append((model.rank, model.log))
        for mb in (1, 2):
            model.activations[1] = model.get_activation([mb])
            seen.append((model.rank, model.log))
        for call in calls:
            model.weights[0] = await call  # type: ignore[assignment]
            seen.append((model.rank, model.log))
        model.forward(0, model.activations[0], model.weights[0])
        seen.append((model.rank, model.log))

    for order in ([0, 1], [1, 0]):
        seen.clear()
        events = run(program, ranks=2, layers=1, batches=3, _order=order).events
        for rank in range(2):
            whole = [event for event in events if event.rank == rank]
            logs = [list(log) for other, log in seen if other == rank]
            last = rank == order[-1]  # what its calls wait for is there already
            assert [len(log) for log in logs] == [2, *([4, 5, 6] if last else [2, 3, 4]), 6, 6, 7]
            for log in logs if last else [*logs[:2], *logs[4:]]:
                assert log == whole[: len(log)]


def test_deadlock_names_everyone() -> None:
    async def program(model: Model) -> None:
        if model.rank < 2:
            await model.receive(src=1 - model.rank)
        elif model.rank == 2:
            await model.allreduce(model.fake_grad(1, []), 1, axis="shard")

    with pytest.raises(Deadlock) as caught:
        run(program, ranks=4, mesh={"replica": 2, "shard": 2})
    said = str(caught.value)
    assert "rank 0 waits for receive from rank 1, since tick 0" in said
    assert "rank 1 waits for receive from rank 0" in said
    assert "rank 2 waits for allreduce(layer 1) of shard: ranks 2, 3, since tick 0; missing: rank 3" in said
    assert "rank 3 has finished" in said
    assert "await model.receive(src=1 - model.rank)" in said


@pytest.mark.parametrize("missing", [1, 9])
def test_ranks_of_which_the_same_is_to_be_said_are_told_together(missing: int) -> None:
    async def program(model: Model) -> None:
        if model.rank >= missing:
            await model.allreduce(model.fake_grad(0, []), 0)

    with pytest.raises(Deadlock) as caught:
        run(program, ranks=missing + 2)
    named = {1: "rank 0", 9: "ranks 0-8"}[missing]
    waiting = f"ranks {missing}, {missing + 1} wait for allreduce(layer 0) of all ranks, since tick 0"
    said = [line.partition(" [")[0].strip() for line in str(caught.value).splitlines()[1:]]
    have = "has" if missing == 1 else "have"
    assert said == [f"{named} {have} finished", f"{waiting}; missing: {named}"]


def test_of_many_waits_of_a_rank_three_are_told() -> None:
    async def program(model: Model) -> None:
        if model.rank == 0:
            await asyncio.gather(*[model.receive(src=source) for source in (1, 2, None, 1)])
        elif model.rank == 1:
            model.weights[0], _ = model.load_weights(0)
            model.forward(0, model.get_activation([0]), model.weights[0])
            reduced = model.allreduce(model.fake_grad(0, []), 0)
            await model.pass_to(2, "behind it")
            await reduced
        else:
            await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock) as caught:
        run(program, ranks=3)
    said = [line.partition(" [")[0].strip() for line in str(caught.value).splitlines()[1:]]
    assert said == [
        "rank 0 waits for receive from rank 1, since tick 0",
        "rank 0 waits for receive from rank 2, since tick 0",
        "rank 0 waits for receive from anyone, since tick 0",
        "rank 1 waits for pass_to to rank 2, behind this rank's earlier calls, since tick 1, after forward(layer 0), "
        "micro-batch {0}",
        "rank 2 waits for something that no rank of this machine will do",
    ]


def test_a_rank_that_waits_for_something_else_is_waited_for_in_the_plain_form() -> None:
    async def program(model: Model) -> None:
        if model.rank == 0:
            await asyncio.sleep(0.03)
            await model.pass_to(1, "late")
        else:
            assert await model.receive() == "late"

    async def main() -> None:
        dist = Dist(2)
        await asyncio.gather(*[program(Model(rank, dist)) for rank in range(2)])

    asyncio.run(main())


def test_the_number_of_the_collective_that_differs_is_told() -> None:
    async def program(model: Model) -> None:
        for number in range(4):
            layer = 1 if number == model.rank == 2 else 0
            await model.allreduce(model.fake_grad(layer, []), layer)

    with pytest.raises(PuzzleError) as raised:
        run(program, ranks=4)
    assert raised.value.problem == "rank 0 calls allreduce(layer 0) where rank 2 calls allreduce(layer 1)"
    assert (
        raised.value.got == "number 2 of their collectives, counted from 0, differs"
    )  # counted from 0, as everything is


def test_what_is_wrong_in_a_collective_is_dated_by_the_first_of_its_group() -> None:
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        with pytest.raises(PuzzleError, match="a shard would be counted more than once") as raised:
            run(apart, ranks=4, mesh={"replica": 2, "shard": 2}, _order=order)
        place = raised.value.place
        assert (place.operation, place.layer, place.detail) == ("allgather", 0, "of shard: ranks 0, 1")
        assert place.tick == 1.0


async def apart(model: Model) -> None:
    """Rank 0 is at tick 1 when it brings the piece that rank 1 brings at tick 2; the others do nothing."""
    if model.rank < 2:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([0])
        for _ in range(1 + model.rank):
            model.forward(0, model.activations[0], model.weights[0])
        await model.allgather(model.weights[0].shard(0, 2), 0, axis="shard")


def test_timers_take_no_time_and_cancelling_does_not_withdraw() -> None:
    async def program(model: Model) -> None:
        if model.rank == 0:
            await model.pass_to(1, "a")
            return
        first = model.receive(src=0)
        assert await first == "a"
        second = model.receive()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(second, 1000)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(second, 1000)
        raise RuntimeError("here")

    with pytest.raises(PuzzleError, match="here"):
        run(program, ranks=2)


def test_asyncio_takes_calls_as_they_are() -> None:
    async def program(model: Model) -> None:
        other = 1 - model.rank
        _, got = await asyncio.gather(model.pass_to(other, model.rank), model.receive())
        assert got == other
        task = asyncio.create_task(model.receive())  # type: ignore[arg-type]
        done, _ = await asyncio.wait([model.pass_to(other, "x"), task])
        assert len(done) == 2
        async with asyncio.TaskGroup() as group:
            group.create_task(model.pass_to(other, "y"))  # type: ignore[arg-type]
            there = group.create_task(model.receive())  # type: ignore[arg-type]
        assert there.result() == "y"
        assert await asyncio.wait_for(asyncio.ensure_future(model.allreduce(model.fake_grad(0, []), 0)), 1)

    run(program, ranks=2)
