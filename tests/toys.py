"""Two operations that lib does not have: each is a row, with all that it needs beside it.

``refresh`` is of the compute lane: it makes an activation again, at a price of its own. ``toy_broadcast`` is a
collective to which the first of the group brings a tensor, and all others nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from lib import Cost, Model
from lib.machine.cost import Ticks
from lib.record.labels import Labels
from lib.record.operations import Collective, Computation, Operation, Part, Values
from lib.record.table import OPERATIONS, Verbs, add


def refresh(model: Model, layer: int, inp: Any) -> Any:
    """The same activation, made again."""
    return model._compute(REFRESH, layer, inp)[0]


REFRESH = Computation(
    kind="refresh",
    code="X",
    word="refresh",
    trains=True,
    takes={"inp": "Activation"},
    makes=lambda rank, layer, labels, more: labels,
    value=lambda values, given, more: given,
    verb=refresh,
)


def toy_broadcast(model: Model, v: Any, layer: int, axis: str | None = None) -> Awaitable[Any]:
    """Broadcast: what the first of the group brings, for everyone."""
    return model._meet(TOY_BROADCAST, v, layer, axis)


def from_the_first(parts: Sequence[Part | None], values: Values, strict: bool = True) -> list[Part]:
    """Everyone gets what the first brings."""
    assert parts[0] is not None
    return [parts[0]] * len(parts)


def of_the_first(carrier: Any, value: Any, inputs: Sequence[Labels | None], outputs: Sequence[Labels]) -> Any:
    """The same with numbers, between processes."""
    return carrier.sent_from(0, value, outputs[carrier.place])


TOY_BROADCAST = Collective(
    kind="toy_broadcast",
    code="TB",
    word="toy broadcast",
    takes=("Weight", "Activation"),
    everyone=False,
    result=from_the_first,
    move=of_the_first,
    example=lambda model: model.load_weights(0)[0] if model.rank == 0 else None,
    verb=toy_broadcast,
)


@dataclass(frozen=True)
class ToyCost(Cost):
    """Prices that know the new operation."""

    refresh: Ticks = 2


def register() -> None:
    """Have both operations from now on, in this process."""
    for row in (REFRESH, TOY_BROADCAST):
        if row.kind not in OPERATIONS:
            add(row)


def remove(*rows: Operation) -> None:
    """Have operations no more."""
    for row in rows:
        del OPERATIONS[row.kind]
        if row.verb is not None:
            delattr(Verbs, row.kind)


async def data_parallel(model: Model) -> Model:
    """Plain data parallel in which rank 0 alone loads the weights, and every activation is made again."""
    from tests.toys import register  # in a process of a rank, this is where the operations come from

    register()
    for layer in range(model.LAYERS):
        own = model.load_weights(layer)
        weight = await model.toy_broadcast(own[0] if model.rank == 0 else None, layer)
        model.weights[layer], model.opt_states[layer] = weight, model.load_weights(layer)[1]
    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        out = model.forward(layer, model.activations[layer], model.weights[layer])
        model.activations[layer + 1] = model.refresh(layer, out)
    grad = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        of_weight, grad = model.backward(layer, model.activations.pop(layer), grad, model.weights[layer])
        model.grad_activations[layer] = grad
        model.grad_weights[layer] = await model.allreduce(of_weight, layer)
        grad = model.grad_activations.pop(layer)
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
