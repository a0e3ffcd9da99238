"""A schedule for https://ui.perfetto.dev and chrome://tracing: the Trace Event Format, as JSON.

The format: "Trace Event Format", Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from lib.basics.errors import show_layers
from lib.record.events import MARKS, Event
from lib.record.kinds import MEMORY_KINDS
from lib.record.table import RECEIVE, SEND

from . import theme
from .trace import Trace, trace_of
from .words import ranges

TICK = 1000.0
"""Microseconds for a tick, which so shows as a millisecond, and for a millisecond that was measured."""

Json = dict[str, Any]


def perfetto(source: object) -> str:
    """The schedule of a Run, or of models, as the text of a JSON file in the Trace Event Format.

    Each rank is a process. Its threads are compute, and as many lanes of communication as run at the same time. Sends
    and their receives are joined by flows, and memory is a counter with a series for each kind, in elements.
    Raises PuzzleError for anything that is not a run.
    """
    trace = trace_of(source)
    messages = _messages(trace)
    events = [entry for rank in trace.by_rank for entry in (*_names(trace, rank), *_rank(trace, rank, messages))]
    about = {"title": trace.title, "1 ms is": f"1 {trace.unit.one}"} | ({"scale": trace.scale} if trace.scale else {})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}, separators=(",", ":"))


def _names(trace: Trace, rank: int) -> Iterator[Json]:
    named = {"process_name": {"name": f"rank {rank}"}, "process_sort_index": {"sort_index": rank}}
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


def _rank(trace: Trace, rank: int, messages: frozenset[object]) -> Iterator[Json]:
    for event, thread in zip(trace.by_rank[rank], _threads(trace, rank), strict=True):
        if event.kind not in MARKS:
            yield from _operation(event, thread, event.op in messages, f"issued at {trace.unit.one}")
        kinds = {theme.MEMORY[kind][0]: float(held) for kind, held in zip(MEMORY_KINDS, event.held, strict=True)}
        yield {"ph": "C", "pid": rank, "tid": 0, "ts": event.issued * TICK, "name": "memory", "args": kinds}


def _operation(event: Event, thread: int, flows: bool, issued: str) -> Iterator[Json]:
    place: Json = {"pid": event.rank, "tid": thread, "ts": event.start * TICK}
    of_layers = "" if event.layer is None else f" {show_layers(event.layers or event.layer)}"
    name = theme.name_of(event.kind) + of_layers
    slice_: Json = {**place, "name": name, "cat": event.kind, "args": {**dict(_details(event)), issued: event.issued}}
    if not event.length:
        yield {**slice_, "ph": "i", "s": "t"}
        return
    yield {**slice_, "ph": "X", "dur": event.length * TICK}
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
        yield "elements", float(event.elements)
    if event.group:
        yield "ranks", ranges(event.group)
