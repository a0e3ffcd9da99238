"""The links of a machine of which some ranks are run (see ``symmetry``): what the others bring follows from these."""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from ..basics.errors import Place
from ..machine.check import NOT_COMPUTED
from ..machine.cost import Shape
from ..machine.in_flight import Meeting, Membership, Message, RankLinks
from ..machine.interface import AnySimulator
from ..machine.mesh import Axis, Mesh
from ..machine.network import Network, Watcher
from ..machine.rank_state import TensorState, Terms
from ..machine.simulator import LocalSimulator
from ..record.operations import Part, Values
from .symmetry import Symmetry, Unlike


def simulator_of_few(shape: Shape, symmetry: Symmetry, strict: bool) -> AnySimulator:
    """Return the simulator of a machine of which only some ranks are run."""
    values, network = cast(Values, Nothing()), partial(Represented, symmetry)
    return cast(AnySimulator, LocalSimulator(shape, graded=True, strict=strict, values=values, network=network))


class Nothing:
    """The arithmetic of a run that is only timed: no tensor carries a value (see ``record.operations.Values``)."""

    zero = NOT_COMPUTED

    def __getattr__(self, operation: str) -> Any:
        given = getattr(Values, operation).__annotations__["return"]
        result = (NOT_COMPUTED,) * 2 if given.startswith("tuple") else NOT_COMPUTED
        return lambda *values, **options: result


class Represented(Network):
    """The links between the ranks that are run."""

    def __init__(self, symmetry: Symmetry, mesh: Mesh, terms: Terms, watcher: Watcher | None = None) -> None:
        super().__init__(mesh, terms, watcher)
        self.symmetry = symmetry
        self.checked: set[Axis] = set()  # axes
        self.known: dict[tuple[object, ...], list[Part]] = {}  # by group and labels, of a layer with experts or without

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
            outputs = super()._outputs(meeting, [(one, NOT_COMPUTED) for one in everyone])
            self.known[key] = [outputs[group.ranks.index(rank)] for rank in group.position]
        return [(out.changed(layer=labels[0].layer), value) for out, value in self.known[key]]

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
