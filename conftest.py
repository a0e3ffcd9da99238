"""What is collected: where torch is missing, no doctests of the engines that need it (their tests say so, loudly)."""

from __future__ import annotations

import os
from importlib.util import find_spec

# Tests grade thousands of wrong programs: only those of the search for one change wait for it (tests/test_changes.py).
os.environ.setdefault("LLM_TRAINING_PUZZLES_SEARCH", "0")

collect_ignore_glob = [] if find_spec("torch") else ["lib/engines/*.py"]
