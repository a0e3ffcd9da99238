"""Recordings: an honest run that is replayed is the same run, and nonsense in one makes nothing."""

import asyncio
import contextlib
import functools
import gc
import json
import math
import random
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from lib import Dist, Model, PuzzleError, Run, Weight, run
from lib.basics.errors import Deadlock
from lib.course.specs import machine_of, puzzles
from lib.grading.judge import check
from lib.grading.submission import load
from lib.machine.cost import Shape
from lib.machine.outcome import Outcome
from lib.machine.simulator import LocalSimulator
from lib.recording.recorder import recorded_run, recorder_for
from lib.recording.replay import MOST, MOST_ERRORS, Replay
from lib.recording.safe import LONGEST_TEXT, pack_error, presentable, shown, unpack_error
from lib.recording.verbs import VERBS
from lib.recording.wire import LONGEST, ProtocolError, Wire
from lib.running.execution import cause, execute, left_over
from lib.running.limits import TimeIsUp, watchdog
from tests import plain_programs
from tests.corpus import Program
from tests.corpus.honest import HONEST
from tests.programs import SLACK, slack, small_size, solutions


def calls_of(recorder: Any) -> dict[str, Any]:
    """What a recorder has noted, without its diary."""
    return {part: written for part, written in recorder.whole().items() if part != "diary"}


def recorded(fn: Callable[[Model], Any], size: dict[str, Any], cost: str = "default") -> tuple[Any, PuzzleError | None]:
    """Run a function beside a recorder. Return what JSON makes of the recording, and the error of the run."""
    shape = machine_of(size, cost)
    recorder, told = recorder_for(shape), None
    dist = Dist.of(shape, recorder.as_simulator)
    try:
        execute(fn, [Model(rank, dist, size["layers"], size["batches"]) for rank in range(shape.everyone)], 60)
    except PuzzleError as error:
        told = error
    return json.loads(json.dumps(calls_of(recorder))), told


def replayed(recording: Any, size: dict[str, Any], cost: str = "default") -> Replay:
    """Carry out a recording."""
    replay = Replay(
        LocalSimulator(machine_of(size, cost), graded=True),
        size["layers"],
        size["batches"],
        size.get("train", "weights"),
    )
    replay.play(recording, math.inf)
    return replay


def through_a_recording(fn: Callable[[Model], Any], size: dict[str, Any], cost: str = "default") -> Outcome:
    """Record a function's run, and return the outcome of the replay."""
    recording, told = recorded(fn, size, cost)
    replay = replayed(recording, size, cost)
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
    outcome = through_a_recording(fn, size)
    assert same(outcome, run(fn, **size))
    check(outcome, puzzles()[program.puzzle], size)


def test_a_line_is_noted_to_the_end_of_its_call() -> None:
    basic, spec = next(solutions())
    whole, _ = recorded_run(basic, machine_of(spec["size"], "default"), layers=2, batches=4, timeout=60)
    assert all(text.count("(") == text.count(")") for _, text, _ in whole["diary"][1] if "model." in text)


async def several_at_once(model: Model) -> None:
    """Coroutines that hold tensors over each other's operations, the first of them among these."""
    model.weights[0], _ = model.load_weights(0)

    async def one(batch: int) -> None:
        out = model.forward(0, model.get_activation([batch]), model.weights[0])
        await asyncio.sleep(0)
        model.activations[batch] = out
        await asyncio.sleep(batch)
        model.grad_activations[batch] = model.loss(model.activations.pop(batch))

    await asyncio.gather(*[one(batch) for batch in range(model.BATCHES)])


@pytest.mark.parametrize("fn", [several_at_once, slack("ddp")], ids=["several at once", "one by one"])
def test_a_replay_leaves_no_circle(fn: Any) -> None:
    """A puzzle is graded at thirty sizes with the collector off: what would hang together in a circle would be kept."""
    size = {"ranks": 2, "layers": 1, "batches": 2}
    recording, _ = recorded(fn, size)
    gc.disable()
    try:
        replay = replayed(recording, size)
        left = [weakref.ref(replay), *map(weakref.ref, replay.ranks)]
        outcome = replay.outcome("program")
        assert outcome.events and all(one() is not None for one in left)
        del replay
        assert [one() for one in left] == [None] * 3
    finally:
        gc.enable()


