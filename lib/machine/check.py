"""Right or wrong: what the ranks end with, against plain training on one device."""

from collections.abc import Callable, Collection, Sequence

from ..basics.arguments import one_of_names
from ..basics.errors import Fix, Place, PuzzleError, numbered, show_set
from ..record.labels import Labels, same_pieces, within
from ..record.shards import union
from .fingerprints import Fingerprints, piece_of, trained_weights
from .interface import FinalState, Piece

MISSING, INCOMPLETE = "no rank has set a final weight", "the final weight is not complete"
NOT_UPDATED = "that is no weight of this layer after one optimizer step"
WRONG_VALUE = "the final weight has a wrong value: it is not what plain training on one device gives"
BRIEFLY = {
    MISSING: "layer {} has no final weight",
    INCOMPLETE: "the final weight of layer {} is not complete",
    NOT_UPDATED: "the final weight of layer {} is not the updated one",
    WRONG_VALUE: "the final weight of layer {} has a wrong value",
}
"""The problems that the check finds, in so few words that they fit under a title."""
Finals = Callable[[int, list[tuple[int, Piece]]], list[tuple[int, Piece]] | None]
"""What gives the final weights of a layer on all ranks, by those of the ranks that were run (``represent``). None where
they are as those of a layer before: then the others are right if these are."""
LayersDone = Callable[[], tuple[Collection[int | None], Collection[int | None]]]
"""What gives the layers whose gradients were computed on some rank, and those that were updated there."""
TRAINED = ("weights", "adapters")
"""What may be trained: the layers' own weights, or adapters beside weights that stay as they are."""


def check_finals(
    states: Sequence[FinalState],
    train: str = TRAINED[0],
    everyone: Callable[[], Finals] | None = None,
    layers_done: LayersDone = lambda: (frozenset(), frozenset()),
) -> bool:
    """Check every layer's final weights: of step 1, together complete, and right in value; or where ``train`` says
    "adapters" its final adapters, and that weights have stayed as they were. Return whether any of them is made up
    (whose value says nothing). Raise PuzzleError if anything is wrong. ``everyone`` gives the final weights of all
    ranks where these are the states of some; ``layers_done``: for errors."""
    one_of_names("train", train, TRAINED)
    adapters, of_all = train != TRAINED[0], everyone and everyone()
    layers, batches = states[0].layers, states[0].batches
    made_up, trained = False, trained_weights(layers, batches, adapters)
    if adapters:
        _check_frozen(states)
    for layer in range(layers):
        finals = [(state.rank, state.finals[layer]) for state in states if layer in state.finals]
        every = finals if of_all is None else of_all(layer, finals)
        if every is not None:
            _check_complete(layer, every, adapters, states, layers_done)
            finals = every
        for rank, final in finals:
            made_up = made_up or final.made_up
            mark = getattr(final.value, "mark", final.value)  # with real tensors the fingerprint is in the value
            if not final.made_up and mark != (trained[layer][0], piece_of(final.labels)):
                raise _wrong_value(rank, final.labels, adapters)
    return made_up


def _not_updated(states: Sequence[FinalState], layer: int) -> int | None:
    """Return the first rank that ends with a weight of a layer as it was loaded, if none has updated it."""
    weights = [(state.rank, one.labels) for state in states for one in state.kept if one.labels.kind == "Weight"]
    own = [(rank, labels.step) for rank, labels in weights if labels.layer == layer]
    return own[0][0] if own and not any(step for _, step in own) else None


def _has_gradient(states: Sequence[FinalState], rank: int, layer: int) -> bool:
    """Return whether a rank ends with the gradient of a layer's weight, or with a piece of it."""
    kept = [one.labels for state in states if state.rank == rank for one in state.kept]
    return any(labels.kind == "WeightGrad" and labels.layer == layer for labels in kept)


def _has_updated(states: Sequence[FinalState], rank: int, layer: int) -> bool:
    """Return whether a rank ends with an updated piece of a layer, or with the state of one."""
    kept = [one.labels for state in states if state.rank == rank for one in state.kept]
    return any(labels.layer == layer and labels.step and labels.kind in ("Weight", "OptState") for labels in kept)


