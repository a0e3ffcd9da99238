"""Where each call of a recording was written, and what dictionaries did: what a run is explained with.

A replay needs none of it, and believes none of it (see ``lib.explain``).
"""

from typing import Any

from .safe import shown
from .wire import ProtocolError

LONGEST_KEY, LONGEST_LINE = 80, 400  # characters of a key as it is written, and of a line
STORED, REPLACED, TAKEN, READ = "stored", "replaced", "taken", "read"
"""What a dictionary does with a tensor: it is stored, another one is stored over it, it is taken out, it is read."""

Diary = tuple[list[int], list[list[Any]], list[list[Any]]]
"""The lines of the calls, their places, and what dictionaries did (see ``recorder.Writer``)."""


def read_diary(diary: object) -> Diary:
    """Return a diary that may come from anybody; an empty one for None. Raise ProtocolError for what no recorder has
    written."""
    if diary is None:
        return [], [], []
    if type(diary) is not list or [*map(type, diary)] != [list, list, list]:
        raise ProtocolError("no diary")
    lines, places, kept = diary
    numbered = [type(line) is int and 0 <= line < len(places) for line in lines]
    known = [_is_row(row, int, str, str) for row in places]
    done = [_is_row(row, int, str, int, str, str, int) and row[5] < len(places) and row[2] >= 0 for row in kept]
    if not all([*numbered, *known, *done]):
        raise ProtocolError("no diary")
    places = [[number, *(shown(text, LONGEST_LINE) for text in texts)] for number, *texts in places]
    kept = [
        [at, shown(way, 20), tensor, shown(store, 20), shown(key, LONGEST_KEY), place]
        for at, way, tensor, store, key, place in kept
    ]
    return lines, places, kept


def _is_row(row: object, *types: type) -> bool:
    return type(row) is list and tuple(map(type, row)) == types
