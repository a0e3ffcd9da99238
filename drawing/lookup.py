"""The whole interface on one page, which the build makes of the docstrings (solutions/build/tables)."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from lib import Model
from lib.course.specs import Puzzle, find, puzzles
from lib.grading.progress import Progress
from lib.record.table import in_stream, stream_of

from .ink.figure import page, write
from .ink.svg import escape
from .small.primitives import draw_primitive, primitives

TABLE = Path(__file__).with_name("reference.json")
ROW = "display:flex;flex-wrap:wrap;gap:2px 14px;padding:4px 0"
CALL, SAYS = "flex:38 1 0;min-width:min(100%,270px)", "flex:62 1 0;min-width:min(100%,316px);margin:0"
"""How a call stands beside what it does: in columns from 600 pixels on, else one below the other."""
GRID = "display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,240px),1fr));gap:0 28px"
PRICE = "display:flex;justify-content:space-between;gap:10px;padding:2px 0"
PICTURE = "flex:1 1 560px;max-width:640px;min-width:0"
WRAPS, NAME = "white-space:pre-wrap", "font-weight:400"
Entries = dict[str, list[tuple[str, str]]]
"""Group by group, how each thing is written, and what it does. The group without a name has sentences."""


@cache
def _table() -> list[tuple[str, str, str, int, int]]:
    return [tuple(row) for row in json.loads(TABLE.read_text(encoding="utf-8"))]


class Reference:
    """A page to look things up: shows itself in a notebook and as text, and can be saved. What puzzles after ``puzzle``
    are about comes apart, where one opens it."""

    def __init__(self, puzzle: Puzzle | None = None) -> None:
        self.puzzle = puzzle

    def entries(self) -> Entries:
        """Return what is for the puzzle and those before it, without the parameters, sentences and prices that later
        ones are about."""
        number = max(last for *_, last in _table())
        if self.puzzle is not None:
            number = int((self.puzzle.comes_after if self.puzzle.repair else self.puzzle.number) or 0)
        found: Entries = {}
        for group, written, says, first, last in _table():
            if first <= number <= last:
                found.setdefault(group, []).append((written, says))
        for kind in in_stream("compute", "collective", "message"):
            if not any(f".{kind}(" in row[1] for row in _table()):  # it has been added since the table was made
                verb = getattr(Model, kind)
                call = f"model.{kind}({', '.join([*inspect.signature(verb).parameters][1:])})"
                group = "Operations" if stream_of(kind) == "compute" else "Communication"
                found.setdefault(group, []).append((call, inspect.getdoc(verb) or ""))
        return found

    def rest(self) -> Entries:
        """Return what is not shown of all there is, or not all of which is."""
        shown = {row for rows in self.entries().values() for row in rows}
        rest = {group: [row for row in rows if row not in shown] for group, rows in Reference().entries().items()}
        return {group: rows for group, rows in rest.items() if rows and group}

    def __str__(self) -> str:
        lines: list[str] = []
        for group, entries in self.entries().items():
            own = (f"  {written}\n      {says}" for written, says in entries)
            lines += ["", group, *own] if group else [" ".join(written for written, _ in entries)]
        rest = sum(map(len, self.rest().values()))
        more = f'\n{rest} more, or more of these, are for later puzzles: reference("all") has them all'
        return "\n".join([*lines, *([more] if rest else [])])

    def __repr__(self) -> str:
        return "reference(): the whole interface on one page; print it, show it in a notebook, or save it as .html"

    def _repr_html_(self) -> str:
        here = self.entries()
        rest = self._html(self.rest(), drawn=_drawn(here))
        head = '<summary style="margin:14px 0">All of it: what later puzzles are about</summary>'
        return self._html(here) + (f"<details>{head}{rest}</details>" if rest else "")

    def _html(self, groups: Entries, drawn: Sequence[str] = ()) -> str:
        """Return groups of entries as HTML, the collectives with their pictures, except for those ``drawn`` before."""
        parts = []
        for group, entries in groups.items():
            if not group:
                parts.append(f"<p>{escape(' '.join(written for written, _ in entries))}</p>")
                continue
            prices = group.startswith("Prices")
            how, call, says = (PRICE, NAME, "margin:0") if prices else (ROW, f"{CALL};{WRAPS};{NAME}", SAYS)
            rows = (
                f'<div style="{how}"><dt style="{call}"><code>{escape(written)}</code></dt>'
                f'<dd style="{says}">{escape(text)}</dd></div>'
                for written, text in entries
            )
            head = f'<p style="font-weight:bold;margin:14px 0 2px">{escape(group)}</p>'
            grid = f"margin:0;overflow-wrap:break-word;{GRID if prices else ''}"
            parts.append(f'{head}<dl style="{grid}">{"".join(rows)}</dl>')
            if group == "Communication":
                shown = [draw_primitive(kind)._repr_html_() for kind in _drawn({group: entries}) if kind not in drawn]
                cells = "".join(f'<div style="{PICTURE}">{one}</div>' for one in shown)
                parts.append(f'<div style="display:flex;flex-wrap:wrap;gap:8px">{cells}</div>')
        return "".join(parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.html`` page. Raise PuzzleError if it cannot be written."""
        write(path, {".html": lambda: page("LLM training puzzles: reference", self._repr_html_(), titled=False)})


def reference(puzzle: str | None = None) -> Reference:
    """Return the interface on one page: operations, what they cost and insist on, and what collectives do. First comes
    what is needed up to a puzzle, and all the rest is one click away.

    ``puzzle``: by default the one after the last that you have solved; ``"all"`` for everything at once. Raises
    PuzzleError for an unknown puzzle.
    """
    if puzzle == "all":
        return Reference()
    course = [one for one in puzzles().values() if not one.repair]
    solved = [at for at, one in enumerate(course) if one.name in Progress().solved]
    due = course[min(max(solved, default=-1) + 1, len(course) - 1)]
    return Reference(due if puzzle is None else find(getattr(puzzle, "__name__", puzzle)))


def _drawn(groups: Entries) -> list[str]:
    """Return the collectives among these entries, of which there are pictures."""
    written = [written for entries in groups.values() for written, _ in entries]
    return [kind for kind in primitives() if any(f".{kind}(" in one for one in written)]
