"""Forward, backward and loss: what each insists on.

Each looks at all labels at once first, since nearly every operation is right, and then for the one that is not.
"""

from collections.abc import Sequence

from ...basics.errors import Place, PuzzleError, show_set
from ..causal import show_slices
from ..kinds import SAVED
from ..labels import NO_EXTRA, ExtraLabels, Labels
from ..operations import More, Rank
from .operands import adapter_fits, batches_mismatch, is_whole, layer_mismatch, named_right, weight_fits


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
    is_whole("input", where, inp, more)
    if inp.layer != layer:
        given = f"what forward({layer - 1}, ...) gives" if layer else "what get_activation gives"
        raise layer_mismatch("the input", where, layer, inp, f"an Activation with layer={layer}: {given}")


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
    is_whole("input", where, inp, more)
    is_whole("gradient", where, grad, more)
    if inp.layer != layer:
        raise layer_mismatch(
            "the input", where, layer, inp, f"the Activation that forward({layer}, ...) read (layer={layer})"
        )
    if grad.layer != layer:
        given = "what model.loss gives" if layer == rank.layers - 1 else f"what backward({layer + 1}, ...) gives"
        raise layer_mismatch("the gradient", where, layer, grad, f"an ActivationGrad with layer={layer}: {given}")
    if inp.batches != grad.batches:
        expected = f"a gradient for micro-batches {show_set(inp.batches)}"
        raise batches_mismatch("input and gradient", where, expected, grad)
    if inp.piece() != grad.piece():
        facts = {"what": "input and gradient", "labels": "slices"}
        raise PuzzleError("mismatch", where=where, expected=show_slices(inp.piece()), got=str(grad), **facts)
    if "saved" in more:
        saved = more["saved"]
        _saved_fits(where, saved, left_behind(layer, inp, weight, saved.keep))


def left_behind(layer: int, inp: Labels, weight: Labels, keep: str) -> Labels:
    """Return the labels of the inner activations that a forward leaves behind."""
    extra = ExtraLabels(keep=keep)
    return inp.changed(kind=SAVED, layer=layer, shards=weight.shards, total=weight.total, extra=extra).coarse()


def _saved_fits(where: Place, saved: Labels, right: Labels) -> None:
    """Raise PuzzleError unless these inner activations are what forward has left behind there."""
    if saved.coarse() == right:
        return
    differ = "layer" if saved.layer != right.layer else "micro-batch"
    if saved.layer == right.layer and saved.batches == right.batches:
        differ = "piece of the weight"
    raise PuzzleError("saved_mismatch", where=where, expected=str(right), got=str(saved), what=differ)


def loss_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless the input is the output of the last layer."""
    (inp,) = labels
    if inp.layer != rank.layers:
        where, expected = rank.place("loss", None, inp.batches), f"an Activation with layer={rank.layers}: "
        expected += f"what layer {rank.layers - 1} gives"
        raise PuzzleError("loss_too_early", where=where, expected=expected, got=str(inp))
    if inp.total != 1 or inp.extra.of != 1:
        is_whole("input", rank.place("loss", None, inp.batches), inp, more)
