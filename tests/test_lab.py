"""The course in a real JupyterLab, in a real browser, each night."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import nbformat
import pytest

from drawing import draw
from drawing.ink import theme
from drawing.ink.svg import NARROW
from lib.lab.server import SETTINGS
from solutions.build.notebooks.notebook import notebook_of
from solutions.build.sources.files import ROOT, as_text, notebook_name
from tests.browser import Browser, Page, axe, keep, rgb
from tests.drawing_events import staged_run
from tests.kernels import SHORT
from tests.programs import COURSE, QUIET, REPAIRS

pytestmark = pytest.mark.slow
NOTEBOOK = "() => window.jupyterapp?.shell.currentWidget"
READY = f"""() => {{ const panel = ({NOTEBOOK})(), kernel = panel?.sessionContext?.session?.kernel;
    return !!kernel && panel.sessionContext.isReady && kernel.connectionStatus === 'connected'
        && kernel.status === 'idle' }}"""
"""The indicator on the page says idle before there is a kernel; what is run then is lost."""
OPEN = ".jp-NotebookPanel:not(.lm-mod-hidden)"
PROMPTS = f"{OPEN} .jp-CodeCell .jp-InputPrompt:not(.jp-Placeholder-prompt)"  # of cells that are not folded
RUN = f"""() => {{ const prompts = [...document.querySelectorAll('{PROMPTS}')]
    .map(prompt => prompt.textContent.trim());
    return prompts.length > 0 && prompts.every(prompt => /^\\[\\d+\\]:$/.test(prompt)) }}"""
OUTPUTS = (
    f"const open = '{OPEN} .jp-OutputArea-output';"
    + """
