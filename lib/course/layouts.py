"""The layouts of weights and states, and the other sizes of a puzzle, which a puzzle's spec may name.

A layout does not read code. It checks what a rank took from load_weights, the final weights that it set, and the states
that it has stored at the end.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from ..basics.errors import Place, PuzzleError, show_set
from ..machine.interface import FinalState
from ..machine.mesh import Mesh
from ..record.events import LOADS
from ..record.labels import Labels, Shards, coarsest, union, within

Size = dict[str, Any]
"""Arguments of ``run``: ranks, layers, batches, mesh and node_size where there are nodes, train where adapters are
trained, hosts where there are any."""
Part = tuple[Shards, int]  # (shards, total): shards of ``total``, as few and as large as can be
Wanted = dict[int, tuple[Part, Part]]
"""For each layer that a rank has, its part of the weight and its part of the optimizer state."""


def _piece(index: int, total: int) -> Part:
    return coarsest(frozenset([index]), total)


def _of_every_layer(size: Size, final_states: Sequence[FinalState], total: int) -> list[Wanted]:
    """Give rank r piece r of ``total`` of every layer, counted round and round."""
    pieces = [_piece(state.rank % total, total) for state in final_states]
    return [dict.fromkeys(range(size["layers"]), (piece, piece)) for piece in pieces]


def whole(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Give every rank all of every layer (plain training, data parallel)."""
    return _of_every_layer(size, final_states, 1)


