"""A pipeline's run as rows of actions, which PyTorch loads."""

from collections.abc import Iterable, Mapping, Sequence

from ..basics.errors import Place, PuzzleError, show_set
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
    "a pipeline with every layer on one rank, or copies of one that do the same with other micro-batches: PyTorch's "
    "rows have each stage on one rank"
)
Work = dict[int, list[Event]]
"""What each rank of a pipeline computes, in order."""


def written(events: Iterable[Event], ranks: int, layers: int) -> str:
    """Return the work of a pipeline as PyTorch's CSV: a line a rank, actions between commas. Messages, gathers and sums
    are left out: PyTorch puts in its own.

    A stage has as many layers as possible: those that their rank always does one after the other. Micro-batches that
    always go together are one. Where there are copies of a pipeline, the rows are those of each. Raise PuzzleError for
    a run that rows have no words for.
    """
    work: Work = {rank: [] for rank in range(ranks)}
    for event in events:
        if event.kind in LETTERS:
            work[event.rank].append(event)
    if len({event.layer for row in work.values() for event in row}) != layers:
        raise PuzzleError("not all layers are computed in this run", where="schedule", expected=ONE_EACH, line="")
    first, *copies = _pipelines(work)
    numbers = [_numbers(own) for own in (first, *copies)]
    sizes = [size for size in range(layers, 0, -1) if layers % size == 0]
    of_size = ((size, [_row(row, size, numbers[0]) for row in first.values()]) for size in sizes)
    size, rows = next((size, rows) for size, rows in of_size if None not in rows)
    for copy, known in zip(copies, numbers[1:], strict=True):
        for (rank, own), (other, theirs), row in zip(first.items(), copy.items(), rows, strict=True):
            if _row(theirs, size, known) != row:
                raise _no_pipeline(own[0], f"rank {other} has the same layers as rank {rank}, and does something else")
    return "".join(",".join(map(str, row or [])) + "\n" for row in rows)


def _pipelines(work: Work) -> list[Work]:
    """Return the copies of a pipeline: the ranks that a micro-batch goes through, and all that share one with these.
    Raise PuzzleError unless each of them has every layer on one rank, and the same ones in the same order."""
    left, found = {rank: {mb for event in row for mb in event.batches} for rank, row in work.items()}, list[Work]()
    while left:
        members, batches = {min(left)}, left[min(left)]
        while more := {rank for rank, own in left.items() if rank not in members and own & batches}:
            members |= more
            batches = batches.union(*[left[rank] for rank in more])
        found.append({rank: work[rank] for rank in sorted(members)})
        left = {rank: own for rank, own in left.items() if rank not in members}
    for copy in found:
        homes = dict[int | None, Event]()
        for event in (event for row in copy.values() for event in row):
            home = homes.setdefault(event.layer, event)
            if home.rank != event.rank:
                which = "the same micro-batches"
                if not home.batches & event.batches:
                    which = f"micro-batches {show_set(home.batches)} there and {show_set(event.batches)} here"
                    which += (
                        ", which meet on other ranks: rows have no word for a second copy of a stage in one pipeline"
                    )
                raise _no_pipeline(event, f"layer {event.layer} is on rank {home.rank} as well, with {which}")
    layers = [[{event.layer for event in row} for row in copy.values()] for copy in found]
    if any(own != layers[0] for own in layers):
        problem = "ranks that work on the same micro-batches do not have the same layers as others that do"
        raise PuzzleError(problem, where="schedule", expected=ONE_EACH, line="")
    if len(work) > 1 and len(found[0]) == 1:
        problem = "each rank has all layers, so this is not a pipeline"
        raise PuzzleError(problem, where="schedule", expected=ONE_EACH, line="")
    return found


def _numbers(work: Work) -> dict[frozenset[int], int]:
    """Return the numbers of what goes through a pipeline together. Raise PuzzleError where it is not always the same
    micro-batches."""
    together = dict[int, Event]()
    for event in (event for row in work.values() for event in row):
        for micro_batch in event.batches:
            before = together.setdefault(micro_batch, event)
            if before.batches != event.batches:
                both = f"in {show_set(event.batches)} here, and in {show_set(before.batches)} on rank {before.rank}"
                raise _no_pipeline(event, f"micro-batch {micro_batch} goes {both}: a row has one number for both")
    groups = {event.batches for event in together.values()}
    return {group: number for number, group in enumerate(sorted(groups, key=min))}


def _row(work: Sequence[Event], size: int, numbers: Mapping[frozenset[int], int]) -> list[Action] | None:
    """Return a rank's work in stages of so many layers. None if it does something else between layers of a stage.
    ``numbers``: of the micro-batches of an operation."""
    row = list[Action]()
    work = _stage_by_stage(work, size)
    for begin in range(0, len(work), size):
        of_stage = work[begin : begin + size]
        layers = [event.layer or 0 for event in of_stage]
        first, kind = min(layers), of_stage[0].kind
        wanted = [*range(first, first + size)]
        alike = all((event.kind, event.batches) == (kind, of_stage[0].batches) for event in of_stage)
        in_order = layers == wanted if kind == FORWARD.kind else sorted(layers) == wanted
        if first % size or not alike or not in_order:
            return None
        action = Action(first // size, LETTERS[kind], numbers[of_stage[0].batches])
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
