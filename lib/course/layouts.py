"""The layouts of weights and states that a puzzle's spec may name.

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
from ..record.kinds import KINDS
from ..record.labels import Labels, another_part, experts_of, within
from ..record.shards import Shards, coarsest, show_part, union
from ..record.training import UPDATE

Size = dict[str, Any]
"""Arguments of ``run``: ranks, layers, batches, mesh and node_size where there are nodes, train where adapters are
trained, hosts where there are any, experts where layers have some."""
Part = tuple[Shards, int]  # (shards, total): shards of ``total``, as few and as large as can be
Parts = tuple[Part, Part | None]
Wanted = dict[int, Parts]
"""For each layer that a rank has, its part of the weight and its part of the optimizer state. A rank without a part of
the state ends with its weight, and does not begin with it."""
Layout = Callable[[Size, Sequence[FinalState]], list[Wanted]]


def _piece(index: int, total: int) -> Part:
    return coarsest(frozenset([index % total]), total)


def _by_stage(size: Size, final_states: Sequence[FinalState], shards: int, whose: str) -> list[Wanted]:
    """Give each layer to the stage that loads it, one piece to each of its ``shards`` consecutive ranks. Raise
    PuzzleError unless all stages load equally many, and different ones, and all ranks of a stage the same."""
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
            of_whom = ""
            if twice:
                of_whom = f", of which rank {owner[twice[0]]} has loaded {show_set(twice)}"
            elif layers != fellows:
                of_whom = f", and rank {first}, of the same stage, {show_set(fellows)}"
            expected = f"{share} layer{'s' * (share > 1)} for each {whose}, each layer on one {whose}"
            facts: dict[str, Any] = {"layers": frozenset(layers), "beside": of_whom}
            raise PuzzleError("other_layers", where=Place(state.rank), expected=expected, line="", **facts)
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
            expected = "a part of both weight and optimizer state on each rank that has one of them"
            lacks = "optimizer state" if layer in weights else "weight"
            raise _wrong_part(state.rank, "begins", "without a part of the", lacks, layer, expected)
        wanted.append({layer: (weights[layer], states[layer]) for layer in weights})
    for layer, (which, kind) in product(range(size["layers"] - size.get("tied", 0)), enumerate(_ENDS)):
        parts = tuple(dict.fromkeys(own[layer][which] for own in wanted if layer in own))
        shards, total = union(parts)[0] if parts else (frozenset[int](), 1)
        if len(shards) < total:
            got = _show((shards, total) if shards else None)
            raise PuzzleError(
                "not_all_loaded", where="all ranks", expected="all of it", got=got, line="", kind=kind, layer=layer
            )
    return wanted


def _parts(kind: str, labels: Iterable[Labels]) -> dict[int, Part]:
    """Return the part of each layer that the tensors of a kind are together."""
    found: dict[int, list[Part]] = {}
    for one in labels:
        if one.kind == kind:
            found.setdefault(one.layer, []).append((one.shards, one.total))
    return {layer: union(tuple(dict.fromkeys(parts)))[0] for layer, parts in found.items()}


def _everywhere(pieces: Callable[[Size, int], Parts]) -> Layout:
    """Return the layout that gives a rank these pieces of the weight and the state of every layer."""
    return lambda size, states: [dict.fromkeys(range(size["layers"]), pieces(size, state.rank)) for state in states]


def _experts_sharded(size: Size, states: Sequence[FinalState]) -> list[Wanted]:
    """Give a rank all of every dense layer, and of a layer with experts its piece."""
    ranks = size["mesh"]["expert"] if size.get("mesh") else size["ranks"]  # where there are copies, those of one
    cut = [ranks if experts_of(layer, size["experts"]) else 1 for layer in range(size["layers"])]
    return [{layer: (_piece(state.rank, many),) * 2 for layer, many in enumerate(cut)} for state in states]


def _tied_stages(size: Size, states: Sequence[FinalState]) -> list[Wanted]:
    """Give each rank as many layers that follow each other, and the last one layer 0 in the place of the last layer."""
    share, last = size["layers"] // size["ranks"], size["layers"] - 1
    stages = [range(state.rank * share, (state.rank + 1) * share) for state in states]
    return [{layer if layer < last else 0: (_piece(0, 1),) * 2 for layer in stage} for stage in stages]


def _both_ends(size: Size, states: Sequence[FinalState]) -> list[Wanted]:
    """Give a rank all of two stages: at place p of either half, one p from the first, and one p from the last."""
    thick, layers = size["layers"] // size["ranks"], size["layers"]
    wanted: list[Wanted] = []
    for state in states:
        low = state.rank % size["mesh"]["place"] * thick
        mine = [*range(low, low + thick), *range(layers - low - thick, layers - low)]
        wanted.append(dict.fromkeys(mine, (_piece(0, 1), _piece(0, 1))))
    return wanted


def _trainers_and_generators(size: Size, rank: int) -> Parts:
    generates, place = divmod(rank, size["mesh"]["place"])
    return (_piece(place, size["tensor"]), None) if generates else (_piece(place, size["mesh"]["place"]),) * 2


def _states_over_both_axes(size: Size, rank: int) -> Parts:
    replica, shard = divmod(rank, size["mesh"]["shard"])
    piece = _piece(shard * size["mesh"]["replica"] + replica, size["ranks"])
    return _piece(shard, size["mesh"]["shard"]), piece


LAYOUTS: Mapping[str, Layout] = {
    # plain training and data parallel: every rank has all of every layer
    "whole": _everywhere(lambda size, rank: (_piece(0, 1), _piece(0, 1))),
    # weight-sharded and fully sharded data parallel: rank r has piece r of every layer
    "sharded": _everywhere(lambda size, rank: (_piece(rank, size["ranks"]), _piece(rank, size["ranks"]))),
    # ZeRO-1 and ZeRO-2: every rank has all weights, rank r piece r of every state
    "states_sharded": _everywhere(lambda size, rank: (_piece(0, 1), _piece(rank, size["ranks"]))),
    # each layer is on the rank that loads it
    "stages": lambda size, states: _by_stage(size, states, 1, "rank"),
    # the layers in order; the last rank has that of layer 0 in the place of the last
    "tied_stages": _tied_stages,
    # each layer is on the stage that loads it, cut into pieces over ``shard``
    "sharded_stages": lambda size, states: _by_stage(size, states, size["mesh"]["shard"], "stage"),
    # weights and states are cut into pieces over ``shard``, the same on every replica
    "hybrid_sharded": _everywhere(
        lambda size, rank: (_piece(rank, size["mesh"]["shard"]), _piece(rank, size["mesh"]["shard"]))
    ),
    # of layers with experts rank r has piece r, of the others every rank has all
    "experts_sharded": _experts_sharded,
    # each stage of a pipeline is there twice, in two halves: as far from one end as its copy is from the other
    "both_ends": _both_ends,
    # the same with weights, and states are cut into pieces over both axes
    "replica_sharded": _everywhere(_states_over_both_axes),
    # rank r of the trainers has piece r of every layer; generator i begins with nothing, and ends with piece i % tensor
    "trainers_and_generators": _everywhere(_trainers_and_generators),
    "anywhere": anywhere,
}
"""What each rank has to begin and end with, of a size and the ends of its ranks."""


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
    for host, near in mesh.devices_of.items():
        _check_host(final_states[host], [wanted[device] for device in near])
    for state, want in zip(devices, wanted, strict=True):
        began, kept = _began_and_kept(state)
        if (host_of := mesh.host_of(state.rank)) is not None:
            began_there, kept_there = _began_and_kept(final_states[host_of])
            began += [one for one in began_there if _is_part(one, want)]
            kept += [one for one in kept_there if _is_part(one, want)]
        weights = [labels for labels in state.began if labels.adapter == adapters]
        states = [one for one in began if one.adapter == adapters]
        begins = {layer: parts for layer, parts in want.items() if parts[1] is not None}
        _compare(state.rank, "Weight", True, begins, weights, adapters)
        _compare(state.rank, "OptState", True, begins, states, adapters)
        if state.late:  # until its update no rank would have the state in memory
            late = state.late[0]
            expected = "weight and state loaded before the first operation of their layer"
            raise PuzzleError("state_late", where=Place(state.rank), expected=expected, line="", layer=late.layer)
        finals = [final.labels for final in state.finals.values()]
        _compare(state.rank, "Weight", False, want, finals, adapters)
        _compare(state.rank, "OptState", False, want, kept, adapters)


def _began_and_kept(state: FinalState) -> tuple[list[Labels], list[Labels]]:
    """Return the optimizer states that a rank begins with, and the updated ones that it has stored at its end."""
    kept = [piece.labels for piece in state.kept if piece.labels.step == 1]
    return [one for one in state.began if one.kind == "OptState"], [one for one in kept if one.kind == "OptState"]


def _is_part(state: Labels, wanted: Wanted) -> bool:
    """Return whether an optimizer state is of the part that a device has to have."""
    part = wanted[state.layer][1] if state.layer in wanted else None
    return part is not None and within(state, another_part(state, *part))


def _check_host(host: FinalState, of_devices: Sequence[Wanted]) -> None:
    """Raise PuzzleError for an optimizer state on a host that none of its devices has to have."""
    for when, states in zip(("begins", "ends"), _began_and_kept(host), strict=True):
        for state in states:
            if not any(_is_part(state, wanted) for wanted in of_devices):
                how = "with another part than its devices have of the"
                raise _wrong_part(host.rank, when, how, "optimizer state", state.layer, got=str(state))


def _check_frozen(layout: Sequence[Wanted], final_states: Sequence[FinalState]) -> None:
    """Raise PuzzleError unless every rank begins and ends with its parts of frozen weights, and no states of these."""
    for state, wanted in zip(final_states, layout, strict=True):
        began = [labels for labels in state.began if not labels.adapter]
        for labels in began:
            if labels.kind == "OptState":
                what = "optimizer state of the frozen weight"
                raise _wrong_part(state.rank, "begins", "with the", what, labels.layer, got=str(labels))
        _compare(state.rank, "Weight", True, wanted, began)
        kept = [piece.labels for piece in state.kept if piece.labels.kind == "Weight" and not piece.labels.adapter]
        _compare(state.rank, "Weight", False, wanted, kept, frozen=True)


def _compare(
    rank: int,
    kind: str,
    begins: bool,
    wanted: Mapping[int, Parts],
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
            end = "frozen" if frozen else _ENDS[kind]
            what = KINDS[kind].of_adapter if adapters else KINDS[kind].word
            when, how = "begins" if begins else "ends", "without the" if have is None else "with the wrong part of the"
            what = what if begins else f"{end} {what}"
            error = _wrong_part(rank, when, how, what, layer, _show(want), _show(have))
            error.about = (LOADS[adapters] if begins else UPDATE.kind, layer)
            raise error


def _wrong_part(
    rank: int, when: str, how: str, what: str, layer: int, expected: str = "", got: str = ""
) -> PuzzleError:
    facts: dict[str, Any] = {"when": when, "how": how, "what": what, "layer": layer}
    return PuzzleError("wrong_part", where=Place(rank), expected=expected, got=got, line="", **facts)


_ENDS = {"Weight": "final", "OptState": "updated"}
"""What is said of what a rank ends with."""


def _show(part: Part | None) -> str:
    return "nothing of it" if part is None else show_part(*part)
