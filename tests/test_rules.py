"""The table of rules: each is broken somewhere, and whoever says so has the facts of its sentence."""

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from lib import PuzzleError
from lib.basics.errors import Deadlock, Place
from lib.basics.rules import ARGUMENT, RULES
from lib.record.labels import Labels

SOURCES = {
    path: path.read_text(encoding="utf-8")
    for path in sorted(Path(__file__).parent.parent.joinpath("lib").rglob("*.py"))
    if path.name != "rules.py"
}


def told() -> Iterator[tuple[str, set[str | None], str]]:
    """Of every error that is made of a rule: the rule, the facts that it is given, and the call."""
    for text in SOURCES.values():
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("PuzzleError", "Deadlock") and call.args:
                for name in ast.walk(call.args[0]):
                    if isinstance(name, ast.Constant) and name.value in RULES:
                        yield str(name.value), {one.arg for one in call.keywords}, ast.unparse(call)


def facts_of(rule: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(RULES[rule]) if name}


def test_an_error_of_a_rule_has_the_facts_of_its_sentence() -> None:
    wrong = [call for rule, given, call in told() if None not in given and not facts_of(rule) <= given]
    assert not wrong and len({rule for rule, _, _ in told()}) > 50


def test_every_rule_is_broken_somewhere() -> None:
    assert not [rule for rule in RULES if not any(f'"{rule}"' in text for text in SOURCES.values())]


def test_an_error_keeps_rule_facts_and_operands_wherever_it_goes() -> None:
    labels = Labels("Weight", 1, 2)
    error = PuzzleError(
        "counted_twice", where=Place(2, "+"), expected="once", got="twice", operands=[labels], what="micro-batch 3"
    )
    assert str(
        error
    ) == "rank 2, +: micro-batch 3 would be counted more than once\n  expected: once\n  got:      twice" + (
        f"\n  at:       {error.line}" if error.line else ""
    )
    again = pickle.loads(pickle.dumps(error))
    assert (again.rule, again.facts, again.operands) == ("counted_twice", {"what": "micro-batch 3"}, (labels,))
    assert str(again) == str(error)


def test_sets_of_numbers_are_told_as_ranges() -> None:
    assert PuzzleError("not_linked", host=4, devices=frozenset(range(4))).problem.endswith("devices only: {0-3}")


def test_a_text_that_is_no_rule_is_told_as_it_is() -> None:
    error = PuzzleError("{nothing} is filled in")
    assert (error.rule, error.problem) == (ARGUMENT, "{nothing} is filled in")
    with pytest.raises(KeyError):
        Deadlock("deadlock")
