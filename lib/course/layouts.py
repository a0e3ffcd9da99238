"""The layouts of weights and states that a puzzle's spec may name.

A layout does not read code. It checks what a rank took from load_weights, the final weights that it set, and the states
that it has stored at the end.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from ..basics.errors import Place, PuzzleError, show_axis, show_set
from ..machine.interface import FinalState
from ..machine.mesh import Mesh
from ..record.events import LOADS
from ..record.kinds import KINDS
from ..record.labels import Labels, experts_of, within
from ..record.shards import Shards, coarsest, show_part, union
from ..record.training import UPDATE

Size = dict[str, Any]
"""Arguments of ``run``: ranks, layers, batches, mesh and node_size where there are nodes, train where adapters are
trained, hosts where there are any, experts where layers have some."""
Part = tuple[Shards, int]  # (shards, total): shards of ``total``, as few and as large as can be
Wanted = dict[int, tuple[Part, Part]]
"""For each layer that a rank has, its part of the weight and its part of the optimizer state."""
Layout = Callable[[Size, Sequence[FinalState]], list[Wanted]]


def _piece(index: int, total: int) -> Part:
    return coarsest(frozenset([index % total]), total)


def _by_stage(size: Size, final_states: Sequence[FinalState], shards: int, whose: str, fix: str) -> list[Wanted]:
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
            problem = f"it loads layers {show_set(layers)}"
            if twice:
                problem += f", of which rank {owner[twice[0]]} has loaded {show_set(twice)}"
            elif layers != fellows:
                problem += f", and rank {first}, of the same stage, {show_set(fellows)}"
            expected = f"{share} layer{'s' * (share > 1)} for each {whose}, each layer on one {whose}"
            fix_for = {"dealt_like_cards": f"here layers are dealt out like cards: {_CARDS}", "in_a_v": _V}
            raise PuzzleError(problem, where=Place(state.rank), expected=expected, fix=fix, fix_for=fix_for, line="")
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


def _everywhere(pieces: Callable[[Size, int], tuple[Part, Part]]) -> Layout:
    """Return the layout that gives a rank these pieces of the weight and the state of every layer."""
    return lambda size, states: [dict.fromkeys(range(size["layers"]), pieces(size, state.rank)) for state in states]


def _of_experts(size: Size, state: FinalState, layer: int) -> tuple[int, int]:
    """Return which of how many pieces of a layer a rank has: all of a dense one, its own experts of another."""
    return (state.rank, size["ranks"]) if experts_of(layer, size["experts"]) else (0, 1)


def _experts_sharded(size: Size, states: Sequence[FinalState]) -> list[Wanted]:
    """Give a rank all of every dense layer, and of a layer with experts its piece."""
    pieces = [[_piece(*_of_experts(size, state, layer)) for layer in range(size["layers"])] for state in states]
    return [{layer: (own, own) for layer, own in enumerate(each)} for each in pieces]


def _both_ends(size: Size, states: Sequence[FinalState]) -> list[Wanted]:
    """Give a rank all of two stages: at place p of either half, one p from the first, and one p from the last."""
    thick, layers = size["layers"] // size["ranks"], size["layers"]
    wanted: list[Wanted] = []
    for state in states:
        low = state.rank % size["mesh"]["place"] * thick
        mine = [*range(low, low + thick), *range(layers - low - thick, layers - low)]
        wanted.append(dict.fromkeys(mine, (_piece(0, 1), _piece(0, 1))))
    return wanted


def _states_over_both_axes(size: Size, rank: int) -> tuple[Part, Part]:
    replica, shard = divmod(rank, size["mesh"]["shard"])
    piece = _piece(shard * size["mesh"]["replica"] + replica, size["ranks"])
    return _piece(shard, size["mesh"]["shard"]), piece


_V = (
    "here stages are in a V: stage r goes down on rank r, and stage 2 * model.RANKS - 1 - r comes up on it, each of "
    "model.LAYERS // (2 * model.RANKS) layers"
)
_CARDS = "range(model.rank, model.LAYERS, model.RANKS)"
_OWN_LAYERS = (
    "share = model.LAYERS // model.RANKS; this rank loads layers model.rank * share and up, `share` of "
    f"them; or, dealt out like cards, every RANKS-th: {_CARDS}"
)
_LAYERS_OF_STAGE = 'range(model.axis_index("stage"), model.LAYERS, model.axis_size("stage")), on all ranks of a stage'
LAYOUTS: Mapping[str, Layout] = {
    # plain training and data parallel: every rank has all of every layer
    "whole": _everywhere(lambda size, rank: (_piece(0, 1), _piece(0, 1))),
    # weight-sharded and fully sharded data parallel: rank r has piece r of every layer
    "sharded": _everywhere(lambda size, rank: (_piece(rank, size["ranks"]), _piece(rank, size["ranks"]))),
    # ZeRO-1 and ZeRO-2: every rank has all weights, rank r piece r of every state
    "states_sharded": _everywhere(lambda size, rank: (_piece(0, 1), _piece(rank, size["ranks"]))),
    # each layer is on the rank that loads it
    "stages": lambda size, states: _by_stage(size, states, 1, "rank", _OWN_LAYERS),
    # each layer is on the stage that loads it, cut into pieces over ``shard``
    "sharded_stages": lambda size, states: _by_stage(size, states, size["mesh"]["shard"], "stage", _LAYERS_OF_STAGE),
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
    "anywhere": anywhere,
}
"""What each rank has to begin and end with, of a size and the ends of its ranks."""


WITH_ADAPTERS: Mapping[str, tuple[str, str]] = {"frozen_shards": ("sharded", "whole")}
"""Layouts of weights that are frozen, which have no states, and of their adapters, which have."""


def mesh_of(size: Size) -> Mesh:
    """Return the mesh of the ranks of a size."""
    return Mesh(size["ranks"], size.get("mesh"), size.get("node_size"), size.get("hosts", 0))


def check_layout(
    name: str, size: Size, final_states: Sequence[FinalState], updates: Container[tuple[int, int | None]] | None = None
) -> None:
    """Raise PuzzleError, which names the rank, unless every device begins and ends with its parts of the layout.
    Optimizer states may be on its host, which may also have any weights. ``updates``: which ranks have updated which
    layers, where that is known."""
    devices, mesh = final_states[: size["ranks"]], mesh_of(size)
    frozen, trained = WITH_ADAPTERS.get(name, ("", name))
    if frozen:
        _check_frozen(LAYOUTS[frozen](size, devices), devices)
    adapters, wanted = bool(frozen), LAYOUTS[trained](size, devices)
    for host, near in mesh.beside.items():
        _check_host(final_states[host], [wanted[device] for device in near])
    for state, want in zip(devices, wanted, strict=True):
        began, kept = _began_and_kept(state)
        if (host_of := mesh.host_of(state.rank)) is not None:
            began_there, kept_there = _began_and_kept(final_states[host_of])
            began += [one for one in began_there if _is_part(one, want)]
            kept += [one for one in kept_there if _is_part(one, want)]
        weights = [labels for labels in state.began if labels.adapter == adapters]
        states = [one for one in began if one.adapter == adapters]
        _compare(state.rank, "Weight", True, want, weights, adapters, mesh=mesh)
        _compare(state.rank, "OptState", True, want, states, adapters, mesh=mesh)
        if state.late:  # until its update no rank would have the state in memory
            late = state.late[0]
            problem = f"it has loaded the optimizer state of layer {late.layer} only after work on that layer"
            which = ", model.rank, model.RANKS" * (late.shards == {state.rank} and late.total == len(devices))
            which = which or ", shard, total" * (late.total > 1)
            expected = "weight and state loaded before the first operation of their layer"
            store = 'weights["adapter", l]' if adapters else "weights[l]"
            load = f"model.{LOADS[adapters]}(l{which})"
            fix = f"model.{store}, model.opt_states[l] = {load} before anything else with layer l: one call gives both"
            raise PuzzleError(problem, where=Place(state.rank), expected=expected, fix=fix, line="")
        finals = [final.labels for final in state.finals.values()]
        _compare(state.rank, "Weight", False, want, finals, adapters, mesh=mesh, updates=updates)
        if updates is not None and host_of is None:
            _each_updates(state.rank, want, _parts("OptState", kept), updates)
        _compare(state.rank, "OptState", False, want, kept, adapters)


def _each_updates(
    rank: int, wanted: Wanted, kept: Mapping[int, Part], updates: Container[tuple[int, int | None]]
) -> None:
    """Raise PuzzleError for a rank that ends without the updated state of a layer, and has not updated it."""
    for layer in sorted(wanted.keys() - kept.keys()):
        if (rank, layer) not in updates:
            problem = f"it ends without the updated optimizer state of layer {layer}, and has not updated that layer"
            fix = f"model.weights[{layer}], model.opt_states[{layer}] = model.update({layer}, ...) on every rank that "
            fix += "has a part of the state, below no `if` of a rank: a weight that others have updated brings no state"
            expected, got = _show(wanted[layer][1]), _show(None)
            raise PuzzleError(problem, where=Place(rank), expected=expected, got=got, fix=fix, line="")


def _began_and_kept(state: FinalState) -> tuple[list[Labels], list[Labels]]:
    """Return the optimizer states that a rank begins with, and the updated ones that it has stored at its end."""
    kept = [piece.labels for piece in state.kept if piece.labels.step == 1]
    return [one for one in state.began if one.kind == "OptState"], [one for one in kept if one.kind == "OptState"]


def _is_part(state: Labels, wanted: Wanted) -> bool:
    """Return whether an optimizer state is of the part that a device has to have."""
    if state.layer not in wanted:
        return False
    shards, total = wanted[state.layer][1]
    return within(state, state.changed(shards=shards, total=total))


def _check_host(host: FinalState, of_devices: Sequence[Wanted]) -> None:
    """Raise PuzzleError for an optimizer state on a host that none of its devices has to have."""
    for when, states in zip(("begins", "ends"), _began_and_kept(host), strict=True):
        for state in states:
            if not any(_is_part(state, wanted) for wanted in of_devices):
                fix = "a host has the states of its own devices, in the pieces in which they would have them"
                of = f"an optimizer state of layer {state.layer} that none of its devices has"
                problem = f"this host {when} with {of}"
                raise PuzzleError(problem, where=Place(host.rank), got=str(state), fix=fix, line="")


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
    mesh: Mesh | None = None,
    updates: Container[tuple[int, int | None]] | None = None,
) -> None:
    """Raise PuzzleError unless these are the wanted parts of weights or states at a rank's beginning or end. ``mesh``:
    that of the ranks, along whose axes pieces are cut and gathered; ``updates``: which ranks have updated which layers,
    where that is known."""
    got = _parts(kind, labels)
    which = 0 if kind == "Weight" else 1
    for layer in sorted(wanted.keys() | got.keys()):
        want = wanted[layer][which] if layer in wanted else None
        have = got.get(layer)
        if have != want:
            end, how = _ENDS["frozen" if frozen else kind]
            what = KINDS[kind].of_adapter if adapters else KINDS[kind].word
            what = what if begins else f"{end} {what}"
            cut_finer = kind == "Weight" and layer in wanted and wanted[layer][1][1] > wanted[layer][0][1] > 1
            along = _CUT_FINER.format(layer) if cut_finer and not begins else ""
            how_much = "without the" if have is None else "with the wrong part of the"
            problem = f"it {'begins' if begins else 'ends'} {how_much} {what} of layer {layer}"
            if layer not in wanted:
                fix = f"layer {layer} is not for this rank: leave it to those that hold it"
            elif begins:
                fix = _begin(LOADS[adapters], layer, kind, have, wanted[layer], rank, mesh)
            elif have is None:
                fix = how.format(layer)
                if (
                    updates is not None
                    and (rank, layer) not in updates
                    and any((rank, one) in updates for one in wanted)
                ):
                    fix = f"this rank has loaded layer {layer} and not updated it: load only the layers that it trains"
            elif want is not None and _is_less(have, want):
                whole = len(want[0]) == want[1]
                less = _LESS["whole state" if whole and kind == "OptState" else kind]
                axis = _axis_of_pieces(rank, have, mesh) if whole and mesh is not None and have is not None else ""
                fix = along or less.format(layer, "all of it" if whole else "more of it", axis)
            elif want is not None and _is_less(want, have):
                fix = along or (_FROZEN_MORE if frozen else _MORE[kind]).format(layer)
            else:
                fix = "each rank ends with the part that is its own, updated: the one that is expected here"
                if have is not None and len(have[0]) > 1:
                    fix += "; pieces are gathered over the axis along which they were cut"
            error = PuzzleError(problem, where=Place(rank), expected=_show(want), got=_show(have), fix=fix, line="")
            error.about = (LOADS[adapters] if begins else UPDATE.kind, layer)
            raise error


def _axis_of_pieces(rank: int, have: Part, mesh: Mesh) -> str:
    """Return the argument that names the one axis along which ranks have pieces like this rank's, or nothing."""
    shards, total = have
    axes = [axis for axis, size in mesh.axes.items() if size == total and shards == {mesh.index(rank, axis)}]
    return f", axis={show_axis(axes[0])}" if len(axes) == 1 and total < mesh.ranks else ""


