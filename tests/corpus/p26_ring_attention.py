"""Puzzle 26, ring attention: honest styles, natural mistakes, and ways round the work by the public names alone."""

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
ADD = 'grads["kv"] = kv_grad + grads.pop("kv") if step else kv_grad'
SUM = "sums[layer] = model.allreduce(of_weight, layer)"
TAKE = "        grad = await sums[layer]\n"
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
    changed("ring_attention", "what the others have added is dropped", (ADD, 'grads.pop("kv", None)\n            grads["kv"] = kv_grad')),
    changed("ring_attention", "gradients of weights not summed", (SUM, "model.grad_weights[layer] = of_weight"), ("await sums[layer]", "model.grad_weights.pop(layer)")),
    changed("ring_attention", "the loss of a slice, not said", (", sliced=True", "")),
    changed("ring_attention", "a slice each, in order", (OWN, "inp.shard(r, n)")),
    changed("ring_attention", "the last sum for every layer", ("await sums[layer]", "await sums[0]")),
    changed("ring_attention", "every rank trains the whole sequence", base="grad_accum"),
    changed("ring_attention", "states not kept", (ANSWER, ANSWER + "        del model.opt_states[layer]\n")),
    changed("ring_attention", "final weights of rank 0 only", (ANSWER, "        if model.rank == 0:\n    " + ANSWER)),
    # -- round the work -------------------------------------------------------------------------------------
    changed("ring_attention", "the keys of one layer gathered", (FIRST, 'acts["kv"] = acts["kv", layer] if layer else await model.allgather(acts["kv", 0], 0)\n'), (LOOP, LOOP.replace("range(n)", "range(n if layer else 1)").replace("step < n - 1", "layer and step < n - 1"))),
    changed("ring_attention", EVERYWHERE, ALL, (FIRST, FIRST + '        if layer == 0:\n            _, acts["kv"] = model.project(0, acts.pop("all"), weight)\n'), (LOOP, LOOP.replace("range(n)", "range(n if layer else 1)").replace("step < n - 1", "layer and step < n - 1"))),
    changed("ring_attention", "puzzle 25", base="zigzag_and_ahead"),
    changed("ring_attention", "slices turned into heads", base="ulysses"),
    changed("ring_attention", "a layer updated on every second rank, and sent to its neighbor", (TAKE, TAKE + BY_TURNS), (ANSWER, ANSWER + SENDS)),
    changed("ring_attention", "a weight in shards until it is needed", (BEGIN, BEGIN + "    model.weights[0] = model.weights[0].shard(r, n)\n"), (PROJECT, "if layer == 0:\n            model.weights[0] = weight = await model.allgather(model.weights[0], 0)\n            inp = acts[0]\n        " + PROJECT)),
    changed("ring_attention", "queries made complete by hand", (REST, 'from lib import Attended\n        acts["att", layer] = Attended(layer, model.LAYERS, [0], 1, [r, 2 * n - 1 - r], 2 * n, range(2 * n - r), 2 * n)\n        ' + REST)),
]  # fmt: skip