async def loses_it(model: Model) -> None:
    """A rank with another coroutine beside it issues an operation before it stores what the last one gave."""
    model.weights[0], _ = model.load_weights(0)
    other = asyncio.create_task(asyncio.sleep(0))
    out = model.forward(0, model.get_activation([0]), model.weights[0])
    model.forward(0, model.get_activation([1]), model.weights[0])
    model.activations[0] = out
    await other


def test_coroutines_of_a_rank_are_told_apart_in_a_replay() -> None:
    size = {"ranks": 1, "layers": 1, "batches": 3}
    assert same(through_a_recording(several_at_once, size), run(several_at_once, **size))
    for way in (lambda: run(loses_it, **size), lambda: through_a_recording(loses_it, size)):
        with pytest.raises(PuzzleError, match="was not stored when rank 0 issued forward"):
            way()


async def looks_around(model: Model) -> None:
    """All that a program can ask of a rank."""
    model.weights[0], model.opt_states[0] = model.load_weights(0, model.rank, 3)
    whole = asyncio.ensure_future(model.allgather(model.weights[0], 0))
    part = model.weights[0].shard(0, 2).combine(model.weights[0].shard(1, 2))
    assert part == model.weights[0] and part.total == 3
    zero = sum([model.fake_grad(0, []), model.fake_grad(0, [])])
    model.grad_weights["zero"] = await model.allreduce(zero, 0)
    model.weights["all"] = await whole
    sent = model.pass_to((model.rank + 1) % 3, f"from {model.rank}")
    back, _ = await asyncio.gather(model.receive(), sent)
    assert back == f"from {(model.rank - 1) % 3}"
    seen.append((model.rank, model.time, model.memory(), model.log, repr(model), model.weights["all"].is_complete()))


seen: list[Any] = []


def test_what_a_rank_sees_is_the_same_beside_a_recorder() -> None:
    size = {"ranks": 3, "layers": 2, "batches": 3}
    seen.clear()
    near = run(looks_around, **size)
    here = sorted(seen)
    seen.clear()
    assert same(through_a_recording(looks_around, size), near)
    assert sorted(seen) == here and len(here) == 3


# -- random programs -----------------------------------------------------------------------------------------------


def judged(way: Callable[[], Run | Outcome]) -> tuple[Outcome | None, str]:
    """What becomes of a run: its outcome, or its error in words."""
    try:
        return way(), ""
    except PuzzleError as error:
        return None, str(error)


inputs_at_will = plain_programs.inputs_at_will


@pytest.mark.usefixtures("inputs_at_will")
@pytest.mark.parametrize("seed", range(80))
def test_a_random_program_that_is_replayed_is_the_same(seed: int) -> None:
    """With its log and figures, or with its error, place and line."""
    program = plain_programs.program_of(random.Random(seed))
    size, fn = program.size, plain_programs.perform(program)
    cost = size.pop("cost")
    shape = Shape.of(size["ranks"], size["mesh"], size["node_size"], cost, links=size["links"])
    recorder = recorder_for(shape)
    dist = Dist.of(shape, recorder.as_simulator)
    models = [Model(rank, dist, size["layers"], size["batches"]) for rank in range(shape.everyone)]

    def there() -> Outcome:
        with contextlib.suppress(PuzzleError):
            execute(fn, models, 60)
        recording = json.loads(json.dumps(calls_of(recorder)))
        replay = Replay(LocalSimulator(shape, graded=True), size["layers"], size["batches"])
        replay.play(recording, math.inf)
        if replay.stuck is not None:
            raise cause([*replay.errors, replay.stuck])
        if not replay.errors and (left := left_over(models)) is not None:
            raise left  # as a worker does, who knows the line
        return replay.outcome("program")

    (near, here), (far, elsewhere) = judged(lambda: run(fn, **size, cost=cost)), judged(there)
    assert here == elsewhere
    assert near is None or (far is not None and same(far, near))


