"""The other sizes at which a puzzle is graded, which its spec may name: all that cover every pair of relations.

A program may be right at many sizes and wrong where two things come together: fewer micro-batches than ranks, and
several layers a rank. So of all sizes that a puzzle allows, those are tried that have, for any two of the relations
below, one in which both hold. The same goes for how any two numbers of a size compare, such as layers and ranks, or
layers and the length of an axis. They are small, and always the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import prod

from .layouts import Size

Relation = tuple[str, str]  # what it is of, as "layers", and what holds, as "n - 1"


def _varied(size: Size, **choices: Iterable[object] | Callable[[Size], Iterable[object]]) -> list[Size]:
    """Return a size with every combination of values, the first ones varying slowest. A function gives those that
    follow from the values before it."""
    found = [size]
    for name, values in choices.items():
        found = [one | {name: value} for one in found for value in (values(one) if callable(values) else values)]
    return found


def _a_rank(*each: int) -> Callable[[Size], list[int]]:
    """Return a function that gives so many layers or micro-batches for each rank."""
    return lambda size: [count * size["ranks"] for count in each]


def _of_mesh(size: Size) -> list[int]:
    return [prod(size["mesh"].values())]


def _around(ranks: int) -> dict[str, int]:
    """Return the numbers of layers or micro-batches that stand in a relation to so many ranks."""
    return {
        "1": 1,
        "2": 2,
        "n - 1": ranks - 1,
        "n": ranks,
        "n + 1": ranks + 1,
        "n + 3": ranks + 3,
        "2n": 2 * ranks,
        "3n": 3 * ranks,
    }


def _layers(size: Size) -> list[int]:
    """Return fewer layers than ranks, as many, and more, with those that ranks do not divide."""
    ranks, around = size["ranks"], _around(size["ranks"])
    some = {around[name] for name in ("1", "2", "n - 1", "n", "n + 3", "2n", "3n")} - {0}
    return sorted(some | ({3, 4 * ranks, 6 * ranks} if ranks <= 2 else set()))  # also more than micro-batches


def _layers_of_nodes(size: Size) -> list[int]:
    """Return few layers, and what is a multiple of an axis, of both and of none, with fewer than ranks and more."""
    lengths, ranks = size["mesh"].values(), size["ranks"]
    some = {1, 2, 3, 5, *lengths, *[2 * length for length in lengths]}
    return sorted(some | ({ranks, ranks + 1, ranks + 2, 2 * ranks, size["batches"] + 1} if ranks <= 8 else set()))


def _batches(size: Size) -> list[int]:
    """Return fewer micro-batches than ranks, as many, and more, with those that ranks do not divide."""
    around = _around(size["ranks"])
    some = {around[name] for name in ("1", "2", "n - 1", "n", "n + 1", "2n", "3n")} - {0}
    return sorted(some | ({4 * size["ranks"]} if size["ranks"] <= 2 else set()))


_RANKS = (1, 2, 3, 4, 5, 8)
_PIPELINE = (1, 2, 3, 4, 5)  # where messages go round, one rank would pass to itself
_RINGS = [
    {"stage": stage, "shard": shard}
    for stage, shard in ((2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (3, 4), (4, 2), (4, 3), (5, 2))
]
_GRIDS = [{"x": ends, "y": y, "z": ends} for ends, y in ((2, 1), (2, 2), (2, 3), (3, 1), (4, 1))]
# With one shard and several replicas, all of a gradient would have to be summed: there, nothing is sharded.
_REPLICAS = [
    {"replica": replica, "shard": shard}
    for shard in (1, 2, 3, 4)
    for replica in (1, 2, 3, 4)
    if shard > 1 or replica == 1
]
SIZES: Mapping[str, Callable[[Size], list[Size]]] = {
    "one_rank": lambda size: _varied(size, layers=(1, 2, 3, 6), batches=(1, 2, 3, 8)),
    "data_parallel": lambda size: _varied(size, ranks=_RANKS, layers=_layers, batches=_a_rank(1)),
    "two_each": lambda size: _varied(size, ranks=_RANKS, layers=_layers, batches=_a_rank(2)),
    "one_or_three_each": lambda size: _varied(size, ranks=_RANKS, layers=_layers, batches=_a_rank(1, 3)),
    "uneven": lambda size: _varied(  # with fewer micro-batches than ranks
        size,
        ranks=_RANKS[1:],
        layers=lambda one: sorted({*_layers(one), 3, 4}),
        batches=lambda one: sorted({number for number in (1, 2, 3, 4, one["ranks"] - 1) if number < one["ranks"]}),
    ),
    # a micro-batch less than ranks could share evenly, and some for everyone
    "one_short": lambda size: _varied(
        size,
        ranks=_RANKS[1:],
        layers=lambda one: sorted({*_layers(one), 9}),
        batches=lambda one: [each * one["ranks"] - 1 for each in (2, 3, 6, 11)],
    ),
    "pipeline": lambda size: _varied(size, ranks=_PIPELINE[1:], layers=_a_rank(1, 2, 3, 4), batches=_batches),
    "rounds": lambda size: _varied(size, ranks=_PIPELINE[1:], layers=_a_rank(2, 4), batches=_a_rank(1, 2, 3, 4)),
    "both_ends": lambda size: _varied(  # of an even number of micro-batches, enough for both ends
        size,
        mesh=[{"half": 2, "place": places} for places in (1, 2, 3, 4)],
        ranks=_of_mesh,
        layers=_a_rank(1, 2, 3, 4),
        batches=lambda one: [each * one["ranks"] + more for each, more in ((2, 0), (2, 2), (2, 4), (3, 0), (3, 2))],
    ),
    "rings": lambda size: _varied(  # with at least as many micro-batches for each pipeline as stages
        size,
        mesh=_RINGS,
        ranks=_of_mesh,
        layers=lambda one: [one["mesh"]["stage"] * each for each in (1, 2, 3, 4) if one["mesh"]["stage"] * each < 16],
        batches=lambda one: [one["mesh"]["shard"] * (one["mesh"]["stage"] + more) for more in (0, 1, 2, 4)],
    ),
    # as many experts as ranks or more, in whole pairs of layers
    "experts": lambda size: _varied(
        size, ranks=(2, 4, 8), layers=(2, 4, 6, 8, 10, 16), batches=_a_rank(size["batches"] // size["ranks"])
    ),
    "two_stages": lambda size: _varied(size, layers=(2, 4, 6, 8), batches=(1, 2, 3, 4, 8)),
    "one_layer_each": lambda size: _varied(  # with as many micro-batches as ranks, or more
        size,
        ranks=(*_PIPELINE, 6),
        layers=_a_rank(1),
        batches=lambda one: sorted({one["ranks"], one["ranks"] + 1, 2 * one["ranks"], 3 * one["ranks"], 13}),
    ),
    "pipeline_fsdp": lambda size: _varied(size, layers=(8, 12)),  # multiples of the four stages
    "replica_fsdp": lambda size: _varied(  # with as many micro-batches a rank, and a node for each replica
        size,
        mesh=_REPLICAS,
        batches=lambda one: [one["batches"] // one["ranks"] * prod(one["mesh"].values())],
        ranks=_of_mesh,
        node_size=lambda one: [one["mesh"]["shard"]],
        layers=_layers_of_nodes,
    ),
    "one_for_all": lambda size: _varied(size, ranks=_RANKS, layers=_layers, batches=(1,)),
    "two_nodes": lambda size: _varied(
        size,
        node_size=(1, 2, 3, 4, 5),
        ranks=lambda one: [2 * one["node_size"]],
        batches=_a_rank(1),
        layers=lambda one: sorted({1, 2, 3, 5, 13, one["node_size"], one["ranks"], 2 * one["ranks"]}),
    ),
    # the first axis is as long as the last: either is as good for replicas
    "grid": lambda size: _varied(
        size,
        mesh=_GRIDS,
        ranks=_of_mesh,
        layers=lambda one: [one["mesh"]["y"] * one["mesh"]["z"] * each for each in (1, 2, 4)],
        batches=_a_rank(2, 4),
    ),
}
"""The sizes that a puzzle's text allows, not all of them, of its own size."""


