"""Notebooks that need nothing around them, for Colab: the first cell brings the project along.

python -m solutions.elsewhere.colab      write dist/colab/*.ipynb and dist/llm-training-puzzles-colab.zip
"""

import base64
import hashlib
import io
import lzma
import re
import sys
import tomllib
import zipfile
from pathlib import Path

from lib.basics.folders import NOTEBOOKS
from lib.basics.saving import write_all

from ..notebooks.address import in_colab, published
from ..notebooks.around import onward
from ..notebooks.notebook import FIRST_CELL, notebook_of
from ..sources.files import ROOT, BuildError, Json, as_text, is_puzzle, notebook_name, sources

CELL = Path(__file__).with_name("colab_cell.py")
TAKEN = (".py", ".json", ".html")
"""Endings of the files that are taken along."""
CELLS = re.compile(r"^(?=# %%)", re.MULTILINE)
NAME = re.compile(r'^# %%.*\n|^ *"name": .*\n', re.MULTILINE)
READ = re.compile(r'# %%[^\n]*"(spec|solution)"|# %%(?s:.*)### BEGIN SOLUTION')
"""Cells out of which ``solution`` reads."""
LINK = re.compile(r"\[([^\]]*)\]\((\w+\.ipynb)\)")
"""In a text, to a notebook that would lie beside this one."""
FOR_TEXT = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0}]
"""Whose bytes are not aligned to anything: half a percent smaller."""
DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file in an archive: the same sources make the same archive."""


def archive(root: Path) -> bytes:
    """The packages ``lib`` and ``drawing``, compressed, and of the sources of puzzles the cells out of which
    ``solution`` reads. The board, and what there is for a shell, are left out: a notebook grades by itself."""
    packed = io.BytesIO()
    puzzles = [path for path in sources(root / "solutions") if is_puzzle(path)]
    with zipfile.ZipFile(packed, "w") as made:
        found = (p for name in ("lib", "drawing") for p in (root / name).rglob("*"))
        left = {"board", "commands.py", "referee", "server.py", "settings", "__main__.py", "shell.py"}
        packages = (p for p in found if left.isdisjoint(p.relative_to(root).parts))
        for path in [*sorted(packages), *puzzles]:
            if path.suffix in TAKEN:
                info = zipfile.ZipInfo(path.relative_to(root).as_posix(), DATE)
                text = path.read_text(encoding="utf-8")
                made.writestr(info, solved(text) if path in puzzles else text)
    return lzma.compress(packed.getvalue(), filters=FOR_TEXT)  # all at once: a third smaller than one by one


def solved(source: str) -> str:
    """The cells of a puzzle's source out of which ``solution`` reads, and of what it says of the puzzle its name."""
    cells = [cell for cell in CELLS.split(source) if READ.match(cell)]
    specs = ('tags=["spec"]' in cell.partition("\n")[0] for cell in cells)
    named = [NAME.findall(cell) if spec else [cell] for cell, spec in zip(cells, specs, strict=True)]
    return "".join(text for texts in named for text in texts)


def requirements(root: Path) -> list[str]:
    """What pyproject.toml says that the packages need, without what hangs on the Python: a kernel brings that along."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [one for one in project["dependencies"] if ";" not in one]


def first_cell(root: Path) -> str:
    """The source of the cell that brings the project along: of a published one, pip does."""
    if where := published(root):
        there = in_colab(where, "")  # so that a verdict links to the next one
        return f"%pip install --quiet {where}/archive/HEAD.zip\n%env {NOTEBOOKS}={there}\n{FIRST_CELL}"
    packed = archive(root)
    source = CELL.read_text(encoding="utf-8").strip()
    filled = {
        "REQUIREMENTS = []  # filled in by the build": f"REQUIREMENTS = {requirements(root)}",
        'VERSION = ""': f'VERSION = "{hashlib.sha256(packed).hexdigest()[:12]}"',
        'ARCHIVE = ""': f'ARCHIVE = "{base64.b85encode(packed).decode()}"',
    }
    for blank, text in filled.items():
        if source.count(blank) != 1:
            raise BuildError(f"{CELL.name}: one line {blank!r} is needed")
        source = source.replace(blank, text)
    return source


def notebook(path: Path, root: Path, first: str, solved: bool = False) -> Json:
    """The notebook of a source, complete by itself. ``first``: its first cell, which all have in common."""
    made = notebook_of(path, solved, first)
    where = published(root)
    texts = [cell for cell in made["cells"] if cell["cell_type"] == "markdown"]
    texts.append({"source": [onward(path)]})
    for cell in texts:
        text = "".join(cell["source"])  # a link may go over the end of a line
        text = LINK.sub(lambda found: _link(found[1], found[2], where), text)
        cell["source"] = text.splitlines(keepends=True)
    made["cells"].append({"cell_type": "markdown", "id": "onward", "metadata": {}, "source": texts[-1]["source"]})
    made["metadata"]["colab"] = {"provenance": [], "name": notebook_name(path)}
    cell = next(cell for cell in made["cells"] if cell["cell_type"] == "code")
    cell["metadata"]["cellView"] = "form"  # Colab shows its title only
    return made


def _link(words: str, name: str, where: str) -> str:
    """A link to another notebook; where nothing is published, words that say which file to open."""
    there = in_colab(where, name)
    return f"[{words}]({there})" if there else f"{words} (`{name}`)"


def main(root: Path = ROOT) -> int:
    """Write them, and say where; the exit status."""
    folder = root / "dist" / "colab"
    first = first_cell(root)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sources(root / "solutions"):
            name, text = (notebook_name(path), as_text(notebook(path, root, first=first), indent=1))
            write_all({folder / name: text})
            made.writestr(zipfile.ZipInfo(f"llm-training-puzzles/{name}", DATE), text, zipfile.ZIP_DEFLATED)
    release = root / "dist" / "llm-training-puzzles-colab.zip"
    release.write_bytes(packed.getvalue())
    count, size = len(list(folder.glob("*.ipynb"))), release.stat().st_size / 1e3
    print(f"{count} notebooks in {folder.relative_to(root)},")
    print(f"all of them in {release.relative_to(root)} ({size:.0f} kB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
