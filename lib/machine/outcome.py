"""What a run leaves behind: the log, and what every rank ends with."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

from ..basics.errors import PuzzleError
from ..basics.units import Elements, show_elements, show_ticks
from ..record.codes import grid
from ..record.events import MARKS, Event
from ..record.score import makespan, peak
from .check import check_finals
from .cost import Shape
from .interface import FinalState


class Outcome:
    """What a run leaves behind. ``events``: the log, rank by rank; ``final_states``: what each rank begins and ends
    with; ``cost``: what everything cost; ``time``: the end of the last operation, in ticks; ``memory``: the peak of all
    ranks, in elements."""

    def __init__(
        self, name: str, shape: Shape, final_states: Sequence[FinalState], logs: Iterable[Iterable[Event]]
    ) -> None:
        self.name = name
        self.ranks, self.mesh, self.node_size = shape.ranks, dict(shape.mesh.axes) or None, shape.mesh.node_size
        self.cost = shape.cost
        self.layers, self.batches = final_states[0].layers, final_states[0].batches
        self.final_states = tuple(final_states)
        self.events: tuple[Event, ...] = tuple(chain.from_iterable(logs))
        self.time: float = makespan(self.events)
        self.memory: Elements = peak(self.events)

    @cached_property
    def attempted(self) -> bool:
        """Whether the function did anything at all."""
        return any(event.kind not in MARKS for event in self.events)

    def check(self) -> None:
        """Whether the final weights are right. Prints ``Correct!``, or raises PuzzleError."""
        print(self.verify())

    def verify(self) -> str:
        """What to say of final weights that are right. Raises PuzzleError if they are not."""
        if not self.attempted:
            raise PuzzleError(f"{self.name} is not attempted yet: no operation was run", line="")
        check_finals(self.final_states)
        return "Correct!"

    def __repr__(self) -> str:
        if not self.attempted:
            return f"{self.name}: not attempted yet"
        return (
            f"{self.name} on {self.ranks} rank{'s' * (self.ranks > 1)}: time {show_ticks(self.time)} ticks, "
            f"peak memory {show_elements(self.memory)} elements"
        )

    def __str__(self) -> str:
        """The schedule as text: a line a rank, a code an operation (see ``codes``)."""
        return f"{self!r}\n{grid(self.events)}" if self.attempted else repr(self)
