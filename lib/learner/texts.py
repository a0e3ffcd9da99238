"""Keys that are texts in which the layer, or the layer and the micro-batch, stand as numbers, '7/0' or f"w{layer}", as
what is stored under the others tells. Rules are asked about those numbers, and what they say is spelled in this way."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from ..record.kinds import KINDS
from ..record.labels import Labels

NUMBERS = (1, 2)  # how many a text may have
Form = tuple[str, ...]
"""What stands before, between and after the numbers of a key."""
KEY = re.compile(
    r"(?P<before>model\.(?P<name>\w+)(?:\[|\.(?:pop|get)\(\(?)|store it as \[)"
    r"(?P<one>-?\d+|layer)(?:, (?P<two>-?\d+|micro_batch))?(?P<after>\)?[\]),])"
)
NOT_IN = re.compile(r"\((?P<one>-?\d+), (?P<two>-?\d+)\) not in model\.(?P<name>\w+)")


def form_of(key: Hashable) -> Form | None:
    """Return what a text has around its numbers, if it has one or two of them."""
    parts = tuple(re.split(r"\d+", key)) if isinstance(key, str) else ()
    filled = isinstance(key, str) and re.search(r"(?<!\d)0\d", key)  # by its number 07 is 7
    return parts if len(parts) - 1 in NUMBERS and not filled else None


def read(form: Form, key: Hashable) -> int | tuple[int, ...] | None:
    """Return the numbers that a key has where another of this form has its own.

    >>> read(("", "/", ""), "7/0"), read(("w", ""), "w12"), read(("w", ""), "x12")
    ((7, 0), 12, None)
    """
    pattern = r"(-?\d+)".join(map(re.escape, form))
    found = re.fullmatch(pattern, key) if isinstance(key, str) else None
    numbers = tuple(map(int, found.groups())) if found else ()
    return numbers if len(numbers) > 1 else next(iter(numbers), None)


def _fits(numbers: int | tuple[int, ...] | None, labels: Labels) -> bool:
    """Return whether these numbers are meant as the layer, as the micro-batch, or as both, of what they stand for."""
    layers = {labels.layer, labels.layer + (labels.kind == "ActivationGrad")}
    if isinstance(numbers, tuple):
        own = [numbers, numbers[::-1]] if KINDS[labels.kind].by_batch or labels.kind == "WeightGrad" else []
        near = {one + off for one in layers for off in (-1, 0, 1)}  # one of the two may be what is wrong
        return any(layer in layers or (layer in near and batch in labels.batches) for layer, batch in own)
    return numbers in layers or (KINDS[labels.kind].by_batch and labels.batches == {numbers})


def forms(stored: Iterable[tuple[Hashable, Labels]]) -> dict[int, Form]:
    """Return of the keys with one number and of those with two the first form in which the numbers are mostly the layer
    and the micro-batch of what is stored."""
    votes: dict[Form, int] = {}
    for key, labels in stored:
        if (form := form_of(key)) is not None:
            votes[form] = votes.get(form, 0) + (1 if _fits(read(form, key), labels) else -1)
    return {len(form) - 1: form for form, fit in [*votes.items()][::-1] if fit > 0}


class Texts(NamedTuple):
    """How the keys of a rank's dictionaries are spelled."""

    name: str  # of the dictionary in which a key is looked for
    forms: Mapping[str, Mapping[int, Form]]  # of each dictionary: for one number, and for two
    layer_last: bool  # whether the layer is the second one of two numbers

    def numbers(self, name: str, key: Hashable) -> Hashable:
        """Return the numbers of a key of a dictionary; a key that has another form, as it is."""
        known = (read(form, key) for form in self.forms.get(name, {}).values())
        return next((numbers for numbers in known if numbers is not None), key)

    def spelled(self, said: str) -> str:
        """Return what is said of keys that are numbers, with keys as the learner writes them."""
        absent = NOT_IN.sub(lambda found: f"{self._text(found)} not in model.{found['name']}", said)
        return KEY.sub(self._one, absent)

    def _one(self, found: re.Match[str]) -> str:
        text = self._text(found)
        if not text:
            return found[0]
        before, after = found["before"], found["after"]
        if before.endswith("(("):
            before, after = before[:-1], after.removeprefix(")")
        return f"{before}{text}{after}"

    def _text(self, found: re.Match[str]) -> str:
        """Return the key that a match names, as a text; an empty text where the learner has no such form."""
        numbers = [one for one in (found["one"], found["two"]) if one]
        form = self.forms.get(found["name"] or self.name, {}).get(len(numbers))
        if form is None:
            return ""
        by_name = any(one.isidentifier() for one in numbers)
        if by_name and self.layer_last:
            numbers = numbers[::-1]
        parts = [f"{{{one}}}" if one.isidentifier() else one for one in numbers]
        text = form[0] + "".join(part + beside for part, beside in zip(parts, form[1:], strict=True))
        return "f" * by_name + repr(text)
