"""The optimizer step: what it insists on."""

from collections.abc import Mapping, Sequence

from ...basics.errors import Place, PuzzleError, numbered, show_set
from .. import causal
from ..labels import Labels, same_pieces, within
from ..operations import More, Rank
from ..shards import show_part
from .operands import layer_mismatch, named_right

ORTHOGONAL = "orthogonalize"


def update_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless the gradient has every micro-batch once and covers the weight, and weight and state are
    the same pieces, of one layer and step; where gradients are orthogonalized, unless this one is."""
    grad, weight, opt_state = labels
    if (
        not (rank.muon or rank.tokens)
        and layer == grad.layer == weight.layer == opt_state.layer
        and grad.extra == weight.extra == opt_state.extra
        and len(grad.batches) == rank.batches
        and weight.step == opt_state.step
        and same_pieces(weight, opt_state)
        and within(weight, grad)
    ):
        return
    where = rank.place("update", layer)
    named_right(rank, where, layer, {"gradient": grad.layer, "weight": weight.layer, "state": opt_state.layer})
    _same_thing(where, layer, {"weight_grad": grad, "weight": weight, "opt_state": opt_state})
    if rank.muon and not grad.extra.direction:
        raise PuzzleError("not_brought", where=where, got=str(grad), verb="update", kind=f"what {ORTHOGONAL} gives")
    _sums_up(rank, where, grad)
    part = show_part(weight.shards, weight.total)
    if weight.step != opt_state.step or not same_pieces(weight, opt_state):
        differ, expected = "shards", f"{part}, as the weight"
        if weight.step != opt_state.step:
            differ, expected = "steps", f"step {weight.step}"
        facts = {"what": "weight and optimizer state", "labels": differ}
        raise PuzzleError("mismatch", where=where, expected=expected, got=str(opt_state), **facts)
    if not within(weight, grad):
        raise _lacks(where, "shards that the weight has", str(grad), f"at least {part}")


def orthogonalize_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless this is all of the summed gradient of the layer, where gradients are orthogonalized."""
    grad, where = labels[0], rank.place(ORTHOGONAL, layer)
    if grad.layer != layer:
        raise layer_mismatch("the gradient", where, layer, grad)
    if not rank.muon or grad.extra.direction:
        kind = "a gradient that is not orthogonalized yet" if rank.muon else 'nothing outside of run(..., train="muon")'
        raise PuzzleError("not_brought", where=where, got=str(grad), verb=ORTHOGONAL, kind=kind)
    _sums_up(rank, where, grad)
    if not grad.is_whole():
        raise _lacks(where, "shards", str(grad))


def _sums_up(rank: Rank, where: Place, grad: Labels) -> None:
    """Raise PuzzleError for a gradient that lacks micro-batches or slices, or in which one does not count by tokens."""
    if len(grad.batches) != rank.batches:
        missing = numbered("micro-batch", frozenset(range(rank.batches)) - grad.batches)
        raise _lacks(where, missing, show_set(grad.batches), f"all of {show_set(range(rank.batches))}")
    for use in (0, rank.layers - 1) if grad.extra.uses else ():
        if lacks := frozenset(range(rank.batches)) - {batch for batch, layer in grad.extra.uses if layer == use}:
            part = f"what layer {use} gives of {numbered('micro-batch', lacks)}"
            raise _lacks(where, part, str(grad), f"both uses of the weight, in layers 0 and {rank.layers - 1}")
    if grad.extra.of != 1:
        part = causal.show_slices(causal.missing(causal.ALL, grad.done()))
        raise _lacks(where, part, str(grad), "all slices of each micro-batch")
    counts, total = dict(grad.extra.factors), sum(rank.tokens)
    for batch, tokens in enumerate(() if grad.extra.direction else rank.tokens):
        if (count := counts.get(batch, 1)) * total != tokens:
            facts = {"batch": f"{batch}", "count": f"{count}", "tokens": f"{tokens}", "total": f"{total}"}
            raise PuzzleError("wrong_count", where=where, expected=f"{tokens}/{total}", **facts)


def _lacks(where: Place, part: str, got: str, expected: str = "") -> PuzzleError:
    return PuzzleError("missing_part", where=where, expected=expected, got=got, what="the gradient", part=part)


def _same_thing(where: Place, layer: int, labels: Mapping[str, Labels]) -> None:
    """Raise PuzzleError unless a gradient, a weight and a state are all of this layer, and all of it or its adapter."""
    for name, one in labels.items():
        if one.layer != layer:
            raise layer_mismatch(name, where, layer, one)
    grad = labels["weight_grad"]
    if len({one.adapter for one in labels.values() if one is not grad or one.batches}) > 1:
        got = ", ".join(f"{name} of {'an adapter' if one.adapter else 'a weight'}" for name, one in labels.items())
        raise PuzzleError("adapter_mixed", where=where, expected="all three of one and the same", got=got)
