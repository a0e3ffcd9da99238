"""Colors have one meaning each. Any two that meet in a picture can be told apart by everybody, on dark pages, too."""

import math
import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations

import pytest

from drawing import Figure, beside_target, compare, draw, race
from drawing.ink import theme
from drawing.schedule.gaps import ONLY_TALKS
from lib.record.figures.breakdown import TALK, WAITS
from lib.record.kinds import MEMORY_KINDS
from lib.record.table import OPERATIONS, in_stream, training
from tests.drawing_events import SVG, parse, sharded_run, staged_run
from tests.failures import CASES, failed
from tests.programs import COURSE, solved
from tests.test_drawing_color import WITHOUT_GREEN, WITHOUT_RED, limited, linear

LEAST = 8.0
"""How much two colors differ at least: their distance in OKLab, times 100."""
RAMPS = {kind: {theme.work_color(kind, at, of) for of in range(1, 65) for at in range(of)} for kind in training()}
GROUND = {theme.CARD, theme.LANE, theme.GRID, theme.HATCH, theme.MUTE}
"""What is behind everything, and axes: colors without a meaning of their own."""
SIGNS = {theme.INK, theme.BAD, theme.GOOD, theme.CHAIN, theme.WAITS, *map(theme.text_on, ("#000000", "#ffffff"))}
"""Lines, flags and letters, which are told by their shapes."""


def lab(red: float, green: float, blue: float) -> tuple[float, float, float]:
    """OKLab of linear RGB."""
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    medium = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


@cache
def seen(color: str) -> list[tuple[float, float, float]]:
    """A color as most people see it, and as those do who are blind to red or to green."""
    others = ([min(1.0, max(0.0, part)) for part in limited(color, by)] for by in (WITHOUT_RED, WITHOUT_GREEN))
    return [lab(*linear(color)), *(lab(*other) for other in others)]


def distance(one: str, other: str) -> float:
    """How much two colors differ at least, for any of them."""
    return 100 * min(math.dist(a, b) for a, b in zip(seen(one), seen(other), strict=True))


def meaning(color: str) -> str:
    """What a color says; an empty text for grounds and signs."""
    if color in GROUND | SIGNS:
        return ""
    if color == theme.GAP:
        return "waits"
    named = {color: name for name, color in theme.MEMORY.values()}
    named |= {theme.kind_color(kind): f"operation {kind}" for kind in OPERATIONS if kind not in training()}
    named[theme.TALK] = "communication"
    if color in named:
        return named[color]
    found = [kind for kind, colors in RAMPS.items() if color in colors]
    assert found, f"{color} means nothing"
    return f"operation {found[0]}"


def areas(figure: Figure) -> dict[str, set[str]]:
    """The colors of all areas of a picture, by their meaning. Tints of a color are not looked at."""
    found: dict[str, set[str]] = {}
    for one in parse(figure).iter():
        bar = one.get("fill") == "none" and not one.get("stroke-opacity") and float(one.get("stroke-width", 0)) > 2
        color = one.get("stroke") if bar else one.get("fill")
        if one.tag == SVG + "text" or one.get("fill-opacity") or not color or not color.startswith("#"):
            continue
        if said := meaning(color):
            found.setdefault(said, set()).add(color)
    return found


def collisions(found: dict[str, set[str]]) -> Iterator[tuple[str, str, str, str, float]]:
    """Pairs of meanings with colors that are too near each other, on light and dark pages."""
    on_dark = dict(theme.ROLES.values())
    for (one, its), (other, others) in combinations(sorted(found.items()), 2):
        for dark in (False, True):
            shown = [{on_dark.get(color, color) if dark else color for color in colors} for colors in (its, others)]
            near = min((distance(a, b), a, b) for a in shown[0] for b in shown[1])
            if near[0] < LEAST:
                yield one, other, *near[1:], near[0]


