"""What training gives, computed with numbers: an independent judge of the exact algebra that the checker uses.

Nothing here looks at lib: a layer is ``tanh`` of an elementwise product with attention mixed in, the loss a sum of
squares, the gradients follow from the chain rule, the optimizer is Adam in its third step. A tensor is a dict from
position to number, so that a shard is the positions it has, joining is a union, and a position that comes with two
different numbers becomes nan.

A position is also a token. Attention has heads. In each it is the mean of what the tokens up to its own place give it,
``sin(a k)`` of each with another ``a``, times ``1 + 0.3 x`` of its own. So it can be added up over slices of keys in
any order, and backwards, too. What goes into attention has a number for each pair of a position and a head. ``k`` is
the input; in the last head it is the input times the weight, so the weight has a part of its gradient from all queries
that see it. The last head is added to the output, the others go into ``tanh``: so a piece of the weight gives a part
of the sum that the output is, as tensor parallelism wants it.

In a layer with experts each token goes to two of them, ``x + f(x)`` with the numbers of that expert only, and the sum
of what these give, each times its gate, is the output. Tokens on their way have a number for each pair of a position
and an expert. A weight of such a layer has positions of its own, from WIDTH on, so it cannot be taken for that of
another.
"""

import math
import types
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

WIDTH = 48
"""Positions of a weight."""
RATE, BETA1, BETA2, EPSILON, STEP = 0.05, 0.9, 0.99, 1e-8, 3

TOKENS = [5 * place % WIDTH for place in range(WIDTH)]
"""Which position is at which place of the sequence: a slice has nothing to do with the piece of that number."""
PLACE = {at: place for place, at in enumerate(TOKENS)}

HEADS, LAST = 4, 3
SPEEDS = [1.0 + head / 2 for head in range(HEADS)]
"""How fast what a key gives in a head changes with it."""
EXPERTS, OWN = 8, WIDTH // 8
"""So many experts, each with so many positions of a weight."""
LOST = math.nan, math.nan

Vector = dict[int, float]
Pair = tuple[int, int]
"""A position, and a head of attention or an expert."""
Keys = dict[Pair, float]
Queries = dict[Pair, tuple[float, float]]
Route = list[tuple[int, float]]
"""To which experts a token goes, and with which gate."""


def route(batch: int, at: int) -> Route:
    """To which experts a token goes: gates are given, not trained, and add up to 1."""
    first, gate = (5 * at + 3 * batch) % EXPERTS, 0.5 + 0.3 * pseudo(8, batch, at)
    return [(first, gate), ((first + 1 + (at + batch) % (EXPERTS - 1)) % EXPERTS, 1.0 - gate)]


def pseudo(*seed: int) -> float:
    """A number between -1 and 1 that depends on the seed alone."""
    return math.sin(sum((place + 1) * 12.9898 * (part + 1) for place, part in enumerate(seed))) * 0.9


def positions(layer: int, experts: bool) -> range:
    """The positions of a layer's weight: odd layers have experts, if any have."""
    return range(WIDTH, 2 * WIDTH) if experts and layer % 2 else range(WIDTH)


def first_weight(layer: int, experts: bool = False) -> Vector:
    """The weight of a layer before training."""
    return {at: 1.0 + 0.3 * pseudo(1, layer, at) for at in positions(layer, experts)}


def first_state(layer: int, experts: bool = False) -> dict[int, tuple[float, float]]:
    """Adam's moments of a layer before this step: the training is under way."""
    return {
        at: (0.1 * pseudo(2, layer, at), 0.01 + 0.01 * abs(pseudo(3, layer, at))) for at in positions(layer, experts)
    }


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


def attended(att: Queries, kv: Keys) -> Queries:
    """Queries (x, sum over the keys of their head that they have met) after these keys as well."""
    found = dict(att)
    for head in {head for _, head in att}:
        gives = (math.sin(SPEEDS[head] * kv[at, head]) if (at, head) in kv else 0.0 for at in TOKENS)
        for at, new in zip(TOKENS, accumulate(gives), strict=True):
            if (at, head) in att:
                x, met = att[at, head]
                found[at, head] = x, met + new
    return found


