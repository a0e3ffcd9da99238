"""``trace``: from the files of a real run to its profile."""

import os
import re
import zlib
from collections.abc import Iterable, Sequence
from glob import glob, has_magic
from pathlib import Path

from ...basics.arguments import describe
from ...basics.errors import PuzzleError, numbered
from .calls import Rank
from .kineto import Raw
from .meetings import Whole
from .profile import Profile
from .recorder import is_dump, rank_of
from .streams import ENTRIES, PROFILE, damaged, entries_of, opened, plain_pickle, values_of

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
HOW = 'trace("rank*.json.gz"), of files that export_chrome_trace has written, one for each rank'
PICKLE = b"\x80"
"""How a pickle begins."""


def trace(*files: Paths, step: int | None = None, name: str | None = None) -> Profile:
    """Read what several ranks of a real run did in one step, and return it as a Profile, which ``draw``, ``compare``
    and ``perfetto`` take as they take a run.

    ``files``: one file for each rank, or patterns of their names (``"rank*.json.gz"``): those that PyTorch's profiler
    writes (``export_chrome_trace``), compressed or not, from GPUs with NCCL or from CPUs with gloo; or the dumps of
    NCCL's flight recorder, pickles or JSON. ``step``: the number of the step, if the files have several
    (``ProfilerStep#3``); by default the last that all of them have. ``name``: the title of its pictures.

    A collective begins when the last of its ranks has come; until then the others wait. What is neither in a backward
    pass nor in a step of the optimizer counts as forward, unless labels say more: PyTorch's own pipelines have them,
    and ``record_function("forward layer 3 mb 1")`` around your own code does the same. Times are in ms. Clocks that
    contradict each other are set; a note says by how much. Files are read as a stream, and a pickle may only have plain
    data in it.

    Raises PuzzleError for files that are missing, damaged, cut off or no profiles, for two of one rank, and for ranks
    that have no step in common.
    """
    if not (step is None or (isinstance(step, int) and not isinstance(step, bool))):
        raise PuzzleError("step is the number of a step", where="trace", got=describe(step), expected="step=3", line="")
    paths = _paths(files)
    raws, dumps = list[Raw](), list[Rank]()
    for path in paths:
        with values_of(path):
            found = _read(path)
        if isinstance(found, Raw):
            raws.append(found)
        else:
            dumps.append(found)
    if raws and dumps:
        problem = f"{raws[0].path.name} is of PyTorch's profiler, and {dumps[0].source} of the flight recorder"
        raise PuzzleError(problem, where="trace", expected="trace of one kind of files", line="")
    title = name or _title(paths)
    if dumps:
        _one_each([(one.rank, one.source) for one in dumps])
        if step is not None:
            raise PuzzleError("a flight recorder knows of no steps", where="trace", expected="trace(files)", line="")
        return Profile(dumps, title, None, Whole(begins=False, ends=True))
    numbers, ranks = list[int](), list[Rank]()
    for raw in raws:
        with values_of(raw.path):
            numbers.append(_rank(raw, len(raws)))
    _one_each([(number, raw.path.name) for number, raw in zip(numbers, raws, strict=True)])
    chosen = _step(raws, step)
    for number, raw in zip(numbers, raws, strict=True):
        with values_of(raw.path):
            ranks.append(raw.step(number, chosen))
    if len({one.world for one in ranks} - {None}) > 1:
        worlds = ", ".join(f"{one.source} {one.world}" for one in ranks[:4])
        ranks[0].problems.append(f"the files name different numbers of ranks: {worlds}")
    return Profile(ranks, title, chosen, Whole(begins=chosen is not None, ends=chosen is not None))


def is_trace(name: str) -> bool:
    """Return whether a name, as somebody types it, is that of a profile, and not of a program."""
    ends = name.removesuffix(".gz").rpartition(".")[2].lower()
    named = map(Path, glob(name) if has_magic(name) else [name])
    bare = any(one.is_file() and not one.suffix for one in named)  # nccl_trace_rank_0
    return ends in ("json", "pkl", "pickle") or (":" not in name and ends not in ("py", "ipynb") and bare)


