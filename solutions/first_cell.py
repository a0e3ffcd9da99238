# Finds the project around this notebook, for `lib` and `drawing`. Safe to run again.
import importlib.util
import sys
from pathlib import Path

for folder in (Path.cwd(), *Path.cwd().parents):
    package = folder / "lib" / "__init__.py"
    if package.is_file() and b"LLM_TRAINING_PUZZLES" in package.read_bytes():
        sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]
        break

if importlib.util.find_spec("lib") is None:
    raise ImportError(
        "The project was not found. Open this notebook from inside a clone of it: run `make lab`."
    )

import lib

if not hasattr(lib, "LLM_TRAINING_PUZZLES"):
    raise ImportError(
        f"`import lib` found something else: {lib.__file__ or list(lib.__path__)}. Open this notebook "
        "from inside a clone of the project, restart the kernel, and run this cell first."
    )
