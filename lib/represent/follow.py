"""Whether the others do the same where that could not be seen: each runs its function, alone and without a machine.

The ranks that are run write down what they call. Where their code takes the plain number of its rank, or looks at what
is not the same on all ranks, the others run it, too, one after the other, beside what has been written down: they have
to call the same verbs on the same tensors, with the numbers that follow. Nothing is computed, and nobody waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import lcm
from typing import Any, NamedTuple

from ..basics.errors import Place, PuzzleError, learner_line
from ..basics.units import Elements
from ..machine.interface import Token
from ..machine.rank_state import RankState, TensorState
from ..record.events import LOADS
from ..record.labels import Labels
from ..record.operations import NO_OPTIONS, Options
from ..record.shards import refined
from ..record.table import OPERATIONS
from .symmetry import Symmetry, Unlike, derived

What = tuple[tuple[Any, ...], tuple[int, ...]]
"""What a call is given: all that is the same on all ranks, and the numbers that may not be."""
Named = Callable[[Any], Any]  # the number of a tensor, or of a call, in the order in which a rank got them


def _sends(of: Named, receiver: int, operand: Any, plain: object) -> What:
    if type(plain) is int:
        return (of(operand), int), (receiver, plain)
    return (of(operand), plain), (receiver,)


GIVEN: dict[str, Callable[..., What]] = {
    "load_weights": lambda of, layer, shard, total: ((layer, total), (shard,)),
    "load_adapter": lambda of, layer, shard, total: ((layer, total), (shard,)),
    "get_activation": lambda of, batches: ((), tuple(sorted(batches))),
    "fake_grad": lambda of, layer, batches: ((layer,), tuple(sorted(batches))),
    "set_final_weight": lambda of, layer, weight: ((layer, of(weight)), ()),
    "meet": lambda of, kind, operand, layer, axis: ((kind, of(operand), layer, axis), ()),
    "meet_list": lambda of, kind, operands, layers, axis: ((kind, [*map(of, operands)], [*layers], axis), ()),
    "pass_to": _sends,
    "receive": lambda of, src: ((), () if src is None else (src,)),
    "wait": lambda of, call: ((of(call),), ()),
    "fetch": lambda of, call: ((of(call),), ()),
    "store": lambda of, tensor: ((of(tensor),), ()),
    "drop": lambda of, tensor: ((of(tensor),), ()),
    "shard": lambda of, tensor, index, total: ((of(tensor), total), (index,)),
    "combine": lambda of, one, two: ((of(one), of(two)), ()),
    "add": lambda of, one, two: ((of(one), of(two)), ()),
    "share": lambda of: ((), ()),
    "finish": lambda of: ((), ()),
}
"""What the verbs of a simulator are given, but for ``compute``."""


TAKES = ("get_activation", "fake_grad")
"""The verbs that are given micro-batches."""
CUTS = (*LOADS, "shard")
"""The verbs that are given the number of a piece."""


def _computes(of: Named, kind: str, layer: Any, operands: Sequence[Any], options: Options = NO_OPTIONS) -> What:
    return ((kind, layer, *map(of, operands), *(sorted(options.items()) if options else ())), ())


GIVEN["compute"] = _computes


class Entry(NamedTuple):
    """A call, as a rank has made it, and what came of it: tensors and calls by their numbers."""

    verb: str
    what: tuple[Any, ...]
    numbers: tuple[int, ...]
    result: Any
    tick: float  # the clock of the rank, afterwards
    held: tuple[Elements, ...]  # what it stores then, by MEMORY_KINDS


ENDED = "ended"
"""The last entry of a script, after everything that a rank has called."""


class Made(NamedTuple):
    """A tensor, or a call, that a call has given."""

    kind: str
    number: int


class Script:
    """What one rank has called, in order. ``batches``: how many micro-batches there are."""

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.entries: list[Entry] = []
        self.tensors: list[tuple[Labels, Elements]] = []
        self.calls: list[Any] = []
        self.numbers: dict[object, int] = {}

    def of(self, thing: object) -> int | None:
        """Return the number of a tensor or a call."""
        return None if thing is None else self.numbers.get(thing, -1)

    def end(self) -> None:
        """Note that there is nothing more."""
        if self.entries[-1].verb != ENDED:
            self.entries.append(Entry(ENDED, (), (), None, self.entries[-1].tick, ()))

    def note(self, rank: RankState, verb: str, given: Sequence[Any], result: Any) -> None:
        """Write a call down."""
        what, numbers = GIVEN[verb](self.of, *given)
        self.entries.append(Entry(verb, what, numbers, self._named(result), rank.tick, tuple(rank.held)))

    def _named(self, result: Any) -> Any:
        if isinstance(result, TensorState):
            self.numbers[result] = number = len(self.tensors)
            self.tensors.append((result.labels, result.memory))
            return Made("tensor", number)
        if isinstance(result, (list, tuple)):
            return [*map(self._named, result)]
        if result is None or isinstance(result, (str, int, float)):
            return result
        self.numbers[result] = number = len(self.calls)
        self.calls.append((result.kind, result.layer, result.layers))
        return Made("call", number)


class Scribe:
    """A simulator some of whose ranks write down what they call: the first ones, from which all others follow."""

    def __init__(self, simulator: Any, first: Collection[int]) -> None:
        self.simulator, self.first = simulator, first
        self.scripts: dict[int, Script] = {}
        for verb in GIVEN:
            if hasattr(simulator, verb) and not hasattr(type(self), verb):
                setattr(self, verb, partial(self._recorded, verb, getattr(simulator, verb)))

    def open(self, rank: int, layers: int, batches: int) -> Any:
        """Open a rank's simulator."""
        state = self.simulator.open(rank, layers, batches)
        state.script = None
        if rank in self.first:
            state.script = self.scripts[rank] = Script(batches)
        return state

    def _recorded(self, verb: str, act: Callable[..., Any], rank: Any, *given: Any) -> Any:
        result = act(rank, *given)
        if rank.script is not None:
            rank.script.note(rank, verb, given if verb != "share" else (), result)
        return result

    def wait(self, call: Any, waiter: Callable[[], None]) -> bool:
        """Return whether a call can be fetched now."""
        rank, found = call.rank, self.simulator.wait(call, waiter)
        if rank.script is not None:
            rank.script.note(rank, "wait", (call,), None)
        return bool(found)

    def fetch(self, call: Any) -> Any:
        """Return what a call has brought."""
        rank, result = call.rank, self.simulator.fetch(call)
        if rank.script is not None:
            rank.script.note(rank, "fetch", (call,), result)
        return result

    def __getattr__(self, question: str) -> Any:
        return getattr(self.simulator, question)


