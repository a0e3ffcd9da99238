"""Pictures of what a clock has measured: in milliseconds, also beside what was simulated."""

import json
import re
from copy import copy

import pytest

from drawing import Trace, beside_target, compare, draw, perfetto, play
from drawing.ink.trace import trace_of
from lib import PuzzleError, Run
from lib.basics.units import MS
from tests.drawing_events import SVG, event, operation_titles, parse, staged_run, texts, trace

TICK = 30.0
SCALE = "1 tick = 30 ms"


def measured(tick: float | None = TICK, late: float = 0.0) -> Trace:
    """The staged run by a clock: each of its ticks takes so many ms, and everything is late."""
    ranks = [
        [
            one._replace(
                **{name: round((tick or TICK) * getattr(one, name) + late, 3) for name in ("issued", "start", "end")}
            )
            for one in events
        ]
        for events in trace_of(staged_run()).by_rank.values()
    ]
    return trace(*ranks, title="on the wall", unit=MS, tick=tick)


def by_a_clock(run: Run) -> Run:
    shown = copy(run)
    shown.unit = MS
    return shown


def words(figure: object) -> str:
    """All that a picture says: its texts, its hover texts, and its summary."""
    return " | ".join(element.text for element in parse(figure).iter() if element.text and element.text.strip())  # type: ignore[arg-type]


def test_a_measured_run_is_told_in_milliseconds_everywhere() -> None:
    own = measured(late=0.671)
    for figure in (draw(own), compare(own, own)):
        said = words(figure) + figure.summary
        assert SCALE in said and re.search(r"\btick", said.replace(SCALE, "")) is None
        assert "ms" in texts(figure)
    assert "time 580 ms; peak memory" in draw(own).summary and "on rank 3 at 313 ms;" in draw(own).summary
    assert "Ranks begin to compute at 0.671 to 127 ms and end at 442 to 580 ms." in draw(own).summary
    assert "peak: 1,703,936 elements on rank 3 at 313 ms" in words(draw(own))
    assert any("\n0.671 to 30.671 ms\n" in title for title in operation_titles(draw(own)))
    assert "time 580 ms, peak memory" in compare(own, own).summary
    assert '"moment":"{} ms"' in play(own).page and '"moment":"tick {}"' in play(staged_run()).page


def test_without_a_tick_only_milliseconds_are_told() -> None:
    assert "tick" not in words(draw(measured(tick=None)))


def test_perfetto_has_the_milliseconds_that_were_measured() -> None:
    made = json.loads(perfetto(measured()))
    issued = {"issued": "at the start, if nothing is said"}
    assert made["otherData"] == {"title": "on the wall", "1 ms is": "1 ms", "scale": SCALE, **issued}
    assert json.loads(perfetto(staged_run()))["otherData"] == {"title": "staged", "1 ms is": "1 tick", **issued}
    slices = [entry for entry in made["traceEvents"] if entry["ph"] == "X"]
    assert max(entry["ts"] + entry["dur"] for entry in slices) == pytest.approx(1000 * TICK * staged_run().time)
    said = [entry["args"] for entry in slices if "args" in entry and "issued at ms" in entry["args"]]
    assert said and "issued at tick" not in json.dumps(made)


def test_simulated_and_measured_are_compared_in_one_unit() -> None:
    """What is simulated has the tick of what is measured, so that equal schedules are equal."""
    figure = compare(staged_run(), measured())
    boxes = [
        re.sub(r" [\d.]+h", "h", element.get("d", ""))
        for element in parse(figure).iter(SVG + "path")
        if len(element) and (element[0].text or "").startswith("rank 0: forward")
    ]
    half = len(boxes) // 2
    assert half and boxes[:half] == boxes[half:]
    assert texts(figure).count("579") == 2 and "19.3" not in texts(figure)
    assert figure.summary.count(SCALE) == 2
    assert "ticks" in texts(compare(staged_run(), staged_run()))


def test_two_that_were_measured_keep_their_own_milliseconds() -> None:
    assert {"579", "193"} <= set(texts(compare(measured(30.0), measured(10.0))))


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(PuzzleError, match="how long a tick is"):
        compare(staged_run(), measured(tick=None))
    with pytest.raises(PuzzleError, match="the target is in ticks, and this run is in ms"):
        beside_target(by_a_clock(staged_run()), "gpipe")


def test_text_of_a_measured_run() -> None:
    shown = by_a_clock(staged_run())
    assert repr(shown).startswith("staged on 4 ranks: time 19.3 ms, peak memory")
    assert str(shown).splitlines()[1].startswith("where the time") and "\nms      0 " in str(shown)


def test_a_picture_of_moments_near_to_each_other_has_short_figures_and_exact_hover_texts() -> None:
    own = trace([event(0, "forward", 36.671, 36.698)], unit=MS)
    assert any("\n36.671 to 36.698 ms" in title for title in operation_titles(draw(own)))
    assert "36.7" in texts(draw(own)) and "rank 0, 36.7 ms" in texts(draw(own))
