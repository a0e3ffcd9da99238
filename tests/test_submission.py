"""What is taken of a learner's file, and what their code finds where it prints."""

from __future__ import annotations

import io
import json

import pytest

from lib.grading.submission import load
from lib.referee.worker import CHARACTERS, Printed

KINDS = "class Config:\n    depth: int\n\nkind = Config.__annotations__['depth']\n"


def test_annotations_are_values_unless_the_file_says_otherwise() -> None:
    assert load("x.py", KINDS)[0]["kind"] is int
    assert load("x.py", "'''Mine.'''\nfrom __future__ import annotations\n" + KINDS)[0]["kind"] == "int"
    cells = ["from __future__ import annotations\n", "def later(x: NotYet): pass\n" + KINDS]
    names, trouble, *_ = load("x.ipynb", notebook(*cells))
    assert names["kind"] == "int" and not trouble
    _, trouble, *_ = load("x.py", "from __future__ import braces\n" + KINDS)
    assert trouble == ["x.py, line 1: SyntaxError: not a chance (x.py, line 1)"]


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


# -- where it prints ----------------------------------------------------------------------------------------


def test_what_is_printed_to_is_a_stream() -> None:
    kept = io.StringIO()
    stream = Printed(kept)
    print("one", file=stream, flush=True)
    stream.writelines(["two\n", "three\n"])
    stream.reconfigure(line_buffering=True, encoding="utf-8")
    assert stream.buffer.write(b"four \xff\n") == 7
    stream.buffer.flush()
    assert kept.getvalue() == "one\ntwo\nthree\nfour \ufffd\n"
    assert (stream.encoding, stream.isatty(), stream.writable(), stream.readable()) == ("utf-8", False, True, False)
    with pytest.raises(io.UnsupportedOperation):
        stream.fileno()


def test_after_so_much_nothing_is_kept() -> None:
    kept = io.StringIO()
    stream = Printed(kept)
    assert stream.write("x" * (CHARACTERS - 1)) == CHARACTERS - 1
    assert stream.write("yyy") == stream.buffer.write(b"zzz") == 3
    assert len(kept.getvalue()) == CHARACTERS and kept.getvalue().endswith("xy")
