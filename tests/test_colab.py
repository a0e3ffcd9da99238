"""Every notebook alone in an empty folder, on Colab's packages: solved, graded, and nothing of Colab's changed."""

import asyncio
import base64
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from solutions.build.elsewhere import colab
from solutions.build.notebooks.notebook import FIRST_CELL, notebook_of
from solutions.build.sources.files import REPAIRS, ROOT, Json, as_text, is_puzzle, sources
from solutions.build.sources.specs import specs_of
from tests.kernels import Outputs, complaints, kernel_in, run_twice, shows_a_picture, text
from tests.slow import some
from tools.pythons import python_of

PINS = Path(__file__).parent / "pins" / "colab.txt"
NEW = {"chalk-diagrams", "chalk-planar", "colour", "loguru", "svgwrite"}
"""What the package brings to Colab."""
THERE = (
    "ipykernel",
    "ipython",
    "jupyter_client",
    "nest-asyncio",
    "pillow",
    "toolz",
    "typing_extensions",
    "importlib_metadata",
)
"""Packages of Colab that a kernel and ours meet; the other 600 are in the pins."""
SOURCES = sources()
SOME = some(SOURCES, 3)
EXECUTED = [path for at, path in enumerate(SOURCES) if at % 3 == 0 or not is_puzzle(path)]
"""What is run on Colab's packages. The first cell is that of all notebooks, all others are run by test_notebooks.py."""


@pytest.fixture(scope="module")
def first() -> str:
    """The first cell of all notebooks."""
    return colab.first_cell(ROOT)


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.stem)
def test_a_notebook_is_complete_and_small(path: Path, first: str) -> None:
    made = colab.notebook(path, ROOT, first=first)
    nbformat.validate(nbformat.from_dict(made))
    assert len(json.dumps(made)) < 1_200_000  # Colab has no such limit: lib is in each, and a page has to load fast
    plain = notebook_of(path)
    both = [[cell["source"] for cell in one["cells"] if cell["cell_type"] == "code"][1:] for one in (made, plain)]
    assert both[0] == both[1] and len(made["cells"]) == len(plain["cells"])
    assert "".join(made["cells"][1]["source"]) == first
    assert "chalk-diagrams==0.2.2" in first and "_ = []" not in first


@pytest.mark.process
def test_all_of_lib_and_drawing_that_a_notebook_needs_is_taken_along_and_nothing_else(
    first: str, tmp_path: Path
) -> None:
    archive = re.search('^ARCHIVE = "(.*)"$', first, re.MULTILINE)
    assert archive is not None
    packed = zipfile.ZipFile(io.BytesIO(lzma.decompress(base64.b85decode(archive[1]))))
    names = packed.namelist()
    tracked = ["git", "ls-files", "lib", "drawing", "solutions/p[0-9][0-9]_*.py", "solutions/repairs.py"]
    there = subprocess.run(tracked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    shell = re.compile("lib/referee/|lib/lab/(settings/|server|commands)|lib/__main__.py|.*/shell.py|drawing/board/")
    left = [name for name in there if not shell.match(name)]
    assert sorted(names) == sorted(left) and len(left) > 100
    packed.extractall(tmp_path)
    tried = "import pkgutil, lib, drawing\n" + "\n".join(
        f"for one in pkgutil.walk_packages({name}.__path__, '{name}.'):\n"
        "    'engines' in one.name or __import__(one.name)"  # which torch is for
        for name in ("lib", "drawing")
    )
    subprocess.run([sys.executable, "-c", tried], cwd=tmp_path, check=True)


def texts(notebook: Json) -> str:
    return "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")


