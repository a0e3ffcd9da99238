"""What a reader was told who wrote these programs of puzzles 26, 29 and R9 from the pages alone, and then made mistakes
in them: rows as in ``test_fixes``. What comes is stored under what it is, and looked for until it is there."""

from __future__ import annotations

import pytest

from tests.corpus import Program, whole
from tests.test_fixes import Row
from tests.test_fixes_later import check_words

ZBV = """
async def zbv(model: Model) -> Model:
    acts, grads, n, r = model.activations, model.grad_activations, model.RANKS, model.rank
    per = model.LAYERS // (2 * n)  # layers of a stage
    low = list(range(r * per, (r + 1) * per))
    high = list(range((2 * n - 1 - r) * per, (2 * n - r) * per))
    for layer in low + high:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    def rank_of(stage):
        return stage if stage < n else 2 * n - 1 - stage

    async def get(box, kind, layer, mb, src):
        # messages of a rank, until the one that is wanted is here
        while (layer, mb) not in box:
            got = await model.receive(src)
            key = (got.layer if isinstance(got, Activation) else got.layer + 1, min(got.batches))
            if isinstance(got, Activation):
                acts[key] = got
            else:
                grads[key] = got

    async def forward(chunk, mb):
        layers = (low, high)[chunk]
        stage = r if chunk == 0 else 2 * n - 1 - r
        for layer in layers:
            if layer == 0:
                acts[0, mb] = model.get_activation([mb])
            elif (layer, mb) not in acts:
                await get(acts, Activation, layer, mb, rank_of(stage - 1))
            out = model.forward(layer, acts[layer, mb], model.weights[layer])
            if layer == model.LAYERS - 1:
                grads[model.LAYERS, mb] = model.loss(out)
            elif layer == layers[-1] and rank_of(stage + 1) != r:
                await model.pass_to(rank_of(stage + 1), out)
            else:
                acts[layer + 1, mb] = out

    async def backward_input(chunk, mb):
        layers = (low, high)[chunk]
        stage = r if chunk == 0 else 2 * n - 1 - r
        for layer in reversed(layers):
            if (layer + 1, mb) not in grads:
                await get(grads, ActivationGrad, layer + 1, mb, rank_of(stage + 1))
            grad = model.backward_input(
                layer, acts[layer, mb], grads[layer + 1, mb], model.weights[layer]
            )
            if layer == 0:
                pass
            elif layer == layers[0] and rank_of(stage - 1) != r:
                await model.pass_to(rank_of(stage - 1), grad)
            else:
                grads[layer, mb] = grad

    async def backward_weight(chunk, mb):
        for layer in reversed((low, high)[chunk]):
            grad = model.backward_weight(
                layer, acts.pop((layer, mb)), grads.pop((layer + 1, mb)), model.weights[layer]
            )
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad

    m = model.BATCHES
    done = {"F0": 0, "F1": 0, "B0": 0, "B1": 0}

    async def F(chunk):
        if done["F%d" % chunk] < m:
            await forward(chunk, done["F%d" % chunk])
            done["F%d" % chunk] += 1

    async def B(chunk):
        if done["B%d" % chunk] < m:
            mb = done["B%d" % chunk]
            await backward_input(chunk, mb)
            await backward_weight(chunk, mb)
            done["B%d" % chunk] += 1

    for _ in range(2 * (n - r) - 1):
        await F(0)
    for _ in range(r):
        await F(1)
        await F(0)
    for _ in range(n - r):
        await F(1)
        await B(1)
    while done["F0"] < m or done["F1"] < m:
        await F(0)
        await B(0)
        await F(1)
        await B(1)
    while done["B1"] < m:
        await B(0)
        await B(1)
    while done["B0"] < m:
        await B(0)

    for layer in low + high:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
SOURCES = {"zbv": ZBV}
STEADY = "        await F(0)\n        await B(0)\n        await F(1)\n        await B(1)\n"
UPPER_FIRST = "        await F(1)\n        await B(1)\n        await F(0)\n        await B(0)\n"
TURNS = "    for _ in range(n - r):\n        await F(1)\n        await B(1)\n"
HALVES = "            await backward_input(chunk, mb)\n            await backward_weight(chunk, mb)\n"
KEPT = "            if isinstance(got, Activation):\n                acts[key] = got\n            else:\n                grads[key] = got\n"


def wrong(puzzle: str, name: str, *edits: tuple[str, str]) -> Program:
    """The reader's program of a puzzle with a mistake in it."""
    source = SOURCES[puzzle]
    for old, new in edits:
        assert old in source, f"{puzzle}, {name}: {old!r} is not in the program"
        source = source.replace(old, new)
    return whole(puzzle, name, source)


ROWS = [
    Row(
        wrong("zbv", "a gradient is stored a layer too low", ("else got.layer + 1", "else got.layer")),
        (
            "rank 1 looks for model.grad_activations[7, 0], and ActivationGrad of layer 6, micro-batch 0, is in "
            "model.grad_activations[6, 0]: store it where it is looked for",
        ),
        ("The order of the work is the mistake",),
    ),
    Row(
        wrong("zbv", "all that comes is stored among the activations", (KEPT, "            acts[key] = got\n")),
        ("rank 1 looks for model.grad_activations[7, 0]", "is in model.activations[7, 0]: store it where it is looked for"),
        ("The order of the work is the mistake",),
    ),
    Row(
        wrong("zbv", "what comes is dropped", (KEPT, "            del got\n")),
        ("and Activation of layer 1, micro-batch 0, has come to it, and is in no dictionary any more: store each message",),
    ),
    Row(
        wrong("zbv", "the upper stage before the lower one", (STEADY, UPPER_FIRST)),
        (
            "rank 3 looks for model.activations[4, 4], which no message brings: forward(layer 3) of micro-batch 4 gives "
            "it on this rank itself, and comes first",
        ),
        ("src=model.rank - 1",),
    ),
    Row(
        wrong("zbv", "the same, with a rank that asks the one before for its own", (STEADY, UPPER_FIRST), ("receive(src)", "receive(src if src != r else r - 1)")),
        ("rank 3 looks for model.activations[4, 4], which no message brings: forward(layer 3)",),
        ("The order of the work is the mistake", "it asks the wrong rank"),
    ),
    Row(
        wrong("zbv", "no turns before the steady state", (TURNS, "")),
        ("rank 3 looks for model.grad_activations[4, 0], which no message brings", "gives it on this rank itself"),
        ("src=model.rank - 1",),
    ),
    Row(
        wrong("zbv", "a backward before its forward", (TURNS, TURNS.replace("        await F(1)\n        await B(1)\n", "        await B(1)\n        await F(1)\n"))),
        ("rank 0 looks for model.grad_activations[8, 0], the first gradient, which no message brings: forward(layer 7) of micro-batch 0 comes first, and then model.loss",),
        ("src=1",),
    ),
    Row(
        wrong("zbv", "the upper stage's input is sent on, and asked of the rank before", ("stage if stage < n else 2 * n - 1 - stage", "stage if stage < n else stage - n"), ("receive(src)", "receive(src if src != r else r - 1)")),
        ("looks for model.activations[4, 0], which forward(layer 3) of micro-batch 0 gave on this rank itself, and it was sent to rank 0: keep it stored",),
        ("receive(src=3)",),
    ),
    Row(
        wrong("zbv", "the half for the weight comes first", (HALVES, "".join(reversed(HALVES.splitlines(keepends=True))))),
        ("backward_weight(layer 7) of micro-batch 0 has run before backward_input, which comes first",),
        ("another key",),
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    check_words(row)
