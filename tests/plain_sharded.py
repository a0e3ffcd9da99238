"""Random programs that train with pieces of weights, states and gradients: right ones, and ones with a mistake.

All are one schedule (see ``Plan``), of which data parallel, ZeRO, FSDP and HSDP are cases. Every rank then does its
part in an order of its own, as far as one step does not need another: so calls are early, and awaits late.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.plain_programs import PRICES, Program, Step

Unit = list[Step]  # steps that stay together, because one leaves in the hand what the next one takes
SHAPES: list[tuple[int, dict[str, int] | None]] = [
    *((ranks, None) for ranks in (1, 2, 3, 4)),
    (2, {"a": 2}),
    (3, {"a": 1, "b": 3}),
    *((4, {"a": 2, "b": 2}),) * 4,
    *((6, {"b": 3, "a": 2}),) * 2,
]
Levels = Sequence[str | None]  # axes along which something is cut, one after the other; None: all ranks


@dataclass(frozen=True)
class Plan:
    """What a program does. ``weights``: a rank holds its piece of each weight, which is whole if there are no levels;
    ``states``: it updates a part of that piece, cut along these levels as well. Gradients are added up along ``rest``.
    """

    mesh: dict[str, int] | None
    ranks: int
    layers: int
    rounds: tuple[tuple[tuple[int, ...], ...], ...]  # by rank: which micro-batches it trains together
    weights: Levels
    states: Levels
    rest: Levels
    again: bool  # whether a weight is gathered once more for the backward
    lists: bool  # whether one call gathers all layers
    ring: bool  # whether pieces are sent around in place of a gather
    each: bool  # whether gradients are reduced after each round, in place of once
    loads: str  # how a piece is loaded: at once, in two halves, or cut from a larger one
    popped: bool  # whether gradients leave the storage for the call that reduces them
    gift: bool  # whether everybody sends a piece to a neighbor who has no use for it
    split: bool  # whether an all-reduce is a reduce-scatter and an all-gather
    seen: bool  # whether the pieces of the states are gathered at the end, for nothing

    def size(self, axis: str | None) -> int:
        """How many pieces a level makes of one."""
        return (self.mesh or {})[axis] if axis else self.ranks

    def place(self, rank: int, axis: str | None) -> int:
        """Which of them is the rank's. The last axis is the fastest."""
        for name, size in reversed((self.mesh or {}).items()) if axis else ():
            if name == axis:
                return rank % size
            rank //= size
        return rank

    def piece(self, rank: int, levels: Levels) -> tuple[int, int]:
        """The rank's piece: which, and of how many."""
        index, total = 0, 1
        for axis in levels:
            index, total = index * self.size(axis) + self.place(rank, axis), total * self.size(axis)
        return index, total


def plan_of(chance: random.Random) -> Plan:
    """A plan at random."""
    ranks, mesh = chance.choice(SHAPES)
    axes: list[str | None] = list(mesh or {}) or [None]
    chance.shuffle(axes)
    axes = chance.choice((axes, axes, [None]))
    cut = sorted(chance.choices(range(len(axes) + 1), k=2))
    own = chance.choice((1, 1, 2))
    batches, owners = [*range(ranks * own)], [rank for rank in range(ranks) for _ in range(own)]
    if uneven := chance.random() < 0.3:
        owners = [chance.randrange(ranks) for _ in batches]
    rounds = [tuple(mb for mb in batches if owners[mb] == rank) for rank in range(ranks)]
    together = uneven or chance.random() < 0.5
    by_rank = tuple((mine,) if together else tuple((mb,) for mb in mine) for mine in rounds)
    flag = lambda likely: chance.random() < likely  # noqa: E731
    return Plan(
        *(mesh, ranks, chance.choice((1, 1, 2, 3)), by_rank, axes[: cut[0]], axes[cut[0] : cut[1]], axes[cut[1] :]),
        *(flag(0.5), flag(0.2), flag(0.15), flag(0.5), chance.choice(("once", "once", "halves", "cut"))),
        *(flag(0.5), flag(0.2), flag(0.3), flag(0.2)),
    )


