"""What is collected: where torch is missing, no doctests of the engines that need it (their tests say so, loudly)."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["lib/engines/*.py"]
