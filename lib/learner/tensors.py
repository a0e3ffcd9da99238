"""The five kinds of tensor: frozen labels and an opaque token, with no numerics in sight.

They come out of a model's operations. Made by hand (``Weight(0, 2, 0)``), a tensor is fit for
demonstrations, and marked as made up.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from operator import index
from typing import TYPE_CHECKING, Any

from ..basics.errors import PuzzleError
from ..basics.units import Elements
from ..machine.mesh import one_of, whole_number
from ..machine.tensor_state import Token, made_by_hand
from ..record.labels import FIELDS, NONE, WHOLE, Labels, check_fineness, coarsest

_new = object.__new__


class Tensor:
    """What all five share. Attributes are the labels: layer, layers and what the kind has besides."""

    __slots__ = ("_token",)
    layer: int
    layers: int
    if TYPE_CHECKING:
        _token: Any

    def memory(self) -> Elements:
        """Size in elements."""
        return self._token.memory  # type: ignore[no-any-return]

    def is_complete(self) -> bool:
        """Whether all shards are here."""
        return self._token.labels.is_whole()  # type: ignore[no-any-return]

    def __init_subclass__(cls) -> None:
        for name in FIELDS.get(cls.__name__, ()):
            setattr(cls, name, property(_label(name)))
        if cls.__name__ in FIELDS:
            KIND_OF[cls.__name__] = cls

    def __setattr__(self, name: str, value: object) -> None:
        raise PuzzleError(f"tensors are frozen: {name} cannot be set", got=repr(self))

    def __delattr__(self, name: str) -> None:
        raise PuzzleError(f"tensors are frozen: {name} cannot be deleted", got=repr(self))

    def __repr__(self) -> str:
        return str(self._token.labels)

    def _key(self) -> tuple[object, ...]:
        labels = self._token.labels
        return (*labels[:6], *coarsest(labels.shards, labels.total))

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Tensor) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __copy__(self) -> Tensor:
        return of_token(made_by_hand(self._token.labels))

    def __deepcopy__(self, memo: object) -> Tensor:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, tuple(self._token.labels)

    def __add__(self, other: object) -> Any:
        raise PuzzleError(
            "only weight gradients add up",
            where=f"{self} + ...",
            got=describe(other),
            cure=AWAIT.get(is_call(other), ""),
        )

    __radd__ = __add__


def _label(name: str) -> Any:
    return lambda self: getattr(self._token.labels, name)


KIND_OF: dict[str, type[Tensor]] = {}
AWAIT = {True: "did you forget `await`?"}


class Sharded(Tensor):
    """A tensor that can be cut into shards."""

    __slots__ = ()
    shards: frozenset[int]
    total: int

    def shard(self, index: int, total: int) -> Any:
        """Piece ``index`` of ``total`` equal pieces of this one (a shard can be cut again).

        Raises PuzzleError for an index out of range or a tensor with gaps.
        """
        total = whole_number(f"shard of {self}: total", total)
        index = one_of(f"shard of {self}: index", index, total)
        return of_token(self._token.shard(index, total))

    def combine(self, other: Any) -> Any:
        """This and other shards of the same thing as one.

        Raises PuzzleError when a shard is in both, or layer, step or micro-batches differ.
        """
        if type(other) is not type(self):
            raise PuzzleError(
                f"combine joins shards of one {type(self).__name__}",
                got=describe(other),
                cure=AWAIT.get(is_call(other), ""),
            )
        return of_token(self._token.combine(other._token))


class Weight(Sharded):
    """A layer's weight, or shards of it: HIDDEN x HIDDEN x len(shards) / total elements.

    ``step`` counts the optimizer steps it has been through; this course takes one, from 0 to 1.
    """

    __slots__ = ()
    step: int

    def __new__(cls, layer: int, layers: int, step: int, shards: Iterable[int] = WHOLE, total: int = 1) -> Weight:
        return _by_hand(cls, layer, layers, shards, total, step=step)  # type: ignore[no-any-return]


class OptState(Sharded):
    """The optimizer's state of a layer's weight, of the same size as the weight."""

    __slots__ = ()
    step: int

    def __new__(cls, layer: int, layers: int, step: int, shards: Iterable[int] = WHOLE, total: int = 1) -> OptState:
        return _by_hand(cls, layer, layers, shards, total, step=step)  # type: ignore[no-any-return]


class WeightGrad(Sharded):
    """The gradient of a layer's weight, summed over ``batches`` of ``total_batches`` micro-batches.

    As large as the weight; of no micro-batches, it is zero and takes no memory.
    """

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
    ) -> WeightGrad:
        return _by_hand(cls, layer, layers, shards, total, batches=batches, total_batches=total_batches)  # type: ignore[no-any-return]

    def __add__(self, other: object) -> WeightGrad:
        """The sum over the micro-batches of both. Raises PuzzleError when one is in both."""
        if type(other) is not WeightGrad:
            return super().__add__(other)  # type: ignore[no-any-return]
        return of_token(self._token.add(other._token))  # type: ignore[return-value]

    def __radd__(self, other: object) -> WeightGrad:
        """``sum(grads)`` begins with 0."""
        return self if type(other) is int and other == 0 else self + other


class Activation(Tensor):
    """The input of ``layer`` for some micro-batches: HIDDEN x LENGTH elements for each."""

    __slots__ = ()
    batches: frozenset[int]
    total_batches: int

    def __new__(cls, layer: int, layers: int, batches: Iterable[int], total_batches: int) -> Activation:
        return _by_hand(cls, layer, layers, WHOLE, 1, batches=batches, total_batches=total_batches)  # type: ignore[no-any-return]


class ActivationGrad(Tensor):
    """The gradient that ``backward(layer, ...)`` reads: HIDDEN x LENGTH elements for each micro-batch."""

    __slots__ = ()
    batches: frozenset[int]
    total_batches: int

    def __new__(cls, layer: int, layers: int, batches: Iterable[int], total_batches: int) -> ActivationGrad:
        return _by_hand(cls, layer, layers, WHOLE, 1, batches=batches, total_batches=total_batches)  # type: ignore[no-any-return]


TENSORS = frozenset(KIND_OF.values())
_set_token: Any = Tensor.__dict__["_token"].__set__


def of_token(token: Token) -> Tensor:
    """The tensor that a token stands for."""
    tensor = _new(KIND_OF[token.labels[0]])
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
) -> Any:
    name = cls.__name__
    layers, total = whole_number(f"{name}: layers", layers), whole_number(f"{name}: total", total)
    check_fineness(total)
    labels = Labels(
        name,
        int_from(f"{name}: layer", layer, -1),  # the gradient of the input of layer 0 has layer -1
        layers,
        int_from(f"{name}: step", step, 0),
        set_of(f"{name}: batches", batches, total_batches),
        total_batches,
        set_of(f"{name}: shards", shards, total),
        total,
    )
    return of_token(made_by_hand(labels))


def _unpickled(*fields: Any) -> Tensor:
    return of_token(made_by_hand(Labels(*fields)))


def int_from(name: str, value: object, least: int) -> int:
    """The value as an int from ``least`` up. Raises PuzzleError."""
    return whole_number(name, value, least)


def set_of(name: str, numbers: Iterable[int], count: int | None = None) -> frozenset[int]:
    """Any iterable of whole numbers (below ``count``) as a frozenset. Raises PuzzleError for anything else."""
    try:
        found = frozenset(index(number) for number in numbers)
    except TypeError:
        raise PuzzleError(
            f"{name} must be several whole numbers, for example [0, 1]",
            got=describe(numbers),
            cure=AWAIT.get(
                is_call(numbers),
                f"range({numbers}) for 0 to {numbers - 1}, [0] for one" if isinstance(numbers, int) else "",
            ),
        ) from None
    if count is not None and not all(0 <= number < count for number in found):
        raise PuzzleError(f"{name} out of range", expected=f"numbers from 0 to {count - 1}", got=describe(found))
    return found


def is_call(thing: object) -> bool:
    """Whether something should have been awaited."""
    return inspect.isawaitable(thing)


def describe(thing: object) -> str:
    """Something that came where something else belongs, briefly."""
    text = repr(thing)
    return text if len(text) <= 120 else text[:117] + "..."


def expect(where: str, name: str, thing: object, kind: type[Tensor]) -> None:
    """Raises PuzzleError unless ``thing`` is a tensor of this kind."""
    if type(thing) is not kind:
        raise PuzzleError(
            f"{name} must be {'an' if kind.__name__[0] in 'AO' else 'a'} {kind.__name__}",
            where=where,
            got=describe(thing),
            cure=AWAIT.get(is_call(thing), ""),
        )
