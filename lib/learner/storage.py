"""A rank's five dictionaries: its memory. They do all that a dict does, and the simulator knows what they hold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..basics.arguments import describe
from ..basics.errors import Place, PuzzleError
from ..machine.interface import AnySimulator, RankHandle
from ..record.kinds import KINDS, SAVED
from .tensors import MOVABLE, Saved, Tensor, unfit

_set, _delete, _has, _get = dict.__setitem__, dict.__delitem__, dict.__contains__, dict.get
_MISSING = object()


class MissingTensor(PuzzleError, KeyError):
    """Raised where nothing is stored under a key. A KeyError too, so that code which catches those keeps working."""

    sticks = False
    __str__ = PuzzleError.__str__


class Storage(dict[Hashable, Any]):
    """A dictionary of tensors under keys of the learner's choice. Raises PuzzleError for what is no tensor."""

    __slots__ = ("_simulator", "_rank", "_name", "_store", "_drop")

    def __init__(self, simulator: AnySimulator, rank: RankHandle, name: str) -> None:
        super().__init__()
        self._simulator, self._rank, self._name = simulator, rank, name
        self._store, self._drop = simulator.store, simulator.drop

    def __setitem__(self, key: Hashable, tensor: Any) -> None:
        if type(tensor) not in MOVABLE and (type(tensor) is not Saved or self._name != KINDS[SAVED].store):
            what = "inner activations are not" if type(tensor) is Saved else "only tensors can be"
            raise unfit("not_storable", tensor, self._place(key), what=what, store=self._name)
        old = _get(self, key)
        if old is tensor:
            return
        self._store(self._rank, tensor._token)
        _set(self, key, tensor)
        if old is not None:
            self._drop(self._rank, old._token)

    def __delitem__(self, key: Hashable) -> None:
        self.pop(key)

    def __missing__(self, key: Hashable) -> Tensor:
        got = f"keys {describe(list(self))}" if self else "an empty dictionary"
        raise MissingTensor("not_stored", where=self._place(key), got=got, store=self._name, key=repr(key))

    def pop(self, key: Hashable, default: Any = _MISSING) -> Any:
        """Take a tensor out, and return it: it may be held until the next operation of this coroutine."""
        if _has(self, key):
            tensor: Any = _get(self, key)
            _delete(self, key)
            self._drop(self._rank, tensor._token)
            return tensor
        self._refuse_pair("pop", key, default)
        return self.__missing__(key) if default is _MISSING else default

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the tensor under a key, or what is given for the case that there is none."""
        if not _has(self, key):
            self._refuse_pair("get", key, default)
        return _get(self, key, default)

    def popitem(self) -> tuple[Hashable, Any]:
        """Take the latest tensor out, and return its key and it."""
        if not self:
            raise MissingTensor(f"{self._name} is empty", where=self._place(None))
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        """Take everything out."""
        while self:
            self.popitem()

    def setdefault(self, key: Hashable, default: Any = None) -> Any:
        """Return the tensor under a key; if there is none, store this one before."""
        if not _has(self, key):
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Store several tensors."""
        for key, tensor in dict(*args, **kwargs).items():
            self[key] = tensor

    def __ior__(self, other: Any) -> Storage:  # type: ignore[misc]
        self.update(other)
        return self

    def copy(self) -> dict[Hashable, Any]:
        """Return a plain dict of the same tensors: it is no storage, and keeps nothing alive."""
        return dict(self)

    def __deepcopy__(self, memo: object) -> dict[Hashable, Any]:
        return self.copy()

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def _place(self, key: Hashable) -> Place:
        return Place(self._rank.rank, tick=self._simulator.time(self._rank), detail=f"{self._name}[{key_text(key)}]")

    def _refuse_pair(self, verb: str, key: Hashable, default: Any) -> None:
        """Raise PuzzleError where a pair is meant as a key, and comes as two arguments. (A 0 may begin a sum.)"""
        if type(key) is int and (
            type(default) is str or (type(default) is int and (default or (key, default) in self))
        ):
            problem, pair = f"{verb} got two arguments, {key!r} and {default!r}", (key, default)
            raise PuzzleError(problem, where=self._place(pair), expected=f"a pair as key: {verb}({pair!r})")


class Answers(dict[int, Any]):
    """The final weights that ``set_final_weight`` was given, by layer. Raises PuzzleError when it is changed."""

    def _refuse(self, *args: object, **kwargs: object) -> Any:
        raise PuzzleError("final_weights only shows the answers", expected="model.set_final_weight(layer, weight)")

    __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = update = setdefault = _refuse


def key_text(key: Hashable) -> str:
    """Return a key as it is written between brackets: a pair without parentheses."""
    return ", ".join(map(repr, key)) if isinstance(key, tuple) and len(key) > 1 else repr(key)
