"""How much the tests notice: small random mistakes are put into the modules that decide, one at a time.

    python tests/mutants.py [--count 200] [--seed 0] [--only lib.machine.network] [--tests tests/test_network.py ...]

Each mutant is a copy of the project, elsewhere, with one change; the tests run until the first that fails: files that
know the changed module first, then those that are quick and notice much. What no test notices is listed as a
difference. Mutants that change nothing that anybody can see are kept, with the reason, in equivalent_mutants.json, and
counted apart. A test that hangs has noticed. Generated tests try the same examples each time, and look for no smaller
ones. It forks, which Windows cannot.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import difflib
import json
import os
import py_compile
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, NamedTuple

import pytest

MODULES = (
    *("lib.record.labels", "lib.record.training", "lib.record.collectives", "lib.record.table"),
    *("lib.machine.cost", "lib.machine.fingerprints", "lib.machine.past", "lib.machine.rank_state"),
    *("lib.machine.in_flight", "lib.machine.network", "lib.machine.deferred_memory", "lib.machine.simulator"),
    *("lib.machine.check", "lib.course.layouts", "lib.course.rules", "lib.course.bounds"),
    *("lib.recording.verbs", "lib.recording.replay"),
)
TESTS = [  # those that are quick and notice much first
    *("simulator", "values", "figures", "network", "lives", "by_hand", "errors", "labels", "repairs", "grading"),
    *("codes", "prints", "cost", "plain_machine", "operations", "failed_run", "corpus", "drawing_primitives"),
    *("recording", "fuzz", "whole_gradient", "passes"),
]
KNOW = {  # those that know a module best
    "labels": ["labels", "by_hand"],
    "training": ["operations"],
    "collectives": ["values", "drawing_primitives"],
    "table": ["operations"],
    "cost": ["cost"],
    "fingerprints": ["values"],
    "tensor_state": ["simulator", "lives"],
    "past": ["simulator", "errors", "recording_floods"],
    "verbs": ["recording", "lists"],
    "replay": ["recording", "lists"],
    "rank_state": ["lives", "simulator", "plain_machine"],
    "in_flight": ["network", "plain_machine"],
    "network": ["network", "plain_machine"],
    "deferred_memory": ["lives", "network", "plain_machine"],
    "simulator": ["simulator", "errors", "operations"],
    "bounds": ["bounds", "verdict_fields"],
    "layouts": ["grading", "figures", "repairs", "corpus"],
    "rules": ["whole_gradient", "grading", "repairs", "corpus"],
}
PYTEST = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants", "-m", "not process and not browser"]
PYTEST += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is in LOADED
PYTEST += ["--deselect=tests/test_corpus.py::test_what_never_ends_is_ended_in_a_notebook"]  # seconds of busy loops
LOADED = ("chalk", "jupytext", "nbformat", "torch")
"""What tests import that is not the project, and slow: it is there when a process is forked."""
ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
WORKERS = 2
HANGS = 60
"""Seconds of work in one file of tests after which one of them hangs."""

COMPARE: dict[type[ast.cmpop], list[str]] = {
    ast.Lt: ["<=", ">="],
    ast.LtE: ["<", ">"],
    ast.Gt: [">=", "<="],
    ast.GtE: [">", "<"],
    ast.Eq: ["!="],
    ast.NotEq: ["=="],
    ast.Is: ["is not"],
    ast.IsNot: ["is"],
    ast.In: ["not in"],
    ast.NotIn: ["in"],
}


class Mutant(NamedTuple):
    """One change of one file: what stands from ``start`` to ``end`` becomes ``text``."""

    path: Path
    kind: str
    start: int
    end: int
    text: str

    def source(self) -> str:
        """The file with the change."""
        old = self.path.read_text("utf-8")
        return old[: self.start] + self.text + old[self.end :]

    def difference(self) -> list[str]:
        """The lines that differ, the line number first."""
        old, new = self.path.read_text("utf-8").splitlines(), self.source().splitlines()
        return list(difflib.unified_diff(old, new, n=0, lineterm=""))[3:]

    def key(self) -> str:
        """What makes it the same mutant after the file has changed elsewhere."""
        lines = [line[0] + " " + line[1:].partition("  # ")[0].strip() for line in self.difference()]
        return f"{self.kind}: {' '.join(lines)}"

    def line(self) -> int:
        """Where in the file it is."""
        return self.path.read_text("utf-8").count("\n", 0, self.start) + 1


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a file, in the order of the file. Errors' texts, annotations and constants' names are let be."""
    source = path.read_text("utf-8")
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    assert source.isascii() or all(line.isascii() for line in source.splitlines()), f"{path}: offsets are in bytes"

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset

    def between(left: ast.expr, right: ast.expr, old: str) -> tuple[int, int]:
        start = span(left)[1]
        place = re.search(rf"(?<!\w){re.escape(old)}(?!\w)" if old.isalpha() else re.escape(old), source[start:])
        assert place is not None and start + place.end() <= span(right)[0]
        return start + place.start(), start + place.end()

    def of(node: ast.AST, inside: bool) -> Iterator[tuple[str, tuple[int, int], str]]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                gap = source[span(left)[1] : span(right)[0]]
                old = next(t for t in ("not in", "is not", "<=", ">=", "==", "!=", "<", ">", "is", "in") if t in gap)
                for new in COMPARE[type(op)]:
                    yield "comparison", between(left, right, old), new
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
                old, new = ("+", "-") if isinstance(op, ast.Add) else ("-", "+")
                yield "plus and minus", between(left, right, old), new
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as op, value=value):
                old, new = ("+=", "-=") if isinstance(op, ast.Add) else ("-=", "+=")
                yield "plus and minus", between(target, value, old), new
                yield "assignment dropped", span(node), "pass"
            case ast.BoolOp(op=op, values=[left, right, *_]):
                old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield "and, or", between(left, right, old), new
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield "not dropped", span(node), ast.unparse(operand)
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                yield "off by one", span(node), str(number + 1)
                if number:
                    yield "off by one", span(node), str(number - 1)
            case ast.Call(func=ast.Name(id="min" | "max" as name) as func):
                yield "min, max", span(func), {"min": "max", "max": "min"}[name]
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield "call dropped", span(node), "pass"
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if inside:
                yield "assignment dropped", span(node), "pass"
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield "return dropped", span(node), "return None"

    def walk(node: ast.AST, inside: bool) -> Iterator[Mutant]:
        for kind, (start, end), text in of(node, inside):
            yield Mutant(path, kind, start, end, text)
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, (ast.Raise, ast.JoinedStr)):
                    yield from walk(child, inside)

    yield from walk(ast.parse(source), False)


