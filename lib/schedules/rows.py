"""A schedule's rows of actions, one row a rank, out of a text or a file.

Three forms are read, all of them PyTorch's:

- the CSV that a schedule writes (``_dump_csv``) and loads (``_load_csv``): a line a rank, actions between commas,
- lists, or as Python prints them (``get_schedule_ops``, or ``pipeline_order`` of a schedule): the same between
  brackets,
- the table that it prints of a schedule (``_format_pipeline_order``): a column a rank, a line a step.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..basics.arguments import describe
from ..basics.errors import PuzzleError
from .actions import Action, read_action

MOST = 50_000_000  # characters of a file
ACTIONS = (
    "a stage, what is done and a micro-batch (0F0, 0B0, 0I0, 0W0, 0SEND_F0, 1RECV_F0, 1SEND_B0, 0RECV_B0), a stage "
    "and what is done with its weights (0UNSHARD, 0RESHARD, 0REDUCE_GRAD), or a forward and a backward that "
    "overlap: (0F1;1B0)OVERLAP_F_B, or 0F1_1B0"
)
EXAMPLE = "0F0, 0F1, 0B0, 0B1"
_LISTS = re.compile(r"(?:(\d+)\s*:\s*)?\[([^\[\]]*)\]")


class Cell(NamedTuple):
    """An action, and where it stands: in the row of which rank, and as which action of that row, counted from 1."""

    action: Action
    rank: int
    column: int

    def __str__(self) -> str:
        return f"{self.action} (rank {self.rank}, column {self.column})"


Rows = tuple[tuple[Cell, ...], ...]


def read_rows(source: object) -> tuple[str, Rows]:
    """Return the name of a schedule and its rows, from a text or the path of a file. Raise PuzzleError if it is
    neither, if the file cannot be read, or with the row and the column of what is no action."""
    name, text = _text_of(source)
    in_steps = re.match(r"\s*(Rank \d+\s+)*Rank \d+\s*$", text, re.MULTILINE)
    nested = text.lstrip().startswith("{") or re.match(r"\s*\[\s*\[", text)
    table = _by_steps(text) if in_steps else _by_ranks("\n".join(_lists(text)) if nested else text)
    rows = tuple(
        tuple(Cell(_action(cell, rank, column), rank, column) for column, cell in enumerate(row, 1) if cell.strip())
        for rank, row in enumerate(table)
    )
    if not any(rows):
        problem, got = "there is no action in this schedule", describe(text[:60])
        raise PuzzleError(problem, where="schedule", got=got, expected=EXAMPLE)
    return name, rows


def _text_of(source: object) -> tuple[str, str]:
    """A name and a text. A text without a line break and a comma is the path of a file; lists of actions are rows."""
    if isinstance(source, str) and (not source or "\n" in source or ("," in source and not os.path.isfile(source))):
        return "schedule", source.removeprefix("\ufeff")
    if isinstance(source, Mapping):
        source = [source[rank] for rank in sorted(source)]
    if isinstance(source, (list, tuple)) and all(isinstance(row, (list, tuple)) for row in source):
        rows = (["" if action is None else str(action) for action in row] for row in source)
        return "schedule", "\n".join(",".join(row) or "," for row in rows)
    if not isinstance(source, (str, os.PathLike)):
        problem = "a schedule is a text, the path of a file, or a list of rows"
        raise PuzzleError(problem, where="schedule", got=describe(source), expected=f'schedule("{EXAMPLE}")')
    path, expected = Path(source), f"schedule('rows.csv'), or the rows themselves: schedule('''{EXAMPLE}''')"
    try:
        if path.stat().st_size > MOST:
            problem = f"this file has more than {MOST:,} bytes, which no schedule has"
            raise PuzzleError(problem, where="schedule", got=str(path))
        return path.stem, path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        problem, expected = "this file is no text in UTF-8", "plain text in UTF-8, a row for each rank"
    except (OSError, ValueError) as error:
        problem = f"this file cannot be read: {getattr(error, 'strerror', None) or error}"
    raise PuzzleError(problem, where="schedule", got=str(path), expected=expected)


def _by_ranks(text: str) -> list[list[str]]:
    """A line a rank: as CSV, or as printed lists. An overlapped pair has a semicolon in it and no comma."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    plain = [re.sub(r"^(?i:Rank \d+: *)?\[?|\]?,?$", "", line) for line in lines]
    rows = [[cell.strip().strip("'\"") for cell in line.split(",")] for line in plain]
    return [["" if cell == "None" else cell for cell in row] for row in rows]


def _lists(text: str) -> list[str]:
    """The rows of a list of lists, or of a dict of lists, as Python prints them, in the order of the ranks."""
    found = [(int(rank or at), row.replace("\n", " ")) for at, (rank, row) in enumerate(_LISTS.findall(text))]
    return [f"[{row}]" for _, row in sorted(found)]


def _by_steps(text: str) -> list[list[str]]:
    """A line a step under a line with the ranks. An empty place is blank, so columns are found by where they begin."""
    lines = [line for line in text.splitlines() if line.strip()]
    begins = [match.start() for match in re.finditer(r"Rank \d+", lines[0])]
    ends = [*begins[1:], None]
    return [[line[begin:end] for line in lines[1:]] for begin, end in zip(begins, ends, strict=True)]


def _action(text: str, rank: int, column: int) -> Action:
    action = read_action(text)
    if action is None:
        problem = f"{describe(text.strip())} is no action of a schedule"
        where = f"the row of rank {rank}, column {column}"
        raise PuzzleError(problem, where=where, expected=ACTIONS, line="")
    return action
