"""The export for Perfetto, against the rules of the Trace Event Format."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from drawing import Trace, perfetto
from drawing.perfetto import TICK
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
    done = Counter((e.rank, e.kind, e.start * TICK, e.length * TICK) for e in made.events if e.kind not in MARKS)
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


def test_memory_is_a_counter_with_all_kinds_whose_sum_is_the_sample(made: Run) -> None:
    counters = entries(made, "C")
    assert len(counters) == len(made.events)
    for counter in counters:
        assert len(counter["args"]) == len(MEMORY_KINDS)
    assert max(sum(counter["args"].values()) for counter in counters) == made.memory


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
