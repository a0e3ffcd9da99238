"""Verdicts as plain text, and as HTML tables for a notebook.

A table has a caption and scopes; the status is a word, which the color only repeats. There are no scripts and no
external resources.
"""

import re
from html import escape

from ..basics.columns import in_columns
from ..basics.errors import NOWHERE
from ..explain import words
from ..explain.statement import Explanation
from .verdict import ERROR, FAIL, PASS, TODO, Report, Verdict

COLORS = {PASS: "#1a7f37", FAIL: "#b3261e", TODO: "#57606a", ERROR: "#8a4600"}
ANSI = {PASS: "32", FAIL: "31", TODO: "2", ERROR: "33"}

INK = "color:var(--jp-content-font-color1, inherit)"
CAPTION = "text-align:left;font-weight:bold;white-space:nowrap"
HEAD = "text-align:left;vertical-align:top;white-space:nowrap;padding-right:12px"
CELL = "text-align:left;vertical-align:top;white-space:pre-wrap"
CODE = CELL + ";font-family:var(--jp-code-font-family, monospace)"  # of code, and of lines that are aligned
STAR = "\N{BLACK STAR}"
EARNED = f"  {STAR} star"
LINE = "text-align:left;white-space:pre-wrap"
ALWAYS = ("printed", "note")
"""The facts that a report has without being asked."""
_LINE = re.compile(r"line \d+(?: of [^:]*?)?(?= in |:|$)")
FEW = 16
"""Words on what is wrong beside a line to look at."""
STACKED = (  # in a narrow place the names stand above what they name
    "@container(max-width:480px){.ltp-verdict :is(tbody,tr,th,td){display:block}"
    ".ltp-verdict th{padding-top:6px}.ltp-verdict caption{white-space:normal!important}}"
)


def text(verdict: Verdict, color: bool = False, why: bool = False) -> str:
    """Return a verdict as plain text: what is wrong and where, the line to look at, and the figures; or the praise.
    Below that, one fact in a line, is what was printed and what has to be known; with ``why`` all that is known."""
    return "\n".join([_head(verdict, color), *_indented(*brief(verdict), *longer(verdict, why))])


def _head(verdict: Verdict, color: bool = False) -> str:
    puzzle, at = verdict.puzzle, f", with {verdict.failed_at}" * bool(verdict.failed_at)
    head = f"{_word(verdict, color)} puzzle {puzzle.number}  {puzzle.name}{EARNED * verdict.starred}{at}"
    return ": ".join(filter(None, [head, headline(verdict)]))


def headline(verdict: Verdict) -> str:
    """Return where it has failed or, of one that has not, what it is."""
    error = verdict.error
    if error is None:
        too = ["too slow"] * verdict.slow + ["too large"] * verdict.large
        over = too and verdict.status == FAIL and verdict.right
        return f"right at this size, and {' and '.join(too)}" if over else verdict.message
    line = _LINE.match(error.line)
    moment = error.place.detail.startswith("at ")  # of the call at that line
    place = error.place._replace(detail="") if line and moment else error.place
    return ", ".join(filter(None, [str(place), line and line[0]]))


def brief(verdict: Verdict) -> list[str]:
    """Return the lines of a verdict below its first one, at most three: what is wrong, with what was expected and what
    came as far as there are words left, where to look, and the figures."""
    error, explanation = verdict.error, verdict.explanation or Explanation(NOWHERE)
    problem = error.problem.partition("\n")[0] if error is not None else ""
    if error is not None and error.rule == "idea":
        problem += f'; on the page: "{error.expected}"'
        return [problem, *words.verdict(explanation, ""), *figures(verdict)]
    most = FEW if explanation.look_at else words.MOST_WORDS - len(_head(verdict).split())
    for name in ("expected", "got") if error is not None else ():
        part = f"; {name} {getattr(error, name)}".partition("\n")[0]
        if getattr(error, name) and len(f"{problem}{part}".split()) <= most:
            problem += part
    return [*words.verdict(explanation, problem), *figures(verdict)]


def figures(verdict: Verdict) -> list[str]:
    """Return time and memory with the target's, and where more is said, in a line if there is any of these."""
    puzzle, parts = verdict.puzzle, list[str]()
    if verdict.time is not None and verdict.memory is not None:
        own = puzzle.brief(verdict.time, verdict.memory)
        goals = puzzle.describe(puzzle.target["time"], puzzle.target["memory"])
        parts = [f"{one} of {goal}" for one, goal in zip(own, goals, strict=True)]
    if verdict.status in (FAIL, TODO):
        asks = f"why: {verdict.asks_why}" if verdict.asks_why and verdict.status == FAIL else ""
        parts += filter(None, [verdict.next_hint, asks])
    elif verdict.status == PASS and verdict.following:
        parts.append(f"next: {verdict.following}")
    return [" \N{MIDDLE DOT} ".join(parts)] if parts else []


