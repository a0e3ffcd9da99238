"""What training gives, computed with numbers: an independent judge of the exact algebra that the checker uses.

Nothing here looks at lib: a layer is ``tanh`` of an elementwise product with attention mixed in, the loss a sum of
squares, the gradients follow from the chain rule, the optimizer is Adam in its third step. A tensor is a dict from
position to number, so that a shard is the positions it has, joining is a union, and a position that comes with two
different numbers becomes nan.

A position is also a token. Attention is the mean of what the tokens up to its own place give it, ``sin(x)`` of each,
times ``1 + 0.3 x`` of its own. So it can be added up over slices of keys in any order, and backwards, too.
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Sequence
from typing import Any

WIDTH = 48
"""Positions of a weight."""
RATE, BETA1, BETA2, EPSILON, STEP = 0.05, 0.9, 0.99, 1e-8, 3

TOKENS = [5 * place % WIDTH for place in range(WIDTH)]
"""Which position is at which place of the sequence: a slice has nothing to do with the piece of that number."""
PLACE = {at: place for place, at in enumerate(TOKENS)}

Vector = dict[int, float]
Pairs = dict[int, tuple[float, float]]
"""Two numbers at each position."""


def pseudo(*seed: int) -> float:
    """A number between -1 and 1 that depends on the seed alone."""
    return math.sin(sum((place + 1) * 12.9898 * (part + 1) for place, part in enumerate(seed))) * 0.9


def first_weight(layer: int) -> Vector:
    """The weight of a layer before training."""
    return {at: 1.0 + 0.3 * pseudo(1, layer, at) for at in range(WIDTH)}


def first_state(layer: int) -> dict[int, tuple[float, float]]:
    """Adam's moments of a layer before this step: the training is under way."""
    return {at: (0.1 * pseudo(2, layer, at), 0.01 + 0.01 * abs(pseudo(3, layer, at))) for at in range(WIDTH)}


ROWS, COLUMNS = 6, 8
"""An adapter is so many numbers and then so many: what it adds to a weight is a product of one of each."""


def first_adapter(layer: int) -> Vector:
    """The adapter of a layer before training."""
    return {at: 0.5 * pseudo(5, layer, at) for at in range(ROWS + COLUMNS)}


def first_state_of_adapter(layer: int) -> dict[int, tuple[float, float]]:
    """Adam's moments of an adapter before this step."""
    return {at: (0.1 * pseudo(6, layer, at), 0.01 + 0.01 * abs(pseudo(7, layer, at))) for at in range(ROWS + COLUMNS)}


