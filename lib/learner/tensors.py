"""The kinds of tensor: frozen labels and an opaque token, without numbers.

A model's operations make them. One made by hand (``Weight(0, 2, 0)``) is for demonstrations, and marked as made up.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import partialmethod
from inspect import isawaitable
from math import isfinite
from operator import attrgetter
from typing import Any, NoReturn, Self

from ..basics.arguments import describe, one_of, one_of_names, set_of, whole_number
from ..basics.errors import Place, PuzzleError, told, with_article
from ..basics.units import Elements
from ..machine.interface import Token
from ..machine.rank_state import made_by_hand
from ..record.kinds import KINDS
from ..record.labels import NO_EXTRA, OF_ADAPTER, ExtraLabels, Labels
from ..record.shards import NONE, WHOLE, Shards, check_fineness, coarsest
from ..record.training import KEEP

__all__ = ["Activation", "ActivationGrad", "Attended", "AttendedGrad", "KeysValues", "KeysValuesGrad"]
__all__ += ["OptState", "Saved", "Tokens", "TokensGrad", "Weight", "WeightGrad"]

SAME = ("layer", "layers", "step", "total_batches", "adapter", "keep")
"""Labels in which there is no number of a rank."""


class Tensor:
    """A tensor: its attributes are its labels, layer, layers and what its kind has besides."""

    __slots__ = ("_token",)
    layer: int
    layers: int
    _token: Token

    def memory(self) -> Elements:
        """Returns its size in elements, or in the unit of the machine's cost."""
        return self._token.memory

    def is_complete(self) -> bool:
        """Returns whether all shards are here, and all parts of a sum."""
        return self._token.labels.is_whole()

    def __init_subclass__(cls) -> None:
        if cls.__name__ in KINDS:
            CLASSES[cls.__name__] = cls
            TENSORS.add(cls)
            if KINDS[cls.__name__].cut:
                MOVABLE.add(cls)
            for name in KINDS[cls.__name__].fields:
                labels = "labels" if name in SAME else "seen"
                setattr(cls, name, property(attrgetter(f"_token.{labels}.{name}"), doc=""))

    def __setattr__(self, name: str, value: object) -> None:
        raise PuzzleError("frozen", got=repr(self), what=f"tensors are frozen: {name}", done="set")

    def __delattr__(self, name: str) -> None:
        raise PuzzleError("frozen", got=repr(self), what=f"tensors are frozen: {name}", done="deleted")

    def __repr__(self) -> str:
        return str(self._token.seen)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tensor):
            return NotImplemented
        return self._token.seen.coarse() == other._token.seen.coarse()

    def __hash__(self) -> int:
        return hash(self._token.seen.coarse())

    def __reduce__(self) -> tuple[Any, ...]:  # copies are made by hand, too
        return _unpickled, (self._token.seen._asdict(),)

    def __add__(self, other: object) -> Any:
        kind = type(other).__name__
        what = f"{_a(self._token.labels.kind)} and {_a(kind) if kind in KINDS else describe(other)}"
        raise unfit("not_addable", other, f"{self} + ...", what=what)

    __radd__ = __add__

    def _cannot(self, done: str, other: object) -> NoReturn:
        raise unfit("frozen", other, type(self).__name__, what=_a(self._token.labels.kind), done=done)

    __truediv__ = partialmethod(_cannot, "divided")
    __rtruediv__ = partialmethod(_cannot, "a divisor")
    __mul__ = __rmul__ = partialmethod(_cannot, "multiplied")
    __sub__ = __rsub__ = partialmethod(_cannot, "subtracted")


CLASSES: dict[str, type[Tensor]] = {}  # the class of each kind of tensor
TENSORS, MOVABLE = set[type[Tensor]](), set[type[Tensor]]()
"""These classes, and those of tensors that may be sent, and stored in any dictionary."""


