"""What programs of puzzles 3, 7 and 10 are told whose loops, messages or gathers are a turn off: rows as in
``test_fixes``, each mistake in two programs that are written in different ways."""

from __future__ import annotations

import re

import pytest

from lib import grade
from lib.grading.advice.sources import never_awaited
from lib.grading.verdict import PASS, Verdict
from tests.corpus import Program, changed, whole
from tests.slow import some
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_later import check_at_a_shell, check_words
from tests.test_fixes_readers import AHEAD, ON_A_RING, wrong

# -- the loss, and the first and the last turn of a loop -------------------------------------------------------------

LOSS_AFTER = "    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))\n"
LOSS_IN_IT = LOSS_AFTER.replace("    model", "        model", 1)
IN_A_LOOP = "call it once, after the loop over all layers, and not in each of its turns"
ENDS_TOO_SOON = "no rank has run the backward of layer 0: does a loop end too soon?"
GOES_DOWN = "The backward pass goes down: after layer {} comes layer {}"
STAGE_LOSS = "    if stage == 3:\n        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))\n"
IN_STAGE_LOOP = "        if stage == 3:\n            model.grad_activations[layer + 1] = model.loss(model.activations.pop(layer + 1))\n"
EACH_LOSS = [
    (STAGE_LOSS, ""),
    (
        "            if layer == last and stage < 3:\n                await model.pass_to(",
        f"    {IN_STAGE_LOOP.replace(chr(10), chr(10) + '    ').rstrip()}\n            if layer == last and stage < 3:\n                await model.pass_to(",
    ),
]
LOOPS = [
    Row(changed("wsdp", "loss in the loop", (LOSS_AFTER, LOSS_IN_IT)), (IN_A_LOOP,), ("a stage has",)),
    Row(changed("ddp", "loss in the loop", (LOSS_AFTER, LOSS_IN_IT)), ("model.loss comes once, after forward(1, ...): is it in each turn of a loop over the layers?",), ("a stage has",)),
    Row(changed("zero2", "loss in the loop", (LOSS_IN_IT, f"    {LOSS_IN_IT}")), (IN_A_LOOP,), ("a stage has",)),
    Row(wrong("pipeline_fsdp", "loss in each turn of the last stage", *EACH_LOSS), ("is layer 7 for this rank, too? Then model.loss comes after layer 7 alone",)),
    Row(
        wrong("pipeline_fsdp", "loss of the last stage in the loop over all layers", (STAGE_LOSS, STAGE_LOSS.replace("    ", "        ", 1).replace("        model", "            model"))),
        ("model.loss comes once, after forward(3, ...): is it in each turn of a loop over the layers?",),
    ),
    Row(changed("wsdp", "backward ends at layer 1", ("reversed(range(model.LAYERS))", "range(model.LAYERS - 1, 0, -1)")), (ENDS_TOO_SOON,), ("has not updated it",)),
    Row(changed("ddp", "backward begins above layer 0", ("reversed(range(model.LAYERS))", "reversed(range(1, model.LAYERS))")), (ENDS_TOO_SOON,), ("has not updated it",)),
    Row(changed("wsdp", "layer 0 is never updated", ("        model.weights[layer], model.opt_states[layer] = model.update(", "        if layer == 0:\n            break\n        model.weights[layer], model.opt_states[layer] = model.update(")), ("rank 0 has layer 0, and has not updated it",), (ENDS_TOO_SOON,)),
    Row(changed("wsdp", "gathered upwards in the backward pass", ("await model.allgather(model.weights[layer], layer)\n        inp", "await model.allgather(model.weights[layer + 1], layer + 1)\n        inp")), (GOES_DOWN.format(5, 4),)),
    Row(
        wrong("wsdp", "gathered upwards, with names in keys", ("model.weights[layer], model.opt", "model.weights['own', layer], model.opt"), ("model.allgather(model.weights[layer], layer)\n        grad, ", "model.allgather(model.weights['own', layer + 1], layer + 1)\n        grad, "), ("model.allgather(model.weights[layer]", "model.allgather(model.weights['own', layer]")),
        (GOES_DOWN.format(5, 4),),
    ),
    Row(changed("wsdp", "one layer too many in the forward pass", ("        if layer + 1 < model.LAYERS:\n            ahead = ", "        if True:\n            ahead = "), base="wsdp_prefetch"), ("there is no layer 6",), ("goes down",)),
]  # fmt: skip

# -- messages ----------------------------------------------------------------------------------------------------------

RING = [
    *ON_A_RING,
    ("receive(src=model.rank - 1)", "receive(src={before})"),
    ("pass_to(model.rank + 1", "pass_to({after}"),
    ("receive(src=model.rank + 1)", "receive(src=pipe * 4 + (layer + 1) % 4)"),
    ("pass_to(model.rank - 1", "pass_to(pipe * 4 + (layer - 1) % 4"),
]


