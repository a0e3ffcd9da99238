"""A run of which few ranks are run, since all others do the same: in nothing another one than the run of all."""

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lib.running.few as module
from drawing import draw
from lib import Model, PuzzleError, Run, run
from lib.course.sizes import SIZES
from lib.course.specs import cost_named, puzzles
from lib.grading.advice.slowness import efforts
from lib.grading.fitting import fitting
from lib.grading.judge import judge
from lib.record.events import Event
from lib.record.figures.breakdown import time_parts
from lib.running.effects import frozen
from lib.running.few import Proved
from tests.corpus.honest import HONEST
from tests.corpus.mistakes import MISTAKES
from tests.one_rank_differs import one_rank_differs
from tests.programs import SMALLER, small_size
from tests.slow import EVERYTHING, some
from tools.bench import fsdp, hybrid, pipeline

LARGE: dict[str, Any] = {"ranks": 48, "layers": 3, "batches": 48}
BOXES: dict[str, Any] = {**LARGE, "mesh": {"replica": 6, "shard": 8}, "node_size": 8}


@pytest.fixture
def four_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run few of any machine, and of functions that read tables, too: all but what has effects on purpose."""
    monkeypatch.setattr(module, "MANY", 4)
    monkeypatch.setattr(module, "HALF", 1)
    monkeypatch.setattr(module, "only_its_model", lambda fn: True)


def told(fn: Callable[[Model], Any], size: dict[str, Any], represent: bool | None) -> tuple[Any, bool]:
    """All that a run tells, or its error, and whether few ranks were run."""
    try:
        done = run(fn, **size, represent=represent)
    except PuzzleError as error:
        assert error.run is not None
        return (str(error), error.place, error.run.events, str(error.run)), False
    few = isinstance(done, Proved)
    figures = done.time, done.memory, done.host_memory, done.name, done.layers, done.batches, done.attempted
    said = repr(done), done.fault, done.note, done.overlap, str(done)
    try:
        said = (*said, done.verify())
    except PuzzleError as error:
        said = (*said, str(error))
    return (figures, said, done.events, done.final_states), few


def as_all(fn: Callable[[Model], Any], size: dict[str, Any]) -> str:
    """Assert that a run tells what a run of all ranks tells. Return whether few were run, or all, or it failed."""
    (now, few), (whole, _) = told(fn, size, None), told(fn, size, False)
    assert now == whole
    return "few" if few else "wrong" if isinstance(whole[0], str) else "all"


@pytest.mark.parametrize(("program", "size"), [(fsdp, LARGE), (hybrid, BOXES), (pipeline, {**LARGE, "layers": 48})])
def test_a_run_of_many_ranks_tells_what_all_of_them_tell(program: Callable[[Model], Any], size: dict[str, Any]) -> None:
    assert as_all(program, size) == ("few" if program is not pipeline else "all")


def test_models_are_those_of_all_ranks() -> None:
    done, whole = run(fsdp, **LARGE), run(fsdp, **LARGE, represent=False)
    assert isinstance(done, Proved) and len(done.simulated) == 2
    assert [model.rank for model in done.models] == [*range(48)]
    for one, other in zip(done.models, whole.models, strict=True):
        assert (one.log, one.time, one.memory(), repr(one)) == (other.log, other.time, other.memory(), repr(other))
        assert one.lines() == other.lines() and str(one.weights) == str(other.weights)
        assert str(one.final_weights) == str(other.final_weights)
    Model.check(done.models)
    assert done.events == whole.events


def test_it_is_drawn_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(fsdp, **LARGE)
    monkeypatch.setattr(Proved, "whole", property(lambda self: pytest.fail("all ranks were run")))
    assert draw(done).svg() == draw(run(fsdp, **LARGE, represent=False)).svg()


LAYERS = 3


async def by_a_name(model: Model) -> Model:
    """What it does is decided by a name outside."""
    for layer in range(LAYERS):
        model.weights[layer], _ = model.load_weights(layer, model.rank, model.RANKS)
    return model


def helped() -> Callable[[Model], Any]:
    """A function with all kinds of names from outside."""
    first, more = 1, (2, 3)

    def again(model: Model, layer: int, *, least: int = 0) -> None:
        if layer > least:
            again(model, layer - 1)
        model.weights[layer], _ = model.load_weights(layer, model.rank, model.RANKS)

    async def program(model: Model, where: int = first) -> Model:
        again(model, more[0] - where + first)
        return model

    return program


def test_another_value_of_a_name_changes_nothing_of_a_run_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(by_a_name, **LARGE)
    assert isinstance(done, Proved)
    monkeypatch.setitem(globals(), "LAYERS", 1)
    assert [*done.models[7].weights] == [0, 1, 2]
    assert [*run(by_a_name, **LARGE).models[7].weights] == [0]


def test_a_frozen_function_does_the_same() -> None:
    for program in (helped(), hybrid, by_a_name):
        size = BOXES if program is hybrid else LARGE
        one, other = [run(fn, **size, represent=False) for fn in (program, frozen(program))]
        assert one.events == other.events and one.final_states == other.final_states
        assert [*map(str, one.models[3].lines())] == [*map(str, other.models[3].lines())]
    assert as_all(helped(), LARGE) == "few"


def test_where_something_may_be_seen_all_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    async def keeps(model: Model) -> Model:
        seen.append(model.rank)
        return await fsdp(model)

    async def prints(model: Model) -> Model:
        print(model.rank)
        return await fsdp(model)

    for program in (keeps, prints):
        assert not isinstance(run(program, **LARGE), Proved)
    assert seen == [*range(48)] and len(capsys.readouterr().out.splitlines()) == 48
    assert not isinstance(run(fsdp, **LARGE, represent=False), Proved)
    assert not isinstance(run(fsdp, 16, 2, 16), Proved)  # too few to save anything


def test_who_gives_little_time_hears_of_it_once() -> None:
    async def endless(model: Model) -> Model:
        while True:
            model.LAYERS  # noqa: B018

    with pytest.raises(PuzzleError, match=r"the run did not end within 0.4 seconds"):
        run(endless, **LARGE, timeout=0.4)


def test_a_mistake_outside_of_a_rank_is_no_mistake_of_the_rank() -> None:
    async def nested(model: Model) -> Model:
        if model.rank == 0:
            run(pipeline, 32, 32, 2)  # in which nothing can be proved
        return model

    run(nested, 2)


def programs() -> Iterator[Any]:
    """Every program of the solutions that the frontier of its puzzle names, and that puzzle."""
    for puzzle in puzzles().values():
        if not puzzle.repair:
            solution = importlib.import_module(f"solutions.{puzzle.file}")
            for name in sorted({puzzle.name, *[point["by"] for point in puzzle.frontier]}):
                if hasattr(solution, name):
                    in_turn = puzzle.name in SMALLER and name != puzzle.name
                    marks = pytest.mark.slow if in_turn else ()
                    yield pytest.param(getattr(solution, name), puzzle, id=f"{puzzle.name}-{name}", marks=marks)


@pytest.mark.usefixtures("four_are_many")
@pytest.mark.parametrize(("program", "puzzle"), [*programs()])
def test_every_solution_tells_the_same(program: Callable[[Model], Any], puzzle: Any) -> None:
    whole_size = puzzle.name not in SMALLER or EVERYTHING
    own, cost = puzzle.size if whole_size else small_size(puzzle.name), cost_named(puzzle.cost)
    others = sorted(SIZES[puzzle.other_sizes](puzzle.size), key=lambda size: size.get("ranks", 1))
    for size in (own, *(others if EVERYTHING else others[-1:])):
        as_all(program, {**size, "cost": cost})


@pytest.mark.usefixtures("four_are_many")
def test_one_rank_that_differs_is_found() -> None:
    found = Counter[str]()
    seeds = some(range(2000), 25)
    for seed in seeds:
        program, ranks = one_rank_differs(seed, 9), 9
        try:
            found[as_all(program.function(), {"ranks": ranks, "layers": 2, "batches": 2 * ranks})] += 1
        except AssertionError as error:
            raise AssertionError(program.source) from error
    assert min(found[one] for one in ("few", "all", "wrong")) > len(seeds) / 40


CORPUS = [one for one in (*HONEST, *MISTAKES) if puzzles()[one.puzzle].size.get("ranks", 1) >= 4]


def verdict(fn: Callable[[Model], Any], puzzle: Any, represent: bool | None) -> tuple[Any, int]:
    """What a grader says of a function, and how many runs of few ranks it took."""
    few = 0

    def at(size: Any, rank: int | None = None) -> Run:
        nonlocal few
        done = run(fn, **size, cost=cost_named(puzzle.cost), _watched=rank, represent=represent)
        few += isinstance(done, Proved)
        return done

    return judge(puzzle, fitting(puzzle, at), at), few


@pytest.mark.usefixtures("four_are_many")
def test_verdicts_are_the_same() -> None:
    few = 0
    corpus = [one for one in CORPUS if one.puzzle != "compose" and "experiment" not in one.name]
    for one in some(corpus, 40):
        names: dict[str, Any] = {}
        exec(compile(one.source, "corpus.py", "exec"), names)
        (now, runs), (whole, _) = [verdict(names[one.puzzle], puzzles()[one.puzzle], how) for how in (None, False)]
        assert now == whole, one.name
        few += runs
    assert few


@pytest.mark.slow
def test_the_verdict_of_the_largest_puzzle_is_the_same() -> None:
    puzzle = puzzles()["compose"]
    (now, few), (whole, _) = [
        verdict(importlib.import_module(f"solutions.{puzzle.file}").compose, puzzle, how) for how in (None, False)
    ]
    assert now == whole and few


@pytest.mark.parametrize(("fn", "size"), [(fsdp, LARGE), (hybrid, BOXES)])
def test_what_is_read_off_the_ranks_that_were_run_is_that_of_all(
    fn: Callable[[Model], Any], size: dict[str, Any]
) -> None:
    few, everyone = run(fn, **size), run(fn, **size, represent=False)
    assert isinstance(few, Proved)
    assert len(few.distinct) < len(everyone.distinct) == len(few.events)
    assert time_parts(*few.shares, few.time) == time_parts(*everyone.shares, everyone.time)
    assert [*efforts(few).items()] == [*efforts(everyone).items()]
    assert {*map(_at_the_same_time, few.distinct)} == {*map(_at_the_same_time, everyone.events)}


def _at_the_same_time(event: Event) -> tuple[object, ...]:
    """What an event is on every rank that does the same."""
    return (event.kind, event.layer, len(event.batches), event.start, event.end, event.held, event.words)