# -- what goes wrong -----------------------------------------------------------------------------------------------

AXIS, BY_HAND = "an axis that is none", "a tensor made by hand"
WRONG: dict[str, tuple[Callable[[Model], Any], str]] = {
    "a layer that is text": (lambda m: m.load_weights("0"), "layer is out of range"),  # type: ignore[arg-type]
    "a micro-batch out of range": (lambda m: m.get_activation([9]), "from 0 to 1"),
    BY_HAND: (lambda m: m.weights.update({0: type(m.load_weights(0)[0])(0, 2, 0)}), "made up"),
    "a tensor that is gone": (lambda m: (m.load_weights(0), m.loss(m.get_activation([0]))), "output of the last layer"),
    AXIS: (lambda m: m.allgather(m.load_weights(0)[0], 0, ["a"]), "no mesh axis"),  # type: ignore[arg-type]
    "an error swallowed": (lambda m: swallowing(m), "from 0 to 1"),
    "a store that is wrong, told long before": (lambda m: stores_late(m), "was not stored when rank 0 issued"),
    "a store that is wrong, and the last of all": (lambda m: stores_last(m), "was not stored when rank 0 issued"),
    "a final weight that is wrong": (lambda m: m.set_final_weight(1, m.load_weights(0)[0]), "is that of layer 0"),
    "a wrong store, and nothing any more": (lambda m: waits_for_ever(m), "was not stored when rank 0 issued"),
    "a call that cannot be started": (lambda m: m.receive(7), "src is out of range"),
    "such a call, awaited twice": (lambda m: awaits_twice(m), "src is out of range"),
}


def stores_last(model: Model) -> None:
    weight, _ = model.load_weights(0)
    model.forward(0, model.get_activation([0]), weight)
    model.weights[0] = weight


def stores_late(model: Model) -> None:
    stores_last(model)
    model.weights.pop(0)
    model.load_weights(1)


async def waits_for_ever(model: Model) -> None:
    stores_last(model)
    await asyncio.get_running_loop().create_future()


async def awaits_twice(model: Model) -> None:
    call: Any = None
    for _ in range(3):
        try:
            call = call or model.receive(7)
            await call
        except PuzzleError:
            continue


def swallowing(model: Model) -> None:
    for _ in range(3):
        try:
            model.load_weights(7)
        except PuzzleError:
            continue


@pytest.mark.parametrize("name", WRONG)
def test_errors_come_out_of_a_replay_with_the_learners_line(name: str) -> None:
    program, says = WRONG[name]
    size = {"ranks": 1, "layers": 2, "batches": 2}
    with pytest.raises(PuzzleError, match=says) as near:
        run(program, **size)
    recording, told = recorded(program, size)
    assert str(told) == str(near.value)
    replay = replayed(recording, size)
    assert "test_recording.py" in near.value.line
    if name in (AXIS, BY_HAND):
        assert not replay.errors  # Model has not asked the simulator; nothing is recorded of what no call has made
        return
    assert str(cause(replay.errors)) == str(near.value)
    with pytest.raises(PuzzleError, match=says):
        replay.outcome("program")


def test_a_deadlock_comes_out_of_a_replay() -> None:
    async def waits(model: Model) -> None:
        await model.receive()

    size = {"ranks": 2, "layers": 1, "batches": 1}
    recording, told = recorded(waits, size)
    assert isinstance(told, Deadlock) and "ranks 0, 1 wait for receive from anyone" in str(told)
    assert str(replayed(recording, size).stuck) == str(told)


