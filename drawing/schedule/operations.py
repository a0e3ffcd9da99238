"""The look of an operation, in the timeline and in the legend, and what it says when the pointer rests on it."""

from __future__ import annotations

from collections.abc import Sequence

from lib.basics.errors import show_layers
from lib.basics.units import Unit
from lib.record.attention import ATTEND, BACKWARD_ATTEND
from lib.record.causal import show_heads, show_slices
from lib.record.codes import code_of, letters_of
from lib.record.events import MARKS, Event
from lib.record.labels import ADAPTER
from lib.record.table import OPERATIONS, stream_of, training
from lib.record.training import OVERLAPPED_WORD

from ..ink import theme
from ..ink.marks import Diagram, Point, Rect, box, label, lines, poly, style, together
from ..ink.texts import plural, ranges
from ..ink.trace import Trace
from .layout import Row

LEGIBLE_SIGN = 4.5
"""The least width of a box with a sign, in pixels."""
NOTCH = 1.2
"""The width of a notch, in pixels."""
STRIPE = 0.55
"""The opacity of a stripe that tells a chunk."""
FEATURES = {
    "keep": "some of what is inside the layer is kept for its backward",
    "saved": "with what forward has kept",
    OVERLAPPED_WORD: "beside the forward before it: what the two save is taken off here",
}
"""A line of the hover text for a feature of an event."""


def operation(kind: str, place: Rect, color: str) -> Diagram:
    """Return a box of an operation.

    A pass has this ``color``; one that goes backwards is a little lower, so that the two differ without hue. All other
    operations have a color and a sign of their own. One that takes no time is a diamond.
    """
    x, y, width, height = place
    if not width:
        color = color if theme.is_pass(kind) else theme.kind_color(kind)
        return poly([(x, y - 1.5), (x + 3, y + 2.5), (x, y + 6.5), (x - 3, y + 2.5)], style(color))
    pad = min(0.5, width * 0.06)
    x, width = x + pad, max(width - 2 * pad, 0.3)
    if theme.is_pass(kind):
        return _pass(kind, (x, y, width, height), color)
    inset = 0.0 if stream_of(kind) == "compute" or height < 9 else height * 0.1
    return _signed(kind, (x, y + inset, width, height - 2 * inset))


def color_of(event: Event, trace: Trace) -> str:
    """Return the color of an event: of a pass that of operation and micro-batch."""
    return sample_color(event.kind, trace, trace.order[0].get(min(event.batches, default=0), 0))


def sample_color(kind: str, trace: Trace, place: int | None = None) -> str:
    """Return the color of an operation: in a legend that of a micro-batch in the middle."""
    many = trace.order[1]
    place = many // 2 if place is None else place
    return theme.work_color(kind, place, many) if theme.is_pass(kind) else theme.kind_color(kind)


def is_drawn(event: Event) -> bool:
    """Return whether an operation has a sign: a message that costs nothing has none, and marks have none."""
    return event.kind not in MARKS and (event.length > 0 or event.stream == "compute")


def feet_of(event: Event, row: Row, trace: Trace) -> int:
    """Return the number of stripes at the foot of a pass: one where its micro-batches enter a pipeline at its other
    end, or one for each chunk of layers of its rank before its own."""
    return int(not trace.turned.isdisjoint(event.batches)) if trace.turned else row.chunks.get(event.layer, 0)


def stripes(chunk: int, place: Rect) -> list[Diagram]:
    """Return so many stripes at the foot of a box."""
    x, y, width, height = place
    thick = min(3.2, height / 7)
    look = style(theme.INK, None, 0, STRIPE)
    return [box(x, y + height - (1.5 * at + 1) * thick, width, thick, look) for at in range(chunk)]


def lower(kind: str, height: float) -> float:
    """Return the distance of the box of a pass from the edges of its row."""
    return height * theme.LOWER if theme.goes_back(kind) and height >= theme.INSET else 0.0


def notches(at: Sequence[float], y: float, height: float) -> Diagram:
    """Return notches in the edges of a box, one between each of its layers and the next."""
    deep = min(3.5, height / 5)
    found = [(x, edge, x, edge + way * deep) for x in at for edge, way in ((y, 1), (y + height, -1))]
    return lines(found, style(None, theme.CARD, NOTCH))


def glyph(name: str, x: float, y: float, k: float) -> list[Point]:
    """Return a small sign with its middle at (x, y), ``k`` pixels to each side."""
    return {
        "up": [(x, y - k), (x + k, y + k), (x - k, y + k)],
        "down": [(x, y + k), (x + k, y - k), (x - k, y - k)],
        "diamond": [(x, y - 1.3 * k), (x + k, y), (x, y + 1.3 * k), (x - k, y)],
        "bow": [(x - k, y - k), (x + k, y + k), (x + k, y - k), (x - k, y + k)],
        "right": [(x - k, y - k), (x + k, y), (x - k, y + k)],
        "left": [(x + k, y - k), (x - k, y), (x + k, y + k)],
    }[name]


def _pass(kind: str, place: Rect, color: str) -> Diagram:
    x, y, width, height = place
    radius = min(2.5, height / 5, width / 5)
    y, height = y + lower(kind, height), height - 2 * lower(kind, height)
    if kind not in theme.BANDS:
        return box(x, y, width, height, style(color), radius)
    high = height * theme.BAND
    band = box(x, y + theme.BANDS[kind] * (height - high), width, high, style(color), min(radius, high / 2))
    return together([box(x, y, width, height, style(color, None, 0, theme.HALF), radius), band])


