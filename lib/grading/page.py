"""Verdicts as plain text, and as HTML tables for a notebook.

A table has a caption and scopes; the status is a word, which the color only repeats. There are no scripts and no
external resources.
"""

import re
from collections.abc import Sequence
from html import escape

from ..basics.columns import in_columns
from ..basics.errors import NOWHERE
from ..explain import words
from ..explain.statement import Explanation
from .verdict import ERROR, FAIL, PASS, TODO, Mistake, Report, Verdict

COLORS = {PASS: "#1a7f37", FAIL: "#b3261e", TODO: "#57606a", ERROR: "#8a4600"}
ANSI = {PASS: "32", FAIL: "31", TODO: "2", ERROR: "33"}

INK = "color:var(--jp-content-font-color1, inherit)"
CAPTION = "text-align:left;font-weight:bold;white-space:nowrap"
HEAD = "text-align:left;vertical-align:top;white-space:nowrap;padding-right:12px"
CELL = "text-align:left;vertical-align:top;white-space:pre-wrap"
CODE = CELL + ";font-family:var(--jp-code-font-family, monospace)"  # of code, and of lines that are aligned
STAR = "\N{BLACK STAR}"
LINE = "text-align:left;white-space:pre-wrap"
FOLD = {PASS: "More", FAIL: "Why", TODO: "More", ERROR: "More"}
"""What the fold of a verdict is called."""
ALWAYS = ("printed", "note")
"""The facts that a report has without being asked."""
_LINE = re.compile(r"line \d+(?: of [^:]*?)?(?= in |:|$)")
NOTHING = Explanation(NOWHERE)
FEW = 16
"""Words on what is wrong beside a line to look at."""
PHONE = 480
"""In a place of fewer pixels the names stand above what they name."""
STACKED = (
    f"@container(max-width:{PHONE}px){{.ltp-verdict :is(tbody,tr,th,td){{display:block}}"
    ".ltp-verdict th{padding-top:6px}.ltp-verdict caption{white-space:normal!important}}"
)
CODES = ("at",)  # the parts of an error that are lines of code


def text(verdict: Verdict, color: bool = False, why: bool = False) -> str:
    """Return a verdict as plain text: what is wrong and where, the line to look at, and the figures; or the praise.
    Below that, one fact in a line, is what was printed and what has to be known; with ``why`` all that is known."""
    more = longer(verdict) if why else _always(verdict)
    return "\n".join([_head(verdict, color), *_below(*brief(verdict), *more)])


def _always(verdict: Verdict) -> list[str]:
    """Return the facts that are told without being asked for."""
    return in_columns(_lines([(name, fact) for name, fact in verdict.facts() if name in ALWAYS]))


def _head(verdict: Verdict, color: bool) -> str:
    puzzle, error = verdict.puzzle, verdict.error
    head = f"{_word(verdict, color)} puzzle {puzzle.number}  {puzzle.name}{f'  {STAR} star' * verdict.starred}"
    if error is None:
        return f"{head}: {_over(verdict) or verdict.message}"
    line = _LINE.match(error.line)
    moment = error.place.detail.startswith("at ")  # of the call at that line
    place = error.place._replace(detail="") if line and moment else error.place
    where = ", ".join(filter(None, [str(place), line and line[0]]))
    at = f", with {verdict.failed_at}" if verdict.failed_at else ""
    return f"{head}{at}: {where}" if where else f"{head}{at}"


def _over(verdict: Verdict) -> str:
    """Return of what a right run takes too much, or an empty text."""
    target, time, memory = verdict.puzzle.target, verdict.time, verdict.memory
    if verdict.status != FAIL or not verdict.right or time is None or memory is None:
        return ""
    too = ["too slow"] * (time > target["time"]) + ["too large"] * (memory > target["memory"])
    return f"right, and {' and '.join(too)}" if too else ""


