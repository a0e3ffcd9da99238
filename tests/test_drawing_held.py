"""The marks on what has made the tensors that are in memory at the peak."""

from typing import Any

import pytest

from drawing import draw
from drawing.ink.trace import trace_of
from drawing.schedule.layout import PAD, Layout
from drawing.schedule.overlays import draw_held
from drawing.schedule.picture import WIDTH
from lib import PuzzleError, run
from lib.course.specs import puzzles
from tests.corpus.mistakes import MISTAKES
from tests.programs import solutions
from tests.test_corpus import function

LEGEND = "made what is in memory at the peak"


def bargain() -> Any:
    [program] = [one for one in MISTAKES if (one.puzzle, one.name) == ("repair_bargain", "as it is")]
    return function(program)


def marked(peak: bool) -> tuple[Any, str]:
    done = run(bargain(), **puzzles()["repair_bargain"].size, peak=peak)
    return done, draw(done).svg()


def test_each_operation_that_has_made_something_at_the_peak_has_a_dot_that_says_what() -> None:
    done, svg = marked(True)
    assert LEGEND in svg and "weight of layer 2: read next by backward at tick 13.2" in svg
    layout = Layout(trace_of(done), WIDTH, PAD)
    own = [event for event in done.events if event.rank == done.peak.rank]
    starts = {own[held.made].start for held in done.peak.held}
    assert len(draw_held(layout)) == len(starts)
    together = "\n".join(mark.title for mark in draw_held(layout))  # type: ignore[attr-defined]
    assert together.count("weight of layer") >= 6 and "shard (1/4) of a weight of layer 0" in together


def test_without_notes_there_are_no_marks() -> None:
    done, svg = marked(False)
    assert done.peak is None and LEGEND not in svg and draw_held(Layout(trace_of(done), WIDTH, PAD)) == []


def test_figures_and_log_are_those_of_a_run_without_notes() -> None:
    for fn, spec in solutions(small=True):
        if spec["name"] in ("fsdp", "offload", "zero_bubble"):
            plain, noted = run(fn, **spec["size"]), run(fn, **spec["size"], peak=True)
            assert noted.peak is not None and plain.events == noted.events
            assert sum(held.elements for held in noted.peak.held) == plain.memory


def test_of_represented_ranks_and_real_tensors_it_is_refused() -> None:
    with pytest.raises(PuzzleError, match="the peak is noted where all ranks are simulated"):
        run(bargain(), **puzzles()["repair_bargain"].size, peak=True, represent=True)