def test_a_run_that_never_ends_is_recorded_as_far_as_it_came() -> None:
    """Also one that catches what ends it."""

    async def again(model: Model) -> None:
        while True:
            with contextlib.suppress(BaseException):
                model.load_weights(0)

    shape = Shape.of(1)
    recorder = recorder_for(shape)
    with pytest.raises(PuzzleError, match="did not end"):
        execute(again, [Model(0, Dist.of(shape, recorder.as_simulator), 1, 1)], 0.3)
    replay = replayed(json.loads(json.dumps(calls_of(recorder))), {"ranks": 1, "layers": 1, "batches": 1})
    assert len(replay.tensors) == 2 * len(recorder.notes) > 0 and not replay.errors


def test_what_is_raised_while_a_call_is_carried_out_ends_the_recording() -> None:
    """The machine is half way in it, so what comes after it would not be the same in a replay."""
    recorder = recorder_for(Shape.of(1))
    model = Model(0, Dist.of(Shape.of(1), recorder.as_simulator), 1, 1)
    recorder.simulator.terms.values.weight = None  # type: ignore[method-assign]
    with pytest.raises(TypeError):
        model.load_weights(0)
    with pytest.raises(TimeIsUp):
        model.load_weights(0)
    assert recorder.notes == []


# -- recordings that were written by somebody else -------------------------------------------------------------------


async def passes_on(model: Model) -> None:
    """A receive from anyone, of two that come, and a mistake of which nothing is said."""
    if model.rank:
        await model.pass_to(0, model.rank)
        return
    for _ in range(2):
        await model.receive()
    with contextlib.suppress(PuzzleError):
        model.load_weights(9)


SIZE = {"ranks": 3, "layers": 1, "batches": 3}


def edited(edit: Callable[[dict[str, Any]], None]) -> Replay:
    """The replay of a recording that was changed."""
    recording, _ = recorded(passes_on, SIZE)
    edit(recording)
    return replayed(recording, SIZE)


def where(recording: dict[str, Any], verb: str) -> int:
    return next(place for place, call in enumerate(recording["calls"]) if call[0] == verb)


def another_sender(recording: dict[str, Any]) -> None:
    call = next(call for call in recording["calls"] if call[:2] == ["fetch", 0])
    call[-1] = 3 - call[-1]


def fetched_too_early(recording: dict[str, Any]) -> None:
    calls = recording["calls"]
    calls.insert(where(recording, "receive") + 1, next(call for call in calls if call[:2] == ["fetch", 0]))


