"""A blank puzzle as a script, for those who would rather write in an editor than in a notebook."""

import argparse
import json
import re
import shlex
from pathlib import Path
from textwrap import shorten

from ..basics.errors import PuzzleError
from ..basics.folders import BLANKS
from ..course.specs import Puzzle, find, puzzles
from ..grading.answers import answer_of, beginning
from ..grading.commandline import Usage
from ..lab.commands import called
from ..lab.copies import home
from .attempts import is_file, progress_here

MOST_ALT_TEXT = 120
"""So many characters of what a picture says stand in a script, where nobody sees it."""
_PICTURE = re.compile(r'<img alt="([^"]*)"[^>]*>')


def start(options: argparse.Namespace) -> int:
    """Carry out ``start``: write the blank notebook of a puzzle in the percent format, which editors show as cells.

    Return the exit status. Raise Usage for a file that is no script, and PuzzleError if it exists or cannot be written,
    or if there are no notebooks, as where only lib was copied.
    """
    target: Path = options.file
    if target.suffix != ".py":
        raise Usage(f"{target} is a script, so its name ends in .py")
    puzzle = find(options.puzzle)
    path = BLANKS / f"{puzzle.file}.ipynb"
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except OSError:
        got = f"no {path.name} beside lib"
        expected = "a clone, or the package llm-training-puzzles installed"
        raise PuzzleError(f"there is no blank of {puzzle.name}", expected=expected, got=got, line="") from None
    mine = _mine(options.begin, puzzle, target.parent) if options.begin else ""
    others = [other for other in puzzles().values() if other.file == puzzle.file and other != puzzle]
    grades = f"{called()} watch {shlex.quote(str(target))}"
    texts = [f"# Run it cell by cell in an editor, or grade it whenever you save it: {grades}"]
    for cell in cells:
        source = "".join(cell["source"])
        if mine and cell["cell_type"] == "code" and re.search(rf"def {puzzle.name}\(", source):
            source = mine
        of_another = any(other.name in source or source.startswith(f"## {other.number}. ") for other in others)
        if not of_another and "start" not in cell["metadata"].get("tags", ()):  # at a shell, --from does that
            texts.append(_cell(cell["cell_type"], source))
    try:
        with open(target, "x", encoding="utf-8", newline="\n") as file:
            file.write("\n\n".join(texts) + "\n")
    except FileExistsError:
        raise PuzzleError(f"{target} is there already, and stays as it is", expected="another file", line="") from None
    except OSError as error:
        raise PuzzleError(f"{target} cannot be written: {error.strerror}", line="") from None
    print(f"Puzzle {puzzle.number}, {puzzle.title}, is in {target}. To grade it whenever you save it:\n    {grades}")
    return 0


def _mine(what: str, new: Puzzle, folder: Path) -> str:
    """Return the learner's answer to another puzzle, renamed to this one. Raise PuzzleError where there is none.

    ``what``: a file with it, or a name or number: then it is looked for in the notebooks, in scripts in the folder of
    the new one, and in what progress has kept.
    """
    old = [*puzzles().values()] if is_file(what) else [find(what)]
    paths = [Path(what)] if is_file(what) else [home() / f"{old[0].file}.ipynb", *sorted(folder.glob("*.py"))]
    for puzzle in old:
        for path in paths:
            if puzzle != new and (code := answer_of(path, puzzle.name)):
                return beginning(code, puzzle, new)
    if len(old) == 1 and (code := progress_here().answers.get(old[0].name, "")):
        return beginning(code, old[0], new)
    searched = ", ".join(map(str, paths))
    expected, got = "that puzzle solved, or the file with your answer: --from my_wsdp.py", f"none in {searched}"
    raise PuzzleError(f"there is no answer of yours to {what}", expected=expected, got=got, line="")


def _cell(kind: str, source: str) -> str:
    if kind == "code":
        return f"# %%\n{source}"
    text = _PICTURE.sub(lambda found: f"(A picture in the notebook: {shorten(found[1], MOST_ALT_TEXT)})", source)
    return "\n".join(["# %% [markdown]", *(f"# {line}".rstrip() for line in text.split("\n"))])
