"""Workers: how they are kept apart, what happens where that is refused, what they are told."""

import contextlib
import ctypes
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lib import PuzzleError
from lib.basics.folders import LIB
from lib.course import outlines
from lib.course.specs import puzzles
from lib.machine.outcome import Outcome
from lib.referee import examiner, loaded, sandbox
from lib.referee import referee as module
from lib.referee.examiner import Examiner
from lib.referee.fork_server import END
from lib.referee.loaded import Loaded, Missing, Submission
from lib.referee.namespaces import landlock
from lib.referee.referee import Referee
from lib.referee.sandbox import MECHANISMS, Worker, available, view
from lib.referee.seccomp import CALLS
from tests.corpus import HEAD, function

BASIC = puzzles()["basic"]
HONEST = HEAD + function("basic")
CUT_OFF = [name for name in MECHANISMS if name != "process"]


def run(judge: Referee, submission: Submission, name: str = "basic", printed: list[str] | None = None) -> Outcome:
    """The outcome of one run, in a worker of its own."""
    with closing(Loaded(submission, judge)) as code:
        return code.run(name, puzzles()[name].size, [] if printed is None else printed)


def printed_by(code: str, mechanism: str, folder: str | None = None) -> str:
    """What a program prints that looks around, of a file in that folder."""
    printed: list[str] = []
    lines = "\n".join("    " + line for line in code.strip().split("\n"))
    source = f"{HEAD}def basic(model):\n{lines}\n    model.load_weights(0)\n"
    run(Referee(20.0, [mechanism]), Submission("x.py", source, folder), printed=printed)
    return printed[0].replace("[rank 0, tick 0] ", "")


@cache
def missing(mechanism: str) -> str:
    """Why a way to keep workers apart cannot be tried on this machine; nothing where it can."""
    if mechanism not in available():
        linux = "it is not installed. To have it: sudo apt install bubblewrap"
        return f"NOT TRIED WITH {mechanism.upper()}: {linux if sys.platform == 'linux' else 'only Linux has it'}"
    try:
        run(Referee(20.0, [mechanism]), Submission("x.py", HONEST))
    except RuntimeError as error:
        return f"NOT TRIED WITH {mechanism.upper()}: this machine refuses it ({str(error).splitlines()[-1]})"
    return ""


def tried(mechanism: str) -> str:
    """The way, where it works; elsewhere the test is skipped, and says so."""
    if why := missing(mechanism):
        pytest.skip(why)
    return mechanism


@pytest.fixture(params=list(MECHANISMS))
def mechanism(request: pytest.FixtureRequest) -> str:
    """Each way in turn."""
    return tried(request.param)


@pytest.fixture(params=CUT_OFF)
def apart(request: pytest.FixtureRequest) -> str:
    """The ways that cut a worker off."""
    return tried(request.param)


@pytest.mark.process
def test_one_way_works_everywhere() -> None:
    assert not missing(available()[-1])


def test_a_run_is_the_same_in_each(mechanism: str) -> None:
    outcome = run(Referee(20.0, [mechanism]), Submission("x.py", HONEST))
    assert (outcome.time, outcome.memory) == (17.0, 2621440)


def test_no_descriptor_but_the_line(mechanism: str) -> None:
    found = printed_by("print([n for n in range(3, 256) if os.path.exists(f'/proc/self/fd/{n}')])", mechanism)
    assert len(json.loads(found)) <= 2  # the line, and the folder that is being listed