def brief(verdict: Verdict) -> list[str]:
    """Return the lines of a verdict below its first one, at most three."""
    lines: list[str] = []
    if verdict.error is not None:
        known = verdict.explanation or NOTHING
        most = FEW if known.look_at else words.MOST_WORDS - len(_head(verdict, False).split())
        lines += words.verdict(known, _in_short(verdict.error, most))
    elif verdict.explanation is not None:
        lines += words.verdict(verdict.explanation, "")
    return [*lines, *filter(None, [figures(verdict)])]


def _in_short(error: Mistake, most: int) -> str:
    """Return what is wrong, with what was expected and what came as far as there are words left."""
    said = error.problem.partition("\n")[0]
    if error.rule == "idea":
        page = f'; on the page: "{error.expected}"'
        return said + (page if len(f"{said}{page}".split()) < most else "; the page asks otherwise")
    for name, text in (("expected", error.expected), ("got", error.got)):
        part = text.partition("\n")[0]
        if part and len(f"{said} {part}".split()) < most:
            said += f"; {name} {part}"
    return said


def figures(verdict: Verdict) -> str:
    """Return time and memory with the target's, and where more is said, in a line."""
    puzzle, said = verdict.puzzle, []
    if verdict.time is not None and verdict.memory is not None:
        own = puzzle.brief(verdict.time, verdict.memory)
        goals = puzzle.describe(puzzle.target["time"], puzzle.target["memory"])
        said = [f"{one} of {goal}" for one, goal in zip(own, goals, strict=True)]
    if verdict.status in (FAIL, TODO):
        said += [verdict.next_hint] if verdict.next_hint else []
        said += [f"why: {verdict.asks_why}"] if verdict.asks_why and verdict.status == FAIL else []
    elif verdict.status == PASS and verdict.following:
        said.append(f"next: {verdict.following}")
    return " \N{MIDDLE DOT} ".join(said)


def longer(verdict: Verdict) -> list[str]:
    """Return what is below the fold: the parts of an error, the explanation, and all facts."""
    return in_columns(_lines(facts(verdict)))


def facts(verdict: Verdict) -> list[tuple[str, str]]:
    """Return all that is known, as pairs of a name and a text."""
    error = verdict.error
    parts = [("wrong", error.problem), *error.parts] if error is not None else []
    parts += [("verdict", verdict.message)] if _over(verdict) else []
    return [*parts, *reasons(verdict), *verdict.facts()]


def reasons(verdict: Verdict) -> list[tuple[str, str]]:
    """Return the explanation, as a fact with a name."""
    said = words.why(verdict.explanation) if verdict.explanation is not None else []
    return [("why", "\n".join(said))] if said else []


def report_text(report: Report, color: bool = False, why: bool = False) -> str:
    """Return a report as plain text: a line and what was printed for a pass among several, and each of the others as
    ``text`` has it."""
    passed = [verdict for verdict in report.verdicts if verdict.status == PASS]
    lines = iter(in_columns([_in_a_line(verdict) for verdict in passed], figures=(2, 3, 5, 6)))
    shown = [f"Grade: {report.headline()}"]
    for verdict in report.verdicts:
        if verdict.status != PASS or why or len(report.verdicts) == 1:
            shown.append(text(verdict, color, why))
        else:
            shown += [f"{_word(verdict, color)} {next(lines)}", *_below(*_always(verdict))]
    return "\n".join([*shown, *([f"Graded {report.isolation}."] if report.isolation and not report.not_graded else [])])


def _word(verdict: Verdict, color: bool) -> str:
    word = f"{verdict.status:5}"
    return f"\033[{ANSI[verdict.status]}m{word}\033[0m" if color else word


