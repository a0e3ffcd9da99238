"""Whether lib/engines/torch_order.py says what PyTorch does: each order beside fresh recordings, at several sizes. It
can change when PyTorch does, so each night is soon enough."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lib import run
from lib.engines import torch_order
from lib.engines.torch_order import TORCH, Rank, Step
from tests.marks import compares_with_torch
from tests.test_closed_forms import program
from tests.torch_truth import table
from tests.torch_truth.conftest import recorded

pytestmark = pytest.mark.slow
FIRST_BUCKET, BUCKET = 1.0, 25.0
"""MiB of gradients that fill DDP's first bucket, and each of the others."""


def filled_buckets(sizes: list[int]) -> list[tuple[int, ...]]:
    """Return the layers in each of DDP's buckets, for layers of these sizes in MiB: the last ones first."""
    buckets: list[tuple[int, ...]] = []
    layers: tuple[int, ...] = ()
    for layer in reversed(range(len(sizes))):
        layers = (layer, *layers)
        if layer == 0 or sum(sizes[one] for one in layers) >= (BUCKET if buckets else FIRST_BUCKET):
            buckets.append(layers)
            layers = ()
    return buckets


def test_buckets_are_filled_by_bytes() -> None:
    assert filled_buckets([1] * 6) == [(5,), (0, 1, 2, 3, 4)]


def in_buckets(at: Rank, buckets: list[tuple[int, ...]]) -> list[Step]:
    """DDP where a bucket has several layers: it is summed after the backward of the lowest."""
    filled = {min(layers): layers for layers in buckets}
    steps = [step for step in torch_order.ddp(at) if step.kind != "allreduce" or step.layers[0] in filled]
    return [step._replace(layers=filled[step.layers[0]]) if step.kind == "allreduce" else step for step in steps]


def without_gathers_for_backward(at: Rank, kept: Iterable[int]) -> list[Step]:
    """FSDP2 where some layers are not freed after their forward."""
    steps = torch_order.fully_shard(at)
    followed = pairwise([*steps, torch_order.UPDATE])
    return [
        step
        for step, after in followed
        if step.kind != "allgather" or after.kind == "forward" or step.layers[0] not in kept
    ]


def summed_each_turn(at: Rank) -> list[Step]:
    """FSDP2 on a mesh of replicas, which sum after every micro-batch: the default."""
    alone = torch_order.fully_shard(at._replace(twins=()))
    sums = [[Step("allreduce", step.layers, None, at.twins)] * (step.kind == "scatterreduce") for step in alone]
    return [one for step, summed in zip(alone, sums, strict=True) for one in [step, *summed]]


ORDERS: dict[str, Callable[[Rank], list[Step]]] = {
    "plain": torch_order.plain,
    "ddp": torch_order.ddp,
    "ddp, first step": lambda at: in_buckets(at, [tuple(range(at.layers))]),
    "ddp, layers of 1 MiB": lambda at: in_buckets(at, filled_buckets([1] * at.layers)),
    "ddp, layers of 10 MiB": lambda at: in_buckets(at, filled_buckets([10] * at.layers)),
    "ddp, no_sync": torch_order.ddp,
    "fully_shard": torch_order.fully_shard,
    "fully_shard, kept": lambda at: without_gathers_for_backward(at, range(at.layers)),
    "fully_shard, last kept": lambda at: without_gathers_for_backward(at, [at.layers - 1]),
    "fully_shard, root not wrapped": lambda at: without_gathers_for_backward(at, range(at.layers)),
    "hybrid": summed_each_turn,
    "hybrid, reduced across once": torch_order.fully_shard,
    "ScheduleGPipe": torch_order.gpipe,
    "Schedule1F1B": torch_order.one_f_one_b,
    "ScheduleInterleaved1F1B": torch_order.interleaved,
    "ScheduleLoopedBFS": torch_order.looped_bfs,
    "ScheduleInterleavedZeroBubble": torch_order.zero_bubble,
    "ScheduleZBVZeroBubble": torch_order.zbv,
    "ScheduleDualPipeV": torch_order.dual_pipe_v,
}


