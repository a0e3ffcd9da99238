"""Right attempts as points of time and memory."""

import json
import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from drawing import Figure, draw_attempts
from drawing.ink.letters import overlap, place_of
from drawing.ink.marks import Label
from lib import PuzzleError
from lib.course.specs import puzzles
from lib.grading.progress import LONGEST
from tests.browser import Browser, Scheme
from tests.drawing_events import SVG, outside, parse, texts, titles
from tests.test_drawing_strikes import leaves

Keep = Callable[..., None]
FSDP = [(24.9, 3145728, False), (20.4, 1966080, True), (17.1, 2097152, True)]


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """Writes a trail for a puzzle."""
    monkeypatch.setenv("LLM_TRAINING_PUZZLES_PROGRESS", str(tmp_path))

    def write(name: str, *points: tuple[float, float, bool]) -> None:
        trail = [{"time": time, "memory": memory, "passed": passed} for time, memory, passed in points]
        kept = {"version": 1, "best": {}, "hints": {}, "trail": {name: trail}}
        (tmp_path / "progress.json").write_text(json.dumps(kept), encoding="utf-8")

    return write


def places(figure: Figure, words: str) -> list[tuple[float, float]]:
    """The middles of the disks whose hover text has these words."""
    groups = [g for g in parse(figure).iter(SVG + "g") if words in (g.findtext(SVG + "title") or "")]
    disks = [rect for g in groups for rect in g.iter(SVG + "rect") if rect.get("rx")]
    return [tuple(float(disk.get(at, 0)) + float(disk.get("width", 0)) / 2 for at in "xy") for disk in disks]  # type: ignore[misc]


def test_time_is_to_the_right_and_memory_upwards(keep: Keep) -> None:
    keep("fsdp", *FSDP)
    figure = draw_attempts("fsdp")
    (slow, high), *_ = places(figure, "attempt 1 of 3")
    (middle, low), *_ = places(figure, "attempt 2 of 3")
    (fast, between), *ring = places(figure, "attempt 3 of 3")
    assert slow > middle > fast and high < between < low  # in a picture y goes down
    assert ring and ring[0] == (fast, between)  # around the newest, and around no other
    assert {"time, in ticks \N{RIGHTWARDS ARROW}", "\N{UPWARDS ARROW} peak memory, in elements"} <= {*texts(figure)}


def test_all_is_said_in_words_and_under_the_pointer(keep: Keep) -> None:
    keep("fsdp", *FSDP)
    figure, puzzle = draw_attempts("fsdp"), puzzles()["fsdp"]
    assert figure.summary.startswith(
        "fsdp: your attempts. 3 right attempts, 2 within the target. The target: 20.4 ticks"
    )
    assert figure.summary.endswith("Attempt 3: 17.1 ticks, 2,097,152 elements, within the target.")
    assert "Attempt 1: 24.9 ticks, 3,145,728 elements, over the target." in figure.summary
    for point in [puzzle.target, puzzle.star, *puzzle.frontier]:
        assert point is not None
        figures = f"{point['time']:g} ticks, {point['memory']:,} elements"
        assert figures in figure.summary and figures in texts(figure)
        assert any(title.startswith(figures) for title in titles(figure))
    met = "20.4 ticks, 1,966,080 elements\nthe solution\nattempt 2 of 3, within the target"
    assert titles(figure).count(met) == 2  # whichever of the two is on top


def test_without_attempts_it_says_so_and_shows_where_to(keep: Keep) -> None:
    figure = draw_attempts("ddp")
    said = "No right attempt yet: grade(ddp) puts a point here for each that is right."
    assert said in texts(figure) and said in figure.summary
    assert "your newest attempt" not in texts(figure) and "the star" in texts(figure)
    keep("fsdp", *FSDP)
    assert said in texts(draw_attempts("ddp"))  # other puzzles are other pictures


def uprights(figure: Figure, words: str) -> list[float]:
    """Where the lines stand whose hover text has these words."""
    groups = [g for g in parse(figure).iter(SVG + "g") if words in (g.findtext(SVG + "title") or "")]
    ways = [path.get("d", "") for g in groups for path in g.iter(SVG + "path")]
    found = [re.fullmatch(r"M([0-9.]+) [0-9.]+v[0-9.]+", way) for way in ways]
    assert all(found)
    return [float(way[1]) for way in found if way]


