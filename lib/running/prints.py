"""Whose print is it? What a rank prints during a run begins with its rank and its clock."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from ..basics.errors import PuzzleError
from ..learner.model import Model


@contextmanager
def labelled_prints(current: Callable[[], Model | None]) -> Iterator[None]:
    """Label what is printed while ``current()`` names a rank; what nobody in particular prints stays as it is."""
    outer = sys.stdout
    # A run inside a rank: only the inner rank is named.
    stream = outer.stream if isinstance(outer, Labelled) else outer
    with redirect_stdout(Labelled(stream, current)):
        yield


class Labelled:
    """A stream that puts ``[rank 2, tick 3.3]`` before each print of a rank."""

    def __init__(self, stream: Any, current: Callable[[], Model | None]) -> None:
        self.stream, self.current = stream, current
        self.writer: Model | None = None
        self.fresh = True
        """Whether the next character begins a line."""

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
