"""A run that fails says the same whoever came first."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from typing import Any

import pytest

from lib import Model, PuzzleError, run
from lib.course.specs import puzzles
from tests.corpus import Program
from tests.corpus.mistakes import MISTAKES
from tests.test_corpus import function, titles

Fn = Callable[[Model], Any]

# -- who is named -------------------------------------------------------------------------------------------

SIZE: dict[str, Any] = {"ranks": 4, "layers": 6, "batches": 4}

NAMES = """
ddp: everybody trains micro-batch 0
ddp: no sum
ddp: the layers in the wrong order
fsdp: one shard short
fsdp: the same shard everywhere
fsdp: a shard out of range
fsdp: no gather
fsdp: no await at the gather
fsdp: a tensor edited
fsdp: weights added
fsdp: a call asked for what a tensor has
fsdp: a model of its own
fsdp: everything loaded instead of gathered
fsdp: a whole weight by hand
gpipe: gradients of the wrong micro-batch
pipeline: all receive first
pipeline: a message that nobody receives
replica_fsdp: both replicas train the same
replica_fsdp: the axes changed places
replica_fsdp: an axis that is not there
"""
NAMED = [program for program, title in zip(MISTAKES, titles(MISTAKES), strict=True) if title in NAMES.split("\n")]


def orders(ranks: int) -> list[list[int]]:
    """Forwards, backwards, and shuffled."""
    shuffled = [random.Random(seed).sample(range(ranks), ranks) for seed in (4, 9)]
    return [[*range(ranks)], [*range(ranks)][::-1], *shuffled]


def told(fn: Fn, size: dict[str, Any]) -> PuzzleError:
    """The error, which is the same in whichever order the ranks come."""
    errors = []
    for order in orders(size["ranks"]):
        with pytest.raises(PuzzleError) as caught:
            run(fn, **size, _order=order).check()
        errors.append(caught.value)
    assert len({str(error) for error in errors}) == len({error.place for error in errors}) == 1
    logs = [error.run.events for error in errors if error.run is not None]
    assert all(events == logs[0] for events in logs)
    return errors[0]


@pytest.mark.parametrize("program", NAMED, ids=titles(NAMED))
def test_the_error_is_the_same_whoever_came_first(program: Program) -> None:
    assert len(NAMED) == len(NAMES.strip().split("\n"))
    told(function(program), puzzles()[program.puzzle].size)  # type: ignore[arg-type]


EVERYBODY = {
    "no await": ("weight = model.allgather(model.weights[0], 0)", "model.forward(0, x, weight)"),
    "no await, and asked": ("model.allgather(model.weights[0], 0).shards",),
    "no await, and added": ("model.allreduce(model.fake_grad(0, []), 0) + 1",),
    "an incomplete weight": ("model.forward(0, x, model.weights[0])",),
    "no tensor stored": ("model.activations[1] = 3",),
    "nothing is there": ("model.activations[1]",),
    "a tensor edited": ("model.weights[0].layer = 1",),
    "a label asked for that is none": ("model.weights[0].color",),
    "cut too small": ("model.weights[0].shard(0, 10 ** 9)",),
    "another rank's layer": ("await model.allgather(model.weights[0], 1)",),
    "no tensor gathered": ("await model.allgather(None, 0)",),
    "a final weight of another layer": ("model.set_final_weight(1, model.weights[0])",),
    "a layer out of range": ("model.load_weights(9)",),
    "a micro-batch out of range": ("model.get_activation([9])",),
    "a message to nobody": ("await model.pass_to(9, x)",),
    "a message to itself": ("await model.pass_to(model.rank, x)",),
    "an axis that is not there": ("await model.allgather(model.weights[0], 0, axis='box')",),
    "ValueError": ("raise ValueError('oh')",),
    "PuzzleError": ("raise PuzzleError('oh')",),
    "an error in a task": ("async def child(): raise ValueError('oh')", "await asyncio.gather(child(), child())"),
    "swallowed": ("try: model.weights[0].layer = 1", "except AssertionError: pass"),
    "swallowed, with a place": ("try: model.load_weights(9)", "except AssertionError: pass"),
    "never awaited": ("model.pass_to((model.rank + 1) % model.RANKS, 'x')",),
}
"""Mistakes that every rank makes, after an operation and a sum over all ranks."""
HEAD = """
async def everybody(model):
    model.weights[0], model.opt_states[0] = model.load_weights(0, model.rank, model.RANKS)
    x = model.activations[0] = model.get_activation([model.rank])
    model.weights["whole"] = await model.allgather(model.weights[0], 0)
    model.forward(0, x, model.weights["whole"])
"""


@pytest.mark.filterwarnings("ignore:coroutine .*child.* was never awaited")
@pytest.mark.parametrize("name", EVERYBODY)
def test_a_mistake_that_all_make_is_told_of_rank_0(name: str) -> None:
    source = HEAD + "".join(f"    {line}\n" for line in EVERYBODY[name])
    ast.parse(source)
    fn = function(Program("everybody", name, "import asyncio\nfrom lib import PuzzleError\n" + source))
    error = told(fn, SIZE)  # type: ignore[arg-type]
    assert error.place.rank == 0 and "rank 0" in str(error)


def test_of_errors_at_several_ticks_the_earliest_is_told_however_it_was_made() -> None:
    def late(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        if model.rank:
            model.activations[0] = model.get_activation([0])
            model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
        try:
            model.weights[0].layer = 1  # type: ignore[misc]
        except AssertionError:
            model.load_weights(9)

    error = told(late, SIZE)
    assert error.place == (0, "", None, None, 0.0, "") and "tensors are frozen" in str(error)
