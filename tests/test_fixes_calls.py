"""What is told of calls that were started and are awaited too late, too soon or never: rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import grade
from lib.grading.verdict import PASS
from tests.corpus import Program, changed, whole
from tests.corpus import function as solution_of
from tests.test_corpus import LONG, function, near
from tests.test_fixes import Row
from tests.test_fixes_later import check_words

UPDATES = """\
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
"""
SUMMED = "        grad = await model.allreduce(grad, layer)\n"
FINISH = f"""\
    calls = {{}}

    async def finish(layer, call):
        grad = await call
{UPDATES}
"""
BACK = "    for layer in reversed(range(model.LAYERS)):\n"
GATHERED = '        grad = await model.allgather(grad, layer, axis="shard")\n'
KEPT = "        calls[layer] = model.allgather(grad, layer, axis='shard')\n"
NEXT_TURN = "        if layer + 1 in calls:\n            await finish(layer + 1, calls.pop(layer + 1))\n"
SENT = "            await model.pass_to(model.rank + 1, model.activations.pop((end, mb)))\n"
CAME = "            model.activations[first, mb] = await model.receive(src=model.rank - 1)\n"
AHEAD = "            ahead = model.allgather(model.weights[layer + 1], layer + 1)\n"
ONE_BACK = "            ahead = model.allgather(model.weights[layer - 1], layer - 1)\n"

NEVER = [
    Row(
        changed("hierarchical", "gathers awaited a turn later", (GATHERED + UPDATES, KEPT + NEXT_TURN), (BACK, FINISH + BACK)),
        (
            "allgather(layer 0) was started and never awaited",
            "await that of layer 0 after the loop, and go on with it as with the others: those of layers 1-7 are awaited later (that of layer 1 after allgather(layer 0))",
        ),
    ),
    Row(
        changed(
            "hierarchical",
            "a second loop that is too short",
            (GATHERED + UPDATES, KEPT),
            (BACK, FINISH + BACK),
            ("    ### END", "    for layer in range(1, model.LAYERS):\n        await finish(layer, calls.pop(layer))\n    ### END"),
        ),
        ("await that of layer 0, too: those of layers 1-7 are awaited later",),
        ("after the loop",),
    ),
    Row(
        changed(
            "hierarchical",
            "gathers awaited below a condition",
            (GATHERED + UPDATES, KEPT + "        if layer % 2 == 0:\n            await finish(layer, calls.pop(layer))\n"),
            (BACK, FINISH + BACK),
        ),
        ("await those of layers 1, 3, 5, 7, too: those of layers 0, 2, 4, 6 are awaited, where they are called",),
    ),
    Row(
        changed("ddp", "sums awaited a turn later", (SUMMED + UPDATES, "        calls[layer] = model.allreduce(grad, layer)\n" + NEXT_TURN), (BACK, FINISH + BACK)),
        ("await that of layer 0, too: that of layer 1 is awaited later (after allreduce(layer 0))",),
    ),
    Row(
        changed(
            "fsdp",
            "sums awaited a turn later",
            (
                "        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n",
                "        if layer + 1 < model.LAYERS:\n            model.grad_weights[layer + 1] = await call\n        call = model.scatterreduce(grad, layer)\n",
            ),
        ),
        ("model.scatterreduce(..., 0) was started on this rank, and never awaited, while those of layers 1-5 are awaited later",),
    ),
    Row(
        changed("gpipe", "sends awaited a turn later", (SENT, SENT.replace("await ", "if mb > 0:\n                await send\n            send = "))),
        ("await that of micro-batch 3 after the loop", "those of micro-batches 0-2 are awaited later (that of micro-batch 2 after forward(layer 1))"),
    ),
    Row(
        changed("gpipe", "sends that nobody awaits", (SENT, SENT.replace("await ", ""))),
        ("of 4 such calls on this rank none is awaited: keep what each gives",),
    ),
    Row(
        changed(
            "gpipe",
            "a receive more than there are messages",
            (CAME, CAME.replace("await model.receive(src=model.rank - 1)", "await ahead\n            ahead = model.receive(src=model.rank - 1)")),
            ("    for mb in range(model.BATCHES):\n        if is_first", "    ahead = model.receive(src=model.rank - 1) if model.rank else None\n    for mb in range(model.BATCHES):\n        if is_first"),
        ),
        ("this rank starts 5 receives from rank 0, and 4 messages come: start none after the last message",),
        ("on the spot", "layer 0"),
    ),
    Row(
        changed("prefetch", "gathered round the ring of layers", ("        if layer + 1 < model.LAYERS:\n" + AHEAD, AHEAD[4:].replace("layer + 1", "(layer + 1) % model.LAYERS"))),
        ("leave this one out, if nothing needs its result: this rank calls allgather 3 times for layer 0, and twice for layers 1-5",),
    ),
    Row(
        changed("prefetch", "gathered round the ring of layers in the backward", ("        if layer > 0:\n" + ONE_BACK, ONE_BACK[4:].replace("layer - 1", "(layer - 1) % model.LAYERS"))),
        ("this rank calls allgather 3 times for layer 5, and twice for layers 0-4",),
    ),
]  # fmt: skip


AXES = [
    Row(
        changed("hierarchical", "the first sum has no axis", ('scatterreduce(grad, layer, axis="shard")', "scatterreduce(grad, layer)")),
        (
            'model.scatterreduce(..., 7) before this has no axis, so it sums over all ranks, and nothing is left to sum over axis="replica": grad = await model.scatterreduce(grad, 7, axis="shard") there',
        ),
        ("reduce each gradient once",),
    ),
    Row(
        changed("hierarchical", "the first sum has no axis, and cuts nothing", ('scatterreduce(grad, layer, axis="shard")', "allreduce(grad, layer)")),
        ('grad = await model.allreduce(grad, 7, axis="shard") there',),
    ),
    Row(
        changed("hierarchical", "the second sum has no axis", ('allreduce(grad, layer, axis="replica")', "allreduce(grad, layer)")),
        ('sum over the axis that is left, grad = await model.allreduce(grad, 7, axis="replica")',),
        ("too many",),
    ),
    Row(
        changed("replica_fsdp", "the second sum has no axis", ('pop(layer), layer, axis="replica")', "pop(layer), layer)")),
        ('sum over the axis that is left, grad = await model.scatterreduce(grad, 0, axis="replica")',),
    ),
    Row(
        changed("hierarchical", "no sum has an axis", (', axis="shard"', ""), (', axis="replica"', "")),
        ('over one axis after the other: axis="shard" in the call before, and axis="replica" here',),
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", AXES, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_a_sum_without_an_axis_is_named(row: Row) -> None:
    check_words(row)


PIECE = """\
        mine, model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer].shard(place, shards), model.opt_states[layer].shard(place, shards)
        )
        model.weights[layer] = await model.allgather(mine, layer, axis="shard")
        model.set_final_weight(layer, model.weights[layer])
