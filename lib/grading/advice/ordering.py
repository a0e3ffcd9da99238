"""In which order the ranks of a pipeline work, beside the target's program: how many forwards come first, how many
follow one another, and where the order differs first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import pairwise

from ...basics.errors import numbered
from ...course.outlines import Order, solution_order, solution_work
from ...course.specs import Puzzle
from ...machine.outcome import Outcome
from ...record.events import LOADS, Event
from ...record.table import OPERATIONS, SEND
from ...record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD

Step = tuple[int, frozenset[int]]
"""A forward or a backward: its layer, and its micro-batches."""
MOST_RANKS = 8  # of a pipeline whose forwards are counted rank by rank


def first_round(steps: Sequence[Step]) -> tuple[int, int | None]:
    """Return how many micro-batches go through the first layer of these steps before another one, and which layer is
    that, if there is one."""
    for at, (layer, _) in enumerate(steps):
        if layer != steps[0][0]:
            return at, layer
    return len(steps), None


def rounds_of(size: int) -> range:
    """Return how many micro-batches may go through a layer before the next one: one more in the first round helps."""
    return range(size, size + 2)


def order_of(events: Sequence[Event], ranks: int) -> Order:
    """Return the order of the work in a pipeline, in which no rank runs all layers; nothing of another run. Where
    several ranks run a layer, that is the computations alone. Of several pipelines side by side, each with its own
    micro-batches, it is the first one."""
    events, ranks = first_pipeline(events, ranks)
    forwards, backwards = defaultdict[int, list[Step]](list), set[int]()
    turns = defaultdict[int, list[str]](list)
    owners, row, together = set[tuple[int, int]](), Counter[int](), 0
    for event in events:
        trains = event.kind in OPERATIONS and OPERATIONS[event.kind].trains
        if event.kind == FORWARD.kind and event.layer is not None:
            owners.add((event.layer, event.rank))
            row[event.rank] += 1
            if event.rank in backwards:
                together = max(together, row[event.rank])
            else:
                forwards[event.rank].append((event.layer, event.batches))
        elif trains and OPERATIONS[event.kind].backward:
            backwards.add(event.rank)
            row[event.rank] = 0
        if trains:
            turns[event.rank].append(f"{event.kind}(layer {event.layer})")
    layers, busiest = {layer for layer, _ in owners}, max(Counter(rank for _, rank in owners).values(), default=0)
    if len(forwards) < ranks or busiest == len(layers):
        return Order()
    stages = sorted(forwards)  # the ranks of a pipeline need not follow one another
    own = [";".join(turns[rank]) for rank in stages]
    if len(layers) < len(owners):
        return Order(turns=own)
    took, then = first_round(forwards[stages[0]])
    return Order([len(forwards[rank]) for rank in stages], 0 if then is None else took, together, own)


def first_pipeline(events: Sequence[Event], ranks: int) -> tuple[Sequence[Event], int]:
    """Return the events of the ranks that carry the same micro-batches as the first rank, and how many ranks these are;
    all of them where the ranks are not such groups, each with micro-batches of its own."""
    carried = defaultdict[int, set[int]](set)
    for event in events:
        if event.kind == FORWARD.kind:
            carried[event.rank] |= event.batches
    first = carried[min(carried)] if carried else set()
    same = {rank for rank, batches in carried.items() if batches == first}
    apart = all(one == first or not one & first for one in carried.values())
    if not apart or len(same) < 2:
        return events, ranks
    return [event for event in events if event.rank in same], min(ranks, len(same))


def has_thick_stages(outcome: Outcome, puzzle: Puzzle, goal: str) -> bool:
    """Return whether each rank runs layers that follow one another, where the goal's ranks send more often."""
    layers, sends = defaultdict[int, set[int]](set), Counter[int]()
    for event in outcome.distinct:
        if event.kind == FORWARD.kind and event.layer is not None:
            layers[event.rank].add(event.layer)
        sends[event.rank] += event.kind == SEND.kind
    known = sum(one.times for (kind, _), one in solution_work(puzzle, goal).items() if kind == SEND.kind)
    follow = all(1 < len(own) == max(own) - min(own) + 1 for own in layers.values())
    return max(sends.values(), default=0) < known and follow


def several_stages(outcome: Outcome) -> bool:
    """Return whether a rank runs layers that do not all follow one another: it has several stages of a pipeline."""
    layers = defaultdict[int, set[int]](set)
    for event in outcome.distinct:
        if event.kind == FORWARD.kind and event.layer is not None:
            layers[event.rank].add(event.layer)
    return any(len(own) <= max(own) - min(own) for own in layers.values())


