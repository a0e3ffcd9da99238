"""Puzzle 33, a mean of means: honest styles, and natural mistakes."""

from . import changed

SO_FAR = "so_far + grad * tokens if so_far else grad * tokens"
TOTAL = "layer) / total"
REDUCE = "grad = await model.allreduce(model.grad_weights.pop(layer), layer) / total"
ROUND = "for _ in range(n - 1):"
OWN = "total, own = 0, 0"

HONEST = [
    changed("token_mean", "counted early, in pieces", base="token_mean_in_pieces"),
    changed("token_mean", "layer by layer", base="token_mean_by_layers"),
    changed("token_mean", "divided by a float", (TOTAL, "layer) * (1 / total)")),
    changed("token_mean", "divided and multiplied back", (REDUCE, REDUCE.replace("pop(layer),", "pop(layer) / model.LAYERS,") + " * model.LAYERS")),
]  # fmt: skip

MISTAKES = [
    changed("token_mean", "a mean of means", (SO_FAR, "so_far + grad if so_far else grad"), (TOTAL, "layer) / model.BATCHES")),
    changed("token_mean", "a mean of the ranks' means", ("passed_on = total", "own = passed_on = total"),
            (REDUCE, REDUCE.replace("pop(layer),", "pop(layer) / own,").replace("/ total", "/ n"))),
    changed("token_mean", "a sum over all tokens", (TOTAL, "layer)")),
    changed("token_mean", "divided by the own tokens", (ROUND, "for _ in range(0):")),
    changed("token_mean", "a rank is not counted", (ROUND, "for _ in range(n - 2):")),
    changed("token_mean", "the counts of this size", ("tokens = model.tokens(batch)", "tokens = (40, 10, 30, 5, 25, 20, 15, 35)[batch % 8]"), (TOTAL, "layer) / 180")),
    changed("token_mean", "multiplied twice", (SO_FAR, "(so_far + grad) * tokens if so_far else grad * tokens")),
    changed("token_mean", "both micro-batches at once", ("range(r, model.BATCHES, n)", "[[r, r + n]]"), ("get_activation([batch])", "get_activation(batch)"), ("model.tokens(batch)", "sum(map(model.tokens, batch))")),
]  # fmt: skip