def steps(one: list[Any]) -> list[Step]:
    """What a rank has started, without receives: which of them it needs follows from its work."""
    made = [Step(kind, tuple(layers), turn, tuple(group)) for kind, layers, turn, group in one]
    return [step for step in made if step.kind not in ("receive", "together")]


def place(of: dict[str, Any], rank: int) -> Rank:
    """The rank of a recording."""
    every = range(of["ranks"])
    members = tuple(every)
    if "replicas" in of:
        shards = of["ranks"] // of["replicas"]
        first = rank // shards * shards
        members = tuple(range(first, first + shards))
        twins = tuple(range(rank % shards, of["ranks"], shards))
        return Rank(rank - first, members, of["layers"], of["turns"], twins)
    return Rank(rank, members, of["layers"], of["turns"])


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_is_that_of_pytorch(truth: dict[str, Any], name: str) -> None:
    assert truth["found"][name]
    for one in truth["found"][name]:
        assert len(one["each"]) == one["ranks"]
        for rank, each in enumerate(one["each"]):
            at = place(one, rank)
            assert " ".join(map(str, steps(each))) == " ".join(map(str, ORDERS[name](at))), (name, at)
            assert steps(each) == ORDERS[name](at), (name, at)


def test_the_version_that_the_orders_name_is_the_one_recorded(truth: dict[str, Any]) -> None:
    major, minor = truth["torch"].split(".")[:2]
    said = f"recorded from PyTorch {torch_order.TORCH}; this is {truth['torch']}"
    assert f"{major}.{minor}" == torch_order.TORCH, f"{said}: if all else is green, write the new version there"


REAL = (
    "ddp",
    "fully_shard",
    "ScheduleGPipe",
    "Schedule1F1B",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleZBVZeroBubble",
    "ScheduleDualPipeV",
)


@pytest.mark.process
@compares_with_torch
def test_real_processes_start_what_the_fake_group_starts(truth: dict[str, Any], tmp_path: Path) -> None:
    def real(rank: int) -> dict[str, Any]:
        said = ("--world", "2", "--rank", str(rank), "--file", str(tmp_path / "store"))
        return recorded(*REAL, *said)["found"]  # type: ignore[no-any-return]

    with ThreadPoolExecutor(2) as both:
        ranks = list(both.map(real, range(2)))
    for name in REAL:
        fake = [one["each"] for one in truth["found"][name] if one["ranks"] == 2]
        assert fake and fake == [
            [*zero["each"], *one["each"]] for zero, one in zip(*[one[name] for one in ranks], strict=True)
        ]


@pytest.mark.parametrize("name", ["ScheduleGPipe", "Schedule1F1B"])
def test_receives_too_stand_where_pytorch_has_them(truth: dict[str, Any], name: str) -> None:
    """These two schedules ask for a message when it is needed, as our programs do."""
    ours = {"ScheduleGPipe": ("p06_gpipe", "gpipe"), "Schedule1F1B": ("p13_one_f_one_b", "one_f_one_b")}[name]
    for one in truth["found"][name]:
        done = run(program(*ours), one["ranks"], one["layers"], one["turns"])
        for model, each in zip(done.models, one["each"], strict=True):
            kinds = ("forward", "backward", "pass_to", "receive")
            mine = [(event.kind, *event.batches, *event.group) for event in model.log if event.kind in kinds]
            its = [(kind, turn, *group) for kind, _, turn, group in each if kind in kinds]
            assert mine == its and len(mine) >= 2 * one["turns"]


def test_the_table_says_what_is(truth: dict[str, Any]) -> None:
    said = (Path(__file__).parent / "TABLE.md").read_text(encoding="utf-8").splitlines()
    now = table.lines(truth)
    for before, after in zip(said, now, strict=True):
        assert before == after, (
            f"PyTorch {truth['torch']} or a program of ours has changed its mind. The table said:\n    {before}\n"
            f"and what is recorded now is:\n    {after}\nIf the change is PyTorch's, correct the orders in "
            "lib/engines/torch_order.py and what the notebooks say of it, then make the table anew: "
            "python -m tests.torch_truth.table > tests/torch_truth/TABLE.md"
        )
    assert TORCH in said[0]