class Trial(NamedTuple):
    """A process that runs tests in a tree."""

    pid: int
    tree: Path
    mutant: Mutant | None
    said: IO[str]
    deadline: float


def begin(tree: Path, mutant: Mutant | None, tests: Sequence[str], limit: float) -> Trial:
    """Fork a process that runs files of tests in a tree, one after the other until one fails."""
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115
    if pid := os.fork():
        return Trial(pid, tree, mutant, said, time.monotonic() + limit)
    code = 1
    try:
        os.setsid()
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        os.chdir(tree)
        sys.path[:] = [
            str(tree),
            *[folder for folder in sys.path if Path(folder).resolve() not in (ROOT, ROOT / "tests")],
        ]
        sys.dont_write_bytecode = mutant is not None
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        for test in tests:
            signal.setitimer(signal.ITIMER_PROF, HANGS)
            if pytest.main([*PYTEST, test]) not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                break
        else:
            code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def noticed(trial: Trial, status: int) -> str:
    """The first test that has failed; empty if none has."""
    trial.said.seek(0)
    text = trial.said.read()
    trial.said.close()
    if os.WIFSIGNALED(status):
        return "(a test that hangs)"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    return "" if status == 0 else failed[1] if failed else f"(pytest ended with {status >> 8}) {text[-300:]}"


