# @title Run this cell first: it brings the puzzles' machine along { display-mode: "form" }
# The project is in this cell, compressed. What this machine lacks besides is installed; nothing
# that it has is changed. Safe to run again.
import base64
import importlib
import importlib.metadata
import io
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENTS = []  # filled in by the build
VERSION = ""
ARCHIVE = ""
DRIVE = "/content/drive/MyDrive"

if "lib" not in sys.modules:  # it is there when this runs again, and in the grader at a shell
    folder = Path.home() / ".llm-training-puzzles" / VERSION
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        packed = lzma.decompress(base64.b85decode(ARCHIVE))
        zipfile.ZipFile(io.BytesIO(packed)).extractall(folder)
        (folder / "complete").touch()
    sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]

    have = {
        str(d.metadata["Name"]).lower(): d.version for d in importlib.metadata.distributions()
    }
    missing = [
        wanted for wanted in REQUIREMENTS if wanted.split("=")[0].rstrip("<>") not in have
    ]
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
kept = "Your progress and hints are kept in progress.json here."
if Path(DRIVE).is_dir() and "LLM_TRAINING_PUZZLES_PROGRESS" not in os.environ:
    there = Path(DRIVE, "llm-training-puzzles")
    there.mkdir(exist_ok=True)
    if Path("progress.json").is_file() and not (there / "progress.json").exists():
        shutil.copy("progress.json", there)
    os.environ["LLM_TRAINING_PUZZLES_PROGRESS"] = str(there)
if "LLM_TRAINING_PUZZLES_PROGRESS" in os.environ:
    kept = f"Your progress and hints are kept in {os.environ['LLM_TRAINING_PUZZLES_PROGRESS']}."
elif "google.colab" in sys.modules:
    kept = (
        "Colab forgets this machine after a while. To keep your work: File, Save a copy in Drive. To keep "
        "your progress, too: mount Drive (the folder at the left), then run this cell again."
    )
print(f"Ready. {kept}")