def relations(size: Size) -> list[Relation]:
    """Return what holds at a size: how many ranks there are, an odd or an even number, and how many layers and
    micro-batches beside them. In a mesh, how long the axes are; a stage is what a rank is elsewhere."""
    mesh = size.get("mesh") or {}
    n: int = mesh["stage"] if "stage" in mesh else size["ranks"]
    numbers = {"layers": size["layers"], "batches": size["batches"] // (mesh["shard"] if "stage" in mesh else 1)}
    if "replica" in mesh:
        return [*_lengths(mesh), ("layers", str(size["layers"]) if size["layers"] <= 3 else "more")]
    found = _lengths(mesh) if mesh else [("ranks", str(n) if n < 3 else "even" if n % 2 == 0 else "odd")]
    if not mesh and size.get("node_size"):
        found.append(("node", str(size["node_size"])))
    for what, number in numbers.items():
        named = [(what, name) for name, known in _around(n).items() if known == number]
        found += named or [(what, "others")]
    return found


def _lengths(mesh: Mapping[str, int]) -> list[Relation]:
    return [(axis, str(length)) for axis, length in mesh.items()]


def comparisons(size: Size) -> list[Relation]:
    """Return how any two numbers of a size compare: ranks, layers, micro-batches and the length of each axis."""
    numbers = {"one": 1} | {what: size[what] for what in ("ranks", "layers", "batches")} | (size.get("mesh") or {})
    if not size.get("mesh") and size.get("node_size"):
        numbers["node"] = size["node_size"]
    return [
        (f"{one}, {two}", _compared(numbers[one], numbers[two]) + _divides(numbers[one], numbers[two]))
        for one, two in combinations(numbers, 2)
    ]


def _compared(one: int, other: int) -> str:
    return "fewer" if one < other else "as many" if one == other else "more"


def _divides(one: int, other: int) -> str:
    return "" if max(one, other) % min(one, other) == 0 else ", which it does not divide"


def _pairs(size: Size) -> set[tuple[Relation, Relation]]:
    """Return all pairs of relations of different things that hold at a size, and of comparisons; and each number of
    ranks beside fewer, as many or more layers and micro-batches."""
    found = {(one, two) for one, two in combinations(relations(size), 2) if one[0] != two[0]}
    found |= {*combinations(comparisons(size), 2)}
    if not size.get("mesh"):
        ranks = size["ranks"]
        exactly = ("ranks", f"exactly {ranks}")
        found |= {(exactly, (what, _compared(size[what], ranks))) for what in ("layers", "batches")}
    return found


def _work(size: Size) -> int:
    return int(size["ranks"] * size["layers"] * (1 + size["batches"]))


def covering(sizes: Sequence[Size]) -> list[Size]:
    """Return few of these sizes, small ones first, that have every pair of relations which any of them has."""
    left = [(_pairs(size), size) for size in sorted(sizes, key=_work)]
    missing = set[tuple[Relation, Relation]]().union(*[pairs for pairs, _ in left])
    chosen: list[Size] = []
    while missing:
        pairs, size = max(left, key=lambda one: len(one[0] & missing))  # of equals the first, which is the smallest
        chosen.append(size)
        missing -= pairs
    return sorted(chosen, key=_work)


def other_sizes(name: str, own: Size) -> list[Size]:
    """Return the sizes at which a puzzle of this choice is graded besides its own."""
    return covering([size for size in SIZES[name](own) if size != own])


def show_size(size: Size) -> str:
    """Return a size as text: ``4 ranks, 6 layers, 4 micro-batches``."""
    plural = {"ranks": "rank", "layers": "layer", "batches": "micro-batch"}
    parts = [f"{size[k]} {v}{'' if size[k] == 1 else 'es' if v.endswith('h') else 's'}" for k, v in plural.items()]
    if size.get("hosts"):
        parts.append(f"{size['hosts']} host{'s' * (size['hosts'] > 1)}")
    if size.get("mesh"):
        parts.append("mesh " + " x ".join(f"{axis} {count}" for axis, count in size["mesh"].items()))
    return ", ".join(parts)
