"""The arithmetic of real tensors (``record.operations.Values``). Their fingerprints are apart from them (``pairs``). No
value ever changes: ranks in one process share what they send.

An activation is (length, hidden), or pieces of it, for each micro-batch. A weight, a state or a gradient is pieces; the
gradient of no micro-batches, which adds nothing and fits any shape, is None. Numbers that an operation needs and that
are missing are nan. That happens only if the rules are switched off.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ..basics.errors import PuzzleError
from ..basics.units import Elements, divided
from ..machine.cost import NO_PRICE, Cost
from ..record.experts import is_dealt
from ..record.kinds import KINDS
from ..record.labels import Labels
from ..running.workload import Workload
from . import data
from .divided.attention import Steps, heads_together, of_heads, width
from .divided.experts import Experts, rows_of
from .layers import (
    Cheap,
    Gates,
    again,
    apply,
    apply_adapted,
    apply_units,
    at_once,
    heads,
    parameters,
    shapes_of_adapter,
    unit,
)
from .pieces import Pieces, Spans, nothing, select, size, spans_of, together


class Graphs(NamedTuple):
    """What forward leaves behind: autograd's own graph of each micro-batch, from the weight and the input to the
    output. When nobody has it any more, the inner activations in it are gone, too."""

    flat: torch.Tensor
    by_batch: dict[int, tuple[torch.Tensor, torch.Tensor]]  # input and output


class Adapted(NamedTuple):
    """What stands in the place of a weight that is frozen and has an adapter: both, complete and flat."""

    weight: torch.Tensor
    adapter: torch.Tensor
    layer: int


@dataclass(frozen=True)
class Sizes(Cost):
    """Sizes of the real tensors, by which what is stored is counted."""

    attended_grad_elements: int = 0
    work: Workload = field(default=Workload(), metadata=NO_PRICE)

    def elements(self, labels: Labels) -> Elements:
        """Return the size of a tensor: the gradient of queries is less than twice as large as these, and tokens are as
        many as go to their experts."""
        if is_dealt(labels.kind):
            return self.work.hidden * len(labels.batches) * size(rows_of(self.work, labels))
        if labels.kind != "AttendedGrad":
            return super().elements(labels)
        of_a_piece = self.attended_grad_elements * len(labels.batches) * len(labels.shards) * len(labels.heads)
        return divided(of_a_piece, labels.total * labels.of_heads)


Value = dict[int, torch.Tensor | Pieces] | Pieces | Graphs | Adapted | None


class Numbers(Steps, Experts):
    """The arithmetic of one workload on one device."""

    zero = None

    def __init__(self, work: Workload, device: Any = "cpu") -> None:
        self.work, self.device = work, device
        self.parameters = parameters(work.layer, work.hidden)
        self.of_adapter = sum(map(math.prod, shapes_of_adapter(work.layer, work.hidden)))
        self.whole: Spans = ((0, self.parameters),)
        self.whole_adapter: Spans = ((0, self.of_adapter),)
        self.sequence: Spans = ((0, work.length * work.hidden),)
        self.dtype = getattr(torch, work.dtype)
        inputs = work.length * work.hidden
        widths = {kind: width(kind, work.hidden) * work.length for kind in ("KeysValues", "Attended", "AttendedGrad")}
        self.cost = Sizes(
            weight_elements=self.parameters,
            activation_elements=inputs,
            adapter_elements=self.of_adapter,
            keys_values_elements=widths["KeysValues"],
            attended_elements=widths["Attended"],
            attended_grad_elements=widths["AttendedGrad"],
            work=work,
        )

    def weight(self, piece: Labels) -> Pieces:
        flat = (data.adapter if piece.adapter else data.weight)(self.work, piece.layer)
        spans = self.whole_adapter if piece.adapter else self.whole
        whole = Pieces(spans, flat.to(self.device)[None], layer=piece.layer)
        return self._part(whole, piece)

    def opt_state(self, piece: Labels) -> Pieces:
        """Return a piece of a layer's optimizer state before training: m and v of a training that is under way."""
        flat = data.moments(self.work, piece.layer, piece.adapter).to(self.device)
        whole = Pieces(self.whole_adapter if piece.adapter else self.whole, flat, data.WARM)
        return self._part(whole, piece)

    def inputs(self, batches: frozenset[int]) -> Value:
        return {batch: data.inputs(self.work, batch).to(self.device) for batch in sorted(batches)}

    def forward(self, inp: Value, weight: Value, partial: bool = False) -> Value:
        flat, layer = self._layer(weight, partial)
        return {batch: layer(batch, x, flat) for batch, x in self._inputs(inp).items()}

    def keeping(self, inp: Value, weight: Value, keep: str, partial: bool = False) -> tuple[Value, Graphs]:
        """Return what ``forward`` does, and autograd's graph of it, without what is cheap unless all is kept."""
        flat, layer = self._layer(weight, partial, at_once if keep == "all" else again)
        graphs = self._graphs(inp, flat, layer)
        return {batch: y.detach() for batch, (_, y) in graphs.by_batch.items()}, graphs

    def loss(self, inp: Value) -> Value:
        """Return the gradient of the loss: half the squared error, by token and micro-batch."""
        return {batch: self._of_the_loss(batch, one) for batch, one in _activations(inp).items()}

    def _of_the_loss(self, batch: int, one: torch.Tensor | Pieces) -> torch.Tensor | Pieces:
        wanted, scale = data.target(self.work, batch).to(self.device), data.loss_scale(self.work)
        if isinstance(one, Pieces):  # a slice
            return self._sequence(Pieces(one.spans, (one.flat - select(self._in_spans(wanted), one.spans)) / scale))
        return (one - wanted) / scale

    def backward(
        self, inp: Value, grad: Value, weight: Value, saved: Value = None, *, partial: bool = False
    ) -> tuple[Value, Value]:
        """Return the gradients of weight and input. Computes the layer again, unless its graph was kept."""
        graphs = saved if isinstance(saved, Graphs) else self._graphs(inp, *self._layer(weight, partial))
        out, spans = self._inputs(grad), _pieces(weight).spans if partial else self.whole
        if isinstance(weight, Adapted):
            spans = self.whole_adapter
        total, back = torch.zeros_like(graphs.flat), dict[int, torch.Tensor | Pieces]()
        for batch, (x, y) in graphs.by_batch.items():
            seed = out[batch] if batch in out else torch.full_like(x, math.nan)
            # The graph is the tensor that was kept: both halves of a backward may use it, and it goes when that goes.
            of_flat, back[batch] = torch.autograd.grad(y, (graphs.flat, x), seed, retain_graph=saved is not None)
            total = total + of_flat
        return Pieces(spans, total.detach()[None]), back

    def adapted(self, weight: Value, adapter: Value) -> Adapted:
        """Return what stands in the place of a weight that has an adapter."""
        whole = self._complete(weight)
        return Adapted(whole, select(_pieces(adapter), self.whole_adapter)[0], _pieces(weight).layer)

    def _layer(self, weight: Value, partial: bool, cheap: Cheap = at_once) -> tuple[torch.Tensor, Any]:
        """Return the numbers of a weight, and the layer as a function of a micro-batch, its input and these. Raise
        PuzzleError for a piece of which no part of the layer can be computed."""
        kind, hidden = self.work.layer, self.work.hidden
        if isinstance(weight, Adapted):
            frozen, flat, of = weight
            return flat, lambda batch, x, flat: apply_adapted(kind, x, frozen, flat, cheap, self._gates(of, batch))
        pieces, together = _pieces(weight), unit(kind, hidden)
        gates = functools.partial(self._gates, pieces.layer)
        if not partial:
            return self._complete(weight), lambda batch, x, flat: apply(kind, x, flat, cheap, gates(batch))
        if together is None:
            problem = f"a layer of kind {kind!r} is not computed in pieces here"
            raise PuzzleError(problem, where="partial=True", expected='layer="mlp"')
        if any(end % together for span in pieces.spans for end in span):
            units = self.parameters // together
            problem = f"the weight is cut inside of a unit: with hidden={hidden}, a layer has {units} units"
            expected = f"pieces of whole units, as with hidden={2 * units + 2}"
            raise PuzzleError(problem, where="partial=True", expected=expected)
        bypass = bool(pieces.spans) and pieces.spans[0][0] == 0
        spans = tuple((start // together, stop // together) for start, stop in pieces.spans)
        return pieces.flat[0], lambda batch, x, flat: apply_units(kind, x, flat, bypass, cheap, gates(batch, spans))

    def _gates(self, layer: int, batch: int, units: Spans | None = None) -> Gates:
        """Return with which weight each token goes through these units of a layer, or None for a dense layer."""
        found = data.gates(self.work, layer, batch)
        if found is None:
            return None
        whole = ((0, found.shape[1]),)
        return select(Pieces(whole, found), whole if units is None else units).to(self.device)

    def _graphs(self, inp: Value, flat: torch.Tensor, layer: Any) -> Graphs:
        """Compute a layer for each micro-batch, with what autograd needs of it."""
        flat, found = flat.detach().requires_grad_(), {}
        for batch, x in self._inputs(inp).items():
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                found[batch] = x, layer(batch, x, flat)
        return Graphs(flat, found)

    def update(self, weight: Value, opt_state: Value, grad: Value) -> tuple[Pieces, Pieces]:
        """Return weight and state after an optimizer step. The gradient may be of more pieces than the weight."""
        old, state = _pieces(weight), _pieces(opt_state)
        summed = torch.zeros_like(old.flat) if grad is None else select(_pieces(grad), old.spans)
        moments = state.flat if state.spans == old.spans else nothing(state.flat, old.spans)
        step = state.step + 1
        flat, moments = adam(old.flat, summed, moments, step)
        return Pieces(old.spans, flat, layer=old.layer), Pieces(old.spans, moments, step)

    def add(self, values: Sequence[Value]) -> Value:
        """Return a sum of gradients or partial sums, in their order, or nan if they are of different pieces."""
        if isinstance(values[0], dict):
            return {batch: _total([_activations(value)[batch] for value in values]) for batch in values[0]}
        partial_sums = [value for value in values if value is not None]
        return _total(partial_sums) if partial_sums else self.zero

    def cut(self, value: Value, piece: Labels) -> Value:
        if isinstance(value, dict):
            sent = {batch: self._sent(value[batch], batch, piece) for batch in sorted(piece.batches)}
            slices = {batch: self._part(self._in_spans(one), piece) for batch, one in sent.items()}
            return {batch: self._sequence(one) for batch, one in slices.items()}
        return value and self._part(_pieces(value), piece)

    def join(self, values: Sequence[Value]) -> Value:
        if isinstance(values[0], dict):
            pieces: dict[int, list[Pieces]] = {}
            for value in values:
                for batch, one in _activations(value).items():
                    pieces.setdefault(batch, []).append(self._in_spans(one))
            return {batch: self._sequence(_joined(own)) for batch, own in sorted(pieces.items())}
        parts = [value for value in values if isinstance(value, Pieces)]
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

    def expand(self, value: Value, labels: Labels) -> torch.Tensor:
        """Return the numbers of a tensor with these labels: of that ``shape``, by micro-batch or shard, not to be
        written to. The value may have more shards; a gradient of no micro-batches gives zeros."""
        if isinstance(value, dict):
            spans, parts = self._spans(labels), [self._in_spans(value[batch]) for batch in sorted(labels.batches)]
            rows = [of_heads(part, labels.extra.heads) for part in parts]
            return torch.cat([select(row, spans) for row in rows])
        if value is None:
            return self.empty(labels).zero_()
        return select(_pieces(value), self._spans(labels)).contiguous()

    def of(self, labels: Labels, flat: torch.Tensor) -> Value:
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
            return {batch: self._sequence(Pieces(spans, row, heads=labels.extra.heads)) for batch, row in pairs}
        step = data.WARM + labels.step if labels.kind == "OptState" else 0
        return Pieces(self._spans(labels), flat, step, labels.layer if labels.kind == "Weight" else 0)

    def empty(self, labels: Labels) -> torch.Tensor:
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
        """Return how many rows of numbers a micro-batch of such a tensor has. Raise PuzzleError where heads would be
        cut inside of one."""
        if labels.of_heads == 1:
            return self._width(labels.kind) or 1
        count = heads(self.work.hidden)
        if count % labels.of_heads:
            problem = f"a layer has {count} heads here, and they are cut into {labels.of_heads} parts"
            expected = "2, 4 or 8 parts of whole heads"
            if labels.of_heads in (2, 4, 8):
                expected = f"parts of whole heads, as with hidden={16 * labels.of_heads}"
            raise PuzzleError(problem, where="real tensors", expected=expected)
        return self._width(labels.kind) * len(labels.heads) // labels.of_heads

    def _in_spans(self, one: torch.Tensor | Pieces) -> Pieces:
        """Return an activation of one micro-batch as the part of a sequence that it is."""
        return one if isinstance(one, Pieces) else Pieces(((0, one.numel()),), one.reshape(1, -1))

    def _sequence(self, part: Pieces) -> torch.Tensor | Pieces:
        """Return a part of a sequence in its form: a whole one is (length, hidden)."""
        whole = part.spans == self.sequence and len(part.flat) == 1
        return part.flat.view(self.work.length, self.work.hidden) if whole else part

    def _inputs(self, value: Value) -> dict[int, torch.Tensor]:
        """Return whole activations, (length, hidden) of each micro-batch, with nan for what is missing."""
        form, found = (self.work.length, self.work.hidden), _activations(value)
        return {batch: select(self._in_spans(one), self.sequence).view(form) for batch, one in found.items()}

    def _part(self, pieces: Pieces, labels: Labels) -> Pieces:
        spans = self._spans(labels)
        if labels.of_heads != pieces.heads[1]:
            self._rows_for(labels)
            pieces = of_heads(pieces, labels.extra.heads)
        return Pieces(spans, select(pieces, spans), pieces.step, pieces.layer, pieces.heads)

    def _complete(self, weight: Value) -> torch.Tensor:
        """Return the flat weight of a layer: (parameters,)."""
        return select(_pieces(weight), self.whole)[0]


def adam(
    weight: torch.Tensor, grad: torch.Tensor, moments: torch.Tensor, step: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the new weight, (1, numbers), and the new moments, (2, numbers), after Adam's step number ``step``."""
    beta1, beta2 = data.BETAS
    m = beta1 * moments[0] + (1 - beta1) * grad[0]
    v = beta2 * moments[1] + (1 - beta2) * grad[0] * grad[0]
    fair_m, fair_v = m / (1 - beta1**step), v / (1 - beta2**step)
    return weight - data.RATE * fair_m / (fair_v.sqrt() + data.EPSILON), torch.stack([m, v])


def stored(value: Value) -> list[torch.Tensor]:
    """Return the tensors that a value is made of, without those inside of autograd's graphs."""
    if isinstance(value, dict):
        return [one.flat if isinstance(one, Pieces) else one for one in value.values()]
    return [value.flat] if isinstance(value, Pieces) else []


def elements(value: Value) -> int:
    """Return how many numbers a value has, counted as the simulator does: Adam's m and v count as one."""
    return value.flat.shape[1] if isinstance(value, Pieces) else sum(map(torch.numel, stored(value)))


def _activations(value: Value) -> dict[int, Any]:
    assert isinstance(value, dict)
    return value


def _joined(parts: Sequence[Pieces]) -> Pieces:
    """Return parts of a sequence as one, or parts of the heads of the same tokens."""
    by_heads = len(parts) > 1 and parts[0].heads[1] != 1 and all(one.spans == parts[0].spans for one in parts)
    return heads_together(parts) if by_heads else together(parts)


def _total(partial_sums: Sequence[Any]) -> Any:
    """Return a sum of tensors or of pieces, in order, or nan if they are of different pieces."""
    first = partial_sums[0]
    if isinstance(first, torch.Tensor):
        tensors = [one if isinstance(one, torch.Tensor) else torch.full_like(first, math.nan) for one in partial_sums]
        return sum(tensors[1:], start=first)
    total = first.flat
    for other in partial_sums[1:]:
        same = isinstance(other, Pieces) and (other.spans, other.heads) == (first.spans, first.heads)
        total = total + (other.flat if same else nothing(total, first.spans))
    return Pieces(first.spans, total, heads=first.heads)


def _pieces(value: Value) -> Pieces:
    assert isinstance(value, Pieces)
    return value
