"""Tensors that go round a ring of ranks, one hop a step: who has passed on less, and what nobody has received."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...basics.errors import numbered
from ...record.attention import ATTEND, BACKWARD_ATTEND, BACKWARD_REST, PROJECT
from ...record.kinds import KINDS
from ...record.labels import Labels
from ...record.table import RECEIVE
from ...record.training import FORWARD
from ..in_flight import InFlight, RankLinks
from ..past.asked import Asked


def sends_less(ring: Sequence[InFlight], links: Mapping[int, RankLinks]) -> str:
    """Return which ranks of a circle have sent fewer messages to the one that waits for them than others have, where
    all wait at the same step of the same work; or an empty text."""
    last = [call.rank.past_record(call.index) for call in ring]
    if len({(one.kind, one.layer) if one is not None else None for one in last}) > 1:
        return ""
    senders = [(call.peer, call.rank.rank) for call in ring if call.peer is not None and call.peer in links]
    sent = {peer: links[peer].sent.get(to, 0) for peer, to in senders}
    least, most = min(sent.values(), default=0), max(sent.values(), default=0)
    if least == most:
        return ""
    fewer, more = ([rank for rank, times in sent.items() if times == many] for many in (least, most))
    have = f"{numbered('rank', fewer)} {'has' if len(fewer) == 1 else 'have'} sent fewer messages to the next rank than"
    step = "each rank sends as often as it receives, so the pass_to stands below no `if` of a rank"
    return f"{have} {numbered('rank', more)} ({least} and {most}): in a ring {step}"


def wanted_on_a_ring(rank: Asked, before: int) -> str:
    """Return what a rank wants to receive whose last work, ``before`` a place in its log, is a step of attention; or an
    empty text for any other."""
    steps = (PROJECT.kind, ATTEND.kind, BACKWARD_REST.kind, BACKWARD_ATTEND.kind)
    last = next(
        (one for one in reversed(rank.log[:before]) if one.layer is not None and not hasattr(one, "peer")), None
    )
    if last is None or last.kind not in steps:
        return ""
    keys = f"KeysValues of layer {last.layer}"
    return f"{keys}, or their gradient" if last.kind == BACKWARD_ATTEND.kind else keys


def on_a_ring(ring: Sequence[InFlight], links: Mapping[int, RankLinks]) -> str:
    """Return what to do where ranks wait for each other's keys and values, or for their gradients, as sentences; or an
    empty text for other ranks."""
    if not all(wanted_on_a_ring(call.rank, call.index) for call in ring):
        return ""
    call = ring[0]
    if call.peer is None or call.peer not in links:
        return ""
    sent = links[call.peer].sent.get(call.rank.rank, 0)
    messages = f"{sent} message{'s' * (sent != 1)}"
    asks = f"Rank {call.peer} has sent rank {call.rank.rank} {messages}, and rank {call.rank.rank} waits for one more"
    hop = (
        "On a ring each step is one hop: a rank starts to send the block that it has to the next rank, works with it, "
    )
    hop += "and receives the block of the rank before; a step that receives has sent before that, under the same `if`. "
    return f"{asks}. {hop}Of {call.rank.mesh.ranks} blocks {call.rank.mesh.ranks - 1} come as messages"


def once_more_round(rank: Asked, src: object) -> str:
    """Return from which rank the input of a further layer of this rank comes, where its micro-batches have gone through
    its layers, and those of the ranks after it, and through no more; or an empty text. ``src``: from where it is
    wanted."""
    own, ranks = rank.trained_on(), rank.ranks
    if not own or type(src) is not int or src > rank.rank or len(ranks) < rank.mesh.everyone:
        return ""
    ran = {
        layer: [one.rank for one in ranks.values() if own <= one.has_run(FORWARD.kind, layer)]
        for layer in range(rank.layers)
    }
    layer = next((layer for layer, here in ran.items() if not here), None)
    if not layer or rank.rank in ran[layer - 1] or rank.rank not in ran[0]:
        return ""
    [last, *_] = ran[layer - 1]
    ring = "the stages of a pipeline are a ring, and the one before is (stage - 1) % stages of the same pipeline"
    return f"is this for layer {layer}? Layer {layer - 1} ran on rank {last}: await model.receive(src={last}); {ring}"


def back_to_first(rank: Asked, labels: Labels) -> str:
    """Return to which rank an activation goes that the last rank of a pipeline has made, where layers are left: to the
    first one again, in a ring; or an empty text."""
    if (
        labels.kind != "Activation"
        or not 0 < labels.layer < labels.layers
        or not rank.has_run(FORWARD.kind, labels.layer - 1)
    ):
        return ""
    first = [one.rank for one in rank.ranks.values() if labels.batches <= one.has_run(FORWARD.kind, 0)]
    if len(first) != 1 or first[0] >= rank.rank:
        return ""
    left = f"layer {labels.layer} is left, and no rank comes after this one"
    ring = "where layers go round a ring, the next stage is the first of this pipeline again, await "
    ring += f"model.pass_to({first[0]}, ...)"
    if rank.layers_loaded() != {*range(rank.layers)}:
        return f"{left}: {ring}"
    so_far = f"which has run {numbered('layer', rank.layers_run())} so far"
    return f"{left}, {so_far}: each stage runs model.LAYERS // stages layers; or, {ring}"


def other_way(rank: Asked, labels: Labels, receiver: object) -> str:
    """Return in which direction a tensor goes that a rank sends the other way, where stages follow one another; or an
    empty text."""
    step = receiver - rank.rank if type(receiver) is int else 0
    if labels.kind == "Activation" and step < 0:
        return f"an activation goes on to the rank that runs layer {labels.layer}: in a row that is model.rank + 1"
    if labels.kind == "ActivationGrad" and step > 0:
        return f"a gradient goes back to the rank that runs layer {labels.layer}: in a row that is model.rank - 1"
    return ""


def not_received(rank: Asked, kind: str, layer: int) -> str:
    """Return from which rank such a tensor of a layer has been sent to this one, which has not received it; or an empty
    text."""
    came = {peer for peer, labels in rank.come_in() if (labels.kind, labels.layer) == (kind, layer)}
    for sender, one in sorted(rank.ranks.items()):
        if rank.rank in one.receivers(kind, layer).values() and sender not in came:
            return f"rank {sender} has sent this rank {kind} of layer {layer}: await model.receive(src={sender})"
    return ""


def one_way_round(call: InFlight, sender: int, ranks: int, labels: Labels | None) -> str:
    """Return how else what goes round a ring reaches a rank, as the end of a question, where it waits for a neighbor
    and another rank, the ``sender``, has sent it something: that one sends to the wrong rank; or an empty text."""
    step = (call.rank.rank - call.peer) % ranks if call.peer is not None else 0
    if labels is None or not KINDS[labels.kind].by_heads or step not in (1, ranks - 1) or ranks < 3:
        return ""
    if step == ranks - 1 and (call.rank.rank - sender) % ranks == 1:
        return ""  # it sends to the next rank, as on any ring
    to = (sender + step) % ranks
    after = f"(model.rank {'+' if step == 1 else '-'} 1) % model.RANKS"
    each = f"On a ring each rank sends to the same one, here {after}, in every step, and not to another"
    return f"the send that goes the wrong way? {each}: await model.pass_to({to}, ...) on rank {sender}"


def not_replaced(rank: Asked, layer: int) -> str:
    """Return that keys have come round a ring in some steps of a layer, and not in the last one that this rank has run,
    where more are to come; or an empty text."""
    blocks = [one.kind for one in rank.log if one.layer == layer].count(ATTEND.kind)
    came = [(labels.kind, labels.layer) for _, labels in rank.come_in()].count(("KeysValues", layer))
    if not 0 < came < blocks < rank.mesh.ranks:
        return ""
    has = f"attend({layer}, ...) has run {blocks} times on this rank, and keys have come {came} time{'s' * (came != 1)}"
    return f"{has}, so a step before the last one is without a send and a receive"


def too_few_received(rank: Asked, sender: int, layer: int) -> str:
    """Return, as the end of a sentence, that a rank has received less in the backward of a layer, before what it is
    about to do, than one message with keys and one with a gradient for each block but the last; or an empty text."""
    begun = next((at for at, one in enumerate(rank.log) if (one.kind, one.layer) == (BACKWARD_REST.kind, layer)), None)
    kinds = {
        kind
        for kind in ("KeysValues", "KeysValuesGrad")
        if sender in rank.ranks and rank.rank in rank.ranks[sender].receivers(kind, layer).values()
    }
    if begun is None or len(kinds) < 2:
        return ""
    own = [one.kind for one in rank.log[begun:]]
    blocks, came = own.count(BACKWARD_ATTEND.kind), own.count(RECEIVE.kind)
    if came >= 2 * blocks - 1:
        return ""
    has = f"this rank has received {came} message{'s' * (came != 1)} after {blocks} blocks"
    return f". It sends both in each step, and {has}: a receive of what has come here is left out in a step before"
