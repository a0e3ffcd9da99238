"""What to write where a learner looks for a tensor that is not there."""

from __future__ import annotations

from collections.abc import Container, Hashable
from functools import partial

from ..basics.arguments import describe
from ..basics.errors import Fix, PuzzleError, numbered
from ..record.attention import PROJECT
from ..record.labels import DEALT, IN_A_V
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS
from .keys import is_pair, layer_comes_last
from .origins import ACTIVATIONS, Ask, Sought, written
from .rules import Rules
from .tensors import FIRST, Tensor

SEVERAL_KINDS = "several_kinds"  # the rule of a puzzle in which a learner chooses the pipelines
LOADED = ("weights", "opt_states")  # the dictionaries of what is loaded
NOW, LATER = "now", "later"  # when a rule is asked

RULES: tuple[tuple[str, Ask], ...] = (
    (NOW, Rules._turned_round),
    (NOW, Rules._of_steps),
    (NOW, Rules._cleared_away),
    (NOW, Rules._is_near),
    (LATER, Rules._of_micro_batch),
    (NOW, Rules._under_another_key),
    (LATER, Rules._not_come),
    (NOW, Rules._nothing_kept),
    (LATER, Rules._read_by_half),
    (LATER, Rules._gradient_too_soon),
    (LATER, Rules._of_no_loss),
    (LATER, Rules._of_any_layer),
    (LATER, Rules._input_to_come),
    (LATER, Rules._input_elsewhere),
    (NOW, Rules._own_past),
    (LATER, Rules._elsewhere),
    (NOW, Rules._of_another_task),
    (NOW, Rules._taken_out),
    (LATER, Rules._backward_ready),
    (NOW, Rules._beyond_the_layers),
    (NOW, Rules._output_there),
    (NOW, Rules._adapter_there),
    (NOW, Rules._sum_not_begun),
    (NOW, Rules._gathered_elsewhere),
    (NOW, Rules._next_gradient),
    (NOW, Rules._left_lying),
    (NOW, Rules._in_plain_words),
)
"""What is asked in turn about a key under which nothing is stored, until one speaks: each says what to do, or nothing.
A rule about this rank is asked ``NOW``, as the error is raised, and one about other ranks, too, is asked ``LATER``, and
only where it has its turn: as the error is read, those have come as far as they do."""


