"""Make the blank notebooks and the table of puzzles from their one source, the files beside this one.

    python -m solutions.build            write puzzles/*.ipynb, the gallery, the tables in lib and in README.md
    python -m solutions.build --check    write nothing, fail where they differ from what would be written

A source is a Python file in jupytext's percent format. A cell tagged ``spec`` holds the literal
figures of the puzzle that follows, which go to lib/specs.json; a cell tagged ``solution`` and everything
between ``### BEGIN SOLUTION`` and ``### END SOLUTION`` is left out of the blank notebook. A cell tagged
``figures``, the last, names the runs and numbers of which the figures in the texts are made (see
``figures.py``). Where a program is to be repaired, ``### BROKEN`` stands between the two, and below it, as comments, what the
blank has instead.

Nothing is written before everything is made: a build that fails leaves all files as they were.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import jupytext
from drawing import draw, draw_course, draw_primitive
from drawing.verdict import show_verdict
from lib import Model, PuzzleError, Run, run
from lib.basics.saving import write_all
from lib.course.ideas import IDEAS as KNOWN_IDEAS
from lib.course.layouts import LAYOUTS, WITH_ADAPTERS
from lib.course.sizes import SIZES
from lib.course.specs import COSTS, Puzzle, after, before, cost_named, forget, texts
from lib.grading.judge import judge
from lib.grading.notebook import ShownVerdict
from lib.grading.progress import FOLDER, Progress
from lib.learner.tensors import Weight
from lib.real import A100_MEGATRON, GPT_175B, H100_DGX
from lib.real.hardware import FITS
from lib.record.figures.chain import chain_of
from lib.record.table import OPERATIONS, grantable
from tools import foundry
from tools.published import MEGATRON

from . import figures, gallery, pipelines, priced
from .address import address, fill, links
from .outlined import as_kept, outline_of
from .profiled import of_profile, profile_of, profile_pictures
from .readme import with_figures as with_figures_of_docs
from .readme import with_puzzles
from .schedules import draw_strip

ROOT = Path(__file__).resolve().parent.parent
FIRST_CELL = Path(__file__).with_name("first_cell.py")
BLOCK = re.compile(
    r"^([ \t]*)### BEGIN SOLUTION\n.*?(?:^[ \t]*### BROKEN\n(.*?))?^[ \t]*### END SOLUTION$",
    re.MULTILINE | re.DOTALL,
)
SHOWN = "p06_gpipe"
"""The source whose picture docs/pictures.md shows."""
PLACEHOLDER = "# Your code here."
PICTURE = re.compile(r"!\[[^\]]*\]\(picture:(\w+)\)")
NAMES = {
    "index": "index",
    "tour": "machine_tour",
    "laboratory": "laboratory",
    "for_real": "for_real",
}
"""Sources that are no puzzles, and names of their notebooks."""
IDEAS, MAP = "ideas", "map"
"""Tags of cells of the overview: the first has a sentence for each puzzle, which the map, README and the gallery say, and
is in no notebook; the second shows the map, and has it before it is run, too."""
KEPT = ("raises-exception", "start")
"""Tags that are kept in notebooks: with the first, cells below one that fails are run all the same; the second is of
cells that a script leaves out."""
REPAIRS = "repairs"
"""The source with several puzzles, each a program with a mistake."""

FIGURES = {"time": (int, float), "memory": (int,)}
SIZE = {"ranks": (int,), "layers": (int,), "batches": (int,)}
SPEC = {
    "number": (int, str),
    "name": (str,),
    "title": (str,),
    "size": (dict,),
    "other_sizes": (str,),
    "target": (dict,),
    "frontier": (list,),
    "layout": (str,),
    "ideas": (list,),
    "difficulty": (str,),
    "minutes": (int,),
    "hints": (list,),
}
"""The keys of a spec cell, all required, and their types."""
OPTIONAL = {
    "cost": (str,),
    "star": (dict,),
    "hints_for": (dict,),
    "star_hint": (str,),
    "begins_with": (str,),
    "words": (list,),
}
"""Keys that a spec cell may have: without ``cost``, the machine's is the default one; a repair has no ``star``;
``hints_for`` says with which hint (from 1) to begin for a program that is right but slow, or large; ``star_hint`` is
a question for whoever has passed without the star, of each puzzle whose star is more than its target; ``begins_with``
names the puzzle whose answer is a good beginning, where that is not the one before; ``words`` are the operations and
options that it grants besides those that every puzzle has."""
OVER = {"slow": (int,), "large": (int,)}
DIFFICULTIES = ("easy", "medium", "hard")


WORDS = {
    "layout": (*LAYOUTS, *WITH_ADAPTERS),
    "other_sizes": tuple(SIZES),
    "ideas": tuple(KNOWN_IDEAS),
    "cost": tuple(COSTS),
    "words": grantable(),
    "difficulty": DIFFICULTIES,
}
"""Keys whose values are words, or lists of words, and the words that are known."""
HINTS = 3
"""So many are given for each puzzle, a program to be repaired among them."""

STUCK = """\
# Stuck? Remove the # below and run this cell, once for each hint.
# hint("{name}")"""
"""Below each verdict. A comment, since all cells of a notebook are often run at once: that is to spoil nothing, and to
use up no hint. (No tag keeps a cell from being run everywhere.)"""
BEGIN = """\
# Begin with your answer to puzzle {number}? Remove the # below and run this cell.
# lib.start_from({names})"""
"""Below each blank. With ``lib.``, since the first cell imports that in every notebook."""

