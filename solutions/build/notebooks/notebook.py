"""The notebook of a source, blank or solved."""

from collections.abc import Sequence
from pathlib import Path

from drawing import draw_course

from ..figures.pages import with_figures
from ..pictures.in_texts import with_pictures
from ..sources.blanks import blank_cell
from ..sources.files import Cell, Json
from .around import FAILS, START, onward, with_facts, with_help, with_links

FIRST_CELL = "import llm_training_puzzles  # Not found? Here: %pip install llm-training-puzzles. In a clone: make lab"
"""Lets Python find lib and drawing. The comment is shown where it fails, with the line."""
PASSES = "## When it passes"
"""The heading below which stands what a learner reads after a pass: Jupyter and Colab show it folded."""
MAP = "map"
"""The tag of a cell of the overview that shows the map of the course, and has it before it is run, too."""
KEPT = (FAILS, START)
"""Tags that are kept in notebooks."""


def notebook_of(path: Path, solved: bool = False, first: str = "") -> Json:
    """The notebook of a source, blank or solved, without outputs but the map, and with ids that never change.

    ``first``: its first code cell, in place of the one that finds the project around the notebook.
    """
    cells = with_figures(path, with_facts(path))
    if not first:
        cells = with_links(path, cells)
    cells = [
        cell._replace(source=with_pictures(path, cell.source)) if cell.kind == "markdown" else cell for cell in cells
    ]
    if not solved:
        cells = [blank_cell(path, cell) for cell in with_help(path, cells) if "solution" not in cell.tags]
    first_code = next((i for i, cell in enumerate(cells) if cell.kind == "code"), len(cells))
    if not first:
        cells.append(Cell("markdown", onward(path)))
    cells.insert(first_code, Cell("code", first or FIRST_CELL, folded=bool(first)))
    return of_cells(cells, path.stem)


def of_cells(cells: Sequence[Cell], name: str) -> Json:
    """A notebook with these cells, with ids made of a name."""
    made = [_as_json(cell, f"{name}-{i:02}") for i, cell in enumerate(cells)]
    folded = [cell["id"] for cell in made if "heading_collapsed" in cell["metadata"]]
    return {
        "cells": made,
        "metadata": {
            **({"colab": {"collapsed_sections": folded}} if folded else {}),
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _as_json(cell: Cell, id: str) -> Json:
    code: Json = {"execution_count": None, "outputs": []} if cell.kind == "code" else {}
    if MAP in cell.tags:  # images in links, which need no kernel; with one comes progress
        shown = {"text/html": draw_course(static=True, folder="")._repr_html_()}
        code["outputs"] = [{"output_type": "display_data", "data": shown, "metadata": {}}]
    source = cell.source.splitlines(keepends=True)
    tags = [tag for tag in cell.tags if tag in KEPT]
    metadata: Json = {"tags": tags} if tags else {}
    if cell.folded or MAP in cell.tags:
        metadata["jupyter"] = {"source_hidden": True}
    if cell.kind == "markdown" and cell.source.startswith(PASSES):
        metadata |= {"heading_collapsed": True, "id": id}  # JupyterLab reads the first, Colab the second
    return {"cell_type": cell.kind, "id": id, "metadata": metadata, **code, "source": source}
