"""Which sources there are, in the order of the course, and their cells."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jupytext

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "solutions"
NAMES = {"index": "index", "tour": "machine_tour", "laboratory": "laboratory", "for_real": "for_real"}
"""Sources that are no puzzles, and names of their notebooks."""
FIGURES = "figures"
"""The tag of the last cell of a source, of which the figures in its texts are made."""
REPAIRS = "repairs"
"""The source with several puzzles, each a program with a mistake."""


class BuildError(Exception):
    """A source that no notebook can be made from. The message names the file."""


class Cell(NamedTuple):
    """One cell of a source: ``kind`` is ``code`` or ``markdown``. Of one that is ``folded``, Jupyter shows the first
    line."""

    kind: str
    source: str
    tags: tuple[str, ...] = ()
    folded: bool = False


def sources(folder: Path = FOLDER) -> list[Path]:
    """The source files of a folder in the order of the course: overview, tour, puzzles, repairs, laboratory, real
    processes."""
    first, last = (
        [path for name in names if (path := folder / f"{name}.py").exists()]
        for names in (("index", "tour"), (REPAIRS, "laboratory", "for_real"))
    )
    found = [*first, *sorted(folder.glob("p[0-9][0-9]_*.py")), *last]
    if not found:
        raise BuildError(f"no tour.py and no p00_*.py in {folder}: nothing to build from")
    return found


def source_of(name: str) -> Path:
    """The file of a source of this project."""
    return FOLDER / f"{name}.py"


def is_puzzle(path: Path) -> bool:
    """Whether the source has puzzles."""
    return path.stem not in NAMES


def notebook_name(path: Path) -> str:
    """File name of a source's notebook."""
    return NAMES.get(path.stem, path.stem) + ".ipynb"


def read_cells(path: Path) -> list[Cell]:
    """The cells of a source, in its order."""
    return list(cells_of(path.read_text(encoding="utf-8")))


@cache  # a build looks at every source many times
def cells_of(text: str) -> tuple[Cell, ...]:
    """The cells in the text of a source."""
    notebook = jupytext.reads(text, fmt="py:percent")
    return tuple(Cell(c.cell_type, c.source, tuple(c.metadata.get("tags", ()))) for c in notebook.cells)


def tagged(cells: Sequence[Cell], tag: str) -> list[str]:
    """What is written in the cells with this tag."""
    return [cell.source for cell in cells if tag in cell.tags]


def title_of(path: Path) -> str:
    """The first heading of a source."""
    return read_cells(path)[0].source.partition("\n")[0].lstrip("# ")


def as_text(data: Json, indent: int) -> str:
    """A notebook or a table as the text of its file."""
    return json.dumps(data, indent=indent, ensure_ascii=False) + "\n"
