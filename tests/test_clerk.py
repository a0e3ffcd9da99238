"""The grader's end of the line: an honest run through it is the same run, and nonsense on it makes nothing."""

from __future__ import annotations

import asyncio
import functools
import json
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from lib import Dist, Model, PuzzleError, Weight, run
from lib.basics.errors import Deadlock, witnessed
from lib.course.specs import machine_of
from lib.grading.submission import load
from lib.machine.cost import Shape
from lib.machine.outcome import Outcome
from lib.machine.simulator import LocalSimulator
from lib.remote.clerk import MOST_ERRORS, VERBS, Clerk
from lib.remote.remote_simulator import remote_simulator
from lib.remote.wire import LONGEST, LONGEST_TEXT, ProtocolError, Wire, pack, shown, unpack_error, unpack_event
from lib.running.execution import execute
from tests.corpus import Program
from tests.corpus.honest import HONEST
from tests.programs import SLACK, slack, small_size, solutions


def through_a_wire(fn: Callable[[Model], Any], size: dict[str, Any]) -> Outcome:
    """Run a function with its simulator at the other end of a socket, in this process."""
    shape = machine_of(size, "default")
    clerk = Clerk(LocalSimulator(shape, graded=True), size["layers"], size["batches"])
    ours, theirs = socket.socketpair()
    wire, trouble = Wire(theirs), []

    def serve() -> None:
        try:
            clerk.serve(Wire(ours), time.monotonic() + 60)
        except Exception as error:
            trouble.append(error)
        finally:
            ours.close()

    server = threading.Thread(target=serve)
    server.start()
    try:
        dist = Dist.of(shape, remote_simulator(wire))
        execute(fn, [Model(rank, dist, size["layers"], size["batches"]) for rank in range(shape.everyone)], 60)
        wire.send(["done"])
    finally:
        theirs.close()
        server.join()
    assert not trouble
    return clerk.outcome("program")


@pytest.mark.parametrize(
    ("fn", "spec"), [pytest.param(fn, spec, id=spec["name"]) for fn, spec in solutions(small=True)]
)
def test_a_run_through_the_wire_is_the_same_run(fn: Any, spec: dict[str, Any]) -> None:
    for program in (fn, slack(spec["name"])) if spec["name"] in SLACK else (fn,):
        near, far = run(program, **spec["size"]), through_a_wire(program, spec["size"])
        assert far.events == near.events
        assert (far.time, far.memory) == (near.time, near.memory)
        assert [(c.rank, c.began, c.finals) for c in far.final_states] == [
            (c.rank, c.began, c.finals) for c in near.final_states
        ]
        assert [sorted(map(str, c.kept)) for c in far.final_states] == [
            sorted(map(str, c.kept)) for c in near.final_states
        ]


@pytest.mark.parametrize("program", HONEST, ids=[f"{one.puzzle}: {one.name}" for one in HONEST])
def test_honest_programs_are_the_same_through_the_wire(program: Program) -> None:
    fn, size = load("attempt.py", program.source)[0][program.puzzle], small_size(program.puzzle)
    near, far = run(fn, **size), through_a_wire(fn, size)
    assert far.events == near.events and far.memory == near.memory


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


async def loses_it(model: Model) -> None:
    """A rank with another coroutine beside it issues an operation before it stores what the last one gave."""
    model.weights[0], _ = model.load_weights(0)
    other = asyncio.create_task(asyncio.sleep(0))
    out = model.forward(0, model.get_activation([0]), model.weights[0])
    model.forward(0, model.get_activation([1]), model.weights[0])
    model.activations[0] = out
    await other


def test_coroutines_of_a_rank_are_told_apart_through_the_wire() -> None:
    size = {"ranks": 1, "layers": 1, "batches": 3}
    near, far = run(several_at_once, **size), through_a_wire(several_at_once, size)
    assert far.events == near.events and far.memory == near.memory
    for way in (lambda: run(loses_it, **size), lambda: through_a_wire(loses_it, size)):
        with pytest.raises(PuzzleError, match="was not stored when rank 0 issued forward"):
            way()


async def looks_around(model: Model) -> None:
    """All that a program can ask of a rank, through the wire as here."""
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


