"""Programs as plain data, which a real machine and a plain one can run: what they look like, and random ones.

For every rank a program says the steps before, in and after an ``asyncio.gather`` of some coroutines. A coroutine has
one *hand* (a local variable, written None) and *slots* (keys of its own in the rank's five dictionaries; those with
capital letters are shared). A step whose operand is not there, or is of another kind than it needs, is left out.

    ("take", count, to)             the rank's first micro-batches: to a slot, or into the hand
    ("cut", axis, to, layer)        the piece of a layer's weight that belongs to the rank's place on the axis
    ("zero", to, layer)             a layer's gradient of no micro-batches
    ("pop", slot)  ("store", slot)  out of a slot into the hand, and back
    ("copy", slot, slot)            the same tensor under a second key
    ("drop", slot)
    ("half", of, to)  ("plus", of, to)      the first half of a weight or gradient; a gradient, and nothing added to it
    ("forward", of)  ("loss", of)  ("backward", of, gradient)  ("update", of)      what they make is in the hand
    ("meet", kind, axis, of, call)  ("send", rank, of or text, call)  ("receive", source, call)
    ("meets", kind, axis, of, call)  one call for layers 0, 1, ...: ``of`` has a slot for each
    ("exchange", ((rank, of or text), ...), sources, call)
    ("await", call, to)              ``to`` has a slot for each layer, if it was a call for several

These compute with layer 0 and what every rank begins with: weight and state of layer l in the slots Wl and Sl. The
others name all that they need. They are left out for another kind only, so they can be wrong. A result that goes to
the slot "" is thrown away.

    ("load", layer, index, total, weight, state)            a piece of a weight and of its state, to two slots
    ("take", count, to, first)                              not from the rank's first micro-batch on
    ("shard", of, to, index, total)  ("combine", of, other, to)  ("add", of, other, to)
    ("forward", layer, of, weight)                          the output is in the hand
    ("backward", layer, of, gradient, weight, to)           the weight's gradient is in the hand, the input's in ``to``
    ("update", layer, gradient, weight, state, to)          the weight is in the hand, the state in ``to``
    ("meet", kind, axis, of, call, layer)                   ("final", layer, of)
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest

from lib import Cost, Model
from lib.machine.rank_state import RankState, TensorState

Step = tuple[Any, ...]
STORED = ("Weight", "OptState", "WeightGrad", "Activation", "ActivationGrad")


@dataclass(frozen=True)
class Program:
    """What every rank does, and the machine that it does it on. Rank r owns ``own`` micro-batches from r * own."""

    scripts: tuple[tuple[list[Step], list[list[Step]], list[Step]], ...]
    mesh: dict[str, int] | None = None
    node_size: int | None = None
    own: int = 1
    prices: dict[str, Any] = field(default_factory=dict)
    layers: int = 1  # only the last one has a loss, so more than one are not trained
    adapters: bool = False  # whether an adapter of each layer is trained, beside its weight
    loaded: bool = True  # whether every rank begins with all weights and states, whole
    links: str = "eager"

    @property
    def size(self) -> dict[str, Any]:
        """What ``run`` wants to know."""
        ranks = len(self.scripts)
        machine = {"mesh": self.mesh, "node_size": self.node_size, "cost": Cost(**self.prices)}
        machine["links"] = self.links
        return {"ranks": ranks, "layers": self.layers, "batches": ranks * self.own, **machine}


def perform(program: Program) -> Callable[[Model], Any]:
    """The function of a model that does what the program says."""

    async def function(model: Model) -> None:
        where: dict[Any, Any] = {}  # the dictionary that a slot is in

        def begin(layer: int, load: Any, *names: str) -> None:
            stores = (model.weights, model.opt_states)
            for name, store, thing in zip(names, stores, load(layer), strict=True):
                slot = "before", f"{name}{layer}"
                where[slot], store[slot] = store, thing

        for layer in range(model.LAYERS if program.loaded else 0):
            begin(layer, model.load_weights, "W", "S")
            if program.adapters:
                begin(layer, model.load_adapter, "A", "B")
        before, branches, after = program.scripts[model.rank]
        await act(program, model, where, "before", before)
        await asyncio.gather(*[act(program, model, where, str(at), steps) for at, steps in enumerate(branches)])
        await act(program, model, where, "after", after)

    return function


async def act(program: Program, model: Model, where: dict[Any, Any], name: str, steps: list[Step]) -> None:
    """The steps of one coroutine."""
    stores = dict(
        zip(STORED, (model.weights, model.opt_states, model.grad_weights, *model.storage()[2:4]), strict=False)
    )
    calls: dict[str, Any] = {}
    hand: Any = None
    beside = {"adapter": model.weights["before", "A0"]} if program.adapters else {}

    def keep(slot: str | None, thing: Any) -> None:
        nonlocal hand
        if slot is None:
            hand = thing
        elif slot:
            drop(slot)
            where[key(slot)] = stores[type(thing).__name__]
            where[key(slot)][key(slot)] = thing

    def drop(slot: str) -> Any:
        return where.pop(key(slot)).pop(key(slot)) if key(slot) in where else None

    def key(slot: str) -> tuple[str, str]:
        return ("before" if slot.isupper() else name, slot)

    def at(slot: str | None) -> Any:
        return hand if slot is None else where[key(slot)][key(slot)] if key(slot) in where else None

    def fits(thing: Any, kind: str, layer: int | None = None) -> bool:
        return type(thing).__name__ == kind and layer in (None, thing.layer)

    for verb, *rest in steps:
        match verb, *rest:
            case "take", count, to, *first:
                start = model.rank * program.own + sum(first)
                keep(to, model.get_activation(range(start, start + count)))
            case "load", layer, index, total, *to:
                for slot, thing in zip(to, model.load_weights(layer, index, total), strict=True):
                    keep(slot, thing)
            case "cut", axis, to, layer:
                place = (model.axis_index(axis), model.axis_size(axis)) if axis else (model.rank, model.RANKS)
                keep(to, model.weights["before", f"W{layer}"].shard(*place))
            case "zero", to, layer:
                keep(to, model.fake_grad(layer, []))
            case "pop", slot if at(slot) is not None:
                hand = drop(slot)
            case "store", slot if hand is not None:
                keep(slot, hand)
                hand = None
            case "copy", slot, other if at(slot) is not None and slot != other:
                keep(other, at(slot))
            case "drop", slot:
                drop(slot)
            case "half", of, to if fits(at(of), "Weight", 0) or fits(at(of), "WeightGrad", 0):
                keep(to, at(of).shard(0, 2))
            case "plus", of, to if fits(at(of), "WeightGrad", 0):
                keep(to, at(of) + model.fake_grad(0, []))
            case "shard", of, to, index, total if type(at(of)).__name__ in STORED[:3]:
                keep(to, at(of).shard(index, total))
            case "combine", of, other, to if type(at(of)).__name__ in STORED[:3] and type(at(of)) is type(at(other)):
                keep(to, at(of).combine(at(other)))
            case "add", of, other, to if fits(at(of), "WeightGrad") and fits(at(other), "WeightGrad"):
                keep(to, at(of) + at(other))
            case "forward", of if fits(at(of), "Activation", 0):
                hand = model.forward(0, at(of), at("W0"), **beside)
            case "forward", layer, of, weight if fits(at(of), "Activation", layer) and fits(at(weight), "Weight"):
                hand = model.forward(layer, at(of), at(weight))
            case "loss", of if fits(at(of), "Activation", model.LAYERS):
                hand = model.loss(at(of))
            case "backward", of, grad if fits(at(of), "Activation", 0) and fits(at(grad), "ActivationGrad", 0):
                if at(of).batches == at(grad).batches:
                    hand = model.backward(0, at(of), at(grad), at("W0"), **beside)[0]
            case "backward", layer, of, grad, weight, below if fits(at(of), "Activation", layer):
                if fits(at(grad), "ActivationGrad", layer) and fits(at(weight), "Weight"):
                    hand, to_input = model.backward(layer, at(of), at(grad), at(weight))
                    keep(below, to_input)
            case "update", of if (
                fits(at(of), "WeightGrad", 0) and at(of).is_complete() and len(at(of).batches) == model.BATCHES
            ):
                trains = ("A0", "B0") if program.adapters else ("W0", "S0")
                hand = model.update(0, at(of), *map(at, trains))[0]
            case "update", layer, of, weight, state, to if fits(at(of), "WeightGrad"):
                if fits(at(weight), "Weight") and fits(at(state), "OptState"):
                    hand, after = model.update(layer, at(of), at(weight), at(state))
                    keep(to, after)
            case "final", layer, of if fits(at(of), "Weight"):
                model.set_final_weight(layer, at(of))
            case "meet", kind, axis, of, call, *layer if at(of) is not None:
                if type(at(of)).__name__ in (STORED[:3] if kind == "allgather" else STORED[2:3]):
                    calls[call] = getattr(model, kind)(at(of), sum(layer), axis)
                    hand = None
            case "meets", kind, axis, of, call if all(
                fits(at(slot), carried(kind), layer) for layer, slot in enumerate(of)
            ):
                calls[call] = getattr(model, kind)([at(slot) for slot in of], range(len(of)), axis)
                hand = None
            case "send", rank, of, call if of == "text" or at(of) is not None:
                calls[call] = model.pass_to(rank, "text" if of == "text" else at(of))
                hand = None
            case "receive", source, call:
                calls[call] = model.receive(source)
                hand = None
            case "exchange", sends, sources, call if all(of == "text" or at(of) is not None for _, of in sends):
                out = [(rank, "text" if of == "text" else at(of)) for rank, of in sends]
                calls[call], hand = model.exchange(out, sources), None
            case "await", call, to if call in calls:
                got = await calls.pop(call)
                if isinstance(got, list):
                    for slot, one in zip(to, [one for one in got if one != "text"], strict=False):
                        keep(slot, one)
                elif got is not None and got != "text":
                    keep(to, got)


def carried(kind: str) -> str:
    """What programs bring to a collective."""
    return "Weight" if kind == "allgather" else "WeightGrad"


@pytest.fixture
def inputs_at_will(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs take the same input again and again, which ``run`` refuses (see test_inputs.py)."""
    noted = RankState._note_loaded

    def note(rank: RankState, tensor: TensorState, load: int) -> None:
        noted(rank, tensor, load)
        for mb in tensor.labels.batches:
            rank.taken.pop((tensor.labels.kind, mb, False))

    monkeypatch.setattr(RankState, "_note_loaded", note)


