"""Which file attempts which puzzle, whatever is in the files and whatever they are called."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import PuzzleError
from lib.course.specs import puzzles
from lib.grading.submission import load
from lib.referee import attempts
from lib.referee.attempts import LARGEST, MOST_FILES, Student, attempts_in, files_of, read, submissions
from lib.referee.defined import defined
from lib.referee.examiner import Judge
from lib.referee.loaded import Submission
from lib.referee.referee import Referee

HELPER = "def honest(model): pass\n\nfsdp = ddp = other = whole = honest\n"
ATTEMPTED = {
    "def fsdp(model): pass": "fsdp",
    "x = 1\nasync  def\tfsdp (\n    model\n): pass": "fsdp",
    "if True:\n    async def fsdp(model): pass": "fsdp",
    "if __name__ == '__main__' and x:\n    def fsdp(model): pass": "fsdp",
    "if '__main__' != __name__:\n    def fsdp(model): pass": "",
    "class fsdp:\n    def __call__(self, model): pass": "fsdp",
    "fsdp=honest": "fsdp",
    "(fsdp, ddp) = honest, honest": "ddp fsdp",
    "print(fsdp := honest)": "fsdp",
    "from helper import fsdp": "fsdp",
    "from helper import *": "ddp fsdp",
    "from helper import whole as fsdp, other  # and more": "fsdp",
    "try:\n    from helper import fsdp\nexcept ImportError:\n    pass": "fsdp",
    "try:\n    from nowhere import fsdp\nexcept ImportError:\n    fsdp = honest": "fsdp",
    "globals()['ddp'] = honest": "ddp",
    "exec('def ddp(model): pass')": "ddp",
    "def setup():\n    global ddp\n    ddp = honest\n\nsetup()": "ddp",
    "def basic(m): pass\ndef fsdp(m): pass\nddp = fsdp": "basic ddp fsdp",
    # -- no more than that
    "# ddp = data parallel": "",
    "def fsdp(model):\n    '''\n    ddp = all of it\n    def ddp(model): pass\n    '''": "fsdp",
    "def fsdp(model):\n    def prefetch(layer): pass": "fsdp",
    "def fsdp(model): pass\nbuckets = 4": "fsdp",
    "fsdp = honest\ndel fsdp": "",
    "import helper as fsdp": "",
    "ddp = 1": "",
    "from helper import fsdp as other": "",
    "honest.ddp = 1": "",
    "def other(m):\n    pipeline = 1": "",
    "def ddp_too(m): pass": "",
    "buckets, pipeline, offload = list, list[int], sorted": "",
    # -- helpers of an attempt, which take something else than a model
    "def prefetch(model, layer): pass\nasync def fsdp(model): prefetch(model, 0)": "fsdp",
    "def compose(*fns): pass\ndef step(): return compose\ndef fsdp(model): [step() for _ in model]": "fsdp",
    "class pipeline:\n    def __init__(self, a, b): pass\ndef fsdp(model): pipeline(model, 1)": "fsdp",
    "def lora():\n    yield 1\ndef fsdp(model): [*lora()]": "fsdp",
    "def buckets(model):\n    yield 1\nclass Own:\n    def __call__(self, m): buckets(m)\nfsdp = Own()": "fsdp",
    "import functools\ndef zero1(a, b): pass\ndef own(n, m): zero1(n, m)\nfsdp = functools.partial(own, 1)": "fsdp",
    "def zero1(a, b): pass\nclass Own:\n    @classmethod\n    def go(cls, m): zero1(m, m)\nddp = Own.go": "ddp",
    "def zero2(): pass\ndef timed(f): return lambda *a: f(*a)\n@timed\ndef basic(m): zero2()": "basic",
    # -- attempts with a mistake: nothing uses them that is one
    "def ddp(model, rank): pass\ndef main(): ddp(1, 2)": "ddp",
    "def ddp(model, rank): pass\ndef fsdp(model): pass": "ddp fsdp",
    "def ddp(model):\n    yield 1": "ddp",
    "class fsdp:\n    pass": "fsdp",
}
"""A file, after the lines of the helper, and the puzzles that it attempts."""


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("helper")
@pytest.mark.parametrize("source", ATTEMPTED)
@pytest.mark.parametrize("form", ["script", "cell", "lines of a cell", "with carriage returns"])
def test_what_a_file_attempts_is_what_it_defines(source: str, form: str) -> None:
    text = f"x = 1\nfrom helper import honest\n{source}\n"
    if form == "with carriage returns":
        text = text.replace("\n", "\r\n")
    if form in ("script", "with carriage returns"):
        names, failed, *_ = load("x.py", text)
    else:
        written: object = text.splitlines(keepends=True) if form == "lines of a cell" else text
        cell = {"cell_type": "code", "source": written}
        whole = {"cells": [{"cell_type": "markdown", "source": "def ddp(model)"}, cell]}
        names, failed, *_ = load("x.ipynb", json.dumps(whole))
    assert not failed
    assert defined(names) == sorted(ATTEMPTED[source].split(), key=[*puzzles()].index)
    sys.modules.pop("helper", None)


EXPERIMENTS_OF_A_HELPER = [
    "grade(fsdp)", "print(grade(fsdp))", "done = run(fsdp, ranks=4, layers=4, batches=4)\nprint(f'{done.time:.1f}')",
    "for ranks in (2, 4):\n    run(fsdp, ranks=ranks, layers=4, batches=4)",
    "draw(run(fsdp, ranks=2, layers=2, batches=2))",
    "assert grade(fsdp).status == 'PASS'", "hint('fsdp')", "sweep(fsdp, ranks=[2, 4], layers=4, batches=4)",
    "def tried():\n    return grade(fsdp).time + 1\ntried()", "import lib\nlib.grade(fsdp)",
    "from lib import reset\nreset('fsdp')"
]  # fmt: skip


@pytest.mark.parametrize("place", ["helper.py", "helper/__init__.py", "helper/inner.py"])
@pytest.mark.parametrize("experiment", EXPERIMENTS_OF_A_HELPER)
def test_what_a_file_imports_counts_whatever_is_tried_beside_it(
    place: str, experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / place).parent.mkdir(exist_ok=True)
    imports = "from __future__ import annotations\nfrom lib import *\nfrom lib import grade, hint, run, sweep\n"
    defined_there = "from drawing import draw\ndef fsdp(model: Nothing):\n    return SIZE\n"
    (tmp_path / place).write_text(f"{imports}{defined_there}{experiment}\nSIZE = 3\n")
    name = "helper.inner" if place.endswith("inner.py") else "helper"
    names, *notes = load("x.py", f"from {name} import fsdp\n", str(tmp_path / "x.py"))
    assert defined(names) == ["fsdp"] and names["fsdp"](None) == 3 and not any(notes)  # type: ignore[operator]
    for module in ("helper", "helper.inner"):
        sys.modules.pop(module, None)


def test_what_fails_beside_a_file_fails_as_python_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helper.py").write_text("def fsdp(model): pass\n1 / 0\n")
    names, failed, *_ = load("x.py", "from helper import fsdp\n", str(tmp_path / "x.py"))
    assert "ZeroDivisionError" in failed[0] and "fsdp" not in names


BROKEN = {
    "def fsdp(model)\n    pass": "fsdp",
    "async def ddp(model):\n    return (\n\ndef fsdp(model):\n    pass": "ddp fsdp",
    "@decorated\ndef fsdp(model):\n    pass": "fsdp",
    "x = (": "",
}


@pytest.mark.process
@pytest.mark.parametrize("source", BROKEN)
@pytest.mark.parametrize("name", ["x.py", "x.ipynb"])
def test_what_cannot_be_taken_is_attempted_all_the_same_and_its_verdict_says_why(source: str, name: str) -> None:
    cells = {"cells": [{"cell_type": "code", "source": source.splitlines(keepends=True)}]}
    submission = Submission(name, json.dumps(cells, indent=1) if name.endswith("ipynb") else source)
    judge = Judge(Referee(20.0))
    attempts = attempts_in(submission, judge.found(submission))
    assert " ".join(attempt.puzzle.name for attempt in attempts) == BROKEN[source]
    for attempt in attempts:
        verdict = judge.verdict(attempt)
        assert verdict.status == "FAIL" and "Python could not run these lines: " in verdict.message, verdict.message
    judge.close()


SIZE = LARGEST // 10
ANYTHING = [
    "#" + "basic:" * (SIZE // 6),
    "ddp=" * (SIZE // 4),
    "x,ddp\n" * (SIZE // 6),
    " " * SIZE,
    '"' * SIZE,
    "from x import (\n" * (SIZE // 16),
    "from x import (" + "ddp as x," * (SIZE // 9),
    "import " + "x as y, " * (SIZE // 8),
    "def ddp" + " " * SIZE,
    "ddp:" + "ddp:" * (SIZE // 4),
    "(" * SIZE,
]


@pytest.mark.parametrize("text", ANYTHING, ids=[repr(text[:16]) for text in ANYTHING])
def test_looking_takes_a_moment_whatever_is_in_the_file(text: str) -> None:
    """Beside reading it character by character, once: what grows faster than the file takes minutes at this size."""
    begun = time.process_time()
    re.findall(".", text, re.DOTALL)
    read = time.process_time()
    _ = Submission("x.py", text).functions
    assert (time.process_time() - read) / (read - begun) < 10


def test_a_file_says_what_it_defines_instead() -> None:
    cells = json.dumps(["a = 1\n\tdef one(x):\n    pass\ndef two(x): 1", "async def last(x): 1"])
    assert str(Submission("x.py", " \n")) == "x.py is empty"
    assert str(Submission("x.py", "fsdq = 1  # undef it")) == "x.py defines no function"
    assert str(Submission("x.ipynb", cells)) == "x.ipynb defines one, two, last"
    assert str(Submission("x.py", "async def my_fsdp(model):\n    def inner(")) == "x.py defines my_fsdp, inner"
    many = "".join(f"def f{n}(): pass\n" for n in range(9))
    assert str(Submission("x.py", many)) == "x.py defines f0, f1, f2, f3, ..."
    assert len(str(Submission("x.py", f"def {'x' * 9999}(): pass"))) < 300


def test_utf_16_is_read_as_its_first_bytes_say(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        mark = "" if encoding == "utf-16" else "\ufeff"
        (tmp_path / "x.py").write_bytes(f"{mark}x = '\xe4'\n".encode(encoding))
        assert read(tmp_path / "x.py", None).text == "x = '\xe4'\n"


def test_a_file_may_say_in_what_it_is_encoded(tmp_path: Path) -> None:
    for encoding in ("latin-1", "utf-8", "cp1252", "gbk", "shift_jis"):
        letter = "\u4e2d" if encoding in ("gbk", "shift_jis") else "\xe4"
        source = f"#!/usr/bin/python\n# -*- coding: {encoding} -*-\r\nx = '{letter}'\r\n"
        (tmp_path / "x.py").write_bytes(source.encode(encoding))
        assert read(tmp_path / "x.py", None).text == source.replace("\r", "")


@pytest.mark.parametrize("encoding", ["punycode", "idna", "zip", "rot13", "unicode_escape", "no_such", "x" * 5000])
def test_what_says_that_it_is_something_else_is_not_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.py").write_bytes(f"# coding: {encoding}\n".encode() + b"a" * 1000)
    with pytest.raises(PuzzleError, match=r"x.py is no text in UTF-8 or in the encoding that it names"):
        read(tmp_path / "x.py", None)


def test_names_of_files_are_safe_to_show(tmp_path: Path) -> None:
    for name in (b"\x1b[2Jx.py", b"\xff.py", b"a\nb.py"):
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        path.symlink_to("/etc/passwd")
        with pytest.raises(PuzzleError) as error:
            read(path, None)
        assert str(error.value).isprintable() and str(error.value).isascii()


def test_every_student_has_a_name_of_their_own(tmp_path: Path) -> None:
    names = ["bob\x01", "bob\x02", "bob\\x01", "n" * 100 + "a", "n" * 100 + "b", "x\nPASS", "\u3042" * 84, "\x01" * 100]
    for name in [*map(os.fsencode, names), b"\xff", b"Zoe", b"zoe"]:
        os.makedirs(os.fsencode(tmp_path) + b"/" + name)
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name + b"/x.py")).touch()
    (tmp_path / "anna").mkdir()
    (tmp_path / "anna.py").touch()  # hers, as well
    students = [student.name for student in submissions(tmp_path)[0]]
    assert len({name.casefold() for name in students}) == len(students) == 12
    assert {"anna", "bob\\x01", "bob\\x02", "x\\nPASS", "\\udcff"} <= set(students)
    assert all(name.isprintable() and len(f"{name}.json".encode()) <= 255 for name in students)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder in which others may be nested deeper than Python's own rmtree goes."""
    here = os.getcwd()
    yield tmp_path
    os.chdir(here)
    subprocess.run(["rm", "-rf", tmp_path], check=True)