class Sharded(Tensor):
    """A tensor that can be cut into shards."""

    __slots__ = ()
    shards: frozenset[int]
    total: int

    def shard(self, index: int, total: int) -> Self:
        """Returns piece ``index`` of ``total`` equal pieces of this one (a shard can be cut again). Raises PuzzleError
        for an index out of range or a tensor with gaps."""
        index, total = self._token.given(index), self._token.given(total)
        if type(index) is not int or type(total) is not int or not 0 <= index < total:
            total = whole_number(f"shard of {self}: total", total)
            index = one_of(f"shard of {self}: index", index, total)
        return of_token(self._token.shard(index, total))  # type: ignore[return-value]

    def combine(self, other: Self) -> Self:
        """Returns this and other shards of the same thing as one tensor. Raises PuzzleError when a shard is in both, or
        layer, step or micro-batches differ."""
        if type(other) is not type(self):
            raise unfit("not_brought", other, "", verb="combine", kind=f"shards of one {type(self).__name__}")
        return of_token(self._token.combine(other._token))  # type: ignore[return-value]


class Stepped(Sharded):
    """A tensor that counts its optimizer steps."""

    __slots__ = ()
    step: int
    adapter: bool

    def __new__(
        cls, layer: int, layers: int, step: int, shards: Iterable[int] = WHOLE, total: int = 1, adapter: bool = False
    ) -> Self:
        return _by_hand(cls, layer, layers, shards, total, step=step, extra=_of_adapter(cls, adapter))  # type: ignore[no-any-return]


class Weight(Stepped):
    """A layer's weight, or shards of it: HIDDEN x HIDDEN x len(shards) / total elements. ``step`` counts the optimizer
    steps it has been through; this course takes one, from 0 to 1. With ``adapter=True`` it is the layer's adapter,
    16 x HIDDEN elements, which is trained in place of a weight that is frozen."""

    __slots__ = ()


class OptState(Stepped):
    """The optimizer's state of a layer's weight, or of its adapter. It counts as many elements as that."""

    __slots__ = ()


class Summed(Sharded):
    """A tensor that a rank adds up: the gradient of a weight over micro-batches, that of keys over queries."""

    __slots__ = ()

    def __add__(self, other: object) -> Self:
        """Returns the sum of both. Raises PuzzleError when something is in both, or they are of different things."""
        if type(other) is not type(self):
            return super().__add__(other)  # type: ignore[no-any-return]
        return of_token(self._token.add(other._token))  # type: ignore[return-value]

    def __radd__(self, other: object) -> Self:
        """Lets ``sum(grads)`` begin with 0."""
        return self if type(other) is int and other == 0 else self + other


class WeightGrad(Summed):
    """The gradient of a layer's weight, summed over ``batches`` of ``total_batches`` micro-batches.

    It is as large as the weight; of no micro-batches, it is zero and takes no memory. With ``adapter=True`` it is the
    gradient of the layer's adapter. ``parts`` says over which slices of the sequence, of how many, ``of``, it is
    summed, when each rank has its own slices (``project``). With ``run(..., tokens=...)`` it can be multiplied and
    divided by a number.
    """

    __slots__ = ()
    batches: frozenset[int]
    total_batches: int
    adapter: bool
    parts: frozenset[int]
    of: int

    def __new__(
        cls,
        layer: int,
        layers: int,
        batches: Iterable[int],
        total_batches: int,
        shards: Iterable[int] = WHOLE,
        total: int = 1,
        adapter: bool = False,
        parts: Iterable[int] = WHOLE,
        of: int = 1,
    ) -> WeightGrad:
        extra = _of_adapter(cls, adapter)._replace(**_parts_of(cls, parts, of))
        return _by_hand(cls, layer, layers, shards, total, batches=batches, total_batches=total_batches, extra=extra)  # type: ignore[no-any-return]

    def __mul__(self, number: Any) -> Any:
        """Returns this gradient times a number: of a float the nearest fraction with a denominator of at most a
        million. Raises PuzzleError for anything else, and where micro-batches do not count by their tokens."""
        return self._times(number, 1)

    __rmul__ = __mul__

    def __truediv__(self, number: Any) -> Any:
        """Returns this gradient divided by a number. Raises PuzzleError as ``*`` does."""
        return self._times(number, -1)

    def _times(self, number: Any, power: int) -> Any:
        known = isinstance(number, (int, float, Fraction)) and (power > 0 or number)
        if not known or (isinstance(number, float) and not isfinite(number)):
            kind = "a number" if power > 0 else "a number other than 0"
            raise unfit("not_brought", number, "", verb="a product" if power > 0 else "a quotient", kind=kind)
        factor = Fraction(number)
        made = self._token.scale((factor.limit_denominator(10**6) if type(number) is float else factor) ** power)
        if made is None:
            done = f"{'multiplied' if power > 0 else 'divided'}: it is the sum over its micro-batches, and not the mean"
            self._cannot(done, number)
        return of_token(made)