Json = dict[str, Any]
T = TypeVar("T")


class BuildError(Exception):
    """A source that no notebook can be made from. The message names the file."""


class Cell(NamedTuple):
    """One cell of a source: ``kind`` is ``code`` or ``markdown``. Of one that is ``folded``, Jupyter shows the first line."""

    kind: str
    source: str
    tags: tuple[str, ...] = ()
    folded: bool = False


# --- reading the sources -------------------------------------------------------------------------


def sources(folder: Path) -> list[Path]:
    """The source files of a folder in the order of the course: overview, tour, puzzles, repairs, laboratory, real processes."""
    first, last = ("index", "tour"), (REPAIRS, "laboratory", "for_real")
    named = [
        [path for name in names if (path := folder / f"{name}.py").exists()]
        for names in (first, last)
    ]
    found = [*named[0], *sorted(folder.glob("p[0-9][0-9]_*.py")), *named[1]]
    if not found:
        raise BuildError(f"no tour.py and no p00_*.py in {folder}: nothing to build from")
    return found


def source(name: str) -> Path:
    """The file of a source of this project."""
    return ROOT / "solutions" / f"{name}.py"


def read_cells(path: Path) -> list[Cell]:
    """The cells of a source, in its order."""
    return list(_parsed(path.read_text(encoding="utf-8")))


@cache  # a build looks at every source many times
def _parsed(text: str) -> tuple[Cell, ...]:
    notebook = jupytext.reads(text, fmt="py:percent")
    return tuple(
        Cell(c.cell_type, c.source, tuple(c.metadata.get("tags", ()))) for c in notebook.cells
    )


def is_puzzle(path: Path) -> bool:
    """Whether the source has puzzles."""
    return path.stem not in NAMES


# --- blanks --------------------------------------------------------------------------------------


def blank(source: str) -> str:
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


def check_markers(path: Path, cells: Sequence[Cell], puzzles: Sequence[Json]) -> None:
    """Each puzzle has one cell with its solution, in the function that it is named for."""
    marked = [
        cell.source for cell in cells if cell.kind == "code" and BLOCK.search(cell.source)
    ]
    if len(marked) != len(puzzles):
        raise BuildError(
            f"{path.name}: one cell with a solution block is needed for each puzzle, "
            f"{len(marked)} cells have one for {len(puzzles)}"
        )
    for source, puzzle in zip(marked, puzzles, strict=True):
        name, functions = puzzle["name"], (ast.FunctionDef, ast.AsyncFunctionDef)
        body = ast.parse(source).body
        if not any(isinstance(node, functions) and node.name == name for node in body):
            raise BuildError(
                f"{path.name}: the cell with the solution block must define {name}()"
            )
        broken = [found[2] is not None for found in BLOCK.finditer(source)]
        if len(broken) > 1 and not all(broken):
            raise BuildError(f"{path.name}: exactly one solution block is needed in {name}()")


# --- notebooks -----------------------------------------------------------------------------------


def notebook(path: Path, solved: bool = False, first: str = "") -> Json:
    """The notebook of a source, blank or solved, without outputs but the map, and with ids that never change.

    ``first``: its first code cell, in place of the one that finds the project around the notebook.
    """
    cells = with_figures(path, _with_facts(path))
    if not first:
        cells = _with_links(path, cells)
    cells = [
        cell._replace(source=with_pictures(path, cell.source))
        if cell.kind == "markdown"
        else cell
        for cell in cells
    ]
    if not solved:
        cells = [
            blank_cell(path, cell)
            for cell in _with_help(path, cells)
            if "solution" not in cell.tags
        ]
    first_code = next((i for i, cell in enumerate(cells) if cell.kind == "code"), len(cells))
    if not first:
        cells.append(Cell("markdown", onward(path)))
    finds = first or FIRST_CELL.read_text(encoding="utf-8").strip()
    cells.insert(first_code, Cell("code", finds, folded=True))
    return of_cells(cells, path.stem)


