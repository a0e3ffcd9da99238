"""A corpus of wrong programs: each ends in a PuzzleError that says what to do."""

import asyncio
import functools
import itertools
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from lib import Dist, Model, PuzzleError, Weight, WeightGrad, grade, hint, run
from lib.basics.errors import learner_line


def start(model: Model, mb: int = 0) -> None:
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    model.activations[0] = model.get_activation([mb])


def trained(model: Model, layer: int) -> WeightGrad:
    """The gradient of a one-layer walk."""
    start(model)
    for step in range(model.LAYERS):
        model.activations[step + 1] = model.forward(step, model.activations[step], model.weights[step])
    model.grad_activations[0] = model.loss(model.activations[model.LAYERS])
    for step in reversed(range(layer, model.LAYERS)):
        model.grad_weights[step], model.grad_activations[0] = model.backward(
            step, model.activations[step], model.grad_activations[0], model.weights[step]
        )
    return model.grad_weights[layer]


def swallowed(model: Model) -> None:
    start(model)
    try:
        model.forward(1, model.activations[0], model.weights[1])
    except AssertionError:
        pass


def double(model: Model) -> None:
    grad = trained(model, 1)
    model.grad_weights["x"] = grad + grad


async def forgot_await(model: Model) -> None:
    model.weights[0], _ = model.load_weights(0, model.rank, 1)
    weight = model.allgather(model.weights[0], 0)
    model.forward(0, model.get_activation([0]), weight)  # type: ignore[arg-type]


async def never_awaited(model: Model) -> None:
    model.pass_to(1 - model.rank, "x")


async def never_received(model: Model) -> None:
    if model.rank == 0:
        await model.pass_to(1, "x")


async def one_raises(model: Model) -> None:
    if model.rank == 1:
        raise ValueError("oh")
    await model.receive()


def yields(model: Model) -> Any:
    yield model


async def child_raises(model: Model) -> None:
    async def child() -> None:
        raise ValueError("in a child")

    model.task = asyncio.create_task(child())  # type: ignore[attr-defined]
    await asyncio.sleep(0)


async def group_raises(model: Model) -> None:
    async def child() -> None:
        raise ValueError("in a group")

    async with asyncio.TaskGroup() as group:
        group.create_task(child())


async def to_itself(model: Model) -> None:
    await model.pass_to(model.rank, "x")


async def two_at_once(model: Model) -> None:
    await model.pass_to(1 - model.rank, [1, 2])


async def state_summed(model: Model) -> None:
    _, state = model.load_weights(0)
    await model.allreduce(state, 0)  # type: ignore[arg-type]


async def mixed_gather(model: Model) -> None:
    model.weights[0], _ = model.load_weights(model.rank, model.rank, 2)
    await model.allgather(model.weights[0], model.rank)


async def same_shard(model: Model) -> None:
    model.weights[0], _ = model.load_weights(0, 0, 2)
    await model.allgather(model.weights[0], 0)


def bad(use: Callable[[Model], Any]) -> Callable[[Model], Any]:
    def program(model: Model) -> Any:
        start(model)
        return use(model)

    return program


