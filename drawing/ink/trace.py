"""The data of a picture: events and sizes, from a Run, from models, or from the profile of a real run."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import groupby
from numbers import Real
from operator import attrgetter
from typing import Any

from lib.basics.arguments import describe
from lib.basics.errors import Line, PuzzleError
from lib.basics.units import ELEMENTS, MS, SECONDS, TICKS, Elements, SizeUnit, Unit
from lib.course.specs import puzzles
from lib.learner.model import Model
from lib.machine.cost import Cost
from lib.machine.failure import Failure, Wait
from lib.machine.lives import Peak
from lib.real.prices import RealCost
from lib.real.traces.profile import Profile
from lib.record.codes import below_devices
from lib.record.events import MARKS, Event
from lib.record.figures.breakdown import TALK, idle_of, time_parts
from lib.record.figures.chain import Chain, chain_of
from lib.record.figures.score import makespan, part_of_time, peak_event, spans_boxes
from lib.record.figures.waiting import Waiting
from lib.record.table import stream_of
from lib.record.training import FORWARD, UPDATE
from lib.running.run import Run, Timed
from lib.schedules.program import Schedule

from . import theme
from .standing import standing_of

BEHIND = 0.55
"""Room behind a failed run, in parts of its time."""
SEVERAL = 4
"""Where every rank has so many micro-batches, colors show the order among those of a rank."""
FEW = 16
"""Up to so many ranks, each may have a row of its own in a picture, and its events are needed."""


def of_stream(events: Iterable[Event], *streams: str) -> list[Event]:
    """Return the events of these streams: each kind is looked up once, since there may be very many."""
    known = list(events)
    wanted = {kind for kind in {event.kind for event in known} if stream_of(kind) in streams}
    return [event for event in known if event.kind in wanted]


@dataclass(frozen=True)
class Trace:
    """Events by rank, and the data of the header. Times are in ``unit``, memory in ``size_unit``."""

    by_rank: Mapping[int, Sequence[Event]]
    """The events of each rank in the order in which they were issued: of those from which the others follow, where some
    ranks stand for others (``others``)."""
    layers: int
    batches: int
    node_size: int | None = None
    """Ranks in a node, or None if there are no nodes."""
    title: str = "schedule"
    time_target: float | None = None
    memory_target: Elements | float | None = None
    fault: str = ""
    """What is wrong with the run, in a line. Only without a fault its figures are compared with their targets."""
    failure: Failure | None = None
    """The error that has ended the run, and the ranks that wait."""
    models: Sequence[Model] = field(default=(), repr=False)
    """The models of the events, rank by rank, if known. Of a run of which few ranks were run, these."""
    writers: Callable[[], Sequence[Model]] | None = field(default=None, repr=False)
    """What gives the models of all events, if ``models`` are not these."""
    unit: Unit = TICKS
    size_unit: SizeUnit = ELEMENTS
    tick: float | None = None
    """The length of a tick in milliseconds, if known."""
    chain: Chain | None = None
    """The longest chain of operations that wait for each other, if it is shown."""
    hosts: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """The devices of each host, by its rank. Shares of time and the peak do not count hosts."""
    note: str = ""
    """A remark for the reader of the figures."""
    noted: Peak | None = None
    """What was in memory at the peak, thing by thing, if the run took notes of it."""
    profile: Profile | None = field(default=None, repr=False)
    """The profile of a real run that this shows, if it is one."""
    others: Mapping[int, Sequence[int]] = field(default_factory=dict, repr=False)
    """The ranks that do the same as one in ``by_rank``, and are not there: by this one."""
    of: int = 0
    """The number of ranks of the machine, if these may be some of them."""
    whole: Callable[[], Trace] | None = field(default=None, repr=False)
    """What gives the trace with the events of all ranks, if these are not all."""
    scored: bool = False
    """Whether the targets are a puzzle's: then figures in seconds and bytes count in two digits."""

    @cached_property
    def events(self) -> list[Event]:
        """All events, rank by rank."""
        return [event for events in self.by_rank.values() for event in events]

    @property
    def cost(self) -> Cost | None:
        """The prices of the run, if they are known."""
        return self.models[0].dist.cost if self.models else None

    @cached_property
    def operations(self) -> int:
        """The number of operations of all ranks."""
        known = sum(event.kind not in MARKS for event in self.events)
        return known * self.ranks // self.known if self.others else known

    @cached_property
    def device_events(self) -> list[Event]:
        """The events of devices, without those of hosts."""
        return [event for event in self.events if event.rank not in self.hosts] if self.hosts else self.events

    @property
    def ranks(self) -> int:
        """The number of ranks shown, without hosts."""
        return self.known + sum(map(len, self.others.values()))

    @property
    def known(self) -> int:
        """The number of ranks in ``by_rank``, without hosts: each of them stands for equally many."""
        return len(self.by_rank) - len(self.hosts)

    def same_ranks(self, rank: int) -> list[int]:
        """Return a rank of ``by_rank``, and those that do the same and are not there."""
        return [rank, *self.others.get(rank, ())]

    @cached_property
    def time(self) -> float:
        """The end of the last operation, in ``unit``."""
        return makespan(self.events) if self.profile is None else self.profile.time

    @property
    def scale(self) -> str:
        """The length of a tick as text, if times are measured and it is known."""
        return f"1 tick = {MS.lasting(self.tick)}" if self.unit is MS and self.tick else ""

    @cached_property
    def until(self) -> float:
        """The end of the time axis: a failed run has room behind it for ranks that wait for ever."""
        return self.time if self.failure is None else self.time * (1 + BEHIND) or 1.0

    @cached_property
    def waits(self) -> dict[int, Wait]:
        """The waits of ranks that never go on."""
        return {wait.rank: wait for wait in (self.failure.waits if self.failure else ())}

    @cached_property
    def waiting(self) -> Waiting:
        """The gaps of each rank, and for whom it waits."""
        if self.profile is not None:
            return self.profile.waiting
        return Waiting(self.by_rank, self.time, self.tier, self.same_ranks)

    @cached_property
    def apart(self) -> dict[int | None, object]:
        """The differences between ranks of a failed run that did the same: how each of them ended."""
        if self.failure is None:
            return {}
        apart: dict[int | None, object] = {rank: (wait.what, wait.since) for rank, wait in self.waits.items()}
        return apart | dict.fromkeys(self.failure.ended, "ended") | {self.failure.place.rank: "error"}

    @cached_property
    def peak(self) -> Event | None:
        """The first event at which the memory of a device was highest; None where nothing is known of memory."""
        return peak_event(event for event in self.device_events if event.held)

    @cached_property
    def lowest(self) -> Event | None:
        """The peak of the device whose peak is the lowest."""
        own = ([e for e in events if e.held] for rank, events in self.by_rank.items() if rank not in self.hosts)
        return min(filter(None, map(peak_event, own)), key=attrgetter("memory"), default=None)

    @property
    def peak_memory(self) -> Elements:
        """The peak memory of a device; zero where nothing is known of memory."""
        return self.peak.memory if self.peak else 0

    @cached_property
    def host_peak(self) -> Event | None:
        """The first event at which the memory of a host was highest, if there are hosts."""
        return peak_event(event for event in self.events if event.rank in self.hosts) if self.hosts else None

    @cached_property
    def parts(self) -> Mapping[str, Fraction]:
        """The time of all ranks without hosts, by parts: shares (0 to 1) that add up to 1."""
        return time_parts(self.device_events, self.known, self.time)

    @cached_property
    def idle(self) -> float:
        """The share (0 to 1) of all ranks' time in which they neither compute nor communicate."""
        return float(idle_of(self.parts))

    @cached_property
    def communication(self) -> float:
        """The share (0 to 1) of all ranks' time with communication, hidden or not."""
        return part_of_time(self.talk, self.time, self.known)

    @cached_property
    def talk(self) -> Sequence[Event]:
        """All communication of devices."""
        return of_stream(self.device_events, "collective", "message")

    @property
    def fast_enough(self) -> bool | None:
        """Whether the time meets its target; None without a target, and for a run with a fault."""
        return self._meets(self.time, self.time_target, self.unit.scored)

    @property
    def small_enough(self) -> bool | None:
        """Whether the peak memory meets its target; None as in ``fast_enough``."""
        return self._meets(self.peak.memory, self.memory_target, self.size_unit.scored) if self.peak else None

    def _meets(self, value: Any, target: Any, scored: Callable[[Any], Any]) -> bool | None:
        return None if target is None or self.fault else (scored(value) if self.scored else value) <= target

    @cached_property
    def hidden(self) -> float:
        """The share (0 to 1) of all ranks' time in which communication goes on beside compute."""
        return max(0.0, self.communication - float(self.parts.get(TALK, 0)))

    def traffic(self, between: bool) -> float:
        """Return the share (0 to 1) of all ranks' time with communication inside nodes, or ``between`` them."""
        found = (event for event in self.talk if spans_boxes(event, self.node_size, self.hosts) == between)
        return part_of_time(found, self.time, self.known)

    def tier(self, event: Event) -> object:
        """Return which tier of links a communication goes over: each tier works by itself."""
        several = self.cost is not None and len(self.cost.tiers) > 1
        return several and spans_boxes(event, self.node_size, self.hosts)

    @cached_property
    def within(self) -> dict[str, tuple[float, float]]:
        """The operations within which traffic goes on that others hide, with the parts of their time in which that is
        hidden, and in which it is exposed: where tensor parallelism is asynchronous (``cluster.cost(overlap=True)``).
        """
        cost = self.cost
        if not isinstance(cost, RealCost) or not cost.overlap:
            return {}
        kinds = {event.kind for event in of_stream(self.events, "compute")}
        return {kind: (cost.hidden_in(kind), cost.traffic_of(kind)) for kind in kinds if cost.hidden_in(kind)}

    @cached_property
    def lines(self) -> dict[int, Sequence[Line | None]]:
        """The line of the learner's code for each event of each rank, or None if it is not known."""
        models = self.writers() if self.writers else self.models
        known = {id(model): model.lines() for model in models}
        own = dict(zip(sorted(self.by_rank), [known[id(model)] for model in models], strict=False))
        return {rank: own.get(rank, [None] * len(events)) for rank, events in self.by_rank.items()}

    @cached_property
    def by_layer(self) -> bool:
        """Whether numbers in boxes are those of layers: where no rank works on several micro-batches in turn."""
        in_turn = any(len({batches for _, batches in own}) > 1 for own in self.works)
        return not in_turn and any(len({layer for layer, _ in own}) > 1 for own in self.works)

    @cached_property
    def works(self) -> Sequence[Set[tuple[int | None, frozenset[int]]]]:
        """The layers and micro-batches that each rank works on."""
        passes = set(filter(theme.is_pass, {event.kind for event in self.events}))
        return [{(one.layer, one.batches) for one in own if one.kind in passes} for own in self.by_rank.values()]

    @cached_property
    def order(self) -> tuple[Mapping[int, int], int]:
        """The place of each micro-batch in the order that colors show, and the number of places: the order of all, or
        where every rank has several of its own, that among those of a rank."""
        sets = {frozenset(batch for _, batches in own for batch in batches) for own in self.works} - {frozenset()}
        if min(map(len, sets), default=0) < SEVERAL:
            return {batch: batch for batch in range(self.batches)}, self.batches
        return {b: at for batches in sets for at, b in enumerate(sorted(batches))}, max(map(len, sets))

    @cached_property
    def turned(self) -> frozenset[int]:
        """The micro-batches that come the other way through a pipeline, where some enter it at each end."""
        forwards = sorted((event for event in self.events if event.kind == FORWARD.kind), key=attrgetter("start"))
        entry = {batch: event.rank for event in reversed(forwards) for batch in event.batches}
        met = {(event.rank, entry[batch]) for event in forwards for batch in event.batches}
        both = len(met) > len({rank for rank, _ in met})
        return frozenset(batch for batch, rank in entry.items() if both and rank != min(entry.values()))

    @cached_property
    def attempted(self) -> bool:
        """Whether any operation was run, or an error made."""
        return self.failure is not None or any(event.kind not in MARKS for event in self.events)