def test_no_environment_but_ours(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    found = json.loads(printed_by("print(json.dumps(sorted(os.environ)))", mechanism))
    assert {"SECRET_TOKEN", "USER", "PYTHONPATH"}.isdisjoint(found) and "TMPDIR" in found


def test_it_is_told_nothing_of_targets(mechanism: str) -> None:
    told = """
seen = set()
frame = sys._getframe()
while frame:
    for name, value in frame.f_locals.items():
        if isinstance(value, dict) and {"timeout", "mechanism"} & set(value):
            seen |= set(value)
    frame = frame.f_back
print(json.dumps(sorted(seen)))
"""
    keys = ["alone", "cost", "file", "folder", "hidden", "home", "mechanism", "name", "room", "root", "size"]
    keys += ["tasks", "text", "timeout", "view"]
    assert json.loads(printed_by(told, mechanism)) == keys


def test_its_own_folder_is_empty_and_can_be_written_to(mechanism: str) -> None:
    code = "print(os.listdir(os.environ['TMPDIR']))\nopen(os.path.join(os.environ['TMPDIR'], 'x'), 'w').write('y')"
    assert printed_by(code, mechanism) == "[]\n"


def test_a_file_from_below_the_systems_temporary_folder_has_an_empty_one(mechanism: str) -> None:
    code = "import tempfile\nfound = tempfile.gettempdir()\nprint(os.listdir(found), os.getcwd() == found)\n"
    code += "tempfile.TemporaryFile().write(b'x')"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        assert printed_by(code, mechanism, folder) == "[] True\n"


@pytest.fixture
def sociable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers may start processes, as where the system cannot refuse that."""
    monkeypatch.setattr(sandbox, "ALONE", False)


@pytest.mark.skipif(
    os.uname().machine not in CALLS, reason="seccomp's numbers of system calls are not known for this kind of processor"
)
def test_a_worker_is_one_process_whose_limits_hold_for_all_it_does(mechanism: str) -> None:
    """It starts no other, by no call, signals no other, and reaches into none. Threads, and signals to itself, work."""
    code = """
libc = ctypes.CDLL(None, use_errno=True)
def tries(act):
    try:
        return act()
    except OSError as error:
        return error.errno
class Arguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "pidfd", "child", "parent", "exit_signal", "a", "b", "c")]
print(libc.fork(), libc.vfork(), libc.syscall(57 if os.uname().machine == "x86_64" else 220, 17, 0, 0, 0, 0))
print(libc.syscall(435, ctypes.byref(Arguments(exit_signal=17)), 64), ctypes.get_errno())
print(libc.execve(b"/bin/true", None, None), libc.shmget(7, 4096, 0o1666), libc.ptrace(0, 0, 0, 0))
print(tries(lambda: os.kill(os.getppid() or 2, 0)), tries(lambda: os.kill(-1, 0)), tries(lambda: os.kill(0, 0)))
signal.signal(signal.SIGUSR1, lambda *_: print("heard"))
os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
thread = __import__("threading").Thread(target=print, args=["threads work"])
thread.start()
thread.join()
"""
    said = printed_by(code, mechanism).splitlines()
    assert said == ["-1 -1 -1", f"-1 {errno.ENOSYS}", "-1 -1 -1", "1 1 1", "heard", "heard", "threads work"]


def test_a_user_with_many_processes_may_have_threads(mechanism: str) -> None:
    """The system counts all that a user has, the grader's own threads among them."""
    stop = threading.Event()
    others = [threading.Thread(target=stop.wait) for _ in range(sandbox.MORE_TASKS)]
    for other in others:
        other.start()
    try:
        while sandbox.idle:
            sandbox.idle.pop().close()  # another one counts them
        code = "import resource\nprint(resource.getrlimit(resource.RLIMIT_NPROC)[0])"
        assert int(printed_by(code, mechanism)) >= 2 * sandbox.MORE_TASKS
    finally:
        stop.set()


def test_a_fork_server_that_was_ended_is_replaced(mechanism: str) -> None:
    assert printed_by("print(1)", mechanism) == "1\n"
    for server in sandbox.idle:
        server.process.kill()
    assert printed_by("print(2)", mechanism) == "2\n"


def test_workers_share_nothing_but_what_was_there_before(mechanism: str) -> None:
    """A fork server is the same after any number of runs: what one changes the next does not see."""
    code = """
import lib, random
print(hasattr(lib, "mark"), "mark" in os.environ, os.path.exists("mark"))
print(len(sys.path), signal.getsignal(signal.SIGUSR1))
lib.mark = os.environ["mark"] = "x"
open("mark", "w").close()
sys.path.append("x")
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
"""
    first, second = printed_by(code, mechanism), printed_by(code, mechanism)
    assert first == second and first.startswith("False False False")
    numbers = {printed_by("import random\nprint(random.random())", mechanism) for _ in range(3)}
    assert len(numbers) == 3


