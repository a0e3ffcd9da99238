"""What a worker and the grader write to each other: lines of JSON, over a socket.

===========================================  ========================================================================
the worker asks                              ``[verb, rank, coroutine, *arguments]``
it tells what has no result, and then asks   ``[[verb, ...], [verb, ...], [verb, ...]]``: the last one is the question
the grader answers                           ``[0, result, woken]``, or ``[1, error, woken]``; woken: calls that ended,
                                             each ``[number, what it brings]``; a tensor is
                                             ``["tensor", number, labels, size]``
and says what was wrong with what was told   ``[0, result, woken, [[place, rank, error], ...]]``
the worker's last line                       ``["done"]``, ``["failed", error, ...]`` or ``["missing", ...]``
===========================================  ========================================================================

A question costs two switches between processes, several times what its messages cost. So what has no result is kept
until there is a question. It is JSON and not pickle: to read pickle from a worker would be to run what it likes.
"""

import json
import socket
import time
from fractions import Fraction
from typing import Any

from ..basics.errors import Place, PuzzleError
from ..basics.units import Elements
from ..record.events import Event
from ..record.kinds import KINDS
from ..record.labels import FINEST, NO_EXTRA, ExtraLabels, Labels
from ..record.training import KEEP

LONGEST = 1 << 15  # bytes of a line from a worker, at most
NEWS = 0.1  # seconds after which a socket is told anew how long it may wait: each time is a call of the system's

encode = json.JSONEncoder(separators=(",", ":")).encode
decode = json.JSONDecoder().decode


def written(value: Any) -> str:
    """Return a value as JSON. (As ``encode`` does, for a whole number or nothing in a tenth of the time.)"""
    if value.__class__ is int:
        return repr(value)
    return "null" if value is None else encode(value)


class ProtocolError(Exception):
    """Raised for a message that this library would not have written."""


class Wire:
    """One end of the line. ``read`` counts the bytes received."""

    def __init__(self, end: socket.socket) -> None:
        self.end, self.buffer, self.read = end, bytearray(), 0
        self.deadline: float | None = None
        self.told = 0.0  # when the socket was told of it

    def send(self, message: Any, deadline: float | None = None) -> None:
        """Write a line. Raise TimeoutError after the deadline (of time.monotonic), or OSError if nobody reads."""
        self.write(encode(message), deadline)

    def write(self, text: str, deadline: float | None = None) -> None:
        """Write a line that is JSON already, as ``send`` does."""
        self._wait_until(deadline)
        self.end.sendall(text.encode() + b"\n")

    def receive(self, deadline: float | None = None, longest: int | None = LONGEST) -> Any:
        """Return the next line. Raise ProtocolError, EOFError if the other end is closed, or TimeoutError."""
        while (stop := self.buffer.find(b"\n")) < 0:
            if longest is not None and len(self.buffer) > longest:
                raise ProtocolError(f"a line of more than {longest} bytes")
            self._wait_until(deadline)
            piece = self.end.recv(1 << 16)
            if not piece:
                raise EOFError
            self.buffer += piece
            self.read += len(piece)
        line = self.buffer[:stop]
        del self.buffer[: stop + 1]
        try:
            return decode(line.decode())
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"no JSON: {error}") from None

    def _wait_until(self, deadline: float | None) -> None:
        if deadline is not None:
            now = time.monotonic()
            if now >= deadline:
                raise TimeoutError
            if deadline != self.deadline or now >= self.told + NEWS:
                self.end.settimeout(deadline - now)
                self.deadline, self.told = deadline, now

    def wait_for_end(self) -> None:
        """Wait until the other end hangs up: to close before could lose what was written last."""
        self.end.shutdown(socket.SHUT_WR)
        while self.end.recv(1 << 16):
            pass

    def close(self) -> None:
        """Hang up."""
        self.end.close()


AS_IT_IS = (int, str, bool, float, type(None))


def pack(value: Any) -> Any:
    """Return labels, an event or a size as JSON carries it, also in lists: sets in order, and fractions as text."""
    if isinstance(value, (tuple, list)):
        return [one if one.__class__ in AS_IT_IS else pack(one) for one in value]
    if isinstance(value, (frozenset, set)):
        return sorted(value)
    return str(value) if value.__class__ is Fraction else value


def pack_labels(labels: Labels) -> list[Any]:
    """Return labels as JSON carries them. (As ``pack`` does, in a third of the time.)"""
    kind, layer, layers, step, batches, total_batches, shards, total, extra = labels
    packed = None if extra == NO_EXTRA else pack(extra)
    return [kind, layer, layers, step, sorted(batches), total_batches, sorted(shards), total, packed]


def read_labels(packed: list[Any]) -> Labels:
    """Return labels that the grader has packed. What a worker has packed is to be read by ``unpack_labels``."""
    kind, layer, layers, step, batches, total_batches, shards, total, extra = packed
    known = NO_EXTRA if extra is None else _unpack_rare(extra)
    return Labels(kind, layer, layers, step, frozenset(batches), total_batches, frozenset(shards), total, known)