def trace_of(
    source: object,
    title: str | None = None,
    time_target: float | None = None,
    memory_target: Elements | float | None = None,
    *,
    few: bool = False,
) -> Trace:
    """Return the trace of a Run, a Profile, a Model, or several Models. Raise PuzzleError for anything else.

    Without targets, a run of a puzzle's function at the puzzle's size gets the puzzle's. ``few``: whether ranks that
    follow from others may be left out (``Trace.others``).
    """
    for name, target in (("time_target", time_target), ("memory_target", memory_target)):
        if target is not None and not (isinstance(target, Real) and 0 <= target < float("inf")):
            raise PuzzleError(f"{name} must be a number, or None", where="draw", got=describe(target))
    if isinstance(source, Trace):
        return source
    if isinstance(source, Profile):
        return _of_profile(source, source.name if title is None else str(title), time_target)
    models, others, whole, writers = _models(source), dict[int, Sequence[int]](), None, None
    if few and isinstance(source, Timed) and source.represented and source.ranks > FEW:
        others = {rank: own for rank, own in source.represented.items() if own}
        by_rank: dict[int, Sequence[Event]] = {rank: source.log_of(rank) for rank in source.represented}
        models = [models[rank] for rank in by_rank]
        whole = partial(trace_of, source, title, time_target, memory_target)
    elif isinstance(source, Run):
        own = defaultdict[int, list[Event]](list)
        for rank, events in groupby(source.events, key=attrgetter("rank")):
            own[rank].extend(events)
        ranks = sorted(own) if source.failure is None else range(source.ranks + source.hosts)
        by_rank = {rank: tuple(own[rank]) for rank in ranks}
        writers = lambda: source.writers  # noqa: E731 - of some runs they are known by another run only
    else:
        models = sorted(models, key=attrgetter("rank"))
        by_rank = {model.rank: model.log for model in models}
    dist = models[0].dist
    hosts = {rank: near for rank, near in dist._mesh.devices_of.items() if rank in by_rank}
    name = source.name if isinstance(source, Run) else "schedule"
    trace = Trace(
        {rank: by_rank[rank] for rank in below_devices(by_rank, hosts)},
        layers=max(model.LAYERS for model in models),
        batches=max(model.BATCHES for model in models),
        node_size=dist.node_size,
        title=name if title is None else str(title),
        time_target=time_target,
        memory_target=memory_target,
        models=models,
        unit=dist.cost.time_unit,
        size_unit=dist.cost.size_unit,
        hosts=hosts,
        others=others,
        of=dist.ranks,
        whole=whole,
        writers=writers,
    )
    return _of_run(trace, source) if isinstance(source, Run) else trace