def _is_less(have: Part, want: Part) -> bool:
    """Return whether a part is only some of another one."""
    both, _ = union((have, want))
    return both == coarsest(*want)


_ENDS = {
    "frozen": ("frozen", "leave the part that this rank has loaded in model.weights[{0}]"),
    "Weight": ("final", "model.set_final_weight({0}, weight), with the weight that update has given"),
    "OptState": (
        "updated",
        "the updated state is not in opt_states: model.weights[{0}], model.opt_states[{0}] = model.update({0}, ...)",
    ),
}
"""What a rank must end with, and how, in words and in code."""
_GATHERED = "here each rank ends with all of it: gather what update gives"
_LESS = {
    "Weight": "here each rank ends with {1}: gather what update gives, weight = await model.allgather(weight, {0}{2}), "
    "and set that",
    "OptState": "keep every piece that this rank has updated: model.opt_states[...]",
    "whole state": "here each rank updates all of a layer, weight and state: gather the gradient before the "
    "update, and not the weight after it",
}
_MORE = {
    "Weight": "here each rank ends with its own piece only: model.set_final_weight({0}, weight) with what update gives "
    "for that piece: update the piece, and nothing that was gathered; and no gather after it",
    "OptState": "here each rank keeps and updates its own piece of the state only: no gather of it, before "
    "model.update({0}, ...) or after, and where all of it is loaded, opt_state.shard(...) before that",
}
_CUT_FINER = (
    "update gives a piece as small as that of the state: gather it over the axis along which the states are cut "
    "further, and over no other, weight = await model.allgather(weight, {0}, axis=...), and set that"
)
_FROZEN_MORE = (
    "leave the part that this rank has loaded in model.weights[{0}]: what is gathered is for use, not to keep"
)
"""What to do about a part that is less, or more, than what a rank should end with, in words and in code."""


