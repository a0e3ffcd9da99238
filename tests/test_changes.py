"""One small change that makes a wrong program right: what is tried, what is found, and what is left alone."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lib import grade
from lib.course.specs import puzzles
from lib.grading.answers import answer_in
from lib.grading.changes import tried
from lib.grading.changes.edits import edits
from lib.grading.changes.program import Cell, Program
from lib.grading.changes.reached import reached
from lib.grading.changes.text import whole_statements
from lib.grading.notebook import ShownVerdict
from lib.grading.submission import load_quietly
from lib.grading.verdict import FAIL, PASS
from tests.programs import REPAIRS, SOLUTIONS
from tests.test_fixes_ends import TO_0
from tests.test_fixes_named import LISTS, STAGES
from tests.test_fixes_sums import COUNTED
from tests.test_repairs import broken

ROOT = Path(__file__).parent.parent


def source_of(file: str) -> str:
    """The solution of a puzzle, with what it needs and nothing else."""
    text = (ROOT / "solutions" / f"{file}.py").read_text(encoding="utf-8")
    return f"from lib import Model\n\n\n{answer_in([text], file.partition('_')[2])}\n"


def slipped(file: str, right: str, wrong: str) -> str:
    """A solution in which something is written otherwise, where it stands first."""
    source = source_of(file)
    assert right in source
    return source.replace(right, wrong, 1)


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search as long as it takes: what is found does not depend on how fast the machine is."""
    monkeypatch.setattr(tried, "SECONDS", 600.0)


def module_of(folder: Path, text: str, name: str = "attempt") -> ModuleType:
    """A file of a learner's, imported as a script imports its own."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- what is tried ------------------------------------------------------------------------------------


def cell_of(file: str) -> Cell:
    """The cell of a solution's function."""
    names = load_quietly("attempt.py", source_of(file)).names
    program = Program.of(names[file.partition("_")[2]], names)
    assert program is not None
    [cell] = program.cells
    return cell


