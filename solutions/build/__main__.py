"""``python -m solutions.build``: make all files, or look whether they are as they would be made."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lib.basics.saving import write_all

from .pages.shared import photograph
from .products import differences, products
from .sources.files import ROOT, BuildError


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Build or check; 0 when all is as it should be, 1 where something differs, 2 for a broken source."""
    parser = argparse.ArgumentParser(
        prog="python -m solutions.build",
        description="Make the blank notebooks and the table of puzzles from their one source.",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file differs")
    check = parser.parse_args(arguments).check
    try:
        made = products(root)
    except BuildError as error:
        print(f"build: {error}", file=sys.stderr)
        return 2
    if not check:
        write_all({root / path: text for path, text in made.items()})
        if said := photograph(root):
            print(said)
    found = list(differences(root, made))
    for line in found:
        print(line, file=sys.stderr)
    if found and check:
        print("Change the sources in solutions/, then: make build", file=sys.stderr)
    if not found:
        print(f"{len(made)} files are as the sources in solutions/ make them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
