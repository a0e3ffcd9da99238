"""Write our marks as SVG text: with chalk's own renderer a large picture takes minutes.

Colors are presentation attributes, since sanitizers strip ``style``; classes name the roles whose color
the dark theme changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from chalk.core import ApplyTransform, Compose, Empty, Primitive
from chalk.style import Style
from chalk.types import Diagram
from colour import Color

from . import theme
from .marks import IDENTITY, Boxes, Classed, Hovers, Label, Point, Polys, Rect, Titled

ROLE_OF = {light: role for role, (light, _) in theme.ROLES.items()}
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif"
NARROW, READABLE = 600.0, 8.0
"""Places with fewer pixels than the first show what is drawn for them, in which no letter is lower than so many."""
Attributes = dict[tuple[int, bool], tuple[str, Style]]
"""The attributes of styles, by their id and whether they are those of a text."""
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})
_ASKED = f".ltp .m:hover>.a{{fill:{theme.ARROW};fill-opacity:1;stroke:{theme.ARROW};pointer-events:none}}"
ONE_OF_TWO = (
    f".ltp.narrow{{display:none}}@container(max-width:{NARROW:g}px){{.ltp.narrow{{display:block}}.ltp.wide{{display:none}}"
    "}"
)
"""The style of a picture that is drawn twice, for narrow places and for all others."""
_FOR_POINTERS = re.compile('<g fill-opacity="0"[^>]*>.*?</g>', re.DOTALL)
_TITLE = re.compile(r"<title>.*?</title>", re.DOTALL)
_GROUP = re.compile("(<g(?: [^>]*)?>|</g>)")
_NO_XML = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@lru_cache(maxsize=8192)  # heights, widths and places come again and again: a quarter of the time
def number(value: float) -> str:
    """Return a number with at most two decimals.

    >>> number(1.0), number(-0.001), number(2.345)
    ('1', '0', '2.35')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def escape(text: str) -> str:
    """Return a text fit for XML content and attributes.

    >>> escape('a<b & "c"')
    'a&lt;b &amp; &quot;c&quot;'
    """
    return _NO_XML.sub("\ufffd", text).translate(_ENTITIES)


def without_hover(svg: str) -> str:
    """Return a picture without hover texts and invisible shapes, for an image, where no pointer finds them: it looks
    the same and takes about half as many bytes.

    >>> without_hover('<g fill-opacity="0"><path><title>rank 0</title></path></g><rect width="5"/>')
    '<rect width="5"/>'
    >>> without_hover('<g><title>rank 0</title><g opacity="0.3"><rect width="9"/></g></g>')
    '<g opacity="0.3"><rect width="9"/></g>'
    """
    out, bare = list[str](), list[bool]()
    for part in _GROUP.split(_FOR_POINTERS.sub("", _TITLE.sub("", svg))):
        if part.startswith("<g"):
            bare.append(part == "<g>")
        if not (part == "<g>" or (part == "</g>" and bare.pop())):
            out.append(part)
    return "".join(out)


def frame(body: str, size: tuple[float, float], words: str, fluid: bool = False, only_wide: bool = False) -> str:
    """Return an SVG picture of ``size`` pixels around the elements ``body``, with ``words`` as alternative text.

    A ``fluid`` picture shrinks with the page (files are not fluid, since some converters then draw nothing). With
    ``only_wide`` it is not seen in places with fewer than NARROW pixels.
    """
    width, height = map(number, size)
    how = ' style="max-width:100%;height:auto;vertical-align:top"' * fluid
    how = f'width="{width}" height="{height}"{how} role="img" aria-label="{escape(words)}"'
    return _svg("ltp" + " wide" * only_wide, size, how, f"<style>{_ASKED}{theme.css()}</style>{body}")


def image(body: str, size: tuple[float, float], slim: str = "", slim_size: tuple[float, float] = (1, 0)) -> str:
    """Return an SVG picture for an image, in which no pointer finds anything. ``slim``: the elements that it shows
    instead in a narrow place, in a box with the proportions of ``slim_size``."""
    (width, height), (slim_width, tall) = size, slim_size
    body, slim = without_hover(body), without_hover(slim)
    css = theme.image_css(body + slim)
    if slim:
        ratio = number(2000 / (tall / slim_width + height / width))
        box = f"(max-width:{NARROW:g}px) and (max-aspect-ratio:{ratio}/1000)"
        css += f".slim{{display:none}}@media{box}{{.slim{{display:inline}}.wide{{display:none}}}}"
        slim = f'<g class="slim" transform="scale({width / slim_width:.4f})">{slim}</g>'
        body = f'<g class="wide">{body}</g>'
    how = f'width="{number(width)}" height="{number(height)}" preserveAspectRatio="xMidYMin"'
    return _svg("ltp", size, how, f"<style>{css}</style>{body}{slim}")


