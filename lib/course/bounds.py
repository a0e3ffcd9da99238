"""Lower bounds for the time of a schedule, mostly of pipelines, from its prices alone. All times are in ticks.

A bound is proved, not measured, and it counts on little: only on what every program that passes has in common. It
knows nothing of memory, so there may be no room for a schedule that meets it.

**The pieces of work.** Of every micro-batch, each layer has a forward and a backward; then each layer has its update.
Where a puzzle grants the halves of a backward, a layer has one piece of work for the gradient of its input, as long as
the cheapest way to it, and one for the rest of what both gradients take together. Layer 0 needs no gradient of its
input, so there it is one piece, as long as the cheapest way to the weight's. A program may do a piece more than once,
or several at a time; then look at the first time that it was done. Each forward or backward of a layer is done by a
rank that has loaded the layer (the idea ``own_layers``), one after the other, and each needs another that is done: the
forward of the layer before, the loss, or the backward of the layer after. From one rank to another a result takes a
send and a receive: a hop.

**The argument.** Take any pieces of work of one rank. Before the first of them it has to wait for what even the
earliest needs; then all of them take their time, one after the other; and after the last of them follows at least what
follows any of them. The sum of the three is a bound. (Where k ranks share a stage, one of them is busy for at least a
k-th of the work.)

**Which pieces.** A rank has n of the layers, but who knows which? Say that each of the p ranks names the lowest of its
layers. The highest that is named is layer p - 1 at least, and below it are layers of all other ranks. So the rank that
named it begins after p - 1 forwards and p - 1 hops, and ends as many backwards and hops before the first layer's
update. In the same way, of the j-th lowest layers the highest is layer p j - 1 at least. With whole backwards that
makes 2(p - 1) hops + an update + (F + B) times the larger of p - 1 + m n and p n - 1 + m, for m micro-batches, where F
and B are those of one layer; and without hops (m + (p - 1)/n) times what n layers take, as Megatron-LM's interleaved
schedule does (arXiv 2104.04473). With halves, the work for the weights may come last: (p - 1) forwards and hops, all
work of a rank and an update; with one layer a rank and free links that is (p - 1)F + m(F + B + W) + U, which the
schedule ZB-H1 (arXiv 2401.10241) takes where B = W.

**Updates** are counted once, at the end: an update takes its time wherever it is done, and a program may send weight,
state and gradient to a rank that has nothing else to do. (Where gathers take no time that makes GPipe half a tick
faster, with 4 ranks, 8 layers and 8 micro-batches.)

**One stage a rank** is the other bound: layers that follow each other, which their rank updates itself. The last rank
begins after p - 1 whole stages, and after its last backward follow p - 1 whole stages, and all updates of the first
rank, of which none can come before that micro-batch is back. With whole backwards: (m + p - 1)(F + B) + 2(p - 1) hops
and the updates, F and B of a stage (GPipe and 1F1B, arXiv 1811.06965 and 2104.04473).

**All layers on every rank**, in data parallel with weights and states that stay (the idea ``weights_stay``), is no
pipeline, but has a bound of the same form. Whoever ends with all states updated, and gets none from others, has made
all updates. And among the ranks one has at least its share of all micro-batches' work, beside that. Where frozen
weights are in shards (LoRA), nobody computes before the first gather; adapters may travel, so their updates may be
shared out, too. Where a layer may be computed in steps, of slices of a sequence, a micro-batch is no chain on one rank:
its work is shared, too, and only these shares count.

**From both ends** (the layout ``both_ends``) a micro-batch goes through all ranks, and each of them runs one of its
stages. The first backward of a rank is that of its upper stage: before it come all forwards of a micro-batch, and the
backwards of the stages above. After that come all its backwards, beside which forwards may take no time, and an update
on some rank: the two that have a stage may share out its updates. So the ranks in the middle are the last to begin, and
the bound is theirs.

**Experts that stay** on their ranks (the idea ``weights_stay``) get the tokens of all micro-batches there. So each rank
has the work of its experts, and makes their updates. Where each rank trains on as many micro-batches (the idea
``as_many_each``), it has their dense layers, too, and all updates of these.

And tokens wait for each other. Everybody brings a micro-batch at least to an all-to-all. So the tokens of no micro-
batch are home before the rank with the most work in that layer has done it for as many micro-batches as there are
ranks. That and two all-to-alls make the way through a layer with experts, forward and back; dense layers, one after
the other, and the last update come to it, and a message or a collective, since every rank ends with the update of
layer 0, and only one of them has the last gradient.
"""

from collections.abc import Collection
from fractions import Fraction
from typing import NamedTuple

