"""Schedules of one model that run against each other, in a picture that plays by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple
from zlib import crc32

from lib import Run
from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.machine.cost import Cost
from lib.record.events import MARKS
from lib.record.figures.breakdown import share_text
from lib.record.table import OPERATIONS, stream_of

from ..ink import theme
from ..ink.figure import PHONE, Figure, at_any_width
from ..ink.letters import fit, text_width, wrapped
from ..ink.marks import Classed, Diagram, box, label, lines, style
from ..ink.texts import brief_size, plural
from ..ink.trace import Trace, in_one_unit, texts_for, trace_of
from ..schedule.layout import PAD
from ..schedule.legend import Entry, draw_legend, patch
from ..schedule.miniature import Span, draw_rows, fill, most_of, runs_of
from ..schedule.operations import color_of, sample_color
from ..schedule.picture import card

LEFT, TALL, GAP, HEADS = PAD, 36.0, 9.0, 18.0
"""In pixels: where the rows begin, of each schedule the height of its rows and the room below, and the room for the
names of the figures."""


class Across(NamedTuple):
    """What is where, in pixels: the width of the picture, where the longest schedule ends, where the three columns of
    figures end, and how far the middle of a name and that of its figures are above the rows."""

    width: float
    right: float
    columns: tuple[float, ...]
    name: float
    figures: float


WIDE = Across(820.0, 534.0, (612.0, 702.0, 804.0), 12.0, -TALL / 2)
SLIM = Across(PHONE, PHONE - PAD, (80.0, 170.0, 280.0), 30.0, 11.0)
MOST, ROWS, FINE, BETWEEN = 12, 16, 200, 0.6
"""The largest numbers of schedules and of rows of each; operations on a rank from which it is drawn pixel by pixel;
pixels between boxes."""
SECONDS, CYCLE, TIMES = 4.8, 14.0, 3
"""How long the longest schedule runs, how long all is shown with the stillness after it, and how often."""
LONG = 12
"""A word of the legend with more letters comes last, where it has room."""
SIGNS = "*†‡§¶#"
"""What leads from a name to the notes below."""


class Race(Figure):
    """A picture that plays where pictures may move. Elsewhere, on paper and in other programs, it is the finish."""

    ends: Sequence[float] = ()
    """When each schedule ends, in parts of the longest."""
    reach = 0.0
    """How long that is, in pixels."""

    @cached_property
    def _body(self) -> str:
        drawn = super()._body
        name = f"r{crc32(drawn.encode()):x}"  # two on one page have different times
        moved = drawn.replace(f'class="{MOVED}', f'class="{name}')
        return f"<style>{self._played(name)}</style>{moved}"

    def _played(self, name: str) -> str:
        part = 100 * SECONDS / CYCLE
        moves = [
            ("c", f"0%{{opacity:1}}{part:.1f}%{{opacity:1;transform:scaleX(0)}}to{{opacity:0;transform:scaleX(0)}}"),
            ("h", f"0%{{opacity:1}}{part:.1f}%{{opacity:1;transform:translateX({self.reach:g}px)}}"
                  f"{part + 2:.1f}%,to{{opacity:0;transform:translateX({self.reach:g}px)}}"),
        ]  # fmt: skip
        moves += [
            (f"{at}", f"0%,{part * end:.1f}%{{opacity:0}}{part * end + 1:.1f}%,to{{opacity:1}}")
            for at, end in enumerate(self.ends)
        ]
        rules = (
            f".{name}{one}{{animation:{name}{one} {CYCLE:g}s linear {TIMES}}}@keyframes {name}{one}{{{frames}}}"
            for one, frames in moves
        )
        origin = f".{name}c{{transform-origin:{LEFT + self.reach + 2:g}px 0}}"
        return f"@media screen and (prefers-reduced-motion:no-preference){{{origin}{''.join(rules)}}}"


MOVED = "moved-"
"""Begins the classes of what moves, until the picture has a name."""


def race(
    *runs: Run,
    titles: Iterable[str] | None = None,
    notes: Iterable[str] | None = None,
    title: str | None = None,
    static: bool = False,
) -> Figure:
    """A picture of runs of one model that fill at the same time, with the time, the bubble and the peak memory of each:
    the bubble is the part of all ranks' time in which they wait. The best of each is in bold. Where pictures may move,
    it plays by itself for some seconds, three times, in an image, too: ``race(a, b).save("race.svg")``.

    ``titles`` names them (a Run has a name of its own), ``notes`` says in a few words what each does, and ``title`` is
    that of the picture. Below, it says whose prices are not those of the first, and who begins with more
    weights. Raises PuzzleError for fewer than two or more than twelve, for anything that is not a finished run, and for
    runs of different models.
    """
    names, sentences = texts_for(runs, titles, "title", "race"), texts_for(runs, notes, "note", "race")
    _check(runs)
    traces = in_one_unit([trace_of(one, name, few=True) for one, name in zip(runs, names, strict=True)])
    title = title or f"{_model(runs[0])}: which is done first?"
    marked = [_apart(one, runs) for one in runs]
    return at_any_width(partial(_drawn, traces, sentences, marked, title), WIDE, SLIM, static)


def _drawn(
    traces: Sequence[Trace],
    notes: Sequence[str | None],
    marked: Sequence[Sequence[str]],
    title: str,
    across: Across,
) -> Race:
    """Return the picture. ``marked``: what each run has that others have not."""
    until, width, reach = max(trace.time for trace in traces), across.width, across.right - LEFT
    titles = wrapped(title, 16, width - 2 * PAD, bold=True)
    over: list[Diagram] = [
        label(PAD, 24 + 20 * at, line, 16, style(theme.INK), "start", 650) for at, line in enumerate(titles)
    ]
    legend, y = draw_legend([_legend(traces)], width, 23 + 20 * len(titles), 12)
    top = y = y + 9
    over += [*legend, *_heads(traces[0], across, y + HEADS / 2)]
    under: list[Diagram] = []
    texts = dict.fromkeys(text for one in marked for text in one)
    signs = {text: SIGNS[at % len(SIGNS)] * (1 + at // len(SIGNS)) for at, text in enumerate(texts)}
    high = across.name + 10
    rows = [y + HEADS * (across is SLIM) + high + at * (high + TALL + GAP) for at in range(len(traces))]
    for at, (trace, note, row) in enumerate(zip(traces, notes, rows, strict=True)):
        wide = reach * trace.time / (until or 1.0)
        under += draw_rows(_rows(trace, wide), LEFT, row, wide, TALL, theme.GAP)
        under.append(lines([(LEFT + wide + 1, row - 1, LEFT + wide + 1, row + TALL + 1)], style(None, theme.INK, 2)))
        name = " ".join([trace.title, *(signs[text] for text in marked[at])])
        over += _name(name, note or "", across, row - across.name)
        over.append(Classed(f"{MOVED}{at}", _figures(trace, traces, across, row - across.figures)))
        y = row + TALL + GAP
    cover = Classed(f"{MOVED}c", [box(LEFT - 1, top, reach + 4, y - top, style(theme.CARD))], seen=False)
    now = [(LEFT, y, LEFT, y + TALL) for y in rows]  # only where no words are
    head = Classed(f"{MOVED}h", [lines(now, style(None, theme.MUTE, 1))], seen=False)
    foot, y = _foot(signs, y + 4, width)
    words = f"{title} {' '.join(_in_words(traces, marked))}"
    drawn = card([*under, cover, head, *over, *foot], width, y + 6, words)
    found = Race(drawn.diagrams, width, y + 6, words, title=title)
    found.ends, found.reach = [trace.time / (until or 1.0) for trace in traces], reach
    return found


def _check(runs: Sequence[Run]) -> None:
    if not 2 <= len(runs) <= MOST:
        raise PuzzleError(f"race takes two to {MOST} runs", where="race", got=f"{len(runs)} of them", line="")
    for one in runs:
        if not isinstance(one, Run) or one.failed:
            raise PuzzleError("race takes runs that came to their end", where="race", got=describe(one), line="")
    if len(models := dict.fromkeys(map(_model, runs))) > 1:
        raise PuzzleError("race takes runs of one model", where="race", got="; ".join(models), line="")


def _model(one: Run) -> str:
    experts = f", {one.experts} experts" * bool(one.experts)
    size = f"{one.ranks} GPU{plural(one.ranks)}, {one.layers} layer{plural(one.layers)}{experts}"
    return f"{size}, {one.batches} micro-batch{plural(one.batches, 'es')}"


def _rows(trace: Trace, wide: float) -> list[list[Span]]:
    """Return what each rank does, in parts of the time; of many, some at equal distances."""
    ranks = [*trace.by_rank]
    return [_row(trace, rank, wide) for rank in ranks[:: -(-len(ranks) // ROWS)]]


def _row(trace: Trace, rank: int, wide: float) -> list[Span]:
    own = [event for event in trace.by_rank[rank] if event.kind not in MARKS and event.length]
    own.sort(key=lambda event: event.stream == "compute")  # what computes lies above
    scale = wide / (trace.time or 1.0)
    if len(own) > FINE:
        whole = [(one.start * scale, one.end * scale, _shade(one.kind) or sample_color(one.kind, trace)) for one in own]
        most = most_of(fill(whole, int(wide) + 2), 0.5, {theme.TALK})
        spans = [(float(start), min(end, wide), color) for start, end, color in runs_of(most)]
    else:
        whole = [(one.start * scale, one.end * scale, _shade(one.kind) or color_of(one, trace)) for one in own]
        spans = [(start, max(end - BETWEEN, (start + end) / 2), color) for start, end, color in whole]
    return [(start / wide, end / wide, color) for start, end, color in spans]


def _shade(kind: str) -> str:
    """Return the one color of all communication, or nothing."""
    return "" if stream_of(kind) == "compute" else theme.TALK


def _legend(traces: Sequence[Trace]) -> list[Entry]:
    """Return what the colors mean: of one that several operations share, ``backward, also for the input``."""
    kinds = {event.kind for trace in traces for event in trace.events if event.kind not in MARKS and event.length}
    said = dict[str, str]()
    for kind in sorted(kinds, key=[*OPERATIONS].index):
        color, name = _shade(kind) or sample_color(kind, traces[0]), theme.name_of(kind)
        if _shade(kind):
            said[color] = "communication"
        else:
            first = said.get(color, "").partition(",")[0]
            said[color] = f"{said[color]}, also {name.removeprefix(first).strip()}" if first else name
    said[theme.GAP] = "bubble"
    return [patch(color, name) for color, name in sorted(said.items(), key=lambda one: len(one[1]) > LONG)]


def _heads(trace: Trace, across: Across, y: float) -> Iterator[Diagram]:
    for x, name in zip(across.columns, (trace.unit.name, "bubble", "memory"), strict=True):
        yield label(x, y, name, 12, style(theme.MUTE), "end")


def _name(name: str, note: str, across: Across, y: float) -> Iterator[Diagram]:
    name = fit(name, 14, across.right - LEFT)
    yield label(LEFT, y, name, 14, style(theme.INK), "start", 650)
    beside = LEFT + text_width(name, 14, bold=True) + 10
    shown = fit(note, 12, across.right - beside)
    if across is WIDE or shown == note:
        yield label(beside, y + 1, shown, 12, style(theme.MUTE), "start")


def _figures(trace: Trace, traces: Sequence[Trace], across: Across, y: float) -> Iterator[Diagram]:
    figures = [(one.time, one.idle, float(one.peak_memory)) for one in (trace, *traces)]
    texts = trace.unit.brief(trace.time), share_text(trace.idle), brief_size(trace.size_unit, trace.peak_memory)
    for x, text, (value, *others) in zip(across.columns, texts, zip(*figures, strict=True), strict=True):
        weight = 750 if value == min(others) else 400
        yield label(x, y, text, 15, style(theme.INK), "end", weight)


def _apart(one: Run, runs: Sequence[Run]) -> list[str]:
    """Return what a run has that others have not: other prices than the first, more weights than the least."""
    kept = _kept(one) / (min(map(_kept, runs)) or 1.0)
    more = f"each GPU begins with {kept:.3g} times the weights" * (kept > 1.001)
    return [*filter(None, [more, _prices(one.cost, runs[0].cost), one.overlap * bool(one.cost.overlapped)])]


def _prices(own: Cost, other: Cost) -> str:
    if type(own) is not type(other):
        return "at other prices"
    names = [name for name in own.prices if getattr(own, name) != getattr(other, name)]
    return "at other prices: " * bool(names) + ", ".join(f"{name}={getattr(own, name)}" for name in names)


def _kept(one: Run) -> float:
    """Return how many elements of weights and optimizer states a rank begins with."""
    return max(float(sum(one.cost.elements(labels) for labels in state.began)) for state in one.final_states)


def _foot(signs: Mapping[str, str], y: float, width: float) -> tuple[list[Diagram], float]:
    parts: list[Diagram] = []
    for text, sign in signs.items():
        for line in wrapped(f"{sign} {text}", 12, width - 2 * PAD):
            parts.append(label(PAD, y + 10, line, 12, style(theme.MUTE), "start"))
            y += 17
    return parts, y


def _in_words(traces: Sequence[Trace], marked: Sequence[Sequence[str]]) -> Iterator[str]:
    for trace, text in zip(traces, marked, strict=True):
        figures = f"{trace.unit.lasting(trace.time)}, {share_text(trace.idle)} bubble"
        peak = f"{trace.size_unit.describe(trace.peak_memory)} at its peak"
        yield f"{trace.title}: {figures}, {peak}" + f" ({'; '.join(text)})" * bool(text) + "."
