"""A learner's own copies of the notebooks, in puzzles/mine/. Needs nothing but Python.

    python -m solutions.mine             copy each blank notebook that is not there yet
    python -m solutions.mine --reset 4   keep puzzle 4 under another name and start again from the blank

No file that exists is ever overwritten, and none is ever half written.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

PUZZLES = Path(__file__).resolve().parent.parent / "puzzles"


class MineError(Exception):
    """What cannot be done, and what to write instead."""


@contextmanager
def _complete(target: Path, text: str) -> Iterator[Path]:
    """A finished file beside the target, to be moved into place; gone afterwards, whatever happens."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(0o644)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def write_all(files: Mapping[Path, str]) -> None:
    """Write files so that readers see an old text or a new one, never half of it. If one cannot be
    written, all stay as they were."""
    with ExitStack() as finished:
        moves = []
        for target, text in files.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            moves.append((finished.enter_context(_complete(target, text)), target))
        for file, target in moves:
            os.replace(file, target)


def write_whole(target: Path, text: str) -> None:
    """The same for one file."""
    write_all({target: text})


def write_new(target: Path, text: str) -> bool:
    """Write the target whole unless something is there already; tell whether it was written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _complete(target, text) as finished:
        return _give_name(finished, target)


def _give_name(file: Path, name: Path) -> bool:
    """Let the file be known by a second name as well, unless that name is taken."""
    try:
        os.link(file, name)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links: claim the name first, then fill it
        try:
            name.touch(exist_ok=False)
        except FileExistsError:
            return False
        os.replace(file, name)
    return True


def blanks(puzzles: Path) -> list[Path]:
    """The blank notebooks, in the order of the course."""
    found = sorted(puzzles.glob("*.ipynb"))
    if not found:
        raise MineError(
            f"there are no notebooks in {puzzles}: get them back with git, or with make build"
        )
    return found


def copy_blanks(puzzles: Path) -> list[Path]:
    """Copy to puzzles/mine/ what is not there yet; the new files."""
    targets = {blank: puzzles / "mine" / blank.name for blank in blanks(puzzles)}
    return [
        target
        for blank, target in targets.items()
        if write_new(target, blank.read_text(encoding="utf-8"))
    ]


def find_blank(puzzles: Path, wanted: str) -> Path:
    """The blank for what a learner calls it: ``4``, ``fsdp``, ``p04_fsdp``, ``R1`` or ``tour``."""
    found = blanks(puzzles)
    called = wanted.removesuffix(".ipynb").lower()
    called = _shared(puzzles).get(called, called)
    for blank in found:
        number, _, name = blank.stem.partition("_")
        if called in (blank.stem, name, number):
            return blank
        if called.isdecimal() and number == f"p{int(called):02}":
            return blank
    known = ", ".join(blank.stem for blank in found)
    raise MineError(f"there is no puzzle {wanted!r}. A number or one of these names: {known}")


def _shared(puzzles: Path) -> dict[str, str]:
    """Names and numbers of the puzzles that share a notebook, and its name."""
    table = puzzles.parent / "lib" / "specs.json"
    known = json.loads(table.read_text(encoding="utf-8")) if table.exists() else {}
    shared = [
        puzzle for puzzle in known.values() if not puzzle["file"].endswith(puzzle["name"])
    ]
    return {
        key: puzzle["file"]
        for puzzle in shared
        for key in (puzzle["name"], str(puzzle["number"]).lower())
    }


def reset(puzzles: Path, wanted: str) -> tuple[Path, Path | None]:
    """Start a puzzle again: its fresh copy, and where the learner's own file is kept, if there was one."""
    blank = find_blank(puzzles, wanted)
    target = puzzles / "mine" / blank.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with _complete(target, blank.read_text(encoding="utf-8")) as finished:
        worth_keeping = target.exists() and target.read_bytes() != blank.read_bytes()
        kept = _keep(target) if worth_keeping else None
        os.replace(finished, target)
    return target, kept


def _keep(file: Path) -> Path:
    """Give the file the next free numbered name."""
    for number in itertools.count(1):
        name = file.with_name(f"{file.stem}.old{number}{file.suffix}")
        if _give_name(file, name):
            return name
    raise AssertionError("unreachable")


def main(arguments: Sequence[str] | None = None, puzzles: Path = PUZZLES) -> int:
    """Copy or reset, and say what was done; 0 when it was, 1 when it could not be."""
    parser = argparse.ArgumentParser(
        prog="python -m solutions.mine", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--reset", metavar="PUZZLE", help="a number or a name: keep the old file, start again"
    )
    wanted = parser.parse_args(arguments).reset
    try:
        if wanted is None:
            new = copy_blanks(puzzles)
            print(
                f"{len(new)} new notebooks in {_short(puzzles / 'mine')}; yours are as you left them."
            )
        else:
            _say_reset(*reset(puzzles, wanted))
    except (MineError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _say_reset(fresh: Path, kept: Path | None) -> None:
    whole = "" if fresh.stem[:1] == "p" else ", all of it"
    if kept:
        print(f"Your work is kept in {_short(kept)}.")
    print(
        f"{_short(fresh)} is blank again{whole}. If it is open in JupyterLab: File, Reload Notebook from Disk."
    )


def _short(path: Path) -> str:
    return os.path.relpath(path)


if __name__ == "__main__":
    sys.exit(main())
