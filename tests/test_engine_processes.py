"""One process a rank: the same logs, right numbers, and a message for whatever goes wrong."""

import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lib import Deadlock, Model, PuzzleError, run
from lib.record.events import Event
from solutions.build.sources.files import ROOT
from tests.corpus import function
from tests.drawing_events import sharded
from tests.kernels import complaints, in_a_kernel, text
from tests.marks import MISSING, needs_processes
from tests.programs import layers_of, solutions
from tests.slow import EVERYTHING
from tests.test_hosts import zero_offload

FEWER: dict[str, dict[str, Any]] = {
    "buckets": {"ranks": 4, "layers": 5, "batches": 4, "node_size": 2},
    "hierarchical": {"ranks": 4, "layers": 3, "batches": 4, "mesh": {"replica": 2, "shard": 2}, "node_size": 2},
    "hpz": {"ranks": 4, "layers": 3, "batches": 4, "mesh": {"replica": 2, "shard": 2}, "node_size": 2},
}
"""Sizes in place of those of 16 ranks, which take ten times as long as 4: each has a connection to every other."""
SOLUTIONS = {spec["name"]: (fn, FEWER.get(spec["name"], spec["size"])) for fn, spec in solutions(small=True)}
PACED = ("ddp", "breadth_first", "zero_bubble", "buckets", "hierarchical", "offload")
"""Collectives, messages, both, several tensors in one call, axes of a mesh, hosts: where operations take their time, a
run takes seconds."""
ALWAYS = (*PACED, "fsdp", "sequence_parallel", "lora", "checkpointing", "token_mean")
"""Between them they use all that moves tensors. The others are tried where there is time."""
NAMES = [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.slow) for name in SOLUTIONS]
pytestmark = [pytest.mark.process, needs_processes]


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No process and no file outlives the runs."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield
    if not MISSING:
        from lib.engines.processes import ForkServer

        server = ForkServer.get()
        assert children_of(os.getpid(), "lib.engines.distributed.fork_server") == 1
        assert children_of(server.process.pid, "") == 0
        server.end()
    assert list(folder.iterdir()) == []


def children_of(pid: int, what: str) -> int:
    found = subprocess.run(["ps", "-ww", "-eo", "ppid,args"], capture_output=True, text=True, check=True).stdout
    return sum(line.split()[0] == str(pid) and what in line for line in found.splitlines()[1:])