"""
OWN_PIECES = changed(
    "hierarchical",
    "each rank updates a piece",
    (GATHERED + UPDATES, PIECE),
    (BACK, '    shards, place = model.axis_size("shard"), model.axis_index("shard")\n' + BACK),
)


def test_what_a_rank_ends_with_has_the_line_of_its_update() -> None:
    verdict = check_words(Row(OWN_PIECES, ("gather the gradient before the update",)))
    assert verdict.error is not None and "mine, model.opt_states[layer] = model.update(" in verdict.error.line
    assert verdict.message == near(OWN_PIECES).message


HIDDEN = (
    """\
    async def finish(layer, call):
        grad = await model.allreduce(await call, layer, axis="replica")
        grad = await model.allgather(grad, layer, axis="shard")
"""
    + UPDATES
)
ONE_IS_HIDDEN = changed(
    "hierarchical",
    "the reduce-scatter alone is hidden",
    (BACK, HIDDEN + "\n" + BACK),
    (
        '        grad = await model.scatterreduce(grad, layer, axis="shard")\n        grad = await model.allreduce(grad, layer, axis="replica")\n' + GATHERED + UPDATES,
        "        model.grad_weights[layer] = grad\n        if layer + 1 < model.LAYERS:\n            await finish(layer + 1, call)\n        call = model.scatterreduce(model.grad_weights.pop(layer), layer, axis='shard')\n",
    ),
    ("    ### END", "    await finish(0, call)\n    ### END"),
)  # fmt: skip
STARS = [
    (ONE_IS_HIDDEN, "rank 0 computes nothing while allreduce(layer 7) is on its way: start it, do backward(layer 5), which does not need it"),
    (changed("hierarchical", "as it is"), "while allreduce(layer 7) is on its way: start it, do backward(layer 6), which does not need it"),
    (changed("wsdp", "as it is"), "while allgather(layer 1) is on its way: start it before forward(layer 0), and await it after that"),
    (changed("fsdp", "as it is"), "while allgather(layer 1) is on its way: start it before forward(layer 0), and await it after that"),
]  # fmt: skip


@pytest.mark.parametrize("program, words", STARS, ids=[f"{one.puzzle}: {one.name}" for one, _ in STARS])
def test_the_work_beside_which_a_call_could_be_on_its_way_is_named(program: Program, words: str) -> None:
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.status == PASS and words in verdict.costs_time, verdict.costs_time


@pytest.mark.parametrize("row", NEVER, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_calls_that_nobody_awaits_are_told_beside_those_that_are(row: Row) -> None:
    check_words(row)


SLOTS = """
async def interleaved(model: Model) -> Model:
    R, me, L, B = model.RANKS, model.rank, model.LAYERS, model.BATCHES
    chunks = L // R
    own = [me + c * R for c in range(chunks)]
    for l in own:
        model.weights[l], model.opt_states[l] = model.load_weights(l)
    total = chunks * B

    def unit(k, back):
        group, inside = divmod(k, R * chunks)
        chunk = inside // R
        if back:
            chunk = chunks - 1 - chunk
        return own[chunk], group * R + inside % R

    acts, grads = model.activations, model.grad_activations

    async def F(k):
        l, b = unit(k, False)
        acts[b, l] = model.get_activation([b]) if l == 0 else await model.receive(src=(me - 1) % R)
        y = model.forward(l, acts[b, l], model.weights[l])
        if l + 1 < L:
            await model.pass_to((me + 1) % R, y)
        else:
            grads[b, L] = model.loss(y)

    async def Bw(k):
        l, b = unit(k, True)
        g = grads.pop((b, L)) if l + 1 == L else await model.receive(src=(me + 1) % R)
        gw, gx = model.backward(l, acts.pop((b, l)), g, model.weights[l])
        if l in model.grad_weights:
            gw = model.grad_weights[l] + gw
        model.grad_weights[l] = gw
        if l:
            await model.pass_to((me - 1) % R, gx)

    warm = min(total, (R - me - 1) * 2 + (chunks - 1) * R)
    for k in range(warm):
        await F(k)
    for k in range(total - warm):
        await F(warm + k)
        await Bw(k)
    for k in range(total - warm, total):
        await Bw(k)
    for l in own:
        w, s = model.update(l, model.grad_weights.pop(l), model.weights[l], model.opt_states[l])
        model.weights[l], model.opt_states[l] = w, s
        model.set_final_weight(l, w)
    return model
