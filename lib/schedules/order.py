"""What rows of actions say: which rank has which stage, and whether each stage does each micro-batch once, in order.

All of it is looked at before anything runs, so an error names the row and the column."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..basics.errors import PuzzleError, show_set
from .actions import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    COMPUTED,
    FORWARD,
    RECV_B,
    RECV_F,
    REDUCE_GRAD,
    SEND_B,
    SEND_F,
    Action,
)
from .rows import Cell, Rows

TO_INPUT = (BACKWARD, BACKWARD_INPUT)
"""The two actions that give a stage's input its gradient."""
EARLIER = {BACKWARD: FORWARD, BACKWARD_INPUT: FORWARD, BACKWARD_WEIGHT: BACKWARD_INPUT}
"""What a stage has to do with a micro-batch before it does something else with it."""
ONCE = "each stage does each micro-batch once forward and once backward: F and B, or F, I and W"


class Message(NamedTuple):
    """A message between stages of two ranks: what sends it, and what receives it."""

    sent: Action
    received: Action
    sender: int
    receiver: int


class Order:
    """Where the stages of a schedule lie, and what goes from one to the next."""

    def __init__(self, rows: Rows) -> None:
        self.ranks = len(rows)
        self.rank_of = _ranks_of_stages(rows)
        self.stages = len(self.rank_of)
        self.micro_batches = _micro_batches(rows, self.stages)
        for row in rows:
            self._check_row(row)
            _check_sums(row)

    def message_after(self, action: Action) -> Message | None:
        """Return the message with the result of a computation, if the stage that reads it is on another rank."""
        stage, micro_batch = action.stage, action.micro_batch
        if action.kind == FORWARD:
            reader, sent, received = stage + 1, SEND_F, RECV_F
        elif action.kind in TO_INPUT:
            reader, sent, received = stage - 1, SEND_B, RECV_B
        else:
            return None
        sender, receiver = self.rank_of[stage], self.rank_of.get(reader, self.rank_of[stage])
        if sender == receiver:
            return None
        return Message(Action(stage, sent, micro_batch), Action(reader, received, micro_batch), sender, receiver)

    def message_before(self, action: Action) -> Message | None:
        """Return the message that a computation reads, if what it reads is made on another rank."""
        if action.kind == FORWARD:
            return self.message_after(action._replace(stage=action.stage - 1)) if action.stage else None
        if action.kind in TO_INPUT and action.stage < self.stages - 1:
            return self.message_after(action._replace(stage=action.stage + 1))
        return None

    def _check_row(self, row: Sequence[Cell]) -> None:
        """Raise PuzzleError if work stands before other work, in the same row, whose result it reads."""
        done = set[Action]()
        for cell in row:
            for part in cell.action.parts():
                for one_of in self._reads(part):
                    if not done.intersection(one_of):
                        raise wrong(cell, f"{one_of[0]} does not come before it", f"{one_of[0]}, {cell.action}")
            done.update(cell.action.parts())

    def _reads(self, action: Action) -> Iterator[list[Action]]:
        """What has to be done on the same rank before an action: of each list one."""
        if action.kind in EARLIER:
            yield [action._replace(kind=EARLIER[action.kind])]
        stage = action.stage + (1 if action.kind in TO_INPUT else -1)
        if action.kind in (FORWARD, *TO_INPUT) and self.rank_of.get(stage) == self.rank_of[action.stage]:
            kinds = (FORWARD,) if action.kind == FORWARD else TO_INPUT
            yield [action._replace(stage=stage, kind=kind) for kind in kinds]


def parts_of(rows: Rows) -> Iterator[tuple[Cell, Action]]:
    """Every action, and the cell that it stands in; the two of an overlapped pair one after the other."""
    return ((cell, part) for row in rows for cell in row for part in cell.action.parts())


def wrong(cell: Cell, problem: str, expected: str) -> PuzzleError:
    """Return the error for an action that cannot stand where it does."""
    where = f"the row of rank {cell.rank}, column {cell.column}, {cell.action}"
    return PuzzleError(problem, where=where, expected=expected, line="")


def _check_sums(row: Sequence[Cell]) -> None:
    """Raise PuzzleError for a REDUCE_GRAD that stands twice, or before a gradient of its stage is made."""
    summed = dict[int, Cell]()
    for cell in row:
        for part in cell.action.parts():
            known = summed.get(part.stage)
            if part.kind == REDUCE_GRAD and known is not None:
                raise wrong(cell, f"this stands in column {known.column} already", "one of them")
            if part.kind == REDUCE_GRAD:
                summed[part.stage] = cell
            elif known is not None and part.kind in (BACKWARD, BACKWARD_WEIGHT):
                problem = f"it makes a gradient that is not in the sum, {known.action} in column {known.column}"
                raise wrong(cell, problem, f"{cell.action}, {known.action}: a sum when all micro-batches are done")


