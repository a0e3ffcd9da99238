"""Verdicts as plain text, and as HTML tables for a notebook.

A table has a caption and scopes; the status is a word, which the color only repeats. There are no scripts and no
external resources.
"""

import re
from collections.abc import Sequence
from html import escape

from ..basics.columns import in_columns
from .verdict import ERROR, FAIL, PASS, TODO, Report, Verdict

COLORS = {PASS: "#1a7f37", FAIL: "#b3261e", TODO: "#57606a", ERROR: "#8a4600"}
ANSI = {PASS: "32", FAIL: "31", TODO: "2", ERROR: "33"}

INK = "color:var(--jp-content-font-color1, inherit)"
CAPTION = "text-align:left;font-weight:bold;white-space:nowrap"
HEAD = "text-align:left;vertical-align:top;white-space:nowrap;padding-right:12px"
CELL = "text-align:left;vertical-align:top;white-space:pre-wrap"
CODE = CELL + ";font-family:var(--jp-code-font-family, monospace)"  # of code, and of lines that are aligned
STAR = "\N{BLACK STAR}"
PHONE = 480
"""In a place of fewer pixels the names stand above what they name."""
STACKED = (
    f"@container(max-width:{PHONE}px){{.ltp-verdict :is(tbody,tr,th,td){{display:block}}"
    ".ltp-verdict th{padding-top:6px}.ltp-verdict caption{white-space:normal!important}}"
)
CODES = ("instead", "at")  # the parts of an error that are lines of code
ALWAYS, ALONE = ("printed", "note"), ("costs time", "costs memory", "next", "also open")
"""What a report has of a pass below its line, and what it has of one that is graded alone, in a sentence each."""


_SENTENCE = re.compile(r"(?<=[\w)])\. (?=[A-Z])")


def text(verdict: Verdict, color: bool = False) -> str:
    """Return a verdict as plain text, with one fact in a line."""
    head = f"{_word(verdict, color)} puzzle {verdict.puzzle.number}  {verdict.puzzle.name}  {verdict.puzzle.title}"
    head += f"  {STAR} star" * verdict.starred
    return "\n".join([head, *_below(verdict.message), *_below(*in_columns(_lines(verdict.facts())))])


def report_text(report: Report, color: bool = False) -> str:
    """Return a report as plain text: a line and what was printed for a pass, all facts for the others. A pass that is
    graded alone has a sentence of what keeps it from its star, and what comes next."""
    facts_of_a_pass = ALWAYS + ALONE * (len(report.verdicts) == 1)
    passed = [verdict for verdict in report.verdicts if verdict.status == PASS]
    lines = iter(in_columns([_in_a_line(verdict) for verdict in passed], figures=(2, 3, 5, 6)))
    shown = [f"Grade: {report.headline()}"]
    for verdict in report.verdicts:
        if verdict.status == PASS:
            facts = [(name, fact) for name, fact in verdict.facts() if name in facts_of_a_pass]
            more = [(name, _SENTENCE.split(fact)[0] if name in ALONE else fact) for name, fact in facts]
            shown += [f"{_word(verdict, color)} {next(lines)}", *_below(*in_columns(_lines(more)))]
        else:
            shown.append(text(verdict, color))
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
    """Return a verdict as HTML. An error begins with what is wrong, and each of its other parts has a row."""
    facts = [("verdict", verdict.message)]
    if verdict.error is not None:
        held = f"right at its own size, but not with {verdict.failed_at}\n" if verdict.failed_at else ""
        facts = [("verdict", held + verdict.error.problem), *verdict.error.parts]
    rows = "".join(
        f'<tr><th scope="row" style="{HEAD}">{escape(name)}</th>'
        f'<td style="{CODE if name in CODES or chr(10) in fact else CELL}">{_linked(name, fact, verdict)}</td></tr>'
        for name, fact in [*facts, *verdict.facts()]
    )
    title = f"Puzzle {verdict.puzzle.number}: {escape(verdict.puzzle.title)}"
    star = f" {STAR} star" * verdict.starred
    head = f'<caption style="{CAPTION}">{title} {badge(verdict.status)}{star}</caption>'
    shown = f'<table class="ltp-verdict" style="{INK}">{head}<tbody>{rows}</tbody></table>'
    drawn = CELEBRATION * (verdict.status == PASS)
    return f'<div style="container-type:inline-size"><style>{STACKED}</style>{drawn}{shown}</div>'


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
