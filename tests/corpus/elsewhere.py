"""Programs that do well at the puzzle's own size, and at others do something for nothing; and honest ones in the same
spirit, with another order of work, another table of ranks or buckets of another size."""

from . import Program, changed

RUN = "        model.activations[layer + 1] ="
SIX = "len(model.grad_weights) == 6"
AHEAD = "min(model.RANKS - model.rank, model.BATCHES)"
TABLE = "stage, mb = model.rank % stages, model.rank // stages"
OWN = "[model.rank]"
TWO = "mine = range(model.rank, model.BATCHES, model.RANKS)"
UPDATES = """\
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad,"""
LATER = """\
        model.grad_weights[layer] = grad
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer),"""

MISTAKES: list[Program] = [
    changed("one_f_one_b", "GPipe at other sizes", (AHEAD, f"{AHEAD} if model.BATCHES == 8 else model.BATCHES")),
    changed("one_f_one_b", "four ranks in mind", (AHEAD, AHEAD.replace("model.RANKS", "4"))),
    changed("buckets", "the last bucket is forgotten", (f"{SIX} or layer == 0", SIX)),
    changed("repair_bargain", "kept at other sizes", (RUN, f'        if model.LAYERS != 6:\n            model.weights["whole", layer] = weight\n{RUN}')),
    changed("repair_deadlock", "two layers a rank in mind", ("half = model.LAYERS // 2", "half = 2")),
    changed("repair_skip", "three of four in mind", ("model.rank < model.BATCHES", "model.rank < 3")),
    changed("repair_skip", "two micro-batches on a rank, and two ranks rest", ("busy = model.rank < model.BATCHES", "busy = model.rank < -(-model.BATCHES // 2)"), (OWN, "[mb for mb in (2 * model.rank, 2 * model.rank + 1) if mb < model.BATCHES]")),
]  # fmt: skip

HONEST: list[Program] = [
    changed("pipeline_fsdp", "the table of ranks transposed", (TABLE, "mb, stage = model.rank % model.BATCHES, model.rank // model.BATCHES"), ("model.rank + 1", "model.rank + model.BATCHES"), ("model.rank - 1", "model.rank - model.BATCHES")),
    changed("pipeline_fsdp", "stages from the other end", (TABLE, "stage, mb = stages - 1 - model.rank % stages, model.rank // stages"), ("model.rank + 1", "model.rank PLUS 1"), ("model.rank - 1", "model.rank + 1"), ("PLUS", "-")),
    changed("pipeline_fsdp", "a zero only where there is nothing", ("        grad = model.fake_grad(layer, [])\n        if first <= layer <= last:", "        if not first <= layer <= last:\n            grad = model.fake_grad(layer, [])\n        else:")),
    changed("zero2", "micro-batches that follow each other", (TWO, "share = model.BATCHES // model.RANKS\n    mine = range(model.rank * share, (model.rank + 1) * share)")),
    changed("zero2", "the last micro-batch first", ("for mb in mine:", "for mb in reversed(mine):")),
    changed("prefetch", "the backward's first weight before the loss", ("    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))\n\n    sums = {}\n    ahead = model.allgather(model.weights[model.LAYERS - 1], model.LAYERS - 1)\n", "    sums = {}\n    ahead = model.allgather(model.weights[model.LAYERS - 1], model.LAYERS - 1)\n    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))\n")),
    changed("one_f_one_b", "one forward more at the start", (AHEAD, AHEAD.replace("model.rank,", "model.rank + 1,"))),
    changed("one_f_one_b", "the last micro-batch first", ("get_activation([mb])", "get_activation([model.BATCHES - 1 - mb])")),
    *[changed("buckets", f"{name} layers in each", (SIX, f"len(model.grad_weights) == {size}")) for name, size in (("a quarter of the", "max(1, model.LAYERS // 4)"), ("a quarter, rounded up, of the", "-(-model.LAYERS // 4)"), ("seven", "7"), ("four", "4"))],
    changed("hierarchical", "across in two halves", ('grad = await model.allreduce(grad, layer, axis="replica")', 'grad = await model.scatterreduce(grad, layer, axis="replica")\n        grad = await model.allgather(grad, layer, axis="replica")')),
    changed("hierarchical", "micro-batches from the last", (OWN, "[model.RANKS - 1 - model.rank]")),
    changed("repair_skip", "the first ranks rest", ("busy = model.rank < model.BATCHES", "busy = model.rank >= model.RANKS - model.BATCHES"), (OWN, "[model.RANKS - 1 - model.rank]")),
    changed("repair_groups", "micro-batches of the neighbor", (OWN, "[(model.rank + 1) % model.RANKS]")),
    changed("repair_groups", "updates at the end", (UPDATES, LATER)),
]  # fmt: skip
