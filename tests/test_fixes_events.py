"""What mistakes are told whose fix is an event that a task waits for, a key that several layers share, or a condition
that is true on some ranks only."""

from __future__ import annotations

import pytest

from lib.grading.advice.events import never_set, not_waited_for
from tests.corpus import changed, whole
from tests.slow import some
from tests.test_fixes import Row
from tests.test_fixes_later import check_at_a_shell, check_words

TWO_TASKS = """
import asyncio

async def sequence_parallel(model: Model) -> Model:
    n, last = model.RANKS, model.LAYERS - 1
    asked = {k: asyncio.Event() for k in range(model.LAYERS)}
    here = [asyncio.Event() for _ in range(model.LAYERS)]
    for k in range(model.LAYERS):
        model.weights[k], model.opt_states[k] = model.load_weights(k, model.rank, n)

    async def bring_back():
        for k in range(last, -1, -1):
            await asked[k].wait()
            model.activations["again"] = await model.allgather(model.activations.pop(("slice", k)), k)
            here[k].set()

    async def train():
        x = model.activations["x"] = model.get_activation([0])
        for k in range(model.LAYERS):
            model.activations["slice", k] = x.shard(model.rank, n)
            part = model.forward(k, model.activations.pop("x"), model.weights[k], partial=True)
            x = model.activations["x"] = await model.allreduce(part, k + 1)
        model.grad_activations["g"] = model.loss(model.activations.pop("x"))
        asked[last].set()
        for k in range(last, -1, -1):
            await here[k].wait()
            model.grad_weights[k], part = model.backward(k, model.activations.pop("again"), model.grad_activations.pop("g"), model.weights[k], partial=True)
            if k > 0:
                model.grad_activations["g"] = await model.allreduce(part, k - 1)
                asked[k - 1].set()
            model.weights[k], model.opt_states[k] = model.update(k, model.grad_weights.pop(k), model.weights[k], model.opt_states[k])
            model.set_final_weight(k, model.weights[k])

    await asyncio.gather(bring_back(), train())
    return model
"""
BOTH = "    await asyncio.gather(bring_back(), train())\n"


def tasks(name: str, *edits: tuple[str, str]) -> Row:
    """Return a row, with nothing that it says yet, of a program with two tasks that meet at events."""
    source = TWO_TASKS
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return Row(whole("sequence_parallel", name, source), ())


LOADS = "        model.weights[layer], model.opt_states[layer] = model.load_weights(\n            layer, model.rank, model.RANKS\n        )\n"
GATHERS = "weight = await model.allgather(model.weights[layer], layer)"
UPDATES = "        model.weights[layer], model.opt_states[layer] = model.update(\n            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]\n        )\n        model.set_final_weight(layer, model.weights[layer])"
RUNS = "            model.activations[layer + 1] = model.forward(\n                layer, model.activations[layer], weight\n            )\n"
BACK = "            inp, grad_out = model.activations.pop(layer), "
STORES = "            model.activations[{0}] = model.activations.pop(layer)\n            model.activations[layer + 1] = model.forward(layer, model.activations[{0}], weight)\n"
ALONE = "first, last = stage * share, (stage + 1) * share - 1"
SUM = "        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n"
LATER = "        if first <= layer <= last:\n            model.grad_weights[{0}] = grad\n"
SUMS = "        grad = model.grad_weights.pop({0}) if first <= layer <= last else model.fake_grad(layer, [])\n"


def own_loads(name: str, key: str) -> Row:
    """Return the row of a program whose ranks load no pieces but those of the layers that they run."""
    loads = LOADS.replace("weights[layer]", f"weights[{key}]", 1).replace("    model", "        model")
    gathers = GATHERS.replace("weights[layer]", f"weights[{key}]")
    edits = (LOADS, f"        if first <= layer <= last:\n{loads}"), (GATHERS, gathers)
    shown = key.replace("layer", "0").replace('"', "'")
    return Row(
        changed("pipeline_fsdp", name, *edits),
        (
            f"each rank loads its shard of every layer: model.weights[{shown}], state = model.load_weights(0, model.rank",
        ),
        ("below no `if`",),
    )


