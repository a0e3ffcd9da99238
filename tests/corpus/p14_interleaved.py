"""Puzzle 14, interleaved 1F1B: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

AHEAD = "ahead = 2 * (ranks - 1 - model.rank) + (len(mine) - 1) * ranks + 1"
ROUNDS = "rounds = [range(first, first + ranks) for first in range(0, model.BATCHES, ranks)]"
PASSED = "await model.pass_to(after, out)"
PASSED_BACK = "await model.pass_to(before, grad_in)"
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
    changed("interleaved", "one thick stage a rank, 1F1B", base="one_forward_one_backward"),
    changed("interleaved", "one thick stage a rank, GPipe", base="gpipe"),
    changed("interleaved", "the whole batch is one round", (ROUNDS, "rounds = [range(model.BATCHES)]"),
            (AHEAD, "ahead = len(mine) * model.BATCHES")),
    changed("interleaved", "three forwards more come first", (AHEAD, AHEAD + " + 3")),
    changed("interleaved", "activations are kept", ("model.activations.pop((layer, mb))", "model.activations[layer, mb]")),
    changed("interleaved", "four ranks, whatever their number", ("ranks, top = model.RANKS,", "ranks, top = 4,")),
    changed("interleaved", "two layers a rank, whatever their number", (AHEAD, "ahead = 2 * (ranks - 1 - model.rank) + ranks + 1")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("interleaved", "two micro-batches at once", (ROUNDS, "rounds = [range(0, model.BATCHES, 2)]"), ("get_activation([mb])", "get_activation([mb, mb + 1])")),
    changed("interleaved", "every rank has all layers", ("    for layer in mine:\n        model.weights[layer], model.opt_states[layer] = model.load",
            "    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.load")),
    changed("interleaved", "half of the batch, and the rest made up", ("range(0, model.BATCHES, ranks)]", "range(0, model.BATCHES // 2, ranks)]"),
            (UPDATES, "    for layer in mine:\n        rest = range(model.BATCHES // 2, model.BATCHES)\n        "
             "model.grad_weights[layer] = model.grad_weights.pop(layer) + model.fake_grad(layer, rest)\n" + UPDATES)),
    changed("interleaved", "half of the batch, counted twice", ("range(0, model.BATCHES, ranks)]", "range(0, model.BATCHES // 2, ranks)]"),
            (UPDATES, "    for layer in mine:\n        model.grad_weights[layer] = model.grad_weights[layer] + model.grad_weights.pop(layer)\n" + UPDATES)),
    changed("interleaved", "activations made by hand", ("await model.receive(src=before)", "Activation(layer, model.LAYERS, {mb}, model.BATCHES)"), (PASSED, "pass")),
]  # fmt: skip
