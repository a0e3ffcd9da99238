"""What may be typed at a shell, and how this program is called there."""

import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from ..basics.folders import INSTALLED, PACKAGE

COMMANDS = {
    "lab": "open JupyterLab on your own copies of the notebooks",
    "start": "write a blank puzzle as a script, for an editor that shows cells or any other",
    "watch": "grade again whenever a file is saved",
    "grade": "grade your puzzles, or files of yours",
    "hint": "the next hint for a puzzle",
    "solution": "the solution of a puzzle, explained, once you have solved it",
    "draw": "draw the schedule of a function in a file",
    "run": "run a function in a file, on the simulated machine or with real tensors",
    "progress": "your best results so far",
    "gallery": "show the gallery of all puzzles in a browser",
    "reset": "put a notebook of yours aside, and begin again from the blank",
    "worker": "be one rank of a run, as torchrun starts it",
}
"""What may be typed at a shell, and what it does."""
PROGRAMS = ("llm-training-puzzles", "training-puzzles")
"""The names under which an installation puts these commands on the path."""
MODULE = PACKAGE if INSTALLED else "lib"
"""What ``python -m`` runs instead."""


def called() -> str:
    """Return the command to type here, such as ``training-puzzles`` or ``python -m lib``."""
    program = Path(sys.argv[0])
    if program.stem not in PROGRAMS:
        return f"{_typed(Path(sys.executable))} -m {MODULE}"
    if "UV" in os.environ and os.environ.get("VIRTUAL_ENV") != sys.prefix:
        extra = "[lab]" if find_spec("jupyterlab") else ""
        return f'uvx --from "{PROGRAMS[0]}{extra}" {program.stem}'  # which is on the path of this process only
    return _typed(program)


def _typed(program: Path) -> str:
    """Return the shortest form of a program's path: its name, if the shell finds it, or the path from this folder."""
    program = Path(os.path.abspath(program))
    found = shutil.which(program.name)
    if found and os.path.abspath(found) == str(program):
        return program.name
    here = Path.cwd()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))
