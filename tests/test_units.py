"""Of a run with the prices of a cluster, whatever shows it tells seconds and bytes, and never ticks or elements."""

import html
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any

import pytest

from drawing import beside_target, compare, draw, draw_group, perfetto, play
from drawing.ink.trace import trace_of
from drawing.playing.playback import playback
from lib import PuzzleError, Run, hint, run
from lib.course.specs import cost_named, puzzles
from lib.grading.judge import over_target
from lib.grading.submission import load
from lib.real import A100_MEGATRON, Transformer, report
from solutions.p02_ddp import ddp
from solutions.p04_fsdp import fsdp
from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p16_zero_bubble import zero_bubble
from solutions.p18_sequence_parallel import sequence_parallel
from solutions.p19_buckets import buckets
from solutions.p22_offload import offload
from solutions.p23_lora import lora
from tests.corpus import changed
from tests.failures import CASES, Case
from tests.slow import some

SMALL = Transformer(12, 1024, 16, 512, 8192, tied=True, name="small")
COST = A100_MEGATRON.cost(SMALL, recompute="full", adapter_rank=None)
OF_TICKS = re.compile(r"[^.;<>]{0,60}\b(?:ticks?|elements?)\b[^.;<>]{0,40}", re.IGNORECASE)
RUNS: list[tuple[Any, dict[str, Any]]] = [
    (ddp, {"ranks": 4, "layers": 12, "batches": 4}),
    (fsdp, {"ranks": 16, "layers": 6, "batches": 16, "node_size": 4}),
    (one_f_one_b, {"ranks": 4, "layers": 4, "batches": 8}),
    (zero_bubble, {"ranks": 2, "layers": 4, "batches": 4}),
    (sequence_parallel, {"ranks": 4, "layers": 3, "batches": 1}),
    (buckets, {"ranks": 4, "layers": 12, "batches": 4, "node_size": 2}),
    (offload, {"ranks": 1, "hosts": 1, "layers": 6, "batches": 2}),
    (lora, {"ranks": 2, "layers": 6, "batches": 2, "train": "adapters"}),
]


def printed(of: Callable[[], object]) -> str:
    said = io.StringIO()
    with redirect_stdout(said):
        of()
    return said.getvalue()


def ways(done: Run) -> Iterator[tuple[str, str]]:
    """What shows a run, each with a name, as text. Of a page that plays it without the page's own code."""
    trace = trace_of(done)
    yield "repr", repr(done)
    yield "print", str(done)
    if done.unit.name == "s":
        yield "report", report(done)
    yield "draw", draw(done)._repr_html_()
    yield "draw, 400 pixels a rank", draw(done.models, width=600, links="all")._repr_html_()
    yield "draw, a target", draw(done, time_target=0.001, memory_target=1e6)._repr_html_()
    yield "draw, a rank", draw(done.models[0])._repr_html_()
    yield "compare", compare(done, done, titles=["one", "two"])._repr_html_()
    yield "play", json.dumps(playback(trace, [], ""))
    page = html.unescape(play(done)._repr_html_())
    yield "play, its picture", page[page.index("<svg") : page.index("</svg>")]
    yield "perfetto", str(perfetto(done))
    for model in done.models[:2]:
        for name in ("weights", "opt_states", "activations", "grad_weights", "grad_activations"):
            yield name, draw_group(getattr(model, name))._repr_html_()
        yield "status", printed(model.status)


def no_ticks(shown: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """The texts that tell ticks or elements."""
    without = re.compile(r"<style>.*?</style>", re.DOTALL)
    return [(name, found[0]) for name, text in shown if (found := OF_TICKS.search(without.sub("", text)))]


@pytest.mark.long
@pytest.mark.parametrize(("fn", "size"), some(RUNS, 3), ids=lambda value: getattr(value, "__name__", ""))
def test_whatever_shows_a_run_on_a_cluster_tells_seconds_and_bytes(fn: Any, size: dict[str, Any]) -> None:
    rank = 8 if size.get("train") == "adapters" else None
    done = run(fn, **size, cost=A100_MEGATRON.cost(SMALL, recompute="full", adapter_rank=rank))
    done.check()
    shown = [*ways(done), ("chain", draw(done, chain=True)._repr_html_())]
    assert no_ticks(iter(shown)) == []
    told = dict(shown)
    assert f"{done.time:.4g} s" in told["repr"] and re.search(r"\d [KMG]B\b", told["draw"])
    # The same run in ticks is told in ticks and elements: so the words would be found.
    plain = run(fn, **size)
    found = {name for name, _ in no_ticks(ways(plain))}
    assert found >= {"repr", "print", "draw", "compare", "perfetto", "status"}


@pytest.mark.parametrize(
    "case", [case for case in CASES if "endless" not in case.fn.__name__], ids=lambda case: case.fn.__name__
)
def test_whatever_shows_a_run_that_failed_tells_seconds_and_bytes(case: Case) -> None:
    size = {"ranks": 4, "layers": 2, "batches": 4, **case.size}
    with pytest.raises(PuzzleError) as caught:
        run(case.fn, **size, cost=COST)
    error, done = caught.value, caught.value.run
    assert done is not None and done.failed
    shown = [("error", str(error)), ("briefly", str(getattr(error, "briefly", ""))), *ways(done)]
    assert no_ticks(iter(shown)) == []
    if any(" since " in sentence for sentence in case.sentences):
        assert re.search(r"since \d[\d.e-]* s\b", str(done))


def test_a_target_in_ticks_is_none_for_a_run_in_seconds() -> None:
    done = run(fsdp, ranks=4, layers=6, batches=4, cost=COST)
    with pytest.raises(PuzzleError, match=r"the target is in ticks, and this run is in s\n.*own prices"):
        beside_target(done)


@pytest.mark.long
def test_a_picture_says_of_a_puzzle_in_seconds_what_the_grader_says() -> None:
    """There 15.3 seconds are 15: no red figure where the verdict is a pass."""
    puzzle = puzzles()["compose"]
    out = "out = model.forward(layer, model.activations[layer, mb], model.weights[layer])"
    again = f"for _ in range(8 if layer == mb == 0 else 1):\n            {out}"  # seven of them for nothing
    compose = load("late.py", changed("compose", "late", (out, again)).source)[0]["compose"]
    done = run(compose, **puzzle.size, cost=cost_named(puzzle.cost))
    assert puzzle.target["time"] < done.time < puzzle.target["time"] + 0.5
    assert over_target(done, puzzle) == ""  # so the grader says
    trace = trace_of(done)
    assert (trace.fast_enough, trace.small_enough) == (True, True)
    assert "the longest chain" not in draw(done).svg()
    own = trace_of(done, time_target=float(puzzle.target["time"]))  # a target of one's own is meant to the last digit
    assert own.fast_enough is False


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_hint_of_a_puzzle_in_seconds_tells_seconds(number: int) -> None:
    told = str(hint("compose", number))
    assert not OF_TICKS.findall(told)
    assert ("\nsecond  0 " in told) == (number == 2)
