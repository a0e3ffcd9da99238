"""Tests import puzzles' sources without what they run."""

from __future__ import annotations

import ast
import importlib

from tests.definitions import definitions
from tests.programs import SOLUTIONS

SOURCE = '''
"""A puzzle."""
from functools import partial
from drawing import draw as shown
from lib import Cost, Model, run
LAYERS = 4
prices = Cost(backward=2)
async def own(model, ahead=1):
    draw(run(own, layers=LAYERS))
def picture():
    return shown(run(own))
own_ahead = partial(own, ahead=2)
done = run(own)
long = done.time
both = [picture() for _ in range(2)]
shown(done)
done = 3
print(done)
short = done
for layer in range(LAYERS):
    picture()
'''


def test_what_runs_something_and_what_needs_its_outcome_is_left_out() -> None:
    kept = [ast.unparse(one).splitlines()[0] for one in definitions(ast.parse(SOURCE).body)]
    assert kept == [
        "from functools import partial",
        "from drawing import draw as shown",
        "from lib import Cost, Model, run",
        "LAYERS = 4",
        "prices = Cost(backward=2)",
        "async def own(model, ahead=1):",
        "def picture():",
        "own_ahead = partial(own, ahead=2)",
        "done = 3",
        "short = done",
    ]


def test_importing_a_puzzle_prices_nothing() -> None:
    for name in SOLUTIONS:
        module = importlib.import_module(f"solutions.{name}")
        assert callable(getattr(module, module.PUZZLE["name"])) and not hasattr(module, "priced")
