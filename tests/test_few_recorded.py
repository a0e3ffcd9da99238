"""A recording of few ranks: it is one of all ranks, written shorter, and whoever sends it gains nothing by that."""

import copy
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import lib.running.few as module
from lib import Model, PuzzleError
from lib.course.layouts import Size
from lib.course.specs import machine_of
from lib.machine.check import TRAINED
from lib.machine.outcome import Outcome
from lib.machine.simulator import LocalSimulator
from lib.recording.of_few import ReplayOfFew
from lib.recording.replay import Replay
from lib.recording.wire import ProtocolError
from lib.referee import worker
from lib.represent.symmetry import Symmetry
from tests.one_rank_differs import one_rank_differs
from tests.slow import some
from tools.bench import fsdp, hybrid, pipeline

LARGE: Size = {"ranks": 48, "layers": 3, "batches": 48}
BOXES: Size = {**LARGE, "mesh": {"replica": 6, "shard": 8}, "node_size": 8}


@pytest.fixture
def four_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record few of any machine, and of functions that read tables, too."""
    monkeypatch.setattr(module, "MANY", 4)
    monkeypatch.setattr(module, "HALF", 1)
    monkeypatch.setattr(module, "only_its_model", lambda fn: True)


def said(fn: Callable[[Model], Any], size: Size, few: bool) -> Any:
    """What a worker sends of a run, as it arrives."""
    task = {"name": "fn", "size": size, "cost": "default", "timeout": 60, "few": few}
    return json.loads(json.dumps(worker._run({"fn": fn}, task, [])))


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker in this process, which is to live on."""
    monkeypatch.setattr(worker, "_limit_next", lambda seconds: None)


def of_few(size: Size, recording: Any, axes: Any, also: Any, noted: int | None = None) -> Outcome:
    """What the grader makes of a recording of few."""
    replay = ReplayOfFew(machine_of(size, "default"), axes, also, noted)
    return replay.outcome(recording, size["layers"], size["batches"], TRAINED[0], "fn", 60.0, math.inf)


def of_all(size: Size, recording: Any) -> Outcome:
    """What it makes of one of all."""
    replay = Replay(LocalSimulator(machine_of(size, "default"), graded=True), size["layers"], size["batches"])
    replay.play(recording, math.inf)
    return replay.outcome("fn")


def told(outcome: Outcome) -> tuple[object, ...]:
    """All that is judged."""
    return outcome.time, outcome.memory, outcome.events, outcome.final_states, outcome.verify()


# -- what another rank calls ------------------------------------------------------------------------------------------

GIVEN = {
    "load_weights": ".n.", "get_activation": "N", "fake_grad": ".N", "compute": "..T.", "set_final_weight": ".t",
    "meet": ".t..", "meet_list": ".T..", "pass_to": "ntn", "receive": "n", "wait": "c", "fetch": "cn", "store": "t",
    "drop": "t", "shard": "tn.", "combine": "tt", "add": "tt", "share": "", "finish": "",
}  # fmt: skip
"""What each verb is given: t, c for a tensor and a call, n for a number that moves on, T and N for lists of these."""


