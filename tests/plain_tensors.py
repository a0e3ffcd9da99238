"""What a tensor is to the plain machine: which piece of what it is, how large that is, and what it is worth.

A piece is a list of stretches between 0 and 1. A value is spelled out: a trained weight is ("updated", weight, state,
all gradients that went into it), a gradient is how often it has which term, and so on down to the input of a micro-
batch. A piece has the value of the whole that it is a piece of. What makes no sense has the value NONSENSE.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

Piece = tuple[tuple[Fraction, Fraction], ...]
WHOLE: Piece = ((Fraction(0), Fraction(1)),)
NONSENSE = "nonsense"


@dataclass(eq=False)
class Thing:
    """A tensor. ``whole``: the elements of what it is a piece of."""

    kind: str
    whole: Fraction
    layer: int = 0
    batches: frozenset[int] = frozenset()
    piece: Piece = WHOLE
    step: int = 0
    value: Hashable = frozenset()  # of an activation, a pair for each micro-batch; of a gradient, one for each term

    @property
    def elements(self) -> Fraction:
        """Its size. A gradient of no micro-batches has none."""
        return Fraction(0) if self.kind == "WeightGrad" and not self.batches else self.whole * share(self.piece)


def share(piece: Piece) -> Fraction:
    """What part of the whole a piece is."""
    return sum((end - start for start, end in piece), Fraction(0))


def union(pieces: Sequence[Piece]) -> Piece:
    """All stretches, in order; what touches or overlaps is one."""
    stretches: list[tuple[Fraction, Fraction]] = []
    for start, end in sorted(stretch for piece in pieces for stretch in piece):
        if stretches and start <= stretches[-1][1]:
            start, before = stretches.pop()
            end = max(end, before)
        stretches.append((start, end))
    return tuple(stretches)


def overlap(pieces: Sequence[Piece]) -> bool:
    """Whether something is in two of them."""
    return share(union(pieces)) < sum(map(share, pieces))


def cut(thing: Thing, index: int, total: int) -> tuple[Thing, set[str]]:
    """Piece ``index`` of ``total`` of a tensor, and what is wrong with that."""
    if len(thing.piece) > 1:
        return replace(thing, value=NONSENSE), {"gaps"}
    ((start, end),) = thing.piece
    size = (end - start) / total
    return replace(thing, piece=((start + index * size, start + (index + 1) * size),)), set()


def join(parts: Sequence[Thing]) -> tuple[Thing, set[str]]:
    """Pieces of one thing put together, and what is wrong with that."""
    first, pieces = parts[0], [part.piece for part in parts]
    wrong = {"shard twice"} if overlap(pieces) else set()
    if len({(part.kind, part.layer, part.step, part.batches) for part in parts}) > 1:
        wrong.add("not one thing")
    alike = len({part.value for part in parts}) == 1 and not wrong
    return replace(first, piece=union(pieces), value=first.value if alike else NONSENSE), wrong


def add(parts: Sequence[Thing]) -> tuple[Thing, set[str]]:
    """A sum of gradients, and what is wrong with that. One of no micro-batches adds nothing to any piece."""
    real = [part for part in parts if part.batches]
    batches = frozenset().union(*[part.batches for part in real])
    wrong = {"different layers"} if real and len({part.layer for part in parts}) > 1 else set()
    wrong |= {"micro-batch twice"} if len(batches) < sum(len(part.batches) for part in real) else set()
    wrong |= {"different shards"} if len({part.piece for part in real}) > 1 else set()
    terms: Counter[Hashable] = Counter()
    for part in real:
        terms.update({NONSENSE: 1} if part.value == NONSENSE else dict(part.value))
    value = NONSENSE if "different shards" in wrong else frozenset(terms.items())
    return replace((real or parts)[0], batches=batches, value=value), wrong


def value_of_whole(weight: Thing) -> Hashable:
    """What a layer computes with: a piece of a weight is not the weight."""
    return weight.value if weight.piece == WHOLE else NONSENSE


def forward(inp: Thing, weight: Thing) -> Hashable:
    """The value of a layer's output, by micro-batch."""
    return frozenset((mb, ("forward", one, value_of_whole(weight))) for mb, one in inp.value)


def loss(inp: Thing) -> Hashable:
    """The value of the first gradient, by micro-batch."""
    return frozenset((mb, ("loss", one)) for mb, one in inp.value)


def backward(inp: Thing, grad: Thing, weight: Thing) -> tuple[Hashable, Hashable]:
    """The values of the gradients of the weight, each term once, and of the input, by micro-batch."""
    above = dict(grad.value)
    below = {mb: ("backward", one, above.get(mb), value_of_whole(weight)) for mb, one in inp.value}
    return frozenset((("gradient", one), 1) for one in below.values()), frozenset(below.items())


def update(grad: Thing, weight: Thing, state: Thing) -> Hashable:
    """The value of an updated weight: it needs its own state, and a gradient of at least this piece."""
    fits = weight.piece == state.piece and union([weight.piece, grad.piece]) == grad.piece
    return ("updated", weight.value, state.value, grad.value) if fits else NONSENSE


def trained(layers: int, batches: int) -> list[Hashable]:
    """The right values: those of all weights after a step on one device."""
    of = lambda kind, layer, value: Thing(kind, Fraction(1), layer, value=value)  # noqa: E731
    weights = [of("Weight", layer, ("weight", layer)) for layer in range(layers)]
    inputs = [of("Activation", 0, frozenset((mb, ("input", mb)) for mb in range(batches)))]
    for weight in weights:
        inputs.append(of("Activation", weight.layer + 1, forward(inputs[-1], weight)))
    above, right = of("ActivationGrad", layers - 1, loss(inputs[-1])), list[Hashable]()
    for weight in reversed(weights):
        grad, below = backward(inputs[weight.layer], above, weight)
        state = of("OptState", weight.layer, ("state", weight.layer))
        right.insert(0, update(of("WeightGrad", weight.layer, grad), weight, state))
        above = of("ActivationGrad", weight.layer - 1, below)
    return right
