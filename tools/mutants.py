"""How much the tests notice: small random mistakes are put into the modules that decide, one at a time.

    python -m tools.mutants [--count 200] [--seed 0] [--only lib.machine lib.explain.notes] [--near] [--workers 1]
                            [--tests tests/test_network.py ...]

Each mutant is a copy of the project, elsewhere, with one change. Its tests run until the first that fails: files that
are quick first, and of those as quick the ones that know the changed module. What no test notices is listed as a
difference. Mutants that change nothing that anybody can see are kept, with the reason, in equivalent_mutants.json, and
counted apart. All files of tests run once without a change, and what takes many times as long with one hangs: that is
noticed, too. Generated tests try the same examples each time, and look for no smaller ones. It forks, which Windows
cannot.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import json
import math
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, NamedTuple

import pytest

DECIDE = {
    "lib.record.labels": ("labels", "by_hand", "partial", "slices"),
    "lib.record.shards": ("labels", "by_hand"),
    "lib.record.rules.operands": ("errors", "operations", "slices"),
    "lib.record.rules.passes": ("errors", "operations", "slices"),
    "lib.record.rules.updates": ("errors", "operations", "slices"),
    "lib.record.training": ("operations", "slices"),
    "lib.record.collectives": ("values", "drawing_primitives"),
    "lib.record.causal": ("slices", "values"),
    "lib.record.attention": ("slices",),
    "lib.record.heads": ("slices",),
    "lib.record.experts": ("experts",),
    "lib.record.table": ("operations",),
    "lib.machine.cost": ("cost", "compositions", "links"),
    "lib.machine.fingerprints": ("values", "slices", "partial"),
    "lib.machine.rank_state": ("lives", "inputs", "simulator", "plain_machine"),
    "lib.machine.in_flight": ("network", "plain_machine"),
    "lib.machine.network": ("network", "plain_machine"),
    "lib.machine.waiting": ("links", "plain_machine"),
    "lib.machine.deferred_memory": ("lives", "network", "plain_machine"),
    "lib.machine.deadlock": ("network",),
    "lib.machine.simulator": ("simulator", "errors", "operations", "adapters"),
    "lib.machine.check": ("adapters",),
    "lib.represent.coordinate": ("represent",),
    "lib.represent.values": ("represent",),
    "lib.represent.symmetry": ("represent",),
    "lib.represent.follow": ("represent",),
    "lib.represent.links": ("represent",),
    "lib.schedules.actions": ("schedules",),
    "lib.schedules.rows": ("schedules",),
    "lib.schedules.order": ("schedules",),
    "lib.schedules.messages": ("schedules",),
    "lib.schedules.weights": ("schedules",),
    "lib.schedules.program": ("schedules",),
    "lib.schedules.figures": ("schedule_search", "schedules"),
    "lib.running.few": ("represent",),
    "lib.recording.verbs": ("recording", "lists"),
    "lib.recording.replay": ("recording", "lists"),
    "lib.recording.diary": ("explain",),
    "lib.explain.notes": ("explain", "peak"),
    "lib.explain.lineage": ("explain",),
    "lib.explain.compare": ("explain",),
    "lib.explain.costs": ("explain",),
    "lib.explain.spelling": ("explain",),
    "lib.explain.explanation": ("explain",),
    "lib.explain.statement": ("explain",),
    "lib.record.figures.score": ("figures", "hosts", "peak", "breakdown"),
    "lib.course.layouts": ("grading", "figures", "repairs", "corpus"),
    "lib.course.sizes": ("sizes",),
    "lib.course.ideas": ("ideas", "whole_gradient", "grading", "corpus"),
    "lib.course.bounds": ("bounds", "verdict_fields"),
    "lib.course.points": ("points",),
    "lib.machine.outcome": ("simulator", "grading", "failed_run"),
    "lib.machine.mesh": ("axes",),
    "lib.grading.judge": ("grading", "passes", "verdict_fields", "corpus"),
    "lib.grading.verdict": ("verdict_fields", "grading"),
    "lib.grading.progress": ("nothing_lost", "grading"),
    "lib.grading.hints": ("hints", "grading"),
}
"""The modules that decide, and the files of tests that know each best. A new module is a row here."""
CHOSEN = "SIZES", "lru_cache"
"""A table of sizes that were chosen, and of caches: others would do as well, as long as they are of the kinds that
tests ask for."""
TESTS = [
    *("simulator", "values", "figures", "network", "lives", "by_hand", "errors", "labels", "repairs", "grading"),
    *("codes", "prints", "cost", "plain_machine", "operations", "failed_run", "corpus", "drawing_primitives"),
    *("recording", "fuzz", "whole_gradient", "passes", "adapters", "lists", "axes", "experts", "slices", "hosts"),
    *("inputs", "partial", "tiers", "uneven", "ideas", "sizes", "verdict_fields"),
]
"""What is tried after those that know a module."""
KNOWS = 8
"""A file that knows a module goes before others that take as much as an eighth of its time: the quickest are first."""
PYTEST = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not process and not browser"]
PYTEST += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is in LOADED
PYTEST += ["--deselect=tests/test_corpus.py::test_what_never_ends_is_ended_in_a_notebook"]  # seconds of busy loops
PROFILE = "--hypothesis-profile=mutants"
"""Of files of tests; tests/conftest.py has it, which doctests do without."""
LOADED = ("chalk", "jupytext", "nbformat", "torch")
"""What tests import that is not the project, and slow: it is there when a process is forked."""
ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
HANGS = 5
"""So many times the processor time that a file of tests takes without a change, and ``START`` seconds more."""
START = 20
"""Seconds: what a process spends before its first test, on a busy machine."""
WAITS = 10
"""The same for the time on the clock, of what waits and computes nothing."""

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


@cache
def text_of(path: Path) -> str:
    """The text of a file, as it was when it was first asked for."""
    return path.read_text("utf-8")


class Mutant(NamedTuple):
    """One change of one file: what stands from ``start`` to ``end`` becomes ``text``."""

    path: Path
    kind: str
    start: int
    end: int
    text: str

    def source(self) -> str:
        """The file with the change."""
        old = text_of(self.path)
        return old[: self.start] + self.text + old[self.end :]

    def difference(self) -> list[str]:
        """The number of the first line that changes, then the lines before and after."""
        old = text_of(self.path)
        first, last = old.rfind("\n", 0, self.start) + 1, old.find("\n", self.end)
        new = old[first : self.start] + self.text + old[self.end : last]
        both = [*("-" + line for line in old[first:last].splitlines()), *("+" + line for line in new.splitlines())]
        return [f"line {self.line()}", *both]

    def key(self) -> str:
        """What makes it the same mutant after the file has changed elsewhere."""
        lines = [line[0] + " " + line[1:].partition("  # ")[0].strip() for line in self.difference()[1:]]
        return f"{self.kind}: {' '.join(lines)}"

    def line(self) -> int:
        """Where in the file it is."""
        return text_of(self.path).count("\n", 0, self.start) + 1


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a file, in the order of the file. Errors' texts, annotations and constants' names are let be."""
    source = text_of(path)
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
                chosen = getattr(getattr(node, "target", getattr(node, "func", None)), "id", "") in CHOSEN
                if isinstance(child, ast.AST) and not isinstance(child, (ast.Raise, ast.JoinedStr)) and not chosen:
                    yield from walk(child, inside)

    yield from walk(ast.parse(source), False)


