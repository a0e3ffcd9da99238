"""What errors say of the stages of a pipeline: which layers a rank should have, and what it has still to do."""

from __future__ import annotations

from ...basics.errors import numbered
from ...record.labels import Labels
from ...record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS
from ..past.asked import Asked

BOTH_ENDS, PLACE = "both_ends", "place"
"""The layout of a pipeline that is filled from both ends, and the axis of its places."""
MOST_LEFT = 2  # layers of which is said what a rank has still to do


def not_at_both_ends(rank: Asked) -> str:
    """Return which rank has other layers than its place has where a pipeline is filled from both ends, or nothing."""
    mesh, layers = rank.mesh, rank.layers
    if PLACE not in mesh.axes or layers % mesh.ranks:
        return ""
    thick = layers // mesh.ranks
    for number, one in sorted(rank.ranks.items()):
        low = mesh.index(number, PLACE) * thick
        right = {*range(low, low + thick), *range(layers - low - thick, layers - low)}
        if (own := one.layers_loaded()) and not own <= right:
            has = f"rank {number} has loaded {numbered('layer', own)}, and at its place, {low // thick}, are"
            ends = "as many from the end as from the beginning, the same in both halves"
            return f"{has} {numbered('layer', right)}: {ends}"
    return ""


def not_all_loaded(rank: Asked) -> str:
    """Return which layers no rank has loaded, where this one has only some of them, or an empty text."""
    missing = {*range(rank.layers)}.difference(*[one.layers_loaded() for one in rank.ranks.values()])
    if not missing:
        return ""
    own = numbered("layer", rank.layers_loaded())
    return f"no rank has loaded {numbered('layer', missing)}, and rank {rank.rank} has {own}: are its ranges right?"


def run_by_nobody(rank: Asked) -> str:
    """Return which layers no rank has run, where this one has run the layer before these; or an empty text."""
    run = set[int]().union(*[one.layers_run() for one in rank.ranks.values()])
    left, top = {*range(rank.layers)} - run, max(rank.layers_run(), default=-1)
    if not left or top < 0 or left != {*range(top + 1, rank.layers)} or len(rank.ranks) < rank.mesh.everyone:
        return ""
    if all(one.layers_run() == rank.layers_run() for one in rank.ranks.values() if not one.is_host):
        has = f"every rank has run {numbered('layer', run)} of {rank.layers} by then"
        after = f"model.loss reads the output of the last layer, {rank.layers - 1}: call it once, after the loop over"
        return f"{has}, and {after} all layers, and not in each of its turns"
    none = f"no rank has run {numbered('layer', left)} of {rank.layers}: a stage has model.LAYERS // stages layers"
    return f"{none}. If layer {top + 1} is for another rank, pass on to it what forward({top}, ...) has given"


def loss_elsewhere(rank: Asked) -> str:
    """Return which other ranks call the loss, where this one has run the last layer, and calls none; or an empty
    text."""
    calls = [number for number, one in sorted(rank.ranks.items()) if one.has_run(LOSS.kind, rank.layers)]
    if rank.rank in calls or not calls or not rank.has_run(FORWARD.kind, rank.layers - 1):
        return ""
    there, last = numbered("rank", calls), rank.layers - 1
    only = f"only {there} call{'s' * (len(calls) == 1)} model.loss, and rank {rank.rank} has run layer {last}, too"
    return f"{only}: is a condition above that call true on {there} alone? Each rank that runs the last layer makes it"


def gathered_elsewhere(rank: Asked) -> str:
    """Return which other rank has brought its piece of the weight of the layer that is next on this rank to a
    collective, where all ranks meet in each and this one has brought none; or an empty text."""
    every = range(rank.layers)
    forward = [layer for layer in every if not rank.has_run(FORWARD.kind, layer)][:1]
    backward = [layer for layer in every if not rank.has_run(BACKWARD.kind, layer)][-1:]
    layers = forward or backward
    return rank.met_by_others("Weight", layers[0]) if layers and not rank.mesh.axes else ""


