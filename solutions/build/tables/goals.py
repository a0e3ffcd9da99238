"""What is said of a goal's program where another is slower or larger (``grading.advice.slowness`` and ``holding``)."""

import math
from functools import partial

from lib import Run, run
from lib.course.specs import Puzzle
from lib.grading.advice.holding import holdings
from lib.grading.advice.lateness import late_messages
from lib.grading.advice.ordering import order_of
from lib.grading.advice.slowness import calls_of, chain_efforts, efforts
from lib.record.figures.chain import chain_of
from lib.record.figures.score import peak_event

from ..runs.course import Program, run_of
from ..sources.files import Json


def compared_with(program: Program, puzzle: Puzzle, played: Run) -> Json:
    """What this program spends its time on, and what it holds at its peak."""
    highest = peak_event(played.device_events)
    assert highest is not None
    noted = run_of(program, puzzle, partial(run, _watched=highest.rank)).peak
    assert noted is not None
    chain = chain_of(played.events)
    return {
        "work": [[*what, *effort] for what, effort in efforts(played).items()],
        "calls": [[*what, times] for what, times in calls_of(played.events).items()],
        "chain": [[word, *effort] for word, effort in chain_efforts(chain).items()],
        "late": sum(one.delay for one in late_messages(played, {*chain.events})),
        "order": order_of(played.events, played.ranks),
        "peak": [[*group[:-1], math.ceil(group.elements)] for group in holdings(noted.held)],
    }
