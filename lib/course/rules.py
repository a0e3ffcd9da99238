"""The rules that a puzzle's spec may name: what it asks of the log beyond layout, time and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..basics.errors import Place, PuzzleError, show_set
from ..record.events import Event
from ..record.table import training


def place_of(event: Event) -> Place:
    """Return where and when an operation was issued."""
    return Place(event.rank, event.kind, event.layer, tick=event.issued, detail=f"at tick {event.issued:g}")


def one_micro_batch(events: Sequence[Event], layers: int) -> None:
    """Raise PuzzleError unless every operation through a layer works on one micro-batch."""
    trains = training()
    for event in events:
        if event.kind in trains and len(event.batches) > 1:
            raise PuzzleError(
                f"it works on micro-batches {show_set(event.batches)} at once",
                where=place_of(event),
                expected="one micro-batch after the other, as the puzzle asks",
                cure="model.get_activation([micro_batch]) in a loop over the micro-batches",
                line="",
            )


def own_layers(events: Sequence[Event], layers: int) -> None:
    """Raise PuzzleError unless each rank runs only layers that it has loaded: activations travel, weights stay."""
    trains, loaded = training(), dict[int, set[int | None]]()
    for event in events:
        if event.kind == "load_weights":
            loaded.setdefault(event.rank, set()).add(event.layer)
        elif event.kind in trains and event.layer not in loaded.get(event.rank, ()):
            raise PuzzleError(
                f"it runs layer {event.layer}, whose weight it has not loaded",
                where=place_of(event),
                expected="every rank runs its own layers; activations and their gradients are passed on",
                line="",
            )


def four_stages(events: Sequence[Event], layers: int) -> None:
    """Raise PuzzleError for a rank that runs more than a quarter of the layers: it is one of four stages."""
    trains, run = training(), dict[int, set[int | None]]()
    for event in events:
        if event.kind in trains:
            mine = run.setdefault(event.rank, set())
            mine.add(event.layer)
            if len(mine) > layers // 4:
                raise PuzzleError(
                    f"it runs {len(mine)} of {layers} layers",
                    where=place_of(event),
                    expected=f"every rank is one of four stages and runs {layers // 4}",
                    line="",
                )


RULES: Mapping[str, Callable[[Sequence[Event], int], None]] = {
    "one_micro_batch": one_micro_batch,
    "own_layers": own_layers,
    "four_stages": four_stages,
}
