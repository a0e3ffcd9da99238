"""Runs of few ranks that stand for all others: where somebody names the axes, and where it is proved without asking.

A run that nobody has asked to represent anything is as a run of all ranks, or is one. So few are run only of a function
that does nothing but work with its model (``effects``), and what they do has to be proved for all. Where anything is in
the way of that, all are run from the beginning, and an error is that of all.

Two ranks of an axis are run for such a proof: what others do follows from these, and a few more run the function beside
what these have called, where not all of them have to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import TypeVar, cast

from ..basics.errors import PuzzleError, witnessed
from ..learner.dist import Dist
from ..learner.model import Model
from ..machine.check import TRAINED
from ..machine.cost import Cost, Shape
from ..machine.interface import AnySimulator, FinalState
from ..machine.mesh import Mesh
from ..machine.simulator import new_simulator
from ..record.events import Event
from ..represent.coordinate import MOST
from ..represent.everyone import OutcomeOfAll
from ..represent.follow import Following, Scribe, Script, unclear
from ..represent.links import simulator_of_few
from ..represent.symmetry import WHOLE_AXIS, Symmetry, Unlike, axes_of, prices_differ
from .effects import frozen, only_its_model
from .execution import execute, name_of
from .limits import collector_off
from .trained import Run, Settings, train_on
from .workload import Workload

NewSimulator = Callable[[Shape, Symmetry, bool], Scribe]
"""Makes the simulator of ranks that stand for others. The last argument is whether sets are checked."""
MANY = 32
"""From so many ranks on, few of them are run where that is proved. With less, it would save nothing."""
HALF = 1 / 2
"""Nor if more than this part of them is run."""
PART = 1 / 2
"""So much of the time that a run may take is for few ranks. If it is not enough, all are run, and have all of it."""
AT_ONCE = 64
"""So many ranks are run together beside what others have written down: what they keep is in memory until they end."""


def may_stand(shape: Shape) -> bool:
    """Return whether few ranks may stand for all on a machine: there are many, and what they do costs all the same."""
    mesh = shape.mesh
    return mesh.ranks >= MANY and not mesh.hosts and shape.cost.uneven is None and not prices_differ(shape.cost)


class Timed(Run):
    """A run in which some ranks represented the others. Times, sizes and final weights are those of all ranks,
    ``models`` and ``final_states`` those of the ranks that were run. ``proved``: whether it is proved that the others
    do what follows from these, and the final weights are known."""

    def __init__(self, name: str, models: Sequence[Model], train: str, symmetry: Symmetry) -> None:
        self._symmetry = symmetry
        super().__init__(name, models, train)
        self.proved = False

    def conclude(self) -> None:
        """Note whether it is proved what the others do."""
        self.proved, symmetry = not self._symmetry.unproved(), self._symmetry
        few, everyone = f"{len(self.models):,}", f"{symmetry.mesh.everyone:,}"
        self.note = f"proved for all {everyone} ranks, of which {few} were run"
        if not self.proved:
            self.note = f"timed, not proved: {few} ranks were run for {everyone}"
        elif few == everyone:
            self.note = f"all {everyone} ranks were run"

    def _logs_of(self, models: Sequence[Model]) -> list[Sequence[Event]]:
        own = {model._rank: log for model, log in zip(models, super()._logs_of(models), strict=True)}
        self._own = own
        return self._symmetry.logs(own)

    @cached_property
    def distinct(self) -> Sequence[Event]:
        """The records of the ranks that were run (see ``Outcome``)."""
        return tuple(chain.from_iterable([self._own[rank] for rank in sorted(self._own)]))

    @cached_property
    def alike(self) -> Mapping[int, Sequence[int]]:
        """Each rank from which others follow, all of which were run, with those that follow from it and are not among
        them. Empty where all ranks were run, and with hosts."""
        first = self._symmetry.first
        if not first or self.hosts:
            return {}
        others: dict[int, list[int]] = {rank: [] for rank in sorted(first)}
        for rank in range(self.ranks):
            if rank not in first:
                others[self._symmetry.stands_for(rank, self._symmetry.axes)[0]].append(rank)
        return others

    def log_of(self, rank: int) -> Sequence[Event]:
        """Return the records of a rank that was run."""
        return self._own[rank]

    @cached_property
    def typical(self) -> tuple[Sequence[Event], int]:
        """The records of the ranks from which the others follow (see ``Outcome``)."""
        if not self.alike:
            return self.device_events, self.ranks
        return tuple(chain.from_iterable(map(self.log_of, self.alike))), len(self.alike)

    @property
    def writers(self) -> list[Model]:
        """For each rank the model whose code it has run."""
        by_rank = {model._rank: model for model in self.models}
        everyone = range(self._symmetry.mesh.everyone)
        return [
            by_rank.get(rank) or by_rank[self._symmetry.stands_for(rank, self._symmetry.axes)[0]] for rank in everyone
        ]

    @property
    def fault(self) -> str:
        """What is wrong with the run, as ever. An empty text where it is not known whether it trains the model."""
        return super().fault if self.proved else ""


class Proved(OutcomeOfAll, Run):
    """A run of all ranks, of which few were run, since it is proved what the others do. What these do not tell, such as
    the models of all, is that of another run in which nobody stands for anybody: ``again`` makes it, when it is first
    asked for."""

    def __init__(
        self, name: str, models: Sequence[Model], train: str, symmetry: Symmetry, again: Callable[[], Run]
    ) -> None:
        self._simulated, self._again = [*models], again
        dist, states = models[0].dist, [model._final_state() for model in models]
        shape, logs = Shape(dist._mesh, dist.cost, dist._experts), self._logs_of(models)
        OutcomeOfAll.__init__(self, name, shape, states, logs, train, symmetry=symmetry)

    @cached_property
    def whole(self) -> Run:
        """The same run, in which no rank stands for another."""
        return self._again()

    @cached_property
    def models(self) -> list[Model]:  # type: ignore[override]
        """The ranks' models."""
        return self.whole.models

    @property
    def simulated(self) -> list[Model]:
        """The models of the ranks that were run."""
        return self._simulated

    @cached_property
    def final_states(self) -> tuple[FinalState, ...]:  # type: ignore[override]
        """What each rank begins and ends with."""
        try:
            with collector_off():
                return tuple(self._symmetry.states(self._own_states))
        except Unlike:
            return self.whole.final_states


