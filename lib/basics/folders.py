"""Where the project lies: in a clone, or in the installed package, which has the same folders side by side."""

import os
from pathlib import Path

LIB = Path(__file__).resolve().parent.parent
ROOT = LIB.parent
PACKAGE = "llm_training_puzzles"
"""What is installed, under the name by which Python imports it."""
INSTALLED = (ROOT / "__init__.py").is_file()
"""Whether this is the installed package: a clone is none itself."""
BLANKS = ROOT / "puzzles"
"""The blank notebooks."""
SECRET = LIB / "secret"
"""What only a grader reads: no worker sees it, and no agent gets it."""
SOLUTIONS = ROOT / "solutions"
"""Beside lib and not in it: a worker can read lib, and no submission may find a solution there."""
NOTEBOOKS = "LLM_TRAINING_PUZZLES_NOTEBOOKS"
"""The environment variable with the address of the notebooks, if they are not in one folder."""


def link_to(notebook: str) -> str:
    """Return the address of a notebook, for a link, or an empty text if it is not known."""
    known = os.environ.get(NOTEBOOKS, "")
    return known + notebook if known or Path(notebook).is_file() else ""
