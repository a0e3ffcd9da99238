"""The verbs of a layer in three steps, for ranks that have slices of a sequence (context parallel)."""

from __future__ import annotations

from typing import Any

from ..record.attention import ATTEND, BACKWARD_ATTEND, BACKWARD_PROJECT, BACKWARD_REST, PROJECT, REST
from ..record.operations import Computation
from .pricing import priced
from .tensors import (
    Activation,
    ActivationGrad,
    Attended,
    AttendedGrad,
    KeysValues,
    KeysValuesGrad,
    Tensor,
    Weight,
    WeightGrad,
)


class SliceVerbs:
    """The six steps, as methods of a Model. Only some puzzles allow them."""

    def _compute(self, row: Computation, layer: int | None, *operands: Tensor | None, **options: object) -> list[Any]:
        raise NotImplementedError

    @priced
    def project(self, layer: int, inp: Activation, weight: Weight) -> tuple[Attended, KeysValues]:
        """The first step of a layer: the queries of its input, which have attended to nothing yet, and its keys and
        values. Takes {price} for a whole sequence, and a slice its share of that.

        Needs the layer's complete weight, not yet updated. The input may be a slice of the sequence,
        ``inp.shard(i, n)``, or several of them, joined by ``combine``.
        """
        att, kv = self._compute(PROJECT, layer, inp, weight)
        return att, kv

    @priced
    def attend(self, layer: int, att: Attended, kv: KeysValues) -> Attended:
        """The second step: the same queries, attended to these keys as well. Takes {price} for a whole sequence, and a
        block its share of the pairs of a query and a key that it sees.

        A query sees the keys up to its own place, and attends to each once, in any order. It takes the place of the
        queries that it was given: ``att = model.attend(layer, att, kv)``.
        """
        return self._compute(ATTEND, layer, att, kv)[0]  # type: ignore[no-any-return]

    @priced
    def rest(self, layer: int, inp: Activation, weight: Weight, att: Attended) -> Activation:
        """The third step: a slice of what ``forward`` gives, once the queries have attended to all keys that they see.
        Takes {price} for a whole sequence, and a slice its share of that."""
        return self._compute(REST, layer, inp, weight, att)[0]  # type: ignore[no-any-return]

    @priced
    def backward_rest(
        self, layer: int, inp: Activation, grad: ActivationGrad, weight: Weight, att: Attended
    ) -> AttendedGrad:
        """The first step of a layer's backward: the gradient of the queries, which has gone back to no keys yet. Takes
        {price} for a whole sequence, and a slice its share of that."""
        return self._compute(BACKWARD_REST, layer, inp, grad, weight, att)[0]  # type: ignore[no-any-return]

    @priced
    def backward_attend(
        self, layer: int, att_grad: AttendedGrad, kv: KeysValues
    ) -> tuple[AttendedGrad, KeysValuesGrad]:
        """The second step of a layer's backward: the same gradient, after it has gone back to these keys, and what
        these queries add to the gradient of the keys. Takes {price} for a whole sequence, and a block its share of the
        pairs.

        The gradient of the keys is the sum of what all queries give that see them: ``+`` adds on a rank,
        ``scatterreduce`` over ranks, and leaves each the slices that it had brought to the gather.
        """
        att_grad, kv_grad = self._compute(BACKWARD_ATTEND, layer, att_grad, kv)
        return att_grad, kv_grad

    @priced
    def backward_project(
        self,
        layer: int,
        inp: Activation,
        grad: ActivationGrad,
        weight: Weight,
        att_grad: AttendedGrad,
        kv_grad: KeysValuesGrad,
    ) -> tuple[WeightGrad, ActivationGrad]:
        """The third step of a layer's backward: what these slices give of the gradient of its weight, and a slice of
        that of its input. Takes {price} for a whole sequence, and a slice its share of that.

        Needs the input and the gradient that ``backward_rest`` was given, and complete gradients of the queries and of
        their keys and values. An update needs the gradients of all slices, added up.
        """
        of_weight, of_inp = self._compute(BACKWARD_PROJECT, layer, inp, grad, weight, att_grad, kv_grad)
        return of_weight, of_inp
