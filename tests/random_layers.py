"""Right programs at random, with slices of a sequence and with experts, as source: what varies is at its top.

``sliced_program`` and ``experts_program`` draw numbers and write them above the code of the functions below, which read
them as globals. So a change at random, as in test_fuzz.py, may be in the numbers as well as in the code.
"""

# The globals of the functions below are written above them, in the source that is made of them.
# ruff: noqa: F821

import inspect
import random
from collections.abc import Callable
from typing import Any

from lib import Model


async def sliced(model: Model) -> Model:
    """Slices of a sequence, dealt at random along AXIS. Each layer goes its own way: keys and values are gathered, or
    go round a ring, or slices are turned into heads."""
    acts, grads, n, at = model.activations, model.grad_activations, model.axis_size(AXIS), model.axis_index(AXIS)
    after, before = (at + TURN) % n, (at - TURN) % n
    others = [rank for rank in range(model.RANKS) if rank // n == model.rank // n]
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    whole = model.get_activation([model.rank // n])
    mine = [whole.shard(piece, PIECES) for piece in DEAL[at]]
    del whole
    acts[0] = mine.pop()
    while mine:
        acts[0] = acts[0].combine(mine.pop())
    for layer in range(model.LAYERS):
        att, kv = model.project(layer, acts[layer], model.weights[layer])
        acts["att"] = att
        acts["kv", layer] = kv
        if WAYS[layer] == "gather":
            acts["kv"] = await model.allgather(acts["kv", layer], layer, AXIS)
            for part in PARTS:
                acts["att"] = model.attend(layer, acts["att"], acts["kv"].shard(part, len(PARTS)))
        elif WAYS[layer] == "ring":
            acts["kv"] = acts["kv", layer]
            for step in range(n):
                send = model.pass_to(others[after], acts["kv"]) if step < n - 1 else None
                acts["att"] = model.attend(layer, acts["att"], acts["kv"])
                if send:
                    acts["kv"] = await model.receive(others[before])
                    await send
        else:
            acts["att"] = await model.alltoall(acts["att"], layer, AXIS)
            acts["kv", layer] = await model.alltoall(acts["kv", layer], layer, AXIS)
            acts["att"] = model.attend(layer, acts["att"], acts["kv", layer])
            acts["att"] = await model.alltoall(acts["att"], layer, AXIS)
        acts["att", layer] = acts.pop("att")
        acts[layer + 1] = model.rest(layer, acts[layer], model.weights[layer], acts["att", layer])
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)
    for layer in reversed(range(model.LAYERS)):
        weight = model.weights[layer]
        grads["att"] = model.backward_rest(layer, acts[layer], grads["out"], weight, acts.pop(("att", layer)))
        if WAYS[layer] == "gather":
            acts["kv"] = await model.allgather(acts.pop(("kv", layer)), layer, AXIS)
            grads["att"], grads["kv"] = model.backward_attend(layer, grads["att"], acts.pop("kv"))
            grads["kv"] = await model.scatterreduce(grads["kv"], layer, AXIS)
        elif WAYS[layer] == "ring":
            acts["kv"] = acts.pop(("kv", layer))
            for step in range(n):
                send = model.pass_to(others[after], acts["kv"]) if step < n - 1 else None
                grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts["kv"])
                grads["kv"] = kv_grad + grads["kv"] if step else kv_grad
                if send:
                    acts["kv"] = await model.receive(others[before])
                    await send
                if n > 1:
                    send = model.pass_to(others[after], grads["kv"])
                    grads["kv"] = await model.receive(others[before])
                    await send
        else:
            grads["att"] = await model.alltoall(grads["att"], layer, AXIS)
            grads["att"], grads["kv"] = model.backward_attend(layer, grads["att"], acts.pop(("kv", layer)))
            grads["att"] = await model.alltoall(grads["att"], layer, AXIS)
            grads["kv"] = await model.alltoall(grads["kv"], layer, AXIS)
        of_weight, grads["out"] = model.backward_project(
            layer, acts.pop(layer), grads["out"], weight, grads.pop("att"), grads.pop("kv")
        )
        model.grad_weights[layer] = await model.allreduce(of_weight, layer)
        grad = model.grad_weights.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])
    return model


