"""The rules that a puzzle's spec may name: conditions on the log beyond layout, time and memory."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from ..basics.errors import Place, PuzzleError, numbered, show_axis, show_set
from ..basics.units import Elements, at_tick, divided, whole_or_ratio
from ..machine.outcome import Outcome
from ..record.attention import PROJECT
from ..record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from ..record.events import Event
from ..record.kinds import KINDS, SLOT
from ..record.labels import ADAPTER, Labels, experts_of
from ..record.shards import WHOLE, refined
from ..record.table import RECEIVE, SEND, makes_weight_grads, training
from ..record.training import LOSS, UPDATE
from .used import needless_weights


def _broken(event: Event, problem: str, expected: str, fix: str) -> PuzzleError:
    place = Place(event.rank, event.kind, event.layer, tick=event.issued, detail=at_tick(event.issued))
    return PuzzleError(problem, where=place, expected=expected, fix=fix, line="")


def one_micro_batch(outcome: Outcome) -> None:
    """Raise PuzzleError unless every operation through a layer works on one micro-batch."""
    one_at_a_time(outcome.events)


def one_at_a_time(events: Iterable[Event]) -> None:
    """Raise PuzzleError for the first of these operations that works on several micro-batches."""
    trains = training()
    for event in events:
        if event.kind in trains and len(event.batches) > 1:
            expected = "one micro-batch after the other, as the puzzle asks"
            fix = "model.get_activation([micro_batch]) in a loop over the micro-batches"
            raise _broken(event, f"it works on micro-batches {show_set(event.batches)} at once", expected, fix)


def one_after_the_other(outcome: Outcome) -> None:
    """Raise PuzzleError for a rank that goes back to a micro-batch after it has begun with another one."""
    trains, begun = training(), defaultdict[int, list[frozenset[int]]](list)
    for event in outcome.events:
        if event.kind in trains:
            mine = begun[event.rank]
            if event.batches in mine[:-1]:
                expected = "one micro-batch after the other: forward and back, and then the next"
                fix = "for mb in ...:  # all forwards and all backwards of this micro-batch"
                again, other = (numbered("micro-batch", batches) for batches in (event.batches, mine[-1]))
                problem = f"it works on {again} again, after {other}"
                raise _broken(event, problem, expected, fix)
            if event.batches not in mine:
                mine.append(event.batches)


def as_many_each(outcome: Outcome) -> None:
    """Raise PuzzleError unless each rank trains on as many micro-batches as any other, and so each micro-batch on one
    rank; with stages, on one of the pipelines. (Experts train on tokens of all.)"""
    trains, mine, mesh = training(), defaultdict[int, set[int]](set), outcome.mesh or {}
    for event in outcome.events:
        if event.kind in trains and not _with_experts(outcome, event):
            mine[event.rank] |= event.batches
    share = outcome.batches // (mesh["shard"] if "stage" in mesh else outcome.ranks)
    for rank in range(outcome.ranks):
        if len(mine[rank]) != share:
            problem = f"it trains on {numbered('micro-batch', frozenset(mine[rank])) if mine[rank] else 'nothing'}"
            micro_batches = f"{share} micro-batch{'es' * (share > 1)}"
            expected = f"{micro_batches} on each rank, so that all have the same work"
            fix = "share = model.BATCHES // model.RANKS; mine = range(model.rank * share, (model.rank + 1) * share)"
            if "stage" in mesh:
                expected = f"{micro_batches} in each pipeline, so that all have the same work"
                fix = 'batch = range(model.axis_index("shard"), model.BATCHES, model.axis_size("shard"))'
            raise PuzzleError(problem, where=Place(rank), expected=expected, fix=fix, line="")


def _with_experts(outcome: Outcome, event: Event) -> bool:
    """Return whether an operation is one of a layer with experts."""
    return event.layer is not None and experts_of(event.layer, outcome.experts) > 0


def each_on_one_rank(outcome: Outcome) -> None:
    """Raise PuzzleError for a micro-batch that is trained on two ranks, where not all ranks have as many."""
    trains, owner = training(), dict[int, int]()
    for event in outcome.events:
        for mb in event.batches if event.kind in trains else ():
            if owner.setdefault(mb, event.rank) != event.rank:
                expected = "a micro-batch forward and back on the rank that has begun with it"
                fix = "no activation is passed on: here only gradients of weights travel"
                raise _broken(event, f"it works on micro-batch {mb}, as rank {owner[mb]} does", expected, fix)


def whole_batch(outcome: Outcome) -> None:
    """Raise PuzzleError unless every operation through a layer works on all micro-batches together."""
    trains = training()
    for event in outcome.events:
        if event.kind in trains and len(event.batches) < outcome.batches:
            expected = "the whole batch together; micro-batches one after the other are puzzle 6"
            fix = "model.get_activation(range(model.BATCHES)) once, and no loop over the micro-batches"
            raise _broken(event, f"it works on {numbered('micro-batch', event.batches)} alone", expected, fix)


_WEIGHTS = ("Weight", "WeightGrad", "OptState")
_ACTIVATIONS = ("Activation", "ActivationGrad")


def own_layers(outcome: Outcome) -> None:
    """Raise PuzzleError unless each rank runs only layers that it has loaded: activations travel, weights stay. A layer
    loaded and dropped does not count."""
    trains = training()
    for event in _of_foreign_layers(outcome):
        if event.kind in trains:
            fix = "load the weights that this rank uses, keep them, and pass on what the next layer needs"
            expected = "every rank runs its own layers; activations and their gradients are passed on"
            raise _broken(event, f"it runs layer {event.layer}, whose weight it has not loaded", expected, fix)


def own_updates(outcome: Outcome) -> None:
    """Raise PuzzleError unless each rank updates only layers that it has loaded, and receives no weight, gradient or
    state, and no activation, of a layer that it neither runs nor has loaded: so none of them is a copy for nothing, or
    lies where there is room for it. The output of the last layer is for the rank that takes its loss."""
    trains, run = {*training(), LOSS.kind}, defaultdict[int, set[int | None]](set)
    for event in outcome.events:
        if event.kind in trains:
            run[event.rank].add(event.layer)
    carried = {event.op for event in outcome.events if event.tensor in _WEIGHTS and event.elements}
    expected, without = "every rank has to do with its own layers only", "whose weight it has not loaded"
    foreign = [event for event in _of_foreign_layers(outcome) if event.layer not in run[event.rank]]
    for event in foreign:  # what a rank does with it says more than that it has come
        if event.kind == UPDATE.kind:
            fix = "leave the update to the rank that has loaded the layer: it has the gradient, too"
            raise _broken(event, f"it updates layer {event.layer}, {without}", expected, fix)
    for event in foreign:
        of_weights = event.tensor in _WEIGHTS and event.kind != SEND.kind and event.op in carried
        parked = (
            event.kind == RECEIVE.kind and event.tensor in _ACTIVATIONS and event.layer in range(outcome.layers + 1)
        )
        if event.tensor is not None and (of_weights or parked):
            output = event.layer == outcome.layers
            what = f"it receives the {KINDS[event.tensor].word} of layer {event.layer}, {without}"
            what = "it receives the output of the last layer, and takes no loss" if output else what
            fix = "pass on activations and their gradients alone: weights, states and their gradients stay"
            if parked:
                on = "takes the loss" if output else f"runs layer {event.layer}"
                fix = f"pass it on to the rank that {on}, when it is made: it waits there"
            raise _broken(event, what, expected, fix)


def _of_foreign_layers(outcome: Outcome) -> list[Event]:
    """Return the records of ranks about layers that they have not loaded."""
    loaded = {state.rank: {labels.layer for labels in state.began} for state in outcome.final_states}
    return [event for event in outcome.events if event.layer is not None and event.layer not in loaded[event.rank]]


def loaded_weights(outcome: Outcome) -> None:
    """Raise PuzzleError for a rank to which the weight of a layer comes that it has loaded itself, as another one has:
    it computes with its own."""
    foreign = {id(event) for event in _of_foreign_layers(outcome)}
    for event in outcome.events:
        if event.tensor == "Weight" and event.elements and event.kind != SEND.kind and id(event) not in foreign:
            expected = "each rank computes with the weights that it has loaded: no weight is gathered or sent"
            fix = f"leave it out: model.weights[{event.layer}] on this rank is the same weight"
            raise _broken(event, f"it gets the weight of layer {event.layer}, which it has loaded", expected, fix)


STAGES = 4
"""How many stages the pipelines of puzzle 7 have, at every size."""


def four_stages(outcome: Outcome) -> None:
    """Raise PuzzleError for a rank that runs more than a quarter of the layers, or works on several micro-batches: it
    is one of four stages of a pipeline, and each pipeline has a micro-batch of its own."""
    trains, run, most = training(), defaultdict[int, set[int | None]](set), outcome.layers // STAGES
    own = dict[int, frozenset[int]]()
    for event in outcome.events:
        if event.kind in trains:
            mine = run[event.rank]
            mine.add(event.layer)
            if len(mine) > most:
                expected = f"every rank is one of four stages and runs {most}"
                fix = f"{_stages_left(outcome)}pass the activation on to the rank that runs the next stage, and its "
                raise _broken(event, f"it runs {len(mine)} of {outcome.layers} layers", expected, f"{fix}gradient back")
            if len(both := own.setdefault(event.rank, event.batches) | event.batches) > 1:
                expected = "every rank is in one pipeline, which has a micro-batch of its own"
                raise _broken(event, f"it works on {numbered('micro-batch', both)}", expected, OWN_RING)


def _stages_left(outcome: Outcome) -> str:
    """Return, as the beginning of advice, which ranks run no layer, and how layers are divided; or an empty text."""
    trains = training()
    idle = {event.rank for event in outcome.events} - {one.rank for one in outcome.events if one.kind in trains}
    divided = f"layer l on stage l // (model.LAYERS // {STAGES}), or on stage l % {STAGES}, round a ring"
    none = f"{numbered('rank', idle)} run no layer" if len(idle) > 1 else ""
    return none and f"{none}: let each stage run its own, {divided}, and "


OWN_RING = (
    "a micro-batch stays in its pipeline: each has a ring of its own, and its last stage sends to its first one. With "
    f"stage = model.rank % {STAGES} and first = model.rank - stage, the next rank is first + (stage + 1) % {STAGES}, "
    f"and the one before is first + (stage - 1) % {STAGES}"
)


def first_half_on_rank_0(outcome: Outcome) -> None:
    """Raise PuzzleError for a rank of a pipeline of two stages that has half of the layers, and not those that follow
    one another from its own end: rank 0 has the first half, and passes on what comes out of it."""
    half = outcome.layers // 2
    for state in outcome.final_states:
        layers, mine = {labels.layer for labels in state.began}, {*range(state.rank * half, (state.rank + 1) * half)}
        if len(layers) == half and layers != mine:
            expected = f"two stages of layers that follow one another: {show_set(mine)} on rank {state.rank}"
            fix = "half = model.LAYERS // 2; mine = range(model.rank * half, (model.rank + 1) * half)"
            problem = f"it has layers {show_set(frozenset(layers))}"
            raise PuzzleError(problem, where=Place(state.rank), expected=expected, fix=fix, line="")


def dealt_like_cards(outcome: Outcome) -> None:
    """Raise PuzzleError unless the layers go round the ranks from rank 0 on: the stage after one of a rank's stages is
    always on the next rank."""
    trains, runs = training(), defaultdict[int, set[int]](set)
    for event in outcome.events:
        if event.kind in trains and event.layer is not None:
            runs[event.layer].add(event.rank)
    owner = {-1: -1} | {layer: min(ranks) for layer, ranks in runs.items() if len(ranks) == 1}
    for layer in range(outcome.layers):
        before, rank = owner.get(layer - 1), owner.get(layer)
        if before is not None and rank is not None and before != rank and rank != (due := (before + 1) % outcome.ranks):
            problem = f"it has layer {layer}" + (f", after layer {layer - 1} on rank {before}" if layer else "")
            expected = "layers are dealt like cards, from rank 0 on"
            expected += f": a stage of rank {due} follows each stage of rank {before}" if layer else ""
            fix = "mine = range(model.rank, model.LAYERS, model.RANKS)"
            raise PuzzleError(problem, where=Place(rank), expected=expected, fix=fix, line="")


def in_a_v(outcome: Outcome) -> None:
    """Raise PuzzleError unless the layers go down the ranks and up again: each rank runs its layers of the first half,
    as in any pipeline, and those of the second half that are as far from the end."""
    thick = outcome.layers // (2 * outcome.ranks)
    for event in outcome.events:
        if event.kind in training() and event.layer is not None:
            rank = min(event.layer, outcome.layers - 1 - event.layer) // thick
            if event.rank != rank:
                expected = f"layers in a V: layer {event.layer} is on rank {rank}"
                fix = "lower = range(model.rank * thick, (model.rank + 1) * thick), where thick = "
                fix += "model.LAYERS // (2 * model.RANKS); the upper stage is as far from the last layer"
                raise _broken(event, f"it runs layer {event.layer}", expected, fix)


def through_all_ranks(outcome: Outcome) -> None:
    """Raise PuzzleError for a rank that runs more than one stage of a micro-batch: it goes through all ranks. So it
    does place by place, through one half and back through the other, and as many begin in either half."""
    thick, first = outcome.layers // outcome.ranks, dict[tuple[int, int], int]()
    runs = [event for event in outcome.events if event.kind in training() and event.layer is not None]
    for event in runs:
        for mb in event.batches:
            stage = (event.layer or 0) // thick
            before = first.setdefault((event.rank, mb), stage)
            if before != stage:
                expected = "a micro-batch goes through all ranks: each runs one of its stages"
                fix = "at the last place of a half, pass the activation on to the same place of the other half"
                problem = f"it runs stage {stage} of micro-batch {mb}, of which it has run stage {before}"
                raise _broken(event, problem, expected, fix)
    begins = _half_where_each_begins(outcome, runs, thick)
    share = outcome.batches // 2
    for half in range(2):
        number = sum(begun == half for begun in begins.values())
        if number > share:
            problem = f"{number} of {outcome.batches} micro-batches begin in half {half}"
            expected = f"half of the micro-batches from either end: {share} begin in each half"
            fix = "share = model.BATCHES // 2; mine = range(half * share, (half + 1) * share)"
            raise PuzzleError(problem, where="all ranks", expected=expected, fix=fix, line="")


def _half_where_each_begins(outcome: Outcome, runs: Sequence[Event], thick: int) -> dict[int, int]:
    """Return in which half each micro-batch begins. Raise PuzzleError for one that changes halves before the last
    place, or comes back."""
    places, begins = outcome.ranks // 2, dict[int, int]()
    for event in runs:
        stage, half = (event.layer or 0) // thick, event.rank // places
        for mb in event.batches:
            begun = begins.setdefault(mb, half if stage < places else 1 - half)
            if begun != (half if stage < places else 1 - half):
                problem = f"it runs stage {stage} of micro-batch {mb} in half {half}"
                expected = f"stages 0 to {places - 1} of a micro-batch in one half, and the others in the other half"
                fix = "model.rank_at(half=half, place=place + 1) is the next rank, and at the last place "
                fix += "model.rank_at(half=1 - half, place=place)"
                raise _broken(event, problem, expected, fix)
    return begins


def _travels(event: Event) -> bool:
    """Return whether a tensor comes to other ranks, also a gradient of no micro-batch, which is all zeros."""
    return event.elements > 0 or len(event.group) > 1


_ZEROS = "leave it out: a gradient of no micro-batch is all zeros"


def weights_stay(outcome: Outcome) -> None:
    """Raise PuzzleError for a weight, its gradient or an optimizer state that is gathered, summed or sent: each rank
    computes with the piece that it has loaded, and the partial results are added up."""
    for event in outcome.events:
        if event.tensor in _WEIGHTS and _travels(event):
            word = KINDS[event.tensor].word
            expected = "weights, their gradients and states stay where they are; activations are added up"
            fix = f"out = model.forward({event.layer}, inp, model.weights[{event.layer}], partial=True)"
            if event.tensor == "WeightGrad":
                fix = f"model.update({event.layer}, grad, ...) with the gradient that backward(..., partial=True) gives"
                fix = fix if event.elements else _ZEROS
            raise _broken(event, f"it moves the {word} of layer {event.layer}", expected, fix)


def states_stay(outcome: Outcome) -> None:
    """Raise PuzzleError for an optimizer state that is gathered or sent: it is updated where it was loaded."""
    for event in outcome.events:
        if event.tensor == "OptState":
            expected = "optimizer states stay where they are"
            fix = f"model.update({event.layer}, ...) on this rank, with the state that it has loaded"
            if event.kind == ALLGATHER.kind:
                fix += (
                    ". If that is a piece of it, cut the weight to the same piece, update that with this rank's piece "
                )
                fix += "of the summed gradient, and gather the weight after that"
            if outcome.beside:
                expected += ": gradients come to them, and weights go back"
                fix = f"await model.pass_to(model.host, grad), and model.update({event.layer}, ...) on the host"
            raise _broken(event, f"it moves the optimizer state of layer {event.layer}", expected, fix)


_KEYS = ("KeysValues", "KeysValuesGrad")


def keys_by_collectives(outcome: Outcome) -> None:
    """Raise PuzzleError for keys and values, or their gradient, that a rank sends: they are gathered."""
    for event in outcome.events:
        if event.tensor in _KEYS and event.kind == SEND.kind:
            expected = (
                "keys and values come by a gather, and their gradient goes by a reduce-scatter: a ring is puzzle 26"
            )
            fix = f"whole = await model.allgather(kv, {event.layer})"
            if event.tensor == "KeysValuesGrad":
                fix = f"kv_grad = await model.scatterreduce(kv_grad, {event.layer})"
            raise _broken(event, f"it sends {KINDS[event.tensor].word} of layer {event.layer}", expected, fix)


def keys_go_round(outcome: Outcome) -> None:
    """Raise PuzzleError for keys and values, or their gradient, that a collective moves: they are sent."""
    for event in outcome.events:
        if event.tensor in _KEYS and event.kind in (ALLGATHER.kind, SCATTERREDUCE.kind):
            verb = "gathers" if event.kind == ALLGATHER.kind else "reduces"
            expected = "no rank has the keys and values of all: they go round, from each rank to the next"
            fix = "send = model.pass_to(after, kv); kv = await model.receive(before); await send"
            raise _broken(event, f"it {verb} {KINDS[event.tensor].word} of layer {event.layer}", expected, fix)


def each_slice_on_one_rank(outcome: Outcome) -> None:
    """Raise PuzzleError for a slice of the sequence whose queries, keys and values two ranks make in a layer."""
    made = [event for event in outcome.events if event.kind == PROJECT.kind]
    parts = [event.slices[0] if event.slices else (WHOLE, 1) for event in made]
    finest = lcm(*[total for _, total in parts])
    own, owner = [refined(*part, finest) for part in parts], dict[tuple[int | None, int], int]()
    for at, event in enumerate(made):
        for one in own[at]:
            before = owner.setdefault((event.layer, one), at)
            if made[before].rank != event.rank:
                most, other = sorted((before, at), key=lambda place: -len(own[place]))
                expected = "slices of its own for each rank; keys and values of others come from those that make them"
                fix = "inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n)), of rank r of n, in every layer"
                problem = f"it projects {numbered('slice', own[most])} of {finest}, as rank {made[other].rank} does"
                problem += " with some of them" * (len(own[other]) < len(own[most]))
                raise _broken(made[most], problem, expected, fix)


def two_slices(outcome: Outcome) -> None:
    """Raise PuzzleError unless each rank computes with two slices of the sequence of twice as many as there are ranks,
    one from the front and the one that is as far from the back: so all ranks have the same work (zigzag)."""
    slices = 2 * outcome.ranks
    for event in outcome.events:
        if event.kind not in training():
            continue
        own, total = event.slices[0] if event.slices else (WHOLE, 1)  # of attention, those of the queries come first
        mine = refined(own, total, slices) if slices % total == 0 else frozenset[int]()
        if len(mine) != 2 or sum(mine) != slices - 1:
            expected = f"two slices of {slices}, one from the front and one from the back: the same work for all"
            fix = "inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n)): of rank r of n"
            raise _broken(event, f"it works on {numbered('slice', own)} of {total}", expected, fix)


def experts_stay(outcome: Outcome) -> None:
    """Raise PuzzleError for the weight, the gradient or the optimizer state of experts that is gathered, summed or
    sent: tokens come to the experts."""
    for event in layer_by_layer(outcome):
        if event.tensor not in _WEIGHTS or not _travels(event) or event.layer is None:
            continue
        if experts_of(event.layer, outcome.experts):
            expected = "experts stay where they are, and tokens come to them"
            fix = f"await model.alltoall(model.activations[{event.layer}], {event.layer}) sends tokens to their experts"
            if event.tensor == "WeightGrad":
                fix = f"model.update({event.layer}, grad, ...) with the gradient that backward_expert gives: "
                fix += "it has all micro-batches already"
                fix = fix if event.elements else _ZEROS
            word = KINDS[event.tensor].word
            raise _broken(event, f"it moves the {word} of experts, of layer {event.layer}", expected, fix)


def dense_weights_stay(outcome: Outcome) -> None:
    """Raise PuzzleError for the weight or the optimizer state of a layer without experts that is gathered or sent: each
    rank holds all of it, and makes all its updates itself."""
    for event in layer_by_layer(outcome):
        if event.tensor in ("Weight", "OptState") and event.elements and not _with_experts(outcome, event):
            word, dense, which = KINDS[event.tensor].word, "", ""
            if outcome.experts:
                dense, which = "dense ", ", which is dense"
            expected = f"each rank holds all of its {dense}layers and makes all its updates: only gradients are summed"
            update = f"model.update({event.layer}, ...) on each rank"
            fix = f"grad = await model.allreduce(grad, {event.layer}), and {update}"
            if cut := _cut_before(outcome, event):
                axis = f", axis={show_axis(cut[0])}" if cut[0] else ""
                fix = "here each rank updates all of a layer, so gather the gradient before the update, and no weight "
                fix += f"after it: grad = await model.allgather(grad, {event.layer}{axis}), and {update}, with whole "
                fix += "weight and state"
            raise _broken(event, f"it moves the {word} of layer {event.layer}{which}", expected, fix)


def _cut_before(outcome: Outcome, event: Event) -> tuple[object, ...]:
    """Return the ``op`` of the reduce-scatter that has cut the gradient of a weight which is gathered, or nothing."""
    mine = [
        one for one in outcome.events if (one.rank, one.layer, one.tensor) == (event.rank, event.layer, "WeightGrad")
    ]
    cuts = [one.op for one in mine if one.kind == SCATTERREDUCE.kind and one.op]
    return cuts[0] if cuts and event.kind == ALLGATHER.kind else ()


def weights_come_for_use(outcome: Outcome) -> None:
    """Raise PuzzleError for a weight, or a piece of one, that another rank sends and that is neither computed with nor
    passed on: that is a copy of what another one holds. So is what a rank gathers, or gets, of a weight that it has.
    A gather that is for nothing is no such copy: all ranks take part in it."""
    for event in needless_weights(outcome):
        if event.kind == RECEIVE.kind:
            expected = "what is sent of weights is for use: each rank holds its own, and no copy of another's"
            fix = f"leave out this receive, and the pass_to of rank {event.group[0]}"
            raise _broken(event, f"it receives the weight of layer {event.layer}, and does not use it", expected, fix)
    coming = _of_weights(outcome)
    for event, updated in _weights_again(outcome, coming):
        expected = "no weight comes to a rank that has it: an updated one comes once, as far as the rank ends with it"
        verb = "receives" if event.kind == RECEIVE.kind else "gathers"
        fix = (
            f"leave out this {event.kind}, on every rank that takes part: what this rank needs of layer {event.layer} "
        )
        fix += "is there without it"
        problem = f"it {verb} a weight of layer {event.layer} that it has already"
        if updated:
            problem = f"it {verb} more of the updated weight of layer {event.layer} than it ends with"
        raise _broken(event, problem, expected, fix)
    for event in _more_than_used(outcome, coming):
        expected = "what is sent of weights is for use: a weight comes to a rank at most once for each use"
        fix = f"leave out this receive, and the pass_to of rank {event.group[0]}: the gather gives all of the weight"
        raise _broken(event, f"it receives the weight of layer {event.layer}, which comes more often", expected, fix)


class _Coming(NamedTuple):
    """What brings a rank a weight of a layer, or its update of that layer. ``elements``: how much it brings."""

    event: Event
    elements: Elements


_OfLayers = Mapping[tuple[int, int], Sequence[_Coming]]


def _of_weights(outcome: Outcome) -> _OfLayers:
    """Return what brings each rank weights of each layer, and its updates, in the order of the calls."""
    log = [event for event in layer_by_layer(outcome) if event.tensor == "Weight" or event.kind == UPDATE.kind]
    brought, found = defaultdict[object, list[Elements]](list), defaultdict[tuple[int, int], list[_Coming]](list)
    for event in log:
        brought[event.op].append(event.elements)
    for event in log:
        if event.layer is not None and event.kind != SEND.kind and event.rank not in outcome.beside:
            size = _BROUGHT[event.kind](event.elements, brought[event.op]) if event.kind in _BROUGHT else 0
            found[event.rank, event.layer].append(_Coming(event, size))
    return found


def _weights_again(outcome: Outcome, coming: _OfLayers) -> Iterator[tuple[Event, bool]]:
    """Yield what brings a rank more of an updated weight than it ends with, beside what it has updated itself (a ring
    may bring the own piece home), and of one that it has loaded whole what comes while it still holds all that it has
    loaded; and whether it is an updated one."""
    size = outcome.cost.elements
    for (rank, layer), log in coming.items():
        state = outcome.final_states[rank]
        final = state.finals.get(layer)
        if final is None or final.labels.adapter:
            continue
        own = sum(
            [size(one.labels) for one in state.kept if (one.labels.kind, one.labels.layer) == ("OptState", layer)]
        )
        updates = [at for at, one in enumerate(log) if one.event.kind == UPDATE.kind]
        since = updates[0] if updates else len(log)
        loaded = [one for one in state.began if one.kind == "Weight"]
        again = updates or sum([one.elements for one in log]) > size(final.labels)
        if again and any((one.layer, one.total) == (layer, 1) for one in loaded):
            everything = sum(map(size, loaded))
            there = [one.event for one in log[:since] if one.elements and one.event.held[SLOT["Weight"]] >= everything]
            yield from [(one, False) for one in there[:1]]
        home = own if any(one.event.kind == RECEIVE.kind for one in log[since:]) else 0
        room = size(final.labels) - own + home
        for event, elements in log[since:]:
            room -= elements
            if room < 0:
                yield event, True
                break


def _more_than_used(outcome: Outcome, coming: _OfLayers) -> Iterator[Event]:
    """Yield messages that bring a weight to a rank to which, with its gathers, more comes than a whole weight for each
    forward and each backward that it does with it."""
    trains, uses = training(), defaultdict[tuple[int, int | None], int](int)
    for event in outcome.events:
        uses[event.rank, event.layer] += event.kind in trains
    for (rank, layer), log in coming.items():
        most = uses[rank, layer] * outcome.cost.elements(Labels("Weight", layer, outcome.layers))
        messages = [one.event for one in log if one.event.kind == RECEIVE.kind]
        if most and messages and sum([one.elements for one in log]) > most:
            yield messages[-1]


def adapters_stay(outcome: Outcome) -> None:
    """Raise PuzzleError for an adapter that is gathered or sent: each rank has all of them, and makes their updates."""
    for event in outcome.events:
        if event.tensor == "Weight" and ADAPTER in event.words:
            expected = "each rank has every adapter, and makes all their updates itself"
            fix = f"leave it out: model.update({event.layer}, ...) on each rank, with the sum of the gradients"
            raise _broken(event, f"it moves the adapter of layer {event.layer}", expected, fix)


def gathered_in_nodes(outcome: Outcome) -> None:
    """Raise PuzzleError for a weight that comes to a rank from another node, before its own update of that layer: each
    node has all weights. (An updated piece may cross, where the replicas of a node update parts of it.)"""
    updated, node = set[tuple[int, int | None]](), outcome.node_size
    for event in layer_by_layer(outcome):
        if event.kind == UPDATE.kind:
            updated.add((event.rank, event.layer))
        across = node and len({rank // node for rank in event.group}) > 1
        if across and event.tensor == "Weight" and event.kind != SEND.kind and (event.rank, event.layer) not in updated:
            expected = "whole weights are gathered inside the node: each node has all of them"
            fix = f'weight = await model.allgather(model.weights[{event.layer}], {event.layer}, axis="shard")'
            raise _broken(event, f"it gets a weight of layer {event.layer} from another node", expected, fix)


def gathers_for_use(outcome: Outcome) -> None:
    """Raise PuzzleError for a gather of weights of which no rank uses anything."""
    for event in needless_weights(outcome):
        if event.kind == ALLGATHER.kind:
            problem = f"no rank uses the weight of layer {event.layer} that it gathers"
            fix = "leave it out, on every rank that takes part"
            raise _broken(event, problem, "a weight is gathered to use it", fix)


def updates_on_hosts(outcome: Outcome) -> None:
    """Raise PuzzleError for a device that loads an optimizer state, or updates a weight: that is for its host, which
    has weights of its own for it."""
    fix = "`if model.is_host:` begins what is for the host: it keeps the states, and updates"
    for state in outcome.final_states[: outcome.ranks]:
        for labels in state.began:
            if labels.kind == "OptState":
                expected, problem = "all states on the host", f"this device keeps the state of layer {labels.layer}"
                raise PuzzleError(problem, where=Place(state.rank), expected=expected, fix=fix, line="")
    for event in outcome.device_events:
        if event.kind == UPDATE.kind:
            raise _broken(event, f"this device updates layer {event.layer}", "all updates on the host", fix)
    for event in outcome.events:
        if event.kind == RECEIVE.kind and event.tensor == "Weight" and event.rank in outcome.beside:
            fix = f"model.weights[{event.layer}] on the host: both call model.load_weights({event.layer})"
            problem = f"this host receives the weight of layer {event.layer}"
            raise _broken(event, problem, "weights of its own on the host", fix)


def several_kinds(outcome: Outcome) -> None:
    """Raise PuzzleError for a rank that runs all layers: replicas and shards alone are one kind of parallelism. (Where
    an axis of the mesh has one rank only, it may be the one over which the layers are divided, so nothing is asked.)"""
    trains, run = training(), defaultdict[int, set[int | None]](set)
    if outcome.layers == 1 or min((outcome.mesh or {"all": outcome.ranks}).values()) == 1:
        return
    for event in outcome.distinct:
        if event.kind in trains:
            run[event.rank].add(event.layer)
            if len(run[event.rank]) == outcome.layers:
                expected = "more than one kind of parallelism: no rank runs all layers by itself"
                fix = "divide the layers, too: let the ranks along one or two axes be the stages of a pipeline"
                raise _broken(event, f"it runs all {outcome.layers} layers", expected, fix)


class _Arrival(NamedTuple):
    event: Event
    elements: Elements  # of a gradient that a rank received
    others: frozenset[int]  # the micro-batches of other ranks in their sum


_BROUGHT: Mapping[str, Callable[[Elements, Sequence[Elements]], Elements]] = {
    ALLGATHER.kind: lambda own, all_of_them: sum(all_of_them) - own,
    SCATTERREDUCE.kind: lambda own, all_of_them: divided(max(all_of_them), len(all_of_them)),
    RECEIVE.kind: lambda own, all_of_them: own,
}
"""The number of elements that an operation brings a rank, from the sizes of its own tensor and of all in its group. Of
an operation that is not listed, such as an all-reduce, it is the largest of these.
"""


def layer_by_layer(outcome: Outcome) -> list[Event]:
    """Return the log with a record for each layer of a collective of a list, as if each were a call of its own."""
    lists = {(state.rank, op): places for state in outcome.final_states for op, places in state.lists}
    found: list[Event] = []
    for event in outcome.events:
        if not event.layers:
            found.append(event)
            continue
        for layer, labels in zip(event.layers, lists[event.rank, event.op], strict=True):
            size = outcome.cost.elements(labels) if labels else 0
            batches, op = labels.batches if labels else frozenset[int](), (event.op, layer)
            found.append(event._replace(layer=layer, layers=(), batches=batches, elements=size, op=op))
    return found


def _arrivals(events: Sequence[Event]) -> Iterator[_Arrival]:
    """Yield what ranks receive of gradients with micro-batches of others."""
    trained, meetings = defaultdict[object, set[int]](set), defaultdict[object, list[Event]](list)
    received: list[Event] = []
    for event in events:
        if makes_weight_grads(event.kind):
            trained[event.rank, event.layer] |= event.batches
        elif event.tensor == "WeightGrad" and event.kind != SEND.kind:
            meetings[event.op].append(event)
            received.append(event)
    sums = {op: frozenset[int]().union(*[one.batches for one in members]) for op, members in meetings.items()}
    for event in received:
        members, others = meetings[event.op], sums[event.op] - trained[event.rank, event.layer]
        if others and (len(members) > 1 or event.kind == RECEIVE.kind):
            sizes = [one.elements for one in members]
            brought = _BROUGHT[event.kind](event.elements, sizes) if event.kind in _BROUGHT else max(sizes)
            yield _Arrival(event, brought, others)


def _in_a_whole_sum(arrivals: list[_Arrival], most: Elements) -> list[_Arrival]:
    """Return the arrivals that may be parts of a whole sum, with more than ``most`` of each micro-batch together."""
    while True:
        came = defaultdict[int, Elements](int)
        for arrival in arrivals:
            for batch in arrival.others:
                came[batch] += arrival.elements
        short = {batch for batch in came if came[batch] <= most}
        if not short:
            return arrivals
        arrivals = [arrival for arrival in arrivals if not arrival.others & short]


def _cut_over_all(outcome: Outcome, layer: int) -> bool:
    """Return whether rank i has piece i of the state of a layer, of as many pieces as there are ranks in several
    groups."""
    if (outcome.mesh or {}).get("shard") == outcome.ranks:
        return False
    for rank in range(outcome.ranks):
        labels = [piece.labels for piece in outcome.final_states[rank].kept]
        own = [(one.shards, one.total) for one in labels if one.kind == "OptState" and one.layer == layer]
        if own != [(frozenset({rank}), outcome.ranks)]:
            return False
    return True


def no_whole_gradient(outcome: Outcome) -> None:
    """Raise PuzzleError for a rank that receives a whole summed gradient of a layer, in one piece or in many.

    Nothing can be taken out of a sum. So a rank with a whole sum has received as many elements as a whole weight has of
    each micro-batch in it that it has not trained, in sums without any other micro-batch. Any way to carry out a
    reduce-scatter brings a rank of n at most (n - 1)/n of that.
    """
    received = defaultdict[tuple[int, int | None], list[_Arrival]](list)
    for arrival in _arrivals(layer_by_layer(outcome)):
        received[arrival.event.rank, arrival.event.layer].append(arrival)
    for (rank, layer), arrivals in received.items():
        assert layer is not None  # every gradient has one
        labels = Labels("WeightGrad", layer, outcome.layers, batches=arrivals[0].others, total_batches=outcome.batches)
        most = whole_or_ratio(Fraction(outcome.ranks - 1, outcome.ranks) * outcome.cost.elements(labels))
        if whole := _in_a_whole_sum(arrivals, most):
            states = [piece.labels for piece in outcome.final_states[rank].kept if piece.labels.kind == "OptState"]
            used = next((Fraction(len(one.shards), one.total) for one in states if one.layer == layer), "a part")
            problem = f"this is puzzle 3: the rank received a whole summed gradient and used {used} of it"
            expected = "no rank ever receives a whole gradient, neither at once nor piece by piece"
            axis = ', axis="shard"' if "shard" in (outcome.mesh or {}) and not _cut_over_all(outcome, layer) else ""
            fix = f"grad = await model.scatterreduce(grad, {layer}{axis})  # rank i receives piece i of the sum"
            others = [name for name in outcome.mesh or {} if name not in ("shard", "stage")]  # stages have no copies
            if axis and len(others) == 1:
                fix = f"first grad = await model.scatterreduce(grad, {layer}{axis}), which leaves each rank its piece; "
                fix += f"sum the pieces over axis={show_axis(others[0])} after that"
            if whole[-1].event.kind == ALLGATHER.kind:
                takes = f"model.update({layer}, grad, ...) takes the piece of the sum that it has"
                fix = f"leave out the gather: {takes}{axis and f'; {fix}'}"
            if any(one.event.kind == RECEIVE.kind for one in whole):
                fix = f"it comes in messages too: leave these out, as each rank brings its own gradient, and {fix}"
            raise _broken(whole[-1].event, problem, expected, fix)


def summed_across_once(outcome: Outcome) -> None:
    """Raise PuzzleError for a gradient that is summed across nodes before all micro-batches of its node are in it."""
    share, node = outcome.batches // (outcome.mesh or {"replica": 1}).get("replica", 1), outcome.node_size
    for event in layer_by_layer(outcome):
        if event.tensor != "WeightGrad" or event.kind not in (ALLREDUCE.kind, SCATTERREDUCE.kind) or not node:
            continue
        across = len({rank // node for rank in event.group}) > 1
        if across and event.elements and len(event.batches) < share:
            expected = f"the sum of all {share} micro-batches of the node crosses to the others, once in a step"
            fix = 'add up what model.scatterreduce(grad, layer, axis="shard") gives, and go across after the last one'
            problem = f"it sums the gradient of {numbered('micro-batch', event.batches)} across the nodes"
            raise _broken(event, problem, expected, fix)


def no_whole_gradient_waits(outcome: Outcome) -> None:
    """Raise PuzzleError for a rank that still stores a whole gradient when the backward of another layer begins. Then
    it stores at most its own pieces of those that are done. (What is on its way is not stored.)"""
    done = defaultdict[int, set[int | None]](set)
    for event in outcome.events:
        if makes_weight_grads(event.kind):
            mine = done[event.rank]
            weights = [Labels("Weight", layer, outcome.layers) for layer in mine if layer is not None]
            most = Fraction(sum(map(outcome.cost.elements, weights)), outcome.ranks)
            if mine and event.held[SLOT["WeightGrad"]] > most:
                expected = "a whole gradient goes as soon as it is there, and a rank keeps a piece of the sum"
                fix = "grad = await model.scatterreduce(grad, layer)  # right after the backward of that layer"
                raise _broken(event, "a whole gradient of another layer is still stored", expected, fix)
            mine.add(event.layer)


RULES: Mapping[str, Callable[[Outcome], None]] = {
    rule.__name__: rule
    for rule in (
        *(
            one_micro_batch,
            one_after_the_other,
            as_many_each,
            each_on_one_rank,
            whole_batch,
            own_layers,
            own_updates,
            loaded_weights,
            first_half_on_rank_0,
            dealt_like_cards,
            in_a_v,
            through_all_ranks,
            four_stages,
            several_kinds,
        ),
        *(
            no_whole_gradient,
            no_whole_gradient_waits,
            summed_across_once,
            weights_stay,
            weights_come_for_use,
            gathers_for_use,
            gathered_in_nodes,
            adapters_stay,
            states_stay,
            updates_on_hosts,
        ),
        *(each_slice_on_one_rank, two_slices, keys_by_collectives, keys_go_round, experts_stay, dense_weights_stay),
    )
}