class Trial(NamedTuple):
    """A process that runs tests in a tree."""

    pid: int
    tree: Path
    mutant: Mutant | None
    tests: Mapping[str, float]
    said: IO[str]
    deadline: float


class Outcome(NamedTuple):
    """What came of a trial: the first test that failed, or nothing, and the processor time that it took."""

    mutant: Mutant | None
    tests: Mapping[str, float]
    failed: str
    seconds: float


def begin(tree: Path, mutant: Mutant | None, tests: Mapping[str, float], limit: float) -> Trial:
    """Fork a process that runs files of tests in a tree, one after the other until one fails. ``tests``: with the
    processor time that each may take; 0 is any."""
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115
    if pid := os.fork():
        return Trial(pid, tree, mutant, tests, said, time.monotonic() + limit)
    code = 1
    try:
        os.setsid()
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        os.chdir(tree)
        os.environ["TMPDIR"], tempfile.tempdir = str(tree.parent), None  # what tests leave goes with the trees
        sys.path[:] = [str(tree), *[folder for folder in sys.path if Path(folder).resolve() != ROOT]]
        sys.modules.pop("tools", None)  # of this tree, not of the project's
        sys.dont_write_bytecode = mutant is not None
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        for test, seconds in tests.items():
            signal.setitimer(signal.ITIMER_PROF, seconds)
            arguments = [*PYTEST, *([PROFILE] if test.startswith("tests/") else []), test]
            if pytest.main(arguments) not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
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
    todo: Sequence[tuple[Mutant | None, Mapping[str, float]]], trees: Sequence[Path], limit: float = math.inf
) -> Iterator[Outcome]:
    """Run tests for mutants, as many at a time as there are trees, and tell what came of each. After ``limit`` seconds
    on the clock one of them hangs."""
    waiting, free, running = list(reversed(todo)), list(trees), dict[int, Trial]()
    try:
        while waiting or running:
            while waiting and free:
                (mutant, tests), tree = waiting.pop(), free.pop(0)
                if mutant is not None:
                    (tree / mutant.path.relative_to(ROOT)).write_text(mutant.source(), "utf-8")
                trial = begin(tree, mutant, tests, limit)
                running[trial.pid] = trial
            pid, status, used = os.wait4(-1, os.WNOHANG)
            if pid:
                trial = running.pop(pid)
                if trial.mutant is not None:
                    shutil.copy(trial.mutant.path, trial.tree / trial.mutant.path.relative_to(ROOT))
                free.append(trial.tree)
                yield Outcome(trial.mutant, trial.tests, noticed(trial, status), used.ru_utime + used.ru_stime)
                continue
            for trial in running.values():
                if time.monotonic() > trial.deadline:
                    os.killpg(trial.pid, signal.SIGKILL)
            time.sleep(0.05)
    finally:  # of an interrupted program as well
        for pid in running:
            os.killpg(pid, signal.SIGKILL)


