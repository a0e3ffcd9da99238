"""Forward, backward and loss: what each insists on, and what to write where that does not hold.

Each looks at all labels at once first, since nearly every operation is right, and then for the one that is not.
"""

import functools
from collections.abc import Sequence

from ...basics.errors import Fix, Place, PuzzleError, numbered, show_set
from ..kinds import SAVED
from ..labels import DEALT, IN_A_V, NO_EXTRA, ExtraLabels, Labels
from ..operations import More, Rank
from .operands import adapter_fits, is_whole, named_right, weight_fits
from .whence import whence


def forward_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless the weight is of step 0 and complete (with ``partial`` it may be a piece), the input is
    complete, and both are of this layer, as the adapter is, if there is one."""
    inp, weight = labels
    partial = bool(more) and "partial" in more
    if more and "adapter" in more:
        where = rank.place("forward", layer, inp.batches)
        named_right(rank, where, layer, {"input": inp.layer, "weight": weight.layer, "adapter": more["adapter"].layer})
        adapter_fits(rank, where, layer, more["adapter"], partial)
    whole = len(weight.shards) == weight.total or partial
    plain = inp.total == 1 and inp.extra.of == 1 and not weight.extra.adapter
    if weight.layer == inp.layer == layer and not weight.step and whole and plain:
        return
    where = rank.place("forward", layer, inp.batches)
    named_right(rank, where, layer, {"input": inp.layer, "weight": weight.layer})
    weight_fits(rank, where, layer, weight, partial)
    is_whole(rank, "input", where, inp)
    if inp.layer == layer:
        return
    given = f"what forward({layer - 1}, ...) gives" if layer else "what get_activation gives"
    problem, expected = f"the input is that of layer {inp.layer}", f"an Activation with layer={layer}: {given}"
    own = f"store {given} under its layer, and take it from there: model.activations[{layer}]"

    def where_from() -> str:
        return whence(rank, inp, "Activation", layer, _not_run_yet(rank, layer, inp) or own)

    fix_for = {
        DEALT: lambda: rank.dealt_otherwise() or rank.out_of_turn(inp) or where_from(),
        IN_A_V: lambda: rank.not_in_a_v() or where_from(),
    }
    error = PuzzleError(problem, where=where, expected=expected, got=str(inp), fix=where_from, fix_for=fix_for)
    error.sought = "Activation", layer, inp.batches
    raise error


def _not_run_yet(rank: Rank, layer: int, inp: Labels) -> str:
    """Return that the layer below this one has not run, where its input is brought to this one; or an empty text."""
    if inp.layer != layer - 1 or inp.batches & rank.has_run("forward", inp.layer):
        return ""
    if rank.layers_loaded() and inp.layer not in rank.layers_loaded():
        return ""
    none = f"forward({inp.layer}, ...) has not run on this rank for {numbered('micro-batch', inp.batches)}"
    first = f"run it before, and give forward({layer}, ...) what it gives"
    begins = "; does the loop over the layers begin at 1, or count up too early?" if not inp.layer else ""
    return f"{none}, and this is the input of layer {inp.layer}: {first}{begins}"


def backward_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError for what forward refuses, and unless the gradient is that of the output, for the same micro-
    batches, and what forward left behind, if given, is of the same layer, piece and micro-batches."""
    inp, grad, weight = labels
    partial = bool(more) and "partial" in more
    if (
        weight.layer == inp.layer == grad.layer == layer
        and inp.batches == grad.batches
        and (len(weight.shards) == weight.total or partial)
        and not weight.step
        and inp.total == grad.total == 1
        and inp.extra is NO_EXTRA is grad.extra
        and not weight.extra.adapter
        and (not more or not ("saved" in more or "adapter" in more))
    ):
        return
    where = rank.place("backward", layer, inp.batches)
    named_right(rank, where, layer, {"input": inp.layer, "gradient": grad.layer, "weight": weight.layer})
    if "adapter" in more:
        adapter_fits(rank, where, layer, more["adapter"], partial)
    weight_fits(rank, where, layer, weight, partial)
    is_whole(rank, "input", where, inp)
    is_whole(rank, "gradient", where, grad)
    if inp.layer != layer:
        raise _of_another_input(rank, where, layer, inp, grad)
    if grad.layer != layer:
        raise _of_another_output(rank, where, layer, inp, grad)
    if inp.batches != grad.batches:
        raise _of_other_batches(rank, where, layer, inp, grad)
    if "saved" in more:
        saved = more["saved"]
        _saved_fits(where, saved, left_behind(layer, inp, weight, saved.keep))


