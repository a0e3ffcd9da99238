"""The ideas that a puzzle asks for, beyond its layout and its target. Each is one sentence, which the puzzle's page
shows, and a check that reads the log.

An idea is about tensors and the way they take, whichever verb carries them: a weight that is sent is as little at home
as one that is gathered.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import lcm
from typing import NamedTuple

from ..basics.errors import Place, PuzzleError, numbered
from ..basics.units import Elements, Ratio, Unit, divided
from ..machine.outcome import Outcome
from ..record.attention import PROJECT
from ..record.collectives import ALLGATHER, SCATTERREDUCE
from ..record.events import Event
from ..record.kinds import KINDS
from ..record.labels import experts_of, of_batches
from ..record.shards import WHOLE, refined
from ..record.table import RECEIVE, SEND, makes_weight_grads, training
from ..record.training import UPDATE


class Broken(NamedTuple):
    """How a run does not keep an idea: what is wrong, and at which record of the log, or on which rank."""

    problem: str
    at: Event | int | None


class Idea(NamedTuple):
    """One idea: its name, its sentence, and a function that yields where a run does not keep it."""

    name: str
    sentence: str
    broken: Callable[[Outcome], Iterator[Broken]]

    def check(self, outcome: Outcome) -> None:
        """Raise PuzzleError at the first place where a run does not keep the idea."""
        for problem, at in self.broken(outcome):
            place = place_at(at, outcome.unit) if isinstance(at, Event) else Place(at)
            raise PuzzleError("idea", where=place, expected=self.sentence, line="", found=problem, idea=self.name)


def place_at(event: Event, unit: Unit) -> Place:
    """Return the place of a record in a run, with its moment in a unit."""
    moment = f"at {unit.at(unit.brief(event.issued))}"
    return Place(event.rank, event.kind, event.layer, tick=event.issued, detail=moment)


IDEAS: dict[str, Idea] = {}
"""The ideas by name, as specs name them."""


def idea(sentence: str) -> Callable[[Callable[[Outcome], Iterator[Broken]]], Idea]:
    """Return a decorator that makes an idea of a check, and enters it into ``IDEAS`` under the name of the check."""

    def made(broken: Callable[[Outcome], Iterator[Broken]]) -> Idea:
        return IDEAS.setdefault(broken.__name__, Idea(broken.__name__, sentence, broken))

    return made


# -- which micro-batches a rank works on -------------------------------------------------------------------


def _training(outcome: Outcome) -> Iterator[Event]:
    """Yield the forwards and backwards of layers, and their parts."""
    trains = training()
    return (event for event in outcome.events if event.kind in trains)


@idea("Each forward and backward takes one micro-batch.")
def one_micro_batch(outcome: Outcome) -> Iterator[Broken]:
    for event in _training(outcome):
        if len(event.batches) > 1:
            yield Broken(f"it works on {numbered('micro-batch', event.batches)} at once", event)


@idea("Each forward and backward takes the whole batch at once.")
def whole_batch(outcome: Outcome) -> Iterator[Broken]:
    for event in _training(outcome):
        if len(event.batches) < outcome.batches:
            yield Broken(f"it works on {numbered('micro-batch', event.batches)} alone", event)


@idea("Every rank trains on the same number of micro-batches.")
def as_many_each(outcome: Outcome) -> Iterator[Broken]:
    mine = defaultdict[int, set[int]](set)
    for event in _training(outcome):
        if not experts_of(event.layer or 0, outcome.experts):  # which get tokens of all micro-batches
            mine[event.rank] |= event.batches
    share = outcome.batches // outcome.ranks
    for rank in range(outcome.ranks):
        if len(mine[rank]) != share:
            on = numbered("micro-batch", mine[rank]) if mine[rank] else "none"
            yield Broken(f"it trains on {on}, where the share of each rank is {share}", rank)


# -- which layers a rank runs ------------------------------------------------------------------------------


@idea("Each rank runs only layers whose weights it has loaded.")
def own_layers(outcome: Outcome) -> Iterator[Broken]:
    loaded = {state.rank: {labels.layer for labels in state.began} for state in outcome.final_states}
    for event in _training(outcome):
        if event.layer not in loaded[event.rank]:
            yield Broken(f"it runs layer {event.layer}, whose weight it has not loaded", event)


@idea("Every rank is one of four stages: it runs a quarter of the layers, on one micro-batch.")
def four_stages(outcome: Outcome) -> Iterator[Broken]:
    run, own = defaultdict[int, set[int | None]](set), defaultdict[int, set[int]](set)
    for event in _training(outcome):
        run[event.rank].add(event.layer)
        own[event.rank] |= event.batches
        if len(run[event.rank]) > outcome.layers // 4:
            yield Broken(f"it runs {len(run[event.rank])} of {outcome.layers} layers", event)
        if len(own[event.rank]) > 1:
            yield Broken(f"it works on {numbered('micro-batch', own[event.rank])}", event)


@idea("Layers are dealt like cards: the next stage is on the next rank, and rank 0 follows the last rank.")
def dealt_like_cards(outcome: Outcome) -> Iterator[Broken]:
    runs = defaultdict[int, set[int]](set)
    for event in _training(outcome):
        runs[event.layer or 0].add(event.rank)
    owner = {-1: -1} | {layer: min(ranks) for layer, ranks in runs.items() if len(ranks) == 1}
    for layer in range(outcome.layers):
        before, rank = owner.get(layer - 1), owner.get(layer)
        if before is not None and rank is not None and rank not in (before, (before + 1) % outcome.ranks):
            after = f", after layer {layer - 1} on rank {before}" if layer else ""
            yield Broken(f"it has layer {layer}{after}", rank)


@idea("Layers lie in a V: their first half goes down the ranks, stage by stage, and their second half comes back up.")
def in_a_v(outcome: Outcome) -> Iterator[Broken]:
    thick = outcome.layers // (2 * outcome.ranks)
    for event in _training(outcome):
        rank = min(event.layer or 0, outcome.layers - 1 - (event.layer or 0)) // thick
        if event.rank != rank:
            yield Broken(f"it runs layer {event.layer}, which belongs on rank {rank}", event)


@idea("Every micro-batch goes through all ranks, one stage on each. Each half of the ranks begins half of them.")
def through_all_ranks(outcome: Outcome) -> Iterator[Broken]:
    thick, places = outcome.layers // outcome.ranks, outcome.ranks // 2
    first, begins = dict[tuple[int, int], int](), dict[int, int]()
    for event in _training(outcome):
        stage = (event.layer or 0) // thick
        for mb in event.batches:
            before = first.setdefault((event.rank, mb), stage)
            if before != stage:
                yield Broken(f"it runs stage {stage} of micro-batch {mb}, of which it has run stage {before}", event)
            half = (event.rank // places + (stage >= places)) % 2  # where a micro-batch begins whose stage runs here
            if begins.setdefault(mb, half) != half:
                yield Broken(f"it runs stage {stage} of micro-batch {mb}, which began in the other half", event)
    for half in range(2):
        number = [*begins.values()].count(half)
        if number > outcome.batches // 2:
            yield Broken(f"{number} of {outcome.batches} micro-batches begin in half {half}", None)


@idea("No rank runs all layers.")
def several_kinds(outcome: Outcome) -> Iterator[Broken]:
    if outcome.layers == 1 or min((outcome.mesh or {"all": outcome.ranks}).values()) == 1:
        return  # the layers may be divided over the axis that has one rank only
    run = defaultdict[int, set[int | None]](set)
    for event in _training(outcome):
        run[event.rank].add(event.layer)
        if len(run[event.rank]) == outcome.layers:
            yield Broken(f"it runs all {outcome.layers} layers", event)


@idea("In each layer, each slice of the sequence is projected on one rank only.")
def each_slice_on_one_rank(outcome: Outcome) -> Iterator[Broken]:
    made = [event for event in outcome.events if event.kind == PROJECT.kind]
    parts = [event.slices[0] if event.slices else (WHOLE, 1) for event in made]
    finest, owner = lcm(*[total for _, total in parts]), dict[tuple[int | None, int], int]()
    for event, part in zip(made, parts, strict=True):
        for one in refined(*part, finest):
            rank = owner.setdefault((event.layer, one), event.rank)
            if rank != event.rank:
                yield Broken(f"it projects slice {one} of {finest}, as rank {rank} does", event)


# -- what travels ------------------------------------------------------------------------------------------


def _moves(outcome: Outcome, *kinds: str) -> Iterator[tuple[Event, str]]:
    """Yield the records of communications that bring these kinds of tensors from one rank to another, each with what it
    moves in words."""
    for event in outcome.events:
        if event.tensor in kinds and len(event.group) > 1:
            yield event, f"{KINDS[event.tensor].word} of layer {event.layer}"


@idea("Weights and optimizer states stay on the ranks that have loaded them.")
def weights_stay(outcome: Outcome) -> Iterator[Broken]:
    for event, what in _moves(outcome, "Weight", "OptState"):
        yield Broken(f"it moves the {what}", event)


@idea("No collective is called.")
def by_hand(outcome: Outcome) -> Iterator[Broken]:
    for event in outcome.events:
        if event.stream == "collective":
            yield Broken(f"it calls {event.kind} for layer {event.layer}", event)


@idea("Of the weights, only updated ones travel.")
def only_updated_weights(outcome: Outcome) -> Iterator[Broken]:
    """Once a rank has updated a layer, or has got some of it from others, all gradients of that layer are done, and its
    old weight is of no use to anybody."""
    updated = set[tuple[int, int | None]]()
    for event in outcome.layer_by_layer:
        if event.kind == UPDATE.kind or (event.kind == RECEIVE.kind and event.tensor == "Weight"):
            updated.add((event.rank, event.layer))
        elif event.tensor == "Weight" and len(event.group) > 1 and (event.rank, event.layer) not in updated:
            yield Broken(f"it gives away the weight of layer {event.layer}, which it has not updated", event)


@idea("Generators compute nothing.")
def generators_receive(outcome: Outcome) -> Iterator[Broken]:
    for event in outcome.events:
        if event.stream == "compute" and event.rank >= (outcome.mesh or {})["place"]:
            yield Broken(f"this generator computes: {event.kind} of layer {event.layer}", event)


@idea("Optimizer states and updates are on hosts only.")
def updates_on_hosts(outcome: Outcome) -> Iterator[Broken]:
    for state in outcome.final_states[: outcome.ranks]:
        for labels in state.began:
            if labels.kind == "OptState":
                yield Broken(f"this device keeps the state of layer {labels.layer}", state.rank)
    for event in outcome.device_events:
        if event.kind == UPDATE.kind:
            yield Broken(f"this device updates layer {event.layer}", event)


@idea("Keys and values, and their gradients, travel by collectives only.")
def keys_by_collectives(outcome: Outcome) -> Iterator[Broken]:
    for event, what in _moves(outcome, "KeysValues", "KeysValuesGrad"):
        if event.stream != "collective":
            yield Broken(f"it sends {what}", event)


@idea("No collective moves keys and values, or their gradients: they go round.")
def keys_go_round(outcome: Outcome) -> Iterator[Broken]:
    for event, what in _moves(outcome, "KeysValues", "KeysValuesGrad"):
        if event.stream == "collective":
            yield Broken(f"a collective moves {what}", event)


@idea("A gradient leaves its node only when all micro-batches of that node are in it.")
def summed_across_once(outcome: Outcome) -> Iterator[Broken]:
    node, share = outcome.node_size, outcome.batches // (outcome.mesh or {}).get("replica", 1)
    for event in outcome.layer_by_layer:
        leaves = node and len({rank // node for rank in event.group}) > 1 and event.kind != RECEIVE.kind
        if leaves and event.tensor == "WeightGrad" and event.elements and len(event.batches) < share:
            some = f"{numbered('micro-batch', event.batches)} of {share}"
            yield Broken(f"the gradient of {some} goes to another node", event)


@idea("No rank ever receives a whole summed gradient, neither in one call nor piece by piece.")
def no_whole_gradient(outcome: Outcome) -> Iterator[Broken]:
    """Nothing can be taken out of a sum. So a rank with a whole sum has received as many elements as a whole weight has
    of each micro-batch in it that it has not trained, in sums without any other micro-batch. Any way to carry out a
    reduce-scatter brings a rank of n at most (n - 1)/n of that."""
    received = defaultdict[tuple[int, int | None], list[_Arrival]](list)
    for arrival in _arrivals(outcome.layer_by_layer):
        received[arrival.event.rank, arrival.event.layer].append(arrival)
    share = Ratio(outcome.ranks - 1, outcome.ranks)
    for (_, layer), arrivals in received.items():
        others = arrivals[0].others
        whole = of_batches("WeightGrad", layer or 0, outcome.layers, others, outcome.batches)
        most = share * outcome.cost.elements(whole)
        if sum([one.elements for one in arrivals]) > most and (pieces := _in_a_whole_sum(arrivals, most)):
            yield Broken("the rank receives a whole summed gradient", pieces[-1].event)


class _Arrival(NamedTuple):
    event: Event
    elements: Elements  # of a gradient that a rank received
    others: frozenset[int]  # the micro-batches of other ranks in their sum


_BROUGHT: Mapping[str, Callable[[Elements, Sequence[Elements]], Elements]] = {
    ALLGATHER.kind: lambda own, all_of_them: sum(all_of_them) - own,
    SCATTERREDUCE.kind: lambda own, all_of_them: divided(max(all_of_them), len(all_of_them)),
    RECEIVE.kind: lambda own, all_of_them: own,
}
"""The number of elements that an operation brings a rank, from the sizes of its own tensor and of all in its group. Of
an operation that is not listed, such as an all-reduce, it is the largest of these."""


def _arrivals(events: Sequence[Event]) -> Iterator[_Arrival]:
    """Yield what ranks receive of gradients with micro-batches of others."""
    trained, meetings = defaultdict[object, set[int]](set), defaultdict[object, list[Event]](list)
    received: list[Event] = []
    for event in events:
        if makes_weight_grads(event.kind):
            trained[event.rank, event.layer] |= event.batches
        elif event.tensor == "WeightGrad" and event.kind != SEND.kind:
            meetings[event.op].append(event)
            received.append(event)
    sums = {op: frozenset[int]().union(*[one.batches for one in members]) for op, members in meetings.items()}
    for event in received:
        members, others = meetings[event.op], sums[event.op] - trained[event.rank, event.layer]
        if others and (len(members) > 1 or event.kind == RECEIVE.kind):
            sizes = [one.elements for one in members]
            brought = _BROUGHT[event.kind](event.elements, sizes) if event.kind in _BROUGHT else max(sizes)
            yield _Arrival(event, brought, others)


def _in_a_whole_sum(arrivals: list[_Arrival], most: Elements) -> list[_Arrival]:
    """Return the arrivals that may be parts of a whole sum, with more than ``most`` of each micro-batch together."""
    while True:
        came = defaultdict[int, Elements](int)
        for arrival in arrivals:
            for batch in arrival.others:
                came[batch] += arrival.elements
        short = {batch for batch in came if came[batch] <= most}
        if not short:
            return arrivals
        arrivals = [arrival for arrival in arrivals if not arrival.others & short]
