"""A schedule for https://ui.perfetto.dev: the Trace Event Format, as JSON.

The format: "Trace Event Format", Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. What
it leaves open is written as Perfetto reads it: the id of a flow is a number, since of texts only hexadecimal ones are
understood, and a series of a counter keeps its value until it is said anew.

To keep files small, nothing is said twice: micro-batches that are in a slice's name are not in its details, "issued" is
there only where it is not the start, and of memory only the kinds that have changed.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lib.basics.errors import show_layers
from lib.basics.units import Elements
from lib.record.events import MARKS, Event
from lib.record.kinds import ACTIVATIONS, MEMORY_KINDS
from lib.record.labels import ADAPTER
from lib.record.table import OPERATIONS, RECEIVE, SEND

from . import theme
from .files import write
from .trace import Trace, trace_of
from .words import full_ranks, ranges

TICK = 1000.0
"""Microseconds for a tick, which so shows as a millisecond, and for a millisecond that was measured."""

Json = dict[str, Any]


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

    Each rank is a process. Its threads are compute, and as many lanes of communication as run at the same time. Sends
    and their receives are joined by flows. Memory is a counter with a series for each kind that the run has, in
    elements, and one for the total. Raises PuzzleError for anything that is not a run.
    """
    trace = trace_of(source)
    messages = _messages(trace)
    named = [entry for rank in trace.by_rank for entry in _names(trace, rank)]
    kinds = [(at, theme.MEMORY[kind][0]) for at, kind in enumerate(MEMORY_KINDS) if _is_used(trace, at)]
    done = [entry for rank in trace.by_rank for entry in _rank(trace, rank, messages, kinds)]
    text = {"traceEvents": [*named, *done], "displayTimeUnit": "ms", "otherData": _about(trace)}
    return Export(json.dumps(text, separators=(",", ":")))


def _about(trace: Trace) -> Json:
    """Return what the file says of itself: the title, what a millisecond is, and the targets, if there are any."""
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


def _is_used(trace: Trace, at: int) -> bool:
    """Return whether a kind of memory, by its place among MEMORY_KINDS, is ever more than nothing."""
    return any(event.held[at] for event in trace.events)


def _microseconds(moment: float) -> float:
    """Return a time in microseconds, to the nanosecond: what is finer is noise of floats."""
    return _short(round(moment * TICK, 3))


def _short(number: float) -> float:
    """Return the number as an int if it is whole: without ".0", which a large file has a hundred thousand times."""
    return int(number) if number == int(number) else number


def _names(trace: Trace, rank: int) -> Iterator[Json]:
    name = full_ranks([rank], trace.hosts.get(rank, ()))
    named = {"process_name": {"name": name}, "process_sort_index": {"sort_index": [*trace.by_rank].index(rank)}}
    for name, args in named.items():
        yield {"ph": "M", "pid": rank, "tid": 0, "ts": 0, "name": name, "args": args}
    lanes = max(_threads(trace, rank), default=0)
    for thread in range(max(lanes, 1) + 1):
        name = "compute" if not thread else "communication" if thread == 1 else f"communication {thread}"
        yield {"ph": "M", "pid": rank, "tid": thread, "ts": 0, "name": "thread_name", "args": {"name": name}}


def _threads(trace: Trace, rank: int) -> list[int]:
    """Return the thread of each event: slices of one must not overlap, so communication takes the first free one."""
    free: list[float] = []
    threads = [0] * len(trace.by_rank[rank])
    talk = [
        (event.start, event.end, at)
        for at, event in enumerate(trace.by_rank[rank])
        if event.lane in ("collective", "message")
    ]
    for start, end, at in sorted(talk):
        lane = next((lane for lane, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        threads[at] = lane + 1
    return threads


def _messages(trace: Trace) -> dict[object, int]:
    """Return the messages of which both ends can be shown as slices, numbered: a flow needs both."""
    sent = {event.op for event in trace.events if event.kind == SEND.kind and event.length}
    received = (event.op for event in trace.events if event.kind == RECEIVE.kind and event.length and event.op in sent)
    return {op: number for number, op in enumerate(received, 1)}


def _rank(trace: Trace, rank: int, messages: Mapping[object, int], kinds: Sequence[tuple[int, str]]) -> Iterator[Json]:
    before: Json = {}
    for event, thread in zip(trace.by_rank[rank], _threads(trace, rank), strict=True):
        if event.kind not in MARKS:
            yield from _operation(event, thread, messages.get(event.op), trace)
        now = {name: _number(event.held[at]) for at, name in kinds} | {"total": _number(event.memory)}
        if now != before:
            changed = {name: size for name, size in now.items() if size != before.get(name)}
            place: Json = {"ph": "C", "pid": rank, "tid": 0, "ts": _microseconds(event.issued)}
            yield {**place, "name": "memory", "args": changed}
            before = now


def _number(elements: Elements) -> float:
    """Return a size as JSON has numbers."""
    return elements if isinstance(elements, int) else float(elements)


def _operation(event: Event, thread: int, flow: int | None, trace: Trace) -> Iterator[Json]:
    place: Json = {"pid": event.rank, "tid": thread, "ts": _microseconds(event.start)}
    of_layers = "" if event.layer is None else f" {show_layers(event.layers or event.layer)}"
    row = OPERATIONS.get(event.kind)
    by_batch = event.tensor in ACTIVATIONS or (row is not None and row.by_batch)  # or a pipeline could not be read
    of_batches = f" mb {ranges(event.batches)}" if event.batches and by_batch else ""
    name = theme.name_of(event.kind) + of_layers + of_batches
    details = dict(_details(event, trace.size_unit.name, named=bool(of_batches)))
    if event.issued != event.start:
        details[f"issued at {trace.unit.one}"] = _short(event.issued)
    slice_: Json = {**place, "name": name, "cat": event.kind, **({"args": details} if details else {})}
    if not event.length:
        yield {**slice_, "ph": "i", "s": "t"}
        return
    # The difference of what is said: slices of one thread must touch, and not overlap by a rounding.
    yield {**slice_, "ph": "X", "dur": _short(round(_microseconds(event.end) - _microseconds(event.start), 3))}
    if flow is not None:
        end: Json = {"ph": "s"} if event.kind == SEND.kind else {"ph": "f", "bp": "e"}
        yield {**place, "name": "message", "cat": "message", "id": flow, **end}


def _details(event: Event, unit: str, named: bool) -> Iterator[tuple[str, object]]:
    """Yield what there is to say of an operation, but for micro-batches that are ``named`` with it."""
    if event.batches and not named:
        yield "micro-batches", ranges(event.batches)
    if event.tensor:
        yield "tensor", event.tensor
        yield unit, _number(event.elements)
    if ADAPTER in event.words:
        yield "adapter", True
    if event.group:
        yield "ranks", ranges(event.group)
