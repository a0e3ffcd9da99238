"""Hosts: further ranks beside the devices, which store and update while these compute."""

import argparse
import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from lib import Cost, Dist, Model, PuzzleError, hint, run
from lib.basics.units import HIDDEN
from lib.course.layouts import check_layout
from lib.course.specs import puzzles
from lib.grading import judge
from lib.grading.commandline import size_for
from lib.record.figures.score import spans_boxes
from lib.record.labels import HOSTS
from lib.running.options import add_machine
from lib.running.run import Run
from tests.marks import needs_torch

W = HIDDEN * HIDDEN
Program = Callable[[Model], Any]


def load(model: Model) -> None:
    """A device has the weights, its host the states and weights of its own."""
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer)
        if model.is_host:
            model.opt_states[layer] = state


async def serve(model: Model) -> Model:
    """A host: update with each gradient that comes, and send the weight back."""
    sends = []
    for layer in reversed(range(model.LAYERS)):
        grad = await model.receive(model.devices[0])
        weight, opt_state = model.update(layer, grad, model.weights.pop(layer), model.opt_states.pop(layer))
        model.weights[layer], model.opt_states[layer] = weight, opt_state
        sends.append(model.pass_to(model.devices[0], weight))
    await asyncio.gather(*sends)
    return model


async def offload(model: Model) -> Model:
    """All micro-batches through a layer, forwards and backwards; gradients go to the host as they are made."""
    load(model)
    if model.is_host:
        return await serve(model)
    everything = range(model.BATCHES)
    model.activations[0] = model.get_activation(everything)
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
    model.grad_activations[0] = model.loss(model.activations.pop(model.LAYERS))
    sends = []
    for layer in reversed(range(model.LAYERS)):
        operands = model.activations.pop(layer), model.grad_activations.pop(0), model.weights.pop(layer)
        grad, model.grad_activations[0] = model.backward(layer, *operands)
        sends.append(model.pass_to(model.host, grad))
    model.grad_activations.clear()
    for send, layer in zip(sends, reversed(range(model.LAYERS)), strict=True):
        await send
        model.weights[layer] = await model.receive(model.host)
        model.set_final_weight(layer, model.weights[layer])
    return model


def one_host(program: Program = offload, layers: int = 3, batches: int = 2, **options: Any) -> Run:
    """A device with its host."""
    return run(program, ranks=1, layers=layers, batches=batches, hosts=1, **options)


# -- which rank is what ------------------------------------------------------------------------------


def test_hosts_are_ranks_after_the_devices_one_beside_each() -> None:
    seen = {}

    def note(model: Model) -> None:
        seen[model.rank] = (model.is_host, model.host, model.devices, model.RANKS)

    run(note, ranks=2, hosts=2)
    assert seen == {0: (False, 2, (), 2), 1: (False, 3, (), 2), 2: (True, 2, (0,), 2), 3: (True, 3, (1,), 2)}


def test_fewer_hosts_are_those_of_the_boxes() -> None:
    dist = Dist(5, node_size=2, hosts=3)
    assert [Model(rank, dist).host for rank in range(8)] == [5, 5, 6, 6, 7, 5, 6, 7]
    assert [Model(rank, dist).devices for rank in (5, 6, 7)] == [(0, 1), (2, 3), (4,)]
    assert Model(3, Dist(4, hosts=1)).host == 4 and Model(4, Dist(4, hosts=1)).devices == (0, 1, 2, 3)
    assert repr(dist) == "Dist(ranks=5, node_size=2, hosts=3)"


@pytest.mark.parametrize("hosts", [3, -1, 1.5, "two"])
def test_hosts_that_do_not_fit_are_refused(hosts: Any) -> None:
    with pytest.raises(PuzzleError, match="hosts"):
        Dist(4, node_size=2, hosts=hosts)


# -- what a run says ----------------------------------------------------------------------------------


def test_times_are_those_of_the_two_lanes() -> None:
    """The device computes 3 forwards and one backward of 2 micro-batches, and sends the first gradient. From then on
    the host is busy: a receive and an update for each layer, and at the end the last weight goes back."""
    done = one_host()
    done.check()
    assert done.time == 6 + 2 + 1 + 3 * (0.2 + 2) + 1 + 0.2
    slow = one_host(cost=Cost(host_update=5, host_transfer=0.5, receive=0))
    assert slow.time == 6 + 2 + 0.5 + 3 * 5 + 0.5