_GATHERS = ", and gathers the whole weight right before each use, await model.allgather(...)"
"""What a rank does with its piece of a weight that is gathered for use."""


def _begin(
    verb: str, layer: int, kind: str, have: Part | None, wanted: tuple[Part, Part], rank: int, mesh: Mesh | None
) -> str:
    """Return how a rank loads its part of a layer, and its part of the state where that is cut finer. ``have``: what it
    has of the ``kind`` that is wrong."""
    weight, opt_state = wanted
    if kind == "OptState" and opt_state == weight and have is not None and _is_less(have, opt_state):
        return "keep the state as load_weights gives it beside the weight: no opt_state.shard(...) here"
    place = _numbers(rank, weight, mesh)
    load = f"model.{verb}({layer}{f', {place}' if place else ''})"
    if opt_state != weight:
        pieces = opt_state[1] // weight[1]
        index = min(opt_state[0]) % pieces
        cut = _numbers(rank, (frozenset([index]), pieces), mesh)
        return f"weight, opt_state = {load} for each layer, and then opt_state.shard({cut})"
    if have is not None and len(have[0]) == have[1] and place and kind == "Weight":
        return f"each rank loads its piece of every layer, {load}{_GATHERS}"
    return f"{load} on this rank"


def _numbers(rank: int, part: Part, mesh: Mesh | None) -> str:
    """Return the arguments that say which piece of how many a part is, by the rank's place where they follow from it;
    nothing for all of it."""
    (shard, *_), total = sorted(part[0]), part[1]
    if total == 1:
        return ""
    if mesh is not None and (shard, total) == (rank, mesh.ranks):
        return "model.rank, model.RANKS"
    axes = (
        []
        if mesh is None
        else [axis for axis, size in mesh.axes.items() if (mesh.index(rank, axis), size) == (shard, total)]
    )
    if len(axes) == 1:
        return f"model.axis_index({show_axis(axes[0])}), model.axis_size({show_axis(axes[0])})"
    return f"{shard}, {total}"


def _show(part: Part | None) -> str:
    return "nothing of it" if part is None else show_part(*part)
