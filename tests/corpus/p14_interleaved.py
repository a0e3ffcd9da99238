"""Puzzle 14, interleaved 1F1B: honest styles, natural mistakes, and ways round the work by the public names alone."""

from __future__ import annotations

from . import changed

AHEAD = "ahead = 2 * (ranks - 1 - model.rank) + (len(mine) - 1) * ranks + 1"
ROUNDS = "rounds = [range(first, first + ranks) for first in range(0, model.BATCHES, ranks)]"
MINE = "mine = range(model.rank, model.LAYERS, ranks)"
PASSED = "await model.pass_to(after, out)"
PASSED_BACK = "await model.pass_to(before, grad_in)"
SUM = "grad if mb == 0 else model.grad_weights[layer] + grad"
GRAD = "grad, grad_in = model.backward(layer, inp, grad_out, model.weights[layer])"
FORWARDS = "forwards = [(layer, mb) for some in rounds for layer in mine for mb in some]"
BACKWARDS = "backwards = [(layer, mb) for some in rounds for layer in reversed(mine) for mb in some]"
UPDATES = "    for layer in mine:\n        model.weights[layer], model.opt_states[layer] = model.update("

HONEST = [
    changed("interleaved", "two chunks of neighboring layers, counted as Megatron does", base="two_chunks"),
    changed("interleaved", "sends that nobody waits for until the end",
            ("    async def forward", "    sends = []\n\n    async def forward"),
            (PASSED, "sends.append(model.pass_to(after, out))"), (PASSED_BACK, "sends.append(model.pass_to(before, grad_in))"),
            ("    return model", "    await asyncio.gather(*sends)\n    return model")),
    changed("interleaved", "a layer is updated with its last gradient",
            (PASSED_BACK, PASSED_BACK + "\n        if mb == model.BATCHES - 1:\n            finish(layer)"),
            ("    async def forward", "    def finish(layer):\n        model.weights[layer], model.opt_states[layer] = model.update(\n            "
             "layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer])\n        "
             "model.set_final_weight(layer, model.weights[layer])\n\n    async def forward"),
            (UPDATES, "    for layer in []:\n        model.weights[layer], model.opt_states[layer] = model.update(")),
    changed("interleaved", "one forward more comes first, as in puzzle 6", (AHEAD, AHEAD + " + 1")),
    changed("interleaved", "gradients are stored on their way",
            ("grad_out = model.loss(", 'model.grad_activations["in"] = model.loss('),
            ("grad_out = await", 'model.grad_activations["in"] = await'),
            ("inp, grad_out, model", 'inp, model.grad_activations.pop("in"), model')),
    changed("interleaved", "outputs are stored on their way", ("out = model.forward(", 'model.activations["out"] = model.forward('),
            ("top + 1, mb] = out", 'top + 1, mb] = model.activations.pop("out")'), ("after, out", 'after, model.activations.pop("out")')),
]  # fmt: skip

