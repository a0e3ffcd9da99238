"""The result of a run with real tensors: that of a simulated run, and how far its numbers are off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from functools import cached_property
from typing import Any

from ..learner.model import Model
from ..machine.interface import FinalState, Piece
from ..machine.mesh import Mesh
from ..machine.outcome import Outcome
from ..record.events import MARKS, Event
from ..record.score import makespan
from ..record.table import OPERATIONS
from ..running.run import Run
from ..running.workload import Workload
from .agreement import Agreement
from .distributed.host import Host


class RealRun(Run):
    """What happened in a run on real tensors.

    ``events``, ``time``, ``memory`` and ``final_states`` are those of the simulated machine, values of tensors in
    ``final_states`` being their fingerprints. ``agreement``: how far the trained weights are from the reference;
    ``wall``: seconds that the ranks' functions took; ``engine``: its name; ``work``: what was trained.
    """

    def __init__(
        self,
        name: str,
        mesh: Mesh,
        final_states: Sequence[FinalState],
        logs: Iterable[Iterable[Event]],
        *,
        engine: str,
        work: Workload,
        wall: float,
        models: Sequence[Model] = (),
        agreement: Agreement,
    ) -> None:
        """``final_states`` may hold values of both kinds, fingerprints and numbers."""
        Outcome.__init__(self, name, mesh, [_only_fingerprints(state) for state in final_states], logs)
        self.models = list(models)
        self.engine, self.work, self.wall = engine, work, wall
        self.agreement = agreement

    @property
    def dtype(self) -> str:
        """The precision of the numbers."""
        return self.work.dtype

    def facts(self) -> list[str]:
        """Return lines of what there is to say besides time and memory."""
        return [f"{self.engine}, {self.work.layer}, {self.dtype}, {self.wall:.2f} s: {self.agreement}"]

    def verify(self) -> str:
        """Check fingerprints and numbers. Return what to say if both are right, and raise PuzzleError otherwise."""
        super().verify()
        self.agreement.check()
        return (
            f"Correct! With real tensors ({self.engine}, {self.work.layer}, {self.dtype}) off by "
            f"{self.agreement.relative:.1e} of the largest update"
        )


def _only_fingerprints(state: FinalState) -> FinalState:
    """Return the state with only fingerprints for values."""
    kept = tuple(map(_fingerprint_of, state.kept))
    return state._replace(kept=kept, finals={layer: _fingerprint_of(piece) for layer, piece in state.finals.items()})


def _fingerprint_of(piece: Piece) -> Piece:
    value: Any = piece.value
    return piece._replace(value=getattr(value, "mark", value))


class ProcessRun(RealRun):
    """A run whose ranks were processes.

    Time and memory are the simulated ones, since the books were the same. ``measured``: the run by the clock on the
    wall. ``stored``: the count of records of the log at which as many numbers were really stored as the labels say, and
    the count of all. ``live``: with a meter, for each rank the most numbers that were alive at once, stored or not.
    ``peak_stored``: for each rank the most that were stored. ``backend`` and ``device``: torch's.
    """

    def __init__(
        self,
        host: Host,
        engine: str,
        work: Workload,
        wall: float,
        agreement: Agreement,
        backend: str,
        device: str,
        pace: float,
    ) -> None:
        outcome = host.clerk.outcome(host.name)
        by_rank: dict[int, list[Event]] = {rank: [] for rank in range(outcome.ranks)}
        for event in outcome.events:
            by_rank[event.rank].append(event)
        super().__init__(
            host.name, host.books.mesh, outcome.final_states, by_rank.values(),
            engine=engine, work=work, wall=wall, models=host.models, agreement=agreement,
        )  # fmt: skip
        self.backend, self.device, self.pace = backend, device, pace
        reports = [(host.ranks[rank].report, host.ranks[rank].stored) for rank in by_rank]
        pairs = [pair for report, known in reports for pair in zip(report["stored"], known, strict=True)]
        self.stored = sum(real == known for real, known in pairs), len(pairs)
        self.live = {rank: host.ranks[rank].report["live"] for rank in by_rank if host.ranks[rank].report["live"]}
        self.peak_stored = {rank: max(host.ranks[rank].report["stored"], default=0) for rank in by_rank}
        self._took = {rank: host.ranks[rank].report["took"] for rank in by_rank}
        self._by_rank = by_rank

    def facts(self) -> list[str]:
        """Return what there is to say besides time and memory, a line each."""
        equal, count = self.stored
        return [
            *super().facts(),
            f"{self.backend} on {self.device}; stored as simulated at {equal} of {count} records; "
            f"measured: {self.measured.time:.1f} ticks of {self.tick * 1e3:.3g} ms",
            *[
                f"rank {rank}: at most {live:,} numbers lived, of {self.peak_stored[rank]:,} stored: the rest is what "
                "operations need while they work"
                for rank, live in self.live.items()
            ],
        ]

    @cached_property
    def tick(self) -> float:
        """Seconds of a tick in ``measured``: the pace, or what a micro-batch took on average to go through a layer."""
        if self.pace:
            return self.pace
        paces = {row.kind for row in OPERATIONS.values() if row.trains and not row.backward}
        spans = [
            (took[1] - took[0]) / len(event.batches)
            for rank, events in self._by_rank.items()
            for event, took in zip(events, self._took[rank], strict=False)
            if event.kind in paces and took
        ]
        return sum(spans) / len(spans) if spans else 1.0

    @cached_property
    def measured(self) -> Run:
        """The run with its events at the times at which they really happened, in ticks of ``tick`` seconds.

        Tick 0 is where the first operation begins: making the first numbers is not part of training.
        """
        shown = copy(self)
        operations = [
            took[0]
            for rank, events in self._by_rank.items()
            for event, took in zip(events, self._took[rank], strict=False)
            if took and event.kind not in MARKS
        ]
        zero = min(operations, default=0.0)

        def tick(second: float) -> float:
            return round(max(0.0, second - zero) / self.tick, 3)

        shown.name = f"{self.name}, measured"
        shown.events = tuple(
            event._replace(issued=tick(took[0]), start=tick(took[0]), end=tick(took[1]))
            for rank, events in self._by_rank.items()
            for event, took in zip(events, self._took[rank], strict=False)
            if took
        )
        shown.time = makespan(shown.events)
        return shown
