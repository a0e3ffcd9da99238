"""What the simulator costs: microseconds and bytes an event, beside the floor of asyncio itself.

The floor is N coroutines that meet at asyncio futures as many times as the run has operations for each
rank, every waiter at a future of its own as asyncio.Condition has it, measured in the same process and
interleaved with the runs. Processor time, the best of several rounds.

    python tests/bench.py
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import nbformat
from jupyter_client.manager import AsyncKernelManager

from lib import Model, Run, run
from lib.record.events import MARKS
from lib.referee.referee import Referee, Submission
from lib.remote.clerk import Clerk
from solutions import build
from tests.kernels import run_cells

ROUNDS = 5


async def fsdp(model: Model) -> Model:
    """Fully sharded data parallel, one micro-batch a rank, every call awaited on the spot."""
    rank, ranks = model.rank, model.RANKS
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, rank, ranks)
    model.activations[0] = model.get_activation([rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer)
        grad, model.grad_activations[layer] = model.backward(
            layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), weight
        )
        model.grad_weights[layer] = await model.scatterreduce(grad, layer)
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


async def pipeline(model: Model) -> Model:
    """GPipe, one layer a stage, receiving from anyone."""
    rank, last = model.rank, model.RANKS - 1
    model.weights[0], model.opt_states[0] = model.load_weights(rank)
    for batch in range(model.BATCHES):
        inp = await model.receive() if rank else model.get_activation([batch])
        model.activations[batch] = inp
        out = model.forward(rank, inp, model.weights[0])
        if rank < last:
            await model.pass_to(rank + 1, out)
        else:
            model.grad_activations[batch] = model.loss(out)
    for batch in range(model.BATCHES):
        grad = model.grad_activations.pop(batch) if rank == last else await model.receive()
        weight_grad, grad = model.backward(rank, model.activations.pop(batch), grad, model.weights[0])
        before = model.grad_weights.pop(0, None)
        model.grad_weights[0] = weight_grad if before is None else before + weight_grad
        if rank:
            await model.pass_to(rank - 1, grad)
    model.weights[0], model.opt_states[0] = model.update(
        rank, model.grad_weights.pop(0), model.weights[0], model.opt_states[0]
    )
    model.set_final_weight(rank, model.weights[0])
    return model


def floor(ranks: int, meetings: int) -> float:
    """Seconds for coroutines that meet at futures, and do nothing else."""

    async def everyone() -> None:
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[None]] = []

        async def one() -> None:
            for _ in range(meetings):
                if len(waiting) == ranks - 1:
                    for future in waiting:
                        future.set_result(None)
                    waiting.clear()
                else:
                    future = loop.create_future()
                    waiting.append(future)
                    await future

        await asyncio.gather(*[one() for _ in range(ranks)])

    return timed(lambda: asyncio.run(everyone()))


def timed(work: Callable[[], object]) -> float:
    """Processor seconds, the collector off as it is in a run; what the work gives is freed afterwards."""
    gc.collect()
    gc.disable()
    start = time.process_time()
    result = work()
    seconds = time.process_time() - start
    gc.enable()
    del result
    return seconds


def operations(result: Run) -> int:
    """Events that are operations, marks not counted."""
    return sum(event.kind not in MARKS for event in result.events)


def bytes_kept(work: Callable[[], Run]) -> float:
    """Bytes an event that a finished run keeps."""
    tracemalloc.start()
    result = work()
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept / len(result.events)


CASES: list[tuple[str, Callable[[], Run]]] = [
    ("fsdp, 4 ranks, 400 layers", lambda: run(fsdp, 4, 400, 4, timeout=None)),
    ("fsdp, 64 ranks, 40 layers", lambda: run(fsdp, 64, 40, 64, timeout=None)),
    ("fsdp, 1,024 ranks, 4 layers", lambda: run(fsdp, 1024, 4, 1024, timeout=None)),
    ("pipeline, 64 stages, 256 micro-batches", lambda: run(pipeline, 64, 64, 256, timeout=None)),
]


def shell_grader() -> None:
    """Print what the process boundary costs: an operation across it, a process, and all puzzles."""
    answers = 0
    answer = Clerk.answer

    def counted(clerk: Clerk, message: list[Any]) -> list[Any]:
        nonlocal answers
        answers += 1
        return answer(clerk, message)

    referee = Referee(600)
    source = "import asyncio\n" + inspect.getsource(fsdp).replace(": Model", "").replace(" -> Model", "")

    def far(layers: int) -> float:
        start = time.perf_counter()
        size = {"ranks": 4, "layers": layers, "batches": 4}
        referee.run(Submission("bench.py", source), "fsdp", size, [])
        return time.perf_counter() - start

    near = min(timed(lambda: run(fsdp, 4, 401, 4, timeout=None)) for _ in range(ROUNDS))
    empty = min(far(1) for _ in range(ROUNDS))
    Clerk.answer = counted  # type: ignore[method-assign]
    long = far(401)
    Clerk.answer = answer  # type: ignore[method-assign]
    events = operations(run(fsdp, 4, 401, 4, timeout=None)) - operations(run(fsdp, 4, 1, 4))
    print(f"a worker process with a short run: {empty * 1e3:.0f} ms ({referee.mechanisms[0]})")
    print(
        f"across the pipe: {(long - empty) / answers * 1e6:.0f} us a message, {answers / events:.1f} messages an event,"
    )
    print(f"    {(long - empty) / events * 1e6:.0f} us an event (here {near / events * 1e6:.0f})")
    files = sorted(str(path) for path in (Path(__file__).parent.parent / "solutions").glob("p??_*.py"))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "lib", "grade", *files], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    print(f"{len(files)} puzzles at the shell, each at its own size and at the extremes of others: {min(times):.1f} s")


def notebooks() -> None:
    """Print how long a kernel takes from its start through a solved notebook to its end, for the longest one."""
    times = {}
    for path in build.sources(build.ROOT / "solutions"):
        start = time.perf_counter()
        asyncio.run(in_a_kernel(nbformat.reads(json.dumps(build.notebook(path, solved=True)), 4)))
        times[path.stem] = time.perf_counter() - start
    longest = max(times, key=lambda name: times[name])
    print(f"a whole notebook, solved, in a kernel of its own: at most {times[longest]:.1f} s ({longest})")


async def in_a_kernel(notebook: nbformat.NotebookNode) -> None:
    """Run a notebook as it is run by somebody who has just opened it."""
    kernel = AsyncKernelManager(kernel_name="python3")
    with tempfile.TemporaryDirectory() as folder:  # where progress is kept
        environment = {**os.environ, "PYTHONPATH": str(build.ROOT), "LLM_TRAINING_PUZZLES_PROGRESS": folder}
        await kernel.start_kernel(cwd=str(build.ROOT / "puzzles"), env=environment, stderr=subprocess.DEVNULL)
        try:
            await run_cells(notebook, kernel, build.ROOT / "puzzles")
        finally:
            await kernel.shutdown_kernel(now=True)


def main() -> None:
    """Print the table."""
    print(f"{'':40} {'events':>8} {'us/event':>9} {'floor':>7} {'ratio':>6} {'bytes/event':>12}")
    costs = {}
    for name, work in CASES:
        result = work()
        count, ranks = operations(result), result.ranks
        pairs = [(timed(work), floor(ranks, count // ranks)) for _ in range(ROUNDS)]
        cost = min(seconds for seconds, _ in pairs) / count * 1e6
        base = min(seconds for _, seconds in pairs) / count * 1e6
        costs[name] = cost / base
        print(f"{name:40} {count:8} {cost:9.2f} {base:7.2f} {cost / base:6.1f} {bytes_kept(work):12.0f}")
    few, _, many, _ = costs.values()
    print(f"1,024 ranks against 4, each over its floor: {many / few:.2f}")
    shell_grader()
    notebooks()


if __name__ == "__main__":
    main()
