"""Profiles of a real GPU: an H100 with PyTorch 2.11, on which two processes trained, or one with NCCL. ``tests/h100``
has one step of each, without the flows and the shapes that are not read."""

import pickle
from itertools import pairwise
from pathlib import Path

import pytest

from drawing import compare, draw
from lib import PuzzleError, run, trace
from lib.real import H100_PYTORCH, LLAMA_3_8B
from lib.real.traces.profile import Profile
from solutions.p13_one_f_one_b import one_f_one_b

FOLDER = Path(__file__).parent / "h100"


def read(name: str) -> Profile:
    found = trace(str(FOLDER / f"{name}_rank*"))
    assert found.problems == []
    return found


def kinds(profile: Profile, rank: int) -> dict[str, int]:
    """How many events of each kind a rank has, but for work, of which several kernels are one."""
    events = [event.kind for event in profile.by_rank[rank] if event.stream != "compute"]
    return {kind: events.count(kind) for kind in {*events}}


def test_messages_of_gloo_are_seen_beside_kernels() -> None:
    """Two stages, four micro-batches: what went between them went over the host, and kernels say nothing of it."""
    profile = read("pipeline")
    assert "H100" in profile.device and profile.backend == "gloo" and profile.step == 4
    for rank in (0, 1):
        assert kinds(profile, rank) == {"pass_to": 4, "receive": 4}
        messages = [event for event in profile.by_rank[rank] if event.stream == "message"]
        assert {event.elements for event in messages} == {2 * 2048 * 1024}
    # The backward pass of a GPU has a thread of its own, on which no label is open.
    batches = {(event.kind, *event.batches) for event in profile.by_rank[0] if event.batches}
    assert batches == {(kind, mb) for kind in ("forward", "backward") for mb in range(4)}
    assert profile.tick is not None and float(profile.parts["communication"]) > 0.5


def test_all_reduces_of_gloo_meet_and_their_copies_are_no_work() -> None:
    profile = read("ddp")
    calls = [kinds(profile, rank) for rank in (0, 1)]
    assert calls[0] == calls[1] and [*calls[0]] == ["allreduce"] and calls[0]["allreduce"] > 3
    met = [event for event in profile.by_rank[0] if event.kind == "allreduce"]
    assert all(event.group == (0, 1) and event.elements for event in met)
    works = {event.kind for event in profile.events if event.stream == "compute"}
    assert works == {"forward", "backward", "update"}


def test_calls_of_nccl_on_one_gpu_are_copies_and_are_seen() -> None:
    """With one rank NCCL has no kernels: it copies, and what it says on the CPU tells what for."""
    profile = read("one")
    assert kinds(profile, 0) == {"allgather": 16, "scatterreduce": 8}
    sizes = {event.elements for event in profile.by_rank[0] if event.kind == "allgather"}
    assert sizes == {2 * 9963520}
    works = {(event.kind, event.layer, *event.batches) for event in profile.by_rank[0] if event.layer is not None}
    assert works == {(kind, at, mb) for kind in ("forward", "backward") for at in range(4) for mb in (0, 1)}


def test_a_flight_recorder_that_looks_now_and_then_does_not_pile_up_calls() -> None:
    """It saw 25 calls end within 0.2 ms, since it looks every 100 ms. They took place one after the other, from when
    each was made."""
    profile = trace(str(FOLDER / "nccl_trace_rank_0"))
    calls = sorted((event.start, event.end) for event in profile.events if event.stream == "collective")
    assert len(calls) == 125
    assert all(first[1] <= second[0] + 1e-6 for first, second in pairwise(calls))
    dump = pickle.loads((FOLDER / "nccl_trace_rank_0").read_bytes())
    made = sorted(entry["time_created_ns"] for entry in dump["entries"])
    begun = [start for start, _ in calls]
    assert max(abs(begin - (at - made[0]) / 1e6) for begin, at in zip(begun, made, strict=True)) < 0.2
    waits = str(profile).splitlines()[-1].split()
    assert waits[-1] == "0"


@pytest.mark.parametrize("name", ["pipeline", "ddp", "one", "nccl_trace"])
def test_they_are_drawn_and_compared(name: str) -> None:
    profile = read(name)
    assert "<svg" in draw(profile, static=True).svg()
    planned = run(one_f_one_b, ranks=2, layers=32, batches=4, cost=H100_PYTORCH.cost(LLAMA_3_8B))
    assert "<svg" in compare(planned, profile, static=True).svg()


def test_a_recorder_that_saw_nothing_says_why(tmp_path: Path) -> None:
    empty = {"version": "2.10", "pg_config": {}, "entries": []}
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(empty, protocol=2))
    with pytest.raises(PuzzleError) as caught:
        trace(str(tmp_path / "nccl_trace_rank_0"))
    assert "more than one GPU" in str(caught.value)
