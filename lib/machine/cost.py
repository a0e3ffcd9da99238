"""How long an operation takes and how big a tensor is: the only place with prices. And a machine's shape: a mesh with
such prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cache, cached_property
from typing import ClassVar

from ..basics.arguments import describe, one_of_names, whole_number
from ..basics.errors import PuzzleError
from ..basics.units import (
    ELEMENTS,
    HIDDEN,
    LENGTH,
    TICKS,
    Elements,
    SizeUnit,
    Unit,
    common_time_unit,
    divided,
    exact,
    show_ticks,
    whole_or_ratio,
)
from ..record.collectives import ALLGATHER
from ..record.experts import is_dealt, layer_of_experts
from ..record.kinds import KINDS, SAVED, Kind
from ..record.labels import NO_EXTRA, ExtraLabels, Labels, experts_of
from ..record.operations import Computation
from ..record.shards import WHOLE, refined
from ..record.table import OPERATIONS, collective, operation
from .mesh import Group, Mesh
from .uneven import Uneven

Ticks = int | float | Fraction
TimeUnits = int | Fraction
"""A time inside the machine: so many time units, of which ``Cost.per_tick`` make a tick. A whole number, or a fraction
where it must be, so nothing is ever rounded."""


ACROSS = "_across"  # ends the name of a price between nodes
NO_PRICE = {"price": False}
"""The metadata of a field of a ``Cost`` that is no number."""
HOST = "host_"  # begins the name of a price on a host


@dataclass(frozen=True)
class Cost:
    """Prices in ticks (0.3 means exactly three tenths) and sizes in elements.

    ``forward`` and ``backward`` are per micro-batch; ``..._across`` is for a group, or a pair of ranks, that is not
    all in one node. An all-reduce costs what every collective costs, unless it has a price of its own, ``allreduce``,
    and each half of a backward, ``backward_input`` and ``backward_weight``, the half of it.
    ``adapter_elements`` is the size of a layer's adapter: two matrices of rank 8. A backward that trains an adapter and
    not its layer takes ``backward_input``.
    ``saved_elements`` and ``saved_selective_elements`` are what forward leaves behind a micro-batch, all of it or
    some. A backward that is given nothing of it takes ``recompute`` ticks more a micro-batch, one that is given some
    ``recompute_selective``.
    A host takes ``host_update`` for an update, and a send from a device to its host, or back, takes ``host_transfer``,
    whatever its size. ``uneven``: which ranks and links are slower than that, if the machine is not even (``Uneven``).
    ``overlapped``, from 0 to 1, is what a forward and a backward that run beside each other save: so much of the
    shorter one. With 0 the two take as long as one after the other, with 1 as long as the longer one.
    Raises PuzzleError for a price that is negative, or not a number.

    By default a layer takes a whole tick per micro-batch, and a message or collective inside a node a fraction of one.
    Links between nodes are five times slower, which is on the gentle side of real machines.

    Another machine is a subclass: further fields are prices of operations of the same name, and the methods below
    decide everything else. Durations are given in time units (``in_time_units(ticks)``).
    """

    time_unit: ClassVar[Unit] = TICKS  # what times are shown in
    size_unit: ClassVar[SizeUnit] = ELEMENTS  # what sizes are shown in
    tiers: ClassVar[tuple[str, ...]] = ("links",)
    """The tiers of links that work at the same time, from those in a node to those between nodes: a rank has a link
    of its own for each."""

    forward: Ticks = 1
    backward: Ticks = 1
    update: Ticks = 0.5
    loss: Ticks = 0
    collective: Ticks = 0.3
    collective_across: Ticks = 1.5
    send: Ticks = 0.2
    send_across: Ticks = 1.0
    receive: Ticks = 0.2
    weight_elements: int = HIDDEN * HIDDEN
    activation_elements: int = HIDDEN * LENGTH
    allreduce: Ticks | None = None
    allreduce_across: Ticks | None = None
    backward_input: Ticks | None = None
    backward_weight: Ticks | None = None
    saved_elements: int = 0
    saved_selective_elements: int = 0
    recompute: Ticks = 0
    recompute_selective: Ticks = 0
    adapter_elements: int = 16 * HIDDEN
    project: Ticks | None = None
    attend: Ticks | None = None
    rest: Ticks | None = None
    backward_rest: Ticks | None = None
    backward_attend: Ticks | None = None
    backward_project: Ticks | None = None
    keys_values_elements: int = 2 * HIDDEN * LENGTH
    attended_elements: int = 2 * HIDDEN * LENGTH
    host_update: Ticks = 2
    host_transfer: Ticks = 1
    overlapped: Ticks = field(default=0, metadata=NO_PRICE)
    orthogonalize: Ticks = 1
    uneven: Uneven | None = field(default=None, metadata=NO_PRICE, kw_only=True)

    def __post_init__(self) -> None:
        self._check_uneven()
        for name in self.prices:
            price = getattr(self, name)
            if price is None and _other(name):
                continue
            if not isinstance(price, (int, float, Fraction)) or not price >= 0 or price == float("inf"):
                raise PuzzleError(
                    f"{name} is no price", where="Cost", expected="a number from 0 up", got=describe(price)
                )
        share = self.overlapped
        if not isinstance(share, (int, float, Fraction)) or not 0 <= share <= 1:
            problem = "overlapped is the part of the shorter one that a forward and a backward save"
            raise PuzzleError(problem, where="Cost", expected="a number from 0 to 1", got=describe(share))
        for whole in {row.step_of for row in OPERATIONS.values() if row.step_of}:
            steps = [kind for kind, row in OPERATIONS.items() if row.step_of == whole]
            together = sum(exact(self.price(step)) for step in steps)
            if together != exact(self.price(whole)):
                expected = f"{', '.join(steps)} that add up to {whole}, {show_ticks(float(self.price(whole)))}"
                got = show_ticks(float(together))
                problem = f"the three steps of a layer do not take the time of {whole}"
                raise PuzzleError(problem, where=type(self).__name__, expected=expected, got=got)

    def _check_uneven(self) -> None:
        if self.uneven is not None and not isinstance(self.uneven, Uneven):
            expected = "for example Uneven(slow={2: 1.1})"
            raise PuzzleError("uneven is no Uneven", where="Cost", expected=expected, got=describe(self.uneven))

    def times(self, length: TimeUnits, factor: Fraction) -> TimeUnits:
        """Return so many times a length, in time units."""
        return length if factor == 1 else whole_or_ratio(length * factor)

    @property
    def prices(self) -> list[str]:
        """The fields that are numbers: all but those of a subclass that say ``metadata=NO_PRICE``."""
        return [one.name for one in fields(self) if one.metadata.get("price", True)]

    @cached_property
    def per_tick(self) -> int:
        """TimeUnits in a tick: every fixed price is a whole number of them."""
        unit = common_time_unit([exact(self.price(name)) for name in self.prices])
        return unit * exact(self.overlapped).denominator

    def price(self, name: str) -> Ticks:
        """Return the price of this name: the field's, or what it is unless it is given."""
        given: Ticks | None = getattr(self, name, None)
        other = _other(name)
        return exact(self.price(other[0])) / other[1] if given is None and other else given  # type: ignore[return-value]

    def in_time_units(self, ticks: Ticks) -> TimeUnits:
        """Return a time in time units, exactly."""
        return whole_or_ratio(exact(ticks) * self.per_tick)

    @cached_property
    def _fixed(self) -> dict[str, TimeUnits]:
        """The prices that are fields, in time units: asked for at every operation. A backward makes again all that
        forward left behind, unless it is given some of it."""
        prices = {name: self.in_time_units(self.price(name)) for name in self.prices}
        for kind, row in OPERATIONS.items():
            if isinstance(row, Computation) and row.makes_again and kind in prices:
                prices[kind] += prices["recompute"]
        return prices

    @cached_property
    def _spared(self) -> dict[str, TimeUnits]:
        """What a backward is spared that is given so much of what forward left behind, in time units."""
        again = self._fixed["recompute"]
        return {"": 0, "selective": again - self._fixed["recompute_selective"], "all": again}

    def elements(self, labels: Labels) -> Elements:
        """Return the size of a tensor, in elements: 0 for a gradient of no micro-batches. Raises PuzzleError for a kind
        of tensor that has no size here."""
        row, total = KINDS[labels.kind], labels.total
        size = row.size
        whole: Elements
        if size == "weight":
            whole = self.adapter_elements if labels.extra.adapter else self.weight_elements
            if not labels.batches and row.adds:
                whole = 0
        elif size == "activation":
            whole = self.activation_elements * len(labels.batches) * row.wide
        elif labels.extra.keep == "selective":
            whole = self.saved_selective_elements * len(labels.batches)
        else:
            whole = self._of_a_batch(row) * len(labels.batches) * row.times
            if labels.extra.heads[1] != 1:
                whole = divided(whole * len(labels.extra.heads[0]), labels.extra.heads[1])
        return whole if total == 1 else divided(whole * len(labels.shards), total)

    def _of_a_batch(self, row: Kind) -> int:
        """Return the size of a tensor of this kind for a micro-batch: that of its field, or what its row says."""
        each: int | None = getattr(self, f"{row.size}_elements", None)
        if each is None and not row.wide:
            problem = f"{type(self).__name__} has no size for {row.name}"
            raise PuzzleError(problem, expected=f"a field {row.size}_elements", line="")
        return self.activation_elements * row.wide if each is None else each

    def compute(self, kind: str, *labels: Labels) -> TimeUnits:
        """Return how long an operation of the compute stream takes on operands with these labels, in time units: of one
        that is done with a piece of a weight, the share of it. A backward without what forward left behind makes that
        again, and one that trains an adapter leaves out the gradient of the weight.
        Raises PuzzleError for an operation without a price."""
        price, row = self._fixed.get(kind), OPERATIONS.get(kind)
        if price is None:
            if row is None or row.unless_given is None:
                raise PuzzleError(f"{type(self).__name__} has no price for {kind}", expected=f"a field {kind}", line="")
            price = self._fixed[kind] = self.in_time_units(self.price(kind))
        assert row is not None
        if not row.by_batch:
            return price
        batches, last = len(labels[0].batches), labels[-1]
        if last.total == 1 == labels[0].total and last.extra is NO_EXTRA:
            return price * batches if batches != 1 else price
        if row.share is not None:
            return whole_or_ratio(price * batches * row.share(labels))
        if last.extra.adapter and row.trains:
            price, last = self._fixed[row.with_adapter or kind], labels[-2]
        if row.backward:
            price -= self._spared[last.extra.keep]
        if not row.trains:
            return price * batches
        # The last one is the weight, or what a forward has left behind, which is of the same piece.
        return divided(price * batches * len(last.shards) * len(labels[0].shards), last.total * labels[0].total)

    def compute_on_host(self, kind: str, *labels: Labels) -> TimeUnits:
        """Return how long an operation of the compute stream takes on a host, in time units. Raises PuzzleError for an
        operation without a price there."""
        price = self._fixed.get(HOST + kind)
        if price is None:
            raise PuzzleError(
                f"{type(self).__name__} has no price for {kind} on a host", expected=f"a field {HOST}{kind}", line=""
            )
        return price

    @cached_property
    def sent_as_stored(self) -> bool:
        """Whether whatever is sent has the size that it has in memory."""
        return type(self).sent is Cost.sent

    def sent(self, labels: Labels) -> Elements:
        """Return how much of a tensor goes over the links: a weight may be kept in more bytes than it is gathered
        in."""
        return self.elements(labels)

    @cached_property
    def without_workspace(self) -> bool:
        """Whether no operation holds anything besides its operands. (To ask once saves a hundredth of a run.)"""
        return not self.saved_elements and type(self).workspace is Cost.workspace

    def workspace(self, kind: str, *labels: Labels) -> Elements:
        """Return how many elements an operation of the compute stream holds while it runs, besides what is stored and
        its operands: of a backward, the inner activations that it makes again."""
        row = OPERATIONS[kind]
        if not self.saved_elements or not isinstance(row, Computation) or not row.makes_again:
            return 0
        inp, _, weight, *more = labels
        saved = [one for one in more if one.kind == SAVED]
        again = Labels(SAVED, inp.layer, inp.layers, batches=inp.batches, shards=weight.shards, total=weight.total)
        all_of_it = self.elements(again.changed(extra=ExtraLabels(keep="all"))) * len(inp.shards)
        return divided(all_of_it, inp.total) - sum(map(self.elements, saved))

    def saved_beside(self, length: TimeUnits) -> TimeUnits:
        """Return what two pieces of work save that run beside each other for so long, in time units."""
        return whole_or_ratio(exact(self.overlapped) * length)

    @cached_property
    def leaves_nothing(self) -> bool:
        """Whether forward leaves nothing in memory by itself."""
        return type(self).left_behind is Cost.left_behind

    def left_behind(self, kind: str, *labels: Labels) -> Elements:
        """Return how many elements a forward leaves in memory by itself, until backward: frameworks keep the inner
        activations of a layer unless they are asked not to. Here a program says what is kept."""
        return 0

    def meeting(self, kind: str, tensor: Labels, size: Elements, group: Group) -> TimeUnits:
        """Return how long a collective takes, in time units. ``size``: elements of the largest tensor that a member
        brings or gets; ``tensor``: labels of one that is brought."""
        fixed, across = self._fixed, ACROSS if group.across else ""
        return fixed[kind + across if kind + across in fixed else "collective" + across]

    def transfer(self, size: Elements, across: bool) -> TimeUnits:
        """Return how long a send of so many elements takes its sender, in time units; ``across``: to another node."""
        return self._fixed["send_across" if across else "send"]

    def message(self, labels: Labels | None, size: Elements, across: bool, ranks: int) -> TimeUnits:
        """Return how long a send of a tensor, or of a plain value (None), takes its sender, in time units: of an
        activation that is a transfer.

        All else has the size of a weight, which collectives carry in one piece for each of the ``ranks``. A message of
        several such pieces takes as long as one gather between two ranks for each of them, and a message of less as
        long as one. So no way to pass weights or gradients on by messages is faster than the collective.
        """
        transfer = self.transfer(size, across)
        if labels is None or not size or KINDS[labels.kind].size != "weight":
            return transfer
        pieces = max(Fraction(1), Fraction(len(labels.shards) * ranks, labels.total))
        pair = Group((0, 1), {}, 1 if across else 2, "")
        gathers = pieces * self.meeting(ALLGATHER.kind, labels, 2 * size / pieces, pair)
        return max(transfer, whole_or_ratio(gathers))

    def transfer_to_host(self, size: Elements) -> TimeUnits:
        """Return how long a send of so many elements between a device and its host takes its sender, in time units."""
        return self._fixed["host_transfer"]

    @property
    def node_size(self) -> int | None:
        """How many ranks a node has, where the prices are those of a machine that knows; else None."""
        return None

    def check_ranks(self, ranks: int, hosts: int) -> None:
        """Raise PuzzleError if the machine that these prices describe has fewer ranks."""

    def check_experts(self, experts: int) -> None:
        """Raise PuzzleError if these are the prices of another number of experts in a layer."""

    @property
    def routing(self) -> tuple[tuple[int, ...], int]:
        """How many tokens go to each expert of a layer, in any unit, and to how many a token goes; () where all
        experts get as many."""
        return (), 1

    @property
    def shortest_transfer(self) -> TimeUnits:
        """The shortest time, in time units, from the start of any send to the end of its receive."""
        return min(map(self._fixed.__getitem__, ("send", "send_across", "host_transfer"))) + self.receiving

    @property
    def receiving(self) -> TimeUnits:
        """How long a receive takes once its message is there, in time units."""
        return self._fixed["receive"]

    def taking_in(self, size: Elements, across: bool) -> TimeUnits:
        """Return how long after the message before so many elements are in at the earliest, in time units."""
        return 0

    def in_words(self, kind: str) -> str:
        """Return the price of an operation for people: ``0.3 ticks (1.5 between nodes)``."""
        row = operation(kind)
        name = kind if hasattr(self, kind) else row.price
        price, across = self.price(name), self.price(f"{name}_across") if hasattr(self, f"{name}_across") else None
        if isinstance(row, Computation) and row.by_batch and price:
            return f"{_ticks(price)} per micro-batch"
        return _ticks(price) + ("" if across is None else f" ({show_ticks(float(across))} between nodes)")


