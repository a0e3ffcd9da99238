"""What mistakes are told of outputs under a name and a micro-batch, of functions that nobody calls, of conditions that
are true of every layer of a rank, and of work that is done once too often: rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import grade
from lib.grading.verdict import PASS
from tests.corpus import changed, whole
from tests.test_corpus import function
from tests.test_fixes import Row
from tests.test_fixes_later import check_at_a_shell, check_words
from tests.test_fixes_sums import COUNTED, edited

LISTS = """
async def interleaved(model: Model) -> Model:
    R, r, L, M = model.RANKS, model.rank, model.LAYERS, model.BATCHES
    left, right = (r - 1) % R, (r + 1) % R
    chunks = [l for l in range(L) if l % R == r]
    for l in chunks:
        model.weights[l], model.opt_states[l] = model.load_weights(l)
    async def fwd(l, b):
        x = model.get_activation([b]) if l == 0 else await model.receive(src=left)
        model.activations[l, b] = x
        y = model.forward(l, x, model.weights[l])
        if l == L - 1:
            model.activations["last", b] = y
        else:
            await model.pass_to(right, y)
    async def bwd(l, b):
        g = model.loss(model.activations.pop(("last", b))) if l == L - 1 else await model.receive(src=right)
        gw, gx = model.backward(l, model.activations.pop((l, b)), g, model.weights[l])
        model.grad_weights[l] = model.grad_weights[l] + gw if l in model.grad_weights else gw
        if l > 0:
            await model.pass_to(left, gx)
    F, B = [], []
    for start in range(0, M, R):
        for l in chunks:
            F += [(l, b) for b in range(start, start + R)]
        for l in chunks[::-1]:
            B += [(l, b) for b in range(start, start + R)]
    warm = 2 * (R - 1 - r) + (len(chunks) - 1) * R + 1
    f = 0
    while f < warm and f < len(F):
        await fwd(*F[f])
        f += 1
    for job in B:
        await bwd(*job)
        if f < len(F):
            await fwd(*F[f])
            f += 1
    for l in chunks:
        g, w, s = model.grad_weights.pop(l), model.weights[l], model.opt_states[l]
        model.weights[l], model.opt_states[l] = model.update(l, g, w, s)
        model.set_final_weight(l, model.weights[l])
    return model
"""
STAGES = """
class Stage:
    def __init__(self, m, layer):
        self.m, self.layer = m, layer
        self.prev, self.next = (m.rank - 1) % m.RANKS, (m.rank + 1) % m.RANKS
        self.first, self.last = layer == 0, layer == m.LAYERS - 1
        m.weights[layer], m.opt_states[layer] = m.load_weights(layer)
    async def F(self, mb):
        m, key = self.m, (self.layer, mb)
        m.activations[key] = m.get_activation([mb]) if self.first else await m.receive(src=self.prev)
        m.activations["out", mb] = m.forward(self.layer, m.activations[key], m.weights[self.layer])
        if not self.last:
            await m.pass_to(self.next, m.activations.pop(("out", mb)))
    async def B(self, mb):
        m, key = self.m, (self.layer, mb)
        if self.last:
            m.grad_activations["in", mb] = m.loss(m.activations.pop(("out", mb)))
        else:
            m.grad_activations["in", mb] = await m.receive(src=self.next)
        g, d = m.backward(self.layer, m.activations.pop(key), m.grad_activations.pop(("in", mb)), m.weights[self.layer])
        old = m.grad_weights.pop(self.layer, None)
        m.grad_weights[self.layer] = g if old is None else old + g
        if not self.first:
            await m.pass_to(self.prev, d)
    def step(self):
        m, n = self.m, self.layer
        m.weights[n], m.opt_states[n] = m.update(n, m.grad_weights.pop(n), m.weights[n], m.opt_states[n])
        m.set_final_weight(n, m.weights[n])

async def interleaved(model: Model) -> Model:
    n = model.RANKS
    stages = [Stage(model, layer) for layer in range(model.rank, model.LAYERS, n)]
    groups = [list(range(a, a + n)) for a in range(0, model.BATCHES, n)]
    forwards = [(s, mb) for group in groups for s in stages for mb in group]
    backwards = [(s, mb) for group in groups for s in reversed(stages) for mb in group]
    early = 2 * (n - 1 - model.rank) + n * (len(stages) - 1) + 1
    for s, mb in forwards[:early]:
        await s.F(mb)
    rest = iter(forwards[early:])
    for s, mb in backwards:
        await s.B(mb)
        if (job := next(rest, None)) is not None:
            await job[0].F(job[1])
    for s in stages:
        s.step()
    return model
