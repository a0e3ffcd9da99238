"""Runs of one model that race: every figure is that of its run, and it plays only where pictures may move."""

import re
from functools import cache
from typing import Any

import pytest

from drawing import Figure, race
from drawing.beside.race import BETWEEN, CYCLE, LEFT, SECONDS, WIDE
from lib import Cost, PuzzleError, Run, run
from lib.record.events import MARKS
from solutions.build.pictures import race as built
from solutions.build.sources.files import ROOT
from solutions.p06_gpipe import gpipe
from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p30_dualpipe import in_halves
from tests.browser import Browser
from tests.drawing_events import SVG, outside, parse, texts
from tests.failures import CASES, failed

SHARED = ROOT / "puzzles" / "race.svg"
MOST = 80_000
"""Bytes of a picture at most."""
BAR = re.compile(r"([mM])(-?[\d.]+) (-?[\d.]+)h([\d.]+)")


@cache
def pair(batches: int = 8, ranks: int = 4) -> tuple[Run, Run]:
    size: dict[str, Any] = {"ranks": ranks, "layers": 2 * ranks, "batches": batches}
    return run(gpipe, **size), run(one_f_one_b, **size)


def lengths(figure: Figure) -> list[tuple[float, float, float]]:
    """The bars of the rows: where each begins, the middle of its row, and its length."""
    found = []
    for path in parse(figure).iter(SVG + "path"):
        x = y = 0.0
        bars = path.get("d", "") if path.get("fill") == "none" and path.get("class") != "s-card" else ""
        for relative, dx, dy, long in BAR.findall(bars):
            x, y = (x + float(dx), y + float(dy)) if relative == "m" else (float(dx), float(dy))
            found.append((x, y, float(long)))
            x += float(long)
    return found


def test_times_bubbles_and_peaks_are_those_of_the_runs() -> None:
    runs = pair()
    said = texts(race(*runs, titles=["GPipe", "1F1B"], notes=["first", "second"]))
    for one in runs:
        assert f"{one.time:.4g}" in said and f"{one.memory / 1e6:.3g}M" in said
    assert {"GPipe", "first", "1F1B", "second", "ticks", "bubble", "memory", "forward", "backward"} <= {*said}
    assert "* at other prices" not in " ".join(said)


def test_every_operation_has_a_bar_where_the_log_has_it() -> None:
    runs = pair()
    bars, until = lengths(race(*runs)), max(one.time for one in runs)
    work = [event for one in runs for event in one.events if event.kind not in MARKS and event.length]
    assert len(bars) == len(work)
    scale = (WIDE.right - LEFT) / until
    assert sorted(round(x) for x, *_ in bars) == pytest.approx(
        sorted(round(LEFT + event.start * scale) for event in work), abs=1
    )
    full = sum(max(event.length * scale - BETWEEN, event.length * scale / 2) for event in work)
    assert sum(long for *_, long in bars) == pytest.approx(full, rel=0.001)
    assert len({round(y, 1) for _, y, _ in bars}) == sum(one.ranks for one in runs)


def test_what_differs_is_said() -> None:
    size: dict[str, Any] = {"ranks": 4, "layers": 8, "batches": 8}
    plain, halves = Cost(backward=2), {"half": 2, "place": 2}
    twice = run(in_halves, **size, mesh=halves, cost=plain)
    dearer = run(one_f_one_b, **size, cost=Cost(backward=2, send=0.5))
    pairs = run(in_halves, **size, mesh=halves, cost=Cost(backward=2, overlapped=1))
    said = " ".join(texts(race(run(gpipe, **size, cost=plain), twice, dearer, pairs, titles=[*"ABCD"])))
    assert "* each GPU begins with 2 times the weights" in said and "† at other prices: send=0.5" in said
    assert "‡ what overlaps saves 100% of the shorter one: Cost(overlapped=1)" in said
    assert "B *" in said and "C †" in said and "D * ‡" in said


@pytest.mark.parametrize("make", [lambda: race(*pair()), lambda: race(*pair(64, 16)), built.picture])
def test_it_is_small_and_nothing_is_outside(make: Any) -> None:
    figure = make()
    assert outside(figure) == [] and len(figure.svg()) < MOST


