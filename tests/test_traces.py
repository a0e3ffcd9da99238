"""Profiles of real runs: read, matched, set to one clock, and drawn like runs."""

import copy
import gzip
import json
import pickle
import random
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drawing import compare, draw, perfetto, play
from drawing.shell import DRAWN, FAILED, USAGE, main
from lib import Profile, PuzzleError, run, trace
from lib.engines.result import ProcessRun
from lib.real import GPT_2_XL, H100_DGX
from lib.real.traces import streams
from lib.real.traces.files import is_trace
from lib.real.traces.streams import entries_of
from solutions.p02_ddp import ddp
from solutions.p13_one_f_one_b import one_f_one_b

from .marks import needs_torch
from .profiles import GpuFile, dump, entry, hang, late_rank, pieces, save_dumps, saved, straggler


@pytest.fixture
def slow(tmp_path: Path) -> Profile:
    return trace(saved(straggler(), tmp_path))


def spans(profile: Profile, rank: int) -> list[tuple[str, float, float, float]]:
    return [(event.kind, event.issued, event.start, event.end) for event in profile.by_rank[rank]]


# -- what is read ---------------------------------------------------------------------------


def test_a_step_of_four_ranks_with_known_answers(slow: Profile) -> None:
    assert (slow.ranks, slow.time, slow.step, slow.problems, slow.notes) == (4, 6.5, 3, [], [])
    assert slow.about == "4 ranks · nccl · NVIDIA H100 80GB HBM3 · step 3"
    assert spans(slow, 0) == [
        ("forward", 0.0, 0.0, 1.0),
        ("backward", 1.0, 1.0, 3.0),
        ("allreduce", 2.0, 3.0, 3.5),  # rank 0 is there at 2, rank 2 at 3
        ("allreduce", 3.5, 5.0, 6.0),
        ("update", 6.0, 6.0, 6.5),
    ]
    assert {event.elements for event in slow.events if event.kind == "allreduce"} == {2000}
    assert {event.group for event in slow.events if event.kind == "allreduce"} == {(0, 1, 2, 3)}


def test_who_waits_for_whom(slow: Profile) -> None:
    assert slow.gaps(0) == [(3.5, 5.0, (2,))]
    assert slow.gaps(2) == []
    assert slow.waits == {(0, 2): 1.5, (1, 2): 1.5, (3, 2): 1.5}
    with pytest.raises(PuzzleError, match="there is no rank 4"):
        slow.gaps(4)


def test_the_chain_goes_through_the_straggler(slow: Profile) -> None:
    assert slow.chain.describe(slow.unit) == "6.5 = 4 backward + 1 forward + 1 all-reduce + 0.5 update"
    assert [event.rank for event in slow.chain.events] == [2, 2, 2, 0, 0]


def test_where_the_time_goes(slow: Profile) -> None:
    # Rank 2 computes for 5.5 ms and talks alone for 1; the others compute for 3.5, talk alone for 1.5, wait for 1.5.
    parts = {kind: round(26 * share, 6) for kind, share in slow.parts.items()}
    assert parts == {"forward": 4, "backward": 10, "update": 2, "communication": 5.5, "turn": 4.5}
    table = str(slow).splitlines()[3:8]
    assert [line.split() for line in table] == [
        ["rank", "computes", "exposed", "hidden", "waits"],
        ["0", "3.5", "1.5", "0", "1.5"],
        ["1", "3.5", "1.5", "0", "1.5"],
        ["2", "5.5", "1", "0.5", "0"],
        ["3", "3.5", "1.5", "0", "1.5"],
    ]
    assert str(slow).endswith("rank 3 waits 1.5 ms for rank 2")


@pytest.mark.parametrize("known", ["Seq", "order"])
def test_collectives_meet_in_their_groups(tmp_path: Path, known: str) -> None:
    # Ranks 0 and 1, and ranks 2 and 3, meet in groups of two, in between all meet.
    for rank in range(4):
        file, pair = GpuFile(rank, 4), [0, 1] if rank < 2 else [2, 3]
        for at, group in enumerate((pair, range(4), pair)):
            more = {"Seq": at + 1} if known == "Seq" else {}
            file.call("_allgather_base", 100 * at + 10 * rank, 100 * at + 60, group, **more)
        file.save(tmp_path)
    profile = trace(str(tmp_path / "rank*.json.gz"))
    assert profile.problems == []
    starts = [[event.start for event in events] for events in profile.by_rank.values()]
    assert starts == [[0.01, 0.13, 0.21]] * 2 + [[0.03, 0.13, 0.23]] * 2


