"""What is graded is told and kept, whatever is closed, full, damaged, newer, or written by others at the same time."""

import csv
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from lib import grade
from lib.basics import saving
from lib.course.specs import puzzles
from lib.grading.progress import NAME, Point, Progress, keep
from lib.grading.verdict import PASS, Verdict
from lib.referee import classroom, shell
from lib.referee.attempts import Student, submissions
from lib.referee.handed_in import NO_WORK
from tests.corpus import changed, function
from tests.programs import COURSE
from tests.test_grading import SOLUTIONS
from tests.test_shell import BASIC, ENDLESS, ROOT, read_until, solved, workers
from tests.test_shell import start as begin

HERE = {key: value for key, value in os.environ.items() if not key.startswith("LLM_")} | {"PYTHONPATH": str(ROOT)}
BEFORE = {"version": 1, "best": {"ddp": {"status": "PASS", "time": 5.6, "memory": 2000}}, "hints": {"ddp": 2}}


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is kept beside what is graded, as it is where the environment names no other place."""
    monkeypatch.delenv("LLM_TRAINING_PUZZLES_PROGRESS")


def called_in(folder: Path, *arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Return what came of ``python -m lib`` in a process of its own."""
    line = [sys.executable, "-m", "lib", *arguments]
    how = {"env": HERE, "capture_output": True} | how
    return subprocess.run(line, cwd=folder, text=True, check=False, **how)


def statuses(path: Path) -> list[str]:
    return [row["status"] for row in json.loads(path.read_text())["results"]]


def passed(folder: Path) -> list[str]:
    """The puzzles that have passed, as progress has them."""
    return sorted(
        name for name, best in json.loads((folder / NAME).read_text())["best"].items() if best["status"] == PASS
    )


def left_over(folder: Path) -> list[str]:
    """Files that are half written, and locks."""
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


# -- a damaged, a newer, an unreadable file of progress ------------------------------------------------------------

DAMAGED = {"a hint too many": '{"version": 1, "best": {}, "hints": {"ddp": 1e999}}', "no text": "\xff\xfe"}


@pytest.mark.process
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_hinders_no_report(damage: str, tmp_path: Path) -> None:
    solved(0, tmp_path)
    (tmp_path / NAME).write_bytes(DAMAGED[damage].encode("latin-1"))
    done = called_in(tmp_path, "grade", "0", "--json", "a.json")
    assert (done.returncode, statuses(tmp_path / "a.json"), passed(tmp_path)) == (0, [PASS], ["basic"])
    assert "1 of 1 puzzle passes" in done.stdout and "progress.json was broken; it is kept as" in done.stderr
    [aside] = tmp_path.glob("progress-broken-*")
    assert aside.read_bytes() == DAMAGED[damage].encode("latin-1") and left_over(tmp_path) == []


def test_of_a_damaged_file_all_is_kept_that_is_sound(tmp_path: Path) -> None:
    """Any one of its values may be anything else."""
    point = {"time": 5.6, "memory": 2000, "passed": True}
    trail, answers = {"ddp": [point], "fsdp": [point]}, {"ddp": "x", "fsdp": "y"}
    best, hints = BEFORE["best"] | {"fsdp": BEFORE["best"]["ddp"]}, {"ddp": 2, "fsdp": 3}  # type: ignore[index,operator]
    endings = {name: {"right": True, "time": 5.6, "memory": 2000} for name in best}
    whole = {"version": 1, "best": best, "hints": hints, "trail": trail, "endings": endings, "answers": answers}
    figures = [{name: value} for name in ("time", "memory") for value in ("x", float("nan"), -1, 10**400)]
    fields = {"status": "none", "passed": "yes", "right": 1}
    for part in ("best", "hints", "trail", "endings", "answers"):
        sound = {"best": best["ddp"], "trail": point, "endings": endings["ddp"]}.get(part, {})
        near = [sound | one for one in (*figures, fields, *[{"memory": None}] * (part == "trail")) if sound]
        of_part = [[one] for one in near] if part == "trail" else near
        for wrong in (None, [], {}, -1, float("inf"), float("nan"), True, "1", [sound | {"time": 1e999}], *of_part):
            if (part == "answers" and isinstance(wrong, str)) or (part == "trail" and wrong == []):
                continue  # sound
            (tmp_path / NAME).write_text(json.dumps(whole | {part: whole[part] | {"ddp": wrong}}))  # type: ignore[operator]
            kept = Progress(tmp_path)
            assert "it is kept as progress-broken-" in kept.note and "goes on with what is sound" in kept.note, wrong
            for again in (kept, Progress(tmp_path)):
                assert again.hints == {"ddp": 2, "fsdp": 3} or (part == "hints" and again.hints == {"fsdp": 3})
                assert [*again.best] == ["fsdp"] if part == "best" else again.best == best
                assert again.trail["fsdp"] == [Point(5.6, 2000, True)] and again.answers["fsdp"] == "y"
            assert Progress(tmp_path).note == ""