def test_no_name_and_no_figure_touches_the_rows_below_it() -> None:
    figure = built.picture()
    for shown in (figure, figure.narrow):
        assert shown is not None and outside(shown) == []
        rows = sorted({y for _, y, _ in lengths(shown)})
        words = [one for one in parse(shown).iter(SVG + "text") if one.get("font-size") in ("14", "15")]
        for one in words:
            base, tall = float(one.get("y", 0)), rows[1] - rows[0]
            assert all(base + 2 < y - tall / 2 or y + tall / 2 < base - 8 for y in rows) or shown is figure
        assert len(words) == 7 * 4 and "backward, also for the input" in texts(shown)


def test_where_nothing_moves_it_is_the_finish() -> None:
    root = parse(race(*pair()))
    hidden = [one.get("class", "") for one in root.iter(SVG + "g") if one.get("opacity") == "0"]
    assert len(hidden) == 2  # what covers the rows, and the line that goes over them
    moves = [one.text or "" for one in root.iter(SVG + "style") if "@keyframes" in (one.text or "")]
    assert len(moves) == 1 and moves[0].startswith("@media screen and (prefers-reduced-motion:no-preference){")
    classes = {one.get("class") for one in root.iter(SVG + "g")}
    assert set(re.findall(r"@keyframes (\w+)", moves[0])) <= classes


def test_two_on_one_page_do_not_move_each_other() -> None:
    names = [set(re.findall(r"@keyframes (\w+)", race(*runs).svg())) for runs in (pair(), pair(4))]
    assert names[0].isdisjoint(names[1])


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (lambda: pair()[:1], "two to 12 runs"),
        (lambda: (*pair(), pair(4)[0]), "runs of one model"),
        (lambda: (pair()[0], failed(CASES[-1]).run), "came to their end"),
        (lambda: (pair()[0], "gpipe"), "came to their end"),
    ],
)
def test_what_cannot_race_is_refused(runs: Any, says: str) -> None:
    with pytest.raises(PuzzleError, match=says):
        race(*runs())
    with pytest.raises(PuzzleError, match="a title for each run"):
        race(*pair(), titles=["one"])


MOVING = """at => {
    const all = document.getAnimations();
    all.forEach(one => { one.pause(); one.currentTime = 1000 * at; });
    const cover = document.querySelector("g[class$=c] > rect")?.getBoundingClientRect();
    const seen = [...document.querySelectorAll("g[class^=r]")].filter(one => one.querySelectorAll("text").length == 3);
    return {moves: all.length, left: cover?.left, width: document.querySelector("svg").getBoundingClientRect().width,
        shown: seen.map(one => Number(getComputedStyle(one).opacity))};
}"""


def test_all_fill_together_and_each_shows_its_figures_when_it_is_done(browser: Browser, tmp_path: Any) -> None:
    runs = pair(16)
    race(*runs).save(tmp_path / "race.svg")
    (tmp_path / "page.html").write_text((tmp_path / "race.svg").read_text("utf-8"), "utf-8")
    ends = [one.time / max(one.time for one in runs) for one in runs]
    moments = [0.02 * SECONDS, 0.5 * SECONDS, SECONDS * 0.97, SECONDS * 1.2, CYCLE - 1]

    def look(page: Any) -> Any:
        still = page.evaluate(MOVING, 0)
        page.emulate_media(reduced_motion="no-preference")
        return still, [page.evaluate(MOVING, at) for at in moments]

    still, moving = browser.visit((tmp_path / "page.html").as_uri(), look)
    assert still["moves"] == 0 and still["shown"] == [1, 1]
    for at, seen in zip(moments, moving, strict=True):
        assert seen["moves"] == 4
        if at < SECONDS:
            assert seen["left"] - 8 == pytest.approx(LEFT + (WIDE.right - LEFT) * at / SECONDS, abs=4)
        over = [round(one) for one in seen["shown"]]
        late = [int(at > SECONDS * end + 0.1) for end in ends]
        assert over == late
    assert moving[-1]["shown"] == [1, 1]


def test_the_one_that_the_project_begins_with_is_that_of_its_runs() -> None:
    shown = SHARED.read_text(encoding="utf-8")
    runs = built.side_by_side()
    assert len(shown) < MOST and "prefers-color-scheme:dark" in shown
    for row in built.ROWS:
        assert bool(row.note) == (f">{row.title}" in shown)
        if row.note:
            assert f">{runs[row.title].time:g}<" in shown and f">{runs[row.title].memory / 1e6:.3g}M<" in shown
    assert "* each GPU begins with 2 times the weights" in shown and "saves 100% of the shorter one" in shown
