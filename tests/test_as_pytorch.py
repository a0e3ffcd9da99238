"""Whether the programs of solutions/ that are said to do what PyTorch does start the same work in the same order."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.util import find_spec
from typing import Any
from unittest.mock import Mock

import pytest

from lib import run
from lib.course.specs import cost_named
from tests.test_closed_forms import program

pytestmark = pytest.mark.skipif(not find_spec("torch"), reason="NOT COMPARED WITH PYTORCH: torch is not installed")

FULLY_SHARD = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

RANKS, LAYERS = 4, 6
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())  # nothing is sent
mesh = init_device_mesh("cpu", (RANKS,))
blocks = [torch.nn.Linear(8 * (layer + 1), 8 * (layer + 2), bias=False) for layer in range(LAYERS)]
layers = {block.weight.numel(): layer for layer, block in enumerate(blocks)}  # each of another size
whole = torch.nn.Sequential(*blocks)
for block in [*blocks, whole]:
    fully_shard(block, mesh=mesh)

class Calls(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for theirs, ours, whole in ("_allgather_base_", "allgather", 0), ("_reduce_scatter_base_", "scatterreduce", 1):
            if f"c10d.{theirs}." in str(func):
                print(ours, layers[args[whole].numel()])
        return func(*args, **(kwargs or {}))

with Calls():
    whole(torch.randn(3, 8)).sum().backward()
"""
"""Prints the collectives of one step of FSDP2 in the order in which they are started, each with its layer."""


@pytest.mark.process
def test_prefetching_starts_the_collectives_of_fsdp2_in_their_order() -> None:
    done = subprocess.run([sys.executable, "-c", FULLY_SHARD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs = [tuple(line.split()) for line in done.stdout.splitlines()]
    size: dict[str, Any] = {"ranks": 4, "layers": 6, "batches": 4, "cost": cost_named("long_gathers")}
    log = run(program("p12_prefetch", "prefetch"), **size).models[0].log
    ours = [(event.kind, str(event.layer)) for event in log if event.group]
    assert ours == theirs and len(ours) == 18
    late = run(program("p12_prefetch", "fsdp_blocking"), **size).models[0].log
    assert [(event.kind, str(event.layer)) for event in late if event.group] != theirs


def order_of(schedule: str, stage: int, stages: int, batches: int) -> list[tuple[str, int]]:
    """What PyTorch's schedule of that name does on a stage: forwards and backwards of micro-batches."""
    schedules = importlib.import_module("torch.distributed.pipelining.schedules")
    done: list[tuple[str, int]] = []
    stand_in = Mock(_num_stages=stages, _n_microbatches=batches)  # for a schedule with a stage, and nobody to talk to
    stand_in._check_inputs.return_value = ([()] * batches, [{}] * batches)
    stand_in._stage.stage_index, stand_in._stage.is_last = stage, stage == stages - 1
    for messages in ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"):
        getattr(stand_in._stage, messages).return_value = []
    stand_in._stage.forward_one_chunk.side_effect = lambda batch, *_, **__: done.append(("forward", batch))
    stand_in._stage.backward_one_chunk.side_effect = lambda batch, *_, **__: done.append(("backward", batch))
    getattr(schedules, schedule)._step_microbatches(stand_in)
    return done


@pytest.mark.parametrize(("ranks", "batches"), [(2, 2), (4, 4), (4, 8), (5, 16)])
@pytest.mark.parametrize(
    ("schedule", "source", "name"),
    [("Schedule1F1B", "p13_one_f_one_b", "one_f_one_b"), ("ScheduleGPipe", "p06_gpipe", "gpipe")],
)
def test_pipelines_do_their_work_in_the_order_of_pytorchs_schedules(
    schedule: str, source: str, name: str, ranks: int, batches: int
) -> None:
    done = run(program(source, name), ranks=ranks, layers=ranks, batches=batches)
    for model in done.models:
        ours = [(event.kind, *event.batches) for event in model.log if event.kind in ("forward", "backward")]
        assert ours == order_of(schedule, model.rank, ranks, batches)
        assert len(ours) == 2 * batches
