"""The other sizes at which a puzzle is graded: a short list for each family of puzzles.

There a program is right or wrong, and nothing else is asked. The lists have one rank and many, 6 and 8 among them,
fewer layers than ranks, as many and more, and micro-batches that leave every kind of rest. So a program that is wrong
at one kind of size, such as an odd number of layers, is wrong at one of these.
"""

from collections.abc import Mapping
from itertools import cycle, islice
from math import prod

from .layouts import Size


def _numbers(*rows: tuple[int, int, int]) -> list[Size]:
    """Return sizes of ranks, layers and micro-batches."""
    return [{"ranks": ranks, "layers": layers, "batches": batches} for ranks, layers, batches in rows]


def _shared(batches: int, *rows: tuple[int, int]) -> list[Size]:
    """Return sizes of ranks and layers, with so many micro-batches for each rank."""
    return _numbers(*[(ranks, layers, batches * ranks) for ranks, layers in rows])


def _own(*rows: tuple[int, int]) -> list[Size]:
    """Return sizes of ranks and layers, with as many micro-batches for each rank as at the puzzle's own size."""
    return [{"ranks": ranks, "layers": layers} for ranks, layers in rows]


def _meshes(axes: str, *rows: tuple[int, ...], nodes: bool = False) -> list[Size]:
    """Return sizes of the lengths of axes, layers and, where they are given, micro-batches. ``nodes``: the ranks along
    the last axis are a node."""
    names, found = axes.split(), list[Size]()
    for row in rows:
        mesh = dict(zip(names, row, strict=False))
        size = {"mesh": mesh, "ranks": prod(mesh.values())} | ({"node_size": mesh[names[-1]]} if nodes else {})
        found.append(size | dict(zip(("layers", "batches"), row[len(names) :], strict=False)))
    return found


