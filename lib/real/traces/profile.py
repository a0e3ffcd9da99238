"""A profile: what several ranks of a real run did in one step, by one clock, as records that are drawn like a run's."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import fsum

from ...basics.columns import in_columns
from ...basics.errors import NOWHERE, PuzzleError, numbered
from ...basics.units import BYTES, MS
from ...machine.failure import Failure, Wait
from ...record.events import Event
from ...record.figures.breakdown import in_words, time_parts
from ...record.figures.chain import Chain
from ...record.figures.measured import MeasuredWaiting, measured_chain
from ...record.figures.score import makespan, part_of_time
from ...record.table import row_of
from ...record.training import FORWARD
from .calls import Call, Rank
from .clocks import clocks_of
from .meetings import Meeting, Whole, meetings_of

NANO = 6
"""Decimals of a millisecond that are kept."""
FEW = 12
"""Lines of a list in the text of a profile at most."""


class Profile:
    """One step of a real run, read from the files of its ranks. It shows itself as a picture in a notebook.

    ``events``: the records, rank by rank, times in ms from the beginning of the step; ``by_rank``: the same by rank;
    ``time``: the ms from one begin of a step to the next, or to the end of the last record; ``step``: the number of the
    step, if the files have any; ``sources``: the names of the files; ``problems``: calls that do not fit together, such
    as a collective to which a rank did not come; ``notes``: what to know when reading its figures; ``failure``: where
    it hangs, in the dump of a flight recorder; ``parts``: where the time goes; ``gaps(rank)`` and ``waits``: when a
    rank waits, and for whom; ``chain``: the longest chain; ``tick``: the ms of a forward, if labels say what is one.
    """

    unit, size_unit = MS, BYTES

    def __init__(self, ranks: Sequence[Rank], name: str, step: int | None, whole: Whole) -> None:
        """``whole``: what the files have the whole of (see ``Whole``)."""
        ranks = sorted(ranks, key=lambda rank: rank.rank)
        self.name, self.step, self.sources = name, step, [rank.source for rank in ranks]
        self.world = max((rank.world or 0 for rank in ranks), default=0) or len(ranks)
        self.backend = next((rank.backend for rank in ranks if rank.backend), "")
        self.device = next((rank.device for rank in ranks if rank.device), "")
        met = meetings_of(ranks, whole)
        least = min(rank.base for rank in ranks)
        bases = {rank.rank: (rank.base - least) / 1e3 for rank in ranks}
        clocks = clocks_of(met.found, bases)
        self.problems = [*(problem for one in ranks for problem in one.problems), *met.problems]
        self.notes = [*clocks.notes(), *met.notes, *(note for one in ranks for note in one.notes)]
        unknown = sum((one.unknown for one in ranks), Counter[str]())
        if unknown:
            kinds = ", ".join(f"{count:,} {kind[:40]!r}" for kind, count in unknown.most_common(FEW))
            self.notes.append(f"events of kinds that are not known here are left out: {kinds}")
        if self.world > len(ranks):
            self.notes.append(f"{len(ranks)} of {self.world} ranks")
        shifts = {rank: clocks.shifts[rank] + base for rank, base in bases.items()}
        if not any([*rank.work, *rank.calls] for rank in ranks):
            problem = "there is neither work nor a call of the network in these files"
            expected = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) around a step of training"
            if not whole.begins and whole.ends:  # of a flight recorder
                expected = "TORCH_FR_BUFFER_SIZE=2000 before training, on more than one GPU: one alone calls nobody"
            raise PuzzleError(problem, where="trace", expected=expected, line="")
        self._shifts = shifts
        self._zero, self._until = self._span(ranks)
        self.by_rank = {rank.rank: self._events(rank, met.found) for rank in ranks}
        self.time = makespan(self.events) if self._until == float("inf") else self._ms(ranks[0].rank, float("inf"))
        self.failure = self._failure(met.found)

    # -- records ----------------------------------------------------------------------------

    def _span(self, ranks: Sequence[Rank]) -> tuple[float, float]:
        """Return when the step begins on the first rank, and when the next one does: or, where there is none, or some
        have not begun by then, when the last rank is done."""

        def of(name: str) -> list[float]:
            return [self._shifts[one.rank] + getattr(one, name) for one in ranks if getattr(one, name) is not None]

        if not (begins := of("begins")):
            starts = [self._shifts[rank.rank] + one.start for rank in ranks for one in rank.work]
            starts += [self._shifts[rank.rank] + one.start for rank in ranks for one in rank.calls]
            return min(starts), float("inf")
        until = min(of("next"), default=max(of("ends")))
        return min(begins), until if until > max(begins) else max(of("ends"))

    def _ms(self, rank: int, moment: float) -> float:
        """Return a moment of a rank, in ms from the beginning of the step: of what is outside, the nearer end."""
        clipped = min(max(moment + self._shifts[rank], self._zero), self._until)
        ms: float = round((clipped - self._zero) / 1e3, NANO)
        return ms

    def _events(self, rank: Rank, meetings: Sequence[Meeting]) -> tuple[Event, ...]:
        own = rank.rank
        events = []
        for kind, start, end, layer, batches in rank.work:
            begin, over = self._ms(own, start), self._ms(own, end)
            if over > begin:
                events.append(Event(own, kind, layer, batches, begin, begin, over, ()))
        found = {id(one.members[own]): (at, one) for at, one in enumerate(meetings) if own in one.members}
        for at, call in enumerate([*rank.calls, *rank.others]):
            if call.end is not None and self._ms(own, call.end) > self._ms(own, call.start):
                events.append(self._record(own, call, *found.get(id(call), (-1 - at, None))))
        return tuple(sorted(events, key=lambda event: (event.issued, event.end)))

    def _record(self, own: int, call: Call, place: int, meeting: Meeting | None) -> Event:
        """Return the record of a call. It begins when the last rank has come to it; NCCL's and gloo's sends wait for
        their receivers, too."""
        issued, end = self._ms(own, call.start), self._ms(own, call.end or 0.0)
        group = meeting.group if meeting is not None else call.group or (own,)
        came = [self._ms(rank, one.start) for rank, one in meeting.members.items()] if meeting is not None else [issued]
        start = max(issued, min(max(came), end))
        op = ("call", place) if place >= 0 else ("call", own, place)
        return Event(own, call.kind, None, frozenset(), issued, start, end, (), op, group, None, call.size)

    def _failure(self, meetings: Sequence[Meeting]) -> Failure | None:
        """Return where the run hangs: the calls that were not over when files were written, and who did not come."""
        waits: dict[int, Wait] = {}
        first: Meeting | None = None
        stuck = [one for one in meetings if any(call.end is None for call in one.members.values())]
        for one in sorted(stuck, key=lambda one: min(self._ms(r, c.start) for r, c in one.members.items())):
            for rank, call in one.members.items():
                if call.end is None and rank not in waits:
                    missing = one.missing if one.message or one.missing else ()
                    waits[rank] = Wait(rank, call.kind, None, self._ms(rank, call.start), missing)
                    first = first or one
        if first is None:
            return None
        tick = max(wait.since for wait in waits.values())
        still = numbered("rank", [rank for rank, call in first.members.items() if not call.end])
        hangs = f"{first.name} was not over on {still}"
        if first.missing:
            hangs = f"{numbered('rank', first.missing)} did not come to {first.name}"
        return Failure(hangs, NOWHERE, max(tick, self.time), tuple(waits[rank] for rank in sorted(waits)), unit=MS)

    # -- figures ----------------------------------------------------------------------------

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """All records, rank by rank."""
        return tuple(event for events in self.by_rank.values() for event in events)

    @property
    def ranks(self) -> int:
        """The number of ranks whose files were read."""
        return len(self.by_rank)

    @cached_property
    def parts(self) -> Mapping[str, float]:
        """The time of all ranks by parts: shares (0 to 1) that add up to 1 (see ``lib.record.figures.breakdown``)."""
        return {part: float(share) for part, share in time_parts(self.events, self.ranks, self.time).items()}

    @cached_property
    def waiting(self) -> MeasuredWaiting:
        """The gaps of each rank, and for whom it waits."""
        return MeasuredWaiting(self.by_rank, self.time)

    @cached_property
    def chain(self) -> Chain:
        """The longest chain of operations that wait for each other, from the end of the step back to its beginning."""
        return measured_chain(self.waiting)

    @cached_property
    def tick(self) -> float | None:
        """The ms that a forward of one micro-batch through one layer takes on average, or through one stage, where
        labels name both: beside it, a run in ticks has its prices. None where they do not."""
        forwards = [event for event in self.events if event.kind == FORWARD.kind and event.batches]
        named = [event.length / len(event.batches) for event in forwards if event.layer is not None]
        return round(fsum(named) / len(named), NANO) if named else None

    def gaps(self, rank: int) -> list[tuple[float, float, tuple[int, ...]]]:
        """Return when a rank does nothing, in ms: start, end, and the ranks that it waits for, if any. Raises
        PuzzleError for a rank that is not in the files."""
        if rank not in self.by_rank:
            expected = f"one of {', '.join(map(str, self.by_rank))}"
            raise PuzzleError(f"there is no rank {rank}", where="gaps", expected=expected, line="")
        return [(gap.start, gap.end, gap.ranks) for gap in self.waiting.gaps(rank)]

    @cached_property
    def waits(self) -> dict[tuple[int, int], float]:
        """For how many ms a rank waits for another one, by both: the longest waits first. Where it waits for several
        that come last at the same moment, the time counts for the first of them."""
        found = defaultdict[tuple[int, int], float](float)
        for rank in self.by_rank:
            for gap in self.waiting.gaps(rank):
                if gap.ranks:
                    found[rank, gap.ranks[0]] += gap.length
        return {pair: round(found[pair], NANO) for pair in sorted(found, key=lambda pair: (-found[pair], pair))}

    @property
    def about(self) -> str:
        """What was profiled, in a few words: ``4 ranks · nccl · NVIDIA H100 · step 12``."""
        step = "" if self.step is None else f"step {self.step}"
        ranks = f"{self.ranks} rank{'s' * (self.ranks > 1)}"
        return " · ".join(filter(None, [ranks, self.backend, self.device, step]))

    def __str__(self) -> str:
        """Return the profile as text: its figures, who waits for whom, the longest chain, and what is wrong."""
        lines = [f"{self.name}: {self.about}; {MS.lasting(self.time)}"]
        lines += [f"wrong: {problem}" for problem in _few(self.problems)]
        if self.failure is not None:
            lines += [f"it hangs: {self.failure.says}", *(f"  {text}" for _, text in self.failure.sentences())]
        parts = time_parts(self.events, self.ranks, self.time)
        lines += [f"where the time of all ranks goes: {in_words(parts)}"] if parts else []
        lines.append(f"the longest chain: {self.chain.describe(MS)}")
        lines += [f"note: {note}" for note in self.notes]
        rows = [["rank", "computes", "exposed", "hidden", "waits"]]
        rows += [[str(rank), *map(MS.brief, self._of_rank(rank))] for rank in self.by_rank]
        lines += in_columns(rows, figures=range(1, 5))
        waits = [f"rank {rank} waits {MS.lasting(long)} for rank {other}" for (rank, other), long in self.waits.items()]
        return "\n".join([*lines, *_few(waits)])

    __repr__ = __str__

    def _of_rank(self, rank: int) -> tuple[float, float, float, float]:
        """Return for how many ms a rank computes, only communicates, communicates beside computing, and waits."""
        parts = time_parts(self.by_rank[rank], 1, self.time)
        works = [float(share) for kind, share in parts.items() if row_of(kind) is not None]
        talks = [event for event in self.by_rank[rank] if event.stream in ("collective", "message")]
        covered = part_of_time(talks, 1.0, 1)
        computes, exposed = self.time * sum(works), self.time * float(parts.get("communication", 0))
        hidden, waits = max(0.0, covered - exposed), max(0.0, self.time - computes - exposed)
        return computes, exposed, round(hidden, NANO), round(waits, NANO)


def _few(lines: Sequence[str]) -> list[str]:
    return [*lines[:FEW], *([f"and {len(lines) - FEW} more"] if len(lines) > FEW else [])]
