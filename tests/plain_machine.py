"""A slow and plain machine, written from the contract alone, to compare the real one with.

It says what must come out of a program (see plain_programs): the log of every rank, what it ends with and whether that
is right, or that nobody can go on, or what is refused and why. Nothing is clever here: everyone runs until all wait,
then every start and end that follows from what was issued is worked out anew, and the one goes on that waits for what
ends first. What memory held is asked when all is over. What tensors are is in plain_tensors.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from lib import HIDDEN, LENGTH, Cost
from tests import plain_tensors as tensors
from tests.plain_programs import STORED, Program, Step, carried
from tests.plain_tensors import WHOLE, Thing

KINDS = (*STORED, "in flight", "inbox")
MESSAGES = ("pass_to", "receive")
MARKS = ("load_weights", "load_adapter", "get_activation", "end")
ALWAYS = {"gaps", "shard twice", "not one thing", "taken before"}  # refused even where the rules about sets are off


@dataclass(eq=False)
class Operation:
    """A record of a rank's log. ``at`` is its place in the rank's story, ``fetched`` that of its await."""

    rank: int
    kind: str
    at: int
    issued: Fraction
    operands: list[Thing]
    group: tuple[int, ...] = ()
    axis: str | None = None
    layers: int | tuple[int, ...] = 0  # of a collective: a list is another call than a single tensor
    start: Fraction | None = None
    end: Fraction | None = None
    result: list[Thing] = field(default_factory=list)
    message: "Operation | None" = None
    fetched: float = float("inf")
    refused: bool = False
    slot: int | None = None  # of the parts of an exchange: the place of the first


@dataclass
class Rank:
    """Its clock, its log, and its story: what was stored and what was in a hand, from where to where."""

    clock: Fraction = Fraction(0)
    at: int = 0
    log: "list[Operation]" = field(default_factory=list)
    stored: list[list[Any]] = field(default_factory=list)
    held: list[tuple[int, int, Thing]] = field(default_factory=list)
    open: int = 0
    taken: list[Thing] = field(default_factory=list)  # what it has loaded and not dropped at once
    finals: dict[int, Thing] = field(default_factory=dict)
    refused: bool = False


class Stuck(Exception):
    """Nobody can go on."""


class LeftOver(Exception):
    """All have ended, but a call was not awaited or a message not received."""


@dataclass
class Refused(Exception):
    """An operation of a rank, or a collective of several, that the contract refuses, and all that is wrong with it."""

    ranks: tuple[int, ...]
    kind: str
    layer: int | None
    wrong: set[str]


class AllRefused(Exception):
    """What was refused, by ranks that did not know of each other: each would have been the end of the run."""


class Plain:
    """All ranks of a program: again and again, the one goes on that waits for what ends first.

    Nothing that is issued later can change that end, as long as a collective takes time, and a message does, in all.
    """

    def __init__(self, program: Program, strict: bool = True) -> None:
        self.program, self.cost, self.strict = program, Cost(**program.prices), strict
        self.waits = program.links != "eager"
        self.refusals: list[Refused] = []
        self.trained = Fraction(16 * HIDDEN if program.adapters else HIDDEN * HIDDEN)  # elements of a gradient
        self.ranks = [Rank() for _ in program.scripts]
        self.waiting: list[tuple[Operation, int, Iterator[Any]]] = []
        self.mains = [self.main(rank) for rank in range(len(self.ranks))]
        for rank, main in enumerate(self.mains):
            self.go_on(rank, main)
        while self.waiting:
            self.settle()
            ready = [(call.end, call.at, at) for at, (call, _, _) in enumerate(self.waiting) if call.end is not None]
            if not ready:
                self.refusals += self.different_calls()
                if self.refusals:
                    raise AllRefused(self.refusals)
                raise Stuck
            call, rank, task = self.waiting.pop(min(ready)[2])
            self.ranks[rank].clock = max(self.ranks[rank].clock, call.end)
            call.fetched = self.step(rank)
            self.go_on(rank, task)
        if self.refusals:
            raise AllRefused(self.refusals)
        calls = [call for rank in self.ranks for call in rank.log if call.group]
        received = {id(call.message) for call in calls}
        if any(call.fetched == float("inf") or (call.kind == "pass_to" and id(call) not in received) for call in calls):
            raise LeftOver

    def go_on(self, rank: int, task: Iterator[Any]) -> None:
        """Let a coroutine run until it waits, or has ended. What is refused ends its rank."""
        try:
            self.run(rank, task)
        except Refused as error:
            self.refusals.append(error)
            self.ranks[rank].refused = True
            self.waiting = [wait for wait in self.waiting if wait[1] != rank]

    def run(self, rank: int, task: Iterator[Any]) -> None:
        """It yields a call that it waits for, or a list of branches, after which the main one goes on."""
        for wish in task:
            if isinstance(wish, Operation):
                self.waiting.append((wish, rank, task))
                return
            self.ranks[rank].open = len(wish)
            for branch in wish:
                self.go_on(rank, branch)
            return
        if task is not self.mains[rank] and not self.ranks[rank].refused:
            self.ranks[rank].open -= 1
            if self.ranks[rank].open == 0:
                self.go_on(rank, self.mains[rank])

    def step(self, rank: int) -> int:
        """The next place in a rank's story."""
        self.ranks[rank].at += 1
        return self.ranks[rank].at

    # -- lanes

    def group(self, rank: int, axis: str | None) -> tuple[int, ...]:
        stride = len(self.ranks)
        for name, size in (self.program.mesh or {}).items():
            stride //= size
            if name == axis:
                first = rank - rank // stride % size * stride
                return tuple(range(first, first + stride * size, stride))
        return tuple(range(len(self.ranks)))

    def price(self, kind: str, group: tuple[int, ...] = (), times: int = 1) -> Fraction:
        boxes = {rank // (self.program.node_size or len(self.ranks)) for rank in group}
        name = {"pass_to": "send", "allreduce": "collective", "allgather": "collective", "scatterreduce": "collective"}
        across = "_across" if len(boxes) > 1 and kind != "receive" else ""
        price = getattr(self.cost, name.get(kind, kind) + across)
        times = Fraction(times, 2) if kind == "backward" and self.program.adapters else times
        return Fraction(str(price) if isinstance(price, float) else price) * times

    def takes(self, call: "Operation") -> Fraction:
        """How long a call takes its network link: a message of weights or gradients at least a gather of two for each
        piece of a rank, and at least one."""
        price, carried = self.price(call.kind, call.group), sum(thing.elements for thing in call.operands)
        if call.kind != "pass_to" or not carried or call.operands[0].kind not in KINDS[:3]:
            return price
        pieces = carried / call.operands[0].whole * len(self.ranks)
        return max(price, max(1, pieces) * self.price("allgather", call.group))

    def differ(self, one: "Operation", other: "Operation") -> bool:
        """Whether members of a group call different collectives, or for different layers."""
        return (one.kind, one.layers) != (other.kind, other.layers)

    def different_calls(self) -> list[Refused]:
        """Collectives that never take place because another member calls another one there: the third of the one, say,
        is not the third of the other."""
        found = []
        for one in [call for rank in self.ranks for call in rank.log if call.group and call.kind not in MESSAGES]:
            number = self.network(one.rank, one).index(one)
            if any(self.differ(one, other) for rank in one.group for other in self.network(rank, one)[number:][:1]):
                layer = one.layers[0] if isinstance(one.layers, tuple) else one.layers
                found.append(Refused((one.rank,), one.kind, layer, {"different calls"}))
        return found

    def network(self, rank: int, like: "Operation | None" = None) -> "list[Operation]":
        """What is in a rank's network link; only collectives of the same axis and group, if one is given."""
        lane = [call for call in self.ranks[rank].log if call.group and call.kind != "receive"]
        if like is None:
            return lane
        return [call for call in lane if call.kind != "pass_to" and (call.axis, call.group) == (like.axis, like.group)]

    def settle(self) -> None:
        """The start and end of every call, as far as they follow from the calls that were issued. It is worked out from
        the beginning: what can go on first does so."""
        calls = [call for me in self.ranks for call in me.log if call.group]
        for call in calls:
            call.start = call.end = call.message = None
        while True:
            found = [step for call in calls if call.end is None for step in self.steps(call)]
            there = [] if self.waits else self.there(calls)
            if there and all((there[0].end, 1) <= key[:2] for key, *_ in found):
                self.taker(there[0]).message = there[0]
                continue
            if not found:
                break
            _, start, members = min(found, key=lambda step: step[0])
            try:
                results = [self.collected(member, members) for member in members]
            except Refused as error:
                self.refusals.append(error)
                for member in members:
                    member.refused = True
                continue
            for member, result in zip(members, results, strict=True):
                length = self.price("receive") if member.kind == "receive" else self.takes(members[0])
                member.start, member.end = start, start + length
                member.result = member.result if member.fetched < float("inf") else result

    def there(self, calls: "list[Operation]") -> "list[Operation]":
        """The messages that are there, and have a receive that takes them, as they come to it."""
        given = [call.message for call in calls]
        sent = [call for call in calls if call.kind == "pass_to" and call.end is not None and call not in given]
        return sorted(filter(self.taker, sent), key=lambda call: (call.end, call.rank, call.at))

    def taker(self, send: "Operation") -> "Operation | None":
        """The first receive that accepts a message and has none."""
        free = [call for call in self.ranks[send.group[1]].log if call.kind == "receive" and call.message is None]
        return next((call for call in free if call.group[0] in (-1, send.rank)), None)

    def steps(self, call: "Operation") -> "Iterator[tuple[Any, Fraction, list[Operation]]]":
        """How a call can go on, if it can: what decides about the order, when it starts, and who takes part."""
        ready = self.ready(call)
        if ready is None or call.refused:
            return
        if call.kind == "receive":
            others = [one for one in self.ranks[call.rank].log if one.kind == "receive" and one.message is not None]
            sent = call.message if call in others and call.message.end is not None else None
            before = [one.message for one in others if one.end is None and sent and one.message.group == sent.group]
            if sent is not None and sent.at == min(one.at for one in before):  # those of one sender in order
                there = max(ready, sent.end)
                lane = [one.end for one in others if one.end is not None]
                yield (there, 1, sent.end, sent.rank), max([there, *lane]), [call]
        elif call.kind == "pass_to":
            taker = self.taker(call)
            posted = ready if not self.waits else taker and self.ready(taker)
            if posted is not None:
                yield (ready, 0, call.rank, call.at), max(ready, posted), [call]
        else:
            number = self.network(call.rank, call).index(call)
            members = [one for member in call.group for one in self.network(member, call)[number : number + 1]]
            came = [self.ready(member) for member in members]
            if len(came) == len(call.group) and None not in came and not any(self.differ(call, one) for one in members):
                yield (max(came), 0, call.rank, call.at), max(came), members

    def ready(self, call: "Operation") -> Fraction | None:
        """When a call is first in its rank's queue, or is posted outside of that. None: not yet."""
        ordered = self.program.links == "ordered"
        log = [one for one in self.ranks[call.rank].log if one.group]
        queue = [one for one in log if one.kind != "receive" or ordered or one.slot is not None]
        before = queue[: queue.index(call)] if call in queue else []
        if call.slot is not None:  # parts of an exchange go on independently, those to one peer in order
            ahead = [one for one in before if one.kind == call.kind == "pass_to" and one.group == call.group]
            before = [one for one in before if one.slot != call.slot or one in ahead]
        return None if any(one.end is None for one in before) else max([call.issued, *(one.end for one in before)])

    def collected(self, call: "Operation", members: "list[Operation]") -> list[Thing]:
        """What a member gets from a collective, for each tensor that it brings one."""
        if call.kind == "pass_to":
            if self.waits:
                self.taker(call).message = call
            return []
        if call.kind == "receive":
            return [replace(one) for one in call.message.operands]
        found = []
        for place, own in enumerate(call.operands):
            parts = [member.operands[place] for member in members]
            whole, wrong = tensors.join(parts) if call.kind == "allgather" else tensors.add(parts)
            self.insist(call.group, call.kind, own.layer, wrong)
            if call.kind == "scatterreduce":
                whole, wrong = tensors.cut(whole, call.group.index(call.rank), len(call.group))
                self.insist(call.group, call.kind, own.layer, wrong)
            found.append(replace(whole))
        return found

    def insist(self, ranks: tuple[int, ...], kind: str, layer: int | None, wrong: set[str]) -> None:
        """Refuse what is wrong; where the rules about sets are off, what cannot be done at all."""
        if wrong and (self.strict or wrong & ALWAYS):
            raise Refused(ranks, kind, layer, wrong)

    # -- what the ranks do

    def main(self, rank: int) -> Iterator[Any]:
        before, branches, after = self.program.scripts[rank]
        slots: dict[Any, list[Any]] = {}
        for layer in range(self.program.layers if self.program.loaded else 0):
            for verb, whole, names in (
                ("load_weights", Fraction(HIDDEN * HIDDEN), ("W", "S")),
                ("load_adapter", self.trained, ("A", "B")),
            )[: 1 + self.program.adapters]:
                at = self.issue(rank, verb, []).at
                for kind, name, value in zip(KINDS, names, ("weight", "state"), strict=False):
                    thing = Thing(kind, whole, layer, value=(value, layer))
                    slots["before", f"{name}{layer}"] = [at, float("inf"), thing]
                    self.ranks[rank].stored.append(slots["before", f"{name}{layer}"])
        yield from self.act(rank, slots, "before", before)
        yield [self.act(rank, slots, str(place), steps) for place, steps in enumerate(branches)]
        yield from self.act(rank, slots, "after", after)
        self.issue(rank, "end", [])

    def issue(self, rank: int, kind: str, operands: list[Thing], group: tuple[int, ...] = ()) -> "Operation":
        me = self.ranks[rank]
        me.log.append(Operation(rank, kind, self.step(rank), me.clock, operands, group))
        if not group:
            me.log[-1].start = me.log[-1].end = me.clock
        return me.log[-1]

    def act(self, rank: int, slots: dict[Any, list[Any]], name: str, steps: list[Step]) -> "Iterator[Operation]":
        """The steps of one coroutine."""
        me, own = self.ranks[rank], self.program.own
        calls: dict[str, Any] = {}
        hand: tuple[int, Thing] | None = None

        def keep(slot: str | None, thing: Thing) -> None:
            nonlocal hand
            now = self.step(rank)
            if slot is None:
                hand = (now, thing)
            elif slot:
                drop(slot)
                slots[key(slot)] = [now, float("inf"), thing]
                me.stored.append(slots[key(slot)])

        def drop(slot: str) -> None:
            if key(slot) in slots:
                slots.pop(key(slot))[1] = self.step(rank)

        def key(slot: str) -> tuple[str, str]:
            return ("before" if slot.isupper() else name, slot)

        def at(slot: str | None) -> Any:
            return (hand and hand[1]) if slot is None else slots[key(slot)][2] if key(slot) in slots else None

        def fits(slot: str | None, kind: str, layer: int | None = None) -> bool:
            thing = at(slot)
            return thing is not None and thing.kind == kind and layer in (None, thing.layer)

        def derive(of: tuple[str | None, ...], to: str | None, made: tuple[Thing, set[str]]) -> None:
            """Keep something that is made of tensors without an operation: of what is in the hand, that is a use."""
            nonlocal hand
            insist("", None, made[1])
            if None in of:
                now = self.step(rank)
                me.held.append((hand[0], now, hand[1]))
                hand = (now, hand[1])
            keep(to, made[0])

        def use(kind: str, *of: str | None, group: tuple[int, ...] = ()) -> "Operation":
            """Issue an operation; what is in the hand is used by it, or gone."""
            nonlocal hand
            done = self.issue(rank, kind, [at(slot) for slot in of if at(slot) is not None], group)
            if None in of and hand is not None:
                me.held.append((hand[0], done.at, hand[1]))
            hand = None
            return done

        def compute(kind: str, *of: str | None) -> None:
            """Issue an operation that takes compute time."""
            times = len(at(of[0]).batches) if kind in ("forward", "backward") else 1
            done = use(kind, *of)
            me.clock += self.price(kind, times=times)
            done.end = me.clock

        def made(kind: str, whole: int | Fraction, like: Thing, layer: int, value: Any) -> Thing:
            return Thing(kind, Fraction(whole), layer, like.batches, like.piece, value=value)

        def insist(kind: str, layer: int | None, wrong: set[str]) -> None:
            self.insist((rank,), kind, layer, wrong)

        def forward(layer: int, of: str | None, weight: str) -> None:
            nonlocal hand
            inp, by = at(of), at(weight)
            insist("forward", layer, self.unfit(by, layer))
            out = made("Activation", inp.whole, inp, layer + 1, tensors.forward(inp, by))
            compute("forward", of, weight)
            hand = (me.at, out)

        def backward(layer: int, of: str | None, above: str | None, weight: str, below: str) -> None:
            nonlocal hand
            inp, grad, by = at(of), at(above), at(weight)
            other = {"other micro-batches"} if inp.batches != grad.batches else set()
            insist("backward", layer, self.unfit(by, layer) | other)
            values = tensors.backward(inp, grad, by)
            compute("backward", of, above, weight)
            hand = (me.at, made("WeightGrad", self.trained, inp, layer, values[0]))
            keep(below, made("ActivationGrad", inp.whole, inp, layer - 1, values[1]))

        def update(layer: int, of: str | None, weight: str, state: str, to: str) -> None:
            nonlocal hand
            grad, old, own = at(of), at(weight), at(state)
            insist("update", layer, self.no_update(layer, grad, old, own))
            value = tensors.update(grad, old, own)
            compute("update", of, weight, state)
            hand = (me.at, replace(old, step=old.step + 1, value=value))
            keep(to, replace(own, step=own.step + 1, value=("state after", value)))

        def meet(kind: str, axis: str | None, of: Any, call: str, layers: Any) -> None:
            slots = of if isinstance(of, tuple) else (of,)
            for slot, layer in zip(slots, layers if isinstance(layers, tuple) else (layers,), strict=True):
                insist(kind, layer, {"other layer"} if at(slot).layer != layer else set())
            calls[call] = use(kind, *slots, group=self.group(rank, axis))
            calls[call].axis, calls[call].layers = axis, layers

        for verb, *rest in steps:
            match verb, *rest:
                case "take", count, to, *first:
                    self.issue(rank, "get_activation", [])
                    start = rank * own + sum(first)
                    batches = frozenset(range(start, start + count))
                    value = frozenset((mb, ("input", mb)) for mb in batches)
                    keep(to, Thing("Activation", Fraction(HIDDEN * LENGTH * count), 0, batches, value=value))
                case "load", layer, index, total, *to:
                    self.issue(rank, "load_weights", [])
                    for kind, slot, value in zip(KINDS, to, ("weight", "state"), strict=False):
                        whole = Thing(kind, Fraction(HIDDEN * HIDDEN), layer, value=(value, layer))
                        thing, _ = tensors.cut(whole, index, total)
                        before = [one.piece for one in me.taken if (one.kind, one.layer) == (kind, layer)]
                        if slot:
                            twice = any(tensors.overlap([piece, thing.piece]) for piece in before)
                            insist("load_weights", layer, {"taken before"} if twice else set())
                            me.taken.append(thing)
                        keep(slot, thing)
                case "cut", axis, to, layer:
                    group = self.group(rank, axis)
                    keep(to, tensors.cut(at(f"W{layer}"), group.index(rank), len(group))[0])
                case "zero", to, layer:
                    keep(to, Thing("WeightGrad", self.trained, layer))
                case "pop", slot if at(slot) is not None:
                    hand = (me.at + 1, at(slot))
                    drop(slot)
                case "store", slot if hand is not None:
                    me.held.append((hand[0], me.at + 1, hand[1]))
                    keep(slot, hand[1])
                    hand = None
                case "copy", slot, other if at(slot) is not None and slot != other:
                    keep(other, at(slot))
                case "drop", slot:
                    drop(slot)
                case "half", of, to if fits(of, "Weight", 0) or fits(of, "WeightGrad", 0):
                    derive((of,), to, tensors.cut(at(of), 0, 2))
                case "plus", of, to if fits(of, "WeightGrad", 0):
                    derive((of,), to, (replace(at(of)), set()))
                case "shard", of, to, index, total if at(of) is not None and at(of).kind in KINDS[:3]:
                    derive((of,), to, tensors.cut(at(of), index, total))
                case "combine", of, other, to if at(of) is not None and at(of).kind in KINDS[:3]:
                    if fits(other, at(of).kind):
                        derive((of, other), to, tensors.join([at(of), at(other)]))
                case "add", of, other, to if fits(of, "WeightGrad") and fits(other, "WeightGrad"):
                    derive((of, other), to, tensors.add([at(of), at(other)]))
                case "forward", of if fits(of, "Activation", 0):
                    forward(0, of, "W0")
                case "forward", layer, of, weight if fits(of, "Activation", layer) and fits(weight, "Weight"):
                    forward(layer, of, weight)
                case "loss", of if fits(of, "Activation", self.program.layers):
                    first = made("ActivationGrad", at(of).whole, at(of), self.program.layers - 1, tensors.loss(at(of)))
                    compute("loss", of)
                    hand = (me.at, first)
                case "backward", of, grad if fits(of, "Activation", 0) and fits(grad, "ActivationGrad", 0):
                    if at(of).batches == at(grad).batches:
                        backward(0, of, grad, "W0", "")
                case "backward", layer, of, grad, weight, below if fits(of, "Activation", layer):
                    if fits(grad, "ActivationGrad", layer) and fits(weight, "Weight"):
                        backward(layer, of, grad, weight, below)
                case "update", of if fits(of, "WeightGrad", 0) and self.complete(at(of)):
                    update(0, of, *(("A0", "B0") if self.program.adapters else ("W0", "S0")), "")
                case "update", layer, of, weight, state, to if fits(of, "WeightGrad"):
                    if fits(weight, "Weight") and fits(state, "OptState"):
                        update(layer, of, weight, state, to)
                case "final", layer, of if fits(of, "Weight"):
                    insist("set_final_weight", layer, {"other layer"} if at(of).layer != layer else set())
                    me.finals[layer] = at(of)
                case "meet", kind, axis, of, call, *layer if at(of) is not None:
                    if at(of).kind in (KINDS[:3] if kind == "allgather" else KINDS[2:3]):
                        meet(kind, axis, of, call, sum(layer))
                case "meets", kind, axis, of, call if all(
                    fits(slot, carried(kind), layer) for layer, slot in enumerate(of)
                ):
                    meet(kind, axis, of, call, tuple(range(len(of))))
                case "send", other, of, call if of == "text" or at(of) is not None:
                    calls[call] = use("pass_to", of, group=(rank, other))
                case "receive", source, call:
                    calls[call] = use("receive", group=(-1 if source is None else source, rank))
                case "exchange", sends, sources, call if all(of == "text" or at(of) is not None for _, of in sends):
                    parts = [use("pass_to", of, group=(rank, other)) for other, of in sends]
                    calls[call] = parts + [use("receive", group=(source, rank)) for source in sources]
                    for part in calls[call]:
                        part.slot = calls[call][0].at
                case "await", call, to if call in calls:
                    done = calls.pop(call)
                    for part in done if isinstance(done, list) else [done]:
                        yield part
                    results = [one for part in done for one in part.result] if isinstance(done, list) else done.result
                    for slot, thing in zip(to if isinstance(to, tuple) else (to,), results, strict=False):
                        keep(slot, thing)

    def unfit(self, weight: Thing, layer: int) -> set[str]:
        """What is wrong with computing a layer with this weight."""
        wrong = {"other layer"} if weight.layer != layer else set()
        wrong |= {"incomplete"} if weight.piece != WHOLE else set()
        return wrong | ({"updated"} if weight.step else set())

    def no_update(self, layer: int, grad: Thing, weight: Thing, state: Thing) -> set[str]:
        """What is wrong with an update of these."""
        wrong = {"other layer"} if {grad.layer, weight.layer, state.layer} != {layer} else set()
        wrong |= {"micro-batch missing"} if len(grad.batches) < len(self.ranks) * self.program.own else set()
        wrong |= {"other step"} if weight.step != state.step else set()
        wrong |= {"other shards"} if weight.piece != state.piece else set()
        return wrong | ({"not covered"} if tensors.union([weight.piece, grad.piece]) != grad.piece else set())

    @property
    def right(self) -> bool:
        """Whether the final weights are together complete, and each is what training on one device gives."""
        right = tensors.trained(self.program.layers, len(self.ranks) * self.program.own)
        for layer, value in enumerate(right):
            finals = [me.finals[layer] for me in self.ranks if layer in me.finals]
            if tensors.union([one.piece for one in finals]) != WHOLE:
                return False
            if any((one.layer, one.step, one.value) != (layer, 1, value) for one in finals):
                return False
        return True

    def left(self, rank: int) -> list[tuple[Any, ...]]:
        """What a rank ends with: which pieces of what."""
        ends = [thing for _, until, thing in self.ranks[rank].stored if until == float("inf")]
        return sorted((one.kind, one.layer, one.step, sorted(one.batches), one.piece) for one in ends)

    def complete(self, grad: Thing) -> bool:
        every = len(self.ranks) * self.program.own
        return len(grad.batches) == every and grad.elements == self.trained

    # -- memory, afterwards

    def events(self) -> list[tuple[Any, ...]]:
        """Rank by rank what the log must say: rank, kind, group, elements, issued, start, end, memory by kind."""
        return [(rank, *self.event(call)) for rank, me in enumerate(self.ranks) for call in me.log]

    def event(self, call: "Operation") -> tuple[Any, ...]:
        carrier = call.message or call  # a receive carries what the send did
        size = sum(thing.elements for thing in carrier.operands) if call.group else 0
        times = (float(call.issued), float(call.start), float(call.end))
        return (call.kind, carrier.group, size, *times, self.held(call))

    def held(self, sample: "Operation") -> tuple[Fraction, ...]:
        """Memory when an operation is issued, by kind."""
        me, now, held = self.ranks[sample.rank], sample.issued, dict.fromkeys(KINDS, Fraction(0))
        stored = [thing for since, until, thing in me.stored if since < sample.at < until]
        for thing in stored:
            held[thing.kind] += thing.elements
        in_hands = set(sample.operands)
        if sample.kind not in MARKS:
            in_hands |= {thing for since, until, thing in me.held if since < sample.at < until}
        for thing in in_hands - set(stored):
            held[thing.kind] += thing.elements
        earlier = [call for call in me.log if call.group and call.at < sample.at]
        # What is in a hand while a call still carries it counts in both.
        on_the_way = {thing for call in earlier if call.end > now for thing in call.operands}
        held["in flight"] += sum(thing.elements for thing in on_the_way - set(stored) - set(sample.operands))
        held["in flight"] += sum(
            thing.elements
            for call in earlier
            if call.fetched > sample.at and call.message is None
            for thing in call.result
        )
        taken = {call.message: call for call in me.log if call.message is not None}
        for send in [call for other in self.ranks for call in other.log if call.group[1:] == (sample.rank,)]:
            if send.kind == "pass_to" and send.operands and send.end <= now:
                receive = taken.get(send)
                if receive is None or receive.fetched > sample.at:
                    held["inbox"] += send.operands[0].elements
        return tuple(held.values())

    @property
    def time(self) -> float:
        """The end of the last operation."""
        return float(max(call.end for me in self.ranks for call in me.log))

    @property
    def memory(self) -> Fraction:
        """The peak."""
        return max(sum(self.held(call)) for me in self.ranks for call in me.log)