def _check_complete(
    layer: int,
    finals: Sequence[tuple[int, Piece]],
    adapters: bool,
    states: Sequence[FinalState],
    layers_done: LayersDone,
) -> None:
    """Raise PuzzleError unless these are weights of a layer, or its adapter, after one step, and together all of it."""
    for rank, final in finals:
        labels = final.labels
        if labels.adapter != adapters:
            raise _other_training(rank, labels)
        if labels.kind != "Weight" or labels.layer != layer or labels.step != 1:
            problem, where = NOT_UPDATED, Place(rank, layer=layer, detail="final weight")
            expected = f"a Weight with layer={layer}, step=1"
            fix = f"weight, opt_state = model.update({layer}, ...); model.set_final_weight({layer}, weight)"
            fix_for = dict[str, Fix]()
            if labels.kind == "Weight" and labels.layer == layer and not labels.step:
                updated = [other for other, one in finals if one.labels.step]
                fix = f"this is the weight from before the update; hand in what the update gives: {fix}"
                if not updated and layers_done()[0] and (never := _never_updated(states, layer, layers_done)):
                    fix = never
                if updated:
                    fix = f"{numbered('rank', updated)} {'has' if len(updated) == 1 else 'have'} updated it, and rank "
                    fix += f"{rank} has not: each rank updates what it has, below no `if` of a rank"
                every = (
                    "this is the weight from before the update: here each rank updates its own piece of every layer, "
                )
                every += (
                    f"model.rank of model.RANKS, and sets all of it: weight = await model.allgather(piece, {layer})"
                )
                if _has_updated(states, rank, layer):
                    every = f"this is the weight from before the update, and rank {rank} has updated its piece: gather "
                    every += f"what model.update gives, after it, weight = await model.allgather(piece, {layer})"
                host = "this is the weight from before the update: on the host, model.weights[layer], "
                host += "model.opt_states[layer] = model.update(...), and then send that new weight back"
                fix_for = {"states_sharded": every, "updates_on_hosts": host}
            if labels.kind == "Weight" and labels.layer == layer and labels.step > 1:
                fix = f"model.update has been called {labels.step} times for layer {layer}, each time with what the "
                fix += "one before gave: one update for each layer, with the whole gradient"
            raise PuzzleError(
                problem, where=where, expected=expected, got=str(labels), fix=fix, fix_for=fix_for, line=""
            )
    (have, total), _ = union(tuple((final.labels.shards, final.labels.total) for _, final in finals))
    if len(have) < total:
        problem, expected, got = MISSING, "one for every layer", ""
        if finals:
            problem = INCOMPLETE
            expected = "all ranks' shards together make the whole weight"
            got = f"shards {show_set(frozenset(range(total)) - have)} of {total} are missing"
        hand_in = f"model.set_final_weight({layer}, weight)"
        fix = f"after update: {hand_in}"
        handed_in = {rank for rank, _ in finals}
        loaded = [state.rank for state in states if any(one.layer == layer for one in state.began)]
        if finals and (without := [rank for rank in loaded if rank not in handed_in]):
            fix = f"{numbered('rank', without)} {'has' if len(without) == 1 else 'have'} loaded a piece of it too, and "
            fix += "set no final weight: each rank updates the pieces that it has loaded, of every layer, and sets them"
        elif finals and total > len(handed_in) > 1:
            fix = (
                f"each rank has updated a piece, and together these are {len(have)} of {total}: are weight, state and "
            )
            fix += "gradient cut twice? model.scatterreduce cuts the gradient, and so does .shard(...): cut each once, "
            fix += "into as many pieces as there are ranks"
        if again := next(filter(None, (_cut_again(state, layer) for state in states)), ""):
            fix = f"{again}: leave out what cuts it again, .shard(...), and set what update gives: {hand_in}"
        if some := "" if finals else next(filter(None, (_set_too_few(state, layer) for state in states)), ""):
            fix = f"{some}: model.set_final_weight(layer, weight) belongs in the loop, after each update"
        if never := "" if finals else _never_updated(states, layer, layers_done):
            fix = never
        raise PuzzleError(problem, where=Place(layer=layer), expected=expected, got=got, fix=fix, line="")


