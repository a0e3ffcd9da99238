"""Which tests are run on which day: what has its turn comes round, and something of everything is run every day."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from tests import turns

CASES = [f"test_x.py::test_many[{i}]" for i in range(200)]
OTHERS = ["test_x.py::test_one", *(f"test_x.py::test_few[{i}]" for i in range(turns.MANY))]
FIRST = date(2026, 1, 1)


@pytest.fixture(autouse=True)
def none_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW_TESTS", "none")


def on(day: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be another day."""
    today = FIRST + timedelta(days=day)
    monkeypatch.setattr(turns, "date", type("Day", (), {"today": staticmethod(lambda: today)}))


def test_of_many_cases_a_quarter_is_run_each_day_and_all_within_weeks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    for day in range(35):
        on(day, monkeypatch)
        waiting = turns.cases_left_out([*CASES, *OTHERS])
        assert waiting < {*CASES} and waiting == turns.cases_left_out([*CASES, *OTHERS])
        assert len(waiting) == len(CASES) * 3 // 4
        seen |= {*CASES} - waiting
    assert seen == {*CASES}


def test_some_cases_of_each_test_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    few = CASES[: turns.MANY + 1]
    assert len(turns.cases_left_out(few)) == len(few) - 3
    assert turns.cases_left_out(few[1:]) == frozenset()


def test_examples_that_have_their_day_and_many_cases_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where their periods have a factor in common."""
    seen: set[str] = set()
    for day in range(240):
        on(day, monkeypatch)
        today = turns.examples(CASES, "honest", days=4)
        seen |= {*today} - turns.cases_left_out(today)
    assert seen == {*CASES}


def test_quick_runs_an_eighth_which_is_a_part_of_that_quarter() -> None:
    left_out = turns.cases_left_out([*CASES, *OTHERS], turns.QUICK_PART)
    assert len(left_out) == len(CASES) * 7 // 8 and left_out > turns.cases_left_out([*CASES, *OTHERS])


@pytest.mark.parametrize("said", ["cases", "all", "lab,cases"])
def test_whoever_asks_for_all_cases_gets_all(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW_TESTS", said)
    assert turns.cases_left_out(CASES) == frozenset()


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said = turns.summary()
    assert said.startswith("SLOW TESTS NOT RUN: ") and all(f"{kind} (" in said for kind in turns.KINDS)
    assert turns.summary(quick=True) == turns.QUICK + said
    monkeypatch.setenv("SLOW_TESTS", "all")
    assert turns.summary() == "" and turns.summary(quick=True) == turns.QUICK