[...document.querySelectorAll(open)].map(output => {
    const cell = output.getBoundingClientRect();
    const picture = output.querySelector('svg.ltp:not(.narrow)')?.getBoundingClientRect();
    return {text: output.innerText, left: cell.left, right: cell.right,
        picture: picture && [picture.left, picture.right, picture.height],
        words: [...output.querySelectorAll('svg.ltp:not(.narrow)')].map(svg => svg.getAttribute('aria-label')).join(),
        inks: [...new Set([...output.querySelectorAll('text.f-ink')].map(text => getComputedStyle(text).fill))]} })"""
)
IMAGES = """() => [...document.querySelectorAll('.jp-OutputArea-output img')].map(one => {
    const {left, right} = one.getBoundingClientRect(); return [one.naturalWidth, one.alt, left, right] })"""
COMMAND = "([id, options]) => window.jupyterapp.commands.execute(id, options)"


class Lab(NamedTuple):
    """A JupyterLab that runs: its address, and the folder that it shows."""

    address: str
    folder: Path

    def url(self, notebook: str) -> str:
        """Where a notebook is open, and nothing else."""
        return f"{self.address}/lab/tree/{notebook}?token=t&reset"

    def put(self, name: str, cells: list[Any]) -> str:
        """A notebook of these cells (or sources of cells) in the folder; its name."""
        made = [nbformat.v4.new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells]
        spec = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        nbformat.write(nbformat.v4.new_notebook(cells=made, metadata=spec), self.folder / name)
        return name


@pytest.fixture(scope="module")
def lab(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab on a learner's folder, with no setting of this machine's user."""
    root = tmp_path_factory.mktemp("a course")
    for name in ("lib", "drawing"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    folder = root / "puzzles" / "mine"
    folder.mkdir(parents=True)
    for shipped in (ROOT / "puzzles").glob("*.ipynb"):
        shutil.copy(shipped, folder)
    for name in ("p04_fsdp", "p05_pipeline"):
        path = ROOT / "solutions" / f"{name}.py"
        solved = as_text(notebook_of(path, solved=True), indent=1)
        (folder / notebook_name(path)).write_text(solved, encoding="utf-8")
    settings = {f"JUPYTER_{name}": str(root / name) for name in ("CONFIG_DIR", "DATA_DIR")}
    settings |= {f"JUPYTERLAB_{name}": str(root / name) for name in ("SETTINGS_DIR", "WORKSPACES_DIR")}
    environment = {**os.environ, **settings, "IPYTHONDIR": str(root / "ipython")}
    environment.pop("LLM_TRAINING_PUZZLES_PROGRESS", None)
    # Otherwise JupyterLab takes cells that are far from the screen out of the page, and a test would not see them.
    tracker = root / "SETTINGS_DIR" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    tracker.parent.mkdir(parents=True)
    tracker.write_text('{"windowingMode": "none"}', encoding="utf-8")
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    quiet = f"--LabApp.app_settings_dir={SETTINGS}"  # as in `make lab`
    options = [quiet, "--IdentityProvider.token=t", "--expose-app-in-browser"]
    options += ["--KernelManager.transport=ipc"] if os.name == "posix" else []  # why: see tests.kernels.kernel_in
    with TemporaryDirectory(prefix="lab-", dir=SHORT) as runtime, open(root / "server.log", "w") as log:
        server = subprocess.Popen(
            [*command, *options, f"--ServerApp.root_dir={folder}"],
            env={**environment, "JUPYTER_RUNTIME_DIR": runtime},
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
        )
        try:
            yield Lab(address_of(server, Path(runtime), root / "server.log"), folder)
        finally:
            end(server)


def address_of(server: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    """Where a server can be reached, once it can: it takes a port that is free, and writes which into a file."""
    for _ in range(240):
        if server.poll() is not None:
            pytest.fail(log.read_text()[-2000:])
        with suppress(OSError, ValueError):  # no such file yet, or half of it; nobody answers yet
            [written] = runtime.glob("jpserver-*.json")
            address = f"http://127.0.0.1:{json.loads(written.read_text())['port']}"
            with urllib.request.urlopen(f"{address}/api"):
                return address
        time.sleep(0.25)
    pytest.fail(f"no server after a minute\n{log.read_text()[-2000:]}")


def end(server: subprocess.Popen[bytes]) -> None:
    """Ask a server to end; where it waits too long for its kernels, end it."""
    server.terminate()
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def begin_all(page: Page) -> None:
    """Begin to run the notebook that is open."""
    page.wait_for_function(READY)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()


def run_all(page: Page) -> list[dict[str, Any]]:
    """Run the notebook that is open; what its outputs show."""
    begin_all(page)
    page.wait_for_function(RUN)
    page.wait_for_function(READY)
    for _ in range(100):  # on a busy machine an output stands in its cell before its text does
        found: list[dict[str, Any]] = page.evaluate(OUTPUTS)
        if all(output["text"] or output["picture"] for output in found):
            break
        page.wait_for_timeout(100)
    return found


def within(output: dict[str, Any]) -> bool:
    """Whether a picture is complete inside its cell."""
    left, right, height = output["picture"]
    return bool(output["left"] <= left < right <= output["right"] and height > 50)


FIRST_SCREEN = f"""() => {{ const open = document.querySelector('{OPEN}'), bottom = open.getBoundingClientRect().bottom;
    const seen = one => {{ const box = one.getBoundingClientRect(); return box.height > 0 && box.top < bottom }};
    const words = kind => [...open.querySelectorAll(kind)].filter(seen).map(one => one.textContent).join('\\n');
    return [words('h1'), words('.jp-InputPlaceholder'), words('.cm-content'),
        document.querySelectorAll('.Toastify__toast').length] }}"""


def test_the_first_screen_of_a_puzzle_has_its_title_and_no_plumbing(
    browser: "Browser", lab: Lab, tmp_path: Path
) -> None:
    def work(page: Page) -> Any:
        page.wait_for_function(READY)
        page.wait_for_timeout(2000)  # in which the question about news would come
        keep(page.screenshot(), "lab-first-screen", tmp_path)
        return page.evaluate(FIRST_SCREEN)

    title, folded, code, news = browser.visit(lab.url("p03_wsdp.ipynb"), work, height=800)
    assert title.startswith("Puzzle 3: ")
    assert folded == ""
    assert code.startswith("import llm_training_puzzles") and "sys.path" not in code
    assert news == 0


CELLS = f"() => ({NOTEBOOK})().content.widgets.map(cell => cell.model.sharedModel.getSource())"
TAKE = f"""comments => {{ for (const cell of ({NOTEBOOK})().content.widgets) {{ const source = cell.model.sharedModel;
    for (const one of comments) if (source.getSource().includes("\\n# " + one))
        source.setSource(source.getSource().replace("# " + one, one)) }} }}"""


def test_a_learner_asks_for_hints_begins_with_an_old_answer_and_goes_on_to_the_next_puzzle(
    browser: "Browser", lab: Lab, tmp_path: Path
) -> None:
    def work(page: Page) -> Any:
        page.wait_for_function(READY)
        page.evaluate(TAKE, ['hint("pipeline_fsdp")', "from lib import start_from"])
        page.evaluate(COMMAND, ["notebook:run-all-cells", {}])  # the cell that is made then is not among them
        page.locator(f"{OPEN} .jp-OutputArea-output", has_text="Hint 1 of 3 for pipeline_fsdp").wait_for()
        keep(page.screenshot(full_page=True), "lab-begin", tmp_path)
        return page.evaluate(OUTPUTS), page.evaluate(CELLS)

    outputs, cells = browser.visit(lab.url("p07_pipeline_fsdp.ipynb"), work, height=3000)
    [at] = [at for at, cell in enumerate(cells) if "start_from(" in cell]
    assert (
        cells[at + 1].startswith("async def pipeline_fsdp(model: Model) -> Model:") and "scatterreduce" in cells[at + 1]
    )
    assert "# Your code here." in cells[at - 1]
    assert "is in a new cell below" in " ".join(output["text"] for output in outputs)

    def go_on(page: Page) -> Any:
        run_all(page)
        link = page.locator(f"{OPEN} .jp-OutputArea-output a", has_text="puzzle 5: Pipeline parallel").first
        link.scroll_into_view_if_needed()
        keep(page.screenshot(), "lab-next", tmp_path)
        link.click()
        page.locator(f"{OPEN} h1", has_text="Puzzle 5").wait_for()
        return page.url

    assert "/p05_pipeline.ipynb" in browser.visit(lab.url("p04_fsdp.ipynb"), go_on, height=900)


def test_the_map_leads_to_the_puzzles(browser: "Browser", lab: Lab, tmp_path: Path) -> None:
    def work(page: Page) -> Any:
        stored = page.locator(f"{OPEN} .jp-OutputArea-output a:has(img)")  # there before anything is run
        stored.nth(7).click()  # the tour is the first
        page.locator(f"{OPEN} h1", has_text="Puzzle 6").wait_for()
        assert "/p06_gpipe.ipynb" in page.url
        page.goto(lab.url("index.ipynb"))
        page.locator(f"{OPEN} .jp-OutputArea-output img").first.wait_for()
        begin_all(page)
        page.locator(f"{OPEN} .jp-OutputArea-output svg.ltp").first.wait_for()
        keep(page.screenshot(full_page=True), "lab-map", tmp_path)
        violations, _ = axe(page, ".jp-NotebookPanel .jp-OutputArea")
        name = page.locator(f"{OPEN} .jp-OutputArea-output svg.ltp text", has_text="GPipe")
        name.scroll_into_view_if_needed()
        card = name.bounding_box()
        assert card is not None
        high = page.evaluate(f"() => document.querySelector('{OPEN} .jp-WindowedPanel-viewport').scrollHeight")
        page.mouse.click(card["x"], card["y"])  # the link lies over it
        page.locator(f"{OPEN} h1", has_text="Puzzle 6").wait_for()
        return page.url, violations, high

    url, violations, high = browser.visit(lab.url("index.ipynb"), work, height=2400)
    assert "/p06_gpipe.ipynb" in url and violations == {}
    assert high <= 2200  # 37 puzzles and 20 repairs, five in a row


SLIDING = """
from lib import *
from drawing import explore


async def fsdp(model: Model) -> None:
    model.weights[0] = await model.allgather(model.load_weights(0, model.rank, model.RANKS)[0], 0)


explore(fsdp, ranks=4, layers=2)
"""
SHOWN = f"""() => document.querySelector('{OPEN} .jp-OutputArea-output svg.ltp:not(.narrow)')
    ?.getAttribute('aria-label') ?? ''"""
WIDTHS = (
    f"() => {{ const cell = document.querySelector('{OPEN} .jp-OutputArea-output');"
    """ const wide = what => Math.max(...[...cell.querySelectorAll(what)].map(one => one.clientWidth));
    return [cell.clientWidth, cell.scrollWidth, wide('svg.ltp'), wide('.noUi-target')]; }"""
)


def test_a_slider_that_is_moved_draws_the_run_anew(browser: "Browser", lab: Lab, tmp_path: Path) -> None:
    def work(page: Page) -> Any:
        run_all(page)
        page.wait_for_function(f"() => ({SHOWN})() !== ''")
        before = page.evaluate(SHOWN)
        wide = []
        for width in (980, 1200, 1280, 1366, 1440, 1600):
            page.set_viewport_size({"width": width, "height": 1200})
            page.wait_for_timeout(300)
            wide.append(page.evaluate(WIDTHS))
        keep(page.screenshot(), "lab-sliders", tmp_path)
        page.locator(f"{OPEN} .noUi-handle").first.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"before => ({SHOWN})() !== before", arg=before)
        return before, page.evaluate(SHOWN), page.locator(f"{OPEN} .noUi-handle").count(), wide

    before, after, sliders, wide = browser.visit(lab.url(lab.put("sliders.ipynb", [SLIDING])), work, height=1200)
    assert "4 ranks" in before and "5 ranks" in after and sliders == 4
    assert len({cell for cell, *_ in wide}) > 3
    for cell, scrolled, picture, slider in wide:
        full = min(cell, 980) if cell > NARROW else 380
        assert full - 45 < picture <= full, (cell, picture)  # but for the prompt's own padding
        assert scrolled <= cell and slider > 0.3 * cell


def test_a_solved_puzzle_passes_is_drawn_on_both_pages_and_progress_is_kept(
    browser: "Browser", lab: Lab, tmp_path: Path
) -> None:
    def work(page: Page) -> Any:
        light = run_all(page)
        keep(page.screenshot(full_page=True), "lab-light", tmp_path)
        found = axe(page, ".jp-NotebookPanel .jp-OutputArea")
        page.evaluate(COMMAND, ["apputils:change-theme", {"theme": "JupyterLab Dark"}])
        page.wait_for_function("() => document.body.dataset.jpThemeLight === 'false'")
        dark = page.evaluate(OUTPUTS)
        keep(page.screenshot(full_page=True), "lab-dark", tmp_path)
        page.evaluate(COMMAND, ["apputils:change-theme", {"theme": "JupyterLab Light"}])
        page.evaluate(COMMAND, ["docmanager:save", {}])
        return light, dark, found

    light, dark, (violations, _) = browser.visit(lab.url("p04_fsdp.ipynb"), work, height=6000)
    for outputs, shade in ((light, 0), (dark, 1)):
        [drawn] = [output for output in outputs if output["words"].startswith("fsdp: 4 ranks")]
        assert within(drawn)
        assert drawn["inks"] == [rgb(theme.ROLES["ink"][shade])]
    [verdict] = [output["text"] for output in light if "PASS" in output["text"]]
    assert "20.4 ticks" in verdict
    assert violations == {}

    kept = json.loads((lab.folder / "progress.json").read_text(encoding="utf-8"))
    assert "fsdp" in json.dumps(kept)
    name = lab.put("look.ipynb", ["import sys\nsys.path.insert(0, '../..')\nfrom lib import progress", "progress()"])
    assert f"1 of {len(COURSE)} puzzles solved" in browser.visit(lab.url(name), run_all)[-1]["text"]


def test_the_second_hint_has_a_picture_and_yours_stands_beside_the_targets(
    browser: "Browser", lab: Lab, tmp_path: Path
) -> None:
    slow = "async def gpipe(model):\n    for layer in range(model.LAYERS):\n        model.get_activation([0])"
    setup = "import sys\nsys.path.insert(0, '../..')\nfrom lib import hint, run\nfrom drawing import beside_target"
    beside = f"{slow}\n\nbeside_target(run(gpipe, ranks=4, layers=8, batches=4))"
    name = lab.put("hints.ipynb", [setup, 'hint("gpipe")', 'hint("gpipe")', 'hint("gpipe")', beside])

    def work(page: Page) -> Any:
        outputs = run_all(page)
        keep(page.screenshot(full_page=True), "lab-hints", tmp_path)
        return outputs, page.evaluate(IMAGES)

    outputs, images = browser.visit(lab.url(name), work)
    assert [output["text"].split("\n")[0][:21] for output in outputs[:3]] == [f"Hint {n} of 3 for gpipe" for n in "123"]
    [[natural, alt, left, right]] = images
    assert natural == 980 and alt.startswith("The beginning of a schedule for gpipe")
    assert outputs[1]["left"] <= left < right <= outputs[1]["right"]
    assert within(outputs[3]) and "One that meets the target: 33.8 ticks" in outputs[3]["words"]


def test_programs_to_be_repaired_show_their_errors_and_pictures_and_all_cells_are_run(
    browser: "Browser", lab: Lab, tmp_path: Path
) -> None:
    def work(page: Page) -> Any:
        outputs = run_all(page)
        for shade in ("Light", "Dark"):
            page.evaluate(COMMAND, ["apputils:change-theme", {"theme": f"JupyterLab {shade}"}])
            page.wait_for_function(f"() => document.body.dataset.jpThemeLight === '{str(shade == 'Light').lower()}'")
            keep(page.screenshot(full_page=True), f"lab-repairs-{shade.lower()}", tmp_path)
        page.evaluate(COMMAND, ["apputils:change-theme", {"theme": "JupyterLab Light"}])
        return outputs

    outputs = browser.visit(lab.url("repairs.ipynb"), work, height=6000)
    errors = [at for at, output in enumerate(outputs) if output["text"].startswith(("PuzzleError: ", "Deadlock: "))]
    assert len(errors) == len([name for name in REPAIRS if name not in QUIET]) and "FAIL" in outputs[-1]["text"]
    assert all(within(outputs[at + 1]) for at in errors)
    assert not any("Traceback" in output["text"] or "lib/" in output["text"] for output in outputs)
    assert "---->" in outputs[errors[0]]["text"]


def test_in_a_notebook_that_is_not_trusted_images_survive_and_words_stand_for_the_rest(
    browser: "Browser", lab: Lab
) -> None:
    live, static = draw(staged_run()), draw(staged_run(), static=True)
    cells = []
    for figure in (live, static):
        cell = nbformat.v4.new_code_cell("draw(...)", execution_count=1)
        cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": figure._repr_html_()})]
        cells.append(cell)
    name = lab.put("untrusted.ipynb", cells)

    def work(page: Page) -> Any:
        page.locator(".jp-OutputArea-output img").wait_for()
        return page.evaluate(OUTPUTS), page.evaluate(IMAGES)

    outputs, images = browser.visit(lab.url(name), work)
    assert outputs[0]["picture"] is None
    assert outputs[0]["text"].startswith(live.summary)
    assert "memory when issued" not in outputs[0]["text"]
    assert [image[:2] for image in images] == [[static.size[0], static.summary]]
