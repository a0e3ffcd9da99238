"""What a transformer is made of: its weights, its operations, the bytes that it moves and the bytes that it keeps.

A layer is attention and a feed-forward part, each with a norm before it and a residual around it. ``gated=False`` is
the GPT family: LayerNorm, biases, learned positions, dropout. ``gated=True`` is the Llama family: RMSNorm, no biases,
rotary positions, no dropout, and a third matrix in the feed-forward part. Numbers to compute with have 2 bytes each.

Below, s is the length of the sequence, b the micro-batch (in sequences), h the hidden width, a the number of heads, t
the tensor-parallel ranks, as in Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models"
(arXiv 2205.05198), whose formulas these are where nothing else is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..basics.arguments import describe, instance_of, one_of_names, whole_number
from ..basics.errors import PuzzleError

RECOMPUTE = ("none", "selective", "full", "every second layer", "every second product")
"""What of a layer's forward is done again in backward, since it was not kept. ``selective``: the scores of attention
(Megatron). ``full``: all; only the input of the layer is kept. ``every second layer``: all of half the layers. ``every
second product``: all but the results of attention and of every second matrix product. (The last two are what torchtitan
calls "selective", per layer and per operation.)"""
MOMENTS = {"adam": 8, "momentum": 4, "sgd": 0}
"""Bytes for each parameter of what an optimizer remembers."""
WIDTHS = {"bytes": (8, 2), "bits": (64, 4)}
"""The largest width of a number, and a usual one."""
MAIN = 4  # bytes of a main weight, which is updated where the weight itself is kept in fewer
EAGER, COMPILED, FUSED = 14, 8, 4
"""Bytes of head and loss at their peak for each token and word of the vocabulary. ``EAGER``: the logit in 2 bytes and
in 4, its logarithm in 4, its gradient in 4; ``COMPILED``: the logit in 2 and in 4 bytes, its gradient in 2. These two
are what was measured for 8,192 tokens and 256,000 words, 28,000 and 16,000 MiB (github.com/apple/ml-cross-entropy,
PyTorch 2.4.1). ``FUSED``: the logit and its gradient in 2 bytes each, as in the kernel of the package flash-attn."""
BY_ROWS = ("output", "down")
"""The matrices of a layer that tensor parallelism cuts by what goes in; it cuts the others by what comes out."""
BACKWARD_MOVES = 1.5  # times the bytes that forward moves besides its matrix products
FORMULAS = ("megatron", "palm")
"""The formulas that count operations for the part of the peak that is reached (MFU)."""


class Again(NamedTuple):
    """How much of each part of a layer's forward is done again in backward, from 0 to 1."""

    products: float = 0.0  # of the operations in matrix products
    attention: float = 0.0  # of attention, its scores included
    pointwise: float = 0.0  # of what only moves bytes
    traffic: float = 0.0  # of the tensor-parallel collectives


