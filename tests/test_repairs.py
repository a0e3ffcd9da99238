"""The programs that are to be repaired: what is wrong with each shows, and each solution holds."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any

import pytest

from drawing import draw
from lib import Model, PuzzleError, grade, run, solution
from lib.course.layouts import check_layout
from lib.course.sizes import other_sizes
from lib.course.specs import cost_named, puzzles
from lib.grading.submission import load
from lib.referee.shell import main
from solutions.build.notebooks.notebook import notebook_of
from solutions.build.sources.files import ROOT, as_text
from tests.programs import COURSE, REPAIRS, TOO_MUCH, TRAINS

SOURCE = ROOT / "solutions" / "repairs.py"
OVER = "Correct at this size, but over the target: "
SAYS = {
    "repair_local": r"the weight gradient of layer 1, .*was not stored when rank 0 issued backward\(layer 0\)",
    "repair_skip": r"deadlock.*allreduce\(layer 1\) of all ranks, since.*; missing: rank 3.*rank 3 has finished",
    "repair_twice": r"micro-batches 0-3 would be counted more than once",
    "repair_deadlock": r"deadlock.*rank 0 waits for receive.*rank 1 waits for receive",
    "repair_groups": r"update\(layer 1\): the gradient is missing shards that the weight has",
    "repair_quiet": r"right at its own size, but not with .*(is out of range|is missing micro-batch)",
    "repair_bargain": OVER + r"3,276,800 elements, target 2,359,296 \(.* weights 1,966,080, ",
    "repair_book": OVER + r"112.4 ticks, target 64.4$",
    "repair_straggler": OVER + r"50.1 ticks, target 45.7$",
    "repair_experts": r"allreduce\(layer 3\), of all ranks: gradients of different shards do not add up\n",
    "repair_zigzag": r"rest\(layer 0\), .*the queries have not attended to slice \{1-6\} of 8\n",
    "repair_ring": r"deadlock.*rank 0: its first call is the send to rank 1, .*a receive that rank 1 has not posted",
    "repair_handshake": r"deadlock.*rank 2: its first call is the send to rank 3.*rank 3: .* the send to rank 2",
    "repair_deferred": r"deadlock.*rank 0: its first call is the send to rank 1.*rank 1: .* the send to rank 0",
    "repair_crosswise": r"deadlock.*rank 0 waits for .* of row: ranks 0, 2.*rank 1 waits for .* of column: ranks 0, 1",
    "repair_rows": r"the final weights of layers 0, 2 on ranks 0-3 \(copies differ\) are not what plain training",
    "repair_ends": r"the final weights of layer 0 on ranks 0, 3 \(copies differ\) are not what plain training",
    "repair_copies": r"the final weights of layers 1, 3 on ranks 0-7 \(copies differ\) are not what plain training",
    "repair_mean": r"the final weights of layers 1, 3 on ranks 0-3 are not what plain training",
    "repair_safe": r"the final weights of layers 0, 2 on ranks 0-3 \(copies agree\) are not what plain training",
}
"""The beginning of everything: what a learner reads first."""


def broken() -> dict[str, Callable[[Model], Any]]:
    text = as_text(notebook_of(SOURCE), indent=1)
    return load("repairs.ipynb", text)[0]


@pytest.mark.parametrize("name", REPAIRS)
def test_the_error_says_what_is_wrong_and_in_which_line(name: str) -> None:
    verdict = grade(broken()[name])
    assert verdict.status == "FAIL"
    assert re.search(SAYS[name], verdict.message, re.DOTALL)
    assert verdict.right == (name in TOO_MUCH)
    if puzzles()[name].size.get("quiet"):  # it names layers and ranks, and no line: a line is asked for
        assert not verdict.error.line and verdict.explanation is not None and not verdict.explanation.look_at
    else:
        own = [name, *[one.co_name for one in broken()[name].__code__.co_consts if isinstance(one, CodeType)]]
        assert name in TOO_MUCH or any(f" in {one}" in verdict.message for one in own)


def test_a_deadlock_is_explained_by_the_calls_that_hold_the_ranks_up() -> None:
    verdict = grade(broken()["repair_deferred"])
    above, below = verdict._repr_html_().split("<details>")  # all ranks are below the fold
    assert "until rank 1 posts" in above and "its first call" not in above and "its first call" in below
    explanation = verdict.explanation
    assert explanation is not None and explanation.reference == "solution"
    calls = [one.facts["call"] for one in explanation.given]
    assert [(call.rank, call.kind, call.peer) for call in calls] == [(0, "pass_to", 1), (1, "pass_to", 0)]


@pytest.mark.parametrize("name", [name for name in REPAIRS if name not in TOO_MUCH])
def test_the_mistake_is_one_at_any_size(name: str) -> None:
    wrong, puzzle = broken()[name], puzzles()[name]
    several = [one for one in other_sizes(puzzle.other_sizes, puzzle.size) if one["ranks"] > (puzzle.size["ranks"] > 1)]
    sizes = Random(5).sample(several, min(10, len(several)))
    fails = 0
    for size in sizes:
        try:
            done = run(wrong, **size)
            done.verify()
            check_layout(puzzle.layout, size, done.final_states)
        except PuzzleError:
            fails += 1
    # One layer and one micro-batch leave nothing to lose; with the pieces of one size groups may be swapped.
    assert fails >= 6


@pytest.mark.parametrize("name", [name for name in REPAIRS if puzzles()[name].size.get("quiet")])
def test_a_quiet_program_comes_to_its_end_and_only_its_values_tell(name: str) -> None:
    puzzle = puzzles()[name]
    assert run(broken()[name], **puzzle.size, cost=cost_named(puzzle.cost)).size["quiet"] is True
    with pytest.raises(PuzzleError) as error:
        run(broken()[name], **{**puzzle.size, "quiet": False}, cost=cost_named(puzzle.cost))
    assert error.value.rule in ("missing_part", "counted_twice", "wrong_count", "layer_mismatch")


@pytest.mark.parametrize("name", TRAINS)
def test_a_quiet_mistake_lets_the_program_train_the_model(name: str) -> None:
    puzzle = puzzles()[name]
    done = run(broken()[name], **puzzle.size, cost=cost_named(puzzle.cost))
    done.check()
    check_layout(puzzle.layout, puzzle.size, done.final_states)
    assert "until it failed" not in draw(done).svg()
    for figure in ("time", "memory"):
        assert (getattr(done, figure) > puzzle.target[figure]) == (TOO_MUCH.get(name) == figure)


@pytest.mark.process
def test_they_are_asked_for_at_a_shell_by_number_or_name_and_their_numbers_are_in_every_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r1").write_text("a file of that name is not meant")
    (tmp_path / "p02_ddp.py").write_text("def ddp(model):\n    return model\n")
    assert main(["grade", "r1", "2", "--json", "all.json", "--gradescope", "results.json"]) == 1
    assert re.findall(r"(?m)^TODO  puzzle (\w+)", capsys.readouterr().out) == ["2", "R1"]
    results = json.loads((tmp_path / "all.json").read_text())["results"]
    assert [one["number"] for one in results] == [2, "R1"]  # that of a puzzle is a number
    tests = json.loads((tmp_path / "results.json").read_text())["tests"]
    assert [one["number"] for one in tests] == ["2", "R1"]
    assert [one["name"].split(":")[0] for one in tests] == ["Puzzle 2", "Puzzle R1"]
    assert main(["grade"]) == main(["grade", "repair_skip"]) == 1
    told = capsys.readouterr().out
    assert f"0 of {len(COURSE)} puzzles pass" in told and "TODO  puzzle R6" in told  # named, it is asked for
    assert main(["grade", "--hint", "R1"]) == 0 and main(["grade", "--list"]) == 0
    assert re.findall(r"(?m)^( \d|\d\d|R\d+) +\w", capsys.readouterr().out) == [
        *(f"{puzzles()[name].number:>2}" for name in COURSE),
        *(puzzles()[name].number for name in REPAIRS),
    ]


@pytest.mark.parametrize("name", REPAIRS)
def test_the_repaired_program_is_shown_alone(name: str) -> None:
    shown = str(solution(name, sure=True))
    code = re.findall("```python\n(.*?)\n```", shown, re.DOTALL)
    assert [re.findall(r"^(?:async )?def (\w+)\(", block, re.MULTILINE) for block in code] == [[name]]
    assert "BROKEN" not in shown and "# sums = {}" not in shown
    prose = shown.rsplit("```", 1)[1]
    assert len(prose) > 200  # what there is to say about it


@pytest.mark.process
@pytest.mark.slow
def test_a_student_without_them_is_not_asked_for_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(SOURCE.parent, tmp_path / "ann", ignore=lambda _, names: set(names) - {"repairs.py"})
    (tmp_path / "bob.py").write_text("def basic(model):\n    return model\n")
    assert main(["grade", "--each", str(tmp_path)]) == 1
    said, many = capsys.readouterr().out, len(REPAIRS)
    assert f"ann: {many} of {len(COURSE) + many} puzzles and repairs pass" in said
    assert f"bob: 0 of {len(COURSE)} puzzles pass" in said and "\npuzzle R6  repair_skip: 1 of 1 pass\n" in said
