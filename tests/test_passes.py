"""Whose code passes where: every program of solutions/, renamed, in every puzzle, at all of its sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from lib import Model, run
from lib.course.layouts import Size
from lib.course.sketches import elsewhere
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading import judge
from lib.grading.submission import load
from lib.grading.verdict import PASS
from solutions import build

ONE_STAGE = "with one rank a pipeline is one stage, and its micro-batches are accumulated"
REPAIRED = "the repaired program is that of this puzzle"
MEANT = {
    ("grad_accum", "basic"): "the batch may travel in pieces",
    ("one_forward_one_backward", "basic"): ONE_STAGE,
    ("pipeline", "basic"): "with one rank a pipeline is plain training",
    ("pipeline of p06_gpipe", "basic"): "with one rank a pipeline is plain training",
    ("repair_local", "basic"): "the batch may travel in pieces",
    ("one_forward_one_backward", "grad_accum"): ONE_STAGE,
    ("repair_local", "grad_accum"): REPAIRED,
    ("repair_skip", "ddp"): "with as many micro-batches as ranks nobody is without one",
    ("fsdp", "wsdp"): "gradients in pieces are the better technique",
    ("fsdp_on_boxes", "wsdp"): "with one micro-batch a rank it is puzzle 4's program",
    ("pipeline_fsdp", "wsdp"): "with as many micro-batches as ranks there is one stage, and it is puzzle 4's program",
    ("fsdp_on_boxes", "fsdp"): "with one micro-batch a rank it is puzzle 4's program",
    ("pipeline_fsdp", "fsdp"): "with as many micro-batches as ranks there is one stage, and it is puzzle 4's program",
    ("pipeline of p06_gpipe", "pipeline"): "it is this puzzle's program, to be compared",
    ("gpipe", "pipeline"): "micro-batches one by one are the better schedule",
    ("one_forward_one_backward", "pipeline"): "micro-batches one by one are the better schedule",
    ("grad_accum", "repair_local"): REPAIRED,
    ("one_forward_one_backward", "repair_local"): ONE_STAGE,
    ("pipeline", "repair_deadlock"): "it is a pipeline of two stages",
    ("pipeline of p06_gpipe", "repair_deadlock"): "it is a pipeline of two stages",
    ("one_forward_one_backward", "repair_deadlock"): "a pipeline of two stages, with the better schedule",
}
"""(program, puzzle of another file): why it is meant to pass there."""


@cache
def programs() -> dict[str, tuple[str, Callable[[Model], Any]]]:
    """Every function of one model in solutions/, by its name, with the file that it is from."""
    found: dict[str, tuple[str, Callable[[Model], Any]]] = {}
    for path in filter(build.is_puzzle, build.sources(build.ROOT / "solutions")):
        for name, fn in load(path.name, path.read_text(encoding="utf-8"))[0].items():
            own = inspect.isfunction(fn) and fn.__module__ == "submission"
            if own and list(inspect.signature(fn).parameters) == ["model"]:
                found[f"{name} of {path.stem}" if name in found else name] = path.stem, fn
    return found


def passes(puzzle: Puzzle, fn: Callable[[Model], Any]) -> bool:
    def at(size: Size) -> Any:
        return run(fn, **size, cost=cost_named(puzzle.cost))

    return judge.judge(puzzle, at, 0).status == PASS


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sizes are drawn: an attempt has to hold at all of them."""
    monkeypatch.setattr(judge, "other_sizes", lambda puzzle, seed: elsewhere(puzzle))


@pytest.mark.parametrize("puzzle", puzzles().values(), ids=puzzles())
def test_who_passes_is_meant_to(everywhere: None, puzzle: Puzzle) -> None:
    passed = {name for name, (_, fn) in programs().items() if passes(puzzle, fn)}
    own = {name for name, (file, _) in programs().items() if file == puzzle.file and not puzzle.repair} | {puzzle.name}
    meant = {program for program, where in MEANT if where == puzzle.name}
    assert puzzle.name in passed
    assert passed - own == meant