def ring(name: str, after: str, before: str, *more: tuple[str, str]) -> Program:
    """A ring of layers in puzzle 7, and where forwards send to and receive from."""
    edits = [(old, new.replace("{after}", after).replace("{before}", before)) for old, new in RING]
    return wrong("pipeline_fsdp", name, *edits, *more)


TURNS_BACK = "A gradient comes back from where the activation went: await model.pass_to(0, ...) in the forward pass"
FIRST_ONLY = "Send what comes last, of backward({}, ...)"
SEND_BACK = "if layer == first and stage > 0:\n            await model.pass_to(model.rank - 1"
RECEIVES = "if layer == last and stage < 3:\n            model.grad_activations[layer + 1] = await"
NAMED = [("model.grad_activations[layer + 1] = await", "model.grad_activations['g'] = await"), ("model.grad_activations[model.LAYERS]", "model.grad_activations['g']"), ("model.grad_activations.pop(layer + 1)", "model.grad_activations.pop('g')"), ("model.grad_activations[layer] =", "model.grad_activations['g'] ="), ("model.grad_activations.pop(layer))", "model.grad_activations.pop('g'))")]  # fmt: skip
LIES = "rank 15 has sent this rank ActivationGrad of layer 2: await model.receive(src=15)"
PASSES_ON = "rank 3 has sent the gradient that its own layer 3 reads: leave that send out"
TO_ALL = "\n        for to in range(3):\n            await model.pass_to(pipe * 4 + to, model.grad_activations[model.LAYERS])\n"
MESSAGES = [
    Row(ring("out of its pipeline, of all ranks", "(model.rank + 1) % model.RANKS", "(model.rank - 1) % model.RANKS"), (TURNS_BACK,), ("has not sent that",)),
    Row(ring("out of its pipeline, at the end of a row", "model.rank + 1 if model.rank < 15 else 0", "model.rank - 1 if model.rank else 15"), (TURNS_BACK,), ("has not sent that",)),
    Row(wrong("pipeline_fsdp", "back after the last layer", (SEND_BACK, SEND_BACK.replace("first", "last"))), (FIRST_ONLY.format(6), "layer 6 has run on this rank, too"), ("send it once",)),
    Row(changed("pipeline", "back after each layer", ("    if not is_first:\n        await model.pass_to(model.rank - 1, model.grad_activations.pop(first))\n", ""), ("layer, inp, grad, model.weights[layer]\n        )\n", "layer, inp, grad, model.weights[layer]\n        )\n        if not is_first:\n            await model.pass_to(model.rank - 1, model.grad_activations.pop(layer))\n")), ("Send what comes last, of backward(",), ("send it once",)),
    Row(wrong("pipeline_fsdp", "a gradient that is not received", *NAMED, (RECEIVES.replace("model.grad_activations[layer + 1]", "model.grad_activations['g']"), RECEIVES.replace("stage < 3", "model.rank < 12 and stage < 3").replace("layer + 1", "'g'"))), (LIES, "Does a condition leave that receive out?"), ("A sum begins",)),
    Row(wrong("pipeline_fsdp", "the loss's gradient to all stages", (STAGE_LOSS, STAGE_LOSS.rstrip() + TO_ALL), ("receive(src=model.rank + 1)", "receive(src=pipe * 4 + 3)")), (PASSES_ON,), ("Or should this rank have",)),
    Row(wrong("pipeline_fsdp", "a message after each layer, also to itself", ("if layer == last and stage < 3:\n                await model.pass_to(model.rank + 1", "if layer < model.LAYERS - 1:\n                await model.pass_to(pipe * 4 + (layer + 1) // per")), ("is layer 1 on rank 0, as layer 0 is? Then what forward(0, ...) gave stays stored there, and there is no message",), ("to a neighbor",)),
]  # fmt: skip


# -- gathers, sums and inputs ------------------------------------------------------------------------------------------

