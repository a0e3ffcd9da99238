"""Puzzle 27, expert parallel: honest styles, natural mistakes, and ways round the work."""

from . import changed

LOAD = "piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)"
OUT = 'acts["tokens", layer] = await model.alltoall(acts.pop(layer), layer)'
HOME = "acts[layer + 1] = await model.alltoall(out, layer + 1)"
BACK_HOME = 'grads["last"] = await model.alltoall(grads.pop("last"), layer - 1)'
OF_EXPERTS = "model.grad_weights[layer] = grad\n"
SUM = "sums[layer] = model.allreduce(grad, layer)"
FORWARD = 'if model.experts(layer):\n            acts["tokens"'
LOOP = "    for layer in reversed(range(model.LAYERS)):\n        weight"

HONEST = [
    changed("expert_parallel", "tokens before sums", base="tokens_before_sums"),
    changed("expert_parallel", "each dense sum awaited at once", (SUM, "model.grad_weights[layer] = await model.allreduce(grad, layer)")),
]  # fmt: skip

MISTAKES = [
    changed("expert_parallel", "gradients of experts summed over all ranks", (OF_EXPERTS, "model.grad_weights[layer] = await model.allreduce(grad, layer)\n")),
    changed("expert_parallel", "gradients of experts reduce-scattered", (OF_EXPERTS, "model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n")),
    changed("expert_parallel", "dense gradients not summed", (SUM, "model.grad_weights[layer] = grad")),
    changed("expert_parallel", "gradients not brought home", (BACK_HOME, "pass")),
    changed("expert_parallel", "tokens not sent to the experts", (OUT, 'acts["tokens", layer] = acts.pop(layer)')),
    changed("expert_parallel", "tokens of dense layers sent, too", (FORWARD, 'if True:\n            acts["tokens"')),
    changed("expert_parallel", "the layer of the way out on the way home", (HOME, "acts[layer + 1] = await model.alltoall(out, layer)")),
    changed("expert_parallel", "one micro-batch for all ranks", ("model.rank])\n    for layer in range(model.LAYERS):\n        if", "0])\n    for layer in range(model.LAYERS):\n        if")),
    changed("expert_parallel", "states not kept", ("model.set_final_weight(layer, model.weights[layer])", "model.set_final_weight(layer, model.weights[layer])\n        del model.opt_states[layer]")),
    changed("expert_parallel", "dense weights handed in by rank 0 only", ("        model.set_final_weight(layer, model.weights[layer])", "        if model.experts(layer) or model.rank == 0:\n            model.set_final_weight(layer, model.weights[layer])")),
    changed("expert_parallel", "eight layers, whatever their number", ("range(model.LAYERS)", "range(8)")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("expert_parallel", "experts gathered", base="experts_gathered"),
    changed("expert_parallel", "every rank has all experts, and no token travels", (LOAD, "piece = (0, 1)"), ("if model.experts(layer):", "if False:")),
    changed("expert_parallel", "tokens made by hand", ("out = model.expert(layer, acts[\"tokens\", layer]", "from lib import Tokens\n            out = model.expert(layer, Tokens(layer, model.LAYERS, range(model.BATCHES), model.BATCHES, [model.rank], model.RANKS)")),
    changed("expert_parallel", "the states of experts passed round", (LOOP, "    await model.pass_to((model.rank + 1) % model.RANKS, model.opt_states[1])\n    await model.receive()\n" + LOOP)),
    changed("expert_parallel", "half of each expert", ("out = model.expert(layer, acts[\"tokens\", layer], model.weights[layer])", "out = model.expert(layer, acts[\"tokens\", layer].shard(0, 4), model.weights[layer].shard(0, 4))")),
    changed("expert_parallel", "tokens of the first expert only", ("out = model.expert(layer, acts[\"tokens\", layer], model.weights[layer])", "out = model.expert(layer, acts[\"tokens\", layer].shard(0, 2), model.weights[layer].shard(0, 2))")),
]  # fmt: skip
