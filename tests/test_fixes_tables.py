"""What mistakes are told in puzzle 7 in programs whose stages are ranks that follow one another, in a class or not, and
in one whose layers go round a ring, with names of its own for keys."""

from __future__ import annotations

import pytest

from lib import grade
from lib.grading.verdict import PASS
from tests.corpus import Program, changed, whole
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words

WORKER = """
class Worker:
    def __init__(self, model):
        self.m = model
        self.stage = model.rank // 4
        self.batch = model.rank % 4
        n = model.LAYERS // 4
        self.layers = list(range(self.stage * n, self.stage * n + n))

    def load(self):
        for layer in range(self.m.LAYERS):
            self.m.weights[layer], self.m.opt_states[layer] = self.m.load_weights(layer, self.m.rank, self.m.RANKS)

    async def gather(self, layer):
        self.m.weights["all"] = await self.m.allgather(self.m.weights[layer], layer)

    async def forward(self, layer):
        m = self.m
        if layer == 0:
            m.activations[0] = m.get_activation([self.batch])
        elif layer == self.layers[0]:
            m.activations[layer] = await m.receive(src=m.rank - 4)
        m.activations[layer + 1] = m.forward(layer, m.activations[layer], m.weights["all"])
        if layer + 1 == m.LAYERS:
            m.grad_activations[layer + 1] = m.loss(m.activations.pop(layer + 1))
        elif layer == self.layers[-1]:
            await m.pass_to(m.rank + 4, m.activations.pop(layer + 1))

    async def backward(self, layer):
        m = self.m
        if layer == self.layers[-1] and layer + 1 < m.LAYERS:
            m.grad_activations[layer + 1] = await m.receive(src=m.rank + 4)
        m.grad_weights[layer], m.grad_activations[layer] = m.backward(
            layer, m.activations.pop(layer), m.grad_activations.pop(layer + 1), m.weights["all"])
        if layer == self.layers[0] and layer:
            await m.pass_to(m.rank - 4, m.grad_activations.pop(layer))

    async def step(self, layer):
        m = self.m
        grad = m.grad_weights.pop(layer) if layer in self.layers else m.fake_grad(layer, [])
        m.grad_weights["piece"] = await m.scatterreduce(grad, layer)
        m.weights[layer], m.opt_states[layer] = m.update(layer, m.grad_weights.pop("piece"), m.weights[layer], m.opt_states[layer])
        m.set_final_weight(layer, m.weights[layer])


async def pipeline_fsdp(model: Model) -> Model:
    w = Worker(model)
    w.load()
    for layer in range(model.LAYERS):
        await w.gather(layer)
        if layer in w.layers:
            await w.forward(layer)
        del model.weights["all"]
    for layer in reversed(range(model.LAYERS)):
        await w.gather(layer)
        if layer in w.layers:
            await w.backward(layer)
        del model.weights["all"]
        await w.step(layer)
    return model
"""
PLAIN = """
async def pipeline_fsdp(model: Model) -> Model:
    L, r = model.LAYERS, model.rank
    stage, mb, per = r // 4, r % 4, L // 4
    own = range(stage * per, (stage + 1) * per)
    for l in range(L):
        model.weights[l], model.opt_states[l] = model.load_weights(l, r, model.RANKS)
    for l in range(L):
        model.weights["f"] = await model.allgather(model.weights[l], l)
        if l in own:
            if l == own[0]:
                model.activations[l] = await model.receive(src=r - 4) if stage else model.get_activation([mb])
            model.activations[l + 1] = model.forward(l, model.activations[l], model.weights["f"])
            if l == own[-1] and stage < 3:
                await model.pass_to(r + 4, model.activations.pop(l + 1))
    if stage == 3:
        model.grad_activations[L] = model.loss(model.activations.pop(L))
    for l in reversed(range(L)):
        model.weights["f"] = await model.allgather(model.weights[l], l)
        if l in own:
            if l == own[-1] and stage < 3:
                model.grad_activations[l + 1] = await model.receive(src=r + 4)
            g, model.grad_activations[l] = model.backward(l, model.activations.pop(l), model.grad_activations.pop(l + 1), model.weights["f"])
            model.grad_weights[l] = g
            if l == own[0] and stage:
                await model.pass_to(r - 4, model.grad_activations.pop(l))
        g = model.grad_weights.pop(l, model.fake_grad(l, []))
        g = await model.scatterreduce(g, l)
        model.weights[l], model.opt_states[l] = model.update(l, g, model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
"""
RING = """
STAGES = 4


def owner(model, layer):
    return (model.rank // STAGES) * STAGES + layer % STAGES


async def fetch(model, layer):
    return await model.allgather(model.weights["shard", layer], layer)


async def pipeline_fsdp(model: Model) -> Model:
    me, last = model.rank, model.LAYERS - 1
    for n in range(model.LAYERS):
        model.weights["shard", n], model.opt_states[n] = model.load_weights(n, me, model.RANKS)

    for n in range(model.LAYERS):
        whole = await fetch(model, n)
        if owner(model, n) != me:
            continue
        model.weights["whole"] = whole
        if n == 0:
            model.activations[n] = model.get_activation([me // STAGES])
        else:
            model.activations[n] = await model.receive(src=owner(model, n - 1))
        out = model.forward(n, model.activations[n], model.weights.pop("whole"))
        if n < last:
            await model.pass_to(owner(model, n + 1), out)
        else:
            model.grad_activations["g"] = model.loss(out)

    for n in range(last, -1, -1):
        whole = await fetch(model, n)
        if owner(model, n) == me:
            model.weights["whole"] = whole
            if n < last:
                model.grad_activations["g"] = await model.receive(src=owner(model, n + 1))
            dw, g = model.backward(n, model.activations.pop(n), model.grad_activations.pop("g"), model.weights.pop("whole"))
            if n > 0:
                model.grad_weights["dw"] = dw
                await model.pass_to(owner(model, n - 1), g)
                dw = model.grad_weights.pop("dw")
        else:
            dw = model.fake_grad(n, [])
        piece = await model.scatterreduce(dw, n)
        new, model.opt_states[n] = model.update(n, piece, model.weights.pop(("shard", n)), model.opt_states[n])
        model.set_final_weight(n, new)
    return model
"""


