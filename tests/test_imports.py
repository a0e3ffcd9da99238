"""Imports only go down, so that the files can be read one after the other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Bottom-up: a module of lib imports only modules that stand before it.
READING_ORDER = (
    "lib.units",
    "lib.errors",
    "lib.events",
    "lib.score",
    "lib.codes",
    "lib.labels",
    "lib.mesh",
    "lib.cost",
    "lib.values",
    "lib.entries",
    "lib.flights",
    "lib.ledger",
    "lib.settlement",
    "lib.check",
    "lib.layouts",
    "lib.collectives",
    "lib.network",
    "lib.rules",
    "lib.books",
    "lib.tensors",
    "lib.calls",
    "lib.storage",
    "lib.watch",
    "lib.dist",
    "lib.model",
    "lib.limits",
    "lib.loop",
    "lib.prints",
    "lib.turn",
    "lib.outcome",
    "lib.workload",
    "lib.run",
    "lib.engines",
    "lib.engines.layers",
    "lib.engines.data",
    "lib.engines.pieces",
    "lib.engines.numbers",
    "lib.engines.agreement",
    "lib.engines.reference",
    "lib.engines.result",
    "lib.engines.local",
    "lib.forms",
    "lib.specs",
    "lib.sketches",
    "lib.grading",
    "lib.grading.verdict",
    "lib.grading.judge",
    "lib.grading.page",
    "lib.grading.progress",
    "lib.grading.seal",
    "lib.grading.submission",
    "lib.grading.answer",
    "lib.grading.notebook",
    "lib.nested",
    "lib",
    "lib.grading.files",
    "lib.grading.wire",
    "lib.grading.clerk",
    "lib.grading.remote",
    "lib.grading.jail",
    "lib.grading.worker",
    "lib.grading.start",
    "lib.grading.sandbox",
    "lib.grading.referee",
    "lib.grading.shelf",
    "lib.grading.session",
    "lib.grading.script",
    "lib.grading.shell",
    "lib.commandline",
    "lib.engines.lane",
    "lib.engines.host",
    "lib.engines.meter",
    "lib.engines.rank",
    "lib.engines.zygote",
    "lib.engines.processes",
    "lib.engines.shell",
    "lib.__main__",
)


def modules(package: str) -> dict[str, Path]:
    """Dotted names of a package's modules, the package itself among them."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path) -> set[str]:
    """Modules of this project that a module imports when it runs, anywhere in it: in functions too.

    What stands under ``if TYPE_CHECKING:`` is never imported: a name for a type may look up.
    """
    is_package = path.stem == "__init__"
    package = name.split(".") if is_package else name.split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {found for node in running(tree) for found in targets(node, package)} - {name}


def running(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that may run."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            yield from (found for other in child.orelse for found in running(other))
        else:
            yield from running(child)


def targets(node: ast.AST, package: list[str]) -> Iterator[str]:
    """What one import statement names, as far as it is ours."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from ours(alias.name)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *filter(None, [node.module])])
        for alias in node.names:
            module = f"{base}.{alias.name}"  # or else a name in the module `base`
            yield from [module] if module in MODULES else ours(base)


def ours(name: str) -> list[str]:
    return [name] if name in MODULES or name.split(".")[0] in PACKAGES else []


PACKAGES = ("lib", "drawing", "solutions", "tests")
MODULES = {name: path for package in PACKAGES for name, path in modules(package).items()}
GRAPH = {name: imports(name, path) for name, path in MODULES.items()}


def test_the_reading_order_names_every_module_of_lib() -> None:
    assert sorted(READING_ORDER) == sorted(name for name in MODULES if name.split(".")[0] == "lib")


@pytest.mark.parametrize("package", ["lib", "lib.engines", "lib.grading"])
def test_the_description_of_a_package_names_every_module(package: str) -> None:
    described = ast.get_docstring(ast.parse(MODULES[package].read_text(encoding="utf-8"))) or ""
    rows = re.findall(r"^((?:\w+, )*\w+)  +\S", described, re.MULTILINE)
    named = {f"{package}.{name}" for row in rows for name in row.split(", ")}
    inside = {name for name in MODULES if name.rpartition(".")[0] == package}
    assert sorted(named) == sorted(inside - {"lib.__main__"})


@pytest.mark.parametrize("name", modules("lib"))
def test_imports_inside_lib_only_go_down(name: str) -> None:
    below = READING_ORDER[: READING_ORDER.index(name)]
    assert sorted(GRAPH[name] - set(below)) == []


@pytest.mark.parametrize(
    ("package", "never"), [("lib", ("drawing", "solutions", "tests")), ("drawing", ("solutions", "tests"))]
)
def test_a_package_never_imports_what_stands_above_it(package: str, never: tuple[str, ...]) -> None:
    assert modules(package)
    for name in modules(package):
        assert [other for other in GRAPH[name] if other.split(".")[0] in never] == [], name


def test_no_module_imports_itself_in_a_circle() -> None:
    checked = {name: GRAPH[name] & MODULES.keys() for name in [*modules("lib"), *modules("drawing")]}
    assert set(TopologicalSorter(checked).static_order()) >= checked.keys()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("import lib.units", {"lib.units"}),
        ("from lib import units, run_nothing", {"lib.units", "lib"}),
        ("from .units import exact", {"lib.units"}),
        ("from . import units", {"lib.units"}),
        ("def later():\n    from .units import exact", {"lib.units"}),
        ("from drawing.missing import x", {"drawing.missing"}),
        ("import json, collections.abc", set()),
        ("if TYPE_CHECKING:\n    from .units import exact\nelse:\n    import lib.cost", {"lib.cost"}),
    ],
)
def test_these_imports_are_seen(tmp_path: Path, statement: str, found: set[str]) -> None:
    file = tmp_path / "example.py"
    file.write_text(statement, encoding="utf-8")
    assert imports("lib.example", file) == found
