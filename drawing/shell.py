"""``python -m lib draw``: the schedule of a function in a file, or the profile of a real run, as a picture, a page, a
trace or text.

A function that fails is drawn up to its error. The exit status is 0 if all is drawn, 1 if the function fails, and 2 for
a wrong command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lib.basics.errors import PuzzleError
from lib.grading.commandline import Usage, function_in, size_for
from lib.lab.commands import called
from lib.real.traces.files import is_trace, trace
from lib.real.traces.profile import Profile
from lib.running.options import add_machine
from lib.running.run import Run, run
from lib.schedules.program import Schedule, schedule

from .beside.compare import compare
from .ink.figure import write
from .playing.perfetto import perfetto
from .playing.player import play
from .schedule.links import LINKS
from .schedule.picture import WIDTH, draw

DRAWN, FAILED, USAGE = 0, 1, 2
ENDINGS = (".svg", ".html", ".json", ".txt")


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line, and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if any(map(is_trace, options.what)):
            return _draw_profile(options)
        functions = [schedule(Path(what)) if what.endswith(".csv") else function_in(what) for what in options.what]
        _check_output(options, len(functions))
        pairs = [_run(function, options) for function in functions]
        _show([done for done, _ in pairs], options, options.what)
        failed = [found for _, found in pairs if found is not None]
    except Usage as error:
        print(f"{called()} draw: {error}", file=sys.stderr)
        return USAGE
    except PuzzleError as error:
        failed = [error]
    for found in failed:
        print(found, file=sys.stderr)
    return FAILED if failed else DRAWN


def _draw_profile(options: argparse.Namespace) -> int:
    """Draw the profile that all of the files are together, and return the exit status."""
    if not all(map(is_trace, options.what)):
        raise Usage("files of a real run and programs are compared in Python: compare(trace(...), run(...))")
    if options.play:
        raise Usage("a profile has no code to step through: --play is for programs")
    _check_output(options, 1)
    profile = trace(options.what, step=options.step)
    _show([profile], options, [profile.name])
    return FAILED if profile.problems or profile.failure is not None else DRAWN


def _run(function: Callable[[Any], Any], options: argparse.Namespace) -> tuple[Run, PuzzleError | None]:
    """Return the run of a function, and the error that has ended it, if any. Raise PuzzleError if there is no run."""
    try:
        sizes: dict[str, Any] = function.sizes if isinstance(function, Schedule) else {}
        return run(function, timeout=options.timeout, **sizes | size_for(function, options)), None
    except PuzzleError as error:
        if error.run is None:
            raise
        return error.run, error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{called()} draw",
        description="Run a function of a file of yours on the simulated machine, and draw what happened. Of the file "
        "only imports, definitions, classes and constants are run, in this process: draw only what you trust. Files "
        "that PyTorch's profiler or NCCL's flight recorder has written are drawn as well, rank*.json.gz, and a .csv "
        "file with the rows of a pipeline schedule.",
        epilog="Exit status: 0 drawn, 1 the function fails or the files do not fit together, 2 usage.",
    )
    add = parser.add_argument
    says = "a .py or .ipynb file and a function in it, or rows in a .csv file; several: compare. Or the files of a"
    add("what", nargs="+", metavar="FILE:function", help=f"{says} real run, one for each rank")
    written = "file to write: .svg, .html, .txt, or .json for ui.perfetto.dev; without: text on stdout"
    add("-o", "--out", metavar="F", help=written)
    add_machine(parser)
    add("--play", action="store_true", help="with .html: a page that plays the schedule")
    add("--title", help="title of the picture")
    add("--step", metavar="N", type=int, help="of the files of a real run: the number of the step (the last)")
    add("--links", choices=LINKS, default="auto", help="arrows of sends, ties of collectives (auto: if there is room)")
    add("--no-memory", action="store_true", help="without the memory of the ranks")
    add("--width", metavar="PIXELS", type=float, default=WIDTH, help=f"width of the picture ({WIDTH:g})")
    add("--timeout", metavar="S", type=float, default=60.0, help="seconds for a run (60)")
    return parser


def _check_output(options: argparse.Namespace, drawn: int) -> None:
    """Raise Usage for a file that cannot be written, before anything is run."""
    ending = "" if options.out is None else Path(options.out).suffix.lower()
    if options.out is not None and ending not in ENDINGS:
        raise Usage(f"{options.out}: the ending says what is written: {', '.join(ENDINGS)}")
    if options.play and (ending != ".html" or drawn > 1):
        raise Usage("--play writes one function as a page: -o schedule.html")
    if ending == ".json" and drawn > 1:
        raise Usage("a .json file holds one schedule")
    if drawn > 1 and (options.title or options.no_memory):
        raise Usage("--title and --no-memory are for one function: several have their names, and no memory")


def _show(runs: Sequence[Run | Profile], options: argparse.Namespace, named: Sequence[str]) -> None:
    text = "\n\n".join(map(str, runs))
    if options.out is None:
        print(text)
        return
    own = [run.name for run in runs]
    target, how = Path(options.out), {"links": options.links, "width": options.width}
    if options.play:
        play(runs[0], title=options.title).save(target)
    elif target.suffix.lower() not in (".svg", ".html"):
        write(target, {".json": lambda: perfetto(runs[0]), ".txt": lambda: f"{text}\n"})
    elif len(runs) > 1:
        compare(*runs, titles=own if len({*own}) == len(own) else named, **how).save(target)
    else:
        draw(runs[0], memory=not options.no_memory, title=options.title, **how).save(target)
    print(f"{target} is written")
