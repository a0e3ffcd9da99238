"""The results of grading: a verdict on one puzzle, and a report on several. All interfaces show these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from ..basics.errors import NOWHERE, Place, PuzzleError
from ..basics.rules import ARGUMENT
from ..basics.units import Elements
from ..course.bounds import bounds_of
from ..course.outlines import is_known
from ..course.specs import Puzzle, opened_by
from ..explain.statement import Explanation, as_json
from ..record.figures.breakdown import in_words, waits_of
from ..recording.safe import shown, shown_place
from .points import score_of

VERSION = 3
"""The version of the JSON. It changes when a field changes its meaning or is removed; new fields may come at any
time."""

PASS, FAIL, TODO, ERROR = "PASS", "FAIL", "TODO", "ERROR"
"""Right and within the target; wrong or over the target; not attempted; a failure of the grader."""

TEXTS = ("problem", "expected", "got", "line")
LATEST = 1e15  # ticks: no run takes longer


class Mistake(NamedTuple):
    """The parts of a PuzzleError: what is wrong, where, what was expected, what came, the learner's line, and the name
    of the rule that is broken."""

    problem: str
    place: Place = NOWHERE
    expected: str = ""
    got: str = ""
    line: str = ""
    rule: str = ARGUMENT

    @classmethod
    def of(cls, error: PuzzleError) -> Mistake:
        """Return the parts of an error, or the text of a learner's own kind of error without parts."""
        place = getattr(error, "place", None)
        if not isinstance(place, Place):
            return cls(str(error))
        texts = map(str, (error.expected, error.got, error.line, error.rule))
        return cls(str(error.problem), shown_place(place), *texts)

    @property
    def parts(self) -> list[tuple[str, str]]:
        """The parts that are not empty, without the problem, as pairs of a name and a text."""
        names = ("where", "expected", "got", "at")
        return [(name, text) for name, text in zip(names, map(str, self[1:5]), strict=True) if text]

    def shown(self, longest: int) -> Mistake:
        """Return a copy with texts that are safe to show, and not too long."""
        texts: dict[str, Any] = {part: shown(getattr(self, part), longest) for part in TEXTS}
        return self._replace(place=shown_place(self.place), **texts)

    def as_json(self) -> dict[str, Any]:
        """Return the parts as JSON values."""
        rank, operation, layer, batches, tick, detail = self.place
        where = {
            "text": str(self.place), "rank": rank, "operation": operation, "layer": layer,
            "micro_batches": None if batches is None else sorted(batches),
            "tick": tick if tick is not None and 0 <= tick < LATEST else None,  # no infinity in JSON
            "detail": detail,
        }  # fmt: skip
        texts = {part: getattr(self, part) for part in TEXTS}
        return {"rule": self.rule, "where": where, **texts}


