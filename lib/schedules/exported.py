"""A pipeline's run as rows of actions, which PyTorch loads."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ..basics.errors import Place, PuzzleError, show_set
from ..record.attention import ATTEND, PROJECT, REST
from ..record.events import Event
from ..record.experts import EXPERT_FORWARD
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, OVERLAPPED_WORD
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
NO_WORDS = {
    PROJECT.kind: "in steps, a slice of the sequence at a time",
    ATTEND.kind: "in steps, a slice of the sequence at a time",
    REST.kind: "in steps, a slice of the sequence at a time",
    EXPERT_FORWARD.kind: "by its experts, on tokens of several ranks",
}
"""How a layer may be computed that rows have no words for."""
WHOLE_STAGES = "forwards and backwards of whole stages: PyTorch's rows have no words for other work of a layer"
Work = dict[int, list[Event]]
"""What each rank of a pipeline computes, in order."""
Numbers = dict[frozenset[int], int]
"""The number in the rows of the micro-batches that go through a pipeline together."""


def exported(events: Iterable[Event], ranks: int, layers: int) -> str:
    """Return the work of a pipeline as PyTorch's CSV: a line a rank, actions between commas. Messages, gathers and sums
    are left out: PyTorch puts in its own. So is a forward that is done again: checkpointing is up to the stage there.

    A stage has as many layers as possible: those that their rank always does one after the other. Micro-batches that
    always go together are one. Where there are copies of a pipeline, the rows are those of each. Raise PuzzleError for
    a run that rows have no words for.
    """
    events = list(events)
    work: Work = {rank: [] for rank in range(ranks)}
    done = set[tuple[int, int | None, frozenset[int]]]()
    for event in events:
        again = event.kind == FORWARD.kind and (event.rank, event.layer, event.batches) in done
        if event.kind in LETTERS and not again:
            work[event.rank].append(event)
            if event.kind == FORWARD.kind:
                done.add((event.rank, event.layer, event.batches))
    if len({event.layer for row in work.values() for event in row}) != layers:
        raise _not_whole(events)
    (first, known), *copies = _pipelines(work)
    sizes = [size for size in range(layers, 0, -1) if layers % size == 0]
    of_size = ((size, [_row(row, size, known) for row in first.values()]) for size in sizes)
    size, rows = next((size, rows) for size, rows in of_size if None not in rows)
    for copy, numbers in copies:
        for (rank, own), (other, theirs), row in zip(first.items(), copy.items(), rows, strict=True):
            if _row(theirs, size, numbers) != row:
                raise _no_pipeline(own[0], f"rank {other} has the same layers as rank {rank}, and does something else")
    return "".join(",".join(map(str, row or [])) + "\n" for row in rows)


def _not_whole(events: Sequence[Event]) -> PuzzleError:
    """Return the error for a run in which some layers have no forward and no backward of their own."""
    for event in events:
        if event.kind in NO_WORDS:
            place = Place(event.rank, event.kind, event.layer, event.batches)
            problem = f"layer {event.layer} is computed {NO_WORDS[event.kind]}"
            return PuzzleError(problem, where=place, expected=WHOLE_STAGES, line="")
    return _no_pipeline(None, "not all layers are computed in this run")


def _pipelines(work: Work) -> list[tuple[Work, Numbers]]:
    """Return the copies of a pipeline, and the numbers of their micro-batches: the ranks that a micro-batch goes
    through, and all that share one with these. Raise PuzzleError unless each copy has every layer on one rank."""
    left = {rank: {mb for event in row for mb in event.batches} for rank, row in work.items() if row}
    parts = list[Work]()
    while left:
        members, batches = {min(left)}, left[min(left)]
        while more := {rank for rank, own in left.items() if rank not in members and own & batches}:
            members |= more
            batches = batches.union(*[left[rank] for rank in more])
        parts.append({rank: work[rank] for rank in sorted(members)})
        left = {rank: own for rank, own in left.items() if rank not in members}
    found = [(copy, _numbers(part)) for part in parts for copy in _copies(part)]
    layers = [_layers(copy) for copy, _ in found]
    if any(own != layers[0] for own in layers):
        raise _no_pipeline(None, "ranks that work on the same micro-batches do not have the same layers as others do")
    if len(work) > 1 and all(len(part) == 1 for part in parts):
        raise _no_pipeline(None, "each rank has all layers, so this is not a pipeline")
    return found


def _copies(part: Work) -> list[Work]:
    """Return the ranks of a pipeline; or of copies that are one another's continuation, as the two directions of
    DualPipe are: what a micro-batch begins on the ranks of one, it ends on those of the other."""
    homes, ranks = dict[int | None, dict[int, Event]](), defaultdict[frozenset[int | None], list[int]](list)
    for event in (event for row in part.values() for event in row):
        for home in homes.setdefault(event.layer, {}).values():
            if home.rank != event.rank and home.batches & event.batches:
                problem = f"layer {event.layer} is on rank {home.rank} as well, with the same micro-batches"
                raise _no_pipeline(event, problem)
        homes[event.layer].setdefault(event.rank, event)
    for rank, layers in zip(part, _layers(part), strict=True):
        ranks[layers].append(rank)
    sharing = {layer: ranks[next(layers for layers in ranks if layer in layers)] for layer in homes}
    several = max(map(len, homes.values()))
    if any(len(own) != several or [*own] != sharing[layer] for layer, own in homes.items()):
        layer, (one, other, *_) = next((layer, [*own.values()]) for layer, own in homes.items() if len(own) > 1)
        which = f"micro-batches {show_set(one.batches)} there and {show_set(other.batches)} here"
        problem = f"layer {layer} is on rank {one.rank} as well, with {which}, which meet on other ranks"
        raise _no_pipeline(other, f"{problem}: rows have no word for a second copy of a stage in one pipeline")
    return [{same[place]: part[same[place]] for same in ranks.values()} for place in range(several)]


def _layers(work: Work) -> list[frozenset[int | None]]:
    """Return the layers of each rank."""
    return [frozenset(event.layer for event in row) for row in work.values()]


def _numbers(part: Work) -> Numbers:
    """Return the numbers of what goes through a pipeline together, counted on each rank that has the first layer. Raise
    PuzzleError where it is not always the same micro-batches."""
    together, begins = dict[int, Event](), dict[frozenset[int], int]()
    for event in (event for row in part.values() for event in row):
        for micro_batch in event.batches:
            before = together.setdefault(micro_batch, event)
            if before.batches != event.batches:
                both = f"in {show_set(event.batches)} here, and in {show_set(before.batches)} on rank {before.rank}"
                raise _no_pipeline(event, f"micro-batch {micro_batch} goes {both}: a row has one number for both")
        if not event.layer:
            begins.setdefault(event.batches, event.rank)
    count = Counter[int]()
    numbers = Numbers()
    for group in sorted({event.batches for event in together.values()}, key=min):
        numbers[group] = count[begins.get(group, 0)]
        count[begins.get(group, 0)] += 1
    return numbers


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
        together = all((event.kind, event.batches) == (kind, of_stage[0].batches) for event in of_stage)
        in_order = layers == wanted if kind == FORWARD.kind else sorted(layers) == wanted
        if first % size or not together or not in_order:
            return None
        action = Action(first // size, LETTERS[kind], numbers[of_stage[0].batches])
        if OVERLAPPED_WORD in of_stage[0].words and row and row[-1].kind == actions.FORWARD:
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
            while place and OVERLAPPED_WORD in found[place - 1].words:
                place -= 1
            below = found[place - 1] if place else event
            if (below.kind, below.layer, below.batches) != (FORWARD.kind, event.layer - 1, event.batches):
                place = len(found)
        found.insert(place, event)
    return found


def _no_pipeline(event: Event | None, problem: str) -> PuzzleError:
    place = "schedule" if event is None else Place(event.rank, event.kind, event.layer, event.batches)
    return PuzzleError(problem, where=place, expected=ONE_EACH, line="")
