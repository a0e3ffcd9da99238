"""How a rank comes by the gradient of all micro-batches, where the one that it updates with lacks some.

Each function below is about one cause. It returns what to write if that is the cause, and else an empty text.
``CAUSES`` has them in the order in which they are asked: what another cause brings about comes after that one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...basics.errors import numbered, show_axis, show_layers
from ..labels import Labels, experts_of
from ..operations import Rank

SUM_FIRST = "train on all micro-batches and add up their gradients, then update"


class Lack(NamedTuple):
    """An update with a gradient that lacks micro-batches. ``fetches``: how many calls the rank had awaited by then;
    ``sum_by``: the reductions to name where it has called none."""

    rank: Rank
    layer: int
    grad: Labels
    missing: frozenset[int]
    fetches: int
    sum_by: tuple[str, ...]

    @property
    def other(self) -> str:
        """The second of these reductions, as the end of a sentence."""
        return ", or model.scatterreduce, which gives a rank its piece of the sum" * (len(self.sum_by) > 1)


def completed(lack: Lack) -> str:
    """Return how a rank gets the gradient of the micro-batches that its own one lacks."""
    return next(filter(None, (cause(lack) for cause in CAUSES)), SUM_FIRST)


def not_in_place(verb: str, op: Sequence[object] | None, then: str = "update with that") -> str:
    """Return the fix where a gradient that went into a reduction is used as if it were the sum. ``op``: over which axis
    that was, before other things."""
    fix = f"model.{verb} does not change the gradient that it is given, it returns a new one: "
    return fix + f"write grad = await model.{verb}(grad, layer{over_axis(op)}), and {then}"


def over_axis(op: Sequence[object] | None) -> str:
    """Return the argument that names the axis of a collective, if it has one."""
    return f", axis={show_axis(op[0])}" if op and op[0] else ""


def _sum_dropped(lack: Lack) -> str:
    verb = lack.rank.reduced(lack.layer, lack.grad.batches)
    return not_in_place(verb, lack.rank.reduced_over(lack.layer, lack.grad.batches)) if verb else ""


def _backwards_of_this_rank(lack: Lack) -> str:
    """Of a rank that has carried some of them forward and not back; one that has run nothing has another fault."""
    return "" if lack.rank.ran_nothing() else lack.rank.not_gone_back(lack.layer, lack.missing)


def _nobody_else_brought_any(lack: Lack) -> str:
    rank, layer = lack.rank, lack.layer
    verb = rank.reduced_alone(layer, lack.grad.batches)
    if not verb:
        return ""
    whole = frozenset(range(rank.batches))
    if all(rank.run_by_none(one, whole) == whole for one in range(rank.layers)):
        return (
            "no rank has run any layer: is the condition under which a rank runs a layer ever true? The layers of a "
            "stage are range(first, first + n), which ends before first + n, and n is model.LAYERS // stages: there "
            "can be more ranks than layers"
        )
    if idle := rank.ran_nothing():
        return (
            f"{idle} run no layer, and brought no gradient: is it a stage that is not there? With several pipelines, "
            "model.rank % stages is the stage. Or is the range of layers empty? A stage has model.LAYERS // stages, at "
            "least one, range(first, first + model.LAYERS // stages): there can be more ranks than layers"
        )
    return (
        f"no other rank has brought a micro-batch to model.{verb} of layer {layer}: each brings the gradient that it "
        f"has computed, and model.fake_grad({layer}, []) only where it has none"
    )


def _sum_replaced(lack: Lack) -> str:
    rank, layer, grad = lack.rank, lack.layer, lack.grad
    return rank.replaced_sum(layer, grad, lack.fetches) or rank.summed_in_part(layer, grad)


def _others_of_this_rank(lack: Lack) -> str:
    layer, own = lack.layer, lack.missing & lack.rank.with_gradients(lack.layer)
    if not own:
        return ""
    has, held = f"this rank has computed the gradient of {numbered('micro-batch', own)} as well", lack.grad.batches
    to, verb = lack.rank.sent_to("WeightGrad", layer, own), lack.rank.reduced(layer, frozenset())
    if to is not None and verb:
        sent = (
            f"this rank has sent its gradient of {numbered('micro-batch', own)} to rank {to}, so it is not in this sum"
        )
        return f"{sent}: leave that message out, and bring that gradient to model.{verb} of layer {layer}"
    added = f"model.grad_weights[{layer}] = model.grad_weights[{layer}] + grad"
    if len(own) > 1 < len(held):
        anew = f"and the sum of {numbered('micro-batch', held)} is without it: does a condition begin the sum anew?"
        return f"{has}, {anew} Only the first of all is stored as it is, and each other one is added, {added}"
    return f"{has}: store the first one, and add it to the others, {added}"


def _backward_to_come(lack: Lack) -> str:
    """Of a rank that has carried some of them forward, and not back."""
    rank, layer, missing = lack.rank, lack.layer, lack.missing
    undone, input_half = missing & rank.has_run("forward", layer), rank.has_run("backward_input", layer)
    if not undone:
        return ""
    halves = input_half & undone
    if input_half and not halves | (missing - undone):
        return (
            f"neither half of the backward of layer {layer} has run for {numbered('micro-batch', undone)} by then: "
            "add up what model.backward_weight gives for all of them, and update once, after the last. Does this "
            "rank's order of work have one for each of these?"
        )
    if input_half and missing - undone and rank.run_by_none(layer, missing):
        return f"this update is too soon: {SUM_FIRST}"
    verb = "backward_weight" if halves else "backward"
    verb = "backward_expert" if experts_of(layer, rank.experts) else verb
    half = "the weight's half of the backward" if halves else "the backward"
    then = "then one update, with the sum of all gradients" if rank.with_gradients(layer) else "and then the update"
    what = f"{half} of {numbered('micro-batch', halves or undone)}"
    left = (_backwards_left(rank) or rank.left_undone()) if verb == "backward" else ""
    return f"{what} was never done for layer {layer} before this: model.{verb}({layer}, ...), {then}{left}"


def _backwards_left(rank: Rank) -> str:
    """Return how many backwards a rank has done that has done all forwards, of several micro-batches, and only some of
    the backwards; or an empty text."""
    done, back = (
        [len(own) for layer in range(rank.layers) if (own := rank.has_run(kind, layer))]
        for kind in ("forward", "backward")
    )
    if len({*done}) != 1 or done[0] < 2 or not back or sum(back) > sum(done) - 2:
        return ""
    return (
        f". This rank has done {sum(done)} forwards and {sum(back)} backwards: do those that are left after the last "
        "forward (a zip ends with its shorter list)"
    )


def _messages_to_a_host(lack: Lack) -> str:
    if not lack.rank.is_host:
        return ""
    if lack.rank.has_not_come(lack.layer, lack.missing):
        first = f"those of {numbered('micro-batch', lack.missing)} for layer {lack.layer} have not been received by "
        return (
            f"{first}then: receive one message of the device for each layer and each micro-batch, and update after the "
            "last"
        )
    return (
        "gradients come from the devices, one message for each micro-batch: keep the gradient of the first "
        f"micro-batch, add those of the others to it, model.grad_weights[{lack.layer}] + grad, and then update"
    )


def _run_by_nobody(lack: Lack) -> str:
    rank, layer = lack.rank, lack.layer
    none = rank.run_by_none(layer, lack.missing)
    if not none:
        return ""
    if alone := rank.sum_of_some():
        return alone
    ran = f"layer {layer} has not run on {numbered('micro-batch', none)} by then"
    if not rank.others_have(layer):
        early = ". Does a condition let this update come before the last of them?"
        return f"{ran}: {SUM_FIRST}{rank.left_undone() or early * (len(lack.grad.batches) > 1)}"
    if fewest := rank.has_fewest(none):
        return f"{ran}, on any rank; {fewest}"
    if idle := rank.ran_nothing():
        never = f"{ran}, on any rank, and {idle} run no layer: is the condition under which a rank runs a layer ever "
        return f"{never}true there? {rank.stages_in_a_row() or rank.dealt()}"
    train = "train on all of them, and update after the last one. Is a loop too short? Or does "
    train += "a condition let this update come too early?"
    return f"{ran}, on any rank: {train} Else {rank.dealt()}"


def _summed_too_often(lack: Lack) -> str:
    return lack.rank.sums_often(lack.layer)


def _not_met(lack: Lack) -> str:
    return lack.rank.met_by_others("WeightGrad", lack.layer)


def _summed_over_some(lack: Lack) -> str:
    rank, layer = lack.rank, lack.layer
    return rank.over_copies(layer) or rank.left_to_sum(layer, lack.grad) or rank.sum_of_some()


def _another_summed(lack: Lack) -> str:
    verb = lack.rank.not_brought(lack.layer, lack.grad.batches)
    if not verb:
        return ""
    return (
        f"model.{verb} of layer {lack.layer} was called with another gradient: call it after this backward, with what "
        f"that gives, grad = await model.{verb}(grad, {lack.layer})"
    )


def _of_others(lack: Lack) -> str:
    return lack.rank.not_theirs(lack.layer, lack.missing)


def _never_summed(lack: Lack) -> str:
    """Of a layer that other ranks have, too."""
    rank, layer = lack.rank, lack.layer
    if not rank.others_have(layer):
        return ""
    if rank.owns_piece(lack.grad) and not rank.is_cut(layer) and not rank.axes_of_layers():
        both = f"grad = await model.scatterreduce(grad, {layer}) of the whole gradient sums and cuts"
        return f"shard cuts, and sums nothing over the ranks: in place of it {both}"
    verb, layers = rank.never_reduced()
    if layer in layers:
        which = f"layer {layer} was" if len(layers) == 1 else f"{show_layers(layers)} were"
        return f"{which} never summed over the ranks: bring all gradients to model.{verb}, the last ones, too"
    if axes := rank.axes_of_layers():
        over = " and then ".join(f"axis={show_axis(axis)}" for axis in axes)
        call = f"grad = await model.{lack.sum_by[0]}(grad, {layer}, {over})"
        return f"add up the gradients of the ranks that have layer {layer}, too, before the update: {call}{lack.other}"
    if rank.experts and not experts_of(layer, rank.experts):
        dense = f"layer {layer} has no experts, so add up the gradients of all ranks"
        call = f"grad = await model.allreduce(grad, {layer}), where `not model.experts(layer)`"
        return f"{dense}, {call}; those of experts need no sum"
    add = f"add up the gradients of all ranks before the update: grad = await model.{lack.sum_by[0]}(grad, {layer})"
    return add + lack.other + rank.axis_by_axis(layer) + rank.updates_alone(layer)


CAUSES = (
    _sum_dropped,
    _backwards_of_this_rank,
    _nobody_else_brought_any,
    _sum_replaced,
    _others_of_this_rank,
    _backward_to_come,
    _messages_to_a_host,
    _run_by_nobody,
    _summed_too_often,
    _not_met,
    _summed_over_some,
    _another_summed,
    _of_others,
    _never_summed,
)
