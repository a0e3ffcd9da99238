"""What an explanation takes from an error: its facts, whatever form they have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..basics.errors import NOWHERE, Deadlock, Place
from ..record.kinds import STORES

_KEY = re.compile(r"(\w+)\[(.*)\]$")
_IN_FLIGHT = re.compile(r"<(\w+)\b[^<>]*, in flight>")


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """The facts of an error. ``store`` and ``key``: where a dictionary was asked for what it has not. ``flying``: the
    verb of the communication that came in the place of its result. ``stuck``: by rank the line at which it waits, of a
    machine in which nobody can go on."""

    place: Place
    rule: str
    problem: str
    expected: str
    got: str
    line: int
    store: str = ""
    key: str = ""
    flying: str = ""
    stuck: Mapping[int, int] | None = None


def facts_of(error: Any) -> Wrong:
    """Return the facts of an error. A learner may raise one with anything in it, or nothing."""
    place = getattr(error, "place", NOWHERE)
    place = place if isinstance(place, Place) else NOWHERE
    texts = {part: str(getattr(error, part, "")) for part in ("rule", "problem", "expected", "got")}
    store, key = "", ""
    missing = isinstance(error, KeyError) or texts["rule"] == "not_stored"
    if missing and (named := _KEY.match(place.detail)) and named[1] in STORES:
        store, key = named[1], named[2]
        key = key if key[:1] in "'\"" or "," not in key else f"({key})"  # a pair is written without parentheses
    stuck = {rank: number_of(line) for rank, line in error.lines.items()} if isinstance(error, Deadlock) else None
    flying = _IN_FLIGHT.search(texts["got"] or texts["problem"])
    texts |= {"store": store, "key": key, "flying": flying[1] if flying else ""}
    return Wrong(place=place, line=number_of(getattr(error, "line", "")), stuck=stuck, **texts)


def number_of(line: object) -> int:
    """Return the number of a line of the learner's code, or 0 where it is not known."""
    known = getattr(line, "number", None)
    found = re.match(r"line (\d+)", str(line))
    return known if type(known) is int else int(found[1]) if found else 0
