"""What PyTorch starts in a training step, recorded: every piece of work, collective and message of a rank, in order.

A program of its own, since torch has one world a process: ``python -m tests.torch_truth.record`` records everything
and prints it as JSON, with torch's version. Ranks are played one after the other on torch's fake process group, which
starts everything and sends nothing. With ``--rank``, ``--world`` and ``--file`` it is one of several real processes,
connected by gloo: so it is proved that the fake group starts the same.

What is computed is seen by an autograd function and by torch's ``PipelineStage``, updates by a hook of the optimizer,
collectives and messages by a dispatch mode, which sees each operator of ``c10d``: no hook that is public sees them all.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, schedules
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

Step = tuple[str, tuple[int, ...], int | None, tuple[int, ...]]
"""What is started (one of our verbs), the layers, the turn of the micro-batch on this rank, the ranks of the group."""

notes: list[Step] = []
WORLD: dict[str, Any] = {}
"""How this process is connected: empty for the fake group."""


def note(kind: str, layers: tuple[int, ...] = (), turn: int | None = None, group: tuple[int, ...] = ()) -> None:
    notes.append((kind, layers, turn, group))


class Noted(torch.autograd.Function):
    """A matrix product that is noted, forward and backward."""

    @staticmethod
    def forward(ctx: Any, inp: Any, weight: Any, layer: int, turn: int) -> Any:
        note("forward", (layer,), turn)
        ctx.save_for_backward(inp, weight)
        ctx.what = (layer,), turn
        return inp @ weight

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        note("backward", *ctx.what)
        inp, weight = ctx.saved_tensors
        return grads[0] @ weight.T, inp.T @ grads[0], None, None


class Layer(torch.nn.Module):
    """A matrix. Each layer has another size, by which its collectives are known."""

    turn = 0

    def __init__(self, layer: int, rows: int, columns: int) -> None:
        super().__init__()
        self.layer = layer
        self.weight = torch.nn.Parameter(torch.zeros(rows, columns))

    def forward(self, inp: Any) -> Any:
        return Noted.apply(inp, self.weight, self.layer, Layer.turn)


class Wide(Layer):
    """A layer of which only the first columns are used, so that all can be equally large."""

    def forward(self, inp: Any) -> Any:
        return super().forward(inp).narrow(1, 0, 8)


def stack(layers: int) -> torch.nn.Sequential:
    """So many layers, one after the other."""
    return torch.nn.Sequential(*[Layer(one, 8 * (one + 1), 8 * (one + 2)) for one in range(layers)])


def train(
    model: Any, optimizer: Any, turns: int, before: Callable[[int], object] = lambda turn: None, shards: int = 1
) -> None:
    """One step of training on so many micro-batches. ``before``: called before each of them."""
    with Collectives(model, shards):
        for Layer.turn in range(turns):
            before(Layer.turn)
            model(torch.zeros(2, 8)).sum().backward()
        optimizer.step()


def noting(parameters: Any) -> Any:
    """An optimizer whose step is noted."""
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: note("update"))
    return optimizer


KINDS = {"_allgather_base_": "allgather", "_reduce_scatter_base_": "scatterreduce", "allreduce_": "allreduce"}


class Collectives(TorchDispatchMode):
    """Notes every collective that carries layers of a model. ``shards``: of a gradient that is all-reduced."""

    def __init__(self, model: torch.nn.Module, shards: int = 1) -> None:
        super().__init__()
        self.sizes = {layer.layer: layer.weight.numel() for layer in model.modules() if isinstance(layer, Layer)}
        self.known = {size: layer for layer, size in self.sizes.items()}
        self.shards = shards
        self.left: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = func._schema.name.partition("::")
        if namespace == "c10d":
            if name not in KINDS:
                assert name == "broadcast_", name  # DDP tells others of its buckets, once
            else:
                self.collective(KINDS[name], args)
        return func(*args, **(kwargs or {}))

    def collective(self, kind: str, args: Any) -> None:
        group = tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(args[2 if kind != "allreduce" else 1])))
        if kind == "allreduce":
            note(kind, self.bucket(args[0][0].numel()), None, group)
            return
        whole, piece = args[:2] if kind == "allgather" else args[1::-1]
        assert whole.numel() == len(group) * piece.numel()
        note(kind, (self.known[whole.numel()],), None, group)

    def bucket(self, size: int) -> tuple[int, ...]:
        """The layers that an all-reduce carries: a shard of one, or all of one or of several, from the top down."""
        if self.shards > 1:
            return (self.known[size * self.shards],)
        if not self.left:
            self.left = sorted(self.sizes, reverse=True)
        taken = []
        while size > 0:
            taken.append(self.left.pop(0))
            size -= self.sizes[taken[-1]]
        assert size == 0
        return tuple(sorted(taken))


def plain(layers: int, turns: int) -> None:
    """Training without anybody else."""
    model = stack(layers)
    train(model, noting(model.parameters()), turns)


def ddp(layers: int, turns: int, steps: int = 2, mib: int = 0, sync: bool = True) -> None:
    """Several steps of DDP; the last is kept. ``mib``: the size of a layer, or each fills a bucket of its own."""
    model = stack(layers)
    if mib:
        model = torch.nn.Sequential(*[Wide(one, 8, mib * 2**15) for one in range(layers)])
    wrapped = DistributedDataParallel(model, bucket_cap_mb=None if mib else 1e-6, init_sync=False)
    if not WORLD:
        wrapped.register_comm_hook(None, lambda _, bucket: summed(bucket))
    optimizer = noting(wrapped.parameters())
    for _ in range(steps):
        notes.clear()
        with Collectives(model):
            for Layer.turn in range(turns):
                late = not sync and Layer.turn < turns - 1
                wrapped.require_backward_grad_sync = not late  # what no_sync() sets
                wrapped(torch.zeros(2, 8)).sum().backward()
            optimizer.step()


def summed(bucket: Any) -> Any:
    """What DDP does with a bucket, in Python: on the fake group its own all-reduce has no result."""
    dist.all_reduce(bucket.buffer(), async_op=True)
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def sharded(layers: int, turns: int, how: str = "", replicas: int = 1) -> None:
    """A step of ``fully_shard``, wrapped and called as said by ``how``."""
    ranks = dist.get_world_size()
    if replicas == 1:
        mesh = init_device_mesh("cpu", (ranks,))
    else:
        mesh = init_device_mesh("cpu", (replicas, ranks // replicas), mesh_dim_names=("replica", "shard"))
    model = stack(layers)
    for block in model:
        keeps = how in ("kept", "gathered once") or (how == "last kept" and block.layer == layers - 1)
        fully_shard(block, mesh=mesh, reshard_after_forward=False if keeps else None)
    if how != "root not wrapped":
        fully_shard(model, mesh=mesh)

    def before(turn: int) -> None:
        last = turn == turns - 1
        if how == "across once":
            model.set_requires_all_reduce(last)
        if how == "gathered once":
            model.set_reshard_after_backward(last)
            model.set_requires_gradient_sync(last)

    train(model, noting(model.parameters()), turns, before, ranks // replicas)


class Stage(PipelineStage):
    """A stage that notes its work, and of what each message is."""

    def __init__(self, index: int, stages: int) -> None:
        example = torch.ones(1, 8)
        self.number = index
        super().__init__(
            torch.nn.Linear(8, 8, bias=False),
            index,
            stages,
            torch.device("cpu"),
            input_args=example.clone().requires_grad_(index > 0),
            output_args=example.clone().requires_grad_(),
        )

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        note("forward", (self.number,), fwd_chunk_id)
        return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, full_backward: bool = True, **kwargs: Any) -> Any:
        note("backward" if full_backward else "backward_input", (self.number,), bwd_chunk_id)
        return super().backward_one_chunk(bwd_chunk_id, *args, full_backward=full_backward, **kwargs)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        note("backward_weight", (self.number,), bwd_chunk_id)
        return super().backward_weight_one_chunk(bwd_chunk_id, *args, **kwargs)

    def _labeled(self, ops: Any, layer: int, turn: int) -> Any:
        for op in ops:
            labels[op.tensor.data_ptr()] = layer, turn
        return ops

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> Any:
        return self._labeled(super().get_fwd_recv_ops(fwd_chunk_id), self.number, fwd_chunk_id)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> Any:
        return self._labeled(super().get_fwd_send_ops(fwd_chunk_id), self.number + 1, fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> Any:
        return self._labeled(super().get_bwd_recv_ops(bwd_chunk_id), self.number + 1, bwd_chunk_id)

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> Any:
        return self._labeled(super().get_bwd_send_ops(bwd_chunk_id), self.number, bwd_chunk_id)


labels: dict[int, tuple[int, int]] = {}
"""Where the tensor of a message that is to be started lies in memory; the layer that it goes into, and the turn."""


class Messages(TorchDispatchMode):
    """Notes every message of a pipeline. On the fake group what is received is filled with ones."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = func._schema.name.partition("::")
        if namespace == "c10d":
            [tensor] = args[0]
            rank, other = dist.get_rank(), args[2]
            if tensor.data_ptr() in labels:
                layer, turn = labels.pop(tensor.data_ptr())
                pair = (rank, other) if name == "send" else (other, rank)
                note({"send": "pass_to", "recv_": "receive"}[name], (layer,), turn, pair)
            else:
                assert tensor.dtype == torch.int32, name  # the stages ask each other whether sizes are known
            if name == "recv_" and not WORLD:
                tensor.fill_(1)
        return func(*args, **(kwargs or {}))


