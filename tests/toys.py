"""Operations and kinds of tensor that lib does not have: each is a row, with all that it needs beside it.

``refresh`` is of the compute stream: it makes an activation again, at a price of its own. ``toy_broadcast`` is a
collective to which the first of the group brings a tensor, and all others nothing. ``toy_deal`` deals the activations
of all ranks out to all ranks, as ``ToyTokens``, and brings them home again: every rank gets something else.
``toy_keys`` makes ``ToyKeys``, a kind with a size of its own, which is cut, sent, joined and gathered.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from lib import Cost, Model, PuzzleError
from lib.grading.seal import seal
from lib.learner.tensors import Sharded
from lib.machine.cost import Ticks
from lib.record.collectives import dealt
from lib.record.kinds import JOINED, KINDS, PART, SLICE, SLOT, Kind, add_kind
from lib.record.labels import NO_EXTRA, ExtraLabels, cut, join
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


TOY_BROADCAST = Collective(
    kind="toy_broadcast",
    code="TB",
    word="toy broadcast",
    takes=("Weight", "Activation"),
    everyone=False,
    result=from_the_first,
    # the same with numbers, between processes
    move=lambda carrier, value, inputs, outputs: carrier.sent_from(0, value, outputs[carrier.place]),
    example=lambda model: model.load_weights(0)[0] if model.rank == 0 else None,
    verb=toy_broadcast,
)


_PIECES = {"fields": ("layer", "layers", "batches", "total_batches", "shards", "total"), "brief": ("shards", "total")}
_AS_ACTIVATIONS = ("activations", "activations")
TOY_TOKENS = Kind("ToyTokens", "toy tokens", *_AS_ACTIVATIONS, "activation", **_PIECES, piece=PART, wide=1)
TOY_KEYS = Kind("ToyKeys", "toy keys", *_AS_ACTIVATIONS, "toy_keys", **_PIECES, piece=SLICE, wide=1)
NEW_KINDS = (TOY_TOKENS, TOY_KEYS)
for _row in NEW_KINDS:  # a class needs its row
    add_kind(_row)


class ToyTokens(Sharded):
    """Tokens of several micro-batches that go to some of the experts."""

    __slots__ = ()


class ToyKeys(Sharded):
    """What ``toy_keys`` makes of an activation."""

    __slots__ = ()


def forget_kinds() -> None:
    """Have the new kinds no more."""
    for kind in NEW_KINDS:
        del KINDS[kind.name], SLOT[kind.name]
        JOINED.remove(kind.name)


forget_kinds()


def toy_deal(model: Model, v: Any, layer: int, axis: str | None = None) -> Awaitable[Any]:
    """Deal: piece i of what all bring, for the i-th of the group; of what was dealt, everyone's own again."""
    return model._meet(TOY_DEAL, v, layer, axis)


def dealt_out_or_home(parts: Sequence[Part], values: Values, strict: bool = True) -> list[Part]:
    """Piece i of all micro-batches for the i-th of the group; of pieces that are brought back, everyone's own."""
    brought, value = [labels for labels, _ in parts], values.join([value for _, value in parts])
    first = brought[0]
    if first.kind == TOY_TOKENS.name:
        whole = join(brought, "").changed(kind="Activation", extra=NO_EXTRA)
        return dealt((whole, value), [whole.changed(batches=home) for home in first.extra.homes], values)
    homes = tuple(labels.batches for labels in brought)
    batches = frozenset[int]().union(*homes)
    if len(batches) < sum(map(len, homes)):
        raise PuzzleError("a micro-batch comes twice", expected="each micro-batch once")
    whole = first.changed(kind=TOY_TOKENS.name, batches=batches, extra=ExtraLabels(homes=homes))
    return dealt((whole, value), [cut(whole, place, len(parts)) for place in range(len(parts))], values)


TOY_DEAL = Collective(
    kind="toy_deal",
    code="TD",
    word="toy deal",
    words=("toy_deal",),
    takes=("Activation", "ToyTokens"),
    result=dealt_out_or_home,
    example=lambda model: model.get_activation([model.rank]),
    verb=toy_deal,
)


def toy_keys(model: Model, layer: int, inp: Any) -> Any:
    """What others need of an activation."""
    return model._compute(TOY_KEYS_OF, layer, inp)[0]


TOY_KEYS_OF = Computation(
    kind="toy_keys",
    code="TK",
    word="toy keys",
    unless_given=("forward", 4),
    takes={"inp": "Activation"},
    makes=lambda rank, layer, labels, more: [labels[0].changed(kind=TOY_KEYS.name)],
    value=lambda values, given, more: given,
    verb=toy_keys,
)


@dataclass(frozen=True)
class ToyCost(Cost):
    """Prices that know the new operation."""

    refresh: Ticks = 2


ROWS = (REFRESH, TOY_BROADCAST, TOY_DEAL, TOY_KEYS_OF)


def register() -> None:
    """Have all of them from now on, in this process."""
    for row in ROWS:
        if row.kind not in OPERATIONS:
            add(row)
    for kind in NEW_KINDS:
        if kind.name not in KINDS:
            add_kind(kind)


def unregister() -> None:
    """Have operations and kinds no more."""
    remove(*ROWS)
    forget_kinds()


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


async def dealing(model: Model) -> Model:
    """Plain data parallel in which every activation is dealt out and brought home, in lists, too."""
    from tests.toys import register

    register()
    acts, ranks, rank = model.activations, model.RANKS, model.rank
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    acts[0] = model.get_activation(range(rank, model.BATCHES, ranks))
    for layer in range(model.LAYERS):
        acts["tokens"] = await model.toy_deal(acts[layer], layer)
        (acts["home"],) = await model.toy_deal([acts.pop("tokens")], [layer])
        acts[layer + 1] = model.forward(layer, acts.pop("home"), model.weights[layer])
    model.grad_activations["last"] = model.loss(acts.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        grad = model.grad_activations.pop("last")
        grad, model.grad_activations["last"] = model.backward(layer, acts.pop(layer), grad, model.weights[layer])
        model.grad_weights[layer] = await model.allreduce(grad, layer)
    for layer in range(model.LAYERS):
        grad, weight, state = model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)
        model.set_final_weight(layer, model.weights[layer])
    return model


async def passing_keys(model: Model) -> Model:
    """Slices of the keys of an activation go to the next rank, and are gathered. It trains nothing."""
    from tests.toys import register

    register()
    acts, ranks, rank = model.activations, model.RANKS, model.rank
    acts[0] = model.get_activation([0])
    keys = acts["keys"] = model.toy_keys(0, acts[0])
    acts["slice"] = keys.shard(0, 2).combine(keys.shard(1, 2)).shard(rank, ranks)
    del acts["keys"]
    sent = model.pass_to((rank + 1) % ranks, acts["slice"])
    acts["other"] = await model.receive()
    await sent
    acts["keys"] = await model.allgather(acts.pop("other"), 0)
    assert acts["keys"].is_complete() and acts["keys"].memory() == ranks * acts.pop("slice").memory()
    return model


seal()  # from here on the library has these kinds, too
