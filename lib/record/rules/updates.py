"""The optimizer step: what it insists on, and what to write where that does not hold."""

import functools
from collections.abc import Mapping, Sequence

from ...basics.errors import Fix, Place, PuzzleError, numbered, show_set
from .. import causal
from ..labels import Labels, experts_of, same_pieces, within
from ..operations import More, Rank
from ..shards import show_part
from .incomplete import Lack, completed
from .operands import named_right

CUT_APART = "weight and optimizer state hold different shards"
"""What is wrong where an update is given a piece of the one, and another of the other."""


def update_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless the gradient has every micro-batch once and covers the weight, and weight and state are
    the same pieces, of one layer and step."""
    grad, weight, opt_state = labels
    if (
        layer == grad.layer == weight.layer == opt_state.layer
        and grad.extra == weight.extra == opt_state.extra
        and len(grad.batches) == rank.batches
        and weight.step == opt_state.step
        and same_pieces(weight, opt_state)
        and within(weight, grad)
    ):
        return
    where = rank.place("update", layer)
    named_right(rank, where, layer, {"gradient": grad.layer, "weight": weight.layer, "state": opt_state.layer})
    _same_thing(rank, where, layer, {"weight_grad": grad, "weight": weight, "opt_state": opt_state})
    if len(grad.batches) != rank.batches:
        raise _of_some_batches(rank, where, layer, grad)
    if grad.extra.of != 1:
        raise _of_some_slices(rank, where, layer, grad)
    if weight.step != opt_state.step:
        problem, expected = "weight and optimizer state are of different steps", f"step {weight.step}"
        fix = f"each update makes both anew: store both, and take both, model.opt_states[{layer}] as well"
        raise PuzzleError(problem, where=where, expected=expected, got=str(opt_state), fix=fix)
    if not same_pieces(weight, opt_state):
        raise _of_other_pieces(rank, where, layer, labels)
    raise _not_covered(rank, where, layer, grad, weight)


def _of_some_batches(rank: Rank, where: Place, layer: int, grad: Labels) -> PuzzleError:
    """Return the error about a gradient that lacks micro-batches."""
    missing = frozenset(range(rank.batches)) - grad.batches
    problem = f"the gradient is missing {numbered('micro-batch', missing)}"
    expected, got = f"all of {show_set(range(rank.batches))}", show_set(grad.batches)
    by = [("allreduce", "scatterreduce"), ("scatterreduce",), ("allreduce",)]
    lacks = [Lack(rank, layer, grad, missing, rank.fetches(), verbs) for verbs in by]
    complete, cut, whole = (functools.partial(completed, lack) for lack in lacks)
    others: dict[str, Fix] = {"no_whole_gradient": cut, "states_sharded": cut}
    others |= dict.fromkeys(("whole", "frozen_shards", "both_ends", "before scatterreduce"), whole)
    return PuzzleError(problem, where=where, expected=expected, got=got, fix=complete, fix_for=others)


def _of_other_pieces(rank: Rank, where: Place, layer: int, labels: Sequence[Labels]) -> PuzzleError:
    """Return the error about a weight and a state that are different pieces."""
    grad, weight, opt_state = labels
    problem = CUT_APART
    expected = f"{show_part(weight.shards, weight.total)}, as the weight"
    alike = functools.partial(_held_alike, rank, layer, weight, opt_state)
    whole = "gather the gradient before that"
    if weight.is_whole() and grad.is_whole():
        whole = f"leave the state whole, as model.load_weights({layer}) gives it, and as weight and gradient are"
    all_of_it = {"whole": f"here each rank updates all of a layer, weight and state: {whole}"}
    return PuzzleError(problem, where=where, expected=expected, got=str(opt_state), fix=alike, fix_for=all_of_it)


def _not_covered(rank: Rank, where: Place, layer: int, grad: Labels, weight: Labels) -> PuzzleError:
    """Return the error about a gradient that is not that of all of the weight that it updates."""
    problem, expected = "the gradient does not cover the weight", f"at least {show_part(weight.shards, weight.total)}"
    cover: Fix = functools.partial(_cut_alike, rank, layer, grad, weight)
    fix_for: dict[str, Fix] = {}
    if within(grad, weight) and experts_of(layer, rank.experts):
        cover = "what model.backward_expert gives is the gradient of this rank's experts already: leave it whole"
    elif within(grad, weight):
        cover, fix_for = _too_small(rank, layer, grad, weight)
    fix_for = {"hybrid_sharded": functools.partial(_cut_once, rank, layer, cover), **fix_for}
    return PuzzleError(problem, where=where, expected=expected, got=str(grad), fix=cover, fix_for=fix_for)


def _too_small(rank: Rank, layer: int, grad: Labels, weight: Labels) -> tuple[Fix, dict[str, Fix]]:
    """Return what to write where a gradient is a piece of that of the weight, and what in some puzzles."""
    gather = f"gather the gradient: grad = await model.allgather(grad, {layer}{rank.last_cut(layer)})"
    gather += ", over the ranks that have cut it, and no others" * (not rank.last_cut(layer))
    again = "" if weight.is_whole() else "is the gradient cut twice, as model.scatterreduce cuts it already? Else "
    if grad.total % weight.total:
        again = f"the gradient is cut into {grad.total} pieces, and the weight into {weight.total}: cut it as the "
        again += "weight, or leave it whole. Else "
    cut: Fix = functools.partial(_cut_alike, rank, layer, grad, weight, again)
    fix_for: dict[str, Fix] = {"no_whole_gradient": cut, "whole": gather, "stages": gather, "states_sharded": cut}
    own = "update with the gradient that backward(..., partial=True) gives: it is that of this rank's piece of the "
    own += "weight, and is neither cut nor gathered"
    if weight.is_whole():
        whole = _of_a_whole_weight(rank, layer)
        fix_for = {"sharded": whole["sharded"], **fix_for, **whole}  # the first that a puzzle asks for decides
        own = f"here each rank loads, keeps and updates its piece of every layer: model.load_weights({layer}, "
        own += "model.rank, model.RANKS). The gradient is that of this piece already"
    if grad.adapter and weight.is_whole() and rank.is_cut(layer):
        every = f"grad = await model.allreduce(grad, {layer}) in place of model.scatterreduce"
        return f"{every}: each rank has all of the adapter, and updates all of it", {"weights_stay": own}
    both: Fix = functools.partial(_cut_alike, rank, layer, grad, weight, f"{again}{gather}; or ")
    if further := rank.cut_further(layer, grad):
        both = further
        fix_for |= dict.fromkeys(("whole", "no_whole_gradient", "states_sharded"), both)
    return both, {"weights_stay": own, **fix_for}


def _of_a_whole_weight(rank: Rank, layer: int) -> dict[str, Fix]:
    """Return what to write in some puzzles where the weight is whole, and its gradient is a piece."""
    shard = "here each rank loads, keeps and updates its shard of every layer: "
    fix_for: dict[str, Fix] = {"sharded": f"{shard}model.load_weights({layer}, model.rank, model.RANKS)"}
    if rank.is_cut(layer) and not rank.last_cut(layer):
        whole = f"grad = await model.allreduce(grad, {layer}) in place of model.scatterreduce, which leaves each "
        every = f"{whole}rank a piece: here each rank updates all of a layer"
        fix_for |= {"whole": every, "experts_sharded": every.replace("a layer", "a layer without experts")}
    if rank.is_cut(layer):
        own = f"grad = await model.allreduce(grad, {layer}{rank.last_cut(layer)}) in place of model.scatterreduce"
        fix_for["both_ends"] = f"{own}, which leaves each rank a piece: here each rank updates all of its layers"
    if pieces := rank.cut_twice(layer):
        fix_for["whole"] = pieces
    return fix_for


def _same_thing(rank: Rank, where: Place, layer: int, labels: Mapping[str, Labels]) -> None:
    """Raise PuzzleError unless a gradient, a weight and a state are all of this layer, and all of it or its adapter."""
    for name, one in labels.items():
        if one.layer != layer:
            problem = f"{name} is of layer {one.layer}"
            fix = f"model.update({layer}, ...) takes all of layer {layer}: is one under the key of another, or is "
            fix += f"{layer} the wrong number? Every tensor knows its own, {name}.layer"
            if name == "weight_grad" and all(other.layer == layer for key, other in labels.items() if key != name):
                whole = len(one.batches) == one.total_batches and not rank.has_run("update", one.layer)
                due = f", which has no update yet, so that this is for model.update({one.layer}, ...)" * whole
                fix = f"weight and state are of layer {layer}, and the gradient is of layer {one.layer}{due}"
                if whole and rank.went_back_last(one.layer):
                    fix += (
                        f". This is the turn of that layer, whose backward has run last: is {layer} written where its "
                    )
                    fix += "number is meant, here, in a key, or where the function around this is called?"
                else:
                    fix += f": is it under the key of another, or is {layer} the wrong number? Or is it a sum that is "
                    fix += "awaited in a later turn? Then go by the layer of the turn that called it, here "
                    fix += f"and for the keys: keep that number beside it, or take {name}.layer"
            raise PuzzleError(problem, where=where, expected=f"layer {layer}", got=str(one), fix=fix)
    grad = labels["weight_grad"]
    if len({one.adapter for one in labels.values() if one is not grad or one.batches}) > 1:
        problem = "an adapter is updated with its own gradient and state, and a weight with its own"
        got = ", ".join(f"{name} of {'an adapter' if one.adapter else 'a weight'}" for name, one in labels.items())
        fix = f"what load_adapter({layer}) gave, with the gradient of a backward that was given adapter=..."
        raise PuzzleError(problem, where=where, expected="all three of one and the same", got=got, fix=fix)


def _of_some_slices(rank: Rank, where: Place, layer: int, grad: Labels) -> PuzzleError:
    """Return the error about a gradient that is not summed over the whole sequence."""
    slices, of = causal.missing(causal.ALL, grad.done())
    problem = "the gradient is of some slices of the sequence only: slices "
    problem += f"{show_set(slices)} of {of} are missing"
    fix = f"add up the gradients of all ranks that have slices of the sequence: await model.allreduce(grad, {layer})"
    if none := rank.slices_of_none(layer, grad.batches, (slices, of))[0]:
        problem += f"; slices {show_set(none)} were computed by no rank"
        fix = "every slice needs a rank: inp.shard(model.rank, model.RANKS)"
    expected = "all slices of each micro-batch"
    return PuzzleError(problem, where=where, expected=expected, got=str(grad), fix=fix)


def _held_alike(rank: Rank, layer: int, weight: Labels, opt_state: Labels) -> str:
    """Return how a rank comes to the same piece of a weight and of its state."""
    if within(opt_state, weight) and rank.has_gathered(weight):
        own = f"model.weights[{layer}]"
        fix = f"update the piece that this rank has loaded, and not what was gathered: model.update({layer}, grad, "
        return f"{fix}{own}, model.opt_states[{layer}]), with that piece still in {own}"
    if within(opt_state, weight) and weight.is_whole() and rank.owns_piece(opt_state):
        if rank.has_called_gather(layer):
            fix = f"gather this weight after its update, and not before: model.update({layer}, grad, piece, ...) with "
            return (
                f"{fix}the piece that this rank had, as its state is one, and then model.allgather of what that gives"
            )
        fix = "update the piece of the weight whose state this rank has, "
        fix += f"model.weights[{layer}].shard(model.rank, model.RANKS): cut both alike, with the same numbers"
        if rank.has_called_gather(layer, "WeightGrad"):
            fix += ". It needs no more than this rank's piece of the gradient: leave out model.allgather of that, and "
            fix += "gather the weight that update gives"
        return fix
    if within(weight, opt_state) and opt_state.is_whole() and rank.has_copy(layer):
        return f"cut the state as the weight is cut: opt_state.shard{rank.numbers_of(weight)}"
    if within(weight, opt_state) and opt_state.is_whole() and rank.owns_piece(weight):
        load = (
            f"model.weights[{layer}], model.opt_states[{layer}] = model.load_weights({layer}, model.rank, model.RANKS)"
        )
        return f"load of the state the piece that goes with that of the weight, both by one call, {load}"
    if numbers := rank.cut_along(weight) or rank.cut_along(opt_state):
        return f"cut both alike, out of what load_weights gave: weight.shard{numbers} and opt_state.shard{numbers}"
    if len(weight.shards) == len(opt_state.shards) == 1 and not (weight.is_whole() or opt_state.is_whole()):
        same = "weight.shard and model.load_weights, which gives the state, with the same numbers, "
        known = [rank.numbers_of(weight), rank.numbers_of(opt_state)]
        along = [one for one in known if "axis_index" in one and rank.axes_of_layers()]
        by_place = ["model." in one for one in known]
        if not along and by_place[0] != by_place[1]:
            odd, even = ("state", "weight") if by_place[0] else ("weight", "state")
            of, numbers = (opt_state, known[0]) if by_place[0] else (weight, known[1])
            is_piece = f"the {odd} is piece {min(of.shards)} of {of.total}, and the {even} is cut by {numbers}"
            return f"{is_piece}: cut both alike, the {odd} by {numbers} as well"
        return f"cut both alike: {same}{' or '.join(along or known)}"
    return "cut both alike: weight.shard(i, n) and opt_state.shard(i, n), with the same i and n"


def _cut_alike(rank: Rank, layer: int, grad: Labels, weight: Labels, before: str = "") -> str:
    """Return which piece of a weight goes with the piece of a gradient that a rank has."""
    fix = "hold the piece of weight and state whose gradient this rank has, as a reduce-scatter gives piece i to the "
    if over := rank.cut_of(layer):
        if "await" in over:
            return f"{before}{over}"
        return f"{before}{over}; {fix}i-th rank of its group"
    cut = rank.other_piece(layer, grad)
    if not cut and rank.owns_piece(grad) and weight.total != grad.total:
        cut = f"that is one of {grad.total}: weight.shard(model.rank, model.RANKS), and opt_state.shard alike"
    numbers = rank.numbers_of(grad)
    if not cut and len(grad.shards) == 1 and not grad.is_whole() and "model." in numbers:
        cut = f"this one is {numbers}: weight.shard with these two numbers, and opt_state.shard alike"
    return f"{before}{fix}i-th rank of its group{cut and f'; {cut}'}"


def _cut_once(rank: Rank, layer: int, otherwise: Fix) -> str:
    """Return how the gradient of a layer is cut as its weight is, where that is right as it is loaded, over one axis;
    or what to do ``otherwise``."""
    return rank.cut_once(layer) or (otherwise() if callable(otherwise) else otherwise)
