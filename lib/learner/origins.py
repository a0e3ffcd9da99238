"""Where a tensor that a learner looks for comes to be, or has gone: for the errors of the dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import ref

from ..basics.errors import Place, numbered
from ..machine.interface import AnySimulator, RankHandle
from ..record.kinds import KINDS
from ..record.labels import Labels
from ..record.shards import NONE
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS
from .keys import are_of_another_kind, is_pair, votes_for_batches
from .tensors import FIRST

ACTIVATIONS = {KINDS[kind].store: kind for kind in ("Activation", "ActivationGrad")}
"""What is usually stored under its layer, for a layer more than there are."""
AHEAD = ". Is it gathered one turn ahead? Then only where there is one more turn, if "
MOST_LAYERS = 4  # of what a rank has run, how many layers an error lists
NO_KEYS: frozenset[Hashable] = frozenset()
Ask = Callable[[Any, "Sought"], str]
"""A rule: a method that says what to do about what is looked for, or nothing."""


class Sought(NamedTuple):
    """What is looked for, and not there."""

    key: Hashable
    popped: bool  # whether it would have been taken out
    heard: dict[Ask, str]  # what the rules have said that were asked as it was not found


class Made(NamedTuple):
    """A tensor that this rank has made, and that is not there."""

    layer: int
    batches: frozenset[int]  # as its key tells them
    at: int  # the layer of the operation that has made it
    done: frozenset[int]  # the micro-batches for which that has run
    call: str  # that operation, in words
    backward: bool  # whether it is a gradient


class Origins(dict[Hashable, Any]):
    """A dictionary of a rank, as far as errors ask what its rank has done with the tensor of a key."""

    __slots__ = (
        "_simulator",
        "_drop",
        "_gone",
        "_name",
        "_rank",
        "_store",
        "_cleared",
        "_layer_last",
        "_by_batch",
        "_all",
        "_missed",
        "_awaited",
        "__weakref__",
    )

    def __init__(self, simulator: AnySimulator, rank: RankHandle, name: str, among: list[ref[Origins]]) -> None:
        """``among``: the dictionaries of this rank, to which this one is added."""
        super().__init__()
        self._all = among
        among.append(ref(self))
        self._missed: object = None  # what was looked for last, and not found
        self._awaited: object = None  # what was looked for, and not found, before the last receive that was for that
        self._layer_last = False  # of keys of two numbers, for errors
        self._by_batch: bool | None = False  # whether keys of one number are micro-batches, for errors; None: not known
        self._cleared = NO_KEYS  # what ``clear`` has taken out, for errors
        self._simulator, self._rank, self._name = simulator, rank, name
        self._store, self._drop = simulator.store, simulator.drop
        self._gone: dict[Hashable, Any] = {}  # what was last taken out from under a key, for errors: its labels

    def _all_stored(self) -> Iterator[tuple[Hashable, Labels]]:
        """Yield the keys of all that this rank has stored, in whatever dictionary, with the labels."""
        for known in self._all:
            one = known()
            if one is not None:
                yield from one._gone.items()
                yield from ((key, tensor._token.labels) for key, tensor in one.items())

    def _own_stored(self) -> list[tuple[Hashable, Labels]]:
        """Return the keys of all that has been stored in this dictionary, with the labels of the last of each."""
        return [*self._gone.items(), *((key, tensor._token.labels) for key, tensor in self.items())]

    def _is_of_batches(self, key: Hashable) -> bool | None:
        """Return whether keys of one number are micro-batches here, and no layers, as far as what is stored and what
        the rank has loaded tell; None where they do not, or where numbers in keys mean something else."""
        simulator, rank = self._simulator, self._rank
        all_stored = [one for one in self._all_stored() if one[1].kind in ACTIVATIONS.values()]
        numbers = self._name in ACTIVATIONS and (type(key) is int or (isinstance(key, tuple) and is_pair(key)))
        if numbers and are_of_another_kind(key, all_stored):
            return None
        if type(key) is not int or self._name not in ACTIVATIONS or not 0 <= key < rank.batches or rank.batches == 1:
            return False
        if votes := votes_for_batches(self._own_stored()) or votes_for_batches(all_stored):
            return votes > 0
        if not self._may_be_layer(key):
            return any(simulator.has_loaded(rank, layer) for layer in range(rank.layers))
        in_pairs = any(is_pair(other) for other, _ in all_stored)
        return None if in_pairs and len(self._layers_run()) < rank.layers else False

    def _may_be_layer(self, key: int) -> bool:
        """Return whether a tensor that is stored under this layer could be one of this rank's."""
        return self._simulator.has_loaded(self._rank, key) or self._simulator.has_loaded(self._rank, key - 1)

    def _of_batch(self, batch: int) -> tuple[int, frozenset[int]] | None:
        """Return the layer that the key of a micro-batch stands for, with that micro-batch: that of all that is stored
        under such keys, or else the loss, where the rank has the last layer; None where that is not known."""
        rank, own = self._rank, [labels for key, labels in self._own_stored() if type(key) is int]
        above = ACTIVATIONS.get(self._name) == "ActivationGrad"
        layers = {labels.layer + above for labels in own}
        if not own and above and self._simulator.has_loaded(rank, rank.layers - 1):
            layers = {rank.layers}
        return (layers.pop(), frozenset({batch})) if len(layers) == 1 else None

    def _fits(self, layer: int, batch: int) -> int:
        """Return how well a layer and a micro-batch fit to what this rank has done, as a number."""
        simulator, rank = self._simulator, self._rank
        if not 0 <= layer <= rank.layers or not 0 <= batch < rank.batches:
            return -1
        carried = NONE.union(*[simulator.has_run(rank, FORWARD.kind, one) for one in range(rank.layers)])
        loaded = simulator.has_loaded(rank, layer) or simulator.has_loaded(rank, layer - 1)
        return loaded + (batch in carried)

    def _turned_round(self, sought: Sought) -> str:
        """Where the key with its two numbers exchanged is stored, and fits better to what this rank has done: it."""
        key = sought.key
        if not isinstance(key, tuple) or not is_pair(key):
            return ""
        other = (key[1], key[0], *key[2:])
        fit, fits = (self._fits(*one) for one in ((key[1], key[0]), key[:2])[:: 1 if self._layer_last else -1])
        if other not in self or fits <= fit:
            return ""
        return f"did you mean model.{self._name}[{written(other)}]? Layer and micro-batch keep one order in all lines"

    def _of_key(self, key: Hashable) -> tuple[int, frozenset[int]] | None:
        """Return the layer and the micro-batches that a key usually means: a layer, or a layer and a micro-batch, in
        the order in which this learner writes them; None where that is not known."""
        if self._by_batch is None:
            return None
        if type(key) is int and self._by_batch:
            return self._of_batch(key)
        layer, *more = key if isinstance(key, tuple) and key else (key,)
        if self._layer_last and is_pair(key):
            layer, more = more[0], [layer]
        batches = frozenset(one for one in more[:1] if type(one) is int)
        return (layer, batches) if type(layer) is int else None

    def _input_elsewhere(self, sought: Sought) -> str:
        """Where the input of layer 0 was never there: that other ranks alone have taken one."""
        meant, simulator, rank = self._of_key(sought.key), self._simulator, self._rank
        if self._name != "activations" or meant is None or meant[0] or simulator.has_run(rank, FORWARD.kind, 0):
            return ""
        only = "" if self._was_there(0, meant[1]) else simulator.input_elsewhere(rank)
        key = self._first_key(*meant)
        return only and f"model.{self._name}[{key}] = model.get_activation(...) comes before that, and {only}"

    def _own_past(self, sought: Sought) -> str:
        """Where a key tells a layer: what this rank's own log says of such a tensor, which is not stored."""
        meant, simulator, rank, name = self._of_key(sought.key), self._simulator, self._rank, self._name
        if meant is None:
            return ""
        layer, batches = meant
        last = rank.layers - (name not in ACTIVATIONS)
        if layer < 0 or layer > (max(last, rank.batches) if name in ACTIVATIONS else last):
            return self._no_layer(layer) + (self._to_be_sent(batches) if layer < 0 else "")
        if name in ACTIVATIONS:
            return self._made_here(layer, batches)
        if name == "grad_weights" and simulator.has_run(rank, FORWARD.kind, layer):
            if simulator.has_run(rank, "update", layer):
                updated = f"layer {layer} has been updated already: one update for each layer, with the whole gradient"
                return f"{updated}; or is {layer} left over from another loop?"
            if not sought.popped:
                return self._first_sum(layer)
            if any(simulator.has_run(rank, verb, layer) for verb in (BACKWARD.kind, BACKWARD_WEIGHT.kind)):
                return ""
            if simulator.has_run(rank, BACKWARD_INPUT.kind, layer):
                half = f"the weight's half of the backward of layer {layer} was never done: for each micro-batch "
                return f"{half}model.{BACKWARD_WEIGHT.kind}({layer}, ...) gives a gradient, and the sum goes here"
            gives = f"model.grad_weights[{layer}], ... = model.backward({layer}, ...) before that"
            return f"{gives}{simulator.left_undone(rank) or self._only_other()}"
        return ""

    def _no_layer(self, layer: int) -> str:
        """Return that there is no such layer, and in the backward pass which one comes next."""
        top = self._rank.layers - 1
        if layer < 0:
            none = f"there is no layer {layer}: the first one is layer 0, and layers go up to {top}"
            ends = f"{BACKWARD.kind}(0, ...) has run here, and nothing comes before layer 0: leave this out in its turn"
            last = layer == -1 and self._simulator.has_run(self._rank, BACKWARD.kind, 0) != NONE
            ahead = f"{none}{AHEAD}layer > 0" if self._name == "weights" and layer == -1 and self._is_at(1, 0) else none
            if last and ahead == none and self._rank.batches > 1:
                ahead += ". Where a loop goes on below layer 0, to end calls that are on their way, this comes only "
                ahead += "`if layer >= 0`, as backward(0, ...) has run"
            return f"{none}. {ends}" if last and self._rank.batches == 1 else ahead
        none = f"there is no layer {layer}: LAYERS is {top + 1}, and the last layer is {top}"
        back = layer == top + 1 > 1 and self._simulator.has_run(self._rank, LOSS.kind, layer) != NONE
        down = f". The backward pass goes down: after layer {top} comes layer {top - 1}"
        if back and self._simulator.has_run(self._rank, BACKWARD.kind, top) == NONE:
            down += ". None has run yet: does a count begin at model.LAYERS? Then let it go down, as with i -= 1, "
            down += f"before the work of its turn, so that layer {top} comes first"
        before, last = (bool(self._simulator.has_run(self._rank, FORWARD.kind, one)) for one in (top - 1, top))
        ahead = f"{AHEAD}layer < model.LAYERS - 1"
        of_weight = down if back else ahead * (layer == top + 1 and before and not last)
        return none + of_weight * (self._name == "weights")

    def _is_at(self, above: int, layer: int) -> bool:
        """Return whether the backward of the layer ``above`` has run here, or that is the last one, and not that of a
        ``layer``."""
        ran = [bool(self._simulator.has_run(self._rank, BACKWARD.kind, one)) for one in (above, layer)]
        return (ran[0] or above == self._rank.layers) and not ran[1]

    def _to_be_sent(self, batches: frozenset[int]) -> str:
        """Return, as the end of a sentence, which gradient of these micro-batches is stored here and is read by a layer
        of another rank, where what comes below layer 0 is looked for; or an empty text."""
        simulator, rank = self._simulator, self._rank
        for key, tensor in self.items():
            labels: Labels = tensor._token.labels
            if labels.kind != "ActivationGrad" or labels.batches != batches or simulator.has_loaded(rank, labels.layer):
                continue
            if (to := simulator.owner(rank, labels.layer, batches)) is not None:
                there = f"What this rank has for another one is model.{self._name}[{written(key)}], and layer"
                only = "Only on the rank with layer 0 a last gradient is left over that nobody reads"
                return f". {there} {labels.layer} is on rank {to}: await model.pass_to({to}, ...). {only}"
        return ""

    def _first_sum(self, layer: int) -> str:
        """Return how a sum of the gradients of a layer begins, where the first one is not that of micro-batch 0."""
        ran = [self._simulator.has_run(self._rank, verb, layer) for verb in (BACKWARD.kind, BACKWARD_WEIGHT.kind)]
        done = NONE.union(*ran)
        if not done:
            return f"{BACKWARD.kind}({layer}, ...) gives it, and has not run on this rank: this comes after that"
        if len(done) != 1 or 0 in done:
            return FIRST
        first = f"here {numbered('micro-batch', done)} comes first, and not micro-batch 0"
        if 0 in self._simulator.has_run(self._rank, FORWARD.kind, layer):
            left = f"is the backward of micro-batch 0 left out, by a condition or where a loop begins? Else {FIRST}"
            return f"{first}: {left}: ask whether there is one, model.grad_weights.get({layer})"
        return f"{FIRST}: {first}, so ask whether there is one, model.grad_weights.get({layer})"

    def _of_other_ranks(self, key: Hashable) -> str:
        """Return what a rank does without a gradient of a layer that it has not run, while it has run others; or an
        empty text."""
        own = self._layers_run()
        if type(key) is not int or not own or key in own or not 0 <= key < self._rank.layers:
            return ""
        none = f"this rank has not run layer {key}, and stores nothing for it; if it joins the sum of that layer, it"
        return f"{none} brings model.fake_grad({key}, [])"

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

    def _made_here(self, layer: int, batches: frozenset[int]) -> str:
        """Return what this rank's own log says of an activation, or of a gradient of one, that is not stored."""
        simulator, rank, name = self._simulator, self._rank, self._name
        backward = ACTIVATIONS[name] == "ActivationGrad"
        verb, made = (BACKWARD.kind, layer) if backward else (FORWARD.kind, layer - 1)
        if backward and layer == rank.layers:
            verb = "loss"
        call = f"{verb}(...)" if verb == "loss" else f"{verb}({made}, ...)"
        done = simulator.has_run(rank, verb, made) | simulator.has_run(rank, f"{verb}_input", made)
        if done and batches <= done:
            return self._was_made(Made(layer, batches, made, done, call, backward))
        if read := self._was_read_here(layer, batches, backward):
            return read
        if not backward and layer == 0:
            own = self._layers_run()
            if len(own) > 1 and own[0] > 0 and not batches:
                has = f"this rank has layers {', '.join(map(str, own))}"
                return f"{has}, and each activation needs a key of its own: model.{name}[layer, micro_batch]"
            there = f"model.{name}[{self._first_key(layer, batches)}] = model.get_activation(...) before that"
            return self._before_its_forward(layer, batches, there)
        if not simulator.has_run(rank, FORWARD.kind, layer - 1 if verb == "loss" or not backward else layer):
            return ""
        if verb == "loss":
            key = self._first_key(layer, batches)
            first = f"model.{name}[{key}] = model.loss(model.activations[{key}])"
            return f"model.loss makes the first gradient, before the backward of the last layer: {first}"
        if not backward:
            return ""
        if off := self._one_key_off(layer, batches):
            return off
        if batches and layer == rank.layers - 1 and batches <= simulator.has_run(rank, FORWARD.kind, layer):
            return self._of_last_layer(layer, batches)
        lacks = not simulator.has_loaded(rank, layer + 1) and batches <= simulator.has_run(rank, FORWARD.kind, layer)
        came = any(one.kind == "ActivationGrad" and one.layer == layer for _, one in self._all_stored())
        if (
            batches
            and lacks
            and not came
            and (there := simulator.comes_from(rank, "ActivationGrad", layer + 1, batches))
        ):
            return (
                f"backward({layer}, ...) reads what another rank gives, and nothing has been received for it: {there}"
            )
        return f"backward goes from the last layer down to the first: {call} comes first, and gives it"

    def _was_read_here(self, layer: int, batches: frozenset[int], backward: bool) -> str:
        """Return which operation of this rank has read an activation, or a gradient where it is ``backward``, that came
        from another rank and is not stored; or an empty text."""
        simulator, rank, name = self._simulator, self._rank, self._name
        reads = (BACKWARD.kind, BACKWARD_INPUT.kind, BACKWARD_WEIGHT.kind) if backward else (FORWARD.kind,)
        read = next((one for one in reads if batches <= simulator.has_run(rank, one, layer - backward) != NONE), "")
        if not read:
            return ""
        done = (BACKWARD_WEIGHT.kind, BACKWARD.kind) if not backward else ()
        if back := next((one for one in done if self._has_gone_back(one, layer, batches)), ""):
            ran = f"{back}({layer}, ...) of {numbered('micro-batch', batches)} has run already"
            if back == BACKWARD_WEIGHT.kind and not self._has_gone_back(BACKWARD_INPUT.kind, layer, batches):
                both = "both halves read this, and the second one pops it"
                return f"{ran}, and {BACKWARD_INPUT.kind} comes first: {both}"
            return f"{ran}: do it once for each. Does a count not go on in some turn, as without += 1?"
        has = f"{read}({layer - backward}, ...) has read it here"
        over, gone = (simulator.has_run(rank, one, 0) for one in (FORWARD.kind, BACKWARD.kind))
        if not backward and layer == 0 and not batches and over == gone:
            own = f"model.{name}[{self._first_key(layer, batches)}] = model.get_activation([micro_batch])"
            both = f"the forward and the backward of layer 0 have read it, of {numbered('micro-batch', over)}, and are "
            return f"{both}over: each further micro-batch begins with an input of its own, {own}, in its own turn"
        if not self._was_there(layer, batches):
            where = f"model.{name}[{self._first_key(layer, batches)}]"
            came = simulator.comes_from(rank, ACTIVATIONS[name], layer, batches).partition(": ")[2]
            again = f"{where} = {came or '...'} before that, to be read again"
            return f"{has}, and it was never stored under this key: {again}"
        lost = "was it taken out too soon, as pop does, or has another tensor taken its place? Keep it to its last use"
        return f"{has}: {lost}"

    def _one_key_off(self, layer: int, batches: frozenset[int]) -> str:
        """Return that what the backward of a layer reads is stored, under the key of the layer above, where the one is
        looked for that it gives; or an empty text."""
        for key, tensor in self.items():
            labels: Labels = tensor._token.labels
            if (labels.kind, labels.layer) == ("ActivationGrad", layer) and batches in (NONE, labels.batches):
                call, other = f"{BACKWARD.kind}({layer}, ...)", f"model.{self._name}[{written(key)}]"
                reads = f"reads the gradient of its output, which is stored under the layer above, {other}"
                loaded = [one for one in range(self._rank.layers) if self._simulator.has_loaded(self._rank, one)]
                own = f"model.{self._name}[{self._first_key(layer, batches)}]"
                first = len(loaded) < self._rank.layers and {layer - 1, layer - 2} & {*loaded} == {layer - 1}
                if first or self._took_the_input_below(layer, labels.batches):
                    down = f"{own} is what {call} gives, which has not run yet, and {BACKWARD.kind}({layer - 1}, ...) "
                    down += "comes after it: the layers of a stage go back from the last one down, reversed(...)"
                    return down + f". Or is {call} meant here? It {reads}, and gives that of its input" * first
                if layer == 0 and self._simulator.has_run(self._rank, BACKWARD.kind, 1):
                    ends = f"{own} is what {call} gives, which has not run on this rank: does the loop over the layers "
                    ends += "end before it? range(model.LAYERS - 1, -1, -1) goes down to layer 0"
                    return f"{ends}. If what {call} reads is meant, that is {other}"
                meant = f"{call} {reads}. Is that meant here? Then read it there, or store it as {own}, and all others"
                return f"{meant} likewise. If what {call} gives is meant, {call} has to run first, on this rank"
        return ""

    def _took_the_input_below(self, layer: int, batches: frozenset[int]) -> bool:
        """Return whether this rank keeps the input of a layer, and has taken out that of the layer below before the
        backward of either: whether it is at the backward of the one below."""
        if not self._has_gone_back(FORWARD.kind, layer - 1, batches):
            return False
        here = [tensor._token.labels for known in self._all if (store := known()) for tensor in store.values()]
        inputs = {one.layer for one in here if one.kind == "Activation" and one.batches == batches}
        gone = self._has_gone_back(BACKWARD.kind, layer - 1, batches)
        return layer in inputs and layer - 1 not in inputs and not gone

    def _has_gone_back(self, verb: str, layer: int, batches: frozenset[int]) -> bool:
        """Return whether these micro-batches have gone back through a layer by an operation."""
        return bool(batches) and batches <= self._simulator.has_run(self._rank, verb, layer)

    def _was_made(self, made: Made) -> str:
        """Return what has become of a tensor that this rank has made."""
        layer, batches, at, done, call, backward = made
        other = self._simulator.sent_to(self._rank, ACTIVATIONS[self._name], layer - backward, batches)
        if other is not None:
            return self._was_sent(made, other)
        if not batches and (again := self._of_several(layer, done, at)):
            return again
        known = self._read_by_loss(made) or self._was_brought(made) or self._was_read(made)
        if known or self._was_there(layer, batches):
            return known or f"{call} gave it: was it stored under this key, or taken out already, as pop does?"
        where = f"model.{self._name}[{self._first_key(layer, batches)}]"
        if backward and layer == self._rank.layers and (other_key := self._own_gradient(layer - 1, batches)):
            there = f"{call} gave it, and it is stored under its own layer, {other_key}: read it there, or store it as"
            return f"{there} {where}, and all other gradients under the layer above, too: one rule for all keys"
        first = "grad, " * (backward and call.startswith(BACKWARD.kind))
        reads = f"; the backward of layer {layer} reads it, too" * (not backward and layer < self._rank.layers)
        return f"{call} gave it, and it was never stored under this key: {first}{where} = model.{call}{reads}"

    def _was_sent(self, made: Made, other: int) -> str:
        """Return what to do about a tensor that this rank has made, and sent to the ``other`` one."""
        simulator, rank, (layer, batches, at, done, call, backward) = self._simulator, self._rank, made
        sent = f"{call} gave it, and it was sent to rank {other}"
        if not backward and layer == rank.layers:
            return f"{sent}: the last layer's output goes to no other rank"
        high = "" if backward else self._one_too_high(at, batches, sent=True)
        if high and not simulator.has_loaded(rank, layer):
            return f"{sent}, which runs layer {layer}. {high}"
        if backward and layer == rank.layers and simulator.has_loaded(rank, layer - 1):
            own = f"model.{self._name}[{self._first_key(layer, batches)}] = model.{call}"
            goes = f"{BACKWARD.kind}({layer - 1}, ...), which reads it, runs on this rank, so keep it here, {own}"
            return f"{sent}. {goes}: only what that gives for its input is sent"
        if backward and (lowest := self._lowest_below(layer, batches)) < layer:
            reads = f"layer {layer - 1} has run on this rank, too, and its backward reads it here"
            return f"{sent}: {reads}. Send what comes last, of backward({lowest}, ...)"
        sent += ": pop takes it out, so send it once"
        if backward:
            updated = f". An update takes the gradient of the weight, model.grad_weights[{layer}]"
            return sent + updated * (len(done) == rank.batches)
        back = f"; rank {other} goes on with it towards model.loss, and sends its gradient back"
        if simulator.has_loaded(rank, layer):
            back += f". If the layers of this rank end with layer {at}, its condition goes one too far, as with <= in "
            back += f"place of <. If this rank runs layer {layer}, too, it sends nothing here: pass_to comes after its "
            back += "last layer"
        return sent + back

    def _read_by_loss(self, made: Made) -> str:
        """Return what to do about the output of the last layer, where the loss has read it; or an empty text."""
        layer, batches, at, _, call, backward = made
        read_it = self._simulator.has_run(self._rank, LOSS.kind, layer)
        if backward or layer != self._rank.layers or not batches <= read_it or not read_it:
            return ""
        if high := self._one_too_high(at, batches):
            return f"{call} gave it, for model.loss alone, which has read it. {high}"
        reads = f"{BACKWARD.kind}({at}, ...) reads the input of layer {at}"
        reads += f", model.{self._name}[{self._first_key(at, batches)}]"
        if not self._was_there(layer, batches):
            only = f"{call} gave it, for model.loss alone, which has read it. {reads}: is the layer one too high here?"
            return only + self._of_lower_stage(batches).removeprefix(".")
        read = f"{call} gave it, and model.loss has read it: pop takes it out, so read it once; {reads}"
        return read + self._of_lower_stage(batches)

    def _was_brought(self, made: Made) -> str:
        """Return what to do about a tensor that was brought to a collective; or an empty text."""
        layer, batches, _, done, call, backward = made
        verb = self._simulator.met_by(self._rank, ACTIVATIONS[self._name], layer - backward)
        if not verb:
            return self._simulator.not_summed(self._rank, layer) if backward else ""
        if (layer, *batches) not in self._gone and layer not in self._gone:
            own = f"model.{self._name}[{self._first_key(layer, batches)}] = ..."
            return f"{call} gave it, and no line has stored it under this key: {own}, where it is made"
        taken = f"{call} gave it, and it was brought to {verb}({layer - backward}) before"
        if not backward and self._has_gone_back(BACKWARD.kind, layer, done):
            left = [one for one in self._layers_run() if not self._has_gone_back(BACKWARD.kind, one, done)]
            after = f". The next backward is that of layer {left[-1]}: is its input meant?" if left else ""
            return f"{taken}, and {BACKWARD.kind}({layer}, ...) has run: nothing reads it any more{after}"
        return f"{taken}: with pop it is gone after that, so leave pop to its last use"

    def _was_read(self, made: Made) -> str:
        """Return which backward of this rank has read a tensor that this rank has made; or an empty text."""
        simulator, rank, (layer, batches, _, done, call, backward) = self._simulator, self._rank, made
        if backward:
            if not 0 < layer < rank.layers or not done <= simulator.has_run(rank, BACKWARD.kind, layer - 1):
                return ""
            read = f"{call} gave it, and backward({layer - 1}, ...) has read it: pop takes it out, so read it once"
            return f"{read}; what goes on from there is model.{self._name}[{self._first_key(layer - 1, batches)}]"
        halves = [simulator.has_run(rank, one.kind, layer) for one in (BACKWARD_INPUT, BACKWARD_WEIGHT)]
        if batches and batches <= halves[0] - halves[1]:
            return (
                f"{call} gave it, and {BACKWARD_INPUT.kind}({layer}, ...) has read it: both halves of a backward read "
                f"the input of their layer, so keep it until {BACKWARD_WEIGHT.kind}({layer}, ...), and pop it there"
            )
        gone_back = simulator.has_run(rank, BACKWARD.kind, layer)
        if not batches and layer < rank.layers and done <= gone_back and len(done) < rank.batches:
            which = numbered("micro-batch", done)
            gave = f"{call} gave it for {which}, and backward({layer}, ...) has read it: for another micro-batch"
            return f"{gave} the forwards come first, from model.get_activation on. Or is a backward done twice?"
        return ""

    def _own_gradient(self, layer: int, batches: frozenset[int]) -> str:
        """Return where the gradient of a layer's output is stored under the number of that layer, or an empty text."""
        for key, tensor in self.items():
            labels: Labels = tensor._token.labels
            if (labels.kind, labels.layer, labels.batches) == ("ActivationGrad", layer, batches):
                named = self._of_key(key)
                return f"model.{self._name}[{written(key)}]" if named and named[0] == layer else ""
        return ""

    def _lowest_below(self, layer: int, batches: frozenset[int]) -> int:
        """Return the first of the layers below one that this rank has run, one after the other, and whose backward is
        still to come for these micro-batches; or that layer itself where there is none."""
        simulator, rank = self._simulator, self._rank
        while layer and batches <= (ran := simulator.has_run(rank, FORWARD.kind, layer - 1)) != NONE:
            done = simulator.has_run(rank, BACKWARD.kind, layer - 1) | simulator.has_run(
                rank, BACKWARD_INPUT.kind, layer - 1
            )
            if not (batches or ran) - done:
                break
            layer -= 1
        return layer

    def _one_too_high(self, layer: int, batches: frozenset[int], sent: bool = False) -> str:
        """Return which input the backward of a layer reads, or its half for the weight, where that is next for these
        micro-batches on this rank, so that the output may be looked for in place of it; or an empty text. ``sent``: it
        is next, too, where its gradient has come."""
        if self._has_gone_back(BACKWARD.kind, layer, batches) or self._has_gone_back(
            BACKWARD_WEIGHT.kind, layer, batches
        ):
            return ""
        half, which = self._has_gone_back(BACKWARD_INPUT.kind, layer, batches), ("ActivationGrad", layer, batches)
        if not half and not (
            sent and any((one.kind, one.layer, one.batches) == which for _, one in self._all_stored())
        ):
            return ""
        reads = f"{BACKWARD_WEIGHT.kind if half else BACKWARD.kind}({layer}, ...) reads the input of layer {layer}"
        return f"{reads}, model.activations[{self._first_key(layer, batches)}]: is the layer one too high here?"

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
            if self._simulator.sent_to(self._rank, "ActivationGrad", layer, batches) is not None:
                return self._simulator.gradient_to_come(self._rank)
            return f"model.loss gave the gradient of the output of layer {layer}: was it stored under this key? {own}"
        key = self._first_key(layer, batches)
        return f"model.loss makes the first gradient: model.{self._name}[{key}] = model.loss(output). {own}"

    def _of_several(self, layer: int, done: frozenset[int], made: int) -> str:
        """Return what to do about a key without a micro-batch, where what it stands for was made of several of them, or
        not yet of the last one that has come so far; or an empty text. ``done``: of which it was made, in ``made``."""
        simulator, rank = self._simulator, self._rank
        if ACTIVATIONS[self._name] == "Activation":
            verb = "loss" if layer == rank.layers else BACKWARD.kind
            if (
                len(done) < 2
                or done <= simulator.has_run(rank, verb, layer)
                or simulator.has_loaded(rank, layer) != (verb != "loss")
            ):
                return ""
            gave = f"forward({made}, ...) gave it for {numbered('micro-batch', done)}, under one key, so that each has "
            gave += "taken the place of the one before"
            return f"{gave}: model.{self._name}[layer, micro_batch], or go on with one until its backward is done"
        if layer != rank.layers:
            return ""
        left = simulator.has_run(rank, FORWARD.kind, layer - 1) - done
        return (
            f"model.loss has not run on {numbered('micro-batch', left)}: call it for each micro-batch" if left else ""
        )

    def _first_key(self, layer: int, batches: frozenset[int]) -> str:
        """Return the key of a layer, or of a layer and micro-batches, as this learner writes it."""
        if self._by_batch and batches:
            return ", ".join(map(str, batches))
        return ", ".join(map(str, (*batches, layer) if self._layer_last else (layer, *batches)))

    def _elsewhere(self, sought: Sought) -> str:
        """Where a key tells a layer: on which other rank such a tensor is, or what makes it on this one."""
        meant = self._of_key(sought.key)
        if meant is None:
            return ""
        if self._name in ACTIVATIONS:
            return self._made_elsewhere(sought, *meant)
        return self._summed_elsewhere(sought, meant[0]) if self._name == "grad_weights" else self._loads(meant[0])

    def _made_elsewhere(self, sought: Sought, layer: int, batches: frozenset[int]) -> str:
        """Return which other rank makes an activation or its gradient, or what makes it on this one; or nothing."""
        (key, popped, _), simulator, rank, name = sought, self._simulator, self._rank, self._name
        activation = ACTIVATIONS[name] == "Activation"
        last = simulator.owner(rank, layer - 1) if activation and layer == rank.layers else None
        if last is not None and simulator.has_loaded(rank, layer - 1):
            return self._not_yet(layer, batches)  # another pipeline's
        if last is not None:
            return f"the last layer is on rank {last}, and only that calls model.loss; others receive a gradient"
        before: Hashable = layer - 1
        if isinstance(key, tuple):
            before = (key[0], layer - 1, *key[2:]) if self._layer_last and is_pair(key) else (layer - 1, *key[1:])
        if activation and before in self and simulator.has_loaded(rank, layer - 1):
            made = f"model.{name}[{self._first_key(layer, batches)}] = model.forward({layer - 1}, ...)"
            return f"{made} before that: its input is stored here{self._loss_once(layer, '. ')}"
        if activation and popped and layer < rank.layers and max(self._layers_run(), default=-1) > layer:
            ran = simulator.owner(rank, layer)
            if ran is not None and not simulator.has_run(rank, FORWARD.kind, layer):
                return f"layer {layer} ran on rank {ran}, where its backward runs, too: do that for own layers only"
        if there := simulator.comes_from(rank, ACTIVATIONS[name], layer, batches):
            if popped and activation:
                return self._before_its_forward(layer, batches, there)
            own = self._layers_run()
            last_one = ", that of the last of its layers" * (own[-1:] == [layer - 1])
            turn = f", before backward({layer - 1}, ...){last_one}"
            return there + turn * (not activation and len(own) > 1)
        if not activation or not 0 < layer <= rank.layers:
            return ""
        back = simulator.has_run(rank, BACKWARD.kind, layer) | simulator.has_run(rank, BACKWARD_INPUT.kind, layer)
        waits = popped and any(self._is_kept(tensor._token.labels, layer) for tensor in self.values())
        return self._not_yet(layer, batches, back, waits)

    def _summed_elsewhere(self, sought: Sought, layer: int) -> str:
        """Return what gives the gradient of a layer's weight, or which rank has it; or an empty text."""
        simulator, rank = self._simulator, self._rank
        loaded, owner = simulator.has_loaded(rank, layer), simulator.owner(rank, layer)
        if started := simulator.unawaited(rank, "WeightGrad", layer):
            twice = f". Or is layer {layer} left over in the list of another call?" if sought.key in self._gone else ""
            store = f"store what that gives, model.grad_weights[{layer}]"
            return f"{started}: await what it has returned, and {store}{twice}"
        if waits := sought.heard[Origins._of_another_task]:
            return waits
        if loaded and (verb := simulator.summed_by(rank, layer)):
            kept = f"model.grad_weights[{layer}] = await model.{verb}(..., {layer})"
            return f"{kept}: keep what it gives, on every rank that updates a piece of the layer"
        if loaded and owner is not None and not self._layers_run():
            none = "this rank has run no micro-batch: is its share empty?"
            if due := simulator.empty_share(rank):
                return f"{none} {due[:1].upper()}{due[1:]}"
            return f"{none} A rank that has none brings model.fake_grad({layer}, [])"
        if owner is not None:
            return f"layer {layer} is that of rank {owner}: let each rank do this for its own layers only"
        return "" if sought.popped else FIRST

    def _of_another_task(self, sought: Sought) -> str:
        """Where a collective has been called for what is looked for, and its result is not taken yet: that the task
        which does that has to come first."""
        meant = self._of_key(sought.key)
        kind = {"grad_weights": "WeightGrad", "weights": "Weight"}.get(self._name, "")
        verb = self._simulator.not_taken(self._rank, kind, meant[0]) if meant is not None else ""
        if meant is None or not verb:
            return ""
        called = f"model.{verb}(..., {meant[0]}) has been called, and its result is not taken so far"
        return f"{called}: await the task that awaits it, or the call itself, before this line{self._only_other()}"

    def _only_other(self) -> str:
        """Return, as a sentence, which key is the only one here, if it is that of another layer; or an empty text."""
        key = next(iter(self)) if len(self) == 1 else None
        return f". Or is model.{self._name}[{key}] meant, the only one that is there?" if type(key) is int else ""

    def _loads(self, layer: int) -> str:
        """Return which rank has loaded a weight or a state, or how this one does; or an empty text."""
        simulator, rank = self._simulator, self._rank
        if simulator.has_loaded(rank, layer):
            if self._name != "opt_states" or simulator.has_run(rank, "update", layer):
                return ""
            if layer in self._gone:
                taken = f"model.opt_states[{layer}] was stored, and was taken out before this, as pop and popitem do"
                return f"{taken}: leave it there for model.update({layer}, ...), which reads it"
            return f"load_weights gives it beside the weight: model.weights[{layer}], model.opt_states[{layer}] = ..."
        owner = simulator.owner(rank, layer)
        if owner is None:
            return f"model.weights[{layer}], model.opt_states[{layer}] = model.load_weights({layer}, ...) before that"
        that = f"layer {layer} is that of rank {owner}: let each rank do this for its own layers only"
        own = [one for one in range(rank.layers) if simulator.has_loaded(rank, one)]
        if self._name != "weights" or not own:
            return that
        return f"{that}. This one has loaded {numbered('layer', own)}: are these the ones that it should have?"

    def _is_kept(self, labels: Labels, layer: int) -> bool:
        """Return whether a tensor is the input of a layer that has run, which is kept for its backward."""
        ran = labels.batches <= self._simulator.has_run(self._rank, FORWARD.kind, layer)
        return ran and (labels.kind, labels.layer) == ("Activation", layer)

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
        ready = simulator.has_run(rank, FORWARD.kind, layer) - simulator.has_run(rank, BACKWARD.kind, layer) - halves[1]
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

    def _not_yet(self, layer: int, batches: frozenset[int], used: frozenset[int] = NONE, backward: bool = False) -> str:
        """Return what to do about an activation that this rank has not made yet, by what it has done instead. ``used``:
        the micro-batches that have gone on from there; ``backward``: whether it is for a backward."""
        simulator, rank = self._simulator, self._rank
        known = self._forwards()
        if batches and known and simulator.has_loaded(rank, layer - 1):
            missing = numbered("micro-batch", batches - simulator.has_run(rank, FORWARD.kind, layer - 1))
            soon = f"it is read too soon: this rank has not run forward({layer - 1}, ...) for {missing} yet"
            ready = simulator.has_run(rank, FORWARD.kind, layer - 1) - used
            ready_now = f", {numbered('micro-batch', ready)}" if ready else ""
            if backward and ready and min(ready) < min(batches):
                return f"{soon}, only {known}: take what is ready{ready_now}, as what has come first goes back first"
            return f"{soon}, only {known}: do that forward first, or take what is ready{ready_now}"
        made = f"model.{self._name}[{self._first_key(layer, batches)}] = model.forward({layer - 1}, ...)"
        own = self._layers_run()
        if layer == rank.layers and own and own[-1] < layer - 1:
            other = simulator.sent_to(rank, "Activation", own[-1] + 1, NONE)
            if other is not None:
                if missing := simulator.run_by_nobody(rank):
                    return missing
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
        before = ", and some come before its first backward" * (not simulator.has_tasks(rank))
        first = f"this rank has run no forward yet{before}: " * bool(none)
        begins = not own and not batches and any((one.kind, one.layer) == ("Activation", 0) for one in stored)
        up = " The forward pass goes up from layer 0, whose input is here" * begins
        too_soon = self._loss_once(layer)
        if too_soon and all(simulator.owner(rank, one) is None for one in range(layer)) and not own:
            empty = "no rank has run a layer yet: does the loss come before them, or is the range of the layers empty?"
            return f"{empty} A stage has model.LAYERS // stages, range(first, first + model.LAYERS // stages)"
        return self._skipped(layer, stored) or f"{first}{made} before that; or is it under another key?{up or too_soon}"

    def _skipped(self, layer: int, stored: Sequence[Labels]) -> str:
        """Return what to do in the turn of a layer where no rank has run those between it and the last one that this
        rank has run, whose output is among what is ``stored``; or an empty text."""
        last = max(self._layers_run(), default=self._rank.layers)
        between = range(last + 1, layer)
        if not between or layer >= self._rank.layers or any(self._simulator.owner(self._rank, one) for one in between):
            return ""
        if not any((one.kind, one.layer) == ("Activation", last + 1) for one in stored):
            return ""
        none = f"no rank has run {numbered('layer', between)} yet, and what forward({last}, ...) gave, "
        none += f"model.activations[{self._first_key(last + 1, NONE)}], is still here: take the layers in their order"
        sends = f"where layer {last + 1} is another rank's, send it there, await model.pass_to(...), and receive what "
        return f"{none}; {sends}forward({layer - 1}, ...) gives in the turn of layer {layer}"

    def _loss_once(self, layer: int, begins: str = " ") -> str:
        """Return, as the end of an answer, where the loss comes, if the output of the last layer is looked for before
        any micro-batch has gone through that; or an empty text."""
        if layer != self._rank.layers or self._simulator.has_run(self._rank, FORWARD.kind, layer - 1):
            return ""
        if len(own := self._layers_run()) > 1 and own[-1] == layer - 2:
            last = f"so its second number is one more than {layer - 1}, the last layer"
            return f"{begins}Does the loop over the layers end too soon? range ends before its second number, {last}"
        once = f"model.loss comes once, after forward({layer - 1}, ...)"
        return f"{begins}{once}: is it in each turn of a loop over the layers?"

    def _place(self, key: Hashable) -> Place:
        return Place(self._rank.rank, tick=self._simulator.time(self._rank), detail=f"{self._name}[{written(key)}]")


def written(key: Hashable) -> str:
    """Return a key as it is written between brackets: a pair without parentheses."""
    return ", ".join(map(repr, key)) if isinstance(key, tuple) and len(key) > 1 else repr(key)


def with_an(kind: str) -> str:
    """Return the name of a kind of tensor with its article."""
    return f"{'an' if kind[0] in 'AO' else 'a'} {kind}" if not kind.endswith("s") else kind
