"""A cluster, and what a transformer costs on it: a ``Cost`` in seconds and bytes, for any program of the course.

A layer of a run stands for several of the model: 96 of these in a run of 24 layers are four at a time. A rank of a run
is a group of ``tensor`` x ``context`` GPUs, all of which do the same at the same time. Their traffic is part of the
price of a layer (see ``layer``).

In a run with experts, layer 0 stands for attention, and what else each token meets, of the model's first layers, layer
1 for their experts, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from ..basics.arguments import describe, instance_of, one_of_names, whole_number
from ..basics.errors import PuzzleError
from ..basics.units import BYTES, SECONDS, Elements, SizeUnit, Unit
from ..machine.cost import Cost, TimeUnits
from ..machine.mesh import Group
from ..record.attention import ROWS as STEPS
from ..record.experts import ALLTOALL, is_dealt
from ..record.experts import ROWS as OF_EXPERTS
from ..record.kinds import KINDS, SAVED
from ..record.labels import Labels
from ..record.operations import Computation
from ..record.table import OPERATIONS, collective
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS, UPDATE
from .hardware import Hardware
from .layer import Layer
from .transformer import BACKWARD_MOVES, FORMULAS, MAIN, Recompute, Transformer, check_recompute, check_widths, divisors

NANOSECONDS = 10**9  # time units in a second
LORA_RANK, FEW_BITS = 16, 4
"""Adapters, and frozen weights beside them, as they are advised where nothing else fits."""
GRADIENT_TOUCHED, UNSCALED_TOUCHED = 8, 5
"""How often an optimizer step reads or writes a gradient: to unscale, measure, clip, use and clear it. Where weights
have 4 bytes nothing is scaled: 4.9 was measured on an H100 (``make papers``)."""
PRICED = (FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, LOSS, UPDATE, *STEPS, *OF_EXPERTS)
"""The operations of the compute stream whose time is known here. Others are refused."""
STEP_KINDS = frozenset(row.kind for row in STEPS)
EXPERT_KINDS = frozenset(row.kind for row in OF_EXPERTS)
OF_ATTENTION: dict[str, Callable[[Transformer], float]] = {
    "keys_values": lambda model: 2 * model.kv_width,
    "attended": lambda model: model.query_width + model.value_width,
}
"""How wide the tensors of attention are, by whose size they have: keys and values; queries and what they found."""
NAMES = {"megatron": "Megatron's", "palm": "PaLM's", "": "no"}


class Mfu(float):
    """The part of the peak that is reached by the operations that a formula counts. ``formula``: its name."""

    formula: str = ""

    def __str__(self) -> str:
        return f"{100 * self:.1f} % of the peak, by {NAMES[self.formula]} formula"

    __repr__ = __str__


@dataclass(frozen=True, kw_only=True)
class RealCost(Cost):
    """The prices of a model on a cluster, in seconds and bytes; made by ``Cluster.cost``, which explains its arguments.

    The fields of ``Cost`` are those of a layer in the middle of the model.
    """

    time_unit: ClassVar[Unit] = SECONDS
    size_unit: ClassVar[SizeUnit] = BYTES
    tiers: ClassVar[tuple[str, ...]] = ("in a node", "between nodes")
    per_tick: ClassVar[int] = NANOSECONDS
    receiving: ClassVar[TimeUnits] = 0

    cluster: Hardware
    model: Transformer
    micro_batch: int = 1
    tensor: int = 1
    context: int = 1
    zero: int = 3
    expert_parallel: int = 1
    expert_tensor: int | None = None
    experts: int = 0
    split: tuple[int, ...] | None = None
    sequence_parallel: bool = False
    recomputed: Recompute = "none"
    recompute_part: float = 1.0
    offload: float = 0.0
    fp8: bool = False
    overlap: bool = False
    experts_hidden: float = 0.0
    optimizer: str = "adam"
    stored: float = 2
    gradients: float = 2
    gathered: float | None = None
    reduced: float | None = None
    adapter_rank: int | None = None
    frozen_bits: float | None = None
    formula: str = "megatron"

    def __post_init__(self) -> None:
        self._check_uneven()
        again = self._again(self.recomputed)
        shown = {
            FORWARD.kind: self._forward(),
            **{row.kind: self._backward(row.kind) + again for row in (BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)},
            UPDATE.kind: self.update_takes(self._each),
            LOSS.kind: self.loss_takes,
            "recompute": again,
            "weight_elements": round(self._each * self.stored),
            "activation_elements": round(self._boundary()),
            "adapter_elements": round(self._of_adapter * self.stored) if self.adapter_rank else 0,
        }
        for name, value in shown.items():  # it is frozen, and these follow from the rest
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"{self.cluster.name}: {self.model}, {self.micro_batch} x {self.model.sequence:,} tokens a micro-batch"

    def chosen(self) -> list[str]:
        """Return the arguments of ``Cluster.cost`` that are not defaults, as source."""
        own = [one for one in fields(self) if one.name in RealCost.__annotations__ and one.default is not MISSING]
        named = {"recomputed": "recompute", "formula": "mfu"}
        given = [(named.get(one.name, one.name), getattr(self, one.name), one.default) for one in own]
        return [f"{name}={value!r}" for name, value, default in given if value != default]

    def _price_key(self, what: object, labels: Sequence[Labels]) -> tuple[object, ...]:
        """Return a key that is equal for operations that cost the same."""
        first, last = labels[0], labels[-1]
        layer: int | None = first.layer
        if self._even and 1 < first.layer < first.layers - 2:
            layer = None
        return (
            what, layer, first.layers, len(first.batches), len(first.shards), first.total, last.total,
            len(last.shards), last.extra.keep, last.extra.adapter,
        )  # fmt: skip

    @cached_property
    def _even(self) -> bool:
        """Whether all layers in the middle of the model are the same: asked for at every operation."""
        return not self.experts and not self.split and not self.model.dense_layers

    @cached_property
    def layer(self) -> Layer:
        """What a layer of the model takes."""
        return Layer(
            self.cluster, self.model, self.micro_batch, self.tensor, self.sequence_parallel, self.context,
            self.expert_parallel, bool(self.experts), self.fp8, self.overlap,
            self.expert_tensor or self.tensor, self.experts_hidden,
        )  # fmt: skip

    @property
    def gpus(self) -> int:
        """How many GPUs are a rank."""
        return self.tensor * self.context

    @property
    def sharing(self) -> int:
        """Among how many ranks the experts of a layer are divided."""
        return self.expert_parallel * (self.expert_tensor or self.tensor) // self.tensor

    @property
    def traffic(self) -> float:
        """The seconds of the traffic within a layer, forward."""
        return self.layer.traffic

    @property
    def _each(self) -> float:
        """How many parameters a layer in the middle of the model has on each GPU of a rank."""
        of_experts = self.model.experts * self.model.expert_size
        own = (self.model.layer_size - of_experts) / self.tensor
        return own + (0 if self.experts else of_experts / self.tensor / self.sharing)

    def times(self, length: TimeUnits, factor: Fraction) -> TimeUnits:
        return round(length * factor)

    # -- time: one layer of the model, one micro-batch, in seconds ----------------------------

    def _forward(self, share: Fraction | int = 1) -> float:
        """Return the seconds of a forward on a rank that computes with so large a share of a layer's weights."""
        return max(sum(self.layer.forward(float(self.tensor / share))), self._offload_takes)

    def _backward(self, kind: str, share: Fraction | int = 1) -> float:
        """Return the seconds of a backward, or of half of it, with nothing to be computed again."""
        parts = self.layer.backward(float(self.tensor / share))
        if kind == BACKWARD_WEIGHT.kind:
            return parts.products / 2
        once = parts if kind == BACKWARD.kind else parts._replace(products=parts.products / 2)
        return max(sum(once), self._offload_takes)

    @cached_property
    def _offload_takes(self) -> float:
        """The seconds in which what is offloaded of a layer goes to the host, or back, beside what is computed."""
        size = self.offload * self._inner(self.recomputed) if self.offload else 0.0
        return size / (self.cluster.host_link * self.cluster.link_reached)

    def traffic_of(self, kind: str) -> float:
        """Return which part of the time of an operation is traffic within a layer."""
        return self._part_of(kind, self.traffic, self.layer.traffic_back)

    def hidden_in(self, kind: str) -> float:
        """Return in which part of the time of an operation traffic within a layer goes on beside what is computed."""
        return self._part_of(kind, self.layer.hidden_traffic, self.layer.hidden_traffic)

    def _part_of(self, kind: str, there: float, back: float) -> float:
        """Return which part of an operation's time the traffic of a forward, or of a backward, takes."""
        step, last = kind in STEP_KINDS, kind.endswith("rest")
        none = not there or not OPERATIONS[kind].trains or kind in (BACKWARD_WEIGHT.kind, *EXPERT_KINDS)
        if none or (step and not last):
            return 0.0
        if OPERATIONS[kind].backward:
            there = back + self.recompute_part * self.model.done_again(self.recomputed).traffic * there
        return there / (self._of_the_rest(kind) if step else float(getattr(self, kind)))

    def _again(self, recompute: Recompute, share: Fraction | int = 1) -> float:
        """Return the seconds for which backward does again what forward did."""
        again = self.model.done_again(recompute)
        return self.recompute_part * self.layer.forward(float(self.tensor / share)).times(*again)

    def _step(self, row: Computation, labels: Sequence[Labels]) -> float:
        """Return the seconds of a step of a layer. Queries, keys and what attention gives are kept by the program: of
        what is computed again, only the rest is left."""
        assert row.share is not None
        took = self._of_the_rest(row.kind) if row.kind.endswith("rest") else sum(self.layer.step(row.kind))
        return float(row.share(labels)) * took

    def _of_the_rest(self, kind: str) -> float:
        """Return the seconds of the last step of a layer, or of its backward."""
        took = sum(self.layer.step(kind))
        if kind == "rest":
            return took
        again = self.model.done_again(self.recomputed)
        return took + self.recompute_part * self.layer.step("rest").times(*again)

    def _experts(self, row: Computation, labels: Sequence[Labels]) -> float:
        """Return the seconds of what experts compute, of one layer of the model: a call has tokens of all micro-batches
        of a group, ``forward`` and ``backward`` of a rank's own."""
        model, piece = self.model, labels[-1]
        rows = model.rows_of_an_expert(self.layer.part, len(labels[0].batches))
        count = model.experts * len(piece.shards) / piece.total
        products = self.layer.of_experts(rows, count, self.tensor)
        size = len(labels[0].batches) * model.routed_bytes(self.layer.part, self.tensor, self.cluster.fused)
        moved = self.cluster.moving_takes(size * len(piece.shards) / piece.total)
        if not row.backward:
            return products + moved
        again = self.model.done_again(self._not_kept(piece.extra.keep)).products * self.recompute_part
        return (2 + again) * products + (BACKWARD_MOVES + again) * moved

    def _not_kept(self, keep: str) -> Recompute:
        """Return what is recomputed by a backward that is given what forward has kept on demand."""
        if keep == "all" or (keep == "selective" and self.recomputed == "selective"):
            return "none"
        return "selective" if keep == "selective" and self.recomputed == "full" else self.recomputed

    @cached_property
    def _known(self) -> dict[object, Any]:
        return {}

    def _once(self, key: object, make: Callable[[], Any]) -> Any:
        """Return what ``make()`` gives. It is called once for each key."""
        if (known := self._known.get(key)) is None:
            known = self._known[key] = make()
        return known

    def compute(self, kind: str, *labels: Labels) -> TimeUnits:
        if labels[-1].extra.adapter and OPERATIONS[kind].trains:  # the adapter's own products are next to nothing
            kind, labels = OPERATIONS[kind].with_adapter or kind, labels[:-1]
        if OPERATIONS[kind].share is not None:
            return round(self._seconds(kind, labels) * NANOSECONDS)
        key = self._price_key(kind, labels)
        return self._once(key, lambda: round(self._seconds(kind, labels) * NANOSECONDS))  # type: ignore[no-any-return]

    def _seconds(self, kind: str, labels: tuple[Labels, ...]) -> float:
        """Return how long an operation of the compute stream takes, in seconds."""
        row, first, last = OPERATIONS[kind], labels[0], labels[-1]
        if row not in PRICED:
            problem, expected = f"{type(self).__name__} has no price for {kind}", "a Cost of your own with a compute()"
            raise PuzzleError(problem, where="run", expected=expected, line="")
        many, share = len(first.batches), Fraction(len(last.shards), last.total)
        if isinstance(row, Computation) and row in STEPS:
            return self._step(row, labels) * many * self.together(first)
        if self._of_experts(first.layer) and row.trains:
            assert isinstance(row, Computation)
            return self._experts(row, labels) * self.together(first)
        if row.trains:
            once = self._forward(share)
            if row.backward:
                once = self._backward(kind, share) + self._again(self._not_kept(last.extra.keep), share)
            return once * many * self.together(first) * len(first.shards) / first.total
        if row.by_batch:
            assert row.share is not None
            return self.loss_takes * many * float(row.share(labels))
        return self.update_takes(self._parameters(last, share) * share / self.context)

    @cached_property
    def loss_takes(self) -> float:
        """The seconds of head and loss for a micro-batch, forward and backward."""
        moved = 2 * self.held_by_loss  # each number is written once and read once
        head = self.model.tokens(self.layer.part), self.model.hidden, self.model.vocabulary / self.tensor
        return 3 * self.cluster.product_takes(*head) + self.cluster.moving_takes(moved)

    @property
    def held_by_loss(self) -> float:
        """The bytes that head and loss hold for a micro-batch."""
        return self.model.loss_bytes(self.layer.part, self.tensor, self.cluster.loss_bytes)

    def update_takes(self, parameters: float) -> float:
        """Return the seconds of an optimizer step on so many parameters: it is all moving of bytes."""
        states = self.model.optimizer_bytes(self.stored, self.optimizer)
        weights = self.stored if self.stored < MAIN else 2 * self.stored  # only written, where there are main weights
        touched = GRADIENT_TOUCHED if self.stored < MAIN else UNSCALED_TOUCHED
        return self.cluster.moving_takes(parameters * (2 * states + weights + touched * self.gradients))

    def compute_on_host(self, kind: str, *labels: Labels) -> TimeUnits:
        if OPERATIONS[kind].by_batch:
            return super().compute_on_host(kind, *labels)  # which says that it has no price
        piece = labels[-1]
        states = self.model.optimizer_bytes(self.stored, self.optimizer)
        share = Fraction(len(piece.shards), piece.total)
        moved = self._parameters(piece, share) * share * (2 * states + self.stored + self.gradients) / self.context
        return round(moved / (self.cluster.host_bandwidth / self.cluster.per_node) * NANOSECONDS)

    def transfer_to_host(self, size: Elements) -> TimeUnits:
        seconds = self.cluster.latency + float(size) / (self.cluster.host_link * self.cluster.link_reached)
        return round(seconds * NANOSECONDS)

    def meeting(self, kind: str, tensor: Labels, size: Elements, group: Group) -> TimeUnits:
        rounds = collective(kind).rounds
        if kind == ALLTOALL.kind:
            ranks, per_node = len(group.ranks), min(group.per_node, len(group.ranks))
            across = self.model.copies_across(ranks / per_node, self.cluster.sent_once)
            return round(self.cluster.alltoall_takes(float(size), ranks, per_node, across) * NANOSECONDS)
        if KINDS[tensor.kind].size == "activation":  # attention and the feed-forward part have one each
            rounds *= 2 * self.together(tensor)
        gpus = 1 if KINDS[tensor.kind].size == "activation" else self.context  # which all have a piece of a weight
        ring = len(group.ranks) * gpus, group.per_node * gpus, rounds
        return round(self.cluster.ring_takes(float(size), *ring) * NANOSECONDS)

    def transfer(self, size: Elements, across: bool) -> TimeUnits:
        took: TimeUnits | None = self._known.get((size, across))  # without the lambda: this is asked for every message
        if took is None:
            took = self._known[size, across] = round(self.cluster.sending_takes(float(size), across) * NANOSECONDS)
        return took

    def message(self, labels: Labels | None, size: Elements, across: bool, ranks: int) -> TimeUnits:
        return round(super().message(labels, size, across, ranks))

    @property
    def shortest_transfer(self) -> TimeUnits:
        return round(min(self.cluster.latency, self.cluster.latency_across) * NANOSECONDS)

    # -- sizes, in bytes ----------------------------------------------------------------------

    def together(self, labels: Labels) -> int:
        """Return for how many layers of the model a layer of a run stands."""
        first, end = self._between(labels.layer, labels.layers)
        return end - first

    def _between(self, layer: int, layers: int) -> tuple[int, int]:
        """Return the first layer of the model that a layer of a run stands for, and the one after the last. What the
        last layer gives has the number after it."""
        layer = min(max(layer, 0), layers - 1)
        if self.split is not None:
            if len(self.split) != layers:
                problem, got = f"the layers are split into {len(self.split)}", f"layers={layers}"
                expected = f"run(..., layers={len(self.split)})"
                raise PuzzleError(problem, where="run", got=got, expected=expected, line="")
            first = sum(self.split[:layer])
            return first, first + self.split[layer]
        if self.experts and layers % 2 == 0:
            layer, layers = layer // 2, layers // 2
        if self.model.layers % layers:
            fits = ", ".join(str(n * (2 if self.experts else 1)) for n in divisors(self.model.layers))
            problem = f"{self.model.name} has {self.model.layers} layers, which cannot be {layers} equal ones"
            raise PuzzleError(problem, where="run", expected=f"layers= one of {fits}", line="")
        each = self.model.layers // layers
        return layer * each, (layer + 1) * each

    def _of_experts(self, layer: int) -> bool:
        """Return whether a layer of a run stands for experts alone."""
        return bool(self.experts and layer % 2)

    def _parameters(self, labels: Labels, share: Fraction | int = 1) -> float:
        """Return how many parameters a layer of a run has on each GPU of a rank: of what a rank has so large a
        ``share`` of, and of its experts as few as it has of those that it shares with nobody."""
        between = self._between(labels.layer, labels.layers)
        if labels.adapter:
            return self._of_adapter * (between[1] - between[0])
        own, of_experts = self.model.parameters_between(*between), self.model.experts_between(*between)
        if self.experts:
            return (of_experts if labels.layer % 2 else own - of_experts) / self.tensor
        return (own - of_experts + of_experts * min(1, 1 / (self.sharing * share))) / self.tensor

    @property
    def _of_adapter(self) -> float:
        """How many parameters the adapters of a layer of the model have on each GPU of a rank."""
        if self.adapter_rank is None:
            problem = "this cost does not say of which rank adapters are"
            raise PuzzleError(problem, where="run", expected="cluster.cost(model, adapter_rank=16)", line="")
        return self.model.adapter_parameters(self.adapter_rank) / self.model.layers / self.tensor

    def _bytes_of(self, labels: Labels, otherwise: float) -> float:
        """Return the bytes of each number of a weight: fewer where it is frozen beside an adapter."""
        frozen = self.frozen_bits is not None and labels.kind == "Weight" and not labels.adapter
        return self.frozen_bits / 8 if frozen else otherwise  # type: ignore[operator]

    def _boundary(self, share: Fraction | int = 1) -> float:
        """Return the bytes of a layer's input for a micro-batch, on a rank that computes with so large a share of a
        layer's weights."""
        return self.model.boundary_bytes(self.layer.part) / (self._tensor(share) if self.sequence_parallel else 1)

    def _inner(self, recompute: Recompute, share: Fraction | int = 1) -> float:
        """Return the bytes that a layer of the model keeps for a micro-batch, besides its input, on a rank that
        computes with so large a share of a layer's weights."""

        def inner() -> float:
            model, t, part = self.model, self._tensor(share), self.layer.part

            def kept(how: Recompute) -> float:
                how_kept = self.sequence_parallel, how, self.cluster.fused, self.fp8, not self.experts
                return model.activation_bytes(part, t, *how_kept) - self._boundary(share)

            some = self.recompute_part if recompute == self.recomputed else 1.0
            return kept(recompute) if some == 1 else some * kept(recompute) + (1 - some) * kept("none")

        return self._once((recompute, share), inner)  # type: ignore[no-any-return]

    def _tensor(self, share: Fraction | int) -> int:
        """Return how many GPUs share a layer where a rank computes with so large a share of its weights. Raises
        PuzzleError if the heads of attention cannot be split over so many."""
        if share == 1:
            return self.tensor
        gpus = self.tensor / Fraction(share)
        if gpus.denominator > 1:
            problem = "on a cluster all tensor-parallel ranks have equal pieces of a layer"
            expected = "model.load_weights(layer, i, n), for rank i of n"
            raise PuzzleError(problem, where="run", got=f"{share} of a layer", expected=expected)
        self.model.check_tensor(gpus.numerator)
        return gpus.numerator

    def elements(self, labels: Labels) -> Elements:
        """Return the bytes of a tensor on each GPU of a rank."""
        if labels.of_heads > 1:
            self.model.check_ulysses(self.tensor, labels.of_heads)
        key = self._price_key(labels.kind, (labels,))
        return self._once(key, lambda: self._held(labels))  # type: ignore[no-any-return]

    def sent(self, labels: Labels) -> Elements:
        """Return the bytes of a tensor that each GPU of a rank sends. Those of a tensor-parallel group send a slice
        each of what they all have."""
        key = self._price_key(("sent", labels.kind), (labels,))
        return self._once(key, lambda: self._sent(labels))  # type: ignore[no-any-return]

    def _held(self, labels: Labels) -> Elements:
        kind, share = labels.kind, Fraction(len(labels.shards), labels.total)
        row = KINDS[kind]
        if row.size == "weight":
            if kind == "WeightGrad" and not labels.batches:
                return 0
            each = {"Weight": self.stored, "WeightGrad": self.gradients}.get(kind)
            if each is None:
                each = self.model.optimizer_bytes(self.stored, self.optimizer)
            elif share == 1 and (self.context == 1 or self.zero < 3):
                return round(self._parameters(labels) * self._bytes_of(labels, self.gathered or each))
            return round(self._parameters(labels, share) * share * self._bytes_of(labels, each) / self.context)
        if kind == SAVED:
            inner = {how: self._inner(how, share) for how in ("none", "selective", self.recomputed)}
            kept = 0.0 if labels.keep == "all" else inner["none"] - inner["selective"]
            each = max(0.0, inner["none"] - inner[self.recomputed] - kept) * self.together(labels)
            return round(each * len(labels.batches))
        if row.size in OF_ATTENTION:
            width = OF_ATTENTION[row.size](self.model) * self.together(labels) / self.tensor
            return round(2 * width * self.model.tokens(self.layer.part) * len(labels.batches) * share * row.times)
        if is_dealt(kind):
            copies = self.model.chosen * self.together(labels) if self.experts else self.model.chosen
            return round(self._boundary() * copies * len(labels.batches) * share)
        if row.size != "activation":
            problem, expected = f"{type(self).__name__} has no size for {kind}", "a Cost of your own with elements()"
            raise PuzzleError(problem, where="run", expected=expected, line="")
        return round(self._boundary() * len(labels.batches) * share)

    def _sent(self, labels: Labels) -> Elements:
        if labels.kind == "Weight":
            each = self.stored if self.gathered is None else self.gathered
        elif labels.kind == "WeightGrad":
            each = self.gradients if self.reduced is None else self.reduced
        elif KINDS[labels.kind].by_batch and not self.sequence_parallel:
            return round(self.elements(labels) / self.tensor)
        else:
            return self.elements(labels)
        each = self._bytes_of(labels, each)
        return round(self._parameters(labels) * Fraction(len(labels.shards), labels.total) * each)

    def left_behind(self, kind: str, *labels: Labels) -> Elements:
        """Return the bytes that a forward leaves in memory by itself, until the backward of the same layer and
        micro-batches: what is inside the model's layers that it stands for, and the inputs of all but the first."""
        key = self._price_key(("left behind", kind), labels)
        return self._once(key, lambda: self._left_behind(kind, labels))  # type: ignore[no-any-return]

    def _left_behind(self, kind: str, labels: tuple[Labels, ...]) -> Elements:
        share, together = Fraction(len(labels[-1].shards), labels[-1].total), self.together(labels[0])
        first, many = labels[0], len(labels[0].batches)
        if self._of_experts(first.layer):
            if self.recomputed == "full":
                return round((1 - self.recompute_part) * self._inside(many) * share * together)
            return round(self._inside(many) * share * together)
        if kind in STEP_KINDS:  # which keep queries, keys, values and what attention gives themselves
            slices = Fraction(len(first.shards), first.total)
            width = sum(width(self.model) for width in OF_ATTENTION.values())
            stored = 2 * width * self.model.tokens(self.layer.part) / self.tensor
            each = max(0.0, self._inner(self.recomputed) - stored) * together + self._boundary() * (together - 1)
            return round(each * many * slices)
        each = (1 - self.offload) * self._inner(self.recomputed, share) * together
        return round((each + self._boundary(share) * (together - 1)) * many * len(first.shards) / first.total)

    def _inside(self, many: int) -> float:
        """Return the bytes that the experts of a layer keep of so many micro-batches, between what goes to them and
        what comes of them."""
        kept = sum(one.size for one in self.model.kept(self.cluster.fused, self.fp8) if one.part in ("moe", "moe_act"))
        return many * kept * self.model.tokens(self.layer.part) / self.tensor

    def workspace(self, kind: str, *labels: Labels) -> Elements:
        """Return the bytes that an operation holds while it runs: a loss the logits and, with gathered weights, the
        head and its gradient; a backward what it makes again of one layer of the model."""
        kept = next((one.extra.keep for one in labels if one.extra.keep), "")
        key = self._price_key(("workspace", kind, kept), labels)
        return self._once(key, lambda: self._workspace(kind, labels, kept))  # type: ignore[no-any-return]

    def _workspace(self, kind: str, labels: tuple[Labels, ...], kept: str) -> Elements:
        row, many = OPERATIONS[kind], len(labels[0].batches)
        if not row.trains:
            if row is not LOSS:
                return 0
            head = 0.0 if self.gathered is None else 2 * self.gathered * self.model.vocabulary * self.model.hidden
            slices = Fraction(len(labels[0].shards), labels[0].total)
            return round(self.held_by_loss * many * slices + head / self.tensor)
        recompute = self._not_kept(kept) if row.backward else "none"
        if self._of_experts(labels[0].layer) or kind in STEP_KINDS:
            again = recompute == "full" and (self.experts or kind == "backward_rest")
            return round(self._inside(many) * Fraction(len(labels[-1].shards), labels[-1].total)) if again else 0
        share = Fraction(len(labels[-1].shards), labels[-1].total)
        moving = round(self.offload * self._inner(self.recomputed, share) * many)  # of the layer that goes or comes
        return round(self.made_again(recompute, share) * many) + moving + round(self._gathered(row.backward) * share)

    def _gathered(self, backward: bool) -> float:
        """Return the bytes of whole weights, of two layers of the model, and in backward of a gradient, that a GPU
        holds while it computes, where it has only its part of what its rank has."""
        if self.context == 1 or self.zero < 3:
            return 0.0
        each = self.stored if self.gathered is None else self.gathered
        each = 2 * (each if self.frozen_bits is None else self.frozen_bits / 8)
        if backward and self.adapter_rank is None:
            each += self.gradients if self.gathered is None else self.gathered
        return self._each * each * (1 - 1 / self.context)

    def made_again(self, recompute: Recompute, share: Fraction | int = 1) -> float:
        """Return the bytes that a backward makes again of one layer of the model for a micro-batch, and holds while it
        runs."""
        if recompute == "none":
            return 0.0
        known = 0.0 if recompute in ("full", "every second layer") else self._inner(recompute, share)
        return self._inner("none", share) - known

    # -- the machine --------------------------------------------------------------------------

    @property
    def node_size(self) -> int | None:
        """How many ranks a node has."""
        return max(1, self.cluster.gpus_per_box // self.gpus)

    def check_ranks(self, ranks: int, hosts: int) -> None:
        self.cluster.check_gpus(ranks * self.gpus, f"{ranks:,} ranks of {self.gpus} GPUs" * (self.gpus > 1))

    def check_experts(self, experts: int) -> None:
        """Raise PuzzleError unless a run has as many experts as these prices are made for."""
        if experts != self.experts:
            problem = f"these prices are of a run with experts={self.experts}"
            expected = f"cluster.cost(model, experts={experts}), or run(..., experts={self.experts})"
            raise PuzzleError(problem, where="cost", got=f"run(..., experts={experts})", expected=expected)

    def fits(self, size: Elements) -> bool:
        """Return whether so many bytes fit a GPU: 92 percent of its memory can be filled."""
        return size <= self.cluster.room

    def mfu(self, seconds: float, batches: int, ranks: int, formula: str | None = None) -> Mfu:
        """Return the part of the peak that is reached if so many ranks take so many seconds for the micro-batches."""
        formula = formula or self.formula
        flops = self.model.model_flops(self.micro_batch, formula) * batches
        part = Mfu(flops / (seconds * ranks * self.gpus * self.cluster.peak) if seconds else 0.0)
        part.formula = formula
        return part


@dataclass(frozen=True)
class Cluster(Hardware):  # noqa: D101 (its numbers are described there)
    __doc__ = Hardware.__doc__

    def cost(
        self, model: Transformer, *, micro_batch: int = 1, tensor: int = 1, context: int = 1, zero: int = 3,
        expert_parallel: int = 1, expert_tensor: int | None = None, experts: int = 0,
        split: Sequence[int] | None = None, sequence_parallel: bool = False,
        recompute: Recompute = "none", recompute_part: float = 1.0, offload: float = 0.0, fp8: bool = False,
        overlap: bool | None = None, experts_hidden: float | None = None, optimizer: str = "adam", stored: float = 2,
        gradients: float = 2, gathered: float | None = None, reduced: float | None = None,
        adapter_rank: int | None = None, frozen_bits: float | None = None, mfu: str = "megatron",
        states_on_hosts: bool = False,
    ) -> RealCost:  # fmt: skip
        """Return the prices of a model on this cluster, in seconds and bytes: ``run(..., cost=cluster.cost(model))``.

        ``micro_batch``: sequences in a micro-batch; ``tensor``: GPUs that share each layer, which are one rank of a
        run, with ``sequence_parallel`` also its norms and residuals, and with ``overlap`` their traffic is sent piece
        by piece while products are computed (as the cluster's software does, unless given); ``context``: GPUs of a rank
        that share each sequence, and of what their rank has of weights as much as ``zero`` says, a stage of ZeRO: 3
        all of it, as FSDP over both, 1 the optimizer's states, as the stages of a pipeline; ``expert_parallel``:
        ranks among which the experts of each layer are divided, with tokens that travel, of whose time a part
        ``experts_hidden`` is hidden (as by the cluster's software, unless given); with ``expert_tensor=1`` they are
        GPUs, those of a rank among them, and each has whole experts (Megatron Core's parallel folding); ``experts``:
        that of ``run(..., experts=8)``, whose odd layers then are the experts of the model, so that the program itself
        divides them and sends tokens; ``split``: for how many layers of the model each layer of a run stands, if that
        is not the same for all; ``recompute``: what backward does again (see ``transformer.RECOMPUTE`` and ``MODULES``:
        ``("layernorm", "mlp")``; with ``"full"`` a program may say itself what is kept, with ``keep=``), in
        ``recompute_part`` of the layers; ``offload``: the part of what forward leaves behind that goes to the host
        until backward; ``fp8``: whether layers are computed in 8 bits; ``optimizer``: ``"adam"``, ``"momentum"`` or
        ``"sgd"``; ``stored`` and ``gradients``: bytes of a weight and of its gradient in memory; ``gathered``: of a
        weight that was gathered, and of its gradient before it is reduced, in memory and on the links (a rank that has
        a whole weight is taken to have gathered it, as one rank alone has all); ``reduced``: of a gradient on the links
        (each as in memory, unless given); ``adapter_rank``: of the adapter of each matrix, where only adapters are
        trained (``train="adapters"``), and ``frozen_bits``: of a weight beside them, in memory and on the links;
        ``mfu``: the formula of ``Run.mfu``, which counts what training all weights takes, ``"megatron"`` or ``"palm"``;
        ``states_on_hosts``: whether your program keeps the optimizer's states on hosts, and GPUs need no room for them.
        Raises PuzzleError for what cannot be.
        """
        instance_of("model", model, Transformer, "cluster.cost(GPT_175B), with GPT_175B from lib.real")
        model.check_tensor(tensor)
        whole_number("micro_batch", micro_batch)
        _check_parallel(self, model, micro_batch, context, expert_parallel, experts)
        whole = expert_tensor == 1 and bool(model.experts) and expert_parallel % tensor == 0
        if expert_tensor not in (None, tensor) and not whole:
            problem, got = "experts are whole, or in as many pieces as layers are", describe(expert_tensor)
            expected = f"expert_tensor=1 with expert_parallel a multiple of {tensor}, or expert_tensor={tensor}"
            raise PuzzleError(problem, where="expert_tensor", got=got, expected=expected)
        split = None if split is None else _checked_split(model, split)
        overlap = self.overlap if overlap is None else overlap
        hidden = self.experts_hidden if experts_hidden is None else experts_hidden
        flags = {"sequence_parallel": sequence_parallel, "fp8": fp8, "overlap": overlap}
        for name, flag in {**flags, "states_on_hosts": states_on_hosts}.items():
            instance_of(name, flag, bool, f"{name}=True, or False")
        for name, part in (("recompute_part", recompute_part), ("offload", offload), ("experts_hidden", hidden)):
            if isinstance(part, bool) or not isinstance(part, (int, float, Fraction)) or not 0 <= part <= 1:
                problem, expected = f"{name} must be a part, from 0 to 1", f"{name}=0.5"
                raise PuzzleError(problem, where="cost", got=describe(part), expected=expected)
        if fp8 and not self.peak_fp8:
            problem, expected = f"{self.name} has no products of 8-bit numbers", "fp8=False, or a cluster with peak_fp8"
            raise PuzzleError(problem, where="cost", expected=expected)
        check_recompute(recompute)
        one_of_names("mfu", mfu, FORMULAS)
        if zero not in (1, 3) or isinstance(zero, bool):
            raise PuzzleError("zero is a stage of ZeRO", where="cost", got=describe(zero), expected="zero=1, or 3")
        check_widths("bytes", **{n: w for n, w in (("gathered", gathered), ("reduced", reduced)) if w is not None})
        if frozen_bits is not None:
            check_widths("bits", frozen_bits=frozen_bits)
        self.check_gpus(tensor * context, "tensor" if context == 1 else "tensor x context")
        states = model.state_bytes(
            stored=stored, gradients=gradients, optimizer=optimizer, adapter_rank=adapter_rank, bits=frozen_bits
        )
        self.check_room(sum(states.values()) - states_on_hosts * states["OptState"], model.name)
        return RealCost(
            cluster=self, model=model, micro_batch=micro_batch, tensor=tensor, context=context, zero=zero,
            expert_parallel=expert_parallel, expert_tensor=expert_tensor, experts=experts, split=split,
            sequence_parallel=sequence_parallel, experts_hidden=hidden,
            recomputed=recompute, recompute_part=recompute_part, offload=offload, fp8=fp8, overlap=overlap,
            optimizer=optimizer, stored=stored, gradients=gradients, gathered=gathered, reduced=reduced,
            adapter_rank=adapter_rank, frozen_bits=frozen_bits, formula=mfu,
        )  # fmt: skip


def _check_parallel(
    cluster: Hardware, model: Transformer, micro_batch: int, context: int, expert_parallel: int, experts: int
) -> None:
    """Raise PuzzleError for numbers of GPUs that do not divide a sequence, or experts."""
    context, ways = whole_number("context", context), whole_number("expert_parallel", expert_parallel)
    experts = whole_number("experts", experts, least=0)
    if model.sequence * micro_batch % (2 * context) and context > 1:
        problem = f"{model.sequence:,} tokens are not divided by {context} GPUs, which have two slices each"
        raise PuzzleError(problem, where="context", got=str(context), expected="context=2, 4, 8 or so")
    for name, count in (("expert_parallel", ways), ("experts", experts)):
        if count > (name == "expert_parallel") and (not model.experts or model.experts % count):
            fits = ", ".join(map(str, divisors(model.experts)))
            expected = f"{name}= one of {fits}" if fits else f"no {name}="
            problem = f"{model.name} has {model.experts or 'no'} experts in a layer"
            raise PuzzleError(problem, where=name, got=str(count), expected=expected)
    if ways > 1 and experts:
        problem = "experts are divided by the program, or in the price of a layer"
        raise PuzzleError(problem, where="cost", got="experts and expert_parallel", expected="one of both")
    cluster.check_gpus(ways, "expert_parallel")


def _checked_split(model: Transformer, split: Sequence[int]) -> tuple[int, ...]:
    """Return how many layers of the model each layer of a run stands for. Raise PuzzleError if they are not all."""
    right = isinstance(split, Sequence) and all(type(each) is int and each > 0 for each in split)
    if not right or sum(split) != model.layers:
        problem, expected = f"split does not divide the layers of {model.name}", f"{model.layers} together"
        raise PuzzleError(problem, where="split", expected=expected, got=describe(split))
    return tuple(split)