def no_last_stage(rank: Asked, labels: Labels, receiver: object) -> str:
    """Return what to do about an activation that would go on past the last rank, though layers are left; or nothing."""
    if labels.kind != "Activation" or not 0 < labels.layer < rank.layers or receiver != rank.mesh.ranks:
        return ""
    last = f"rank {rank.rank} sends on the input of layer {labels.layer} of {rank.layers}, and no rank comes after it: "
    last += (
        "are the stages counted from the last rank on? Then the next stage is on model.rank - 1, and gradients go to "
    )
    return f"{last}model.rank + 1. Or else the last rank has the last layers, and sends no activation"


def first_gradient(rank: Asked) -> str:
    """Return that the loss makes the first gradient on this rank, where it has run the last layer on a micro-batch
    whose backward is still to come; or an empty text."""
    last = rank.layers - 1
    lost, ran = rank.has_run(LOSS.kind, rank.layers), rank.has_run(FORWARD.kind, last)
    done = rank.has_run(BACKWARD.kind, last) | rank.has_run(BACKWARD_INPUT.kind, last)
    if ready := lost - done:
        made = (
            f"model.loss has made the gradient of the output of layer {last} here, for {numbered('micro-batch', ready)}"
        )
        if early := ready & rank.has_run(BACKWARD_WEIGHT.kind, last):
            half = f"{BACKWARD_WEIGHT.kind}(layer {last}) of {numbered('micro-batch', early)} has run before"
            return (
                f"{made}, and {half} {BACKWARD_INPUT.kind}, which comes first: both read it, and the second one pops it"
            )
        other = "is it looked for under another key than it was stored under, or was it taken out before?"
        return f"{made}, so it needs no message: {other}"
    if ready := ran - lost:
        has = f"this rank has run the last layer, {last}, for {numbered('micro-batch', ready)}"
        return f"{has}: model.loss makes the first gradient here, with no message"
    return ""


def own_gradient(rank: Asked) -> str:
    """Return which backward of this rank gives the gradient of one of its layers, with no message, and has not run yet;
    or an empty text."""
    for layer in sorted(rank.layers_loaded()):
        if not rank.has_loaded(layer + 1):
            continue
        above, here = (
            rank.has_run(FORWARD.kind, one) - rank.has_run(BACKWARD.kind, one) - rank.has_run(BACKWARD_INPUT.kind, one)
            for one in (layer + 1, layer)
        )
        if above & here:
            has = f"layer {layer + 1} is on this rank as well, and its backward gives the gradient for layer {layer}"
            return f"{has} with no message: backward of layer {layer + 1} comes first{_its_own(rank, layer + 1)}"
    return ""


def _its_own(rank: Asked, layer: int) -> str:
    """Return, as the end of a sentence, from which rank the gradient comes of the last layer of a stage that this
    ``layer`` is in, where none has come yet; or an empty text."""
    while rank.has_loaded(layer + 1):
        layer += 1
    if any((one.kind, one.layer) == ("ActivationGrad", layer) for one in rank.came()):
        return ""
    there = rank.comes_from("ActivationGrad", layer + 1)
    return f". Is this for layer {layer} itself? Then {there}" if there else ""


def gradient_from(rank: Asked) -> str:
    """Return from which rank the gradient comes of the first layer of this one that has run, has not gone back, and
    whose output has gone to another rank; or an empty text."""
    for layer in sorted(rank.layers_loaded()):
        back = rank.has_run(BACKWARD.kind, layer) | rank.has_run(BACKWARD_INPUT.kind, layer)
        waits = rank.has_run(FORWARD.kind, layer) - back and not rank.has_loaded(layer + 1)
        if waits and (there := rank.comes_from("ActivationGrad", layer + 1)):
            return f"Is this the gradient for layer {layer}? Then {there}"
    return ""


