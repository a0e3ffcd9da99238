"""A search over the meshes of a cluster: what it finds are runs, what it leaves out cannot fit or cannot be fast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lib import Plan, Plans, PuzzleError, plan, run
from lib.real import A100_MEGATRON, GPT_175B, H100_DGX, RTX_4090, Transformer
from lib.running import plan as module
from lib.running.plan import ALIKE, Search
from lib.running.sweep import beats
from solutions.p12_prefetch import prefetch
from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p14_interleaved import interleaved

SMALL = Transformer(8, 2048, 16, 1024, 8192, tied=True, name="small")
EIGHT = replace(A100_MEGATRON, gpus=8)
ALL: dict[str, Any] = {"sharded": prefetch, "pipeline": one_f_one_b, "interleaved": interleaved}


def test_each_way_uses_all_gpus_and_the_whole_batch() -> None:
    ways = [*Search(SMALL, EIGHT, 16, ALL).ways()]
    assert {way.name for way in ways} == set(ALL) and len(set(ways)) == len(ways)
    assert {way.replicas * way.stages * way.tensor for way in ways} == {8}
    assert {(way.stages, way.tensor) for way in ways} >= {(1, 1), (2, 1), (4, 2), (8, 1), (2, 4), (1, 8)}
    for way in ways:
        batches = 16 / way.replicas / way.micro_batch
        assert batches == int(batches) >= way.stages
        assert way.name == "interleaved" or way.chunks == 1
    assert not any(
        way.stages > 1 for way in Search(SMALL, EIGHT, 16, {**ALL, "pipeline": None, "interleaved": None}).ways()
    )


@pytest.fixture(scope="module")
def found() -> Plans:
    return plan(SMALL, EIGHT, 16, **ALL)


@pytest.mark.long
def test_plans_are_runs(found: Plans) -> None:
    search = Search(SMALL, EIGHT, 16, ALL)
    for one in found.plans[:12]:
        layers = SMALL.layers if one.stages == 1 else one.stages * one.chunks
        ranks = one.replicas if one.stages == 1 else one.stages
        batches = one.replicas if one.stages == 1 else search.batches(one)
        done = run(ALL[one.name], ranks, layers, batches, cost=search.cost(one), timeout=None)
        reduced = one.seconds - done.seconds  # of the replicas of a pipeline
        if one.stages == 1 or one.replicas == 1:
            assert reduced == pytest.approx(0, abs=1e-7)
        else:
            size, ranks = 2 * SMALL.size / one.stages / one.tensor, one.replicas
            assert reduced > 2 * (ranks - 1) / ranks * size / EIGHT.link
        assert one.bytes == done.bytes


def test_what_is_left_out_could_not_have_been_better(found: Plans) -> None:
    search = Search(SMALL, EIGHT, 16, ALL)
    for one in found.plans:
        assert search.least_bytes(one) <= one.bytes <= EIGHT.room
        assert search.least_seconds(one) <= one.seconds
    assert len(found.plans) < found.tried


def test_what_cannot_fit_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tight = replace(EIGHT, memory=3e9)
    search, ran = Search(SMALL, tight, 16, ALL), list[Plan]()
    monkeypatch.setattr(module, "HOPELESS", float("inf"))
    whole = Search.run
    monkeypatch.setattr(Search, "run", lambda self, way: ran.append(way) or whole(self, way))
    plans = plan(SMALL, tight, 16, **ALL)
    could = [way for way in search.ways() if search.least_bytes(way) <= tight.room]
    assert sorted(ran) == sorted(could) and 0 < len(could) < plans.tried
    assert all(one.bytes <= tight.room for one in plans.plans)


def test_what_is_as_fast_as_the_fastest_is_sorted_by_memory(found: Plans) -> None:
    fastest = min(one.seconds for one in found.plans)
    equal = [one for one in found.plans if one.seconds <= (1 + ALIKE) * fastest]
    assert found.plans[: len(equal)] == sorted(equal, key=lambda one: one.bytes) and len(equal) > 1
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
    assert (
        len(said) == 1 + 20 + 2
        and f"and {len(found.plans) - 20} more" in said[-2]
        and f"{found.tried} ways" in said[-1]
    )
    assert len(found.rows()) == len(found.plans)


def test_the_part_of_the_peak_is_that_of_all_gpus(found: Plans) -> None:
    for one in found.plans[:3]:
        flops = SMALL.model_flops() * 16
        assert one.mfu == pytest.approx(flops / one.seconds / 8 / EIGHT.peak)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: plan(SMALL, H100_DGX, 16, **ALL), r"plan needs the number of GPUs(.|\n)*replace\(cluster, gpus=64\)"),
        (lambda: plan(SMALL, EIGHT, 0, **ALL), "batch must be a whole number from 1 up"),
        (lambda: plan(SMALL, EIGHT, 16), r"no mesh of 8 GPUs holds small(.|\n)*sharded=, pipeline= and interleaved="),
        (lambda: plan(SMALL, EIGHT, 16, sharded="fsdp"), "run takes a function of one model"),  # type: ignore[arg-type]
        (
            lambda: plan(SMALL, replace(RTX_4090, gpus=8, memory=9e9), 2048, sharded=prefetch),
            r"holds small with a batch of 2,048\n +expected: +at most 8.28 GB on a GPU\n +got: +.* GB at the least",
        ),
        (lambda: plan(SMALL, EIGHT, 1, pipeline=one_f_one_b), "no mesh into which layers and batch can be divided"),
        (lambda: plan(GPT_175B, EIGHT, 16, **ALL), "GPT-3 175B fits nowhere on A100 80 GB"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_what_would_do(make: Any, said: str) -> None:
    with pytest.raises(PuzzleError, match=said):
        make()
