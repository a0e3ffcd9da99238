"""Make the blank notebooks and the table of puzzles from their one source, the files beside this one.

    python -m solutions.build            write puzzles/*.ipynb, lib/specs.json and the picture of README.md
    python -m solutions.build --check    write nothing, fail where they differ from what would be written

A source is a Python file in jupytext's percent format. A cell tagged ``spec`` holds the puzzle's
literal figures, which go to lib/specs.json; a cell tagged ``solution`` and everything between
``### BEGIN SOLUTION`` and ``### END SOLUTION`` is left out of the blank notebook.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jupytext
from drawing import draw, draw_course, draw_primitive
from lib import run
from lib.grading.submission import load

from .mine import write_whole

ROOT = Path(__file__).resolve().parent.parent
FIRST_CELL = Path(__file__).with_name("first_cell.py")
BLOCK = re.compile(
    r"^([ \t]*)### BEGIN SOLUTION\n.*?^[ \t]*### END SOLUTION$", re.MULTILINE | re.DOTALL
)
SHOWN = "p06_gpipe"
"""The source whose picture README.md shows."""
PLACEHOLDER = r"\1# Your code here."
PICTURE = re.compile(r"!\[[^\]]*\]\(picture:(\w+)\)")
NAMES = {"index": "index", "tour": "machine_tour"}
"""Sources that are no puzzles, and names of their notebooks: they sort before p00 wherever files are listed."""

FIGURES = {"time": (int, float), "memory": (int,)}
SIZE = {"ranks": (int,), "layers": (int,), "batches": (int,)}
SPEC = {
    "number": (int,),
    "name": (str,),
    "title": (str,),
    "size": (dict,),
    "other_sizes": (str,),
    "target": (dict,),
    "best_known": (dict,),
    "layout": (str,),
    "rules": (list,),
    "minutes": (int,),
    "hints": (list,),
}
"""The keys of a spec cell, all required, and their types."""

Json = dict[str, Any]


class BuildError(Exception):
    """A source that no notebook can be made from. The message names the file."""


class Cell(NamedTuple):
    """One cell of a source: ``kind`` is ``code`` or ``markdown``."""

    kind: str
    source: str
    tags: tuple[str, ...] = ()


# --- reading the sources -------------------------------------------------------------------------


def sources(folder: Path) -> list[Path]:
    """The source files of a folder in the order of the course: overview, tour, puzzles."""
    first = [path for path in (folder / f"{name}.py" for name in NAMES) if path.exists()]
    found = first + sorted(folder.glob("p[0-9][0-9]_*.py"))
    if not found:
        raise BuildError(f"no tour.py and no p00_*.py in {folder}: nothing to build from")
    return found


def read_cells(path: Path) -> list[Cell]:
    """The cells of a source, in its order."""
    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    return [
        Cell(c.cell_type, c.source, tuple(c.metadata.get("tags", ()))) for c in notebook.cells
    ]


def is_puzzle(path: Path) -> bool:
    """Whether the source is a puzzle."""
    return path.stem not in NAMES


# --- blanks --------------------------------------------------------------------------------------


def blank(source: str) -> str:
    """A cell's code with its solution taken out."""
    return BLOCK.sub(PLACEHOLDER, source)


def blank_cell(path: Path, cell: Cell) -> Cell:
    """The cell as a learner gets it; code must still be code after the cut."""
    if cell.kind != "code":
        return cell
    source = blank(cell.source)
    if "### BEGIN SOLUTION" in source or "### END SOLUTION" in source:
        raise BuildError(
            f"{path.name}: each BEGIN SOLUTION needs its END SOLUTION, alone on a line:\n{source}"
        )
    try:
        ast.parse(source)
    except SyntaxError as error:
        raise BuildError(
            f"{path.name}: no valid Python without the solution ({error}):\n{source}"
        ) from None
    return cell._replace(source=source)


def check_markers(path: Path, cells: Sequence[Cell], name: str) -> None:
    """A puzzle has one cell with one solution block, in the function that the puzzle is named for."""
    marked = [cell for cell in cells if cell.kind == "code" and BLOCK.search(cell.source)]
    if len(marked) != 1 or len(BLOCK.findall(marked[0].source)) != 1:
        raise BuildError(
            f"{path.name}: exactly one solution block is needed, {len(marked)} cells have one"
        )
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    if not any(
        isinstance(n, functions) and n.name == name for n in ast.parse(marked[0].source).body
    ):
        raise BuildError(f"{path.name}: the cell with the solution block must define {name}()")


# --- notebooks -----------------------------------------------------------------------------------


