"""What a rank begins with it holds: a weight until nothing is computed with it any more, an optimizer state to the end.

A layout says with what a rank begins and ends. This looks at every sample of memory in between. So nobody passes for
data parallel who cuts a whole weight to a shard before the first operation, and gathers it whenever it is needed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from ..basics.errors import Place, PuzzleError, numbered, show_call
from ..basics.units import Elements, at_tick
from ..machine.interface import FinalState
from ..machine.outcome import Outcome
from ..record.events import LOADS, MARKS, Event
from ..record.kinds import IN_FLIGHT, INBOX, KINDS, SLOT
from ..record.labels import ADAPTER, Labels
from ..record.table import training
from ..record.training import BACKWARD, UPDATE

Whose = tuple[int | None, bool]
"""A layer, and whether it is its adapter that is meant."""
_Places = dict[Whose, int]
"""Places in the log of a rank."""


class _Span(NamedTuple):
    """Elements that a rank has to hold in its samples from ``first`` to ``last``, both included."""

    first: int
    last: int
    elements: Elements


def check_held(outcome: Outcome) -> None:
    """Raise PuzzleError for a rank that holds less, at some operation, than what it has begun with and still needs.

    Of weights: all that it has loaded, until the last forward, backward or update of each layer; where the rank does
    not update the piece that it has loaded (ZeRO, offload), until the last backward. Of states: all, to the end. What
    a rank updates of a weight, or ends with if it is frozen, is what it has loaded, and not cut out of a gathered one.
    """
    logs = defaultdict[int, list[Event]](list)
    for event in outcome.events:
        logs[event.rank].append(event)
    for state in outcome.final_states:
        log = logs[state.rank]
        places = _places(log)
        for kind in ("Weight", "OptState"):
            if kind == "OptState" or state.rank not in outcome.beside:  # a host may do with weights as it likes
                _check(outcome, kind, log, [*_spans(outcome, kind, state, len(log) - 1, *places)])
        if state.regained and state.rank not in outcome.beside:
            _refuse_regained(state.rank, state.regained[0])


def _refuse_regained(rank: int, labels: Labels) -> None:
    """Raise PuzzleError for a piece of a weight that its rank has loaded, and then has from others. So it need not hold
    the piece while it holds the whole weight, and from the samples nobody can tell."""
    problem = f"it goes on with {labels} as it was cut out of a gathered weight"
    expected = "the piece that it has loaded: what a rank begins with it holds, also while the whole weight is there"
    fix = f"leave it in model.weights, as it was loaded, and gather without taking it out: layer {labels.layer}"
    raise PuzzleError(problem, where=Place(rank, "update", labels.layer), expected=expected, fix=fix, line="")


def _check(outcome: Outcome, kind: str, log: Sequence[Event], spans: Iterable[_Span]) -> None:
    """Raise PuzzleError unless a rank holds as much in its samples as these say."""
    steps: list[Elements] = [0] * (len(log) + 1)
    for span in spans:
        steps[span.first] += span.elements
        steps[span.last + 1] -= span.elements
    slots, own = (SLOT[kind], IN_FLIGHT, INBOX) if kind == "Weight" else (SLOT[kind],), SLOT[kind]
    for event, least in zip(log, accumulate(steps), strict=False):
        if least <= event.held[own]:
            continue  # most often, and what is on its way need not be looked at
        if least > (held := sum([event.held[slot] for slot in slots])) and event.kind not in MARKS:
            word, show = KINDS[kind].word, outcome.size_unit.describe
            until = "the last backward of its layer" if kind == "Weight" else "the end"
            place = Place(event.rank, event.kind, event.layer, tick=event.issued, detail=at_tick(event.issued))
            problem = f"it does not hold the {word}s that it has begun with any more"
            expected = f"{show(least)}: what a rank begins with it holds, each {word} until {until}"
            fix = f"leave it in model.{KINDS[kind].store}, as it was loaded{_went(log, event)}"
            raise PuzzleError(problem, where=place, expected=expected, got=show(held), fix=fix, line="")


def _went(log: Sequence[Event], event: Event) -> str:
    """Return, as the end of a sentence, after which operation less was there than before, and until when it stays."""
    before = [one for one in log[: log.index(event)] if one.kind not in MARKS]
    last = [one.batches for one in log if one.kind == BACKWARD.kind]
    if not before or before[-1].kind != BACKWARD.kind or before[-1].batches == last[-1]:
        return ""
    own, batch = show_call(before[-1].kind, before[-1].layer), numbered("micro-batch", before[-1].batches)
    later = numbered("micro-batch", last[-1])
    return f": it went, or was cut, after {own} of {batch}, and this rank's {later} comes later"


def _spans(
    outcome: Outcome, kind: str, state: FinalState, end: int, loaded: _Places, used: _Places, updated: _Places
) -> Iterator[_Span]:
    """Yield how long the rank has to hold what it has loaded of each layer, and of each adapter. ``end``: its last
    sample; the others as ``_places`` gives them."""
    weights, states = _by_layer(state.began, "Weight"), _by_layer(state.began, "OptState")
    for whose, pieces in (weights if kind == "Weight" else states).items():
        last = end
        if kind == "Weight" and whose in states:
            last = used.get(whose, -1)
            if {(one.shards, one.total) for one in states[whose]} == {(one.shards, one.total) for one in pieces}:
                last = max(last, updated.get(whose, -1))
        elif kind == "Weight" and not whose[1] and (whose[0], True) not in states:
            last = used.get(whose, -1)  # its state is elsewhere, as on a host
        if loaded[whose] <= last:
            yield _Span(loaded[whose], last, sum(map(outcome.cost.elements, pieces)))


def _by_layer(began: Iterable[Labels], kind: str) -> Mapping[Whose, list[Labels]]:
    """Return the pieces of a kind that a rank has loaded."""
    found = defaultdict[Whose, list[Labels]](list)
    for labels in began:
        if labels.kind == kind:
            found[labels.layer, labels.adapter].append(labels)
    return found


def _places(log: Sequence[Event]) -> tuple[_Places, _Places, _Places]:
    """Return where in its log a rank loads each layer, where it computes with its weight last, and updates it last."""
    trains = {*training()}
    loaded, used, updated = dict[Whose, int](), dict[Whose, int](), dict[Whose, int]()
    for at, event in enumerate(log):
        if event.kind in LOADS:
            loaded.setdefault((event.layer, event.kind == LOADS[True]), at)
        elif event.kind in trains:
            used[event.layer, False] = used[event.layer, True] = at
        elif event.kind == UPDATE.kind:
            updated[event.layer, ADAPTER in event.words] = at
    return loaded, used, updated