@pytest.mark.parametrize("file", SOLUTIONS)
def test_a_change_is_of_one_place_and_moves_no_other_line(file: str) -> None:
    _, source, wanted = cell_of(file)
    found = edits(source, wanted)
    assert len(found) > 50
    assert len({edit.of(source) for edit in found} | {source}) > 0.8 * len(found)
    for edit in found:
        assert 0 <= edit.start <= edit.end <= len(source)
        added = edit.start == edit.end  # a line that is lacking
        assert not edit.words or edit.of(source).count(b"\n") == source.count(b"\n") + added, edit
    some = found[:: len(found) // 40]
    assert sum(_compiles(edit.of(source)) for edit in some) > 0.9 * len(some)


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "changed", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def test_lines_near_the_error_come_first() -> None:
    text = source_of("p04_fsdp")
    line = next(at for at, row in enumerate(text.split("\n"), 1) if "scatterreduce" in row)
    found = sorted(edits(text.encode(), ["fsdp"]), key=lambda edit: edit.order([line]))
    near = [edit.line == line for edit in found]
    assert any(near) and near == sorted(near, reverse=True)


def test_the_order_of_two_calls_comes_before_any_number() -> None:
    text = "async def f(model):\n    a, b = up(1), down(2)\n    await up(a)\n    await down(b)\n    return a.pop()\n"
    found = sorted(edits(text.encode(), ["f"]), key=lambda edit: edit.order([]))
    said = [edit.words or edit.text for edit in found]
    exchanged = "exchange line 3, `await up(a)` and line 4, `await down(b)`"
    assert said[:4] == ["down(2), up(1)", exchanged, "a.popleft()", "a.pop(0)"]


@pytest.mark.parametrize(
    "line, odd",
    [
        ("model.grad_weights[k] = model.fake_grad(k, [])", "grad_weights[k + 1]"),
        ("w = model.weights[k] = x", "weights[own]"),
        ("n = range(k * m + m - 1)", "(m + 1) - 1"),
    ],
)
def test_nobody_means_the_key_of_another_layer_or_of_several(line: str, odd: str) -> None:
    text = f"def f(model, own, m):\n    for k in own:\n        model.weights[m] = 1\n        {line}\n"
    assert not any(odd in edit.of(text.encode()).decode() for edit in edits(text.encode(), ["f"]))


def test_letters_of_several_bytes_are_no_trouble() -> None:
    text = 'async def f(model):\n    print("größer", model.rank - 1)  # ö\n    return 2\n'
    texts = {edit.of(text.encode()).decode() for edit in edits(text.encode(), ["f"])}
    assert text.replace("model.rank - 1", "model.rank + 1") in texts
    assert all('"größer"' in one or "pass" in one for one in texts)


def test_a_statement_of_several_lines_is_named_with_all_of_them() -> None:
    text = (
        "def f(model):\n    a = model.load(\n        0,\n    )\n    b = 1\n    while b:\n        b = a\n    return b\n"
    )
    words = {edit.words for edit in edits(text.encode(), ["f"])}
    assert "exchange lines 2 to 4, `a = model.load(` and line 5, `b = 1`" in words
    assert "leave out line 6, `while b:` with what is below it" in words


def test_nobody_means_an_odd_change() -> None:
    text = "async def f(model, n):\n    if not n and model.rank:\n        await asyncio.sleep(0)\n    return n < 1\n"
    texts = [edit.of(text.encode()).decode() for edit in edits(text.encode(), ["f"])]
    assert not any(
        odd in one
        for one in texts
        for odd in ("n < n", "return 1 < 1", "n + 1 and", "n - 1 and", "n + 1) and", "rank + 1:", "sleep(1)", "if True")
    )
    assert any("return n <= 1" in one for one in texts)


@pytest.mark.parametrize("starts", ["calls.append(model.allreduce(g, 0))", "calls[i] = model.scatterreduce(g, i)"])
def test_nobody_means_to_await_a_call_as_soon_as_it_is_made(starts: str) -> None:
    text = f"async def f(model, g, calls):\n    for i in range(9):\n        await settle()\n        {starts}\n"
    assert not any("exchange" in edit.words for edit in edits(text.encode(), ["f"]))
    text = text.replace("model.", "await model.")
    assert any("exchange" in edit.words for edit in edits(text.encode(), ["f"]))


# -- what is found ------------------------------------------------------------------------------------

SLIPS = [  # file of the solution, what stands there, what a learner wrote, and what the verdict then says
    ("p03_wsdp", "range(model.LAYERS)", "range(1, model.LAYERS)", "range(0, model.LAYERS)"),
    ("p04_fsdp", "model.scatterreduce(", "model.allreduce(", "model.scatterreduce("),
    ("p05_pipeline", "model.rank + 1", "model.rank - 1", "model.rank + 1"),
    ("p06_gpipe", "reversed(range(first, end))", "range(first, end)", "reversed(range(first, end))"),
    ("p02_ddp", "await model.allreduce(", "model.allreduce(", "await model.allreduce("),
    ("p10_zero2", "].shard(model.rank", "].shard(layer % model.RANKS", "].shard(model.rank, model.RANKS)"),
    ("p09_zero1", "].shard(model.rank", "].shard(layer % model.RANKS", "].shard(model.rank, model.RANKS)"),
]


@pytest.mark.parametrize(("file", "right", "wrong", "says"), SLIPS, ids=[f"{slip[0]}: {slip[2]}" for slip in SLIPS])
@pytest.mark.usefixtures("searching")
def test_a_slip_is_found_and_the_change_makes_it_pass(
    file: str, right: str, wrong: str, says: str, tmp_path: Path
) -> None:
    name = file.partition("_")[2]
    text = slipped(file, right, wrong)
    verdict = grade(getattr(module_of(tmp_path, text), name))
    assert verdict.status == FAIL and verdict.right is False
    assert "With this change alone" in verdict.one_change and says in verdict.one_change
    assert grade(getattr(module_of(tmp_path, followed(text, verdict.one_change), "followed"), name)).right


def followed(text: str, said: str) -> str:
    """A program in which a line is written as the verdict says."""
    first, second, *_ = said.split("\n")
    place, _, new = first.removeprefix("line ").partition(": ")
    number = place.partition(" ")[0]
    rows = text.split("\n")
    old = rows[int(number) - 1]
    assert second == f"in place of: {old.strip()}"
    rows[int(number) - 1] = old[: len(old) - len(old.lstrip())] + new
    return "\n".join(rows)


PARTS = """
from lib import Model


class Trainer:
    def __init__(self, model):
        self.m = model

    def load(self, layer):
        self.m.weights[layer], self.m.opt_states[layer] = self.m.load_weights(layer)

    def up(self, layer):
        m = self.m
        m.activations["out", layer + 1] = m.forward(layer, m.activations["out", layer], m.weights[layer])

    def down(self, layer):
        m = self.m
        grad = m.grad_activations.pop(("out", layer + 1))
        m.grad_weights[layer], m.grad_activations["out", layer] = m.backward(
            layer, m.activations.pop(("out", layer)), grad, m.weights[layer]
        )

    async def step(self, layer=None):
        m = self.m
        for layer in range(m.LAYERS):
            grad = await m.allreduce(m.grad_weights.pop(layer), layer)
            m.weights[layer], m.opt_states[layer] = m.update(layer, grad, m.weights[layer], m.opt_states[layer])
            m.set_final_weight(layer, m.weights[layer])


async def ddp(model: Model) -> Model:
    layers, t = [*range(model.LAYERS)], Trainer(model)
    done = 0
    while done < model.LAYERS:
        t.load(done)
        done += 1
    model.activations["out", 0] = model.get_activation([model.rank])
    for layer in range(0, model.LAYERS):
        t.up(layer)
    model.grad_activations["out", done] = model.loss(model.activations.pop(("out", done)))

    def all_down():
        for layer in layers[::-1]:
            t.down(layer)

    all_down()
    await t.step()
    return model
"""
SLIPS_IN_PARTS = [
    ("layers[::-1]:", "layers:", "for layer in list(layers)[::-1]:"),
    ("range(0, model.LAYERS)", "range(1, done)", "for layer in range(0, done):"),
    ("    await t.step()\n", "", "nobody calls `t.step`: write `await t.step()` behind line 46, `all_down()`"),
    ("    await t.step()", "    t.step", "await t.step()"),
    ("\n    all_down()\n", "\n", "nobody calls `all_down`: write `all_down()` behind line 42"),
    ("        done += 1\n", "", "write `done += 1` behind line 35, `t.load(done)`"),
    ('pop(("out", layer + 1))', 'pop(("out", layer))', 'grad = m.grad_activations.pop(("out", layer + 1))'),
    ('pop(("out", done))', 'pop(("out", done - 1))', 'pop(("out", done))'),
    ("await m.allreduce(m.grad_weights.pop(layer), layer)", "m.grad_weights.pop(layer)", "await m.allreduce("),
    ("m.update(layer, grad,", "m.update(layer, await m.allreduce(grad, layer),", "m.update(layer, grad,"),
    ('m.activations["out", layer], m', 'm.grad_activations["out", layer], m', 'm.activations["out", layer], m'),
]


ZIPPED = LISTS.replace("for job in B:", "for job, other in zip_longest(B, F[f:]):")
ZIPPED = ZIPPED.replace(
    "        if f < len(F):\n            await fwd(*F[f])\n            f += 1\n    for l",
    "        if other:\n            await fwd(*other)\n    for l",
)
SLIPS_IN_ROUNDS = [  # in programs of puzzles 3 and 14: what stands there, what was written, and what is said
    (LISTS, "pass_to(right, y)", "pass_to(r + 1, y)", "await model.pass_to((r + 1) % R, y)"),
    (STAGES, "(m.rank + 1) % m.RANKS", "m.rank + 1", "m.rank + 1) % m.RANKS"),
    (LISTS, "        if l > 0:", "        if r > 0:", "if l > 0:"),
    (LISTS, "model.get_activation([b]) if l == 0", "model.get_activation([b]) if r == 0", "if l == 0 else"),
    (STAGES, "pass_to(self.prev, d)", "pass_to(self.next, d)", "await m.pass_to(self.prev, d)"),
    (LISTS, "pass_to(left, gx)", "pass_to(right, gx)", "await model.pass_to(left, gx)"),
    (COUNTED, "total = v * model.BATCHES", "total = v * p", "total = v * model.BATCHES"),
    (LISTS, "range(0, M, R)", "range(0, L, R)", "range(0, M, R)"),
    (LISTS, "model.grad_weights[l] + gw if", "model.grad_weights[l] if", "model.grad_weights[l] + gw if l in"),
    (STAGES, "else old + g", "else old", "g if old is None else old + g"),
    (COUNTED, "f - b <= ahead", "f - b < ahead", "if f < total and f - b <= ahead:"),
    (ZIPPED, "zip_longest(B, F[f:])", "zip(B, F[f:])", "for job, other in zip_longest(B, F[f:]):"),
    (TO_0, "await back(k)", "await back(0)", "await back(k)"),
    (TO_0, "model.allgather(model.weights[k], k)", "model.allgather(model.weights[k], 0)", "model.weights[k], k)"),
    (TO_0, "get_activation([model.rank])", "get_activation([0])", "get_activation([model.rank])"),
    (TO_0, "model.activations[i + 1] =", "model.activations[i] =", "model.activations[i + 1] ="),
]


@pytest.mark.parametrize(
    ("source", "right", "wrong", "says"), SLIPS_IN_ROUNDS, ids=[slip[2] for slip in SLIPS_IN_ROUNDS]
)
@pytest.mark.usefixtures("searching")
def test_a_slip_in_a_program_in_rounds_is_found(source: str, right: str, wrong: str, says: str) -> None:
    name = "wsdp" if source == TO_0 else "interleaved"
    text = f"import asyncio\nfrom itertools import zip_longest\nfrom lib import Model\n{source}"
    assert attempt(text, name).status == PASS and text.count(right) == 1
    verdict = attempt(text.replace(right, wrong), name)
    assert verdict.right is False and "With this change alone" in verdict.one_change and says in verdict.one_change


@pytest.mark.parametrize(("right", "wrong", "says"), SLIPS_IN_PARTS, ids=[slip[2] for slip in SLIPS_IN_PARTS])
@pytest.mark.usefixtures("searching")
def test_a_slip_in_a_program_of_several_parts_is_found(right: str, wrong: str, says: str) -> None:
    assert attempt(PARTS, "ddp").status == PASS and PARTS.count(right) == 1
    verdict = attempt(PARTS.replace(right, wrong), "ddp")
    assert verdict.right is False and says in verdict.one_change


@pytest.mark.parametrize("file", ["p09_zero1", "p10_zero2"])
@pytest.mark.usefixtures("searching")
def test_of_several_changes_of_a_line_the_one_that_costs_least_is_told(file: str, tmp_path: Path) -> None:
    call = next(row for row in source_of(file).split("\n") if "await model.scatterreduce(" in row)
    name = call.strip().partition(" = ")[0]
    again = f"{call}\n{call.partition(name)[0]}{name} = await model.allreduce({name}, layer)"
    verdict = grade(getattr(module_of(tmp_path, slipped(file, call, again)), file.partition("_")[2]))
    assert "leave out line" in verdict.one_change, verdict.one_change  # to gather it would be right, too


SHARED = """
from lib import Model

keeper = None
LOG = []


class Keeper:
    def __init__(self, model):
        self.model = model

    def run(self):
        m = self.model
        LOG.append(m.rank)
        print("begun")
        m.activations[0] = m.get_activation(range(m.BATCHES))
        for layer in range(0, m.LAYERS):
            m.weights[layer], m.opt_states[layer] = m.load_weights(layer)
            m.activations[layer + 1] = m.forward(layer, m.activations[layer], m.weights[layer])
        m.grad_activations[m.LAYERS] = m.loss(m.activations.pop(m.LAYERS))
        for layer in reversed(range(m.LAYERS)):
            grad, m.grad_activations[layer] = m.backward(
                layer, m.activations.pop(layer), m.grad_activations.pop(layer + 1), m.weights[layer]
            )
            m.weights[layer], m.opt_states[layer] = m.update(layer, grad, m.weights[layer], m.opt_states[layer])
            m.set_final_weight(layer, m.weights[layer])
        return m


def basic(model: Model) -> Model:
    global keeper
    keeper = keeper or Keeper(model)
    return keeper.run()
"""


@pytest.mark.usefixtures("searching")
def test_what_runs_share_is_found_and_nothing_of_the_learners_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = SHARED.replace("keeper or ", "")
    module = module_of(tmp_path, kept.replace("range(0, m.LAYERS)", "range(1, m.LAYERS)"))
    verdict = grade(module.basic)
    assert "range(0, m.LAYERS)" in verdict.one_change
    assert module.LOG == [0] and capsys.readouterr().out.count("begun") == 1  # of the one run that was asked for
    module = module_of(tmp_path, SHARED, "shared")
    verdict = grade(module.basic)  # right once, and not at another size
    assert verdict.failed_at and "= Keeper(model)\n" in verdict.one_change


@pytest.mark.usefixtures("searching")
def test_a_slip_in_another_cell_is_found() -> None:
    helper = "async def added(model, grad, layer):\n    return await model.allgather(grad, layer)\n"
    wrong = slipped("p02_ddp", "await model.allreduce(grad, layer)", "await added(model, grad, layer)")
    cells = [{"cell_type": "code", "source": text} for text in (helper, "n = 1 / 1", wrong)]
    names = load_quietly("mine.ipynb", json.dumps({"cells": cells})).names
    verdict = grade(names["ddp"])  # type: ignore[arg-type]
    assert verdict.one_change.startswith("line 2 in added: return await model.allreduce(grad, layer)\n")


@pytest.mark.usefixtures("searching")
def test_a_change_that_leaves_lines_without_effect_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "        grad = await model.allreduce(grad, layer)\n"
    twice = slipped("p02_ddp", line, f"{line}        if layer > -1:\n            grad = grad + grad\n")
    assert "grad = grad\n" in attempt(twice, "ddp").one_change
    monkeypatch.setattr("lib.grading.notebook.broken_seal", lambda: "")
    monkeypatch.setattr(tried, "edits", lambda *given: [one for one in edits(*given) if one.text == "layer < -1"])
    assert not attempt(twice, "ddp").one_change
    monkeypatch.setattr(tried, "reached", lambda files, _: {file: {*range(99)} for file in files})
    assert "if layer < -1:" in attempt(twice, "ddp").one_change


def test_what_counts_a_loop_is_not_offered_behind_it() -> None:
    text = "def f(model, n):\n    for i in range(9):\n        up(i, n)\n    return down(n)\n"
    texts = [edit.of(text.encode()).decode() for edit in edits(text.encode(), ["f"])]
    assert any("up(i, i)" in one for one in texts) and not any("down(i)" in one for one in texts)


@pytest.mark.usefixtures("searching")
def test_what_nobody_calls_may_stand_in_another_cell() -> None:
    start, end = PARTS.index("class Trainer"), PARTS.index("async def ddp")
    cells = [PARTS[:start], PARTS[start:end], PARTS[end:].replace("    await t.step()\n", "")]
    shown = [{"cell_type": "code", "source": text} for text in cells]
    verdict = grade(load_quietly("mine.ipynb", json.dumps({"cells": shown})).names["ddp"])  # type: ignore[arg-type]
    assert "nobody calls `t.step`: write `await t.step()` behind line" in verdict.one_change
    assert "update stands in the program, and is not reached" in verdict.message


@pytest.mark.usefixtures("searching")
def test_a_method_that_nobody_calls_may_want_what_counts() -> None:
    text = PARTS.replace("async def step(self, layer=None):", "async def step(self, layer):")
    text = text.replace(
        "        for layer in range(m.LAYERS):\n            grad =", "        if True:\n            grad ="
    )
    text = text.replace("    await t.step()\n", "    for layer in layers:\n        await t.step(layer)\n")
    assert attempt(text, "ddp").status == PASS
    lacks = text.replace("        await t.step(layer)\n", "        model.grad_activations.pop(layer, None)\n")
    assert "nobody calls `t.step`: write `await t.step(layer)` behind" in attempt(lacks, "ddp").one_change


# -- what is left alone -------------------------------------------------------------------------------


def attempt(text: str, name: str) -> ShownVerdict:
    function: Callable[[Any], object] = load_quietly("attempt.py", text).names[name]  # type: ignore[assignment]
    return grade(function)


WRONG = slipped("p02_ddp", "await model.allreduce(", "model.allreduce(")


def test_without_time_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tried, "_run")
    monkeypatch.delattr(tried, "edits")
    monkeypatch.setattr("lib.grading.notebook.broken_seal", lambda: "")
    verdict = attempt(WRONG, "ddp")
    assert tried.SECONDS == 0 and verdict.status == FAIL and verdict.one_change == ""


