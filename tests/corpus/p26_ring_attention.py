"""Puzzle 26, ring attention: honest styles, natural mistakes, and ways round the work by the public names alone."""

from __future__ import annotations

from . import changed
from .p25_context_parallel import ALL, EVERYWHERE

OWN = "inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))"
BEGIN = "    inp = model.get_activation([0])\n"
PROJECT = 'acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)\n'
FIRST = 'acts["kv"] = acts["kv", layer]\n'
LOOP = '        for step in range(n):\n            send = model.pass_to(after, acts["kv"]) if step < n - 1 else None\n            acts["att", layer]'
PASS = 'model.pass_to(after, acts["kv"]) if step < n - 1 else None'
ATTEND = '            acts["att", layer] = model.attend(layer, acts["att", layer], acts.pop("kv"))\n'
REST = 'acts[layer + 1] = model.rest(layer, inp, weight, acts["att", layer])'
BACK = 'grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts.pop("kv"))\n'
ADD = 'grads["kv"] = kv_grad + grads.pop("kv") if step else kv_grad'
HOME = "            if n > 1:\n"
SUM = "sums[layer] = model.allreduce(of_weight, layer)"
TAKE = "        grad = await sums[layer]\n"
UPDATE = "        model.weights[layer], model.opt_states[layer] = model.update(\n"
ANSWER = "        model.set_final_weight(layer, model.weights[layer])\n"
BY_TURNS = """        if layer == 0 and r % 2:
            model.weights[0] = await model.receive(before)
            model.opt_states[0] = await model.receive(before)
            model.set_final_weight(0, model.weights[0])
            continue
"""
SENDS = """        if layer == 0 and r + 1 < n and r % 2 == 0:
            for one in (model.weights[0], model.opt_states[0]):
                await model.pass_to(after, one)
"""

THREE = ("int(again * model.LAYERS)", "3"), ("again: float", "again: float = 0")

HONEST = [
    changed("ring_attention", "of the lowest three layers all is made again", *THREE, base="hops_hidden"),
    changed("ring_attention", "the other way round the ring", ("(r + 1) % n, (r - 1) % n", "(r - 1) % n, (r + 1) % n")),
    changed("ring_attention", "the slices near the middle on rank 0", (OWN, "inp.shard(n - 1 - r, 2 * n).combine(inp.shard(n + r, 2 * n))")),
    changed("ring_attention", "passed on after the block", (LOOP, LOOP.replace(PASS, "None")), (ATTEND, ATTEND.replace("acts.pop(", "acts[").replace('"kv"))', '"kv"])') + "            send = model.pass_to(after, acts.pop(\"kv\")) if step < n - 1 else None\n"), ('        acts[layer + 1] = model.rest', '        acts.pop("kv", None)\n        acts[layer + 1] = model.rest')),
    changed("ring_attention", "a full ring, after which each has its own keys again", (LOOP, LOOP.replace("step < n - 1", "n > 1")), ('        acts[layer + 1] = model.rest', '        acts.pop("kv", None)\n        acts[layer + 1] = model.rest')),
]  # fmt: skip

