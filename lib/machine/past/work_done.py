"""What the ranks have run, loaded and sent, as errors ask it: of the logs of all ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from itertools import combinations, pairwise
from typing import Any

from ...basics.errors import number_ranges, numbered, show_axis
from ...record.attention import ATTEND, BACKWARD_ATTEND, PROJECT, REST
from ...record.causal import NOTHING, Slices, in_both, missing, show_slices
from ...record.kinds import KINDS
from ...record.labels import AROUND, STAGES_IN_A_V, Labels, experts_of
from ...record.shards import NONE
from ...record.table import RECEIVE, SEND
from ...record.training import BACKWARD, BACKWARD_INPUT, FORWARD
from ..cost import Cost
from ..mesh import Mesh
from ..uneven import better_shares, fair_shares, shares_in_words
from .own import Past, Step, Taken

ENDS_BEFORE = (
    "one stage ends before the next begins, range(first, first + model.LAYERS // stages), with first = stage * "
    "(model.LAYERS // stages) and the last layer one below that end"
)
"""What to do about a layer that is the last of one stage and the first of the next."""
ENDS_ONLY = (
    "Only what the last layer of a stage gives is sent, and only the input of its first one is received: between them, "
    "store what forward gives, and read it there"
)
"""What to do about messages between layers of one stage."""
ENDS = "does a list or a loop of its work end too soon"
HALF = "half"
"""The axis of a mesh along which a pipeline that is filled from both ends has its two halves."""
MOST_COUNTED = 8  # ranks of which errors say how many micro-batches each has


def dealt(ranks: int, batches: int) -> str:
    """Return which of these ranks has which micro-batch, where all of them train."""
    if ranks == batches:
        return "rank r has micro-batch r: model.get_activation([model.rank])"
    if ranks % batches == 0:
        share = f"{ranks // batches} ranks share a micro-batch: model.rank // {ranks // batches}"
        return f"{share}, which is model.rank // (model.RANKS // model.BATCHES)"
    each, more = divmod(batches, ranks)
    if more and ranks < batches:
        some = f"{numbered_ranks(more)} {each + 1}, and {numbered_ranks(ranks - more)} {each}"
        first = f"with a first of its own from 0 to {ranks - 1}, those from {more} on have less"
        each_one = f"give each of the {batches} micro-batches to one rank"
        return f"{each_one}, range(first, model.BATCHES, model.RANKS): {first} ({some})"
    return "deal them out to the ranks, range(model.rank, model.BATCHES, model.RANKS)"


def dealt_along(axis: str) -> str:
    """Return which micro-batches a rank has where the ranks along an axis have the same layers."""
    place, size = (f"model.axis_{what}({show_axis(axis)})" for what in ("index", "size"))
    if axis == HALF:
        own = f"from {place} * share on, with share = model.BATCHES // {size}"
        other = f"the upper stage those that begin in the other half, from (1 - {place}) * share on"
        return f"the lower stage of a rank has the micro-batches of its half, {own}; {other}"
    same = f"ranks along axis={show_axis(axis)} have the same layers, and share the batch"
    return f"{same}: share number {place} of {size}, each of model.BATCHES // {size} micro-batches"


def numbered_ranks(number: int) -> str:
    """Return how many ranks have something.

    >>> numbered_ranks(1), numbered_ranks(3)
    ('1 rank has', '3 ranks have')
    """
    return "1 rank has" if number == 1 else f"{number} ranks have"


def counted_turns(number: int) -> str:
    """Return so many turns of a loop in words.

    >>> counted_turns(1), counted_turns(2)
    ('1 turn', '2 turns')
    """
    return f"{number} turn{'s' * (number != 1)}"


def _follow_one_another(ranks: Sequence[int]) -> bool:
    return len(ranks) > 1 and [*ranks] == [*range(ranks[0], ranks[-1] + 1)]


class WorkDone:
    """A rank, as far as errors ask what it and the others have done. An answer about other ranks is right once these
    have come as far as they do, so errors ask when a run has ended (see ``PuzzleError.settle``)."""

    __slots__ = ()
    rank: int
    layers: int
    batches: int
    experts: int
    is_host: bool
    mesh: Mesh
    cost: Cost
    ranks: MutableMapping[int, Any]  # the ranks of the machine that are here, all of the last kind of these
    taken: dict[tuple[str, int, bool], Taken]
    slices: dict[tuple[str, int, int], Slices]
    pieces: dict[int, tuple[Slices, ...]]
    log: list[Any]

    def _past(self) -> Past:
        """Return what errors ask of this rank's own log, as it is now."""
        raise NotImplementedError

    def run_by_none(self, layer: int, batches: frozenset[int]) -> frozenset[int]:
        """Return those of these micro-batches that no rank has carried through a layer; none where not all ranks are
        here."""
        if len(self.ranks) < self.mesh.everyone:
            return NONE
        return batches.difference(*[one.has_run(FORWARD.kind, layer) for one in self.ranks.values()])

    def has_fewest(self, none: frozenset[int]) -> str:
        """Return how many micro-batches each rank has, where all ranks train the whole model, and some have less than
        others, so that they could run those that run on ``none``; or an empty text."""
        counts = {rank: len(one.trained_on()) for rank, one in sorted(self.ranks.items())}
        whole = all(len(one.layers_loaded()) == self.layers for one in self.ranks.values())
        if not whole or self.mesh.axes or len(counts) > MOST_COUNTED or min(counts.values()) == max(counts.values()):
            return ""
        have = ", ".join(f"rank {rank} has {count}" for rank, count in counts.items())
        if shifted := self._shifted():
            return f"{have}; {shifted}"
        slow, total = self._slow(), sum(counts.values()) + len(none)
        fewest = min(counts, key=lambda rank: (counts[rank] + 1) * slow.get(rank, 1))
        to = f"give it to rank {fewest}" if len(none) == 1 else "give each of them to one that has less"
        if slow and (len(none) > 1 or better_shares({**counts, fewest: counts[fewest] + 1}, slow)):
            to = f"share out all {total}, {shares_in_words(fair_shares(len(counts), total, slow), slow)}"
        return f"{have}: {to}"

    def _slow(self) -> dict[int, Any]:
        """Return the ranks that are slower than the others, and how many times as long an operation takes each."""
        return dict(self.cost.uneven.slow) if self.cost.uneven is not None else {}

    def _shifted(self) -> str:
        """Return where the ranks begin and where they should, where each has every so many micro-batches, and all begin
        too late; or an empty text."""
        own = {rank: one.trained_on() for rank, one in sorted(self.ranks.items())}
        ranks, firsts = len(own), {rank: min(batches, default=0) for rank, batches in own.items()}
        least = min(firsts.values())
        late = {*firsts.values()} == {*range(least, least + ranks)} and least > 0
        if not late or any(batches != {*range(firsts[rank], self.batches, ranks)} for rank, batches in own.items()):
            return ""
        steps = "range(first, model.BATCHES, model.RANKS)"
        begin = (
            f"they begin with {numbered('micro-batch', firsts.values())}: let them begin with 0-{ranks - 1}, {steps}"
        )
        slow, more = [rank for rank in self._slow() if rank in own], self.batches % ranks
        if not slow or not more:
            return begin
        less = f"those that begin with {number_ranges(range(more, ranks))[0]} have one less"
        return f"{begin}; {less}, so let {numbered('rank', slow)}, which is slow, be one of these"

    def empty_share(self) -> str:
        """Return which share of the batch this rank should have, which has none, where every rank has all layers, and
        there are enough micro-batches for all; or an empty text."""
        ranks = self.mesh.ranks
        whole = all(len(one.layers_loaded()) == self.layers for one in self.ranks.values())
        if not whole or self.mesh.axes or len(self.ranks) < self.mesh.everyone or self.batches < ranks:
            return ""
        shares = shares_in_words(fair_shares(ranks, self.batches, self._slow()), self._slow())
        return f"there are {self.batches} for {ranks} ranks, so give each rank some: {shares}"

    def slices_of_none(self, layer: int, batches: frozenset[int], slices: Slices) -> Slices:
        """Return those of these slices of a sequence that no rank has projected; none as long as a rank has not
        projected any, since it may still do so."""
        devices = [one for rank, one in self.ranks.items() if rank < self.mesh.ranks]
        for batch in batches:
            projected = [one.slices.get((PROJECT.kind, layer, batch), NOTHING) for one in devices]
            if len(devices) < self.mesh.ranks or not all(some for some, _ in projected):
                return NOTHING
            for own in projected:
                slices = missing(slices, own)
        return slices

    def home_of(self, layer: int, batches: frozenset[int], slices: Slices) -> str:
        """Return that a gradient of keys and values goes one hop further, to the other rank that has projected just
        these slices; or an empty text."""
        for rank, one in sorted(self.ranks.items()):
            if one is self or not one.is_home_of(layer, batches, slices):
                continue
            step = (rank - self.rank) % self.mesh.ranks
            to = {1: "(model.rank + 1) % model.RANKS", self.mesh.ranks - 1: "(model.rank - 1) % model.RANKS"}
            sent = f"model.pass_to({to.get(step, rank)}, kv_grad)"
            return (
                f": this one belongs to rank {rank}, so one hop more comes after the last step, {sent}, and one "
                "receive, of this rank's own"
            )
        return ""

    def own_not_received(self, layer: int, batches: frozenset[int], slices: Slices, otherwise: str) -> str:
        """Return that another rank has sent this one the gradient of its own keys and values, of these slices, and it
        has received others only; or the other text."""
        own = [one for _, one in self.come_in() if (one.kind, one.layer) == ("KeysValuesGrad", layer)]
        if any(one.piece() == slices for one in own):
            return otherwise
        for rank, other in sorted(self.ranks.items()):
            for sent in other.log:
                of = sent.labels if sent.kind == SEND.kind and sent.peer == self.rank else None
                if of is None or (of.kind, of.layer, of.batches) != ("KeysValuesGrad", layer, batches):
                    continue
                if of.piece() == slices:
                    has = f"rank {rank} has sent the gradient of this rank's own keys and values, which comes last"
                    return f"{has}, and it is not received yet: a receive of a gradient is left out before this"
        return otherwise

    def is_home_of(self, layer: int, batches: frozenset[int], slices: Slices) -> bool:
        """Return whether this rank has projected just these slices."""
        return all(self.slices.get((PROJECT.kind, layer, batch)) == slices for batch in batches)

    def began_with(self, layer: int, batches: frozenset[int], own: Slices) -> str:
        """Return that the backward of attention began with keys of another rank than those of its ``own`` slices, and
        what to do; or an empty text."""
        for at, record in enumerate(self.log):
            if (record.kind, record.layer) == (BACKWARD_ATTEND.kind, layer) and record.batches == batches:
                keys = self.pieces.get(at, (own, own))[1]
                home = [rank for rank, one in self.ranks.items() if one.is_home_of(layer, batches, keys)]
                if keys == own or not home:
                    return ""
                begun = (
                    f"the backward of layer {layer} has begun with the keys and values of rank {home[0]}: begin with"
                )
                return (
                    f"{begun} this rank's own, which model.project gave, and keep these for it under a key of their own"
                )
        return ""

    def share_slices(self, layer: int, batches: frozenset[int]) -> str:
        """Return which ranks have projected the same slices of a sequence, or an empty text where no two have."""
        for batch in sorted(batches):
            which = PROJECT.kind, layer, batch
            for one, other in combinations(sorted(self.ranks), 2):
                own = (self.ranks[rank].slices.get(which, NOTHING) for rank in (one, other))
                if (common := in_both(*own))[0]:
                    problem = (
                        f"ranks {one} and {other} have both projected {show_slices(common)} of layer {layer}: each "
                    )
                    return f"{problem}slice goes to one rank, so cut as many slices as all ranks take together"
        return ""

    def runs_too(self, layer: int, batches: frozenset[int]) -> str:
        """Return which ranks have all carried one of these micro-batches through a layer, and which ranks should; an
        empty text where no micro-batch has gone through it on several ranks. Of a layer with experts, to which tokens
        come from all ranks, the others tell it."""
        if experts_of(layer, self.experts):
            dense = [one for one in range(self.layers) if not experts_of(one, self.experts)]
            return next(filter(None, (self.runs_too(one, batches) for one in dense)), "")
        for batch in sorted(batches):
            ran = [rank for rank, one in sorted(self.ranks.items()) if batch in one.has_run(FORWARD.kind, layer)]
            if len(ran) > 1:
                problem = (
                    f"{numbered('rank', ran)} have run layer {layer} on micro-batch {batch}, and only one of them "
                )
                problem += "should"
                others = [one for one in range(self.layers) if one != layer]
                every = all(batch in self.ranks[rank].has_run(FORWARD.kind, one) for rank in ran for one in others)
                if others and every and 1 < len(ran) <= self.mesh.ranks // self.batches:
                    share = (
                        "they share it: let each of them run layers of its own, and bring model.fake_grad(layer, [])"
                    )
                    return f"{problem}; {share} for the others"
                return f"{problem}; {self._in_a_row(ran) or self.dealt()}"
        return ""

    def dealt(self) -> str:
        """Return which rank has which micro-batch, where all ranks train."""
        if not self.mesh.axes or not 0 < len(self.layers_loaded()) < self.layers:
            return self._in_a_row() or dealt(self.mesh.ranks, self.batches)
        if len(copies := self.axes_of_layers()) == 1:
            return dealt_along(copies[0])
        share = "its share of the batch goes by the place of its pipeline, and not by that of its stage or by its rank"
        share += ": range(replica * share, (replica + 1) * share), with share = model.BATCHES // replicas"
        first: int = sum(one.has_loaded(0) for one in self.ranks.values())
        replicas = f", where {first} ranks have layer 0, and so there are {first} replicas"
        return share + replicas * (first > 1)

    def _in_a_row(self, stage: Sequence[int] = ()) -> str:
        """Return which micro-batch each rank has where several share one, and ranks that follow one another are a
        ``stage``, or may be one, as they have run the same layer; or an empty text."""
        ranks, each = self.mesh.ranks, self.batches
        if self.mesh.axes or each < 2 or ranks == each or ranks % each:
            return ""
        table = "model.rank // model.BATCHES is the stage, and model.rank % model.BATCHES the micro-batch: a stage has "
        table += f"a rank for each micro-batch, {each} here"
        for layer in [] if stage else sorted(self.layers_run()) or range(self.layers):
            ran = [rank for rank, one in sorted(self.ranks.items()) if one.has_run(FORWARD.kind, layer)]
            if _follow_one_another(ran) and len(ran) < ranks:
                have = f"{numbered('rank', ran)} have run layer {layer}, and if ranks that follow one another are one"
                return f"{have} stage, {table}"
        return f"they are one stage: {table}" if _follow_one_another(stage) and len(stage) < ranks else ""

    def has_had_its_share(self, batches: frozenset[int]) -> str:
        """Return what to do about inputs after the last one, where this rank is the first stage of a pipeline and has
        carried its share of the batch through layer 0, up to the last one; or an empty text."""
        done = self.has_run(FORWARD.kind, 0)
        first = sum(one.has_loaded(0) for one in self.ranks.values())
        alone = 0 < len(self.layers_loaded()) < self.layers
        if (
            not alone
            or self.batches - 1 not in done
            or len(done) * first != self.batches
            or min(batches) < self.batches
        ):
            return ""
        share = f"this rank has carried {numbered('micro-batch', done)} through layer 0, which is its share"
        none = [layer for layer in self.layers_loaded() if not self.has_run(FORWARD.kind, layer)]
        if none and first == 1:  # others' micro-batches may come to these layers by another way, as in DualPipe
            none_yet = f"and it has run {numbered('layer', none)} on none of them, and asks for one more"
            turn = "Then the next layer has its turn after as many micro-batches as a round has"
            return f"{share}, {none_yet}: do the forwards of each round go through all of its layers? {turn}"
        return f"{share}, and asks for one more: how many forwards does it do, and is one of its loops too long?"

    def left_out_at_the_end(self, grad: Labels) -> str:
        """Return which backward this rank may have left out, where it is through with its forwards, of which some came
        after its first backward, and then takes a gradient for another backward; or an empty text."""
        done = [record.kind for record in self.log if record.kind in (FORWARD.kind, BACKWARD.kind)]
        forwards, backwards = done.count(FORWARD.kind), done.count(BACKWARD.kind)
        by_turns = BACKWARD.kind in done and FORWARD.kind in done[done.index(BACKWARD.kind) :]
        left = self.has_run(FORWARD.kind, grad.layer) - self.has_run(BACKWARD.kind, grad.layer)
        total = len(self.layers_loaded()) * self.batches
        if not backwards and forwards == total and self.on_a_ring() and grad.layer == max(self.layers_loaded()):
            first = f"this is the first backward of this rank, after all of its {total} forwards, and that of layer "
            first += f"{grad.layer}, {numbered('micro-batch', grad.batches)}, comes first: does the list of its "
            first += "backwards begin too late, as a slice does from a negative number? If so, the program counts more "
            return f"{first}forwards before the first backward than there are: take min(..., {total})"
        if not by_turns or not grad.batches <= left:
            return ""
        comes = (
            f"the gradient that comes now is for backward({grad.layer}, ...) of {numbered('micro-batch', grad.batches)}"
        )
        if forwards < total:
            begins = done.index(BACKWARD.kind)
            each = next((at for at, verb in enumerate(done[begins:]) if verb == FORWARD.kind), backwards)
            turns = done[max(0, begins - each) :]
            by_each = turns == ([FORWARD.kind] * each + [BACKWARD.kind] * each) * (backwards // each)
            if not by_each or (total - forwards) % each or not self.alone_on_its_layers():
                return ""
            so_far = (
                f"this rank has done {forwards} of its {total} forwards, the last ones by turns with backwards. Now a "
            )
            so_far += f"backward comes with no forward before it, and {comes}"
            left_over = counted_turns((total - forwards) // each)
            return f"{so_far}: does the loop with a forward and a backward in each turn end too soon, by {left_over}?"
        so_far = f"this rank has done all of its {forwards} forwards, and {backwards} backwards"
        left_out = f"{so_far}; {comes}: is that one left out after the last forward, or in another place there?"
        number = f" Of its backwards, counted from 0, number {backwards} is next"
        return left_out + number * (forwards == total and self.alone_on_its_layers())

    def alone_on_its_layers(self) -> bool:
        """Return whether no other rank has loaded a layer that this one has, as far as is known."""
        return all(one is self or not one.layers_loaded() & self.layers_loaded() for one in self.ranks.values())

    def has_tasks(self) -> bool:
        """Return whether several coroutines of this rank have called operations, or one waits while another asks."""
        waits = (getattr(one, "awaited", False) is True and one.end is None for one in reversed(self.log))
        return len(self._past().operations) > 1 or any(waits)

    def with_gradients(self, layer: int) -> frozenset[int]:
        """Return the micro-batches for which this rank has computed the gradient of a layer's weight."""
        return frozenset(self._past().gradients.get(layer, NONE))

    def has_run(self, verb: str, layer: int) -> frozenset[int]:
        """Return the micro-batches that this rank has carried through a layer with an operation."""
        return frozenset(self._past().ran.get((verb, layer), NONE))

    def waits_for_backward(self, grad: Labels) -> bool:
        """Return whether this rank has run the forward of the layer that reads a gradient, and no backward of it."""
        back = any(self.has_run(verb, grad.layer) for verb in (BACKWARD.kind, BACKWARD_INPUT.kind))
        return grad.batches <= self.has_run(FORWARD.kind, grad.layer) and not back

    def blocks(self, verb: str, layer: int, batches: frozenset[int]) -> list[Slices]:
        """Return of which slices the keys were with which this rank has run an operation on a layer, one a block."""
        steps = [(at, one) for at, one in enumerate(self.log) if (one.kind, one.layer) == (verb, layer)]
        return [self.pieces[at][1] for at, one in steps if one.batches == batches]

    def not_with_its_keys(self, one: Labels, other: Labels) -> str:
        """Return why gradients of different keys and values have met on a ring: they go round the other way than the
        keys, or the first one has not gone on with its keys."""
        keys, grads = (
            {peer for peer, labels in self.come_in() if (labels.kind, labels.layer) == (kind, one.layer)}
            for kind in ("KeysValues", one.kind)
        )
        if keys and grads and not keys & grads:
            come = f"keys and values come from {numbered('rank', keys)} here, and their gradients from "
            way = "a gradient goes round with the keys that it is of, the same way, model.RANKS hops until it is home"
            return f"{come}{numbered('rank', grads)}: {way}"
        own = [labels for labels in (one, other) if self.is_home_of(one.layer, one.batches, labels.piece())]
        if own and keys and not self.receivers(one.kind, one.layer):
            slices = show_slices(own[0].piece())
            return f"{AROUND}. That of this rank's own keys, {slices}, has not gone on, and the keys have"
        return AROUND

    def a_step_less(self, grad: Labels) -> str:
        """Return that this rank has gone back to the keys of fewer ranks than there are, where some queries have not
        added to the gradient of keys and values that it has; or an empty text."""
        verb, ranks, unmet = BACKWARD_ATTEND.kind, self.mesh.ranks, grad.unmet()
        times = len(self.blocks(verb, grad.layer, grad.batches))
        if not unmet[0] or times >= ranks:
            return ""
        has = f"this rank has run {verb} {times} time{'s' * (times != 1)} in this layer, with {ranks} ranks"
        lacks = f"the queries of {show_slices(unmet)} have not added to this gradient"
        return f"{has}, and {lacks}: a step of the loop is missing, range(model.RANKS), and the hop that goes with it"

    def passes_on(self, kind: str, layer: int) -> bool:
        """Return whether such a tensor of a layer has come to this rank as a message, or was sent by it."""
        came = any((one.kind, one.layer) == (kind, layer) for _, one in self.come_in())
        return came or bool(self.receivers(kind, layer))

    def projected_again(self, layer: int, batches: frozenset[int]) -> int:
        """Return how often this rank has projected a layer since its rest was made last, if queries have attended to
        something in between; else 0."""
        steps = (PROJECT.kind, ATTEND.kind, REST.kind)
        done = [one.kind for one in self.log if one.kind in steps and (one.layer, one.batches) == (layer, batches)]
        verbs = done[len(done) - done[::-1].index(REST.kind) :] if REST.kind in done else done
        last = max((at for at, verb in enumerate(verbs) if verb == PROJECT.kind), default=0)
        return verbs.count(PROJECT.kind) if ATTEND.kind in verbs[:last] else 0

    def dealt_otherwise(self) -> str:
        """Return which rank has other layers than it is dealt where layers are dealt like cards, or an empty text. A
        card may be several layers that follow one another, if each rank gets two cards at least."""
        loaded = {rank: own for rank, one in sorted(self.ranks.items()) if (own := one.layers_loaded())}
        ranks = self.mesh.ranks
        for thick in range(2, self.layers // (2 * ranks) + 1):
            if all(
                own == {one for one in range(self.layers) if one // thick % ranks == r} for r, own in loaded.items()
            ):
                return ""
        for rank, own in loaded.items():
            if own != {*range(rank, self.layers, ranks)}:
                mine = (
                    "mine = range(model.rank, model.LAYERS, model.RANKS), for load_weights and in each pass, so that "
                )
                has = f"rank {rank} has loaded {numbered('layer', own)}, and layers are dealt like cards here"
                return f"{has}: {mine}each stage sends to the next rank"
        return ""

    def not_in_a_v(self) -> str:
        """Return which rank has other layers than it has where they go down the ranks and up again, or nothing."""
        ranks = self.mesh.ranks
        thick = max(1, self.layers // (2 * ranks))
        for rank, one in sorted(self.ranks.items()):
            own = one.layers_loaded()
            wrong = {layer for layer in own if min(layer, one.layers - 1 - layer) // thick != rank % ranks}
            if wrong:
                return f"rank {rank} has {numbered('layer', wrong)}, and {STAGES_IN_A_V}"
        return ""

    def out_of_turn(self, labels: Labels) -> str:
        """Return what to do about an activation that is for another layer of this rank, or an empty text."""
        came = self.sender(labels)
        if (
            came is None
            or not self.has_loaded(labels.layer)
            or labels.batches <= self.has_run(FORWARD.kind, labels.layer)
        ):
            return ""
        which = f"that of layer {labels.layer}, {numbered('micro-batch', labels.batches)}, is for this rank, too"
        order = "let both ranks do the forwards in the same order of layers and micro-batches"
        run = sorted(self.layers_run())
        done = [f"layer {layer} for {numbered('micro-batch', self.has_run(FORWARD.kind, layer))}" for layer in run]
        comes = f": after {', '.join(done)}, it comes next. Is a forward done twice here, or left out?" if done else ""
        return f"{which}, and rank {came[0]} has sent it first: {order}{comes}"

    def forwards(self) -> Sequence[Step]:
        """Return the forwards of this rank, in their order."""
        return self._past().steps[FORWARD.kind]

    def backwards(self) -> Sequence[Step]:
        """Return the backwards of this rank, in their order."""
        return self._past().steps[BACKWARD.kind]

    def went_back_last(self, layer: int) -> bool:
        """Return whether the last backward of this rank was that of a layer."""
        return [one[0] for one in self.backwards()[-1:]] == [layer]

    def layers_run(self) -> set[int]:
        """Return the layers through which this rank has carried a micro-batch forward."""
        return {layer for verb, layer in self._past().ran if verb == FORWARD.kind and layer is not None}

    def left_undone(self) -> str:
        """Return, as a sentence behind another, what ``lacks`` says of this rank so far, or an empty text."""
        above = {*range(1, self.layers)}
        if above and above == {*self._past().summed} and not self.mesh.axes:
            summed = f". Gradients of {numbered('layer', above)} were summed here, and not that of layer 0"
            ends = "does the backward loop end before it? Let it go on while layer >= 0, as range(model.LAYERS - 1, "
            return f"{summed}: {ends}-1, -1) does"
        soon = "or does a condition let this update come before the last of them?"
        return f". So far this rank {lacks}, {soon}" if (lacks := self.lacks()) else ""

    def lacks(self) -> str:
        """Return, as a sentence without its subject, how many forwards and backwards of its layers this rank has done,
        where it is a stage of the only pipeline and has not done all; or an empty text."""
        own, due = self.layers_loaded(), len(self.layers_loaded()) * self.batches
        forwards, backwards = len(self.forwards()), len(self.backwards())
        others = set[int]().union(*[one.layers_loaded() for one in self.ranks.values() if one is not self])
        halves = any(self.has_run(BACKWARD_INPUT.kind, layer) for layer in own)
        if own & others or len(own) == self.layers or self.experts or halves or not forwards or backwards >= due:
            return ""
        return f"has done {forwards} forwards and {backwards} backwards, and {due} of each are due: {ENDS}"

    def ran_nothing(self) -> str:
        """Return which ranks have run no layer at all, as the beginning of a sentence, or an empty text."""
        idle = [rank for rank, one in sorted(self.ranks.items()) if not one.is_host and not one.layers_run()]
        return f"{numbered('rank', idle)} {'has' if len(idle) == 1 else 'have'}" if idle else ""

    def stages_in_a_row(self) -> str:
        """Return, as a sentence, which stage a rank is, where the first ranks only have run layers, as many as share a
        micro-batch, each its own ones; or an empty text."""
        ran = [rank for rank, one in sorted(self.ranks.items()) if one.layers_run()]
        stages = self.mesh.ranks // self.batches
        own = [layer for rank in ran for layer in self.ranks[rank].layers_run()]
        if self.mesh.axes or ran != [*range(stages)] or not 1 < stages < self.mesh.ranks or len(own) != len({*own}):
            return ""
        stage = f"model.rank % {stages} is the stage of a rank, in each of them"
        return f"If {numbered('rank', ran)} are one pipeline, {stage}, and only that tells which layers it runs"

    def trained_on(self) -> frozenset[int]:
        """Return the micro-batches that this rank has carried forward through some layer."""
        return NONE.union(*[self.has_run(FORWARD.kind, layer) for layer in self.layers_run()])

    def layers_loaded(self) -> set[int]:
        """Return the layers of which this rank has loaded a weight, or a piece of it."""
        return {layer for layer in self._past().loaded if layer is not None}

    def came(self) -> Collection[Labels]:
        """Return what this rank has received, as labels."""
        return self._past().senders

    def receivers(self, kind: str, layer: int) -> Mapping[int, int]:
        """Return to which rank this one has sent such a tensor of a layer last, by micro-batch."""
        return self._past().sent.get((kind, layer), {})

    def nobodys(self, layer: int) -> str:
        """Return what to say of an activation that is the output of the last layer, or the input of one that no rank
        has loaded, as far as is known; an empty text for others."""
        if layer == self.layers:
            return f"layer {layer - 1} is the last one: its output goes to model.loss on the same rank, and to no other"
        if len(self.ranks) < self.mesh.everyone or any(one.has_loaded(layer) for one in self.ranks.values()):
            return ""
        fix = f"no rank has loaded layer {layer}: divide all model.LAYERS layers among the ranks, at every size"
        return f"{fix}, such as range(model.rank, model.LAYERS, model.RANKS)"

    def left_out(self, layer: int) -> str:
        """Return what to do about the output of a layer that goes to the loss in a pipeline, where no rank has run the
        next one: who is to read it, or that nobody has that layer; or an empty text."""
        others = [one.has_run(FORWARD.kind, layer) for one in self.ranks.values()]
        if len(others) < self.mesh.everyone:
            return ""
        holders = [one.rank for one in self.ranks.values() if one.has_loaded(layer)]
        if layer > 0 and len(holders) == 1 and holders[0] != self.rank:
            fix = f"this is the output of layer {layer - 1}, which layer {layer} on rank {holders[0]} reads: await "
            return f"{fix}model.pass_to({holders[0]}, ...); the loss comes only after layer {self.layers - 1}"
        if self.has_run(FORWARD.kind, 0) or any(others):
            return ""
        if not (run := set().union(*[one.layers_run() for one in self.ranks.values()])):
            return ""
        together = f"together the ranks have run {numbered('layer', run)} of {self.layers}"
        once = f"model.loss comes after layer {self.layers - 1} alone, and not after each layer of the last stage"
        own, most = self.layers_run(), max(len(one.layers_run()) for one in self.ranks.values())
        if 0 < len(own) < most and layer - 1 in own:
            has = f"this rank only {numbered('layer', own)}, and others {most} each"
            left = numbered("layer", {*range(self.layers)} - run)
            return f"{together}, {has}: is {left} for this rank, too? Then {once}"
        share = "divide all of them among the stages, each with model.LAYERS // stages layers"
        return f"{together}: {share}; {once}"

    def has_loaded(self, layer: int) -> bool:
        """Return whether this rank has loaded a weight of a layer, or a piece of it."""
        return layer in self._past().loaded

    def on_a_ring(self) -> bool:
        """Return whether this rank has loaded a layer and, some layers later, another one."""
        layers = sorted(self.layers_loaded())
        return any(one - before > 1 for before, one in pairwise(layers))

    def round_the_ring(self, src: object) -> str:
        """Return from which rank a message comes that is wanted from a neighbor, ``src``, where the layers go round the
        ranks and that neighbor is not there; or an empty text."""
        if type(src) is not int or not self.on_a_ring():
            return ""
        step, own = src - self.rank, sorted(self.layers_loaded())
        if abs(step) != 1:  # is it the number of a layer, the one before or the one after?
            step = -1 if src + 1 in own else 1 if src - 1 in own else 0
            own = [src - step] if step else []
        for layer in own[::-step] if step else ():
            back = step > 0
            there = self.comes_from("ActivationGrad" if back else "Activation", layer + back)
            if there and len(self.has_run(BACKWARD.kind if back else FORWARD.kind, layer)) < self.batches:
                asked = f"Is this for layer {layer}? Then {there}"
                sign, other = "+" if back else "-", self.elsewhere(layer + (1 if back else -1))
                if other != (self.rank + (1 if back else -1)) % self.mesh.ranks:
                    ring = f"the stages of each pipeline are a ring: (stage {sign} 1) % stages is the stage"
                    return f"{asked}; {ring} {'after' if back else 'before'}"
                return f"{asked}; the ranks are a ring, (model.rank {sign} 1) % model.RANKS"
        return ""

    def from_another(self) -> str:
        """Return from which other rank the input comes of the first of its layers that this rank has not run yet and
        does not feed itself, as far as is known; or an empty text."""
        for layer in sorted(self.layers_loaded()):
            if layer and not self.has_loaded(layer - 1) and not self.has_run(FORWARD.kind, layer):
                there = self.comes_from("Activation", layer)
                last = f"; a gradient of the output of layer {layer} comes from model.loss, after its forward"
                return f"Is this for layer {layer}? Then {there}{last * (layer == self.layers - 1)}" if there else ""
        return ""

    def same_stage(self, other: object, sends: bool = False) -> str:
        """Return what to do where a message is wanted from a rank, or goes to one, that would be the same stage of
        another pipeline, as others so far apart have both run layer 0; or an empty text."""
        step = other - self.rank if type(other) is int else 0
        first = {rank for rank, one in self.ranks.items() if one.has_run(FORWARD.kind, 0)}
        pair = next((rank for rank in sorted(first) if rank + abs(step) in first), None)
        if abs(step) < 2 or pair is None or (self.rank in first and not sends):
            return ""
        both, sign = f"ranks {pair} and {pair + abs(step)} have both run layer 0", "+-"[step < 0]
        fix = f"{both}, so model.rank {sign} {abs(step)} is the same stage of another pipeline: the stage "
        fix += "before" if step < 0 else "after"
        neighbor = f"model.rank {sign} 1"
        call = f"model.pass_to({neighbor}, ...)" if sends else f"model.receive(src={neighbor})"
        return f"{fix} this one is on the neighbor, await {call}"

    def needs_no_message(self) -> str:
        """Return what to do about a message that is to bring what this rank has made itself: the input of the layer
        after the last one that it has run; an empty text where it has sent that on."""
        layer = max(self.layers_run(), default=-1) + 1
        after = self.receivers("Activation", layer)
        if self.has_run(FORWARD.kind, 0) and after:
            to = next(iter(after.values()))
            here = f"rank {self.rank} has run layer 0: model.get_activation gives the first one its input, and only "
            here += f"gradients come to it as messages, from rank {to}"
            return f"{here}: await model.receive(src={to}), in the backward pass"
        left = self.has_run(FORWARD.kind, layer - 1).difference(self.receivers("Activation", layer))
        if not 0 < layer < self.layers or not left or self.has_run(BACKWARD.kind, layer - 1):
            return ""
        here = (
            f"what forward(layer {layer - 1}) gave is on this rank, and is the input of layer {layer}, with no message"
        )
        return f"{here}: receive for the first of this rank's layers only, and only where a rank comes before"

    def left_between(self, sender: int, labels: Labels, layer: int) -> str:
        """Return that no rank has run the layers between an activation with these labels, from the rank before, and the
        layer that reads it, though both ranks have loaded them, or that its sender has run that layer itself; or an
        empty text."""
        if labels.layer == layer + 1 and labels.batches <= self.ranks[sender].has_run(FORWARD.kind, layer):
            too = f"rank {sender} has run layer {layer} on {numbered('micro-batch', labels.batches)} itself"
            its = self.ranks[sender].layers_run()
            if max(its) == layer > min(its) and not self.layers_run():
                return f"{too}, as its last layer, and this rank begins with it: {ENDS_BEFORE}"
            too += ". Is it for "
            too += "this rank, too? Then both are on one stage, and messages go to another one: with several pipelines "
            too += "model.rank % stages is the stage, model.rank // stages the pipeline, and model.rank + 1 the next "
            return f"{too}stage. Else this rank goes on with layer {labels.layer}"
        left = range(labels.layer, layer)
        ran = [one for one in left if self.run_by_none(one, labels.batches) != labels.batches]
        own = all(self.has_loaded(one) and not self.has_run(FORWARD.kind, one) for one in left)
        if not left or ran or not own or self.rank != sender + 1:
            return ""
        its = self.ranks[sender]
        waits = next((one.peer for one in its.log if one.kind == RECEIVE.kind and one.labels is None), None)
        if waits not in (None, self.rank) and labels.layer - 1 in its.layers_run():
            more = f"rank {sender}, which has layer {labels.layer}, waits for a message of rank {waits} before that"
            return f"no rank has run {numbered('layer', left)}: {more}. {ENDS_ONLY}"
        ends = f"does rank {sender} end too soon, or does this one begin too late? A stage has model.LAYERS // stages"
        return f"no rank has run {numbered('layer', left)}: {ends} layers"

    def sender(self, labels: Labels) -> tuple[int, int] | None:
        """Return the rank from which a tensor with these labels has come, and the place of that receive in the log."""
        return self._past().senders.get(labels)

    def sent_again(self, batch: int) -> tuple[int, int, int] | None:
        """Return which rank was the first to send the same of a micro-batch twice to the next one, of those from which
        this rank's inputs or gradients come; its receiver, and where in its log the second send stands."""
        found, receiver = None, self
        for _ in self.ranks:
            came = [one for one in receiver.come_in() if KINDS[one[1].kind].by_batch and one[1].batches == {batch}]
            again = next((one for one in came if came.count(one) > 1 and one[0] in self.ranks), None)
            if again is None:
                break
            sender, labels = again
            sent = [(at, one) for at, one in enumerate(self.ranks[sender].log) if one.kind == SEND.kind]
            sends = [at for at, one in sent if one.labels == labels and one.peer == receiver.rank]
            if len(sends) > 1:
                found = sender, receiver.rank, sends[1]
            receiver = self.ranks[sender]
        return found

    def just_sent(self, kind: str, layer: int) -> bool:
        """Return whether the last thing that this rank has done is to send such a tensor of a layer."""
        last = self.log[-1] if self.log else None
        of = last.labels if last is not None and last.kind == SEND.kind else None
        return of is not None and (of.kind, of.layer) == (kind, layer)

    def come_in(self) -> list[tuple[int, Labels]]:
        """Return the tensors that have come as messages, in order, each with its sender."""
        return [(one.peer, one.labels) for one in self.log if one.kind == RECEIVE.kind and one.labels is not None]

    def has_not_come(self, layer: int, batches: frozenset[int]) -> bool:
        """Return whether no gradient of a layer's weight of any of these micro-batches has come as a message."""
        came = [one.batches for _, one in self.come_in() if (one.kind, one.layer) == ("WeightGrad", layer)]
        return not batches & NONE.union(*came)

    def came_once(self, labels: Labels) -> bool:
        """Return whether a tensor with these labels has come as a message, and not again."""
        return [known for _, known in self.come_in()].count(labels) == 1

    def not_sent_by(self, sender: int, kind: str, layer: int, batches: frozenset[int]) -> bool:
        """Return whether another rank has sent no such tensor of these micro-batches to anybody."""
        return sender in self.ranks and not batches & self.ranks[sender].receivers(kind, layer).keys()

    def goes_back_without(self, sender: int, layer: int, batches: frozenset[int]) -> str:
        """Return that another rank has run the backward of a layer on other micro-batches, and has left these out,
        which it has taken through the layer; or an empty text."""
        one = self.ranks[sender]
        back = NONE.union(*[one.has_run(verb, layer) for verb in (BACKWARD.kind, BACKWARD_INPUT.kind)])
        if not back or batches & back or not batches <= one.has_run(FORWARD.kind, layer):
            return ""
        has = f"rank {sender} has run backward({layer}, ...) on {numbered('micro-batch', back)}, and not on"
        out = "does a condition leave that backward out, or does its loop begin too late or end too soon? If not, let "
        return f"{has} {numbered('micro-batch', batches)}: {out}both ranks take the micro-batches in the same order"

    def other_way(self, sender: int, layer: int, batches: frozenset[int]) -> str:
        """Return that the input of a layer, of these micro-batches, went to another rank than the ``sender`` of a
        gradient, which has not run the layer on them; or an empty text."""
        to, one = self.sent_to("Activation", layer, batches), self.ranks[sender]
        if to in (None, sender) or batches <= one.has_run(FORWARD.kind, layer) or not 0 < layer < self.layers:
            return ""
        which = numbered("micro-batch", batches)
        went = (
            f"what forward({layer - 1}, ...) gave here for {which} was sent to rank {to}, and the gradient comes from"
        )
        begun = f" has taken {which} through other layers, and" * (batches <= one.trained_on())
        went += f" rank {sender}, which{begun} has not run layer {layer} on it. A gradient comes back from where the "
        ahead = f"await model.pass_to({sender}, ...) in the forward pass, if rank {sender} is the next stage of this "
        return f"{went}activation went: {ahead}pipeline, else await model.receive(src={to}) here"

    def sent_to(self, kind: str, layer: int, batches: frozenset[int]) -> int | None:
        """Return the rank to which this one has sent such a tensor of all these micro-batches, or of any, if it has."""
        sent = self._past().sent.get((kind, layer), {})
        return next(iter(sent.values()), None) if batches <= sent.keys() else None

    def elsewhere(self, layer: int, batches: frozenset[int] = NONE) -> int | None:
        """Return another rank that has run a layer on these micro-batches, or else the only one that has loaded it;
        None if this rank has done so itself, or if no such rank is known."""
        if batches <= self.has_run(FORWARD.kind, layer) != NONE:
            return None
        others: list[WorkDone] = [one for rank, one in sorted(self.ranks.items()) if one is not self]
        for one in others:
            if batches <= one.has_run(FORWARD.kind, layer) != NONE:
                return one.rank
        holders = [one.rank for one in others if one.has_loaded(layer)]
        if len(holders) > 1 and (copies := self.axes_of_layers()):
            here = self.mesh.coordinates(self.rank)
            there = {rank: self.mesh.coordinates(rank) for rank in holders if rank < self.mesh.ranks}
            holders = [rank for rank, at in there.items() if all(at[axis] == here[axis] for axis in copies)]
        return holders[0] if len(holders) == 1 and not self.has_loaded(layer) else None

    def axes_of_layers(self) -> list[str]:
        """Return the axes of the mesh along which all ranks have loaded the same layers as this one, where other ranks
        have others: along these are replicas of a stage; none where that is not known."""
        own = self.layers_loaded()
        if self.is_host or not 0 < len(own) < self.layers:
            return []
        return [
            axis
            for axis, size in self.mesh.axes.items()
            if size > 1
            and all(
                rank in self.ranks and self.ranks[rank].layers_loaded() == own
                for rank in self.mesh.group(self.rank, axis).ranks
            )
        ]

    def comes_from(self, kind: str, layer: int, batches: frozenset[int] = NONE) -> str:
        """Return from which other rank an activation of a layer, or its gradient, comes, and how to get it; an empty
        text where no other rank makes it."""
        backward = kind == "ActivationGrad"
        maker = layer if backward else layer - 1
        other = self.elsewhere(maker, batches) if 0 <= maker < self.layers else None
        if other is None:
            return ""
        call = f"await model.receive(src={other})"
        if backward:
            return f"layer {maker} is on rank {other}, and gradients come from there: {call}"
        ran = self.ranks[other].has_run(FORWARD.kind, maker)
        return f"layer {maker} {'ran' if ran else 'is'} on rank {other}: {call}"

    def goes_to(self, labels: Labels) -> str:
        """Return to which rank an activation, or the gradient of one, goes, as far as is known, or that nobody needs
        it; or an empty text."""
        backward = labels.kind == "ActivationGrad"
        if not backward and labels.layer == self.layers:
            return "the output of the last layer goes to no other rank: model.loss reads it here"
        if backward and labels.layer < 0:
            return "nobody needs the gradient of the input of layer 0: leave out pass_to on this rank"
        if KINDS[labels.kind].by_heads:
            one = "on a ring the next rank is (model.rank + 1) % model.RANKS"
            return f"{one}, and the one before (model.rank - 1) % model.RANKS"
        other = self.elsewhere(labels.layer, labels.batches) if KINDS[labels.kind].by_batch else None
        if other is not None:
            return f"layer {labels.layer} is on rank {other}: await model.pass_to({other}, ...)"
        if KINDS[labels.kind].by_batch and self.has_loaded(labels.layer):
            others = [
                rank for rank, one in sorted(self.ranks.items()) if one is not self and one.has_loaded(labels.layer)
            ]
            if len(others) == 1:
                return f"layer {labels.layer} is on rank {others[0]}, too: await model.pass_to({others[0]}, ...)"
            goes_on = f"layer {labels.layer} is on this rank itself, which goes on with it"
            return f"{goes_on}: keep it stored, and send nothing here" if not others else ""
        if labels.kind == "Activation":
            return f"an activation goes on to the rank that runs layer {labels.layer}: in a row model.rank + 1"
        return ""

    def sent_instead(self, sender: int, kind: str, labels: Labels, layer: int) -> str:
        """Return what to write where a rank has sent a tensor with these labels, and not the one of a layer that it has
        made as well; an empty text where it has sent both. (``layer`` is the key of what is wanted.)"""
        one, right = self.ranks[sender], layer - (kind == "ActivationGrad")
        if labels.kind != kind or one.sent_to(kind, right, labels.batches) is not None:
            return ""
        back = kind == "ActivationGrad"
        half = back and one.has_run(BACKWARD_INPUT.kind, layer)
        verb = (BACKWARD_INPUT if half else BACKWARD if back else FORWARD).kind
        gave = f"what {verb}({layer - (not back)}, ...) gave there" + " for the input" * back
        call = f"await model.pass_to({self.rank}, ...) on rank {sender}, with {gave}"
        return f"rank {sender} has sent this in place of what is wanted: {call}"
