"""A layer in three steps, with numbers: a transformer block, for slices of a sequence.

Whatever the steps pass on has a row of numbers for each token, and slices are some of these rows. In a row the numbers
of each head stand together, so some heads are some of these columns. Queries carry what
they have found so far without the division by its weight (online softmax: Milakov and Gimelshein, 2018, arXiv
1805.02867), so keys may come in any order; backwards it is that of FlashAttention (Dao and others, 2022, arXiv
2205.14135), block by block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...basics.errors import PuzzleError
from ...record.causal import ALL, Slices
from ...record.shards import union
from ...running.workload import Workload
from ..layers import BLOCK, heads, projected, rest_of_block, split
from ..pieces import Pieces, Spans, select, spans_of, together

ByBatch = dict[int, Any]


def width(kind: str, hidden: int) -> int:
    """Return how many numbers a kind has for each token: 0 of one that is not passed on between the steps.

    Keys and values: both. Queries: the query, the sum of what they have found, and of each head the largest score so
    far and the sum of exponentials. Their gradient: the query, what it has found, the gradient of that and of the query
    so far, and of each head the logarithm of that sum and the product of what was found with its gradient.
    """
    count = heads(hidden)
    widths = {"KeysValues": 2 * hidden, "KeysValuesGrad": 2 * hidden}
    return (widths | {"Attended": 2 * hidden + 2 * count, "AttendedGrad": 4 * hidden + 2 * count}).get(kind, 0)


class Steps:
    """The six steps, for the arithmetic of one workload (``numbers``)."""

    work: Workload
    whole: Spans
    of_a_head: int  # how wide a head is

    def _complete(self, weight: Any) -> torch.Tensor:
        """Return the flat weight of a layer: (parameters,)."""
        return select(weight, self.whole)[0]

    def project(self, inp: Any, weight: Any) -> tuple[ByBatch, ByBatch]:
        """Return queries that have found nothing yet, and keys and values."""
        flat, att, kv = self._parameters(weight), {}, {}
        for batch, one in inp.items():
            tokens, x = self._rows(one)
            queries, keys, values = projected(x, flat).chunk(3, -1)
            none = x.new_zeros(len(x), heads(x.shape[-1]))
            att[batch] = self._piece((tokens, ALL), queries, torch.zeros_like(queries), none - math.inf, none)
            kv[batch] = self._piece((tokens, ALL), keys, values)
        return att, kv

    def attend(self, att: Any, kv: Any) -> ByBatch:
        """Return the queries with what they have found among these keys, too."""
        return {batch: self._attended(one, kv[batch]) for batch, one in att.items()}

    def rest(self, inp: Any, weight: Any, att: Any) -> ByBatch:
        """Return what the layer makes of its input."""
        flat, out = self._parameters(weight), {}
        for batch, one in inp.items():
            tokens, x = self._rows(one)
            out[batch] = self._slice(tokens, rest_of_block(x, self._found(att[batch], tokens)[0], flat))
        return out

    def backward_rest(self, inp: Any, grad: Any, weight: Any, att: Any) -> ByBatch:
        """Return the gradient of what the queries have found."""
        flat, back = self._parameters(weight), {}
        for batch, one in inp.items():
            tokens, x = self._rows(one)
            found, log_sum, queries = self._found(att[batch], tokens)
            found.requires_grad_()
            with torch.enable_grad():
                out = rest_of_block(x, found, flat)
            (of_found,) = torch.autograd.grad(out, found, self._rows_of(grad[batch], tokens, x))
            product = self._by_head(found.detach() * of_found).sum(-1).T
            gone = torch.zeros_like(queries)
            back[batch] = self._piece((tokens, ALL), queries, found.detach(), of_found, gone, log_sum, product)
        return back

    def backward_attend(self, att_grad: Any, kv: Any) -> tuple[ByBatch, ByBatch]:
        """Return the gradient of the queries after these keys, and what it adds to the gradient of keys and values."""
        made = {batch: self._went_back(one, kv[batch]) for batch, one in att_grad.items()}
        return {batch: one for batch, (one, _) in made.items()}, {batch: one for batch, (_, one) in made.items()}

    def backward_project(self, inp: Any, grad: Any, weight: Any, att_grad: Any, kv_grad: Any) -> tuple[Pieces, ByBatch]:
        """Return the gradients of the weight, as far as these slices give it, and of the input."""
        whole, back = self._complete(weight), {}
        total, hidden = torch.zeros_like(whole), self.work.hidden
        for batch, one in inp.items():
            tokens, x = self._rows(one)
            leaf, flat = x.detach().requires_grad_(), whole.detach().requires_grad_()
            _, found, _, of_queries, *_ = self._columns(of_heads(att_grad[batch], ALL), tokens, 4, 2)
            of_keys = self._columns(of_heads(kv_grad[batch], ALL), tokens, 2)
            with torch.enable_grad():
                parameters = split(BLOCK.shapes(hidden), flat)
                outputs = rest_of_block(leaf, found, parameters), *projected(leaf, parameters).chunk(3, -1)
            seeds = (self._rows_of(grad[batch], tokens, x), of_queries, *of_keys)
            of_flat, of_inp = torch.autograd.grad(outputs, (flat, leaf), seeds)
            total, back[batch] = total + of_flat, self._slice(tokens, of_inp)
        return Pieces(((0, len(total)),), total[None]), back

    # -- rows of tokens ------------------------------------------------------------------------------

    def _parameters(self, weight: Any) -> list[torch.Tensor]:
        if self.work.layer != "block":
            problem = f"a layer of kind {self.work.layer!r} has no attention, so it is not computed in three steps"
            raise PuzzleError(problem, where="real tensors", expected='layer="block"')
        return split(BLOCK.shapes(self.work.hidden), self._complete(weight))

    def _rows(self, one: Any) -> tuple[Spans, torch.Tensor]:
        """Return which tokens a slice of an activation has, and a row for each."""
        hidden = self.work.hidden
        return tuple((start // hidden, stop // hidden) for start, stop in one.spans), one.flat.reshape(-1, hidden)

    def _rows_of(self, one: Any, tokens: Spans, like: torch.Tensor) -> torch.Tensor:
        """Return the rows of these tokens, with nan for what is missing."""
        return select(one, self._numbers(tokens)).reshape(like.shape)

    def _slice(self, tokens: Spans, rows: torch.Tensor) -> Pieces:
        return Pieces(self._numbers(tokens), rows.detach().reshape(1, -1))

    def _numbers(self, tokens: Spans) -> Spans:
        """Return which numbers of a flat activation are the rows of these tokens."""
        return tuple((start * self.work.hidden, stop * self.work.hidden) for start, stop in tokens)

    def _found(self, att: Pieces, tokens: Spans) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return what queries have found, the logarithm of the sum of exponentials of each head, and the queries."""
        queries, sums, highest, exponents = self._columns(of_heads(att, ALL), tokens, 2, 2)
        found = _heads_together(self._by_head(sums) / exponents.T[..., None])
        return found, highest + exponents.log(), queries

    def _attended(self, att: Pieces, kv: Pieces) -> Pieces:
        queries, sums, highest, exponents = self._columns(att, att.spans, 2, 2)
        keys, values = map(self._by_head, self._columns(of_heads(kv, att.heads), kv.spans, 2))
        scores = _scores(self._by_head(queries), keys, att.spans, kv.spans)
        most = torch.maximum(highest.T, scores.amax(-1))
        shift = most.masked_fill(most.isneginf(), 0.0)  # a row that has seen nothing is not shifted
        before, weights = (highest.T - shift).exp(), (scores - shift[..., None]).exp()
        sums = _heads_together(self._by_head(sums) * before[..., None] + weights @ values)
        exponents = (exponents.T * before + weights.sum(-1)).T
        return self._piece((att.spans, att.heads), queries, sums, most.T, exponents)

    def _went_back(self, att_grad: Pieces, kv: Pieces) -> tuple[Pieces, Pieces]:
        queries, found, of_found, of_queries, log_sum, product = self._columns(att_grad, att_grad.spans, 4, 2)
        keys, values = map(self._by_head, self._columns(of_heads(kv, att_grad.heads), kv.spans, 2))
        rows, seeds = self._by_head(queries), self._by_head(of_found)
        weights = (_scores(rows, keys, att_grad.spans, kv.spans) - log_sum.T[..., None]).exp()
        of_scores = weights * (seeds @ values.transpose(-1, -2) - product.T[..., None]) / math.sqrt(rows.shape[-1])
        of_queries = of_queries + _heads_together(of_scores @ keys)
        of_keys, of_values = of_scores.transpose(-1, -2) @ rows, weights.transpose(-1, -2) @ seeds
        own = self._piece((att_grad.spans, att_grad.heads), queries, found, of_found, of_queries, log_sum, product)
        return own, self._piece((kv.spans, att_grad.heads), _heads_together(of_keys), _heads_together(of_values))

    # -- columns of heads ----------------------------------------------------------------------------

    def _by_head(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (heads, tokens, width of a head), of a row for each token."""
        return rows.unflatten(-1, (-1, self.of_a_head)).transpose(0, 1)

    def _piece(self, which: tuple[Spans, Slices], *columns: torch.Tensor) -> Pieces:
        """Return a part of a table with a row for each token, of these tokens and heads. ``columns``: as wide as the
        heads, or with one number for each. Its numbers stand as those of other parts do, a column for each token."""
        tokens, some = which
        count = columns[0].shape[-1] // self.of_a_head
        table = torch.cat([each.unflatten(-1, (count, -1)) for each in columns], -1).flatten(-2)
        return Pieces(tokens, table.detach().T.contiguous(), heads=some)

    def _columns(self, part: Pieces, tokens: Spans, wide: int, narrow: int = 0) -> Sequence[torch.Tensor]:
        """Return the columns of a table for these tokens: so many as wide as the heads, and so many with a number for
        each."""
        widths = [self.of_a_head] * wide + [1] * narrow
        table = select(part, tokens).T.unflatten(-1, (-1, sum(widths)))
        return [columns.flatten(-2) for columns in table.split(widths, -1)]


def _scores(queries: torch.Tensor, keys: torch.Tensor, own: Spans, theirs: Spans) -> torch.Tensor:
    """Return the scores of each head, (heads, queries, keys): of what a query does not see, minus infinity."""
    scores = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
    places, others = (torch.cat([torch.arange(*span) for span in spans]).to(scores.device) for spans in (own, theirs))
    return scores.masked_fill(others[None, :] > places[:, None], -math.inf)


def _heads_together(rows: torch.Tensor) -> torch.Tensor:
    return rows.transpose(0, 1).flatten(-2)


def of_heads(part: Pieces, some: Slices) -> Pieces:
    """Return the numbers of some heads, with nan for those that a part has not."""
    if part.heads == some:
        return part
    flat = select(_turned(part), _columns_of(part, some)).T.contiguous()
    return Pieces(part.spans, flat, part.step, part.layer, some)


def heads_together(parts: Sequence[Pieces]) -> Pieces:
    """Return parts of the same tokens and of different heads as one, with nan everywhere if one comes twice."""
    joined = together([_turned(part) for part in parts])
    some, _ = union(tuple([part.heads for part in parts]))
    return Pieces(parts[0].spans, joined.flat.T.contiguous(), heads=some)


def _turned(part: Pieces) -> Pieces:
    """Return a part with tokens and numbers in each other's places."""
    return Pieces(_columns_of(part, part.heads), part.flat.T)


def _columns_of(part: Pieces, some: Slices) -> Spans:
    """Return which numbers of each token's row are those of some heads."""
    shards, total = part.heads
    return spans_of(*some, len(part.flat) * total // len(shards))
