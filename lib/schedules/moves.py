"""Rows that are made by a rule, and rows that are made of them by moving one piece of work at a time.

The rule: what can begin first begins first; a backward for the input, which others wait for, may push ahead, and a
backward for the weight may stand back; a forward is done if there is memory left for it. How much they push and stand
back, and how much memory is left free for the second stage of a rank, is drawn at random for each set of rows.

Then a piece of work moves to another place in its row. What is better is kept; what is a little worse is kept as well
now and then, less and less often, so as not to be caught where no single move helps (simulated annealing).

Where a message takes time, a link may be busy with one that nobody waits for yet. So in the best rows sends are put off
until after other work, as long as that helps, and nothing else moves.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from ..machine.cost import TimeUnits
from .actions import BACKWARD, BACKWARD_WEIGHT, FORWARD
from .figures import SENT, Work
from .task import Rows, Score, Task

BEST = 4
"""With how many of the rows made by rule the moves begin. Half of all rows are made by rule."""
HEAT = 0.005
"""What is worse by this part of the time is kept now and then, in the beginning."""
FARTHEST = 12
"""How many places a piece of work moves at most."""
OF_SENDS = 4
"""Where a message takes time, one more row for so many is tried, which differs only in when something is sent."""


class Rule(NamedTuple):
    """What a rule leaves open, for each rank: how many activations are left free, and how many more when a forward of
    the lower of two stages begins; how many forwards long that stands back, and a backward for the weight."""

    free: tuple[float, ...]
    spare: tuple[float, ...]
    ahead: tuple[float, ...]
    back: tuple[float, ...]

    @classmethod
    def drawn(cls, ranks: int, random: Random) -> "Rule":
        """Return a rule that is alike on all ranks, or grows from rank to rank."""

        def one(values: Sequence[float]) -> tuple[float, ...]:
            value, grows = random.choice(values), random.choice((0, 0, 1))
            return tuple(value * (place if grows else 1) for place in range(ranks))

        return cls(one(FREE), one(SPARE), one(LATE), one(LATE))

    def changed(self, random: Random) -> "Rule":
        """Return a rule that is like this one but on one rank."""
        which, place = random.randrange(len(self)), random.randrange(len(self.free))
        values = [*self[which]]
        values[place] = random.choice((FREE, SPARE, LATE, LATE)[which])
        return self._replace(**{self._fields[which]: tuple(values)})


FREE, SPARE, LATE = (-1, 0, 1, 2), (0, 1, 2, 3, 4), (0, 0.5, 1, 2, 4)
"""What is drawn."""


def look(task: Task, tries: int, random: Random, progress: Callable[[int], None], known: Sequence[Rows] = ()) -> Rows:
    """Return the best rows that were found, or ``known`` before. Raise PuzzleError if none hold as little as they may.
    ``progress`` is called with how many rows were tried. It ends early with rows that meet the bound."""
    bound = (0.0, float(task.bound() * task.cost.per_tick))
    found: dict[Score, Rows] = {task.score(rows): rows for rows in (one_by_one(task), *known)}
    rules = dict[Score, Rule]()
    for done in range(tries // 2):
        progress(done)
        if found and min(found)[:2] == bound:
            return found[min(found)]
        best = sorted(rules)[:BEST]
        drawn = done < tries // 6 or not best
        rule = Rule.drawn(task.ranks, random) if drawn else rules[random.choice(best)].changed(random)
        if (rows := by_rule(task, rule)) is not None:
            score = task.score(rows)
            rules[score], found[score] = rule, rows
    each = tries // (2 * BEST)
    for at, score in enumerate(sorted(found)[:BEST]):
        moved(task, found, score, each, random, lambda done, n=tries // 2 + at * each: progress(n + done))  # type: ignore[misc]
    if task.late:
        sent_later(task, found, tries // OF_SENDS, random)
    if min(found)[0]:
        raise task.too_small()
    return found[min(found)]


def one_by_one(task: Task) -> Rows:
    """Return the rows that hold least, and take longest: a micro-batch goes forth and back before the next one does."""
    rows: Rows = [[] for _ in range(task.ranks)]
    for mb in range(task.batches):
        for stage, rank in enumerate(task.rank_of):
            rows[rank].append((FORWARD, stage, mb))
        for stage, rank in reversed([*enumerate(task.rank_of)]):
            rows[rank].append((BACKWARD, stage, mb))
    return rows


def by_rule(task: Task, rule: Rule) -> Rows | None:
    """Return rows that are made by the rule, or None if it gets stuck."""
    work, hop = task.prices.work, task.prices.send + task.prices.receive
    rows: Rows = [[] for _ in range(task.ranks)]
    clock: list[TimeUnits] = [0] * task.ranks
    held = [0] * task.ranks
    next_up: list[dict[str, int]] = [dict.fromkeys((FORWARD, *task.back), 0) for _ in range(task.stages)]
    there: dict[Work, TimeUnits] = {(FORWARD, 0, mb): 0 for mb in range(task.batches)}
    possible = _what_is_possible(task, rule, next_up, there)
    best = [possible(place, 0, 0) for place in range(task.ranks)]

    for _ in range(task.stages * task.batches * (1 + len(task.back))):
        options = [(*one, place) for place, one in enumerate(best) if one]
        if not options:
            return None
        _, begins, (kind, stage, mb), place = min(options, key=lambda one: (one[1], one[0]))
        clock[place] = ends = begins + work[kind]
        rows[place].append((kind, stage, mb))
        next_up[stage][kind] += 1
        after = stage  # where something is there now, besides
        if kind == FORWARD:
            held[place] += 1
            if stage + 1 < task.stages:
                after = stage + 1
                there[FORWARD, after, mb] = ends + hop * (task.rank_of[after] != place)
            else:
                there[task.back[0], stage, mb] = ends + task.prices.loss
        else:
            held[place] += 1 if kind != task.back[-1] else -len(task.back)
            if kind == task.back[0]:
                if len(task.back) > 1:
                    there[BACKWARD_WEIGHT, stage, mb] = ends
                if stage:
                    after = stage - 1
                    there[kind, after, mb] = ends + hop * (task.rank_of[after] != place)
        for one in {place, task.rank_of[after]}:  # nothing else has changed for the other ranks
            best[one] = possible(one, clock[one], held[one])
    return rows


Option = tuple[float, TimeUnits, Work]
"""A piece of work that a rank can do next: when it would begin, with what the rule adds to that, and when it can."""


def _what_is_possible(
    task: Task, rule: Rule, next_up: Sequence[Mapping[str, int]], there: Mapping[Work, TimeUnits]
) -> Callable[[int, TimeUnits, int], Option | None]:
    """Return what finds a rank's next piece of work, from when it is free and how many activations it holds."""
    forward, room = float(task.prices.work[FORWARD]), [*map(task.room, range(task.ranks))]

    def options(place: int, clock: TimeUnits, held: int) -> Iterator[Option]:
        for stage in task.mine[place]:
            for kind, mb in next_up[stage].items():
                if mb == task.batches or (began := there.get((kind, stage, mb))) is None:
                    continue
                begins, rank = max(began, clock), 0.0
                if kind == FORWARD:
                    lower = len(task.mine[place]) > 1 and stage == task.mine[place][0]
                    if held + 2 + rule.free[place] + rule.spare[place] * lower > room[place]:
                        continue
                    rank = forward * rule.ahead[place] * lower + 0.1
                elif kind == BACKWARD_WEIGHT:
                    rank = forward * rule.back[place] + 0.2
                yield float(begins) + rank, begins, (kind, stage, mb)

    return lambda place, clock, held: min(options(place, clock, held), default=None)


