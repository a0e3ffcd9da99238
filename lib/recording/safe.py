"""Errors as plain data, and texts from elsewhere that are safe to show."""

from typing import Any

from ..basics.errors import Place, PuzzleError
from ..basics.rules import ARGUMENT, RULES
from .wire import CHARACTER, ProtocolError

TEXTS = ("problem", "expected", "got", "line")  # the parts of an error that are texts
LONGEST_TEXT = 4000  # characters of each, and of what a place says
MOST_FACTS = 8  # of one error
LONGEST_ERROR = (len(TEXTS) + 3 + 2 * MOST_FACTS) * LONGEST_TEXT * CHARACTER  # bytes of all these in JSON


def pack_error(error: PuzzleError) -> dict[str, Any]:
    """Return an error as its parts, which JSON can carry. What its rule says is told already; facts are texts."""
    *others, batches, tick, detail = shown_place(error.place)
    where = [*others, None if batches is None else sorted(batches), tick, detail]
    texts = {part: str(getattr(error, part))[:LONGEST_TEXT] for part in TEXTS}
    facts = {name: str(fact)[:LONGEST_TEXT] for name, fact in error.facts.items()}
    return {"rule": error.rule, "facts": facts, "where": where, **texts}


def unpack_error(packed: object) -> PuzzleError:
    """Return an error of these parts. Raise ProtocolError if they are none."""
    if type(packed) is not dict or not all(type(packed.get(part)) is str for part in ("rule", *TEXTS)):
        raise ProtocolError("no error")
    facts = packed.get("facts")
    if type(facts) is not dict or len(facts) > MOST_FACTS or {*map(type, facts.values())} - {str}:
        raise ProtocolError("no facts")
    problem, *others = (shown(packed[part], LONGEST_TEXT) for part in TEXTS)
    where = _unpack_place(packed.get("where"))
    error = PuzzleError("an error from elsewhere", where=where, **dict(zip(TEXTS[1:], others, strict=True)))
    error.rule, error.problem = packed["rule"] if packed["rule"] in RULES else ARGUMENT, problem
    error.facts = {name[:LONGEST_TEXT]: shown(fact, LONGEST_TEXT) for name, fact in facts.items()}
    return error


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
