"""The grader at a shell: ``grade``, ``watch``, ``start``, ``hint``, ``solution`` and ``progress``.

The report goes to stdout, progress to stderr. Exit status: 0 all pass, 1 some fail or are not attempted,
2 the command is not understood, 3 the grader itself failed or a report could not be written, 130 it was interrupted.
"""

import argparse
import io
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..basics.errors import PuzzleError
from ..basics.saving import write_whole
from ..basics.streams import closed, print_to_stderr, send_nowhere, without_commands
from ..course.points import assignment
from ..course.solutions import explained
from ..course.specs import after, find, puzzles
from ..course.variants import use_variants
from ..grading.commandline import Usage
from ..grading.hints import Hint
from ..grading.page import STAR, report_text
from ..grading.progress import keep
from ..grading.verdict import ERROR, PASS, Report, Verdict
from ..lab.commands import COMMANDS, called
from ..lab.copies import home
from . import files, leaderboard
from .attempts import asked_for, is_file, progress_here, submissions, wanted
from .classroom import class_text, grade_class
from .script import start
from .session import Examiners, session

BUDGET = 12  # times the time limit: the seconds of one student of a class, unless --budget says otherwise

ALL_PASS, SOME_FAIL, USAGE, GRADER_FAILED, INTERRUPTED = 0, 1, 2, 3, 130
STATUSES = "Exit status: 0 all pass, 1 some fail or are not attempted, 2 usage, 3 the grader failed, 130 interrupted."


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line. Return the exit status."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # so that no terminal of few letters makes it fail
    try:
        if getattr(options, "variants", None) is not None:
            use_variants(options.variants)
        return int(options.do(options))
    except (Usage, PuzzleError) as error:
        print_to_stderr(f"{called()} {options.command}: {error}")
        return USAGE
    except KeyboardInterrupt:
        print_to_stderr("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        send_nowhere(sys.stdout)  # nobody reads on
        return SOME_FAIL
    except Exception:
        print_to_stderr(f"{traceback.format_exc()}The grader itself failed. Please report the lines above.")
        return GRADER_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=called(),
        description="LLM training puzzles at a shell.",
        epilog=f"More about each of them: {called()} grade --help, and so on.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, do: Callable[[argparse.Namespace], int], about: str = "", epilog: str | None = None) -> Any:
        """Add a command, and return what adds its arguments."""
        says = f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}.{about}"
        added = commands.add_parser(name, help=COMMANDS[name], description=says, epilog=epilog)
        added.set_defaults(do=do)
        return added.add_argument

    about = " Without WHAT: your notebooks, in this folder or where `lab` has put them."
    for name, do in (("grade", grade), ("watch", watch)):
        add = command(name, do, about, STATUSES)
        add("what", nargs="*", metavar="WHAT", help="names or numbers of puzzles, and files (.py, .ipynb)")
        add("--timeout", metavar="S", type=_seconds, default=10.0, help="seconds for a run, more for a large one (10)")
        add("--plain", action="store_true", help="no color and no progress bar")
        add("--variants", metavar="F", help="grade by the variants in this file; see docs/teaching.md")
        if name == "grade":
            add("--list", action="store_true", help="list the puzzles and their targets")
            add("--why", action="store_true", help="say all that is known of each verdict: why, where, figures")
            add("--hint", dest="puzzle", metavar="P", help="the next hint for a puzzle, after those already given")
            add("--each", metavar="DIR", type=Path, help="grade a folder of submissions, a student each")
            seconds = "with --each: seconds for one student (12 times --timeout)"
            add("--budget", metavar="S", type=_seconds, help=seconds)
            add("--json", metavar="F", help="write the results as JSON (- is stdout, here and below)")
            add("--junit", metavar="F", help="write JUnit XML")
            add("--gradescope", metavar="F", help="write Gradescope's results.json; with --each a folder of them")
            add("--csv", metavar="F", help="with --each: write a table, a row a student")
            add("--leaderboard", metavar="F", help="with --each: write who has most, as F.html or F.md")
            add("--points", metavar="N", help="what each puzzle is worth, 10 or fsdp=20,gpipe=10; see docs/teaching.md")
    for name, do in (("start", start), ("hint", hint), ("solution", solution), ("progress", progress)):
        add = command(name, do)
        if name != "progress":
            add("puzzle", metavar="PUZZLE", help="name or number")
        if name == "start":
            add("file", metavar="FILE.py", type=Path, help="a file that is not there yet")
            says = "begin with your answer to another puzzle (its name or number, or a file with it)"
            add("--from", dest="begin", metavar="WHAT", help=says)
        if name == "solution":
            add("--sure", action="store_true", help="show it although you have not solved the puzzle")
    for name in COMMANDS.keys() - commands.choices:  # which lib.__main__ hands to others: here they are only listed
        commands.add_parser(name, help=COMMANDS[name], add_help=False)
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 86_400:
        raise argparse.ArgumentTypeError("seconds, more than 0")
    return value


