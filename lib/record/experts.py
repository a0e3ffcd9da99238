"""Layers with experts: the all-to-all that sends tokens to their experts and home again, and what experts compute.

Every other layer, from layer 1 on, has experts. Its weight is theirs, one after the other. A token goes to some of
them, and what they give is added up at home, weighted. So the tokens of a micro-batch are cut by experts as a sequence
is cut into slices: the tokens of all experts together are the micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ..basics.errors import Place, PuzzleError, numbered, show_set
from .collectives import dealt, own_slice
from .heads import IN_HEADS, turned
from .labels import (
    NO_EXTRA,
    ExtraLabels,
    Labels,
    another_part,
    cut,
    experts_of,
    join,
    of_batches,
    others_than,
    same_pieces,
    within,
)
from .operations import Carrier, Collective, Computation, More, Part, Rank, Value, Values
from .rules.operands import batches_mismatch, layer_mismatch, named_right, weight_fits
from .shards import NONE, refined, show_part
from .training import BACKWARD, FORWARD

OUTWARD = {"Activation": "Tokens", "ActivationGrad": "TokensGrad"}
HOMEWARD = {tokens: kind for kind, tokens in OUTWARD.items()}
"""What tokens are called on their way, by what they are at home, and the other way round."""
Trip = tuple[frozenset[int], ...]
"""Which micro-batches each member of a group has brought to an all-to-all."""
_whose = others_than("batches", "extra")


def show_experts(labels: Labels, experts: int) -> str:
    """Return of which experts something is, as text: ``experts 2, 3``. Where their number is not known, or does not
    fit, which part of all it is."""
    if not experts or experts % labels.total:
        return show_part(labels.shards, labels.total)
    return numbered("expert", refined(labels.shards, labels.total, experts))


def no_experts(where: Place, layer: int, labels: Labels) -> PuzzleError:
    """Return the error of what only layers with experts do, in another layer."""
    expected = "a layer with experts"
    return PuzzleError("no_experts", where=where, expected=expected, got=str(labels), operands=[labels], layer=layer)


# -- the all-to-all ---------------------------------------------------------------------------------


def alltoall_rule(rank: Rank, layer: int, labels: Labels, group: Sequence[int]) -> None:
    """Raise PuzzleError for what is no whole micro-batch, and in ``run`` for the input of a layer without experts, and
    for more ranks than there are experts."""
    if labels.kind not in OUTWARD:
        return
    where = rank.place("alltoall", layer, labels.batches)
    if not labels.is_whole():
        what, expected, got = f"the {labels.kind}", "whole micro-batches", str(labels)
        facts = {"what": what, "part": "a slice of the sequence" if labels.of == 1 else "not the whole sum"}
        raise PuzzleError("incomplete", where=where, expected=expected, got=got, operands=[labels], **facts)
    if not rank.graded:
        return
    if not experts_of(layer, rank.experts):
        raise no_experts(where, layer, labels)
    if rank.experts % len(group):
        expected, parts = f"a part of {rank.experts}", f"{len(group)} ranks"
        raise PuzzleError("experts_not_divided", where=where, expected=expected, experts=rank.experts, parts=parts)


def alltoall(parts: Sequence[Part], values: Values, strict: bool = True) -> list[Part]:
    """All-to-all: member i gets piece i of what each brings. Micro-batches are cut by experts, and tokens of all
    experts, brought by the ranks that have these, go home to those whose micro-batches they were. What goes into
    attention is cut by heads in place of experts (see ``heads``)."""
    brought = [labels for labels, _ in parts]
    if brought[0].kind in IN_HEADS:
        return turned(parts, values)
    came = _came_by(brought)
    if came is None:
        return _outward(parts, values, strict)
    whole, value = join(brought, ""), values.join([value for _, value in parts])
    trips = whole.extra.trips
    at_home = [whole.batches & own for own in trips[came]]
    # Elsewhere they may still be away: the places of the other calls among the pieces stay as they are.
    left = (*trips[:came], (NONE,) * len(at_home), *trips[came + 1 :])
    while left and not any(left[-1]):
        left = left[:-1]
    if left:
        whole = whole.changed(extra=ExtraLabels(trips=left))
    elif whole.is_whole():
        whole = whole.changed(kind=HOMEWARD[whole.kind], extra=NO_EXTRA)
    else:
        got = show_part(whole.shards, whole.total)
        what, part = f"the {whole.kind}", "not complete"
        raise PuzzleError("incomplete", expected="all experts", got=got, what=what, part=part)
    return dealt((whole, value), [whole.changed(batches=batches) for batches in at_home], values)


def move(carrier: Carrier, value: Value, inputs: Sequence[Labels], outputs: Sequence[Labels]) -> Value:
    """Send each member the tokens that go to it, and no others. Return what has come, as the result is."""
    values, place = carrier.values, carrier.place
    going = [between(inputs[place], other) for other in outputs]
    coming = [between(other, outputs[place]) for other in inputs]
    came = carrier.exchanged([(values.cut(value, labels), labels) for labels in going], coming)
    return values.cut(values.join(came), outputs[place])


def between(brought: Labels, got: Labels) -> Labels:
    """Return the labels of what travels from one member of a group to another, which brings this and gets that."""
    finer = got if within(got, brought) else brought
    kind, heads = OUTWARD.get(brought.kind, brought.kind), max(brought, got, key=attrgetter("of_heads")).extra.heads
    part = another_part(brought, finer.shards, finer.total)
    return part.changed(kind=kind, batches=brought.batches & got.batches, extra=brought.extra._replace(heads=heads))


def _came_by(brought: Sequence[Labels]) -> int | None:
    """Return by which of the calls that have dealt these tokens out they go home again: the last one by which member i
    has piece i. None where they are not on their way home."""
    first = brought[0]
    if any(one.batches != first.batches for one in brought):
        return None
    trips = first.extra.trips
    for call in reversed(range(len(trips))):
        fits = len(trips[call]) == len(brought) and any(trips[call])
        if fits and all(_piece_of(one, trips, call) == {place} for place, one in enumerate(brought)):
            return call
    return None


def _piece_of(labels: Labels, trips: Sequence[Trip], call: int) -> set[int]:
    """Return which pieces of those that one of the calls has dealt out these tokens belong to."""
    before = 1
    for earlier in trips[: call + 1]:
        before *= len(earlier)
    return {shard * before // labels.total % len(trips[call]) for shard in labels.shards}


def _outward(parts: Sequence[Part], values: Values, strict: bool) -> list[Part]:
    """Send micro-batches to experts, piece i of all of them to the i-th of the group."""
    brought = [labels for labels, _ in parts]
    first = brought[0]
    if strict:
        _check_outward(brought)
    own = tuple([labels.batches for labels in brought])
    levels = zip(*[labels.extra.trips for labels in brought], strict=strict)
    trips = (*[tuple(map(_union, zip(*level, strict=strict))) for level in levels], own)
    kind = OUTWARD.get(first.kind, first.kind)
    whole = first.changed(kind=kind, batches=_union(own), extra=ExtraLabels(trips=trips))
    value = values.join([value for _, value in parts])
    return dealt((whole, value), [cut(whole, place, len(parts)) for place in range(len(parts))], values)


def _union(sets: Sequence[frozenset[int]]) -> frozenset[int]:
    return NONE.union(*sets)


def _check_outward(brought: Sequence[Labels]) -> None:
    """Raise PuzzleError unless these are different micro-batches of one thing, which have not been to their experts."""
    first = brought[0]
    batches = _union([one.batches for one in brought])
    twice = {batch for batch in batches if sum(batch in one.batches for one in brought) > 1}
    if first.kind in HOMEWARD and (twice or not first.layer % 2):
        got = "; ".join(f"{show_set(one.batches)}, {show_part(one.shards, one.total)}" for one in brought[:4])
        raise PuzzleError(
            "wrong_way_home", what="tokens", expected="the same micro-batches, of different experts", got=got
        )
    for one in brought:
        if _whose(one) != _whose(first):
            raise PuzzleError("not_one_thing", expected=f"other micro-batches of {first}", got=str(one))
    if twice:
        got = ", ".join(show_set(one.batches) for one in brought[:8])
        what = numbered("micro-batch", twice)
        raise PuzzleError("counted_twice", expected="each micro-batch on one rank", got=got, what=what)


def own_micro_batch(model: Any) -> Any:
    """Return a rank's own micro-batch, after layer 0: what it brings to an all-to-all in a small example."""
    model.weights[0], _ = model.load_weights(0)
    return model.forward(0, model.get_activation([model.rank]), model.weights[0])


