"""Where the time of a device goes when work overlaps: profiles that are made by drawing lots, each beside its answer,
which is counted here microsecond by microsecond."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from lib import Profile, PuzzleError, trace

from .profiles import GpuFile

STEP, NCCL = 100_000, "ncclDevKernel_AllGather_RING_LL"  # microseconds; a kernel of the network
Spans = list[tuple[int, int]]
Made = tuple[GpuFile, Spans, Spans]
"""A file, and when its device computes and communicates."""


def answers(works: Spans, calls: Spans, begins: int, ends: int) -> list[float]:
    """For how many ms of a step a rank only communicates, communicates beside work, and waits."""

    def covered(spans: Spans) -> list[bool]:
        found = [False] * (ends - begins)
        for span in spans:
            low, high = (min(max(moment, begins), ends) - begins for moment in span)
            found[low:high] = [True] * (high - low)
        return found

    both = [*zip(covered(works), covered(calls), strict=True)]
    return [both.count(one) / 1000 for one in ((False, True), (True, True), (False, False))]


def checked(made: Made, begins: int, ends: int, path: Path, step: int | None = None) -> Profile:
    """Read one step of a file that is made, and compare it with its answers."""
    file, works, calls = made
    profile, known = trace(file.save(path), step=step), answers(works, calls, begins, ends)
    assert profile.time == (ends - begins) / 1000
    assert profile._of_rank(0)[1:] == pytest.approx(known, abs=1e-3)
    assert profile._of_rank(0)[0] == pytest.approx(profile.time - known[0] - known[2], abs=1e-3)
    return profile


def put(file: GpuFile, name: str, launched: float, start: float, end: float, stream: int) -> None:
    """Add a kernel, with when it was launched."""
    file.launched += 1
    file.add("cuda_runtime", "cudaLaunchKernel", launched, launched + 1, correlation=file.launched)
    file.add("kernel", name, start, end, stream, correlation=file.launched)


def always_busy(chance: random.Random, steps: int, behind: int, prefetch: bool) -> Made:
    """A GPU that is ``behind`` the CPU, and never waits; calls of NCCL lie beside its kernels. With ``prefetch`` a
    step's input is copied on another stream while the step before runs."""
    file, works, calls = GpuFile(0, 1, step=None), Spans(), Spans()
    for launched in range(0, steps * STEP, STEP):
        at, copy = launched + behind, launched + 100 + chance.randrange(behind // 2)
        file.span(f"ProfilerStep#{launched // STEP}", launched, launched + STEP)
        cuts = [at, *sorted(chance.sample(range(at + 1_000, at + STEP - 1_000, 500), 12)), at + STEP]
        for span, stream in [((copy, copy + 3_000), 30)] * prefetch + [(both, 7) for both in pairwise(cuts)]:
            put(file, "gemm", launched + 200, *span, stream)
            works.append(span)
        for start in chance.sample(range(at, at + STEP - 9_000), 3):
            calls.append((start, start + chance.randrange(1, 8_000)))
            put(file, NCCL, launched + 5_000, *calls[-1], 20)
    return file, works, calls


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("behind", [400, STEP // 2, STEP * 4 // 5, 3 * STEP])
def test_a_gpu_that_is_always_busy_never_waits(tmp_path: Path, behind: int, prefetch: bool) -> None:
    """However far it is behind the CPU. Two steps of a GPU that was always busy were one of 180 ms, and 44 % of that
    was waiting."""
    made = always_busy(random.Random(behind), 5, behind, prefetch)
    for step in (1, 2, 3, None):
        begins = (4 if step is None else step) * STEP + behind
        profile = checked(made, begins, begins + STEP, tmp_path, step)
        assert profile._of_rank(0)[3] == profile._of_rank(0)[1] == 0


@pytest.mark.parametrize("seed", range(8))
def test_steps_that_overlap_on_a_gpu_are_counted_from_one_begin_to_the_next(tmp_path: Path, seed: int) -> None:
    """Kernels of a step run on streams of their own while the step before is still at work, with gaps between."""
    chance = random.Random(seed)
    file, works, calls, begun = GpuFile(0, 1, step=None), Spans(), Spans(), list[int]()
    for step in range(5):
        file.span(f"ProfilerStep#{step}", step * STEP, (step + 1) * STEP)
        at = step * STEP + 1_000 + chance.randrange(20_000)
        begun.append(at)
        while at < begun[-1] + 3 * STEP // 2:  # half of it beside the next one
            end, network = at + chance.randrange(500, 9_000), at > begun[-1] and chance.random() < 0.3
            put(file, NCCL if network else "gemm", step * STEP + 500, at, end, 40 + step)
            (calls if network else works).append((at, end))
            at = end + chance.choice([0, 0, chance.randrange(50, 3_000)])
    for step in (1, 2, 3):
        checked((file, works, calls), begun[step], begun[step + 1], tmp_path, step)
    checked((file, works, calls), begun[4], max(end for _, end in [*works, *calls]), tmp_path)


@pytest.mark.parametrize("children", [[], [(0, 0), (0, 0)], [(1, 3), (1_100, 1_999)]], ids=["none", "empty", "some"])
def test_gloo_beside_products_on_a_cpu_is_hidden(tmp_path: Path, children: Spans) -> None:
    """Whatever is inside of a product, such as ``aten::resolve_conj``, which takes no time. All products of the
    backward pass were taken for waiting, and the network for exposed."""
    chance, file, works, calls, at = random.Random(5), GpuFile(0, 2), Spans(), Spans(), 1_000
    for _ in range(30):
        works.append((at, at + chance.randrange(2_000, 9_000)))
        file.add("cpu_op", "aten::mm", *works[-1], thread=2)
        for start, end in children:
            file.add("cpu_op", "aten::resolve_conj", at + start, at + end, thread=2)
        over = works[-1][1] + chance.choice([0, 400, 5_000])  # in a node Python waits behind its product
        file.add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", at, over, thread=2)
        at = over
    for start in range(2_000, 140_000, 12_000):
        calls.append((start, start + chance.randrange(1_000, 8_000)))
        file.add("user_annotation", "gloo:all_reduce", *calls[-1], thread=3)
    exposed, hidden, _ = answers(works, calls, 0, at)
    assert trace(file.save(tmp_path))._of_rank(0)[1:3] == pytest.approx((exposed, hidden), abs=1e-3)
    assert hidden > 20


def test_what_a_step_begins_with_is_in_it(tmp_path: Path) -> None:
    """A gather that nothing hides before the first product, and the time until the next step, in which the GPU waits
    for its input."""
    file, works, calls = GpuFile(0, 1, step=None), Spans(), Spans()
    for step in range(3):
        at = step * STEP
        file.span(f"ProfilerStep#{step}", at, at + STEP)
        put(file, NCCL, at + 10, at + 100, at + 2_100, 20)
        put(file, "gemm", at + 20, at + 2_100, at + 60_100, 7)
        calls.append((at + 100, at + 2_100))
        works.append((at + 2_100, at + 60_100))
    profile = checked((file, works, calls), STEP + 100, 2 * STEP + 100, tmp_path, 1)
    assert profile._of_rank(0) == pytest.approx((58, 2, 0, 40))
    assert trace(file.save(tmp_path)).time == pytest.approx(60)


def test_a_last_step_without_work_is_not_taken(tmp_path: Path) -> None:
    made = file, *_ = always_busy(random.Random(3), 2, 400, False)
    file.span("ProfilerStep#2", 2 * STEP, 3 * STEP)
    assert checked(made, STEP + 400, 2 * STEP + 400, tmp_path).step == 1
    with pytest.raises(PuzzleError, match=r"rank0.json.gz has no work in step 2\n  expected: +one of its steps: 0, 1"):
        trace(file.save(tmp_path), step=2)


@pytest.mark.parametrize("around", ["c10d::alltoall_base_", "nccl:all_to_all", ""])
def test_an_all_to_all_by_sends_and_receives_is_one(tmp_path: Path, around: str) -> None:
    file = GpuFile(0, 1)
    if around:
        file.add("cpu_op" if "::" in around else "user_annotation", around, 0, 50)
    put(file, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", 20, 100, 300, 20)
    assert [event.kind for event in trace(file.save(tmp_path)).events] == ["alltoall" if around else "exchange"]


def test_control_characters_in_a_name_do_no_harm_and_a_time_without_end_says_what_to_do(tmp_path: Path) -> None:
    file = GpuFile(0, 1)
    put(file, "ge\x01\nmm", 20, 100, 300, 7)
    path = file.save(tmp_path, "rank0.json")
    path.write_text(path.read_text().replace("\\u0001\\n", "\x01\n"))
    assert "\x01" in path.read_text() and trace(path).time == 0.2
    path.write_text(path.read_text().replace('"dur": 200', f'"dur": {"7" * 5000}'))
    with pytest.raises(PuzzleError, match="values as profilers write them"):
        trace(path)
