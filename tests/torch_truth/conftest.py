"""One recording for all tests here."""

import json
import subprocess
import sys
from typing import Any

import pytest

from solutions.build.sources.files import ROOT
from tests.marks import MISSING, NOT_COMPARED

collect_ignore = ["context.py", "record.py", "schedules.py", "stages.py"]
"""Programs of their own: they need torch, no test is in them."""


def recorded(*arguments: str) -> dict[str, Any]:
    """What the program of the recordings prints."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.torch_truth.record", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def truth() -> dict[str, Any]:
    """Everything, as recorded now from the torch that is installed."""
    if "torch" in MISSING:
        pytest.skip(NOT_COMPARED)
    return recorded()
