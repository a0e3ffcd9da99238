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
from lib.record.kinds import ACTIVATIONS, MEMORY_KINDS
from lib.record.labels import ADAPTER, NONE
from lib.record.table import OPERATIONS, RECEIVE, SEND, in_lane

from . import theme
from .figure import write
from .texts import full_ranks, ranges
from .trace import Trace, trace_of

TICK = 1000.0
"""Microseconds for a tick, which Perfetto shows as a millisecond, or for a measured millisecond."""

TALK = frozenset(in_lane("collective", "message"))
ENDS = {SEND.kind: '"ph":"s"', RECEIVE.kind: '"ph":"f","bp":"e"'}
"""The two ends of a flow."""
MOMENTS = frozenset(MARKS)
INSTANT = ',"ph":"i","s":"t"}'  # what takes no time
FEW = 3  # groups with fewer ranks are compared by their ranks, others by their identity

held_of = attrgetter("held")  # a function of C: asked of every event

Json = dict[str, Any]
encode = json.JSONEncoder(separators=(",", ":")).encode


class Export(str):
    """The text of a file that can be written to one."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: compressed to one that ends in .gz ("fsdp.json.gz"), plain to one that ends in .json.
        Perfetto opens both. Take the compressed one unless a program of yours is to read it: of 100,000 operations it
        has 2 MB instead of 30. Raises PuzzleError for another ending, and where the file cannot
        be written."""
        write(path, {".json": lambda: self, ".gz": lambda: gzip.compress(self.encode(), mtime=0)})


def perfetto(source: object) -> Export:
    """The schedule of a Run, or of models, as the text of a JSON file in the Trace Event Format, with a method
    ``save("fsdp.json.gz")``.

    Each rank is a process. Its threads are compute, and as many of communication as run at the same time. Sends
    and their receives are joined by flows. Memory is a counter with a series for each kind that the run has, in
    elements, and one for the total. Raises PuzzleError for anything that is not a run.
    """
    trace = trace_of(source)
    writer = Writer(trace)
    names, logs = list[str](), list[str]()
    for place, (rank, events) in enumerate(trace.by_rank.items()):
        threads = _threads(events)
        logs.append(writer.entries(rank, events, threads))
        names += writer.names(rank, place, max([1, *threads]) + 1)
    rest = encode({"displayTimeUnit": "ms", "otherData": _about(trace)})
    # Put together once: a large file is a hundred million characters.
    return Export("".join(['{"traceEvents":[', ",".join(names), *logs, "],", rest[1:]]))


def _about(trace: Trace) -> Json:
    """Return the description of the file: the title, the meaning of a millisecond, and the targets, if any."""
    about: Json = {"title": trace.title, "1 ms is": f"1 {trace.unit.one}", "issued": "at the start, if nothing is said"}
    if trace.scale:
        about["scale"] = trace.scale
    if trace.note:
        about["note"] = trace.note
    if trace.time_target is not None:
        about["target, time"] = trace.unit.lasting(trace.time_target)
    if trace.memory_target is not None:
        about["target, memory"] = f"{float(trace.memory_target):,.10g} {trace.size_unit.name}"
    return about


@lru_cache(maxsize=1 << 16)  # ranks begin and end at the same moments
def _moment(time: float) -> tuple[float, str]:
    """Return the microseconds of a time in ticks, rounded to nanoseconds, and their text."""
    microseconds = _short(round(time * TICK, 3))
    return microseconds, str(microseconds)