def test_messages_wait_for_both_ends(tmp_path: Path) -> None:
    first, second = GpuFile(0, 2), GpuFile(1, 2)
    first.kernel(0, 300)
    first.call("send", 300, 420, Dst_Rank=1, Src_Rank=0)
    second.call("recv", 100, 420, Src_Rank=0, Dst_Rank=1)
    second.call("send", 420, 600, Dst_Rank=0)
    first.call("recv", 500, 600, Src_Rank=1)
    profile = trace(saved([first, second], tmp_path))
    assert spans(profile, 1) == [("receive", 0.1, 0.3, 0.42), ("pass_to", 0.42, 0.5, 0.6)]
    assert profile.gaps(1) == [(0.0, 0.3, (0,)), (0.42, 0.5, (0,))]
    assert profile.gaps(0) == [(0.42, 0.5, ())]  # nobody was waited for: its own program came late


def test_labels_of_a_pipeline_name_stage_and_micro_batch(tmp_path: Path) -> None:
    file = GpuFile(0, 1)
    file.span("PP:0F1", -15, 40)
    file.span("backward layer 2 mb 3", 80, 140)
    file.span("Backward 4", 180, 240)
    for start in (0, 50, 100, 200):
        file.kernel(start, start + 30)
    works = [(event.kind, event.layer, event.batches) for event in trace(file.save(tmp_path)).events]
    none: frozenset[int] = frozenset()
    assert works == [
        ("forward", 0, {1}),
        ("compute", None, none),  # where forwards are labeled, all else is something else
        ("backward", 2, {3}),
        ("backward", None, {4}),
    ]


def test_one_of_several_steps(tmp_path: Path) -> None:
    for rank in range(2):
        file = GpuFile(rank, 2, step=None)
        for step in (4, 5, 6 + rank):
            file.span(f"ProfilerStep#{step}", 1000 * step - 50, 1000 * step + 500)
            file.kernel(1000 * step, 1000 * step + 100 * step)
        file.save(tmp_path)
    pattern = str(tmp_path / "rank*.json.gz")
    assert (trace(pattern).step, trace(pattern).time) == (5, 1)  # from one begin to the next
    assert (trace(pattern, step=4).step, trace(pattern, step=4).time) == (4, 1)
    with pytest.raises(PuzzleError, match=r"rank1.json.gz has no step 6\n  expected: +one of its steps: 4, 5, 7"):
        trace(pattern, step=6)


def test_clocks_that_contradict_each_other_are_set(tmp_path: Path, slow: Profile) -> None:
    folder = tmp_path / "skewed"
    folder.mkdir()
    profile = trace(saved(straggler((0, -40_000, 7e9, 12_345)), folder))
    assert profile.by_rank == slow.by_rank
    assert profile.notes == ["clocks were set: rank 1 by -40 ms, rank 2 by +7e+06 ms, rank 3 by +12.3 ms"]


def test_clocks_are_set_by_messages_where_nothing_else_meets(tmp_path: Path) -> None:
    first, second = GpuFile(0, 2), GpuFile(1, 2, late=9000)
    for at in (0, 1000):
        first.kernel(at, at + 300)
        first.call("send", at + 300, at + 420, Dst_Rank=1)
        second.call("recv", at + 100, at + 420, Src_Rank=0)
    profile = trace(saved([first, second], tmp_path))
    assert spans(profile, 1)[0] == ("receive", 0.1, 0.3, 0.42)
    assert profile.notes == ["clocks were set: rank 1 by +9 ms"]


