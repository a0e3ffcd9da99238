"""Puzzle 13, 1F1B: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

AHEAD = "ahead = min(model.RANKS - model.rank, model.BATCHES)"
TURNS = """\
    for mb in range(ahead):
        await forward(mb)
    for mb in range(model.BATCHES):
        await backward(mb)
        if mb + ahead < model.BATCHES:
            await forward(mb + ahead)
"""
SUM = "model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad"
DOWN = "            await model.pass_to(model.rank + 1, model.activations.pop((end, mb)))\n"
UP = "            await model.pass_to(model.rank - 1, grad_in)\n"
UPDATES = """\
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
"""
AWAITED = (
    (DOWN, DOWN.replace("await model.pass_to(", "sends.append(model.pass_to(").replace(")))\n", "))))\n")),
    (UP, UP.replace("await model.pass_to(", "sends.append(model.pass_to(").replace("grad_in)", "grad_in))")),
    ("    return model", "    for send in sends:\n        await send\n    return model"),
    ("    async def forward", "    sends = []\n\n    async def forward"),
)
"""Edits after which no rank waits for what it sends."""

HONEST = [
    changed("one_f_one_b", "one more, as in puzzle 6", base="one_forward_one_backward"),
    changed("one_f_one_b", "sends awaited at the end", *AWAITED),
    changed("one_f_one_b", "one more, and sends awaited at the end", *AWAITED, (AHEAD, "ahead = min(model.RANKS - model.rank + (not is_last), model.BATCHES)")),
    changed("one_f_one_b", "warm-up, turns and cool-down", (AHEAD, "warm_up = min(model.RANKS - model.rank - 1, model.BATCHES)"), (TURNS, """\
    for mb in range(warm_up):
        await forward(mb)
    for mb in range(model.BATCHES - warm_up):
        await forward(warm_up + mb)
        await backward(mb)
    for mb in range(model.BATCHES - warm_up, model.BATCHES):
        await backward(mb)
""")),
    changed("one_f_one_b", "a queue of what is in flight", (AHEAD, "todo, in_flight = list(range(model.BATCHES)), []"), (TURNS, """\
    while todo or in_flight:
        if todo and len(in_flight) < model.RANKS - model.rank:
            in_flight.append(todo.pop(0))
            await forward(in_flight[-1])
        else:
            await backward(in_flight.pop(0))
""")),
    changed("one_f_one_b", "an order worked out beforehand", (AHEAD, 'order = ["F"] * model.BATCHES\n    for mb in range(model.BATCHES):\n        order.insert(min(model.RANKS - model.rank + 2 * mb, len(order)), "B")'),
            (TURNS, "    numbers = {'F': iter(range(model.BATCHES)), 'B': iter(range(model.BATCHES))}\n    for what in order:\n        await {'F': forward, 'B': backward}[what](next(numbers[what]))\n")),
]  # fmt: skip

MISTAKES = [
    changed("one_f_one_b", "GPipe", base="gpipe"),
    changed("one_f_one_b", "GPipe with sends awaited at the end", *AWAITED, (AHEAD, "ahead = model.BATCHES")),
    changed("one_f_one_b", "two more", (AHEAD, "ahead = 1 if is_last else min(model.RANKS - model.rank + 2, model.BATCHES)")),
    changed("one_f_one_b", "one fewer", (AHEAD, "ahead = min(max(model.RANKS - model.rank - 1, 1), model.BATCHES)")),
    changed("one_f_one_b", "one at a time", (AHEAD, "ahead = 1")),
    changed("one_f_one_b", "one micro-batch too many", ("if mb + ahead < model.BATCHES:", "if mb + ahead <= model.BATCHES:")),
    changed("one_f_one_b", "the last forwards forgotten", ("    for mb in range(model.BATCHES):\n        await backward", "    for mb in range(model.BATCHES - ahead):\n        await backward")),
    changed("one_f_one_b", "eight little sums", (SUM, "model.grad_weights[layer, mb] = grad"), (UPDATES, "    for layer in range(first, end):\n        for mb in range(1, model.BATCHES):\n            model.grad_weights[layer, 0] = model.grad_weights.pop((layer, 0)) + model.grad_weights.pop((layer, mb))\n" + UPDATES.split("\n", 1)[1].replace("pop(layer)", "pop((layer, 0))"))),
    changed("one_f_one_b", "the last gradient alone", (SUM, "model.grad_weights[layer] = grad")),
    changed("one_f_one_b", "updated after each micro-batch", (SUM, "model.weights[layer], model.opt_states[layer] = model.update(layer, grad, model.weights[layer], model.opt_states[layer])")),
    changed("one_f_one_b", "what was passed on is kept", (DOWN, DOWN.replace("model.activations.pop((end, mb))", "model.activations[end, mb]"))),
    # -- round the work -------------------------------------------------------------------------------------
    changed("one_f_one_b", "all at once", (TURNS, "    await forward(range(model.BATCHES))\n    await backward(range(model.BATCHES))\n"), ("get_activation([mb])", "get_activation(mb)"), (SUM, "model.grad_weights[layer] = grad")),
    changed("one_f_one_b", "two at a time", ("get_activation([mb])", "get_activation([2 * mb, 2 * mb + 1][: model.BATCHES - 2 * mb])"), ("model.BATCHES)", "-(-model.BATCHES // 2))"), ("< model.BATCHES:", "< -(-model.BATCHES // 2):")),
    changed("one_f_one_b", "every rank does everything", ("first, end = model.rank * share, (model.rank + 1) * share\n    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1", "first, end = 0, model.LAYERS\n    is_first = is_last = True")),
    changed("one_f_one_b", "a gradient made up", (SUM, "model.grad_weights[layer] = model.fake_grad(layer, range(model.BATCHES))")),
    changed("one_f_one_b", "activations kept where nobody counts them", ("model.activations[layer + 1, mb] = model.forward(layer, inp, weight)", "aside[layer + 1, mb] = model.forward(layer, inp, weight)"), ("inp, weight = model.activations[layer, mb], model.weights[layer]", "inp, weight = (aside | model.activations)[layer, mb], model.weights[layer]"), ("model.activations.pop((end, mb))", "aside.pop((end, mb))"), ("                model.activations.pop((layer, mb)),", "                (model.activations if layer == first else aside).pop((layer, mb)),"), ("    async def forward", "    aside = {}\n\n    async def forward")),
]  # fmt: skip
