"""What a transformer is made of: its weights, its operations, the bytes that it moves and the bytes that it keeps.

A layer is attention and a feed-forward part, each with a norm before it and a residual around it. ``gated=False`` is
the GPT family: LayerNorm, biases, learned positions, dropout. ``gated=True`` is the Llama family: RMSNorm, no biases,
rotary positions, no dropout, and a third matrix in the feed-forward part. Numbers to compute with have 2 bytes each.

Below, s is the length of the sequence, b the micro-batch (in sequences), h the hidden width, a the number of heads, t
the tensor-parallel ranks, as in Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models"
(arXiv 2205.05198), whose formulas these are where nothing else is said.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from ..basics.arguments import describe, instance_of, one_of_names, whole_number
from ..basics.errors import PuzzleError

MODULES = ("layernorm", "core_attn", "mlp", "moe", "moe_act", "shared_experts", "mla_up_proj")
"""Parts of a layer that backward may do again by themselves, by the names of Megatron Core's ``recompute_modules``:
norms; attention between its products; feed-forward parts; all of the experts, or their gates alone; shared experts;
what latent attention makes of its latents."""
RECOMPUTE = ("none", "selective", "full", "every second layer", "every second product")
"""What of a layer's forward is done again in backward, since it was not kept; or several of ``MODULES``.
``selective``: the scores of attention (Megatron). ``full``: all; only the input of the layer is kept. The last two are
torchtitan's "selective": all of half the layers; all but the results of attention and of every second product."""
Recompute = str | tuple[str, ...]
OF_EXPERTS_KEPT = ("moe", "moe_act", "copies")
"""What only experts keep: gates, and the tokens that go to them and come back."""
MOMENTS = {"adam": 8, "momentum": 4, "sgd": 0}
"""Bytes for each parameter of what an optimizer remembers."""
WIDTHS = {"bytes": (8, 2), "bits": (64, 4)}
"""The largest width of a number, and a usual one."""
MAIN = 4  # bytes of a main weight, which is updated where the weight itself is kept in fewer
EAGER, COMPILED, FUSED = 14, 8, 4
"""Bytes of head and loss at their peak for each token and word of the vocabulary. ``EAGER``: the logit in 2 bytes and
in 4, its logarithm in 4, its gradient in 4; ``COMPILED``: the logit in 2 and in 4 bytes, its gradient in 2, both as
measured with PyTorch 2.4.1 (github.com/apple/ml-cross-entropy); 2.11 had 12 and 4 on an H100 (``make papers``).
``FUSED``: the logit and its gradient in 2 bytes each, as in the kernel of the package flash-attn."""
BY_ROWS = ("output", "down")
"""The matrices of a layer that tensor parallelism cuts by what goes in; it cuts the others by what comes out."""
BACKWARD_MOVES = 1.5  # times the bytes that forward moves besides its matrix products
FORMULAS = ("megatron", "palm")
"""The formulas that count operations for the part of the peak that is reached (MFU)."""
OF_EXPERTS = ("chosen", "expert_hidden", "shared_experts", "dense_layers", "most_nodes", "router_biases")
"""The sizes that only models with experts have."""


class Again(NamedTuple):
    """How much of each part of a layer's forward is done again in backward, from 0 to 1."""

    products: float = 0.0  # of the operations in matrix products
    attention: float = 0.0  # of attention, its scores included
    pointwise: float = 0.0  # of what only moves bytes
    traffic: float = 0.0  # of the tensor-parallel collectives


class Kept(NamedTuple):
    """Bytes that a layer keeps for a token. ``part``: the one of ``MODULES`` that makes them; ``inside``: whether
    tensor-parallel ranks always divide them."""

    part: str
    size: float
    inside: bool = True