class Schedule:
    """The steps of a rank, in an order that is the same for all."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan, self.rank, self.units, self.calls = plan, rank, list[Unit](), 0
        layers = range(plan.layers)
        for layer in layers:
            self.load(layer)
        if plan.gift and plan.ranks > 1:
            self.gift()
        for number, batches in enumerate(plan.rounds[rank]):
            self.forward(batches)
            self.backward(batches, number)
        for layer in layers if not plan.each else ():
            self.reduce(layer, f"N{layer}")
        for layer in layers:
            self.update(layer)

    def add(self, *steps: Step) -> None:
        self.units.append(list(steps))

    def call(self) -> str:
        self.calls += 1
        return f"call {self.calls}"

    def load(self, layer: int) -> None:
        plan = self.plan
        weights, states = plan.piece(self.rank, plan.weights), plan.piece(self.rank, [*plan.weights, *plan.states])
        wanted = [(weights, f"P{layer}", ""), (states, "", f"S{layer}")]
        for (index, total), *slots in wanted if weights != states else [(weights, f"P{layer}", f"S{layer}")]:
            if plan.loads == "halves":
                halves = [slot and f"{slot}H" for slot in slots]
                self.add(("load", layer, 2 * index, 2 * total, *slots))
                self.add(("load", layer, 2 * index + 1, 2 * total, *halves))
                for slot, half in zip(slots, halves, strict=True):
                    self.add(("combine", half, slot, slot), ("drop", half))
            elif plan.loads == "cut":
                self.add(("load", layer, 0, 1, *slots))
                for slot in slots:
                    self.add(("shard", slot, slot, index, total))
            else:
                self.add(("load", layer, index, total, *slots))

    def gift(self) -> None:
        there, back = self.call(), self.call()
        self.add(("send", (self.rank + 1) % self.plan.ranks, "P0", there))
        self.add(("receive", None, back))
        self.add(("await", back, "M"))
        self.add(("await", there, None))
        self.add(("drop", "M"))

    def communicate(self, kind: str, axis: str | None, slot: str, layer: int, to: str) -> None:
        call = self.call()
        if slot == to and self.plan.popped:
            self.add(("pop", slot), ("meet", kind, axis, None, call, layer))
        else:
            self.add(("meet", kind, axis, slot, call, layer))
        self.add(("await", call, to))

    def gather(self, layer: int) -> str:
        """Have the whole weight, and say where it is."""
        plan, full = self.plan, f"F{layer}"
        if not plan.weights:
            return f"P{layer}"
        if plan.ring and plan.weights == [None]:
            self.pass_round(layer)
        elif plan.lists and len(plan.weights) == 1:
            if layer == 0:
                call = self.call()
                pieces, wholes = (tuple(f"{name}{layer}" for layer in range(plan.layers)) for name in "PF")
                self.add(("meets", "allgather", plan.weights[0], pieces, call))
                self.add(("await", call, wholes))
        else:
            for number, axis in enumerate(reversed(plan.weights)):
                self.communicate("allgather", axis, full if number else f"P{layer}", layer, full)
        return full

    def pass_round(self, layer: int) -> None:
        """Everybody passes on what came last, and joins it to what is there."""
        ranks = self.plan.ranks
        self.add(("copy", f"P{layer}", f"F{layer}"))
        last = f"P{layer}"
        for hop in range(ranks - 1):
            there, back, came = self.call(), self.call(), f"C{layer}.{hop}"
            self.add(("send", (self.rank + 1) % ranks, last, there))
            self.add(("receive", (self.rank - 1) % ranks, back))
            self.add(("await", back, came))
            self.add(("await", there, None))
            self.add(("combine", f"F{layer}", came, f"F{layer}"))
            if hop:
                self.add(("drop", last))
            last = came
        self.add(("drop", f"C{layer}.{ranks - 2}"))

    def forward(self, batches: tuple[int, ...]) -> None:
        plan = self.plan
        own = sum(len(each) for rounds in plan.rounds for each in rounds) // plan.ranks
        first = self.rank * own
        for mb in batches:
            self.add(("take", 1, f"X0.{mb}", mb - first))
        wholes = [self.gather(layer) for layer in range(plan.layers)] if plan.lists else []
        for layer in range(plan.layers):
            whole = wholes[layer] if plan.lists else self.gather(layer)
            for mb in batches:
                self.add(("forward", layer, f"X{layer}.{mb}", whole), ("store", f"X{layer + 1}.{mb}"))
            if plan.again and whole[0] == "F" and not plan.lists:
                self.add(("drop", whole))
        for mb in batches:
            self.add(("pop", f"X{plan.layers}.{mb}"), ("loss", None), ("store", f"Y{plan.layers}.{mb}"))

    def backward(self, batches: tuple[int, ...], number: int) -> None:
        plan = self.plan
        for layer in reversed(range(plan.layers)):
            if plan.weights and plan.again and not plan.lists:
                self.gather(layer)
            whole, grad, total = f"{'F' if plan.weights else 'P'}{layer}", f"D{layer}", f"N{layer}"
            if not batches:
                self.add(("zero", grad, layer))
            for at, mb in enumerate(batches):
                above, below = f"Y{layer + 1}.{mb}", f"Y{layer}.{mb}"
                into = grad if at == 0 else f"E{layer}"
                self.add(("backward", layer, f"X{layer}.{mb}", above, whole, below if layer else ""), ("store", into))
                self.add(("drop", f"X{layer}.{mb}"), ("drop", above))
                if at:
                    self.add(("add", grad, into, grad), ("drop", into))
            if plan.weights:
                self.add(("drop", whole))
            if plan.each:
                self.reduce(layer, grad)
            if number:
                self.add(("add", total, grad, total), ("drop", grad))
            else:
                self.add(("copy", grad, total), ("drop", grad))

    def reduce(self, layer: int, grad: str) -> None:
        plan = self.plan
        for axis in (*plan.weights, *plan.states):
            self.communicate("scatterreduce", axis, grad, layer, grad)
        for axis in plan.rest:
            for kind in ("scatterreduce", "allgather") if plan.split else ("allreduce",):
                self.communicate(kind, axis, grad, layer, grad)

    def update(self, layer: int) -> None:
        plan, part = self.plan, f"P{layer}"
        if plan.states:
            part = f"Q{layer}"
            self.add(("shard", f"P{layer}", part, *plan.piece(self.rank, plan.states)), ("drop", f"P{layer}"))
        self.add(("update", layer, f"N{layer}", part, f"S{layer}", f"S{layer}"), ("store", part))
        self.add(("drop", f"N{layer}"))
        for axis in reversed(plan.states):
            self.communicate("allgather", axis, part, layer, part)
        self.add(("final", layer, part))
        if plan.seen:
            for axis in reversed([*plan.weights, *plan.states]):
                self.communicate("allgather", axis, f"S{layer}", layer, f"S{layer}")


def touched(unit: Unit) -> tuple[set[str], set[str]]:
    """What a unit reads, and what it writes: slots, calls, and the lines in which calls stand."""
    reads, writes = set[str](), set[str]()
    for verb, *rest in unit:
        match verb, *rest:
            case ("take", _, to, *_) | ("zero", to, _):
                writes |= {to}
            case "load", layer, _, _, *to:
                writes |= {*to}
            case ("drop", slot) | ("pop", slot) | ("store", slot):
                writes |= {slot}
            case ("copy", of, to) | ("shard", of, to, _, _):
                reads, writes = reads | {of}, writes | {to}
            case ("combine", of, other, to) | ("add", of, other, to):
                reads, writes = reads | {of, other}, writes | {to}
            case "forward", _, of, weight:
                reads |= {of, weight}
            case "backward", _, of, above, weight, to:
                reads, writes = reads | {of, above, weight}, writes | {to}
            case "update", _, of, weight, state, to:
                reads, writes = reads | {of, weight, state}, writes | {to}
            case ("meet" | "meets", _, _, of, call, *_):
                reads, writes = reads | {*(of if isinstance(of, tuple) else (of,))}, writes | {call, "link"}
            case "send", _, of, call:
                reads, writes = reads | {of}, writes | {call, "link"}
            case "receive", _, call:
                writes |= {call, "receives"}
            case "await", call, to:
                writes |= {call, *(to if isinstance(to, tuple) else (to,))}
            case "final", layer, of:
                reads, writes = reads | {of}, writes | {f"final {layer}"}
    return reads - {None, ""}, writes - {None, ""}


def shuffled(units: list[Unit], swaps: int, chance: random.Random) -> list[Unit]:
    """The same in another order: neighbors change places where neither needs the other."""
    known = [(unit, *touched(unit)) for unit in units]
    for _ in range(swaps if len(units) > 1 else 0):
        at = chance.randrange(len(known) - 1)
        (_, reads, writes), (_, others, changes) = known[at : at + 2]
        if not (writes & (others | changes) or changes & reads):
            known[at : at + 2] = known[at + 1], known[at]
    return [unit for unit, *_ in known]


def mistaken(units: list[Unit], mistake: str, at: int, mesh: dict[str, int] | None, chance: random.Random) -> None:
    """Put a mistake into a rank's units, at the unit of this number or the next one where it can be."""
    if mistake == "left out":
        del units[at]
    elif mistake == "twice":
        units.insert(at, units[at])
    elif mistake == "elsewhere":
        units.insert(chance.randrange(len(units)), units.pop(at))
    elif mistake == "reduced again":
        calls = [unit[-1] for unit in units if unit[-1][0] == "meet" and unit[-1][1] in ("scatterreduce", "allreduce")]
        for _, kind, axis, _, call, layer in [chance.choice(calls)] if calls else []:
            done = next(number for number, unit in enumerate(units) if unit[0][:2] == ("await", call))
            to = units[done][0][2]
            units[done + 1 : done + 1] = [("meet", kind, axis, to, "again", layer)], [("await", "again", to)]
    else:
        for unit in [*units[at:], *units[:at]]:
            for number, step in enumerate(unit):
                other = changed(step, mistake, mesh, chance)
                if other != step:
                    unit[number] = other
                    return


