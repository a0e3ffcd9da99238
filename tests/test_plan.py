"""A search over the meshes of a cluster: what it finds are runs, what it leaves out cannot fit or cannot be fast."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import pytest

from lib import Cost, Plan, Plans, PuzzleError, plan, run
from lib.real import (
    A100_MEGATRON,
    GPT_175B,
    H100_DGX,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_3_405B,
    MIXTRAL_8X7B,
    RTX_4090,
    Transformer,
)
from lib.running import plan as module
from lib.running import planned
from lib.running.plan import ALIKE, OURS, Search
from lib.running.sweep import beats
from lib.running.ways import Ways
from solutions.p12_prefetch import prefetch
from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p14_interleaved import interleaved

SMALL = Transformer(8, 2048, 16, 1024, 8192, tied=True, name="small")
EIGHT = replace(A100_MEGATRON, gpus=8)
TWO_NODES = replace(H100_DGX, gpus=8, gpus_per_box=4, nic=5e9)
YOURS: dict[str, Any] = {"sharded": prefetch, "pipeline": one_f_one_b, "interleaved": interleaved}


# -- the programs that are tried -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "mesh", "layers", "batches"),
    [
        (planned.sharded, {"replica": 1, "shard": 8}, 6, 16),
        (planned.sharded, {"replica": 2, "shard": 4}, 3, 24),
        (planned.sharded_with_copies, {"node": 2, "shard": 4}, 6, 16),
        (planned.pipelined, {"replica": 1, "stage": 4}, 4, 6),
        (planned.pipelined, {"replica": 2, "stage": 4}, 12, 16),
        (planned.pipelined, {"replica": 4, "stage": 2}, 6, 16),
    ],
)
def test_its_programs_train_the_model(fn: Any, mesh: dict[str, int], layers: int, batches: int) -> None:
    done = run(fn, prod(mesh.values()), layers, batches, mesh=mesh, node_size=4)
    done.verify()


def test_one_forward_one_backward_takes_what_the_formula_says() -> None:
    free = Cost(send=0, receive=0, update=0)
    for chunks in (1, 2, 3):
        done = run(planned.pipelined, 4, 4 * chunks, 8, mesh={"replica": 1, "stage": 4}, cost=free)
        assert done.time == (8 + 3 / chunks) * 2 * chunks


# -- what is tried ---------------------------------------------------------------------------------------


def ways(model: Transformer = SMALL, cluster: Any = EIGHT, batch: int = 16, **programs: Any) -> list[Plan]:
    return Search(model, cluster, batch, programs or None).ways()


def test_each_way_uses_all_gpus_and_the_whole_batch() -> None:
    for programs in ({}, YOURS):
        found = ways(**programs)
        assert len(set(found)) == len(found) and {way.name for way in found} >= set(YOURS)
        assert {way.replicas * way.stages * way.tensor * way.context for way in found} == {8}
        assert {(way.stages, way.tensor) for way in found} >= {(1, 1), (2, 1), (4, 2), (8, 1), (2, 4), (1, 8)}
        for way in found:
            batches = 16 / way.replicas / way.micro_batch
            assert batches == int(batches) >= (way.stages if way.stages > 1 else 1)
            assert way.name == "interleaved" or way.chunks == 1
    assert not any(way.stages > 1 for way in ways(sharded=prefetch))


def test_fsdp_accumulates_in_all_gpus_in_a_node_and_with_copies() -> None:
    found = [way for way in ways(cluster=TWO_NODES) if way.stages == way.tensor == 1]
    assert {way.name for way in found} == {"sharded", "hybrid", "copies"}
    assert {way.micro_batch for way in found} == {1, 2}
    assert {way.mesh for way in found if way.name == "hybrid"} == {(("replica", 2), ("shard", 4))}


def test_stages_may_differ_by_a_layer_and_the_ends_have_fewer() -> None:
    cluster = replace(H100_DGX, gpus=128)
    [split] = {way.split for way in ways(LLAMA_3_405B, cluster, 64) if (way.stages, way.chunks) == (16, 1)}
    assert split is not None and sum(split) == 126 and len(split) == 16
    assert {*split} == {7, 8} and split[0] == split[-1] == 7


def test_long_sequences_and_experts_have_axes_of_their_own() -> None:
    long = replace(SMALL, sequence=65_536, attention="flash")
    assert {way.context for way in ways(long)} == {1, 2, 4, 8} and {way.context for way in ways()} == {1}
    sparse = replace(SMALL, gated=True, attention="flash", experts=8, chosen=2, expert_hidden=512)
    assert {way.expert_parallel for way in ways(sparse)} == {1, 2, 4}
    found = plan(replace(MIXTRAL_8X7B, layers=4, sequence=4096), replace(H100_DGX, gpus=16, memory=40e9), 16)
    assert found.best.expert_parallel > 1


def test_what_goes_to_hosts_is_not_in_memory() -> None:
    flash = replace(SMALL, attention="flash")
    found = Search(flash, EIGHT, 16, hosts=True)
    here, there = (
        found.run(next(w for w in found.ways() if w.name == "pipeline" and w.stages == 4 and w.offload == part))
        for part in (0.0, 1.0)
    )
    assert there.bytes < here.bytes and there.seconds >= here.seconds


# -- what is found ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found() -> Plans:
    return plan(SMALL, TWO_NODES, 16)


def test_the_program_of_a_plan_is_a_function_that_runs(found: Plans) -> None:
    """Its figures are those of the search: a few short runs, or one of the replicas, tell that of all."""
    for one in [found.best, *{each.name: each for each in found.plans}.values()]:
        assert one.program in OURS.values()
        done = run(one.program, **one.size, timeout=None)
        assert done.seconds == pytest.approx(one.seconds, rel=0.03), one
        assert done.bytes == pytest.approx(one.bytes, rel=0.03), one
    small = {**found.best.size}
    small.pop("represent", None)
    run(found.best.program, **small).verify()  # type: ignore[arg-type]


def test_plans_of_your_programs_are_runs() -> None:
    for one in plan(SMALL, EIGHT, 16, **YOURS).plans[:8]:
        assert one.program is YOURS[one.name]
        done = run(one.program, **one.size, timeout=None)
        reduced = one.seconds - done.seconds  # of the replicas of a pipeline
        if one.stages == 1 or one.replicas == 1:
            assert reduced == pytest.approx(0, abs=1e-7)
        else:
            assert (
                reduced > 2 * (one.replicas - 1) / one.replicas * 2 * SMALL.size / one.stages / one.tensor / EIGHT.link
            )
        assert one.bytes == pytest.approx(done.bytes, rel=0.02 if one.split else 0)


def test_bounds_are_below_what_runs_give() -> None:
    sparse = replace(SMALL, gated=True, attention="flash", experts=8, chosen=2, expert_hidden=2048, layers=6)
    for model, cluster in ((SMALL, EIGHT), (SMALL, TWO_NODES), (replace(SMALL, layers=7), EIGHT), (sparse, TWO_NODES)):
        search = Search(model, cluster, 16)
        for way in search.ways()[::17]:
            done = search.run(way)
            assert search.least_seconds(way) <= done.seconds and search.least_bytes(way) <= done.bytes, way


def test_what_cannot_be_better_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tight = replace(EIGHT, memory=3e9)
    ran, whole = list[Plan](), Search.run
    monkeypatch.setattr(Search, "run", lambda self, way: ran.append(way) or whole(self, way))
    plans = plan(SMALL, tight, 16)
    search = Search(SMALL, tight, 16)
    assert 0 < len(ran) < plans.tried == len(search.ways())
    assert all(search.least_bytes(way) <= tight.room for way in ran) and all(
        one.bytes <= tight.room for one in plans.plans
    )
    left = {way.choice for way in search.ways()} - {way.choice for way in ran}
    for way in [way for way in search.ways() if way.choice in left][::23]:
        done = whole(search, way)
        hopeless = done.seconds > module.HOPELESS * plans.plans[0].seconds or done.bytes > tight.room
        assert hopeless or any(beats(one.figures, done.figures) for one in plans.plans), way
    known = sum(many for why, (many, _) in plans.dropped.items() if why.split()[0] in ("more", "1.3", "slower", "ran,"))
    hidden = sum(many for why, (many, _) in plans.dropped.items() if why.startswith("gathers"))
    assert known + hidden + len(plans.plans) == plans.tried


def test_what_is_as_fast_as_the_fastest_is_sorted_by_memory(found: Plans) -> None:
    fastest = min(one.seconds for one in found.plans)
    equal = [one for one in found.plans if one.seconds <= (1 + ALIKE) * fastest]
    assert found.plans[: len(equal)] == equal == sorted(equal, key=lambda one: (one.bytes, one.seconds))
    assert found.best is found.plans[0]
    rest = found.plans[len(equal) :]
    assert rest == sorted(rest, key=lambda one: (one.seconds, one.bytes))
    front = found.front()
    assert [one.bytes for one in front] == sorted((one.bytes for one in front), reverse=True)
    assert not any(beats(other.figures, one.figures) for one in front for other in found.plans)


def test_plans_show_themselves_as_a_table(found: Plans) -> None:
    said = str(found).splitlines()
    first = found.plans[0]
    assert said[0].split()[:2] == ["program", "replicas"] and said[1].startswith(first.name)
    assert f"{first.replicas} x {first.stages} x {first.tensor}" in said[1] and " GB" in said[1] and " =" in said[1]
    assert len(found.rows()) == len(found.plans)
    assert any(line.startswith("front: no other plan is both as fast and as small") for line in said)
    left = said[said.index(f"{found.tried:,} ways were considered. Left out:") + 1 :]
    assert len(left) == len(found.dropped) > 2 and all(line.endswith(")") for line in left)


def test_the_part_of_the_peak_is_that_of_all_gpus(found: Plans) -> None:
    for one in found.plans[:3]:
        flops = SMALL.model_flops() * 16
        assert one.mfu == pytest.approx(flops / one.seconds / 8 / TWO_NODES.peak)


def test_accumulation_is_faster_than_a_pipeline_where_it_fits() -> None:
    """Llama 3 on 8 GPUs, and on 64: a pipeline came first as long as FSDP could not accumulate."""
    small = plan(LLAMA_3_8B, replace(H100_DGX, gpus=8), 64)
    assert small.best.name == "sharded" and small.best.batches > small.best.replicas and small.best.seconds < 6.6
    large = plan(LLAMA_3_70B, replace(H100_DGX, gpus=64), 512)
    assert large.best.name == "sharded" and large.best.batches > large.best.replicas and large.best.seconds < 65


def test_numbers_that_do_not_divide_have_neighbors_that_do() -> None:
    hundred = replace(H100_DGX, gpus=20)
    said = plan(SMALL, hundred, 64).dropped["no FSDP: its ranks do not divide the batch"]
    assert said[1] == "16 GPUs or a batch of 65 would do"
    with pytest.raises(PuzzleError, match=r"fix: +8 GPUs or a batch of 14|7 GPUs(.|\n)*GPUs or a batch of"):
        plan(SMALL, replace(EIGHT, gpus=7), 16, sharded=prefetch)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: plan(SMALL, H100_DGX, 16), r"plan needs the number of GPUs(.|\n)*replace\(cluster, gpus=64\)"),
        (lambda: plan(SMALL, EIGHT, 0), "batch must be a whole number from 1 up"),
        (lambda: plan(SMALL, EIGHT, 16, hosts="yes"), "hosts"),  # type: ignore[arg-type]
        (lambda: plan(SMALL, EIGHT, 16, optimizer="lion"), "there is no such optimizer"),
        (lambda: plan(SMALL, EIGHT, 16, sharded="fsdp"), "run takes a function of one model"),  # type: ignore[arg-type]
        (
            lambda: plan(SMALL, replace(RTX_4090, gpus=8, memory=9e9), 2048, sharded=prefetch),
            r"holds small with a batch of 2,048\n +expected: +at most 8.28 GB on a GPU\n +got: +.* GB at the least",
        ),
        (lambda: plan(SMALL, EIGHT, 1, pipeline=one_f_one_b), "no mesh into which layers and batch can be divided"),
        (lambda: plan(GPT_175B, EIGHT, 16), "GPT-3 175B fits nowhere on A100 80 GB"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_what_would_do(make: Any, said: str) -> None:
    with pytest.raises(PuzzleError, match=said):
        make()


def test_ways_count_what_they_leave_out() -> None:
    every = Ways(replace(SMALL, layers=7), replace(EIGHT, gpus=12), 20, OURS)
    assert [*every.all()]
    assert set(every.dropped) == set(every.example) and all(every.dropped.values())
    assert every.example["GPUs that share a layer have to divide all GPUs"] == "5 of 12"