@dataclass(frozen=True)
class Transformer:
    """The sizes of a transformer: ``layers``, ``hidden`` width, attention ``heads``, tokens in a ``sequence``, words in
    the ``vocabulary``.

    ``kv_heads``: heads of keys and values, as many as ``heads`` unless given; ``feed_forward``: the inner width of the
    feed-forward part, 4 x hidden unless given; ``gated``: whether it is of the Llama family (see above); ``attention``:
    ``"scores"`` writes the scores of attention to memory, ``"flash"`` never does, and skips the half that is masked;
    ``tied``: whether the head is the embedding, used again. ``head_width``: the width of a head, hidden / heads unless
    given; ``head_norms``: whether queries and keys are normed, head by head, and ``wide_norms``: all heads together;
    ``latent``: of latent attention (DeepSeek, arXiv 2405.04434), the widths of the queries' latent, of that of keys and
    values, and of what carries the position.

    With ``experts`` the feed-forward part of all layers but the first ``dense_layers`` has so many, each a gated one of
    width ``expert_hidden``, of which a token goes to ``chosen``, and besides to all ``shared_experts``; ``most_nodes``:
    the nodes to which a token's experts are limited, if they are; ``router_biases``: whether the router has a bias for
    each expert, which keeps the loads even (DeepSeek-V3, arXiv 2412.19437). Raises PuzzleError for sizes that do not go
    together.

    >>> Transformer(96, 12288, 96, 2048, 50257, tied=True, name="GPT-3").size
    174604259328
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    kv_heads: int | None = None
    feed_forward: int | None = None
    gated: bool = False
    attention: str = "scores"
    tied: bool = False
    name: str = "model"
    head_width: int | None = None
    head_norms: bool = False
    wide_norms: bool = False
    latent: tuple[int, int, int] | None = None
    experts: int = 0
    chosen: int = 0
    expert_hidden: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    most_nodes: int | None = None
    router_biases: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if field.type == "bool":
                instance_of(name, value, bool, f"{name}=True, or False")
            elif str(field.type).startswith("int") and (value is not None or field.default is not None):
                object.__setattr__(self, name, whole_number(name, value, least=0 if field.default == 0 else 1))
        one_of_names("attention", self.attention, ("scores", "flash"))
        instance_of("name", self.name, str, 'name="GPT-3"')
        self._check_experts()
        of_heads = [] if self.head_width else [("heads", self.hidden, "hidden")]
        for name, of, other in (*of_heads, ("kv_heads", self.heads, "heads")):
            count = getattr(self, name) or self.heads
            if of % count:
                near = sorted(sorted(divisors(of), key=lambda n: abs(n - count))[:2])
                problem = f"{other} is not a multiple of {name}, so they cannot all be of the same width"
                expected = f"{name}={' or '.join(map(str, near))} divides {of}"
                raise PuzzleError(problem, where="Transformer", got=f"{other} {of}, {name} {count}", expected=expected)

    def _check_experts(self) -> None:
        """Raise PuzzleError for experts, and widths of heads, that cannot be."""
        if self.latent is not None:
            if not isinstance(self.latent, tuple) or len(self.latent) != 3 or not self.head_width:
                problem, got = "latent is three widths, and goes with head_width", describe(self.latent)
                expected = "latent=(1536, 512, 64), head_width=128"
                raise PuzzleError(problem, where="Transformer", got=got, expected=expected)
            object.__setattr__(self, "latent", tuple(whole_number("latent", width) for width in self.latent))
        if not self.experts:
            for name in filter(partial(getattr, self), OF_EXPERTS):
                problem, got = f"there are no experts, but {name}", f"{name}={getattr(self, name)}"
                expected = "experts=8, chosen=2, expert_hidden=14336"
                raise PuzzleError(problem, where="Transformer", got=got, expected=expected)
            return
        many, some = self.experts, 0 < self.chosen <= self.experts
        for right, problem, expected in (
            (some, f"a token goes to some of {many} experts", f"chosen from 1 to {many}"),
            (self.expert_hidden, "the width of an expert is not given", "expert_hidden from 1 up"),
            (self.dense_layers < self.layers, "no layer has experts", f"dense_layers below {self.layers}"),
            (self.gated, "only models of the Llama family have experts here", "gated=True"),
        ):
            if not right:
                raise PuzzleError(problem, where="Transformer", expected=expected, got=f"experts={many}")

    # -- weights ------------------------------------------------------------------------

    @property
    def inner(self) -> int:
        """The width of the feed-forward part."""
        return self.feed_forward or 4 * self.hidden

    @property
    def inner_met(self) -> float:
        """The width of the feed-forward parts that a token meets in a layer, on the average of all layers."""
        part = self.with_experts
        return part * (self.chosen + self.shared_experts) * self.expert_hidden + (1 - part) * self.inner

    @property
    def query_width(self) -> int:
        """The width of a token's queries that keys are compared with, all heads together."""
        width = self.head_width or self.hidden // self.heads
        return self.heads * (width + (self.latent[2] if self.latent else 0))

    @property
    def value_width(self) -> int:
        """The width of what attention gives for a token, all heads together."""
        return self.heads * (self.head_width or self.hidden // self.heads)

    @property
    def kv_width(self) -> int:
        """The width of the keys of a token, and of its values; of latent attention, the mean of the two."""
        if self.latent:
            return (self.query_width + self.value_width) // 2
        return self.value_width * (self.kv_heads or self.heads) // self.heads

    @property
    def attention_products(self) -> dict[str, tuple[int, int]]:
        """The matrices of a layer's attention, in the order in which forward multiplies by them: width in and out."""
        h, q, kv, v = self.hidden, self.query_width, self.kv_width, self.value_width
        if not self.latent:
            return {"query": (h, q), "key": (h, kv), "value": (h, kv), "output": (v, h)}
        queries, both, position = self.latent
        return {
            "query latent": (h, queries), "query": (queries, q), "latent": (h, both + position),
            "key, value": (both, 2 * v), "output": (v, h),
        }  # fmt: skip

    def feed_forward_products(self, width: int) -> dict[str, tuple[int, int]]:
        """The matrices of a feed-forward part of this width."""
        gate = {"gate": (self.hidden, width)} if self.gated else {}
        return {**gate, "up": (self.hidden, width), "down": (width, self.hidden)}

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """The matrices of a layer that each token meets, in the order in which forward multiplies by them: width in and
        width out. Of a layer with experts these are attention, the router and the shared experts."""
        if not self.experts:
            return {**self.attention_products, **self.feed_forward_products(self.inner)}
        shared = self.feed_forward_products(self.shared_experts * self.expert_hidden) if self.shared_experts else {}
        return {**self.attention_products, "router": (self.hidden, self.experts), **shared}

    @property
    def expert_size(self) -> int:
        """How many parameters an expert has: three matrices."""
        return 3 * self.hidden * self.expert_hidden

    @property
    def with_experts(self) -> float:
        """The part of the layers that has experts."""
        return (self.layers - self.dense_layers) / self.layers if self.experts else 0.0

    @property
    def matrices(self) -> int:
        """Numbers in the matrices of a layer that each token meets."""
        return _numbers(self.products)

    @property
    def norm_width(self) -> int:
        """Numbers in the norms of a layer of the Llama family."""
        within = sum(self.latent[:2]) if self.latent else 0
        of_heads = 2 * (self.head_width or self.hidden // self.heads) if self.head_norms else 0
        return 2 * self.hidden + within + of_heads + (self.query_width + self.kv_width if self.wide_norms else 0)

    def layer_parameters(self, dense: bool = False) -> dict[str, int]:
        """Return how many parameters a layer has, by weight. ``dense``: one of the first of a model with experts, which
        have none."""
        products = self.products
        if self.experts and dense:
            products = {**self.attention_products, **self.feed_forward_products(self.inner)}
        found = {name: wide * high for name, (wide, high) in products.items()}
        if not self.gated:
            return {**found, "biases": sum(high for _, high in products.values()), "norms": 4 * self.hidden}
        if self.experts and not dense:
            found |= {"router biases": self.experts} if self.router_biases else {}
            found["experts"] = self.experts * self.expert_size
        return {**found, "norms": self.norm_width}

    @property
    def layer_size(self) -> int:
        """How many parameters a layer has, one with experts where there are any."""
        return sum(self.layer_parameters().values())

    def parameters(self) -> dict[str, int]:
        """Return how many parameters the model has, by weight: all layers together, and what is before and after."""
        h, dense = self.hidden, self.dense_layers
        found = {"embedding": self.vocabulary * h}
        if not self.gated:
            found["positions"] = self.sequence * h
        for of_layer, many in ((self.layer_parameters(), self.layers - dense), (self.layer_parameters(True), dense)):
            for name, count in of_layer.items() if many else ():
                found[name] = found.get(name, 0) + many * count
        found["norms"] += h if self.gated else 2 * h
        return found if self.tied else {**found, "head": self.vocabulary * h}

    @property
    def size(self) -> int:
        """How many parameters the model has."""
        return sum(self.parameters().values())

    @property
    def active_size(self) -> int:
        """How many parameters take part in what is computed for a token: not those of experts that it does not go to,
        and of the embedding, as is usual, all."""
        return self.size - (self.layers - self.dense_layers) * (self.experts - self.chosen) * self.expert_size

    def parameters_between(self, first: int, end: int) -> int:
        """Return how many parameters the layers from ``first`` up to ``end`` have: the first layer of the model has the
        embedding, the last one the norm behind it, and the head unless it is tied."""
        dense = max(0, min(end, self.dense_layers) - first)
        count = (end - first - dense) * self.layer_size
        if dense:
            count += dense * sum(self.layer_parameters(True).values())
        if first == 0:
            count += self.vocabulary * self.hidden + (0 if self.gated else self.sequence * self.hidden)
        if end == self.layers:
            count += self.hidden * (1 if self.gated else 2) + (0 if self.tied else self.vocabulary * self.hidden)
        return count

    def experts_between(self, first: int, end: int) -> int:
        """Return how many parameters the experts of these layers have, all together."""
        return (end - max(first, min(end, self.dense_layers))) * self.experts * self.expert_size

    def adapter_parameters(self, rank: int) -> int:
        """Return how many parameters adapters of this rank have (LoRA, arXiv 2106.09685) if each matrix of each layer
        has one: a matrix from its width in to the rank, and one from there to its width out."""
        rank = whole_number("rank", rank)
        if rank > self.hidden:
            problem, expected = f"a matrix of {self.name} has at most rank {self.hidden:,}", "adapter_rank=16"
            raise PuzzleError(problem, where="adapter_rank", got=describe(rank), expected=expected)
        own = self.layers * sum(wide + high for wide, high in self.products.values())
        of_experts = 3 * self.experts * (self.layers - self.dense_layers) * (self.hidden + self.expert_hidden)
        return rank * (own + of_experts)

    # -- operations ---------------------------------------------------------------------

    def tokens(self, micro_batch: int | Fraction = 1) -> int:
        """Return how many tokens a micro-batch has. It may be a part of a sequence, such as ``Fraction(1, 16)``: where
        context parallelism divides one over 16 GPUs, each has so much. Raises PuzzleError if that is no whole number of
        tokens."""
        if not isinstance(micro_batch, Fraction):
            return self.sequence * whole_number("micro_batch", micro_batch)
        tokens = self.sequence * micro_batch
        if tokens.denominator > 1 or tokens < 1:
            problem, got = f"a sequence of {self.sequence:,} tokens has no such part", str(micro_batch)
            raise PuzzleError(problem, where="micro_batch", got=got, expected="a part that is whole tokens")
        return tokens.numerator

    def matmul_flops(self, micro_batch: int | Fraction = 1) -> int:
        """Return the operations of a layer's matrix products, forward, on the average of all layers; backward takes
        twice as many."""
        if not self.experts:
            return 2 * self.tokens(micro_batch) * self.matrices
        dense = _numbers({**self.attention_products, **self.feed_forward_products(self.inner)})
        routed = self.matrices + self.chosen * self.expert_size
        met = (self.layers - self.dense_layers) * routed + self.dense_layers * dense
        return 2 * self.tokens(micro_batch) * met // self.layers

    def product_sizes(
        self, micro_batch: int | Fraction = 1, tensor: float = 1, attention: bool | None = None, dense: bool = False
    ) -> list[tuple[float, float, float]]:
        """Return the dimensions of a layer's matrix products, forward, on each of ``tensor`` ranks: tokens, width in
        and width out. ``attention``: only those before it, or only all others; ``dense``: of a layer without experts,
        of a model that has some; those of experts are not among them. In the GPT family queries, keys and values are
        one product. The products of backward have the same dimensions in another order, two for each."""
        tokens, found = self.tokens(micro_batch), self.products
        if dense and self.experts:
            found = {**self.attention_products, **self.feed_forward_products(self.inner)}
        if attention is not None:
            before = [name for name in self.attention_products if name != "output"]
            found = {name: sizes for name, sizes in found.items() if (name in before) == attention}
        if "query" in found and not self.gated:
            together = sum(found.pop(name)[1] for name in ("query", "key", "value"))
            found = {"query, key, value": (self.hidden, together), **found}
        return [
            (tokens, wide / tensor, high) if name in BY_ROWS else (tokens, wide, high / tensor)
            for name, (wide, high) in found.items()
        ]

    def expert_sizes(self, rows: float, tensor: float = 1) -> list[tuple[float, float, float]]:
        """Return the dimensions of an expert's matrix products, forward, of so many tokens that go to it."""
        width = self.expert_hidden / tensor
        return [(rows, self.hidden, width), (rows, self.hidden, width), (rows, width, self.hidden)]

    def rows_of_an_expert(self, micro_batch: int | Fraction = 1, ways: int = 1) -> float:
        """Return how many tokens go to each expert of a layer on the average, of micro-batches of ``ways`` GPUs."""
        return ways * self.tokens(micro_batch) * self.chosen / self.experts

    def attention_flops(self, micro_batch: int | Fraction = 1, done: bool = False) -> int:
        """Return the operations of a layer's attention, forward, as formulas count them; those that are ``done``: flash
        attention leaves out the half that is masked."""
        half = 2 if done and self.attention == "flash" else 1
        return 2 * self.tokens(micro_batch) * self.sequence * (self.query_width + self.value_width) // half

    def head_flops(self, micro_batch: int | Fraction = 1) -> int:
        """Return the operations of the head, forward; backward takes twice as many."""
        return 2 * self.tokens(micro_batch) * self.hidden * self.vocabulary

    def model_flops(self, micro_batch: int | Fraction = 1, formula: str = "megatron") -> int:
        """Return the operations of a step for one micro-batch that count for the part of the peak that is reached.

        ``"megatron"`` (arXiv 2205.05198): matrix products, attention without regard to the mask, and the head, three
        times each. ``"palm"`` (arXiv 2204.02311, appendix B): 6 for each parameter and token, of the embedding as
        well, and 12 x layers x hidden x sequence for each token. Neither counts what is computed again.
        """
        one_of_names("formula", formula, FORMULAS)
        attention = self.layers * self.attention_flops(micro_batch)
        if formula == "palm":
            return 6 * self.active_size * self.tokens(micro_batch) + 3 * attention
        return 3 * (self.layers * self.matmul_flops(micro_batch) + attention + self.head_flops(micro_batch))

    def routed_bytes(self, micro_batch: int | Fraction = 1, tensor: float = 1, fused: bool = True) -> float:
        """Return the share of the experts in ``pointwise_bytes``: their gates, and the copies of their tokens."""
        each = (6 if fused else 10) * self.expert_hidden + 8 * self.hidden
        return self.with_experts * self.chosen * each * self.tokens(micro_batch) / tensor

    def copies_across(self, nodes: float, once: bool) -> float:
        """Return which part of a token's copies for ``nodes`` is sent there, if those for one node are sent ``once``:
        as many as chance chooses, and no more than the model allows; models that limit them need that."""
        met = nodes * (1 - (1 - 1 / nodes) ** self.chosen)
        return min(met, self.most_nodes or met) / self.chosen if self.most_nodes or (once and self.chosen) else 1.0

    # -- bytes that are moved -----------------------------------------------------------

    def pointwise_bytes(
        self,
        micro_batch: int | Fraction = 1,
        tensor: float = 1,
        sequence_parallel: bool = False,
        fused: bool = True,
        fused_norms: bool | None = None,
        backward: bool = False,
    ) -> float:
        """Return the bytes that a layer's forward, or backward, reads and writes besides its matrix products and its
        scores, on each of ``tensor`` ranks.

        The GPT family: norms, dropout and residuals 22sbh, the activation function 16sbh/t. The Llama family: two
        norms, two residuals, the rotation of queries and keys, and the gate. ``fused``: each of these reads its
        operands and writes its result once; otherwise, in the Llama family, norms and rotations run one operation after
        the other, in 4 bytes a number, as PyTorch does unless it compiles. ``fused_norms``: norms alone are one pass,
        as ``torch.nn.RMSNorm`` is since 2025.

        Backward moves half as much again. In the GPT family that is not ``fused`` it is more, for each number of the
        residual: two norms 20 bytes and two sums of gradients 12; the activation function 24, gradients of biases 18,
        queries, keys and values put together 12, and what attention reads and clears 16. In the Llama family with
        ``fused_norms`` alone: two norms 20, and five sums of gradients, two of them at the residuals, 30; the rotation
        as in forward; the gate, which is a product and a function, 18 for each of its own.
        """
        again = fused or self.with_experts or (self.gated and not fused_norms)  # what forward moves, and half of it
        if backward and not again:
            outside, inside = 20.0 + 12 + 4, 24 * self.inner / (4 * self.hidden) + 14 + 12 + 16
            if self.gated:
                outside = 20.0 + 30
                inside = (20 * (self.query_width + self.kv_width) + 18 * self.inner_met) / self.hidden
        elif not self.gated:
            outside, inside = 22.0, 16.0 * self.inner / (4 * self.hidden)
        else:
            # A norm: to 4 bytes, square and mean, scale, back to 2 bytes, weight. A residual: two read, one written.
            # The gate: its function, then the product; the rotation of queries and keys: to 4 bytes, rotated, and back.
            rotation, gate = (4, 6) if fused else (20, 10)
            norm = 4 if fused or fused_norms else 34
            outside = 2.0 * norm + 2 * 6
            rotation += norm * (self.head_norms or self.wide_norms)  # of queries and keys, both
            inside = rotation * (self.query_width + self.kv_width) / self.hidden + gate * self.inner_met / self.hidden
            # Tokens are sorted by experts and put back, twice, and added up: each copy is read and written.
            inside += self.with_experts * self.chosen * 8
        numbers = self.tokens(micro_batch) * self.hidden
        moved = numbers * (outside / (tensor if sequence_parallel else 1) + inside / tensor)
        return BACKWARD_MOVES * moved if backward and again else moved

    def score_bytes(self, micro_batch: int | Fraction = 1, backward: bool = False) -> float:
        """Return the bytes that a layer moves for attention's scores: 13as²b, in backward 19as²b; for flash none."""
        if self.attention == "flash":
            return 0.0
        return float((19 if backward else 13) * self.heads * self.sequence * self.tokens(micro_batch))

    def boundary_bytes(self, micro_batch: int | Fraction = 1) -> int:
        """Return the bytes of a layer's input, or of its output, or of the gradient of either: 2sbh."""
        return 2 * self.tokens(micro_batch) * self.hidden

    # -- bytes that are kept ------------------------------------------------------------

    def activation_bytes(
        self,
        micro_batch: int | Fraction = 1,
        tensor: int = 1,
        sequence_parallel: bool = False,
        recompute: Recompute = "none",
        fused: bool = True,
        fp8: bool = False,
        routed: bool = True,
    ) -> float:
        """Return the bytes that a layer keeps from forward to backward on each of ``tensor`` ranks, on the average of
        all layers: sbh(10 + 24/t + 5as/(ht)) in the GPT family, with ``sequence_parallel`` all of it divided by t. In
        the Llama family a gate that is not ``fused`` keeps the result of its function as well. Without what is
        ``routed``, the share of the experts is left out.

        >>> gpt3 = Transformer(96, 12288, 96, 2048, 51200, tied=True)
        >>> [round(gpt3.activation_bytes(1, 8, True, how) / 2**20) for how in ("none", "selective", "full")]
        [342, 102, 6]
        """
        check_recompute(recompute)
        self.check_tensor(tensor)
        tokens, share = self.tokens(micro_batch), tensor if sequence_parallel else 1
        boundary = 2.0 * tokens * self.hidden / share
        if recompute == "full":
            return boundary
        if recompute == "every second layer":
            whole = self.activation_bytes(micro_batch, tensor, sequence_parallel, "none", fused, fp8, routed)
            return (whole + boundary) / 2
        if recompute == "every second product":
            kept = self.hidden + sum(high for _, high in list(self.products.values())[::2])
            return boundary + 2.0 * tokens * kept / tensor
        left = recompute if isinstance(recompute, tuple) else ("core_attn",) * (recompute == "selective")
        left += OF_EXPERTS_KEPT if "moe" in left or not routed else ()
        some = [one for one in self.kept(fused, fp8) if one.part not in left]
        return boundary + tokens * sum(one.size / (tensor if one.inside else share) for one in some)

    def kept(self, fused: bool = True, fp8: bool = False) -> list[Kept]:
        """Return what a layer keeps for each token besides its input, on the average of all layers. With ``fp8`` what a
        product reads is kept in 1 byte (github.com/NVIDIA/TransformerEngine), beside the result of attention in 2."""
        h, q, v, kv = self.hidden, self.query_width, self.value_width, self.kv_width
        read, gate = 1 if fp8 else 2, (4 if fused else 6) if self.gated else 2
        part, wide = self.with_experts, self.expert_hidden
        act = read if fused else read + 2
        return [
            Kept("layernorm", 2 * read * h, inside=False),
            Kept("", 2 * h if self.gated else 4 * h, inside=False),  # between the two parts; masks of dropout
            Kept("mla_up_proj" if self.latent else "", 2 * q + 4 * kv),
            Kept("", (2 + fp8) * v + 2 * (q + kv) * (self.head_norms or self.wide_norms) + 2 * sum(self.latent or ())),
            Kept("core_attn", 5 * self.heads * self.sequence * (self.attention == "scores")),
            Kept("mlp", (1 - part) * (gate + read) * self.inner),
            Kept("shared_experts", part * self.shared_experts * (gate + read) * wide),
            Kept("moe", part * self.chosen * (gate + read - act) * wide),
            Kept("moe_act", part * self.chosen * act * wide),
            Kept("copies", part * self.chosen * (read + 2) * h),  # one goes to each expert, and comes back
        ]

    def done_again(self, recompute: Recompute) -> Again:
        """Return what of a layer's forward is done again in backward."""
        check_recompute(recompute)
        second = sum(wide * high for wide, high in list(self.products.values())[1::2])
        again = {
            "selective": Again(attention=1.0 if self.attention == "scores" else 0.0),
            "full": Again(1.0, 1.0, 1.0, 1.0),
            "every second layer": Again(0.5, 0.5, 0.5, 0.5),
            "every second product": Again(products=second / self.matrices, pointwise=1.0, traffic=0.5),
        }
        if not isinstance(recompute, tuple):
            return again.get(recompute, Again())
        part, wide, latent = self.with_experts, self.expert_hidden, self.latent is not None
        gates = {"mlp": (1 - part) * self.inner, "shared_experts": part * self.shared_experts * wide}
        gates |= {"moe": part * self.chosen * wide, "moe_act": part * self.chosen * wide * ("moe" not in recompute)}
        matrices = 3 if self.gated else 2
        numbers = {name: matrices * self.hidden * gates[name] for name in gates if name != "moe_act"}
        made = (self.attention_products[name] for name in ("query", "key, value") if latent)
        numbers["mla_up_proj"] = sum(low * high for low, high in made)
        moved = {name: 2 * matrices * width for name, width in gates.items()} | {"layernorm": 8 * self.hidden}
        return Again(
            sum(numbers.get(name, 0.0) for name in recompute) * 2 * self.tokens() / self.matmul_flops(),
            float("core_attn" in recompute),
            sum(moved.get(name, 0.0) for name in recompute) * self.tokens() / self.pointwise_bytes(),
            1.0 if "moe" in recompute else 0.5 if "mlp" in recompute else 0.0,
        )

    def state_bytes(
        self,
        *,
        stored: float = 2,
        gradients: float = 2,
        optimizer: str = "adam",
        parameters: int | None = None,
        adapter_rank: int | None = None,
        bits: float | None = None,
    ) -> dict[str, float]:
        """Return the bytes of weights, their gradients and the optimizer's states, all ranks together.

        ``stored`` and ``gradients``: bytes of a weight and of its gradient; ``parameters``: of so many, of the whole
        model unless given. With ``adapter_rank`` only adapters have gradients and states, and the other weights are
        frozen and take ``bits`` bits each.
        """
        one_of_names("optimizer", optimizer, tuple(MOMENTS))
        check_widths("bytes", stored=stored, gradients=gradients)
        check_widths("bits", bits=8 * stored if bits is None else bits)
        count = self.size if parameters is None else whole_number("parameters", parameters)
        frozen = 0.0
        if adapter_rank is not None:
            frozen, count = count * (8 * stored if bits is None else bits) / 8, self.adapter_parameters(adapter_rank)
        elif bits is not None:
            problem, expected = "weights of so few bits are not trained", "adapter_rank=16, which trains adapters"
            raise PuzzleError(problem, where="state_bytes", got=f"bits={describe(bits)}", expected=expected)
        return {
            "Weight": frozen + count * stored,
            "WeightGrad": count * gradients,
            "OptState": count * self.optimizer_bytes(stored, optimizer),
        }

    @staticmethod
    def optimizer_bytes(stored: float, optimizer: str = "adam") -> int:
        """Return the bytes of the optimizer's states for each parameter: a main weight as well, unless weights
        themselves have as many bytes."""
        one_of_names("optimizer", optimizer, tuple(MOMENTS))
        return MOMENTS[optimizer] + MAIN * (stored < MAIN)

    def loss_bytes(self, micro_batch: int | Fraction = 1, tensor: int = 1, each: float = EAGER) -> float:
        """Return the bytes that head and loss hold while they run: so many for each token and word of the vocabulary,
        which is a matter of the software (see ``EAGER``)."""
        return each * self.tokens(micro_batch) * self.vocabulary / tensor

    def check_tensor(self, tensor: int) -> None:
        """Raise PuzzleError for a tensor parallelism that does not divide the heads: each rank has whole ones."""
        tensor = whole_number("tensor", tensor)
        heads = self.kv_heads or self.heads
        if heads % tensor:
            of = " of keys and values" * (heads < self.heads)
            problem = f"{self.name} has {heads} heads{of}, which cannot be split over {tensor} tensor-parallel ranks"
            expected = f"tensor= one of {', '.join(map(str, divisors(heads)))}"
            raise PuzzleError(problem, where="tensor", expected=expected, got=str(tensor))

    def check_ulysses(self, tensor: int, ways: int) -> None:
        """Raise PuzzleError if ``ways`` ranks that turn slices of a sequence into heads, each of them ``tensor`` GPUs,
        are more than there are heads of keys and values: each GPU has whole ones."""
        heads = self.kv_heads or self.heads
        if heads % (tensor * ways):
            most = max(n for n in divisors(heads) if n <= heads // tensor)
            problem = f"{self.name} has {heads} heads of keys and values, which cannot be split so far"
            expected = f"at most {most} rank{'s' * (most > 1)} that turn slices into heads, with tensor={tensor}"
            raise PuzzleError(problem, where="alltoall", got=f"{ways} ranks of {tensor} GPUs", expected=expected)

    def __str__(self) -> str:
        return f"{self.name} ({self.size / 1e9:.4g} billion parameters)"


def check_recompute(recompute: object) -> None:
    """Raise PuzzleError for what names nothing that may be computed again."""
    names, known = (recompute, MODULES) if isinstance(recompute, tuple) else ((recompute,), RECOMPUTE)
    for name in names:
        one_of_names("recompute", name, known)


def _numbers(products: dict[str, tuple[int, int]]) -> int:
    """Return how many numbers matrices have."""
    return sum(wide * high for wide, high in products.values())


def check_widths(unit: str, **widths: object) -> None:
    """Raise PuzzleError for what cannot be the width of a number, in ``bytes`` or ``bits``."""
    most, usual = WIDTHS[unit]
    for name, width in widths.items():
        if isinstance(width, bool) or not isinstance(width, (int, float)) or not 0 < width <= most:
            problem, expected = f"{name} must be the {unit} of a number", f"from 0 up to {most}, such as {name}={usual}"
            raise PuzzleError(problem, where="cost", expected=expected, got=describe(width))


def divisors(number: int) -> list[int]:
    """Return the numbers that divide a number, from 1 up."""
    return [n for n in range(1, number + 1) if number % n == 0]
