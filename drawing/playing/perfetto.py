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
ENDS = {SEND.kind: {"ph": "s"}, RECEIVE.kind: {"ph": "f", "bp": "e"}}
"""The two ends of a flow."""

WORDS = {"adapter": ADAPTER, "overlapped": OVERLAPPED_WORD}
"""What the details say of an event that has these words."""
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
    samples = {event.held for event in trace.events if event.held}
    used = tuple(at for at in range(len(MEMORY_KINDS)) if any(held[at] for held in samples))
    messages, names, logs = _messages(trace), list[Json](), list[Json]()
    for place, (rank, events) in enumerate(trace.by_rank.items()):
        threads = _threads(events)
        names += _names(trace, rank, place, max([1, *threads]))
        logs += _log(trace, events, threads, messages, used)
    about: Json = {"title": trace.title, "1 ms is": f"1 {trace.unit.one}", "issued": "at the start, if nothing is said"}
    about |= {name: text for name, text in (("scale", trace.scale), ("note", trace.note)) if text}
    if trace.time_target is not None:
        about["target, time"] = trace.unit.lasting(trace.time_target)
    if trace.memory_target is not None:
        about["target, memory"] = f"{float(trace.memory_target):,.10g} {trace.size_unit.name}"
    return Export(encode({"traceEvents": names + logs, "displayTimeUnit": "ms", "otherData": about}))


@lru_cache(maxsize=1 << 16)  # ranks begin and end at the same moments
def _moment(moment: float) -> float:
    """Return the microseconds of a time in ticks, rounded to nanoseconds."""
    return _short(round(moment * TICK, 3))


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


def _names(trace: Trace, rank: int, place: int, threads: int) -> Iterator[Json]:
    """Yield the names of a rank and of its threads. ``place``: among the ranks."""
    name = full_ranks(trace.same_ranks(rank), trace.hosts.get(rank, ()))
    named = [(0, "process_name", {"name": name}), (0, "process_sort_index", {"sort_index": place})]
    for thread in range(threads + 1):
        name = f"communication {thread}" if thread > 1 else ("compute", "communication")[thread]
        named.append((thread, "thread_name", {"name": name}))
    for thread, what, args in named:
        yield {"ph": "M", "pid": rank, "tid": thread, "ts": 0, "name": what, "args": args}


def _log(
    trace: Trace, events: Sequence[Event], threads: Sequence[int], messages: dict[object, int], used: tuple[int, ...]
) -> Iterator[Json]:
    """Yield the entries of a rank, for operations and changes of memory, of the kinds that are ``used``."""
    before: tuple[Elements, ...] = ()
    for event, thread in zip(events, threads, strict=True):
        where = {"pid": event.rank, "tid": thread, "ts": _moment(event.start)}
        if event.kind not in MARKS:
            yield where | _slice(event, trace)
            if event.kind in ENDS and event.length and event.op in messages:
                yield where | {"name": "message", "cat": "message", "id": messages[event.op], **ENDS[event.kind]}
        if event.held and event.held is not before:
            if changed := _changed(before, event.held, used):
                at = _moment(event.issued)
                yield {"ph": "C", "pid": event.rank, "tid": 0, "ts": at, "name": "memory", "args": changed}
            before = event.held


@lru_cache(maxsize=1 << 12)  # ranks that do the same share their samples
def _changed(before: tuple[Elements, ...], now: tuple[Elements, ...], used: tuple[int, ...]) -> dict[str, float]:
    """Return the kinds of memory that have changed, and the total, or everything if nothing is known ``before``."""

    def sizes(held: tuple[Elements, ...]) -> dict[str, float]:  # rounded: JSON has no fractions
        named = {theme.MEMORY[MEMORY_KINDS[at]][0]: held[at] for at in used} | {"total": sum(held)}
        return {name: _short(float(size)) for name, size in named.items()}

    old = sizes(before) if before else {}
    return {name: size for name, size in sizes(now).items() if size != old.get(name)}


def _slice(event: Event, trace: Trace) -> Json:
    """Return an operation: its name, with its micro-batches in pipelines, its details, and how long it takes: the
    difference of two rounded times, so that slices of one thread do not overlap."""
    row, kind = OPERATIONS.get(event.kind), KINDS.get(event.tensor or "")
    name, details = theme.name_of(event.kind), Json()
    if event.layer is not None:
        name += f" {show_layers(event.layers or event.layer)}"
    if event.batches and any(one is not None and one.by_batch for one in (row, kind)):
        name += f" mb {ranges(event.batches)}"
    elif event.batches:
        details["micro-batches"] = ranges(event.batches)
    if event.tensor:
        details |= {"tensor": event.tensor, trace.size_unit.name: _short(float(event.elements))}
    details |= slices_of(event)
    details |= {name: True for name, word in WORDS.items() if word in event.words}
    if event.group:
        details["ranks"] = ranges(event.group)
    if event.issued != event.start:
        details[f"issued at {trace.unit.one}"] = _short(event.issued)
    lasts = {"ph": "X", "dur": _short(round(_moment(event.end) - _moment(event.start), 3))}
    args = {"args": details} if details else {}
    return {"name": name, "cat": event.kind, **args, **(lasts if event.length else {"ph": "i", "s": "t"})}
