"""Whose a file or folder is, by the names that Canvas and Moodle give to what a class has handed in."""

import os
import re
import unicodedata
from pathlib import Path

CANVAS = r"(?P<canvas>_\d{3,})_\d{3,}_.*"
MOODLE = r"(?P<moodle>_\d+)_assignsubmission_[a-z]+(_.*)?"
GIVEN = re.compile(rf"(?P<name>.+?)(?i:_late)?({CANVAS}|{MOODLE})")
"""``doejane_LATE_1234_56789_p04_fsdp-1.ipynb`` of Canvas, where the numbers are those of the student and of the file;
``Jane Doe_12_assignsubmission_file_`` of Moodle, which is a folder, or how the name of a file begins."""
PACKED = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")
NO_WORK = (
    "__pycache__", "__MACOSX", ".DS_Store", ".cache", ".git", ".hg", ".idea", ".ipynb_checkpoints", ".jupyter",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".svn", ".tox", ".venv", ".vscode",
)  # fmt: skip
"""Folders that programs make beside people's work, and that nobody hands in as theirs."""


def owner(path: Path) -> str:
    """Return the student with their number, which all that is theirs has in common; else the name without its ending.

    A letter with an accent is one character, however the system that has packed the names writes it.

    >>> [owner(Path(name)) for name in ("doe_LATE_123_456_basic.py", "Jane Doe_1_assignsubmission_file_", "jane.py")]
    ['doe_123', 'Jane Doe_1', 'jane']
    """
    name = unicodedata.normalize("NFC", path.name if os.path.isdir(path) else path.stem)
    found = GIVEN.fullmatch(name)
    return found["name"] + (found["canvas"] or found["moodle"]) if found else name


def is_packed(name: str) -> bool:
    """Return whether a file has others in it. Nobody opens it here."""
    return name.lower().endswith(PACKED)


def work_in(folder: Path) -> list[Path]:
    """Return what is in a folder, without what is nobody's work, and without what lies unpacked beside itself: all of
    ``a.zip`` in ``a.zip.d``."""
    found = (path for path in folder.iterdir() if path.name not in NO_WORK)
    return [path for path in found if not (is_packed(path.name) and os.path.isdir(f"{path}.d"))]
