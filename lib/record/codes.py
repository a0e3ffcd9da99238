"""The log as text: one short code for each operation, and one line for each rank.

``2F0`` is the forward of layer 2 on micro-batch 0, ``2B0`` its backward, ``L0`` the loss, ``2U`` the update; ``2AG``,
``2RS`` and ``2AR`` are all-gather, reduce-scatter and all-reduce; ``>3`` sends to rank 3, ``<1`` receives from rank 1.
One call for several layers has all of them, in its order: ``0-2AG``, ``5-3,0RS``, and ``2-2AG`` for a list of one.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from shutil import get_terminal_size
from types import MappingProxyType
from typing import NamedTuple

from ..basics.errors import PuzzleError, number_ranges
from ..basics.units import TICKS, Unit
from .events import MARKS, Event
from .operations import Message
from .table import OPERATIONS, SEND, operation, row_of

COLUMNS = 110
"""Characters of a line where there is no terminal: about what a notebook shows of one."""
MANY_COPIES = 4
"""So many ranks that do the same as another one are many."""
CELLS = 200_000
"""Ranks times moments up to which a grid is aligned in time. A larger one lists the codes of each rank in order."""
_SPAN = r"-?\d+(?:--?\d+)?"
_CODE = re.compile(rf"((?:{_SPAN}(?:,{_SPAN})*)?)([A-Za-z_]+|[<>])((?:\d+(?:-\d+)?(?:,(?=\d))?)*)")


class Code(NamedTuple):
    """What a code says: ``numbers`` are micro-batches, or the other rank of a send or receive; ``layers`` are those of
    a collective that got a list, ``layer`` being the first of them."""

    kind: str
    layer: int | None = None
    numbers: frozenset[int] = frozenset()
    layers: tuple[int, ...] = ()

    def __str__(self) -> str:
        layers = _spans(self.layers) if self.layers else "" if self.layer is None else str(self.layer)
        return layers + letters_of(self.kind) + _numbers(self.numbers)


def letters_of(kind: str) -> str:
    """Return the letters that stand for an operation, or its verb if it has none. What only profiles have is written
    without letters."""
    row = row_of(kind)
    return row.code if row else kind


def code_of(event: Event) -> Code:
    """Return the code of an operation."""
    row = OPERATIONS.get(event.kind)
    if isinstance(row, Message):
        return Code(event.kind, None, frozenset(event.group) - {event.rank})
    layer = event.layer if row is None or row.layered else None
    return Code(event.kind, layer, event.batches if row is not None and row.by_batch else frozenset(), event.layers)


def text_of(event: Event) -> str:
    """Return the code of an operation as text: the same as ``str(code_of(event))``, of which most is known already, as
    ranks that do the same have the same codes, but for their micro-batches."""
    front, numbered = _front(event.kind, event.layer, event.layers)
    if not numbered:
        return front
    return front + _numbers(frozenset(event.group) - {event.rank} if numbered == _PEER else event.batches)


_PEER, _BATCHES = "peer", "batches"
"""What stands behind the letters of a code."""


@lru_cache(maxsize=1 << 12)
def _front(kind: str, layer: int | None, layers: tuple[int, ...]) -> tuple[str, str]:
    row = OPERATIONS.get(kind)
    if isinstance(row, Message):
        return str(Code(kind)), _PEER
    layer = layer if row is None or row.layered else None
    return str(Code(kind, layer, layers=layers)), _BATCHES if row is not None and row.by_batch else ""


@lru_cache(maxsize=1 << 12)
def _numbers(numbers: frozenset[int]) -> str:
    return ",".join(number_ranges(numbers)).replace(" ", "")


def legend(kind: str) -> str:
    """Return what the letters of an operation mean: ``AG all-gather``, ``>1 send to rank 1``."""
    row = operation(kind)
    if isinstance(row, Message):
        way = "to" if row is SEND else "from"
        return f"{row.code}1 {row.word} {way} rank 1"
    return f"{row.code} {row.word}"


def read_code(text: str) -> Code:
    """Return what a code says. Raise PuzzleError for a text that is no code.

    >>> read_code("2F0,4-6")
    Code(kind='forward', layer=2, numbers=frozenset({0, 4, 5, 6}), layers=())
    >>> read_code("5-3,0RS").layers
    (5, 4, 3, 0)
    """
    found = _CODE.fullmatch(text)
    if found is None:
        raise PuzzleError(f"{text!r} is no code of an operation", expected="such as 2F0, 2AG or >3")
    named, letters, numbers = found.groups()
    layers = _read_spans(named)
    spans = [span.split("-") for span in numbers.split(",") if span]
    kinds = {row.code: row.kind for row in OPERATIONS.values()}
    return Code(
        kinds.get(letters, letters),
        layers[0] if layers else None,
        frozenset(number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)),
        () if re.fullmatch(r"-?\d+|", named) else layers,
    )


def _spans(layers: Sequence[int]) -> str:
    """Return a list of layers in its order, with what runs up or down one by one as a span.

    >>> _spans([0, 1, 2, 7]), _spans([5, 4, 3, 0]), _spans([2])
    ('0-2,7', '5-3,0', '2-2')
    """
    runs: list[list[int]] = []
    for layer in layers:
        step = layer - runs[-1][-1] if runs else 0
        if abs(step) == 1 and (len(runs[-1]) == 1 or runs[-1][1] - runs[-1][0] == step):
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ",".join(f"{run[0]}-{run[-1]}" if run[1:] or not layers[1:] else str(run[0]) for run in runs)


def _read_spans(text: str) -> tuple[int, ...]:
    """Return the layers that a code names, in its order."""
    found: list[int] = []
    for first, last in re.findall(r"(-?\d+)(?:-(-?\d+))?", text):
        start, stop = int(first), int(last or first)
        step = 1 if start <= stop else -1
        found += range(start, stop + step, step)
    return tuple(found)


def line_width() -> int:
    """Return how many characters a line has room for: those of the terminal, or of a notebook's cell."""
    return get_terminal_size((COLUMNS, 24)).columns


