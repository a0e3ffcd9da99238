"""Where the time of all ranks goes: parts that are disjoint and add up to all of it, for any run."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawing import draw
from drawing.ink.trace import Trace
from lib import Model, run
from lib.basics.units import MS, TICKS, Unit
from lib.course.specs import cost_named, puzzles
from lib.grading.judge import judge
from lib.record.events import Event
from lib.record.figures.breakdown import (
    DRAIN,
    FILL,
    MEANING,
    TALK,
    TURN,
    WAITS,
    WORDS,
    idle_of,
    in_words,
    share_text,
    time_parts,
)
from lib.record.figures.score import idle_share
from lib.record.table import OPERATIONS
from lib.running.run import Run
from tests.drawing_events import event, sharded_run, staged_run, texts, titles, trace
from tests.plain_programs import inputs_at_will
from tests.programs import solutions
from tests.slow import some
from tests.test_chain import SEEDS, SMALL, played, random_runs


def by_moments(events: Sequence[Event], ranks: int, end_of_run: float) -> dict[str, Fraction]:
    """The same said plainly: between two neighbors of all starts and ends, a rank does one thing."""
    time = Fraction(end_of_run)
    cuts = sorted({Fraction(0), time, *(Fraction(t) for event in events for t in (event.start, event.end))})
    found = Counter[str]()
    for rank in range(ranks):
        own = [event for event in events if event.rank == rank and event.kind in OPERATIONS and event.length]
        work = [event for event in own if event.stream == "compute"]
        for start, end in itertools.pairwise(cuts):
            now = [event for event in own if event.start <= start and end <= event.end]
            if computed := [event.kind for event in now if event.stream == "compute"]:
                part = computed[0]
                assert len(computed) == 1
            elif now:
                part = TALK
            elif all(end <= event.start for event in work):
                part = FILL
            else:
                part = DRAIN if all(event.end <= start for event in work) else TURN
            found[part] += end - start
    return {part: length / (time * ranks) for part, length in found.items()}


def check(done: Run) -> None:
    parts = time_parts(done.device_events, done.ranks, done.time)
    if not done.time:
        assert parts == {}
        return
    assert sum(parts.values()) == 1
    assert parts == by_moments(done.device_events, done.ranks, done.time)
    idle = idle_share(done.device_events, done.ranks, done.time)
    assert float(idle_of(parts)) == pytest.approx(idle, abs=1e-12)


@pytest.mark.parametrize(("fn", "spec"), SMALL)
def test_parts_of_a_solution(fn: Callable[[Model], Any], spec: dict[str, Any]) -> None:
    check(played(fn, spec))


@pytest.mark.long
@pytest.mark.usefixtures(inputs_at_will.__name__)
def test_parts_of_random_programs() -> None:
    seen = Counter[str]()
    for _, _, done in random_runs(some(SEEDS, 3)):
        check(done)
        seen.update(time_parts(done.events, done.ranks).keys())
    assert {TALK, *WAITS, "forward", "backward", "update"} <= seen.keys()


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=11))
def test_each_percent_is_that_of_its_part(amounts: list[int]) -> None:
    for share in [Fraction(amount, sum(amounts)) for amount in amounts]:
        text = share_text(share)
        number = int(text.strip("<>%"))
        least, most = {"<": (0, 0.5), ">": (99.5, 100)}.get(text[0], (number - 0.5, number + 0.5))
        assert least <= 100 * share <= most, text


def test_every_part_has_words() -> None:
    assert WORDS.keys() == MEANING.keys() == {TALK, *WAITS}


def test_picture_and_text_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    done = staged_run()
    said = in_words(time_parts(done.events, done.ranks))
    assert "waits between " in said
    assert f"where the time goes: {said}" in draw(done).summary
    assert f"where the time of all ranks goes: {said} tick " in " ".join(str(done).split())
    assert set(said.split(", ")) <= set(texts(draw(done)))
    monkeypatch.setenv("COLUMNS", "50")
    lines = str(done).splitlines()
    assert lines[1].startswith("where the time") and lines[2].startswith("    ") and max(map(len, lines[1:])) <= 50
    quiet = trace([event(0, "loss", 0, 0)])
    assert "no time passes" in draw(quiet).summary and "where the time" not in " ".join(texts(draw(quiet)))


def test_the_head_says_how_much_is_idle_and_hidden() -> None:
    idle = f"bubble {100 * idle_share(staged_run().events, 4):.0f}%"
    assert f"where the time of 4 ranks goes ({idle})" in texts(draw(staged_run()))
    assert f"; {idle}. " in draw(staged_run()).summary
    both = trace([event(0, "forward", 0, 4), event(0, "allgather", 1, 6, op=(1,), group=(0,))])
    assert "where the time of 1 rank goes (communicates beside compute 50%)" in texts(draw(both))
    assert draw(both).summary.count("communicates beside compute 50%") == 1
    assert "beside compute" not in draw(sharded_run(2, 1, cost=cost_named("default"))).summary


def test_a_verdict_divides_the_idle_time() -> None:
    found = next((fn, spec) for fn, spec in solutions() if spec["name"] == "gpipe")
    spec = puzzles()["gpipe"]
    verdict = judge(spec, lambda size: run(found[0], **{**size, "layers": 4}))
    assert verdict.idle == float(idle_of(verdict.parts)) > 0
    waits = [part for part in verdict.parts if part in WAITS]
    assert len(waits) == 3
    assert verdict.as_json()["parts"] == {part: float(share) for part, share in verdict.parts.items()}
    idle = dict(verdict.facts())["bubble"]
    percent, _, rest = idle.partition(" percent of all ranks' time (waits to begin ")
    numbers = [int(text.split("%")[0].split()[-1]) for text in f"waits to begin {rest}".split(", ")]
    assert sum(numbers) == int(percent)


def test_a_collective_that_waits_for_its_last_rank_is_no_communication_until_it_begins() -> None:
    """So of a measured run as of a simulated one: what is measured begins when the last rank has come, too."""

    def meets(unit: Unit) -> Trace:
        early = [event(0, "forward", 0, 1), event(0, "allreduce", 4, 5, op=(1,), group=(0, 1))]
        late = [event(1, "forward", 0, 4), event(1, "allreduce", 4, 5, op=(1,), group=(0, 1))]
        return trace(early, late, unit=unit)

    simulated, measured = (draw(meets(unit)) for unit in (TICKS, MS))
    said = "forward 50%, only communicates 20%, waits at the end 30%"
    assert said in simulated.summary and said in measured.summary
    idle = (
        "waits at the end: 30% of all ranks' time, 3 {} of all ranks together\n"
        "the bubble after the rank's last computation"
    )
    assert idle.format("ticks") in titles(simulated) and idle.format("ms") in titles(measured)
