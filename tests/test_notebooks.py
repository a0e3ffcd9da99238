"""Notebooks in a real kernel: first as shipped, then solved, from the folder that they are shipped in.

`make test` runs some of the puzzles': that all of their figures come out is seen by the build every time.
"""

import asyncio
import builtins
import dis
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from solutions.build.notebooks.notebook import notebook_of
from solutions.build.sources.files import REPAIRS as REPAIRS_SOURCE
from solutions.build.sources.files import ROOT, is_puzzle, notebook_name, read_cells, sources
from solutions.build.sources.specs import specs_of
from tests.kernels import Outputs, complaints, htmls, in_a_kernel, kernel_in, run_twice, shows_a_picture, text
from tests.programs import COURSE, QUIET, REPAIRS
from tests.slow import some

PUZZLES_FOLDER = ROOT / "puzzles"
SOURCES = sources()
SOME = some([path for path in SOURCES if is_puzzle(path) and path.stem != REPAIRS_SOURCE], 20)
SOURCES = [path for path in SOURCES if path in SOME or not is_puzzle(path) or path.stem == REPAIRS_SOURCE]
CRASH = [name for name in REPAIRS if name not in QUIET]
"""Programs to be repaired that stop with an error; the others run to their end."""


async def run_all() -> dict[str, dict[str, Outputs]]:
    """All notebooks as shipped and then solved, in as many kernels as there are processors, which forget every name."""
    left, done = [*reversed(SOURCES)], dict[str, dict[str, Outputs]]()

    async def one_after_the_other() -> None:
        async with kernel_in(PUZZLES_FOLDER) as kernel:
            while left:
                path = left.pop()
                shipped = json.loads((PUZZLES_FOLDER / notebook_name(path)).read_text(encoding="utf-8"))
                solved = notebook_of(path, solved=True)
                done[path.stem] = await run_twice(shipped, solved, kernel, PUZZLES_FOLDER)

    await asyncio.gather(*(one_after_the_other() for _ in range(os.cpu_count() or 1)))
    return done


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Outputs]]]:
    """Outputs by source and state, from kernels that no setting of this machine's user reaches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JUPYTER_PATH", raising=False)
        folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        for name in (*folders, "LLM_TRAINING_PUZZLES_PROGRESS"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield asyncio.run(run_all())


@pytest.mark.parametrize("state", ["blank", "solved"])
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_runs_to_its_end(executed: dict[str, dict[str, Outputs]], path: Path, state: str) -> None:
    wrong = len(CRASH) if (path.stem, state) == (REPAIRS_SOURCE, "blank") else 0  # drawn as they are
    assert [output["output_type"] for output in complaints(executed[path.stem][state])] == ["error"] * wrong
    assert executed[path.stem][state]


def test_a_solution_needs_no_name_that_a_later_cell_brings() -> None:
    for path in (path for path in sources() if is_puzzle(path) and path.stem != REPAIRS_SOURCE):
        cells, names = (cell for cell in read_cells(path) if cell.kind == "code"), dict[str, Any]()
        while not (solution := names.get(specs_of(path)[0]["name"])):
            exec(next(cells).source, names)
        assert globals_of(solution.__code__) <= names.keys() | vars(builtins).keys(), path.stem


def globals_of(code: CodeType) -> set[str]:
    """The names that code looks up in its module, with those of the functions in it."""
    own = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    return own.union(*(globals_of(one) for one in code.co_consts if isinstance(one, CodeType)))


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.stem)
def test_as_shipped_says_that_nobody_tried_yet(executed: dict[str, dict[str, Outputs]], path: Path) -> None:
    assert "not attempted yet" in text(executed[path.stem]["blank"])


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.stem)
def test_solved_reports_success_and_shows_a_picture(executed: dict[str, dict[str, Outputs]], path: Path) -> None:
    said = text(executed[path.stem]["solved"])
    assert "not attempted yet" not in said
    assert "PASS" in said
    name = specs_of(path)[0]["name"]
    assert shows_a_picture(executed[path.stem]["solved"], name)


def test_the_tour_draws_no_run_in_which_nothing_was_done(executed: dict[str, dict[str, Outputs]]) -> None:
    assert "not attempted yet" not in text(executed["tour"]["blank"])


def test_programs_to_be_repaired_fail_as_shipped_and_pass_repaired(executed: dict[str, dict[str, Outputs]]) -> None:
    said = {state: text(outputs) for state, outputs in executed[REPAIRS_SOURCE].items()}
    for puzzle in specs_of(ROOT / "solutions" / "repairs.py"):
        head = f" puzzle {puzzle['number']}  {puzzle['name']}"
        assert f"FAIL {head}" in said["blank"] and f"PASS {head}" in said["solved"]
        assert all(shows_a_picture(outputs, puzzle["name"]) for outputs in executed[REPAIRS_SOURCE].values())
    drawn = {state: "".join(htmls(outputs)) for state, outputs in executed[REPAIRS_SOURCE].items()}
    failed = {state: html.count("ticks, until it failed") for state, html in drawn.items()}
    assert failed == {"blank": 2 * len(CRASH), "solved": 0}  # each has a second head, for narrow places


def test_programs_to_be_repaired_are_drawn_in_cells_that_may_fail() -> None:
    cells = notebook_of(ROOT / "solutions" / "repairs.py")["cells"]
    tagged = "\n".join(
        "".join(cell["source"]) for cell in cells if "raises-exception" in cell["metadata"].get("tags", [])
    )
    assert all(re.search(rf"^draw\(\s*run\(\s*{name},", tagged, re.M) for name in REPAIRS)


ENDLESS = [
    "async def fsdp(model):\n    await model.receive()",
    "async def fsdp(model):\n    while True:\n        pass",
    "import time\n\nasync def fsdp(model):\n    while True:\n        try:\n            time.sleep(60)\n"
    "        except BaseException:\n            pass",
    "import asyncio\n\nasync def fsdp(model):\n    while True:\n        await asyncio.sleep(0)",
]


@pytest.mark.process
def test_what_never_ends_is_graded_and_the_kernel_stays_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLM_TRAINING_PUZZLES_PROGRESS", raising=False)
    setup = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom lib import grade, hint, progress"
    graded = [f"{program}\n\ngrade(fsdp, timeout=1)" for program in ENDLESS]
    outputs = asyncio.run(in_a_kernel(tmp_path, [setup, *graded, "progress()", "print(6 * 7)"]))
    assert [complaints(cell) for cell in outputs] == [[]] * len(outputs)
    assert "deadlock: rank 0 waits in receive() of line 2" in text(outputs[1])
    for cell in outputs[2 : 1 + len(ENDLESS)]:
        assert "did not end within 1 second" in text(cell)
    assert f"0 of {len(COURSE)} puzzles solved" in text(outputs[-2]) and "FAIL" in text(outputs[-2])
    assert text(outputs[-1]) == "42\n"
    assert (tmp_path / "progress.json").exists()
