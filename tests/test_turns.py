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


def test_of_many_cases_about_a_half_is_run_each_day_and_all_within_weeks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    for day in range(21):
        on(day, monkeypatch)
        waiting = turns.waits([*CASES, *OTHERS])
        assert waiting < {*CASES} and waiting == turns.waits([*CASES, *OTHERS])
        assert 60 < len(waiting) < 140
        seen |= {*CASES} - waiting
    assert seen == {*CASES}


def test_examples_that_have_their_day_and_many_cases_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where their periods have a factor in common."""
    seen: set[str] = set()
    for day in range(120):
        on(day, monkeypatch)
        today = turns.examples(CASES, "honest", days=4)
        seen |= {*today} - turns.waits(today)
    assert seen == {*CASES}


def test_quick_runs_an_eighth_of_several_cases_and_all_within_eight_days(monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[str] = []
    for day in range(turns.EIGHTH):
        on(day, monkeypatch)
        left_out = turns.beyond_quick([*CASES, OTHERS[0]])
        assert len(left_out) == len(CASES) * 7 // 8 and OTHERS[0] not in left_out
        run += [one for one in CASES if one not in left_out]
    assert sorted(run) == sorted(CASES)


@pytest.mark.parametrize("said", ["cases", "all", "lab,cases"])
def test_whoever_asks_for_all_cases_gets_all(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW_TESTS", said)
    assert turns.waits(CASES) == frozenset()


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said = turns.summary()
    assert said.startswith("SLOW TESTS NOT RUN: ") and all(f"{kind} (" in said for kind in turns.KINDS)
    assert turns.summary(quick=True) == turns.QUICK + said
    monkeypatch.setenv("SLOW_TESTS", "all")
    assert turns.summary() == "" and turns.summary(quick=True) == turns.QUICK
