"""What is installed: to import it lets Python find ``lib`` and ``drawing``, before anything else of these names.

In the installed package they lie beside this file, with the notebooks and the solutions; in a clone, further up.
"""

import os
import sys
from pathlib import Path

before = sys.modules.get("lib")
if before is not None and not hasattr(before, "LLM_TRAINING_PUZZLES"):
    raise ImportError(f"{before} was imported before ours: restart the kernel, run this cell first")
here = Path(getattr(before, "__file__", __file__)).resolve()
ROOT = next(folder for folder in here.parents if (folder / "lib" / "specs.json").is_file())
DRIVE = Path("/content/drive/MyDrive")

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    del sys.path[0]  # python -m llm_training_puzzles: the current folder, with a learner's random.py in it, say
sys.path[:] = [str(ROOT), *(entry for entry in sys.path if entry != str(ROOT))]

if "google.colab" in sys.modules and DRIVE.is_dir():  # which Colab keeps, and not the machine
    (DRIVE / "llm-training-puzzles").mkdir(exist_ok=True)
    os.environ.setdefault("LLM_TRAINING_PUZZLES_PROGRESS", str(DRIVE / "llm-training-puzzles"))


def main() -> int:
    """Carry out a command line: ``llm-training-puzzles``. Return the exit status."""
    from lib.__main__ import main as commands

    return commands()