def of_cells(cells: Sequence[Cell], name: str) -> Json:
    """A notebook with these cells, with ids made of a name."""
    return {
        "cells": [_as_json(cell, f"{name}-{i:02}") for i, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def with_figures(path: Path, cells: Sequence[Cell]) -> list[Cell]:
    """The cells that are shown, with the figures of their texts."""
    text = " ".join(" ".join(cell.source for cell in cells if cell.kind == "markdown").split())
    for cited in sorted(figures.sources_of(names_of(path))):
        if cited not in text:
            raise BuildError(f"{path.name}: a figure is from {cited}, which no text names")
    kept = [cell for cell in cells if not {"spec", IDEAS, figures.TAG} & {*cell.tags}]
    return [
        cell._replace(source=_filled(path, cell.source)) if cell.kind == "markdown" else cell
        for cell in kept
    ]


def _filled(path: Path, text: str) -> str:
    """A text of a source, with its figures."""
    if "{{" not in text:
        return text
    try:
        return figures.filled(text, names_of(path))
    except figures.FigureError as error:
        raise BuildError(f"{path.name}: {error}") from None


def names_of(path: Path) -> dict[str, Any]:
    """What the figures of a source are made of. Raise BuildError where that fails."""
    cells = read_cells(path)
    given = "\n".join(cell.source for cell in cells if figures.TAG in cell.tags)
    literals = [cell.source.partition("=")[2].strip() for cell in cells if "spec" in cell.tags]
    done = _priced_run(path) if any(priced.TAG in cell.tags for cell in cells) else None
    try:
        return figures.names_of(
            path.name, path.read_text(encoding="utf-8"), given, tuple(literals), done
        )
    except figures.FigureError as error:
        raise BuildError(f"{path.name}: {error}") from None


def check_figures(path: Path, cells: Sequence[Cell]) -> None:
    """Each figure in a text is one that the build computes."""
    found = [_literal(path, cell.source) for cell in cells if "spec" in cell.tags]
    size = {str(i): puzzle["size"] for i, puzzle in enumerate(found)}
    sizes = {f"{i} {key}": value for i, one in size.items() for key, value in one.items()}
    texts = [cell.source for cell in cells if cell.kind == "markdown"]
    texts += [
        hint for puzzle in found for hint in [*puzzle["hints"], puzzle.get("star_hint", "")]
    ]
    by_hand = [words for text in texts for words in figures.by_hand(text, sizes)]
    for puzzle in found:
        cost = cost_named(puzzle.get("cost", "default"))
        for prices in (said for text in texts for said in figures.other_prices(text, cost)):
            raise BuildError(f"{path.name}: {prices} is not what {puzzle['name']} costs")
    if by_hand:
        raise BuildError(
            f"{path.name}: these figures are not computed; name what they come from in the cell "
            f'tagged "{figures.TAG}", and write {{{{name}}}}:\n  ' + "\n  ".join(by_hand)
        )


def _with_help(path: Path, cells: Sequence[Cell]) -> Iterator[Cell]:
    """The cells; below each blank one that fetches an earlier answer, below each verdict one for the next hint."""
    found = specs(path) if is_puzzle(path) else []
    for cell in cells:
        yield cell
        for puzzle in found:
            name = puzzle["name"]
            blank_of = "### BEGIN SOLUTION" in cell.source and f"def {name}(" in cell.source
            if blank_of and (old := before(Puzzle(**puzzle))) is not None:
                into = after(old)
                names = (
                    f'"{old.name}"' if into and into.name == name else f'"{old.name}", "{name}"'
                )
                begin = BEGIN.format(number=old.number, names=names)
                yield Cell("code", begin, ("start",))
            if re.search(rf"^grade\({name}\)$", cell.source, re.MULTILINE):
                yield Cell("code", STUCK.format(name=name))


def _with_facts(path: Path) -> list[Cell]:
    """The cells; below the heading over each puzzle's spec, how long it takes and how hard it is."""
    cells = read_cells(path)
    for at, cell in enumerate(cells):
        if "spec" in cell.tags:
            found = _literal(path, cell.source)
            heading = max(
                i
                for i in range(at)
                if cells[i].kind == "markdown" and cells[i].source[0] == "#"
            )
            title, _, text = cells[heading].source.partition("\n")
            facts = f"*{found['difficulty'].capitalize()}, about {found['minutes']} minutes.*"
            cells[heading] = cells[heading]._replace(source=f"{title}\n\n{facts}\n{text}")
    return cells


def onward(path: Path) -> str:
    """Links to the next notebook and to the overview."""
    order = sources(path.parent)
    following = order[order.index(path) + 1 : order.index(path) + 2]
    found = [f"[Next: {_title(one)}]({notebook_name(one)})" for one in following]
    opened = [
        number
        for number, after in _opened(path.parent)
        if path.stem.startswith(f"p{after:02}_")
    ]
    if opened:
        repairs = notebook_name(path.with_stem(REPAIRS))
        found.append(f"[Also open: {' and '.join(opened)}, to be repaired]({repairs})")
    return " · ".join([*found, *(["[Overview](index.ipynb)"] if path.stem != "index" else [])])


def _opened(folder: Path) -> Iterator[tuple[str, int]]:
    """Each program to be repaired, and the puzzle that it is to be taken after, as its text says."""
    path = folder / f"{REPAIRS}.py"
    for cell in read_cells(path) if path.exists() else ():
        if found := re.match(
            r"## (R\d+)\..*?\*Take it after puzzle (\d+)", cell.source, re.DOTALL
        ):
            yield found[1], int(found[2])


def _title(path: Path) -> str:
    """The first heading of a source."""
    return read_cells(path)[0].source.partition("\n")[0].lstrip("# ")


def _with_links(path: Path, cells: list[Cell]) -> list[Cell]:
    """The cells, links below the first title, where the project has an address."""
    line = links(published(path.parent.parent), notebook_name(path))
    if not line or cells[0].kind != "markdown":
        return cells
    title, _, text = cells[0].source.partition("\n")
    return [cells[0]._replace(source=f"{title}\n\n{line}\n{text}"), *cells[1:]]


def published(root: Path) -> str:
    """Where the project is published, or nothing."""
    try:
        return address(root)
    except FileNotFoundError:
        return ""
    except ValueError as error:
        raise BuildError(str(error)) from None


def check_pictures(path: Path, cells: Sequence[Cell]) -> None:
    """Each picture in a text is one that can be drawn."""
    source = "\n".join(cell.source for cell in cells if cell.kind == "code")
    tagged = sum(priced.TAG in cell.tags for cell in cells)
    named = {
        name
        for cell in cells
        if cell.kind == "markdown"
        for name in PICTURE.findall(cell.source)
    }
    if priced.NAME in named and tagged != 1:
        raise BuildError(
            f'{path.name}: exactly one cell with tags=["{priced.TAG}"] is needed, {tagged} found'
        )
    for name in named - {"hero", priced.NAME, *OPERATIONS}:
        if f"def {name}(" not in source:
            raise BuildError(f"{path.name}: it defines no {name}(), which is to draw a picture")


def with_pictures(path: Path, source: str) -> str:
    """A text cell in which ``![...](picture:allgather)`` is the picture; ``hero`` is what the gallery begins with, as
    a strip; ``priced`` is what a step takes on real GPUs, as a line and a picture (see ``priced``).
    Another name is that of a function of the source that draws it, ``def name(static)``.

    As an image with its data, since that is what every host of notebooks shows: Jupyter, trusted or not,
    VS Code, Colab. (GitHub shows the words.)
    """

    def picture(found: re.Match[str]) -> str:
        name = found[1]
        if name == "hero":
            files = filter(is_puzzle, sources(path.parent))
            known = [one for file in files for one in specs(file)]
            return draw_strip(_compared(path.parent.parent, known))._repr_html_()
        if name == priced.NAME:
            return _priced(path)
        if name in OPERATIONS:
            return draw_primitive(name, static=True)._repr_html_()
        drawn, runs = _drawn(path.name, path.read_text(encoding="utf-8"), name)
        named = [id(one) for one in figures.runs_of(names_of(path))]
        for one in runs:
            if id(one) not in named:
                raise BuildError(
                    f"{path.name}: the picture {name} shows a run of {one.name} that has no name "
                    f'in the cell tagged "{figures.TAG}", so that texts cannot have its figures'
                )
        return drawn

    return PICTURE.sub(picture, source)


@cache  # a build asks for the blank notebook, the solved one and Colab's, and some draw for seconds
def _drawn(file: str, text: str, name: str) -> tuple[str, tuple[Run, ...]]:
    """What a function of a source draws, and the runs that it shows."""
    draws = figures.program(file, text)[name]
    figures.asked.clear()
    return str(draws(static=True)._repr_html_()), tuple(figures.asked)


def _priced(path: Path) -> str:
    """What the solution takes in the cell of the source that prices it."""
    return priced.shown(_priced_run(path))


def _priced_run(path: Path) -> Run:
    """The run of that cell."""
    [cell] = [cell.source for cell in read_cells(path) if priced.TAG in cell.tags]
    try:
        return priced.run_of(path.name, path.read_text(encoding="utf-8"), cell)
    except (ValueError, PuzzleError) as error:
        raise BuildError(f"{path.name}: {error}") from None


def notebook_name(path: Path) -> str:
    """File name of a source's notebook."""
    return NAMES.get(path.stem, path.stem) + ".ipynb"


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
    return {"cell_type": cell.kind, "id": id, "metadata": metadata, **code, "source": source}


# --- specs ---------------------------------------------------------------------------------------


def specs(path: Path) -> list[Json]:
    """The figures of a source's puzzles, from their spec cells, and where they are from."""
    cells = read_cells(path)
    found = [_spec(path, cell.source) for cell in cells if "spec" in cell.tags]
    if len(found) != 1 and path.stem != REPAIRS:
        raise BuildError(
            f'{path.name}: exactly one cell with tags=["spec"] is needed, {len(found)} found'
        )
    for puzzle in found:
        number = puzzle["number"]
        if path.stem == REPAIRS:
            if not re.fullmatch(r"R[1-9]\d*", str(number)):
                raise BuildError(
                    f'{path.name}: number {number!r}; programs to be repaired have "R1", "R2" and so on'
                )
        elif not isinstance(number, int) or path.stem != f"p{number:02}_{puzzle['name']}":
            raise BuildError(
                f"{path.name}: number {number} and name {puzzle['name']} need another file name"
            )
    check_markers(path, cells, found)
    return [{**puzzle, "file": path.stem} for puzzle in found]


def _spec(path: Path, source: str) -> Json:
    found = _literal(path, source)
    _check_keys(path, "PUZZLE", found, SPEC, OPTIONAL)
    _check_keys(
        path,
        'PUZZLE["size"]',
        found["size"],
        SIZE,
        {
            "mesh": (dict,),
            "node_size": (int,),
            "train": (str,),
            "hosts": (int,),
            "experts": (int,),
        },
    )
    for key in ("target", "star"):
        if key in found:
            _check_keys(path, f'PUZZLE["{key}"]', found[key], FIGURES)
    for point in found["frontier"]:
        _check_keys(path, 'PUZZLE["frontier"]', point, {**FIGURES, "by": (str,)})
    _check_keys(path, 'PUZZLE["hints_for"]', found.get("hints_for", {}), {}, OVER)
    check_order(path, found)
    for key, known in WORDS.items():
        words = found.get(key, [])
        for word in words if isinstance(words, list) else [words]:
            if word not in known:
                raise BuildError(
                    f'{path.name}: PUZZLE["{key}"] has {word!r}, not one of {", ".join(known)}'
                )
    hints = found["hints"]
    if len(hints) != HINTS or not all(isinstance(hint, str) and hint for hint in hints):
        raise BuildError(
            f'{path.name}: PUZZLE["hints"] has {len(hints)}; there are to be {HINTS}, each a text'
        )
    if not all(number in range(1, HINTS + 1) for number in found.get("hints_for", {}).values()):
        raise BuildError(
            f'{path.name}: PUZZLE["hints_for"] has a number that is none of 1 to {HINTS}'
        )
    if bool(found.get("star_hint")) != (found.get("star", found["target"]) != found["target"]):
        raise BuildError(
            f'{path.name}: PUZZLE has a "star_hint" exactly if its star is more than its target'
        )
    return found


def check_order(path: Path, found: Json) -> None:
    """The target is the loosest, then comes the star, which a point of the frontier reaches, then the frontier."""
    figures = [(point["time"], point["memory"]) for point in found["frontier"]]
    smaller = all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(figures))
    if not figures or not smaller:
        raise BuildError(
            f"{path.name}: the frontier goes from fast to small, each point smaller"
        )
    target: Json = found["target"]
    star: Json = found.get("star", target)
    if any(time > target["time"] or memory > target["memory"] for time, memory in figures):
        raise BuildError(f"{path.name}: a point of the frontier is over the target")
    if any(star[key] > target[key] for key in FIGURES):
        raise BuildError(f"{path.name}: the star is over the target")
    if not any(time <= star["time"] and memory <= star["memory"] for time, memory in figures):
        raise BuildError(f"{path.name}: no point of the frontier reaches the star")


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
    """Every file that the build makes, relative to the root, and its text. The pictures in the notebooks
    are drawn from the tables that are made here, not from those in lib."""
    found = checked(root)
    made = tables(root, found)
    use_tables({path.name: text for path, text in made.items()})
    try:
        return made | shown_with_tables(root, found)
    finally:
        use_tables({})


def shown_with_tables(root: Path, found: Sequence[Json]) -> dict[Path, str]:
    """Every file but the tables of lib, whose figures these show: notebooks, pictures, the gallery and documents."""
    notebooks = {
        Path("puzzles", notebook_name(path)): as_text(notebook(path), indent=1)
        for path in sources(root / "solutions")
    }
    figures_of = {Path("lib", "figures.json"): as_text(_of_solutions(root), indent=1)}
    return figures_of | notebooks | dict(_front(root, found))


def _of_solutions(root: Path) -> dict[str, dict[str, str]]:
    """The figures in the texts that explain a solution, by file and by what is written there: ``lib.solution`` reads
    these texts from the sources."""
    found: dict[str, dict[str, str]] = {}
    for path in filter(is_puzzle, sources(root / "solutions")):
        cells = [
            one for one in read_cells(path) if one.kind == "markdown" and "solution" in one.tags
        ]
        places = [
            " ".join(one.split())
            for cell in cells
            for one in figures.PLACE.findall(cell.source)
        ]
        if places:
            names = names_of(path)
            found[path.stem] = {one: figures.shown(one, names) for one in dict.fromkeys(places)}
    return found


def use_tables(instead: dict[str, str]) -> None:
    """Let all of lib read these tables, by the names of their files, instead of its own."""
    texts.clear()
    texts.update(instead)
    forget()


def checked(root: Path) -> list[Json]:
    """The figures of all puzzles, once all has been looked at that needs no run: the quick part comes first."""
    paths = sources(root / "solutions")
    for path in paths:
        cells = read_cells(path)
        for cell in cells:
            blank_cell(path, cell)
        check_pictures(path, cells)
    found = [puzzle for path in filter(is_puzzle, paths) for puzzle in specs(path)]
    for path in paths:
        check_figures(path, read_cells(path))
    for key in ("number", "name"):
        files: dict[object, str] = {}
        for puzzle in found:
            if puzzle[key] in files:
                raise BuildError(
                    f"{puzzle['file']}.py: two puzzles have the same {key}, "
                    f"{puzzle[key]!r}: the other is in {files[puzzle[key]]}.py"
                )
            files[puzzle[key]] = puzzle["file"]
    if (root / "solutions" / "index.py").exists():
        known = gallery.sentences(root / "solutions")
        missing = sorted(puzzle["name"] for puzzle in found if puzzle["name"] not in known)
        if missing:
            raise BuildError(f"index.py: a line with a link is needed for {', '.join(missing)}")
    return found


def tables(root: Path, found: Sequence[Json]) -> dict[Path, str]:
    """The table of the puzzles, and what of their solutions may be shown."""
    for puzzle in _changed_first(root, found):
        for point in puzzle["frontier"]:
            _prove(root, puzzle, point, found)
    kept = {puzzle["name"]: outline_row(root, puzzle, found) for puzzle in found}
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(one, separators=(',', ':'))}"
        for name, one in kept.items()
    )
    return {
        Path("lib", "specs.json"): table_of_puzzles(root, found),
        Path("lib", "outlines.json"): f"{{\n{lines}\n}}\n",
    }


