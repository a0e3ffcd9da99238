"""What a course hands to others' machines: a workflow, an autograder, an installation without solutions."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lib.course.specs import puzzles
from solutions.build.sources.files import ROOT, source_of
from tests.corpus.forgeries import SOLUTION, WRONG

KIT = ROOT / "tools" / "classroom"
COMMAND = Path(sys.executable).parent / "training-puzzles"
needs_command = pytest.mark.skipif(
    not COMMAND.exists(), reason="NOT TRIED: the command training-puzzles is not installed (make setup)"
)
GPIPE = source_of("p06_gpipe")


@pytest.fixture
def student(tmp_path: Path) -> Path:
    """A student's repository: names of their own, other files, nested folders."""
    work = tmp_path / "class" / "student"
    (work / "week 3").mkdir(parents=True)
    (work / "README.md").write_text("# my answers")
    (work / "week 3" / "my answer.py").write_text(SOLUTION)
    cell = {"cell_type": "code", "source": GPIPE.read_text(encoding="utf-8")}
    (work / "pipes.ipynb").write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    return work


def done_in(folder: Path, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A script of bash, run as GitHub runs a step, with the grader on its path."""
    own = {"PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder), **more}
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=own, capture_output=True, text=True, check=False
    )


def workflow() -> dict[object, object]:
    told: dict[object, object] = yaml.safe_load((KIT / "grade.yml").read_text(encoding="utf-8"))
    return told


def steps() -> list[dict[str, str]]:
    return workflow()["jobs"]["grade"]["steps"]  # type: ignore[index, no-any-return]


def test_the_workflow_gives_no_rights_and_no_key_to_a_students_code() -> None:
    assert workflow()["permissions"] == {"contents": "read"}
    [checkout] = [step for step in steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"] == {"path": "class/student", "persist-credentials": False}


@pytest.mark.process
@needs_command
@pytest.mark.parametrize("text", [SOLUTION, WRONG], ids=["right", "wrong"])
def test_the_steps_of_the_workflow_grade_a_students_repository(text: str, student: Path) -> None:
    (student / "week 3" / "my answer.py").write_text(text)
    home, points = student.parent.parent, str(workflow()["env"]["POINTS"])  # type: ignore[index]
    [step] = [step for step in steps() if step.get("name") == "Grade"]
    done = done_in(home, step["run"], POINTS=points, GITHUB_STEP_SUMMARY=str(home / "summary.md"))
    results = {one["puzzle"]: one for one in json.loads((home / "results.json").read_text())["results"]}
    assert results.keys() == {"fsdp", "gpipe"} and done.returncode == (text == WRONG), done.stderr
    assert (results["fsdp"]["points"], results["fsdp"]["worth"]) == (14.68 if text == SOLUTION else 0, 20)
    total = sum(one["points"] for one in results.values())
    row = re.split(r"\s*\|\s*", (home / "summary.md").read_text().splitlines()[2])
    assert row[1:4] == ["1", "student", f"{total:g}".replace(".", "&#46;")]


@pytest.mark.process
@needs_command
def test_gradescopes_autograder_writes_its_results(student: Path, tmp_path: Path) -> None:
    place = tmp_path / "autograder"
    shutil.copytree(student, place / "submission")
    (place / "results").mkdir()
    script = (KIT / "run_autograder").read_text(encoding="utf-8").replace("/autograder/", f"{place}/")
    done_in(tmp_path, script)
    told = json.loads((place / "results" / "results.json").read_text())
    assert [(one["tags"][0], one["max_score"]) for one in told["tests"]] == [("fsdp", 20), ("gpipe", 10)]
    assert told["score"] == sum(one["score"] for one in told["tests"]) > 20


BASIC = "# \u00fc\n" + source_of("p00_basic").read_text(encoding="utf-8")
ACCUM = source_of("p01_grad_accum").read_text(encoding="utf-8")
JORG, SPLIT = "m\u00fcllerj\u00f6rg", "mu\u0308llerjo\u0308rg"
"""The same name with letters of one character, and with letters of two, as macOS writes them."""
CANVAS = {
    "doejane_1234_56789_basic.py": BASIC,
    "doejane_1234_56790_grad_accum-1.py": ACCUM,
    "doejane_LATE_1235_56800_p00_basic-2.py": BASIC,
    f"{JORG}_2001_60001_basic.py": BASIC,
    f"{SPLIT}_late_2001_60002_grad_accum.py": f"# coding: latin-1\n# \u00fc\n{ACCUM}".encode("latin-1", "replace"),
    "poe_3001_70001_basic.py": BASIC.encode("latin-1", "replace"),
    "roe_4001_80001_work.zip": b"PK",
    "roe_4002_80002_work.zip": b"PK",
    "roe_4002_80002_work.zip.d/basic.py": BASIC,
    "week_1.py": BASIC,
}
MOODLE = {
    "J\u00f6rg M\u00fcller_12_assignsubmission_file_/basic.py": BASIC,
    "Jo\u0308rg Mu\u0308ller_12_assignsubmission_onlinetext_/more/grad_accum.py": ACCUM,
    "Ann Lee_13_assignsubmission_file_/work.ZIP": b"PK",
    "Ann Lee_14_assignsubmission_file_/basic.py": BASIC,
    "Ann Lee_16_assignsubmission_file_/Work.ZIP": b"PK",
    "Ann Lee_16_assignsubmission_file_/Work.ZIP.d/more/basic.py": BASIC,
    "Bo_15_assignsubmission_file_basic.py": BASIC,
}


@pytest.mark.process
@pytest.mark.parametrize(
    ("files", "rows", "unopened", "said"),
    [
        (
            CANVAS,
            {
                "doejane_1234": 2,
                "doejane_1235": 1,
                f"{JORG}_2001": 2,
                "poe_3001": 0,
                "roe_4001": 0,
                "roe_4002": 1,
                "week_1": 1,
            },
            "roe_4001_80001_work.zip",
            "poe_3001_70001_basic.py is no text in UTF-8",
        ),
        (
            MOODLE,
            {"J\u00f6rg M\u00fcller_12": 2, "Ann Lee_13": 0, "Ann Lee_14": 1, "Ann Lee_16": 1, "Bo_15": 1},
            "Ann Lee_13_assignsubmission_file_/work.ZIP",
            "work.ZIP is packed: it is not opened",
        ),
    ],
    ids=["Canvas", "Moodle"],
)
def test_each_student_of_a_learning_platform_has_one_row(
    files: dict[str, str | bytes], rows: dict[str, int], unopened: str, said: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / "class" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "class" / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    command = [sys.executable, "-m", "lib", "grade", "0", "1", "--each", str(tmp_path / "class")]
    command += ["--csv", str(tmp_path / "c.csv")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    table = [*csv.DictReader((tmp_path / "c.csv").read_text(encoding="utf-8").splitlines())]
    assert {row["student"]: int(row["passed"]) for row in table} == rows
    assert done.stderr.endswith(f"not read, since only .py and .ipynb files are, and folders of them: {unopened}\n")
    assert said in done.stdout and "--hint" not in done.stdout and done.stdout.count("Graded in a process") == 1
    assert ("as root" in done.stderr) == (os.geteuid() == 0)
    first = sum(row["basic status"] == "PASS" for row in table)
    assert f"\npuzzle 0  basic: {first} of {len(rows)} pass\n" in done.stdout


def test_the_assistants_page_names_what_is_there() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    assert {"solutions/", "lib/outlines.json", "progress.json"} <= {*re.findall(r"`([^`]+)`", text)}
    assert {*re.findall(r'(?:hint|solution)\("(\w+)"', text)} <= puzzles().keys()
