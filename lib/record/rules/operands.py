"""What a weight, an input and a gradient have to be, whatever reads them: whole, of their layer, not yet updated."""

import functools
from collections.abc import Callable, Mapping

from ...basics.arguments import AS_NUMBERS, one_of
from ...basics.errors import Fix, Place, PuzzleError, numbered, show_set
from ..labels import DEALT, SLICES, Labels, experts_of
from ..operations import Rank
from ..shards import NONE


def named_right(rank: Rank, where: Place, layer: int, layers: Mapping[str, int]) -> None:
    """Raise PuzzleError if all operands are of one layer, and that is not the one that is named."""
    others = set(layers.values())
    if layer is None or isinstance(layer, str):
        one_of("layer", layer, rank.layers, where._replace(layer=None), f"{AS_NUMBERS}for layer in range(model.LAYERS)")
    if layer not in others and len(others) == 1:
        (own,), (*first, last) = others, layers
        problem = f"{', '.join(first)} and {last} are of layer {own}"
        fix = f"name their layer: {own} in place of {layer}"
        if not 0 <= layer < rank.layers:
            fix = f"there is no layer {layer}: LAYERS is {rank.layers}; {fix}"
        raise PuzzleError(problem, where=where, expected=f"layer {layer}", got=f"layer {own}", fix=fix)


def is_whole(rank: Rank, name: str, where: Place, labels: Labels) -> None:
    """Raise PuzzleError for a sum that lacks partial sums, and for slices of a sequence."""
    if labels.of != 1:
        call = f"await model.allreduce(..., {labels.layer})"
        problem, got = f"the {name} is not the whole sum", f"partial sum {show_set(labels.parts)} of {labels.of}"
        fix = f"add up what all ranks of the group have computed with their pieces of the weight: {call}"
        fix = rank.weights_cut_again(labels) or fix
        raise PuzzleError(problem, where=where, expected="all partial sums, added up", got=got, fix=fix)
    if labels.total != 1:
        problem, got = f"the {name} is a slice of the sequence", f"slice {show_set(labels.shards)} of {labels.total}"
        fix, fix_for = _for_a_slice(rank, name, where, labels)
        raise PuzzleError(problem, where=where, expected="the whole sequence", got=got, fix=fix, fix_for=fix_for)


def _for_a_slice(rank: Rank, name: str, where: Place, labels: Labels) -> tuple[str, dict[str, Fix]]:
    """Return what to write instead of a slice where the whole sequence is needed, and in some puzzles."""
    layer = labels.layer
    call = f"await model.allgather(..., {layer})"
    fix = f"gather the slices of all ranks of the group: {call}; together they are all of it, each "
    fix += "tensor.shard(model.rank, model.RANKS)"
    if name == "input" and where.operation != "loss":
        fix += ". The weight is not gathered: partial=True takes this rank's piece"
    uncut = "leave activations uncut: each rank trains on whole micro-batches of its own, model.get_activation([...])"
    if labels.kind == "ActivationGrad" and labels.layer == labels.layers - 1:
        fix = "model.loss gives each rank all of this gradient: leave out its .shard(...)"
    whole = f"activations stay whole here: no cuts, and sums come of await model.allreduce(..., {layer})"
    steps = f"a slice goes through a layer in steps: att, kv = model.project({layer}, inp, weight) is the first"
    if name == "gradient" or where.operation == "backward":
        steps = "a slice goes back in steps: att_grad = model.backward_rest(layer, inp, grad, weight, att) is the first"
    if where.operation == "loss":
        steps = "model.loss(out, sliced=True) takes a slice, and gives a slice"
    fix_for: dict[str, Fix] = {"project": steps, SLICES: lambda: rank.cut_again(labels) or fix, "partial=True": whole}
    fix_for |= dict.fromkeys(("whole", "sharded", "states_sharded", "replica_sharded"), uncut)
    return fix, fix_for


def adapter_fits(rank: Rank, where: Place, layer: int, adapter: Labels, partial: bool) -> None:
    """Raise PuzzleError unless this is the complete adapter of the layer, not yet updated, of a layer that is computed
    as a whole."""
    if partial:
        problem, fix = "a layer that is computed in pieces takes no adapter", "leave out partial=True, or adapter=..."
        raise PuzzleError(problem, where=where, fix=fix)
    if not adapter.adapter:
        problem, expected = "that is no adapter, but the layer's own weight", "a Weight with adapter=True"
        fix = f"adapter, opt_state = model.load_adapter({layer}), and then adapter=adapter"
        raise PuzzleError(problem, where=where, expected=expected, got=str(adapter), fix=fix)
    if adapter.layer != layer:
        problem, fix = f"the adapter is that of layer {adapter.layer}", f"the one that load_adapter({layer}) has given"
        raise PuzzleError(problem, where=where, expected=f"layer {layer}", got=str(adapter), fix=fix)
    if not adapter.is_whole():
        problem, expected = "the adapter is not complete", f"all shards of the adapter of layer {layer}"
        fix = f"adapter = await model.allgather(adapter, {layer}), or load all of it: model.load_adapter({layer})"
        raise PuzzleError(problem, where=where, expected=expected, got=str(adapter), fix=fix)
    if adapter.step and rank.graded:
        problem, fix = "the adapter has been updated already", "update it after the last backward that needs it"
        expected = "the adapter of step 0, for every micro-batch of the batch"
        raise PuzzleError(problem, where=where, expected=expected, got=str(adapter), fix=fix)


