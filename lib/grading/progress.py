"""A learner's progress, in a small file beside the notebooks: best verdicts, right attempts, answers and hints."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from ..basics.columns import in_columns
from ..basics.saving import one_at_a_time, write_whole
from ..course.specs import Puzzle, puzzles
from .hints import Ending, fitting_hint
from .page import CAPTION, INK, STAR, badge
from .verdict import ERROR, FAIL, PASS, TODO, Verdict, plain

NAME = "progress.json"
VERSION = 1
LONGEST = 50  # right attempts of a puzzle that are kept
MOST = 1e18  # ticks or elements: what is more is no figure of a run
LONGEST_ANSWER = 20_000  # characters of an answer that is kept
FOLDER = "LLM_TRAINING_PUZZLES_PROGRESS"
"""The environment variable with the folder of the file, if it is not that of the notebooks."""


class Point(NamedTuple):
    """A right attempt: its time in ticks, its peak memory in elements, and whether it passed."""

    time: float
    memory: float
    passed: bool


def kept_in(folder: Path | None = None) -> Path:
    """Return the folder where progress is kept: the one that the environment names, else ``folder``, else that of the
    script that runs, else the current one, which is a notebook's own."""
    if named := os.environ.get(FOLDER):
        path = Path(named)
        return path.parent if path.name == NAME and not path.is_dir() else path  # whoever names the file itself
    if folder is not None:
        return folder
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None) or ""
    if not script.endswith(".py") or main.__spec__ or "ipykernel" in sys.modules:  # python -m, a prompt, a notebook
        return Path.cwd()
    return Path(script).absolute().parent


def keep(verdicts: Iterable[Verdict], folder: Path | None = None, code: str = "") -> str:
    """Record verdicts where progress is kept. Return what there is to say of that. Nothing is raised."""
    try:
        kept = Progress(kept_in(folder))
        kept.record(*verdicts, code=code)
        return kept.note
    except Exception as error:
        return f"progress could not be saved ({type(error).__name__}: {error})"


