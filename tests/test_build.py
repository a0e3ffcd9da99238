"""The build of the notebooks, a learner's own copies, and the cell that finds the project."""

import ast
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lib
from lib import PuzzleError
from lib.basics import saving
from lib.course import specs
from lib.course.ideas import IDEAS
from lib.course.outlines import OUTLINES, PROGRAMS
from lib.lab import copies
from lib.lab import shell as front
from solutions.build import products
from solutions.build.__main__ import main
from solutions.build.notebooks.around import BEGIN as BEGIN_CELL
from solutions.build.notebooks.notebook import FIRST_CELL, notebook_of
from solutions.build.pictures.in_texts import check_pictures, with_pictures
from solutions.build.runs.course import Course
from solutions.build.sources.blanks import BLOCK, blanked, check_markers
from solutions.build.sources.files import (
    FOLDER,
    ROOT,
    BuildError,
    Cell,
    Json,
    is_puzzle,
    notebook_name,
    read_cells,
    sources,
)
from solutions.build.sources.files import REPAIRS as REPAIRS_SOURCE
from solutions.build.sources.overview import opened as opened_after
from solutions.build.sources.specs import specs_of
from solutions.build.tables.outlined import outline_rows
from solutions.build.tables.puzzles import table_of_puzzles
from tests.programs import COURSE, REPAIRS, SMALLER
from tests.slow import some

SOURCES = sources()
PUZZLES = [path for path in SOURCES if is_puzzle(path)]