class Strayed(Unlike):
    """A rank does something else than the rank that stands for it."""

    def __init__(self, differs: str, where: Place) -> None:
        super().__init__(differs, where)
        self.line = learner_line()


class Follower:
    """A rank that is run beside the script of another one."""

    def __init__(self, rank: int, symmetry: Symmetry, scripts: dict[int, Script], layers: int, batches: int) -> None:
        self.rank, self.layers, self.batches = rank, layers, batches
        self.base, further = symmetry.stands_for(rank, symmetry.axes)
        self.script = scripts[self.base]
        self.entries = self.script.entries
        self.further = [(scripts[second], count) for second, count in further]
        self.at = 0
        self.waiters: dict[int, Callable[[], None]] = {}

    def of(self, thing: Any) -> int | None:
        """Return the number of a tensor or a call of this rank."""
        if thing is None:
            return None
        return thing.number if thing.rank is self else -1

    def number(self, own: int, others: Sequence[int]) -> int:
        """Return a number as it follows from those of the first ranks."""
        return own + sum([(other - own) * count for other, (_, count) in zip(others, self.further, strict=True)])

    def does(self, verb: str, *given: Any) -> Any:
        """Return what comes of a call. Raise Strayed unless it is the one that follows."""
        at = self.at
        entry = self.entries[at]
        what, numbers = GIVEN[verb](self.of, *given)
        if entry.verb != verb or entry.what != what or len(entry.numbers) != len(numbers):
            raise self._strayed(verb, given, entry)
        if numbers:
            for place, own in enumerate(entry.numbers):
                if numbers[place] != self.number(own, [other.entries[at].numbers[place] for other, _ in self.further]):
                    raise self._strayed(verb, given, entry)
        self.at = at + 1
        return entry.result and self.made(entry.result, at)

    def uses(self, verb: str, thing: Any) -> Any:
        """Do as ``does``, for a verb that is given one tensor or call: most are."""
        at = self.at
        entry = self.entries[at]
        if entry[0] != verb or thing.rank is not self or entry[1][0] != thing.number:
            return self.does(verb, thing)
        self.at = at + 1
        result = entry[3]
        return result and self.made(result, at)

    def made(self, result: Any, at: int) -> Any:
        """Return what has come of a call: tensors and calls as those of this rank, and a number as it follows."""
        kind = type(result)
        if kind is Made:
            return FollowedTensor(self, result[1]) if result[0] == "tensor" else FollowedCall(self, result[1])
        if kind is list:
            return [FollowedTensor(self, one[1]) for one in result]
        if kind is int:
            return self.number(result, [other.entries[at].result for other, _ in self.further])
        return result

    def _strayed(self, verb: str, given: Sequence[Any], entry: Entry) -> Strayed:
        def shown(verb: str, what: Sequence[Any]) -> str:
            kind = what[0] if what and isinstance(what[0], str) and what[0] in OPERATIONS else verb
            layer = [one for one in what[1:] if type(one) is int][-1:] if verb == "meet" else [*what[1:2]]
            return f"{kind}(layer {layer[0]})" if kind != verb and layer else kind

        calls, ends = shown(verb, GIVEN[verb](self.of, *given)[0]), "ends"
        theirs = ends if entry.verb in ("finish", ENDED) else f"calls {shown(entry.verb, entry.what)}"
        mine = ends if verb == "finish" else f"calls {calls}"
        differs = f"rank {self.rank} {mine} where rank {self.base} {theirs}"
        if mine == theirs:
            differs = f"rank {self.rank} calls {calls} with something else than follows from rank {self.base}"
        return Strayed(differs, Place(self.rank))


