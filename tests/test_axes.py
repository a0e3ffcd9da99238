"""Collectives over several axes of a mesh at once: groups, prices, values, pictures, and programs that compose ways."""

import math
from typing import Any

import pytest

from lib import Cost, Dist, Model, PuzzleError, RingCost, run
from lib.course.specs import puzzles
from lib.grading.judge import check_features
from lib.machine.mesh import Mesh
from lib.record.labels import AXES
from lib.record.table import grantable
from solutions.p25_context_parallel import replica_fsdp_context_tensor
from tests import experts
from tests.composed import fsdp_context
from tests.marks import needs_processes, needs_torch

MESHES: list[dict[str, int]] = [
    {"replica": 2, "context": 2, "other": 1},
    {"context": 2, "other": 2, "replica": 2},
    {"replica": 3, "other": 1, "context": 2},
    {"replica": 2, "context": 4},
    {"context": 3, "replica": 2},
    {"replica": 1, "context": 4},
    {"replica": 4, "context": 1, "other": 1},
]
CUBES: list[dict[str, int]] = [
    {"replica": 2, "context": 2, "tensor": 2},
    {"tensor": 2, "replica": 2, "context": 3},
    {"context": 2, "replica": 3, "tensor": 2},
    {"replica": 1, "context": 2, "tensor": 2},
    {"context": 1, "tensor": 4, "replica": 2},
    {"context": 2, "tensor": 1, "replica": 2},
]
RING = RingCost(bandwidth=300_000, bandwidth_across=70_000)


def size(mesh: dict[str, int], each: int = 2) -> dict[str, Any]:
    return {"ranks": math.prod(mesh.values()), "layers": 4, "batches": each * mesh["replica"], "mesh": mesh}


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("cost", [Cost(), RING], ids=["flat", "ring"])
def test_replica_fsdp_with_a_context_axis(mesh: dict[str, int], cost: Cost) -> None:
    """A further axis, if there is one, has copies: their gradients are not summed along it, so each of its ranks trains
    the same model."""
    assert run(fsdp_context(), **size(mesh), cost=cost).verify() == "Correct!"


@pytest.mark.parametrize("mesh", CUBES, ids=str)
def test_replica_fsdp_with_tensor_and_context_axes(mesh: dict[str, int]) -> None:
    assert run(replica_fsdp_context_tensor, **size(mesh), node_size=2).verify() == "Correct!"


@pytest.mark.parametrize("wrong", ["replica", "context", None])
def test_a_sum_over_too_few_or_too_many_is_found(wrong: str | None) -> None:
    """Weights are cut along two axes of three, and gradients summed along others: also with the rules off."""

    async def program(model: Model) -> Model:
        axes = ("replica", "context")
        model.weights[0], model.opt_states[0] = model.load_weights(0, model.axis_index(axes), model.axis_size(axes))
        model.activations[0] = model.get_activation([model.rank])
        model.weights["all"] = await model.allgather(model.weights[0], 0, axis=axes)
        out = model.forward(0, model.activations[0], model.weights["all"])
        model.grad_activations[0] = model.loss(out)
        grad, _ = model.backward(0, model.activations[0], model.grad_activations[0], model.weights["all"])
        model.grad_weights[0] = await model.allreduce(grad, 0, axis="other")
        grad = model.grad_weights.pop(0)
        model.grad_weights[0] = await model.scatterreduce(grad, 0, axis=axes if right else wrong)
        return experts.finish(model)

    how: dict[str, Any] = {"ranks": 8, "layers": 1, "batches": 8}
    how["mesh"] = {"replica": 2, "context": 2, "other": 2}
    right = True
    assert run(program, **how).verify() == "Correct!"
    right = False
    with pytest.raises(PuzzleError) as told:
        run(program, **how)
    assert str(told.value)
    with pytest.raises(PuzzleError):
        run(program, **how, _strict=False).verify()