def test_links_to_other_notebooks_work_in_colab(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    path = ROOT / "solutions" / "p03_wsdp.py"
    unpublished = texts(colab.notebook(path, ROOT, first=first))
    assert ".ipynb)" not in unpublished.replace("`p04_fsdp.ipynb`)", "")
    assert "Next: Puzzle 4: Fully sharded data parallel (`p04_fsdp.ipynb`)" in unpublished
    monkeypatch.setattr(colab, "published", lambda root: "https://github.com/me/it")
    there = "https://colab.research.google.com/github/me/it/blob/colab/"
    assert "](" + there + "p04_fsdp.ipynb)" in texts(colab.notebook(path, ROOT, first=first))
    assert colab.first_cell(ROOT).splitlines() == [
        "%pip install --quiet https://github.com/me/it/archive/HEAD.zip",
        f"%env LLM_TRAINING_PUZZLES_NOTEBOOKS={there}",
        FIRST_CELL,
    ]
    overview = texts(colab.notebook(SOURCES[0], ROOT, first=first))
    for name in ("machine_tour", "repairs", "laboratory", "for_real"):  # the map leads to the puzzles
        assert f"]({there}{name}.ipynb)" in overview
    assert not re.search(r"\]\(\w+\.ipynb\)", overview)  # no link is left that leads nowhere there


@pytest.mark.process
@pytest.mark.parametrize("mounted", [False, True])
def test_progress_is_kept_in_drive_where_that_is_mounted_and_solutions_are_there(
    mounted: bool, first: str, tmp_path: Path
) -> None:
    drive, here = tmp_path / "drive", tmp_path / "here"
    here.mkdir()
    if mounted:
        drive.mkdir()
    (here / "progress.json").write_text('{"version": 1, "best": {}, "hints": {"ddp": 1}}')
    cell = first.replace('"/content/drive/MyDrive"', repr(str(drive)))
    (tmp_path / "cell.py").write_text(
        f"{cell}\nimport types\nsys.modules['ipykernel'] = types.ModuleType('ipykernel')\n"
        "print(lib.solution('fsdp', sure=True))\nprint(lib.hint('ddp'))\nprint(lib.progress().path)"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LLM_")} | {
        "HOME": str(tmp_path)
    }
    command = [sys.executable, str(tmp_path / "cell.py")]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    ready, *said, kept = done.stdout.splitlines()
    folder = drive / "llm-training-puzzles" if mounted else here
    assert ready == f"Ready. Your progress and hints are kept in {folder if mounted else 'progress.json here'}."
    assert kept == str(folder / "progress.json") and json.loads(Path(kept).read_text())["hints"] == {"ddp": 2}
    assert any("async def fsdp" in line for line in said) and any(line.startswith("Hint 2 of 3") for line in said)


@pytest.mark.slow
def test_the_command_writes_notebooks_and_an_archive(
    tmp_path: Path, first: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert colab.first_cell(ROOT) == first  # the same sources make the same archive
    some = SOURCES[1::6]  # it takes a second to make one
    monkeypatch.setattr(colab, "sources", lambda folder: [folder / path.name for path in some])
    monkeypatch.setattr(colab, "first_cell", {tmp_path: first}.__getitem__)
    shutil.copytree(ROOT / "solutions", tmp_path / "solutions", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert colab.main(tmp_path) == 0
    assert len(list((tmp_path / "dist" / "colab").glob("*.ipynb"))) == len(some)
    assert f"{len(some)} notebooks in dist/colab" in capsys.readouterr().out
    assert (tmp_path / "dist" / "llm-training-puzzles-colab.zip").stat().st_size < 740_000 * len(some)


ON_COLAB = {"python_version": "3.13", "python_full_version": "3.13.0", "extra": ""}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def brought(wanted: list[str]) -> tuple[set[str], set[str]]:
    """The packages that requirements bring to Colab, with all that these ask for, and those of Colab's that do not
    meet them."""
    lines = [Requirement(line) for line in PINS.read_text(encoding="utf-8").splitlines()[1:]]
    there = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in lines}
    new, replaced, todo = set(), set(), [*wanted]
    while todo:
        one = Requirement(todo.pop())
        name = canonicalize_name(one.name)
        if one.marker is not None and not one.marker.evaluate(ON_COLAB):
            continue
        if name not in there and name not in new:
            new.add(name)
            todo += metadata.requires(name) or []
        elif name in there and there[name] not in one.specifier:
            replaced.add(name)
    return new, replaced


def test_the_package_brings_a_few_packages_to_colab_and_replaces_none() -> None:
    assert brought(PROJECT["dependencies"]) == (NEW, set())
    assert {Requirement(one).name for one in colab.requirements(ROOT)} == {"chalk-diagrams", "colour"}
    assert brought(PROJECT["optional-dependencies"]["lab"])[1] >= {"ipykernel", "ipywidgets"}  # it can be told


@pytest.mark.slow
@pytest.mark.process
def test_pip_installs_the_package_beside_colabs_own_versions(machine: "Machine", tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    pip = [str(machine.folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    dry = [*pip, "--dry-run", "--ignore-installed", "--report", "-", "-c", str(PINS), str(wheel)]
    done = subprocess.run(dry, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    chosen = {canonicalize_name(one["metadata"]["name"]) for one in json.loads(done.stdout)["install"]}
    pinned = {canonicalize_name(line.split("==")[0]) for line in PINS.read_text(encoding="utf-8").splitlines()[1:]}
    assert chosen - pinned == NEW | {"llm-training-puzzles"} and not chosen & {"ipykernel", "tornado", "ipywidgets"}


SLIDES = """
import ipykernel, ipywidgets
from drawing import explore

def basic(model):
    model.activations[0] = model.get_activation([0])
    model.weights[0], _ = model.load_weights(0)
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])

sliders = explore(basic, ranks=1)
before = sliders.children[-1].value
sliders.children[0].value = 3
print(ipykernel.__version__, ipywidgets.__version__, len(sliders.children), before != sliders.children[-1].value)
"""


@pytest.mark.slow
@pytest.mark.process
def test_sliders_move_with_colabs_own_widgets(machine: "Machine", tmp_path: Path) -> None:
    pip = [str(machine.folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    more = [*NEW, "ipywidgets", "ipython-genutils"]
    subprocess.run([*pip, "--no-deps", "-c", str(PINS), "--target", str(tmp_path), *more], check=True)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [str(machine.folder / "bin" / "python"), "-c", SLIDES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].endswith("6.17.1 7.7.1 5 True"), done.stdout


@pytest.mark.process
@pytest.mark.parametrize(("answer", "lacks"), [("right", True), ("wrong", False)], ids=["right", "wrong"])
def test_a_notebook_of_colab_is_graded_at_a_shell_like_any_other(
    answer: str, lacks: bool, first: str, tmp_path: Path
) -> None:
    """From the repository, and from its own folder. Its first cell, which calls pip where it lacks a package, hinders
    nothing."""
    path = ROOT / "solutions" / "p04_fsdp.py"
    if lacks:
        first = first.replace("REQUIREMENTS = [", "REQUIREMENTS = ['no-such-package==1', ")
    made = colab.notebook(path, ROOT, first=first)
    [function] = re.findall(r"(?ms)^async def fsdp\(.*?^    return model\n", path.read_text(encoding="utf-8"))
    [cell] = [cell for cell in made["cells"] if "".join(cell["source"]).startswith("async def fsdp(")]
    cell["source"] = [function if answer == "right" else "async def fsdp(model):\n    nothing_of_that_name\n"]
    (tmp_path / "mine.ipynb").write_text(as_text(made, indent=1), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LLM_")}
    environment |= {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    for here, file in ((ROOT, tmp_path / "mine.ipynb"), (tmp_path, "mine.ipynb")):
        command = [sys.executable, "-m", "lib", "grade", str(file), "--json", str(tmp_path / "a.json")]
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (int(answer == "wrong"), ""), done.stdout
        [result] = json.loads((tmp_path / "a.json").read_text())["results"]
        assert (result["puzzle"], result["note"], result["printed"]) == ("fsdp", "", "")
        if answer == "wrong":
            assert "name 'nothing_of_that_name' is not defined" in result["message"]
            assert "could not run" not in result["message"] and "did not run" not in result["message"]
    assert not (tmp_path / "home").exists()


class Machine(NamedTuple):
    """An environment, and what was in it at first."""

    folder: Path
    before: set[str]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> "Machine":
    """An environment with Colab's versions, without what Colab lacks."""
    python = python_of("3.13")
    if python is None:
        pytest.skip(
            "NOT TRIED ON COLAB'S PACKAGES: no Python 3.13 with venv (pyenv install 3.13, or uv python install 3.13)"
        )
    folder = tmp_path_factory.mktemp("colab") / "venv"
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "-c", str(PINS), *THERE], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(
            f"NOT TRIED ON COLAB'S PACKAGES: pip could not install them: {done.stderr.strip().splitlines()[-1]}"
        )
    return Machine(folder, freeze(folder))


def freeze(folder: Path) -> set[str]:
    command = [str(folder / "bin" / "python"), "-m", "pip", "freeze", "--all", "--disable-pip-version-check"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.fixture(scope="module")
def executed(machine: "Machine", first: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Outputs]]:
    """The outputs of some notebooks, as shipped and solved, each from an empty folder."""
    home = tmp_path_factory.mktemp("home")
    spec = {"argv": [str(machine.folder / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]}
    kernels = home / "kernels" / "colab"
    kernels.mkdir(parents=True)
    (kernels / "kernel.json").write_text(json.dumps({**spec, "display_name": "Colab", "language": "python"}))
    environment = {**os.environ, "HOME": str(home), "IPYTHONDIR": str(home / "ipython"), "PYTHONPATH": ""}
    environment.pop("LLM_TRAINING_PUZZLES_PROGRESS", None)

    async def both(path: Path) -> dict[str, Outputs]:
        folder = tmp_path_factory.mktemp(path.stem)
        async with kernel_in(folder, "colab", env=environment) as kernel:
            shipped, solved = (colab.notebook(path, ROOT, first, solved) for solved in (False, True))
            return await run_twice(shipped, solved, kernel, folder)

    async def everything() -> dict[str, dict[str, Outputs]]:
        free = asyncio.Semaphore(os.cpu_count() or 1)

        async def held(path: Path) -> dict[str, Outputs]:
            async with free:
                return await both(path)

        first = await held(EXECUTED[0])  # alone: it installs what is missing
        rest = await asyncio.gather(*map(held, EXECUTED[1:]))
        return {path.stem: found for path, found in zip(EXECUTED, [first, *rest], strict=True)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(home))
        return asyncio.run(everything())


@pytest.mark.slow
@pytest.mark.parametrize("path", EXECUTED, ids=lambda path: path.stem)
def test_it_runs_solves_grades_and_draws(executed: dict[str, dict[str, Outputs]], path: Path) -> None:
    for which, outputs in executed[path.stem].items():
        wrong = complaints(outputs)
        if path.stem == REPAIRS and which == "blank":  # programs that are wrong are drawn as they are
            assert wrong and all(one.pop("ename", "") in ("PuzzleError", "Deadlock") for one in wrong)
        else:
            assert wrong == []
    if is_puzzle(path):
        asked = "FAIL" if path.stem == REPAIRS else "not attempted yet"
        assert asked in text(executed[path.stem]["blank"])
        assert "PASS" in text(executed[path.stem]["solved"])
    if is_puzzle(path) and path.stem != REPAIRS:
        assert shows_a_picture(executed[path.stem]["solved"], specs_of(path)[0]["name"])


@pytest.mark.slow
def test_nothing_that_was_there_is_changed(machine: "Machine", executed: dict[str, dict[str, Outputs]]) -> None:
    assert executed
    after = freeze(machine.folder)
    assert machine.before - after == set()
    assert {line.split("==")[0] for line in after - machine.before} == NEW
    subprocess.run([str(machine.folder / "bin" / "python"), "-m", "pip", "check"], check=True, capture_output=True)