MISTAKES = [
    changed("ring_attention", "a step too few", (LOOP, LOOP.replace("range(n)", "range(n - 1 or 1)")), ('        acts[layer + 1] = model.rest', '        acts.pop("kv", None)\n        acts[layer + 1] = model.rest'), says="the queries have not attended to slice"),
    changed("ring_attention", "own keys passed on, over and over", (LOOP, LOOP.replace('after, acts["kv"]', 'after, acts["kv", layer]')), says="these queries have attended to slice"),
    changed("ring_attention", "only steps up to the own rank", (ATTEND, '            att, kv = acts["att", layer], acts.pop("kv")\n            if step <= r:\n                acts["att", layer] = model.attend(layer, att, kv)\n'), says="the queries have not attended to slice"),
    changed("ring_attention", "the gradient of keys and values not brought home", (HOME, "            if step < n - 1:\n"), says="the gradient of keys and values is of another slice"),
    changed("ring_attention", "what the others have added is dropped", (ADD, 'grads.pop("kv", None)\n            grads["kv"] = kv_grad'), says="missing what the queries of slice"),
    changed("ring_attention", "the gradient stays, and the keys go on", (HOME, "            if False:\n"), says="not gradients of the same keys and values"),
    changed("ring_attention", "both neighbors are the next one", ("(r + 1) % n, (r - 1) % n", "(r + 1) % n, (r + 1) % n"), says="rank 0 waits for receive from rank 1"),
    changed("ring_attention", "received before anything is sent", ('            send = model.pass_to(after, acts["kv"]) if step < n - 1 else None\n' + ATTEND, ATTEND.replace("acts.pop(", "acts[").replace('"kv"))', '"kv"])') + "            send = step < n - 1\n"),
            ('                acts["kv"] = await model.receive(before)\n                await send\n        acts[layer + 1]', '                theirs = await model.receive(before)\n                await model.pass_to(after, acts.pop("kv"))\n                acts["kv"] = theirs\n        acts[layer + 1]'), says="rank 0 waits for receive from rank 3"),
    changed("ring_attention", "gradients of weights not summed", (SUM, "model.grad_weights[layer] = of_weight"), ("await sums[layer]", "model.grad_weights.pop(layer)"), says="gradient is missing slice"),
    changed("ring_attention", "the loss of a slice, not said", (", sliced=True", ""), says="model.loss(out, sliced=True)"),
    changed("ring_attention", "a slice each, in order", (OWN, "inp.shard(r, n)"), says="over the target: 40.52 ticks"),
    changed("ring_attention", "one slice for all ranks", (OWN, "inp.shard(0, n)"), says="attended to slice {0} of 4 before"),
    changed("ring_attention", "the last sum for every layer", ("await sums[layer]", "await sums[0]"), says="weight_grad is of layer 0"),
    changed("ring_attention", "each layer updated at once, hops after blocks", (LOOP, LOOP.replace(PASS, "None")), (ATTEND, ATTEND.replace("acts.pop(", "acts[").replace('"kv"))', '"kv"])') + "            send = model.pass_to(after, acts.pop(\"kv\")) if step < n - 1 else None\n"), ('        acts[layer + 1] = model.rest', '        acts.pop("kv", None)\n        acts[layer + 1] = model.rest'),
            (TAKE, "        break\n"), (SUM, SUM + "\n        model.weights[layer], model.opt_states[layer] = model.update(\n            layer, await sums[layer], weight, model.opt_states[layer]\n        )\n        model.set_final_weight(layer, model.weights[layer])"), says="over the target: 35.84 ticks"),
    changed("ring_attention", "every rank trains the whole sequence", base="grad_accum", says="over the target: 100 ticks"),
    changed("ring_attention", "states not kept", (ANSWER, ANSWER + "        del model.opt_states[layer]\n"), says="ends without the updated optimizer state"),
    changed("ring_attention", "final weights of rank 0 only", (ANSWER, "        if model.rank == 0:\n    " + ANSWER), says="ends without the final weight of layer 0"),
    # -- round the work -------------------------------------------------------------------------------------
    changed("ring_attention", "the keys of one layer gathered", (FIRST, 'acts["kv"] = acts["kv", layer] if layer else await model.allgather(acts["kv", 0], 0)\n'), (LOOP, LOOP.replace("range(n)", "range(n if layer else 1)").replace("step < n - 1", "layer and step < n - 1")), says="it gathers keys and values of layer 0"),
    changed("ring_attention", EVERYWHERE, ALL, (FIRST, FIRST + '        if layer == 0:\n            _, acts["kv"] = model.project(0, acts.pop("all"), weight)\n'), (LOOP, LOOP.replace("range(n)", "range(n if layer else 1)").replace("step < n - 1", "layer and step < n - 1")), says="it projects slices 0-7 of 8"),
    changed("ring_attention", "puzzle 25", base="zigzag_and_ahead", says="it gathers keys and values of layer 0"),
    changed("ring_attention", "slices turned into heads", base="ulysses", says="is solved without `alltoall`"),
    changed("ring_attention", "a layer updated on every second rank, and sent to its neighbor", (TAKE, TAKE + BY_TURNS), (ANSWER, ANSWER + SENDS), says="it moves the weight of layer 0"),
    changed("ring_attention", "a weight in shards until it is needed", (BEGIN, BEGIN + "    model.weights[0] = model.weights[0].shard(r, n)\n"), (PROJECT, "if layer == 0:\n            model.weights[0] = weight = await model.allgather(model.weights[0], 0)\n            inp = acts[0]\n        " + PROJECT),
            says="it moves the weight of layer 0"),
    changed("ring_attention", "queries made complete by hand", (REST, 'from lib import Attended\n        acts["att", layer] = Attended(layer, model.LAYERS, [0], 1, [r, 2 * n - 1 - r], 2 * n, range(2 * n - r), 2 * n)\n        ' + REST), says="is made up"),
    changed("ring_attention", "the gradient of keys and values made complete by hand", ("        of_weight, grads", '        from lib import KeysValuesGrad\n        grads["kv"] = KeysValuesGrad(layer, model.LAYERS, [0], 1, [r, 2 * n - 1 - r], 2 * n, range(r, 2 * n), 2 * n)\n        of_weight, grads'), says="is made up"),
    changed("ring_attention", "gradients made up", (SUM, "model.grad_weights[layer] = model.fake_grad(layer, [0])"), ("await sums[layer]", "model.grad_weights.pop(layer)"), says="is made up"),
]  # fmt: skip
