"""Pictures as a reader sees them: in a real browser, on light and dark pages. Skipped where there is none."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest
from nbconvert import HTMLExporter

from drawing import compare, draw, draw_group, draw_primitive, play
from drawing.ink import theme
from drawing.ink.svg import READABLE
from lib import Activation, OptState, Weight
from tests.browser import Browser, Scheme, keep, rgb
from tests.drawing_events import sharded_run, staged_run, texts
from tests.failures import CASES, failed

WIDTH = 900
"""Of the page, in pixels: less than the pictures would like to have."""
FEW = 100
"""Something empty has fewer colors; a picture has many, since the edges of its letters are mixed."""

MEASURE = """() => {
    const picture = document.querySelector("svg.ltp:not(.narrow)"), place = picture.getBoundingClientRect();
    const colors = {};
    for (const [letter, property] of [["f", "fill"], ["s", "stroke"]])
        for (const element of picture.querySelectorAll("[class]"))
            for (const name of element.classList)
                if (name.startsWith(letter + "-"))
                    (colors[name] ??= new Set()).add(getComputedStyle(element)[property]);
    return {
        left: place.left, right: place.right, height: place.height,
        scrolled: document.documentElement.scrollWidth,
        colors: Object.fromEntries(Object.entries(colors).map(([name, found]) => [name, [...found]])),
        words: document.querySelector(".ltp-words")?.checkVisibility() ?? false,
        ink: [...new Set([...picture.querySelectorAll("text.f-ink")].map(text => getComputedStyle(text).fill))],
    };
}"""


class Host(NamedTuple):
    """A page: what the system prefers, how the notebook marks its own theme, and which of both is to be seen."""

    scheme: Scheme
    seen: Scheme
    body: str = ""
    html: str = ""


HOSTS = {
    "light": Host("light", "light"),
    "dark": Host("dark", "dark"),
    "jupyter-dark": Host("light", "dark", 'data-jp-theme-light="false"'),
    "jupyter-light-on-dark": Host("dark", "light", 'data-jp-theme-light="true"'),
    "vscode-dark": Host("light", "dark", 'class="vscode-dark"'),
    "vscode-light-on-dark": Host("dark", "light", 'class="vscode-light"'),
    "colab-dark": Host("light", "dark", html='theme="dark"'),
    "colab-light-on-dark": Host("dark", "light", html='theme="light"'),
}
GROUP = {
    "weights": {layer: Weight(layer, 12, 0) for layer in range(12)},
    "opt_states": {layer: OptState(layer, 12, 0, [layer % 4], 4) for layer in range(12)},
    "activations": {0: Activation(2, 12, [3], 4)},
}
PICTURES: dict[str, Callable[[], str]] = {
    "fsdp": lambda: draw(sharded_run())._repr_html_(),
    "pipeline": lambda: draw(staged_run(), time_target=99, memory_target=99)._repr_html_(),
    "chain": lambda: draw(staged_run(), chain=True)._repr_html_(),
    "large": lambda: draw(sharded_run(32, 30))._repr_html_(),
    "compare": lambda: compare(sharded_run(4, 2, node_size=2), staged_run())._repr_html_(),
    "group": lambda: draw_group(GROUP)._repr_html_(),
    "failed": lambda: draw(failed(CASES[0]).run)._repr_html_(),
    "deadlock": lambda: draw(failed(CASES[-1]).run)._repr_html_(),
    "primitive": lambda: draw_primitive("scatterreduce")._repr_html_(),
}


@pytest.mark.parametrize(
    ("picture", "host"),
    [(picture, host) for picture in PICTURES for host in HOSTS if picture in ("fsdp", "group") or "-" not in host],
)
def test_a_picture_on_a_page(browser: Browser, picture: str, host: str, tmp_path: Path) -> None:
    scheme, seen, body, html = HOSTS[host]
    sight = browser.show(PICTURES[picture](), MEASURE, scheme, seen, WIDTH, html, body)
    keep(sight.png, f"{picture}-{host}", tmp_path)

    measured = sight.measured
    assert 0 <= measured["left"] < measured["right"] <= WIDTH
    assert measured["height"] > 50
    assert measured["scrolled"] == WIDTH

    dark = seen == "dark"
    assert measured["ink"] == [rgb(theme.ROLES["ink"][dark])]
    assert measured["colors"] == {name: [rgb(theme.ROLES[name[2:]][dark])] for name in measured["colors"]}
    assert {"f-ink", "f-mute", "f-card"} <= measured["colors"].keys()
    assert not measured["words"]

    assert sight.colors > FEW
    assert sight.requests == []
    assert sight.violations == {}
    assert "svg-img-alt" in sight.passed


def test_a_static_picture_fits_and_has_words(browser: Browser, tmp_path: Path) -> None:
    measure = """() => [...document.images].map(image => [image.naturalWidth, image.width, image.alt])"""
    figure = draw(staged_run(), static=True)
    sight = browser.show(figure._repr_html_(), measure, width=WIDTH)
    keep(sight.png, "static", tmp_path)
    [[natural, width, alt]] = sight.measured
    assert natural == figure.size[0] > WIDTH >= width
    assert alt == figure.summary
    assert sight.colors > FEW
    assert sight.violations == {}
    assert "image-alt" in sight.passed


SEEN = """() => [...document.querySelectorAll('svg text')].filter(text => text.getBoundingClientRect().height)
    .map(text => [text.textContent, parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a])"""


@pytest.mark.parametrize("width", [360, 540])
def test_an_image_keeps_its_words_in_a_narrow_place(browser: Browser, width: int) -> None:
    """Its media queries ask for the size of an image's box, as those of a page do for that of its window."""
    figure = compare(sharded_run(4, 2), staged_run(), static=True)
    source = re.search('base64,([^"]*)', figure.image())
    assert source is not None and figure.narrow is not None
    sight = browser.show(base64.b64decode(source[1]).decode(), SEEN, width=width)
    assert {text for text, _ in sight.measured} >= {*texts(figure.narrow)}
    assert min(size for _, size in sight.measured) >= READABLE