def _of_profile(profile: Profile, title: str, time_target: float | None) -> Trace:
    """Return the trace of the profile of a real run. Of its memory nothing is known."""
    events = profile.events
    more = len(profile.problems) - 1
    return Trace(
        profile.by_rank,
        layers=max((event.layer + 1 for event in events if event.layer is not None), default=1),
        batches=max((max(event.batches) + 1 for event in events if event.batches), default=1),
        title=title,
        time_target=time_target,
        fault="" if more < 0 else profile.problems[0] + (f" (and {more} more like this)" if more else ""),
        failure=profile.failure,
        unit=profile.unit,
        size_unit=profile.size_unit,
        note="; ".join(profile.notes),
        profile=profile,
        tick=profile.tick,
    )


def _of_run(trace: Trace, run: Run) -> Trace:
    """Return a trace with the data of a Run besides its records, and the targets of its puzzle if it has none."""
    # Only a run that is meant to train the model can do so wrongly.
    trains = run.failed or run.name in puzzles() or any(event.kind == UPDATE.kind for event in run.typical[0])
    trains = trains or any(state.finals for state in run.final_states)
    note = "; ".join(filter(None, [run.note, run.overlap]))
    tick, fault = run.tick and 1e3 * run.tick, run.fault if trains else ""
    trace = replace(trace, unit=run.unit, tick=tick, note=note, failure=run.failure, fault=fault, noted=run.peak)
    targeted = trace.time_target is not None or trace.memory_target is not None
    puzzle, refused = (None, "") if targeted else standing_of(run)
    if puzzle is None:
        return trace
    time, memory = puzzle.target["time"], puzzle.target["memory"]
    return replace(trace, time_target=time, memory_target=memory, scored=True, fault=fault or refused)


