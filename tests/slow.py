"""What takes long: `make test` runs a part of it, the same each time, and `make test-all` everything.

A test that is marked ``slow`` is left out by `make test`, of a test with many cases a fixed tenth is run, and a test
that goes through a long list takes every so many-th of it (``some``). Whoever runs a file by itself runs all of it.
"""

import os
from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")
EVERYTHING = os.environ.get("SLOW_TESTS") != "none"
MANY, PART = 8, 10
"""A test that has more cases than the first is run with one in the second of them."""
LEFT_OUT = "SLOW TESTS NOT RUN, and of many cases and long lists a part is run: make test-all runs everything."


def some(everything: Sequence[T], of: int = 10) -> Sequence[T]:
    """Return everything, or one in so many for `make test`."""
    return everything if EVERYTHING else everything[::of]


def beyond(nodeids: Sequence[str]) -> set[str]:
    """Return the cases that are left out of tests with many. A checksum chooses: every so many-th case of a product
    might have the same factor."""
    cases: dict[str, list[str]] = {}
    for one in nodeids:
        if "[" in one:
            cases.setdefault(one.partition("[")[0], []).append(one)
    many = [sorted(own, key=lambda one: crc32(one.encode())) for own in cases.values() if len(own) > MANY]
    return {one for own in many for one in own[-(-len(own) // PART) :]}
