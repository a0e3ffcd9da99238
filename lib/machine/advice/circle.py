"""What to do where ranks wait for each other's messages: who waits for what, and which work should have come first."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import cast

from ...basics.errors import numbered, show_call, show_set
from ...record.events import MARKS
from ...record.labels import Labels
from ...record.shards import NONE
from ...record.table import OPERATIONS, RECEIVE, SEND
from ...record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS
from ..in_flight import InFlight, Message, RankLinks
from ..past.asked import Asked
from ..rank_state import Done
from .ready import work_left
from .ring import on_a_ring, sends_less, wanted_on_a_ring
from .stages import counted, left_to_do

Mailboxes = Mapping[int, deque[Message]]
"""The messages to a rank that it has not received, as sends, by sender."""
MOST_UNSENT = 2  # ranks of which is said what they have not sent: the others are most often the same
MOST_WAITS = 3  # of a circle, how many of its ranks an error describes
STEPS = {"Activation": (FORWARD.kind, 1), "ActivationGrad": (BACKWARD.kind, -1)}
"""What is sent from stage to stage: the verb that reads it, and how many layers on that is read which this gives."""
NOT_SENT = (BACKWARD_WEIGHT.kind, "project", "attend", "backward_rest", "backward_attend")
"""Operations of a layer whose result is for this rank alone."""
MADE_BY = {"Activation": (FORWARD.kind,), "ActivationGrad": (BACKWARD.kind, BACKWARD_INPUT.kind)}


def missing_send(
    receives: Sequence[InFlight],
    links: Mapping[int, RankLinks],
    mailboxes: Mapping[int, Mailboxes],
    astray: Callable[[Sequence[InFlight]], str],
    one_more: Callable[[InFlight], str],
) -> str:
    """Return what to do where all who wait do so for a message: who waits for whom and for what, and what would have to
    come first. ``astray``: what to do about messages that have gone to the wrong rank; ``one_more``: how often the
    sender that a receive waits for has sent already."""
    waits = {call.rank.rank: call for call in reversed(receives)}
    chain: list[InFlight] = []
    at: InFlight | None = receives[0]
    while at is not None and at not in chain:
        chain.append(at)
        at = None if at.peer is None else waits.get(at.peer)
    if at is None:
        if wrong := astray(receives):
            return wrong
        if wrong := sent_elsewhere(links):
            return wrong
        last = chain[-1]
        whom = "any message" if last.peer is None else f"rank {last.peer}"
        waits_for = f"rank {last.rank.rank} waits for {whom}, and no rank sends to it any more"
        counts = [
            f"rank {sender} has sent rank {rank} {times} message{'s' * (times != 1)}"
            for rank in sorted(waits)[:MOST_WAITS]
            for sender, its in sorted(links.items())
            if (times := its.sent.get(rank, 0))
        ]
        counts = counts or [f"no rank has sent rank {last.rank.rank} a message"]
        hosts = [rank for rank, one in links.items() if one.rank.is_host and rank not in waits]
        if hosts and not last.rank.is_host and not any(links[host].sent.get(last.rank.rank) for host in hosts):
            ended = (
                f"rank {last.rank.rank} waits for a message, and the host, rank {hosts[0]}, has finished, and has sent"
            )
            return (
                f"{ended} it no weight: await model.pass_to(model.devices[0], model.weights[layer]) after each update"
            )
        if last.peer is None and (left := work_left({rank: one.rank for rank, one in links.items()})):
            return left
        first = f"{waits_for}: compare who sends to whom, and how often"
        if any(call.rank.is_host for call in receives) and not all(call.rank.is_host for call in receives):
            first = (
                "device and host wait for each other: the host has a new weight once it has got the gradients of all "
            )
            first += "micro-batches of that layer, so let the device send these first, and receive weights after that"
        return "; ".join([first, *counts[:MOST_WAITS]])
    circle = Circle(chain[chain.index(at) :], links, mailboxes)
    first = "one of them has to send first"
    if way_out := circle.way_out():
        return f"{circle.in_words()}. {way_out[0].upper()}{way_out[1:]}"
    if wrong := astray(receives):
        return wrong
    for call in circle.ring:
        for sender, mailbox in sorted(mailboxes.get(call.rank.rank, {}).items()):
            if mailbox and sender != call.peer and mailbox[0].labels is not None:
                to, what = call.rank.rank, tensor_in_words(mailbox[0].labels)
                lies = f"rank {to} waits for rank {call.peer}, and what rank {sender} sent lies there unread, {what}"
                return f"{lies}: receive it from there, or let each rank of a ring send to the next one"
    if fewer := sends_less(circle.ring, links):
        return f"{circle.in_words()}. {fewer[0].upper()}{fewer[1:]}"
    if of_slices := on_a_ring(circle.ring, links):
        return f"{circle.in_words()}. {of_slices}"
    if not any(call.rank.layers_run() for call in circle.ring):
        first += (
            ": an input comes from the rank that runs the layer before, and a gradient is received after the forwards"
        )
    left = "".join(f"; {todo}" for call in circle.ring[:MOST_WAITS] if (todo := left_to_do(call.rank)))
    return f"{circle.in_words()}: {first}{next(filter(None, map(one_more, circle.ring)), '')}{left}"


def sent_elsewhere(links: Mapping[int, RankLinks]) -> str:
    """Return which rank has sent what one other rank reads to a third one that does not have that layer; an empty text
    where none has."""
    owners = Circle([], links, {}).owners
    for rank, its in sorted(links.items()):
        for kind in STEPS:
            for layer, own in sorted(owners.items()):
                for batch, to in sorted(its.rank.receivers(kind, layer).items()):
                    if len(own) == 1 and to not in own and rank not in own:
                        [right] = own
                        what = (
                            f"rank {rank} has sent the {kind} of layer {layer}, {numbered('micro-batch', {batch})}, to"
                        )
                        return (
                            f"{what} rank {to}, and layer {layer} is on rank {right}: await model.pass_to({right}, ...)"
                        )
    return ""


class Circle:
    """Ranks of which each waits for a message of the next one, and the last for the first."""

    def __init__(
        self, ring: Sequence[InFlight], links: Mapping[int, RankLinks], mailboxes: Mapping[int, Mailboxes]
    ) -> None:
        self.ring, self.links, self.mailboxes = ring, links, mailboxes
        self.waits_for = {call.rank.rank: call.peer for call in ring}

    @cached_property
    def owners(self) -> Mapping[int, set[int]]:
        """Of each layer the ranks that run it or, where none has begun to, have loaded it."""
        run, loaded = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
        for rank, links in self.links.items():
            for layer in links.rank.layers_run():
                run[layer].add(rank)
            for layer in links.rank.layers_loaded():
                loaded[layer].add(rank)
        return defaultdict(set, {**loaded, **run})

    def kinds(self, call: InFlight) -> list[str]:
        """Return what a rank may wait for: activations, their gradients, or both where the one it waits for makes
        both."""
        return [kind for kind in STEPS if self.layers(call, kind)]

    def layers(self, call: InFlight, kind: str, all_of_them: bool = False) -> list[int]:
        """Return the layers whose input, or output's gradient, this rank reads and the one it waits for makes, where
        that has not all come, or ``all_of_them``."""
        (_, step), rank, peer = STEPS[kind], call.rank, call.peer
        every = [
            layer
            for layer, owners in sorted(self.owners.items())
            if rank.rank in owners and peer in self.owners.get(layer - step, ())
        ]
        left = [layer for layer in every if len(self.come(call, kind, layer)) < rank.batches]
        return every if all_of_them else left

    def come(self, call: InFlight, kind: str, layer: int) -> frozenset[int]:
        """Return of which micro-batches such a tensor has come to this rank from the one it waits for."""
        links = None if call.peer is None else self.links.get(call.peer)
        sent = {} if links is None else links.rank.receivers(kind, layer)
        return frozenset(batch for batch, to in sent.items() if to == call.rank.rank)

    def in_words(self) -> str:
        """Return who waits for what."""
        said = [self._wait(call) for call in self.ring[:MOST_WAITS]]
        if len(self.ring) > MOST_WAITS:
            said.append(f"and so on, round to rank {self.ring[0].rank.rank} again")
        return f"they wait in a circle: {'; '.join(said)}"

    def _wait(self, call: InFlight) -> str:
        what, come = "a message", list[str]()
        if len(kinds := self.kinds(call)) == 1:
            [kind] = kinds
            layers = self.layers(call, kind)
            what = f"an {kind} of layer {' or '.join(map(str, layers))}"
            known = [(layer, own) for layer in layers if (own := self.come(call, kind, layer))]
            come = [f"layer {layer}, {numbered('micro-batch', own)}" for layer, own in known]
        so_far = f" (so far it got {'; '.join(come)})" if come else ""
        return f"rank {call.rank.rank} waits for {what} from rank {call.peer}{so_far}"

    def way_out(self) -> str:
        """Return what should have come first, or an empty text."""
        unsent = ", ".join(unsent_of(self.ring, self.owners))
        return (
            self._one_too_many()
            or self._misdirected()
            or unsent
            or self._never_sent()
            or self._waits_for_another()
            or self._unread()
            or self._no_loss()
            or self._no_first_backward()
            or self._lost()
            or self.no_input()
        )

    def _one_too_many(self) -> str:
        """Return which rank has got all that it can use of the one it waits for."""
        for call in self.ring:
            known = [(kind, layer) for kind in STEPS for layer in self.layers(call, kind, all_of_them=True)]
            if known and not self.kinds(call):
                got = " and ".join(f"the {kind} of layer {layer}" for kind, layer in known)
                rank = f"rank {call.rank.rank} has got all that it reads of rank {call.peer}, {got}"
                return f"{rank}, so this receive is one too many: send first, or receive from another rank"
        return ""

    def _lying(self, rank: int) -> Iterator[tuple[int, Labels]]:
        """Yield the messages that have come to a rank and that it has not received, each with its sender: of each
        sender the first."""
        for sender, mailbox in sorted(self.mailboxes.get(rank, {}).items()):
            if mailbox and mailbox[0].labels is not None and mailbox[0].labels.kind in STEPS:
                yield sender, mailbox[0].labels

    def _misdirected(self) -> str:
        """Return which message has been sent to a rank that does not run its layer, while a rank that does waits."""
        for rank, mailboxes in sorted(self.mailboxes.items()):
            for sender, labels in self._lying(rank) if mailboxes else ():
                owners = self.owners[labels.layer]
                waiting = [one for one in sorted(owners) if self.waits_for.get(one) == sender]
                if rank not in owners and waiting:
                    return send_to(
                        sender, tensor_in_words(labels), rank, f"does not run layer {labels.layer}", waiting[0]
                    )
        return ""

    def _never_sent(self) -> str:
        """Return what a rank has computed and not sent, where another one waits for it."""
        for call in self.ring:
            peer = None if call.peer is None else self.links.get(call.peer)
            for kind, (_, step) in STEPS.items() if peer is not None else ():
                for layer in self.layers(call, kind):
                    if peer.rank.has_loaded(layer):  # type: ignore[union-attr]
                        continue  # it goes on by itself
                    made = NONE.union(*[peer.rank.has_run(verb, layer - step) for verb in MADE_BY[kind]])  # type: ignore[union-attr]
                    if left := made - self.come(call, kind, layer):
                        gave = f"{show_call(MADE_BY[kind][0], layer - step)}, micro-batch {show_set(left)}"
                        return _not_sent_on(cast(int, call.peer), gave, layer, call.rank.rank)
        return ""

    def _waits_for_another(self) -> str:
        """Return which activation a rank has received last and not used, where it waits for another one of its
        sender, and no rank has lost an earlier one."""
        for call in self.ring if not any(map(self._has_lost, self.ring)) else ():
            last = call.rank.past_record(call.index)
            labels = getattr(last, "labels", None)
            if labels is None or last.kind != RECEIVE.kind or last.peer != call.peer or labels.kind != "Activation":
                continue
            left = labels.batches - call.rank.has_run(FORWARD.kind, labels.layer)
            if left and call.rank.has_loaded(labels.layer) and call.rank.stores_an_input_more():
                if twice := call.rank.runs_too(0, labels.batches):
                    return twice
                has = f"rank {call.rank.rank} has received {tensor_in_words(labels)}, from rank {call.peer}"
                waits = f"and has not run layer {labels.layer} on it, but waits for another one from there"
                first = f"let it do what comes first, {numbered('micro-batch', left)}"
                return f"{has}, {waits}: {first}, and count the micro-batches of layer {labels.layer} from that"
        return ""

    def _has_lost(self, call: InFlight) -> bool:
        """Return whether a rank has received an activation from the one it waits for, gone on with later ones, and not
        used it."""
        for layer in self.layers(call, "Activation", all_of_them=True):
            come, run = self.come(call, "Activation", layer), call.rank.has_run(FORWARD.kind, layer)
            if come - run and min(come - run) < max(come & run, default=-1):
                return True
        return False

    def _unread(self) -> str:
        """Return which messages ranks should have received first, as others wait for what these give."""
        said, asked = list[str](), list[str]()
        for call in self.ring:
            rank, peer = call.rank.rank, call.peer
            for sender, labels in self._lying(peer) if peer is not None else ():
                verb, step = STEPS[labels.kind]
                if labels.kind in self.kinds(call) and rank in self.owners[labels.layer + step]:
                    does = f"{show_call(verb, labels.layer)}, {numbered('micro-batch', labels.batches)}"
                    lies = f"what rank {sender} has sent for it lies there unread"
                    said.append(f"let rank {peer} do {does}, first, which gives what rank {rank} waits for: {lies}")
                    if labels.kind == "ActivationGrad" and sender != self.waits_for.get(cast(int, peer)):
                        asks = f"if that is what rank {peer} waits for, it asks the wrong rank: "
                        asked.append(f". Or {asks}await model.receive(src={sender})")
        order = f"he order of the work is the mistake: {'; or '.join(said[:MOST_UNSENT])}{''.join(asked[:1])}"
        unused = self._unused_gradient()
        return (f"{unused} If not, t{order}" if unused else f"T{order}") if said else ""

    def _unused_gradient(self) -> str:
        """Return which gradient a rank has received last and not used, where it waits for another message of its
        sender, as a question: it may be there under another key."""
        for call in self.ring:
            last = call.rank.past_record(call.index)
            labels = getattr(last, "labels", None)
            if labels is None or last.kind != RECEIVE.kind or last.peer != call.peer or labels.kind != "ActivationGrad":
                continue
            back = call.rank.has_run(BACKWARD.kind, labels.layer) | call.rank.has_run(BACKWARD_INPUT.kind, labels.layer)
            if labels.batches - back:
                came = f"the {tensor_in_words(labels)} that rank {call.rank.rank} has received last"
                return f"Is {came} what it waits for, stored under another key?"
        return ""

    def _no_loss(self) -> str:
        """Return which rank could begin the backward pass, where it waits for a gradient instead."""
        for call in self.ring:
            rank = call.rank
            last = rank.layers - 1
            ready = rank.has_run(FORWARD.kind, last) - rank.has_run(LOSS.kind, rank.layers)
            if ready and self.kinds(call) == ["ActivationGrad"]:
                ran = f"rank {rank.rank} has run the last layer, {last}, for {numbered('micro-batch', ready)}"
                first = f"{ran}: model.loss makes the first gradient there, and backward goes from layer {last} down"
                return first + counted(rank) + of_a_list(rank)
        return ""

    def _no_first_backward(self) -> str:
        """Return which rank has the gradient of the loss and has not begun its backward pass with it, where it waits
        for another one."""
        for call in self.ring:
            rank = call.rank
            last = rank.layers - 1
            ready = rank.has_run(LOSS.kind, rank.layers) - rank.has_run(BACKWARD.kind, last)
            if ready and self.kinds(call) == ["ActivationGrad"]:
                has = f"rank {rank.rank} has the gradient of the loss of {numbered('micro-batch', ready)}"
                begins = f"backward(layer {last}) takes it, and comes before the backward of every other layer"
                order = f"{has}, and has not used it: {begins}, on each rank from its last layer down to its first"
                return order + counted(rank) + of_a_list(rank)
        return ""

    def _lost(self) -> str:
        """Return which activation a rank has received and not used, while others wait for what comes of it."""
        for call in self.ring:
            rank = call.rank
            for layer in self.layers(call, "Activation", all_of_them=True):
                left = self.come(call, "Activation", layer) - rank.has_run(FORWARD.kind, layer)
                if left:
                    which = f"the Activation of layer {layer}, {numbered('micro-batch', left)}"
                    has = f"rank {rank.rank} has received {which}, and not run the layer on it"
                    if len(self.links) == 2 and rank.on_a_ring():
                        return (
                            f"{has}. With 2 ranks all messages come from the same one, activations and gradients, and "
                            "each receive takes the next that it has sent: call it in the turn that uses what it "
                            "brings, and not ahead"
                        )
                    key = ", stored under its layer and its micro-batch" * (len(left) > 1)
                    return f"{has}: receive each message once, and use what it brings{key}"
        return ""

    def no_input(self) -> str:
        """Return which rank could run the first layer, where it waits for a message instead. Where all ranks have
        loaded pieces of that, and none has run it, it is not known which."""
        all_ranks = [links.rank for links in self.links.values()]
        if len(self.owners[0]) == len(all_ranks) > 1 and not any(one.has_copy(0) for one in all_ranks):
            if {call.rank.rank for call in self.ring} != {*self.links} or any(one.layers_run() for one in all_ranks):
                return ""
            return "the stage with layer 0 receives nothing: its input is no message, but model.get_activation(...)"
        for rank in [call.rank for call in self.ring]:
            left = frozenset(range(rank.batches)) - rank.has_run(FORWARD.kind, 0) - rank.has_run("project", 0)
            if self.owners[0] == {*self.links} and len(self.links) > 1:
                break  # which of them begins nobody knows
            if rank.rank in self.owners[0] and left:
                ran = f"rank {rank.rank} has layer 0, and has not run it for {numbered('micro-batch', left)}"
                if len(left) == rank.batches:
                    first = ". Does the order of its work begin with another layer?" * (len(rank.layers_loaded()) > 1)
                    return f"{ran}: its input is no message, but model.get_activation([micro_batch]){first}"
                if any("Activation" in self.kinds(other) for other in self.ring):
                    return f"{ran}: let more forwards come before it waits"
        return ""


def tensor_in_words(labels: Labels) -> str:
    """Return what a tensor is: its kind, its layer and its micro-batches."""
    batches = f", micro-batch {show_set(labels.batches)}" if labels.batches else ""
    return f"{labels.kind} of layer {labels.layer}{batches}"


def send_to(sender: int, what: str, receiver: int, but: str, waiting: int) -> str:
    """Return what to do about a message that has gone to the wrong rank. ``but``: what that one does, or does not;
    ``waiting``: the rank that waits for the sender."""
    sent = f"rank {sender} has sent {what} to rank {receiver}, which {but}, and rank {waiting} waits for rank {sender}"
    return f"{sent}: await model.pass_to({waiting}, ...) on rank {sender}"


def _not_sent_on(rank: int, gave: str, layer: int, reader: int | None) -> str:
    """Return that a rank has not sent on what an operation gave. ``reader``: the rank that runs the ``layer``
    which reads it, where that is one."""
    where = "" if reader is None else f", and layer {layer} is on rank {reader}"
    return f"rank {rank} has not sent on what {gave}, gave{where}"


def unsent_of(waits: Sequence[InFlight], owners: Mapping[int, set[int]] | None = None) -> list[str]:
    """Return a sentence for each of these ranks that has computed something last, and not sent it. ``owners``: of each
    layer the ranks that run it."""
    first = {call.rank.rank: call for call in reversed(waits)}  # of many waits of a rank one: its log is read for it
    said = []
    for _, call in sorted(first.items()):
        if (one := _unsent_by(call)) is not None:
            after = _after_it(one)
            others = sorted(owners[after]) if owners is not None else []
            said.append(_not_sent_on(call.rank.rank, in_words(one), after, others[0] if len(others) == 1 else None))
    return said[:MOST_UNSENT]


def _after_it(record: Done | InFlight) -> int:
    """Return the layer that reads what a forward or a backward gives."""
    assert record.layer is not None
    return record.layer + (-1 if OPERATIONS[record.kind].backward else 1)


def _unsent_by(call: InFlight) -> Done | InFlight | None:
    """Return the last record of a rank before a call if it is that of a forward or a backward whose result another rank
    may wait for, and nothing was sent after it; else None."""
    rank = call.rank
    for at in range(call.index - 1, -1, -1):
        record = rank.log[at]
        if record.kind in (SEND.kind, LOSS.kind):
            return None
        row = OPERATIONS.get(record.kind)
        if row is None or not row.trains or record.kind in NOT_SENT:
            continue
        after = _after_it(record)
        return record if 0 <= after < rank.layers and not rank.has_run(FORWARD.kind, after) else None
    return None


def in_words(record: Done | InFlight) -> str:
    """Return a record of a rank's log as text."""
    if not isinstance(record, InFlight):
        batches = f", micro-batch {show_set(record.batches)}" if record.batches else ""
        return f"{show_call(record.kind, record.layer)}{batches}"
    if record.group is not None:
        return show_call(*record.what)
    if record.sends:
        return f"sending {carried(record)} to rank {record.peer}"
    return f"receiving {carried(record)}" + ("" if record.peer is None else f" from rank {record.peer}")


