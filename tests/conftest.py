"""What all tests share."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.browser import Browser, NoBrowser
from tests.guard import FIXTURES, guard
from tests.programs import SMALLER
from tests.turns import chosen, summary

# jsonschema, of which nbformat makes use, does without these grammars, which take three seconds to be made.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
# What is computed with numbers here is tiny: one thread is faster than several, all the more beside other tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test of ours depends on how fast the machine is, so neither do the generated ones.
settings.register_profile("project", deadline=None, print_blob=True)
settings.register_profile(  # of tools/mutants.py: whether a test fails, each time by the same examples
    "mutants", deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("project")


HERE = Path(__file__).parent
collect_ignore = [
    str(path.relative_to(HERE))
    for path in HERE.rglob("[!_]*.py")
    if not path.name.startswith("test_") and ">>>" not in path.read_text(encoding="utf-8")
]
"""What has neither tests nor doctests need not be imported to find that out: some of it imports much of torch."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser for all tests that look; where there is none they are skipped, and say so."""
    try:
        opened = Browser()
    except NoBrowser as why:
        pytest.skip(f"NOBODY LOOKED IN A BROWSER: {why}. To have a browser: make browser")
    with opened:
        yield opened


ELSEWHERE = tempfile.TemporaryDirectory(prefix="progress-of-tests-")
"""Where progress is kept that no test asks about, and not beside the code of this project."""


def pytest_runtest_setup() -> None:
    """No test takes this process for a notebook's because another has imported ipykernel."""
    sys.modules.pop("ipykernel", None)
    os.environ["LLM_TRAINING_PUZZLES_PROGRESS"] = ELSEWHERE.name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """From its fixtures to their end, a test that is not marked ``process`` starts none."""
    guard.begin(item)
    try:
        return (yield)
    finally:
        guard.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """A test that has swallowed the refusal fails, too."""
    yield
    guard.check()


LONGEST = """test_lab test_engine_processes test_corpus test_referee test_colab test_notebooks test_passes test_fuzz
test_recording test_browser test_browser_player"""
"""Files that take longest begin first: if one of them were the last, all workers but one would have nothing to do."""
LONG = """test_corpus test_passes test_fuzz test_bounds test_chain test_represent test_plain_machine test_papers
test_recording_floods test_page_figures test_recording test_whole_gradient test_drawing_picture test_drawing_compare
test_colab test_closed_forms test_lives test_priced test_repairs
test_drawing_strikes test_palette test_task_sentences"""
"""Files that go through all programs, all sizes or hundreds of random programs, or build all notebooks."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first. Mark what looks in a browser, what starts processes by its fixtures, and what takes
    long: ``make quick`` leaves them out. Leave out slow tests whose turn it is not."""
    first, long = {name: place for place, name in enumerate(LONGEST.split())}, LONG.split()
    items.sort(key=lambda item: first.get(item.path.stem, len(first)))
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        if "browser" in names:
            item.add_marker("browser")
        if names & FIXTURES:
            item.add_marker("process")
        if item.path.stem in long or any(name in item.name for name in SMALLER):
            item.add_marker("long")
    waiting = [item for item in items if any(mark.args[0] not in chosen() for mark in item.iter_markers("slow"))]
    config.hook.pytest_deselected(items=waiting)
    items[:] = [item for item in items if item not in set(waiting)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which of the slow tests were left out."""
    if said := summary():
        terminalreporter.write_line(said, yellow=True, bold=True)
