"""The puzzles whose schedules are drawn on one scale."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lib.course.specs import Puzzle


class Family(NamedTuple):
    """Puzzles whose schedules are drawn on one scale."""

    title: str
    words: str
    names: Sequence[str]


FAMILIES = (
    Family(
        "A pipeline",
        "Each GPU has some of the layers. What it costs is waiting, and each of these waits less.",
        ("pipeline", "gpipe", "one_f_one_b", "interleaved", "zero_bubble", "zbv", "dualpipe"),
    ),
    Family(
        "Data parallel",
        "Each GPU has a part of the batch. What it costs is memory, and then communication.",
        ("ddp", "wsdp", "fsdp", "zero1", "zero2", "prefetch", "lora"),
    ),
    Family(
        "One GPU",
        "What can be done before there is a second one: less in memory, for some more work.",
        ("basic", "grad_accum", "checkpointing", "offload"),
    ),
    Family(
        "Inside a layer",
        "All GPUs work on the same layer of the same micro-batch at the same time.",
        (
            "tensor_parallel",
            "sequence_parallel",
            "context_parallel",
            "ring_attention",
            "expert_parallel",
            "two_batch_overlap",
        ),
    ),
    Family(
        "Several nodes",
        "Inside a node links are fast, between nodes they are slow.",
        ("replica_fsdp", "hierarchical", "hpz", "buckets"),
    ),
    Family("Several ways at once", "The GPUs are a mesh, and each axis has a use of its own.", ()),
)
"""The families in the order of the page. The last one takes all puzzles that no other names."""


def families(puzzles: Sequence[Puzzle]) -> Iterator[tuple[Family, list[Puzzle]]]:
    """The families and their puzzles, each in one."""
    named = {name for family in FAMILIES for name in family.names}
    known = {puzzle.name: puzzle for puzzle in puzzles}
    for family in FAMILIES:
        names = family.names or [name for name in known if name not in named]
        if own := [known[name] for name in names if name in known]:
            yield family, own
