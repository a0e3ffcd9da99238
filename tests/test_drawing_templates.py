"""What ranks do alike is written once, with gaps: the text is the same as if each rank's had been written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from drawing import perfetto
from drawing.perfetto import Writer
from drawing.templates import MARK, Placeholders, RangeTexts, Template, columns_of, renaming
from lib.course.specs import puzzles
from lib.record.events import Event
from tests.drawing_events import event, sharded_run, staged_run, trace
from tests.programs import solved

MODULE = sys.modules["drawing.perfetto"]  # ``drawing.perfetto`` itself is the function


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ranks whose logs have been filled in."""
    ranks: list[int] = []
    fill = Template.filled

    def noted(form: Template, rank: int, own: Any) -> list[str]:
        ranks.append(rank)
        return fill(form, rank, own)

    monkeypatch.setattr(Template, "filled", noted)
    return ranks


RUNS: dict[str, Callable[[], Any]] = {name: lambda name=name: solved(name, small=True) for name in puzzles()} | {
    "sharded": lambda: sharded_run(16, 3),
    "boxes": lambda: sharded_run(8, 2, node_size=4),
    "staged": lambda: staged_run(4, 4),
}


@pytest.mark.parametrize("name", RUNS)
def test_gaps_give_the_text_that_each_rank_would_have_got(
    name: str, filled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RUNS[name]()
    text = perfetto(run)
    used = len(filled)
    with monkeypatch.context() as each:
        each.setattr(MODULE, "renaming", lambda one, other: None)
        assert perfetto(run) == text
    assert len(filled) == used
    assert MARK not in text
    if name in ("ddp", "fsdp", "replica_fsdp", "sharded", "boxes"):
        assert used == run.ranks - 1


def columns(*events: Event) -> Any:
    return columns_of(events)


def gather(rank: int, batch: int, group: tuple[int, ...] = (0, 1), start: float = 0) -> Event:
    return event(rank, "allgather", start, start + 1, batches=frozenset([batch]), group=group)


def test_who_does_the_same_with_other_numbers_is_told_by_which() -> None:
    assert renaming(columns(gather(0, 0), gather(0, 5)), columns(gather(1, 1), gather(1, 5))) == {
        frozenset([0]): frozenset([1])
    }
    assert renaming(columns(gather(0, 0, (0, 1))), columns(gather(2, 0, (2, 3)))) == {(0, 1): (2, 3)}
    assert renaming(columns(gather(0, 3)), columns(gather(1, 3))) == {}


FIVE = frozenset([5])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([gather(0, 0)], [gather(1, 1), gather(1, 1, start=1)]),
        ([gather(0, 0)], [gather(1, 1, start=1)]),
        ([gather(0, 0), gather(0, 0)], [gather(1, 1), gather(1, 2)]),
        ([gather(0, 0), gather(0, 0)], [gather(1, 0), gather(1, 2)]),
        ([gather(0, 5)._replace(batches=FIVE), gather(0, 5)], [gather(1, 5)._replace(batches=FIVE), gather(1, 6)]),
        ([gather(0, 0)], [gather(1, 0)._replace(batches=frozenset())]),
        ([gather(0, 0)._replace(batches=frozenset())], [gather(1, 0)]),
        ([gather(0, 0)], [gather(1, 0, group=())]),
        ([gather(0, 0)], [gather(1, 0)._replace(held=(1,))]),
        ([gather(0, 0)], [gather(1, 0)._replace(layer=7)]),
        ([event(0, "pass_to", 0, 1)], [event(1, "pass_to", 0, 1)]),
    ],
)
def test_what_is_not_the_same_is_written_for_itself(one: list[Event], other: list[Event]) -> None:
    assert renaming(columns(*one), columns(*other)) is None


def test_gaps_are_filled_with_what_is_there_in_place_of_the_first_ranks_numbers() -> None:
    gaps, said = Placeholders(), RangeTexts()
    text = f"rank {Template.RANK}: {gaps[FIVE]}, {gaps[0, 1]}, {gaps[FIVE]}"
    form = Template(text, gaps)
    assert "".join(form.filled(7, {FIVE: frozenset([1, 2])})) == "rank 7: 1, 2, 0, 1, 1, 2"
    assert said[FIVE] == "5" and said[0, 1] == "0, 1"


def test_a_run_without_events_is_an_empty_log() -> None:
    writer = Writer(trace([]))
    assert "".join(writer.log(0, [])) == "" == "".join(writer.log(1, []))
