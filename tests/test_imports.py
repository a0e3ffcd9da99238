"""Imports only go down, so that the files can be read one after the other."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import drawing

ROOT = Path(__file__).resolve().parent.parent

ROW = re.compile(r"^(\w+)  +\S", re.MULTILINE)


def modules(package: str) -> dict[str, Path]:
    """Dotted names of a package's modules, the package itself among them."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path) -> set[str]:
    """Modules of this project that a module imports, anywhere in it: in functions, and for types only, too."""
    is_package = path.stem == "__init__"
    package = name.split(".") if is_package else name.split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {found for node in ast.walk(tree) for found in targets(node, package)} - {name}


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


ABOVE = ("solutions", "tests", "tools")
PACKAGES = ("lib", "drawing", "solutions", "tests", "tools")
MODULES = {name: path for package in PACKAGES for name, path in modules(package).items()}


@cache
def imported(name: str) -> set[str]:
    """What a module imports."""
    return imports(name, MODULES[name])


def described(package: str) -> list[str]:
    """The modules that a package's docstring lists, in its order."""
    text = ast.get_docstring(ast.parse(MODULES[package].read_text(encoding="utf-8"))) or ""
    names = [f"{package}.{name}" for name in ROW.findall(text)]
    itself = f"{package}.{package.rpartition('.')[2]}"
    return [package if name == itself and itself not in MODULES else name for name in names]


def in_order(package: str) -> Iterator[str]:
    """Every module in reading order: a package stands before its modules, but for those that name their own place."""
    for name in described(package):
        if name == package or MODULES[name].stem != "__init__":
            yield name
        elif name in described(name):
            yield from in_order(name)
        else:
            yield from [name, *in_order(name)]


READING_ORDER = [*in_order("lib"), *in_order("drawing"), "drawing", "solutions.build", *in_order("solutions.build")]
IN_ORDER = [name for name in MODULES if f"{name}.".startswith(("lib.", "drawing.", "solutions.build."))]


def test_the_reading_order_names_every_module_once() -> None:
    assert sorted(READING_ORDER) == sorted(IN_ORDER)


def test_a_newcomer_sees_at_most_a_dozen_names_at_each_level() -> None:
    packages = [name for name in READING_ORDER if MODULES[name].stem == "__init__"]
    assert {name: len(described(name)) for name in packages if len(described(name)) > 18} == {}


@pytest.mark.parametrize("name", IN_ORDER)
def test_imports_only_go_down(name: str) -> None:
    below = READING_ORDER[: READING_ORDER.index(name)]
    assert sorted(imported(name) & {*IN_ORDER} - {*below}) == []


@pytest.mark.parametrize(
    ("package", "never"), [("lib", ("drawing", *ABOVE)), ("drawing", ABOVE), ("solutions", ("tests", "tools"))]
)
def test_a_package_never_imports_what_stands_above_it(package: str, never: tuple[str, ...]) -> None:
    assert modules(package)
    for name in modules(package):
        others = imported(name) - {"tools.published", "tools.foundry"}  # pages quote what has been measured
        assert [other for other in others if other.split(".")[0] in never] == [], name


def test_nothing_that_drawing_offers_has_the_name_of_a_module() -> None:
    """Pictures are imported late: by then the module would stand in the place of what it defines."""
    assert not {f"drawing.{name}" for name in drawing.__all__} & MODULES.keys()


def test_no_module_imports_itself_in_a_circle() -> None:
    checked = {name: imported(name) & MODULES.keys() for name in MODULES if not name.startswith(("tests", "tools"))}
    assert set(TopologicalSorter(checked).static_order()) >= checked.keys()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("import lib.basics.units", {"lib.basics.units"}),
        ("from lib.basics import units, run_nothing", {"lib.basics.units", "lib.basics"}),
        ("from .basics.units import exact", {"lib.basics.units"}),
        ("from .basics import units", {"lib.basics.units"}),
        ("def later():\n    from .basics.units import exact", {"lib.basics.units"}),
        ("from drawing.missing import x", {"drawing.missing"}),
        ("import json, collections.abc", set()),
        ("if TYPE_CHECKING:\n    from .basics.units import exact", {"lib.basics.units"}),
    ],
)
def test_these_imports_are_seen(tmp_path: Path, statement: str, found: set[str]) -> None:
    file = tmp_path / "example.py"
    file.write_text(statement, encoding="utf-8")
    assert imports("lib.example", file) == found
