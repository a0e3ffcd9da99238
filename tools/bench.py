"""What the simulator costs: microseconds and bytes an event, beside the floor of asyncio itself and beside the last
release.

The floor is N coroutines that meet at asyncio futures as many times as the run has operations for each
rank, every waiter at a future of its own as asyncio.Condition has it, measured in the same process and
interleaved with the runs. Processor time, the best of several rounds. The figures of the last release are in
``bench.json``; only their ratios to the floor say something on another machine.

    python -m tools.bench              # everything
    python -m tools.bench --quick      # the first table, without the two largest machines
    python -m tools.bench --strict     # fails where a ratio is above what LIMITS allows
    python -m tools.bench --save       # writes the figures of a release
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import inspect
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat

from drawing import compare, draw, perfetto
from lib import Dist, Model, Run, run
from lib.course.specs import cost_named, puzzles
from lib.grading.judge import judge
from lib.grading.notebook import Recorded
from lib.machine.cost import Shape
from lib.machine.fingerprints import trained_weights
from lib.machine.simulator import LocalSimulator, new_simulator
from lib.real import A100_MEGATRON, GPT_175B, report
from lib.record.events import MARKS
from lib.record.figures.breakdown import time_parts
from lib.record.figures.chain import chain_of
from lib.record.figures.score import idle_share
from lib.record.figures.waiting import Waiting
from lib.recording.recorder import Recorder, recorder_for
from lib.recording.replay import Replay
from lib.referee.loaded import Loaded, Submission
from lib.referee.referee import Referee
from lib.running.execution import execute
from lib.running.run import Settings, train_on
from lib.running.workload import Workload
from lib.study.sweep import sweep
from solutions.build.notebooks.notebook import notebook_of
from solutions.build.sources.files import ROOT, sources
from tests.kernels import kernel_in, run_cells

ROUNDS = 5
KEPT = Path(__file__).with_name("bench.json")
"""Of the last release: of each case its ratio to the floor and its bytes an event, and other figures by their names."""
EXPORT = "a file for Perfetto"
RECORDED, REPLAYED = "a call that is recorded: microseconds", "a call that is replayed: microseconds"
LIMITS = {"ratio": 20.0, "bytes": 600.0, "1,024 ranks against 4": 1.4, "after a run": 0.15, EXPORT: 0.2}
LIMITS |= {RECORDED: 40.0, REPLAYED: 25.0}
"""What ``--strict`` allows, set by hand: times the floor; bytes an event; an operation on a large machine beside one on
a small machine; each use of a finished run beside the run, of which one writes two entries an event; and a call
in a worker and in the replay of the grader, what it does included."""


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


async def hybrid(model: Model) -> Model:
    """Replica-FSDP: sharded in a node, and a sum over the nodes for each layer."""
    rank, shards = model.axis_index("shard"), model.axis_size("shard")
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, rank, shards)
    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer, axis="shard")
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer, axis="shard")
        grad, model.grad_activations[layer] = model.backward(
            layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), weight
        )
        piece = await model.scatterreduce(grad, layer, axis="shard")
        model.grad_weights[layer] = await model.allreduce(piece, layer, axis="replica")
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


async def staged(model: Model) -> Model:
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
    ("fsdp, 64 ranks, 40 layers", lambda: run(fsdp, 64, 40, 64, timeout=None, represent=False)),
    ("fsdp, 1,024 ranks, 4 layers", lambda: run(fsdp, 1024, 4, 1024, timeout=None, represent=False)),
    ("pipeline, 64 stages, 256 micro-batches", lambda: run(staged, 64, 64, 256, timeout=None, represent=False)),
]
FEW, MANY = CASES[0][0], CASES[2][0]
LARGE: list[tuple[str, Callable[[], Run]]] = [
    ("fsdp, 1,024 ranks, 96 layers", lambda: run(fsdp, 1024, 96, 1024, timeout=None, represent=False)),
    (
        "replica-fsdp, 128 x 8 ranks, 96 layers",
        lambda: run(
            hybrid, 1024, 96, 1024, mesh={"replica": 128, "shard": 8}, node_size=8, timeout=None, represent=False
        ),
    ),
]
"""Of all ranks, measured once each: they take long, and much memory."""


PROVED = (
    "fsdp, 1,024 ranks, 96 layers, of which 4 are run, proved: seconds",
    {"ranks": 1024, "layers": 96, "batches": 1024},
)
LARGEST = "the same, 16,384 ranks, 126 layers: seconds", {"ranks": 16_384, "layers": 126, "batches": 16_384}


def proved(size: dict[str, int]) -> None:
    """Run a few ranks for all, and compare the final weights of all with plain training."""
    trained_weights.cache_clear()
    run(fsdp, **size, represent=True, timeout=None).verify()


def by_itself(figures: Figures) -> None:
    """Tell what a run takes that nobody has asked to represent anything, and what is read of it."""
    made = list[Run]()
    name = "fsdp, 1,024 ranks, 96 layers"
    figures.add(f"{name}, as it is run by itself: seconds", timed(lambda: made.append(run(fsdp, **PROVED[1]))))
    figures.add(f"{name}, its events: seconds", timed(lambda: made[0].events))
    figures.add(f"{name}, printed: seconds", timed(lambda: str(made[0])))


def uses_of_proved(figures: Figures) -> None:
    """Tell what is made of such a run, which is not spread out for it, and what grading the largest puzzle takes."""
    size = PROVED[1]
    uses: list[tuple[str, Callable[[Run], object]]] = [
        ("a picture", lambda done: draw(done).svg()),
        ("a comparison", lambda done: compare(done, done)),
        ("a report", report),
        (EXPORT, perfetto),
    ]
    cost = A100_MEGATRON.cost(GPT_175B)
    for name, use in uses:
        done = run(fsdp, **size, cost=cost, represent=True, timeout=None)
        figures.add(f"{name} of 1,024 ranks, proved: seconds", timed(partial(use, done)))
    figures.add("a sweep with that size: seconds", timed(lambda: sweep(fsdp, **size, processes=1)))
    compose, puzzle = import_module("solutions.p24_compose").compose, puzzles()["compose"]
    runs = Recorded(compose, cost_named(puzzle.cost), None)
    figures.add("the verdict on puzzle 24: seconds", timed(lambda: judge(puzzle, runs.run, runs.latest)))


class Figures:
    """Figures that stand for themselves, each in a row beside that of the last release."""

    def __init__(self, before: dict[str, Any]) -> None:
        self.before, self.found = before, dict[str, float]()

    def add(self, name: str, value: float, after: str = "") -> None:
        """Print a row, and keep its figure."""
        old = self.before.get(name)
        was = f"{old:8.2f}" if isinstance(old, float) else f"{'':8}"
        print(f"{name:60} {value:8.2f} {was}  {after}".rstrip(), flush=True)
        self.found[name] = value


def shell_grader(figures: Figures) -> None:
    """Tell what the process boundary costs: a call that is recorded and replayed, a process, and nine puzzles."""
    shape, size = Shape.of(4), {"ranks": 4, "layers": 401, "batches": 4}

    def recorded() -> Recorder:
        recorder = recorder_for(shape)
        dist = Dist.of(shape, recorder.as_simulator)
        execute(fsdp, [Model(rank, dist, 401, 4) for rank in range(4)], None)
        return recorder

    recording = json.loads(json.dumps({part: recorded().whole()[part] for part in ("calls", "failed")}))
    count = len(recording["calls"])
    play = lambda: Replay(LocalSimulator(shape, graded=True), 401, 4).play(recording, math.inf)  # noqa: E731
    for name, work in ((RECORDED, recorded), (REPLAYED, play)):
        figures.add(name, min(timed(work) for _ in range(ROUNDS)) / count * 1e6)
    referee, times = Referee(600), []
    source = "import asyncio\n" + inspect.getsource(fsdp).replace(": Model", "").replace(" -> Model", "")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        with closing(Loaded(Submission("bench.py", source), referee)) as code:
            code.run("fsdp", size | {"layers": 1}, [])
        times.append(time.perf_counter() - start)
    figures.add("a worker process with a short run: milliseconds", min(times) * 1e3, f"({referee.mechanisms[0]})")
    files = sorted(str(path) for path in (ROOT / "solutions").glob("p0[0-8]_*.py"))
    times.clear()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "lib", "grade", *files], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    figures.add("nine puzzles at the shell: seconds", min(times))


def notebooks() -> None:
    """Print how long a kernel takes from its start through a solved notebook to its end, for the longest one."""
    times = {}
    for path in sources():
        start = time.perf_counter()
        asyncio.run(in_a_kernel(nbformat.reads(json.dumps(notebook_of(path, solved=True)), 4)))
        times[path.stem] = time.perf_counter() - start
    longest = max(times, key=lambda name: times[name])
    print(f"a whole notebook, solved, in a kernel of its own: at most {times[longest]:.1f} s ({longest})")


async def in_a_kernel(notebook: nbformat.NotebookNode) -> None:
    """Run a notebook as it is run by somebody who has just opened it."""
    with tempfile.TemporaryDirectory() as folder:  # where progress is kept
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "LLM_TRAINING_PUZZLES_PROGRESS": folder}
        async with kernel_in(ROOT / "puzzles", env=environment, stderr=subprocess.DEVNULL) as kernel:
            await run_cells(notebook, kernel, ROOT / "puzzles")


def after_a_run(ranks: int, layers: int, figures: Figures) -> dict[str, float]:
    """Tell what each use of a finished run costs, beside the run itself. Return these shares by name."""
    shape = Shape.of(ranks)
    dist = Dist.of(shape, new_simulator(shape, graded=True, strict=True))
    made: list[Any] = []
    train = lambda: made.extend(train_on(fsdp, dist, Workload(layers, ranks), Settings(None)))  # noqa: E731
    trained, models = timed(train), [*made]
    making = timed(lambda: made.append(Run("fsdp", models)))
    whole, result = trained + making, made[-1]
    shares = {"making a Run": making / whole}
    uses: list[tuple[str, Callable[[], object]]] = [
        ("a log to be read", lambda: result.events),
        ("check", result.verify),
        ("idle_share", lambda: idle_share(result.events, result.ranks)),
        ("where the time goes", lambda: time_parts(result.events, result.ranks, result.time)),
        ("print", lambda: str(result)),
        ("the longest chain", lambda: chain_of(result.events)),
        ("who waits for whom", lambda: gaps(result)),
        (EXPORT, lambda: perfetto(result)),
    ]
    for name, use in uses:
        shares[name] = timed(use) / whole
    for name, part in shares.items():
        figures.add(f"{name}, beside a run of {len(result.events):,} events", part)
    return shares


def gaps(result: Run) -> list[Any]:
    """Whom each rank waits for, and when."""
    by_rank = {rank: [*own] for rank, own in groupby(result.events, key=lambda event: event.rank)}
    waiting = Waiting(by_rank, result.time)
    return [waiting.gaps(rank) for rank in by_rank]


def measured(name: str, work: Callable[[], Run], rounds: int) -> dict[str, float]:
    """Return the figures of one case."""
    result = work()
    count, ranks = operations(result), result.ranks
    del result
    pairs = [(timed(work), floor(ranks, count // ranks)) for _ in range(rounds)]
    cost, base = (min(column) / count * 1e6 for column in zip(*pairs, strict=True))
    return {"events": count, "cost": cost, "floor": base, "ratio": cost / base, "bytes": bytes_kept(work)}


def table(cases: list[tuple[str, Callable[[], Run]]], rounds: int, before: dict[str, Any]) -> dict[str, Any]:
    """Print a row for each case, and return its figures."""
    found = {}
    for name, work in cases:
        found[name] = now = measured(name, work, rounds)
        old = before.get(name)
        was = f"{old['ratio']:6.1f} {old['bytes']:6.0f}" if old else f"{'':6} {'':6}"
        print(
            f"{name:40} {now['events']:8,} {now['cost']:9.2f} {now['floor']:7.2f} {now['ratio']:6.1f} "
            f"{now['bytes']:6.0f}  {was}",
            flush=True,
        )
    return found


def too_much(found: dict[str, Any], shares: dict[str, float], more: dict[str, float]) -> list[str]:
    """Return what is above the limits, in words. ``more``: other figures that were measured, by their names."""
    wrong = []
    for name, now in found.items():
        for what in ("ratio", "bytes"):
            if now[what] > LIMITS[what]:
                wrong.append(f"{name}: {what} {now[what]:.1f}, at most {LIMITS[what]:.1f} is allowed")
    figures = {"1,024 ranks against 4": found[MANY]["ratio"] / found[FEW]["ratio"], EXPORT: shares[EXPORT]}
    figures |= {name: more[name] for name in (RECORDED, REPLAYED) if name in more}
    figures["after a run"] = max(share for name, share in shares.items() if name != EXPORT)
    return wrong + [
        f"{what}: {value:.2f}, at most {LIMITS[what]:.2f} is allowed"
        for what, value in figures.items()
        if value > LIMITS[what]
    ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="What the simulator costs.")
    for option, what in (
        ("--quick", "only the first table, without the largest machines"),
        ("--strict", "fail where something is above its limit"),
        ("--save", "keep these figures as those of a release"),
    ):
        parser.add_argument(option, action="store_true", help=what)
    options = parser.parse_args()
    before = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    print(f"{'':58} {'':9} {'':5} {'bytes/':>7}  last release")
    print(f"{'':40} {'events':>8} {'us/event':>9} {'floor':>7} {'ratio':>6} {'event':>6}   ratio  bytes")
    found = table(CASES, ROUNDS, before)
    print(f"1,024 ranks against 4, each over its floor: {found[MANY]['ratio'] / found[FEW]['ratio']:.2f}")
    figures = Figures(before)
    for name, size in (PROVED, LARGEST)[: 1 if options.quick else 2]:
        figures.add(name, min(timed(partial(proved, size)) for _ in range(1 if size["ranks"] > 1024 else ROUNDS)))
    if not options.quick:
        by_itself(figures)
        uses_of_proved(figures)
    shares = after_a_run(256, 48, figures) if options.quick else after_a_run(1024, 96, figures)
    if not options.quick:
        found |= table(LARGE, 1, before)
    if not options.quick:
        shell_grader(figures)
        notebooks()
    if options.save:
        kept = {name: {what: round(now[what], 1) for what in ("ratio", "bytes")} for name, now in found.items()}
        alone = {name: round(value, 2) for name, value in figures.found.items()}
        KEPT.write_text(json.dumps(before | kept | alone, indent=1) + "\n", encoding="utf-8")
    if options.strict and (wrong := too_much(found, shares, figures.found)):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
