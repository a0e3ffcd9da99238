"""A search over the meshes of a cluster: what it finds are runs, what it leaves out cannot fit or cannot be fast."""

import re
from ast import literal_eval
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
from lib.study import plan as module
from lib.study import planned
from lib.study.alternatives import _less, what_would_do
from lib.study.least import soonest
from lib.study.plan import EQUALLY_FAST, OF_ADAPTERS, OURS, Search
from lib.study.sweep import beats
from lib.study.ways import WHOLE, Ways
from solutions.p12_prefetch import prefetch
from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p14_interleaved import interleaved

SMALL = Transformer(8, 2048, 16, 1024, 8192, tied=True, name="small")
EIGHT = replace(A100_MEGATRON, gpus=8)
TWO_NODES = replace(H100_DGX, gpus=8, gpus_per_box=4, nic=5e9)
YOURS: dict[str, Any] = {"sharded": prefetch, "pipeline": one_f_one_b, "interleaved": interleaved}


# -- the programs that are tried -------------------------------------------------------------------------


MESHES: list[tuple[str, dict[str, int], int, int]] = [
    ("sharded", {"replica": 1, "shard": 8}, 6, 16),
    ("sharded", {"replica": 1, "shard": 1}, 3, 2),
    ("hybrid", {"replica": 2, "shard": 4}, 3, 24),
    ("copies", {"node": 2, "shard": 4}, 6, 16),
    ("pipeline", {"replica": 1, "stage": 4}, 4, 6),
    ("interleaved", {"replica": 2, "stage": 4}, 12, 16),
    ("interleaved", {"replica": 4, "stage": 2}, 6, 16),
]
ZERO1 = [("zero1", {"replica": 1, "shard": 4}, 5, 12), ("zero1", {"replica": 1, "shard": 1}, 3, 2)]
TRAINED = [(*one, train, hosts) for hosts in (False, True) for train in ("weights", "adapters") for one in MESHES]
TRAINED += [(*one, "weights", False) for one in ZERO1]  # plan has it for weights whose states are on devices


@pytest.mark.parametrize(("name", "mesh", "layers", "batches", "train", "hosts"), TRAINED)
def test_its_programs_train_the_model(
    name: str, mesh: dict[str, int], layers: int, batches: int, train: str, hosts: bool
) -> None:
    programs, ranks = {"weights": OURS, "adapters": OF_ADAPTERS}[train], prod(mesh.values())
    done = run(programs[name], ranks, layers, batches, mesh=mesh, node_size=4, train=train, hosts=ranks * hosts)
    done.verify()
    assert {event.rank >= ranks for event in done.events if event.kind == "update"} == {hosts}


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
    assert {way.name for way in found} == {"sharded", "hybrid", "copies", "zero1"}
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
    assert {way.expert_parallel for way in ways(sparse)} == {1, 2, 4, 8}
    assert {way.expert_parallel for way in ways(sparse) if way.name == "sharded"} == {1, 2, 4, 8}
    found = plan(replace(MIXTRAL_8X7B, layers=4, sequence=4096), replace(H100_DGX, gpus=16, memory=40e9), 16)
    assert found.best.expert_parallel > 1


def agrees(one: Plan, rel: float = 0.03) -> None:
    """Its figures are those of a run of its program."""
    assert one.program is not None and one.cost is not None
    done = run(one.program, **one.size, timeout=None)
    assert done.seconds == pytest.approx(one.seconds, rel=rel), one
    assert done.bytes == pytest.approx(one.bytes, rel=rel), one
    if one.states_on_hosts:
        assert one.cost.cluster.gpus_per_box * done.host_memory == pytest.approx(one.host_bytes, rel=rel), one


