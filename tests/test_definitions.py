"""To import a source of the course runs nothing of it."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

from lib import Dist
from solutions.build.sources.definitions import definitions
from solutions.build.sources.files import sources
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


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_importing_a_source_prints_nothing_and_runs_nothing(
    path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dist, "__init__", None)  # a run would fail
    monkeypatch.delitem(sys.modules, f"solutions.{path.stem}", raising=False)
    module = importlib.import_module(f"solutions.{path.stem}")
    assert capfd.readouterr() == ("", "")
    assert not hasattr(module, "priced")
    if path.stem in SOLUTIONS:
        assert callable(getattr(module, module.PUZZLE["name"]))
