"""A run that fails keeps its log, and says the same whoever came first."""

import ast
import pickle
import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

import drawing
from lib import Model, PuzzleError, Run, run
from lib.course.specs import puzzles
from lib.record.events import Event
from tests.corpus import Program, changed
from tests.corpus.mistakes import MISTAKES, REDUCE
from tests.marks import NO_TORCH
from tests.test_corpus import function, titles

Fn = Callable[[Model], Any]


SIZE: dict[str, Any] = {"ranks": 4, "layers": 6, "batches": 4}
HERE = "layer == 2 and model.rank == 1"
HURRY = f"if {HERE}: signal.setitimer(signal.ITIMER_REAL, 0.05, 0.2)"
"""The limit of the run strikes here, however busy the machine is."""
AGAIN = "weight = await model.allgather(model.weights[layer], layer)\n        inp"


def before_the_reduction(name: str, *lines: str) -> Program:
    """Fully sharded, with some lines between the backward and its reduction."""
    return changed("fsdp", name, (REDUCE, "".join(f"        {line}\n" for line in lines) + REDUCE))


CUT = {
    "a wrong weight": changed(
        "fsdp", "a wrong weight", (AGAIN, AGAIN.replace("await", f"model.weights[layer] if {HERE} else await"))
    ),
    "a deadlock": before_the_reduction("a deadlock", f"if {HERE}: await model.receive()"),
    "an error of its own": before_the_reduction("an error of its own", f"if {HERE}: raise ValueError('oh')"),
    "an error of ours": before_the_reduction("an error of ours", f"if {HERE}: raise PuzzleError('oh')"),
    "a loop": before_the_reduction("a loop", HURRY, f"while {HERE}: pass"),
    "a loop that awaits": before_the_reduction("a loop that awaits", HURRY, f"while {HERE}: await asyncio.sleep(0)"),
    "a sleep": before_the_reduction("a sleep", HURRY, f"if {HERE}: time.sleep(60)"),
}
"""Programs that fail in the middle: what each rank has done until then is the beginning of what it does otherwise."""
SAYS = {
    "a wrong weight": "rank 1, backward(layer 2), micro-batch {1}: the weight is not complete",
    "a deadlock": "deadlock: no rank can ever go on",
    "an error of its own": "rank 1: the function raised ValueError: oh",
    "an error of ours": "rank 1: oh",
    "a loop": "did not end within",
    "a loop that awaits": "did not end within",
    "a sleep": "did not end within",
}
SWALLOWED = before_the_reduction(
    "swallowed", "try:", "    model.forward(0, inp, model.weights[0])", "except AssertionError:", "    pass"
)
LEFT = changed(
    "fsdp",
    "never awaited",
    ("    return model", "    model.pass_to((model.rank + 1) % model.RANKS, 'x')\n    return model"),
)
LONE = changed(
    "fsdp",
    "never received",
    ("    return model", "    await model.pass_to((model.rank + 1) % model.RANKS, 'x')\n    return model"),
)

engines = pytest.mark.parametrize("engine", ["simulated", "local"])


def failed(fn: Fn, **how: Any) -> PuzzleError:
    """The error that a run ends with."""
    if how.get("engine") == "local":
        pytest.importorskip("torch", reason=NO_TORCH)
    with pytest.raises(PuzzleError) as caught:
        run(fn, **{**SIZE, **how})
    assert isinstance(caught.value.run, Run)
    return caught.value


@cache
def right() -> Run:
    """What the program does without a mistake."""
    return run(function(changed("fsdp", "right", ("return model", "return model  # right"))), **SIZE)  # type: ignore[arg-type]


def log(done: Run, rank: int) -> list[Event]:
    return [event for event in done.events if event.rank == rank]


@cache
def broken_off(name: str, engine: str) -> PuzzleError:
    """The error of a program that fails in the middle."""
    return failed(function(CUT[name]), timeout=30.0, engine=engine)  # type: ignore[arg-type]


@engines
@pytest.mark.parametrize("name", CUT)
def test_the_log_up_to_the_error_is_the_beginning_of_the_whole(name: str, engine: str) -> None:
    error = broken_off(name, engine)
    assert SAYS[name] in str(error)
    last = ("scatterreduce", 3) if name == "a wrong weight" else ("backward", 2)  # then they wait for each other
    for rank in range(SIZE["ranks"]):
        done, whole = log(error.run, rank), log(right(), rank)
        assert done == whole[: len(done)]
        assert (done[-1].kind, done[-1].layer) == last
    assert error.run.time == max(event.end for event in error.run.events) < right().time
    assert error.place.tick is None or error.place.tick <= error.run.time


@engines
def test_a_swallowed_error_ends_no_run_and_the_log_is_whole(engine: str) -> None:
    error = failed(function(SWALLOWED), engine=engine)  # type: ignore[arg-type]
    assert error.place[:3] == (0, "forward", 0)
    assert error.run.events == right().events