def _of_another_input(rank: Rank, where: Place, layer: int, inp: Labels, grad: Labels) -> PuzzleError:
    """Return the error about an input that another layer reads."""
    problem = f"the input is that of layer {inp.layer}"
    expected = f"the Activation that forward({layer}, ...) read (layer={layer})"
    fix = f"keep what forward({layer}, ...) reads until then, stored under its layer: model.activations[{layer}]"
    if inp.layer == layer + 1:
        fix += f". This one is what forward({layer}, ...) gives: was it stored in the place of the input? Then give "
        fix += "it a key of its own"
    error = PuzzleError(problem, where=where, expected=expected, got=str(inp), fix=fix)
    error.sought = "Activation", layer, grad.batches if grad.layer == layer else inp.batches
    return error


def _of_another_output(rank: Rank, where: Place, layer: int, inp: Labels, grad: Labels) -> PuzzleError:
    """Return the error about a gradient that is not that of this layer's output."""
    problem, last = f"the gradient is that of layer {grad.layer}", layer == rank.layers - 1
    given = "what model.loss gives" if last else f"what backward({layer + 1}, ...) gives"
    own = f"{given}, stored under its layer: model.grad_activations[{layer + 1}]; "
    own += "backward goes from the last layer down to the first"
    expected = f"an ActivationGrad with layer={layer}: {given}"
    where_from = functools.partial(whence, rank, grad, "ActivationGrad", layer + 1, own)
    if grad.layer == layer - 1 and grad.batches <= rank.has_run("backward_input", layer) != frozenset():
        both = f"this is what backward_input({layer}, ...) gives, and goes on from here. Both halves read the "
        both += "same gradient, that of the layer's output: keep it stored until the half for the weight, "
        both += f"model.grad_activations[{layer + 1}, micro_batch]"
        return PuzzleError(problem, where=where, expected=expected, got=str(grad), fix=both)
    fix_for = {
        DEALT: lambda: rank.dealt_otherwise() or where_from(),
        IN_A_V: lambda: rank.not_in_a_v() or where_from(),
    }
    error = PuzzleError(problem, where=where, expected=expected, got=str(grad), fix=where_from, fix_for=fix_for)
    error.sought = "ActivationGrad", layer, inp.batches
    return error


def _of_other_batches(rank: Rank, where: Place, layer: int, inp: Labels, grad: Labels) -> PuzzleError:
    """Return the error about a gradient that is of other micro-batches than the input."""
    expected, got = f"a gradient for micro-batches {show_set(inp.batches)}", show_set(grad.batches)
    problem = "input and gradient are of different micro-batches"
    fix = "take both under the same micro-batch, and receive gradients in the order in which they are sent"
    if inp.batches <= rank.has_run("backward_input", layer):
        fix = f"the gradient of {numbered('micro-batch', inp.batches)} was here for backward_input, and another "
        fix += f"one has taken its place: a key for each, model.grad_activations[{layer + 1}, micro_batch]"
    elif layer == rank.layers - 1 and inp.batches <= rank.has_run("loss", rank.layers):
        fix = f"model.loss gave the gradient of {numbered('micro-batch', inp.batches)}, and another one has taken its "
        fix += f"place: a key for each, model.grad_activations[{layer + 1}, micro_batch], or the loss right before this"
    elif grad.batches <= rank.has_run("forward", layer) and rank.lacks_inputs():
        fix = f"this rank has run layer {layer} for {numbered('micro-batch', grad.batches)}, too: give each input a "
        fix += f"key of its own, model.activations[{layer}, micro_batch], or the next one takes its place; and take "
        fix += "out that of the gradient's micro-batch"
    elif came := rank.sender(grad):
        sender = came[0]
        fix = f"the gradient came from rank {sender}: let both ranks take the micro-batches in the same order, "
        fix += "and receive each message once"
        found = functools.partial(_not_sent, rank, sender, layer, inp.batches, fix)
        return PuzzleError(
            problem, where=where, expected=expected, got=got, fix=rank.left_out_at_the_end(grad) or found
        )
    return PuzzleError(problem, where=where, expected=expected, got=got, fix=fix)


