"""README.md, docs/ and CONTRIBUTING.md: what they name is there, and what they show can be run."""

import ast
import asyncio
import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import lib
from lib import Cost, Dist, Model, Run
from lib.course.specs import puzzles
from lib.course.variants import TABLES
from solutions.build.sources.files import ROOT
from tests.marks import NO_TORCH, needs_torch
from tests.programs import COURSE
from tests.slow import some
from tests.test_imports import MODULES, described

TOP = ("README.md", "AGENTS.md", "CONTRIBUTING.md", "THREATS.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").glob("*.md"))]
EVERY = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
LINK = re.compile(r"(?:\]\(|src=\"|srcset=\")([^)\"]+)")
NAMED = re.compile(r"(?:lib|drawing|solutions|tests|tools|docs)/[\w./?*{},-]*\w")
REAL = "real-processes.md"
"""The page whose code needs torch and processes."""
NEVER_END = ("watch", "lab", "gallery")
"""Commands that wait for changes, or open a browser."""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_of(text: str) -> list[str]:
    """What is shown as code in a text: spans, and the lines of indented blocks without what is said of them."""
    blocks = [line.strip().partition("  #")[0].strip() for line in text.splitlines() if line.startswith("    ")]
    return [*re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text), *blocks]


def heading_names(page: Path) -> set[str]:
    """What a link to a heading of a page may be called after the #."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def problems(page: Path, text: str) -> Iterator[str]:
    """Links of a text that lead nowhere."""
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        where, _, heading = link.partition("#")
        target = (page.parent / where).resolve() if where else page
        if "://" in link:
            continue
        if not target.exists() or ROOT not in target.parents or (heading and heading not in heading_names(target)):
            yield link


@EVERY
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(problems(page, text_of(page))) == []


def test_a_link_that_leads_nowhere_is_seen() -> None:
    text = "[a](docs/code.md#decisions-and-their-reasons) [b](docs/none.md) [c](docs/code.md#none) ![d](https://a.b)"
    assert list(problems(ROOT / "README.md", text)) == ["docs/none.md", "docs/code.md#none"]


@EVERY
def test_every_file_that_is_named_is_there(page: Path) -> None:
    named = [name for code in code_of(text_of(page)) for name in NAMED.findall(code) if "p00" not in name]
    patterns = [name.replace("{", "[").replace("}", "]") for name in named]
    assert [name for name in patterns if not list(ROOT.glob(name))] == []


@EVERY
def test_every_target_of_make_is_one(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    named = {found[1] for code in code_of(text_of(page)) if (found := re.match(r"make ([a-z-]+)", code))}
    assert named <= targets


@EVERY
def test_every_attribute_that_is_named_is_one(page: Path) -> None:
    things = {"Model": Model, "model": Model(), "Run": Run, "Dist": Dist, "Cost": Cost()}
    things["cluster"] = importlib.import_module("lib.real").A100_MEGATRON
    found = [re.match(rf"({'|'.join(things)})\.(\w+)", code) for code in code_of(text_of(page))]
    named = [match for match in found if match]
    assert [match[0] for match in named if not hasattr(things[match[1]], match[2])] == []


def test_readme_is_a_page_and_leads_to_all_others() -> None:
    readme = text_of(ROOT / "README.md")
    assert len(readme.split()) < 900
    assert {page.relative_to(ROOT).as_posix() for page in PAGES[1:]} <= {*LINK.findall(readme)}
    rows = re.findall(r"^(\d+) \[`(\w+)`\]\(puzzles/(\w+)\.ipynb\) \| \w", readme, re.MULTILINE)
    assert rows == [(str(puzzles()[name].number), name, puzzles()[name].file) for name in COURSE]


def test_the_packages_of_lib_are_told_in_their_order() -> None:
    listed = re.findall(r"^\d+\. `(\w+)`: ", text_of(ROOT / "docs" / "code.md"), re.MULTILINE)
    packages = [name for name in described("lib") if MODULES[name].stem == "__init__" and name != "lib"]
    assert [f"lib.{name}" for name in listed] == packages


# --- what they show is run -----------------------------------------------------------------------


def blocks(page: Path) -> list[str]:
    """The Python that a page shows."""
    return re.findall(r"^```python\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)


def play_page(page: Path, names: dict[str, Any]) -> dict[str, Any]:
    """Run all Python of a page, as the cells of a notebook with these names; the names after that."""
    for source in blocks(page):
        code = compile(source, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        function = types.FunctionType(code, names)
        waiting = function()
        if waiting is not None:
            asyncio.run(waiting)
    return names


WITH_CODE = [page for page in PAGES if blocks(page) and page.name != REAL]


@pytest.fixture
def solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which ``attempt`` finds our solutions. A page says itself where its functions come from."""
    for puzzle in puzzles().values():
        shutil.copy(ROOT / "solutions" / f"{puzzle.file}.py", tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, solved: None) -> None:
    above = {"fsdp": lib.attempt("fsdp")} if page.name == "teaching.md" else {}  # whose cells grade what is above them
    assert play_page(page, above)


