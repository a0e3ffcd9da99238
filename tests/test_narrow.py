"""Pictures on a narrow page: whatever is shown, no letter is lower than 9 pixels, and the page itself is not wider."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drawing import (
    beside_target,
    compare,
    draw,
    draw_attempts,
    draw_course,
    draw_group,
    draw_primitive,
    draw_sketch,
    draw_sweep,
    draw_tensor,
    play,
    reference,
)
from drawing.svg import READABLE
from lib import Activation, Weight, run, sweep
from tests.browser import Browser, keep
from tests.drawing_events import sharded_run, staged_run
from tests.failures import CASES, failed
from tests.programs import solutions
from tests.test_browser import GROUP

NARROW = 400
SOLUTIONS = {spec["name"]: (fn, spec) for fn, spec in solutions()}

LETTERS = """() => {
    const seen = [], frame = document.querySelector("iframe"), inside = frame ? frame.contentDocument : document;
    for (const folded of inside.querySelectorAll("#legend")) folded.open = true;
    const walls = [...inside.querySelectorAll("svg.ltp")];
    for (const svg of walls) {
        const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
        for (const text of svg.querySelectorAll("text"))
            seen.push([scale * parseFloat(getComputedStyle(text).fontSize), text.textContent]);
    }
    for (const image of inside.images) {
        const said = new DOMParser().parseFromString(atob(image.src.split(",")[1]), "image/svg+xml");
        const scale = image.getBoundingClientRect().width / image.naturalWidth;
        for (const text of said.querySelectorAll("text")) {
            seen.push([scale * parseFloat(text.getAttribute("font-size")), text.textContent]);
        }
    }
    const page = inside.documentElement;
    return {least: seen.sort((a, b) => a[0] - b[0])[0], count: seen.length, wide: page.scrollWidth,
        open: page.clientWidth,
        scrolls: [...walls, ...inside.images].map(one => one.parentElement).some(
            box => box.scrollWidth > box.clientWidth)};
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
    "sketch": lambda: draw_sketch("gpipe"),
    "beside target": lambda: beside_target(solved("gpipe")),
    "attempts": lambda: draw_attempts("fsdp"),
    "sweep": lambda: draw_sweep(sweep(SOLUTIONS["fsdp"][0], ranks=[2, 4], processes=1)),
    "course": draw_course,
    "group": lambda: draw_group(GROUP),
    "tensor": lambda: draw_tensor(Weight(0, 12, 0)),
    "partial sum": lambda: draw_tensor(Activation(0, 3, [0], 1, parts=[1], of=4)),
    "primitive": lambda: draw_primitive("scatterreduce", ranks=4),
    "reference": reference,
    "player": lambda: play(staged_run()),
}


def solved(name: str) -> Any:
    fn, spec = SOLUTIONS[name]
    return run(fn, **spec["size"])


@pytest.mark.parametrize("picture", PICTURES)
def test_letters_can_be_read_on_a_narrow_page(
    browser: Browser, picture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_TRAINING_PUZZLES_PROGRESS", str(tmp_path))
    sight = browser.show(PICTURES[picture]()._repr_html_(), LETTERS, width=NARROW)
    keep(sight.png, f"narrow-{picture}", tmp_path)
    measured = sight.measured
    assert measured["count"] > 0
    assert measured["least"][0] >= READABLE - 0.01, measured["least"]
    assert measured["wide"] == measured["open"] <= NARROW
    assert sight.violations == {}


@pytest.mark.parametrize("picture", ["stages", "course"])
def test_a_saved_page_scrolls_its_picture(browser: Browser, picture: str, tmp_path: Path) -> None:
    PICTURES[picture]().save(tmp_path / "saved.html")
    measured = browser.page((tmp_path / "saved.html").read_text(encoding="utf-8"), LETTERS, width=NARROW).measured
    assert measured["least"][0] >= READABLE - 0.01 and measured["scrolls"] and measured["wide"] == NARROW


def test_a_page_with_room_shows_all_of_a_picture(browser: Browser) -> None:
    for width in (900, 1200):
        measured = browser.show(draw(staged_run())._repr_html_(), LETTERS, width=width).measured
        assert not measured["scrolls"] and measured["wide"] == width


def test_links_stay_on_their_cards(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drawing.course.notebook_of", lambda puzzle: f"{puzzle.name}.ipynb")
    look = """() => {
        const svg = document.querySelector("svg.ltp"), at = svg.getBoundingClientRect();
        return [at.width / svg.viewBox.baseVal.width,
            ...[...document.querySelectorAll("a")].map(a => a.getBoundingClientRect()).map(
                one => [one.left - at.left, one.top - at.top, one.width, one.height])];
    }"""
    figure = draw_course()
    for width in (NARROW, 700, 900, 1200):
        scale, *links = browser.show(figure._repr_html_(), look, width=width).measured
        assert len(links) == len(figure.links) > 0
        for seen, (x, y, wide, tall, *_) in zip(links, figure.links, strict=True):
            assert seen == pytest.approx([scale * x, scale * y, scale * wide, scale * tall], abs=2.5), (width, scale)


def test_a_picture_alone_can_be_scaled(browser: Browser) -> None:
    """A file takes the size that it is given: its own style asks for none."""
    svg = draw(staged_run()).svg()
    assert "min-width" not in svg
    wide = browser.page(svg.replace('width="980"', 'width="300"', 1), "() => document.querySelector('svg').clientWidth")
    assert wide.measured == 300


def test_the_picture_of_a_player_scrolls_with_the_time(browser: Browser) -> None:
    look = """() => {
        const box = document.querySelector("#picture"), player = document.querySelector("#player");
        const press = key => player.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
        press("Home");
        const before = box.scrollLeft;
        press("End");
        return [box.scrollWidth > box.clientWidth, before, box.scrollLeft];
    }"""
    scrolls, before, after = browser.page(play(staged_run()).page, look, width=NARROW).measured
    assert scrolls and before == 0 and after > NARROW
    assert browser.page(play(staged_run()).page, look, width=1200).measured == [False, 0, 0]