STATE_GATHERED = (
    "piece, model.opt_states[layer]\n",
    "model.weights[layer], await model.allgather(model.opt_states[layer], layer)\n",
)
NO_GATHER = "leave out that gather of the optimizer state: an update takes the same piece of gradient, weight and state"
IN_A_LIST = ("            grad = await model.scatterreduce(grad, layer)\n            if layer in model.grad_weights:\n                grad = model.grad_weights[layer] + grad\n            model.grad_weights[layer] = grad\n", "            calls[mb, layer] = model.scatterreduce(grad, layer)\n")  # fmt: skip
CALLS = [
    ("    for mb in mine:\n        model.act", "    calls = {}\n    for mb in mine:\n        model.act"),
    IN_A_LIST,
]
SUM_OF_CALLS = "    for layer in range(model.LAYERS):\n        grad = await calls[mine[1], layer]\n        model.grad_weights['sum', layer] += grad\n        model.grad_weights[layer] = model.grad_weights.pop(('sum', layer))\n    for layer in range(model.LAYERS):\n        weight, "  # fmt: skip
STARTED = "model.scatterreduce(..., {}) of micro-batch {} was started on this rank, and never awaited"
PENDING = """
async def zero2(model: Model) -> Model:
    for i in range(model.LAYERS):
        model.weights[i], state = model.load_weights(i)
        model.opt_states[i] = state.shard(model.rank, model.RANKS)

    async def add(i, call, first):
        piece = await call
        model.grad_weights["sum", i] = piece if first else model.grad_weights["sum", i] + piece

    later = []
    for batch in range(model.rank, model.BATCHES, model.RANKS):
        model.activations[0] = model.get_activation([batch])
        for i in range(model.LAYERS):
            model.activations[i + 1] = model.forward(i, model.activations[i], model.weights[i])
        model.grad_activations["g"] = model.loss(model.activations.pop(model.LAYERS))
        later = []
        for i in reversed(range(model.LAYERS)):
            grad, model.grad_activations["g"] = model.backward(i, model.activations.pop(i), model.grad_activations.pop("g"), model.weights[i])
            later.append((i, model.scatterreduce(grad, i), batch < model.RANKS))
            if len(later) > 1:
                await add(*later.pop(0))
    await add(*later.pop(0))
    for i in range(model.LAYERS):
        piece, model.opt_states[i] = model.update(i, model.grad_weights.pop(("sum", i)), model.weights.pop(i).shard(model.rank, model.RANKS), model.opt_states[i])
        model.weights[i] = await model.allgather(piece, i)
        model.set_final_weight(i, model.weights[i])
    return model
"""
EARLY = (
    "        model.weights[layer] = await model.allgather(weight, layer)\n",
    "        model.weights[layer] = weight\n",
)
BEFORE_IT = (
    "this is the weight from before the update, and rank 0 has updated its piece: gather what model.update gives"
)
AGAIN = "this rank has taken micro-batch 0 through all layers and back already: here another one comes"
OF_ONE_STAGE = (
    "they are one stage: model.rank // model.BATCHES is the stage, and model.rank % model.BATCHES the micro-batch"
)
COLUMNS = [("stage, pipe = model.rank % 4, model.rank // 4", "stage, pipe = model.rank // 4, model.rank // 4"), ("model.rank + 1", "model.rank + 4"), ("model.rank - 1", "model.rank - 4")]  # fmt: skip
NO_LAYER = "no rank has run any layer: is the condition under which a rank runs a layer ever true?"
OTHERS = "Or was that of layer 2 to be kept there from its forward on? Others took its place"
OWN_KEPT = [
    ("        weight = await model.allgather(model.weights[layer], layer)\n        if first <= layer <= last:\n            model.act", "        model.weights['full'] = await model.allgather(model.weights[layer], layer)\n        if first <= layer <= last:\n            model.act"),
    ("model.activations[layer], weight)\n", "model.activations[layer], model.weights['full'])\n"),
    ("                await model.pass_to(model.rank + 1, model.activations.pop(layer + 1))\n", "                await model.pass_to(model.rank + 1, model.activations.pop(layer + 1))\n        else:\n            del model.weights['full']\n"),
    ("        weight = await model.allgather(model.weights[layer], layer)\n        if first <= layer <= last:\n            grad,", "        if first <= layer <= last:\n            grad,"),
    ("model.grad_activations.pop(layer + 1), weight)", "model.grad_activations.pop(layer + 1), model.weights.pop('full'))"),
]  # fmt: skip
GATHERS = [
    Row(changed("zero2", "the state gathered, all of the weight updated", STATE_GATHERED), (NO_GATHER,), ("does not change",)),
    Row(
        wrong("zero2", "the state gathered, in one expression", ("model.weights.pop(layer).shard(model.rank, model.RANKS), model.opt_states[layer])", "model.weights.pop(layer), await model.allgather(model.opt_states[layer], layer))")),
        (NO_GATHER,),
        ("does not change",),
    ),
    Row(wrong("zero2", "the first micro-batch's sums are never awaited", *CALLS, ("    for layer in range(model.LAYERS):\n        weight, ", SUM_OF_CALLS)), (STARTED.format(0, 0), "store what it gives, model.grad_weights['sum', 0]"), ("nothing was stored there yet",)),
    Row(whole("zero2", "the last sum of a micro-batch is lost", PENDING), (STARTED.format(0, 0), "store what it gives, model.grad_weights['sum', 0]"), ("nothing was stored there yet",)),
    Row(wrong("zero2", "gathered before the update", EARLY, ("        weight, model.opt_states[layer] = model.update(", "        before = await model.allgather(model.weights[layer].shard(model.rank, model.RANKS), layer)\n        model.weights['whole', layer] = before\n        weight, model.opt_states[layer] = model.update("), ("model.set_final_weight(layer, model.weights[layer])", "model.set_final_weight(layer, model.weights['whole', layer])")), (BEFORE_IT,), ("model.rank of model.RANKS",)),
    Row(changed("zero2", "the old weight is handed in", ("        model.weights[layer] = await model.allgather(piece, layer)\n", "        model.weights['piece', layer] = piece\n")), (BEFORE_IT,), ("model.rank of model.RANKS",)),
    Row(changed("zero2", "the same micro-batch twice", ("mine = range(model.rank, model.BATCHES, model.RANKS)", "mine = [model.rank, model.rank]")), (AGAIN, "Deal them out"), ("call this once",)),
    Row(whole("zero2", "the same input in each turn", PENDING.replace("get_activation([batch])", "get_activation([model.rank])")), (AGAIN,), ("call this once",)),
    Row(wrong("pipeline_fsdp", "a column has the micro-batch of its row", *COLUMNS), (OF_ONE_STAGE,), ("share a micro-batch",)),
    Row(changed("pipeline_fsdp", "stage and micro-batch are the same", ("stage, mb = model.rank % stages, model.rank // stages", "stage = mb = model.rank // model.BATCHES"), ("model.rank + 1", "model.rank + model.BATCHES"), ("model.rank - 1", "model.rank - model.BATCHES")), (OF_ONE_STAGE,), ("share a micro-batch",)),
    Row(wrong("pipeline_fsdp", "the range of layers ends too soon", ("first <= layer <= last", "layer in range(first, last)"), ("layer == first and", "layer in range(first, last) and layer == first and"), ("layer == last and", "layer in range(first, last) and layer == last and"), (STAGE_LOSS, STAGE_LOSS.replace("stage == 3", "model.LAYERS in model.activations"))), (NO_LAYER,), ("a stage that is not there",)),
    Row(changed("pipeline_fsdp", "the last layer is left out", ("stage * share, (stage + 1) * share - 1", "stage * share, (stage + 1) * share - 2"), ("layer == first", "first == layer <= last"), ("layer == last", "first <= layer == last")), (NO_LAYER,), ("a stage that is not there",)),
    Row(wrong("pipeline_fsdp", "its own weight under the key of all", *OWN_KEPT), (OTHERS,)),
    Row(changed("pipeline_fsdp", "fake_grad of a layer alone", ("model.fake_grad(layer, [])", "model.fake_grad(layer)")), ("model.fake_grad(layer, []) is the gradient of no micro-batches: it is zero",), ("batches)",)),
    Row(changed("wsdp", "updates of the layer below", ("layer, grad, model.weights[layer], model.opt_states[layer]", "layer - 1, grad, model.weights[layer - 1], model.opt_states[layer - 1]")), ("is 4 written where its number is meant, here, in a key",)),
]  # fmt: skip


