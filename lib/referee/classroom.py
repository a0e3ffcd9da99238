"""A folder of submissions, a student each: all students and puzzles in one pool."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..course.specs import Puzzle
from ..grading.verdict import ERROR, FAIL, PASS, TODO, Report, Verdict
from .attempts import Student, files_of, submissions
from .session import MOST_TRIES, Allowance, Bar, Examiners, Turn


@dataclass
class Paper:
    """What is graded of one student, and what could not be read."""

    student: Student
    turn: Turn = field(default_factory=lambda: Turn([]))
    trouble: str = ""  # what could not be read, and why
    graded: bool = False


def grade_class(
    folder: Path, chosen: Collection[Puzzle], named: bool, examiners: Examiners, budget: float, plain: bool
) -> tuple[list[Report], BaseException | None]:
    """Return a report for each student of a folder, in order, and what has stopped the grading before its end, if
    something has: the reports of those who were not graded by then say so. Where nobody was, that is raised.

    ``chosen``: the puzzles that count, programs to be repaired only where a student has one, unless they are ``named``;
    ``budget``: seconds that the programs of one student may take; ``plain``: without a progress bar.
    """
    papers = [Paper(student) for student in submissions(folder)]
    of_turn: dict[Turn, Paper] = {}
    stopped: BaseException | None = None
    with Bar(len(papers), plain, lines=True) as bar:
        try:
            for turn in examiners.done(_turns(papers, folder, chosen, budget, of_turn)):
                paper = of_turn.pop(turn)
                paper.trouble = "; ".join(filter(None, [paper.trouble, *_trouble(turn)]))
                paper.graded = True
                bar.step(paper.student.name)
        except (Exception, KeyboardInterrupt) as error:
            if not any(paper.graded for paper in papers):
                raise
            stopped = error
    why = "the grading was interrupted" if isinstance(stopped, KeyboardInterrupt) else "the grader failed"
    return [
        Report(_counted(paper, chosen, named), examiners.isolation, paper.student.name)
        if paper.graded
        else Report([], examiners.isolation, paper.student.name, f"not graded: {why}")
        for paper in papers
    ], stopped


def _turns(
    papers: Sequence[Paper], folder: Path, chosen: Collection[Puzzle], budget: float, of_turn: dict[Turn, Paper]
) -> Iterator[Turn]:
    """Give the turn of each student, whose files are read when it is due."""
    names = [puzzle.name for puzzle in chosen]
    for paper in papers:
        files, paper.trouble = files_of(paper.student, folder)
        paper.turn = Turn([*files], names, goes_on=True, allowance=Allowance(budget))
        of_turn[paper.turn] = paper
        yield paper.turn


def _trouble(turn: Turn) -> Iterator[str]:
    """Give a sentence on what was not graded, and why, for files with the same reason together."""
    files: dict[str, list[str]] = {}
    for submission, attempts, found in turn.found:
        if not attempts and (why := found.failed or found.incomplete):
            files.setdefault(why, []).append(submission.file)
    yield from (f"{', '.join(names)}: {why}" for why, names in files.items())
    if turn.left_out:
        yield f"{turn.left_out} more files that define the same puzzles were not graded: {MOST_TRIES} are, at most"


def _counted(paper: Paper, chosen: Collection[Puzzle], named: bool) -> list[Verdict]:
    found = [verdict.puzzle for verdict in paper.turn.verdicts]
    wanted = [puzzle for puzzle in chosen if named or puzzle in found or not puzzle.repair]
    return [_best(puzzle, paper) for puzzle in wanted]


def _best(puzzle: Puzzle, paper: Paper) -> Verdict:
    """Return the best verdict on a puzzle, of a student's files that attempt it, with the trouble if none passes."""
    nothing = Verdict(puzzle, TODO, "not attempted yet: no file defines it")
    tries = [*(verdict for verdict in paper.turn.verdicts if verdict.puzzle == puzzle), nothing]
    best = min(tries, key=lambda verdict: ((PASS, FAIL, ERROR, TODO).index(verdict.status), not verdict.starred))
    return best if best.status == PASS else replace(best, note=paper.trouble)
