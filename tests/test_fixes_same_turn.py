"""What mistakes are told by which a turn of a loop takes what is another turn's, or does not go on: rows as in
``test_fixes``, in puzzles 10 and 20."""

from __future__ import annotations

import pytest

from lib import grade
from tests.test_corpus import function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words
from tests.test_fixes_sums import edited

WORKER = """
class Worker:
    def __init__(self, model):
        self.m = model
        self.share = model.BATCHES // model.RANKS
        self.first = model.rank * self.share

    def cut(self, t):
        return t.shard(self.m.rank, self.m.RANKS)

    def load(self):
        for i in range(self.m.LAYERS):
            self.m.weights[i], whole = self.m.load_weights(i)
            self.m.opt_states[i] = self.cut(whole)

    def up(self, k):
        m = self.m
        m.activations["in", 0] = m.get_activation([self.first + k])
        for i in range(m.LAYERS):
            m.activations["in", i + 1] = m.forward(i, m.activations["in", i], m.weights[i])
        m.grad_activations["g"] = m.loss(m.activations.pop(("in", m.LAYERS)))

    async def down(self, k):
        m = self.m
        i = m.LAYERS
        while i > 0:
            i -= 1
            m.grad_weights["whole"], m.grad_activations["g"] = m.backward(
                i, m.activations.pop(("in", i)), m.grad_activations.pop("g"), m.weights[i])
            if k == self.share - 1:
                m.weights[i] = self.cut(m.weights[i])
            if i == 0:
                m.grad_activations.clear()
            piece = await m.scatterreduce(m.grad_weights.pop("whole"), i)
            m.grad_weights[i] = piece if k == 0 else m.grad_weights[i] + piece

    async def step(self):
        m = self.m
        for i in range(m.LAYERS):
            m.weights[i], m.opt_states[i] = m.update(i, m.grad_weights.pop(i), m.weights[i], m.opt_states[i])
        for i in range(m.LAYERS):
            m.weights[i] = await m.allgather(m.weights[i], i)
            m.set_final_weight(i, m.weights[i])


async def zero2(model: Model) -> Model:
    w = Worker(model)
    w.load()
    for k in range(w.share):
        w.up(k)
        await w.down(k)
    await w.step()
    return model
"""
LOOPS = """
async def zero2(model: Model) -> Model:
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer)
        model.opt_states[layer] = state.shard(model.rank, model.RANKS)

    last = model.BATCHES - model.RANKS + model.rank
    for mb in range(model.rank, model.BATCHES, model.RANKS):
        model.activations[0] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            grad, model.grad_activations[layer] = model.backward(
                layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), model.weights[layer])
            piece = await model.scatterreduce(grad, layer)
            if layer in model.grad_weights:
                model.grad_weights[layer] = model.grad_weights[layer] + piece
            else:
                model.grad_weights[layer] = piece
            if mb == last:
                part = model.weights.pop(layer).shard(model.rank, model.RANKS)
                part, model.opt_states[layer] = model.update(layer, model.grad_weights.pop(layer), part, model.opt_states[layer])
                model.weights[layer] = await model.allgather(part, layer)
                model.set_final_weight(layer, model.weights[layer])
        del model.grad_activations[0]
    return model
"""
QUEUE = """
import collections

async def zero2(model: Model) -> Model:
    weights, states, sums = model.weights, model.opt_states, model.grad_weights
    me = (model.rank, model.RANKS)
    for i in range(model.LAYERS):
        weights[i], whole = model.load_weights(i)
        states[i] = whole.shard(*me)
    del whole
    queue = collections.deque()

    async def drain(limit):
        while len(queue) > limit:
            i, kind, call = queue.popleft()
            got = await call
            if kind == "weight":
                weights[i] = got
                model.set_final_weight(i, got)
                continue
            sums[i] = sums[i] + got if i in sums else got
            if kind == "last":
                new, states[i] = model.update(i, sums.pop(i), weights.pop(i), states[i])
                queue.append((i, "weight", model.allgather(new, i)))

    rounds = model.BATCHES // model.RANKS
    for k in range(rounds):
        final = k == rounds - 1
        value = model.get_activation([model.rank * rounds + k])
        for i in range(model.LAYERS):
            model.activations[i] = value
            value = model.forward(i, value, weights[i])
        value = model.loss(value)
        for i in range(model.LAYERS)[::-1]:
            dw, value = model.backward(i, model.activations.pop(i), value, weights[i])
            model.grad_activations["v"] = value
            if final:
                weights[i] = weights[i].shard(*me)
            call = model.scatterreduce(dw, i)
            await drain(0 if not queue else 1)
            queue.append((i, "last" if final else "sum", call))
            value = model.grad_activations.pop("v")
        del value
        await drain(0)
    return model
"""
TURNS = """
async def hierarchical(model: Model) -> Model:
    stages = [
        lambda v, l: model.scatterreduce(v, l, axis="shard"),
        lambda v, l: model.allreduce(v, l, axis="replica"),
        lambda v, l: model.allgather(v, l, axis="shard"),
    ]
    flight = []

    async def turn():
        for item in list(flight):
            layer, stage, call = item
            value = await call
            if stage + 1 < len(stages):
                item[1:] = stage + 1, stages[stage + 1](value, layer)
            else:
                flight.remove(item)
                model.weights[layer], model.opt_states[layer] = model.update(
                    layer, value, model.weights[layer], model.opt_states[layer])
                model.set_final_weight(layer, model.weights[layer])
            del value

    for l in range(model.LAYERS):
        model.weights[l], model.opt_states[l] = model.load_weights(l)
    model.activations[0] = model.get_activation([model.rank])
    for l in range(model.LAYERS):
        model.activations[l + 1] = model.forward(l, model.activations[l], model.weights[l])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for l in range(model.LAYERS - 1, -1, -1):
        dw, model.grad_activations[l] = model.backward(
            l, model.activations.pop(l), model.grad_activations.pop(l + 1), model.weights[l])
        model.grad_weights["dw"] = dw
        await turn()
        flight.append([l, 0, stages[0](model.grad_weights.pop("dw"), l)])
    model.grad_activations.clear()
    while flight:
        await turn()
    return model
"""
UPDATE = (
    "            m.weights[i], m.opt_states[i] = m.update(i, m.grad_weights.pop(i), m.weights[i], m.opt_states[i])\n"
)
INPUT = "        model.activations[0] = model.get_activation([mb])\n"
ROWS = [
    Row(edited("zero2", "each rank updates some layers", WORKER, (UPDATE, "            if i % m.RANKS == m.rank:\n    " + UPDATE)), ("rank 0 brings what update(0, ...) has given, and ranks 1-3 the piece from before it",), ("brings another piece",)),
    Row(edited("zero2", "all forwards first, under the same keys", WORKER, ("        await w.down(k)\n", "    for k in range(w.share):\n        await w.down(k)\n")), ("the input of layer 5 of micro-batch 1 was there last", "That of micro-batch 0 is in no place of its own", "model.activations['in', 5, micro_batch]"), ("without pop",)),
    Row(edited("zero2", "the first input only", LOOPS, (INPUT, "        if mb == model.rank:\n    " + INPUT)), ("of micro-batch 0, and are over: each further micro-batch begins with an input of its own, model.activations[0] = model.get_activation([micro_batch])",), ("as pop does", "if mb == mb")),
    Row(edited("zero2", "the gradients are cleared in each turn", LOOPS, (INPUT, "        model.grad_weights.clear()\n" + INPUT)), ("which nothing clears between two micro-batches",), ("activations.clear()",)),
    Row(edited("zero2", "a sum is added to itself", LOOPS, ("model.grad_weights[layer] + piece", "model.grad_weights[layer] + model.grad_weights[layer]")), ("Or is a sum, or its first piece, added to itself",)),
    Row(edited("hierarchical", "the number of the call stays", TURNS, ("item[1:] = stage + 1, stages[stage + 1](value, layer)", "item[2:] = (stages[stage + 1](value, layer),)")), ("too, and once is enough: join the pieces as they are, grad = await model.allgather(grad, 7, axis=\"shard\")", "not go on to the next?"), ("leave this call out",)),
    Row(edited("hierarchical", "a loop goes on below layer 0", TURNS, ("range(model.LAYERS - 1, -1, -1):\n        dw", "range(model.LAYERS - 1, -4, -1):\n        dw")), ("Where a loop goes on below layer 0, to end calls that are on their way, this comes only `if layer >= 0`",)),
    Row(edited("zero2", "a deque drops calls", QUEUE, ("deque()", "deque(maxlen=1)")), ("collections.deque(maxlen=1) drops a call where it is full", "without maxlen it keeps all")),
    Row(edited("zero2", "the pieces are kept to the step", WORKER, ("m.grad_weights[i] = piece if k == 0 else m.grad_weights[i] + piece", "m.grad_weights[i, k] = piece"), (UPDATE, "            total = m.grad_weights.pop((i, 0))\n            for k in range(1, self.share):\n                total = total + m.grad_weights.pop((i, k))\n" + UPDATE.replace("m.grad_weights.pop(i)", "total"))), ("add each piece to the sum of its layer as soon as it comes".capitalize(),)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_turn(row: Row) -> None:
    check_words(row)


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_a_coroutine_that_nobody_awaits_is_named_where_memory_is_over_the_target() -> None:
    turn = "        await turn()\n        flight"
    program = edited("hierarchical", "a turn is not awaited", TURNS, (turn, turn.replace("await ", "")))
    verdict = grade(function(program), program.puzzle).verdict
    assert verdict.costs_memory.startswith("await turn(): it is called and never awaited"), verdict


def test_a_weight_in_two_dictionaries_is_told_as_that() -> None:
    program = edited("zero2", "no continue after the weight", QUEUE, ("                continue\n", ""))
    verdict = grade(function(program), program.puzzle).verdict
    assert "That of layer 5 is stored in two places" in verdict.costs_memory, verdict
    assert "Take the old one out" not in verdict.costs_memory
