"""What messages systematic mistakes get: each call of a solution is changed in every way that people change it by
mistake, and the verdict on the program is written down, to be read and rated by a person.

    python -m tools.mistakes [--count 200] [--seed 0] [--only fsdp,gpipe] [--json FILE]

A call ``model.verb(...)`` is left out, made twice, moved before the statement above it, given the next layer, another
rank, another axis, or its arguments in another order, or not awaited. A key of a dictionary is taken for the next one,
and what is taken out is kept. Programs that pass all the same, and those that do not load, are counted only.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from lib import grade
from lib.course.specs import puzzles
from lib.grading.page import text
from lib.grading.verdict import PASS, Verdict
from lib.record.table import OPERATIONS, stream_of

STORES = ("weights", "opt_states", "activations", "grad_activations", "grad_weights")
SOLUTIONS = Path(__file__).parent.parent / "solutions"


class Mistake(NamedTuple):
    """A program with one mistake: the puzzle, what was done to which line, and the program."""

    puzzle: str
    what: str
    line: str
    source: str


def mistakes_in(puzzle: str, source: str) -> Iterator[Mistake]:
    """Yield a program for each mistake in each call of a function."""
    tree = ast.parse(source)
    for at in _places(tree):
        node, parents, changed = _parsed(source, at)
        for what, change in CHANGES.items():
            line = ast.unparse(node) if isinstance(node, ast.expr) else ""
            if change(node, parents):  # or else nothing was changed, and the copy serves the next one
                yield Mistake(puzzle, what, line, ast.unparse(ast.fix_missing_locations(changed)))
                node, parents, changed = _parsed(source, at)


def a_mistake(puzzle: str, source: str, chance: random.Random) -> Mistake | None:
    """Return a program with a mistake that is drawn by chance, or None where nothing can be changed."""
    tree = ast.parse(source)
    ways = [(at, what) for at in _places(tree) for what in CHANGES]
    chance.shuffle(ways)
    for at, what in ways:
        node, parents, changed = _parsed(source, at)
        line = ast.unparse(node) if isinstance(node, ast.expr) else ""
        if CHANGES[what](node, parents):
            return Mistake(puzzle, what, line, ast.unparse(ast.fix_missing_locations(changed)))
    return None


def _places(tree: ast.Module) -> list[int]:
    """Return the numbers of the nodes at which a mistake can be made."""

    def fits(node: ast.AST) -> bool:
        pops = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "pop"
        return bool(_verb(node)) or pops or isinstance(node, ast.Await | ast.Subscript)

    return [at for at, node in enumerate(ast.walk(tree)) if fits(node)]


def _parsed(source: str, at: int) -> tuple[ast.AST, dict[int, ast.AST], ast.Module]:
    """Return of a tree of its own the node of this number, the parent of each node, and the tree."""
    changed = ast.parse(source)  # ten times as fast as a copy
    every = [*ast.walk(changed)]
    return every[at], {id(child): parent for parent in every for child in ast.iter_child_nodes(parent)}, changed


def _verb(node: ast.AST) -> str:
    """Return the verb of ``model.verb(...)``, or an empty text."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="model"), attr=verb)) if verb in OPERATIONS or verb in (
            "load_weights", "load_adapter", "get_activation", "set_final_weight",
        ):  # fmt: skip
            return verb
    return ""


def _statement(node: ast.AST, parents: dict[int, ast.AST]) -> tuple[ast.stmt, list[ast.stmt]] | None:
    """Return the statement that a node is in, and the list of statements where that stands."""
    while not isinstance(node, ast.stmt):
        node = parents[id(node)]
    parent = parents.get(id(node))
    for _, block in ast.iter_fields(parent) if parent is not None else ():
        if isinstance(block, list) and node in block:
            return node, block
    return None