def test_of_a_pipeline_there_is_a_line_at_what_nothing_beats(keep: Keep) -> None:
    keep("one_f_one_b", (53.0, 4456448, False), (47.4, 3145728, True))
    figure = draw_attempts("one_f_one_b")
    [least], [one_stage] = uprights(figure, "than 40.9 ticks"), uprights(figure, "one stage a rank: 47.4 ticks")
    (star, _), *_ = places(figure, "attempt 2 of 2")
    (slow, _), *_ = places(figure, "attempt 1 of 2")
    assert one_stage == pytest.approx(star, abs=0.1)
    assert (one_stage - least) / (slow - one_stage) == pytest.approx((47.4 - 40.9) / (53 - 47.4), rel=0.01)
    assert {"none that passes is faster", "than 40.9; one stage a rank: 47.4 ticks"} <= {*texts(figure)}
    assert "No program that passes is faster than 40.9 ticks; if each rank has one stage" in figure.summary


def test_where_there_is_one_bound_or_none_there_is_one_line_or_none(keep: Keep) -> None:
    figure = draw_attempts("zero_bubble")
    assert len(uprights(figure, "none that passes is faster")) == 1 and "than 19.5 ticks" in texts(figure)
    assert "none that passes is faster" not in texts(draw_attempts("fsdp"))


FAR = [(1e18, 1e18, False), (0, 0, True), (1e18, 0, False), (0.0, 1e18, False)]


@pytest.mark.parametrize("name", [*puzzles()][::5])
@pytest.mark.parametrize("points", [[], FSDP, FAR, [(5.0, 1e6 + n, True) for n in range(LONGEST)]], ids=len)
def test_nothing_is_outside_of_the_picture(keep: Keep, name: str, points: list[tuple[float, float, bool]]) -> None:
    keep(name, *points)
    figure = draw_attempts(name)
    assert outside(figure) == []
    said = [title for title in titles(figure) if re.search(rf"attempt \d+ of {len(points)},", title)]
    assert len(said) >= len(points)


def test_what_is_too_far_out_is_at_the_edge_and_says_so(keep: Keep) -> None:
    keep("ddp", (17.0, 2621440, False), (5.6, 1572864, True))
    figure = draw_attempts("ddp")
    assert {"beyond the edge", "17 ticks, 2,621,440 elements"} <= {*texts(figure)}
    assert draw_attempts("ddp").summary.count("beyond") == 0
    keep("ddp", (5.7, 1572864, False))
    assert not [text for text in texts(draw_attempts("ddp")) if "beyond" in text]


@pytest.mark.parametrize("times", [[5.6], [5.6, 5.8, 5.7], [17.0, 5.7, 18.0, 5.2], [5.0, 9.6, 5.3]], ids=str)
def test_no_text_lies_on_another_or_leaves_the_picture(keep: Keep, times: list[float]) -> None:
    """Beside the notebook's cell and in a narrow place, with points beyond the upper and the right edge."""
    keep("ddp", *((time, 3932160 if time < 9 else 1572864, False) for time in times))
    figure = draw_attempts("ddp")
    assert figure.narrow is not None
    for picture in (figure, figure.narrow):
        painted = [(one.shape, one.transform) for one in leaves(picture.diagrams) if isinstance(one.shape, Label)]
        found = [(shape.text, place_of(shape, at[2], at[5])) for shape, at in painted]
        assert any("beyond the edge" in text for text, _ in found)
        for (text, one), (other_text, other) in combinations(found, 2):
            assert not overlap(one, other), (text, other_text)
        assert [text for text, (x, _, width, _) in found if x < 0 or x + width > picture.size[0]] == []


def test_a_puzzle_is_named_by_name_number_or_function(keep: Keep) -> None:
    def fsdp() -> None: ...

    assert {draw_attempts(one).summary for one in ("fsdp", 4, fsdp, puzzles()["fsdp"])} == {  # type: ignore[arg-type]
        draw_attempts("fsdp").summary
    }
    with pytest.raises(PuzzleError, match="did you mean 'fsdp'"):
        draw_attempts("fdsp")


@pytest.mark.parametrize("name", ["fsdp", "one_f_one_b"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_notebook_without_violations(browser: Browser, keep: Keep, scheme: Scheme, name: str) -> None:
    keep(name, *FSDP)
    figure = draw_attempts(name)
    sight = browser.show(figure._repr_html_(), "() => document.documentElement.scrollWidth", scheme, scheme)
    assert sight.measured == 900 and sight.violations == {} and sight.colors > 20