def time_few(
    fn: Callable[[Model], object],
    *,
    ranks: int,
    layers: int,
    batches: int,
    mesh: Mapping[str, int],
    cost: Cost,
    train: str = TRAINED[0],
    hosts: int = 0,
    represent: object = True,
) -> Run:
    """Run some ranks that stand for all others, of a program that is known to do the same on all: nothing is proved."""
    shape, work = Shape.of(ranks, mesh, cost=cost, hosts=hosts), Workload(layers, batches, train=train)
    return timed(fn, shape, work, Settings(timeout=None, follow=False), represent)


def timed(fn: Callable[[Model], object], shape: Shape, work: Workload, settings: Settings, represent: object) -> Run:
    """Run some ranks that represent all others (see ``run``)."""
    axes = axes_of(shape.mesh, represent)
    of_few = OfFew(fn, shape, work, settings)
    of_few.train(axes)
    with collector_off():
        done = Timed(name_of(fn), of_few.models, work.train, of_few.symmetry)
    of_few.follow()
    done.conclude()
    return done


def proved(
    fn: Callable[[Model], object], shape: Shape, work: Workload, settings: Settings, noted: int | None = None
) -> Run | None:
    """Run few ranks, where it is proved what all others do. None where it is not, or would save nothing. ``noted``: a
    rank with notes on its tensors (see ``machine.lives``)."""

    def run_of_all(few: OfFew) -> Run:
        with collector_off():
            done = Proved(name_of(fn), few.models, work.train, few.symmetry, partial(few.whole, settings))
        if noted is not None:
            [lines] = [model.lines() for model in few.models if model._rank == noted]
            done.peak = few.simulator.peak._replace(lines=tuple([str(line or "") for line in lines]))
        return done

    return by_few(fn, shape, work, settings, run_of_all, partial(simulator_of_few, noted=noted), noted or 0)


T = TypeVar("T")


