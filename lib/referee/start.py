"""Starts a worker: ``python start.py DESCRIPTOR``. It is run by its path, as the package need not be installed."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from lib.referee.worker import main

    main(int(sys.argv[1]))
