"""What a run gives, its settings, and how the ranks of a machine are trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..basics.arguments import describe, one_of_names
from ..basics.errors import NOWHERE, Deadlock, OutOfTime, Place, PuzzleError
from ..learner.dist import Dist
from ..learner.model import Model
from ..machine.check import TRAINED
from ..machine.failure import Failure, Wait
from ..machine.lives import Stay
from ..machine.outcome import Outcome
from ..real.prices import Mfu, RealCost
from ..record.events import END, Event
from ..record.figures.score import makespan
from ..represent.symmetry import Symmetry
from ..schedules.exported import exported
from .execution import execute, left_over, name_of
from .limits import collector_off
from .workload import Workload


class Run(Outcome):
    """The result of a run. It shows itself as a picture in a notebook once ``drawing`` is imported.

    ``models``: the ranks' Models; ``events``: the log, rank by rank; ``time``: the end of the last operation, in ticks;
    ``memory``: the highest peak of a device, in elements; ``host_memory``: that of a host; ``tick``: the seconds that a
    tick took, if real processes ran. With the cost of a cluster (``lib.real``), time is in seconds and memory in bytes,
    and a Run has ``seconds``, ``bytes``, ``fits`` and ``mfu``.
    """

    tick: float | None = None
    again: Callable[[], Run] | None = None  # runs it once more, with notes on what each rank holds (``stays``)
    stays: Mapping[int, Sequence[Stay]] = {}

    def __init__(self, name: str, models: Sequence[Model], train: str = TRAINED[0]) -> None:
        self.models = list(models)
        states = [model._final_state() for model in models]
        super().__init__(name, models[0].dist._shape, states, self._logs_of(models), train)

    def _logs_of(self, models: Sequence[Model]) -> list[Sequence[Event]]:
        return models[0]._simulator.finish_logs([model._handle for model in models])

    @property
    def simulated(self) -> list[Model]:
        """Models that are there without another run, one at least: they tell what is the same for all ranks."""
        return self.models

    @property
    def writers(self) -> list[Model]:
        """For each rank the model whose code it has run."""
        return self.models

    @property
    def failed(self) -> bool:
        """Whether an error has ended the run, which then is that error's ``run``."""
        return self.failure is not None

    @property
    def seconds(self) -> float:
        """The seconds of a step on the cluster of the cost. Raises PuzzleError if the cost is in ticks."""
        self._on_a_cluster("seconds")
        return self.time

    @property
    def bytes(self) -> int:
        """The highest peak of a GPU, in bytes. Raises PuzzleError if the cost is in ticks."""
        self._on_a_cluster("bytes")
        return int(self.memory)

    @property
    def fits(self) -> bool:
        """Whether ``bytes`` fit 92 percent of a GPU's memory. Raises PuzzleError as ``bytes`` does."""
        return self._on_a_cluster("fits").fits(self.memory)

    @property
    def mfu(self) -> Mfu:
        """The part of the peak that is reached, with its formula. Raises PuzzleError as ``seconds`` does."""
        return self._on_a_cluster("mfu").mfu(self.time, self.batches, self.ranks)

    def _on_a_cluster(self, figure: str) -> RealCost:
        if not isinstance(self.cost, RealCost):
            problem = f"this run is in {self.unit.name} and {self.size_unit.name}, so it has no {figure}"
            expected = "a run with the cost of a cluster, cost=cluster.cost(model)"
            raise PuzzleError(problem, where="Run", expected=expected)
        return self.cost

    def schedule(self) -> str:
        """Return the work of a pipeline as the CSV that torch.distributed.pipelining loads, a line a rank. Copies of a
        pipeline have one text. Raises PuzzleError for what such rows have no words for, with the reason."""
        return exported(self.events, self.ranks, self.layers)

    def verify(self) -> str:
        """Return a sentence on final weights that are right. Raise PuzzleError if they are not, or the run failed."""
        right = super().verify()
        if self.failed:
            raise PuzzleError("the final weights are right, but the run failed: its error says why", line="")
        return right


