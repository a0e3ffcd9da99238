"""The gallery: every solution is in it, its links lead somewhere, and it is read on phones, in the dark, on paper."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from drawing.ink.theme import ROLES
from lib.basics.units import TICKS, show_elements
from lib.course.specs import puzzles
from solutions.build.__main__ import main
from solutions.build.pages import gallery, shared
from solutions.build.pages.families import FAMILIES, families
from solutions.build.pages.gallery_page import LEAD, SHARED, head
from solutions.build.pictures.schedules import draw_schedule
from solutions.build.runs.course import Course
from solutions.build.sources.files import ROOT
from solutions.build.sources.overview import sentences
from tests.browser import Browser, Scheme, keep, rgb
from tests.drawing_events import outside, staged_run, texts
from tests.test_build import PUZZLE, TOUR

FOLDER = ROOT / "puzzles"
LARGEST = 1_700_000
"""Bytes of the page."""
FROM_ELSEWHERE = re.compile(
    r"<link(?! rel=\"icon\" href=\"data:)|\ssrc=\"(?!data:)|foreignObject|@import|@font-face|url\(|javascript:",
    re.IGNORECASE,
)
"""What neither the page nor the pictures may have: they need nothing from elsewhere."""
FRAME = re.compile(r"<iframe [^>]*>")
SOLVED = [puzzle for puzzle in puzzles().values() if not puzzle.repair]


@pytest.fixture(scope="module")
def page() -> str:
    return (FOLDER / gallery.PAGE).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def drawn() -> list[Any]:
    """The families, with the runs that the page shows."""
    return [*families(Course([*puzzles().values()]), SOLVED)]


def schedules(page: str) -> dict[str, str]:
    """The schedules of the page, with their texts, by the names of their puzzles."""
    found = page.split('<div class="one" id="')[1:]
    return {one.partition('"')[0]: one.partition('">')[2] for one in found}


def test_every_solution_is_in_it_with_its_figures_and_its_sentence(page: str, drawn: list[Any]) -> None:
    shown, said = schedules(page), sentences(ROOT / "solutions")
    assert sorted(shown) == sorted(puzzle.name for puzzle in SOLVED)
    for puzzle, done in (one for _, own in drawn for one in own):
        words = re.sub("<[^>]+>", "", shown[puzzle.name].partition("<svg")[0])
        figures = f"{TICKS.brief(done.time)} ticks, {show_elements(done.memory)} elements"
        figures = f"{done.time:.4g} s, {done.memory / 1e9:.3g} GB" if puzzle.name == "compose" else figures
        assert words.startswith(f"\n{puzzle.number}. {puzzle.title}\n") and figures in words
        assert said[puzzle.name][1:].strip("*.") in words.replace("&quot;", '"') or "*" in said[puzzle.name]
        forms = re.findall('<svg[^>]* class="ltp ([a-z]+)"', shown[puzzle.name])  # one of them is seen
        assert sorted(forms) == ["narrow", "wide"] and f"{done.ranks} rank" in words
    assert len({one.partition("<svg")[2] for one in shown.values()}) == len(shown)


def test_what_stands_together_can_be_compared_or_says_that_it_can_not(page: str, drawn: list[Any]) -> None:
    assert sorted(puzzle.name for _, own in drawn for puzzle, _ in own) == sorted(puzzle.name for puzzle in SOLVED)
    shown = schedules(page)
    for family, own in drawn:
        told = page.partition(f"<h3>{family.title}</h3>")[2].partition("</p>")[0]
        assert told and len(own) > 1 and ("compare them" in told) == bool(family.names)
        together = [(puzzle.name, done) for puzzle, done in own if puzzle.name in family.names]
        assert len({(one.ranks, one.layers, one.batches, one.experts, one.node_size, one.cost, one.train) for _, one in
                    together}) == bool(together)  # fmt: skip
        scaled = [shown[name] for name, _ in together if name not in family.alone]
        scales = {re.findall(r'<text x="([\d.]+)"[^>]*>([\d.]+)</text>', one)[-1] for one in scaled}
        assert len(scales) == bool(together), (family.title, scales)  # the last figure of the axis, and where it is
        for puzzle, _ in own:
            says = "a model and prices of its own" in shown[puzzle.name].partition("<svg")[0]
            assert says == (bool(family.names) and puzzle.name in family.apart)
            own = "a scale of its own" in shown[puzzle.name].partition("<svg")[0]
            assert own == (puzzle.name in family.alone)
    assert sum(len(family.names) for family in FAMILIES) > 0.6 * len(SOLVED)


def test_its_links_lead_to_what_is_there(page: str) -> None:
    links = re.findall(r'href="([^"]*)"', page)
    assert sum(link.startswith("data:image/svg+xml;base64,") for link in links) == 1  # the card to keep
    inside = [link for link in links if not link.startswith("data:") and link != "board.html"]
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
    board = (FOLDER / "board.html").read_text(encoding="utf-8")
    assert len(page.encode()) < LARGEST and len(board.encode()) < 90_000
    for text in (page, board, (FOLDER / gallery.RACE).read_text(encoding="utf-8")):
        assert FROM_ELSEWHERE.search(text) is None
        assert set(re.findall(r'https?://[^"< &]+', text)) <= {"http://www.w3.org/2000/svg"}


def test_the_first_screen_says_what_this_is_plays_something_and_has_one_button(page: str) -> None:
    first = page.partition("<main>")[2].partition("<h2")[0]
    assert LEAD in first and first.count("<svg") == 2 and first.count("ltp wide") == 1 and "@keyframes" in first
    assert page.count('class="begin"') == 1 and re.findall(r'<nav class="begin".*?</nav>', page)[0].count("<a ") == 1


def test_other_sites_are_told_what_it_is() -> None:
    told = head("https://github.com/Some/one")
    assert f'<meta name="description" content="{html.escape(LEAD)}">' in told and 'rel="icon"' in told
    assert f'property="og:image" content="https://some.github.io/one/{SHARED}"' in told
    assert f'property="og:image" content="{SHARED}"' in head("")


def test_the_photograph_is_of_the_race_that_there_is(tmp_path: Path) -> None:
    place = FOLDER / SHARED
    assert place.read_bytes()[:4] == b"\x89PNG" and place.stat().st_size < 300_000
    assert shared.marked(place) == shared.mark((FOLDER / gallery.RACE).read_bytes())  # else: make browser, make build
    assert shared.photograph(ROOT) == "" and shared.photograph(tmp_path) == ""


def test_readme_shows_the_race() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search('<img alt="(.*?)" src="(.*?)">', readme)
    assert shown is not None and shown.start() < readme.index("## Begin")
    assert ROOT / shown[2] == FOLDER / gallery.RACE
    assert len(shown[1]) > 40 and f"puzzles/{gallery.PAGE}" in readme


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


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
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
