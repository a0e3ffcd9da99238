"""What is collected: doctests where there are some, and where torch is missing none of the engines that need it (their
tests say so, loudly)."""

from __future__ import annotations

from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

collect_ignore_glob = [] if find_spec("torch") else ["lib/engines/*.py"]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """A file without doctests need not be imported to find that out, nor be searched for them."""
    found = yield
    return [one for one in found if type(one) is pytest.Module or ">>>" in file_path.read_text(encoding="utf-8")]