def copies(events: Iterable[Event]) -> list[int]:
    """Return the ranks whose lines need not be shown: of many that do the same at the same time on other micro-batches,
    all but two."""
    done: dict[int, list[tuple[object, ...]]] = {}
    for event in events:
        peers = event.group if isinstance(OPERATIONS.get(event.kind), Message) else ()
        what = event.kind, event.layer, event.layers, len(event.batches), event.start, event.end, peers
        done.setdefault(event.rank, []).append(what)
    first, *others = sorted(done)
    copied = [rank for rank in others if done[rank] == done[first]]
    return copied[1:] if len(copied) >= MANY_COPIES else []


def grid(
    events: Iterable[Event],
    unit: Unit = TICKS,
    marks: Mapping[int, tuple[float, str]] = MappingProxyType({}),
    width: int | None = None,
    hosts: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> str:
    """Return a line for each rank, with a column for each moment at which some rank starts something. ``+`` joins what
    starts at the same time, ``-`` goes on, ``.`` is idle. ``marks``: where the row of a rank ends, a tick and a mark.
    ``hosts``: the devices of each host, by its rank.

    Lines longer than ``width`` characters, by default those of the terminal, are wrapped: below the first columns come
    the next ones, with their ticks and ranks.
    """
    by_rank: dict[int, list[Event]] = {}
    for event in events:
        own = by_rank.setdefault(event.rank, [])
        if event.kind not in MARKS:
            own.append(event)
    for own in by_rank.values():
        own.sort(key=attrgetter("start", "end"))
    names = {
        rank: f"rank {rank}" + (f", host of {','.join(number_ranges(hosts[rank]))}" if rank in hosts else "")
        for rank in below_devices(by_rank.keys() | marks.keys(), hosts)
    }
    moments = sorted({event.start for own in by_rank.values() for event in own} | {tick for tick, _ in marks.values()})
    if len(moments) * len(names) > CELLS:
        codes = {rank: [text_of(event) for event in by_rank.get(rank, ())] for rank in names}
        for rank, (_, mark) in marks.items():
            codes[rank].append(mark)
        return "\n".join(f"{name}  {' '.join(codes[rank])}" for rank, name in names.items())
    rows = {unit.one: [unit.show(moment) for moment in moments]}
    columns = {moment: at for at, moment in enumerate(moments)}
    rows |= {
        name: _cells(by_rank.get(rank, []), moments, columns, *marks.get(rank, ())) for rank, name in names.items()
    }
    return _aligned(rows, width or line_width())


def below_devices(ranks: Iterable[int], hosts: Mapping[int, Sequence[int]]) -> list[int]:
    """Return ranks in the order in which they are listed for people: a host after its devices.

    >>> below_devices(range(6), {4: (0, 1), 5: (2, 3)})
    [0, 1, 4, 2, 3, 5]
    """
    return sorted(ranks, key=lambda rank: (hosts[rank][-1], 1) if rank in hosts else (rank, 0))


def _cells(
    own: Sequence[Event], moments: Sequence[float], columns: Mapping[float, int], tick: float = 0.0, mark: str = ""
) -> list[str]:
    """Return what stands below each moment, by the operations of a rank. ``columns``: the moments by their places."""
    cells, before = ["."] * len(moments), -1
    for event in own:  # by their starts: what goes on is written before what starts meanwhile
        at, last, text = columns[event.start], columns.get(event.end), text_of(event)
        if last is None:
            last = bisect_left(moments, event.end)
        if last > at + 1:
            cells[at + 1 : last] = ["-"] * (last - at - 1)
        cells[at] = f"{cells[at]}+{text}" if at == before else text
        before = at
    at = bisect_left(moments, tick)
    if mark == "~":
        return [*cells[:at], *(mark if cell == "." else cell for cell in cells[at:])]
    if mark:
        cells[at] = mark if cells[at] in ".-" else cells[at] + mark
    return cells


def _aligned(rows: Mapping[str, Sequence[str]], width: int) -> str:
    widths = [max(map(len, column)) for column in zip(*rows.values(), strict=True)]
    left = max(map(len, rows))
    blocks = []
    for first, last in _blocks(widths, width - left - 1):
        lines = (
            f"{name:{left}}  "
            + " ".join(f"{cell:{own}}" for cell, own in zip(cells[first:last], widths[first:last], strict=True))
            for name, cells in rows.items()
        )
        blocks.append("\n".join(line.rstrip() for line in lines))
    return "\n\n".join(blocks)


def _blocks(widths: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Return from where to where columns of these widths stand below each other, as many as there is room for."""
    blocks, first, used = [], 0, 0
    for at, width in enumerate(widths):
        if used + width + 1 > room and at > first:
            blocks.append((first, at))
            first, used = at, 0
        used += width + 1
    return [*blocks, (first, len(widths))]