def sharded(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Give rank r piece r of ``ranks`` of every layer (weight-sharded and fully sharded data parallel)."""
    return _of_every_layer(size, final_states, size["ranks"])


def states_sharded(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Give every rank all weights, and rank r piece r of ``ranks`` of every state (ZeRO-1 and ZeRO-2)."""
    parts = [(_piece(0, 1), _piece(state.rank, size["ranks"])) for state in final_states]
    return [dict.fromkeys(range(size["layers"]), part) for part in parts]


def hybrid_sharded(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Cut weights and states into pieces over ``shard``, the same on every replica."""
    return _of_every_layer(size, final_states, size["mesh"]["shard"])


def replica_sharded(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Cut weights into pieces over ``shard``, the same on every replica, and states over both axes."""
    replicas, shards = size["mesh"]["replica"], size["mesh"]["shard"]
    places = [divmod(state.rank, shards) for state in final_states]
    parts = [(_piece(shard, shards), _piece(shard * replicas + replica, size["ranks"])) for replica, shard in places]
    return [dict.fromkeys(range(size["layers"]), part) for part in parts]


def stages(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Give each layer to the rank that loads it. Raise PuzzleError unless all load equally many, and different ones."""
    fix = (
        "share = model.LAYERS // model.RANKS; this rank loads layers model.rank * share and up, `share` of "
        "them; or, dealt out like cards, every RANKS-th: range(model.rank, model.LAYERS, model.RANKS)"
    )
    return _by_stage(size, final_states, 1, "rank", fix)


def sharded_stages(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Give each layer to the stage that loads it, cut into pieces over ``shard``. Raise PuzzleError unless all stages
    load equally many, and different ones, and all ranks of a stage the same."""
    fix = 'range(model.axis_index("stage"), model.LAYERS, model.axis_size("stage")), on all ranks of a stage'
    return _by_stage(size, final_states, size["mesh"]["shard"], "stage", fix)


def _by_stage(size: Size, final_states: Sequence[FinalState], shards: int, whose: str, fix: str) -> list[Wanted]:
    """Give each layer to the stage that loads it, one piece to each of its ``shards`` consecutive ranks."""
    share = size["layers"] * shards // size["ranks"]
    owner: dict[int, int] = {}
    wanted: list[Wanted] = []
    for state in final_states:
        stage, shard = divmod(state.rank, shards)
        layers = {labels.layer for labels in state.began}
        first = stage * shards
        twice = sorted(layer for layer in layers if owner.get(layer, first) != first)
        fellows = wanted[first].keys() if shard else layers
        if twice or len(layers) != share or layers != fellows:
            problem = f"it loads layers {show_set(layers)}"
            if twice:
                problem += f", of which rank {owner[twice[0]]} has loaded {show_set(twice)}"
            elif layers != fellows:
                problem += f", and rank {first}, of the same stage, {show_set(fellows)}"
            expected = f"{share} layer{'s' * (share > 1)} for each {whose}, each layer on one {whose}"
            raise PuzzleError(problem, where=Place(state.rank), expected=expected, fix=fix, line="")
        owner.update(dict.fromkeys(layers, first))
        wanted.append(dict.fromkeys(layers, (_piece(shard, shards), _piece(shard, shards))))
    return wanted


def anywhere(size: Size, final_states: Sequence[FinalState]) -> list[Wanted]:
    """Give every rank what it begins with. Raise PuzzleError for a weight on a rank without any part of its state, and
    unless all ranks together begin with all weights and all states."""
    wanted: list[Wanted] = []
    for state in final_states:
        weights, states = (_parts(kind, state.began) for kind in ("Weight", "OptState"))
        for layer in sorted(weights.keys() ^ states.keys()):
            has, lacks = ("weight", "optimizer state") if layer in weights else ("optimizer state", "weight")
            expected, fix = "a part of both on each rank that has one of them", f"model.load_weights({layer}, ...)"
            problem = f"it begins with the {has} of layer {layer} and no part of its {lacks}"
            raise PuzzleError(problem, where=Place(state.rank), expected=expected, fix=fix, line="")
        wanted.append({layer: (weights[layer], states[layer]) for layer in weights})
    for layer, (which, kind) in product(range(size["layers"]), enumerate(("Weight", "OptState"))):
        parts = tuple(dict.fromkeys(own[layer][which] for own in wanted if layer in own))
        shards, total = union(parts)[0] if parts else (frozenset[int](), 1)
        if len(shards) < total:
            fix = "each layer on some rank, or each of its pieces: model.load_weights(layer, shard, total)"
            got = _show((shards, total) if shards else None)
            problem = f"no rank begins with all of the {kind} of layer {layer}, and all together do not either"
            raise PuzzleError(problem, where="all ranks", expected="all of it", got=got, fix=fix, line="")
    return wanted


def _parts(kind: str, labels: Iterable[Labels]) -> dict[int, Part]:
    """Return the part of each layer that the tensors of a kind are together."""
    found: dict[int, list[Part]] = {}
    for one in labels:
        if one.kind == kind:
            found.setdefault(one.layer, []).append((one.shards, one.total))
    return {layer: union(tuple(dict.fromkeys(parts)))[0] for layer, parts in found.items()}


LAYOUTS: Mapping[str, Callable[[Size, Sequence[FinalState]], list[Wanted]]] = {
    layout.__name__: layout
    for layout in (whole, sharded, states_sharded, stages, sharded_stages, hybrid_sharded, replica_sharded, anywhere)
}


WITH_ADAPTERS: Mapping[str, tuple[str, str]] = {"frozen_shards": ("sharded", "whole")}
"""Layouts of weights that are frozen, which have no states, and of their adapters, which have."""


def mesh_of(size: Size) -> Mesh:
    """Return the mesh of the ranks of a size."""
    return Mesh(size["ranks"], size.get("mesh"), size.get("node_size"), size.get("hosts", 0))


def check_layout(name: str, size: Size, final_states: Sequence[FinalState]) -> None:
    """Raise PuzzleError, which names the rank, unless every device begins and ends with its parts of the layout.
    Optimizer states may be on its host, which may also have any weights."""
    devices, mesh = final_states[: size["ranks"]], mesh_of(size)
    frozen, trained = WITH_ADAPTERS.get(name, ("", name))
    if frozen:
        _check_frozen(LAYOUTS[frozen](size, devices), devices)
    adapters, wanted = bool(frozen), LAYOUTS[trained](size, devices)
    hosts = {rank: [wanted[device] for device in near] for rank, near in mesh.beside.items()}
    for rank, of_devices in hosts.items():
        began, kept = _begin_and_end("OptState", final_states[rank])
        _check_host(rank, True, of_devices, began)
        _check_host(rank, False, of_devices, kept)
    for state, want in zip(devices, wanted, strict=True):
        began, kept = _begin_and_end("OptState", state)
        if (host := mesh.host_of(state.rank)) is not None:
            began_there, kept_there = _begin_and_end("OptState", final_states[host])
            began += [one for one in began_there if _is_part(one, want)]
            kept += [one for one in kept_there if _is_part(one, want)]
        weights = [labels for labels in state.began if labels.adapter == adapters]
        _compare(state.rank, "Weight", True, want, weights, adapters)
        _compare(state.rank, "OptState", True, want, [one for one in began if one.adapter == adapters], adapters)
        if state.late:  # until its update no rank would have the state in memory
            problem = f"it has loaded the optimizer state of layer {state.late[0].layer} only after work on that layer"
            expected = "weight and state loaded before the first operation of their layer"
            store = 'weights["adapter", l]' if adapters else "weights[l]"
            fix = f"model.{store}, model.opt_states[l] = model.{LOADS[adapters]}(l) before anything else with layer l"
            raise PuzzleError(problem, where=Place(state.rank), expected=expected, fix=fix, line="")
        finals = [final.labels for final in state.finals.values()]
        _compare(state.rank, "Weight", False, want, finals, adapters)
        _compare(state.rank, "OptState", False, want, kept, adapters)


def _begin_and_end(kind: str, state: FinalState) -> tuple[list[Labels], list[Labels]]:
    """Return the tensors of a kind that a rank begins with, and the updated ones that it has stored at its end."""
    kept = [piece.labels for piece in state.kept if piece.labels.step == 1]
    return [one for one in state.began if one.kind == kind], [one for one in kept if one.kind == kind]


def _is_part(state: Labels, wanted: Wanted) -> bool:
    """Return whether an optimizer state is of the part that a device has to have."""
    if state.layer not in wanted:
        return False
    shards, total = wanted[state.layer][1]
    return within(state, state.changed(shards=shards, total=total))


def _check_host(rank: int, begins: bool, of_devices: Sequence[Wanted], states: Iterable[Labels]) -> None:
    """Raise PuzzleError for an optimizer state on a host that none of its devices has to have."""
    for state in states:
        if not any(_is_part(state, wanted) for wanted in of_devices):
            when = "begins" if begins else "ends"
            fix = "a host has the states of its own devices, in the pieces in which they would have them"
            problem = f"this host {when} with an optimizer state of layer {state.layer} that none of its devices has"
            raise PuzzleError(problem, where=Place(rank), got=str(state), fix=fix, line="")


def _check_frozen(layout: Sequence[Wanted], final_states: Sequence[FinalState]) -> None:
    """Raise PuzzleError unless every rank begins and ends with its parts of frozen weights, and no states of these."""
    for state, wanted in zip(final_states, layout, strict=True):
        began = [labels for labels in state.began if not labels.adapter]
        for labels in began:
            if labels.kind == "OptState":
                problem = f"it keeps the optimizer state of the frozen weight of layer {labels.layer}"
                fix = f"model.weights[{labels.layer}], _ = model.load_weights(...): what is frozen needs none"
                raise PuzzleError(problem, where=Place(state.rank), got=str(labels), fix=fix, line="")
        _compare(state.rank, "Weight", True, wanted, began)
        kept = [piece.labels for piece in state.kept if piece.labels.kind == "Weight" and not piece.labels.adapter]
        _compare(state.rank, "Weight", False, wanted, kept, frozen=True)


def _compare(
    rank: int,
    kind: str,
    begins: bool,
    wanted: Mapping[int, tuple[Part, Part]],
    labels: Iterable[Labels],
    adapters: bool = False,
    frozen: bool = False,
) -> None:
    """Raise PuzzleError unless these are the wanted parts of weights or states at a rank's beginning or end."""
    got = _parts(kind, labels)
    which = 0 if kind == "Weight" else 1
    for layer in sorted(wanted.keys() | got.keys()):
        want = wanted[layer][which] if layer in wanted else None
        have = got.get(layer)
        if have != want:
            end, how = _ENDS["frozen" if frozen else kind]
            when = f"begins with ({LOADS[adapters]})" if begins else f"ends with ({end})"
            what = f"{kind} of the adapter" if adapters else kind
            problem = f"it {when} the wrong pieces of the {what} of layer {layer}"
            if layer not in wanted:
                fix = f"layer {layer} is not for this rank: leave it to those that hold it"
            elif begins:
                fix = _load(LOADS[adapters], layer, *wanted[layer])
            elif have is None:
                fix = how.format(layer)
            else:
                fix = "the part that this rank has loaded: what is gathered is for use, and not to be kept"
            raise PuzzleError(problem, where=Place(rank), expected=_show(want), got=_show(have), fix=fix, line="")


_ENDS = {
    "frozen": ("stored, as it was loaded", "leave the part that this rank has loaded in model.weights[{0}]"),
    "Weight": ("set_final_weight", "model.set_final_weight({0}, weight)"),
    "OptState": ("stored after its update", "model.weights[{0}], model.opt_states[{0}] = model.update({0}, ...)"),
}
"""The way in which a rank must end with its tensors, in words and in code."""


def _load(verb: str, layer: int, weight: Part, opt_state: Part) -> str:
    """Return how a rank loads its part of a layer, and its part of the state where that is cut finer."""
    (shard, *_), total = sorted(weight[0]), weight[1]
    load = f"model.{verb}({layer}, {shard}, {total})" if total > 1 else f"model.{verb}({layer})"
    if opt_state == weight:
        return f"{load} on this rank"
    pieces = opt_state[1] // total
    return f"weight, opt_state = {load} on this rank, then opt_state.shard({min(opt_state[0]) % pieces}, {pieces})"


def _show(part: Part | None) -> str:
    if part is None:
        return "nothing of it"
    shards, total = part
    return "all of it" if len(shards) == total else f"shard {show_set(shards)} of {total}"


# -- other sizes ------------------------------------------------------------------------------


def one_rank(size: Size) -> list[Size]:
    """Return sizes with other layers and micro-batches."""
    return [size | {"layers": layers, "batches": batches} for layers in (1, 2, 3, 6) for batches in (1, 2, 3, 8)]


def data_parallel(size: Size) -> list[Size]:
    """Return sizes with other layers, and other ranks with one micro-batch each."""
    return [size | {"layers": layers, "ranks": n, "batches": n} for n in (2, 3, 5, 8) for layers in (1, 2, 4, 7)]


def two_each(size: Size) -> list[Size]:
    """Return sizes with other layers, and other ranks with two micro-batches each."""
    return [other | {"batches": 2 * other["ranks"]} for other in data_parallel(size)]


def one_or_three_each(size: Size) -> list[Size]:
    """Return sizes with other layers, and other ranks with one micro-batch each, or three."""
    return [other | {"batches": each * other["ranks"]} for other in data_parallel(size) for each in (1, 3)]


def uneven(size: Size) -> list[Size]:
    """Return sizes with other layers, other ranks, and fewer micro-batches than ranks."""
    some = [(other, {1, other["ranks"] // 2, other["ranks"] - 1}) for other in data_parallel(size)]
    return [other | {"batches": batches} for other, counts in some for batches in sorted(counts)]


def pipeline(size: Size) -> list[Size]:
    """Return sizes with other ranks and micro-batches, and a multiple of the ranks as layers."""
    stages = [size | {"ranks": ranks, "layers": ranks * each} for ranks in (2, 3, 5) for each in (1, 2, 3)]
    return [other | {"batches": batches} for other in stages for batches in (1, 2, 3, 8)]


def rounds(size: Size) -> list[Size]:
    """Return sizes with other ranks, two or four layers on each, and a multiple of the ranks as micro-batches."""
    machines = [size | {"ranks": ranks, "layers": ranks * each} for ranks in (2, 3, 5) for each in (2, 4)]
    return [other | {"batches": other["ranks"] * each} for other in machines for each in (1, 2, 3)]


def rings(size: Size) -> list[Size]:
    """Return sizes with another mesh of stages and shards, other layers on each stage, and at least as many
    micro-batches for each pipeline as stages."""
    meshes = [{"stage": stage, "shard": shard} for stage, shard in ((2, 2), (2, 3), (3, 2), (5, 2), (3, 4))]
    machines = [size | {"ranks": mesh["stage"] * mesh["shard"], "mesh": mesh} for mesh in meshes]
    deeper = [other | {"layers": other["mesh"]["stage"] * each} for other in machines for each in (1, 2, 3)]
    return [
        other | {"batches": other["mesh"]["shard"] * (other["mesh"]["stage"] + more)}
        for other in deeper
        for more in (0, 1, 4)
    ]


def two_stages(size: Size) -> list[Size]:
    """Return sizes with two ranks, an even number of layers, and other micro-batches."""
    return [size | {"layers": layers, "batches": batches} for layers in (2, 4, 8) for batches in (1, 2, 3, 8)]


def one_layer_each(size: Size) -> list[Size]:
    """Return sizes with other ranks, as many layers, and other micro-batches: as many as ranks, or more."""
    ranks = (2, 3, 5, 6)
    return [size | {"ranks": n, "layers": n, "batches": batches} for n in ranks for batches in (n, n + 1, 2 * n, 13)]


def two_nodes(size: Size) -> list[Size]:
    """Return sizes with two nodes of other ranks, one micro-batch for each rank, and other layers."""
    machines = [size | {"ranks": 2 * each, "batches": 2 * each, "node_size": each} for each in (2, 3, 5)]
    return [machine | {"layers": layers} for machine in machines for layers in (1, 2, 5, 13)]


def one_for_all(size: Size) -> list[Size]:
    """Return sizes with other ranks and layers, and one micro-batch for all of them."""
    return [size | {"ranks": n, "layers": layers, "batches": 1} for n in (2, 3, 5, 8) for layers in (1, 2, 4, 7)]


def pipeline_fsdp(size: Size) -> list[Size]:
    """Return sizes with other layers: a multiple of the four stages."""
    return [size | {"layers": layers} for layers in (8, 12)]


def grid(size: Size) -> list[Size]:
    """Return sizes with other numbers on the three axes of the mesh, one layer or two for each rank, and two or four
    micro-batches. The first axis is as long as the last: either is as good for replicas."""
    found = []
    for ends, y in ((2, 1), (2, 2), (2, 3), (4, 1)):
        ranks, mesh = ends * y * ends, {"x": ends, "y": y, "z": ends}
        machine = size | {"ranks": ranks, "mesh": mesh}
        found += [machine | {"layers": ranks * deep, "batches": ranks * each} for deep in (1, 2) for each in (2, 4)]
    return found


def replica_fsdp(size: Size) -> list[Size]:
    """Return sizes with another mesh, a node for each replica, other layers, and as many micro-batches a rank."""
    each, found = size["batches"] // size["ranks"], []
    for replica, shard in ((2, 2), (2, 3), (3, 2), (3, 4), (4, 2)):
        ranks, mesh = replica * shard, {"replica": replica, "shard": shard}
        machine = size | {"ranks": ranks, "mesh": mesh, "node_size": shard, "batches": each * ranks}
        found += [machine | {"layers": layers} for layers in (1, 2, 5)]
    return found


SIZES: Mapping[str, Callable[[Size], list[Size]]] = {
    way.__name__: way
    for way in (
        *(one_rank, data_parallel, two_each, one_or_three_each, uneven),
        *(pipeline, rounds, rings, two_stages, one_layer_each, pipeline_fsdp, replica_fsdp),
        *(one_for_all, two_nodes, grid),
    )
}


def extremes(sizes: Sequence[Size]) -> list[set[object]]:
    """Return for each size the ways in which it is extreme: the fewest or the most of something; or fewer, more or as
    many layers as ranks, micro-batches as ranks, replicas as shards."""
    flat = [{**size, **(size.get("mesh") or {}), "mesh": 0, "node_size": 0} for size in sizes]
    counts = {key: [size[key] for size in flat] for key in flat[0]}
    ends = {key: {min(count), max(count)} for key, count in counts.items() if min(count) < max(count)}
    found: list[set[object]] = []
    for size in flat:
        own: set[object] = {(key, size[key]) for key in ends if size[key] in ends[key]}
        for one, other in (("layers", "ranks"), ("batches", "ranks"), ("replica", "shard")):
            if one in size:
                own.add((one, other, (size[one] > size[other]) - (size[one] < size[other])))
        found.append(own)
    return found


def show_size(size: Size) -> str:
    """Return a size as text: ``4 ranks, 6 layers, 4 micro-batches``."""
    plural = {"ranks": "rank", "layers": "layer", "batches": "micro-batch"}
    parts = [f"{size[k]} {v}{'' if size[k] == 1 else 'es' if v.endswith('h') else 's'}" for k, v in plural.items()]
    if size.get("hosts"):
        parts.append(f"{size['hosts']} host{'s' * (size['hosts'] > 1)}")
    if size.get("mesh"):
        parts.append("mesh " + " x ".join(f"{axis} {count}" for axis, count in size["mesh"].items()))
    return ", ".join(parts)
