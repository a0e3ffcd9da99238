"""What programs are told whose tasks wait for each other, by events, futures and queues; which send what nobody needs,
load a weight twice, receive no gradient, or leave out micro-batch 0: rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import grade
from tests.corpus import changed, whole
from tests.test_corpus import function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words
from tests.test_fixes_readers import PIPELINE_FSDP
from tests.test_fixes_sums import COUNTED, edited

EVENTS = """
import asyncio
async def pipeline_fsdp(model: Model) -> Model:
    stage, pipe = model.rank % 4, model.rank // 4
    after, before = pipe * 4 + (stage + 1) % 4, pipe * 4 + (stage - 1) % 4
    mine, top = range(stage, model.LAYERS, 4), model.LAYERS - 1
    for k in range(model.LAYERS):
        model.weights[k], model.opt_states[k] = model.load_weights(k, model.rank, model.RANKS)
    here = {(way, k): asyncio.Event() for way in "fb" for k in mine}
    used = {(way, k): asyncio.Event() for way in "fb" for k in mine}
    async def gather(way, k):
        weight = await model.allgather(model.weights[k], k)
        if k in mine:
            model.weights["whole"] = weight
            here[way, k].set()
            del weight
            await used[way, k].wait()
    async def reduce(k):
        grad = model.grad_weights.pop(k) if k in mine else model.fake_grad(k, [])
        grad = await model.scatterreduce(grad, k)
        model.weights[k], model.opt_states[k] = model.update(k, grad, model.weights[k], model.opt_states[k])
        model.set_final_weight(k, model.weights[k])
    async def meetings():
        for k in range(model.LAYERS):
            await gather("f", k)
        for k in reversed(range(model.LAYERS)):
            await gather("b", k)
            await reduce(k)
    async def train():
        for k in mine:
            model.activations[k] = model.get_activation([pipe]) if k == 0 else await model.receive(src=before)
            await here["f", k].wait()
            out = model.forward(k, model.activations[k], model.weights.pop("whole"))
            if k == top:
                model.grad_activations["in"] = model.loss(out)
            else:
                await model.pass_to(after, out)
            used["f", k].set()
        for k in reversed(mine):
            if k < top:
                model.grad_activations["in"] = await model.receive(src=after)
            await here["b", k].wait()
            model.grad_weights[k], grad = model.backward(
                k, model.activations.pop(k), model.grad_activations.pop("in"), model.weights.pop("whole"))
            if k > 0:
                await model.pass_to(before, grad)
            used["b", k].set()
    await asyncio.gather(meetings(), train())
    return model
"""
FUTURES = """
import asyncio
async def ddp(model: Model) -> Model:
    ready = {k: asyncio.get_running_loop().create_future() for k in range(model.LAYERS)}
    async def sums():
        for k in reversed(range(model.LAYERS)):
            await ready[k]
            grad = await model.allreduce(model.grad_weights.pop(k), k)
            model.weights[k], model.opt_states[k] = model.update(k, grad, model.weights[k], model.opt_states[k])
            model.set_final_weight(k, model.weights[k])
    for k in range(model.LAYERS):
        model.weights[k], model.opt_states[k] = model.load_weights(k)
    summing = asyncio.create_task(sums())
    model.activations[0] = model.get_activation([model.rank])
    for k in range(model.LAYERS):
        model.activations[k + 1] = model.forward(k, model.activations[k], model.weights[k])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
    for k in reversed(range(model.LAYERS)):
        model.grad_weights[k], model.grad_activations[k] = model.backward(
            k, model.activations.pop(k), model.grad_activations.pop(k + 1), model.weights[k])
        ready[k].set_result(None)
    await summing
    return model