"""
"""Puzzle 14 with one number for each forward and each backward of a rank, and keys (micro-batch, layer)."""
QUEUES = """
async def hierarchical(model: Model) -> Model:
    L = model.LAYERS
    for l in range(L):
        model.weights[l], model.opt_states[l] = model.load_weights(l)
    x = model.activations[0] = model.get_activation([model.rank])
    for l in range(L):
        x = model.activations[l + 1] = model.forward(l, x, model.weights[l])
    g = model.grad_activations["g"] = model.loss(model.activations.pop(L))
    waiting = []

    async def step(l, call):
        piece = await call
        call = model.allreduce(piece, l, axis="replica")
        return l, call

    async def last(l, call):
        whole = await model.allgather(await call, l, axis="shard")
        model.weights[l], model.opt_states[l] = model.update(l, whole, model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])

    first, second = [], []
    for l in range(L - 1, -1, -1):
        model.grad_weights[l], g = model.backward(l, model.activations.pop(l), model.grad_activations.pop("g"), model.weights[l])
        model.grad_activations["g"] = g
        if second:
            await last(*second.pop(0))
        if first:
            second.append(await step(*first.pop(0)))
        first.append((l, model.scatterreduce(model.grad_weights.pop(l), l, axis="shard")))
    del model.grad_activations["g"]
    while first or second:
        if second:
            await last(*second.pop(0))
        if first:
            second.append(await step(*first.pop(0)))
    return model