def grade(options: argparse.Namespace) -> int:
    """Carry out ``grade``. Return the exit status."""
    if options.list:
        print(_list())
        return ALL_PASS
    if options.puzzle is not None:
        return hint(options)
    _check_outputs(options)
    options.worths = {} if options.points is None else assignment(options.points)
    if "=" in (options.points or ""):
        options.what += [name for name in options.worths if name not in options.what]
    if options.variants is not None and not options.what:
        options.what = [puzzle.name for puzzle in puzzles().values() if puzzle.variant]
    if options.each is not None:
        return _grade_each(options)
    with closing(Examiners(options.timeout)) as examiners:
        return _published(options, [_report_on(options.what, options, examiners)])


def _grade_each(options: argparse.Namespace) -> int:
    """Grade a folder of submissions. Return the exit status.

    If something stops the grading before its end, such as an interrupt, it is raised, once all is written and printed
    that is known by then.
    """
    named = {find(one).name for one in options.what}
    chosen = [puzzle for name, puzzle in puzzles().items() if not named or name in named]
    budget = options.budget or BUDGET * options.timeout
    students, left_out = submissions(options.each)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        print_to_stderr("grading as root: then some limits do not hold, so do it as another user (THREATS.md)")
    with _ends_are_interrupts(), closing(Examiners(options.timeout, [str(options.each)])) as examiners:
        reports, stopped = grade_class(students, chosen, bool(named), examiners, budget, options.plain)
        status = _published(options, reports)
    if left_out:
        print_to_stderr(left_out)
    if stopped is not None:
        missing = [report.student for report in reports if report.not_graded]
        print_to_stderr(f"{len(missing)} of {len(reports)} students are not graded: {', '.join(missing)}")
        raise stopped
    return status


