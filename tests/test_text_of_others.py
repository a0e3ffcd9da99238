"""What others have written (names, output, errors) is words wherever the grader repeats it: no formula, no command."""

import csv
import io
from argparse import Namespace
from collections.abc import Sequence
from random import Random
from typing import Literal

import pytest

from lib.basics.errors import Place
from lib.basics.streams import print_to_stderr
from lib.course.specs import puzzles
from lib.grading.verdict import FAIL, PASS, Mistake, Report, Verdict
from lib.referee import files, shell

SIGNS = "=+-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
COMMANDS = [
    "::notice::",
    "::stop-commands::x",
    "##[error]",
    "##vso[task.complete]",
    "##teamcity[x]",
    "##",
    "::",
    "[",
    ":",
]


def texts(parts: Sequence[str], seed: int, number: int) -> list[str]:
    """Texts made of these parts, by chance but always the same."""
    chance = Random(seed)
    return ["".join(chance.choices(parts, k=chance.randint(1, 6))) for _ in range(number)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_NONE])
def test_no_cell_of_a_table_begins_as_a_formula(delimiter: str, quoting: Literal[0, 3]) -> None:
    names = [*texts([*SIGNS, *',;|"\t\n ', "a"], 1, 3000), "Ann-Lee +1"]
    table = files.as_csv([Report([], student=name) for name in names])
    for row in csv.reader(io.StringIO(table), delimiter=delimiter, quoting=quoting):
        for cell in row:
            assert not cell.strip(' "').startswith(tuple(SIGNS)), row
    assert "Ann-Lee +1," in table


FACES = ("json", "junit", "csv", "leaderboard", "gradescope", "nothing")


@pytest.mark.parametrize("face", FACES)
def test_nothing_that_is_printed_is_a_command_to_a_ci_system(face: str, capsys: pytest.CaptureFixture[str]) -> None:
    fsdp = puzzles()["fsdp"]
    options = Namespace(**dict.fromkeys(FACES) | {face: "-", "plain": True, "why": True, "worths": {}})
    for text in texts([*COMMANDS, *COMMANDS, "\n", "\n", " ", "\t", "x"], 2, 300):
        error = Mistake(text, Place(detail=text), text, text, text, text)
        failed = Verdict(fsdp, FAIL, text, error=error, printed=text, file=text, note=text)
        passed = Verdict(fsdp, PASS, text, time=20.4, memory=2359296, printed=text)
        student = " ".join(text.split("\n"))
        options.each = None if face == "gradescope" else "class"
        report = Report([failed, passed], "nowhere", student)
        assert shell._published(options, [report] * (1 + (options.each is not None))) == shell.SOME_FAIL
        print_to_stderr(text)
    streams = capsys.readouterr()
    signs = ("##[", "##vso[", "##teamcity[")  # to Azure Pipelines and TeamCity; GitHub Actions looks at the head
    lines = (streams.out + streams.err).splitlines()
    assert [one for one in lines if one.lstrip().startswith("::") or any(sign in one for sign in signs)] == []
