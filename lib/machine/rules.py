"""What each operation insists on, as sets: layers, micro-batches, shards, steps.

The values would find every one of these mistakes, at the end of the run. The rules find them at
the operation where they happen, and say what to write instead.
"""

from __future__ import annotations

from ..basics.errors import PuzzleError, show_set
from ..record.labels import Labels, same_pieces, within
from .rank_state import Account


def forward(account: Account, layer: int, inp: Labels, weight: Labels) -> None:
    """A complete weight of this layer and step 0, and the input of this layer."""
    if weight.layer != layer or inp.layer != layer or len(weight.shards) != weight.total or weight.step:
        where = f"rank {account.rank}, forward(layer {layer}), micro-batch {show_set(inp.batches)}"
        _weight_fits(account, where, layer, weight)
        if inp.layer != layer:
            raise PuzzleError(
                f"the input is that of layer {inp.layer}",
                where=where,
                expected=f"an Activation with layer={layer}: what get_activation gives (layer 0) or "
                f"forward({layer - 1}, ...) gives",
                got=str(inp),
            )


def backward(account: Account, layer: int, inp: Labels, grad: Labels, weight: Labels) -> None:
    """As forward; the gradient that belongs to the output, for the same micro-batches."""
    if (
        weight.layer != layer
        or inp.layer != layer
        or grad.layer != layer
        or inp.batches != grad.batches
        or len(weight.shards) != weight.total
        or weight.step
    ):
        where = f"rank {account.rank}, backward(layer {layer}), micro-batch {show_set(inp.batches)}"
        _weight_fits(account, where, layer, weight)
        if inp.layer != layer:
            raise PuzzleError(
                f"the input is that of layer {inp.layer}",
                where=where,
                expected=f"the Activation that forward({layer}, ...) read (layer={layer})",
                got=str(inp),
                cure=f"by habit: model.activations[{layer}]",
            )
        if grad.layer != layer:
            raise PuzzleError(
                f"the gradient is that of layer {grad.layer}",
                where=where,
                expected=f"what loss gives (the last layer) or backward({layer + 1}, ...) gives: layer={layer}",
                got=str(grad),
            )
        if inp.batches != grad.batches:
            raise PuzzleError(
                "input and gradient are of different micro-batches",
                where=where,
                expected=f"a gradient for micro-batches {show_set(inp.batches)}",
                got=show_set(grad.batches),
            )


def loss(account: Account, inp: Labels) -> None:
    """The output of the last layer."""
    if inp.layer != account.layers:
        raise PuzzleError(
            "the loss reads the output of the last layer",
            where=f"rank {account.rank}, loss, micro-batch {show_set(inp.batches)}",
            expected=f"an Activation with layer={account.layers}: what forward({account.layers - 1}, ...) gives",
            got=str(inp),
        )


def update(account: Account, layer: int, grad: Labels, weight: Labels, opt_state: Labels) -> None:
    """Every micro-batch once; one layer and step; weight and state the same pieces, within the gradient's."""
    if (
        layer == grad.layer == weight.layer == opt_state.layer
        and len(grad.batches) == account.batches
        and weight.step == opt_state.step
        and same_pieces(weight, opt_state)
        and within(weight, grad)
    ):
        return
    where = f"rank {account.rank}, update(layer {layer})"
    for name, labels in (("weight_grad", grad), ("weight", weight), ("opt_state", opt_state)):
        if labels.layer != layer:
            raise PuzzleError(
                f"{name} is of layer {labels.layer}", where=where, expected=f"layer {layer}", got=str(labels)
            )
    if len(grad.batches) != account.batches:
        missing = frozenset(range(account.batches)) - grad.batches
        raise PuzzleError(
            f"the gradient misses micro-batch {show_set(missing)}",
            where=where,
            expected=f"all of {show_set(range(account.batches))}",
            got=show_set(grad.batches),
            cure="add up the gradients of all micro-batches, your own and (by a reduction) other ranks', then update",
        )
    _pieces_fit(where, grad, weight, opt_state)


def _pieces_fit(where: str, grad: Labels, weight: Labels, opt_state: Labels) -> None:
    """What is wrong with the pieces of an update. One of these is."""
    if weight.step != opt_state.step:
        raise PuzzleError(
            "weight and optimizer state are of different steps",
            where=where,
            expected=f"step {weight.step}",
            got=str(opt_state),
        )
    if not same_pieces(weight, opt_state):
        raise PuzzleError(
            "weight and optimizer state hold different shards",
            where=where,
            expected=f"shards {show_set(weight.shards)} of {weight.total}, as the weight",
            got=str(opt_state),
            cure="cut both alike: weight.shard(i, n) and opt_state.shard(i, n)",
        )
    raise PuzzleError(
        "the gradient does not cover the weight",
        where=where,
        expected=f"at least shards {show_set(weight.shards)} of {weight.total}",
        got=str(grad),
        cure="update the piece whose gradient this rank has",
    )


def _weight_fits(account: Account, where: str, layer: int, weight: Labels) -> None:
    if weight.layer != layer:
        raise PuzzleError(
            f"the weight is that of layer {weight.layer}",
            where=where,
            expected=f"layer {layer}",
            got=str(weight),
        )
    if not weight.is_whole():
        raise PuzzleError(
            "the weight is not complete",
            where=where,
            expected=f"all shards of the weight of layer {layer}",
            got=str(weight),
            cure=f"weight = await model.allgather(model.weights[{layer}], {layer})",
        )
    if weight.step and account.graded:
        raise PuzzleError(
            "the weight has been updated already",
            where=where,
            expected="the weight of step 0, for every micro-batch of the batch",
            got=str(weight),
            cure="update a layer after the last forward and backward that need its weight",
        )
