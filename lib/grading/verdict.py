"""The one result model: what came of an attempt at a puzzle, and of several. Every face shows these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from ..basics.errors import NOWHERE, Place, PuzzleError
from ..basics.units import Elements
from ..course.bounds import bounds_of
from ..course.specs import Puzzle
from ..record.breakdown import in_words, waits_of
from ..recording.safe import TEXTS, shown, shown_place

VERSION = 1
"""Of the model. It changes when a field changes its meaning or goes; new fields may come at any time."""

PASS, FAIL, TODO, ERROR = "PASS", "FAIL", "TODO", "ERROR"
"""Right and within the target; not so; not attempted; the grader's own fault."""

LATEST = 1e15  # ticks: what a place says beyond is no time of a run


class Mistake(NamedTuple):
    """What a PuzzleError says, in its parts: what is wrong, where, what was expected, what came, what to write instead,
    and the learner's line."""

    problem: str
    place: Place = NOWHERE
    expected: str = ""
    got: str = ""
    fix: str = ""
    line: str = ""

    @classmethod
    def of(cls, error: PuzzleError) -> Mistake:
        """Return the parts of an error; of one that has none, of a learner's own kind, the text."""
        place = getattr(error, "place", None)
        if not isinstance(place, Place):
            return cls(str(error))
        texts = map(str, (error.expected, error.got, error.fix, error.line))
        return cls(str(error.problem), shown_place(place), *texts)

    @property
    def parts(self) -> list[tuple[str, str]]:
        """All but the problem that there is, as pairs of a name and a text, in the words of the message."""
        names = ("where", "expected", "got", "instead", "at")
        return [(name, text) for name, text in zip(names, map(str, self[1:]), strict=True) if text]

    def shown(self, longest: int) -> Mistake:
        """Return the same, with texts that are safe to show, and not too long."""
        texts: dict[str, Any] = {part: shown(getattr(self, part), longest) for part in TEXTS}
        return Mistake(place=shown_place(self.place), **texts)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        rank, operation, layer, batches, tick, detail = self.place
        where = {
            "text": str(self.place), "rank": rank, "operation": operation, "layer": layer,
            "micro_batches": None if batches is None else sorted(batches),
            "tick": tick if tick is not None and 0 <= tick < LATEST else None,  # no infinity in JSON
            "detail": detail,
        }  # fmt: skip
        return {"problem": self.problem, "where": where, **{part: getattr(self, part) for part in TEXTS[1:]}}