@lru_cache(maxsize=1 << 16)
def _lasts(length: float) -> str:
    """Return the duration of a slice. ``length`` is the difference of two rounded times, in microseconds, so that
    slices of one thread do not overlap."""
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
    """A writer of the entries of a run as JSON text. Details and changes of memory that are common to many ranks and
    moments are made once, and the rest is written around them."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.messages = _messages(trace)
        held = [*map(held_of, trace.events)]
        samples = dict(zip(map(id, held), held, strict=True)).values()  # ranks that do the same share them
        used = [at for at in range(len(MEMORY_KINDS)) if any(sample[at] for sample in samples)]
        self.kinds = [(at, encode(theme.MEMORY[MEMORY_KINDS[at]][0])) for at in used]
        self.issued = encode(f"issued at {trace.unit.one}")
        self.details: dict[tuple[object, ...], str] = {}
        self.changes: dict[tuple[int, int], str] = {}

    def names(self, rank: int, place: int, threads: int) -> Iterator[str]:
        """Yield the names of a rank and of its threads. ``place``: among the ranks."""
        name = full_ranks([rank], self.trace.hosts.get(rank, ()))
        named = {"process_name": {"name": name}, "process_sort_index": {"sort_index": place}}
        for name, args in named.items():
            yield encode({"ph": "M", "pid": rank, "tid": 0, "ts": 0, "name": name, "args": args})
        for thread in range(threads):
            name = "compute" if not thread else "communication" if thread == 1 else f"communication {thread}"
            yield f'{{"ph":"M","pid":{rank},"tid":{thread},"ts":0,"name":"thread_name","args":{{"name":"{name}"}}}}'

    def entries(self, rank: int, events: Sequence[Event], threads: Sequence[int]) -> str:
        """Return the entries of a rank, for operations and changes of memory, each after a comma."""
        entries = [""]
        before: Sequence[Elements] = ()
        places = [f'{{"pid":{rank},"tid":{thread},"ts":' for thread in range(max(threads, default=0) + 1)]
        counter = f'{{"ph":"C","pid":{rank},"tid":0,"ts":'
        for event, thread in zip(events, threads, strict=True):
            _, kind, layer, batches, issued, start, end, held, op, group, tensor, elements, words, layers, _ = event
            if kind not in MOMENTS:
                (begin, at), place = _moment(start), places[thread]
                length = INSTANT if start == end else _lasts(_moment(end)[0] - begin)
                name, category, by_batch = _named(kind, layers or layer, tensor)
                if by_batch and batches:
                    name = f"{name} mb {ranges(batches)}"
                    batches = NONE
                details = ""
                if tensor or batches or words or group:
                    among = group if len(group) < FEW else id(group)  # one object for all of a group
                    key = tensor, elements, words, batches, among
                    if (known := self.details.get(key)) is None:
                        found = dict(_details(event, self.trace.size_unit.name, batches))
                        known = self.details[key] = f',"args":{encode(found)}' if found else ""
                    details = known
                if issued != start:
                    moment = f"{self.issued}:{_short(issued)}}}"
                    details = f"{details[:-1]},{moment}" if details else f',"args":{{{moment}'
                entries.append(f"{place}{at}{name}{category}{details}{length}")
                if kind in ENDS and start != end and (flow := self.messages.get(op)) is not None:
                    entries.append(f'{place}{at},"name":"message","cat":"message","id":{flow},{ENDS[kind]}}}')
            if held is not before:
                step = id(before), id(held)  # many samples are shared, and to hash them takes longer
                if (changed := self.changes.get(step)) is None:
                    changed = self.changes[step] = self._changed(before, held)
                if changed:
                    entries.append(f"{counter}{_moment(issued)[1]}{changed}")
                before = held
        return ",".join(entries)

    def _changed(self, before: Sequence[Elements], now: Sequence[Elements]) -> str:
        """Return the kinds of memory that have changed, and the total, or everything if nothing is known ``before``."""
        sizes = [(name, now[at], before[at] if before else None) for at, name in self.kinds]
        sizes.append(('"total"', sum(now), sum(before) if before else None))
        # A change of fractions may be too small for JSON's numbers.
        changed = ",".join(
            f"{name}:{_number(size)}"
            for name, size, old in sizes
            if size != old and (old is None or _number(size) != _number(old))
        )
        return changed and f',"name":"memory","args":{{{changed}}}}}'


@lru_cache(maxsize=1 << 12)
def _named(kind: str, layer: int | tuple[int, ...] | None, tensor: str | None) -> tuple[str, str, bool]:
    """Return the name of an operation, the text after its micro-batches, and whether these are part of the name."""
    name = theme.name_of(kind) + ("" if layer is None else f" {show_layers(layer)}")
    row = OPERATIONS.get(kind)
    by_batch = tensor in ACTIVATIONS or (row is not None and row.by_batch)  # or a pipeline could not be read
    return f',"name":{encode(name)[:-1]}', f'","cat":{encode(kind)}', by_batch


def _details(event: Event, unit: str, unnamed: frozenset[int]) -> Iterator[tuple[str, object]]:
    """Yield the details of an operation, with the micro-batches that are not part of its name."""
    if unnamed:
        yield "micro-batches", ranges(unnamed)
    if event.tensor:
        yield "tensor", event.tensor
        yield unit, _number(event.elements)
    if ADAPTER in event.words:
        yield "adapter", True
    if event.group:
        yield "ranks", ranges(event.group)
