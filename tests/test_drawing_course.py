"""The map of the course."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from chalk.core import Primitive

from drawing import draw_course, theme
from drawing.course import MEANINGS, draw_silhouette
from drawing.marks import Bars
from lib.course.outlines import CELLS, silhouette
from lib.course.specs import Puzzle, puzzles
from lib.grading.progress import Point
from lib.record.events import MARKS
from tests.drawing_events import SVG, corners, parse, texts, titles
from tests.programs import COURSE, REPAIRS, solved


def lines_of(shown: list[str], *wanted: str) -> bool:
    """Whether these texts stand one behind the other."""
    return any(tuple(shown[at : at + len(wanted)]) == wanted for at in range(len(shown)))


def figures(puzzle: Puzzle, wanted: dict[str, Any]) -> tuple[str, str]:
    """Ticks and elements, or what they are of a puzzle that is not told in these."""
    if puzzle.name == "compose":
        return f"{wanted['time']:.0f} s", f"{wanted['memory'] / 1e9:.0f} GB"
    return f"{wanted['time']:g}", f"{wanted['memory']:,}"


def test_every_puzzle_and_every_repair_is_on_the_map_with_its_target() -> None:
    figure = draw_course()
    shown = texts(figure)
    for puzzle in puzzles().values():
        assert puzzle.title in shown and str(puzzle.number) in shown
        assert lines_of(shown, *figures(puzzle, puzzle.target))
        assert (
            f"{puzzle.number}, {puzzle.title} ({puzzle.name}, {puzzle.difficulty}, {puzzle.minutes} minutes)"
            in figure.summary
        )
        assert f"{puzzle.difficulty}, {puzzle.minutes} min" in shown
    assert f"The course, {len(COURSE)} puzzles." in figure.summary
    assert f"{len(REPAIRS)} programs to be repaired." in figure.summary
    width, height = figure.size
    assert [(x, y) for x, y in corners(figure) if not (0 <= x <= width and 0 <= y <= height)] == []


def test_it_is_read_from_left_to_right_in_every_line() -> None:
    places = {
        element.text: (float(element.get("y", 0)), float(element.get("x", 0)))
        for element in parse(draw_course()).iter(SVG + "text")
        if element.get("font-size") == "16"
    }
    in_order = [str(puzzle.number) for puzzle in puzzles().values()]
    assert sorted(places, key=lambda number: places[number or ""]) == in_order


def test_ticks_and_elements_stand_in_columns() -> None:
    ends: dict[str, set[float]] = {}
    known = [one for puzzle in puzzles().values() for one in (puzzle.target, puzzle.star) if one]
    ticks, elements = ({f"{one[name]:{how}}" for one in known} for name, how in (("time", "g"), ("memory", ",")))
    for element in parse(draw_course()).iter(SVG + "text"):
        if element.get("text-anchor") == "end" and element.text in ticks | elements:
            ends.setdefault("ticks" if element.text in ticks else "elements", set()).add(float(element.get("x", 0)))
    assert len(ends["ticks"]) == len(ends["elements"]) == 3  # one in each column of cards


@pytest.mark.parametrize("name", puzzles())
def test_a_silhouette_is_that_of_the_solution(name: str) -> None:
    """Each letter says what a rank does in the middle of its cell, unless something ends or begins in that cell."""
    done, rows = solved(name), silhouette(puzzles()[name])
    assert [len(row) for row in rows] == [CELLS] * (done.ranks + done.hosts)
    work = [event for event in done.events if event.kind not in MARKS and event.length]
    checked = 0
    for rank, row in enumerate(rows):
        own = [event for event in work if event.rank == rank]
        for at, letter in enumerate(row):
            start, end = at * done.time / CELLS, (at + 1) * done.time / CELLS
            over = [event for event in own if event.start < end - 1e-9 and event.end > start + 1e-9]
            whole = [event for event in over if event.start <= start + 1e-9 and event.end >= end - 1e-9]
            if len(over) == 1 == len(whole):
                wanted = {"forward": "F", "backward": "B", "backward_input": "B", "backward_weight": "B"}
                kind = over[0].kind
                assert letter == wanted.get(kind, "C" if over[0].stream != "compute" else "U")
                checked += 1
            elif not over:
                assert letter == "."
                checked += 1
            else:
                assert letter != "." or sum(min(e.end, end) - max(e.start, start) for e in over) < (end - start) / 1.9
    assert checked


def test_a_silhouette_is_drawn_to_scale() -> None:
    rows = ["F" * 24 + "." * 24, "F" * 24 + "." * 24, "." * 24 + "B" * 12 + "C" * 12]
    found = [
        (shape.items, shape.thick, part.style.line_color_ or part.style.fill_color_)
        for part in draw_silhouette(rows, 10, 20, 96, 30)
        if isinstance(part, Primitive) and isinstance(shape := part.shape, Bars)
    ]
    assert [(items, thick, color.hex_l) for items, thick, color in found] == [
        ([(10, 30, 48)], 20, MEANINGS["F"][0]),
        ([(58, 45, 24)], 10, MEANINGS["B"][0]),
        ([(82, 45, 24)], 10, MEANINGS["C"][0]),
    ]


def test_every_silhouette_of_the_map_has_its_own_shape() -> None:
    shapes = [tuple(silhouette(puzzle)) for puzzle in puzzles().values()]
    assert len(set(shapes)) > 0.8 * len(shapes)
    assert draw_course().svg().count(MEANINGS["F"][0]) > len(shapes)  # and the legend's
    assert {"forward", "backward", "update", "communication", "idle"} <= set(texts(draw_course()))


def test_every_star_is_on_the_map_and_those_that_are_won_are_said() -> None:
    figure = draw_course(["ddp", "basic"], ["ddp"])
    for puzzle in puzzles().values():
        if puzzle.star:
            assert lines_of(texts(figure), *figures(puzzle, puzzle.star))
            time, memory = figures(puzzle, puzzle.star)
            units = ("", "") if puzzle.name == "compose" else (" ticks", " elements")
            assert f"star {time}{units[0]} and {memory}{units[1]}" in figure.summary
    assert [title for title in titles(figure) if "star" in title] == [
        "puzzle 2: Distributed data parallel, solved, with its star"
    ]
    assert figure.svg().count(theme.GOLD) == 1
    assert draw_course(["ddp"]).svg().count(theme.GOLD) == 0


def test_what_is_solved_is_ticked_and_said() -> None:
    figure = draw_course(["ddp", "basic", "repair_quiet"])
    assert [title for title in titles(figure) if "solved" in title] == [
        "puzzle 0: Plain training, solved",
        "puzzle 2: Distributed data parallel, solved",
        "puzzle R3: Nothing to see here, solved",
    ]
    assert figure.summary.count("solved") == 3


def test_cards_lead_to_the_notebooks_that_are_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "<a " not in draw_course()._repr_html_()
    (tmp_path / "p02_ddp.ipynb").touch()
    [drawn] = re.findall("<a .*?>", draw_course()._repr_html_())
    assert drawn.startswith('<a href="p02_ddp.ipynb" title="Go to puzzle 2: Distributed data parallel"')
    assert "<a " not in draw_course(static=True)._repr_html_()
    (tmp_path / "repairs.ipynb").touch()
    assert draw_course()._repr_html_().count('<a href="repairs.ipynb"') == 8


def test_right_attempts_are_told_on_their_cards() -> None:
    trail = {"ddp": [Point(5.6, 1835008, True), Point(5.0, 2000000, False)], "wsdp": [Point(20.4, 2621440, True)]}
    figure = draw_course(["ddp"], trail=trail)
    shown = texts(figure)
    assert lines_of(shown, "5", "2,000,000", "your attempt 2") and lines_of(
        shown, "20.4", "2,621,440", "your attempt 1"
    )
    assert "solved, attempt 2: 5 ticks, 2,000,000" in figure.summary
    assert figure.svg().count("attempt ") == 6  # for each its line, its hover text, and in words
    assert figure.size[1] > draw_course(["ddp"]).size[1] == draw_course(["ddp"], trail={"ddp": []}).size[1]
