"""JupyterLab on a learner's folder. It is imported only here, since it takes a second, and may not be installed."""

import os
import re
import sys
import webbrowser
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .copies import NotDone, short

NEEDED = (4, 4)
"""The oldest JupyterLab with which the notebooks are tried."""
INSTALL = """To have it: python -m pip install "llm-training-puzzles[lab]"
  without installing: uvx --from "llm-training-puzzles[lab]" llm-training-puzzles lab
  in a clone: make lab"""
SETTINGS = Path(__file__).resolve().with_name("settings")
NO_BROWSER, ALLOW_ROOT = "--no-browser", "--allow-root"


def check_jupyter() -> None:
    """Raise NotDone where JupyterLab is missing, or too old."""
    try:
        found = version("jupyterlab")
    except PackageNotFoundError:
        raise NotDone(f"JupyterLab is not installed beside this Python. {INSTALL}") from None
    if tuple(map(int, re.findall(r"\d+", found)[:2])) < NEEDED:
        needed = ".".join(map(str, NEEDED))
        raise NotDone(f"JupyterLab {found} is too old: {needed} or later is needed. {INSTALL}")


def address_of(folder: Path) -> str:
    """Return where a JupyterLab can be reached that is open on this folder already, or an empty text."""
    from jupyter_server.serverapp import list_running_servers

    for server in list_running_servers():
        if os.path.realpath(server["root_dir"]) == os.path.realpath(folder):
            token = f"?token={server['token']}" if server["token"] else ""
            return f"{server['url']}lab/tree/index.ipynb{token}"
    return ""


def is_root() -> bool:
    """Return whether this process has all rights."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def open_lab(folder: Path, options: Sequence[str], command: str) -> int:
    """Run JupyterLab on a folder until it ends, and return the exit status. Raise NotDone if it does not start, with
    the ``command`` that opens it. ``options``: of JupyterLab's own.

    Where one is open on the folder already, it stays the only one: two would overwrite each other's files.
    """
    if there := address_of(folder):
        print(f"JupyterLab is open on {short(folder)} already: {there}")
        if NO_BROWSER not in options:
            webbrowser.open(there)
        return 0
    from jupyterlab.labapp import LabApp

    # So that a terminal in JupyterLab, and a cell with !pip, find the programs of this environment.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    ours = [
        f"--ServerApp.root_dir={folder}",
        "--LabApp.default_url=/lab/tree/index.ipynb",
        f"--LabApp.app_settings_dir={SETTINGS}",
    ]
    try:
        LabApp.launch_instance([*ours, *options])
    except SystemExit as ended:
        if ended.code not in (None, 0):
            fix = f"Another port: {command} --port 9000"
            if is_root() and ALLOW_ROOT not in options:
                fix = f"To run it as root all the same: {command} {ALLOW_ROOT}"
            raise NotDone(f"JupyterLab has not started, as it says above. {fix}") from None
    return 0
