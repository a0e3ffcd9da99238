"""The puzzles of a folder of sources, and runs of their programs at the puzzles' own sizes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from inspect import isfunction, signature
from pathlib import Path
from typing import Any, NamedTuple

from lib import Model, PuzzleError, Run
from lib.course.specs import Puzzle, cost_named

from ..sources.files import FOLDER, BuildError, is_puzzle, sources
from ..sources.specs import specs_of
from .programs import defined_by, once

Program = Callable[[Model], Any]


class Course(NamedTuple):
    """Puzzles in their order, and the folder with their sources."""

    puzzles: Sequence[Puzzle]
    folder: Path = FOLDER

    def solution(self, puzzle: Puzzle) -> Program:
        """The function of a puzzle, solved."""
        function: Program = self.defined(puzzle.file)[puzzle.name]
        return function

    def program(self, puzzle: Puzzle, name: str) -> Program:
        """The program of that name, in the puzzle's own source or in another's."""
        files = dict.fromkeys([puzzle.file, *(other.file for other in self.puzzles)])
        found = next(filter(None, (self.defined(file).get(name) for file in files)), None)
        if found is None:
            raise BuildError(f"{puzzle.file}.py: the frontier of {puzzle.name} names {name}, which no source has")
        return found  # type: ignore[no-any-return]

    def defined(self, file: str) -> dict[str, Any]:
        """What a source defines."""
        return defined_by(self.folder / f"{file}.py")

    def played(self, puzzle: Puzzle) -> Run:
        """A run of a puzzle's solution."""
        return run_of(self.solution(puzzle), puzzle)

    def starred(self, puzzle: Puzzle) -> Iterator[tuple[Program, Run]]:
        """The programs that earn the star, and their runs: those of the frontier, from fast to slow, and others of the
        puzzle's source."""
        on_it = [self.program(puzzle, point["by"]) for point in puzzle.frontier]
        own = filter(_takes_a_model, self.defined(puzzle.file).values())
        for program in dict.fromkeys([*on_it, *own]):
            with suppress(BuildError):
                played = run_of(program, puzzle)
                if puzzle.has_star(*puzzle.scored(played.time, played.memory)):
                    yield program, played

    def prove(self, puzzle: Puzzle) -> None:
        """Each point of the frontier is what a program takes. Raise BuildError for one that is not."""
        for point in puzzle.frontier:
            by = point["by"]
            played = run_of(self.program(puzzle, by), puzzle)
            time, memory = puzzle.listed(*puzzle.scored(played.time, played.memory))
            if (time, memory) != (point["time"], point["memory"]):
                raise BuildError(
                    f"{puzzle.file}.py: {by} takes {time:g} {puzzle.unit.name} and {memory:,} "
                    f"{puzzle.size_unit.name} in {puzzle.name}, "
                    f"the frontier says {point['time']:g} and {point['memory']:,}"
                )


def _takes_a_model(fn: object) -> bool:
    """Return whether that is a function of a model, as an answer is."""
    return (isfunction(fn) or isinstance(fn, partial)) and [*signature(fn).parameters][:1] == ["model"]


def course_of(folder: Path) -> Course:
    """All puzzles of a folder."""
    return Course([Puzzle(**spec) for path in filter(is_puzzle, sources(folder)) for spec in specs_of(path)], folder)


def run_of(function: Program, puzzle: Puzzle, run: Callable[..., Run] = once) -> Run:
    """Return a run of a program at a puzzle's own size, on its own machine."""
    try:
        return run(function, **puzzle.size, cost=cost_named(puzzle.cost))
    except PuzzleError as error:
        size = ", ".join(f"{name}={value}" for name, value in puzzle.size.items())
        raise BuildError(f"{puzzle.file}.py: a program of {puzzle.name} fails at {size}: {error}") from None
