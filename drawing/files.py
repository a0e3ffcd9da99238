"""Pictures as files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from lib.errors import PuzzleError

from .svg import escape

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>:root{{color-scheme:light dark}}body{{margin:1em auto;max-width:1100px;padding:0 1em}}</style>
<body>{content}</body></html>
"""


def page(title: str, content: str) -> str:
    """A page of its own around a picture."""
    return PAGE.format(title=escape(title.split(":")[0]), content=content)


def write(path: str | os.PathLike[str], formats: Mapping[str, Callable[[], str]], any_name: bool = False) -> None:
    """Write the format that the name ends in (with ``any_name``: the only one, whatever the name).

    The text is complete before the file is opened, so that no error leaves half of it. Raises PuzzleError
    for an unknown ending, and where the file cannot be written.
    """
    target = Path(path)
    make = next(iter(formats.values())) if any_name else formats.get(target.suffix.lower())
    if make is None:
        raise PuzzleError(f"{target.name} has no known ending", where="save", expected=" or ".join(formats))
    text = make()
    try:
        with open(target, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise PuzzleError(f"{target} cannot be written: {error.strerror}", where="save") from None