from ..basics.units import Elements, exact, show_ticks
from ..machine.check import TRAINED
from ..machine.cost import Cost
from ..record.attention import PROJECT
from ..record.experts import ALLTOALL, EXPERT_BACKWARD, EXPERT_FORWARD
from ..record.labels import Labels, experts_of, of_batches
from ..record.operations import Computation
from ..record.table import in_stream
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS, UPDATE
from .layouts import Size, mesh_of
from .specs import Puzzle, cost_named


class Bounds(NamedTuple):
    """Lower bounds in ticks: ``time`` for every program that passes, ``one_stage`` for those whose ranks have one stage
    each, which they update themselves (None if it is not larger)."""

    time: Fraction
    one_stage: Fraction | None = None

    def in_words(self) -> str:
        """Return the bounds as text that continues a sentence."""
        text = f"no program that passes is faster than {show_ticks(float(self.time))} ticks"
        if self.one_stage is None:
            return text
        return f"{text}; {ONE_STAGE}, none is faster than {show_ticks(float(self.one_stage))}"

    def praise(self, time: float) -> str:
        """Return a sentence on a run that meets a bound, or an empty text."""
        if time == float(self.time):
            return f"No program that passes is faster: {show_ticks(time)} ticks is the bound."
        if self.one_stage is not None and time == float(self.one_stage):
            text = ONE_STAGE.capitalize()
            return f"{text}, no program that passes is faster: {show_ticks(time)} ticks is the bound."
        return ""

    def as_json(self) -> dict[str, float | None]:
        """Return the bounds as JSON values."""
        return {"time": float(self.time), "one_stage": None if self.one_stage is None else float(self.one_stage)}


ONE_STAGE = "if each rank has one stage and updates it"


class _Prices(NamedTuple):
    """The time of one layer and one micro-batch, in ticks."""

    forward: Fraction
    backward: Fraction  # to the gradient of the input
    rest: Fraction  # what the gradient of the weight takes besides
    first: Fraction  # the backward of layer 0, where nobody needs the gradient of the input
    loss: Fraction
    update: Fraction
    hop: Fraction  # from the end of work on one rank to work with its result on another

    @property
    def layer(self) -> Fraction:
        """The whole work of a layer that is not the first."""
        return self.forward + self.backward + self.rest

    @property
    def spared(self) -> Fraction:
        """The work that the first layer saves."""
        return self.backward + self.rest - self.first

    def times(self, batches: int) -> "_Prices":
        """Return the prices of so many micro-batches that go through the layers together."""
        forward, backward, rest, first, loss, *left = self
        return _Prices(*[batches * one for one in (forward, backward, rest, first, loss)], *left)

    def down(self, layer: int) -> Fraction:
        """Return the time of the backwards of all layers below one, one after the other."""
        return (layer - 1) * self.backward + self.first if layer else Fraction(0)

    def chain(self, layers: int, hops: int) -> Fraction:
        """Return the time of one micro-batch forward and back, with so many hops each way."""
        return layers * self.forward + self.loss + self.down(layers) + 2 * hops * self.hop


def bounds_of(puzzle: Puzzle) -> Bounds | None:
    """Return the bounds of a puzzle at its own size, or None where none is proved, or it asks for a repair."""
    if puzzle.repair:
        return None
    return bounds(puzzle.layout, puzzle.ideas, puzzle.size, cost_named(puzzle.cost), puzzle.words)


def bounds(
    layout: str, ideas: Collection[str], size: Size, cost: Cost, features: Collection[str] = ()
) -> Bounds | None:
    """Return the bounds of what a layout and ideas ask for, or None where none is proved.

    ``features``: the operations that are granted. No price may fall where a tensor or a group is larger.
    """
    ranks, layers, batches = size["ranks"], size["layers"], size["batches"]
    prices = _prices(size, cost, features)
    if "whole_batch" in ideas:  # the whole batch is one micro-batch that takes as long as all
        prices, batches = prices.times(batches), 1
    if layout == "sharded" and "four_stages" in ideas and layers >= 4:
        return Bounds(_four_stages(prices, layers, _bring(size, cost)))
    if layout == "whole" and "weights_stay" in ideas and not size.get("hosts"):
        return Bounds(_all_layers(prices, layers, Fraction(batches, ranks), 1, PROJECT.kind not in features))
    if layout == "frozen_shards":
        first = _bring(size, cost) if ranks > 1 else Fraction(0)
        return Bounds(first + _all_layers(prices, layers, Fraction(batches, ranks), ranks))
    if layout == "experts_sharded" and {"weights_stay", "as_many_each"} <= {*ideas}:
        return Bounds(max(_experts(prices, size, cost), _way_of_tokens(prices, size, cost)))
    if layout == "both_ends" and "through_all_ranks" in ideas:
        return Bounds(_both_ends(prices, ranks, layers, batches))
    if layout not in ("stages", "sharded_stages") or "own_layers" not in ideas:
        return None
    shards = size["mesh"]["shard"] if layout == "sharded_stages" else 1
    several, left = divmod(ranks, shards)
    each, over = divmod(layers, several)
    if left or over or not each:
        return None
    share = Fraction(batches, shards)
    bring = _bring(size, cost) if shards > 1 else Fraction(0)  # a rank has a part of a weight, and needs the rest
    if several == 1:
        return Bounds(bring + _all_layers(prices, layers, share, shards))
    time = bring + _any_layers(prices, several, each, share)
    one_each = shards == 1 and not {"in_a_v", "dealt_like_cards"} & {*ideas}  # there it has several
    one_stage = _one_stage(prices, several, each, batches) if one_each else time
    return Bounds(time, one_stage if one_stage > time else None)


