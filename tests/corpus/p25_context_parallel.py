"""Puzzle 25, context parallel: honest styles, natural mistakes, and ways round the work by the public names alone."""

from __future__ import annotations

from . import changed

LOAD = "model.load_weights(layer)\n"
OWN = "model.get_activation([0]).shard(model.rank, model.RANKS)"
PROJECT = 'acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)\n'
GATHER = 'whole = await model.allgather(acts["kv", layer], layer)\n'
ATTEND = '        acts["att", layer] = model.attend(layer, acts["att", layer], whole)\n'
REST = 'acts[layer + 1] = model.rest(layer, inp, weight, acts["att", layer])'
LOSS = "model.loss(acts.pop(model.LAYERS), sliced=True)"
AGAIN = 'whole = await model.allgather(acts.pop(("kv", layer)), layer)'
HOME = 'grads["kv"] = await model.scatterreduce(kv_grad, layer)'
SUM = "sums[layer] = model.allreduce(of_weight, layer)"
TAKE = "        grad = await sums[layer]\n"
ANSWER = "        model.set_final_weight(layer, model.weights[layer])\n"
BEGIN = "    n, r = model.RANKS, model.rank\n"
ZIGZAG = "model.get_activation([0])\n    n, r = model.RANKS, model.rank\n    acts[0] = acts[0].shard(r, 2 * n).combine(acts[0].shard(2 * n - 1 - r, 2 * n))"
TAKEN = "        grad = await sums.pop(layer)\n"
BY_TURNS = """        if layer == 0 and model.rank % 2:
            model.weights[0] = await model.receive(model.rank - 1)
            model.opt_states[0] = await model.receive(model.rank - 1)
            model.set_final_weight(0, model.weights[0])
            return
"""
SENDS = """        if layer == 0 and model.rank + 1 < model.RANKS and model.rank % 2 == 0:
            for one in (model.weights[0], model.opt_states[0]):
                await model.pass_to(model.rank + 1, one)
"""
RING = """        send = model.pass_to((model.rank + 1) % model.RANKS, acts["kv", layer])
        acts["theirs"] = await model.receive()
        await send
        del acts["theirs"]
"""

EVERYWHERE = "keys of layer 0 are made on every rank"
ALL = ("    inp = model.get_activation([0])\n", '    acts["all"] = inp = model.get_activation([0])\n')

HONEST = [
    changed("context_parallel", "zigzag", (OWN, ZIGZAG)),
    changed("context_parallel", "the last slice on rank 0", (OWN, "model.get_activation([0]).shard(model.RANKS - 1 - model.rank, model.RANKS)")),
    changed("context_parallel", "slice by slice, and last ones first", (ATTEND, '        acts["whole"] = whole\n        for one in reversed(range(model.RANKS)):\n            acts["att", layer] = model.attend(layer, acts["att", layer], acts["whole"].shard(one, model.RANKS))\n        del acts["whole"]\n')),
    changed("context_parallel", "each layer updated after the next", (TAKE, "        break\n"), (SUM, SUM + "\n        for done in [one for one in sums if one == layer + 1 or layer == 0]:\n            grad = await sums.pop(done)\n            model.weights[done], model.opt_states[done] = model.update(\n                done, grad, model.weights[done], model.opt_states[done]\n            )\n            model.set_final_weight(done, model.weights[done])")),
]  # fmt: skip

