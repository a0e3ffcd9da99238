"""Puzzle 18, sequence parallel: honest styles, natural mistakes, and ways round the work by the public names alone."""

from __future__ import annotations

from . import changed

LOAD = "model.load_weights(\n            layer, model.rank, model.RANKS\n        )"
INPUT = "model.get_activation([0]).shard(model.rank, model.RANKS)"
GATHER = "inp = await model.allgather(model.activations[layer], layer)"
FORWARD = "out = model.forward(layer, inp, model.weights[layer], partial=True)"
SUM = "model.activations[layer + 1] = await model.scatterreduce(out, layer + 1)"
LAST = "    inp = await model.allgather(model.activations.pop(model.LAYERS), model.LAYERS)\n"
AGAIN = "inp = await model.allgather(model.activations.pop(layer), layer)"
TAKEN = "model.grad_activations.pop(layer + 1)"
PARTIAL = "layer, inp, grad_out, model.weights[layer], partial=True"
GRAD = "            grad = await model.scatterreduce(grad, layer - 1)\n"
BACK = "            model.grad_activations[layer] = await model.allgather(grad, layer - 1)\n"
IF = "        if layer > 0:\n"
ANSWER = "        model.set_final_weight(layer, model.weights[layer])\n"
UPDATE = "layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]"

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
    changed("sequence_parallel", "tensor parallel, which keeps everything whole", base="tensor_parallel", says="over the target: 5,767,168 elements"),
    changed("sequence_parallel", "whole inputs kept for the backward", base="whole_inputs_kept", says="over the target: 5,767,168 elements"),
    changed("sequence_parallel", "all-reduced, and then cut", (SUM, "out = await model.allreduce(out, layer + 1)\n        model.activations[layer + 1] = out.shard(model.rank, model.RANKS)"), says="over the target: 22.1 ticks"),
    changed("sequence_parallel", "the slice not gathered for the forward", (GATHER, "inp = model.activations[layer]"), says="the input is a slice of the sequence"),
    changed("sequence_parallel", "the slice not gathered for the backward", (AGAIN, "inp = model.activations.pop(layer)"), says="the input is a slice of the sequence"),
    changed("sequence_parallel", "the slice not gathered for the loss", (LAST, "    inp = model.activations.pop(model.LAYERS)\n"), says="loss, micro-batch {0}: the input is a slice of the sequence"),
    changed("sequence_parallel", "the gradient left in slices", (BACK, "            model.grad_activations[layer] = grad\n"), says="the gradient is a slice of the sequence"),
    changed("sequence_parallel", "the first input whole, and gathered all the same", (INPUT, "model.get_activation([0])"), says="a shard would be counted twice"),
    changed("sequence_parallel", "a partial sum taken for a slice", (SUM, "model.activations[layer + 1] = out"), says="these are not parts of one thing"),
    changed("sequence_parallel", "cut, and then added up", ("scatterreduce(out, layer + 1)", "allreduce(out.shard(model.rank, model.RANKS), layer + 1)"), says="these are not partial sums of one thing"),
    changed("sequence_parallel", "a slice of a partial sum, never added up", (SUM, "model.activations[layer + 1] = out.shard(model.rank, model.RANKS)"), says="these are not parts of one thing"),
    changed("sequence_parallel", "a slice added up once more", (SUM, SUM + "\n        model.activations[layer + 1] = await model.allreduce(model.activations[layer + 1], layer + 1)"),
            says="that slice is added up already"),
    changed("sequence_parallel", "the neighbor's slice of the input", (INPUT, "model.get_activation([0]).shard(min(model.rank + 1, model.RANKS - 1), model.RANKS)"), says="a shard would be counted twice"),
    changed("sequence_parallel", "slices of another layer", (AGAIN, "inp = await model.allgather(model.activations[max(layer - 1, 0)], layer)"), says="the Activation is of layer 6"),
    changed("sequence_parallel", "slices added up by hand", (SUM, SUM + "\n        model.activations[layer + 1] = model.activations[layer + 1] + model.activations[layer + 1]"), says="an Activation and an Activation do not add up"),
    changed("sequence_parallel", "each rank computes with its slice only", (GATHER, "inp = model.activations[layer]"), (", partial=True)\n        model.activations", ")\n        model.activations"), says="the weight is not complete"),
    # -- round the work -------------------------------------------------------------------------------------
    changed("sequence_parallel", "every rank works on its slice with the whole weight", (GATHER, "inp, weight = model.activations[layer], await model.allgather(model.weights[layer], layer)"),
            (FORWARD, "out = model.forward(layer, inp, weight)"), says="the input is a slice of the sequence"),
    changed("sequence_parallel", "a slice made whole by its name", (GATHER, "inp = Activation(layer, model.LAYERS, [0], 1)"), says="made by hand|made up"),
    changed("sequence_parallel", "the weights gathered, the sequence whole", ("    for layer in reversed(", "    await model.allgather(model.weights[0], 0)\n    for layer in reversed("), says="it moves the weight of layer 0"),
    changed("sequence_parallel", "the state passed round the ring", ("ahead: float, late: int", "ahead: float = 2 / 8, late: int = 1"), ("    return model", "    await model.pass_to((model.rank + 1) % model.RANKS, model.opt_states[0])\n    await model.receive((model.rank - 1) % model.RANKS)\n    return model"),
            base="sequence_parallel_overlapped", says="it moves the optimizer state of layer 0"),
    changed("sequence_parallel", "the backward of the last slice only", (BACK, BACK + "            model.grad_activations[layer] = model.grad_activations[layer].shard(0, 1).shard(model.rank, model.RANKS)\n"),
            says="the gradient is a slice of the sequence"),
    changed("sequence_parallel", "one piece for all ranks", (LOAD, "model.load_weights(layer, 0, model.RANKS)"), says="a partial sum comes twice"),
]  # fmt: skip
