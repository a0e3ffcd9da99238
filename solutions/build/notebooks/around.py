"""What stands around the cells of a source: how long a puzzle takes, help below blanks and verdicts, links."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lib.course.specs import Puzzle, after, before

from ..sources.blanks import BEGIN as BEGIN_SOLUTION
from ..sources.files import REPAIRS, Cell, is_puzzle, notebook_name, read_cells, sources, title_of
from ..sources.overview import opened
from ..sources.specs import TAG, literal, specs_of
from .address import links, published

STUCK = """\
# Stuck? Remove a # and run this cell: for a hint (again for the next one), or for all calls on one page.
# hint("{name}")
# from drawing import reference; reference("{name}")"""
"""Below each verdict. A comment, since all cells of a notebook are often run at once: that is to spoil nothing, and to
use up no hint. (No tag keeps a cell from being run everywhere.)"""
BEGIN = """\
# Begin with your answer to puzzle {number}? Remove the # below and run this cell.
# from lib import start_from; start_from({names})"""
"""Below each blank that gives no lines: an earlier answer begins with others."""
START = "start"
"""The tag of such a cell, which a script leaves out."""
FAILS = "raises-exception"
"""The tag of a cell that may fail: those below it are run all the same, when all cells are run at once."""


def with_facts(path: Path) -> list[Cell]:
    """The cells; below the heading over each puzzle's spec, how long it takes and how hard it is. A cell that draws a
    learner's run may fail: the verdict below it is to be seen all the same."""
    cells = read_cells(path)
    for at, cell in enumerate(cells):
        if (
            cell.kind == "code"
            and re.search(r"^(draw|play)\(\s*run\(", cell.source, re.MULTILINE)
            and FAILS not in cell.tags
        ):
            cells[at] = cell._replace(tags=(*cell.tags, FAILS))
        if TAG in cell.tags:
            found = literal(path, cell.source)
            heading = max(i for i in range(at) if cells[i].kind == "markdown" and cells[i].source[0] == "#")
            facts = f"*{found['difficulty'].capitalize()}, about {found['minutes']} minutes.*"
            cells[heading] = _below_title(cells[heading], facts)
    return cells


def _below_title(cell: Cell, line: str) -> Cell:
    title, _, text = cell.source.partition("\n")
    return cell._replace(source=f"{title}\n\n{line}\n{text}")


def with_help(path: Path, cells: Sequence[Cell]) -> Iterator[Cell]:
    """The cells; below each blank that gives no lines one for an earlier answer, below each verdict one for a hint."""
    puzzles = [Puzzle(**spec) for spec in specs_of(path)] if is_puzzle(path) else []
    for cell in cells:
        yield cell
        for puzzle in puzzles:
            head = rf'def {puzzle.name}\(.*\n( +""".*?"""\n)?\s*{BEGIN_SOLUTION}'
            if re.search(head, cell.source) and (old := before(puzzle)) is not None:
                following = after(old)
                names = [old.name] if following and following.name == puzzle.name else [old.name, puzzle.name]
                written = ", ".join(f'"{name}"' for name in names)
                yield Cell("code", BEGIN.format(number=old.number, names=written), (START,))
            if re.search(rf"^grade\({puzzle.name}\)$", cell.source, re.MULTILINE):
                yield Cell("code", STUCK.format(name=puzzle.name))


def with_links(path: Path, cells: Sequence[Cell]) -> list[Cell]:
    """The cells, links below the first title, where the project has an address."""
    line = links(published(path.parent.parent), notebook_name(path))
    if not line or cells[0].kind != "markdown":
        return [*cells]
    return [_below_title(cells[0], line), *cells[1:]]


def onward(path: Path) -> str:
    """Links to the next notebook and to the overview."""
    order = sources(path.parent)
    following = order[order.index(path) + 1 : order.index(path) + 2]
    found = [f"[Next: {title_of(one)}]({notebook_name(one)})" for one in following]
    numbers = [number for number, after in opened(path.parent) if path.stem.startswith(f"p{after:02}_")]
    if numbers:
        repairs = notebook_name(path.with_stem(REPAIRS))
        found.append(f"[Also open: {' and '.join(numbers)}, to be repaired]({repairs})")
    if path.stem != "index":
        found.append("[Overview](index.ipynb)")
    return " · ".join(found)