def only_narrow(body: str, size: tuple[float, float], words: str) -> str:
    """Return an SVG picture that is seen only in places with fewer than NARROW pixels, beside one that has the colors
    of dark pages. It has no hover texts, since there is hardly a pointer."""
    width, height = map(number, size)
    how = (
        f'width="{width}" height="{height}" style="max-width:100%;height:auto" role="img" aria-label="{escape(words)}"'
    )
    return _svg("ltp narrow", size, how, without_hover(body))


def inside(body: str, size: tuple[float, float]) -> str:
    """Return an SVG picture that is part of another one, with which it shares colors and words. It fills its place."""
    return _svg("ltp", size, 'style="display:block;width:100%" aria-hidden="true"', body)


def _svg(kind: str, size: tuple[float, float], how: str, content: str) -> str:
    view = f"0 0 {number(size[0])} {number(size[1])}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" viewBox="{view}" {how} '
    return f'{head}font-family="{FONT}" text-anchor="middle">{content}</svg>'


def body(parts: Iterable[Diagram]) -> str:
    """Return the elements of our marks, in order. The walk through their tree has a stack of its own, so that the depth
    has no limit. Raise TypeError for a diagram that is not made of our marks."""
    out: list[str] = []
    stack: list[Diagram | str] = []
    stack += [*parts][::-1]
    known: Attributes = {}
    while stack:
        node = stack.pop()
        kind = node.__class__  # chalk's classes are protocols, of which isinstance is slow
        if kind is str:
            out.append(node)  # type: ignore[arg-type]
        elif kind is Primitive:
            out.append(_leaf(node, known))  # type: ignore[arg-type]
        elif isinstance(node, Compose):
            stack += node.diagrams[::-1]
        elif isinstance(node, Titled):
            pale = "" if node.opacity is None else f' opacity="{number(node.opacity)}"'
            text = f"<title>{escape(node.title)}</title>" if node.title else ""
            out.append(f"<g{pale}>{text}")
            stack += ["</g>", node.diagram]
        elif isinstance(node, Classed):
            out.append(f'<g class="{node.name}"' + ("" if node.seen else ' opacity="0"') + ">")
            stack += ["</g>", node.diagram]
        elif isinstance(node, ApplyTransform):
            moved, inner = node.transform, node.diagram
            while isinstance(inner, ApplyTransform):
                moved, inner = moved * inner.transform, inner.diagram
            if not isinstance(inner, Empty):
                out.append(f"<g{_moved(moved)}>")
                stack += ["</g>", inner]
        elif not isinstance(node, Empty):
            raise TypeError(f"not a mark of this package: {type(node).__name__}")
    return "".join(out)


def _leaf(node: Primitive, known: Attributes) -> str:
    shape = node.shape
    if isinstance(shape, Hovers):
        return _hovers(shape)
    key = id(node.style), isinstance(shape, Label)
    if key not in known:
        known[key] = _attributes(node.style, isinstance(shape, Label)), node.style  # kept alive: its id is the key
    how = known[key][0]
    if isinstance(shape, Label):
        return _text(node, shape, how)
    how += "" if node.transform is IDENTITY else _moved(node.transform)
    if isinstance(shape, Boxes):
        return _boxes(shape, how)
    if isinstance(shape, Polys):
        return f'<path{how} d="{_outlines(shape)}"/>'
    raise TypeError(f"not a mark of this package: {type(shape).__name__}")


