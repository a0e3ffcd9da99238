"""The result of a run with real tensors: that of a simulated run, and how far its numbers are off."""

from collections.abc import Sequence
from copy import copy
from functools import cached_property

from ..basics.units import MS
from ..machine.outcome import Outcome
from ..record.events import MARKS
from ..record.figures.score import makespan
from ..record.table import OPERATIONS, RECEIVE
from ..running.run import Run
from .agreement import Agreement
from .distributed.recording import only_fingerprints
from .distributed.supervisor import RankProcess


class RealRun(Run):
    """What happened in a run on real tensors.

    ``events``, ``time``, ``memory`` and ``final_states`` are those of the simulated machine, values of tensors in
    ``final_states`` being their fingerprints. ``agreement``: how far the trained weights are from the reference;
    ``wall``: seconds that the ranks' functions took; ``engine``: its name; ``work``: what was trained, in ``dtype``.
    """

    def __init__(self, outcome: Outcome, engine: str, wall: float, agreement: Agreement) -> None:
        """Add to an outcome, whose final values may be numbers with their fingerprints, what only real tensors have."""
        vars(self).update(vars(outcome))
        self.final_states = tuple(map(only_fingerprints, outcome.final_states))
        self.engine, self.wall, self.agreement = engine, wall, agreement
        self.work, self.dtype = agreement.work, agreement.work.dtype

    def facts(self) -> list[str]:
        """Return lines of what there is to say besides time and memory."""
        return [f"{self.engine}, {self.work.layer}, {self.dtype}, {self.wall:.2f} s: {self.agreement}"]

    def verify(self) -> str:
        """Check fingerprints and numbers. Return what to say if both are right, and raise PuzzleError otherwise."""
        super().verify()
        self.agreement.check()
        off = f"off by {self.agreement.relative:.1e} of the largest update"
        return f"Correct! With real tensors ({self.engine}, {self.work.layer}, {self.dtype}) {off}"


class ProcessRun(RealRun):
    """A run whose ranks were processes.

    Time and memory are the simulated ones. ``measured``: the run by the clock on the wall, in milliseconds; ``tick``:
    seconds of a tick in it, the pace or what a micro-batch took on average to go through a layer. ``stored``: at how
    many records of the log as many numbers were really stored as the labels say, and the count of all. ``live``: with a
    meter, for each rank the most numbers that were alive at once, stored or not. ``peak_stored``: for each rank the
    most that were stored. ``backend`` and ``device``: torch's.
    """

    def __init__(self, done: Run, ranks: Sequence[RankProcess], engine: str, wall: float, pace: float) -> None:
        """``ranks`` have reported what each has measured."""
        reports = [rank.report for rank in ranks]
        super().__init__(done, engine, wall, reports[0]["agreement"])
        self.backend, self.device, self.pace = ranks[0].hello["backend"], ranks[0].hello["device"], pace
        counted = [both for report in reports for both in report["stored"]]
        self.stored = sum(real == known for real, known in counted), len(counted)
        self.live = {rank: report["live"] for rank, report in enumerate(reports) if report["live"]}
        self.peak_stored = dict(enumerate(max((real for real, _ in one["stored"]), default=0) for one in reports))
        took = [iter(report["took"]) for report in reports]
        seen = [(event, *next(took[event.rank])) for event in self.events]
        together: dict[object, float] = {}  # when the last of a group, or the sender of a message, was there
        for event, start, _ in seen:
            if event.op is not None and event.kind != RECEIVE.kind:
                together[event.op] = max(start, together.get(event.op, start))
        self._timed = [(event, max(start, min(together.get(event.op, start), end)), end) for event, start, end in seen]
        """Events with the seconds at which they began and ended. What waits for others has not begun."""
        kinds = {row.kind for row in OPERATIONS.values() if row.trains and not row.backward}
        forwards = [(end - start) / len(event.batches) for event, start, end in self._timed if event.kind in kinds]
        self.tick = pace or (sum(forwards) / len(forwards) if forwards else None)

    def facts(self) -> list[str]:
        """Return what there is to say besides time and memory, a line each."""
        (equal, count), measured = self.stored, MS.lasting(self.measured.time)
        where = f", where a tick took {MS.lasting(self.tick * 1e3)}" if self.tick else ""
        stored = f"{self.backend} on {self.device}; stored as simulated at {equal} of {count} records"
        lived = "rank {}: at most {:,} numbers lived, of {:,} stored: the rest is what operations need while they work"
        lives = [lived.format(rank, live, self.peak_stored[rank]) for rank, live in self.live.items()]
        return [*super().facts(), f"{stored}; measured: {measured}{where}", *lives]

    @cached_property
    def measured(self) -> Run:
        """The run with its events at the times at which they really happened, in milliseconds.

        They count from where the first operation begins: making the first numbers is not part of training.
        """
        zero = min((start for event, start, _ in self._timed if event.kind not in MARKS), default=0.0)

        def ms(second: float) -> float:
            return round(1e3 * max(0.0, second - zero), 3)

        shown = copy(self)
        shown.name, shown.unit = f"{self.name}, measured", MS
        timed = [(one, ms(start), ms(end)) for one, start, end in self._timed]
        shown.events = tuple(one._replace(issued=start, start=start, end=end) for one, start, end in timed)
        shown.time = makespan(shown.events)
        return shown
