"""A folder of submissions, a student each: all students and puzzles in one pool."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..course.specs import Puzzle
from ..grading.verdict import ERROR, FAIL, PASS, TODO, Report, Verdict
from .attempts import Attempt, Student, attempts_of, submissions
from .session import Allowance, Bar, Examiners, Turn

MOST_TRIES = 5  # files of one student that are graded for the same puzzle, at most


@dataclass
class Paper:
    """What one student gets back."""

    student: Student
    allowance: Allowance
    trouble: str = ""  # what could not be read, and why
    missing: int = 0  # turns that are not graded yet
    verdicts: list[Verdict] = field(default_factory=list)


def grade_class(
    folder: Path, chosen: Collection[Puzzle], named: bool, examiners: Examiners, budget: float, plain: bool
) -> list[Report]:
    """Return a report for each student of a folder, in order.

    ``chosen``: the puzzles that count, programs to be repaired only where a student has one, unless they are ``named``;
    ``budget``: seconds that the programs of one student may take; ``plain``: without a progress bar.
    """
    papers = [Paper(student, Allowance(budget)) for student in submissions(folder)]
    of_turn: dict[Turn, Paper] = {}
    with Bar(len(papers), plain, lines=True) as bar:
        for turn in examiners.graded(_turns(papers, folder, chosen, of_turn, bar)):
            paper = of_turn.pop(turn)
            paper.verdicts += turn.verdicts
            paper.missing -= 1
            if not paper.missing:
                bar.step(paper.student.name)
    return [Report(_counted(paper, chosen, named), examiners.isolation, paper.student.name) for paper in papers]


def _turns(
    papers: Sequence[Paper], folder: Path, chosen: Collection[Puzzle], of_turn: dict[Turn, Paper], bar: Bar
) -> Iterator[Turn]:
    """Give the turns of each student, whose files are read when they are due. Those named for a puzzle come first."""
    for paper in papers:
        attempts, paper.trouble = attempts_of(paper.student, folder)
        tries = [[one for one in attempts if one.puzzle == puzzle] for puzzle in chosen]
        turns = [Turn(sorted(some, key=_is_other)[:MOST_TRIES], paper.allowance) for some in tries if some]
        left_out = sum(len(some[MOST_TRIES:]) for some in tries)
        if left_out:
            more = f"{left_out} more files that define the same puzzles were not graded: {MOST_TRIES} are, at most"
            paper.trouble = "; ".join(filter(None, [paper.trouble, more]))
        paper.missing = len(turns)
        of_turn |= dict.fromkeys(turns, paper)
        yield from turns
        if not turns:
            bar.step(paper.student.name)


def _is_other(attempt: Attempt) -> bool:
    """Return whether a file is not named for the puzzle that it attempts."""
    stem = Path(attempt.submission.file if attempt.submission else "").stem
    return stem not in (attempt.puzzle.name, attempt.puzzle.file)


def _counted(paper: Paper, chosen: Collection[Puzzle], named: bool) -> list[Verdict]:
    found = [verdict.puzzle for verdict in paper.verdicts]
    asked = [puzzle for puzzle in chosen if named or puzzle in found or not puzzle.repair]
    return [_best(puzzle, paper) for puzzle in asked]


def _best(puzzle: Puzzle, paper: Paper) -> Verdict:
    """Return the best verdict on a puzzle, of a student's files that attempt it, with the trouble if none passes."""
    nothing = Verdict(puzzle, TODO, "not attempted yet: no file defines it")
    tries = [*(verdict for verdict in paper.verdicts if verdict.puzzle == puzzle), nothing]
    best = min(tries, key=lambda verdict: ((PASS, FAIL, ERROR, TODO).index(verdict.status), not verdict.starred))
    return best if best.status == PASS else replace(best, note=paper.trouble)
