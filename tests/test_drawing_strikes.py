"""No line goes through a text: told from rectangles, in the order in which things are painted."""

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chalk.core import Primitive
from hypothesis import given
from hypothesis import strategies as st

from drawing import Figure, beside_target, compare, draw, draw_sketch
from drawing.ink import theme
from drawing.ink.letters import around, place_of
from drawing.ink.marks import Boxes, Label, Polys, Rect, box, label, lines, style
from drawing.schedule.gaps import crosses
from solutions.build.pictures.in_texts import PICTURE
from tests.drawing_events import sharded_run, staged_run
from tests.failures import CASES, failed
from tests.programs import COURSE, solved

FOLDER = Path(__file__).parent.parent / "solutions"
FAINT = {theme.GRID, theme.CARD}
"""Colors of lines that a text may lie on: the grid, notches and casings."""
LEAST = 0.85
"""The least opacity of a box that hides what is below it."""


def leaves(parts: Any) -> Iterator[Primitive]:
    """What is painted, in order."""
    for node in parts:
        if isinstance(node, Primitive):
            yield node
        elif not getattr(node, "transform", None):  # what is moved is in the legend
            yield from leaves(getattr(node, "diagrams", None) or [node.diagram])


def segments(shape: Any) -> Iterator[Rect]:
    if isinstance(shape, Polys):
        for corners in shape.outlines():
            yield from ((*a, *b) for a, b in pairwise([*corners, *corners[: shape.closed]]))


def struck(figure: Figure) -> list[str]:
    """The texts that a line goes through, unless a box hides it there."""
    painted = list(leaves(figure.diagrams))
    ways: list[tuple[int, Rect]] = []
    grounds: list[tuple[int, Rect]] = []
    texts: list[tuple[int, str, Rect]] = []
    for at, one in enumerate(painted):
        how, shape = one.style, one.shape
        if isinstance(shape, Label):
            x, y, width, height = place_of(shape, one.transform[2], one.transform[5])
            texts.append((at, shape.text, (x + 1, y + 0.2 * height, width - 2, 0.6 * height)))
        elif (
            isinstance(shape, Boxes)
            and how.fill_color_ is not None
            and (how.fill_opacity_ is None or how.fill_opacity_ >= LEAST)
        ):
            grounds += [(at, place) for place in shape.items]
        elif (color := how.line_color_ or how.fill_color_) is not None and color.hex_l not in FAINT:
            ways += [(at, way) for way in segments(shape)]
    return [text for at, text, place in texts if any(_seen(way, when, place, at, grounds) for when, way in ways)]


def _seen(way: Rect, when: int, place: Rect, at: int, grounds: list[tuple[int, Rect]]) -> bool:
    if not crosses(way, place):
        return False
    x, y, width, height = place
    return not any(
        when < painted < at and left - 2 <= x and x + width <= left + wide + 2 and top <= y and y + height <= top + tall
        for painted, (left, top, wide, tall) in grounds
    )


def named_pictures() -> list[tuple[Path, str]]:
    """The pictures of all pages that a function there draws."""
    found = [
        (path, name) for path in sorted(FOLDER.glob("p??_*.py")) for name in PICTURE.findall(path.read_text("utf-8"))
    ]
    return [(path, name) for path, name in found if f"def {name}(" in path.read_text("utf-8")]


def drawn(path: Path, name: str) -> Any:
    return getattr(import_module(f"solutions.{path.stem}"), name)()


PICTURES: dict[str, Callable[[], Figure]] = {
    **{name: (lambda name=name: draw(solved(name, small=True))) for name in COURSE},
    **{f"{name}, chain": (lambda name=name: draw(solved(name), chain=True)) for name in ("gpipe", "fsdp")},
    **{f"{name}, all": (lambda name=name: draw(solved(name), links="all")) for name in ("gpipe", "pipeline_fsdp")},
    **{f"failed {at}": (lambda at=at: draw(failed(CASES[at]).run)) for at in range(len(CASES))},
    **{f"{path.stem}, {name}": (lambda path=path, name=name: drawn(path, name)) for path, name in named_pictures()},
    "compared": lambda: compare(solved("pipeline"), solved("gpipe"), solved("pipeline_fsdp")),
    "compared with a failed one": lambda: compare(solved("ddp"), failed(CASES[-2]).run),
    "beside": lambda: beside_target(solved("gpipe")),
    "sketch": lambda: draw_sketch("one_f_one_b"),
    "narrow": lambda: draw(solved("one_f_one_b"), width=560),
    "coarse": lambda: draw(staged_run(32, 64)),
    "folded": lambda: draw(sharded_run(64, 60)),
}


@pytest.mark.parametrize("name", PICTURES)
def test_no_line_goes_through_a_text(name: str) -> None:
    figure = PICTURES[name]()
    assert [struck(form) for form in (figure, figure.narrow) if form is not None] in ([[]], [[], []])


def test_what_is_struck_through_is_seen_and_what_a_box_hides_is_not() -> None:
    text, line = label(50, 50, "waits 10", 10, style(theme.INK)), lines([(50, 0, 50, 99)], style(None, theme.INK, 1))
    ground = box(20, 40, 60, 20, style(theme.LANE))
    assert struck(Figure([text, line], 99, 99, "")) == struck(Figure([line, text], 99, 99, "")) == ["waits 10"]
    assert struck(Figure([line, ground, text], 99, 99, "")) == []
    assert struck(Figure([ground, line, text], 99, 99, "")) == ["waits 10"]


numbers = st.integers(0, 60)


@given(numbers, numbers, st.lists(st.tuples(numbers, numbers, st.integers(1, 20), st.integers(1, 9)), max_size=6))
def test_pieces_of_a_line_leave_out_all_texts_and_nothing_else(x: int, end: int, texts: list[Rect]) -> None:
    pieces = around((x, 0, x, end), texts)
    for (_, top, _, low), (_, top2, *_) in pairwise(pieces):
        assert top < low <= top2
    for at in range(2 * end):
        y = at / 2 + 0.25
        covered = any(
            left - 1 < x < left + wide + 1 and top - 2 < y < top + tall + 2 for left, top, wide, tall in texts
        )
        assert covered != any(top <= y <= low for _, top, _, low in pieces)
