"""The course without a clone: what `make wheel` builds, installed outside of the project, and what one does there."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import nbformat
import pytest

from lib.course.specs import puzzles
from lib.lab import server
from lib.lab import shell as front
from lib.lab.commands import COMMANDS, PROGRAMS
from solutions.build.notebooks.notebook import notebook_of
from solutions.build.sources.files import ROOT, as_text
from tests.kernels import SHORT, complaints, kernel_in, run_cells, text
from tests.marks import MISSING
from tests.test_lab import address_of, end

pytestmark = pytest.mark.process
COURSE = sum(not puzzle.repair for puzzle in puzzles().values())
SHIPPED = sorted(path.name for path in (ROOT / "puzzles").glob("*.ipynb"))
LEFT = {
    "puzzles/mine/p04_fsdp.ipynb": "a learner's own work",
    "puzzles/mine/progress.json": "{}",
    "my_fsdp.py": "a learner's own work",
    "lib/__pycache__/x.cpython-311.pyc": "",
}
"""What people leave in a clone, and what nobody else is to get."""
FOREIGN = ("lib.py", "drawing.py", "solutions.py", "random.py")
"""What may lie in a learner's folder, under names that are ours or Python's."""
WATCH = """
import os, sys

def look(event, arguments):
    path = arguments[0] if event == "open" and arguments else None
    if isinstance(path, str) and path.startswith({root!r}) and not path.startswith({others!r}):
        with os.fdopen(os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a") as file:
            file.write(path + "\\n")

sys.addaudithook(look)
"""
"""In the environment: each Python of it notes what it opens of the project."""


class Built(NamedTuple):
    """What `make wheel` writes."""

    wheel: Path
    source: Path


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as it is, with what people leave in a clone."""
    if find_spec("hatchling") is None:
        pytest.skip("NOTHING WAS INSTALLED: hatchling, which builds the package, is not here (make setup)")
    root = tmp_path_factory.mktemp("project") / "clone"
    shutil.copytree(
        ROOT,
        root,
        ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "dist", "mine", ".*_cache", "*.egg-info"),
    )
    for name, left in LEFT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(left, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def built(tree: Path) -> Built:
    """A wheel and a source distribution."""
    build = [sys.executable, "-m", "hatchling", "build", "-d", "dist"]
    done = subprocess.run(build, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel], [source] = (tree / "dist").glob("*.whl"), (tree / "dist").glob("*.tar.gz")
    return Built(wheel, source)


class Installed:
    """An environment of its own with the package in it, and nothing else of the project's."""

    def __init__(self, folder: Path, wheel: Path, dependencies: bool) -> None:
        """``dependencies``: whether it has them, too: those of the environment that runs the tests."""
        self.folder, self.log = folder / "environment", folder / "opened.txt"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.folder)], check=True)
        self.packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(self.folder), "platbase": ""}))
        pip = [sys.executable, "-m", "pip", "--python", str(self.folder), "install", "--quiet", "--no-index"]
        quiet = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        subprocess.run([*pip, "--no-deps", "--no-compile", str(wheel)], check=True, env=quiet)
        others = sysconfig.get_path("purelib")
        watch = WATCH.format(root=str(ROOT) + os.sep, others=sys.prefix + os.sep, log=str(self.log))
        (self.packages / "sitecustomize.py").write_text(watch, encoding="utf-8")
        if dependencies:
            (self.packages / "dependencies.pth").write_text(others, encoding="utf-8")

    def program(self, name: str) -> str:
        """Where a program of the environment is."""
        return str(self.folder / "bin" / name)

    def environment(self) -> dict[str, str]:
        """Of a shell where nothing says where the project is, nor that a test runs."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LLM_", "PYTEST"))}
        return kept | {"COLUMNS": "200"}

    def __call__(self, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a folder."""
        name, *arguments = command
        how: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
        return subprocess.run([self.program(name), *arguments], cwd=folder, env=self.environment(), **how)

    def opened(self) -> list[str]:
        """Files of the project that were opened."""
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The wheel, with its dependencies. Whatever is done with it, it opens nothing of the project."""
    made = Installed(tmp_path_factory.mktemp("installed"), built.wheel, dependencies=True)
    yield made
    assert made.opened() == []


@pytest.fixture(scope="module")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The wheel alone: where students' code is graded, nothing else is needed."""
    made = Installed(tmp_path_factory.mktemp("bare"), built.wheel, dependencies=False)
    yield made
    assert made.opened() == []


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with a solved puzzle, and with modules that break whatever imports them."""
    for name in FOREIGN:
        (tmp_path / name).write_text(f"raise SystemExit('this is {name} of the folder')\n", encoding="utf-8")
    shutil.copy(ROOT / "solutions" / "p00_basic.py", tmp_path / "solved.py")
    return tmp_path


# -- what is in it --------------------------------------------------------------------------------------------


def test_a_wheel_is_one_package_with_all_that_a_learner_needs_and_nobodys_work(built: Built) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"llm_training_puzzles"}
    inside = {name.removeprefix("llm_training_puzzles/") for name in names if not name.split("/")[0].endswith("-info")}
    code = {
        path.relative_to(ROOT).as_posix()
        for folder in ("lib", "drawing")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    solved = {f"solutions/{puzzle.file}.py" for puzzle in puzzles().values()}
    solved |= {"solutions/__init__.py", "solutions/build/sources/definitions.py"}
    shown = {f"puzzles/{name}" for name in [*SHIPPED, "gallery.html", "board.html"]}
    assert inside == {"__init__.py", "__main__.py", *code, *solved, *shown}


def test_a_source_distribution_is_the_project_and_makes_the_same_wheel(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.source) as packed:
        packed.extractall(tmp_path, filter="data")
    [root] = tmp_path.iterdir()
    inside = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert not inside & {*LEFT}
    assert {"Makefile", "README.md", "docs/install.md", "solutions/build/ruff.toml", "tests/test_installed.py"} < inside
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(built.source)], check=True)
    [again] = tmp_path.glob("*.whl")
    assert again.read_bytes() == built.wheel.read_bytes()


# -- where students' code is graded ------------------------------------------------------------------------------


def test_a_grader_needs_neither_dependencies_nor_solutions(bare: Installed, desk: Path) -> None:
    assert bare(desk, "training-puzzles", "grade", "solved.py").returncode == 0
    assert "## Plain training" in bare(desk, "training-puzzles", "solution", "0").stdout  # it is solved now
    where = bare(desk, "python", "-c", "import llm_training_puzzles as it; print(it.ROOT)").stdout.strip()
    shutil.rmtree(Path(where, "solutions"))
    done = bare(desk, "training-puzzles", "grade", "solved.py")
    assert done.returncode == 0 and "PASS  puzzle 0" in done.stdout, done.stdout + done.stderr
    assert "Hint 1 of 3 for fsdp" in bare(desk, "training-puzzles", "hint", "4").stdout
    refused = bare(desk, "training-puzzles", "solution", "0")
    assert refused.returncode == 2 and "the solution of basic is not here" in refused.stderr
    assert "Traceback" not in refused.stderr
    missing = bare(desk, "training-puzzles", "lab")
    assert missing.returncode == 2 and "JupyterLab is not installed beside this Python" in missing.stderr
    assert 'pip install "llm-training-puzzles[lab]"' in missing.stderr
    assert not (desk / "llm-training-puzzles").exists()


READS = """
import os

