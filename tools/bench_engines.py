"""What engines with real tensors make of the solutions: errors, equal records, seconds, and when a fault is reported.

python -m tools.bench_engines
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

from lib import PuzzleError, run
from lib.running.workload import KINDS, TOLERANCES
from tests.programs import solutions

PACE = 0.1


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """How long it took, and what came of it."""
    begun = time.perf_counter()
    made = work()
    return time.perf_counter() - begun, made


def apart(fn: Callable[..., Any], size: dict[str, Any], engine: str, layer: str, dtype: str) -> float | None:
    """How far the weights are from plain training's; None for a kind of layer that this puzzle cannot be run with."""
    try:
        return run(fn, **size, engine=engine, layer=layer, dtype=dtype).agreement.relative
    except PuzzleError:
        return None


def errors() -> None:
    """Print errors by puzzle, engine, layer and precision, equal records, and seconds of later calls."""
    columns = [(layer, dtype) for layer in KINDS for dtype in TOLERANCES]
    heads = "".join(f"{f'{layer} {dtype[5:]}':>11}" for layer, dtype in columns)
    print(
        f"{'error by the largest update':38}{heads} {'records':>9} {'equal':>6} {'stored':>7} {'wall':>7} {'paced':>12}"
    )
    for fn, spec in solutions():
        for engine in ("local", "processes"):
            runs = [apart(fn, spec["size"], engine, *kind) for kind in columns]
            wall, again = seconds(lambda e=engine, f=fn, s=spec: run(f, **s["size"], engine=e))  # type: ignore[misc]
            simulated = [event._replace(op=None) for event in run(fn, **spec["size"]).events]
            found = [event._replace(op=None) for event in again.events]
            equal = sum(a == b for a, b in zip(found, simulated, strict=True))
            stored, paced = "", ""
            if engine == "processes":
                stored = str(again.stored[0])
                measured = run(fn, **spec["size"], engine=engine, pace=PACE).measured
                paced = f"{measured.time / 1e3 / PACE:.1f}/{again.time:.1f}"
            values = "".join(f"{one:11.1e}" if one is not None else f"{'-':>11}" for one in runs)
            name = f"{spec['name']}, {engine}"
            print(f"{name:38}{values} {len(found):9} {equal:6} {stored:>7} {wall:6.2f}s {paced:>12}")


def faults() -> None:
    """Print how soon each fault is reported."""
    from tests.test_engine_processes import FAULTS, REAL_FAULTS

    for fault in (*FAULTS, *REAL_FAULTS):
        begun = time.perf_counter()
        try:
            run(fault, 4, 2, 4, engine="processes", timeout=1.0)
        except PuzzleError as error:
            said = str(error).split("\n")[0]
            print(f"{fault.__name__:16} {time.perf_counter() - begun:5.2f} s  {said[:100]}")


def main() -> None:
    """Print all of it."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "cloudpickle")):
        print("NOT MEASURED: real tensors and processes, for there is no torch (make real)")
        return
    fn, spec = next((fn, spec) for fn, spec in solutions() if spec["name"] == "ddp")
    first, _ = seconds(lambda: run(fn, **spec["size"], engine="processes"))
    later = min(seconds(lambda: run(fn, **spec["size"], engine="processes"))[0] for _ in range(5))
    print(f"ddp on 4 processes: first call {first:.2f} s, later ones {later:.2f} s")
    errors()
    faults()


if __name__ == "__main__":
    main()
