"""A learner's progress, in a small file beside the notebooks: best verdicts, right attempts, answers and hints."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from ..basics.columns import in_columns
from ..basics.saving import one_at_a_time, write_whole
from ..course.specs import Puzzle, puzzles
from .page import CAPTION, INK, STAR, badge
from .verdict import ERROR, FAIL, PASS, TODO, Verdict, plain

NAME = "progress.json"
VERSION = 1
LONGEST = 50  # right attempts of a puzzle that are kept
MOST = 1e18  # ticks or elements: what is more is no figure of a run
LONGEST_ANSWER = 20_000  # characters of an answer that is kept
FOLDER = "LLM_TRAINING_PUZZLES_PROGRESS"
"""The environment variable with the folder of the file, if it is not that of the notebooks."""
NOTEBOOKS = "LLM_TRAINING_PUZZLES_NOTEBOOKS"
"""The environment variable with the address of the notebooks, if they are not in one folder."""


def notebook_of(puzzle: Puzzle) -> str:
    """Return the address of a puzzle's notebook, for a link, or an empty text if it is not known."""
    name, known = f"{puzzle.file}.ipynb", os.environ.get(NOTEBOOKS, "")
    return known + name if known or Path(name).is_file() else ""


class Point(NamedTuple):
    """A right attempt: its time in ticks, its peak memory in elements, and whether it passed."""

    time: float
    memory: float
    passed: bool


