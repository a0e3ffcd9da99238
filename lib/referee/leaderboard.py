"""A leaderboard of a class, as an HTML page or as a table in Markdown: who has most points, and with which figures."""

import string
from collections.abc import Sequence
from html import escape

from ..grading.page import STAR
from ..grading.verdict import PASS, Report, Verdict
from .files import puzzles_in

STYLE = """
:root { color-scheme: light dark }
body { font-family: system-ui, sans-serif; margin: 2em }
table { border-collapse: collapse }
caption { text-align: left; font-weight: bold; padding-bottom: 0.5em }
th, td { text-align: left; padding: 0.2em 1em 0.2em 0; border-bottom: 1px solid #8888 }
td { font-variant-numeric: tabular-nums }
"""


def _figures(verdict: Verdict) -> str:
    """Return time and memory of a pass, and whether it has the star."""
    if verdict.status != PASS or verdict.time is None or verdict.memory is None:
        return ""
    return " · ".join([*verdict.puzzle.describe(verdict.time, verdict.memory), *[STAR] * verdict.starred])


def table(reports: Sequence[Report]) -> tuple[list[str], list[list[str]], str]:
    """Return heads, a row for each student who was graded, and a line on the others, or an empty text. Those with most
    come first, of points where they are given, else of scores; who has as much shares a place."""
    names, given = puzzles_in(reports), any(report.worth for report in reports)
    heads = ["place", "student", "points" if given else "score", "pass", "stars", *names]
    whole = [report.points if report.worth else sum(one.score for one in report.verdicts) for report in reports]
    graded = [(round(most, 2), one) for most, one in zip(whole, reports, strict=True) if not one.not_graded]
    rows = []
    for most, report in sorted(graded, key=lambda one: (-one[0], one[1].student)):
        place = 1 + sum(other > most for other, _ in graded)
        own = {verdict.puzzle.name: _figures(verdict) for verdict in report.verdicts}
        stars = sum(verdict.starred for verdict in report.verdicts)
        counted = [f"{place}", report.student, f"{most:g}", f"{report.passed}", f"{stars}"]
        rows.append([*counted, *(own.get(name, "") for name in names)])
    missing = [report.student for report in reports if report.not_graded]
    return heads, rows, f"Not graded: {', '.join(missing)}" if missing else ""


def as_html(reports: Sequence[Report]) -> str:
    """Return an HTML page without scripts that loads nothing. Names are escaped, whatever is in them."""
    heads, rows, missing = table(reports)
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Leaderboard</title>\n'
        f"<style>{STYLE}</style>\n<table>\n<caption>Leaderboard</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>\n<p>{escape(missing)}</p>\n</html>\n"
    )


def as_markdown(reports: Sequence[Report]) -> str:
    """Return the leaderboard as a table in Markdown."""
    heads, rows, missing = table(reports)
    lines = [heads, ["---"] * len(heads), *([_as_text(cell) for cell in row] for row in rows)]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{text}\n" + (f"\n{_as_text(missing)}\n" if missing else "")


def _as_text(cell: str) -> str:
    """Return a text in which nothing is a sign of Markdown, or of HTML.

    >>> _as_text("a|b <i>")
    'a&#124;b &#60;i&#62;'
    """
    signs = string.punctuation
    return "".join(f"&#{ord(letter)};" if letter in signs else letter for letter in cell)
