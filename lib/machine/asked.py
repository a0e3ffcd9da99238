"""What errors ask of the logs of all ranks: who has sent a tensor, run a layer, brought a gradient to a reduction.

An answer about other ranks is right once these have come as far as they do, so errors ask when a run has ended (see
``PuzzleError.settle``).
"""

from __future__ import annotations

from collections.abc import MutableMapping

from ..basics.errors import show_set
from ..record.labels import NONE, Labels, same_pieces, within
from ..record.training import FORWARD
from .mesh import Mesh
from .past import Past, Taken


class Asked:
    """A rank, as far as errors ask what it and the others have done."""

    __slots__ = ()
    rank: int
    layers: int
    is_host: bool
    mesh: Mesh
    ranks: MutableMapping[int, Asked]  # the ranks of the machine that are here
    taken: dict[tuple[str, int, bool], Taken]

    def _past(self) -> Past:
        """Return what errors ask of this rank's own log, as it is now."""
        raise NotImplementedError

    def reduced(self, layer: int, batches: frozenset[int]) -> str:
        """Return the reduction to which this rank has brought a gradient of these micro-batches, and which has given
        more than that, or an empty text."""
        verb, useless = self._last_reduction(layer, batches)
        return "" if useless else verb

    def reduced_alone(self, layer: int, batches: frozenset[int]) -> str:
        """Return the reduction to which this rank has brought a gradient of these micro-batches, and the others of its
        group nothing more, or an empty text."""
        verb, useless = self._last_reduction(layer, batches)
        return verb if useless else ""

    def _last_reduction(self, layer: int, batches: frozenset[int]) -> tuple[str, bool]:
        """Return the last reduction to which this rank has brought a gradient of these micro-batches, and whether no
        other rank has brought other ones, as far as is known."""
        if (layer, batches) not in self._past().reduced:
            return "", False
        verb, op, group = self._past().reduced[layer, batches]
        others = [self.ranks.get(rank) for rank in group.position if rank != self.rank]
        return verb, all(one and one._past().brought.get((op, layer), NONE) <= batches for one in others)

    def never_reduced(self) -> tuple[str, list[int]]:
        """Return a reduction to which this rank has brought gradients, and the layers whose gradients it has brought to
        none; an empty text where it has brought all or none."""
        past = self._past()
        left = sorted(layer for layer in past.gradients if layer is not None and layer not in past.summed)
        return (next(iter(past.summed.values())), left) if past.summed and left else ("", [])

    def with_gradients(self, layer: int) -> frozenset[int]:
        """Return the micro-batches for which this rank has computed the gradient of a layer's weight."""
        return frozenset(self._past().gradients.get(layer, NONE))

    def has_run(self, verb: str, layer: int) -> frozenset[int]:
        """Return the micro-batches that this rank has carried through a layer with an operation."""
        return frozenset(self._past().ran.get((verb, layer), NONE))

    def has_loaded(self, layer: int) -> bool:
        """Return whether this rank has loaded a weight of a layer, or a piece of it."""
        return layer in self._past().loaded

    def sender(self, labels: Labels) -> tuple[int, int] | None:
        """Return the rank from which a tensor with these labels has come, and the place of that receive in the log."""
        return self._past().senders.get(labels)

    def sent_to(self, kind: str, layer: int, batches: frozenset[int]) -> int | None:
        """Return the rank to which this one has sent such a tensor of all these micro-batches, or of any, if it has."""
        sent = self._past().sent.get((kind, layer), {})
        return next(iter(sent.values()), None) if batches <= sent.keys() else None

    def elsewhere(self, layer: int, batches: frozenset[int] = NONE) -> int | None:
        """Return another rank that has run a layer on these micro-batches, or else the only one that has loaded it;
        None if this rank has done so itself, or if no such rank is known."""
        if batches <= self.has_run(FORWARD.kind, layer) != NONE:
            return None
        others = [one for rank, one in sorted(self.ranks.items()) if one is not self]
        for one in others:
            if batches <= one.has_run(FORWARD.kind, layer) != NONE:
                return one.rank
        holders = [one.rank for one in others if one.has_loaded(layer)]
        return holders[0] if len(holders) == 1 and not self.has_loaded(layer) else None

    def comes_from(self, kind: str, layer: int, batches: frozenset[int] = NONE) -> str:
        """Return from which other rank an activation of a layer, or its gradient, comes, and how to get it; an empty
        text where no other rank makes it."""
        backward = kind == "ActivationGrad"
        maker = layer if backward else layer - 1
        other = self.elsewhere(maker, batches) if 0 <= maker < self.layers else None
        if other is None:
            return ""
        call = f"await model.receive(src={other})"
        if backward:
            return f"layer {maker} is on rank {other}, and gradients come from there: {call}"
        ran = self.ranks[other].has_run(FORWARD.kind, maker)
        return f"layer {maker} {'ran' if ran else 'is'} on rank {other}: {call}"

    def _loaded_piece(self, layer: int, adapter: bool = False) -> Labels | None:
        """Return the first piece of a layer's weight that this rank has taken."""
        taken = self.taken.get(("Weight", layer, adapter))
        return taken.pieces[0][0] if taken is not None and taken.pieces else None

    def has_brought_what_it_loaded(self, weight: Labels) -> bool:
        """Return whether a piece of a weight is the one that this rank has taken from its load."""
        own = self._loaded_piece(weight.layer, weight.adapter)
        return own is not None and same_pieces(own, weight)

    def axis_of_pieces(self, layer: int, adapter: bool = False) -> str | None:
        """Return the axis along which ranks have loaded different pieces of a weight that are all of it together, an
        empty text where these are all ranks, and None where that is not so, or not known."""
        mesh = self.mesh
        for axis in (None, *mesh.axes):
            group = mesh.group(self.rank, axis).ranks if not self.is_host else ()
            known = [self.ranks[rank]._loaded_piece(layer, adapter) for rank in group if rank in self.ranks]
            pieces = [(one.shards, one.total) for one in known if one is not None]
            if len(set(pieces)) == len(group) and all(total == len(group) for _, total in pieces):
                return axis or ""
        return None

    def cut_of(self, layer: int) -> str:
        """Return over which ranks reduce-scatters have cut the gradient of a layer, and over which ones its weight is
        cut, where these are not all ranks; or an empty text."""
        cuts, own = self._past().cuts.get(layer, {}), self.axis_of_pieces(layer)
        if own is None or not self.mesh.axes or [*cuts] == [own or None] or not cuts:
            return ""
        over = ", then ".join(f'axis="{axis}"' if axis else "all ranks" for axis in cuts)
        right = f'over axis="{own}"' if own else "over all ranks"
        return f"here scatterreduce has cut the gradient over {over}, and load_weights the weight {right}"

    def other_piece(self, layer: int, grad: Labels) -> str:
        """Return which piece of a weight a rank has loaded, where it gets another one of the gradient; or nothing."""
        own = self._loaded_piece(layer, grad.adapter)
        if own is None or own.total != grad.total or own.total == 1 or same_pieces(own, grad):
            return ""
        loaded, comes = show_set(own.shards), show_set(grad.shards)
        return f"this rank has loaded shard {loaded} of {own.total}, and shard {comes} of the gradient comes to it"

    def last_cut(self, layer: int) -> str:
        """Return the argument that names the axis of the last reduce-scatter of a layer, if it had one."""
        cuts = [*self._past().cuts.get(layer, {})]
        return f', axis="{cuts[-1]}"' if cuts and cuts[-1] else ""

    def whole_from_pieces(self, weight: Labels) -> str:
        """Return how this rank gets all of a weight of which it has these pieces."""
        layer, own = weight.layer, self._loaded_piece(weight.layer, weight.adapter)
        axis = self.axis_of_pieces(layer, weight.adapter)
        over = f', axis="{axis}"' if axis else ""
        fix = f"weight = await model.allgather(model.weights[{layer}], {layer}{over})"
        if own is None or same_pieces(own, weight):
            return fix
        if axis is not None and within(own, weight):
            fix = f"it was gathered over some of the ranks that have its pieces. Over all of them: {fix}"
            if not axis and self.mesh.axes:
                name = [*self.mesh.axes][-1]
                cut = f'weight.shard(model.axis_index("{name}"), model.axis_size("{name}"))'
                fix += (
                    f'. To gather it along axis="{name}" only, let those ranks keep a copy of all of it, cut from the '
                )
                fix += f"whole weight: {cut}"
            return fix
        missing = show_set(frozenset(range(weight.total)) - weight.shards)
        return f"{fix}; together its ranks must have loaded shards {missing} of {weight.total} as well"

    def others_have(self, layer: int) -> bool:
        """Return whether other ranks work on a layer as well, as far as is known."""
        others = [one for one in self.ranks.values() if one is not self]
        known = len(others) + 1 == self.mesh.everyone
        return not known or any(one.has_loaded(layer) or one.with_gradients(layer) for one in others)
