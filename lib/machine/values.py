"""What a tensor carries: a fingerprint in an exact algebra, so that numbers can be wrong without numbers.

Forward, backward and update are fixed mixing functions; gradients add. Two tensors have the
same fingerprint when, and (but for a chance of about 2**-60) only when, honest arithmetic would
give them the same numbers: a sum in another order is the same, a micro-batch counted twice, a
stale weight or a group too small is not.

An activation is a fingerprint for each micro-batch. A weight, a state or a gradient is one
fingerprint for the whole thing; which piece of it a tensor is stands in its labels, and the
update, where pieces meet, mixes in a mismatch.

This is one of the parts that can be exchanged: an engine with real tensors has the same methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ..record.labels import Labels

PRIME = (1 << 61) - 1
# One tag for each function. Integers only: string hashes differ between processes.
WEIGHT, STATE, INPUT, FORWARD, LOSS, BACKWARD, GRADIENT, UPDATE, NEXT_STATE, MIXED, BY_HAND = range(101, 112)


class Fingerprints:
    """The algebra. Values are opaque to everyone else."""

    zero = 0

    def weight(self, piece: Labels) -> int:
        """A piece of a layer's weight before training."""
        return hash((WEIGHT, piece.layer))

    def opt_state(self, piece: Labels) -> int:
        """A piece of a layer's optimizer state before training."""
        return hash((STATE, piece.layer))

    def inputs(self, batches: frozenset[int]) -> dict[int, int]:
        """The input of layer 0 for these micro-batches."""
        return {batch: hash((INPUT, batch)) for batch in batches}

    def forward(self, inp: dict[int, int], weight: int) -> dict[int, int]:
        """What a layer makes of its input."""
        return {batch: hash((FORWARD, value, weight)) for batch, value in inp.items()}

    def loss(self, inp: dict[int, int]) -> dict[int, int]:
        """The gradient of the loss with respect to the last activation."""
        return {batch: hash((LOSS, value)) for batch, value in inp.items()}

    def backward(self, inp: dict[int, int], grad: dict[int, int], weight: int) -> tuple[int, dict[int, int]]:
        """The gradient of the weight (summed over micro-batches) and that of the input."""
        back = {batch: hash((BACKWARD, grad.get(batch, 0), value, weight)) for batch, value in inp.items()}
        return sum([hash((GRADIENT, value)) for value in back.values()]) % PRIME, back

    def update(self, weight: int, opt_state: int, grad: int, aligned: bool) -> tuple[int, int]:
        """Weight and state after an optimizer step; ``aligned``: the three are the same pieces."""
        new = hash((UPDATE, weight, opt_state, grad) if aligned else (MIXED, weight, opt_state, grad))
        return new, hash((NEXT_STATE, new))

    def add(self, values: Sequence[int]) -> int:
        """A sum of gradients: in any order, any tree."""
        return sum(values) % PRIME

    def cut(self, value: Any, whole: Labels, piece: Labels) -> Any:
        """The value of a piece of a sharded thing."""
        return value

    def join(self, values: Sequence[int]) -> int:
        """Pieces put together: the whole of it if they are pieces of the same whole, else nonsense."""
        first = values[0]
        return first if values.count(first) == len(values) else hash((MIXED, *values))

    def made_up(self, labels: Labels) -> Any:
        """A value for a tensor that was made by hand: like no honest one."""
        if labels.kind in ("Activation", "ActivationGrad"):
            return {batch: hash((BY_HAND, labels.layer, batch)) for batch in labels.batches}
        return sum(hash((BY_HAND, labels.layer, batch)) for batch in labels.batches) % PRIME


@lru_cache(maxsize=64)
def trained_weights(layers: int, batches: int) -> tuple[int, ...]:
    """Every layer's weight after one step of plain training on one device: what is right."""
    algebra = Fingerprints()
    whole = [Labels("Weight", layer, layers) for layer in range(layers)]
    weights = [algebra.weight(labels) for labels in whole]
    activations = [algebra.inputs(frozenset(range(batches)))]
    for weight in weights:
        activations.append(algebra.forward(activations[-1], weight))
    grad, trained = algebra.loss(activations[-1]), [0] * layers
    for layer in reversed(range(layers)):
        weight_grad, grad = algebra.backward(activations[layer], grad, weights[layer])
        trained[layer], _ = algebra.update(weights[layer], algebra.opt_state(whole[layer]), weight_grad, True)
    return tuple(trained)
