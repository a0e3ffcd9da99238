"""A site that plays the puzzles in the browser alone: JupyterLite, with all that it needs from its own server.

    python -m solutions.lite            build dist/lite, to be served as static files by any server
    python -m solutions.lite --serve    and serve it on this machine

Takes npm, and the extra ``lite``; Pyodide and wheels come from the registries of npm and PyPI, pinned here.
The recipe: pyodide.org (its lock file), jupyterlite.readthedocs.io ("Configuring the kernel").
"""

from __future__ import annotations

import argparse
import email
import hashlib
import http.server
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
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from . import build

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
INSTALLED = (
    Path(sys.prefix) / "share/jupyter/labextensions/@jupyterlite/pyodide-kernel-extension"
)
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
FIRST = [
    "micropip",
    "piplite",
    "pyodide-kernel",
    "ipykernel",
    "comm",
    "jedi",
    "ipython",
    *OURS,
    "pillow",
    "llm-training-puzzles",
]
"""Packages that are loaded before the first cell."""


class LiteError(Exception):
    """What is missing, and how to have it."""


def site(root: Path) -> Path:
    """Build the site; where it is."""
    if shutil.which("npm") is None:
        raise LiteError(
            "npm is needed for Pyodide: install Node.js (on Debian: apt install npm)"
        )
    if find_spec("jupyterlite_core") is None or find_spec("jupyterlite_pyodide_kernel") is None:
        raise LiteError('JupyterLite is needed: python -m pip install -e ".[lite]"')
    made = root / "dist" / "lite"
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        _pyodide(work / PLACE, work, root)
        config = {"disablePyPIFallback": True, "loadPyodideOptions": {"packages": FIRST}}
        settings = {"@jupyterlite/pyodide-kernel-extension:kernel": config}
        shown = {
            "litePluginSettings": settings,
            "exposeAppInBrowser": True,
            "appName": "LLM training puzzles",
        }
        data = {"jupyter-lite-schema-version": 0, "jupyter-config-data": shown}
        (work / "jupyter-lite.json").write_text(json.dumps(data))
        # Of the extensions that this environment has for JupyterLab, the kernel alone: each takes time to load.
        chosen = {
            "ignore_sys_prefix": ["federated_extensions"],
            "federated_extensions": [str(INSTALLED)],
        }
        (work / "jupyter_lite_config.json").write_text(json.dumps({"LiteBuildConfig": chosen}))
        (work / "contents").mkdir()
        for path in (root / "puzzles").glob("*.ipynb"):
            shutil.copy(path, work / "contents")
        shutil.rmtree(made, ignore_errors=True)
        command = [
            sys.executable,
            "-m",
            "jupyter",
            "lite",
            "build",
            "--lite-dir",
            str(work),
            "--contents",
        ]
        options = ["--no-sourcemaps", "--no-unused-shared-packages", "--output-dir", str(made)]
        _run([*command, str(work / "contents"), *options], work)
    _load_early(made)
    return made


def _load_early(made: Path) -> None:
    """Let the page of the lab fetch Python while it loads itself, and not only when a notebook asks for a kernel."""
    lock = json.loads((made / PLACE / "pyodide-lock.json").read_text(encoding="utf-8"))
    wheels = [entry["file_name"] for entry in lock["packages"].values()]
    hints = "".join(
        f'<link rel="preload" as="fetch" crossorigin href="../{PLACE}/{name}">\n'
        for name in (
            *PARTS[1:],
            *(name for name in wheels if (made / PLACE / name).stat().st_size > 50_000),
        )
    )
    page = made / "lab" / "index.html"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("</head>", f"{hints}</head>", 1), encoding="utf-8")


def _pyodide(target: Path, work: Path, root: Path) -> None:
    """Pyodide with a lock file of ours, which names every wheel that there is."""
    target.mkdir(parents=True)
    _run(["npm", "pack", "--silent", f"pyodide@{PYODIDE}"], work)
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


def _wheels(known: build.Json, work: Path, root: Path) -> list[Path]:
    """Wheels of the kernel and of ours, from PyPI, and those that come with JupyterLite's kernel."""
    folder = work / "wheels"
    folder.mkdir()
    wanted = [f"{known[name]['name']}=={known[name]['version']}" for name in _with_needs(known)]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = {_normal(re.split("[=<>]", one)[0]): one for one in project["dependencies"]}
    wanted += [*MORE, *(pins.get(name, name) for name in OURS)]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
    ]
    _run([*pip, "--python-version", PYTHON, "--dest", str(folder), *wanted], work)
    with zipfile.ZipFile(folder / "pillow-12.2.0-py3-none-any.whl", "w") as stub:
        for name, text in PILLOW.items():
            stub.writestr(name, text)
    _project(folder, root)
    return [*folder.glob("*.whl"), *(INSTALLED / "static" / "pypi").glob("*.whl")]


def _project(folder: Path, root: Path) -> None:
    """The wheel of this project, without the notebooks, which are files of the site. To import from it takes a
    fraction of the time that such files take, each of which is asked for by itself."""
    with tempfile.TemporaryDirectory() as place:
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place], root)
        [whole] = Path(place).glob("*.whl")
        with (
            zipfile.ZipFile(whole) as packed,
            zipfile.ZipFile(folder / whole.name, "w", zipfile.ZIP_DEFLATED) as kept,
        ):
            for name in packed.namelist():
                if "/puzzles/" not in name:
                    kept.writestr(name, packed.read(name))


def _with_needs(known: build.Json) -> list[str]:
    seen: set[str] = set()
    todo: list[str] = list(KERNEL)
    while todo:
        name = _normal(todo.pop())
        if name not in seen:
            seen.add(name)
            todo += known[name]["depends"]
    return sorted(seen)


def _entry(wheel: Path) -> tuple[str, build.Json]:
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
    code = (
        name
        for name in names
        if name.endswith(".py") and ".dist-info" not in name and ".data/" not in name
    )
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


def _run(command: Iterable[str], folder: Path) -> None:
    done = subprocess.run([*command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LiteError(
            f"{' '.join(list(command)[:4])} ... failed:\n{(done.stderr or done.stdout)[-2000:]}"
        )


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of the site, with the types that browsers insist on."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def handle(self) -> None:
        """Answer, as long as somebody listens: a browser that leaves a page does not."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        """Nobody wants to read that."""


def serve(made: Path, port: int, page: str = "") -> None:
    """Serve a folder on this machine, until Ctrl-C."""
    handler = lambda *a: Handler(*a, directory=str(made))  # noqa: E731
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/{page} (Ctrl-C ends it)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def main(arguments: list[str] | None = None, root: Path = build.ROOT) -> int:
    """Build, and serve if asked to; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m solutions.lite", description="The puzzles in the browser alone."
    )
    parser.add_argument(
        "--serve", metavar="PORT", nargs="?", type=int, const=8000, help="serve it here (8000)"
    )
    options = parser.parse_args(arguments)
    try:
        made = site(root)
    except LiteError as error:
        print(f"lite: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
    print(
        f"The site is in {made.relative_to(root)}, {size / 1e6:.0f} MB. Any server of static files will do."
    )
    if options.serve is not None:
        serve(made, options.serve, "lab/index.html?path=index.ipynb")
    return 0


if __name__ == "__main__":
    sys.exit(main())
