"""What to write where a collective cannot be held: its tensors do not fit, or its ranks do not call the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import cast

from ...basics.errors import Fix, Place, PuzzleError, numbered, show_axis, show_call, show_layers
from ...record.attention import PROJECT
from ...record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from ...record.kinds import KINDS
from ...record.labels import Labels, same_pieces
from ...record.table import sums
from ...record.training import BACKWARD, FORWARD
from ..in_flight import InFlight, Meeting
from ..mesh import Axis, Mesh
from ..past.sums_made import EVERY_RANK
from ..rank_state import RankState, TensorState

EACH_ITS_OWN = "each rank brings a piece of its own: model.load_weights(layer, model.rank, model.RANKS)"
SHARD, CUT_ALONG = "shard", ("hybrid_sharded", "replica_sharded")
"""The axis along which weights are cut, and the layouts of puzzles in which they are."""
WHOLE_ALREADY = {
    "whole": "here each rank has all of the weight: use it as it is, without a gather",
    "states_sharded": "each rank has all of the weight, until it is updated: gather the pieces that update gives, "
    "await model.allgather(piece, layer)",
}
"""What to do about a gather in which a piece comes twice, and of whole weights by the layout of a puzzle."""


CALLED_ONCE = (
    "and every rank has called it once: each brings one gradient of a layer, its own or, where it has run none, "
    "model.fake_grad(layer, []), with an `else` between the two"
)
OF_QUERIES = ("Attended", "AttendedGrad")
OF_ATTENTION = (*OF_QUERIES, "KeysValues", "KeysValuesGrad")
"""The tensors between the steps of attention."""


# -- tensors that do not fit ----------------------------------------------------------------------------------------


def explain(error: PuzzleError, meeting: Meeting, layer: int, brought: Sequence[TensorState], mesh: Mesh) -> None:
    """Give the error of a collective that these tensors of a layer do not allow its place, and what to write instead,
    which is found out when the run has ended."""
    axis = meeting.op[0]
    error.place = held_at(meeting, layer, error.place)
    plain = error.fix or _which_axis(mesh, axis) or EACH_ITS_OWN * (meeting.row is ALLGATHER)
    if axis is not None:  # a rank's place in such a group is not its number
        place, size = f"model.axis_index({show_axis(axis)})", f"model.axis_size({show_axis(axis)})"
        plain = plain.replace("model.rank, model.RANKS", f"{place}, {size}")
    pieces = partial(_first_of, partial(_pieces, mesh, meeting, layer, brought), _whole_already(meeting, brought))
    others = {} if mesh.axes else dict(error.fix_for)  # setting a fix takes these away

    def otherwise() -> str:
        return (
            _different_experts(meeting, layer, brought)
            or _of_the_sequence(meeting, layer, brought)
            or pieces()
            or _made_whole(meeting, layer, brought)
            or _computed_twice(meeting, layer, brought)
            or _cut_by_place(meeting, layer, brought)
            or _cut_along_one(meeting, layer, brought)
            or _over_axes(meeting, layer, brought)
            or _summed_before(meeting, layer, brought)
            or plain
        )

    error.fix = otherwise
    ours = partial(_first_of, partial(_of_the_sequence, meeting, layer, brought), pieces)
    error.fix_for = {name: partial(_first_of, ours, own) for name, own in others.items()}
    if meeting.row is ALLGATHER and brought[0].labels.kind == "Weight" and brought[0].labels.is_whole():
        not_yet = partial(_first_of, partial(_still_to_sum, brought, layer), WHOLE_ALREADY["states_sharded"])
        error.fix_for = {**error.fix_for, **WHOLE_ALREADY, "states_sharded": not_yet}
    if brought[0].labels.kind == "ActivationGrad" and sums(meeting.row.kind) and brought[0].labels.total > 1:
        own_slice = "each rank goes on with the gradient of its own slice, which needs nothing of the others"
        error.fix_for = {**error.fix_for, PROJECT.kind: f"{own_slice}: leave this call out"}
    if (slices := _each_its_slices(meeting, layer, brought)) and PROJECT.kind not in error.fix_for:
        error.fix_for = {PROJECT.kind: slices, **error.fix_for}
    if brought[0].rank is not None and (gathered := _of_gathered_weight(meeting, brought[0].rank, brought[0].labels)):
        error.fix_for = {"weights_stay": gathered, **error.fix_for}
    if axis == SHARD:
        own = partial(_first_of, partial(_cut_along, meeting, layer, brought), otherwise)
        error.fix_for = {**error.fix_for, **dict.fromkeys(CUT_ALONG, own)}


def _of_gathered_weight(meeting: Meeting, rank: RankState, labels: Labels) -> str:
    """Return what to do about a sum of outputs, or of gradients of inputs, that are whole, as the rank has gathered the
    weight of their layer; or an empty text."""
    back = labels.kind == "ActivationGrad"
    made, verb = (labels.layer + 1, BACKWARD.kind) if back else (labels.layer - 1, FORWARD.kind)
    if not sums(meeting.row.kind) or not KINDS[labels.kind].by_batch or labels.of != 1 or labels.total != 1:
        return ""
    if rank.met_by("Weight", made) != ALLGATHER.kind:
        return ""
    piece = f"{verb}({made}, ..., model.weights[{made}], partial=True) with this rank's piece gives a partial sum"
    return (
        f"the weight of layer {made} was gathered, and here weights stay where they are: leave that gather out, {piece}"
    )


def _still_to_sum(brought: Sequence[TensorState], layer: int) -> str:
    """Return which sum of the gradients of a layer was never awaited on a rank that has not updated it; or nothing."""
    rank = brought[0].rank
    if rank is None or brought[0].labels.step or not (started := rank.unawaited("WeightGrad", layer)):
        return ""
    return f"layer {layer} has not been updated, and {started}: await it, and update, before that gather"


def held_at(meeting: Meeting, layer: int, place: Place) -> Place:
    """Return a place with what is known of a collective that cannot be held, because of the tensors of this layer."""
    first = cast(InFlight, meeting.calls[0])
    among = f", in one call for {show_layers(first.layers)}" if first.layers else ""
    detail = f"of {meeting.group}{among}"
    return place._replace(operation=meeting.row.kind, layer=layer, tick=first.rank.tick, detail=detail)


def _first_of(known: Fix, otherwise: Fix) -> str:
    """Return the first of two fixes that says something."""
    return _text(known) or _text(otherwise)


def _text(fix: Fix) -> str:
    return fix() if callable(fix) else fix


def _pieces(mesh: Mesh, meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return what to do about a gather of weights in which a piece comes twice, by what the ranks have loaded; an
    empty text for another collective, and where they have loaded what they bring as they should."""
    labels = [one.labels for one in brought]
    if meeting.row is not ALLGATHER or any(one.kind != "Weight" or one.layer != layer for one in labels):
        return ""
    ranks = [one.rank for one in brought if one.rank is not None]
    if len(ranks) == len(labels) and (some := _updated_in_part(layer, ranks, labels)):
        return some
    loaded = [rank.has_brought_what_it_loaded(one.labels) for rank, one in zip(ranks, brought, strict=False)]
    axis, right = meeting.op[0], ranks[0].axis_of_pieces(layer, labels[0].adapter) if ranks else None
    if right is None or right == (axis or "") or any(one.is_whole() for one in labels):
        whole = [rank for rank, one in zip(ranks, labels, strict=False) if one.is_whole()]
        if whole and all(rank.has_gathered(labels[0].changed(shards=frozenset({0}), total=1)) for rank in whole):
            key = f"model.weights[{layer}]"
            return (
                "it was gathered before, and is whole already: keep the piece that each rank has loaded, "
                f"weight = await model.allgather({key}, {layer}), and store nothing else in {key}"
            )
        if any(loaded) or whole:
            return ""
    elif any(loaded):
        over = f"along axis={show_axis(right)}" if right else "over all ranks"
        call = f"await model.allgather(..., {layer}" + (f", axis={show_axis(right)})" if right else ")")
        pieces = [(one.shards, one.total) for one in labels]
        twice = next((one for one in pieces if pieces.count(one) > 1), pieces[0])
        same = numbered("rank", [rank.rank for rank, one in zip(ranks, pieces, strict=False) if one == twice])
        return f"{same} hold the same shard, as they have loaded it; the shards differ {over}: {call}"
    index = "model.rank, model.RANKS"
    if axis:
        index = f"model.axis_index({show_axis(axis)}), model.axis_size({show_axis(axis)})"
    fix = f"each rank of the group brings another piece of the whole weight: weight.shard({index})"
    for name, size in mesh.axes.items():
        places = [mesh.group(rank.rank, name).position[rank.rank] for rank in ranks]
        cuts = zip(labels, places, strict=False)
        if name != axis and all(one.shards == {at} and one.total == size for one, at in cuts):
            call = f'await model.allgather(..., {layer}, axis="{name}")'
            return f'these are cut along axis="{name}": gather them along it, {call}; or {fix}'
    return fix