class Missing(Rules):
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
        """Raise MissingTensor, with what the rules say (``RULES`` and ``OTHERS``)."""
        self._layer_last = layer_comes_last(key, self._all_stored(), self._fits)
        self._by_batch = self._is_of_batches(key)
        sought = Sought(key, popped, {})
        sought.heard.update((rule, rule(self, sought)) for when, rule in RULES if when is NOW)
        got = f"keys {describe(list(self))}" if self else "an empty dictionary"
        problem = f"nothing is stored in {self._name} under {key!r}"
        fix, fix_for = partial(self._answer, sought), self._for_others(sought)
        raise MissingTensor(problem, where=self._place(key), got=got, fix=fix, fix_for=fix_for)

    def _answer(self, sought: Sought) -> str:
        """Return what the first rule says that speaks, and what another task may do about it."""
        for when, rule in RULES:
            if said := sought.heard[rule] if when is NOW else rule(self, sought):
                break
        beside = "" if rule == Rules._turned_round else self._beside(sought.key)
        return f"{said}{'' if said[-1] in '.?' else '.'} {beside}" if beside else said

    def _for_others(self, sought: Sought) -> dict[str, Fix]:
        """Return what to do in puzzles that ask for something else, by what they ask for."""
        fixes: dict[str, Fix] = {}
        for asked, when, rule, stores in OTHERS:
            if when is LATER and (not stores or self._name in stores):
                fixes[asked] = partial(self._otherwise, rule, sought)
            elif when is NOW and (said := rule(self, sought)):
                fixes[asked] = said
        return fixes

    def _otherwise(self, rule: Ask, sought: Sought) -> str:
        return rule(self, sought) or self._answer(sought)

    # -- rules for puzzles that ask for something else, in the order of ``OTHERS`` -----------------

    def _in_a_v(self, sought: Sought) -> str:
        """Where stages are in a V, and this rank has loaded others: which are its own."""
        return self._simulator.not_in_a_v(self._rank) or self._in_halves(sought)

    def _zero_of(self, sought: Sought) -> str:
        """Where a layer has run on another rank, and this one has a piece of its gradient: that it brings the zero
        gradient to the reduction."""
        layer, simulator, rank = sought.key, self._simulator, self._rank
        if type(layer) is not int or not simulator.has_loaded(rank, layer) or simulator.summed_by(rank, layer):
            return ""
        owner = simulator.owner(rank, layer)
        if owner is None:
            return ""
        has = f"layer {layer} has run on rank {owner}, and not on this one, which brings the zero gradient to the "
        return f"{has}reduction of its gradient, before its update: model.fake_grad({layer}, [])"

    def _to_load(self, key: Hashable) -> str:
        """Return how the line begins that loads a layer which this rank has not loaded; or an empty text."""
        if self._name not in LOADED or type(key) is not int or not 0 <= key < self._rank.layers:
            return ""
        if self._simulator.has_loaded(self._rank, key):
            return ""
        return f"model.weights[{key}], model.opt_states[{key}] = model.load_weights({key}"

    def _load_whole(self, sought: Sought) -> str:
        """Where each rank is to load every layer, and has not loaded this one: that it does."""
        load = self._to_load(sought.key)
        return f"here each rank loads every layer: {load})" if load else ""

    def _load_states(self, sought: Sought) -> str:
        """Where each rank keeps its shard of every state: that it cuts it out, or has to load the layer."""
        layer, simulator, rank = sought.key, self._simulator, self._rank
        if self._name != "opt_states" or type(layer) is not int or not 0 <= layer < rank.layers:
            return self._load_whole(sought)
        if not simulator.has_loaded(rank, layer) or simulator.has_run(rank, "update", layer):
            return self._load_whole(sought)
        shard = f"model.opt_states[{layer}] = state.shard(model.rank, model.RANKS)"
        return f"here each rank keeps its shard of the state of every layer: {shard}"

    def _load_shard(self, sought: Sought) -> str:
        """Where each rank is to load its shard of every layer, and has not loaded that of this one: that it does."""
        load = self._to_load(sought.key)
        return f"here each rank loads its shard of every layer: {load}, model.rank, model.RANKS)" if load else ""

    def _dealt_otherwise(self, sought: Sought) -> str:
        """Where layers are dealt like cards, and this rank has others, or another order: which comes here."""
        if self._name in ACTIVATIONS:
            return self._against_rounds(sought)
        return "" if sought.key in self._gone else self._simulator.dealt_otherwise(self._rank)

    def _against_rounds(self, sought: Sought) -> str:
        """Where an activation or a gradient is still to come on this rank: that its rounds have another order."""
        key, first = sought.key, (Rules._cleared_away, Rules._is_near, Rules._under_another_key)
        if self._name not in ACTIVATIONS or any(sought.heard[rule] for rule in first):
            return ""
        if not (self._awaits_loss(key) or self._is_to_come(key)):
            return ""
        meant = self._of_key(key)
        of_loss = meant is not None and meant[0] == self._rank.layers
        backward = self._name == "grad_activations" or sought.popped or of_loss
        return self._simulator.against_rounds(self._rank, backward)

    def _in_halves(self, sought: Sought) -> str:
        """Where a backward is in halves: the one for the input reads an input, too, and leaves it there, and leaves the
        gradient for the other one."""
        if self._name == "activations":
            return self._answer(sought._replace(popped=True))
        return self._with_half(sought, self._answer(sought)) if self._name in ACTIVATIONS else self._answer(sought)

    def _in_steps(self, sought: Sought) -> str:
        """Where layers may be in three steps: which of them makes what is looked for, or has read it."""
        return self._of_steps(sought, granted=True)

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

    def _is_to_come(self, key: Hashable) -> bool:
        """Return whether an activation is one of a layer and a micro-batch whose forward this rank has not run yet."""
        meant, rank = self._of_key(key), self._rank
        if self._name != "activations" or meant is None or not meant[1]:
            return False
        layer, batches = meant
        verbs = [(FORWARD.kind, one) for one in (layer - 1, layer) if 0 <= one < rank.layers]
        return not any(batches <= self._simulator.has_run(rank, verb, one) for verb, one in verbs)

    def _with_half(self, sought: Sought, plain: str) -> str:
        """Return what to do about a gradient in a puzzle with halves of a backward: that of the input comes first.
        ``plain``: what to do otherwise, which is said first as long as this rank has run no half."""
        key, meant = sought.key, self._of_key(sought.key)
        if (
            self._not_come(sought)
            or not (half := self._half_too_soon(key))
            or (meant is not None and (self._one_key_off(*meant) or self._own_gradient(meant[0] - 1, meant[1])))
        ):
            return plain
        halves = any(self._simulator.has_run(self._rank, BACKWARD_INPUT.kind, one) for one in self._layers_run())
        return f"{half}. Else {plain}" if halves else f"{plain}. And with halves: {half}"

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

    def _on_the_host(self, sought: Sought) -> str:
        """Where the hosts make the updates: what a rank does without the gradient, the weight or the state."""
        key = sought.key
        if self._name == "grad_weights":
            return FIRST
        if self._name == "weights" and type(key) is int and self._simulator.has_run(self._rank, BACKWARD.kind, key):
            return f"the host has updated it, and sends it: model.weights[{key}] = await model.receive(src=model.host)"
        if self._name == "opt_states" and type(key) is int and self._simulator.has_run(self._rank, FORWARD.kind, key):
            return "the states are on the host, which makes all updates: await model.pass_to(model.host, grad)"
        return ""


OTHERS: tuple[tuple[str, str, Ask, Container[str]], ...] = (
    (IN_A_V, LATER, Missing._in_a_v, ()),
    ("sharded", LATER, Missing._zero_of, ("grad_weights",)),
    ("whole", NOW, Missing._load_whole, LOADED),
    ("states_sharded", NOW, Missing._load_states, LOADED),
    ("sharded", NOW, Missing._load_shard, LOADED),
    (DEALT, LATER, Missing._dealt_otherwise, ()),
    (SEVERAL_KINDS, LATER, Missing._against_rounds, ()),
    (BACKWARD_WEIGHT.kind, LATER, Missing._in_halves, ACTIVATIONS),
    (PROJECT.kind, LATER, Missing._in_steps, ()),
    ("updates_on_hosts", NOW, Missing._on_the_host, ()),
)
"""What a puzzle may ask for, with the rule that comes there before those of ``RULES``, when it is asked, and the
dictionaries for which it is, or none for all. The first that fits a puzzle decides. One that is asked ``NOW`` and is
silent is left out."""


class MissingTensor(PuzzleError, KeyError):
    """Raised where nothing is stored under a key. A KeyError too, so that code which catches those keeps working."""

    sticks = False
    __str__ = PuzzleError.__str__