def _paths(files: Sequence[Paths]) -> list[Path]:
    """Return the files of all names and patterns. Raise PuzzleError if there are none."""
    given: list[object] = []
    for one in files:
        given += [one] if isinstance(one, (str, os.PathLike)) else [*one] if isinstance(one, Iterable) else [one]
    found: list[Path] = []
    for which in given:
        if not isinstance(which, (str, os.PathLike)):
            raise PuzzleError("trace takes names of files", where="trace", got=describe(which), expected=HOW, line="")
        name = os.fspath(which)
        named = sorted(map(Path, glob(name))) if has_magic(name) and not Path(name).exists() else [Path(name)]
        if not named or not named[0].exists():
            raise PuzzleError(f"there is no file {name}", where="trace", expected=HOW, line="")
        found += named
    if not found:
        raise PuzzleError("trace takes the files of one or several ranks", where="trace", expected=HOW, line="")
    if folder := next((path for path in found if path.is_dir()), None):
        raise PuzzleError(f"{folder} is a folder", where="trace", expected=f'trace("{folder}/*")', line="")
    return [*dict.fromkeys(path.resolve() for path in found)]


def _read(path: Path) -> Raw | Rank:
    with opened(path) as file:
        try:
            begins = file.read(1)
        except (EOFError, OSError, zlib.error):
            begins = b""  # said below
    if begins == PICKLE:
        return rank_of(path, plain_pickle(path))
    raw, events = Raw(path), False
    for name, value in entries_of(path):
        events = events or name == ENTRIES
        raw.add(name, value)
    if is_dump(raw.about):
        return rank_of(path, raw.about)
    if not events:
        raise damaged(path, f"is no trace: it has no list of {ENTRIES}", PROFILE)
    return raw


def _rank(raw: Raw, files: int) -> int:
    rank = raw.rank()
    if rank is None:
        if files == 1:
            return 0
        expected = "start torch.distributed before the profiler, or call the files rank0.json.gz, rank1.json.gz, ..."
        raise damaged(raw.path, "has no rank in it, nor in its name", expected)
    return rank


def _one_each(ranks: Sequence[tuple[int, str]]) -> None:
    """Raise PuzzleError if two files are of one rank."""
    known: dict[int, str] = {}
    for rank, source in ranks:
        if rank in known:
            problem = f"{known[rank]} and {source} are both of rank {rank}"
            raise PuzzleError(problem, where="trace", expected="the files of one run, one for each rank", line="")
        known[rank] = source


def _step(raws: Sequence[Raw], wanted: int | None) -> int | None:
    """Return the step to take: the wanted one, or the last that all files have. None if none of them has steps."""
    having = [raw for raw in raws if raw.begun]
    if wanted is not None:
        without = next((raw for raw in raws if wanted not in raw.begun), None)
        if without is not None:
            known = ", ".join(map(str, sorted(without.begun))) or "none: call step() of the profiler after each"
            problem = f"{without.path.name} has no {'work in ' * (wanted in without.steps)}step {wanted}"
            raise PuzzleError(problem, where="trace", expected=f"one of its steps: {known}", line="")
        return wanted
    if not having:
        return None
    common = set.intersection(*(set(raw.begun) for raw in raws))
    if not common:
        begun = [numbered("step", raw.begun) if raw.begun else "none" for raw in raws[:4]]
        got = ", ".join(f"{raw.path.name} has {own}" for raw, own in zip(raws, begun, strict=False))
        expected = "files of the same step of all ranks: the same schedule(wait=, warmup=, active=) on each"
        raise PuzzleError("these ranks have no step in common", where="trace", got=got, expected=expected, line="")
    return max(common)


def _title(paths: Sequence[Path]) -> str:
    """Return a name for the profile of these files: that of the only one, or what names begin with before a number."""
    begins = re.split(r"\d", paths[0].name)[0]
    return paths[0].name if len(paths) == 1 else f"{begins}*" if begins else "profile"
