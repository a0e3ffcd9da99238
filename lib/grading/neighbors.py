"""Modules beside a learner's file, which that imports: they are found as Python does, and run as their importer is."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from ..basics.errors import is_learners_file

RunText = Callable[[str, str, dict[str, Any]], object]
"""Runs the text of a file of this name, with these names."""


@contextmanager
def imported_by(run: RunText, folder: str) -> Iterator[None]:
    """Let the modules of a folder that are imported in the block be run by a function."""
    within = os.path.join(os.path.realpath(folder), "")

    class Loader(SourceFileLoader):
        """Runs a module in another way than Python."""

        def exec_module(self, module: ModuleType) -> None:
            run(self.path, self.get_source(module.__name__) or "", module.__dict__)

    class Finder:
        """Finds what Python finds, with that loader for the modules of the folder."""

        def find_spec(
            self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            spec = PathFinder.find_spec(name, path, target)
            file = spec.loader.path if spec is not None and type(spec.loader) is SourceFileLoader else ""
            if spec is None or not os.path.realpath(file).startswith(within):
                return None
            spec.loader = Loader(name, file)
            return spec if is_learners_file(file) and "site-packages" not in file else None

    finder = Finder()
    sys.meta_path.insert(sys.meta_path.index(PathFinder), finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