class Batched(Sharded):
    """A tensor of some micro-batches. Its shards are slices of the sequence. ``parts`` says which partial sums of how
    many, ``of``, it is the sum of, when layers are computed in pieces (``partial=True``)."""

    __slots__ = ()
    batches: frozenset[int]
    total_batches: int
    parts: frozenset[int]
    of: int

    def __new__(
        cls,
        layer: int,
        layers: int,
        batches: Iterable[int],
        total_batches: int,
        shards: Iterable[int] = WHOLE,
        total: int = 1,
        parts: Iterable[int] = WHOLE,
        of: int = 1,
    ) -> Self:
        extra = ExtraLabels(**_parts_of(cls, parts, of))
        return _by_hand(cls, layer, layers, shards, total, batches=batches, total_batches=total_batches, extra=extra)  # type: ignore[no-any-return]


class Activation(Batched):
    """The input of ``layer`` for some micro-batches: HIDDEN x LENGTH elements for each, or a slice's share of that."""

    __slots__ = ()


class ActivationGrad(Batched):
    """The gradient that ``backward(layer, ...)`` reads, of the size of an ``Activation``."""

    __slots__ = ()


class Unsummed(Sharded):
    """A tensor of some micro-batches that is no sum of others."""

    __slots__ = ()
    batches: frozenset[int]
    total_batches: int

    def __new__(
        cls,
        layer: int,
        layers: int,
        batches: Iterable[int],
        total_batches: int,
        shards: Iterable[int] = WHOLE,
        total: int = 1,
    ) -> Self:
        return _by_hand(cls, layer, layers, shards, total, batches=batches, total_batches=total_batches)  # type: ignore[no-any-return]


class ByHeads(Sharded):
    """What goes into attention, or comes out of it. It can be cut by slices of the sequence, and by heads: ``heads``
    says which parts of all heads these are, of how many, ``of_heads``."""

    __slots__ = ()
    heads: frozenset[int]
    of_heads: int


class KeysValues(ByHeads):
    """The keys and values of ``layer`` for some micro-batches: those of a whole sequence, or of the slices that
    ``project`` was given. 2 x HIDDEN x LENGTH elements for each micro-batch, or a slice's share of that, unless the
    cost says otherwise (``keys_values_elements``). Where ``alltoall`` has turned slices into heads, ``heads`` says
    which, of how many parts, ``of_heads``. It lives in ``activations``."""

    __slots__ = ()
    batches: frozenset[int]
    total_batches: int

    def __new__(
        cls,
        layer: int,
        layers: int,
        batches: Iterable[int],
        total_batches: int,
        shards: Iterable[int] = WHOLE,
        total: int = 1,
        heads: Iterable[int] = WHOLE,
        of_heads: int = 1,
    ) -> Self:
        extra = ExtraLabels(heads=_part_of(cls, ("heads", "of_heads"), heads, of_heads))
        return _by_hand(cls, layer, layers, shards, total, batches=batches, total_batches=total_batches, extra=extra)  # type: ignore[no-any-return]


