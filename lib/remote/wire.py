"""Messages between a worker and the grader: one line of JSON each, over a socket.

JSON and not pickle, since whatever reads this end must survive whatever is written at the other.
"""

from __future__ import annotations

import json
import socket
import time
from fractions import Fraction
from typing import Any

from ..basics.errors import PuzzleError
from ..basics.units import Elements
from ..record.events import Event, make_event
from ..record.labels import FINEST, KINDS, Labels

LONGEST = 1 << 14
"""Bytes of a message from a worker."""


class Garbled(Exception):
    """What came is no message that this library would have written."""


class Wire:
    """One end of the line."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.buffer = bytearray()
        self.read = 0  # bytes, so far

    def send(self, message: Any, deadline: float | None = None) -> None:
        """Write a message. Raises TimeoutError after the deadline (of time.monotonic), OSError when nobody reads."""
        self._wait_until(deadline)
        self.end.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def receive(self, deadline: float | None = None, longest: int | None = LONGEST) -> Any:
        """The next message. Raises Garbled, EOFError when the other end is closed, TimeoutError after the deadline."""
        while (stop := self.buffer.find(b"\n")) < 0:
            if longest is not None and len(self.buffer) > longest:
                raise Garbled(f"a message of more than {longest} bytes")
            self._wait_until(deadline)
            piece = self.end.recv(1 << 16)
            if not piece:
                raise EOFError
            self.buffer += piece
            self.read += len(piece)
        line = self.buffer[:stop]
        del self.buffer[: stop + 1]
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Garbled(f"no JSON: {error}") from None

    def _wait_until(self, deadline: float | None) -> None:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.end.settimeout(left)

    def wait_for_end(self) -> None:
        """Until the other end hangs up. To close with something unread would take back what was written last."""
        self.end.shutdown(socket.SHUT_WR)
        while self.end.recv(1 << 16):
            pass

    def close(self) -> None:
        """Hang up."""
        self.end.close()


# -- what messages are made of ----------------------------------------------------------------------


def pack_labels(labels: Labels) -> list[Any]:
    """Labels as a list; sets in order."""
    kind, layer, layers, step, batches, total_batches, shards, total = labels
    return [kind, layer, layers, step, sorted(batches), total_batches, sorted(shards), total]


def unpack_labels(packed: Any) -> Labels:
    """Labels from a list. Raises Garbled for anything that no tensor could have."""
    if type(packed) is not list or len(packed) != len(Labels._fields):
        raise Garbled("no labels")
    kind, layer, layers, step, batches, total_batches, shards, total = packed
    for value in (layer, layers, step, total_batches, total):
        number(value)
    if kind not in KINDS or not 1 <= total <= FINEST:
        raise Garbled("no labels")
    return Labels(kind, layer, layers, step, numbers(batches), total_batches, numbers(shards), total)


def number(value: Any) -> int:
    """A whole number of a size that somebody could mean. Raises Garbled."""
    if type(value) is not int or not -(1 << 62) < value < 1 << 62:
        raise Garbled("no number")
    return value


def numbers(values: Any) -> frozenset[int]:
    """A set of whole numbers. Raises Garbled."""
    if type(values) is not list:
        raise Garbled("no list of numbers")
    return frozenset(map(number, values))


def pack_elements(elements: Elements) -> int | str:
    """A size: a number, or a fraction as text."""
    return elements if isinstance(elements, int) else str(elements)


def unpack_elements(packed: int | str) -> Elements:
    """The size that was packed."""
    return packed if isinstance(packed, int) else Fraction(packed)


def pack_event(event: Event) -> list[Any]:
    """A record of the log as a list."""
    held, op = [pack_elements(part) for part in event.held], event.op and list(event.op)
    return [*event[:3], sorted(event.batches), *event[4:7], held, op, *event[9:11], pack_elements(event.elements)]


def unpack_event(packed: list[Any]) -> Event:
    """The record that was packed."""
    op, group = packed[8] and tuple(packed[8]), tuple(packed[9])
    held = tuple(map(unpack_elements, packed[7]))
    last = packed[10], unpack_elements(packed[11])
    return make_event((*packed[:3], frozenset(packed[3]), *packed[4:7], held, op, group, *last))


def pack_error(error: PuzzleError) -> dict[str, str]:
    """An error as its parts."""
    return {part: str(getattr(error, part))[:LONGEST_TEXT] for part in PARTS}


def unpack_error(packed: Any) -> dict[str, str]:
    """The parts of an error, as PuzzleError takes them. Raises Garbled."""
    if type(packed) is not dict or not all(type(packed.get(part)) is str for part in PARTS):
        raise Garbled("no error")
    return {part: shown(packed[part], LONGEST_TEXT) for part in PARTS}


PARTS = ("problem", "where", "expected", "got", "cure", "line")
LONGEST_TEXT = 4000


def shown(text: str, longest: int) -> str:
    """Text from somewhere else, safe to show: nothing that moves a cursor or breaks XML, and not too long."""
    clean = "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text[: longest + 1])
    return clean if len(clean) <= longest else clean[:longest] + " ..."
