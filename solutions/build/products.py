"""All files that the build makes, and how they differ from those that there are."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from drawing import draw
from lib.course.specs import Puzzle, forget, texts

from .figures.pages import check_figures, names_of
from .figures.writing import PLACE, shown
from .notebooks.address import fill, published
from .notebooks.notebook import notebook_of
from .pages.board import board
from .pages.docs import documented, with_puzzles
from .pages.gallery import gallery
from .pages.measured import SHOWN, measured
from .pages.profiled import profile_of, profile_pictures
from .pictures.in_texts import check_pictures
from .pictures.race import can_race
from .pictures.schedules import in_files
from .runs.course import Course
from .sources.blanks import blank_cell
from .sources.files import BuildError, Json, as_text, is_puzzle, notebook_name, read_cells, sources, tagged
from .sources.overview import has_overview, sentences
from .sources.specs import specs_of
from .tables.outlined import tables_of_outlines
from .tables.puzzles import table_of_puzzles
from .tables.reference import table_of_reference


def products(root: Path) -> dict[Path, str]:
    """Every file that the build makes, relative to the root, and its text. The pictures in the notebooks are drawn from
    the tables that are made here, not from those in lib."""
    found = checked(root)
    made = tables(root, found)
    use_tables({path.relative_to("lib").as_posix(): text for path, text in made.items()})
    try:
        return made | shown_with_tables(root, found)
    finally:
        use_tables({})


def use_tables(instead: dict[str, str]) -> None:
    """Let all of lib read these tables, by the names of their files, instead of its own."""
    texts.clear()
    texts.update(instead)
    forget()


def checked(root: Path) -> list[Json]:
    """The figures of all puzzles, once all has been looked at that needs no run: the quick part comes first."""
    folder = root / "solutions"
    paths = sources(folder)
    for path in paths:
        cells = read_cells(path)
        for cell in cells:
            blank_cell(path, cell)
        check_pictures(path, cells)
    found = [spec for path in filter(is_puzzle, paths) for spec in specs_of(path)]
    for path in paths:
        check_figures(path)
    for key in ("number", "name"):
        _check_different(found, key)
    known = sentences(folder)
    missing = sorted(spec["name"] for spec in found if spec["name"] not in known)
    if missing and has_overview(folder):
        raise BuildError(f"index.py: a line with a link is needed for {', '.join(missing)}")
    return found


def _check_different(found: Sequence[Json], key: str) -> None:
    files: dict[object, str] = {}
    for spec in found:
        if spec[key] in files:
            raise BuildError(
                f"{spec['file']}.py: two puzzles have the same {key}, "
                f"{spec[key]!r}: the other is in {files[spec[key]]}.py"
            )
        files[spec[key]] = spec["file"]


def tables(root: Path, found: Sequence[Json]) -> dict[Path, str]:
    """The table of the puzzles, and what of their solutions may be shown."""
    course = _course(root, found)
    for spec in changed_first(root, found):
        course.prove(Puzzle(**spec))
    return {
        Path("lib", "specs.json"): table_of_puzzles(course.folder, found),
        **{Path("lib", name): text for name, text in tables_of_outlines(course).items()},
    }


def _course(root: Path, found: Sequence[Json]) -> Course:
    return Course([Puzzle(**spec) for spec in found], root / "solutions")


def changed_first(root: Path, found: Sequence[Json]) -> list[Json]:
    """The puzzles, those before the others that are new or have changed: there the mistakes are."""
    path = root / "lib" / "specs.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return sorted(found, key=lambda spec: bool(old.get(spec["name"]) == {**old.get(spec["name"], {}), **spec}))


def shown_with_tables(root: Path, found: Sequence[Json]) -> dict[Path, str]:
    """Every file but the tables of lib, whose figures these show: notebooks, pictures, the gallery and documents."""
    paths = sources(root / "solutions")
    figures = {Path("lib", "figures.json"): as_text(of_solutions(paths), indent=1)}
    return figures | notebooks(paths) | shared(root, found)


def notebooks(paths: Sequence[Path]) -> dict[Path, str]:
    """The notebooks of sources, as they are shipped."""
    return {Path("puzzles", notebook_name(path)): as_text(notebook_of(path), indent=1) for path in paths}


def shared(root: Path, found: Sequence[Json]) -> dict[Path, str]:
    """What is made of the whole course: documents, pictures, the gallery."""
    course, made = _course(root, found), dict[Path, str]()
    if can_race(course.folder):
        made[Path("drawing", "reference.json")] = table_of_reference()
    made.update(documents(root, course))
    made.update(pictures(root, course))
    return made


def of_solutions(paths: Sequence[Path]) -> dict[str, dict[str, str]]:
    """The figures in the texts that explain a solution, by file and by what is written there: ``lib.solution`` reads
    these texts from the sources."""
    found: dict[str, dict[str, str]] = {}
    for path in filter(is_puzzle, paths):
        texts = tagged([cell for cell in read_cells(path) if cell.kind == "markdown"], "solution")
        if places := [" ".join(place.split()) for text in texts for place in PLACE.findall(text)]:
            names = names_of(path)
            found[path.stem] = {place: shown(place, names) for place in dict.fromkeys(places)}
    return found


def documents(root: Path, course: Course) -> Iterator[tuple[Path, str]]:
    """README.md and docs/ with their links, tables and figures, the gallery and the board: what solutions do."""
    readme, overview, where = root / "README.md", has_overview(course.folder), published(root)
    if readme.exists():
        text = fill(documented(readme, {}), where)
        yield Path("README.md"), with_puzzles(text, course.puzzles, course.folder) if overview else text
    if not overview:
        return
    pages = sorted((root / "docs").glob("*.md"))
    given = measured(course) if pages else {}
    for page in pages:
        yield page.relative_to(root), documented(page, given)
    for name, text in (*gallery(course, where), *board(course, where)):
        yield Path("puzzles", name), text


def pictures(root: Path, course: Course) -> Iterator[tuple[Path, str]]:
    """The pictures that README.md and docs/ show."""
    known = {puzzle.name: puzzle for puzzle in course.puzzles}
    if SHOWN in known:
        puzzle = known[SHOWN]
        limits = {f"{key}_target": value for key, value in puzzle.target.items()}
        yield from in_files(SHOWN, draw(course.played(puzzle), **limits))
    if (root / "docs" / "profile").exists() and "one_f_one_b" in known:
        yield from profile_pictures(profile_of(root), course.solution(known["one_f_one_b"]))


def differences(root: Path, made: dict[Path, str]) -> Iterator[str]:
    """One line for each file that is missing, differs, or comes from no source."""
    for path, text in made.items():
        if not (root / path).exists():
            yield f"missing: {path}"
        elif (root / path).read_text(encoding="utf-8") != text:
            yield f"differs: {path}"
    for extra in sorted((root / "puzzles").glob("*.ipynb")):
        if extra.relative_to(root) not in made:
            yield f"made from no source: {extra.relative_to(root)}"
