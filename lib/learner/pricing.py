"""Docstrings of verbs that know their prices."""

from collections.abc import Callable
from typing import Any, TypeVar

from ..machine.cost import Cost
from ..record.table import operation

Verb = TypeVar("Verb", bound=Callable[..., Any])


def priced(verb: Verb) -> Verb:
    """Put a verb's default price and its names in torch into its docstring, for ``{price}`` and ``{torch}``."""
    if verb.__doc__:
        names = " or ".join(f"dist.{name}" for name in operation(verb.__name__).elsewhere)
        verb.__doc__ = verb.__doc__.replace("{price}", Cost().in_words(verb.__name__)).replace("{torch}", names)
    return verb
