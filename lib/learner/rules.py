"""The rules by which an error says what to write where a learner looks for a tensor that is not there. Each is asked
about what is ``Sought``, and says what to do, or nothing. ``missing`` has their order."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ..basics.errors import numbered
from ..basics.loops import sends_here
from ..record.attention import ATTEND, REST
from ..record.collectives import ALLGATHER
from ..record.kinds import KINDS, SAVED
from ..record.labels import Labels
from ..record.shards import NONE
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS
from .origins import ACTIVATIONS, MOST_LAYERS, Origins, Sought, with_an, written
from .steps import Steps
from .texts import form_of, read


class Out(NamedTuple):
    """What was stored under a key, and is there no more."""

    labels: Labels
    there: str  # that it was there, in words
    went: str  # and where it went, as far as that is known
    to: int | None  # the rank to which it was sent
    verb: str  # the collective to which it was brought


class Rules(Origins):
    """A dictionary of a rank, as far as errors ask what stands for a tensor that is not there."""

    __slots__ = ()

    def _of_steps(self, sought: Sought, granted: bool = False) -> str:
        """Where layers are in three steps: which of them has read what is missing, or makes it. ``granted``: they may
        be, although none has been made yet."""
        key, steps, kind = sought.key, Steps(self._simulator, self._rank, self._name), ACTIVATIONS.get(self._name)
        if kind is None or not (granted or steps.any()):
            return ""
        if key in self._gone:
            return steps.taken_out(self._gone[key], key)
        if self._under_another_key(sought):
            return ""
        stored = {one: tensor._token.labels for one, tensor in self.items()}
        return steps.never_there(kind, key, stored, self._gone)

    def _cleared_away(self, sought: Sought) -> str:
        """Where ``clear`` has taken out what was under a key that tells its layer: that it has."""
        labels = self._gone.get(sought.key) if sought.key in self._cleared else None
        return "" if labels is None or self._of_key(sought.key) is None else self._became(sought.key, labels)

    def _is_near(self, sought: Sought) -> str:
        """Where a longer key begins with this one, under which nothing was: whether that is meant, or a sum."""
        key, near = sought.key, self._nearest(sought.key)
        if near is None or key in self._cleared or (key in self._gone and self._of_key(key) is None):
            return ""  # a name that was there itself does not stand for the beginning of another key
        if self._name != "grad_weights":
            return f"did you mean model.{self._name}[{written(near)}]?"
        at = int(self._layer_last)
        several = [one for one in self if isinstance(one, tuple) and len(one) == 2 and one[at] == key]
        if len(several) > 1:
            parts = " + ".join(f"model.grad_weights[{written(one)}]" for one in several[:2])
            return f"add up the gradients of all micro-batches: {parts}" + " + ..." * (len(several) > 2)
        summand = self._a_summand(key, near, self[near]._token.labels)
        return summand or f"did you mean model.{self._name}[{written(near)}]?"

    def _nearest(self, key: Hashable) -> tuple[Any, ...] | None:
        """Return the first longer key that is there with this one at the place of the layer, if there is one."""
        at = int(self._layer_last)
        return next((one for one in self if isinstance(one, tuple) and key in one[at : at + 1]), None)

    def _a_summand(self, key: Hashable, other: Hashable, labels: Labels) -> str:
        """Return what to do where a sum is looked for, and what is stored under a name is the gradient of some
        micro-batches, which may be one of its summands; or an empty text."""
        if (
            self._name != "grad_weights"
            or not isinstance(other, (str, tuple))
            or len(labels.batches) == labels.total_batches
        ):
            return ""
        layer, simulator, rank = labels.layer, self._simulator, self._rank
        done = simulator.has_run(rank, BACKWARD.kind, layer) | simulator.has_run(rank, BACKWARD_WEIGHT.kind, layer)
        own = f"({written(other)})" if isinstance(other, tuple) else written(other)
        has = f"model.grad_weights[{written(other)}] has {numbered('micro-batch', labels.batches)} of layer {layer}"
        first = f"model.grad_weights[{written(key)}] = model.grad_weights.pop({own})"
        if before := done - labels.batches:
            lost = (
                f"the sum so far, with {numbered('micro-batch', before)}, is not here: is it under another key, or was "
            )
            return f"{has}, and {lost}another stored over it? From the first one on, a sum is model.grad_weights[layer]"
        if key in self._gone:
            return ""
        adds = "is it added to a sum here? There is none yet, so the first one is stored as it is"
        return f"{has}: {adds}, {first}, and only later ones are added. Else store it where it is looked for"

    def _of_micro_batch(self, sought: Sought) -> str:
        """Where a key of one number means a micro-batch, as no layer of this rank would read it: where what it means is
        stored, or that its loss is missing."""
        key, rank, simulator, kind = sought.key, self._rank, self._simulator, ACTIVATIONS.get(self._name)
        if type(key) is not int or not 0 <= key < rank.batches or rank.batches == 1 or kind is None:
            return ""
        if self._by_batch and (read := self._read_of_batch(key)):
            return read
        if self._may_be_layer(key) and not self._by_batch:
            return ""
        for other, tensor in self.items():
            labels = tensor._token.labels
            if (labels.kind, labels.batches) == (kind, {key}):
                there = f"that of layer {labels.layer}, micro-batch {key}, is there under another key"
                there += f", model.{self._name}[{written(other)}]"
                if self._by_batch and type(other) is int:
                    right = "count the micro-batch right where it is stored, or is that another count?"
                    return f"{there}, which is not its number: {right}"
                return f"{there}: store it where it is looked for"
        top = rank.layers - 1
        lost = simulator.has_run(rank, FORWARD.kind, top) - simulator.has_run(rank, LOSS.kind, top + 1)
        if kind == "ActivationGrad" and key in lost:
            own = f"model.{self._name}[{key}] = model.loss(output)"
            return f"model.loss makes the first gradient, from the output of the last layer, {top}: {own}"
        return ""

    def _read_of_batch(self, key: int) -> str:
        """Return what to do about the key of a micro-batch under which one tensor after the other is stored, where the
        last one has been read, and the next one was not stored; or an empty text."""
        labels, simulator, rank = self._gone.get(key), self._simulator, self._rank
        halves = (BACKWARD.kind, BACKWARD_INPUT.kind)
        if labels is None or not any(self._has_gone_back(one, labels.layer, labels.batches) for one in halves):
            return ""
        if labels.kind == "ActivationGrad":
            if not simulator.has_loaded(rank, labels.layer - 1):
                which = f"{BACKWARD.kind}({labels.layer}, ...) of {numbered('micro-batch', labels.batches)}"
                here = (
                    f" Of other micro-batches it is here, model.{self._name}[{written(next(iter(self)))}]"
                    if self
                    else ""
                )
                if not self and (lower := simulator.gradient_to_come(rank)):
                    return f"{which} has read that of this micro-batch. {lower}"
                return f"{which} has run on this rank already, and has read it: do it once for each micro-batch.{here}"
            sent = simulator.sent_to(rank, labels.kind, labels.layer - 1, labels.batches) is not None
            return "" if sent else self._not_stored_on(labels)
        run = [one for one in self._layers_run() if labels.batches <= simulator.has_run(rank, FORWARD.kind, one)]
        if len(run) == 1:
            return ""
        one = f"the input of layer {labels.layer}, {numbered('micro-batch', labels.batches)}, was there, and its "
        each = f"this rank has {numbered('layer', run)}, and each input has a key of its own"
        return f"{one}backward has read it: {each}, model.{self._name}[layer, micro_batch]"

    def _under_another_key(self, sought: Sought) -> str:
        """Where what a key usually means is stored under another one: where it is."""
        key = sought.key
        meant = self._of_key(key)
        if meant is None:
            return ""
        if too_far := self._no_such_batch(meant[1]):
            return too_far
        for other, tensor in self.items():
            labels: Labels = tensor._token.labels
            if self._is_read_there(meant, labels):
                reads = f"the gradient that {BACKWARD_WEIGHT.kind}({labels.layer}, ...) reads"
                return f"{reads}, of {numbered('micro-batch', meant[1])}, is model.{self._name}[{written(other)}]"
            if self._took_the_place(meant, other, labels):
                there = f"model.{self._name}[{written(other)}], where it has taken the place of that of layer"
                found = f"the gradient of layer {labels.layer} is in {there} {labels.layer + 1}"
                return f"{found}: store it where it is looked for"
            layer, batches = labels.layer + (labels.kind == "ActivationGrad"), labels.batches
            named = self._of_key(other)
            if labels.kind == "ActivationGrad" and isinstance(other, tuple) and named and named[0] == labels.layer:
                layer = labels.layer  # here the gradient of an output has the key of its layer
            if (layer, labels.adapter) == (meant[0], False) and meant[1] in (NONE, batches):
                what = f"that of layer {labels.layer}" + f", {numbered('micro-batch', batches)}," * (meant[1] != NONE)
                there = f"{what} is there under another key, model.{self._name}[{written(other)}]"
                if named and meant[1] != NONE and NONE != named[1] != batches:
                    right = "that is not its number, so count the micro-batch right where it is stored"
                    return f"{there}{self._twice_there(other, labels) or f': {right}'}"
                return self._a_summand(key, other, labels) or f"{there}: store it where it is looked for"
        return ""

    def _took_the_place(self, meant: tuple[int, frozenset[int]], other: Hashable, labels: Labels) -> bool:
        """Return whether what is meant is a gradient that was stored over the one from which it was made, under the key
        of that one's layer."""
        before: Labels | None = self._gone.get(other)
        if before is None or labels.kind != "ActivationGrad" or meant != (labels.layer, labels.batches):
            return False
        return before.layer == labels.layer + 1 and self._of_key(other) == (before.layer, before.batches)

    def _is_read_there(self, meant: tuple[int, frozenset[int]], labels: Labels) -> bool:
        """Return whether a tensor is the gradient that the half of a backward for the weight reads next in a layer of
        this rank, of the micro-batch that is meant."""
        if labels.kind != "ActivationGrad" or meant[1] != labels.batches or meant[0] < 0:
            return False
        if meant[0] != labels.layer and self._simulator.has_loaded(self._rank, meant[0]):
            return False  # it may be the gradient of a layer below that is looked for
        ran = [self._simulator.has_run(self._rank, one.kind, labels.layer) for one in (BACKWARD_INPUT, BACKWARD_WEIGHT)]
        return labels.batches <= ran[0] - ran[1]

    def _no_such_batch(self, batches: frozenset[int]) -> str:
        """Return what to do about a key with a micro-batch after the last one, where the keys of this dictionary are a
        layer and a micro-batch; or an empty text."""
        simulator, rank = self._simulator, self._rank
        own = [*self._gone.items(), *((key, tensor._token.labels) for key, tensor in self.items())]
        pairs = [(self._of_key(key), labels) for key, labels in own if isinstance(key, tuple) and len(key) == 2]
        if not batches or max(batches) < rank.batches or not pairs:
            return ""
        if any(
            key is None or labels.batches != key[1] or key[0] not in (labels.layer, labels.layer + 1)
            for key, labels in pairs
        ):
            return ""
        verbs = (BACKWARD.kind, BACKWARD_INPUT.kind)
        left = {
            layer: simulator.has_run(rank, FORWARD.kind, layer).difference(
                *[simulator.has_run(rank, verb, layer) for verb in verbs]
            )
            for layer in self._layers_run()
        }
        known = [f"layer {layer} for {numbered('micro-batch', own)}" for layer, own in left.items() if own]
        to_come = (
            f". The backward that is left on this rank is that of {', '.join(known[:MOST_LAYERS])}" if known else ""
        )
        none = f"there is no micro-batch {max(batches)}: BATCHES is {rank.batches}"
        return f"{none}, so something is done once too often here{to_come}"

    def _not_come(self, sought: Sought) -> str:
        """Where the rank has received since it looked for this the last time: that the receive has not brought it."""
        key = sought.key
        if key is None or key != self._awaited or key in self._gone:
            return ""
        other = "each message may bring another: store it under a key of its own, and receive until this one is there"
        looked = f"this rank has looked for it, and has received once since then, in vain: {other}"
        return f"{looked}, while {key!r} not in model.{self._name}"

    def _nothing_kept(self, sought: Sought) -> str:
        """Where what a forward leaves behind is looked for, and that of this layer has kept nothing, while others have:
        that only they have kept anything."""
        key, words = sought.key, words_of(sought.key)
        if not words or self._name != KINDS[SAVED].store or (meant := self._of_key(key)) is None or key in self._gone:
            return ""
        own = [*self._gone.items(), *((other, tensor._token.labels) for other, tensor in self.items())]
        kept = {labels.layer for other, labels in own if labels.kind == SAVED and words_of(other) == words}
        if not kept or meant[0] in kept:
            return ""
        none = f"model.{self._name}.pop(({written(key)}), None)"
        have = f"only {numbered('layer', kept)} {'has' if len(kept) == 1 else 'have'} kept anything"
        return f"{have}: {none} gives None for the others, and saved=None is as good as none"

    def _read_by_half(self, sought: Sought) -> str:
        """Where the half of a backward for the input has taken out the gradient: that both halves read it."""
        key = sought.key
        labels: Labels | None = self._gone.get(key)
        meant = self._of_key(key)
        if labels is None or labels.kind != "ActivationGrad" or meant is None or meant[1] != labels.batches:
            return ""
        layer, simulator, rank = labels.layer, self._simulator, self._rank
        if meant[0] not in (layer, layer + 1):
            return ""
        first, second = (simulator.has_run(rank, one.kind, layer) for one in (BACKWARD_INPUT, BACKWARD_WEIGHT))
        if not labels.batches <= first - second:
            return ""
        return (
            f"{BACKWARD_INPUT.kind}({layer}, ...) has read it: both halves of a backward read it, so keep it until "
            f"{BACKWARD_WEIGHT.kind}({layer}, ...), and pop it there"
        )

    def _gradient_too_soon(self, sought: Sought) -> str:
        """Where a gradient is read before the forward of its layer has run anywhere for its micro-batches: that this is
        too soon. It holds whether a gradient has the key of its layer or of the one above."""
        key = sought.key
        meant, simulator, rank = self._of_key(key), self._simulator, self._rank
        if self._name != "grad_activations" or meant is None or not 0 <= meant[0] <= rank.layers or not meant[1]:
            return ""
        layer, batches = min(meant[0], rank.layers - 1), meant[1]
        done = simulator.has_run(rank, FORWARD.kind, layer)
        if not done or batches <= done or simulator.owner(rank, layer, batches) is not None:
            return ""
        soon = self._not_yet(layer + 1, batches, simulator.has_run(rank, BACKWARD.kind, layer), backward=True)
        if type(key) is not int or not self._may_be_layer(key):
            return soon
        means = f"what is stored here has its micro-batch as its key, and no layer, so that {key} is micro-batch {key}"
        return f"{means}: {soon}"

    def _of_no_loss(self, sought: Sought) -> str:
        """Where a gradient is looked for on a rank that waits for a loss of another one: where that is made."""
        return self._simulator.loss_elsewhere(self._rank) if self._name == "grad_activations" else ""

    def _of_any_layer(self, sought: Sought) -> str:
        """Where it is not known which gradient is looked for, and none is here: from where the next one comes."""
        if self._name != "grad_activations" or self:
            return ""
        if self._by_batch is None:
            return self._simulator.gradient_from(self._rank)
        if (labels := self._gone.get(sought.key)) is not None and self._is_read_for_another(labels):
            which = f"{BACKWARD.kind}({labels.layer}, ...) of {numbered('micro-batch', labels.batches)}"
            lower = self._simulator.gradient_to_come(self._rank)
            return lower and f"{which} has read the one that was there. {lower}"
        named = (
            self._of_key(sought.key) is None and sought.key not in self._gone and not sought.heard[Rules._left_lying]
        )
        return self._simulator.gradient_to_come(self._rank) if named else ""

    def _is_read_for_another(self, labels: Labels) -> bool:
        """Return whether the backward of a layer has read a gradient, and gives one that is for another rank."""
        lower = labels.layer > 0 and not self._simulator.has_loaded(self._rank, labels.layer - 1)
        halves = (BACKWARD.kind, BACKWARD_INPUT.kind)
        read = any(self._has_gone_back(one, labels.layer, labels.batches) for one in halves)
        return labels.kind == "ActivationGrad" and lower and read

    def _input_to_come(self, sought: Sought) -> str:
        """Where it is not known which input is looked for, under a name: from where the next one comes, if this rank
        has received none."""
        named = isinstance(sought.key, str) and self._name == "activations" and sought.key not in self._gone
        if not named or self._of_key(sought.key) is not None or sought.heard[Rules._left_lying]:
            return ""
        return self._simulator.input_to_come(self._rank)

    def _taken_out(self, sought: Sought) -> str:
        """Where something was stored under the key: what has become of it."""
        key, labels = sought.key, self._gone.get(sought.key)
        if labels is None:
            return ""
        taken = self._became(key, labels)
        near = self._nearest(key) if self._of_key(key) is None else None
        return taken if near is None else f"{taken}. Or is it model.{self._name}[{written(near)}]?"

    def _became(self, key: Hashable, labels: Labels) -> str:
        """Return what has become of a tensor with these labels that was stored under a key."""
        simulator, rank, which = self._simulator, self._rank, (labels.kind, labels.layer)
        if not self._of_key(key) and (lies := simulator.not_received(rank, *which)):
            return self._sent_again(labels) or lies
        there = f"{with_an(labels.kind)} of layer {labels.layer} was there and was taken out"
        if key in self._cleared:
            return f"{there} by model.{self._name}.clear(): take out what is used last, and nothing else"
        last = rank.layers
        read = labels.batches <= simulator.has_run(rank, LOSS.kind, last)
        if (labels.kind, labels.layer) == ("Activation", last) and labels.batches and read:
            output = f"{there} for model.loss: it is the output of the last layer, which nothing else reads"
            wants = f"What backward({last - 1}, ...) reads is the input of layer {last - 1}"
            turn = f"Or in the whole turn? A loop that begins at {last} lowers it first, layer -= 1"
            return f"{output}. {wants}: is the layer in this key one too high? {turn}"
        to, verb = simulator.sent_to(rank, *which, labels.batches), simulator.met_by(rank, *which)
        went = f" when it was brought to {verb}" if verb else ""
        if to is not None:
            went = f", and was sent to rank {to}, with nothing received in its place"
        out = Out(labels, there, f"{there}{went}", to, verb)
        if said := self._keys_out(key, out) or self._for_all_layers(key, out) or self._goes_on(key, out):
            return said
        if said := self._turn_replaced(key, labels):
            return said
        return f"{out.went}: model.{self._name}[{written(key)}] without pop keeps it to its last use"

    def _sent_again(self, labels: Labels) -> str:
        """Return that a line sends what the call just before it has sent; or an empty text."""
        if not self._simulator.just_sent(self._rank, labels.kind, labels.layer) or not sends_here():
            return ""
        to = self._simulator.sent_to(self._rank, labels.kind, labels.layer, labels.batches)
        sent = f"it was sent{f' to rank {to}' * (to is not None)} just before this, which took it out"
        return f"{sent}: is this send there twice? Send it once, and receive the next one before the next send"

    def _keys_out(self, key: Hashable, out: Out) -> str:
        """Return what to do about keys and values that were sent on, or attended to; or an empty text."""
        simulator, rank, layer = self._simulator, self._rank, out.labels.layer
        own = f"model.{self._name}[{written(key)}"
        if out.labels.kind != "KeysValues":
            return ""
        if out.to is None:
            attended = simulator.has_run(rank, ATTEND.kind, layer)
            if not attended or out.verb or simulator.has_run(rank, REST.kind, layer):
                return ""
            came = f"{own}] = await model.receive(...)"
            again = "for n ranks n - 1 of these, and as many sends, the first one of its own keys"
            return f"{out.there}, as attend({layer}, ...) has read it: the next keys are to come, {came}, {again}"
        if simulator.just_sent(rank, out.labels.kind, layer):
            return f"{out.went}: {own}] without pop keeps it, to be sent and read here as well"
        if simulator.has_run(rank, LOSS.kind, rank.layers):
            of_layer = isinstance(key, tuple) and layer in key
            own += f"{', layer' * (not of_layer)}]{' without pop' * of_layer}"
            return f"{out.went}: the backward of a layer begins with this rank's own again, so keep them, {own}"
        if not simulator.has_run(rank, ATTEND.kind, layer):
            both = f"{own}] without pop keeps it, to be sent and attended to"
            return f"{out.went}: {both}. Each rank attends to its own keys and to those of n - 1 receives"
        all_keys = "each rank attends to the keys of every rank, its own and those of n - 1 receives"
        return f"{simulator.not_replaced(rank, layer) or out.went}: {all_keys}"

    def _for_all_layers(self, key: Hashable, out: Out) -> str:
        """Return what to do about a tensor that was stored under a key which tells no layer; or an empty text."""
        labels, simulator, rank = out.labels, self._simulator, self._rank
        if self._of_key(key):
            return ""
        if labels.kind == "Weight" and labels.is_whole() and out.verb == ALLGATHER.kind:
            one = isinstance(key, tuple) and labels.layer in key
            layer = str(labels.layer) if one else "layer"
            call = f"await model.{out.verb}({self._piece_of(labels.layer, layer)}, {layer})"
            fix = f"the whole weight of layer {labels.layer} was there, and was taken out: gather "
            fix += f"{'it' if one else 'each'} anew, model.weights[{written(key)}] = {call}"
            return fix + (self._was_replaced(key, labels.layer) or self._to_be_kept(labels.layer))
        if labels.kind == "Attended" and simulator.has_run(rank, LOSS.kind, rank.layers):
            each = "a key for all layers has that of the last one only, and each backward reads its own"
            return f"{out.there}: {each}, model.{self._name}[{written(key)}, layer]"
        if replaced := self._input_replaced(key, labels) or self._gradient_replaced(key, labels):
            return replaced
        if labels.kind == "ActivationGrad" and out.to is None:
            done = (simulator.has_run(rank, one, labels.layer) for one in (BACKWARD.kind, BACKWARD_INPUT.kind))
            return self._not_stored_on(labels) if any(labels.batches <= one for one in done) else ""
        return ""

    def _piece_of(self, layer: int, shown: str) -> str:
        """Return where this rank keeps its piece of the weight of a layer, with the layer as it is to be ``shown``."""
        for key, tensor in self.items():
            labels: Labels = tensor._token.labels
            if (labels.kind, labels.layer, labels.adapter, labels.is_whole()) != ("Weight", layer, False, False):
                continue
            form = form_of(key)
            if form is not None and read(form, key) == layer:
                own = f"{form[0]}{{layer}}{form[1]}"
                return f"model.weights[f{own!r}]" if shown == "layer" else f"model.weights[{key!r}]"
            parts = key if isinstance(key, tuple) else (key,)
            return f"model.weights[{', '.join(shown if one == layer else repr(one) for one in parts)}]"
        return "..."

    def _input_replaced(self, key: Hashable, labels: Labels) -> str:
        """Return what to do about the input of a layer that is in no place of its own, where that of a later one was
        stored last under a ``key`` which tells no layer, and its backward has read that; or an empty text."""
        simulator, rank = self._simulator, self._rank
        left = [one for one in self._layers_run() if not self._has_gone_back(BACKWARD.kind, one, labels.batches)]
        read = self._has_gone_back(BACKWARD.kind, labels.layer, labels.batches)
        if labels.kind != "Activation" or not left or not read or left[-1] >= labels.layer:
            return ""
        here = [tensor._token.labels for tensor in self.values()]
        if any((one.kind, one.layer) == ("Activation", left[-1]) for one in here):
            return ""
        if not labels.batches <= simulator.has_run(rank, FORWARD.kind, left[-1]):
            return ""
        own = f"the input of layer {labels.layer} was there, and its backward has read it. That of layer {left[-1]} "
        each = "each input is kept to its backward, under a key of its own"
        return f"{own}is in no place of its own: {each}, model.{self._name}[{written(key)}, layer]"

    def _turn_replaced(self, key: Hashable, labels: Labels) -> str:
        """Return what to do about the input of a layer of which one micro-batch has no place of its own, where that of
        another was stored last under the ``key``, and the backward has read that; or an empty text."""
        ran = self._simulator.has_run(self._rank, FORWARD.kind, labels.layer) - labels.batches
        left = {one for one in ran if not self._has_gone_back(BACKWARD.kind, labels.layer, frozenset({one}))}
        stored = [one for _, one in self._all_stored() if (one.kind, one.layer) == ("Activation", labels.layer)]
        read = self._has_gone_back(BACKWARD.kind, labels.layer, labels.batches)
        if labels.kind != "Activation" or not left or not read or any(one.batches & left for one in stored):
            return ""
        was = f"the input of layer {labels.layer} of {numbered('micro-batch', labels.batches)} was there last, and its "
        was += f"backward has read it. That of {numbered('micro-batch', left)} is in no place of its own: "
        own = f"model.{self._name}[{written(key)}, micro_batch]"
        return (
            f"{was}keep each to its backward, {own}, or run that backward before the forwards of the next micro-batch"
        )

    def _gradient_replaced(self, key: Hashable, labels: Labels) -> str:
        """Return what to do where the gradient of one layer was stored last under a ``key`` which tells no layer, and
        those of others that this rank has made are in no sum, and in no other place; or an empty text."""
        simulator, rank = self._simulator, self._rank
        known = {one.layer for _, one in self._all_stored() if one.kind == "WeightGrad"}
        lost = [
            one
            for one in self._layers_run()
            if self._has_gone_back(BACKWARD.kind, one, labels.batches)
            and one not in known
            and not simulator.summed_by(rank, one)
            and not simulator.has_run(rank, "update", one)
        ]
        if labels.kind != "WeightGrad" or not lost or not labels.batches:
            return ""
        was = f"the last one that was there is the gradient of layer {labels.layer}, and that of "
        each = "bring each to its sum right after its backward, or keep it to that under a key of its own"
        them = numbered("layer", lost)
        return f"{was}{them} is in no place of its own: {each}, model.{self._name}[{written(key)}, layer]"

    def _goes_on(self, key: Hashable, out: Out) -> str:
        """Return what takes the place of a gradient that was sent round a ring, or reduced; or an empty text."""
        if out.labels.kind == "KeysValuesGrad" and out.to is not None:
            came = f"model.{self._name}[{written(key)}] = await model.receive(...)"
            return f"{out.went}: what has come round so far from the other side of the ring is next there, {came}"
        if out.labels.kind == "WeightGrad" and out.to is None and out.verb:
            given = f"model.{self._name}[...] = await model.{out.verb}(...)"
            return f"{out.went}: what that gives goes on from there, {given}"
        return ""

    def _not_stored_on(self, labels: Labels) -> str:
        """Return that the backward of a layer has read a gradient, and that the one which it gives was not stored in
        its place."""
        there = f"{with_an(labels.kind)} of layer {labels.layer} was there and was taken out"
        read = f"{there}, and the backward of that layer has read it"
        if self._is_read_for_another(labels):
            return f"{read}, and what that gives is for layer {labels.layer - 1}, which another rank has"
        return f"{read}: what it gives is to be stored here, and was not. Is a condition above that line false?"

    def _was_replaced(self, key: Hashable, layer: int) -> str:
        """Return, as the end of a sentence, what to do where the weight of a ``layer`` was stored last under a name,
        and the backward that is next reads that of another one; or an empty text."""
        simulator, rank = self._simulator, self._rank
        left = [one for one in self._layers_run() if not simulator.has_run(rank, BACKWARD.kind, one)]
        if not left or left[-1] == layer or simulator.has_run(rank, FORWARD.kind, layer):
            return ""
        own = f"then each needs a key of its own, model.weights[{written(key)}, layer]"
        return f". Or was that of layer {left[-1]} to be kept there from its forward on? Others took its place: {own}"

    def _to_be_kept(self, layer: int) -> str:
        """Return, as the end of a sentence, that a weight which its forward has read may stay for the backward that is
        next; or an empty text."""
        run = self._layers_run()
        if not run or run[-1] != layer or self._simulator.has_run(self._rank, BACKWARD.kind, layer):
            return ""
        return f". Or is it to stay from forward({layer}, ...) on? Then do not take it out there"

    def _backward_ready(self, sought: Sought) -> str:
        """Where the gradient of a backward is here, and it is not known what is looked for: where that backward finds
        what it reads. A name is left to ``_next_gradient``, where that speaks."""
        if isinstance(sought.key, str) and sought.heard[Rules._next_gradient]:
            return ""
        for _, grad in self._all_stored() if self._name in ACTIVATIONS else ():
            layer, batches = grad.layer, grad.batches
            ran = batches <= self._simulator.has_run(self._rank, FORWARD.kind, layer)
            if grad.kind != "ActivationGrad" or not ran or self._has_gone_back(BACKWARD.kind, layer, batches):
                continue
            for other, tensor in self.items():
                labels: Labels = tensor._token.labels
                if (labels.kind, labels.layer, labels.batches) == (ACTIVATIONS[self._name], layer, batches):
                    which = f"{BACKWARD.kind}({layer}, ...) of {numbered('micro-batch', batches)}"
                    what = "gradient" if labels.kind == "ActivationGrad" else "input"
                    there = (
                        f"{which}, whose gradient has come, finds its {what} in model.{self._name}[{written(other)}]"
                    )
                    if sought.popped:
                        return f"{there}: let that backward come first, or if this is that one, read what is there"
                    return f"Is this for a backward? {there}: read each under the key under which it was stored"
        return ""

    def _beyond_the_layers(self, sought: Sought) -> str:
        """Where a key with a name ends with a layer that there is not, next to one that is here: that there is none."""
        key, top = sought.key, self._rank.layers - 1
        if not isinstance(key, tuple) or not words_of(key):
            return ""
        beyond = {(top + 1,): top, (-1,): 0}.get(key[-1:])
        below = self.get((*key[:-1], top)) if beyond == top and self._name == "activations" else None
        labels = below._token.labels if below is not None else None
        if labels and (labels.kind, labels.layer) == ("Activation", top) and top not in self._layers_run():
            output = f"the output of layer {top} is not there yet: forward({top}, ...) has not run on this rank"
            return (
                f"{output}. Does the loop over the layers end too soon, as that of a `zip` does with its shorter list?"
            )
        return self._no_layer(key[-1]) if beyond is not None and (*key[:-1], beyond) in self else ""

    def _output_there(self, sought: Sought) -> str:
        """Where a key has a name and a micro-batch whose output of the last layer is under another key: where it is."""
        key, top = sought.key, self._rank.layers - 1
        parts = {*key} if isinstance(key, tuple) and words_of(key) else set()
        for other, tensor in self.items() if parts else ():
            labels = tensor._token.labels
            if (labels.kind, labels.layer) == ("Activation", top + 1) and labels.batches <= parts:
                output = f"the output of layer {top}, {numbered('micro-batch', labels.batches)}, is under another key"
                own = self._twice_there(other, labels) or f": store it as [{written(key)}]"
                return f"{output}, model.{self._name}[{written(other)}]{own}"
        return ""

    def _twice_there(self, key: Hashable, labels: Labels) -> str:
        """Return, as the end of a sentence on what is stored under a key, that the same layer's tensor of the
        micro-batch of this key was there before; or an empty text."""
        before: Labels | None = self._gone.get(key)
        if before is None or before.batches == labels.batches or not isinstance(key, tuple):
            return ""
        if (before.kind, before.layer) != (labels.kind, labels.layer) or not before.batches <= {*key}:
            return ""
        was = f", where that of {numbered('micro-batch', before.batches)} was before"
        return f"{was}: does a count not go on, as without += 1?"

    def _adapter_there(self, sought: Sought) -> str:
        """Where the adapter of a layer is stored under the layer alone, and has another key: that it is there."""
        key = sought.key
        for layer in key if isinstance(key, tuple) and words_of(key) else ():
            if type(layer) is int and layer in self and self[layer]._token.labels.adapter:
                there = f"the adapter of layer {layer} is in model.{self._name}[{layer}], in place of its own weight"
                return f"{there}: give it a key of its own, model.{self._name}[{written(key)}] = ..."
        return ""

    def _sum_not_begun(self, sought: Sought) -> str:
        """Where a sum is looked for under a name: that its reduction was never awaited, or which gradient is there."""
        if self._name != "grad_weights":
            return ""
        return self._never_awaited(sought.key) or self._only_gradient(sought.key)

    def _never_awaited(self, key: Hashable) -> str:
        """Return which sum was started for a layer that a key with a name has, and was never awaited; or nothing."""
        layers = [one for one in key if type(one) is int] if isinstance(key, tuple) and words_of(key) else []
        for layer in layers if key not in self._gone else ():
            if started := self._simulator.unawaited(self._rank, "WeightGrad", layer):
                own = f"await it before this, and store what it gives, model.grad_weights[{written(key)}]"
                return f"{started}: {own}"
        return ""

    def _only_gradient(self, key: Hashable) -> str:
        """Return which gradient is the only one that is there, under a layer, where one is looked for by a name alone;
        or an empty text."""
        own = next(iter(self)) if len(self) == 1 and isinstance(key, str) and key not in self._gone else None
        if type(own) is not int:
            return ""
        there = f"only model.{self._name}[{own}] is there, that of layer {self[own]._token.labels.layer}"
        return f"{there}: is it meant? A sum is looked for only after its first summand is stored, as it is"

    def _gathered_elsewhere(self, sought: Sought) -> str:
        """Where a weight is looked for under a name: which other ranks have gathered it, and this one has not."""
        own_name = self._name == "weights" and (isinstance(sought.key, str) or words_of(sought.key))
        return self._simulator.gathered_elsewhere(self._rank) if own_name else ""

    def _next_gradient(self, sought: Sought) -> str:
        """Where a gradient is looked for under a key that tells no layer: that what the next backward reads is there,
        under another one."""
        key, simulator, rank = sought.key, self._simulator, self._rank
        if self._of_key(key) is not None:
            return ""
        verbs = (BACKWARD.kind, BACKWARD_INPUT.kind)
        left = [one for one in self._layers_run() if not any(simulator.has_run(rank, verb, one) for verb in verbs)]
        for other, tensor in self.items() if self._name == "grad_activations" and left else ():
            labels: Labels = tensor._token.labels
            if (labels.kind, labels.layer, len(self)) == ("ActivationGrad", left[-1], 1):
                there = f"the gradient that backward({labels.layer}, ...) reads is there under another key"
                here = f"store it as [{written(key)}], or look for it there"
                return f"{there}, model.{self._name}[{written(other)}]: {here}"
        return ""

    def _left_lying(self, sought: Sought) -> str:
        """Where a name is looked for: which message with such a tensor has been sent to this rank, and not received."""
        key, kind, layers = sought.key, ACTIVATIONS.get(self._name, ""), range(self._rank.layers)
        others = [*self._gone.values(), *(tensor._token.labels for tensor in self.values())]
        if not isinstance(key, str) or any(labels.kind != kind for labels in others):
            return ""
        for layer in layers if kind == "Activation" else layers[::-1] if kind else ():
            if there := self._simulator.not_received(self._rank, kind, layer):
                own = f"store it as model.{self._name}[{written(key)}]. Does a condition leave that receive out?"
                return f"{there}, and {own}"
        return ""

    def _in_plain_words(self, sought: Sought) -> str:
        """Where no other rule speaks: that the tensor has to be stored before it is looked for. It always speaks."""
        key = sought.key
        plain = f"model.{self._name}[{written(key)}] = ... before that: nothing was stored there yet. Or is it under "
        plain += f"another key?{self._in_its_place(sought)}{self._verb_of(key)}"
        only = [*self.items()] if self._name in ACTIVATIONS and isinstance(key, str) else []
        layers = {one for one in key if type(one) is int} if isinstance(key, tuple) and words_of(key) else set()
        stored = [labels for _, labels in self._all_stored()]
        sliced = any(one.kind in ACTIVATIONS.values() and one.total > 1 and one.layer in layers for one in stored)
        if sliced and not self._verb_of(key):
            plain += "." * (not plain.endswith("?")) + " If a task gathers it, await that task before this line"
        if len(only) == 1 and (labels := only[0][1]._token.labels).kind == ACTIVATIONS[self._name]:
            plain += f" There is one only, the {labels.kind} of layer {labels.layer}: model.{self._name}"
            plain += f"[{written(only[0][0])}]"
        elif self._name == "grad_activations" and isinstance(key, str):
            plain += " A sum begins with the first one, stored as it is"
        if self._name in ("weights", "opt_states") and type(key) is int and self._simulator.has_loaded(self._rank, key):
            plain += f" model.{self._name}[{key}] without pop keeps it"
        return plain

    def _verb_of(self, key: Hashable) -> str:
        """Return, as a sentence, which verb gives what is looked for, where the key tells that; or an empty text."""
        if self._name == "activations" and "kv" in words_of(key):
            return " model.project(layer, inp, weight) gives queries, and keys and values: both are stored"
        ran = type(key) is int and self._simulator.has_run(self._rank, BACKWARD.kind, key)
        if self._name != "grad_weights" or not ran:
            return ""
        gave = f" backward({key}, ...) gave the gradient, as the first of two"
        return f"{gave}: store that, or what its sum over ranks gives, if one is due"

    def _in_its_place(self, sought: Sought) -> str:
        """Return, as a sentence, that what a forward gave is where its input was, if that has what is looked for; or
        that more forwards come before a backward; or an empty text."""
        key = sought.key
        if self._name != "activations":
            return ""
        for other, tensor in self.items():
            labels: Labels = tensor._token.labels
            if type(key) is int and type(other) is int and (labels.kind, labels.layer) == ("Activation", key):
                gave = f" What forward({key - 1}, ...) gave is in model.activations[{other}]: if keys are layers here, "
                return f"{gave}store it as model.activations[{key}], beside its input, which a backward reads"
        if not_made := self._not_made(key):
            return not_made
        if not sought.popped or not (known := self._forwards()) or self._all_run():
            return ""
        soon = "If this is for the backward of another forward, that has to come first"
        return f" This rank has run {known}. {soon}: more forwards before the first backward, or another backward now"

    def _not_made(self, key: Hashable) -> str:
        """Return, as a sentence, what a rank of one micro-batch has not done with the input of a layer that a key with
        a name tells, and that was never stored: the forward before it, or to keep it; or an empty text."""
        layers = [one for one in key if type(one) is int] if isinstance(key, tuple) and words_of(key) else []
        rank, run = self._rank, self._layers_run()
        if len(layers) != 1 or key in self._gone or rank.batches > 1 or not 0 <= (layer := layers[0]) < rank.layers:
            return ""
        if layer in run:
            kept = (
                f" If it is the input of layer {layer}, forward({layer}, ...) has read that, and it was not stored here"
            )
            return f"{kept}: store it, or this rank's slice of it, before that forward, and leave it for the backward"
        if layer and layer - 1 not in run and self._simulator.has_loaded(rank, layer - 1):
            before = (
                f" If it is the input of layer {layer}, forward({layer - 1}, ...) comes first, and has not run here"
            )
            return f"{before}: does the loop begin after layer {layer - 1}, or does a condition leave that out?"
        return ""

    def _all_run(self) -> bool:
        """Return whether this rank has carried all micro-batches forward through all layers."""
        run = (self._simulator.has_run(self._rank, FORWARD.kind, one) for one in range(self._rank.layers))
        return all(len(own) == self._rank.batches for own in run)

    def _beside(self, key: Hashable) -> str:
        """Return that another task of this rank may be about to make what is looked for, where it is for this rank to
        make and several tasks are at work; or an empty text."""
        meant, simulator, rank = self._of_key(key), self._simulator, self._rank
        if self._name not in ACTIVATIONS or meant is None or not meant[1] or key in self._gone:
            return ""
        layer, verbs = meant[0], (BACKWARD.kind, BACKWARD_INPUT.kind)
        if self._name == "activations":
            layer, verbs = layer - 1, (FORWARD.kind, FORWARD.kind)
        both = simulator.has_loaded(rank, layer) and 0 < meant[0] <= rank.layers
        if not both or any(meant[1] <= simulator.has_run(rank, verb, layer) for verb in verbs):
            return ""
        wait = "let this one wait until it is there, as with an asyncio.Event that the other one sets"
        return f"Several tasks run on this rank: if another one makes this, {wait}" * simulator.has_tasks(rank)


def words_of(key: Hashable) -> tuple[str, ...]:
    """Return the names in a key that is a tuple."""
    return tuple([one for one in key if isinstance(one, str)]) if isinstance(key, tuple) else ()