def test_memory_of_devices_and_of_hosts_is_told_apart() -> None:
    done = one_host()
    assert done.host_memory == 7 * W  # three weights, three states, a gradient
    assert done.memory == max(event.memory for event in done.events if event.rank == 0)
    assert one_host(batches=1).memory < done.memory and one_host(batches=1).host_memory == 8 * W  # one waits
    assert {event.rank for event in done.device_events} == {0}
    assert repr(done).endswith("elements, on hosts 1,835,008")
    assert run(lambda model: None, ranks=2).host_memory == 0


def test_what_hosts_have_to_do_with_is_in_the_words() -> None:
    events = [event for event in one_host().events if event.stream]
    with_hosts = [event for event in events if HOSTS in event.words]
    assert {(event.rank, event.kind) for event in with_hosts} == {
        (rank, kind) for rank in (0, 1) for kind in ("pass_to", "receive")
    } | {(1, "update")}
    assert all(event.stream == "message" or event.rank == 1 for event in with_hosts)


def test_as_text_a_host_is_below_its_device() -> None:
    async def two(model: Model) -> None:
        if model.is_host:
            await model.receive()
        else:
            await model.pass_to(model.host, "now")

    lines = str(run(two, ranks=2, hosts=2)).splitlines()
    assert [line.split("  ")[0] for line in lines if line.startswith("rank")] == [
        *("rank 0", "rank 2, host of 0", "rank 1", "rank 3, host of 1")
    ]
    boxes = str(run(two, ranks=4, node_size=2, hosts=4)).splitlines()
    first = next(at for at, line in enumerate(boxes) if line.startswith("rank 0"))
    assert boxes[first + 1].startswith("rank 4, host of 0")


# -- what a host cannot do --------------------------------------------------------------------------------


def on_host(act: Callable[[Model], Any], **machine: Any) -> PuzzleError:
    """The error of something that only the host does."""

    async def program(model: Model) -> None:
        if model.is_host:
            await act(model)

    with pytest.raises(PuzzleError) as caught:
        run(program, **{"ranks": 2, "hosts": 2, **machine})
    return caught.value


async def forward(model: Model) -> None:
    weight, _ = model.load_weights(0)
    model.weights[0] = weight
    model.forward(0, model.get_activation([0]), weight)


async def loss(model: Model) -> None:
    await model.receive(model.devices[0])


