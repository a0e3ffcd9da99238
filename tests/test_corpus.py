"""The corpus: programs that end have the facts that are kept, in this process, in a notebook and at a shell; programs
that tamper or never end make no verdict. `make test` grades a fixed part of each list, `make test-all` every program.
"""

import inspect
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lib import PuzzleError, grade
from lib.basics.units import SECONDS
from lib.course.specs import puzzles
from lib.grading.submission import load
from lib.grading.verdict import FAIL, PASS, TODO, Verdict
from lib.recording.wire import Wire
from lib.referee import loaded, sandbox, worker
from lib.referee.attempts import Attempt
from lib.referee.examiner import Judge
from lib.referee.loaded import Submission
from lib.referee.referee import Referee
from lib.referee.sandbox import MECHANISMS
from tests import facts
from tests.corpus import HEAD, Program
from tests.corpus.cheats import APART, CHEATS
from tests.corpus.endless import ENDLESS
from tests.corpus.honest import HONEST
from tests.corpus.mistakes import MISTAKES
from tests.corpus.told import told
from tests.slow import EVERYTHING, some
from tests.test_referee import CUT_OFF, missing, tried

SHORT, LONG = 1.0, 120.0
"""Seconds for a run: of a program that never ends, and of one that does, also where the machine is busy."""


def titles(programs: Sequence[Program]) -> list[str]:
    return [facts.title(program) for program in programs]


def test_the_corpus_is_large_and_names_each_program_once() -> None:
    wrong = [*MISTAKES, *told(), *ENDLESS, *CHEATS, *APART]
    assert len(wrong) >= 2200 and len(HONEST) >= 290
    for programs in (HONEST, wrong):
        assert len(set(titles(programs))) == len(programs)
        assert len({program.source for program in programs}) == len(programs)
    for programs in (HONEST, MISTAKES):
        assert {program.puzzle for program in programs} == puzzles().keys()


LONG_RUNS = {name for name, puzzle in puzzles().items() if puzzle.unit is SECONDS}
"""Puzzles with a model of real size, of which a verdict takes seconds."""


