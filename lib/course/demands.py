"""What a puzzle's text demands beyond layout, time and memory, as rules over the event log.

A vocabulary that a puzzle's spec names from. No rule reads code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..basics.errors import PuzzleError, show_set
from ..record.events import Event

TRAINING = ("forward", "backward")


def one_micro_batch(events: Sequence[Event], layers: int) -> None:
    """Every forward and backward works on one micro-batch."""
    for event in events:
        if event.kind in TRAINING and len(event.batches) > 1:
            raise PuzzleError(
                f"it works on micro-batches {show_set(event.batches)} at once",
                where=f"rank {event.rank}, {event.kind}(layer {event.layer}) at tick {event.issued:g}",
                expected="one micro-batch after the other, as the puzzle asks",
                cure="model.get_activation([micro_batch]) in a loop over the micro-batches",
                line="",
            )


def own_layers(events: Sequence[Event], layers: int) -> None:
    """A rank runs the layers that it has loaded, and no others: activations travel, weights stay."""
    loaded: dict[int, set[int | None]] = {}
    for event in events:
        if event.kind == "load_weights":
            loaded.setdefault(event.rank, set()).add(event.layer)
        elif event.kind in TRAINING and event.layer not in loaded.get(event.rank, ()):
            raise PuzzleError(
                f"it runs layer {event.layer}, whose weight it has not loaded",
                where=f"rank {event.rank}, {event.kind}(layer {event.layer}) at tick {event.issued:g}",
                expected="every rank runs its own layers; activations and their gradients are passed on",
                line="",
            )


def four_stages(events: Sequence[Event], layers: int) -> None:
    """A rank runs a quarter of the layers: it is one of four stages."""
    run: dict[int, set[int | None]] = {}
    for event in events:
        if event.kind in TRAINING:
            mine = run.setdefault(event.rank, set())
            mine.add(event.layer)
            if len(mine) > layers // 4:
                raise PuzzleError(
                    f"it runs {len(mine)} of {layers} layers",
                    where=f"rank {event.rank}, {event.kind}(layer {event.layer}) at tick {event.issued:g}",
                    expected=f"every rank is one of four stages and runs {layers // 4}",
                    line="",
                )


FORMS: Mapping[str, Callable[[Sequence[Event], int], None]] = {
    "one_micro_batch": one_micro_batch,
    "own_layers": own_layers,
    "four_stages": four_stages,
}
