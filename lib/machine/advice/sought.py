"""What a rank has looked for in a dictionary, and not found, before it waits for a message: where that is, or what
makes it."""

from __future__ import annotations

from typing import NamedTuple

from ...basics.errors import numbered
from ...record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS
from ..past.asked import Asked
from ..rank_state import RankState


class Sought(NamedTuple):
    """A tensor between layers that was looked for under a key of a layer and a micro-batch."""

    where: str  # as it is written, ``model.activations[1, 0]``
    kind: str  # what is usually stored in that dictionary
    layer: int  # of the key
    batches: frozenset[int]
    above: int
    """How many gradients more the rank has stored under the layer above the one whose output's they are, as most write
    it, than under that layer itself."""
    here: str
    """Where something of this kind and layer and of these micro-batches is stored, as ``where``, if anywhere."""
    below: str  # the same of the layer below

    def in_words(self, rank: Asked, src: int | None) -> str:
        """Return where it is, or what makes it on this rank itself, with no message; an empty text where neither is
        certain. ``src``: from which rank this one would receive."""
        layer, there = self.layer, self.here
        if self.kind == "ActivationGrad":
            of_output = self._of_output(rank)
            if of_output is None and src != rank.rank:
                return ""
            if of_output is not False:
                layer, there = layer - 1, self.below
        looks = f"rank {rank.rank} looks for {self.where}"
        has = f"{looks}, and {self.kind} of layer {layer}, {numbered('micro-batch', self.batches)}"
        if there:
            return "" if there == self.where else f"{has}, is in {there}: store it where it is looked for"
        if any((one.kind, one.layer, one.batches) == (self.kind, layer, self.batches) for one in rank.came()):
            own = "store each message under a key of its own, and keep it to its last use"
            return f"{has}, has come to it, and is in no dictionary any more: {own}"
        return self._made_here(rank, layer, looks)

    def _of_output(self, rank: Asked) -> bool | None:
        """Return whether a gradient of the output of the layer below is meant, or None where that is not known."""
        if self.layer == rank.layers:
            return True
        if rank.has_loaded(self.layer) != rank.has_loaded(self.layer - 1):
            return rank.has_loaded(self.layer - 1)
        return self.above > 0 if self.above else None

    def _made_here(self, rank: Asked, layer: int, looks: str) -> str:
        """Return which operation of this rank gives this, where no other has these layers, and it has not run yet, or
        its result was sent away; or an empty text."""
        backward = self.kind == "ActivationGrad"
        maker = layer + 1 if backward else layer - 1
        layers = {layer} if backward and layer == rank.layers - 1 else {layer, maker}
        if not layers <= rank.layers_loaded() or any(map(rank.others_have, layers)):
            return ""
        of = numbered("micro-batch", self.batches)
        if len(layers) == 1:
            if self.batches <= rank.has_run(LOSS.kind, rank.layers):
                return self._not_stored(rank, layer, f"{looks}, which model.loss of {of} gave on this rank itself")
            first = f"{looks}, the first gradient, which no message brings"
            if self.batches <= rank.has_run(FORWARD.kind, layer):
                return f"{first}: model.loss of {of} comes first"
            return f"{first}: forward(layer {layer}) of {of} comes first, and then model.loss"
        half = any(rank.has_run(BACKWARD_INPUT.kind, one) for one in range(rank.layers))
        verb = (BACKWARD_INPUT.kind if half else BACKWARD.kind) if backward else FORWARD.kind
        gives = f"{verb}(layer {maker}) of {of}"
        if not self.batches <= rank.has_run(verb, maker):
            return f"{looks}, which no message brings: {gives} gives it on this rank itself, and comes first"
        gave = f"{looks}, which {gives} gave on this rank itself"
        if (to := rank.sent_to(self.kind, layer, self.batches)) is not None:
            return f"{gave}, and it was sent to rank {to}: keep it stored instead"
        return self._not_stored(rank, layer, gave)

    def _not_stored(self, rank: Asked, layer: int, gave: str) -> str:
        """Return that what this rank itself ``gave`` is in no dictionary; or an empty text where its use has run."""
        verbs = (
            (BACKWARD.kind, BACKWARD_INPUT.kind, BACKWARD_WEIGHT.kind)
            if self.kind == "ActivationGrad"
            else (FORWARD.kind,)
        )
        if any(self.batches & rank.has_run(verb, layer) for verb in verbs):
            return ""
        return f"{gave}, and it is in no dictionary: store it there, {self.where} = ..., and keep it to its last use"


def sought_before(rank: RankState, index: int, src: int | None) -> str:
    """Return where something is that a rank has looked for right before a receive at a place in the log, or what makes
    it; or an empty text. ``src``: from which rank it would receive."""
    at, sought = rank.sought or (-1, None)
    return sought.in_words(rank, src) if at == index and isinstance(sought, Sought) else ""
