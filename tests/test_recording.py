"""Recordings: an honest run that is replayed is the same run, and nonsense in one makes nothing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from lib import Model, PuzzleError, run
from lib.course.specs import machine_of
from lib.grading.submission import load
from lib.learner.dist import Dist
from lib.machine.outcome import Outcome
from lib.machine.simulator import LocalSimulator
from lib.recording.recorder import recorder_for
from lib.recording.replay import Replay
from lib.running.execution import execute
from tests.corpus import Program
from tests.corpus.honest import HONEST
from tests.programs import SLACK, slack, small_size, solutions


def recorded(fn: Callable[[Model], Any], size: dict[str, Any]) -> tuple[Any, PuzzleError | None]:
    """Run a function beside a recorder. Return what JSON makes of the recording, and the error of the run."""
    shape = machine_of(size, "default")
    recorder, told = recorder_for(shape, size["layers"], size["batches"]), None
    dist = Dist.of(shape, recorder.as_simulator)
    try:
        execute(fn, [Model(rank, dist, size["layers"], size["batches"]) for rank in range(shape.everyone)], 60)
    except PuzzleError as error:
        told = error
    return json.loads(json.dumps(recorder.recording())), told


def replayed(recording: Any, size: dict[str, Any]) -> Replay:
    """Carry out a recording."""
    replay = Replay(LocalSimulator(machine_of(size, "default"), graded=True), size["layers"], size["batches"])
    replay.play(recording, math.inf)
    return replay


def through_a_recording(fn: Callable[[Model], Any], size: dict[str, Any]) -> Outcome:
    """Record a function's run, and return the outcome of the replay."""
    recording, told = recorded(fn, size)
    replay = replayed(recording, size)
    if told is not None:
        raise told
    return replay.outcome("program")


def same(far: Outcome, near: Outcome) -> bool:
    """Whether two runs are the same in all that is judged."""
    return (
        far.events == near.events
        and (far.time, far.memory, far.host_memory) == (near.time, near.memory, near.host_memory)
        and [state._replace(kept=()) for state in far.final_states]
        == [state._replace(kept=()) for state in near.final_states]
        and [sorted(map(str, state.kept)) for state in far.final_states]
        == [sorted(map(str, state.kept)) for state in near.final_states]
    )


@pytest.mark.parametrize(
    ("fn", "spec"), [pytest.param(fn, spec, id=spec["name"]) for fn, spec in solutions(small=True)]
)
def test_a_run_that_is_replayed_is_the_same_run(fn: Any, spec: dict[str, Any]) -> None:
    for program in (fn, slack(spec["name"])) if spec["name"] in SLACK else (fn,):
        assert same(through_a_recording(program, spec["size"]), run(program, **spec["size"]))


@pytest.mark.parametrize("program", HONEST, ids=[f"{one.puzzle}: {one.name}" for one in HONEST])
def test_honest_programs_are_the_same_when_they_are_replayed(program: Program) -> None:
    fn, size = load("attempt.py", program.source)[0][program.puzzle], small_size(program.puzzle)
    assert same(through_a_recording(fn, size), run(fn, **size))
