"""Layers with experts, with numbers: the units of an MLP dealt to experts, and tokens on their way.

A token of a micro-batch has a row for each of its experts, and these rows stand expert by expert (``data.routes``). So
those of some experts are some of the rows, as a slice of a sequence is, and come home in any order. An expert gives
``gate * (x + gelu(x A) B)``; since the gates of a token add up to 1, what comes home adds up to the layer's output.
"""

from __future__ import annotations

from typing import Any

import torch

from ...record.experts import is_dealt, layer_of_experts
from ...record.labels import Labels
from ...running.workload import Workload, units_of
from ..data import ends, routes
from ..layers import parameters, units_of_mlp
from ..pieces import Pieces, Spans, merged, select, spans_of

ByBatch = dict[int, Any]


def rows_of(work: Workload, labels: Labels) -> Spans:
    """Return which rows of a micro-batch are the tokens that these labels name."""
    ended, total = ends(work, layer_of_experts(labels)), labels.total
    known = [(shard * work.experts // total, (shard + 1) * work.experts // total) for shard in labels.shards]
    return merged([(ended[first], ended[last]) for first, last in known])


class Experts:
    """What experts compute, and how tokens go to them and home, for the arithmetic of one workload (``numbers``)."""

    work: Workload
    device: Any
    sequence: Spans

    def expert(self, tokens: ByBatch, weight: Any) -> ByBatch:
        """Return what experts make of the tokens that go to them; ``weight`` is that of these experts."""
        held, numbers, rows = self._held(weight)
        how = select(weight, numbers), weight.layer, held
        return {batch: Pieces(rows, self._given(batch, select(part, rows), *how)) for batch, part in tokens.items()}

    def backward_expert(self, tokens: ByBatch, grad: ByBatch, weight: Any) -> tuple[Pieces, ByBatch]:
        """Return the gradients of the weight of some experts, summed over the micro-batches, and of their tokens."""
        held, numbers, rows = self._held(weight)
        own, back = select(weight, numbers).detach().requires_grad_(), {}
        total = torch.zeros_like(own)
        for batch, part in tokens.items():
            columns = select(part, rows).detach().requires_grad_()
            with torch.enable_grad():
                out = self._given(batch, columns, own, weight.layer, held)
            seed = select(grad[batch], rows)
            of_own, of_columns = torch.autograd.grad(out, (own, columns), seed, materialize_grads=True)
            total, back[batch] = total + of_own, Pieces(rows, of_columns)
        return Pieces(weight.spans, select(Pieces(numbers, total), weight.spans)), back

    def _held(self, weight: Pieces) -> tuple[list[int], Spans, Spans]:
        """Return which whole experts are in a part of a weight, which numbers of the flat weight are theirs, and which
        rows of a micro-batch go to them."""
        size, count = parameters(self.work.layer, self.work.hidden), self.work.experts
        ended = ends(self.work, weight.layer)
        held = [one for start, stop in weight.spans for one in range(-(-start * count // size), stop * count // size)]
        return held, spans_of(held, count, size), merged([(ended[expert], ended[expert + 1]) for expert in held])

    def _given(self, batch: int, columns: torch.Tensor, own: torch.Tensor, layer: int, held: list[int]) -> torch.Tensor:
        """Return what these experts of a layer, whose numbers are ``own``, give for the tokens that go to them: a
        column for each, as in ``columns``."""
        ended, gates = ends(self.work, layer), routes(self.work, layer, batch).gates.to(self.device)
        units = own.view(len(held), units_of(self.work.hidden) // self.work.experts, 2 * self.work.hidden)
        tokens = columns.split([ended[expert + 1] - ended[expert] for expert in held], 1)
        found = []
        for expert, x, mine in zip(held, tokens, units, strict=True):
            gate = gates[ended[expert] : ended[expert + 1], None]
            found.append((gate * (x.T + units_of_mlp(x.T, mine))).T)
        return torch.cat(found, 1) if found else columns

    # -- there and back ------------------------------------------------------------------------------

    def _sent(self, one: Pieces, batch: int, labels: Labels) -> Pieces:
        """Return a micro-batch, or its tokens, as what these labels name: tokens for their experts, or the sum of what
        they bring home."""
        on_their_way = len(one.flat) == self.work.hidden
        if not self.work.experts or on_their_way == is_dealt(labels.kind):
            return one
        tokens = routes(self.work, layer_of_experts(labels), batch).tokens.to(self.device)
        every = ((0, len(tokens)),)
        if not on_their_way:
            return Pieces(every, select(one, self.sequence).view(-1, self.work.hidden)[tokens].T)
        rows = one.flat.new_zeros(self.work.length, self.work.hidden).index_add(0, tokens, select(one, every).T)
        return Pieces(self.sequence, rows.reshape(1, -1))