@dataclass(frozen=True)
class Verdict:
    """What came of an attempt. Times in ticks, memory in elements, of the run at the puzzle's own size; where
    these are told in seconds and bytes, as exactly as they count."""

    puzzle: Puzzle
    status: str
    message: str  # what there is to say in words, an error with all its parts among it
    right: bool | None = None  # the weights are right and where they belong, whatever the time; None: nothing was run
    time: float | None = None
    memory: Elements | None = None
    idle: float | None = None  # the part of all ranks' time (0 to 1) in which a rank neither computes nor communicates
    seed: int | None = None  # of the other sizes
    held_at: tuple[str, ...] = ()  # other sizes at which it was right, too
    failed_at: str = ""  # the size that broke it, where it was not the puzzle's own
    error: Mistake | None = None  # the parts of the error that the message tells, where it tells one
    chain: str = ""  # of a right one that is too slow: the longest chain of its operations, as a sum of ticks
    costs_time: str = ""  # of a right one that is too slow: what it does more often than the target's
    costs_memory: str = ""  # of a right one that takes too much: what it stores and never takes out
    file: str = ""  # where the code comes from, at a shell
    printed: str = ""  # what the code has printed, in a worker
    seconds: float = 0.0  # wall-clock time of grading
    next_hint: str = ""  # what to call, or to type, for the next hint
    beside: str = ""  # what to call to see the schedule beside the target's, in a notebook
    attempts: str = ""  # what to call to see all right attempts as points, in a notebook
    solution: str = ""  # what to call to see a solution, in a notebook, where there is one
    following: str = ""  # what comes next in the course
    link: str = ""  # to the notebook of what comes next, where its address is known
    note: str = ""  # what else there is to say, for example that progress could not be saved
    parts: Mapping[str, Fraction] = field(default_factory=dict)  # where the time of all ranks goes (see ``breakdown``)

    @property
    def starred(self) -> bool:
        """Whether it passes with the star."""
        figures = self.time is not None and self.memory is not None and self.puzzle.has_star(self.time, self.memory)
        return self.status == PASS and figures

    def facts(self) -> list[tuple[str, str]]:
        """All but status and message, as pairs of a name and a text."""
        target, star = self.puzzle.target, self.puzzle.star
        facts: list[tuple[str, str]] = []
        if self.time is not None and self.memory is not None:
            wanted = [("target", target), *([("star", star)] if star else [])]
            shown = [(name, *self.puzzle.brief(one["time"], one["memory"])) for name, one in wanted]
            ticks = ", ".join(f"{name} {one}" for name, one, _ in shown)
            sizes = ", ".join(f"{name} {one}" for name, _, one in shown)
            time, memory = self.puzzle.describe(self.time, self.memory)
            facts = [("time", f"{time} ({ticks})")]
            if bound := bounds_of(self.puzzle):
                facts.append(("bound", bound.in_words()))
            facts.append(("peak memory", f"{memory} ({sizes})"))
        passed, slow = self.status == PASS, self.time is not None and self.time > target["time"]
        idle = f"{100 * (self.idle or 0):.0f}"
        waits = f" ({in_words(waits_of(self.parts))})" if waits_of(self.parts) else ""
        too = ", and may give the star away" if star and not self.starred else ""
        held = f"{len(self.held_at)} other size{'s' * (len(self.held_at) != 1)} (seed {self.seed})"
        more = (
            ("idle", not passed and idle != "0", f"{idle} percent of all ranks' time{waits}"),
            ("also right at", self.held_at, held),
            ("seed", self.failed_at and not self.held_at, f"{self.seed} (of the other sizes)"),
            ("printed", self.printed, self.printed.rstrip("\n")),
            ("stuck?", self.next_hint and not passed, f"{self.next_hint} gives the next hint"),
            (
                "where the time goes",
                self.chain,
                f"{self.chain} (the longest chain of operations that wait for each other)",
            ),
            ("costs time", self.costs_time, self.costs_time),
            ("costs memory", self.costs_memory, self.costs_memory),
            ("too slow?", self.beside and slow, f"{self.beside} draws yours beside the outline of the target's"),
            ("attempts", self.attempts and self.right, f"{self.attempts} draws yours as points of time and memory"),
            ("best known", self.starred, "; ".join(map(self._in_words, self.puzzle.frontier))),
            ("and now?", self.solution and passed, f"{self.solution} shows ours{too}"),
            ("next", self.following and passed, self.following),
            ("note", self.note, self.note),
        )
        return [*facts, *((name, text) for name, wanted, text in more if wanted)]

    def _in_words(self, point: dict[str, Any]) -> str:
        return " with ".join(self.puzzle.describe(point["time"], point["memory"]))

    def as_json(self) -> dict[str, Any]:
        """Plain values under the names of the fields."""
        puzzle = self.puzzle
        bound = bounds_of(puzzle)
        frontier = [{"time": point["time"], "memory": point["memory"]} for point in puzzle.frontier]
        return {
            "puzzle": puzzle.name, "number": puzzle.number, "title": puzzle.title,
            "status": self.status, "right": self.right, "message": self.message,
            "error": self.error and self.error.as_json(),
            "time": self.time, "memory": plain(self.memory),
            "units": {"time": puzzle.unit.name, "memory": puzzle.size_unit.name},
            "target": puzzle.target, "best_known": frontier[0],
            "star": puzzle.star, "starred": self.starred, "frontier": frontier, "bound": bound and bound.as_json(),
            "idle": self.idle, "parts": {part: float(share) for part, share in self.parts.items()},
            "seed": self.seed, "held_at": list(self.held_at), "failed_at": self.failed_at,
            "chain": self.chain, "costs_time": self.costs_time, "costs_memory": self.costs_memory,
            "file": self.file, "printed": self.printed, "seconds": round(self.seconds, 3),
            "next_hint": "" if self.status == PASS else self.next_hint, "note": self.note,
        }  # fmt: skip


@dataclass(frozen=True)
class Report:
    """Verdicts on several puzzles, and what else there is to say."""

    verdicts: Sequence[Verdict]
    isolation: str = ""  # how the code was kept apart, at a shell
    student: str = ""  # whose work it is, where a folder of submissions is graded

    @property
    def passed(self) -> int:
        """How many puzzles pass."""
        return sum(verdict.status == PASS for verdict in self.verdicts)

    @property
    def seconds(self) -> float:
        """Wall-clock time, all puzzles one after the other."""
        return sum(verdict.seconds for verdict in self.verdicts)

    def headline(self) -> str:
        """How many pass, and how many stars there are, in a line."""
        count = len(self.verdicts)
        whose = f"{self.student}: " if self.student else ""
        stars = sum(verdict.starred for verdict in self.verdicts)
        said = f"{whose}{self.passed} of {count} puzzle{'s' * (count != 1)} pass{'es' * (count == 1)}"
        return said + (f", {stars} with the star" if stars else "")


def plain(elements: Elements | None) -> int | float | None:
    """A size as JSON knows numbers."""
    return elements if elements is None or isinstance(elements, int) else float(elements)
