"""The texts of a picture: numbers, names of ranks, hover texts, and a summary for those who cannot see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Any, TypeVar

from lib.basics.errors import number_ranges
from lib.basics.units import Elements, SizeUnit, show_elements
from lib.real.traces.labels import UNRECORDED
from lib.record.figures.breakdown import TALK, in_words, share_text
from lib.record.table import OPERATIONS, TRACED

from .theme import name_of
from .trace import Trace, of_stream

COMPUTES = {*OPERATIONS, *TRACED} - {UNRECORDED}
"""The parts of time in which a rank computes."""
N = TypeVar("N", int, float)


def si(number: float) -> str:
    """Return a size with three digits.

    >>> si(1769472), si(417), si(999_999)
    ('1.77M', '417', '1M')
    """
    for unit, scale in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if abs(number) < 999.5 * scale:
            return f"{number / scale:.3g}{unit}"
    return f"{number / 1e12:.3g}T"


def size_of(elements: Elements | float) -> str:
    """Return a size with all digits, or with three if it is very large.

    >>> size_of(2359296), size_of(12345678901)
    ('2,359,296', '12.3G')
    """
    return si(float(elements)) if elements >= 1e9 else show_elements(elements)


def brief_size(unit: SizeUnit, size: Elements | float) -> str:
    """Return a size with three digits: ``1.77M``, or ``16.1 GB`` where it is in bytes."""
    return unit.show(size) if unit.says_itself else si(float(size))


def ranges(numbers: Iterable[int], most: int = 12) -> str:
    """Return numbers as ranges. With more than ``most`` ranges, show the first, the last, and how many numbers.

    >>> ranges({5, 0, 1, 2})
    '0-2, 5'
    >>> ranges(range(0, 100, 2), most=3)
    '0, 2 ... 98 (50)'
    """
    return _ranges(numbers if isinstance(numbers, (frozenset, tuple)) else tuple(numbers), most)


@lru_cache(maxsize=4096)  # the same few sets are in the texts of thousands of operations
def _ranges(numbers: frozenset[int] | tuple[int, ...], most: int) -> str:
    shown = number_ranges(numbers)
    if len(shown) > most:
        return f"{', '.join(shown[: most - 1])} ... {shown[-1]} ({len(numbers)})"
    return ", ".join(shown)


def brief_ranks(ranks: Sequence[int], devices: Sequence[int] = (), of: int = 0) -> str:
    """Return the name of a row of ranks, short enough for its label. Hosts are named by their ``devices``. ``of``: the
    number of all ranks.

    >>> brief_ranks([3]), brief_ranks([0, 1, 2, 3]), brief_ranks([1, 5, 9, 13], of=16), brief_ranks([4], [0])
    ('rank 3', 'ranks 0-3', 'every 4th from 1', 'host of rank 0')
    >>> brief_ranks([1, 5, 9, 13], of=64), brief_ranks([0, 1, 2, 4, 5, 6, 7, 9, 11])
    ('every 4th, 1 to 13', '9 of ranks 0-11')
    """
    named = devices or ranks
    hosts, text = f"host{plural(ranks)} of " * bool(devices), ranges(named)
    if len(text) <= 7:
        return f"{hosts}rank{plural(named)} {text}"
    steps = {after - before for before, after in pairwise(named)}
    if len(steps) > 1 or steps == {1}:
        return f"{hosts}{len(named)} of ranks {named[0]}-{named[-1]}"
    [step] = steps
    last = f", {named[0]} to {named[-1]}" if named[-1] + step < of else f" from {named[0]}"
    return f"{hosts}every {step}{'nd' if step == 2 else 'rd' if step == 3 else 'th'}{last}"


def full_ranks(ranks: Sequence[int], devices: Sequence[int] = ()) -> str:
    """Return the name of a row with all its ranks.

    >>> full_ranks([0, 1, 5]), full_ranks([4, 5], [0, 1])
    ('ranks 0, 1, 5', 'ranks 4, 5, hosts of ranks 0, 1')
    """
    hosts = f", host{plural(ranks)} of rank{plural(devices)} {ranges(devices)}" if devices else ""
    return f"rank{plural(ranks)} {ranges(ranks)}{hosts}"


def plural(things: Sized | int, ending: str = "s") -> str:
    """Return the plural ending of a word, or nothing for a single thing."""
    count = things if isinstance(things, int) else len(things)
    return "" if count == 1 else ending


def capitalized(sentence: str) -> str:
    """Return a sentence with a capital letter at its beginning, and the others as they are.

    >>> capitalized("rank 0 waits for FSDP")
    'Rank 0 waits for FSDP'
    """
    return sentence[:1].upper() + sentence[1:]


def summary(trace: Trace) -> str:
    """Return the alternative text of a picture: sizes, figures, and the shape of the schedule."""
    if not trace.attempted:
        return f"{trace.title}: not attempted yet"
    sentences = trace.failure.sentences() if trace.failure else ()
    failed = [f"{capitalized(sentence)}." for _, sentence in sentences]
    chain = "The longest chain of operations that wait for each other: "
    chains = [f"{chain}{trace.chain.describe(trace.unit)}."] if trace.chain else []
    return " ".join([_figures(trace), *failed, *chains, _shape(trace)])


def _figures(trace: Trace) -> str:
    peak = trace.peak
    head = f"{trace.title}: {machine(trace).replace(' · ', ', ')}; {trace.fault and trace.fault + '; '}"
    shares = f"where the time goes: {in_words(trace.parts)}" if trace.parts else "no time passes"
    spent = "; ".join(filter(None, [shares, idle_and_hidden(trace)]))
    if peak is None:
        return f"{head}time {trace.unit.lasting(trace.time)}; {spent}."
    return (
        f"{head}time {trace.unit.lasting(trace.time)}{_met(trace.time_target, trace.fast_enough, '{:,.10g}'.format)}; "
        f"peak memory {trace.size_unit.describe(peak.memory)} on rank {peak.rank} "
        f"at {trace.unit.at(trace.unit.brief(peak.issued))}"
        f"{_met(trace.memory_target, trace.small_enough, trace.size_unit.show)}; "
        + (f"on a host {trace.size_unit.describe(trace.host_peak.memory)}; " if trace.host_peak else "")
        + f"{spent}."
    )


def idle_and_hidden(trace: Trace) -> str:
    """Return the shares of the bubble and of communication beside compute, as far as there is any."""
    figures = {"bubble": trace.idle, "communicates beside compute": trace.hidden}
    return ", ".join(f"{name} {share_text(share)}" for name, share in figures.items() if share > 1e-9)


def who(trace: Trace) -> str:
    """Return whose time a picture shows: ``4 ranks``, or ``rank 0 of 4`` where the others are not shown."""
    own = [rank for rank in trace.by_rank if rank not in trace.hosts]
    return f"{trace.ranks} rank{plural(trace.ranks)}" if trace.ranks >= trace.of else f"{full_ranks(own)} of {trace.of}"


def computes(parts: Mapping[str, Fraction]) -> str:
    """Return the share of time in which ranks compute: ``computes 73%``."""
    return f"computes {share_text(computing(parts))}"


def computing(parts: Mapping[str, Fraction]) -> float:
    """Return the share of time in which ranks compute."""
    return float(sum(share for part, share in parts.items() if part in COMPUTES))


def loses_by_waiting(trace: Trace) -> bool:
    """Return whether more is lost in the bubble than to communication alone, or work was not recorded."""
    return trace.idle >= trace.parts.get(TALK, 0) or UNRECORDED in trace.parts


def spent(trace: Trace) -> str:
    """Return what tells most of a schedule: ``bubble 43%`` or, if communication takes more, ``computes 73%``."""
    return f"bubble {share_text(trace.idle)}" if loses_by_waiting(trace) else computes(trace.parts)


def machine(trace: Trace) -> str:
    """Return the numbers of ranks, layers and micro-batches, the length of a tick if it was measured, and notes."""
    if trace.profile is not None:
        return " · ".join(filter(None, [trace.profile.about, trace.scale, trace.note]))
    text = f"{who(trace)} · {trace.layers} layer{plural(trace.layers)}"
    text += f" · {trace.batches} micro-batch{plural(trace.batches, 'es')}"
    text += f" · nodes of {trace.node_size}" if trace.node_size else ""
    text += f" · {len(trace.hosts)} host{plural(trace.hosts)}" if trace.hosts else ""
    more = (trace.scale, trace.note, "" if trace.attempted else "not attempted yet")
    return " · ".join(filter(None, [text, *more]))


def _met(target: Any, met: bool | None, show: Callable[[Any], str]) -> str:
    """Return a target in brackets, and whether it is met if that is known."""
    if target is None:
        return ""
    return f" (target {show(target)}{'' if met is None else ', met' if met else ', missed'})"


def _shape(trace: Trace) -> str:
    """Return how many operations of each kind the ranks run, and from when to when they compute."""
    counts = [Counter(map(attrgetter("kind"), events)) for events in trace.by_rank.values()]
    kinds = [kind for kind in (*OPERATIONS, *TRACED) if any(count[kind] for count in counts)]
    amounts = [f"{_span([count[kind] for count in counts], str)} {name_of(kind)}" for kind in kinds]
    text = f"{'Each rank' if trace.ranks > 1 else 'It'} runs {', '.join(amounts) or 'nothing'}."
    computes = [of_stream(events, "compute") for events in trace.by_rank.values()]
    starts = [min((event.start for event in own), default=0.0) for own in computes]
    ends = [max((event.end for event in own), default=0.0) for own in computes]
    if len(set(starts)) > 1:
        unit = trace.unit
        first, last = (unit.at(_span(times, unit.brief)) for times in (starts, ends))
        text += f" Ranks begin to compute at {first} and end at {last}."
    return text


def _span(numbers: Sequence[N], show: Callable[[N], str]) -> str:
    low, high = min(numbers), max(numbers)
    return show(low) if low == high else f"{show(low)} to {show(high)}"
