"""What a picture is drawn from: events and sizes, from a Run or from models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lib.errors import PuzzleError
from lib.events import MARKS, Event
from lib.model import Model
from lib.run import Run
from lib.score import idle_share, makespan, peak_event, share
from lib.events import COLLECTIVE, POINT_TO_POINT


@dataclass(frozen=True)
class Trace:
    """Events rank by rank, and what the header says. Times in ticks, memory in elements."""

    by_rank: list[list[Event]]
    layers: int
    batches: int
    node_size: int | None
    title: str
    time_target: float | None = None
    memory_target: float | None = None

    @cached_property
    def events(self) -> list[Event]:
        """All events."""
        return [event for events in self.by_rank for event in events]

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.by_rank)

    @cached_property
    def time(self) -> float:
        """The end of the last operation."""
        return makespan(self.events)

    @cached_property
    def peak(self) -> Event | None:
        """The event at which memory was highest."""
        return peak_event(self.events)

    @cached_property
    def idle(self) -> float:
        """Share of all ranks' time without work."""
        return idle_share(self.events, self.ranks)

    @cached_property
    def communication(self) -> float:
        """Share of all ranks' time with communication."""
        return share(self.events, self.ranks, (*COLLECTIVE, *POINT_TO_POINT))

    @property
    def attempted(self) -> bool:
        """Whether anything was done."""
        return any(event.kind not in MARKS for event in self.events)

    @cached_property
    def summary(self) -> str:
        """The picture in words."""
        if not self.attempted:
            return f"{self.title}: not attempted yet"
        peak = self.peak
        assert peak is not None
        return (
            f"{self.title}: {self.ranks} rank{'s' * (self.ranks > 1)}, {self.layers} layers, {self.batches} "
            f"micro-batches; time {self.time:.10g} ticks; peak memory {float(peak.memory):,.10g} elements on rank "
            f"{peak.rank} at tick {peak.issued:.10g}; idle {self.idle:.0%}; communication {self.communication:.0%}"
        )


def trace_of(
    thing: object, title: str | None = None, time_target: float | None = None, memory_target: float | None = None
) -> Trace:
    """The trace of a Run, a Model, or several Models. Raises PuzzleError for anything else."""
    models: list[Any] = []
    if isinstance(thing, Run):
        models, title = thing.models, title or thing.name
    elif isinstance(thing, Model):
        models = [thing]
    elif isinstance(thing, Iterable) and not isinstance(thing, (str, bytes)):
        models = list(thing)
    if not models or not all(isinstance(model, Model) for model in models):
        raise PuzzleError(
            "draw takes a Run, or the models of all ranks",
            got=repr(thing)[:120],
            cure="draw(run(fsdp, ranks=4, layers=6, batches=4)); a function that returns its model gives models",
        )
    models.sort(key=lambda model: model.rank)
    by_rank = (
        _split(thing.events, [model.rank for model in models])
        if isinstance(thing, Run)
        else [list(model.log) for model in models]
    )
    first = models[0]
    size = (first.LAYERS, first.BATCHES, first.dist.node_size)
    return Trace(by_rank, *size, title or "schedule", time_target, memory_target)


def _split(events: Iterable[Event], ranks: list[int]) -> list[list[Event]]:
    by_rank: dict[int, list[Event]] = {rank: [] for rank in ranks}
    for event in events:
        by_rank[event.rank].append(event)
    return list(by_rank.values())