def collectives(axis: Any) -> Any:
    """A program of all collectives, over some axes."""

    async def program(model: Model) -> None:
        acts, grads = model.activations, model.grad_weights
        model.weights[1], _ = model.load_weights(1)
        model.weights[0], _ = model.load_weights(0, model.axis_index(axis), model.axis_size(axis))
        model.weights["all"] = await model.allgather(model.weights[0], 0, axis=axis)
        acts[0] = model.get_activation([model.rank])
        acts[1] = model.forward(0, acts[0], model.weights["all"])
        acts["tokens"] = await model.alltoall(acts.pop(1), 1, axis=axis)
        acts[1] = await model.alltoall(acts.pop("tokens"), 1, axis=axis)
        model.grad_activations[2] = model.loss(model.forward(1, acts[1], model.weights[1]))
        grad, model.grad_activations[1] = model.backward(1, acts[1], model.grad_activations[2], model.weights[1])
        grads[1] = await model.allreduce(grad, 1, axis=axis)
        grad, _ = model.backward(0, acts[0], model.grad_activations[1], model.weights["all"])
        grads[0] = await model.scatterreduce(grad, 0, axis=axis)

    return program


TWICE: list[tuple[dict[str, int], tuple[str, ...], dict[str, int], str]] = [
    # a mesh, axes of it, the mesh in which these are one, and its name there
    ({"a": 2, "b": 2, "c": 3}, ("a", "b"), {"ab": 4, "c": 3}, "ab"),
    ({"a": 3, "b": 2, "c": 4}, ("b", "c"), {"a": 3, "bc": 8}, "bc"),
    ({"a": 2, "b": 1, "c": 4, "d": 2}, ("a", "b", "c"), {"abc": 8, "d": 2}, "abc"),
    ({"a": 2, "b": 1, "c": 4}, ("a", "c"), {"b": 1, "ac": 8}, "ac"),
]


@pytest.mark.parametrize(("mesh", "axes", "product", "one"), TWICE, ids=[one for *_, one in TWICE])
@pytest.mark.parametrize("node_size", [None, 2, 4])
@pytest.mark.parametrize("cost", [Cost(), RING], ids=["flat", "ring"])
def test_it_is_the_collective_over_the_axis_that_is_their_product(
    mesh: dict[str, int], axes: tuple[str, ...], product: dict[str, int], one: str, node_size: int | None, cost: Cost
) -> None:
    ranks, count = math.prod(mesh.values()), product[one]
    how: dict[str, Any] = {"ranks": ranks, "batches": ranks, "node_size": node_size, "cost": cost, "experts": count}
    several = run(collectives(axes[::-1]), **how, mesh=mesh)
    single = run(collectives(one), **how, mesh=product)
    assert (several.time, several.memory) == (single.time, single.memory)
    assert [_plain(event) for event in several.events] == [_plain(event) for event in single.events]
    assert {event.group for event in several.events} == {event.group for event in single.events}
    named = {event.op[0] for event in several.events if event.stream == "collective" and event.op}
    assert named == {axes} and {AXES in event.words for event in several.events if event.op} == {True}


def _plain(event: Any) -> Any:
    """Return a record without the name of its group, and without what a puzzle has to grant for it."""
    return event._replace(op=event.op and event.op[1:], words=tuple(word for word in event.words if word != AXES))


@pytest.mark.parametrize("axes", [("a", "c"), ("c", "b"), ["b", "a"], ("a", "b", "c"), ("b",)])
def test_a_group_has_the_ranks_that_differ_in_these_coordinates_only(axes: Any) -> None:
    mesh = Mesh(12, {"a": 2, "b": 2, "c": 3})
    known = mesh.named(axes)
    for rank in range(12):
        group = mesh.group(rank, known)
        here = mesh.coordinates(rank)
        alike = [one for one in range(12) if all(mesh.coordinates(one)[x] == here[x] for x in "abc" if x not in axes)]
        assert [*group.ranks] == alike and len(alike) == mesh.along(known)
        assert group.ranks[mesh.index(rank, known)] == rank