@engines
@pytest.mark.parametrize(
    ("program", "says"), [(LEFT, "started and never awaited"), (LONE, "sent and never received")], ids=["left", "lone"]
)
def test_what_is_left_over_is_in_the_log(program: Program, says: str, engine: str) -> None:
    error = failed(function(program), engine=engine)  # type: ignore[arg-type]
    assert says in str(error)
    assert [event for event in error.run.events if event.kind not in ("pass_to", "end")] == [
        event for event in right().events if event.kind != "end"
    ]
    assert [event.rank for event in error.run.events if event.kind == "pass_to"] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["an input out of range", "gradients of the wrong micro-batch"])
def test_in_a_pipeline_every_rank_keeps_what_it_has_done(name: str) -> None:
    [program] = [program for program in MISTAKES if (program.puzzle, program.name) == ("gpipe", name)]
    size = puzzles()["gpipe"].size
    error = failed(function(program), **size)  # type: ignore[arg-type]
    whole = run(function(changed("gpipe", "right", ("return model", "return model  # right"))), **size)  # type: ignore[arg-type]
    ran = [log(error.run, rank) for rank in range(size["ranks"])]
    shapes = [[(event.kind, event.layer) for event in events] for events in ran]
    for rank, shape in enumerate(shapes):
        assert shape == [(event.kind, event.layer) for event in log(whole, rank)][: len(shape)]
    assert any(shapes) and error.place.rank is not None
    assert max(event.end for event in ran[error.place.rank]) == error.place.tick


@engines
@pytest.mark.parametrize("name", CUT)
def test_a_failed_run_can_be_looked_at(name: str, engine: str) -> None:
    error = broken_off(name, engine)
    assert repr(error.run).startswith("fsdp on 4 ranks: time 1") and len(str(error.run).splitlines()) >= 5
    assert "<svg" in drawing.draw(error.run)._repr_html_()
    assert drawing.play(error.run)._repr_html_()
    with pytest.raises(PuzzleError, match="layer 0: no rank has set a final weight"):
        error.run.check()


@engines
@pytest.mark.parametrize("program", [SWALLOWED, LEFT, LONE], ids=["swallowed", "left", "lone"])
def test_right_weights_do_not_make_a_failed_run_correct(program: Program, engine: str) -> None:
    error = failed(function(program), engine=engine)  # type: ignore[arg-type]
    with pytest.raises(PuzzleError, match="the final weights are right, but the run failed"):
        error.run.check()
    assert error.run.failed and not right().failed


def test_a_run_that_fails_at_once_can_be_looked_at_as_well() -> None:
    def nothing(model: Model) -> None:
        raise ValueError("oh")

    error = failed(nothing)
    assert error.run.events == () and repr(error.run) == "nothing on 4 ranks: time 0 ticks, peak memory 0 elements"
    assert str(error.run).splitlines()[1:3] == ["tick    0", "rank 0  !"]
    assert "<svg" in drawing.draw(error.run)._repr_html_() and drawing.play(error.run)._repr_html_()
    with pytest.raises(PuzzleError, match="not attempted yet"):
        error.run.check()


def test_an_error_travels_without_its_run() -> None:
    for name in ("a wrong weight", "a deadlock", "an error of its own"):
        error = broken_off(name, "simulated")
        there = pickle.loads(pickle.dumps(error))
        assert (type(there), str(there), there.place, there.run) == (type(error), str(error), error.place, None)


NAMES = """
ddp: everybody trains micro-batch 0
ddp: no sum
ddp: the layers in the wrong order
ddp: ranks sum in different orders
fsdp: one shard short
fsdp: ranks in different collectives
fsdp: the same shard everywhere
fsdp: a shard out of range
fsdp: no gather
fsdp: no await at the gather
fsdp: a tensor edited
fsdp: weights added
fsdp: a call asked for what a tensor has
fsdp: a model of its own
fsdp: everything loaded instead of gathered
fsdp: a whole weight by hand
gpipe: gradients of the wrong micro-batch
pipeline: all receive first
pipeline: a message that nobody receives
replica_fsdp: both replicas train the same
replica_fsdp: the axes changed places
replica_fsdp: an axis that is not there
"""
NAMED = [program for program, title in zip(MISTAKES, titles(MISTAKES), strict=True) if title in NAMES.split("\n")]


def orders(ranks: int) -> list[list[int]]:
    """Forwards, backwards, and shuffled."""
    shuffled = [random.Random(seed).sample(range(ranks), ranks) for seed in (4, 9)]
    return [[*range(ranks)], [*range(ranks)][::-1], *shuffled]


def told(fn: Fn, size: dict[str, Any]) -> PuzzleError:
    """The error, which is the same in whichever order the ranks come."""
    errors = []
    for order in orders(size["ranks"]):
        with pytest.raises(PuzzleError) as caught:
            run(fn, **size, _order=order).check()
        errors.append(caught.value)
    assert len({str(error) for error in errors}) == len({error.place for error in errors}) == 1
    logs = [error.run.events for error in errors if error.run is not None]
    assert all(events == logs[0] for events in logs)
    return errors[0]