class KeysValuesGrad(ByHeads, Summed, Batched):
    """The gradient of ``KeysValues``, of the same size. ``parts`` says what the queries of which slices, of how many,
    have added to it: it is complete with all that see these keys. ``+`` adds what other queries give. It lives in
    ``grad_activations``."""

    __slots__ = ()

    def __new__(
        cls,
        layer: int,
        layers: int,
        batches: Iterable[int],
        total_batches: int,
        shards: Iterable[int] = WHOLE,
        total: int = 1,
        parts: Iterable[int] = WHOLE,
        of: int = 1,
        heads: Iterable[int] = WHOLE,
        of_heads: int = 1,
    ) -> Self:
        return _of_attention(cls, layer, layers, batches, total_batches, shards, total, parts, of, heads, of_heads)  # type: ignore[no-any-return]


class Meeting(ByHeads, Batched):
    """Queries of a slice of the sequence, which meet the keys one block after the other."""

    __slots__ = ()

    def __new__(
        cls,
        layer: int,
        layers: int,
        batches: Iterable[int],
        total_batches: int,
        shards: Iterable[int] = WHOLE,
        total: int = 1,
        parts: Iterable[int] = NONE,
        of: int = 1,
        heads: Iterable[int] = WHOLE,
        of_heads: int = 1,
    ) -> Self:
        return _of_attention(cls, layer, layers, batches, total_batches, shards, total, parts, of, heads, of_heads)  # type: ignore[no-any-return]


class Attended(Meeting):
    """Queries of ``layer``, and what they have found so far. ``parts`` says to the keys of which slices of the sequence
    they have attended, of how many, ``of``: at first to none. Complete with all keys up to their own place. It lives in
    ``activations``, and has 2 x HIDDEN x LENGTH elements for a whole sequence, unless the cost says otherwise
    (``attended_elements``)."""

    __slots__ = ()


class AttendedGrad(Meeting):
    """The gradient of ``Attended`` queries, twice as large. ``parts`` says to the keys of which slices it has gone
    back. It lives in ``grad_activations``."""

    __slots__ = ()


class Tokens(Unsummed):
    """Tokens on their way to some of a layer's experts, or home; its shards are of all experts. It is what the experts
    of ``layer`` read, or what those of the layer before have given. An all-to-all makes it of activations, and
    activations of it."""

    __slots__ = ()


class TokensGrad(Unsummed):
    """The gradient of such tokens."""

    __slots__ = ()


class Saved(Tensor):
    """What forward leaves behind for backward: the inner activations of ``layer``, between its input and its output,
    for some micro-batches. ``keep`` is "all" or "selective"; shards and total are those of the weight. As large as the
    cost says (``saved_elements``). It lives in ``activations`` on the rank that has made it."""

    __slots__ = ()
    batches: frozenset[int]
    total_batches: int
    keep: str
    shards: frozenset[int]
    total: int

    def __new__(
        cls,
        layer: int,
        layers: int,
        batches: Iterable[int],
        total_batches: int,
        keep: str = "all",
        shards: Iterable[int] = WHOLE,
        total: int = 1,
    ) -> Saved:
        one_of_names("keep", keep, KEEP)
        extra = ExtraLabels(keep=keep)
        return _by_hand(cls, layer, layers, shards, total, batches=batches, total_batches=total_batches, extra=extra)  # type: ignore[no-any-return]

    def shard(self, index: int, total: int) -> Any:
        """Raises PuzzleError: what forward leaves behind is not cut."""
        raise PuzzleError("inner activations are not cut", where=f"shard of {self}")


_new, _set_token = object.__new__, Tensor.__dict__["_token"].__set__


def of_token(token: Token) -> Tensor:
    """Return the tensor that a token stands for."""
    tensor = _new(CLASSES[token.labels.kind])
    _set_token(tensor, token)
    return tensor


