"""A rank's five dictionaries: its memory. They do all that a dict does, and the simulator knows what they hold."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any
from weakref import ref

from ..basics.arguments import describe, forgotten_await
from ..basics.errors import NO_OTHERS, Fix, Place, PuzzleError, numbered
from ..machine.interface import AnySimulator, RankHandle
from ..record.attention import ATTEND
from ..record.kinds import KINDS, SAVED
from ..record.labels import DEALT, IN_A_V, Labels
from ..record.shards import NONE
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS
from .keys import is_pair, layer_comes_last
from .tensors import FIRST, MOVABLE, TENSORS, Saved, Tensor

_set, _delete, _has = dict.__setitem__, dict.__delitem__, dict.__contains__
_get = dict.get
_MISSING = object()
ACTIVATIONS = {KINDS[kind].store: kind for kind in ("Activation", "ActivationGrad")}
"""What is usually stored under its layer, for a layer more than there are."""

SEVERAL_KINDS = "several_kinds"  # the rule of a puzzle in which a learner chooses the pipelines
NO_KEYS: frozenset[Hashable] = frozenset()
MOST_LAYERS = 4  # of what a rank has run, how many layers an error lists


class Storage(dict[Hashable, Any]):
    """A dictionary of tensors under keys of the learner's choice. Raises PuzzleError for what is no tensor."""

    __slots__ = (
        "_simulator",
        "_drop",
        "_gone",
        "_name",
        "_rank",
        "_store",
        "_cleared",
        "_layer_last",
        "_all",
        "_missed",
        "__weakref__",
    )

    def __init__(self, simulator: AnySimulator, rank: RankHandle, name: str, among: list[ref[Storage]]) -> None:
        """``among``: the dictionaries of this rank, to which this one is added."""
        super().__init__()
        self._all = among
        among.append(ref(self))
        self._missed: object = None  # what was looked for last, and not found
        self._layer_last = False  # of keys of two numbers, for errors
        self._cleared = NO_KEYS  # what ``clear`` has taken out, for errors
        self._simulator, self._rank, self._name = simulator, rank, name
        self._store, self._drop = simulator.store, simulator.drop
        self._gone: dict[Hashable, Any] = {}  # what was last taken out from under a key, for errors: its labels

    def __setitem__(self, key: Hashable, tensor: Any) -> None:
        if type(tensor) not in MOVABLE and (type(tensor) is not Saved or self._name != KINDS[SAVED].store):
            problem, fix = f"only tensors can be stored in {self._name}", forgotten_await(tensor)
            if type(tensor) is Saved:
                problem = f"inner activations are not stored in {self._name}"
                fix = f"model.{KINDS[SAVED].store}[layer, micro_batch, 'saved'] = saved"
            fix = fix or self._fix_for(key, tensor)
            raise PuzzleError(problem, where=self._place(key), got=describe(tensor), fix=fix)
        old = _get(self, key)
        if old is tensor:
            return
        if old is not None:
            self._gone[key] = old._token.labels
        self._missed = None
        self._store(self._rank, tensor._token)
        _set(self, key, tensor)
        if old is not None:
            self._drop(self._rank, old._token)

    def __delitem__(self, key: Hashable) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        if _has(self, key):
            self._missed = None
            return True
        self._missed = key  # and its rank may wait for a message until it is there
        return False

    def missed(self) -> tuple[str, str, int, frozenset[int], int, str, str] | None:
        """Return what was looked for last, and not found, in the words of ``machine.advice.sought``, and forget it; or
        None where it has no layer and micro-batch."""
        key, self._missed = self._missed, None
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
                above += {labels.layer + 1: 1, labels.layer: -1}.get(other[int(self._layer_last)], 0)
        for store in [one for known in self._all if (one := known()) is not None]:
            for other, tensor in store.items():
                labels = tensor._token.labels
                down = meant[0] - labels.layer
                if labels.kind == kind and labels.batches == meant[1] and down in (0, 1):
                    there[down] = there[down] or f"model.{store._name}[{_written(other)}]"
        return f"model.{self._name}[{_written(key)}]", kind, *meant, above, there[0], there[1]

    def __missing__(self, key: Hashable, popped: bool = False) -> Tensor:
        self._layer_last = layer_comes_last(key, self._all_stored(), self._fits)
        at = int(self._layer_last)
        near = next((one for one in self if isinstance(one, tuple) and key in one[at : at + 1]), None)
        plain = self._in_plain_words(key)
        several = [one for one in self if isinstance(one, tuple) and len(one) == 2 and one[at] == key]
        meant = "" if near is None else f"did you mean model.{self._name}[{_written(near)}]?"
        if self._name == "grad_weights" and len(several) > 1:
            parts = " + ".join(f"model.grad_weights[{_written(one)}]" for one in several[:2])
            meant = f"add up the gradients of all micro-batches: {parts}" + " + ..." * (len(several) > 2)
        own = self._own_past(key, popped)

        there = self._under_another_key(key)

        taken = self._taken_out(key)
        if meant and taken and self._of_key(key) is None:
            taken += f". Or is it model.{self._name}[{_written(near)}]?"
            meant = ""  # a name that was there itself, and does not stand for the beginning of another key
        kept = self._nothing_kept(key)
        turned = self._turned_round(key)

        def fix() -> str:
            known = (
                meant
                or there
                or kept
                or self._read_by_half(key)
                or self._gradient_too_soon(key)
                or own
                or self._elsewhere(key, popped)
            )
            return turned + (known or taken or plain)

        def in_rounds() -> str:
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
        fix_for = {**fix_for, DEALT: in_rounds, SEVERAL_KINDS: in_rounds}
        if self._name == "grad_activations":
            fix_for[BACKWARD_WEIGHT.kind] = lambda: self._with_half(key, fix())
        of_halves = fix_for.get(BACKWARD_WEIGHT.kind, fix)

        def in_a_v() -> str:
            own = of_halves() if callable(of_halves) else of_halves
            return self._simulator.not_in_a_v(self._rank) or own

        fix_for = {IN_A_V: in_a_v, **fix_for}
        if of_host := self._on_the_host(key):
            fix_for["updates_on_hosts"] = of_host
        raise MissingTensor(problem, where=self._place(key), got=got, fix=fix, fix_for=fix_for)

    def _in_plain_words(self, key: Hashable) -> str:
        """Return what to do about a key under which nothing is stored, where no more is known of it."""
        top = self._rank.layers - 1
        if isinstance(key, tuple) and key[-1:] == (top + 1,) and _words(key) and (*key[:-1], top) in self:
            return f"there is no layer {top + 1}: LAYERS is {top + 1}, and the last one is {top}"
        plain = f"model.{self._name}[{_written(key)}] = ... before that: nothing was stored there yet. Or is it under "
        plain += "another key?"
        if self._name == "grad_activations" and isinstance(key, str):
            plain += " A sum begins with the first one, stored as it is"
        if self._name in ("weights", "opt_states") and type(key) is int and self._simulator.has_loaded(self._rank, key):
            plain += f" model.{self._name}[{key}] without pop keeps it"
        return plain

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
        there = f"{_a(labels.kind)} of layer {labels.layer} was there and was taken out"
        if key in self._cleared:
            return f"{there} by model.{self._name}.clear(): take out what is used last, and nothing else"
        if to is not None and labels.kind == "KeysValues":
            if simulator.has_run(rank, LOSS.kind, rank.layers):
                of_layer = isinstance(key, tuple) and labels.layer in key
                own = f"model.{self._name}[{_written(key)}{', layer' * (not of_layer)}]{' without pop' * of_layer}"
                return f"{there}{went}: the backward of a layer begins with this rank's own again, so keep them, {own}"
            if not simulator.has_run(rank, ATTEND.kind, labels.layer):
                both = f"model.{self._name}[{_written(key)}] without pop keeps it, to be sent and attended to"
                return f"{there}{went}: {both}. Each rank attends to its own keys and to those of n - 1 receives"
            return f"{there}{went}: each rank attends to the keys of every rank, its own and those of n - 1 receives"
        if labels.kind == "Attended" and not self._of_key(key) and simulator.has_run(rank, LOSS.kind, rank.layers):
            own = f"model.{self._name}[{_written(key)}, layer]"
            return (
                f"{there}: a key for all layers has that of the last one only, and each backward reads its own, {own}"
            )
        there += went * bool(to is not None or verb)
        return f"{there}: model.{self._name}[{_written(key)}] without pop keeps it to its last use"

    def _nothing_kept(self, key: Hashable) -> str:
        """Return what to do about what a forward leaves behind, under a key like that of other layers, where no forward
        of this one has kept anything; or an empty text."""
        words = _words(key)
        if not words or self._name != KINDS[SAVED].store or (meant := self._of_key(key)) is None or key in self._gone:
            return ""
        own = [*self._gone.items(), *((other, tensor._token.labels) for other, tensor in self.items())]
        kept = {labels.layer for other, labels in own if labels.kind == SAVED and _words(other) == words}
        if not kept or meant[0] in kept:
            return ""
        none = f"model.{self._name}.pop(({_written(key)}), None)"
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
        if not (half := self._half_too_soon(key)) or (meant is not None and self._one_key_off(*meant)):
            return plain
        halves = any(self._simulator.has_run(self._rank, BACKWARD_INPUT.kind, one) for one in self._layers_run())
        return f"{half}. Else {plain}" if halves else f"{plain}. And with halves: {half}"

    def _read_by_half(self, key: Hashable) -> str:
        """Return what to do about a gradient that the half of a backward for the input has taken out, where that for
        the weight is still to come; or an empty text."""
        labels: Labels | None = self._gone.get(key)
        if labels is None or labels.kind != "ActivationGrad" or self._of_key(key) != (labels.layer, labels.batches):
            return ""
        layer, simulator, rank = labels.layer, self._simulator, self._rank
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
        return self._not_yet(layer + 1, batches, simulator.has_run(rank, BACKWARD.kind, layer))

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
                return f"{reads}, of {numbered('micro-batch', meant[1])}, is model.{self._name}[{_written(other)}]"
            if self._took_the_place(meant, other, labels):
                there = f"model.{self._name}[{_written(other)}], where it has taken the place of that of layer"
                found = f"the gradient of layer {labels.layer} is in {there} {labels.layer + 1}"
                return f"{found}: store it where it is looked for"
            layer, batches = labels.layer + (labels.kind == "ActivationGrad"), labels.batches
            named = self._of_key(other)
            if labels.kind == "ActivationGrad" and isinstance(other, tuple) and named and named[0] == labels.layer:
                layer = labels.layer  # here the gradient of an output has the key of its layer
            if (layer, labels.adapter) == (meant[0], False) and meant[1] in (NONE, batches):
                what = f"that of layer {labels.layer}" + f", {numbered('micro-batch', batches)}," * (meant[1] != NONE)
                there = f"{what} is there under another key, model.{self._name}[{_written(other)}]"
                return f"{there}: store it where it is looked for"
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
        if labels.kind != "ActivationGrad" or meant[1] != labels.batches:
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

    def _all_stored(self) -> Iterator[tuple[Hashable, Labels]]:
        """Yield the keys of all that this rank has stored, in whatever dictionary, with the labels."""
        for known in self._all:
            one = known()
            if one is not None:
                yield from one._gone.items()
                yield from ((key, tensor._token.labels) for key, tensor in one.items())

    def _fits(self, layer: int, batch: int) -> int:
        """Return how well a layer and a micro-batch fit to what this rank has done, as a number."""
        simulator, rank = self._simulator, self._rank
        if not 0 <= layer <= rank.layers or not 0 <= batch < rank.batches:
            return -1
        carried = NONE.union(*[simulator.has_run(rank, FORWARD.kind, one) for one in range(rank.layers)])
        loaded = simulator.has_loaded(rank, layer) or simulator.has_loaded(rank, layer - 1)
        return loaded + (batch in carried)

    def _turned_round(self, key: Hashable) -> str:
        """Return, as the beginning of advice, the key with its two numbers exchanged, where that is stored and fits
        better to what this rank has done; or an empty text."""
        if not isinstance(key, tuple) or not is_pair(key):
            return ""
        other = (key[1], key[0], *key[2:])
        fit, fits = (self._fits(*one) for one in ((key[1], key[0]), key[:2])[:: 1 if self._layer_last else -1])
        return f"did you mean model.{self._name}[{_written(other)}]? Else " if other in self and fits > fit else ""

    def _of_key(self, key: Hashable) -> tuple[int, frozenset[int]] | None:
        """Return the layer and the micro-batches that a key usually means: a layer, or a layer and a micro-batch, in
        the order in which this learner writes them."""
        layer, *more = key if isinstance(key, tuple) and key else (key,)
        if self._layer_last and is_pair(key):
            layer, more = more[0], [layer]
        batches = frozenset(one for one in more[:1] if type(one) is int)
        return (layer, batches) if type(layer) is int else None

    def _own_past(self, key: Hashable, popped: bool) -> str:
        """Return what this rank's own log says of a tensor that is not stored, or an empty text."""
        meant, simulator, rank, name = self._of_key(key), self._simulator, self._rank, self._name
        if meant is None:
            return ""
        layer, batches = meant
        last = rank.layers - (name not in ACTIVATIONS)
        if layer < 0 or layer > (max(last, rank.batches) if name in ACTIVATIONS else last):
            return f"there is no layer {layer}: LAYERS is {rank.layers}, and the last layer is {rank.layers - 1}"
        if name in ACTIVATIONS:
            return self._made_here(name, layer, batches)
        if name == "grad_weights" and simulator.has_run(rank, FORWARD.kind, layer):
            if simulator.has_run(rank, "update", layer):
                updated = f"layer {layer} has been updated already: one update for each layer, with the whole gradient"
                return f"{updated}; or is {layer} left over from another loop?"
            if not popped:
                return self._first_sum(layer)
            if any(simulator.has_run(rank, verb, layer) for verb in (BACKWARD.kind, BACKWARD_WEIGHT.kind)):
                return ""
            if simulator.has_run(rank, BACKWARD_INPUT.kind, layer):
                half = f"the weight's half of the backward of layer {layer} was never done: for each micro-batch "
                return f"{half}model.{BACKWARD_WEIGHT.kind}({layer}, ...) gives a gradient, and the sum goes here"
            return f"model.grad_weights[{layer}], ... = model.backward({layer}, ...) before that"
        return ""

    def _first_sum(self, layer: int) -> str:
        """Return how a sum of the gradients of a layer begins, where the first one is not that of micro-batch 0."""
        ran = [self._simulator.has_run(self._rank, verb, layer) for verb in (BACKWARD.kind, BACKWARD_WEIGHT.kind)]
        done = NONE.union(*ran)
        if len(done) != 1 or 0 in done:
            return FIRST
        first = f"here {numbered('micro-batch', done)} comes first, and not micro-batch 0"
        return f"{FIRST}: {first}, so ask whether there is one, model.grad_weights.get({layer})"

    def _of_lower_stage(self, batches: frozenset[int]) -> str:
        """Return, as the end of a sentence, where the gradient comes from of a stage of this rank that is not the last
        one, and that has not gone back yet; or an empty text."""
        simulator, rank = self._simulator, self._rank
        for layer in range(rank.layers - 1):
            last = simulator.has_loaded(rank, layer) and not simulator.has_loaded(rank, layer + 1)
            if last and not self._has_gone_back(BACKWARD.kind, layer, batches):
                there = simulator.comes_from(rank, "ActivationGrad", layer + 1, batches)
                return f". For layer {layer} no loss is needed: {there}" if there else ""
        return ""

    def _made_here(self, name: str, layer: int, batches: frozenset[int]) -> str:
        """Return what this rank's own log says of an activation, or of a gradient of one, that is not stored."""
        simulator, rank = self._simulator, self._rank
        backward = ACTIVATIONS[name] == "ActivationGrad"
        verb, made = (BACKWARD.kind, layer) if backward else (FORWARD.kind, layer - 1)
        if backward and layer == rank.layers:
            verb = "loss"
        call = f"{verb}(...)" if verb == "loss" else f"{verb}({made}, ...)"
        done = simulator.has_run(rank, verb, made) | simulator.has_run(rank, f"{verb}_input", made)
        if done and batches <= done:
            return self._was_made(name, layer, batches, made, done, call)
        reads = (BACKWARD.kind, BACKWARD_INPUT.kind, BACKWARD_WEIGHT.kind) if backward else (FORWARD.kind,)
        read = next((one for one in reads if batches <= simulator.has_run(rank, one, layer - backward) != NONE), "")
        back = next(
            (one for one in (BACKWARD_WEIGHT.kind, BACKWARD.kind) if self._has_gone_back(one, layer, batches)), ""
        )
        if read and back and not backward:
            return f"{back}({layer}, ...) of {numbered('micro-batch', batches)} has run already: do it once for each"
        if read and not self._was_there(layer, batches):
            where = f"model.{name}[{self._first_key(layer, batches)}]"
            came = simulator.comes_from(rank, ACTIVATIONS[name], layer, batches).partition(": ")[2]
            fix = f"{read}({layer - backward}, ...) has read it here, and it was never stored under this key"
            return f"{fix}: {where} = {came or '...'} before that, to be read again"
        if read:
            fix = f"{read}({layer - backward}, ...) has read it here: was it taken out too soon, as pop does, or has "
            return f"{fix}another tensor taken its place? Keep it to its last use"
        if not backward and layer == 0:
            own = self._layers_run()
            if len(own) > 1 and own[0] > 0 and not batches:
                has = f"this rank has layers {', '.join(map(str, own))}"
                return f"{has}, and each activation needs a key of its own: model.{name}[layer, micro_batch]"
            return f"model.{name}[{self._first_key(layer, batches)}] = model.get_activation(...) before that"
        if not simulator.has_run(rank, FORWARD.kind, layer - 1 if verb == "loss" or not backward else layer):
            return ""
        if verb == "loss":
            key = self._first_key(layer, batches)
            first = f"model.{name}[{key}] = model.loss(model.activations[{key}])"
            return f"model.loss makes the first gradient, before the backward of the last layer: {first}"
        if (
            backward
            and batches
            and layer == rank.layers - 1
            and batches <= simulator.has_run(rank, FORWARD.kind, layer)
        ):
            return self._one_key_off(layer, batches) or self._of_last_layer(layer, batches)
        if backward:
            return self._one_key_off(layer, batches) or (
                f"backward goes from the last layer down to the first: {call} comes first, and gives it"
            )
        return ""

    def _one_key_off(self, layer: int, batches: frozenset[int]) -> str:
        """Return that what the backward of a layer reads is stored, under the key of the layer above, where the one is
        looked for that it gives; or an empty text."""
        for key, tensor in self.items():
            labels: Labels = tensor._token.labels
            if (labels.kind, labels.layer) == ("ActivationGrad", layer) and batches in (NONE, labels.batches):
                reads = (
                    f"{BACKWARD.kind}({layer}, ...) reads the gradient of its output, which is stored under the layer "
                )
                reads += f"above, model.{self._name}[{_written(key)}], and gives that of its input"
                return f"{reads}. If another layer's backward is meant here, {BACKWARD.kind}({layer}, ...) comes first"
        return ""

    def _has_gone_back(self, verb: str, layer: int, batches: frozenset[int]) -> bool:
        """Return whether these micro-batches have gone back through a layer by an operation."""
        return bool(batches) and batches <= self._simulator.has_run(self._rank, verb, layer)

    def _was_made(
        self, name: str, layer: int, batches: frozenset[int], made: int, done: frozenset[int], call: str
    ) -> str:
        """Return what has become of a tensor that this rank has made by a ``call`` for layer ``made``, which was
        ``done`` for these micro-batches."""
        simulator, rank = self._simulator, self._rank
        backward = ACTIVATIONS[name] == "ActivationGrad"
        other = simulator.sent_to(rank, ACTIVATIONS[name], layer - backward, batches)
        if other is not None and not backward and layer == rank.layers:
            return f"{call} gave it, and it was sent to rank {other}: the last layer's output goes to no other rank"
        if other is not None:
            sent = f"{call} gave it, and it was sent to rank {other}: pop takes it out, so send it once"
            back = f"; rank {other} goes on with it towards model.loss, and sends its gradient back"
            updated = f". An update takes the gradient of the weight, model.grad_weights[{layer}]"
            return sent + updated * (len(done) == rank.batches) if backward else sent + back
        if again := self._of_several(name, layer, done, made) if not batches else "":
            return again
        if not backward and layer == rank.layers and batches <= simulator.has_run(rank, "loss", layer) != frozenset():
            read = (
                f"{call} gave it, and model.loss has read it: pop takes it out, so read it once; backward({made}, ...) "
            )
            read += f"reads the input of layer {made}, model.{name}[{self._first_key(made, batches)}]"
            return read + self._of_lower_stage(batches)
        if verb_met := simulator.met_by(rank, ACTIVATIONS[name], layer - backward):
            if (layer, *batches) not in self._gone and layer not in self._gone:
                own = f"model.{name}[{self._first_key(layer, batches)}] = ..."
                return f"{call} gave it, and no line has stored it under this key: {own}, where it is made"
            taken = f"{call} gave it, and it was brought to {verb_met}({layer - backward}) before"
            return f"{taken}: with pop it is gone after that, so leave pop to its last use"
        if backward and 0 < layer < rank.layers and done <= simulator.has_run(rank, BACKWARD.kind, layer - 1):
            read = f"{call} gave it, and backward({layer - 1}, ...) has read it: pop takes it out, so read it once"
            return f"{read}; what goes on from there is model.{name}[{self._first_key(layer - 1, batches)}]"
        halves = (
            simulator.has_run(rank, BACKWARD_INPUT.kind, layer),
            simulator.has_run(rank, BACKWARD_WEIGHT.kind, layer),
        )
        if not backward and batches and batches <= halves[0] - halves[1]:
            return (
                f"{call} gave it, and {BACKWARD_INPUT.kind}({layer}, ...) has read it: both halves of a backward read "
                f"the input of their layer, so keep it until {BACKWARD_WEIGHT.kind}({layer}, ...), and pop it there"
            )
        if self._was_there(layer, batches):
            return f"{call} gave it: was it stored under this key, or taken out already, as pop does?"
        where = f"model.{name}[{self._first_key(layer, batches)}]"
        first = "grad, " * (backward and call.startswith(BACKWARD.kind))
        again = ", as the backward reads the inputs of all layers" * (not backward and layer < rank.layers)
        return f"{call} gave it, and it was never stored under this key: {first}{where} = model.{call}{again}"

    def _was_there(self, layer: int, batches: frozenset[int]) -> bool:
        """Return whether something has been taken out, or replaced, that was stored under the key of a layer, alone or
        with one of these micro-batches."""
        known = [self._of_key(key) for key in self._gone]
        return any(one is not None and one[0] == layer and one[1] in (NONE, batches) for one in known)

    def _of_last_layer(self, layer: int, batches: frozenset[int]) -> str:
        """Return what to do about a gradient under the key of the last layer, before the backward of that layer: the
        one that it reads, from the loss, or the one that it gives."""
        own = f"If this is what backward({layer}, ...) gives, that comes first"
        if batches <= self._simulator.has_run(self._rank, "loss", layer + 1):
            return f"model.loss gave the gradient of the output of layer {layer}: was it stored under this key? {own}"
        key = self._first_key(layer, batches)
        return f"model.loss makes the first gradient: model.{self._name}[{key}] = model.loss(output). {own}"

    def _of_several(self, name: str, layer: int, done: frozenset[int], made: int) -> str:
        """Return what to do about a key without a micro-batch, where what it stands for was made of several of them, or
        not yet of the last one that has come so far; or an empty text. ``done``: of which it was made, in ``made``."""
        simulator, rank = self._simulator, self._rank
        if ACTIVATIONS[name] == "Activation":
            verb = "loss" if layer == rank.layers else BACKWARD.kind
            if (
                len(done) < 2
                or done <= simulator.has_run(rank, verb, layer)
                or simulator.has_loaded(rank, layer) != (verb != "loss")
            ):
                return ""
            gave = f"forward({made}, ...) gave it for {numbered('micro-batch', done)}, under one key, so that each has "
            gave += "taken the place of the one before"
            return f"{gave}: model.{name}[layer, micro_batch], or go on with one until its backward is done"
        if layer != rank.layers:
            return ""
        left = simulator.has_run(rank, FORWARD.kind, layer - 1) - done
        return (
            f"model.loss has not run on {numbered('micro-batch', left)}: call it for each micro-batch" if left else ""
        )

    def _first_key(self, layer: int, batches: frozenset[int]) -> str:
        return ", ".join(map(str, (*batches, layer) if self._layer_last else (layer, *batches)))

    def _elsewhere(self, key: Hashable, popped: bool) -> str:
        """Return on which other rank that is which a key means, or what makes it on this one; or an empty text."""
        meant, simulator, rank, name = self._of_key(key), self._simulator, self._rank, self._name
        if meant is None:
            return ""
        layer, batches = meant
        if name in ACTIVATIONS:
            activation = ACTIVATIONS[name] == "Activation"
            last = simulator.owner(rank, layer - 1) if activation and layer == rank.layers else None
            if last is not None and simulator.has_loaded(rank, layer - 1):
                return self._not_yet(layer, batches)  # another pipeline's
            if last is not None:
                return f"the last layer is on rank {last}, and only that calls model.loss; others receive a gradient"
            before: Hashable = layer - 1
            if isinstance(key, tuple):
                before = (key[0], layer - 1, *key[2:]) if self._layer_last and is_pair(key) else (layer - 1, *key[1:])
            if name == "activations" and before in self and simulator.has_loaded(rank, layer - 1):
                made = f"model.{name}[{self._first_key(layer, batches)}] = model.forward({layer - 1}, ...)"
                return f"{made} before that: its input is stored here"
            if activation and popped and layer < rank.layers and max(self._layers_run(), default=-1) > layer:
                ran = simulator.owner(rank, layer)
                if ran is not None and not simulator.has_run(rank, FORWARD.kind, layer):
                    return f"layer {layer} ran on rank {ran}, where its backward runs, too: do that for own layers only"
            if there := simulator.comes_from(rank, ACTIVATIONS[name], layer, batches):
                if popped and activation:
                    return self._before_its_forward(layer, batches, there)
                turn = f", before backward({layer - 1}, ...), that of the last of its layers"
                return there + turn * (not activation and len(self._layers_run()) > 1)
            return self._not_yet(layer, batches) if activation and 0 < layer <= rank.layers else ""
        loaded = simulator.has_loaded(rank, layer)
        owner = None if loaded and name != "grad_weights" else simulator.owner(rank, layer)
        if name == "grad_weights" and (verb := simulator.unawaited(rank, "WeightGrad", layer)):
            started = f"model.{verb}(..., {layer}) was started on this rank, and never awaited"
            return f"{started}: await what it has returned, and store what that gives, model.grad_weights[{layer}]"
        if loaded and name == "grad_weights" and (verb := simulator.summed_by(rank, layer)):
            kept = f"model.grad_weights[{layer}] = await model.{verb}(..., {layer})"
            return f"{kept}: keep what it gives, on every rank that updates a piece of the layer"
        if name == "grad_weights" and loaded and owner is not None and not self._layers_run():
            none = "this rank has run no micro-batch: is its share empty? A rank that has none brings"
            return f"{none} model.fake_grad({layer}, [])"
        if owner is not None:
            return f"layer {layer} is that of rank {owner}: let each rank do this for its own layers only"
        if name == "grad_weights":
            return "" if popped else FIRST
        if name == "opt_states" and loaded and not simulator.has_run(rank, "update", layer):
            return f"load_weights gives it beside the weight: model.weights[{layer}], model.opt_states[{layer}] = ..."
        if not loaded:
            return f"model.weights[{layer}], model.opt_states[{layer}] = model.load_weights({layer}, ...) before that"
        return ""

    def _before_its_forward(self, layer: int, batches: frozenset[int], there: str) -> str:
        """Return what to do about an input that is taken out, as for a backward, before its forward has run. ``there``:
        how it comes to this rank."""
        simulator, rank = self._simulator, self._rank
        if not batches or layer >= rank.layers or not simulator.has_loaded(rank, layer):
            return there
        known = self._forwards()
        if not known or batches <= simulator.has_run(rank, FORWARD.kind, layer):
            return there
        halves = [simulator.has_run(rank, one.kind, layer) for one in (BACKWARD_INPUT, BACKWARD_WEIGHT)]
        if halves[0] and halves[0] == halves[1]:
            done = f"both halves of the backward of layer {layer} are done for {numbered('micro-batch', halves[0])}"
            return f"{done}, as far as it has run: is {BACKWARD_WEIGHT.kind} called once too often here?"
        missing = f"forward({layer}, ...) of {numbered('micro-batch', batches)} has not run on this rank"
        ready = simulator.has_run(rank, FORWARD.kind, layer) - simulator.has_run(rank, BACKWARD.kind, layer)
        first = f"that of {numbered('micro-batch', ready)} comes first" if ready else "another backward does"
        return (
            f"{missing}, which has run {known}. If this is for its backward, {first}, or more forwards have to come "
            f"before that one. If it is for the forward: {there}"
        )

    def _layers_run(self) -> list[int]:
        """Return the layers that this rank has run forward."""
        layers = range(self._rank.layers)
        return [layer for layer in layers if self._simulator.has_run(self._rank, FORWARD.kind, layer)]

    def _forwards(self) -> str:
        """Return which layers this rank has run on which micro-batches, as text."""
        done = {one: self._simulator.has_run(self._rank, FORWARD.kind, one) for one in range(self._rank.layers)}
        known = [f"layer {one} for {numbered('micro-batch', own)}" for one, own in done.items() if own]
        return ", ".join(known[:MOST_LAYERS])

    def _not_yet(self, layer: int, batches: frozenset[int], used: frozenset[int] = NONE) -> str:
        """Return what to do about an activation that this rank has not made yet, by what it has done instead. ``used``:
        the micro-batches that have gone on from there."""
        simulator, rank = self._simulator, self._rank
        known = self._forwards()
        if batches and known and simulator.has_loaded(rank, layer - 1):
            missing = numbered("micro-batch", batches - simulator.has_run(rank, FORWARD.kind, layer - 1))
            soon = f"it is read too soon: this rank has not run forward({layer - 1}, ...) for {missing} yet"
            ready = simulator.has_run(rank, FORWARD.kind, layer - 1) - used
            ready_now = f", {numbered('micro-batch', ready)}" if ready else ""
            return f"{soon}, only {known}: do that forward first, or take what is ready{ready_now}"
        made = f"model.{self._name}[{self._first_key(layer, batches)}] = model.forward({layer - 1}, ...)"
        own = self._layers_run()
        if layer == rank.layers and own and own[-1] < layer - 1:
            other = simulator.sent_to(rank, "Activation", own[-1] + 1, NONE)
            if other is not None:
                ends = f"the layers of this rank end with layer {own[-1]}, whose output went to rank {other}"
                return (
                    f"{ends}: only a rank that runs layer {layer - 1} calls model.loss, and others receive a gradient"
                )
        next_one = max(self._layers_run(), default=-1) + 1  # here its input still is
        stored: list[Labels] = [tensor._token.labels for tensor in self.values()]
        kept = any((one.kind, one.layer) == ("Activation", next_one) for one in stored)
        if layer == rank.layers and kept and (missing := simulator.run_by_nobody(rank)):
            return missing
        none = batches and not known and simulator.has_loaded(rank, layer - 1)
        first = "this rank has run no forward yet, and some come before its first backward: " * bool(none)
        return f"{first}{made} before that; or is it under another key?"

    def _fix_for(self, key: Hashable, thing: object) -> str:
        if isinstance(thing, (tuple, list)) and thing and all(type(one) in TENSORS for one in thing):
            beside = [", 'saved'" * (type(one) is Saved) for one in thing]
            stores = [
                f"model.{KINDS[type(thing[at]).__name__].store}[{_written(key)}{beside[at]}]"
                for at in range(len(thing))
            ]
            return f"each in a place of its own: {', '.join(stores)} = ..."
        return FIRST if self._name == "grad_weights" else "what an operation gives, or a message brought: a tensor"

    def _place(self, key: Hashable) -> Place:
        return Place(self._rank.rank, tick=self._simulator.time(self._rank), detail=f"{self._name}[{_written(key)}]")

    def pop(self, key: Hashable, default: Any = _MISSING) -> Any:
        """Take a tensor out, and return it: it may be held until the next operation of this coroutine."""
        if _has(self, key):
            tensor = self[key]
            _delete(self, key)
            token = tensor._token
            self._gone[key] = token.labels
            self._drop(self._rank, token)
            return tensor
        self._refuse_pair("pop", key, default)
        return self.__missing__(key, popped=True) if default is _MISSING else default

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the tensor under a key, or what is given for the case that there is none."""
        if not _has(self, key):
            self._refuse_pair("get", key, default)
        return _get(self, key, default)

    def _refuse_pair(self, verb: str, key: Hashable, default: Any) -> None:
        """Raise PuzzleError where a pair is meant as a key, and comes as two arguments. (A 0 may begin a sum.)"""
        if type(key) is int and (
            type(default) is str or (type(default) is int and (default or (key, default) in self))
        ):
            problem, pair = f"{verb} got two arguments, {key!r} and {default!r}", (key, default)
            fix = f"a pair as key: model.{self._name}.{verb}(({key!r}, {default!r}))"
            raise PuzzleError(problem, where=self._place(pair), fix=fix)

    def popitem(self) -> tuple[Hashable, Any]:
        """Take the latest tensor out, and return its key and it."""
        if not self:
            fix = f"while model.{self._name}: model.{self._name}.popitem()"
            raise MissingTensor(f"{self._name} is empty", where=self._place(None), fix=fix)
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        """Take everything out."""
        self._cleared |= self.keys()
        while self:
            self.popitem()

    def setdefault(self, key: Hashable, default: Any = None) -> Any:
        """Return the tensor under a key; if there is none, store this one before."""
        if not _has(self, key):
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Store several tensors."""
        for key, tensor in dict(*args, **kwargs).items():
            self[key] = tensor

    def __ior__(self, other: Any) -> Storage:  # type: ignore[misc]
        self.update(other)
        return self

    def copy(self) -> dict[Hashable, Any]:
        """Return a plain dict of the same tensors: it is no storage, and keeps nothing alive."""
        return dict(self)

    def __deepcopy__(self, memo: object) -> dict[Hashable, Any]:
        return self.copy()

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _written(key: Hashable) -> str:
    """Return a key as it is written between brackets: a pair without parentheses."""
    return ", ".join(map(repr, key)) if isinstance(key, tuple) and len(key) > 1 else repr(key)


def _words(key: Hashable) -> tuple[str, ...]:
    """Return the names in a key that is a tuple."""
    return tuple([one for one in key if isinstance(one, str)]) if isinstance(key, tuple) else ()


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'AO' else 'a'} {kind}" if not kind.endswith("s") else kind


class Answers(dict[int, Any]):
    """The final weights that ``set_final_weight`` was given, by layer. Raises PuzzleError when it is changed."""

    def _refuse(self, *args: object, **kwargs: object) -> Any:
        raise PuzzleError("final_weights only shows the answers", fix="model.set_final_weight(layer, weight)")

    __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = update = setdefault = _refuse


class MissingTensor(PuzzleError, KeyError):
    """Raised where nothing is stored under a key. A KeyError too, so that code which catches those keeps working."""

    sticks = False
    __str__ = PuzzleError.__str__