def attended_back(grad: Queries, kv: Keys) -> Keys:
    """What these queries, (gradient of what they have met, what they met), add to the gradient of these keys."""
    found = {}
    for head in {head for _, head in kv}:
        later = 0.0
        for at in reversed(TOKENS):
            later += grad.get((at, head), (0.0, 0.0))[0]
            if (at, head) in kv:
                found[at, head] = SPEEDS[head] * math.cos(SPEEDS[head] * kv[at, head]) * later
    return found


def in_heads(x: Vector, w: Vector) -> Keys:
    """The keys of each head; in the last one those for which the weight is there."""
    keys = {(at, head): one for at, one in x.items() for head in range(LAST)}
    return keys | {(at, LAST): w[at] * one for at, one in x.items() if at in w}


def not_attended(x: Vector) -> Queries:
    """Queries that have met nothing yet."""
    return {(at, head): (one, 0.0) for at, one in x.items() for head in range(HEADS)}


def mean(at: int) -> float:
    """With which weight a query adds up what it has met."""
    return 0.5 / (HEADS * (PLACE[at] + 1))


def from_heads(at: int, heads: Iterable[int], att: Queries) -> float:
    """What attention gives a position, the mean of what it has met in these heads."""
    return sum(mean(at) * (1.0 + 0.3 * query) * met for query, met in (att.get((at, head), LOST) for head in heads))


def in_tanh(at: int, x: float, w: float, att: Queries) -> float:
    """tanh of weight times input, and of what attention gives."""
    return math.tanh(w * x + from_heads(at, range(LAST), att))


def output(at: int, x: float, w: float, att: Queries) -> float:
    """What a layer makes of a position."""
    return in_tanh(at, x, w, att) + from_heads(at, [LAST], att)


def has_experts(w: Vector) -> bool:
    """Whether this is a weight of a layer with experts, or a piece of one."""
    return any(at >= WIDTH for at in w)


def numbers_of(expert: int, w: Vector) -> Vector:
    """The positions of an expert in its weight, with nan for those that are not there."""
    first = WIDTH + expert * OWN
    return {at: w.get(at, math.nan) for at in range(first, first + OWN)}


def expert_forward(x: float, own: Vector) -> float:
    """What an expert with these numbers gives for a token: x + f(x)."""
    return x + sum(math.tanh(w * x + 0.2 * (at % OWN)) for at, w in own.items()) / OWN


def expert_backward(x: float, g: float, own: Vector) -> tuple[Vector, float]:
    """The gradients of an expert's numbers and of a token, from that of what it gives."""
    inner = {at: g * (1.0 - math.tanh(w * x + 0.2 * (at % OWN)) ** 2) / OWN for at, w in own.items()}
    return {at: one * x for at, one in inner.items()}, g + sum(one * own[at] for at, one in inner.items())


def experts_forward(x: Vector, w: Vector, batch: int) -> Vector:
    """A layer with experts in one go."""
    return {
        at: sum(gate * expert_forward(one, numbers_of(expert, w)) for expert, gate in route(batch, at))
        for at, one in x.items()
    }


def experts_backward(x: Vector, w: Vector, g: Vector, batch: int) -> tuple[Vector, Vector]:
    """Gradients of weight and input of a layer with experts."""
    of_weight, of_input = dict.fromkeys(range(WIDTH, 2 * WIDTH), 0.0), dict.fromkeys(x, 0.0)
    for at, one in x.items():
        for expert, gate in route(batch, at):
            change, back = expert_backward(one, gate * g.get(at, math.nan), numbers_of(expert, w))
            of_input[at] += back
            for place, more in change.items():
                of_weight[place] += more
    return of_weight, of_input


def layer_forward(x: Vector, w: Vector, partial: bool = False, batch: int = 0, alone: bool = False) -> Vector:
    """A layer in one go; in pieces, what the positions of the weight add to it. ``alone``: without attention."""
    x, missing = {at: x.get(at, math.nan) for at in range(WIDTH)}, 0.0 if partial else math.nan
    if has_experts(w):
        return experts_forward(x, w, batch)
    att = attended(not_attended(x), {} if alone else in_heads(x, w))
    return {
        at: (in_tanh(at, x[at], w[at], att) if at in w else missing) + from_heads(at, [LAST], att)
        for at in range(WIDTH)
    }