@needs_torch
@pytest.mark.process
def test_the_code_with_real_tensors_runs(solved: None) -> None:
    assert play_page(ROOT / "docs" / REAL, {})["done"].measured


@needs_torch
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("way", ["send", "batch"])
def test_a_ring_in_which_all_send_first_hangs_with_gloo_as_the_page_says(way: str, tmp_path: Path) -> None:
    page = text_of(ROOT / "docs" / REAL)
    [script] = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "ring.py").write_text(script.replace("seconds=5", "seconds=2"), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ring.py"]
    [said] = {line.partition("] ")[2] for line in re.findall(r"^rank \d: (.*)", page, re.MULTILINE)}
    expected = said.replace("5000", "2000") if way == "send" else "rank 0 has the tensor of rank 1"
    done = subprocess.run([*command, way], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert expected in done.stdout and ("has the tensor" in done.stdout) == (way == "batch"), done.stdout


def test_pages_with_code_are_found() -> None:
    assert {page.name for page in WITH_CODE} >= {"README.md", "pictures.md", "machine.md", "real-machines.md"}


CALLED = re.compile(r"(\.venv/bin/(python -m lib|training-puzzles)|llm-training-puzzles) ")
COMMANDS = sorted({one for page in PAGES for one in code_of(text_of(page)) if CALLED.match(one)})
COMMANDS = [one for one in COMMANDS if not {*one.split()} & {*NEVER_END}]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with what the commands ask for: answers in files, and notebooks, most of them blank."""
    for name in ("my_fsdp.py", "one.py", "two.py"):
        shutil.copy(ROOT / "solutions" / "p04_fsdp.py", tmp_path / name)
    for name in ("rows.csv", "found.csv"):
        (tmp_path / name).write_text("0F0,0B0\n1F0,1B0\n", encoding="utf-8")
    mine = tmp_path / "puzzles" / "mine"
    mine.mkdir(parents=True)
    for file in ("p04_fsdp", "p03_wsdp"):
        cell = {"cell_type": "code", "source": text_of(ROOT / "solutions" / f"{file}.py")}
        (mine / f"{file}.ipynb").write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    for file in ("p07_pipeline_fsdp", "repairs"):
        shutil.copy(ROOT / "puzzles" / f"{file}.ipynb", mine)
    student = tmp_path / "DIR" / "student"
    student.mkdir(parents=True)
    shutil.copy(tmp_path / "my_fsdp.py", student / "fsdp.py")
    (tmp_path / "term").mkdir()
    tables = {name: json.loads((ROOT / "lib" / name).read_text(encoding="utf-8")) for name in TABLES}
    (tmp_path / "term" / "variants.json").write_text(json.dumps(tables), encoding="utf-8")
    return tmp_path


@pytest.mark.process
@pytest.mark.parametrize("command", some(COMMANDS, 3))
def test_each_command_is_understood(command: str, desk: Path) -> None:
    first, *rest = shlex.split(command)
    arguments = rest[2:] if first.endswith("python") else rest
    if "processes" in arguments:
        pytest.importorskip("torch", reason=NO_TORCH)
    if arguments[0] == "start":
        (desk / arguments[2]).unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "lib", *arguments], cwd=desk, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stdout + done.stderr
    for option, file in pairwise(arguments):
        if option in ("-o", "--csv", "--json", "--junit", "start"):
            assert option == "start" or (desk / file).stat().st_size
    if arguments[0] in ("start", "draw", "run"):
        assert done.returncode == 0 or "--like" in arguments, done.stdout + done.stderr


@pytest.mark.process
def test_every_option_of_the_grader_that_is_named_is_one() -> None:
    known = subprocess.run([sys.executable, "-m", "lib", "grade", "--help"], capture_output=True, text=True, check=True)
    named = {
        one for code in code_of(text_of(ROOT / "docs" / "grading.md")) for one in re.findall(r"(?<!\S)-+\w+", code)
    }
    assert {"--each", "--why"} <= named - {"-m"} <= {*re.findall(r"-+\w+", known.stdout)}


def test_no_page_has_sizes_in_gb_and_in_gib() -> None:
    pages = {one: one.read_text(encoding="utf-8") for one in [*PAGES, *(ROOT / "puzzles").glob("*.ipynb")]}
    sized = [one for one, said in pages.items() if re.search(r"\b[MGT]B\b", said)]
    assert len(sized) > 10 and not [one for one in sized if re.search(r"\b[KMGT]iB\b", pages[one])]
