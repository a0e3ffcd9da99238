"""The commands ``lab``, ``reset`` and ``gallery``, and what a command line without any says."""

import argparse
import os
import shlex
import shutil
import sys
import webbrowser
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..basics.folders import BLANKS, ROOT
from ..basics.streams import print_to_stderr, send_nowhere
from ..course.specs import puzzles
from .commands import COMMANDS, called
from .copies import COURSE, NotDone, check_folder, copy_blanks, folder_for_copies, reset, short, told
from .server import NO_BROWSER, check_jupyter, open_lab

DONE, NOT_DONE = 0, 2
COPY_ONLY = "--copy-only"
OWN = (COPY_ONLY, "-h", "--help")
"""Options of ``lab`` that are not JupyterLab's."""


def main(arguments: Sequence[str]) -> int:
    """Carry out a command line, or say what there is and how to begin. Return the exit status."""
    try:
        if arguments[:1] not in (["lab"], ["reset"], ["gallery"]):
            print(numbered() if arguments == ["--version"] else overview(), flush=True)
            return DONE
        ours, others = _shared_out(arguments)
        options = _parser().parse_args(ours, argparse.Namespace(others=others))
        return int(options.do(options))
    except BrokenPipeError:
        send_nowhere(sys.stdout)
    except NotDone as error:
        print_to_stderr(f"{called()} {arguments[0]}: {error}")
    except OSError as error:
        why, where = error.strerror or error, f"{short(Path(error.filename))}: " if error.filename else ""
        print_to_stderr(f"{called()} {arguments[0]}: {where}{why}")
    return NOT_DONE


def _shared_out(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments that are ours, and JupyterLab's: behind ``lab`` and a folder, all that is not known here."""
    if arguments[0] != "lab":
        return [*arguments], []
    place = 2 if len(arguments) > 1 and not arguments[1].startswith("-") else 1
    ours = [one for one in arguments[place:] if one in OWN]
    return [*arguments[:place], *ours], [one for one in arguments[place:] if one not in OWN]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=called())
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "lab",
        description="Open JupyterLab on your own copies of the notebooks. What is in the folder stays as it is.",
        epilog="Behind the folder there may be options of JupyterLab: --no-browser, --port 9000, and so on.",
    )
    command.set_defaults(do=_lab)
    says = f"the folder of your notebooks (where you have them already, else ./{COURSE}; in a clone puzzles/mine)"
    command.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help=says)
    command.add_argument(COPY_ONLY, action="store_true", help="copy the notebooks, and open nothing")
    command = commands.add_parser("reset", description="Put a notebook of yours aside, and begin again from the blank.")
    command.set_defaults(do=_reset)
    command.add_argument("puzzle", metavar="PUZZLE", help="name or number")
    command.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="the folder of your notebooks")
    command = commands.add_parser("gallery", description="Show the gallery of all puzzles in a browser.")
    command.set_defaults(do=_gallery)
    command.add_argument("file", nargs="?", type=Path, metavar="FILE.html", help="write it to a new file instead")
    command.add_argument(NO_BROWSER, action="store_true", help="say where it is, and open nothing")
    return parser


def _lab(options: argparse.Namespace) -> int:
    command = f"{called()} lab"
    folder: Path = options.folder or folder_for_copies()
    check_folder(folder, command)
    if not options.copy_only:
        check_jupyter()
    try:
        new = copy_blanks(folder)
    except OSError as error:
        why = f"{error.strerror or error}. Name a folder of yours: {command} FOLDER"
        raise NotDone(f"your notebooks cannot be written to {short(folder)}: {why}") from None
    print(f"{len(new)} new notebooks in {short(folder)}; yours are as you left them.", flush=True)
    if options.copy_only:
        return DONE
    return open_lab(folder.resolve(), options.others, f"{command} {shlex.quote(short(folder))}")


def _reset(options: argparse.Namespace) -> int:
    print(told(*reset(options.folder or folder_for_copies(), options.puzzle)))
    return DONE


def _gallery(options: argparse.Namespace) -> int:
    page = BLANKS / "gallery.html"
    if not page.is_file():
        raise NotDone(f"there is no gallery in {BLANKS}")
    if options.file is not None:
        if os.path.lexists(options.file):
            raise NotDone(f"{options.file} is there already, and stays as it is: name another file")
        shutil.copyfile(page, options.file)
        print(f"{options.file} is written: open it in a browser")
    else:
        print(f"The gallery is {page}")
        if not options.no_browser:
            webbrowser.open(page.as_uri())
    return DONE


def numbered() -> str:
    """Return the name of the package with its version."""
    try:
        return f"{COURSE} {version(COURSE)}"
    except PackageNotFoundError:  # a clone
        return f"{COURSE}, which is not installed"


def overview() -> str:
    """Return what there is, and how to begin."""
    program = called()
    count = sum(not puzzle.repair for puzzle in puzzles().values())
    begin = {
        "lab": "open the notebooks, your own copies, in JupyterLab",
        "start 0 basic.py": "or begin in an editor: a blank puzzle as a script",
        "watch basic.py": "and grade it whenever you save it",
    }
    return "\n".join(
        [
            f"LLM training puzzles: how many GPUs train one model, in {count} puzzles ({numbered()}).",
            *("", "To begin:", *_columns({f"{program} {what}": says for what, says in begin.items()})),
            *("", "All commands:", *_columns(COMMANDS)),
            *("", f"More about each: {program} lab --help, and so on. All of it is in {ROOT}"),
        ]
    )


def _columns(rows: dict[str, str]) -> list[str]:
    wide = max(map(len, rows))
    return [f"  {name:{wide}}  {says}" for name, says in rows.items()]
