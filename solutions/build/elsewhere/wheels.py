"""Pyodide, and the wheels that the course in the browser needs, from the registries of npm and PyPI, pinned here."""

import email
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

from ..sources.files import Json

PYODIDE, PYTHON = "314.0.6", "3.14"
"""The Pyodide that the pinned kernel asks for, and the Python that it is."""
KERNEL = ("micropip", "packaging", "ipython", "jedi")
"""What the kernel needs of Pyodide's own packages, besides what these need."""
MORE = ("comm", "ipython-pygments-lexers", "ptyprocess", "pexpect")
OURS = (
    *("chalk-diagrams", "chalk-planar", "colour", "svgwrite", "toolz", "loguru"),
    *("typing-extensions", "importlib-metadata", "zipp"),
)
PLACE = "static/pyodide"
"""Where JupyterLite finds Pyodide."""
INSTALLED = Path(sys.prefix) / "share/jupyter/labextensions/@jupyterlite/pyodide-kernel-extension"
"""Where pip has put JupyterLite's kernel."""
PARTS = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
PILLOW = {
    "PIL/__init__.py": "__version__ = '0.stub'\n",
    "PIL/Image.py": "class Image: ...\n\n\ndef open(*a, **k):\n    raise ImportError('no Pillow in the browser')\n",
    "pillow-12.2.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: pillow\nVersion: 12.2.0\n",
    "pillow-12.2.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: ours\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "pillow-12.2.0.dist-info/RECORD": "",
}
"""Chalk imports Pillow and uses it for images in pictures only; there is no wheel of it for browsers."""


class LiteError(Exception):
    """What is missing, and how to have it."""


def bring_pyodide(target: Path, work: Path, root: Path) -> None:
    """Pyodide with a lock file of ours, which names every wheel that there is."""
    target.mkdir(parents=True)
    call(["npm", "pack", "--silent", f"pyodide@{PYODIDE}"], work)
    with tarfile.open(next(work.glob("pyodide-*.tgz"))) as packed:
        packed.extractall(work / "npm", filter="data")
    package = work / "npm" / "package"
    for name in PARTS:
        shutil.copy(package / name, target)
    lock = json.loads((package / "pyodide-lock.json").read_text(encoding="utf-8"))
    wheels = _wheels(lock["packages"], work, root)
    entries = {}
    for wheel in wheels:
        shutil.copy(wheel, target)
        name, entry = _entry(wheel)
        entries[name] = entry
    for entry in entries.values():
        entry["depends"] = [name for name in entry["depends"] if name in entries]
    lock["packages"] = dict(sorted(entries.items()))
    (target / "pyodide-lock.json").write_text(json.dumps(lock), encoding="utf-8")


def _wheels(known: Json, work: Path, root: Path) -> list[Path]:
    """Wheels of the kernel and of ours, from PyPI, and those that come with JupyterLite's kernel."""
    folder = work / "wheels"
    folder.mkdir()
    wanted = [f"{known[name]['name']}=={known[name]['version']}" for name in _with_needs(known)]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = {_normal(re.split("[=<>]", one)[0]): one for one in project["dependencies"]}
    wanted += [*MORE, *(pins.get(name, name) for name in OURS)]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    call([*pip, "--python-version", PYTHON, "--dest", str(folder), *wanted], work)
    with zipfile.ZipFile(folder / "pillow-12.2.0-py3-none-any.whl", "w") as stub:
        for name, text in PILLOW.items():
            stub.writestr(name, text)
    _project(folder, root)
    return [*folder.glob("*.whl"), *(INSTALLED / "static" / "pypi").glob("*.whl")]


def _project(folder: Path, root: Path) -> None:
    """The wheel of this project, without the notebooks, which are files of the site. To import from it takes a
    fraction of the time that such files take, each of which is asked for by itself."""
    with tempfile.TemporaryDirectory() as place:
        call([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place], root)
        [whole] = Path(place).glob("*.whl")
        with zipfile.ZipFile(whole) as packed, zipfile.ZipFile(folder / whole.name, "w", zipfile.ZIP_DEFLATED) as kept:
            for name in packed.namelist():
                if "/puzzles/" not in name:
                    kept.writestr(name, packed.read(name))


def _with_needs(known: Json) -> list[str]:
    seen: set[str] = set()
    todo: list[str] = list(KERNEL)
    while todo:
        name = _normal(todo.pop())
        if name not in seen:
            seen.add(name)
            todo += known[name]["depends"]
    return sorted(seen)


def _entry(wheel: Path) -> tuple[str, Json]:
    """The entry of a lock file for a wheel."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        about = email.message_from_string(packed.read(metadata).decode())
    needs = (
        need
        for need in about.get_all("Requires-Dist", [])
        if not re.search(r"extra ==|sys_platform|python_version", need)
    )
    code = (name for name in names if name.endswith(".py") and ".dist-info" not in name and ".data/" not in name)
    return _normal(about["Name"]), {
        "name": about["Name"],
        "version": about["Version"],
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "package_type": "package",
        "imports": sorted({name.split("/")[0].removesuffix(".py") for name in code}),
        "depends": [_normal(re.match(r"[\w.-]+", need)[0]) for need in needs],  # type: ignore[index]
        "unvendored_tests": False,
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def call(command: Iterable[str], folder: Path) -> None:
    """Run a program. Raise LiteError, with what it said, if it fails."""
    done = subprocess.run([*command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LiteError(f"{' '.join(list(command)[:4])} ... failed:\n{(done.stderr or done.stdout)[-2000:]}")
