"""What is taken of a learner's file, and what their code finds where it prints."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.grading.submission import load
from lib.referee.worker import MOST_PRINTED, Printed

KINDS = "class Config:\n    depth: int\n\nkind = Config.__annotations__['depth']\n"


def test_annotations_are_values_unless_the_file_says_otherwise() -> None:
    assert load("x.py", KINDS)[0]["kind"] is int
    assert load("x.py", "'''Mine.'''\nfrom __future__ import annotations\n" + KINDS)[0]["kind"] == "int"
    cells = ["from __future__ import annotations\n", "def later(x: NotYet): pass\n" + KINDS]
    names, trouble, *_ = load("x.ipynb", notebook(*cells))
    assert names["kind"] == "int" and not trouble
    _, trouble, *_ = load("x.py", "from __future__ import braces\n" + KINDS)
    assert trouble == ["x.py, line 1: SyntaxError: not a chance (x.py, line 1)"]


def test_a_file_with_null_bytes_is_told_so_without_a_line() -> None:
    _, trouble, failed, *_ = load("x.py", "a = 1\n\0")
    assert [*trouble, *failed] == ["x.py: source code string cannot contain null bytes"]


def notebook(*cells: object) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]})


CELLS = {
    "a shell's answer": "files = !ls\n",
    "a magic's answer": "here = %pwd\n",
    "a shell's answer in a function": "def look():\n    files = !ls it's\n    return files\n",
    "an indented magic": "if True:\n    %matplotlib inline\n",
    "a magic in a try": "try:\n    %load_ext autoreload\nexcept ImportError:\n    !pip install (it\n",
    "help": "fsdp?\nmodel.forward??\n?fsdp\n",
    "a line that goes on with %": "x = (7\n % 4)\n!ls\nassert_ = x\n",
    "a text with lines like IPython's": "T = '''\nwhy?\n%x\n!ls\n'''\n!ls\n",
    "a line that goes on": "!pip install one \\\n    two \\\n    three\n",
    "after the time": "%%time\n%matplotlib inline\n",
}


@pytest.mark.parametrize("name", CELLS)
def test_ipythons_own_lines_cost_nothing_else(name: str) -> None:
    cell = CELLS[name] + "def fsdp(model):\n    return 1 / 0\n"
    names, trouble, *_ = load("x.ipynb", notebook(cell))
    assert not trouble and names["fsdp"].__code__.co_firstlineno == cell.split("\n").index("def fsdp(model):") + 1
    if "T" in names:
        assert names["T"] == "\nwhy?\n%x\n!ls\n"
    if "x" in names:
        assert names["x"] == 3


def test_what_is_no_python_is_still_said() -> None:
    _, trouble, *_ = load("x.ipynb", notebook("!ls\nx = (\n% y\n"))
    assert trouble == ["cell 1 of x.ipynb, line 2: '(' was never closed"]
    assert load("x.ipynb", notebook("if x:\n!ls\n"))[1] == [
        "cell 1 of x.ipynb, line 2: expected an indented block after 'if' statement on line 1"
    ]


def test_a_cell_without_a_source_is_an_empty_one() -> None:
    cells = [{"cell_type": "code"}, {"source": "x"}, {"cell_type": "code", "source": ["x = 1\n", "y = 2"]}]
    assert load("x.ipynb", json.dumps({"cells": cells}))[0]["y"] == 2


ROOT = Path(__file__).resolve().parent.parent
RUNS = "from lib import run\ndef mine(model): pass\ndone = run(mine)\n"


@pytest.mark.parametrize("path", sorted((ROOT / "puzzles").glob("p*.ipynb")), ids=lambda path: path.stem)
def test_no_line_of_our_own_notebooks_is_said_to_fail_or_to_be_missed(path: Path) -> None:
    """Such as one that shows the outcome of a run. Learners would look there for what is wrong with their function."""
    found = load(path.name, path.read_text(encoding="utf-8"))
    assert callable(found.names[path.stem.partition("_")[2]])
    assert (found.failed, found.left_out) == ([], [])


def test_what_only_lacks_the_outcome_of_an_experiment_has_not_failed() -> None:
    shows = "print(done)\ntime = done.time\nwords = f'{time} ticks'\nprint(words)\ndef fsdp(model): pass\n"
    found = load("x.py", RUNS + shows)
    assert found[1:] == ([], []) and "fsdp" in found.names


@pytest.mark.parametrize("line", ["fsdp = done.fn\n", "@done\ndef fsdp(model): pass\n"])
def test_a_function_of_a_puzzle_that_lacks_one_has(line: str) -> None:
    [failed] = load("x.py", RUNS + line).failed
    assert failed.startswith("x.py, line ") and "name 'done' is not defined" in failed


def test_what_needs_an_outcome_and_is_used_is_named_with_what_it_needs() -> None:
    uses = "time = done.time\ndef fsdp(model): return time\n"
    [left_out] = load("x.py", RUNS + uses).left_out
    assert left_out == "x.py, line 4 (it needs done, the outcome of lines that were not run)"


@pytest.mark.parametrize("uses", [
    "def fsdp(model):\n    done = 1\n    return done\n",
    "def fsdp(done):\n    def inner(): return done\n    return inner\n",
    "def fsdp(model):\n    return [done for done in ()], model.done, model.done()\n",
])  # fmt: skip
def test_a_local_name_of_a_function_is_no_use_of_an_outcome(uses: str) -> None:
    assert load("x.py", RUNS + uses)[1:] == ([], [])


@pytest.mark.parametrize("uses", [
    "def fsdp(model):\n    return done\n",
    "def fsdp(model):\n    def inner(): return [done for _ in ()]\n    return inner\n",
    "def fsdp(model):\n    global done\n    done += 1\n",
    "def fsdp(model):\n    class Inner:\n        one = done\n",
    "def other(): return done\nasync def fsdp(model): return lambda: done\n",
])  # fmt: skip
def test_an_outcome_that_a_function_uses_is_named(uses: str) -> None:
    assert load("x.py", RUNS + uses)[1:] == ([], ["x.py, line 3 (it calls run)"])


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that is printed to."""
    monkeypatch.setattr(Printed, "left", MOST_PRINTED)
    yield tmp_path / "printed"


def printing_to(kept: Path) -> io.TextIOWrapper:
    return io.TextIOWrapper(Printed(kept, "w"), "utf-8", "surrogateescape", write_through=True)


def test_what_is_printed_to_is_a_stream(kept: Path) -> None:
    stream = printing_to(kept)
    print("one", file=stream, flush=True)
    stream.writelines(["two\n", "three\n"])
    stream.reconfigure(line_buffering=True, encoding="utf-8")
    assert stream.buffer.write(b"four \xff\n") == 7
    stream.buffer.flush()
    stream.close()
    print("five", file=stream)
    assert kept.read_bytes() == b"one\ntwo\nthree\nfour \xff\nfive\n"
    assert (stream.encoding, stream.isatty(), stream.writable(), stream.readable()) == ("utf-8", False, True, False)
    io.FileIO.close(stream.buffer)  # type: ignore[arg-type]


def test_after_so_much_nothing_is_kept(kept: Path) -> None:
    stream = printing_to(kept)
    assert stream.write("x" * (MOST_PRINTED - 1)) == MOST_PRINTED - 1
    assert stream.write("yyy") == stream.buffer.write(b"zzz") == 3
    assert len(kept.read_bytes()) == MOST_PRINTED and kept.read_bytes().endswith(b"xy")
    io.FileIO.close(stream.buffer)  # type: ignore[arg-type]
