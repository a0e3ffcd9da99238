"""Traffic within layers that products hide has a lane of its own in pictures."""

import re
from functools import cache
from typing import Any

import pytest

from drawing import draw
from drawing.ink.trace import trace_of
from drawing.schedule.layout import Layout
from drawing.schedule.overlays import LEVELS, draw_within
from lib import Run, run
from lib.real import A100_MEGATRON, GPT_175B, H100_DGX, LLAMA_3_70B
from solutions.p13_one_f_one_b import one_f_one_b

HIDDEN, EXPOSED = "traffic within layers, hidden by products", "and exposed"


@cache
def done(batches: int = 8, **given: Any) -> Run:
    cost = H100_DGX.cost(LLAMA_3_70B, tensor=8, sequence_parallel=True, **given)
    return run(one_f_one_b, ranks=4, layers=4, batches=batches, cost=cost, timeout=None)


def svg(done: Run, **given: Any) -> str:
    return draw(done, **given).svg()


def test_what_is_hidden_is_the_rest_of_what_is_exposed() -> None:
    for recompute in ("none", "full"):
        plain, hidden = (done(overlap=on, recompute=recompute).cost for on in (False, True))
        for kind in ("forward", "backward"):
            before = plain.traffic_of(kind) * getattr(plain, kind)  # type: ignore[attr-defined]
            seen = hidden.traffic_of(kind) * getattr(hidden, kind)  # type: ignore[attr-defined]
            beside = hidden.hidden_in(kind) * getattr(hidden, kind)  # type: ignore[attr-defined]
            assert seen + beside == pytest.approx(before) and 0 < seen < before
            assert plain.hidden_in(kind) == 0  # type: ignore[attr-defined]
        assert hidden.hidden_in("update") == hidden.hidden_in("loss") == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("batches", [8, 600], ids=["boxes", "columns"])
def test_asynchronous_traffic_has_a_lane_with_its_meaning(batches: int) -> None:
    plain, hidden = (svg(done(batches, overlap=on)) for on in (False, True))
    assert HIDDEN in hidden and EXPOSED in hidden
    assert HIDDEN not in plain and "hidden by products" not in plain
    tall = [float(re.search(r'viewBox="0 0 \S+ ([\d.]+)"', one)[1]) for one in (plain, hidden)]  # type: ignore[index]
    assert tall[1] > tall[0]  # a lane below each row


def test_the_lane_says_how_much_is_hidden() -> None:
    found = re.findall(
        r"rank 0: traffic within forward\n(\S+ \S+) hidden by products, (\S+ \S+) exposed", svg(done(overlap=True))
    )
    assert len(found) == 8 and len(set(found)) == 1


def test_a_lane_of_columns_is_drawn_in_as_few_marks_as_there_are_heights() -> None:
    """It is pale below, above what is exposed, in each row, and lies within the picture's time."""
    layout = Layout(trace_of(done(600, overlap=True)), 980, 100)
    assert layout.within and not layout.fine
    assert 2 <= len(draw_within(layout)) <= 2 * LEVELS
    plain = Layout(trace_of(done(600)), 980, 100)
    assert draw_within(plain) == [] and layout.row_height == plain.row_height + layout.thin


def test_other_pictures_have_no_such_lane() -> None:
    cost = A100_MEGATRON.cost(GPT_175B, tensor=8, sequence_parallel=True, recompute="selective", gradients=4)
    assert HIDDEN not in svg(run(one_f_one_b, ranks=8, layers=8, batches=8, cost=cost, timeout=None))
    assert HIDDEN not in svg(run(one_f_one_b, ranks=4, layers=4, batches=8))
