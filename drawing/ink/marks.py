"""Shapes that carry their own coordinates, as cheap leaves of a chalk diagram.

They need no transform, no alignment, and no envelope to walk: with chalk's combinators a picture of 600 events took
seconds. chalk's own renderers can still draw every shape, as a path or a text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from chalk import hcat as hcat
from chalk import vcat as vcat
from chalk.core import ApplyName, Compose, Primitive
from chalk.envelope import Envelope
from chalk.shapes import Path, Text
from chalk.shapes.shape import Shape
from chalk.style import Style as Style
from chalk.style import WidthType
from chalk.subdiagram import Name
from chalk.transform import Affine
from chalk.types import Diagram as Diagram
from colour import Color

Point = tuple[float, float]
Rect = tuple[float, float, float, float]
"""The x and the y of a corner, width and height, in pixels."""
IDENTITY = Affine.identity()


@cache
def style(
    fill: str | None = None,
    stroke: str | None = None,
    width: float = 0.0,
    opacity: float | None = None,
    dash: tuple[float, ...] | None = None,
) -> Style:
    """Return a chalk style, the same one for the same arguments. Colors are #rrggbb, widths in pixels."""
    return Style(
        line_width_=(WidthType.LOCAL, width),
        line_color_=Color(stroke) if stroke else None,
        fill_color_=Color(fill) if fill else None,
        fill_opacity_=opacity if fill else 0.0,
        dashing_=(list(dash), 0) if dash else None,
    )


class Mark(Shape):
    """A shape made of polygons and lines, which chalk's own renderers draw as a path."""

    closed = True

    def outlines(self) -> Sequence[Sequence[Point]]:
        """Return the corners of the polygons or, of a mark that is not ``closed``, of the lines."""
        raise NotImplementedError

    def to_path(self) -> Path:
        """Return the shape as a path of chalk's."""
        found: list[Any] = []
        for corners in self.outlines():
            around = [*corners, corners[0]] if self.closed else list(corners)
            found += Path.from_list_of_tuples(around, closed=self.closed).loc_trails
        return Path(found)

    def get_envelope(self) -> Envelope:
        xs, ys = zip(*(point for corners in self.outlines() for point in corners), strict=True)
        return box_envelope(min(xs), min(ys), max(xs), max(ys))

    def get_trace(self) -> Any:
        return self.to_path().get_trace()

    def accept(self, visitor: Any, **kwargs: Any) -> Any:
        return visitor.visit_path(self.to_path(), **kwargs)


@dataclass
class Polys(Mark):
    """Polygons of one style, or open lines."""

    items: Sequence[Sequence[Point]]
    closed: bool = True

    def outlines(self) -> Sequence[Sequence[Point]]:
        return self.items


@dataclass
class Boxes(Mark):
    """Rectangles (x, y, width, height) of one style. Only a single one has a ``radius``."""

    items: Sequence[Rect]
    radius: float | None = None

    def outlines(self) -> Sequence[Sequence[Point]]:
        return [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in self.items]


@dataclass
class Hovers(Mark):
    """Invisible places with hover texts, for what is drawn already. An ``arrow`` is shown by a style sheet while the
    pointer rests on one of them: no script is needed, and where a page removes styles, it is never seen."""

    items: Sequence[tuple[Sequence[Rect], str]]
    arrow: Polys | None = None

    def outlines(self) -> Sequence[Sequence[Point]]:
        return Boxes([place for places, _ in self.items for place in places]).outlines()


@dataclass
class Label(Text):
    """A text. ``anchor`` is start, middle or end. The pointer goes through a ``passive`` text to what is behind it."""

    anchor: str = "middle"
    weight: int = 400
    passive: bool = False

    def accept(self, visitor: Any, **kwargs: Any) -> Any:
        """Let chalk, which can only center, draw the text, and move its anchor afterwards."""
        element = visitor.visit_text(self, **kwargs)
        if self.anchor != "middle" and hasattr(element, "attribs") and "style" in element.attribs:
            element["style"] = element["style"].replace("text-anchor:middle", f"text-anchor:{self.anchor}")
        return element


class Titled(ApplyName):
    """A diagram with a hover text, and an opacity if it is faded. chalk's own SVG renderer writes the <title>, too."""

    def __init__(self, title: str, diagram: Diagram, opacity: float | None = None) -> None:
        super().__init__(Name("title"), diagram)
        self.title, self.opacity = title, opacity

    def accept(self, visitor: Any, args: Any) -> Any:
        element = visitor.visit_apply_name(self, args)
        if hasattr(element, "set_desc"):
            element.set_desc(title=self.title)
            if self.opacity is not None:
                element["opacity"] = self.opacity
        return element