@pytest.mark.parametrize("program", NAMED, ids=titles(NAMED))
def test_the_error_is_the_same_whoever_came_first(program: Program) -> None:
    assert len(NAMED) == len(NAMES.strip().split("\n"))
    told(function(program), puzzles()[program.puzzle].size)  # type: ignore[arg-type]


EVERYBODY = {
    "no await": ("weight = model.allgather(model.weights[0], 0)", "model.forward(0, x, weight)"),
    "no await, and asked": ("model.allgather(model.weights[0], 0).shards",),
    "no await, and added": ("model.allreduce(model.fake_grad(0, []), 0) + 1",),
    "an incomplete weight": ("model.forward(0, x, model.weights[0])",),
    "no tensor stored": ("model.activations[1] = 3",),
    "nothing is there": ("model.activations[1]",),
    "a tensor edited": ("model.weights[0].layer = 1",),
    "a label asked for that is none": ("model.weights[0].color",),
    "cut too small": ("model.weights[0].shard(0, 10 ** 9)",),
    "another rank's layer": ("await model.allgather(model.weights[0], 1)",),
    "no tensor gathered": ("await model.allgather(None, 0)",),
    "a final weight of another layer": ("model.set_final_weight(1, model.weights[0])",),
    "a layer out of range": ("model.load_weights(9)",),
    "a micro-batch out of range": ("model.get_activation([9])",),
    "a message to nobody": ("await model.pass_to(9, x)",),
    "a message to itself": ("await model.pass_to(model.rank, x)",),
    "an axis that is not there": ("await model.allgather(model.weights[0], 0, axis='box')",),
    "ValueError": ("raise ValueError('oh')",),
    "PuzzleError": ("raise PuzzleError('oh')",),
    "an error in a task": ("async def child(): raise ValueError('oh')", "await asyncio.gather(child(), child())"),
    "swallowed": ("try: model.weights[0].layer = 1", "except AssertionError: pass"),
    "swallowed, with a place": ("try: model.load_weights(9)", "except AssertionError: pass"),
    "never awaited": ("model.pass_to((model.rank + 1) % model.RANKS, 'x')",),
}
"""Mistakes that every rank makes, after an operation and a sum over all ranks."""
HEAD = """
async def everybody(model):
    model.weights[0], model.opt_states[0] = model.load_weights(0, model.rank, model.RANKS)
    x = model.activations[0] = model.get_activation([model.rank])
    model.weights["whole"] = await model.allgather(model.weights[0], 0)
    model.forward(0, x, model.weights["whole"])
"""


@pytest.mark.filterwarnings("ignore:coroutine .*child.* was never awaited")
@pytest.mark.parametrize("name", EVERYBODY)
def test_a_mistake_that_all_make_is_told_of_rank_0(name: str) -> None:
    source = HEAD + "".join(f"    {line}\n" for line in EVERYBODY[name])
    ast.parse(source)
    fn = function(Program("everybody", name, "import asyncio\nfrom lib import PuzzleError\n" + source))
    error = told(fn, SIZE)  # type: ignore[arg-type]
    assert error.place.rank == 0 and "rank 0" in str(error)


@pytest.mark.parametrize("other", [None, 0, 1])
def test_ranks_in_different_collectives_are_told_so_where_a_later_call_is_awaited_first(other: int | None) -> None:
    """Nobody hears the error of the first calls, and the second ones stand behind them: that is no riddle of a deadlock
    in which everybody waits and nobody is missing."""

    async def program(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0, model.rank, 2)
        first = model.scatterreduce(model.fake_grad(0, []), 0) if model.rank else model.allgather(model.weights[0], 0)
        if model.rank == other:
            await first
        model.weights[1] = await model.allgather(model.weights[0], 0)
        await first

    error = told(program, {"ranks": 2, "layers": 1, "batches": 2})
    assert error.problem == "rank 0 calls allgather(layer 0) where rank 1 calls scatterreduce(layer 0)"


def test_an_error_that_was_caught_is_told_and_not_the_deadlock_that_came_of_it() -> None:
    async def program(model: Model) -> None:
        with suppress(PuzzleError):
            model.load_weights(9 if model.rank else 0)
            await model.allreduce(model.fake_grad(0, []), 0)

    error = told(program, SIZE)
    assert error.place.rank == 1 and "load_weights" in str(error)


def test_of_errors_at_several_ticks_the_earliest_is_told_however_it_was_made() -> None:
    def late(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        if model.rank:
            model.activations[0] = model.get_activation([0])
            model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
        try:
            model.weights[0].layer = 1  # type: ignore[misc]
        except AssertionError:
            model.load_weights(9)

    error = told(late, SIZE)
    assert error.place == (0, "", None, None, 0.0, "") and "tensors are frozen" in str(error)
