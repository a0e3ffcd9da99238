"""Run a learner's function on every rank of a machine, and keep what happened."""

import asyncio
import inspect
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from ..basics.arguments import describe, one_of_names
from ..basics.errors import PuzzleError
from ..learner.dist import Dist
from ..learner.model import Model
from ..machine.check import TRAINED
from ..machine.cost import LINKS, Cost, Shape
from ..machine.interface import AnySimulator
from ..machine.lives import WatchedSimulator
from ..machine.simulator import new_simulator
from ..record.figures.score import peak_event
from .execution import name_of
from .few import Timed, time_few, timed
from .limits import TIMEOUT, collector_off, limit
from .trained import Run, Settings, attach_run, train_on
from .workload import Workload

__all__ = ["ENGINES", "Run", "Settings", "Timed", "allow_nested_loops", "attach_run", "check_function", "run"]
__all__ += ["time_few", "train_on"]

ENGINES = ("simulated", "local", "processes")
"""The engines of a run. All but the first are modules of ``lib.engines``, with tensors that hold numbers."""


class Failed(NamedTuple):
    """A run that has failed, so that somebody may ask why."""

    fn: Callable[[Model], object]
    shape: Shape
    work: Workload
    settings: Settings


failed: list[Failed] = []
"""The last run that has failed, if one has."""


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
    links: str = LINKS[0],
    tokens: Sequence[int] = (),
    quiet: bool = False,
    tied: bool = False,
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
    represent: str | Iterable[str] | bool = False,
    peak: bool = False,
    _order: Sequence[int] | None = None,
    _strict: bool = True,
    _simulator: Callable[[Shape], AnySimulator] | None = None,
) -> Run:
    """Runs ``fn(model)``, plain or async, on every rank of a machine. ``ranks`` and ``cost`` describe the machine (see
    Dist), ``layers`` and ``batches`` the training. ``mesh`` and ``node_size``: where its ranks sit. ``hosts``: how many
    hosts there are. With ``train="adapters"`` the layers' own weights are frozen, and an adapter of each is trained.
    With ``train="muon"`` updates take what ``model.orthogonalize`` gives. With ``tokens=(40, 10)`` micro-batches have
    so many, the loss of each is a mean over its own, and a step follows the mean over all. With ``experts=8`` every
    other layer, from layer 1 on, has 8 experts. With ``links="rendezvous"`` a send waits for its receive, as it may on
    real machines, and with ``"ordered"`` receives stand in their rank's queue, too. With ``quiet=True``
    no rule about sums stops a run: only its final weights tell whether it is right. With ``tied=True`` the last layer
    has no weight, and uses that of layer 0.

    ``timeout`` ends a run that takes longer, in wall-clock seconds (by default 10, and more on large machines; None:
    never). In the main thread, on platforms with timers, it also ends a loop that never awaits anything. Works in
    scripts, in tests, and in notebooks, where an event loop is running already. Raises a PuzzleError, such as Deadlock,
    for anything that is wrong with the function. The error's ``run`` is the run up to that point, and can be drawn.

    ``represent``: an axis of the mesh, or several, along which all ranks do the same, or True for all axes. Then a few
    ranks of it are run, and stand for the others: a thousand take no longer than four. Times, sizes, the log and the
    final weights are those of the whole machine, and it is proved that the others do the same, or the Run says that it
    is not. Raises PuzzleError where ranks turn out to differ in more than their micro-batches and their shards. Without
    it all ranks are run.

    ``engine="local"`` computes with real numbers, all ranks in this process; ``engine="processes"`` does so with each
    rank in a process of its own. Both need torch. The parameters ``layer`` (``"mlp"``: x + gelu(x A) B, or ``"block"``:
    a transformer block), ``dtype`` (``"float32"`` or ``"float64"``), ``hidden`` (numbers per token), ``length`` (tokens
    per micro-batch) and ``seed`` say what they train. With ``layer="experts"`` it is the first, of which every other
    layer is dealt to its experts. Processes use GPUs if there is one for each rank, unless
    ``device="cpu"``. ``pace``: the least number of seconds that a tick of compute takes. ``meter=True`` counts all
    tensors that are alive, stored or not, which takes time. ``kill=(2, 7)`` kills the process of rank 2 as it begins
    number 7, counted from 1, of the records in its log, to see what is said of a machine that fails.
    ``profile="folder"``: each process writes what PyTorch's profiler sees of it there, for ``trace("folder/*")``.

    ``peak=True`` runs the function once more, with notes on what the rank with the highest peak holds there: a picture
    of the run then marks the operations that have made it.
    """
    check_function(fn)
    one_of_names("engine", engine, ENGINES)
    shape = Shape.of(ranks, mesh, node_size, cost, hosts, experts, links, tokens, train == TRAINED[2], quiet, tied)
    work = Workload(layers, batches, layer, dtype, hidden, length, seed, train)
    timeout = limit(timeout, shape.ranks, work.layers, work.batches)
    folder = os.path.abspath(profile) if isinstance(profile, (str, os.PathLike)) and os.fspath(profile) else profile
    settings = Settings(timeout, pace, device, meter, kill, folder, _order, _strict)  # type: ignore[arg-type]
    settings.check()
    if profile is not None and engine != "processes":
        problem = "only processes are profiled"
        raise PuzzleError(problem, where="run", expected='engine="processes"', got=f"engine={engine!r}")
    if peak and (engine != "simulated" or represent):
        got = f"engine={engine!r}, represent={represent!r}"
        raise PuzzleError("the peak is noted where all ranks are simulated", where="run", got=got)
    if represent is not False:
        _check_represent(represent, engine, shape)
        return timed(fn, shape, work, settings, represent)
    if engine != "simulated":
        return _engine(engine).run(fn, shape, work.on(shape), settings)  # type: ignore[no-any-return]
    simulator = new_simulator(shape, graded=True, strict=_strict) if _simulator is None else _simulator(shape)
    try:
        models = train_on(fn, Dist.of(shape, simulator), work, settings)
    except PuzzleError:
        failed[:] = [Failed(fn, shape, work, settings)]
        raise
    with collector_off():
        done = Run(name_of(fn), models, train)
    if _simulator is None:
        done.again = partial(_watching, fn, shape, work, settings)
    highest = peak_event(done.device_events) if peak else None
    return done if highest is None else _watching(fn, shape, work, settings, highest.rank)


