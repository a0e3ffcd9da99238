"""Puzzle 28, two batches overlapped: honest styles, natural mistakes, and ways round the work."""

from . import changed

LOAD = "piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)"
SUM = "model.allreduce(sums.pop(layer), layer) for layer in dense}"
ADD = "sums[layer] = sums[layer] + grad if turn else grad"
TURNS = "for turn in range(len(mine)):\n            grad = await"
BEGIN = "    for layer in reversed(range(model.LAYERS)):\n        verb"

HONEST = [
    changed("two_batch_overlap", "an update after each layer", base="updates_while_tokens_travel"),
    changed("two_batch_overlap", "the second micro-batch first on the way back", (TURNS, "for turn in reversed(range(len(mine))):\n            grad = await"), (ADD, "sums[layer] = sums[layer] + grad if layer in sums else grad"),
            ("for turn in range(len(mine)):\n        grad = model.loss", "for turn in reversed(range(len(mine))):\n        grad = model.loss")),
]  # fmt: skip

MISTAKES = [
    changed("two_batch_overlap", "only the last gradient counts", (ADD, "sums[layer] = grad")),
    changed("two_batch_overlap", "dense gradients not summed", (SUM, "None for layer in []}")),
    changed("two_batch_overlap", "gradients of experts summed over all ranks", ("for layer in dense}", "for layer in range(model.LAYERS)}")),
    changed("two_batch_overlap", "the input of the other micro-batch", ("acts.pop((turn, layer))", "acts.pop((1 - turn, layer))")),
    changed("two_batch_overlap", "gradients stay with the experts", ("on_their_way[turn] = model.alltoall(grad, layer - 1)", "on_their_way[turn] = model.alltoall(grad, layer)")),
    changed("two_batch_overlap", "states not kept", ("model.set_final_weight(layer, model.weights[layer])", "model.set_final_weight(layer, model.weights[layer])\n        del model.opt_states[layer]")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("two_batch_overlap", "experts gathered", base="experts_gathered"),
    changed("two_batch_overlap", "the states of experts passed round", (BEGIN, "    await model.pass_to((model.rank + 1) % model.RANKS, model.opt_states[1])\n    await model.receive()\n" + BEGIN)),
    changed("two_batch_overlap", "every rank has all experts", (LOAD, "piece = (0, 1)")),
    changed("two_batch_overlap", "tokens made by hand", ("            out = verb(layer, inp, model.weights[layer])", "            from lib import Tokens\n            inp = Tokens(layer, model.LAYERS, range(model.BATCHES), model.BATCHES, [model.rank], model.RANKS) if model.experts(layer) else inp\n            out = verb(layer, inp, model.weights[layer])")),
]  # fmt: skip
