"""Files as learners write them, which work in a notebook: the shell's grader passes each of them."""

import json
import re
from contextlib import closing
from pathlib import Path

import pytest

from lib.referee.attempts import attempts_in, read
from lib.referee.examiner import Judge
from lib.referee.loaded import Submission
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
    "what is done where it is started": HEAD
    + DDP
    + "\nif __name__ == '__main__':\n    few = 2\n    asyncio.run(asyncio.sleep(0))\n    run(ddp)\n    ddp = None\n"
    + "if __name__ != '__main__':\n    ddp = None\n",
    "helpers with puzzles' names": HEAD
    + "buckets = list\n\ndef compose(*fns):\n    return fns[0]\n\nasync def prefetch(model, layer):\n    return layer\n"
    + "class pipeline:\n    pass\n"
    + solved("ddp", "p02_ddp", "compose(int), await prefetch(model, 0), pipeline()"),
    "all that another file has": "from mine import *\n",
}


@pytest.mark.process
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("form", ["x.py", "UTF-16", "x.ipynb"])
def test_an_honest_file_is_an_attempt_at_one_puzzle_and_passes(tmp_path: Path, name: str, form: str) -> None:
    (tmp_path / "mine.py").write_text(HEAD + DDP)
    path = tmp_path / (form if form.startswith("x.") else "x.py")
    text = FILES[name]
    if path.suffix == ".ipynb":
        text = json.dumps({"cells": [{"cell_type": "code", "source": text.splitlines(keepends=True)}]})
    path.write_bytes(text.encode("utf-16" if form == "UTF-16" else "utf-8"))
    judge = Judge(Referee(20.0))
    submission = read(path, tmp_path)
    [attempt] = attempts_in(submission, judge.found(submission))
    assert attempt.puzzle.name == ("fsdp" if "inner" in name else "ddp")
    verdict = judge.verdict(attempt)
    assert verdict.status == "PASS", verdict.message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_a_text_is_the_same_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.py"
    mark = "\ufeff" if encoding.endswith("-le") else ""
    path.write_bytes((mark + "a = '\N{GREEK SMALL LETTER ALPHA}'\r\nb = 1\r\n").encode(encoding))
    assert read(path, None).text == "a = '\N{GREEK SMALL LETTER ALPHA}'\nb = 1\n"


FAR = "\N{CJK UNIFIED IDEOGRAPH-20000}"  # a letter that takes twelve bytes in JSON
MANY = "\n".join([
    *(f"raise ValueError('{number} {FAR * 400}')" for number in range(30)),
    *(f"table[{number}] = run.{FAR * 400}(1)" for number in range(30)),
    *(f"for n in range(3): run.{FAR * 400}({number})" for number in range(30)),
])  # fmt: skip


@pytest.mark.process
def test_many_long_lines_that_fail_or_are_left_out_are_told_in_any_language(tmp_path: Path) -> None:
    """None of them makes a recording of a run that is none."""
    path = tmp_path / "x.py"
    path.write_text(f"{HEAD}table = {{}}\n{MANY}\n{solved('ddp', 'p02_ddp', 'table, missing')}", encoding="utf-8")
    submission = read(path, tmp_path)
    with closing(Judge(Referee(20.0))) as judge:
        found = judge.found(submission)
        assert (found.defines, found.failed) == (["ddp"], "")
        [attempt] = attempts_in(submission, found)
        message = judge.verdict(attempt).message
    assert "name 'missing' is not defined" in message
    for text in (found.incomplete, message):
        assert len(text) < 4000 and "ValueError: 0 " + FAR in text and "ValueError: 2 " in text
        assert "ValueError: 3 " not in text and FAR + " ...;" in text
    assert message.count("(it calls run." + FAR) == 3 and message.count(" ...") >= 3


@pytest.mark.process
def test_a_long_line_that_takes_too_long_is_told_in_any_language(tmp_path: Path) -> None:
    text = f"{HEAD}while True: x = '{FAR * 3900}'\n"
    with closing(Judge(Referee(1.0))) as judge:
        found = judge.found(Submission("x.py", text))
    assert "the code did not load in time" in found.failed and f"while True: x = '{FAR}" in found.failed