def trials(
    todo: Sequence[tuple[Mutant | None, Sequence[str]]], trees: Sequence[Path], limit: float
) -> Iterator[tuple[Mutant | None, str]]:
    """Run tests for mutants, as many at a time as there are trees, and tell of each which test has noticed it. After
    ``limit`` seconds one of them hangs."""
    waiting, free, running = list(reversed(todo)), list(trees), dict[int, Trial]()
    while waiting or running:
        while waiting and free:
            (mutant, tests), tree = waiting.pop(), free.pop(0)
            if mutant is not None:
                (tree / mutant.path.relative_to(ROOT)).write_text(mutant.source(), "utf-8")
            trial = begin(tree, mutant, tests, limit)
            running[trial.pid] = trial
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            trial = running.pop(pid)
            if trial.mutant is not None:
                shutil.copy(trial.mutant.path, trial.tree / trial.mutant.path.relative_to(ROOT))
            free.append(trial.tree)
            yield trial.mutant, noticed(trial, status)
            continue
        for trial in running.values():
            if time.monotonic() > trial.deadline:
                os.killpg(trial.pid, signal.SIGKILL)
        time.sleep(0.05)


def order(mutant: Mutant) -> list[str]:
    """The files of tests for a mutant, those that know its module first, and the module's own doctests last."""
    names = dict.fromkeys([*KNOW.get(mutant.path.stem, []), *TESTS])
    return [*[f"tests/test_{name}.py" for name in names], str(mutant.path.relative_to(ROOT))]


def main() -> int:
    """Print the share that is noticed, by whom, and what is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="MODULE", choices=MODULES)
    parser.add_argument("--tests", nargs="+", help="instead of those that are known to notice most")
    options = parser.parse_args()
    modules = [options.only] if options.only else MODULES
    paths = [ROOT.joinpath(*module.split(".")).with_suffix(".py") for module in modules]
    found = [mutant for path in paths for mutant in mutants(path)]
    chosen = random.Random(options.seed).sample(found, min(options.count, len(found)))
    known = json.loads(EQUIVALENT.read_text("utf-8"))
    equivalent = [mutant for mutant in chosen if mutant.key() in known]
    chosen = [mutant for mutant in chosen if mutant.key() not in known]
    for name in LOADED:
        with suppress(ImportError):
            import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        left_out = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "dist", "build", "mine")
        trees = [Path(shutil.copytree(ROOT, Path(folder) / f"tree{n}", ignore=left_out)) for n in range(WORKERS)]
        for tree in trees:  # a file that changes within a second, and keeps its size, is compiled anew all the same
            compileall.compile_dir(tree / "lib", quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        start = time.monotonic()
        everything = options.tests or [f"tests/test_{name}.py" for name in TESTS]
        for _, failed in trials([(None, everything)] * len(trees), trees, 3600):
            if failed:
                print(f"without any change a test fails already: {failed}")
                return 1
        took = time.monotonic() - start
        print(f"{len(found)} mutants in {len(paths)} modules; the tests take {took:.0f} s", flush=True)
        verdicts = {}
        todo = [(mutant, options.tests or order(mutant)) for mutant in chosen]
        for mutant, by in trials(todo, trees, 60 + 4 * took):
            assert mutant is not None
            verdicts[mutant] = by
            print(f"{mutant.path.name}:{mutant.line()} {mutant.kind}: {by or 'NOT NOTICED'}", flush=True)
    survivors = [mutant for mutant in chosen if not verdicts[mutant]]
    for name, count in Counter(by.partition("::")[0] for by in verdicts.values() if by).most_common():
        print(f"{count:5} noticed by {name}")
    for mutant in survivors:
        print(f"\n{mutant.path.relative_to(ROOT)}:{mutant.line()} {mutant.kind}", *mutant.difference(), sep="\n    ")
    share = 1 - len(survivors) / max(1, len(chosen))
    print(f"\n{share:.1%} of {len(chosen)} noticed, {len(survivors)} not; {len(equivalent)} more change nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
