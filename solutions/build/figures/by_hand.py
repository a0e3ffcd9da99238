"""The figures of a text that nothing computes, and prices that are not those of its puzzle."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from lib import Cost, RingCost, WireCost

from .writing import PLACE

PRICES = re.compile(r"`cost=((?:Ring|Wire)?Cost\([^`]*\))`")


def other_prices(text: str, cost: Cost) -> Iterator[str]:
    """Yield the prices that a text tells a learner to use, where they are not those of its puzzle."""
    for said in PRICES.findall(text):
        if eval(said, {"Cost": Cost, "RingCost": RingCost, "WireCost": WireCost}) != cost:
            yield " ".join(said.split())


CELLS = re.compile(r"^ *```.*?^ *```|^ *\d+\. ", re.DOTALL | re.MULTILINE)
"""Blocks of code, and the numbers of a list."""
CODE = re.compile(r"`[^`]*`")
PLAIN = re.compile(r"\b10[⁰¹²³⁴-⁹]+|\b\d+[ -]bits?\b|(?<![\d.])20[0-2]\d(?![\d.,]\d|\d)")
"""Powers of ten, formats of numbers, years."""
ADDRESS = re.compile(r"\]\([^)\s]*\)|https?://\S+")
MANY = r"\d[\d.]*(?:(?:, and | and | to | or |, )\d[\d.]*)*\b"
NAMED = re.compile(
    rf"\b(?:puzzles?|layers?|ranks?|micro-batch(?:es)?|stages?|hints?|tables?|figures?|sections?|issues?|rows?|shards?|"
    rf"pieces?|slices?|nodes?|chunks?|keys?|numbers?|versions?|replicas?|pipelines?|arXiv|Llama|RTX|PCIe|PR|GPT|"
    rf"FlashAttention-?|sizes?) \(?{MANY}",
    re.IGNORECASE,
)
NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?!\w*[A-Za-z])")
UNIT = re.compile(
    r"[*\s]*(?:ticks?|elements?|percent|%|[KMGT]B|ms|µs|s|seconds?|minutes?|hours?|days?|years?|billion|million|"
    r"trillion|bytes?|/ ?\d)\b"
)
SMALL = ("0", "1", "2")


def by_hand(text: str, counts: Collection[str]) -> Iterator[str]:
    """Yield the figures of a text that no placeholder computes, each with a few words around it. ``counts``: those of
    the puzzle's size, which may be written."""
    bare = " ".join(CELLS.sub("§ ", text).split())
    for pattern in (PLACE, CODE, ADDRESS, NAMED, PLAIN):
        bare = pattern.sub("§", bare)
    for found in NUMBER.finditer(bare):
        number = found[0].rstrip(",")
        if number not in (*SMALL, *counts) or UNIT.match(bare, found.end()):
            yield bare[max(0, found.start() - 30) : found.end() + 20]


def counts(size: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the numbers in a size, those of its mesh among them."""
    for value in size.values():
        if isinstance(value, Mapping):
            yield from value.values()
        elif not isinstance(value, str):
            yield value
