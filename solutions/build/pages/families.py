"""The puzzles whose schedules stand together, on one model, one machine and one list of prices."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from drawing.ink.texts import plural
from lib import Cost, Run
from lib.course.specs import Puzzle, cost_named

from ..runs.course import Course
from ..runs.programs import once


class Family(NamedTuple):
    """Puzzles whose schedules can be compared: all are run at one ``size`` and at one ``cost``. Those that stand
    ``apart`` train something else, or on another machine: they are run at their own. Those that are drawn ``alone``
    take so long that beside them nothing could be read of the others."""

    title: str
    words: str
    names: Sequence[str] = ()
    size: Mapping[str, Any] = MappingProxyType({})
    cost: str | Cost = "default"
    apart: Sequence[str] = ()
    alone: Sequence[str] = ()

    def sentence(self) -> str:
        """What all of them have in common, and how far they can be compared."""
        if not self.names:
            return "Each has a model, a machine and prices of its own: compare none of them."
        said = [f"{self.size[what]} {name}{plural(self.size[what], ending)}" for what, name, ending in COUNTED]
        nodes = f" in nodes of {self.size['node_size']}" if "node_size" in self.size else ""
        own = " (but where it says otherwise)" * bool(self.apart)
        return f"All on {said[0]}{nodes}, with {said[1]}, {said[2]} and the same prices{own}: compare them."


COUNTED = (("ranks", "GPU", "s"), ("layers", "layer", "s"), ("batches", "micro-batch", "es"))
FAMILIES = (
    Family(
        "A pipeline",
        "Each GPU has some of the layers. What it costs is waiting, the <em>bubble</em>.",
        ("pipeline", "gpipe", "one_f_one_b", "interleaved", "zero_bubble", "zbv", "dualpipe"),
        {"ranks": 4, "layers": 8, "batches": 8},
        "even_thirds",
        alone=("pipeline",),
    ),
    Family(
        "Data parallel",
        "Each GPU has a part of the batch. What it costs is memory, and then communication.",
        ("ddp", "wsdp", "fsdp", "zero1", "zero2", "prefetch"),
        {"ranks": 4, "layers": 6, "batches": 4},
        apart=("lora",),
    ),
    Family(
        "One GPU",
        "What can be done before there is a second one: less in memory, for some more work.",
        ("basic", "grad_accum"),
        {"ranks": 1, "layers": 2, "batches": 4},
        apart=("checkpointing", "offload"),
    ),
    Family(
        "Inside a layer",
        "All GPUs work on the same layer of the same micro-batch at the same time.",
        ("tensor_parallel", "sequence_parallel"),
        {"ranks": 4, "layers": 8, "batches": 1},
        "long_sequences",
    ),
    Family(
        "One long text",
        "Each GPU has a slice of it, and attention needs all of them.",
        ("context_parallel", "ring_attention"),
        {"ranks": 4, "layers": 8, "batches": 1},
        "all_heads",
    ),
    Family(
        "Experts",
        "A layer has many, and each GPU holds some. Tokens travel to those that they need.",
        apart=("expert_parallel", "two_batch_overlap"),
    ),
    Family(
        "Several nodes",
        "Inside a node links are fast, between nodes they are slow.",
        ("replica_fsdp", "hierarchical", "hpz", "buckets"),
        {"ranks": 16, "layers": 8, "batches": 16, "mesh": {"replica": 4, "shard": 4}, "node_size": 4},
        "two_speeds",
    ),
    Family(
        "Sums by hand",
        "No collective is called: gradients are summed message by message.",
        apart=("ring_allreduce", "small_messages"),
    ),
    Family(
        "What an update takes",
        "A mean over all tokens, of which each rank knows some; and a direction that is made of a whole matrix.",
        apart=("token_mean", "muon"),
    ),
    Family("Several ways at once", "The GPUs are a mesh, and each axis has a use of its own."),
)
"""The families in the order of the page. The last one takes all puzzles that no other names."""


def families(course: Course, puzzles: Sequence[Puzzle]) -> Iterator[tuple[Family, list[tuple[Puzzle, Run]]]]:
    """The families, and the puzzles of each with their runs."""
    named = {name for family in FAMILIES for name in (*family.names, *family.apart)}
    known = {puzzle.name: puzzle for puzzle in puzzles}
    for family in FAMILIES:
        apart = family.apart if family.names or family.apart else [name for name in known if name not in named]
        shown = [(known[name], _together(course, family, known[name])) for name in family.names if name in known]
        shown += [(known[name], course.played(known[name])) for name in apart if name in known]
        if shown:
            yield family, sorted(shown, key=lambda one: one[0].number)


def _together(course: Course, family: Family, puzzle: Puzzle) -> Run:
    """A run of a puzzle's solution at the size of its family, on a mesh of its own where it needs one."""
    own = {"mesh": puzzle.size["mesh"]} if "mesh" in puzzle.size else {}
    done = once(course.solution(puzzle), **{**own, **family.size}, cost=cost_named(family.cost))
    done.verify()
    return done
