"""The mistakes that `make mutants` puts into the modules that decide."""

import json
from pathlib import Path

from tools import mutants


def test_every_mutant_that_changes_nothing_is_one_that_is_made() -> None:
    known = json.loads(mutants.EQUIVALENT.read_text("utf-8"))
    made = {mutant.key() for module in mutants.DECIDE for mutant in mutants.mutants(mutants.path_of(module))}
    assert known and [key for key in known if key not in made] == []


def test_every_file_of_tests_that_is_named_is_there() -> None:
    for module in mutants.DECIDE:
        assert [test for test in mutants.order(mutants.path_of(module)) if not (mutants.ROOT / test).exists()] == []


def test_near_are_the_tests_that_know_a_module_without_the_corpus() -> None:
    rules, rows = mutants.path_of("lib.course.ideas"), mutants.path_of("lib.schedules.rows")
    named = [f"tests/test_{one}.py" for one in ("ideas", "whole_gradient", "grading")]
    assert mutants.order(rules, near=True) == [*named, "lib/course/ideas.py"]
    assert mutants.order(rules)[:4] == [*named, "tests/test_corpus.py"]
    assert mutants.order(rows, near=True) == ["tests/test_schedules.py", "lib/schedules/rows.py"]


def test_a_mutant_shows_the_lines_that_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text("def later(x):\n    print(\n        x,\n    )  # so\n    return x < 3 and not x\n", "utf-8")
    found = {mutant.text: mutant for mutant in mutants.mutants(path)}
    assert found["pass"].difference() == ["line 2", "-    print(", "-        x,", "-    )  # so", "+    pass  # so"]
    assert found["<="].source().endswith("return x <= 3 and not x\n") and found["<="].line() == 5
    assert found["4"].key() == "off by one: - return x < 3 and not x + return x < 4 and not x"
    assert {*found} == {"pass", "<=", ">=", "4", "2", "or", "x", "return None"}