# -- coroutines that are not awaited -----------------------------------------------------------------------------------

IN_A_CLASS = """
class Trainer:
    def __init__(self, model):
        self.model, self.last = model, model.LAYERS - 1

    async def forward(self, k):
        m = self.model
        m.activations[k + 1] = m.forward(k, m.activations[k], await m.allgather(m.weights[k], k))

    async def backward(self, k):
        m = self.model
        whole = await m.allgather(m.weights[k], k)
        m.grad_weights[k], m.grad_activations[k] = m.backward(k, m.activations.pop(k), m.grad_activations.pop(k + 1), whole)

    async def step(self, k):
        m = self.model
        grad = await m.allreduce(m.grad_weights.pop(k), k)
        m.weights[k], m.opt_states[k] = m.update(k, grad, m.weights[k], m.opt_states[k])
        m.set_final_weight(k, m.weights[k])

    async def down(self):
        for k in range(self.last, -1, -1):
            await self.backward(k)
            await self.step(k)


async def wsdp(model: Model) -> Model:
    one = Trainer(model)
    for k in range(model.LAYERS):
        model.weights[k], model.opt_states[k] = model.load_weights(k, model.rank, model.RANKS)
    model.activations[0] = model.get_activation([model.rank])
    for k in range(model.LAYERS):
        await one.forward(k)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
    await one.down()
    return model
"""
HELPER = """
async def fetch(model, layer):
    weight = await model.allgather(model.weights[layer], layer)
    model.weights["whole"] = weight


async def wsdp"""
NEVER = "await {}: it is called and never awaited, and a coroutine that nobody awaits does nothing"


def in_a_class(call: str) -> Row:
    """The row of a program with methods, of which one is called and not awaited."""
    source = IN_A_CLASS.replace(f"await {call}", call)
    return Row(whole("wsdp", f"no await for {call}", source), (NEVER.format(call),), ("goes through empty",))


COROUTINES = [
    *map(in_a_class, ("one.forward(k)", "one.down()", "self.backward(k)", "self.step(k)")),
    Row(
        changed("wsdp", "a helper whose result nobody reads", ("async def wsdp", HELPER.lstrip()), ("        weight = await model.allgather(model.weights[layer], layer)\n        model", "        w = fetch(model, layer)\n        model"), ("model.activations[layer], weight)", "model.activations[layer], model.weights.pop('whole'))")),
        ("await fetch(model, layer): it is put into w, and never awaited, and a coroutine that nobody awaits does nothing",),
        ("nothing was stored",),
    ),
]  # fmt: skip


