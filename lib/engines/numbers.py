"""What a tensor carries on an engine with real tensors: a fingerprint, and numbers.

``Numbers`` has the methods of ``Fingerprints`` and stands in their place in the books. Each value has the fingerprint
that it would have in the simulator, so that every rule and every check goes on working, and the numbers of the same
tensor. The two are independent: each operation is carried out in both, and the end is checked in both.

Numbers that an operation needs and that are missing are nan. That happens only if the rules are switched off.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..machine.fingerprints import Fingerprints
from ..record.labels import Labels
from ..running.workload import Workload
from . import data
from .layers import apply, parameters
from .pieces import Pieces, Spans, nothing, select, size, spans_of, together


class Real(NamedTuple):
    """The value of one tensor. Nothing in it ever changes: ranks in one process share what they send."""

    mark: Any  # the fingerprint
    data: dict[int, torch.Tensor] | Pieces | None
    """For each micro-batch (length, hidden), or pieces of a weight. None for the gradient of no micro-batches, which
    adds nothing and fits any shape."""


class Numbers:
    """The arithmetic of one workload on one device. ``fingerprints`` is that of the fingerprints alone."""

    zero = Real(Fingerprints.zero, None)

    def __init__(self, work: Workload, device: Any = "cpu") -> None:
        self.work, self.device, self.fingerprints = work, device, Fingerprints()
        self.parameters = parameters(work.layer, work.hidden)
        self.whole: Spans = ((0, self.parameters),)
        self.dtype = getattr(torch, work.dtype)

    def weight(self, piece: Labels) -> Real:
        whole = Pieces(self.whole, data.weight(self.work, piece.layer).to(self.device)[None])
        return Real(self.fingerprints.weight(piece), self._part(whole, piece))

    def opt_state(self, piece: Labels) -> Real:
        """Return a piece of a layer's optimizer state before training: m and v of a training that is under way."""
        whole = Pieces(self.whole, data.moments(self.work, piece.layer).to(self.device), data.WARM)
        return Real(self.fingerprints.opt_state(piece), self._part(whole, piece))

    def inputs(self, batches: frozenset[int]) -> Real:
        numbers = {batch: data.inputs(self.work, batch).to(self.device) for batch in sorted(batches)}
        return Real(self.fingerprints.inputs(batches), numbers)

    def forward(self, inp: Real, weight: Real) -> Real:
        flat = self._complete(weight)
        numbers = {batch: apply(self.work.layer, x, flat) for batch, x in _activations(inp).items()}
        return Real(self.fingerprints.forward(inp.mark, weight.mark), numbers)

    def loss(self, inp: Real) -> Real:
        """Return the gradient of the loss: half the squared error, by token and micro-batch."""
        scale = data.loss_scale(self.work)
        activations = _activations(inp).items()
        numbers = {batch: (y - data.target(self.work, batch).to(self.device)) / scale for batch, y in activations}
        return Real(self.fingerprints.loss(inp.mark), numbers)

    def backward(self, inp: Real, grad: Real, weight: Real) -> tuple[Real, Real]:
        """Return the gradients of the weight, summed over micro-batches, and of the input. Computes the layer again."""
        of_weight, of_input = self.fingerprints.backward(inp.mark, grad.mark, weight.mark)
        flat, out = self._complete(weight).detach().requires_grad_(), _activations(grad)
        total, back = torch.zeros_like(flat), {}
        for batch, x in _activations(inp).items():
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                y = apply(self.work.layer, x, flat)
            seed = out[batch] if batch in out else torch.full_like(x, math.nan)
            of_flat, back[batch] = torch.autograd.grad(y, (flat, x), seed)
            total = total + of_flat
        return Real(of_weight, Pieces(self.whole, total.detach()[None])), Real(of_input, back)

    def update(self, weight: Real, opt_state: Real, grad: Real) -> tuple[Real, Real]:
        """Return weight and state after an optimizer step. The gradient may be of more pieces than the weight."""
        new_weight, new_state = self.fingerprints.update(weight.mark, opt_state.mark, grad.mark)
        old, state = _pieces(weight), _pieces(opt_state)
        summed = torch.zeros_like(old.flat) if grad.data is None else select(_pieces(grad), old.spans)
        moments = state.flat if state.spans == old.spans else nothing(state.flat, old.spans)
        step = state.step + 1
        flat, moments = adam(old.flat, summed, moments, step)
        return Real(new_weight, Pieces(old.spans, flat)), Real(new_state, Pieces(old.spans, moments, step))

    def add(self, values: Sequence[Real]) -> Real:
        """Return a sum of gradients, added from the first to the last, or nan if they are of different pieces."""
        summands = [value.data for value in values if isinstance(value.data, Pieces)]
        if not summands:
            return self.zero
        total = summands[0].flat
        for other in summands[1:]:
            total = total + (other.flat if other.spans == summands[0].spans else nothing(total, summands[0].spans))
        return Real(self.fingerprints.add([value.mark for value in values]), Pieces(summands[0].spans, total))

    def cut(self, value: Real, piece: Labels) -> Real:
        if value.data is None:
            return value
        return Real(self.fingerprints.cut(value.mark, piece), self._part(_pieces(value), piece))

    def join(self, values: Sequence[Real]) -> Real:
        mark = self.fingerprints.join([value.mark for value in values])
        parts = [value.data for value in values if isinstance(value.data, Pieces)]
        return Real(mark, together(parts) if parts else None)

    def made_up(self, labels: Labels) -> Real:
        """Return a value for a tensor that was made by hand: all nan."""
        return self.of(labels, self.fingerprints.made_up(labels), self.empty(labels).fill_(math.nan))

    # -- values as plain tensors, to be sent and received ------------------------------------------

    def shape(self, labels: Labels) -> tuple[int, int]:
        """Return (rows, numbers) of a tensor with these labels: a row for each micro-batch, two for m and v, or one."""
        if labels.kind in ("Activation", "ActivationGrad"):
            return len(labels.batches), self.work.length * self.work.hidden
        return 1 + (labels.kind == "OptState"), size(self._spans(labels))

    def only_numbers(self, labels: Labels, flat: torch.Tensor) -> Real:
        """Return a value with any fingerprint: in the process of a rank nobody asks for it."""
        return self.of(labels, self.fingerprints.made_up(labels), flat)

    def expand(self, value: Real, labels: Labels) -> torch.Tensor:
        """Return the numbers of a tensor with these labels, in the shape that ``shape`` says, ascending by micro-batch
        or shard, contiguous, not to be written to. The value may have more shards; a gradient of no micro-batches gives
        zeros."""
        if isinstance(value.data, dict):
            return torch.stack([value.data[batch].flatten() for batch in sorted(labels.batches)])
        if value.data is None:
            return self.empty(labels).zero_()
        return select(value.data, self._spans(labels)).contiguous()

    def of(self, labels: Labels, mark: Any, flat: torch.Tensor) -> Real:
        """Return the value of a tensor with these labels, fingerprint and numbers. It undoes ``expand``.

        Raise ValueError for numbers of another shape. ``flat`` itself is kept, unless it has several micro-batches.
        """
        if labels.kind == "WeightGrad" and not labels.batches:
            return self.zero
        if tuple(flat.shape) != self.shape(labels):
            raise ValueError(f"{labels} has shape {self.shape(labels)}, not {tuple(flat.shape)}")
        if labels.kind in ("Activation", "ActivationGrad"):
            form = (self.work.length, self.work.hidden)
            rows = [row.clone() for row in flat] if len(flat) > 1 else list(flat)
            return Real(mark, {b: row.view(form) for b, row in zip(sorted(labels.batches), rows, strict=True)})
        step = data.WARM + labels.step if labels.kind == "OptState" else 0
        return Real(mark, Pieces(self._spans(labels), flat, step))

    def empty(self, labels: Labels) -> torch.Tensor:
        """Return room for the numbers of a tensor with these labels, not yet written."""
        return torch.empty(self.shape(labels), dtype=self.dtype, device=self.device)

    def _spans(self, labels: Labels) -> Spans:
        return spans_of(labels.shards, labels.total, self.parameters)

    def _part(self, pieces: Pieces, labels: Labels) -> Pieces:
        spans = self._spans(labels)
        return Pieces(spans, select(pieces, spans), pieces.step)

    def _complete(self, weight: Real) -> torch.Tensor:
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


def stored(value: Real) -> list[torch.Tensor]:
    """Return the tensors that a value is made of."""
    if isinstance(value.data, dict):
        return list(value.data.values())
    return [] if value.data is None else [value.data.flat]


def elements(value: Real) -> int:
    """Return how many numbers a value has, counted as the simulator does: Adam's m and v count as one."""
    return value.data.flat.shape[1] if isinstance(value.data, Pieces) else sum(map(torch.numel, stored(value)))


def _activations(value: Real) -> dict[int, torch.Tensor]:
    assert isinstance(value.data, dict)
    return value.data


def _pieces(value: Real) -> Pieces:
    assert isinstance(value.data, Pieces)
    return value.data
