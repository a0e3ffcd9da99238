"""The corpus: honest programs pass, no other does, and each is told what it needs to know.

At a shell every run is in a process of its own, which is slow. So all programs that end are graded in this process,
by the notebook's grader and by the shell's; at a shell a sample of them, with the same verdicts, and all the others.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import lib
from lib import PuzzleError, grade
from lib.basics.units import SECONDS
from lib.course.specs import puzzles
from lib.grading.submission import load
from lib.grading.verdict import FAIL, PASS, TODO, Verdict
from lib.recording.wire import Wire
from lib.referee import sandbox, worker
from lib.referee.attempts import Attempt
from lib.referee.examiner import Judge
from lib.referee.loaded import Submission
from lib.referee.referee import Referee
from lib.referee.sandbox import MECHANISMS
from tests.corpus import HEAD, Program
from tests.corpus.cheats import APART, CHEATS
from tests.corpus.endless import ENDLESS
from tests.corpus.honest import HONEST
from tests.corpus.mistakes import MISTAKES
from tests.slow import EVERYTHING, some
from tests.test_referee import CUT_OFF, missing, tried

SHORT, LONG = 1.0, 120.0
"""Seconds for a run: of a program that never ends, and of one that does, also where the machine is busy."""


def titles(programs: Sequence[Program]) -> list[str]:
    return [f"{program.puzzle}: {program.name}" for program in programs]


def test_the_corpus_is_large_and_names_each_program_once() -> None:
    wrong = [*MISTAKES, *ENDLESS, *CHEATS, *APART]
    assert len(wrong) >= 200 and len(HONEST) >= 80
    for programs in (HONEST, wrong):
        assert len(set(titles(programs))) == len(programs)
        assert len({program.source for program in programs}) == len(programs)
    for programs in (HONEST, MISTAKES):
        assert {program.puzzle for program in programs} == puzzles().keys()


LONG_RUNS = {name for name, puzzle in puzzles().items() if puzzle.unit is SECONDS}
"""Puzzles with a model of real size, of which a verdict takes seconds. The shell's grader judges a mistake in one of
their programs; test_recording.py records and replays all the honest ones."""
QUICK = "replicas on the wrong ranks"  # a mistake in a program of real size that is found at its beginning
OF_EACH_PUZZLE = {
    (program.puzzle, program in HONEST): program
    for program in [*MISTAKES, *HONEST]
    if program.puzzle not in LONG_RUNS or program.name == QUICK or (program in HONEST and EVERYTHING)
}
MORE_MISTAKES = [program for program in MISTAKES[::16] if program.puzzle not in LONG_RUNS]
AT_A_SHELL = [one for one in dict.fromkeys([*OF_EACH_PUZZLE.values(), *MORE_MISTAKES]) if one.name != QUICK]
AT_A_SHELL = [*some(AT_A_SHELL, 6), *[one for one in MISTAKES if one.name == QUICK]]
"""Of each puzzle an honest program and a mistake, and more mistakes of every kind: `make test` takes a sixth. What
workers say of these is what is said of them in this process."""
HONEST_NEAR, MISTAKES_NEAR = (
    [one for one in programs if one.puzzle not in LONG_RUNS or one in AT_A_SHELL] for programs in (HONEST, MISTAKES)
)
HONEST_NEAR = [one for one in HONEST_NEAR if one in AT_A_SHELL or one in some(HONEST_NEAR)]
MISTAKES_NEAR = [one for one in MISTAKES_NEAR if one in AT_A_SHELL or one in some(MISTAKES_NEAR, 3)]
"""Each honest program is recorded, replayed and checked at one size (test_recording.py). At all sizes, in a
notebook and by the grader of the shell, `make test` takes some of them, and of the mistakes."""


# -- by the grader of the shell, in this process ------------------------------------------------------------


class StandIn(NamedTuple):
    """What a referee takes for a worker: the line to it, and nothing behind that has to be ended."""

    wire: Wire

    def end(self, patience: float = 0.0) -> int:
        return 0

    def written(self) -> int:
        return 0

    def printed(self, start: int) -> str:
        return ""

    def close(self) -> None:
        self.wire.close()


RIGHT: set[bytes] = set()
"""What was right where the worker is a thread: at a shell the same calls are not carried out again."""


class Near(Referee):
    """A referee whose worker is this thread: the same tasks, line, simulator and verdicts, and no process."""

    def __init__(self) -> None:
        super().__init__(LONG)
        self.known.right = RIGHT
        ours, self.theirs = socket.socketpair()
        self.ours = StandIn(Wire(ours))

    def _start(self, folder: str | None) -> Any:
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
        with suppress(EOFError, ConnectionError):  # it may have been asked ahead for a run that nobody waits for
            worker._work(wire, wire.receive(longest=None))
        wire.close()
        return judged.result()


def verdict_of(program: Program, referee: Referee) -> Verdict:
    attempt = Attempt(puzzles()[program.puzzle], Submission("attempt.py", program.source))
    return Judge(referee).verdict(attempt)


@pytest.mark.parametrize("program", HONEST_NEAR, ids=titles(HONEST_NEAR))
def test_honest_programs_pass_the_grader_of_the_shell(program: Program) -> None:
    assert near(program).status == PASS, near(program).message


@pytest.mark.parametrize("program", MISTAKES_NEAR, ids=titles(MISTAKES_NEAR))
def test_the_grader_of_the_shell_finds_mistakes(program: Program) -> None:
    check_mistake(program, near(program))


def check_mistake(program: Program, verdict: Verdict) -> None:
    check(program, verdict)
    python_says = verdict.error and verdict.error.problem.startswith("the function raised")
    half_done = verdict.error and "not finished yet" in verdict.error.problem
    assert verdict.error is None or python_says or half_done or verdict.error.fix, f"no fix: {verdict.message}"


# -- at a shell ---------------------------------------------------------------------------------------------

BEYOND = ("os.", "ctypes", "socket.", "signal.", "subprocess", "open(", "tempfile", "solutions", "sys.path")
REACHES = [one for one in CHEATS if any(word in one.source[len(HEAD) :] for word in BEYOND)]
EVERYWHERE = some([*REACHES, *[one for one in CHEATS if one not in REACHES][::8]])
"""Programs that tamper with more than this library and its line to the grader, and some that do not: whether they
get through may depend on the way in which workers are kept apart. In the best way all are tried every time."""

ENDED = ("did not", "while True")
"""Of what is said of a program that is ended."""


def graded(programs: Sequence[Program], mechanisms: Sequence[str] | None = None) -> dict[str, Verdict]:
    """The verdict on each program, by its title. Those that are to be ended do no work, and are ended soon."""

    def one(program: Program) -> Verdict:
        ended = program not in HONEST and (not program.says or any(words in program.says for words in ENDED))
        referee = Referee(SHORT if ended else LONG, mechanisms)
        referee.known.right = RIGHT
        return verdict_of(program, referee)

    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        return dict(zip(titles(programs), pool.map(one, programs), strict=True))


@pytest.fixture(scope="module")
def at_a_shell() -> dict[str, Verdict]:
    """Programs that end, and all those without end, kept apart as well as this machine can."""
    return graded([*AT_A_SHELL, *ENDLESS])


@pytest.fixture(scope="module")
def cheats() -> dict[str, dict[str, Verdict]]:
    """Programs that tamper, by the way in which they are kept apart: all of them in the best that works here."""
    ways = [mechanism for mechanism in MECHANISMS if not missing(mechanism)]
    found = {}
    for mechanism in ways:
        apart = APART if mechanism in CUT_OFF else []
        found[mechanism] = graded([*(CHEATS if mechanism == ways[0] else EVERYWHERE), *apart], [mechanism])
    return found


@pytest.mark.parametrize("program", AT_A_SHELL, ids=titles(AT_A_SHELL))
def test_the_verdict_at_a_shell_is_the_same(at_a_shell: dict[str, Verdict], program: Program) -> None:
    far, here = at_a_shell[titles([program])[0]], near(program)
    message = re.sub(rf"\n +at: .*{Path(__file__).name}.*", "", here.message)  # where no line is the learner's
    error = here.error._replace(line="") if here.error and message != here.message else here.error
    expected = replace(here, message=message, error=error, seconds=0.0, printed="")
    assert replace(far, seconds=0.0, printed="") == expected


@pytest.mark.parametrize("program", ENDLESS, ids=titles(ENDLESS))
def test_no_other_passes_at_a_shell(at_a_shell: dict[str, Verdict], program: Program) -> None:
    check(program, at_a_shell[titles([program])[0]])


@pytest.mark.parametrize("program", CHEATS, ids=titles(CHEATS))
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


ONE, *LARGE = [one for one in HONEST if one.puzzle in LONG_RUNS]
"""Programs of real size: `make test` takes one."""
ONCE = [ONE, *(one for one in HONEST_NEAR if one.puzzle not in LONG_RUNS)]
SOMETIMES = [pytest.param(one, marks=pytest.mark.slow) for one in LARGE]
ONLY = "one replica updates for all"  # what it is told nobody else is
LARGE_MISTAKES = [one for one in MISTAKES if one.puzzle in LONG_RUNS and one not in AT_A_SHELL and one.name != ONLY]
"""Mistakes in programs of real size, each of which others make at a small one."""


@pytest.mark.parametrize("program", [*ONCE, *SOMETIMES], ids=titles([*ONCE, *LARGE]))
def test_honest_programs_pass_in_a_notebook(program: Program) -> None:
    verdict = grade(function(program), program.puzzle, timeout=LONG)  # type: ignore[arg-type]
    assert verdict.status == PASS, verdict.message


Made = set[tuple[str, int]]
"""Where errors were made: file and line."""


@cache
def in_a_notebook(program: Program) -> tuple[Verdict | None, Made]:
    """The verdict on a program in a notebook, None where it is of no function, and all errors made on the way."""
    made: Made = set()

    def noted(kind: type[PuzzleError], *args: object, **parts: object) -> PuzzleError:
        frame = sys._getframe(1)
        made.add((frame.f_code.co_filename, frame.f_lineno))
        return AssertionError.__new__(kind, *args)

    fn = function(program)
    if inspect.iscoroutine(fn):
        fn.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PuzzleError, "__new__", noted)  # it has returned when an error looks for the learner's line
        return (grade(fn, program.puzzle, timeout=LONG).verdict if callable(fn) else None), made


SEEN = [pytest.param(one, marks=pytest.mark.slow if one in LARGE_MISTAKES else ()) for one in MISTAKES]


@pytest.mark.parametrize("program", SEEN, ids=titles(MISTAKES))
def test_mistakes_are_found_in_a_notebook(program: Program) -> None:
    verdict, _ = in_a_notebook(program)
    if verdict is None:
        fn = function(program)
        with pytest.raises(PuzzleError, match="grade takes a function"):
            grade(fn, program.puzzle)  # type: ignore[arg-type]
        if inspect.iscoroutine(fn):
            fn.close()
        return
    check_mistake(program, verdict)


NOT_HERE = """os. sys.setrec ctypes signal. subprocess threading 10-** 'x'-* atexit input __del__ class-End re.match
iter(int KeyboardInterrupt print create_task"""
HERE = [
    program
    for program in ENDLESS
    if not any(word.replace("-", " ") in program.source[len(HEAD) :] for word in NOT_HERE.split())
]
"""Programs without end that cannot hurt the process they share."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("program", HERE, ids=titles(HERE))
def test_what_never_ends_is_ended_in_a_notebook(program: Program) -> None:
    assert len(HERE) >= 15
    verdict = grade(function(program), program.puzzle, timeout=0.5)  # type: ignore[arg-type]
    assert verdict.status == FAIL
    assert any(words in verdict.message for words in program.says.split("|")), verdict.message
    assert grade(function(HONEST[0]), HONEST[0].puzzle).status == PASS  # type: ignore[arg-type]


# -- every rule has a program that it fells -----------------------------------------------------------------

DECIDING = [
    "record/rules/operands",
    "record/rules/passes",
    "record/rules/updates",
    "machine/check",
    "course/layouts",
    "course/held",
    "course/used",
    "course/rules",
    "record/labels",
    "record/shards",
    "machine/simulator",
    "machine/network",
    "machine/advice/misfit",
    "machine/advice/stuck",
    "machine/rank_state",
    "learner/missing",
    "learner/storage",
    "record/collectives",
]
ELSEWHERE = {  # the problem, and what comes to it
    "the final weight has a wrong value: it is not what plain training on one device gives": "test_values.py",
    "gone(entry)": "by hand, where there is no rank to name; in a run, the ledger's",
    "no rank brings a tensor": "test_operations.py: in lib's own collectives every rank brings one",
    "every rank brings a tensor to {kind}": "test_operations.py: the learner's side asks first",
    "there is no piece {index} of {pieces}": "the learner's side asks first; labels are public as well",
    "{_many(len(labels), 'tensor')} with {_many(len(layers), 'layer')}": "test_lists.py, as all errors about lists",
    "every rank brings a tensor of each layer to {kind}": "test_lists.py",
    "{' and '.join(kinds)} in one list": "test_lists.py",
    "tensors of adapters and of the layers' own weights in one list": "test_lists.py",
    "layer {layer} is in the list {times} times": "test_lists.py",
    "this host {when} with {of}": "test_hosts.py: where there is one device, its host can have no other's",
    "this rank is a host, linked to its own devices only, and rank {known} is none of them": "test_hosts.py: "
    "in a puzzle there is one host",
    "rank {known} is a host, linked to its own devices only: {show_set(mesh.beside[known])}": "test_hosts.py",
    "the gradient is of some slices of the sequence only: slices ": "test_slices.py: no puzzle is about slices yet",
    "a sum of gradients has the same slices of the sequence of each micro-batch": "test_slices.py",
    "{show_slices(twice)} of micro-batch {batch} is in more than one gradient, and would be ": "test_slices.py",
    "what the queries of {show_slices(twice)} give would be added twice": "test_slices.py",
    "it ends without the updated optimizer state of layer {layer}, and has not updated that layer": "test_fixes.py",
    "no forward of another micro-batch is right before it, with which it could overlap": "test_schedules.py: no puzzle "
    "has a price for pairs that overlap",
    "the final weights are not known": "test_represent.py: where grade runs, all ranks are run",
    "no rank begins with all of the {kind} of layer {layer}, and all together do not either": "test_grading.py: "
    "what no rank begins with none can update, so the check of the final weights comes first",
}


def _said(problem: ast.expr, tree: ast.Module) -> ast.expr:
    """What a raised problem says: the expression itself, or what its name was given last."""
    given = [
        one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == ast.unparse(problem)
        if one.lineno < problem.lineno
    ]
    return max(given, key=lambda value: value.lineno) if given else problem


@pytest.mark.slow
def test_every_rule_fells_a_program() -> None:
    small = [program for program in MISTAKES if program not in LARGE_MISTAKES]
    made = Made().union(*(in_a_notebook(program)[1] for program in [*small, ENDLESS[0]]))
    missed = []
    for module in DECIDING:
        path = Path(lib.__file__).parent / f"{module}.py"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("PuzzleError", "MissingTensor"):
                hit = any(file == str(path) and node.lineno <= line <= (node.end_lineno or 0) for file, line in made)
                says = ast.unparse(_said(node.args[0], tree)).strip("f'\"")
                if not hit and says not in ELSEWHERE:
                    missed.append(f"{module}: {says}")
    assert not missed