def _ranks_of_stages(rows: Rows) -> dict[int, int]:
    """Return the rank of each stage: the one in whose row most of its actions stand. Raise PuzzleError for a stage
    that has actions on two ranks, or one that is missing."""
    cells = defaultdict[int, list[Cell]](list)
    for cell, part in parts_of(rows):
        cells[part.stage].append(cell)
    for stage, own in cells.items():
        [(home, _), *others] = Counter(cell.rank for cell in own).most_common()
        if others:
            known = next(cell for cell in own if cell.rank == home)
            problem = f"stage {stage} is on rank {home} already: {known.action} in column {known.column}"
            expected = "all actions of a stage stand in the row of one rank"
            raise wrong(next(cell for cell in own if cell.rank != home), problem, expected)
    highest = max(cells)
    if missing := set(range(min(highest, 2 * len(cells)))) - set(cells):
        problem = f"stage {show_set(missing)} does not occur, but stage {highest} does"
        expected = "stages numbered from 0, without a gap, and a row for each rank"
        raise wrong(cells[highest][0], problem, expected)
    return {stage: cells[stage][0].rank for stage in sorted(cells)}


def _micro_batches(rows: Rows, stages: int) -> int:
    """Return how many micro-batches there are. Raise PuzzleError if stages work on different ones, if a stage does one
    twice, or not all of its work."""
    counted = Counter(part for _, part in parts_of(rows) if part.kind in COMPUTED)
    if not counted:
        problem = "these rows have no work in them: no F, no B, no I, no W"
        raise PuzzleError(problem, where="schedule", expected="0F0, 0F1, 0B0, 0B1", line="")
    of_stage = [frozenset(part.micro_batch for part in counted if part.stage == stage) for stage in range(stages)]
    most = Counter(of_stage).most_common(1)[0][0]
    everyone = range(len(most))
    for stage, here in enumerate(of_stage):
        if here != most or here != {*everyone}:
            raise _other_micro_batches(rows, stage, here, most if here != most else frozenset(everyone))
        for micro_batch in everyone:
            if fault := _fault({kind: counted[Action(stage, kind, micro_batch)] for kind in COMPUTED}):
                action, problem = f"{stage}{fault[0]}{micro_batch}", fault[1]
                cells = [(cell, part) for cell, part in parts_of(rows) if part.stage == stage]
                there = [f", column {cell.column}" for cell, part in cells if str(part) == action]
                where = f"the row of rank {cells[0][0].rank}{(there or [''])[-1]}"
                raise PuzzleError(f"{action} {problem}", where=where, expected=ONCE, line="")
    return len(everyone)


def _other_micro_batches(
    rows: Rows, stage: int, here: frozenset[int | None], wanted: frozenset[int | None]
) -> PuzzleError:
    """Return the error for a stage that works on other micro-batches than it should, at the first that is too many."""
    cells = [(cell, part) for cell, part in parts_of(rows) if part.stage == stage]
    where = f"the row of rank {cells[0][0].rank}"
    if extra := [cell for cell, part in cells if part.kind in COMPUTED and part.micro_batch not in wanted]:
        where = f"{where}, column {extra[0].column}, {extra[0].action}"
    problem = f"stage {stage} works on the micro-batches {_shown(here)}"
    expected = f"all of {_shown(wanted)}, as other stages do, numbered from 0 without a gap"
    return PuzzleError(problem, where=where, expected=expected, line="")


def _shown(micro_batches: Iterable[int | None]) -> str:
    return show_set({micro_batch for micro_batch in micro_batches if micro_batch is not None})


def _fault(here: dict[str, int]) -> tuple[str, str] | None:
    """Return what is wrong with the number of times that a stage does each kind of work for one micro-batch."""
    for kind, count in here.items():
        if count > 1:
            return kind, f"stands there {count} times"
    halves = here[BACKWARD_INPUT], here[BACKWARD_WEIGHT]
    if here[BACKWARD] and any(halves):
        return BACKWARD, "stands there beside one of its halves, I or W"
    if not here[FORWARD]:
        return FORWARD, "is missing"
    if here[BACKWARD] or all(halves):
        return None
    return (BACKWARD if not any(halves) else BACKWARD_WEIGHT if halves[0] else BACKWARD_INPUT), "is missing"
