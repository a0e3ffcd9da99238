"""What to write where a learner looks for a tensor that is not there."""

from __future__ import annotations

from collections.abc import Container, Hashable
from functools import partial
from typing import Any

from ..basics.arguments import describe
from ..basics.errors import Fix, PuzzleError, numbered
from ..record.attention import PROJECT
from ..record.labels import DEALT, IN_A_V
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS
from .keys import is_pair, layer_comes_last
from .origins import ACTIVATIONS, Ask, Sought, written
from .rules import Rules, words_of
from .tensors import FIRST, Tensor
from .texts import Texts, form_of, forms

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

    __slots__ = ("_kept",)
    _kept: list[Missing]  # the dictionaries of a rank, where these are copies with numbers as keys

    def missed(self) -> tuple[str, str, int, frozenset[int], int, str, str] | None:
        """Return what was looked for last, and not found, in the words of ``machine.advice.sought``, and forget it; or
        None where it has no layer and micro-batch."""
        self._awaited = key = self._missed
        self._missed = None
        if self._name not in ACTIVATIONS or not isinstance(key, (str, tuple)):
            return None
        as_read, numbers, texts = self._in_numbers(key)
        sought = as_read._seen(numbers)
        return sought and (texts.spelled(sought[0]), *sought[1:5], *map(texts.spelled, sought[5:]))  # type: ignore[return-value]

    def _seen(self, key: Hashable) -> tuple[str, str, int, frozenset[int], int, str, str] | None:
        """Return what ``missed`` does, of a key that is numbers."""
        kind = ACTIVATIONS[self._name]
        if not isinstance(key, tuple) or not is_pair(key):
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
        as_read, numbers, texts = self._in_numbers(key)
        as_read._layer_last = layer_comes_last(numbers, as_read._all_stored(), as_read._fits)
        as_read._by_batch = as_read._is_of_batches(numbers)
        sought = Sought(numbers, popped, {})
        sought.heard.update((rule, rule(as_read, sought)) for when, rule in RULES if when is NOW)
        got = f"keys {describe(list(self))}" if self else "an empty dictionary"
        problem = f"nothing is stored in {self._name} under {key!r}"
        fix: Fix = partial(as_read._answer, sought)
        fix_for = as_read._for_others(sought)
        if as_read is not self:
            texts = texts._replace(layer_last=as_read._layer_last)
            fix, *others = (partial(_spelled, texts, one, as_read._kept) for one in (fix, *fix_for.values()))
            fix_for = dict(zip(fix_for, others, strict=True))
        raise MissingTensor(problem, where=self._place(key), got=got, fix=fix, fix_for=fix_for)

    def _in_numbers(self, key: Hashable) -> tuple[Missing, Hashable, Texts]:
        """Return this dictionary and a key as they are; or where the key is a text in which a layer stands as a number,
        or a layer and a micro-batch, both with such numbers as keys; and how those are spelled."""
        stores = [store for one in self._all if (store := one()) is not None] if isinstance(key, str) else []
        of_all = {store._name: forms(store._own_stored()) for store in stores}
        form = form_of(key)
        if (
            form is not None
            and self._name in ACTIVATIONS
            and all(form_of(one) is None for one, _ in self._own_stored())
        ):
            others = [of_all[name] for name in ACTIVATIONS if name != self._name]
            if any(len(form) - 1 in known for known in others) or (len(form) > 2 and not any(others)):
                of_all[self._name] = {len(form) - 1: form}  # as the other one has, or as there is none yet
        texts = Texts(self._name, of_all, False)
        numbers = texts.numbers(self._name, key)
        if numbers == key:
            return self, key, texts
        copies: list[Missing] = []
        among: list[Any] = []
        for store in stores:
            copies.append(copy := Missing(self._simulator, self._rank, store._name, among))
            known = partial(texts.numbers, store._name)
            dict.update(copy, {known(one): tensor for one, tensor in store.items()})
            copy._gone = {known(one): labels for one, labels in store._gone.items()}
            copy._cleared = frozenset(map(known, store._cleared))
            copy._awaited = known(store._awaited)
            copy._kept = copies
        return copies[[store is self for store in stores].index(True)], numbers, texts

    def _answer(self, sought: Sought) -> str:
        """Return what the first rule says that speaks, and what another task may do about it."""
        for when, rule in RULES:
            if said := sought.heard[rule] if when is NOW else rule(self, sought):
                break
        if rule == Rules._elsewhere and sought.popped and hasattr(self, "_kept"):  # of a text, another may be meant
            said = self._backward_ready(sought) or said
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
        layer = key if type(key) is int else self._layer_by_name(key)
        if self._name not in LOADED or type(layer) is not int or not 0 <= layer < self._rank.layers:
            return ""
        if self._simulator.has_loaded(self._rank, layer):
            return ""
        stores = f"model.weights[{layer}], model.opt_states[{layer}]"
        if type(key) is not int:
            own = f"model.{self._name}[{written(key)}]"
            stores = f"{own}, state" if self._name == "weights" else f"weight, {own}"
        return f"{stores} = model.load_weights({layer}"

    def _layer_by_name(self, key: Hashable) -> int | None:
        """Return the layer of a key of a name and a number, where pieces of other layers are stored as they were loaded
        under this name with their own numbers; None for other keys."""
        if not isinstance(key, tuple) or not words_of(key):
            return None
        numbers = [one for one in key if type(one) is int]
        for other, tensor in self.items():
            labels = tensor._token.labels
            same = isinstance(other, tuple) and [one if type(one) is str else labels.layer for one in key] == [*other]
            loaded = self._simulator.has_loaded(self._rank, labels.layer) and not labels.is_whole()
            if same and loaded and len(numbers) == 1:
                return numbers[0]
        return None

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
        if sought.key in self._gone:
            return ""
        return self._simulator.dealt_otherwise(self._rank) or self._counted_otherwise(sought)

    def _counted_otherwise(self, sought: Sought) -> str:
        """Where a layer of another rank is looked for, and this rank has its own ones: that the number is wrong."""
        first = (Rules._turned_round, Rules._cleared_away, Rules._is_near, Rules._under_another_key, Rules._own_past)
        key = sought.key
        if self._name not in LOADED or type(key) is not int or any(sought.heard[rule] for rule in first):
            return ""
        owner = self._simulator.owner(self._rank, key)
        own = [one for one in range(self._rank.layers) if self._simulator.has_loaded(self._rank, one)]
        if owner is None or not own or key in own:
            return ""
        count = "does this line count the layers of a rank in another way? They are range(model.rank, model.LAYERS, "
        return f"layer {key} is that of rank {owner}, and this rank has {numbered('layer', own)}: {count}model.RANKS)"

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
        """Return whether an activation is one of a layer and a micro-batch whose forward this rank has not run yet; or,
        under a name and a micro-batch, on a rank with the last layer, which has not run on that one; or where it is not
        known which numbers a key has, before the first backward."""
        meant, rank = self._of_key(key), self._rank
        if self._name != "activations":
            return False
        if meant is None and isinstance(key, tuple) and words_of(key) and self._layers_run():
            own, top = {one for one in key if type(one) is int}, rank.layers - 1
            last = self._simulator.has_loaded(rank, top) and len(own) == 1
            return last and own <= {*range(rank.batches)} - self._simulator.has_run(rank, FORWARD.kind, top)
        if meant is None and self._by_batch is None and key not in self._gone:
            return not any(self._simulator.has_run(rank, BACKWARD.kind, one) for one in range(rank.layers))
        if meant is None or not meant[1]:
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


def _spelled(texts: Texts, fix: Fix, kept: object) -> str:
    """Return what to write, with keys as ``texts`` has them. ``kept``: what ``fix`` asks, so long as it is asked."""
    said = fix() if callable(fix) else fix
    return texts.spelled(said)


class MissingTensor(PuzzleError, KeyError):
    """Raised where nothing is stored under a key. A KeyError too, so that code which catches those keeps working."""

    sticks = False
    __str__ = PuzzleError.__str__