MISTAKES = [
    changed("context_parallel", EVERYWHERE, ALL, ('        acts["whole"] = await', '        if layer == 0 and model.LAYERS > 1:\n            _, acts["whole"] = model.project(0, acts.pop("all"), weight)\n        else:\n            acts["whole"] = await'), base="zigzag_and_ahead", says="it projects slices 0-7 of 8"),
    changed("context_parallel", "own keys only", (GATHER, 'whole = acts["kv", layer]\n'), says="the queries have not attended to slice {0} of 4"),
    changed("context_parallel", "own keys only in the backward", (AGAIN, 'whole = acts.pop(("kv", layer))'), says="model.allgather(kv, 7) comes before backward_attend, too"),
    changed("context_parallel", "own keys, and then all", (ATTEND, ATTEND.replace("whole)", 'acts["kv", layer])') + ATTEND), (GATHER, 'whole = acts["whole"] = await model.allgather(acts["kv", layer], layer)\n'), says="these queries have attended to slice {0} of 4 before"),
    changed("context_parallel", "the gradient of keys and values not summed", (HOME, 'grads["kv"] = kv_grad.shard(model.rank, model.RANKS)'), says="missing what the queries of slice"),
    changed("context_parallel", "the gradient of keys and values not brought home", (HOME, 'grads["kv"] = kv_grad'), says="the gradient of keys and values is of another slice"),
    changed("context_parallel", "gradients of weights not summed", (SUM, "model.grad_weights[layer] = of_weight"), ("await sums[layer]", "model.grad_weights.pop(layer)"), says="gradient is missing slice"),
    changed("context_parallel", "the loss of a slice, not said", (", sliced=True", ""), says="model.loss(out, sliced=True)"),
    changed("context_parallel", "one slice for all ranks", (OWN, "model.get_activation([0]).shard(0, model.RANKS)"), says="comes twice"),
    changed("context_parallel", "the input not cut", (OWN, "model.get_activation([0])"), says="comes twice"),
    changed("context_parallel", "a forward of the slice", (REST, "acts[layer + 1] = model.forward(layer, inp, weight)"), says="att, kv = model.project(0, inp, weight)"),
    changed("context_parallel", "four ranks in mind", (OWN, "model.get_activation([0]).shard(model.rank, 4)"), says="right at its own size, but not with 1 rank"),
    changed("context_parallel", "the keys of the layer below", (AGAIN, 'whole = await model.allgather(acts[("kv", max(layer - 1, 0))], layer)'), says="the KeysValues is of layer 6"),
    changed("context_parallel", "what was gathered is kept", (GATHER, 'whole = acts["kv", layer] = await model.allgather(acts["kv", layer], layer)\n'), (AGAIN, 'whole = acts.pop(("kv", layer))'), says="over the target: 9,830,400 elements"),
    changed("context_parallel", "each sum awaited at once", (SUM, "model.grad_weights[layer] = await model.allreduce(of_weight, layer)"), ("await sums[layer]", "model.grad_weights.pop(layer)"), says="over the target: 50.2 ticks"),
    changed("context_parallel", "each layer updated at once", (TAKE, "        break\n"), (SUM, SUM + "\n        model.weights[layer], model.opt_states[layer] = model.update(\n            layer, await sums[layer], weight, model.opt_states[layer]\n        )\n        model.set_final_weight(layer, model.weights[layer])"), says="over the target: 50.2 ticks"),
    changed("context_parallel", "every rank trains the whole sequence", base="grad_accum", says="over the target: 100 ticks"),
    changed("context_parallel", "states not kept", (ANSWER, ANSWER + "        del model.opt_states[layer]\n"), says="ends without the updated optimizer state"),
    changed("context_parallel", "final weights of rank 0 only", (ANSWER, "        if model.rank == 0:\n    " + ANSWER), says="ends without the final weight of layer 0"),
    # -- round the work -------------------------------------------------------------------------------------
    changed("context_parallel", "keys sent to the next rank", (PROJECT, PROJECT + RING), base="zigzag_and_ahead", says="it sends keys and values of layer 0"),
    changed("context_parallel", "a layer updated on every second rank, and sent to its neighbor", (TAKEN, TAKEN + BY_TURNS), (ANSWER, ANSWER + SENDS), base="zigzag_and_ahead", says="it moves the weight of layer 0"),
    changed("context_parallel", "a weight in shards until it is needed", (BEGIN, BEGIN + "    model.weights[0] = model.weights[0].shard(r, n)\n"), (PROJECT, "if layer == 0:\n            model.weights[0] = weight = await model.allgather(model.weights[0], 0)\n            inp = acts[0]\n        " + PROJECT), base="zigzag_and_ahead",
            says="it moves the weight of layer 0"),
    changed("context_parallel", "queries made complete by hand", (ATTEND, '        from lib import Attended\n        acts["att", layer] = Attended(layer, model.LAYERS, [0], 1, [model.rank], model.RANKS, range(model.rank + 1), model.RANKS)\n'), says="is made up"),
    changed("context_parallel", "the gradient of keys and values made complete by hand", (HOME, 'from lib import KeysValuesGrad\n        grads["kv"] = KeysValuesGrad(layer, model.LAYERS, [0], 1, [model.rank], model.RANKS, range(model.rank, model.RANKS), model.RANKS)'), says="is made up"),
    changed("context_parallel", "gradients made up for the other slices", (SUM, "model.grad_weights[layer] = model.fake_grad(layer, [0])"), ("await sums[layer]", "model.grad_weights.pop(layer)"), says="is made up"),
]  # fmt: skip
