"""Of what takes long a part is run, always the same one, with something of every test."""

import re
from pathlib import Path

import pytest
from hypothesis.internal.conjecture.providers import HypothesisProvider

from tests import conftest, slow

CASES = [f"test_x.py::test_many[{i}]" for i in range(200)]
OTHERS = ["test_x.py::test_one", *(f"test_x.py::test_few[{i}]" for i in range(slow.MANY))]


def test_of_many_cases_a_tenth_is_run() -> None:
    left_out = slow.beyond([*OTHERS, *CASES])
    assert len(left_out) == 200 - 20 and left_out < {*CASES}


def test_the_part_does_not_depend_on_the_order_of_the_cases() -> None:
    assert slow.beyond(CASES[::-1]) == slow.beyond(CASES)


def test_each_factor_of_a_product_is_met() -> None:
    """Every second of its cases would always have the same second factor."""
    product = {f"test_x.py::test_many[{first}-{second}]" for first in range(30) for second in range(4)}
    run = product - slow.beyond([*product])
    assert {one[-2] for one in run} == {*"0123"} and len(run) == 12


def test_of_examples_one_in_so_many_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow, "EVERYTHING", False)
    assert [*slow.some(range(100), 25)] == [0, 25, 50, 75]
    monkeypatch.setattr(slow, "EVERYTHING", True)
    assert slow.some(range(100), 25) == range(100)


def test_what_is_listed_as_long_is_there() -> None:
    files = {path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py")}
    assert {*conftest.LONGEST.split(), *conftest.LONG.split()} <= files.keys()
    assert {*conftest.LONG_TESTS.split()} <= {*re.findall(r"def (test_\w+)", "".join(files.values()))}


def test_generated_examples_do_not_depend_on_what_is_loaded() -> None:
    assert not [*HypothesisProvider(None)._local_constants]
