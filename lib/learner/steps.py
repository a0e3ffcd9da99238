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
READ_QUERIES = (REST.kind, BACKWARD_REST.kind)
READ = {"Activation": READ_INPUT, "ActivationGrad": READ_GRADIENT, "Attended": READ_QUERIES}
"""The steps of a layer that read its input, those that read the gradient of its output, and those that read its queries
once they have attended to all keys, in their order."""


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
        if labels.kind not in READ or (labels.kind == "Attended" and _number(key) is None):
            return ""
        steps = READ[labels.kind]
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

    def never_there(
        self, kind: str, key: Hashable, stored: Mapping[Hashable, Labels], gone: Mapping[Hashable, Labels]
    ) -> str:
        """Return what makes the tensor that a key means, under which nothing was stored; or an empty text. ``kind``:
        what is usually in the dictionary; ``stored``, ``gone``: what is there under other keys, or was."""
        top = self.rank.layers
        begun = any(self._done(verb, top - 1) for verb in READ_GRADIENT) or self._done(LOSS.kind, top)
        if kind == "ActivationGrad" and not begun and self._done(REST.kind, top - 1):
            makes = f"{self._own(key)} = model.loss(output, sliced=True)"
            return f"model.loss makes the first gradient, on every rank, of its own slices: {makes} comes before that"
        layer = _number(key)
        if layer is None:
            return ""
        alike = {one: labels for one, labels in {**gone, **stored}.items() if _words(one) == _words(key)}
        kinds = {labels.kind for labels in alike.values()} or ({kind} if type(key) is int else set())
        if len(kinds) != 1 or any(
            labels.layer != _number(one) for one, labels in alike.items() if kind == "Activation"
        ):
            return ""
        [known] = kinds
        if known == "Activation":
            return self._no_activation(key, layer, stored)
        if known == "ActivationGrad":
            return self._no_gradient(key, layer, stored)
        if known in ("KeysValues", "Attended") and layer < top and not self._done(PROJECT.kind, layer):
            return f"project({layer}, ...) gives it, and has not run: is this the key of another layer than is meant?"
        return ""

    def _own(self, key: Hashable) -> str:
        return f"{self.store}[{', '.join(map(repr, key)) if isinstance(key, tuple) else repr(key)}]"

    def _no_activation(self, key: Hashable, layer: int, stored: Mapping[Hashable, Labels]) -> str:
        """Return what makes the activation of a layer, which was never stored; or an empty text."""
        if not 0 < layer <= self.rank.layers:
            return ""
        makes = f"{self._own(key)} = model.rest({layer - 1}, inp, weight, att)"
        if self._done(REST.kind, layer - 1):
            return f"rest({layer - 1}, ...) gave it, and it was not stored under this key: {makes}"
        below = next((one for one, of in stored.items() if (of.kind, of.layer) == ("Activation", layer - 1)), None)
        reads = f"; the input of layer {layer - 1} is {self._own(below)}" if below is not None else ""
        return f"{makes} comes before that{reads}"

    def _no_gradient(self, key: Hashable, layer: int, stored: Mapping[Hashable, Labels]) -> str:
        """Return what makes the gradient of an activation, which was never stored; or an empty text."""
        for one, labels in stored.items():
            if (labels.kind, labels.layer) == ("ActivationGrad", layer):
                read = f"backward_rest({layer}, ...) and backward_project({layer}, ...) read the gradient of its output"
                return f"{read}, which is {self._own(one)}; what backward_project gives then is that of its input"
        if 0 <= layer < self.rank.layers and not self._done(BACKWARD_PROJECT.kind, layer):
            last = "backward goes from the last layer down to the first"
            return f"of_weight, {self._own(key)} = model.backward_project({layer}, ...) comes before that: {last}"
        return ""


def _number(key: Hashable) -> int | None:
    """Return the number in a key: itself, the last of a tuple, or the end of a text; None where there is none."""
    last = key[-1] if isinstance(key, tuple) and key else key
    if isinstance(last, str) and last is key:
        digits = last[len(last.rstrip("0123456789")) :]
        return int(digits) if digits else None
    return last if type(last) is int else None


def _words(key: Hashable) -> Hashable:
    """Return what a key has besides its number."""
    if isinstance(key, tuple):
        return key[:-1]
    return key.rstrip("0123456789") if isinstance(key, str) else type(key)