def test_clocks_that_drift_are_named(tmp_path: Path) -> None:
    first, second = GpuFile(0, 2), GpuFile(1, 2)
    for at in range(11):
        first.call("allreduce", 1000 * at, 1000 * at + 100)
        second.call("allreduce", 1200 * at, 1200 * at + 100)  # it runs faster
    [_, said] = trace(saved([first, second], tmp_path)).notes
    assert said == "clocks drift: times contradict each other by up to 0.9 ms"


# -- what does not fit together --------------------------------------------------------------


def test_different_sizes_and_messages_that_nobody_receives(tmp_path: Path) -> None:
    first, second = GpuFile(0, 2), GpuFile(1, 2)
    first.call("allreduce", 0, 100)
    second.call("allreduce", 0, 100, In_msg_nelems=10, Out_msg_nelems=10)
    first.call("send", 200, 300, Dst_Rank=1)
    problems = trace(saved([first, second], tmp_path)).problems
    assert problems == [
        "all-reduce 1 of group 0: ranks bring different sizes: rank 0 2,000 bytes, rank 1 20 bytes",
        "rank 0 sends 1 messages to rank 1, which receives 0",
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_hang_in_a_flight_recorder(tmp_path: Path, as_json: bool) -> None:
    profile = trace(save_dumps(hang(), tmp_path, as_json))
    assert profile.failure is not None
    assert profile.failure.says == "rank 1 did not come to all-reduce 3 of group 0"
    assert [text for _, text in profile.failure.sentences()] == [
        "rank 1 waits for ranks 0, 2, 3 in all-gather, since 2.1 ms",
        "rank 0 waits for rank 1 in all-reduce, since 2 ms",
        "rank 3 waits for rank 1 in all-reduce, since 2.3 ms",
        "rank 2 waits for rank 1 in all-reduce, since 2.2 ms",
    ]
    assert "ranks meet in different collectives" in profile.problems[0]
    assert "rank 1 waits for ranks 0, 2, 3 in all-gather" in draw(profile).svg()


def test_a_rank_that_is_late_for_ever(tmp_path: Path) -> None:
    profile = trace(save_dumps(late_rank(), tmp_path))
    assert profile.problems == ["rank 2 did not come to all-reduce 3 of group 0"]
    assert profile.failure is not None and {wait.rank for wait in profile.failure.waits} == {0, 1}
    assert "it hangs: rank 2 did not come to all-reduce 3 of group 0" in str(profile)
    assert "unrecorded" in profile.parts


def test_a_recorder_that_has_forgotten_the_beginning(tmp_path: Path) -> None:
    entries = [[entry(r, n, "all_reduce", 1000 * n, 1000 * n + 500) for n in range(1 + 2 * r, 6)] for r in (0, 1)]
    profile = trace(save_dumps({rank: dump(own, 2) for rank, own in enumerate(entries)}, tmp_path))
    assert (profile.problems, profile.failure) == ([], None)
    assert profile.notes == ["2 collectives are only in some of the files, which begin or end at other moments"]


def test_messages_in_a_flight_recorder(tmp_path: Path) -> None:
    sent, received = entry(0, 1, "send 0->1", 0, 100), entry(1, 1, "recv 1<-0", 50, 100)
    profile = trace(save_dumps({0: dump([sent], 2), 1: dump([received], 2)}, tmp_path))
    assert profile.problems == []
    assert [(event.kind, event.group) for event in profile.events if event.op] == [
        ("pass_to", (0, 1)),
        ("receive", (0, 1)),
    ]


# -- files that are no profiles --------------------------------------------------------------


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


class Evil:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        import os

        return os.system, ("touch never",)


TEXT = json.dumps(straggler()[0].data(), indent=1)
BAD = {
    "empty": (b"", "is empty"),
    "no JSON": ("training log, step 1", "is no JSON: it begins with 'training log, step 1'"),
    "another JSON": ('{"loss": [1, 2]}', "is no trace: it has no list of traceEvents"),
    "cut off packed": (gzip.compress(TEXT.encode())[:-200], "is cut off"),
    "bytes changed": (gzip.compress(TEXT.encode())[:300] + b"spoilt" * 9 + gzip.compress(TEXT.encode())[354:], "is"),
    "broken": (TEXT.replace('"cat"', "cat", 3), "is no JSON after"),
    "no comma": (TEXT.replace("},", "}", 12), "is no JSON after"),
    "no time": ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm"}]}', "has an event without a time"),
    "pickle that runs": (pickle.dumps({"entries": [Evil()], "version": "1"}), "is a pickle of more than plain data"),
    "pickle cut off": (pickle.dumps(hang()[0])[:-80], "is"),
    "pickle of something": (pickle.dumps([1, 2]), "is no dump of a flight recorder"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_profile_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content, said = BAD[name]
    monkeypatch.chdir(tmp_path)  # a pickle that is run would leave a file here
    with pytest.raises(PuzzleError) as caught:
        trace(written(tmp_path / "rank0.json", content))
    assert caught.value.problem.startswith(f"rank0.json {said}") and caught.value.expected
    assert [path.name for path in tmp_path.iterdir()] == ["rank0.json"]


@pytest.mark.parametrize("at", range(2, len(TEXT), len(TEXT) // 25))
def test_a_file_cut_off_anywhere_says_so(tmp_path: Path, at: int) -> None:
    with pytest.raises(PuzzleError, match=r"rank0.json is (cut off|no JSON)"):
        trace(written(tmp_path / "rank0.json", TEXT[:at]))


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    file = GpuFile(0, 2)
    file.kernel(0, 10)
    one, two = file.save(tmp_path), file.save(tmp_path, "copy.json")
    with pytest.raises(PuzzleError, match=r"rank0.json.gz and copy.json are both of rank 0"):
        trace(one, two)
    other = GpuFile(1, 2, step=9)
    other.kernel(0, 10)
    with pytest.raises(
        PuzzleError, match=r"no step in common\n.*\n  got: +rank0.json.gz has step 3, rank1.json.gz has step 9"
    ):
        trace([one, other.save(tmp_path)])
    with pytest.raises(
        PuzzleError, match=r"rank0.json.gz is of PyTorch's profiler, and nccl_trace_rank_0 of the flight"
    ):
        trace(one, save_dumps(hang(), tmp_path))


def bad_calls(folder: Path) -> dict[str, Callable[[], Any]]:
    (folder / "nothing.json").write_text('{"traceEvents": []}')
    (folder / "x.json").write_text('{"traceEvents": []}')
    (folder / "y.json").write_text('{"traceEvents": []}')
    return {
        "there is no file": lambda: trace(folder / "rank7.json"),
        "takes the files": lambda: trace(),
        "takes names of files": lambda: trace(7),  # type: ignore[arg-type]
        "is a folder": lambda: trace(folder),
        "step is the number": lambda: trace(folder / "nothing.json", step="3"),  # type: ignore[arg-type]
        "has no step 3": lambda: trace(folder / "nothing.json", step=3),
        "neither work nor a call": lambda: trace(folder / "nothing.json"),
        "x.json has no rank in it, nor in its name": lambda: trace(folder / "x.json", folder / "y.json"),
    }


def test_bad_arguments(tmp_path: Path) -> None:
    for said, call in bad_calls(tmp_path).items():
        with pytest.raises(PuzzleError, match=said):
            call()


def test_ranks_are_known_by_names_where_files_do_not_say(tmp_path: Path) -> None:
    for rank in range(2):
        file = GpuFile(rank, 2)
        file.call("allreduce", 0, 10)
        data = file.data()
        del data["distributedInfo"]
        (tmp_path / f"step3_rank-{rank}.json").write_text(json.dumps(data))
    assert trace(str(tmp_path / "*.json")).problems == []


NUMBERS = (None, True, -1, 10**30, 0.5, float("nan"), float("inf"))
JUNK = (*NUMBERS, "", "x", "[0, 1", "1e999", [], [[]], {}, {"a": 1}, [None])


def spoilt(value: Any, chance: random.Random) -> Any:
    """A copy of a file's data in which one value is another."""
    value = copy.deepcopy(value)
    at = value
    while True:
        key = chance.choice([*at]) if isinstance(at, dict) else chance.randrange(len(at))
        if not isinstance(at[key], (dict, list)) or not at[key] or chance.random() < 0.1:
            at[key] = chance.choice(JUNK)
            return value
        at = at[key]


def of_each_kind() -> list[Any]:
    """The data of a file with GPUs, of one with CPUs, and of a flight recorder."""
    file = GpuFile(0, 2)
    file.kernel(0, 10)
    file.span("Optimizer.step#Adam.step", -10, 20)
    file.call("allreduce", 10, 20, Seq=3)
    file.call("send", 20, 30, Dst_Rank=1)
    about = {"Concrete Inputs": ["", "", "1", "0"], "Input Dims": [[4]], "Input type": ["float"], "External id": 3}
    other = GpuFile(0, 2)
    other.add("cpu_op", "c10d::send", 0, 20, **about)
    other.add("user_annotation", "gloo:send", 5, 20, **about)
    other.add("user_annotation", "ProfilerStep#3", 0, 50)
    other.add("user_annotation", "PP:2F1", 25, 30)
    other.add("user_annotation", "forward layer 3 mb 1", 30, 40)
    other.add("cpu_op", "aten::mm", 30, 40)
    recorded = dump([entry(0, 1, "all_reduce", 0, 10), entry(0, 2, "send 0->1", 20, None)], 2)
    return [file.data(), other.data(), recorded]


@pytest.mark.parametrize("seed", range(3))
def test_a_file_with_a_wrong_value_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for kind in of_each_kind():
        for _ in range(40):
            path = written(tmp_path / "rank0.json", json.dumps(spoilt(kind, chance)))
            try:
                profile = trace(path)
            except PuzzleError:
                continue
            assert str(profile) and profile.time >= 0


FLOODS = {
    "blanks": ("", " ", ""),
    "blanks in an event": ('{"traceEvents": [{"ph": ', " ", '"X"}]}'),
    "empty events": ('{"traceEvents": [', "{},", "{}]}"),
    "empty lists": ("[", "[],", "[]]"),
    "a long word": ('{"traceEvents": [{"name": "', "x", '"}]}'),
    "a long number": ('{"traceEvents": [{"ts": ', "7", "}]}"),
    "open brackets": ('{"traceEvents": ', "[", ""),
    "names": ("{", '"a": 1, ', '"traceEvents": []}'),
}


@pytest.mark.parametrize("name", FLOODS)
def test_what_unpacks_to_far_more_than_it_is_is_not_read_to_its_end(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LARGEST", 1 << 17)
    monkeypatch.setattr(streams, "PIECE", 1 << 14)
    first, more, last = FLOODS[name]
    packed = gzip.compress((first + more * ((1 << 23) // len(more)) + last).encode())
    read, before = [0], streams._Text.read

    def counted(self: Any, size: int) -> bytes:
        found = before(self, size)
        read[0] += len(found)
        return found

    monkeypatch.setattr(streams._Text, "read", counted)
    with pytest.raises(PuzzleError, match=r"rank0.json.gz (is|has|unpacks) "):
        trace(written(tmp_path / "rank0.json.gz", packed))
    assert read[0] < 1 << 22


def node(file: GpuFile, start: float, end: float, *operators: tuple[str, float, float]) -> None:
    """A node of the backward pass on a CPU, and operators inside of it."""
    file.add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", start, end)
    for name, begins, ends in operators:
        file.add("cpu_op", name, begins, ends)


@pytest.mark.parametrize(
    ("operators", "call", "works"),
    [
        ([("aten::mm", 100, 600), ("aten::mm", 4_000, 5_000)], (700, 3_900), [(0, 700), (3_900, 5_000)]),
        ([("aten::mm", 0, 5_000)], (700, 3_900), [(0, 5_000)]),  # hidden behind work
        ([("aten::mm", 0, 900), ("c10d::allreduce_", 900, 4_900)], (1_000, 4_800), [(0, 900), (4_900, 5_000)]),
        ([("c10d::allreduce_", 900, 4_000), ("aten::copy_", 1_500, 1_600)], (1_000, 3_900), [(0, 900), (4_000, 5_000)]),
        ([("aten::mm", 0, 1_000), ("aten::mm", 4_500, 5_000)], (6_000, 7_000), [(0, 5_000)]),  # nothing is under way
    ],
)
def test_a_cpu_that_waits_inside_of_an_operator_does_not_work(
    tmp_path: Path,
    operators: list[tuple[str, float, float]],
    call: tuple[float, float],
    works: list[tuple[float, float]],
) -> None:
    """As in FSDP on CPUs, whose nodes of the backward pass wait for weights. All of that was called work, and the
    network was called hidden."""
    files = [GpuFile(rank, 2) for rank in range(2)]
    for file in files:
        node(file, 0, 5_000, *operators)
        file.add("user_annotation", "gloo:all_gather", *call, thread=2)
    profile = trace(*[file.save(tmp_path) for file in files])
    for rank in range(2):
        own = [event for event in profile.events if event.rank == rank and event.kind == "backward"]
        begin = min(event.start for event in own)
        found = [(round((event.start - begin) * 1000), round((event.end - begin) * 1000)) for event in own]
        assert found == works


def test_a_rank_outside_of_the_world_and_worlds_that_differ_are_said(tmp_path: Path) -> None:
    files = straggler()
    files[3].rank, files[0].world = 9, 8
    problems = trace(saved(files, tmp_path)).problems
    assert "rank9.json.gz: it is of rank 9, and there are 4 ranks, it says" in problems
    assert any("different numbers of ranks: rank0.json.gz 8, rank1.json.gz 4" in problem for problem in problems)


def test_a_kernel_without_its_launch_is_said(tmp_path: Path) -> None:
    files = straggler()
    files[1].events = [event for event in files[1].events if event.get("args") != {"correlation": 3}]
    [note] = trace(saved(files, tmp_path)).notes
    assert note == "rank1.json.gz: kernels without a launch, so what for is not known: 1"


def test_events_of_unknown_kinds_are_said_in_one_line(tmp_path: Path) -> None:
    """Kinds that a profiler writes, and that say nothing of work or of calls, are not among them."""
    files = straggler()
    for file in files[:2]:
        file.add("kurnel", "gemm", 0, 10)
        file.add("python_function", "train.py(7): step", 0, 10)
    files[3].add("xpu_runtime", "launch", 0, 10)
    profile = trace(saved(files, tmp_path))
    assert profile.notes == ["events of kinds that are not known here are left out: 2 'kurnel', 1 'xpu_runtime'"]
    assert "note: events of kinds" in str(profile)


def test_a_packed_file_that_is_cut_off_says_how_far_it_is_good(tmp_path: Path) -> None:
    """What was unpacked before its end counts, though one piece would hold all of it."""
    packed = (Path(__file__).parent.parent / "docs" / "profile" / "rank0.json.gz").read_bytes()
    letters = []
    for share in (0.2, 0.5, 0.8):
        with pytest.raises(PuzzleError, match=r"is cut off after ([\d,]+) letters") as caught:
            trace(written(tmp_path / "rank0.json.gz", packed[: int(share * len(packed))]))
        letters.append(int(re.findall(r"after ([\d,]+) letters", caught.value.problem)[0].replace(",", "")))
    assert 0 < letters[0] < letters[1] < letters[2] < len(gzip.decompress(packed))


def test_a_list_of_events_alone_is_a_trace(tmp_path: Path) -> None:
    file = GpuFile(0, 1)
    file.kernel(0, 10)
    assert trace(written(tmp_path / "rank0.json", json.dumps(file.events))).time == 0.01


def test_a_file_is_read_as_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json.gz"
    with gzip.open(path, "wb", 1) as file:
        for piece in pieces(10_000, padding=2000):  # 20 MB
            file.write(piece)
    tracemalloc.start()
    entries = sum(name == "traceEvents" for name, _ in entries_of(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert entries == 10_001
    assert peak < 12e6


# -- pictures ---------------------------------------------------------------------------------


def test_a_profile_is_drawn_like_a_run(slow: Profile) -> None:
    figure = draw(slow)
    assert "waits 1.5 ms for rank 2" in figure.svg()
    assert figure.summary.startswith("rank*: 4 ranks, nccl, NVIDIA H100 80GB HBM3, step 3; time 6.5 ms; where the time")
    assert "Each rank runs 1 forward, 1 backward, 1 update, 2 all-reduce." in figure.summary
    assert "peak memory" not in figure.svg()
    assert "the longest chain, in ms: 6.5 = 4 backward + 1 forward" in draw(slow, chain=True).svg()


def test_a_profile_in_other_formats(slow: Profile) -> None:
    data = json.loads(perfetto(slow))
    assert sum(event["ph"] == "X" for event in data["traceEvents"]) == 20
    with pytest.raises(PuzzleError, match="neither code nor memory"):
        play(slow)


def test_a_profile_beside_a_run_at_real_prices(slow: Profile) -> None:
    planned = run(ddp, ranks=4, layers=2, batches=4, cost=H100_DGX.cost(GPT_2_XL))
    figure = compare(slow, planned)
    assert "unknown" in figure.svg() and planned.name in figure.summary
    assert "all-reduce" not in figure.summary.partition("ddp is")[2]  # two on each rank, in both
    more = run(ddp, ranks=4, layers=3, batches=4, cost=H100_DGX.cost(GPT_2_XL))
    assert "all-reduce 3 times, not 2" in compare(slow, more).summary
    with pytest.raises(PuzzleError, match="nothing says how long a tick is"):
        compare(slow, run(ddp, ranks=4, layers=2, batches=4))


def test_a_profile_at_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pattern = saved(straggler(), tmp_path)
    files = sorted(map(str, tmp_path.glob("rank*.json.gz")))
    out = str(tmp_path / "out.svg")
    assert main([*files, "-o", out]) == DRAWN
    assert main([pattern]) == DRAWN
    assert "rank 0 waits 1.5 ms for rank 2" in capsys.readouterr().out
    assert main([*files, "-o", str(tmp_path / "out.json"), "--step", "3"]) == DRAWN
    assert main([*files, "--step", "4"]) == FAILED
    assert "has no step 4" in capsys.readouterr().err
    assert main([*files, "solutions/p06_gpipe.py:gpipe"]) == USAGE
    assert main([*files, "--play", "-o", str(tmp_path / "out.html")]) == USAGE
    assert main([save_dumps(late_rank(), tmp_path)]) == FAILED


def test_what_is_a_profile_by_its_name(tmp_path: Path) -> None:
    save_dumps(late_rank(), tmp_path)
    assert [is_trace(name) for name in ("rank*.json.gz", "a.json", "b.pkl", str(tmp_path / "nccl_trace_rank_0"))] == [
        True
    ] * 4
    assert not any(map(is_trace, ("mine.py:fsdp", "mine.py", "a.ipynb", "nothing")))


# -- our own engine ---------------------------------------------------------------------------


@needs_torch
@pytest.mark.process
def test_a_profile_of_our_own_processes_has_what_they_have_measured(tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    done = run(
        one_f_one_b,
        ranks=2,
        layers=2,
        batches=3,
        engine="processes",
        device="cpu",
        pace=0.02,
        profile=folder,
        timeout=60,
    )
    assert isinstance(done, ProcessRun)
    profile = trace(folder / "rank*.json.gz")
    assert (profile.problems, profile.failure, profile.ranks, profile.step) == ([], None, 2, 0)
    for rank in range(2):
        logs = [event for event in done.events if event.rank == rank], profile.by_rank[rank]
        works = [{(e.kind, e.layer, e.batches) for e in log if e.kind in ("forward", "backward")} for log in logs]
        assert works[0] == works[1]
        sent = [sorted(e.kind for e in log if e.stream == "message") for log in logs]
        assert sent[0] == sent[1] != []
    assert profile.tick is not None and done.tick is not None and profile.tick > 20
    assert compare(done.measured, profile, titles=["measured", "profiled"]).summary
    assert compare(run(one_f_one_b, ranks=2, layers=2, batches=3), profile).summary


def test_only_processes_are_profiled(tmp_path: Path) -> None:
    with pytest.raises(PuzzleError, match="only processes are profiled"):
        run(one_f_one_b, ranks=2, layers=2, batches=3, profile=tmp_path)
    with pytest.raises(PuzzleError, match="profile names a folder"):
        run(one_f_one_b, ranks=2, layers=2, batches=3, profile=7)  # type: ignore[arg-type]
