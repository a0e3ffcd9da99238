"""Where the time of all ranks goes: every moment of every rank belongs to exactly one part.

- What a rank computes counts as that, under the verb of the operation, whatever it communicates meanwhile.
- It *only communicates* (``TALK``) while a collective, a send or a receive of its own goes on and it computes nothing.
  A call that has not begun yet, since another rank has not come or a message is not there, is no communication.
- Otherwise it waits: before its first computation (``FILL``), after its last one (``DRAIN``), or between (``TURN``).
  Together these three are the bubble. A rank that never computes waits for its first computation all the time.

A simulated and a measured run are divided in the same way: in both, a collective begins when its last rank has come.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from ..events import Event
from ..table import OPERATIONS, TRACED, in_stream, row_of
from .score import makespan

TALK, FILL, TURN, DRAIN = "communication", "fill", "turn", "drain"
WAITS = (FILL, TURN, DRAIN)
WORDS = {TALK: "only communicates", FILL: "waits to begin", TURN: "waits between", DRAIN: "waits at the end"}
MEANING = {
    TALK: "communication while the rank computes nothing",
    FILL: "the bubble before the rank's first computation",
    TURN: "the bubble between the rank's computations",
    DRAIN: "the bubble after the rank's last computation",
}
"""What the parts without an operation are called, and what they are."""
_FINE = 2.0**80
"""Times become whole numbers of so small a part that no float of a log is rounded: what is added up is exact."""

Span = tuple[int, int, str]
"""Start, end, verb."""


def time_parts(events: Iterable[Event], ranks: int, time: float | None = None) -> dict[str, Fraction]:
    """Return the shares (0 to 1) of ``ranks`` times the time of the run: computations by their verbs, in the order of
    the table, then ``TALK``, ``FILL``, ``TURN`` and ``DRAIN``. Parts that do not occur are left out; the others add up
    to exactly 1. Of a run that takes no time there are none. ``time``: how long the run takes, if these are not all of
    its events: those of hosts are left out, which are no part of the ranks that are counted."""
    own, known = defaultdict[int, list[Event]](list), list(events)
    for event in known:
        if row_of(event.kind) is not None:
            own[event.rank].append(event)
    whole = int((makespan(known) if time is None else time) * _FINE)
    parts = Counter[str]({FILL: whole * (ranks - len(own))})
    computing = frozenset([*in_stream("compute"), *(kind for kind, row in TRACED.items() if row.stream == "compute")])
    for log in own.values():
        _count([(int(e.start * _FINE), int(e.end * _FINE), e.kind) for e in log], whole, computing, parts)
    return {kind: Fraction(parts[kind], whole * ranks) for kind in (*OPERATIONS, *TRACED, TALK, *WAITS) if parts[kind]}


def _count(spans: Sequence[Span], time: int, computing: frozenset[str], parts: Counter[str]) -> None:
    """Add the parts of one rank."""
    work = [span for span in spans if span[2] in computing and span[1] > span[0]]
    first, last = min((span[0] for span in work), default=time), max((span[1] for span in work), default=time)
    busy = computed = waited = worked = 0  # how far time is covered by anything, and by work, and how much of it
    for start, end, kind in sorted([*spans, (time, time, "")]):
        if start > busy:
            parts[FILL if start <= first else DRAIN if busy >= last else TURN] += start - busy
            waited += start - busy
        if end > computed and kind in computing:
            more = end - (start if start > computed else computed)
            parts[kind] += more
            worked += more
            computed = end
        if end > busy:
            busy = end
    parts[TALK] += time - waited - worked


def waits_of(parts: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Return the parts in which ranks wait."""
    return {part: share for part, share in parts.items() if part in WAITS}


def idle_of(parts: Mapping[str, Fraction]) -> Fraction:
    """Return the share of time in which ranks wait: they neither compute nor communicate."""
    return sum(waits_of(parts).values(), Fraction(0))


def name_of(part: str) -> str:
    """Return what a part is called: the field's word for an operation, or plain words."""
    return row.word if (row := row_of(part)) is not None else WORDS[part]


def share_text(share: float | Fraction) -> str:
    """Return a share (0 to 1) in percent. Only exactly nothing is 0%, and only everything is 100%.

    >>> share_text(0.0), share_text(0.001), share_text(0.426), share_text(0.999)
    ('0%', '<1%', '43%', '>99%')
    """
    if 1e-9 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 - 1e-9 else f"{float(share):.0%}"


def in_words(parts: Mapping[str, Fraction]) -> str:
    """Return parts as a list: ``forward 24%, backward 24%, update 3%, only communicates 7%, waits to begin 10%``."""
    return ", ".join(f"{name_of(part)} {share_text(share)}" for part, share in parts.items())
