"""What a run leaves behind: the log, and what every rank ends with."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

from ..basics.errors import PuzzleError, witnessed
from ..basics.units import TICKS, Elements, Unit, show_elements
from ..record.codes import grid
from ..record.events import MARKS, Event
from ..record.score import makespan, peak
from .check import BRIEFLY, check_finals
from .cost import Shape
from .failure import Failure
from .interface import FinalState


class Outcome:
    """What a run leaves behind. ``events``: the log, rank by rank; ``final_states``: what each rank begins and ends
    with; ``cost``: what everything cost; ``time``: the end of the last operation, in ``unit``; ``memory``: the peak of
    all devices, in elements, and ``host_memory`` that of all hosts. ``beside``: the devices of each host, by its rank;
    ``device_events`` are those of the log that are no host's."""

    unit: Unit = TICKS
    """What times are counted in: ticks, but for what a clock has measured."""

    failure: Failure | None = None
    """Where an error has ended the run, and who waited then."""

    def __init__(
        self, name: str, shape: Shape, final_states: Sequence[FinalState], logs: Iterable[Iterable[Event]]
    ) -> None:
        self.name = name
        self.ranks, self.mesh, self.node_size = shape.ranks, dict(shape.mesh.axes) or None, shape.mesh.node_size
        self.hosts, self.beside = shape.mesh.hosts, shape.mesh.beside
        self.cost = shape.cost
        self.layers, self.batches = final_states[0].layers, final_states[0].batches
        self.final_states = tuple(final_states)
        self.events: tuple[Event, ...] = tuple(chain.from_iterable(logs))
        self.time: float = makespan(self.events)
        on_hosts = [event for event in self.events if event.rank in self.beside]
        self.device_events = self.events
        if on_hosts:
            self.device_events = tuple(event for event in self.events if event.rank not in self.beside)
        self.memory: Elements = peak(self.device_events)
        self.host_memory: Elements = peak(on_hosts)

    @cached_property
    def attempted(self) -> bool:
        """Whether the function did anything at all."""
        return any(event.kind not in MARKS for event in self.events)

    @cached_property
    def fault(self) -> str:
        """What is wrong with the run, in a line. Empty if nothing is, and where nothing was attempted."""
        if self.failure is not None:
            return self.failure.says
        token = witnessed.set(None)  # whoever asks has made no mistake
        try:
            if self.attempted:
                self.verify()
        except PuzzleError as error:
            briefly = BRIEFLY.get(error.problem, error.head.replace("{", "{{").replace("}", "}}"))
            return f"does not train the model: {briefly.format(error.place.layer)}"
        finally:
            witnessed.reset(token)
        return ""

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
        if not self.attempted and self.failure is None:
            return f"{self.name}: not attempted yet"
        return (
            f"{self.name} on {self.ranks} rank{'s' * (self.ranks > 1)}: time {self.unit.lasting(self.time)}, "
            f"peak memory {show_elements(self.memory)} elements"
            + (f", on hosts {show_elements(self.host_memory)}" if self.hosts else "")
        )

    def __str__(self) -> str:
        """The schedule as text: a line a rank, a code an operation (see ``codes``). In a failed run ``!`` is where it
        stopped, and ``~`` a rank that waits."""
        if self.failure is None:
            return f"{self!r}\n{grid(self.events, self.unit, hosts=self.beside)}" if self.attempted else repr(self)
        said = [self.failure.says, *(f"{mark:1} {sentence}" for mark, sentence in self.failure.sentences())]
        marks = self.failure.marks(self.ranks + self.hosts)
        return "\n".join([repr(self), grid(self.events, self.unit, marks, hosts=self.beside), *said])
