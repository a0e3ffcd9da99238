"""Which right run a run is compared with: the nearest one, at the same size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..course.layouts import Size
from ..machine.cost import Cost
from .compare import Comparison
from .notes import Notes, noted


@dataclass(frozen=True)
class Reference:
    """The recording of a right run of a puzzle at a size, on a machine with these costs."""

    name: str
    recording: Mapping[str, Any]
    size: Size
    cost: str | Cost

    @cached_property
    def notes(self) -> Notes:
        """The notes of the run."""
        return noted(self.recording, self.size, self.cost)


def nearest(notes: Notes, references: Sequence[Reference]) -> tuple[str, Comparison | None]:
    """Return the name of the right run that is nearest to this one, or the first of these, and the two side by side."""
    pairs = [(one.name, Comparison(notes, one.notes)) for one in references]
    return max(pairs, key=lambda pair: pair[1].score, default=("", None))
