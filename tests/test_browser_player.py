"""The page that plays a schedule, in a real browser: keys, focus, lines in sight, contrast, narrow pages."""

import base64
from bisect import bisect
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from drawing import play
from drawing.ink import theme
from drawing.playing.player import Player
from drawing.small.holds import contents_of, moving
from lib import Run
from lib.record.events import MARKS
from lib.record.figures.chain import chain_of
from tests.browser import PAGE, Browser, Frame, Page, Scheme, keep
from tests.drawing_events import chain, sharded_run, staged_run, trace
from tests.failures import CASES, failed

Result = TypeVar("Result")


def watch(
    browser: Browser, player: Player, folder: Path, work: "Callable[[Page], Result]", width: int = 980, **how: Any
) -> Result:
    """Do something with the saved page of a player."""
    player.save(folder / "player.html")
    return browser.visit((folder / "player.html").as_uri(), work, width, **how)


def failed_run(name: str) -> Run:
    return failed(next(case for case in CASES if case.fn.__name__ == name)).run


def clock(page: "Page | Frame") -> float:
    return float(page.inner_text("#clock").split()[-1])


def chosen(page: "Page | Frame") -> str:
    return page.inner_text("#ranks li.chosen button")


def to_the_start(page: "Page | Frame") -> None:
    """Go to tick 0 and rank 0, wherever the page has opened."""
    page.evaluate("() => { choose(0); go(0); }")


# -- keys ----------------------------------------------------------------------------------


def starts(made: Run, rank: int) -> list[float]:
    """When the operations of a rank begin that take time, and when the last of them ends."""
    own = [event for event in made.events if event.rank == rank and event.kind not in MARKS and event.length]
    return sorted({round(event.start, 2) for event in own} | {round(max(event.end for event in own), 2)})


