"""Pictures for a learner who is stuck: half of a schedule, or their schedule beside an outline of the target's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.basics.units import Elements
from lib.course.layouts import mesh_of
from lib.course.outlines import Outline, comparable_puzzle, outline
from lib.course.outlines import half_schedule as sketch_of
from lib.course.specs import Puzzle, find
from lib.record.codes import below_devices
from lib.record.events import END, Event
from lib.record.table import SEND
from lib.record.training import FORWARD
from lib.running.run import Run

from ..ink import theme
from ..ink.figure import PHONE, Figure, at_any_width
from ..ink.letters import wrapped
from ..ink.marks import Diagram, Titled, boxes, label, lines, style
from ..ink.texts import spent
from ..ink.trace import Trace, trace_of
from ..schedule.layout import PAD, Layout
from ..schedule.legend import draw_legend, legend_of
from ..schedule.memory import draw_total, most_memory
from ..schedule.picture import WIDTH, card, heading
from ..schedule.timeline import axis, draw_timeline, empty_rows, row_names

GAP = 16.0
"""Room between two schedules, in pixels."""
STRIP = 6.0
"""Room between a schedule and the strip of its memory, in pixels."""
REST = "the rest is yours to find"
MEANS = "(strong: computes, faint: only communicates)"


def draw_sketch(puzzle: str | Puzzle, static: bool = False) -> Figure:
    """Return the first half of a schedule that meets the target of a puzzle, with the other half empty.

    Raise PuzzleError for an unknown puzzle.
    """
    spec = puzzle if isinstance(puzzle, Puzzle) else find(puzzle)
    sketch = sketch_of(spec)
    until = spec.unit.brief(sketch.until)
    title = f"{spec.name}: the first {until} of {spec.unit.lasting(sketch.time)}"
    if sketch.others:
        title += f", on {len(sketch.ranks)} ranks; the others do the same"
    size, hosts = spec.size, mesh_of(spec.size).devices_of
    by_rank: dict[int, list[Event]] = {rank: [] for rank in below_devices(sketch.ranks, hosts)}
    for event in sketch.events:
        by_rank[event.rank].append(event)
    nodes = size.get("node_size")
    trace = Trace(by_rank, size["layers"], size["batches"], nodes, title, hosts=hosts, unit=spec.unit)
    words = f"The beginning of a schedule for {spec.name}, up to {spec.unit.at(until)}; the rest is left out."

    def drawn(width: float) -> Figure:
        head, top = heading(title, {}, PAD, width)
        layout = Layout(trace, width, top, sketch.time, cut=sketch.until)
        scale, y = axis(layout, layout.bottom)
        legend, y = draw_legend(legend_of([layout]), width, y + 12)
        x, middle = layout.x(sketch.until), layout.rows[len(layout.rows) // 2].y + layout.height / 2
        rest = wrapped(REST, 12, layout.x1 - x)
        parts = [
            *head,
            *draw_timeline(layout, notes=False),
            lines([(x, layout.top - 4, x, layout.bottom + 2)], style(None, theme.INK, 1.5)),
            *[
                label((x + layout.x1) / 2, middle + 15 * (at - (len(rest) - 1) / 2), line, 12, style(theme.MUTE))
                for at, line in enumerate(rest)
            ],
            *scale,
            *legend,
        ]
        return card(parts, width, y + 12, words, title=title)

    return at_any_width(drawn, WIDTH, PHONE, static)


def beside_target(source: Run, puzzle: str | None = None, *, star: bool = False, static: bool = False) -> Figure:
    """Your schedule and, below it, an outline of one that meets the target, or with ``star=True`` the star: when its
    ranks are busy, but not with what, and the memory of its fullest rank beside that of yours, on one scale.

    ``source``: a run at the puzzle's own size. The puzzle is the one with the function's name, unless ``puzzle`` names
    another. Raises PuzzleError for an unknown puzzle, for a run whose size or prices are not the puzzle's own, for
    ``star=True`` where a puzzle has no star or what is secret is not here, and for anything that is not a run.
    """
    if not isinstance(source, Run):
        expected = "beside_target(run(fsdp, ranks=4, ...))"
        raise PuzzleError("beside_target takes a run", expected=expected, got=describe(source))
    spec = comparable_puzzle(source, puzzle, "beside_target")
    if star and not spec.star:
        raise PuzzleError(f"{spec.name} has no star", where="beside_target", expected="no star=True")
    goal = "star" if star else "target"
    own, aim = replace(trace_of(source, f"yours ({source.name})"), noted=None), outline(spec, goal)
    until = max(own.until, aim.time)
    busy = {rank: [*_busy(rank, aim)] for rank in own.by_rank}
    held = [_event(aim.fullest, END, at, at, (elements,)) for at, elements in aim.memory]
    target = replace(own, by_rank=busy, models=(), fault="", failure=None)
    memory = replace(target, by_rank={aim.fullest: held}, memory_target=None)
    most = most_memory([own, memory])
    words = f"Yours: {_figures(own)}. One that meets the {goal}: {_figures(target)}."

    def drawn(width: float) -> Figure:
        head, top = heading(own.title, {_figures(own): theme.MUTE}, PAD, width)
        above = Layout(own, width, top, until, beside=[own, target], links="none")
        own_memory, bottom = draw_total(above, above.bottom + STRIP, most)
        notes = {_figures(target): theme.MUTE, MEANS: theme.MUTE}
        second, top = heading(f"one that meets the {goal}", notes, bottom + GAP, width)
        below = Layout(target, width, top, until, beside=[own, target])
        aim_memory, end = draw_total(below, below.bottom + STRIP, most, memory)
        scale, y = axis(below, end)
        legend, y = draw_legend(legend_of([above]), width, y + 12)
        rows = [*draw_timeline(above), *own_memory, *second, *_silhouette(below), *aim_memory]
        parts = [*head, *rows, *scale, *legend]
        return card(parts, width, y + 12, words, title=f"{source.name} beside the {goal}")

    return at_any_width(drawn, WIDTH, PHONE, static)


def _event(rank: int, kind: str, start: float, end: float, held: tuple[Elements, ...] = ()) -> Event:
    return Event(rank, kind, None, frozenset(), start, start, end, held)


def _busy(rank: int, aim: Outline) -> Iterator[Event]:
    """Yield events that stand for the busy times of a rank, which computes or only communicates: no more is known."""
    computing = aim.compute.get(rank, ())
    for start, end in aim.busy.get(rank, ()):
        inside = [span for span in computing if start <= span[0] < end]
        yield from (_event(rank, FORWARD.kind, *span) for span in inside)
        edges = [start, *(edge for span in inside for edge in span), end]
        talks = zip(edges[::2], edges[1::2], strict=True)
        yield from (_event(rank, SEND.kind, first, last) for first, last in talks if last > first)


def _silhouette(layout: Layout) -> Iterator[Diagram]:
    """Yield the rows of a target, strong where it computes and faint where it only communicates."""
    yield from empty_rows(layout)
    for does, kind, color in (("only communicates", SEND.kind, theme.HATCH), ("computes", FORWARD.kind, theme.MUTE)):
        bars = [
            (layout.x(event.start), row.y, event.length * layout.per_tick, layout.height)
            for row in layout.rows
            for event in row.events
            if event.kind == kind
        ]
        yield Titled(f"the target {does}", boxes(bars, style(color)))
    yield from row_names(layout)


def _figures(trace: Trace) -> str:
    return f"{trace.unit.lasting(trace.time)}, {spent(trace)}"