def forward_again(outcome: Outcome) -> str:
    """Return which forward a rank runs again right after it, with nothing else in between; or an empty text."""
    done = defaultdict[int, list[Step]](list)
    for event in first_pipeline(outcome.events, outcome.ranks)[0]:
        if event.kind == FORWARD.kind and event.layer is not None:
            done[event.rank].append((event.layer, event.batches))
        elif event.kind in OPERATIONS and OPERATIONS[event.kind].trains:
            done[event.rank].append((-1, frozenset()))
    for rank, steps in sorted(done.items()):
        again = [one for one, other in pairwise(steps) if one == other and one[0] >= 0]
        if again:
            layer, batches = again[0]
            which = f"forward({layer}, ...) on {numbered('micro-batch', batches)}"
            every = ", and so it does each of its forwards" * (2 * len(again) == sum(one >= 0 for one, _ in steps))
            return f"rank {rank} runs {which} twice, one right after the other{every}: is that call there twice?"
    return ""


def most_halves(turns: str) -> int:
    """Return how many weight halves of backwards wait at most in an order of work, after their input halves."""
    waiting, most = 0, 0
    for one in turns.split(";"):
        waiting += one.startswith(BACKWARD_INPUT.kind) - one.startswith(BACKWARD_WEIGHT.kind)
        most = max(most, waiting)
    return most