REFUSED: dict[str, tuple[Callable[[Model], Any], str]] = {
    "forward": (forward, "a host computes no forward"),
    "all-reduce": (lambda model: model.allreduce(model.fake_grad(0, []), 0), "no all-reduce"),
    "a list": (lambda model: model.allreduce([model.fake_grad(0, [])], [0]), "no all-reduce"),
    "to another's device": (lambda model: model.pass_to(1 - model.devices[0], "me"), "linked to its own"),
    "to a host": (lambda model: model.pass_to(5 - model.rank, "me"), "linked to its own"),
    "from another's device": (lambda model: model.receive(1 - model.devices[0]), "linked to its own"),
    "to nobody": (lambda model: model.pass_to(4, "me"), "rank is out of range"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_host_is_refused_what_is_for_devices(name: str) -> None:
    act, says = REFUSED[name]
    error = on_host(act)
    assert says in error.problem, error
    assert error.place.rank == 2  # the lower of the two hosts


def test_a_device_is_refused_another_device_s_host() -> None:
    async def program(model: Model) -> None:
        if not model.is_host:
            await model.pass_to(3 - model.rank, "me")

    with pytest.raises(PuzzleError) as caught:
        run(program, ranks=2, hosts=2)
    assert caught.value.problem == "rank 3 is a host, linked to its own devices only: {1}"
    assert (caught.value.expected, caught.value.got) == ("rank=2", "rank=3")


def test_a_host_is_on_no_axis() -> None:
    mesh = {"replica": 2, "shard": 2}
    model = Model(5, Dist(4, mesh, hosts=4))
    for ask in (lambda: model.axis_index("shard"), lambda: model.rank_at(shard=1)):
        with pytest.raises(PuzzleError, match="host"):
            ask()
    assert model.axis_size("shard") == 2 and model.rank_at(replica=1, shard=0) == 2


def test_collectives_of_devices_are_without_hosts() -> None:
    async def program(model: Model) -> None:
        if not model.is_host:
            for axis in (None, "shard"):
                await model.allreduce(model.fake_grad(0, []), 0, axis)

    done = run(program, ranks=4, mesh={"replica": 2, "shard": 2}, hosts=4)
    assert {event.group for event in done.events if event.stream} == {(0, 1, 2, 3), (0, 1), (2, 3)}


def test_a_cost_says_what_a_host_takes_for_what() -> None:
    cost = Cost()
    with pytest.raises(PuzzleError, match="no price for forward on a host"):
        cost.compute_on_host("forward")
    assert cost.compute_on_host("update") == 2 * cost.per_tick
    for price in ("host_update", "host_transfer"):
        with pytest.raises(PuzzleError, match=f"{price} is no price"):
            Cost(**{price: -1})


def test_the_shortest_transfer_is_that_to_a_host_if_it_is() -> None:
    cost = Cost(host_transfer=0.1)
    assert cost.shortest_transfer == cost.in_time_units(0.1) + cost.receiving
    slow = Cost(host_transfer=5)
    assert slow.shortest_transfer == Cost().shortest_transfer * slow.per_tick / Cost().per_tick


# -- right or wrong -------------------------------------------------------------------------------------------


def changed(before: str, after: str) -> Program:
    """The program above with something else in it."""
    source = inspect.getsource(load) + inspect.getsource(serve) + inspect.getsource(offload)
    assert source.count(before) == 1, before
    names: dict[str, Any] = {"Model": Model, "asyncio": asyncio}
    exec(source.replace(before, after), names)
    return names["offload"]  # type: ignore[no-any-return]


HANDS_IN = "        model.set_final_weight(layer, model.weights[layer])\n"


async def by_host(model: Model) -> None:
    """It is the host that hands in the weights."""
    await changed(HANDS_IN, "")(model)
    for layer in model.weights if model.is_host else ():
        model.set_final_weight(layer, model.weights[layer])


def test_a_host_may_hand_in_the_weights() -> None:
    """What the host ends with counts like what a device ends with."""
    with pytest.raises(PuzzleError, match="no rank has set a final weight"):
        one_host(changed(HANDS_IN, "")).check()
    one_host(by_host).check()


# -- layouts --------------------------------------------------------------------------------------------------


def laid_out(layout: str, done: Run, **size: Any) -> None:
    """Check what the ranks of a run begin and end with."""
    check_layout(layout, {"ranks": 1, "layers": 3, "batches": 2, "hosts": 1, **size}, done.final_states)


def test_a_layout_takes_states_that_are_on_the_host() -> None:
    laid_out("whole", one_host())


def test_a_layout_wants_the_states_somewhere_and_the_weights_on_the_device() -> None:
    on_host = "        model.weights[layer], model.opt_states[layer] = weight, opt_state\n"
    dropped = changed(on_host, "        model.weights[layer] = weight\n")
    with pytest.raises(PuzzleError, match=r"ends without the updated optimizer state of layer 0") as caught:
        laid_out("whole", one_host(dropped))
    assert caught.value.place.rank == 0
    with pytest.raises(PuzzleError, match=r"ends without the final weight of layer 0") as caught:
        laid_out("whole", one_host(by_host))
    assert caught.value.place.rank == 0


async def zero_offload(model: Model) -> Model:
    """ZeRO-Offload on several devices: gradients are reduce-scattered among them, and each piece of a state is with a
    device's host, which updates that piece of the weight."""
    pieces, layers = model.RANKS, range(model.LAYERS)
    if model.is_host:
        for device in model.devices:
            for layer in layers:
                loaded = model.load_weights(layer, device, pieces)
                model.weights[layer, device], model.opt_states[layer, device] = loaded
        for layer in reversed(layers):
            for device in model.devices:
                grad = await model.receive(device)
                weight, state = model.weights.pop((layer, device)), model.opt_states.pop((layer, device))
                weight, model.opt_states[layer, device] = model.update(layer, grad, weight, state)
                await model.pass_to(device, weight)
        return model
    for layer in layers:
        model.weights[layer], _ = model.load_weights(layer)
    model.activations[0] = model.get_activation([model.rank])
    for layer in layers:
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
    model.grad_activations[0] = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(layers):
        operands = model.activations.pop(layer), model.grad_activations.pop(0), model.weights.pop(layer)
        grad, model.grad_activations[0] = model.backward(layer, *operands)
        await model.pass_to(model.host, await model.scatterreduce(grad, layer))
    for layer in reversed(layers):
        model.weights[layer] = await model.allgather(await model.receive(model.host), layer)
        model.set_final_weight(layer, model.weights[layer])
    return model


MACHINES: list[dict[str, Any]] = [{"hosts": 4}, {"hosts": 2, "node_size": 2}, {"hosts": 1}]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_host_of_several_devices_has_the_pieces_of_each(machine: dict[str, Any]) -> None:
    size = {"ranks": 4, "layers": 2, "batches": 4, **machine}
    done = run(zero_offload, **size)
    done.check()
    laid_out("states_sharded", done, **size)
    each = 4 // machine["hosts"]  # devices of a host, each with a quarter of two weights and two states
    assert max(event.held[0] + event.held[1] for event in done.events if event.rank >= 4) == each * 4 * W // 4
    if each == 4:  # the pieces of all are the whole, wherever they have come from
        laid_out("whole", done, **size)
    else:
        with pytest.raises(PuzzleError, match=r"begins with(out)? .* the optimizer state"):
            laid_out("whole", done, **size)
    with pytest.raises(PuzzleError, match=r"begins with(out)? .* the weight"):
        laid_out("sharded", done, **size)


def test_a_host_has_no_states_of_another_host_s_devices() -> None:
    async def crossed(model: Model) -> None:
        if model.is_host:
            _weight, model.opt_states[0] = model.load_weights(0, 1 - model.devices[0], 2)
        else:
            model.weights[0], _ = model.load_weights(0, model.rank, 2)

    done = run(crossed, ranks=2, layers=1, batches=2, hosts=2)
    with pytest.raises(
        PuzzleError, match="begins with another part than its devices have of the optimizer state of layer 0"
    ) as caught:
        laid_out("sharded", done, ranks=2, layers=1, batches=2, hosts=2)
    assert caught.value.place.rank == 2


# -- a puzzle that grants no hosts ------------------------------------------------------------------------------


def test_a_puzzle_without_hosts_refuses_what_has_to_do_with_them() -> None:
    done = one_host(layers=2, batches=4)
    with pytest.raises(PuzzleError, match="puzzle 0 must be solved without hosts, which is the subject of puzzle 22"):
        judge.check_features(done, puzzles()["basic"])
    judge.check_features(done, puzzles()["offload"])


# -- real tensors -------------------------------------------------------------------------------------------------


@needs_torch
def test_with_real_tensors_in_one_process_weights_agree() -> None:
    done = one_host(engine="local", dtype="float64")
    assert done.verify().startswith("Correct!")
    assert (done.time, done.memory, done.host_memory) == (one_host().time, one_host().memory, one_host().host_memory)
    for machine in MACHINES:
        assert run(zero_offload, ranks=4, layers=2, batches=4, engine="local", dtype="float64", **machine).verify()


def test_the_sketch_of_a_hint_names_the_host() -> None:
    assert "\nrank 1, host of 0  ." in str(hint("offload", 2))


def test_at_a_shell_hosts_are_an_option_and_those_of_the_puzzle() -> None:
    parser = argparse.ArgumentParser()
    add_machine(parser)

    def size(function: Program, *arguments: str) -> dict[str, Any]:
        found = size_for(function, parser.parse_args(arguments))
        return {name: found[name] for name in ("ranks", "hosts") if name in found}

    assert size(offload) == {"ranks": 1, "hosts": 1}
    assert size(offload, "--ranks", "4") == {"ranks": 4}  # the puzzle's hosts are those of another machine
    assert size(zero_offload, "--ranks", "4", "--hosts", "2") == {"ranks": 4, "hosts": 2}


def test_a_host_is_in_the_box_of_its_devices() -> None:
    """Though its number is above those of all devices."""
    done = run(to_its_host, ranks=4, hosts=2, node_size=2)
    sends = [event for event in done.events if event.kind == "pass_to"]
    assert not any(spans_boxes(event, done.node_size, done.devices_of) for event in sends)
    assert any(spans_boxes(event, done.node_size) for event in done.events)


async def to_its_host(model: Model) -> None:
    if not model.is_host:
        await model.pass_to(model.host, "me")
    else:
        for device in model.devices:
            await model.receive(device)
