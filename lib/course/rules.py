"""The rules that a puzzle's spec may name: what it asks of the log beyond layout, time and memory."""

from collections import defaultdict
from collections.abc import Callable, Mapping

from ..basics.errors import Place, PuzzleError, show_set
from ..machine.outcome import Outcome
from ..record.events import Event
from ..record.table import training


def _broken(event: Event, problem: str, expected: str, cure: str = "") -> PuzzleError:
    """Return the error of an operation that breaks a rule."""
    place = Place(event.rank, event.kind, event.layer, tick=event.issued, detail=f"at tick {event.issued:g}")
    return PuzzleError(problem, where=place, expected=expected, cure=cure, line="")


def one_micro_batch(outcome: Outcome) -> None:
    """Raise PuzzleError unless every operation through a layer works on one micro-batch."""
    trains = training()
    for event in outcome.events:
        if event.kind in trains and len(event.batches) > 1:
            expected = "one micro-batch after the other, as the puzzle asks"
            cure = "model.get_activation([micro_batch]) in a loop over the micro-batches"
            raise _broken(event, f"it works on micro-batches {show_set(event.batches)} at once", expected, cure)


def own_layers(outcome: Outcome) -> None:
    """Raise PuzzleError unless each rank runs only layers that it has loaded: activations travel, weights stay. What it
    loaded and dropped at once it never had."""
    trains = training()
    loaded = {state.rank: {labels.layer for labels in state.began} for state in outcome.final_states}
    for event in outcome.events:
        if event.kind in trains and event.layer not in loaded[event.rank]:
            expected = "every rank runs its own layers; activations and their gradients are passed on"
            raise _broken(event, f"it runs layer {event.layer}, whose weight it has not loaded", expected)


def four_stages(outcome: Outcome) -> None:
    """Raise PuzzleError for a rank that runs more than a quarter of the layers: it is one of four stages."""
    trains, run, most = training(), defaultdict[int, set[int | None]](set), outcome.layers // 4
    for event in outcome.events:
        if event.kind in trains:
            mine = run[event.rank]
            mine.add(event.layer)
            if len(mine) > most:
                expected = f"every rank is one of four stages and runs {most}"
                raise _broken(event, f"it runs {len(mine)} of {outcome.layers} layers", expected)


RULES: Mapping[str, Callable[[Outcome], None]] = {
    rule.__name__: rule for rule in (one_micro_batch, own_layers, four_stages)
}
