"""The hover text of an operation: what it says when the pointer rests on it."""

from __future__ import annotations

from lib.basics.errors import show_layers
from lib.basics.units import Unit
from lib.record.events import Event
from lib.record.labels import ADAPTER
from lib.record.table import OPERATIONS, training

from .layout import Row
from .texts import plural, ranges
from .theme import name_of
from .trace import Trace

FEATURES = {"keep": "some of what is inside the layer is kept for its backward", "saved": "with what forward has kept"}
"""A line of the hover text for a feature of an event."""


def hover(event: Event, row: Row, trace: Trace) -> str:
    """Return the hover text of an operation, as far as it is true of all ranks of its row."""
    alone, size = row.one, trace.size_unit
    said = [f"{row.full_name}: {operation_in_words(event, row)}", when(event, trace.unit)]
    if event.tensor:
        what = f"{event.tensor} of an adapter" if alone and ADAPTER in event.words else event.tensor
        said.append(f"{what}, {size.describe(event.elements)}")
    elif alone and ADAPTER in event.words:
        trains = event.kind in training()
        said.append("with the layer's adapter; its own weight is frozen" if trains else "of the layer's adapter")
    if alone and event.words:
        said += [text for feature, text in FEATURES.items() if feature in event.words]
    if alone and event.lane == "message" and len(event.group) == 2:
        said.append(f"from rank {event.group[0]} to rank {event.group[1]}")
    elif alone and event.lane == "collective":
        said.append(f"among ranks {ranges(event.group)}")
    if row.same_memory:
        said.append(f"memory when issued: {size.describe(event.memory)}")
    return "\n".join(said)


def operation_in_words(event: Event, row: Row, brief: bool = False) -> str:
    """Return the name of an operation with its layer and micro-batches, as far as all ranks of the row share them.

    ``brief``: without the layer if the row has only one.
    """
    return name_of(event.kind) + carried(event, row, brief)


def carried(event: Event, row: Row, brief: bool = False) -> str:
    """Return the layer and the micro-batches of an operation, after a comma each."""
    said = ""
    if brief and len(row.layers) == 1:
        event = event._replace(layer=None)
    if event.layer is not None and layered(event):
        said += f", {show_layers(event.layers or event.layer)}"
    if event.batches and row.same_batches:
        said += f", micro-batch{plural(len(event.batches), 'es')} {ranges(event.batches)}"
    return said


def when(event: Event, unit: Unit) -> str:
    """Return the start and the end of an operation as text."""
    return unit.at(f"{unit.show(event.start)} to {unit.show(event.end)}")


def layered(event: Event) -> bool:
    """Return whether an operation is named with its layer: a loss is not."""
    row = OPERATIONS.get(event.kind)
    return row is None or row.layered or row.lane == "message"