def _left_out(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    found = _statement(node, parents) if _verb(node) else None
    if found is None:
        return False
    statement, block = found
    block[block.index(statement)] = ast.Pass()
    return True


def _twice(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    found = _statement(node, parents) if _verb(node) else None
    if found is None:
        return False
    statement, block = found
    block.insert(block.index(statement), copy.deepcopy(statement))
    return True


def _moved_up(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    found = _statement(node, parents) if _verb(node) else None
    if found is None:
        return False
    statement, block = found
    at = block.index(statement)
    if not at or isinstance(statement, ast.Return):
        return False
    block[at - 1], block[at] = block[at], block[at - 1]
    return True


def _next_layer(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    if _verb(node) and isinstance(node, ast.Call):
        for at, argument in enumerate(node.args):
            if isinstance(argument, ast.Name) and argument.id == "layer":
                node.args[at] = ast.BinOp(argument, ast.Add(), ast.Constant(1))
                return True
    return False


def _other_rank(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    if _verb(node) and isinstance(node, ast.Call):
        for part in ast.walk(node):
            if isinstance(part, ast.BinOp) and "model.rank" in ast.unparse(part):
                part.op = ast.Sub() if isinstance(part.op, ast.Add) else ast.Add()
                return True
    return False


def _other_axis(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    if _verb(node) and isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg == "axis" and isinstance(keyword.value, ast.Constant):
                other = {"shard": "replica", "replica": "shard"}.get(keyword.value.value)
                if other:
                    keyword.value = ast.Constant(other)
                    return True
    return False


def _exchanged(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    if _verb(node) and isinstance(node, ast.Call) and len(node.args) > 1:
        node.args[0], node.args[1] = node.args[1], node.args[0]
        return True
    return False


def _not_awaited(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    for parent in (parents.get(id(node)),):
        if isinstance(node, ast.Await) and _verb(node.value) and stream_of(_verb(node.value)) and parent is not None:
            for name, value in ast.iter_fields(parent):
                if value is node:
                    setattr(parent, name, node.value)
                    return True
    return False


def _next_key(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    match node:
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id="model"), attr=store)) if store in STORES:
            if isinstance(node.slice, ast.Name):
                node.slice = ast.BinOp(node.slice, ast.Add(), ast.Constant(1))
                return True
    return False


def _kept(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=store) as where, attr="pop"), args=[key]):
            if store in STORES:
                parent = parents[id(node)]
                for name, value in ast.iter_fields(parent):
                    kept = ast.Subscript(where, key, ast.Load())
                    if value is node:
                        setattr(parent, name, kept)
                        return True
                    if isinstance(value, list) and node in value:
                        value[value.index(node)] = kept
                        return True
    return False


CHANGES = {
    "left out": _left_out, "made twice": _twice, "moved up": _moved_up, "of the next layer": _next_layer,
    "with another rank": _other_rank, "over the other axis": _other_axis, "with arguments exchanged": _exchanged,
    "not awaited": _not_awaited, "under the next key": _next_key, "kept instead of taken out": _kept,
}  # fmt: skip


def told(mistake: Mistake) -> Verdict | None:
    """Return the verdict on a program, or None if it does not load."""
    names: dict[str, Any] = {}
    try:
        exec(compile(mistake.source, "answer.py", "exec"), names)
    except Exception:
        return None
    return grade(names[mistake.puzzle], mistake.puzzle).verdict


@cache
def sources() -> list[tuple[str, str]]:
    """Return each puzzle's name and its solution's functions, without what else is in the source."""
    found = []
    for puzzle in puzzles().values():
        if not puzzle.repair and puzzle.name != "compose":
            text = (SOLUTIONS / f"{puzzle.file}.py").read_text(encoding="utf-8")
            body = ast.parse(text).body
            [function] = [
                one
                for one in body
                if isinstance(one, ast.AsyncFunctionDef | ast.FunctionDef) and one.name == puzzle.name
            ][:1]
            imports = [one for one in body if isinstance(one, ast.ImportFrom) and one.module == "lib"]
            found.append((puzzle.name, "\n".join(map(ast.unparse, [*imports, function]))))
    return found


def main(arguments: list[str] | None = None) -> None:
    """Write down the messages that some mistakes get."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="how many are drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="puzzles, by name, with commas between")
    parser.add_argument("--json", default="", help="a file for all of them, as a list")
    options = parser.parse_args(arguments)
    wanted = [name for name in options.only.split(",") if name]
    every = [
        mistake for name, source in sources() if not wanted or name in wanted for mistake in mistakes_in(name, source)
    ]
    random.Random(options.seed).shuffle(every)
    counts, rows = Counter[str](), list[dict[str, str]]()
    for mistake in every:
        if len(rows) >= options.count:
            break
        verdict = told(mistake)
        if verdict is None or verdict.status == PASS:
            counts["do not load" if verdict is None else "pass all the same"] += 1
            continue
        said = text(verdict, why=True)
        rows.append({**mistake._asdict(), "told": said})
        print(f"--- {len(rows)}. {mistake.puzzle}: {mistake.line} {mistake.what}\n{said}\n", flush=True)
    print(f"{len(rows)} of {len(every)} mistakes; besides, {dict(counts)}", file=sys.stderr)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    import_module("drawing")
    main()
