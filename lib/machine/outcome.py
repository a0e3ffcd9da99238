"""What a run leaves behind: the log, and what every rank ends with."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from textwrap import fill
from typing import Any

from ..basics.collector import collector_off
from ..basics.errors import PuzzleError, show_call, witnessed
from ..basics.units import ELEMENTS, TICKS, Elements, SizeUnit, Unit
from ..record.codes import grid, line_width
from ..record.events import MARKS, Event
from ..record.figures.breakdown import in_words, time_parts
from ..record.figures.score import makespan, memory_parts, peak, peak_event
from ..record.table import OPERATIONS, in_stream, makes_weight_grads
from ..record.training import BACKWARD, OVERLAPPED_WORD
from .check import BRIEFLY, TRAINED, check_finals
from .cost import LINKS, Shape
from .failure import Failure
from .interface import FinalState
from .lives import Peak
from .log import Log

FIXED = "\N{NO-BREAK SPACE}"


def _highest(logs: Iterable[Sequence[Event]]) -> Elements:
    """Return the highest peak, in elements."""
    return max([log.peak if isinstance(log, Log) else peak(log) for log in logs])


class Outcome:
    """What a run leaves behind. ``final_states``: what each rank begins and ends with; ``cost``: what everything cost;
    ``train``: what was to be trained; ``beside``: the devices of each host, by its rank."""

    unit: Unit = TICKS
    """What times are counted in: the cost's unit, but for what a clock has measured."""

    size_unit: SizeUnit = ELEMENTS
    """What sizes are counted in: the cost's unit."""

    note: str = ""
    """What whoever reads its figures has to know of the run."""

    peak: Peak | None = None
    """What a rank held when its memory was highest, in a run that took notes of it (see ``lives``)."""

    failure: Failure | None = None
    """Where an error has ended the run, and who waited then."""

    def __init__(
        self,
        name: str,
        shape: Shape,
        final_states: Sequence[FinalState],
        logs: Iterable[Sequence[Event]],
        train: str = TRAINED[0],
    ) -> None:
        self.name, self.train = name, train
        self.ranks, self.mesh, self.node_size = shape.ranks, dict(shape.mesh.axes) or None, shape.mesh.node_size
        self.hosts, self.devices_of = shape.mesh.hosts, shape.mesh.devices_of
        self.cost, self.experts, self._finals = shape.cost, shape.experts, shape.mesh.finals
        self.links, self.tokens, self.quiet, self.tied = shape.links, shape.tokens, shape.quiet, shape.tied
        self.unit, self.size_unit = shape.cost.time_unit, shape.cost.size_unit
        self.layers, self.batches = final_states[0].layers, final_states[0].batches
        self.final_states = tuple(final_states)
        self._logs = [*logs]

    # At the other sizes of a puzzle nobody asks for time and memory: to work them out took a grade 6 percent.
    @cached_property
    def time(self) -> float:
        """The end of the last operation, in ``unit``."""
        return max([log.end if isinstance(log, Log) else makespan(log) for log in self._logs or [self.events]])

    @cached_property
    def memory(self) -> Elements:
        """The peak of all devices, in elements."""
        return _highest(self._logs[: self.ranks] or [self.device_events])

    @cached_property
    def host_memory(self) -> Elements:
        """The peak of all hosts, in elements."""
        if not self.hosts:
            return 0
        return _highest(self._logs[self.ranks :] or [[one for one in self.events if one.rank in self.devices_of]])

    @property
    def size(self) -> dict[str, Any]:
        """The arguments of ``run`` that say how large the machine is, and what it trains."""
        numbers = ("ranks", "layers", "batches", "mesh", "hosts", "experts", "quiet", "tied")
        size = {name: getattr(self, name) for name in numbers} | {"tokens": [*self.tokens]}  # as in JSON
        size["node_size"] = None if self.node_size == self.cost.node_size else self.node_size  # else the prices say it
        size["train"] = None if self.train == TRAINED[0] else self.train
        size["links"] = None if self.links == LINKS[0] else self.links
        return {name: value for name, value in size.items() if value}

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The log, rank by rank. It is made of what the ranks have noted when it is first read."""
        logs, self._logs = self._logs, []
        with collector_off():
            return tuple(chain.from_iterable(logs))

    @cached_property
    def layer_by_layer(self) -> list[Event]:
        """The log with a record for each layer of a collective of a list, as if each were a call of its own."""
        if not any([event.layers for event in self.events]):
            return [*self.events]
        lists = {(state.rank, op): places for state in self.final_states for op, places in state.lists}
        found: list[Event] = []
        for event in self.events:
            for layer, labels in zip(event.layers, lists[event.rank, event.op] if event.layers else (), strict=True):
                size = self.cost.elements(labels) if labels else 0
                batches, op = labels.batches if labels else frozenset[int](), (event.op, layer)
                found.append(event._replace(layer=layer, layers=(), batches=batches, elements=size, op=op))
            found += [event] * (not event.layers)
        return found

    @cached_property
    def device_events(self) -> tuple[Event, ...]:
        """The records of the log that are no host's."""
        return tuple(event for event in self.events if event.rank not in self.devices_of) if self.hosts else self.events

    @property
    def typical(self) -> tuple[Sequence[Event], int]:
        """The records of devices each of which stands for equally many, and how many these are: shares of the time,
        averages and highest values are those of all devices. Unless some ranks stand for others, these are all."""
        return self.device_events, self.ranks

    @property
    def shares(self) -> tuple[Sequence[Event], int]:
        """Records as ``typical`` has them, for shares that are exact."""
        return self.typical

    @cached_property
    def attempted(self) -> bool:
        """Whether the function did anything at all."""
        return any(event.kind not in MARKS for event in self.distinct)

    @property
    def half_way(self) -> tuple[str, str] | None:
        """The last step of training that a function does, or an empty text, and the next one, if it stops half-way."""
        steps = ["load_weights", "get_activation", *(row for row in in_stream("compute") if not OPERATIONS[row].words)]
        done = {event.kind for event in self.distinct}
        done |= {BACKWARD.kind} if any(map(makes_weight_grads, done)) else set()
        first = next((at for at, step in enumerate(steps) if step not in done), len(steps))
        if first == len(steps) or not done.isdisjoint(steps[first:]):
            return None
        return steps[first - 1] if first else "", steps[first]

    @property
    def distinct(self) -> Sequence[Event]:
        """The records of ranks that stand for others, in the order of the log: any other rank does what an earlier one
        of these does, at the same time, but for its micro-batches and with whom. Unless some stand for others, all."""
        return self.events

    @property
    def at_peak(self) -> str:
        """Where the memory of a device is highest, and what is stored there, in words."""
        event = peak_event(self.device_events)
        if event is None:
            return ""
        held = [f"{kind.replace('_', ' ')} {self.size_unit.show(size)}" for kind, size in memory_parts(event).items()]
        moment = self.unit.at(self.unit.brief(event.issued))
        began = show_call(event.kind, event.layers or event.layer)
        return f"on rank {event.rank} at {moment}, when {began} began: {', '.join(held)}"

    @cached_property
    def overlap(self) -> str:
        """What forwards and backwards save that run beside each other, as text; empty if none do."""
        if not any(OVERLAPPED_WORD in event.words for event in self.distinct):
            return ""
        saved = f"{float(self.cost.overlapped):.0%} of the shorter one" if self.cost.overlapped else "nothing"
        return f"what overlaps saves {saved}: Cost(overlapped={float(self.cost.overlapped):g})"

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
            briefly = BRIEFLY.get(error.rule, error.head.replace("{", "{{").replace("}", "}}"))
            return f"does not train the model: {briefly.format(error.place.layer)}"
        finally:
            witnessed.reset(token)
        return ""

    def check(self) -> None:
        """Print ``Correct!`` if the final weights are right. Raise PuzzleError if they are not."""
        print(self.verify())

    def verify(self) -> str:
        """Return ``Correct!`` if the final weights are right. Raise PuzzleError if they are not."""
        if not self.attempted:
            raise PuzzleError("not_attempted", line="", function=self.name)
        check_finals(self.final_states, self.train, self._finals, self.quiet, self.tied)
        return "Correct!"

    def __repr__(self) -> str:
        if not self.attempted and self.failure is None:
            return f"{self.name}: not attempted yet"
        return (
            f"{self.name} on {self.ranks} rank{'s' * (self.ranks > 1)}: time {self.unit.lasting(self.time)}, "
            f"peak memory {self.size_unit.describe(self.memory)}"
            + (f", on hosts {self.size_unit.show(self.host_memory)}" if self.hosts else "")
            + "".join(f" ({text})" for text in (self.note, self.overlap) if text)
        )

    def _spent(self) -> str:
        """Return where the time of all ranks goes, in lines that fit, or nothing if it takes no time."""
        parts = time_parts(*self.shares, self.time)
        whose = "devices" if self.hosts else "ranks"
        text = f"where the time of all {whose} goes: {in_words(parts).replace(' ', FIXED).replace(f',{FIXED}', ', ')}"
        return fill(text, max(line_width(), 40), subsequent_indent="    ").replace(FIXED, " ") + "\n" if parts else ""

    def __str__(self) -> str:
        """Return the log as text (see ``codes``). ``!`` is where a failed run stopped, and ``~`` a rank that waits."""
        if self.failure is None:
            table = grid(self.events, self.unit, hosts=self.devices_of)
            return f"{self!r}\n{self._spent()}{table}" if self.attempted else repr(self)
        sentences = [self.failure.says, *(f"{mark:1} {sentence}" for mark, sentence in self.failure.sentences())]
        marks = self.failure.marks(self.ranks + self.hosts)
        return "\n".join([repr(self), grid(self.events, self.unit, marks, hosts=self.devices_of), *sentences])