def test_all_axes_are_all_ranks_and_their_order_is_that_of_the_mesh() -> None:
    async def program(model: Model) -> list[Any]:
        axis = [None, ("a", "b", "c"), ("c", "b", "a"), ["b", "a", "c"]][model.rank % 4]
        model.grad_weights[0] = await model.allreduce(model.fake_grad(0, []), 0, axis=axis)
        axis = ("a", "c") if model.rank % 2 else ["c", "a"]
        model.grad_weights[0] = await model.allreduce(model.fake_grad(0, []), 0, axis=axis)
        return [model.axis_index(("a", "b", "c")), model.axis_size(("b", "a")), model.axis_index(["c", "a"])]

    done = run(program, 12, mesh={"a": 2, "b": 2, "c": 3})
    assert {event.words for event in done.events if event.kind == "allreduce"} == {(), (AXES,)}
    dist = Dist(12, mesh={"a": 2, "b": 2, "c": 3})
    found = [
        (one.axis_index(("a", "b", "c")), one.axis_index(["c", "a"])) for one in (Model(r, dist) for r in range(12))
    ]
    assert found == [(rank, rank // 6 * 3 + rank % 3) for rank in range(12)]
    assert Model(0, dist).axis_size(("b", "a")) == 4


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        (("replica", "contxt"), r"(?s)no mesh axis 'contxt'.*'replica', 'context'"),
        (("replica", "replica"), r"(?s)the mesh axis 'replica' comes twice.*expected: +each axis once"),
        (["context", "replica", "context"], r"(?s)\'context\' comes twice.*expected: +each axis once"),
        ((), r"(?s)no mesh axis is named"),
        (("context", 3), r"there is no mesh axis 3"),
        (frozenset({"context"}), r"there is no mesh axis frozenset"),
    ],
)
@pytest.mark.parametrize("how", ["collective", "index", "size"])
def test_axes_that_are_none_are_named(axis: Any, said: str, how: str) -> None:
    async def program(model: Model) -> None:
        if how == "collective":
            await model.allgather(model.load_weights(0, model.rank, model.RANKS)[0], 0, axis=axis)
        (model.axis_index if how == "index" else model.axis_size)(axis)

    with pytest.raises(PuzzleError, match=said):
        run(program, 4, mesh={"replica": 2, "context": 2})


def test_a_puzzle_has_to_grant_them() -> None:
    assert AXES in grantable()
    outcome = run(replica_fsdp_context_tensor, **size(CUBES[0]))
    words = {word for event in outcome.events for word in event.words}
    puzzle = puzzles()["compose"]
    granted = puzzle._replace(words=tuple(words - {AXES}))
    with pytest.raises(PuzzleError, match=r"solved without collectives over several axes at once"):
        check_features(outcome, granted)


@pytest.mark.parametrize("mesh", [{"replica": 8, "context": 2, "other": 1}, {"other": 1, "context": 2, "replica": 16}])
def test_ranks_stand_for_others(mesh: dict[str, int]) -> None:
    how = size(mesh)
    done = run(fsdp_context(), **how, represent="replica")
    assert len(done.models) < how["ranks"] and done.events == run(fsdp_context(), **how, represent=False).events


def test_ranks_stand_for_others_along_both_axes() -> None:
    how: dict[str, Any] = {"ranks": 64, "batches": 64, "mesh": {"a": 8, "b": 8, "c": 1}, "experts": 64}
    program = collectives(("a", "b"))
    done = run(program, **how, represent=True)
    assert len(done.models) == 16 and done.events == run(program, **how, represent=False).events


def test_experts_may_be_divided_along_several_axes() -> None:
    async def program(model: Model) -> Model:
        axes = ("box", "gpu")
        experts.load(model, (model.axis_index(axes), model.axis_size(axes)))
        return await experts.train(model, out=(axes,), home=(axes,), copies="replica")  # type: ignore[arg-type]

    mesh = {"box": 2, "replica": 2, "gpu": 2}
    assert run(program, 8, 4, 8, mesh, experts=8).verify() == "Correct!"


@needs_torch
@pytest.mark.parametrize("mesh", MESHES[:3], ids=str)
def test_numbers_agree_with_training_as_a_whole(mesh: dict[str, int]) -> None:
    how: dict[str, Any] = {"engine": "local", "layer": "block", "dtype": "float64", "hidden": 32, "length": 24}
    done = run(fsdp_context(), **size(mesh, each=1) | {"layers": 2}, **how)
    assert done.agreement.relative <= 1e-14


@needs_processes
@pytest.mark.process
def test_processes_meet_along_several_axes() -> None:
    mesh = {"replica": 2, "other": 1, "context": 2}
    how: dict[str, Any] = {"engine": "processes", "layer": "block", "dtype": "float64", "hidden": 32, "length": 24}
    done = run(fsdp_context(), **size(mesh, each=1) | {"layers": 2}, **how, timeout=60)
    assert done.agreement.relative <= 1e-14
    right, counted = done.stored
    assert right == counted > 0