def into_tanh(x: Vector, w: Vector, g: Vector, att: Queries) -> Vector:
    """The gradient of what goes into tanh, at the positions of the weight."""
    return {at: g.get(at, math.nan) * (1.0 - in_tanh(at, x.get(at, math.nan), w[at], att) ** 2) for at in w}


def of_attention(inner: Vector, g: Vector, x: Vector) -> Queries:
    """The gradients of what the queries have met, which have gone back to no keys yet: from that of what goes into
    tanh, and in the last head from that of the output."""
    of_heads = Queries()
    for at, one in x.items():
        more = mean(at) * (1.0 + 0.3 * one)
        for head in range(HEADS):
            of_heads[at, head] = more * (g.get(at, math.nan) if head == LAST else inner.get(at, 0.0)), 0.0
    return of_heads


def loss_gradient(y: Vector) -> Vector:
    """Of the sum of squares."""
    return {at: 2.0 * one for at, one in y.items()}


def layer_backward(
    x: Vector, w: Vector, g: Vector, partial: bool = False, batch: int = 0, alone: bool = False
) -> tuple[Vector, Vector]:
    """Gradients of weight and input; in pieces, what the positions of the weight add to that of the input."""
    x = {at: x.get(at, math.nan) for at in range(WIDTH)}
    if has_experts(w):
        return experts_backward(x, w, g, batch)
    if not partial:
        w = {at: w.get(at, math.nan) for at in range(WIDTH)}
    keys = {} if alone else in_heads(x, w)
    att = attended(not_attended(x), keys)
    inner = into_tanh(x, w, g, att)
    back = attended_back(of_attention(inner, g, x), keys)
    of_weight, of_input = Vector(), Vector()
    for at, one in x.items():
        met, last = sum(att[at, head][1] for head in range(LAST)), att[at, LAST][1]
        own = w.get(at, 0.0)
        of_input[at] = inner.get(at, 0.0) * (own + 0.3 * mean(at) * met) + g.get(at, math.nan) * 0.3 * mean(at) * last
        of_input[at] += sum(back.get((at, head), 0.0) for head in range(LAST)) + back.get((at, LAST), 0.0) * own
        if at in w:
            of_weight[at] = (inner[at] + back.get((at, LAST), 0.0)) * one
    return of_weight, of_input


def adam(w: float, g: float, state: tuple[float, float]) -> tuple[float, tuple[float, float]]:
    """One position of an optimizer step."""
    m, v = BETA1 * state[0] + (1 - BETA1) * g, BETA2 * state[1] + (1 - BETA2) * g * g
    fair_m, fair_v = m / (1 - BETA1**STEP), v / (1 - BETA2**STEP)
    return w - RATE * fair_m / (math.sqrt(fair_v) + EPSILON), (m, v)


def direction(grad: Vector) -> Vector:
    """A gradient over its length, which stands for what Muon makes of a matrix: it needs the whole."""
    length = math.hypot(*grad.values()) if grad.keys() == set(range(WIDTH)) else math.nan
    return {at: one / length for at, one in grad.items()}


def trained(
    layers: int, batches: int, adapters: bool, experts: bool, muon: bool, tokens: Any, alone: bool
) -> list[Vector]:
    """Every layer's weight, or its adapter, after one step on one device, by micro-batches (and their ``tokens``)."""
    weights = [first_weight(layer, experts) for layer in range(layers)]
    trains = [first_adapter(layer) for layer in range(layers)] if adapters else weights
    if adapters:
        weights = [with_adapter(*pair) for pair in zip(weights, trains, strict=True)]
    sums = [dict.fromkeys(one, 0.0) for one in trains]
    for batch in range(batches):
        inputs = [first_input(batch)]
        for weight in weights:
            inputs.append(layer_forward(inputs[-1], weight, False, batch, alone))
        grad = loss_gradient(inputs[-1])
        for layer in reversed(range(layers)):
            of_weight, grad = layer_backward(inputs[layer], weights[layer], grad, False, batch, alone)
            change = of_adapter(of_weight, trains[layer]) if adapters else of_weight
            share = tokens[batch] / sum(tokens) if tokens else 1.0
            sums[layer] = {at: sums[layer][at] + share * change[at] for at in change}
    sums = [direction(one) for one in sums] if muon else sums
    states = [first_state_of_adapter(layer) if adapters else first_state(layer, experts) for layer in range(layers)]
    return [
        {at: adam(trains[layer][at], sums[layer][at], states[layer][at])[0] for at in trains[layer]}
        for layer in range(layers)
    ]