def test_a_name_that_is_read_later_and_methods_of_others_are_no_dropped_coroutines() -> None:
    later = "async def one(): ...\nasync def ddp(model):\n    for n in range(2):\n        {}\n        call = one()\n        {}"
    assert never_awaited(later.format("pass", "pass"))
    assert not never_awaited(later.format("pass", "await call"))
    assert not never_awaited(later.format("if n: await call", "pass"))
    assert not never_awaited("class A:\n    async def forward(self): ...\nasync def ddp(model):\n    model.forward(0)")
    assert not never_awaited(
        "class A:\n    def step(self): ...\nclass B:\n    async def step(self): ...\na = A()\na.step()"
    )


# -- what is one off ----------------------------------------------------------------------------------------------------

MESSAGE_TOO_MANY = "model.loss has made the gradient of the output of layer 3 on rank 3, which needs no message"
ELSEWHERE = "the gradient that backward({0}, ...) reads is there under another key, model.grad_activations[{1}]"
COMES_FIRST = "for another micro-batch the forwards come first, from model.get_activation on"
GOES_UP = "The forward pass goes up from layer 0, whose input is here"
BEFORE_0 = "there is no layer -1: the first one is layer 0"
ONE_OFF = [
    Row(ring("a gradient is received for the last layer, too", "pipe * 4 + (layer + 1) % 4", "pipe * 4 + (layer - 1) % 4", ("if layer % 4 == stage and layer < model.LAYERS - 1:\n            model.grad", "if layer % 4 == stage:\n            model.grad")), (MESSAGE_TOO_MANY,), ("has not called",)),
    Row(changed("pipeline_fsdp", "the last stage receives from the first", ("        if layer == last and is_last:\n            model.grad_activations[last + 1] = model.loss(model.activations.pop(last + 1))\n        elif layer == last:\n", "        if layer == last:\n"), ("        if layer == last and not is_last:\n", "        if layer == last and is_last:\n            model.grad_activations[last + 1] = model.loss(model.activations.pop(last + 1))\n        elif layer == last:\n"), ("src=model.rank + 1", "src=mb * stages + (stage + 1) % stages")), (MESSAGE_TOO_MANY,), ("has not called",)),
    Row(wrong("pipeline_fsdp", "the loss under a layer, looked for by name", *[edit for edit in NAMED if "LAYERS" not in edit[0]]), (ELSEWHERE.format(3, 4),), ("A sum begins",)),
    Row(wrong("wsdp", "the loss by its layer, looked for by name", ("model.grad_activations.pop(layer + 1)", "model.grad_activations.pop('now')"), ("model.grad_activations[layer] =", "model.grad_activations['now'] =")), (ELSEWHERE.format(5, 6),), ("A sum begins",)),
    Row(changed("zero2", "no forwards of the second micro-batch", ("        for layer in range(model.LAYERS):\n            inp, weight", "        for layer in range(model.LAYERS if mb < model.RANKS else 0):\n            inp, weight"), ("        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))", "        if mb < model.RANKS:\n            model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))")), (COMES_FIRST,), ("as pop does",)),
    Row(changed("wsdp", "the forward pass from the last layer down", ("    for layer in range(model.LAYERS):\n        weight = await", "    for layer in reversed(range(model.LAYERS)):\n        weight = await")), (GOES_UP,)),
    Row(changed("zero2", "the forward pass from the last layer down", ("        for layer in range(model.LAYERS):\n            inp, weight", "        for layer in range(model.LAYERS - 1, -1, -1):\n            inp, weight")), (GOES_UP,)),
    Row(wrong("wsdp", "gathered one turn ahead, also after layer 0", *AHEAD, ("        if layer:\n            ahead", "        if True:\n            ahead")), (BEFORE_0,), ("LAYERS is 6",)),
    Row(wrong("wsdp", "one turn ahead, with names in keys", *AHEAD, ("        if layer:\n            ahead", "        if True:\n            ahead"), ("model.weights[layer]", "model.weights['own', layer]"), ("model.weights[layer + 1]", "model.weights['own', layer + 1]"), ("model.weights[layer - 1]", "model.weights['own', layer - 1]"), ("model.weights[0]", "model.weights['own', 0]")), (BEFORE_0,), ("nothing was stored",)),
]  # fmt: skip


