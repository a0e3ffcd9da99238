"""Every notebook on the newest packages that pyproject.toml allows, with each Python that is here: `make test-all`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TRIED = ("lib", "drawing", "tests/test_notebooks.py", "tests/test_figures.py", "tests/test_grading.py")


def python_of(version: str) -> str | None:
    """A Python of that version that can make environments, from the PATH, pyenv or uv."""
    name = f"python{version}"
    found = [shutil.which(name), *map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}")))]
    if shutil.which("uv"):
        uv = subprocess.run(["uv", "python", "find", version], capture_output=True, text=True, check=False)
        found += [uv.stdout.strip()] if uv.returncode == 0 else []
    return next((one for one in found if one and _works(one)), None)


def _works(python: str) -> bool:
    tried = subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True, check=False)
    return tried.returncode == 0


def on_newest(python: str) -> bool:
    """Whether all is well in a new environment with the newest versions."""
    with tempfile.TemporaryDirectory() as folder:
        own = str(Path(folder, "venv", "bin", "python"))
        steps = (
            [python, "-m", "venv", str(Path(folder, "venv"))],
            [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", f"{ROOT}[dev]"],
            [own, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TRIED],
        )
        return all(subprocess.run(step, cwd=ROOT, check=False).returncode == 0 for step in steps)


def main() -> int:
    """Try them one after the other, and say at the end what came of each; 1 if one failed or none was there."""
    said = {}
    for version in VERSIONS:
        python = python_of(version)
        if python is None:
            said[version] = "NOT TRIED: it is not here (pyenv install, or uv python install)"
        else:
            print(f"== the newest packages on Python {version}", flush=True)
            said[version] = "passed" if on_newest(python) else "FAILED"
    print("== result")
    for version, result in said.items():
        print(f"newest packages on Python {version}: {result}")
    return 0 if "FAILED" not in said.values() and "passed" in said.values() else 1


if __name__ == "__main__":
    sys.exit(main())
