"""Rows of a schedule on PyTorch's own pipeline, with real stages: a rank of it, connected to the others by gloo.

``python -m tests.torch_truth.stages RANK FILE CSV...``: FILE is where the ranks find each other, and there is a row of
each CSV for each rank. Prints for each CSV by how much the gradients differ from those that autograd gives the whole
model, as a part of the largest.
"""

import csv
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from lib import schedule

WIDTH = 8


def layer(index: int) -> torch.nn.Module:
    torch.manual_seed(index)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).double()


def loss(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((out - target) ** 2).sum()


def difference(file: str, rank: int) -> float:
    """Train a step by the rows of a file, and compare the gradients of this rank's stages."""
    plan = schedule(file)
    mine = [stage for stage, owner in plan.rank_of.items() if owner == rank]
    modules = [layer(stage) for stage in mine]
    stages = [
        PipelineStage(module, stage, plan.stages, torch.device("cpu"))
        for module, stage in zip(modules, mine, strict=True)
    ]
    runtime = _PipelineScheduleRuntime(stages, plan.micro_batches, loss_fn=loss, scale_grads=False)
    runtime._load_csv(file, format="compute_only")
    torch.manual_seed(1000)
    inp, target = torch.randn(2, 2 * plan.micro_batches, WIDTH, dtype=torch.float64)
    last = plan.stages - 1 in mine
    runtime.step(*([inp] if 0 in mine else []), **({"target": target, "losses": []} if last else {}))

    whole = [layer(stage) for stage in range(plan.stages)]
    loss(torch.nn.Sequential(*whole)(inp), target).backward()
    pairs = [
        (ours.grad, theirs.grad)
        for stage, module in zip(mine, modules, strict=True)
        for ours, theirs in zip(module.parameters(), whole[stage].parameters(), strict=True)
    ]
    assert pairs
    return max(float((ours - theirs).abs().max() / theirs.abs().max()) for ours, theirs in pairs)


if __name__ == "__main__":
    rank, meet, *files = sys.argv[1:]
    with Path(files[0]).open() as rows:
        ranks = len([*csv.reader(rows)])
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=int(rank), world_size=ranks)
    print(*[difference(file, int(rank)) for file in files])
    dist.destroy_process_group()