@dataclass(frozen=True)
class Settings:
    """The settings of a run, independent of what it computes. ``pace``, ``device``, ``meter``, ``kill`` and ``profile``
    are for engines with real tensors; ``order`` is the order in which the ranks are started; ``strict`` switches the
    rules about sets."""

    timeout: float | None = 10.0
    pace: float = 0.0
    device: str = "auto"
    meter: bool = False
    kill: tuple[int, int] | None = None
    profile: str | None = None
    order: Sequence[int] | None = None
    strict: bool = True
    follow: bool = True

    def check(self) -> None:
        """Raise PuzzleError for an impossible setting."""
        if self.timeout is not None and (not isinstance(self.timeout, (int, float)) or not self.timeout > 0):
            raise PuzzleError("timeout must be a number of seconds, or None", got=describe(self.timeout))
        one_of_names("device", self.device, ("auto", "cpu"))
        if self.profile is not None and not (isinstance(self.profile, str) and self.profile):
            problem = "profile names a folder for the files of PyTorch's profiler"
            raise PuzzleError(problem, got=describe(self.profile))
        if not isinstance(self.pace, (int, float)) or not 0 <= self.pace < float("inf"):
            problem, expected = "pace must be a number of seconds for a tick", "a number from 0 up"
            raise PuzzleError(problem, expected=expected, got=describe(self.pace))
        if self.kill is not None and not (isinstance(self.kill, tuple) and [*map(type, self.kill)] == [int, int]):
            raise PuzzleError("kill is a rank and a record of its log, such as (2, 7)", got=describe(self.kill))


def train_on(
    fn: Callable[[Model], object], dist: Dist, work: Workload, settings: Settings, symmetry: Symmetry | None = None
) -> list[Model]:
    """Return the models of a machine's ranks after each has run ``fn`` to its end, with no message left. Raise
    PuzzleError with the partial run if something is wrong."""
    models = [Model(rank, dist, work.layers, work.batches) for rank in dist._mesh.running]
    if symmetry is not None:
        for model in models if symmetry.first else ():
            model._watch(symmetry.watched(model._rank))
    try:
        execute(fn, models, settings.timeout, settings.order)
        if (left := left_over(models)) is not None:
            raise left
    except PuzzleError as error:
        with collector_off(cycles=True):
            try:
                attach_run(error, Run(name_of(fn), models, work.train), models)
            except (AttributeError, ValueError):
                if not isinstance(error, OutOfTime):
                    raise
                error.run = None  # its log ends in the middle of a record
        raise
    return models


def attach_run(error: PuzzleError, done: Run, models: Sequence[Model]) -> None:
    """Attach a run to its error, and a description of the failure to that run."""
    error.run = done
    place = _place(error, done)
    waits = [wait for model in models if (wait := model._waits_for(place)) is not None]
    ended = frozenset(event.rank for event in done.events if event.kind == END)
    if isinstance(error, Deadlock):  # a rank that waits for no call waits for something else
        stuck = {model._rank for model in models} - ended - {wait.rank for wait in waits}
        waits = sorted([*waits, *(Wait(rank, "", None, _clock(done, rank)) for rank in stuck)])
    tick = _clock(done, place.rank) if place.tick is None else place.tick
    known = getattr(error, "line", "")  # a learner may raise one with anything in it, or nothing
    line = known if isinstance(known, str) else ""
    done.failure = failure = Failure(str(error).partition("\n")[0], place, tick, tuple(waits), ended, line, done.unit)
    if isinstance(error, Deadlock):
        error.briefly = [sentence for _, sentence in failure.sentences()]


def _place(error: PuzzleError, done: Run) -> Place:
    """Return the place of an error in a run. A learner may raise an error with any place, or none."""
    place = getattr(error, "place", NOWHERE)
    rank, operation, layer, _, tick, _ = place if isinstance(place, Place) else NOWHERE
    return Place(
        rank if rank in range(done.ranks + done.hosts) else None,
        operation if isinstance(operation, str) else "",
        layer if isinstance(layer, int) else None,
        tick=tick if isinstance(tick, float) and 0 <= tick <= done.time else None,
    )


def _clock(done: Run, rank: int | None) -> float:
    """Return the end of the last operation of a rank, or of all, in ticks."""
    return makespan(event for event in done.events if rank is None or event.rank == rank)