@pytest.mark.process
def test_folders_without_end_and_files_without_number(deep: Path) -> None:
    for student, name, depth in (("deep", "d", 1500), ("long", "d" * 250, 20)):
        (deep / student).mkdir()
        (deep / student / "a.py").touch()
        os.chdir(deep / student)
        for _ in range(depth):
            os.mkdir(name)
            os.chdir(name)
        os.chdir(deep)
    (deep / "many").mkdir()
    for number in range(MOST_FILES + 1):
        (deep / "many" / f"{number}.py").touch()
    (deep / "linked").symlink_to("/etc")
    found = {student.name: student for student in submissions(deep)[0]}
    assert [len(found[name].paths) for name in ("deep", "long", "many", "linked")] == [1, 1, MOST_FILES, 0]
    assert "cannot be read: File name too long" in found["long"].trouble[0]
    assert f"more than {MOST_FILES} files" in found["many"].trouble[0]
    assert "is a link" in found["linked"].trouble[0]


def test_a_students_files_are_read_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "MOST_TEXT", 40)
    paths = [tmp_path / name for name in ("a.py", "b.py", "c.py")]
    for path in paths:
        path.write_text("def fsdp(model): pass")
    found, trouble = files_of(Student("anna", paths, [], tmp_path))
    assert [submission.file for submission in found] == ["a.py"]
    assert "b.py and others are not read" in trouble