CORPUS: dict[str, tuple[Any, int, str]] = {
    "forward of the wrong layer": (bad(lambda m: m.forward(1, m.activations[0], m.weights[1])), 1, "input is that of layer 0"),
    "weight of another layer": (bad(lambda m: m.forward(0, m.activations[0], m.weights[1])), 1, "weight is that of layer 1"),
    "loss too early": (bad(lambda m: m.loss(m.activations[0])), 1, "output of the last layer"),
    "None for a tensor": (bad(lambda m: m.forward(0, None, m.weights[0])), 1, "inp must be an Activation"),
    "a string for a layer": (bad(lambda m: m.load_weights("0")), 1, "layer is out of range"),
    "layer out of range": (bad(lambda m: m.load_weights(2)), 1, "from 0 to 1"),
    "shard out of range": (bad(lambda m: m.load_weights(0, 4, 4)), 1, "from 0 to 3"),
    "no shards": (bad(lambda m: m.load_weights(0, 0, 0)), 1, "whole number from 1"),
    "micro-batch out of range": (bad(lambda m: m.get_activation([4])), 1, "from 0 to 3"),
    "a number for micro-batches": (bad(lambda m: m.get_activation(0)), 1, r"\[0\]"),
    "no micro-batch": (bad(lambda m: m.get_activation([])), 1, "at least one"),
    "a float for a micro-batch": (bad(lambda m: m.get_activation([0.5])), 1, "whole numbers"),
    "an unknown axis": (bad(lambda m: m.axis_index("shard")), 1, "no mesh axis"),
    "update without all micro-batches": (
        lambda m: m.update(1, trained(m, 1), m.weights[1], m.opt_states[1]), 1, r"missing micro-batches 1-3",
    ),
    "update with a state of another layer": (
        lambda m: m.update(1, trained(m, 1), m.weights[1], m.opt_states[0]), 1, "opt_state is of layer 0",
    ),
    "a micro-batch twice": (double, 1, "would be counted more than once"),
    "a final weight of another layer": (bad(lambda m: m.set_final_weight(0, m.weights[1])), 1, "of layer 1"),
    "an updated weight is not there": (
        bad(lambda m: (m.set_final_weight(0, m.weights[0]), m.forward(0, m.activations[0], m.weights[0]))[0]), 1, "step=1",
    ),
    "a swallowed error": (swallowed, 1, "input is that of layer 0"),
    "incomplete weight": (
        lambda m: m.forward(0, m.get_activation([0]), m.load_weights(0, 0, 2)[0]), 1, "allgather",
    ),
    "a forgotten await": (forgot_await, 1, "did you forget `await`"),
    "never awaited": (never_awaited, 2, "never awaited"),
    "never received": (never_received, 2, "never received"),
    "a rank that raises": (one_raises, 2, "rank 1: the function raised ValueError: oh"),
    "a child task that raises": (child_raises, 1, "ValueError: in a child"),
    "a task group that raises": (group_raises, 1, "ValueError: in a group"),
    "a message to oneself": (to_itself, 2, "cannot pass to itself"),
    "two things in a message": (two_at_once, 2, "takes one tensor"),
    "a sum of states": (state_summed, 2, "takes a WeightGrad"),
    "a gather of different layers": (mixed_gather, 2, "in the same order"),
    "a gather of one shard twice": (same_shard, 2, "a shard would be counted more than once"),
    "setting rank": (bad(lambda m: setattr(m, "rank", 1)), 1, "AttributeError"),
    "a name that is not there": (bad(lambda m: m.wieghts), 1, r"AttributeError: .*; did you mean model\.weights\?"),
    "a verb as torch has it": (bad(lambda m: m.reduce_scatter), 1, r"; did you mean model\.scatterreduce\?"),
    "a verb as the field has it": (bad(lambda m: m.send), 1, r"; did you mean model\.pass_to\?"),
    "sys.exit": (bad(lambda m: exit(0)), 1, "SystemExit"),
    "a mean of gradients": (bad(lambda m: m.weights[0] / 4), 1, "a Weight cannot be divided; got 4"),
    "the sum of weights": (bad(lambda m: m.weights[0] + m.weights[1]), 1, "a Weight and a Weight do not add up"),
}  # fmt: skip


@pytest.mark.parametrize("name", CORPUS)
def test_wrong_programs(name: str) -> None:
    program, ranks, says = CORPUS[name]
    with pytest.raises(PuzzleError, match=says):
        run(program, ranks=ranks, batches=4).check()


BAD_RUNS: dict[str, Callable[[], object]] = {
    "a coroutine": lambda: run(one_raises(Model())),  # type: ignore[arg-type]
    "a generator": lambda: run(yields),
    "None": lambda: run(None),  # type: ignore[arg-type]
    "a function of nothing": lambda: run(lambda: None),  # type: ignore[arg-type]
    "no ranks": lambda: run(start, ranks=0),
    "half a rank": lambda: run(start, ranks=1.5),  # type: ignore[arg-type]
    "layers": lambda: run(start, layers="2"),  # type: ignore[arg-type]
    "batches": lambda: run(start, batches=-1),
    "timeout": lambda: run(start, timeout="x"),  # type: ignore[arg-type]
    "mesh": lambda: run(start, ranks=8, mesh={"replica": 3, "shard": 4}),
    "mesh type": lambda: run(start, ranks=8, mesh=[2, 4]),  # type: ignore[arg-type]
    "node_size": lambda: run(start, ranks=8, node_size=0),
    "cost": lambda: run(start, cost=3),  # type: ignore[arg-type]
    "model rank": lambda: Model(rank=4, dist=Dist(4)),
    "model dist": lambda: Model(dist=4),  # type: ignore[arg-type]
    "check of nothing": lambda: Model.check([]),
    "check of None": lambda: Model.check(None),  # type: ignore[arg-type]
    "check of what a function returned": lambda: Model.check([None]),  # type: ignore[list-item]
    "shard": lambda: Weight(0, 2, 0).shard(2, 2),
    "shard of a set with gaps": lambda: Weight(0, 2, 0, {0, 2}, 4).shard(0, 2),
    "combine": lambda: Weight(0, 2, 0, {0}, 2).combine(Weight(0, 2, 0, {0}, 2)),
    "combine of steps": lambda: Weight(0, 2, 0, {0}, 2).combine(Weight(0, 2, 1, {1}, 2)),
    "shards out of range": lambda: Weight(0, 2, 0, {2}, 2),
    "an unknown puzzle": lambda: grade(start),
    "no function": lambda: grade("fsdp"),  # type: ignore[arg-type]
    "an unknown hint": lambda: hint("fsdq"),
}


