"""Starts the fork server: ``python start.py DESCRIPTOR``, by its path, as the package need not be installed."""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    importlib.import_module("lib.referee.fork_server").serve(int(sys.argv[1]))