def weight_fits(rank: Rank, where: Place, layer: int, weight: Labels, partial: bool) -> None:
    """Raise PuzzleError unless this is the layer's own weight, not yet updated, and complete unless ``partial``."""
    if weight.adapter:
        problem = "an adapter is no weight of its own"
        expected = f"the weight of layer {layer}, and beside it its adapter"
        fix = f"weight=model.weights[{layer}], adapter=...: the adapter comes beside the weight, not in its place"
        raise PuzzleError(problem, where=where, expected=expected, got=str(weight), fix=fix)
    if weight.layer != layer:
        problem, expected = f"the weight is that of layer {weight.layer}", f"layer {layer}"
        own = f"what load_weights({layer}, ...) gives: model.weights[{layer}], where it is stored under its layer"

        def loaded() -> str:
            return own if partial else _gathered_ahead(rank, weight, layer) or own

        plain = functools.partial(_not_loaded, rank, layer, loaded)
        dealt = {DEALT: lambda: rank.dealt_otherwise() or plain()}
        error = PuzzleError(problem, where=where, expected=expected, got=str(weight), fix=plain, fix_for=dealt)
        error.sought = "Weight", layer, NONE
        raise error
    if not partial and not weight.is_whole():
        expected, problem = f"all shards of the weight of layer {layer}", "the weight is not complete"
        piece = f"compute with this rank's piece, model.weights[{layer}], and partial=True"
        fix_for: dict[str, Fix] = {
            "partial=True": f"{piece}: the result is a partial sum, to be added up over the ranks by "
            "model.allreduce or model.scatterreduce"
        }
        whole = f"load all of it, model.load_weights({layer}), and keep all of it until its last forward and backward"
        if rank.has_copy(layer):
            whole = f"this rank has loaded all of the weight of layer {layer}, and cut it since: keep all of it until "
            whole += "its last forward and backward, those of the rank's last micro-batch"
        fix_for |= dict.fromkeys(("whole", "stages", "states_sharded"), whole)
        if rank.has_copy(layer):
            then = f"and only then cut this layer, model.weights[{layer}] = model.weights[{layer}].shard(...)"
            fix_for["states_sharded"] = f"{whole}, {then}"
        gather: Fix = functools.partial(rank.whole_from_pieces, weight)
        if experts_of(layer, rank.experts):
            gather = f"tokens go to the experts: await model.alltoall(..., {layer}), and model.expert with this piece"
        else:
            fix_for["experts_sharded"] = (
                f"here each rank has all of a layer without experts: model.load_weights({layer})"
            )
        on_mesh = functools.partial(rank.whole_on_mesh, weight)
        fix_for |= dict.fromkeys(("replica_sharded", "hybrid_sharded", "sharded_stages"), on_mesh)
        raise PuzzleError(problem, where=where, expected=expected, got=str(weight), fix=gather, fix_for=fix_for)
    if weight.step and rank.graded:
        problem = "the weight has been updated already"
        expected = "the weight of step 0, for every micro-batch of the batch"
        fix = "update a layer after the last forward and backward that need its weight"
        raise PuzzleError(problem, where=where, expected=expected, got=str(weight), fix=fix)


def _not_loaded(rank: Rank, layer: int, otherwise: Callable[[], str]) -> str:
    """Return what to do about the weight of a layer that this rank has not loaded, while it has loaded others; or else
    what to do ``otherwise``."""
    own = rank.layers_loaded()
    if not own or layer in own:
        return otherwise()
    has = f"this rank has loaded {numbered('layer', own)}, and not layer {layer}"
    return f"{has}: load the layers that it runs, model.load_weights({layer}, ...), or run those that it has loaded"


def _gathered_ahead(rank: Rank, weight: Labels, layer: int) -> str:
    """Return how a rank gathers the weight of a layer, in place of one of another layer; or an empty text."""
    gather = rank.whole_weight(layer)
    if not gather or not weight.is_whole() or not rank.has_gathered(weight):
        return gather
    one, other = f"the call that the turn of layer {layer} awaits", f"allgather(layer {weight.layer})"
    if rank.not_gathered_again(layer):
        since = f"allgather(layer {layer}) has not been called here since forward({layer}, ...): {gather}"
        return f"{since}. If it is called one turn ahead, let {one} be this one, and not {other}"
    if not rank.has_awaited_gather(layer):
        never = f"no allgather(layer {layer}) has been awaited here before this, and {other} has: {gather}"
        return f"{never}. If it is called one turn ahead, let {one} be this one, as with layer + 1"
    ahead = "to gather one turn ahead, make the first call before the loop, and await each before you make the next one"
    ahead += ", which the next turn awaits"
    return f"{gather}; or {ahead}"
