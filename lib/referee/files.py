"""Verdicts for other programs: JSON, JUnit XML, Gradescope's results.json, CSV."""

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from ..grading.page import text
from ..grading.verdict import ERROR, FAIL, PASS, TODO, VERSION, Report, plain

COLUMNS = ("status", "ticks", "elements", "star")  # what a table has of each puzzle
FORMULA = re.compile(r"""(?:^|[,;|"\t\r\n])\s*(?=[=+@\uff1d\uff0b\uff0d\uff20-])""")
"""Where a cell would begin with a formula's sign (or a full-width one), whatever separates cells in a spreadsheet."""
POINTS = ("points", "points possible")  # what it has of each student besides, where points are given


def puzzles_in(reports: Sequence[Report]) -> list[str]:
    """Return the names of the puzzles on which there are verdicts."""
    return list(dict.fromkeys(verdict.puzzle.name for report in reports for verdict in report.verdicts))


def as_json(reports: Sequence[Report]) -> str:
    """Return the version and all results as JSON. Results of a class name their student, also one without any."""
    whose = [({"student": report.student} if report.student else {}, report.verdicts) for report in reports]
    results = [student | verdict.as_json() for student, verdicts in whose for verdict in verdicts]
    isolation = reports[0].isolation if reports else ""
    not_graded = [report.student for report in reports if report.not_graded]
    whole = {"version": VERSION, "results": results, "not_graded": not_graded, "isolation": isolation}
    return json.dumps(whole, indent=1) + "\n"


def as_junit(reports: Sequence[Report]) -> str:
    """Return JUnit XML: a suite for each report, a case for each puzzle. A puzzle not attempted counts as skipped.

    A student who was not graded has a single case, which is an error.
    """
    suites = ElementTree.Element("testsuites")
    for report in reports:
        cases = [
            (one.status, one.puzzle.name, one.seconds, one.message, text(one, why=True)) for one in report.verdicts
        ]
        cases += [(ERROR, "not graded", 0.0, report.not_graded, "")] if report.not_graded else []
        statuses = [status for status, *_ in cases]
        counted = (("failures", FAIL), ("errors", ERROR), ("skipped", TODO))
        facts = {"name": report.student or "puzzles", "tests": str(len(cases))}
        facts |= {name: str(statuses.count(status)) for name, status in counted}
        suite = ElementTree.SubElement(suites, "testsuite", facts | {"time": f"{report.seconds:.3f}"})
        whose = f"{report.student}.puzzles" if report.student else "puzzles"
        for status, name, seconds, message, whole in cases:
            facts = {"classname": whose, "name": name, "time": f"{seconds:.3f}"}
            case = ElementTree.SubElement(suite, "testcase", facts)
            if tag := {FAIL: "failure", ERROR: "error", TODO: "skipped"}.get(status):
                ElementTree.SubElement(case, tag, message=message.split("\n")[0]).text = whole
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def as_gradescope(report: Report) -> str:
    """Return Gradescope's results.json: points for each puzzle (1 unless given), and a leaderboard (less is better)."""
    tests, board = [], []
    for verdict in report.verdicts:
        puzzle, passed = verdict.puzzle, verdict.status == PASS
        tests.append({
            "name": f"Puzzle {puzzle.number}: {puzzle.title}", "number": str(puzzle.number),
            "score": float(passed) if verdict.points is None else verdict.points,
            "max_score": verdict.worth or 1.0, "status": "passed" if passed else "failed",
            "output": text(verdict, why=True), "output_format": "text",
            "tags": [puzzle.name, verdict.status, *["star"] * verdict.starred], "visibility": "visible",
        })  # fmt: skip
        if passed:
            figures = ((puzzle.unit.name, verdict.time), (puzzle.size_unit.name, plain(verdict.memory)))
            board += [{"name": f"{puzzle.name}: {unit}", "value": value, "order": "asc"} for unit, value in figures]
    whole = {
        "score": report.points if report.worth else float(report.passed), "execution_time": round(report.seconds, 3),
        "output": f"{report.headline()}. Graded {report.isolation}.", "output_format": "text",
        "stdout_visibility": "hidden", "tests": tests, "leaderboard": board,
    }  # fmt: skip
    return json.dumps(whole, indent=1) + "\n"


def as_csv(reports: Sequence[Report]) -> str:
    """Return CSV with a row for each student: how many puzzles pass, or that nothing is graded; status, time and memory
    of each puzzle; and points, if given."""
    out = io.StringIO()
    given = any(report.worth for report in reports)
    each, whole = (*COLUMNS, *POINTS[:1] * given), POINTS * given
    columns = [f"{name} {column}" for name in puzzles_in(reports) for column in each]
    writer = csv.DictWriter(out, ["student", "passed", *whole, *columns], restval="", lineterminator="\n")
    writer.writeheader()
    for report in reports:
        passed = "not graded" if report.not_graded else report.passed
        row: dict[str, Any] = {"student": FORMULA.sub(r"\g<0>'", report.student), "passed": passed}
        if report.worth:
            row |= dict(zip(whole, (report.points, report.worth), strict=True))
        for verdict in report.verdicts:
            values = [verdict.status, verdict.time, plain(verdict.memory), "yes" if verdict.starred else ""]
            values += [verdict.points] * given
            row |= {f"{verdict.puzzle.name} {column}": value for column, value in zip(each, values, strict=True)}
        writer.writerow(row)
    return out.getvalue()
