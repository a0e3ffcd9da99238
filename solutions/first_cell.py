# Finds lib and drawing in a folder above this notebook. Run it first; it is safe to run again.
import sys
from pathlib import Path

around = [
    str(f) for f in Path("here").absolute().parents if (f / "lib" / "specs.json").is_file()
]
sys.path[:] = around[:1] + [entry for entry in sys.path if entry not in around[:1]]
try:
    import lib
    from lib import LLM_TRAINING_PUZZLES
except ImportError as error:
    raise ImportError(
        f"The project was not found: {error}. Open this notebook from inside a clone of it "
        "(run `make lab`), restart the kernel, and run this cell first."
    ) from None
