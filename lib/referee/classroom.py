"""A folder of submissions, a student each: all students and puzzles in one pool."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ..course.specs import Puzzle
from ..grading.page import report_text
from ..grading.verdict import ERROR, FAIL, PASS, TODO, Report, Verdict
from .attempts import Student, files_of
from .loaded import MOST_NAMES
from .session import MOST_TRIES, Allowance, Examiners, Turn, progress_bar


def grade_class(
    students: list[Student], chosen: Collection[Puzzle], named: bool, examiners: Examiners, budget: float, plain: bool
) -> tuple[list[Report], BaseException | None]:
    """Return a report for each student of a folder, in order, and what has stopped the grading before its end, if
    something has: the reports of those who were not graded by then say so. Where nobody was, that is raised.

    ``chosen``: the puzzles that count, programs to be repaired only where a student has one, unless they are ``named``;
    ``budget``: seconds that the programs of one student may take; ``plain``: without a progress bar.
    """
    names = [puzzle.name for puzzle in chosen]
    graded: dict[str, list[Verdict]] = {}
    stopped: BaseException | None = None

    def turns() -> Iterator[Turn]:
        for student in students:  # whose files are read when it is their turn
            files, trouble = files_of(student)
            yield Turn([*files], names, allowance=Allowance(budget), whose=student.name, trouble=trouble)

    with progress_bar(len(students), plain, lines=True) as step:
        try:
            for turn in examiners.done(turns()):
                graded[turn.whose] = _counted(turn, chosen, named)
                step(turn.whose)
        except (Exception, KeyboardInterrupt) as error:
            if not graded:
                raise
            stopped = error
    why = "the grading was interrupted" if isinstance(stopped, KeyboardInterrupt) else "the grader failed"
    return [
        Report(graded.get(name, []), examiners.isolation, name, "" if name in graded else f"not graded: {why}")
        for name in (student.name for student in students)
    ], stopped


def class_text(reports: Sequence[Report], color: bool, why: bool) -> str:
    """Return the reports of a class as plain text, without what students could type next, and how many pass each
    puzzle. That of a single one is all that ``report_text`` says."""
    if len(reports) == 1:
        return report_text(reports[0], color, why)
    texts, passes = list[str](), dict[str, list[bool]]()
    for report in reports:
        verdicts = [replace(verdict, next_hint="") for verdict in report.verdicts]
        texts.append(report_text(replace(report, verdicts=verdicts, isolation=""), color, why) + "\n")
        for one in verdicts:
            passes.setdefault(f"puzzle {one.puzzle.number}  {one.puzzle.name}", []).append(one.status == PASS)
    rows = [f"{puzzle}: {sum(passed)} of {len(passed)} pass" for puzzle, passed in passes.items()]
    return "\n".join([*texts, *rows, f"Graded {reports[0].isolation}."])


def _counted(turn: Turn, chosen: Collection[Puzzle], named: bool) -> list[Verdict]:
    """Return the best verdict on each puzzle that counts, of a student's files; with the trouble if none passes."""
    files: dict[str, list[str]] = {}  # that were not graded, by the reason
    for submission, attempts, looked in turn.found:
        if not attempts and (why := looked.failed or looked.incomplete):
            files.setdefault(why, []).append(submission.file)
    reasons = [turn.trouble, *(f"{', '.join(names)}: {why}" for why, names in files.items())]
    if turn.left_out:
        again = "more files that define the same puzzles were not graded"
        reasons.append(f"{turn.left_out} {again}: {MOST_TRIES} are, at most")
    trouble = "; ".join(filter(None, reasons))
    others = [str(submission) for submission, attempts, looked in turn.found if not (attempts or looked.defines)]
    verdicts, missing = [], "; ".join(["not attempted yet: no file defines it", *others[:MOST_NAMES]])
    for puzzle in chosen:
        tries = [verdict for verdict in turn.verdicts if verdict.puzzle == puzzle]
        if named or tries or not puzzle.repair:
            tries.append(Verdict(puzzle, TODO, missing))
            best = min(tries, key=lambda one: ((PASS, FAIL, ERROR, TODO).index(one.status), not one.starred))
            verdicts.append(best if best.status == PASS else replace(best, note=trouble))
    return verdicts