def _in_a_line(verdict: Verdict) -> list[str]:
    """Return the puzzle, time and memory of a pass, and its star or what that asks for."""
    puzzle, star = verdict.puzzle, verdict.puzzle.star
    assert verdict.time is not None and verdict.memory is not None  # it passes
    own, wanted = puzzle.describe(verdict.time, verdict.memory), ("", "")
    said = [f"{STAR} star"] * verdict.starred
    said += ["better than the best known"] * puzzle.beats_all(verdict.time, verdict.memory)
    if star and not verdict.starred:
        wanted = puzzle.describe(star["time"], star["memory"])
        said.append("the star asks for")
    return [f"puzzle {puzzle.number}", puzzle.name, *own, ", ".join(said), *wanted]


def _lines(facts: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return each line of the facts with its name, which only the first line of a fact has."""
    return [[f"{name}:" * (at == 0), line] for name, fact in facts for at, line in enumerate(fact.split("\n"))]


def _below(*lines: str) -> list[str]:
    return ["      " + line for text in lines for line in text.split("\n")]


def table(verdict: Verdict) -> str:
    """Return a verdict as HTML: what ``text`` says and, folded, a table with all that is known."""
    title = f"Puzzle {verdict.puzzle.number}: {escape(verdict.puzzle.title)}"
    star = f" {STAR} star" * verdict.starred
    drawn = CELEBRATION * (verdict.status == PASS)
    rows = "".join(
        f'<tr><th scope="row" style="{HEAD}">{escape(name)}</th>'
        f'<td style="{CODE if name in CODES or chr(10) in fact else CELL}">{_linked(name, fact, verdict)}</td></tr>'
        for name, fact in facts(verdict)
    )
    first, *lines = [_head(verdict, False).partition(": ")[2] or verdict.message, *brief(verdict)]
    said = "".join(f'<div style="{LINE}">{escape(line)}</div>' for line in filter(None, [first, *lines]))
    head = f'<div style="{CAPTION}">{title} {badge(verdict.status)}{star}</div>'
    folded = f'<table class="ltp-verdict"><tbody>{rows}</tbody></table>'
    fold = f'<details><summary style="cursor:pointer">{FOLD[verdict.status]}</summary>{folded}</details>'
    return (
        f'<div style="container-type:inline-size;{INK}"><style>{STACKED}</style>{drawn}{head}{said}{fold * bool(rows)}'
        "</div>"
    )


def _linked(name: str, fact: str, verdict: Verdict) -> str:
    link = verdict.link if name == "next" else ""
    new_tab = ' target="_blank"' * link.startswith("https:")
    return f'<a href="{escape(link)}"{new_tab}>{escape(fact)}</a>' if link else escape(fact)


def badge(status: str) -> str:
    """Return the status on a background of its color."""
    return f'<span style="background:{COLORS[status]};color:#ffffff;padding:1px 8px;border-radius:4px">{status}</span>'


def _celebration() -> str:
    """Return a drawing of eight processors in a row of links, with check marks and sparks."""
    drawn = "".join(f'<path d="M{32 + 28 * place} 26h12" stroke="#7d8590" stroke-width="2"/>' for place in range(7))
    for place in range(8):
        x = 16 + 28 * place
        color = ("#0072b2", "#009e73", "#d55e00", "#8a5ba6")[place % 4]
        pins = "".join(f'<path d="M{x + p} 18v-4M{x + p} 34v4"/>' for p in (4, 8, 12))
        drawn += f'<g stroke="{color}" stroke-width="2">{pins}<rect x="{x}" y="18" width="16" height="16" rx="3" '
        drawn += f'fill="{color}"/><path d="M{x + 4} 26l3 3 6 -6" stroke="#ffffff" fill="none"/></g>'
    for x, y in ((10, 7), (66, 6), (122, 8), (178, 6), (230, 8), (38, 46), (94, 46), (150, 46), (206, 46)):
        drawn += f'<path d="M{x} {y - 4}v8M{x - 4} {y}h8" stroke="#b58900" stroke-width="2"/>'
    return (
        '<svg role="img" aria-label="Eight processors, all of them with a check mark" width="248" height="52" '
        f'viewBox="0 0 248 52" style="display:block">{drawn}</svg>'
    )


CELEBRATION = _celebration()
