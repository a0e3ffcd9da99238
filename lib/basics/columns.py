"""Tables as text."""

from collections.abc import Sequence


def in_columns(rows: Sequence[Sequence[str]], figures: Sequence[int] = ()) -> list[str]:
    """Return each row as a line, with its cells in columns. Those of the columns ``figures`` are aligned at the right.

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