def carried(call: InFlight) -> str:
    """Return what a message carries, as text."""
    labels = call.labels
    if labels is None:
        return "a plain value"
    return tensor_in_words(labels)


def after(call: InFlight) -> str:
    """Return what a rank has done last before a call, as the end of a sentence; nothing where it has done nothing."""
    last = call.rank.past_record(call.index) or next(iter(_marks_before(call)), None)
    return "" if last is None else f", after {in_words(last)}"


def _marks_before(call: InFlight) -> Iterator[Done]:
    """Yield what a rank has loaded and taken before a call, the last first."""
    return (one for one in reversed(call.rank.log[: call.index]) if one.kind in MARKS)


def wanted(call: InFlight, links: Mapping[int, RankLinks]) -> str:
    """Return what a rank wants that waits to receive, as far as that is known, or an empty text."""
    if call.sends or call.group is not None:
        return ""
    if of_ring := wanted_on_a_ring(call.rank, call.index):
        return of_ring
    circle = Circle([call], links, {})
    wants = {
        kind: [one for one in circle.layers(call, kind) if call.rank.rank not in circle.owners[one - STEPS[kind][1]]]
        for kind in circle.kinds(call)
    }
    if not 0 < sum(map(len, wants.values())) <= MOST_WAITS:
        return ""
    return " or ".join(
        f"an {kind} of layer {' or '.join(map(str, layers))}" for kind, layers in wants.items() if layers
    )


def of_a_list(rank: Asked) -> str:
    """Return, as a sentence to be added, that a rank has run no backward yet, or an empty text."""
    first = f". It is the first backward of rank {rank.rank}: of a list of backwards, entry 0 comes then"
    return first * (not rank.backwards())