"""
QUEUE = """
import asyncio
async def ddp(model: Model) -> Model:
    queue, done = asyncio.Queue(), asyncio.Event()
    async def worker():
        for _ in range(model.LAYERS):
            k = await queue.get()
            model.grad_weights[k] = await model.allreduce(model.grad_weights.pop(k), k)
        done.set()
    async def train():
        for k in range(model.LAYERS):
            model.weights[k], model.opt_states[k] = model.load_weights(k)
        model.activations[0] = model.get_activation([model.rank])
        for k in range(model.LAYERS):
            model.activations[k + 1] = model.forward(k, model.activations[k], model.weights[k])
        grad = model.loss(model.activations.pop(model.LAYERS))
        for k in reversed(range(model.LAYERS)):
            model.grad_weights[k], grad = model.backward(k, model.activations.pop(k), grad, model.weights[k])
            queue.put_nowait(k)
        await done.wait()
        for k in range(model.LAYERS):
            model.weights[k], model.opt_states[k] = model.update(k, model.grad_weights.pop(k), model.weights[k], model.opt_states[k])
            model.set_final_weight(k, model.weights[k])
    await asyncio.gather(worker(), train())
    return model
"""
TABLE = """
import asyncio

async def pipeline_fsdp(model: Model) -> Model:
    stage, pipe = model.rank % 4, model.rank // 4
    per = model.LAYERS // 4
    mine = [layer for layer in range(model.LAYERS) if layer // per == stage]
    shards = {}
    for layer in range(model.LAYERS):
        model.weights["shard", layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )
    done = {("f", layer): asyncio.Event() for layer in range(model.LAYERS)}
    done |= {("b", layer): asyncio.Event() for layer in range(model.LAYERS)}
    have = {key: asyncio.Event() for key in done}
    order = [("f", layer) for layer in range(model.LAYERS)]
    order += [("b", layer) for layer in reversed(range(model.LAYERS))]

    async def collectives():
        for way, layer in order:
            w = await model.allgather(model.weights["shard", layer], layer)
            if layer in mine:
                model.weights["whole"] = w
                have[way, layer].set()
            if layer in mine:
                await done[way, layer].wait()
            if way == "b":
                if layer in mine:
                    grad = model.grad_weights.pop(layer)
                else:
                    grad = model.fake_grad(layer, [])
                grad = await model.scatterreduce(grad, layer)
                model.weights["shard", layer], model.opt_states[layer] = model.update(
                    layer, grad, model.weights["shard", layer], model.opt_states[layer]
                )
                model.set_final_weight(layer, model.weights["shard", layer])

    async def pipeline():
        if stage == 0:
            model.activations[0] = model.get_activation([pipe])
        else:
            model.activations[mine[0]] = await model.receive(src=model.rank - 1)
        for layer in mine:
            await have["f", layer].wait()
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights.pop("whole")
            )
            done["f", layer].set()
        top = mine[-1] + 1
        if stage < 3:
            await model.pass_to(model.rank + 1, model.activations.pop(top))
            model.grad_activations[top] = await model.receive(src=model.rank + 1)
        else:
            model.grad_activations[top] = model.loss(model.activations.pop(top))
        for layer in mine[::-1]:
            await have["b", layer].wait()
            model.grad_weights[layer], model.grad_activations[layer] = model.backward(
                layer,
                model.activations.pop(layer),
                model.grad_activations.pop(layer + 1),
                model.weights.pop("whole"),
            )
            done["b", layer].set()
        if stage > 0:
            await model.pass_to(model.rank - 1, model.grad_activations.pop(mine[0]))
        else:
            model.grad_activations.clear()

    await asyncio.gather(collectives(), pipeline())
    return model
