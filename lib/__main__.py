"""``python -m lib``, which is also the command ``llm-training-puzzles``."""

import importlib
import os
import sys

from lib.basics.streams import open_closed, print_to_stderr, send_nowhere


def main() -> int:
    """Pass the command line to the module that carries it out, and return the exit status."""
    open_closed()
    if sys.argv[1:2] in ([], ["-h"], ["--help"], ["--version"], ["lab"], ["reset"], ["gallery"]):
        from .lab.shell import main as notebooks

        return notebooks(sys.argv[1:])
    if sys.argv[1:2] == ["draw"]:
        # By name, since lib does not import drawing.
        return _carry_out("drawing.shell", sys.argv[2:])
    if sys.argv[1:2] in (["run"], ["worker"]):
        return _carry_out("lib.engines.shell", sys.argv[1:])
    if os.name != "posix":
        print_to_stderr("Grading at a shell needs Linux or macOS (on Windows: WSL). In a notebook, grade works.")
        return 2
    from .referee.namespaces import keep_private
    from .referee.shell import main as grading

    keep_private()
    return grading()


def _carry_out(module: str, arguments: list[str]) -> int:
    """Pass arguments to a module whose text may be long, and return the exit status: 1 where nobody reads on."""
    try:
        status = int(importlib.import_module(module).main(arguments))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        send_nowhere(sys.stdout)
        return 1


if __name__ == "__main__":
    sys.exit(main())
