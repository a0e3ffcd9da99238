"""The room that texts take: how wide they are, which of them fits, their lines, and what they are in the way of."""

from __future__ import annotations

from collections.abc import Iterable

from .marks import Diagram, Label, Rect, leaves

MOST, BOLD = 6, 1.2
"""Lines of a sentence, and how many times as wide bold letters are."""
_WIDTHS = dict.fromkeys("ijl.,:;|'! ()[]-ftr", 0.36) | dict.fromkeys("mwMW%", 0.92)


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return the approximate width of a text in a common sans font; without the font nobody can measure it."""
    widths = [_WIDTHS.get(letter) or (0.66 if letter.isupper() else 0.6) for letter in text]
    return size * sum(widths) * (BOLD if bold else 1.0)


def first_fit(texts: Iterable[str], sizes: Iterable[float], width: float) -> tuple[str, float] | None:
    """Return the first text for which there is room, in the first size in which there is, and that size."""
    return next(((text, size) for text in texts for size in sizes if text_width(text, size) <= width), None)


def fit(text: str, size: float, width: float) -> str:
    """Return the text, cut off with an ellipsis if it is wider than ``width`` pixels."""
    if len(text) * size <= 4 * width and text_width(text, size, bold=True) <= width:
        return text
    text = text[: int(4 * width / size)]  # no letter is narrower: a huge text is cut before it is measured
    while text and text_width(text + "…", size, bold=True) > width:
        text = text[:-1]
    return text + "…"


def wrapped(text: str, size: float, width: float, bold: bool = False) -> list[str]:
    """Return the lines of a text in so many pixels. A word that is wider than that is cut off, and so is what has no
    room in MOST lines.

    >>> wrapped("who waits for whom", 10, 60)
    ['who waits', 'for whom']
    """
    found: list[str] = []
    for word in text.split():
        line = f"{found[-1]} {word}" if found else ""
        if line and (len(found) == MOST or text_width(line, size, bold) <= width):
            found[-1] = line
        else:
            found.append(fit(word, size, width))
    return [*found[:-1], fit(found[-1], size, width)] if len(found) == MOST else found


def place_of(text: Label, x: float, y: float) -> Rect:
    """Return the approximate area of a text with its anchor at x and its middle at y."""
    size = float(text.font_size or 10)
    width = text_width(text.text, size, text.weight > 500)
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[text.anchor]
    return left, y - size / 2, width, size


def overlap(one: Rect, other: Rect) -> bool:
    """Return whether two areas have a part in common."""
    return all(one[at] < other[at] + other[at + 2] and other[at] < one[at] + one[at + 2] for at in (0, 1))


def places_of_texts(parts: Iterable[Diagram]) -> list[Rect]:
    """Return the areas of all texts of a diagram that is not moved."""
    texts = (node for node in leaves(parts) if isinstance(node.shape, Label))
    return [place_of(node.shape, node.transform[2], node.transform[5]) for node in texts]


def around(line: Rect, texts: Iterable[Rect], room: float = 2.0) -> list[Rect]:
    """Return the pieces of a vertical or horizontal line that strike through no text.

    >>> around((5, 0, 5, 100), [(0, 40, 20, 10), (50, 60, 9, 9)])
    [(5, 0, 5, 38.0), (5, 52.0, 5, 100)]
    """
    x, y, x2, y2 = line
    upright = x == x2
    across, start, end = (x, y, y2) if upright else (y, x, x2)
    spans = []
    for left, top, width, height in texts:
        near, far, first, last = (
            (left, left + width, top, top + height) if upright else (top, top + height, left, left + width)
        )
        if near - 1 < across < far + 1 and first - room < end and last + room > start:
            spans.append((first - room, last + room))
    pieces = []
    for first, last in [*sorted(spans), (end, end)]:
        if min(first, end) > start:
            pieces.append((start, min(first, end)))
        start = max(start, last)
    return [(x, a, x, b) if upright else (a, y, b, y) for a, b in pieces]
