"""The systematic mistakes that tools/mistakes.py makes, and what it writes down of them."""

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from tools.mistakes import CHANGES, main, mistakes_in, sources


def test_each_change_is_made_to_some_call_of_the_solutions_and_every_program_is_another_one() -> None:
    known = dict(sources())
    assert {"fsdp", "offload", "replica_fsdp"} <= known.keys()
    made = Counter[str]()
    for name in ("pipeline", "replica_fsdp", "gpipe"):
        programs = [*mistakes_in(name, known[name])]
        made.update(mistake.what for mistake in programs)
        for mistake in programs:
            assert ast.unparse(ast.parse(mistake.source)) != known[name], mistake
    assert made.keys() == CHANGES.keys()


def test_what_is_told_is_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--count", "3", "--only", "ddp", "--json", str(tmp_path / "told.json")])
    rows = json.loads((tmp_path / "told.json").read_text())
    seen = capsys.readouterr()
    assert len(rows) == 3 and all(row["puzzle"] == "ddp" and row["told"] for row in rows)
    assert seen.out.count("--- ") == 3 and "3 of " in seen.err