class FollowedTensor(Token):
    """A tensor of such a rank."""

    __slots__ = ("rank", "number")

    def __init__(self, rank: Follower, number: int) -> None:
        self.rank, self.number = rank, number
        self.labels, self.memory = rank.script.tensors[number]

    @property
    def seen(self) -> Labels:
        """Its labels, as they follow from those of the first ranks."""
        others = [(other.tensors[self.number][0], count) for other, count in self.rank.further]
        return derived(self.labels, others)

    def shard(self, index: int, total: int) -> Token:
        """Return piece ``index`` of ``total`` of this one."""
        return self.rank.does("shard", self, index, total)  # type: ignore[no-any-return]

    def combine(self, other: Token) -> Token:
        """Return this part and that one as one."""
        return self.rank.does("combine", self, other)  # type: ignore[no-any-return]

    def add(self, other: Token) -> Token:
        """Return the sum of two gradients."""
        return self.rank.does("add", self, other)  # type: ignore[no-any-return]


class FollowedCall:
    """A communication call of such a rank."""

    __slots__ = ("rank", "number", "kind", "layer", "layers")

    def __init__(self, rank: Follower, number: int) -> None:
        self.rank, self.number = rank, number
        self.kind, self.layer, self.layers = rank.script.calls[number]


class Following:
    """What stands for the simulator of such ranks (see ``machine.interface``)."""

    def __init__(self, symmetry: Symmetry, scripts: dict[int, Script]) -> None:
        self.symmetry, self.scripts = symmetry, scripts
        for script in scripts.values():
            script.end()
        self.blocked: dict[Follower, None] = {}
        for verb in GIVEN:
            if not hasattr(type(self), verb):
                setattr(self, verb, partial(_does, verb))

    def open(self, rank: int, layers: int, batches: int) -> Follower:
        """Open a rank."""
        return Follower(rank, self.symmetry, self.scripts, layers, batches)

    def store(self, rank: Follower, tensor: Token) -> None:
        """A dictionary of this rank now holds the tensor, once more."""
        rank.uses("store", tensor)

    def drop(self, rank: Follower, tensor: Token) -> None:
        """A dictionary of this rank holds the tensor once less."""
        rank.uses("drop", tensor)

    def share(self, rank: Follower, holder: object) -> None:
        """From now on several coroutines may run in this rank."""
        if rank.entries[rank.at].verb == "share":  # the first time
            rank.does("share")

    def wait(self, call: FollowedCall, waiter: Callable[[], None]) -> bool:
        """Return whether a call is the next to be fetched. If not, ``waiter`` is called when it is."""
        rank = call.rank
        rank.uses("wait", call)
        if not rank.waiters and _fetches(rank) == call.number:
            return True
        rank.waiters[call.number] = waiter
        self.blocked[rank] = None
        return False

    def fetch(self, call: FollowedCall) -> Any:
        """Return what a call has brought."""
        return call.rank.uses("fetch", call)

    def decide_next(self) -> bool:
        """All coroutines wait: wake the one of each rank whose call is the next to be fetched."""
        woken = [rank.waiters.pop(number, None) for rank in self.blocked if (number := _fetches(rank)) is not None]
        for waiter in filter(None, woken):
            waiter()
        return any(woken)

    def deadlock(self, lines: object, finished: object = None) -> PuzzleError:
        """Return the error of ranks that wait for what those did not wait for that stand for them."""
        ranks = [rank for rank in self.blocked if rank.waiters]
        first = ranks[0] if ranks else next(iter(self.blocked))
        return Strayed(f"rank {first.rank} waits where rank {first.base} goes on", Place(first.rank))

    def unfinished(self) -> None:
        """Return nothing: what has been written down was complete."""

    def time(self, rank: Follower) -> float:
        """Return the rank's clock, in ticks."""
        return rank.entries[rank.at - 1].tick if rank.at else 0.0

    def stored(self, rank: Follower) -> Elements:
        """Return how much is stored now."""
        return sum(rank.entries[rank.at - 1].held) if rank.at else 0

    def events(self, rank: Follower) -> list[Any]:
        """Refuse to return the rank's log so far, which is not kept."""
        raise Unlike("the code reads the log of its rank, which is not the same on all ranks", Place(rank.rank))


