"""What programs of solutions/ do beside what PyTorch does, as a table: ``python -m tests.torch_truth.table > ...``.

``TABLE.md`` is what this prints of the recordings. A test makes it anew and compares, row by row.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lib import run
from lib.course.specs import puzzles
from lib.engines.like import COUNTERPARTS, NONE, first_difference
from lib.engines.torch_order import TORCH, Step
from tests.test_closed_forms import program

FOUR = {"ranks": 4, "layers": 8, "batches": 8}
HALVES = FOUR | {"mesh": {"half": 2, "place": 2}}
NODES = {"ranks": 8, "layers": 6, "batches": 16, "mesh": {"replica": 2, "shard": 4}, "node_size": 4}


class Row(NamedTuple):
    """A program, the puzzle by whose counterpart it is compared, and its size."""

    file: str
    name: str
    puzzle: str
    size: dict[str, Any]


ROWS = [
    Row("p00_basic", "basic", "basic", {"layers": 2, "batches": 4}),
    Row("p01_grad_accum", "grad_accum", "grad_accum", {"layers": 3, "batches": 4}),
    *(
        Row("p02_ddp", name, "ddp", {"ranks": 4, "layers": 6, "batches": 4})
        for name in ("ddp", "ddp_overlap", "ddp_as_pytorch")
    ),
    Row("p04_fsdp", "fsdp", "fsdp", {"ranks": 4, "layers": 6, "batches": 4}),
    Row("p04_fsdp", "fsdp_in_15_3", "fsdp", {"ranks": 4, "layers": 6, "batches": 4}),
    Row("p12_prefetch", "prefetch", "prefetch", {"ranks": 4, "layers": 6, "batches": 4}),
    Row("p12_prefetch", "prefetch_in_21_8", "prefetch", {"ranks": 4, "layers": 6, "batches": 4}),
    Row("p08_replica_fsdp", "replica_fsdp", "replica_fsdp", NODES),
    Row("p05_pipeline", "pipeline", "pipeline", {"ranks": 4, "layers": 4, "batches": 4}),
    Row("p06_gpipe", "gpipe", "gpipe", {"ranks": 4, "layers": 4, "batches": 4}),
    Row("p06_gpipe", "one_forward_one_backward", "one_f_one_b", FOUR | {"layers": 4}),
    Row("p13_one_f_one_b", "one_f_one_b", "one_f_one_b", FOUR | {"layers": 4}),
    Row("p13_one_f_one_b", "one_f_one_b_in_47_4", "one_f_one_b", FOUR | {"layers": 4}),
    Row("p14_interleaved", "interleaved", "interleaved", FOUR),
    Row("p14_interleaved", "interleaved_in_40_5", "interleaved", FOUR),
    Row(
        "p15_breadth_first",
        "breadth_first",
        "breadth_first",
        {"ranks": 8, "layers": 8, "batches": 16, "mesh": {"stage": 4, "shard": 2}},
    ),
    Row("p16_zero_bubble", "zero_bubble", "zero_bubble", FOUR | {"layers": 4}),
    Row("p16_zero_bubble", "zb_h1", "zero_bubble", FOUR | {"layers": 4}),
    *(Row("p29_zbv", name, "zbv", FOUR) for name in ("zbv", "zb_v", "as_pytorch_does")),
    *(Row("p30_dualpipe", name, "dualpipe", HALVES) for name in ("dualpipe", "in_halves", "cut_in_half")),
]


def compared(row: Row) -> str:
    """What a comparison of a program with PyTorch's order says."""
    models = run(program(row.file, row.name), **row.size).models
    found = first_difference(models, COUNTERPARTS[row.puzzle])
    if found is None:
        return "identical, on all ranks"
    yours, theirs = (found.place < len(steps) for steps in (found.yours, found.theirs))
    step, its = found.yours[found.place][0] if yours else "nothing", found.theirs[found.place] if theirs else "nothing"
    return f"rank {found.rank}, step {found.place + 1}: here {step}, there {its}. {found.why}"


def pick(truth: Mapping[str, Any], name: str, **size: int) -> Any:
    """What ranks have started in the only recording of that name and size."""
    [found] = [one for one in truth["found"][name] if all(one[key] == value for key, value in size.items())]
    return found["each"]