class Ending(NamedTuple):
    """How an attempt ended: whether it was right, and its time and memory."""

    right: bool
    time: float | None
    memory: float | None

    @classmethod
    def of(cls, verdict: Verdict) -> Ending:
        """Return how the attempt of a verdict ended."""
        return cls(verdict.right is True, verdict.time, plain(verdict.memory))


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
    """Record verdicts where progress is kept. Return what there is to say of that. Nothing is raised: a verdict is
    printed whatever happens to the file."""
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

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or kept_in()) / NAME
        self.note = ""
        if self._read():
            self._change(lambda: False)

    def _read(self) -> bool:
        """Take over what is sound in the file. Return whether something of it is not."""
        self.left_alone = False
        self.best: dict[str, dict[str, Any]] = {}
        self.hints: dict[str, int] = {}
        self.trail: dict[str, list[Point]] = {}
        self.endings: dict[str, Ending] = {}
        self.answers: dict[str, str] = {}
        try:
            if self.path.exists() and not self.path.is_file():
                what = f"it is a folder: give it another name; {FOLDER} names the folder that {NAME} is in"
                raise OSError(errno.EINVAL, what if self.path.is_dir() else "it is no file")
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            version = kept["version"]
        except FileNotFoundError:
            return False
        except OSError as error:
            self._leave(f"{NAME} could not be read ({error.strerror})")
            return False
        except (ValueError, LookupError, TypeError, RecursionError):
            return True
        if type(version) is int and version > VERSION:
            self._leave(f"{NAME} is of a newer version of the puzzles ({version}; this one knows {VERSION})")
            return False
        parts = ("best", _sound), ("hints", _count), ("trail", _trail), ("endings", _ending), ("answers", _code)
        sound = [type(version) is int and {"best", "hints"} <= kept.keys()]
        for name, check in parts:
            entries = kept.get(name, {})
            sound.append(isinstance(entries, dict))
            for puzzle, entry in entries.items() if sound[-1] else ():
                try:
                    getattr(self, name)[puzzle] = check(entry)
                except (ValueError, LookupError, TypeError):
                    sound.append(False)
        return not all(sound)

    def _leave(self, why: str) -> None:
        self.left_alone, self.note = True, f"{why}: it stays as it is, and nothing is added to it"

    def _set_aside(self) -> None:
        """Begin a new file with what is sound in a damaged one, which is kept under another name."""
        aside = self.path.with_name(f"progress-broken-{datetime.now():%Y%m%d-%H%M%S-%f}.json")
        try:
            os.replace(self.path, aside)
        except OSError as error:
            self._leave(f"{NAME} is broken and could not be moved aside ({error.strerror})")
            return
        found = any((self.best, self.hints, self.trail, self.endings, self.answers))
        if found:
            self.save()
        goes_on = "progress goes on with what is sound in it" if found else "progress begins anew"
        said = f"{NAME} was broken; it is kept as {aside.name}, and {goes_on}"
        self.note = "; ".join(filter(None, [said, self.note]))

    def _change(self, how: Callable[[], bool]) -> None:
        """Read the file, change what it says, and write it if ``how`` returns true, while others wait."""
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(self.path):
            if self._read():
                self._set_aside()
            if how() and not self.left_alone:
                self.save()

    def record(self, *verdicts: Verdict, code: str = "") -> None:
        """Keep how each attempt ended, add it to the trail if it is right, and keep its verdict if it is the best of
        its puzzle (with the star, then fast, then small). Keep the code if it passes."""
        attempted = [verdict for verdict in verdicts if verdict.status != TODO]
        if attempted:
            self._change(lambda: any([self._take(verdict, code) for verdict in attempted]))

    def _take(self, verdict: Verdict, code: str) -> bool:
        """Take a verdict over. Return whether that has changed anything."""
        puzzle, time, memory = verdict.puzzle, verdict.time, plain(verdict.memory)
        before, ending = self.best.get(puzzle.name), Ending.of(verdict)
        changed, self.endings[puzzle.name] = self.endings.get(puzzle.name) != ending, ending
        if verdict.right and time is not None and memory is not None:
            point = Point(time, memory, verdict.status == PASS)
            trail = [one for one in self.trail.get(puzzle.name, []) if one != point]
            self.trail[puzzle.name], changed = [*trail, point][-LONGEST:], True
        if verdict.status == PASS and 0 < len(code) <= LONGEST_ANSWER and self.answers.get(puzzle.name) != code:
            self.answers[puzzle.name], changed = code, True
        new = {"status": verdict.status, "time": time, "memory": memory}
        if before is None or _rank(new, puzzle) < _rank(before, puzzle):
            self.best[puzzle.name], changed = new, True
        return changed

    def fitting(self, puzzle: Puzzle) -> tuple[int, str]:
        """Return the index of the hint that fits the last attempt, and why it does (see ``fitting_hint``). A file of
        before has only the right ones."""
        right = [Ending(True, point.time, point.memory) for point in self.trail.get(puzzle.name, [])]
        last = self.endings.get(puzzle.name, right[-1] if right else None)
        return fitting_hint(puzzle, last) if last else (0, "")

    def take_hint(self, puzzle: Puzzle, first: int = 0) -> int:
        """Return the index of the next hint from ``first`` on, or of the last one, and count it."""
        number = 0

        def take() -> bool:
            nonlocal number
            number = next_hint(self.hints, puzzle, first)
            return True

        self._change(take)
        return number

    def save(self) -> None:
        """Write the file completely or not at all. If that fails, ``note`` says why, and nothing is raised."""
        trail = {name: [point._asdict() for point in points] for name, points in self.trail.items()}
        endings = {name: ending._asdict() for name, ending in self.endings.items()}
        kept = {"version": VERSION, "best": self.best, "hints": self.hints, "trail": trail, "endings": endings}
        kept["answers"] = self.answers
        try:
            write_whole(self.path, json.dumps(kept, indent=1))
        except OSError as error:
            self.note = f"progress could not be saved ({error.strerror})"

    # -- how it is shown ------------------------------------------------------------------------------

    def rows(self) -> list[tuple[str, ...]]:
        """Return number, title, status, star, time and memory of every puzzle, then the figures of target and star."""
        rows: list[tuple[str, ...]] = []
        for puzzle in puzzles().values():
            best = self.best.get(puzzle.name, {"status": TODO, "time": None, "memory": None})
            shown = [
                puzzle.brief(one["time"], one["memory"]) if one and one["memory"] is not None else ("", "")
                for one in (best, puzzle.target, puzzle.star)
            ]
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
        return [name for name in self.solved if _has_star(self.best[name], puzzles()[name])]

    def headline(self) -> str:
        """Return a line with the numbers of solved puzzles, stars, and repaired programs."""
        done: dict[bool, list[bool]] = {False: [], True: []}  # whether each is solved, of puzzles and of repairs
        for name, puzzle in puzzles().items():
            done[puzzle.repair].append(name in self.solved)
        solved, repaired = (f"{sum(own)} of {len(own)}" for own in done.values())
        stars = f"{len(self.starred)} of {sum(puzzle.star is not None for puzzle in puzzles().values())} stars"
        return f"Progress: {solved} puzzles solved, {stars}, {repaired} programs repaired"

    def __str__(self) -> str:
        lines = in_columns([HEADS, *self.rows()], figures=(0, *range(FIGURES, len(HEADS))))
        return "\n".join([self.headline(), *lines, *filter(None, [self.note])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        how = [NAMED] * FIGURES + [f"{NAMED};text-align:right"] * (len(HEADS) - FIGURES)
        heads = "".join(
            f'<th scope="col" style="{style}">{escape(head)}</th>' for head, style in zip(HEADS, how, strict=True)
        )
        body = ""
        for number, title, status, *rest in self.rows():
            body += f'<tr><td>{number}</td><th scope="row" style="{NAMED}">{escape(title)}</th><td>{badge(status)}</td>'
            body += "".join(f'<td style="{NUMBER}">{escape(cell)}</td>' for cell in rest) + "</tr>"
        caption = f'<caption style="{CAPTION}">{self.headline()}</caption>'
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f'<table style="{INK}">{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{note}'


def fitting_hint(puzzle: Puzzle, last: Ending) -> tuple[int, str]:
    """Return the index of the hint that fits an attempt that ended so, and why it fits, in parentheses. That of the
    question for the star comes after all hints."""
    if not last.right or last.time is None or last.memory is None:
        return 0, ""
    target = puzzle.target
    over = {"slow": last.time > target["time"], "large": last.memory > target["memory"]}
    if any(over.values()):
        fits = [
            (_hint_for(puzzle, what), f" (your last program is right, but too {what})") for what in over if over[what]
        ]
        return min(fits)
    if puzzle.star_hint and not puzzle.has_star(last.time, last.memory):
        return len(puzzle.hints), " (your last program passes, and has no star yet)"
    return 0, ""


def _hint_for(puzzle: Puzzle, what: str) -> int:
    """Return the index of the hint for a right program that is too "slow" or "large": in a repair, of which the mistake
    is gone by then, the last one, which says how it is done."""
    return (puzzle.hints_for or {}).get(what, len(puzzle.hints) if puzzle.repair else 1) - 1


def next_hint(given: dict[str, int], puzzle: Puzzle, first: int = 0) -> int:
    """Return the index of the next hint from ``first`` on, or of the last one, and count it in ``given``."""
    number = min(max(first, given.get(puzzle.name, 0)), max(0, len(puzzle.hints) - 1))
    given[puzzle.name] = number + 1
    return number


HEADS = ("#", "puzzle", "status", "star", "ticks", "elements", "target: ticks", "elements", "star: ticks", "elements")
FIGURES = 4  # from this column on there are figures
NAMED = "text-align:left;vertical-align:top;padding-right:12px"  # may be broken where there is little room
NUMBER = "text-align:right;white-space:nowrap;padding-right:12px;font-variant-numeric:tabular-nums"


def _sound(best: dict[str, Any]) -> dict[str, Any]:
    """Return a verdict from the file. Raise LookupError, TypeError or ValueError if its values are not sound."""
    kept = {key: best[key] for key in ("status", "time", "memory")}
    sound = all(kept[key] is None or _is_figure(kept[key]) for key in ("time", "memory"))
    if kept["status"] not in (PASS, FAIL, ERROR) or not sound:
        raise ValueError("no verdict")
    return kept


def _trail(points: list[dict[str, Any]]) -> list[Point]:
    """Return points from the file. Raise LookupError, TypeError or ValueError if they are not sound."""
    if type(points) is not list:
        raise TypeError("no trail")
    found = [Point(point["time"], point["memory"], point["passed"]) for point in points]
    if not all(_is_figure(time) and _is_figure(memory) and type(passed) is bool for time, memory, passed in found):
        raise ValueError("no attempt")
    return found[-LONGEST:]


def _ending(ending: dict[str, Any]) -> Ending:
    """Return how an attempt ended from the file. Raise LookupError, TypeError or ValueError if that is not sound."""
    found = Ending(*(ending[key] for key in Ending._fields))
    figures = all(one is None or _is_figure(one) for one in (found.time, found.memory))
    if type(found.right) is not bool or not figures:
        raise ValueError("no ending")
    return found


def _count(count: int) -> int:
    """Return a number of hints from the file. Raise ValueError if it is none."""
    if type(count) is not int or not 0 <= count <= MOST:
        raise ValueError("no count")
    return count


def _code(code: str) -> str:
    """Return an answer from the file. Raise ValueError if it is none."""
    if type(code) is not str:
        raise ValueError("no code")
    return code


def _is_figure(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= MOST  # type: ignore[operator]


def _has_star(best: dict[str, Any], puzzle: Puzzle) -> bool:
    figures = best["time"], best["memory"]
    return best["status"] == PASS and None not in figures and puzzle.has_star(*figures)


def _rank(best: dict[str, Any], puzzle: Puzzle) -> tuple[float, ...]:
    """Return a key that sorts verdicts from best to worst: solved, with the star, fast, small."""
    figures = (math.inf if best[key] is None else best[key] for key in ("time", "memory"))
    return (best["status"] != PASS, not _has_star(best, puzzle), *figures)