def with_chain(trace: Trace, wanted: bool | None) -> Trace:
    """Return a trace with its longest chain, if it is ``wanted`` or, with None, if the run is right and too slow.

    Raise PuzzleError if a wanted chain cannot be computed: times were measured, or ranks are missing.
    """
    slow = trace.fast_enough is False and not trace.failure
    if wanted is False or (wanted is None and not slow):
        return trace
    if trace.profile is not None:
        return replace(trace, chain=trace.profile.chain)
    try:
        if trace.unit is MS:
            problem, expected = "times that were measured do not follow from each other", "a run in ticks"
            raise PuzzleError(problem, where="draw", expected=f"{expected}: draw(done, chain=True)", line="")
        trace = trace.whole() if trace.whole else trace  # a chain may lead over any rank
        return replace(trace, chain=chain_of(trace.events, trace.tier))
    except PuzzleError:
        if wanted is None:
            return trace
        raise


def texts_for(runs: Sequence[object], texts: Iterable[str] | None, what: str, where: str) -> Sequence[str | None]:
    """Return a text for each run, None without texts. Raise PuzzleError if these are not as many."""
    found: list[str | None] = [None] * len(runs) if texts is None else [*texts]
    if isinstance(texts, str) or len(found) != len(runs):
        raise PuzzleError(f"a {what} for each run is needed", where=where, got=describe(texts))
    return found


