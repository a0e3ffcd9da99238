"""The reason for the peak of memory: the operation that begins there, and the tensors that are held, counted."""

from __future__ import annotations

from fractions import Fraction
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

from lib.basics.units import Elements
from lib.machine.cost import Cost
from lib.record.events import END, MARKS, Event
from lib.record.figures.score import memory_parts
from lib.record.kinds import KINDS, SAVED
from lib.record.labels import ADAPTER

from ..ink import theme
from ..ink.trace import Trace
from .operations import words_of


class Held(NamedTuple):
    """Elements of one kind of memory, and a text that counts the tensors if all have one size."""

    kind: str
    text: str
    elements: Elements


def held_at(event: Event, trace: Trace) -> list[Held]:
    """Return the parts of a memory sample, from the largest to the smallest. They add up to the sample."""
    sizes = _sizes(trace)
    parts = sorted(memory_parts(event).items(), key=lambda part: -part[1])
    return [Held(kind, _counted(kind, elements, sizes), elements) for kind, elements in parts]


def _sizes(trace: Trace) -> dict[str, Elements]:
    """Return the size of a whole tensor by kind of memory, where all have one size. With adapters, weights have two."""
    cost = trace.cost
    if cost is None or type(cost).elements is not Cost.elements:
        return {}
    one = {"weight": cost.weight_elements, "activation": cost.activation_elements}
    if any(ADAPTER in event.words for event in trace.events):
        del one["weight"]
    sizes: dict[str, Elements] = {row.memory: one[row.size] for row in KINDS.values() if row.size in one}
    if cost.saved_elements:  # then inner activations, of another size, are among the activations
        del sizes[KINDS[SAVED].memory]
    return sizes


def _counted(kind: str, elements: Elements, sizes: dict[str, Elements]) -> str:
    """Return "9 activations", "1 weight" or "2.5 weights", or the word alone if they cannot be counted."""
    word, size = theme.MEMORY[kind][0], sizes.get(kind)
    count = Fraction(elements, size) if size else Fraction(0)
    if count < Fraction(1, 100):
        return word
    shown = f"{float(count):.3g}"
    about = "" if Fraction(shown) == count else "about "
    return f"{about}{shown} {word.removesuffix('s') if shown == '1' else word}"


def why_highest(trace: Trace) -> str:
    """Return a sentence on when memory is highest, and what is held then."""
    peak = trace.peak
    if peak is None:
        return ""
    held = ", ".join(f"{part.text} ({trace.size_unit.show(part.elements)})" for part in held_at(peak, trace))
    more = (more := beyond(trace)) and f": {more}"
    return f"Memory of rank {peak.rank} is highest as {moment(peak, trace)}: it holds {held}{more}."


def beyond(trace: Trace) -> str:
    """Return what most of all the rank with the peak holds more than the rank with the lowest one, each at its own
    peak: ``more than rank 3 above all by 3 activations``. Nothing if all peaks are equal."""
    low = trace.lowest
    if trace.peak is None or low is None or low.memory == trace.peak.memory:
        return ""
    most, least = memory_parts(trace.peak), memory_parts(low)
    kind, more = max(((kind, held - least.get(kind, 0)) for kind, held in most.items()), key=itemgetter(1))
    return f"more than rank {low.rank} above all by {_counted(kind, more, _sizes(trace))}"


def moment(peak: Event, trace: Trace, one: bool = True) -> str:
    """Return what happens when a memory sample is taken, of ``one`` rank or of several with different micro-batches.

    Memory is sampled when an operation is issued, so the result of a compute is first in the sample of the operation
    after it. If that is communication at the same moment, both are named.
    """
    if peak.kind == END:
        return "the end of the program"
    text, before = words_of(peak, one, one), _just_ended(peak, trace)
    if peak.kind in MARKS:
        return text
    return f"{text} begins" if before is None else f"{words_of(before, one, one)} ends, and {text} begins"


def _just_ended(peak: Event, trace: Trace) -> Event | None:
    """Return the compute that ends when a communication is issued, if there is one."""
    if peak.stream == "compute":
        return None
    before = takewhile(lambda event: event is not peak, trace.by_rank[peak.rank])
    computes = [event for event in before if event.stream == "compute" and event.length]
    return computes[-1] if computes and computes[-1].end == peak.issued else None
