"""Ranks that stand for others: along a folded axis only a few ranks are run, and what the others do follows from them.

A tensor's labels say which micro-batches, shards and partial sums it has. Where all ranks of an axis do the same, these
move on by the same step from each rank to the next, as they do in ``load_weights(layer, model.rank, model.RANKS)`` and
in ``range(model.rank, model.BATCHES, model.RANKS)``. So what the first two ranks of an axis bring and record determines
all others; some more are run only to see that they are as derived.

What the others carry follows, too (see ``values``). So the final weights of all ranks are known, and compared with
plain training. That is a proof if the code of all ranks does the same, with the numbers that follow. So of each number
that it gives to the model, and of each question that it asks, is noted what it would be on the others (``coordinate``).
Where that cannot be seen, the others run it, too (``follow``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product, repeat
from math import lcm
from typing import cast

from ..basics.arguments import describe
from ..basics.errors import NOWHERE, PuzzleError
from ..basics.errors import Place as Where
from ..machine.check import Finals
from ..machine.cost import Cost
from ..machine.fingerprints import piece_of
from ..machine.interface import FinalState, Piece
from ..machine.log import Log
from ..machine.mesh import Axis, Group, Mesh
from ..record.causal import show_slices
from ..record.events import Event, make_event
from ..record.kinds import KINDS
from ..record.labels import Labels
from ..record.shards import Shards, coarsest, refined
from .coordinate import Place, Questions, Survey
from .values import Moves, WhileKnown

RANKS = "ranks"
"""The one axis of a machine without a mesh."""
WHOLE_AXIS = 4
"""An axis of up to so many ranks is run whole."""
Steps = Sequence[tuple[int, int]]
"""The way from the first rank of the folded axes to another rank: for each axis the second rank of it (or that one's
place in a group), and how often the step from the first to the second has to be taken."""


class Unlike(PuzzleError):
    """The ranks of a folded axis do not all do the same."""

    along: str | None = None
    """The folded axis along which they pass messages, if they do."""

    def __init__(self, differs: str, where: Where = NOWHERE) -> None:
        super().__init__(f"the ranks of a folded axis do not all do the same: {differs}", where=where, line="")


def axes_of(mesh: Mesh, represent: object) -> tuple[str, ...]:
    """Return the axes that a learner names to be folded; True names all. Raise PuzzleError for what is no axis."""
    known = tuple(mesh.axes) or (RANKS,)
    if represent is True:
        return known
    named = (represent,) if isinstance(represent, str) else represent
    if not isinstance(named, Iterable) or not (axes := tuple(named)) or any(axis not in known for axis in axes):
        expected = " or ".join([*map(repr, known), "True, for all axes"])
        raise PuzzleError("represent names no axis", where="run", expected=expected, got=describe(represent))
    return axes


def prices_differ(cost: Cost | None) -> str:
    """Return why a price may not be the same on all ranks, or an empty text. Those of the library depend on how many
    pieces and micro-batches there are, and not on which, but for the loads of experts."""
    if len({*getattr(cost, "loads", ())}) > 1:
        return "the experts have uneven loads"
    ours = Cost.__module__.removesuffix("machine.cost")
    if not all(one.__module__.startswith(ours) for one in type(cost).__mro__ if cost is not None and one is not object):
        return "the prices are of a class of your own"
    return ""


CAUSAL = (
    "attention is causal, so what a rank computes, and how long that takes, depends on where its slices are in the "
)
CAUSAL += "sequence, and does not follow from what the first ranks do"
BY_HEADS = "what the heads of one rank carry is not derived here from what those of another one carry"


def other_slices(one: str, two: str, reason: str = CAUSAL) -> Unlike:
    """Return the error of two ranks that have other slices of a sequence than each other, or other heads of attention.
    ``one``, ``two``: what each of them has."""
    return Unlike(f"{one}, {two}; {reason}")


class Symmetry:
    """Which ranks of a mesh are run, and for whom they stand. ``axes``: those of which only a few ranks are run.
    ``also``: more places on these axes that are run. Raises Unlike where some of a host's devices would be run only."""

    def __init__(self, mesh: Mesh, axes: Sequence[str], also: Iterable[Place] = (), cost: Cost | None = None) -> None:
        self.mesh, self.grid = mesh, self.grid_of(mesh)
        self.axes = tuple(axes)
        sizes = [self.grid.axes[axis] for axis in self.axes]
        few = [{*range(size)} if size <= WHOLE_AXIS else {0, 1, size // 2, size - 1} for size in sizes]
        for place in also:
            for on_axis, at in zip(few, place, strict=True):
                on_axis.add(at)
        run_places = frozenset(product(*few))
        self.survey = Survey(sizes, run_places)
        devices = {rank for rank in range(mesh.ranks) if self.place_of(rank) in run_places}
        if partly := [
            own for own in mesh.devices_of.values() if not devices.isdisjoint(own) and not devices.issuperset(own)
        ]:
            raise Unlike(f"ranks {', '.join(map(str, partly[0]))} have one host, and only some of them would be run")
        self.run = frozenset(devices | {host for host, own in mesh.devices_of.items() if devices.issuperset(own)})
        self._paths: dict[tuple[Axis, int], list[tuple[int, Steps]]] = {}
        self._allowed: set[tuple[int, int]] = set()
        self._watched: dict[int, Questions] = {}
        self.values = WhileKnown()
        self.unclear = "hosts do not follow" * bool(mesh.hosts) or prices_differ(cost)
        """Why what others do, or what it costs, does not follow; or an empty text."""
        self.followed = False  # whether the others were run beside those that are run (see ``follow``)
        mesh.run, mesh.finals = self.run, self.finals

    @staticmethod
    def grid_of(mesh: Mesh) -> Mesh:
        """Return a mesh as one that has axes: without any, all ranks are on one."""
        return mesh if mesh.axes else Mesh(mesh.ranks, {RANKS: mesh.ranks}, mesh.node_size)

    @property
    def first(self) -> set[int]:
        """The ranks from which all others follow. None, if all are run."""
        if len(self.run) == self.mesh.everyone:
            return set()
        ways = [self.stands_for(rank, self.axes) for rank in self.run]
        return {base for base, _ in ways} | {second for _, further in ways for second, _ in further}

    # -- who stands for whom --------------------------------------------------------------

    def place(self, rank: int) -> dict[str, int]:
        """Where a rank is on every axis, a host where its first device is."""
        return self.grid.coordinates(self.mesh.devices_of.get(rank, (rank,))[0])

    def place_of(self, rank: int) -> Place:
        """Where a rank is on the folded axes."""
        here = self.place(rank)
        return tuple([here[axis] for axis in self.axes])

    def watched(self, rank: int) -> Questions:
        """Return what notes what a rank's code asks, and what it gives to its model."""
        if rank not in self._watched:
            places = self.survey.places
            ranks = [self.moved(rank, dict(zip(self.axes, place, strict=True))) for place in places]
            self._watched[rank] = Questions(self.survey, self.place_of(rank), ranks)
        return self._watched[rank]

    def moved(self, rank: int, to: Mapping[str, int]) -> int:
        """The rank that is at these places of the folded axes, and on the others where ``rank`` is."""
        device = self.grid.rank_at({**self.place(rank), **{axis: to[axis] for axis in self.axes}})
        host = self.mesh.host_of(device)
        return host if rank in self.mesh.devices_of and host is not None else device

    def stands_for(self, rank: int, among: Iterable[str]) -> tuple[int, list[tuple[int, int]]]:
        """The rank at the beginning of these folded axes, and for each axis on which ``rank`` is further on, the second
        rank of that axis and how many steps it is."""
        here = self.place(rank)
        first = {axis: 0 if axis in among else at for axis, at in here.items()}
        steps = [(self.moved(rank, {**first, axis: 1}), here[axis]) for axis in among if here[axis]]
        return self.moved(rank, first), steps

    def seconds(self, rank: int) -> list[int]:
        """Return, for the first rank of the folded axes, the second one of each that has more than one."""
        first = dict.fromkeys(self.axes, 0)
        return [self.moved(rank, {**first, axis: 1}) for axis in self.axes if self.grid.axes[axis] > 1]

    def check_links(self, axis: Axis) -> None:
        """Raise Unlike unless groups along an axis share nodes in the same way at all places of the folded axes."""
        known: dict[int, Group] = {}
        for rank in range(self.mesh.ranks):
            group = self.mesh.group(rank, axis)
            first = self.moved(group.ranks[0], dict.fromkeys(self.axes, 0))
            other = known.setdefault(first, group)
            if other.per_node != group.per_node:
                raise Unlike(f"{other.per_node} of {other} share a node, of {group} {group.per_node}")

    def check_message(self, sender: int, receiver: int, where: Where) -> None:
        """Raise Unlike for a message along a folded axis, and for one that leaves a node on some ranks only."""
        if (sender, receiver) in self._allowed:
            return
        here, there = self.place(sender), self.place(receiver)
        if axis := next((axis for axis in self.axes if here[axis] != there[axis]), None):
            differs = f"rank {sender} and rank {receiver} pass messages along the axis {axis!r}"
            unlike = Unlike(differs if self.mesh.axes else f"rank {sender} and rank {receiver} pass messages", where)
            unlike.along = axis
            raise unlike
        across = set()
        for place in product(*[range(self.grid.axes[axis]) for axis in self.axes]):
            to = dict(zip(self.axes, place, strict=True))
            across.add(self.mesh.node(self.moved(sender, to)) == self.mesh.node(self.moved(receiver, to)))
        if len(across) > 1:
            differs = f"messages as from rank {sender} to rank {receiver} leave a node in some places only"
            raise Unlike(differs, where)
        self._allowed.add((sender, receiver))

    # -- what a whole group brings ----------------------------------------------------------

    def derived(self, group: Group, axis: Axis, brought: Sequence[Labels]) -> list[Labels]:
        """Return what all ranks of a group bring to a collective, given what those of them bring that are run. Raise
        Unlike where these do not follow from each other."""
        paths = self._paths.get((axis, group.ranks[0]))
        if paths is None:
            along = [one for one in self.axes if one in self.mesh.names(axis) or not self.mesh.axes]
            paths = list[tuple[int, Steps]]()
            for rank in group.ranks:
                base, further = self.stands_for(rank, along)
                places = [(group.position[second], count) for second, count in further]
                paths.append((group.position[base], places))
            self._paths[axis, group.ranks[0]] = paths
        known: dict[tuple[int, int], _Step] = {}
        for first, steps in paths:
            for second, _ in steps:
                if (first, second) not in known:
                    known[first, second] = _Step(brought[first], brought[second])
        everyone = [
            _moved_on(brought[first], [(known[first, second], count) for second, count in steps])
            for first, steps in paths
        ]
        for rank, own in zip(group.position, brought, strict=True):
            expected = everyone[group.ranks.index(rank)]
            if expected.coarse() != own.coarse():
                raise Unlike(f"rank {rank} brings {own}, where {expected} follows from the first ranks")
        return everyone

    def bases(self, group: Group, axis: Axis) -> list[int]:
        """Return for each rank of a group the place, among those that are run, of the one for which it stands."""
        return [first for first, _ in self._paths[axis, group.ranks[0]]]

    # -- what everyone ends with ------------------------------------------------------------

    def unproved(self) -> str:
        """Return why what the others do is not proved, or an empty text."""
        return self.unproved_by_values() or ("" if len(self.run) == self.mesh.everyone else self.unseen())

    def unproved_by_values(self) -> str:
        """Return why what the others do does not follow from what these do, or an empty text."""
        if len(self.run) == self.mesh.everyone:
            return ""
        if self.values.lost:
            return "what these tensors carry does not follow from what those of the first ranks carry"
        return self.unclear

    def unseen(self) -> str:
        """Return why it could not be seen that the others do the same, or an empty text."""
        if self.followed or len(self.run) == self.mesh.everyone:
            return ""
        for rank, questions in self._watched.items():
            if questions.sources != self._watched[self.stands_for(rank, self.axes)[0]].sources:
                return f"rank {rank} gives other numbers to its model than the first ranks do"
        return self.survey.taken

    def finals(self) -> Finals:
        """Return what gives the final weights of all ranks, for one check of them. Raise PuzzleError where they are not
        known."""
        if reason := self.unproved():
            raise PuzzleError("the final weights are not known", expected="a run of all ranks", got=reason, line="")
        seen = set[object]()

        def of(layer: int, own: list[tuple[int, Piece]]) -> list[tuple[int, Piece]] | None:
            which = tuple([(rank, one.labels.changed(layer=0), one.made_up) for rank, one in own])
            if which in seen:
                return None
            seen.add(which)
            return self._everyones(dict(own))

        return of

    def _everyones(self, own: Mapping[int, Piece]) -> list[tuple[int, Piece]]:
        steps, found = dict[tuple[int, int], _Step](), list[tuple[int, Piece]]()
        for rank in range(self.mesh.ranks):
            base, further = self.stands_for(rank, self.axes)
            if len({one in own for one in (base, *[second for second, _ in further])}) > 1:
                raise Unlike(f"only some of ranks {base} and {further[0][0]} set a final weight")
            if base not in own:
                continue
            labels, value, made_up = own[base]
            for second, _ in further:
                if (base, second) not in steps:
                    steps[base, second] = _Step(labels, own[second].labels)
            labels = _moved_on(labels, [(steps[base, second], count) for second, count in further])
            piece = Piece(labels, (value[0], piece_of(labels)), made_up)
            if rank in own and own[rank] != piece:
                raise Unlike(f"rank {rank} ends with {own[rank].labels}, where {labels} follows from the first ranks")
            found.append((rank, piece))
        return found

    def states(self, own: Sequence[FinalState]) -> list[FinalState]:
        """Return what all ranks begin and end with, given those that were run. Raise Unlike if it does not follow."""
        by_rank, endings = {state.rank: state for state in own}, dict[tuple[int, ...], _Ending]()
        everyone = list[FinalState]()
        for rank in range(self.mesh.everyone):
            base, steps = self.stands_for(rank, self.axes)
            ranks = (base, *[second for second, _ in steps])
            if ranks not in endings:
                endings[ranks] = _Ending([by_rank[one] for one in ranks])
            state = endings[ranks].at(rank, [count for _, count in steps], self.mesh)
            if state != by_rank.get(rank, state):
                raise Unlike(f"rank {rank} ends with something else than follows from the first ranks")
            everyone.append(state)
        return everyone

    # -- what everyone has recorded ---------------------------------------------------------

    def logs(self, own: Mapping[int, Sequence[Event]]) -> list[Sequence[Event]]:
        """Return the logs of all ranks, given those that were run. Raise Unlike if these do not agree."""
        story = Story(self, own)
        for rank, log in own.items():
            derived = story.events(rank)
            for expected, recorded in zip(derived, log, strict=False):  # the last record, the end, comes nowhere else
                if expected != recorded:
                    raise _difference(expected, recorded)
        return [own[rank] if rank in own else Derived(story, rank) for rank in range(self.mesh.everyone)]


class Story:
    """The logs of all other ranks, as they follow from those of the ranks that were run."""

    def __init__(self, symmetry: Symmetry, own: Mapping[int, Sequence[Event]]) -> None:
        self.symmetry, self.own = symmetry, own
        self._moves: dict[tuple[int, int], list[int]] = {}  # by first and second rank of an axis
        self._sets: dict[tuple[frozenset[int], int], frozenset[int]] = {}
        """Micro-batches that have moved on, by what they were and by how much: one object for all that are equal."""

    def first(self, rank: int) -> Sequence[Event]:
        """Return the log from which that of a rank follows."""
        return self.own[self.symmetry.stands_for(rank, self.symmetry.axes)[0]]

    def moves(self, first: int, second: int) -> list[int]:
        """Return for each record by how much its micro-batches move on from one rank to the next of an axis."""
        if (first, second) not in self._moves:
            here, there = self.own[first], self.own[second]
            if len(here) != len(there):
                raise Unlike(f"rank {first} records {len(here):,} operations, rank {second} {len(there):,}")
            moves = []
            for one, two in zip(here, there, strict=True):
                move = _distance(one.batches, two.batches)
                if move is None or one.kind != two.kind:
                    raise _difference(one, two)
                moves.append(move)
            self._moves[first, second] = moves
        return self._moves[first, second]

    def events(self, rank: int) -> list[Event]:
        """Return the log of a rank."""
        first, steps = self.symmetry.stands_for(rank, self.symmetry.axes)
        moves = [[move * count for move in self.moves(first, second)] for second, count in steps]
        together: Iterable[int] = repeat(0)
        if moves:
            together = moves[0] if len(moves) == 1 else map(sum, zip(*moves, strict=True))
        known, sets, made = dict[object, tuple[object, object, tuple[int, ...]]](), self._sets, []
        for event, move in zip(self.own[first], together, strict=False):
            _, kind, layer, batches, issued, start, end, held, op, group, *rest = event
            if move:
                moved = sets.get((batches, move))
                if moved is None:
                    moved = sets[batches, move] = frozenset([batch + move for batch in batches])
                batches = moved
            if op is not None:
                ends = op[:2]
                if ends not in known:
                    known[ends] = self._together(rank, cast("Axis | int", op[0]), group)
                one, two, group = known[ends]
                op = one, two, op[2]
            made.append(make_event((rank, kind, layer, batches, issued, start, end, held, op, group, *rest)))
        return made

    def _together(self, rank: int, axis: Axis | int, group: tuple[int, ...]) -> tuple[object, object, tuple[int, ...]]:
        """Return the name and the group of what a rank does with others, given those of the rank from which it
        follows."""
        if not isinstance(axis, int):  # a collective is named by its axes and its first rank
            group = self.symmetry.mesh.group(rank, axis).ranks
            return axis, group[0], group
        place = self.symmetry.place(rank)  # a message by its ends
        sender, receiver = [self.symmetry.moved(one, place) for one in group]
        return sender, receiver, (sender, receiver)


class Derived(Log):
    """The log of a rank that was not run, made when it is first read."""

    def __init__(self, story: Story, rank: int) -> None:
        first = story.first(rank)
        assert isinstance(first, Log)
        self.end, self.peak, self._count, self._rank = first.end, first.peak, len(first), rank
        self._story: Story | None = story
        self._events: list[Event] | None = None

    def events(self) -> list[Event]:
        """Return the records, made at the first time that they are asked for."""
        if self._events is None:
            assert self._story is not None
            self._events, self._story = self._story.events(self._rank), None
        return self._events


class _Step:
    """By how much labels move on from the first rank of an axis to the second."""

    def __init__(self, first: Labels, second: Labels) -> None:
        self.total, self.of = lcm(first.total, second.total), lcm(first.of, second.of)
        batches = _distance(first.batches, second.batches)
        shards = _distance(*[refined(one.shards, one.total, self.total) for one in (first, second)])
        parts = _distance(*[refined(one.parts, one.of, self.of) for one in (first, second)])
        shifted = first.changed(batches=second.batches, shards=second.shards, total=second.total, extra=second.extra)
        trips = _trips_of(first, batches or 0)
        others = first.extra._replace(parts=second.parts, of=second.of, trips=trips)
        if batches is None or shards is None or parts is None or shifted != second or others != second.extra:
            raise _not_moved_on(first, second, shards is None or parts is None)
        self.batches, self.shards, self.parts = batches, shards, parts


def _not_moved_on(first: Labels, second: Labels, jump: bool) -> Unlike:
    """Return the error of two ranks that bring these, of which the second does not follow from the first by a step.
    ``jump``: because their pieces are not a step away from each other."""
    one, two = f"one brings {first}", f"the next {second}"
    if first.extra.heads != second.extra.heads:
        return other_slices(one, two, BY_HEADS)
    of_sequence = KINDS[first.kind].meets or KINDS[first.kind].returns or first.extra.of != 1
    return other_slices(one, two) if jump and of_sequence else Unlike(f"{one}, {two}")


class _Ending:
    """What ranks begin and end with. It is derived from the first rank and, for each folded axis on which a rank is not
    at the beginning, from the second rank of that axis."""

    def __init__(self, known: Sequence[FinalState]) -> None:
        self.first, self.others = known[0], known[1:]
        self.steps: dict[tuple[Labels, ...], list[_Step]] = {}
        shapes = {(*map(len, (one.began, one.late, one.kept, one.lists)), *one.finals) for one in known}
        if len(shapes) > 1:
            raise Unlike("they begin or end with more or less than each other")

    def at(self, rank: int, counts: Sequence[int], mesh: Mesh) -> FinalState:
        """Return that of a rank, so many steps further on."""
        found = dict[tuple[Labels, ...], tuple[Labels, Moves]]()  # of layer 0, what follows from these labels

        def moved(*known: Labels) -> tuple[Labels, Moves]:
            of_first = tuple([one.changed(layer=0) for one in known])
            if of_first not in found:
                if of_first not in self.steps:
                    self.steps[of_first] = [_Step(of_first[0], other) for other in of_first[1:]]
                labels = _moved_on(of_first[0], [*zip(self.steps[of_first], counts, strict=True)])
                found[of_first] = labels, Moves([of_first[0]], [labels], [0])
            labels, moves = found[of_first]
            return labels.changed(layer=known[0].layer), moves

        def labels(*known: Labels) -> Labels:
            return moved(*known)[0]

        def piece(*known: Piece) -> Piece:
            own, moves = moved(*[one.labels for one in known])
            values = moves([known[0].value])
            if values is None:
                raise Unlike(f"what {own} carries does not follow")
            return Piece(own, values[0], known[0].made_up)

        def brought(*known: tuple[object, tuple[Labels | None, ...]]) -> tuple[object, tuple[Labels | None, ...]]:
            axis, _, number = cast("tuple[Axis, int, int]", known[0][0])
            tensors = zip(*[own for _, own in known], strict=True)
            own = [None if None in one else labels(*cast("tuple[Labels, ...]", one)) for one in tensors]
            return (axis, mesh.group(rank, axis).ranks[0], number), tuple(own)

        first, everyone = self.first, (self.first, *self.others)
        return FinalState(
            rank,
            first.layers,
            first.batches,
            tuple(map(labels, *[one.began for one in everyone])),
            tuple(map(labels, *[one.late for one in everyone])),
            tuple(map(piece, *[one.kept for one in everyone])),
            {layer: piece(*[one.finals[layer] for one in everyone]) for layer in first.finals},
            tuple(map(brought, *[one.lists for one in everyone])),
        )


def _moved_on(labels: Labels, steps: Sequence[tuple[_Step, int]]) -> Labels:
    """Return labels that have moved on by so many of these steps."""
    for step, count in steps:
        batches = frozenset([batch + step.batches * count for batch in labels.batches])
        shards, total = _further(labels.shards, labels.total, step.shards * count, step.total)
        parts, of = _further(labels.parts, labels.of, step.parts * count, step.of)
        if batches and not 0 <= min(batches) <= max(batches) < labels.total_batches:
            raise Unlike(f"after {labels} there would be micro-batches that are none, such as {max(batches)}")
        extra = labels.extra
        if step.parts or (extra.trips and step.batches):
            extra = extra._replace(parts=parts, of=of, trips=_trips_of(labels, step.batches * count))
        labels = labels.changed(batches=batches, shards=shards, total=total, extra=extra)
    return labels


def derived(first: Labels, others: Sequence[tuple[Labels, int]]) -> Labels:
    """Return the labels that follow from those of the first rank and, for each axis, of the second one and how many
    steps it is."""
    return _moved_on(first, [(_Step(first, second), count) for second, count in others])


def _trips_of(labels: Labels, move: int) -> tuple[tuple[frozenset[int], ...], ...]:
    """Return whose micro-batches tokens are, as they would be with others, so many further on."""
    trips = labels.extra.trips
    if not move:
        return trips
    return tuple(tuple(frozenset(batch + move for batch in own) for own in each) for each in trips)


def _further(shards: Shards, total: int, step: int, steps_of: int) -> tuple[Shards, int]:
    """Return a part of a whole that is so many steps further on, counted in pieces of 1 / ``steps_of``."""
    if not step:
        return shards, total
    finer = lcm(total, steps_of)
    moved = frozenset([piece + step * (finer // steps_of) for piece in refined(shards, total, finer)])
    if not 0 <= min(moved) <= max(moved) < finer:
        raise Unlike(f"there would be a piece {max(moved)} of {finer}")
    return coarsest(moved, finer)


def _distance(first: frozenset[int], second: frozenset[int]) -> int | None:
    """Return what has to be added to the numbers of one set to get the other. None if nothing does it."""
    if first == second:
        return 0
    if len(first) != len(second):
        return None
    step = min(second) - min(first)
    return step if {number + step for number in first} == second else None


def _difference(one: Event, two: Event) -> Unlike:
    """Return the error of two records that ought to be the same: ``one`` follows from the first ranks, or is of one of
    these, ``two`` is of another rank."""
    for mine, theirs in zip(one.slices, two.slices, strict=False):
        if mine != theirs:
            return other_slices(
                f"rank {two.rank} has {show_slices(theirs)} of a sequence", f"the first one {show_slices(mine)}"
            )
    name = next(name for name in Event._fields if name != "rank" and getattr(one, name) != getattr(two, name))
    here, there = getattr(one, name), getattr(two, name)
    what = f"{two.kind} of layer {two.layer}" if one.kind == two.kind else f"{one.kind} and {two.kind}"
    return Unlike(f"rank {two.rank} differs in its {what}, in {name}: {here} and {there}")
