"""What to write where a learner looks for a tensor that is not there."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ..basics.arguments import describe
from ..basics.errors import NO_OTHERS, Fix, PuzzleError, numbered
from ..record.attention import ATTEND, PROJECT, REST
from ..record.collectives import ALLGATHER
from ..record.kinds import KINDS, SAVED
from ..record.labels import DEALT, IN_A_V, Labels
from ..record.shards import NONE
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS
from .keys import is_pair, layer_comes_last
from .origins import ACTIVATIONS, MOST_LAYERS, Origins, with_an, written
from .steps import Steps
from .tensors import FIRST, Tensor

SEVERAL_KINDS = "several_kinds"  # the rule of a puzzle in which a learner chooses the pipelines


class Missing(Origins):
    """A dictionary of a rank that says what to write, where nothing is stored under a key."""

    __slots__ = ()

    def missed(self) -> tuple[str, str, int, frozenset[int], int, str, str] | None:
        """Return what was looked for last, and not found, in the words of ``machine.advice.sought``, and forget it; or
        None where it has no layer and micro-batch."""
        self._awaited = key = self._missed
        self._missed = None
        kind = ACTIVATIONS.get(self._name, "")
        if not kind or not isinstance(key, tuple) or not is_pair(key):
            return None
        self._layer_last = layer_comes_last(key, self._all_stored(), self._fits)
        meant = self._of_key(key)
        if meant is None or not 0 <= meant[0] <= self._rank.layers or not meant[1] <= {*range(self._rank.batches)}:
            return None
        above, there = 0, ["", ""]
        for other, labels in self._all_stored():
            if labels.kind == "ActivationGrad" and isinstance(other, tuple) and is_pair(other):
                up = other[int(self._layer_last)] - labels.layer
                above += (up == 1) - (up == 0)
        for store in [one for known in self._all if (one := known()) is not None]:
            for other, tensor in store.items():
                labels = tensor._token.labels
                down = meant[0] - labels.layer
                if labels.kind == kind and labels.batches == meant[1] and down in (0, 1):
                    there[down] = there[down] or f"model.{store._name}[{written(other)}]"
        return f"model.{self._name}[{written(key)}]", kind, *meant, above, there[0], there[1]

    def __missing__(self, key: Hashable, popped: bool = False) -> Tensor:
        self._layer_last = layer_comes_last(key, self._all_stored(), self._fits)
        self._by_batch = self._is_of_batches(key)
        at = int(self._layer_last)
        near = next((one for one in self if isinstance(one, tuple) and key in one[at : at + 1]), None)
        plain = self._in_plain_words(key)
        several = [one for one in self if isinstance(one, tuple) and len(one) == 2 and one[at] == key]
        meant = "" if near is None else f"did you mean model.{self._name}[{written(near)}]?"
        if self._name == "grad_weights" and len(several) > 1:
            parts = " + ".join(f"model.grad_weights[{written(one)}]" for one in several[:2])
            meant = f"add up the gradients of all micro-batches: {parts}" + " + ..." * (len(several) > 2)
        elif near is not None:
            meant = self._a_summand(key, near, self[near]._token.labels) or meant
        own = self._own_past(key, popped)

        there = self._under_another_key(key)

        steps = self._of_steps(key)
        taken = self._taken_out(key)
        meant = taken if key in self._cleared else meant
        if meant and taken and self._of_key(key) is None:
            taken += f". Or is it model.{self._name}[{written(near)}]?"
            meant = ""  # a name that was there itself, and does not stand for the beginning of another key
        kept = self._nothing_kept(key)
        turned = self._turned_round(key)
        by_name = self._next_gradient(key) if isinstance(key, str) else ""

        def fix(popped: bool = popped) -> str:
            known = (
                meant
                or self._of_micro_batch(key)
                or there
                or self._not_come(key)
                or kept
                or self._read_by_half(key)
                or self._gradient_too_soon(key)
                or (self._simulator.loss_elsewhere(self._rank) if self._name == "grad_activations" else "")
                or self._of_any_layer()
                or own
                or self._elsewhere(key, popped)
            )
            said = steps or known or taken or by_name or self._backward_ready(popped) or plain
            beside = self._beside(key)
            return turned or (f"{said}{'' if said[-1] in '.?' else '.'} {beside}" if beside else said)

        def in_rounds() -> str:
            if self._name not in ACTIVATIONS:
                return ("" if key in self._gone else self._simulator.dealt_otherwise(self._rank)) or fix()
            if meant or there or not (self._awaits_loss(key) or self._is_to_come(key)):
                return fix()
            if self._name == "grad_activations":
                return self._simulator.against_rounds(self._rank, True) or fix()
            of_loss = self._of_key(key)
            backward = popped or (of_loss is not None and of_loss[0] == self._rank.layers)
            return self._simulator.against_rounds(self._rank, backward) or fix()

        got = f"keys {describe(list(self))}" if self else "an empty dictionary"
        problem = f"nothing is stored in {self._name} under {key!r}"
        fix_for = {"sharded": lambda: self._zero_of(key) or fix()} if self._name == "grad_weights" else self._loads(key)
        fix_for = {**fix_for, DEALT: in_rounds, SEVERAL_KINDS: in_rounds if self._name in ACTIVATIONS else fix}
        if self._name == "grad_activations":
            fix_for[BACKWARD_WEIGHT.kind] = lambda: self._with_half(key, fix())
        if self._name == "activations":  # which the half for the input reads, too, and leaves there
            fix_for[BACKWARD_WEIGHT.kind] = lambda: fix(popped=True)
        of_halves = fix_for.get(BACKWARD_WEIGHT.kind, fix)

        def in_a_v() -> str:
            own = of_halves() if callable(of_halves) else of_halves
            return self._simulator.not_in_a_v(self._rank) or own

        in_steps = {PROJECT.kind: lambda: self._of_steps(key, granted=True) or fix()}
        fix_for = {IN_A_V: in_a_v, **fix_for, **in_steps}  # the first that fits is taken
        if of_host := self._on_the_host(key):
            fix_for["updates_on_hosts"] = of_host
        raise MissingTensor(problem, where=self._place(key), got=got, fix=fix, fix_for=fix_for)

    def _of_steps(self, key: Hashable, granted: bool = False) -> str:
        """Return which step of a layer has read what is missing, or makes it, where layers are in three steps; or an
        empty text. ``granted``: whether they are, although none has been made yet."""
        steps, kind = Steps(self._simulator, self._rank, self._name), ACTIVATIONS.get(self._name)
        if kind is None or not (granted or steps.any()):
            return ""
        if key in self._gone:
            return steps.taken_out(self._gone[key], key)
        if self._under_another_key(key):
            return ""
        stored = {one: tensor._token.labels for one, tensor in self.items()}
        return steps.never_there(kind, key, stored, self._gone)

    def _in_plain_words(self, key: Hashable) -> str:
        """Return what to do about a key under which nothing is stored, where no more is known of it."""
        top = self._rank.layers - 1
        if isinstance(key, tuple) and words_of(key):
            beyond = {(top + 1,): top, (-1,): 0}.get(key[-1:])
            if beyond is not None and (*key[:-1], beyond) in self:
                return self._no_layer(key[-1])
        parts = {*key} if isinstance(key, tuple) and words_of(key) else set()
        for other, tensor in self.items() if parts else ():
            labels = tensor._token.labels
            if (labels.kind, labels.layer) == ("Activation", top + 1) and labels.batches <= parts:
                output = f"the output of layer {top}, {numbered('micro-batch', labels.batches)}, is under another key"
                return f"{output}, model.{self._name}[{written(other)}]: store it as [{written(key)}]"
        if adapter := self._adapter_there(key):
            return adapter
        if self._name == "grad_weights" and (started := self._never_awaited(key) or self._only_gradient(key)):
            return started
        own_name = self._name == "weights" and (isinstance(key, str) or words_of(key))
        if own_name and (elsewhere := self._simulator.gathered_elsewhere(self._rank)):
            return elsewhere
        if self._of_key(key) is None and (there := self._next_gradient(key) or self._left_lying(key)):
            return there
        plain = f"model.{self._name}[{written(key)}] = ... before that: nothing was stored there yet. Or is it under "
        plain += "another key?"
        only = [*self.items()] if self._name in ACTIVATIONS and isinstance(key, str) else []
        layers = {one for one in parts if type(one) is int}
        stored = [labels for _, labels in self._all_stored()]
        if any(one.kind in ACTIVATIONS.values() and one.total > 1 and one.layer in layers for one in stored):
            plain += " If a task gathers it, await that task before this line"
        if len(only) == 1 and (labels := only[0][1]._token.labels).kind == ACTIVATIONS[self._name]:
            plain += f" There is one only, the {labels.kind} of layer {labels.layer}: model.{self._name}"
            plain += f"[{written(only[0][0])}]"
        elif self._name == "grad_activations" and isinstance(key, str):
            plain += " A sum begins with the first one, stored as it is"
        if self._name in ("weights", "opt_states") and type(key) is int and self._simulator.has_loaded(self._rank, key):
            plain += f" model.{self._name}[{key}] without pop keeps it"
        return plain

    def _only_gradient(self, key: Hashable) -> str:
        """Return which gradient is the only one that is there, under a layer, where one is looked for by a name alone;
        or an empty text."""
        own = next(iter(self)) if len(self) == 1 and isinstance(key, str) and key not in self._gone else None
        if type(own) is not int:
            return ""
        there = f"only model.{self._name}[{own}] is there, that of layer {self[own]._token.labels.layer}"
        return f"{there}: is it meant? A sum is looked for only after its first summand is stored, as it is"

    def _next_gradient(self, key: Hashable) -> str:
        """Return that what the next backward of this rank reads is there under another key; or an empty text."""
        simulator, rank = self._simulator, self._rank
        verbs = (BACKWARD.kind, BACKWARD_INPUT.kind)
        left = [one for one in self._layers_run() if not any(simulator.has_run(rank, verb, one) for verb in verbs)]
        for other, tensor in self.items() if self._name == "grad_activations" and left else ():
            labels: Labels = tensor._token.labels
            if (labels.kind, labels.layer, len(self)) == ("ActivationGrad", left[-1], 1):
                there = f"the gradient that backward({labels.layer}, ...) reads is there under another key"
                here = f"store it as [{written(key)}], or look for it there"
                return f"{there}, model.{self._name}[{written(other)}]: {here}"
        return ""

    def _left_lying(self, key: Hashable) -> str:
        """Return which message with such a tensor has been sent to this rank, and not received; or an empty text."""
        kind, layers = ACTIVATIONS.get(self._name, ""), range(self._rank.layers)
        others = [*self._gone.values(), *(tensor._token.labels for tensor in self.values())]
        if not isinstance(key, str) or any(labels.kind != kind for labels in others):
            return ""
        for layer in layers if kind == "Activation" else layers[::-1] if kind else ():
            if there := self._simulator.not_received(self._rank, kind, layer):
                own = f"store it as model.{self._name}[{written(key)}]. Does a condition leave that receive out?"
                return f"{there}, and {own}"
        return ""

    def _never_awaited(self, key: Hashable) -> str:
        """Return which sum was started for a layer that a key with a name has, and was never awaited; or nothing."""
        layers = [one for one in key if type(one) is int] if isinstance(key, tuple) and words_of(key) else []
        for layer in layers if key not in self._gone else ():
            if started := self._simulator.unawaited(self._rank, "WeightGrad", layer):
                own = f"await it before this, and store what it gives, model.grad_weights[{written(key)}]"
                return f"{started}: {own}"
        return ""

    def _not_come(self, key: Hashable) -> str:
        """Return that a receive has not brought what the rank has looked for before it, or an empty text."""
        if key is None or key != self._awaited or key in self._gone:
            return ""
        other = "each message may bring another: store it under a key of its own, and receive until this one is there"
        looked = f"this rank has looked for it, and has received once since then, in vain: {other}"
        return f"{looked}, while {key!r} not in model.{self._name}"

    def _of_micro_batch(self, key: Hashable) -> str:
        """Return what to do about a key of one number that means a micro-batch, as no layer of this rank would read
        what it means: where that is stored, or that its loss is missing; or an empty text."""
        rank, simulator, kind = self._rank, self._simulator, ACTIVATIONS.get(self._name)
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
                return f"{which} has run on this rank already, and has read it: do it once for each micro-batch.{here}"
            sent = simulator.sent_to(rank, labels.kind, labels.layer - 1, labels.batches) is not None
            return "" if sent else self._not_stored_on(labels)
        run = [one for one in self._layers_run() if labels.batches <= simulator.has_run(rank, FORWARD.kind, one)]
        if len(run) == 1:
            return ""
        one = f"the input of layer {labels.layer}, {numbered('micro-batch', labels.batches)}, was there, and its "
        each = f"this rank has {numbered('layer', run)}, and each input has a key of its own"
        return f"{one}backward has read it: {each}, model.{self._name}[layer, micro_batch]"

    def _not_stored_on(self, labels: Labels) -> str:
        """Return that the backward of a layer has read a gradient, and that the one which it gives was not stored in
        its place."""
        there = f"{with_an(labels.kind)} of layer {labels.layer} was there and was taken out"
        read = f"{there}, and the backward of that layer has read it"
        return f"{read}: what it gives is to be stored here, and was not. Is a condition above that line false?"

    def _backward_ready(self, popped: bool) -> str:
        """Return where that is stored which the backward reads whose gradient is here, where it is not known what is
        looked for; or an empty text."""
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
                    read = f"{there}: read each under the key under which it was stored"
                    return f"{read}, and let that backward come first" if popped else f"Is this for a backward? {read}"
        return ""

    def _of_any_layer(self) -> str:
        """Return from where the next gradient of this rank comes, where it cannot be told which one is looked for; or
        an empty text."""
        unknown = self._by_batch is None and self._name == "grad_activations" and not self
        return self._simulator.gradient_from(self._rank) if unknown else ""

    def _on_the_host(self, key: Hashable) -> str:
        """Return what to do about a missing tensor where the hosts make the updates, or an empty text."""
        if self._name == "grad_weights":
            return FIRST
        if self._name == "weights" and type(key) is int and self._simulator.has_run(self._rank, BACKWARD.kind, key):
            return f"the host has updated it, and sends it: model.weights[{key}] = await model.receive(src=model.host)"
        if self._name == "opt_states" and type(key) is int and self._simulator.has_run(self._rank, FORWARD.kind, key):
            return "the states are on the host, which makes all updates: await model.pass_to(model.host, grad)"
        return ""

    def _taken_out(self, key: Hashable) -> str:
        """Return what has become of a tensor that was stored under a key, or an empty text where there was none."""
        labels: Labels | None = self._gone.get(key)
        if labels is None:
            return ""
        simulator, rank, which = self._simulator, self._rank, (labels.kind, labels.layer)
        to, verb = simulator.sent_to(rank, *which, labels.batches), simulator.met_by(rank, *which)
        went = (
            f", and was sent to rank {to}, with nothing received in its place"
            if to is not None
            else f" when it was brought to {verb}"
        )
        if not self._of_key(key) and (lies := simulator.not_received(rank, labels.kind, labels.layer)):
            return lies
        there = f"{with_an(labels.kind)} of layer {labels.layer} was there and was taken out"
        if key in self._cleared:
            return f"{there} by model.{self._name}.clear(): take out what is used last, and nothing else"
        if to is not None and labels.kind == "KeysValues":
            if simulator.just_sent(rank, labels.kind, labels.layer):
                keeps = f"model.{self._name}[{written(key)}] without pop keeps it, to be sent and read here as well"
                return f"{there}{went}: {keeps}"
            if simulator.has_run(rank, LOSS.kind, rank.layers):
                of_layer = isinstance(key, tuple) and labels.layer in key
                own = f"model.{self._name}[{written(key)}{', layer' * (not of_layer)}]{' without pop' * of_layer}"
                return f"{there}{went}: the backward of a layer begins with this rank's own again, so keep them, {own}"
            if not simulator.has_run(rank, ATTEND.kind, labels.layer):
                both = f"model.{self._name}[{written(key)}] without pop keeps it, to be sent and attended to"
                return f"{there}{went}: {both}. Each rank attends to its own keys and to those of n - 1 receives"
            all_keys = "each rank attends to the keys of every rank, its own and those of n - 1 receives"
            return f"{simulator.not_replaced(rank, labels.layer) or f'{there}{went}'}: {all_keys}"
        attended = simulator.has_run(rank, ATTEND.kind, labels.layer)
        if (
            labels.kind == "KeysValues"
            and attended
            and not verb
            and not simulator.has_run(rank, REST.kind, labels.layer)
        ):
            came = f"model.{self._name}[{written(key)}] = await model.receive(...)"
            again = "for n ranks n - 1 of these, and as many sends, the first one of its own keys"
            return f"{there}, as attend({labels.layer}, ...) has read it: the next keys are to come, {came}, {again}"
        if labels.kind == "Weight" and not self._of_key(key) and labels.is_whole() and verb == ALLGATHER.kind:
            gathered = f"model.weights[{written(key)}] = await model.{verb}(model.weights[layer], layer)"
            fix = f"the whole weight of layer {labels.layer} was there, and was taken out: gather each anew, {gathered}"
            return fix + self._was_replaced(key, labels.layer)
        if to is not None and labels.kind == "KeysValuesGrad":
            came = f"model.{self._name}[{written(key)}] = await model.receive(...)"
            return f"{there}{went}: what has come round so far from the other side of the ring is next there, {came}"
        if labels.kind == "Attended" and not self._of_key(key) and simulator.has_run(rank, LOSS.kind, rank.layers):
            own = f"model.{self._name}[{written(key)}, layer]"
            return (
                f"{there}: a key for all layers has that of the last one only, and each backward reads its own, {own}"
            )
        if labels.kind == "ActivationGrad" and not self._of_key(key) and to is None:
            done = (simulator.has_run(rank, one, labels.layer) for one in (BACKWARD.kind, BACKWARD_INPUT.kind))
            if any(labels.batches <= one for one in done):
                return self._not_stored_on(labels)
        if labels.kind == "WeightGrad" and to is None and verb:
            return (
                f"{there}{went}: what that gives goes on from there, model.{self._name}[...] = await model.{verb}(...)"
            )
        there += went * bool(to is not None or verb)
        return f"{there}: model.{self._name}[{written(key)}] without pop keeps it to its last use"

    def _was_replaced(self, key: Hashable, layer: int) -> str:
        """Return, as the end of a sentence, what to do where the weight of a ``layer`` was stored last under a name,
        and the backward that is next reads that of another one; or an empty text."""
        simulator, rank = self._simulator, self._rank
        left = [one for one in self._layers_run() if not simulator.has_run(rank, BACKWARD.kind, one)]
        if not left or left[-1] == layer or simulator.has_run(rank, FORWARD.kind, layer):
            return ""
        own = f"then each needs a key of its own, model.weights[{written(key)}, layer]"
        return f". Or was that of layer {left[-1]} to be kept there from its forward on? Others took its place: {own}"

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

    def _nothing_kept(self, key: Hashable) -> str:
        """Return what to do about what a forward leaves behind, under a key like that of other layers, where no forward
        of this one has kept anything; or an empty text."""
        words = words_of(key)
        if not words or self._name != KINDS[SAVED].store or (meant := self._of_key(key)) is None or key in self._gone:
            return ""
        own = [*self._gone.items(), *((other, tensor._token.labels) for other, tensor in self.items())]
        kept = {labels.layer for other, labels in own if labels.kind == SAVED and words_of(other) == words}
        if not kept or meant[0] in kept:
            return ""
        none = f"model.{self._name}.pop(({written(key)}), None)"
        have = f"only {numbered('layer', kept)} {'has' if len(kept) == 1 else 'have'} kept anything"
        return f"{have}: {none} gives None for the others, and saved=None is as good as none"

    def _half_too_soon(self, key: Hashable) -> str:
        """Return the end of a sentence on a gradient that the half of a backward for the weight would read before the
        half for the input has run; or an empty text."""
        meant, simulator, rank = self._of_key(key), self._simulator, self._rank
        if meant is None or not meant[1] or not 0 < meant[0] <= rank.layers:
            return ""
        layer, batches = meant[0] - 1, meant[1]
        if not simulator.has_loaded(rank, layer) and meant[0] < rank.layers:
            layer = meant[0]  # here the gradient of an output has the key of its layer
        if not batches <= simulator.has_run(rank, FORWARD.kind, layer):
            return ""
        if batches <= simulator.has_run(rank, BACKWARD_INPUT.kind, layer):
            return ""
        first = f"{BACKWARD_INPUT.kind}({layer}, ...) of {numbered('micro-batch', batches)} has not run yet"
        return f"{first}: it comes before {BACKWARD_WEIGHT.kind}, and leaves this gradient there for it"

    def _with_half(self, key: Hashable, plain: str) -> str:
        """Return what to do about a gradient in a puzzle with halves of a backward: that of the input comes first.
        ``plain``: what to do otherwise, which is said first as long as this rank has run no half."""
        meant = self._of_key(key)
        if (
            self._not_come(key)
            or not (half := self._half_too_soon(key))
            or (meant is not None and (self._one_key_off(*meant) or self._own_gradient(meant[0] - 1, meant[1])))
        ):
            return plain
        halves = any(self._simulator.has_run(self._rank, BACKWARD_INPUT.kind, one) for one in self._layers_run())
        return f"{half}. Else {plain}" if halves else f"{plain}. And with halves: {half}"

    def _read_by_half(self, key: Hashable) -> str:
        """Return what to do about a gradient that the half of a backward for the input has taken out, where that for
        the weight is still to come; or an empty text."""
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

    def _zero_of(self, layer: Hashable) -> str:
        """Return what this rank brings to the reduction of the gradient of a layer that has run on another rank, and of
        which it has a piece; or an empty text."""
        simulator, rank = self._simulator, self._rank
        if type(layer) is not int or not simulator.has_loaded(rank, layer) or simulator.summed_by(rank, layer):
            return ""
        owner = simulator.owner(rank, layer)
        if owner is None:
            return ""
        has = f"layer {layer} has run on rank {owner}, and not on this one, which brings the zero gradient to the "
        return f"{has}reduction of its gradient: model.fake_grad({layer}, [])"

    def _is_to_come(self, key: Hashable) -> bool:
        """Return whether an activation is one of a layer and a micro-batch whose forward this rank has not run yet."""
        meant, rank = self._of_key(key), self._rank
        if self._name != "activations" or meant is None or not meant[1]:
            return False
        layer, batches = meant
        verbs = [(FORWARD.kind, one) for one in (layer - 1, layer) if 0 <= one < rank.layers]
        return not any(batches <= self._simulator.has_run(rank, verb, one) for verb, one in verbs)

    def _awaits_loss(self, key: Hashable) -> bool:
        """Return whether this rank has the last layer and looks for a gradient before it has run that layer on its
        micro-batch or, where the key does not tell which one that is, on any."""
        simulator, rank = self._simulator, self._rank
        top = rank.layers - 1
        if self._name != "grad_activations" or not simulator.has_loaded(rank, top):
            return False
        meant, done = self._of_key(key), simulator.has_run(rank, FORWARD.kind, top)
        tells = meant is not None and meant[0] in (top, top + 1) and meant[1]
        if meant is not None and tells:
            made = simulator.has_run(rank, LOSS.kind, top + 1)
            return not meant[1] <= done and done <= made <= simulator.has_run(rank, BACKWARD.kind, top)
        return not done

    def _gradient_too_soon(self, key: Hashable) -> str:
        """Return what to do about a gradient that is read before the forward of its layer has run anywhere for its
        micro-batches, or an empty text. It holds whether a gradient has the key of its layer or of the one above."""
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

    def _loads(self, key: Hashable) -> Mapping[str, Fix]:
        """Return how a puzzle wants a weight or a state to be loaded that this rank has not loaded, by its layout."""
        layer = key
        if self._name not in ("weights", "opt_states") or type(layer) is not int or not 0 <= layer < self._rank.layers:
            return NO_OTHERS
        if self._simulator.has_loaded(self._rank, layer):
            if self._name == "weights" or self._simulator.has_run(self._rank, "update", layer):
                return NO_OTHERS
            shard = f"model.opt_states[{layer}] = state.shard(model.rank, model.RANKS)"
            return {"states_sharded": f"here each rank keeps its shard of the state of every layer: {shard}"}
        into = f"model.weights[{layer}], model.opt_states[{layer}]"
        whole = f"here each rank loads every layer: {into} = model.load_weights({layer})"
        shard = f"here each rank loads its shard of every layer: {into} = model.load_weights({layer}, model.rank, "
        return {"whole": whole, "states_sharded": whole, "sharded": f"{shard}model.RANKS)"}

    def _adapter_there(self, key: Hashable) -> str:
        """Return that the adapter of a layer is stored under the layer alone, where it has another key; or nothing."""
        for layer in key if isinstance(key, tuple) and words_of(key) else ():
            if type(layer) is int and layer in self and self[layer]._token.labels.adapter:
                there = f"the adapter of layer {layer} is in model.{self._name}[{layer}], in place of its own weight"
                return f"{there}: give it a key of its own, model.{self._name}[{written(key)}] = ..."
        return ""

    def _under_another_key(self, key: Hashable) -> str:
        """Return where what a key usually means is stored instead, or an empty text."""
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
                    return f"{there}: that is not its number, so count the micro-batch right where it is stored"
                return self._a_summand(key, other, labels) or f"{there}: store it where it is looked for"
        return ""

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


def words_of(key: Hashable) -> tuple[str, ...]:
    """Return the names in a key that is a tuple."""
    return tuple([one for one in key if isinstance(one, str)]) if isinstance(key, tuple) else ()


class MissingTensor(PuzzleError, KeyError):
    """Raised where nothing is stored under a key. A KeyError too, so that code which catches those keeps working."""

    sticks = False
    __str__ = PuzzleError.__str__
