"""A leaderboard of a class, as an HTML page or as a table in Markdown: who has most points, and with which figures."""

import string
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ..grading.page import STAR
from ..grading.verdict import PASS, Report, Verdict

HEADS = ("place", "student", "score", "pass", "stars")
STYLE = """
:root { color-scheme: light dark }
body { font-family: system-ui, sans-serif; margin: 2em }
table { border-collapse: collapse }
caption { text-align: left; font-weight: bold; padding-bottom: 0.5em }
th, td { text-align: left; padding: 0.2em 1em 0.2em 0; border-bottom: 1px solid #8888 }
td { font-variant-numeric: tabular-nums }
"""


class Row(NamedTuple):
    """A student on the leaderboard. Who has as many points shares a place; ``cells`` has a text for each puzzle."""

    place: int
    student: str
    score: float
    passed: int
    stars: int
    cells: list[str]


def standings(reports: Sequence[Report]) -> list[Row]:
    """Return the students who were graded, those with most points first: points where they are given, else scores."""
    names = _puzzles(reports)
    found = []
    for report in reports:
        if not report.not_graded:
            score = report.points if report.worth else round(sum(verdict.score for verdict in report.verdicts), 2)
            own = {verdict.puzzle.name: _figures(verdict) for verdict in report.verdicts}
            stars = sum(verdict.starred for verdict in report.verdicts)
            cells = [own.get(name, "") for name in names]
            found.append(Row(0, report.student, score, report.passed, stars, cells))
    found.sort(key=lambda row: (-row.score, row.student))
    return [row._replace(place=1 + sum(other.score > row.score for other in found)) for row in found]


def _puzzles(reports: Sequence[Report]) -> list[str]:
    return list(dict.fromkeys(verdict.puzzle.name for report in reports for verdict in report.verdicts))


def _figures(verdict: Verdict) -> str:
    """Return time and memory of a pass, and whether it has the star."""
    if verdict.status != PASS or verdict.time is None or verdict.memory is None:
        return ""
    return " · ".join([*verdict.puzzle.describe(verdict.time, verdict.memory), *[STAR] * verdict.starred])


def _table(reports: Sequence[Report]) -> tuple[list[str], list[list[str]], str]:
    """Return heads, rows and a line on those who are not in the table, or an empty text."""
    given = any(report.worth for report in reports)
    heads = ["points" if given and head == "score" else head for head in HEADS] + _puzzles(reports)
    rows = [
        [str(row.place), row.student, *(f"{value:g}" for value in row[2:5]), *row.cells] for row in standings(reports)
    ]
    missing = [report.student for report in reports if report.not_graded]
    return heads, rows, f"Not graded: {', '.join(missing)}" if missing else ""


def as_html(reports: Sequence[Report]) -> str:
    """Return an HTML page without scripts that loads nothing. Names are escaped, whatever is in them."""
    heads, rows, missing = _table(reports)
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Leaderboard</title>\n'
        f"<style>{STYLE}</style>\n<table>\n<caption>Leaderboard</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>\n<p>{escape(missing)}</p>\n</html>\n"
    )


def as_markdown(reports: Sequence[Report]) -> str:
    """Return the leaderboard as a table in Markdown."""
    heads, rows, missing = _table(reports)
    lines = [heads, ["---"] * len(heads), *([_as_text(cell) for cell in row] for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n" + (f"\n{_as_text(missing)}\n" if missing else "")


def _as_text(cell: str) -> str:
    """Return a text in which nothing is a sign of Markdown, or of HTML.

    >>> _as_text("a|b <i>")
    'a&#124;b &#60;i&#62;'
    """
    signs = string.punctuation
    return "".join(f"&#{ord(letter)};" if letter in signs else letter for letter in cell)
