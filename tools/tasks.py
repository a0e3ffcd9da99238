"""Writes puzzles as tasks for agents, in the layout of Harbor: one folder a puzzle.

    python -m tools.tasks DIR                     all puzzles
    python -m tools.tasks DIR fsdp 7 R4           some of them
    python -m tools.tasks DIR --hints             agents may ask for the hints that learners get
    python -m tools.tasks DIR --variants F        the variants that tools/variants.py has cost_source to F

    DIR/fsdp/task.toml                            what the containers need, and which file is handed in
             instruction.md                       the puzzle as a text
             environment/                         the agent's container: Python, lib, a blank function
             tests/                               the verifier's container: lib and a script that writes the reward
             solution/                            best.py, a program of the frontier, and fsdp.py, the notebook's

The verifier has a container of its own, which gets one file from the agent's. Its reward is the score of the verdict
(see lib/course/points.py), in a JSON file. The same files are cost_source for the same sources, byte by byte.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import io
import json
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from lib.basics.errors import PuzzleError
from lib.course.outlines import OUTLINES
from lib.course.sizes import show_size
from lib.course.specs import Puzzle, cost_source, find, kept, puzzles
from lib.course.variants import use_variants
from solutions.build.sources.blanks import blanked
from solutions.build.sources.definitions import definitions
from solutions.build.sources.files import FIGURES, ROOT, read_cells, source_of

TEMPLATES = Path(__file__).with_name("task")
PICTURE = re.compile(r'<img alt="([^"]*)"[^>]*>|<picture>.*?</picture>', re.DOTALL)
IMAGE = "python:3.13-slim"
"""From which both containers are made, unless another is named: to have the same for ever, name one with its digest."""


VARIANT = "It is a variant: where the figures below are others, those above count.\n"


def course(hints: bool) -> bytes:
    """Return lib as an archive without what is secret, and with hints and half of a schedule, which is one of them, or
    without."""
    specs, outlines = kept("specs.json"), kept(OUTLINES)
    if not hints:
        specs = {name: {**one, "hints": [], "hints_for": None, "star_hint": ""} for name, one in specs.items()}
        nothing = {"until": 0, "events": []}
        outlines = {name: {**one, "sketch": one["sketch"] | nothing} for name, one in outlines.items()}
    files = {path.relative_to(ROOT): path.read_bytes() for path in (ROOT / "lib").rglob("*.py")}
    tables = {"specs.json": specs, OUTLINES: outlines}
    files |= {Path("lib", name): json.dumps(table).encode() for name, table in tables.items()}
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(files):
            facts = tarfile.TarInfo(path.as_posix())
            facts.size = len(files[path])
            archive.addfile(facts, io.BytesIO(files[path]))
    return made.getvalue()


def task(puzzle: Puzzle, archive: bytes, image: str) -> Mapping[Path, str | bytes]:
    """Return the files of a puzzle's task."""
    given = {
        "puzzle": puzzle.name, "task": puzzle.name.replace("_", "-"), "title": puzzle.title, "image": image,
        "number": json.dumps(puzzle.number), "difficulty": puzzle.difficulty, "minutes": f"{puzzle.minutes}.0",
        "description": json.dumps(f"Puzzle {puzzle.number}: {puzzle.idea or puzzle.title}", ensure_ascii=False),
        "answer": f"/app/{puzzle.name}.py", "facts": facts(puzzle), "text": text_of(puzzle),
        "variant": VARIANT if puzzle.variant else "",
    }  # fmt: skip
    places = {
        "task.toml": "task.toml", "instruction.md": "instruction.md", "solve.sh": "solution/solve.sh",
        "environment.Dockerfile": "environment/Dockerfile", "tests.Dockerfile": "tests/Dockerfile",
        "test.sh": "tests/test.sh", "verify.py": "tests/verify.py",
    }  # fmt: skip
    files: dict[Path, str | bytes] = {
        Path(place): _filled((TEMPLATES / name).read_text(encoding="utf-8"), given) for name, place in places.items()
    }
    for part in ("environment", "tests"):
        files[Path(part, "course.tar.gz")] = archive
    files[Path("environment", f"{puzzle.name}.py")] = blank(puzzle)
    files[Path("solution", f"{puzzle.name}.py")] = program(puzzle, puzzle.name)
    files[Path("solution", "best.py")] = program(puzzle, best(puzzle))
    return files


def _filled(template: str, given: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: given[found[1]], template)


def facts(puzzle: Puzzle) -> str:
    """Return size, target, star and prices of a puzzle, as lines of Markdown."""
    wanted = [("Target", puzzle.target), *([("Star", puzzle.star)] if puzzle.star else [])]
    lines = [f"- Size: {show_size(puzzle.size)}"]
    lines += [f"- {name}: at most {' and '.join(puzzle.describe(one['time'], one['memory']))}" for name, one in wanted]
    lines += [f"- Prices: `{cost_source(puzzle.cost)}`"] if puzzle.cost != "default" else []
    return "\n".join(lines)


