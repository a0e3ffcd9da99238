"""A verdict in a notebook: below its words the attempts as points, why it is over its target, the outline of what it
is to reach, and a card to keep."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.course.outlines import comparable_puzzle, is_known
from lib.course.specs import Puzzle
from lib.grading import page
from lib.grading.notebook import ShownVerdict
from lib.grading.verdict import PASS
from lib.record.figures.breakdown import share_text
from lib.running.run import Run

from ..beside.outline import beside_target
from ..beside.total_memory import draw_total, most_memory
from ..ink import svg, theme
from ..ink.figure import Figure
from ..ink.letters import text_width
from ..ink.marks import Diagram, box, label, poly, star, style
from ..ink.svg import escape, without_hover
from ..ink.texts import machine
from ..ink.trace import Trace, trace_of
from ..schedule.layout import PAD, Layout
from ..schedule.legend import draw_legend, legend_of
from ..schedule.picture import card, draw, in_pieces, small_enough
from ..schedule.timeline import axis, draw_timeline
from .attempts import draw_attempts

CARD_WIDTH, HEAD = 800.0, 104.0
"""Of a card to keep, in pixels: its width, and the height of what is above the schedule."""
CARD_SIZE = 60_000
"""The largest size in bytes of a card in a verdict."""
APART = "margin-top:8px"
"""The look of each part."""


def show_verdict(shown: ShownVerdict) -> str:
    """Return a verdict as HTML. That on a program that is not right has words only, and a run that is too large to be
    drawn at once is left out."""
    verdict, run = shown.verdict, shown.run
    if not verdict.right:
        return page.table(verdict)
    parts = [draw_attempts(verdict.puzzle)._repr_html_()]
    if run is not None:
        parts += [*_reasons(shown, run), *_to_reach(shown, run), *_to_keep(shown, run)]
    below = "".join(f'<div style="{APART}">{part}</div>' for part in parts)
    told = tuple(fact for fact in verdict.more if fact[0] != "attempts")  # they are drawn
    return CELEBRATION * (verdict.status == PASS) + page.table(replace(verdict, more=told)) + below


def _celebration() -> str:
    """Return a drawing of eight processors in a row, with check marks and stars."""
    parts, gold = list[Diagram](), style(theme.GOLD)
    for x, color in ((8 + 30 * at, theme.layer_color(at, 8)) for at in range(8)):
        parts += [box(x, 16, 20, 20, style(color), 3), star(x + 25, 1.2 * (x % 60) - 1, 4, gold)]
        parts.append(poly([(x + 5, 26), (x + 9, 30), (x + 16, 21)], style(None, theme.text_on(color), 2.5), False))
    return Figure(parts, 250, 52, "Eight processors, all of them with a check mark").svg(fluid=True)


CELEBRATION = _celebration()


def _reasons(shown: ShownVerdict, run: Run) -> Iterator[str]:
    """Yield the run with its longest chain, with what is in memory at its peak, or with both: whichever is over the
    target."""
    verdict = shown.verdict
    if verdict.slow or verdict.large:
        yield draw(_with_targets(run, verdict.puzzle), chain=verdict.slow, memory=verdict.large)._repr_html_()


def _with_targets(run: Run, puzzle: Puzzle) -> Trace:
    """Return the trace of a run with the targets of its puzzle, whatever the function is called."""
    target = puzzle.target
    return replace(trace_of(run, None, target["time"], target["memory"]), scored=True)


def _to_reach(shown: ShownVerdict, run: Run) -> Iterator[str]:
    """Yield the outline of what comes next, the target or the star, folded: with a click it is seen."""
    verdict = shown.verdict
    star = verdict.puzzle.star and not verdict.starred and is_known(verdict.puzzle)
    goal = "target" if verdict.status != PASS else "star" if star else ""
    if goal:
        picture = beside_target(run, verdict.puzzle.name, star=goal == "star")._repr_html_()
        words = f'<summary style="cursor:pointer">Yours beside the outline of the {goal}</summary>'
        yield f"<details>{words}{picture}</details>"


def _to_keep(shown: ShownVerdict, run: Run) -> Iterator[str]:
    """Yield a link that saves a card of a pass."""
    verdict = shown.verdict
    if verdict.status == PASS:
        drawn = without_hover(draw_card(run, verdict.puzzle.name).svg())
        source = f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"
        name = escape(f"{verdict.puzzle.name}.svg")
        words = (
            f"Save a card of it: the schedule{', its figures and the star' if verdict.starred else ' and its figures'}"
        )
        yield f'<a download="{name}" href="{source}" style="color:inherit">{words}</a> ({name})'


def draw_card(source: Run, puzzle: str | None = None) -> Figure:
    """A card to keep of a run of a puzzle's program: its schedule, its figures, and the star if it has that.

    ``draw_card(run).save("gpipe.svg")`` writes it. The puzzle is the one with the function's name, unless ``puzzle``
    names another. Raises PuzzleError for an unknown puzzle, another size or other prices, and for what is not a run.
    """
    if not isinstance(source, Run):
        raise PuzzleError("draw_card takes a run", expected="draw_card(run(fsdp, ranks=4, ...))", got=describe(source))
    spec = comparable_puzzle(source, puzzle, "draw_card")
    trace = _with_targets(source, spec)
    return small_enough(lambda rough: _card(trace, spec, rough), CARD_SIZE, lambda figure: len(figure.svg()))


def _card(trace: Trace, puzzle: Puzzle, rough: int) -> Figure:
    plain = replace(trace, time_target=None, memory_target=None)  # the head says them
    layout = Layout(plain, CARD_WIDTH, HEAD, rough=rough, beside=[plain])
    total, y = draw_total(layout, layout.bottom + 5, most_memory([plain]))
    scale, y = axis(layout, y)
    ended = y
    meaning = legend_of([layout])
    legend, y = draw_legend(meaning, CARD_WIDTH, y + 12)
    parts = [*_head(trace, puzzle), *draw_timeline(layout), *total, *scale, *legend]
    figure = card(parts, CARD_WIDTH, y + 12, _in_words(trace, puzzle), title=puzzle.title)
    figure.narrow = in_pieces([], meaning, (0, ended + 4))
    return figure


def _reached(trace: Trace, puzzle: Puzzle) -> str:
    """Return whether a run reaches the target of its puzzle, or the star."""
    if trace.fast_enough is not True or trace.small_enough is not True:
        return ""
    return "star" if puzzle.has_star(*puzzle.scored(trace.time, trace.peak_memory)) else "target"


def _head(trace: Trace, puzzle: Puzzle) -> Iterator[Diagram]:
    """Yield the title, with a tick and a star if they are due, and the figures."""
    ink, mute = style(theme.INK), style(theme.MUTE)
    title = f"{puzzle.number}. {puzzle.title}"
    yield label(PAD, 28, title, 20, ink, "start", 650, most=svg.KEPT)
    x = PAD + text_width(title, 20, bold=True) + 24
    if reached := _reached(trace, puzzle):
        yield poly([(x - 8, 28), (x - 3, 34), (x + 8, 21)], style(None, theme.GOOD, 3), closed=False)
        yield from [star(x + 26, 27, 12, style(theme.GOLD))] * (reached == "star")
    yield label(CARD_WIDTH - PAD, 24, "LLM training puzzles", 11.5, mute, "end")
    yield label(CARD_WIDTH - PAD, 41, machine(trace), 11, mute, "end")
    time, memory = puzzle.describe(trace.time, trace.peak_memory)
    goals = [("target", puzzle.target), *([("star", puzzle.star)] if puzzle.star else [])]
    notes = [[f"{name} {puzzle.brief(goal['time'], goal['memory'])[at]}" for name, goal in goals] for at in range(2)]
    columns = [(time, ", ".join(notes[0])), (memory, ", ".join(notes[1])), (f"bubble {share_text(trace.idle)}", "")]
    x = PAD
    for value, note in columns:  # the last one has no room where the card is narrow
        yield label(x, 63, value, 15, ink, "start", 650, most=20.0 if note else 0.0)
        yield label(x, 81, note, 10.5, mute, "start")
        x += max(text_width(value, 15, bold=True), text_width(note, 10.5)) + 36


def _in_words(trace: Trace, puzzle: Puzzle) -> str:
    time, memory = puzzle.describe(trace.time, trace.peak_memory)
    return f"{puzzle.heading}: {time}, {memory}{', with the star' * (_reached(trace, puzzle) == 'star')}."
