"""Pictures as a reader sees them: in a real browser, on light and dark pages. Skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from drawing import draw, draw_group, theme
from lib import Activation, OptState, Weight
from tests.browser import Browser, NoBrowser, Scheme
from tests.drawing_events import sharded_run

WIDTH = 900
"""Of the page, in pixels: less than the pictures would like to have."""
FEW = 100
"""Something empty has fewer colors; a picture has many, since the edges of its letters are mixed."""

MEASURE = """() => {
    const picture = document.querySelector("svg.ltp"), place = picture.getBoundingClientRect();
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
    "group": lambda: draw_group(GROUP)._repr_html_(),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        opened = Browser()
    except NoBrowser as why:
        pytest.skip(f"NOBODY LOOKED AT THE PICTURES: {why}. To have a browser: make browser")
    with opened:
        yield opened


def keep(png: bytes, name: str, folder: Path) -> None:
    """Write a screenshot where pytest keeps files, and where the environment's SCREENSHOTS says."""
    path = folder / f"{name}.png"
    path.write_bytes(png)
    if os.environ.get("SCREENSHOTS"):
        wanted = Path(os.environ["SCREENSHOTS"])
        wanted.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, wanted)


def rgb(color: str) -> str:
    """A color as a browser computes it.

    >>> rgb("#1a1d23")
    'rgb(26, 29, 35)'
    """
    return f"rgb({', '.join(str(int(color[at : at + 2], 16)) for at in (1, 3, 5))})"


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("picture", PICTURES)
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

    assert sight.colors > FEW
    assert sight.requests == []
    assert sight.violations == {}
    assert "svg-img-alt" in sight.passed


# -- that the looking itself sees ----------------------------------------------------------


def test_a_picture_that_does_not_shrink_is_wider_than_the_page(browser: Browser) -> None:
    assert browser.show(draw(sharded_run()).svg(), MEASURE).measured["scrolled"] > WIDTH


def test_a_picture_without_words_is_a_violation(browser: Browser) -> None:
    figure = draw(sharded_run())
    wordless = figure.svg(fluid=True).replace(" aria-label=", " data-words=")
    bare = wordless.replace("<title>", "<desc>").replace("</title>", "</desc>")
    assert browser.show(bare).violations.keys() == {"svg-img-alt"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_empty_picture_has_few_colors(browser: Browser, scheme: Scheme) -> None:
    assert browser.show('<svg class="ltp" width="300" height="300"></svg>', scheme=scheme).colors <= FEW


def test_what_a_page_wants_to_load_is_seen(browser: Browser) -> None:
    assert browser.show('<img alt="none" src="https://example.invalid/a.png">').requests != []