def basic(model):
    for name in ("solutions/p00_basic.py", "puzzles/index.ipynb", "lib/specs.json"):
        print(name, os.path.exists(os.path.join({package!r}, name)))
    import solutions.p00_basic
"""


def test_code_that_is_graded_sees_no_solution_of_the_installed_package(installed: Installed, desk: Path) -> None:
    (desk / "solutions.py").unlink()
    package = str(installed.packages / "llm_training_puzzles")
    (desk / "curious.py").write_text(READS.format(package=package), encoding="utf-8")
    done = installed(desk, "training-puzzles", "grade", "curious.py")
    assert done.returncode == 1 and "No module named 'solutions" in done.stdout, done.stdout
    if "NOT cut off" in done.stdout:
        pytest.skip("NOBODY LOOKED FOR SOLUTIONS: this machine keeps no code apart (user namespaces, or bubblewrap)")
    for name, seen in (("solutions/p00_basic.py", False), ("puzzles/index.ipynb", False), ("lib/specs.json", True)):
        assert f"{name} {seen}" in done.stdout, done.stdout


def test_a_solution_that_is_imported_runs_nothing(installed: Installed, tmp_path: Path) -> None:
    code = "import llm_training_puzzles; from solutions.p25_context_parallel import context_parallel; print('there')"
    done = installed(tmp_path, "python", "-c", code)
    assert done.stdout == "there\n", done.stdout + done.stderr


# -- the commands ------------------------------------------------------------------------------------------------


def test_without_arguments_it_says_what_there_is_and_how_to_begin(installed: Installed, desk: Path) -> None:
    said = {installed(desk, *command).stdout for command in ((PROGRAMS[0],), (PROGRAMS[0], "--help"))}
    [overview] = said
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    for command in ((PROGRAMS[0],), ("python", "-m", "llm_training_puzzles")):
        assert installed(desk, *command, "--version").stdout == f"llm-training-puzzles {version}\n"
    assert f"{PROGRAMS[0]} lab " in overview and all(f"\n  {name} " in overview for name in COMMANDS)
    piped = f"{installed.program(PROGRAMS[0])} | head -1"  # which reads no further
    done = subprocess.run(
        ["sh", "-c", piped], cwd=desk, env=installed.environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("LLM training puzzles") and done.stderr == ""


@pytest.mark.slow
def test_a_course_in_an_editor(installed: Installed, desk: Path) -> None:
    def call(*arguments: str, code: int = 0, name: str = "llm-training-puzzles") -> str:
        done = installed(desk, name, *arguments)
        assert done.returncode == code and "Traceback" not in done.stderr, (arguments, done.stdout, done.stderr)
        return done.stdout

    call("start", "0", "basic.py")
    assert "Your code here" in (desk / "basic.py").read_text(encoding="utf-8")
    (desk / "random.py").unlink()  # a script beside it would not even start, whatever it imports
    assert installed(desk, "python", "basic.py").returncode == 0
    (desk / "random.py").write_text("raise SystemExit", encoding="utf-8")
    assert "TODO" in call("grade", "basic.py", code=1)
    assert "Hint 1 of 3 for basic" in call("hint", "basic")
    assert "solution basic --sure" in call("solution", "basic", code=1)
    assert "### " not in call("solution", "0", "--sure")
    assert f"0 of {COURSE} puzzles solved" in call("progress")
    assert "PASS" in call("-m", "llm_training_puzzles", "grade", "solved.py", name="python")
    assert f"1 of {COURSE} puzzles solved" in call("progress")
    call("draw", "solved.py:basic", "-o", "basic.svg")
    assert (desk / "basic.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "17 ticks" in call("run", "solved.py:basic")
    call("gallery", "gallery.html")
    assert (desk / "gallery.html").read_bytes() == (ROOT / "puzzles" / "gallery.html").read_bytes()
    assert "stays as it is" in installed(desk, "training-puzzles", "gallery", "gallery.html").stderr
    assert str(installed.packages) in call("gallery", "--no-browser")
    assert {path.name for path in desk.iterdir()} == {
        *FOREIGN, "solved.py", "basic.py", "progress.json", "basic.svg", "gallery.html",
    }  # fmt: skip


@pytest.mark.slow
def test_notebooks_of_ones_own(installed: Installed, desk: Path) -> None:
    folder = desk / "llm-training-puzzles"
    lab = ("llm-training-puzzles", "lab", "--copy-only")
    assert f"{len(SHIPPED)} new notebooks in llm-training-puzzles" in installed(desk, *lab).stdout
    assert sorted(path.name for path in folder.iterdir()) == SHIPPED
    work = folder / "p04_fsdp.ipynb"
    work.write_text("my work", encoding="utf-8")
    (folder / "p05_pipeline.ipynb").unlink()
    for here in (desk, folder):  # also from inside the folder it is this one
        assert "new notebooks in" in installed(here, *lab).stdout
    assert work.read_text(encoding="utf-8") == "my work"
    assert sorted(path.name for path in folder.iterdir()) == SHIPPED
    done = installed(desk, "training-puzzles", "reset", "4")
    assert done.returncode == 0, done.stderr
    assert (folder / "p04_fsdp.old1.ipynb").read_text(encoding="utf-8") == "my work"
    assert work.read_bytes() == (ROOT / "puzzles" / "p04_fsdp.ipynb").read_bytes()
    solved = as_text(notebook_of(ROOT / "solutions" / "p04_fsdp.py", solved=True), indent=1)
    work.write_text(solved, encoding="utf-8")
    done = installed(desk, "training-puzzles", "grade", "fsdp")
    assert done.returncode == 0 and "PASS  puzzle 4" in done.stdout, done.stdout + done.stderr
    assert (folder / "progress.json").exists() and not (desk / "progress.json").exists()


# -- notebooks and JupyterLab ------------------------------------------------------------------------------------

WHERE = """
import drawing
import lib
print("lib is", lib.__file__, "drawing is", drawing.__file__)
"""
PROCESSES = "print('in processes:', len(run(basic, ranks=1, layers=2, batches=4, engine='processes').events))"


@pytest.mark.slow
def test_a_notebook_in_a_kernel_beside_modules_of_our_names(
    installed: Installed, desk: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk / "random.py").unlink()  # Python's own names are not to be had in the folder of a kernel
    home = tmp_path_factory.mktemp("home")
    kernels = home / "kernels" / "installed"
    kernels.mkdir(parents=True)
    argv = [installed.program("python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernels / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "It", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(home))
    environment = {**installed.environment(), "HOME": str(home), "IPYTHONDIR": str(home / "ipython")}
    assert installed(desk, "training-puzzles", "lab", str(desk / "mine"), "--copy-only").returncode == 0
    copied = nbformat.read(desk / "mine" / "p00_basic.ipynb", 4)
    blank = [cell.source for cell in copied.cells if cell.cell_type == "code"][:3]
    made = json.dumps(notebook_of(ROOT / "solutions" / "p00_basic.py", solved=True))
    solved = nbformat.reads(made, 4)
    cells = [*map(nbformat.v4.new_code_cell, blank), *solved.cells, nbformat.v4.new_code_cell(WHERE)]
    if not MISSING:
        cells.append(nbformat.v4.new_code_cell(PROCESSES))

    async def outputs() -> Any:
        async with kernel_in(desk, "installed", env=environment) as kernel:
            return await run_cells(nbformat.v4.new_notebook(cells=cells), kernel, desk)

    found = asyncio.run(outputs())
    assert complaints(found) == []
    said = text(found)
    package = installed.packages / "llm_training_puzzles"
    assert f"lib is {package / 'lib' / '__init__.py'} drawing is {package / 'drawing' / '__init__.py'}" in said
    assert "PASS" in "".join(str(output.get("data", "")) for output in found)
    assert MISSING or "in processes: 1" in said, said
    assert f"1 of {COURSE} puzzles solved" in installed(desk, "training-puzzles", "progress").stdout


class Labs:
    """JupyterLab as the installed command opens it, with no setting of this machine's user."""

    def __init__(self, installed: Installed, home: Path, runtime: str) -> None:
        self.program = installed.program("llm-training-puzzles")
        shared = Path(sys.prefix, "share", "jupyter")  # what belongs to JupyterLab lies with the dependencies
        settings = {f"JUPYTER_{name}": str(home / name) for name in ("CONFIG_DIR", "DATA_DIR")}
        settings |= {f"JUPYTERLAB_{name}": str(home / name) for name in ("SETTINGS_DIR", "WORKSPACES_DIR")}
        settings |= {"JUPYTERLAB_DIR": str(shared / "lab"), "JUPYTER_RUNTIME_DIR": runtime, "HOME": str(home)}
        self.environment = installed.environment() | settings
        self.log = home / "server.log"

    def command(self, *arguments: str) -> list[str]:
        """The command line."""
        return [self.program, "lab", *arguments, "--no-browser", "--allow-root"]

    def once(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call it where it is to end by itself."""
        return subprocess.run(
            self.command(*arguments), cwd=folder, env=self.environment, capture_output=True, text=True, check=False,
            timeout=120,
        )  # fmt: skip

    def start(self, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Call it where it stays."""
        with open(self.log, "w") as log:
            how: dict[str, Any] = {"stdout": log, "stderr": log, "start_new_session": True}
            return subprocess.Popen(self.command(*arguments), cwd=folder, env=self.environment, **how)


@pytest.fixture
def labs(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    """How to open JupyterLab from the installed package."""
    with TemporaryDirectory(prefix="lab-", dir=SHORT) as runtime:
        yield Labs(installed, tmp_path_factory.mktemp("home"), runtime)


def test_lab_opens_jupyterlab_on_copies_and_a_second_one_does_not(labs: Labs, desk: Path) -> None:
    (desk / "random.py").unlink()
    first = labs.start(desk)
    try:
        runtime = Path(labs.environment["JUPYTER_RUNTIME_DIR"])
        address = address_of(first, runtime, labs.log)
        [written] = runtime.glob("jpserver-*.json")
        known = json.loads(written.read_text(encoding="utf-8"))
        assert Path(known["root_dir"]) == desk / "llm-training-puzzles"
        with urllib.request.urlopen(f"{address}/api/contents?token={known['token']}") as answer:
            assert sorted(one["name"] for one in json.load(answer)["content"]) == SHIPPED
        with urllib.request.urlopen(f"{address}/lab?token={known['token']}") as answer:
            assert "JupyterLab" in answer.read().decode()
        before = {path.name: path.stat().st_mtime_ns for path in (desk / "llm-training-puzzles").iterdir()}
        second = labs.once(desk)
        assert second.returncode == 0, second.stderr
        assert "JupyterLab is open on llm-training-puzzles already: http" in second.stdout
        assert {path.name: path.stat().st_mtime_ns for path in (desk / "llm-training-puzzles").iterdir()} == before
        assert len([*runtime.glob("jpserver-*.json")]) == 1
    finally:
        end(first)


# -- what may go wrong -------------------------------------------------------------------------------------------


APART = """
import fcntl, json, os, signal, socket, struct, subprocess, sys, time, urllib.request
from pathlib import Path

with socket.socket() as any_socket:  # switch the loopback interface on
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))
server = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    for _ in range(240):
        assert server.poll() is None
        for written in Path(sys.argv[1]).glob("jpserver-*.json"):
            known = json.loads(written.read_text() or "{}")
            try:
                address = f"http://127.0.0.1:{known['port']}/lab?token={known['token']}"
                print("served", "JupyterLab" in urllib.request.urlopen(address).read().decode())
                sys.exit()
            except (OSError, KeyError):
                pass
        time.sleep(0.25)
finally:
    server.send_signal(signal.SIGTERM)
    server.wait(60)
"""


def needs(*command: str) -> None:
    """Skip where a namespace of one's own is not to be had."""
    if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"NOT TRIED: `{' '.join(command)}` does not work on this machine")


@pytest.mark.slow
def test_without_a_network_it_opens_all_the_same(labs: Labs, desk: Path) -> None:
    (desk / "random.py").unlink()
    needs("unshare", "-rn", "true")
    runtime = labs.environment["JUPYTER_RUNTIME_DIR"]
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, "-I", "-c", APART, runtime, *labs.command("mine")],
        cwd=desk, env=labs.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "served True\n", done.stderr