def changed(step: Step, mistake: str, mesh: dict[str, int] | None, chance: random.Random) -> Step:
    """A step with a mistake of this kind, or as it was."""
    match mistake, *step:
        case "index", "load", layer, index, total, *to:
            return ("load", layer, *other_piece(index, total, chance), *to)
        case "index", "shard", of, to, index, total:
            return ("shard", of, to, *other_piece(index, total, chance))
        case "axis", ("meet" | "meets") as verb, kind, _, *rest:
            return (verb, kind, chance.choice([None, *(mesh or {})]), *rest)
        case "kind", ("meet" | "meets") as verb, "scatterreduce" | "allreduce" as kind, *rest:
            return (verb, "allreduce" if kind == "scatterreduce" else "scatterreduce", *rest)
        case "slot", verb, *rest:
            slots = [at for at, one in enumerate(rest) if isinstance(one, str) and one[:1] in tuple("PSFDNQ") and one]
            if slots:
                at = chance.choice(slots)
                rest[at] = chance.choice((rest[at][0], chance.choice("PSFDNQ"))) + chance.choice("012")
            return (verb, *rest)
    return step


def other_piece(index: int, total: int, chance: random.Random) -> tuple[int, int]:
    """Another piece than this one."""
    return chance.choice((((index + 1) % total, total), (index, total + 1), (index, 2 * total)))