def one_key(name: str, key: str) -> Row:
    """Return the row of a program that stores the input of every layer under one key."""
    edits = (RUNS, STORES.format(key)), (BACK, BACK.replace("layer", f"({key})", 1))
    return Row(
        changed("pipeline_fsdp", name, *edits),
        ("the input of layer 7 was there", "That of layer 6 is in no place of its own", "layer]"),
        ("without pop",),
    )


def one_sum(name: str, key: str) -> Row:
    """Return the row of a program that stores all its gradients under one key before they are summed."""
    edits = (SUM, LATER.format(key)), (UPDATES, f"{SUMS.format(key)}{SUM}{UPDATES}")
    return Row(
        changed("pipeline_fsdp", name, *edits),
        ("is in no place of its own: bring each to its sum right after its backward, or keep it to that under a key",),
        ("goes on from there",),
    )


AFTER = "comes after what stores this, and nothing in the program waits for here: await here[...].wait() before this"
ROWS = [
    tasks("nobody waits for the input", ("            await here[k].wait()\n", ""))._replace(says=(f"here[k].set() in bring_back() {AFTER}",), never=("runs side by side",)),
    tasks("nobody waits, in tasks", ("            await here[k].wait()\n", ""), (BOTH, "    task = asyncio.create_task(bring_back())\n    await train()\n    await task\n"))._replace(says=(f"here[k].set() in bring_back() {AFTER}",)),
    tasks("one after the other", (BOTH, "    await train()\n    await bring_back()\n"))._replace(says=("waits for what only bring_back() sets, which begins when train() is through", "await asyncio.gather(train(), bring_back())")),
    tasks("the other one first", (BOTH, "    await bring_back()\n    await train()\n"))._replace(says=("waits for what only train() sets, which begins when bring_back() is through",)),
    tasks("only the first is asked for", ("                asked[k - 1].set()\n", ""))._replace(says=("bring_back() waits in each turn of a loop, await asked[k].wait(), and asked[last].set() in train() is in no loop",)),
    tasks("none says that it is here", ("            here[k].set()\n", ""))._replace(says=("train() waits, await here[k].wait(), and nothing in the program calls here[...].set()",)),
    tasks("another one is here", ("await here[k]", "await here[k - 1]"))._replace(says=("train() waits for here[k - 1], and what is set is here[k]",)),
    own_loads("own layers only, by a name before", '"own", layer'),
    own_loads("own layers only, by a name after", 'layer, "s"'),
    one_key("one key for inputs", '"in"'),
    one_key("one pair for inputs", '"kept", "in"'),
    one_sum("one key for gradients", '"g"'),
    *[
        Row(
            changed("pipeline_fsdp", f"one pipeline runs layers{word}", (ALONE, alone), ("\n    for layer in range(model.LAYERS):\n" + UPDATES, "\n    for layer in reversed(range(model.LAYERS)):\n" + UPDATES)),
            ("ranks 4-15 have run no layer", "model.rank % 4 is the stage of a rank"),
            ("Is a loop too short", "model.rank // 4"),
        )
        for word, alone in (("", f"{ALONE}\n    if mb > 0:\n        first = last = -9"), (", by its rank", "first, last = (stage * share, (stage + 1) * share - 1) if model.rank < stages else (-9, -9)"))
    ],
    Row(changed("fsdp", "a break before the update", ("        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n", "        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n        if layer == 0:\n            break\n" + UPDATES + "\n"), ("    for layer in range(model.LAYERS):\n" + UPDATES + "\n", "")), ("or a loop end early, as with `break`?",)),
    Row(changed("sequence_parallel", "a partial sum is cut", ("await model.scatterreduce(out, layer + 1)", "out.shard(model.rank, model.RANKS)")), ("Were they cut by .shard(...)? That sums nothing",)),
]  # fmt: skip
AHEAD = "    last = model.LAYERS - 1\n    ahead = model.allgather(model.activations.pop(last), last)\n    for layer in reversed(range(model.LAYERS)):\n        inp = await ahead\n"
BACKS = "    for layer in reversed(range(model.LAYERS)):\n        inp = await model.allgather(model.activations.pop(layer), layer)\n"
IN_SUM = "            grad = await model.scatterreduce(grad, layer - 1)\n"
NEXT = "            ahead = model.allgather(model.activations{0}, layer - 1)\n"
ROWS += [
    *[
        Row(
            changed("sequence_parallel", f"the input of this layer again, by {get}", (BACKS, AHEAD), (IN_SUM, IN_SUM + NEXT.format(get))),
            ("nothing reads it any more. The next backward is that of layer 6: is its input meant?",),
            ("leave pop to its last use",),
        )
        for get in ("[layer]", ".pop(layer)")
    ],
    *[
        Row(
            changed("sequence_parallel", f"gathers below layer 0, by {get}", (BACKS, AHEAD), ("        model.weights[layer], model.opt_states[layer] = model.update(", NEXT.format(get)[4:] + "        model.weights[layer], model.opt_states[layer] = model.update(")),
            ("backward(0, ...) has run here, and nothing comes before layer 0: leave this out in its turn",),
        )
        for get in ("[layer - 1]", ".pop(layer - 1)")
    ],
]  # fmt: skip
AT_A_SHELL = some(ROWS, 2)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_words_lead_to_the_fix(row: Row) -> None:
    here = check_words(row)
    if row in AT_A_SHELL:
        check_at_a_shell(row, here)


