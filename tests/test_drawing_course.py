"""The map of the course."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chalk.core import Primitive

from drawing import Figure, draw_course
from drawing.charts.course import MEANINGS
from drawing.ink import theme
from drawing.ink.letters import text_width
from drawing.ink.marks import Boxes
from drawing.schedule.miniature import draw_rows
from lib.course.outlines import CELLS, silhouette
from lib.course.specs import Puzzle, due, puzzles
from lib.grading.progress import Point
from lib.record.events import MARKS
from tests.drawing_events import SVG, outside, parse, texts, titles
from tests.programs import COURSE, REPAIRS, solved


def figures(puzzle: Puzzle, wanted: dict[str, Any]) -> str:
    """Ticks and elements, or what they are of a puzzle that is not told in these."""
    if puzzle.name == "compose":
        return f"{wanted['time']:.0f} s and {wanted['memory'] / 1e9:.0f} GB"
    return f"{wanted['time']:g} ticks and {wanted['memory']:,} elements"


def on_the_card(title: str) -> str:
    """The puzzle that a hover text is about: its number."""
    return title.partition(":")[0].removeprefix("puzzle ")


def test_every_puzzle_and_every_repair_is_on_the_map_with_its_figures_under_the_pointer() -> None:
    figure = draw_course()
    shown, said = texts(figure), {on_the_card(title): title for title in titles(figure)}
    for puzzle in puzzles().values():
        assert str(puzzle.number) in shown and f"{puzzle.difficulty}, {puzzle.minutes} min" in shown
        assert " ".join(shown).count(puzzle.title) or all(word in " ".join(shown) for word in puzzle.title.split())
        told = said[str(puzzle.number)]
        assert told.startswith(f"puzzle {puzzle.number}: {puzzle.title} ({puzzle.name}, ")
        assert f"\ntarget: {figures(puzzle, puzzle.target)}" in told and puzzle.idea in told
        assert not puzzle.star or f"\nstar: {figures(puzzle, puzzle.star)}" in told
        assert told.replace("\n", "; ")[1:] in figure.summary
    assert f"0 of {len(COURSE)} puzzles solved, 0 of " in figure.summary
    assert f"{len(REPAIRS)} programs to be repaired." in figure.summary
    assert outside(figure) == []


def test_it_is_a_map_and_no_list() -> None:
    width, height = draw_course(trail={name: [Point(1e6, 1e9, False)] for name in puzzles()}).size
    assert (width, height) == draw_course().size and height < 20.5 * len(puzzles())


def test_no_text_of_a_card_runs_over_another() -> None:
    """With every mark that a card can have."""
    names = [*puzzles()]
    for figure in (draw_course(names, names), draw_course(trail={name: [Point(9, 9, False)] for name in names})):
        rows: dict[float, list[tuple[float, float]]] = {}
        for element in parse(figure).iter(SVG + "text"):
            x, size = float(element.get("x", 0)), float(element.get("font-size", 0))
            wide = text_width(element.text or "", size, bold=int(element.get("font-weight", 400)) > 500)
            left = x - {None: wide / 2, "start": 0, "end": wide}[element.get("text-anchor")]
            rows.setdefault(float(element.get("y", 0)), []).append((left, left + wide))
        for places in rows.values():
            assert all(one[1] <= other[0] + 1 for one, other in pairwise(sorted(places)))


def test_it_is_read_from_left_to_right_in_every_line() -> None:
    places = {
        element.text: (float(element.get("y", 0)) // 10, float(element.get("x", 0)))
        for element in parse(draw_course()).iter(SVG + "text")
        if re.fullmatch(r"R?\d+", element.text or "")
    }
    in_order = [str(puzzle.number) for puzzle in puzzles().values()]
    assert sorted(places, key=lambda number: places[number or ""]) == in_order


AHEAD = ("forward", "project", "attend", "rest", "expert")
BACK = ("backward", "backward_input", "backward_weight")
LETTERS = dict.fromkeys(AHEAD, "F") | dict.fromkeys([*BACK, *(f"backward_{kind}" for kind in AHEAD[1:])], "B")


@pytest.mark.parametrize("name", puzzles())
def test_a_silhouette_is_that_of_the_solution(name: str) -> None:
    """A cell that one kind of work fills has the letter of that work, and a cell without any the one of idleness."""
    done, rows = solved(name), silhouette(puzzles()[name])
    assert [len(row) for row in rows] == [CELLS] * (done.ranks + done.hosts)
    work = [event for event in done.events if event.kind not in MARKS and event.length]
    checked = 0
    for rank, row in enumerate(rows):
        own = [event for event in work if event.rank == rank]
        for at, letter in enumerate(row):
            start, end = at * done.time / CELLS, (at + 1) * done.time / CELLS
            over = [event for event in own if event.start < end - 1e-9 and event.end > start + 1e-9]
            counts = [event for event in over if event.stream == "compute"] or over  # not what is sent meanwhile
            meant = {LETTERS.get(e.kind, "C" if e.stream != "compute" else "U") for e in counts}
            if len(meant) == 1 and sum(min(e.end, end) - max(e.start, start) for e in counts) >= end - start - 1e-9:
                assert {letter} == meant
                checked += 1
            elif not over:
                assert letter == "."
                checked += 1
            else:
                assert letter != "." or sum(min(e.end, end) - max(e.start, start) for e in over) < (end - start) / 1.9
    assert checked


def test_a_silhouette_is_drawn_to_scale() -> None:
    ahead, back, talk = (MEANINGS[letter][0] for letter in "FBC")
    rows = [[(0, 0.5, ahead)], [(0, 0.5, ahead)], [(0.5, 0.75, back), (0.75, 1, talk)]]
    found = [
        (part.shape.items, part.style.fill_color_.hex_l)
        for part in draw_rows(rows, 10, 20, 96, 30, theme.LANE)
        if isinstance(part, Primitive) and isinstance(part.shape, Boxes)
    ]
    assert found == [
        ([(10, 20, 96, 30)], theme.LANE),
        ([(10, 20, 48, 20)], ahead),
        ([(58, 40, 24, 10)], back),
        ([(82, 40, 24, 10)], talk),
    ]


def test_every_silhouette_of_the_map_has_its_own_shape() -> None:
    shapes = [tuple(silhouette(puzzle)) for puzzle in puzzles().values()]
    assert len(set(shapes)) > 0.8 * len(shapes)
    assert draw_course().svg().count(MEANINGS["F"][0]) > len(shapes)  # and the legend's
    assert {"forward", "backward", "update", "communication", "bubble"} <= set(texts(draw_course()))


def marked(figure: Figure, words: str) -> list[str]:
    """The numbers of the puzzles of which a hover text says this in its first line."""
    return [on_the_card(title) for title in titles(figure) if words in title.partition("\n")[0]]


def test_what_is_solved_and_starred_is_tinted_ticked_and_said() -> None:
    figure, blank = draw_course(["ddp", "basic", "repair_quiet"], ["ddp"]), draw_course()
    assert marked(figure, "solved") == ["0", "2", "R3"] and marked(figure, "its star") == ["2"]
    for color, more in ((theme.GOOD, 3 + 2), (theme.GOLD, 2)):  # ticks and tints of two; a star and a tint of one
        assert figure.svg().count(f'"{color}"') - blank.svg().count(f'"{color}"') == more
    assert f"2 of {len(COURSE)} puzzles solved, 1 of " in figure.summary


def test_what_comes_next_is_framed_repairs_too() -> None:
    assert marked(draw_course(), "next") == ["0"]
    assert marked(draw_course(["basic", "grad_accum"]), "next") == ["2", "R1"]
    several = ["basic", "grad_accum", "ddp", "fsdp", "repair_local"]
    assert marked(draw_course(several), "next") == ["3", "R2", "R3", "R4"]
    assert marked(draw_course([*puzzles()]), "next") == []


def test_every_repair_has_its_turn() -> None:
    numbers = {puzzle.number for puzzle in puzzles().values() if not puzzle.repair}
    assert {puzzle.comes_after for puzzle in puzzles().values() if puzzle.repair} <= numbers
    assert due([puzzle.name for puzzle in puzzles().values() if not puzzle.repair]) == [
        puzzle for puzzle in puzzles().values() if puzzle.repair
    ]


def test_cards_lead_to_the_notebooks_that_are_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "<a " not in draw_course()._repr_html_()
    (tmp_path / "p02_ddp.ipynb").touch()
    for static in (False, True):
        [drawn] = re.findall("<a .*?>", draw_course(static=static)._repr_html_(), re.DOTALL)
        assert drawn.startswith('<a href="p02_ddp.ipynb" title="Go to puzzle 2: Distributed data parallel (ddp, 4 ')
    (tmp_path / "repairs.ipynb").touch()
    assert draw_course()._repr_html_().count('<a href="repairs.ipynb"') == len(REPAIRS)


def test_the_map_that_is_stored_has_images_in_links_and_nothing_that_a_page_takes_out() -> None:
    stored = draw_course(static=True, folder="there/")._repr_html_()
    assert not re.search("<(svg|style|script)", stored) and len(stored) < 4_000 * len(puzzles())
    found = re.findall(r'<a href="there/(\w+)\.ipynb"[^>]*><img [^>]*></a>', stored)
    assert found == ["machine_tour", *(puzzle.file for puzzle in puzzles().values())]


def test_right_attempts_are_told_on_their_cards() -> None:
    trail = {"ddp": [Point(5.6, 1835008, True), Point(5.0, 2000000, False)], "wsdp": [Point(20.5, 2621440, False)]}
    figure = draw_course(["ddp"], trail=trail)
    [ddp] = [title for title in titles(figure) if on_the_card(title) == "2"]
    assert "your attempt 2: 5 ticks and 2,000,000 elements" in ddp
    assert marked(figure, "over its target") == ["3"] and texts(figure).count("over the target") == 1
    assert figure.summary.count("your attempt ") == 2
