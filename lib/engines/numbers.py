"""The arithmetic of real tensors (``record.operations.Values``). Their fingerprints are apart from them (``pairs``). No
value ever changes: ranks in one process share what they send.

An activation is pieces of (length, hidden) for each micro-batch. A weight, a state or a gradient is pieces; the
gradient of no micro-batches, which adds nothing and fits any shape, is None. Numbers that an operation needs and that
are missing are nan. That happens only if the rules are switched off.
"""

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..basics.errors import PuzzleError
from ..machine.check import TRAINED
from ..record.experts import is_dealt
from ..record.kinds import KINDS, SAVED
from ..record.labels import Labels
from ..running.workload import Workload
from . import data, layers
from .divided.attention import Steps, heads_together, of_heads, width
from .divided.experts import Experts, rows_of
from .pieces import Pieces, Spans, nothing, select, size, spans_of, together


class Graphs(NamedTuple):
    """What forward leaves behind: autograd's own graph of each micro-batch, from the weight and the input to the
    output. When nobody has it any more, the inner activations in it are gone, too."""

    flat: Tensor
    by_batch: dict[int, tuple[Tensor, Tensor]]  # input and output


class Adapted(NamedTuple):
    """What stands in the place of a weight that is frozen and has an adapter: both, complete and flat."""

    weight: Tensor
    adapter: Tensor
    layer: int


Value = Any  # a dictionary by micro-batch, Pieces, Graphs, Adapted, or None