def path_of(module: str) -> Path:
    """The file of a module."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def order(path: Path, near: bool = False) -> list[str]:
    """The files of tests for a module, those that know it first, and its own doctests last. ``near``: without those
    that are there for all modules, and without the corpus."""
    know = {path_of(module): names for module, names in DECIDE.items()}
    names = [name for name in know.get(path, ()) if not near or name != "corpus"]
    names = [*dict.fromkeys([*names, *([] if near else TESTS)])]
    return [*[f"tests/test_{name}.py" for name in names], str(path.relative_to(ROOT))]


def unchanged(tests: Sequence[str], trees: Sequence[Path]) -> Iterator[tuple[str, float]]:
    """Run files of tests without a change, for as long as they take, each in a process of its own. Tell what each
    takes on the processor; end the program where one fails."""
    for _, (test,), failed, seconds in trials([(None, {test: 0.0}) for test in tests], trees):
        if failed:
            sys.exit(f"without any change a test fails already: {failed}")
        yield test, seconds


def quickest(tests: Sequence[str], path: Path, taken: Mapping[str, float]) -> dict[str, float]:
    """The files of tests for a module, the quickest first, with the processor time that each may take."""
    near = order(path, near=True)
    first = sorted(tests, key=lambda test: taken[test] / (KNOWS if test in near else 1))
    return {test: START + HANGS * taken[test] for test in first}


def main() -> int:
    """Print the share that is noticed, by whom, and what is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="MODULE", nargs="+", default=["lib"], help="modules, or packages of them")
    parser.add_argument("--tests", nargs="+", help="instead of those that are known to notice most")
    parser.add_argument("--near", action="store_true", help="only the tests that know a module best: a first look")
    parser.add_argument("--workers", type=int, default=2, help="how many mutants are tried at a time")
    options = parser.parse_args()
    paths = [path_of(name) for name in DECIDE if any(f"{name}.".startswith(f"{one}.") for one in options.only)]
    if not paths:
        parser.error(f"--only {' '.join(options.only)}: none of these is among {', '.join(DECIDE)}")
    found = [mutant for path in paths for mutant in mutants(path)]
    chosen = random.Random(options.seed).sample(found, min(options.count, len(found)))
    known = json.loads(EQUIVALENT.read_text("utf-8"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends the program has no trees left behind
    equivalent = [mutant for mutant in chosen if mutant.key() in known]
    chosen = [mutant for mutant in chosen if mutant.key() not in known]
    for name in LOADED:
        with suppress(ImportError):
            import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        left_out = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "dist", "mine")
        trees = [
            Path(shutil.copytree(ROOT, Path(folder) / f"tree{n}", ignore=left_out)) for n in range(options.workers)
        ]
        for tree in trees:  # a file that changes within a second, and keeps its size, is compiled anew all the same
            compileall.compile_dir(tree / "lib", quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        tests = {path: options.tests or order(path, options.near) for path in paths}
        start = time.monotonic()
        taken = dict(unchanged(list(dict.fromkeys(test for every in tests.values() for test in every)), trees))
        took = time.monotonic() - start
        print(f"{len(found)} mutants in {len(paths)} modules; the tests take {took:.0f} s", flush=True)
        verdicts = {}
        todo = [(mutant, quickest(tests[mutant.path], mutant.path, taken)) for mutant in chosen]
        for mutant, _, by, _ in trials(todo, trees, WAITS * (START + took)):
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
