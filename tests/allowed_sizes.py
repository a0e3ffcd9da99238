"""All small sizes that the texts of the puzzles allow, and of what kind a size is: written without the lists of lib, so
that these can be held against them."""

from collections.abc import Iterator
from itertools import combinations
from math import prod
from typing import Any

Size = dict[str, Any]
Kind = tuple[str, str]
"""A number of a size, such as its layers, or two of them, and what holds of them."""

RANKS, LAYERS = range(1, 9), range(1, 17)


def allowed(name: str, own: Size) -> list[Size]:
    """The small sizes of a choice. What cannot change is that of the puzzle's own size."""
    return [own | changed for changed in ALLOWED[name](own)]


def of_mesh(**axes: int) -> Size:
    return {"mesh": axes, "ranks": prod(axes.values())}


def each(ranks: range, layers: range, *batches: int) -> Iterator[Size]:
    """So many micro-batches for each rank."""
    return ({"ranks": r, "layers": n, "batches": r * b} for r in ranks for n in layers for b in batches)


def nodes(own: Size) -> Iterator[Size]:
    """Replicas in nodes. With one shard and several replicas nothing would be sharded."""
    for replicas in range(1, 5):
        for shards in range(1, 5):
            for layers in range(1, 2 * replicas * shards + 2):
                if shards > 1 or replicas == 1:
                    size = of_mesh(replica=replicas, shard=shards)
                    batches = own["batches"] // own["ranks"] * size["ranks"]
                    yield size | {"node_size": shards, "layers": layers, "batches": batches}


def rings() -> Iterator[Size]:
    """Equally many layers in each stage, equally many micro-batches in each pipeline, and no fewer of these."""
    for stages in range(2, 6):
        for shards in range(1, 5):
            for share in range(1, 5):
                for batches in range(stages, 3 * stages + 2):
                    size = of_mesh(stage=stages, shard=shards)
                    yield size | {"layers": stages * share, "batches": shards * batches}


def grids() -> Iterator[Size]:
    """As at its own size, the stages may be along the first axis, or along the other two. Layers divide 96."""
    for ends, middle in ((2, 1), (2, 2), (2, 3), (3, 1), (4, 1)):
        for share in (1, 2, 4):
            for batches in (2, 4):
                size = of_mesh(x=ends, y=middle, z=ends)
                yield size | {"layers": ends * middle * share, "batches": batches * size["ranks"]}


ALLOWED = {
    "one_rank": lambda own: ({"layers": n, "batches": b} for n in range(1, 9) for b in range(1, 9)),
    "data_parallel": lambda own: each(RANKS, LAYERS, 1),
    "two_each": lambda own: each(RANKS, LAYERS, 2),
    "one_or_three_each": lambda own: each(RANKS, LAYERS, 1, 3),
    "uneven": lambda own: (
        {"ranks": r, "layers": n, "batches": b} for r in RANKS[1:] for n in LAYERS for b in range(1, r)
    ),
    "one_short": lambda own: (
        {"ranks": r, "layers": n, "batches": r * b - 1} for r in RANKS[1:] for n in LAYERS for b in range(2, 12)
    ),
    "pipeline": lambda own: (
        {"ranks": r, "layers": r * n, "batches": b}
        for r in (2, 3, 4, 5, 6, 8)
        for n in range(1, 5)
        for b in range(1, 17)
    ),
    "rounds": lambda own: (
        {"ranks": r, "layers": 2 * r * n, "batches": r * b}
        for r in range(2, 7)
        for n in range(1, 4)
        for b in range(1, 5)
    ),
    "both_ends": lambda own: (
        of_mesh(half=2, place=p) | {"layers": 2 * p * n, "batches": b}
        for p in range(1, 5)
        for n in range(1, 5)
        for b in range(4 * p, 6 * p + 5, 2)
    ),
    "rings": lambda own: rings(),
    "experts": lambda own: (
        {"ranks": r, "layers": n, "batches": r * own["batches"] // own["ranks"]}
        for r in (2, 4, 8)
        for n in LAYERS
        if n % 2 == 0
    ),
    "two_stages": lambda own: ({"layers": 2 * n, "batches": b} for n in range(1, 9) for b in range(1, 9)),
    "one_layer_each": lambda own: (
        {"ranks": r, "layers": r, "batches": b} for r in (*range(1, 7), 8) for b in range(r, 17)
    ),
    "pipeline_fsdp": lambda own: ({"layers": n} for n in range(4, 56, 4)),
    "replica_fsdp": nodes,
    "one_for_all": lambda own: ({"ranks": r, "layers": n, "batches": 1} for r in RANKS for n in LAYERS),
    "two_nodes": lambda own: (
        {"node_size": n, "ranks": 2 * n, "batches": 2 * n, "layers": layers}
        for n in range(1, 7)
        for layers in range(1, 25)
    ),
    "two_sides": lambda own: (
        of_mesh(side=2, place=p) | {"node_size": p, "layers": n, "batches": p}
        for p in (2, 4, 6, 8)
        for n in range(1, 13)
    ),
    "squares": lambda own: (
        of_mesh(row=r, column=c) | {"layers": n, "batches": r * c}
        for r in range(1, 5)
        for c in range(1, 5)
        for n in range(1, 4)
    ),
    "thicker_stages": lambda own: ({"layers": n} for n in range(8, 44, 4)),
    "copies": lambda own: (
        of_mesh(copy=c, expert=e) | {"layers": n, "batches": c * e}
        for c in range(1, 4)
        for e in (1, 2, 4)
        for n in (2, 4, 6)
        if c * e > 1
    ),
    "beside_pieces": lambda own: (
        of_mesh(data=d, tensor=t) | {"layers": n, "batches": d}
        for d in range(1, 4)
        for t in range(1, 4)
        for n in range(1, 5)
        if d * t > 1
    ),
    "grid": lambda own: grids(),
}


def kinds(size: Size) -> set[Kind]:
    """What kind of size it is: the rests of its numbers, and how each two of them compare and what is left."""
    numbers = {name: size[name] for name in ("ranks", "layers", "batches")} | (size.get("mesh") or {})
    if "mesh" not in size and size.get("node_size"):
        numbers["node"] = size["node_size"]
    found: set[Kind] = set()
    for name, number in numbers.items():
        found |= {(name, f"{number % by} of {by}") for by in (2, 3, 4)} | {(name, power(number))}
        found |= {(name, f"{number}")} if number <= 2 or (name == "ranks" and "mesh" not in size) else set()
    for (one, first), (other, second) in combinations(numbers.items(), 2):
        pair, rest = f"{one}, {other}", max(first, second) % min(first, second)
        left = "none" if rest == 0 else "one" if rest == 1 else "several"
        found.add((pair, "equal" if first == second else f"{'less' if first < second else 'more'}, {left} left"))
    return found


def power(number: int) -> str:
    return "odd" if number % 2 else "a power of two" if number & (number - 1) == 0 else "even, and no power of two"