@pytest.mark.process
def test_a_newer_file_is_said_to_be_newer_and_stays_as_it_is(tmp_path: Path) -> None:
    solved(0, tmp_path)
    newer = json.dumps(BEFORE | {"version": 2, "more": [1]})
    (tmp_path / NAME).write_text(newer)
    said = "progress.json is of a newer version of the puzzles (2; this one knows 1): it stays as it is"
    done = called_in(tmp_path, "grade", "0", "--json", "a.json")
    assert (done.returncode, statuses(tmp_path / "a.json")) == (0, [PASS]) and said in done.stderr
    assert said in called_in(tmp_path, "grade", "--hint", "ddp").stdout
    assert said in str(Progress(tmp_path)) and "broken" not in done.stderr
    assert (tmp_path / NAME).read_text() == newer and not [*tmp_path.glob("progress-broken*"), *left_over(tmp_path)]


def a_secret(path: Path) -> None:
    path.write_text(json.dumps(BEFORE))
    path.chmod(0)


@pytest.mark.process
@pytest.mark.parametrize("make", [os.mkfifo, a_secret])
def test_what_cannot_be_read_is_not_written_over(make: Callable[[Path], None], tmp_path: Path) -> None:
    solved(0, tmp_path)
    make(tmp_path / NAME)
    if os.access(tmp_path / NAME, os.R_OK) and make is a_secret:
        pytest.skip("NOT TRIED WITH A FILE THAT MAY NOT BE READ: root may read all. Run this as a user who is not root")
    before = os.lstat(tmp_path / NAME)
    done = called_in(tmp_path, "grade", "0", "--json", "a.json", timeout=60)
    assert (done.returncode, statuses(tmp_path / "a.json")) == (0, [PASS])
    assert "progress.json could not be read (" in done.stderr and "it stays as it is" in done.stderr
    assert os.path.samestat(before, os.lstat(tmp_path / NAME))


# -- what is closed, what is full ----------------------------------------------------------------------------------

CLOSED = [("<&-", "2>&-"), ("<&-", ">&-", "2>&-")]


@pytest.mark.process
@pytest.mark.parametrize("streams", CLOSED, ids=" ".join)
def test_closed_streams_hinder_no_report(streams: tuple[str, ...], tmp_path: Path) -> None:
    solved(0, tmp_path)
    line = f'"{sys.executable}" -m lib grade 0 --json a.json {" ".join(streams)}'
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": False}
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=HERE, **how)
    assert (done.returncode, statuses(tmp_path / "a.json"), passed(tmp_path)) == (0, [PASS], ["basic"]), done.stderr
    assert ("1 of 1 puzzle passes" in done.stdout) == (">&-" not in streams) and done.stderr == ""


@pytest.mark.process
@pytest.mark.parametrize("streams", [">/dev/full", ">/dev/full 2>/dev/full", "--json - >&-"])
def test_a_report_that_does_not_get_out_is_told_by_the_exit_status(streams: str, tmp_path: Path) -> None:
    solved(0, tmp_path)
    line = f'unset PYTHONUNBUFFERED; "{sys.executable}" -m lib grade 0 {streams}'
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=HERE, capture_output=True, text=True, check=False)
    assert (done.returncode, passed(tmp_path)) == (3, ["basic"]), done.stderr
    assert ("the report could not be written: " in done.stderr) == ("2>" not in streams)


@pytest.mark.process
@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
def test_a_class_is_graded_where_nobody_hears_how_far_it_is(stderr: str, tmp_path: Path) -> None:
    for name in ("anna", "bob"):
        solved(0, tmp_path / "class" / name)
    line = f'"{sys.executable}" -m lib grade 0 --each class --json a.json --gradescope out --csv c.csv {stderr}'
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=HERE, capture_output=True, text=True, check=False)
    assert (done.returncode, statuses(tmp_path / "a.json")) == (0, [PASS, PASS]), done.stdout
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["anna.json", "bob.json"]
    assert not [*tmp_path.rglob(NAME)]  # a teacher's grading is nobody's progress