GATHERED = "        weight = await model.allgather(model.weights[layer], layer)\n"
TABLE = (
    "stage, pipe = model.rank % 4, model.rank // 4",
    "stage, pipe = model.rank // model.LAYERS, model.rank % model.LAYERS",
)
COLUMN = "and where ranks 0 to 3 are the first stage, model.rank % 4"
CUT_OTHERWISE = "the gradient is cut into 6 pieces, and the weight into 4: cut it as the weight, or leave it whole"
IN_PLACE = "is filled in {0}, which may not be through here: a task begins only when the function that has made it awaits something: await it before what it stores is read"  # fmt: skip
SHARES = [
    Row(wrong("pipeline_fsdp", "micro-batches by the number of layers", TABLE, *COLUMNS[1:]), (COLUMN,)),
    Row(changed("pipeline_fsdp", "micro-batches by the number of layers", ("stage, mb = model.rank % stages, model.rank // stages", "stage, mb = model.rank // model.LAYERS, model.rank % model.LAYERS"), ("model.rank + 1", "model.rank + 4"), ("model.rank - 1", "model.rank - 4")), (COLUMN,)),
    Row(changed("wsdp", "a sum that is cut into as many pieces as there are layers", ("        grad = await model.allreduce(grad, layer)\n", "        grad = await model.allreduce(grad, layer)\n        grad = grad.shard(model.rank, model.LAYERS)\n")), (CUT_OTHERWISE,), ("cut twice",)),
    Row(wrong("wsdp", "its own piece of an update", ("layer, grad, model.weights", "layer, grad.shard(model.rank, model.LAYERS), model.weights")), (CUT_OTHERWISE,), ("cut twice",)),
    Row(whole("wsdp", "a task for the backward", IN_A_CLASS.replace("await self.backward(k)", "asyncio.create_task(self.backward(k))")), (IN_PLACE.format("self.backward(k)"),)),
    Row(changed("wsdp", "a task for the gather", ("async def wsdp", HELPER.lstrip()), (GATHERED + "        model", "        asyncio.create_task(fetch(model, layer))\n        model"), ("model.activations[layer], weight)", "model.activations[layer], model.weights.pop('whole'))")), (IN_PLACE.format("fetch(model, layer)"),)),
]  # fmt: skip

BY_ONE_NAME = [("grad, model.grad_activations[layer] =", "model.grad_weights[layer], model.grad_activations[layer] ="), ("grad = await model.allreduce(grad, layer)", "grad = await model.allreduce(model.grad_weights['g'], layer)")]  # fmt: skip
IS_IT_MEANT = "only model.grad_weights[5] is there, that of layer 5: is it meant?"
CLEARED = "was there and was taken out by model.grad_weights.clear()"
GOES_ON = "model.update(0, ...) has run, and gives the new weight and the new state: go on with what it gives"
NO_LAYERS = "model.LAYERS // model.RANKS would be 0 here, 4 // 16"
EMPTY = [("stages = model.RANKS // model.BATCHES", "stages = model.RANKS // model.BATCHES\n    mine = list(range(model.rank * (model.LAYERS // model.RANKS), (model.rank + 1) * (model.LAYERS // model.RANKS)))"), ("first, last = stage * share, (stage + 1) * share - 1", "first, last = mine[0], mine[-1]")]  # fmt: skip
UPDATED = "piece, model.opt_states[layer] = model.update("
SHARES += [
    Row(wrong("wsdp", "a gradient by another name", *BY_ONE_NAME), (IS_IT_MEANT,), ("nothing was stored there",)),
    Row(changed("wsdp", "a gradient by another name", *BY_ONE_NAME), (IS_IT_MEANT,), ("nothing was stored there",)),
    Row(changed("zero2", "sums that are cleared away", ("        del model.grad_activations[0]\n", "        del model.grad_activations[0]\n        model.grad_weights.clear()\n"), ("so_far = model.grad_weights.get(layer)", "so_far = model.grad_weights[layer] if mb >= model.RANKS else None")), (CLEARED,), ("store the first gradient",)),
    Row(wrong("zero2", "sums that are cleared away", ("        del model.grad_activations[mb, 0]\n", "        del model.grad_activations[mb, 0]\n    model.grad_weights.clear()\n")), (CLEARED,), ("before that",)),
    Row(changed("zero2", "the new piece is dropped", (UPDATED, UPDATED.replace("piece", "_"))), (GOES_ON,), ("store it to keep it",)),
    Row(wrong("zero2", "the old piece is gathered", ("        weight, model.opt_states[layer] = model.update(", "        old = model.weights[layer].shard(model.rank, model.RANKS)\n        weight, model.opt_states[layer] = model.update("), ("model.weights.pop(layer).shard(model.rank, model.RANKS), model", "old, model"), ("model.allgather(weight, layer)", "model.allgather(old, layer)")), (GOES_ON,), ("store it to keep it",)),
    Row(changed("pipeline_fsdp", "the first of no layers", *EMPTY), (NO_LAYERS,), ("count from 0",)),
    Row(wrong("pipeline_fsdp", "the first of no layers", ("per = model.LAYERS // 4", "per = model.LAYERS // model.RANKS"), ("first, last = stage * per, (stage + 1) * per - 1", "mine = range(stage * per, (stage + 1) * per)\n    first, last = mine[0], mine[-1]")), (NO_LAYERS,), ("count from 0",)),
    Row(changed("wsdp", "shards counted from 1", ("layer, model.rank, model.RANKS", "layer, model.rank + 1, model.RANKS")), ("equal pieces, counted from 0",)),
]  # fmt: skip

