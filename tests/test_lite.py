"""The site that plays in the browser alone, where `make lite` has built it."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from solutions import build
from solutions.lite import Handler
from tests.browser import Browser, keep
from tests.programs import COURSE
from tests.test_lab import run_all, within

if TYPE_CHECKING:
    from playwright.sync_api import Page

SITE = build.ROOT / "dist" / "lite"
SOLVE = """body => { const cells = window.jupyterapp?.shell.currentWidget?.content?.widgets ?? [];
    const cell = cells.find(cell => cell.model.sharedModel.getSource().includes("# Your code here."));
    cell?.model.sharedModel.setSource(cell.model.sharedModel.getSource().replace("    # Your code here.", body));
    return cell !== undefined }"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if not (SITE / "index.html").exists():
        pytest.skip("NOT TRIED IN THE BROWSER ALONE: there is no site (make lite builds one)")

    def handler(*arguments: Any) -> Handler:
        return Handler(*arguments, directory=str(SITE))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_puzzle_0_passes_and_its_progress_stays_without_any_other_server(
    browser: Browser, address: str, tmp_path: Path
) -> None:
    source = (build.ROOT / "solutions" / "p00_basic.py").read_text(encoding="utf-8")
    body = re.search("    ### BEGIN SOLUTION\n(.*?)    ### END SOLUTION\n", source, re.DOTALL)
    assert body is not None
    elsewhere: list[str] = []

    def work(page: Page) -> Any:
        page.on("request", lambda request: elsewhere.append(request.url))
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for()
        page.wait_for_function(SOLVE, arg=body[1].rstrip())
        outputs = run_all(page)
        keep(page.screenshot(full_page=True), "lite", tmp_path)
        page.goto(f"{address}/lab/index.html?path=index.ipynb")
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for()
        return outputs, run_all(page)

    outputs, overview = browser.visit(f"{address}/lab/index.html?path=p00_basic.ipynb", work, height=2400)
    drawn = next(output for output in outputs if output["picture"])
    assert within(drawn) and "17" in drawn["text"]
    assert "PASS" in outputs[-1]["text"]
    assert any(f"1 of {len(COURSE)} puzzles solved" in output["text"] for output in overview)
    assert [url for url in elsewhere if not url.startswith((address, "data:", "blob:"))] == []
