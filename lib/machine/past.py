"""What a rank has done before, for rules and errors. No record is looked at twice, however often a program asks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any, cast

from ..basics.errors import numbered, show_axis, show_set
from ..record.attention import BACKWARD_ATTEND, PROJECT
from ..record.causal import NOTHING, Slices, in_both, missing, show_slices
from ..record.collectives import SCATTERREDUCE
from ..record.events import LOADS, MARKS
from ..record.kinds import KINDS
from ..record.labels import STAGES_IN_A_V, Labels, experts_of, same_pieces, within
from ..record.shards import NONE
from ..record.table import OPERATIONS, RECEIVE, SEND, makes_weight_grads, stream_of, sums
from ..record.training import BACKWARD, FORWARD
from .cost import Cost
from .mesh import Axis, Group, Mesh

EVERY_RANK = "Make it true on every rank, each at its own last micro-batch"
"""What to do about a condition above a sum."""
HALF = "half"
"""The axis of a mesh along which a pipeline that is filled from both ends has its two halves."""
Brought = Mapping[object, Sequence[Labels | None]]
"""What a rank has brought to its collectives as a list, by the ``op`` of each."""
Step = tuple[int, frozenset[int]]
"""A forward or a backward: its layer, and its micro-batches."""


MOST_COUNTED = 8  # ranks of which errors say how many micro-batches each has


class Taken:
    """The pieces of a layer's weight, of its state, or of a micro-batch's input, that a rank has taken: labels, and the
    number of the load."""

    __slots__ = ("pieces", "starts", "parts")

    def __init__(self) -> None:
        self.pieces: list[tuple[Labels, int]] = []
        # What these cover, as parts of the whole apart from each other: where each starts, and its end, load and piece.
        self.starts: list[Fraction] = []
        self.parts: list[tuple[Fraction, int, Labels]] = []

    def note(self, labels: Labels, load: int) -> Labels | None:
        """Note a piece. If one of another load overlaps it, return that, and note nothing."""
        if self.pieces:  # most often it is the only one
            if not self.starts:
                self._cover(*self.pieces[0])
            for start, end in _spans(labels):
                first, last = self._within(start, end)
                for _, other, piece in self.parts[first:last]:
                    if other != load:
                        return piece
            self._cover(labels, load)
        self.pieces.append((labels, load))
        return None

    def has(self, labels: Labels) -> bool:
        """Return whether these pieces are all of another."""
        if not self.starts:
            self._cover(*self.pieces[0])
        for start, end in _spans(labels):
            first, last = self._within(start, end)
            own = zip(self.starts[first:last], self.parts[first:last], strict=True)
            if sum(min(end, stop) - max(start, begin) for begin, (stop, _, _) in own) < end - start:
                return False
        return True

    def _within(self, start: Fraction, end: Fraction) -> tuple[int, int]:
        """Return the places of the first part that overlaps a span, and of the one after the last."""
        first = bisect_right(self.starts, start)
        if first and self.parts[first - 1][0] > start:
            first -= 1
        return first, bisect_left(self.starts, end)

    def _cover(self, labels: Labels, load: int) -> None:
        """Make one part of a piece and of those of its load that it overlaps."""
        for start, end in _spans(labels):
            first, last = self._within(start, end)
            if first < last:
                start, end = min(start, self.starts[first]), max(end, self.parts[last - 1][0])
            self.starts[first:last] = [start]
            self.parts[first:last] = [(end, load, labels)]


def _spans(labels: Labels) -> Iterator[tuple[Fraction, Fraction]]:
    """Return where a piece lies in the whole, of which the end is 1."""
    shards, total = labels.shards, labels.total
    first, last = min(shards), max(shards)
    if last - first + 1 == len(shards):
        yield Fraction(first, total), Fraction(last + 1, total)
    else:
        yield from ((Fraction(shard, total), Fraction(shard + 1, total)) for shard in shards)


class Past:
    """What errors ask of the log of a rank."""

    __slots__ = (
        "looked_at", "came", "reduced", "summed", "brought", "gradients", "ran", "loaded", "senders", "sent", "cuts",
        "operations", "met", "axes", "steps",
    )  # fmt: skip

    def __init__(self) -> None:
        self.looked_at = self.came = 0  # records, and messages that came
        self.reduced: dict[tuple[int | None, frozenset[int]], tuple[str, object, Group]] = {}
        """By layer and micro-batches: the last reduction to which the rank has brought such a gradient, its op, and the
        ranks in it."""
        self.summed: dict[int | None, str] = {}
        """By layer: the last reduction to which the rank has brought a gradient."""
        self.brought: dict[tuple[object, int | None], frozenset[int]] = {}
        """By the op of a reduction, and layer: the micro-batches of the gradient that the rank has brought."""
        self.gradients = defaultdict[int | None, set[int]](set)
        """By layer: the micro-batches for which the rank has computed the gradient of the weight."""
        self.ran = defaultdict[tuple[str, int | None], set[int]](set)
        """By verb and layer: the micro-batches that the rank has carried through the layer."""
        self.loaded: set[int | None] = set()
        """The layers of which the rank has loaded a weight, or a piece of it."""
        self.cuts = defaultdict[int | None, dict[object, None]](dict)
        """By layer: the axes over which its gradient was brought to reductions that cut it, in order."""
        self.sent = defaultdict[tuple[str, int], dict[int, int]](dict)
        """By kind and layer of a tensor: the rank to which that of a micro-batch was sent last."""
        self.senders: dict[Labels, tuple[int, int]] = {}
        """Of each tensor that came as a message: the rank that has sent it last, and the place of the receive."""
        self.operations = defaultdict[object, list[int]](list)
        """Of each coroutine, the places of its operations in the log."""
        self.axes = defaultdict[int | None, dict[object, None]](dict)
        """By layer: the axes over which its gradient was brought to reductions, in order."""
        self.steps: dict[str, list[Step]] = {FORWARD.kind: [], BACKWARD.kind: []}
        """The forwards and the backwards, in their order."""
        self.met: dict[tuple[str, int | None], str] = {}
        """By kind of a tensor, and layer: the last collective to which the rank has brought one."""

    def look(
        self,
        log: Sequence[Any],
        writers: Mapping[int, object],
        first: object,
        lists: Brought,
        received: Sequence[tuple[Any, ...]],
    ) -> Past:
        """Add what is new in the log, and return this. ``writers``: by place, who wrote it if not the ``first``;
        ``received``: the messages that came, each with the place of its receive as the last item."""
        for at in range(self.looked_at, len(log)):
            record = log[at]
            if record.kind not in MARKS:
                self.operations[writers.get(at, first)].append(at)
            labels = record.labels
            if labels is None:
                if makes_weight_grads(record.kind):
                    self.gradients[record.layer] |= record.batches
                if record.kind in LOADS:
                    self.loaded.add(record.layer)
                elif stream_of(record.kind) == "compute":
                    for verb in {record.kind, OPERATIONS[record.kind].like} - {""}:
                        self.ran[verb, record.layer] |= record.batches
                    if record.kind in self.steps:
                        self.steps[record.kind].append((record.layer, record.batches))
            elif record.kind == SEND.kind:
                self.sent[labels.kind, labels.layer] |= dict.fromkeys(labels.batches, record.peer)
            elif record.group is not None:
                self.met |= dict.fromkeys([(labels.kind, one) for one in record.layers or [record.layer]], record.kind)
            if labels is not None and labels.kind == "WeightGrad" and sums(record.kind):
                brought = [(record.layer, labels.batches)]
                if record.layers:
                    brought = [(one.layer, one.batches) for one in lists[record.op] if one is not None]
                for layer, batches in brought:
                    self.reduced[layer, batches] = record.kind, record.op, record.group
                    if record.kind == SCATTERREDUCE.kind:
                        self.cuts[layer][record.op[0]] = None
                    self.axes[layer][record.op[0]] = None
                    self.summed[layer], self.brought[record.op, layer] = record.kind, batches
        self.looked_at = len(log)
        for *_, at in received[self.came :]:
            if log[at].labels is not None:
                self.senders[log[at].labels] = log[at].peer, at
        self.came = len(received)
        return self


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


# -- what errors ask of the logs of all ranks ---------------------------------------------------------------------


class Asked:
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
    ranks: MutableMapping[int, Asked]  # the ranks of the machine that are here
    taken: dict[tuple[str, int, bool], Taken]
    slices: dict[tuple[str, int, int], Slices]
    pieces: dict[int, tuple[Slices, ...]]
    log: list[Any]

    def _past(self) -> Past:
        """Return what errors ask of this rank's own log, as it is now."""
        raise NotImplementedError

    def reduced(self, layer: int, batches: frozenset[int]) -> str:
        """Return the reduction to which this rank has brought a gradient of these micro-batches, and which has given
        more than that, or an empty text."""
        verb, useless = self._last_reduction(layer, batches)
        return "" if useless else verb

    def reduced_alone(self, layer: int, batches: frozenset[int]) -> str:
        """Return the reduction to which this rank has brought a gradient of these micro-batches, and the others of its
        group nothing more, or an empty text."""
        verb, useless = self._last_reduction(layer, batches)
        return verb if useless else ""

    def _last_reduction(self, layer: int, batches: frozenset[int]) -> tuple[str, bool]:
        """Return the last reduction to which this rank has brought a gradient of these micro-batches, and whether no
        other rank has brought other ones, as far as is known."""
        if (layer, batches) not in self._past().reduced:
            return "", False
        verb, op, group = self._past().reduced[layer, batches]
        if len(group.position) == 1:
            return "", False
        others = [self.ranks.get(rank) for rank in group.position if rank != self.rank]
        return verb, all(one and one._past().brought.get((op, layer), NONE) <= batches for one in others)

    def never_reduced(self) -> tuple[str, list[int]]:
        """Return a reduction to which this rank has brought gradients, and the layers whose gradients it has brought to
        none; an empty text where it has brought all or none."""
        past = self._past()
        left = sorted(layer for layer in past.gradients if layer is not None and layer not in past.summed)
        return (next(iter(past.summed.values())), left) if past.summed and left else ("", [])

    def met_by(self, kind: str, layer: int) -> str:
        """Return the last collective to which this rank has brought a tensor of a kind and a layer, or nothing."""
        return self._past().met.get((kind, layer), "")

    def unawaited(self, kind: str, layer: int) -> str:
        """Return the last collective to which this rank has brought a tensor of a kind and a layer, and which it has
        never awaited; or nothing."""
        for record in reversed(self.log):
            left = getattr(record, "awaited", True) is False and record.labels is not None and record.group is not None
            if left and (record.labels.kind, record.layer) == (kind, layer):
                return cast(str, record.kind)
        return ""

    def met_by_others(self, kind: str, layer: int) -> str:
        """Return which other rank has brought a tensor of a kind and a layer to a collective, where this one has not,
        and what to do; or an empty text."""
        if (kind, layer) in self._past().met:
            return ""
        for rank, one in sorted(self.ranks.items()):
            if verb := one._past().met.get((kind, layer)):
                calls = f"rank {rank} calls model.{verb}(..., {layer}), and rank {self.rank} does not"
                return (
                    f"{calls}: a collective is called by every rank of its group, so it stands below no `if` of a rank"
                )
        return ""

    def sum_of_some(self) -> str:
        """Return that other ranks alone sum gradients of a layer that this one has as well, or an empty text."""
        own = self._past()
        for layer, verb in {
            layer: verb for one in self.ranks.values() for layer, verb in one._past().summed.items()
        }.items():
            some = [rank for rank, one in sorted(self.ranks.items()) if layer in one._past().summed]
            if not own.summed and own.gradients.get(layer):
                only = f"only {numbered('rank', some)} call{'s' * (len(some) == 1)} model.{verb}(..., {layer})"
                return f"{only}: is a condition above it true there alone? {EVERY_RANK}"
        return ""

    def not_brought(self, layer: int, batches: frozenset[int]) -> str:
        """Return the reduction to which this rank has brought another gradient of a layer than the one of these micro-
        batches, which it has computed; or an empty text."""
        past = self._past()
        own = batches <= past.gradients.get(layer, NONE) and (layer, batches) not in past.reduced
        return past.summed.get(layer, "") if own else ""

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
        slow = dict(self.cost.uneven.slow) if self.cost.uneven is not None else {}
        fewest = min(counts, key=lambda rank: (counts[rank], slow.get(rank, 1)))
        to = f"give it to rank {fewest}" if len(none) == 1 else "give each of them to one that has less"
        return f"{have}: {to}"

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
        empty text where no micro-batch has gone through it on several ranks, or where these have different experts."""
        if experts_of(layer, self.experts):
            return ""
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
                return f"{problem}; {self.dealt()}"
        return ""

    def counted_twice(self, layer: int, batches: frozenset[int], plain: str, verb: str) -> str:
        """Return what to do about a sum of gradients in which these micro-batches come twice. ``plain``: what to say of
        it in any case; ``verb``: the reduction to name."""
        once = "" if batches <= self.with_gradients(layer) else self.sums_often(layer)
        return self.runs_too(layer, batches) or once or plain + self.summed_over_ranks(layer, verb)

    def sums_often(self, layer: int) -> str:
        """Return that this rank has summed the gradient of a layer over the ranks several times, and that once is
        enough; or an empty text."""
        times, verb = len([op for op, its_layer in self._past().brought if its_layer == layer]), self.summed_by(layer)
        if times < 2 or self.mesh.axes:
            return ""
        most = max(self.ranks.values(), key=lambda one: len([op for op, of in one._past().brought if of == layer]))
        more = len([op for op, of in most._past().brought if of == layer])
        others = f", and rank {most.rank} {more} times" if more > times else ""
        first = "add up the gradients of this rank's own micro-batches first, and sum over the ranks once, at the end"
        return f"rank {self.rank} has called model.{verb} for layer {layer} {times} times{others}: {first}"

    def summed_over_ranks(self, layer: int, verb: str) -> str:
        """Return, as a sentence to be added, how this rank gets the gradients of a layer that others have computed; an
        empty text where they have none, or where it has called a reduction. ``verb``: the reduction to name."""
        others = [one for one in self.ranks.values() if one is not self and one.with_gradients(layer)]
        if not others or self.summed_by(layer):
            return ""
        return f" The gradients of the other ranks come by a reduction, grad = await model.{verb}(grad, {layer})"

    def dealt(self) -> str:
        """Return which rank has which micro-batch, where all ranks train."""
        if not self.mesh.axes or not 0 < len(self.layers_loaded()) < self.layers:
            return dealt(self.mesh.ranks, self.batches)
        if len(copies := self.axes_of_layers()) == 1:
            return dealt_along(copies[0])
        share = "its share of the batch goes by the place of its pipeline, and not by that of its stage or by its rank"
        share += ": range(replica * share, (replica + 1) * share), with share = model.BATCHES // replicas"
        first = sum(one.has_loaded(0) for one in self.ranks.values())
        replicas = f", where {first} ranks have layer 0, and so there are {first} replicas"
        return share + replicas * (first > 1)

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
        return f"{share}, and asks for one more: how many forwards does it do, and is one of its loops too long?"

    def has_gathered(self, weight: Labels) -> bool:
        """Return whether this rank has loaded only a part of what it has here of a weight."""
        own = self._loaded_piece(weight.layer, weight.adapter)
        return own is not None and within(own, weight) and not same_pieces(own, weight)

    def with_gradients(self, layer: int) -> frozenset[int]:
        """Return the micro-batches for which this rank has computed the gradient of a layer's weight."""
        return frozenset(self._past().gradients.get(layer, NONE))

    def has_run(self, verb: str, layer: int) -> frozenset[int]:
        """Return the micro-batches that this rank has carried through a layer with an operation."""
        return frozenset(self._past().ran.get((verb, layer), NONE))

    def dealt_otherwise(self) -> str:
        """Return which rank has other layers than it is dealt where layers are dealt like cards, or an empty text."""
        for rank, one in sorted(self.ranks.items()):
            own = one.layers_loaded()
            if own and own != {*range(rank, one.layers, self.mesh.ranks)}:
                mine = "mine = range(model.rank, model.LAYERS, model.RANKS), so that each stage sends to the next rank"
                return f"rank {rank} has {numbered('layer', own)}, and layers are dealt like cards here: {mine}"
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

    def layers_run(self) -> set[int]:
        """Return the layers through which this rank has carried a micro-batch forward."""
        return {layer for verb, layer in self._past().ran if verb == FORWARD.kind and layer is not None}

    def ran_nothing(self) -> str:
        """Return which ranks have run no layer at all, as the beginning of a sentence, or an empty text."""
        idle = [rank for rank, one in sorted(self.ranks.items()) if not one.is_host and not one.layers_run()]
        return f"{numbered('rank', idle)} {'has' if len(idle) == 1 else 'have'}" if idle else ""

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
        return (
            f"together the ranks have run {numbered('layer', run)} of {self.layers}: divide all of them among the "
            "stages, each with model.LAYERS // stages layers that follow one another"
        )

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

    def sender(self, labels: Labels) -> tuple[int, int] | None:
        """Return the rank from which a tensor with these labels has come, and the place of that receive in the log."""
        return self._past().senders.get(labels)

    def come_in(self) -> list[tuple[int, Labels]]:
        """Return the tensors that have come as messages, in order, each with its sender."""
        return [(one.peer, one.labels) for one in self.log if one.kind == RECEIVE.kind and one.labels is not None]

    def came_once(self, labels: Labels) -> bool:
        """Return whether a tensor with these labels has come as a message, and not again."""
        return [known for _, known in self.come_in()].count(labels) == 1

    def not_sent_by(self, sender: int, kind: str, layer: int, batches: frozenset[int]) -> bool:
        """Return whether another rank has sent no such tensor of these micro-batches to anybody."""
        return sender in self.ranks and not batches & self.ranks[sender].receivers(kind, layer).keys()

    def sent_to(self, kind: str, layer: int, batches: frozenset[int]) -> int | None:
        """Return the rank to which this one has sent such a tensor of all these micro-batches, or of any, if it has."""
        sent = self._past().sent.get((kind, layer), {})
        return next(iter(sent.values()), None) if batches <= sent.keys() else None

    def elsewhere(self, layer: int, batches: frozenset[int] = NONE) -> int | None:
        """Return another rank that has run a layer on these micro-batches, or else the only one that has loaded it;
        None if this rank has done so itself, or if no such rank is known."""
        if batches <= self.has_run(FORWARD.kind, layer) != NONE:
            return None
        others = [one for rank, one in sorted(self.ranks.items()) if one is not self]
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

    def summed_by(self, layer: int) -> str:
        """Return the last reduction to which this rank has brought a gradient of a layer, or an empty text."""
        return self._past().summed.get(layer, "")

    def goes_to(self, labels: Labels) -> str:
        """Return to which rank an activation, or the gradient of one, goes, as far as is known, or that nobody needs
        it; or an empty text."""
        backward = labels.kind == "ActivationGrad"
        if not backward and labels.layer == self.layers:
            return "the output of the last layer goes to no other rank: model.loss reads it here"
        if backward and labels.layer < 0:
            return "nobody needs the gradient of the input of layer 0: leave out pass_to on this rank"
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
        store = KINDS[kind].store
        call = f"await model.pass_to({self.rank}, model.{store}[{layer}])"
        return f"rank {sender} has sent this in place of what is wanted; on rank {sender}: {call}"

    def _loaded_piece(self, layer: int, adapter: bool = False) -> Labels | None:
        """Return the first piece of a layer's weight that this rank has taken."""
        taken = self.taken.get(("Weight", layer, adapter))
        return taken.pieces[0][0] if taken is not None and taken.pieces else None

    def has_brought_what_it_loaded(self, weight: Labels) -> bool:
        """Return whether a piece of a weight is the one that this rank has taken from its load."""
        own = self._loaded_piece(weight.layer, weight.adapter)
        return own is not None and same_pieces(own, weight)

    def axis_of_pieces(self, layer: int, adapter: bool = False) -> str | tuple[str, ...] | None:
        """Return the axis, or several, along which ranks have loaded different pieces of a weight that are all of it
        together, an empty text where these are all ranks, and None where that is not so, or not known."""
        mesh = self.mesh
        several = [names for size in range(2, len(mesh.axes)) for names in combinations(mesh.axes, size)]
        for axis in (None, *mesh.axes, *several):
            group = mesh.group(self.rank, axis).ranks if not self.is_host else ()
            known = [self.ranks[rank]._loaded_piece(layer, adapter) for rank in group if rank in self.ranks]
            pieces = [(one.shards, one.total) for one in known if one is not None]
            if len(set(pieces)) == len(group) and all(total == len(group) for _, total in pieces):
                return axis or ""
        return None

    def owns_piece(self, piece: Labels) -> bool:
        """Return whether a piece is number ``rank`` of as many as there are ranks."""
        return piece.total == self.mesh.ranks and piece.shards == {self.rank}

    def numbers_of(self, piece: Labels) -> str:
        """Return the two arguments that say which piece of how many this is on this rank, as code."""
        if self.owns_piece(piece):
            return "(model.rank, model.RANKS)"
        axes = [
            axis
            for axis, size in self.mesh.axes.items()
            if size == piece.total and piece.shards == {self.mesh.index(self.rank, axis)}
        ]
        if len(axes) == 1:
            return f'(model.axis_index("{axes[0]}"), model.axis_size("{axes[0]}"))'
        return f"({', '.join(map(str, sorted(piece.shards)))}, {piece.total})"

    def has_copy(self, layer: int) -> bool:
        """Return whether this rank has loaded all of the weight of a layer."""
        own = self._loaded_piece(layer)
        return own is not None and own.is_whole()

    def cut_along(self, piece: Labels) -> str:
        """Return the two arguments that cut a piece out of what this rank has loaded, as code, where it is cut by the
        place along an axis along which ranks have loaded the same; or an empty text."""
        own = self._loaded_piece(piece.layer, piece.adapter)
        if (
            own is None
            or own.is_whole()
            or not within(piece, own)
            or len(piece.shards) != 1
            or piece.total <= own.total
        ):
            return ""
        cut, place = piece.total // own.total, min(piece.shards) % (piece.total // own.total)
        loaded = {*self.mesh.names(self.axis_of_pieces(piece.layer, piece.adapter) or None)}
        for axis, size in self.mesh.axes.items():
            if axis not in loaded and (size, self.mesh.index(self.rank, axis)) == (cut, place):
                return f"(model.axis_index({show_axis(axis)}), model.axis_size({show_axis(axis)}))"
        return ""

    def cut_of(self, layer: int) -> str:
        """Return over which ranks reduce-scatters have cut the gradient of a layer, and over which ones its weight is
        cut, where these are not all ranks; or an empty text."""
        cuts, own = self._past().cuts.get(layer, {}), self.axis_of_pieces(layer)
        if own is None or not self.mesh.axes or [*cuts] == [own or None] or not cuts:
            return ""
        over = ", then ".join(f"axis={show_axis(axis)}" if axis else "all ranks" for axis in cuts)
        right = f"over axis={show_axis(own)}" if own else "over all ranks"
        has = f"here scatterreduce has cut the gradient over {over}, and load_weights the weight {right}"
        return f"{has}: reduce-scatter over axis={show_axis(own)} first" if own and next(iter(cuts)) != own else has

    def cut_once(self, layer: int) -> str:
        """Return over which axis the gradient of a layer is to be cut, as its weight is, and over which one summed as a
        whole, where reduce-scatters have cut it otherwise; or an empty text."""
        own, cuts = self.axis_of_pieces(layer), [*self._past().cuts.get(layer, {})]
        others = [axis for axis in self.mesh.axes if axis != own]
        if not own or cuts in ([], [own]) or len(others) != 1:
            return ""
        held = f"here weight and state are cut over axis={show_axis(own)} only"
        sums = f"grad = await model.allreduce(grad, {layer}, axis={show_axis(others[0])})"
        if cuts[0] == own:
            again = f"the reduce-scatter over axis={show_axis(others[0])} cuts the gradient again"
            return f"{held}, and {again}: in its place {sums}, which sums the pieces"
        first = f"grad = await model.scatterreduce(grad, {layer}, axis={show_axis(own)})"
        return f"{held}: cut the gradient over that one, {first}, and sum the pieces over the other, {sums}"

    def summed_over_all(self, layer: int) -> str:
        """Return what to do about the gradient of a layer that was summed over all ranks, where its weight is cut along
        an axis; or an empty text."""
        axis, verb = self.axis_of_pieces(layer), self._past().summed.get(layer)
        if not axis or None not in self._past().axes.get(layer, {}):
            return ""
        first = f"first over axis={show_axis(axis)}, then over the other one"
        return f"model.{verb} without an axis is over all ranks: {first}"

    def other_piece(self, layer: int, grad: Labels) -> str:
        """Return which piece of a weight a rank has loaded, where it gets another one of the gradient; or nothing."""
        own = self._loaded_piece(layer, grad.adapter)
        if own is None or own.total != grad.total or own.total == 1 or same_pieces(own, grad):
            return ""
        loaded, comes = show_set(own.shards), show_set(grad.shards)
        return f"this rank has loaded shard {loaded} of {own.total}, and shard {comes} of the gradient comes to it"

    def summed_over(self, layer: int, but: object = None) -> list[Axis]:
        """Return the axes over which this rank has summed a gradient of a layer, None for all ranks, in order.
        ``but``: the ``op`` of a call that does not count."""
        ops = [op for op, its_layer in self._past().brought if its_layer == layer and op != but]
        return [*dict.fromkeys(cast("tuple[Axis]", op)[0] for op in ops)]

    def sums_over_all(self, layer: int) -> Iterator[tuple[str, frozenset[int]]]:
        """Yield the reductions over all ranks to which this one has brought a gradient of a layer, and the micro-
        batches of each sum."""
        for (its_layer, _), (verb, op, _) in self._past().reduced.items():
            if its_layer == layer and cast("tuple[str | None]", op)[0] is None:
                brought = [one._past().brought.get((op, layer), NONE) for one in self.ranks.values()]
                yield verb, NONE.union(*brought)

    def summed_in_part(self, layer: int, grad: Labels) -> str:
        """Return what to do about a gradient of a layer that is a sum over all ranks and, added to it, what this rank
        has computed; or an empty text."""
        sums = {batches: verb for verb, batches in self.sums_over_all(layer) if batches <= grad.batches}
        done = NONE.union(*sums)
        own = grad.batches - done
        if not sums or not own or not own <= self.with_gradients(layer) or done <= self.with_gradients(layer):
            return ""
        verb, are = next(iter(sums.values())), "is" if len(own) == 1 else "are"
        todo = "Sum that one, too, before the two are added: "
        if verb != SCATTERREDUCE.kind:
            todo = (
                f"Add up this rank's own ones first, model.grad_weights[{layer}] + grad, and sum over the ranks once, "
            )
            todo += "after the last: "
        cut = ", which sums and cuts; shard only cuts" * (verb == SCATTERREDUCE.kind and not grad.is_whole())
        return (
            f"{numbered('micro-batch', done)} in this gradient are summed over the ranks, and "
            f"{numbered('micro-batch', own)} {are} this rank's own. {todo}grad = await model.{verb}(grad, {layer}){cut}"
        )

    def replaced_sum(self, layer: int, grad: Labels) -> str:
        """Return what to do where this rank has had a sum over all ranks of micro-batches that are not in a gradient of
        a layer; or an empty text."""
        left = {batches: verb for verb, batches in self.sums_over_all(layer) if not batches & grad.batches}
        lost = NONE.union(*left)
        if lost <= self.with_gradients(layer):
            return ""
        verb = next(iter(left.values()))
        stored = f"model.grad_weights[{layer}]"
        return (
            f"this rank has had the sum of {numbered('micro-batch', lost)} from model.{verb}, and it is not in this "
            f"one, as if it was replaced or cleared away: piece = await model.{verb}(grad, {layer}), and then "
            f"{stored} = {stored} + piece"
        )

    def axes_of_copies(self, layer: int) -> list[str]:
        """Return the axes along which ranks have copies of this one's experts of a layer; none for a dense layer."""
        axis = self.axis_of_pieces(layer)
        if not experts_of(layer, self.experts) or not axis:
            return []
        return [name for name, size in self.mesh.axes.items() if name not in self.mesh.names(axis) and size > 1]

    def over_copies(self, layer: int) -> str:
        """Return how this rank sums the gradient of experts of which other ranks have copies, or an empty text."""
        left = [axis for axis in self.axes_of_copies(layer) if axis not in self.mesh.among(self.summed_over(layer))]
        call = f"grad = await model.allreduce(grad, {layer}, axis="
        return f'sum it over the copies of these experts, before the update: {call}"{left[0]}")' if left else ""

    def different_experts(self, layer: int) -> str:
        """Return what to do about a sum of gradients of different experts of a layer; an empty text for others."""
        if not experts_of(layer, self.experts):
            return ""
        copies = self.axes_of_copies(layer)
        said = "these are gradients of different experts, each with the tokens of all micro-batches "
        over = " and ".join(f"axis={show_axis(axis)}" for axis in copies)
        if copies:
            return f"{said}of its group already: sum them over the copies of these experts only, {over}"
        return f"{said}already: no sum is needed, so update with what model.backward_expert gives"

    def left_to_sum(self, layer: int, grad: Labels) -> str:
        """Return how a rank goes on with a gradient of a layer that is a sum over some axes of the mesh only, or an
        empty text."""
        done = self.summed_over(layer)
        left = [axis for axis in self.mesh.axes if axis not in self.mesh.among(done)]
        if not done or None in done or not left or len(grad.batches) < 2:
            return ""
        over = " and ".join(f"axis={show_axis(axis)}" for axis in done)
        if self.axis_of_pieces(layer) == "":
            call = f"grad = await model.scatterreduce(grad, {layer})"
            return (
                f"it has been summed over {over} only, and the weight is cut over all ranks: one sum over all, {call}"
            )
        if self.axis_of_pieces(layer) == left[0] and not grad.is_whole() and not self.is_cut(layer):
            call = f"grad = await model.scatterreduce(grad, {layer}, axis={show_axis(left[0])})"
            cuts = f"shard has cut it, and summed nothing over axis={show_axis(left[0])}"
            return f"it has been summed over {over} only: {cuts}. In place of .shard(...), {call} sums and cuts"
        if self.axis_of_pieces(layer) == left[0] and grad.is_whole() and len(self.mesh.axes) > 1:
            call = f"grad = await model.scatterreduce(grad, {layer}, axis={show_axis(left[0])})"
            cut = f"the weight is cut over axis={show_axis(left[0])}"
            return f"it has been summed over {over} only, and {cut}: before that sum, on every rank, {call}"
        call = f"grad = await model.allreduce(grad, {layer}, axis={show_axis(left[0])})"
        return f"it has been summed over {over} only: on every rank, before the update, {call}"

    def has_cut_over(self, layer: int, axis: object, but: object) -> bool:
        """Return whether this rank has brought a gradient of a layer to a reduce-scatter over an axis. ``but``: the
        ``op`` of a call that does not count."""
        known = [one for one in self.log if one.kind == SCATTERREDUCE.kind and one.layer == layer and one.op != but]
        return any(one.op[0] == axis for one in known)

    def is_cut(self, layer: int) -> bool:
        """Return whether this rank has brought a gradient of a layer to a reduce-scatter."""
        return bool(self._past().cuts.get(layer))

    def last_cut(self, layer: int) -> str:
        """Return the argument that names the axis of the last reduce-scatter of a layer, if it had one."""
        cuts = [*self._past().cuts.get(layer, {})]
        return f", axis={show_axis(cuts[-1])}" if cuts and cuts[-1] else ""

    def whole_from_pieces(self, weight: Labels) -> str:
        """Return how this rank gets all of a weight of which it has these pieces."""
        layer, own = weight.layer, self._loaded_piece(weight.layer, weight.adapter)
        if alone := self.met_by_others(weight.kind, layer):
            return alone
        if own is not None and not self.mesh.axes and 1 != own.total != self.mesh.ranks:
            load = f"model.load_weights({layer}, model.rank, model.RANKS)"
            return f"each rank loads one of as many pieces as there are ranks, and then they are all of it: {load}"
        axis = self.axis_of_pieces(layer, weight.adapter)
        if axis is None and own is not None and (few := self._too_few_pieces(own)):
            return few
        over = f", axis={show_axis(axis)}" if axis else ""
        fix = f"weight = await model.allgather(model.weights[{layer}], {layer}{over})"
        if own is None or same_pieces(own, weight):
            return fix
        if axis is not None and within(own, weight):
            gathered = (weight.kind, layer) in self._past().met
            some = "it was gathered over some of the ranks that have its pieces" if gathered else "it is a part only"
            fix = f"{some}. Over all of them: {fix}"
            if not axis and self.mesh.axes:
                name = [*self.mesh.axes][-1]
                cut = f'weight.shard(model.axis_index("{name}"), model.axis_size("{name}"))'
                fix += (
                    f'. To gather it along axis="{name}" only, let those ranks keep a copy of all of it, cut from the '
                )
                fix += f"whole weight: {cut}"
            return fix
        if weight.total > own.total:
            name = [*self.mesh.axes][-1] if self.mesh.axes else ""
            index = f'model.axis_index("{name}"), model.axis_size("{name}")' if name else "model.rank, model.RANKS"
            fix = (
                "these are pieces of the pieces that the ranks have loaded: gather what was loaded; or keep a piece of "
            )
            return f"{fix}the whole weight, once it is gathered: weight.shard({index})"
        missing = show_set(frozenset(range(weight.total)) - weight.shards)
        return f"{fix}; together its ranks must have loaded shards {missing} of {weight.total} as well"

    def _too_few_pieces(self, own: Labels) -> str:
        """Return that all ranks together have not loaded all pieces of a weight, one of which is this rank's ``own``;
        or an empty text."""
        known = [one._loaded_piece(own.layer, own.adapter) for one in self.ranks.values()]
        pieces = {shard for one in known if one is not None and one.total == own.total for shard in one.shards}
        if not self.mesh.axes or len(self.ranks) < self.mesh.everyone or len(pieces) == own.total:
            return ""
        size = f"model.axis_size({show_axis([*self.mesh.axes][-1])})"
        have = f"all ranks together have loaded {len(pieces)} of {own.total} pieces"
        return f"{have}: there are as many pieces as ranks along an axis, such as {size}, at every size"

    def whole_on_mesh(self, weight: Labels) -> str:
        """Return how this rank gets all of a weight of which it has these pieces, where all ranks along one axis have
        it together."""
        if self.axis_of_pieces(weight.layer, weight.adapter) == "" and self.mesh.axes:
            axis = [*self.mesh.axes][-1]
            piece = f"model.axis_index({show_axis(axis)}), model.axis_size({show_axis(axis)})"
            return f"load the piece of this place along the axis, model.load_weights({weight.layer}, {piece})"
        own, copies = self._loaded_piece(weight.layer, weight.adapter), self.axes_of_layers()
        if own is not None and len(copies) == 1 and own.total not in (1, self.mesh.axes[copies[0]]):
            piece = f"model.axis_index({show_axis(copies[0])}), model.axis_size({show_axis(copies[0])})"
            have = f"only the ranks along axis={show_axis(copies[0])} have this layer, so these have all of it together"
            return f"{have}: model.load_weights({weight.layer}, {piece})"
        return self.whole_from_pieces(weight)

    def whole_weight(self, layer: int) -> str:
        """Return how this rank gets all of the weight of a layer, where it has loaded a piece of it; or nothing."""
        own = self._loaded_piece(layer)
        return "" if own is None or own.is_whole() else self.whole_from_pieces(own)

    def others_have(self, layer: int) -> bool:
        """Return whether other ranks work on a layer as well, as far as is known."""
        others = [one for one in self.ranks.values() if one is not self]
        known = len(others) + 1 == self.mesh.everyone
        return not known or any(one.has_loaded(layer) or one.with_gradients(layer) for one in others)
