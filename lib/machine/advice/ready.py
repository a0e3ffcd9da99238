"""What ranks that wait for a message could go on with, or have made and never sent on, where they wait for anyone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...basics.errors import numbered, show_call, show_set
from ...record.kinds import SLOT
from ...record.shards import NONE
from ...record.training import BACKWARD, BACKWARD_INPUT, FORWARD, LOSS
from ..rank_state import RankState
from .sought import Sought

PASSED_ON = ("Activation", "ActivationGrad", "WeightGrad")
"""Between stages that keep their weights, messages bring these."""


class Ready(NamedTuple):
    """An operation of a layer whose input a rank has, and which it has not run."""

    verb: str
    rank: RankState
    layer: int
    batches: frozenset[int]


def work_left(ranks: Mapping[int, RankState]) -> str:
    """Return what a rank has made and not sent on, or else which operation a rank could run at once; or an empty text
    where that is not known."""
    if any(_other_messages(rank) for rank in ranks.values()):
        return ""
    if unsent := next(_not_sent(ranks), ""):
        return unsent
    ready = [one for rank in ranks.values() for one in _ready(rank)]
    back = [one for one in ready if one.verb != FORWARD.kind]
    if not ready:
        return ""
    first = min(back or ready, key=lambda one: (one.verb != LOSS.kind, -one.layer))
    return _backward_first(first) if back else _forward_first(first)


def _other_messages(rank: RankState) -> bool:
    """Return whether a rank gets other messages than whole tensors between stages, or has a part in the updates of
    others."""
    came = rank.came()
    return rank.is_host or any(one.kind not in PASSED_ON or one.total > 1 or one.of > 1 for one in came)


def _gone_back(rank: RankState, layer: int) -> frozenset[int]:
    return rank.has_run(BACKWARD.kind, layer) | rank.has_run(BACKWARD_INPUT.kind, layer)


def _made(rank: RankState, kind: str, layer: int) -> frozenset[int]:
    """Return of which micro-batches a rank has made the input of a layer, or the gradient of its output."""
    if kind == "Activation":
        return rank.has_run(FORWARD.kind, layer - 1)
    return rank.has_run(LOSS.kind, layer + 1) if layer == rank.layers - 1 else _gone_back(rank, layer + 1)


def _not_sent(ranks: Mapping[int, RankState]) -> Iterator[str]:
    """Yield what ranks have made for a layer of one other rank, and sent to nobody."""
    for number, rank in sorted(ranks.items()):
        for kind, step in (("ActivationGrad", -1), ("Activation", 1)):
            for layer in sorted(one + step for one in rank.layers_run()):
                left = _made(rank, kind, layer) - rank.receivers(kind, layer).keys()
                owners = [other for other, one in sorted(ranks.items()) if one.has_loaded(layer)]
                if left and len(owners) == 1 and owners != [number]:
                    verb = FORWARD.kind if step > 0 else _verb(rank)
                    gave = f"rank {number} has not sent on what {show_call(verb, layer - step)}, micro-batch "
                    there = f"{show_set(left)}, gave, and layer {layer} is on rank {owners[0]}"
                    yield f"{gave}{there}: await model.pass_to({owners[0]}, ...)"


def _verb(rank: RankState) -> str:
    halves = any(rank.has_run(BACKWARD_INPUT.kind, layer) for layer in rank.layers_run())
    return BACKWARD_INPUT.kind if halves else BACKWARD.kind


def _ready(rank: RankState) -> Iterator[Ready]:
    """Yield what a rank could run at once, as its input has come or was made there."""
    for layer in sorted(rank.layers_loaded()):
        run = rank.has_run(FORWARD.kind, layer)
        if layer == rank.layers - 1 and (left := run - rank.has_run(LOSS.kind, layer + 1)):
            yield Ready(LOSS.kind, rank, layer, left)
        if left := (_has(rank, "ActivationGrad", layer) & run) - _gone_back(rank, layer):
            yield Ready(BACKWARD.kind, rank, layer, left)
        if left := _has(rank, "Activation", layer) - run:
            yield Ready(FORWARD.kind, rank, layer, left)


def _has(rank: RankState, kind: str, layer: int) -> frozenset[int]:
    """Return of which micro-batches such a tensor of a layer has come to a rank, or was made there and not sent."""
    came = NONE.union(*[one.batches for one in rank.came() if (one.kind, one.layer) == (kind, layer)])
    return came | (_made(rank, kind, layer) - rank.receivers(kind, layer).keys())


def _waits(rank: RankState) -> str:
    at, sought = rank.sought or (-1, None)
    looks = f", since it looks for {sought.where}" if isinstance(sought, Sought) and at >= len(rank.log) - 1 else ""
    return f"but waits for a message{looks}"


def _source(rank: RankState, kind: str, layer: int, batches: frozenset[int]) -> str:
    if not batches <= _made(rank, kind, layer):
        return "which has come to it"
    if kind == "Activation":
        return f"which {show_call(FORWARD.kind, layer - 1)} gave there"
    return "from model.loss" if layer == rank.layers - 1 else f"which {show_call(_verb(rank), layer + 1)} gave there"


def _backward_first(one: Ready) -> str:
    """Return that a loss or a backward comes before the message that its rank waits for."""
    verb, rank, layer, batches = one
    of = numbered("micro-batch", batches)
    if verb == LOSS.kind:
        ran = f"rank {rank.rank} has run the last layer, {layer}, for {of}, {_waits(rank)}"
        return f"{ran}: model.loss makes the first gradient there, and backward(layer {layer}) takes it"
    source = _source(rank, "ActivationGrad", layer, batches)
    has = f"rank {rank.rank} has the gradient of the output of layer {layer}, {of}, {source}"
    first = f"{has}, and has not run {show_call(_verb(rank), layer)} with it, {_waits(rank)}"
    if not rank.held[SLOT["ActivationGrad"]]:
        return (
            f"{first}. It stores no gradient: keep this one in model.grad_activations, and let that backward come next"
        )
    return f"{first}: let that backward come first"


def _forward_first(one: Ready) -> str:
    """Return that a forward comes before the message that its rank waits for, and what may hold it back."""
    _, rank, layer, batches = one
    of, forward = numbered("micro-batch", batches), show_call(FORWARD.kind, layer)
    has = f"rank {rank.rank} has the input of layer {layer}, {of}, {_source(rank, 'Activation', layer, batches)}"
    first = f"{has}, and has not run {forward} on it, {_waits(rank)}: let that forward come first"
    below = [other for other in sorted(rank.layers_loaded()) if other < layer]
    run = {other: len(rank.has_run(FORWARD.kind, other)) for other in (*below, layer)}
    open_ones = sum(len(rank.has_run(FORWARD.kind, other) - _gone_back(rank, other)) for other in run)
    if below and run[below[0]] > run[layer] and open_ones:
        number = f"{run[below[0]]} forward{'s' * (run[below[0]] > 1)} of layer {below[0]} and {run[layer] or 'none'}"
        room = (
            f"if a limit holds that one back, let fewer forwards of layer {below[0]} come before it, so that room is "
        )
        return f"{first}. It has run {number} of layer {layer}: {room}left for it"
    if rank.layers_run() and not open_ones:
        done = "Each forward that it has run there has had its backward"
        return f"{first}. {done}: if it counts how far it runs ahead, each backward has to count one less"
    return first
