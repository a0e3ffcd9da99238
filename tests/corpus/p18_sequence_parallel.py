"""Puzzle 18, sequence parallel: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

INPUT = "model.get_activation([0]).shard(model.rank, model.RANKS)"
GATHER = "inp = await model.allgather(model.activations[layer], layer)"
SUM = "model.activations[layer + 1] = await model.scatterreduce(out, layer + 1)"
LAST = "    inp = await model.allgather(model.activations.pop(model.LAYERS), model.LAYERS)\n"
AGAIN = "inp = await model.allgather(model.activations.pop(layer), layer)"
GRAD = "            grad = await model.scatterreduce(grad, layer - 1)\n"
BACK = "            model.grad_activations[layer] = await model.allgather(grad, layer - 1)\n"

HONEST = [
    changed("sequence_parallel", "the gradient by one all-reduce", (GRAD, ""), (BACK, BACK.replace("allgather", "allreduce"))),
    changed("sequence_parallel", "the last output by one all-reduce",
            (SUM, "if layer + 1 < model.LAYERS:\n            " + SUM + "\n        else:\n            inp = await model.allreduce(out, layer + 1)"), (LAST, "")),
    changed("sequence_parallel", "gradients kept in slices, too", (BACK, "            model.grad_activations[layer] = grad\n"),
            ("        " + AGAIN + "\n", "        if layer + 1 < model.LAYERS:\n            model.grad_activations[layer + 1] = await model.allgather(model.grad_activations.pop(layer + 1), layer)\n        " + AGAIN + "\n")),
    changed("sequence_parallel", "the first input whole for the first forward", (GATHER, "inp = await model.allgather(model.activations[layer], layer) if layer else model.activations.pop('first')"),
            ("model.activations[0] = " + INPUT, "model.activations['first'] = model.get_activation([0])\n    model.activations[0] = model.activations['first'].shard(model.rank, model.RANKS)")),
    changed("sequence_parallel", "updates in a loop of their own",
            ("        model.weights[layer], model.opt_states[layer] = model.update(", "    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(")),
]  # fmt: skip

MISTAKES = [
    changed("sequence_parallel", "the slice not gathered for the loss", (LAST, "    inp = model.activations.pop(model.LAYERS)\n")),
    changed("sequence_parallel", "a partial sum taken for a slice", (SUM, "model.activations[layer + 1] = out")),
    changed("sequence_parallel", "slices added up by hand", (SUM, SUM + "\n        model.activations[layer + 1] = model.activations[layer + 1] + model.activations[layer + 1]")),
    changed("sequence_parallel", "each rank computes with its slice only", (GATHER, "inp = model.activations[layer]"), (", partial=True)\n        model.activations", ")\n        model.activations")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("sequence_parallel", "a slice made whole by its name", (GATHER, "inp = Activation(layer, model.LAYERS, [0], 1)")),
    changed("sequence_parallel", "the weights gathered, the sequence whole", ("    for layer in reversed(", "    await model.allgather(model.weights[0], 0)\n    for layer in reversed(")),
    changed("sequence_parallel", "the state passed round the ring", ("ahead: float, late: int", "ahead: float = 2 / 8, late: int = 1"), ("    return model", "    await model.pass_to((model.rank + 1) % model.RANKS, model.opt_states[0])\n    await model.receive((model.rank - 1) % model.RANKS)\n    return model"),
            base="sequence_parallel_overlapped"),
]  # fmt: skip