def _boxes(shape: Boxes, how: str) -> str:
    """Return boxes as one element. Many of one height without an outline are strokes, which take a third of the bytes:
    within a row, places are relative to the box before, which takes fewer digits."""
    items, lined = shape.items, " stroke=" in how
    tall = 0.0 if lined or shape.radius is not None else min((item[3] for item in items), default=0.0)
    if len(items) == 1 and not tall:
        x, y, width, height = map(number, items[0])
        radius = f' rx="{number(shape.radius)}"' if shape.radius else ""
        return f'<rect x="{x}" y="{y}" width="{width}" height="{height}"{radius}{how}/>'
    if lined or any(item[3] != tall for item in items):
        return f'<path{how} d="{_rects(items)}"/>'
    out: list[str] = []
    before, reached = None, 0.0
    for left, top, length, _ in items:
        start = round(left, 2)
        out.append(f"m{number(start - reached)} 0" if top == before else f"M{number(start)} {number(top + tall / 2)}")
        out.append(f"h{number(round(left + length, 2) - start)}")
        before, reached = top, round(left + length, 2)
    how = how.replace(" fill", " stroke").replace('"f-', '"s-')
    return f'<path fill="none" stroke-width="{number(tall)}"{how} d="{"".join(out)}"/>'


def _text(node: Primitive, shape: Label, how: str) -> str:
    size = float(shape.font_size or 10)
    x, y = node.transform[2], node.transform[5] + 0.35 * size  # from the visual middle to the base line
    anchor = "" if shape.anchor == "middle" else f' text-anchor="{shape.anchor}"'
    weight = "" if shape.weight == 400 else f' font-weight="{shape.weight}"'
    through = ' pointer-events="none"' if shape.passive else ""
    place = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}"'
    return f"<text {place}{anchor}{weight}{how}{through}>{escape(shape.text)}</text>"


def _moved(transform: tuple[float, ...]) -> str:
    a, b, c, d, e, f = transform[:6]
    return f' transform="matrix({" ".join(map(number, (a, d, b, e, c, f)))})"'


def _attributes(how: Style, text: bool) -> str:
    fill, role = _painted("fill", how.fill_color_, how.fill_opacity_)
    width = how.line_width_[1] if how.line_width_ else 0
    if text or not width or how.line_color_ is None:
        return fill + _classes(role)
    stroke, other = _painted("stroke", how.line_color_)
    dash = f' stroke-dasharray="{" ".join(map(number, how.dashing_[0]))}"' if how.dashing_ else ""
    return f'{fill}{stroke} stroke-width="{number(width)}"{dash}{_classes(role, other)}'


def _painted(what: str, color: Color | None, opacity: float | None = None) -> tuple[str, str]:
    """Return the color of a "fill" or a "stroke" as attributes, and the class by which a dark theme changes it."""
    if color is None:
        return f' {what}="none"', ""
    shade = color.hex_l
    thin = "" if opacity is None or opacity == 1 else f' {what}-opacity="{number(opacity)}"'
    return f' {what}="{shade}"{thin}', f"{what[0]}-{ROLE_OF[shade]}" if shade in ROLE_OF else ""


def _classes(*roles: str) -> str:
    return f' class="{" ".join(filter(None, roles))}"' if any(roles) else ""


def _hovers(shape: Hovers) -> str:
    """Return the elements of hover texts: places that only the pointer finds, with one decimal, since nobody sees where
    exactly they are."""
    paths = ((_rects(places, 1), escape(text)) for places, text in shape.items)
    told = "".join(f'<path d="{path}"><title>{text}</title></path>' for path, text in paths)
    if shape.arrow is None:
        return f'<g fill-opacity="0">{told}</g>'
    return f'<g fill-opacity="0" class="m">{told}<path class="a" fill="none" d="{_outlines(shape.arrow)}"/></g>'


def _rects(places: Iterable[Rect], decimals: int = 2) -> str:
    rounded = ([number(round(at, decimals)) for at in (*place, -place[2])] for place in places)
    return "".join(f"M{x} {y}h{w}v{h}h{back}z" for x, y, w, h, back in rounded)


def _outlines(shape: Polys) -> str:
    ending = "z" if shape.closed else ""
    return "".join(_outline(corners) + ending for corners in shape.items)


def _outline(corners: Sequence[Point]) -> str:
    """Return the path of a polygon by differences of rounded places, so that rounding errors do not add up."""
    out: list[str] = []
    x = y = 0.0
    for exact_x, exact_y in corners:
        to_x, to_y = round(exact_x, 2), round(exact_y, 2)
        if not out:
            out.append(f"M{number(to_x)} {number(to_y)}")
        elif to_y == y:
            out.append(f"h{number(to_x - x)}")
        elif to_x == x:
            out.append(f"v{number(to_y - y)}")
        else:
            out.append(f"l{number(to_x - x)} {number(to_y - y)}")
        x, y = to_x, to_y
    return "".join(out)
