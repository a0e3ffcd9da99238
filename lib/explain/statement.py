"""What an explanation says, as data: which sentence, and the calls and tensors that it speaks of."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..basics.errors import Place
from ..record.labels import Labels
from .lineage import leaves, origin
from .notes import PARTS, Call, Kept, Line, Tensor

LOOK_AT = "look_at"
"""The name of a statement that only says where to look."""
A_RIGHT_RUN = "a right run"
OWN, RIGHT = "own", "right"
"""Of which run a call or a tensor is: of the one that is explained, or of a right one."""


class CallFact(NamedTuple):
    """A call of a run, as data. ``at``: its place in that run's recording."""

    run: str
    at: int
    rank: int
    kind: str
    layer: int | tuple[int, ...] | None
    batches: tuple[int, ...]
    axis: str | tuple[str, ...] | None
    options: tuple[str, ...]
    peer: int | None
    carries: tuple[str, ...]
    line: Line


class TensorFact(NamedTuple):
    """A tensor of a run, as data: its labels, the call that has made it, and where it came from before it was sent,
    cut, joined or added up, if it was. ``summed``: of how many tensors it is a sum made by hand."""

    run: str
    labels: Labels
    maker: CallFact
    source: CallFact | None
    summed: int


class KeptFact(NamedTuple):
    """What a dictionary has done with a tensor, as data."""

    way: str
    store: str
    key: str
    line: Line


class Statement(NamedTuple):
    """A sentence as data: its name in the table of ``words``, and what it speaks of, by name."""

    name: str
    facts: dict[str, Any]


class Explanation(NamedTuple):
    """Why a run is wrong, slow or large, as data. ``place``: where it has failed. ``given``: what is wrong with which
    operand. ``look_at``: where to look. ``difference``: what the run ``compared_with`` does. ``written``: its lines."""

    place: Place
    given: tuple[Statement, ...] = ()
    look_at: tuple[Statement, ...] = ()
    difference: tuple[Statement, ...] = ()
    reference: str = ""
    compared_with: str = A_RIGHT_RUN
    written: frozenset[str] = frozenset()

    def statements(self) -> tuple[Statement, ...]:
        """Return all that is said, the most important first."""
        return (*self.look_at, *self.given, *self.difference)


def say(name: str, /, **things: Any) -> Statement:
    """Return a statement on calls and tensors, which are of this run, or of a right one where their name begins with
    ``right``."""
    return Statement(name, {key: fact(one, RIGHT if key.startswith(RIGHT) else OWN) for key, one in things.items()})


def fact(thing: Any, run: str = OWN) -> Any:
    """Return calls and tensors as data, and anything else as it is."""
    if isinstance(thing, Call):
        axis = thing.axis if thing.axis is None or isinstance(thing.axis, tuple) else str(thing.axis)
        own = thing.at, thing.rank, thing.kind, thing.layer, tuple(sorted(thing.batches)), axis
        return CallFact(run, *own, thing.options, thing.peer, thing.carries, thing.line)
    if isinstance(thing, Tensor):
        source = origin(thing, ("receive", *PARTS))  # or the first one of a sum made by hand
        came = fact(source.call, run) if source is not thing else None
        return TensorFact(run, thing.labels, fact(thing.call, run), came, len(leaves(thing)))
    if isinstance(thing, Kept):
        return KeptFact(thing.way, thing.store, thing.key, thing.line)
    if isinstance(thing, (list, tuple)) and thing and isinstance(thing[0], (Call, Tensor)):
        return tuple(fact(one, run) for one in thing)
    return thing


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as values that JSON can carry."""
    place = explanation.place
    parts = {part: getattr(explanation, part) for part in ("look_at", "given", "difference")}
    statements = {part: [{"name": one.name, **_plain(one.facts)} for one in some] for part, some in parts.items()}
    layer = place.layer if place.layer is None or type(place.layer) is int else str(place.layer)
    where = {"rank": place.rank, "operation": place.operation, "layer": layer}
    return {**where, **statements, "reference": explanation.reference}


def _plain(thing: Any) -> Any:
    if isinstance(thing, (CallFact, TensorFact, KeptFact)):
        return _plain({key: one for key, one in thing._asdict().items() if one not in (None, ())})
    if isinstance(thing, dict):
        return {key: _plain(one) for key, one in thing.items()}
    if isinstance(thing, (Line, Labels)):
        return thing.number if isinstance(thing, Line) else str(thing)
    if isinstance(thing, (tuple, frozenset)):
        return [_plain(one) for one in thing]
    return thing
