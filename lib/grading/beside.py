"""Files beside a learner's own one, which that imports: they are found as Python does, and run as their importer is."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from ..basics.errors import is_learners_file

Runs = Callable[[str, str, dict[str, Any]], object]
"""Runs a text: that of a file of this name, with these names."""


class Loader(SourceFileLoader):
    """Loads a module in another way than Python."""

    def __init__(self, name: str, path: str, runs: Runs) -> None:
        super().__init__(name, path)
        self.runs = runs

    def exec_module(self, module: ModuleType) -> None:
        """Run the module."""
        self.runs(self.path, self.get_source(module.__name__) or "", module.__dict__)


class Finder:
    """Finds the modules of a folder, and has them run in a way of its own."""

    def __init__(self, folder: str, runs: Runs) -> None:
        self.folder, self.runs = os.path.join(os.path.realpath(folder), ""), runs

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the place of a module, or None for one that is not of the folder."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or not self._is_beside(spec.loader.path):
            return None
        spec.loader = Loader(name, spec.loader.path, self.runs)
        return spec

    def _is_beside(self, path: str) -> bool:
        return os.path.realpath(path).startswith(self.folder) and "site-packages" not in path and is_learners_file(path)


@contextmanager
def imported_by(runs: Runs, folder: str) -> Iterator[None]:
    """Let the modules of a folder that are imported in the block be run by a function."""
    finder = Finder(folder, runs)
    sys.meta_path.insert(sys.meta_path.index(PathFinder), finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
