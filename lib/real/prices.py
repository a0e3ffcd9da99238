"""A cluster, and what a transformer costs on it: a ``Cost`` in seconds and bytes, for any program of the course.

A layer of a run stands for as many layers of the model as there are in it: 96 layers of the model in a run of 24 layers
are four at a time. A rank of a run is a group of ``tensor`` GPUs, all of which do the same at the same time. Their
traffic is part of the price of a layer, since nothing is computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from ..basics.arguments import instance_of, one_of_names, whole_number
from ..basics.errors import PuzzleError
from ..basics.units import BYTES, SECONDS, Elements, SizeUnit, Unit
from ..machine.cost import Cost, TimeUnits
from ..machine.mesh import Group
from ..record.kinds import KINDS, SAVED
from ..record.labels import Labels
from ..record.table import OPERATIONS, collective
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS, UPDATE
from .hardware import Hardware
from .transformer import FORMULAS, RECOMPUTE, Transformer, check_widths, divisors

NANOSECONDS = 10**9  # time units in a second
FLASH_BACKWARD = 2.5
"""Backward of flash attention takes so many times the operations of forward: it makes the scores again."""
GRADIENT_TOUCHED = 8
"""How often an optimizer step reads or writes a gradient: to unscale, measure, clip, use and clear it."""
PRICED = (FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, LOSS, UPDATE)
"""The operations of the compute stream whose time is known here. Others are refused."""
NAMES = {"megatron": "Megatron's", "palm": "PaLM's", "": "no"}


class Mfu(float):
    """The part of the peak that is reached by the operations that a formula counts. ``formula``: its name."""

    formula: str = ""

    def __str__(self) -> str:
        return f"{100 * self:.1f} % of the peak, by {NAMES[self.formula]} formula"

    __repr__ = __str__


def _alike(what: object, first: Labels, last: Labels) -> tuple[object, ...]:
    """Return a key that is equal for operations that cost the same."""
    return (
        what, first.layer if first.layer in (0, first.layers - 1) else None, first.layers, len(first.batches),
        last.total, len(last.shards), last.extra.keep, last.extra.adapter,
    )  # fmt: skip


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
    sequence_parallel: bool = False
    recomputed: str = "none"
    optimizer: str = "adam"
    stored: float = 2
    gradients: float = 2
    gathered: float | None = None
    reduced: float | None = None
    adapter_rank: int | None = None
    frozen_bits: float | None = None
    formula: str = "megatron"

    def __post_init__(self) -> None:
        again = self._again(self.recomputed)
        shown = {
            FORWARD.kind: sum(self._parts()),
            **{row.kind: self._backward(row.kind) + again for row in (BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)},
            UPDATE.kind: self.update_takes(self.model.layer_size / self.tensor),
            LOSS.kind: self.loss_takes,
            "recompute": again,
            "weight_elements": round(self.model.layer_size / self.tensor * self.stored),
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
        said = [(named.get(one.name, one.name), getattr(self, one.name), one.default) for one in own]
        return [f"{name}={value!r}" for name, value, default in said if value != default]

    # -- time: one layer of the model, one micro-batch, in seconds ----------------------------

    def _parts(self, share: Fraction | int = 1) -> tuple[float, float, float, float]:
        """Return the seconds of matrix products, attention, what moves bytes only, and traffic, forward, of a rank
        that computes with so large a share of a layer's weights."""
        cluster, model, b, t = self.cluster, self.model, self.micro_batch, float(self.tensor / share)
        products = sum(cluster.product_takes(*sizes) for sizes in model.product_sizes(b, t))
        attention = cluster.attention_takes(model.attention_flops(b, done=True) / t)
        attention += cluster.moving_takes(model.score_bytes(b) / t)
        moved = cluster.moving_takes(
            model.pointwise_bytes(b, t, self.sequence_parallel, cluster.fused)  # type: ignore[arg-type]
        )
        return products, attention, moved, self.traffic

    @cached_property
    def traffic(self) -> float:
        """The seconds of a layer's tensor-parallel collectives, forward: as long as two all-reduces."""
        if self.tensor == 1:
            return 0.0
        per_node = min(self.tensor, self.cluster.gpus_per_box)
        return self.cluster.ring_takes(self.model.boundary_bytes(self.micro_batch), self.tensor, per_node, rounds=4)

    def _backward(self, kind: str, share: Fraction | int = 1) -> float:
        """Return the seconds of a backward, or of half of it, with nothing to be computed again."""
        products, _, _, traffic = self._parts(share)
        if kind == BACKWARD_WEIGHT.kind:
            return products
        cluster, model, b, t = self.cluster, self.model, self.micro_batch, float(self.tensor / share)
        more = FLASH_BACKWARD if model.attention == "flash" else 2
        attention = cluster.attention_takes(more * model.attention_flops(b, done=True) / t, backward=True)
        moved = model.score_bytes(b, backward=True) / t
        moved += model.pointwise_back(b, t, self.sequence_parallel, cluster.fused)  # type: ignore[arg-type]
        both = products if kind == BACKWARD.kind else 0.0
        return products + both + attention + cluster.moving_takes(moved) + traffic

    def _again(self, recompute: str, share: Fraction | int = 1) -> float:
        """Return the seconds for which backward does again what forward did."""
        again = self.model.done_again(recompute)
        return sum(part * took for part, took in zip(again, self._parts(share), strict=True))

    def _not_kept(self, keep: str) -> str:
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
        key = _alike(kind, labels[0], labels[-1])
        return self._once(key, lambda: round(self._seconds(kind, labels) * NANOSECONDS))  # type: ignore[no-any-return]

    def _seconds(self, kind: str, labels: tuple[Labels, ...]) -> float:
        """Return how long an operation of the compute stream takes, in seconds."""
        row, first, last = OPERATIONS[kind], labels[0], labels[-1]
        if row not in PRICED:
            problem, fix = f"{type(self).__name__} has no price for {kind}", "a Cost of your own, with its compute()"
            raise PuzzleError(problem, where="run", fix=fix, line="")
        many, share = len(first.batches), Fraction(len(last.shards), last.total)
        if row.trains:
            once = sum(self._parts(share))
            if row.backward:
                once = self._backward(kind, share) + self._again(self._not_kept(last.extra.keep), share)
            return once * many * self.together(first)
        if row.by_batch:
            return self.loss_takes * many
        return self.update_takes(self._parameters(last) * share)

    @cached_property
    def loss_takes(self) -> float:
        """The seconds of head and loss for a micro-batch, forward and backward."""
        moved = 2 * self.held_by_loss  # each number is written once and read once
        head = self.model.tokens(self.micro_batch), self.model.hidden, self.model.vocabulary / self.tensor
        return 3 * self.cluster.product_takes(*head) + self.cluster.moving_takes(moved)

    @property
    def held_by_loss(self) -> float:
        """The bytes that head and loss hold for a micro-batch."""
        return self.model.loss_bytes(self.micro_batch, self.tensor, self.cluster.loss_bytes)

    def update_takes(self, parameters: float) -> float:
        """Return the seconds of an optimizer step on so many parameters: it is all moving of bytes."""
        states = self.model.optimizer_bytes(self.stored, self.optimizer)
        weights = self.stored if self.stored < 4 else 2 * self.stored  # only written, where there are main weights
        return self.cluster.moving_takes(parameters * (2 * states + weights + GRADIENT_TOUCHED * self.gradients))

    def compute_on_host(self, kind: str, *labels: Labels) -> TimeUnits:
        if OPERATIONS[kind].by_batch:
            return super().compute_on_host(kind, *labels)  # which says that it has no price
        piece = labels[-1]
        states = self.model.optimizer_bytes(self.stored, self.optimizer)
        moved = self._parameters(piece) * Fraction(len(piece.shards), piece.total)
        moved *= 2 * states + self.stored + self.gradients
        return round(moved / (self.cluster.host_bandwidth / self.cluster.gpus_per_box) * NANOSECONDS)

    def transfer_to_host(self, size: Elements) -> TimeUnits:
        seconds = self.cluster.latency + float(size) / (self.cluster.host_link * self.cluster.link_reached)
        return round(seconds * NANOSECONDS)

    def meeting(self, kind: str, tensor: Labels, size: Elements, group: Group) -> TimeUnits:
        rounds = collective(kind).rounds
        if KINDS[tensor.kind].size == "activation":  # attention and the feed-forward part have one each
            rounds *= 2 * self.together(tensor)
        return round(self.cluster.ring_takes(float(size), len(group.ranks), group.per_node, rounds) * NANOSECONDS)

    def transfer(self, size: Elements, across: bool) -> TimeUnits:
        return round(self.cluster.sending_takes(float(size), across) * NANOSECONDS)

    def message(self, labels: Labels | None, size: Elements, across: bool, ranks: int) -> TimeUnits:
        return round(super().message(labels, size, across, ranks))

    @property
    def shortest_transfer(self) -> TimeUnits:
        return round(min(self.cluster.latency, self.cluster.latency_across) * NANOSECONDS)

    # -- sizes, in bytes ----------------------------------------------------------------------

    def together(self, labels: Labels) -> int:
        """Return for how many layers of the model a layer of a run stands."""
        if self.model.layers % labels.layers:
            fits = ", ".join(map(str, divisors(self.model.layers)))
            problem = f"{self.model.name} has {self.model.layers} layers, which cannot be {labels.layers} equal ones"
            raise PuzzleError(problem, where="run", fix=f"layers= one of {fits}", line="")
        return self.model.layers // labels.layers

    def _parameters(self, labels: Labels) -> float:
        """Return how many parameters a layer of a run has on each GPU of a rank."""
        together = self.together(labels)
        if labels.adapter:
            return self._of_adapter * together
        return self.model.parameters_of(labels.layer, labels.layers) / self.tensor

    @property
    def _of_adapter(self) -> float:
        """How many parameters the adapters of a layer of the model have on each GPU of a rank."""
        if self.adapter_rank is None:
            problem, fix = "this cost does not say of which rank adapters are", "cluster.cost(model, adapter_rank=16)"
            raise PuzzleError(problem, where="run", fix=fix, line="")
        return self.model.adapter_parameters(self.adapter_rank) / self.model.layers / self.tensor

    def _bytes_of(self, labels: Labels, otherwise: float) -> float:
        """Return the bytes of each number of a weight: fewer where it is frozen beside an adapter."""
        frozen = self.frozen_bits is not None and labels.kind == "Weight" and not labels.adapter
        return self.frozen_bits / 8 if frozen else otherwise  # type: ignore[operator]

    def _boundary(self, share: Fraction | int = 1) -> float:
        """Return the bytes of a layer's input for a micro-batch, on a rank that computes with so large a share of a
        layer's weights."""
        return self.model.boundary_bytes(self.micro_batch) / (self._tensor(share) if self.sequence_parallel else 1)

    def _inner(self, recompute: str, share: Fraction | int = 1) -> float:
        """Return the bytes that a layer of the model keeps for a micro-batch, besides its input, on a rank that
        computes with so large a share of a layer's weights."""

        def inner() -> float:
            model, t = self.model, self._tensor(share)
            return model.activation_bytes(self.micro_batch, t, self.sequence_parallel, recompute) - self._boundary(
                share
            )

        return self._once((recompute, share), inner)  # type: ignore[no-any-return]

    def _tensor(self, share: Fraction | int) -> int:
        """Return how many GPUs share a layer where a rank computes with so large a share of its weights. Raises
        PuzzleError if the heads of attention cannot be split over so many."""
        if share == 1:
            return self.tensor
        gpus = self.tensor / Fraction(share)
        if gpus.denominator > 1:
            problem = "on a cluster all tensor-parallel ranks have equal pieces of a layer"
            fix = "model.load_weights(layer, i, n), for rank i of n"
            raise PuzzleError(problem, where="run", got=f"{share} of a layer", fix=fix)
        self.model.check_tensor(gpus.numerator)
        return gpus.numerator

    def elements(self, labels: Labels) -> Elements:
        """Return the bytes of a tensor on each GPU of a rank."""
        return self._once(_alike(labels.kind, labels, labels), lambda: self._held(labels))  # type: ignore[no-any-return]

    def sent(self, labels: Labels) -> Elements:
        """Return the bytes of a tensor that each GPU of a rank sends. Those of a tensor-parallel group send a slice
        each of what they all have."""
        key = _alike(("sent", labels.kind), labels, labels)
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
            elif self.gathered is not None and share == 1:
                each = self.gathered
            return round(self._parameters(labels) * share * self._bytes_of(labels, each))
        if kind == SAVED:
            inner = {how: self._inner(how, share) for how in ("none", "selective", self.recomputed)}
            kept = 0.0 if labels.keep == "all" else inner["none"] - inner["selective"]
            each = max(0.0, inner["none"] - inner[self.recomputed] - kept) * self.together(labels)
            return round(each * len(labels.batches))
        if row.size != "activation":
            problem, fix = f"{type(self).__name__} has no size for {kind}", "a Cost of your own, with its elements()"
            raise PuzzleError(problem, where="run", fix=fix, line="")
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
        key = _alike(("left behind", kind), labels[0], labels[-1])
        return self._once(key, lambda: self._left_behind(labels))  # type: ignore[no-any-return]

    def _left_behind(self, labels: tuple[Labels, ...]) -> Elements:
        share, together = Fraction(len(labels[-1].shards), labels[-1].total), self.together(labels[0])
        each = self._inner(self.recomputed, share) * together + self._boundary(share) * (together - 1)
        return round(each * len(labels[0].batches))

    def workspace(self, kind: str, *labels: Labels) -> Elements:
        """Return the bytes that an operation holds while it runs: a loss the logits and, with gathered weights, the
        head and its gradient; a backward what it makes again of one layer of the model."""
        kept = next((one.extra.keep for one in labels if one.extra.keep), "")
        key = _alike(("workspace", kind, kept), labels[0], labels[-1])
        return self._once(key, lambda: self._workspace(kind, labels, kept))  # type: ignore[no-any-return]

    def _workspace(self, kind: str, labels: tuple[Labels, ...], kept: str) -> Elements:
        row, many = OPERATIONS[kind], len(labels[0].batches)
        if not row.trains:
            if row is not LOSS:
                return 0
            head = 0.0 if self.gathered is None else 2 * self.gathered * self.model.vocabulary * self.model.hidden
            return round(self.held_by_loss * many + head / self.tensor)
        recompute = self._not_kept(kept) if row.backward else "none"
        if recompute == "none":
            return 0
        share = Fraction(len(labels[-1].shards), labels[-1].total)
        known = self._inner(recompute, share) if recompute in ("selective", "every second product") else 0.0
        return round((self._inner("none", share) - known) * many)

    # -- the machine --------------------------------------------------------------------------

    @property
    def node_size(self) -> int | None:
        """How many ranks a node has."""
        return max(1, self.cluster.gpus_per_box // self.tensor)

    def check_ranks(self, ranks: int, hosts: int) -> None:
        self.cluster.check_gpus(ranks * self.tensor, f"{ranks:,} ranks of {self.tensor} GPUs" * (self.tensor > 1))

    def fits(self, size: Elements) -> bool:
        """Return whether so many bytes fit a GPU: 92 percent of its memory can be filled."""
        return size <= self.cluster.room

    def mfu(self, seconds: float, batches: int, ranks: int, formula: str | None = None) -> Mfu:
        """Return the part of the peak that is reached if so many ranks take so many seconds for the micro-batches."""
        formula = formula or self.formula
        flops = self.model.model_flops(self.micro_batch, formula) * batches
        part = Mfu(flops / (seconds * ranks * self.tensor * self.cluster.peak) if seconds else 0.0)
        part.formula = formula
        return part

    def in_words(self, kind: str) -> str:
        """Return the price of an operation on a layer in the middle, for people."""
        return f"{self.price(kind):.3g} s" if hasattr(self, kind) else "what its bytes take"


@dataclass(frozen=True)
class Cluster(Hardware):
    """GPUs in nodes, and the software that runs on them (see Hardware for the numbers)."""

    def cost(
        self,
        model: Transformer,
        *,
        micro_batch: int = 1,
        tensor: int = 1,
        sequence_parallel: bool = False,
        recompute: str = "none",
        optimizer: str = "adam",
        stored: float = 2,
        gradients: float = 2,
        gathered: float | None = None,
        reduced: float | None = None,
        adapter_rank: int | None = None,
        frozen_bits: float | None = None,
        mfu: str = "megatron",
    ) -> RealCost:
        """Return the prices of a model on this cluster, in seconds and bytes: ``run(..., cost=cluster.cost(model))``.

        ``micro_batch``: sequences in a micro-batch; ``tensor``: GPUs that share each layer, which are one rank of a
        run, with ``sequence_parallel`` also its norms and residuals; ``recompute``: what backward does again (see
        ``transformer.RECOMPUTE``; with ``"full"`` a program may say itself what is kept, with ``keep=``);
        ``optimizer``: ``"adam"``, ``"momentum"`` or ``"sgd"``; ``stored`` and ``gradients``: bytes of a weight and of
        its gradient in memory; ``gathered``: of a weight that was gathered, and of its gradient before it is reduced,
        in memory and on the links; ``reduced``: of a gradient on the links (each as in memory, unless given);
        ``adapter_rank``: of the adapter of each matrix, where only adapters are trained (``train="adapters"``), and
        ``frozen_bits``: of a weight beside them, in memory and on the links; ``mfu``: the formula of ``Run.mfu``, which
        counts what training all weights takes, ``"megatron"`` or ``"palm"``. Raises PuzzleError for what cannot be.
        """
        instance_of("model", model, Transformer, "cluster.cost(GPT_175B), with GPT_175B from lib.real")
        instance_of("sequence_parallel", sequence_parallel, bool, "sequence_parallel=True, or False")
        model.check_tensor(tensor)
        whole_number("micro_batch", micro_batch)
        one_of_names("recompute", recompute, RECOMPUTE)
        one_of_names("mfu", mfu, FORMULAS)
        check_widths("bytes", stored=stored, gradients=gradients)
        check_widths("bytes", **{n: w for n, w in (("gathered", gathered), ("reduced", reduced)) if w is not None})
        if frozen_bits is not None:
            check_widths("bits", frozen_bits=frozen_bits)
        self.check_gpus(tensor, "tensor")
        states = model.state_bytes(
            stored=stored, gradients=gradients, optimizer=optimizer, adapter_rank=adapter_rank, bits=frozen_bits
        )
        self.check_room(sum(states.values()), model.name)
        return RealCost(
            cluster=self, model=model, micro_batch=micro_batch, tensor=tensor, sequence_parallel=sequence_parallel,
            recomputed=recompute, optimizer=optimizer, stored=stored, gradients=gradients, gathered=gathered,
            reduced=reduced, adapter_rank=adapter_rank, frozen_bits=frozen_bits, formula=mfu,
        )  # fmt: skip