def pipeline(layers: int, turns: int, schedule: str) -> None:
    """A step of a schedule, with one layer in a stage."""
    ranks, rank, count = dist.get_world_size(), dist.get_rank(), layers
    in_a_v = schedule in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
    mine = [rank, count - 1 - rank] if in_a_v else list(range(rank, count, ranks))
    stages = [Stage(index, count) for index in mine]
    which = getattr(schedules, schedule)
    single = issubclass(which, schedules.PipelineScheduleSingle)
    plan = which(stages[0] if single else stages, turns, loss_fn=lambda out, target: (out - target).sum())
    target = {"target": torch.ones(turns, 8)} if count - 1 in mine else {}
    together = dist.batch_isend_irecv

    def batch(ops: Any) -> Any:
        note("together", (), len(ops))
        return together(ops)

    with Messages(), patch.object(dist, "batch_isend_irecv", batch):
        plan.step(*([torch.ones(turns, 8)] if 0 in mine else []), **target, return_outputs=False)
    noting([weight for stage in stages for weight in stage.submod.parameters()]).step()


Plan = tuple[int, Callable[..., None], dict[str, Any]]
"""How many ranks, what each of them does, and at which sizes."""


def sizes(do: Callable[..., None], *sizes: tuple[int, int, int], **said: Any) -> list[Plan]:
    """A plan for each of these ranks, layers and turns."""
    return [(ranks, do, {"layers": layers, "turns": turns, **said}) for ranks, layers, turns in sizes]


