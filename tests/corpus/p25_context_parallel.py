"""Puzzle 25, context parallel: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

OWN = "model.get_activation([0]).shard(model.rank, model.RANKS)"
PROJECT = 'acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)\n'
GATHER = 'whole = await model.allgather(acts["kv", layer], layer)\n'
ATTEND = '        acts["att", layer] = model.attend(layer, acts["att", layer], whole)\n'
REST = 'acts[layer + 1] = model.rest(layer, inp, weight, acts["att", layer])'
AGAIN = 'whole = await model.allgather(acts.pop(("kv", layer)), layer)'
HOME = 'grads["kv"] = await model.scatterreduce(kv_grad, layer)'
SUM = "sums[layer] = model.allreduce(of_weight, layer)"
TAKE = "        grad = await sums[layer]\n"
ANSWER = "        model.set_final_weight(layer, model.weights[layer])\n"
BEGIN = "    n, r = model.RANKS, model.rank\n"
ZIGZAG = "model.get_activation([0])\n    n, r = model.RANKS, model.rank\n    acts[0] = acts[0].shard(r, 2 * n).combine(acts[0].shard(2 * n - 1 - r, 2 * n))"
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
    changed("context_parallel", EVERYWHERE, ALL, ('        acts["whole"] = await', '        if layer == 0 and model.LAYERS > 1:\n            _, acts["whole"] = model.project(0, acts.pop("all"), weight)\n        else:\n            acts["whole"] = await'), base="zigzag_and_ahead"),
    changed("context_parallel", "own keys only", (GATHER, 'whole = acts["kv", layer]\n')),
    changed("context_parallel", "own keys only in the backward", (AGAIN, 'whole = acts.pop(("kv", layer))')),
    changed("context_parallel", "own keys, and then all", (ATTEND, ATTEND.replace("whole)", 'acts["kv", layer])') + ATTEND), (GATHER, 'whole = acts["whole"] = await model.allgather(acts["kv", layer], layer)\n')),
    changed("context_parallel", "the gradient of keys and values not summed", (HOME, 'grads["kv"] = kv_grad.shard(model.rank, model.RANKS)')),
    changed("context_parallel", "the gradient of keys and values not brought home", (HOME, 'grads["kv"] = kv_grad')),
    changed("context_parallel", "gradients of weights not summed", (SUM, "model.grad_weights[layer] = of_weight"), ("await sums[layer]", "model.grad_weights.pop(layer)")),
    changed("context_parallel", "the loss of a slice, not said", (", sliced=True", "")),
    changed("context_parallel", "a forward of the slice", (REST, "acts[layer + 1] = model.forward(layer, inp, weight)")),
    changed("context_parallel", "four ranks in mind", (OWN, "model.get_activation([0]).shard(model.rank, 4)")),
    changed("context_parallel", "the keys of the layer below", (AGAIN, 'whole = await model.allgather(acts[("kv", max(layer - 1, 0))], layer)')),
    changed("context_parallel", "states not kept", (ANSWER, ANSWER + "        del model.opt_states[layer]\n")),
    changed("context_parallel", "final weights of rank 0 only", (ANSWER, "        if model.rank == 0:\n    " + ANSWER)),
    # -- round the work -------------------------------------------------------------------------------------
    changed("context_parallel", "keys sent to the next rank", (PROJECT, PROJECT + RING), base="zigzag_and_ahead"),
    changed("context_parallel", "a weight in shards until it is needed", (BEGIN, BEGIN + "    model.weights[0] = model.weights[0].shard(r, n)\n"), (PROJECT, "if layer == 0:\n            model.weights[0] = weight = await model.allgather(model.weights[0], 0)\n            inp = acts[0]\n        " + PROJECT), base="zigzag_and_ahead"),
    changed("context_parallel", "queries made complete by hand", (ATTEND, '        from lib import Attended\n        acts["att", layer] = Attended(layer, model.LAYERS, [0], 1, [model.rank], model.RANKS, range(model.rank + 1), model.RANKS)\n')),
    changed("context_parallel", "gradients made up for the other slices", (SUM, "model.grad_weights[layer] = model.fake_grad(layer, [0])"), ("await sums[layer]", "model.grad_weights.pop(layer)")),
]  # fmt: skip
