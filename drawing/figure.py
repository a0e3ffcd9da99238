"""A chalk diagram of known size that shows itself in a notebook as one scalable picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chalk.core import Compose

from .marks import box_envelope
from .svg import to_svg


class Figure(Compose):  # type: ignore[misc]
    """A picture. Still a chalk Diagram: put it beside others, scale it, render it with chalk.

    ``size``: width and height in pixels; ``summary``: the picture in words.
    """

    # IPython would store a second copy, rendered by chalk: fixed size, black on black in dark themes.
    _repr_svg_ = None

    def __init__(self, parts: Sequence[Any], width: float, height: float, summary: str) -> None:
        super().__init__(box_envelope(0, 0, width, height), list(parts))
        self.size, self.summary = (width, height), summary

    def __repr__(self) -> str:
        return self.summary

    def to_svg(self, fluid: bool = False) -> str:
        """The picture as SVG text."""
        return to_svg(self.diagrams, *self.size, self.summary, fluid)

    def _repr_html_(self) -> str:
        return self.to_svg(fluid=True)

    def save(self, path: str | Path) -> None:
        """Write an SVG file."""
        Path(path).write_text(self.to_svg(), encoding="utf-8")