def unpack_labels(packed: Any) -> Labels:
    """Return labels from a list. Raise ProtocolError for anything that no tensor could have."""
    if type(packed) is not list or len(packed) != len(Labels._fields):
        raise ProtocolError("no labels")
    labels = Labels(*[check(value) for check, value in zip(CHECKS, packed, strict=True)])
    if not 1 <= labels.total <= FINEST:
        raise ProtocolError("no labels")
    return labels


def _kind(packed: Any) -> str:
    if type(packed) is not str or packed not in KINDS:
        raise ProtocolError("no labels")
    return packed


def _unpack_rare(packed: Any) -> ExtraLabels:
    if packed is None:
        return NO_EXTRA
    if type(packed) is not list or len(packed) != len(ExtraLabels._fields):
        raise ProtocolError("no labels")
    parts, of, keep, adapter, homes = packed
    if keep not in ("", *KEEP) or not 1 <= number(of) <= FINEST or type(adapter) is not bool or type(homes) is not list:
        raise ProtocolError("no labels")
    return ExtraLabels(numbers(parts), of, keep, adapter, tuple(map(numbers, homes)))


def number(value: Any) -> int:
    """Return a whole number of a sensible size. Raise ProtocolError for anything else."""
    if type(value) is not int or not -(1 << 62) < value < 1 << 62:
        raise ProtocolError("no number")
    return value


def numbers(values: Any) -> frozenset[int]:
    """Return a set of whole numbers. Raise ProtocolError for anything else."""
    if type(values) is not list:
        raise ProtocolError("no list of numbers")
    return frozenset(map(number, values))


CHECKS: list[Any] = [
    {"kind": _kind, "extra": _unpack_rare}.get(name)
    or (numbers if isinstance(Labels._field_defaults.get(name), frozenset) else number)
    for name in Labels._fields
]
"""What each field of labels has to be, in their order."""


def unpack_elements(packed: int | str) -> Elements:
    """Return the size in elements that was packed."""
    return packed if isinstance(packed, int) else Fraction(packed)


def unpack_event(packed: list[Any]) -> Event:
    """Return the record that was packed."""
    event = Event(*packed)
    held, elements = tuple(map(unpack_elements, event.held)), unpack_elements(event.elements)  # type: ignore[arg-type]
    op, group = event.op and tuple(event.op), tuple(event.group)
    sets = {
        "batches": frozenset(event.batches),
        "words": tuple(event.words),
        "layers": tuple(event.layers),
        "awaited": tuple(event.awaited),
    }
    return event._replace(**sets, held=held, op=op, group=group, elements=elements)  # type: ignore[arg-type]


TEXTS = ("problem", "expected", "got", "fix", "line")  # the parts of an error that are texts
LONGEST_TEXT = 4000


def pack_error(error: PuzzleError) -> dict[str, Any]:
    """Return an error as its parts."""
    texts = {part: str(getattr(error, part))[:LONGEST_TEXT] for part in TEXTS}
    return {"where": pack(shown_place(error.place)), **texts}


def unpack_error(packed: Any) -> dict[str, Any]:
    """Return the parts of an error, as PuzzleError takes them. Raise ProtocolError if they are none."""
    if type(packed) is not dict or not all(type(packed.get(part)) is str for part in TEXTS):
        raise ProtocolError("no error")
    texts = {part: shown(packed[part], LONGEST_TEXT) for part in TEXTS}
    return {"where": _unpack_place(packed.get("where")), **texts}


def _unpack_place(packed: Any) -> Place:
    if type(packed) is not list or len(packed) != len(Place._fields):
        raise ProtocolError("no place")
    rank, operation, layer, batches, tick, detail = packed
    if type(operation) is not str or type(detail) is not str or not (tick is None or type(tick) in (int, float)):
        raise ProtocolError("no place")
    rank, layer = (None if value is None else number(value) for value in (rank, layer))
    return shown_place(Place(rank, operation, layer, None if batches is None else numbers(batches), tick, detail))


def presentable(error: PuzzleError) -> PuzzleError:
    """Return the error with every part safe to show, and none too long: a worker may have written into it."""
    for part in TEXTS:
        setattr(error, part, shown(getattr(error, part), LONGEST_TEXT - len(" ...")))
    error.place = shown_place(error.place)
    return error


def shown_place(place: Place) -> Place:
    """Return a place that is safe to show: its layer may be anything that a learner wrote."""
    longest = LONGEST_TEXT - len(" ...")
    if place.layer is not None and type(place.layer) is not int:
        place = place._replace(layer=None, detail=f"layer {place.layer}, {place.detail}")
    return place._replace(operation=shown(place.operation, longest), detail=shown(place.detail, longest))


def shown(text: str, longest: int) -> str:
    """Return a text from the other end, safe to show: nothing that moves a cursor or breaks XML, and not too long."""
    clean = "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text[: longest + 1])
    return clean if len(clean) <= longest else clean[:longest] + " ..."
