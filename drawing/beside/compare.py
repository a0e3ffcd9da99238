"""Several schedules under one time axis: the differences from one to the next, their memory, and their figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from lib.basics.errors import PuzzleError
from lib.basics.units import TICKS, Elements, show_ticks
from lib.record.figures.breakdown import TALK, name_of, share_text
from lib.record.figures.difference import calls_of, changes, parts_of, rounded
from lib.record.table import OPERATIONS, TRACED

from ..ink import theme
from ..ink.figure import PHONE, Figure, at_any_width
from ..ink.letters import around, places_of_texts, text_width, wrapped
from ..ink.marks import Diagram, label, lines, style
from ..ink.texts import brief_size, computing, machine, size_of
from ..ink.trace import Trace, in_one_unit, texts_for, trace_of
from ..schedule.layout import PAD, Layout
from ..schedule.legend import draw_legend, legend_of
from ..schedule.links import LINKS
from ..schedule.memory import draw_total, most_memory
from ..schedule.picture import WIDTH, card, check_choice, check_width, heading, sentences, small_enough
from ..schedule.timeline import axis, draw_timeline

GAP, LINE = 16.0, 19.0
"""In pixels: the room between schedules, and the height of a line of the table."""
MOST = 4
"""The largest number of schedules: the eye does not follow more."""
PLACES = 2
"""Decimals of a tick in a sentence. Milliseconds are shown with three digits."""
MEMORY = "peak memory"
"""The name of the figure that is not known of a profile."""
FIGURES, WIDEST = 150.0, 210.0
"""In pixels: where the columns of the table begin, and how wide each is at most."""


class Column(NamedTuple):
    """A figure of the table: what is said of it, with braces in its place, its value in a trace, how that is shown, and
    whether less is better."""

    said: str
    value: Callable[[Trace], float]
    shown: Callable[[float], str]
    less: bool = False


COLUMNS = (
    Column("computes {} of rank time", lambda trace: computing(trace.parts), share_text),
    Column("only communicates {}", lambda trace: float(trace.parts.get(TALK, 0)), share_text),
    Column("bubble {} of rank time", lambda trace: trace.idle, share_text, True),
    Column("sent inside nodes {}", lambda trace: trace.traffic(between=False), share_text),
    Column("sent between nodes {}", lambda trace: trace.traffic(between=True), share_text),
    Column("hidden {} by compute", lambda trace: trace.hidden, share_text),
)


def compare(
    *sources: object,
    titles: Iterable[str] | None = None,
    links: str = "auto",
    width: float = WIDTH,
    static: bool = False,
) -> Figure:
    """A picture of two to four schedules, one below the other on one time axis, with a table of their figures. They
    are runs, or profiles of real runs (``trace``): beside a profile, a run needs real prices (``lib.real``), or
    the profile labels that tell how long a tick is.

    Below the table, it says of each but the first how much shorter or longer it is than the one before and of what that
    is made: how much more or less a rank, on average, computes, only communicates, or waits. These parts add up to the
    difference. Below each is the memory of the rank whose peak is the highest, all on one scale, with the target if
    there is one. A dashed line goes through all schedules where a shorter one ends.

    ``titles`` names them (a Run has a name of its own); the rest is as in ``draw``. Time is in ticks; if
    a run was measured in real time, all times are in milliseconds. Memory is in elements, everything else in percent of
    all ranks' time. The best time, memory and bubble are in bold.
    Raises PuzzleError for fewer than two or more than four, and for anything that is not a run.
    """
    if not 2 <= len(sources) <= MOST:
        expected = "compare(run_a, run_b)" if len(sources) < 2 else "two pictures, each with some of them"
        got = f"{len(sources)} of them"
        raise PuzzleError("compare takes two to four runs", where="compare", expected=expected, got=got, line="")
    names = texts_for(sources, titles, "title", "compare")
    check_choice("links", links, LINKS, "compare")
    check_width(width, "compare")
    traces = in_one_unit([trace_of(source, title, few=True) for source, title in zip(sources, names, strict=True)])
    return small_enough(lambda rough: at_any_width(partial(_figure, traces, links, rough), width, PHONE, static))


def _figure(traces: Sequence[Trace], links: str, rough: int, width: float) -> Figure:
    until = max(trace.until for trace in traces)
    y, most = PAD, most_memory(traces)
    parts: list[Diagram] = []
    layouts: list[Layout] = []
    bands: list[tuple[float, float]] = []  # from which y to which each schedule is
    machine_before = ""
    for trace in traces:
        text = machine(trace)  # once for schedules of the same machine
        notes = {text: theme.MUTE} if text != machine_before else {}
        title, y = heading(trace.title, notes | ({trace.fault: theme.BAD} if trace.fault else {}), y, width)
        parts += title
        machine_before = text
        if trace.attempted:
            layout = Layout(trace, width, y, until, rough, beside=traces, links=links)
            layouts.append(layout)
            parts += [*draw_timeline(layout), *_end(layout, until)]
            total, y = draw_total(layout, layout.bottom + 5, most)
            parts += total
            bands.append((layout.top - 2, y))
        y += GAP
    if layouts:
        scale, y = axis(layouts[-1], y - GAP)
        ends = {layout.x(trace.time) for trace in traces if _is_compared(trace) and trace.time < until}
        if guides := [(x, top, x, bottom) for x in sorted(ends) for top, bottom in bands]:
            texts = places_of_texts(parts)
            pieces = [piece for guide in guides for piece in around(guide, texts)]
            parts.append(lines(pieces, style(None, theme.INK, 1, dash=(1.5, 3.5))))
        table, y = _table(traces, width, y + 14)
        changes, y = sentences(_changes(traces), y + 6, width)
        legend, y = draw_legend(legend_of(layouts), width, y + 12)
        parts += [*scale, *table, *changes, *legend]
        y += 12
    return card(parts, width, y, in_words(traces), title=" and ".join(trace.title for trace in traces))


def _changes(traces: Iterable[Trace]) -> Iterator[str]:
    """Yield what changed from one schedule to the next, in sentences."""
    for before, trace in pairwise(filter(_is_compared, traces)):
        head, made = change_in_words(before, trace)
        yield f"{trace.title} is {head}{made and '; '}{made}."


def _is_compared(trace: Trace) -> bool:
    """Return whether the differences of a run are shown: one that fails, or does nothing, is soon done."""
    return trace.attempted and trace.failure is None


def _end(layout: Layout, until: float) -> Iterator[Diagram]:
    """Yield a line and the time where a schedule ends before the longest one."""
    trace = layout.trace
    if trace.failure is None and trace.time < until:
        x, text = layout.x(trace.time), trace.unit.lasting(trace.time)
        yield lines([(x, layout.top - 2, x, layout.bottom + 2)], style(None, theme.INK, 1.5))
        if x + 10 + text_width(text, 11, bold=True) < layout.x1:
            yield label(x + 7, layout.rows[0].y + layout.height / 2, text, 11, style(theme.INK), "start", 600)


def _columns(traces: Sequence[Trace], slim: bool = False) -> list[Column]:
    """Return the columns of the table, with those for nodes and hosts only if there are any. ``slim``: with three
    digits of a size, since there is no room for more."""
    unit, sizes = traces[0].unit, next((one.size_unit for one in traces if one.peak), traces[0].size_unit)
    time = Column(f"time {{}} {unit.name}", lambda trace: trace.time, unit.brief, True)
    shown = partial(brief_size, sizes) if slim or sizes.says_itself else size_of
    told = "" if sizes.says_itself else f" {sizes.name}"
    memory = Column(f"{MEMORY} {{}}{told}", lambda one: float(one.peak_memory), shown, True)
    host = Column(f"on a host {{}}{told}", lambda one: float(one.host_peak.memory if one.host_peak else 0), shown, True)
    absent = [] if any(trace.node_size for trace in traces) else ["nodes"]
    absent += [] if any(trace.peak for trace in traces) else [MEMORY]
    absent += [] if any(trace.hosts for trace in traces) else [host.said]
    every = [time, memory, host, *COLUMNS]
    return [one for one in every if not any(word in one.said for word in absent)]


def _table(traces: Sequence[Trace], width: float, y: float) -> tuple[list[Diagram], float]:
    """Return the table, with a line for each figure and a column for each schedule, and the y where it ends. Where a
    word of a title has no room in its column, each title has lines of its own, above all columns before."""
    step, ink = min(WIDEST, (width - PAD - FIGURES) / len(traces)), style(theme.INK)
    ends = [FIGURES + step * (at + 1) for at in range(len(traces))]
    titles = [wrapped(trace.title, 11.5, step - 8, bold=True) for trace in traces]
    if any(line.endswith("…") for title in titles for line in title):
        titles = []
        for trace, end in zip(traces, ends, strict=True):
            titles.append([""] * sum(map(len, titles[-1:])) + wrapped(trace.title, 11.5, end - PAD, bold=True))
    parts: list[Diagram] = [
        label(x, y + 6 + 14 * at, line, 11.5, ink, "end", 600)
        for title, x in zip(titles, ends, strict=True)
        for at, line in enumerate(title)
        if line
    ]
    y += 14 * max(map(len, titles)) + 2
    parts.append(lines([(PAD, y, ends[-1], y)], style(None, theme.HATCH, 1)))
    for column in _columns(traces, slim=width == PHONE):
        y += LINE
        name, unit = column.said.split(" {}")
        beside = PAD + text_width(name, 10.5) + 6
        parts.append(label(PAD, y - 6, name, 10.5, ink, "start"))
        parts += [label(beside, y - 6, unit.lstrip(), 10.5, style(theme.MUTE), "start")] * bool(unit)
        for trace, x in zip(traces, ends, strict=True):
            text, best = _cell(column, trace, traces)
            parts.append(label(x, y - 6, text, 11.5, ink, "end", 400 + 300 * best))
    return parts, y + 4


def _cell(column: Column, trace: Trace, traces: Sequence[Trace]) -> tuple[str, bool]:
    """Return a figure of a schedule, and whether it is the best of all that are right."""
    if not trace.attempted:
        return "not yet", False
    if not _known(column, trace):
        return "unknown", False
    value = column.value(trace)
    values = [column.value(other) for other in traces if _right(other) and _known(column, other)] or [value]
    return column.shown(value), column.less and _right(trace) and value == min(values) < max(values)


def _known(column: Column, trace: Trace) -> bool:
    """Return whether a figure of a schedule is known: of a profile's memory nothing is."""
    return trace.peak is not None or not column.said.startswith(MEMORY)


