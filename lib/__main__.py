"""``python -m lib``, which is also the command ``llm-training-puzzles``."""

import importlib
import os
import sys

from lib.basics.streams import open_closed, print_to_stderr


def main() -> int:
    """Pass the command line to the module that carries it out, and return the exit status."""
    open_closed()
    if sys.argv[1:2] in ([], ["-h"], ["--help"], ["lab"], ["reset"], ["gallery"]):
        from .lab.shell import main as notebooks

        return notebooks(sys.argv[1:])
    if sys.argv[1:2] == ["draw"]:
        # By name, since lib does not import drawing.
        return int(importlib.import_module("drawing.shell").main(sys.argv[2:]))
    if sys.argv[1:2] in (["run"], ["worker"]):
        return int(importlib.import_module("lib.engines.shell").main(sys.argv[1:]))
    if os.name != "posix":
        print_to_stderr("Grading at a shell needs Linux or macOS (on Windows: WSL). In a notebook, grade works.")
        return 2
    from .referee.namespaces import keep_private
    from .referee.shell import main as grading

    keep_private()
    return grading()


if __name__ == "__main__":
    sys.exit(main())
