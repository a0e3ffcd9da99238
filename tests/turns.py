"""The longest tests, by kinds. `make test-all` runs all of them and `make test` none; in CI one kind has its turn.

The commit decides whose turn it is. Whoever runs a file by itself runs all that is in it.

    python -m tests.turns       # the kind whose turn it is

SLOW_TESTS says which: names of kinds with commas between, "all" or "none".
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from datetime import date
from typing import TypeVar

T = TypeVar("T")
KINDS = {
    "colab": "notebooks on Colab's packages",
    "lab": "JupyterLab in a browser, beyond one puzzle that is solved in it",
    "site": "the whole course in the browser alone",
    "processes": "most programs as real processes, and what dies under torchrun",
    "installed": "the installed package in a kernel, without a network and without a free port",
    "random": "random examples beyond today's tenth",
    "honest": "honest programs at all sizes, in a notebook and at a shell, beyond one of each puzzle and today's tenth",
    "apart": "programs that tamper, where workers are kept apart in other ways than the best, beyond today's tenth",
    "course": "all puzzles where some have their day: notebooks in kernels, programs of others, mistakes at a shell",
    "large": "puzzles of real size, wherever a smaller one says the same",
}


def chosen() -> frozenset[str]:
    """Return the kinds that are run. Raise ValueError for what is none."""
    said = os.environ.get("SLOW_TESTS", "all")
    kinds = {"all": KINDS, "none": ()}.get(said, said.split(","))
    if unknown := set(kinds) - KINDS.keys():
        raise ValueError(f"SLOW_TESTS: {', '.join(sorted(unknown))}: the kinds are {', '.join(KINDS)}, all, none")
    return frozenset(kinds)


def examples(everything: Sequence[T], kind: str = "random", days: int = 10) -> Sequence[T]:
    """Return of examples of this kind all, or those whose day it is: in so many days all of them."""
    return everything if kind in chosen() else everything[date.today().toordinal() % days :: days]


def summary() -> str:
    """Return what was left out, loudly, or an empty text."""
    left = [f"{kind} ({KINDS[kind]})" for kind in KINDS if kind not in chosen()]
    run = f"; run: {', '.join(sorted(chosen()))}" if chosen() else ""
    return f"SLOW TESTS NOT RUN: {'; '.join(left)}{run}. make test-all runs all of them." if left else ""


def of_commit() -> str:
    """Return the kind whose turn it is: each commit has one, and a commit always the same."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout
    return list(KINDS)[int(commit.strip() or "0", 16) % len(KINDS)]


if __name__ == "__main__":
    print(of_commit())