def _not_sent(rank: Rank, sender: int, layer: int, batches: frozenset[int], fix: str) -> str:
    """Return what to do where a rank has sent no gradient of these micro-batches, or the ``fix`` if it has."""
    if not rank.not_sent_by(sender, "ActivationGrad", layer, batches):
        return fix
    if otherwise := rank.other_way(sender, layer + 1, batches):
        return otherwise
    if skipped := rank.goes_back_without(sender, layer + 1, batches):
        return skipped
    none = f"rank {sender} has not sent that of {numbered('micro-batch', batches)}"
    return f"{none}: one pass_to for each micro-batch, right after its backward({layer + 1}, ...)"


def left_behind(layer: int, inp: Labels, weight: Labels, keep: str) -> Labels:
    """Return the labels of the inner activations that a forward leaves behind."""
    labels = inp.changed(kind=SAVED, layer=layer, shards=weight.shards, total=weight.total)
    return labels.changed(extra=ExtraLabels(keep=keep)).coarse()


def _saved_fits(where: Place, saved: Labels, right: Labels) -> None:
    """Raise PuzzleError unless these inner activations are what forward has left behind there."""
    if saved.coarse() == right:
        return
    differ = "layer" if saved.layer != right.layer else "micro-batch"
    if saved.layer == right.layer and saved.batches == right.batches:
        differ = "piece of the weight"
    problem, fix = f"the inner activations are of another {differ}", "keep what forward gives under its layer and its "
    fix += "micro-batch, model.activations[layer, mb, 'saved'], and take it out there for backward"
    raise PuzzleError(problem, where=where, expected=str(right), got=str(saved), fix=fix)


def loss_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless the input is the output of the last layer."""
    (inp,) = labels
    if inp.layer != rank.layers:
        problem, expected = "the loss reads the output of the last layer", f"an Activation with layer={rank.layers}: "
        expected += f"what {_last_step(rank)}({rank.layers - 1}, ...) gives"
        where, fix = rank.place("loss", None, inp.batches), _where_the_output_is(rank, inp)
        which: Fix = lambda: _of_last_stage(rank, inp) or rank.left_out(inp.layer) or fix  # noqa: E731
        raise PuzzleError(problem, where=where, expected=expected, got=str(inp), fix=which)
    sliced = bool(more) and "sliced" in more
    if (inp.total != 1 and not sliced) or inp.extra.of != 1:
        is_whole(rank, "input", rank.place("loss", None, inp.batches), inp)


def _of_last_stage(rank: Rank, inp: Labels) -> str:
    """Return what a rank does in place of the loss with an output that it has sent on to the next stage, or nothing."""
    if rank.sent_to("Activation", inp.layer, inp.batches) is None or not inp.batches:
        return ""
    there = rank.comes_from("ActivationGrad", inp.layer, inp.batches)
    only = f"this is the input of layer {inp.layer}, and only a rank that runs the last layer calls model.loss"
    return f"{only}; {there}, in place of the loss" if there else ""


def _last_step(rank: Rank) -> str:
    """Return the operation that gives a layer's output: the last of its steps, where it is done in steps."""
    return "rest" if any(rank.has_run("rest", layer) for layer in range(rank.layers)) else "forward"


def _where_the_output_is(rank: Rank, inp: Labels) -> str:
    """Return where the output of the last layer is, in place of the input of a layer."""
    top, gives = rank.layers - 1, _last_step(rank)
    if inp.batches <= rank.has_run("loss", rank.layers):
        fix = f"model.loss has had the output of {numbered('micro-batch', inp.batches)} already, and this is the "
        return fix + f"input of layer {inp.layer}: leave this call out"
    if rank.sender(inp) and rank.has_run("forward", top):
        fix = f"this rank runs forward({top}, ...) itself, and the loss reads what it gives: keep "
        return fix + "that under a key, and neither send nor receive it"
    if inp.batches <= rank.has_run(gives, top):
        sliced_too = ", sliced=True" * (inp.total != 1)
        fix = f"this is the input of layer {inp.layer}, and {gives}({top}, ...) has run: the loss reads what that "
        return fix + f"gave, model.loss(model.activations[model.LAYERS]{sliced_too})"
    fix = "run every layer from 0 to model.LAYERS - 1 first, and then the loss once: "
    return fix + "model.loss(model.activations[model.LAYERS]); in a pipeline only the last stage has that"
