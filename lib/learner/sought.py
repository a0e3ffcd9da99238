"""What a rank has looked for in a dictionary, and not found, before it waits for a message: errors say where it is."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple

from ..basics.errors import numbered
from ..machine.interface import AnySimulator, RankHandle
from ..record.labels import Labels
from ..record.training import BACKWARD, BACKWARD_INPUT, FORWARD, LOSS
from .keys import is_pair


class Before(NamedTuple):
    """What a rank has done before it waits. ``came``: what it has received; ``alone``: the layers that no other rank
    has loaded; ``asks_itself``: whether it would receive from itself."""

    came: Collection[Labels]
    alone: Collection[int]
    asks_itself: bool


class Stored(NamedTuple):
    """Something that a rank has in a dictionary, or has had there."""

    where: str  # as it is written, ``model.activations[1, 0]``
    key: Hashable
    labels: Labels
    still: bool


class Sought(NamedTuple):
    """A tensor of a layer and a micro-batch that was looked for. ``where``: as in ``Stored``; ``kind``: what is
    usually stored there; ``layer``: that of the key."""

    where: str
    kind: str
    layer: int
    batches: frozenset[int]

    def in_words(
        self, simulator: AnySimulator, rank: RankHandle, known: Sequence[Stored], past: Before, layer_last: bool
    ) -> str:
        """Return where it is, or what makes it on this rank itself, with no message; an empty text where neither is
        certain. ``known``: all that the rank has stored."""
        layer = self.layer
        if self.kind == "ActivationGrad" and layer == rank.layers:
            layer -= 1
        elif self.kind == "ActivationGrad":
            of_output = self._of_output(simulator, rank, known, layer_last)
            if of_output is None and not past.asks_itself:
                return ""
            layer -= of_output is not False
        looks = f"rank {rank.rank} looks for {self.where}"
        which = (self.kind, layer, self.batches)
        there = [one.where for one in known if one.still and _which(one.labels) == which]
        has = f"{looks}, and {self.kind} of layer {layer}, {numbered('micro-batch', self.batches)}"
        if there:
            return "" if self.where in there else f"{has}, is in {there[0]}: store it where it is looked for"
        if which in map(_which, past.came):
            own = "store each message under a key of its own, and keep it to its last use"
            return f"{has}, has come to it, and is in no dictionary any more: {own}"
        return self._made_here(simulator, rank, layer, looks, past)

    def _of_output(
        self, simulator: AnySimulator, rank: RankHandle, known: Sequence[Stored], layer_last: bool
    ) -> bool | None:
        """Return whether the gradient of the output of a layer has the key of the layer above, as most write it, or
        None where that is not known."""
        if simulator.has_loaded(rank, self.layer) != simulator.has_loaded(rank, self.layer - 1):
            return simulator.has_loaded(rank, self.layer - 1)
        votes = 0
        for one in known:
            if one.labels.kind == "ActivationGrad" and isinstance(one.key, tuple) and is_pair(one.key):
                votes += {one.labels.layer + 1: 1, one.labels.layer: -1}.get(one.key[int(layer_last)], 0)
        return votes > 0 if votes else None

    def _made_here(self, simulator: AnySimulator, rank: RankHandle, layer: int, looks: str, past: Before) -> str:
        """Return which operation of this rank gives this, where that has not run yet, or has, and the result was sent
        away; or an empty text."""
        backward = self.kind == "ActivationGrad"
        maker, reader = (layer + 1, layer) if backward else (layer - 1, layer)
        if backward and layer == rank.layers - 1 and reader in past.alone:
            return self._of_loss(simulator, rank, layer, looks)
        if not 0 <= maker < rank.layers or not {maker, reader} <= {*past.alone}:
            return ""
        half = any(simulator.has_run(rank, BACKWARD_INPUT.kind, one) for one in range(rank.layers))
        verb = (BACKWARD_INPUT.kind if half else BACKWARD.kind) if backward else FORWARD.kind
        gives = f"{verb}(layer {maker}) of {numbered('micro-batch', self.batches)}"
        if not self.batches <= simulator.has_run(rank, verb, maker):
            return f"{looks}, which no message brings: {gives} gives it on this rank itself, and comes first"
        to = simulator.sent_to(rank, self.kind, layer, self.batches)
        if to is None:
            return ""
        return f"{looks}, which {gives} gave on this rank itself, and it was sent to rank {to}: keep it stored instead"

    def _of_loss(self, simulator: AnySimulator, rank: RankHandle, layer: int, looks: str) -> str:
        """Return that the gradient of the last layer's output comes from the loss, where that is still to come."""
        if self.batches <= simulator.has_run(rank, LOSS.kind, layer + 1):
            return ""
        first = "model.loss" if self.batches <= simulator.has_run(rank, FORWARD.kind, layer) else f"forward(layer {layer})"
        after = "" if first == "model.loss" else ", and then model.loss"
        of = numbered("micro-batch", self.batches)
        return f"{looks}, the first gradient, which no message brings: {first} of {of} comes first{after}"


def _which(labels: Labels) -> tuple[str, int, frozenset[int]]:
    return labels.kind, labels.layer, labels.batches