async def with_experts(model: Model) -> Model:
    """Tokens go to their experts through one all-to-all after the other, or the experts are gathered. Dense layers are
    computed at once, or in three steps."""
    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    mine = list(range(model.rank, model.BATCHES, model.RANKS))
    place, of = 0, 1
    for axis in OUT:
        place, of = place * model.axis_size(axis) + model.axis_index(axis), of * model.axis_size(axis)
    for layer in range(model.LAYERS):
        piece = (place, of) if model.experts(layer) else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)
    for group in range(GROUPS):
        acts[0] = model.get_activation(mine[group::GROUPS])
        for layer in range(model.LAYERS):
            weight = model.weights[layer]
            if model.experts(layer) and WAYS[layer] == "tokens":
                acts["tokens", layer] = acts.pop(layer)
                for axis in OUT:
                    acts["tokens", layer] = await model.alltoall(acts["tokens", layer], layer, axis)
                acts["out"] = model.expert(layer, acts["tokens", layer], weight)
                for axis in HOME:
                    acts["out"] = await model.alltoall(acts["out"], layer + 1, axis)
                acts[layer + 1] = acts.pop("out")
            elif model.experts(layer):
                for axis in reversed(OUT):
                    weight = await model.allgather(weight, layer, axis)
                acts[layer + 1] = model.forward(layer, acts[layer], weight)
            elif WAYS[layer] == "steps":
                acts["att"], kv = model.project(layer, acts[layer], weight)
                acts["att"] = model.attend(layer, acts["att"], kv)
                acts[layer + 1] = model.rest(layer, acts[layer], weight, acts.pop("att"))
            else:
                acts[layer + 1] = model.forward(layer, acts[layer], weight)
        grads["out"] = model.loss(acts.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            weight = model.weights[layer]
            if model.experts(layer) and WAYS[layer] == "tokens":
                for axis in OUT:
                    grads["out"] = await model.alltoall(grads["out"], layer, axis)
                grad, grads["out"] = model.backward_expert(layer, acts.pop(("tokens", layer)), grads["out"], weight)
                sums["new"] = grad
                for axis in HOME:
                    grads["out"] = await model.alltoall(grads["out"], layer - 1, axis)
            elif model.experts(layer):
                for axis in reversed(OUT):
                    weight = await model.allgather(weight, layer, axis)
                sums["new"], grads["out"] = model.backward(layer, acts.pop(layer), grads["out"], weight)
                for axis in OUT:
                    sums["new"] = await model.scatterreduce(sums["new"], layer, axis)
            else:
                sums["new"], grads["out"] = model.backward(layer, acts.pop(layer), grads["out"], weight)
            sums[layer] = sums[layer] + sums.pop("new") if group else sums.pop("new")
    for layer in ORDER:
        if COPIES and model.experts(layer):
            sums[layer] = await model.allreduce(sums[layer], layer, COPIES)
        elif not model.experts(layer):
            sums[layer] = await model.allreduce(sums[layer], layer)
        grad, weight, state = sums.pop(layer), model.weights[layer], model.opt_states[layer]
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)
        model.set_final_weight(layer, model.weights[layer])
    return model


def sliced_program(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """The source of a program with slices, whose function is called ``program``, and what ``run`` wants to know."""
    n, data, layers = chance.randint(1, 4), chance.choice((1, 1, 2)), chance.randint(1, 3)
    each = chance.randint(1, 2)
    order = chance.sample(range(n * each), n * each)
    parts = chance.randint(1, 3)
    drawn = {
        "AXIS": "context",
        "PIECES": n * each,
        "DEAL": [order[at::n] for at in range(n)],
        "WAYS": [chance.choice(("gather", "ring", "heads")) for _ in range(layers)],
        "PARTS": chance.sample(range(parts), parts),
        "TURN": chance.choice((1, -1)),
    }
    size = {"ranks": n * data, "layers": layers, "batches": data, "mesh": {"data": data, "context": n}}
    return _source(drawn, sliced), size


def experts_program(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """The same with experts."""
    mesh, out = chance.choice(
        (
            ({"all": 1}, ["all"]),
            ({"all": 2}, ["all"]),
            ({"all": 4}, ["all"]),
            ({"copies": 2, "all": 2}, ["all"]),
            ({"all": 2, "copies": 2}, ["all"]),
            ({"box": 2, "gpu": 2}, ["gpu", "box"]),
        )
    )
    ranks, layers, groups = 1, chance.choice((2, 2, 3, 4)), chance.randint(1, 2)
    for count in mesh.values():
        ranks *= count
    drawn = {
        "OUT": out,
        "HOME": chance.sample(out, len(out)),
        "COPIES": "copies" if "copies" in mesh else None,
        "GROUPS": groups,
        "WAYS": [
            chance.choice(("tokens", "tokens", "gather") if layer % 2 else ("steps", "once")) for layer in range(layers)
        ],
        "ORDER": chance.sample(range(layers), layers),
    }
    batches = ranks * groups * chance.choice((1, 1, 2))
    return _source(drawn, with_experts), {
        "ranks": ranks,
        "layers": layers,
        "batches": batches,
        "mesh": mesh,
        "experts": 8,
    }


def _source(drawn: dict[str, Any], function: Callable[[Model], Any]) -> str:
    numbers = "".join(f"{name} = {value!r}\n" for name, value in drawn.items())
    code = inspect.getsource(function).replace(f"async def {function.__name__}(", "async def program(")
    return f"from lib import Model\n\n{numbers}\n\n{code}"
