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
from functools import cached_property
from itertools import chain
from typing import cast

from ..basics.errors import PuzzleError
from ..learner.dist import Dist
from ..learner.model import Model
from ..machine.check import TRAINED
from ..machine.cost import Cost, Shape
from ..machine.interface import AnySimulator
from ..machine.mesh import Mesh
from ..record.events import Event
from ..represent.coordinate import MOST
from ..represent.follow import Following, Script, unclear
from ..represent.links import simulator_of_few
from ..represent.symmetry import Symmetry, Unlike, axes_of
from .execution import execute, name_of
from .limits import collector_off
from .trained import Run, Settings, train_on
from .workload import Workload

AT_ONCE = 64
"""So many ranks are run together beside what others have written down: what they keep is in memory until they end."""


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
    def represented(self) -> Mapping[int, Sequence[int]]:
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
        if not self.represented:
            return self.device_events, self.ranks
        return tuple(chain.from_iterable(map(self.log_of, self.represented))), len(self.represented)

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
    shape = Shape.of(ranks, mesh, cost=cost, hosts=hosts, muon=train == TRAINED[2])
    work = Workload(layers, batches, train=train)
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


class OfFew:
    """A function that few ranks run for all."""

    def __init__(self, fn: Callable[[Model], object], shape: Shape, work: Workload, settings: Settings) -> None:
        self.fn, self.shape, self.work, self.settings = fn, shape, work, settings

    def train(self, axes: Sequence[str]) -> None:
        """Run some ranks that stand for all on these axes, and those that are seen to differ."""
        also, mesh = set[tuple[int, ...]](), self.shape.mesh
        while True:
            own = Mesh(mesh.ranks, mesh.axes, mesh.node_size, mesh.hosts)
            self.few = replace(self.shape, mesh=own)
            self.symmetry = symmetry = Symmetry(own, axes, also, self.shape.cost)
            self.simulator = simulator_of_few(self.few, symmetry, self.settings.strict)
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
        if self.settings.follow and not symmetry.unclear:
            _follow(self.fn, self.few, self.work, self.settings, symmetry, scripts)


def _follow(
    fn: Callable[[Model], object],
    shape: Shape,
    work: Workload,
    settings: Settings,
    symmetry: Symmetry,
    scripts: dict[int, Script],
) -> None:
    """Run ranks beside what the first ones have written down: all of them, where it was not seen that they do the same,
    else the first ones again, this time with plain numbers. Raise Unlike if one does otherwise."""
    others = [*range(shape.ranks)] if symmetry.unseen() else [*scripts]
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