@pytest.mark.parametrize("given", [{"adapter_rank": 16}, {"adapter_rank": 64, "frozen_bits": 4}], ids=["16 bits", "4"])
def test_adapters_are_planned_and_take_what_a_run_takes(given: dict[str, Any], found: Plans) -> None:
    made = plan(SMALL, TWO_NODES, 16, **given)
    search, seen = Search(SMALL, TWO_NODES, 16, **given), set[tuple[str, bool]]()
    for way in search.ways():
        if way.tensor == 2 and (kind := (way.name, way.replicas > 1)) not in seen:
            seen.add(kind)
            one = search.run(way)
            assert one.program in OF_ADAPTERS.values() and one.size["train"] == "adapters"
            assert search.least_seconds(way) <= one.seconds and search.least_bytes(way) <= one.bytes
            agrees(one)
    assert {name for name, _ in seen} == set(OF_ADAPTERS) and len(seen) > 5
    assert made.best.seconds < 0.85 * min(one.seconds for one in found.plans)
    assert min(one.bytes for one in made.plans) < min(one.bytes for one in found.plans)
    run(made.best.program, **{name: value for name, value in made.best.size.items() if name != "represent"}).verify()  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [40, 44])
def test_pipelines_with_slow_messages_are_known_from_two_short_runs(batch: int) -> None:
    """Single micro-batches do not take equally long there, rounds of as many as there are stages do."""
    search = Search(SMALL, TWO_NODES, batch)
    for way in search.ways():
        if way.stages == 4 and way.recompute == "selective" and way.micro_batch == 1 and not way.split:
            agrees(search.run(way))


def test_states_on_hosts_take_what_a_run_takes() -> None:
    search = Search(SMALL, replace(TWO_NODES, host_bandwidth=2e12), 16, hosts=True)
    seen = set()
    for way in search.ways():
        kind = way.name, way.replicas > 1
        if way.states_on_hosts and not way.offload and way.tensor == 2 and kind not in seen:
            seen.add(kind)
            there, here = search.run(way), search.run(way._replace(states_on_hosts=False))
            agrees(there)
            assert there.bytes < here.bytes and there.host_bytes > 0 == here.host_bytes
            assert search.least_seconds(way) <= there.seconds and search.least_bytes(way) <= there.bytes
    assert {name for name, _ in seen} == {"sharded", "hybrid", "copies", "pipeline", "interleaved"} and len(seen) > 5


@pytest.mark.slow
def test_what_gpus_have_no_room_for_is_planned_with_hosts() -> None:
    tight = replace(EIGHT, memory=1.05e9)
    with pytest.raises(PuzzleError, match=r"expected: +(.|\n)*hosts=True"):
        plan(SMALL, tight, 16)
    found = plan(SMALL, tight, 16, hosts=True)
    assert found.best.states_on_hosts and "states on hosts" in str(found)
    agrees(found.best)
    assert all(one.states_on_hosts for one in found.plans) and found.best.host_bytes > 4e9
    with pytest.raises(PuzzleError, match="no mesh of 8 GPUs holds small"):
        plan(SMALL, replace(tight, host_memory=4e9), 16, hosts=True)


@pytest.mark.slow
def test_fsdp_may_keep_weights_in_4_bytes() -> None:
    """As PyTorch's does, which gathers them in 2; a stage of a pipeline has main weights beside its own either way."""
    four = Search(SMALL, TWO_NODES, 16, stored=4, gathered=2, reduced=4)
    two, seen = Search(SMALL, TWO_NODES, 16), set[str]()
    for way in four.ways():
        if way.name not in seen and way.tensor == 1 and way.stages < 8:
            seen.add(way.name)
            one, other = four.run(way), two.run(way)
            assert four.least_seconds(way) <= one.seconds and four.least_bytes(way) <= one.bytes
            agrees(one)
            assert (one.bytes == other.bytes) == (way.name in WHOLE), way
    assert len(seen) == 6 and plan(SMALL, TWO_NODES, 16, stored=4, gathered=2, gradients=4).best.cost is not None
    with pytest.raises(PuzzleError, match="stored must be the bytes of a number"):
        plan(SMALL, EIGHT, 16, stored=0)


