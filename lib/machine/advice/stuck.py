"""The report of a deadlock: what each rank waits for, and what may be done about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ...basics.errors import Deadlock, numbered, show_axis, show_call
from ...record.collectives import ALLGATHER
from ...record.kinds import KINDS
from ...record.labels import DEALT, IN_A_V
from ...record.table import sums
from ...record.training import BACKWARD, BACKWARD_INPUT, FORWARD, LOSS
from ..in_flight import InFlight, Message, RankLinks
from ..mesh import Mesh
from ..past.sums_made import TAKES
from ..rank_state import RankState
from .astray import last_gathered, past_its_stage, past_its_turn, to_wrong_rank
from .circle import Circle, Mailboxes, after, carried, missing_send, send_to, unsent_of, wanted
from .ring import one_way_round
from .rounds import SEVERAL_KINDS, against_rounds, rounds_of_its_pipeline
from .sought import sought_before
from .stages import BOTH_ENDS, loss_elsewhere, no_input_taken, not_all_loaded, not_at_both_ends
from .tasks import OWN, TASK, held_up, one_for_all, own_waits, place_of, sums_from_below

MOST_ROWS, ALIKE = 32, 4
"""Rows of a report of a deadlock, at most, and how many of them may differ by nothing but numbers: of more there is the
first, and the ranks of the others."""
MOST_ALIKE = 8  # rows on messages that differ by nothing but numbers: of more there is the first
NOBODY = "something that no rank of this machine will do"
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Stuck:
    """A machine in which nobody can go on: its links, and the messages that no receive has taken, by receiver."""

    def __init__(self, mesh: Mesh, links: dict[int, RankLinks], mailboxes: Mapping[int, Mailboxes]) -> None:
        self.mesh, self.links, self.mailboxes = mesh, links, mailboxes

    def report(self, lines: Mapping[int, str], ended: frozenset[int]) -> Deadlock:
        """Return the report. ``lines``: where each rank stands; ``ended``: the ranks that have finished."""
        waiting = {
            rank: [call for call in links.open.values() if call.awaited and call.end is None]
            for rank, links in sorted(self.links.items())
        }
        stands: dict[str, list[int]] = {}  # ranks of which the same is to be said
        for rank, calls in waiting.items():
            line, kinds = lines.get(rank, ""), [call.kind for call in calls]
            all_of_it = [f"{self._said(call)}{after(call)}{_at(place_of(call, line, kinds))}" for call in calls[:3]]
            others = "finished" if rank in ended else f"{NOBODY}{_at(line)}"
            own = own_waits(line)
            all_of_it += [f"{NOBODY}{_at(one)}" for one in own] if calls or len(own) > 1 else [others]
            for what in all_of_it:
                if rank not in stands.setdefault(what, []):
                    stands[what].append(rank)
        alike: dict[str, list[str]] = {}  # what is to be said, by what it has in common but for its numbers
        for what in stands:
            said, bracket, place = what.partition(" [")
            alike.setdefault(_NUMBER.sub("0", said) + bracket + place, []).append(what)
        rows = list[str]()
        for several in alike.values():
            shown = several if len(several) <= ALIKE else several[:1]
            rows += [_row(what, stands[what]) for what in shown]
            if more := {rank for what in several[len(shown) :] for rank in stands[what]}:
                rows.append(f"{len(more)} more, {numbered('rank', more)}, wait in the same way, each for its own")
        rows += self._unread()
        if len(rows) > MOST_ROWS:
            rows = [*rows[:MOST_ROWS], f"and {len(rows) - MOST_ROWS} more like these"]
        waits = [call for calls in waiting.values() for call in calls]
        senders = {call.rank.rank: call.peer for call in waits if call.peer is not None and not call.sends}
        order = against_rounds({rank: links.rank for rank, links in self.links.items()}, senders)
        any_rank = next(iter(self.links.values())).rank
        by_puzzle = {
            DEALT: _gathers_whole(waits) or ("" if self._from_another(waits) and not _for_a_gradient(waits) else order),
            IN_A_V: any_rank.not_in_a_v() or not_all_loaded(any_rank),
            BOTH_ENDS: not_at_both_ends(any_rank),
            SEVERAL_KINDS: rounds_of_its_pipeline(any_rank),
        }
        fix, fix_for = self._way_out(waits, ended, lines), {name: said for name, said in by_puzzle.items() if said}
        problem = "deadlock: no rank can ever go on\n    " + "\n    ".join(rows)
        deadlock = Deadlock(problem, fix=fix, fix_for=fix_for, line="")
        deadlock.lines = lines
        deadlock.wants = {call.rank.rank: wants for call in waits if (wants := wanted(call, self.links))}
        return deadlock

    def _said(self, call: InFlight) -> str:
        """Return what a rank waits for, and what it wants there."""
        wants = wanted(call, self.links)
        return str(call).replace(", since", f" ({wants}), since", 1) if wants else str(call)

    def _unread(self) -> list[str]:
        """Return a row for each pair of ranks with messages that no receive has taken; of many that are alike but for
        their numbers the first."""
        alike: dict[str, list[str]] = {}
        for row in self._all_unread():
            alike.setdefault(_NUMBER.sub("0", row), []).append(row)
        shown = list[str]()
        for several in alike.values():
            shown += several if len(several) <= MOST_ALIKE else [several[0], f"{len(several) - 1} more such rows"]
        return shown

    def _all_unread(self) -> list[str]:
        return [
            f"a message from rank {sender} to rank {rank} is not received yet: {carried(mailbox[0])}"
            if len(mailbox) == 1
            else f"{len(mailbox)} messages from rank {sender} to rank {rank} are not received yet, "
            f"first {carried(mailbox[0])}"
            for rank, mailboxes in sorted(self.mailboxes.items())
            for sender, mailbox in sorted(mailboxes.items())
            if mailbox
        ]

    def _way_out(self, waits: Sequence[InFlight], ended: frozenset[int], lines: Mapping[int, str]) -> str:
        """Return what may be done about a deadlock in which ranks wait for these calls, and others have ended.
        ``lines``: where each rank stands."""
        if shared := one_for_all(waits, lines):
            return shared
        for call in waits:
            if gone := ended.intersection(call.missing()):
                idle = [rank for rank in ended if rank in self.links and not self.links[rank].rank.layers_loaded()]
                if set(idle) & gone and any(links.rank.layers_loaded() for links in self.links.values()):
                    nothing = (
                        f"{numbered('rank', idle)} {'has' if len(idle) == 1 else 'have'} loaded no layer, and so have "
                    )
                    nothing += "done nothing: is their list of layers empty? "
                    stage = "With several pipelines it begins with the stage, and not with model.rank"
                    return f"{nothing}{stage if self.mesh.axes else 'Each rank has a share of model.LAYERS'}"
                have = "has" if len(gone) == 1 else "have"
                unused = all(rank in self.links and not self.links[rank].rank.layers_run() for rank in gone)
                if unused and (due := call.rank.empty_share()):
                    none = f"{numbered('rank', gone)} {have} run no micro-batch, and {have} finished"
                    return f"{none}: is a share of the batch empty? {due[:1].upper()}{due[1:]}"
                brings = f", which brings model.fake_grad({call.layer}, [])" * (sums(call.kind) and not call.layers)
                return (
                    f"{numbered('rank', gone)} {have} finished without {call.kind}: every rank of the group calls it, "
                    "also one that has nothing to add" + brings
                )
        if self.mesh.axes and (stages := self._too_many_stages(ended)):
            return stages
        receives = [call for call in waits if not call.sends and call.group is None]
        if len(receives) < len(waits) and (astray := self._not_for_it(receives, of_its_stage=True)):
            return astray
        if known := next(filter(None, [sought_before(call.rank, call.index, call.peer) for call in receives]), ""):
            return known
        if wrong := to_wrong_rank(self.links, self.mailboxes):
            return wrong
        if elsewhere := self._from_another(receives):
            return elsewhere
        if len(receives) < len(waits) and (astray := self._astray(receives)):
            return astray
        if quiet := ended.intersection(call.peer for call in receives if call.peer is not None):
            have = "has" if len(quiet) == 1 else "have"
            fix = f"{numbered('rank', quiet)} {have} finished without the pass_to that others wait for"
            return fix + next(filter(None, [self._one_more(call) for call in receives if call.peer in quiet]), "")
        by_rank = {call.rank.rank: call for call in reversed(waits)}
        if receives and any(call.group for call in waits):
            return (
                self._of_other_copy(receives)
                or past_its_stage(self.links, self.mailboxes, receives)
                or past_its_turn(self.links, self.mailboxes, receives)
                or self._in_tasks(receives, waits, lines)
                or _both_ways(receives, by_rank)
            )
        if held := held_up(waits, lines) if waits else "":
            return held
        if any(call.missing() for call in waits):
            return "let every rank of the group call the same collectives in the same order"
        if len(receives) == len(waits) > 1 and not any(links.sent for links in self.links.values()):
            first = unsent_of(receives) or [Circle(receives, self.links, self.mailboxes).no_input()]
            first = ["all wait to receive, and nobody has sent: some rank has to send before it receives", *first]
            if self.mesh.hosts:
                first.append("a device sends gradients, model.pass_to(model.host, grad), and its host updated weights")
            return "; ".join(filter(None, first))
        if receives:
            return missing_send(receives, self.links, self.mailboxes, self._astray, self._one_more)
        return "" if waits else "a Future, an Event or a Queue of your own has to be set by a rank that still runs"

    def _in_tasks(self, receives: Sequence[InFlight], waits: Sequence[InFlight], lines: Mapping[int, str]) -> str:
        """Return what to do where ranks run several tasks: their receives wait in a circle, or one task for another; or
        an empty text."""
        if not any(TASK in line or OWN in line for line in lines.values()):
            return ""
        by_rank = {call.rank.rank: call for call in reversed(receives)}
        chain, at = list[InFlight](), by_rank.get(receives[0].rank.rank)
        while at is not None and at not in chain:
            chain.append(at)
            at = None if at.peer is None else by_rank.get(at.peer)
        if at is not None:
            return missing_send(receives, self.links, self.mailboxes, self._astray, self._one_more)
        return sums_from_below(waits) or held_up(waits, lines)

    def _too_many_stages(self, ended: frozenset[int]) -> str:
        """Return which ranks have loaded no layer and ended, where all others have loaded one or more and no two of
        these in a row are of one pipeline; an empty text where every rank has a layer."""
        idle = [rank for rank in ended if rank in self.links and not self.links[rank].rank.layers_loaded()]
        if not idle or len(idle) == len(self.links):
            return ""
        have = f"{numbered('rank', idle)} {'has' if len(idle) == 1 else 'have'} loaded no layer, and ended"
        return f"{have}: are there more stages than layers? The stages of a pipeline are model.RANKS // replicas"

    def _of_other_copy(self, receives: Sequence[InFlight]) -> str:
        """Return what to do about messages to a rank that takes these from another one, while a rank that has the same
        layer waits for that one, which sends it nothing: stages of several pipelines are mixed up; or an empty text."""
        messages = [*self._between_stages()]
        for receiver, sender, message, _ in messages:
            if misled := self._past_its_neighbor(receives, sender, receiver, message):
                return misled
        for receiver, sender, message, layer in messages:
            calls = [
                call
                for call in receives
                if call.peer not in (None, sender)
                and call.peer in self.links
                and call.rank.rank != receiver
                and call.rank.has_loaded(layer)
                and self.links[receiver].rank.has_loaded(layer)
                and self.links[call.peer].sent.get(receiver)
                and not self.links[call.peer].sent.get(call.rank.rank)
            ]
            if calls:
                call = min(calls, key=lambda one: abs(one.rank.rank - sender))
                right, peer = call.rank.rank, call.peer
                sent = f"rank {sender} has sent {carried(message)} to rank {receiver}, to which rank {peer} sends as "
                sent += (
                    f"well, and rank {right}, with the same layer, waits for rank {peer}. Each pipeline has its own "
                )
                sent += f"neighbors: await model.pass_to({right}, ...) on rank {sender}, and await "
                return f"{sent}model.receive(src={sender}) on rank {right}"
        return ""

    def _between_stages(self) -> Iterator[tuple[int, int, Message, int]]:
        """Yield the first message of each pair of ranks that nobody has received and that carries an activation, or the
        gradient of one: its receiver, its sender, itself, and its layer."""
        for receiver, mailboxes in sorted(self.mailboxes.items()):
            for sender, mailbox in sorted(mailboxes.items()):
                labels = mailbox[0].labels if mailbox else None
                if labels is not None and KINDS[labels.kind].by_batch and receiver in self.links:
                    yield receiver, sender, mailbox[0], labels.layer

    def _past_its_neighbor(self, receives: Sequence[InFlight], sender: int, receiver: int, sent: Message) -> str:
        """Return what to do about a message to a rank that has had the same from another one, while a rank waits for
        its sender, which has sent that one nothing; or an empty text."""
        labels = sent.labels
        assert labels is not None
        came = self.links[receiver].rank.come_in()
        own = [peer for peer, one in came if (one.kind, one.layer) == (labels.kind, labels.layer) and peer != sender]
        waiting = [call.rank for call in receives if call.peer == sender and call.rank.rank != receiver]
        near = [
            one.rank for one in waiting if one.has_loaded(labels.layer) and not self.links[sender].sent.get(one.rank)
        ]
        if not own or len(near) != 1:
            return ""
        fix = send_to(sender, carried(sent), receiver, f"has its own from rank {own[0]}", near[0])
        step = near[0] - sender
        return f"{fix}, which is model.rank {'+' if step > 0 else '-'} 1" if abs(step) == 1 else fix

    def _one_more(self, call: InFlight) -> str:
        """Return how often the sender that a receive waits for has sent already, if it has."""
        rank, peer = call.rank.rank, call.peer
        sent = self.links[peer].sent.get(rank, 0) if peer in self.links else 0
        many = "once" if sent == 1 else f"{sent} times"
        return f"; rank {peer} has sent to rank {rank} {many}, which waits for one more" if sent else ""

    def _from_another(self, waits: Sequence[InFlight]) -> str:
        """Return what to do about the first receive that asks the wrong rank; or an empty text."""
        receives = [call for call in waits if not call.sends and call.group is None]
        return next(filter(None, map(self._sent_by_another, receives)), "")

    def _sent_by_another(self, call: InFlight) -> str:
        """Return what to do about a receive from a rank that has sent nothing, while another one's messages have never
        been received; an empty text where that is not so."""
        rank, peer = call.rank.rank, call.peer
        if peer is None or peer not in self.links or self.links[peer].sent.get(rank):
            return ""
        for sender, mailbox in sorted(self.mailboxes.get(rank, {}).items()):
            if mailbox and len(mailbox) == self.links[sender].sent[rank]:
                right = mailbox[0].labels is None or self.links[rank].rank.has_loaded(mailbox[0].labels.layer)
                for other, links in sorted(self.links.items()):
                    if not right and sender in links.receives and not self.links[sender].sent.get(other):
                        have = f"rank {other} waits for rank {sender}, which has sent to rank {rank}"
                        return f"{have}: await model.pass_to({other}, ...) on rank {sender}"
                have = f"rank {sender} has sent to rank {rank}, and rank {peer} has not"
                call_it = f"{have}: await model.receive(src={sender}) on rank {rank}"
                round_it = one_way_round(call, sender, self.mesh.ranks, mailbox[0].labels)
                return f"{call_it}{round_it and '. Or is it '}{round_it}"
        return ""

    def _is_what_it_needs(self, call: InFlight, sent: Message) -> bool:
        """Return whether a message is a gradient for a layer that the receiving rank has run, and that the rank from
        which it wants to receive cannot have."""
        labels, peer = sent.labels, self.links[call.peer].rank if call.peer is not None else None
        if labels is None or peer is None or labels.kind != "ActivationGrad":
            return False
        after = peer.has_run(FORWARD.kind, labels.layer + 1)
        return labels.batches <= call.rank.has_run(FORWARD.kind, labels.layer) and not labels.batches <= after

    def _astray(self, receives: Sequence[InFlight]) -> str:
        """Return what to do about a message that no receive has taken: its receiver needs it and waits for another
        rank, or it has gone to a rank of the sender's own stage, or it is the gradient of a layer that its receiver has
        not run; an empty text where there is none. ``receives``: those for which ranks wait."""
        for wait in receives:
            to, peer = wait.rank.rank, wait.peer
            for sender, mailbox in sorted(self.mailboxes.get(to, {}).items()):
                if mailbox and peer in self.links and self._is_what_it_needs(wait, mailbox[0]):
                    have = f"rank {sender} has sent {carried(mailbox[0])} to rank {to}, which waits for rank {peer}"
                    return f"{have}: await model.receive(src={sender}) on rank {to}"
        return self._not_for_it(receives)

    def _not_for_it(self, receives: Sequence[InFlight], of_its_stage: bool = False) -> str:
        """Return what to do about a message that no receive has taken, and that its receiver cannot use: it has run the
        layer itself that made this, or is to get the gradient of a layer that it has not run; an empty text where there
        is none. ``of_its_stage``: the first of these alone."""
        left = [(sender, receiver) for receiver, mailboxes in self.mailboxes.items() for sender in mailboxes]
        for sender, receiver in sorted(left):
            mailbox = self.mailboxes[receiver][sender]
            labels = mailbox[0].labels if mailbox else None
            if labels is None or not KINDS[labels.kind].by_batch or receiver not in self.links:
                continue
            reads, rank = labels.layer, self.links[receiver].rank
            made = reads + 1 if labels.kind == "ActivationGrad" else reads - 1
            too, useless = rank.has_run(FORWARD.kind, made), labels.kind == "ActivationGrad"
            if rank.has_run(FORWARD.kind, reads) or not (too or (useless and not of_its_stage)):
                continue
            runs = f"runs layer {made} too" if too else f"does not run layer {reads}"
            waits = next((call.rank.rank for call in receives if call.peer == sender), None)
            if waits is not None:
                return send_to(sender, carried(mailbox[0]), receiver, runs, waits)
            sent = f"rank {sender} has sent {carried(mailbox[0])} to rank {receiver}, which {runs}"
            if too and (stage := self._stage_of(made)):
                return f"{sent}: {stage}"
            right = f"send it to the rank that runs layer {reads} on {numbered('micro-batch', labels.batches)}"
            return f"{sent}: {right}, and let that one receive from rank {sender}"
        return ""

    def _stage_of(self, layer: int) -> str:
        """Return how the ranks of a stage send to those of the next one, where their numbers follow one another;
        an empty text where they have not."""
        ranks = [one for one, links in sorted(self.links.items()) if links.rank.has_run(FORWARD.kind, layer)]
        many = len(ranks)
        if many < 2 or ranks[-1] - ranks[0] != many - 1 or self.mesh.ranks % many:
            return ""
        stages = self.mesh.ranks // many
        number = f"for neighbors to be on different stages, let model.rank % {stages} be the stage, and "
        number += f"model.rank // {stages} the pipeline"
        steps = f"send to model.rank + {many}, receive from model.rank - {many}, and gradients the other way round"
        return f"{numbered('rank', ranks)} are all on that stage: {number}; or {steps}"


def _gathers_whole(waits: Sequence[InFlight]) -> str:
    """Return that each rank has whole layers of its own, where ranks wait in the gather of a weight that the missing
    ones have not loaded; or an empty text."""
    for call in waits:
        missing = [call.rank.ranks[rank] for rank in call.missing() if rank in call.rank.ranks]
        gathers = call.kind == ALLGATHER.kind and call.layer is not None and missing
        if gathers and not any(one.has_loaded(call.layer) for one in missing):  # type: ignore[arg-type]
            own = f"here each rank loads all of its own layers, model.load_weights({call.layer}), and no other rank"
            return f"{own} has these: leave out {show_call(*call.what)}, as no weight goes from rank to rank"
    return ""


def _for_a_gradient(waits: Sequence[InFlight]) -> bool:
    """Return whether all ranks wait for messages, each for one of the next rank after it has run a layer: for
    gradients, where stages go round the ranks."""
    ranks = waits[0].rank.mesh.ranks if waits else 0
    next_one = [call.peer == (call.rank.rank + 1) % ranks and bool(call.rank.layers_run()) for call in waits]
    return ranks > 2 and all(next_one)


def _at(line: str) -> str:
    """Return a line at which a rank waits, as the end of a row."""
    return f" [{line.replace(OWN, '')}]" if line else ""


def _row(what: str, ranks: Sequence[int]) -> str:
    """Return what some ranks wait for, as a row of the report of a deadlock."""
    one, who = len(ranks) == 1, numbered("rank", ranks)
    if what == "finished":
        return f"{who} {'has' if one else 'have'} finished"
    return f"{who} {'waits' if one else 'wait'} for {what}"


def _both_ways(receives: Sequence[InFlight], waits: Mapping[int, InFlight]) -> str:
    """Return what to do where some ranks wait for a message, and others in a collective."""
    for call in receives:
        other = None if call.peer is None else waits.get(call.peer)
        if other is not None and call.rank.rank in other.missing():
            if other.op[0] is None and (axes := other.rank.axes_of_layers()):
                over = " and ".join(f"axis={show_axis(axis)}" for axis in axes)
                have = (
                    f"without an axis all ranks take part in {show_call(*other.what)}, and the ranks along {over} have"
                )
                return f"{have} that layer: await model.{other.kind}(..., {other.layer}, axis={show_axis(axes[0])})"
            rank, verb = call.rank.rank, show_call(*other.what)
            waits_for = f"rank {rank} waits for a message of rank {call.peer}, which waits in {verb} for rank {rank}: "
            if unsent := unsent_of([other]):
                ends = (
                    f". If the layers of rank {call.peer} end there, it sends that before this collective. If they go "
                )
                ends += f"on, rank {rank} waits too soon: its own layers begin where those of rank {call.peer} end, "
                ends += "and a stage has model.LAYERS // stages layers"
                return waits_for + unsent[0] + (_left_for_another(other) or ends)
            last = call.rank.layers - 1
            if call.rank.has_run(FORWARD.kind, last) - call.rank.has_run(LOSS.kind, last + 1):
                makes = f"rank {rank} has run the last layer, {last}: model.loss makes the first gradient there"
                makes = loss_elsewhere(call.rank) or makes
                none = [one.rank for one in call.rank.ranks.values() if not one.layers_run() and not one.is_host]
                too = f"; {numbered('rank', none)} {'has' if len(none) == 1 else 'have'} run no layer: are all layers "
                return waits_for + makes + (too + "divided among all stages, with none twice?") * bool(none)
            of_loss = call.rank.has_run(LOSS.kind, last + 1) - call.rank.has_run(BACKWARD.kind, last)
            if of_loss and of_loss == call.rank.trained_on():
                made = f"model.loss has made the gradient of the output of layer {last} on rank {rank}, which needs "
                return f"{waits_for}{made}no message: receive one only for a layer whose next one is on another rank"
            if backward := _in_forward_order(call.rank, other.layer):
                return waits_for + backward
            return waits_for.removesuffix(": ") + _too_soon(call, other, len(receives))
    pairs = ((call, other) for call in receives for other in waits.values() if call.rank.rank in other.missing())
    awaited = next(filter(None, (_input_awaited(*pair) for pair in pairs)), "")
    return awaited or f"{_round_about(waits)}: let all ranks do both in the same order"


def _input_awaited(call: InFlight, other: InFlight) -> str:
    """Return that a rank waits for a message in the turn of layer 0, whose input no rank sends; or an empty text."""
    took = [rank for rank, one in call.rank.ranks.items() if any(record.kind == TAKES for record in one.log)]
    first = call.rank.rank in (took or [0])
    if not first or other.layer != 1 or last_gathered(call) != 0 or not _run_by_nobody(call.rank, 1):
        return ""
    waits = f"Rank {call.rank.rank} waits for a message in the turn of layer 0, and no rank sends the input of "
    return f"{waits}layer 0: model.get_activation gives it. Receive only where layer > 0"


def _left_for_another(call: InFlight) -> str:
    """Return, as the end of a sentence, which layer a rank has not run that waits in the turn of a later one, after the
    last one that it has run forward; or an empty text."""
    layer = max(call.rank.layers_run(), default=-1) + 1
    if not 0 < layer < (call.layer or 0) or any(call.rank.has_run(BACKWARD.kind, one) for one in range(layer)):
        return ""
    left = f". It has gone past the turn of layer {layer} and has not run it, so that is on another rank: let it send "
    return f"{left}in the turn of each layer whose next one is on another rank, right after that forward"


def _round_about(waits: Mapping[int, InFlight]) -> str:
    """Return how ranks wait for each other, where it is some in a collective and others for a message."""
    for first in sorted(waits):
        chain = [first]
        while (call := waits.get(chain[-1])) is not None and len(chain) <= len(waits):
            after = min(call.missing(), default=None) if call.group else call.peer
            if after == first and len({waits[one].group is None for one in chain}) > 1 and len(chain) <= ALIKE:
                return ", ".join(_waits_for(waits[one], one == first) for one in chain)
            if after is None or after in chain:
                break
            chain.append(after)
    return "some wait in a collective, others for a message"


def _waits_for(call: InFlight, first: bool) -> str:
    """Return for whom a rank waits, as a part of a sentence that goes from rank to rank."""
    who = f"rank {call.rank.rank} waits" if first else "which waits"
    if call.group is None:
        return f"{who} for a message of rank {call.peer}"
    return f"{who} in {show_call(*call.what)} for rank {min(call.missing())}"


def _too_soon(call: InFlight, other: InFlight, receivers: int) -> str:
    """Return, as the end of a sentence, what a rank that waits for a message has to do first, for the collective in
    which the ``other`` one waits for it. ``receivers``: how many ranks wait for messages."""
    rank, layers = call.rank, other.layers or () if other.layer is None else (other.layer,)
    last = rank.past_record(call.index)
    if isinstance(last, Message) and not last.sends and last.peer == call.peer and last.labels is not None:
        has = f"Rank {rank.rank} has received {carried(last)} from rank {call.peer}, and has not used it"
        return f". {has}: receive each message once"
    fix, joins = show_call(*other.what), f"every rank calls {other.kind} for every layer"
    if known := _sent_its_own(rank, layers[0] if layers else None) or _first_gradient_here(rank):
        return f". {known}"
    if awaited := _input_awaited(call, other):
        return f". {awaited}"
    if few := _few_begin(rank) if (last_gathered(call) or 0) > 0 else "":
        return f". {few}"
    if skipped := _run_by_nobody(rank, layers[0] if layers else None):
        return f". {skipped}"
    if layers and not rank.has_loaded(layers[0]) and other.rank.has_loaded(layers[0]):
        load = f"model.load_weights({layers[0]}, model.rank, model.RANKS)"
        return f", and has not loaded layer {layers[0]}: each rank loads its piece of every layer, {load}, and {joins}"
    if (other.kind, other.layer) == (ALLGATHER.kind, 0) and 2 * receivers < rank.mesh.ranks and not rank.layers_run():
        first = "a rank whose own first layer is 0 receives nothing there"
        return f". Is layer 0 the first of rank {rank.rank}? Then {first}: its input is model.get_activation(...)"
    none_taken = no_input_taken(rank) if layers and layers[0] else ""
    none_taken = none_taken[:1].upper() + none_taken[1:]
    if own := _turn_of_another(call, other):
        return f". {own}"
    fix = f". {none_taken}Rank {rank.rank} has not called {fix}: {joins}, also for those that it "
    fix += "does not run, so below no `if` of a rank. A message is received after the collectives that its sender "
    fix += "joins first: in a loop over all layers in the turn "
    fix += f"{'of the last layer' if rank.layers_run() else 'of the first layer'} of this rank"
    return fix


def _turn_of_another(call: InFlight, other: InFlight) -> str:
    """Return that a rank, which takes part in the gathers of layers that it does not run, waits for a message in the
    turn of a layer whose input, or gradient, the ``other`` one has received; or an empty text."""
    rank, layer = call.rank, other.layer
    came = other.rank.past_record(other.index)
    if layer is None or other.kind != ALLGATHER.kind or not isinstance(came, Message) or came.sends:
        return ""
    labels, before = came.labels, last_gathered(call)
    if labels is None or labels.layer != layer or before is None or rank.has_run(FORWARD.kind, before):
        return ""
    forward = labels.kind == "Activation"
    if before != (layer - 1 if forward else layer + 1):
        return ""
    what, verb = ("input", FORWARD.kind) if forward else ("gradient", BACKWARD.kind)
    has = f"Rank {other.rank.rank} has received the {what} of layer {layer}, so that is its turn, and rank {rank.rank} "
    has += "waits for a message in it, too: receive only in the turns of its own layers, below the `if` of its "
    return has + verb


def _few_begin(rank: RankState) -> str:
    """Return that fewer ranks have run layer 0 than there are micro-batches, where several ranks share each, so that
    the table of stages is not right, and how it may be; or an empty text."""
    ranks, batches = rank.mesh.ranks, rank.batches
    began = [number for number, one in sorted(rank.ranks.items()) if one.has_run(FORWARD.kind, 0)]
    if rank.layers_run() or rank.mesh.axes or ranks <= batches or ranks % batches or not 0 < len(began) < batches:
        return ""
    only = (
        f"Only {numbered('rank', began)} {'has' if len(began) == 1 else 'have'} run layer 0, and {batches} ranks should"
    )
    stages = ranks // batches
    table = (
        f"with model.rank % {stages} as the stage and model.rank // {stages} as the micro-batch, or the other way round"
    )
    return f"{only}, one for each micro-batch: {table}, each rank has one place. Which ranks run which layer here?"


def _first_gradient_here(rank: RankState) -> str:
    """Return that the gradient with which a rank begins its backward pass was made by its own loss, where it waits for
    one and all forwards are done; or an empty text."""
    last = rank.layers - 1
    begun = any(rank.has_run(verb, layer) for verb in (BACKWARD.kind, BACKWARD_INPUT.kind) for layer in range(last + 1))
    forwards = len(rank.ranks) < rank.mesh.everyone or rank.run_by_none(last, frozenset(range(rank.batches)))
    if begun or forwards or not rank.has_run(LOSS.kind, last + 1):
        return ""
    made = f"model.loss has made the gradient of the output of layer {last} on rank {rank.rank}"
    return f"{made}, and no rank sends it: receive none for layer {last}, whose backward comes first here"


def _sent_its_own(rank: RankState, layer: int | None) -> str:
    """Return that a rank has sent away the input of the layer before one for which others meet, and waits in the turn
    of that layer for a message itself, while no rank has run it; or an empty text."""
    to = {} if layer is None else rank.receivers("Activation", layer - 1)
    if layer is None or not to or any(one.has_run(FORWARD.kind, layer - 1) for one in rank.ranks.values()):
        return ""
    other = next(iter(to.values()))
    sent = f"Rank {rank.rank} has sent the input of layer {layer - 1} to rank {other}, and waits for a message before "
    sent += f"it goes on to layer {layer}: is layer {layer - 1} on rank {rank.rank}? Then nothing is sent or received "
    sent += f"for it. Or on rank {other}? Then that one receives it, and rank {rank.rank} goes on"
    return f"{sent}: a stage has model.LAYERS // stages, so l // (model.LAYERS // stages) is the stage of layer l"


def _run_by_nobody(rank: RankState, layer: int | None) -> str:
    """Return that no rank has run a layer, although all have met for the next one; or an empty text."""
    if layer is None or layer < 1 or any(one.has_run(FORWARD.kind, layer - 1) for one in rank.ranks.values()):
        return ""
    if len(rank.ranks) < rank.mesh.everyone or rank.mesh.hosts:
        return ""
    first = any(one.layer == 0 and one.kind == ALLGATHER.kind for one in rank.log)
    if not first and not any(one.has_run(FORWARD.kind, 0) for one in rank.ranks.values()):
        return "No rank has run forward(0, ...): does the loop over the layers begin with layer 1, and not with 0?"
    none = f"No rank has run forward({layer - 1}, ...), and ranks are in the turn of layer {layer}"
    return f"{none}: is the condition under which a rank runs a layer ever true?"


def _in_forward_order(rank: RankState, layer: int | None) -> str:
    """Return what to do where a rank has come back to a layer for its backward, and no rank has run the backward of the
    next layer; an empty text where that is not so."""
    if layer is None or layer + 1 >= rank.layers or not rank.has_run(FORWARD.kind, layer):
        return ""
    if any(one.has_run(BACKWARD.kind, layer + 1) for one in rank.ranks.values()):
        return ""
    return "the backward of the layers goes from the last one down to the first, reversed(range(model.LAYERS))"