@pytest.mark.usefixtures("searching")
def test_a_verdict_stands_whatever_goes_wrong_in_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tried, "edits")
    monkeypatch.setattr("lib.grading.notebook.broken_seal", lambda: "")
    verdict = attempt(WRONG, "ddp")
    assert verdict.status == FAIL and verdict.one_change == ""


@pytest.mark.usefixtures("searching")
def test_a_program_that_is_right_is_let_be() -> None:
    assert attempt(source_of("p02_ddp"), "ddp").one_change == ""
    slow = source_of("p01_grad_accum").replace("def grad_accum", "def ddp")
    verdict = attempt(slow, "ddp")
    assert verdict.status == FAIL and verdict.one_change == ""


@pytest.mark.usefixtures("searching")
def test_the_bug_of_a_program_to_be_repaired_is_not_given_away() -> None:
    wrong = [grade(broken()[name]) for name in REPAIRS]
    assert len(wrong) > 5 and not any(verdict.one_change for verdict in wrong)


@pytest.mark.usefixtures("searching")
def test_a_function_of_which_there_is_no_text_or_that_is_made_by_another_is_let_be() -> None:
    names: dict[str, Any] = {}
    exec("def ddp(model):\n    model.load_weights(0)\n    return model", names)
    assert grade(names["ddp"]).one_change == ""
    made_by_another = (
        "def make(n):\n    def ddp(model):\n        model.load_weights(n)\n        return model\n    return ddp"
    )
    assert attempt(f"{made_by_another}\n\nddp = make(0)\n", "ddp").one_change == ""