def table_of_puzzles(root: Path, found: Sequence[Json]) -> str:
    """The table of the puzzles: their figures, what their notebooks teach, and where they stand in the course."""
    teaches, opened = _taught(root, found), dict(_opened(root / "solutions"))
    overview = (root / "solutions" / "index.py").exists()
    ideas = gallery.sentences(root / "solutions") if overview else {}
    rows = {
        puzzle["name"]: {
            **_with_hints(root, puzzle),
            "teaches": teaches[puzzle["name"]],
            **({"idea": ideas[puzzle["name"]]} if puzzle["name"] in ideas else {}),
            **(
                {"comes_after": opened[number]}
                if (number := puzzle["number"]) in opened
                else {}
            ),
        }
        for puzzle in found
    }
    return as_text(rows, indent=2)


def outline_row(root: Path, puzzle: Json, others: Sequence[Json]) -> Json:
    """What of a puzzle's solution, and of the program with its star, may be shown, and what it takes at other sizes."""
    played = _played(root, puzzle)
    return {
        "at_home": [played.time, math.ceil(played.memory)],
        **as_kept(played.events, played.time),
        "target": _outlined(played),
        **_of_the_star(root, puzzle, others),
    }


def _taught(root: Path, found: Sequence[Json]) -> dict[str, list[str]]:
    """For each puzzle the methods of models and tensors that its notebook is the first to write."""
    left = [name for name in sorted({*dir(Model), *dir(Weight)}) if not name.startswith("_")]
    taught: dict[str, list[str]] = {}
    for puzzle in found:
        # The tour is for those who have not begun: what it shows is for the first puzzle.
        pages = ["tour", puzzle["file"]] if puzzle is found[0] else [puzzle["file"]]
        paths = [path for page in pages if (path := root / "solutions" / f"{page}.py").exists()]
        cells = [cell for path in paths for cell in _with_facts(path)]
        shown_cells = [
            cell for cell in cells if not {"solution", "spec", figures.TAG} & {*cell.tags}
        ]
        text = "".join(cell.source for cell in shown_cells)
        shown = [name for name in left if re.search(rf"\.{name}\b", text)]
        taught[puzzle["name"]] = shown
        left = [name for name in left if name not in shown]
    return taught