@pytest.mark.process
def test_on_a_full_disk_the_report_is_printed_and_old_files_stay_whole(tmp_path: Path) -> None:
    solved(0, tmp_path)
    old = json.dumps(BEFORE | {"answers": {"ddp": "x" * 900}})
    for name in (NAME, "a.json"):
        (tmp_path / name).write_text(old)
    full = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (150, 150))}
    done = called_in(tmp_path, "grade", "0", "--json", "a.json", "--junit", "b.xml", **full)
    assert done.returncode == 3 and "1 of 1 puzzle passes" in done.stdout
    for name in ("a.json", "b.xml"):
        assert f" grade: {name} could not be written: File too large\n" in done.stderr
    assert "progress could not be saved (File too large)" in done.stderr
    assert (tmp_path / NAME).read_text() == (tmp_path / "a.json").read_text() == old
    assert not (tmp_path / "b.xml").exists() and left_over(tmp_path) == []


def test_a_verdict_in_a_notebook_is_told_whatever_happens_to_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    shown = str(grade(SOLUTIONS["basic"]))
    assert shown.startswith("PASS") and "progress could not be saved (FileNotFoundError: " in shown


# -- several at the same time --------------------------------------------------------------------------------------

RECORDS = """
import sys
from pathlib import Path
from lib.course.specs import puzzles
from lib.grading.page import report_text
from lib.grading.progress import keep
from lib.grading.verdict import Verdict
for name in sys.argv[2:]:
    sys.stdout.write(keep([Verdict(puzzles()[name], "PASS", "", True, 1.0, 1)], Path(sys.argv[1])))
"""


@pytest.mark.process
def test_results_recorded_side_by_side_are_all_kept(tmp_path: Path) -> None:
    names = COURSE[:24]
    lines = [[sys.executable, "-c", RECORDS, str(tmp_path), *names[turn::4]] for turn in range(4)]
    running = [subprocess.Popen(line, env=HERE, stdout=subprocess.PIPE) for line in lines]
    assert [one.communicate(timeout=120)[0] for one in running] == [b""] * 4
    assert passed(tmp_path) == sorted(names) and len(names) == 24
    assert [path.name for path in tmp_path.iterdir()] == [NAME]  # no lock is left, and nothing half written


