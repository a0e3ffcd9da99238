"""The common part of commands at a shell: a function in a file, and the machine that runs it."""

import argparse
import inspect
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..basics.errors import PuzzleError
from ..basics.folders import INSTALLED, PACKAGE
from ..course.specs import cost_named, puzzles
from ..machine.check import TRAINED
from .submission import load_quietly, summary

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


class Usage(Exception):
    """Raised for a wrong command line."""


def called() -> str:
    """Return the command to type here, such as ``training-puzzles`` or ``python -m lib``."""
    program = Path(sys.argv[0])
    if program.stem not in PROGRAMS:
        return f"{_typed(Path(sys.executable))} -m {MODULE}"
    if "UV" in os.environ and os.environ.get("VIRTUAL_ENV") != sys.prefix:
        return f"uvx {program.stem}"  # which has put it on the path of this process only
    return _typed(program)


def _typed(program: Path) -> str:
    """Return the shortest form of a program's path: its name, if the shell finds it, or the path from this folder."""
    program = Path(os.path.abspath(program))
    found = shutil.which(program.name)
    if found and os.path.abspath(found) == str(program):
        return program.name
    here = Path.cwd()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how large a machine is."""
    for name, what in (("ranks", "GPUs"), ("layers", "layers"), ("batches", "micro-batches")):
        says = f"{what} (a puzzle's function: those of the puzzle)"
        parser.add_argument(f"--{name}", metavar="N", type=int, help=says)
    parser.add_argument("--mesh", metavar="M", type=_mesh, help="names and sizes of axes: replica=2,shard=4")
    parser.add_argument("--node-size", metavar="N", type=int, help="ranks in a node")
    parser.add_argument("--train", choices=TRAINED, help="what is trained: weights, or adapters beside them")
    parser.add_argument("--hosts", metavar="N", type=int, help="hosts: one for each GPU, or one for each node (none)")
    parser.add_argument("--experts", metavar="N", type=int, help="experts of every other layer (none)")


def _mesh(text: str) -> dict[str, int]:
    pairs = [part.split("=") for part in text.split(",")]
    if not all(len(pair) == 2 and pair[0] and pair[1].isdigit() for pair in pairs):
        raise argparse.ArgumentTypeError("axes are written so: replica=2,shard=4")
    return {name: int(size) for name, size in pairs}


def function_in(what: str) -> Callable[..., Any]:
    """Return the function that ``FILE:function`` names, or the only one of ``FILE``. Raise Usage without one."""
    name, colon, wanted = what.rpartition(":")
    if not colon or not name or "/" in wanted or "\\" in wanted:
        name, wanted = what, ""
    path = Path(name)
    try:
        names, trouble, *_ = load_quietly(path.name, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PuzzleError) as error:
        raise Usage(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    own = {key: value for key, value in names.items() if inspect.isfunction(value) and value.__module__ == "submission"}
    if wanted in own or (not wanted and len(own) == 1):
        return own[wanted or next(iter(own))]
    said = f"{name} has no function {wanted!r}" if wanted else f"which function of {name}? Write {name}:function"
    known = f"it has {', '.join(own)}" if own else "it has no function at all"
    raise Usage("; ".join(filter(None, [said, known, summary(trouble)])))


def size_for(function: Callable[..., Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of ``run``: those of the options, and for the rest those of the puzzle of this name."""
    puzzle = puzzles().get(function.__name__)
    size: dict[str, Any] = dict(puzzle.size) if puzzle else {}
    names = ("ranks", "layers", "batches", "mesh", "node_size", "train", "hosts", "experts")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if "ranks" in given and "mesh" not in given:
        size.pop("mesh", None)  # the puzzle's axes are those of another machine
        size.pop("node_size", None)
        size.pop("hosts", None)
    cost = {"cost": cost_named(puzzle.cost)} if puzzle else {}
    return size | given | cost