def _with_hints(root: Path, puzzle: Json) -> Json:
    """A puzzle, with the figures of its hints."""
    path = root / "solutions" / f"{puzzle['file']}.py"
    return {**puzzle, "hints": [_filled(path, hint) for hint in puzzle["hints"]]}


def _changed_first(root: Path, found: Sequence[Json]) -> list[Json]:
    """The puzzles, those before the others that are new or have changed: there the mistakes are."""
    path = root / "lib" / "specs.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return sorted(
        found,
        key=lambda puzzle: bool(
            old.get(puzzle["name"]) == {**old.get(puzzle["name"], {}), **puzzle}
        ),
    )


def _outlined(played: Run) -> Json:
    """What is shown of the program that reaches a goal."""
    return {"outline": outline_of(played.events, played.time, played.beside)}


def _of_the_star(root: Path, puzzle: Json, others: Sequence[Json]) -> Json:
    """The same of the program with the star that has least time to spare: a far faster one has another idea than that
    of which the star's hint asks."""
    if "star" not in puzzle:
        return {}
    runs = [played for _, played in _with_star(root, puzzle, others)]
    return {"star": _outlined(max(runs, key=lambda one: (one.time, -one.memory)))}


def _with_star(
    root: Path, puzzle: Json, others: Sequence[Json]
) -> Iterator[tuple[Callable[[Model], Any], Run]]:
    """The programs of the frontier that earn the star, from fast to slow."""
    spec = Puzzle(**puzzle)
    for point in puzzle["frontier"]:
        program = program_of(root, puzzle, point["by"], others)
        with suppress(BuildError):
            played = run_of(program, puzzle)
            if spec.has_star(*spec.scored(played.time, played.memory)):
                yield program, played


