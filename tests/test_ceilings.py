"""What the code base may weigh: the lines of each package are at most those of the table in docs/code.md."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| `([\w/]+)`[\w ,]* \| ([\d,]+) \|", re.MULTILINE)


def lines_of(path: Path) -> int:
    files = path.rglob("*.js" if path.name == "board" else "*.py")
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def ceilings() -> dict[str, int]:
    text = (ROOT / "docs" / "code.md").read_text(encoding="utf-8")
    return {name: int(most.replace(",", "")) for name, most in ROW.findall(text)}


def test_every_package_has_a_ceiling_and_is_below_it() -> None:
    packages = {f"lib/{path.parent.name}" for path in (ROOT / "lib").glob("*/__init__.py")}
    assert packages | {"lib", "drawing", "drawing/board", "tests"} == ceilings().keys()
    over = {name: lines_of(ROOT / name) for name, most in ceilings().items() if lines_of(ROOT / name) > most}
    assert not over, "over the ceilings of docs/code.md: let something go"


BELOW = ("basics", "record", "machine", "real", "represent", "learner", "schedules", "running", "study", "course")


def test_nothing_below_knows_that_there_are_explanations() -> None:
    for package in (*BELOW, "recording", "engines", "lab"):
        for path in (ROOT / "lib" / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "explain" in text else ():
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not any("explain" in name.split(".") for name in names), path


def test_nobody_asks_for_the_text_of_a_problem() -> None:
    """Rules are told apart by their names."""
    asked = re.compile(r"\.problem\.(startswith|endswith)|in \w+\.problem\b|\.problem (==|!=|in)\b")
    for path in (ROOT / "lib").rglob("*.py"):
        found = asked.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path}: {found}"