class Ranks:
    """All ranks, which call what follows from the calls of few."""

    def __init__(self, size: Size, few: ReplayOfFew) -> None:
        self.few, self.symmetry = few, few.symmetry
        shape = machine_of(size, "default")
        self.replay = Replay(LocalSimulator(shape, graded=True), size["layers"], size["batches"])
        self.made: dict[int, dict[str, list[int]]] = {rank: {"t": [], "c": []} for rank in range(size["ranks"])}
        self.known: dict[str, dict[int, int]] = {"t": {}, "c": {}}  # of few: the place among those of the same rank

    def all_call(self, calls: Sequence[Any]) -> Outcome:
        """Carry out what all call."""
        own: dict[int, list[Any]] = {}
        for call in calls:  # whose are the tensors and calls of these numbers?
            self.few_made(call)
            if call[0] in GIVEN:
                own.setdefault(call[1], []).append(call)
        at = Counter[int]()
        for verb, rank, *_ in calls:
            if verb in GIVEN:
                for follower in range(len(self.made)):
                    base, further = self.symmetry.stands_for(follower, self.symmetry.axes)
                    if base == rank:
                        others = [(own[second][at[rank]], count) for second, count in further]
                        self.call(follower, own[rank][at[rank]], others)
                at[rank] += 1
        return self.replay.outcome("fn")

    def few_made(self, call: Any) -> None:
        replay = self.played
        before = {"t": len(replay.tensors), "c": len(replay.calls)}
        replay.carry_out(call)
        for kind, things in (("t", replay.tensors), ("c", replay.calls)):
            for number in range(before[kind], len(things)):
                self.counts[call[1], kind] += 1
                self.known[kind][number] = self.counts[call[1], kind] - 1

    def start(self, layers: int, batches: int) -> None:
        """Begin to carry out the calls of few, which tells what each makes."""
        simulator: Any = self.few.simulator
        self.played, self.counts = Replay(simulator, layers, batches), Counter[tuple[int, str]]()

    def call(self, rank: int, call: Any, others: Sequence[tuple[Any, int]]) -> None:
        """Let a rank call what follows from the call of the first one, and from those of the second ones."""
        verb, _, coroutine, *given = call
        there = [other[3:] for other, _ in others]
        counts = [count for _, count in others]
        written = [
            self.given(kind, one, [other[place] for other in there], counts, rank)
            for place, (kind, one) in enumerate(zip(GIVEN[verb], given, strict=True))
        ]
        replay, made = self.replay, self.made[rank]
        if verb == "fetch":
            while not replay.calls[written[0]].over:
                assert replay.simulator.decide_next()
        tensors, calls = len(replay.tensors), len(replay.calls)
        replay.carry_out([verb, rank, coroutine, *written])
        made["t"] += range(tensors, len(replay.tensors))
        made["c"] += range(calls, len(replay.calls))

    def given(self, kind: str, one: Any, others: Sequence[Any], counts: Sequence[int], rank: int) -> Any:
        """What a rank gives to a call."""
        if one is None or kind == ".":
            return one
        if kind in "TN":
            return [
                self.given(kind.lower(), each, [other[place] for other in others], counts, rank)
                for place, each in enumerate(one)
            ]
        if kind == "n":
            return one + sum((other - one) * count for other, count in zip(others, counts, strict=True))
        return self.made[rank][kind][self.known[kind][one]]


def written_out(size: Size, recording: Any, axes: Any, also: Any) -> Outcome:
    """What comes of all calls that a recording of few says."""
    ranks = Ranks(size, ReplayOfFew(machine_of(size, "default"), axes, also))
    ranks.start(size["layers"], size["batches"])
    return ranks.all_call([call for call in recording["calls"] if call[0] != "seeks"])


@pytest.mark.parametrize(("program", "size"), [(fsdp, LARGE), (hybrid, BOXES)])
def test_it_says_what_a_recording_of_all_says(program: Callable[[Model], Any], size: Size) -> None:
    recording, how, axes, also = said(program, size, few=True)
    assert how == "few" and len({call[1] for call in recording["calls"]}) == 2 ** len(axes)
    few, whole = of_few(size, recording, axes, also), of_all(size, said(program, size, few=False)[0])
    assert told(few) == told(whole) == told(written_out(size, recording, axes, also))


def test_where_it_is_not_proved_all_are_recorded() -> None:
    assert said(pipeline, {**LARGE, "layers": 48}, few=True) == [None, "all"]
    assert said(fsdp, {"ranks": 16, "layers": 2, "batches": 16}, few=True) == [None, "all"]

    async def endless(model: Model) -> Model:
        raise SystemExit

    assert said(endless, LARGE, few=True) == [None, "all"]


