"""The export for Perfetto, against the rules of the Trace Event Format."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from drawing import Trace, perfetto
from drawing.perfetto import TICK
from drawing.theme import MEMORY
from lib import Cost, PuzzleError, Run
from lib.record.events import MARKS
from lib.record.kinds import MEMORY_KINDS
from lib.record.table import in_lane
from tests.drawing_events import chain, event, sharded_run, staged_run, trace

RUNS = {
    "staged": staged_run(4, 4),
    "sharded": sharded_run(4, 3),
    "boxes": sharded_run(4, 2, node_size=2),
}
NEEDED = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "i": {"name", "cat", "ph", "ts", "pid", "tid", "s", "args"},
    "C": {"name", "ph", "ts", "pid", "tid", "args"},
    "M": {"name", "ph", "ts", "pid", "tid", "args"},
    "s": {"name", "cat", "ph", "ts", "pid", "tid", "id"},
    "f": {"name", "cat", "ph", "ts", "pid", "tid", "id", "bp"},
}
"""The fields of each phase in the format's description."""


@pytest.fixture(params=RUNS)
def made(request: pytest.FixtureRequest) -> Run:
    return RUNS[request.param]


def entries(source: object, *phases: str) -> list[dict[str, Any]]:
    found = json.loads(perfetto(source))
    assert found["displayTimeUnit"] in ("ms", "ns")
    return [entry for entry in found["traceEvents"] if not phases or entry["ph"] in phases]


def test_every_entry_has_the_fields_of_its_phase(made: Run) -> None:
    for entry in entries(made):
        assert set(entry) == NEEDED[entry["ph"]], entry
        assert isinstance(entry["pid"], int)
        assert isinstance(entry["tid"], int)
        assert entry["ts"] >= 0
    assert {entry["ph"] for entry in entries(made)} >= {"X", "i", "C", "M"}


def test_every_operation_is_a_slice_or_an_instant_at_its_time(made: Run) -> None:
    shown = Counter((e["pid"], e["cat"], e["ts"], e.get("dur", 0.0)) for e in entries(made, "X", "i"))
    done = Counter(
        (e.rank, e.kind, round(e.start * TICK, 3), round(e.length * TICK, 3))
        for e in made.events
        if e.kind not in MARKS
    )
    assert shown == done


def test_slices_of_a_thread_do_not_overlap(made: Run) -> None:
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for entry in entries(made, "X"):
        threads.setdefault((entry["pid"], entry["tid"]), []).append((entry["ts"], entry["dur"]))
    assert len(threads) >= 8
    for slices in threads.values():
        for (start, length), (following, _) in pairwise(sorted(slices)):
            assert start + length <= following + 1e-6


def test_overlapping_communication_gets_threads_of_its_own() -> None:
    events = [event(0, "allgather", at / 10, 1 + at / 10) for at in range(3)]
    assert [entry["tid"] for entry in entries(trace(events), "X")] == [1, 2, 3]


def test_every_message_is_a_flow_from_its_send_to_its_receive() -> None:
    run = RUNS["staged"]
    starts = {entry["id"]: entry for entry in entries(run, "s")}
    ends = {entry["id"]: entry for entry in entries(run, "f")}
    sends = [event for event in run.events if event.kind == "pass_to"]
    assert len(starts) == len(ends) == len(sends) > 0
    assert len(entries(run, "s", "f")) == 2 * len(sends)
    slices = {(e["pid"], e["tid"], e["ts"]): e for e in entries(run, "X")}
    for flow, start in starts.items():
        end = ends[flow]
        assert start["ts"] <= end["ts"]
        assert start["pid"] != end["pid"]
        assert end["bp"] == "e"
        # a flow binds to the slice around it
        assert slices[start["pid"], start["tid"], start["ts"]]["cat"] == "pass_to"
        assert slices[end["pid"], end["tid"], end["ts"]]["cat"] == "receive"


@pytest.mark.parametrize("price", ["send", "receive"])
def test_a_flow_has_both_ends_or_none(price: str) -> None:
    assert entries(staged_run(2, 2, cost=Cost(**{price: 0})), "s", "f") == []  # type: ignore[arg-type]


def test_memory_is_a_counter_whose_sum_is_the_sample_and_one_of_the_total(made: Run) -> None:
    by_name = {name: [e for e in entries(made, "C") if e["name"] == name] for name in ("memory", "memory, total")}
    assert sum(map(len, by_name.values())) == len(entries(made, "C"))
    used = {MEMORY[kind][0] for at, kind in enumerate(MEMORY_KINDS) if any(event.held[at] for event in made.events)}
    for counter, total in zip(*by_name.values(), strict=True):
        assert set(counter["args"]) == used
        assert (counter["pid"], counter["ts"]) == (total["pid"], total["ts"])
        assert sum(counter["args"].values()) == total["args"]["elements"]
    for rank in range(4):  # as a staircase: what was said last holds at every sample
        said = {e["ts"]: e["args"]["elements"] for e in by_name["memory, total"] if e["pid"] == rank}
        last = {event.issued * TICK: event.memory for event in made.events if event.rank == rank}
        for moment, memory in last.items():
            assert said[max(at for at in said if at <= round(moment, 3))] == memory


def test_every_slice_of_a_micro_batch_names_it() -> None:
    names = Counter(entry["name"] for entry in entries(RUNS["staged"], "X"))
    assert names["forward layer 0 mb 0"] == 1 and names["backward layer 3 mb 2"] == 1
    assert any(name.startswith("send layer") and " mb " in name for name in names)
    assert not any(
        " mb " in entry["name"]
        for entry in entries(RUNS["sharded"], "X")
        if entry["cat"] != "forward" and entry["cat"] != "backward" and entry["cat"] != "loss"
    )


def test_it_says_what_it_is_and_names_come_first() -> None:
    told = json.loads(perfetto(trace([event(0, "forward", 0, 1)], time_target=17.0, memory_target=2621440)))
    assert told["otherData"]["1 ms is"] == "1 tick"
    assert told["otherData"]["target, time"] == "17 ticks"
    assert told["otherData"]["target, memory"] == "2,621,440 elements"
    phases = [entry["ph"] for entry in told["traceEvents"]]
    assert phases.index("X") > max(at for at, phase in enumerate(phases) if phase == "M")


def test_it_saves_itself_plain_and_compressed(tmp_path: Path) -> None:
    text = perfetto(staged_run(16, 16))
    text.save(tmp_path / "a.json")
    text.save(tmp_path / "a.json.gz")
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == text
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert gzip.decompress(packed).decode() == text and len(packed) < len(text) / 8
    with pytest.raises(PuzzleError, match="no known ending"):
        text.save(tmp_path / "a.txt")


def test_ranks_are_named_processes_with_named_threads(made: Run) -> None:
    names = {(e["pid"], e["tid"], e["name"]): e["args"] for e in entries(made, "M")}
    for rank in range(4):
        assert names[rank, 0, "process_name"] == {"name": f"rank {rank}"}
        assert names[rank, 0, "thread_name"] == {"name": "compute"}
    used = {(e["pid"], e["tid"]) for e in entries(made, "X", "i")}
    assert used <= {(pid, tid) for pid, tid, name in names if name == "thread_name"}


def test_details_name_the_group() -> None:
    gathers = [entry for entry in entries(RUNS["boxes"], "X") if entry["cat"] in in_lane("collective")]
    assert gathers
    assert all(entry["args"]["ranks"] == "0-3" for entry in gathers)


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(PuzzleError, match="takes a Run"):
        perfetto(3)
    assert entries(Trace({0: chain(0, 2)}, 4, 4), "X")
