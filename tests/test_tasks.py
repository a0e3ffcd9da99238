"""Puzzles as tasks for agents: the files, the reward of honest programs, and that no forgery has any."""

import io
import json
import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from lib.course.points import score_of
from lib.course.specs import puzzles
from solutions.build.sources.files import ROOT
from tests.corpus.forgeries import BESIDE, FORGERIES, OWN_WEIGHTS, SOLUTION, WRONG
from tests.slow import some
from tools import tasks

FSDP = puzzles()["fsdp"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tasks."""
    made = tmp_path_factory.mktemp("tasks")
    assert tasks.main([str(made)]) == 0
    return made


@pytest.fixture(scope="module")
def course(folder: Path) -> Path:
    """The course as it is in a verifier's container: lib, and nothing else of the project."""
    place = folder / "opt"
    with tarfile.open(folder / "fsdp" / "tests" / "course.tar.gz") as archive:
        archive.extractall(place, filter="data")
    return place


def reward(task: Path, answer: Path, course: Path, logs: Path) -> tuple[float, str]:
    """What a verifier's script writes about an answer, and the message of the verdict."""
    name = task.name
    command = [sys.executable, "-I", str(task / "tests" / "verify.py"), name, str(answer), str(logs), str(course)]
    subprocess.run(command, cwd=answer.parent, capture_output=True, check=False)
    assert {path.name for path in logs.iterdir()} >= {"reward.json", "verdict.json"}
    told = json.loads((logs / "reward.json").read_text())
    assert told.keys() == {"reward"}
    return told["reward"], json.loads((logs / "verdict.json").read_text())["message"]


def test_a_task_has_the_files_of_its_layout(folder: Path) -> None:
    for name, puzzle in puzzles().items():
        task = folder / name
        found = {path.relative_to(task).as_posix() for path in task.rglob("*") if path.is_file()}
        assert found == {
            "task.toml", "instruction.md", "environment/Dockerfile", f"environment/{name}.py",
            "environment/course.tar.gz",
            "tests/Dockerfile", "tests/test.sh", "tests/verify.py", "tests/course.tar.gz",
            "solution/solve.sh", "solution/best.py", f"solution/{name}.py",
        }  # fmt: skip
        told = tomllib.loads((task / "task.toml").read_text(encoding="utf-8"))
        assert told["artifacts"] == [f"/app/{name}.py"] and told["metadata"]["puzzle"] == puzzle.number
        assert told["verifier"]["environment_mode"] == "separate" and "environment" in told["verifier"]
        text = "".join(
            path.read_text(encoding="utf-8") for path in task.rglob("*.*") if path.suffix not in (".py", ".gz")
        )
        assert "{{" not in text and f"/app/{name}.py" in (task / "tests" / "test.sh").read_text()
        assert os.access(task / "tests" / "test.sh", os.X_OK) and os.access(task / "solution" / "solve.sh", os.X_OK)
        told = (task / "instruction.md").read_text(encoding="utf-8")
        assert all(part in told for part in puzzle.describe(puzzle.target["time"], puzzle.target["memory"]))
        assert "<svg" not in told and "data:image" not in told and len(told) < 30_000


def test_an_agent_gets_neither_solutions_nor_hints(folder: Path) -> None:
    for name, puzzle in puzzles().items():
        given = folder / name / "environment"
        assert "BEGIN SOLUTION" not in (given / f"{name}.py").read_text()
        with tarfile.open(given / "course.tar.gz") as archive:
            names = archive.getnames()
        assert {Path(one).parts[0] for one in names} == {"lib"} and not any("secret" in one for one in names)
        assert all(hint not in (folder / name / "instruction.md").read_text() for hint in puzzle.hints)
    with tarfile.open(folder / "fsdp" / "environment" / "course.tar.gz") as archive:
        specs = json.loads(archive.extractfile("lib/specs.json").read())  # type: ignore[union-attr]
        rows = json.loads(archive.extractfile("lib/outlines.json").read())  # type: ignore[union-attr]
    assert {str(one["hints"]) for one in specs.values()} == {"[]"}
    assert {*rows} == {*puzzles()}
    assert {key for row in rows.values() for key in row} == {"at_home", "sketch", "silhouette", "target"}
    assert {key for row in rows.values() for key in row["target"]} == {"outline"}


def test_hints_are_left_where_they_are_asked_for() -> None:
    with tarfile.open(fileobj=io.BytesIO(tasks.course(hints=True))) as archive:
        specs = json.loads(archive.extractfile("lib/specs.json").read())  # type: ignore[union-attr]
    assert specs["fsdp"]["hints"] == FSDP.hints


def test_the_same_files_are_written_again(folder: Path, tmp_path: Path) -> None:
    assert tasks.main([str(tmp_path), "fsdp", "R1"]) == 0
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or path.read_bytes() == (folder / path.relative_to(tmp_path)).read_bytes()
    assert tasks.main([str(tmp_path), "no such puzzle"]) == 2


@pytest.mark.process
@pytest.mark.parametrize("name", some([*puzzles()], 25))
def test_the_notebooks_program_has_a_reward_and_the_frontiers_all(
    name: str, folder: Path, course: Path, tmp_path: Path
) -> None:
    given = folder / name / "solution"
    assert 0.5 < reward(folder / name, given / f"{name}.py", course, tmp_path)[0] <= 1
    (tmp_path / f"{name}.py").write_text((given / "best.py").read_text())
    assert reward(folder / name, tmp_path / f"{name}.py", course, tmp_path)[0] == 1


@pytest.mark.process
def test_the_reward_is_the_score(folder: Path, course: Path, tmp_path: Path) -> None:
    answer = tmp_path / "fsdp.py"
    answer.write_text(SOLUTION)
    assert reward(folder / "fsdp", answer, course, tmp_path / "logs")[0] == score_of(FSDP, 20.4, 1966080)
    answer.write_text((folder / "fsdp" / "environment" / "fsdp.py").read_text())
    assert reward(folder / "fsdp", answer, course, tmp_path / "logs")[0] == 0


PLAIN = (
    "printed words",
    "own weights",
    "patched checks",
    "monkeypatched verdict",
    "an exit in the run",
    "the reward's file",
)


@pytest.mark.process
@pytest.mark.parametrize("name", [*PLAIN, *some([name for name in FORGERIES if name not in PLAIN])])
def test_a_forgery_has_no_reward(name: str, folder: Path, course: Path, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    answer = tmp_path / "app" / "fsdp.py"
    answer.write_text(FORGERIES[name])
    assert reward(folder / "fsdp", answer, course, tmp_path / "logs")[0] == 0


@pytest.mark.process
@pytest.mark.parametrize("text", [WRONG, OWN_WEIGHTS], ids=["wrong", "own weights"])
def test_files_beside_the_answer_count_for_nothing(text: str, folder: Path, course: Path, tmp_path: Path) -> None:
    app = tmp_path / "app"
    for name, content in BESIDE.items():
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        if not (app / name).is_dir():
            (app / name).write_text(content)
    (app / "fsdp.py").write_text(text)
    assert reward(folder / "fsdp", app / "fsdp.py", course, tmp_path / "logs")[0] == 0
    (app / "fsdp.py").write_text(SOLUTION)
    assert reward(folder / "fsdp", app / "fsdp.py", course, tmp_path / "logs")[0] > 0.7  # and hinder nothing


@pytest.mark.process
@pytest.mark.parametrize("kind", ["a link", "a pipe", "too large"])
def test_what_is_no_file_has_no_reward(kind: str, folder: Path, course: Path, tmp_path: Path) -> None:
    answer = tmp_path / "fsdp.py"
    if kind == "a link":
        (tmp_path / "real.py").write_text(SOLUTION)
        answer.symlink_to(tmp_path / "real.py")
    elif kind == "a pipe":
        os.mkfifo(answer)
    elif kind == "too large":
        answer.write_text(SOLUTION + "#" * (1 << 20))
    given, message = reward(folder / "fsdp", answer, course, tmp_path / "logs")
    assert given == 0 and "fsdp.py" in message


@pytest.mark.process
def test_a_reward_that_lay_there_before_is_replaced(folder: Path, course: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "elsewhere.json").write_text('{"reward": 1.0}')
    (logs / "reward.json").symlink_to(tmp_path / "elsewhere.json")
    answer = tmp_path / "fsdp.py"
    answer.write_text(WRONG)
    assert reward(folder / "fsdp", answer, course, logs)[0] == 0
    assert (tmp_path / "elsewhere.json").read_text() == '{"reward": 1.0}' and not (logs / "reward.json").is_symlink()


PRIVATE = """
import os, sys
sys.path.insert(0, sys.argv.pop(1))
from lib import __main__
from lib.referee import namespaces, shell

def look():
    grader = os.getpid()
    if not os.fork():
        namespaces.keep_private(False)
        for path, how in (("mem", os.O_RDWR), ("fd/1", os.O_WRONLY), ("environ", os.O_RDONLY)):
            try:
                os.open(f"/proc/{grader}/{path}", how)
                print("opened", path, flush=True)
            except OSError:
                pass
        os._exit(0)
    os.wait()
    return 0

if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    namespaces.keep_private(False)  # after this, Linux has it the other way round
os.setsid()
shell.main = look
sys.exit(__main__.main() if sys.argv[1] == "grade" else look())
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_no_process_of_the_same_user_can_look_into_the_grader() -> None:
    def opened(how: str) -> str:
        command = [sys.executable, "-I", "-c", PRIVATE, str(ROOT), how]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "environ" in opened("look")
    assert opened("grade") == ""
