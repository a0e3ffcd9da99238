"""Messages that nobody has received, since they have gone to a rank that has no use for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ...record.collectives import ALLGATHER
from ...record.kinds import KINDS
from ...record.labels import Labels
from ...record.shards import NONE
from ...record.training import FORWARD
from ..in_flight import InFlight, RankLinks
from ..past.asked import Asked
from .circle import Mailboxes, tensor_in_words


def to_wrong_rank(links: Mapping[int, RankLinks], mailboxes: Mapping[int, Mailboxes]) -> str:
    """Return what to do about the first message that has gone to a rank without its layer, or to one of another
    pipeline, whose micro-batches are others; an empty text where no message has."""
    ranks: dict[int, Asked] = {rank: one.rank for rank, one in links.items()}
    lying = [one for one in _lying(mailboxes) if one[1] in ranks and one[0] in ranks]
    for sender, receiver, labels in lying:
        if said := _has_no_such_layer(ranks, sender, receiver, labels):
            return said
    waits = {one.rank.rank: set(_senders(one)) for one in links.values()}
    for sender, receiver, labels in lying:
        if said := _of_other_pipeline(ranks, waits, sender, receiver, labels):
            return said
    return next(filter(None, (_has_sent_astray(one) for _, one in sorted(ranks.items()))), "")


def _has_sent_astray(sender: Asked) -> str:
    """Return where an activation belongs that a rank has sent to one which has not loaded its layer, and which has
    received it, where a copy of that layer is known to be for this rank; or an empty text."""
    for layer in sorted(one + 1 for one in sender.layers_run()):
        for batch, receiver in sorted(sender.receivers("Activation", layer).items()):
            right = sender.elsewhere(layer, frozenset({batch})) if layer < sender.layers else None
            has = receiver not in sender.ranks or sender.ranks[receiver].has_loaded(layer)
            if right is not None and not has and not sender.has_loaded(layer):
                sent = f"rank {sender.rank} has sent the Activation of layer {layer}, micro-batch {batch}, to rank"
                belongs = f"which has not loaded layer {layer}; rank {right} has: await model.pass_to({right}, ...)"
                return f"{sent} {receiver}, {belongs} on rank {sender.rank}"
    return ""


def _lying(mailboxes: Mapping[int, Mailboxes]) -> Iterator[tuple[int, int, Labels]]:
    """Yield the sender, the receiver and the tensor of messages between stages that nobody has received: of each pair
    of ranks the first."""
    for receiver, by_sender in sorted(mailboxes.items()):
        for sender, mailbox in sorted(by_sender.items()):
            labels = mailbox[0].labels if mailbox else None
            if labels is not None and KINDS[labels.kind].by_batch and labels.of == 1 == labels.total:
                yield sender, receiver, labels


def _senders(links: RankLinks) -> Iterator[int]:
    """Yield the ranks from which a rank waits for a message."""
    for call in links.open.values():
        if isinstance(call, InFlight) and call.awaited and call.group is None and call.peer is not None:
            yield call.peer


def _has_no_such_layer(ranks: Mapping[int, Asked], sender: int, receiver: int, labels: Labels) -> str:
    """Return where a message belongs that has gone to a rank which has not loaded its layer, where one other rank than
    the sender has, or an empty text."""
    if not 0 <= labels.layer < labels.layers or ranks[receiver].has_loaded(labels.layer):
        return ""
    owners = [rank for rank, one in sorted(ranks.items()) if one.has_loaded(labels.layer) and rank != sender]
    if len(owners) != 1 or not ranks[sender].has_loaded(labels.layer):
        return ""  # of a layer that its sender has not, others say who waits for it
    [right] = owners
    sent = f"rank {sender} has sent {tensor_in_words(labels)} to rank {receiver}, which has not loaded layer"
    return f"{sent} {labels.layer}; rank {right} has: await model.pass_to({right}, ...) on rank {sender}"


def _of_other_pipeline(
    ranks: Mapping[int, Asked], waits: Mapping[int, set[int]], sender: int, receiver: int, labels: Labels
) -> str:
    """Return where a message belongs that has gone to a rank with other micro-batches, while a rank that has carried
    these through a layer, and has loaded this one as well, waits for its sender; or an empty text."""
    there = ranks[receiver]
    if not there.has_loaded(labels.layer) or labels.batches & there.trained_on():
        return ""
    for right, one in sorted(ranks.items()):
        if sender in waits[right] and one.has_loaded(labels.layer) and labels.batches <= one.trained_on():
            sent = f"rank {sender} has sent {tensor_in_words(labels)} to rank {receiver}"
            other = f"which is of another pipeline and has other micro-batches. Rank {right} has these"
            return f"{sent}, {other}, and waits for rank {sender}: await model.pass_to({right}, ...) on rank {sender}"
    near = ranks[sender].elsewhere(labels.layer)
    if near is not None and near != receiver and sender in waits.get(near, ()):
        sent = f"rank {sender} has sent {tensor_in_words(labels)} to rank {receiver}. Rank {near}, which has layer"
        return f"{sent} {labels.layer}, too, waits for it: await model.pass_to({near}, ...) on rank {sender}"
    return ""


def past_its_stage(
    links: Mapping[int, RankLinks], mailboxes: Mapping[int, Mailboxes], waits: Sequence[InFlight]
) -> str:
    """Return where the outputs of a layer belong that lie unread, where just as many ranks wait for a message in the
    turn of the next layer, which no rank has run, each as far from a sender as the others; or an empty text."""
    ranks = [one.rank for one in links.values()]
    lying = defaultdict[int, dict[int, int]](dict)
    for sender, receiver, labels in _lying(mailboxes):
        if labels.kind == "Activation" and not any(one.has_run(FORWARD.kind, labels.layer) for one in ranks):
            lying[labels.layer][sender] = receiver
    for layer, sent in sorted(lying.items()):
        all_ran = len(NONE.union(*[one.has_run(FORWARD.kind, layer - 1) for one in ranks])) == ranks[0].batches
        at = {call.rank.rank: (call, last_gathered(call)) for call in waits}
        here = {rank: call for rank, (call, last) in at.items() if all_ran and last in (layer - 1, layer)}
        steps = {there - sender for sender, there in zip(sorted(sent), sorted(here), strict=False)}
        if len(sent) == len(here) and len(steps) == 1 and not {*sent, *sent.values()} & {*here}:
            (sender, receiver), right, step = min(sent.items()), min(here), steps.pop()
            went = f"rank {sender} has sent the input of layer {layer} to rank {receiver}, and rank {right}, which has "
            went += f"gathered up to layer {at[right][1]}, waits for rank {here[right].peer}. Is rank {right} the next "
            to, of = ("+-"[number < 0] for number in (step, -step))
            far = f"stage of rank {sender}? Then send to model.rank {to} {abs(step)}, receive from model.rank {of} "
            return f"{went}{far}{abs(step)}, and gradients go the other way round"
    return ""


def past_its_turn(links: Mapping[int, RankLinks], mailboxes: Mapping[int, Mailboxes], waits: Sequence[InFlight]) -> str:
    """Return where the input of a layer belongs that lies unread at a rank that is in a collective of a later layer,
    where a rank waits for a message of anyone in the turn of that very layer; or an empty text."""
    beyond = {
        rank
        for rank, one in links.items()
        for call in one.open.values()
        if isinstance(call, InFlight) and call.awaited and call.group is not None
    }
    for sender, receiver, labels in _lying(mailboxes):
        calls = [call for call in waits if call.peer is None and last_gathered(call) == labels.layer]
        at = [call.layer for call in links[receiver].open.values() if receiver in beyond and call.group is not None]
        if labels.kind == "Activation" and calls and any(type(one) is int and one > labels.layer for one in at):
            right = min((call.rank.rank for call in calls), key=lambda rank: abs(rank - sender))
            sent = f"rank {sender} has sent {tensor_in_words(labels)} to rank {receiver}, which is past layer"
            waiting = f"and rank {right} waits for a message in the turn of that layer"
            return f"{sent} {labels.layer}, {waiting}: await model.pass_to({right}, ...) on rank {sender}"
    return ""


def last_gathered(call: InFlight) -> int | None:
    """Return the layer of the last weight for which a rank has called an all-gather, before another call."""
    own = (
        one for one in reversed(call.rank.log[: call.index]) if one.kind == ALLGATHER.kind and one.labels is not None
    )
    return next((one.layer for one in own if one.labels.kind == "Weight"), None)
