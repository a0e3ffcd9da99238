"""What a learner is told of coroutine functions and methods of their own that nobody awaits, or that run as tasks."""

from __future__ import annotations

import pytest

from lib.grading.advice.sources import never_awaited, stored_in_a_task

STEPS = """
class Worker:
    def __init__(self, model):
        self.m, self.calls, self.pending = model, [], {}
    async def forward(self, layer):
        self.m.activations[layer + 1] = self.m.forward(layer, a, w)
    async def step(self, layer):
        await self.m.scatterreduce(grad, layer)
"""
DROPPED = [
    ("async def ddp(model):\n    w = Worker(model)\n    w.step(3)", "await w.step(3): it is called and never awaited"),
    ("async def ddp(model):\n    w = Worker(model)\n    w.forward(0)", "await w.forward(0): it is called"),
    ("async def ddp(model):\n    Worker(model).forward(0)", "await Worker(model).forward(0): it is called"),
    ("class Last(Worker):\n    async def run(self):\n        self.forward(2)", "await self.forward(2): it is called"),
    ("async def ddp(model):\n    [one.step(0) for one in workers]", "await one.step(0): it is called"),
    (
        "def every(w):\n    for i in range(3):\n        w.step(i)",
        "await w.step(i), in async def every(...), which is awaited where it is called: it is called and never awaited",
    ),
    (
        "class Own:\n    def __init__(self):\n        self.step(0)",
        "await self.step(0) once the object is made, where it is made, as __init__ cannot await: it is called",
    ),
    (
        "async def ddp(w):\n    w.calls.append(w.step(0))",
        "put into w.calls, and never awaited: await asyncio.gather(*w.calls)",
    ),
    (
        "async def ddp(w):\n    w.pending[3] = w.step(3)",
        "never awaited: await asyncio.gather(*w.pending.values()) after",
    ),
    ("async def ddp(w):\n    calls = [None] * 4\n    calls[3] = w.step(3)", "await asyncio.gather(*calls) after that"),
    ("async def ddp(w):\n    calls = [w.step(i) for i in mine]", "await asyncio.gather(*calls) after that"),
    ("async def ddp(w):\n    last = w.step(3)", "await w.step(3): it is put into last, and never awaited"),
]
FINE = [
    "async def ddp(w):\n    await w.step(3)",
    "async def ddp(model):\n    model.forward(0, a, w)",  # not the method of the same name
    "async def ddp(w):\n    w.calls.append(w.step(0))\n    await asyncio.gather(*w.calls)",
    "async def ddp(w):\n    w.pending[0] = w.step(0)\n    await w.pending[0]",
    "async def ddp(w):\n    call = w.step(0)\n    await call",
    "async def ddp(w):\n    task = asyncio.create_task(w.step(0))\n    await task",
    "def ddp(w):\n    return w.step(0)",
    "class Other:\n    def step(self, layer): ...\nasync def ddp(other):\n    other.step(0)",
]


@pytest.mark.parametrize("lines, says", DROPPED)
def test_a_coroutine_that_nobody_awaits_is_named(lines: str, says: str) -> None:
    told = never_awaited(STEPS + lines)
    assert says in told and told.endswith("a coroutine that nobody awaits does nothing"), told


@pytest.mark.parametrize("lines", FINE)
def test_what_is_awaited_or_no_coroutine_is_not_named(lines: str) -> None:
    assert not never_awaited(STEPS + lines)


SUM = "model.grad_weights[3], ... = model.backward(3, ...) before that"
MISSING = "nothing is stored in grad_weights under 3"
BACK = """
class Worker:
    async def backward(self, layer):
        self.m.grad_weights[layer], self.m.grad_activations[layer] = self.m.backward(layer, a, g, w)
async def finish(model, layer):
    model.weights[layer] = model.update(layer, a, g, w)
async def ddp(model):
    w = Worker(model)
    for layer in layers:
"""
TASKS = [
    ("asyncio.create_task(w.backward(layer))", "a task begins only when the function that has made it awaits"),
    ("calls.append(asyncio.create_task(w.backward(layer)))", "filled in w.backward(layer), which may not be through"),
    (
        "await asyncio.gather(w.backward(layer), finish(layer))",
        "runs side by side with the others of its asyncio.gather",
    ),
    ("group.create_task(w.backward(layer))", "await it before what it stores is read"),
]


@pytest.mark.parametrize("line, says", TASKS)
def test_what_a_task_stores_is_told_where_it_is_not_there(line: str, says: str) -> None:
    told = stored_in_a_task(MISSING, SUM, f"{BACK}        {line}\n")
    assert says in told and told.endswith(f"Else {SUM}"), told


@pytest.mark.parametrize("line", ["await w.backward(layer)", "asyncio.create_task(finish(model, layer))"])
def test_a_task_that_stores_none_of_these_is_not_blamed(line: str) -> None:
    assert stored_in_a_task(MISSING, SUM, f"{BACK}        {line}\n") == SUM
    assert stored_in_a_task("micro-batch 0 is in more than one gradient", SUM, f"{BACK}        {TASKS[0][0]}\n") == SUM
