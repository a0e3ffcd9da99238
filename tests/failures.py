"""Programs that fail, one for each way to fail, and what is said of each."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from lib import Model, PuzzleError, Run, run


def begin(model: Model) -> None:
    """Load layer 0, and run it forward."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    model.activations[0] = model.get_activation([model.rank])
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])


async def missing_await(model: Model) -> None:
    begin(model)
    if model.rank == 1:
        model.grad_weights[0] = model.allreduce(model.fake_grad(0, []), 0)  # type: ignore[assignment]
    await model.allreduce(model.fake_grad(0, []), 0)
    await model.allreduce(model.fake_grad(1, []), 1)


async def wrong_operand(model: Model) -> None:
    begin(model)
    weight: Any = model.weights[1] if model.rank == 2 else model.weights[0]
    model.forward(0, model.activations[0], weight)
    await model.allreduce(model.fake_grad(0, []), 0)


async def other_order(model: Model) -> None:
    begin(model)
    for layer in (0, 1) if model.rank % 2 else (1, 0):
        await model.allreduce(model.fake_grad(layer, []), layer)


async def left_early(model: Model) -> None:
    begin(model)
    if model.rank < 3:
        await model.allreduce(model.fake_grad(0, []), 0)


async def nobody_sends(model: Model) -> None:
    begin(model)
    await model.receive((model.rank + 1) % model.RANKS)


async def own_exception(model: Model) -> None:
    begin(model)
    if model.rank == 2:
        helper(model)
    await model.allreduce(model.fake_grad(0, []), 0)


def helper(model: Model) -> None:
    try:
        {}["x"]  # type: ignore[index]
    except KeyError:
        model.nothing  # type: ignore[attr-defined]  # noqa: B018


async def endless(model: Model) -> None:
    begin(model)
    while model.rank == 1:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await model.allreduce(model.fake_grad(0, []), 0)


async def endless_without_await(model: Model) -> None:
    begin(model)
    while model.rank == 1:
        pass
    await model.allreduce(model.fake_grad(0, []), 0)


async def shards_twice(model: Model) -> None:
    begin(model)
    await model.allgather(model.weights[0], 0)


async def never_received(model: Model) -> None:
    begin(model)
    if model.rank == 3:
        await model.pass_to(0, "x")


async def never_awaited(model: Model) -> None:
    begin(model)
    if model.rank == 3:
        model.pass_to(0, "x")
    elif model.rank == 0:
        await model.receive()


async def nothing_before(model: Model) -> None:
    raise ValueError("oh")


async def long_chain(model: Model) -> None:
    """Each rank hands on to the next and waits for it; rank 40 forgets to."""
    rank = model.rank
    model.activations[0] = model.get_activation([rank]) if rank == 0 else await model.receive(rank - 1)
    weight, _ = model.load_weights(0)
    model.forward(0, model.activations[0], weight)
    if rank < model.RANKS - 1 and rank != 40:
        await model.pass_to(rank + 1, model.activations[0])
    await model.receive((rank + 1) % model.RANKS)


class Case(NamedTuple):
    """A program, its size, the beginning of what its error says, and what is said of who stopped and who waits."""

    fn: Any
    says: str
    sentences: list[str]
    size: Mapping[str, Any] = MappingProxyType({})


FOUR: dict[str, Any] = {"ranks": 4, "layers": 2, "batches": 4}
MANY: dict[str, Any] = {"ranks": 64, "layers": 2, "batches": 64}
FIRST_SUM = "wait for rank {} in all-reduce of layer 0, since tick 1"
CASES = [
    Case(
        missing_await,
        "rank 1, grad_weights[0]: only tensors can be stored in grad_weights",
        ["the error is on rank 1 at tick 1", "ranks 0, 2, 3 wait for rank 1 in all-reduce of layer 1, since tick 1.3"],
    ),
    Case(
        wrong_operand,
        "rank 2, forward(layer 0), micro-batch {2}: ",
        [
            "the error is on rank 2 at tick 1, in forward of layer 0",
            "ranks 0, 1, 3 wait for rank 2 in all-reduce of layer 0, since tick 2",
        ],
    ),
    Case(
        other_order,
        "rank 0, allreduce(layer 1): rank 0 calls allreduce(layer 1) where rank 1 calls allreduce(layer 0)",
        [
            "ranks 0, 2 wait for ranks 1, 3 in all-reduce of layer 1, since tick 1",
            "ranks 1, 3 wait for ranks 0, 2 in all-reduce of layer 0, since tick 1",
        ],
    ),
    Case(left_early, "deadlock: no rank can ever go on", ["rank 3 has returned", "ranks 0-2 " + FIRST_SUM.format(3)]),
    Case(
        nobody_sends,
        "deadlock: no rank can ever go on",
        [f"rank {rank} waits for a message from rank {(rank + 1) % 4}, since tick 1" for rank in range(4)],
    ),
    Case(
        own_exception,
        "rank 2: the function raised AttributeError: 'Model' object has no attribute 'nothing'",
        ["the error is on rank 2 at tick 1", "ranks 0, 1, 3 " + FIRST_SUM.format(2)],
    ),
    Case(
        endless,
        "rank 1, endless: the run did not end within 0.5 seconds",
        ["the error is on rank 1 at tick 1", "ranks 0, 2, 3 " + FIRST_SUM.format(1)],
    ),
    Case(
        endless_without_await,
        "rank 1, endless_without_await: the run did not end within 0.5 seconds",
        ["the error is on rank 1 at tick 1", "ranks 0, 2, 3 " + FIRST_SUM.format(1)],
    ),
    Case(
        shards_twice,
        "allgather(layer 0), of all ranks: a shard would be counted more than once",
        ["ranks 0-3 wait in all-gather of layer 0, since tick 1"],
    ),
    Case(
        never_received,
        "rank 3, pass_to(0): a message was sent and never received: 'x'",
        ["the error is on rank 3 at tick 1, in pass_to(0)"],
    ),
    Case(never_awaited, "rank 3: pass_to(0) was started and never awaited", ["the error is on rank 3 at tick 1"]),
    Case(nothing_before, "rank 0: the function raised ValueError: oh", ["the error is on rank 0 at tick 0"]),
    Case(
        nothing_before, "rank 0: the function raised ValueError: oh", ["the error is on rank 0 at tick 0"], {"ranks": 1}
    ),
    Case(
        own_exception,
        "rank 2: the function raised AttributeError: 'Model' object has no attribute 'nothing'",
        ["the error is on rank 2 at tick 1", "ranks 0, 1, 3-63 " + FIRST_SUM.format(2)],
        MANY,
    ),
    Case(
        long_chain,
        "deadlock: no rank can ever go on",
        [
            "rank 40 waits for a message from rank 41, since tick 57",
            "rank 41 waits for a message from rank 40, since tick 0",
            "rank 39 waits for a message from rank 40, since tick 55.8",
        ],
        MANY,
    ),
]
IDS = [f"{case.fn.__name__}-{case.size.get('ranks', 4)}" for case in CASES]


def failed(case: Case) -> PuzzleError:
    """The error with which its run ends."""
    patience = 0.5 if "did not end" in case.says else 30.0
    with pytest.raises(PuzzleError) as caught:
        run(case.fn, **{**FOUR, **case.size, "timeout": patience})
    assert isinstance(caught.value.run, Run)
    return caught.value