def facts(truth: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What PyTorch does in ways that no program of ours is held against, each with what was counted."""

    def text(name: str, kinds: tuple[str, ...], **size: int) -> str:
        steps = pick(truth, name, **size)[0]
        return " ".join(str(Step(kind, tuple(layers), turn)) for kind, layers, turn, _ in steps if kind in kinds)

    def counts(name: str, **size: int) -> str:
        found = Counter(kind for kind, *_ in pick(truth, name, **size)[0])
        words = {"allgather": "all-gathers", "scatterreduce": "reduce-scatters", "allreduce": "all-reduces"}
        return ", ".join(f"{found[kind]} {word}" for kind, word in words.items() if found[kind])

    ends = ("allreduce", "update")
    yield "DDP, first step, 6 layers", text("ddp, first step", ends)
    yield "DDP, 6 layers of 1 MiB", text("ddp, layers of 1 MiB", ends, layers=6)
    yield "DDP, 40 layers of 1 MiB", text("ddp, layers of 1 MiB", ends, layers=40)
    yield "DDP, 5 layers of 10 MiB", text("ddp, layers of 10 MiB", ends)
    yield "DDP, 2 micro-batches, 3 layers", counts("ddp, two micro-batches")
    yield "DDP, 2 micro-batches, 3 layers, no_sync() in the first", counts("ddp, no_sync", turns=2)
    yield "fully_shard, 6 layers, 1 micro-batch", counts("fully_shard", ranks=4, layers=6)
    yield "the same, reshard_after_forward=False", counts("fully_shard, kept", ranks=4, layers=6, turns=1)
    yield "the same, 2 micro-batches", counts("fully_shard, kept", turns=2)
    yield (
        "the same, with set_reshard_after_backward(False) and set_requires_gradient_sync(False) in the first",
        counts("fully_shard, gathered once"),
    )
    yield "fully_shard, 6 layers, False for the last layer only", counts("fully_shard, last kept", layers=6)
    yield "fully_shard, 6 layers, the model itself not wrapped", counts("fully_shard, root not wrapped", layers=6)
    yield "hybrid mesh, 6 layers, 2 micro-batches", counts("hybrid", layers=6)
    yield "the same, set_requires_all_reduce(False) in the first", counts("hybrid, reduced across once", layers=6)
    together = [sum(kind == "together" for kind, *_ in each) for each in pick(truth, "Schedule1F1B", ranks=4, turns=8)]
    yield "Schedule1F1B, 4 ranks, 8 micro-batches: a send and a receive in one batch, on each rank", f"{together}"
    early = [sum(late(each)) for each in pick(truth, "ScheduleInterleaved1F1B", ranks=4, layers=8, turns=8)]
    yield "ScheduleInterleaved1F1B, 4 ranks, 8 layers, 8 micro-batches: receives posted before other work", f"{early}"


def late(each: list[Any]) -> Iterator[bool]:
    """For each receive of a rank whether other work stands between it and the work that needs it."""
    work = ("forward", "backward", "backward_input", "backward_weight")
    each = [one for one in each if one[1]]  # a batch has no layer, and the update all of them
    for at, (kind, [layer, *_], turn, _) in enumerate(each):
        if kind == "receive":
            then = next(one for one in each[at:] if one[0] in work)
            forward = then[0] == "forward"
            yield [layer, turn] != [then[1][0] if forward else then[1][0] + 1, then[2]]


def lines(truth: Mapping[str, Any]) -> list[str]:
    """The table, line by line."""
    text = [
        f"Programs of `solutions/` beside PyTorch {TORCH}, as recorded by `tests/torch_truth/record.py`.",
        "Made by `python -m tests.torch_truth.table`. Steps are written as in `print(run)`.",
        "",
        "| puzzle | program | in PyTorch | compared |",
        "|---|---|---|---|",
    ]
    numbers = {puzzle.name: puzzle.number for puzzle in puzzles().values()}
    for row in ROWS:
        text.append(f"| {numbers[row.puzzle]} | `{row.name}` | {COUNTERPARTS[row.puzzle].thing} | {compared(row)} |")
    for name, why in NONE.items():
        text.append(f"| {numbers[name]} | `{name}` | nothing that is compared | {why} |")
    text += ["", "| what else PyTorch does | what a rank starts |", "|---|---|"]
    return [*text, *(f"| {what} | {found} |" for what, found in facts(truth))]


if __name__ == "__main__":
    from tests.torch_truth.conftest import recorded

    print("\n".join(lines(recorded())))