EMPTY_SHARE = (
    "have run no micro-batch by then: is a share of the batch empty? There are 8 for 4 ranks, so give each rank some"
)
NOT_SUMMED = "layer 0 has not been updated, and model.scatterreduce(..., 0) of micro-batch 4 was started on this rank, and never awaited"
LAST_TURN = """
async def zero2(model: Model) -> Model:
    for i in range(model.LAYERS):
        model.weights[i], state = model.load_weights(i)
        model.opt_states[i] = state.shard(model.rank, model.RANKS)

    async def arrive(i, call, mb):
        grad = await call
        model.grad_weights[i] = model.grad_weights[i] + grad if i in model.grad_weights else grad
        if mb >= model.RANKS:
            piece = model.weights.pop(i).shard(model.rank, model.RANKS)
            model.weights[i], model.opt_states[i] = model.update(i, model.grad_weights.pop(i), piece, model.opt_states[i])

    for mb in range(model.rank, model.BATCHES, model.RANKS):
        model.activations[0] = model.get_activation([mb])
        for i in range(model.LAYERS):
            model.activations[i + 1] = model.forward(i, model.activations[i], model.weights[i])
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        before = None
        for i in reversed(range(model.LAYERS)):
            grad, model.grad_activations[i] = model.backward(i, model.activations.pop(i), model.grad_activations.pop(i + 1), model.weights[i])
            now = i, model.scatterreduce(grad, i), mb
            if before:
                await arrive(*before)
            before = now
        if mb < model.RANKS:
            await arrive(*before)
    for i in range(model.LAYERS):
        model.weights[i] = await model.allgather(model.weights.pop(i), i)
        model.set_final_weight(i, model.weights[i])
    return model
"""
GATHERS_IN_TURN = (
    "    for i in range(model.LAYERS):\n        model.weights[i] = await model.allgather(model.weights.pop(i), i)\n"
)
AT_ONCE = "    calls = [model.allgather(model.weights.pop(i), i) for i in range(model.LAYERS)]\n    for i, call in enumerate(calls):\n        model.weights[i] = await call\n"
BY_FOURS = LAST_TURN.replace("range(model.rank, model.BATCHES, model.RANKS)", "range(4 * model.rank, min(4 * model.rank + 4, model.BATCHES))").replace("        if mb < model.RANKS:\n            await", "        await")  # fmt: skip
SHARES += [
    Row(whole("zero2", "two ranks have nothing to do", BY_FOURS), (EMPTY_SHARE,), ("a condition above it",)),
    Row(whole("zero2", "two ranks have nothing to do, gathers at once", BY_FOURS.replace(GATHERS_IN_TURN, AT_ONCE)), (EMPTY_SHARE,), ("a condition above it",)),
    Row(whole("zero2", "the last sum of all is lost", LAST_TURN), (NOT_SUMMED,), ("each rank has all of the weight",)),
    Row(whole("zero2", "the last sum of all is lost, gathers at once", LAST_TURN.replace(GATHERS_IN_TURN, AT_ONCE)), (NOT_SUMMED,), ("each rank has all of the weight",)),
]  # fmt: skip


def test_a_call_that_differs_is_shown_where_it_is_made() -> None:
    edit = ("            ahead = model.allgather(model.weights[layer + 1], layer + 1)", "            turn = layer + 1 + (layer == 0 < model.rank)\n            ahead = model.allgather(model.weights[turn], turn)")  # fmt: skip
    program = wrong("wsdp", "another call on some ranks", *AHEAD, edit)
    message = check_words(Row(program, ("rank 0 calls allgather(layer 1) where rank 1 calls",))).message
    assert re.search(r"at: +line \d+ of .*ahead = model.allgather", message), message


def test_the_line_that_gathers_again_at_once_is_shown() -> None:
    again = GATHERED.replace("weight = ", "") + GATHERED
    program = changed(
        "pipeline_fsdp", "twice", (GATHERED + "        grad = model.fake", again + "        grad = model.fake")
    )
    verdict = grade(function(program), "pipeline_fsdp", timeout=LONG).verdict
    said = (
        r"4 more, of weights of layers 0-3 \(line \d+ .*; line \d+ .*: nothing is computed with the layer between these"
    )
    assert re.search(said, verdict.costs_time), verdict.costs_time


def test_a_rule_that_is_broken_is_told_with_the_line() -> None:
    again = GATHERED.replace("weight = ", "") + GATHERED
    program = changed("wsdp", "twice", (GATHERED + "        inp", again + "        inp"))
    message = grade(function(program), "wsdp", timeout=LONG).verdict.message
    assert "no rank uses the weight of layer 5 that it gathers" in message
    assert re.search(r"at: +line \d+ of attempt.py in wsdp: await model.allgather", message), message


# -- what the star's program does otherwise ------------------------------------------------------------------------------

