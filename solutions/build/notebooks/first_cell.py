# Finds lib and drawing, in a folder above this notebook or where they are installed. Run it first; it is safe to run again.
import sys
from contextlib import suppress
from pathlib import Path

around = [
    str(f) for f in Path("here").absolute().parents if (f / "lib" / "specs.json").is_file()
]
sys.path[:] = around[:1] + [entry for entry in sys.path if entry not in around[:1]]
if not around:
    with suppress(ImportError):
        import llm_training_puzzles
try:
    import lib
    from lib import LLM_TRAINING_PUZZLES
except ImportError as error:
    raise ImportError(
        f"The project was not found: {error}. Open this notebook from inside a clone of it "
        "(run `make lab`), or with a Python that has it (python -m pip install llm-training-puzzles). "
        "Then restart the kernel, and run this cell first."
    ) from None
