"""A pickle that may only have plain data in it. To load any other one would run whatever its author has put there."""

import pickle
from pathlib import Path
from typing import Any, NoReturn

from .streams import damaged, opened


class _NotPlain(Exception):
    """Raised at the name of something that would be loaded."""


class _Plain(pickle.Unpickler):
    """An unpickler that makes numbers, texts, lists, tuples, sets and dicts, and nothing else."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise _NotPlain(f"{module}.{name}")


def plain_pickle(path: Path) -> Any:
    """Return the data of a pickle. Raise PuzzleError if it is damaged, or has more than plain data in it."""
    with opened(path) as file:
        try:
            return _Plain(file).load()
        except _NotPlain as error:
            expected = "a dump as PyTorch has written it; a pickle that names code may run anything, and is not loaded"
            raise damaged(path, f"is a pickle of more than plain data: it names {error}", expected) from None
        except Exception as error:  # a damaged pickle may raise anything
            problem = "is cut off" if isinstance(error, EOFError) else f"is damaged: {error}"
            raise damaged(path, problem) from None