@dataclass(frozen=True)
class Transformer:
    """The sizes of a transformer: ``layers``, ``hidden`` width, attention ``heads``, tokens in a ``sequence``, words in
    the ``vocabulary``.

    ``kv_heads``: heads of keys and values, as many as ``heads`` unless given; ``feed_forward``: the inner width of the
    feed-forward part, 4 x hidden unless given; ``gated``: whether it is of the Llama family (see above); ``attention``:
    ``"scores"`` writes the scores of attention to memory, ``"flash"`` never does, and skips the half that is masked;
    ``tied``: whether the head is the embedding, used again. Raises PuzzleError for sizes that do not go together.

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

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "sequence", "vocabulary", "kv_heads", "feed_forward"):
            if getattr(self, name) is not None or name not in ("kv_heads", "feed_forward"):
                object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        one_of_names("attention", self.attention, ("scores", "flash"))
        for name in ("gated", "tied"):
            instance_of(name, getattr(self, name), bool, f"{name}=True, or False")
        instance_of("name", self.name, str, 'name="GPT-3"')
        for name, of, other in (("heads", self.hidden, "hidden"), ("kv_heads", self.heads, "heads")):
            count = getattr(self, name) or self.heads
            if of % count:
                near = sorted(sorted(divisors(of), key=lambda n: abs(n - count))[:2])
                problem = f"{other} is not a multiple of {name}, so they cannot all be of the same width"
                fix = f"{name}={' or '.join(map(str, near))} divides {of}"
                raise PuzzleError(problem, where="Transformer", got=f"{other} {of}, {name} {count}", fix=fix)

    # -- weights ------------------------------------------------------------------------

    @property
    def inner(self) -> int:
        """The width of the feed-forward part."""
        return self.feed_forward or 4 * self.hidden

    @property
    def kv_width(self) -> int:
        """The width of the keys of a token, and of its values."""
        return self.hidden * (self.kv_heads or self.heads) // self.heads

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """The matrices of a layer, in the order in which forward multiplies by them: width in and width out."""
        h, f = self.hidden, self.inner
        attention = {"query": (h, h), "key": (h, self.kv_width), "value": (h, self.kv_width), "output": (h, h)}
        gate = {"gate": (h, f)} if self.gated else {}
        return {**attention, **gate, "up": (h, f), "down": (f, h)}

    @property
    def matrices(self) -> int:
        """Numbers in the matrices of a layer."""
        return sum(wide * high for wide, high in self.products.values())

    def layer_parameters(self) -> dict[str, int]:
        """Return how many parameters a layer has, by weight."""
        found = {name: wide * high for name, (wide, high) in self.products.items()}
        if self.gated:
            return {**found, "norms": 2 * self.hidden}
        return {**found, "biases": sum(high for _, high in self.products.values()), "norms": 4 * self.hidden}

    @property
    def layer_size(self) -> int:
        """How many parameters a layer has."""
        return sum(self.layer_parameters().values())

    def parameters(self) -> dict[str, int]:
        """Return how many parameters the model has, by weight: all layers together, and what is before and after."""
        h = self.hidden
        found = {"embedding": self.vocabulary * h}
        if not self.gated:
            found["positions"] = self.sequence * h
        found |= {name: self.layers * count for name, count in self.layer_parameters().items()}
        found["norms"] += h if self.gated else 2 * h
        return found if self.tied else {**found, "head": self.vocabulary * h}

    @property
    def size(self) -> int:
        """How many parameters the model has."""
        return sum(self.parameters().values())

    def parameters_of(self, layer: int, of: int) -> int:
        """Return how many parameters layer ``layer`` has where the model is cut into ``of`` layers: the first has the
        embedding, the last the norm behind it, and the head unless it is tied."""
        every = self.parameters()
        ends = every["embedding"] + every.get("positions", 0)
        count = self.layers // of * self.layer_size + ends * (layer == 0)
        return count + (self.size - ends - self.layers * self.layer_size) * (layer == of - 1)

    def adapter_parameters(self, rank: int) -> int:
        """Return how many parameters adapters of this rank have (LoRA, arXiv 2106.09685) if each matrix of each layer
        has one: a matrix from its width in to the rank, and one from there to its width out."""
        rank = whole_number("rank", rank)
        return self.layers * rank * sum(wide + high for wide, high in self.products.values())

    # -- operations ---------------------------------------------------------------------

    def tokens(self, micro_batch: int = 1) -> int:
        """Return how many tokens a micro-batch has."""
        return self.sequence * whole_number("micro_batch", micro_batch)

    def matmul_flops(self, micro_batch: int = 1) -> int:
        """Return the operations of a layer's matrix products, forward; backward takes twice as many."""
        return 2 * self.tokens(micro_batch) * self.matrices

    def product_sizes(self, micro_batch: int = 1, tensor: float = 1) -> list[tuple[float, float, float]]:
        """Return the dimensions of a layer's matrix products, forward, on each of ``tensor`` ranks: tokens, width in
        and width out. In the GPT family queries, keys and values are one product. The products of backward have the
        same dimensions in another order, two for each."""
        tokens, found = self.tokens(micro_batch), self.products
        if not self.gated:
            together = sum(found.pop(name)[1] for name in ("query", "key", "value"))
            found = {"query, key, value": (self.hidden, together), **found}
        return [
            (tokens, wide / tensor, high) if name in BY_ROWS else (tokens, wide, high / tensor)
            for name, (wide, high) in found.items()
        ]

    def attention_flops(self, micro_batch: int = 1, done: bool = False) -> int:
        """Return the operations of a layer's attention, forward, as formulas count them; those that are ``done``: flash
        attention leaves out the half that is masked."""
        half = 2 if done and self.attention == "flash" else 1
        return 4 * self.tokens(micro_batch) * self.sequence * self.hidden // half

    def head_flops(self, micro_batch: int = 1) -> int:
        """Return the operations of the head, forward; backward takes twice as many."""
        return 2 * self.tokens(micro_batch) * self.hidden * self.vocabulary

    def model_flops(self, micro_batch: int = 1, formula: str = "megatron") -> int:
        """Return the operations of a step for one micro-batch that count for the part of the peak that is reached.

        ``"megatron"`` (arXiv 2205.05198): matrix products, attention without regard to the mask, and the head, three
        times each. ``"palm"`` (arXiv 2204.02311, appendix B): 6 for each parameter and token, of the embedding as
        well, and 12 x layers x hidden x sequence for each token. Neither counts what is computed again.
        """
        one_of_names("formula", formula, FORMULAS)
        attention = self.layers * self.attention_flops(micro_batch)
        if formula == "palm":
            return 6 * self.size * self.tokens(micro_batch) + 3 * attention
        return 3 * (self.layers * self.matmul_flops(micro_batch) + attention + self.head_flops(micro_batch))

    # -- bytes that are moved -----------------------------------------------------------

    def pointwise_bytes(
        self, micro_batch: int = 1, tensor: int = 1, sequence_parallel: bool = False, fused: bool = True
    ) -> float:
        """Return the bytes that a layer's forward reads and writes besides its matrix products and its scores, on each
        of ``tensor`` ranks; backward moves half as much again.

        The GPT family: norms, dropout and residuals 22sbh, the activation function 16sbh/t. The Llama family: two
        norms, two residuals, the rotation of queries and keys, and the gate. ``fused``: each of these reads its
        operands and writes its result once; otherwise, in the Llama family, norms and rotations run one operation after
        the other, in 4 bytes a number, as PyTorch does unless it compiles.
        """
        numbers = self.tokens(micro_batch) * self.hidden
        outside, inside = 22.0, 16.0 * self.inner / (4 * self.hidden)
        if self.gated:
            # A norm: to 4 bytes, square and mean, scale, back to 2 bytes, weight. A residual: two read, one written.
            # The gate: its function, then the product; the rotation of queries and keys: to 4 bytes, rotated, and back.
            norm, rotation, gate = (4, 4, 6) if fused else (34, 20, 10)
            outside = 2.0 * norm + 2 * 6
            inside = rotation * (self.hidden + self.kv_width) / self.hidden + gate * self.inner / self.hidden
        return numbers * (outside / (tensor if sequence_parallel else 1) + inside / tensor)

    def pointwise_back(
        self, micro_batch: int = 1, tensor: int = 1, sequence_parallel: bool = False, fused: bool = True
    ) -> float:
        """Return the same for a layer's backward: half as much again. In the GPT family that is not ``fused`` it is
        more, for each number of the residual: two norms 20 bytes and two sums of gradients 12; the activation function
        24, gradients of biases 18, queries, keys and values put together 12, and what attention reads and clears 16.
        """
        if fused or self.gated:
            return BACKWARD_MOVES * self.pointwise_bytes(micro_batch, tensor, sequence_parallel, fused)
        outside, inside = 20 + 12 + 4, 24 * self.inner / (4 * self.hidden) + 14 + 12 + 16
        return (
            self.tokens(micro_batch) * self.hidden * (outside / (tensor if sequence_parallel else 1) + inside / tensor)
        )

    def score_bytes(self, micro_batch: int = 1, backward: bool = False) -> float:
        """Return the bytes that a layer moves for attention's scores: 13as²b, in backward 19as²b; for flash none."""
        if self.attention == "flash":
            return 0.0
        return float((19 if backward else 13) * self.heads * self.sequence * self.tokens(micro_batch))

    def boundary_bytes(self, micro_batch: int = 1) -> int:
        """Return the bytes of a layer's input, or of its output, or of the gradient of either: 2sbh."""
        return 2 * self.tokens(micro_batch) * self.hidden

    # -- bytes that are kept ------------------------------------------------------------

    def activation_bytes(
        self, micro_batch: int = 1, tensor: int = 1, sequence_parallel: bool = False, recompute: str = "none"
    ) -> float:
        """Return the bytes that a layer keeps from forward to backward on each of ``tensor`` ranks, on the average of
        all layers: sbh(10 + 24/t + 5as/(ht)) in the GPT family, with ``sequence_parallel`` all of it divided by t.

        >>> gpt3 = Transformer(96, 12288, 96, 2048, 51200, tied=True)
        >>> [round(gpt3.activation_bytes(1, 8, True, how) / 2**20) for how in ("none", "selective", "full")]
        [342, 102, 6]
        """
        one_of_names("recompute", recompute, RECOMPUTE)
        self.check_tensor(tensor)
        t, share = tensor, tensor if sequence_parallel else 1
        numbers = self.tokens(micro_batch) * self.hidden
        boundary = 2.0 * numbers / share
        if recompute == "full":
            return boundary
        if recompute == "every second layer":
            whole = self.activation_bytes(micro_batch, tensor, sequence_parallel)
            return (whole + boundary) / 2
        if recompute == "every second product":
            kept = self.hidden + sum(high for _, high in list(self.products.values())[::2])
            return boundary + 2.0 * self.tokens(micro_batch) * kept / t
        outside, inside = 10.0, 12 + 4 * self.kv_width / self.hidden + 2 * self.inner / self.hidden
        if self.gated:  # inputs and outputs of the norms; then queries, keys, values, their result; the gate
            outside, inside = 8.0, 4 + 4 * self.kv_width / self.hidden + 6 * self.inner / self.hidden
        scores = 0.0
        if self.attention == "scores" and recompute == "none":
            scores = 5.0 * self.heads * self.sequence * self.tokens(micro_batch) / t
        return numbers * (outside / share + inside / t) + scores

    def done_again(self, recompute: str) -> Again:
        """Return what of a layer's forward is done again in backward."""
        one_of_names("recompute", recompute, RECOMPUTE)
        second = sum(wide * high for wide, high in list(self.products.values())[1::2])
        return {
            "none": Again(),
            "selective": Again(attention=1.0 if self.attention == "scores" else 0.0),
            "full": Again(1.0, 1.0, 1.0, 1.0),
            "every second layer": Again(0.5, 0.5, 0.5, 0.5),
            "every second product": Again(products=second / self.matrices, pointwise=1.0, traffic=0.5),
        }[recompute]

    def state_bytes(
        self,
        *,
        stored: float = 2,
        gradients: float = 2,
        optimizer: str = "adam",
        main: bool | None = None,
        parameters: int | None = None,
        adapter_rank: int | None = None,
        bits: float | None = None,
    ) -> dict[str, float]:
        """Return the bytes of weights, their gradients and the optimizer's states, all ranks together.

        ``stored`` and ``gradients``: bytes of a weight and of its gradient; ``main``: whether the optimizer has a main
        weight of 4 bytes besides, as it does unless weights themselves have as many; ``parameters``: of so many, of the
        whole model unless given. With ``adapter_rank`` only adapters have gradients and states, and the other weights
        are frozen and take ``bits`` bits each.
        """
        one_of_names("optimizer", optimizer, tuple(MOMENTS))
        check_widths("bytes", stored=stored, gradients=gradients)
        check_widths("bits", bits=8 * stored if bits is None else bits)
        instance_of("main", stored < MAIN if main is None else main, bool, "main=True, or False")
        count = self.size if parameters is None else whole_number("parameters", parameters)
        frozen = 0.0
        if adapter_rank is not None:
            frozen, count = count * (8 * stored if bits is None else bits) / 8, self.adapter_parameters(adapter_rank)
        elif bits is not None:
            problem, fix = "weights of so few bits are not trained", "adapter_rank=16, for example, trains adapters"
            raise PuzzleError(problem, where="state_bytes", got=f"bits={describe(bits)}", fix=fix)
        return {
            "Weight": frozen + count * stored,
            "WeightGrad": count * gradients,
            "OptState": count * self.optimizer_bytes(stored, optimizer, main),
        }

    @staticmethod
    def optimizer_bytes(stored: float, optimizer: str = "adam", main: bool | None = None) -> int:
        """Return the bytes of the optimizer's states for each parameter."""
        one_of_names("optimizer", optimizer, tuple(MOMENTS))
        return MOMENTS[optimizer] + MAIN * (stored < MAIN if main is None else main)

    def loss_bytes(self, micro_batch: int = 1, tensor: int = 1, each: float = EAGER) -> float:
        """Return the bytes that head and loss hold while they run: so many for each token and word of the vocabulary,
        which is a matter of the software (see ``EAGER``)."""
        return each * self.tokens(micro_batch) * self.vocabulary / tensor

    def check_tensor(self, tensor: int) -> None:
        """Raise PuzzleError for a tensor parallelism that does not divide the heads: each rank has whole ones."""
        tensor = whole_number("tensor", tensor)
        heads = self.kv_heads or self.heads
        if heads % tensor:
            fits = ", ".join(map(str, divisors(heads)))
            of = "heads" if heads == self.heads else "heads of keys and values"
            problem = f"{self.name} has {heads} {of}, which cannot be split over {tensor} tensor-parallel ranks"
            fix = f"tensor= one of {fits}"
            raise PuzzleError(problem, where="tensor", expected=f"a divisor of {heads}", got=str(tensor), fix=fix)

    def __str__(self) -> str:
        return f"{self.name} ({self.size / 1e9:.4g} billion parameters)"


def check_widths(unit: str, **widths: object) -> None:
    """Raise PuzzleError for what cannot be the width of a number, in ``bytes`` or ``bits``."""
    most, usual = WIDTHS[unit]
    for name, width in widths.items():
        if isinstance(width, bool) or not isinstance(width, (int, float)) or not 0 < width <= most:
            problem, expected = f"{name} must be the {unit} of a number", f"above 0, at most {most}"
            raise PuzzleError(problem, where="cost", expected=expected, got=describe(width), fix=f"{name}={usual}")


def divisors(number: int) -> list[int]:
    """Return the numbers that divide a number, from 1 up."""
    return [n for n in range(1, number + 1) if number % n == 0]