TOUR = """\
# %% [markdown]
# # A tour

# %%
print("hello")
"""
SPEC = {
    "number": 4,
    "name": "fsdp",
    "title": "Fully sharded data parallel",
    "size": {"ranks": 4, "layers": 6, "batches": 4},
    "other_sizes": "data_parallel",
    "target": {"time": 20.4, "memory": 2359296},
    "frontier": [{"time": 0.0, "memory": 0, "by": "idle"}],
    "star": {"time": 15.6, "memory": 2162688},
    "star_hint": "What could be on its way?",
    "layout": "sharded",
    "ideas": [],
    "difficulty": "easy",
    "minutes": 20,
    "hints": ["first", "second", "third"],
}
PUZZLE = f'''\
# %% [markdown]
# # Fully sharded — data parallel

# %%
import math

# %% tags=["spec"]
PUZZLE = {SPEC!r}

# %%
def fsdp(model):
    """Train."""
    ### BEGIN SOLUTION
    for layer in range(3):
        math.sqrt(layer)
    ### END SOLUTION
    return model

# %% tags=["solution"]
faster = fsdp

# %% tags=["solution"]
idle = lambda model: model

# %%
fsdp(None)
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project of one puzzle and a tour, in a folder with a space in its name, built."""
    root = tmp_path / "a project"
    for folder in ("solutions", "puzzles", "lib"):
        (root / folder).mkdir(parents=True)
    (root / "solutions" / "tour.py").write_text(TOUR, encoding="utf-8")
    (root / "solutions" / "p04_fsdp.py").write_text(PUZZLE, encoding="utf-8")
    assert main([], root) == 0
    return root


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def shipped(path: Path) -> Json:
    """The notebook of a source: what the build makes, as another test says."""
    return json.loads((ROOT / "puzzles" / notebook_name(path)).read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def code(notebook: Json) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


# --- the build, on a small tree ------------------------------------------------------------------


def test_building_again_changes_nothing(tree: Path) -> None:
    before = contents(tree)
    assert main([], tree) == 0
    assert main(["--check"], tree) == 0
    assert contents(tree) == before
    assert sorted(p.name for p in (tree / "puzzles").iterdir()) == ["machine_tour.ipynb", "p04_fsdp.ipynb"]


def test_check_names_each_file_that_differs_and_writes_nothing(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blank = tree / "puzzles" / "p04_fsdp.ipynb"
    blank.write_text(blank.read_text(encoding="utf-8").replace("math", "maths"), encoding="utf-8")
    (tree / "lib" / "specs.json").unlink()
    (tree / "puzzles" / "p09_old.ipynb").write_text("{}", encoding="utf-8")
    before = contents(tree)
    assert main(["--check"], tree) == 1
    assert contents(tree) == before
    said = capsys.readouterr().err.splitlines()
    assert f"differs: {Path('puzzles', 'p04_fsdp.ipynb')}" in said
    assert f"missing: {Path('lib', 'specs.json')}" in said
    assert f"made from no source: {Path('puzzles', 'p09_old.ipynb')}" in said
    assert not any("tour" in line for line in said)


@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_no_source_at_all_fails(tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "solutions").mkdir()
    assert main(arguments, tmp_path) == 2
    assert "nothing to build from" in capsys.readouterr().err


def test_a_blank_has_neither_solution_nor_spec(tree: Path) -> None:
    cells = code(notebook_of(tree / "solutions" / "p04_fsdp.py"))
    assert cells[0] == FIRST_CELL
    assert cells[1:] == [
        "import math",
        'def fsdp(model):\n    """Train."""\n    # Your code here.\n    return model',
        BEGIN_CELL.format(number=3, names='"wsdp"'),
        "fsdp(None)",
    ]
    given = PUZZLE.replace('"""Train."""', '"""Train."""\n    given = 1')
    (tree / "solutions" / "p04_fsdp.py").write_text(given, encoding="utf-8")
    assert not any("start_from" in cell for cell in code(notebook_of(tree / "solutions" / "p04_fsdp.py")))


def test_a_solved_notebook_has_the_solution_and_no_spec(tree: Path) -> None:
    cells = code(notebook_of(tree / "solutions" / "p04_fsdp.py", solved=True))
    assert any("math.sqrt(layer)" in cell for cell in cells)
    assert "faster = fsdp" in cells
    assert not any("PUZZLE =" in cell for cell in cells)


def test_the_first_cell_comes_before_other_code_and_after_the_title(tree: Path) -> None:
    cells = notebook_of(tree / "solutions" / "p04_fsdp.py")["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", *["code"] * 5, "markdown"]
    assert cells[1]["source"] == [FIRST_CELL]


def test_specs_are_read_back(tree: Path) -> None:
    assert json.loads((tree / "lib" / "specs.json").read_text(encoding="utf-8")) == {
        "fsdp": SPEC | {"file": "p04_fsdp", "teaches": []}
    }


def changed(**entries: object) -> str:
    return PUZZLE.replace(repr(SPEC), repr(SPEC | entries))


BROKEN = {
    "no markers": (re.sub(r" +### \w+ SOLUTION\n", "", PUZZLE), "one cell with a solution block"),
    "no end": (PUZZLE.replace("    ### END SOLUTION\n", ""), "needs its END"),
    "two blocks": (
        PUZZLE.replace("    return model", "    ### BEGIN SOLUTION\n    ### END SOLUTION\n    return model"),
        "exactly one solution block",
    ),
    "another function": (PUZZLE.replace("def fsdp", "def other"), "must define fsdp()"),
    "no code left": (PUZZLE.replace('    """Train."""\n', "").replace("    return model\n", ""), "no valid Python"),
    "no spec": (PUZZLE.replace(' tags=["spec"]', ""), "exactly one cell with tags"),
    "no literal": (changed().replace("'minutes': 20", "'minutes': int(20)"), "plain literal"),
    "more in the spec": (PUZZLE.replace("PUZZLE =", "x = 1\nPUZZLE ="), "nothing else"),
    "key missing": (PUZZLE.replace("'minutes': 20, ", ""), "lacks 'minutes'"),
    "unknown key": (changed(hint="x"), "unknown 'hint'"),
    "no ranks": (changed(size={"layers": 6, "batches": 4}), "lacks 'ranks'"),
    "wrong type": (changed(minutes="20"), "no int"),
    "two hints": (changed(hints=["first", "second"]), 'PUZZLE["hints"] has 2; there are to be 3, each a text'),
    "a hint that says nothing": (changed(hints=["first", "", "third"]), "there are to be 3, each a text"),
    "no such difficulty": (
        changed(difficulty="trivial"),
        """PUZZLE["difficulty"] has 'trivial', not one of easy, medium, hard""",
    ),
    "no such idea": (
        changed(ideas=["one_micro_batch", "no_peeking"]),
        f"""PUZZLE["ideas"] has 'no_peeking', not one of {", ".join(IDEAS)}""",
    ),
    "an idea that is no word": (
        changed(ideas=[["one_micro_batch"]]),
        """PUZZLE["ideas"] has ['one_micro_batch'], not one of""",
    ),
    "no such program": (
        changed(frontier=[{"time": 0.0, "memory": 0, "by": "busy"}]),
        "the frontier of fsdp names busy, which no source has",
    ),
    "figures that nobody reaches": (
        changed(frontier=[{"time": 15.0, "memory": 65536, "by": "idle"}]),
        "idle takes 0 ticks and 0 elements in fsdp, the frontier says 15 and 65,536",
    ),
    "a frontier that goes up and down": (
        changed(frontier=[{"time": 15.0, "memory": 9, "by": "idle"}, {"time": 16.0, "memory": 9, "by": "idle"}]),
        "from fast to small",
    ),
    "a point over the target": (
        changed(frontier=[{"time": 15.0, "memory": 9, "by": "idle"}, {"time": 21.0, "memory": 8, "by": "idle"}]),
        "a point of the frontier is over the target",
    ),
    "a star over the target": (changed(star={"time": 20.5, "memory": 9}), "the star is over the target"),
    "a star that nobody reaches": (
        changed(frontier=[{"time": 15.7, "memory": 9, "by": "idle"}]),
        "no point of the frontier reaches the star",
    ),
    "wrong file": (changed(number=5), "another file name"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_source_is_refused(tree: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert text != PUZZLE
    (tree / "solutions" / "p04_fsdp.py").write_text(text, encoding="utf-8")
    before = contents(tree)
    assert main([], tree) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "p04_fsdp.py" in said
    assert contents(tree) == before


def test_one_number_twice_is_refused(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = changed(name="other").replace("def fsdp", "def other")
    (tree / "solutions" / "p04_other.py").write_text(text, encoding="utf-8")
    before = contents(tree)
    assert main([], tree) == 2
    said = capsys.readouterr().err
    assert "p04_other.py: two puzzles have the same number, 4: the other is in p04_fsdp.py" in said
    assert contents(tree) == before


def test_a_program_that_fails_is_told_with_its_puzzle_and_size(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PUZZLE.replace("math.sqrt(layer)", "model.forward(layer, None, None)")
    (tree / "solutions" / "p04_fsdp.py").write_text(text, encoding="utf-8")
    before = contents(tree)
    assert main([], tree) == 2
    said = capsys.readouterr().err
    assert "build: p04_fsdp.py: a program of fsdp fails at ranks=4, layers=6, batches=4: " in said
    assert "forward" in said and contents(tree) == before


# --- nothing half written ------------------------------------------------------------------------


def changes_everything(tree: Path) -> dict[str, bytes]:
    """Change all sources, so that every file would be written; what the files are before."""
    new = changed(minutes=21).replace("math.sqrt(layer)", "math.sqrt(layer + 1)")
    (tree / "solutions" / "p04_fsdp.py").write_text(new, encoding="utf-8")
    (tree / "solutions" / "tour.py").write_text(TOUR.replace("hello", "hi"), encoding="utf-8")
    return contents(tree)


@pytest.mark.parametrize("written", [0, 3])
def test_a_build_on_a_disk_that_fills_up_leaves_everything_as_it_was(
    tree: Path, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, made, create = changes_everything(tree), [], saving.tempfile.mkstemp

    def full(*given: object, **named: object) -> object:
        if len(made) == written:
            raise OSError(errno.ENOSPC, "No space left on device")
        made.append(given)
        return create(*given, **named)

    monkeypatch.setattr(saving.tempfile, "mkstemp", full)
    with pytest.raises(OSError, match="No space left"):
        main([], tree)
    assert contents(tree) == before and len(made) == written
    monkeypatch.undo()
    assert main([], tree) == 0
    assert contents(tree) != before


def test_notebooks_are_made_from_the_tables_of_the_same_build(tree: Path) -> None:
    own = BEGIN_CELL.format(number=3, names='"wsdp"')
    notebook = tree / "puzzles" / "p04_fsdp.ipynb"
    assert own in code(notebook_of(tree / "solutions" / "p04_fsdp.py"))  # of the course
    assert not any("start_from" in cell for cell in code(json.loads(notebook.read_text(encoding="utf-8"))))
    (tree / "solutions" / "p04_fsdp.py").write_text(changed(begins_with="idle_before"), encoding="utf-8")
    source = PUZZLE.replace(repr(SPEC), repr(SPEC | {"number": 2, "name": "idle_before"}))
    (tree / "solutions" / "p02_idle_before.py").write_text(source.replace(" fsdp", " idle_before"), "utf-8")
    assert main([], tree) == 0
    cells = code(json.loads(notebook.read_text(encoding="utf-8")))
    assert BEGIN_CELL.format(number=2, names='"idle_before"') in cells
    assert "idle_before" not in specs.puzzles()


# --- the build, as it stands ---------------------------------------------------------------------


SOME = [pytest.param(name, marks=pytest.mark.slow if name in SMALLER else ()) for name in some([*specs.puzzles()], 3)]
"""Puzzles whose rows in outlines.json are made here: these take all their programs at all sizes."""


@pytest.fixture(scope="module")
def all_specs() -> list[Json]:
    return products.checked(ROOT)


@pytest.mark.long
def test_all_but_the_outlines_is_what_the_build_makes(all_specs: list[Json]) -> None:
    """That the programs of the frontier take what it says is in test_passes.py."""
    paths, shipped_figures = some(SOURCES, 3), json.loads((ROOT / "lib" / "figures.json").read_text(encoding="utf-8"))
    made = products.shared(ROOT, all_specs) | products.notebooks(paths)
    made[Path("lib", "specs.json")] = table_of_puzzles(FOLDER, all_specs)
    assert [path for path, text in made.items() if (ROOT / path).read_text(encoding="utf-8") != text] == []
    figures = products.of_solutions(paths)
    assert figures == {name: shipped_figures[name] for name in figures} and len(figures) > len(shipped_figures) // 4
    assert {path.name for path in (ROOT / "puzzles").glob("*.ipynb")} == {notebook_name(path) for path in SOURCES}


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_the_outlines_are_what_the_build_makes(name: str, all_specs: list[Json]) -> None:
    """With what a solution holds at its peak, what costs it time, and what it takes at all other sizes."""
    tables = [json.loads((ROOT / "lib" / table).read_text(encoding="utf-8")) for table in (OUTLINES, PROGRAMS)]
    assert all([*table] == [spec["name"] for spec in all_specs] for table in tables)
    course = Course([specs.Puzzle(**spec) for spec in all_specs])
    [own] = [puzzle for puzzle in course.puzzles if puzzle.name == name]
    assert json.loads(json.dumps(outline_rows(course, own))) == [table[name] for table in tables]


def test_the_course_is_complete() -> None:
    puzzles = specs.puzzles().values()
    numbers = [puzzle.number for puzzle in puzzles if not puzzle.repair]
    assert numbers == sorted(numbers, key=int) and numbers == [*range(len(COURSE))]
    of_repairs = [int(str(puzzle.number)[1:]) for puzzle in puzzles if puzzle.repair]
    assert of_repairs[0] == 1 and of_repairs == sorted({*of_repairs})
    assert [puzzle.repair for puzzle in puzzles] == sorted(puzzle.repair for puzzle in puzzles)
    assert [puzzle.name for puzzle in puzzles] == [*COURSE, *REPAIRS] and COURSE and REPAIRS
    assert [path.stem for path in SOURCES if not is_puzzle(path)] == ["index", "tour", "laboratory", "for_real"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_each_notebook_is_valid_short_and_has_fixed_ids(path: Path) -> None:
    notebook = shipped(path)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        nbformat.validate(notebook)
    assert len(ids) <= (12 + 12 * len(specs_of(path)) if is_puzzle(path) else 30)


@pytest.mark.parametrize("path", PUZZLES, ids=lambda path: path.stem)
def test_each_notebook_says_how_hard_its_puzzles_are(path: Path) -> None:
    said = "\n".join("".join(cell["source"]) for cell in shipped(path)["cells"])
    effort = [f"*{spec['difficulty'].capitalize()}, about {spec['minutes']} minutes.*" for spec in specs_of(path)]
    assert re.findall(r"^\*\w+, about \d+ minutes\.\*$", said, re.MULTILINE) == effort


def test_what_is_to_be_repaired_is_offered_where_it_opens() -> None:
    opened = dict(opened_after(ROOT / "solutions"))
    assert list(opened) == [puzzle.number for puzzle in specs.puzzles().values() if puzzle.repair]
    for path in PUZZLES:
        last = "".join(shipped(path)["cells"][-1]["source"])
        own = [number for number, after in opened.items() if path.stem.startswith(f"p{after:02}_")]
        assert re.findall(r"\bR\d+\b", last) == own and ("to be repaired](repairs.ipynb)" in last) == bool(own)


def test_the_overview_leads_to_every_notebook() -> None:
    text = (ROOT / "solutions" / "index.py").read_text(encoding="utf-8")
    links = re.findall(r"\]\((\w+\.ipynb)\)", text)
    assert links == [notebook_name(path) for path in SOURCES[1:]]


@pytest.mark.parametrize("path", [path for path in PUZZLES if path.stem != REPAIRS_SOURCE], ids=lambda path: path.stem)
def test_each_puzzle_hides_its_solution(path: Path) -> None:
    [source] = [cell.source for cell in read_cells(path) if BLOCK.search(cell.source)]
    before, block, after = source.partition(BLOCK.search(source)[0])  # type: ignore[index]
    [learners] = [cell for cell in code(shipped(path)) if "# Your code here." in cell]
    assert "# Your code here." not in block and len(block.splitlines()) > 2
    assert [*map(str.strip, learners.split("# Your code here."))] == [before.strip(), after.strip()]
    ast.parse(learners)


# --- programs to be repaired ---------------------------------------------------------------------

WRONG = """\
def fsdp(model):
    x = 1
    ### BEGIN SOLUTION
    if x:
        return model
    ### BROKEN
    # while x:
    #
    #     x = 0
    ### END SOLUTION
    y = 2
    ### BEGIN SOLUTION
    return y
    ### BROKEN
    # return x
    ### END SOLUTION
"""


def test_a_blank_has_the_mistake_in_place_of_the_solution() -> None:
    assert blanked(WRONG) == (
        "def fsdp(model):\n    x = 1\n    while x:\n    \n        x = 0\n    y = 2\n    return x\n"
    )


def test_all_blocks_of_a_program_to_be_repaired_say_what_is_wrong(tree: Path) -> None:
    cells = [Cell("code", WRONG.replace("    ### BROKEN\n    # return x\n", ""))]
    with pytest.raises(BuildError, match="exactly one solution block"):
        check_markers(tree / "repairs.py", cells, [SPEC])


@pytest.mark.parametrize("number", [9, "R", "R0", "r1", "9"])
def test_programs_to_be_repaired_have_numbers_of_their_own(tree: Path, number: object) -> None:
    path = tree / "solutions" / "repairs.py"
    path.write_text(PUZZLE.replace(repr(SPEC), repr(SPEC | {"number": number})), encoding="utf-8")
    with pytest.raises(BuildError, match='programs to be repaired have "R1", "R2" and so on'):
        specs_of(path)


# --- where the project is published --------------------------------------------------------------

README = "# It\n\n<!-- links, made by the build -->\n<!-- end of links -->\n\nMore.\n"


def published(tree: Path, value: str) -> int:
    (tree / "pyproject.toml").write_text(f"[tool.llm-training-puzzles]\naddress = {value}\n", encoding="utf-8")
    (tree / "README.md").write_text(README, encoding="utf-8")
    return main([], tree)


def first_text(tree: Path) -> str:
    notebook = json.loads((tree / "puzzles" / "p04_fsdp.ipynb").read_text(encoding="utf-8"))
    return "".join(notebook["cells"][0]["source"])


def test_without_an_address_there_are_no_links(tree: Path) -> None:
    assert published(tree, '""') == 0
    assert (tree / "README.md").read_text(encoding="utf-8") == README
    assert "](" not in first_text(tree)


def test_one_address_makes_the_links_of_all(tree: Path) -> None:
    assert published(tree, '"https://github.com/me/it/"') == 0
    colab = "[Open in Colab](https://colab.research.google.com/github/me/it/blob/colab/"
    assert f"{colab}index.ipynb) · [The project](https://github.com/me/it)\n" in (tree / "README.md").read_text()
    assert first_text(tree).startswith(f"# Fully sharded — data parallel\n\n{colab}p04_fsdp.ipynb) · [The project](")
    assert main(["--check"], tree) == 0
    assert "](" not in "".join(notebook_of(tree / "solutions" / "p04_fsdp.py", first="1")["cells"][0]["source"])
    assert published(tree, '""') == 0  # and they go again
    assert (tree / "README.md").read_text(encoding="utf-8") == README


def test_elsewhere_than_on_github_colab_cannot_open_it(tree: Path) -> None:
    assert published(tree, '"https://example.org/it"') == 0
    assert "[The project](https://example.org/it)" in first_text(tree) and "Colab" not in first_text(tree)


@pytest.mark.parametrize("value", ['"http://example.org"', '"example.org/it"', "3", '"https://a b"'])
def test_what_is_no_address_is_refused(tree: Path, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert published(tree, value) == 2
    assert "does not begin with https://" in capsys.readouterr().err


# --- a learner's own copies ----------------------------------------------------------------------


def test_building_again_leaves_copies_alone(tree: Path) -> None:
    copies.copy_blanks(tree / "puzzles" / "mine", tree / "puzzles")
    own = tree / "puzzles" / "mine" / "p04_fsdp.ipynb"
    own.write_text("my work", encoding="utf-8")
    source = tree / "solutions" / "p04_fsdp.py"
    source.write_text(PUZZLE.replace("Train.", "Train well."), encoding="utf-8")
    before = contents(own.parent)
    assert main(["--check"], tree) == 1
    assert main([], tree) == 0
    assert contents(own.parent) == before
    assert main(["--check"], tree) == 0


def test_reset_keeps_every_old_file(tree: Path) -> None:
    puzzles = tree / "puzzles"
    own = puzzles / "mine" / "p04_fsdp.ipynb"
    assert copies.reset(own.parent, "4", puzzles) == (own, None)
    assert copies.reset(own.parent, "4", puzzles) == (own, None)  # still blank: nothing to keep
    for number, text in enumerate(("first try", "second try"), start=1):
        own.write_text(text, encoding="utf-8")
        kept = own.with_name(f"p04_fsdp.old{number}.ipynb")
        assert copies.reset(own.parent, "4", puzzles) == (own, kept)
        assert own.read_bytes() == (puzzles / "p04_fsdp.ipynb").read_bytes()
    kept_texts = [own.with_name(f"p04_fsdp.old{i}.ipynb").read_text(encoding="utf-8") for i in (1, 2)]
    assert kept_texts == ["first try", "second try"]
    assert len(list(own.parent.iterdir())) == 3


def test_reset_in_a_notebook_keeps_ones_work_and_says_to_load_the_blank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies.copy_blanks(tmp_path)
    monkeypatch.chdir(tmp_path)
    for wanted in ("fsdp", 4):
        (tmp_path / "p04_fsdp.ipynb").write_text(f"my work on {wanted}", encoding="utf-8")
        said = str(lib.reset(wanted))
    assert said.splitlines() == [
        "Your work, as it was last saved, is kept in p04_fsdp.old2.ipynb.",
        "p04_fsdp.ipynb is blank again. If it is open in JupyterLab: File, Reload Notebook from Disk.",
    ]
    kept = [(tmp_path / f"p04_fsdp.old{n}.ipynb").read_text(encoding="utf-8") for n in (1, 2)]
    assert kept == ["my work on fsdp", "my work on 4"]
    assert (tmp_path / "p04_fsdp.ipynb").read_bytes() == (ROOT / "puzzles" / "p04_fsdp.ipynb").read_bytes()
    assert str(lib.reset("R1")).startswith("repairs.ipynb is blank again, all of it.")


@pytest.mark.parametrize(
    ("folder", "wanted", "says"),
    [
        (".", "fsdp", "there is no p04_fsdp.ipynb of yours in this folder"),
        (".", "fsd", "there is no puzzle 'fsd'"),
        (ROOT / "puzzles", "fsdp", "p04_fsdp.ipynb here is the blank itself, and git restores it"),
    ],
)
def test_where_a_notebook_cannot_be_reset(
    folder: Path, wanted: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p05_pipeline.ipynb").write_text("my work", encoding="utf-8")
    monkeypatch.chdir(tmp_path / folder)
    with pytest.raises(PuzzleError, match=re.escape(says)):
        lib.reset(wanted)
    monkeypatch.setattr("lib.lab.notebook.BLANKS", tmp_path / "missing")  # as in Colab
    with pytest.raises(PuzzleError, match="the blank notebooks are not here"):
        lib.reset("pipeline")
    assert [path.name for path in tmp_path.iterdir()] == ["p05_pipeline.ipynb"]


@pytest.mark.parametrize("wanted", ["4", "04", "p04", "fsdp", "p04_fsdp", "p04_fsdp.ipynb"])
def test_a_puzzle_is_found_by_what_people_call_it(tree: Path, wanted: str) -> None:
    assert copies.find_blank(wanted, tree / "puzzles").name == "p04_fsdp.ipynb"
    assert copies.find_blank("tour", tree / "puzzles").name == "machine_tour.ipynb"


@pytest.mark.parametrize("wanted", [REPAIRS[1], "R2", "r2", "repairs", "repairs.ipynb"])
def test_a_program_to_be_repaired_is_found_with_all_others(wanted: str) -> None:
    assert copies.find_blank(wanted, ROOT / "puzzles").name == "repairs.ipynb"


@pytest.mark.parametrize("wanted", ["99", "fsd", "", "²", "../p04_fsdp"])
def test_an_unknown_puzzle_is_named_with_the_known_ones(
    tmp_path: Path, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert front.main(["reset", wanted, str(tmp_path / "mine")]) == 2
    said = capsys.readouterr().err
    assert repr(wanted) in said
    assert "machine_tour, p00_basic, p01_grad_accum" in said
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("hard_links", [True, False])
def test_a_name_that_is_taken_stays_as_it_is(tmp_path: Path, hard_links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hard_links:
        monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "own.ipynb"
    assert saving.write_new(target, "blank")
    target.write_text("my work", encoding="utf-8")
    assert not saving.write_new(target, "blank")
    assert contents(tmp_path) == {"own.ipynb": b"my work"}


def refuse(*_: object) -> None:
    raise OSError(errno.EPERM, "no hard links here")


def test_a_write_that_breaks_off_leaves_everything_as_it_was(tree: Path) -> None:
    puzzles = tree / "puzzles"
    copies.copy_blanks(puzzles / "mine", puzzles)
    before = contents(tree)
    broken = "half a file " * 10_000 + "\ud800"  # cannot be encoded: fails in the middle, like a full disk
    for write in (saving.write_new, saving.write_whole, lambda target, text: saving.write_all({target: text})):
        for name in ("new.ipynb", "p04_fsdp.ipynb"):
            with pytest.raises(UnicodeEncodeError):
                write(puzzles / "mine" / name, broken)
    assert contents(tree) == before


def test_a_reset_on_a_full_disk_moves_nothing(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tree / "puzzles" / "mine"
    copies.copy_blanks(own, tree / "puzzles")
    before = contents(tree)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(saving.tempfile, "mkstemp", full)
    assert front.main(["reset", "4", str(own)]) == 2
    assert "No space left" in capsys.readouterr().err
    assert contents(tree) == before


# --- the first cell ------------------------------------------------------------------------------


def run_first_cell(folder: Path, *isolated: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the cell as a kernel would, twice, and print which lib and which drawing it found."""
    shown = "import drawing, lib\nprint(lib.__file__, drawing.__file__)"
    (folder / "cell.py").write_text("\n".join([before, FIRST_CELL, FIRST_CELL, shown]))
    command = [sys.executable, *isolated, "cell.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.process
def test_the_first_cell_finds_ours_and_not_what_is_called_so_beside_the_notebook(tmp_path: Path) -> None:
    for name in ("lib", "drawing"):
        (tmp_path / f"{name}.py").write_text("", encoding="utf-8")
    done = run_first_cell(tmp_path)
    assert (done.stderr, done.stdout) == ("", f"{ROOT / 'lib' / '__init__.py'} {ROOT / 'drawing' / '__init__.py'}\n")


@pytest.mark.process
def test_the_first_cell_shows_what_to_do_where_the_package_is_not_installed(tmp_path: Path) -> None:
    done = run_first_cell(tmp_path, "-S")
    assert "%pip install llm-training-puzzles. In a clone: make lab" in done.stderr
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'llm_training_puzzles'"


@pytest.mark.process
def test_the_first_cell_says_that_another_lib_was_imported_before(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text("", encoding="utf-8")
    done = run_first_cell(tmp_path, before="import lib")
    assert str(tmp_path / "lib.py") in done.stderr and "restart the kernel" in done.stderr.splitlines()[-1]


# --- the project around it -----------------------------------------------------------------------


def test_every_make_target_explains_itself() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [phony] = re.findall(r"^\.PHONY: (help .*)$", makefile, re.MULTILINE)
    assert set(phony.split()) == set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE))


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("make"), reason="this machine has no make; docs/install.md says how to do without")
@pytest.mark.parametrize(("arguments", "said"), [([], "check-built"), (["reset"], "make reset P=4")])
def test_make_says_what_to_write(arguments: list[str], said: str) -> None:
    environment = {**os.environ, "P": ""}
    done = subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert said in done.stdout + done.stderr
    assert (done.returncode == 0) == (not arguments)


# --- what is installed ---------------------------------------------------------------------------


def test_every_package_that_is_asked_for_has_a_tested_version_that_will_do() -> None:
    """Else `make setup` takes whatever is newest that day."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [Requirement(line) for line in (ROOT / "tests" / "pins" / "stack.txt").read_text().splitlines()[1:]]
    tested = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins}
    extras = project["optional-dependencies"]
    asked = [
        *project["dependencies"],
        *(one for name in ("lab", "notebooks", "dev", "lite", "site") for one in extras[name]),
    ]
    for one in map(Requirement, asked):
        assert one.name == project["name"] or tested[canonicalize_name(one.name)] in one.specifier, one.name


def test_the_commands_that_people_type_are_among_what_is_installed() -> None:
    """``jupyter lab`` comes with JupyterLab, ``jupyter notebook`` with the package that is called jupyter only."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {"jupyter", "jupyterlab"} <= {Requirement(one).name for one in [*extras["lab"], *extras["notebooks"]]}


def test_a_source_may_draw_a_picture_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "p00_basic.py"
    path.write_text("# %%\nfrom drawing import draw_primitive\n\n\ndef mine(static=False):\n"
                    "    return draw_primitive('allreduce', static=static)\n")  # fmt: skip
    assert "<img" in with_pictures(path, "![so](picture:mine)")
    with pytest.raises(BuildError, match=r"p00_basic.py: it defines no yours\(\)"):
        check_pictures(path, [*read_cells(path), Cell("markdown", "![so](picture:yours)")])