def in_one_unit(traces: Sequence[Trace]) -> Sequence[Trace]:
    """Return traces in one unit: if one of them is in milliseconds, all are. Simulated ones in ticks take the tick of
    the first measured one. Raise PuzzleError if the length of a tick is not known, or sizes are of different kinds."""
    if len({trace.unit for trace in traces}) == 1:
        return traces
    names = {trace.size_unit.name for trace in traces if trace.profile is None}
    if len(names) > 1:
        problem = f"sizes of one are in {' and of another in '.join(sorted(names))}"
        raise PuzzleError(problem, where="compare", expected="runs with prices of one kind", line="")
    traces = [_in_ms(trace, 1e3) if trace.unit is SECONDS else trace for trace in traces]
    known = [trace.tick for trace in traces if trace.tick]
    if not known and any(trace.unit is TICKS for trace in traces):
        expected = "run(..., pace=0.03): a tick lasts 30 ms"
        if any(trace.profile is not None for trace in traces):
            expected = "a run at real prices, cost=cluster.cost(model); or labels in the profile: forward layer 3 mb 1"
        problem = "one is in ticks, one in ms, and nothing says how long a tick is"
        raise PuzzleError(problem, where="compare", expected=expected, line="")
    return [_in_ms(trace, trace.tick or known[0]) if trace.unit is TICKS else trace for trace in traces]


def _in_ms(trace: Trace, tick: float) -> Trace:
    """Return a trace in milliseconds. ``tick``: those of a tick, or of a second where it is in seconds."""

    def ms(ticks: float) -> float:
        return round(tick * ticks, 3 if trace.unit is TICKS else 6)

    by_rank = {
        rank: [event._replace(issued=ms(event.issued), start=ms(event.start), end=ms(event.end)) for event in events]
        for rank, events in trace.by_rank.items()
    }
    target = trace.time_target and ms(trace.time_target)
    return replace(trace, by_rank=by_rank, unit=MS, tick=tick if trace.unit is TICKS else None, time_target=target)


def _models(source: object) -> list[Model]:
    """Return the models of a source of ``draw``. Raise PuzzleError if there are none, or some of several machines."""
    models: list[Any] = [source]
    if isinstance(source, Run):
        models = [*(source.writers if isinstance(source, Timed) else source.simulated)]
    elif isinstance(source, Iterable) and not inspect.isawaitable(source):
        models = [*source]
    if not all(isinstance(model, Model) for model in models) or len({id(model.dist) for model in models}) != 1:
        expected, got = _meant(source), describe(source)
        raise PuzzleError("draw takes a Run, a profile, or the models of all ranks", expected=expected, got=got)
    return models


def _meant(source: object) -> str:
    """Return what is drawn of something that cannot be drawn itself."""
    if inspect.iscoroutine(source):
        source.close()  # or Python warns that it was never awaited
    if inspect.isawaitable(source):
        return "did you forget `await`?"
    if isinstance(source, Iterable):
        return "a function that ends in `return model`, and the list of what the ranks return"
    if isinstance(source, Schedule):
        return "draw(run(plan, **plan.sizes)), where plan is this schedule"
    return f"draw(run({getattr(source, '__name__', 'fsdp')}, ranks=4, layers=6, batches=4))"