def _does(verb: str, rank: Follower, *given: Any) -> Any:
    return rank.does(verb, *given)


def _fetches(rank: Follower) -> int | None:
    """Return the number of the call that the rank has to fetch next, if it has to fetch one."""
    entry = rank.entries[rank.at]
    return entry[1][0] if entry[0] == "fetch" else None


def unclear(symmetry: Symmetry, scripts: dict[int, Script]) -> str:
    """Return why what others do does not follow from what these ranks have written down, or an empty text: they differ
    in more than in numbers, or their micro-batches or pieces do not all move on in one way."""
    deals = dict[int, set[int]]()  # by axis: by how much micro-batches move on to its second rank
    for rank, script in scripts.items():
        base, further = symmetry.stands_for(rank, symmetry.axes)
        first = scripts[base].entries
        if len(first) != len(script.entries):
            return f"rank {base} and rank {rank} do not call as often"
        for one, two in zip(first, script.entries, strict=True):
            if one.verb != two.verb or one.what != two.what or len(one.numbers) != len(two.numbers):
                return f"rank {base} and rank {rank} differ in what they give to {one.verb}"
            if one.verb == "combine" and not _of_the_same_pieces(scripts[base], script, one.what):
                return "a rank joins pieces by itself, and the next one other pieces"
            if one.verb in TAKES and further == [(rank, 1)]:
                moves = deals.setdefault(further[0][0] - base, set())
                moves |= {there - here for here, there in zip(one.numbers, two.numbers, strict=True)}
    if any(len(moves) > 1 for moves in deals.values()):
        return "micro-batches are dealt to the ranks in more than one way"
    for rank in symmetry.first:
        if symmetry.stands_for(rank, symmetry.axes)[0] == rank and (verb := _outside(symmetry, rank, scripts)):
            return f"{verb} is given a number on some ranks that is none of its kind"
    return crossing(symmetry, scripts)