def _by_hand(
    cls: type[Any],
    layer: int,
    layers: int,
    shards: Iterable[int],
    total: int,
    *,
    step: int = 0,
    batches: Iterable[int] = NONE,
    total_batches: int = 0,
    extra: ExtraLabels = NO_EXTRA,
) -> Any:
    name = cls.__name__
    layers, total = whole_number(f"{name}: layers", layers), whole_number(f"{name}: total", total)
    check_fineness(total)
    pieces = set_of(f"{name}: shards", shards, total)
    if "shards" in KINDS[name].brief:
        pieces, total = coarsest(pieces, total)
    labels = Labels(
        kind=name,
        layer=whole_number(f"{name}: layer", layer, -1),  # the gradient of the input of layer 0 has layer -1
        layers=layers,
        step=whole_number(f"{name}: step", step, 0),
        batches=set_of(f"{name}: batches", batches, total_batches),
        total_batches=total_batches,
        shards=pieces,
        total=total,
        extra=_known(extra),
    )
    return of_token(made_by_hand(labels))


def _of_attention(
    cls: type[Any],
    layer: int,
    layers: int,
    batches: Iterable[int],
    total_batches: int,
    shards: Iterable[int],
    total: int,
    parts: Iterable[int],
    of: int,
    heads: Iterable[int],
    of_heads: int,
) -> Any:
    """Return a tensor of attention that was made by hand."""
    some = _part_of(cls, ("heads", "of_heads"), heads, of_heads)
    extra = ExtraLabels(**_parts_of(cls, parts, of), heads=some)
    return _by_hand(cls, layer, layers, shards, total, batches=batches, total_batches=total_batches, extra=extra)


def _parts_of(cls: type[Any], parts: Iterable[int], of: int) -> dict[str, Any]:
    """Return these parts of how many, in coarsest form, as labels."""
    return dict(zip(("parts", "of"), _part_of(cls, ("parts", "of"), parts, of), strict=True))


def _part_of(cls: type[Any], names: tuple[str, str], parts: Iterable[int], of: int) -> tuple[Shards, int]:
    """Return these parts of how many, in coarsest form. ``names``: what both are called."""
    of = whole_number(f"{cls.__name__}: {names[1]}", of)
    check_fineness(of)
    return coarsest(set_of(f"{cls.__name__}: {names[0]}", parts, of), of)


def _of_adapter(cls: type[Any], adapter: bool) -> ExtraLabels:
    """Return the extra labels of a tensor that is of an adapter, or is not."""
    if type(adapter) is not bool:
        raise PuzzleError(f"{cls.__name__}: adapter is True or False", got=describe(adapter))
    return OF_ADAPTER if adapter else NO_EXTRA


def _known(extra: ExtraLabels) -> ExtraLabels:
    """Return these labels as the very ones that the machine asks for, if they are equal."""
    return next((one for one in (NO_EXTRA, OF_ADAPTER) if one == extra), extra)


def _unpickled(fields: dict[str, Any]) -> Tensor:
    return of_token(made_by_hand(Labels(**{**fields, "extra": _known(ExtraLabels(*fields.get("extra", NO_EXTRA)))})))


def expect(where: Place, name: str, thing: object, kind: str) -> None:
    """Raise PuzzleError unless ``thing`` is a tensor of this kind."""
    if type(thing) is not CLASSES[kind]:
        raise unfit("kind_mismatch", thing, where, name=name, kind=_a(kind))


def unfit(rule: str, thing: object, where: Place | str, **facts: str) -> PuzzleError:
    """Return the error of a thing that breaks a rule; where it was to be awaited before, that it was not."""
    labels = [thing._token.labels] if isinstance(thing, Tensor) else []
    if isawaitable(thing):
        rule, facts = "forgot_await", {"what": told(rule, facts)}
    return PuzzleError(rule, where=where, got=describe(thing), operands=labels, **facts)


def _a(kind: str) -> str:
    """Return the name of a kind of tensor behind its article: those that end in s are several."""
    return kind if kind.endswith("s") else with_article(kind)
