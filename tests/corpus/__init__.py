"""Learners' programs, honest and not, and what the grader has to say of each.

Most are the reference solution of a puzzle with something changed, so that one sees what the program is about.
"""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

SOLUTIONS = Path(__file__).resolve().parent.parent.parent / "solutions"

HEAD = """\
import asyncio, atexit, concurrent.futures, contextlib, copy, ctypes, dataclasses, enum, functools, gc, inspect, itertools, json, operator
import os, pickle, re, signal, socket, subprocess, sys, threading, time, types
from lib import Activation, ActivationGrad, Cost, Dist, Model, OptState, PuzzleError, Weight, WeightGrad, grade, run, schedule

"""


class Program(NamedTuple):
    """A program, the puzzle that it attempts, and words of the message where it must not pass."""

    puzzle: str
    name: str
    source: str
    says: str = ""


@cache
def functions() -> dict[str, str]:
    """The source of each function of the solutions; of several with one name, that of the first."""
    found: dict[str, str] = {}
    for path in [*sorted(SOLUTIONS.glob("p??_*.py")), SOLUTIONS / "repairs.py", Path(__file__).with_name("styles.py")]:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        for node in ast.parse(text).body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                source = "".join(lines[node.lineno - 1 : node.end_lineno]).rstrip("\n")
                found.setdefault(node.name, source)
    return found


def function(name: str) -> str:
    """The source of a function of the solutions: a puzzle's own, or a second one beside it."""
    return functions()[name]


def changed(puzzle: str, name: str, *edits: tuple[str, str], says: str = "", base: str = "") -> Program:
    """The solution of a puzzle (or of ``base``) with every ``old`` in it replaced by ``new``."""
    source = function(base or puzzle)
    for old, new in edits:
        assert old in source, f"{puzzle}, {name}: {old!r} is not in the solution"
        source = source.replace(old, new)
    return Program(puzzle, name, HEAD + source.replace(f"def {base}(", f"def {puzzle}(") + "\n", says)


def whole(puzzle: str, name: str, source: str, says: str = "") -> Program:
    """A program written out."""
    return Program(puzzle, name, HEAD + source.strip("\n") + "\n", says)


def after(puzzle: str, name: str, source: str, says: str = "", *edits: tuple[str, str]) -> Program:
    """The solution of a puzzle, renamed ``honest``, and then this source."""
    kept = function(puzzle)
    for old, new in edits:
        assert old in kept, f"{puzzle}, {name}: {old!r} is not in the solution"
        kept = kept.replace(old, new)
    kept = kept.replace(f"def {puzzle}(", "def honest(")
    return Program(puzzle, name, HEAD + kept + "\n\n" + source.strip("\n") + "\n", says)


def of_each_puzzle(name: str) -> list[Program]:
    """The programs of this name in the modules that are about one puzzle each."""
    modules = sorted(Path(__file__).parent.glob("p[0-9][0-9]_*.py"))
    return [one for path in modules for one in getattr(import_module(f"{__package__}.{path.stem}"), name)]
