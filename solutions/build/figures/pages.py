"""The names of a page, and its texts with their figures."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lib import PuzzleError, Run
from lib.course.bounds import bounds_of
from lib.course.ideas import IDEAS
from lib.course.specs import Puzzle, cost_named

from ..runs.priced import priced_run
from ..runs.programs import program
from ..sources import overview
from ..sources.files import FIGURES, BuildError, Cell, Json, cells_of, read_cells, tagged
from ..sources.specs import TAG, literal
from . import by_hand, facts
from .words import WORDS, Published
from .writing import FigureError, filled

FAILURES = (PuzzleError, ArithmeticError, LookupError, NameError, TypeError, ValueError, AttributeError)
"""What a cell of figures may raise."""


class Goal(NamedTuple):
    """Time and memory of a target or a star, in the units of the puzzle, and the sentences of its ``ideas``."""

    time: Any
    memory: Any
    ideas: str = ""


def names_of(path: Path) -> dict[str, Any]:
    """What the figures of a page may use: what the source defines, its puzzles (of several, each target is named for
    its number), what its solution takes on real GPUs, and the names of its last cell."""
    return _names_of(path, path.read_text(encoding="utf-8"))


@cache
def _names_of(path: Path, text: str) -> dict[str, Any]:
    cells = cells_of(text)
    names: dict[str, Any] = {**facts.NAMES, **program(path.name, text), **WORDS}
    names |= _of_puzzles([literal(path, cell) for cell in tagged(cells, TAG)])
    if (done := priced_run(path)) is not None:
        names["priced"] = done
    given = "\n".join(tagged(cells, FIGURES))
    try:
        exec(compile(given, f"{path.name}, its figures", "exec"), names)
    except FAILURES as error:
        raise BuildError(f"{path.name}: its figures: {type(error).__name__}: {error}") from None
    return names


def _of_puzzles(specs: Sequence[Json]) -> dict[str, Any]:
    if len(specs) > 1:
        targets = {spec["number"]: Goal(**spec["target"], ideas=_ideas(spec)) for spec in specs}
        return {"cost": cost_named("default"), **targets}
    if not specs:
        return {"cost": cost_named("default")}
    [spec] = specs
    return {
        **{key: Goal(**spec[key]) for key in ("target", "star") if key in spec},
        "ranks": 1,
        "batches": 1,
        **spec["size"],
        "size": spec["size"],
        "cost": cost_named(spec.get("cost", "default")),
        "bounds": bounds_of(Puzzle(**spec, file="")),
        "ideas": _ideas(spec),
    }


def _ideas(spec: Json) -> str:
    """Return the sentences of the ideas that a puzzle's spec names, each a line of a list."""
    return "\n- ".join(IDEAS[name].sentence for name in spec["ideas"])


def runs_of(names: Mapping[str, Any]) -> Iterator[Run]:
    """Yield the runs that have a name, alone or in a list or a dictionary."""
    for name, value in names.items():
        if name == "__builtins__":  # it is of the process, and a kernel there may have put anything in it
            continue
        if isinstance(value, Run):
            yield value
        elif isinstance(value, Mapping):
            yield from runs_of(value)
        elif isinstance(value, list | tuple):
            yield from (one for one in value if isinstance(one, Run))


def with_figures(path: Path, cells: Sequence[Cell]) -> list[Cell]:
    """Of the cells of a source those that are shown, with the figures of their texts."""
    text = " ".join(" ".join(cell.source for cell in cells if cell.kind == "markdown").split())
    for cited in sorted(_sources_of(names_of(path))):
        if cited not in text:
            raise BuildError(f"{path.name}: a figure is from {cited}, which no text names")
    return [
        cell._replace(source=with_figures_in(path, cell.source)) if cell.kind == "markdown" else cell
        for cell in cells
        if not {TAG, overview.IDEAS, FIGURES} & {*cell.tags}
    ]


def _sources_of(names: Mapping[str, Any]) -> set[str]:
    """Return the sources of what was published, among the names of a page."""
    values = [one for value in names.values() for one in (value if isinstance(value, list | tuple) else [value])]
    return {value.source for value in values if isinstance(value, Published)}


def with_figures_in(path: Path, text: str) -> str:
    """A text of a source, with its figures."""
    if "{{" not in text:
        return text
    try:
        return filled(text, names_of(path))
    except FigureError as error:
        raise BuildError(f"{path.name}: {error}") from None


def check_figures(path: Path) -> None:
    """Each figure in a text is one that the build computes, and the prices are those of the puzzle."""
    cells = read_cells(path)
    found = [literal(path, cell) for cell in tagged(cells, TAG)]
    counts = {str(count) for puzzle in found for count in by_hand.counts(puzzle["size"])}
    texts = [cell.source for cell in cells if cell.kind == "markdown"]
    texts += [hint for puzzle in found for hint in [*puzzle["hints"], puzzle.get("star_hint", "")]]
    for puzzle in found:
        cost = cost_named(puzzle.get("cost", "default"))
        for prices in (said for text in texts for said in by_hand.other_prices(text, cost)):
            raise BuildError(f"{path.name}: {prices} is not what {puzzle['name']} costs")
    if not_computed := [words for text in texts for words in by_hand.by_hand(text, counts)]:
        raise BuildError(
            f"{path.name}: these figures are not computed; name what they come from in the cell "
            f'tagged "{FIGURES}", and write {{{{name}}}}:\n  ' + "\n  ".join(not_computed)
        )
