# @title Run this cell first: it brings the puzzles' machine along { display-mode: "form" }
# The project is in this cell, compressed. What this machine lacks besides is installed; nothing
# that it has is changed. Safe to run again.
import base64
import importlib
import importlib.metadata
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENTS = []  # filled in by the build
VERSION = ""
ARCHIVE = ""

folder = Path.home() / ".llm-training-puzzles" / VERSION
if not (folder / "complete").exists():
    folder.mkdir(parents=True, exist_ok=True)
    zipfile.ZipFile(io.BytesIO(base64.b85decode(ARCHIVE))).extractall(folder)
    (folder / "complete").touch()
sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]

have = {str(d.metadata["Name"]).lower(): d.version for d in importlib.metadata.distributions()}
missing = [wanted for wanted in REQUIREMENTS if wanted.split("=")[0].rstrip("<>") not in have]
if missing:
    with tempfile.TemporaryDirectory() as place:
        pins = Path(place, "pins.txt")
        pins.write_text("".join(f"{name}=={version}\n" for name, version in have.items()))
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--constraint",
            str(pins),
            *missing,
        ]
        done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        raise ImportError(
            f"Could not install {', '.join(missing)}. pip said:\n{done.stderr[-2000:]}"
        )
    importlib.invalidate_caches()

import lib

if not hasattr(lib, "LLM_TRAINING_PUZZLES"):
    raise ImportError(
        f"`import lib` found something else: {lib.__file__}. Restart the runtime and run this "
        "cell first."
    )
if "google.colab" in sys.modules:
    print(
        "Colab forgets this machine after a while. To keep your work: File, Save a copy in Drive"
    )