def _all_layers(prices: _Prices, layers: int, share: Fraction, shards: int, chain: bool = True) -> Fraction:
    """Return the bound of ranks that have all layers, ``share`` micro-batches for each of them. ``chain``: one
    rank does all of a micro-batch's work."""
    work = layers * prices.layer - prices.spared + prices.loss
    busy: Fraction = share * work + layers * prices.update / shards
    return max(busy, prices.chain(layers, 0) + prices.update) if chain else busy


def _any_layers(prices: _Prices, several: int, each: int, share: Fraction) -> Fraction:
    """Return the bound of several stages with any ``each`` layers, ``share`` micro-batches for each rank of one."""
    messages = (several - 1) * prices.hop
    layers, forward_and_backward = several * each, prices.forward + prices.backward
    # all that the first layer does
    found = [prices.chain(layers, several - 1) + max(share - 1, Fraction(0)) * prices.first]
    for place in range(each):  # the j-th lowest layers: that of one rank is as high as this
        high = several * (place + 1) - 1
        begins = high * prices.forward + messages
        found.append(begins + share * (each - place) * prices.layer)
        found.append(begins + share * (each - place) * forward_and_backward + messages + prices.down(high))
    return max(found) + prices.update


def _one_stage(prices: _Prices, ranks: int, each: int, batches: int) -> Fraction:
    """Return the bound of stages of ``each`` layers that follow each other, which their rank updates itself."""
    messages = (ranks - 1) * prices.hop
    begins = (ranks - 1) * each * prices.forward + messages
    back = (ranks - 2) * each * prices.backward + messages  # from the last rank to the first
    last = each * prices.layer - prices.spared - each * prices.forward  # what the first does then, in some order
    return each * prices.update + max(
        begins + batches * each * prices.layer,
        begins + batches * each * (prices.forward + prices.backward) + back + last,
        begins + each * (prices.forward + prices.backward) + prices.loss + back + batches * last,
    )


