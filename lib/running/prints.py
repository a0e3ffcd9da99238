"""Whose print is it? What a rank prints during a run begins with its rank and its clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..basics.errors import PuzzleError
from ..learner.model import Model


class Labelled:
    """A stdout that puts ``[rank 2, tick 3.3]`` before each print while ``current()`` names a rank."""

    def __init__(self, current: Callable[[], Model | None]) -> None:
        outer = sys.stdout  # that of another run, where a rank runs something itself: only the inner rank is named
        self.stream: Any = outer.stream if isinstance(outer, Labelled) else outer
        self.current = current
        self.writer: Model | None = None
        self.fresh = True  # whether the next character begins a line

    def write(self, text: str) -> int:
        """Write the text; a rank that goes on where another has not ended its line begins a new one."""
        model = self.current()
        if model is not None and text:
            if not self.fresh and model is not self.writer:
                self.stream.write("\n")
                self.fresh = True
            if self.fresh and not text.startswith("[rank "):
                self.stream.write(label(model) + " ")
        if text:
            self.writer, self.fresh = model, text.endswith("\n")
        self.stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def label(model: Model) -> str:
    """``[rank 2, tick 3.3]``: who, and when by its own clock."""
    try:
        return f"[rank {model.rank}, tick {model.time:g}]"
    except PuzzleError:  # the run is over, and somebody prints still
        return f"[rank {model.rank}]"