HOLDS = """
import sys, time
from pathlib import Path
from lib.basics.saving import one_at_a_time
with one_at_a_time(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.process
def test_a_lock_hangs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder may be stopped, for as long as it likes, or have been killed: then the lock is free at once."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path / NAME)], env=HERE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        monkeypatch.setattr(saving, "PATIENCE", 0.2)
        assert keep([Verdict(puzzles()["ddp"], PASS, "", True, 1.0, 1)], tmp_path) == ""
        assert passed(tmp_path) == ["ddp"] and left_over(tmp_path) == [".progress.json.lock"]
    finally:
        holder.kill()
        holder.communicate()
    monkeypatch.setattr(saving, "PATIENCE", 3600)  # it would be felt
    assert keep([Verdict(puzzles()["fsdp"], PASS, "", True, 1.0, 1)], tmp_path) == ""
    assert passed(tmp_path) == ["ddp", "fsdp"] and left_over(tmp_path) == []


def test_where_there_are_no_locks_there_is_progress_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(saving, "_lock", fails)
    monkeypatch.setattr(saving, "PATIENCE", 3600)
    assert keep([Verdict(puzzles()["ddp"], PASS, "", True, 1.0, 1)], tmp_path) == ""
    assert passed(tmp_path) == ["ddp"]


@pytest.mark.process
def test_in_a_browser_fcntl_has_no_locks_and_progress_is_kept(tmp_path: Path) -> None:
    """Pyodide's fcntl is such a one."""
    program = """import sys, types
sys.modules["fcntl"] = types.ModuleType("fcntl")
from pathlib import Path
from lib.course.specs import puzzles
from lib.grading.progress import keep
from lib.grading.verdict import PASS, Verdict
print(repr(keep([Verdict(puzzles()["ddp"], PASS, "", True, 1.0, 1)], Path(sys.argv[1]))))"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=HERE, check=True)
    assert done.stdout.strip() == "''" and passed(tmp_path) == ["ddp"]


def test_a_file_that_a_link_leads_to_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "synced").mkdir()
    (tmp_path / NAME).symlink_to(tmp_path / "synced" / NAME)
    keep([Verdict(puzzles()["ddp"], PASS, "", True, 1.0, 1)], tmp_path)
    assert (tmp_path / NAME).is_symlink() and passed(tmp_path / "synced") == ["ddp"]


# -- a pass counts wherever it happens -----------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("named", [False, True])
def test_a_pass_counts_at_a_shell_and_in_a_script(named: bool, tmp_path: Path) -> None:
    """Beside the file, as for a notebook there, or in the folder that the environment names; solution() knows it."""
    work, other, kept = tmp_path / "work", tmp_path / "other", tmp_path / "not" / "there" / "yet"
    for folder in (work, other):
        folder.mkdir()
    environment = HERE | ({"LLM_TRAINING_PUZZLES_PROGRESS": str(kept)} if named else {})
    place = kept if named else work
    (work / "mine.py").write_text(BASIC.replace('print("never printed")\n', ""))
    done = called_in(other, "grade", "../work/mine.py", env=environment)
    assert (done.returncode, done.stderr, passed(place)) == (0, "", ["basic"])

    (place / NAME).unlink()
    asks = "from lib import hint, solution\n\nprint(solution('basic'), hint('basic'))\n"
    script = f"from lib import Model, grade\n\n{function('basic')}\n\nprint(grade(basic))\n{asks}"
    (work / "script.py").write_text(script)
    line = [sys.executable, "../work/script.py"]
    ran = subprocess.run(line, cwd=other, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and passed(place) == ["basic"], ran.stderr
    assert ran.stdout.startswith("PASS") and "is not solved yet" not in ran.stdout and "## " in ran.stdout
    assert "def basic" in json.loads((place / NAME).read_text())["answers"]["basic"]

    asked = called_in(work, "grade", "--hint", "ddp", env=environment)
    assert asked.returncode == 0 and json.loads((place / NAME).read_text())["hints"] == {"ddp": 1}
    assert [*tmp_path.rglob(NAME)] == [place / NAME]


# -- every student is in the report --------------------------------------------------------------------------------

STUDENTS = ["__x", ".x", "..x", "__init__", "_", "-n", "=1", "a b", "con", "\u3042", "x.y", "~", "*", "#", "$HOME", "%"]


def test_students_of_any_name_are_in_the_report_or_named(tmp_path: Path) -> None:
    for name in (*STUDENTS, *NO_WORK):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}2.py").write_text("")
    for name in ("anna.zip", "bob.PY", ".py", "c.ipynb.txt", ".hidden"):
        (tmp_path / name).write_text("")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    students, said = submissions(tmp_path)
    found = {student.name for student in students}
    assert said.startswith("not read, since only .py and .ipynb files are, and folders of them: ")
    for path in tmp_path.iterdir():
        in_report = path.name in found or path.stem in found
        assert in_report + (path.name in said) + (path.name in NO_WORK) == 1, path.name
    assert {*STUDENTS, *(f"{name}2" for name in STUDENTS)} <= found


def test_the_names_of_what_is_nobodys_are_safe_to_show(tmp_path: Path) -> None:
    for name in ("anna.py", *(f"\x1b[2J{number}\n.zip" for number in range(30))):
        (tmp_path / name).write_text("")
    [_], said = submissions(tmp_path)
    assert said.isprintable() and said.endswith(" and 10 more")


@pytest.mark.process
def test_work_in_hidden_folders_is_graded_and_caches_are_not(tmp_path: Path) -> None:
    each = tmp_path / "class"
    for folder in ("__x", ".x", "anna/.work", "bob/.ipynb_checkpoints", "cleo/__pycache__", ".git"):
        solved(0, each / folder)
    (each / "dora.zip").write_text("")
    done = called_in(tmp_path, "grade", "0", "--each", "class", "--csv", "c.csv", "--gradescope", "out")
    rows = {
        row["student"]: row["basic status"] for row in csv.DictReader((tmp_path / "c.csv").read_text().splitlines())
    }
    assert rows == {"__x": "PASS", ".x": "PASS", "anna": "PASS", "bob": "TODO", "cleo": "TODO"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"{name}.json" for name in rows}
    assert done.returncode == 1 and done.stderr.endswith("and folders of them: dora.zip\n")


# -- a class that is not graded to its end --------------------------------------------------------------------------

FILES = ["--json", "a.json", "--csv", "c.csv", "--junit", "b.xml", "--gradescope", "out"]
GRADED, UNGRADED = ["anna", "bob"], ["zoe", "zora"]
SIGNALS = [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)]


def a_class(folder: Path) -> None:
    """Two students who are done soon, and two who are never done."""
    for name in GRADED:
        solved(0, folder / name)
    for name in UNGRADED:
        (folder / name).mkdir(parents=True)
        (folder / name / "x.py").write_text(ENDLESS.format("basic"))


def check_unfinished(folder: Path, out: str, why: str) -> None:
    """All that was asked for has the results of those who were graded, and names those who were not."""
    told = json.loads((folder / "a.json").read_text())
    assert told["not_graded"] == UNGRADED
    assert [(row["student"], row["status"]) for row in told["results"]] == [(name, PASS) for name in GRADED]
    rows = {row["student"]: row for row in csv.DictReader((folder / "c.csv").read_text().splitlines())}
    assert [*rows] == [*GRADED, *UNGRADED]
    assert [row["passed"] for row in rows.values()] == ["1", "1", "not graded", "not graded"]
    assert [row["basic status"] for row in rows.values()] == [PASS, PASS, "", ""]
    suites = {suite.get("name"): suite for suite in ElementTree.parse(folder / "b.xml").getroot()}
    assert [(name, suite.get("errors")) for name, suite in suites.items()] == [
        *((name, "0") for name in GRADED),
        *((name, "1") for name in UNGRADED),
    ]
    [error] = suites["zoe"].iter("error")
    assert error.get("message") == f"not graded: {why}"
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["anna.json", "bob.json"]
    assert "Grade: anna: 1 of 1 puzzle passes" in out and f"Grade: zoe: not graded: {why}\n" in out


@pytest.mark.process
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_class_that_is_interrupted_keeps_what_is_graded_and_names_the_others(
    number: signal.Signals, tmp_path: Path
) -> None:
    a_class(tmp_path / "class")
    (tmp_path / "temporary").mkdir()
    slow = ["--timeout", "300", "--budget", "300"]
    command = begin(tmp_path, "grade", "0", "--each", "class", *FILES, *slow, TMPDIR=str(tmp_path / "temporary"))
    assert command.stderr is not None
    read_until(command.stderr, "2 of 4")
    begun = workers(command.pid)
    command.send_signal(number)
    out, err = command.communicate(timeout=60)
    assert (command.returncode, err) == (130, "2 of 4 students are not graded: zoe, zora\ninterrupted\n")
    check_unfinished(tmp_path, out, "the grading was interrupted")
    assert not [*(tmp_path / "temporary").iterdir()]
    deadline = time.monotonic() + 5
    while (left := [one for one in begun if Path(f"/proc/{one}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert begun and not left


@pytest.mark.process
def test_where_nobody_is_graded_yet_an_interrupt_leaves_old_results_as_they_are(tmp_path: Path) -> None:
    a_class(tmp_path / "class")
    for name in GRADED:
        shutil.rmtree(tmp_path / "class" / name)
    (tmp_path / "a.json").write_text("old")
    slow = ["--timeout", "300", "--budget", "300"]
    command = begin(tmp_path, "grade", "0", "--each", "class", "--json", "a.json", *slow)
    deadline = time.monotonic() + 30
    while len(workers(command.pid)) < 3 and time.monotonic() < deadline:  # one of them is endless
        time.sleep(0.05)
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=60)
    assert (command.returncode, out, err.splitlines()[-1]) == (130, "", "interrupted") and "Traceback" not in err
    assert (tmp_path / "a.json").read_text() == "old"


@pytest.mark.process
def test_a_grader_that_fails_in_the_middle_of_a_class_keeps_what_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)  # one student after the other
    a_class(tmp_path / "class")
    real = classroom.files_of

    def fails(student: Student) -> Any:
        if student.name in UNGRADED:
            raise OSError(24, "Too many open files")
        return real(student)

    monkeypatch.setattr(classroom, "files_of", fails)
    assert shell.main(["grade", "0", "--each", "class", *FILES, "--plain"]) == 3
    told = capsys.readouterr()
    check_unfinished(tmp_path, told.out, "the grader failed")
    assert "2 of 4 students are not graded: zoe, zora\nTraceback" in told.err
    assert told.err.endswith("Too many open files\nThe grader itself failed. Please report the lines above.\n")


# -- the fields of the JSON ----------------------------------------------------------------------------------------


def documented() -> dict[str, str]:
    """The fields of the JSON as docs/grading.md has them, with what they mean."""
    page = (ROOT / "docs" / "grading.md").read_text(encoding="utf-8")
    table = page.partition("| field | meaning |\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]
    return {name: meaning for names, meaning in rows for name in re.findall(r"`([\w.]+)`", names)}


KEPT = [(f"{store}.pop(", f"{store}.get(") for store in ("model.activations", "model.grad_activations")]
"""Nothing is taken out."""
OPEN = ("parts", "given", "look_at", "difference")
"""Fields whose values have names of their own: shares, and statements by what they speak of."""


def fields(value: Any, before: str = "") -> set[str]:
    """The names of all fields of a JSON value, those of objects in it with a dot: ``error.where.rank``."""
    found = set()
    for name, inner in value.items():
        found.add(before + name)
        for one in inner if isinstance(inner, list) else [inner]:
            if isinstance(one, dict) and name not in OPEN:
                found |= fields(one, f"{before}{name}.")
    return found


@pytest.mark.process
def test_the_fields_of_the_json_are_those_that_are_documented(tmp_path: Path) -> None:
    """And each is there in every verdict; ``right`` is true or false."""
    for number, name in ((0, "anna"), (5, "bob")):
        solved(number, tmp_path / "class" / name)
    (tmp_path / "class" / "cleo.py").write_text("async def ddp(model):\n    await model.receive()\n")
    (tmp_path / "class" / "dora.py").write_text("def basic(model):\n    1 / 0\n")
    (tmp_path / "class" / "eve.py").write_text(changed("basic", "large", *KEPT, says="").source)
    called_in(tmp_path, "grade", "0", "ddp", "pipeline", "--each", "class", "--json", "a.json")
    told = json.loads((tmp_path / "a.json").read_text())
    results = told["results"]
    assert len(results) == 15 and {row["status"] for row in results} == {"PASS", "FAIL", "TODO"}
    assert {type(row["right"]) for row in results} == {bool}
    assert all(row["right"] == (row["status"] == PASS or bool(row["peak"])) for row in results)
    whole = set().union(*map(fields, results)) | told.keys() - {"results"}
    assert whole == documented().keys()
    assert {frozenset(row) for row in results} == {frozenset(results[0])}
    assert f"| {told['version']}. It changes" in (ROOT / "docs" / "grading.md").read_text(encoding="utf-8")


def test_the_environment_may_name_the_file_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_TRAINING_PUZZLES_PROGRESS", str(tmp_path / "kept" / NAME))
    keep([Verdict(puzzles()["ddp"], PASS, "", True, 1.0, 1)])
    assert passed(tmp_path / "kept") == ["ddp"]


def test_a_folder_in_the_place_of_the_file_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    note = keep([Verdict(puzzles()["ddp"], PASS, "", True, 1.0, 1)], tmp_path)
    assert "it is a folder: give it another name; LLM_TRAINING_PUZZLES_PROGRESS names the folder that" in note


CHAIN = """
import os, signal, threading, time
from lib import Model, grade

async def advance(line):
    return line

async def basic(model: Model):
    line = []
    while True:
        line = advance(line)

if {interrupted}:
    later = lambda: [(time.sleep(1), os.kill(os.getpid(), signal.SIGINT)) for _ in range(60)]  # pressed again
    threading.Thread(target=later, daemon=True).start()
try:
    print(grade(basic, timeout=600 if {interrupted} else 0.3).message)
except KeyboardInterrupt:
    print("interrupted", signal.signal(signal.SIGINT, signal.SIG_IGN))
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(("interrupted", "says"), [(False, "did not end within 0.3 seconds"), (True, "interrupted")])
def test_a_loop_that_wraps_calls_in_calls_without_await_ends_no_kernel(interrupted: bool, says: str) -> None:
    """Python frees each coroutine from within the one that holds it, and dies of a hundred thousand."""
    command = [sys.executable, "-c", CHAIN.format(interrupted=interrupted)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert says in done.stdout
