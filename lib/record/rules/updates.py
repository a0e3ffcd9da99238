"""The optimizer step: what it insists on."""

from collections.abc import Mapping, Sequence

from ...basics.errors import Place, PuzzleError, numbered, show_set
from .. import causal
from ..labels import Labels, same_pieces, within
from ..operations import More, Rank
from ..shards import show_part
from .operands import layer_mismatch, named_right

BOTH, ORTHOGONAL = "weight and optimizer state", "orthogonalize"


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
    if weight.step != opt_state.step:
        expected, both = f"step {weight.step}", {"what": BOTH, "labels": "steps"}
        raise PuzzleError("mismatch", where=where, expected=expected, got=str(opt_state), **both)
    part = show_part(weight.shards, weight.total)
    if not same_pieces(weight, opt_state):
        expected, both = f"{part}, as the weight", {"what": BOTH, "labels": "shards"}
        raise PuzzleError("mismatch", where=where, expected=expected, got=str(opt_state), **both)
    if not within(weight, grad):
        facts = {"what": "the gradient", "part": "shards that the weight has"}
        raise PuzzleError("missing_part", where=where, expected=f"at least {part}", got=str(grad), **facts)


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
        raise PuzzleError("missing_part", where=where, got=str(grad), what="the gradient", part="shards")


def _sums_up(rank: Rank, where: Place, grad: Labels) -> None:
    """Raise PuzzleError for a gradient that lacks micro-batches or slices, or in which one does not count by tokens."""
    if len(grad.batches) != rank.batches:
        missing = numbered("micro-batch", frozenset(range(rank.batches)) - grad.batches)
        expected, got = f"all of {show_set(range(rank.batches))}", show_set(grad.batches)
        raise PuzzleError("missing_part", where=where, expected=expected, got=got, what="the gradient", part=missing)
    if grad.extra.of != 1:
        part = causal.show_slices(causal.missing(causal.ALL, grad.done()))
        what, expected = "the gradient", "all slices of each micro-batch"
        raise PuzzleError("missing_part", where=where, expected=expected, got=str(grad), what=what, part=part)
    counts, total = dict(grad.extra.factors), sum(rank.tokens)
    for batch, tokens in enumerate(() if grad.extra.direction else rank.tokens):
        if (count := counts.get(batch, 1)) * total != tokens:
            facts = {"batch": f"{batch}", "count": f"{count}", "tokens": f"{tokens}", "total": f"{total}"}
            raise PuzzleError("wrong_count", where=where, expected=f"{tokens}/{total}", **facts)


def _same_thing(where: Place, layer: int, labels: Mapping[str, Labels]) -> None:
    """Raise PuzzleError unless a gradient, a weight and a state are all of this layer, and all of it or its adapter."""
    for name, one in labels.items():
        if one.layer != layer:
            raise layer_mismatch(name, where, layer, one)
    grad = labels["weight_grad"]
    if len({one.adapter for one in labels.values() if one is not grad or one.batches}) > 1:
        got = ", ".join(f"{name} of {'an adapter' if one.adapter else 'a weight'}" for name, one in labels.items())
        raise PuzzleError("adapter_mixed", where=where, expected="all three of one and the same", got=got)
