"""All ranks in this process, on the simulated machine, with real tensors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..basics.errors import PuzzleError
from ..learner.dist import Dist
from ..learner.model import Model
from ..machine.books import Books
from ..machine.cost import Cost
from ..running.execution import name_of
from ..running.limits import collector_off
from ..running.run import train
from ..running.workload import Workload
from .numbers import Numbers
from .reference import compare
from .result import RealRun

SMALL = 256
"""Numbers a token up to which several threads take longer for a layer than one: half the time of the tests."""


def run(
    fn: Callable[[Model], Any],
    ranks: int,
    layers: int,
    batches: int,
    mesh: Mapping[str, int] | None,
    node_size: int | None,
    cost: Cost | None,
    timeout: float | None,
    *,
    layer: str,
    dtype: str,
    hidden: int,
    length: int,
    seed: int,
    pace: float,
    device: str,
    meter: bool,
    _order: Sequence[int] | None = None,
    _strict: bool = True,
) -> RealRun:
    """As ``lib.run``, whose arguments these are: the same loop and books, and values with numbers in them."""
    if pace or meter:
        raise PuzzleError("ranks in one process have no pace and no meter of their own", cure='engine="processes"')
    work = Workload(layers, batches, layer, dtype, hidden, length, seed)
    dist = Dist(ranks, mesh, node_size, cost, _graded=True, _strict=_strict)
    dist._books = Books(dist._mesh, dist.cost, graded=True, strict=_strict, values=Numbers(work))
    begun, threads = time.perf_counter(), torch.get_num_threads()
    if hidden <= SMALL:
        torch.set_num_threads(1)
    try:
        models = train(fn, dist, layers, batches, timeout, _order)
    finally:
        torch.set_num_threads(threads)
    wall = time.perf_counter() - begun
    with collector_off():
        closings = [model._closing() for model in models]
        logs = [model._books.settled(model._account) for model in models]
    finals = {closing.rank: {layer: piece.value for layer, piece in closing.finals.items()} for closing in closings}
    agreement = compare(work, finals)
    return RealRun(
        name_of(fn),
        dist._mesh,
        closings,
        logs,
        engine="local",
        work=work,
        wall=wall,
        models=models,
        agreement=agreement,
    )
