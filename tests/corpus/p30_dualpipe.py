"""Puzzle 30, DualPipe: honest styles, natural mistakes, and ways round the work."""

from . import changed

THICK = "thick, share = end // model.RANKS, model.BATCHES // 2"
LOWER = "lower = range(place * thick, (place + 1) * thick)"
TURN = "        on = model.rank_at(half=1 - half, place=place)"
BACK = "back = model.rank_at(half=half, place=max(place - 1, 0))"
FIRST = "first = {lower: half * share, upper: (1 - half) * share}"
LOAD = "    for layer in [*lower, *upper]:\n        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)"
BESIDE = "backward_of(high, earlier, overlapped=True)"
IN_TURN = (
    "        for low, high in zip(one, reversed(other), strict=True):\n            forward_of(low, mb)\n            "
    + BESIDE
)
ONE_BY_ONE = (
    "        for low in one:\n            forward_of(low, mb)\n        for high in reversed(other):\n            "
    + BESIDE
)
PAIRS = "        await beside(lower, upper)\n        await beside(upper, lower)\n"
ALONE = "        await forward(lower)\n        await backward(upper)\n        await forward(upper)\n        await backward(lower)\n"
SUMS = (
    '        model.allreduce(model.grad_weights.pop(layer), layer, axis="half")\n        for layer in [*upper, *lower]'
)
UPDATE = "layer, await grad, model.weights[layer]"
INPUT = "model.activations[0, mb] = model.get_activation([mb])"
OTHER_WAY = [
    (
        LOWER,
        LOWER.replace(
            "(place * thick, (place + 1) * thick)", "((places - 1 - place) * thick, (places - place) * thick)"
        ),
    ),
    (BACK, "back = model.rank_at(half=half, place=min(place + 1, places - 1))"),
    ("place=min(place + 1, places - 1))\n    if place == places - 1", "place=max(place - 1, 0))\n    if place == 0"),
    ("n, ahead = place + 1, places - place - 1", "n, ahead = places - place, place"),
]
EXCHANGED = """    own = range(place * thick, (place + 1) * thick)
    own = [*range(end - own.stop, end - own.start), *own]
    partner = model.rank_at(half=half, place=places - 1 - place)
    for layer in own:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        await model.pass_to(partner, model.weights[layer])
    for layer in own:
        got = await model.receive(src=partner)
        model.weights[got.layer] = got"""
SENT_HOME = """    for layer in [*upper, *lower]:
        await model.pass_to(partner, model.grad_weights.pop(layer))
    for layer in own:
        got = await model.receive(src=partner)
        model.grad_weights[got.layer] = got
"""
STAYS = [
    (TURN, "        on = model.rank"),
    (FIRST, "first = {lower: half * share, upper: half * share}"),
    ("if stage.stop < end:", "if stage.stop < end and after[stage] != model.rank:"),
    ("if stage.start > 0:", "if stage.start > 0 and before[stage] != model.rank:"),
]

FINAL = "        model.set_final_weight(layer, model.weights[layer])"

HONEST = [
    changed("dualpipe", "all forwards of a pair before its backwards", (IN_TURN, ONE_BY_ONE)),
    changed("dualpipe", "weight halves later", ("model: Model, crosses: bool", "model: Model, crosses: bool = True"), ("of_weight: Any", "of_weight: WeightGrad"), base="from_both_ends"),
    changed("dualpipe", "the lower stages' gradients first", (SUMS, SUMS.replace("[*upper, *lower]", "[*lower, *upper]")), ("zip([*upper, *lower], sums", "zip([*lower, *upper], sums")),
    changed("dualpipe", "micro-batches dealt in turn", (FIRST, "first = {lower: half, upper: 1 - half}"), ("return first[stage] + done[what, stage] - 1", "return first[stage] + 2 * (done[what, stage] - 1)")),
]  # fmt: skip

MISTAKES = [
    changed("dualpipe", "no pairs", (PAIRS, ALONE)),
    changed("dualpipe", "gradients not summed", (SUMS, "        model.grad_weights.pop(layer)\n        for layer in [*upper, *lower]"), (UPDATE, UPDATE.replace("await grad", "grad"))),
    changed("dualpipe", "two places, whatever their number", ('places, end = model.axis_size("place"), model.LAYERS', "places, end = 2, model.LAYERS")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("dualpipe", "each half by itself", *STAYS),
    changed("dualpipe", "each half the other way", *OTHER_WAY),
    changed("dualpipe", "every rank has all layers", (LOAD, LOAD.replace("[*lower, *upper]", "range(end)"))),
    changed("dualpipe", "the answers of one half only", (FINAL, "        if half == 0:\n    " + FINAL)),
    changed("dualpipe", "two micro-batches at once", (THICK, THICK + " - 1"), (FIRST, "first = {lower: half * (share + 1), upper: (1 - half) * (share + 1)}"),
            ("get_activation([mb])", "get_activation([mb] if mb % (share + 1) < share - 1 else [mb, mb + 1])")),
    changed("dualpipe", "activations made by hand", (INPUT, "model.activations[0, mb] = Activation(0, model.LAYERS, {mb}, model.BATCHES)")),
    changed("dualpipe", "layers of others, with their weights", *OTHER_WAY, (LOAD, EXCHANGED), ("    sums = [", SENT_HOME + "    sums = ["), ("in [*upper, *lower]\n    ]", "in own\n    ]"), ("zip([*upper, *lower], sums", "zip(own, sums")),
]  # fmt: skip