def fork_servers(parent: int | None = None) -> set[int]:
    """All fork_servers that there are, also those of other tests that run now, or those of one parent."""
    found = subprocess.run(["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in found.splitlines()[1:]]
    return {
        int(pid)
        for pid, above, what in lines
        if "-m lib.engines.distributed.fork_server" in what and parent in (None, int(above))
    }


def apart(fn: Callable[..., Any], ranks: int = 4, layers: int = 2, batches: int = 4, **more: Any) -> Any:
    return run(fn, ranks, layers, batches, engine="processes", **{"timeout": 60.0, **more})


def bare(events: tuple[Event, ...]) -> list[Event]:
    """Events without the names of their meetings, which may be counted differently."""
    return [event._replace(op=None) for event in events]


# -- what is right ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_solution_agrees_with_torch_and_with_the_simulator_and_is_measured_by_one_clock(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fn, size = SOLUTIONS[name]
    done = apart(fn, **size, layer=layers_of(fn, size)[0], pace=0.003 if name in PACED else 0.0)
    done.check()
    assert f"Correct! With real tensors (processes, {layers_of(fn, size)[0]}, float32)" in capsys.readouterr().out
    assert done.agreement.relative <= 1e-4 and done.agreement.spread == 0
    simulated = run(fn, **size)
    assert bare(done.events) == bare(simulated.events)
    assert (done.time, done.memory) == (simulated.time, simulated.memory)
    equal, count = done.stored
    assert equal == count == len(done.events)
    is_by_one_clock(done)


def test_calls_under_way_and_a_picture_by_the_clock_on_the_wall() -> None:
    from drawing import compare, draw

    done = apart(sharded, layers=4, pace=0.02)
    assert done.agreement.ok and done.tick == 0.02
    measured = done.measured
    assert 0.9 < measured.time / (20 * done.time) < 30  # far more where the machine is busy
    assert [event.kind for event in measured.events] == [event.kind for event in done.events]
    assert repr(measured).endswith(" elements") and " ms, peak" in repr(measured)
    assert "measured" in draw(measured).summary and "1 tick = 20 ms" in draw(measured).summary
    beside = compare(done, measured, titles=["sharded", "on the wall"]).summary
    assert f"sharded (4 ranks, 4 layers, 4 micro-batches, 1 tick = 20 ms): time {20 * done.time:.0f} ms" in beside


def is_by_one_clock(done: Any) -> None:
    """Nothing is received before it is sent, no collective ends on a rank before it begins on another, and no event is
    missing."""
    events = done.measured.events
    measured, simulated = ([(one.rank, one.kind, one.op) for one in each] for each in (events, done.events))
    assert measured == simulated
    calls: dict[object, list[Event]] = {}
    for event in events:
        assert event.start <= event.end
        if event.op is not None:
            calls.setdefault(event.op, []).append(event)
    for members in calls.values():
        assert max(member.start for member in members) <= min(member.end for member in members) + 0.001  # rounded
        if members[0].stream == "message":
            [sent] = [member for member in members if member.rank == member.group[0]]
            [received] = [member for member in members if member.rank == member.group[1]]
            assert sent.start <= received.start and sent.start < received.end


def test_a_failed_run_is_told_of_the_lowest_rank_and_keeps_its_log() -> None:
    async def program(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        layer = {0: 0, 3: 2}.get(model.rank, 1)
        await model.allreduce(model.fake_grad(layer, []), layer)

    async def everybody(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([model.rank])
        model.forward(1, model.activations[0], model.weights[0])

    with pytest.raises(PuzzleError) as caught:
        apart(program, layers=3)
    assert caught.value.problem == "rank 0 calls allreduce(layer 0) where rank 1 calls allreduce(layer 1)"
    assert caught.value.run.failed and {event.rank for event in caught.value.run.events} == {0, 1, 2, 3}
    with pytest.raises(PuzzleError) as caught:
        apart(everybody)
    assert caught.value.place.rank == 0 and "of layer 0" in caught.value.problem
    assert len(caught.value.run.events) >= 2


def test_of_two_runs_in_threads_one_waits() -> None:
    fn, _ = SOLUTIONS["ddp"]
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(run, fn, 2, 2, 2, engine="processes", timeout=60.0) for _ in range(2)]
        assert [one.result().agreement.ok for one in runs] == [True, True]


def test_a_meter_sees_more_than_is_stored() -> None:
    fn, size = SOLUTIONS["ddp"]
    done = apart(fn, **size, meter=True)
    assert done.agreement.ok
    assert done.live.keys() == done.peak_stored.keys() == {0, 1, 2, 3}
    assert all(done.live[rank] > done.peak_stored[rank] > 0 for rank in range(4))
    assert any("numbers lived" in fact for fact in done.facts())


async def ring(model: Model) -> None:
    """All send first: what blocks where a send waits for its receiver."""
    model.weights[0], model.opt_states[0] = model.load_weights(0)
    await model.pass_to((model.rank + 1) % model.RANKS, model.weights[0])
    print("from", model.rank)
    model.weights["other"] = await model.receive()
    await model.pass_to((model.rank + 1) % model.RANKS, f"hello from {model.rank}")
    assert await model.receive() == f"hello from {(model.rank - 1) % model.RANKS}"


async def sums_by_exchange(model: Model) -> Model:
    """Everybody gets every gradient, after a word by itself. Rank 1 comes later."""
    others, grads = [rank for rank in range(model.RANKS) if rank != model.rank], model.grad_weights
    model.weights[0], model.opt_states[0] = model.load_weights(0)
    model.activations[0] = model.get_activation([model.rank])
    for _ in range(1 + (model.rank == 1)):
        model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    model.grad_activations[1] = model.loss(model.activations[1])
    own = grads[model.rank] = model.backward(0, model.activations[0], model.grad_activations[1], model.weights[0])[0]
    words = [model.receive(other) for other in others]
    calls = [model.pass_to(other, "hello") for other in others]
    came = await model.exchange([(other, own) for other in others], others)
    grads.update(zip(others, came, strict=True))
    assert [await word for word in words] == ["hello"] * len(others) == [(await call) or "hello" for call in calls]
    total = sum((grads[rank] for rank in range(1, model.RANKS)), grads[0])
    model.set_final_weight(0, model.update(0, total, model.weights[0], model.opt_states[0])[0])
    return model


@pytest.mark.parametrize("links", ["eager", "rendezvous"])
def test_the_parts_of_an_exchange_are_started_in_one_call(links: str) -> None:
    done = apart(sums_by_exchange, 3, 1, 3, links=links)
    done.check()
    for rank in range(3):
        begun = [e.start for e in done.measured.events if e.rank == rank and e.kind == "pass_to" and e.slot is not None]
        assert len(begun) == 2 and len({*begun}) == 1


def test_all_send_first_and_prints_say_whose_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    done = apart(ring, layers=1, batches=1)
    assert sorted(capsys.readouterr().out.splitlines()) == [f"[rank {n}, tick 1.2] from {n}" for n in range(4)]
    assert len(done.measured.events) == len(done.events) and not done.agreement.ok  # nothing was trained
    with pytest.raises(PuzzleError):
        done.check()


# -- what goes wrong -----------------------------------------------------------------------------------


async def gather(model: Model) -> None:
    model.weights[0], _ = model.load_weights(0, model.rank, model.RANKS)
    await model.allgather(model.weights[0], 0)


async def raises(model: Model) -> None:
    if model.rank == 2:
        raise ValueError("boom")
    await gather(model)


async def waits(model: Model) -> None:
    if model.rank == 2:
        await model.receive()
    await gather(model)


async def spins(model: Model) -> None:
    if model.rank == 1:
        while True:
            pass
    await gather(model)


async def swallows(model: Model) -> None:
    with contextlib.suppress(AssertionError):
        model.load_weights(9)
    await gather(model)


FAULTS: dict[Callable[..., Any], str] = {
    raises: r"rank 2: the function raised ValueError: boom\n  at: .*test_engine_processes.py in raises",
    waits: r"rank 2 waits for receive from anyone, since tick 0 \[line .* in waits",
    spins: r"rank 1, spins: the run did not end within 1 second",
    swallows: r"(?s)load_weights.*from 0 to 1",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_the_function_is_told_as_on_the_simulated_machine(fault: Callable[..., Any]) -> None:
    said = []
    for engine in ("processes", "simulated"):
        with pytest.raises(PuzzleError, match=FAULTS[fault]) as failed:
            run(fault, 4, 2, 4, engine=engine, timeout=1.0 if fault is spins else 60.0)
        assert isinstance(failed.value, Deadlock) == (fault is waits)
        said.append(str(failed.value))
    assert said[0] == said[1]


def test_whoever_is_killed_whenever_is_named_with_the_operation() -> None:
    chance = random.Random(7)
    fn, _ = SOLUTIONS["fsdp"]
    logs = [model.log for model in run(fn, 3, 2, 3).models]
    for _ in range(5 if EVERYTHING else 2):
        rank = chance.randrange(3)
        number = chance.randrange(1, len(logs[rank]))
        last = logs[rank][number - 1]
        what = last.kind if last.layer is None else f"{last.kind}(layer {last.layer})"
        with pytest.raises(PuzzleError) as failed:
            apart(fn, 3, 2, 3, kill=(rank, number), hidden=chance.choice([64, 256]))
        assert re.fullmatch(
            rf"rank {rank}: its process \(pid \d+\) was killed by SIGKILL \(often because the machine ran out of "
            rf"memory\); its last operation was {re.escape(what)}",
            failed.value.head,
        )
        assert re.fullmatch(r"line \d+ of p\d+_fsdp.py in \w+: .*", failed.value.line)
        partly = [event for event in failed.value.run.events if event.rank == rank]
        assert failed.value.run.failed and partly == list(logs[rank][:number])
    assert apart(fn, 3, 2, 3).agreement.ok


def when_it_starts(rank: int, act: Callable[[], object]) -> None:
    """Called by a learner's function: in the process of a rank, do something as it starts its first communication."""
    from lib.engines.distributed.links import Links

    if os.getpid() == HERE:
        return
    real = Links.start_call

    def start_call(self: Links, *arguments: Any) -> None:
        if self.rank == rank:
            act()
        real(self, *arguments)

    Links.start_call = start_call  # type: ignore[method-assign]


async def stops(model: Model) -> None:
    if model.rank == 0:
        when_it_starts(1, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    await gather(model)


async def leaves(model: Model) -> None:
    if model.rank == 0:
        when_it_starts(1, lambda: os._exit(7))
    await gather(model)


async def is_silent(model: Model) -> None:
    if model.rank == 0:
        when_it_starts(1, lambda: time.sleep(100))
    await gather(model)


async def breaks(model: Model) -> None:
    if model.rank == 0:
        when_it_starts(1, lambda: 1 / 0)
    await gather(model)


async def differs(model: Model) -> None:
    await gather(model)
    if os.getpid() != HERE:
        model.activations[0] = model.get_activation([0])


HERE = os.getpid()
REAL_FAULTS: dict[Callable[..., Any], str] = {
    stops: r"rank 1: its process \(pid \d+\) was stopped by SIGSTOP; its last operation was allgather\(layer 0\)\n"
    r"  at: +line \d+ of test_engine_processes.py in gather: await",
    leaves: r"rank 1: its process \(pid \d+\) ended with exit status 7; its last operation was allgather\(layer 0\)",
    is_silent: r"rank 1: nothing was heard of it for 2 seconds; its last operation was allgather\(layer 0\)\n"
    r"  got: +rank 0 waits in allgather\(layer 0\) \[line \d+ of .* in gather: ",
    breaks: r"rank 1: its process has failed: ZeroDivisionError: .*\n  at: +line \d+ of .* in gather: await",
    differs: r"differs: the function does not do the same in every process\n  expected: rank 0: end, from 0.3 "
    r"to 0.3, .*\n  got: +rank 0: get_activation\(layer 0\), micro-batches \[0\], .*, in the process of rank 0$",
}


@pytest.mark.parametrize("fault", REAL_FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_a_process_is_told_with_rank_and_operation(fault: Callable[..., Any]) -> None:
    with pytest.raises(PuzzleError, match=REAL_FAULTS[fault]):
        apart(fault, 2, timeout=2.0 if fault is is_silent else 60.0)


def test_a_function_that_cannot_travel_is_refused() -> None:
    held = threading.Lock()

    def program(model: Model) -> None:
        held.acquire()

    with pytest.raises(PuzzleError, match="cannot be sent to other processes"):
        apart(program)


# -- where it is used ----------------------------------------------------------------------------------


def test_functions_of_cells_and_the_stop_button(tmp_path: Path) -> None:
    cells = [
        f"import os, signal, sys, threading\nsys.path.insert(0, {str(ROOT)!r})\nfrom lib import run\nSHARDS = 4",
        "def mine(model, layer):\n    return model.load_weights(layer, model.rank, SHARDS)",
        "async def program(model):\n    model.weights[0], _ = mine(model, 0)\n"
        "    w = await model.allgather(model.weights[0], 0)\n    print(sorted(w.shards))\n"
        "run(program, 4, 1, 4, engine='processes')",
        "def long(model):\n    model.weights[0], _ = model.load_weights(0)\n"
        "    model.forward(0, model.get_activation([0]), model.weights[0])\n"
        "threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "try:\n    run(long, 4, 1, 4, engine='processes', timeout=60, pace=60)\n"
        "except KeyboardInterrupt:\n    print('stopped')",
        "run(program, 4, 1, 4, engine='processes')",
        "from lib.engines.processes import ForkServer\nprint(ForkServer.get().process.pid)",
    ]
    outputs = asyncio.run(in_a_kernel(tmp_path, cells, now=False))
    assert [complaints(cell) for cell in outputs] == [[]] * len(outputs)
    assert text(outputs[2]).count("[0]\n") == text(outputs[4]).count("[0]\n") == 4
    assert "stopped" in text(outputs[3])
    patience = time.monotonic() + 10  # the kernel has gone; its server hears of it, and goes
    its = int(text(outputs[5]))
    while its in fork_servers() and time.monotonic() < patience:
        time.sleep(0.05)
    assert its not in fork_servers()


@pytest.mark.slow
def test_at_a_shell(tmp_path: Path) -> None:
    file = ROOT / "solutions" / "p02_ddp.py"
    command = [sys.executable, "-m", "lib", "run", f"{file}:ddp", "--engine", "processes", "--dtype", "float64"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ddp on 4 ranks: time 5.6 ticks" in done.stdout and "Correct! With real tensors" in done.stdout


def under_torchrun(file: Path, function: str, ranks: int = 4, *more: str) -> subprocess.CompletedProcess[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    worker = [*torchrun, "-m", "lib", "worker", f"{file}:{function}", *more]
    return subprocess.run(worker, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_under_torchrun(right: bool, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    source = (ROOT / "solutions" / "p02_ddp.py").read_text(encoding="utf-8")
    file.write_text(source if right else source.replace("model.allreduce(grad, layer)", "model.receive()"))
    done = under_torchrun(file, "ddp")
    if right:
        assert done.returncode == 0 and "Correct! With real tensors (torchrun, mlp, float32)" in done.stdout
    else:
        assert done.returncode != 0 and done.stderr.count("deadlock: no rank can ever go on") == 1


DYING = """
async def gather(model):
    model.weights[0], _ = model.load_weights(0, model.rank, model.RANKS)
    await model.allgather(model.weights[0], 0)

async def wrong(model):
    print("nothing is trained")
"""


@pytest.mark.slow
def test_who_dies_under_torchrun_is_named_before_torchrun_says_anything(tmp_path: Path) -> None:
    """torchrun ends all ranks a tenth of a second after one has died, also the one that watches over the others."""
    (tmp_path / "mine.py").write_text(DYING)
    done = under_torchrun(tmp_path / "mine.py", "gather", 3, "--kill", "2,2")
    assert done.returncode != 0
    said = r"rank 2: its process \(pid \d+\) has ended or hung up; its last operation was allgather\(layer 0\)\n"
    found = re.search(said + r"  at: +line 4 of mine.py in gather: await model", done.stderr)
    assert found, done.stderr
    assert "Traceback" not in done.stderr[: found.start()]
    assert done.stderr.count("its process (pid") == 1


def a_worker_alone(folder: Path, function: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a worker as other starters than torchrun do, which gives Python no buffers."""
    (folder / "mine.py").write_text(DYING)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    meeting = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | meeting | more
    worker = [sys.executable, "-m", "lib", "worker", f"{folder / 'mine.py'}:{function}"]
    return subprocess.run(worker, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_what_a_worker_has_said_before_a_wrong_result_is_not_lost(tmp_path: Path) -> None:
    done = a_worker_alone(tmp_path, "wrong")
    assert done.returncode != 0 and "[rank 0, tick 0] nothing is trained\nwrong: not attempted yet" in done.stdout
    assert "wrong is not attempted yet: no operation was run" in done.stderr


@pytest.mark.slow
def test_a_rank_that_cannot_join_the_others_says_why(tmp_path: Path) -> None:
    done = a_worker_alone(tmp_path, "wrong", GLOO_SOCKET_IFNAME="none0")
    assert done.returncode != 0
    assert re.match(r"rank 0: its process cannot join the other ranks: \w+Error: .*none0", done.stderr), done.stderr


# -- around it -----------------------------------------------------------------------------------------


def script(folder: Path, body: str) -> list[str]:
    """Return the command of a program that has ``run`` and the function ``works`` of one model."""
    file = folder / "program.py"
    works = "async def works(model):\n    await model.allreduce(model.fake_grad(0, []), 0)\n    print('up', flush=1)\n"
    file.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom lib import run\n{works}{body}\n")
    return [sys.executable, str(file)]


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_nothing_is_left_of_a_run_whose_parent_is_ended(how: signal.Signals, tmp_path: Path) -> None:
    """The ranks are at, or come to, a forward that takes a minute."""
    (temporary := tmp_path / "temporary").mkdir()
    body = (
        "def stays(model):\n    model.weights[0], _ = model.load_weights(0)\n"
        "    model.forward(0, model.get_activation([0]), model.weights[0])\n"
        "run(stays, 2, engine='processes', timeout=60, pace=60)"
    )
    environment = os.environ | {"TMPDIR": str(temporary), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch's own")}
    with subprocess.Popen(script(tmp_path, body), env=environment, stdout=subprocess.PIPE, text=True) as parent:
        patience = time.monotonic() + 60
        while not any(children_of(server, "") == 2 for server in fork_servers(parent.pid)):
            assert time.monotonic() < patience
            time.sleep(0.05)
        [server] = fork_servers(parent.pid)
        parent.send_signal(how)
    patience = time.monotonic() + 20
    while server in fork_servers() and time.monotonic() < patience:
        time.sleep(0.05)
    assert server not in fork_servers()
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_it_runs_where_the_standard_streams_are_closed(tmp_path: Path) -> None:
    """As under cron: none of our sockets may take the number of a stream."""
    body = "run(works, 2)\ndone = run(works, 2, engine='processes')\n"
    body += f"open({str(tmp_path / 'said')!r}, 'w').write(repr(done))"
    done = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *script(tmp_path, body)], check=False)
    assert done.returncode == 0
    assert (tmp_path / "said").read_text().startswith("works on 2 ranks: time 0.3 ticks")


@pytest.mark.slow
def test_too_few_descriptors_are_told_with_how_many_are_needed(tmp_path: Path) -> None:
    body = "from lib import PuzzleError\ntry:\n    run(works, mesh={'a': 2, 'b': 2, 'c': 2}, ranks=8, "
    body += "engine='processes', timeout=60)\nexcept PuzzleError as error:\n    print(error)"

    def limited(number: int) -> str:
        command = ["sh", "-c", f'ulimit -n {number}; exec "$@"', "sh", *script(tmp_path, body)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    said = limited(24)
    assert said.startswith("starting the processes: a process may not open as many files and connections as 8 ranks")
    assert "got:      a limit of 24\n" in said
    needed = re.search(r"expected: at least (\d+) \(ulimit -n \1\)\n", said)
    assert needed
    assert "ulimit" in limited(int(needed[1]) - 1)
    assert limited(int(needed[1])).count("] up\n") == 8


# -- hosts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "machine", [{"ranks": 2, "hosts": 2}, pytest.param({"ranks": 2, "hosts": 1}, marks=pytest.mark.slow)]
)
def test_a_host_is_a_process_on_the_processor(machine: dict[str, int]) -> None:
    size = {**machine, "layers": 2, "batches": machine["ranks"]}
    done, simulated = apart(zero_offload, **size, device="cpu"), run(zero_offload, **size)
    assert done.verify().startswith("Correct!")
    assert bare(done.events) == bare(simulated.events)
    assert (done.memory, done.host_memory) == (simulated.memory, simulated.host_memory)
    assert len(done.models) == machine["ranks"] + machine["hosts"] and done.stored[0] == done.stored[1]
    assert {event.rank for event in done.measured.events} == set(range(len(done.models)))


def test_what_a_host_is_refused_is_told_as_anywhere() -> None:
    async def all_reduced(model: Model) -> None:
        await model.allreduce(model.fake_grad(0, []), 0)

    with pytest.raises(PuzzleError) as caught:
        apart(all_reduced, 1, hosts=1)
    assert "rank 1" in str(caught.value) and "a host takes part in no all-reduce" in str(caught.value)


@pytest.mark.slow
def test_hosts_under_torchrun_are_ranks_after_the_devices(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from lib import Model\n\n\n" + function("offload") + "\n", encoding="utf-8")
    done = under_torchrun(file, "offload", 2)
    assert done.returncode == 0 and "offload on 1 rank: time 68 ticks" in done.stdout, done.stderr
    assert "Correct! With real tensors (torchrun, mlp, float32)" in done.stdout
    refused = under_torchrun(file, "offload", 3)
    assert "torchrun has started 3 ranks, and 2 are asked for, 1 of them hosts" in refused.stderr
