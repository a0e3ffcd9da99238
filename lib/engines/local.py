"""All ranks in this process, on the simulated machine, with real tensors."""

import time
from collections.abc import Callable
from typing import cast

import torch

from ..basics.errors import PuzzleError
from ..learner.dist import Dist
from ..learner.model import Model
from ..machine.cost import Shape
from ..machine.simulator import new_simulator
from ..record.operations import Values
from ..running.execution import name_of
from ..running.limits import collector_off
from ..running.run import Run, Settings, train_on
from ..running.workload import Workload
from .numbers import Numbers
from .pairs import Pairs
from .reference import compare
from .result import RealRun

SMALL = 256  # hidden size up to which one thread computes a layer faster than several: it halves the time of the tests


def run(fn: Callable[[Model], object], shape: Shape, work: Workload, settings: Settings) -> RealRun:
    """Run as ``lib.run`` does, with the same loop and simulator, and values with numbers in them."""
    if settings.pace or settings.meter or settings.kill:
        problem = "ranks in one process have no pace and no meter of their own, and none can be killed"
        raise PuzzleError(problem, expected='engine="processes"')
    values = cast(Values, Pairs(Numbers(work), at_once=True))
    dist = Dist.of(shape, new_simulator(shape, graded=True, strict=settings.strict, values=values))
    begun, threads = time.perf_counter(), torch.get_num_threads()
    torch.set_num_threads(1 if work.hidden <= SMALL else threads)
    try:
        models = train_on(fn, dist, work, settings)
        wall = time.perf_counter() - begun
        with collector_off(cycles=True):
            done = Run(name_of(fn), models, work.train)
        finals = {one.rank: {layer: of.value.made() for layer, of in one.finals.items()} for one in done.final_states}
        return RealRun(done, "local", wall, compare(work, finals))
    finally:
        torch.set_num_threads(threads)