# -- facts --------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_every_verdict_has_the_facts_that_are_kept() -> None:
    """In a process of its own: what programs do to Python's stack is no business of other tests."""
    assert facts.kept().keys() == {*titles([*HONEST, *MISTAKES, *told()])}
    check = [sys.executable, "-W", "ignore", "-m", "tests.facts", "--check", "1" if EVERYTHING else "45"]
    done = subprocess.run(check, capture_output=True, text=True, cwd=Path(__file__).parent.parent, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_honest_programs_pass_and_most_others_do_not() -> None:
    """Those that are refused no more do something for nothing, or keep something too long: no page forbids it."""
    assert {facts.kept()[title][0] for title in titles(HONEST)} == {PASS}
    passing = [title for title in titles(MISTAKES) if facts.kept()[title][0] == PASS]
    assert len(passing) == HARMLESS


HARMLESS = 15
"""So many programs of ``MISTAKES`` pass, since no page asks for what they do otherwise."""

SAMPLE = some([one for one in [*HONEST[::9], *MISTAKES[::9]] if one.puzzle not in LONG_RUNS], 4)


def same_facts(verdict: Verdict, program: Program) -> None:
    """Those that are kept. Where an error of a whole run has no line there, the program was run again to find it."""
    kept, found = facts.kept()[facts.title(program)], facts.of(verdict)
    assert found == kept or (kept[3] is None and [*found[:3], None, *found[4:]] == kept), verdict.message


# -- by the grader of the shell, in this process ------------------------------------------------------------


class StandIn(NamedTuple):
    """What a referee takes for a worker: the line to it, and nothing behind that has to be ended."""

    wire: Wire

    def end(self, patience: float = 0.0) -> int:
        return 0

    def printed_bytes(self) -> int:
        return 0

    def printed(self, start: int) -> str:
        return ""

    def close(self) -> None:
        self.wire.close()


class Near(Referee):
    """A referee whose worker is this thread: the same tasks, line, simulator and verdicts, and no process."""

    def __init__(self) -> None:
        super().__init__(LONG)
        ours, self.theirs = socket.socketpair()
        self.ours = StandIn(Wire(ours))

    def start(self, folder: str | None) -> Any:
        return self.ours


@cache
def near(program: Program) -> Verdict:
    """The verdict of the shell's grader where the program shares its process."""
    referee = Near()
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        for alone in ("_make_quiet", "_limit_next"):  # these are for a process that does nothing else
            patch.setattr(worker, alone, lambda _: None)
        judged = pool.submit(verdict_of, program, referee)
        wire = Wire(referee.theirs)
        with suppress(EOFError, ConnectionError):  # the grader hangs up
            worker._work(wire, wire.receive(longest=None))
        wire.close()
        return judged.result()


def verdict_of(program: Program, referee: Referee) -> Verdict:
    attempt = Attempt(puzzles()[program.puzzle], Submission("attempt.py", program.source))
    return Judge(referee).verdict(attempt)


@pytest.mark.parametrize("program", SAMPLE, ids=titles(SAMPLE))
def test_the_grader_of_the_shell_finds_the_same(program: Program) -> None:
    same_facts(near(program), program)


# -- at a shell ---------------------------------------------------------------------------------------------

BEYOND = ("os.", "ctypes", "socket.", "signal.", "subprocess", "open(", "tempfile", "solutions", "sys.path")
REACHES = [one for one in CHEATS if any(word in one.source[len(HEAD) :] for word in BEYOND)]
TAMPER = some(CHEATS, 3)
EVERYWHERE = [*some(REACHES), *some([one for one in CHEATS if one not in REACHES][::8])]
"""Programs that tamper with more than this library and its line to the grader, and some that do not: whether they
get through may depend on the way in which workers are kept apart. In the best way ``TAMPER`` is tried, too."""

END = {*HONEST, *MISTAKES}
"""Programs that end by themselves."""
ENDED = ("did not", "while True")
"""Of what is said of a program that is ended."""


def graded(programs: Sequence[Program], mechanisms: Sequence[str] | None = None) -> dict[str, Verdict]:
    """The verdict on each program, by its title. Those that are to be ended do no work, and are ended soon."""

    def one(program: Program) -> Verdict:
        ended = program not in END and (not program.says or any(words in program.says for words in ENDED))
        return verdict_of(program, Referee(SHORT if ended else LONG, mechanisms))

    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        return dict(zip(titles(programs), pool.map(one, programs), strict=True))


AT_A_SHELL, UNENDED = SAMPLE[::2], some(ENDLESS, 3)
"""What workers say of these is what is said of them in this process."""


@pytest.fixture(scope="module")
def at_a_shell() -> dict[str, Verdict]:
    """Programs that end and programs without end, kept apart as well as this machine can."""
    return graded([*AT_A_SHELL, *UNENDED])


@pytest.fixture(scope="module")
def cheats() -> dict[str, dict[str, Verdict]]:
    """Programs that tamper, by the way in which they are kept apart: most of them in the best that works here."""
    ways = [mechanism for mechanism in MECHANISMS if not missing(mechanism)]
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loaded, "TELLING", 0.5)  # most have said all they want to say, and sleep
        for mechanism in ways:
            apart = APART if mechanism in CUT_OFF else []
            every = [*EVERYWHERE, *TAMPER] if mechanism == ways[0] else EVERYWHERE
            found[mechanism] = graded([*dict.fromkeys(every), *apart], [mechanism])
    return found


@pytest.mark.parametrize("program", AT_A_SHELL, ids=titles(AT_A_SHELL))
def test_the_verdict_at_a_shell_is_the_same(at_a_shell: dict[str, Verdict], program: Program) -> None:
    far, here = at_a_shell[titles([program])[0]], near(program)
    same_facts(far, program)
    without_line = [
        re.sub(r"\n +at: .*", "", verdict.message) for verdict in (far, here)
    ]  # in a thread it is not known
    assert without_line[0] == without_line[1]


