"""What could be given to ``plan`` instead, where it finds nothing: each was tried, and gives a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

from ..real.prices import FEW_BITS, LORA_RANK, Cluster
from ..real.transformer import MOMENTS, Transformer
from .ways import MOST_GPUS

TRIED, WAYS = 6, 3
"""How many numbers are tried, and how many of the smallest ways with each."""
MOST = 3  # things that are named
NEAR = 0.3
"""How far from the GPUs, or from the batch, the nearest is looked for that can be divided."""
LEAST_GRADIENTS = 2  # bytes


class Search(Protocol):
    """What has to be known of a search (``plan.Search``)."""

    model: Transformer
    cluster: Cluster
    gpus: int
    batch: int
    given: dict[str, Any]
    hosts: bool
    yours: bool

    def ways(self) -> Sequence[object]:
        """Return all ways that it tries."""

    def with_others(self, **changed: Any) -> Search:
        """Return the search with other arguments."""

    def is_possible(self) -> bool:
        """Return whether a way fits."""

    def least_gpus(self) -> int:
        """Return on how many GPUs there is room for the states alone."""


def around(number: int) -> Iterator[int]:
    """Yield the numbers near to one, from the nearest on.

    >>> [*around(4)]
    [3, 5, 2, 6]
    """
    for off in range(1, round(NEAR * number) + 2):
        yield from (near for near in (number - off, number + off) if near > 0)


def what_would_do(search: Search) -> str:
    """Return what ``plan`` could be given in the place of what this search was made of, as text."""
    others = _either([*islice(_each(search), MOST)]) or _both(search) or _either([*_less(search)])
    return others or "a cluster of GPUs with more memory, or of more of them: no change that plan knows was enough"


def _each(search: Search) -> Iterator[str]:
    """Yield single changes that would do, as text."""
    if gpus := next((n for n in _numbers_of_gpus(search) if search.with_others(gpus=n).is_possible()), None):
        yield f"more GPUs ({gpus:,})" if search.ways() else f"{gpus:,} GPUs"
    if not search.ways():  # nothing divides the batch
        batches = islice(around(search.batch), TRIED)
        if batch := next((n for n in batches if search.with_others(batch=n).is_possible()), None):
            yield f"a batch of {batch:,}"
        return
    named = ""
    for other in _other_arguments(search):
        if (name := next(iter(other))) != named and search.with_others(**other).is_possible():
            yield " with ".join(f"{name}={_quoted(value)}" for name, value in other.items())
            named = name
    if search.yours and search.with_others(programs={}).is_possible():
        yield "no programs of yours"


def _both(search: Search) -> str:
    """Return a number of GPUs that do with as many sequences, as text; empty if none was found."""
    for n in _numbers_of_gpus(search):
        if search.with_others(gpus=n, batch=n).is_possible():
            return f"{n:,} GPUs with a batch of {n:,}"
    return ""


def _less(search: Search) -> Iterator[str]:
    """Yield the longest sequences that fit, of half as many tokens and so on, and the most layers, as text."""
    for name, template in (("sequence", "sequences of {:,} tokens"), ("layers", "a model of {:,} layers")):
        whole = getattr(search.model, name)
        some = [whole >> times for times in range(1, whole.bit_length())]
        if name == "sequence":  # of powers of 2, which pieces of a sequence divide
            some = [1 << bits for bits in reversed(range((whole - 1).bit_length()))]
        for less in some:
            if search.with_others(model=_made_of(search.model, name, less)).is_possible():
                yield template.format(less)
                break


def _made_of(model: Transformer, name: str, value: int) -> Transformer:
    """Return a model of which one number is another one. Its first layers stay dense, as far as there are any."""
    if name == "layers":
        return replace(model, layers=value, dense_layers=min(model.dense_layers, value))
    return replace(model, sequence=value)


def _other_arguments(search: Search) -> Iterator[dict[str, Any]]:
    """Yield arguments of ``plan`` with which a GPU holds less, those that change least first."""
    adapters, frozen = search.given.get("adapter_rank"), search.given.get("frozen_bits")
    if not search.hosts:
        yield {"hosts": True}
    if search.given["gradients"] > LEAST_GRADIENTS:
        yield {"gradients": LEAST_GRADIENTS}
    if adapters is None:
        known = [*MOMENTS]
        yield from ({"optimizer": name} for name in known[known.index(search.given.get("optimizer", "adam")) + 1 :])
        yield {"adapter_rank": LORA_RANK}
        yield {"adapter_rank": LORA_RANK, "frozen_bits": FEW_BITS}
    elif frozen is None or frozen > FEW_BITS:
        yield {"frozen_bits": FEW_BITS}


def _numbers_of_gpus(search: Search) -> Iterator[int]:
    """Yield numbers of GPUs to try, as far as ``plan`` takes so many."""
    yield from (number for number in _any_numbers_of_gpus(search) if number <= MOST_GPUS)


def _any_numbers_of_gpus(search: Search) -> Iterator[int]:
    """Yield numbers of GPUs: those that are near if these have room; else more, by whole nodes first."""
    need, box = max(search.gpus, search.least_gpus()), search.cluster.gpus_per_box
    if need == search.gpus:
        yield from islice(around(need), TRIED)
    yield from (2**n for n in range(box.bit_length()) if need <= 2**n < box)
    nodes = -(-need // box)
    yield from (box * count for count in range(nodes, nodes + TRIED))
    power = 1 << (nodes + TRIED - 1).bit_length()
    yield from (box * power << times for times in range(TRIED))


def _quoted(value: object) -> str:
    """Return a value as it is written in a call."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _either(choices: Sequence[str]) -> str:
    """Return several things of which one is to be chosen, as text.

    >>> _either(["one", "two"]), _either(["one", "two", "three"]), _either([])
    ('one or two', 'one, two, or three', '')
    """
    if len(choices) < 3:
        return " or ".join(choices)
    return f"{', '.join(choices[:-1])}, or {choices[-1]}"
