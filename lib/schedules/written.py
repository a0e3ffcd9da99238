"""A pipeline's run as rows of actions, which PyTorch loads."""

from collections.abc import Iterable, Sequence

from ..basics.errors import Place, PuzzleError
from ..record.events import Event
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, BESIDE, FORWARD
from . import actions
from .actions import Action

LETTERS = {
    FORWARD.kind: actions.FORWARD,
    BACKWARD.kind: actions.BACKWARD,
    BACKWARD_INPUT.kind: actions.BACKWARD_INPUT,
    BACKWARD_WEIGHT.kind: actions.BACKWARD_WEIGHT,
}
ONE_EACH = (
    "every layer is on one rank, and every operation has one micro-batch, as in puzzles 6, 13, 14, 16 and 29: "
    "PyTorch's rows have each stage on one rank"
)


def written(events: Iterable[Event], ranks: int, layers: int) -> str:
    """Return the work of a pipeline as PyTorch's CSV: a line a rank, actions between commas, without messages.

    A stage has as many layers as possible: those that their rank always does one after the other. Raise PuzzleError for
    a run that is no pipeline: with a layer on several ranks, or several micro-batches in one operation.
    """
    work: list[list[Event]] = [[] for _ in range(ranks)]
    homes = dict[int | None, int]()
    for event in events:
        if event.kind in LETTERS:
            if homes.setdefault(event.layer, event.rank) != event.rank:
                problem = f"layer {event.layer} is on rank {homes[event.layer]} as well, so this is not a pipeline"
                raise _no_pipeline(event, problem)
            if len(event.batches) != 1:
                raise _no_pipeline(event, "it has several micro-batches at once")
            work[event.rank].append(event)
    if len(homes) != layers:
        raise PuzzleError("not all layers are computed in this run", where="schedule", expected=ONE_EACH, line="")
    sizes = [size for size in range(layers, 0, -1) if layers % size == 0]
    rows = next(rows for size in sizes if (rows := [_row(row, size) for row in work]) and None not in rows)
    return "".join(",".join(map(str, row or [])) + "\n" for row in rows)


def _row(work: Sequence[Event], size: int) -> list[Action] | None:
    """Return a rank's work in stages of so many layers. None if it does something else between layers of a stage."""
    row = list[Action]()
    work = _stage_by_stage(work, size)
    for begin in range(0, len(work), size):
        of_stage = work[begin : begin + size]
        layers = [event.layer or 0 for event in of_stage]
        first, ((micro_batch,), kind) = min(layers), (of_stage[0].batches, of_stage[0].kind)
        wanted = [*range(first, first + size)]
        alike = all((event.kind, event.batches) == (kind, of_stage[0].batches) for event in of_stage)
        in_order = layers == wanted if kind == FORWARD.kind else sorted(layers) == wanted
        if first % size or not alike or not in_order:
            return None
        action = Action(first // size, LETTERS[kind], micro_batch)
        if BESIDE in of_stage[0].words and row and row[-1].kind == actions.FORWARD:
            action = Action(-1, actions.OVERLAP, None, (row.pop(), action))
        row.append(action)
    return row


def _stage_by_stage(work: Sequence[Event], size: int) -> list[Event]:
    """Return work in which no layers alternate: a forward of a stage, beside the layers of which stand those of a
    backward that overlaps with it, comes as a whole before that backward."""
    found = list[Event]()
    for event in work:
        place = len(found)
        if event.kind == FORWARD.kind and event.layer is not None and event.layer % size:
            while place and BESIDE in found[place - 1].words:
                place -= 1
            below = found[place - 1] if place else event
            if (below.kind, below.layer, below.batches) != (FORWARD.kind, event.layer - 1, event.batches):
                place = len(found)
        found.insert(place, event)
    return found


def _no_pipeline(event: Event, problem: str) -> PuzzleError:
    place = Place(event.rank, event.kind, event.layer, event.batches)
    return PuzzleError(problem, where=place, expected=ONE_EACH, line="")