def _check_represent(represent: object, engine: str, shape: Shape) -> None:
    """Raise PuzzleError where some ranks cannot represent others."""
    if engine != "simulated":
        problem, expected = "real tensors are computed by every rank", 'engine="simulated" with represent=...'
        raise PuzzleError(problem, where="run", expected=expected, got=f"engine={engine!r}")
    if shape.cost.uneven is not None or shape.tokens or shape.tied:
        problem = "with tied weights, with tokens or on an uneven machine, ranks do not all do the same"
        raise PuzzleError(problem, where="run", got=f"represent={represent!r}")


def _watching(
    fn: Callable[[Model], object], shape: Shape, work: Workload, settings: Settings, watched: int | None = None
) -> Run:
    """Run with notes on the tensors of one rank, or of all (see ``machine.lives``). What it prints is known already."""
    simulator = WatchedSimulator(shape, watched, settings.strict)
    with redirect_stdout(io.StringIO()):
        models = train_on(fn, Dist.of(shape, simulator.as_simulator), work, settings)
    with collector_off():
        done = Run(name_of(fn), models, work.train)
    done.again, done.stays = partial(_watching, fn, shape, work, settings), simulator.stays
    if watched is not None:
        done.peak = simulator.peak._replace(lines=tuple([str(line or "") for line in models[watched].lines()]))
    return done


def _engine(name: str) -> Any:
    """Return the module of an engine with real tensors. Raise PuzzleError if what it needs is not installed."""
    try:
        return import_module(f"lib.engines.{name}")
    except ModuleNotFoundError as missing:
        needed = (missing.name or "").split(".")[0]
        if needed not in ("torch", "cloudpickle"):
            raise
    how = "pip install torch cloudpickle (torch's CPU build is enough; pytorch.org says how to choose it)"
    raise PuzzleError(f'engine="{name}" needs {needed}, which is not installed here: {how}', line="")


def check_function(fn: object) -> None:
    """Raise PuzzleError, with the reason, unless something can be run on a rank."""
    if not callable(fn) or isinstance(fn, type):
        if inspect.iscoroutine(fn):
            fn.close()
        expected = "a function itself, such as `async def fsdp(model): ...`"
        raise PuzzleError("a run takes a function of one model", expected=expected, got=describe(fn))
    try:
        inspect.signature(fn).bind(object())
    except TypeError:
        problem = "the function is called with one argument, the model"
        where = f"{name_of(fn)}{inspect.signature(fn)}"
        raise PuzzleError(problem, where=where) from None
    except ValueError:
        pass  # a builtin without a signature: the call will tell
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise PuzzleError(f"{name_of(fn)} has a yield in it, so nobody runs it to its end")


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
    if not isinstance(loop, asyncio.BaseEventLoop):
        problem = f"a loop of type {type(loop).__module__}.{type(loop).__name__} cannot be nested"
    elif "nest_asyncio2" not in patches and sys.version_info >= (3, 14):
        problem = "nest-asyncio 1.6.0 breaks asyncio on Python 3.14 and later, for the whole process"
    elif patches:
        import_module(patches[0]).apply()
        return
    else:
        problem = "neither nest_asyncio2 nor nest_asyncio is installed"
    expected = "nest_asyncio2, or `await asyncio.gather(...)` in place of asyncio.run"
    raise PuzzleError(problem, where="allow_nested_loops", expected=expected)
