"""Our marks as SVG text, written directly: svgwrite's validation alone took a third of the time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chalk.core import Compose, Primitive
from chalk.style import Style

from . import theme
from .marks import Boxes, Label, Lines, Poly, Titled

ROLE_OF = {light: role for role, (light, _) in theme.ROLES.items()}
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif"


def number(value: float) -> str:
    """Two decimals at most."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def escape(text: str) -> str:
    """Text fit for XML content and attributes."""
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(sign, entity)
    return "".join(c for c in text if c >= " " or c in "\n\t")


def to_svg(parts: Iterable[Any], width: float, height: float, alternative: str, fluid: bool = True) -> str:
    """A picture of our marks. ``fluid``: shrinks to the width of its cell (left out of files: some
    converters draw nothing then)."""
    size = f'viewBox="0 0 {number(width)} {number(height)}" width="{number(width)}" height="{number(height)}"'
    how = ' style="max-width:100%;height:auto"' if fluid else ""
    text = escape(alternative)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ltp" {size}{how} role="img" aria-label="{text}" '
        f'font-family="{FONT}" text-anchor="middle">'
    )
    return "".join([head, f"<style>{theme.css()}</style>", *Writer().write(parts), "</svg>"])


class Writer:
    """Walks the tree with a stack of its own: no recursion limit."""

    def __init__(self) -> None:
        self._attributes: dict[tuple[int, bool], tuple[str, Style]] = {}

    def write(self, parts: Iterable[Any]) -> list[str]:
        """The elements, in order."""
        out: list[str] = []
        stack: list[tuple[Any, str]] = [(part, "") for part in reversed(list(parts))]
        while stack:
            node, title = stack.pop()
            if isinstance(node, str):
                out.append(node)
            elif isinstance(node, Primitive):
                out.append(self._leaf(node, title))
            elif isinstance(node, Titled):
                stack.append((node.diagram, node.title))
            elif isinstance(node, Compose):
                if title:
                    out.append(f"<g><title>{escape(title)}</title>")
                    stack.append(("</g>", ""))
                stack.extend((child, "") for child in reversed(node.diagrams))
            else:
                raise TypeError(f"not a mark of this package: {type(node).__name__}")
        return out

    def _leaf(self, node: Primitive, title: str) -> str:
        shape = node.shape
        inner = f"<title>{escape(title)}</title>" if title else ""
        if isinstance(shape, Label):
            return self._text(node, shape, inner)
        how = self._style(node.style)
        if isinstance(shape, Boxes) and len(shape.items) == 1:
            x, y, w, h = map(number, shape.items[0])
            radius = f' rx="{number(shape.radius)}"' if shape.radius else ""
            return f'<rect x="{x}" y="{y}" width="{w}" height="{h}"{radius}{how}>{inner}</rect>'
        return f'<path{how} d="{path_data(shape)}">{inner}</path>'

    def _text(self, node: Primitive, shape: Label, inner: str) -> str:
        size = float(shape.font_size or 10)
        x, y = node.transform[2], node.transform[5] + 0.35 * size
        anchor = "" if shape.anchor == "middle" else f' text-anchor="{shape.anchor}"'
        weight = "" if shape.weight == 400 else f' font-weight="{shape.weight}"'
        how = self._style(node.style, text=True)
        place = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}"'
        return f"<text {place}{anchor}{weight}{how}>{inner}{escape(shape.text)}</text>"

    def _style(self, how: Style, text: bool = False) -> str:
        key = (id(how), text)
        found = self._attributes.get(key)
        if found is None:
            found = self._attributes[key] = _attributes(how, text), how  # kept alive: its id is the key
        return found[0]


def _attributes(how: Style, text: bool) -> str:
    """Presentation attributes (a sanitizer strips style=), and classes for the roles."""
    out, classes = "", []
    if how.fill_color_ is None:
        out += ' fill="none"'
    else:
        fill = how.fill_color_.hex_l
        out += f' fill="{fill}"'
        if fill in ROLE_OF:
            classes.append(f"f-{ROLE_OF[fill]}")
        if how.fill_opacity_ not in (None, 1):
            out += f' fill-opacity="{number(how.fill_opacity_)}"'
    width = how.line_width_[1] if how.line_width_ else 0
    if width and how.line_color_ is not None and not text:
        stroke = how.line_color_.hex_l
        out += f' stroke="{stroke}" stroke-width="{number(width)}"'
        if stroke in ROLE_OF:
            classes.append(f"s-{ROLE_OF[stroke]}")
        if how.dashing_ is not None:
            out += f' stroke-dasharray="{" ".join(map(number, how.dashing_[0]))}"'
    return out + (f' class="{" ".join(classes)}"' if classes else "")


def path_data(shape: Boxes | Lines | Poly) -> str:
    """The d attribute."""
    n = number
    if isinstance(shape, Boxes):
        return "".join(f"M{n(x)} {n(y)}h{n(w)}v{n(h)}h{n(-w)}z" for x, y, w, h in shape.items)
    if isinstance(shape, Lines):
        return "".join(f"M{n(a)} {n(b)}L{n(c)} {n(d)}" for a, b, c, d in shape.items)
    return "M" + "L".join(f"{n(x)} {n(y)}" for x, y in shape.corners) + ("z" if shape.closed else "")