def error(layer: int, found: Vector, right: Vector) -> float:
    """The largest difference, relative to the largest update of that layer, or of its adapter."""
    before = first_weight(layer, has_experts(right)) if len(right) == WIDTH else first_adapter(layer)
    update = max(abs(right[at] - before[at]) for at in right)
    if not found.keys() <= right.keys():
        return math.inf
    differences = [abs(value - right[at]) / update for at, value in found.items()]
    return math.inf if any(map(math.isnan, differences)) else max(differences, default=math.inf)


def rows(of: dict[int, Any], batch: int, x: Vector) -> Any:
    """What is of this micro-batch, if it has the tokens of ``x`` only: matrices of other lengths do not fit."""
    own = of.get(batch, {})
    return own if own.keys() == x.keys() else {}


def of_all_heads(of: dict[int, Any], batch: int, x: Vector) -> Any:
    """The same of what goes into attention, of all heads."""
    own = of.get(batch, {})
    return own if own.keys() == not_attended(x).keys() else {}


def those_of(w: Vector, tokens: Keys) -> Vector:
    """The numbers of the experts to which these tokens go, if the weight is theirs: nothing else fits."""
    return w if {WIDTH + expert * OWN for _, expert in tokens} == {at for at in w if at % OWN == 0} else {}


def within(pieces: Iterable[int], total: int, width: int) -> set[int]:
    """Which of so many numbers these pieces of ``total`` are."""
    return {at for one in pieces for at in range(one * width // total, (one + 1) * width // total)}


def to_experts(batch: int, of: dict[Any, float], experts: set[int]) -> Keys:
    """The tokens that go to these experts, of a micro-batch at home, or of tokens on their way."""
    if any(isinstance(at, tuple) for at in of):
        return {(at, expert): x for (at, expert), x in of.items() if expert in experts}
    return {(at, expert): x for at, x in of.items() for expert, _ in route(batch, at) if expert in experts}


def come_home(batch: int, of: dict[Any, float]) -> Vector:
    """A micro-batch at home, or of its tokens what all their experts give, added up: lost without all of these."""
    if not any(isinstance(at, tuple) for at in of):
        return of
    return {at: sum(of.get((at, expert), math.nan) for expert, _ in route(batch, at)) for at, _ in of}


class Adapted(dict[int, float]):
    """A weight with what its adapter adds to it, and that adapter."""

    def __init__(self, weight: Vector, adapter: Vector) -> None:
        super().__init__(with_adapter(weight, adapter))
        self.adapter = adapter


class Numbers:
    """The same, as the values of a simulated machine: for each operation what it does to the numbers."""

    zero: Any = types.MappingProxyType({})

    def __init__(self, experts: bool = False, alone: bool = False) -> None:
        self.experts, self.alone = experts, alone

    def weight(self, piece: Any) -> Any:
        return self.cut(first_adapter(piece.layer) if piece.adapter else first_weight(piece.layer, self.experts), piece)

    def opt_state(self, piece: Any) -> Any:
        first = first_state_of_adapter(piece.layer) if piece.adapter else first_state(piece.layer, self.experts)
        return self.cut(first, piece)

    def inputs(self, batches: Iterable[int]) -> dict[int, Vector]:
        return {batch: first_input(batch) for batch in batches}

    def forward(self, inp: Any, weight: Vector, partial: bool = False, sliced: bool = False) -> dict[int, Vector]:
        found = {batch: layer_forward(x, weight, partial, batch, self.alone) for batch, x in inp.items()}
        return {batch: {at: one[at] for at in (inp[batch] if sliced else one)} for batch, one in found.items()}

    def keeping(self, inp: dict[int, Vector], weight: Vector, keep: str, partial: bool = False) -> tuple[Any, Any]:
        return self.forward(inp, weight, partial), {"of": (inp, weight)}

    def loss(self, inp: dict[int, Vector]) -> dict[int, Vector]:
        return {batch: loss_gradient(y) for batch, y in inp.items()}

    def backward(
        self, inp: Any, grad: Any, weight: Vector, saved: Any = None, *, partial: bool = False, sliced: bool = False
    ) -> tuple[Any, Any]:
        lost = dict.fromkeys(range(WIDTH), math.nan)
        if saved is not None and saved != {"of": (inp, weight)}:
            grad = {}
        both = {
            batch: layer_backward(x, weight, grad.get(batch, lost), partial, batch, self.alone)
            for batch, x in inp.items()
        }
        if sliced:  # a position is a token: others change nothing
            for batch, here in inp.items():
                changes, back = both[batch]
                both[batch] = {at: changes[at] if at in here else 0.0 for at in changes}, {at: back[at] for at in here}
        of_weight = self.add([w for w, _ in both.values()])
        if isinstance(weight, Adapted):
            of_weight = of_adapter(of_weight, weight.adapter)
        return of_weight, {batch: x for batch, (_, x) in both.items()}

    # a layer in three steps, of some positions: queries (x, met), keys x, and their gradients, each of some heads

    def project(self, inp: dict[int, Vector], weight: Vector) -> tuple[Any, Any]:
        own = {at: weight.get(at, math.nan) for at in range(WIDTH)}
        keys = {batch: in_heads(x, own) for batch, x in inp.items()}
        return {batch: not_attended(x) for batch, x in inp.items()}, keys

    def attend(self, att: dict[int, Queries], kv: dict[int, Keys]) -> dict[int, Queries]:
        return {batch: attended(own, self._keys(own, kv, batch)) for batch, own in att.items()}

    def _keys(self, queries: Queries, kv: dict[int, Keys], batch: int) -> Keys:
        """Keys for these queries: of other heads, all of them are lost."""
        keys = kv.get(batch, {})
        same = {head for _, head in queries} == {head for _, head in keys}
        return keys if same or not queries or not keys else dict.fromkeys(keys | queries, math.nan)

    def rest(self, inp: dict[int, Vector], weight: Vector, att: dict[int, Queries]) -> dict[int, Vector]:
        made = {}
        for batch, x in inp.items():
            queries = of_all_heads(att, batch, x)
            made[batch] = {at: output(at, one, weight.get(at, math.nan), queries) for at, one in x.items()}
        return made

    def backward_rest(self, inp: Any, grad: Any, weight: Vector, att: Any) -> dict[int, Queries]:
        made = {}
        for batch, x in inp.items():
            own, change = {at: weight.get(at, math.nan) for at in x}, rows(grad, batch, x)
            inner = into_tanh(x, own, change, of_all_heads(att, batch, x))
            made[batch] = of_attention(inner, change, x)
        return made

    def backward_attend(self, att_grad: Any, kv: Any) -> tuple[Any, Any]:
        keys = {batch: self._keys(own, kv, batch) for batch, own in att_grad.items()}
        found = {batch: attended(own, keys[batch]) for batch, own in att_grad.items()}
        return found, {batch: attended_back(own, keys[batch]) for batch, own in att_grad.items()}

    def backward_project(self, inp: Any, grad: Any, weight: Vector, att_grad: Any, kv_grad: Any) -> tuple[Any, Any]:
        of_weight, back = dict.fromkeys(range(WIDTH), 0.0), {}
        for batch, x in inp.items():
            queries, keys = of_all_heads(att_grad, batch, x), of_all_heads(kv_grad, batch, x)
            change = rows(grad, batch, x)
            back[batch] = {}
            for at, one in x.items():
                # to_keys is mean(at) (1 + 0.3 x) times the gradient of what goes into tanh, or of the output
                to_keys, met = zip(*[queries.get((at, head), LOST) for head in range(HEADS)], strict=True)
                to_input = [keys.get((at, head), math.nan) for head in range(HEADS)]
                more, own = mean(at) * (1.0 + 0.3 * one), weight.get(at, math.nan)
                inner, outer = sum(to_keys[:LAST]) / (LAST * more), to_keys[LAST] / more
                again = (change.get(at, math.nan) + sum(to_input)) * 0.0  # nan, where one of its gradients is missing
                of_weight[at] += (inner + to_input[LAST]) * one + again
                of_queries = inner * (own + 0.3 * mean(at) * sum(met[:LAST])) + outer * 0.3 * mean(at) * met[LAST]
                back[batch][at] = of_queries + sum(to_input[:LAST]) + to_input[LAST] * own + again
        return of_weight, back

    # tokens at their experts

    def expert(self, tokens: dict[int, Keys], weight: Vector) -> dict[int, Keys]:
        found = {}
        for batch, own in tokens.items():
            known, gates = those_of(weight, own), {at: dict(route(batch, at)) for at, _ in own}
            found[batch] = {
                (at, expert): gates[at][expert] * expert_forward(x, numbers_of(expert, known))
                for (at, expert), x in own.items()
            }
        return found

    def backward_expert(self, tokens: Any, grad: Any, weight: Vector) -> tuple[Any, Any]:
        of_weight, back = dict.fromkeys(weight, 0.0), {}
        for batch, own in tokens.items():
            known, changes, back[batch] = those_of(weight, own), rows(grad, batch, own), {}
            for (at, expert), x in own.items():
                given = dict(route(batch, at))[expert] * changes.get((at, expert), math.nan)
                change, back[batch][at, expert] = expert_backward(x, given, numbers_of(expert, known))
                for place, more in change.items():
                    of_weight[place] = of_weight.get(place, math.nan) + more
        return of_weight, back

    def adapted(self, weight: Vector, adapter: Vector) -> Vector:
        return Adapted(weight, adapter)

    def update(self, weight: Vector, opt_state: Any, grad: Vector) -> tuple[Any, Any]:
        lost = LOST
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

    def scale(self, value: Vector, factor: Any) -> Vector:
        return {at: float(factor) * one for at, one in value.items()}

    def orthogonalize(self, grad: Vector) -> Vector:
        return direction(grad)

    def cut(self, value: Any, piece: Any) -> Any:
        if piece.kind in ("Tokens", "TokensGrad"):
            here = within(piece.shards, piece.total, EXPERTS)
            return {batch: to_experts(batch, value.get(batch, {}), here) for batch in piece.batches}
        if piece.kind not in ("Weight", "OptState", "WeightGrad"):
            here = {TOKENS[place] for place in within(piece.shards, piece.total, WIDTH)}
            if piece.kind in ("Activation", "ActivationGrad"):
                home = {batch: come_home(batch, value.get(batch, {})) for batch in piece.batches}
                return {batch: {at: x for at, x in one.items() if at in here} for batch, one in home.items()}
            heads = within(*piece.extra.heads, HEADS)
            parts = {batch: value.get(batch, {}) for batch in piece.batches}
            return {
                batch: {at: x for at, x in one.items() if at[0] in here and at[1] in heads}
                for batch, one in parts.items()
            }
        width = ROWS + COLUMNS if piece.adapter else WIDTH
        here = within(piece.shards, piece.total, width)
        return {at: value[at] for at in sorted(value) if at % width in here}

    def join(self, values: Sequence[Any]) -> Any:
        joined: dict[int, Any] = {}
        if values[0] and isinstance(next(iter(values[0].values())), dict):
            batches = dict.fromkeys(batch for value in values for batch in value)
            return {batch: self.join([value.get(batch, {}) for value in values]) for batch in batches}
        for value in values:
            for at, number in value.items():
                lost = LOST if isinstance(number, tuple) else math.nan
                joined[at] = number if joined.get(at, number) == number else lost
        return joined

    def made_up(self, labels: Any) -> Any:
        return {}