def gradient_to_come(rank: Asked) -> str:
    """Return from where the next gradient comes that this rank needs, where it has received none for that layer: from
    the loss, whose gradient it has sent away, or from another rank; or an empty text."""
    last = rank.layers - 1
    back = rank.has_run(BACKWARD.kind, last) | rank.has_run(BACKWARD_INPUT.kind, last)
    lost = rank.has_run(LOSS.kind, rank.layers) - back
    if lost and (to := rank.sent_to("ActivationGrad", last, lost)) is not None:
        made = (
            f"model.loss has made the gradient of the output of layer {last} here, for {numbered('micro-batch', lost)}"
        )
        keep = f"keep it stored, as backward({last}, ...) on this rank reads it; what that gives is sent on"
        return f"{made}, and it was sent to rank {to}: {keep}"
    if rank.has_run(FORWARD.kind, last) - back:
        return ""
    for layer in sorted(rank.layers_run(), reverse=True):
        back = rank.has_run(BACKWARD.kind, layer) | rank.has_run(BACKWARD_INPUT.kind, layer)
        left = rank.has_run(FORWARD.kind, layer) - back
        came = any((one.kind, one.layer) == ("ActivationGrad", layer) for one in rank.came())
        if left and not came and not rank.has_run(FORWARD.kind, layer + 1):
            there = rank.comes_from("ActivationGrad", layer + 1, frozenset({min(left)}))
            only = f". Only the gradient for layer {last} comes from the loss: does a condition leave that receive out "
            only += "for all layers of this rank? It is to ask for the layer, layer == model.LAYERS - 1, not for a rank"
            return there and f"Is this the gradient for layer {layer}? Then {there}{only * rank.has_loaded(last)}"
    return ""


def input_to_come(rank: Asked) -> str:
    """Return from where the input comes of the next layer of this rank, which it has loaded and no forward of its own
    gives, where it has received no activation; or an empty text."""
    if any(one.kind == "Activation" for one in rank.came()):
        return ""
    for layer in sorted(rank.layers_loaded()):
        if layer and not rank.has_run(FORWARD.kind, layer):
            there = rank.comes_from("Activation", layer) if not rank.has_loaded(layer - 1) else ""
            return there and f"Is this the input of layer {layer}? Then {there}"
    return ""


def no_input_taken(rank: Asked) -> str:
    """Return the beginning of what to do where a rank that has run nothing would receive a message although no rank has
    taken the input of some micro-batches, and others have taken theirs; an empty text where that is not so."""
    begun = frozenset[int]().union(*[one.has_run(FORWARD.kind, 0) for one in rank.ranks.values()])
    left = {*range(rank.batches)} - begun
    if not begun or not left or rank.layers_run():
        return ""
    none = (
        f"no rank has run layer 0 on {numbered('micro-batch', left)}. Is layer 0 the first of rank {rank.rank}? Then "
    )
    none += "it receives nothing, and its input is model.get_activation(...): let the condition above that be the "
    return f"{none}stage, which is 0 in each pipeline, and not model.rank. If not: "


def sent_away(rank: Asked) -> str:
    """Return which input of one of its own layers this rank has made and sent to another one; or an empty text."""
    for layer in sorted(rank.layers_loaded()):
        to = rank.receivers("Activation", layer) if rank.has_loaded(layer - 1) else {}
        if left := {batch for batch in to if batch not in rank.has_run(FORWARD.kind, layer)}:
            gave = f"what forward(layer {layer - 1}) gave for {numbered('micro-batch', left)} was sent to rank"
            return f"layer {layer} is on this rank, too, and {gave} {to[min(left)]}: keep it stored, and send nothing"
    return ""


def to_itself(rank: Asked, labels: Labels | None, one_rank_each: bool = False) -> str:
    """Return what to do about a tensor that a rank would send to itself, for the layer that reads it; or an empty text.
    ``one_rank_each``: each stage has a rank for every micro-batch, so that the number of stages is known."""
    if labels is None or labels.kind not in ("Activation", "ActivationGrad") or not 0 <= labels.layer < rank.layers:
        return ""
    reads, back = labels.layer, labels.kind == "ActivationGrad"
    verb, made = (BACKWARD.kind, reads + 1) if back else (FORWARD.kind, reads - 1)
    if made < 0:
        return ""
    one, stages = f"rank {rank.rank}", rank.mesh.ranks // rank.batches
    if one_rank_each and rank.layers == stages:
        few = f"there are {stages} stages and {rank.layers} layers, so layers {min(reads, made)} and {max(reads, made)}"
        shares = f"layer // (model.LAYERS // {stages}) is the stage of a layer, or layer % {stages} where they go round"
        return f"{few} are on different ranks: {shares}, and what {verb}({made}, ...) gives goes to the other rank"
    here = f"is layer {reads} on {one}, as layer {made} is? Then what {verb}({made}, ...) gave stays stored there, and "
    here += "there is no message: send, and receive, only where the two layers are on different ranks"
    neighbor = f"a neighbor, such as model.rank {'-' if back else '+'} 1"
    return f"{here}. Else send it to the rank that has layer {reads}, {neighbor}"


