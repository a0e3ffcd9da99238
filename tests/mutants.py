"""How much the tests notice: small random mistakes are put into the modules that decide, one at a time.

    python tests/mutants.py [--count 200] [--seed 0] [--only lib.machine.network] [--tests tests/test_network.py ...]

Each mutant is a copy of the project, elsewhere, with one change; the tests run until the first that fails. What no
test notices is listed as a difference. Mutants that change nothing that anybody can see are kept, with the reason, in
equivalent_mutants.json, and counted apart. A test that hangs has noticed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

MODULES = (
    *("lib.record.labels", "lib.record.training", "lib.record.collectives", "lib.record.table"),
    *("lib.machine.cost", "lib.machine.fingerprints", "lib.machine.rank_state"),
    *("lib.machine.in_flight", "lib.machine.network", "lib.machine.late_memory", "lib.machine.books"),
    *("lib.machine.check", "lib.course.layouts", "lib.course.rules"),
)
TESTS = [  # those that notice most, and are quick, first
    *("tests/test_network.py", "tests/test_lives.py", "tests/test_values.py", "tests/test_plain_machine.py"),
    *("tests/test_cost.py", "tests/test_operations.py", "tests/test_clerk.py"),
    *("tests/test_labels.py", "tests/test_by_hand.py", "tests/test_figures.py", "tests/test_errors.py"),
    *("tests/test_codes.py", "tests/test_corpus.py", "tests/test_repairs.py", "tests/test_fuzz.py"),
    *("tests/test_grading.py", "tests/test_prints.py"),
]
PYTEST = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
WORKERS = 2

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
        lines = [line[0] + " " + line[1:].strip() for line in self.difference()]
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


def passes(tree: Path, tests: list[str], limit: float) -> str:
    """The first test that fails in a tree; empty if none does."""
    command = [sys.executable, *PYTEST, "-m", "not process and not browser", *tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)}
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = child.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return "(a test that hangs)"
        said.seek(0)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text := said.read(), re.MULTILINE)
    return "" if code == 0 else failed[1] if failed else f"(pytest ended with {code}) {text[-300:]}"


def main() -> int:
    """Print the share that is noticed, by whom, and what is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="MODULE", choices=MODULES)
    parser.add_argument("--tests", nargs="+", default=TESTS, help="instead of those that are known to notice most")
    options = parser.parse_args()
    modules = [options.only] if options.only else MODULES
    paths = [ROOT.joinpath(*module.split(".")).with_suffix(".py") for module in modules]
    found = [mutant for path in paths for mutant in mutants(path)]
    chosen = random.Random(options.seed).sample(found, min(options.count, len(found)))
    known = json.loads(EQUIVALENT.read_text("utf-8"))
    equivalent = [mutant for mutant in chosen if mutant.key() in known]
    chosen = [mutant for mutant in chosen if mutant.key() not in known]
    with tempfile.TemporaryDirectory() as folder:
        left_out = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "dist", "build", "mine")
        trees: queue.Queue[Path] = queue.Queue()
        for worker in range(WORKERS):
            trees.put(Path(shutil.copytree(ROOT, Path(folder) / f"tree{worker}", ignore=left_out)))
        tree, start = trees.get(), time.monotonic()
        noticed = passes(tree, options.tests, 3600)
        trees.put(tree)
        if noticed:
            print(f"without any change a test fails already: {noticed}")
            return 1
        limit = 60 + 4 * (time.monotonic() - start)
        print(
            f"{len(found)} mutants in {len(paths)} modules; the tests take {time.monotonic() - start:.0f} s", flush=True
        )

        def judge(mutant: Mutant) -> str:
            tree = trees.get()
            place = tree / mutant.path.relative_to(ROOT)
            try:
                place.write_text(mutant.source(), "utf-8")
                noticed = passes(tree, [*options.tests, str(place.relative_to(tree))], limit)
                print(f"{place.name}:{mutant.line()} {mutant.kind}: {noticed or 'NOT NOTICED'}", flush=True)
                return noticed
            finally:
                shutil.copy(mutant.path, place)
                trees.put(tree)

        with ThreadPoolExecutor(WORKERS) as pool:
            verdicts = list(pool.map(judge, chosen))
    survivors = [mutant for mutant, noticed in zip(chosen, verdicts, strict=True) if not noticed]
    for name, count in Counter(noticed.partition("::")[0] for noticed in verdicts if noticed).most_common():
        print(f"{count:5} noticed by {name}")
    for mutant in survivors:
        print(f"\n{mutant.path.relative_to(ROOT)}:{mutant.line()} {mutant.kind}", *mutant.difference(), sep="\n    ")
    share = 1 - len(survivors) / max(1, len(chosen))
    print(f"\n{share:.1%} of {len(chosen)} noticed, {len(survivors)} not; {len(equivalent)} more change nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
