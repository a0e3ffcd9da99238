"""``python -m llm_training_puzzles``, which is the command ``llm-training-puzzles``."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
