"""What all tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.browser import Browser, NoBrowser

# No test of ours depends on how fast the machine is, so neither do the generated ones.
settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser for all tests that look; where there is none they are skipped, and say so."""
    try:
        opened = Browser()
    except NoBrowser as why:
        pytest.skip(f"NOBODY LOOKED IN A BROWSER: {why}. To have a browser: make browser")
    with opened:
        yield opened


def pytest_runtest_setup() -> None:
    """No test takes this process for a notebook's, where progress is kept, because another has imported ipykernel."""
    sys.modules.pop("ipykernel", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what looks in a browser: ``pytest -m "not browser"`` leaves it out."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
