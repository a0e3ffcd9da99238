"""Notebooks in real kernels, and what one sees of them."""

import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

SECONDS = 120
"""When to give up on a cell. No test depends on it: it only ends a run that hangs."""

FORGET = "%reset -f"

Json = dict[str, Any]
Outputs = list[Json]


SHORT = "/tmp" if os.name == "posix" else None
"""Where a folder has a short name: with the file that a kernel listens on it is to have at most 103 bytes."""


@asynccontextmanager
async def kernel_in(
    folder: Path, name: str = "python3", now: bool = True, **started: Any
) -> AsyncIterator[AsyncKernelManager]:
    """A kernel that runs in a folder. ``now``: whether it is ended at once, and not asked to end; ``started``: how else
    it is started.

    One speaks with it through files. Ports would be chosen first and taken a second later, and meanwhile they could
    have gone to a kernel of a test that another process runs.
    """
    with TemporaryDirectory(prefix="kernel-", dir=SHORT) as sockets:
        files = {"transport": "ipc", "ip": f"{sockets}/ipc"} if os.name == "posix" else {}
        kernel = AsyncKernelManager(kernel_name=name, **files)
        await kernel.start_kernel(cwd=str(folder), **started)
        try:
            yield kernel
        finally:
            await kernel.shutdown_kernel(now=now)


async def run_cells(notebook: nbformat.NotebookNode, kernel: AsyncKernelManager, folder: Path) -> Outputs:
    """Run a notebook to its end in a kernel that is running; all outputs of its cells."""
    client = NotebookClient(
        notebook, km=kernel, timeout=SECONDS, allow_errors=True, resources={"metadata": {"path": folder}}
    )
    client.kc = kernel.client()
    client.kc.start_channels()
    try:
        await client.kc.wait_for_ready(timeout=SECONDS)
        for index, cell in enumerate(notebook.cells):
            await client.async_execute_cell(cell, index)
    finally:
        client.kc.stop_channels()
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


async def in_a_kernel(folder: Path, cells: list[str], now: bool = True) -> list[Outputs]:
    """The outputs of each of these cells, run one after the other in a kernel of their own."""
    async with kernel_in(folder, now=now) as kernel:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        await run_cells(notebook, kernel, folder)
        return [cell["outputs"] for cell in notebook.cells]


async def run_twice(shipped: Json, solved: Json, kernel: AsyncKernelManager, folder: Path) -> dict[str, Outputs]:
    """Outputs of a notebook as shipped and then solved, in one kernel that forgets every name before each. One without
    a puzzle is the same in both states, and is run once."""
    blank, done = (nbformat.reads(json.dumps(notebook), 4) for notebook in (shipped, solved))
    codes = [[cell.source for cell in one.cells if cell.cell_type == "code"] for one in (blank, done)]
    for notebook in (blank, done):
        notebook.cells.insert(0, nbformat.v4.new_code_cell(FORGET))
    outputs = await run_cells(blank, kernel, folder)
    return {"blank": outputs, "solved": outputs if codes[0] == codes[1] else await run_cells(done, kernel, folder)}


def text(outputs: Outputs) -> str:
    """What a reader would see, without pictures."""
    return "\n".join(
        "".join(output.get("text", "")) + "".join(output.get("data", {}).get("text/plain", "")) for output in outputs
    )


def htmls(outputs: Outputs) -> list[str]:
    """What a reader sees instead of the text, where the notebook shows HTML."""
    return ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]


def complaints(outputs: Outputs) -> Outputs:
    """Errors, and all that was written to stderr: that is where warnings go."""
    return [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]


def shows_a_picture(outputs: Outputs, name: str) -> bool:
    """Whether the schedule of that function is drawn."""
    shown = re.compile(rf'aria-label="{name}: [^"]*\btime [0-9.]+ (ticks|s)\b')
    return any(shown.search(html) for html in htmls(outputs) if "<svg" in html)