def test_limits_hold(mechanism: str) -> None:
    code = """
import resource
for name in ("AS", "FSIZE", "NOFILE", "CORE", "NPROC", "CPU"):
    print(resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[name != "CPU"])
"""
    *fixed, tasks, seconds = map(int, printed_by(code, mechanism).split())
    assert fixed == [2 << 30, 1 << 20, 64, 0] and tasks > sandbox.MORE_TASKS and 20 <= seconds <= 30


def test_a_worker_that_is_cut_off_has_no_rights_and_little_room(apart: str, sociable: None) -> None:
    """Nor has a program that it starts, as where the system does not keep it from that."""
    code = """
print([line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapPrm", "CapEff", "NoNewPrivs"))])
found = os.statvfs(os.environ["TMPDIR"])
print(found.f_blocks * found.f_frsize)
if not ctypes.CDLL(None).fork():
    words = [b"grep", b"-c", b"^CapEff:.0*$", b"/proc/self/status"]
    ctypes.CDLL(None).execve(b"/bin/grep", (ctypes.c_char_p * 5)(*words), (ctypes.c_char_p * 1)())
os.wait()
"""
    zero = "0" * 16
    assert sorted(printed_by(code, apart).splitlines()) == sorted([f"{[zero, zero, '1']}", str(sandbox.ROOM), "1"])


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc, and holds to a limit of memory")
def test_who_judges_has_so_much_memory_at_most() -> None:
    with closing(Examiner(20.0, [])) as judge:
        judge.ask(Submission("x.py", HONEST))
        assert judge.process is not None and judge.line.poll(sandbox.PATIENCE)
        limits = Path(f"/proc/{judge.process.pid}/limits").read_text()
    assert re.search(rf"Max address space +{examiner.MEMORY} ", limits)


