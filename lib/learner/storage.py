"""A rank's five dictionaries: its memory. They do all that a dict does, and the simulator knows what they hold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..basics.arguments import describe, forgotten_await
from ..basics.errors import Fix, PuzzleError
from ..record.kinds import KINDS, SAVED
from .missing import Missing, MissingTensor
from .origins import written
from .tensors import FIRST, MOVABLE, TENSORS, Saved

_set, _delete, _has = dict.__setitem__, dict.__delitem__, dict.__contains__
_get = dict.get
_MISSING = object()


class Storage(Missing):
    """A dictionary of tensors under keys of the learner's choice. Raises PuzzleError for what is no tensor."""

    __slots__ = ()

    def __setitem__(self, key: Hashable, tensor: Any) -> None:
        if type(tensor) not in MOVABLE and (type(tensor) is not Saved or self._name != KINDS[SAVED].store):
            problem, fix = f"only tensors can be stored in {self._name}", forgotten_await(tensor)
            if type(tensor) is Saved:
                problem = f"inner activations are not stored in {self._name}"
                fix = f"model.{KINDS[SAVED].store}[layer, micro_batch, 'saved'] = saved"
            plain = fix or self._fix_for(key, tensor)
            last: Fix = plain
            if self._name == "grad_activations" and tensor is None:
                last = lambda: self._simulator.loss_elsewhere(self._rank) or plain  # noqa: E731
            raise PuzzleError(problem, where=self._place(key), got=describe(tensor), fix=last)
        old = _get(self, key)
        if old is tensor:
            return
        if old is not None:
            self._gone[key] = old._token.labels
        self._missed = None
        self._store(self._rank, tensor._token)
        _set(self, key, tensor)
        if old is not None:
            self._drop(self._rank, old._token)

    def __delitem__(self, key: Hashable) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        if _has(self, key):
            self._missed = None
            return True
        self._missed = key  # and its rank may wait for a message until it is there
        return False

    def _fix_for(self, key: Hashable, thing: object) -> str:
        if isinstance(thing, (tuple, list)) and thing and all(type(one) in TENSORS for one in thing):
            beside = [", 'saved'" * (type(one) is Saved) for one in thing]
            stores = [
                f"model.{KINDS[type(thing[at]).__name__].store}[{written(key)}{beside[at]}]" for at in range(len(thing))
            ]
            return f"each in a place of its own: {', '.join(stores)} = ..."
        if self._name == "grad_weights" and thing is None and (none := self._of_other_ranks(key)):
            return none
        return FIRST if self._name == "grad_weights" else "what an operation gives, or a message brought: a tensor"

    def pop(self, key: Hashable, default: Any = _MISSING) -> Any:
        """Take a tensor out, and return it: it may be held until the next operation of this coroutine."""
        if _has(self, key):
            tensor = self[key]
            _delete(self, key)
            token = tensor._token
            self._gone[key] = token.labels
            self._drop(self._rank, token)
            return tensor
        self._refuse_pair("pop", key, default)
        return self.__missing__(key, popped=True) if default is _MISSING else default

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the tensor under a key, or what is given for the case that there is none."""
        if not _has(self, key):
            self._refuse_pair("get", key, default)
        return _get(self, key, default)

    def _refuse_pair(self, verb: str, key: Hashable, default: Any) -> None:
        """Raise PuzzleError where a pair is meant as a key, and comes as two arguments. (A 0 may begin a sum.)"""
        if type(key) is int and (
            type(default) is str or (type(default) is int and (default or (key, default) in self))
        ):
            problem, pair = f"{verb} got two arguments, {key!r} and {default!r}", (key, default)
            fix = f"a pair as key: model.{self._name}.{verb}(({key!r}, {default!r}))"
            raise PuzzleError(problem, where=self._place(pair), fix=fix)

    def popitem(self) -> tuple[Hashable, Any]:
        """Take the latest tensor out, and return its key and it."""
        if not self:
            fix = f"while model.{self._name}: model.{self._name}.popitem()"
            raise MissingTensor(f"{self._name} is empty", where=self._place(None), fix=fix)
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        """Take everything out."""
        self._cleared |= self.keys()
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


class Answers(dict[int, Any]):
    """The final weights that ``set_final_weight`` was given, by layer. Raises PuzzleError when it is changed."""

    def _refuse(self, *args: object, **kwargs: object) -> Any:
        raise PuzzleError("final_weights only shows the answers", fix="model.set_final_weight(layer, weight)")

    __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = update = setdefault = _refuse
