"""Where weights and states live, and at which sizes a puzzle is tried: what a puzzle's spec may name.

Neither reads code: a layout looks at what a rank took from load_weights, at the final weights it set, and at the
states it has stored in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from ..basics.errors import Place, PuzzleError, show_set
from ..machine.interface import FinalState
from ..record.labels import Labels, coarsest, union

Size = dict[str, Any]
"""Arguments of ``run``: ranks, layers, batches, and mesh and node_size where there are boxes."""
Shard = tuple[int, int]
"""(index, total): shard ``index`` of ``total``."""
Wanted = dict[int, tuple[Shard, Shard]]
"""For each layer that a rank has, its shard of the weight and its shard of the optimizer state."""

EVERYTHING: Shard = (0, 1)


def whole(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Give every rank all of every layer (plain training, data parallel)."""
    return [dict.fromkeys(range(size["layers"]), (EVERYTHING, EVERYTHING)) for _ in final_states]


def sharded(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Give rank r piece r of ``ranks`` of every layer (weight-sharded and fully sharded data parallel)."""
    ranks = size["ranks"]
    return [dict.fromkeys(range(size["layers"]), ((r, ranks), (r, ranks))) for r in range(ranks)]


def stages(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Give each layer to the rank that loads it. Raise PuzzleError unless all load equally many, and different ones."""
    share = size["layers"] // size["ranks"]
    owner: dict[int, int] = {}
    wanted: list[Wanted] = []
    for state in final_states:
        layers = {labels.layer for labels in state.began}
        twice = sorted(layer for layer in layers if layer in owner)
        if twice or len(layers) != share:
            raise PuzzleError(
                f"it loads layers {show_set(layers)}"
                + (f", of which rank {owner[twice[0]]} has loaded {show_set(twice)}" if twice else ""),
                where=Place(state.rank),
                expected=f"{share} layer{'s' * (share > 1)} for each rank, each layer on one rank",
                line="",
            )
        owner.update(dict.fromkeys(layers, state.rank))
        wanted.append(dict.fromkeys(layers, (EVERYTHING, EVERYTHING)))
    return wanted


def hybrid_sharded(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Cut weights and states into pieces over ``shard``, the same on every replica."""
    replicas, shards = size["mesh"]["replica"], size["mesh"]["shard"]
    return [
        dict.fromkeys(range(size["layers"]), ((shard, shards), (shard, shards)))
        for _ in range(replicas)
        for shard in range(shards)
    ]


def replica_sharded(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Cut weights into pieces over ``shard``, the same on every replica, and states over both axes."""
    replicas, shards = size["mesh"]["replica"], size["mesh"]["shard"]
    return [
        dict.fromkeys(range(size["layers"]), ((shard, shards), (shard * replicas + replica, shards * replicas)))
        for replica in range(replicas)
        for shard in range(shards)
    ]


LAYOUTS: Mapping[str, Callable[[Size, Sequence[FinalState]], list[Wanted]]] = {
    "whole": whole,
    "sharded": sharded,
    "stages": stages,
    "hybrid_sharded": hybrid_sharded,
    "replica_sharded": replica_sharded,
}


def check_layout(name: str, size: Size, final_states: Sequence[FinalState]) -> None:
    """Raise PuzzleError, which names the rank, unless every rank begins and ends with what the layout says."""
    for state, wanted in zip(final_states, LAYOUTS[name](size, final_states), strict=True):
        weights = {layer: piece for layer, (piece, _) in wanted.items()}
        opt_states = {layer: piece for layer, (_, piece) in wanted.items()}
        finals = [final.labels for final in state.finals.values()]
        kept = [piece.labels for piece in state.kept if piece.labels.kind == "OptState" and piece.labels.step == 1]
        _compare(state.rank, "begins with (load_weights)", "Weight", weights, state.began)
        _compare(state.rank, "begins with (load_weights)", "OptState", opt_states, state.began)
        _check_early(state)
        _compare(
            state.rank, "ends with (set_final_weight)", "Weight", weights, finals, "model.set_final_weight({}, weight)"
        )
        cure = "model.weights[{0}], model.opt_states[{0}] = model.update({0}, ...)"
        _compare(state.rank, "ends with (stored after its update)", "OptState", opt_states, kept, cure)


def _check_early(state: FinalState) -> None:
    """Raise PuzzleError for a state loaded only at its update: until then no rank would have it in memory."""
    if state.late:
        raise PuzzleError(
            f"it has loaded the optimizer state of layer {state.late[0].layer} only after work on that layer",
            where=Place(state.rank),
            expected="weight and state loaded before the first operation of their layer",
            cure="model.weights[l], model.opt_states[l] = model.load_weights(l) before anything else with layer l",
            line="",
        )


def _compare(
    rank: int, when: str, kind: str, wanted: Mapping[int, Shard], labels: Iterable[Labels], cure: str = ""
) -> None:
    """Raise PuzzleError unless a rank has the wanted pieces. ``cure``: what to write if a layer, {}, is missing."""
    got: dict[int, list[Labels]] = {}
    for one in labels:
        if one.kind == kind:
            got.setdefault(one.layer, []).append(one)
    for layer in sorted(wanted.keys() | got.keys()):
        have = _union(got.get(layer, []))
        want = None
        if layer in wanted:
            index, total = wanted[layer]
            want = coarsest(frozenset([index]), total)
        if have != want:
            raise PuzzleError(
                f"it {when} the wrong pieces of the {kind} of layer {layer}",
                where=Place(rank),
                expected=_show(want),
                got=_show(have),
                cure=cure.format(layer) if want is not None and have is None else "",
                line="",
            )


def _union(parts: Sequence[Labels]) -> tuple[frozenset[int], int] | None:
    if not parts:
        return None
    return union([(part.shards, part.total) for part in parts])[0]


def _show(part: tuple[frozenset[int], int] | None) -> str:
    if part is None:
        return "nothing of it"
    shards, total = part
    return "all of it" if len(shards) == total else f"shard {show_set(shards)} of {total}"


# -- other sizes ------------------------------------------------------------------------------


def one_rank(size: Size, random: Random) -> Size:
    """Return a size with other layers and micro-batches."""
    return size | {"layers": random.randint(1, 6), "batches": random.randint(1, 8)}


def data_parallel(size: Size, random: Random) -> Size:
    """Return a size with other layers, and other ranks with one micro-batch each."""
    ranks = random.choice([2, 3, 5, 6, 8])
    return size | {"layers": random.randint(1, 7), "ranks": ranks, "batches": ranks}


def two_each(size: Size, random: Random) -> Size:
    """Return a size with other layers, and other ranks with two micro-batches each."""
    size = data_parallel(size, random)
    return size | {"batches": 2 * size["ranks"]}


def uneven(size: Size, random: Random) -> Size:
    """Return a size with other layers, other ranks, and fewer micro-batches than ranks."""
    size = data_parallel(size, random)
    return size | {"batches": random.randint(1, size["ranks"] - 1)}


def pipeline(size: Size, random: Random) -> Size:
    """Return a size with other ranks and micro-batches, and a multiple of the ranks as layers."""
    ranks = random.choice([2, 3, 5, 6])
    return size | {"ranks": ranks, "layers": ranks * random.randint(1, 3), "batches": random.randint(1, 8)}


def two_stages(size: Size, random: Random) -> Size:
    """Return a size with two ranks, an even number of layers, and other micro-batches."""
    return size | {"layers": 2 * random.randint(1, 4), "batches": random.randint(1, 8)}


def pipeline_fsdp(size: Size, random: Random) -> Size:
    """Return a size with other layers: a multiple of the four stages."""
    return size | {"layers": random.choice([8, 12])}


def replica_fsdp(size: Size, random: Random) -> Size:
    """Return a size with another mesh, a box for each replica, other layers, and as many micro-batches a rank."""
    each = size["batches"] // size["ranks"]
    replica, shard = random.choice([(2, 2), (2, 3), (3, 2), (3, 4), (4, 2)])
    return size | {
        "ranks": replica * shard,
        "mesh": {"replica": replica, "shard": shard},
        "node_size": shard,
        "batches": each * replica * shard,
        "layers": random.randint(1, 5),
    }


SIZES: Mapping[str, Callable[[Size, Random], Size]] = {
    "one_rank": one_rank,
    "data_parallel": data_parallel,
    "two_each": two_each,
    "uneven": uneven,
    "pipeline": pipeline,
    "two_stages": two_stages,
    "pipeline_fsdp": pipeline_fsdp,
    "replica_fsdp": replica_fsdp,
}


def show_size(size: Size) -> str:
    """Return a size for people: ``4 ranks, 6 layers, 4 micro-batches``."""
    plural = {"ranks": "rank", "layers": "layer", "batches": "micro-batch"}
    parts = [f"{size[k]} {v}{'' if size[k] == 1 else 'es' if v.endswith('h') else 's'}" for k, v in plural.items()]
    if size.get("mesh"):
        parts.append("mesh " + " x ".join(f"{axis} {count}" for axis, count in size["mesh"].items()))
    return ", ".join(parts)