class Classed(ApplyName):
    """A diagram that a style sheet moves, or leaves out, by the class ``name``. Without that it is ``seen``, or not."""

    def __init__(self, name: str, parts: Iterable[Diagram], seen: bool = True) -> None:
        super().__init__(Name(name), together(parts))
        self.name, self.seen = name, seen


def leaves(parts: Iterable[Diagram]) -> Iterator[Any]:
    """Yield the leaves of diagrams, in order."""
    stack = [*parts][::-1]
    while stack:
        node: Any = stack.pop()
        if isinstance(node, Primitive):
            yield node
        else:
            stack += node.diagrams[::-1] if isinstance(node, Compose) else [node.diagram]


UNSEEN = style("#000000", None, 0, 0.0)
"""The style of an invisible shape that the pointer still finds."""


def leaf(shape: Mark, how: Style = UNSEEN) -> Primitive:
    """Return a shape with a style as a leaf of a diagram."""
    return Primitive(shape, how, IDENTITY)


def boxes(items: Sequence[Rect], how: Style) -> Primitive:
    """Return boxes of one style."""
    return leaf(Boxes(items), how)


def box(x: float, y: float, w: float, h: float, how: Style, radius: float = 0.0) -> Primitive:
    """Return one box."""
    return leaf(Boxes([(x, y, w, h)], radius), how)


def hovers(items: Iterable[tuple[Rect, str]]) -> list[Diagram]:
    """Return invisible boxes with hover texts, for places that are drawn already."""
    found = [([place], text) for place, text in items]
    return [leaf(Hovers(found))] if found else []


def poly(corners: Sequence[Point], how: Style, closed: bool = True) -> Primitive:
    """Return a polygon or a line."""
    return leaf(Polys([corners], closed), how)


def star(x: float, y: float, size: float, how: Style) -> Primitive:
    """Return a star with five points, the first of them up, ``size`` pixels from its middle."""
    turns = [(size if point % 2 == 0 else 0.42 * size, math.pi * point / 5) for point in range(10)]
    return poly([(x + far * math.sin(turn), y - far * math.cos(turn)) for far, turn in turns], how)


def lines(items: Sequence[Rect], how: Style) -> Primitive:
    """Return straight lines of one style."""
    return leaf(Polys([((a, b), (c, d)) for a, b, c, d in items], closed=False), how)


def label(
    x: float,
    y: float,
    text: str,
    size: float,
    how: Style,
    anchor: str = "middle",
    weight: int = 400,
    passive: bool = False,
) -> Primitive:
    """Return a text whose visual middle is at ``y``."""
    return Primitive(Label(text, size, anchor, weight, passive), how, Affine(1.0, 0.0, x, 0.0, 1.0, y))


def together(parts: Iterable[Diagram]) -> Compose:
    """Return diagrams as one, which takes no room beside others."""
    return Compose(_POINT, list(parts))


def tile(width: float, height: float, parts: Iterable[Diagram]) -> Compose:
    """Return diagrams as one of this size, whatever is in it: for ``hcat`` and ``vcat``."""
    return Compose(box_envelope(0, 0, width, height), list(parts))


def in_lines(tiles: Sequence[Diagram], many: int) -> Diagram:
    """Return tiles in lines of so many."""
    return vcat([hcat(tiles[at : at + many]) for at in range(0, len(tiles), many)])


def merged(parts: Iterable[Diagram]) -> list[Diagram]:
    """Return the same shapes with all of one style as one leaf, which takes a fraction of the bytes: corners are not
    rounded any more, and shapes of a style that comes first lie below all of one that comes later."""
    found: dict[tuple[Any, ...], tuple[Style, list[Any]]] = {}
    labels: list[Diagram] = []
    for node in leaves(parts):
        shape, how = node.shape, node.style
        if isinstance(shape, Boxes):
            for x, y, width, height in shape.items:
                start = round(x, 1)  # nobody sees a tenth of a pixel among so many
                place = start, y, round(x + width, 1) - start or width, height
                found.setdefault((Boxes, id(how), round(height, 2)), (how, []))[1].append(place)
        elif isinstance(shape, Polys):
            rounded = [[(round(x, 1), round(y, 1)) for x, y in corners] for corners in shape.items]
            found.setdefault((Polys, id(how), shape.closed), (how, []))[1].extend(rounded)
        else:
            labels.append(node)
    made = (Boxes(items) if kind is Boxes else Polys(items, closed) for (kind, _, closed), (_, items) in found.items())
    return [*(leaf(shape, how) for shape, (how, _) in zip(made, found.values(), strict=True)), *labels]


def box_envelope(x0: float, y0: float, x1: float, y1: float) -> Envelope:
    """Return the envelope of a box: two products instead of a walk over a tree."""
    return Envelope(lambda d: max(d.x * x0, d.x * x1) + max(d.y * y0, d.y * y1))


_POINT = box_envelope(0, 0, 0, 0)
