"""The grader at a shell, as its users call it: exit status, reports, faces, folders of submissions, watching."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from lib.__main__ import main as commands
from lib.course.specs import Puzzle, puzzles
from lib.lab.commands import COMMANDS, called
from lib.referee import examiner, shell
from lib.referee.attempts import Attempt
from lib.referee.loaded import Loaded, Submission
from solutions.build.notebooks.notebook import FIRST_CELL, notebook_of
from solutions.build.sources.files import ROOT
from tests.corpus import function
from tests.programs import COURSE, QUIET
from tests.slow import some

BEGIN = "def basic(model: Model) -> Model:\n"
BASIC = f"""
from lib import Model, grade, run
import nothing_of_that_name as nothing
from drawing import draw

{function("basic")}

print("never printed")
draw(run(basic))
grade(basic)
"""


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


Lib = Callable[..., Result]


@pytest.fixture
def lib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lib:
    """``python -m lib`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM_TRAINING_PUZZLES_PROGRESS")

    def call(*arguments: str) -> Result:
        try:
            code = shell.main(arguments)
        except SystemExit as error:  # argparse
            code = int(error.code or 0)
        seen = capsys.readouterr()
        return Result(code, seen.out, seen.err)

    return call


def solved(number: int, folder: Path, suffix: str = ".ipynb") -> Path:
    """A solved puzzle as a learner would have it."""
    [source] = (ROOT / "solutions").glob(f"p{number:02}_*.py")
    path = folder / (source.stem + suffix)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(notebook_of(source, solved=True)) if suffix == ".ipynb" else source.read_text()
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.process
def test_all_puzzles_without_a_name_and_the_report_says_all(lib: Lib, tmp_path: Path) -> None:
    for number in (0, 4):
        solved(number, tmp_path)
    result = lib("grade")
    assert result.code == 1 and result.err == ""
    assert f"Grade: 2 of {len(COURSE)} puzzles pass" in result.out
    assert result.out.count("TODO") == len(COURSE) - 2
    one, two = [line for line in result.out.split("\n") if line.startswith("PASS")]
    assert " 20.4 ticks  1,966,080 elements  the star asks for  15.6 ticks  2,097,152 elements" in two
    assert re.search(r"puzzle 0  basic +17 ticks  2,621,440 elements  the star asks for +17 ticks", one)
    assert "in a process of its own" in result.out
    best = json.loads((tmp_path / "progress.json").read_text())["best"]
    assert best.keys() == {"basic", "fsdp"} and best["basic"] == {"status": "PASS", "time": 17.0, "memory": 2621440}


@pytest.mark.process
def test_what_cannot_be_imported_is_named_when_it_is_missed(lib: Lib, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BASIC.replace(BEGIN, f"{BEGIN}    nothing.at_all()\n"))
    result = lib("grade", "mine.py")
    assert result.code == 1
    assert (
        "NameError" in result.out and "mine.py, line 3: ModuleNotFoundError: No module named 'nothing_of" in result.out
    )


FILLED = """
import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "sub"))
import below

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=3)
ARGS = parser.parse_args()
TABLE = {}
for number in range(3):
    TABLE[number] = number
ORDER = []
ORDER.append(0)
with open("config.json") as file:
    CONFIG = json.load(file)
"""


@pytest.mark.process
def test_what_fills_a_files_constants_is_run_and_files_beside_it_are_found(lib: Lib, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "below.py").write_text("ONE = 1\n")
    (tmp_path / "config.json").write_text('{"first": 0}')
    used = "    assert (TABLE[2], ORDER, CONFIG, below.ONE, ARGS.layers) == (2, [0], {'first': 0}, 1, 3)\n"
    used += "    open('notes.txt', 'w').close()\n"
    source = FILLED + BASIC.replace(BEGIN, BEGIN + used)
    (tmp_path / "mine.py").write_text(source)
    result = lib("grade", "mine.py")
    assert result.code == 0, result.out
    assert not (tmp_path / "notes.txt").exists()


@pytest.mark.process
def test_what_was_not_run_is_told_with_every_error_that_may_come_of_it(lib: Lib, tmp_path: Path) -> None:
    experiment = "from lib import run\n\ntable = {}\nfor ranks in (1, 2):\n    table[ranks] = run(print, ranks=ranks)\n"
    (tmp_path / "mine.py").write_text(experiment + "other = run(print)\ndef basic(model):\n    table[1]\n")
    result = lib("grade", "mine.py")
    assert "KeyError" in result.out and "mine.py, line 4 (it calls run)" in result.out, result.out
    assert "line 6" not in result.out  # nothing uses it


@pytest.mark.process
def test_a_program_that_wants_arguments_is_told_with_its_line(lib: Lib, tmp_path: Path) -> None:
    wants = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('file')\n"
    (tmp_path / "mine.py").write_text(wants + "ARGS = parser.parse_args()\ndef basic(model):\n    ARGS.file\n")
    result = lib("grade", "mine.py")
    assert "'ARGS' is not defined" in result.out and "mine.py, line 4: SystemExit: 2" in result.out, result.out


@pytest.mark.process
def test_the_line_of_a_mistake_in_a_notebook_is_named_with_its_cell(lib: Lib, tmp_path: Path) -> None:
    path = solved(0, tmp_path)
    path.write_text(path.read_text().replace("model.loss(model.activations.pop(model.LAYERS))", "model.loss(None)"))
    result = lib("grade", str(path), "--why")
    assert result.code == 1
    assert re.search(r"rank 0, loss, line \d+ of cell \d+ of p00_basic.ipynb\n", result.out)
    assert re.search(r"line \d+ of cell \d+ of p00_basic.ipynb in basic: .*model.loss\(None\)", result.out)


@pytest.mark.process
def test_what_the_code_prints_is_shown_and_a_script_that_ends_in_grade_does_not_recurse(
    lib: Lib, tmp_path: Path
) -> None:
    source = BASIC.replace(BEGIN, f"{BEGIN}    print('hello there')\n")
    (tmp_path / "mine.py").write_text(source)
    result = lib("grade", "mine.py")
    assert (result.code, "PASS  puzzle 0" in result.out, "never printed" in result.out) == (0, True, False)
    assert "printed:  [rank 0, tick 0] hello there" in result.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("grade", "fsdq"), "did you mean 'fsdp'"),
        (("grade", "missing.py"), "there is no file missing.py"),
        pytest.param(("grade", "empty.py"), "empty.py defines none of the puzzles", marks=pytest.mark.process),
        (("grade", "folder"), "--each folder"),
        (("grade", "latin.py"), "no text in UTF-8"),
        (("grade", "--hint", "fsdq"), "did you mean"),
        (("grade", "--json", "no/such/folder.json"), "folder.json cannot be written"),
        (("grade", "--json", "-", "--junit", "-"), "only one report can go to stdout"),
        (("grade", "--json", "x", "--junit", "x"), "only one report can go to x"),
        (("grade", "--json", "mine.py", "other.py"), "mine.py may be somebody's work"),
        (("grade", "--json", "folder"), "folder cannot be written"),
        (("grade", "--each", "class", "--gradescope", "empty.py"), "empty.py is no folder"),
        (("grade", "ddp/"), "ddp is a folder"),
        (("grade", "x" * 300 + ".py"), "there is no file"),
        (("grade", "--csv", "x.csv"), "--each"),
        (("grade", "--each", "missing"), "missing"),
        (("grade", "fsdq", "--each", "folder"), "did you mean 'fsdp'"),
        (("grade", "--each", "folder"), "no submissions"),
        (("grade", "--timeout", "0"), "timeout"),
        (("grade", "--nonsense"), "nonsense"),
        (("watch", "fsdq"), "did you mean"),
    ],
)
def test_usage(lib: Lib, tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "latin.py").write_bytes("def basic(model): '\xe4'".encode("latin-1"))
    for name in ("folder", "ddp", "class", "class/anna"):
        (tmp_path / name).mkdir()
    result = lib(*arguments)
    assert result.code == 2 and result.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["class", "ddp", "empty.py", "folder", "latin.py"]
    assert says in result.err and "Traceback" not in result.err


def test_the_list_has_every_puzzle(lib: Lib) -> None:
    result = lib("grade", "--list")
    assert result.code == 0 and len(result.out.splitlines()) == len(puzzles())
    assert re.search(
        "4 +fsdp .*20.4 ticks, 2,359,296 elements +\N{BLACK STAR} 15.6 ticks, 2,097,152 elements", result.out
    )


def test_hints_come_one_by_one_and_the_shell_remembers(lib: Lib, tmp_path: Path) -> None:
    solved(4, tmp_path)
    counts = [lib("grade", "--hint", "fsdp").out.count("Hint ") for _ in range(5)]
    assert counts == [1, 2, 3, 3, 3]


@pytest.mark.process
def test_a_pass_alone_says_what_comes_next_and_with_why_what_is_open(lib: Lib, tmp_path: Path) -> None:
    solved(2, tmp_path)
    solved(3, tmp_path)
    short, long, both = (lib("grade", *asked).out for asked in (["2"], ["2", "--why"], ["2", "3"]))
    following = "puzzle 3: Weight-sharded data parallel (wsdp)"
    opened = "R2: Two turns each (repair_twice), R3: Nothing to see here (repair_quiet), to be repaired"
    assert f"next: {following}" in short and len(short.splitlines()) == 4 and opened not in short
    for name, fact in (("next", following), ("also open", opened)):
        assert re.search(rf"^      {name}: +{re.escape(fact)}$", long, re.MULTILINE)
    assert "also open" not in both and "next:" not in both


@pytest.mark.process
def test_the_faces_for_programs(lib: Lib, tmp_path: Path) -> None:
    solved(0, tmp_path)
    shutil.copy(ROOT / "puzzles" / "p01_grad_accum.ipynb", tmp_path)
    (tmp_path / "ddp.py").write_text("async def ddp(model):\n    await model.receive()\n")
    result = lib("grade", "0", "1", "2", "--json", "a.json", "--junit", "b.xml", "--gradescope", "c.json")
    assert result.code == 1 and "1 of 3 puzzles pass" in result.out
    assert "TODO  puzzle 1" in result.out and "not attempted yet" in result.out  # the notebook is blank
    assert f"{called()} grade --hint grad_accum" in result.out

    whole = json.loads((tmp_path / "a.json").read_text())
    assert whole["version"] == 3 and "process of its own" in whole["isolation"]
    first, second, third = whole["results"]
    assert (first["puzzle"], first["status"], first["time"], first["memory"]) == ("basic", "PASS", 17.0, 2621440)
    assert first["target"] == {"time": 17.0, "memory": 2621440} and len(first["held_at"]) >= 3
    assert (second["status"], second["right"], third["status"], third["right"]) == ("TODO", False, "FAIL", False)
    assert "deadlock" in third["message"] and third["next_hint"].endswith("--hint ddp")

    suite = ElementTree.parse(tmp_path / "b.xml").getroot()[0]
    assert dict(suite.attrib) | {"time": ""} == {
        "name": "puzzles", "tests": "3", "failures": "1", "errors": "0", "skipped": "1", "time": "",
    }  # fmt: skip
    assert [[child.tag for child in case] for case in suite] == [[], ["skipped"], ["failure"]]

    scope = json.loads((tmp_path / "c.json").read_text())
    assert scope["score"] == 1.0 and [test["status"] for test in scope["tests"]] == ["passed", "failed", "failed"]
    assert {row["name"]: row["value"] for row in scope["leaderboard"]} == {
        "basic: ticks": 17.0,
        "basic: elements": 2621440,
    }


@pytest.mark.process
def test_json_on_stdout_is_all_of_stdout(lib: Lib, tmp_path: Path) -> None:
    solved(0, tmp_path)
    assert json.loads(lib("grade", "0", "--json", "-").out)["results"][0]["status"] == "PASS"


@pytest.mark.process
def test_a_folder_of_submissions(lib: Lib, tmp_path: Path) -> None:
    each = tmp_path / "class"
    solved(0, each / "anna")
    solved(2, each / "anna")
    shutil.copy(ROOT / "puzzles" / "p02_ddp.ipynb", each / "anna" / "a_blank.ipynb")  # the best file counts
    (each / "bob.py").parent.mkdir(exist_ok=True)
    (each / "bob.py").write_text(BASIC + "\ndef ddp(model):\n    while True: pass\n")
    (each / "=cmd").mkdir()
    (each / "=cmd" / "x.py").write_text("def basic(model): import bob; bob.basic(model)\n")
    (each / "dora.ipynb").write_text("{ no notebook\ndef basic(")
    (each / "emil").mkdir()
    (each / "fay.py").symlink_to("/etc/passwd")
    (each / "gus.py").write_bytes(b"\x00\ndef basic(model): pass")
    os.mkfifo(each / "hal.py")
    faces = ("--csv", "c.csv", "--gradescope", "out", "--json", "a.json")
    result = lib("grade", "0", "ddp", "--each", "class", "--timeout", "2", *faces)
    assert result.code == 1, result.err
    rows = {row["student"]: row for row in csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text()))}
    found = {name: (row["passed"], row["basic status"], row["ddp status"]) for name, row in rows.items()}
    assert found == {
        "anna": ("2", "PASS", "PASS"),
        "bob": ("1", "PASS", "FAIL"),
        "'=cmd": ("0", "FAIL", "TODO"),  # no student sees another's file
        "dora": ("0", "FAIL", "TODO"),
        "emil": ("0", "TODO", "TODO"),
        "fay": ("0", "TODO", "TODO"),
        "gus": ("0", "FAIL", "TODO"),
        "hal": ("0", "TODO", "TODO"),
    }
    assert rows["anna"]["ddp ticks"] == "5.6"
    assert len(list((tmp_path / "out").glob("*.json"))) == len(found)
    assert "fay.py is no ordinary file" in result.out and "no .py and no .ipynb file" in result.out
    students = {row["student"] for row in json.loads((tmp_path / "a.json").read_text())["results"]}
    assert students == {name.lstrip("'") for name in found}


@pytest.mark.process
def test_no_student_hinders_another(lib: Lib, tmp_path: Path) -> None:
    good, each = BASIC, os.fsencode(tmp_path / "class") + b"/"

    def hand_in(path: bytes, text: str) -> None:
        os.makedirs(os.path.dirname(each + path), exist_ok=True)
        Path(os.fsdecode(each + path)).write_text(text)

    for path in (b"anna/basic.py", b"bob\x01/basic.py", "\u3042".encode() * 84 + b"/basic.py", b"zoe/basic.py"):
        hand_in(path, good)
    for path in (b"bob\x02/x.py", b"\x01" * 100 + b"/x.py", b"cut/" + b"d" * 250 + b"/x.py"):
        hand_in(path, "x = 1\n")
    for path in (b"esc/\x1b[2Jx.py", b"nl\nPASS  puzzle 0/basic.py", b"sur/\xff.py"):
        hand_in(path, "def basic(model):\n    1 / 0\n")
    for path in (b"esc/\x1b[2J.py", b"links/\xff.py"):
        os.makedirs(os.path.dirname(each + path), exist_ok=True)
        os.symlink("/etc/passwd", each + path)
    faces = ("--csv", "c.csv", "--gradescope", "out", "--json", "a.json", "--junit", "b.xml")
    result = lib("grade", "0", "1", "--each", "class", "--timeout", "5", *faces)
    assert result.code == 1 and "\x1b" not in result.err
    shown = [line.partition("  ") for line in result.err.splitlines() if "as root" not in line]
    assert [count for count, _, _ in shown] == [f"{number} of 11" for number in range(1, 12)]
    assert {"sur", "zoe", "bob\\x01"} < {student for _, _, student in shown}
    assert "\x1b" not in result.out and "\nPASS  puzzle 0:" not in result.out
    table = csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text()))
    rows = {row["student"]: row["basic status"] for row in table}
    assert rows == {
        "anna": "PASS", "bob\\x01": "PASS", "\u3042" * 66: "PASS", "zoe": "PASS",
        "bob\\x02": "TODO", "\\x01" * 50: "TODO", "cut": "TODO", "links": "TODO",
        "esc": "FAIL", "nl\\nPASS  puzzle 0": "FAIL", "sur": "FAIL",
    }  # fmt: skip
    assert "\\x1b[2J.py is no ordinary file" in result.out and "\\udcff.py is no ordinary file" in result.out
    assert sorted(path.stem for path in (tmp_path / "out").iterdir()) == sorted(rows)
    suites = ElementTree.parse(tmp_path / "b.xml").getroot()
    assert {suite.get("name") for suite in suites} == rows.keys()
    assert {row["student"] for row in json.loads((tmp_path / "a.json").read_text())["results"]} == rows.keys()


ENDLESS = "def {}(model):\n    while True: pass\n"
BROKEN = "def {}(model):\n    1 / 0\n"


@pytest.mark.process
def test_endless_functions_end_a_students_turn_and_no_other(lib: Lib, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "class" / "bea" / str(number)).mkdir(parents=True)
        endless = "".join(ENDLESS.format(name) for name in COURSE)
        (tmp_path / "class" / "bea" / str(number) / "x.py").write_text(endless)
    solved(0, tmp_path / "class" / "zoe")
    result = lib("grade", "--each", "class", "--timeout", "1", "--budget", "4", "--json", "a.json")
    rows = json.loads((tmp_path / "a.json").read_text())["results"]
    of_bea = [row for row in rows if row["student"] == "bea"]
    assert {row["status"] for row in of_bea} == {"FAIL"} and result.code == 1
    left = [row["message"] for row in of_bea if row["message"].startswith("not graded: this student's programs have")]
    assert 3 <= len(left) < len(of_bea) and all("and 4 are allowed (--budget)" in words for words in left)
    assert [row["status"] for row in rows if (row["student"], row["puzzle"]) == ("zoe", "basic")] == ["PASS"]


@pytest.mark.process
def test_of_many_files_some_count_and_those_named_for_the_puzzle_first(lib: Lib, tmp_path: Path) -> None:
    for student in ("anna", "bob"):
        (tmp_path / "class" / student).mkdir(parents=True)
        for number in range(8):
            (tmp_path / "class" / student / f"a{number}.py").write_text(BROKEN.format("basic"))
    solved(0, tmp_path / "class" / "anna", ".py")
    lib("grade", "0", "--each", "class", "--json", "a.json")
    rows = {row["student"]: row for row in json.loads((tmp_path / "a.json").read_text())["results"]}
    assert rows["anna"]["status"] == "PASS" and rows["bob"]["status"] == "FAIL"
    assert "3 more files that define the same puzzles were not graded: 5 are, at most" in rows["bob"]["note"]


@pytest.mark.process
def test_an_examiner_that_dies_fails_one_attempt_and_no_other(
    lib: Lib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the system ends it for want of memory."""
    for student in ("anna", "bob", "cleo"):
        solved(0, tmp_path / "class" / student)
    asked = examiner.Examiner.ask
    seen: list[str] = []

    def dies(self: examiner.Examiner, request: Attempt | Submission) -> None:
        asked(self, request)
        submission = request.submission if isinstance(request, Attempt) else request
        seen.append(str(submission and submission.folder))
        if self.process is not None and seen[-1].endswith("bob"):
            self.process.kill()

    monkeypatch.setattr(examiner.Examiner, "ask", dies)
    assert lib("grade", "0", "--each", "class", "--json", "a.json").code == 3
    rows = {row["student"]: row for row in json.loads((tmp_path / "a.json").read_text())["results"]}
    assert {name: row["status"] for name, row in rows.items()} == {"anna": "PASS", "bob": "ERROR", "cleo": "PASS"}
    assert "the process that judges has ended" in rows["bob"]["message"] and len(seen) == 6


def hang(monkeypatch: pytest.MonkeyPatch, whom: str) -> None:
    """The grader hangs over that student's code, in a call that it cannot interrupt."""
    begun = Loaded.run

    def hangs(self: Loaded, *rest: Any, **options: Any) -> Any:
        if self.submission.folder and self.submission.folder.endswith(whom):
            self.watch(self.timeout, True)
            time.sleep(300)
        return begun(self, *rest, **options)

    monkeypatch.setattr(Loaded, "run", hangs)


@pytest.mark.process
def test_a_run_that_the_grader_cannot_end_is_ended_from_outside(
    lib: Lib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for student in ("anna", "bob", "cleo"):
        solved(0, tmp_path / "class" / student)
    hang(monkeypatch, "bob")
    assert lib("grade", "0", "--each", "class", "--json", "a.json", "--timeout", "5", "--budget", "200").code == 1
    rows = {row["student"]: row for row in json.loads((tmp_path / "a.json").read_text())["results"]}
    assert {name: row["status"] for name, row in rows.items()} == {"anna": "PASS", "bob": "FAIL", "cleo": "PASS"}
    assert "the run did not end within 5 seconds" in rows["bob"]["message"]
    monkeypatch.chdir(tmp_path / "class" / "bob")
    assert "FAIL  puzzle 0" in (alone := lib("grade", "--timeout", "0.2", "0").out)
    assert "the run did not end within 0.2 seconds" in alone


@pytest.mark.process
def test_a_student_whose_seconds_are_used_up_is_stopped_in_the_middle(
    lib: Lib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for student in ("anna", "bob"):
        for number in (0, 1):
            solved(number, tmp_path / "class" / student)
    hang(monkeypatch, "bob")
    lib("grade", "0", "1", "--each", "class", "--json", "a.json", "--timeout", "80", "--budget", "8")
    rows = json.loads((tmp_path / "a.json").read_text())["results"]
    assert [row["status"] for row in rows] == ["PASS", "PASS", "FAIL", "FAIL"]
    assert all("not graded: this student's programs have taken" in row["message"] for row in rows[2:])


@pytest.mark.process
def test_what_cannot_be_written_is_said_and_stops_nothing_else(lib: Lib, tmp_path: Path) -> None:
    solved(0, tmp_path)
    (tmp_path / "a.json").write_text("old")
    result = lib("grade", "0", "--junit", "/dev/full", "--json", "a.json", "--gradescope", "c.json")
    assert result.code == 3 and "1 of 1 puzzle passes" in result.out
    assert result.err == f"{called()} grade: /dev/full could not be written: No space left on device\n"
    assert json.loads((tmp_path / "a.json").read_text())["version"] == 3
    assert json.loads((tmp_path / "c.json").read_text())["score"] == 1.0


@pytest.mark.process
def test_a_report_that_nobody_takes(tmp_path: Path) -> None:
    solved(0, tmp_path)
    line = f"{shlex.quote(sys.executable)} -m lib grade 0 --json a.json | true; exit ${{PIPESTATUS[0]}}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"") and (tmp_path / "a.json").exists()


@pytest.mark.process
@pytest.mark.parametrize("command", ["training-puzzles", "python -m lib"])
def test_nothing_in_the_folder_of_a_submission_is_imported(command: str, tmp_path: Path) -> None:
    """Whatever the files are called that were handed in, or lie beside the learner's: here every module that the grader
    and its workers import, and lib itself, is one that forges."""
    found = "import sys, lib.__main__, lib.referee.shell, lib.referee.worker; print(*sys.modules)"
    known = subprocess.run([sys.executable, "-c", found], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {name.partition(".")[0] for name in known.split()} - {"__main__", "sys", "builtins"}
    names |= {"lib", "argparse", "json", "random", "queue", "types", "sitecustomize"}
    if command == "python -m lib":  # Python itself looks for these there, before lib can say anything
        names -= {"lib", "pkgutil", "runpy", "importlib", "warnings", "typing", "collections", "functools", "weakref"}
        names -= {"sitecustomize", "usercustomize", "types", "operator", "keyword", "reprlib", "inspect", "re", "enum"}
        names -= {"copyreg", "abc", "os", "io", "site", "stat", "codecs", "encodings", "contextlib", "_collections_abc"}
    for name in names:
        (tmp_path / f"{name}.py").write_text("print('PASS puzzle 0, forged'); raise SystemExit(0)\n")
    solved(0, tmp_path)
    script = Path(sys.executable).with_name("training-puzzles")
    if command == "training-puzzles" and not script.exists():
        pytest.skip("NOT TRIED AS A COMMAND: training-puzzles is not installed (make setup)")
    start = [str(script)] if command == "training-puzzles" else [sys.executable, "-m", "lib"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    shell = [*start, "grade", "0", "--json", "a.json"]
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "forged" in done.stdout + done.stderr) == (0, False), done.stdout + done.stderr
    assert [row["status"] for row in json.loads((tmp_path / "a.json").read_text())["results"]] == ["PASS"]


@pytest.mark.process
def test_a_file_that_cannot_be_read_does_not_stop_the_others(lib: Lib, tmp_path: Path) -> None:
    solved(0, tmp_path)
    (tmp_path / "ddp.py").write_bytes(b"def ddp(model): '\xe4'")
    (tmp_path / "fsdp.py").symlink_to("/etc/passwd")
    result = lib("grade", "basic", "ddp", "fsdp")
    found = {line.split()[3].rstrip(":"): line.split()[0] for line in result.out.splitlines() if " puzzle " in line}
    assert found == {"basic": "PASS", "ddp": "FAIL", "fsdp": "FAIL"}, result.out
    assert "ddp.py is no text in UTF-8" in result.out and "fsdp.py is no ordinary file" in result.out


@pytest.mark.process
def test_errors_of_the_grader_are_its_own(lib: Lib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise RuntimeError("oh")

    solved(0, tmp_path)
    monkeypatch.setattr(examiner, "judge", fails)
    result = lib("grade", "0")
    assert result.code == 3 and "ERROR puzzle 0" in result.out and "the grader failed: RuntimeError: oh" in result.out
    monkeypatch.setattr(shell, "asked_for", fails)
    result = lib("grade", "0")
    assert result.code == 3 and "Traceback" in result.err


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | variables
    return subprocess.Popen(
        [sys.executable, "-m", "lib", *arguments],
        cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=heed_signals,
    )  # fmt: skip


def heed_signals() -> None:
    """Heed what a shell's background jobs, or nohup, ignore."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.process
@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_interrupted_or_killed_it_leaves_no_process_and_no_file(how: str, tmp_path: Path) -> None:
    names = ("basic", "ddp", "fsdp")
    for name in names:
        (tmp_path / f"{name}.py").write_text(ENDLESS.format(name))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = start(tmp_path, "grade", "--timeout", "300", *names, TMPDIR=str(temporary))
    deadline = time.monotonic() + 30
    while len(workers(command.pid)) < 2 + len(names) and time.monotonic() < deadline:  # one of them is endless
        time.sleep(0.05)
    time.sleep(0.5)
    begun = workers(command.pid)
    assert len(begun) >= 3
    command.send_signal(signal.SIGINT if how == "interrupted" else signal.SIGKILL)
    _, err = command.communicate(timeout=30)
    if how == "interrupted":
        assert (command.returncode, err.strip()) == (130, "interrupted")
        assert list(temporary.iterdir()) == []
    deadline = time.monotonic() + 5
    while (left := [one for one in begun if Path(f"/proc/{one}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def workers(parent: int) -> list[int]:
    """All processes that have come from this one."""
    found = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
    pairs = [(int(line.split()[0]), int(line.split()[1])) for line in found.splitlines()[1:]]
    below = [parent]
    for process in below:
        below += [pid for pid, ppid in pairs if ppid == process]
    return below[1:]


@pytest.mark.process
def test_watch_grades_again_when_a_file_is_saved(tmp_path: Path) -> None:
    blank = (ROOT / "puzzles" / "p00_basic.ipynb").read_text()
    (tmp_path / "p00_basic.ipynb").write_text(blank)
    command = start(tmp_path, "watch", "basic", "--plain")
    assert command.stdout is not None and command.stderr is not None
    patience = threading.Timer(120, command.kill)  # what never comes ends the test, too
    patience.start()
    try:
        seen = read_until(command.stdout, "Graded")
        assert "TODO  puzzle 0" in seen
        read_until(command.stderr, "Waiting")
        time.sleep(0.5)  # the watching begins after the line is written
        (tmp_path / "p00_basic.ipynb").write_text("half a notebo")  # a save in two steps: no reason to stop
        seen = read_until(command.stdout, "\n")
        read_until(command.stderr, "Waiting")
        time.sleep(0.5)
        solved(0, tmp_path)
        assert "PASS  puzzle 0" in read_until(command.stdout, "PASS")
    finally:
        patience.cancel()
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=30)
    assert command.returncode == 130


def read_until(stream: Any, word: str) -> str:
    seen = ""
    while word not in seen:
        line = stream.readline()
        assert line, seen
        seen += line
    return seen


# -- how it is called ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_without_a_word_all_commands_are_listed(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m lib", *arguments])
    assert commands() == 0
    begin, listed = capsys.readouterr().out.split("All commands:")
    assert re.findall(r"^  (\w+) ", listed, re.MULTILINE) == list(COMMANDS)
    assert f"{called()} lab " in begin and f"{called()} start 0 basic.py" in begin


@pytest.mark.process
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_is_listed_is_there(command: str) -> None:
    line = [sys.executable, "-m", "lib", command, "--help"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.match(rf"usage: .* -m lib {command} ", done.stdout)


@pytest.mark.parametrize(
    ("program", "there", "typed"),
    [
        ("bin/training-puzzles", "", "bin/training-puzzles"),
        ("bin/training-puzzles", "bin", "training-puzzles"),
        ("lib/__main__.py", "", "bin/python -m lib"),
        ("lib/__main__.py", "bin", "python -m lib"),
        ("lib/__main__.py", "other", "bin/python -m lib"),
    ],
)
def test_advice_names_a_command_that_works_here(
    program: str, there: str, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("bin", "other"):
        (tmp_path / folder).mkdir()
        for name in ("python", "training-puzzles"):
            (tmp_path / folder / name).touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / there) if there else "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / program)])
    assert called() == typed
    monkeypatch.chdir(tmp_path / "other")
    assert called() == (typed if there == "bin" else str(tmp_path / typed))


@pytest.mark.parametrize(
    ("environment", "typed"),
    [
        # It is on the path of this process only.
        ({"UV": "uv"}, 'uvx --from "llm-training-puzzles[lab]" llm-training-puzzles'),
        ({"UV": "uv", "VIRTUAL_ENV": sys.prefix}, "llm-training-puzzles"),  # uv run
        ({}, "llm-training-puzzles"),
    ],
)
def test_advice_for_who_called_it_by_uvx(
    environment: dict[str, str], typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llm-training-puzzles").touch(0o755)
    for name in ("UV", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**environment, "PATH": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "llm-training-puzzles")])
    assert called() == typed


# -- start --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("puzzle", list(puzzles().values()), ids=list(puzzles()))
def test_every_blank_can_be_a_script(puzzle: Puzzle, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    assert shell.main(["start", str(puzzle.number), str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    if puzzle.repair:
        assert f"# ## {puzzle.number}. {puzzle.title}\n" in text
        assert re.findall(r"def (repair_\w+)", text) == re.findall(r"grade\((\w+)\)", text) == [puzzle.name]
    else:
        assert text.split("\n\n")[1].startswith(f"# %% [markdown]\n# # Puzzle {puzzle.number}: ")
        assert "# Your code here." in text
    assert "base64" not in text
    _, _, after = text.partition(f"\n\n# %%\n{FIRST_CELL}\n\n# %%\n")
    assert re.match(r"(from (dataclasses|typing) import .+\n)*\n?from drawing import", after), after[:200]
    assert len(text) < 14_000
    assert all(len(line) < 260 for line in text.splitlines() if line.startswith("# (A picture"))


@pytest.mark.process
@pytest.mark.parametrize("name", some([*puzzles()], 3))
def test_every_script_runs(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    assert shell.main(["start", name, str(path)]) == 0
    done = subprocess.run([sys.executable, str(path)], cwd=ROOT, capture_output=True, text=True, check=False)
    if puzzles()[name].repair and name not in QUIET:  # it draws the program as it is: the error says what is wrong
        assert done.returncode == 1 and re.search(r"^lib\S+(PuzzleError|Deadlock): ", done.stderr, re.MULTILINE)
    else:
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
def test_a_script_is_graded_and_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my fsdp.py"
    assert shell.main(["start", "fsdp", str(path)]) == 0
    assert f"watch '{path}'" in capsys.readouterr().out
    assert shell.main(["grade", str(path), "--plain"]) == 1
    assert "TODO" in capsys.readouterr().out
    path.write_text("mine", encoding="utf-8")
    assert shell.main(["start", "fsdp", str(path)]) == 2
    assert path.read_text(encoding="utf-8") == "mine"
    assert "is there already" in capsys.readouterr().err


def test_a_script_can_begin_with_an_earlier_answer(lib: Lib, tmp_path: Path) -> None:
    solved(4, tmp_path)
    assert lib("start", "replica_fsdp", "a.py", "--from", "fsdp").code == 0
    text = (tmp_path / "a.py").read_text()
    assert text.count("async def replica_fsdp(") == 1 and "# Your code here." not in text
    assert "await model.scatterreduce(grad, layer)" in text.partition("async def replica_fsdp(")[2]
    assert lib("start", "7", "b.py", "--from", "a.py").code == 0  # a file, whatever puzzle it is of
    assert "async def pipeline_fsdp(model: Model) -> Model:\n" in (tmp_path / "b.py").read_text()
    (tmp_path / "progress.json").write_text(
        json.dumps({"version": 1, "best": {}, "hints": {}, "answers": {"ddp": "def ddp(model):\n    print(1)"}})
    )
    assert lib("start", "3", "d.py", "--from", "ddp").code == 0
    assert "def wsdp(model):\n    print(1)\n" in (tmp_path / "d.py").read_text()
    nothing = lib("start", "6", "e.py", "--from", "pipeline")
    assert nothing.code == 2 and "there is no answer of yours to pipeline" in nothing.err
    assert not (tmp_path / "e.py").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["fdsp", "x.py"], "did you mean 'fsdp'"), (["fsdp", "x.ipynb"], "ends in .py"), (["fsdp", "no/x.py"], "written")],
)
def test_a_script_that_cannot_be_started_says_why(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shell.main(["start", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
