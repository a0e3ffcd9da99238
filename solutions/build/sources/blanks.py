"""A cell without its solution, or with the mistake that is to be found."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from .files import BuildError, Cell, Json

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
BLOCK = re.compile(rf"^([ \t]*){BEGIN}\n.*?(?:^[ \t]*### BROKEN\n(.*?))?^[ \t]*{END}$", re.MULTILINE | re.DOTALL)
PLACEHOLDER = "# Your code here."


def blanked(source: str) -> str:
    """A cell's code with its solution taken out, or with the mistake in its place."""

    def instead(block: re.Match[str]) -> str:
        indent, broken = block.groups()
        if broken is None:
            return indent + PLACEHOLDER
        return re.sub(rf"^({indent})# ?", r"\1", broken, flags=re.MULTILINE).rstrip("\n")

    return BLOCK.sub(instead, source)


def blank_cell(path: Path, cell: Cell) -> Cell:
    """The cell as a learner gets it; code must still be code after the cut."""
    if cell.kind != "code":
        return cell
    source = blanked(cell.source)
    if BEGIN in source or END in source:
        raise BuildError(f"{path.name}: each BEGIN SOLUTION needs its END SOLUTION, alone on a line:\n{source}")
    try:
        ast.parse(source)
    except SyntaxError as error:
        raise BuildError(f"{path.name}: no valid Python without the solution ({error}):\n{source}") from None
    return cell._replace(source=source)


def check_markers(path: Path, cells: Sequence[Cell], puzzles: Sequence[Json]) -> None:
    """Each puzzle has one cell with its solution, in the function that it is named for."""
    marked = [cell.source for cell in cells if cell.kind == "code" and BLOCK.search(cell.source)]
    if len(marked) != len(puzzles):
        raise BuildError(
            f"{path.name}: one cell with a solution block is needed for each puzzle, "
            f"{len(marked)} cells have one for {len(puzzles)}"
        )
    for source, puzzle in zip(marked, puzzles, strict=True):
        name, functions = puzzle["name"], (ast.FunctionDef, ast.AsyncFunctionDef)
        if not any(isinstance(node, functions) and node.name == name for node in ast.parse(source).body):
            raise BuildError(f"{path.name}: the cell with the solution block must define {name}()")
        broken = [found[2] is not None for found in BLOCK.finditer(source)]
        if len(broken) > 1 and not all(broken):
            raise BuildError(f"{path.name}: exactly one solution block is needed in {name}()")