def wrong(source: str, name: str, *edits: tuple[str, str]) -> Program:
    """One of these programs with every ``old`` in it replaced by ``new``."""
    for old, new in edits:
        assert old in source, f"{name}: {old!r} is not in the program"
        source = source.replace(old, new)
    return whole("pipeline_fsdp", name, source)


IN_A_ROW = (
    "they are one stage: model.rank // model.BATCHES is the stage, and model.rank % model.BATCHES the micro-batch"
)
SHARE = "4 ranks share a micro-batch: model.rank // 4"
LAST = """            if l == own[-1] and stage < 3:
                await model.pass_to(r + 4, model.activations.pop(l + 1))
    if stage == 3:
        model.grad_activations[L] = model.loss(model.activations.pop(L))
"""
OF_A_BLOCK = ("layer % STAGES", "layer // (model.LAYERS // STAGES)")
ROWS = [
    Row(
        wrong(WORKER, "the stage's micro-batch", ("get_activation([self.batch])", "get_activation([self.stage])")),
        (IN_A_ROW,),
        (SHARE,),
    ),
    Row(wrong(PLAIN, "a micro-batch for each stage", ("r // 4, r % 4", "r // 4, r // 4")), (IN_A_ROW,), (SHARE,)),
    Row(
        wrong(PLAIN, "one micro-batch for all", ("get_activation([mb])", "get_activation([0])")), (IN_A_ROW,), (SHARE,)
    ),
    Row(
        wrong(
            WORKER,
            "as many stages as layers",
            (
                "// 4\n        self.batch = model.rank % 4",
                "// model.LAYERS\n        self.batch = model.rank % model.LAYERS",
            ),
        ),
        (
            "ranks 0-3 have run layer 0, and if ranks that follow one another are one stage, model.rank // model.BATCHES is",
        ),
        (SHARE,),
    ),
    Row(
        wrong(
            RING,
            "a gradient received for the last layer, too",
            ("if n < last:\n                model.grad", "if True:\n                model.grad"),
        ),
        (
            "model.loss has made the gradient of the output of layer 3 on rank 3, which needs no message: receive one only for a layer whose next one is on another rank",
        ),
        ("below no `if` of a rank",),
    ),
    Row(
        wrong(
            WORKER,
            "a gradient received from the first stage",
            (" and layer + 1 < m.LAYERS:", ":"),
            ("m.receive(src=m.rank + 4)", "m.receive(src=(m.rank + 4) % m.RANKS)"),
        ),
        (
            "model.loss has made the gradient of the output of layer 3 on rank 12, which needs no message: receive one only for a layer whose next one is on another rank",
        ),
        ("below no `if` of a rank",),
    ),
    Row(
        wrong(RING, "all layers on the first stage", ("layer % STAGES", "layer % (model.LAYERS // STAGES)")),
        (
            "there are 4 stages and 4 layers, so layers 0 and 1 are on different ranks: layer // (model.LAYERS // 4) is the stage of a layer, or layer % 4",
        ),
        ("a neighbor",),
    ),
    Row(
        wrong(PLAIN, "to its own rank", ("await model.pass_to(r + 4", "await model.pass_to(r")),
        (
            "there are 4 stages and 4 layers, so layers 0 and 1 are on different ranks",
            "what forward(0, ...) gives goes to the other rank",
        ),
    ),
    Row(
        wrong(RING, "a message after each layer of a block", OF_A_BLOCK),
        (
            "is layer 1 on rank 0, as layer 0 is? Then what forward(0, ...) gave stays stored there, and there is no message: send, and receive, only where",
        ),
    ),
    Row(
        wrong(RING, "a zigzag of layers", ("layer % STAGES", "min(layer % 8, 7 - layer % 8)")),
        ("is layer 4 on rank 3, as layer 3 is? Then what forward(3, ...) gave stays stored there",),
    ),
    Row(
        wrong(
            RING,
            "received within a block",
            OF_A_BLOCK,
            ("n < last:\n            await", "n < last and owner(model, n + 1) != me:\n            await"),
            ("        else:\n            model.grad_act", "        elif n == last:\n            model.grad_act"),
        ),
        ("what forward(layer 0) gave is on this rank, and is the input of layer 1, with no message",),
        ("comes first",),
    ),
    Row(
        wrong(WORKER, "gradients sent from all layers but 0", ("if layer == self.layers[0] and layer:", "if layer:")),
        (
            "it was sent to rank 8: layer 6 has run on this rank, too, and its backward reads it here. Send what comes last, of backward(6, ...)",
        ),
        ("so send it once",),
    ),
    Row(
        wrong(
            PLAIN,
            "gradients sent from the last layer of a stage",
            ("if l == own[0] and stage:", "if l == own[-1] and stage:"),
        ),
        (
            "layer 6 has run on this rank, too, and its backward reads it here. Send what comes last, of backward(6, ...)",
        ),
        ("so send it once",),
    ),
    Row(
        wrong(
            WORKER,
            "layers turned round in place",
            (
                "for layer in reversed(range(model.LAYERS)):",
                "w.layers.reverse()\n    for layer in reversed(range(model.LAYERS)):",
            ),
        ),
        (
            "backward(7, ...) of this rank gave the gradient that backward(6, ...) reads here, and it was sent to rank 8: keep it stored",
        ),
    ),
    Row(
        wrong(
            WORKER,
            "a gradient received for each layer of a stage",
            ("layer == self.layers[-1] and layer + 1 < m.LAYERS", "layer + 1 < m.LAYERS"),
        ),
        ("backward(7, ...) of this rank gave the gradient that backward(6, ...) reads here, with no message",),
    ),
    Row(
        wrong(
            PLAIN,
            "the loss after each layer of the last stage",
            (
                LAST,
                "            if stage == 3:\n                model.grad_activations[l + 1] = model.loss(model.activations[l + 1])\n            elif l == own[-1]:\n                await model.pass_to(r + 4, model.activations.pop(l + 1))\n",
            ),
        ),
        (
            "this rank only layer 6, and others 2 each: is layer 7 for this rank, too? Then model.loss comes after layer 7 alone",
        ),
        ("divide all of them",),
    ),
    Row(
        wrong(
            RING,
            "the loss after each layer of the last stage, on a ring",
            ("        if n < last:\n            await", "        if me % STAGES < 3:\n            await"),
        ),
        (
            "together the ranks have run layers 0-3 of 8",
            "model.loss comes after layer 7 alone, and not after each layer of the last stage",
        ),
    ),
    Row(
        wrong(
            PLAIN,
            "the loss in each turn",
            ("    if stage == 3:\n        model.grad", "        if stage == 3:\n            model.grad"),
        ),
        ("model.loss comes once, after forward(3, ...): is it in each turn of a loop over the layers?",),
    ),
    Row(
        wrong(
            RING,
            "the first gradient under its layer",
            ('model.grad_activations["g"] = model.loss', "model.grad_activations[n] = model.loss"),
        ),
        ("the gradient that backward(3, ...) reads is there under another key, model.grad_activations[3]",),
        ("A sum begins",),
    ),
    Row(
        wrong(
            PLAIN,
            "the first gradient to all stages",
            (
                "    for l in reversed",
                "        for other in (r - 4, r - 8, r - 12):\n            await model.pass_to(other, model.grad_activations[L])\n    for l in reversed",
            ),
            ("src=r + 4", "src=12 + mb"),
        ),
        ("Each rank passes on what its own backward gives, of the first of its layers, to the rank before",),
    ),
    Row(
        wrong(WORKER, "no list of micro-batches", ("m.fake_grad(layer, [])", "m.fake_grad(layer)")),
        ("model.fake_grad(layer, []) is the gradient of no micro-batches: it is zero, for a layer of other ranks",),
    ),
    Row(
        wrong(
            PLAIN,
            "an empty range",
            ("range(stage * per, (stage + 1) * per)", "range(stage * per, stage * per + per - 1)"),
        ),
        (
            "no rank has run a layer yet",
            "A stage has model.LAYERS // stages, range(first, first + model.LAYERS // stages)",
        ),
    ),
    Row(
        wrong(WORKER, "an empty list of layers", ("self.stage * n + n)", "self.stage * n + n - 1)")),
        (
            "no rank has run any layer: is the condition under which a rank runs a layer ever true? The layers of a stage are range(first, first + n)",
        ),
    ),
    Row(
        wrong(
            WORKER,
            "a sum awaited a turn later, under the number of this turn",
            ("await w.step(layer)", "await w.step(layer, calls)"),
            ("    for layer in reversed", "    calls = []\n    for layer in reversed"),
            ("    return model", "    return model"),
            ("async def step(self, layer):", "async def step(self, layer, calls):"),
            (
                '        m.grad_weights["piece"] = await m.scatterreduce(grad, layer)\n',
                '        calls.append(m.scatterreduce(grad, layer))\n        if len(calls) < 2:\n            return\n        m.grad_weights["piece"] = await calls.pop(0)\n',
            ),
        ),
        (
            "weight and state are of layer 2, and the gradient is of layer 3",
            "go by the layer of the turn that called it",
            "weight_grad.layer",
        ),
    ),
    *[
        Row(
            wrong(source, f"an input on rank 0 only, {how}", *edits),
            (
                f"no rank has run layer 0 on micro-batches 1-3. Is layer 0 the first of rank {first}? Then it receives nothing",
                "let the condition above that be the stage",
            ),
        )
        for source, how, first, edits in [
            (PLAIN, "in one function", 1, [("if stage else model.get_act", "if r else model.get_act")]),
            (WORKER, "in a class", 1, [("        if layer == 0:\n", "        if m.rank == 0:\n")]),
            (
                RING,
                "on a ring",
                4,
                [
                    ("        if n == 0:\n", "        if me == 0:\n"),
                    ("src=owner(model, n - 1)", "src=me - 1 if me % 4 else me - 13"),
                ],
            ),
        ]
    ],
    *[
        Row(
            wrong(
                RING,
                f"a table in which no two stages meet: {table}",
                ("(model.rank // STAGES) * STAGES + layer % STAGES", table),
            ),
            (
                "Only rank 0 has run layer 0, and 4 ranks should, one for each micro-batch: with model.rank % 4 as the stage",
            ),
            ("model.rank + 5", "below no `if` of a rank"),
        )
        for table in ("model.rank % STAGES * STAGES + layer % STAGES", "model.rank // STAGES + layer % STAGES")
    ],
    Row(
        wrong(RING, "the stage's micro-batch, on a ring", ("[me // STAGES]", "[me % STAGES]")),
        ("ranks 3, 7, 11, 15 have run layer 3 on micro-batch 0, and only one of them should", SHARE),
        ("they are one stage",),
    ),
]


