"""Pictures as files, pages, and outputs of a notebook."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from lib.basics.errors import PuzzleError

from .svg import escape

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>:root{{color-scheme:light dark}}body{{margin:1em auto;max-width:1100px;padding:0 1em;
font:15px system-ui,sans-serif}}</style>
<body><main><h1>{title}</h1>
{content}
</main></body></html>
"""

SWAP = (
    "<style>.ltp-words:has(+.ltp-live>svg){display:none!important}"
    "div.ltp-live.lm-Widget.lm-mod-hidden:has(>svg){display:block!important}</style>"
)
SCROLLS = "overflow-x:auto"
HIDDEN = (
    'class="ltp-live hidden lm-Widget lm-mod-hidden" hidden="hidden" tabindex="0" '
    f'style="display:none;position:relative;{SCROLLS}"'
)
INSTEAD = (
    "The picture is not shown, since this page takes pictures out of outputs. Run the cell again, or trust the "
    "notebook; with static=True a picture is an image that is shown everywhere."
)


def scrolling(picture: str) -> str:
    """Return a picture in an element that scrolls sideways where the page is too narrow."""
    return f'<div style="{SCROLLS}" tabindex="0">{picture}</div>'


def swapped(picture: str, words: str) -> str:
    """Return a picture for a notebook. A page that removes it (an untrusted notebook, a sanitized report) shows
    ``words`` and what to do instead.

    A sanitizer that removes ``<svg>`` leaves the texts that were in it, but it removes ``<style>`` as well. So the
    picture is hidden in every way that some sanitizer keeps, with classes of JupyterLab and nbconvert among them, and
    only its style sheet shows it and hides the words. ``:has`` restricts that style sheet to its own output.
    """
    return f'<div class="ltp-words">{escape(words)} {INSTEAD}</div><div {HIDDEN}>{picture}{SWAP}</div>'


def page(title: str, content: str) -> str:
    """Return a complete HTML page with a picture."""
    return PAGE.format(title=escape(title), content=content)


def write(
    path: str | os.PathLike[str], formats: Mapping[str, Callable[[], str | bytes]], any_name: bool = False
) -> None:
    """Write the format of the name's ending (with ``any_name`` the only format). The file is opened last, so that no
    error leaves half of it. Raise PuzzleError for an unknown ending, and if the file cannot be written."""
    try:
        target = Path(path)
    except TypeError:
        raise PuzzleError("save takes the name of a file", where="save", got=repr(path)) from None
    make = next(iter(formats.values())) if any_name else formats.get(target.suffix.lower())
    if make is None:
        raise PuzzleError(f"{target.name} has no known ending", where="save", expected=" or ".join(formats))
    made = make()
    try:
        target.write_bytes(made.encode() if isinstance(made, str) else made)
    except OSError as error:
        raise PuzzleError(f"{target} cannot be written: {error.strerror}", where="save") from None