def by_few(
    fn: Callable[[Model], object],
    shape: Shape,
    work: Workload,
    settings: Settings,
    gives: Callable[[OfFew], T],
    simulator: NewSimulator,
    least: int = 0,
) -> T | None:
    """Run few ranks, where it is proved what all others do, and return what the run ``gives``. None where it is not, or
    would save nothing. ``simulator`` makes that of these ranks; ``least`` is among them."""
    if settings.order or not settings.strict or not may_stand(shape) or not only_its_model(fn):
        return None
    timeout = settings.timeout and settings.timeout * PART
    few = OfFew(frozen(fn), shape, work, replace(settings, timeout=timeout), simulator, least)
    axes = [axis for axis, size in Symmetry.grid_of(shape.mesh).axes.items() if size > WHOLE_AXIS]
    unasked = witnessed.set(None)  # what goes wrong here is nobody's mistake
    try:
        while axes:
            try:
                few.train(axes)
            except Unlike as error:
                if error.along not in axes:
                    return None
                axes.remove(error.along)
                continue
            given = gives(few)
            few.follow()
            return None if few.symmetry.unproved() else given
    except PuzzleError:
        pass  # if it is a mistake, all ranks make it, too
    finally:
        witnessed.reset(unasked)
    return None


class OfFew:
    """A function that few ranks run for all. ``simulator`` makes theirs. With ``least``, a rank that is among them,
    nothing counts but a proof, and as few as possible are run."""

    def __init__(
        self,
        fn: Callable[[Model], object],
        shape: Shape,
        work: Workload,
        settings: Settings,
        simulator: NewSimulator = simulator_of_few,
        least: int | None = None,
    ) -> None:
        self.fn, self.shape, self.work, self.settings = fn, shape, work, settings
        self.new_simulator, self.least, self.proving = simulator, least, least is not None

    def train(self, axes: Sequence[str]) -> None:
        """Run some ranks that stand for all on these axes, and those that are seen to differ."""
        also, mesh = set[tuple[int, ...]](), self.shape.mesh
        while True:
            own = Mesh(mesh.ranks, mesh.axes, mesh.node_size, mesh.hosts)
            self.few = Shape(own, self.shape.cost, self.shape.experts)
            self.symmetry = symmetry = Symmetry(own, axes, also, self.shape.cost, self.least)
            symmetry.values.proving = self.proving
            if self.proving and len(symmetry.run) > mesh.ranks * HALF:
                raise Unlike("more than half of them would be run")
            self.simulator = self.new_simulator(self.few, symmetry, self.settings.strict)
            dist = Dist.of(self.few, cast(AnySimulator, self.simulator))
            self.models, self.also = train_on(self.fn, dist, self.work, self.settings, symmetry), frozenset(also)
            if not symmetry.survey.wanted:
                return
            also |= symmetry.survey.wanted
            if len(also) >= MOST:
                symmetry.survey.take("more than a few answers to which rank it is")
                return

    def follow(self) -> None:
        """Let others run beside those that were run, where it was not seen that they do the same."""
        symmetry, scripts = self.symmetry, self.simulator.scripts
        symmetry.unclear = symmetry.unclear or unclear(symmetry, scripts)
        if self.settings.follow and not symmetry.unclear and not (self.proving and symmetry.unproved_by_values()):
            _follow(self.fn, self.few, self.work, self.settings, symmetry, scripts)

    def whole(self, settings: Settings) -> Run:
        """Run all ranks."""
        shape = self.shape
        dist = Dist.of(shape, new_simulator(shape, graded=True, strict=settings.strict))
        models = train_on(self.fn, dist, self.work, settings)
        with collector_off():
            return Run(name_of(self.fn), models, self.work.train)


def _follow(
    fn: Callable[[Model], object],
    shape: Shape,
    work: Workload,
    settings: Settings,
    symmetry: Symmetry,
    scripts: dict[int, Script],
) -> None:
    """Run ranks beside what the first ones have written down: all of them, where it was not seen that they do the same,
    else the first ones again, this time with plain numbers, and a few more. Raise Unlike if one does otherwise."""
    others = [*range(shape.ranks)] if symmetry.unseen() else [*scripts, *sorted(symmetry.checks)]
    for start in range(0, len(others), AT_ONCE):
        dist = Dist.of(shape, cast(AnySimulator, Following(symmetry, scripts)))
        models = [Model(rank, dist, work.layers, work.batches) for rank in others[start : start + AT_ONCE]]
        try:
            with redirect_stdout(None):
                execute(fn, models, settings.timeout)
        except Unlike:
            raise
        except PuzzleError as error:
            raise Unlike(f"on rank {error.place.rank} only: {error.problem}", error.place) from None
    symmetry.followed = True
