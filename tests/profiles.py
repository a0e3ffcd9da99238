"""Files of profiles with known answers, as PyTorch's profiler and NCCL's flight recorder write them, made by hand."""

import gzip
import json
import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BASE = 1_700_000_000_000_000_000
"""Nanoseconds from which times count."""
COMPUTE, NETWORK = 7, 20
"""Streams of a GPU."""
KERNELS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "recv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
"""The kernels of NCCL, by what PyTorch calls their collectives."""


class GpuFile:
    """The file of one rank. Times are in microseconds; ``late``: how far its clock is behind the one by
    which all moments are given. The CPU launches everything 10 microseconds before it begins."""

    def __init__(self, rank: int, world: int, late: float = 0.0, step: int | None = 3, base: int = BASE) -> None:
        self.rank, self.world, self.late, self.base = rank, world, late, base
        self.events: list[Json] = [
            {"ph": "M", "name": "process_name", "pid": 100 + rank, "tid": 0, "ts": 0, "args": {"name": "python"}}
        ]
        self.launched = 0
        if step is not None:
            self.span(f"ProfilerStep#{step}", -20, 1e6)

    def add(self, kind: str, name: str, start: float, end: float, thread: int = 1, **args: Any) -> None:
        """Add an event."""
        event = {"ph": "X", "cat": kind, "name": name, "pid": 100 + self.rank, "tid": thread}
        self.events.append(event | {"ts": round(start - self.late, 3), "dur": round(end - start, 3), "args": args})

    def span(self, name: str, start: float, end: float, thread: int = 1) -> None:
        """Add a label that is open on the CPU."""
        self.add("user_annotation", name, start, end, thread)

    def kernel(self, start: float, end: float, name: str = "ampere_bf16_gemm", thread: int = 1, **args: Any) -> None:
        """Add a kernel, and its launch on a thread of the CPU."""
        self.launched += 1
        stream = NETWORK if "nccl" in name else COMPUTE
        self.add("cuda_runtime", "cudaLaunchKernel", start - 10, start - 8, thread, correlation=self.launched)
        self.add("kernel", name, start, end, stream, correlation=self.launched, stream=stream, device=0, **args)

    def call(self, name: str, start: float, end: float, group: Sequence[int] = (), **args: Any) -> None:
        """Add a kernel of NCCL, with what PyTorch says about it."""
        ranks = [*(group or range(self.world))]
        about = {"Collective name": name, "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "BFloat16"}
        about |= {"Group size": len(ranks), "Process Group Ranks": str(ranks)}
        about["Process Group Name"] = "0" if len(ranks) == self.world else "of " + "-".join(map(str, ranks))
        self.kernel(start, end, KERNELS[name], **{**about, **{key.replace("_", " "): v for key, v in args.items()}})

    def data(self) -> Json:
        """Return what the file says."""
        about = {"backend": "nccl", "rank": self.rank, "world_size": self.world}
        devices = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
        head = {"schemaVersion": 1, "deviceProperties": devices, "distributedInfo": about, "displayTimeUnit": "ms"}
        return head | {"baseTimeNanoseconds": self.base, "traceEvents": self.events, "traceName": "x.json"}

    def save(self, folder: Path, name: str = "") -> Path:
        """Write the file: ``rank0.json.gz``."""
        path = folder / (name or f"rank{self.rank}.json.gz")
        text = json.dumps(self.data(), indent=2).encode()
        path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
        return path


def straggler(late: Sequence[float] = (0, 0, 0, 0)) -> list[GpuFile]:
    """Four ranks of a data-parallel step, of which rank 2 computes for 2 ms longer than the others.

    Forward from 0 to 1,000, backward to 3,000 (rank 2: 5,000), a hidden all-reduce that all come to at 2,000 (rank 2:
    at 3,000) and that ends at 3,500, one that begins with the last rank's backward at 5,000 and ends at 6,000, and an
    update to 6,500.
    """
    files = []
    for rank in range(4):
        slow = 2000 * (rank == 2)
        file = GpuFile(rank, 4, late[rank])
        file.span("Optimizer.step#AdamW.step", 5900, 6400)
        file.add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 980, 2990 + slow, thread=2)
        file.kernel(0, 600)
        file.kernel(600, 1000, "flash_fwd_kernel")
        file.kernel(1000, 2000 + slow, thread=2)
        file.kernel(2000 + slow, 3000 + slow, "flash_bwd_kernel", thread=2)
        file.call("allreduce", 2000 + slow / 2, 3500, Seq=11)
        file.call("allreduce", 3500 if not slow else 5000, 6000, Seq=12)
        file.kernel(6000, 6500, "multi_tensor_apply_kernel")
        files.append(file)
    return files


