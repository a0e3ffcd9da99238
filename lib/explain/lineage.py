"""The lineage of tensors: what has made one, what it is a sum of, what has read it, and where it is or has stopped."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from ..recording.diary import READ, REPLACED, STORED, TAKEN
from .notes import ADD, LOADS, SHARD, Call, Kept, Key, Notes, Tensor


def origin(tensor: Tensor, through: tuple[str, ...] = ("receive",)) -> Tensor:
    """Return what was sent, of something received."""
    while tensor.how in through and tensor.parents:
        tensor = tensor.parents[0]
    return tensor


def leaves(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that were added up by hand to this one, without zeros; itself, where it is no such sum."""
    found: list[Tensor] = []
    left = [tensor]
    while left:
        one = origin(left.pop())
        if one.how == ADD:
            left += reversed(one.parents)
        elif one.how != "fake_grad" or one.labels.batches:
            found.append(one)
    return found or [origin(tensor)]


def signature(tensor: Tensor) -> Key:
    """Return what a tensor has in common with those of other runs that do the same: how it was made, of what kind and
    layer. Micro-batches have no part in it: which number a rank takes is its own choice."""
    one = origin(tensor)
    labels, call = one.labels, one.call
    if one.how in LOADS:
        return one.how, labels.kind, labels.layer, labels.total, len(labels.shards)
    if one.how == "get_activation":
        return one.how, len(labels.batches)
    if one.how == SHARD:
        return one.how, labels.kind, labels.layer, labels.total
    if one.how == "fake_grad":
        return one.how, labels.kind, labels.layer, bool(labels.batches)
    return one.how, one.index, labels.kind, labels.layer, str(call.axis) if call.stream == "collective" else ""


def like(tensor: Tensor, notes: Notes) -> Tensor | None:
    """Return the tensor of a run that is made as one of another run is made, on the same rank."""
    wanted, batches, calls = signature(tensor), tensor.labels.batches, notes.calls.get(origin(tensor).call.rank, ())
    made = [one for call in calls if call.tick <= notes.until for one in call.results]
    return next((one for one in made if one.labels.batches == batches and signature(one) == wanted), None)


def on_the_way(tensor: Tensor | None, call: Call) -> Iterator[tuple[Tensor, Call]]:
    """Yield all that the operands of a call come from, and themselves, each with the call that reads it on the way; up
    to a tensor, if one is given."""
    left = [(one, call) for one in call.operands]
    seen: set[int] = set()
    for one, reader in left:
        if id(one) not in seen:
            seen.add(id(one))
            yield one, reader
            if one is tensor:
                return
            for parent in one.parents:
                mine = one.call.other or one.call
                others = [by for by in parent.readers if by.kind == mine.kind]
                left.append((parent, next(iter(others), mine) if parent not in mine.operands else mine))


def ancestors(tensor: Tensor, steps: int) -> Iterator[Tensor]:
    """Yield what a tensor comes from, a few steps back: of what was given to a call that of its kind, or the first."""
    one = tensor
    for _ in range(steps):
        if not one.parents:
            return
        same = [parent for parent in one.parents if parent.labels.kind == one.labels.kind]
        one = origin((same or one.parents)[0])
        yield one


def replaced_by(tensor: Tensor, notes: Notes) -> tuple[Kept, Kept] | None:
    """Return where a tensor was until another one was stored over it before anybody has read it, and that one."""
    for kept in tensor.kept:
        if kept.way == REPLACED and not any(call.at < kept.at for call in tensor.readers):
            history = notes.kept[tensor.call.rank, kept.store, kept.key]
            before = history.index(kept) - 1
            if before >= 0 and history[before].way == STORED:
                return kept, history[before]
    return None


def stored_in(tensor: Tensor, before: float = inf) -> Kept | None:
    """Return where a tensor is stored: at the end of what is noted, or before a call, by its place."""
    there: dict[tuple[str, str], Kept] = {}
    for kept in [one for one in tensor.kept if one.at < before]:
        there.pop((kept.store, kept.key), None)
        if kept.way == STORED:
            there[kept.store, kept.key] = kept
    return next(reversed(there.values()), None)


def out_of(tensor: Tensor, call: Call) -> Kept | None:
    """Return how a call has got a tensor out of a dictionary: the last time that it was read there or taken out."""
    found = [one for one in (*tensor.looked_up, *tensor.kept) if one.way in (READ, TAKEN) and one.at < call.at]
    last = max(found, key=lambda one: one.at, default=None)
    used = [one for one in tensor.readers if last and one.line == last.line and last.at < one.at < call.at]
    return None if used and last and last.way == READ else last  # it was read there for another call
