"""The notes on a peak, from few ranks: those of the whole machine, or none."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import lib.running.noted as module
from lib import Model, PuzzleError, run
from lib.course.specs import cost_named, puzzles
from lib.grading.fitting import fitting
from lib.grading.judge import judge
from lib.machine.lives import Peak
from lib.record.figures.score import peak_event
from lib.running.noted import noted_by_few
from tests.corpus.honest import HONEST
from tests.corpus.mistakes import MISTAKES
from tests.one_rank_differs import one_rank_differs
from tests.slow import some
from tools.bench import fsdp, hybrid

SIZES: dict[str, dict[str, Any]] = {
    "ddp": {"ranks": 40, "layers": 2, "batches": 40},
    "fsdp": {"ranks": 36, "layers": 3, "batches": 36},
    "prefetch": {"ranks": 64, "layers": 4, "batches": 64},
    "zero2": {"ranks": 33, "layers": 2, "batches": 66},
    "replica_fsdp": {"ranks": 48, "layers": 3, "batches": 48, "mesh": {"replica": 6, "shard": 8}, "node_size": 8},
    "hpz": {"ranks": 48, "layers": 3, "batches": 48, "mesh": {"replica": 6, "shard": 8}, "node_size": 8},
    "compose": {"ranks": 48, "layers": 8, "batches": 48, "mesh": {"x": 12, "y": 1, "z": 4}},
}


def both_notes(fn: Callable[[Model], Any], size: dict[str, Any], cost: Any = None) -> tuple[Peak | None, Peak | None]:
    """The notes from few ranks, if these may tell, and those of the whole machine."""
    whole = run(fn, **size, cost=cost, represent=False)
    highest = peak_event(whole.device_events)
    assert highest is not None
    few = noted_by_few(fn, whole, highest.rank)
    again, first = [run(fn, **size, cost=cost, _watched=highest.rank, represent=how) for how in (False, None)]
    assert (first.events, first.peak) == (again.events, again.peak)  # noted at once, of few where that is proved
    if few is not None:
        assert (few.time, few.memory, few.events) == (again.time, again.memory, again.events)
    return few.peak if few is not None else None, again.peak


@pytest.mark.parametrize("name", SIZES)
def test_they_are_those_of_the_whole_machine(name: str) -> None:
    puzzle = puzzles()[name]
    program = getattr(importlib.import_module(f"solutions.{puzzle.file}"), name)
    few, whole = both_notes(program, SIZES[name], cost_named(puzzle.cost))
    assert few == whole is not None


@pytest.mark.parametrize("watched", [0, 1, 7, 20, 47])
def test_of_any_rank(watched: int) -> None:
    size = SIZES["hpz"]
    few = noted_by_few(hybrid, run(hybrid, **size, represent=False), watched)
    assert few is not None and few.peak == run(hybrid, **size, _watched=watched, represent=False).peak


def test_with_one_rank_that_differs_they_are_the_same_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "only_its_model", lambda fn: True)  # these read a table
    told = 0
    for seed in some(range(600), 25):
        ranks = 32 + seed % 9
        program = one_rank_differs(seed, ranks).function()
        try:
            few, whole = both_notes(program, {"ranks": ranks, "layers": 2, "batches": 2 * ranks})
        except PuzzleError:
            continue
        told += few is not None
        assert few is None or few == whole
    assert told


def test_where_it_saves_nothing_or_something_may_be_seen_there_are_none() -> None:
    def prints(model: Model) -> Any:
        print(model.rank)
        return fsdp(model)

    few = run(fsdp, 16, 2, 16, represent=False)
    assert noted_by_few(fsdp, few, 0) is None
    assert noted_by_few(prints, run(prints, 40, 2, 40, represent=False), 0) is None
    rings = importlib.import_module("solutions.p05_pipeline").pipeline
    assert noted_by_few(rings, run(rings, 40, 40, 40, represent=False), 0) is None  # messages along the only axis
    assert noted_by_few(fsdp, run(hybrid, **SIZES["hpz"], represent=False), 0) is None  # another program


def test_whoever_gives_a_run_little_time_gives_this_one_no_more() -> None:
    whole = run(fsdp, 40, 40, 40, represent=False)
    assert noted_by_few(fsdp, whole, 0) is not None
    assert noted_by_few(fsdp, whole, 0, timeout=1e-6) is None


CORPUS = [
    one
    for one in (*HONEST, *MISTAKES)
    if puzzles()[one.puzzle].size.get("ranks", 1) >= 4 and one.puzzle != "compose" and "experiment" not in one.name
]
"""Programs whose ranks may stand for others, where four ranks are many."""


def verdict(fn: Callable[[Model], Any], puzzle: Any, asked: list[Any] | None = None) -> Any:
    """What a notebook's grader says, with notes from few ranks where these are ``asked``."""
    whole: list[Any] = []

    def at(size: Any, rank: int | None = None) -> Any:
        if asked is not None and rank is not None and size == puzzle.size:
            asked.append(noted_by_few(fn, whole[0], rank))
            if asked[-1] is not None:
                return asked[-1]
        done = run(fn, **size, cost=cost_named(puzzle.cost), _watched=rank, represent=False)
        whole.append(done)
        return done

    return judge(puzzle, fitting(puzzle, at), at)


def test_verdicts_are_the_same_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 4)
    monkeypatch.setattr(module, "only_its_model", lambda fn: True)  # all but what has effects on purpose
    asked: list[Any] = []
    for one in some(CORPUS, 40):
        names: dict[str, Any] = {}
        exec(compile(one.source, "corpus.py", "exec"), names)
        puzzle = puzzles()[one.puzzle]
        assert verdict(names[one.puzzle], puzzle, asked) == verdict(names[one.puzzle], puzzle), one.name
    assert any(asked)


@pytest.mark.slow
def test_the_verdict_of_the_largest_puzzle_is_the_same() -> None:
    compose, asked = importlib.import_module("solutions.p24_compose").compose, list[Any]()
    few = verdict(compose, puzzles()["compose"], asked)
    assert few == verdict(compose, puzzles()["compose"])
    assert few.costs_memory and asked[0]