def _right(trace: Trace) -> bool:
    """Return whether the figures of a run count, since it trains the model."""
    return trace.attempted and not trace.fault


def in_words(traces: Iterable[Trace]) -> str:
    """Return the figures of all schedules, and the differences from one to the next, in sentences."""
    known = list(traces)
    texts = []
    for trace in known:
        if not trace.attempted:
            texts.append(f"{trace.title}: not attempted yet.")
            continue
        columns = [column for column in _columns(known) if _known(column, trace)]
        figures = [one.said.format(one.shown(one.value(trace))) for one in columns]
        figures = [*filter(None, [trace.fault]), *figures]
        texts.append(f"{trace.title} ({machine(trace).replace(' · ', ', ')}): {', '.join(figures)}.")
    return f"{len(known)} schedules under one time axis. {' '.join([*texts, *_changes(known)])}"


def change_in_words(before: Trace, after: Trace) -> tuple[str, str]:
    """Return how much shorter or longer the second run is, and the parts of this difference."""
    found = changes(parts_of(before.time, before.parts), parts_of(after.time, after.parts))
    unit, largest = after.unit, max(map(abs, found.values()), default=Fraction())
    places = PLACES if unit is TICKS else max(0, 2 - math.floor(math.log10(largest or 1)))
    shown = {part: value for part, value in rounded(found, places).items() if value}
    total = sum(shown.values())
    more = f"{show_ticks(float(abs(total)))} {unit.name} {'shorter' if total < 0 else 'longer'} than"
    head = f"{more if total else 'as long as'} {before.title}"
    lines = [f"{part} {_more(f'{show_ticks(float(abs(value)))} {unit.name}', value)}" for part, value in shown.items()]
    made = [f"{'a rank on average: ' * (after.ranks > 1 or before.ranks > 1)}{', '.join(lines)}"] if lines else []
    if before.profile is not None or after.profile is not None:
        old, new = calls_of(before.by_rank.values()), calls_of(after.by_rank.values())
        for kind in (*OPERATIONS, *TRACED):  # the calls of the network that a rank makes more often, or less often
            if old[kind] != new[kind]:
                made.append(f"{name_of(kind)} {new[kind] or 'never'}{' times' * bool(new[kind])}, not {old[kind]}")
    if before.peak is not None and after.peak is not None:
        change: Elements = after.peak.memory - before.peak.memory
        more = _more(after.size_unit.describe(max(change, -change)), change)
        made.append(f"peak memory {more if change else 'is the same'}")
    return head, "; ".join(made)


def _more(size: str, change: Elements) -> str:
    return f"{size} {'more' if change > 0 else 'less'}"
