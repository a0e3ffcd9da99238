"""Verdicts, rules of form, progress and the notebook's grade."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import types
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import lib
from lib import Model, PuzzleError, grade, hint, progress, run, solution
from lib.course.layouts import LAYOUTS, SIZES, corners
from lib.course.rules import RULES
from lib.course.sketches import elsewhere
from lib.course.specs import Puzzle, puzzles
from lib.grading import page, seal
from lib.grading.judge import judge, other_sizes
from lib.grading.progress import Progress
from lib.grading.verdict import ERROR, FAIL, PASS, TODO, Report, Verdict
from lib.record.table import OPERATIONS
from tests.programs import COURSE, solutions

SOLUTIONS = {spec["name"]: fn for fn, spec in solutions()}


# -- the judge ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOLUTIONS)
def test_solutions_pass_in_a_notebook(name: str) -> None:
    verdict = grade(SOLUTIONS[name], seed=5)
    assert (verdict.status, verdict.right, verdict.seed) == (PASS, True, 5)
    assert len(verdict.held_at) == len(other_sizes(puzzles()[name], 5)) >= 2


@pytest.mark.parametrize("name", SOLUTIONS)
def test_other_sizes_are_others_none_twice_and_run(name: str) -> None:
    puzzle = puzzles()[name]
    for seed in range(30):
        sizes = [there.size for there in other_sizes(puzzle, seed)]
        assert 2 <= len(sizes) <= 10 and puzzle.size not in sizes
        assert all(sizes.count(size) == 1 for size in sizes)
        assert sizes == [there.size for there in other_sizes(puzzle, seed)]
        for count in ("ranks", "layers", "batches"):
            all_of_them = {there.size[count] for there in elsewhere(puzzle)}
            assert {min(all_of_them), max(all_of_them)} <= {size[count] for size in sizes}, (count, seed)
        known = [there.size for there in elsewhere(puzzle)]
        for extreme in set[object]().union(*corners(known)):
            assert any(extreme in corners(known)[known.index(size)] for size in sizes), (extreme, seed)


def test_every_word_of_a_spec_is_known() -> None:
    used = {rule for puzzle in puzzles().values() for rule in puzzle.rules}
    assert used == RULES.keys()  # and no rule is there for nothing
    assert {puzzle.layout for puzzle in puzzles().values()} == LAYOUTS.keys()
    assert {puzzle.other_sizes for puzzle in puzzles().values()} == SIZES.keys()


def test_right_at_one_size_only_names_the_size_that_broke_it() -> None:
    def basic(model: Model) -> None:
        if model.LAYERS == 2:
            SOLUTIONS["basic"](model)

    verdict = grade(basic, seed=1)
    assert verdict.status == FAIL and verdict.right is False
    assert f"right at its own size, but not with {verdict.failed_at}" in verdict.message
    assert verdict.time == 17.0 and verdict.seed == 1


def test_right_but_slow_is_said_to_be_right() -> None:
    async def wsdp(model: Model) -> None:
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
        for layer in range(model.LAYERS):
            await model.allgather(model.weights[layer], layer)
        await SOLUTIONS["fsdp"](Reloaded(model))

    verdict = grade(wsdp, seed=1)
    assert (verdict.status, verdict.right) == (FAIL, True)
    assert "over the target: 22.2 ticks, target 20.4" in verdict.message


class Reloaded:
    """A model whose weights are loaded already."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def load_weights(self, layer: int, shard: int = 0, total: int = 1) -> Any:
        return self.model.weights[layer], self.model.opt_states[layer]


def test_the_grader_says_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("lib.grading.notebook.judge", fails)
    monkeypatch.setattr("lib.grading.notebook.broken_seal", lambda: "")
    verdict = grade(SOLUTIONS["basic"])
    assert verdict.status == ERROR and "the grader failed: ZeroDivisionError: oh" in verdict.message


def test_rules_of_form() -> None:
    def both_at_once(model: Model) -> None:
        SOLUTIONS["basic"](model)

    outcome = run(both_at_once, layers=2, batches=2)
    with pytest.raises(PuzzleError, match=r"rank 0, forward\(layer 0\), at tick 0: it works on micro-batches {0, 1}"):
        RULES["one_micro_batch"](outcome)
    RULES["one_micro_batch"](run(SOLUTIONS["grad_accum"], layers=2, batches=2))

    size = {"ranks": 2, "layers": 2, "batches": 2}
    RULES["own_layers"](run(SOLUTIONS["gpipe"], **size))
    with pytest.raises(PuzzleError, match="runs layer 1, whose weight it has not loaded"):
        RULES["own_layers"](run(sends_weights, **size))

    with pytest.raises(PuzzleError, match=r"rank 0.*it runs 2 of 4 layers"):
        RULES["four_stages"](run(SOLUTIONS["fsdp"], ranks=2, layers=4, batches=2))
    RULES["four_stages"](run(SOLUTIONS["pipeline_fsdp"], ranks=16, layers=8, batches=4))