@pytest.mark.parametrize("name", BAD_RUNS)
def test_bad_arguments(name: str) -> None:
    with pytest.raises(PuzzleError) as caught:
        BAD_RUNS[name]()
    assert str(caught.value)


def test_the_mesh_error_shows_every_factor() -> None:
    with pytest.raises(PuzzleError, match="replica 3 x shard 4 = 12, not 8"):
        Dist(8, mesh={"replica": 3, "shard": 4})


def test_the_message_names_the_learners_line() -> None:
    with pytest.raises(PuzzleError) as caught:
        run(swallowed)
    assert "in swallowed: model.forward(1, model.activations[0], model.weights[1])" in str(caught.value)
    assert "in test_the_message" in learner_line()


def spins(model: Model) -> None:
    while True:
        pass


async def livelock(model: Model) -> None:
    while True:
        await asyncio.sleep(0)


def swallows(model: Model) -> None:
    while True:
        try:
            time.sleep(5)
        except BaseException:  # the point of the test
            pass


async def swallows_awaiting(model: Model) -> None:
    while True:
        try:
            await asyncio.sleep(0)
        except BaseException:  # the point of the test
            pass


async def swallows_twice(model: Model) -> None:
    while True:
        try:
            try:
                await swallows_awaiting(model)
            except BaseException:
                await asyncio.sleep(0)
        except BaseException:
            pass


def swallows_thrice(model: Model) -> None:
    while True:
        try:
            while True:
                try:
                    while True:
                        try:
                            pass
                        except BaseException:
                            pass
                except BaseException:
                    pass
        except BaseException:
            pass


@pytest.mark.parametrize("program", [spins, livelock, swallows, swallows_awaiting, swallows_twice, swallows_thrice])
def test_nothing_hangs(program: Any) -> None:
    with pytest.raises(PuzzleError, match="did not end within"):
        run(program, timeout=0.3)
    run(start)  # and the next run is as good as ever


async def hurries(model: Model) -> None:
    start(model)
    while True:
        model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
        await model.allreduce(model.fake_grad(0, []), 0)


def maps(model: Model) -> None:
    """A loop in C, that calls us and never comes to a line of the learner's."""
    deque(map(model.load_weights, itertools.repeat(0)), maxlen=0)


def test_a_limit_that_strikes_inside_our_code_leaves_a_log_that_can_be_read() -> None:
    """Wherever in a call it strikes: half of a call in the log would make another error of it."""
    for milliseconds in range(20, 70):
        with pytest.raises(PuzzleError, match="did not end within"):
            run(hurries, ranks=4, layers=1, batches=4, timeout=milliseconds / 1000)
    with pytest.raises(PuzzleError, match="did not end within"):
        run(maps, timeout=0.1)


def test_run_inside_a_running_loop() -> None:
    async def host() -> str:
        task = asyncio.current_task()
        run(start)
        with pytest.raises(PuzzleError):
            run(swallowed)
        assert asyncio.current_task() is task
        await asyncio.sleep(0)
        return "alive"

    assert asyncio.run(host()) == "alive"


def test_a_blank_function_is_not_attempted() -> None:
    async def fsdp(model: Model) -> Model:
        return model

    assert str(run(fsdp)) == "fsdp: not attempted yet"
    verdict = grade(fsdp)
    assert (verdict.status, verdict.message) == ("TODO", "not attempted yet")
    assert "not attempted yet" in verdict._repr_html_()


def test_a_run_inside_a_rank_is_a_run_of_its_own() -> None:
    async def inner(model: Model) -> None:
        await model.allreduce(model.fake_grad(0, []), 0)

    async def outer(model: Model) -> None:
        assert run(inner, ranks=3).time == 0.3
        await inner(model)

    assert run(outer, ranks=2).time == 0.3


def test_what_a_rank_starts_and_does_not_await_is_waited_for() -> None:
    async def program(model: Model) -> None:
        async def child() -> None:
            await model.pass_to(1 - model.rank, "x")
            await model.receive()

        model.task = asyncio.create_task(child())  # type: ignore[attr-defined]

    assert run(program, ranks=2).time == 0.4


def test_a_partial_is_a_function_too() -> None:
    assert str(run(functools.partial(start))) == "start: not attempted yet"
