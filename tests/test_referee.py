"""Workers: how they are kept apart, what happens where that is refused, what they are told."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from lib import PuzzleError
from lib.grading import referee as module
from lib.grading import sandbox
from lib.grading.referee import Missing, Referee, Submission
from lib.grading.sandbox import MECHANISMS, available, visible
from lib.specs import puzzles
from tests.corpus import HEAD, function

BASIC = puzzles()["basic"]
HONEST = HEAD + function("basic")


def printed_by(code: str, mechanism: str) -> str:
    """What a program prints that looks around."""
    printed: list[str] = []
    lines = "\n".join("    " + line for line in code.strip().split("\n"))
    source = f"{HEAD}def basic(model):\n{lines}\n    model.load_weights(0)\n"
    Referee(20.0, [mechanism]).play(Submission("x.py", source), "basic", BASIC.size, printed)
    return printed[0]


def works(mechanism: str) -> bool:
    try:
        Referee(20.0, [mechanism]).play(Submission("x.py", HONEST), "basic", BASIC.size, [])
    except RuntimeError:
        return False
    return True


@pytest.fixture(params=list(MECHANISMS))
def mechanism(request: pytest.FixtureRequest) -> str:
    """Each way in turn; where this machine refuses one, that is said."""
    if request.param not in available() or not works(request.param):
        pytest.skip(f"this machine has no {request.param}")
    return str(request.param)


@pytest.fixture(params=["bubblewrap", "namespaces"])
def apart(request: pytest.FixtureRequest) -> str:
    """The ways that cut a worker off."""
    if request.param not in available() or not works(request.param):
        pytest.skip(f"this machine has no {request.param}")
    return str(request.param)


def test_one_way_works_everywhere() -> None:
    assert works(available()[-1])


def test_a_run_is_the_same_in_each(mechanism: str) -> None:
    outcome = Referee(20.0, [mechanism]).play(Submission("x.py", HONEST), "basic", BASIC.size, [])
    assert (outcome.time, outcome.memory) == (17.0, 2621440)


def test_no_descriptor_but_the_line(mechanism: str) -> None:
    found = printed_by("print([n for n in range(3, 256) if os.path.exists(f'/proc/self/fd/{n}')])", mechanism)
    assert len(json.loads(found)) <= 2  # the line, and the folder that is being listed


def test_no_environment_but_ours(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    found = json.loads(printed_by("print(json.dumps(sorted(os.environ)))", mechanism))
    assert {"SECRET_TOKEN", "USER", "PYTHONPATH"}.isdisjoint(found) and "TMPDIR" in found


def test_it_is_told_nothing_of_seeds_sizes_and_targets(mechanism: str) -> None:
    told = """
seen = set()
frame = sys._getframe()
while frame:
    for name, value in frame.f_locals.items():
        if isinstance(value, dict) and "timeout" in value:
            seen |= set(value)
    frame = frame.f_back
print(json.dumps(sorted(seen)))
"""
    keys = ["file", "folder", "hidden", "jail", "name", "root", "size", "text", "timeout", "visible"]
    assert json.loads(printed_by(told, mechanism)) == keys


def test_its_own_folder_is_empty_and_can_be_written_to(mechanism: str) -> None:
    code = "print(os.listdir(os.environ['TMPDIR']))\nopen(os.path.join(os.environ['TMPDIR'], 'x'), 'w').write('y')"
    seen = {*sandbox.PACKAGE.parts, *Path(sys.prefix).parts}  # those that are under /tmp themselves are seen there
    assert set(ast.literal_eval(printed_by(code, mechanism))) <= seen


def test_limits_hold(mechanism: str) -> None:
    code = """
import resource
print([resource.getrlimit(limit)[1] for limit in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)])
print(os.getsid(0) != int(open('/proc/self/stat').read().rpartition(')')[2].split()[1]))
"""
    assert printed_by(code, mechanism).startswith(f"[{2 << 30}, {1 << 20}, 64]")


def test_cut_off_from_files_network_and_processes(apart: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    code = f"""
def tries(act):
    try:
        return repr(act())
    except (OSError, PuzzleError) as error:
        return type(error).__name__
print(os.path.exists({str(tmp_path / "secret")!r}), os.path.exists({str(sandbox.PACKAGE.parent / "solutions")!r}))
paths = ['/x', '/usr/x', {str(sandbox.PACKAGE / "x")!r}, sys.prefix + '/x']
paths += ['/proc/sys/vm/swappiness', '/proc/self/oom_score_adj']
print([tries(lambda path=path: open(path, 'w')) for path in paths])
print(os.path.exists('/etc/passwd'), os.path.exists('/etc/hostname'), os.path.exists('/var'))
libc = ctypes.CDLL(None, use_errno=True)
number = libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
address = (ctypes.c_char * 16)(2, 0, 0, 22, 127, 0, 0, 1)
print(libc.connect(number, address, 16), len([name for name in os.listdir('/proc') if name.isdigit()]) < 4)
print(libc.unshare(0x20000), libc.mount(b'none', b'/', None, 0x20 | 0x1000, None))
"""
    lines = printed_by(code, apart).splitlines()
    assert lines[0] == "False False"
    assert "Text" not in lines[1] and lines[1].count("Error") == 6
    assert lines[2] == "False False False"
    assert lines[3] == "-1 True"
    assert lines[4] == "-1 -1"


def test_the_next_way_is_taken_where_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_bubblewrap", lambda folder: ["false"])
    judge = Referee(20.0, ["bubblewrap", "process"])
    assert judge.play(Submission("x.py", HONEST), "basic", BASIC.size, []).time == 17.0
    assert judge.mechanisms == ["process"] and "NOT cut off" in judge.isolation()


def test_where_nothing_works_it_is_the_graders_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_bubblewrap", lambda folder: ["sh", "-c", "echo no such luck; exit 1"])
    with pytest.raises(RuntimeError, match="no worker could be started:\nno such luck"):
        Referee(20.0, ["bubblewrap"]).play(Submission("x.py", HONEST), "basic", BASIC.size, [])


def test_no_function_of_that_name() -> None:
    with pytest.raises(Missing):
        Referee(20.0).play(Submission("x.py", "x = 1\n"), "basic", BASIC.size, [])
    with pytest.raises(PuzzleError, match=r"there is no function basic(.|\n)*x.py, line 1: expected"):
        Referee(20.0).play(Submission("x.py", "def basic(model) 1\n"), "basic", BASIC.size, [])


def test_of_the_projects_own_folder_only_scripts_are_seen() -> None:
    seen = visible(str(sandbox.PACKAGE.parent))
    assert str(sandbox.PACKAGE.parent) not in seen and str(sandbox.PACKAGE) in seen
    assert not any("solutions" in path or ".git" in path for path in seen)


def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Referee(20.0).play(Submission("x.py", HONEST), "basic", BASIC.size, [])
    with pytest.raises(PuzzleError):
        Referee(0.5).play(Submission("x.py", "def basic(model):\n    while True: pass\n"), "basic", BASIC.size, [])
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_the_graders_fault_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(OSError, match="No space left"):
        module.Referee(20.0).play(Submission("x.py", HONEST), "basic", BASIC.size, [])