AFTER_BACKWARD = [
    *AHEAD[:2],
    ("        weight = await model.allgather(model.weights[layer], layer)\n", "        if layer < model.LAYERS - 1:\n            model.weights['full'] = await ahead\n"),
    ("model.grad_activations.pop(layer + 1), weight)\n", "model.grad_activations.pop(layer + 1), model.weights.pop('full'))\n        if layer:\n            ahead = model.allgather(model.weights[layer - 1], layer - 1)\n"),
]  # fmt: skip
STORED = [("            layer, model.activations.pop(layer)", "            layer, model.activations.pop(layer)"), ("        grad = await model.allreduce(grad, layer)\n", "        model.grad_weights[layer] = await model.allreduce(model.grad_weights.pop(layer), layer)\n"), ("layer, grad, model.weights", "layer, model.grad_weights.pop(layer), model.weights"), ("        grad, model.grad_activations[layer] =", "        model.grad_weights[layer], model.grad_activations[layer] =")]  # fmt: skip
PIECES_ONLY = ("model.allreduce", "model.scatterreduce")
BEHIND = "rank 0 computes nothing while allgather(layer 4) is on its way, and then awaits {}(layer 5), which comes behind it: start it after that, when what comes of it is stored, beside update(layer 5)"
UNDER_UPDATES = [
    ("        if layer:\n            ahead = model.allgather(model.weights[layer - 1], layer - 1)\n", ""),
    ("pop(layer), layer)\n", "pop(layer), layer)\n        if layer:\n            ahead = model.allgather(model.weights[layer - 1], layer - 1)\n"),
]  # fmt: skip


def starred(name: str, *edits: tuple[str, str]) -> Verdict:
    """The verdict on a right program of puzzle 3 that is not as fast or as small as its star."""
    program = wrong("wsdp", name, *AFTER_BACKWARD, *STORED, *edits)
    verdict = grade(function(program), "wsdp", timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.status == PASS, verdict.message
    return verdict


def test_a_gather_before_a_sum_that_is_awaited_first_is_told_to_come_after_it() -> None:
    before = starred("gathered before allreduce")
    assert BEHIND.format("allreduce") in before.costs_time and "Let backward come sooner" not in before.costs_memory
    assert "all-reduce" not in before.costs_time and "reduce-scatter" not in before.costs_time, before.costs_time
    after = starred("gathered after allreduce", *UNDER_UPDATES)
    assert not after.costs_time, after.costs_time


def test_a_sum_beside_which_nothing_is_computed_is_told_what_to_compute() -> None:
    before = starred("gathered before scatterreduce", PIECES_ONLY)
    assert "start it, do backward(layer 4), which does not need it, and await it after that" in before.costs_time
    assert not starred("gathered after scatterreduce", PIECES_ONLY, *UNDER_UPDATES).costs_time


def test_weights_that_the_star_gathers_once_are_named() -> None:
    verdict = grade(function(changed("wsdp", "as it is")), "wsdp", timeout=LONG).verdict  # type: ignore[arg-type]
    assert "the weight of layer 5 it gathers once, and keeps from forward to backward" in verdict.costs_time


STAYS = """            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
"""
FIRST_INPUT = "That one is what backward(layer 0) gives for the first input, which no layer has made"


@pytest.mark.parametrize("edit", [("        del model.grad_activations[0]\n", ""), ("        del model.grad_activations[0]\n", "        model.grad_weights.pop(-1, None)\n")])  # fmt: skip
def test_a_first_input_s_gradient_is_told_beside_one_that_is_read(edit: tuple[str, str]) -> None:
    verdict = grade(function(changed("zero2", "it stays", edit)), "zero2", timeout=LONG).verdict  # type: ignore[arg-type]
    assert FIRST_INPUT in verdict.costs_memory and "Nothing needs them" not in verdict.costs_memory


LEFT = "It has gone past the turn of layer 1 and has not run it, so that is on another rank: let it send in the turn of each layer"
CARDS = ("first <= layer <= last", "layer in range(stage, model.LAYERS, 4)")
RECEIVED = "            model.activations[{}] = await model.receive(src=model.rank - 1)\n"
FULL = "        model.weights['full'] = await model.allgather(model.weights[layer], layer)\n{}        weight = model.weights.pop('full')\n"
DEALT = [
    Row(wrong("pipeline_fsdp", "dealt like cards, and sent after the last", ("first, last = stage * per, (stage + 1) * per - 1", "first, last = stage, model.LAYERS - 4 + stage"), CARDS, (f"        if layer == first and stage > 0:\n{RECEIVED.format('layer')}{GATHERED}", FULL.format(f"        if layer == first and stage > 0:\n{RECEIVED.format('layer')}"))), (LEFT,), ("waits too soon",)),
    Row(changed("pipeline_fsdp", "dealt like cards, and sent after the last", ("first, last = stage * share, (stage + 1) * share - 1", "first, last = stage, model.LAYERS - stages + stage"), ("first <= layer <= last", "layer % stages == stage"), (f"        elif layer == first:\n{RECEIVED.format('first')}{GATHERED}", FULL.format(f"        if layer == first and not is_first:\n{RECEIVED.format('first')}"))), (LEFT,), ("waits too soon",)),
]  # fmt: skip
ROWS = [*LOOPS, *MESSAGES, *GATHERS, *COROUTINES, *ONE_OFF, *SHARES, *DEALT]
AT_A_SHELL = some(ROWS, 3)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    here = check_words(row)
    if row in AT_A_SHELL:
        check_at_a_shell(row, here)