def test_what_a_rank_sees_is_the_same_through_the_wire() -> None:
    size = {"ranks": 3, "layers": 2, "batches": 3}
    seen.clear()
    near = run(looks_around, **size)
    here = sorted(seen)
    seen.clear()
    assert through_a_wire(looks_around, size).events == near.events
    assert sorted(seen) == here and len(here) == 3


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each line has that a worker writes from now on."""
    lines: list[int] = []
    answer_all = Clerk.answer_all

    def count(clerk: Clerk, messages: list[Any]) -> list[Any]:
        lines.append(len(messages))
        return answer_all(clerk, messages)

    monkeypatch.setattr(Clerk, "answer_all", count)
    return lines


def test_what_has_no_result_is_told_with_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = counted(monkeypatch)

    async def program(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)  # a question, and two to be told
        model.weights["other"] = model.weights.pop(0)  # two more
        sent = model.pass_to(0, None) if model.rank else model.receive(src=1)  # another one
        await sent  # and that it is waited for
        model.opt_states.clear()  # told at the end

    through_a_wire(program, {"ranks": 2, "layers": 1, "batches": 1})
    assert sorted(lines)[-3:] == [2, 7, 7]


def test_what_is_told_without_end_is_written_in_lines_that_are_not_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = counted(monkeypatch)

    async def program(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        for _ in range(2000):
            model.weights[1] = model.weights[0]
            del model.weights[1]
        calls = [model.pass_to(1, "x" * 1000) if model.rank == 0 else model.receive() for _ in range(60)]
        await asyncio.gather(*calls)

    size = {"ranks": 2, "layers": 1, "batches": 1}
    assert through_a_wire(program, size).events == run(program, **size).events
    assert max(lines) > 100 and sum(lines) > 8000


async def spins(model: Model) -> None:
    """A rank that waits in a loop for what another does when a call of the first has come to it."""
    if model.rank == 0:
        sent = model.pass_to(1, "go on")
        while not heard:  # noqa: ASYNC110 (that it is no wait is the point)
            await asyncio.sleep(0)
        await sent
    else:
        heard.append(await model.receive(src=0))


heard: list[Any] = []


def test_what_is_told_is_written_when_the_loop_goes_on() -> None:
    size = {"ranks": 2, "layers": 1, "batches": 1}
    for way in (lambda: run(spins, **size), lambda: through_a_wire(spins, size)):
        heard.clear()
        way()
        assert heard == ["go on"]


WRONG: dict[str, tuple[Callable[[Model], Any], str]] = {
    "a layer that is text": (lambda m: m.load_weights("0"), "layer is out of range"),  # type: ignore[arg-type]
    "a micro-batch out of range": (lambda m: m.get_activation([9]), "from 0 to 1"),
    "a tensor made by hand": (lambda m: m.weights.update({0: type(m.load_weights(0)[0])(0, 2, 0)}), "made up"),
    "a tensor that is gone": (lambda m: (m.load_weights(0), m.loss(m.get_activation([0]))), "output of the last layer"),
    "an axis that is none": (lambda m: m.allgather(m.load_weights(0)[0], 0, ["a"]), "no mesh axis"),  # type: ignore[arg-type]
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
def test_errors_come_through_the_wire_with_the_learners_line(name: str) -> None:
    program, says = WRONG[name]
    size = {"ranks": 1, "layers": 2, "batches": 2}
    with pytest.raises(PuzzleError, match=says) as near:
        run(program, **size)
    with pytest.raises(PuzzleError, match=says) as far:
        through_a_wire(program, size)
    assert str(far.value) == str(near.value) and "test_clerk.py" in far.value.line


def test_a_deadlock_comes_through_the_wire() -> None:
    async def waits(model: Model) -> None:
        await model.receive()

    with pytest.raises(Deadlock, match="ranks 0, 1 wait for receive from anyone"):
        through_a_wire(waits, {"ranks": 2, "layers": 1, "batches": 1})


def test_events_survive_the_wire() -> None:
    fn, spec = list(solutions())[2]
    for event in run(fn, ranks=3, layers=2, batches=3).events:
        assert unpack_event(json.loads(json.dumps(pack(event)))) == event
    assert spec["name"] == "ddp"


# -- nonsense -------------------------------------------------------------------------------------------


def clerk(ranks: int = 2) -> Clerk:
    return Clerk(LocalSimulator(Shape.of(ranks), graded=True), 2, 2)


REST = ["", False, []]
PLAIN = [[0], 1, *REST]
"""The extra labels of a tensor that has none."""

NONSENSE: dict[str, list[Any]] = {
    "no verb": ["grade", 0, None],
    "a verb that is no text": [["compute"], 0, None],
    "too short": ["compute"],
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
    "batches that are lists": ["get_activation", 0, None, [[0]]],
    "a batch that is a float": ["get_activation", 0, None, [0.0]],
    "a number beyond all bounds": ["load_weights", 0, None, 0, 0, 1 << 80],
    "labels of no kind": ["by_hand", 0, None, ["Tensor", 0, 1, 0, [], 0, [0], 1, PLAIN]],
    "labels of too many shards": ["by_hand", 0, None, ["Weight", 0, 1, 0, [], 0, [0], 1 << 20, PLAIN]],
    "labels of too many partial sums": [
        "by_hand",
        0,
        None,
        ["Activation", 0, 1, 0, [], 0, [0], 1, [[0], 1 << 20, "", False, []]],
    ],
    "labels of partial sums that are none": ["by_hand", 0, None, ["Activation", 0, 1, 0, [], 0, [0], 1, "all of them"]],
    "labels that keep something else": [
        "by_hand",
        0,
        None,
        ["Saved", 0, 1, 0, [0], 1, [0], 1, [[0], 1, "most", False, []]],
    ],
    "labels of half an adapter": ["by_hand", 0, None, ["Weight", 0, 1, 0, [], 0, [0], 1, [[0], 1, "", 1, []]]],
    "an adapter with a number beyond all bounds": ["load_adapter", 0, None, 0, 0, 1 << 80],
    "options that are none": ["compute", 0, None, "loss", None, [0], []],
    "options that are lists": ["compute", 0, None, "loss", None, [0], {"keep": []}],
    "labels too short": ["by_hand", 0, None, ["Weight"]],
    "lines that are none": ["deadlock", 0, None, "all of them"],
    "a plain value that is a list": ["pass_to", 0, None, 1, None, []],
}

NONSENSE_TOLD: dict[str, list[Any]] = {
    "nothing at all": [[]],
    "a wait for what is not there": [["wait", 0, None, 0], ["time", 0, None]],
    "a question of nothing": [["drop", 0, None, 0], []],
    "a question that is none": [["receive", 0, None, None], "done"],
    "an end": [["done"], ["time", 0, None]],
    "something that is no message": [["receive", 0, None, None], 1, ["time", 0, None]],
    "nothing between": [["receive", 0, None, None], [], ["time", 0, None]],
    "a verb that is a list": [[["time"], 0, None], ["time", 0, None]],
    "a verb that has a result": [["load_weights", 0, None, 0, 0, 1], ["time", 0, None]],
    "several in several": [[["receive", 0, None, None], ["time", 0, None]], ["time", 0, None]],
}


@pytest.mark.parametrize("name", NONSENSE_TOLD)
def test_nonsense_cannot_be_told(name: str) -> None:
    with pytest.raises(ProtocolError):
        clerk().answer_all(NONSENSE_TOLD[name])


def test_each_message_of_a_line_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.remote.clerk.MOST", 1000)
    line = json.dumps([["receive", 0, None, None]] * 200 + [["time", 0, None]]).encode() + b"\n"
    with pytest.raises(ProtocolError, match="more than 1,000 messages"):
        served(line * 6)


def test_what_is_wrong_with_what_was_told_is_in_the_answer() -> None:
    office = clerk()
    weight = office.answer(["load_weights", 0, None, 0, 0, 1])[1][0][1]
    failed, tick, woken, [[place, rank, error]] = office.answer_all(
        [["store", 0, None, weight], ["drop", 0, None, weight], ["drop", 0, None, weight], ["time", 1, None]]
    )
    assert (failed, tick, woken, place, rank) == (0, 0.0, [], 2, 0) and "was never stored" in error["problem"]
    assert office.answer_all([["store", 0, None, weight], ["time", 1, None]]) == [0, 0.0, []]
    started = [["pass_to", 1, None, 0, None, "x"], ["receive", 0, None, None]]
    assert office.answer_all([*started, ["wait", 0, None, 1]])[0] == 0


def test_whoever_waits_hears_of_an_end_and_of_a_call_that_could_not_be_started() -> None:
    office = clerk()
    told = [["pass_to", 1, None, 0, None, "x"], ["wait", 1, None, 0], ["receive", 0, None, 7], ["wait", 0, None, 1]]
    failed, tick, woken, mistakes = office.answer_all([*told, ["time", 1, None]])
    assert (failed, tick, woken) == (0, 0.0, [[0, None], [1, None]])
    assert [(place, rank, "out of range" in error["problem"]) for place, rank, error in mistakes] == [
        (2, 0, True),
        (3, 0, True),
    ]


def test_what_was_fetched_already_cannot_be_told_to_be_waited_for() -> None:
    office = clerk()
    told = [["pass_to", 1, None, 0, None, "x"], ["wait", 1, None, 0], ["fetch", 1, None, 0]]
    assert office.answer_all([*told, ["time", 1, None]]) == [0, 0.2, [[0, None]]]
    with pytest.raises(ProtocolError, match="what cannot be fetched"):
        office.answer_all([["wait", 1, None, 0], ["time", 1, None]])


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_no_message(name: str) -> None:
    with pytest.raises(ProtocolError):
        clerk().answer(NONSENSE[name])


def test_every_verb_refuses_arguments_of_the_wrong_kind() -> None:
    for verb, (_, kinds) in VERBS.items():
        for place in range(len(kinds)):
            for thing in ({}, [[]]):
                arguments: list[Any] = [0] * len(kinds)
                arguments[place] = thing
                with pytest.raises(ProtocolError):
                    clerk().answer([verb, 0, None, *arguments])


def test_kinds_releases_and_ends_are_checked_at_this_end() -> None:
    office = clerk()

    def ask(*message: Any) -> Any:
        failed, result, _ = office.answer([message[0], message[1], None, *message[2:]])
        return PuzzleError(**unpack_error(result)) if failed else result

    (_, weight, *_), (_, state, *_) = ask("load_weights", 0, 0, 0, 1)
    _, inp, *_ = ask("get_activation", 0, [0])
    saved = ask("by_hand", 0, ["Saved", 0, 2, 0, [0], 2, [0], 1, [[0], 1, "all", False, []]])[1]
    (_, adapter, *_), _ = ask("load_adapter", 0, 0, 0, 1)
    by_hand = ask("by_hand", 0, ["ActivationGrad", 0, 2, 0, [0], 2, [0], 1, PLAIN])[1]
    for message in (
        ("compute", 0, "forward", 0, [weight, weight], {}),
        ("compute", 0, "forward", 0, [inp, state], {}),
        ("compute", 0, "forward", 0, [inp], {}),
        ("compute", 0, "loss", 0, [inp], {}),
        ("compute", 0, "loss", None, [inp], {"partial": True}),
        ("compute", 0, "forward", 0, [inp, weight, state], {}),
        ("compute", 0, "forward", 0, [inp, weight, adapter, adapter], {}),
        ("compute", 0, "backward", 0, [inp, by_hand, weight, adapter, saved], {}),
        ("compute", 0, "backward_input", 0, [inp, by_hand, weight, adapter], {}),
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
            ask(*message)
    assert "was never stored" in str(ask("drop", 0, weight))
    assert "belongs to rank 0" in str(ask("store", 1, weight))
    call = ask("receive", 0, None)
    for message in (("fetch", 0, call), ("fetch", 1, call), ("wait", 1, call)):
        with pytest.raises(ProtocolError):
            ask(*message)
    ask("finish", 0)
    for message in (("finish", 0), ("load_weights", 0, 1, 0, 1), ("store", 0, inp)):
        with pytest.raises(ProtocolError, match="a rank that has finished"):
            ask(*message)
    assert ask("drop", 0, weight) is None  # an object that was freed late, in a program that may be honest
    assert ask("decide_next", 0) is False and ask("time", 0) == 0.0


def test_what_has_been_fetched_is_not_there_to_be_fetched_again() -> None:
    office = clerk()
    failed, send, _ = office.answer(["pass_to", 0, None, 1, None, "text"])
    assert not failed and not office.answer(["fetch", 0, None, send])[0]
    for verb in ("fetch", "wait"):
        with pytest.raises(ProtocolError, match=r"what is not there|what cannot be fetched"):
            office.answer([verb, 0, None, send])
    assert office.answer(["time", 0, None])[1] == 0.2


def test_a_made_up_coroutine_ends_lives_like_any_other() -> None:
    for holder in (1, 1_000_000):
        office = clerk()
        office.answer(["share", 0, holder])
        number = office.answer(["get_activation", 0, holder, [0]])[1][1]
        office.answer(["receive", 0, int(str(holder)), None])
        failed, result, _ = office.answer(["store", 0, int(str(holder)), number])
        assert failed and "was not stored when" in result["problem"]


NO_LAYERS = ["\x1b[2J\x1b[32mPASS \x00 \ud800", "x" * 10_000, None, 0.5, float("nan"), float("inf"), -0.5]


@pytest.mark.parametrize("layer", NO_LAYERS, ids=repr)
@pytest.mark.parametrize("verb", ["forward", "backward", "update", "meet", "fake_grad", "set_final_weight"])
def test_a_layer_that_is_no_number_is_a_mistake_that_can_be_shown(verb: str, layer: Any) -> None:
    office = clerk()
    (_, weight, *_), (_, state, *_) = office.answer(["load_weights", 0, None, 0, 0, 1])[1]
    inp = office.answer(["get_activation", 0, None, [0]])[1][1]
    grad = office.answer(["fake_grad", 0, None, 0, []])[1][1]
    by_hand = office.answer(["by_hand", 0, None, ["ActivationGrad", 0, 2, 0, [0], 2, [0], 1, PLAIN]])[1][1]
    message = {
        "forward": ["compute", "forward", layer, [inp, weight], {}],
        "backward": ["compute", "backward", layer, [inp, by_hand, weight], {}],
        "update": ["compute", "update", layer, [grad, weight, state], {}],
        "meet": ["meet", "allreduce", grad, layer, None],
        "fake_grad": ["fake_grad", layer, []],
        "set_final_weight": ["set_final_weight", layer, weight],
    }[verb]
    token = witnessed.set(office.errors)
    try:
        failed, result, _ = office.answer([message[0], 0, None, *message[1:]])
    finally:
        witnessed.reset(token)
    assert failed and result["where"][0] == 0 and "a whole number from 0 to 1" in result["expected"]
    for text in (*map(str, result.values()), str(office.errors[0])):
        assert text.replace("\n", "").isprintable() and len(text) < 1000


@pytest.mark.parametrize("layer", [0, 0.0, -0.0, False], ids=repr)
def test_a_layer_that_is_a_number_is_a_whole_one_in_the_books(layer: Any) -> None:
    office = clerk()
    weight = office.answer(["load_weights", 0, None, 0, 0, 1])[1][0][1]
    inp = office.answer(["get_activation", 0, None, [0]])[1][1]
    failed, result, _ = office.answer(["compute", 0, None, "forward", layer, [inp, weight], {}])
    assert not failed and type(office.tensors[result[0][1]].labels.layer) is int
    assert [type(event.layer) for event in office.simulator.events(office.ranks[0])] == [int, int, int]


def test_an_error_does_not_grow_with_what_it_is_about() -> None:
    office, number = clerk(), None
    token = witnessed.set(office.errors)
    try:
        for first in range(0, 65536, 5000):
            labels = ["Weight", 0, 6, 0, [], 0, [*range(first, min(65536, first + 5000), 2)], 65536, PLAIN]
            part = office.answer(["by_hand", 0, None, labels])[1][1]
            number = part if number is None else office.answer(["combine", 0, None, number, part])[1][1]
        failed, result, _ = office.answer(["shard", 0, None, number, 0, 2])
    finally:
        witnessed.reset(token)
    assert failed and "a part with gaps" in result["problem"]
    for error in (PuzzleError(**unpack_error(result)), office.errors[0]):
        assert len(str(error)) < LONGEST_TEXT + 500 and "instead" in str(error)
    with pytest.raises(PuzzleError) as raised:
        office.outcome("program")
    assert len(str(raised.value)) < LONGEST_TEXT + 500


def test_a_message_that_nobody_received_is_safe_to_show() -> None:
    office = clerk()
    call = office.answer(["pass_to", 0, None, 1, None, "\x1b[2J\ud800" * 1000])[1]
    office.answer(["wait", 0, None, call])
    with pytest.raises(PuzzleError, match="never received") as raised:
        office.outcome("program")
    assert str(raised.value).replace("\n", "").isprintable() and len(str(raised.value)) < LONGEST_TEXT + 500


def test_random_messages_raise_nothing_else() -> None:
    chance = random.Random(1)
    things = [0, 1, 2, 3, -1, None, True, 0.5, "allgather", "x", [], [0], [0, 1], {}, 1 << 40]
    answered = 0
    for _ in range(60):
        office = clerk()
        for _ in range(200):
            verb = chance.choice(list(VERBS))
            arguments = [chance.choice(things) for _ in VERBS[verb][1]]
            try:
                office.answer([verb, chance.choice([0, 1]), chance.choice([None, 1]), *arguments])
                answered += 1
            except ProtocolError:
                continue
        assert all(rank.held == [max(0, part) for part in rank.held] for rank in office.ranks)
    assert answered > 1000


def served(*lines: bytes) -> Any:
    """What becomes of a worker that writes this."""
    ours, theirs = socket.socketpair()

    def write_and_listen() -> None:
        theirs.sendall(b"".join(lines))
        theirs.shutdown(socket.SHUT_WR)
        while theirs.recv(1 << 16):
            pass

    worker = threading.Thread(target=write_and_listen)
    worker.start()
    try:
        return clerk().serve(Wire(ours), time.monotonic() + 10)
    finally:
        ours.shutdown(socket.SHUT_RDWR)
        worker.join()
        ours.close()
        theirs.close()


@pytest.mark.parametrize(
    "line", [b"PASS\n", b"\xff\xfe\n", b"[" * 5000 + b"\n", b"{}\n", b"[]\n", b"1\n", b"9" * 5000 + b"\n", b'"done"\n']
)
def test_what_is_no_message_ends_the_run(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        served(line)


def test_a_line_without_end_and_a_line_that_ends_too_soon() -> None:
    with pytest.raises(ProtocolError, match=f"more than {LONGEST} bytes"):
        served(b"x" * (1 << 17))
    with pytest.raises(EOFError):
        served(b"[1")


def test_errors_without_end_come_to_an_end() -> None:
    line = b'["load_weights",0,null,9,0,1]\n'
    with pytest.raises(PuzzleError, match="layer is out of range"):
        served(line * (2 * MOST_ERRORS + 2))  # of two ranks


def test_so_many_ranks_may_make_so_many_mistakes() -> None:
    """Else a large machine's run would be ended before it could tell the line of the first."""
    line = b'["load_weights",0,null,9,0,1]\n'
    assert served(line * (MOST_ERRORS + 2) + b'["failed"]\n') == ["failed"]


