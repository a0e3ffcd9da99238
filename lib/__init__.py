"""A simulated machine of many GPUs, and puzzles about training on it.

The packages, in reading order. Each describes its modules in the same way, and a module imports only what comes before
it, so a reader in this order meets only what has been explained.

=========  ======================================================================
basics     exact units, and errors as data
record     what happened, as data: tensors in words, the table of operations, the log
machine    the simulator: values, prices, streams and links, memory, right or wrong
real       real machines: their prices in seconds and bytes, and profiles of what ran there
represent  ranks that stand for others
learner    what a learner touches: Model, Dist, tensors, calls
schedules  pipeline schedules as rows of actions, as PyTorch writes them
running    a function on every rank: the loop, limits, run
study      many runs for one question: sweeps, searches, plans
course     what the puzzles ask for
recording  the calls of a run, as plain data: recorded there, replayed here
explain    why a run is wrong, slow or large, from its recording alone
grading    from a function to a verdict
lab        a learner's own notebooks, and JupyterLab on them
lib        this file: what a learner imports
referee    untrusted code, whole classes, the shell
engines    the same functions on real tensors, if torch is there
__main__   python -m lib
=========  ======================================================================
"""

from .basics.errors import Deadlock, PuzzleError
from .basics.units import HIDDEN, LENGTH
from .grading.notebook import attempt, grade, hint, progress, solution, start_from, why
from .grading.seal import seal
from .lab.notebook import reset
from .learner import tensors
from .learner.dist import Dist
from .learner.model import Model
from .learner.tensors import *  # noqa: F403 - the kinds of tensor, listed there
from .machine.cost import Cost, ExpertCost, ExpertRingCost, RingCost, WireCost
from .machine.uneven import Uneven
from .real.traces.files import trace
from .real.traces.profile import Profile
from .running.run import Run, allow_nested_loops, run
from .schedules.program import Schedule, schedule
from .study.plan import Plan, Plans, plan
from .study.search import Search, search
from .study.sweep import Sweep, sweep

LLM_TRAINING_PUZZLES = True  # how a notebook's first cell tells this package from any other module called lib

__all__ = [
    "HIDDEN",
    "LENGTH",
    "Cost",
    "Deadlock",
    "Dist",
    "ExpertCost",
    "ExpertRingCost",
    "Model",
    "PuzzleError",
    "RingCost",
    "Run",
    "Uneven",
    "WireCost",
    "run",
]
__all__ += ["Plan", "Plans", "Sweep", "allow_nested_loops", "attempt", "grade", "hint", "plan", "progress", "solution"]
__all__ += ["Profile", "Schedule", "Search", "reset", "schedule", "search", "start_from", "sweep", "trace", "why"]
__all__ += tensors.__all__

seal()