async def sends_weights(model: Model) -> None:
    model.weights[model.rank], _ = model.load_weights(model.rank)
    model.activations[0] = model.get_activation([model.rank])
    await model.pass_to(1 - model.rank, model.weights[model.rank])
    model.weights[1 - model.rank] = await model.receive()
    for layer in range(2):
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])


def test_a_form_fells_a_verdict() -> None:
    def pairs(model: Model) -> None:
        if model.LAYERS == 2 and model.BATCHES == 4:
            SOLUTIONS["grad_accum"](model)
        else:
            SOLUTIONS["basic"](model)

    verdict = judge(puzzles()["grad_accum"], lambda size: run(pairs, **size), 3)
    assert verdict.status == FAIL and "one micro-batch after the other" in verdict.message


# -- tampering in a notebook: refused where that is cheap ---------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (lib.learner.model.Model, "load_weights", lambda *a: None),
        (lib.machine.books.LocalBooks, "compute", lambda *a: None),
        (lib.machine.check, "check_finals", lambda *a: False),
        (lib.grading.judge, "check", lambda *a: None),
        (lib.machine.rank_state.RankState, "sample", lambda *a: ()),
        (lib.record.score, "makespan", lambda *a: 0.0),
    ],
)
def test_a_changed_library_is_seen(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: Any) -> None:
    monkeypatch.setattr(owner, name, value)
    verdict = grade(SOLUTIONS["basic"])
    assert verdict.status == FAIL and name in verdict.message and "restart the kernel" in verdict.message


def test_a_changed_table_of_operations_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    row = OPERATIONS["update"]
    monkeypatch.setitem(OPERATIONS, "update", OPERATIONS["forward"])
    assert seal.broken_seal() == "operation update"
    monkeypatch.undo()
    monkeypatch.setitem(vars(row), "rule", lambda *a: None)
    assert seal.broken_seal() == "operation update.rule"


def test_changed_builtins_and_code_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seal.broken_seal() == ""
    monkeypatch.setattr("builtins.len", lambda thing: 1)
    assert seal.broken_seal() == "len"
    monkeypatch.undo()
    code = lib.machine.check.check_finals.__code__
    try:
        lib.machine.check.check_finals.__code__ = (lambda final_states: False).__code__
        assert "check_finals.__code__" in seal.broken_seal()
    finally:
        lib.machine.check.check_finals.__code__ = code
    assert seal.broken_seal() == ""


# -- faces ----------------------------------------------------------------------------------------------


def verdicts() -> list[Verdict]:
    one, two, three, four = list(puzzles().values())[:4]
    return [
        Verdict(one, PASS, "Correct", True, 17.0, 2621440, 0.25, 7, ("1 rank",)),
        Verdict(two, FAIL, "rank 0: <b>wrong</b>\n  expected: &", False, next_hint='hint("x")'),
        Verdict(three, TODO, "not attempted yet"),
        Verdict(four, ERROR, "the grader failed"),
    ]


def test_tables_are_tables_and_say_the_status_in_a_word() -> None:
    for verdict in verdicts():
        html = page.table(verdict)
        root = ElementTree.fromstring(f"<div>{html}</div>")
        table = root.find("table")
        assert table is not None
        caption = table.find("caption")
        assert caption is not None and verdict.status in "".join(caption.itertext())
        assert all(head.get("scope") == "row" for head in table.iter("th"))
        assert not re.search(r"<script|https?:|url\(|src=", html)
        assert (root.find("svg") is not None) == (verdict.status == PASS)
    assert "&lt;b&gt;wrong" in page.table(verdicts()[1])


def test_text_is_complete_and_plain() -> None:
    text = page.report_text(Report(verdicts(), "nowhere"))
    for word in (
        PASS,
        FAIL,
        TODO,
        ERROR,
        "1 of 4 puzzles pass",
        "17 ticks",
        "25 percent",
        'hint("x")',
        "Graded nowhere",
    ):
        assert word in text
    assert "\033" not in text
    colored = page.report_text(Report(verdicts()), color=True)
    assert "\033[32mPASS \033[0m" in colored
    assert re.sub(r"\033\[\d+m", "", colored) == page.report_text(Report(verdicts()))


