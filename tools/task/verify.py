"""Grades one answer in a box of its own, and writes the reward. It is copied into a task; see tools/tasks.py.

    python3 -I verify.py PUZZLE ANSWER.py FOLDER COURSE

FOLDER gets the reward, and COURSE has lib.

The reward is the score of the verdict, from 0 to 1, and 0 whatever else happens. Of the answer only its file is
taken, and only the grader imports anything of lib. The grader belongs to a user who can neither write the reward nor
change the grader, and all that a submitted program can do to the verdict is to make calls of a run (see THREATS.md of
the project). What it prints, how it ends and which files it writes counts for nothing.
"""

import ctypes
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

USER = "grader"
SECONDS = 500.0
LARGEST = 1 << 20  # bytes of an answer
GRADE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from lib.__main__ import main; sys.exit(main())"
KEPT_FROM_OTHERS = 4  # Linux's prctl: no process of the same user may look into this one


def taken(answer: Path, folder: str) -> Path:
    """Return a copy of the answer, alone in a folder. Raise ValueError unless it is an ordinary small file."""
    with suppress(OSError):
        descriptor = os.open(answer, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if stat.S_ISREG(facts.st_mode) and facts.st_size <= LARGEST:
                alone = Path(folder, answer.name)
                alone.write_bytes(file.read(LARGEST))
                alone.chmod(0o644)
                return alone
    raise ValueError(f"there is no file {answer}, or it is none that can be read")


def graded(puzzle: str, answer: Path, course: str) -> dict:
    """Return the grader's verdict on the puzzle. Raise ValueError or OSError if there is none."""
    user = None
    if os.getuid() == 0:
        with suppress(KeyError):
            user = pwd.getpwnam(USER)
    command = [sys.executable, "-I", "-c", GRADE, course, "grade", str(answer), puzzle, "--plain"]
    own = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    process = subprocess.Popen(
        [*command, "--json", "-"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=answer.parent,
        env={"PATH": os.defpath, "LANG": "C.UTF-8"}, start_new_session=True, **own,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode not in (0, 1):
        raise ValueError(f"there is no verdict: the grader ended with {process.returncode}")
    [verdict] = [one for one in json.loads(said)["results"] if one["puzzle"] == puzzle]
    return verdict


def write(folder: Path, name: str, told: dict) -> None:
    """Write a file that is never there in part, and not through a link."""
    handle, made = tempfile.mkstemp(dir=folder)
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(told, file, indent=1)
    os.chmod(made, 0o644)
    os.replace(made, folder / name)


def main() -> int:
    """Grade, and write reward.json and verdict.json. Return 0 if there is a verdict."""
    puzzle, answer, logs, course = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(KEPT_FROM_OTHERS, 0, 0, 0, 0)
    logs.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="answer-")
    os.chmod(folder, 0o755)
    reward, verdict = 0.0, {}
    try:
        verdict = graded(puzzle, taken(answer, folder), course)
        if verdict["status"] == "PASS" and verdict["right"] is True:
            reward = min(1.0, max(0.0, float(verdict["score"])))
    except (ValueError, OSError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        verdict = {"puzzle": puzzle, "status": "ERROR", "message": f"{type(error).__name__}: {error}"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        write(logs, "verdict.json", verdict)
        write(logs, "reward.json", {"reward": reward})
    print(f"reward {reward:g}: {verdict['status']} {verdict['message']}")
    return int(verdict["status"] == "ERROR")


if __name__ == "__main__":
    sys.exit(main())
