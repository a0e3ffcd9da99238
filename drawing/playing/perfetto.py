"""A schedule for https://ui.perfetto.dev: the Trace Event Format, as JSON.

The format: "Trace Event Format", Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. What
it leaves open is written as Perfetto reads it: the id of a flow is a number, since Perfetto reads texts as hexadecimal,
and a series of a counter keeps its value until the next one.

To keep files small, nothing is written twice: micro-batches in a slice's name are not in its details, "issued" is there
only if it is not the start, and of memory only the kinds that have changed.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from lib.basics.errors import show_layers
from lib.basics.units import Elements
from lib.record.events import MARKS, Event
from lib.record.kinds import KINDS, MEMORY_KINDS
from lib.record.labels import ADAPTER
from lib.record.table import OPERATIONS, RECEIVE, SEND, in_stream
from lib.record.training import OVERLAPPED_WORD

from ..ink import theme
from ..ink.figure import write
from ..ink.texts import full_ranks, ranges
from ..ink.trace import Trace, trace_of
from ..schedule.operations import slices_of

TICK = 1000.0
"""Microseconds for a tick, which Perfetto shows as a millisecond, or for a measured millisecond."""
TALK = frozenset(in_stream("collective", "message"))
ENDS = {SEND.kind: '"ph":"s"', RECEIVE.kind: '"ph":"f","bp":"e"'}
"""The two ends of a flow."""
MOMENTS = frozenset(MARKS)
FEW = 3
"""Groups with fewer ranks are compared by their ranks, others by their identity."""
INSTANT = ',"ph":"i","s":"t"}'  # what takes no time

Json = dict[str, Any]
encode = json.JSONEncoder(separators=(",", ":")).encode


class Export(str):
    """The text of a file that can be written to one."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: compressed to one that ends in .gz ("fsdp.json.gz"), plain to one that ends in .json.
        Perfetto opens both. Take the compressed one unless a program of yours is to read it: of 100,000 operations it
        has 2 MB instead of 30. Raises PuzzleError for another ending, and where the file cannot be written."""
        write(path, {".json": lambda: self, ".gz": lambda: gzip.compress(self.encode(), mtime=0)})


def perfetto(source: object) -> Export:
    """The schedule of a Run, of a profile, or of models, as the text of a JSON file in the Trace Event Format, with a
    method ``save("fsdp.json.gz")``.

    Each rank is a process, and where ranks stand for others (``represent``), one process is named after all ranks that
    do the same. Its threads are compute, and as many of communication as run at the same time. Sends and their receives
    are joined by flows. Memory is a counter with a series for each kind that the run has, in elements, and one for the
    total. Raises PuzzleError for anything that is not a run.
    """
    trace = trace_of(source, few=True)
    writer = Writer(trace)
    names, logs = list[str](), list[str]()
    for place, (rank, events) in enumerate(trace.by_rank.items()):
        threads = _threads(events)
        logs += writer.log(rank, events, threads)
        names += writer.names(rank, place, threads)
    rest = encode({"displayTimeUnit": "ms", "otherData": _about(trace)})
    # Put together once: a large file is a hundred million characters.
    return Export("".join(['{"traceEvents":[', ",".join([*names, *logs]), "],", rest[1:]]))


def _about(trace: Trace) -> Json:
    """Return the description of the file: the title, the meaning of a millisecond, and the targets, if any."""
    about: Json = {"title": trace.title, "1 ms is": f"1 {trace.unit.one}", "issued": "at the start, if nothing is said"}
    about |= {name: text for name, text in (("scale", trace.scale), ("note", trace.note)) if text}
    if trace.time_target is not None:
        about["target, time"] = trace.unit.lasting(trace.time_target)
    if trace.memory_target is not None:
        about["target, memory"] = f"{float(trace.memory_target):,.10g} {trace.size_unit.name}"
    return about


@lru_cache(maxsize=1 << 16)  # ranks begin and end at the same moments
def _moment(moment: float) -> tuple[float, str]:
    """Return the microseconds of a time in ticks, rounded to nanoseconds, and their text."""
    microseconds = _short(round(moment * TICK, 3))
    return microseconds, str(microseconds)


@lru_cache(maxsize=1 << 16)
def _lasts(length: float) -> str:
    """Return the text of a slice's duration in microseconds: the difference of two rounded times, so that slices of one
    thread do not overlap."""
    return f',"ph":"X","dur":{_short(round(length, 3))}}}'


def _short(number: float) -> float:
    """Return the number as an int if it is whole: without ".0", which a large file has a hundred thousand times."""
    return int(number) if number == int(number) else number


def _threads(events: Sequence[Event]) -> list[int]:
    """Return the thread of each event: slices of one must not overlap, so communication takes the first free one."""
    free: list[float] = []
    threads = [0] * len(events)
    talk = [(event.start, event.end, at) for at, event in enumerate(events) if event.kind in TALK]
    for start, end, at in sorted(talk):
        thread = next((thread for thread, until in enumerate(free) if until <= start), len(free))
        free[thread : thread + 1] = [end]
        threads[at] = thread + 1
    return threads


def _messages(trace: Trace) -> dict[object, int]:
    """Return numbers for the messages whose two ends are slices, since a flow needs both."""
    ends = [event for event in trace.events if event.kind in ENDS and event.start != event.end]
    sent = {event.op for event in ends if event.kind == SEND.kind}
    received = (event.op for event in ends if event.kind == RECEIVE.kind and event.op in sent)
    return {op: number for number, op in enumerate(received, 1)}


def _number(elements: Elements) -> float:
    """Return a size as a number of JSON."""
    return elements if isinstance(elements, int) else _short(float(elements))


class Writer:
    """A writer of the entries of a run as JSON text. Most of an entry is common to many moments, so it is made once,
    and the rest is written around it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.messages = _messages(trace)
        held = [*map(attrgetter("held"), trace.events)]
        samples = dict(zip(map(id, held), held, strict=True)).values()  # ranks that do the same share them
        used = [at for at in range(len(MEMORY_KINDS)) if any(sample[at] for sample in samples if sample)]
        self.kinds = [(at, encode(theme.MEMORY[MEMORY_KINDS[at]][0])) for at in used]
        self.issued = encode(f"issued at {trace.unit.one}")
        self.changes: dict[tuple[int, int], str] = {}
        self.steps: dict[tuple[object, object], str] = {}
        self.texts: dict[tuple[object, ...], tuple[str, str, str, bool]] = {}

    def names(self, rank: int, place: int, threads: Sequence[int]) -> Iterator[str]:
        """Yield the names of a rank and of its threads. ``place``: among the ranks."""
        name = full_ranks(self.trace.same_ranks(rank), self.trace.hosts.get(rank, ()))
        named = {"process_name": {"name": name}, "process_sort_index": {"sort_index": place}}
        for name, args in named.items():
            yield encode({"ph": "M", "pid": rank, "tid": 0, "ts": 0, "name": name, "args": args})
        for thread in range(max([1, *threads]) + 1):
            name = f"communication {thread}" if thread > 1 else ("compute", "communication")[thread]
            yield f'{{"ph":"M","pid":{rank},"tid":{thread},"ts":0,"name":"thread_name","args":{{"name":"{name}"}}}}'

    def log(self, rank: int, events: Sequence[Event], threads: Sequence[int]) -> list[str]:
        """Return the entries of a rank, for operations and changes of memory."""
        log = list[str]()
        before: Sequence[Elements] = ()
        places = [f'{{"pid":{rank},"tid":{thread},"ts":' for thread in range(max(threads, default=0) + 1)]
        counter = f'{{"ph":"C","pid":{rank},"tid":0,"ts":'
        changes, texts = self.changes, self.texts
        for event, thread in zip(events, threads, strict=True):
            _, kind, layer, batches, issued, start, end, held, op, group, tensor, size, words, *rest = event
            if kind not in MOMENTS:
                among = group if len(group) < FEW else id(group)
                key = kind, layer, rest[0], among, tensor, size, words, rest[2]
                if (known := texts.get(key)) is None:
                    known = texts[key] = self._texts(event)
                name, category, details, named = known
                if batches and named:
                    name = f"{name} mb {ranges(batches)}"
                elif batches:
                    details = f',"micro-batches":"{ranges(batches)}"{details}'
                if issued != start:
                    details = f"{details},{self.issued}:{_short(issued)}"
                args = f',"args":{{{details[1:]}}}' if details else ""
                (begin, at), place = _moment(start), places[thread]
                length = INSTANT if start == end else _lasts(_moment(end)[0] - begin)
                log.append(f"{place}{at}{name}{category}{args}{length}")
                if kind in ENDS and start != end and (flow := self.messages.get(op)) is not None:
                    log.append(f'{place}{at},"name":"message","cat":"message","id":{flow},{ENDS[kind]}}}')
            if held is not before and held:
                step = id(before), id(held)  # many samples are shared, and to hash them takes longer
                if (changed := changes.get(step)) is None:
                    changed = changes[step] = self._changed(before, held)
                if changed:
                    log.append(f"{counter}{_moment(issued)[1]}{changed}")
                before = held
        return log

    def _changed(self, before: Sequence[Elements], now: Sequence[Elements]) -> str:
        """Return the kinds of memory that have changed, and the total, or everything if nothing is known ``before``."""
        if (known := self.steps.get((before, now))) is not None:
            return known
        sizes = [(name, now[at], before[at] if before else None) for at, name in self.kinds]
        sizes.append(('"total"', sum(now), sum(before) if before else None))
        # A change of fractions may be too small for JSON's numbers.
        changed = ",".join(
            f"{name}:{_number(size)}"
            for name, size, old in sizes
            if size != old and (old is None or _number(size) != _number(old))
        )
        self.steps[before, now] = entry = changed and f',"name":"memory","args":{{{changed}}}}}'
        return entry

    def _texts(self, event: Event) -> tuple[str, str, str, bool]:
        """Return what depends neither on moment nor rank: the name of an operation, the text after its micro-batches,
        its details, each after a comma, and whether its micro-batches are in its name, as in pipelines."""
        row, kind = OPERATIONS.get(event.kind), KINDS.get(event.tensor or "")
        of_layers = "" if event.layer is None else f" {show_layers(event.layers or event.layer)}"
        name = encode(theme.name_of(event.kind) + of_layers)
        details: Json = {}
        if event.tensor:
            details |= {"tensor": event.tensor, self.trace.size_unit.name: _number(event.elements)}
        details |= slices_of(event)
        if ADAPTER in event.words:
            details["adapter"] = True
        if OVERLAPPED_WORD in event.words:
            details["overlapped"] = True
        if event.group:
            details["ranks"] = ranges(event.group)
        text = f",{encode(details)[1:-1]}" if details else ""
        named = any(one is not None and one.by_batch for one in (row, kind))
        return f',"name":{name[:-1]}', f'","cat":{encode(event.kind)}', text, named