@pytest.mark.usefixtures("searching")
def test_who_interrupts_a_search_has_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(tried, "_costs_at", interrupted)
    monkeypatch.setattr("lib.grading.notebook.broken_seal", lambda: "")
    verdict = attempt(WRONG, "ddp")
    assert verdict.status == FAIL and verdict.one_change == ""


def test_a_program_that_sleeps_or_never_ends_takes_a_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried, "SECONDS", 0.5)
    asked: list[float] = []
    trial = tried._run
    monkeypatch.setattr(tried, "_run", lambda *given: (asked.append(0.0), trial(*given))[1])
    monkeypatch.setattr("lib.grading.notebook.broken_seal", lambda: "")
    loop = "    for layer in range(model.LAYERS):"
    sleeps = WRONG.replace(loop, f"    import time; time.sleep(0.4)\n{loop}", 1)
    assert attempt(sleeps, "ddp").one_change == "" and 0 < len(asked) < 12
    asked.clear()
    endless = WRONG.replace(loop, f"    while model.LAYERS: pass\n{loop}", 1)
    assert grade(load_quietly("attempt.py", endless).names["ddp"], timeout=0.5).one_change == ""  # type: ignore[arg-type]
    assert 0 < len(asked) < 12


@pytest.mark.usefixtures("searching")
def test_where_no_timer_would_end_a_trial_there_is_none() -> None:
    verdicts: list[ShownVerdict] = []
    thread = threading.Thread(target=lambda: verdicts.append(attempt(WRONG, "ddp")))
    thread.start()
    thread.join()
    assert verdicts[0].status == FAIL and verdicts[0].one_change == ""