def test_a_folder_that_cannot_be_written_to(installed: Installed, desk: Path) -> None:
    needs("unshare", "-rm", "true")
    closed = 'mount --bind . . && mount -o remount,bind,ro . && cd "$PWD" && exec "$@"'
    for folder in ("mine", "."):
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", closed, "sh", installed.program("llm-training-puzzles"), "lab", folder],
            cwd=desk, env=installed.environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        assert f"your notebooks cannot be written to {folder}: Read-only file system. Name a folder" in done.stderr
    assert sorted(path.name for path in desk.iterdir()) == sorted([*FOREIGN, "solved.py"])


@pytest.mark.parametrize(
    ("there", "says"),
    [
        ({"a.ipynb": '{"cells": [{"source": "from lib import *"}]}'}, "has notebooks of something else (a.ipynb)"),
        (
            {f"{name}.ipynb": '{"cells": [1]}' for name in ("a", "b", "c", "index")},
            "(a.ipynb, b.ipynb, c.ipynb, ...), so nothing is put there",
        ),
        ({"lib/specs.json": "{}"}, "is a clone of the project: run make lab in it"),
    ],
)
def test_a_folder_of_other_work(
    there: dict[str, str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, written in there.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(written, encoding="utf-8")
    assert front.main(["lab", str(tmp_path), "--copy-only"]) == 2
    said = capsys.readouterr().err
    assert says in said and "lab FOLDER" in said
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == {*there}


def test_a_file_where_a_folder_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("my work", encoding="utf-8")
    assert front.main(["lab", str(tmp_path / "mine")]) == 2
    assert "is a file, and stays as it is" in capsys.readouterr().err


def test_ones_own_notebooks_may_lie_among_the_puzzles(tmp_path: Path) -> None:
    assert front.main(["lab", str(tmp_path), "--copy-only"]) == 0
    (tmp_path / "my own.ipynb").write_text('{"cells": [1]}', encoding="utf-8")
    (tmp_path / "p04_fsdp.ipynb").write_text("half a notebo", encoding="utf-8")
    assert front.main(["lab", str(tmp_path), "--copy-only"]) == 0
    assert (tmp_path / "p04_fsdp.ipynb").read_text(encoding="utf-8") == "half a notebo"


@pytest.mark.parametrize(("version", "says"), [("3.6.8", "3.6.8 is too old: 4.4"), ("4.3.9", "too old"), ("4.4.0", "")])
def test_an_old_jupyterlab(
    version: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[Path] = []
    monkeypatch.setattr(server, "version", lambda name: version)
    monkeypatch.setattr(front, "open_lab", lambda folder, options, command: opened.append(folder) or 0)
    assert front.main(["lab", str(tmp_path / "mine")]) == (2 if says else 0)
    assert says in capsys.readouterr().err
    assert (tmp_path / "mine").exists() == bool(opened) == (not says)


def test_options_of_jupyterlab_are_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(front, "open_lab", lambda folder, options, command: opened.append((folder.name, options)) or 0)
    monkeypatch.setattr(front, "folder_for_copies", lambda: tmp_path / "usual")
    assert front.main(["lab", "--port", "9000"]) == 0
    assert front.main(["lab", str(tmp_path / "other"), "--no-browser", "--port", "9000"]) == 0
    assert opened == [("usual", ["--port", "9000"]), ("other", ["--no-browser", "--port", "9000"])]


@pytest.mark.parametrize(("root", "options", "says"), [(True, [], "--allow-root"), (False, [], "--port 9000")])
def test_why_jupyterlab_has_not_started(
    root: bool, options: list[str], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """JupyterLab refuses to run as root, and says so; otherwise a port is taken."""

    def refuse(*_: object, **__: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr("jupyterlab.labapp.LabApp.launch_instance", refuse)
    monkeypatch.setattr(server, "is_root", lambda: root)
    with pytest.raises(server.NotDone) as said:
        server.open_lab(tmp_path, options, "llm-training-puzzles lab")
    assert str(said.value).endswith(f"llm-training-puzzles lab {says}"), said.value