@pytest.mark.parametrize("program", UNENDED, ids=titles(UNENDED))
def test_no_other_passes_at_a_shell(at_a_shell: dict[str, Verdict], program: Program) -> None:
    check(program, at_a_shell[titles([program])[0]])


@pytest.mark.parametrize("program", TAMPER, ids=titles(TAMPER))
def test_tampering_makes_no_verdict(cheats: dict[str, dict[str, Verdict]], program: Program) -> None:
    [best, *_] = cheats.values()
    check(program, best[titles([program])[0]])


@pytest.mark.parametrize("program", EVERYWHERE, ids=titles(EVERYWHERE))
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_tampering_makes_no_verdict_in_any_way(
    cheats: dict[str, dict[str, Verdict]], mechanism: str, program: Program
) -> None:
    check(program, cheats[tried(mechanism)][titles([program])[0]])


@pytest.mark.parametrize("program", APART, ids=titles(APART))
@pytest.mark.parametrize("mechanism", CUT_OFF)
def test_the_machine_is_out_of_reach(cheats: dict[str, dict[str, Verdict]], mechanism: str, program: Program) -> None:
    check(program, cheats[tried(mechanism)][titles([program])[0]])


def check(program: Program, verdict: Verdict) -> None:
    assert verdict.status in (FAIL, TODO), verdict.message
    assert any(words in verdict.message for words in program.says.split("|")), verdict.message


@pytest.mark.skipif(sys.platform != "linux", reason="it counts processes in /proc, which only Linux has")
def test_nothing_is_left_running(cheats: dict[str, dict[str, Verdict]], at_a_shell: dict[str, Verdict]) -> None:
    servers = [server.process.pid for server in sandbox.idle]
    assert servers and not [child for server in servers for child in children(server)]
    for child in {*children(os.getpid())} - {*servers}:
        assert b"fork_server" not in Path(f"/proc/{child}/cmdline").read_bytes()


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


# -- in a notebook ------------------------------------------------------------------------------------------


def function(program: Program) -> object:
    names, trouble, *_ = load("attempt.py", program.source)
    assert program.puzzle in names, trouble
    return names[program.puzzle]


IN_A_NOTEBOOK = [*SAMPLE[::3], *[one for one in MISTAKES if facts.kept()[facts.title(one)] == ["no function"]]]


@pytest.mark.parametrize("program", IN_A_NOTEBOOK, ids=titles(IN_A_NOTEBOOK))
def test_a_notebook_finds_the_same(program: Program) -> None:
    fn = function(program)
    if callable(fn):
        same_facts(grade(fn, program.puzzle, timeout=LONG).verdict, program)
        return
    with pytest.raises(PuzzleError, match="grade takes a function"):
        grade(fn, program.puzzle)  # type: ignore[arg-type]
    if inspect.iscoroutine(fn):
        fn.close()


NOT_HERE = """os. sys.setrec ctypes signal. subprocess threading 10-** 'x'-* atexit input __del__ class-End re.match
iter(int KeyboardInterrupt print create_task"""
HERE = [
    program
    for program in ENDLESS
    if not any(word.replace("-", " ") in program.source[len(HEAD) :] for word in NOT_HERE.split())
]
"""Programs without end that cannot hurt the process they share."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("program", some(HERE, 3), ids=titles(some(HERE, 3)))
def test_what_never_ends_is_ended_in_a_notebook(program: Program) -> None:
    assert len(HERE) >= 15
    verdict = grade(function(program), program.puzzle, timeout=0.5)  # type: ignore[arg-type]
    assert verdict.status == FAIL
    assert any(words in verdict.message for words in program.says.split("|")), verdict.message
    assert grade(function(HONEST[0]), HONEST[0].puzzle).status == PASS  # type: ignore[arg-type]
