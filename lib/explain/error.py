"""What an explanation takes from an error: its facts."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..basics.errors import NOWHERE, Place
from ..recording.recorder import LONGEST_KEY


class Wrong(NamedTuple):
    """The facts of an error. ``store`` and ``key``: where a dictionary was asked for what it has not."""

    place: Place
    rule: str
    line: int
    store: str = ""
    key: str = ""


def facts_of(error: Any) -> Wrong:
    """Return the facts of an error. A learner may raise one with anything in it, or nothing."""
    place, rule = getattr(error, "place", NOWHERE), getattr(error, "rule", "")
    facts = getattr(error, "facts", {}) if rule == "not_stored" else {}
    return Wrong(
        place if isinstance(place, Place) else NOWHERE,
        rule,
        number_of(getattr(error, "line", "")),
        str(facts.get("store", "")),
        str(facts.get("key", ""))[:LONGEST_KEY],
    )


def number_of(line: object) -> int:
    """Return the number of a line of the learner's code, or 0 where it is not known."""
    known = getattr(line, "number", None)
    found = re.match(r"line (\d+)", str(line))
    return known if type(known) is int else int(found[1]) if found else 0