def with_adapter(w: Vector, a: Vector) -> Vector:
    """The weight with what its adapter adds to it."""
    return {
        at: w.get(at, math.nan) + a.get(at // COLUMNS, math.nan) * a.get(ROWS + at % COLUMNS, math.nan)
        for at in range(WIDTH)
    }


def of_adapter(of_weight: Vector, a: Vector) -> Vector:
    """The gradient of an adapter, by the chain rule from that of the weight with it."""
    grad = dict.fromkeys(range(ROWS + COLUMNS), 0.0)
    for at, change in of_weight.items():
        row, column = at // COLUMNS, ROWS + at % COLUMNS
        grad[row] += change * a.get(column, math.nan)
        grad[column] += change * a.get(row, math.nan)
    return grad


def first_input(batch: int) -> Vector:
    """A micro-batch."""
    return {at: pseudo(4, batch, at) for at in range(WIDTH)}


def attended(att: Pairs, kv: Vector) -> Pairs:
    """Queries (x, sum over the keys that they have met of sin(x)) after these keys as well."""
    return {
        at: (x, met + sum(math.sin(key) for other, key in kv.items() if PLACE[other] <= PLACE[at]))
        for at, (x, met) in att.items()
    }


def output(at: int, x: float, w: float, att: Pairs) -> float:
    """tanh of weight times input, and of what attention gives."""
    query, met = att.get(at, (math.nan, math.nan))
    return math.tanh(w * x + 0.5 * (1.0 + 0.3 * query) * met / (PLACE[at] + 1))


def all_attended(x: Vector) -> Pairs:
    """Queries that have met all keys that they see: as ``attended``, in one go along the sequence."""
    found, met = Pairs(), 0.0
    for at in TOKENS:
        met += math.sin(x[at])
        found[at] = x[at], met
    return found


def layer_forward(x: Vector, w: Vector, partial: bool = False) -> Vector:
    """A layer in one go. In pieces: only at the positions that the weight has, and 0 elsewhere."""
    x, missing = {at: x.get(at, math.nan) for at in range(WIDTH)}, 0.0 if partial else math.nan
    att = all_attended(x)
    return {at: output(at, x[at], w[at], att) if at in w else missing for at in range(WIDTH)}


def into_tanh(x: Vector, w: Vector, g: Vector, att: Pairs) -> Vector:
    """The gradient of what goes into tanh, at the positions of the weight."""
    return {at: g.get(at, math.nan) * (1.0 - output(at, x.get(at, math.nan), w[at], att) ** 2) for at in w}


def of_attention(inner: Vector, x: Vector) -> Vector:
    """By position, what the sum over keys gets of a query: the gradient of ``met``."""
    return {at: 0.5 * (1.0 + 0.3 * x[at]) * one / (PLACE[at] + 1) for at, one in inner.items()}


def loss_gradient(y: Vector) -> Vector:
    """Of the sum of squares."""
    return {at: 2.0 * one for at, one in y.items()}


def layer_backward(x: Vector, w: Vector, g: Vector, partial: bool = False) -> tuple[Vector, Vector]:
    """Gradients of weight and input; in pieces, what the positions of the weight add to that of the input."""
    x = {at: x.get(at, math.nan) for at in range(WIDTH)}
    if not partial:
        w = {at: w.get(at, math.nan) for at in range(WIDTH)}
    att = all_attended(x)
    inner = into_tanh(x, w, g, att)
    to_keys, of_input, later = of_attention(inner, x), Vector(), 0.0
    for at in reversed(TOKENS):
        later += to_keys.get(at, 0.0)
        own = inner.get(at, 0.0) * (w.get(at, 0.0) + 0.5 * 0.3 * att[at][1] / (PLACE[at] + 1)) if at in inner else 0.0
        of_input[at] = own + math.cos(x[at]) * later
    return {at: inner[at] * x[at] for at in inner}, dict(sorted(of_input.items()))


def adam(w: float, g: float, state: tuple[float, float]) -> tuple[float, tuple[float, float]]:
    """One position of an optimizer step."""
    m, v = BETA1 * state[0] + (1 - BETA1) * g, BETA2 * state[1] + (1 - BETA2) * g * g
    fair_m, fair_v = m / (1 - BETA1**STEP), v / (1 - BETA2**STEP)
    return w - RATE * fair_m / (math.sqrt(fair_v) + EPSILON), (m, v)


def trained(layers: int, batches: int, adapters: bool = False) -> list[Vector]:
    """Every layer's weight, or its adapter, after one step on one device, micro-batch by micro-batch."""
    weights = [first_weight(layer) for layer in range(layers)]
    trains = [first_adapter(layer) for layer in range(layers)] if adapters else weights
    if adapters:
        weights = [with_adapter(*pair) for pair in zip(weights, trains, strict=True)]
    sums = [dict.fromkeys(one, 0.0) for one in trains]
    for batch in range(batches):
        inputs = [first_input(batch)]
        for weight in weights:
            inputs.append(layer_forward(inputs[-1], weight))
        grad = loss_gradient(inputs[-1])
        for layer in reversed(range(layers)):
            of_weight, grad = layer_backward(inputs[layer], weights[layer], grad)
            change = of_adapter(of_weight, trains[layer]) if adapters else of_weight
            sums[layer] = {at: sums[layer][at] + change[at] for at in change}
    states = [(first_state_of_adapter if adapters else first_state)(layer) for layer in range(layers)]
    return [
        {at: adam(trains[layer][at], sums[layer][at], states[layer][at])[0] for at in trains[layer]}
        for layer in range(layers)
    ]


def error(layer: int, found: Vector, right: Vector) -> float:
    """The largest difference, relative to the largest update of that layer, or of its adapter."""
    before = first_weight(layer) if len(right) == WIDTH else first_adapter(layer)
    update = max(abs(right[at] - before[at]) for at in right)
    if not found.keys() <= right.keys():
        return math.inf
    differences = [abs(value - right[at]) / update for at, value in found.items()]
    return math.inf if any(map(math.isnan, differences)) else max(differences, default=math.inf)


def rows(of: dict[int, Any], batch: int, x: Vector) -> Any:
    """What is of this micro-batch, if it has the tokens of ``x`` only: matrices of other lengths do not fit."""
    own = of.get(batch, {})
    return own if own.keys() == x.keys() else {}


class Adapted(dict[int, float]):
    """A weight with what its adapter adds to it, and that adapter."""

    def __init__(self, weight: Vector, adapter: Vector) -> None:
        super().__init__(with_adapter(weight, adapter))
        self.adapter = adapter


class Numbers:
    """The same, as the values of a simulated machine: for each operation what it does to the numbers."""

    zero: Any = types.MappingProxyType({})

    def weight(self, piece: Any) -> Any:
        return self.cut((first_adapter if piece.adapter else first_weight)(piece.layer), piece)

    def opt_state(self, piece: Any) -> Any:
        return self.cut((first_state_of_adapter if piece.adapter else first_state)(piece.layer), piece)

    def inputs(self, batches: Iterable[int]) -> dict[int, Vector]:
        return {batch: first_input(batch) for batch in batches}

    def forward(self, inp: dict[int, Vector], weight: Vector, partial: bool = False) -> dict[int, Vector]:
        return {batch: layer_forward(x, weight, partial) for batch, x in inp.items()}

    def keeping(self, inp: dict[int, Vector], weight: Vector, keep: str, partial: bool = False) -> tuple[Any, Any]:
        return self.forward(inp, weight, partial), {"of": (inp, weight)}

    def loss(self, inp: dict[int, Vector]) -> dict[int, Vector]:
        return {batch: loss_gradient(y) for batch, y in inp.items()}

    def backward(
        self,
        inp: dict[int, Vector],
        grad: dict[int, Vector],
        weight: Vector,
        saved: Any = None,
        *,
        partial: bool = False,
    ) -> tuple[Any, Any]:
        lost = dict.fromkeys(range(WIDTH), math.nan)
        if saved is not None and saved != {"of": (inp, weight)}:
            grad = {}
        both = {batch: layer_backward(x, weight, grad.get(batch, lost), partial) for batch, x in inp.items()}
        of_weight = self.add([w for w, _ in both.values()])
        if isinstance(weight, Adapted):
            of_weight = of_adapter(of_weight, weight.adapter)
        return of_weight, {batch: x for batch, (_, x) in both.items()}

    # a layer in three steps, of some positions: queries (x, met), keys x, and their gradients

    def project(self, inp: dict[int, Vector], weight: Vector) -> tuple[Any, Any]:
        lost = any(at not in weight for at in range(WIDTH))
        whole = {batch: {at: math.nan if lost else one for at, one in x.items()} for batch, x in inp.items()}
        return {batch: {at: (one, 0.0) for at, one in x.items()} for batch, x in whole.items()}, whole

    def attend(self, att: dict[int, Pairs], kv: dict[int, Vector]) -> dict[int, Pairs]:
        return {batch: attended(own, kv.get(batch, {})) for batch, own in att.items()}

    def rest(self, inp: dict[int, Vector], weight: Vector, att: dict[int, Pairs]) -> dict[int, Vector]:
        return {
            batch: {at: output(at, one, weight.get(at, math.nan), rows(att, batch, x)) for at, one in x.items()}
            for batch, x in inp.items()
        }

    def backward_rest(self, inp: Any, grad: Any, weight: Vector, att: Any) -> dict[int, Pairs]:
        found = {}
        for batch, x in inp.items():
            own = {at: weight.get(at, math.nan) for at in x}
            inner = into_tanh(x, own, rows(grad, batch, x), rows(att, batch, x))
            found[batch] = {at: (to_keys, 0.0) for at, to_keys in of_attention(inner, x).items()}
        return found

    def backward_attend(self, att_grad: Any, kv: Any) -> tuple[Any, Any]:
        found, back = {}, {}
        for batch, own in att_grad.items():
            keys = kv.get(batch, {})
            found[batch] = attended(own, keys)
            back[batch] = {
                key: math.cos(x) * sum(to for at, (to, _) in own.items() if PLACE[at] >= PLACE[key])
                for key, x in keys.items()
            }
        return found, back

    def backward_project(self, inp: Any, grad: Any, weight: Vector, att_grad: Any, kv_grad: Any) -> tuple[Any, Any]:
        of_weight, back = dict.fromkeys(range(WIDTH), 0.0), {}
        for batch, x in inp.items():
            lost = math.nan, math.nan
            queries, keys, change = (rows(one, batch, x) for one in (att_grad, kv_grad, grad))
            back[batch] = {}
            for at, one in x.items():
                to_keys, met = queries.get(at, lost)
                # to_keys is 0.5 (1 + 0.3 x) / (place + 1) times the gradient of what goes into tanh
                mean = 0.5 / (PLACE[at] + 1)
                inner = to_keys / (mean * (1.0 + 0.3 * one))
                of_weight[at] += inner * one
                own = inner * (weight.get(at, math.nan) + 0.3 * mean * met)
                again = change.get(at, math.nan) * 0.0  # nan, where its gradient is missing
                back[batch][at] = own + keys.get(at, math.nan) + again
        return of_weight, back

    def adapted(self, weight: Vector, adapter: Vector) -> Vector:
        return Adapted(weight, adapter)

    def update(self, weight: Vector, opt_state: Any, grad: Vector) -> tuple[Any, Any]:
        lost = (math.nan, math.nan)
        new = {at: adam(w, grad.get(at, math.nan), opt_state.get(at, lost)) for at, w in weight.items()}
        return {at: w for at, (w, _) in new.items()}, {at: state for at, (_, state) in new.items()}

    def add(self, values: Sequence[Any]) -> Any:
        if values[0] and isinstance(next(iter(values[0].values())), dict):  # partial sums, of each micro-batch
            return {batch: self.add([value.get(batch, {}) for value in values]) for batch in values[0]}
        real = [value for value in values if value]
        if not real:
            return {}
        where = set.intersection(*map(set, real))
        total = {at: math.fsum(value[at] for value in real) for at in where}
        return total | {at: math.nan for value in real for at in value if at not in where}

    def cut(self, value: Any, piece: Any) -> Any:
        if piece.kind not in ("Weight", "OptState", "WeightGrad"):
            here = {TOKENS[at] for at in self.cut(dict.fromkeys(range(WIDTH)), piece.changed(kind="Weight"))}
            return {batch: {at: one[at] for at in sorted(here & one.keys())} for batch, one in value.items()}
        width = ROWS + COLUMNS if piece.adapter else WIDTH
        bounds = [(shard * width // piece.total, (shard + 1) * width // piece.total) for shard in piece.shards]
        return {at: value[at] for first, last in bounds for at in range(first, last) if at in value}

    def join(self, values: Sequence[Any]) -> Any:
        joined: dict[int, Any] = {}
        if values[0] and isinstance(next(iter(values[0].values())), dict):
            return {batch: self.join([value.get(batch, {}) for value in values]) for batch in values[0]}
        for value in values:
            for at, number in value.items():
                lost = (math.nan, math.nan) if isinstance(number, tuple) else math.nan
                joined[at] = number if joined.get(at, number) == number else lost
        return joined

    def made_up(self, labels: Any) -> Any:
        return {}
