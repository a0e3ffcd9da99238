"""Where a rank keeps what an operation should have been given in place of what it was."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from ..basics.errors import Fix, PuzzleError, numbered
from ..record.kinds import KINDS
from ..record.labels import Labels
from ..record.rules.updates import CUT_APART
from .keys import is_pair
from .origins import written
from .texts import form_of, read

CALLED = {
    "Weight": "the weight of layer",
    "Activation": "the input of layer",
    "ActivationGrad": "the gradient of the output of layer",
}
UNDER_ITS_LAYER = "under its layer"
"""In what an operation says of a tensor of another layer, where it knows no more."""


def say_where_kept(error: PuzzleError, stores: Iterable[Any]) -> None:
    """Let an error of an operation that got a tensor of another layer say where its rank keeps the right one."""
    stores = [*stores]
    if getattr(error, "problem", "") == CUT_APART:  # a learner's own kind of error may have none
        _say_what_is_lost(error, stores)
    if error.sought is None:
        return
    (kind, layer, batches), error.sought = error.sought, None
    kept = [(tensor._token.labels, key, store._name) for store in stores for key, tensor in store.items()]
    kept = [one for one in kept if (one[0].kind, one[0].layer, one[0].batches) == (kind, layer, batches)]
    whole = [one for one in kept if one[0].is_whole() and not one[0].adapter and not one[0].step]
    slices = [one for one in kept if kind == "Activation" and one[0].total > 1 and one[0].extra.of == 1]
    if not whole and not slices:
        return
    labels, key, name = (whole or slices)[0]
    there = f"model.{name}[{written(key)}]"
    if whole:
        said = _said(labels, key, there, name)
    else:
        gather = f"gather that, await model.allgather({there}, {layer})"
        said = f"{CALLED[kind]} {layer} is in {there} here, in slices: {gather}"
    known = there if whole else None  # that there are slices only, no fix says by itself
    error.fix = _with(error._fix, said, known)
    error.fix_for = {name: _with(fix, said, known) for name, fix in error.fix_for.items()}


def _say_what_is_lost(error: PuzzleError, stores: Iterable[Any]) -> None:
    """Let an error of an update with a gathered weight say that this was stored over the piece, where it was."""
    weights = next(store for store in stores if store._name == "weights")
    for key, tensor in weights.items():
        now, before = tensor._token.labels, weights._gone.get(key)
        if before is None or (now.kind, now.layer) != ("Weight", error.place.layer) or not now.is_whole():
            continue
        if (before.kind, before.layer, before.step, before.is_whole()) == ("Weight", now.layer, 0, False):
            lost = (
                f"the piece of layer {now.layer} was in model.weights[{written(key)}], and all of it was stored over it"
            )
            error.fix = f"{lost}: give what is gathered a key of its own, or none, in each pass, and {error.fix}"
            return


def _said(labels: Labels, key: Hashable, there: str, name: str) -> str:
    """Return where the right tensor is, and under which key it should be."""
    some = len(labels.batches) < labels.total_batches and KINDS[labels.kind].by_batch
    what = f"{CALLED[labels.kind]} {labels.layer}" + f", {numbered('micro-batch', labels.batches)}," * some
    layers = (labels.layer, labels.layer + (labels.kind == "ActivationGrad"))
    form = form_of(key)
    numbers = key if form is None else read(form, key)
    if numbers in layers or (isinstance(numbers, tuple) and is_pair(numbers) and {*layers} & {*numbers[:2]}):
        return f"{what} is in {there} here: take it from there"
    if labels.kind == "Activation" and _less_batch(key, labels) == labels.layer - 1:
        below = f"is in {there} here, under the layer whose forward gave it"
        own = written(_with_layer(key, labels))
        return (
            f"{what} {below}: store what a layer reads before its forward, under its own key, model.{name}[{own}] = inp"
        )
    own = "layer, micro_batch" if some else "layer"
    other = "is it stored under another key than it is looked for?"
    return f"{what} is in {there} here: {other} Each has a key of its own, model.{name}[{own}], in all lines"


def _less_batch(key: Hashable, labels: Labels) -> Hashable:
    """Return what a key has beside the micro-batch of its tensor, if it is one thing."""
    more = [one for one in key if frozenset([one]) != labels.batches] if isinstance(key, tuple) else [key]
    return more[0] if len(more) == 1 and frozenset(more) != labels.batches else None


def _with_layer(key: Hashable, labels: Labels) -> Hashable:
    """Return a key with the layer of its tensor in place of the one below."""
    return (
        tuple([one + 1 if one == labels.layer - 1 else one for one in key]) if isinstance(key, tuple) else labels.layer
    )


def _with(fix: Fix, said: str, there: str | None) -> Fix:
    """Return a fix, or this in its place where it knows no more than how things are stored by habit. ``there``: what
    shows that it says as much itself."""

    def both() -> str:
        plain = fix() if callable(fix) else fix
        if there is not None and there in plain:
            return plain
        return said if UNDER_ITS_LAYER in plain else plain

    return both
