"""The site that plays in the browser alone, where `make lite` has built it."""

import http.server
import importlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lib import run
from lib.course.specs import cost_named, puzzles
from solutions.build.elsewhere.lite import Handler
from solutions.build.notebooks.notebook import notebook_of
from solutions.build.sources.files import ROOT, as_text, notebook_name, sources
from tests.browser import Browser, Page, keep
from tests.programs import COURSE
from tests.test_lab import NOTEBOOK, READY

SITE = ROOT / "dist" / "lite"
SOURCES = {notebook_name(path): path for path in sources()}
ERRORS_ON_PURPOSE = "raises-exception"
"""The tag of cells that show an error."""
OPEN_ALONE = """name => { window.opened = false; window.opening = (async () => { const app = window.jupyterapp;
    await app.restored;
    for (const widget of [...app.shell.widgets('main')]) { await widget.sessionContext?.shutdown(); widget.dispose() }
    const panel = await app.commands.execute('docmanager:open', {path: name});
    await panel.context.ready; await panel.revealed; app.shell.activateById(panel.id);
    window.opened = true })() }"""
RUN_ALL = """() => { window.allRun = false;
    window.jupyterapp.commands.execute('notebook:run-all-cells').then(() => { window.allRun = true }) }"""
"""Nobody waits for these in the call: a promise that takes long may be collected as garbage there."""
CELLS = f"""() => ({NOTEBOOK})().content.widgets.filter(cell => cell.model.type === 'code').map(cell => ({{
    tags: cell.model.getMetadata('tags') ?? [], count: cell.model.executionCount,
    source: cell.model.sharedModel.getSource(), outputs: cell.model.outputs.toJSON() }}))"""
KEPT = """async () => { const contents = window.jupyterapp.serviceManager.contents;
    const {content, format} = await contents.get('progress.json', {content: true});
    return JSON.parse(format === 'base64' ? atob(content) : content) }"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The site is served, with puzzles that are solved in place of the blank ones."""
    if not (SITE / "index.html").exists():
        pytest.skip("NOT TRIED IN THE BROWSER ALONE: there is no site (make lite builds one)")
    solved = tmp_path_factory.mktemp("solved")
    for name, path in SOURCES.items():
        text = as_text(notebook_of(path, solved=True), indent=1)
        (solved / name).write_text(text, encoding="utf-8")

    class Solved(Handler):
        def translate_path(self, path: str) -> str:
            folder, _, name = path.partition("?")[0].rpartition("/")
            own = solved / name
            return str(own) if folder == "/files" and own.is_file() else super().translate_path(path)

    def handler(*arguments: Any) -> Handler:
        return Solved(*arguments, directory=str(SITE))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def play(page: Page, notebook: str) -> list[dict[str, Any]]:
    """Open a notebook, and run it in a kernel that ends with it. Its cells with code, and what came of them."""
    page.wait_for_function("() => window.jupyterapp")
    page.evaluate(OPEN_ALONE, notebook)
    page.wait_for_function("() => window.opened")
    page.wait_for_function(READY)
    page.evaluate(RUN_ALL)
    page.wait_for_function("() => window.allRun")
    found: list[dict[str, Any]] = page.evaluate(CELLS)
    return found


def text_of(cell: dict[str, Any]) -> str:
    """All that a cell has written, and the source of its pictures."""
    return json.dumps(cell["outputs"])


def wrong(cells: list[dict[str, Any]]) -> list[str]:
    """The cells that were not run, or ended with an error that they are not there to show."""
    return [
        f"{cell['source'][:200]}\n{text_of(cell)[:1000]}"
        for cell in cells
        if cell["source"].strip()
        and (
            cell["count"] is None
            or (ERRORS_ON_PURPOSE not in cell["tags"] and any(one["output_type"] == "error" for one in cell["outputs"]))
        )
    ]


def test_puzzle_0_passes_and_its_progress_stays_without_any_other_server(
    browser: "Browser", address: str, tmp_path: Path
) -> None:
    elsewhere: list[str] = []

    def work(page: Page) -> Any:
        page.on("request", lambda request: elsewhere.append(request.url))
        cells = play(page, "p00_basic.ipynb")
        keep(page.screenshot(full_page=True), "lite", tmp_path)
        return cells, play(page, "index.ipynb")

    cells, overview = browser.visit(f"{address}/lab/index.html", work, height=2400)
    assert wrong(cells) == wrong(overview) == []
    assert any("basic: " in text_of(cell) and "<svg" in text_of(cell) for cell in cells)
    assert any("PASS  puzzle 0" in text_of(cell) and "could not be saved" not in text_of(cell) for cell in cells)
    assert any(f"1 of {len(COURSE)} puzzles solved" in text_of(cell) for cell in overview)
    assert [url for url in elsewhere if not url.startswith((address, "data:", "blob:"))] == []


def test_progress_goes_to_another_browser_as_a_file(browser: "Browser", address: str, tmp_path: Path) -> None:
    """Through the file browser, as docs/install.md says: *Download* there, and *Upload Files* here."""
    carried = tmp_path / "progress.json"

    def save(page: Page) -> None:
        play(page, "p00_basic.ipynb")
        item = page.locator(".jp-DirListing-item", has_text="progress.json")
        item.wait_for()
        item.click(button="right")
        with page.expect_download() as begun:
            page.get_by_role("menuitem", name="Download", exact=True).click()
        begun.value.save_as(carried)

    def load(page: Page) -> Any:
        before = play(page, "index.ipynb")
        with page.expect_file_chooser() as asked:
            page.locator("[data-command='filebrowser:upload'], .jp-FileBrowser [title^='Upload']").first.click()
        asked.value.set_files(carried)
        page.locator(".jp-DirListing-item", has_text="progress.json").wait_for()
        return before, play(page, "index.ipynb")

    lab = f"{address}/lab/index.html"
    browser.visit(lab, save)
    before, after = browser.visit(lab, load)
    for cells, solved in ((before, 0), (after, 1)):
        assert any(f"{solved} of {len(COURSE)} puzzles solved" in text_of(cell) for cell in cells)


@pytest.mark.slow
def test_the_whole_course_is_played_and_all_figures_are_those_of_this_machine(browser: "Browser", address: str) -> None:
    """All notebooks, each in a kernel of its own, one after the other, in one browser that keeps the progress."""
    faults: dict[str, list[str]] = {}
    notebooks = sorted(path.name for path in (ROOT / "puzzles").glob("*.ipynb"))

    def work(page: Page) -> Any:
        page.set_default_timeout(600_000)
        for notebook in notebooks:
            faults[notebook] = wrong(play(page, notebook))
        return page.evaluate(KEPT), play(page, "index.ipynb")

    kept, overview = browser.visit(f"{address}/lab/index.html", work, height=1500)
    assert {name: found for name, found in faults.items() if found} == {}
    assert any(f"{len(COURSE)} of {len(COURSE)} puzzles solved" in text_of(cell) for cell in overview)
    for puzzle in puzzles().values():
        if not puzzle.repair:
            fn = getattr(importlib.import_module(f"solutions.{puzzle.file}"), puzzle.name)
            here = run(fn, **puzzle.size, cost=cost_named(puzzle.cost), timeout=None)
            best = kept["best"][puzzle.name]
            figures = puzzle.scored(here.time, here.memory)  # in seconds and bytes two digits count
            assert (best["status"], best["time"], best["memory"]) == ("PASS", *figures), puzzle.name
