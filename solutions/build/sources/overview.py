"""What the overview and the repairs say of each puzzle."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from .files import REPAIRS, read_cells

IDEAS = "ideas"
"""The tag of a cell of the overview that has a sentence for each puzzle, which the map, README and the gallery say. It
is in no notebook."""
LINE = re.compile(r"\[[^\]]*\]\((p\d\d_\w+)\.ipynb\): ([^\n]*(?:\n#  +\S[^\n]*)*)")
"""A line of the overview: a link to a notebook, and a sentence, which may go on in the next line."""
PART = re.compile(r"\*\*([^*\n]+)\*\*\n#\n# \d+\. \[[^\]]*\]\((p\d\d_\w+)\.ipynb\)")
"""The heading of a part of the course, above the first of its puzzles."""
TAKEN_AFTER = re.compile(r"## (R\d+)\..*?\*Take it after puzzle (\d+)", re.DOTALL)


def has_overview(folder: Path) -> bool:
    """Whether there is an overview. Without one, as in a test, no page shows the whole course."""
    return (folder / "index.py").exists()


def sentences(folder: Path) -> dict[str, str]:
    """A sentence for each puzzle, by its name: from the overview, or of a repair the docstring of its function."""
    if not has_overview(folder):
        return {}
    overview = (folder / "index.py").read_text(encoding="utf-8")
    found = {
        file.partition("_")[2]: " ".join(words.replace("\n#", " ").split()) for file, words in LINE.findall(overview)
    }
    repairs = folder / f"{REPAIRS}.py"
    if repairs.exists():
        for node in ast.walk(ast.parse(repairs.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, (ast.get_docstring(node) or "").partition("\n")[0])
    return found


def parts(folder: Path) -> dict[str, str]:
    """The heading of each part of the course, by the file of its first puzzle."""
    return {file: heading for heading, file in PART.findall((folder / "index.py").read_text(encoding="utf-8"))}


def opened(folder: Path) -> Iterator[tuple[str, int]]:
    """Each program to be repaired, and the puzzle that it is to be taken after, as its text says."""
    path = folder / f"{REPAIRS}.py"
    for cell in read_cells(path) if path.exists() else ():
        if found := TAKEN_AFTER.match(cell.source):
            yield found[1], int(found[2])
