"""The pictures in the texts of notebooks.

``![...](picture:allgather)`` shows what an operation does; ``race`` is what the gallery begins with;
``priced`` is what a step takes on real GPUs, as a line and a picture. Another name is that of a function of the source
that draws it, ``def name(static)``.

A picture is an image with its data, since that is what every host of notebooks shows: Jupyter, trusted or not, VS Code,
Colab. (GitHub shows the words.)
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from drawing import draw_primitive
from drawing.schedule.picture import small_enough
from lib import Run
from lib.record.table import OPERATIONS

from ..figures.pages import names_of, runs_of
from ..runs import priced
from ..runs.programs import asked, program
from ..sources.files import FIGURES, BuildError, Cell, tagged
from . import race
from .schedules import draw_schedule

PICTURE = re.compile(r"!\[[^\]]*\]\(picture:(\w+)\)")
MOST = 70_000
"""Bytes of the picture of a priced run at most: Colab's notebooks are to stay below 1,200,000 with all they have."""


def check_pictures(path: Path, cells: Sequence[Cell]) -> None:
    """Each picture in a text is one that can be drawn."""
    source = "\n".join(cell.source for cell in cells if cell.kind == "code")
    texts = "\n".join(cell.source for cell in cells if cell.kind == "markdown")
    named, prices = {*PICTURE.findall(texts)}, len(tagged(cells, priced.TAG))
    if priced.NAME in named and prices != 1:
        raise BuildError(f'{path.name}: exactly one cell with tags=["{priced.TAG}"] is needed, {prices} found')
    for name in named - {race.NAME, priced.NAME, *OPERATIONS}:
        if f"def {name}(" not in source:
            raise BuildError(f"{path.name}: it defines no {name}(), which is to draw a picture")


def with_pictures(path: Path, text: str) -> str:
    """A text of a source with its pictures."""
    return PICTURE.sub(lambda found: _picture(path, found[1]), text)


def _picture(path: Path, name: str) -> str:
    if name == race.NAME:
        return race.picture(path.parent).image()
    if name == priced.NAME and (done := priced.priced_run(path)) is not None:
        return _priced(done)
    if name in OPERATIONS:
        return draw_primitive(name, static=True)._repr_html_()
    drawn, runs = _drawn(path.name, path.read_text(encoding="utf-8"), name)
    named = [id(one) for one in runs_of(names_of(path))]
    for one in runs:
        if id(one) not in named:
            raise BuildError(
                f"{path.name}: the picture {name} shows a run of {one.name} that has no name "
                f'in the cell tagged "{FIGURES}", so that texts cannot have its figures'
            )
    return drawn


@cache
def _priced(done: Run) -> str:
    picture = small_enough(lambda rough: draw_schedule(done, rough, alone=True), MOST)
    return f"{priced.line(done)}\n\n{picture._repr_html_()}"


@cache  # a build asks for the blank notebook, the solved one and Colab's, and some draw for seconds
def _drawn(file: str, text: str, name: str) -> tuple[str, tuple[Run, ...]]:
    """What a function of a source draws, and the runs that it shows."""
    draws = program(file, text)[name]
    asked.clear()
    return str(draws(static=True)._repr_html_()), tuple(asked)