def own_keys(model: Any) -> Any:
    """Return keys and values of a rank's slice: what it brings to an all-to-all that makes heads of slices."""
    model.weights[0], _ = model.load_weights(0)
    return model.project(0, own_slice(model), model.weights[0])[1]


ALLTOALL = Collective(
    kind="alltoall",
    code="AA",
    word="all-to-all",
    words=("alltoall",),
    elsewhere=("all_to_all", "all_to_all_single"),
    takes=("Activation", "ActivationGrad", "Tokens", "TokensGrad", *IN_HEADS),
    rule=alltoall_rule,
    result=alltoall,
    move=move,
    example=own_micro_batch,
    of_activations=own_keys,
)

# -- what experts compute -----------------------------------------------------------------------------


def expert_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless tokens, their gradient if there is one, and weight are of the same experts of this
    layer, the weight not yet updated, and the gradient of the same micro-batches."""
    tokens, *grads, weight = labels
    matching = all(one.layer == layer and same_pieces(one, weight) for one in (tokens, *grads))
    ready = weight.layer == layer and not weight.step and not weight.extra.adapter
    plain = not rank.graded or (layer % 2 == 1 and rank.experts and not rank.experts % weight.total)
    if matching and ready and plain and all(grad.batches == tokens.batches for grad in grads):
        return
    where = rank.place("expert", layer, tokens.batches)
    names = ("tokens", *["gradient"] * len(grads), "weight")
    named_right(rank, where, layer, dict(zip(names, [one.layer for one in labels], strict=True)))
    if rank.graded and not experts_of(layer, rank.experts):
        raise no_experts(where, layer, tokens)
    weight_fits(rank, where, layer, weight, partial=True)
    for one in (tokens, *grads):
        if one.layer != layer:
            raise layer_mismatch(f"the {one.kind}", where, layer, one, f"{one.kind} with layer={layer}")
        if not same_pieces(one, weight):
            go, own = show_experts(one, rank.experts), show_experts(weight, rank.experts)
            facts = {"what": f"{one.kind} and weight", "labels": "experts"}
            raise PuzzleError("mismatch", where=where, expected=own, got=go, **facts)
    for grad in grads:
        if grad.batches != tokens.batches:
            expected = f"a gradient for micro-batches {show_set(tokens.batches)}"
            raise batches_mismatch("tokens and gradient", where, expected, grad)
    parts = f"{weight.total} pieces"
    raise PuzzleError(
        "experts_not_divided", where=where, expected="whole experts", got=str(weight), experts=rank.experts, parts=parts
    )


def _gradients(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    """Return the labels of the gradients of the weight of some experts, and of their tokens."""
    tokens, grad, weight = labels
    of_weight = of_batches("WeightGrad", layer, rank.layers, tokens.batches, rank.batches)
    return [another_part(of_weight, *weight.piece()), grad.changed(layer=layer - 1)]


EXPERT_FORWARD = Computation(
    kind="expert",
    code="E",
    word="experts",
    words=("expert",),
    trains=True,
    like=FORWARD.kind,
    price=FORWARD.kind,
    unless_given=(FORWARD.kind, 1),
    takes={"tokens": "Tokens", "weight": "Weight"},
    rule=expert_rule,
    makes=lambda rank, layer, labels, more: [labels[0].changed(layer=layer + 1)],
    value=lambda values, given, more: [values.expert(*given)],
)

EXPERT_BACKWARD = replace(
    EXPERT_FORWARD,
    kind="backward_expert",
    code="BE",
    word="experts' backward",
    backward=True,
    like=BACKWARD.kind,
    price=BACKWARD.kind,
    unless_given=(BACKWARD.kind, 1),
    takes={"tokens": "Tokens", "grad": "TokensGrad", "weight": "Weight"},
    makes=_gradients,
    value=lambda values, given, more: values.backward_expert(*given),
    weight_grads=True,
)

ROWS = (EXPERT_FORWARD, EXPERT_BACKWARD)
"""The operations of the compute stream that only layers with experts have."""


DEALT = ("Tokens", "TokensGrad")


def layer_of_experts(labels: Labels) -> int:
    """Return the layer with the experts that these tokens go to, or come from. The outputs of experts are labeled with
    the next layer, and the gradients of their inputs with the layer before."""
    if labels.layer % 2:
        return labels.layer
    return labels.layer + (1 if labels.kind in ("TokensGrad", "ActivationGrad") else -1)


def is_dealt(kind: str) -> bool:
    """Return whether tensors of a kind are tokens on their way to experts or home, as many as their loads say."""
    return kind in DEALT