MISTAKES = [
    changed("interleaved", "one thick stage a rank, 1F1B", base="one_forward_one_backward", says="over the target: 47.6 ticks"),
    changed("interleaved", "one thick stage a rank, GPipe", base="gpipe", says="over the target: 49 ticks"),
    changed("interleaved", "the whole batch is one round", (ROUNDS, "rounds = [range(model.BATCHES)]"),
            (AHEAD, "ahead = len(mine) * model.BATCHES"), says="over the target: 46.2 ticks, target 45.2; 4,325,376 elements"),
    changed("interleaved", "each micro-batch is a round", (ROUNDS, "rounds = [[mb] for mb in range(model.BATCHES)]"), says="deadlock"),
    changed("interleaved", "three forwards more come first", (AHEAD, AHEAD + " + 3"), says="over the target: 45.4 ticks"),
    changed("interleaved", "all forwards of two rounds come first", (AHEAD, "ahead = len(forwards)"), says="over the target: "),
    changed("interleaved", "as many forwards as with one stage a rank", (AHEAD, "ahead = ranks - model.rank"), says="nothing is stored in activations"),
    changed("interleaved", "one forward too few on every rank", (AHEAD, AHEAD + " - 1"), says="nothing is stored in activations"),
    changed("interleaved", "layers in a row, on a ring", (MINE, "mine = range(model.rank * (model.LAYERS // ranks), (model.rank + 1) * (model.LAYERS // ranks))"),
            says="the input is that of layer"),
    changed("interleaved", "the last layer passes on, too", ("        if layer == top:\n            model.activations[top + 1, mb] = out\n        else:\n            " + PASSED,
            "        " + PASSED), ("model.loss(model.activations.pop((top + 1, mb)))", "model.loss(await model.receive(src=after))"), says="deadlock"),
    changed("interleaved", "no ring: the last rank passes to nobody", ("before, after = (model.rank - 1) % ranks, (model.rank + 1) % ranks", "before, after = model.rank - 1, model.rank + 1"),
            says="src is out of range"),
    changed("interleaved", "the same key for all micro-batches", ("model.activations[layer, mb]", "model.activations[layer]"), ("model.activations.pop((layer, mb))", "model.activations[layer]"),
            says="input and gradient are of different micro-batches"),
    changed("interleaved", "backwards from the first layer on", (BACKWARDS, BACKWARDS.replace("reversed(mine)", "mine")), says="deadlock"),
    changed("interleaved", "gradients replace each other", (SUM, "grad"), says="missing micro-batches"),
    changed("interleaved", "the first gradient of a round replaces the sum", (SUM, SUM.replace("mb == 0", "mb % ranks == 0")), says="missing micro-batches"),
    changed("interleaved", "activations are kept", ("model.activations.pop((layer, mb))", "model.activations[layer, mb]"), says="over the target: 3,932,160 elements"),
    changed("interleaved", "messages from anyone", ("model.receive(src=before)", "model.receive()"), ("model.receive(src=after)", "model.receive()"),
            says="must be an ActivationGrad"),
    changed("interleaved", "four ranks, whatever their number", ("ranks, top = model.RANKS,", "ranks, top = 4,"), says="right at its own size, but not with"),
    changed("interleaved", "two layers a rank, whatever their number", (AHEAD, "ahead = 2 * (ranks - 1 - model.rank) + ranks + 1"), says="right at its own size, but not with"),
    # -- round the work -------------------------------------------------------------------------------------
    changed("interleaved", "two micro-batches at once", (ROUNDS, "rounds = [range(0, model.BATCHES, 2)]"), ("get_activation([mb])", "get_activation([mb, mb + 1])"),
            says="works on micro-batches {0, 1} at once"),
    changed("interleaved", "every rank has all layers", ("    for layer in mine:\n        model.weights[layer], model.opt_states[layer] = model.load",
            "    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.load"),
            says="it loads layers {0-7}"),
    changed("interleaved", "half of the batch, and the rest made up", ("range(0, model.BATCHES, ranks)]", "range(0, model.BATCHES // 2, ranks)]"),
            (UPDATES, "    for layer in mine:\n        rest = range(model.BATCHES // 2, model.BATCHES)\n        "
             "model.grad_weights[layer] = model.grad_weights.pop(layer) + model.fake_grad(layer, rest)\n" + UPDATES), says="made up"),
    changed("interleaved", "half of the batch, counted twice", ("range(0, model.BATCHES, ranks)]", "range(0, model.BATCHES // 2, ranks)]"),
            (UPDATES, "    for layer in mine:\n        model.grad_weights[layer] = model.grad_weights[layer] + model.grad_weights.pop(layer)\n" + UPDATES),
            says="counted twice"),
    changed("interleaved", "weights travel, and activations stay", ("    async def forward", """    if model.rank == 1:
        await model.pass_to(0, model.weights[1])
    if model.rank == 0:
        model.weights["other"] = await model.receive(src=1)
        model.activations["out"] = model.forward(0, model.get_activation([0]), model.weights[0])
        model.forward(1, model.activations.pop("out"), model.weights.pop("other"))

    async def forward"""), says="micro-batch 0 was taken before"),
    changed("interleaved", "activations made by hand", ("await model.receive(src=before)", "Activation(layer, model.LAYERS, {mb}, model.BATCHES)"), (PASSED, "pass"), says="made up"),
]  # fmt: skip