def text_of(puzzle: Puzzle) -> str:
    """Return the cells of a puzzle's notebook up to its task, as Markdown; of a program to be repaired its case."""
    path = ROOT / "puzzles" / f"{puzzle.file}.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    pages = [(cell["cell_type"], "".join(cell["source"])) for cell in cells if "jupyter" not in cell["metadata"]]
    heading = f"## {puzzle.number}. " if puzzle.repair else "## Your task"
    [last] = [at for at, (_, text) in enumerate(pages) if re.search(f"^{heading}", text, re.MULTILINE)]
    first = last if puzzle.repair else 0
    shown = [text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in pages[first : last + 1]]
    return PICTURE.sub(lambda found: f"(A picture: {found[1] or 'the course'})", "\n\n".join(shown))


def blank(puzzle: Puzzle) -> str:
    """Return the function of a puzzle as a learner gets it: blank, or with its mistake."""
    cells = [blanked(cell.source) for cell in read_cells(source_of(puzzle.file)) if cell.kind == "code"]
    [cell] = [one for one in cells if re.search(rf"^(async )?def {puzzle.name}\(", one, re.MULTILINE)]
    return f"from lib import Model\n\n\n{cell}\n"


def best(puzzle: Puzzle) -> str:
    """Return the name of the program of the frontier that has the star, or else the first one."""
    starred = [point for point in puzzle.frontier if puzzle.has_star(point["time"], point["memory"])]
    return str([*starred, *puzzle.frontier][0]["by"])


def program(puzzle: Puzzle, name: str) -> str:
    """Return a program of solutions/ as an answer to a puzzle, with all that it needs."""
    files = dict.fromkeys([puzzle.file, *(one.file for one in puzzles().values())])
    code = next(filter(None, (_with_needs(file, name) for file in files)))
    return code + (f"\n\n{puzzle.name} = {name}\n" if name != puzzle.name else "")


def _with_needs(file: str, name: str) -> str:
    """Return what defines a name in a source, after all that this needs; nothing if the source does not define it."""
    statements = _statements_of(file)
    wanted, new = set[str](), {name}
    while new:
        wanted |= new
        new = set[str]().union(*[needs for given, needs, _ in statements if given & wanted]) - wanted
    needed = [source for given, _, source in statements if given & wanted]
    imports = [source for source in needed if source.startswith(("import ", "from "))]
    others = [source for source in needed if source not in imports]
    return "\n\n\n".join(["\n".join(imports), *others]) + "\n" if any(name in one[0] for one in statements) else ""


@cache
def _statements_of(file: str) -> list[tuple[set[str], set[str], str]]:
    """Return the statements of all cells of a source."""
    cells = [cell for cell in read_cells(source_of(file)) if cell.kind == "code" and FIGURES not in cell.tags]
    return [one for cell in cells for one in _statements(cell.source)]


def _statements(text: str) -> Iterator[tuple[set[str], set[str], str]]:
    """Yield what each definition of a cell gives a value to, what it needs, and its source."""
    solved = re.sub(r"^[ \t]*### BROKEN\n.*?(?=^[ \t]*### END SOLUTION)", "", text, flags=re.MULTILINE | re.DOTALL)
    solved = re.sub(r"^[ \t]*### (BEGIN|END) SOLUTION\n", "", solved, flags=re.MULTILINE)
    for one in definitions(ast.parse(solved).body):
        names = [node for node in ast.walk(one) if isinstance(node, ast.Name)]
        source = "\n".join(solved.split("\n")[one.lineno - 1 : one.end_lineno])
        if isinstance(one, (ast.Import, ast.ImportFrom)):
            for alias in one.names:
                alone = type(one)(**vars(one) | {"names": [alias]})
                yield {alias.asname or alias.name}, set(), ast.unparse(alone)
        elif isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield {one.name}, {node.id for node in names}, source
        else:
            given = {node.id for node in names if isinstance(node.ctx, ast.Store)}
            yield given, {node.id for node in names} - given, source


def write(folder: Path, chosen: Sequence[Puzzle], hints: bool, image: str) -> None:
    """Write the tasks of some puzzles."""
    archive = course(hints)
    for puzzle in chosen:
        files = task(puzzle, archive, image)
        for path, content in files.items():
            target = folder / puzzle.name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())
        for script in ("tests/test.sh", "solution/solve.sh"):
            (folder / puzzle.name / script).chmod(0o755)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tasks that a command line asks for. Return 0, or 2 if one is unknown."""
    parser = argparse.ArgumentParser(prog="python -m tools.tasks", description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("puzzles", metavar="PUZZLE", nargs="*", help="names or numbers (all)")
    parser.add_argument("--hints", action="store_true", help="leave the hints in the agent's container")
    parser.add_argument("--variants", metavar="F", type=Path, help="write the variants in this file")
    parser.add_argument("--image", default=IMAGE, help=f"from which the containers are made ({IMAGE})")
    options = parser.parse_intermixed_args(arguments)
    try:
        if options.variants is not None:
            use_variants(options.variants)
        every = [one for one in puzzles().values() if one.variant or options.variants is None]
        chosen = [find(name) for name in options.puzzles] or every
    except PuzzleError as error:
        print(error, file=sys.stderr)
        return 2
    write(options.folder, chosen, options.hints, options.image)
    print(f"{len(chosen)} tasks in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
