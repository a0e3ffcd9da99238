"""Verdicts to be read: as plain text, complete by itself, and as a table for a notebook.

The table is a real one, with a caption and scopes; status is a word, and color only repeats it. No scripts,
nothing from elsewhere.
"""

from collections.abc import Sequence
from html import escape

from .verdict import ERROR, FAIL, PASS, TODO, Report, Verdict

COLORS = {PASS: "#1a7f37", FAIL: "#b3261e", TODO: "#57606a", ERROR: "#8a4600"}
ANSI = {PASS: "32", FAIL: "31", TODO: "2", ERROR: "33"}

INK = "color:var(--jp-content-font-color1, inherit)"
CAPTION = "text-align:left;font-weight:bold;white-space:nowrap"
HEAD = "text-align:left;vertical-align:top;white-space:nowrap;padding-right:12px"
CELL = "text-align:left;vertical-align:top;white-space:pre-wrap"
CODE = CELL + ";font-family:var(--jp-code-font-family, monospace)"  # of code, and of lines that are aligned
STAR = "\N{BLACK STAR}"
CODES = ("instead", "at")  # the parts of an error that are lines of code


def text(verdict: Verdict, color: bool = False) -> str:
    """A verdict in plain text: one fact a line."""
    head = f"{_word(verdict, color)} puzzle {verdict.puzzle.number}  {verdict.puzzle.name}  {verdict.puzzle.title}"
    head += f"  {STAR} star" * verdict.starred
    return "\n".join([head, *_below(verdict.message), *_below(*in_columns(_lines(verdict.facts())))])


def report_text(report: Report, color: bool = False) -> str:
    """A report in plain text: a line for each puzzle that passes, and what it has printed; of the others, all."""
    passed = [verdict for verdict in report.verdicts if verdict.status == PASS]
    lines = iter(in_columns([_in_a_line(verdict) for verdict in passed], figures=(2, 3, 5, 6)))
    told = [f"Grade: {report.headline()}"]
    for verdict in report.verdicts:
        if verdict.status == PASS:
            more = [(name, fact) for name, fact in verdict.facts() if name in ("printed", "note")]
            told += [f"{_word(verdict, color)} {next(lines)}", *_below(*in_columns(_lines(more)))]
        else:
            told.append(text(verdict, color))
    return "\n".join([*told, *([f"Graded {report.isolation}."] if report.isolation else [])])


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


def in_columns(rows: Sequence[Sequence[str]], figures: Sequence[int] = ()) -> list[str]:
    """Return each row as a line, its texts in columns. Those of the columns ``figures`` end at one place.

    >>> in_columns([["basic", "17"], ["gpipe", "33.8"]], figures=[1])
    ['basic    17', 'gpipe  33.8']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at in figures else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def table(verdict: Verdict) -> str:
    """A verdict as HTML. Of an error, what is wrong comes first, then each of its parts has a row."""
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
    return f'{CELEBRATION * (verdict.status == PASS)}<table style="{INK}">{head}<tbody>{rows}</tbody></table>'


def _linked(name: str, fact: str, verdict: Verdict) -> str:
    link = verdict.link if name == "next" else ""
    new_tab = ' target="_blank"' * link.startswith("https:")
    return f'<a href="{escape(link)}"{new_tab}>{escape(fact)}</a>' if link else escape(fact)


def badge(status: str) -> str:
    """The word, on its color."""
    return f'<span style="background:{COLORS[status]};color:#ffffff;padding:1px 8px;border-radius:4px">{status}</span>'


def _celebration() -> str:
    """Eight little processors in a ring of links, all lit, with sparks around them."""
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
