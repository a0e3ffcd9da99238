"""A chalk diagram of known size that shows itself in a notebook as one scalable picture, and pictures as files."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from chalk.core import Compose

from lib.basics.errors import PuzzleError

from .marks import Diagram, box_envelope
from .svg import NARROW, ONE_OF_TWO, body, escape, frame, image, only_narrow

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>:root{{color-scheme:light dark}}body{{margin:1em auto;max-width:1100px;padding:0 1em;
font:15px system-ui,sans-serif}}
h1.unseen{{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}}</style>
<body><main><h1{how}>{title}</h1>
{content}
</main></body></html>
"""

SWAP = (
    "<style>.ltp-words:has(+.ltp-live svg){display:none!important}"
    "div.ltp-live.lm-Widget.lm-mod-hidden:has(svg){display:block!important}</style>"
)
PLACE = "width:100%;container-type:inline-size"
"""The style of the place of a picture on a page: by its width the picture decides what there is room for."""
HIDDEN = (
    f'class="ltp-live hidden lm-Widget lm-mod-hidden" hidden="hidden" style="display:none;position:relative;{PLACE}"'
)
PHONE = 380.0
"""The width of what is drawn for narrow places, in pixels."""
INSTEAD = (
    "The picture is not shown, since this page takes pictures out of outputs. Run the cell again, or trust the "
    "notebook; with static=True a picture is an image that is shown everywhere."
)


def placed(picture: str) -> str:
    """Return a picture in a place of its own on a page."""
    return f'<div style="{PLACE}">{picture}</div>'


def swapped(picture: str, words: str) -> str:
    """Return a picture for a notebook. A page that removes it (an untrusted notebook, a sanitized report) shows
    ``words`` and what to do instead.

    A sanitizer that removes ``<svg>`` leaves the texts that were in it, but it removes ``<style>`` as well. So the
    picture is hidden in every way that some sanitizer keeps, with classes of JupyterLab and nbconvert among them, and
    only its style sheet shows it and hides the words. ``:has`` restricts that style sheet to its own output.
    """
    return f'<div class="ltp-words">{escape(words)} {INSTEAD}</div><div {HIDDEN}>{picture}{SWAP}</div>'


def page(title: str, content: str, titled: bool = True) -> str:
    """Return a complete HTML page. A picture says itself what it shows, so the heading above it is for those who cannot
    see it; a text is not ``titled`` and needs the heading."""
    return PAGE.format(title=escape(title), content=content, how=' class="unseen"' * titled)


def write(path: str | os.PathLike[str], formats: Mapping[str, Callable[[], str | bytes]]) -> None:
    """Write the format of a name's ending, all or nothing. Raise PuzzleError if it is unknown, or writing fails."""
    try:
        target = Path(path)
    except TypeError:
        raise PuzzleError("save takes the name of a file", where="save", got=repr(path)) from None
    if (make := formats.get(target.suffix.lower())) is None:
        raise PuzzleError(f"{target.name} has no known ending", where="save", expected=" or ".join(formats))
    made = make()
    try:
        target.write_bytes(made.encode() if isinstance(made, str) else made)
    except OSError as error:
        raise PuzzleError(f"{target} cannot be written: {error.strerror}", where="save") from None


class Figure(Compose):
    """A picture. It is a chalk Diagram: put it beside others, scale it, render it with chalk.

    ``size``: width and height in pixels; ``summary``: the picture in words, for those who cannot see it; ``title``: the
    title of its page; ``area``: the timeline of a schedule (left, top, right, bottom); ``rows``: the ranks, the top and
    the height of each row; ``room``: top and bottom of the empty room for a player; ``legend``: its legend, where that
    is a picture of its own; ``narrow``: the picture that is shown instead in a narrow place. A ``static`` picture shows
    itself in a notebook as an image without hover texts, which survives wherever notebooks are shown.
    """

    # IPython would store a second copy, rendered by chalk: of fixed size, black on black in dark themes.
    _repr_svg_: Any = None

    def __init__(
        self, parts: Iterable[Diagram], width: float, height: float, summary: str, static: bool = False, title: str = ""
    ) -> None:
        super().__init__(box_envelope(0, 0, width, height), list(parts))
        self.size, self.summary, self.static = (width, height), summary, static
        self.title = title or "A picture"
        self.area: tuple[float, float, float, float] | None = None
        self.rows: list[tuple[list[int], float, float]] = []
        self.room: tuple[float, float] | None = None
        self.legend: Figure | None = None
        self.narrow: Figure | None = None

    def __repr__(self) -> str:
        return self.summary

    @cached_property
    def _body(self) -> str:
        """The elements of the picture, written once however often it is shown."""
        return body(self.diagrams)

    def svg(self, fluid: bool = False) -> str:
        """Return the picture as SVG text. A ``fluid`` one shrinks with its page."""
        return frame(self._body, self.size, self.summary, fluid)

    def in_place(self) -> str:
        """Return the picture for a place of any width on a page."""
        slim = self.narrow
        if slim is None:
            return self.svg(fluid=True)
        wide = frame(self._body, self.size, self.summary, fluid=True, only_wide=True)
        return f"{only_narrow(slim._body, slim.size, self.summary)}{wide}<style>{ONE_OF_TWO}</style>"

    def _repr_html_(self) -> str:
        if not self.static:
            return swapped(self.in_place(), self.summary)
        return self.image()

    def image(self) -> str:
        """Return the picture as an image without hover texts, which no page takes out."""
        (width, height), slim, high = self.size, self.narrow, "auto"
        if slim is not None:
            tall = 100 * slim.size[1] / slim.size[0]
            high = f"min({height:.0f}px,{100 * height / width:.2f}cqw)"
            high = f"max({high},min({tall:.2f}cqw,({NARROW:g}px - 100cqw)*999))"
        drawn = image(self._body, self.size, *((slim._body, slim.size) if slim is not None else ()))
        source = base64.b64encode(drawn.encode()).decode()
        how = f'width="{width:.0f}" style="max-width:100%;height:{high}" src="data:image/svg+xml;base64,{source}"'
        shown = f'<img alt="{escape(self.summary)}" {how}>'
        return shown if slim is None else placed(shown)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file: ``.svg``, or ``.html`` for a page with hover texts. Raise PuzzleError if that fails."""
        write(path, {".svg": self.svg, ".html": lambda: page(self.title, placed(self.in_place()))})


def at_any_width(draw: Callable[[Any], Figure], wide: Any, slim: Any, static: bool = False) -> Figure:
    """Return ``draw(wide)``, which in a narrow place is ``draw(slim)``, unless it has room there itself."""
    figure = draw(wide)
    figure.static = static
    if figure.size[0] > PHONE:
        figure.narrow = draw(slim)
    return figure