def contrast(color: str, other: str) -> float:
    def luminance(code: str) -> float:
        parts = [int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(color), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_badges_can_be_read() -> None:
    assert all(contrast(color, "#ffffff") >= 4.5 for color in page.COLORS.values())


# -- progress -------------------------------------------------------------------------------------------


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As in a notebook whose kernel runs in an empty folder."""
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM_TRAINING_PUZZLES_PROGRESS", raising=False)
    return tmp_path


def slow_basic(model: Model) -> None:
    SOLUTIONS["grad_accum"](model)


def test_the_best_so_far_is_kept(kernel: Path) -> None:
    def wrong(model: Model) -> None:
        model.load_weights(9)

    assert f"0 of {len(COURSE)} puzzles solved" in str(progress())
    grade(wrong, "basic")
    assert progress().best["basic"]["status"] == FAIL
    grade(SOLUTIONS["basic"])
    assert progress().best["basic"] == {"status": PASS, "time": 17.0, "memory": 2621440}
    grade(slow_basic, "basic")  # as fast, and smaller
    assert progress().best["basic"]["memory"] == 1966080
    grade(SOLUTIONS["basic"])
    grade(wrong, "basic")
    grade(lambda model: model, "fsdp")  # not attempted: nothing to keep
    assert progress().best == {"basic": {"status": PASS, "time": 17.0, "memory": 1966080}}
    shown = str(progress())
    assert f"Progress: 1 of {len(COURSE)} puzzles solved" in shown and "1,966,080" in shown
    root = ElementTree.fromstring(f"<div>{progress()._repr_html_()}</div>")
    assert len(root.findall("table/tbody/tr")) == len(puzzles()) and {th.get("scope") for th in root.iter("th")} == {
        "row",
        "col",
    }


def test_outside_a_notebook_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    grade(SOLUTIONS["basic"])
    hint("basic")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "broken",
    ["", "{", "[]", "null", '{"version": 1}', '{"version": 9, "best": {}, "hints": {}}', "\x00" * 100, "[" * 100_000,
     '{"version": 1, "best": {"basic": {"status": "PASS", "time": "x", "memory": 1}}, "hints": {}}'],
)  # fmt: skip
def test_a_broken_file_is_set_aside_and_said(kernel: Path, broken: str) -> None:
    (kernel / "progress.json").write_text(broken)
    found = progress()
    assert "was broken; it is kept as progress-broken-" in str(found)
    aside = [path for path in kernel.iterdir() if path.name.startswith("progress-broken-")]
    assert [path.read_text() for path in aside] == [broken]
    grade(SOLUTIONS["basic"])
    assert json.loads((kernel / "progress.json").read_text())["best"]["basic"]["status"] == PASS


def test_what_cannot_be_saved_is_said_and_nothing_else_stops(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    verdict = grade(SOLUTIONS["basic"])
    assert verdict.status == PASS and "could not be saved (No space left on device)" in str(verdict)
    assert list(kernel.iterdir()) == []  # no half a file


def test_a_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_TRAINING_PUZZLES_PROGRESS", str(tmp_path))
    kept = Progress()
    kept.record(verdicts()[0])
    assert (tmp_path / "progress.json").exists()


# -- solutions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("puzzle", list(puzzles().values()), ids=list(puzzles()))
def test_a_solution_is_shown_to_who_is_sure(puzzle: Puzzle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_TRAINING_PUZZLES_PROGRESS", str(tmp_path))
    asked = str(solution(puzzle.name))
    assert "sure=True" in asked and "hint(" in asked
    assert "model.load_weights" not in asked
    shown = str(solution(puzzle.name, sure=True))
    code = re.findall("```python\n(.*?)\n```", shown, re.DOTALL)
    assert re.search(rf"def {puzzle.name}\(model", code[0])
    assert "SOLUTION" not in shown
    for block in code:
        ast.parse(block)


def test_a_solution_is_shown_after_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress.json"
    monkeypatch.setenv("LLM_TRAINING_PUZZLES_PROGRESS", str(tmp_path))
    best = {"fsdp": {"status": "PASS", "time": 20.4, "memory": 1966080}}
    path.write_text(json.dumps({"version": 1, "best": best, "hints": {}}), encoding="utf-8")
    assert "async def fsdp" in str(solution("fsdp"))
    assert "sure=True" in str(solution("ddp"))


def test_where_there_are_no_solutions_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.grading.notebook.SOLUTIONS", tmp_path)
    with pytest.raises(PuzzleError, match="is not here"):
        solution("fsdp", sure=True)
    with pytest.raises(PuzzleError, match="did you mean 'fsdp'"):
        solution("fdsp")


# -- what a verdict says that beginners asked for ------------------------------------------------


def test_over_the_target_it_says_where_memory_is_highest_and_what_it_is() -> None:
    def kept(model: Model) -> Model:
        model.activations["again"] = model.get_activation(range(4))
        model.activations["more"] = model.get_activation(range(4))
        return SOLUTIONS["basic"](model)

    assert re.search(
        r"over the target: [\d,]+ elements, target 2,621,440 \(on rank 0 at tick 8, when loss\(layer 2\) began: "
        r"weights 524,288, opt states 524,288, activations [\d,]+\)",
        grade(kept, "basic").message,
    )


def test_a_state_that_was_not_updated_is_told_with_its_cure() -> None:
    def basic(model: Model) -> Model:
        SOLUTIONS["basic"](model)
        for layer in range(model.LAYERS):
            del model.opt_states[layer]
        return model

    message = grade(basic).message
    assert "ends with (stored after its update)" in message
    assert "instead:  model.weights[0], model.opt_states[0] = model.update(0, ...)" in message


def test_better_than_the_best_known_in_one_way_is_said() -> None:
    from solutions.p02_ddp import ddp_overlap

    assert grade(ddp_overlap, "ddp").message == "Correct, within the target, and faster than the best known."
