"""Whether anything is done for nothing: computed, sent, summed or gathered, and used by nobody.

A program that is in time may do so. But one that does it at other sizes only does not do the same at every size.

The simulator notes which operations of a rank have given something that the rank uses, in another operation or as a
final weight. Cutting, joining or adding tensors does not count as a use; what comes of it may be used.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..basics.errors import Place, PuzzleError, show_call
from ..basics.units import at_tick
from ..machine.outcome import Outcome
from ..record.events import Event
from ..record.kinds import KINDS
from ..record.table import RECEIVE
from ..record.training import BACKWARD_INPUT

LineAt = Callable[[int, int], str]
"""The learner's line at a place of a rank's log."""


class _Done(NamedTuple):
    """An operation, its place in the log of its rank, and of which of its tensors the rank uses nothing."""

    event: Event
    place: int
    unused: frozenset[int]


def wastes(outcome: Outcome) -> bool:
    """Return whether there is an operation of which nobody uses what it gives."""
    return any(True for _ in _unused(outcome))


def check_used(outcome: Outcome, line_at: LineAt = lambda rank, place: "") -> None:
    """Raise PuzzleError for an operation of which no rank uses what it gives, or what it gives of a layer. Messages
    without a tensor are always allowed. So are two habits: a loop over all layers makes and sums the gradient of the
    model's input, too, though nobody needs it; and a full ring brings each rank its own piece at the end."""
    for event, place, unused in _unused(outcome):
        layer = event.layers[min(unused)] if event.layers else event.layer
        raise _for_nothing(event, layer, line_at(event.rank, place))


def needless_weights(outcome: Outcome) -> Iterator[Event]:
    """Yield what brings weights to ranks that do not use them: messages, and gathers of which no rank uses anything."""
    yield from (one.event for one in _unused(outcome) if one.event.tensor == "Weight")


def _unused(outcome: Outcome) -> Iterator[_Done]:
    """Yield the operations of which nobody uses what they give, of a collective the part of its first rank."""
    unread = defaultdict[tuple[int, int], set[int]](set)
    for state in outcome.final_states:
        for place, number in state.unread:
            unread[state.rank, place].add(number)
    if not unread:
        return
    places, met = defaultdict[int, int](int), defaultdict[object, list[_Done]](list)
    for event in outcome.events:
        place = places[event.rank]
        places[event.rank] = place + 1
        done = _Done(event, place, frozenset(unread.get((event.rank, place), ())))
        if event.stream == "collective":
            met[event.op].append(done)
        elif done.unused and not _of_the_input(event):
            yield done
    for members in met.values():
        nobodys = frozenset.intersection(*[one.unused for one in members])
        if nobodys and not _of_the_input(members[0].event):
            yield members[0]._replace(unused=nobodys)


def _of_the_input(event: Event) -> bool:
    """Return whether an operation gives the gradient of the model's input, and nothing else."""
    if event.tensor is None:
        return event.kind == BACKWARD_INPUT.kind and event.layer == 0
    return event.tensor == "ActivationGrad" and event.layer == -1


def _for_nothing(event: Event, layer: int | None, line: str) -> PuzzleError:
    """Return the error of an operation that gives what nobody uses, of a list what it gives of this layer."""
    call = show_call(event.kind, event.layers or event.layer)
    place = Place(event.rank, event.kind, layer, tick=event.issued, detail=at_tick(event.issued))
    problem, fix = f"nobody uses what {call} gives", "leave it out, or use what it gives"
    if event.stream == "collective":
        problem, fix = f"no rank uses what {call} gives", "leave it out, on every rank that takes part"
        if len(event.layers) > 1:
            problem, fix = f"{problem} of layer {layer}", f"leave layer {layer} out, on every rank that takes part"
    elif event.kind == RECEIVE.kind and event.tensor is not None:
        sender = event.group[0]
        problem = f"nobody uses the {KINDS[event.tensor].word} that comes from rank {sender}"
        fix = f"leave out this receive, and the pass_to of rank {sender}"
    expected = "nothing is done for nothing here, as at the puzzle's own size"
    return PuzzleError(problem, where=place, expected=expected, fix=fix, line=line)
