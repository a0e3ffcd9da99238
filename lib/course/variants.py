"""Variants of puzzles: other sizes, prices and targets in place of those of the course (tools/variants.py)."""

import json
from pathlib import Path

from ..basics.errors import PuzzleError
from .outlines import OUTLINES, PROGRAMS, programs
from .specs import forget, kept, texts

TABLES = ("specs.json", OUTLINES)


def use_variants(file: str | Path) -> None:
    """From now on, this process knows the puzzles of a file instead of those of the same names.

    A grader names a file of its own, and not one that lies beside somebody's work. Raise PuzzleError for a
    file that cannot be read or has no variants.
    """
    expected = "the file variants.json that python -m tools.variants has written"
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
        tables = {table: kept(table) | found[table] for table in TABLES}
        others = {name: row for name, row in programs().items() if name not in found[TABLES[0]]}
        tables[PROGRAMS] = others | found.get(PROGRAMS, {})
    except (OSError, ValueError, TypeError, KeyError) as error:
        got = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise PuzzleError(f"{file} has no variants that can be read", expected=expected, got=got, line="") from None
    if unknown := {*tables[TABLES[0]]} - {*kept(TABLES[0])}:
        raise PuzzleError(
            f"{file} has a variant of no puzzle: {', '.join(sorted(unknown))}", expected=expected, line=""
        )
    texts.update({table: json.dumps(rows) for table, rows in tables.items()})
    forget()