"""
PLAN = """
import asyncio
async def interleaved(model: Model) -> Model:
    n, me = model.RANKS, model.rank
    layers = list(range(me, model.LAYERS, n))
    for k in layers:
        model.weights[k], model.opt_states[k] = model.load_weights(k)
    def order(chunks):
        todo = []
        mb = 0
        while mb < model.BATCHES:
            todo += [(k, b) for k in chunks for b in range(mb, min(mb + n, model.BATCHES))]
            mb += n
        return todo
    ups, downs = order(layers), order(list(reversed(layers)))
    start = START
    plan = [("F", *x) for x in ups[:start]]
    rest = ups[start:]
    for x in downs:
        plan.append(("B", *x))
        if rest:
            plan.append(("F", *rest.pop(0)))
    sends = []
    left = {k: model.BATCHES for k in layers}
    for what, k, b in plan:
        if what == "F":
            inp = model.get_activation([b]) if k == 0 else await model.receive(src=(me - 1) % n)
            model.activations[k, b] = inp
            model.activations["o"] = model.forward(k, inp, model.weights[k])
            if k < model.LAYERS - 1:
                sends.append(asyncio.create_task(model.pass_to((me + 1) % n, model.activations.pop("o"))))
            else:
                model.grad_activations["l", b] = model.loss(model.activations.pop("o"))
        else:
            if k < model.LAYERS - 1:
                model.grad_activations["l", b] = await model.receive(src=(me + 1) % n)
            gw, gi = model.backward(k, model.activations.pop((k, b)), model.grad_activations.pop(("l", b)), model.weights[k])
            model.grad_weights[k] = gw if k not in model.grad_weights else model.grad_weights[k] + gw
            left[k] -= 1
            if k > 0:
                sends.append(asyncio.create_task(model.pass_to((me - 1) % n, gi)))
            if left[k] == 0:
                model.weights[k], model.opt_states[k] = model.update(k, model.grad_weights.pop(k), model.weights[k], model.opt_states[k])
                model.set_final_weight(k, model.weights[k])
    await asyncio.gather(*sends)
    return model
"""
PAIRS = """
import asyncio

