"""What a layer of a model takes on the GPUs of a rank: the seconds of its parts, forward and backward.

A rank of a run is ``tensor`` x ``context`` GPUs, all of which do the same at the same time: ``tensor`` share the
matrices of a layer, ``context`` the sequence. With ``expert_parallel`` the experts of a layer are divided among so many
ranks. What all these send each other is part of the price of a layer, since nothing is computed beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from .hardware import Hardware
from .transformer import BACKWARD_MOVES, Transformer

FLASH_BACKWARD = 2.5
"""Backward of flash attention takes so many times the operations of forward: it makes the scores again."""
SENDS = 16 / 132
"""The part of a GPU's multiprocessors that sends while products are computed: Transformer Engine's default on an H100
(``num_sm`` in transformer_engine/pytorch/module/base.py), taken for all traffic, on every GPU."""
RING_ADDS = 10
"""Bytes that ring attention moves for each number that a step adds: it is read in 2, the sum read and written in 4.
PyTorch adds results, and backward three gradients (torch/distributed/tensor/experimental/_attention.py)."""
EXPERTS_SEND = 20 / 132
"""The same while tokens go to experts beside what is computed: arXiv 2412.19437, section 3.2.2, and the default of
Megatron Core (``moe_deepep_num_sms``), both for GPUs with 132."""
BEFORE = 0.5
"""The part of what only moves bytes that comes before attention: one of two norms, and the rotation."""


class Parts(NamedTuple):
    """The seconds of a layer: matrix products, attention, what moves bytes only, and traffic."""

    products: float = 0.0
    attention: float = 0.0
    moved: float = 0.0
    traffic: float = 0.0

    def times(self, *factors: float) -> float:
        """Return the sum of all parts, each as often as its factor says."""
        return sum(part * factor for part, factor in zip(self, factors, strict=True))


@dataclass(frozen=True)
class Layer:
    """A layer of a model, on the average of all its layers, on each GPU of a rank. ``apart``: whether experts are
    layers of a run by themselves, so that they are no part of this one."""

    cluster: Hardware
    model: Transformer
    micro_batch: int
    tensor: int
    sequence_parallel: bool = False
    context: int = 1
    expert_parallel: int = 1
    apart: bool = False
    fp8: bool = False
    overlap: bool = False
    expert_tensor: int = 1
    experts_hidden: float = 0.0

    @cached_property
    def part(self) -> int | Fraction:
        """How many sequences each GPU has: a part of them with context parallelism."""
        return self.micro_batch if self.context == 1 else Fraction(self.micro_batch, self.context)

    # -- matrix products --------------------------------------------------------------------------

    def products(self, tensor: float, attention: bool | None = None) -> float:
        """Return the seconds of the products that each token meets, forward, on each of ``tensor`` GPUs: of those
        before attention alone, or of the others alone, if that is said."""
        part = self.model.with_experts

        def of(dense: bool) -> float:
            whole, own = (self.model.product_sizes(self.part, t, attention, dense) for t in (1, tensor))
            return self._together(own) + self._cast(whole) / tensor

        return of(False) if part in (0, 1) else part * of(False) + (1 - part) * of(True)

    def of_experts(self, rows: float, count: float, tensor: float) -> float:
        """Return the seconds of the products of ``count`` experts to each of which so many tokens go, forward."""
        sizes = self.model.expert_sizes(rows, tensor)
        return self.model.with_experts * count * (self._together(sizes) + self._cast(sizes))

    def _together(self, products: list[tuple[float, float, float]]) -> float:
        return sum(self.cluster.product_takes(*sizes, fp8=self.fp8) for sizes in products)

    def _cast(self, products: list[tuple[float, float, float]]) -> float:
        """Return the seconds in which operands become numbers of 8 bits, a third of those of forward and backward: what
        a product reads, and the gradient of what it gives. Ranks that share a product share that, before they gather
        its operands."""
        numbers = sum(rows * (wide + high) for rows, wide, high in products) / 3
        return self.cluster.moving_takes(self.cluster.cast_bytes * numbers) if self.fp8 else 0.0

    @cached_property
    def routed(self) -> float:
        """The seconds of the products of those experts that a GPU has, forward, if it has them all, or its share."""
        if not self.model.experts or self.apart:
            return 0.0
        rows = self.model.rows_of_an_expert(self.part, self.expert_parallel) * self.expert_tensor / self.tensor
        return self.of_experts(rows, self.model.experts / self.expert_parallel, self.expert_tensor)

    # -- what moves bytes only --------------------------------------------------------------------

    def moved(self, tensor: float, backward: bool = False) -> float:
        """Return the seconds of what only moves bytes, forward or backward, besides attention's scores."""
        cluster, model = self.cluster, self.model
        how = self.sequence_parallel, cluster.fused, cluster.fused_norms, backward
        size = model.pointwise_bytes(self.part, tensor, *how)
        if self.apart:
            size -= (BACKWARD_MOVES if backward else 1) * model.routed_bytes(self.part, tensor, cluster.fused)
        return cluster.moving_takes(size)

    def attention(self, tensor: float, backward: bool = False) -> float:
        """Return the seconds of attention, forward or backward, its scores included."""
        cluster, model = self.cluster, self.model
        more = 1.0
        if backward:
            more = FLASH_BACKWARD if model.attention == "flash" else 2
        took = cluster.attention_takes(more * model.attention_flops(self.part, done=True) / tensor, backward)
        size = model.score_bytes(self.part, backward)
        if self.context > 1 and cluster.ring:
            size += RING_ADDS * (3 if backward else 1) * model.tokens(self.micro_batch) * model.value_width
        return took + cluster.moving_takes(size / tensor)

    # -- traffic ----------------------------------------------------------------------------------

    @cached_property
    def _whole_tensor_traffic(self) -> float:
        """The seconds of tensor-parallel collectives, forward, as long as two all-reduces: what is gathered of a
        sequence for products of 8 bits has 8 bits as well. Experts have the second one; of those that are divided
        among ranks as well, for all copies of tokens that came; none where each GPU has whole ones."""
        if self.tensor == 1:
            return 0.0
        per_node, model = min(self.tensor, self.cluster.gpus_per_box), self.model
        routed = 0 if self.expert_tensor < self.tensor else model.chosen if self.expert_parallel > 1 else 1
        experts = max(routed, 1) if model.shared_experts else routed
        rounds = (4 - 2 * model.with_experts * (1 - experts)) * (0.75 if self.fp8 and self.sequence_parallel else 1)
        return self.cluster.ring_takes(self.model.boundary_bytes(self.part), self.tensor, per_node, rounds)

    @cached_property
    def hidden_traffic(self) -> float:
        """The seconds of these in which products are computed beside them."""
        return self._whole_tensor_traffic - self.tensor_traffic

    @cached_property
    def tensor_traffic(self) -> float:
        """The seconds of tensor-parallel collectives, forward, that nothing hides. With ``overlap`` each begins
        piece by piece while its product is computed, and only one piece is seen, or what takes longer than the
        products; and these take longer by what the traffic takes of the GPU."""
        whole = self._whole_tensor_traffic
        if not whole or not self.overlap:
            return whole
        products = self.products(self.tensor)
        return max(whole / self.tensor, whole - products) + SENDS * min(whole, products)

    def context_traffic(self, backward: bool = False) -> float:
        """Return the seconds in which the keys and values of a sequence are gathered from the GPUs that share it, and
        backward their gradients summed. A ``ring`` gathers those of all heads of queries while it attends to its own;
        gradients of 4 bytes are sent on while the next ones are made, and the last ones home."""
        if self.context == 1:
            return 0.0
        cluster, model, ways = self.cluster, self.model, self.context
        per_node = max(1, min(ways, cluster.gpus_per_box // self.tensor))
        width = (model.value_width if cluster.ring else model.kv_width) / self.tensor
        gathered = cluster.ring_takes(4 * width * model.tokens(self.micro_batch), ways, per_node)
        if not cluster.ring:
            return 2 * gathered if backward else gathered
        turn = self.attention(self.tensor, backward) / ways
        sent = cluster.sending_takes(8 * width * model.tokens(self.part), per_node < ways)
        return max(0.0, gathered - turn) + (sent + (ways - 1) * max(0.0, sent - turn) if backward else 0.0)

    @cached_property
    def expert_traffic(self) -> float:
        """The seconds of two all-to-alls, in which tokens go to their experts and home again, that nothing hides: a
        part is behind what is computed of another micro-batch, of which a backward is beside each forward; and that
        takes longer by what they take of the GPU."""
        if self.expert_parallel == 1:
            return 0.0
        cluster, model, ways = self.cluster, self.model, self.expert_parallel
        per_node = max(1, min(ways, cluster.gpus_per_box // (self.expert_tensor * self.context)))
        size = model.chosen * model.boundary_bytes(self.part) / self.tensor
        across = model.copies_across(ways / per_node, cluster.sent_once)
        whole = 2 * model.with_experts * cluster.alltoall_takes(size, ways, per_node, across)
        both = sum(self.attention(self.tensor, back) + self.moved(self.tensor, back) for back in (False, True))
        both += 3 * (self.products(self.tensor) + self.routed)
        hidden = min(self.experts_hidden * whole, both / 2)
        return whole - hidden + EXPERTS_SEND * hidden

    @cached_property
    def traffic(self) -> float:
        """The seconds of all traffic within a layer, forward."""
        return self.tensor_traffic + self.context_traffic() + self.expert_traffic

    @cached_property
    def traffic_back(self) -> float:
        """The same backward: keys and values are gathered again, and their gradients summed."""
        return self.tensor_traffic + self.context_traffic(backward=True) + self.expert_traffic

    # -- a layer, and its steps ---------------------------------------------------------------------

    def forward(self, tensor: float) -> Parts:
        """Return the seconds of a forward on each of ``tensor`` GPUs."""
        products = self.products(tensor) + self.routed * self.tensor / tensor
        return Parts(products, self.attention(tensor), self.moved(tensor), self.traffic)

    def backward(self, tensor: float) -> Parts:
        """Return the seconds of a backward, with nothing to be computed again."""
        products = 2 * (self.products(tensor) + self.routed * self.tensor / tensor)
        return Parts(products, self.attention(tensor, True), self.moved(tensor, True), self.traffic_back)

    def step(self, kind: str) -> Parts:
        """Return the seconds of one of the three steps of a layer, of a whole sequence, by its name: ``project``,
        ``attend`` or ``rest``; those of a backward begin with ``backward_``."""
        backward, t = kind.startswith("backward_"), self.tensor
        name, times = kind.removeprefix("backward_"), 2 if backward else 1
        if name == "attend":
            return Parts(attention=self.attention(t, backward))
        if name == "project":
            return Parts(times * self.products(t, True), 0.0, BEFORE * self.moved(t, backward))
        traffic = self.traffic_back if backward else self.traffic
        products = times * (self.products(t, False) + self.routed)
        return Parts(products, 0.0, (1 - BEFORE) * self.moved(t, backward), traffic)