IN_EACH_TURN = [
    (
        "wsdp",
        "    model.grad_activations[model.LAYERS] = model.loss(",
        "        model.grad_activations[model.LAYERS] = model.loss(",
    ),
    (
        "zero2",
        "        model.grad_activations[model.LAYERS] = model.loss(",
        "            model.grad_activations[model.LAYERS] = model.loss(",
    ),
]


@pytest.mark.parametrize("puzzle, after, below", IN_EACH_TURN)
def test_a_loss_in_each_turn_is_told_where_all_ranks_have_all_layers(puzzle: str, after: str, below: str) -> None:
    said = "and model.loss reads the output of the last layer, 5: call it once, after the loop over all layers"
    check_words(
        Row(
            changed(puzzle, "the loss in each turn", (after, below)),
            ("every rank has run layer 0 of 6", said),
            ("a stage has",),
        )
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.program.name)
def test_words_lead_to_the_fix(row: Row) -> None:
    check_words(row)


@pytest.mark.parametrize("source", [WORKER, PLAIN, RING], ids=["a class", "one function", "a ring"])
def test_these_programs_are_right(source: str) -> None:
    verdict = grade(function(wrong(source, "right")), "pipeline_fsdp", timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.status == PASS, verdict.message


AGAIN = 'model.weights["f"] = await model.allgather(model.weights[l], l)'
GATHERED_AGAIN = [
    (PLAIN, ("    for l in reversed(range(L)):\n", f"    for l in reversed(range(L)):\n        {AGAIN}  # and\n")),
    (
        RING,
        (
            "    for n in range(last, -1, -1):\n        whole = await fetch(model, n)\n",
            '    for n in range(last, -1, -1):\n        await model.allgather(model.weights["shard", n], n)\n        whole = await model.allgather(model.weights["shard", n], n)\n',
        ),
    ),
]


@pytest.mark.parametrize("source, edit", GATHERED_AGAIN, ids=["one function", "a ring"])
def test_a_gather_that_is_made_twice_for_one_backward_has_its_lines(source: str, edit: tuple[str, str]) -> None:
    verdict = grade(function(wrong(source, "gathered twice", edit)), "pipeline_fsdp", timeout=LONG).verdict  # type: ignore[arg-type]
    said = "nothing is computed with the layer between these, so one of them is enough"
    assert said in verdict.costs_time and verdict.costs_time.count("line ") == 2, verdict.costs_time


AHEAD = [
    (
        PLAIN,
        (
            "        if l in own:\n            if l == own[0]:",
            "        if l in own:\n            ahead = model.allgather(model.weights[l], l)\n            if l == own[0]:",
        ),
        "ahead = model.allgather",
    ),
    (
        WORKER,
        (
            "        if layer in w.layers:\n            await w.forward",
            "        if layer in w.layers:\n            ahead = model.allgather(model.weights[layer], layer)\n            await w.forward",
        ),
        "ahead = model.allgather",
    ),
]


@pytest.mark.parametrize("source, edit, line", AHEAD, ids=["one function", "a class"])
def test_a_collective_that_differs_has_the_line_that_calls_it(source: str, edit: tuple[str, str], line: str) -> None:
    verdict = grade(function(wrong(source, "ahead", edit)), "pipeline_fsdp", timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.error is not None and "where rank" in verdict.error.problem, verdict.message
    assert line in verdict.error.line, verdict.message