VISIBLE = "() => document.querySelector('main').innerText.trim().split('\\n').filter(Boolean)"


def sanitized(html: str) -> str:
    """As JupyterLab leaves an output of a notebook that is not trusted: its sanitizer discards the tags that it does
    not know and keeps the text in them, but for that of styles; ``hidden`` stays where it has a value."""
    html = re.sub(r"<(style|script)\b.*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"</?(?:svg|g|title|path|rect|text|iframe)\b[^>]*>", "", html)


def test_words_stay_where_a_picture_is_taken_out(browser: Browser) -> None:
    figure = draw(staged_run())
    output = sanitized(figure._repr_html_())
    assert "rank 0: forward" in output  # what is left of the picture, and must not be seen
    shown = (output, figure._repr_html_() + output + output)
    alone, beside = (browser.show(html, VISIBLE, judged=False).measured for html in shown)
    assert len(alone) == 2
    assert alone[0] == "A notebook"
    assert alone[1].startswith(figure.summary)
    assert "static=True" in alone[1]
    # a picture that is shown on the same page brings its style sheet, which must change nothing for the others
    assert [line for line in beside if line.startswith(figure.summary)] == [alone[1]] * 2
    assert not any("memory when issued" in line for line in beside)


STANDS = (
    """() => ["img", "p", "iframe"].map(tag => document.querySelector("main " + tag)?.checkVisibility() ?? false)"""
)


def test_a_picture_stays_where_a_player_is_taken_out(browser: Browser, tmp_path: Path) -> None:
    output = play(staged_run())._repr_html_()
    sight = browser.show(sanitized(output), STANDS)
    keep(sight.png, "player-taken-out", tmp_path)
    assert sight.measured == [True, True, False] and sight.colors > FEW and sight.violations == {}
    assert browser.show(output, STANDS, judged=False).measured == [False, False, True]


@pytest.mark.parametrize(("kind", "template"), [("live", "lab"), ("static", "classic")])
def test_a_report_shows_the_picture_and_a_sanitized_one_words(browser: Browser, kind: str, template: str) -> None:
    figure = draw(staged_run(), static=kind == "static")
    output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": figure._repr_html_()}}
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": 1, "source": "", "outputs": [output]}
    notebook = nbformat.from_dict({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    look = """() => [document.querySelector(".jp-OutputArea-output, .output_subarea").innerText.trim(),
        [...document.querySelectorAll("svg.ltp, img")].filter(one => one.checkVisibility()).length]"""
    for sanitize in (False, True):
        made = HTMLExporter(template_name=template, sanitize_html=sanitize).from_notebook_node(notebook)[0]
        text, pictures = browser.page(made, look).measured
        if kind == "live" and sanitize:
            assert (text.startswith(figure.summary), pictures) == (True, 0)
            assert "&lt;" not in text and "<svg" not in text
        elif kind == "live":
            assert pictures == 1


PLAY = """async () => {
    const frame = document.querySelector("iframe");
    while (frame.contentDocument?.readyState !== "complete" || !frame.contentDocument.querySelector("#ranks li"))
        await new Promise(resolve => setTimeout(resolve, 20));
    const inside = frame.contentDocument, seen = [];
    const texts = what => [...inside.querySelectorAll(what)].map(one => one.innerText.replace(/\\s+/g, " ").trim());
    const note = () => seen.push([texts("#clock")[0], texts("#ranks em"), texts("#code .at")]);
    const pressed = key => new frame.contentWindow.KeyboardEvent("keydown", {key, bubbles: true});
    const press = key => inside.querySelector("#player").dispatchEvent(pressed(key));
    press("Home"); note();
    press("ArrowRight"); note();
    press("ArrowRight"); note();
    press("ArrowLeft"); note();
    press("End"); note();
    press("Home"); note();
    const scrub = inside.querySelector("#scrub");
    scrub.value = 500; scrub.dispatchEvent(new frame.contentWindow.Event("input")); note();
    press(" "); const playing = inside.querySelector("#play").textContent;
    await new Promise(resolve => setTimeout(resolve, 200));
    press(" "); note();
    return {seen, playing, stopped: inside.querySelector("#play").textContent,
        width: frame.getBoundingClientRect().right,
        height: frame.clientHeight - inside.documentElement.scrollHeight,
        scrolled: inside.documentElement.scrollWidth - inside.documentElement.clientWidth};
}"""


FOLLOWS = """async () => {
    const frame = document.querySelector("iframe");
    while (frame.contentDocument?.readyState !== "complete" || !frame.contentDocument.querySelector("#ranks li"))
        await new Promise(resolve => setTimeout(resolve, 20));
    const inside = frame.contentDocument, seen = [];
    const note = async () => {
        await new Promise(resolve => setTimeout(resolve, 50));
        const of = (what, how) => frame.contentWindow.getComputedStyle(inside.querySelector(what))[how];
        seen.push([of("#ranks li", "backgroundColor"), of(".veil", "backgroundColor"), of("#clock", "color")]);
    };
    await note();
    for (const light of ["false", "true"]) { document.body.dataset.jpThemeLight = light; await note(); }
    return seen;
}"""


def test_the_player_follows_a_change_of_theme(browser: Browser) -> None:
    shown = play(staged_run(2, 2))._repr_html_()
    light, dark, again = browser.show(shown, FOLLOWS, body='data-jp-theme-light="true"', judged=False).measured
    assert light == again and light[:2] == ["rgb(255, 255, 255)"] * 2 and dark[:2] == ["rgb(22, 25, 31)"] * 2
    assert dark[2] != light[2]


@pytest.mark.parametrize("host", ["jupyter-dark"])
def test_the_player_plays(browser: Browser, host: str, tmp_path: Path) -> None:
    scheme, seen, body, html = HOSTS[host]
    made = staged_run(2, 2)
    sight = browser.show(play(made)._repr_html_(), PLAY, scheme, seen, WIDTH, html, body)
    keep(sight.png, f"player-{host}", tmp_path)
    measured = sight.measured
    start, one, two, back, end, home, middle, played = measured["seen"]
    assert [row[0] for row in (start, one, two, back, end, home)] == [
        "tick 0", "tick 1", "tick 1.2", "tick 1", "tick 7.7", "tick 0",
    ]  # fmt: skip
    assert start[1] == ["forward layer 0, mb 0", "waits for rank 0"]
    assert two[1] == ["forward layer 0, mb 1", "receive from rank 0"]
    assert end[1] == ["done", "done"]
    assert ["model.forward(" in line for line in start[2]].count(True) == 1
    assert any(re.match(r"1 \d+ .*model\.receive", line) for line in start[2]), start[2]
    assert float(middle[0].split()[1]) == pytest.approx(made.time / 2, abs=0.01)
    assert float(played[0].split()[1]) > float(middle[0].split()[1])
    assert (measured["playing"], measured["stopped"]) == ("Pause", "Play")
    assert measured["width"] <= WIDTH
    assert measured["scrolled"] <= 0
    assert measured["height"] >= 0
    assert sight.violations == {}
    assert sight.requests in ([], ["about:srcdoc"])


def test_a_picture_that_does_not_shrink_is_wider_than_the_page(browser: Browser) -> None:
    assert browser.show(draw(sharded_run()).svg(), MEASURE, judged=False).measured["scrolled"] > WIDTH


def test_a_picture_without_words_is_a_violation(browser: Browser) -> None:
    figure = draw(sharded_run())
    wordless = figure.svg(fluid=True).replace(" aria-label=", " data-words=")
    bare = wordless.replace("<title>", "<desc>").replace("</title>", "</desc>")
    assert browser.show(bare).violations.keys() == {"svg-img-alt"}


def test_an_empty_picture_has_few_colors(browser: Browser) -> None:
    assert browser.show('<svg class="ltp" width="300" height="300"></svg>').colors <= FEW


def test_what_a_page_wants_to_load_is_seen(browser: Browser) -> None:
    assert browser.show('<img alt="none" src="https://example.invalid/a.png">').requests != []
