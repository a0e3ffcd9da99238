"""Tensors that go round a ring of ranks, one hop a step: who has passed on less, and what nobody has received."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...basics.errors import numbered
from ..in_flight import InFlight, RankLinks
from ..past import Asked


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
    fewer, more = (
        [rank for rank, times in sent.items() if times == many and rank is not None] for many in (least, most)
    )
    have = f"{numbered('rank', fewer)} {'has' if len(fewer) == 1 else 'have'} sent fewer messages to the next rank than"
    step = "each rank sends as often as it receives, so the pass_to stands below no `if` of a rank"
    return f"{have} {numbered('rank', more)} ({least} and {most}): in a ring {step}"


def not_received(rank: Asked, kind: str, layer: int) -> str:
    """Return from which rank such a tensor of a layer has been sent to this one, which has not received it; or an empty
    text."""
    came = {peer for peer, labels in rank.come_in() if (labels.kind, labels.layer) == (kind, layer)}
    for sender, one in sorted(rank.ranks.items()):
        if rank.rank in one.receivers(kind, layer).values() and sender not in came:
            return f"rank {sender} has sent this rank {kind} of layer {layer}: await model.receive(src={sender})"
    return ""
