"""Pictures of schedules and tensors, built on chalk.

``draw(run)`` shows a schedule, ``compare(a, b)`` several, ``play(run)`` plays it; ``draw_group(model.weights)``
shows a dictionary of tensors, ``draw_primitive("allgather")`` what a collective does; ``perfetto(run)`` is a file
for another viewer. In a notebook runs and tensors show themselves. A module imports only what stands above it:

=========  ==================================================================================
ink        what pictures are made of: a run's data, colors, words, chalk's leaves, SVG, files
schedule   a schedule under its axis of time: ``draw``
small      small pictures of one idea, composed with chalk's combinators
beside     several schedules beside each other
playing    a schedule that plays: a page of one's own, and a file for another viewer
charts     many runs, or all puzzles, in one chart
reference  the whole interface on one page: ``reference``
notebook   how runs and tensors show themselves
shell      ``python -m lib draw``
=========  ==================================================================================
"""

from .beside.compare import compare
from .beside.outline import beside_target, draw_sketch
from .beside.race import race
from .charts.attempts import draw_attempts
from .charts.course import draw_course
from .charts.explore import explore
from .charts.sweep import draw_sweep
from .charts.verdict import draw_card
from .ink.figure import Figure
from .ink.trace import Trace
from .notebook import register
from .playing.perfetto import perfetto
from .playing.player import Player, board, play
from .reference import reference
from .schedule.picture import draw
from .small.attention import draw_attention
from .small.holds import holds
from .small.primitives import draw_primitive
from .small.tensors import draw_group, draw_tensor
from .small.tokens import draw_tokens

__all__ = [
    "Figure",
    "Player",
    "Trace",
    "beside_target",
    "board",
    "compare",
    "draw",
    "draw_attempts",
    "draw_attention",
    "draw_card",
    "draw_course",
    "draw_group",
    "draw_primitive",
    "draw_sketch",
    "draw_sweep",
    "draw_tensor",
    "draw_tokens",
    "explore",
    "holds",
    "perfetto",
    "play",
    "race",
    "reference",
]

register()
