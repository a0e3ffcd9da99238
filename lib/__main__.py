"""``python -m lib``: the commands at a shell."""

import importlib
import os
import sys


def main() -> int:
    """Run a command. Return its exit status."""
    if sys.argv[1:2] == ["draw"]:
        # By name: lib knows nothing of drawing, which stands above it.
        return int(importlib.import_module("drawing.shell").main(sys.argv[2:]))
    if sys.argv[1:2] in (["run"], ["worker"]):
        return int(importlib.import_module("lib.engines.shell").main(sys.argv[1:]))
    if os.name != "posix":
        print("python -m lib needs Linux or macOS (on Windows: WSL). In a notebook, grade works.", file=sys.stderr)
        return 2
    from .referee.shell import main as grading

    return grading()


if __name__ == "__main__":
    sys.exit(main())