def _compared(root: Path, found: Sequence[Json]) -> list[tuple[str, Run]]:
    """The runs that the hero compares, and what each is called there; none where one of the puzzles is missing."""
    known = {puzzle["name"]: puzzle for puzzle in found}
    if not known.keys() >= {*gallery.HERO}:
        return []
    done = [_played(root, known[name]) for name in gallery.HERO]
    last = known[gallery.HERO[-1]]
    if (starred := next(_with_star(root, last, found), None)) is None:
        raise BuildError(
            f"{last['file']}.py: the gallery shows its star, which no program earns"
        )
    return [*zip(gallery.HERO_TITLES, [*done, starred[1]], strict=True)]


def _told(root: Path, puzzle: Json, spec: Puzzle) -> str:
    """What a notebook shows of the verdict on a puzzle's solution, as HTML; no progress but this is looked at."""
    solution, cost = solution_of(root, puzzle), cost_named(spec.cost)
    verdict = judge(spec, lambda size: run(solution, **size, cost=cost))
    with TemporaryDirectory() as folder, patch.dict(os.environ, {FOLDER: folder}):
        Progress().record(verdict)
        return show_verdict(ShownVerdict(verdict, _played(root, puzzle)))


def _prove(root: Path, puzzle: Json, point: Json, others: Sequence[Json]) -> None:
    """A point of the frontier is what a program takes, in the puzzle's own source or in another's."""
    name, by = puzzle["name"], point["by"]
    program = program_of(root, puzzle, by, others)
    played, cost = run_of(program, puzzle), cost_named(puzzle.get("cost", "default"))
    took = (
        cost.time_unit.scored(played.time),
        math.ceil(cost.size_unit.scored(played.memory)),
    )
    if took != (point["time"], point["memory"]):
        raise BuildError(
            f"{puzzle['file']}.py: {by} takes {took[0]:g} {cost.time_unit.name} and {took[1]:,} "
            f"{cost.size_unit.name} in {name}, "
            f"the frontier says {point['time']:g} and {point['memory']:,}"
        )