def facts(verdict: Verdict) -> list[tuple[str, str]]:
    """Return all that is known, as pairs of a name and a text: the parts of an error, the explanation, and the rest."""
    error = verdict.error
    parts = [("wrong", error.problem), *error.parts] if error is not None else []
    parts += [("verdict", verdict.message)] if verdict.message and verdict.status == FAIL and verdict.right else []
    why = words.why(verdict.explanation) if verdict.explanation is not None else []
    return [*parts, *([("why", "\n".join(why))] if why else []), *verdict.facts()]


def longer(verdict: Verdict, why: bool = True) -> list[str]:
    """Return all facts, or only those that are told without being asked for, as lines in columns."""
    told = facts(verdict) if why else [(name, fact) for name, fact in verdict.facts() if name in ALWAYS]
    lines = [(f"{name}:" * (at == 0), line) for name, fact in told for at, line in enumerate(fact.split("\n"))]
    return in_columns(lines)


def report_text(report: Report, color: bool = False, why: bool = False) -> str:
    """Return a report as plain text: a line for a pass among several, and each of the others as ``text`` has it."""
    passed = [verdict for verdict in report.verdicts if verdict.status == PASS]
    lines = iter(in_columns([_in_a_line(verdict) for verdict in passed], figures=(2, 3, 5, 6)))
    shown = [f"Grade: {report.headline()}"]
    for verdict in report.verdicts:
        if verdict.status != PASS or why or len(report.verdicts) == 1:
            shown.append(text(verdict, color, why))
        else:
            shown += [f"{_word(verdict, color)} {next(lines)}", *_indented(*longer(verdict, why=False))]
    return "\n".join([*shown, *([f"Graded {report.isolation}."] if report.isolation and not report.not_graded else [])])


def _word(verdict: Verdict, color: bool) -> str:
    word = f"{verdict.status:5}"
    return f"\033[{ANSI[verdict.status]}m{word}\033[0m" if color else word


def _in_a_line(verdict: Verdict) -> list[str]:
    """Return the puzzle, time and memory of a pass, and its star or what that asks for."""
    puzzle, star = verdict.puzzle, verdict.puzzle.star
    assert verdict.time is not None and verdict.memory is not None  # it passes
    own, wanted = puzzle.describe(verdict.time, verdict.memory), ("", "")
    remarks = [f"{STAR} star"] * verdict.starred
    remarks += ["better than the best known"] * puzzle.beats_all(verdict.time, verdict.memory)
    if star and not verdict.starred:
        wanted = puzzle.describe(star["time"], star["memory"])
        remarks.append("the star asks for")
    return [f"puzzle {puzzle.number}", puzzle.name, *own, ", ".join(remarks), *wanted]


def _indented(*lines: str) -> list[str]:
    return ["      " + line for text in lines for line in text.split("\n")]


def table(verdict: Verdict) -> str:
    """Return a verdict as HTML: what ``text`` says and, folded, a table with all that is known."""
    puzzle = verdict.puzzle
    title = f"Puzzle {puzzle.number}: {escape(puzzle.title)} {badge(verdict.status)}{EARNED * verdict.starred}"
    shown = f'<div style="{CAPTION}">{title}</div>'
    first = [f"with {verdict.failed_at}" * bool(verdict.failed_at), headline(verdict)]
    for line in filter(None, [": ".join(filter(None, first)), *brief(verdict), verdict.note]):
        shown += f'<div style="{LINE}">{_linked(line, verdict)}</div>'
    if rows := "".join(_row(name, fact, verdict) for name, fact in facts(verdict)):
        summary = f'<summary style="cursor:pointer">{"Why" if verdict.status == FAIL else "More"}</summary>'
        shown += f'<details>{summary}<table class="ltp-verdict"><tbody>{rows}</tbody></table></details>'
    return f'<div style="container-type:inline-size;{INK}"><style>{STACKED}</style>{shown}</div>'


def _row(name: str, fact: str, verdict: Verdict) -> str:
    told, look = _linked(fact, verdict), CODE if name == "at" or "\n" in fact else CELL  # "at": a line of code
    return f'<tr><th scope="row" style="{HEAD}">{escape(name)}</th><td style="{look}">{told}</td></tr>'


def _linked(text: str, verdict: Verdict) -> str:
    """Return a text as HTML, in which the name of the next puzzle leads to its notebook."""
    new_tab = ' target="_blank"' * verdict.link.startswith("https:")
    link = f'<a href="{escape(verdict.link)}"{new_tab}>{escape(verdict.following)}</a>'
    return escape(text).replace(escape(verdict.following), link) if verdict.link else escape(text)


def badge(status: str) -> str:
    """Return the status on a background of its color."""
    return f'<span style="background:{COLORS[status]};color:#ffffff;padding:1px 8px;border-radius:4px">{status}</span>'
