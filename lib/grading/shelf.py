"""Finding a learner's files: which of them attempts which puzzle."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import PuzzleError
from ..specs import Puzzle, find, puzzles
from .referee import Submission
from .wire import shown

LARGEST = 10 << 20
"""Bytes of a file that is graded."""
SUFFIXES = (".ipynb", ".py")
ROOT = Path(__file__).resolve().parent.parent.parent


class Attempt(NamedTuple):
    """A puzzle, and the code that attempts it; None where there is no file of it."""

    puzzle: Puzzle
    submission: Submission | None


class Unreadable(Exception):
    """A file that cannot be graded, and why."""


def home() -> Path:
    """The folder of the learner's notebooks: this one if they are here, else puzzles/mine, else puzzles."""
    here = Path.cwd()
    if any(_files_of(puzzle, here) for puzzle in puzzles().values()):
        return here
    mine = [root / "puzzles" / "mine" for root in (here, *here.parents, ROOT)]
    blank = [root / "puzzles" for root in (here, *here.parents, ROOT)]
    return next((folder for folder in (*mine, *blank) if folder.is_dir()), here)


def read(path: Path, folder: Path | None) -> Submission:
    """A file's text. Raises Unreadable for what is no file of Python, or too large."""
    try:
        facts = os.lstat(path)
        if not stat.S_ISREG(facts.st_mode):
            raise Unreadable(f"{path.name} is no ordinary file (a link, a folder, a device): it is not followed")
        if facts.st_size > LARGEST:
            raise Unreadable(f"{path.name} has {facts.st_size:,} bytes; at most {LARGEST:,} are read")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Unreadable(f"{path.name} is no text in UTF-8") from None
    return Submission(path.name, text, str(folder.resolve()) if folder else None)


def attempts_in(submission: Submission) -> list[Attempt]:
    """The puzzles that a file seems to attempt, by the names it defines. Nothing is parsed or run for that."""
    return [
        Attempt(puzzle, submission)
        for puzzle in puzzles().values()
        if re.search(rf"\bdef\s+{puzzle.name}\s*\(|\b{puzzle.name}\s*(:[^=\n]*)?=[^=]", submission.text)
    ]


def attempt_at(puzzle: Puzzle, folder: Path) -> Attempt:
    """The learner's attempt at a puzzle: the file that is named for it, the latest if there are several."""
    found = _files_of(puzzle, folder)
    if not found:
        return Attempt(puzzle, None)
    return Attempt(puzzle, read(max(found, key=lambda path: path.stat().st_mtime), folder))


def _files_of(puzzle: Puzzle, folder: Path) -> list[Path]:
    stems = (f"p{puzzle.number:02}_{puzzle.name}", puzzle.name)
    paths = [folder / (stem + suffix) for stem in stems for suffix in SUFFIXES]
    return [path for path in paths if path.is_file()]


def is_file(what: str) -> bool:
    """Whether a word of a command line means a file rather than a puzzle."""
    return what.endswith(SUFFIXES) or os.path.exists(what)


def asked_for(what: Sequence[str], chosen: Iterable[str]) -> list[Attempt]:
    """Attempts at what a command line names: puzzles and files, of those ``chosen``.

    Raises PuzzleError for an unknown puzzle or a file without any, Unreadable for a file.
    """
    chosen = set(chosen)
    files = [Path(one) for one in what if is_file(one)]
    names = [find(one).name for one in what if not is_file(one)]
    wanted = [puzzle for puzzle in puzzles().values() if puzzle.name in chosen and puzzle.name in (names or chosen)]
    if not files:
        folder = home()
        return [attempt_at(puzzle, folder) for puzzle in wanted]
    attempts = []
    for path in files:
        if path.is_dir():
            raise PuzzleError(f"{path.name} is a folder", cure=f"--each {path.name}", line="")
        if not path.exists():
            raise Unreadable(f"there is no file {path}")
        found = [attempt for attempt in attempts_in(read(path, path.parent)) if attempt.puzzle in wanted]
        if not found:
            raise PuzzleError(
                f"{path.name} defines none of the puzzles asked for",
                expected=f"a function of the name {' or '.join(puzzle.name for puzzle in wanted)}",
                line="",
            )
        attempts += found
    return attempts


def submissions(folder: Path) -> list[tuple[str, list[Path]]]:
    """Students and their files, in a folder that has a folder or a file for each. Raises Unreadable."""
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__")))
    except OSError as error:
        raise Unreadable(f"{folder} cannot be read: {error.strerror}") from None
    students: dict[str, list[Path]] = {}
    for path in entries:
        if path.is_dir() and not path.is_symlink():
            students[shown(path.name, 100)] = [
                file
                for file in sorted(path.rglob("*"))
                if file.suffix in SUFFIXES and ".ipynb_checkpoints" not in file.parts
            ]
        elif path.suffix in SUFFIXES:
            students.setdefault(shown(path.stem, 100), []).append(path)
    if not students:
        raise Unreadable(f"{folder} has no submissions: a folder or a file (.py, .ipynb) for each student")
    return list(students.items())