def _other(name: str) -> tuple[str, int | Fraction] | None:
    """Return (price, divisor) that an unset price defaults to, or None for a price that has to be set."""
    row = OPERATIONS.get(name.removesuffix(ACROSS))
    if row is None or row.unless_given is None:
        return None
    other, part = row.unless_given
    return other + ACROSS * name.endswith(ACROSS), part


def _ticks(price: Ticks) -> str:
    return f"{show_ticks(float(price))} tick{'s' * (price != 1)}" if price else "no time"


SIZES = 256  # of messages, whose times are kept


@dataclass(frozen=True)
class RingCost(Cost):
    """Links whose prices depend on sizes: a latency in ticks and a bandwidth in elements per tick, in a node and
    between nodes. The fields ``collective``, ``send`` and ``receive`` are ignored.

    A ring of n ranks takes (n - 1) x latency + (n - 1)/n x size/bandwidth, an all-reduce twice that; point to point
    takes latency + size/bandwidth, and receiving nothing more (the alpha-beta model; Thakur, Rabenseifner, Gropp,
    "Optimization of Collective Communication Operations in MPICH", 2005). A ring that leaves a node is as slow as the
    slowest of its links. Raises PuzzleError for a bandwidth of 0.
    """

    latency: Ticks = 0.01
    bandwidth: Ticks = 1_000_000
    latency_across: Ticks = 0.05
    bandwidth_across: Ticks = 200_000

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("bandwidth", "bandwidth_across"):
            if not getattr(self, name):
                raise PuzzleError(f"{name} is no price", where="RingCost", expected="a number above 0", got="0")

    def meeting(self, kind: str, tensor: Labels, size: Elements, group: Group) -> TimeUnits:
        """Return how long a collective takes as a ring, in time units."""
        ranks = len(group.ranks)
        which = kind, size, ranks, group.across
        took = self._meetings.get(which)
        if took is None:
            latency, bandwidth = exact(self.latency), exact(self.bandwidth)
            if group.across:
                latency, bandwidth = exact(self.latency_across), min(bandwidth, exact(self.bandwidth_across))
            once = (ranks - 1) * latency + Fraction(ranks - 1, ranks) * size / bandwidth
            took = self.in_time_units(collective(kind).rounds * once)
            if len(self._meetings) < SIZES:
                self._meetings[which] = took
        return took

    def transfer(self, size: Elements, across: bool) -> TimeUnits:
        """Return how long a send takes, in time units."""
        took = self._transfers.get((size, across))
        if took is None:
            latency, bandwidth = self.latency, self.bandwidth
            if across:
                latency, bandwidth = self.latency_across, self.bandwidth_across
            took = self.in_time_units(exact(latency) + size / exact(bandwidth))
            if len(self._transfers) < SIZES:
                self._transfers[size, across] = took
        return took

    @cached_property
    def _transfers(self) -> dict[tuple[Elements, bool], TimeUnits]:
        """What sends of some sizes have taken: a program sends tensors of few sizes, many of each."""
        return {}

    @cached_property
    def _meetings(self) -> dict[tuple[str, Elements, int, bool], TimeUnits]:
        """What collectives of some sizes have taken."""
        return {}

    @property
    def shortest_transfer(self) -> TimeUnits:
        """The time of a message of no size, in time units."""
        return min(
            self.in_time_units(self.latency), self.in_time_units(self.latency_across), self._fixed["host_transfer"]
        )

    @property
    def receiving(self) -> TimeUnits:
        """Nothing: a message is received when it is there."""
        return 0