def program_of(
    root: Path, puzzle: Json, by: str, others: Sequence[Json]
) -> Callable[[Model], Any]:
    """The program of that name, in the puzzle's own source or in another's."""
    files = dict.fromkeys([puzzle["file"], *(other["file"] for other in others)])
    program = next(filter(None, (_names(root, file).get(by) for file in files)), None)
    if program is None:
        raise BuildError(
            f"{puzzle['file']}.py: the frontier of {puzzle['name']} names {by}, which no source has"
        )
    return program  # type: ignore[no-any-return]


def _played(root: Path, puzzle: Json) -> Run:
    """Return a run of a puzzle's solution at its own size, on its own machine."""
    return run_of(solution_of(root, puzzle), puzzle)


def run_of(function: Callable[[Model], Any], puzzle: Json) -> Run:
    """Return a run of a program at a puzzle's own size, on its own machine."""
    return found_by(figures.once, function, puzzle)


def found_by(runs: Callable[..., T], function: Callable[[Model], Any], puzzle: Json) -> T:
    """Return what ``runs`` finds out of a program at a puzzle's own size, on its own machine."""
    cost = cost_named(puzzle.get("cost", "default"))
    try:
        return runs(function, **puzzle["size"], cost=cost)
    except PuzzleError as error:
        size = ", ".join(f"{name}={value}" for name, value in puzzle["size"].items())
        raise BuildError(
            f"{puzzle['file']}.py: a program of {puzzle['name']} fails at {size}: {error}"
        ) from None


def solution_of(root: Path, puzzle: Json) -> Callable[[Model], Any]:
    """The function of a puzzle, solved."""
    function: Callable[[Model], Any] = _names(root, puzzle["file"])[puzzle["name"]]
    return function


