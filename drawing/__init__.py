"""Pictures of schedules and tensors, built on chalk.

``draw(run)`` shows a schedule, ``compare(a, b)`` several, ``play(run)`` plays it; ``draw_group(model.weights)``
shows a dictionary of tensors, ``draw_primitive("allgather")`` what a collective does; ``perfetto(run)`` is a file
for another viewer. After importing this package, runs and tensors show themselves in a notebook. The modules,
numbers first, chalk last:

=================  ===============================================================
standing           whose run it is, and what its puzzle refuses of it
trace              the data of a picture
theme              colors, by role and by kind
texts              numbers, names and sentences
layout             rows, tracks, places: numbers only
marks              cheap chalk leaves
svg                from chalk's tree to SVG
figure             a diagram that shows itself; pictures as files
operations         the look of an operation, and its hover text
numbering          where micro-batch numbers have room
gaps               when a rank does nothing, and for whom it waits
links              arrows from sends to receives, ties between the ranks of a collective
miniature          rows as small as stamps, and what fills most of their parts
coarse             the operations of the rows column by column, and strips of the network
overlays           the longest chain, what is held at the peak, a failed run, traffic within operations
boxes              the operations of the rows box by box
timeline           the rows, with what is behind and beside them
header             title, figures, and where the time of all ranks goes
peak               the reason for the peak of memory, as text
memory, legend     the panels below the rows
picture            the whole picture: ``draw``
difference         the parts of the difference of two runs
total_memory       the memory of a run as one line
compare            several schedules under one time axis
race               runs of one model against each other, in a picture that plays by itself: ``race``
playback           the data of a page that plays a schedule
player             that page: ``play``; and one on which a schedule is moved by hand: ``board``
perfetto           the schedule for another viewer
tensors, group     small pictures: ``draw_group``
holds              what each rank has in memory at a moment: ``holds``
primitives         what a collective does: ``draw_primitive``
tokens             which tokens go to which experts: ``draw_tokens``
attention          who attends to what, and when: ``draw_attention``
outline            half of a schedule: ``draw_sketch``; yours above the target's: ``beside_target``
time_memory        a chart of time and memory
attempts           right attempts in that chart: ``draw_attempts``
sweep              many runs in that chart: ``draw_sweep``
explore            sliders for the size, above the picture: ``explore``
course             the map of all puzzles, with schedules as small as stamps: ``draw_course``
verdict            what a verdict shows below its words, and a card to keep: ``draw_card``
reference          the whole interface on one page: ``reference``
notebook           how runs and tensors show themselves
shell              ``python -m lib draw``
=================  ===============================================================
"""

from .attempts import draw_attempts
from .attention import draw_attention
from .compare import compare
from .course import draw_course
from .explore import explore
from .figure import Figure
from .holds import holds
from .notebook import register
from .outline import beside_target, draw_sketch
from .perfetto import perfetto
from .picture import draw
from .player import Player, board, play
from .primitives import draw_primitive
from .race import race
from .reference import reference
from .sweep import draw_sweep
from .tensors import draw_group, draw_tensor
from .tokens import draw_tokens
from .trace import Trace
from .verdict import draw_card

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
