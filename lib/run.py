"""Run a learner's function on every rank of a machine, and keep what happened."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .cost import Cost
from .dist import Dist
from .errors import PuzzleError
from .limits import collector_off
from .mesh import whole_number
from .model import Model
from .outcome import Outcome
from .tensors import describe
from .turn import name_of, play


class Run(Outcome):
    """What happened in a run. Shows itself as a picture in a notebook once ``drawing`` is imported.

    ``models``: the ranks' Models; ``events``: the log, rank by rank; ``time``: the end of the last
    operation, in ticks; ``memory``: the peak of all ranks, in elements.
    """

    def __init__(self, name: str, models: Sequence[Model]) -> None:
        self.models = list(models)
        closings = [model._closing() for model in models]
        logs = [model._books.settled(model._account) for model in models]
        super().__init__(name, models[0].dist._mesh, closings, logs)


def run(
    fn: Callable[[Model], Any],
    ranks: int = 1,
    layers: int = 2,
    batches: int = 1,
    mesh: Mapping[str, int] | None = None,
    node_size: int | None = None,
    cost: Cost | None = None,
    timeout: float | None = 10.0,
    *,
    _order: Sequence[int] | None = None,
    _strict: bool = True,
) -> Run:
    """Run ``fn(model)``, plain or async, on every rank of a machine; see Dist and Model for the sizes.

    ``timeout`` bounds wall-clock seconds (None: no bound), also for a loop that never ends where the
    platform has timers and this is the main thread. Works in scripts, tests, and notebooks whose loop is
    running. Raises PuzzleError (Deadlock among them) for everything that is wrong with the function.
    """
    check_function(fn)
    if timeout is not None and (not isinstance(timeout, (int, float)) or not timeout > 0):
        raise PuzzleError("timeout must be a number of seconds, or None", got=describe(timeout))
    whole_number("ranks", ranks)
    dist = Dist(ranks, mesh, node_size, cost, _graded=True, _strict=_strict)
    models = [Model(rank, dist, layers, batches) for rank in range(dist.ranks)]
    play(fn, models, timeout, _order)
    unfinished = dist._books.unfinished()
    if unfinished is not None:
        raise unfinished
    with collector_off():
        return Run(name_of(fn), models)


def check_function(fn: object) -> None:
    """Whether something can be run on a rank. Raises PuzzleError that says why not."""
    if not callable(fn) or isinstance(fn, type):
        hint = "pass the function itself: run(fsdp, ...), not run(fsdp(...), ...)"
        if inspect.iscoroutine(fn):
            fn.close()
        raise PuzzleError("run takes a function of one model", got=describe(fn), cure=hint)
    try:
        inspect.signature(fn).bind(object())
    except TypeError:
        raise PuzzleError(
            "run calls the function with one argument, the model",
            where=f"{getattr(fn, '__name__', fn)}{inspect.signature(fn)}",
            cure="async def fsdp(model): ...",
        ) from None
    except ValueError:
        pass  # a builtin without a signature: the call will tell
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise PuzzleError(f"{name_of(fn)} has a yield in it, so nobody runs it to its end", cure="await, not yield")
