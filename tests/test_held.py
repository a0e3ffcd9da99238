"""What a rank begins with it holds: a property of the log of every solution, and programs that lend a tensor away."""

from __future__ import annotations

from typing import Any

import pytest

from lib import PuzzleError, run
from lib.course.held import check_held
from lib.course.layouts import LAYOUTS, WITH_ADAPTERS
from lib.course.specs import cost_named, puzzles
from lib.machine.outcome import Outcome
from lib.record.events import MARKS
from lib.record.kinds import SLOT
from tests.programs import COURSE, REPAIRS, solved

TRIED = [*COURSE, *REPAIRS]
HELD = {"Weight": "weights", "OptState": "optimizer states"}


def with_less(outcome: Outcome, kind: str, rank: int, at: int) -> Outcome:
    """The outcome of a run in which one sample of a rank has nothing of a kind, and nothing on its way."""
    places = [place for place, event in enumerate(outcome.events) if event.rank == rank and event.kind not in MARKS]
    place = places[at % len(places)]
    event, slots = outcome.events[place], range(len(outcome.events[place].held))
    held = tuple(0 if slot in (SLOT[kind], len(slots) - 1, len(slots) - 2) else event.held[slot] for slot in slots)
    events = list(outcome.events)
    events[place] = event._replace(held=held)
    changed = Outcome.__new__(Outcome)
    changed.__dict__ |= outcome.__dict__ | {"events": tuple(events)}
    return changed


@pytest.mark.parametrize("name", TRIED)
def test_every_solution_holds_what_it_begins_with_and_a_sample_without_it_is_found(name: str) -> None:
    outcome = solved(name, small=True)
    check_held(outcome)
    for state in outcome.final_states:
        for kind in {labels.kind for labels in state.began} - ({"Weight"} if state.rank >= outcome.ranks else set()):
            with pytest.raises(PuzzleError, match=f"it does not hold the {HELD[kind]} that it has begun with"):
                check_held(with_less(outcome, kind, state.rank, 0))
            if kind == "OptState":
                with pytest.raises(PuzzleError, match="it does not hold the optimizer states"):
                    check_held(with_less(outcome, kind, state.rank, -1))


# -- programs that put away for a while what their layout says --------------------------------------------------


def lends(name: str, kind: str) -> Any:
    """The solution of a puzzle, in which rank 0 lends the last rank what it has of a layer, before any work."""
    puzzle = puzzles()[name]
    store = {"Weight": "weights", "OptState": "opt_states"}[kind]

    async def lend(model: Any, layer: int) -> None:
        last = model.RANKS - 1
        if model.rank == 0:
            await model.pass_to(last, getattr(model, store).pop(layer))
        elif model.rank == last:
            getattr(model, store)["lent"] = await model.receive(src=0)
        await model.allreduce(model.fake_grad(layer, []), layer)
        if model.rank == 0:
            getattr(model, store)[layer] = await model.receive(src=last)
        elif model.rank == last:
            await model.pass_to(0, getattr(model, store).pop("lent"))

    async def program(model: Any) -> None:
        axis = "shard" if puzzle.layout in ("hybrid_sharded", "replica_sharded") else None
        whole = puzzle.layout in ("whole", "states_sharded")
        shard, shards = (model.axis_index(axis), model.axis_size(axis)) if axis else (model.rank, model.RANKS)
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(
                layer, *((0, 1) if whole else (shard, shards))
            )
        await lend(model, 0)
        model.activations[0] = model.get_activation([model.rank])
        for layer in range(model.LAYERS):
            weight = model.weights[layer]
            if not whole:
                weight = await model.allgather(weight, layer, **({"axis": axis} if axis else {}))
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)

    return program


LENDS = ["ddp", "wsdp", "fsdp", "zero1", "zero2", "hpz", "replica_fsdp", "repair_groups"]


@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize("name", LENDS)
def test_what_is_lent_to_another_rank_is_not_held(name: str, kind: str) -> None:
    puzzle = puzzles()[name]
    outcome = run(lends(name, kind), **puzzle.size, cost=cost_named(puzzle.cost))
    with pytest.raises(PuzzleError, match=f"rank 0.* it does not hold the {HELD[kind]} that it has begun with"):
        check_held(outcome)


@pytest.mark.parametrize("loads", [1, 2])
@pytest.mark.parametrize("lets_go", [False, True])
def test_a_shard_that_is_cut_out_of_the_gathered_weight_again_was_not_held(loads: int, lets_go: bool) -> None:
    """Also where it was loaded in two halves. What is cut out and not updated does not matter."""

    async def program(model: Any) -> None:
        for half in range(loads):
            model.weights[half], model.opt_states[half] = model.load_weights(
                0, loads * model.rank + half, loads * model.RANKS
            )
        if loads == 2:
            model.weights[0] = model.weights[0].combine(model.weights.pop(1))
            model.opt_states[0] = model.opt_states[0].combine(model.opt_states.pop(1))
        model.activations[0] = model.get_activation([model.rank])
        model.weights["whole"] = await model.allgather(model.weights[0], 0)
        model.weights["cut"] = model.weights["whole"].shard(model.rank, model.RANKS)
        model.grad_activations[1] = model.loss(model.forward(0, model.activations[0], model.weights["whole"]))
        grad, _ = model.backward(0, model.activations[0], model.grad_activations.pop(1), model.weights["whole"])
        grad = await model.allreduce(grad, 0)
        piece = model.weights["cut" if lets_go else 0]
        updated, model.opt_states[0] = model.update(0, grad, piece, model.opt_states[0])
        model.set_final_weight(0, updated)

    outcome = run(program, ranks=4, layers=1, batches=4)
    if lets_go:
        with pytest.raises(PuzzleError, match="cut out of a gathered weight"):
            check_held(outcome)
    else:
        check_held(outcome)


def test_every_layout_is_that_of_a_solution_that_is_tried() -> None:
    assert {puzzles()[name].layout for name in TRIED} == {*LAYOUTS, *WITH_ADAPTERS}
