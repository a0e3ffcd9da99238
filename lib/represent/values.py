"""What the tensors of ranks carry that are not run.

Such a rank does what another one does, with other micro-batches and other pieces. So its tensors carry the fingerprints
of the other's tensors, under the numbers of its own micro-batches, or as its own pieces; and a gradient, in which each
micro-batch counts by a power of a base, is the other's times a power. These are all brought to the collective, whose
rule then says what comes of them, as on a machine whose ranks all are run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..machine.fingerprints import ANY, POWERS, PRIME, Fingerprints, piece_of
from ..record.kinds import KINDS
from ..record.labels import Labels
from ..record.operations import Part, Value, Values
from ..record.shards import coarsest

NOT_COMPUTED = "not computed"
"""The value of every tensor after one that does not follow: the run is timed only."""
ALGEBRA = Fingerprints()


class WhileKnown:
    """The arithmetic of a run with ranks that stand for others: fingerprints, as long as all of them are known.
    ``proving``: whether the run is of no use after that."""

    def __init__(self) -> None:
        self.lost = self.proving = False

    def __getattr__(self, operation: str) -> Any:
        if not self.lost:
            return getattr(ALGEBRA, operation)
        if operation == "zero":
            return NOT_COMPUTED
        given = getattr(Values, operation).__annotations__["return"]
        result = (NOT_COMPUTED,) * 2 if given.startswith("tuple") else NOT_COMPUTED
        return lambda *values, **options: result


class Moves:
    """How values that ranks bring to a collective follow from those of the ranks that are run: ``own``. ``everyone``:
    the labels of what all bring; ``bases``: for each of them from whose value its own follows."""

    def __init__(self, own: Sequence[Labels], everyone: Sequence[Labels], bases: Sequence[int]) -> None:
        kind = KINDS[own[0].kind]
        self.by_batch, self.summed = kind.by_batch, kind.batched and not kind.by_batch
        pairs = [(own[base], labels) for base, labels in zip(bases, everyone, strict=True)]
        self.follow = all([one.extra.parts == two.extra.parts for one, two in pairs])
        steps = [min(two.batches, default=0) - min(one.batches, default=0) for one, two in pairs]
        self.steps = [POWERS[step] for step in steps] if self.summed else steps
        self.pieces = [coarsest(labels.shards, labels.total) for labels in everyone]
        self.own = [piece_of(labels) for labels in own]
        self.bases = bases

    def __call__(self, values: Sequence[Any]) -> list[Any] | None:
        """Return the values of all ranks, given those of the ranks that are run. None if they do not follow."""
        if not self.follow:
            return None
        all_of_them = zip(self.bases, self.steps, self.pieces, strict=True)
        if self.by_batch:
            known = [_by_batch(value, piece) for value, piece in zip(values, self.own, strict=True)]
            if None in known:
                return None
            return [
                {batch + step: (one[0], piece) if type(one) is tuple else one for batch, one in values[base].items()}
                for base, step, piece in all_of_them
            ]
        if all([piece == ANY for _, piece in values]):
            return [values[base] for base in self.bases]
        if any([value[1] != piece for value, piece in zip(values, self.own, strict=True)]):
            return None
        if self.summed:
            return [(values[base][0] * power % PRIME, piece) for base, power, piece in all_of_them]
        return [(values[base][0], piece) for base, _, piece in all_of_them]


def _by_batch(value: dict[int, Any], piece: object) -> bool | None:
    """Return True if a value has a fingerprint for each micro-batch, or one of this piece; else None."""
    known = [type(one) is int or (type(one[0]) is int and one[1] == piece) for one in value.values()]
    return True if all(known) else None


class Later:
    """A value that is computed when those of all ranks are known: ``operation`` of ``Values``, and of what."""

    def __init__(self, operation: str, given: Sequence[Any], options: dict[str, Any]) -> None:
        self.operation, self.given, self.options = operation, given, options

    def now(self, values: Sequence[Value], known: dict[Later, Value]) -> Value:
        """Return it. ``known``: what has been computed of the same values."""
        if self not in known:
            operands = [_now(one, values, known) for one in self.given]
            known[self] = getattr(ALGEBRA, self.operation)(*operands, **self.options)
        return known[self]


class Brought(int):
    """The value that a rank brings, by its place."""


def _now(value: Any, values: Sequence[Value], known: dict[Later, Value]) -> Any:
    if type(value) is Later:
        return value.now(values, known)
    if type(value) is Brought:
        return values[value]
    if type(value) is list:
        if len(value) == len(values) and [*range(len(values))] == value and type(value[0]) is Brought:
            return values  # most often
        return [_now(one, values, known) for one in value]
    return value


class PutOff:
    """An arithmetic that notes what is to be computed."""

    zero = Later("zero", (), {})

    def __getattr__(self, operation: str) -> Callable[..., Later]:
        return lambda *given, **options: Later(operation, given, options)


class Outputs:
    """What comes of a collective of certain labels, whatever the values."""

    def __init__(
        self, result: Callable[..., Sequence[Part]], everyone: Sequence[Labels], places: Sequence[int], strict: bool
    ) -> None:
        parts = [(labels, Brought(place)) for place, labels in enumerate(everyone)]
        outputs = result(parts, PutOff(), strict)
        self.of_run = [outputs[place] for place in places]

    def labels(self) -> list[Labels]:
        """Return the labels of what those get that are run."""
        return [labels for labels, _ in self.of_run]

    def of(self, values: Sequence[Value]) -> list[Value]:
        """Return what these carry, given what everyone brings."""
        known: dict[Later, Value] = {}
        return [_now(value, values, known) for _, value in self.of_run]
