"""What the ranks have added up, as errors ask it: of the logs of all ranks."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence, Set
from typing import cast

from ...basics.errors import numbered, show_axis, show_call
from ...record.collectives import SCATTERREDUCE
from ...record.labels import Labels
from ...record.rules.incomplete import not_in_place, over_axis
from ...record.shards import NONE
from ...record.table import sums
from ...record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, UPDATE
from ..mesh import Axis
from .awaited import Unawaited
from .work_done import WorkDone

TAKES = "get_activation"
EVERY_RANK = "Make it true on every rank, each at its own last micro-batch"
"""What to do about a condition above a sum."""


class SumsMade(WorkDone):
    """A rank, as far as errors ask what it and the others have brought to sums."""

    __slots__ = ()

    fetched: array[int]  # of each call fetched: how long the log was, and the call's place in it
    unread: set[tuple[int, int]]  # the places of operations whose results nobody has used

    def reduced(self, layer: int, batches: frozenset[int]) -> str:
        """Return the reduction to which this rank has brought a gradient of these micro-batches, and which has given
        more than that, or an empty text."""
        verb, useless = self._last_reduction(layer, batches)
        return "" if useless else verb

    def reduced_over(self, layer: int, batches: frozenset[int]) -> Sequence[object]:
        """Return what names the reduction to which this rank has brought a gradient of these micro-batches: its axis,
        and more."""
        return cast(Sequence[object], self._past().reduced[layer, batches][1])

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
        if len(group.position) == 1:
            return "", False
        others = [self.ranks.get(rank) for rank in group.position if rank != self.rank]
        return verb, all(one and one._past().brought.get((op, layer), NONE) <= batches for one in others)

    def never_reduced(self) -> tuple[str, list[int]]:
        """Return a reduction to which this rank has brought gradients, and the layers whose gradients it has brought to
        none; an empty text where it has brought all or none."""
        past = self._past()
        left = sorted(layer for layer in past.gradients if layer is not None and layer not in past.summed)
        return (next(iter(past.summed.values())), left) if past.summed and left else ("", [])

    def met_by(self, kind: str, layer: int) -> str:
        """Return the last collective to which this rank has brought a tensor of a kind and a layer, or nothing."""
        return self._past().met.get((kind, layer), "")

    def not_summed(self, layer: int) -> str:
        """Return that what the backward of a layer has given is a partial sum that this rank has not added up, where it
        has added up others; or an empty text."""
        done = [one for one in self.log if one.labels is not None and one.labels.of > 1 and sums(one.kind)]
        added = {one.labels.layer + 1: one.kind for one in done if one.labels.kind == "ActivationGrad"}
        if layer < 1 or not done or layer in added or self.met_by("Weight", layer):
            return ""
        gave = f"{BACKWARD.kind}({layer}, ...) gave a partial sum of it, which "
        for verb in list(added.values())[:1]:
            gave += f"has gone into no model.{verb}, as those of {numbered('layer', added)} have: "
            gave += f"await model.{verb}(..., {layer - 1}) adds it up"
        if not added:
            gave += "no call has added up over the ranks, as what forward gave was"
        only = f"Only what {BACKWARD.kind}(0, ...) gives needs no sum: if layer > 0"
        return f"{gave}. Is a condition above that call false for layer {layer}? {only}"

    def input_elsewhere(self) -> str:
        """Return which other ranks alone have taken an input, where this one has taken none; or an empty text."""
        of = {rank: [e.batches for e in one.log if e.kind == TAKES] for rank, one in sorted(self.ranks.items())}
        took = [rank for rank, batches in of.items() if batches]
        every = len(NONE.union(*[some for batches in of.values() for some in batches])) == self.batches
        if not took or self.rank in took or not self.has_loaded(0) or (every and len(took) > 1):
            return ""
        only = f"only {numbered('rank', took)} call{'s' * (len(took) == 1)} model.get_activation"
        return f"{only}: is a condition above that call true there alone? Each rank that runs layer 0 calls it"

    def brought_again(self, at: int, came: bool) -> str:
        """Return what to do about a gradient that is brought to the same reduction as before, at a place in the log.
        ``came``: whether a call has given it."""
        verb, layer = self.log[at].kind, self.log[at].layer
        before = f"{show_call(verb, layer)} has been given this gradient before"
        if came:
            again = "is a call awaited twice, or an entry of a list or dictionary of calls read in two turns?"
            return f"{before}: {again} Take each out where it is awaited, with pop, or replace the list after its turn"
        if at not in self.fetched[1::2]:
            call = f"model.{verb}(grad, {layer}{over_axis(self.log[at].op)})"
            once = f"one call for each gradient, and await that one, grad = await {call}"
            return f"{before}, and nobody has awaited that call: {once}"
        if (at, 0) in self.unread:
            return not_in_place(verb, self.log[at].op, "go on with that")
        return f"{before}, and what that gave has been used: leave this call out, or bring it what that one gave"

    def unawaited(self, kind: str, layer: int) -> str:
        """Return the last collective to which this rank has brought a tensor of a kind and a layer, and which it has
        never awaited, with which ones like it it has; or nothing."""
        for record in reversed(self.log):
            left = getattr(record, "awaited", True) is False and record.labels is not None and record.group is not None
            if left and record.labels.kind == kind and layer in (record.layers or [record.layer]):
                own = record.labels.batches
                of = f" of {numbered('micro-batch', own)}" * (kind == "WeightGrad" and own < self.with_gradients(layer))
                started = f"model.{record.kind}(..., {layer}){of} was started on this rank, and never awaited"
                beside = Unawaited(self.log, self.fetched, record).awaited
                return started + f", while {beside}" * bool(beside)
        return ""

    def met_by_others(self, kind: str, layer: int) -> str:
        """Return which other rank has brought a tensor of a kind and a layer to a collective, where this one has not,
        and what to do; or an empty text."""
        if (kind, layer) in self._past().met:
            return ""
        for rank, one in sorted(self.ranks.items()):
            if verb := one._past().met.get((kind, layer)):
                calls = f"rank {rank} calls model.{verb}(..., {layer}), and rank {self.rank} does not"
                return (
                    f"{calls}: a collective is called by every rank of its group, so it stands below no `if` of a rank"
                )
        return ""

    def sum_of_some(self) -> str:
        """Return that other ranks alone sum gradients of a layer that this one has as well, or an empty text."""
        own = self._past()
        for layer, verb in {
            layer: verb for one in self.ranks.values() for layer, verb in one._past().summed.items()
        }.items():
            some = [rank for rank, one in sorted(self.ranks.items()) if layer in one._past().summed]
            if not own.summed and own.gradients.get(layer):
                only = f"only {numbered('rank', some)} call{'s' * (len(some) == 1)} model.{verb}(..., {layer})"
                return f"{only}: is a condition above it true there alone? {EVERY_RANK}"
        return ""

    def not_gone_back(self, layer: int, batches: frozenset[int]) -> str:
        """Return which ranks have carried these micro-batches forward through a layer, and none of them back, or that
        no rank of a pipeline has run the layer; or an empty text."""
        ran = {rank: one.has_run(FORWARD.kind, layer) for rank, one in sorted(self.ranks.items())}
        if len(ran) < self.mesh.everyone or not self.summed_by(layer):
            return ""
        idle = [rank for rank, own in ran.items() if own & batches and not self.ranks[rank].with_gradients(layer)]
        if idle and batches <= NONE.union(*[ran[rank] for rank in idle]):
            have = f"{numbered('rank', idle)} {'has' if len(idle) == 1 else 'have'} run forward({layer}, ...), and not"
            none = f"brought no gradient of {numbered('micro-batch', batches)} to the sum"
            return f"{have} the backward of layer {layer}, and {none}: is a condition above that backward false there?"
        return "" if any(ran.values()) else self.not_in_stages()

    def not_in_stages(self) -> str:
        """Return which layers no rank has run, where ranks run different ones; or an empty text."""
        run = [one.layers_run() for one in self.ranks.values() if not one.is_host]
        left = {*range(self.layers)}.difference(*run)
        if not left or all(own == run[0] for own in run):
            return ""
        return (
            f"no rank has run {numbered('layer', left)}: each stage runs model.LAYERS // stages layers, at every size"
        )

    def not_brought(self, layer: int, batches: frozenset[int]) -> str:
        """Return the reduction to which this rank has brought another gradient of a layer than the one of these micro-
        batches, which it has computed; or an empty text."""
        past = self._past()
        own = batches <= past.gradients.get(layer, NONE) and (layer, batches) not in past.reduced
        return past.summed.get(layer, "") if own else ""

    def counted_twice(self, layer: int, batches: frozenset[int], plain: str, verb: str) -> str:
        """Return what to do about a sum of gradients in which these micro-batches come twice. ``plain``: what to say of
        it in any case; ``verb``: the reduction to name."""
        once = "" if batches <= self.with_gradients(layer) else self.sums_often(layer)
        return (
            self._by_halves_too(layer, batches)
            or self.runs_too(layer, batches)
            or self._sent_twice(batches)
            or self._came_once(layer, batches)
            or once
            or plain + self.summed_over_ranks(layer, verb)
        )

    def _sent_twice(self, batches: frozenset[int]) -> str:
        """Return that a rank has sent the same of one of these micro-batches twice; or an empty text."""
        again = next(filter(None, map(self.sent_again, sorted(batches))), None)
        if again is None:
            return ""
        sender, receiver, at = again
        what = self.ranks[sender].log[at].labels
        twice = f"rank {sender} has sent rank {receiver} the {what.kind} of layer {what.layer}, "
        twice += f"{numbered('micro-batch', what.batches)}, twice"
        return f"{twice}: its pass_to sends in each turn what is stored of the micro-batch of that turn"

    def _came_once(self, layer: int, batches: frozenset[int]) -> str:
        """Return that one call alone has given the sum of these micro-batches, which others have computed, too, so that
        its result is added twice; or an empty text."""
        calls = [verb for verb, own, _ in self.sums_over_all(layer) if batches & own]
        if len(calls) != 1 or batches <= self.with_gradients(layer):
            return ""
        gave = (
            f"one call of model.{calls[0]}(..., {layer}) has given these micro-batches, and its result is added twice"
        )
        awaited = "is that call awaited in two turns, as its name or its list was not replaced by the next one"
        return (
            f"{gave}: {awaited}? Or is a sum, or its first piece, added to itself, as `get(key, piece) + piece` does?"
        )

    def _by_halves_too(self, layer: int, batches: frozenset[int]) -> str:
        """Return that the gradient of a layer's weight was made by a whole backward and by a half; or an empty text."""
        both = batches & self.has_run(BACKWARD.kind, layer) & self.has_run(BACKWARD_WEIGHT.kind, layer)
        if not both:
            return ""
        of = numbered("micro-batch", both)
        whole = f"backward({layer}, ...) of {of} has given the gradient of the weight, too, and "
        again = f"{BACKWARD_WEIGHT.kind}({layer}, ...) has made it again"
        halves = f"call {BACKWARD_INPUT.kind}, which gives the gradient of the input alone, in place of backward"
        return f"{whole}{again}: {halves}"

    def sums_often(self, layer: int) -> str:
        """Return that this rank has summed the gradient of a layer over the ranks several times, and that once is
        enough; or an empty text."""
        times, verb = len([op for op, its_layer in self._past().brought if its_layer == layer]), self.summed_by(layer)
        if times < 2 or self.mesh.axes:
            return ""
        most = max(self.ranks.values(), key=lambda one: len([op for op, of in one._past().brought if of == layer]))
        more = len([op for op, of in most._past().brought if of == layer])
        others = f", and rank {most.rank} {more} times" if more > times else ""
        first = "add up the gradients of this rank's own micro-batches first, and sum over the ranks once, at the end"
        return f"rank {self.rank} has called model.{verb} for layer {layer} {times} times{others}: {first}"

    def summed_over_ranks(self, layer: int, verb: str) -> str:
        """Return, as a sentence to be added, how this rank gets the gradients of a layer that others have computed; an
        empty text where they have none, or where it has called a reduction. ``verb``: the reduction to name."""
        others = [one for one in self.ranks.values() if one is not self and one.with_gradients(layer)]
        if not others or self.summed_by(layer):
            return ""
        return f" The gradients of the other ranks come by a reduction, grad = await model.{verb}(grad, {layer})"

    def summed_by(self, layer: int) -> str:
        """Return the last reduction to which this rank has brought a gradient of a layer, or an empty text."""
        return self._past().summed.get(layer, "")

    def summed_over(self, layer: int, but: object = None) -> list[Axis]:
        """Return the axes over which this rank has summed a gradient of a layer, None for all ranks, in order.
        ``but``: the ``op`` of a call that does not count."""
        ops = [op for op, its_layer in self._past().brought if its_layer == layer and op != but]
        return [*dict.fromkeys(cast("tuple[Axis]", op)[0] for op in ops)]

    def sums_over_all(self, layer: int) -> Iterator[tuple[str, frozenset[int], object]]:
        """Yield the reductions over all ranks to which this one has brought a gradient of a layer, the micro-batches of
        each sum, and its op."""
        for (its_layer, _), (verb, op, _) in self._past().reduced.items():
            if its_layer == layer and cast("tuple[str | None]", op)[0] is None:
                brought = [one._past().brought.get((op, layer), NONE) for one in self.ranks.values()]
                yield verb, NONE.union(*brought), op

    def summed_in_part(self, layer: int, grad: Labels) -> str:
        """Return what to do about a gradient of a layer that is a sum over all ranks and, added to it, what this rank
        has computed; or an empty text."""
        sums = {batches: verb for verb, batches, _ in self.sums_over_all(layer) if batches <= grad.batches}
        done = NONE.union(*sums)
        own = grad.batches - done
        if not sums or not own or not own <= self.with_gradients(layer) or done <= self.with_gradients(layer):
            return ""
        verb, are = next(iter(sums.values())), "is" if len(own) == 1 else "are"
        todo = "Sum that one, too, before the two are added: "
        if verb != SCATTERREDUCE.kind:
            todo = (
                f"Add up this rank's own ones first, model.grad_weights[{layer}] + grad, and sum over the ranks once, "
            )
            todo += "after the last: "
        cut = ", which sums and cuts; shard only cuts" * (verb == SCATTERREDUCE.kind and not grad.is_whole())
        return (
            f"{numbered('micro-batch', done)} in this gradient are summed over the ranks, and "
            f"{numbered('micro-batch', own)} {are} this rank's own. {todo}grad = await model.{verb}(grad, {layer}){cut}"
        )

    def fetches(self) -> int:
        """Return how many calls this rank has awaited so far."""
        return len(self.fetched) // 2

    def replaced_sum(self, layer: int, grad: Labels, fetches: int) -> str:
        """Return what to do where this rank has brought to a sum micro-batches that are not in a gradient of a layer,
        or an empty text. ``fetches``: how many calls it had awaited by then."""
        stored, awaited = f"model.grad_weights[{layer}]", {self.log[at].op for at in self.fetched[1 : 2 * fetches : 2]}
        calls = [(own, verb, op) for (its, own), (verb, op, _) in self._past().reduced.items() if its == layer and own]
        for place, (own, verb, op) in enumerate(calls):
            if op not in awaited and not own & grad.batches:
                if place + 1 < len(calls) and (started := self.unawaited("WeightGrad", layer)):
                    lacks = f"so the sum with {numbered('micro-batch', own)} is not in this one"
                    add = f"await it before the next call of the layer takes its place, and then {stored} = "
                    return f"{started}, {lacks}: {add}{stored} + piece"
                brought = f"the gradient of {numbered('micro-batch', own)} was brought to model.{verb}(..., {layer})"
                return (
                    f"{brought}, and that was not awaited by then: await it, or the task that does, before this "
                    f"update, {stored} = {stored} + piece, and update the layer once, with all of them"
                    f"{self._left_like(own, awaited)}"
                )
        left = {batches: verb for verb, batches, _ in self.sums_over_all(layer) if not batches & grad.batches}
        lost = NONE.union(*left)
        if lost <= self.with_gradients(layer):
            return ""
        verb = next(iter(left.values()))
        return (
            f"this rank has had the sum of {numbered('micro-batch', lost)} from model.{verb}, and it is not in this "
            f"one, as if it was replaced or cleared away: piece = await model.{verb}(grad, {layer}), and then "
            f"{stored} = {stored} + piece. If a condition decides whether to add, it asks what is in "
            "model.grad_weights, which nothing clears between two micro-batches"
        )

    def _left_like(self, batches: frozenset[int], awaited: Set[object]) -> str:
        """Return, as sentences, of which layers the sum of such micro-batches is not awaited, while others are."""
        same = [(layer, op in awaited) for (layer, own), (_, op, _) in self._past().reduced.items() if own == batches]
        left, done = ([layer for layer, was in same if was is which and layer is not None] for which in (False, True))
        if not done:
            return ""
        said = f". Of {numbered('micro-batch', batches)}, those of {numbered('layer', left)} are not awaited, and "
        return f"{said}of {numbered('layer', done)} {'it is' if len(done) == 1 else 'they are'}{Unawaited.LEFT_OUT}"

    def axis_by_axis(self, layer: int) -> str:
        """Return, as the end of a sentence, over which axes of a mesh ranks that have the same layer add up, one after
        the other; or an empty text."""
        axes = [f"axis={show_axis(axis)}" for axis in self.mesh.axes]
        same = len(axes) > 1 and all(one.has_copy(layer) for one in self.ranks.values())
        return f"; on a mesh also over one axis after the other, {' and '.join(axes)}" if same else ""

    def updates_alone(self, layer: int) -> str:
        """Return, as a sentence, which ranks have gone on to the backward of the layer below without an update of this
        layer, where this rank has not; or an empty text."""
        went = [
            rank
            for rank, one in sorted(self.ranks.items())
            if one.has_run(BACKWARD.kind, layer - 1) and all((e.kind, e.layer) != (UPDATE.kind, layer) for e in one.log)
        ]
        if not went or self.rank in went:
            return ""
        have = f"{numbered('rank', went)} {'has' if len(went) == 1 else 'have'} gone on without update({layer}, ...)"
        every = "every rank makes that sum and that update, so neither stands below an `if` of a rank"
        return f". {have[0].upper()}{have[1:]}: {every}"

    def not_theirs(self, layer: int, missing: frozenset[int]) -> str:
        """Return which ranks have computed the gradient of such micro-batches of a layer, and brought another one to
        the sum over all ranks, in which this one was; or an empty text."""
        done = self.summed_over(layer)
        if None not in done and (not self.mesh.axes or {*self.mesh.axes} - {*self.mesh.among(done)}):
            return ""
        ranks = [
            rank
            for rank, one in sorted(self.ranks.items())
            if (own := missing & one.with_gradients(layer))
            and one.summed_by(layer)
            and not own & NONE.union(*[of for (_, its), of in one._past().brought.items() if its == layer])
        ]
        if not ranks:
            return ""
        have = (
            f"{numbered('rank', ranks)} {'has' if len(ranks) == 1 else 'have'} computed the gradient of layer {layer}"
        )
        brings = "each brings what its own backward gave, and model.fake_grad only where it has run none"
        return f"{have}, and brought another one to the sum: {brings}"