@dataclass(frozen=True)
class Verdict:
    """The result of grading an attempt. Time (ticks) and memory (elements) are those of the run at the puzzle's own
    size; in seconds and bytes they are rounded as they count."""

    puzzle: Puzzle
    status: str
    message: str  # the verdict in words, with all parts of an error
    right: bool | None = None  # whether weights are right and where they belong, at any time; None: nothing was run
    time: float | None = None
    memory: Elements | None = None
    idle: float | None = None  # the share (0 to 1) of all ranks' time in which they neither compute nor communicate
    held_at: tuple[str, ...] = ()  # other sizes at which it was right, too
    failed_at: str = ""  # the other size at which it was wrong
    error: Mistake | None = None  # the parts of the error in the message, if there is one
    explanation: Explanation | None = None  # why it is wrong, slow or large, where its run is known
    chain: str = ""  # the longest chain of operations, as a sum of ticks, if right but too slow
    peak_memory: Elements | None = None  # what it takes at its peak, without rounding, if too large
    peak: Sequence[Mapping[str, Any]] = ()  # each thing that it holds at its peak, as JSON values, if too large
    file: str = ""  # the file of the code, at a shell
    folder: str = ""  # of that file, beside which progress is kept
    printed: str = ""  # the output of the code, in a worker
    seconds: float = 0.0  # wall-clock time of grading
    asks_why: str = ""  # the call or command that shows more of the explanation
    next_hint: str = ""  # the call or command for the next hint
    beside: str = ""  # the call that draws the schedule above the target's, in a notebook
    draws_peak: str = ""  # the call that draws the schedule with marks on what is in memory at the peak, in a notebook
    attempts: str = ""  # the call that draws all right attempts as points, in a notebook
    solution: str = ""  # the call that shows a solution, in a notebook, if there is one
    following: str = ""  # the next puzzle of the course
    link: str = ""  # to the notebook of the next puzzle, if its address is known
    note: str = ""  # a further remark, for example that progress could not be saved
    parts: Mapping[str, Fraction] = field(default_factory=dict)  # the time of all ranks by parts (see ``breakdown``)
    worth: float | None = None  # the points that the puzzle is worth, where points are given

    @property
    def starred(self) -> bool:
        """Whether it passes with the star."""
        figures = self.time is not None and self.memory is not None and self.puzzle.has_star(self.time, self.memory)
        return self.status == PASS and figures

    @property
    def score(self) -> float:
        """From 0 to 1, by the formula of ``points``: 0 unless it passes, 1 on the frontier."""
        if self.status != PASS or self.time is None or self.memory is None:
            return 0.0
        return score_of(self.puzzle, self.time, self.memory)

    @property
    def points(self) -> float | None:
        """The score times what the puzzle is worth, where points are given."""
        return None if self.worth is None else round(self.score * self.worth, 2)

    def facts(self) -> list[tuple[str, str]]:
        """Return everything but status and message, as pairs of a name and a text."""
        target, star = self.puzzle.target, self.puzzle.star
        facts: list[tuple[str, str]] = []
        if self.time is not None and self.memory is not None:
            wanted = [("target", target), *([("star", star)] if star else [])]
            shown = [(name, *self.puzzle.brief(one["time"], one["memory"])) for name, one in wanted]
            ticks = ", ".join(f"{name} {one}" for name, one, _ in shown)
            sizes = ", ".join(f"{name} {one}" for name, _, one in shown)
            time, memory = self.puzzle.describe(self.time, self.memory)
            facts.append(("time", f"{time} ({ticks})"))
            if bound := bounds_of(self.puzzle):
                facts.append(("bound", bound.in_words()))
            facts.append(("peak memory", f"{memory} ({sizes})"))
        large = self.memory is not None and self.memory > target["memory"]
        passed, slow = self.status == PASS, self.time is not None and self.time > target["time"]
        idle = f"{100 * (self.idle or 0):.0f}"
        waits = f" ({in_words(waits_of(self.parts))})" if waits_of(self.parts) else ""
        too = ", and may give the star away" if star and not self.starred else ""
        held = f"{len(self.held_at)} other size{'s' * (len(self.held_at) != 1)}"
        chain = f"{self.chain} (the longest chain of operations that wait for each other)"
        to_star = f"{self.beside[:-1]}, star=True)"
        best = [" with ".join(self.puzzle.describe(one["time"], one["memory"])) for one in self.puzzle.frontier]
        opened = ", ".join(f"{one.number}: {one.title} ({one.name})" for one in opened_by(self.puzzle))
        points = f"{self.points:g} of {self.worth:g}" if self.worth else ""
        more = (
            ("points", points, points),
            ("idle", not passed and idle != "0", f"{idle} percent of all ranks' time{waits}"),
            ("also right at", self.held_at, held),
            ("printed", self.printed, self.printed.rstrip("\n")),
            ("stuck?", self.next_hint and not passed, f"{self.next_hint} gives the next hint"),
            ("where the time goes", self.chain, chain),
            ("too slow?", self.beside and slow, f"{self.beside} draws yours beside the outline of the target's"),
            ("too large?", self.draws_peak and large, f"{self.draws_peak} marks what has made the tensors at the peak"),
            (
                "and the star?",
                self.beside and passed and too and is_known(self.puzzle),
                f"{to_star} draws yours beside the star's outline",
            ),
            ("attempts", self.attempts and self.right, f"{self.attempts} draws yours as points of time and memory"),
            ("best known", self.starred, "; ".join(best)),
            ("and now?", self.solution and passed, f"{self.solution} shows ours{too}"),
            ("next", self.following and passed, self.following),
            ("also open", self.following and passed and opened, f"{opened}, to be repaired"),
            ("note", self.note, self.note),
        )
        return [*facts, *((name, text) for name, wanted, text in more if wanted)]

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON values under the names of the fields."""
        puzzle = self.puzzle
        bound = bounds_of(puzzle)
        frontier = [{"time": point["time"], "memory": point["memory"]} for point in puzzle.frontier]
        return {
            "puzzle": puzzle.name, "number": puzzle.number, "title": puzzle.title,
            "status": self.status, "right": self.right is True, "message": self.message,
            "score": self.score, "points": self.points, "worth": self.worth,
            "error": self.error and self.error.as_json(),
            "time": self.time, "memory": plain(self.memory),
            "units": {"time": puzzle.unit.name, "memory": puzzle.size_unit.name},
            "target": puzzle.target, "best_known": frontier[0],
            "star": puzzle.star, "starred": self.starred, "frontier": frontier, "bound": bound and bound.as_json(),
            "idle": self.idle, "parts": {part: float(share) for part, share in self.parts.items()},
            "held_at": list(self.held_at), "failed_at": self.failed_at,
            "explanation": self.explanation and as_json(self.explanation), "chain": self.chain,
            "peak_memory": plain(self.peak_memory), "peak": [*self.peak],
            "file": self.file, "printed": self.printed, "seconds": round(self.seconds, 3),
            "next_hint": "" if self.status == PASS else self.next_hint, "note": self.note,
        }  # fmt: skip


@dataclass(frozen=True)
class Report:
    """Verdicts on several puzzles, and how they were graded."""

    verdicts: Sequence[Verdict]
    isolation: str = ""  # how the code was kept apart, at a shell
    student: str = ""  # whose work it is, where a folder of submissions is graded
    not_graded: str = ""  # why there are no verdicts, where a class was not graded to its end

    @property
    def passed(self) -> int:
        """The number of puzzles that pass."""
        return sum(verdict.status == PASS for verdict in self.verdicts)

    @property
    def worth(self) -> float | None:
        """The points that all puzzles together are worth, where points are given."""
        worths = [verdict.worth for verdict in self.verdicts if verdict.worth is not None]
        return sum(worths) if worths else None

    @property
    def points(self) -> float:
        """The points of all puzzles together."""
        return round(sum(verdict.points or 0.0 for verdict in self.verdicts), 2)

    @property
    def seconds(self) -> float:
        """The wall-clock time of all puzzles together."""
        return sum(verdict.seconds for verdict in self.verdicts)

    def headline(self) -> str:
        """Return a line with the numbers of passes and stars, or why nothing is graded."""
        count = len(self.verdicts)
        whose = f"{self.student}: " if self.student else ""
        if self.not_graded:
            return f"{whose}{self.not_graded}"
        stars = sum(verdict.starred for verdict in self.verdicts)
        said = f"{whose}{self.passed} of {count} puzzle{'s' * (count != 1)} pass{'es' * (count == 1)}"
        said += f", {stars} with the star" if stars else ""
        return said + (f", {self.points:g} of {self.worth:g} points" if self.worth else "")


def plain(elements: Elements | None) -> int | float | None:
    """Return a size as a number of JSON."""
    return elements if elements is None or isinstance(elements, int) else float(elements)