"""
WHEREVER = (
    "waits for {} in `{}`, and it is set in {}: is each one set on this rank that is waited for, and in the same order?"
)
ORDER, BELOW = "let all ranks do both in the same order", "below no `if` of a rank"
SAME_CALLS = "call the same collectives in the same order"
NOTHING_ELSE, EACH_OTHER = "nothing else of {} at work that could end that wait", "they wait for each other"
ON_THE_WAY = "such as .set(), done on the way to the second one?"
NEEDLESS, TWICE = (
    "without this message, so nobody needs it: leave out this pass_to to rank",
    "needs no second one: send it once",
)
AWAIT_ONE = "must await model.receive() once for every pass_to"
KEEP_IT, ALLGATHER = "load it once, before all loops, and keep it: model.{}", "gets all of it from the others"
COMES = "nothing has been received for it: layer 4 is on rank 0"
BEGINS = "begins with forward(0, ...) of micro-batch 1, and micro-batch 0 has gone through on no rank"
BEFORE_ALL = "start each right before that backward"
SEND = "                await model.pass_to(model.rank + 1, model.activations.pop(layer + 1))\n"
SEND_TWICE = SEND.replace("pop(layer + 1)", "get(layer + 1)") + SEND
HEAD = "    ahead = "
WORK = "    for work in forwards[:ahead]:\n"
MINUS = "        if layer == top:\n            grad_out = model.loss(model.activations.pop((top + 1, mb)))\n        else:\n            grad_out = await model.receive(src=after)\n"  # fmt: skip
NEVER = MINUS.replace("        else:\n", "        elif model.rank == ranks - 1:\n            grad_out = model.grad_activations.pop((layer, mb))\n        else:\n")  # fmt: skip
BY_NAME = NEVER.replace("pop((layer, mb))", 'pop(f"{layer}/{mb}")')
SENT_AWAY = NEVER.replace("grad_out = model.loss(model.activations.pop((top + 1, mb)))", "await model.pass_to(0, model.loss(model.activations.pop((top + 1, mb))))\n            grad_out = model.grad_activations.pop('in')")  # fmt: skip
SUM_OF_PART = ("grad = await model.scatterreduce(grad, layer - 1)", "grad = await model.scatterreduce({}, layer - 1)")
INPUTS = """        inp = await model.allgather(model.activations.pop(layer), layer)
        grad_out"""
ROWS = [
    Row(edited("pipeline_fsdp", "an event of the backward is never set", EVENTS, ('            used["b", k].set()\n', "")), (NOTHING_ELSE.format("these ranks is"), "await used[way, k].wait()"), (ORDER, BELOW)),
    Row(edited("pipeline_fsdp", "one after the other", EVENTS, ("asyncio.gather(meetings(), train())", "meetings()\n    await train()")), ("await used[way, k].wait()", "await asyncio.gather(one(), other())"), (ORDER, BELOW, SAME_CALLS)),
    Row(edited("pipeline_fsdp", "the other one first", EVENTS, ("asyncio.gather(meetings(), train())", "train()\n    await meetings()")), ('await here["f", k].wait()', "await asyncio.gather(one(), other())"), ("its input is no message",)),
    Row(edited("pipeline_fsdp", "an event is set after the next message", EVENTS, ('            used["f", k].set()\n        for k', '        for k in mine:\n            if k < top:\n                model.grad_activations["in"] = await model.receive(src=after)\n            used["f", k].set()\n        for k')), ("await used[way, k].wait()", ON_THE_WAY), (ORDER, BELOW)),
    Row(edited("pipeline_fsdp", "the gradient is received first", EVENTS, ("        for k in mine:\n", '        if stage < 3:\n            model.grad_activations["in"] = await model.receive(src=after)\n        for k in mine:\n')), ("they wait in a circle: rank 2 waits", "a gradient is received after the forwards"), (ORDER, BELOW, "its input is no message")),
    Row(edited("pipeline_fsdp", "all weights of the way back are gathered after the sums", EVENTS, ('            await gather("b", k)\n            await reduce(k)\n', '            await used["b", k].wait() if k in mine else None\n            await reduce(k)\n        for k in reversed(range(model.LAYERS)):\n            await gather("b", k)\n')), (EACH_OTHER, 'and at line 47', 'await used["b", k].wait()'), (ORDER, BELOW)),
    Row(edited("pipeline_fsdp", "every rank waits for every backward", TABLE, ("            if layer in mine:\n                await done[way, layer].wait()\n", "            await done[way, layer].wait()\n")), (EACH_OTHER, "collectives() " + WHEREVER.format("done[way, layer]", "for way, layer in order", "`for layer in mine` and `for layer in mine[::-1]`")), ("Let one of them",)),
    Row(edited("pipeline_fsdp", "own layers go back upwards in their task", TABLE, ("mine[::-1]", "mine")), (EACH_OTHER, "collectives() " + WHEREVER.format("done[way, layer]", "for way, layer in order", "`for layer in mine`")), ("Let one of them",)),
    Row(edited("pipeline_fsdp", "every rank waits until a weight is used", EVENTS, ("            del weight\n            await used[way, k].wait()\n", "            del weight\n"), ('await gather("f", k)\n', 'await gather("f", k)\n            await used["f", k].wait()\n'), ('used = {(way, k): asyncio.Event() for way in "fb" for k in mine}', 'used = {(way, k): asyncio.Event() for way in "fb" for k in range(model.LAYERS)}')), (EACH_OTHER, "meetings() " + WHEREVER.format("used['f', k]", "for k in range(model.LAYERS)", "`for k in mine` and `for k in reversed(mine)`")), ("Let one of them",)),
    Row(edited("ddp", "a future of one layer is never done", FUTURES, ("        ready[k].set_result(None)\n", "        if model.rank == 0 or k:\n            ready[k].set_result(None)\n")), (NOTHING_ELSE.format("these ranks is"), "in sums: await ready[k]"), (ORDER, SAME_CALLS)),
    Row(edited("ddp", "the task is awaited too soon", FUTURES, ("    summing = asyncio.create_task(sums())\n", "    await asyncio.create_task(sums())\n"), ("    await summing\n", "")), ("in sums: await ready[k]",), (ORDER, SAME_CALLS)),
    Row(edited("ddp", "a worker is awaited before its work", QUEUE, ("    await asyncio.gather(worker(), train())\n", "    await worker()\n    await train()\n")), ("k = await queue.get()",), (ORDER, SAME_CALLS)),
    Row(edited("ddp", "a rank leaves out its last entry", QUEUE, ("            queue.put_nowait(k)\n", "            if k or model.rank:\n                queue.put_nowait(k)\n")), (EACH_OTHER, "k = await queue.get(), and at"), (ORDER, SAME_CALLS)),
    Row(edited("pipeline_fsdp", "an output is sent twice", PIPELINE_FSDP, (SEND, SEND_TWICE)), (TWICE,), (AWAIT_ONE,)),
    Row(edited("pipeline_fsdp", "an output goes to another pipeline, too", PIPELINE_FSDP, (SEND, SEND.replace("model.rank + 1, model.activations.pop", "(model.rank + 5) % 16, model.activations.get") + SEND)), (NEEDLESS,), (AWAIT_ONE,)),
    Row(changed("sequence_parallel", "slices go to the neighbor, too", ("        inp = await model.allgather(model.activations[layer], layer)\n", "        await model.pass_to((model.rank + 1) % model.RANKS, model.activations[layer])\n        inp = await model.allgather(model.activations[layer], layer)\n")), (NEEDLESS,), (AWAIT_ONE,)),
    Row(changed("fsdp", "it loads again for the update", ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(", "    for layer in range(model.LAYERS):\n        model.weights[layer] = model.load_weights(layer, model.rank, model.RANKS)[0]\n        model.weights[layer], model.opt_states[layer] = model.update(")), (KEEP_IT.format("weights["),), (ALLGATHER,)),
    Row(changed("sequence_parallel", "it loads again for the way back", ("        grad_out = model.grad_activations.pop(layer + 1)\n", "        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)\n        grad_out = model.grad_activations.pop(layer + 1)\n")), (KEEP_IT.format("weights["),), (ALLGATHER,)),
    Row(changed("interleaved", "the last rank receives no gradient", (MINUS, NEVER)), (COMES, "await model.receive(src=0)"), ("comes first, and gives it",)),
    Row(changed("interleaved", "the last rank receives no gradient, keys are names", (MINUS, BY_NAME)), (COMES, "await model.receive(src=0)"), ("A sum begins",)),
    Row(changed("interleaved", "the gradient of the loss is sent to rank 0", (MINUS, SENT_AWAY)), ("it was sent to rank 0: keep it stored, as backward(7, ...) on this rank reads it",), ("A sum begins",)),
    Row(changed("interleaved", "forwards begin with number 1", ("forwards[:ahead]", "forwards[1:ahead]")), (BEGINS,), ("Take micro-batches 1-4",)),
    Row(edited("interleaved", "the count of forwards begins with 1", COUNTED, ("    f = b = 0\n", "    f, b = 1, 0\n")), (BEGINS,), ("Take micro-batches 1-4",)),
    Row(changed("interleaved", "the first gradient is not sent", ("        if layer > 0:\n            await model.pass_to(before", "        if layer > 0 and (layer, mb) != (top, 0):\n            await model.pass_to(before")), ("right after its backward(7, ...)",), ("backward of its first layer",)),
    Row(changed("interleaved", "the first backward is left out", ("        await backward(*work)\n", "        if turn > ahead:\n            await backward(*work)\n")), ("is the backward of micro-batch 0 left out, by a condition or where a loop begins?",), ("backward of its first layer",)),
    Row(changed("sequence_parallel", "what backward has read is summed", ("grad_out = model.grad_activations.pop(layer + 1)", "grad_out = model.grad_activations[layer + 1]"), (SUM_OF_PART[0], SUM_OF_PART[1].format("grad_out"))), ("this is what backward(7, ...) has read, and not what it has given",), ("what ranks add up is the gradient of the weight",)),
    Row(changed("sequence_parallel", "the two gradients are exchanged", ("model.grad_weights[layer], grad = model.backward(", "grad, model.grad_activations[layer] = model.backward("), ("grad_weights.pop(layer)", "grad_activations.pop(layer)")), ("are the two exchanged where they are made?",), ("name the layer of the tensor",)),
    Row(changed("interleaved", "weights are gathered, as in pieces", ("model.load_weights(layer)", "model.load_weights(layer, model.rank, ranks)"), ("model.activations[layer, mb], model.weights[layer])\n        if", "model.activations[layer, mb], await model.allgather(model.weights[layer], layer))\n        if")), ("here each rank loads all of its own layers, model.load_weights(0)",), ("each rank loads its piece",)),
    Row(changed("interleaved", "a second gradient is left out", ("        if layer > 0:\n            await model.pass_to(before", "        if layer > 0 and (layer, mb) != (6, 1):\n            await model.pass_to(before")), ("right after its backward(6, ...)",), ("backward of its first layer",)),
    Row(changed("interleaved", "the gradient that was read goes on", ("pass_to(before, grad_in)", "pass_to(before, grad_out)")), ("What goes on is the gradient of its input, the second of the two",), ("store it to keep it",)),
]  # fmt: skip
COSTS_MEMORY = [
    Row(changed("sequence_parallel", "all inputs are gathered before the way back", ("    for layer in reversed(range(model.LAYERS)):\n", "    calls = {layer: model.allgather(model.activations.pop(layer), layer) for layer in reversed(range(model.LAYERS))}\n    for layer in reversed(range(model.LAYERS)):\n"), ("inp = await model.allgather(model.activations.pop(layer), layer)\n        grad_out", "inp = await calls.pop(layer)\n        grad_out")), (BEFORE_ALL,), ("await a call before the next one",)),
    Row(changed("sequence_parallel", "tasks gather all inputs", ("    for layer in reversed(range(model.LAYERS)):\n", "    async def fetch(layer):\n        return await model.allgather(model.activations.pop(layer), layer)\n    tasks = [asyncio.create_task(fetch(layer)) for layer in range(model.LAYERS)]\n    for layer in reversed(range(model.LAYERS)):\n"), ("inp = await model.allgather(model.activations.pop(layer), layer)\n        grad_out", "inp = await tasks.pop()\n        grad_out")), (BEFORE_ALL,), ("await a call before the next one",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_on_tasks_and_messages_lead_to_the_fix(row: Row) -> None:
    check_words(row)


@pytest.mark.parametrize("row", COSTS_MEMORY, ids=lambda row: row.program.name)
def test_gathers_made_before_the_way_back_are_told_to_wait(row: Row) -> None:
    said = grade(function(row.program), row.program.puzzle).verdict.costs_memory  # type: ignore[arg-type]
    assert all(words in said for words in row.says) and not any(words in said for words in row.never), said


@pytest.mark.parametrize(("puzzle", "source"), [("pipeline_fsdp", EVENTS), ("ddp", FUTURES), ("ddp", QUEUE)])
def test_programs_of_tasks_are_right_without_a_mistake(puzzle: str, source: str) -> None:
    assert grade(function(whole(puzzle, "right", source)), puzzle).verdict.right  # type: ignore[arg-type]