def _updated_in_part(layer: int, ranks: Sequence[RankState], labels: Sequence[Labels]) -> str:
    """Return which ranks bring an updated piece of a weight, where others bring an older one; or an empty text."""
    steps = [one.step for one in labels]
    if min(steps) == max(steps):
        return ""
    new, old = (
        [rank.rank for rank, step in zip(ranks, steps, strict=True) if step == one] for one in (max(steps), min(steps))
    )
    own = f"{numbered('rank', new)} bring{'s' * (len(new) == 1)} what update({layer}, ...) has given, and "
    own += f"{numbered('rank', old)} the piece from before it: every rank updates its own piece of each layer, and "
    return f"{own}keeps what that gives, model.weights[{layer}], before it is gathered"


def _made_whole(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return what has given all of an activation, or of the gradient of one, that all ranks bring to a gather, and what
    to do; or an empty text."""
    first, slice_of = brought[0], ".shard(model.rank, model.RANKS)"
    labels, rank = first.labels, first.rank
    known = labels.kind in ("Activation", "ActivationGrad") and labels.is_whole()
    if meeting.row is not ALLGATHER or not known or rank is None:
        return ""
    if first.brought:
        before = [one for one in rank.log if one not in meeting.calls and one.kind == ALLGATHER.kind]
        if not any(one.labels and (one.labels.kind, one.layer) == (labels.kind, layer) for one in before):
            return ""
        own = f"store nothing over a slice that is gathered again: whole = await model.allgather(slice, {layer})"
        return f"the {KINDS[labels.kind].word} of layer {layer} was gathered before, and is whole already: {own}"
    if labels.kind == "ActivationGrad" and layer == labels.layers - 1:
        gives = f"model.loss gives all of the gradient of layer {layer} on every rank"
        return f"{gives}: read it as it is, without this call, or bring a slice of it, grad{slice_of}"
    if labels.kind == "Activation" and layer == 0 and len({one.labels.batches for one in brought}) == 1:
        gives = "model.get_activation gives all of it on every rank"
        return f"{gives}: store a slice of it to gather here, model.activations[0] = inp{slice_of}"
    return ""


def _cut_along(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return how weights are loaded that are gathered over an axis, where they are cut along another one; an empty text
    where they are not."""
    first, axis = brought[0], meeting.op[0]
    if meeting.row is not ALLGATHER or first.labels.kind != "Weight" or first.rank is None:
        return ""
    if first.rank.axis_of_pieces(layer) in (None, axis):
        return ""
    piece = f"model.load_weights({layer}, model.axis_index({show_axis(axis)}), model.axis_size({show_axis(axis)}))"
    return f"here the ranks along axis={show_axis(axis)} have the pieces of a weight: each loads its own, {piece}"


def _whole_already(meeting: Meeting, brought: Sequence[TensorState]) -> str:
    """Return what to do about a sum of activations, or of their gradients, that are whole already; an empty text for
    others."""
    first, labels = brought[0], brought[0].labels
    if not sums(meeting.row.kind) or not KINDS[labels.kind].by_batch or labels.extra.of != 1:
        return ""
    if labels.total != 1:
        return _slice_of_sum(meeting, first)
    if first.brought:
        enough = "model.allreduce adds up, model.scatterreduce adds up and cuts, and one of the two is enough"
        return f"a call has given all of it already: {enough}"
    if labels.kind == "ActivationGrad" and labels.layer == labels.layers - 1:
        return "model.loss gives all of it, on every rank: use it as it is"
    return ""


def _slice_of_sum(meeting: Meeting, tensor: TensorState) -> str:
    """Return what to do about a slice of a sum that is to be summed once more, or an empty text for another slice."""
    labels, rank = tensor.labels, tensor.rank
    known = [] if rank is None else [one for one in rank.log if one.labels and one not in meeting.calls]
    same = [one.kind for one in known if one.labels and (one.labels.kind, one.layer) == (labels.kind, labels.layer)]
    before = [kind for kind in same if sums(kind)]
    if not before:
        return ""
    joined = f"await model.{ALLGATHER.kind}(..., {labels.layer}) joins the slices where all of it is read"
    return f"model.{before[-1]} has added it up before: leave this call out; {joined}"


def _summed_before(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return what to do about a reduction in which the micro-batch of a gradient comes twice, by what the ranks have
    run; an empty text for another one, and where a rank brings what has been summed before."""
    ranks = [(one.rank, one.labels) for one in brought if one.rank is not None and one.labels.kind == "WeightGrad"]
    if not sums(meeting.row.kind) or any(one.layer != layer for _, one in ranks):
        return ""
    summed = not all(one.batches <= rank.with_gradients(layer) for rank, one in ranks)
    if summed and meeting.op[0] and (over_all := ranks[0][0].summed_over_all(layer)):
        return over_all
    seen, twice = set[int](), set[int]()
    for _, one in ranks:
        twice |= seen & one.batches
        seen |= one.batches
    return ranks[0][0].runs_too(layer, frozenset(twice)) if twice else ""


def _each_its_slices(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return what to do about a sum of gradients of the same micro-batches of whole sequences, where ranks share these
    by slices; an empty text for others."""
    labels = [one.labels for one in brought]
    whole = all(one.kind == "WeightGrad" and one.layer == layer and one.extra.of == 1 for one in labels)
    batches = frozenset[int]().union(*[one.batches for one in labels])
    if not sums(meeting.row.kind) or not whole or sum(len(one.batches) for one in labels) <= len(batches):
        return ""
    slices = "inp = model.get_activation([0]).shard(model.rank, model.RANKS) takes this rank's slice, model.project, "
    slices += "model.attend and model.rest carry it through a layer, and the loss is model.loss(out, sliced=True)"
    return (
        f"each rank has run all of {numbered('micro-batch', batches)}, and here they share it by its sequence: {slices}"
    )


def _of_the_sequence(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return what to do about a gather of keys and values that were gathered before, or of which ranks have the same
    slices; an empty text for another collective."""
    rank, labels = brought[0].rank, [one.labels for one in brought]
    if rank is None or labels[0].kind not in OF_ATTENTION:
        return ""
    if meeting.row is ALLGATHER and labels[0].kind in OF_QUERIES:
        stays = "queries and their gradient stay on the rank of their slice, and only keys and values are gathered"
        return f"{stays}: leave this call out"
    if labels[0].kind == "KeysValuesGrad" and sums(meeting.row.kind) and all(one.is_whole() for one in labels):
        home = "each of these is of another slice, that of its own rank: it is complete when it has gone round"
        return f"{home} with its keys, and ranks add nothing to it here, so leave this call out"
    if meeting.row is not ALLGATHER or any(one.kind != "KeysValues" for one in labels):
        return ""
    if all(one.brought and one.labels.is_whole() for one in brought):
        own = "they were gathered before, and are whole already: keep what model.project has given this rank stored"
        return f"{own}, and store what a gather gives under another key, or nowhere"
    return rank.share_slices(layer, labels[0].batches)


def _computed_twice(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return which ranks have computed the gradient of the same micro-batch, where sums are to be summed that both have
    it; or an empty text."""
    rank, seen, twice = brought[0].rank, set[int](), set[int]()
    if rank is None or not sums(meeting.row.kind) or not all(one.brought for one in brought):
        return ""
    for one in brought if brought[0].labels.kind == "WeightGrad" else ():
        twice |= seen & one.labels.batches
        seen |= one.labels.batches
    return rank.runs_too(layer, frozenset(twice))


def _different_experts(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return what to do about gradients of different experts that are to be summed; an empty text for others."""
    labels = [one.labels for one in brought]
    rank = brought[0].rank
    if rank is None or not sums(meeting.row.kind) or any(one.kind != "WeightGrad" or not one.batches for one in labels):
        return ""
    alike = all(same_pieces(one, labels[0]) for one in labels)
    return "" if alike else rank.different_experts(layer)


def _cut_along_one(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return what to do about gradients that each rank has cut by its place along one axis of two, and that are summed
    over all ranks; an empty text for others."""
    rank = brought[0].rank
    if meeting.row is not ALLREDUCE or meeting.op[0] is not None or rank is None or rank.is_cut(layer):
        return ""
    for axis in rank.mesh.axes if len(rank.mesh.axes) == 2 else ():
        mine = [
            (rank.mesh.group(one.rank.rank, axis).position[one.rank.rank], one.labels) for one in brought if one.rank
        ]
        if all(one.shards == {at} and one.total == rank.mesh.along(axis) > 1 for at, one in mine):
            other = next(name for name in rank.mesh.axes if name != axis)
            cuts = f"piece = await model.scatterreduce(grad, {layer}, axis={show_axis(axis)}) of the whole gradient"
            said = f"each rank has cut its own gradient by its place along axis={show_axis(axis)}, which sums nothing"
            return f"{said}: {cuts} sums and cuts, and then {_sum_over(layer, other, 'piece')}"
    return ""


def _cut_by_place(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return how gradients are cut that are summed over an axis, where each rank has cut its own by its place along
    that axis, or by its number; an empty text for others."""
    axis, rank = cast(Axis, meeting.op[0]), brought[0].rank
    mine = [(one.rank.rank, one.labels) for one in brought if one.rank is not None and one.labels.kind == "WeightGrad"]
    others = [] if rank is None else [name for name in rank.mesh.axes if name not in rank.mesh.names(axis)]
    if (
        meeting.row is not ALLREDUCE
        or rank is None
        or not axis
        or not others
        or len(mine) < len(brought)
        or rank.is_cut(layer)
    ):
        return ""
    position, size = rank.mesh.group(rank.rank, axis).position, rank.mesh.along(axis)
    by = ""
    if all(one.shards == {position[number]} and one.total == size for number, one in mine):
        by = f"its place along axis={show_axis(axis)}"
    if all(one.shards == {number} and one.total == rank.mesh.ranks for number, one in mine):
        by = "its number among all ranks"
    if not by:
        return ""
    if rank.axis_of_pieces(layer) == axis or (rank.has_copy(layer) and not rank.summed_over(layer, meeting.op)):
        whole = f"grad = await model.scatterreduce(grad, {layer}, axis={show_axis(axis)})"
        cut = f"each rank has cut its own gradient by {by}, so these are different pieces"
        return f"{cut}: in place of that cut and this sum, {whole} of the whole gradients sums and cuts"
    other = next((name for name in others if name in rank.summed_over(layer, meeting.op)), others[-1])
    same = f"{numbered('rank', [number for number, _ in mine])} are to bring the same piece, and each is cut by {by}"
    cut = f"cut by model.axis_index({show_axis(other)}), model.axis_size({show_axis(other)})"
    return (
        f"{same}: {cut}; or let one call sum and cut, grad = await model.scatterreduce(grad, {layer}, "
        f"axis={show_axis(other)})"
    )


def _over_axes(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return over which axis gradients are to be summed or gathered that another collective has brought; an empty text
    for other tensors, and where that is not known."""
    first = brought[0]
    rank = first.rank
    if rank is None or not all(one.brought and one.labels.kind == "WeightGrad" for one in brought):
        return ""
    axis, kind = cast(Axis, meeting.op[0]), meeting.row.kind
    sums = [one.rank.summed_over(layer, meeting.op) for one in brought if one.rank is not None]
    done = [over for over in sums[0] if all(over in others for others in sums)]
    if meeting.row is ALLGATHER:
        return _gathered(rank, axis, layer, brought, sums, done)
    if None in done:
        if part := rank.summed_in_part(layer, first.labels):
            return part
        if axis and (summed := rank.summed_over_all(layer)):
            return summed
        again = f"the gradient of layer {layer} has been summed over all ranks already: reduce each gradient once"
        if axis or len(rank.mesh.axes) != 2:
            return rank.without_an_axis(layer, axis) or again
        outer, inner = map(show_axis, rank.mesh.axes)
        return f"{again}, or over one axis after the other: axis={inner} in the call before, and axis={outer} here"
    left = [one for one in rank.mesh.axes if one not in rank.mesh.among(done)]
    if axis is None and done and len(left) == 1:
        over = f"these are sums over {_axes(done)} already, and this call is over all ranks"
        rest = f"grad = await model.{kind}(grad, {layer}, axis={show_axis(left[0])})"
        return f"{over}: sum over the axis that is left, {rest}"
    if left and axis in done and rank.axes_of_layers() and not {*rank.axes_of_layers()} & {*left}:
        once = (
            f"the gradient of layer {layer} has been summed over axis={show_axis(axis)} before, in another line or in "
        )
        return f"{once}an earlier turn of a loop, and once is enough: after the last micro-batch"
    if (
        done
        and not left
        and axis in done
        and meeting.row is SCATTERREDUCE
        and not rank.has_cut_over(layer, axis, meeting.op)
    ):
        over = f"the gradient of layer {layer} has been summed over axis={show_axis(axis)} before: sum once over each "
        over += "axis"
        return f"{over}, so leave one of these two calls out"
    if done and not left:
        again = f"the gradient of layer {layer} has been summed over all axes already"
        if first.labels.is_whole():
            return f"{again}: reduce each gradient once over each"
        if rank.axis_of_pieces(layer):
            once = "sum once over each axis, so leave out one of these two calls"
            if axis in done:
                once = f"it was summed over axis={show_axis(axis)} in another line, or in an earlier turn of a loop"
                once += ", and once is enough: after the last micro-batch"
            return f"{again}, and in pieces, as the weight is: {once}"
        if axis and rank.last_cut(layer) != f", axis={show_axis(axis)}":
            once = f"once is enough: join the pieces as they are, grad = await model.allgather(grad, {layer}"
            once += f"{rank.last_cut(layer)}). Does a loop that makes one call after the other not go on to the next?"
            return f"{again}, over axis={show_axis(axis)}, too, and {once}"
        return (
            f"{again}, and is in pieces: join them, grad = await model.allgather(grad, {layer}{rank.last_cut(layer)})"
        )
    if done and (cut := rank.cut_of(layer)) and rank.axis_of_pieces(layer):
        return cut
    if not done or {*rank.mesh.names(axis)} <= {*left}:
        return ""  # it is the right sum, of the wrong micro-batches
    fix = f"these are sums over {_axes(done)} already: one of these two calls is too many, and what is left is the sum "
    fix += f"over {_axes(left)}, "
    if kind == SCATTERREDUCE.kind and axis in done and rank.axis_of_pieces(layer) == axis:
        then = f"await model.allreduce(grad, {layer}, axis={show_axis(left[0])})"
        return (
            f"these are sums over {_axes(done)} already: leave that call out, and sum the piece after this one, {then}"
        )
    if kind == ALLREDUCE.kind and axis in done and first.labels.is_whole() and rank.axis_of_pieces(layer) == axis:
        cuts = f"grad = await model.scatterreduce(grad, {layer}, axis={show_axis(axis)})"
        then = f"await model.allreduce(grad, {layer}, axis={show_axis(left[0])})"
        return (
            f"these are sums over {_axes(done)} already: one call that sums and cuts, {cuts}, and for the pieces {then}"
        )
    if (
        kind == SCATTERREDUCE.kind
        and axis in done
        and first.labels.is_whole()
        and not rank.has_cut_over(layer, axis, meeting.op)
    ):
        then = f"await model.allreduce(grad, {layer}, axis={show_axis(left[0])})"
        both = "model.scatterreduce sums and cuts, so leave out model.allreduce before it. The pieces are summed over"
        return f"these are sums over {_axes(done)} already: {both} {_axes(left)} after that, {then}, and then joined"
    if kind == ALLREDUCE.kind and not first.labels.is_whole() and rank.last_cut(layer) == f", axis={show_axis(axis)}":
        cuts = f"await model.scatterreduce(grad, {layer}, axis={show_axis(left[0])})"
        if _stays_in_a_node(rank, left[0], axis):
            first_one = "The one that cuts comes first, and stays inside"
            both = f"both calls are over {_axes(done)}, and none is over {_axes(left)}, inside the node. {first_one}"
            return f"{both}: piece = {cuts}, then this one, and the gather is over {_axes(left)}, too"
        return f"both calls are over {_axes(done)}: this one is to be over {_axes(left)}, {_sum_over(layer, left[0])}"
    verb = kind if first.labels.is_whole() else ALLREDUCE.kind
    return f"{fix}in which every rank takes part: await model.{verb}(grad, {layer}, axis={show_axis(left[0])})"


def _gathered(
    rank: RankState,
    axis: object,
    layer: int,
    brought: Sequence[TensorState],
    sums: Sequence[Collection[object]],
    done: Collection[object],
) -> str:
    """Return what is wrong with a gather of gradients, over an axis. ``sums``: over which axes each was summed before;
    ``done``: over which all of them."""
    over = rank.last_cut(layer)
    if len({one.labels.batches for one in brought}) > 1:
        if axis and axis not in done and not over and all(axis not in own for own in sums):
            sums_and_cuts = f"grad = await model.scatterreduce(grad, {layer}, axis={show_axis(axis)})"
            missing = f"these are not summed over axis={show_axis(axis)} yet"
            return f"{missing}: {sums_and_cuts} sums and cuts before that; shard only cuts"
        if axis and over and over != f", axis={show_axis(axis)}" and all(axis not in own for own in sums):
            adds = f"grad = await model.allreduce(grad, {layer}, axis={show_axis(axis)}) in place of this call"
            have = f"these are the same piece of different sums, over {_axes(done)} only, and a gather adds nothing up"
            return f"{have}: {adds}"
        ranks = [one.rank.rank for one in brought if one.rank is not None]
        by_rank = dict(zip(ranks, sums, strict=True))
        some = [one for one in rank.mesh.axes if 0 < sum(one in own for own in by_rank.values()) < len(by_rank)]
        if not some:
            return _piece_left(layer, axis, over, done) if all(one.labels.is_whole() for one in brought) else ""
        only = [one for one, own in by_rank.items() if some[0] in own]
        took = f"of {numbered('rank', by_rank)} only {numbered('rank', only)} took part in the sum over {_axes(some)}"
        return f"{took}: let every rank do so"
    if not over or over == f", axis={show_axis(axis)}":
        return ""
    cut = f"scatterreduce has cut the gradient{over.replace(', ', ' over ')}, so these ranks hold the same piece"
    crossed = next((one for one in rank.mesh.axes if over == f", axis={show_axis(one)}"), None)
    if axis in done and crossed is not None and _stays_in_a_node(rank, cast(str, axis), crossed):
        cuts = f"piece = await model.scatterreduce(grad, {layer}, axis={show_axis(axis)}) inside the node"
        return (
            f"{cut}. Exchange the axes of the two sums: {cuts}, then {_sum_over(layer, crossed, 'piece')} between nodes"
        )
    return f"{cut}: gather it over the same axis, await model.allgather(grad, {layer}{over})"


def _piece_left(layer: int, axis: object, over: str, done: Collection[object]) -> str:
    """Return what to do about whole gradients that are gathered over an axis over which another call has cut them, the
    piece of which was left out of the sum over the other axis; or an empty text."""
    others = [one for one in done if one not in (None, axis)]
    if not axis or over != f", axis={show_axis(axis)}" or len(others) != 1:
        return ""
    cuts = f"piece = await model.scatterreduce(grad, {layer}{over})"
    said = f"these are whole gradients, summed over {_axes(others)} only, and what model.scatterreduce gave is not in "
    said += f"them: let each call take what the one before it gives, {cuts}, then piece = "
    return f"{said}{_sum_over(layer, others[0], 'piece')}, and then this gather"


def _sum_over(layer: int, axis: object, what: str = "grad") -> str:
    return f"await model.allreduce({what}, {layer}, axis={show_axis(axis)})"


def _stays_in_a_node(rank: RankState, axis: Axis, other: Axis) -> bool:
    """Return whether a collective of a rank along one axis stays inside its node, where one along the ``other`` does
    not."""
    inside, across = (rank.mesh.group(rank.rank, one) for one in (axis, other))
    return across.across and not inside.across


def _axes(names: Iterable[object]) -> str:
    return " and ".join(f"axis={show_axis(name)}" for name in names)


# -- calls that are not the same ------------------------------------------------------------------------------------


def called_otherwise(meeting: Meeting, calls: Sequence[InFlight], one: InFlight, two: InFlight, mesh: Mesh) -> str:
    """Return what to do about a group whose ranks call different collectives. ``calls``: all that are known; ``one``
    and ``two``: two of them that differ."""
    axis = meeting.op[0]
    if without := _which_axis(mesh, axis):
        return f"{without}{_along_same_layers(one, axis)}"
    known = _shared_over(axis, one, two) or _without_work(one, two) or _gone_past(calls)
    return known or _same_for_all(one, two) + IN_TASKS * (one.rank.several and two.rank.several)


IN_TASKS = (
    ". If several tasks of a rank call them: which of these goes on first differs from rank to rank, so let one task "
)
IN_TASKS += "make all these calls, in one order"


def _without_work(one: InFlight, two: InFlight) -> str:
    """Return which ranks have run no micro-batch, though there are enough, where one of two that call different
    collectives is among them, and has needed nothing of the others for that; or an empty text."""
    for idle, other in ((one, two), (two, one)):
        loaded = None if idle.layer is None else idle.rank.loaded_piece(idle.layer)
        if loaded is None or not loaded.is_whole() or idle.rank.layers_run() or not other.rank.layers_run():
            continue
        if (none := idle.rank.ran_nothing()) and (due := idle.rank.empty_share()):
            return f"{none} run no micro-batch by then: is a share of the batch empty? {due[0].upper()}{due[1:]}"
    return ""


def _which_axis(mesh: Mesh, axis: object) -> str:
    """Return what to write where a mesh has axes, and none was named."""
    if axis is not None or not mesh.axes:
        return ""
    axes = " or ".join(f'axis="{name}"' for name in mesh.axes)
    return f"without an axis all ranks take part; name the one that is meant, {axes}"


def _shared_over(axis: object, one: InFlight, two: InFlight) -> str:
    """Return over which axis ranks share the layers that they bring to a collective over another one; or nothing."""
    rank, other = one.rank, two.rank
    if one.kind != two.kind or one.layer is None or two.layer is None or rank.has_loaded(two.layer):
        return ""
    right = rank.axis_of_pieces(one.layer)
    if axis is None or right == axis or other.has_loaded(one.layer):
        return ""
    if right:
        have = f"ranks along axis={show_axis(axis)} have different layers, and those along axis={show_axis(right)} "
        have += "share them"
        return f"{have}: await model.{one.kind}(..., {one.layer}, axis={show_axis(right)})"
    if rank.layers_run() and (idle := rank.ran_nothing()):
        stages = "are there more stages than layers? The stages of a pipeline are model.RANKS // replicas"
        return f"{idle} run no layer: {stages}"
    own = f"rank {rank.rank} has loaded layer {one.layer}, and rank {other.rank} layer {two.layer}"
    return f"{own}: ranks that meet along axis={show_axis(axis)} work on the same layers{_along_same_layers(one, axis)}"


def _along_same_layers(call: InFlight, axis: object) -> str:
    """Return, as the end of a sentence, along which other axis ranks have loaded the same layers, and the call over it;
    or an empty text."""
    own = [one for one in call.rank.axes_of_layers() if one != axis]
    if not own or call.layer is None:
        return ""
    over = f"await model.{call.kind}(..., {call.layer}, axis={show_axis(own[0])})"
    return f". The ranks along {' and '.join(f'axis={show_axis(one)}' for one in own)} have the same layers: {over}"


def _gone_past(calls: Sequence[InFlight]) -> str:
    """Return what to do about a collective that some ranks of a group call while the others are in a sum of gradients
    that comes to these later; an empty text for other calls."""
    for call in calls:
        ahead = [one for one in calls if sums(one.kind) and one.labels and one.labels.kind == "WeightGrad"]
        if sums(call.kind) or not ahead or ahead[0].layer is None or len({one.what for one in calls}) != 2:
            continue
        done = [len(one.rank.has_run(BACKWARD.kind, ahead[0].layer)) for one in (call, ahead[0])]
        if done[0] < done[1]:
            # The backward pass goes down, so who gathers a lower layer has gone past the sum.
            first = ahead[0] if call.layer is not None and call.layer < ahead[0].layer else call
            alone = [one.rank.rank for one in calls if one.what == first.what]
            past = [one.rank.rank for one in calls if one.what != first.what]
            goes = "goes" if len(past) == 1 else "go"
            last = ", each at its own last micro-batch" * (done[1] > 1)
            who, others = numbered("rank", alone), numbered("rank", past)
            if (
                first is ahead[0]
                and done[1] == 1
                and all(one.rank.met_by("WeightGrad", ahead[0].layer) for one in calls)
            ):
                return f"{who} call{'s' * (len(alone) == 1)} {show_call(*first.what)} a second time, {CALLED_ONCE}"
            empty = "; one that has not run the layer brings model.fake_grad(layer, [])" * (first is ahead[0])
            away = [one for rank, one in call.rank.ranks.items() if rank not in (*alone, *past)]
            only = not any(one.has_run(FORWARD.kind, ahead[0].layer) for one in away)  # or else these may call it, too
            calls_it = f"{who} call{'s' * (len(alone) == 1)} {show_call(*first.what)}, and {others} {goes} past it"
            true = f"a condition above it is true on {who if only else 'some ranks'} only"
            return f"{'only ' * only}{calls_it}: {true}. Make it true on every rank{last}{empty}"
    return ""


def _below_a_condition(one: InFlight, two: InFlight) -> str:
    """Return, as the beginning of advice, that one of two ranks sums the gradient of a layer in the middle of a
    backward pass, and the other one has gone through its own without a sum; or an empty text."""
    for call, other in ((two, one), (one, two)):
        layer, mine, its = call.layer, _gradients(call.rank), _gradients(other.rank)
        if layer not in its or other.rank.summed_by(layer) or not sums(call.kind):
            continue
        if len({*its.values()}) == 1 < len({*mine.values()}) and mine[layer] <= its[layer]:
            calls = f"rank {call.rank.rank} calls {show_call(call.kind, layer)} in its backward pass"
            past = f"rank {other.rank.rank} has gone past that"
            return f"{calls}, and {past}: is a condition above it true there alone? {EVERY_RANK}. Else "
    return ""


def _gradients(rank: RankState) -> dict[int, int]:
    """Return of how many micro-batches a rank has computed the gradient of each of its layers."""
    return {layer: len(rank.with_gradients(layer)) for layer in rank.layers_run()}


def _same_for_all(one: InFlight, two: InFlight) -> str:
    """Return what to do about two ranks of a group that are in different collectives."""
    if one.kind == two.kind and (one.layers or two.layers):
        return "every rank brings a list of the same layers in the same order; a list meets lists only"
    alone = [call for call in (one, two) if call.layer is not None and not call.rank.others_have(call.layer)]
    if one.kind == two.kind and sums(one.kind) and len(alone) == 2:
        layers = " and ".join(f"layer {call.layer}, rank {call.rank.rank}" for call in alone)
        return f"each has its layer for itself ({layers}): no other rank has a gradient to add, so leave the sum out"
    if one.kind == two.kind:
        if lacks := _not_loaded(one, two) or _not_loaded(two, one):
            return lacks
        order = "do the layers in the same order on every rank, whatever its number, and below no `if` of a rank"
        if one.rank.layers_loaded() == two.rank.layers_loaded() == {*range(one.rank.layers)}:
            order = f"{_turn_left_out(one, two)}every rank has to go through all layers: {order}"
        return f"{_below_a_condition(one, two)}{order}"
    for call, other in ((one, two), (two, one)):
        if skipped := _gather_skipped(call, other):
            return skipped
        of_grad = sums(call.kind) and call.labels is not None and call.labels.kind == "WeightGrad" and not call.layers
        layer = call.layer if of_grad else None
        if layer is not None and other.rank.with_gradients(layer) and not other.rank.summed_by(layer):
            past = f"rank {other.rank.rank} has computed its gradient of layer {layer}, and goes on without that sum"
            return f"{past}: is a condition above it true on some ranks only? {EACH_IN_ORDER}"
    which = f"{show_call(*one.what)}, or above {show_call(*two.what)},"
    return f"is a condition above {which} true on some ranks only? {EACH_IN_ORDER}"


def _turn_left_out(one: InFlight, two: InFlight) -> str:
    """Return, as the beginning of advice, that one of two ranks calls a collective again, or has left out that of the
    other one; or an empty text."""
    for call, other in ((one, two), (two, one)):
        if call.layer is None or other.layer is None or call.layer == other.layer:
            continue
        mine, its = (
            [record.layer for record in each.rank.log[: each.index] if record.kind == call.kind]
            for each in (call, other)
        )
        shown = show_call(call.kind, call.layer)
        if mine == its and mine[-1:] == [call.layer] and call.layer < call.rank.layers - 1:
            count = "does a count of its layers go on below a condition only, as with l += 1 in an `if`?"
            return f"rank {call.rank.rank} calls {shown} again, after it and no other: {count} Here "
        if call.layer not in its and call.layer < other.layer:
            left = f"rank {other.rank.rank} has not called {shown} before that"
            return f"{left}: is it left out, by an `if` around it or a `continue` before it? Here "
    return ""


def _not_loaded(call: InFlight, other: InFlight) -> str:
    """Return that a rank has not loaded the layer whose weight another one gathers of all ranks, in pieces; or an empty
    text."""
    layer, of_weight = call.layer, call.labels is not None and call.labels.kind == "Weight"
    if layer is None or not of_weight or call.kind != ALLGATHER.kind or call.rank.mesh.axes:
        return ""
    if other.rank.has_loaded(layer) or not call.rank.has_loaded(layer) or call.rank.has_copy(layer):
        return ""
    has = f"{show_call(*call.what)} takes all ranks, and rank {other.rank.rank} has not loaded layer {layer}: each rank"
    load = f"model.load_weights({layer}, model.rank, model.RANKS)"
    return f"{has} loads its piece of every layer, {load}, and every rank calls {call.kind} for every layer"


def _gather_skipped(call: InFlight, other: InFlight) -> str:
    """Return that a rank which calls a sum has gathered the weight of that layer less often than one which gathers it
    now, and has not run its backward; or an empty text."""
    if not sums(call.kind) or other.kind != ALLGATHER.kind or call.layer is None or call.layer != other.layer:
        return ""
    few, many = (
        sum((one.kind, one.layer) == (ALLGATHER.kind, call.layer) for one in rank.log)
        for rank in (call.rank, other.rank)
    )
    if few >= many or other.rank.with_gradients(call.layer):
        return ""
    gather, (rank, more) = show_call(*other.what), (call.rank.rank, other.rank.rank)
    calls = f"rank {more} calls {gather} before that sum, and rank {rank} does not"
    return f"{calls}: is a condition above that gather true on some ranks only? {ALSO_WITHOUT}"


ALSO_WITHOUT = "Every rank brings its piece to it, also one that does not run that layer"
EACH_IN_ORDER = (
    "Every rank takes part in every collective of its group, in the same order; one that has nothing to add to a sum "
    "brings model.fake_grad(layer, [])"
)
