"""The gallery: every solution is in it, its links lead somewhere, and it is read on phones, in the dark, on paper."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from drawing.theme import ROLES
from lib.basics.units import show_elements, show_ticks
from lib.course.outlines import solution_figures
from lib.course.specs import puzzles
from solutions.build.__main__ import main
from solutions.build.pages import gallery
from solutions.build.pages.families import families
from solutions.build.pictures import hero
from solutions.build.pictures.schedules import draw_schedule
from solutions.build.sources.files import ROOT
from solutions.build.sources.overview import sentences
from tests.browser import Browser, Scheme, keep, rgb
from tests.drawing_events import SVG, outside, staged_run, texts
from tests.test_build import PUZZLE, TOUR

FOLDER = ROOT / "puzzles"
SHEETS = {False: FOLDER / gallery.LIGHT, True: FOLDER / gallery.DARK}
LARGEST = 1_500_000
"""Bytes of the page."""
FROM_ELSEWHERE = re.compile(
    r"<link|\ssrc=\"(?!data:)|foreignObject|@import|@font-face|url\(|javascript:", re.IGNORECASE
)
"""What neither the page nor the pictures may have: they need nothing from elsewhere."""
FRAME = re.compile(r"<iframe [^>]*>")
SOLVED = [puzzle for puzzle in puzzles().values() if not puzzle.repair]


@pytest.fixture(scope="module")
def page() -> str:
    return (FOLDER / gallery.PAGE).read_text(encoding="utf-8")


def schedules(page: str) -> dict[str, str]:
    """The schedules of the page, with their texts, by the names of their puzzles."""
    found = page.split('<div class="one" id="')[1:]
    return {one.partition('"')[0]: one.partition('">')[2] for one in found}


def test_every_solution_is_in_it_with_its_figures_and_its_sentence(page: str) -> None:
    shown, said = schedules(page), sentences(ROOT / "solutions")
    assert sorted(shown) == sorted(puzzle.name for puzzle in SOLVED)
    for puzzle in SOLVED:
        home = solution_figures(puzzle)
        words = re.sub("<[^>]+>", "", shown[puzzle.name].partition("<svg")[0])
        figures = f"{show_ticks(home.time)} ticks, {show_elements(int(home.memory))} elements"
        figures = f"{home.time:.4g} s, {home.memory / 1e9:.3g} GB" if puzzle.name == "compose" else figures
        assert words.startswith(f"\n{puzzle.number}. {puzzle.title}\n") and figures in words
        assert said[puzzle.name][1:].strip("*.") in words.replace("&quot;", '"') or "*" in said[puzzle.name]
        assert shown[puzzle.name].count("<svg") == 1 and f"{puzzle.size['ranks']} rank" in words
    assert len({one.partition("<svg")[2] for one in shown.values()}) == len(shown)


def test_every_puzzle_is_in_one_family_and_a_family_has_one_scale(page: str) -> None:
    own = [(family, puzzle) for family, its in families(SOLVED) for puzzle in its]
    assert sorted(puzzle.name for _, puzzle in own) == sorted(puzzle.name for puzzle in SOLVED)
    shown = schedules(page)
    for family, its in families(SOLVED):
        assert f"<h3>{family.title}</h3>" in page and len(its) > 1
        scales = {
            re.findall(r'<text x="([\d.]+)"[^>]*>([\d.]+)</text>', shown[one.name])[-1]
            for one in its
            if one.name != "compose"
        }
        assert len(scales) == 1, (family.title, scales)  # the last round figure of the axis, and where it is


def test_its_links_lead_to_what_is_there(page: str) -> None:
    links = re.findall(r'href="([^"]*)"', page)
    assert sum(link.startswith("data:image/svg+xml;base64,") for link in links) == 1  # the card to keep
    inside = [link for link in links if not link.startswith("data:")]
    assert len(inside) >= 5 and all(link.startswith("#") and f'id="{link[1:]}"' in page for link in inside)


def test_it_shows_a_run_one_that_fails_and_its_cure(page: str) -> None:
    frame = FRAME.search(page)
    assert frame is not None and page.count("<iframe") == 1 and "the longest chain" in html.unescape(frame[0])
    assert "<script" not in page.replace(frame[0], "")
    assert "deadlock: no rank can ever go on" in page
    wrong, right = re.search("<del>(.*?)</del><ins>(.*?)</ins>", page).groups()  # type: ignore[union-attr]
    source = (ROOT / "solutions" / "build" / "pages" / "shown.py").read_text(encoding="utf-8")
    assert wrong[0] == "-" and right[0] == "+" and wrong[1:] in source and right[1:] in source and wrong != right
    assert "PASS" in page and "Puzzle 6: GPipe" in page


def test_it_is_small_and_needs_nothing(page: str) -> None:
    sheets = [path.read_text(encoding="utf-8") for path in SHEETS.values()]
    assert len(page.encode()) < LARGEST and all(len(sheet.encode()) < 100_000 for sheet in sheets)
    for text in (page, *sheets):
        assert FROM_ELSEWHERE.search(text) is None
        assert set(re.findall(r'https?://[^"< &]+', text)) <= {"http://www.w3.org/2000/svg"}


def test_a_sheet_has_the_colors_of_its_page_whatever_the_system_prefers() -> None:
    texts_ = {dark: path.read_text(encoding="utf-8") for dark, path in SHEETS.items()}
    for dark, text in texts_.items():
        used = set(re.findall(r'"(#[0-9a-f]{6})"', text))
        own, others = ({colors[one] for colors in ROLES.values()} for one in (dark, not dark))
        assert used.isdisjoint(others - own)
        assert {colors[dark] for name, colors in ROLES.items() if name in ("card", "ink", "mute", "lane")} <= used
        root = ElementTree.fromstring(text)
        assert {element.tag for element in root.iter()} <= {
            SVG + tag for tag in ("svg", "g", "path", "rect", "text", "style")
        }
        [sheet] = [element.text or "" for element in root.iter(SVG + "style")]
        assert "prefers-color-scheme" not in text and "#" not in sheet and "@media(max-width" in sheet  # for a phone
        written = [element.text for element in root.iter(SVG + "text")]
        inks = {element.get("fill") for element in root.iter(SVG + "text") if (element.text or "").startswith("rank ")}
        assert ROLES["ink"][dark] in inks
        assert {*hero.TITLES} <= {*written}
        for name in hero.HERO:
            assert show_ticks(solution_figures(puzzles()[name]).time) in written
        assert show_ticks(puzzles()[hero.HERO[-1]].frontier[0]["time"]) in written
    light, dark_ = (re.sub('"#[0-9a-f]{6}"', "", text) for text in texts_.values())
    assert light == dark_


def test_readme_shows_the_hero_in_both_colors() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    dark = r'<source media="\(prefers-color-scheme: dark\)" srcset="(.*?)">'
    shown = re.search(rf'<picture>\n{dark}\n<img alt="(.*?)" src="(.*?)">', readme)
    assert shown is not None and readme.index("<picture>") < readme.index("## Begin")
    assert (ROOT / shown[1], ROOT / shown[3]) == (SHEETS[True], SHEETS[False])
    assert len(shown[2]) > 40 and f"puzzles/{gallery.PAGE}" in readme


LOOK = """() => ({
    scrolled: document.documentElement.scrollWidth,
    back: getComputedStyle(document.body).backgroundColor,
    ink: [...new Set([...document.querySelectorAll("text.f-ink")].map(text => getComputedStyle(text).fill))],
    out: [...document.querySelectorAll("main > *:not(.still), section > *")].filter(element => {
        const place = element.getBoundingClientRect();
        return place.left < 0 || place.right > innerWidth || !place.height;
    }).length,
    drawn: [...document.querySelectorAll("svg.ltp")].map(svg => svg.getBoundingClientRect().width).filter(Boolean),
    letters: [...document.querySelectorAll("svg.ltp text")].filter(text => text.checkVisibility()
        && text.closest("svg").matches(":not(.part)")).map(text => {
            const svg = text.closest("svg"), scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            return [scale * parseFloat(getComputedStyle(text).fontSize), text.textContent]; }),
})"""


def seen_in(browser: Browser, width: int, **media: str) -> Any:
    """What is seen of the page that is in the folder, at this width, in light or dark, on a screen or on paper."""

    def look(page: Any) -> Any:
        page.emulate_media(**media)
        return page.evaluate(LOOK)

    return browser.visit((FOLDER / gallery.PAGE).as_uri(), look, width)


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (980, "dark")])
def test_it_fits_its_page(browser: Browser, width: int, scheme: Scheme) -> None:
    seen = seen_in(browser, width, color_scheme=scheme)
    assert seen["scrolled"] == width and seen["out"] == 0
    assert seen["ink"] == [rgb(ROLES["ink"][scheme == "dark"])]
    assert seen["back"] == ("rgb(13, 16, 21)" if scheme == "dark" else "rgb(255, 255, 255)")
    assert len(seen["drawn"]) >= len(SOLVED) + 4 and max(seen["drawn"]) <= width
    assert width > 600 or [letter for letter in seen["letters"] if letter[0] < 8] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_hinders_its_readers(browser: Browser, page: str, scheme: Scheme, tmp_path: Path) -> None:
    few = re.sub('<div class="one" id="(?!basic|gpipe).*?(?=<div class="one"|</section>)', "", page, flags=re.DOTALL)
    sight = browser.page(few, "() => null", scheme, 980)
    keep(sight.png, f"gallery-{scheme}", tmp_path)
    assert few.count('class="one"') == 2  # they are all alike
    assert sight.violations == {} and not [one for one in sight.requests if one != "about:srcdoc"]
    assert {"color-contrast", "svg-img-alt", "link-name"} <= sight.passed


def test_on_paper_it_is_light(browser: Browser) -> None:
    seen = seen_in(browser, 700, media="print", color_scheme="dark")
    assert (seen["ink"], seen["back"]) == ([rgb(ROLES["ink"][False])], "rgb(255, 255, 255)")
    assert seen["scrolled"] <= 700 and max(seen["drawn"]) < 700  # nothing can be scrolled there


def test_a_schedule_keeps_inside_and_says_its_memory() -> None:
    for rough in (0, 1):
        drawn = draw_schedule(staged_run(4, 4), rough)
        assert outside(drawn) == []
        assert {"memory", "peak 1.7M", "ticks"} <= set(texts(drawn))
        assert not any("target" in text for text in texts(drawn))
    assert len(draw_schedule(staged_run(8, 32), 1).svg()) < len(draw_schedule(staged_run(8, 32)).svg()) / 3


def test_a_puzzle_without_its_line_in_the_overview_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("solutions", "puzzles", "lib"):
        (tmp_path / folder).mkdir()
    sources = {"tour.py": TOUR, "p04_fsdp.py": PUZZLE, "index.py": "# %% [markdown]\n# # It\n"}
    for name, text in sources.items():
        (tmp_path / "solutions" / name).write_text(text, encoding="utf-8")
    assert main([], tmp_path) == 2
    assert "index.py: a line with a link is needed for fsdp" in capsys.readouterr().err
    line = "# 4. [FSDP](p04_fsdp.ipynb): no GPU has\n#    a *whole* gradient\n#\n# More.\n"
    (tmp_path / "solutions" / "index.py").write_text(sources["index.py"] + line, encoding="utf-8")
    assert main([], tmp_path) == 0
    known = json.loads((tmp_path / "lib" / "specs.json").read_text(encoding="utf-8"))
    assert known["fsdp"]["idea"] == "no GPU has a *whole* gradient"