MISTAKES = ("left out", "twice", "elsewhere", "elsewhere", "reduced again", "index", "axis", "kind", "slot")


def sharded_program(chance: random.Random) -> Program:
    """A program with pieces; half of them have a mistake, of one rank or of all."""
    plan = plan_of(chance)
    ranks, everyone = range(plan.ranks), [Schedule(plan, rank).units for rank in range(plan.ranks)]
    if chance.random() < 0.5:
        mistake, at, seed = chance.choice(MISTAKES), chance.randrange(len(everyone[0])), chance.random()
        for rank in chance.choice((ranks, [chance.choice(ranks)])):
            mistaken(everyone[rank], mistake, min(at, len(everyone[rank]) - 1), plan.mesh, random.Random(seed))
    scripts = []
    busy = chance.random() < 0.25
    for units in everyone:
        swaps = chance.choice((0, 1, 10)) * len(units)
        steps = [step for unit in shuffled(units, swaps, chance) for step in unit]
        beside = [aside(chance) for _ in range(chance.randint(1, 12))]
        scripts.append(([], [steps, beside], []) if busy else (steps, [[]], []))
    own = sum(len(each) for rounds in plan.rounds for each in rounds) // plan.ranks
    machine = {"node_size": chance.choice((None, None, 1, 2)), "prices": chance.choice(PRICES)}
    return Program(tuple(scripts), plan.mesh, own=own, layers=plan.layers, loaded=False, **machine)


def aside(chance: random.Random) -> Step:
    """Something that another coroutine of the rank does meanwhile, which changes memory and nothing else."""
    slot, other = chance.choice("xyz"), chance.choice("xyz")
    shared = chance.choice(("P0", "S0", "F0", "N0", "D0"))
    steps: tuple[Step, ...] = (
        *(("copy", shared, slot), ("copy", shared, slot), ("shard", shared, slot, 1, 2), ("take", 1, slot)),
        *(("pop", slot), ("store", other), ("drop", slot), ("shard", None, other, 0, 3), ("zero", slot, 0)),
        *(("loss", slot), ("combine", slot, other, other)) * (chance.random() < 0.1),
    )
    return chance.choice(steps)