REFUSED: dict[str, Callable[[dict[str, Any]], None]] = {
    "a message from another rank": another_sender,
    "a message before it comes": fetched_too_early,
    "a call that is said to have failed": lambda one: one["failed"].append([0, "line 1"]),
    "more than calls": lambda one: one.update(verdict="PASS"),
    "no calls": lambda one: one.pop("calls"),
    "calls that are a text": lambda one: one.update(calls="PASS"),
    "no lines": lambda one: one.pop("failed"),
    "a line that is a number": lambda one: one.update(failed=[[0, 1]]),
    "a line at a place that is a text": lambda one: one.update(failed=[["0", ""]]),
    "lines that are none": lambda one: one.update(failed=[0]),
    "too many calls": lambda one: one.update(calls=[["decide_next", 0, None]] * (MOST + 1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_recording_than_the_librarys_is_refused(name: str) -> None:
    with pytest.raises(ProtocolError):
        edited(REFUSED[name])
    assert len(edited(lambda recording: None).errors) == 1


def test_a_call_that_fails_here_and_is_not_said_to_fail_there_ends_the_replay() -> None:
    replay = edited(lambda recording: recording["failed"].clear())
    assert [error.line for error in replay.errors] == [""] and replay.finished < {0, 1, 2}
    with pytest.raises(PuzzleError, match="layer is out of range"):
        replay.outcome("program")


# -- nonsense ------------------------------------------------------------------------------------------------------


def office(ranks: int = 2) -> Replay:
    return Replay(LocalSimulator(Shape.of(ranks), graded=True), 2, 2)


NONSENSE: dict[str, list[Any]] = {
    "no verb": ["grade", 0, None],
    "a verb that is no text": [["compute"], 0, None],
    "too short": ["compute"],
    "no list": {"verb": "compute"},  # type: ignore[dict-item]
    "a sender that is text": ["fetch", 0, None, 0, "me"],
    "a rank too high": ["decide_next", 2, None],
    "a rank below 0": ["decide_next", -1, None],
    "a rank that is true": ["decide_next", True, None],
    "a coroutine that is text": ["decide_next", 0, "me"],
    "an argument too many": ["decide_next", 0, None, 1],
    "an argument too few": ["compute", 0, None, "forward", 0],
    "a tensor that is not there": ["compute", 0, None, "loss", None, [0], {}],
    "a tensor below 0": ["compute", 0, None, "loss", None, [-1], {}],
    "a call that is not there": ["fetch", 0, None, 0],
    "waiting for a call that is not there": ["wait", 0, None, 0],
    "batches that are no list": ["get_activation", 0, None, 0],
    "a batch that is a float": ["get_activation", 0, None, [0.0]],
    "a number beyond all bounds": ["load_weights", 0, None, 0, 0, 1 << 80],
    "an adapter with a number beyond all bounds": ["load_adapter", 0, None, 0, 0, 1 << 80],
    "options that are none": ["compute", 0, None, "loss", None, [0], []],
    "options that are lists": ["compute", 0, None, "loss", None, [0], {"keep": []}],
    "lines that are none": ["deadlock", 0, None, "all of them"],
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_no_call(name: str) -> None:
    with pytest.raises(ProtocolError):
        office().carry_out(NONSENSE[name])


def test_every_verb_refuses_arguments_of_the_wrong_kind() -> None:
    for verb, kinds in VERBS.items():
        for place in range(len(kinds)):
            for thing in ({}, [[]]):
                arguments: list[Any] = [0] * len(kinds)
                arguments[place] = thing
                with pytest.raises(ProtocolError):
                    office().carry_out([verb, 0, None, *arguments])


def test_kinds_releases_and_ends_are_checked_in_a_replay() -> None:
    replay = office()

    def made(*call: Any) -> int:
        """The number of the first tensor or call that a call makes."""
        tensors, calls = len(replay.tensors), len(replay.calls)
        replay.carry_out([*call[:2], None, *call[2:]])
        return tensors if len(replay.tensors) > tensors else calls

    weight = made("load_weights", 0, 0, 0, 1)
    state = weight + 1
    inp = made("get_activation", 0, [0])
    adapter = made("load_adapter", 0, 0, 0, 1)
    out = made("get_activation", 1, [0])
    for layer in range(2):
        own = made("load_weights", 1, layer, 0, 1)
        out = made("compute", 1, "forward", layer, [out, own], {"keep": "all"})
    saved, grad = out + 1, made("compute", 1, "loss", None, [out], {})
    for message in (
        ("compute", 0, "forward", 0, [weight, weight], {}),
        ("compute", 0, "forward", 0, [inp, state], {}),
        ("compute", 0, "forward", 0, [inp], {}),
        ("compute", 0, "loss", 0, [inp], {}),
        ("compute", 0, "loss", None, [inp], {"partial": True}),
        ("compute", 0, "forward", 0, [inp, weight, state], {}),
        ("compute", 0, "forward", 0, [inp, weight, adapter, adapter], {}),
        ("compute", 0, "backward", 0, [inp, grad, weight, adapter, saved], {}),
        ("compute", 0, "backward_input", 0, [inp, grad, weight, adapter], {}),
        ("compute", 0, "forward", 0, [inp, weight], {"partial": False}),
        ("compute", 0, "forward", 0, [inp, weight], {"keep": "most"}),
        ("compute", 0, "forward", 0, [inp, weight], {"saved": "all"}),
        ("compute", 0, "allreduce", 0, [weight], {}),
        ("compute", 0, "no operation", 0, [weight], {}),
        ("compute", 0, "update", 0, [weight, weight, state], {}),
        ("meet", 0, "forward", weight, 0, None),
        ("meet", 0, "allgather", None, 0, None),
        ("meet", 0, "allreduce", weight, 0, None),
        ("add", 0, weight, weight),
        ("combine", 0, weight, state),
        ("shard", 0, saved, 0, 2),
        ("combine", 0, saved, saved),
        ("meet", 0, "allreduce", saved, 0, None),
        ("meet", 0, "allgather", saved, 0, None),
        ("drop", 1, weight),
    ):
        with pytest.raises(ProtocolError):
            made(*message)
    with pytest.raises(PuzzleError, match="was never stored"):
        made("drop", 0, weight)
    with pytest.raises(PuzzleError, match="belongs to rank 0"):
        made("store", 1, weight)
    call = made("receive", 0, None)
    for message in (("fetch", 0, call, None), ("fetch", 1, call, None), ("wait", 1, call)):
        with pytest.raises(ProtocolError):
            made(*message)
    made("finish", 0)
    for message in (("finish", 0), ("load_weights", 0, 1, 0, 1), ("store", 0, inp)):
        with pytest.raises(ProtocolError, match="a rank that has finished"):
            made(*message)
    made("drop", 0, weight)  # an object that was freed late, in a program that may be honest
    assert replay.carry_out(["decide_next", 0, None]) is False
    assert replay.carry_out(["deadlock", 0, None, [[1, "here"]]]) is replay.stuck
    with pytest.raises(ProtocolError, match="a second deadlock"):
        made("deadlock", 0, [])


def test_what_has_been_fetched_is_not_there_to_be_fetched_again() -> None:
    replay = office()
    replay.carry_out(["pass_to", 0, None, 1, None, "text"])
    replay.carry_out(["fetch", 0, None, 0, 1])
    for call in (["fetch", 0, None, 0, 1], ["wait", 0, None, 0]):
        with pytest.raises(ProtocolError, match=r"what is not there|what cannot be fetched"):
            replay.carry_out(call)


def test_a_made_up_coroutine_ends_lives_like_any_other() -> None:
    for holder in (1, 1_000_000):
        replay = office()
        replay.carry_out(["share", 0, holder])
        replay.carry_out(["get_activation", 0, holder, [0]])
        replay.carry_out(["receive", 0, int(str(holder)), None])
        with pytest.raises(PuzzleError, match="was not stored when"):
            replay.carry_out(["store", 0, int(str(holder)), 0])


NO_LAYERS = ["\x1b[2J\x1b[32mPASS \x00 \ud800", "x" * 10_000, None, 0.5, float("nan"), float("inf"), -0.5]


@pytest.mark.parametrize("layer", NO_LAYERS, ids=repr)
@pytest.mark.parametrize("verb", ["forward", "backward", "update", "meet", "fake_grad", "set_final_weight"])
def test_a_layer_that_is_no_number_is_a_mistake_that_can_be_shown(verb: str, layer: Any) -> None:
    replay = office()
    for call in (["load_weights", 0, None, 0, 0, 1], ["get_activation", 0, None, [0]], ["fake_grad", 0, None, 0, []]):
        replay.carry_out(call)
    weight, state, inp, grad = range(4)
    message = {
        "forward": ["compute", "forward", layer, [inp, weight], {}],
        "backward": ["compute", "backward", layer, [inp, inp, weight], {}],
        "update": ["compute", "update", layer, [grad, weight, state], {}],
        "meet": ["meet", "allreduce", grad, layer, None],
        "fake_grad": ["fake_grad", layer, []],
        "set_final_weight": ["set_final_weight", layer, weight],
    }[verb]
    with pytest.raises(PuzzleError) as raised:
        replay.carry_out([message[0], 0, None, *message[1:]])
    error = presentable(raised.value)
    assert error.place.rank == 0 and "a whole number from 0 to 1" in error.expected
    assert str(error).replace("\n", "").isprintable() and len(str(error)) < 1000


@pytest.mark.parametrize("layer", [0, 0.0, -0.0, False], ids=repr)
def test_a_layer_that_is_a_number_is_a_whole_one_in_a_replay(layer: Any) -> None:
    replay = office()
    replay.carry_out(["load_weights", 0, None, 0, 0, 1])
    replay.carry_out(["get_activation", 0, None, [0]])
    [out] = replay.carry_out(["compute", 0, None, "forward", layer, [2, 0], {}])
    assert type(out.labels.layer) is int
    assert [type(event.layer) for event in replay.simulator.events(replay.ranks[0])] == [int, int, int]


def test_an_error_does_not_grow_with_what_it_is_about() -> None:
    replay = office()
    replay.carry_out(["load_weights", 0, None, 0, 0, 1])
    weight = replay.tensors[0]
    weight.labels = weight.labels._replace(shards=frozenset(range(0, 65536, 2)), total=65536)
    replay.play({"calls": [["shard", 0, None, 0, 0, 2]], "failed": []}, math.inf)
    with pytest.raises(PuzzleError, match="a part with gaps") as raised:
        replay.outcome("program")
    assert len(str(raised.value)) < LONGEST_TEXT + 500


def test_a_message_that_nobody_received_is_safe_to_show() -> None:
    replay = office()
    replay.carry_out(["pass_to", 0, None, 1, None, "\x1b[2J\ud800" * 1000])
    replay.carry_out(["wait", 0, None, 0])
    with pytest.raises(PuzzleError, match="never received") as raised:
        replay.outcome("program")
    assert str(raised.value).replace("\n", "").isprintable() and len(str(raised.value)) < LONGEST_TEXT + 500


def test_random_calls_raise_nothing_else() -> None:
    chance = random.Random(1)
    things = [0, 1, 2, 3, -1, None, True, 0.5, "allgather", "x", [], [0], [0, 1], {}, 1 << 40]
    carried_out = 0
    for _ in range(60):
        replay = office()
        for _ in range(200):
            verb = chance.choice(list(VERBS))
            arguments = [chance.choice(things) for _ in VERBS[verb]]
            try:
                replay.carry_out([verb, chance.choice([0, 1]), chance.choice([None, 1]), *arguments])
            except ProtocolError:
                continue
            except PuzzleError:
                pass
            carried_out += 1
        assert all(rank.held == [max(0, part) for part in rank.held] for rank in replay.ranks)
    assert carried_out > 1000


def test_errors_without_end_come_to_an_end() -> None:
    """And a run in which every rank makes the same mistake comes to its own end before."""
    replay = office()
    wrong = ["load_weights", 0, None, 9, 0, 1]
    calls = [wrong] * (3 * MOST_ERRORS)
    replay.play({"calls": calls, "failed": [[place, "here"] for place in range(len(calls))]}, math.inf)
    assert len(replay.errors) == 2 * MOST_ERRORS + 1  # of two ranks
    with pytest.raises(PuzzleError, match="layer is out of range"):
        replay.outcome("program")


def test_a_replay_ends_when_its_time_is_up() -> None:
    with pytest.raises(TimeoutError):
        office().play({"calls": [["decide_next", 0, None]], "failed": []}, time.monotonic() - 1)


def test_more_calls_than_are_replayed_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.recording.recorder.MOST", 100)

    def program(model: Model) -> None:
        for _ in range(200):
            model.load_weights(0)

    recording, told = recorded(program, {"ranks": 1, "layers": 1, "batches": 1})
    assert "more than 100 calls in one run" in str(told) and len(recording["calls"]) == 100


def test_text_from_elsewhere_is_safe_to_show() -> None:
    assert shown("a\x1b[2Jb\x00c\u202ed\ne\ttab", 100) == "a\ufffd[2Jb\ufffdc\ufffdd\ne\ttab"
    assert shown("x" * 50, 10) == "x" * 10 + " ..."


def test_the_pieces_of_a_run_are_counted_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every join makes a longer set, and a forward with a weight in many pieces leaves a summand that names them all:
    what they take together is bounded, whoever asks how often."""
    monkeypatch.setattr("lib.recording.replay.MOST_PIECES", 900)

    def joins(model: Model) -> None:
        whole, _ = model.load_weights(0)
        joined = whole.shard(0, 128)
        for piece in range(2, 128, 2):  # with gaps, so that the set stays as long as it is
            joined = joined.combine(whole.shard(piece, 128))
            model.weights[0] = joined

    def sums(model: Model) -> None:
        whole, _ = model.load_weights(0)
        model.activations[0] = inp = model.get_activation([0])
        model.weights[0] = gaps = functools.reduce(Weight.combine, [whole.shard(i, 128) for i in range(0, 40, 2)])
        for _ in range(40):
            model.activations[1] = model.forward(0, inp, gaps, partial=True)

    for program in (joins, sums):
        with pytest.raises(PuzzleError, match="the tensors of this run have too many pieces"):
            through_a_recording(program, {"ranks": 1, "layers": 1, "batches": 1})


# -- the wire ------------------------------------------------------------------------------------------------------


def heard(*parts: bytes, longest: int = LONGEST) -> Any:
    """What comes over a line on which this is written."""
    ours, theirs = socket.socketpair()
    writer = threading.Thread(target=lambda: (theirs.sendall(b"".join(parts)), theirs.close()))
    writer.start()
    try:
        return Wire(ours).receive(time.monotonic() + 10, longest)
    finally:
        ours.close()
        writer.join()


@pytest.mark.parametrize("line", [b"PASS\n", b"\xff\xfe\n", b"[" * 5000 + b"\n", b"9" * 5000 + b"\n", b"\n"])
def test_what_is_no_json_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        heard(line)


def test_a_line_without_end_and_a_line_that_ends_too_soon() -> None:
    with pytest.raises(ProtocolError, match=f"more than {LONGEST:,} bytes"):
        heard(b"x" * (1 << 16))
    longest = b"1" * 20 + b" " * (LONGEST - 20)
    assert heard(longest, b"\n") == int("1" * 20)
    with pytest.raises(ProtocolError, match=f"more than {LONGEST:,} bytes"):
        heard(longest, b" \n")  # also where its end comes in one piece with it
    with pytest.raises(EOFError):
        heard(b"[1")


def test_nobody_writes_and_time_is_up() -> None:
    ours, theirs = socket.socketpair()
    try:
        with pytest.raises(TimeoutError):
            Wire(ours).receive(time.monotonic() + 0.05)
    finally:
        ours.close()
        theirs.close()


def test_a_watchdog_ends_what_takes_longer_in_the_main_thread() -> None:
    def busy() -> None:
        with watchdog(0.01):
            while True:
                pass

    with pytest.raises(TimeoutError):
        busy()
    with watchdog(60):
        pass  # and is gone with what it watched


# -- errors as data --------------------------------------------------------------------------------------------


def test_an_error_crosses_as_its_rule_and_its_facts() -> None:
    with pytest.raises(KeyError) as raised:
        Model(0, Dist(1)).weights[3, "mine"]
    packed = json.loads(json.dumps(pack_error(raised.value)))
    assert packed["rule"] == "not_stored" and packed["facts"] == {"store": "weights", "key": "(3, 'mine')"}
    assert str(unpack_error(packed)) == str(raised.value)


def test_an_error_about_an_argument_crosses_as_its_problem() -> None:
    error = PuzzleError("timeout must be a number", where="run", expected="seconds", got="'x'", line="")
    there = unpack_error(json.loads(json.dumps(pack_error(error))))
    assert (there.rule, str(there)) == ("argument", str(error))


@pytest.mark.parametrize(
    "change",
    [
        {"rule": 3},
        {"facts": []},
        {"facts": {str(number): "" for number in range(9)}},
        {"facts": {"store": ["weights"], "key": "0"}},
        {"facts": {"store": {"a": 1}, "key": "0"}},
        {"facts": {"store": 1 << 70, "key": "0"}},
        {"where": []},
        {"got": None},
    ],
    ids=str,
)
def test_what_is_no_error_is_refused(change: dict[str, Any]) -> None:
    error = PuzzleError("not_stored", store="weights", key="0", line="")
    with pytest.raises(ProtocolError):
        unpack_error(pack_error(error) | change)
