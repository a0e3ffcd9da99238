"""The links of a machine of which some ranks are run (see ``symmetry``): what the others bring follows from these."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from ..basics.errors import Place, PuzzleError
from ..machine.cost import LINKS, Shape
from ..machine.in_flight import Meeting, Membership, Message, RankLinks
from ..machine.interface import Token
from ..machine.mesh import Axis, Mesh
from ..machine.network import Network, Watcher
from ..machine.rank_state import RankState, TensorState, Terms
from ..machine.simulator import LocalSimulator
from ..record.labels import Labels
from ..record.operations import Part, Value, Values
from .coordinate import Questions
from .follow import Scribe, Script
from .symmetry import Symmetry, Unlike
from .values import NOT_COMPUTED, Moves, Outputs


def simulator_of_few(shape: Shape, symmetry: Symmetry, strict: bool) -> Scribe:
    """Return the simulator of a machine of which only some ranks are run, and what these write down."""
    return Scribe(SimulatorOfFew(shape, symmetry, strict), symmetry.first)


class WatchedTensor(TensorState):
    """A tensor of which is noted how it is cut, and whether somebody looks at the labels that its rank's number is
    in."""

    __slots__ = ()
    rank: WatchedRank

    @property
    def seen(self) -> Labels:
        """Its labels, of which the rank's own code takes some."""
        self.rank.questions.survey.take("the micro-batches, or the shards, that a tensor names")
        return self.labels

    def given(self, number: Any) -> Any:
        """Return a number that is given to it, as it is here."""
        return self.rank.questions.given(number)

    def shard(self, index: int, total: int) -> TensorState:
        """Return piece ``index`` of ``total`` of this one."""
        return self._noted("shard", super().shard(index, total), index, total)

    def combine(self, other: Token) -> TensorState:
        """Return this part and that one as one."""
        return self._noted("combine", super().combine(other), other)

    def add(self, other: Token) -> TensorState:
        """Return the sum of two gradients."""
        return self._noted("add", super().add(other), other)

    def _noted(self, verb: str, made: TensorState, *given: object) -> TensorState:
        if self.rank.script is not None:
            self.rank.script.note(self.rank, verb, (self, *given), made)
        return made


class WatchedRank(RankState):
    """A rank that stands for others."""

    __slots__ = ("questions", "script")
    tensor_type = WatchedTensor
    questions: Questions
    script: Script | None


class SimulatorOfFew(LocalSimulator):
    """The simulator of a machine of which only some ranks are run."""

    rank_type = WatchedRank

    def __init__(self, shape: Shape, symmetry: Symmetry, strict: bool) -> None:
        if shape.links != LINKS[0]:
            problem = "where sends wait for their receives, it cannot be proved what ranks do that are not run"
            raise PuzzleError(problem, where="run", got=f"links={shape.links!r}")
        self.symmetry = symmetry
        network = partial(Represented, symmetry)
        super().__init__(shape, graded=True, strict=strict, values=cast(Values, symmetry.values), network=network)

    def open(self, rank: int, layers: int, batches: int) -> RankState:
        """Open a rank's simulator, with what notes what its code asks."""
        state = super().open(rank, layers, batches)
        assert isinstance(state, WatchedRank)
        state.questions = self.symmetry.watched(rank)
        return state


class Represented(Network):
    """The links between the ranks that are run."""

    def __init__(self, symmetry: Symmetry, mesh: Mesh, terms: Terms, watcher: Watcher | None = None) -> None:
        super().__init__(mesh, terms, watcher)
        self.symmetry, self.values = symmetry, symmetry.values
        self.checked: set[Axis] = set()  # axes
        self.known: dict[tuple[object, ...], tuple[Moves, Outputs, list[int]]] = {}
        """By group and labels, of a layer with experts or without: what the others bring, what comes of it, and the
        places of those that are run."""

    def _join(self, rank: int, axis: Axis) -> Membership:
        """Return what a rank is in its group along an axis."""
        if axis is not None and axis not in self.checked:
            self.symmetry.check_links(axis)
            self.checked.add(axis)
        return super()._join(rank, axis)

    def _outputs(self, meeting: Meeting, brought: Sequence[Part | None]) -> Sequence[Part]:
        """Return what those of a group get that are run."""
        group, (axis, first, _) = meeting.group, meeting.op
        if len(group.position) == len(group.ranks):
            return super()._outputs(meeting, brought)
        labels = [one[0] for one in brought if one is not None]
        where = Place(next(iter(group.position)), meeting.row.kind, labels[0].layer)
        if len(labels) < len(brought):
            raise Unlike("only some of them bring a tensor", where)
        of_first = tuple([one.changed(layer=one.layer % 2) for one in labels])
        key = (meeting.row.kind, axis, first, of_first)
        if key not in self.known:
            try:
                everyone = self.symmetry.derived(group, axis, labels)  # type: ignore[arg-type]
            except Unlike as error:
                error.place = where
                raise
            bases = self.symmetry.bases(group, axis)  # type: ignore[arg-type]
            places = [group.ranks.index(rank) for rank in group.position]
            outputs = Outputs(meeting.row.result, everyone, places, self.terms.strict)
            self.known[key] = Moves(labels, everyone, bases), outputs, places
        values = self._values(*self.known[key], [one[1] for one in brought if one is not None])
        outputs = self.known[key][1]
        layer = labels[0].layer
        return [(out.changed(layer=layer), value) for out, value in zip(outputs.labels(), values, strict=True)]

    def _values(self, moves: Moves, outputs: Outputs, places: list[int], own: Sequence[Value]) -> Sequence[Value]:
        """Return what the results carry, given what those bring that are run."""
        everyone = None if self.values.lost else moves(own)
        if everyone is None or [everyone[place] for place in places] != own:
            self.values.lost = True
            if self.values.proving:
                raise Unlike("what they carry does not follow from each other")
            return [NOT_COMPUTED] * len(own)
        return outputs.of(everyone)

    def send(self, links: RankLinks, receiver: int, operand: TensorState | None, plain: object) -> Message:
        """Send a tensor, or a plain value where ``operand`` is None."""
        rank = links.rank
        self.symmetry.check_message(rank.rank, receiver, rank.place(f"pass_to({receiver})"))
        return super().send(links, receiver, operand, plain)

    def receive(self, links: RankLinks, src: int | None) -> Message:
        """Receive the next message, or the next from ``src``."""
        rank = links.rank
        if src is not None:
            self.symmetry.check_message(src, rank.rank, rank.place(f"receive({src})"))
        return super().receive(links, src)