PLANS: dict[str, list[Plan]] = {
    "plain": sizes(plain, (1, 2, 1), (1, 3, 4)),
    "ddp": sizes(ddp, (4, 1, 1), (4, 2, 1), (2, 2, 1), (4, 6, 1)),
    "ddp, first step": sizes(ddp, (4, 6, 1), steps=1),
    "ddp, layers of 1 MiB": sizes(ddp, (4, 6, 1), (2, 40, 1), mib=1),
    "ddp, layers of 10 MiB": sizes(ddp, (2, 5, 1), mib=10),
    "ddp, two micro-batches": sizes(ddp, (2, 3, 2)),
    "ddp, no_sync": sizes(ddp, (2, 3, 2), (4, 2, 3), sync=False),
    "fully_shard": sizes(sharded, (4, 6, 1), (2, 2, 1), (2, 1, 1), (8, 3, 1), (4, 3, 2), (2, 6, 4)),
    "fully_shard, kept": sizes(sharded, (4, 6, 1), (4, 6, 2), (2, 2, 1), how="kept"),
    "fully_shard, last kept": sizes(sharded, (4, 6, 1), (2, 2, 2), how="last kept"),
    "fully_shard, root not wrapped": sizes(sharded, (4, 6, 1), (2, 2, 2), how="root not wrapped"),
    "fully_shard, gathered once": sizes(sharded, (4, 6, 2), how="gathered once"),
    "hybrid": sizes(sharded, (4, 3, 2), (8, 6, 2), replicas=2),
    "hybrid, reduced across once": sizes(sharded, (4, 3, 2), (8, 6, 2), (8, 2, 3), replicas=2, how="across once"),
    **{
        schedule: sizes(pipeline, *some, schedule=schedule)
        for schedule, some in {
            "ScheduleGPipe": [(2, 2, 2), (4, 4, 1), (4, 4, 4), (3, 3, 5)],
            "Schedule1F1B": [(2, 2, 2), (4, 4, 4), (4, 4, 8), (5, 5, 16)],
            "ScheduleInterleaved1F1B": [(2, 4, 2), (4, 8, 8), (4, 8, 4), (3, 9, 6), (4, 8, 10)],
            "ScheduleLoopedBFS": [(2, 4, 2), (4, 8, 8), (3, 9, 4)],
            "ScheduleInterleavedZeroBubble": [(2, 2, 2), (4, 4, 8), (4, 4, 4), (3, 6, 6), (4, 8, 8)],
            "ScheduleZBVZeroBubble": [(2, 4, 4), (4, 8, 8), (3, 6, 2), (1, 2, 3), (4, 8, 9)],
            "ScheduleDualPipeV": [(2, 4, 4), (4, 8, 8), (3, 6, 7), (1, 2, 3), (5, 10, 12)],
        }.items()
    },
}


@contextmanager
def connected(rank: int, ranks: int) -> Iterator[None]:
    """This process is a rank."""
    if WORLD:
        store = dist.FileStore(f"{WORLD['file']}", ranks)
        dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    else:
        dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    notes.clear()
    labels.clear()
    try:
        yield
    finally:
        dist.destroy_process_group()


def main() -> None:
    """Record everything, or as one of several processes what so many ranks do."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(PLANS))
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=0)
    parser.add_argument("--file", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[Any]] = {}
    for name in options.names:
        for place, (ranks, do, said) in enumerate(PLANS[name]):
            if options.world not in (0, ranks):
                continue
            every = []
            for rank in [options.rank] if options.world else range(ranks):
                if options.world:
                    WORLD["file"] = f"{options.file}{name}{place}"
                with connected(rank, ranks):
                    do(**said)
                every.append(notes[:])
            found.setdefault(name, []).append({"ranks": ranks, **said, "each": every})
    print(json.dumps({"torch": torch.__version__, "found": found}))


if __name__ == "__main__":
    main()
