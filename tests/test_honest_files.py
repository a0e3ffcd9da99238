"""Files as learners write them, which work in a notebook: the shell's grader passes each of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lib.referee.attempts import attempts_in, read
from lib.referee.examiner import Judge
from lib.referee.referee import Referee

ROOT = Path(__file__).parent.parent
HEAD = "import asyncio, sys\nfrom lib import Model, grade, run\n"


def solved(name: str, file: str, uses: str = "") -> str:
    """The function of a solution, which first says some names that it finds."""
    text = (ROOT / "solutions" / f"{file}.py").read_text()
    found = re.search(rf"async def {name}\(.*?(?=\n\S)", text, re.DOTALL)
    assert found
    return re.sub(r"\n(    )(?=\S)", rf"\n    {uses or 'model'}\n    ", found[0], count=1)


DDP, FSDP = solved("ddp", "p02_ddp"), solved("fsdp", "p04_fsdp")
FILES = {
    "a constant with a puzzle's name": HEAD + DDP + "\nbuckets = 4\n\ndone = run(ddp)\nprint(done.time)\ngrade(ddp)\n",
    "an inner helper with a puzzle's name": HEAD
    + FSDP
    + "\ndef other():\n    '''\n    ddp = 3\n    def ddp(model): ...\n    '''\n    async def prefetch(x): pass\n",
    "a choice": HEAD + DDP.replace("def ddp", "def one") + "\nif run:\n    ddp = one\nelse:\n    ddp = None\n",
    "a try around an import, with print, and a check of the version": HEAD
    + "try:\n    import no_such_module as np\n    print(1)\nexcept ImportError:\n    print(2)\n    np = 1\n"
    + "if sys.version_info < (3, 8):\n    raise SystemExit\n"
    + solved("ddp", "p02_ddp", "np"),
    "a setup that fills a table": HEAD
    + "table = {}\n\ndef setup():\n    for n in range(9):\n        table[n] = n\n\nsetup()\nexec('more = 1')\n"
    + solved("ddp", "p02_ddp", "table[3], more"),
    "locks, a match and a walrus": HEAD
    + "lock, few = asyncio.Lock(), asyncio.Semaphore(2)\nmatch 1:\n    case 1:\n        one = 1\nprint(two := 2)\n"
    + solved("ddp", "p02_ddp", "lock, few, one, two"),
    "a name given by globals": HEAD + DDP.replace("def ddp", "def mine") + "\nglobals()['ddp'] = mine\n",
    "all that another file has": "from mine import *\n",
}


@pytest.mark.process
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("form", ["x.py", "UTF-16", "x.ipynb", "an older notebook"])
def test_an_honest_file_is_an_attempt_at_one_puzzle_and_passes(tmp_path: Path, name: str, form: str) -> None:
    (tmp_path / "mine.py").write_text(HEAD + DDP)
    path = tmp_path / (form if form.startswith("x.") else "x.ipynb" if "notebook" in form else "x.py")
    text = FILES[name]
    if path.suffix == ".ipynb":
        cell = {"cell_type": "code", ("source" if form == "x.ipynb" else "input"): text.splitlines(keepends=True)}
        text = json.dumps({"cells": [cell]} if form == "x.ipynb" else {"worksheets": [{"cells": [cell]}]})
    path.write_bytes(text.encode("utf-16" if form == "UTF-16" else "utf-8"))
    judge = Judge(Referee(20.0))
    submission = read(path, tmp_path)
    [attempt] = attempts_in(submission, judge.found(submission))
    assert attempt.puzzle.name == ("fsdp" if "inner" in name else "ddp")
    verdict = judge.verdict(attempt)
    assert verdict.status == "PASS", verdict.message