async def interleaved(model: Model) -> Model:
    n, me, top = model.RANKS, model.rank, model.LAYERS - 1
    chunks = [me + n * c for c in range(model.LAYERS // n)]
    for c in chunks:
        model.weights[c], model.opt_states[c] = model.load_weights(c)
    F = [(c, g * n + j) for g in range(model.BATCHES // n) for c in chunks for j in range(n)]
    B = [(c, g * n + j) for g in range(model.BATCHES // n) for c in reversed(chunks) for j in range(n)]
    warm = min(len(F), (len(chunks) - 1) * n + 2 * (n - 1 - me))
    turns = [(f, None) for f in F[:warm]]
    rest, k, v = F[warm:], 0, len(chunks)
    while k < len(B):
        turns += [(f, None) for f in rest[k : k + v]] + [(None, b) for b in B[k : k + v]]
        k += v
    count = dict.fromkeys(chunks, 0)
    for f, b in turns:
        if f:
            c, mb = f
            key = (c, mb)
            if c:
                model.activations[key] = await model.receive(src=(me + n - 1) % n)
            else:
                model.activations[key] = model.get_activation([mb])
            model.activations["out"] = model.forward(c, model.activations[key], model.weights[c])
            if c == top:
                model.grad_activations[key] = model.loss(model.activations.pop("out"))
            else:
                await model.pass_to((me + 1) % n, model.activations.pop("out"))
        if b:
            c, mb = b
            if c < top:
                model.grad_activations[b] = await model.receive(src=(me + 1) % n)
            w, model.grad_activations["dx"] = model.backward(
                c, model.activations.pop(b), model.grad_activations.pop(b), model.weights[c]
            )
            model.grad_weights[c] = w if count[c] == 0 else model.grad_weights[c] + w
            count[c] += 1
            if c:
                await model.pass_to((me - 1) % n, model.grad_activations.pop("dx"))
            else:
                del model.grad_activations["dx"]
    for c in chunks:
        model.weights[c], model.opt_states[c] = model.update(
            c, model.grad_weights.pop(c), model.weights[c], model.opt_states[c]
        )
        model.set_final_weight(c, model.weights[c])
    return model
"""
WEIGHTS = """
async def wsdp(model: Model) -> Model:
    async def whole(k):
        return await model.allgather(model.weights[k], k)
    async def up(i):
        w = await whole(i)
        model.activations[i + 1] = model.forward(i, model.activations[i], w)
    async def back(i):
        w = await whole(i)
        g, model.grad_activations["g"] = model.backward(i, model.activations.pop(i), model.grad_activations.pop("g"), w)
        model.grad_weights[i] = await model.allreduce(g, i)
        model.weights[i], model.opt_states[i] = model.update(i, model.grad_weights.pop(i), model.weights[i], model.opt_states[i])
        model.set_final_weight(i, model.weights[i])
    for i in range(model.LAYERS):
        model.weights[i], model.opt_states[i] = model.load_weights(i, model.rank, model.RANKS)
    model.activations[0] = model.get_activation([model.rank])
    i = 0
    while i < model.LAYERS:
        await up(i)
        i += 1
    model.grad_activations["g"] = model.loss(model.activations.pop(model.LAYERS))
{}
    return model
"""
GATHERED = """
async def wsdp(model: Model) -> Model:
    top = model.LAYERS
    for k in range(top):
        model.weights[k], model.opt_states[k] = model.load_weights(k, model.rank, model.RANKS)
    model.activations[0] = model.get_activation([model.rank])
    coming = model.allgather(model.weights[0], 0)
    for k in range(top):
        model.weights["use"] = await coming
        if k + 1 < top:
            coming = model.allgather(model.weights[FORTH], FORTH)
        model.activations[k + 1] = model.forward(k, model.activations[k], model.weights["use"])
    model.grad_activations["g"] = model.loss(model.activations.pop(top))
    coming = model.allgather(model.weights[top - 1], top - 1)
    for k in reversed(range(top)):
        model.weights["use"] = await coming
        if MORE:
            coming = model.allgather(model.weights[BACK], BACK)
        g, model.grad_activations["g"] = model.backward(k, model.activations.pop(k), model.grad_activations.pop("g"), model.weights.pop("use"))
        model.grad_weights["g"] = await model.allreduce(g, k)
        model.weights[k], model.opt_states[k] = model.update(k, model.grad_weights.pop("g"), model.weights[k], model.opt_states[k])
        model.set_final_weight(k, model.weights[k])
    return model
"""
COUNT_DOWN = (
    "after layer 5 comes layer 4",
    "does a count begin at model.LAYERS?",
    "before the work of its turn, so that layer 5 comes first",
)
NOT_CALLED = (
    "no allgather(layer 1) has been awaited here before this, and allgather(layer 0) has",
    "let the call that the turn of layer 1 awaits be this one",
)
BEHIND = "there is no layer -1", "Then only where there is one more turn, if layer > 0"
LOSS_SENT = (
    ('model.activations["last", b] = y', "await model.pass_to(0, model.loss(y))"),
    ('model.loss(model.activations.pop(("last", b)))', "model.grad_activations.pop((l, b))"),
)
SENT_AWAY = (
    "model.loss has made the gradient of the output of layer 7 here, for micro-batch 0, and it was sent to rank 0"
)
FIVE_FIRST = ("rank 0 begins its first backward after 4 forwards, and 5 come first",)
TOO_SOON = "rank 3 begins its first backward after 1 forward, which is too soon"
ONE_LAYER_BACK = "rank 3 has taken 4 micro-batches back through layer 7, and none through layer 3"
NOT_TO_KEEP = "without pop", "under another key"
TWICE = "where that of micro-batch 1 was before: does a count not go on, as without += 1?"
OF_LAYER = (
    "layer 4 is on rank 0, and gradients come from there",
    "Only the gradient for layer 7 comes from the loss",
    "layer == model.LAYERS - 1",
)
BY_ONE = """    f = b = 0
    while b < total:
        if f < total and f - b <= ahead:
            await do_forward(f)
            f += 1
        else:
            await do_backward(b)
            b += 1
"""
BY_TWO = """    for k in range(ahead):
        await do_forward(k)
    for k in range(0, total - ahead, 2):
        await do_forward(ahead + k)
        await do_forward(ahead + k + 1)
        await do_backward(k)
        await do_backward(k + 1)
    for k in range(total - ahead, total):
        await do_backward(k)
"""
IN_TWOS = """    async def two(work, k):
        for one in (k, k + 1):
            await work(one)
    f = b = 0
    while f < ahead:
        await do_forward(f)
        f += 1
    while f < total:
        await two(do_forward, f)
        await two(do_backward, b)
        f, b = f + 2, b + 2
    while b < total:
        await do_backward(b)
        b += 1
"""
ONE_MORE = (
    "rank 1 has done all of its 6 forwards, of layers 1, 4, and waits for the input of one more",
    "as long as one is left",
)
LOAD = "        m.weights[layer], m.opt_states[layer] = m.load_weights(layer)\n"
DEALT = (
    "rank 0 has loaded layers 0-7, and layers are dealt like cards here",
    "mine = range(model.rank, model.LAYERS, model.RANKS)",
)
LOOPS = ("loop above it",)
ROWS = [
    Row(edited("interleaved", "the warm-up of 1F1B", LISTS, ("warm = 2 * (R - 1 - r) + (len(chunks) - 1) * R + 1", "warm = R - r")), (TOO_SOON,), NOT_TO_KEEP),
    Row(edited("interleaved", "the warm-up of 1F1B in a class", STAGES, ("early = 2 * (n - 1 - model.rank) + n * (len(stages) - 1) + 1", "early = n - model.rank")), (TOO_SOON,), NOT_TO_KEEP),
    Row(edited("interleaved", "backwards without rounds in a class", STAGES, ("for group in groups for s in reversed(stages) for mb", "for s in reversed(stages) for group in groups for mb")), (ONE_LAYER_BACK,), NOT_TO_KEEP),
    Row(edited("interleaved", "backwards without rounds", LISTS, ("    warm = ", "    B = [(l, b) for l in chunks[::-1] for b in range(M)]\n    warm = ")), (ONE_LAYER_BACK,), NOT_TO_KEEP),
    Row(edited("interleaved", "a count stays after the warm-up", LISTS, ("            await fwd(*F[f])\n            f += 1\n", "            await fwd(*F[f])\n")), (TWICE, "model.activations['last', 1]"), ("store it as",)),
    Row(changed("interleaved", "the first forward after the warm-up again", ("await forward(*forwards[turn])", "await forward(*forwards[ahead])")), (TWICE, "model.activations[8, 1]"), ("store it as",)),
    Row(edited("interleaved", "a method without its brackets", STAGES, ("        s.step()", "        s.step")), ("`s.step` alone names a function and does not call it: s.step()",), LOOPS),
    Row(edited("interleaved", "a method that is never called", STAGES, ("    for s in stages:\n        s.step()\n", "")), ("it is in step, which is never called: step() where that is due",), LOOPS),
    Row(changed("fsdp", "the last step is in a function of its own", ("        model.weights[layer], model.opt_states[layer] = model.update(", "        async def step(l, grad):\n            model.weights[l], model.opt_states[l] = model.update(l, grad, model.weights[l], model.opt_states[l])\n        continue\n        model.weights[layer], model.opt_states[layer] = model.no_update(")), ("it is in step, which is never called: await step(l, grad) where that is due",), LOOPS),
    Row(edited("interleaved", "the update is two functions away", STAGES, ("    def step(self):", "    def end(self):\n        self.step()\n    def step(self):"), ("        s.step()\n    return", "        s.end\n    return")), ("`s.end` alone names a function and does not call it: s.end()",), LOOPS),
    Row(edited("interleaved", "the loss for each layer of the last rank", COUNTED, ("pop(mb) if layer + 1 == model.LAYERS else", "pop(mb) if r == p - 1 else")), OF_LAYER, ("is to be stored here",)),
    Row(edited("interleaved", "the loss for each layer of the last rank in a class", STAGES, ('            m.grad_activations["in", mb] = m.loss(m.activations.pop(("out", mb)))\n        else:', '            m.grad_activations["in", mb] = m.loss(m.activations.pop(("out", mb)))\n        elif m.rank < m.RANKS - 1:')), OF_LAYER, ("is to be stored here",)),
    Row(edited("interleaved", "two forwards and two backwards by turns", COUNTED, (BY_ONE, BY_TWO)), ONE_MORE, ("two forwards more",)),
    Row(edited("interleaved", "two and two by turns, in a function", COUNTED, (BY_ONE, IN_TWOS)), ONE_MORE, ("two forwards more",)),
    Row(edited("interleaved", "each stage loads every layer", STAGES, (LOAD, f"        for every in range(m.LAYERS):\n    {LOAD.replace('layer', 'every')}")), DEALT, ("call this once",)),
    Row(edited("interleaved", "every layer is loaded again for the next one", COUNTED, ("    for c in range(v):\n", "    for layer in [l for _ in range(v) for l in range(model.LAYERS)]:\n"), ("        layer = c * p + r\n", "")), DEALT, ("call this once",)),
    Row(edited("interleaved", "the second round goes back on no layer", LISTS, ("B += [(l, b) for b in range(start, start + R)]", "B += [(l, b) for b in range(start, R)]")), ("So far this rank has done 13 forwards and 8 backwards, and 16 of each are due",)),
    Row(edited("interleaved", "as many as there are micro-batches", COUNTED, ("total = v * model.BATCHES", "total = model.BATCHES")), ("So far this rank has done 8 forwards and 8 backwards, and 16 of each are due",)),
    Row(whole("wsdp", "a count that begins at model.LAYERS", WEIGHTS.format("    while i > 0:\n        await back(i)\n        i -= 1")), COUNT_DOWN, ("one turn ahead",)),
    Row(whole("wsdp", "a range that begins at model.LAYERS", WEIGHTS.format("    for i in range(model.LAYERS, 0, -1):\n        await back(i)")), COUNT_DOWN, ("one turn ahead",)),
    Row(whole("wsdp", "the weight of this turn is gathered ahead again", GATHERED.replace("FORTH", "k").replace("BACK", "k - 1").replace("MORE", "k")), NOT_CALLED),
    Row(whole("wsdp", "a list of gathers of the last layer", WEIGHTS.format("    calls = [lambda: model.allgather(model.weights[k], k) for k in range(model.LAYERS)]\n    for k in reversed(range(model.LAYERS)):\n        await back(k)").replace("await whole(i)\n        model.activations", "await calls[i]()\n        model.activations").replace("    i = 0\n", "    i = 0\n    calls = [lambda: whole(k) for k in range(model.LAYERS)]\n", 1)), ("no allgather(layer 0) has been awaited here before this, and allgather(layer 5) has",), ("make the first call before the loop",)),
    Row(whole("wsdp", "gathered ahead in the last turn of the backward, too", GATHERED.replace("FORTH", "k + 1").replace("BACK", "k - 1").replace("MORE", "True")), BEHIND),
    Row(whole("wsdp", "a gather ahead after layer 0, with keys", GATHERED.replace("FORTH", "k + 1").replace("BACK", "k - 1").replace("MORE", "True").replace("for k in reversed(range(top)):", "for k in list(range(top))[::-1]:")), BEHIND),
    Row(edited("interleaved", "the gradient of the loss is sent to rank 0", LISTS, *LOSS_SENT), (SENT_AWAY,), ("was it stored under this key",)),
    Row(edited("interleaved", "the gradient of the loss is sent to rank 0, with texts as keys", LISTS, *LOSS_SENT, ("[l, b]", '[f"{l}/{b}"]'), ("pop((l, b))", 'pop(f"{l}/{b}")')), (SENT_AWAY,), ("was it stored under this key",)),
    Row(edited("interleaved", "no backwards at all", LISTS, ("    for job in B:", "    for job in B[:0]:")), ("So far this rank has done 5 forwards and 0 backwards, and 16 of each are due",)),
    Row(edited("interleaved", "no backwards of the second layer", STAGES, ("    for s, mb in backwards:", "    for s, mb in backwards[:model.BATCHES // 2]:")), ("and 4 backwards, and 16 of each are due",)),
    Row(whole("interleaved", "a warm-up that falls by one", PLAN.replace("START", "n * len(layers) - me")), FIVE_FIRST, ("so does what is wanted",)),
    Row(whole("interleaved", "two and two by turns, with keys of micro-batches", PAIRS), ("does backwards one after the other while it has forwards left",), ("so does what is wanted",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_on_names_lead_to_the_fix(row: Row) -> None:
    check_words(row)


@pytest.mark.parametrize("source", [LISTS, STAGES])
def test_the_programs_with_these_mistakes_are_right_without_them(source: str) -> None:
    assert grade(function(whole("interleaved", "right", source)), "interleaved").verdict.status == PASS  # type: ignore[arg-type]


@pytest.mark.parametrize("row", [ROWS[0], ROWS[4], *ROWS[-4:]], ids=lambda row: row.program.name)
def test_a_shell_says_the_same(row: Row) -> None:
    check_at_a_shell(row, check_words(row))
