"""Finds a learner's files, and which of them attempts which puzzle."""

import codecs
import io
import os
import stat
import tokenize
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

from ..basics.errors import PuzzleError
from ..course.specs import Puzzle, find, puzzles
from ..grading.progress import NAME, Progress, kept_in
from ..lab.copies import SUFFIXES, home, named_for
from ..recording.safe import shown
from .handed_in import GIVEN, is_packed, owner, work_in
from .loaded import Submission

LARGEST = 10 << 20  # bytes of a file that is graded, at most
MOST_FILES, MOST_TEXT = 100, 10 * LARGEST
"""Files of one student and characters in them, at most: all of them are in memory while they are graded."""
ENCODINGS = ("utf", "ascii", "iso8859", "cp", "koi8", "mac", "gb", "big5", "euc", "shift")
"""How the names of the encodings begin that are read. Others may take a time that grows faster than the file."""
LONGEST_NAME = 200  # bytes of a student's name at most: with an ending it becomes the name of a file
MOST_NAMED = 20  # files that are nobody's and are named


class Attempt(NamedTuple):
    """A puzzle, and the code that attempts it, or None if there is no file of it, or none that can be graded."""

    puzzle: Puzzle
    submission: Submission | None
    trouble: str = ""  # why it cannot be graded


class Found(NamedTuple):
    """What a worker has found: the puzzles that a file ``defines``, why it has ``failed``, or what was not taken."""

    defines: list[str]
    failed: str = ""
    incomplete: str = ""


class Student(NamedTuple):
    """The files of one student, under a name that no other has. ``trouble``: what could not be read, and why;
    ``folder``: that of the class."""

    name: str
    paths: list[Path]
    trouble: list[str]
    folder: Path


def progress_here() -> Progress:
    """Return the progress of who works here: in this folder if it is kept here already, else beside the notebooks."""
    return Progress(kept_in(Path.cwd() if os.path.exists(NAME) else home()))


def called(path: Path) -> str:
    """Return the name of a file or folder, safe to show in a line: characters that cannot be seen are escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in path.name)


def read(path: Path, folder: Path | None) -> Submission:
    """Return a file with its text. Raise PuzzleError for a link, a folder, a file that is too large, or no text."""
    name = called(path)
    try:
        facts = os.lstat(path)
        if not stat.S_ISREG(facts.st_mode):
            raise PuzzleError(f"{name} is no ordinary file (a link, a folder, a device): it is not followed", line="")
        if facts.st_size > LARGEST:
            raise PuzzleError(f"{name} has {facts.st_size:,} bytes; at most {LARGEST:,} are read", line="")
        if is_packed(name):
            raise PuzzleError(f"{name} is packed: it is not opened", line="")
        data = path.read_bytes()
        utf_16 = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        encoding = "utf-16" if utf_16 else tokenize.detect_encoding(io.BytesIO(data).readline)[0]  # as Python does
        if not codecs.lookup(encoding).name.startswith(ENCODINGS):
            raise UnicodeError(encoding)
        text = io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except OSError as error:
        raise PuzzleError(f"{name} cannot be read: {error.strerror}", line="") from None
    except (UnicodeError, SyntaxError):
        raise PuzzleError(f"{name} is no text in UTF-8 or in the encoding that it names", line="") from None
    return Submission(name, text, str(folder.resolve()) if folder else None)


def attempts_in(submission: Submission, found: Found) -> list[Attempt]:
    """Return an attempt for each puzzle of which a file has defined something to call, as a worker has found.

    Where some of its lines could not be taken, it attempts what these seem to define, too: the verdict says what is
    wrong with them.
    """
    seem = submission.functions if found.failed or found.incomplete else []
    names = [name for name in puzzles() if name in found.defines or name in seem]
    return [Attempt(puzzles()[name], submission, f"{name}: {found.failed}" if found.failed else "") for name in names]


def attempt_at(puzzle: Puzzle, folder: Path) -> Attempt:
    """Return the learner's attempt at a puzzle, from the file named for it, the latest if there are several."""
    found = named_for(puzzle, folder)
    try:
        return Attempt(puzzle, read(max(found, key=os.path.getmtime), folder) if found else None)
    except PuzzleError as error:
        return Attempt(puzzle, None, str(error))  # the others are graded all the same


def is_file(what: str) -> bool:
    """Return whether a word of a command line means a file. The name of a puzzle never does, even if a file has it."""
    named = any(puzzle.is_called(what) for puzzle in puzzles().values())
    return what.endswith(SUFFIXES) or os.sep in what or (not named and os.path.exists(what))