def _outside(symmetry: Symmetry, first: int, scripts: dict[int, Script]) -> str:
    """Return a verb that is given no micro-batch, or no piece, on some of the ranks that stand behind the first one; or
    an empty text. Numbers move on by steps, so they are least and largest at the ends of the axes."""
    own, seconds = scripts[first], [scripts[second].entries for second in symmetry.seconds(first)]
    ends = [size - 1 for size in symmetry.survey.sizes if size > 1]
    for at, entry in enumerate(own.entries):
        if entry.verb in TAKES or entry.verb in CUTS:
            total = own.batches if entry.verb in TAKES else entry.what[1]
            others = [other[at].numbers for other in seconds]
            for here, *there in zip(entry.numbers, *others, strict=True):
                moves = [(number - here) * end for number, end in zip(there, ends, strict=True)]
                back, forth = (sum(move for move in moves if (move > 0) is far) for far in (False, True))
                if here + back < 0 or here + forth >= total:
                    return entry.verb
    return ""


def _of_the_same_pieces(first: Script, second: Script, numbers: Sequence[int]) -> bool:
    """Return whether tensors of these numbers are the same pieces on two ranks, of whatever micro-batches: then they
    are so on all others, which may join them, too."""
    pairs = [(first.tensors[at][0], second.tensors[at][0]) for at in numbers if at >= 0]
    same = [one.changed(batches=two.batches) == two for one, two in pairs]
    return all(same) and len(pairs) == len(numbers)


def crossing(symmetry: Symmetry, scripts: dict[int, Script]) -> str:
    """Return why a rank may have loaded a piece twice where the first ones have not, or an empty text: from rank to
    rank pieces move on, but not all by the same step."""
    checked = set[object]()
    for rank, script in scripts.items():
        if symmetry.stands_for(rank, symmetry.axes)[1]:
            continue  # it follows from another one
        seconds = symmetry.seconds(rank)
        for pieces in _loaded([script, *[scripts[second] for second in seconds]]).values():
            which = frozenset(pieces)
            if which not in checked:
                checked.add(which)
                if _crosses(symmetry, pieces):
                    return "pieces of a weight, or of a state, move on by different steps, and meet on some ranks only"
    return ""


Loaded = tuple[Labels, ...]
"""What a load has given the first rank, and the second of each axis, as of layer 0."""


def _loaded(scripts: Sequence[Script]) -> dict[object, list[Loaded]]:
    """Return the pieces that ranks have loaded, by what they are pieces of."""
    found = defaultdict[object, list[Loaded]](list)
    for number in [made.number for entry in scripts[0].entries if entry.verb in LOADS for made in entry.result]:
        own = [script.tensors[number][0] for script in scripts]
        found[own[0].kind, own[0].layer, own[0].adapter].append(tuple([one.changed(layer=0) for one in own]))
    return found


def _crosses(symmetry: Symmetry, pieces: Sequence[Loaded]) -> bool:
    """Return whether two loads have a piece in common on some ranks only."""
    starts = [[Fraction(min(one.shards), one.total) for one in own] for own in pieces if own[0].total > 1]
    if len({tuple([start - own[0] for start in own]) for own in starts}) < 2:
        return False  # they all move on together
    found = set[tuple[bool, ...]]()
    axes = [at for at, size in enumerate(symmetry.survey.sizes) if size > 1]
    for place in symmetry.survey.places:
        counts = [place[axis] for axis in axes]
        try:
            now = [derived(own[0], [*zip(own[1:], counts, strict=True)]) for own in pieces]
            fine = lcm(*[one.total for one in now])
            parts = [refined(one.shards, one.total, fine) for one in now]
        except PuzzleError:
            return True  # in pieces too small, or that do not follow
        found.add(tuple([not one.isdisjoint(two) for one, two in combinations(parts, 2)]))
        if len(found) > 1:
            return True
    return False
