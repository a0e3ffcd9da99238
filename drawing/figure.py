"""A chalk diagram of known size that shows itself in a notebook as one scalable picture."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from chalk.core import Compose

from .marks import Diagram, box_envelope
from .svg import svg


class Figure(Compose):
    """A picture. Still a chalk Diagram: put it beside others, scale it, render it with chalk.

    ``size``: width and height in pixels; ``summary``: the picture in words, for those who cannot see it.
    """

    # IPython would store a second copy, rendered by chalk: of fixed size, black on black in dark themes.
    _repr_svg_: Any = None

    def __init__(self, parts: Iterable[Diagram], width: float, height: float, summary: str) -> None:
        super().__init__(box_envelope(0, 0, width, height), list(parts))
        self.size, self.summary = (width, height), summary

    def __repr__(self) -> str:
        return self.summary

    def svg(self, fluid: bool = False) -> str:
        """The picture as the text of an SVG file; ``fluid`` makes it shrink with the page it is part of."""
        return svg(self.diagrams, self.size, self.summary, fluid)

    def _repr_html_(self) -> str:
        return self.svg(fluid=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an SVG file."""
        _write(path, self.svg())

    def render_svg(
        self,
        path: str,
        height: int | None = None,
        width: int | None = None,
        draw_height: int | None = None,
    ) -> None:
        """Chalk's name for ``save``. ``width`` or ``height``: pixels in which the file shows itself."""
        ratio = self.size[0] / self.size[1]
        if width is not None:
            shown = (float(width), width / ratio)
        else:
            shown = (height * ratio, float(height)) if height else self.size
        _write(path, svg(self.diagrams, self.size, self.summary, shown=shown))


def _write(path: str | os.PathLike[str], text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
