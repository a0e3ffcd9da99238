"""Puzzle 16, zero bubble: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

INPUT = "            model.grad_activations[layer, mb] = model.backward_input(\n                layer, inp, grad, model.weights[layer]\n            )\n"
WEIGHT = "            of_weight = model.backward_weight(layer, inp, grad, model.weights[layer])\n"
WHOLE = "            of_weight, _ = model.backward(layer, inp, grad, model.weights[layer])\n"
ADD = "model.grad_weights[layer] = so_far + of_weight if so_far else of_weight"
LATE = "ahead, late = min(model.RANKS - model.rank, model.BATCHES), int(is_last)"
REST = "    for mb in range(max(model.BATCHES - late, 0), model.BATCHES):\n        for_the_weight(mb)\n"
WAITING = "        if mb >= late:\n            for_the_weight(mb - late)\n"
PASSED = "        if not is_first:\n            await model.pass_to(model.rank - 1, grad)\n"

HONEST = [
    changed("zero_bubble", "later the farther down", (LATE, LATE.replace("int(is_last)", "model.rank"))),
    changed("zero_bubble", "one more forward ahead", ("ahead, late = min(model.RANKS - model.rank,", "ahead, late = min(model.RANKS - model.rank + (not is_last and 0),")),
    changed("zero_bubble", "a queue of what is late", ("    ahead, late =", "    queue = []\n    ahead, late ="),
            (WAITING, "        queue.append(mb)\n        if len(queue) > late:\n            for_the_weight(queue.pop(0))\n"),
            (REST, "    while queue:\n        for_the_weight(queue.pop(0))\n")),
    changed("zero_bubble", "the forward before the late half", (WAITING, ""),
            ("            await forward(mb + ahead)\n    for mb in range(max", "            await forward(mb + ahead)\n" + WAITING + "    for mb in range(max")),
    changed("zero_bubble", "the last of all: whole backwards where both halves meet",
            ("    def for_the_weight", "    unused = None\n\n    def for_the_weight")),
]  # fmt: skip

MISTAKES = [
    changed("zero_bubble", "whole backwards", (INPUT, INPUT.replace("backward_input(", "backward(").replace(" = model", " = (model").replace("            )\n", "            ))[1]\n")),
            (WEIGHT, WHOLE)),
    changed("zero_bubble", "both halves at once", (LATE, LATE.replace("int(is_last)", "0"))),
    changed("zero_bubble", "late on the first rank", (LATE, LATE.replace("is_last", "is_first"))),
    changed("zero_bubble", "all weight halves at the end", (LATE, LATE.replace("int(is_last)", "model.BATCHES"))),
    changed("zero_bubble", "only the half for the weight", (PASSED, "")),
    changed("zero_bubble", "counted twice", (ADD, "model.grad_weights[layer] = so_far + of_weight + of_weight if so_far else of_weight")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("zero_bubble", "all stages on all ranks", ("mine = range(model.rank * share, (model.rank + 1) * share)", "mine = range(model.LAYERS)")),
    changed("zero_bubble", "GPipe, which is not enough", base="gpipe"),
    changed("zero_bubble", "the input half of nothing", (WEIGHT, "            of_weight = model.fake_grad(layer, [mb])\n")),
]  # fmt: skip