def test_norms_are_shared_or_not() -> None:
    def of(**given: Any) -> Plan:
        search = Search(SMALL, EIGHT, 16, **given)
        return search.run(next(way for way in search.ways() if way.name == "pipeline" and way.tensor == 4))

    shared, whole = of(), of(sequence_parallel=False)
    assert (
        shared.bytes < whole.bytes and not plan(SMALL, EIGHT, 16, sequence_parallel=False).best.cost.sequence_parallel
    )  # type: ignore[union-attr]


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
        agrees(one)
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
    cases = [(SMALL, EIGHT), (SMALL, TWO_NODES), (replace(SMALL, layers=7), EIGHT), (sparse, TWO_NODES)]
    long = replace(SMALL, sequence=32_768, attention="flash")
    for (model, cluster), each in zip([*cases, (long, TWO_NODES)], (11, 11, 11, 17, 29), strict=True):
        search = Search(model, cluster, 16)
        for way in search.ways()[::each]:
            done = search.run(way)
            assert search.least_seconds(way) <= search.soonest(way) <= done.seconds, way
            assert search.least_bytes(way) <= done.bytes, way


def test_bounds_are_near_to_what_pipelines_take() -> None:
    """Those that are near decide what is run: a looser one would only cost time."""
    search = Search(SMALL, EIGHT, 16)
    some = [way for way in search.ways() if way.stages > 1 and way.replicas == 1 and way.batches > way.stages][::3]
    for way in some:
        done = search.run(way)
        assert 0.95 < search.soonest(way) / done.seconds <= 1 and 0.97 < search.least_bytes(way) / done.bytes <= 1, way
    assert len(some) > 5


@pytest.mark.parametrize(
    ("layers", "stages", "chunks", "batches"), [(4, 4, 1, 9), (12, 4, 3, 16), (8, 4, 2, 4), (6, 2, 3, 12)]
)
def test_a_pipeline_without_messages_is_done_at_the_soonest(
    layers: int, stages: int, chunks: int, batches: int
) -> None:
    free = Cost(forward=1, backward=2, loss=0.5, send=0, receive=0, update=0.25)
    done = run(planned.pipelined, stages, layers, batches, mesh={"replica": 1, "stage": stages}, cost=free)
    back = [2.0] * (layers - 1) + [2.5]
    known = soonest(stages, layers, batches, forward=[1.0] * layers, backward=back, after=lambda stage: 0.25 * chunks)
    assert known == done.time


@pytest.mark.parametrize(
    ("layers", "gpus", "batch"),
    [(7, 8, 16), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((13, 4, 32), (22, 4, 40)))],
)
def test_chunks_of_different_sizes_take_what_a_run_takes(layers: int, gpus: int, batch: int) -> None:
    """Their rounds become even later: from two rounds a step was up to 5 percent too fast, and 3 percent too small."""
    search = Search(replace(SMALL, layers=layers), replace(A100_MEGATRON, gpus=gpus), batch)
    some = [way for way in search.ways() if way.split and way.chunks > 1 and way.replicas == 1]
    some = [way for way in some if way.recompute == "selective" and search.batches(way) > 3 * way.stages]
    assert some
    for way in some:
        agrees(search.run(way), rel=1e-4)


SPLIT = replace(SMALL, layers=10, attention="flash", name="split")


@pytest.mark.parametrize(
    ("model", "cluster", "given"),
    [
        (SMALL, replace(EIGHT, memory=3e9), {}),
        pytest.param(SMALL, TWO_NODES, {"adapter_rank": 16}, marks=pytest.mark.slow),
        pytest.param(SPLIT, TWO_NODES, {}, marks=pytest.mark.slow),
        pytest.param(SMALL, replace(EIGHT, memory=1.3e9), {"hosts": True}, marks=pytest.mark.slow),
    ],
    ids=["small", "adapters", "split", "hosts"],
)
def test_what_is_left_out_changes_neither_the_best_nor_the_front(
    model: Transformer, cluster: Any, given: dict[str, Any]
) -> None:
    """Every way is run here, whatever is known of it beforehand."""
    search = Search(model, cluster, 16, **given)
    every = [done for done in map(search.run, search.ways()) if search.fits(done)]
    fastest = min(one.seconds for one in every)
    found = plan(model, cluster, 16, **given)
    whole = Plans([one for one in every if search.soonest(one) <= module.HOPELESS * fastest], 1)
    assert found.best.figures == whole.best.figures
    assert {one.figures for one in found.front()} == {one.figures for one in whole.front()}
    assert len(found.plans) < len(every)


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
    known = sum(many for why, (many, _) in plans.dropped.items() if why.split()[0] in ("more", "1.2", "slower", "ran,"))
    hidden = sum(many for why, (many, _) in plans.dropped.items() if why.startswith("gathers"))
    assert known + hidden + len(plans.plans) == plans.tried


