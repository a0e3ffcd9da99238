"""Errors as plain data, and texts from elsewhere that are safe to show."""

from typing import Any

from ..basics.errors import Place, PuzzleError
from .wire import CHARACTER, ProtocolError

TEXTS = ("problem", "expected", "got", "fix", "line")  # the parts of an error that are texts
LONGEST_TEXT = 4000  # characters of each, and of what a place says
MOST_FIXES = 8  # puzzles' own fixes (``fix_for``) of an error
LONGEST_ERROR = (len(TEXTS) + 2 + 2 * MOST_FIXES) * LONGEST_TEXT * CHARACTER  # bytes of all these in JSON


def pack_error(error: PuzzleError) -> dict[str, Any]:
    """Return an error as its parts, which JSON can carry."""
    texts = {part: str(getattr(error, part))[:LONGEST_TEXT] for part in TEXTS}
    *others, batches, tick, detail = shown_place(error.place)
    error.settle()
    fixes = {name: str(fix)[:LONGEST_TEXT] for name, fix in [*error.fix_for.items()][:MOST_FIXES]}
    return {
        "where": [*others, None if batches is None else sorted(batches), tick, detail],
        "fix_for": fixes,
        **texts,
    }


def unpack_error(packed: object) -> dict[str, Any]:
    """Return the parts of an error, as PuzzleError takes them. Raise ProtocolError if they are none."""
    if type(packed) is not dict or not all(type(packed.get(part)) is str for part in TEXTS):
        raise ProtocolError("no error")
    texts = {part: shown(packed[part], LONGEST_TEXT) for part in TEXTS}
    return {"where": _unpack_place(packed.get("where")), "fix_for": _unpack_fixes(packed.get("fix_for")), **texts}


def _unpack_fixes(packed: object) -> dict[str, str]:
    if type(packed) is not dict or len(packed) > MOST_FIXES or not all(type(fix) is str for fix in packed.values()):
        raise ProtocolError("no fixes")
    return {shown(name, LONGEST_TEXT): shown(fix, LONGEST_TEXT) for name, fix in packed.items() if type(name) is str}


def _unpack_place(packed: object) -> Place:
    if type(packed) is not list or len(packed) != len(Place._fields):
        raise ProtocolError("no place")
    rank, operation, layer, batches, tick, detail = packed
    if type(operation) is not str or type(detail) is not str or not (tick is None or type(tick) in (int, float)):
        raise ProtocolError("no place")
    rank, layer = (None if value is None else number(value) for value in (rank, layer))
    return shown_place(Place(rank, operation, layer, None if batches is None else numbers(batches), tick, detail))


def number(value: object) -> int:
    """Return a whole number of a sensible size. Raise ProtocolError for anything else."""
    if type(value) is not int or not -(1 << 62) < value < 1 << 62:
        raise ProtocolError("no number")
    return value


def numbers(values: object) -> frozenset[int]:
    """Return a set of whole numbers. Raise ProtocolError for anything else."""
    if type(values) is not list:
        raise ProtocolError("no list of numbers")
    return frozenset(map(number, values))


def presentable(error: PuzzleError) -> PuzzleError:
    """Return the error with every part safe to show, and none too long: a worker may have written into it."""
    error.settle()
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
    """Return a text from elsewhere, safe to show: nothing that moves a cursor or breaks XML, and not too long."""
    clean = text[: longest + 1]
    if not clean.isprintable():
        clean = "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in clean)
    return clean if len(clean) <= longest else clean[:longest] + " ..."
