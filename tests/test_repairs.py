"""The programs that are to be repaired: what is wrong with each shows, and each solution holds."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lib import Model, PuzzleError, grade, run, solution
from lib.course.layouts import SIZES, check_layout
from lib.course.specs import puzzles
from lib.grading.submission import load
from lib.referee.shell import main
from solutions import build
from tests.programs import REPAIRS

SOURCE = build.ROOT / "solutions" / "repairs.py"
SAYS = {
    "repair_local": r"WeightGrad\(layer=1.*was not stored when rank 0 issued backward\(layer 0\)",
    "repair_skip": r"deadlock.*allreduce\(layer 1\) of all ranks, since.*; missing: rank 3.*rank 3 has finished",
    "repair_twice": r"micro-batches 0-3 are in more than one gradient, and would be counted twice",
    "repair_deadlock": r"deadlock.*rank 0 waits for receive.*rank 1 waits for receive",
    "repair_groups": r"update\(layer 1\): the gradient does not cover the weight",
}
"""The beginning of everything: what a learner reads first."""


def broken() -> dict[str, Callable[[Model], Any]]:
    text = build.as_text(build.notebook(SOURCE), indent=1)
    return load("repairs.ipynb", text)[0]


@pytest.mark.parametrize("name", REPAIRS)
def test_the_error_says_what_is_wrong_and_in_which_line(name: str) -> None:
    verdict = grade(broken()[name], seed=1)
    assert verdict.status == "FAIL"
    assert re.search(SAYS[name], verdict.message, re.DOTALL)
    assert f" in {name}" in verdict.message


@pytest.mark.parametrize("name", REPAIRS)
def test_the_mistake_is_one_at_any_size(name: str) -> None:
    wrong, puzzle = broken()[name], puzzles()[name]
    sizes = Random(5).sample(SIZES[puzzle.other_sizes](puzzle.size), 10)
    fails = 0
    for size in sizes:
        try:
            check_layout(puzzle.layout, size, run(wrong, **size).final_states)
        except PuzzleError:
            fails += 1
    # One layer and one micro-batch leave nothing to lose; with the pieces of one size groups may be swapped.
    assert fails >= 6


@pytest.mark.parametrize("name", REPAIRS)
def test_the_repaired_program_is_shown_alone(name: str) -> None:
    shown = str(solution(name, sure=True))
    code = re.findall("```python\n(.*?)\n```", shown, re.DOTALL)
    assert [re.findall(r"def (\w+)\(", block) for block in code] == [[name]]
    assert "BROKEN" not in shown and "# sums = {}" not in shown
    prose = shown.rsplit("```", 1)[1]
    assert len(prose) > 200  # what there is to say about it


@pytest.mark.process
def test_they_count_at_a_shell_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p00_basic.py").write_text("def basic(model):\n    return model\n")
    assert main(["grade", "-k", "basic or repair"]) == 1
    assert "0 of 1 puzzle passes" in capsys.readouterr().out
    assert main(["grade", "repair_skip"]) == 1  # named, it is asked for
    assert "TODO  puzzle 10" in capsys.readouterr().out
    shutil.copy(SOURCE, tmp_path)
    assert main(["grade", "-k", "repair"]) == 0
    assert f"{len(REPAIRS)} of {len(REPAIRS)} puzzles pass" in capsys.readouterr().out


@pytest.mark.process
def test_a_student_without_them_is_not_asked_for_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(SOURCE.parent, tmp_path / "ann", ignore=lambda _, names: set(names) - {"repairs.py"})
    (tmp_path / "bob.py").write_text("def basic(model):\n    return model\n")
    assert main(["grade", "--each", str(tmp_path), "-k", "basic or repair"]) == 1
    said = capsys.readouterr().out
    assert f"ann: {len(REPAIRS)} of {len(REPAIRS) + 1} puzzles pass" in said and "bob: 0 of 1 puzzle passes" in said


def test_each_has_a_message_to_look_for() -> None:
    assert sorted(REPAIRS) == sorted(SAYS)
