"""Pictures in places of any width: all of a picture is seen, and none is larger than it is made."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drawing import (
    beside_target,
    compare,
    draw,
    draw_attempts,
    draw_attention,
    draw_course,
    draw_group,
    draw_primitive,
    draw_sketch,
    draw_sweep,
    draw_tensor,
    draw_tokens,
    play,
    race,
    reference,
)
from drawing.ink.figure import PHONE
from drawing.ink.letters import text_width
from drawing.ink.svg import NARROW, READABLE
from lib import Activation, Weight, run, sweep
from lib.course.specs import cost_named, puzzles
from tests import experts
from tests.browser import PAGE, Browser, Page
from tests.drawing_events import sharded_run, staged_run
from tests.failures import CASES, failed
from tests.programs import small_size, solutions
from tests.slices import ring
from tests.test_browser import GROUP

WIDTHS = (360, 480, 600, 733, 915, 1100, 1600)
"""Of phones, of cells of JupyterLab in windows of 980 to 1440 pixels, of Colab, and of a large screen."""
COLUMNS = ("reference", "course")
"""What has pictures beside each other."""
SOLUTIONS = {spec["name"]: (fn, spec) for fn, spec in solutions()}

HEAD_TEXTS = re.compile(r'<text x="([\d.]+)" y="[\d.]+" font-size="([\d.]+)" text-anchor="(\w+)"[^>]*>([^<]*)')
SEEN = """() => {
    const place = document.querySelector("main > div").getBoundingClientRect();
    const walls = [...document.querySelectorAll("svg.ltp, img")];
    return {
        page: document.documentElement.scrollWidth,
        inside: [...document.querySelectorAll("main > div *")].every(one => one.scrollWidth <= one.clientWidth
            || getComputedStyle(one).overflowX === "visible"),
        walls: walls.map(one => {
            const box = one.getBoundingClientRect(), own = one.viewBox?.baseVal.width ?? one.naturalWidth;
            const letters = [...one.querySelectorAll("text")].filter(text => text.checkVisibility());
            const boxes = letters.map(text => text.getBoundingClientRect());
            const meet = (a, b) => a.left + 2 < b.right && b.left + 2 < a.right
                && a.top + 0.54 * a.height < b.bottom && b.top + 0.54 * b.height < a.bottom;
            const over = letters.filter((text, at) => boxes.slice(0, at).some(other => meet(boxes[at], other))
                || boxes[at].left < box.left - 0.5 || boxes[at].right > box.right + 0.5);
            return {own, over: over.map(text => text.textContent), wide: box.width,
                right: box.right - place.right, left: box.left - place.left,
                top: box.top, bottom: box.bottom, letters: letters.map(
                    text => [parseFloat(getComputedStyle(text).fontSize) * box.width / own, text.textContent])};
        }).filter(wall => wall.wide),
    };
}"""


PICTURES: dict[str, Callable[[], Any]] = {
    "stages": lambda: draw(staged_run(8, 16), time_target=1, memory_target=1),
    "shards": lambda: draw(sharded_run(8, 6, node_size=4)),
    "chain": lambda: draw(staged_run(), chain=True),
    "coarse": lambda: draw(sharded_run(32, 30)),
    "wide": lambda: draw(staged_run(), width=2000),
    "failed": lambda: draw(failed(CASES[-1]).run),
    "static": lambda: draw(staged_run(), static=True),
    "compare": lambda: compare(sharded_run(4, 2, node_size=2), staged_run()),
    "four": lambda: compare(*map(solved, WORDS["four"][2:])),
    "race": lambda: race(solved("one_f_one_b"), solved("interleaved")),
    "sketch": lambda: draw_sketch("gpipe"),
    "beside target": lambda: beside_target(solved("gpipe")),
    "attempts": lambda: draw_attempts("fsdp"),
    "sweep": lambda: draw_sweep(sweep(SOLUTIONS["fsdp"][0], ranks=[2, 4], processes=1)),
    "course": draw_course,
    "group": lambda: draw_group(GROUP),
    "tensor": lambda: draw_tensor(Weight(0, 12, 0)),
    "partial sum": lambda: draw_tensor(Activation(0, 3, [0], 1, parts=[1], of=4)),
    "primitive": lambda: draw_primitive("scatterreduce", ranks=4),
    "tokens": lambda: draw_tokens(run(experts.plain, 4, 2, 4, experts=8)),
    "attention": lambda: draw_attention(
        run(ring(), ranks=4, layers=1, batches=1), run(ring(zigzag=True), ranks=4, layers=1, batches=1)
    ),
    "attention of one": lambda: draw_attention(run(ring(zigzag=True), ranks=8, layers=1, batches=1)),
    "reference": reference,
    "player": lambda: play(staged_run()),
}


def solved(name: str) -> Any:
    fn, spec = SOLUTIONS[name]
    return run(fn, **spec["size"])


@pytest.mark.parametrize("picture", [name for name in PICTURES if name != "player"])
def test_a_picture_fits_its_place_at_any_width(
    browser: Browser, picture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_TRAINING_PUZZLES_PROGRESS", str(tmp_path))
    path = tmp_path / "page.html"
    path.write_text(PAGE.format(html="", body="", colors="", content=PICTURES[picture]()._repr_html_()), "utf-8")

    def at_all_widths(page: Page) -> list[Any]:
        return [(page.set_viewport_size({"width": width, "height": 700}), page.evaluate(SEEN))[1] for width in WIDTHS]

    for width, measured in zip(WIDTHS, browser.visit(path.as_uri(), at_all_widths), strict=True):
        assert measured["page"] == width and measured["inside"] and measured["walls"]
        for wall in measured["walls"]:
            room = width if picture not in COLUMNS else wall["wide"]
            assert wall["wide"] == pytest.approx(min(wall["own"], room), abs=1), (width, wall["own"])
            assert wall["left"] > -0.5 and wall["right"] < 0.5
            assert wall["over"] == [], width  # no text lies on another, or beyond an edge
            if width < NARROW:
                assert [letter for letter in wall["letters"] if letter[0] < READABLE] == []
        above, *others = measured["walls"]
        for below in others if picture not in COLUMNS else ():
            assert abs(below["top"] - above["bottom"]) < 3  # one follows the other, and nothing covers it
            above = below


WORDS = {
    "stages": ["rank 0", "rank 7", "ticks", "0", "20", "time", "peak memory, elements", "forward", "activations"],
    "shards": ["rank 0", "rank 7", "ticks", "only communicates 59%", "ranks 0-7", "1.57M"],
    "coarse": ["ranks 0-31", "4.82M"],
    "failed": ["rank 0", "time", "forward", "41-63", "393k", "0"],
    "race": ["one_f_one_b", "ticks", "bubble", "memory", "52.6", "forward", "communication"],
    "compare": ["bubble", "peak memory", "sharded", "backward"],
    "four": ["2.88M", "1.57M", "gpipe", "one_f_one_b", "interleaved", "zero_bubble"],
}


@pytest.mark.parametrize("picture", WORDS)
def test_names_times_figures_and_the_legend_are_read_on_a_phone(browser: Browser, picture: str) -> None:
    walls = browser.show(PICTURES[picture]()._repr_html_(), SEEN, width=360, judged=False).measured["walls"]
    words = [text for wall in walls for _, text in wall["letters"]]
    assert set(WORDS[picture]) <= set(words) and not any(word.endswith("…") for word in words)


@pytest.mark.parametrize("name", SOLUTIONS)
def test_no_line_of_a_head_is_longer_than_a_phone_is_wide(name: str) -> None:
    fn, spec = SOLUTIONS[name]
    size = small_size(name)
    narrow = draw(run(fn, **size, cost=cost_named(spec.get("cost", "default")))).narrow
    assert narrow is not None
    for x, size_, anchor, text in HEAD_TEXTS.findall(narrow.svg()):
        assert not re.search(r"\.\d{5}", text)  # nobody reads more digits
        if anchor == "start":
            assert float(x) + text_width(text, float(size_)) <= PHONE, text


@pytest.mark.parametrize("static", [False, True])
def test_cards_of_the_course_are_links_that_stand_beside_each_other(browser: Browser, static: bool) -> None:
    look = """() => [...document.querySelectorAll("main a")].map(a => a.getBoundingClientRect()).map(
        one => [one.left, one.top, one.width, one.height])"""
    shown = draw_course(static=static, folder="")._repr_html_()
    for width, columns in ((360, 2), (733, 4), (989, 5), (1600, 8)):
        places = browser.show(shown, look, width=width, judged=False).measured
        assert len(places) == 1 + len(puzzles()) and all(wide >= 159 and tall > 55 for *_, wide, tall in places)
        assert len([top for _, top, *_ in places if top == places[0][1]]) == columns
        corners = [(left, top) for left, top, *_ in places]
        assert sorted(corners, key=lambda at: (at[1], at[0])) == corners  # read from left to right in every line