def _two_nodes(*rows: tuple[int, int]) -> list[Size]:
    """Return sizes of ranks and layers, of two nodes."""
    return [{"ranks": ranks, "node_size": ranks // 2, "layers": layers} for ranks, layers in rows]


# fmt: off
SIZES: Mapping[str, list[Size]] = {
    "one_rank": _numbers(
        (1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 2, 1), (1, 3, 1), (1, 2, 2), (1, 4, 1), (1, 2, 3), (1, 3, 2),
        (1, 1, 8), (1, 4, 2), (1, 3, 8), (1, 4, 7), (1, 8, 3), (1, 5, 6), (1, 6, 5), (1, 7, 7), (1, 13, 4),
    ),
    "data_parallel": _shared(1,
        (1, 1), (2, 1), (1, 3), (5, 1), (3, 2), (2, 3), (1, 6), (6, 2), (4, 3), (3, 4), (2, 6), (3, 5), (3, 6),
        (4, 6), (8, 3), (7, 5), (6, 13), (8, 16),
    ),
    "two_each": _shared(2,
        (1, 1), (1, 2), (1, 3), (2, 2), (5, 1), (3, 2), (2, 3), (1, 6), (1, 8), (2, 6), (6, 2), (4, 3), (3, 4),
        (8, 4), (3, 11), (7, 5), (3, 12), (6, 13),
    ),
    "one_or_three_each": _numbers(
        (1, 1, 1), (2, 1, 2), (1, 3, 1), (3, 1, 3), (1, 2, 3), (2, 3, 2), (2, 2, 6), (5, 2, 5), (1, 6, 3),
        (4, 3, 4), (3, 4, 3), (2, 4, 6), (8, 1, 24), (2, 8, 2), (8, 3, 8), (7, 5, 7), (6, 10, 6), (3, 11, 9),
    ),
    "one_for_all": _numbers(
        (1, 1, 1), (2, 1, 1), (3, 1, 1), (1, 2, 1), (4, 1, 1), (1, 3, 1), (2, 2, 1), (3, 2, 1), (2, 3, 1),
        (3, 3, 1), (6, 2, 1), (3, 4, 1), (8, 3, 1), (2, 12, 1), (7, 5, 1), (5, 14, 1), (6, 13, 1), (8, 16, 1),
    ),
    "uneven": _numbers(  # fewer micro-batches than ranks
        (3, 1, 2), (4, 1, 1), (2, 2, 1), (2, 3, 1), (6, 1, 3), (6, 1, 4), (5, 2, 4), (3, 6, 1), (2, 8, 1),
        (8, 3, 2), (5, 4, 3), (7, 3, 5), (6, 5, 2), (5, 6, 3), (7, 4, 6), (6, 10, 1), (4, 12, 2), (7, 9, 6),
    ),
    "one_short": _numbers(  # a micro-batch less than the ranks could share evenly
        (2, 1, 3), (2, 2, 3), (3, 1, 8), (2, 4, 3), (2, 3, 5), (8, 1, 15), (2, 6, 3), (5, 2, 14), (5, 3, 9),
        (3, 4, 8), (2, 12, 3), (3, 6, 8), (4, 7, 7), (6, 4, 17), (4, 9, 7), (3, 14, 5), (3, 15, 5), (7, 3, 34),
    ),
    "pipeline": _numbers(
        (3, 3, 2), (2, 2, 6), (2, 2, 8), (2, 8, 1), (2, 4, 4), (3, 3, 5), (4, 4, 3), (5, 5, 1), (5, 5, 3),
        (4, 4, 6), (6, 6, 2), (2, 6, 7), (4, 12, 1), (3, 9, 4), (5, 10, 2), (5, 5, 5), (3, 6, 12), (3, 12, 6),
        (6, 12, 9), (8, 16, 11),
    ),
    "one_layer_each": _numbers(
        (1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 1, 6), (2, 2, 2), (2, 2, 3), (2, 2, 6), (3, 3, 3), (3, 3, 8),
        (3, 3, 9), (2, 2, 16), (3, 3, 10), (4, 4, 6), (4, 4, 7), (5, 5, 7), (6, 6, 8), (6, 6, 12), (8, 8, 9),
    ),
    "two_stages": _numbers(
        (2, 2, 1), (2, 2, 4), (2, 2, 5), (2, 2, 6), (2, 4, 3), (2, 2, 8), (2, 6, 2), (2, 8, 2), (2, 4, 6),
        (2, 4, 7), (2, 12, 1), (2, 6, 4), (2, 8, 3), (2, 6, 7),
    ),
    "rounds": _numbers(  # the ranks share out micro-batches evenly, and two stages or four each
        (2, 4, 6), (2, 8, 2), (3, 6, 3), (3, 6, 6), (2, 12, 4), (3, 6, 9), (2, 12, 8), (3, 12, 9), (6, 12, 6),
        (4, 8, 16), (5, 20, 5), (5, 10, 20), (8, 16, 8), (4, 16, 12),
    ),
    "thicker_stages": _numbers(*[(2, layers, 2) for layers in range(8, 44, 4)]),  # for rows, which fix all but layers
    "both_ends": _meshes(  # enough micro-batches to fill both ends
        "half place",
        (2, 1, 2, 6), (2, 1, 2, 8), (2, 1, 4, 6), (2, 1, 6, 4), (2, 1, 4, 8), (2, 1, 8, 4), (2, 2, 4, 16),
        (2, 3, 6, 12), (2, 3, 6, 16), (2, 2, 12, 10), (2, 4, 8, 18), (2, 5, 10, 24), (2, 3, 18, 14),
        (2, 4, 16, 16),
    ),
    "squares": _meshes("row column", (1, 1, 2, 1), (1, 2, 1, 2), (3, 1, 2, 3), (2, 2, 1, 4), (2, 2, 5, 4),
        (2, 3, 1, 6), (3, 2, 2, 6), (2, 4, 3, 8), (4, 2, 1, 8), (3, 3, 2, 9), (3, 4, 1, 12), (4, 4, 3, 16)),
    "rings": _meshes(
        "stage shard",
        (2, 1, 2, 2), (2, 1, 4, 3), (2, 3, 2, 9), (2, 4, 2, 8), (2, 1, 8, 2), (3, 2, 3, 6), (2, 2, 6, 4),
        (2, 3, 4, 6), (3, 1, 9, 3), (3, 1, 9, 5), (3, 3, 3, 18), (3, 4, 3, 16), (5, 1, 5, 15), (4, 3, 4, 15),
        (4, 1, 12, 6), (5, 2, 5, 16), (5, 3, 5, 24), (6, 2, 12, 14),
    ),
    "experts": _own((2, 2), (4, 2), (2, 4), (2, 6), (8, 2), (2, 8), (4, 4), (8, 4), (4, 10), (8, 6), (8, 12)),
    "copies": _meshes(
        "copy expert", (3, 1, 2, 3), (1, 2, 6, 2), (2, 2, 2, 4), (3, 1, 4, 3), (2, 2, 4, 4), (2, 2, 6, 4), (2, 4, 2, 8),
        (3, 2, 4, 6), (1, 4, 6, 4), (3, 4, 2, 12),
    ),
    "beside_pieces": _meshes(
        "data tensor", (2, 1, 1, 2), (1, 3, 1, 1), (2, 1, 3, 2), (3, 1, 2, 3), (1, 2, 3, 1), (1, 2, 4, 1), (2, 3, 3, 2),
        (3, 2, 3, 3), (3, 3, 2, 3), (2, 3, 4, 2),
    ),
    "pipeline_fsdp": _numbers(*[(16, layers, 4) for layers in (8, 12, 16, 20, 24, 28, 32, 36, 52)]),  # of four stages
    "replica_fsdp": _meshes(
        "replica shard",
        (1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 4, 1), (3, 2, 1), (1, 3, 2), (1, 2, 5), (4, 3, 1), (2, 6, 1),
        (1, 3, 5), (2, 3, 3), (4, 2, 3), (3, 4, 2), (2, 2, 8), (3, 3, 4), (6, 2, 4), (3, 2, 8), (4, 4, 3), (2, 3, 6),
        nodes=True,
    ),
    "two_nodes": _two_nodes(
        (2, 1), (2, 2), (4, 1), (6, 1), (2, 4), (4, 2), (2, 5), (6, 2), (4, 3), (12, 1), (2, 6), (2, 8), (8, 3),
        (10, 3), (4, 8), (6, 7), (6, 11), (10, 8),
    ),
    "two_sides": _meshes(  # of trainers and generators
        "side place",
        (2, 2, 1, 2), (2, 2, 2, 2), (2, 4, 1, 4), (2, 6, 1, 6), (2, 2, 5, 2), (2, 6, 2, 6), (2, 4, 3, 4), (2, 2, 8, 2),
        (2, 8, 3, 8), (2, 4, 8, 4), (2, 6, 7, 6), (2, 4, 11, 4),
        nodes=True,
    ),
    "grid": _meshes(
        "x y z",
        (2, 1, 2, 2, 8), (2, 1, 2, 4, 8), (3, 1, 3, 3, 18), (2, 2, 2, 4, 16), (2, 1, 2, 8, 8), (3, 1, 3, 6, 18),
        (4, 1, 4, 4, 32), (2, 3, 2, 6, 24), (3, 1, 3, 12, 18), (2, 3, 2, 24, 48),
    ),
}
# fmt: on
"""The other sizes of each family. Where a size names no micro-batches, each rank has as many as at the puzzle's own."""


def other_sizes(name: str, own: Size) -> list[Size]:
    """Return the sizes at which a puzzle of this family is graded besides its own."""
    each = own["batches"] // own["ranks"]
    found = [own | {"batches": each * size["ranks"]} | size for size in SIZES[name]]
    if tokens := own.get("tokens"):
        found = [size | {"tokens": [*islice(cycle(tokens), size["batches"])]} for size in found]
    return [size for size in found if size != own]


def show_size(size: Size) -> str:
    """Return a size as text: ``4 ranks, 6 layers, 4 micro-batches``."""
    plural = {"ranks": "rank", "layers": "layer", "batches": "micro-batch"}
    parts = [f"{size[k]} {v}{'' if size[k] == 1 else 'es' if v.endswith('h') else 's'}" for k, v in plural.items()]
    if size.get("hosts"):
        parts.append(f"{size['hosts']} host{'s' * (size['hosts'] > 1)}")
    if size.get("mesh"):
        parts.append("mesh " + " x ".join(f"{axis} {count}" for axis, count in size["mesh"].items()))
    return ", ".join(parts)
