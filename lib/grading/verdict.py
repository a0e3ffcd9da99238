"""The results of grading: a verdict on one puzzle, and a report on several. All interfaces show these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from ..basics.errors import NOWHERE, Place, PuzzleError
from ..basics.rules import ARGUMENT
from ..basics.units import Elements
from ..course.bounds import bounds_of
from ..course.points import score_of
from ..course.specs import Puzzle, opened_by
from ..explain.statement import Explanation, as_json
from ..record.figures.breakdown import in_words, waits_of
from ..recording.safe import LONGEST_TEXT, shown, shown_place

VERSION = 3
"""The version of the JSON. It changes when a field changes its meaning or is removed, and not for a new field."""

PASS, FAIL, TODO, ERROR = "PASS", "FAIL", "TODO", "ERROR"
"""Right and within the target; wrong or over the target; not attempted; a failure of the grader."""

TEXTS = ("problem", "expected", "got", "line")
LATEST = 1e15  # ticks: no run takes longer


class Mistake(NamedTuple):
    """The parts of a PuzzleError: what is wrong, where, what was expected, what came, the learner's line, and the name
    of the rule that is broken. Its texts are safe to show, and none is too long."""

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
            return cls(shown(str(error), LONGEST_TEXT))
        texts = {part: shown(str(getattr(error, part)), LONGEST_TEXT) for part in TEXTS}
        return cls(place=shown_place(place), rule=str(error.rule), **texts)

    @property
    def parts(self) -> list[tuple[str, str]]:
        """The parts that are not empty, without the problem, as pairs of a name and a text."""
        names = ("where", "expected", "got", "at")
        return [(name, text) for name, text in zip(names, map(str, self[1:5]), strict=True) if text]

    def as_json(self) -> dict[str, Any]:
        """Return the parts as JSON values."""
        place, batches, tick = self.place, self.place.batches, self.place.tick
        where = place._asdict() | {"text": str(place), "micro_batches": None if batches is None else sorted(batches)}
        where["tick"] = tick if tick is not None and 0 <= tick < LATEST else None  # no infinity in JSON
        del where["batches"]
        return {"rule": self.rule, "where": where, **{part: getattr(self, part) for part in TEXTS}}


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
    more: tuple[tuple[str, str], ...] = ()  # what else can be called now, in a notebook: facts with their names
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

    @property
    def slow(self) -> bool:
        """Whether its time is over the target."""
        return self.time is not None and self.time > self.puzzle.target["time"]

    @property
    def large(self) -> bool:
        """Whether its memory is over the target."""
        return self.memory is not None and self.memory > self.puzzle.target["memory"]

    def facts(self) -> list[tuple[str, str]]:
        """Return everything but status and message, as pairs of a name and a text."""
        facts, passed, held = [*self._figures()], self.status == PASS, len(self.held_at)
        if self.worth:
            facts.append(("points", f"{self.points:g} of {self.worth:g}"))
        if not passed and (idle := f"{100 * (self.idle or 0):.0f}") != "0":
            waits = in_words(waits_of(self.parts))
            facts.append(("bubble", f"{idle} percent of all ranks' time{waits and f' ({waits})'}"))
        if held:
            facts.append(("also right at", f"{held} other size{'s' * (held != 1)}"))
        facts.append(("printed", self.printed.rstrip("\n")))
        if self.chain:
            longest = "the longest chain of operations that wait for each other"
            facts.append(("where the time goes", f"{self.chain} ({longest})"))
        if self.starred:
            best = [self.puzzle.describe(one["time"], one["memory"]) for one in self.puzzle.frontier]
            facts.append(("best known", "; ".join(map(" with ".join, best))))
        facts += self.more
        if passed and self.following:
            opened = ", ".join(f"{one.number}: {one.title} ({one.name})" for one in opened_by(self.puzzle))
            facts += [("next", self.following), ("also open", opened and f"{opened}, to be repaired")]
        return [(name, text) for name, text in (*facts, ("note", self.note)) if text]

    def _figures(self) -> Iterator[tuple[str, str]]:
        """Yield time and memory, each with the target's and the star's, and the bound."""
        if self.time is None or self.memory is None:
            return
        goals = {"target": self.puzzle.target, "star": self.puzzle.star}
        shown = {name: self.puzzle.brief(one["time"], one["memory"]) for name, one in goals.items() if one}
        times, sizes = (", ".join(f"{name} {both[at]}" for name, both in shown.items()) for at in range(2))
        time, memory = self.puzzle.describe(self.time, self.memory)
        yield "time", f"{time} ({times})"
        if bound := bounds_of(self.puzzle):
            yield "bound", bound.in_words()
        yield "peak memory", f"{memory} ({sizes})"

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
        starred = f", {stars} with the star" if stars else ""
        points = f", {self.points:g} of {self.worth:g} points" if self.worth else ""
        what = "puzzles and repairs" if any(verdict.puzzle.repair for verdict in self.verdicts) else "puzzles"
        return f"{whose}{self.passed} of {count} {'puzzle passes' if count == 1 else f'{what} pass'}{starred}{points}"


def plain(elements: Elements | None) -> int | float | None:
    """Return a size as a number of JSON."""
    return elements if elements is None or isinstance(elements, int) else float(elements)
