"""Puzzle 34, Muon in shards: honest styles, and natural mistakes."""

from . import changed

KEPT = "grads[layer] = await model.scatterreduce(grad, layer)"
WHOLE = "grads[mine] = model.orthogonalize(mine, grads.pop(mine))"

HONEST = [
    changed("muon", "pieces go ahead", base="muon_ahead"),
    changed("muon", "dealt out by a reduce-scatter", base="muon_with_sums"),
    changed("muon", "the owner gets the whole sum", (KEPT, "grads[layer] = (await model.allreduce(grad, layer)).shard(r, n)")),
]  # fmt: skip

MISTAKES = [
    changed("muon", "each rank its own piece", (KEPT, KEPT + "\n        grads[layer] = model.orthogonalize(layer, grads.pop(layer))"), (WHOLE, "pass")),
    changed("muon", "before the sum", (KEPT, "grads[layer] = model.orthogonalize(layer, grad)\n        grads[layer] = await model.scatterreduce(grads.pop(layer), layer)"), (WHOLE, "pass")),
    changed("muon", "not at all", (WHOLE, "pass")),
    changed("muon", "twice", (WHOLE, WHOLE + "\n            " + WHOLE)),
    changed("muon", "a piece is left out", ("if other != r:\n                    grads[mine] = grads", "if other not in (r, n - 1):\n                    grads[mine] = grads")),
    changed("muon", "the directions of all ranks, summed", ("grads[layer] = model.orthogonalize(layer, whole).shard(r, n)", "grads[layer] = await model.scatterreduce(model.orthogonalize(layer, whole), layer)"),
            ("owned: bool = True", "owned: bool = False"), base="muon_with_sums"),
    changed("muon", "the first round only", ("for first in range(0, model.LAYERS, n):", "for first in range(0, n, n):")),
]  # fmt: skip