@dataclass(frozen=True)
class WireCost(RingCost):
    """Links on which a message costs what it costs, whatever it carries: a rank sends one at a time, each in latency +
    size/bandwidth, and takes in one at a time, each in size/bandwidth. Neither disturbs the other. Collectives are
    rings (see RingCost), and a ring by hand, piece by piece, takes just as long."""

    def message(self, labels: Labels | None, size: Elements, across: bool, ranks: int) -> TimeUnits:
        """Return how long a send takes, in time units."""
        return self.transfer(size, across)

    def taking_in(self, size: Elements, across: bool) -> TimeUnits:
        """Return how long it takes until so many elements are in, in time units."""
        latency = self.latency_across if across else self.latency
        return self.transfer(size, across) - self.in_time_units(latency)


@dataclass(frozen=True)
class ExpertCost(Cost):
    """Prices of layers of which every other one, from layer 1 on, has ``experts`` of ``expert_elements`` each.

    ``loads`` says how many tokens go to each expert, in any unit: ``(4, 2, 2, 2, 2, 2, 1, 1)``; from a layer with
    experts to the next these are turned by one, so that expert 0 gets what expert 1 got. Without ``loads`` all get
    the same. ``expert`` takes ``forward``, and ``backward_expert`` takes ``backward``, for each micro-batch, times the
    share of the tokens that go to these experts. A token goes to ``chosen`` experts, so its numbers travel so often.
    Raises PuzzleError for a number of experts below 1, for more chosen than that, and for loads that are not theirs.
    """

    experts: int = 8
    loads: tuple[int, ...] = field(default=(), metadata=NO_PRICE)
    chosen: int = 1
    expert_elements: int = HIDDEN * HIDDEN

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("experts", "chosen"):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise PuzzleError(f"{name} is a number of experts", where="Cost", expected="from 1 up", got=repr(value))
        if self.chosen > self.experts:
            problem = f"a token cannot go to {self.chosen} of {self.experts} experts"
            expected = f"chosen={self.experts}, for all of them, or fewer"
            raise PuzzleError(problem, where="Cost", expected=expected, got=f"chosen={self.chosen}")
        loads = self.loads
        right = isinstance(loads, tuple) and all(type(load) is int and load >= 0 for load in loads)
        if not right or (loads and (len(loads) != self.experts or not any(loads))):
            expected = f"{self.experts} whole numbers from 0 up, one for each expert, or ()"
            raise PuzzleError("loads are the tokens of each expert", where="Cost", expected=expected, got=repr(loads))

    def check_experts(self, experts: int) -> None:
        """Raise PuzzleError unless the layers have as many experts as there are prices for."""
        if experts != self.experts:
            problem = f"these prices are of layers with {self.experts} experts"
            expected, got = f"experts={self.experts}", f"experts={experts}"
            raise PuzzleError(problem, where="cost", expected=expected, got=got)

    @property
    def routing(self) -> tuple[tuple[int, ...], int]:
        """The loads of the experts, and how many of them a token goes to."""
        return self.loads, self.chosen

    def share(self, labels: Labels) -> Fraction:
        """Return which share of all tokens these are, of what is cut by experts.

        >>> cost = ExpertCost(experts=4, loads=(3, 1, 0, 0))
        >>> tokens = Labels("Tokens", layer=1, layers=4, shards=frozenset({0}), total=2)
        >>> cost.share(tokens), cost.share(tokens.changed(layer=3))
        (Fraction(1, 1), Fraction(1, 4))
        """
        total, loads = labels.total, self.loads or (1,) * self.experts
        turned = layer_of_experts(labels) // 2
        finer = total if total % self.experts == 0 else total * self.experts
        pieces = finer // self.experts
        mine = sum(loads[(piece // pieces + turned) % self.experts] for piece in refined(labels.shards, total, finer))
        return Fraction(mine, sum(loads) * pieces)

    def elements(self, labels: Labels) -> Elements:
        """Return the size of a tensor, in elements: of tokens, of all numbers that go to their experts."""
        row = KINDS[labels.kind]
        if is_dealt(labels.kind):
            return whole_or_ratio(self.activation_elements * len(labels.batches) * self.chosen * self.share(labels))
        if row.size == "weight" and experts_of(labels.layer, self.experts) and not labels.extra.adapter:
            if row.adds and not labels.batches:
                return 0
            return divided(self.experts * self.expert_elements * len(labels.shards), labels.total)
        return super().elements(labels)

    def compute(self, kind: str, *labels: Labels) -> TimeUnits:
        """Return how long an operation of the compute stream takes, in time units: what experts do takes as long as
        they have tokens."""
        if not is_dealt(labels[0].kind):
            return super().compute(kind, *labels)
        of_all = super().compute(kind, *[one.changed(shards=WHOLE, total=1) for one in labels])
        return whole_or_ratio(of_all * self.share(labels[0]))


@dataclass(frozen=True)
class ExpertRingCost(ExpertCost, RingCost):
    """The same prices of experts, on links whose prices depend on sizes (see RingCost). An all-to-all of n ranks takes
    (n - 1) x latency + (n - 1)/n x size/bandwidth, of the largest tensor that any of them brings or gets."""


_usual = cache(Cost)  # of a machine of which nothing is said: a short run takes no longer than to make it
LINKS = ("eager", "rendezvous", "ordered")
"""Whether a send waits: for nobody; until its receive is posted; or that, and receives stand in their rank's queue."""


@dataclass(frozen=True)
class Shape:
    """Where ranks sit, what everything costs, how many experts every other layer has, from layer 1 on (0, if all layers
    are dense), whether sends wait for their receives (``LINKS``), how many tokens each micro-batch has (none, if they
    do not matter), whether updates take orthogonalized gradients (``muon``), whether only values are checked
    (``quiet``), and whether the last layer uses the weight of the first (``tied``)."""

    mesh: Mesh
    cost: Cost
    experts: int = 0
    links: str = LINKS[0]
    tokens: tuple[int, ...] = ()
    muon: bool = False
    quiet: bool = False
    tied: bool = False

    @classmethod
    def of(
        cls,
        ranks: int,
        mesh: Mapping[str, int] | None = None,
        node_size: int | None = None,
        cost: Cost | None = None,
        hosts: int = 0,
        experts: int = 0,
        links: str = LINKS[0],
        tokens: Iterable[int] = (),
        muon: bool = False,
        quiet: bool = False,
        tied: bool = False,
    ) -> Shape:
        """Return the shape that a learner describes. Raise PuzzleError when the parts do not fit together."""
        if mesh is not None and not isinstance(mesh, Mapping):
            expected = 'for example {"replica": 2, "shard": 4}'
            raise PuzzleError("mesh must be a dict of axes", expected=expected, got=describe(mesh))
        if cost is not None and not isinstance(cost, Cost):
            raise PuzzleError("cost must be a Cost", expected="for example Cost(collective=0.5)", got=describe(cost))
        cost = _usual() if cost is None else cost
        where = Mesh(ranks, mesh, cost.node_size if node_size is None else node_size, hosts)
        cost.check_ranks(where.ranks, where.hosts)
        experts = whole_number("experts", experts, least=0)
        cost.check_experts(experts)
        one_of_names("links", links, LINKS)
        if isinstance(tokens, str) or not isinstance(tokens, Iterable):
            raise PuzzleError("tokens must be a list of numbers", expected="for example (40, 10)", got=describe(tokens))
        counts = tuple([whole_number("tokens", one) for one in tokens])
        return cls(where, cost, experts, links, counts, muon, bool(quiet), bool(tied))

    @property
    def ranks(self) -> int:
        """How many devices there are."""
        return self.mesh.ranks

    @property
    def everyone(self) -> int:
        """How many ranks there are, devices and hosts."""
        return self.mesh.everyone