def ink_on(kind: str, color: str) -> str:
    """Return the color of a number on a box of a pass: on halves, which are pale, that of other texts."""
    return theme.INK if kind in theme.BANDS else theme.text_on(color)


def _signed(kind: str, place: Rect) -> Diagram:
    """Return a box with a sign."""
    x, y, width, height = place
    color = theme.kind_color(kind)
    parts: list[Diagram] = [box(x, y, width, height, style(color), min(2.5, height / 5, width / 5))]
    if stream_of(kind) == "compute" and width >= 9 and height >= 11 and (letters := letters_of(kind)):
        size = min(10, height * 0.62)
        parts.append(label(x + width / 2, y + height / 2, letters, size, style(theme.CARD), weight=600))
    if (sign := theme.glyph_of(kind)) and width >= LEGIBLE_SIGN and height >= 4:
        middle, k = y + height / 2, min(width * 0.32, height * 0.28, 4.0)
        parts.append(poly(glyph(sign, x + width / 2, middle, k), style(theme.text_on(color))))
    return together(parts)


def hover(event: Event, row: Row, trace: Trace) -> str:
    """Return the hover text of an operation, as far as it is true of all ranks of its row."""
    alone, size = row.one, trace.size_unit
    texts = [f"{row.full_name}: {operation_in_words(event, row)}", when(event, trace.unit)]
    if alone:
        texts += [f"{whose}: {which}" for whose, which in slices_of(event).items()]
    if event.tensor:
        what = f"{event.tensor} of an adapter" if alone and ADAPTER in event.words else event.tensor
        texts.append(f"{what}, {size.describe(event.elements)}")
    elif alone and ADAPTER in event.words:
        trains = event.kind in training()
        texts.append("with the layer's adapter; its own weight is frozen" if trains else "of the layer's adapter")
    if alone and event.words:
        texts += [text for feature, text in FEATURES.items() if feature in event.words]
    if alone and event.stream == "message" and len(event.group) == 2:
        texts.append(f"from rank {event.group[0]} to rank {event.group[1]}")
        texts += [f"it has waited {trace.unit.lasting(event.waited)} for its receive"] * (event.waited > 0)
    elif alone and event.stream == "collective":
        texts.append(f"among ranks {ranges(event.group)}")
    if alone and trace.profile is not None and event.stream in ("collective", "message"):
        texts += [size.describe(event.elements)] if event.elements else []
        waited = event.start - event.issued
        texts += [f"rank {event.rank} was there {trace.unit.lasting(waited)} before"] if waited > 0 else []
    if row.same_memory and event.held:
        texts.append(f"memory when issued: {size.describe(event.memory)}")
    return "\n".join(texts)


def slices_of(event: Event) -> dict[str, str]:
    """Return which slices of the sequence a step of a layer was done with, by whose they are: of attention those of its
    queries and of its keys, of the other steps its own. Nothing where these are the whole sequence. And which heads of
    attention, where these are not all."""
    meets = event.kind in (ATTEND.kind, BACKWARD_ATTEND.kind)
    names = ("queries", "keys") if meets else ("sequence",)
    own, heads = event.slices[: len(names)], event.slices[2:]
    text = {} if all(of == 1 for _, of in own) else dict(zip(names, map(show_slices, own), strict=False))
    return text | ({"heads": show_heads(heads[0])} if meets and heads else {})


def operation_in_words(event: Event, row: Row, brief: bool = False) -> str:
    """Return the name of an operation with its layer and micro-batches, as far as all ranks of the row share them.

    ``brief``: without the layer if the row has only one.
    """
    return theme.name_of(event.kind) + carried(event, row, brief)


def carried(event: Event, row: Row, brief: bool = False) -> str:
    """Return the layer and the micro-batches of an operation, after a comma each."""
    text = ""
    if brief and len(row.layers) == 1:
        event = event._replace(layer=None)
    if event.layer is not None and layered(event):
        text += f", {show_layers(event.layers or event.layer)}"
    if event.batches and row.same_batches:
        text += f", micro-batch{plural(len(event.batches), 'es')} {ranges(event.batches)}"
    return text


def when(event: Event, unit: Unit) -> str:
    """Return the start and the end of an operation as text."""
    return unit.at(f"{unit.show(event.start)} to {unit.show(event.end)}")


def layered(event: Event) -> bool:
    """Return whether an operation is named with its layer: a loss is not."""
    row = OPERATIONS.get(event.kind)
    return row is None or row.layered or row.stream == "message"


def words_of(event: Event, one: bool = True, batches: bool = True) -> str:
    """Return an operation in few words: ``forward layer 2, mb 0``, or without its ``batches``; ``send to rank 1``,
    or of more than ``one`` rank ``send``."""
    text = theme.name_of(event.kind)
    if event.stream == "message":
        sender, receiver = event.group
        other = f" to rank {receiver}" if event.rank == sender else f" from rank {sender}"
        return text + other * one
    code = code_of(event)
    if code.layer is not None:
        text += f" {show_layers(code.layers or code.layer)}"
    if code.numbers and batches:
        text += f", mb {ranges(event.batches)}"
    return text