@pytest.mark.usefixtures("searching")
def test_a_text_that_is_not_what_ran_is_let_be(tmp_path: Path) -> None:
    module = module_of(tmp_path, WRONG)
    (tmp_path / "attempt.py").write_text(source_of("p02_ddp"), encoding="utf-8")  # mended, and not loaded again
    verdict = grade(module.ddp)
    assert verdict.status == FAIL and verdict.one_change == ""


# -- at a shell ---------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("says", ["'x' * 10**7", "7", "__import__('os')._exit(3)"])
def test_what_a_worker_says_of_a_change_can_only_be_left_out(says: str, tmp_path: Path) -> None:
    tampers = f"\nimport lib.referee.worker as worker\nworker._one_change = lambda *_: {says}\n"
    (tmp_path / "p02_ddp.py").write_text(WRONG + tampers, encoding="utf-8")
    command = [sys.executable, "-m", "lib", "grade", str(tmp_path / "p02_ddp.py")]
    environment = os.environ | {tried.VARIABLE: "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "did you forget `await`?" in done.stdout and "one change" not in done.stdout


@pytest.mark.process
def test_a_shell_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "p02_ddp.py").write_text(WRONG, encoding="utf-8")
    told = tmp_path / "out.json"
    command = [sys.executable, "-m", "lib", "grade", str(tmp_path / "p02_ddp.py"), "--json", str(told)]
    environment = os.environ | {tried.VARIABLE: "60"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    [result] = json.loads(told.read_text(encoding="utf-8"))["results"]
    assert "await model.allreduce(" in result["one_change"] and result["status"] != PASS
    assert "one change:" in done.stdout and "With this change alone it passes, which was tried." in done.stdout


NEVER_THERE = """
async def helper(model):
    model.weights[1] = 1
    return (
        2
    )


async def fsdp(model):
    if model.rank > 99:
        await helper(model)
    model.nothing(
        3
    )
    model.weights[4] = 4
"""


def test_only_what_a_run_comes_to_is_changed(tmp_path: Path) -> None:
    """The whole of a statement of several lines counts, and what stands behind the mistake does not."""
    module = module_of(tmp_path, NEVER_THERE)
    program = Program.of(module.fsdp, vars(module))
    assert program is not None
    (cell,) = program.cells
    puzzle = puzzles()["fsdp"]
    lines = reached([cell.file], lambda: tried._costs_at(program.function, puzzle, [puzzle.size]))[cell.file]
    whole = whole_statements(cell.source, lines)
    assert {10, 12, 13, 14} <= whole and whole.isdisjoint({3, 4, 5, 6, 11, 15})
    numbers = {edit.text for edit in edits(cell.source, cell.wanted) if whole & edit.lines(cell.source)}
    assert {"98", "4"} <= numbers and "5" not in numbers


def test_a_call_that_nobody_awaits_is_tried_first() -> None:
    text = "async def step(k):\n    pass\n\n\nasync def f(model):\n    for k in range(3):\n        step(k)\n"
    assert min(edits(text.encode(), ["f", "step"]), key=lambda edit: edit.order([])).text == "await step(k)"
