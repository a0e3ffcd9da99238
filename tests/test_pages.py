"""The form of the pages: the task first, in few words, and all else below "When it passes"."""

import json
import re
from typing import Any

import pytest

from lib import Model
from lib.course.specs import puzzles
from solutions.build.notebooks.notebook import FIRST_CELL, PASSES
from solutions.build.sources.blanks import PLACEHOLDER
from solutions.build.sources.files import ROOT, sources

Cell = dict[str, Any]
PAGES = sorted(path.stem for path in (ROOT / "puzzles").glob("p[0-9][0-9]_*.ipynb"))
NEW_STEPS = range(25, 29)
"""Puzzles that come with new operations, and so with more words."""
PICTURE = re.compile(r"<img[^>]*>|!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\]\([^)]*\)")
TAG = re.compile(r"<[^>]*>")


def cells_of(name: str) -> list[Cell]:
    cells: list[Cell] = json.loads((ROOT / "puzzles" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return cells


def text(cell: Cell) -> str:
    return "".join(cell["source"])


def words(cells: list[Cell]) -> int:
    """Words that a reader reads in the texts, without those of pictures and addresses."""
    read = (TAG.sub("", LINK.sub("", PICTURE.sub("", text(cell)))) for cell in cells if cell["cell_type"] == "markdown")
    return sum(len(re.findall(r"[A-Za-z0-9]\S*", one)) for one in read)


def before_the_blank(name: str) -> list[Cell]:
    cells = cells_of(name)
    return cells[: next(at for at, cell in enumerate(cells) if PLACEHOLDER in text(cell))]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_begins_with_the_task(name: str) -> None:
    above = before_the_blank(name)
    code = [text(cell) for cell in above if cell["cell_type"] == "code"]
    assert code[0] == FIRST_CELL and len(code) == 2, "the first line and the imports, nothing else to run"
    number = int(name[1:3])
    assert words(above) <= (150 if number <= 8 else 350 if number in NEW_STEPS else 250), words(above)
    task = text(above[-1])
    assert task.startswith("## Your task\n")
    assert 1 <= len(re.findall(r"^- ", task, re.MULTILINE)) <= 6
    assert "star" not in " ".join(text(cell) for cell in above if cell["cell_type"] == "markdown").lower().split()


@pytest.mark.parametrize("name", PAGES)
def test_what_is_read_after_a_pass_is_folded_below_the_verdict(name: str) -> None:
    cells = cells_of(name)
    [at] = [at for at, cell in enumerate(cells) if text(cell).startswith(PASSES)]
    assert cells[at]["metadata"]["heading_collapsed"] is True
    graded = [i for i, cell in enumerate(cells) if re.search(r"^grade\(", text(cell), re.MULTILINE)]
    assert graded and max(graded) < at
    read = [cell for cell in cells[at:-1] if cell["cell_type"] == "markdown"]
    headings = [line for cell in read for line in text(cell).split("\n") if re.match(r"#{1,2} ", line)]
    assert headings == [PASSES], "a larger heading would end what is folded"
    [puzzle] = [puzzle for puzzle in puzzles().values() if puzzle.file == name]
    if puzzle.star:
        assert "**The star:**" in text(cells[at])


@pytest.mark.parametrize("name", PAGES)
def test_it_has_one_picture_or_two_and_the_cells_that_draw_may_fail(name: str) -> None:
    above = before_the_blank(name)
    assert name == "p00_basic" or 1 <= sum(len(PICTURE.findall(text(cell))) for cell in above) <= 2
    for cell in cells_of(name):
        if cell["cell_type"] == "code" and re.search(r"^(draw|play)\(\s*run\(", text(cell), re.MULTILINE):
            assert "raises-exception" in cell["metadata"]["tags"]


def test_the_way_in_is_short() -> None:
    index, tour = cells_of("index"), cells_of("machine_tour")
    first_code = next(at for at, cell in enumerate(index) if cell["cell_type"] == "code")
    assert words(tour) <= 400 and sum(cell["cell_type"] == "code" for cell in tour) == 4
    assert words(index[:first_code]) + words(tour) + words(before_the_blank("p00_basic")) <= 700


SHOWN = {"program": "def ", "cell": "", "table": "\n|", "picture": "<img", "chart": "<img"}
"""What a text may point at, and what is there then, in a cell of that side."""
DEFINED = {
    name
    for path in sources()
    for name in re.findall(r"^(?:async )?def (\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    if not hasattr(Model, name)
}
"""What is defined somewhere in the course."""


@pytest.mark.parametrize("word", ["rank", "bubble", "collective", "shard", "node"])
def test_a_word_of_the_field_is_explained_on_the_first_page_that_has_it(word: str) -> None:
    for name in ("machine_tour", *PAGES):
        read = " ".join(PICTURE.sub("", text(cell)) for cell in cells_of(name) if cell["cell_type"] == "markdown")
        if re.search(rf"\b{word}s?\b", read):
            assert re.search(rf"\*{word}\*", read), name
            return


@pytest.mark.parametrize("name", PAGES)
def test_a_page_imports_what_it_names(name: str) -> None:
    """Or what an answer needs, or a verdict calls."""
    cells = cells_of(name)
    [solved] = re.findall(
        r"### BEGIN SOLUTION(.*?)### END", (ROOT / "solutions" / f"{name}.py").read_text("utf-8"), re.S
    )
    named = " ".join([solved, "solution beside_target why", *map(text, cells)])
    imports = re.findall(r"^from (?:drawing|lib) import (.*)", "\n".join(map(text, cells)), re.MULTILINE)
    found = {one for line in imports for one in re.findall(r"\w+", line)}
    assert not {one for one in found if len(re.findall(rf"\b{one}\b", named)) < 2}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_points_only_at_what_is_on_it(name: str) -> None:
    cells = cells_of(name)
    code = "\n".join(text(cell) for cell in cells if cell["cell_type"] == "code")
    for at, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            continue
        for what, where in re.findall(r"\b(program|cell|table|picture|chart)s? (below|above)\b", text(cell)):
            there = "\n".join(text(one) for one in (cells[at:] if where == "below" else cells[: at + 1]))
            assert SHOWN[what] in there or (SHOWN[what] == "<img" and "draw" in there), f"{what} {where}"
        named = {*re.findall(r"`(\w+)(?:\(\))?`", text(cell))} & DEFINED - puzzles().keys()
        assert all(one in code or f"def {one}(" in text(cell) for one in named), named
