"""A simulated machine of many GPUs, and puzzles about training on it.

The modules, in reading order, from the learner's function down to the log:

=============  ======================================================================
run            run a function on every rank, keep what happened
engines        a package of its own: the same with real tensors, if torch is there
workload       what is trained on them
turn, outcome  one turn of the machine; what it leaves behind: log and closing records
limits         wall-clock limits, also for code that swallows what it is thrown
loop           an event loop that knows when nothing can go on
prints         whose print is it?
model          a rank as the learner sees it: five dictionaries, the verbs of training
dist, watch    the machine; knowing when everyone waits under somebody else's loop
storage        the five dictionaries
calls          a call in flight, to be awaited now or later
tensors        the five kinds of tensor: labels and an opaque token
books          everything that decides right or wrong, behind one narrow interface
rules          what each operation insists on
network        who meets whom, and when
collectives    what a collective does to its tensors
settlement     what of a log is known only afterwards
ledger         lives, memory and log of one rank
flights        what is on its way: calls, messages, meetings
entries        what the books know of one tensor
values         what a tensor carries: fingerprints
cost, mesh     prices; axes, groups, boxes
labels         arithmetic of shards and micro-batches
events, score  the log, and the figures read off it
codes          the log as text: a line a rank, a short code an operation
check          right or wrong
layouts        what a puzzle's ranks begin and end with, and at which sizes
forms          what a puzzle's text demands beyond layout, time and memory
specs          the puzzles
sketches       what of their solutions may be shown
commandline    what commands at a shell have in common
nested         asyncio.run inside a notebook's cell, if you must
grading        a package of its own: from a function to a verdict, here or in a process of its own
errors, units  what goes wrong, said well; ticks and elements
=============  ======================================================================
"""

from .cost import Cost
from .dist import Dist
from .errors import Deadlock, PuzzleError
from .grading.notebook import attempt, grade, hint, progress, solution
from .grading.seal import seal
from .model import Model
from .nested import allow_nested_loops
from .run import Run, run
from .tensors import Activation, ActivationGrad, OptState, Weight, WeightGrad
from .units import HIDDEN, LENGTH

LLM_TRAINING_PUZZLES = True
"""How a notebook tells this package from any other folder called lib."""

__all__ = [
    "HIDDEN",
    "LENGTH",
    "Activation",
    "ActivationGrad",
    "Cost",
    "Deadlock",
    "Dist",
    "Model",
    "OptState",
    "PuzzleError",
    "Run",
    "Weight",
    "WeightGrad",
    "allow_nested_loops",
    "attempt",
    "grade",
    "hint",
    "progress",
    "run",
    "solution",
]

seal()