class Progress:
    """The content of the file. ``best``: status, time and memory of each puzzle; ``hints``: how many were given or
    skipped; ``trail``: the different right attempts of each puzzle, the newest last; ``endings``: how the last attempt
    at each ended; ``answers``: the code that passed last. ``note``: what there is to say of the file; ``left_alone``:
    whether it must stay as it is."""

    best: dict[str, dict[str, Any]]
    hints: dict[str, int]
    trail: dict[str, list[Point]]
    endings: dict[str, Ending]
    answers: dict[str, str]

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or kept_in()) / NAME
        self.note = ""
        if self._read():
            with self._changing():
                pass

    def _read(self) -> bool:
        """Take over what is sound in the file. Return whether something of it is not."""
        self.left_alone = False
        for part in PARTS:
            setattr(self, part, {})
        try:
            if self.path.exists() and not self.path.is_file():
                what = f"it is a folder: give it another name; {FOLDER} names the folder that {NAME} is in"
                raise OSError(errno.EINVAL, what if self.path.is_dir() else "it is no file")
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            version = kept["version"]
        except FileNotFoundError:
            return False
        except OSError as error:
            return self._leave(f"{NAME} could not be read ({error.strerror})")
        except (ValueError, LookupError, TypeError, RecursionError):
            return True
        if type(version) is int and version > VERSION:
            return self._leave(f"{NAME} is of a newer version of the puzzles ({version}; this one knows {VERSION})")
        sound = type(version) is int and {"best", "hints"} <= kept.keys()
        for part, take in PARTS.items():
            entries = kept.get(part, {})
            sound &= isinstance(entries, dict)
            for puzzle, entry in entries.items() if isinstance(entries, dict) else ():
                try:
                    getattr(self, part)[puzzle] = take(entry)
                except (ValueError, LookupError, TypeError):
                    sound = False
        return not sound

    def _leave(self, why: str) -> bool:
        self.left_alone, self.note = True, f"{why}: it stays as it is, and nothing is added to it"
        return False

    def _set_aside(self) -> None:
        """Keep a damaged file under another name, and begin a new one with what is sound in it."""
        aside = self.path.with_name(f"progress-broken-{datetime.now():%Y%m%d-%H%M%S-%f}.json")
        try:
            os.replace(self.path, aside)
        except OSError as error:
            self._leave(f"{NAME} is broken and could not be moved aside ({error.strerror})")
            return
        found = any(getattr(self, part) for part in PARTS)
        goes_on = "progress goes on with what is sound in it" if found else "progress begins anew"
        self.note = f"{NAME} was broken; it is kept as {aside.name}, and {goes_on}"

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Read the file, let the block change what it says, and write it, while others wait."""
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(self.path):
            if self._read():
                self._set_aside()
            yield
            if not self.left_alone:
                self.save()

    def save(self) -> None:
        """Write the file completely or not at all. If that fails, ``note`` says why, and nothing is raised."""
        trail = {name: [point._asdict() for point in points] for name, points in self.trail.items()}
        endings = {name: ending._asdict() for name, ending in self.endings.items()}
        kept = {"version": VERSION, "best": self.best, "hints": self.hints, "trail": trail, "endings": endings}
        try:
            write_whole(self.path, json.dumps(kept | {"answers": self.answers}, indent=1))
        except OSError as error:
            failed = f"progress could not be saved ({error.strerror})"
            self.note = "; ".join(filter(None, [self.note, failed]))

    def record(self, *verdicts: Verdict, code: str = "") -> None:
        """Keep how each attempt ended, add it to the trail if it is right, and keep its verdict if it is the best of
        its puzzle (with the star, then fast, then small). Keep the code if it passes."""
        attempted = [verdict for verdict in verdicts if verdict.status != TODO]
        if attempted:
            with self._changing():
                for verdict in attempted:
                    self._take(verdict, code)

    def _take(self, verdict: Verdict, code: str) -> None:
        name, time, memory = verdict.puzzle.name, verdict.time, plain(verdict.memory)
        self.endings[name] = Ending(verdict.right is True, time, memory)
        if verdict.right and time is not None and memory is not None:
            point = Point(time, memory, verdict.status == PASS)
            self.trail[name] = [*(one for one in self.trail.get(name, ()) if one != point), point][-LONGEST:]
        if verdict.status == PASS and 0 < len(code) <= LONGEST_ANSWER:
            self.answers[name] = code
        new = {"status": verdict.status, "time": time, "memory": memory}
        self.best[name] = min(self.best.get(name, new), new, key=partial(_rank, verdict.puzzle))

    def fitting(self, puzzle: Puzzle) -> tuple[int, str]:
        """Return the index of the hint that fits the last attempt, and why it does (see ``fitting_hint``)."""
        last, passed = self.endings.get(puzzle.name), {*self.solved} - {*self.starred}
        return fitting_hint(puzzle, last, puzzle.name in passed) if last else (0, "")

    def take_hint(self, puzzle: Puzzle, first: int = 0) -> int:
        """Return the index of the next hint from ``first`` on, or of the last one, and count it."""
        with self._changing():
            count = 1 + max(first, self.hints.get(puzzle.name, 0))
            self.hints[puzzle.name] = min(count, len(puzzle.hints))
        return self.hints[puzzle.name] - 1

    def rows(self) -> list[tuple[str, ...]]:
        """Return number, title, status, star, time and memory of every puzzle, then the figures of target and star."""
        rows: list[tuple[str, ...]] = []
        for puzzle in puzzles().values():
            best = self.best.get(puzzle.name, {"status": TODO, "memory": None})
            goals = [one if one and one["memory"] is not None else None for one in (best, puzzle.target, puzzle.star)]
            shown = [puzzle.brief(one["time"], one["memory"]) if one else ("", "") for one in goals]
            star = STAR * (puzzle.name in self.starred)
            rows.append((str(puzzle.number), puzzle.title, best["status"], star, *shown[0], *shown[1], *shown[2]))
        return rows

    @property
    def solved(self) -> list[str]:
        """The names of the solved puzzles."""
        return [name for name in puzzles() if self.best.get(name, {}).get("status") == PASS]

    @property
    def starred(self) -> list[str]:
        """The names of the puzzles that are solved with the star."""
        return [name for name in self.solved if _has_star(puzzles()[name], self.best[name])]

    def headline(self) -> str:
        """Return a line with the numbers of solved puzzles, stars, and repaired programs."""
        repairs = {name for name, puzzle in puzzles().items() if puzzle.repair}
        solved = f"{len({*self.solved} - repairs)} of {len(puzzles().keys() - repairs)} puzzles solved"
        stars = f"{len(self.starred)} of {sum(puzzle.star is not None for puzzle in puzzles().values())} stars"
        repaired = f"{len({*self.solved} & repairs)} of {len(repairs)} programs repaired"
        return f"Progress: {solved}, {stars}, {repaired}"

    def __str__(self) -> str:
        lines = in_columns([HEADS, *self.rows()], figures=(0, *range(FIGURES, len(HEADS))))
        return "\n".join([self.headline(), *lines, *filter(None, [self.note])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col" style="{NAMED}">{escape(head)}</th>' for head in HEADS[:FIGURES])
        for head in HEADS[FIGURES:]:
            heads += f'<th scope="col" style="{NAMED};text-align:right">{escape(head)}</th>'
        body = ""
        for number, title, status, *rest in self.rows():
            body += f'<tr><td>{number}</td><th scope="row" style="{NAMED}">{escape(title)}</th><td>{badge(status)}</td>'
            body += "".join(f'<td style="{NUMBER}">{escape(cell)}</td>' for cell in rest) + "</tr>"
        caption = f'<caption style="{CAPTION}">{self.headline()}</caption>'
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f'<table style="{INK}">{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{note}'


HEADS = ("#", "puzzle", "status", "star", "ticks", "elements", "target: ticks", "elements", "star: ticks", "elements")
FIGURES = 4  # from this column on there are figures
NAMED = "text-align:left;vertical-align:top;padding-right:12px"  # may be broken where there is little room
NUMBER = "text-align:right;white-space:nowrap;padding-right:12px;font-variant-numeric:tabular-nums"


def _checked(name: str, value: Any) -> Any:
    """Return a value of the file. Raise ValueError if it is none of that name."""
    match name:
        case "status":
            sound = value in (PASS, FAIL, ERROR)
        case "time" | "memory":
            sound = value is None or (type(value) in (int, float) and 0 <= value <= MOST)
        case "hints":
            sound = type(value) is int and 0 <= value <= MOST
        case _:
            sound = type(value) is (str if name == "answers" else bool)
    if not sound:
        raise ValueError(f"no {name}")
    return value


def _row(kept: Any, *names: str) -> dict[str, Any]:
    return {name: _checked(name, kept[name]) for name in names}


def _trail(points: list[Any]) -> list[Point]:
    found = [Point(**_row(point, *Point._fields)) for point in points]
    if type(points) is not list or any(None in point for point in found):
        raise ValueError("no trail")
    return found[-LONGEST:]


PARTS: Mapping[str, Callable[[Any], Any]] = {
    "best": lambda best: _row(best, "status", "time", "memory"),
    "hints": partial(_checked, "hints"),
    "trail": _trail,
    "endings": lambda ending: Ending(**_row(ending, *Ending._fields)),
    "answers": partial(_checked, "answers"),
}
"""The parts of the file, and what takes an entry of each: it raises LookupError, TypeError or ValueError for others."""


def _has_star(puzzle: Puzzle, best: dict[str, Any]) -> bool:
    figures = best["time"], best["memory"]
    return best["status"] == PASS and None not in figures and puzzle.has_star(*figures)


def _rank(puzzle: Puzzle, best: dict[str, Any]) -> tuple[float, ...]:
    """Return a key that sorts verdicts from best to worst: solved, with the star, fast, small."""
    figures = (math.inf if best[key] is None else best[key] for key in ("time", "memory"))
    return (best["status"] != PASS, not _has_star(puzzle, best), *figures)
