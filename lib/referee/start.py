"""Starts a process of the grader's: ``python start.py MODULE DESCRIPTOR``, a nursery or an examiner.

It is run by its path, as the package need not be installed.
"""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    importlib.import_module(f"lib.referee.{sys.argv[1]}").main(int(sys.argv[2]))