def _never_updated(states: Sequence[FinalState], layer: int, layers_done: LayersDone) -> str:
    """Return that no rank has updated a layer, and why that may be; or an empty text."""
    holder, (back, updated) = _not_updated(states, layer), layers_done()
    if holder is None or layer in updated:
        return ""
    if back and layer not in back:
        ends = f"no rank has run the backward of layer {layer}: does a loop end too soon? range ends before its "
        return ends + "second number, so range(model.LAYERS - 1, -1, -1) goes down to layer 0"
    has = f"rank {holder} has layer {layer}, and has not updated it: model.update({layer}, ...), and "
    has += f"model.set_final_weight({layer}, weight)"
    if _has_gradient(states, holder, layer):
        own = {one.layer for state in states if state.rank == holder for one in state.began} & {*updated}
        only = f", and this rank has updated {numbered('layer', own)} only: is its update outside the loop over the "
        loop = f"{only}layers, d" if len(own) == 1 else ": d"
        ends = "oes an `if` take one where several are left, or a loop end early, as with `break`? Or is a condition "
        ends += "above that update false for it?"
        return f"{has}. Its gradient is still stored{loop}{ends}"
    if layer:
        return has
    down = (
        "Does a loop of updates that goes down from the last layer end before it? reversed(range(model.LAYERS)) has it"
    )
    late = "Or are updates one turn late? Then that of layer 0 comes after the loop"
    return f"{has}. {down}. {late}" + ". Or does its turn end before that, as with `break`? Its backward has run" * (
        layer in back
    )


def _set_too_few(state: FinalState, layer: int) -> str:
    """Return which final weights a rank has set that has updated this layer and others, if any; or an empty text."""
    updated = {one.labels.layer for one in state.kept if one.labels.step and one.labels.kind in ("Weight", "OptState")}
    done = f"rank {state.rank} has updated {numbered('layer', updated)}, and has set the final"
    return f"{done} weight of {numbered('layer', state.finals)} only" if state.finals and layer in updated else ""


def _cut_again(state: FinalState, layer: int) -> str:
    """Return which piece of the piece that a rank has loaded it ends with, or an empty text."""
    final = state.finals[layer].labels if layer in state.finals else None
    for own in state.began:
        if final is None or (own.kind, own.layer) != ("Weight", layer) or own.is_whole():
            continue
        if within(final, own) and not same_pieces(final, own):
            loaded, piece = (f"{show_set(one.shards)[1:-1]} of {one.total}" for one in (own, final))
            return f"on rank {state.rank} update gives shard {loaded}, and this is a piece of that, {piece}"
    return ""


def _wrong_value(rank: int, labels: Labels, adapters: bool) -> PuzzleError:
    """Return the error of a final weight, or an adapter, that is not what plain training gives."""
    fix = "look for a micro-batch that counts twice or not at all, a reduction over the wrong group, or a state or "
    fix += "weight that went stale"
    if adapters:
        fix += ", or for a forward or a backward that was not given its layer's own adapter"
    where = Place(rank, layer=labels.layer)
    expected = "the weight of step 0, updated once with the gradient of every micro-batch exactly once"
    return PuzzleError(WRONG_VALUE, where=where, expected=expected, got=str(labels), fix=fix, line="")


def _other_training(rank: int, labels: Labels) -> PuzzleError:
    """Return the error of a final weight where adapters are trained, or of an adapter where weights are."""
    problem, expected = "that is an adapter, and the layers' own weights are to be trained", "the updated weight"
    fix = 'to train adapters only: run(..., train="adapters")'
    if not labels.adapter:
        problem, expected = "that is the layer's own weight, and only adapters are trained", "the updated adapter"
        fix = f"adapter, opt_state = model.update({labels.layer}, grad, adapter, opt_state); "
        fix += f"model.set_final_weight({labels.layer}, adapter)"
    where = Place(rank, layer=labels.layer, detail="final weight")
    return PuzzleError(problem, where=where, expected=expected, got=str(labels), fix=fix, line="")


def _check_frozen(states: Sequence[FinalState]) -> None:
    """Raise PuzzleError for a weight that is stored at the end and is not as it was at the beginning."""
    began = Fingerprints()
    for state in states:
        for labels, value, made_up in state.kept:
            if labels.kind == "Weight" and not labels.adapter and not made_up:
                mark = getattr(value, "mark", value)
                if labels.step or mark != (began.weight(labels)[0], piece_of(labels)):
                    where, expected = Place(state.rank, layer=labels.layer), "the weight as it was loaded, of step 0"
                    problem = "a frozen weight has been changed"
                    fix = "update the adapter only, and leave the layer's own weight as load_weights gave it"
                    raise PuzzleError(problem, where=where, expected=expected, got=str(labels), fix=fix, line="")