def test_seconds_decide_and_memory_where_it_is_near_the_limit(found: Plans) -> None:
    fastest = min(one.seconds for one in found.plans)
    equal = [one for one in found.plans if one.seconds <= (1 + EQUALLY_FAST) * fastest]
    assert found.plans[: len(equal)] == equal == sorted(equal, key=lambda one: one.figures)
    tight = Plans(found.plans, 1, room=equal[0].bytes / 0.995)
    assert tight.plans[0] == next(one for one in equal if not tight.is_near(one)) != equal[0]
    assert tight.plans[0].bytes < equal[0].bytes and "!: near the limit: the fastest of these leaves" in str(tight)
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


@pytest.mark.parametrize(
    ("model", "gpus", "batch", "seconds"),
    [(LLAMA_3_8B, 8, 64, 6.6), pytest.param(LLAMA_3_70B, 64, 512, 65, marks=pytest.mark.slow)],
)
def test_accumulation_is_faster_than_a_pipeline_where_it_fits(model: Any, gpus: int, batch: int, seconds: int) -> None:
    """Llama 3 on 8 GPUs, and on 64: a pipeline came first as long as FSDP could not accumulate."""
    best = plan(model, replace(H100_DGX, gpus=gpus), batch).best
    assert best.name == "sharded" and best.batches > best.replicas and best.seconds < seconds


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
        (lambda: plan(SMALL, EIGHT, 16, hosts="yes"), "hosts"),  # type: ignore[arg-type]
        (lambda: plan(SMALL, EIGHT, 16, sequence_parallel=1), "sequence_parallel=True, or False"),  # type: ignore[arg-type]
        (lambda: plan(SMALL, EIGHT, 16, adapter_rank=0), "adapter_rank must be a whole number from 1 up"),
        (lambda: plan(SMALL, EIGHT, 16, frozen_bits=4), r"so few bits are not trained(.|\n)*adapter_rank=16"),
        (lambda: plan(SMALL, EIGHT, 16, adapter_rank=4, frozen_bits=99), "frozen_bits must be the bits of a number"),
        (lambda: plan(SMALL, EIGHT, 16, gradients=0), "gradients must be the bytes of a number"),
        (lambda: plan(SMALL, EIGHT, 16, optimizer="lion"), "there is no such optimizer"),
        (
            lambda: plan(SMALL, replace(RTX_4090, gpus=8, memory=9e9), 2048, sharded=prefetch),
            r"with a batch of 2,048\n +expected: +at most 8.28 GB on a GPU; or .*\n +got: +.* at the least",
        ),
        (lambda: plan(SMALL, EIGHT, 1, pipeline=one_f_one_b), "no mesh into which layers and batch can be divided"),
        *[(lambda of=of: plan(SMALL, EIGHT, 16, **{of: lambda model: model}), "not attempted yet") for of in YOURS],
        (lambda: plan(GPT_175B, EIGHT, 16), "GPT-3 175B fits nowhere on A100 80 GB"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_what_would_do(make: Any, said: str) -> None:
    with pytest.raises(PuzzleError, match=said):
        make()


# -- what a refusal advises ------------------------------------------------------------------------------


def followed(advice: str, model: Transformer, cluster: Any, batch: int, given: dict[str, Any]) -> Plans:
    """Do what one piece of advice says."""
    for part in advice.split(" with "):
        if found := re.fullmatch(r"(?:more GPUs \()?([\d,]+)(?: GPUs|\))", part):
            cluster = replace(cluster, gpus=int(found[1].replace(",", "")))
        elif found := re.fullmatch(r"a batch of ([\d,]+)", part):
            batch = int(found[1].replace(",", ""))
        elif found := re.fullmatch(r"sequences of ([\d,]+) tokens", part):
            model = replace(model, sequence=int(found[1].replace(",", "")))
        elif found := re.fullmatch(r"a model of ([\d,]+) layers", part):
            model = replace(model, layers=int(found[1].replace(",", "")))
        elif part == "no programs of yours":
            given = {name: value for name, value in given.items() if name not in YOURS}
        else:
            name, value = part.split("=")
            given = {**given, name: literal_eval(value)}
    return plan(model, cluster, batch, **given)


def advised(model: Transformer, cluster: Any, batch: int, given: dict[str, Any]) -> list[str]:
    """Return each piece of advice of a refusal; none if there is a plan."""
    try:
        plan(model, cluster, batch, **given)
    except PuzzleError as error:
        assert "fits nowhere" in error.problem or "no mesh of" in error.problem
        return re.split(r", or | or |, ", error.expected.rpartition("; or ")[2])
    return []


LONG = replace(SMALL, sequence=65_536, attention="flash", gated=True, tied=False, name="long")
SPARSE = replace(SMALL, gated=True, attention="flash", experts=8, chosen=2, expert_hidden=2048, layers=6, name="sparse")
REFUSED: list[Any] = [
    (SMALL, 7, 80e9, 16, {"sharded": prefetch}),
    (SMALL, 8, 80e9, 1, {"pipeline": one_f_one_b}),
    (SMALL, 1, 2e9, 4, {}),
    (SMALL, 8, 0.4e9, 16, {"optimizer": "sgd"}),
    pytest.param(SMALL, 8, 0.3e9, 16, {"hosts": True}, marks=pytest.mark.slow),
    (SMALL, 8, 0.1e9, 16, {"adapter_rank": 16}),
    (SMALL, 13, 80e9, 5, {}),
    (LONG, 4, 2e9, 8, {}),
    (SPARSE, 3, 0.7e9, 7, {"gradients": 2}),
]


@pytest.mark.parametrize(("model", "gpus", "memory", "batch", "given"), REFUSED)
def test_what_a_refusal_advises_gives_a_plan(
    model: Transformer, gpus: int, memory: float, batch: int, given: dict[str, Any]
) -> None:
    cluster = replace(A100_MEGATRON, gpus=gpus, memory=memory)
    said = advised(model, cluster, batch, given)
    assert said
    for one in said:
        assert followed(one, model, cluster, batch, given).plans, one


@pytest.mark.parametrize("sequence", [32_768, 65_536])
def test_shorter_sequences_and_fewer_layers_are_advised_where_they_are_enough(sequence: int) -> None:
    """One GPU, and nobody has more of them: no other argument helps, since what is computed needs the room."""
    long = replace(SMALL, layers=4, hidden=512, heads=8, sequence=sequence, attention="flash", vocabulary=50_000)
    alone = Search(long, replace(A100_MEGATRON, gpus=1, memory=2e9), 1)
    said = [*_less(alone)]
    assert said[0].startswith("sequences of ")
    for one in said:
        assert followed(one, long, alone.cluster, 1, {}).plans, one
    twice = replace(long, sequence=2 * int(said[0].split()[2].replace(",", "")))
    with pytest.raises(PuzzleError):
        plan(twice, alone.cluster, 1)


def test_nothing_is_advised_that_was_not_tried() -> None:
    tiny = Search(SMALL, replace(A100_MEGATRON, gpus=1, memory=1e6), 1)
    assert [*_less(tiny)] == [] and "no change that plan knows was enough" in what_would_do(tiny)


def test_ways_count_what_they_leave_out() -> None:
    every = Ways(replace(SMALL, layers=7), replace(EIGHT, gpus=12), 20, OURS)
    assert [*every.all()]
    assert set(every.dropped) == set(every.example) and all(every.dropped.values())
    assert every.example["GPUs that share a layer have to divide all GPUs"] == "5 of 12"
