"""What the ranks have cut and gathered, as errors ask it, and with it all that errors ask of a rank."""

from __future__ import annotations

from collections.abc import MutableMapping
from itertools import combinations
from math import prod
from typing import cast

from ...basics.errors import show_axis, show_set
from ...record.collectives import ALLGATHER, SCATTERREDUCE
from ...record.labels import Labels, experts_of, same_pieces, within
from ...record.table import sums
from ...record.training import FORWARD, UPDATE
from ..mesh import Axis
from .sums_made import SumsMade


class Asked(SumsMade):
    """A rank, as far as errors ask what it and the others have done."""

    __slots__ = ()
    ranks: MutableMapping[int, Asked]  # the ranks of the machine that are here

    def not_gathered_again(self, layer: int) -> bool:
        """Return whether this rank has run a layer, and has made no gather of that layer since."""
        own = [one.kind for one in self.log if one.layer == layer and one.kind in (ALLGATHER.kind, FORWARD.kind)]
        return own[-1:] == [FORWARD.kind]

    def has_gathered(self, weight: Labels) -> bool:
        """Return whether this rank has loaded only a part of what it has here of a weight."""
        own = self.loaded_piece(weight.layer, weight.adapter)
        return own is not None and within(own, weight) and not same_pieces(own, weight)

    def has_called_gather(self, layer: int, kind: str = "Weight") -> bool:
        """Return whether this rank has brought a weight of a layer, or a tensor of another kind, to a gather."""
        calls = [one for one in self.log if one.kind == ALLGATHER.kind and one.layer == layer]
        return any(one.labels is not None and one.labels.kind == kind for one in calls)

    def gathered_in_turn(self, *layers: object) -> str:
        """Return in which order this rank has gathered its weights after their updates, where these ``layers`` are all
        among them, and what to ask; or an empty text."""
        updated = [one.layer for one in self.log if one.kind == UPDATE.kind]
        gathers = [one for one in self.log if one.kind == ALLGATHER.kind and one.layer in updated]
        turns = [one.layer for one in gathers if one.labels is not None and one.labels.step]
        if not {*layers} <= {*turns} or len(turns) < 2:
            return ""
        called = f"allgather was called for layer {turns[0]} first and for layer {turns[-1]} last, and a list of what "
        return f"{called}they give has this order. Does a zip, or a loop, go through the layers in another?"

    def has_awaited_gather(self, layer: int) -> bool:
        """Return whether this rank has called a gather of a layer, and awaited it."""
        calls = [one for one in self.log if one.kind == ALLGATHER.kind and one.layer == layer]
        return any(getattr(one, "awaited", True) for one in calls)

    def loaded_piece(self, layer: int, adapter: bool = False) -> Labels | None:
        """Return the first piece of a layer's weight that this rank has taken."""
        taken = self.taken.get(("Weight", layer, adapter))
        return taken.pieces[0][0] if taken is not None and taken.pieces else None

    def has_brought_what_it_loaded(self, weight: Labels) -> bool:
        """Return whether a piece of a weight is the one that this rank has taken from its load."""
        own = self.loaded_piece(weight.layer, weight.adapter)
        return own is not None and same_pieces(own, weight)

    def axis_of_pieces(self, layer: int, adapter: bool = False) -> str | tuple[str, ...] | None:
        """Return the axis, or several, along which ranks have loaded different pieces of a weight that are all of it
        together, an empty text where these are all ranks, and None where that is not so, or not known."""
        mesh = self.mesh
        several = [names for size in range(2, len(mesh.axes)) for names in combinations(mesh.axes, size)]
        for axis in (None, *mesh.axes, *several):
            group = mesh.group(self.rank, axis).ranks if not self.is_host else ()
            known = [self.ranks[rank].loaded_piece(layer, adapter) for rank in group if rank in self.ranks]
            pieces = [(one.shards, one.total) for one in known if one is not None]
            if len(set(pieces)) == len(group) and all(total == len(group) for _, total in pieces):
                return axis or ""
        return None

    def owns_piece(self, piece: Labels) -> bool:
        """Return whether a piece is number ``rank`` of as many as there are ranks."""
        return piece.total == self.mesh.ranks and piece.shards == {self.rank}

    def numbers_of(self, piece: Labels) -> str:
        """Return the two arguments that say which piece of how many this is on this rank, as code."""
        if self.owns_piece(piece):
            return "(model.rank, model.RANKS)"
        axes = [
            axis
            for axis, size in self.mesh.axes.items()
            if size == piece.total and piece.shards == {self.mesh.index(self.rank, axis)}
        ]
        if len(axes) == 1:
            return f'(model.axis_index("{axes[0]}"), model.axis_size("{axes[0]}"))'
        return f"({', '.join(map(str, sorted(piece.shards)))}, {piece.total})"

    def has_copy(self, layer: int) -> bool:
        """Return whether this rank has loaded all of the weight of a layer."""
        own = self.loaded_piece(layer)
        return own is not None and own.is_whole()

    def cut_along(self, piece: Labels) -> str:
        """Return the two arguments that cut a piece out of what this rank has loaded, as code, where it is cut by the
        place along an axis along which ranks have loaded the same; or an empty text."""
        own = self.loaded_piece(piece.layer, piece.adapter)
        if (
            own is None
            or own.is_whole()
            or not within(piece, own)
            or len(piece.shards) != 1
            or piece.total <= own.total
        ):
            return ""
        cut, place = piece.total // own.total, min(piece.shards) % (piece.total // own.total)
        loaded = {*self.mesh.names(self.axis_of_pieces(piece.layer, piece.adapter) or None)}
        for axis, size in self.mesh.axes.items():
            if axis not in loaded and (size, self.mesh.index(self.rank, axis)) == (cut, place):
                return f"(model.axis_index({show_axis(axis)}), model.axis_size({show_axis(axis)}))"
        return ""

    def cut_again(self, slices: Labels) -> str:
        """Return what to do about slices of a sequence, brought to a gather or not, that are cut in another number than
        there are ranks; or an empty text."""
        same = [one for one in self.log if one.labels is not None and one.group is not None]
        same = [one for one in same if (one.labels.kind, one.labels.layer) == (slices.kind, slices.layer)]
        gathered = [one.labels.total for one in same if one.kind == ALLGATHER.kind]
        total, ranks = gathered[-1] if gathered else slices.total, self.mesh.ranks
        if self.mesh.axes or total in (1, ranks):
            return ""
        if total == ranks**2 and any(one.kind == SCATTERREDUCE.kind for one in same):
            call = f"model.{SCATTERREDUCE.kind}(..., {slices.layer})"
            return f"{call} gives each rank its slice already: leave out .shard(...) of what it gives"
        if total == ranks**2:
            return f"it is cut twice, in {ranks} slices and each of these in {ranks}: leave out one of the .shard(...)"
        cut = "cut as many slices as there are ranks, tensor.shard(model.rank, model.RANKS)"
        return f"it is cut in {total}, and there {_are(ranks)}: {cut}"

    def weights_cut_again(self, partial: Labels) -> str:
        """Return what to do about partial sums of which there are more than ranks, or an empty text."""
        if self.mesh.axes or partial.of in (1, self.mesh.ranks) or not self.layers_loaded():
            return ""
        own = self.loaded_piece(partial.layer - 1) or self.loaded_piece(min(self.layers_loaded()))
        # The sums of some of the pieces may add up to fewer and larger ones.
        cut = max(partial.of, own.total if own is not None else 1)
        pieces = f"the weight is cut in {cut}, and there {_are(self.mesh.ranks)}, each with one piece of it"
        return f"{pieces}: model.load_weights(layer, model.rank, model.RANKS), and no .shard(...) after that"

    def cut_of(self, layer: int) -> str:
        """Return over which ranks reduce-scatters have cut the gradient of a layer, and over which ones its weight is
        cut, where these are not all ranks; or an empty text."""
        cuts, own = self._past().cuts.get(layer, {}), self.axis_of_pieces(layer)
        if own is None or not self.mesh.axes or [*cuts] == [own or None] or not cuts:
            return ""
        over = ", then ".join(f"axis={show_axis(axis)}" if axis else "all ranks" for axis in cuts)
        right = f"over axis={show_axis(own)}" if own else "over all ranks"
        has = f"here scatterreduce has cut the gradient over {over}, and load_weights the weight {right}"
        if not own:
            return f"{has}: one reduce-scatter over all of them, grad = await model.scatterreduce(grad, {layer})"
        return f"{has}: reduce-scatter over axis={show_axis(own)} first" if next(iter(cuts)) != own else has

    def cut_once(self, layer: int) -> str:
        """Return over which axis the gradient of a layer is to be cut, as its weight is, and over which one summed as a
        whole, where reduce-scatters have cut it otherwise; or an empty text."""
        own, cuts = self.axis_of_pieces(layer), [*self._past().cuts.get(layer, {})]
        others = [axis for axis in self.mesh.axes if axis != own]
        if not own or cuts in ([], [own]) or len(others) != 1:
            return ""
        held = f"here weight and state are cut over axis={show_axis(own)} only"
        sums = f"grad = await model.allreduce(grad, {layer}, axis={show_axis(others[0])})"
        if cuts[0] == own:
            again = f"the reduce-scatter over axis={show_axis(others[0])} cuts the gradient again"
            return f"{held}, and {again}: in its place {sums}, which sums the pieces"
        first = f"grad = await model.scatterreduce(grad, {layer}, axis={show_axis(own)})"
        return f"{held}: cut the gradient over that one, {first}, and sum the pieces over the other, {sums}"

    def summed_over_all(self, layer: int) -> str:
        """Return what to do about the gradient of a layer that was summed over all ranks, where its weight is cut along
        an axis; or an empty text."""
        axis, calls = self.axis_of_pieces(layer), self._past().reduced.items()
        verb = next(
            (verb for (one, _), (verb, op, _) in calls if one == layer and cast("tuple[Axis]", op)[0] is None), ""
        )
        if not axis or not verb:
            return ""
        first = f"first over axis={show_axis(axis)}, then over the other one"
        return f"model.{verb} without an axis is over all ranks: {first}"

    def without_an_axis(self, layer: int, axis: Axis) -> str:
        """Return which call has summed the gradient of a layer over all ranks, and over which axis it is to be, where a
        sum over this other one follows; or an empty text."""
        others = [name for name in self.mesh.axes if name not in self.mesh.names(axis)]
        for one in reversed(self.log):
            if axis and len(others) == 1 and one.layer == layer and sums(one.kind) and one.op == (None, *one.op[1:]):
                over = f"model.{one.kind}(..., {layer}) before this has no axis, so it sums over all ranks"
                right = f"grad = await model.{one.kind}(grad, {layer}, axis={show_axis(others[0])})"
                return f"{over}, and nothing is left to sum over axis={show_axis(axis)}: {right} there"
        return ""

    def other_piece(self, layer: int, grad: Labels) -> str:
        """Return which piece of a weight a rank has loaded, where it gets another one of the gradient; or nothing."""
        own = self.loaded_piece(layer, grad.adapter)
        if own is None or own.total != grad.total or own.total == 1 or same_pieces(own, grad):
            return ""
        loaded, comes = show_set(own.shards), show_set(grad.shards)
        if any(same_pieces(piece, grad) for piece, _ in self.taken["Weight", layer, grad.adapter].pieces):
            two = f"this rank has loaded two pieces of layer {layer}, shard {loaded} and shard {comes} of {own.total}"
            return f"{two}: load one, and bring that to forward, backward and update"
        return f"this rank has loaded shard {loaded} of {own.total}, and shard {comes} of the gradient comes to it"

    def axes_of_copies(self, layer: int) -> list[str]:
        """Return the axes along which ranks have copies of this one's experts of a layer; none for a dense layer."""
        axis = self.axis_of_pieces(layer)
        if not experts_of(layer, self.experts) or not axis:
            return []
        return [name for name, size in self.mesh.axes.items() if name not in self.mesh.names(axis) and size > 1]

    def over_copies(self, layer: int) -> str:
        """Return how this rank sums the gradient of experts of which other ranks have copies, or an empty text."""
        left = [axis for axis in self.axes_of_copies(layer) if axis not in self.mesh.among(self.summed_over(layer))]
        call = f"grad = await model.allreduce(grad, {layer}, axis="
        return f'sum it over the copies of these experts, before the update: {call}"{left[0]}")' if left else ""

    def different_experts(self, layer: int) -> str:
        """Return what to do about a sum of gradients of different experts of a layer; an empty text for others."""
        if not experts_of(layer, self.experts):
            return ""
        copies = self.axes_of_copies(layer)
        said = "these are gradients of different experts, each with the tokens of all micro-batches "
        over = " and ".join(f"axis={show_axis(axis)}" for axis in copies)
        if copies:
            return f"{said}of its group already: sum them over the copies of these experts only, {over}"
        return f"{said}already: no sum is needed, so update with what model.backward_expert gives"

    def left_to_sum(self, layer: int, grad: Labels) -> str:
        """Return how a rank goes on with a gradient of a layer that is a sum over some axes of the mesh only, or an
        empty text."""
        done = self.summed_over(layer)
        left = [axis for axis in self.mesh.axes if axis not in self.mesh.among(done)]
        if not done or None in done or not left or len(grad.batches) < 2:
            return ""
        over = " and ".join(f"axis={show_axis(axis)}" for axis in done)
        if self.axis_of_pieces(layer) == "":
            call = f"grad = await model.scatterreduce(grad, {layer})"
            return (
                f"it has been summed over {over} only, and the weight is cut over all ranks: one sum over all, {call}"
            )
        if self.axis_of_pieces(layer) == left[0] and not grad.is_whole() and not self.is_cut(layer):
            call = f"grad = await model.scatterreduce(grad, {layer}, axis={show_axis(left[0])})"
            cuts = f"shard has cut it, and summed nothing over axis={show_axis(left[0])}"
            return f"it has been summed over {over} only: {cuts}. In place of .shard(...), {call} sums and cuts"
        if self.axis_of_pieces(layer) == left[0] and len(self.mesh.axes) > 1:
            call = f"grad = await model.scatterreduce(grad, {layer}, axis={show_axis(left[0])})"
            cut = f"the weight is cut over axis={show_axis(left[0])}"
            return f"it has been summed over {over} only, and {cut}: before that sum, on every rank, {call}"
        call = f"grad = await model.allreduce(grad, {layer}, axis={show_axis(left[0])})"
        if grad.is_whole() and {*self._past().cuts.get(layer, {})} & {*done}:
            piece = "on every rank, where it is in pieces, after model.scatterreduce and before model.allgather"
            return f"it has been summed over {over} only: {piece}, {call}"
        return f"it has been summed over {over} only: on every rank, before the update, {call}"

    def has_cut_over(self, layer: int, axis: object, but: object) -> bool:
        """Return whether this rank has brought a gradient of a layer to a reduce-scatter over an axis. ``but``: the
        ``op`` of a call that does not count."""
        known = [one for one in self.log if one.kind == SCATTERREDUCE.kind and one.layer == layer and one.op != but]
        return any(one.op[0] == axis for one in known)

    def is_cut(self, layer: int) -> bool:
        """Return whether this rank has brought a gradient of a layer to a reduce-scatter."""
        return bool(self._past().cuts.get(layer))

    def cut_by_hand(self, grad: Labels, brought: Labels, verb: str) -> str:
        """Return what to do where the rank has ``brought`` to a reduce-scatter a piece that it has cut by hand out of
        the gradient of a whole weight, and goes on with another piece, or with all of it; or an empty text."""
        own = self.loaded_piece(grad.layer, grad.adapter)
        by_hand = own is not None and own.is_whole() and not brought.is_whole() and brought.batches == grad.batches
        if verb != SCATTERREDUCE.kind or not by_hand:
            return ""
        takes = f"model.{verb} takes the whole gradient, and gives each rank its piece of the sum"
        once = f"one call for each gradient, grad = await model.{verb}(grad, {grad.layer})"
        return f"{takes}: {once}, and no .shard(...) before it"

    def cut_twice(self, layer: int) -> str:
        """Return what sums the pieces of a gradient that reduce-scatters have cut over two axes, or an empty text."""
        cuts = [*self._past().cuts.get(layer, {})]
        if len(cuts) != 2 or not all(cuts):
            return ""
        sums = f"grad = await model.allreduce(grad, {layer}, axis={show_axis(cuts[1])})"
        return f"the reduce-scatter over axis={show_axis(cuts[1])} cuts the pieces again: in its place {sums} sums them"

    def cut_further(self, layer: int, grad: Labels) -> str:
        """Return what to do about a gradient of a whole weight in pieces that are smaller than one reduce-scatter over
        each axis cuts them; or an empty text."""
        cuts, own = [*self._past().cuts.get(layer, {})], self.loaded_piece(layer, grad.adapter)
        pieces = prod(len(self.mesh.group(self.rank, cast("Axis", axis)).ranks) for axis in cuts)
        if not cuts or grad.total <= pieces or own is None or not own.is_whole():
            return ""
        into = f"model.{SCATTERREDUCE.kind} cuts the gradient into {pieces} pieces, and these are {grad.total}"
        return f"{into}: it is cut once more, by .shard(...) or by a second {SCATTERREDUCE.kind}; leave that out"

    def last_cut(self, layer: int) -> str:
        """Return the argument that names the axis of the last reduce-scatter of a layer, if it had one."""
        cuts = [*self._past().cuts.get(layer, {})]
        return f", axis={show_axis(cuts[-1])}" if cuts and cuts[-1] else ""

    def whole_from_pieces(self, weight: Labels) -> str:
        """Return how this rank gets all of a weight of which it has these pieces."""
        layer, own = weight.layer, self.loaded_piece(weight.layer, weight.adapter)
        if alone := self.met_by_others(weight.kind, layer):
            return alone
        if own is not None and not self.mesh.axes and 1 != own.total != self.mesh.ranks:
            load = f"model.load_weights({layer}, model.rank, model.RANKS)"
            return f"each rank loads one of as many pieces as there are ranks, and then they are all of it: {load}"
        axis = self.axis_of_pieces(layer, weight.adapter)
        if axis is None and own is not None and (few := self._too_few_pieces(own)):
            return few
        over = f", axis={show_axis(axis)}" if axis else ""
        fix = f"weight = await model.allgather(model.weights[{layer}], {layer}{over})"
        if own is None or same_pieces(own, weight):
            return fix
        if axis is not None and within(own, weight):
            gathered = (weight.kind, layer) in self._past().met
            some = "it was gathered over some of the ranks that have its pieces" if gathered else "it is a part only"
            fix = f"{some}. Over all of them: {fix}"
            if not axis and self.mesh.axes:
                name = [*self.mesh.axes][-1]
                cut = f'weight.shard(model.axis_index("{name}"), model.axis_size("{name}"))'
                fix += (
                    f'. To gather it along axis="{name}" only, let those ranks keep a copy of all of it, cut from the '
                )
                fix += f"whole weight: {cut}"
            return fix
        if weight.total > own.total:
            name = [*self.mesh.axes][-1] if self.mesh.axes else ""
            index = f'model.axis_index("{name}"), model.axis_size("{name}")' if name else "model.rank, model.RANKS"
            fix = (
                "these are pieces of the pieces that the ranks have loaded: gather what was loaded; or keep a piece of "
            )
            return f"{fix}the whole weight, once it is gathered: weight.shard({index})"
        missing = show_set(frozenset(range(weight.total)) - weight.shards)
        return f"{fix}; together its ranks must have loaded shards {missing} of {weight.total} as well"

    def _too_few_pieces(self, own: Labels) -> str:
        """Return that all ranks together have not loaded all pieces of a weight, one of which is this rank's ``own``;
        or an empty text."""
        known = [one.loaded_piece(own.layer, own.adapter) for one in self.ranks.values()]
        pieces = {shard for one in known if one is not None and one.total == own.total for shard in one.shards}
        if not self.mesh.axes or len(self.ranks) < self.mesh.everyone or len(pieces) == own.total:
            return ""
        size = f"model.axis_size({show_axis([*self.mesh.axes][-1])})"
        have = f"all ranks together have loaded {len(pieces)} of {own.total} pieces"
        return f"{have}: there are as many pieces as ranks along an axis, such as {size}, at every size"

    def whole_on_mesh(self, weight: Labels) -> str:
        """Return how this rank gets all of a weight of which it has these pieces, where all ranks along one axis have
        it together."""
        if self.axis_of_pieces(weight.layer, weight.adapter) == "" and self.mesh.axes:
            axis = [*self.mesh.axes][-1]
            piece = f"model.axis_index({show_axis(axis)}), model.axis_size({show_axis(axis)})"
            return f"load the piece of this place along the axis, model.load_weights({weight.layer}, {piece})"
        own, copies = self.loaded_piece(weight.layer, weight.adapter), self.axes_of_layers()
        if own is not None and len(copies) == 1 and own.total not in (1, self.mesh.axes[copies[0]]):
            piece = f"model.axis_index({show_axis(copies[0])}), model.axis_size({show_axis(copies[0])})"
            have = f"only the ranks along axis={show_axis(copies[0])} have this layer, so these have all of it together"
            return f"{have}: model.load_weights({weight.layer}, {piece})"
        return self.whole_from_pieces(weight)

    def whole_weight(self, layer: int) -> str:
        """Return how this rank gets all of the weight of a layer, where it has loaded a piece of it; or nothing."""
        own = self.loaded_piece(layer)
        return "" if own is None or own.is_whole() else self.whole_from_pieces(own)

    def others_have(self, layer: int) -> bool:
        """Return whether other ranks work on a layer as well, as far as is known."""
        others = [one for one in self.ranks.values() if one is not self]
        known = len(others) + 1 == self.mesh.everyone
        return not known or any(one.has_loaded(layer) or one.with_gradients(layer) for one in others)


def _are(ranks: int) -> str:
    return "is 1 rank" if ranks == 1 else f"are {ranks} ranks"