def asked_for(what: Sequence[str], chosen: Collection[str]) -> list[Attempt | Submission]:
    """Return what a command line names: files, or attempts at the puzzles ``chosen`` (see ``wanted``).

    If nothing is named, programs to be repaired count only if there is a file of them. Raise PuzzleError for a
    file that cannot be read.
    """
    files = [Path(one) for one in what if is_file(one)]
    if not files:
        folder = home()
        found = [attempt_at(puzzles()[name], folder) for name in chosen]
        return [one for one in found if what or one.submission or one.trouble or not one.puzzle.repair]
    for path in files:
        if os.path.isdir(path):
            raise PuzzleError(f"{path.name} is a folder", expected=f"a file, or --each {path.name}", line="")
        if not os.path.lexists(path):
            raise PuzzleError(f"there is no file {path}", line="")
    return [read(path, path.parent) for path in files]


def wanted(what: Sequence[str]) -> list[str]:
    """Return the puzzles named, or all. Raise PuzzleError for an unknown one."""
    names = [find(one).name for one in what if not is_file(one)]
    return [name for name in puzzles() if not names or name in names]


def submissions(folder: Path) -> tuple[list[Student], str]:
    """Return the students of a folder with a folder or files for each, and a line that names what else is there, or an
    empty text. Raise PuzzleError if there is no student."""
    try:
        entries = sorted(work_in(folder))
    except OSError as error:
        raise PuzzleError(f"{folder} cannot be read: {error.strerror}", line="") from None
    found: dict[Path, tuple[list[Path], list[str]]] = {}
    nobodys: list[str] = []
    for path in entries:
        is_folder = os.path.isdir(path)
        if is_folder or path.suffix in SUFFIXES or GIVEN.fullmatch(path.name):
            files, trouble = found.setdefault(folder / owner(path), ([], []))
            more, wrong = _files_in(path)
            files += more
            trouble += wrong
            nobodys += [f"{called(path)}/{called(one)}" for one in more if is_folder and is_packed(one.name)]
        if not is_folder and path.suffix not in SUFFIXES:
            nobodys.append(called(path))
    if not found:
        raise PuzzleError(f"{folder} has no submissions: a folder or a file (.py, .ipynb) for each student", line="")
    names, named = _names(found), ", ".join(shown(name, LONGEST_NAME) for name in nobodys[:MOST_NAMED])
    rest = f" and {len(nobodys) - MOST_NAMED} more" if len(nobodys) > MOST_NAMED else ""
    left_out = f"not read, since only .py and .ipynb files are, and folders of them: {named}{rest}" if nobodys else ""
    return [Student(names[path], *files, folder) for path, files in found.items()], left_out


def _files_in(place: Path) -> tuple[list[Path], list[str]]:
    """Return a student's files in a folder, or that one file, packed ones among them, and what could not be read.
    Folders may be nested deeper than Python's calls."""
    files, trouble, places = list[Path](), list[str](), [place]
    while places:
        at = places.pop()
        try:
            if stat.S_ISDIR(os.lstat(at).st_mode):
                places += work_in(at)
            elif at.name.endswith(SUFFIXES) or is_packed(at.name):
                files.append(at)
            elif at == place and at.is_dir():
                trouble.append(f"{called(at)} is a link: it is not followed")
        except OSError as error:
            trouble.append(f"{called(at)[:100]} cannot be read: {error.strerror}")
    if len(files) > MOST_FILES:
        trouble.append(f"there are more than {MOST_FILES} files; the others are not read")
    return sorted(files, key=lambda path: (len(path.parts), path))[:MOST_FILES], trouble


def _names(paths: Iterable[Path]) -> dict[Path, str]:
    """Return a name for each student, which differ by more than capitals. A name that is a student's own stays."""
    short = {path: called(path).encode()[:LONGEST_NAME].decode(errors="ignore") for path in paths}
    names, taken = dict[Path, str](), set[str]()
    for path, name in sorted(short.items(), key=lambda item: item[1] != item[0].name):
        numbered = (f"{name} ({number})" for number in count(2))
        names[path] = next(one for one in chain([name], numbered) if one.casefold() not in taken)
        taken.add(names[path].casefold())
    return names


def files_of(student: Student) -> tuple[list[Submission], str]:
    """Return a student's files, those named for a puzzle first, and why some cannot be read. No file sees another's."""
    files, trouble, left = [], [*student.trouble], MOST_TEXT
    for path in student.paths:
        try:
            submission = read(path, None if path.parent == student.folder else path.parent)
        except PuzzleError as error:
            trouble.append(str(error))
            continue
        left -= len(submission.text)
        if left < 0:
            trouble.append(f"files of more than {MOST_TEXT:,} characters; {submission.file} and others are not read")
            break
        files.append(submission)
    if not student.paths:
        trouble.append("no .py and no .ipynb file")
    known = {name for puzzle in puzzles().values() for name in (puzzle.name, puzzle.file)}
    return sorted(files, key=lambda one: Path(one.file).stem not in known), shown("; ".join(trouble), 2000)
