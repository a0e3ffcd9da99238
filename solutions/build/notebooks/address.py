"""Where the project is published: one variable in pyproject.toml, of which links are made."""

import re
import tomllib
from pathlib import Path

from ..sources.files import BuildError

BRANCH = "colab"
"""Of the published repository: the notebooks that `make colab` writes, for Colab to open."""
LINKS = re.compile(r"(<!-- links[^>]*-->\n).*?(<!-- end of links -->)", re.DOTALL)
"""The place in README.md that the build fills."""


def published(root: Path) -> str:
    """The variable, such as ``https://github.com/me/it``; or nothing. Raise BuildError for what is no address."""
    if not (root / "pyproject.toml").exists():
        return ""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    found = project.get("tool", {}).get("llm-training-puzzles", {}).get("address", "")
    if not isinstance(found, str) or (found and not re.fullmatch(r"https://[^\s/]+(/[^\s()<>]*)?", found)):
        raise BuildError(f"pyproject.toml: address = {found!r} does not begin with https://")
    return found.rstrip("/")


def links(where: str, notebook: str) -> str:
    """A line for the head of a page: open it in Colab (from GitHub only), go to the project."""
    if not where:
        return ""
    found = [f"[The project]({where})"]
    if colab := in_colab(where, notebook):
        found.insert(0, f"[Open in Colab]({colab})")
    return " · ".join(found)


def in_colab(where: str, notebook: str) -> str:
    """The address at which Colab opens a notebook of a project on GitHub; or nothing."""
    repository = where.removeprefix("https://github.com/")
    if repository == where:
        return ""
    return f"https://colab.research.google.com/github/{repository}/blob/{BRANCH}/{notebook}"


def site_of(where: str) -> str:
    """The address of the site of a project on GitHub, as its Pages have it; or nothing."""
    found = re.fullmatch(r"https://github\.com/([^/]+)/([^/]+)", where)
    return f"https://{found[1].lower()}.github.io/{found[2]}/" if found else ""


def new_issue(where: str) -> str:
    """The address at which a project on GitHub takes an issue; or nothing."""
    return f"{where}/issues/new" if site_of(where) else ""


def fill(readme: str, where: str) -> str:
    """README.md with its links; without an address it has none."""
    line = links(where, "index.ipynb")
    return LINKS.sub(lambda place: place[1] + (f"\n{line}\n\n" if line else "") + place[2], readme)
