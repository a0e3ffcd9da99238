"""The one result model: what came of an attempt at a puzzle, and of several. Every face shows these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..basics.errors import NOWHERE, Place, PuzzleError
from ..basics.units import Elements, show_elements, show_ticks
from ..course.specs import Puzzle
from ..remote.wire import shown, shown_place

VERSION = 1
"""Of the model. It changes when a field changes its meaning or goes; new fields may come at any time."""

PASS, FAIL, TODO, ERROR = "PASS", "FAIL", "TODO", "ERROR"
"""Right and within the target; not so; not attempted; the grader's own fault."""

LATEST = 1e15
"""Ticks: what a place says beyond is no time of a run."""


class Mistake(NamedTuple):
    """What a PuzzleError says, in its parts: what is wrong, where, what was expected, what came, what to write instead,
    and the learner's line."""

    problem: str
    place: Place = NOWHERE
    expected: str = ""
    got: str = ""
    cure: str = ""
    line: str = ""

    @classmethod
    def of(cls, error: PuzzleError) -> Mistake:
        """Return the parts of an error; of one that has none, of a learner's own kind, the text."""
        place = getattr(error, "place", None)
        if not isinstance(place, Place):
            return cls(str(error))
        texts = map(str, (error.expected, error.got, error.cure, error.line))
        return cls(str(error.problem), shown_place(place), *texts)

    @property
    def parts(self) -> list[tuple[str, str]]:
        """All but the problem that there is, as pairs of a name and a text, in the words of the message."""
        named = [("where", str(self.place)), ("expected", self.expected), ("got", self.got)]
        named += [("instead", self.cure), ("at", self.line)]
        return [(name, text) for name, text in named if text]

    def shown(self, longest: int) -> Mistake:
        """Return the same, with texts that are safe to show, and not too long."""
        texts = (shown(text, longest) for text in (self.problem, self.expected, self.got, self.cure, self.line))
        problem, expected, got, cure, line = texts
        return Mistake(problem, shown_place(self.place), expected, got, cure, line)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        place = self.place
        tick = place.tick if place.tick is not None and 0 <= place.tick < LATEST else None  # no infinity in JSON
        where = {
            "text": str(place),
            "rank": place.rank,
            "operation": place.operation,
            "layer": place.layer,
            "micro_batches": None if place.batches is None else sorted(place.batches),
            "tick": tick,
            "detail": place.detail,
        }
        texts = {"expected": self.expected, "got": self.got, "cure": self.cure, "line": self.line}
        return {"problem": self.problem, "where": where, **texts}


@dataclass(frozen=True)
class Verdict:
    """What came of an attempt. Times in ticks, memory in elements, of the run at the puzzle's own size."""

    puzzle: Puzzle
    status: str
    message: str
    """What there is to say in words, an error with all its parts among it."""
    right: bool | None = None
    """Whether the weights are right and where they belong, whatever the time; None where nothing was run."""
    time: float | None = None
    memory: Elements | None = None
    idle: float | None = None
    """Part of all ranks' time (0 to 1) in which a rank neither computes nor communicates."""
    seed: int | None = None
    """Of the other sizes."""
    held_at: tuple[str, ...] = ()
    """Other sizes at which it was right, too."""
    failed_at: str = ""
    """The size that broke it, where it was not the puzzle's own."""
    error: Mistake | None = None
    """The parts of the error that the message tells, where it tells one."""
    file: str = ""
    """Where the code comes from, at a shell."""
    printed: str = ""
    """What the code has printed, in a worker."""
    seconds: float = 0.0
    """Wall-clock time of grading."""
    next_hint: str = ""
    """What to call, or to type, for the next hint."""
    beside: str = ""
    """What to call to see the schedule beside the target's, in a notebook."""
    solution: str = ""
    """What to call to see a solution, in a notebook, where there is one."""
    note: str = ""
    """What else there is to say, for example that progress could not be saved."""

    def facts(self) -> list[tuple[str, str]]:
        """All but status and message, as pairs of a name and a text."""
        facts = []
        if self.time is not None and self.memory is not None:
            facts += figures(self.puzzle, self.time, self.memory)
        if self.idle is not None:
            facts.append(("idle", f"{100 * self.idle:.0f} percent of all ranks' time"))
        if self.held_at:
            facts.append(("also right at", "; ".join(self.held_at)))
        if self.seed is not None:
            facts.append(("seed", f"{self.seed} (of the other sizes)"))
        if self.printed:
            facts.append(("printed", self.printed.rstrip("\n")))
        if self.next_hint and self.status != PASS:
            facts.append(("stuck?", f"{self.next_hint} gives the next hint"))
        if self.beside and self.time is not None and self.time > self.puzzle.target["time"]:
            facts.append(("too slow?", f"{self.beside} draws yours beside the outline of the target's"))
        if self.solution and self.status == PASS:
            facts.append(("and now?", f"{self.solution} shows ours"))
        if self.note:
            facts.append(("note", self.note))
        return facts

    def as_json(self) -> dict[str, Any]:
        """Plain values under the names of the fields."""
        puzzle = self.puzzle
        return {
            "puzzle": puzzle.name,
            "number": puzzle.number,
            "title": puzzle.title,
            "status": self.status,
            "right": self.right,
            "message": self.message,
            "error": self.error and self.error.as_json(),
            "time": self.time,
            "memory": plain(self.memory),
            "target": puzzle.target,
            "best_known": puzzle.best_known,
            "idle": self.idle,
            "seed": self.seed,
            "held_at": list(self.held_at),
            "failed_at": self.failed_at,
            "file": self.file,
            "printed": self.printed,
            "seconds": round(self.seconds, 3),
            "next_hint": "" if self.status == PASS else self.next_hint,
            "note": self.note,
        }


@dataclass(frozen=True)
class Report:
    """Verdicts on several puzzles, and what else there is to say."""

    verdicts: Sequence[Verdict]
    isolation: str = ""
    """How the code was kept apart, at a shell."""
    student: str = ""
    """Whose work it is, where a folder of submissions is graded."""

    @property
    def passed(self) -> int:
        """How many puzzles pass."""
        return sum(verdict.status == PASS for verdict in self.verdicts)

    @property
    def seconds(self) -> float:
        """Wall-clock time, all puzzles one after the other."""
        return sum(verdict.seconds for verdict in self.verdicts)

    def headline(self) -> str:
        """How many pass, in a line."""
        count = len(self.verdicts)
        whose = f"{self.student}: " if self.student else ""
        return f"{whose}{self.passed} of {count} puzzle{'s' * (count != 1)} pass{'es' * (count == 1)}"

    def as_json(self) -> dict[str, Any]:
        """Plain values: the JSON face."""
        whose = {"student": self.student} if self.student else {}
        return {
            "version": VERSION,
            "results": [whose | verdict.as_json() for verdict in self.verdicts],
            "passed": self.passed,
            "isolation": self.isolation,
        }


def figures(puzzle: Puzzle, time: float, memory: Elements) -> list[tuple[str, str]]:
    """Time and memory beside target and best known."""
    target, best = puzzle.target, puzzle.best_known
    return [
        (
            "time",
            f"{show_ticks(time)} ticks (target {show_ticks(target['time'])}, best known {show_ticks(best['time'])})",
        ),
        (
            "peak memory",
            f"{show_elements(memory)} elements (target {show_elements(target['memory'])}, "
            f"best known {show_elements(best['memory'])})",
        ),
    ]


def plain(elements: Elements | None) -> int | float | None:
    """A size as JSON knows numbers."""
    return elements if elements is None or isinstance(elements, int) else float(elements)
