"""Learner programs that several tests share: honest ones of many styles, with what the puzzles ask."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from lib import Cost, Model, Run, run
from lib.course.specs import cost_named, puzzles
from tests.experts import finish

COURSE = [puzzle.name for puzzle in puzzles().values() if not puzzle.repair]
REPAIRS = [puzzle.name for puzzle in puzzles().values() if puzzle.repair]
TOO_MUCH = {"repair_bargain": "memory", "repair_book": "time", "repair_straggler": "time"}
"""Programs to be repaired that train the model at any size, and what they take too much of."""
TRAINS = [*TOO_MUCH, "repair_quiet"]
QUIET = [*TRAINS, *(name for name in REPAIRS if "quiet" in puzzles()[name].size)]
"""Programs to be repaired that run to their end, at the size that the notebook shows. The others stop with an error."""
SOLUTIONS = sorted(path.stem for path in (Path(__file__).parent.parent / "solutions").glob("p??_*.py"))


SMALLER = {"compose": {"ranks": 8, "layers": 16, "batches": 32, "mesh": {"x": 2, "y": 2, "z": 2}}}
"""Sizes of large puzzles for tests that look at every moment, compute with numbers or start a process for each rank."""


PATIENCE = 120.0
"""The limit of a run that ends, in seconds, also of a large one where the machine is busy."""


def small_size(name: str) -> dict[str, Any]:
    """A puzzle's own size, or a smaller one in place of a large one."""
    return SMALLER.get(name) or puzzles()[name].size


def solutions(small: bool = False) -> Iterator[tuple[Callable[[Model], Any], dict[str, Any]]]:
    """Every puzzle's reference function and spec. ``small``: with a smaller size in place of a large one."""
    for name in SOLUTIONS:
        module = importlib.import_module(f"solutions.{name}")
        spec = module.PUZZLE
        size = small_size(spec["name"]) if small else spec["size"]
        yield getattr(module, spec["name"]), spec | {"size": size}


def layers_of(fn: Callable[[Model], Any], size: dict[str, Any]) -> tuple[str, ...]:
    """The kinds of layer with which a program can run on real tensors: one with experts where the size has experts, a
    block where it does a layer's attention as a step of its own, and otherwise any without experts."""
    if "experts" in size:
        return ("experts",)
    return ("block",) if ".project(" in inspect.getsource(fn) else ("mlp", "block")


def solved(name: str, cost: Cost | None = None, small: bool = False) -> Run:
    """The run of a puzzle's reference function, or of a program that is repaired, at the puzzle's own size. ``small``:
    at a smaller size in place of a large one."""
    if name in SMALLER and not small and cost is None:
        return of_real_size(name)
    puzzle = puzzles()[name]
    program = getattr(importlib.import_module(f"solutions.{puzzle.file}"), name)
    size = small_size(name) if small else puzzle.size
    return run(program, **size, cost=cost or cost_named(puzzle.cost), timeout=PATIENCE)


@cache
def of_real_size(name: str) -> Run:
    """The run of a large puzzle's solution, which takes seconds: tests that only look at it share it."""
    return solved(name, cost_named(puzzles()[name].cost))


SLACK = ("ddp", "wsdp", "fsdp", "pipeline", "gpipe", "pipeline_fsdp")
"""Puzzles for which there is a program that takes all of the target."""


def slack(kind: str) -> Callable[[Model], Any]:
    """The program of a puzzle that keeps what the target's slack allows."""

    async def program(model: Model) -> Model:
        ranks, rank, every = model.RANKS, model.rank, range(model.LAYERS)
        sharded = kind in ("wsdp", "fsdp", "pipeline_fsdp")
        stages = {"pipeline": ranks, "gpipe": ranks, "pipeline_fsdp": 4}.get(kind, 1)
        stage, per_stage = rank % stages, model.LAYERS // stages
        first, end = stage * per_stage, (stage + 1) * per_stage
        mine = range(first, end)
        keeps_all = kind in ("gpipe", "pipeline_fsdp")
        for layer in every if sharded or stages == 1 else mine:
            piece = (rank, ranks) if sharded else (0, 1)
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)
        batches = {
            "pipeline": [list(range(model.BATCHES))],
            "gpipe": [[batch] for batch in range(model.BATCHES)],
            "pipeline_fsdp": [[rank // 4]],
        }.get(kind, [[rank]])

        async def whole(layer: int) -> Any:
            return await model.allgather(model.weights[layer], layer) if sharded else model.weights[layer]

        for part, batch in enumerate(batches):
            for layer in every if sharded else mine:
                if layer == first:
                    model.activations[layer, part] = await model.receive() if stage else model.get_activation(batch)
                weight = await whole(layer)
                if layer in mine:
                    model.activations[layer + 1, part] = model.forward(layer, model.activations[layer, part], weight)
                if layer == end - 1 and stage < stages - 1:
                    passed = (
                        model.activations[end, part] if kind == "pipeline_fsdp" else model.activations.pop((end, part))
                    )
                    await model.pass_to(rank + 1, passed)
        for part, _ in enumerate(batches):
            if stage == stages - 1:
                last = model.activations.pop((end, part)) if kind == "gpipe" else model.activations[end, part]
                model.grad_activations[end, part] = model.loss(last)
            for layer in reversed(every if sharded else mine):
                if layer == end - 1 and stage < stages - 1:
                    model.grad_activations[end, part] = await model.receive()
                weight = await whole(layer)
                if kind == "fsdp":
                    model.weights["whole"] = weight
                if layer in mine:
                    inp = model.activations[layer, part]
                    grad = model.grad_activations[layer + 1, part]
                    grad, model.grad_activations[layer, part] = model.backward(layer, inp, grad, weight)
                    if not keeps_all:
                        del model.grad_activations[layer + 1, part]
                    if not keeps_all and kind != "fsdp":
                        del model.activations[layer, part]
                else:
                    grad = model.fake_grad(layer, [])
                if kind in ("ddp", "wsdp"):
                    grad = await model.allreduce(grad, layer)
                elif sharded:
                    grad = await model.scatterreduce(grad, layer)
                model.grad_weights[layer] = (
                    grad + model.grad_weights.pop(layer) if layer in model.grad_weights else grad
                )
                if kind == "fsdp":
                    del model.activations[layer, part]
                if layer == first and stage:
                    passed = (
                        model.grad_activations[layer, part] if keeps_all else model.grad_activations.pop((layer, part))
                    )
                    await model.pass_to(rank - 1, passed)
        model.weights.pop("whole", None)
        return finish(model, every if sharded or stages == 1 else mine)

    program.__name__ = kind
    return program