def moved(
    task: Task, found: dict[Score, Rows], score: Score, tries: int, random: Random, progress: Callable[[int], None]
) -> None:
    """Try so many rows, each made by a move of one before, from those of a score on; add the best to what was found."""
    rows = found[score]
    best, kept = score, rows
    for done in range(tries):
        progress(done)
        heat = HEAT * best[1] * (1 - done / tries) ** 2
        place = random.randrange(task.ranks)
        if (row := _with_a_move(rows[place], random)) is None:
            continue
        changed = [*rows[:place], row, *rows[place + 1 :]]
        other = task.score(changed)
        worse = _as_number(task, other) - _as_number(task, score)
        if worse <= 0 or (heat and random.random() < math.exp(-worse / heat)):
            rows, score = changed, other
            if score < best:
                best, kept = score, rows
    found[best] = kept


def sent_later(task: Task, found: dict[Score, Rows], tries: int, random: Random) -> None:
    """Try so many rows that differ from the best ones only in when something is sent; add the best to what was found.
    What is no worse is kept, since it often takes two sends to be put off."""
    best = min(found)
    rows = found[best]
    for _ in range(tries):
        place = random.randrange(task.ranks)
        if (row := with_another_send(task, rows[place], random)) is None:
            continue
        changed = [*rows[:place], row, *rows[place + 1 :]]
        if (other := task.score(changed)) <= best:
            best, rows = other, changed
    found[best] = rows


def _as_number(task: Task, score: Score) -> float:
    """Return a score as a time: an activation beyond the cap counts as much as a forward, one within it a little."""
    beyond, time, memory = (part / task.prices.activation for part in score)
    return time * task.prices.activation + (beyond + memory / 1000) * float(task.prices.work[FORWARD])


def _with_a_move(row: list[Work], random: Random) -> list[Work] | None:
    """Return a row in which one piece of work stands elsewhere, or None if it cannot."""
    at = random.randrange(len(row))
    way, steps = random.choice((-1, 1)), 1 + int(random.random() ** 2 * FARTHEST)
    return _moved_to(row, at, way, steps)


def _moved_to(row: list[Work], at: int, way: int, steps: int) -> list[Work] | None:
    """Return a row in which the work at a place stands so many places later, or earlier, or as many as it can."""
    work, to = row[at], at
    while steps and 0 <= to + way < len(row) and not _ordered(work, row[to + way]):
        to, steps = to + way, steps - 1
    if to == at:
        return None
    left = [*row[:at], *row[at + 1 :]]
    return [*left[:to], work, *left[to:]]


def _ordered(one: Work, other: Work) -> bool:
    """Whether two pieces of work have to stay in their order: of one stage those of a kind, and those of a micro-batch,
    but a weight half and a send."""
    (kind, stage, mb), (other_kind, other_stage, other_mb) = one, other
    if stage != other_stage:
        return False
    apart = BACKWARD_WEIGHT in (kind, other_kind) and (kind in SENT or other_kind in SENT)
    return kind == other_kind or (mb == other_mb and not apart)


def with_another_send(task: Task, row: list[Work], random: Random) -> list[Work] | None:
    """Return a row in which one result is sent later than it is made, or at once again; None if it cannot."""
    at, steps = random.randrange(len(row)), 1 + int(random.random() ** 2 * FARTHEST)
    if row[at][0] in SENT:
        return [*row[:at], *row[at + 1 :]]
    if (send := task.send_of(row[at])) is None or send in row:
        return None
    return _moved_to([*row[: at + 1], send, *row[at + 1 :]], at + 1, 1, steps)
