"""Run a learner's function on every rank of a machine, and keep what happened."""

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import Any, cast

from ..basics.arguments import describe, one_of_names
from ..basics.errors import NOWHERE, Deadlock, Place, PuzzleError
from ..learner.dist import Dist
from ..learner.model import Model
from ..machine.check import TRAINED
from ..machine.cost import Cost, Shape
from ..machine.failure import Failure, Wait
from ..machine.interface import AnySimulator
from ..machine.lives import WatchedSimulator
from ..machine.mesh import Mesh
from ..machine.outcome import Outcome
from ..machine.simulator import new_simulator
from ..real.prices import Mfu, RealCost
from ..record.events import END, Event
from ..record.score import makespan, peak_event
from ..represent.coordinate import MOST
from ..represent.follow import Following, Script, unclear
from ..represent.links import simulator_of_few
from ..represent.symmetry import Symmetry, Unlike, axes_of
from ..schedules.written import written
from .execution import execute, left_over, name_of
from .limits import TIMEOUT, collector_off, limit
from .workload import Workload

ENGINES = ("simulated", "local", "processes")
"""The engines of a run. All but the first are modules of ``lib.engines``, with tensors that hold numbers."""


AT_ONCE = 64
"""So many ranks are run together beside what others have written down: what they keep is in memory until they end."""


class Run(Outcome):
    """The result of a run. It shows itself as a picture in a notebook once ``drawing`` is imported.

    ``models``: the ranks' Models; ``events``: the log, rank by rank; ``time``: the end of the last operation, in ticks;
    ``memory``: the highest peak of a device, in elements; ``host_memory``: that of a host; ``tick``: the seconds that a
    tick took, if real processes ran. With the cost of a cluster (``lib.real``), time is in seconds and memory in bytes,
    and a Run has ``seconds``, ``bytes``, ``fits`` and ``mfu``.
    """

    tick: float | None = None

    def __init__(self, name: str, models: Sequence[Model], train: str = TRAINED[0]) -> None:
        self.models = list(models)
        states = [model._final_state() for model in models]
        dist = models[0].dist
        super().__init__(name, Shape(dist._mesh, dist.cost, dist._experts), states, self._logs_of(models), train)

    def _logs_of(self, models: Sequence[Model]) -> list[Sequence[Event]]:
        return models[0]._simulator.finish_logs([model._handle for model in models])

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

    def _on_a_cluster(self, asked: str) -> RealCost:
        if not isinstance(self.cost, RealCost):
            problem = f"this run is in {self.unit.name} and {self.size_unit.name}, so it has no {asked}"
            fix = "run(..., cost=cluster.cost(model)), for example of A100_MEGATRON and GPT_175B from lib.real"
            raise PuzzleError(problem, where="Run", fix=fix)
        return self.cost

    def schedule(self) -> str:
        """Return the work of a pipeline as the CSV that torch.distributed.pipelining loads, a line a rank. Raises
        PuzzleError for a run that is no pipeline: with a layer on several ranks, or several micro-batches at once."""
        return written(self.events, self.ranks, self.layers)

    def verify(self) -> str:
        """Return a sentence on final weights that are right. Raise PuzzleError if they are not, or the run failed."""
        said = super().verify()
        if self.failed:
            raise PuzzleError("the final weights are right, but the run failed: its error says why", line="")
        return said


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
            raise PuzzleError(problem, got=describe(self.profile), fix='profile="profile"')
        if not isinstance(self.pace, (int, float)) or not 0 <= self.pace < float("inf"):
            raise PuzzleError("pace must be a number of seconds for a tick", got=describe(self.pace), fix="pace=0.03")
        if self.kill is not None and not (isinstance(self.kill, tuple) and [*map(type, self.kill)] == [int, int]):
            raise PuzzleError("kill names a rank and a record of its log", got=describe(self.kill), fix="kill=(2, 7)")