def saved(files: Iterable[GpuFile], folder: Path) -> str:
    """Write all files. Return the pattern of their names."""
    for file in files:
        file.save(folder)
    return str(folder / "rank*.json.gz")


def entry(rank: int, number: int, name: str, created: float, ended: float | None, **more: Any) -> Json:
    """Return an entry of the flight recorder. Times are in microseconds."""
    found: Json = {
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": BASE + int(1000 * created),
        "duration_ms": None,
        "input_sizes": [[3, 1000]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[3, 1000]],
        "output_dtypes": ["BFloat16"],
        "state": "started" if ended is None else "completed",
        "time_discovered_started_ns": BASE + int(1000 * created),
        "time_discovered_completed_ns": None if ended is None else BASE + int(1000 * ended),
        "retired": ended is not None,
        "timeout_ms": 600_000,
        "is_p2p": name.startswith(("send", "recv")),
        "frames": [{"name": "step", "filename": "train.py", "line": 12 + rank}],
    }
    return found | more


def dump(entries: Sequence[Json], world: int) -> Json:
    """Return the data of a dump."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str([*range(world)])}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": [*entries]}


def hang() -> dict[int, Json]:
    """Dumps of four ranks: rank 1 did not come to all-reduce 3, since it waits in all-gather 3 for the others."""
    dumps = {}
    for rank in range(4):
        own = [entry(rank, 1, "all_reduce", 0, 400), entry(rank, 2, "all_gather", 1000, 1300)]
        own.append(entry(rank, 3, "all_reduce" if rank != 1 else "all_gather", 2000 + 100 * rank, None))
        dumps[rank] = dump(own, 4)
    return dumps


def late_rank() -> dict[int, Json]:
    """Dumps of three ranks: rank 2 has done its second call, and did not come to the third."""
    dumps = {}
    for rank in range(3):
        own = [entry(rank, number, "all_reduce", 1000 * number, 1000 * number + 500) for number in (1, 2)]
        dumps[rank] = dump([*own, entry(rank, 3, "all_reduce", 3000, None)] if rank < 2 else own, 3)
    return dumps


def save_dumps(dumps: dict[int, Json], folder: Path, as_json: bool = False) -> str:
    """Write dumps, as pickles or as JSON. Return the pattern of their names."""
    for rank, data in dumps.items():
        if as_json:
            (folder / f"trace_rank_{rank}.json").write_text(json.dumps(data), encoding="utf-8")
        else:
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(data, protocol=2))
    return str(folder / ("trace_rank_*.json" if as_json else "nccl_trace_rank_*"))


def pieces(events: int, padding: int = 0) -> Iterator[bytes]:
    """Yield a file of one rank with so many kernels, piece by piece. ``padding``: letters that each carries along."""
    yield b'{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1},\n"traceEvents": [\n'
    more = "x" * padding
    for first in range(0, events, 1000):
        own = []
        for at in range(first, min(first + 1000, events)):
            event = {"ph": "X", "cat": "kernel", "name": f"gemm {at % 7}", "pid": 0, "tid": 7, "ts": 20 * at, "dur": 15}
            own.append(json.dumps(event | {"args": {"stream": 7, "correlation": at, "more": more}}))
        yield (",\n" * (first > 0) + ",\n".join(own)).encode()
    yield b'\n],\n"traceName": "huge.json"}'
