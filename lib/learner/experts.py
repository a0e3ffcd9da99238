"""The verbs of layers with experts. A Model has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from ..basics.arguments import one_of
from ..record.experts import ALLTOALL, EXPERT_BACKWARD, EXPERT_FORWARD
from ..record.labels import experts_of
from .pricing import priced
from .tensors import Activation, ActivationGrad, Tokens, TokensGrad, Weight, WeightGrad

if TYPE_CHECKING:
    from .dist import Dist


class ExpertVerbs:
    """What a rank does with layers that have experts."""

    dist: Dist
    LAYERS: Any
    _place: Callable[..., Any]
    _compute: Callable[..., list[Any]]
    _meet: Callable[..., Any]

    def experts(self, layer: int) -> int:
        """Returns how many experts a layer has: 0, if it is dense, as all layers with even numbers are."""
        return experts_of(one_of("layer", layer, self.LAYERS, self._place("experts")), self.dist._experts)

    @overload
    def alltoall(self, v: Activation, layer: int, axis: str | Sequence[str] | None = None) -> Awaitable[Tokens]: ...
    @overload
    def alltoall(
        self, v: ActivationGrad, layer: int, axis: str | Sequence[str] | None = None
    ) -> Awaitable[TokensGrad]: ...
    @overload
    def alltoall(
        self, v: Tokens | TokensGrad, layer: int, axis: str | Sequence[str] | None = None
    ) -> Awaitable[Any]: ...
    @overload
    def alltoall(
        self, v: Sequence[Any], layer: Sequence[int], axis: str | Sequence[str] | None = None
    ) -> Awaitable[list[Any]]: ...
    @priced
    def alltoall(self, v: Any, layer: int | Sequence[int], axis: str | Sequence[str] | None = None) -> Awaitable[Any]:
        """All-to-all: rank number i of the group, from 0, gets piece i of what each brings. Takes {price}.

        It sends the tokens of micro-batches to the experts of a layer, and brings them home: of an ``Activation``, or
        its gradient, it makes the tokens of all micro-batches of the group that go to experts number i; of these, on
        their way home, every rank's own micro-batches. Of what goes into attention, and comes out of it, it turns
        slices of the sequence into heads: those of all ranks' slices, in part i of the heads; and heads back into every
        rank's own slices. Only some puzzles allow it.

        Example, of two ranks that bring micro-batches 0 and 1 (in PyTorch: {torch}):

        >>> from lib.learner.model import before_and_after
        >>> before_and_after("alltoall")
        rank 0 brings Activation(layer=1, layers=1, batches={0}, total_batches=2)
        rank 1 brings Activation(layer=1, layers=1, batches={1}, total_batches=2)
        rank 0 gets Tokens(layer=1, layers=1, batches={0, 1}, total_batches=2, shards={0}, total=2)
        rank 1 gets Tokens(layer=1, layers=1, batches={0, 1}, total_batches=2, shards={1}, total=2)
        """
        return self._meet(ALLTOALL, v, layer, axis)  # type: ignore[no-any-return]

    @priced
    def expert(self, layer: int, tokens: Tokens, weight: Weight) -> Tokens:
        """What experts of a layer make of the tokens that go to them. Takes {price}, times their share of the tokens.

        Needs the weight of these experts, not yet updated, and no other: a piece of the layer's weight. The result goes
        home by ``await model.alltoall(out, layer + 1)``. Only some puzzles allow it.
        """
        (out,) = self._compute(EXPERT_FORWARD, layer, tokens, weight)
        return out  # type: ignore[no-any-return]

    @priced
    def backward_expert(
        self, layer: int, tokens: Tokens, grad: TokensGrad, weight: Weight
    ) -> tuple[WeightGrad, TokensGrad]:
        """The gradients of the weight of some experts, and of their tokens. Takes {price}, times their share of the
        tokens.

        Needs what ``expert`` needed, and the gradient of what it gave, which came by ``await model.alltoall(grad,
        layer)``. The first gradient has the micro-batches of all ranks whose tokens these are: it is complete, unless
        other ranks have copies of the same experts. Only some puzzles allow it.
        """
        of_weight, of_tokens = self._compute(EXPERT_BACKWARD, layer, tokens, grad, weight)
        return of_weight, of_tokens