def run(
    fn: Callable[[Model], object],
    ranks: int = 1,
    layers: int = 2,
    batches: int = 1,
    mesh: Mapping[str, int] | None = None,
    node_size: int | None = None,
    cost: Cost | None = None,
    timeout: float | None = TIMEOUT,
    *,
    train: str = TRAINED[0],
    hosts: int = 0,
    experts: int = 0,
    engine: str = "simulated",
    layer: str = "mlp",
    dtype: str = "float32",
    hidden: int = 64,
    length: int = 16,
    seed: int = 0,
    pace: float = 0.0,
    device: str = "auto",
    meter: bool = False,
    kill: tuple[int, int] | None = None,
    profile: str | os.PathLike[str] | None = None,
    represent: str | Iterable[str] | bool | None = None,
    peak: bool = False,
    _order: Sequence[int] | None = None,
    _strict: bool = True,
    _watched: int | None = None,
) -> Run:
    """Runs ``fn(model)``, plain or async, on every rank of a machine. ``ranks``, ``mesh``, ``node_size``,
    ``cost`` and ``hosts`` describe the machine (see Dist), ``layers`` and ``batches`` the training. With
    ``train="adapters"`` the layers' own weights are frozen, and an adapter of each is trained. With ``experts=8`` every
    other layer, from layer 1 on, has 8 experts.

    ``timeout`` ends a run that takes longer, in wall-clock seconds (by default 10, and more on large machines; None:
    never). In the main thread, on platforms with timers, it also ends a loop that never awaits anything. Works in
    scripts, in tests, and in notebooks, where an event loop is running already. Raises a PuzzleError, such as Deadlock,
    for anything that is wrong with the function. The error's ``run`` is the run up to that point, and can be drawn.

    ``represent``: an axis of the mesh, or several, along which all ranks do the same, or True for all axes. Then a few
    ranks of it are run, and stand for the others: a thousand take no longer than four. Times, sizes, the log and the
    final weights are those of the whole machine, and it is proved that the others do the same, or the Run says that it
    is not. Raises PuzzleError where ranks turn out to differ in more than their micro-batches and their shards.

    ``engine="local"`` computes with real numbers, all ranks in this process; ``engine="processes"`` does so with each
    rank in a process of its own. Both need torch. The parameters ``layer`` (``"mlp"``: x + gelu(x A) B; ``"block"``: a
    transformer block; ``"experts"``: the first, of which every other layer is dealt to its experts), ``dtype``
    (``"float32"`` or ``"float64"``), ``hidden`` (numbers per token), ``length`` (tokens per micro-batch) and ``seed``
    say what they train. Processes use GPUs if there is one for each rank, unless
    ``device="cpu"``. ``pace``: the least number of seconds that a tick of compute takes. ``meter=True`` counts all
    tensors that are alive, stored or not, which takes time. ``kill=(2, 7)`` kills the process of rank 2 as it begins
    number 7, counted from 1, of the records in its log, to see what is said of a machine that fails.
    ``profile="folder"``: each process writes what PyTorch's profiler sees of it there, for ``trace("folder/*")``.

    ``peak=True`` runs the function once more, with notes on what the rank with the highest peak holds there: a picture
    of the run then marks the operations that have made it.
    """
    check_function(fn)
    one_of_names("engine", engine, ENGINES)
    shape = Shape.of(ranks, mesh, node_size, cost, hosts, experts)
    work = Workload(layers, batches, layer, dtype, hidden, length, seed, train)
    timeout = limit(timeout, shape.ranks, work.layers, work.batches)
    folder = os.path.abspath(profile) if isinstance(profile, (str, os.PathLike)) and os.fspath(profile) else profile
    settings = Settings(timeout, pace, device, meter, kill, folder, _order, _strict)  # type: ignore[arg-type]
    settings.check()
    if profile is not None and engine != "processes":
        problem = "only processes are profiled"
        raise PuzzleError(problem, where="run", got=f"engine={engine!r}", fix='engine="processes"')
    if peak and (engine != "simulated" or represent):
        problem = "the peak is noted where all ranks are simulated"
        raise PuzzleError(problem, where="run", got=f"engine={engine!r}, represent={represent!r}", fix="leave peak out")
    if represent is not None and represent is not False:
        if engine != "simulated":
            problem, fix = "real tensors are computed by every rank", 'represent=... is for engine="simulated"'
            raise PuzzleError(problem, where="run", got=f"engine={engine!r}", fix=fix)
        if shape.cost.uneven is not None:
            problem, fix = "ranks of an uneven machine do not all do the same", "leave represent out, or uneven"
            raise PuzzleError(problem, where="run", got=f"represent={represent!r}", fix=fix)
        return _timed(fn, shape, work, settings, represent)
    if engine != "simulated":
        return _engine(engine).run(fn, shape, work.on(shape), settings)  # type: ignore[no-any-return]
    if _watched is not None:
        return _watching(fn, shape, work, settings, _watched)
    dist = Dist.of(shape, new_simulator(shape, graded=True, strict=_strict))
    models = train_on(fn, dist, work, settings)
    with collector_off():
        done = Run(name_of(fn), models, train)
        highest = peak_event(done.device_events) if peak else None
    return done if highest is None else _watching(fn, shape, work, settings, highest.rank)


def _watching(fn: Callable[[Model], object], shape: Shape, work: Workload, settings: Settings, watched: int) -> Run:
    """Run with notes on the tensors of one rank (see ``machine.lives``)."""
    simulator = WatchedSimulator(shape, watched, settings.strict)
    models = train_on(fn, Dist.of(shape, simulator.as_simulator), work, settings)
    with collector_off():
        done = Run(name_of(fn), models, work.train)
    done.peak = simulator.peak._replace(lines=tuple([str(line or "") for line in models[watched].lines()]))
    return done


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

    @property
    def _of_each_kind(self) -> Iterable[Event]:
        return chain.from_iterable(self._own.values())

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
    return _timed(fn, shape, work, Settings(timeout=None, follow=False), represent)