def _four_stages(prices: _Prices, layers: int, bring: Fraction) -> Fraction:
    """Return the bound where every rank has a part of every weight, and runs a quarter of the layers.

    No rank has a whole weight to begin with. A micro-batch goes through as many ranks as it takes to run all layers, up
    and down. Where a rank runs but one layer, some rank does not run layer 0; after the last gradient of that layer
    something has to come to that rank: of the sum, to update its part, or the part from a rank that has updated it.
    """
    most = layers // 4
    through = -(-layers // most)
    return bring + prices.chain(layers, through - 1) + bring * (most == 1) + prices.update


def _both_ends(prices: _Prices, ranks: int, layers: int, batches: int) -> Fraction:
    """Return the bound where every stage is there twice, and each micro-batch goes through all ranks, half of them from
    either end. A forward may take no time of its own, beside a backward that is longer."""
    thick, found = layers // ranks, list[Fraction]()
    for place in range(ranks // 2):
        hops = ranks - 1 + place
        begins = layers * prices.forward + prices.loss + place * thick * prices.backward + hops * prices.hop
        work = batches * thick * (prices.layer - prices.forward) - (batches // 2) * prices.spared * (place == 0)
        found.append(begins + work + prices.update)
    return max(found)


def _experts(prices: _Prices, size: Size, cost: Cost) -> Fraction:
    """Return the bound of ranks that train on as many micro-batches each, have all dense layers, and whose experts stay
    where they are: what the busiest of them has to do."""
    ranks, layers, batches = size["ranks"], size["layers"], size["batches"]
    dense = sum(not experts_of(layer, size["experts"]) for layer in range(layers))
    share = Fraction(batches, ranks) * (dense * prices.layer - prices.spared + prices.loss)
    own = [share + dense * prices.update] * ranks
    for layer in range(layers):
        if experts_of(layer, size["experts"]):
            for rank in range(ranks):
                work = sum(_of_experts(cost, kind, layer, rank, size) for kind in (EXPERT_FORWARD, EXPERT_BACKWARD))
                own[rank] += batches * work + prices.update
    return max(own)


def _way_of_tokens(prices: _Prices, size: Size, cost: Cost) -> Fraction:
    """Return how long a micro-batch takes at least, forward and back, and the last update: it waits in every layer with
    experts for the rank that has the most to do there, for a micro-batch of each rank."""
    ranks, layers = size["ranks"], size["layers"]
    if ranks == 1 or size.get("mesh"):  # tokens go nowhere, or perhaps to the ranks of one axis only
        return Fraction(0)
    time = prices.loss + _bring(size, cost) + prices.update
    for layer in range(layers):
        if not experts_of(layer, size["experts"]):
            time += prices.forward + (prices.backward if layer else prices.first)
            continue
        for row in (EXPERT_FORWARD, EXPERT_BACKWARD):
            time += ranks * max(_of_experts(cost, row, layer, rank, size) for rank in range(ranks))
            time += 2 * _all_to_all(size, cost, layer)
    return time


def _all_to_all(size: Size, cost: Cost, layer: int) -> Fraction:
    """Return how long an all-to-all takes at least that carries a micro-batch of each rank to its experts, or home."""
    ranks = size["ranks"]
    whole = of_batches("Tokens", layer, size["layers"], frozenset(range(ranks)), size["batches"])
    tokens = [whole.changed(shards=frozenset({rank}), total=ranks).coarse() for rank in range(ranks)]
    largest = max(map(cost.elements, tokens))
    group = mesh_of(size).group(0, None)
    return Fraction(cost.meeting(ALLTOALL.kind, tokens[0], largest, group)) / cost.per_tick


def _of_experts(cost: Cost, row: Computation, layer: int, rank: int, size: Size) -> Fraction:
    """Return how long the experts of a rank take for the tokens of one micro-batch."""
    layers, ranks = size["layers"], size["ranks"]
    piece = {"shards": frozenset({rank}), "total": ranks}
    operands = []
    for kind in row.takes.values():
        whole = of_batches(kind, layer, layers, frozenset({0}), size["batches"])
        operands.append((Labels(kind, layer, layers) if kind == "Weight" else whole).changed(**piece).coarse())
    return Fraction(cost.compute(row.kind, *operands)) / cost.per_tick


def _prices(size: Size, cost: Cost, features: Collection[str]) -> _Prices:
    """Return what a layer and a micro-batch take at the least."""

    def price(kind: str) -> Fraction:
        return exact(cost.price(kind))

    if size.get("train") == TRAINED[1]:  # the gradient of an adapter comes with that of the input, and all weights stay
        whole = price(BACKWARD.with_adapter)
        features = ()
    else:
        whole = price(BACKWARD.kind)
    to_input, to_weight = (
        min(whole, price(half.kind)) if half.kind in features else whole for half in (BACKWARD_INPUT, BACKWARD_WEIGHT)
    )
    rest = min(whole, to_input + to_weight) - to_input
    hop = _message(size, cost, cost.activation_elements)
    return _Prices(price(FORWARD.kind), to_input, rest, to_weight, price(LOSS.kind), price(UPDATE.kind), hop)


def _message(size: Size, cost: Cost, elements: Elements) -> Fraction:
    """Return how long it takes to send and receive so many elements, over the quickest of the links."""
    links = (False, True) if size.get("node_size") else (False,)
    return Fraction(min(cost.transfer(elements, across) for across in links) + cost.receiving) / cost.per_tick


def _bring(size: Size, cost: Cost) -> Fraction:
    """Return how long it takes to bring a rank any part of a weight or of a gradient, by a message or a collective."""
    mesh = mesh_of(size)
    groups = [mesh.group(rank, axis) for rank in range(mesh.ranks) for axis in (None, *mesh.axes)]
    weight = Labels("Weight", 0, size["layers"])
    several = [group for group in groups if len(group.ranks) > 1]
    meetings = [cost.meeting(kind, weight, 0, group) for kind in in_stream("collective") for group in several]
    return min([_message(size, cost, 0), *[Fraction(meeting) / cost.per_tick for meeting in meetings]])
