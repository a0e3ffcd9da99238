"""What to write where the input or the output of a layer in three steps, or a gradient of these, is not there."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ..machine.interface import AnySimulator, RankHandle
from ..record.attention import BACKWARD_PROJECT, BACKWARD_REST, PROJECT, REST
from ..record.labels import Labels
from ..record.shards import NONE
from ..record.training import LOSS

READ_INPUT = (PROJECT.kind, REST.kind, BACKWARD_REST.kind, BACKWARD_PROJECT.kind)
READ_GRADIENT = (BACKWARD_REST.kind, BACKWARD_PROJECT.kind)
"""The steps of a layer that read its input, and those that read the gradient of its output, in their order."""


class Steps:
    """What a rank has done of layers in three steps. ``store``: the dictionary in which it looks, by name."""

    def __init__(self, simulator: AnySimulator, rank: RankHandle, store: str) -> None:
        self.simulator, self.rank, self.store = simulator, rank, f"model.{store}"

    def any(self) -> bool:
        """Return whether this rank has begun a layer in three steps."""
        return any(self._done(PROJECT.kind, layer) for layer in range(self.rank.layers))

    def _done(self, verb: str, layer: int) -> bool:
        return self.simulator.has_run(self.rank, verb, layer) != NONE

    def taken_out(self, labels: Labels, key: Hashable) -> str:
        """Return which step has read what was stored under a key and is there no more, and which reads it, too; or an
        empty text for what comes between the steps."""
        top = self.rank.layers
        if labels.kind == "Activation" and labels.layer == top:
            reads = (
                f"backward_rest({top - 1}, ...) and backward_project({top - 1}, ...) read the input of layer {top - 1}"
            )
            own = self._shown(key, top - 1)
            return f"it is the output of the last layer, which model.loss alone reads: {reads}{own and ', '}{own}"
        if labels.kind not in ("Activation", "ActivationGrad"):
            return ""
        steps = READ_INPUT if labels.kind == "Activation" else READ_GRADIENT
        done = [verb for verb in steps if self._done(verb, labels.layer)]
        if not done:
            return ""
        read = f"{done[-1]}({labels.layer}, ...) has read it, and it was taken out"
        if done[-1] == steps[-1]:
            of_layer = {labels.layer, labels.layer + 1} & {*(key if isinstance(key, tuple) else (key,))}
            return f"{read}: that is its last use, so do each step of a layer once" if of_layer else ""
        *others, last = steps[len(done) :]
        left = f"{', '.join(others)} and {last}" if others else last
        return f"{read}: {left} of layer {labels.layer} read{'s' * (not others)} it, too, so leave pop to {last}"

    def _shown(self, key: Hashable, layer: int) -> str:
        """Return what a key would be of another layer, the one before, in the dictionary; or an empty text."""
        parts = key if isinstance(key, tuple) else (key,)
        if parts[-1:] != (layer + 1,):
            return ""
        return f"{self.store}[{', '.join(map(repr, (*parts[:-1], layer)))}]"

    def never_there(self, kind: str, layer: int, stored: Mapping[Hashable, Labels]) -> str:
        """Return what makes an activation of a layer, or its gradient, under whose number nothing was stored; or an
        empty text. ``stored``: what is there under other keys."""
        own = f"{self.store}[{layer}]"
        if kind == "Activation":
            if not 0 < layer <= self.rank.layers:
                return ""
            makes = f"{own} = model.rest({layer - 1}, inp, weight, att)"
            if self._done(REST.kind, layer - 1):
                return f"rest({layer - 1}, ...) gave it, and it was not stored under this key: {makes}"
            return f"{makes} comes before that"
        for key, labels in stored.items():
            if (labels.kind, labels.layer) == (kind, layer):
                there = f"{self.store}[{', '.join(map(repr, key)) if isinstance(key, tuple) else repr(key)}]"
                read = f"backward_rest({layer}, ...) and backward_project({layer}, ...) read the gradient of its output"
                return f"{read}, which is {there}; what backward_project gives then is that of its input"
        if layer == self.rank.layers and not self._done(LOSS.kind, layer):
            return f"{own} = model.loss(output, sliced=True) comes before that"
        if 0 <= layer < self.rank.layers and not self._done(BACKWARD_PROJECT.kind, layer):
            last = "backward goes from the last layer down to the first"
            return f"of_weight, {own} = model.backward_project({layer}, ...) comes before that: {last}"
        return ""
