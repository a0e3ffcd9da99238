"""Colors. Those that change on a dark page have a role. Those of layers, operations and memory are fixed."""

from __future__ import annotations

import math
from functools import cache

from lib.record.kinds import KINDS
from lib.record.table import OPERATIONS, row_of, stream_of

ROLES = {
    "card": ("#ffffff", "#16191f"),
    "ink": ("#1a1d23", "#eceef2"),
    "mute": ("#5c6470", "#9aa3b2"),
    "lane": ("#eceef2", "#20252d"),
    "grid": ("#dfe3e9", "#2f3641"),
    "hatch": ("#c3c9d3", "#4a5261"),
    "bad": ("#c4273b", "#ff6b7a"),
    "good": ("#1a7f4b", "#4cc38a"),
    "step": ("#2b3239", "#abb6c1"),
    "chain": ("#d8002b", "#ff5470"),
    "gap": ("#f3c4c9", "#52373f"),
    "waits": ("#8f2c16", "#f0a898"),
    "talk": ("#3e005d", "#8925c7"),
    "scatter": ("#4e3f64", "#9a19ff"),
    "deep": ("#2b158f", "#b6c6ff"),
    "deep-back": ("#3f1b00", "#f0ccb7"),
}
"""The color of each role on a light and on a dark page. The light ones are unique: ``svg`` knows roles by them."""

CARD, INK, MUTE, LANE, GRID, HATCH, BAD, GOOD, STEP, CHAIN, GAP, WAITS, TALK, SCATTER, DEEP, DEEP_BACK = (
    light for light, _ in ROLES.values()
)
GOLD = "#b07a00"
"""Of a star, on light and on dark pages."""
BAND = 0.26
"""Height of the band of a half of a backward, as a part of its box."""
INSET = 8.0
"""The least height of a box of what goes backwards that is lower than its row, in pixels."""
LOWER, HALF = 0.11, 0.45
"""What goes backwards is so much lower than its row at the top and at the bottom, as parts of the row. The opacity of a
half of a backward, beside its band."""

ARROW = TALK
"""The color of all communication: of messages and their arrows, of ranks that only communicate, and of collectives that
have no color of their own."""
OPERATION_COLORS = {
    **dict.fromkeys(("update", "orthogonalize"), STEP),
    "loss": INK,
    "allreduce": "#9c0b90",
    "allgather": "#b13e86",
    "scatterreduce": SCATTER,
    **dict.fromkeys(("collective", "message"), TALK),
    "unrecorded": HATCH,
}
"""Communication is purple and magenta, which nothing else is: a collective or a message without a color of its own has
that of its stream. Signs on them can be read. What only profiles of real runs have is gray."""
GLYPHS = {"allreduce": "diamond", "allgather": "up", "scatterreduce": "down", "pass_to": "right", "receive": "left"}
FAMILY_GLYPH = "bow"
"""The sign of collectives that have none of their own."""
BANDS = {"backward_input": 0.0, "backward_weight": 1.0}
"""Halves of a backward have a band at the top of their box, or at its bottom: so they differ without color, too."""
TENSOR_COLORS = {
    "Weight": "#594700",
    "OptState": "#c4576d",
    "WeightGrad": "#90484f",
    "Activation": "#f0be0b",
    "ActivationGrad": "#edee9a",
}
"""Memory is yellow, brown, rose and dark red, which no operation is. Any two colors that can meet in one picture,
these and those of operations, differ by at least 8 (OKLab, times 100), for readers who are blind to red or to green,
too. They were searched together: to change one is to run the test of the palette."""
MEMORY = {
    **{row.memory: (f"{row.word}s", TENSOR_COLORS[name]) for name, row in KINDS.items() if name in TENSOR_COLORS},
    "in_flight": ("in flight", "#b6bd7e"),
    "inbox": ("messages not received yet", "#ffee03"),
}
"""The name and the color of each kind of memory."""
ON, BACK = (247.8, 0.115, 0.566, 0.716), (47.7, 0.139, 0.545, 0.7)
"""Blue of what goes forward, and orange of what goes backwards: hue in degrees and chroma, in OKLCH, and the lightness
of the first micro-batch and of the last."""
HALF_LATER = (195.2, 0.091, 0.652, 0.652)
"""Teal, of the half of a backward that can wait, and of operations that are added: no other differs from all of these,
so the number alone tells the micro-batch. The same goes for the next two."""
HUES = {
    **dict.fromkeys(("forward", "project", "rest"), ON),
    **dict.fromkeys(("backward", "backward_input", "backward_rest", "backward_project"), BACK),
    "backward_weight": HALF_LATER,
}
"""The color of each operation that carries micro-batches."""
DEEP_COLORS = dict.fromkeys(("attend", "expert"), DEEP)
DEEP_COLORS |= dict.fromkeys(("backward_attend", "backward_expert"), DEEP_BACK)
"""Attention and experts are dark blue, and dark brown; on a dark page they are pale, or nobody would see them."""