MISSING = "nothing is stored in weights under 'w'"
CLASS = """
class Worker:
    def __init__(self, model):
        self.m, self.there = model, asyncio.Event()
    async def fetch(self):
        self.m.weights["w"] = await self.m.allgather(a, 0)
        self.there.set()
    async def work(self):
        {0}
        self.m.forward(0, x, self.m.weights.pop("w"))
async def fsdp(model):
    w = Worker(model)
    await asyncio.gather(w.fetch(), w.work())
"""
FUTURE = """
async def fsdp(model):
    there = asyncio.get_running_loop().create_future()
    async def fetch(there):
        model.weights["w"] = await model.allgather(a, 0)
        {0}
    async def work(there):
        {1}
        model.forward(0, x, model.weights.pop("w"))
    await asyncio.gather(fetch(there), work(there))
"""
SETS = "there.set_result(None)"


def test_an_event_that_nobody_waits_for_is_named() -> None:
    assert "await self.there.wait() before this line" in not_waited_for(MISSING, CLASS.format("pass"))
    assert "await there before this line" in not_waited_for(MISSING, FUTURE.format(SETS, "pass"))


@pytest.mark.parametrize(
    "source",
    [
        CLASS.format("await self.there.wait()"),
        CLASS.format("await wait_for(self.there)"),  # it may be awaited there
        CLASS.format("event = self.there; await event.wait()"),
        FUTURE.format(SETS, "await there"),
        FUTURE.format("pass", "await there"),
    ],
)
def test_an_event_that_somebody_may_wait_for_is_not_named(source: str) -> None:
    assert not not_waited_for(MISSING, source)
    assert not not_waited_for("nothing is stored in weights under 'v'", CLASS.format("pass"))


OWN_WAIT = "a Future, an Event or a Queue of your own has to be set by a rank that still runs"
STUCK = "deadlock: no rank can ever go on"


def test_a_future_that_is_never_set_is_named_and_one_below_a_condition() -> None:
    assert "nothing in the program calls there.set_result(...)" in never_set(
        STUCK, OWN_WAIT, FUTURE.format("pass", "await there")
    )
    on_some = never_set(STUCK, OWN_WAIT, FUTURE.format(f"if model.rank: {SETS}", "await there"))
    assert "there.set_result(None) in fetch() stands below `if model.rank`" in on_some


def test_a_program_whose_events_show_no_mistake_keeps_its_fix() -> None:
    fine = FUTURE.format(SETS, "await there")
    assert never_set(STUCK, OWN_WAIT, fine) == OWN_WAIT
    assert never_set(STUCK, "send first", TWO_TASKS) == "send first"
    assert never_set("nothing is stored", OWN_WAIT, FUTURE.format("pass", "await there")) == OWN_WAIT
