"""Several schedules under one time axis: the differences from one to the next, their memory, and their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from lib.basics.errors import PuzzleError
from lib.record.figures.breakdown import TALK

from ..ink import theme
from ..ink.figure import PHONE, Figure, Narrow
from ..ink.letters import around, fit, largest, places_of_texts, text_width, wrapped
from ..ink.marks import Diagram, Titled, label, lines, style
from ..ink.texts import COMPUTES, as_shown, machine, share_text, size_of
from ..ink.trace import Trace, in_one_unit, texts_for, trace_of
from ..schedule.layout import PAD, Layout
from ..schedule.legend import draw_legend, legend_of
from ..schedule.links import LINKS
from ..schedule.numbering import NumberPlans, plan_numbers
from ..schedule.picture import WIDTH, beside_narrow, card, check_choice, check_width, heading, sentences, small_enough
from ..schedule.timeline import axis, draw_timeline
from .difference import in_words as changes_in_words
from .total_memory import draw_total, most_memory

TITLES, NAME, CHANGE, GAP, LINE = 420.0, 22.0, 17.0, 16.0, 19.0
"""In pixels: the largest width of a title, the height of a title and of a line on differences, the room between
schedules, and the height of a line of the table."""
MOST = 4
"""The largest number of schedules: the eye does not follow more."""
MEMORY = "peak memory"
"""The name of the figure that is not known of a profile."""
LEAST = 800.0
"""The least width of a picture in pixels, which the table needs."""


class Column(NamedTuple):
    """A figure of the table: its name in two lines, its value in a trace, how that is shown, whether less is better,
    and how all that is said in a sentence."""

    name: str
    unit: str
    value: Callable[[Trace], float]
    shown: Callable[[float], str]
    less: bool = False
    sentence: str = "{name} {value} {unit}"


SENT = "{name} {unit} {value}"

COLUMNS = (
    Column("computes", "of rank time", lambda trace: as_shown(trace.parts, COMPUTES), share_text),
    Column("only", "communicates", lambda trace: as_shown(trace.parts, [TALK]), share_text, sentence=SENT),
    Column("bubble", "of rank time", lambda trace: trace.idle, share_text, True),
    Column("sent inside", "nodes", lambda trace: trace.traffic(between=False), share_text, sentence=SENT),
    Column("sent between", "nodes", lambda trace: trace.traffic(between=True), share_text, sentence=SENT),
    Column("hidden", "by compute", lambda trace: trace.hidden, share_text),
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

    Above each but the first, it says how much shorter or longer it is than the one before and of what that is made: how
    much more or less a rank, on average, computes, only communicates, or waits. These parts add up to
    the difference. Below each is the memory of the rank whose peak is the highest, all on one scale, with the target if
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
    check_width(width, "compare", LEAST)
    traces = in_one_unit([trace_of(source, title, few=True) for source, title in zip(sources, names, strict=True)])
    return small_enough(lambda rough: _figure(traces, width, links, static, rough))


def _figure(traces: Sequence[Trace], width: float, links: str, static: bool, rough: int) -> Figure:
    until = max(trace.until for trace in traces)
    y, most = PAD, most_memory(traces)
    parts: list[Diagram] = []
    layouts: list[Layout] = []
    plans: list[NumberPlans] = []
    bands: list[tuple[float, float]] = []  # from which y to which each schedule is
    machine_before = ""
    for trace, before in _with_before(traces):
        text = machine(trace)  # once for schedules of the same machine
        title, end = heading(fit(trace.title, 13, TITLES), text if text != machine_before else "", y)
        parts += title
        if fault := trace.fault and fit(trace.fault, 11, width - PAD - end):
            parts.append(label(end, y + 9, fault, 11, style(theme.BAD), "start", 600))
        y, machine_before = y + NAME, text
        if before is not None:
            change, y = _change(before, trace, width, y)
            parts += change
        if trace.attempted:
            layout = Layout(trace, width, y, until, rough, beside=traces)
            layouts.append(layout)
            plans.append(plan_numbers(layout))
            parts += [*draw_timeline(layout, links, plans[-1]), *_end(layout, until)]
            total, y = draw_total(layout, layout.bottom + 5, most)
            parts += total
            bands.append((layout.top - 2, y))
        y += GAP
    if layouts:
        scale, y = axis(layouts[-1], y - GAP)
        ended = y
        ends = {layout.x(trace.time) for trace in traces if _is_compared(trace) and trace.time < until}
        if guides := [(x, top, x, bottom) for x in sorted(ends) for top, bottom in bands]:
            texts = places_of_texts(parts)
            pieces = [piece for guide in guides for piece in around(guide, texts)]
            parts.append(lines(pieces, style(None, theme.INK, 1, dash=(1.5, 3.5))))
        table, y = _table(traces, width, y + 14)
        meaning = legend_of(layouts, plans, links=links)
        legend, y = draw_legend(meaning, width, y + 12)
        parts += [*scale, *table, *legend]
        y += 12
    figure = card(parts, width, y, in_words(traces), static, " and ".join(trace.title for trace in traces))
    if layouts:
        figures, y = _narrow_table(traces, 8)
        faults = [f"{trace.title}: {trace.fault}." for trace in traces if trace.attempted and trace.fault]
        changes, y = sentences([*faults, *_changes(traces)], y + 10)
        legend, y = draw_legend(meaning, PHONE, y + 8)
        figure.narrow = Narrow((0, ended + 2), None, beside_narrow([*figures, *changes, *legend], y + 10))
    return figure


def _changes(traces: Iterable[Trace]) -> Iterator[str]:
    """Yield what changed from one schedule to the next, in sentences."""
    for trace, before in _with_before(traces):
        if before is not None:
            head, made = changes_in_words(before, trace)
            yield f"{trace.title} is {head}{made and '; '}{made}."


def _with_before(traces: Iterable[Trace]) -> Iterator[tuple[Trace, Trace | None]]:
    """Yield each schedule with the one before that it is compared with."""
    before = None
    for trace in traces:
        yield trace, before if _is_compared(trace) else None
        before = trace if _is_compared(trace) else before


def _is_compared(trace: Trace) -> bool:
    """Return whether the differences of a run are shown: one that fails, or does nothing, is soon done."""
    return trace.attempted and trace.failure is None


def _change(before: Trace, after: Trace, width: float, y: float) -> tuple[list[Diagram], float]:
    """Return what changed from one schedule to the next, and the y where that ends."""
    head, made = changes_in_words(before, after)
    head = fit(head, 11.5, width - 2 * PAD)
    reach = PAD + text_width(head, 11.5, bold=True) + 10
    parts: list[Diagram] = [label(PAD, y + 5, head, 11.5, style(theme.INK), "start", 650)]
    if made:
        texts = [made]
        if reach + text_width(made, 11) > width - PAD:
            reach, y, texts = PAD, y + CHANGE, wrapped(made, 11, width - 2 * PAD)
        for at, line in enumerate(texts):
            y += CHANGE * (at > 0)
            parts.append(Titled(made, label(reach, y + 5, line, 11, style(theme.INK), "start")))
    return parts, y + CHANGE


def _end(layout: Layout, until: float) -> Iterator[Diagram]:
    """Yield a line and the time where a schedule ends before the longest one."""
    trace = layout.trace
    if trace.failure is None and trace.time < until:
        x, text = layout.x(trace.time), trace.unit.lasting(trace.time)
        yield lines([(x, layout.top - 2, x, layout.bottom + 2)], style(None, theme.INK, 1.5))
        if x + 10 + text_width(text, 11, bold=True) < layout.x1:
            most = largest(text, layout.x1 - x - 10, layout.height, bold=True)
            yield label(
                x + 7, layout.rows[0].y + layout.height / 2, text, 11, style(theme.INK), "start", 600, most=most
            )


def _columns(traces: Sequence[Trace]) -> list[Column]:
    """Return the columns of the table, with those for nodes and hosts only if there are any."""
    unit = traces[0].unit
    absent = {"nodes"} if not any(trace.node_size for trace in traces) else set()
    absent |= {"on a host"} if not any(trace.hosts for trace in traces) else set()
    time = Column("time", unit.name, lambda trace: trace.time, unit.brief, True)
    sizes = next((trace.size_unit for trace in traces if trace.peak is not None), traces[0].size_unit)
    shown, sentence = (sizes.show, "{name} {value}") if sizes.says_itself else (size_of, "{name} {value} {unit}")
    memory = Column(MEMORY, sizes.name, lambda one: float(one.peak_memory), shown, True, sentence)
    most = Column(
        "on a host", sizes.name, lambda one: float(one.host_peak.memory if one.host_peak else 0), shown, True, sentence
    )
    memories = [memory] if any(trace.peak is not None for trace in traces) else []
    return [time, *memories, *(one for one in (most, *COLUMNS) if absent.isdisjoint((one.name, one.unit)))]


def _table(traces: Sequence[Trace], width: float, y: float) -> tuple[list[Diagram], float]:
    columns = _columns(traces)
    ink, mute = style(theme.INK), style(theme.MUTE)
    titles = [fit(trace.title, 11.5, width * 0.24) for trace in traces]
    left = PAD + max(text_width(title, 11.5, bold=True) for title in titles) + 16
    step = (width - PAD - left) / len(columns)
    ends = [left + step * (place + 1) for place in range(len(columns))]
    parts: list[Diagram] = []
    for column, x in zip(columns, ends, strict=True):
        parts += [label(x, y + 6, column.name, 10, mute, "end"), label(x, y + 18, column.unit, 10, mute, "end")]
    y += 28
    parts.append(lines([(PAD, y, width - PAD, y)], style(None, theme.HATCH, 1)))
    for trace, title in zip(traces, titles, strict=True):
        y += LINE
        parts.append(label(PAD, y - 7, title, 11.5, ink, "start", 600))
        if not trace.attempted:
            parts.append(label(ends[0], y - 7, "not attempted yet", 11.5, mute, "end"))
            continue
        for column, x in zip(columns, ends, strict=True):
            text, best = _cell(column, trace, traces)
            parts.append(label(x, y - 7, text, 11.5, ink, "end", 700 if best else 400))
    return parts, y


def _narrow_table(traces: Sequence[Trace], y: float) -> tuple[list[Diagram], float]:
    """Return the table for a narrow place, with a column for each schedule and a line for each figure."""
    left, ink, mute = 112.0, style(theme.INK), style(theme.MUTE)
    step = (PHONE - PAD - left) / len(traces)
    ends = [left + step * (place + 1) for place in range(len(traces))]
    names = [wrapped(trace.title, 11, step - 8, bold=True) for trace in traces]
    parts: list[Diagram] = []
    for name, x in zip(names, ends, strict=True):
        parts += [label(x, y + 8 + 14 * at, line, 11, ink, "end", 600) for at, line in enumerate(name)]
    y += 14 * max(map(len, names)) + 4
    parts.append(lines([(PAD, y, PHONE - PAD, y)], style(None, theme.HATCH, 1)))
    for column in _columns(traces):
        y += 32
        parts += [label(PAD, y - 20, column.name, 11, ink, "start"), label(PAD, y - 7, column.unit, 10, mute, "start")]
        for trace, x in zip(traces, ends, strict=True):
            text, best = _cell(column, trace, traces)
            parts.append(label(x, y - 14, text, 11, ink, "end", 700 if best else 400))
    return parts, y


def _cell(column: Column, trace: Trace, traces: Sequence[Trace]) -> tuple[str, bool]:
    """Return a figure of a schedule, and whether it is the best of all that are right."""
    if not trace.attempted:
        return "", False
    if not _known(column, trace):
        return "unknown", False
    value = column.value(trace)
    values = [column.value(other) for other in traces if _right(other) and _known(column, other)] or [value]
    return column.shown(value), column.less and _right(trace) and value == min(values) < max(values)


def _known(column: Column, trace: Trace) -> bool:
    """Return whether a figure of a schedule is known: of a profile's memory nothing is."""
    return trace.peak is not None or column.name != MEMORY


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
        figures = [
            one.sentence.format(name=one.name, value=one.shown(one.value(trace)), unit=one.unit) for one in columns
        ]
        figures = [*filter(None, [trace.fault]), *figures]
        texts.append(f"{trace.title} ({machine(trace).replace(' · ', ', ')}): {', '.join(figures)}.")
    return f"{len(known)} schedules under one time axis. {' '.join([*texts, *_changes(known)])}"