def to_be_summed(labels: Labels | None) -> str:
    """Return where the gradient of a weight goes that a rank would send, where ranks keep pieces of each layer; or an
    empty text."""
    if labels is None or labels.kind != "WeightGrad":
        return ""
    every = f"every rank brings its gradient of layer {labels.layer} to model.scatterreduce(..., {labels.layer}), or "
    gives = f"model.fake_grad({labels.layer}, []) where it has run none, and gets its piece of the sum"
    return f"the gradient of a weight goes into a sum, and in no message: {every}{gives}"


def gradient_made_here(rank: Asked) -> str:
    """Return which backward of this rank has given the gradient that another one of its layers reads next, where it
    would receive that, or has sent it away; or an empty text."""
    for layer in sorted(rank.layers_run(), reverse=True):
        left = rank.has_run(FORWARD.kind, layer) - rank.has_run(BACKWARD.kind, layer)
        if gave := left & rank.has_run(BACKWARD.kind, layer + 1):
            has = f"backward({layer + 1}, ...) of this rank gave the gradient that backward({layer}, ...) reads here"
            if (to := rank.sent_to("ActivationGrad", layer, gave)) is not None:
                first = f"only what the backward of a stage's first layer gives is sent to rank {to}"
                return f"{has}, and it was sent to rank {to}: keep it stored, as {first}"
            return f"{has}, with no message: one is received for the last layer of a stage, and for no other of it"
    return ""


def own_input(rank: Asked) -> str:
    """Return which input of one of its own layers this rank makes itself, with no message, and has not made of all of
    the batch yet; or an empty text."""
    for layer in sorted(rank.layers_loaded()):
        if rank.has_loaded(layer - 1) and len(rank.has_run(FORWARD.kind, layer - 1)) < rank.batches:
            gives = f"forward(layer {layer - 1}) gives the input of layer {layer} on this rank itself, with no message"
            return f"{gives}: of each micro-batch it comes first"
    return ""


def or_its_own(rank: Asked, there: str) -> str:
    """Return from where an input comes, as ``there`` says, and on the last rank, where a V turns round, which input it
    makes itself, too."""
    own = own_input(rank) if there and rank.rank == rank.mesh.ranks - 1 else ""
    return f"{there}. Or: {own}" if own else there


def sent_to_it(rank: Asked) -> str:
    """Return which other rank has sent this one an activation that it has not run the layer on, where it has the layer
    before that itself; or an empty text."""
    own = [layer for layer in sorted(rank.layers_loaded()) if rank.has_loaded(layer - 1)]
    for sender, one in sorted(rank.ranks.items()):
        for layer in own if one is not rank else ():
            sent = {batch for batch, to in one.receivers("Activation", layer).items() if to == rank.rank}
            if left := sent - rank.has_run(FORWARD.kind, layer):
                which = f"the Activation of layer {layer}, {numbered('micro-batch', left)}"
                return f"rank {sender} has sent this rank {which}: await model.receive(src={sender})"
    return ""


def left_to_do(rank: Asked) -> str:
    """Return which forwards, or else which backwards, this rank has still to do of the micro-batches that it has begun
    with; or an empty text."""
    mine, own = rank.trained_on(), sorted(rank.layers_loaded())
    for verb, also in ((FORWARD.kind, FORWARD.kind), (BACKWARD.kind, BACKWARD_INPUT.kind)):
        left = {layer: mine - rank.has_run(verb, layer) - rank.has_run(also, layer) for layer in own}
        known = [f"{verb}({layer}, ...) of {numbered('micro-batch', some)}" for layer, some in left.items() if some]
        if known:
            return f"rank {rank.rank} has still to do {' and '.join(known[:MOST_LEFT])}"
    return ""


def counted(rank: Asked) -> str:
    """Return, as the end of what is said of the last layer, which number it has on its rank, where that has several
    stages; or an empty text."""
    own = sorted(rank.layers_loaded())
    which = f". Counted from 0 it is number {len(own) - 1} of this rank's {numbered('layer', own)}, and after it comes "
    return f"{which}number {len(own) - 2}" * rank.on_a_ring()
