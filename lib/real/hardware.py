"""The GPUs of a cluster: how fast each computes, how much memory it has, and what links them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod

from ..basics.arguments import describe, instance_of, whole_number
from ..basics.errors import PuzzleError
from ..basics.units import show_bytes
from .transformer import EAGER

FITS = 0.92
"""The part of a card's memory that tensors can fill. The rest is for CUDA and NCCL, and for what PyTorch's allocator
keeps for later, or cannot use, because it lies in gaps."""
MIB = 2**20
NUMBER = 2  # bytes of a number to compute with
NEEDED = ("peak", "memory", "memory_bandwidth", "link", "nic", "host_bandwidth", "host_link")
FLAGS = ("fused", "fused_norms", "overlap", "sent_once", "ring")


@dataclass(frozen=True)
class Hardware:
    """GPUs in nodes, and the software that runs on them: how much of the sheet is reached depends on both.

    ``peak``: operations a second in matrix products of 16-bit numbers, without sparsity; ``reached``: the part of it
    that large matrix products come to, and ``half_reached_at``: the size of the smallest dimension with which a product
    comes to half of that; ``attention_reached`` and ``attention_back_reached``: the part of the peak that attention
    comes to, forward and backward (as large products, and as forward, unless given), which depends on the version of
    flash attention; ``loss_bytes``: what head and loss hold for each token and word of the vocabulary (see ``EAGER``);
    ``memory`` in bytes, ``memory_bandwidth`` in bytes a second, ``memory_reached``: the part of that; ``link``: bytes a
    second from one GPU to the others of its node, in one direction; ``nic``: bytes a second between nodes *for each
    GPU* (a card that eight share counts as an eighth); ``link_reached``: the part of both that a ring comes to;
    ``latency`` and ``latency_across``: seconds of a step of a ring in a node, and between nodes; ``fused``: whether
    norms and the like are compiled into one pass over memory, and ``fused_norms``: whether norms are even where nothing
    is compiled (as ``fused``, unless given); ``gpus``: how many there are, if that is limited.
    ``host_memory`` (bytes a node), ``host_bandwidth`` and ``host_link`` (bytes a second, the latter for each GPU)
    describe the processors beside the GPUs. ``peak_fp8``: operations a second in matrix products of 8-bit numbers; 0
    where there are none; ``cast_bytes``: that are moved for each number that becomes one of 8 bits, 6 where it is read
    twice and written twice (Transformer Engine's current scaling on an H100). ``overlap``: whether the traffic of
    tensor parallelism is sent while products are computed; ``experts_hidden``: the part of the time in which tokens go
    to experts and home that is hidden behind what is computed of another micro-batch; ``sent_once``: whether a token is
    sent once to a node in which several of its experts are, and passed on there (DeepEP); ``ring``: whether GPUs that
    share a sequence attend to its slices in turns, as PyTorch's do. Raises PuzzleError for a number that cannot be.
    """

    name: str
    peak: float
    reached: float
    memory: float
    memory_bandwidth: float
    link: float
    nic: float
    attention_reached: float | None = None
    attention_back_reached: float | None = None
    half_reached_at: float = 0.0
    loss_bytes: float = EAGER
    memory_reached: float = 0.85
    link_reached: float = 0.8
    latency: float = 3e-6
    latency_across: float = 10e-6
    gpus_per_box: int = 8
    gpus: int | None = None
    fused: bool = True
    fused_norms: bool | None = None
    host_memory: float = 1e12
    host_bandwidth: float = 200e9
    host_link: float = 25e9
    peak_fp8: float = 0.0
    cast_bytes: float = 6.0
    overlap: bool = False
    experts_hidden: float = 0.0
    sent_once: bool = False
    ring: bool = False

    def __post_init__(self) -> None:
        instance_of("name", self.name, str, 'name="A100"')
        for name in FLAGS:
            if getattr(self, name) is not None or name != "fused_norms":
                instance_of(name, getattr(self, name), bool, f"{name}=True, or False")
        for field in fields(self):
            name, value, part = field.name, getattr(self, field.name), field.name.endswith("reached")
            if name in ("name", *FLAGS) or (value is None and field.default is None):
                continue
            if name.startswith("gpus"):
                object.__setattr__(self, name, whole_number(name, value))
                continue
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
            most = 1 if part or name == "experts_hidden" else value
            if not number or value > most or (not value and (part or name in NEEDED)):
                least = "above 0" if part or name in NEEDED else "from 0 up"
                expected = f"a number {least}{' and at most 1' * (part or name == 'experts_hidden')}"
                raise PuzzleError(f"{name} cannot be", where="Cluster", expected=expected, got=describe(value))

    @property
    def room(self) -> float:
        """The bytes of a GPU that can be filled."""
        return FITS * self.memory

    @property
    def per_node(self) -> int:
        """How many GPUs a node has."""
        return min(self.gpus_per_box, self.gpus or self.gpus_per_box)

    def product_takes(self, *dimensions: float, fp8: bool = False) -> float:
        """Return the seconds of a matrix product: of rows, columns, and what is summed over. The smaller the smallest
        of them, the less often is each number used that the product reads or writes; and it takes at least as long as
        its numbers take to be read and written. With ``fp8`` numbers have 8 bits."""
        small = 1 + self.half_reached_at / min(dimensions)
        took = 2 * prod(dimensions) / (self.peak * self.reached) * small
        rows, wide, high = dimensions
        moved = self.moving_takes(NUMBER * (rows * wide + wide * high + rows * high))
        return max(took * self.peak / self.peak_fp8, moved / 2) if fp8 else max(took, moved)

    def attention_takes(self, flops: float, backward: bool = False) -> float:
        """Return the seconds that attention of so many operations takes."""
        part = self.attention_reached or self.reached
        return flops / (self.peak * (self.attention_back_reached or part if backward else part))

    def moving_takes(self, size: float) -> float:
        """Return the seconds that it takes to read and write so many bytes of the GPU's own memory."""
        return size / (self.memory_bandwidth * self.memory_reached)

    def bandwidth(self, ranks: int, per_node: int) -> float:
        """Return the bytes a second of a ring of so many ranks, of which at most ``per_node`` share a node. A ring that
        leaves the node goes over the cards of all its ranks there, which work side by side."""
        sheet = self.link if per_node >= ranks else min(self.link, per_node * self.nic)
        return sheet * self.link_reached

    def ring_takes(self, size: float, ranks: int, per_node: int, rounds: float = 1) -> float:
        """Return the seconds that a ring takes to gather or reduce so many bytes: all of them, put together. Of its
        ranks - 1 steps as many cross nodes as there are nodes, less one (NCCL, src/graph/tuning.cc: nInterSteps)."""
        across = -(-ranks // min(per_node, ranks)) - 1
        steps = (ranks - 1 - across) * self.latency + across * self.latency_across
        return rounds * (steps + size * (ranks - 1) / ranks / self.bandwidth(ranks, per_node))

    def alltoall_takes(self, size: float, ranks: int, per_node: int, across: float = 1.0) -> float:
        """Return the seconds of an all-to-all in which each rank sends or gets so many bytes, its own among them. What
        goes to other nodes takes a GPU's own card, meanwhile the rest goes over the links of the node; ``across``: the
        part of the former that is sent, if what goes to several ranks of a node is sent there once and passed on."""
        near, far = size * (per_node - 1) / ranks, size * (ranks - per_node) / ranks
        steps = (per_node - 1) * self.latency + (ranks - per_node) / per_node * self.latency_across
        passed_on = near + (far if across < 1 else 0.0)
        return steps + max(passed_on / self.link, across * far / self.nic) / self.link_reached

    def sending_takes(self, size: float, across: bool) -> float:
        """Return the seconds that a message of so many bytes takes."""
        speed, step = (self.nic, self.latency_across) if across else (self.link, self.latency)
        return step + size / (speed * self.link_reached)

    def check_gpus(self, gpus: int, what: str) -> None:
        """Raise PuzzleError if there are fewer GPUs."""
        if self.gpus is not None and gpus > self.gpus:
            problem, got = f"{self.name} has {self.gpus:,} GPUs", f"{gpus:,} GPUs"
            expected = f"fewer ranks, a smaller mesh, or replace(cluster, gpus={gpus})"
            raise PuzzleError(problem, where=what, got=got, expected=expected)

    def has_room(self, states: float) -> bool:
        """Return whether all GPUs together have room for states of so many bytes."""
        return self.gpus is None or states <= self.gpus * self.room

    def check_room(self, states: float, what: str) -> None:
        """Raise PuzzleError if all GPUs together have no room for states of so many bytes."""
        if not self.has_room(states):
            need = -int(-states // self.room)
            problem = f"{what} fits nowhere on {self.name}: its states alone are more than the memory of all GPUs"
            expected = f"at most {self.gpus} x {show_bytes(self.room)}; or {need:,} GPUs or more"
            raise PuzzleError(problem, where="Cluster", expected=expected, got=show_bytes(states))

    def __str__(self) -> str:
        many = f"{self.gpus:,} x " if self.gpus else ""
        return f"{many}{self.name} ({self.reached:.2f} of {self.peak / 1e12:.0f} TFLOP/s, {show_bytes(self.memory)})"
