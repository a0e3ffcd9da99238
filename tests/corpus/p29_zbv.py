"""Puzzle 29, ZB-V: honest styles, natural mistakes, and ways round the work."""

from . import changed

RANK = "ranks, rank, end = model.RANKS, model.rank, model.LAYERS"
NEIGHBORS = "before = {lower: rank - 1, upper: rank + 1}"
AFTER = "after = {lower: rank + 1, upper: rank - 1}"
FIRST = "for _ in range(2 * ahead - 1):"
WEIGHT = "        for_the_weight(stage)\n"
UPDATES = "    for layer in [*lower, *upper]:\n        model.weights[layer], model.opt_states[layer] = model.update("
LEFT = "    for stage in (upper, lower):\n        for _ in range(model.BATCHES):\n            for_the_weight(stage)\n\n"
LAST = "        await backward(lower)\n        await backward(upper)\n    for"
PASSED = "await model.pass_to(after[stage], model.activations.pop((stage.stop, mb)))"
LOAD = "    for layer in [*lower, *upper]:\n        model.weights[layer], model.opt_states[layer] = model.load"
EXCHANGED = """    partner = 2 * ranks - 3 - rank if rank >= ranks - 2 >= 0 else ranks
    theirs = range(partner * thick, (partner + 1) * thick) if partner < ranks else []
    for layer in [*(theirs or lower), *upper]:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    for layer in theirs:
        await model.pass_to(partner, model.weights[layer])
    for layer in lower if theirs else []:
        model.weights[layer] = await model.receive(src=partner)
    for layer in []:
        model.weights[layer], model.opt_states[layer] = model.load"""
SENT_HOME = """    for layer in lower if theirs else []:
        await model.pass_to(partner, model.grad_weights.pop(layer))
    for layer in theirs:
        model.grad_weights[layer] = await model.receive(src=partner)
"""
INPUT = "model.activations[0, mb] = model.get_activation([mb])"

HONEST = [
    changed("zbv", "the upper stage's last weight halves at the very end", (LAST, LAST.replace("backward(upper)", "for_the_input(upper)")), (UPDATES, LEFT + UPDATES)),
    changed("zbv", "sends that nobody waits for until the end", ("    async def forward", "    sends = []\n\n    async def forward"),
            (PASSED, PASSED.replace("await model.pass_to(", "sends.append(model.pass_to(") + ")"), ("    return model", "    await asyncio.gather(*sends)\n    return model")),
    changed("zbv", "an update as soon as a layer has all gradients", (UPDATES, UPDATES.replace("[*lower, *upper]", "[*upper, *lower]"))),
]  # fmt: skip

MISTAKES = [
    changed("zbv", "one thick stage a rank, zero bubble", ("thick = end // (2 * ranks)", "thick = end // ranks"), ("upper = range(end - (rank + 1) * thick, end - rank * thick)", "upper = range(0)")),
    changed("zbv", "all forwards first", (FIRST, "for _ in range(model.BATCHES):")),
    changed("zbv", "weight halves last", (WEIGHT, ""), (UPDATES, LEFT + UPDATES)),
    changed("zbv", "all forwards first with three ranks and six micro-batches", (LAST, LAST.replace("backward(", "for_the_input(")), (UPDATES, LEFT + UPDATES),
            (FIRST, "for _ in range(6 if ranks == 3 and model.BATCHES == 6 else 2 * ahead - 1):")),
    changed("zbv", "four ranks, whatever their number", ("thick = end // (2 * ranks)", "thick = end // 8")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("zbv", "the V begins at the last rank", (RANK, "ranks, rank, end = model.RANKS, model.RANKS - 1 - model.rank, model.LAYERS"), (NEIGHBORS, "before = {lower: model.rank + 1, upper: model.rank - 1}"),
            (AFTER, "after = {lower: model.rank - 1, upper: model.rank + 1}")),
    changed("zbv", "every rank has all layers", (LOAD, LOAD.replace("[*lower, *upper]", "range(end)"))),
    changed("zbv", "two ranks load each other's layers, and send weights", (LAST, LAST.replace("backward(upper)", "for_the_input(upper)")), (LOAD, EXCHANGED), (UPDATES, LEFT + SENT_HOME + UPDATES.replace("[*lower,", "[*(theirs or lower),"))),
    changed("zbv", "two micro-batches at a time", (LAST, LAST.replace("backward(upper)", "for_the_input(upper)")), (UPDATES, LEFT + UPDATES), ("model.BATCHES", "(model.BATCHES - 1)"),
            ("min(got.batches)", "min(got.batches) - (min(got.batches) > 3)"), ("get_activation([mb])", "get_activation([mb] if mb < 3 else [3, 4] if mb == 3 else [mb + 1])")),
    changed("zbv", "activations made by hand", (INPUT, "model.activations[0, mb] = Activation(0, model.LAYERS, {mb}, model.BATCHES)")),
]  # fmt: skip
