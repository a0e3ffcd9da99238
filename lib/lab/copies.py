"""A learner's own copies of the notebooks. No file that exists is ever overwritten, and none is ever half written."""

import itertools
import json
import os
import re
from pathlib import Path

from ..basics.folders import BLANKS, INSTALLED, ROOT
from ..basics.saving import complete, give_name, write_new
from ..course.specs import Puzzle, puzzles

COURSE = "llm-training-puzzles"
"""The folder of copies that an installed package makes, unless another is named. A clone's is MINE."""
MINE = "puzzles/mine"
SUFFIXES = (".ipynb", ".py")
MARK = "llm_training_puzzles"
"""In the first cell of each notebook: by this one knows ours, however much a learner has changed them."""
MOST_NAMED = 3  # notebooks that a message lists


class NotDone(Exception):
    """Raised for what cannot be done, with what to write instead."""


def home() -> Path:
    """Return the folder of the learner's notebooks. The first that applies: the current folder if it has notebooks, the
    folder that ``lab`` has made in it or above it, ``puzzles/mine`` of a clone, the current folder."""
    here = Path.cwd()
    if _is_home(here):
        return here
    around, names = [here, *here.parents], [MINE, COURSE]
    if not INSTALLED:
        around, names = [*around, ROOT], [*names, BLANKS.name]
    folders = [root / name for name in names for root in around]
    return next((folder for folder in folders if _is_home(folder)), here)


def _is_home(folder: Path) -> bool:
    return any(named_for(puzzle, folder) for puzzle in puzzles().values())


def named_for(puzzle: Puzzle, folder: Path) -> list[Path]:
    """Return the files in a folder that are named for a puzzle."""
    paths = [folder / (stem + suffix) for stem in (puzzle.file, puzzle.name) for suffix in SUFFIXES]
    return [path for path in paths if os.path.isfile(path)]


def folder_for_copies() -> Path:
    """Return the folder for copies, where the learner names none."""
    found = home()
    if _is_home(found) and found.resolve() != BLANKS:
        return found
    return Path.cwd() / COURSE if INSTALLED else ROOT / MINE


def blanks(originals: Path = BLANKS) -> list[Path]:
    """Return the blank notebooks, in the order of the course. Raise NotDone if there are none."""
    found = sorted(originals.glob("*.ipynb"))
    if not found:
        raise NotDone(f"there are no notebooks in {originals}: get them back with git, or with make build")
    return found


def check_folder(folder: Path, command: str) -> None:
    """Raise NotDone for a folder that is somebody else's: ``command`` is what to write instead, with another folder."""
    advice = f"Name a new folder: {command} FOLDER"
    if folder.exists() and not folder.is_dir():
        raise NotDone(f"{short(folder)} is a file, and stays as it is. {advice}")
    if (folder / "lib" / "specs.json").is_file():
        raise NotDone(f"{short(folder)} is a clone of the project: run make lab in it. Or: {advice}")
    found = sorted(folder.glob("*.ipynb")) if folder.is_dir() else []
    if found and not any(map(_is_ours, found)):
        names = ", ".join([*(path.name for path in found[:MOST_NAMED]), *["..."] * (len(found) > MOST_NAMED)])
        raise NotDone(f"{short(folder)} has notebooks of something else ({names}), so nothing is put there. {advice}")


def _is_ours(notebook: Path) -> bool:
    """Return whether it is one of the puzzles, or nothing at all: what cannot be read is taken for a learner's."""
    try:
        text = notebook.read_text(encoding="utf-8")
        return not json.loads(text)["cells"] or MARK in text.lower()
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return True


def copy_blanks(folder: Path, originals: Path = BLANKS) -> list[Path]:
    """Copy to a folder each notebook that is not there yet. Return the new ones."""
    targets = {blank: folder / blank.name for blank in blanks(originals)}
    return [
        target
        for blank, target in targets.items()
        if not os.path.lexists(target) and write_new(target, blank.read_text(encoding="utf-8"))
    ]


def find_blank(wanted: str, originals: Path = BLANKS) -> Path:
    """Return the blank for what a learner calls it: ``4``, ``fsdp``, ``p04_fsdp``, ``R1`` or ``tour``. Raise NotDone
    for anything else."""
    found = {blank.stem: blank for blank in blanks(originals)}
    called = wanted.removesuffix(".ipynb").lower()
    number = re.sub(r"^p?0?(?=\d)", "", called)
    files = [puzzle.file for puzzle in puzzles().values() if puzzle.is_called(number)]
    for stem in (called, f"machine_{called}", *files):
        if stem in found:
            return found[stem]
    raise NotDone(f"there is no puzzle {wanted!r}. A number or one of these names: {', '.join(found)}")


def reset(folder: Path, wanted: str, originals: Path = BLANKS) -> tuple[Path, Path | None]:
    """Start a puzzle again. Return its fresh copy, and where the learner's own file is kept, if there was one."""
    blank = find_blank(wanted, originals)
    target = folder / blank.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with complete(target, blank.read_text(encoding="utf-8")) as finished:
        worth_keeping = target.exists() and target.read_bytes() != blank.read_bytes()
        kept = _keep(target) if worth_keeping else None
        os.replace(finished, target)
    return target, kept


def _keep(file: Path) -> Path:
    """Give the file the next free numbered name."""
    names = (file.with_name(f"{file.stem}.old{number}{file.suffix}") for number in itertools.count(1))
    return next(name for name in names if give_name(file, name))


def told(fresh: Path, kept: Path | None) -> str:
    """Return what to say after a reset."""
    whole = "" if fresh.stem[:1] == "p" else ", all of it"
    text = f"{short(fresh)} is blank again{whole}. If it is open in JupyterLab: File, Reload Notebook from Disk."
    return f"Your work, as it was last saved, is kept in {short(kept)}.\n{text}" if kept else text


def short(path: Path) -> str:
    """Return a path as it is written from here, or whole where that is shorter."""
    try:
        return min(os.path.relpath(path), str(path), key=len)
    except ValueError:  # on another drive
        return str(path)