def test_nobody_writes_and_time_is_up() -> None:
    ours, theirs = socket.socketpair()
    try:
        with pytest.raises(TimeoutError):
            clerk().serve(Wire(ours), time.monotonic() + 0.05)
    finally:
        ours.close()
        theirs.close()


def test_text_from_elsewhere_is_safe_to_show() -> None:
    assert shown("a\x1b[2Jb\x00c\u202ed\ne\ttab", 100) == "a\ufffd[2Jb\ufffdc\ufffdd\ne\ttab"
    assert shown("x" * 50, 10) == "x" * 10 + " ..."


def test_the_pieces_of_a_run_are_counted_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every join makes a longer set: what they take together is bounded, whoever asks how often."""
    monkeypatch.setattr("lib.remote.clerk.MOST_PIECES", 500)

    def program(model: Model) -> None:
        whole, _ = model.load_weights(0)
        joined = whole.shard(0, 128)
        for piece in range(2, 128, 2):  # with gaps, so that the set stays as long as it is
            joined = joined.combine(whole.shard(piece, 128))
            model.weights[0] = joined

    with pytest.raises(PuzzleError, match="the tensors of this run have too many pieces"):
        through_a_wire(program, {"ranks": 1, "layers": 1, "batches": 1})


def test_partial_sums_are_counted_as_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward with a weight in many pieces leaves a partial sum that names them all."""
    monkeypatch.setattr("lib.remote.clerk.MOST_PIECES", 500)

    async def program(model: Model) -> None:
        whole, _ = model.load_weights(0)
        model.activations[0] = inp = model.get_activation([0])
        model.weights[0] = gaps = functools.reduce(Weight.combine, [whole.shard(i, 128) for i in range(0, 40, 2)])
        for _ in range(40):
            model.activations[1] = model.forward(0, inp, gaps, partial=True)

    with pytest.raises(PuzzleError, match="the tensors of this run have too many pieces"):
        through_a_wire(program, {"ranks": 1, "layers": 1, "batches": 1})