def _names(root: Path, file: str) -> dict[str, Any]:
    """What a source defines."""
    path = root / "solutions" / f"{file}.py"
    try:
        return figures.program(path.name, path.read_text(encoding="utf-8"))
    except figures.FigureError as error:
        raise BuildError(f"{path.name}: {error}") from None


def _front(root: Path, found: Sequence[Json]) -> Iterator[tuple[Path, str]]:
    """README.md with its links and its table, and the pictures that it shows: what solutions do."""
    readme, folder = root / "README.md", root / "solutions"
    overview = (folder / "index.py").exists()
    puzzles = [Puzzle(**puzzle) for puzzle in found]
    if readme.exists():
        text = _documented(
            readme, fill(readme.read_text(encoding="utf-8"), published(root)), {}
        )
        yield Path("README.md"), with_puzzles(text, puzzles, folder) if overview else text
    pages = sorted((root / "docs").glob("*.md")) if overview else []
    given = _for_docs(root, found) if pages else {}
    for page in pages:
        text = _documented(page, page.read_text(encoding="utf-8"), given)
        yield page.relative_to(root), text
    if overview:
        known = {puzzle["name"]: puzzle for puzzle in found}
        made = gallery.products(
            puzzles,
            lambda puzzle: _played(root, known[puzzle.name]),
            _compared(root, found),
            lambda puzzle: _told(root, known[puzzle.name], puzzle),
            folder,
            published(root),
        )
        yield from ((Path("puzzles", name), text) for name, text in made)
    for puzzle in found:
        if puzzle["file"] == SHOWN:
            time, memory = puzzle["target"]["time"], puzzle["target"]["memory"]
            played = _played(root, puzzle)
            drawn = draw(played, time_target=time, memory_target=memory)
            yield Path("puzzles", f"{puzzle['name']}.svg"), drawn.svg() + "\n"
    if (root / "docs" / "schedules.md").exists() and overview:
        drawn = pipelines.picture(_side_by_side(root))
        yield Path("puzzles", pipelines.PICTURE), drawn.svg() + "\n"
    for puzzle in found if (root / "docs" / "profile").exists() else ():
        if puzzle["name"] == "one_f_one_b":
            yield from profile_pictures(profile_of(root), solution_of(root, puzzle))


def _documented(page: Path, text: str, given: dict[str, Any]) -> str:
    """A page of the documentation, with its figures."""
    try:
        return with_figures_of_docs(text, given)
    except (figures.FigureError, PuzzleError, NameError, AttributeError, SyntaxError) as error:
        raise BuildError(f"{page.name}: {error}") from None


def _for_docs(root: Path, found: Sequence[Json]) -> dict[str, Any]:
    """What the figures in docs/ are made of: solutions, the run that docs/pictures.md shows, and what was measured."""
    named = {puzzle["name"]: puzzle for puzzle in found}
    programs = {name: solution_of(root, named[name]) for name in ("interleaved", "one_f_one_b")}
    [row] = [row for row in MEGATRON if row.model == GPT_175B]
    shown = _played(root, named[SHOWN.partition("_")[2]])

    def longest(done: Run, *kinds: str) -> float:
        """Ticks of these operations on the chain that makes a run as long as it is."""
        steps = [link.entered for link in chain_of(done.events).links]
        return round(sum(step.end - step.start for step in steps if step.kind in kinds), 6)

    return {
        **programs,
        "measured": row.present,
        "off": _how_far_off(),
        "FITS": FITS,
        "A100_MEGATRON": A100_MEGATRON,
        "H100_DGX": H100_DGX,
        "gpipe": shown,
        "profile": of_profile(profile_of(root), programs["one_f_one_b"]),
        "longest": longest,
        "side_by_side": pipelines.table(_side_by_side(root)),
        "searched": pipelines.searched(),
    }


@cache
def _side_by_side(root: Path) -> dict[str, Run]:
    """The pipelines of docs/schedules.md."""
    return pipelines.side_by_side(lambda file: _names(root, file))


def _how_far_off() -> dict[str, Any]:
    """How far LLM Foundry's rows are off in percent, by the prices alone, and on how many."""
    rows = foundry.rows()
    some = {
        "all": rows,
        "kept back": [row for row in rows if row.held_back],
        "long": [row for row in rows if row.model.sequence > 8192],
    }
    found = {
        name: foundry.errors(name, map(foundry.estimated, each)) for name, each in some.items()
    }
    found["sizes"] = foundry.left_out(lambda row: row.model.name)
    found["gpus"] = foundry.left_out(lambda row: row.gpus)
    found["halves"] = max(
        map(foundry.left_out, foundry.HALVES.values()), key=lambda one: one.median
    )
    return {
        name: SimpleNamespace(
            rows=one.rows,
            median=round(100 * one.median, 1),
            worst=round(abs(100 * one.worst)),
            signed=round(100 * one.signed, 1),
        )
        for name, one in found.items()
    }


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
        write_all({root / path: text for path, text in made.items()})
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