def name_of(kind: str) -> str:
    """Return the field's word for an operation, or the verb itself if it is in no table."""
    row = row_of(kind)
    return row.word if row else kind


def is_pass(kind: str) -> bool:
    """Return whether an operation carries micro-batches through a layer."""
    row = OPERATIONS.get(kind)
    return row is not None and row.trains


def goes_back(kind: str) -> bool:
    """Return whether an operation is a pass that goes backwards."""
    return is_pass(kind) and OPERATIONS[kind].backward


def kind_color(kind: str) -> str:
    """Return the color of an operation: its own, or that of all communication of its kind, or a gray."""
    return OPERATION_COLORS.get(kind) or OPERATION_COLORS.get(stream_of(kind), MUTE)


def glyph_of(kind: str) -> str:
    """Return the name of the sign of an operation, or an empty text if it has none."""
    return GLYPHS.get(kind) or FAMILY_GLYPH * (stream_of(kind) == "collective")


@cache
def layer_color(layer: int, layers: int) -> str:
    """Return the color of a layer among so many, from indigo to green: lightness rises all the way, so that they differ
    in gray and for color-blind readers, too. If they are few, all are near the middle."""
    half = min(0.46, 0.09 * layers)
    place = 0.45 if layers == 1 else 0.46 - half + 2 * half * layer / (layers - 1)
    return _oklch(0.42 + 0.43 * place, 0.125, 285 - 157 * place)


@cache
def work_color(kind: str, batch: int, batches: int) -> str:
    """Return the color of a pass through layers: its hue tells forward from backward, its lightness the micro-batch,
    the first one dark and the last one light."""
    if kind in DEEP_COLORS:
        return DEEP_COLORS[kind]
    hue, chroma, first, last = HUES.get(kind, HALF_LATER)
    place = 0.4 if batches == 1 else batch / (batches - 1)
    return _oklch(first + (last - first) * place, chroma, hue)


def _oklch(lightness: float, chroma: float, hue: float) -> str:
    """Return a color of OKLCH as #rrggbb (Bjorn Ottosson, "A perceptual color space for image processing", 2020)."""
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    curved = [12.92 * v if v <= 0.0031308 else 1.055 * max(v, 0.0) ** (1 / 2.4) - 0.055 for v in linear]
    return "#" + "".join(f"{round(255 * min(1.0, max(0.0, v))):02x}" for v in curved)


def luminance(color: str) -> float:
    """Return the relative luminance of a color, as WCAG defines it."""
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    """Return the contrast ratio of two colors, from 1 to 21."""
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


@cache
def text_on(color: str) -> str:
    """Return the best of white, black and the card's color on a color, on light and dark pages."""
    dark = dict(ROLES.values())

    def least(text: str) -> float:
        return min(contrast(page.get(text, text), page.get(color, color)) for page in ({}, dark))

    return max(("#fefefe", "#010102", CARD), key=least)


def _rules(prefix: str, used: str | None = None) -> str:
    """Return the dark colors of what stands behind a prefix, of all roles or of those that are ``used`` in a body."""
    found = ((f"{what[0]}-{role}", what, dark) for role, (_, dark) in ROLES.items() for what in ("fill", "stroke"))
    return "".join(f"{prefix}.{name}{{{what}:{dark}}}" for name, what, dark in found if used is None or name in used)


def image_css(body: str) -> str:
    """Return the dark colors of an image with these elements, which only the system can ask for."""
    return f"@media(prefers-color-scheme:dark){{{_rules('', body)}}}"


def css() -> str:
    """Return the dark colors as a style sheet. The notebook's own theme wins over the system's."""
    arrow = dict(ROLES.values())[ARROW]
    notebook = ":is([data-jp-theme-light=false],[theme=dark],.vscode-dark,.vscode-high-contrast) .ltp"
    system = ":root:not([theme=light],:has([data-jp-theme-light=true],.vscode-light)) .ltp"
    alone = ":root.ltp"  # the picture as a file of its own
    hover = f" .m:hover>.a{{fill:{arrow};stroke:{arrow}}}"
    system, alone, notebook = (_rules(f"{where} ") + where + hover for where in (system, alone, notebook))
    return f"@media(prefers-color-scheme:dark){{{system}{alone}}}{notebook}"
