"""A site that plays the puzzles in the browser alone: JupyterLite, with all that it needs from its own server.

    python -m solutions.build.elsewhere.lite            build dist/lite, to be served as static files by any server
    python -m solutions.build.elsewhere.lite --serve    and serve it on this machine

Takes npm, and the extra ``lite``.
The recipe: pyodide.org (its lock file), jupyterlite.readthedocs.io ("Configuring the kernel").
"""

import argparse
import http.server
import json
import shutil
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from ..sources.files import ROOT
from .wheels import INSTALLED, OURS, PARTS, PLACE, LiteError, bring_pyodide, call

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


def site(root: Path) -> Path:
    """Build the site; where it is."""
    if shutil.which("npm") is None:
        raise LiteError("npm is needed for Pyodide: install Node.js (on Debian: apt install npm)")
    if find_spec("jupyterlite_core") is None or find_spec("jupyterlite_pyodide_kernel") is None:
        raise LiteError('JupyterLite is needed: python -m pip install -e ".[lite]"')
    made = root / "dist" / "lite"
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        bring_pyodide(work / PLACE, work, root)
        _settings(work)
        contents = work / "contents"
        contents.mkdir()
        for path in (root / "puzzles").glob("*.ipynb"):
            shutil.copy(path, contents)
        shutil.rmtree(made, ignore_errors=True)
        command = [sys.executable, "-m", "jupyter", "lite", "build", "--lite-dir", str(work)]
        options = ["--no-sourcemaps", "--no-unused-shared-packages", "--output-dir", str(made)]
        call([*command, "--contents", str(contents), *options], work)
    _load_early(made)
    return made


def _settings(work: Path) -> None:
    """Write what JupyterLite reads: what the page does, and what it is built of."""
    config = {"disablePyPIFallback": True, "loadPyodideOptions": {"packages": FIRST}}
    settings = {"@jupyterlite/pyodide-kernel-extension:kernel": config}
    shown = {"litePluginSettings": settings, "exposeAppInBrowser": True, "appName": "LLM training puzzles"}
    data = {"jupyter-lite-schema-version": 0, "jupyter-config-data": shown}
    (work / "jupyter-lite.json").write_text(json.dumps(data))
    # Of the extensions that this environment has for JupyterLab, the kernel alone: each takes time to load.
    chosen = {"ignore_sys_prefix": ["federated_extensions"], "federated_extensions": [str(INSTALLED)]}
    (work / "jupyter_lite_config.json").write_text(json.dumps({"LiteBuildConfig": chosen}))


def _load_early(made: Path) -> None:
    """Let pages with notebooks fetch Python while they load, and not only when a notebook asks for a kernel."""
    lock = json.loads((made / PLACE / "pyodide-lock.json").read_text(encoding="utf-8"))
    wheels = [entry["file_name"] for entry in lock["packages"].values()]
    hints = "".join(
        f'<link rel="preload" as="fetch" crossorigin href="../{PLACE}/{name}">\n'
        for name in (*PARTS[1:], *(name for name in wheels if (made / PLACE / name).stat().st_size > 50_000))
    )
    for app in ("lab", "notebooks"):
        page = made / app / "index.html"
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("</head>", f"{hints}</head>", 1), encoding="utf-8")


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


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Build, and serve if asked to; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m solutions.build.elsewhere.lite", description="The puzzles in the browser alone."
    )
    parser.add_argument("--serve", metavar="PORT", nargs="?", type=int, const=8000, help="serve it here (8000)")
    options = parser.parse_args(arguments)
    try:
        made = site(root)
    except LiteError as error:
        print(f"lite: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
    print(f"The site is in {made.relative_to(root)}, {size / 1e6:.0f} MB. Any server of static files will do.")
    if options.serve is not None:
        serve(made, options.serve, "lab/index.html?path=index.ipynb")
    return 0


if __name__ == "__main__":
    sys.exit(main())
