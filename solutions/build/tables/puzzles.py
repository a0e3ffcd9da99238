"""The rows of lib/specs.json: the figures of the puzzles, what their notebooks teach, and where they stand."""

import re
from collections.abc import Sequence
from pathlib import Path

from lib import Model
from lib.learner.tensors import Weight

from ..figures.pages import with_figures_in
from ..sources.files import FIGURES, Json, as_text, read_cells
from ..sources.overview import opened, sentences
from ..sources.specs import TAG


def table_of_puzzles(folder: Path, specs: Sequence[Json]) -> str:
    """The text of the table."""
    teaches, after, ideas = _taught(folder, specs), dict(opened(folder)), sentences(folder)
    rows: dict[str, Json] = {}
    for spec in specs:
        name, number = spec["name"], spec["number"]
        row = rows[name] = {**with_hints(folder, spec), "teaches": teaches[name]}
        if name in ideas:
            row["idea"] = ideas[name]
        if number in after:
            row["comes_after"] = after[number]
    return as_text(rows, indent=2)


def with_hints(folder: Path, spec: Json) -> Json:
    """A puzzle, with the figures of its hints."""
    path = folder / f"{spec['file']}.py"
    return {**spec, "hints": [with_figures_in(path, hint) for hint in spec["hints"]]}


def _taught(folder: Path, specs: Sequence[Json]) -> dict[str, list[str]]:
    """For each puzzle the methods of models and tensors that its notebook is the first to write."""
    left = [name for name in sorted({*dir(Model), *dir(Weight)}) if not name.startswith("_")]
    taught: dict[str, list[str]] = {}
    for spec in specs:
        # The tour is for those who have not begun: what it shows is for the first puzzle.
        pages = ["tour", spec["file"]] if spec is specs[0] else [spec["file"]]
        paths = [path for page in pages if (path := folder / f"{page}.py").exists()]
        cells = [cell for path in paths for cell in read_cells(path)]
        text = "".join(cell.source for cell in cells if not {"solution", TAG, FIGURES} & {*cell.tags})
        taught[spec["name"]] = [name for name in left if re.search(rf"\.{name}\b", text)]
        left = [name for name in left if name not in taught[spec["name"]]]
    return taught