@pytest.mark.usefixtures("four_are_many")
def test_all_calls_that_it_says_make_the_run_that_it_is_taken_for() -> None:
    found = Counter[str]()
    seeds = some(range(1000), 25)
    for seed in seeds:
        program, size = one_rank_differs(seed, 9), {"ranks": 9, "layers": 2, "batches": 18}
        recording, how, *ranks = said(program.function(), size, few=True)
        found[how] += 1
        if how == "few":
            try:
                few = of_few(size, recording, *ranks)
            except PuzzleError:
                found["refused"] += 1
                continue
            whole = of_all(size, said(program.function(), size, few=False)[0])
            written = written_out(size, recording, *ranks)
            figures = [(one.time, one.memory, one.events, one.final_states) for one in (few, whole, written)]
            assert figures[0] == figures[1] == figures[2], program.source
    assert min(found["few"], found["all"]) > len(seeds) / 40


# -- lies -------------------------------------------------------------------------------------------------------------


def with_call(recording: Any, change: Callable[[list[Any]], object]) -> Any:
    """A recording with its calls changed."""
    changed = copy.deepcopy(recording)
    for call in changed["calls"]:
        change(call)
    return changed


def test_lies_are_refused() -> None:
    recording, _, axes, also = said(fsdp, LARGE, few=True)

    def same_shard(call: list[Any]) -> None:
        call[4:5] = [0] if call[0] == "load_weights" else call[4:5]

    def far_shards(call: list[Any]) -> None:
        call[4:5] = [call[4] * 2] if call[0] == "load_weights" else call[4:5]

    def far_batches(call: list[Any]) -> None:
        call[3:4] = [[call[1] * 2]] if call[0] == "get_activation" else call[3:4]

    def same_batch(call: list[Any]) -> None:
        call[3:4] = [[0]] if call[0] == "get_activation" else call[3:4]

    for lie in (same_shard, far_shards, far_batches):
        with pytest.raises(PuzzleError):
            of_few(LARGE, with_call(recording, lie), axes, also)
    with pytest.raises(PuzzleError):
        of_few(LARGE, with_call(recording, same_batch), axes, also).verify()
    left_out = {**recording, "calls": [call for call in recording["calls"] if call[1] == 0]}
    with pytest.raises((PuzzleError, ProtocolError)):
        of_few(LARGE, left_out, axes, also)
    stopped = {**recording, "calls": [call for call in recording["calls"] if call[1] == 0 or call[0] != "finish"][:-9]}
    with pytest.raises(PuzzleError):
        of_few(LARGE, stopped, axes, also)


@pytest.mark.parametrize(
    ("axes", "also"),
    [
        ([], []), (["x"], []), ([1], []), (["ranks", "ranks"], []), ([["ranks"]], []), (["ranks"], [[48]]),
        (["ranks"], [[-1]]), (["ranks"], [[0, 0]]), (["ranks"], [0]), (["ranks"], [["0"]]), (["ranks"], [[True]]),
        (["ranks"], [[place] for place in range(30)]),
    ],
)  # fmt: skip
def test_what_are_no_ranks_of_a_machine_is_refused(axes: Any, also: Any) -> None:
    recording, *_ = said(fsdp, LARGE, few=True)
    with pytest.raises((ProtocolError, PuzzleError)):
        of_few(LARGE, recording, axes, also)


def test_notes_are_those_of_a_run_of_all() -> None:
    recording, _, axes, also = said(hybrid, BOXES, few=True)
    noted = of_few(BOXES, recording, axes, also, noted=1)
    assert noted.peak is not None and noted.peak.rank == 1
    assert sum(one.elements for one in noted.peak.held) == noted.memory
    with pytest.raises(ProtocolError):
        of_few(BOXES, recording, axes, also, noted=47)


def test_ranks_are_few() -> None:
    mesh = machine_of(BOXES, "default").mesh
    assert len(Symmetry(mesh, ["replica", "shard"], least=0).run) == 4