def notebook(path: Path, solved: bool = False, first: str = "") -> Json:
    """The notebook of a source, blank or solved, without outputs and with ids that never change.

    ``first``: its first code cell, in place of the one that finds the project around the notebook.
    """
    cells = [cell for cell in read_cells(path) if "spec" not in cell.tags]
    cells = [
        cell._replace(source=with_pictures(cell.source)) if cell.kind == "markdown" else cell
        for cell in cells
    ]
    if not solved:
        cells = [blank_cell(path, cell) for cell in cells if "solution" not in cell.tags]
    first_code = next((i for i, cell in enumerate(cells) if cell.kind == "code"), len(cells))
    cells.insert(
        first_code, Cell("code", first or FIRST_CELL.read_text(encoding="utf-8").strip())
    )
    return {
        "cells": [_as_json(cell, f"{path.stem}-{i:02}") for i, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def with_pictures(source: str) -> str:
    """A text cell in which ``![...](picture:allgather)`` is the picture, and ``course`` the map of all puzzles.

    As an image with its data, since that is what every host of notebooks shows: Jupyter, trusted or not,
    VS Code, Colab. (GitHub shows the words.)
    """

    def picture(found: re.Match[str]) -> str:
        static = (
            draw_course(static=True)
            if found[1] == "course"
            else draw_primitive(found[1], static=True)
        )
        return static._repr_html_()

    return PICTURE.sub(picture, source)


def notebook_name(path: Path) -> str:
    """File name of a source's notebook."""
    return NAMES.get(path.stem, path.stem) + ".ipynb"


def _as_json(cell: Cell, id: str) -> Json:
    code: Json = {"execution_count": None, "outputs": []} if cell.kind == "code" else {}
    source = cell.source.splitlines(keepends=True)
    return {"cell_type": cell.kind, "id": id, "metadata": {}, **code, "source": source}


# --- specs ---------------------------------------------------------------------------------------


def spec(path: Path) -> Json:
    """The figures of a puzzle, from its one spec cell."""
    cells = [cell.source for cell in read_cells(path) if "spec" in cell.tags]
    if len(cells) != 1:
        raise BuildError(
            f'{path.name}: exactly one cell with tags=["spec"] is needed, {len(cells)} found'
        )
    found = _literal(path, cells[0])
    _check_keys(path, "PUZZLE", found, SPEC)
    _check_keys(
        path, 'PUZZLE["size"]', found["size"], SIZE, {"mesh": (dict,), "node_size": (int,)}
    )
    for key in ("target", "best_known"):
        _check_keys(path, f'PUZZLE["{key}"]', found[key], FIGURES)
    if not found["hints"]:
        raise BuildError(f'{path.name}: PUZZLE["hints"] is empty')
    if path.stem != f"p{found['number']:02}_{found['name']}":
        raise BuildError(
            f"{path.name}: number {found['number']} and name {found['name']} need another file name"
        )
    return found


def _literal(path: Path, source: str) -> Json:
    match ast.parse(source).body:
        case [ast.Assign(targets=[ast.Name(id="PUZZLE")], value=ast.Dict() as value)]:
            pass
        case _:
            raise BuildError(
                f"{path.name}: the spec cell must be PUZZLE = {{...}} and nothing else"
            )
    try:
        found: Json = ast.literal_eval(value)
    except ValueError as error:
        raise BuildError(f"{path.name}: PUZZLE must be a plain literal ({error})") from None
    return found


def _check_keys(
    path: Path, where: str, found: Json, needed: Json, optional: Json | None = None
) -> None:
    allowed = needed | (optional or {})
    for problem, keys in (
        ("lacks", needed.keys() - found.keys()),
        ("has unknown", found.keys() - allowed.keys()),
    ):
        if keys:
            raise BuildError(
                f"{path.name}: {where} {problem} {', '.join(sorted(map(repr, keys)))}"
            )
    for key, value in found.items():
        if not isinstance(value, allowed[key]):
            wanted = " or ".join(kind.__name__ for kind in allowed[key])
            raise BuildError(
                f"{path.name}: {where} has {key!r}: {value!r}, which is no {wanted}"
            )


# --- the whole -----------------------------------------------------------------------------------


def products(root: Path) -> dict[Path, str]:
    """Every file that the build makes, relative to the root, and its text."""
    paths = sources(root / "solutions")
    specs = {}
    for path in filter(is_puzzle, paths):
        found = spec(path)
        check_markers(path, read_cells(path), found["name"])
        specs[found["name"]] = found
    if len({found["number"] for found in specs.values()}) != len(specs):
        raise BuildError("two puzzles have the same number")
    made = {
        Path("puzzles", notebook_name(path)): as_text(notebook(path), indent=1)
        for path in paths
    }
    made |= {Path("lib", "specs.json"): as_text(specs, indent=2)}
    return made | {path: text for source in paths for path, text in _picture(source)}


def _picture(path: Path) -> Iterator[tuple[Path, str]]:
    """The picture that README.md shows: what one of the solutions does."""
    if path.stem == SHOWN:
        puzzle = spec(path)
        function = load(path.name, path.read_text(encoding="utf-8"))[0][puzzle["name"]]
        time, memory = puzzle["target"]["time"], puzzle["target"]["memory"]
        drawn = draw(run(function, **puzzle["size"]), time_target=time, memory_target=memory)
        yield Path("puzzles", f"{puzzle['name']}.svg"), drawn.svg() + "\n"


def as_text(data: Json, indent: int) -> str:
    """A notebook or a table as the text of its file."""
    return json.dumps(data, indent=indent, ensure_ascii=False) + "\n"


def differences(root: Path, made: dict[Path, str]) -> Iterator[str]:
    """One line for each file that is missing, differs, or comes from no source."""
    for path, text in made.items():
        if not (root / path).exists():
            yield f"missing: {path}"
        elif (root / path).read_text(encoding="utf-8") != text:
            yield f"differs: {path}"
    for extra in sorted((root / "puzzles").glob("*.ipynb")):
        if extra.relative_to(root) not in made:
            yield f"made from no source: {extra.relative_to(root)}"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Build or check; 0 when all is as it should be, 1 where something differs, 2 for a broken source."""
    parser = argparse.ArgumentParser(
        prog="python -m solutions.build", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a file differs"
    )
    check = parser.parse_args(arguments).check
    try:
        made = products(root)
    except BuildError as error:
        print(f"build: {error}", file=sys.stderr)
        return 2
    if not check:
        for path, text in made.items():
            write_whole(root / path, text)
    found = list(differences(root, made))
    for line in found:
        print(line, file=sys.stderr)
    if found and check:
        print("Change the sources in solutions/, then: make build", file=sys.stderr)
    if not found:
        print(f"{len(made)} files are as the sources in solutions/ make them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
