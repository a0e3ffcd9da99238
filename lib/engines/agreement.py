"""How far trained weights are from the reference: figures, and words for them. Nothing here needs torch."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from ..basics.errors import Place, PuzzleError
from ..running.workload import Workload


class LayerError(NamedTuple):
    """How far the trained weight of one layer is off, over all ranks that have a part of it."""

    layer: int
    error: float  # the largest difference from the reference
    relative: float  # by the largest update of the layer: infinite if a part is missing, nan if a number is
    rank: int | None  # the rank on which it is largest, or None if no rank has set the layer's weight
    at: int  # the index of that number in the flat weight
    span: tuple[int, int]  # (start, stop): the numbers that the rank has around it
    spread: float  # the largest difference between ranks that have the same part: it should be 0
    missing: int  # how many numbers no rank has set


@dataclass(frozen=True)
class Agreement:
    """How far the trained weights of all ranks are from the reference, layer by layer."""

    work: Workload
    parameters: int  # numbers in the weight of a layer
    rows: tuple[LayerError, ...]

    @property
    def worst(self) -> LayerError:
        """The layer that is off most."""
        return max(self.rows, key=lambda row: badness(row.relative))

    @property
    def relative(self) -> float:
        """The largest difference divided by the largest update of its layer."""
        return self.worst.relative

    @property
    def spread(self) -> float:
        """The largest difference between replicas of one part on different ranks."""
        return max((row.spread for row in self.rows), key=badness)

    @property
    def ok(self) -> bool:
        """Whether all is within the tolerance, and replicas are equal."""
        return self.relative <= self.work.tolerance and self.spread == 0  # nan is neither

    def check(self) -> None:
        """Raise PuzzleError that names layer, rank, error and tolerance, unless all is right."""
        if self.ok:
            return
        row, rank = self.worst, None
        if row.relative <= self.work.tolerance:
            row = max(self.rows, key=lambda row: badness(row.spread))
            problem = "ranks end with different numbers in the same part of the weight"
            expected, got = "replicas equal to the last bit", f"a difference of {row.spread:.2g}"
        elif row.missing:
            problem = "the final weight is not complete, as numbers"
            expected, got = f"{self.parameters:,} numbers", f"{row.missing:,} of them are on no rank"
        else:
            problem = "the final weight has wrong numbers: they are not what the same training by torch gives"
            rank, expected = row.rank, f"a relative error of at most {self.work.tolerance:g} ({self.work.dtype})"
            off = "nan" if math.isnan(row.relative) else f"{row.relative:.2g} of the largest update"
            first, end = row.span
            got = f"{off}, at number {row.at:,} (the rank has {first:,} to {end - 1:,} of {self.parameters:,})"
        raise PuzzleError(problem, where=Place(rank, layer=row.layer), expected=expected, got=got, line="")

    def __str__(self) -> str:
        head = f"{'agrees' if self.ok else 'DOES NOT AGREE'} with the reference: "
        head += f"off by {self.relative:.2g} of the largest update ({self.work.dtype}: up to {self.work.tolerance:g})"
        lines = [
            f"  layer {row.layer}: {row.relative:8.2g} of the update, {row.error:8.2g} as a number, "
            + (f"worst on rank {row.rank} at {row.at:,}" if row.rank is not None else "set by no rank")
            + (f"; {row.missing:,} numbers are missing" if row.missing else "")
            + ("" if row.spread == 0 else f"; replicas differ by {row.spread:.2g}")
            for row in self.rows
        ]
        return "\n".join([head, *lines])


def badness(error: float) -> float:
    """Return a key that orders errors: nan is the worst of all."""
    return math.inf if math.isnan(error) else min(error, 1.7e308)
