"""A schedule for https://ui.perfetto.dev and chrome://tracing: the Trace Event Format, as JSON.

The format: "Trace Event Format", Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from lib.basics.errors import show_layers
from lib.basics.units import Elements
from lib.record.events import MARKS, Event
from lib.record.kinds import ACTIVATIONS, MEMORY_KINDS
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
        """Write it to a file that ends in .json, or compressed, a twentieth of its size, to one that ends in .gz. Both
        are opened by Perfetto. Raises PuzzleError for another ending, and where the file cannot be written."""
        write(path, {".json": lambda: self, ".gz": lambda: gzip.compress(self.encode(), mtime=0)})


def perfetto(source: object) -> Export:
    """The schedule of a Run, or of models, as the text of a JSON file in the Trace Event Format, with a method
    ``save("fsdp.json.gz")``.

    Each rank is a process. Its threads are compute, and as many lanes of communication as run at the same time. Sends
    and their receives are joined by flows. Memory is a counter with a series for each kind that the run has, in
    elements, beside one of the total. Raises PuzzleError for anything that is not a run.
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
    about: Json = {"title": trace.title, "1 ms is": f"1 {trace.unit.one}"}
    if trace.scale:
        about["scale"] = trace.scale
    if trace.time_target is not None:
        about["target, time"] = trace.unit.lasting(trace.time_target)
    if trace.memory_target is not None:
        about["target, memory"] = f"{float(trace.memory_target):,.10g} elements"
    return about


def _is_used(trace: Trace, at: int) -> bool:
    """Return whether a kind of memory, by its place among MEMORY_KINDS, is ever more than nothing."""
    return any(event.held[at] for event in trace.events)


def _microseconds(moment: float) -> float:
    """Return a time in microseconds, to the nanosecond: what is finer is noise of floats."""
    return round(moment * TICK, 3)


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


def _messages(trace: Trace) -> frozenset[object]:
    """Return the messages of which both ends can be shown as slices: a flow needs both."""
    sent = {event.op for event in trace.events if event.kind == SEND.kind and event.length}
    return frozenset(
        event.op for event in trace.events if event.kind == RECEIVE.kind and event.length and event.op in sent
    )


def _rank(trace: Trace, rank: int, messages: frozenset[object], kinds: Sequence[tuple[int, str]]) -> Iterator[Json]:
    before = None
    for event, thread in zip(trace.by_rank[rank], _threads(trace, rank), strict=True):
        if event.kind not in MARKS:
            yield from _operation(event, thread, event.op in messages, f"issued at {trace.unit.one}")
        if event.held != before:  # a counter keeps its value until it is said anew
            before = event.held
            place: Json = {"ph": "C", "pid": rank, "tid": 0, "ts": _microseconds(event.issued)}
            yield {**place, "name": "memory", "args": {name: _number(event.held[at]) for at, name in kinds}}
            yield {**place, "name": "memory, total", "args": {"elements": _number(event.memory)}}


def _number(elements: Elements) -> float:
    """Return a size as JSON has numbers."""
    return elements if isinstance(elements, int) else float(elements)


def _operation(event: Event, thread: int, flows: bool, issued: str) -> Iterator[Json]:
    place: Json = {"pid": event.rank, "tid": thread, "ts": _microseconds(event.start)}
    of_layers = "" if event.layer is None else f" {show_layers(event.layers or event.layer)}"
    row = OPERATIONS.get(event.kind)
    by_batch = event.tensor in ACTIVATIONS or (row is not None and row.by_batch)  # or a pipeline could not be read
    of_batches = f" mb {ranges(event.batches)}" if event.batches and by_batch else ""
    name = theme.name_of(event.kind) + of_layers + of_batches
    slice_: Json = {**place, "name": name, "cat": event.kind, "args": {**dict(_details(event)), issued: event.issued}}
    if not event.length:
        yield {**slice_, "ph": "i", "s": "t"}
        return
    # The difference of what is said: slices of one thread must touch, and not overlap by a rounding.
    yield {**slice_, "ph": "X", "dur": round(_microseconds(event.end) - _microseconds(event.start), 3)}
    if flows and event.op is not None:
        flow: Json = {**place, "name": "message", "cat": "message", "id": "-".join(map(str, event.op))}
        if event.kind == SEND.kind:
            yield {**flow, "ph": "s"}
        else:
            yield {**flow, "ph": "f", "bp": "e"}


def _details(event: Event) -> Iterator[tuple[str, object]]:
    if event.batches:
        yield "micro-batches", ranges(event.batches)
    if event.tensor:
        yield "tensor", event.tensor
        yield "elements", _number(event.elements)
    if event.group:
        yield "ranks", ranges(event.group)
