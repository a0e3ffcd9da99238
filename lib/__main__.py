"""``python -m lib``: the commands at a shell."""

import os
import sys

if __name__ == "__main__":
    if os.name != "posix":
        print("python -m lib needs Linux or macOS (on Windows: WSL). In a notebook, grade works.", file=sys.stderr)
        sys.exit(2)
    from .grading.shell import main

    sys.exit(main())