def test_up_and_down_choose_a_rank_and_shift_goes_along_its_operations(browser: Browser, tmp_path: Path) -> None:
    made = staged_run(4, 2)

    def work(page: Page) -> tuple[list[str], list[float], list[float]]:
        to_the_start(page)
        names = [chosen(page)]
        for key in ("ArrowUp", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
            page.keyboard.press(key)
            names.append(chosen(page))
        assert clock(page) == 0
        on = []
        for _ in starts(made, 2):
            page.keyboard.press("Shift+ArrowRight")
            on.append(clock(page))
        back = []
        for _ in starts(made, 2):
            back.append(clock(page))
            page.keyboard.press("Shift+ArrowLeft")
        return names, on, back

    names, on, back = watch(browser, play(made), tmp_path, work)
    assert names == ["rank 0", "rank 0", "rank 1", "rank 2", "rank 3", "rank 3", "rank 2"]
    assert on == starts(made, 2) and back == on[::-1]


def test_keys_work_only_with_the_focus_and_never_scroll_the_page(browser: Browser, tmp_path: Path) -> None:
    """In a page that could be scrolled, as a notebook can be: above the player is something else that takes keys."""
    content = (
        f'<input id="other" aria-label="x">{play(staged_run(4, 2))._repr_html_()}<div style="height:3000px"></div>'
    )
    (tmp_path / "notebook.html").write_text(PAGE.format(html="", body="", colors="", content=content), encoding="utf-8")
    arrows = ["ArrowRight", "ArrowDown", "Shift+ArrowRight", "ArrowUp", "ArrowLeft"]
    keys = [*arrows, "End", "Home", "End", "Space", "Space"]

    def work(page: Page) -> tuple[list[Any], list[Any], list[float]]:
        [_, frame] = page.frames
        frame.wait_for_selector("#ranks li.chosen")
        to_the_start(frame)
        page.evaluate("scrollTo(0, 100)")
        without, within, scrolled = [], [], []
        page.focus("#other", timeout=1000)
        page.evaluate("scrollTo(0, 100)")
        for key in keys[:4]:
            page.keyboard.press(key)
            without.append((clock(frame), chosen(frame)))
        frame.click("#clock")
        page.evaluate("scrollTo(0, 100)")
        for key in keys:
            page.keyboard.press(key)
            within.append((clock(frame), chosen(frame)))
            scrolled.append(page.evaluate("scrollY"))
        return without, within, scrolled

    without, within, scrolled = browser.visit((tmp_path / "notebook.html").as_uri(), work, 980, 600)
    assert without == [(0.0, "rank 0")] * 4
    end = staged_run(4, 2).time
    assert [name for _, name in within[:4]] == ["rank 0", "rank 1", "rank 1", "rank 0"]
    assert within[0][0] > 0 and within[2][0] > within[1][0] > within[4][0] - 1
    assert [time for time, _ in within[5:8]] == pytest.approx([end, 0, end])
    assert scrolled == [100] * len(keys)


def test_after_a_click_into_the_code_or_on_a_card_keys_go_to_the_player(browser: Browser, tmp_path: Path) -> None:
    def work(page: Page) -> list[Any]:
        seen: list[Any] = []
        to_the_start(page)
        for place in ("#code", "#ranks li:nth-child(3) .held", "#picture svg text"):
            page.click(place)
            page.keyboard.press("Home")
            page.keyboard.press("ArrowRight")
            seen.append((clock(page), page.evaluate("document.activeElement.id"), chosen(page)))
        page.focus("#speed")
        before = clock(page)
        page.keyboard.press("ArrowDown")  # which is the list's own
        return [*seen, (clock(page) == before, chosen(page), page.input_value("#speed"))]

    code, card, picture, speed = watch(browser, play(staged_run(4, 2)), tmp_path, work)
    assert [code, card, picture] == [(1, "player", "rank 0"), (1, "player", "rank 2"), (1, "player", "rank 2")]
    assert speed == (True, "rank 2", "2")


# -- the picture ---------------------------------------------------------------------------

ROW = """() => {
    const box = what => document.querySelector(what).getBoundingClientRect();
    const middle = ({top, height}) => top + height / 2;
    const names = [...document.querySelectorAll("#picture text")].filter(text => /^rank \\d+$/.test(text.textContent));
    const own = names.find(text => text.textContent === document.querySelector("li.chosen button").textContent);
    const heads = [...document.querySelectorAll(".playhead")].map(line => line.getBoundingClientRect());
    return {
        off: middle(box("rect.chosen")) - middle(own.getBoundingClientRect()),
        memory: [...document.querySelectorAll("#memory text")].map(text => text.textContent),
        heads: heads.map(({left, right}) => (left + right) / 2),
        strip: [box("#memory rect").left, box("#memory rect").right],
        below: box("#memory rect").top > box("rect.chosen").bottom,
    };
}"""


def test_the_memory_of_the_chosen_rank_is_below_the_schedule_on_the_same_axis(browser: Browser, tmp_path: Path) -> None:
    made = staged_run(4, 4)

    def work(page: Page) -> list[dict[str, Any]]:
        seen = []
        to_the_start(page)
        for key in ("Home", "ArrowDown", "ArrowRight", "End"):
            page.keyboard.press(key)
            seen.append(page.evaluate(ROW))
        return seen

    seen = watch(browser, play(made), tmp_path, work)
    for at in seen:
        assert abs(at["off"]) < 8 and at["below"]
        assert at["heads"][0] == pytest.approx(at["heads"][1])
    assert [at["memory"][:2] for at in seen[:2]] == [["memory", "rank 0"], ["memory", "rank 1"]]
    assert seen[0]["heads"][1] == pytest.approx(seen[0]["strip"][0], abs=1.5)
    assert seen[3]["heads"][1] == pytest.approx(seen[3]["strip"][1], abs=1.5)
    peak = max(event.memory for event in made.events if event.rank == 1)
    assert seen[1]["memory"][3] == f"{peak / 1e6:.3g}M"


def test_what_each_gpu_holds_is_seen_at_the_moment_of_the_cursor(browser: Browser, tmp_path: Path) -> None:
    made = sharded_run(4)
    ticks, times = (0, 1.7, made.time), moving(contents_of(made))[1]
    count = "[...document.querySelectorAll('#cards .part')].filter(part => part.style.display !== 'none').length"
    look = f"({[*ticks]}).map(tick => {{ go(tick); return {count}; }})"
    seen = watch(browser, play(made), tmp_path, lambda page: list(page.evaluate(look)))
    assert seen == [sum(bisect(came, at) > bisect(went, at) for came, went in times) for at in ticks]


def test_a_click_into_a_row_chooses_its_rank_and_moment(browser: Browser, tmp_path: Path) -> None:
    def work(page: Page) -> tuple[str, float]:
        place = page.evaluate(
            "() => { const {left, top} = document.querySelector('#picture svg').getBoundingClientRect(),"
            " scale = document.querySelector('#picture svg').getBoundingClientRect().width / data.box.width,"
            " [y, height] = data.box.rows[2]; return [left + scale * (data.box.x0 + data.box.x1) / 2,"
            " top + scale * (y + height / 2)]; }"
        )
        page.mouse.click(*place)
        return chosen(page), clock(page)

    made = staged_run(4, 4)
    name, time = watch(browser, play(made), tmp_path, work)
    assert name == "rank 2" and time == pytest.approx(made.time / 2, abs=0.1)


# -- what is to come -----------------------------------------------------------------------

PIXELS = """async png => {
    const image = new Image();
    image.src = "data:image/png;base64," + png;
    await image.decode();
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    const pixel = (x, y) => [...context.getImageData(x, y, 1, 1).data].slice(0, 3);
"""
GROUNDS = f"""{PIXELS}
    const places = [[0.5, 0.5], [0.1, 0.3], [0.9, 0.3], [0.1, 0.7], [0.9, 0.7]];
    return [...document.querySelectorAll("#picture text.later")].map(text => {{
        const {{left, top, width, height}} = text.getBoundingClientRect();
        const colors = places.map(([x, y]) => pixel(left + x * width, top + y * height));
        const {{fill, fillOpacity, opacity}} = getComputedStyle(text);
        return {{fill: fill.match(/\\d+/g).map(Number), colors, strength: fillOpacity * opacity}};
    }});
}}"""


def look(page: Page, script: str) -> Any:
    """What a script makes of a screenshot."""
    return page.evaluate(script, base64.b64encode(page.screenshot(full_page=True)).decode())


def contrast(a: list[int], b: list[int]) -> float:
    return theme.contrast(*("#" + "".join(f"{channel:02x}" for channel in color[:3]) for color in (a, b)))


@pytest.mark.parametrize(("name", "scheme"), [("pipeline", "light"), ("fsdp", "dark"), ("deadlock", "dark")])
def test_what_is_to_come_can_be_read(browser: Browser, name: str, scheme: Scheme, tmp_path: Path) -> None:
    made = {"pipeline": staged_run, "fsdp": sharded_run, "deadlock": lambda: failed_run("other_order")}[name]()

    def work(page: Page) -> list[Any]:
        page.keyboard.press("Home")
        page.add_style_tag(content="#picture text.later { visibility: hidden }")
        return list(look(page, GROUNDS))

    found = watch(browser, play(made), tmp_path, work, scheme=scheme)
    assert len(found) >= 4
    for text in found:
        assert text["strength"] == 1
        assert min(contrast(text["fill"], color) for color in text["colors"]) >= 4.5, text


# -- the code ------------------------------------------------------------------------------

LINES = """() => {
    const code = document.querySelector("#code"), place = code.getBoundingClientRect();
    const busy = [...document.querySelectorAll("#code .at")].map(line => line.getBoundingClientRect());
    const bottom = place.top + code.clientTop + code.clientHeight;
    return {
        ranks: [...document.querySelectorAll("#code .at b")].map(one => one.textContent).join(" "),
        seen: busy.every(line => line.top >= place.top && line.bottom <= bottom + 0.5),
        apart: busy.every((line, at) => !at || line.top >= busy[at - 1].bottom - 0.5),
        page: scrollY, scrolled: code.scrollTop,
    };
}"""


def test_the_line_of_each_rank_stays_in_sight_and_only_the_code_is_scrolled(browser: Browser, tmp_path: Path) -> None:
    """In a box for twelve lines, of which the program has some forty."""
    made = staged_run(4, 4)

    def work(page: Page) -> list[dict[str, Any]]:
        page.add_style_tag(content="#code { max-height: 206px !important }")
        page.keyboard.press("Home")
        seen = [page.evaluate(LINES)]
        while clock(page) < round(made.time, 2):
            page.keyboard.press("ArrowRight")
            seen.append(page.evaluate(LINES))
        return seen

    seen = watch(browser, play(made), tmp_path, work, height=500)
    assert all(at["seen"] and at["apart"] and at["page"] == 0 for at in seen), seen
    assert len({at["scrolled"] for at in seen}) > 1
    assert {"0", "1", "2", "3"} <= {rank for at in seen for rank in at["ranks"].split()}


# -- a run that failed ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["other_order", "missing_await", "own_exception"])
def test_a_failed_run_says_its_error_and_its_line_at_its_end(browser: Browser, name: str, tmp_path: Path) -> None:
    made = failed_run(name)

    def work(page: Page) -> tuple[Any, ...]:
        page.wait_for_selector("#error")
        end = clock(page)
        wrong = [one.inner_text() for one in page.query_selector_all("#code .wrong")]
        cards = [one.inner_text() for one in page.query_selector_all(".now.stuck em")]
        said, own = page.inner_text("#error"), chosen(page)
        page.keyboard.press("ArrowLeft")
        return end, wrong, cards, said, own, clock(page), page.query_selector_all("#code .wrong")

    end, wrong, cards, said, own, before, none = watch(browser, play(made), tmp_path, work)
    assert end == pytest.approx(made.time, abs=0.01) and before < end and none == []
    failure = made.failure
    assert failure is not None
    assert failure.says in said and failure.line in said
    assert all(sentence in said for _, sentence in failure.sentences())
    text = failure.line.partition(": ")[2]
    assert any(text in line for line in wrong), (text, wrong)
    assert {f"waits {wait.what}" for wait in failure.waits} <= {*cards}
    assert own == f"rank {failure.place.rank}"


# -- what is seen at first, and all at the same time ----------------------------------------

SIGHT = """() => {
    const place = what => document.querySelector(what).getBoundingClientRect();
    const own = document.querySelector("#code .at.own").getBoundingClientRect();
    return {
        rows: data.rows.length, high: document.documentElement.scrollHeight,
        order: [place("#picture svg").bottom, place("#controls").top, place("#controls").bottom, own.top, own.bottom],
        part: data.opens / data.stop, busy: document.querySelectorAll("#ranks .now i:not([style*='width: 0'])").length,
    };
}"""


@pytest.mark.parametrize(("ranks", "width"), [(4, 860), (16, 989), (40, 989)])
def test_schedule_line_and_controls_are_seen_together_in_the_middle_of_a_run(
    browser: Browser, ranks: int, width: int, tmp_path: Path
) -> None:
    made = staged_run(ranks, ranks)
    seen = watch(browser, play(made), tmp_path, lambda page: page.evaluate(SIGHT), width, height=700)
    assert seen["rows"] == ranks
    assert seen["order"] == sorted(seen["order"]) and seen["order"][-1] <= 700 and seen["high"] <= 700
    assert 0.4 <= seen["part"] <= 0.6 and seen["busy"] > 0


@pytest.mark.parametrize("ranks", [4, 40])
def test_in_a_notebook_a_player_is_no_higher_than_a_small_screen(browser: Browser, ranks: int) -> None:
    """The frame is as high as its page, which takes no more than 690 pixels."""
    shown = play(staged_run(ranks, ranks))._repr_html_()
    look = """async () => {
        const frame = document.querySelector("iframe"), page = frame.contentDocument.documentElement;
        const end = performance.now() + 30000;
        while (performance.now() < end && frame.offsetHeight !== page.scrollHeight)
            await new Promise(requestAnimationFrame);
        return [frame.offsetHeight, page.scrollHeight];
    }"""
    for width in (733, 989):
        frame, page = browser.show(shown, look, width=width, judged=False).measured
        assert 400 < page <= frame <= 690


def test_why_now_goes_back_along_the_longest_chain_and_on_again(browser: Browser, tmp_path: Path) -> None:
    made = staged_run(4, 4)
    links = [came for came, _ in chain_of(made.events).links if came.length]

    def work(page: Page) -> list[list[tuple[float, str, bool]]]:
        def seen() -> tuple[float, str, bool]:
            return clock(page), chosen(page), "the longest chain" in page.inner_text("#reason")

        page.keyboard.press("End")
        back = []
        for at in range(len(links)):
            if at % 2:
                page.click("#why")
            else:
                page.keyboard.press("w")
            back.append(seen())
        assert "the chain begins here" in page.inner_text("#reason")
        on = []
        for _ in links[1:]:
            page.keyboard.press("Shift+W")
            on.append(seen())
        page.keyboard.press("ArrowLeft")
        assert page.inner_text("#reason") == ""
        return [back, on]

    way = [(round(event.start, 2), f"rank {event.rank}", True) for event in links]
    assert watch(browser, play(made), tmp_path, work) == [way[::-1], way[1:]]


# -- narrow pages, many ranks, no scripts --------------------------------------------------

NARROW = """() => {
    const sizes = [];
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode, on = text.parentElement;
        if (!text.textContent.trim() || !on.checkVisibility()) continue;
        if (on.closest("title, style, script, noscript, option")) continue;
        const size = parseFloat(getComputedStyle(on).fontSize);
        const scale = on.ownerSVGElement ? Math.hypot(on.getScreenCTM().a, on.getScreenCTM().b) : 1;
        sizes.push([size * scale, text.textContent]);
    }
    const place = what => document.querySelector(what).getBoundingClientRect();
    return {
        smallest: sizes.sort((a, b) => a[0] - b[0])[0], count: sizes.length,
        scrolled: document.documentElement.scrollWidth - innerWidth,
        below: place("#ranks").top - place("#code").bottom,
        wide: ["#controls", "#ranks", "#code", "#keys"].map(what => place(what).right),
        head: [place(".playhead").left, place("#picture").left, place("#picture").right],
        tags: document.querySelector("#tags").checkVisibility({visibilityProperty: true}),
        cut: [...document.querySelectorAll("#over > text")].filter(text => text.style.visibility !== "hidden"
            && place("#tags").right > text.getBoundingClientRect().left && text.getBoundingClientRect().right > 0),
    };
}"""


@pytest.mark.parametrize(("name", "scheme"), [("pipeline", "light"), ("failed", "dark")])
def test_a_narrow_page(browser: Browser, name: str, scheme: Scheme, tmp_path: Path) -> None:
    made = staged_run(8, 16) if name == "pipeline" else failed_run("missing_await")

    def work(page: Page) -> list[Any]:
        seen = []
        page.click("#keys summary")
        page.focus("#player")
        for key in ("Home", "End"):
            page.keyboard.press(key)
            seen.append(page.evaluate(NARROW))
        keep(page.screenshot(full_page=True), f"player-narrow-{name}-{scheme}", tmp_path)
        return seen

    for at, seen in enumerate(watch(browser, play(made), tmp_path, work, width=400, scheme=scheme)):
        assert seen["count"] > 50 and seen["smallest"][0] >= 9, seen["smallest"]
        assert seen["scrolled"] <= 0 and all(right <= 400 for right in seen["wide"])
        assert seen["below"] >= 0
        head, left, right = seen["head"]
        assert left <= head <= right  # the picture is scrolled along, within its own box
        assert seen["tags"] == bool(at) and not (at and seen["cut"])  # the names of its rows stay, and cut no other


def test_of_many_ranks_some_have_cards_and_one_can_choose_others(browser: Browser, tmp_path: Path) -> None:
    def work(page: Page) -> list[Any]:
        def cards() -> list[Any]:
            names = page.eval_on_selector_all("#ranks li button", "all => all.map(one => one.textContent)")
            said = page.inner_text("#more span")
            return [len(names), names[0], names[-1], chosen(page), said, page.evaluate("scrollY")]

        to_the_start(page)
        seen = [cards()]
        page.select_option("#more select", label="70")
        seen.append(cards())
        page.click("#clock")
        page.keyboard.press("ArrowDown")
        seen.append(cards())
        return seen

    ranks = trace(*(chain(rank, 4, offset=rank) for rank in range(100)))
    first, chose, down = watch(browser, play(ranks), tmp_path, work)
    assert first == [16, "rank 0", "rank 15", "rank 0", "Cards show 16 of 100: 0 to 15.", 0]
    assert chose == [16, "rank 55", "rank 70", "rank 70", "Cards show 16 of 100: 55 to 70.", 0]
    assert down == [16, "rank 56", "rank 71", "rank 71", "Cards show 16 of 100: 56 to 71.", 0]


def test_without_scripts_the_picture_remains(browser: Browser, tmp_path: Path) -> None:
    def work(page: Page) -> list[bool]:
        keep(page.screenshot(full_page=True), "player-without-scripts", tmp_path)
        return [page.is_visible(what) for what in ("#picture svg", "noscript p", "#controls", "#keys", "#below")]

    assert watch(browser, play(staged_run()), tmp_path, work, scripts=False) == [True, True, False, False, False]