PICTURES = {
    **{name: (lambda name=name: draw(solved(name, small=True))) for name in COURSE},
    "coarse": lambda: draw(staged_run(32, 64)),
    "large": lambda: draw(sharded_run(64, 60)),
    "failed": lambda: draw(failed(CASES[-1]).run),
    "compared": lambda: compare(solved("fsdp"), solved("ddp")),
    "pipelines": lambda: compare(solved("gpipe"), solved("pipeline_fsdp")),
    "race": lambda: race(*(solved(name) for name in ("one_f_one_b", "interleaved"))),
    "beside": lambda: beside_target(solved("gpipe")),
}


@pytest.mark.parametrize("name", PICTURES)
def test_all_colors_that_meet_in_a_picture_can_be_told_apart(name: str) -> None:
    figure = PICTURES[name]()
    found = areas(figure)
    assert len(found) > 4
    assert list(collisions(found)) == []


def test_the_distance_sees_what_was_too_near() -> None:
    """All-reduces and backwards, gathers and weight gradients, as they once were."""
    assert distance("#bd4f00", "#b26318") < LEAST and distance("#b5478d", "#b0557e") < LEAST
    assert distance("#ffffff", "#000000") > 90
    clash = {"operation allreduce": {"#bd4f00"}, "operation backward": {"#b26318"}}
    assert {one[:2] for one in collisions(clash)} == {("operation allreduce", "operation backward")}


def hue(color: str) -> float:
    """The hue of a color in degrees of OKLCH."""
    _, a, b = seen(color)[0]
    return math.degrees(math.atan2(b, a)) % 360


def test_communication_is_one_family_of_hues_and_memory_another() -> None:
    talk = {theme.kind_color(kind) for kind in in_stream("collective", "message")}
    memory = {theme.MEMORY[kind][1] for kind in MEMORY_KINDS}
    works = {color for colors in RAMPS.values() for color in colors}
    assert all(300 < hue(color) < 355 for color in talk)
    assert all(hue(color) < 45 or 75 < hue(color) < 115 for color in memory if math.hypot(*seen(color)[0][1:]) > 0.02)
    assert all(45 <= hue(color) <= 75 or 115 <= hue(color) <= 300 for color in works)


def test_only_communicating_and_waiting_have_one_color_each_in_bar_and_rows() -> None:
    for name in ("fsdp", "gpipe", "tensor_parallel", "hpz"):
        root = parse(draw(solved(name), memory=False))
        told = {(one[0].text or "").split(":")[0]: one for one in root.iter(SVG + "g")
                if len(one) > 1 and one[0].tag == SVG + "title"}  # fmt: skip
        if "only communicates" in told:
            assert told["only communicates"][1].get("fill") == theme.TALK
        for part in ("waits to begin", "waits between", "waits at the end"):
            if part in told:
                assert told[part][1].get("fill") == theme.GAP
    assert {theme.kind_color("pass_to"), theme.kind_color("receive"), theme.ARROW} == {theme.TALK}
    assert ONLY_TALKS.fill_color_ is not None and ONLY_TALKS.fill_color_.hex_l == theme.TALK
    assert re.fullmatch("#[0-9a-f]{6}", theme.TALK) and {TALK, *WAITS}.isdisjoint(theme.OPERATION_COLORS)


@pytest.mark.parametrize("page", [0, 1])
def test_every_fill_is_seen_on_its_ground(page: int) -> None:
    roles = {role: colors[page] for role, colors in theme.ROLES.items()}
    shown = {colors[0]: colors[page] for colors in theme.ROLES.values()}
    fills = {*map(theme.kind_color, OPERATIONS)}.union(*RAMPS.values())
    assert {one for one in fills if theme.contrast(shown.get(one, one), roles["lane"]) < 1.7} == set()
    assert {one for _, one in theme.MEMORY.values() if distance(one, roles["card"]) < LEAST} == set()
    assert distance(roles["gap"], roles["lane"]) >= LEAST and distance(roles["gap"], roles["card"]) >= LEAST
