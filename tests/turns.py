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
from hashlib import sha256
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
    "course": "all puzzles and sizes where some have their day: notebooks in kernels, programs of others, mistakes at "
    "a shell, outlines of the build",
    "cases": "all cases of tests that have many, where a quarter is drawn each day",
    "large": "puzzles of real size, wherever a smaller one says the same",
}


MANY = 8
"""A test that has more cases than so many takes a part of them each day: one of ``PART``, or of ``QUICK_PART``."""
PART, QUICK_PART = 4, 8
QUICK = "NOT RUN BY QUICK: what takes long, and 7 of 8 cases of tests with more than 8 (make test runs more of them). "


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


def cases_left_out(nodeids: Sequence[str], part: int = PART) -> frozenset[str]:
    """Return the cases whose day it is not: of a test with many cases one of so many is run, drawn anew each day. What
    a larger ``part`` leaves is among what a smaller one leaves."""
    cases: dict[str, list[str]] = {}
    for one in nodeids:
        if "[" in one and "cases" not in chosen():
            cases.setdefault(one.partition("[")[0], []).append(one)
    many = [sorted(own, key=_drawn) for own in cases.values() if len(own) > MANY]
    return frozenset(one for own in many for one in own[-(-len(own) // part) :])


def _drawn(case: str) -> bytes:
    """A place by chance: with a period, a case might never meet those of ``examples`` whose day it is."""
    return sha256(f"{date.today()} {case}".encode()).digest()


def summary(quick: bool = False) -> str:
    """Return what was left out, loudly, or an empty text. ``quick``: that much more was, as by ``make quick``."""
    left = [f"{kind} ({KINDS[kind]})" for kind in KINDS if kind not in chosen()]
    run = f"; run: {', '.join(sorted(chosen()))}" if chosen() else ""
    more = QUICK if quick else ""
    return more + (f"SLOW TESTS NOT RUN: {'; '.join(left)}{run}. make test-all runs all of them." if left else "")


def of_commit() -> str:
    """Return the kind whose turn it is: each commit has one, and a commit always the same."""
    kinds = [*KINDS]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout
    return kinds[int(commit.strip() or "0", 16) % len(kinds)]


if __name__ == "__main__":
    print(of_commit())