def test_cut_off_from_files_network_and_processes(apart: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    code = f"""
def tries(act):
    try:
        return repr(act())
    except (OSError, PuzzleError) as error:
        return type(error).__name__
print(os.path.exists({str(tmp_path / "secret")!r}), os.path.exists({str(LIB.parent / "solutions")!r}))
paths = ['/x', '/usr/x', {str(LIB / "x")!r}, sys.prefix + '/x']
paths += ['/proc/sys/vm/swappiness', '/proc/self/oom_score_adj']
print([tries(lambda path=path: open(path, 'w')) for path in paths])
print(os.path.exists('/etc/passwd'), os.path.exists('/etc/hostname'), os.path.exists('/var'))
libc = ctypes.CDLL(None, use_errno=True)
number = libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
address = (ctypes.c_char * 16)(2, 0, 0, 22, 127, 0, 0, 1)
print(libc.connect(number, address, 16), len([name for name in os.listdir('/proc') if name.isdigit()]) < 5)
print(libc.unshare(0x20000), libc.mount(b'none', b'/', None, 0x20 | 0x1000, None))
"""
    lines = printed_by(code, apart).splitlines()
    assert lines[0] == "False False"
    assert "Text" not in lines[1] and lines[1].count("Error") == 6
    assert lines[2] == "False False False"
    assert lines[3] == "-1 True"
    assert lines[4] == "-1 -1"


SECRET = """
import lib
import lib.course.outlines as known
from lib.course.specs import find, kept
from pathlib import Path
secret = Path(lib.__path__[0], known.PROGRAMS)
libc = ctypes.CDLL(None, use_errno=True)
"""
TO_READ = {
    "opened": "secret.read_text()",
    "by another kind of name": "open(os.fsencode(secret)).read()",
    "by the system": "libc.open(os.fsencode(secret), 0) >= 0",
    "below its folder": "libc.openat(libc.open(os.fsencode(secret.parent), 0), os.fsencode(secret.name), 0) >= 0",
    "in its folder": "os.chdir(secret.parent) or open(secret.name).read()",
    "by a link": "os.symlink(secret, 'x') or open('x').read()",
    "by walking": "any('\"star\":{' in one.read_text() for one in Path(lib.__path__[0]).rglob('*.json'))",
    "by what lib reads": "kept(known.PROGRAMS)",
    "by what lib tells": "known.programs()",
    "the star's outline": "known.outline(find('basic'), 'star')",
}


def is_read(way: str, mechanism: str) -> bool:
    """Whether a program reads what is secret in this way."""
    code = f"{SECRET}\ntry:\n    print(bool({TO_READ[way]}))\nexcept OSError:\n    print(False)"
    try:
        return printed_by(code, mechanism) != "False\n"
    except PuzzleError as error:
        return not re.search("not to be read|is not here", str(error))


def test_what_is_secret_is_not_read(mechanism: str) -> None:
    """Neither by Python nor past it. Where nothing keeps a process from files, only Python refuses."""
    assert all(row["star"]["outline"] for row in outlines.programs().values() if row)
    ways = [way for way in TO_READ if "libc" not in TO_READ[way] or mechanism != "process" or landlock()]
    assert [way for way in ways if is_read(way, mechanism)] == []


def test_what_is_public_is_read(mechanism: str) -> None:
    ways = "known.half_schedule, known.silhouette, known.outline"
    assert printed_by(f"{SECRET}\nprint(all(way(find('basic')) for way in ({ways})))", mechanism) == "True\n"


@pytest.mark.process
@pytest.mark.parametrize("command", ["false", "/nowhere/bwrap"], ids=["refused", "not there"])
def test_the_next_way_is_taken_where_one_does_not_start(
    command: str, monkeypatch: pytest.MonkeyPatch, fresh: None
) -> None:
    monkeypatch.setattr(Worker, "_bubblewrap", lambda worker: [command])
    judge = Referee(20.0, ["bubblewrap", "process"])
    assert run(judge, Submission("x.py", HONEST)).time == 17.0
    assert judge.mechanisms == ["process"] and "NOT cut off" in judge.isolation()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No way has been tried yet."""
    for known in ("decided", "exposed"):
        monkeypatch.setattr(module, known, {})


def test_the_way_is_decided_before_anything_of_a_learner_is_seen(
    monkeypatch: pytest.MonkeyPatch, fresh: None, apart: str, tmp_path: Path
) -> None:
    seen = []

    def noted(mechanism: str, folder: str | None, secret: tuple[str, ...]) -> Worker:
        seen.append(folder)
        return Worker(mechanism, folder, secret)

    monkeypatch.setattr(module, "Worker", noted)
    for _ in range(2):
        judge = Referee(20.0, [apart, "process"])
        assert judge.isolation() == MECHANISMS[apart]
        run(judge, Submission("x.py", HONEST, str(tmp_path)))
    assert len(seen) == 3 and seen[0] != str(tmp_path) == seen[1] == seen[2]


def test_a_passing_trouble_does_not_weaken(monkeypatch: pytest.MonkeyPatch, fresh: None, apart: str) -> None:
    troubles = iter([True, True, False, True])
    begin = Worker.begin

    def sometimes(self: Worker, *rest: Any) -> bool:
        return not next(troubles, False) and begin(self, *rest)

    monkeypatch.setattr(Worker, "begin", sometimes)
    judge = Referee(20.0, [apart, "process"])
    assert run(judge, Submission("x.py", HONEST)).time == 17.0
    assert judge.mechanisms == [apart] and next(troubles, None) is None


def test_a_lasting_trouble_is_the_graders_and_does_not_weaken(
    monkeypatch: pytest.MonkeyPatch, fresh: None, apart: str
) -> None:
    judge = Referee(20.0, [apart, "process"])
    assert judge.isolation() == MECHANISMS[apart]
    monkeypatch.setattr(Worker, "begin", lambda *rest: False)
    for folder in (None, "/usr"):
        with pytest.raises(RuntimeError, match="no worker could be started"):
            run(judge, Submission("x.py", HONEST, folder))
    assert judge.isolation() == MECHANISMS[apart]


def test_a_folder_that_the_sandbox_cannot_hold_fails_and_is_not_run(
    apart: str, fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # which is undone at the end
    folder = str(tmp_path)
    while left := 4089 - len(folder):
        name = "d" * (left - 1 if left <= 200 else min(200, left - 101))
        os.mkdir(name)
        os.chdir(name)
        folder += "/" + name
    marker = tmp_path / "marker"
    source = HEAD + f"def basic(model):\n    ctypes.CDLL(None).open({os.fsencode(marker)!r}, 0o101, 0o644)\n"
    judge = Referee(20.0, [apart, "process"])
    with pytest.raises(PuzzleError) as failed:
        run(judge, Submission("x.py", source, folder))
    assert not marker.exists() and judge.isolation() == MECHANISMS[apart]
    assert "cannot be started in the sandbox" in str(failed.value) and len(str(failed.value)) < 1000
    assert "File name too long" in str(failed.value)


def test_a_folder_whose_name_is_no_text(mechanism: str, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff \xc3\xa9")
    folder.mkdir()
    (folder / "helper.py").write_text(HONEST)
    judge = Referee(20.0, list(dict.fromkeys([mechanism, "process"])))
    submission = Submission("x.py", "import helper\n\nbasic = helper.basic\n", str(folder))
    assert run(judge, submission).time == 17.0
    assert judge.isolation() == MECHANISMS[mechanism]


def test_shared_memory_is_not_shared_with_others(apart: str, sociable: None) -> None:
    code = """
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
place = libc.shmat(libc.shmget(0x5EED5EED, 4096, 0o1666), None, 0)
print(ctypes.string_at(place, 1) if place else None)
ctypes.memset(place, 65, 1)
"""
    try:
        assert [printed_by(code, apart).strip() for _ in range(2)] == ["b'\\x00'"] * 2
        assert str(0x5EED5EED) not in Path("/proc/sysvipc/shm").read_text()
    finally:
        libc = ctypes.CDLL(None)
        if (number := libc.shmget(0x5EED5EED, 0, 0)) >= 0:
            libc.shmctl(number, 0, None)


@pytest.mark.process
def test_where_nothing_works_it_is_the_graders_fault(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    monkeypatch.setattr(Worker, "_bubblewrap", lambda worker: ["sh", "-c", "echo no such luck; exit 1"])
    with pytest.raises(RuntimeError, match="no worker could be started:\nno such luck"):
        run(Referee(20.0, ["bubblewrap"]), Submission("x.py", HONEST))


@pytest.mark.process
def test_a_worker_that_does_not_hear_its_task_to_the_end_is_not_the_graders_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = Worker.begin

    def ends(self: Worker, sought: list[str]) -> bool:
        ready = begin(self, sought)
        self.server.say(END)
        self.status = self.server.hear(sandbox.PATIENCE)
        return ready

    monkeypatch.setattr(Worker, "begin", ends)
    with pytest.raises(PuzzleError, match="the process ended before"):
        run(Referee(20.0), Submission("x.py", HONEST + "#" * (1 << 20)))


@pytest.mark.process
def test_no_function_of_that_name() -> None:
    with pytest.raises(Missing, match=r"there is no function basic: x\.py defines my_basic"):
        run(Referee(20.0), Submission("x.py", "def my_basic(model): pass\n"))
    with pytest.raises(PuzzleError, match=r"there is no function basic(.|\n)*x.py, line 1: expected"):
        run(Referee(20.0), Submission("x.py", "def basic(model) 1\n"))
    with pytest.raises(PuzzleError, match=r"line 1: NameError: name 'Model' is not defined: write from lib import"):
        run(Referee(20.0), Submission("x.py", "def basic(model, of=Model): pass\n"))
    with pytest.raises(PuzzleError, match=r"name 'RingCost' is not defined: write from lib import RingCost above it\n"):
        run(Referee(20.0), Submission("x.py", "def basic(model): return RingCost()\n"))
    with pytest.raises(PuzzleError, match=r"name 'Modul' is not defined\n"):
        run(Referee(20.0), Submission("x.py", "def basic(model): return Modul\n"))


def test_of_the_projects_own_folder_only_scripts_are_seen() -> None:
    seen = [path for path, shown in view(str(LIB.parent)) if shown]
    assert str(LIB.parent) not in seen and str(LIB) in seen
    assert not any("solutions" in path or ".git" in path for path in seen)


BELOW = """
import sys
from contextlib import closing
from pathlib import Path
from lib.course.specs import puzzles
from lib.referee import sandbox
from lib.referee.loaded import Loaded, Submission
from lib.referee.referee import Referee

root, mechanism, masked = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
sandbox.SYSTEM += (str(root.parent),)  # as /usr is around a project in /usr/src/app
if masked == "no":
    sandbox.view = lambda folder, secret=(), view=sandbox.view: [part for part in view(folder, secret) if part[1]]
own, other = root / "class" / "alice", root / "class" / "bob" / "basic.py"
paths = [root / "solutions" / "p00_basic.py", other, own / "helper.py", sandbox.LIB / "__init__.py"]
source = f'''
import ctypes, os
def basic(model):
    for path in {[str(path) for path in paths]!r}:
        print(os.path.basename(path), ctypes.CDLL(None).open(path.encode(), 0) >= 0)
    model.load_weights(0)
'''
judge, said = Referee(20.0, [mechanism], [str(root / "class")]), []
with closing(Loaded(Submission("x.py", source, str(own)), judge)) as code:
    code.run("basic", puzzles()["basic"].size, said)
print(said[0].replace("[rank 0, tick 0] ", "") + judge.isolation())
"""


@pytest.mark.parametrize("masked", ["yes", "no"])
def test_wherever_the_project_lies_solutions_and_other_students_are_out_of_view(
    apart: str, masked: str, tmp_path: Path
) -> None:
    """Where what a worker sees lies around them, they are masked; and where that fails, the report says so."""
    root = tmp_path / "around" / "project"
    for name in ("lib", "solutions"):
        shutil.copytree(LIB.parent / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for student in ("alice", "bob"):
        (root / "class" / student).mkdir(parents=True)
        for name in ("basic.py", "helper.py"):
            (root / "class" / student / name).write_text("x = 1\n")
    done = subprocess.run(
        [sys.executable, "-c", BELOW, str(root), apart, masked],
        cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = {line.split()[0]: line.split()[1] == "True" for line in done.stdout.splitlines()[:4]}
    hidden = masked == "yes"
    assert seen == {"p00_basic.py": not hidden, "basic.py": not hidden, "helper.py": True, "__init__.py": True}
    said = done.stdout.splitlines()[-1]
    assert said.startswith(MECHANISMS[apart]) and ("BUT THIS CAN BE READ" in said) == (not hidden)
    assert hidden or (str(root / "solutions") in said and str(root / "class" / "bob") in said)


def test_a_full_disk_is_the_graders_fault_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(OSError, match="No space left"):
        run(module.Referee(20.0), Submission("x.py", HONEST))


NASTY = """
def keep(act, *arguments):
    with contextlib.suppress(OSError):
        return act(*arguments)

import fcntl
print("hello")
os.chdir(os.environ["TMPDIR"])
os.mkdir("closed")
open("closed/x", "w").close()
os.chmod("closed", 0)
for number in range(1200):
    os.mkdir("d")
    os.chdir("d")
os.chdir(os.environ["TMPDIR"])
for flags in (os.O_APPEND, os.O_DIRECT, os.O_NONBLOCK):
    keep(fcntl.fcntl, 1, fcntl.F_SETFL, flags)
os.lseek(1, 1 << 30, os.SEEK_SET)
"""


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this platform has no O_DIRECT")
def test_what_a_program_does_to_its_output_and_its_folder_hurts_nobody(
    mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert printed_by(NASTY, mechanism) == "hello\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.process
def test_what_cannot_be_read_is_not_printed_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*rest: Any) -> bytes:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "pread", broken)
    printed: list[str] = []
    assert run(Referee(20.0), Submission("x.py", HONEST), printed=printed).time == 17.0
    assert printed == [""] and os.listdir(tmp_path) == []


LASTS = 20
"""Seconds for which programs without end go on, if nobody ends them. Then they say that they were waited for."""
OUTLIVING = {
    "deaf to its parent's death": """
libc.prctl(1, 0, 0, 0, 0)
libc.setsid()
time.sleep(LASTS)
say()""",
    "a child without a mark": """
if libc.fork() == 0:
    libc.setsid()
    command = b'sleep 20.123456; echo waited for'
    libc.execve(b'/bin/sh', (ctypes.c_char_p * 4)(b'sh', b'-c', command), (ctypes.c_char_p * 1)())""",
    "children without end": """
if libc.fork() == 0:
    end = time.monotonic() + LASTS
    while libc.fork() <= 0 and time.monotonic() < end:
        libc.setsid()
    time.monotonic() < end or say()
    os._exit(0)""",
    "its group ended": """
if libc.fork() == 0:
    libc.setsid()
    time.sleep(LASTS)
    say()
time.sleep(0.2)
libc.kill(0, 9)
time.sleep(LASTS)
say()""",
    "what waits for it ended": """
libc.prctl(1, 0, 0, 0, 0)
libc.setsid()
libc.kill(os.getppid(), 9)
time.sleep(LASTS)
say()""",
    "its group stopped": """
libc.kill(0, 19)
time.sleep(LASTS)
say()""",
}


def outliving() -> list[str]:
    """Processes of those programs that live, by the name that they gave themselves, or were given."""
    found = []
    numbers = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    end = time.monotonic() + 0.3
    while numbers:
        for entry in (Path("/proc", str(number)) for number in numbers):
            with contextlib.suppress(OSError):
                facts, command = (entry / "stat").read_text(), (entry / "cmdline").read_text()
                if ("(outliving)" in facts or "20.123456" in command) and ") Z " not in facts:
                    found.append(facts)
        newest = int(Path("/proc/loadavg").read_text().split()[-1])  # children without end are ahead of a list of all
        numbers = [*range(newest - 5, newest + 3)] if time.monotonic() < end else []
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="it counts processes in /proc, which only Linux has")
@pytest.mark.parametrize("name", OUTLIVING)
def test_nothing_outlives_its_run(mechanism: str, name: str, sociable: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "GRACE", 0.5)  # none of them will ever say that it was late
    lines = ["signal.setitimer(signal.ITIMER_REAL, 0)", "libc = ctypes.CDLL(None)", "libc.prctl(15, b'outliving')"]
    lines += ["say = lambda: os.write(1, b'waited for')"]
    lines += [*OUTLIVING[name].strip().split("\n"), "time.sleep(0.3)"]
    source = f"{HEAD}LASTS = {LASTS}\n\ndef basic(model):\n" + "".join(f"    {line}\n" for line in lines)
    printed: list[str] = []
    with contextlib.suppress(PuzzleError):
        run(Referee(0.5, [mechanism]), Submission("x.py", source), printed=printed)
    assert outliving() == [] and printed == [""]  # ended, not waited for


class Idle:
    """A worker that does nothing."""

    def printed_bytes(self) -> int:
        return 0

    def printed(self, start: int) -> str:
        return ""

    def close(self) -> None:
        pass


def test_a_run_on_a_large_machine_has_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: dict[str, float] = {}

    def answers(self: Loaded, task: dict[str, Any], *_: Any, **__: Any) -> bytes:
        allowed[task.get("name", "")] = task["timeout"]
        return b'["loaded", ["basic", "compose"], ["", ""]]'

    monkeypatch.setattr(Referee, "start", lambda self, folder: Idle())
    monkeypatch.setattr(Loaded, "_answer", answers)
    for name in ("basic", "compose"):
        with pytest.raises(PuzzleError, match="no recording of a run"):
            run(Referee(10.0), Submission("x.py", ""), name)
    assert 10 <= allowed["basic"] < 10.1 and allowed["compose"] > 25