MESHES: list[tuple[int, dict[str, int] | None]] = [
    *((ranks, None) for ranks in (1, 2, 2, 3, 3, 4)),
    (2, {"a": 2}),
    (3, {"a": 1, "b": 3}),
    (4, {"a": 2, "b": 2}),
    (4, {"b": 2, "a": 2}),
]
PRICES: list[dict[str, Any]] = [
    {},
    {},
    {"send": 0.3, "receive": 0.1, "forward": 0.2, "backward": 0.4},
    {"send": 1, "receive": 1, "collective": 1, "collective_across": 2},
    {"forward": 0.1, "backward": 0.1, "receive": 0.4},
    {"send": 0},
    {"receive": 0},
    {"send": Fraction(1, 3), "collective": Fraction(1, 7), "update": 0},
]
SLOTS = ("x", "y", "z")


def program_of(chance: random.Random, linked: bool = True) -> Program:
    """A program in which every rank does its share of some collectives and messages, and fills in what it likes."""
    ranks, mesh = chance.choice(MESHES)
    own, trained, lost = chance.randint(1, 3), chance.random() < 0.6, chance.random() < 0.1
    links = chance.choice(("eager", "eager", "rendezvous", "ordered")) if linked else "eager"
    layers = 1 if trained else chance.choice((1, 2, 3, 3))
    branches = [chance.randint(1, 3) for _ in range(ranks)]
    everything: list[dict[int, list[Step]]] = [{place: [] for place in range(count)} for count in branches]
    names = iter(range(10**6))

    def add(rank: int, place: int, step: Step) -> None:
        everything[rank][place % branches[rank]].append(step)

    def late(rank: int, place: int, call: str, to: Any) -> None:
        """The await comes at once, after some other steps, or last of all."""
        for _ in range(chance.choice((0, 0, 0, 1, 2, 3))):
            add(rank, place, filler(chance))
        add(rank, place, ("await", call, to))
        if to is None and chance.random() < 0.6:
            add(rank, place, ("store", chance.choice(SLOTS)))

    def several(kind: str, axis: str | None, home: int) -> None:
        """Every rank brings a list of the first layers; the last of them may be in its hand."""
        count = chance.choice((chance.randint(1, layers), layers))
        for rank in range(ranks):
            call, slots = f"call {next(names)}", chance.sample(SLOTS, count)
            of = (*slots[1:], chance.choice((None, slots[0])))
            for layer, slot in enumerate(of):
                add(rank, home, ("cut", axis, slot, layer) if kind == "allgather" else ("zero", slot, layer))
            add(rank, home, ("meets", kind, axis, of, call))
            for slot in of:
                if slot and chance.random() < 0.5:
                    add(rank, home, (chance.choice(("drop", "pop")), slot))
            slots = chance.sample(SLOTS, count)
            late(rank, home, call, (*slots[1:], chance.choice((None, slots[0]))))

    for rank in range(ranks):
        for place in range(branches[rank]):
            for _ in range(chance.choice((0, 1, 2))):
                add(rank, place, filler(chance))
    for _ in range(chance.choice((0, 1, 2, 4, 7))):
        if chance.random() < 0.4 or ranks == 1:
            axis = chance.choice([None, *(mesh or {})])
            kind = chance.choice(("allreduce", "allgather", "scatterreduce"))
            home = 0 if axis is None else 1 + list(mesh or {}).index(axis)
            if chance.random() < (0.05 if trained else 0.7):
                several(kind, axis, home)
                continue
            summed = trained and chance.random() < 0.5
            for rank in range(ranks):
                call = f"call {next(names)}"
                of = chance.choice((None, None, *SLOTS))
                if kind == "allgather":
                    add(rank, home, ("cut", axis, of, 0))
                elif summed or (trained and chance.random() < 0.5):
                    of = of or "x"
                    add(rank, home, ("copy", "G", of))
                else:
                    add(rank, home, ("zero", of, 0))
                add(rank, home, ("meet", kind, axis, of, call))
                if of and chance.random() < 0.5:
                    add(rank, home, (chance.choice(("drop", "pop")), of))
                to = chance.choice((None, *SLOTS))
                late(rank, home, call, to)
                if summed and kind == "allreduce":
                    add(rank, home, ("update", to))
        else:
            sender, receiver = chance.sample(range(ranks), 2)
            place, call = chance.randrange(3), f"call {next(names)}"
            of = chance.choice((None, *SLOTS, "text"))
            if of != "text" and chance.random() < 0.8:
                add(sender, place, ("take", chance.randint(1, own), of))
            back = linked and chance.random() < 0.3  # the other rank sends something back in the same call
            alone = ("send", receiver, of, call)
            add(sender, place, ("exchange", ((receiver, of),), (receiver,) * back, call) if back and of else alone)
            if of in SLOTS and chance.random() < 0.5:
                add(sender, place, (chance.choice(("drop", "pop")), of))
            late(sender, place, call, ("",) if back and of else None)
            place, call = chance.randrange(3), f"call {next(names)}"
            source = sender if links == "ordered" else chance.choice((None, None, sender))
            both = ("exchange", ((sender, "text"),), (sender,), call)
            add(receiver, place, both if back and of else ("receive", source, call))
            to = chance.choice((None, *SLOTS))
            late(receiver, place, call, (to or "",) if back and of else to)
    scripts = []
    for rank in range(ranks):
        train: list[Step] = [
            ("take", own, "X"),
            ("forward", "X"),
            ("loss", None),
            ("backward", "X", None),
            ("store", "G"),
        ]
        before = [*(train if trained else []), *[filler(chance) for _ in range(chance.choice((0, 0, 2, 5)))]]
        steps = list(everything[rank].values())
        if lost and rank == 0:
            steps[0] = steps[0][: len(steps[0]) // 2]
        after = [filler(chance) for _ in range(chance.choice((0, 0, 1, 4)))]
        scripts.append((before, steps, after))
    node_size = chance.choice((None, None, 1, 2))
    adapters = chance.random() < 0.25
    return Program(tuple(scripts), mesh, node_size, own, chance.choice(PRICES), layers, adapters, links=links)


def filler(chance: random.Random) -> Step:
    """Something that a coroutine does by itself."""
    slot, other = chance.choice(SLOTS), chance.choice(SLOTS)
    hand = chance.choice((None, None, slot))
    return chance.choice(
        (
            ("take", 1, hand), ("take", 1, slot), ("take", 1, slot), ("zero", hand, 0), ("cut", None, hand, 0),
            ("pop", slot), ("store", slot), ("store", slot), ("copy", slot, other), ("drop", slot),
            ("forward", slot), ("forward", slot), ("forward", slot), ("forward", hand), ("loss", hand),
            ("backward", slot, None), ("backward", slot, other), ("update", hand),
            ("half", hand, None), ("half", hand, slot), ("plus", hand, None), ("plus", hand, slot),
        )
    )  # fmt: skip
