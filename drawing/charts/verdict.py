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
from lib.running.run import Run

from ..beside.outline import beside_target
from ..ink import theme
from ..ink.figure import Figure
from ..ink.marks import Diagram, box, poly, star, style
from ..ink.svg import escape, without_hover
from ..ink.trace import Trace, trace_of
from ..schedule.picture import draw, picture_for_player, small_enough
from .attempts import draw_attempts

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
    if run is not None and (verdict.slow or verdict.large):  # its longest chain, its peak of memory, or both
        drawn = draw(_with_targets(run, verdict.puzzle), chain=verdict.slow, memory=verdict.large)
        parts.append(drawn._repr_html_())
    if run is not None:
        parts += [*_to_reach(shown, run), *_to_keep(shown, run)]
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
        name, figures = escape(f"{verdict.puzzle.name}.svg"), ", its figures and the star" * verdict.starred
        words = f"Save a card of it: the schedule{figures or ' and its figures'}"
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
    passes = trace.fast_enough is True and trace.small_enough is True
    starred = passes and spec.has_star(*spec.scored(trace.time, trace.peak_memory))
    aim = f"{'with its ' * starred}star: {' and '.join(spec.describe(**spec.star))}" if spec.star else ""
    note = " · ".join(filter(None, [trace.note, aim, "LLM training puzzles"]))
    trace = replace(trace, title=f"{spec.number}. {spec.title}", note=note)

    def card(rough: int) -> Figure:
        figure = picture_for_player(trace, rough)
        for one in filter(None, (figure, figure.narrow)):
            one.diagrams += [star(8.5, 26, 6.5, style(theme.GOLD))] * starred
        return figure

    return small_enough(card, CARD_SIZE, lambda figure: len(figure.svg()))
