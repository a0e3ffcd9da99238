"""Sizes on pages are in GB, 10⁹ bytes, and never in GiB beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("puzzles/*.ipynb")])
BINARY, DECIMAL = re.compile(r"\b[KMGT]iB\b"), re.compile(r"\b[MGT]B\b")


def text_of(path: Path) -> str:
    """What a person reads: of a notebook its text and its code."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    return "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_gb_and_gib_are_never_mixed_on_a_page(path: Path) -> None:
    said = text_of(path)
    assert not (BINARY.search(said) and DECIMAL.search(said)), BINARY.findall(said)


def test_the_sweep_sees_pages_with_sizes() -> None:
    assert sum(bool(DECIMAL.search(text_of(path))) for path in PAGES) > 10