@contextmanager
def _ends_are_interrupts() -> Iterator[None]:
    """Let what would end this process at once (``kill``, a terminal that is closed) be an interrupt in the block."""
    grader = os.getpid()

    def interrupt(number: int, frame: object) -> None:
        if os.getpid() != grader:
            os._exit(128 + number)  # an examiner that has just been forked: it ends as it would have ended
        raise KeyboardInterrupt

    with ExitStack() as undo:
        for number in (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")):
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup, say, lets them be ignored
                with suppress(ValueError):  # in another thread than the main one
                    undo.callback(signal.signal, number, signal.signal(number, interrupt))
        yield


def _report_on(what: Sequence[str], options: argparse.Namespace, examiners: Examiners) -> Report:
    """Return the verdicts on puzzles or files, of the puzzles chosen, with what to type to see why, and after a single
    one the puzzle that comes next. They are recorded where a notebook beside the files would record its own."""
    chosen = wanted(options.what)
    report = session(asked_for(what, chosen), chosen, examiners, options.plain)
    for folder in dict.fromkeys(verdict.folder for verdict in report.verdicts):
        own = [verdict for verdict in report.verdicts if verdict.folder == folder]
        if note := keep(own, Path(folder) if folder else home()):
            print_to_stderr(note)
    verdicts = [replace(one, asks_why=f"{called()} grade {_graded(one)} --why") for one in report.verdicts]
    if len(verdicts) == 1 and (then := after(verdicts[0].puzzle)) is not None:
        verdicts = [replace(verdicts[0], following=f"{then.heading} ({then.name})")]
    return replace(report, verdicts=verdicts)


def _graded(verdict: Verdict) -> str:
    """Return what to name to grade this again: a script, or the puzzle, whose notebook is found."""
    script = verdict.file.endswith(".py")
    return shlex.quote(os.path.relpath(Path(verdict.folder, verdict.file))) if script else verdict.puzzle.name


def _list() -> str:
    lines = []
    for puzzle in puzzles().values():
        two = filter(None, (puzzle.target, puzzle.star))
        figures = [", ".join(puzzle.describe(one["time"], one["memory"])) for one in two]
        effort = f"{puzzle.difficulty}, {puzzle.minutes} min"
        both = f"  {STAR} ".join(f"{one:32}" for one in figures).rstrip()
        lines.append(f"{puzzle.number!s:>2}  {puzzle.name:15} {puzzle.title:32} {effort:14} {both}")
    return "\n".join(lines)


# -- what is written -----------------------------------------------------------------------------------------------


def _faces(options: argparse.Namespace) -> list[tuple[str, Callable[[Sequence[Report]], str]]]:
    """Return each file to be written with the function that makes its text of the reports."""
    faces = [(options.json, files.as_json), (options.junit, files.as_junit), (options.csv, files.as_csv)]
    board = leaderboard.as_html if str(options.leaderboard).endswith(".html") else leaderboard.as_markdown
    faces.append((options.leaderboard, board))
    if options.each is None:
        faces.append((options.gradescope, lambda reports: files.as_gradescope(reports[0])))
    return [(target, face) for target, face in faces if target is not None]


def _check_outputs(options: argparse.Namespace) -> None:
    """Raise Usage for options that cannot work, before anything is graded."""
    for name, target in (("csv", options.csv), ("leaderboard", options.leaderboard)):
        if target is not None and options.each is None:
            raise Usage(f"--{name} is a table of students: it goes with --each DIR")
    if options.leaderboard not in (None, "-") and not options.leaderboard.endswith((".html", ".md")):
        raise Usage(f"{options.leaderboard} is no leaderboard: name it .html or .md")
    if options.each is not None and options.gradescope == "-":
        raise Usage("with --each, --gradescope names a folder: a file for each student")
    targets, each = [target for target, _ in _faces(options)], options.each and options.each.resolve()
    for target in targets:
        if targets.count(target) > 1:
            raise Usage(f"only one report can go to {'stdout' if target == '-' else target}")
        if target != "-":
            place = Path(target).resolve()
            if place.is_dir() or not os.access(place if place.exists() else place.parent, os.W_OK):
                why = "it is a folder, or is to be in one that is not there or not yours"
                raise Usage(f"{target} cannot be written: {why}")
            of_a_student = each is not None and place.is_relative_to(each) and place.parent != each
            if target.endswith((".py", ".ipynb")) or of_a_student:
                raise Usage(f"{target} may be somebody's work: give the report a file of its own, such as results.json")
    if (folder := options.gradescope) is not None and options.each is not None:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise Usage(f"{folder} is no folder, and none can be made there: {error.strerror}") from None


def _published(options: argparse.Namespace, reports: Sequence[Report]) -> int:
    """Write all files that are asked for, and then print the report, or what stdout is asked for instead: one failure
    stops no other, and while something is printed an interrupt may come. Return the exit status."""
    color = not options.plain and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    worth = options.worths
    reports = [
        replace(report, verdicts=[replace(one, worth=worth.get(one.puzzle.name)) for one in report.verdicts])
        for report in reports
    ]
    texts = {target: partial(face, reports) for target, face in _faces(options)}
    if options.gradescope is not None and options.each is not None:
        folder, graded = Path(options.gradescope), [one for one in reports if not one.not_graded]
        texts |= {str(folder / f"{one.student}.json"): partial(files.as_gradescope, one) for one in graded}
    lost = "-" in texts and 1 in closed
    printed = texts.pop("-", lambda: class_text(reports, color, options.why) + "\n")
    saved = all([_write_text(target, text) for target, text in texts.items()])
    if lost:
        print_to_stderr(f"{called()} grade: the report could not be written: stdout is closed")
    else:
        saved &= _write_text("-", printed)
    statuses = {verdict.status for report in reports for verdict in report.verdicts}
    if lost or not saved or ERROR in statuses:
        return GRADER_FAILED
    return ALL_PASS if statuses == {PASS} else SOME_FAIL


def _write_text(target: str, text: Callable[[], str]) -> bool:
    """Return whether a text could be made and written. Say so if not."""
    try:
        if target == "-":
            print(without_commands(text()), end="", flush=True)
        else:
            write_whole(Path(target), text())
    except Exception as error:
        if target == "-":
            send_nowhere(sys.stdout)
            if isinstance(error, BrokenPipeError):  # nobody reads on
                return True
        why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        print_to_stderr(f"{called()} grade: {'the report' if target == '-' else target} could not be written: {why}")
        return False
    return True


def hint(options: argparse.Namespace) -> int:
    """Carry out ``hint``: show all hints given so far and the next one, or the question for the star of a puzzle that
    is solved. What was given and what is solved is in a file, as a shell remembers nothing. Return the exit status."""
    puzzle, kept = find(options.puzzle), progress_here()
    first, why = kept.fitting(puzzle)
    places = [first] if first == len(puzzle.hints) else range(kept.take_hint(puzzle, first) + 1)
    hints = [Hint(puzzle, place, why * (place == first)) for place in places]
    print("\n\n".join([*map(str, hints), *filter(None, [kept.note])]))
    return ALL_PASS


def solution(options: argparse.Namespace) -> int:
    """Carry out ``solution``: show it to whoever has solved the puzzle, or is sure. Return the exit status."""
    puzzle = find(options.puzzle)
    if puzzle.name in progress_here().solved or options.sure:
        print(explained(puzzle))
        return ALL_PASS
    print(
        f"{puzzle.name} is not solved yet. The next hint: {called()} hint {puzzle.name}\n"
        f"If you are sure that you want to see the solution: {called()} solution {puzzle.name} --sure"
    )
    return SOME_FAIL


def progress(options: argparse.Namespace) -> int:
    """Carry out ``progress``. Return the exit status."""
    print(progress_here())
    return ALL_PASS


def watch(options: argparse.Namespace) -> int:
    """Carry out ``watch``: grade, and again whenever a file is saved, until interrupted."""
    try:
        from watchfiles import watch as changes  # only here: an optional dependency
    except ImportError:
        raise Usage('watch needs watchfiles: python -m pip install "watchfiles>=1"') from None
    paths = [Path(one) for one in options.what if is_file(one)]
    folders = {path.parent.resolve() for path in paths} or {home().resolve()}
    graded = options.what
    with closing(Examiners(options.timeout)) as examiners:
        while True:
            try:
                report = _report_on(graded, options, examiners)
                print(without_commands(report_text(report, not options.plain and sys.stdout.isatty())), flush=True)
            except PuzzleError as error:
                if graded is options.what:
                    raise
                print(without_commands(str(error)), flush=True)
            print_to_stderr("\nWaiting for a file to be saved; Ctrl-C ends this.\n")
            graded = _next_saved(changes, folders, paths)


def _next_saved(changes: Any, folders: set[Path], paths: Sequence[Path]) -> list[str]:
    """Return the files that were saved next. Raise KeyboardInterrupt if the watch ends."""
    for changed in changes(*folders, recursive=False, raise_interrupt=True):
        saved = sorted({path for _, path in changed if path.endswith((".py", ".ipynb")) and os.path.exists(path)})
        if paths:
            saved = [path for path in saved if any(os.path.samefile(path, one) for one in paths if one.exists())]
        if saved:
            return saved
    raise KeyboardInterrupt