"""
"""Puzzle 20 with a queue for each step of the sums."""
STAGES = """
async def breadth_first(model: Model) -> Model:
    S, s = model.axis_size("stage"), model.axis_index("stage")
    K, k = model.axis_size("shard"), model.axis_index("shard")
    nxt, prv = model.rank_at(stage=(s + 1) % S, shard=k), model.rank_at(stage=(s - 1) % S, shard=k)
    own = [l for l in range(model.LAYERS) if l % S == s]
    mbs = [b for b in range(model.BATCHES) if b % K == k]
    for l in own:
        model.weights[l], model.opt_states[l] = model.load_weights(l, k, K)
    for l in own:
        model.weights["full"] = await model.allgather(model.weights[l], l, axis="shard")
        for b in mbs:
            if l:
                model.activations[l, b] = await model.receive(src=prv)
            else:
                model.activations[l, b] = model.get_activation([b])
            y = model.forward(l, model.activations[l, b], model.weights["full"])
            if l < model.LAYERS - 1:
                await model.pass_to(nxt, y)
            else:
                model.activations["y", b] = y
    for l in own[::-1]:
        model.weights["full"] = await model.allgather(model.weights[l], l, axis="shard")
        for b in mbs:
            if l < model.LAYERS - 1:
                g = await model.receive(src=nxt)
            else:
                g = model.loss(model.activations.pop(("y", b)))
            gw, gx = model.backward(l, model.activations.pop((l, b)), g, model.weights["full"])
            if l in model.grad_weights:
                gw = model.grad_weights[l] + gw
            model.grad_weights[l] = gw
            if l:
                await model.pass_to(prv, gx)
        del model.weights["full"]
        piece = await model.scatterreduce(model.grad_weights.pop(l), l, axis="shard")
        model.weights[l], model.opt_states[l] = model.update(l, piece, model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
"""
"""Puzzle 15 with one place for the whole weight."""
ENDS = (
    "from typing import Any\n\n\n"
    + solution_of("from_both_ends")
    + "\n\n\nasync def dualpipe(model):\n    return await from_both_ends(model, True)\n"
)
"""Puzzle 30 with halves of backwards."""
HOPS = solution_of("hops_hidden") + "\n\n\nasync def ring_attention(model):\n    return await hops_hidden(model, 0)\n"
"""Puzzle 26 with gradients that come a block later."""


def wrong(puzzle: str, name: str, *edits: tuple[str, str]) -> Program:
    """One of these programs with every ``old`` in it replaced by ``new``."""
    source = {
        "interleaved": SLOTS,
        "hierarchical": QUEUES,
        "dualpipe": ENDS,
        "breadth_first": STAGES,
        "ring_attention": HOPS,
    }[puzzle]
    for old, new in edits:
        assert old in source, f"{puzzle}, {name}: {old!r} is not there"
        source = source.replace(old, new)
    return whole(puzzle, name, source)


DRAIN = """\
    while first or second:
        if second:
            await last(*second.pop(0))
        if first:
            second.append(await step(*first.pop(0)))
"""
FULL = '        model.weights["full"] = await model.allgather(model.weights[l], l, axis="shard")\n'
ONCE = "    await last(*second.pop(0))\n    second.append(await step(*first.pop(0)))\n"
HOME = '        if home:\n            grads["kv"] = await model.receive(before)\n            await home\n'
IN_A_COROUTINE = """\
    async def total(grad, layer):
        return await model.allreduce(grad, layer), layer

"""
STYLES = [
    Row(
        wrong("interleaved", "the backwards end with the forwards", ("    for k in range(total - warm, total):\n        await Bw(k)\n", "")),
        ("This rank has done 16 forwards and 6 backwards: do those that are left after the last forward",),
    ),
    Row(
        wrong("interleaved", "the layer never changes", ("divmod(k, R * chunks)", "divmod(k, R)")),
        ("it has run layer 4 on none of them, and asks for one more: do the forwards of each round go through all of its layers?",),
        ("too long",),
    ),
    Row(
        wrong("interleaved", "the place in the round is the micro-batch", ("group * R + inside % R", "group * R + inside")),
        ("micro-batch 0, is there under another key, model.grad_activations[4, 8]: that is not its number",),
        ("store it where",),
    ),
    Row(
        wrong("interleaved", "no send of an output is awaited", ("            await model.pass_to((me + 1) % R, y)", "            model.pass_to((me + 1) % R, y)")),
        ("of 16 such calls on this rank none is awaited",),
    ),
    Row(
        wrong("hierarchical", "the queues are emptied by one", (DRAIN, ONCE)),
        ("allreduce(layer 0) was started and never awaited", "await that of layer 0 after the loop", "those of layers 1-7 are awaited later"),
    ),
    Row(
        wrong("hierarchical", "the second queue alone is emptied", ("while first or second", "while second")),
        ("with 1 rank, 1 layer", "scatterreduce(layer 0) was started and never awaited"),
        ("is the size of one axis taken",),
    ),
    Row(
        changed("ddp", "a coroutine is no pair", (BACK, IN_A_COROUTINE + BACK), ("grad = await model.allreduce(grad, layer)", "grad, _ = total(grad, layer)")),
        ("did you forget `await`? A function with async def gives its result when it is awaited",),
    ),
    Row(
        changed("ddp", "a coroutine has no layer", (BACK, IN_A_COROUTINE + BACK), ("grad = await model.allreduce(grad, layer)", "grad = total(grad, layer).layer")),
        ("total(...) has no layer yet", "did you forget `await`?"),
    ),
    Row(
        wrong("ring_attention", "the last gradient is not received", (HOME, "")),
        ("what has come round so far from the other side of the ring is next there, model.grad_activations['kv'] = await model.receive(...)",),
        ("without pop",),
    ),
    Row(
        wrong("breadth_first", "no gather for the backward", ("    for l in own[::-1]:\n" + FULL, "    for l in own[::-1]:\n")),
        ("the whole weight of layer 7 was there, and was taken out: gather each anew, model.weights['full'] = await model.allgather(",),
        ("without pop",),
    ),
    Row(
        wrong("breadth_first", "the output over the input", ('model.activations["y", b] = y', "model.activations[l, b] = y")),
        ("the output of layer 7, micro-batch 0, is under another key, model.activations[7, 0]",),
    ),
    Row(
        changed("zbv", "one receive, whatever comes", ("while key not in store:", "if key not in store:")),
        ("this rank has looked for it, and has received once since then, in vain", "receive until this one is there, while (6, 0) not in model.grad_activations"),
        ("with halves", "comes first"),
    ),
    Row(
        changed("dualpipe", "one receive, whatever comes", ("while key not in store:", "if key not in store:")),
        ("receive until this one is there, while (4, 9) not in model.grad_activations",),
        ("with halves",),
    ),
    Row(
        wrong("dualpipe", "the weight halves that are left are forgotten", ("    while later:\n        for_the_weight()\n", "")),
        ("the weight's half of the backward of micro-batch 7 was never done for layer 4 before this",),
        ("too soon",),
    ),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("row", STYLES, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix_in_other_styles(row: Row) -> None:
    check_words(row)


COSTS = [
    (wrong("interleaved", "as it is"), "rank 0 computes nothing while it sends the activation of micro-batch 0 (line"),
    (wrong("interleaved", "as it is"), "before their first backward the ranks do 11, 9, 7, 5 forwards, those of the star's program 11, 10, 9, 7"),
    (wrong("interleaved", "sends that are kept", ("            await model.pass_to((me + 1) % R, y)\n", "            out.append(model.pass_to((me + 1) % R, y))\n"), ("    warm = min", "    out = []\n    warm = min"), ("    for l in own:\n        w, s", "    await asyncio.gather(*out)\n    for l in own:\n        w, s")), "rank 0 computes nothing while it receives the activation of micro-batch 0 (line"),
    (wrong("dualpipe", "overlapped nowhere", ("earlier, overlapped=True", "earlier, overlapped=False")), "no backward runs beside a forward: right after a forward"),
    (wrong("interleaved", "one more on two ranks", ("(chunks - 1) * R)\n", "(chunks - 1) * R + 2 * (me == 1))\n")), "(the star's does more on rank 1, but takes more than 4 micro-batches through the first layer before the next)"),
]  # fmt: skip


@pytest.mark.parametrize(
    "program, words", COSTS, ids=[f"{one.puzzle}: {one.name}, {words[:20]}" for one, words in COSTS]
)
def test_what_costs_time_is_named_in_other_styles(program: Program, words: str) -> None:
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.right and words in verdict.costs_time, verdict.costs_time
    assert "do  forwards" not in verdict.costs_time


ZIGZAG = "inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))"


def test_forwards_are_counted_in_pipelines_alone() -> None:
    program = changed("ring_attention", "in order", (ZIGZAG, "inp.shard(r, n)"))
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert "give all ranks the same work" in verdict.costs_time
    assert "forwards" not in verdict.costs_time + verdict.costs_memory


def test_messages_that_wait_for_ranks_with_more_work_are_told_as_such() -> None:
    program = wrong(
        "ring_attention", "halves that are no mirrors", ("inp.shard(2 * n - 1 - r, 2 * n)", "inp.shard(n + r, 2 * n)")
    )
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    attends = "since rank 3 attends for 5.5 ticks, and rank 0 for 2.5 ticks: give all ranks the same work"
    assert attends in verdict.costs_memory and "as it comes" not in verdict.costs_memory