def _timed(fn: Callable[[Model], object], shape: Shape, work: Workload, settings: Settings, represent: object) -> Run:
    """Run some ranks that represent all others (see ``run``)."""
    also, mesh = set[tuple[int, ...]](), shape.mesh
    axes = axes_of(mesh, represent)
    while True:
        shape = Shape(Mesh(mesh.ranks, mesh.axes, mesh.node_size, mesh.hosts), shape.cost, shape.experts)
        symmetry = Symmetry(shape.mesh, axes, also, shape.cost)
        simulator = simulator_of_few(shape, symmetry, settings.strict)
        models = train_on(fn, Dist.of(shape, cast(AnySimulator, simulator)), work, settings, symmetry)
        if not symmetry.survey.wanted:
            break
        also |= symmetry.survey.wanted
        if len(also) >= MOST:
            symmetry.survey.take("more than a few answers to which rank it is")
            break
    with collector_off():
        done = Timed(name_of(fn), models, work.train, symmetry)
    symmetry.unclear = symmetry.unclear or unclear(symmetry, simulator.scripts)
    if settings.follow and not symmetry.unclear:
        _follow(fn, shape, work, settings, symmetry, simulator.scripts)
    done.conclude()
    return done


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
            explain(error, Run(name_of(fn), models, work.train), models)
        raise
    return models


def explain(error: PuzzleError, done: Run, models: Sequence[Model]) -> None:
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


def _engine(name: str) -> Any:
    """Return the module of an engine with real tensors. Raise PuzzleError if what it needs is not installed."""
    try:
        return import_module(f"lib.engines.{name}")
    except ModuleNotFoundError as missing:
        needed = (missing.name or "").split(".")[0]
        if needed not in ("torch", "cloudpickle"):
            raise
    fix = "pip install torch cloudpickle (torch's CPU build is enough; pytorch.org says how to choose it)"
    raise PuzzleError(f'engine="{name}" needs {needed}, which is not installed here: {fix}', line="")


def check_function(fn: object) -> None:
    """Raise PuzzleError, with the reason, unless something can be run on a rank."""
    if not callable(fn) or isinstance(fn, type):
        fix = f"async def {fn.__name__}(model): ..." if isinstance(fn, type) else "async def fsdp(model): ..."
        if inspect.iscoroutine(fn):
            fn.close()
            fix = f"pass the function itself, {fn.__name__}, and not what it returns, {fn.__name__}(...)"
        raise PuzzleError("a run takes a function of one model", got=describe(fn), fix=fix)
    try:
        inspect.signature(fn).bind(object())
    except TypeError:
        problem = "the function is called with one argument, the model"
        fix = f"async def {name_of(fn)}(model): ..." if name_of(fn).isidentifier() else "async def fsdp(model): ..."
        where = f"{name_of(fn)}{inspect.signature(fn)}"
        raise PuzzleError(problem, where=where, fix=fix) from None
    except ValueError:
        pass  # a builtin without a signature: the call will tell
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise PuzzleError(f"{name_of(fn)} has a yield in it, so nobody runs it to its end", fix="await, not yield")


def allow_nested_loops() -> None:
    """Let ``asyncio.run(...)`` work in a notebook's cell. You never need it here: ``await`` and ``run`` are enough.

    It patches asyncio for the whole process (by nest_asyncio2 where that is installed, else by nest-asyncio), so it is
    never done unasked. Does nothing when no loop is running. Raises PuzzleError where it would break things:
    nest-asyncio 1.6.0 on Python 3.14 and later, loops that are not asyncio's own.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    patches = [name for name in ("nest_asyncio2", "nest_asyncio") if find_spec(name) is not None]
    or_else = ""
    if not isinstance(loop, asyncio.BaseEventLoop):
        problem = f"a loop of type {type(loop).__module__}.{type(loop).__name__} cannot be nested"
        or_else = ", or run(fn, ...)"
    elif "nest_asyncio2" not in patches and sys.version_info >= (3, 14):
        problem = "nest-asyncio 1.6.0 breaks asyncio on Python 3.14 and later, for the whole process"
        or_else = ", or install nest_asyncio2"
    elif patches:
        import_module(patches[0]).apply()
        return
    else:
        problem = "neither nest_asyncio2 nor nest_asyncio is installed"
    fix = f"await asyncio.gather(...) instead of asyncio.run(...){or_else}"
    raise PuzzleError(problem, where="allow_nested_loops", fix=fix)