class Ordering:
    """The order of the work in a pipeline beside that of the target's program."""

    def __init__(self, outcome: Outcome, puzzle: Puzzle, goal: str) -> None:
        self.outcome, self.puzzle, self.whose = outcome, puzzle, f"{goal}'s program"
        self.theirs = solution_order(puzzle, goal)
        own = order_of(outcome.events, outcome.ranks) if self.theirs.turns else Order()
        self.own = own if goal == "target" else Order()
        self.beside_star = own if goal == "star" else Order()
        self.thick = has_thick_stages(outcome, puzzle, goal)

    @cached_property
    def ahead(self) -> str:
        """Whether the ranks do too few forwards before their first backward, or too many, where that is the difference:
        the stages are as in the target's program, and so are the rounds."""
        own, theirs = self.own, self.theirs
        if not own.ahead or len(own.ahead) != len(theirs.ahead) or own.took not in (0, theirs.took) or self.thick:
            return ""
        more = [one - other for one, other in zip(own.ahead, theirs.ahead, strict=True)]
        if not any(more) or min(more) < 0 < max(more):
            return ""
        return f"do {'fewer' if max(more) > 0 else 'more'} forwards before the first backward"

    def waiting_halves(self, rank: int) -> tuple[int, int]:
        """Return how many weight halves wait at most on a rank, here and in the goal's program; or (0, 0) where that is
        not known."""
        own, theirs = (self.own if self.own.turns else self.beside_star).turns, self.theirs.turns
        if not len(own) == len(theirs) == self.outcome.ranks:
            return 0, 0
        return most_halves(own[rank]), most_halves(theirs[rank])

    def late_halves(self, ranks: Collection[int]) -> str:
        """Return what to do on these ranks about weight halves of which more wait at a time than in the goal's program;
        or an empty text where no more do."""
        counts = {rank: self.waiting_halves(rank) for rank in sorted(ranks)}
        late = {rank: (own, theirs) for rank, (own, theirs) in counts.items() if own > theirs}
        if not late:
            return ""
        rank = max(late, key=lambda one: late[one][0] - late[one][1])
        own, theirs = late[rank]
        waits = f"on rank {rank} up to {own} weight halves wait at a time, in the {self.whose} {theirs}"
        return f"{waits}: do them sooner, each as soon as what others wait for is sent"

    def in_words(self) -> str:
        """Return how the order differs from that of the target's program, or an empty text."""
        if again := forward_again(self.outcome) if self.theirs.turns else "":
            return again
        said = [*self._counts(), *self._directions()]
        if not said or (self.own.ahead == self.theirs.ahead and several_stages(self.outcome)):
            said.append(self._first_difference())
        return "; ".join(filter(None, said))

    def _in_rounds(self, own: Order) -> bool:
        """Return whether it helps to say how many micro-batches go through the first layer before the next one: they
        are a round, or there is no other difference in what comes before the first backward."""
        return self.theirs.took in rounds_of(self.outcome.ranks) or self.theirs.ahead == own.ahead

    def _directions(self) -> Iterator[str]:
        """Yield what comes more or less often before something else in the star's program."""
        own, theirs = self.beside_star, self.theirs
        if own.took and theirs.took and own.took != theirs.took and self._in_rounds(own):
            took = f"{own.took} micro-batch{'es' * (own.took > 1)}"
            more = f": let the first round of forwards take {theirs.took}" * (own.took < theirs.took)
            takes = f"rank 0 takes {took} through its first layer before the next layer"
            yield f"{takes}, the {self.whose} {theirs.took}{more}"
        if (
            not own.ahead
            or own.ahead == theirs.ahead
            or len(own.ahead) != len(theirs.ahead)
            or len(own.ahead) > MOST_RANKS
        ):
            return
        one = "rank" if len(own.ahead) == self.outcome.ranks else "stage"
        counts, known = (", ".join(map(str, order.ahead)) for order in (own, theirs))
        yield f"before their first backward the {one}s do {counts} forwards, those of the {self.whose} {known}"

    def _counts(self) -> Iterator[str]:
        """Yield how many forwards come before something else, where the target's program has another number."""
        own, theirs = self.own, self.theirs
        if own.took and theirs.took and own.took != theirs.took and self._in_rounds(own):
            took = f"{own.took} micro-batch{'es' * (own.took > 1)}"
            yield f"rank 0 takes {took} through its first layer before the next layer, the {self.whose} {theirs.took}"
        if own.ahead and theirs.ahead and own.ahead != theirs.ahead and len(own.ahead) <= MOST_RANKS:
            ranks = f"ranks 0 to {len(own.ahead) - 1} do"
            if len(own.ahead) < self.outcome.ranks:
                ranks = "the stages of a pipeline do"
            counts, known = (", ".join(map(str, one.ahead)) for one in (own, theirs))
            if self.ahead:
                yield f"{self.ahead}: {ranks} {counts}, those of the {self.whose} {known}{self._with_rounds()}"
            else:
                yield f"before their first backward {ranks} {counts} forwards, those of the {self.whose} {known}"
        if own.together > theirs.together > 0:
            turns = "one backward and one forward by turns" if theirs.together == 1 else f"{theirs.together} at most"
            yield f"after the first backward {own.together} forwards follow each other, in the {self.whose} {turns}"

    def _with_rounds(self) -> str:
        """Return why the star's program does more forwards on some ranks than the target's, where this one does more
        there as well; or an empty text."""
        own, theirs, star = self.own, self.theirs, solution_order(self.puzzle, "star")
        if len(star.ahead) != len(own.ahead) or not theirs.took < star.took:
            return ""
        if max(mine - known for mine, known in zip(own.ahead, star.ahead, strict=True)) > 1:
            return ""
        counts = enumerate(zip(own.ahead, theirs.ahead, star.ahead, strict=True))
        more = [rank for rank, (mine, target, known) in counts if known > target < mine]
        through = f"more than {theirs.took} micro-batches through the first layer before the next"
        return f" (the star's does more on {numbered('rank', more)}, but takes {through})" if more else ""

    def _first_difference(self) -> str:
        """Return where the order differs first, if each rank does the same operations as in the target's program."""
        turns = [[one.split(";") for one in order.turns] for order in (self.own, self.theirs)]
        if [[*map(Counter, order)] for order in turns[:1]] != [[*map(Counter, order)] for order in turns[1:]]:
            return ""
        places = [
            (next(at for at, (one, other) in enumerate(zip(own, theirs, strict=True)) if one != other), rank)
            for rank, (own, theirs) in enumerate(zip(*turns, strict=True))
            if own != theirs
        ]
        if not places:
            return ""
        at, rank = min(places)
        own, theirs = (order[rank][at] for order in turns)
        after = f"after {at} computation{'s' * (at > 1)} it does" if at else "it begins with"
        return f"the order differs first on rank {rank}: {after} {own}, the {self.whose} {theirs} there"


def passes_left(outcome: Outcome) -> str:
    """Return, where each layer is on one rank only, which rank ends before all micro-batches have gone through all of
    its layers; or an empty text."""
    on, ran = defaultdict[int, set[int]](set), defaultdict[tuple[str, int], set[tuple[int, int]]](set)
    for event in outcome.events:
        if event.kind == LOADS[0] and event.layer is not None:
            on[event.rank].add(event.layer)
        elif event.layer is not None:
            ran[event.kind, event.rank] |= {(event.layer, batch) for batch in event.batches}
    layers = [layer for own in on.values() for layer in own]
    if len(layers) != len({*layers}):
        return ""
    for rank, own in sorted(on.items()):
        due = {(layer, batch) for layer in own for batch in range(outcome.batches)}
        for kind in (FORWARD.kind, BACKWARD.kind):
            if (done := ran[kind, rank] & due) and len(done) < len(due):
                each = (
                    f"each of {outcome.batches} micro-batches goes through {'each of them' if len(own) > 1 else 'it'}"
                )
                ends = f"rank {rank} ends after {len(done)} of its {len(due)} {kind}s"
                return f"{ends}: it has {numbered('layer', own)}, and {each}. Does a loop end too soon, or a count?"
    return ""