class Numbers(Steps, Experts):
    """The arithmetic of one workload on one device."""

    zero = None

    def __init__(self, work: Workload, device: Any = "cpu") -> None:
        self.work, self.device = work, device
        self.parameters = layers.parameters(work.layer, work.hidden)
        self.of_adapter = sum(map(math.prod, layers.shapes_of_adapter(work.layer, work.hidden)))
        self.whole: Spans = ((0, self.parameters),)
        self.of_a_head = work.hidden // layers.heads(work.hidden)
        self.sequence: Spans = ((0, work.length * work.hidden),)
        self.dtype = getattr(torch, work.dtype)

    def weight(self, piece: Labels) -> Pieces:
        flat = (data.adapter if piece.adapter else data.weight)(self.work, piece.layer)
        return self._part(Pieces(((0, len(flat)),), flat.to(self.device)[None], layer=piece.layer), piece)

    def opt_state(self, piece: Labels) -> Pieces:
        """Return a piece of a layer's optimizer state before training: m and v of a training that is under way."""
        flat = data.moments(self.work, piece.layer, piece.adapter).to(self.device)
        return self._part(Pieces(((0, flat.shape[1]),), flat, data.WARM), piece)

    def inputs(self, batches: frozenset[int]) -> Value:
        return {batch: self._whole(data.inputs(self.work, batch).to(self.device)) for batch in sorted(batches)}

    def forward(self, inp: Value, weight: Value, partial: bool = False, sliced: bool = False) -> Value:
        flat, layer = self._layer(weight, partial or sliced)
        rows = self._inputs(inp, sliced)
        return {batch: self._whole(layer(batch, rows[batch], flat), sliced and one.spans) for batch, one in inp.items()}

    def keeping(self, inp: Value, weight: Value, keep: str, partial: bool = False) -> tuple[Value, Graphs]:
        """Return what ``forward`` does, and autograd's graph of it, without what is cheap unless all is kept."""
        flat, layer = self._layer(weight, partial, layers.at_once if keep == "all" else layers.again)
        graphs = self._graphs(inp, flat, layer)
        return {batch: self._whole(y.detach()) for batch, (_, y) in graphs.by_batch.items()}, graphs

    def loss(self, inp: Value) -> Value:
        """Return the gradient of the loss: half the squared error, by token and micro-batch."""
        found = {}
        for batch, one in inp.items():
            parts = data.target(self.work, batch), data.shares(self.work, batch)
            wanted, shares = (select(self._whole(part.to(self.device)), one.spans) for part in parts)
            found[batch] = Pieces(one.spans, (one.flat - wanted) * shares)
        return found

    def backward(
        self, inp: Value, grad: Value, weight: Value, saved: Value = None, partial: bool = False, sliced: bool = False
    ) -> tuple[Value, Value]:
        """Return the gradients of weight and input. Computes the layer again, unless its graph was kept."""
        flat, layer = self._layer(weight, partial or sliced)
        graphs = saved if isinstance(saved, Graphs) else self._graphs(inp, flat, layer, sliced)
        out, spans = self._inputs(grad, sliced), weight.spans if partial else ((0, len(graphs.flat)),)
        total, back = torch.zeros_like(graphs.flat), dict[int, Pieces]()
        for batch, (x, y) in graphs.by_batch.items():
            seed = out[batch] if batch in out and out[batch].shape == x.shape else torch.full_like(x, math.nan)
            # The graph is the tensor that was kept: both halves of a backward may use it, and it goes when that goes.
            of_flat, of_x = torch.autograd.grad(y, (graphs.flat, x), seed, retain_graph=saved is not None)
            total, back[batch] = total + of_flat, self._whole(of_x, sliced and inp[batch].spans)
        return Pieces(spans, total.detach()[None]), back

    def adapted(self, weight: Value, adapter: Value) -> Adapted:
        """Return what stands in the place of a weight that has an adapter."""
        return Adapted(self._complete(weight), select(adapter, ((0, self.of_adapter),))[0], weight.layer)

    def _layer(self, weight: Value, partial: bool, cheap: layers.Cheap = layers.at_once) -> tuple[Tensor, Any]:
        """Return the numbers of a weight, and the layer as a function of a micro-batch, its input and these. Raise
        PuzzleError for a piece of which no part of the layer can be computed."""
        kind, hidden = self.work.layer, self.work.hidden
        gates = functools.partial(self._gates, weight.layer)
        if isinstance(weight, Adapted):
            frozen, own, _ = weight
            return own, lambda batch, x, flat: layers.apply(kind, x, frozen, cheap, gates(batch), flat)
        if not partial:
            return self._complete(weight), lambda batch, x, flat: layers.apply(kind, x, flat, cheap, gates(batch))
        if kind == "block":
            problem = f"a layer of kind {kind!r} is not computed in pieces here"
            raise PuzzleError(problem, where="partial=True", expected='layer="mlp"')
        of_a_unit = 2 * hidden
        if any(end % of_a_unit for span in weight.spans for end in span):
            units = self.parameters // of_a_unit
            problem = f"the weight is cut inside of a unit: with hidden={hidden}, a layer has {units} units"
            expected = f"pieces of whole units, as with hidden={2 * units + 2}"
            raise PuzzleError(problem, where="partial=True", expected=expected)
        bypass = bool(weight.spans) and weight.spans[0][0] == 0
        spans = tuple((start // of_a_unit, stop // of_a_unit) for start, stop in weight.spans)
        return weight.flat[0], lambda batch, x, flat: layers.apply_units(x, flat, bypass, cheap, gates(batch, spans))

    def _gates(self, layer: int, batch: int, units: Spans | None = None) -> layers.Gates:
        """Return with which weight each token goes through these units of a layer, or None for a dense layer."""
        found = data.gates(self.work, layer, batch)
        if found is None:
            return None
        whole = ((0, found.shape[1]),)
        return select(Pieces(whole, found), whole if units is None else units).to(self.device)

    def _graphs(self, inp: Value, flat: Tensor, layer: Any, sliced: bool = False) -> Graphs:
        """Compute a layer for each micro-batch, with what autograd needs of it."""
        flat, found = flat.detach().requires_grad_(), {}
        for batch, x in self._inputs(inp, sliced).items():
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                found[batch] = x, layer(batch, x, flat)
        return Graphs(flat, found)

    def update(self, weight: Value, opt_state: Value, grad: Value) -> tuple[Pieces, Pieces]:
        """Return weight and state after an optimizer step. The gradient may be of more pieces than the weight."""
        spans, moments, step = weight.spans, opt_state.flat, opt_state.step + 1
        summed = torch.zeros_like(weight.flat) if grad is None else select(grad, spans)
        moments = moments if opt_state.spans == spans else nothing(moments, spans)
        muon = weight.flat - data.RATE * summed, moments  # without momentum, which would be the state
        flat, moments = muon if self.work.train == TRAINED[2] else adam(weight.flat, summed, moments, step)
        return Pieces(spans, flat, layer=weight.layer), Pieces(spans, moments, step)

    def orthogonalize(self, grad: Value) -> Value:
        """Return the direction of a whole gradient, matrix by matrix; a gain is a matrix of one row."""
        if grad is None:
            return self.zero
        parts = layers.split(layers.LAYERS[self.work.layer].shapes(self.work.hidden), self._complete(grad))
        return Pieces(self.whole, torch.cat([newton_schulz(torch.atleast_2d(part)).flatten() for part in parts])[None])

    def add(self, values: Sequence[Value]) -> Value:
        """Return a sum of gradients or partial sums, in their order, or nan if they are of different pieces."""
        if isinstance(values[0], dict):
            return {batch: _total([value[batch] for value in values]) for batch in values[0]}
        partial_sums = [value for value in values if value is not None]
        return _total(partial_sums) if partial_sums else self.zero

    def scale(self, value: Value, factor: Fraction) -> Value:
        """Return a gradient times a number. That of no micro-batches stays zero."""
        return value and value._replace(flat=value.flat * float(factor))

    def cut(self, value: Value, piece: Labels) -> Value:
        if isinstance(value, dict):
            sent = {batch: self._sent(value[batch], batch, piece) for batch in sorted(piece.batches)}
            return {batch: self._part(one, piece) for batch, one in sent.items()}
        return value and self._part(value, piece)

    def join(self, values: Sequence[Value]) -> Value:
        if isinstance(values[0], dict):
            batches = sorted(set[int]().union(*values))
            return {batch: _joined([value[batch] for value in values if batch in value]) for batch in batches}
        parts = [value for value in values if value is not None]
        return together(parts) if parts else self.zero

    def made_up(self, labels: Labels) -> Value:
        """Return a value for a tensor that was made by hand: all nan."""
        return self.of(labels, self.empty(labels).fill_(math.nan))

    # -- values as plain tensors, to be sent and received ------------------------------------------

    def shape(self, labels: Labels) -> tuple[int, int]:
        """Return (rows, numbers) of a tensor with these labels: a row for each micro-batch, two for m and v, or one."""
        if KINDS[labels.kind].by_batch:
            return len(labels.batches) * self._rows_for(labels), size(self._spans(labels))
        return 1 + (labels.kind == "OptState"), size(self._spans(labels))

    def count(self, labels: Labels) -> int:
        """Return how many numbers a tensor with these labels has, counted as the simulator does (see ``elements``)."""
        if labels.kind == SAVED or (labels.kind == "WeightGrad" and not labels.batches):
            return 0
        rows, each = self.shape(labels)
        return each if labels.kind == "OptState" else rows * each

    def expand(self, value: Value, labels: Labels) -> Tensor:
        """Return the numbers of a tensor with these labels: of that ``shape``, by micro-batch or shard, not to be
        written to. The value may have more shards; a gradient of no micro-batches gives zeros."""
        if isinstance(value, dict):
            rows = [of_heads(value[batch], labels.extra.heads) for batch in sorted(labels.batches)]
            return torch.cat([select(row, self._spans(labels)) for row in rows])
        if value is None:
            return self.empty(labels).zero_()
        return select(value, self._spans(labels)).contiguous()

    def of(self, labels: Labels, flat: Tensor) -> Value:
        """Return the value of a tensor with these labels and numbers. It undoes ``expand``. Raise ValueError for
        numbers of another shape. ``flat`` itself is kept, unless it has several micro-batches."""
        if labels.kind == "WeightGrad" and not labels.batches:
            return self.zero
        if tuple(flat.shape) != self.shape(labels):
            raise ValueError(f"{labels} has shape {self.shape(labels)}, not {tuple(flat.shape)}")
        if KINDS[labels.kind].by_batch:
            each, spans = flat.split(self._rows_for(labels)), self._spans(labels)
            rows = [row.clone() for row in each] if len(each) > 1 else each
            pairs = zip(sorted(labels.batches), rows, strict=True)
            return {batch: Pieces(spans, row, heads=labels.extra.heads) for batch, row in pairs}
        step = data.WARM + labels.step if labels.kind == "OptState" else 0
        return Pieces(self._spans(labels), flat, step, labels.layer if labels.kind == "Weight" else 0)

    def empty(self, labels: Labels) -> Tensor:
        """Return room for the numbers of a tensor with these labels, not yet written."""
        return torch.empty(self.shape(labels), dtype=self.dtype, device=self.device)

    def _spans(self, labels: Labels) -> Spans:
        """Return which numbers of a flat weight, adapter or sequence these are. Sequences are cut between tokens."""
        if not KINDS[labels.kind].by_batch:
            return spans_of(labels.shards, labels.total, self.of_adapter if labels.adapter else self.parameters)
        if is_dealt(labels.kind):
            return rows_of(self.work, labels)
        tokens = spans_of(labels.shards, labels.total, self.work.length)
        if self._width(labels.kind):
            return tokens
        row = self.work.hidden * KINDS[labels.kind].wide
        return tuple((start * row, stop * row) for start, stop in tokens)

    def _width(self, kind: str) -> int:
        """Return how many rows of numbers a kind has whose tokens are columns; 0 for other kinds."""
        return self.work.hidden if is_dealt(kind) else width(kind, self.work.hidden)

    def _rows_for(self, labels: Labels) -> int:
        """Return how many rows of numbers a micro-batch of it has. Raise PuzzleError for a cut inside heads."""
        if labels.of_heads == 1:
            return self._width(labels.kind) or 1
        count = layers.heads(self.work.hidden)
        if count % labels.of_heads:
            problem = f"a layer has {count} heads here, and they are cut into {labels.of_heads} parts"
            known = labels.of_heads in (2, 4, 8)
            expected = f"parts of whole heads, as with hidden={16 * labels.of_heads}" if known else "2, 4 or 8 parts"
            raise PuzzleError(problem, where="real tensors", expected=expected)
        return self._width(labels.kind) * len(labels.heads) // labels.of_heads

    def _whole(self, x: Tensor, spans: Any = None) -> Pieces:
        """Return an activation of one micro-batch, (tokens, hidden), as pieces: whole, or a slice of these spans."""
        return Pieces(spans or self.sequence, x.reshape(1, -1))

    def _inputs(self, value: Value, sliced: bool = False) -> dict[int, Tensor]:
        """Return whole activations, (length, hidden) of each micro-batch, with nan for what is missing; or slices."""
        taken = {batch: one.flat if sliced else select(one, self.sequence) for batch, one in value.items()}
        return {batch: flat.view(-1, self.work.hidden) for batch, flat in taken.items()}

    def _part(self, pieces: Pieces, labels: Labels) -> Pieces:
        spans = self._spans(labels)
        if labels.of_heads != pieces.heads[1]:
            self._rows_for(labels)
            pieces = of_heads(pieces, labels.extra.heads)
        return Pieces(spans, select(pieces, spans), pieces.step, pieces.layer, pieces.heads)


def adam(weight: Tensor, grad: Tensor, moments: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Return the new weight, (1, numbers), and the new moments, (2, numbers), after Adam's step number ``step``."""
    beta1, beta2 = data.BETAS
    m = beta1 * moments[0] + (1 - beta1) * grad[0]
    v = beta2 * moments[1] + (1 - beta2) * grad[0] * grad[0]
    fair_m, fair_v = m / (1 - beta1**step), v / (1 - beta2**step)
    return weight - data.RATE * fair_m / (fair_v.sqrt() + data.EPSILON), torch.stack([m, v])


def newton_schulz(matrix: Tensor) -> Tensor:
    """Return about the nearest matrix whose rows are orthogonal: all singular values come near 1, those near 0, too."""
    (a, b, c), x = data.TO_ONE, matrix.double() / matrix.norm()  # roundings grow with what is near 0
    for _ in range(data.TIMES):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.to(matrix.dtype)


def stored(value: Value) -> list[Tensor]:
    """Return the tensors that a value is made of, without those inside of autograd's graphs."""
    if isinstance(value, dict):
        return [one.flat for one in value.values()]
    return [value.flat] if isinstance(value, Pieces) else []


def elements(value: Value) -> int:
    """Return how many numbers a value has, counted as the simulator does: Adam's m and v count as one."""
    return value.flat.shape[1] if isinstance(value, Pieces) else sum(map(torch.numel, stored(value)))


def _joined(parts: Sequence[Pieces]) -> Pieces:
    """Return parts of a sequence as one, or parts of the heads of the same tokens."""
    by_heads = len(parts) > 1 and parts[0].heads[1] != 1 and all(one.spans == parts[0].spans for one in parts)
    return heads_together(parts) if by_heads else together(parts)


def _total(partial_sums: Sequence[Pieces]) -> Pieces:
    """Return a sum of pieces, in order, or nan if they are of different ones."""
    first = partial_sums[0]
    total = first.flat
    for other in partial_sums[1:]:
        same = (other.spans, other.heads) == (first.spans, first.heads)
        total = total + (other.flat if same else nothing(total, first.spans))
    return Pieces(first.spans, total, heads=first.heads)
