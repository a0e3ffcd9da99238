"""The map of the course."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drawing import draw_course, theme
from lib.course.specs import puzzles
from lib.grading.progress import Point
from tests.drawing_events import corners, texts, titles


def test_every_puzzle_is_on_the_map_with_its_target() -> None:
    figure = draw_course()
    shown = texts(figure)
    for puzzle in puzzles().values():
        if puzzle.repair:
            assert puzzle.title not in shown
            continue
        assert puzzle.title in shown
        assert any(f"{puzzle.target['memory']:,} elements" in text for text in shown)
        assert (
            f"{puzzle.number}, {puzzle.title} ({puzzle.name}, {puzzle.difficulty}, {puzzle.minutes} minutes)"
            in figure.summary
        )
        assert f"{puzzle.difficulty}, {puzzle.minutes} min" in shown
    width, height = figure.size
    assert [(x, y) for x, y in corners(figure) if not (0 <= x <= width and 0 <= y <= height)] == []


def test_every_star_is_on_the_map_and_those_that_are_won_are_said() -> None:
    figure = draw_course(["ddp", "basic"], ["ddp"])
    for puzzle in puzzles().values():
        if puzzle.star:
            assert f"{puzzle.star['time']:g} ticks, {puzzle.star['memory']:,} elements" in texts(figure)
            assert f"star {puzzle.star['time']:g} ticks and {puzzle.star['memory']:,} elements" in figure.summary
    assert [title for title in titles(figure) if "star" in title] == [
        "puzzle 2: Distributed data parallel, solved, with its star"
    ]
    assert figure.svg().count(theme.GOLD) == 1
    assert draw_course(["ddp"]).svg().count(theme.GOLD) == 0


def test_what_is_solved_is_ticked_and_said() -> None:
    figure = draw_course(["ddp", "basic"])
    assert [title for title in titles(figure) if "solved" in title] == [
        "puzzle 0: Plain training, solved",
        "puzzle 2: Distributed data parallel, solved",
    ]
    assert figure.summary.count("solved") == 2


def test_cards_lead_to_the_notebooks_that_are_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "<a " not in draw_course()._repr_html_()
    (tmp_path / "p02_ddp.ipynb").touch()
    [drawn] = re.findall("<a .*?>", draw_course()._repr_html_())
    assert drawn.startswith('<a href="p02_ddp.ipynb" title="Go to puzzle 2: Distributed data parallel"')
    assert "<a " not in draw_course(static=True)._repr_html_()


def test_right_attempts_are_told_on_their_cards() -> None:
    trail = {"ddp": [Point(5.6, 1835008, True), Point(5.0, 2000000, False)], "wsdp": [Point(20.4, 2621440, True)]}
    figure = draw_course(["ddp"], trail=trail)
    shown = figure.svg()
    assert ">attempt 2: 5 ticks, 2,000,000<" in shown and ">attempt 1: 20.4 ticks, 2,621,440<" in shown
    assert "solved, attempt 2: 5 ticks, 2,000,000" in figure.summary
    assert shown.count("attempt ") == 6  # for each its line, its hover text, and in words
    assert figure.size[1] > draw_course(["ddp"]).size[1] == draw_course(["ddp"], trail={"ddp": []}).size[1]
