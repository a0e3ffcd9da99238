"""What a tensor carries: a fingerprint in an exact algebra, so that numbers can be wrong without numbers.

Forward, backward and update are fixed mixing functions; gradients add. Two tensors have the same fingerprint when, and
(but for a chance of about 2**-60) only when, honest arithmetic would give them the same numbers: a sum in another order
is the same, a micro-batch counted twice, a stale weight, a piece instead of the whole or a group too small is not.

An activation is a fingerprint for each micro-batch. A weight, a state or a gradient is a pair: the fingerprint of the
whole thing, and which piece of it this is; so is a slice of an activation, for each micro-batch. The two are never
mixed into one number, so that what pieces give together can be computed from what each of them gives.

Nor is the number of a micro-batch mixed into its fingerprints, which stand under that number. It counts where gradients
are summed: micro-batch b adds its fingerprint times the b-th power of a base. So a sum tells which micro-batches are in
it, and what ranks give that do the same with other micro-batches, each so many further on, is the same sum times a
power (``represent.values``).

A layer that is computed in pieces gives partial sums. Let H(0) be 0, H(1) the fingerprint of the whole output, and H(q)
between them a mixing of that and q: then the part of the weight from x to y gives H(y) - H(x). However a weight is cut,
all partial sums add up to the whole, and no other set of them does. What slices of a sequence give of the gradient of
a weight is such a part as well.

In the middle of a layer that is computed in steps, slices carry fingerprints, too. X, W and dY are those of the input,
the weight and the gradient of one micro-batch. Queries and keys carry P, a mixing of X and W; backwards, the gradients
of both carry P and M, which is what ``backward`` mixes of dY, X and W. Besides, queries carry which keys they have met,
and the gradient of keys which queries have added to it. A step that is given what does not go together, or not all of
it, makes nonsense of it. Of some of the heads all of these carry what all heads do, and which heads they are.

Tokens that go to some of a layer's experts are a piece of an activation, as a slice of a sequence is. Their experts
make the same piece of the next one.

This is one of the parts that can be exchanged (``record.operations.Values``).
"""

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import gcd
from typing import Any

from ..record.causal import NOTHING, both, in_both, missing, seeing, seen, to_meet
from ..record.kinds import KEYS, KINDS, QUERIES
from ..record.labels import OF_ADAPTER, Labels
from ..record.shards import NONE, WHOLE, Shards, coarsest, union

PRIME = (1 << 61) - 1
"""Gradients are summed modulo this prime. Python's own hash of a tuple of integers mixes: the same in every process of
one kind of platform, and a fifth of the time of a mixing written in Python, which cost a run 5 percent."""
# One tag for each function.
WEIGHT, STATE, INPUT, FORWARD, LOSS, BACKWARD, GRADIENT, UPDATE, NEXT_STATE, MIXED, PART, BY_HAND = range(101, 113)
SAVED, BETWEEN, ADAPTER, ADAPTER_STATE, ADAPTED, PROJECT, ORTHOGONAL = range(113, 120)


class _Powers(dict[int, int]):
    """The powers of a base modulo PRIME, each computed when it is first asked for."""

    def __missing__(self, exponent: int) -> int:
        return self.setdefault(exponent, pow(BASE, exponent, PRIME))


BASE, POWERS = 0x1B873593CC9E2D51 % PRIME, _Powers()
"""By what the gradient of a micro-batch is multiplied before it is added to those of others, by its number."""
AN_INPUT = hash((INPUT, INPUT))

Piece = tuple[Shards, int]  # which piece of a whole something is, in coarsest form: its shards, and of how many
ALL: Piece = (WHOLE, 1)
ANY: Piece = (NONE, 0)  # the piece that the zero gradient is: it fits all others


Fingerprint = tuple[int, Piece]
"""The value of a weight, a state or a gradient: the fingerprint of the whole that it is of, and which piece it is."""
Activation = int | Fingerprint  # of a slice of the sequence it says which slice that is
ByBatch = dict[int, Any]
"""The value of an activation or its gradient, an Activation for each micro-batch; in the middle of a layer, a Sliced,
or what that carries if it is all of the sequence."""


class Met:
    """What queries carry, or the gradient of keys: of which computation, and which slices of the other side it has met.
    (No tuple: those say which piece of a whole something is.)"""

    __slots__ = ("done", "of")

    def __init__(self, of: object, done: Piece = NOTHING) -> None:
        self.of, self.done = of, done

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Met) and (self.of, self.done) == (other.of, other.done)

    def __hash__(self) -> int:
        return hash((self.of, self.done))


class Heads:
    """What some of the heads of attention carry: what all heads do, and which of them these are."""

    __slots__ = ("of", "which")

    def __init__(self, of: object, which: Piece) -> None:
        self.of, self.which = of, which

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heads) and (self.of, self.which) == (other.of, other.which)

    def __hash__(self) -> int:
        return hash((self.of, self.which))


Sliced = tuple[Any, Piece]  # what a slice carries, and which slice it is


class Fingerprints:
    """The algebra (see ``record.operations.Values``). Labels of what is loaded or cut are in coarsest form already."""

    zero: Fingerprint = (0, ANY)

    def weight(self, piece: Labels) -> Fingerprint:
        return hash((ADAPTER if piece.adapter else WEIGHT, piece.layer)), (piece.shards, piece.total)

    def opt_state(self, piece: Labels) -> Fingerprint:
        return hash((ADAPTER_STATE if piece.adapter else STATE, piece.layer)), (piece.shards, piece.total)

    def inputs(self, batches: frozenset[int]) -> ByBatch:
        return dict.fromkeys(batches, AN_INPUT)

    def forward(self, inp: ByBatch, weight: Fingerprint, partial: bool = False, sliced: bool = False) -> ByBatch:
        """Return a layer's output: a wrong one if the weight is only a piece, unless ``partial``: its partial sum."""
        whole, piece = weight
        if partial:
            return {batch: _partial_sum(hash((FORWARD, value, whole)), piece) for batch, value in inp.items()}
        known = whole if piece == ALL else _complete(weight)
        if sliced:
            slices = {batch: _whole_of(value) for batch, value in inp.items()}
            return {batch: _as_slice(hash((FORWARD, of, known)), own) for batch, (of, own) in slices.items()}
        if len(inp) == 1:  # a comprehension is a call
            ((batch, value),) = inp.items()
            return {batch: hash((FORWARD, value, known))}
        return {batch: hash((FORWARD, value, known)) for batch, value in inp.items()}

    def keeping(self, inp: ByBatch, weight: Fingerprint, keep: str, partial: bool = False) -> tuple[ByBatch, ByBatch]:
        """Return what ``forward`` does, and what it leaves behind."""
        return self.forward(inp, weight, partial), _left_behind(inp, weight)

    def project(self, inp: ByBatch, weight: Fingerprint) -> tuple[ByBatch, ByBatch]:
        known = _complete(weight)
        made = {batch: _projected(*_whole_of(value), known) for batch, value in inp.items()}
        return {batch: att for batch, (att, _) in made.items()}, {batch: kv for batch, (_, kv) in made.items()}

    def attend(self, att: ByBatch, kv: ByBatch) -> ByBatch:
        return {batch: _attended(_whole_of(value), _whole_of(kv.get(batch, 0))) for batch, value in att.items()}

    def rest(self, inp: ByBatch, weight: Fingerprint, att: ByBatch) -> ByBatch:
        """Return a slice of what ``forward`` gives: nonsense, unless these queries have met all the keys they see."""
        known, out = _complete(weight), {}
        for batch, value in inp.items():
            whole, own = _whole_of(value)
            right = _found_all(_whole_of(att.get(batch, 0)), own, hash((PROJECT, whole, known)))
            out[batch] = _as_slice(hash((FORWARD if right else MIXED, whole, known)), own)
        return out

    def backward_rest(self, inp: ByBatch, grad: ByBatch, weight: Fingerprint, att: ByBatch) -> ByBatch:
        known, back = _complete(weight), {}
        for batch, value in inp.items():
            (whole, own), (change, of) = _whole_of(value), _whole_of(grad.get(batch, 0))
            projected = hash((PROJECT, whole, known))
            right = of == own and _found_all(_whole_of(att.get(batch, 0)), own, projected)
            mixed = hash((BACKWARD if right else MIXED, change, whole, known))
            back[batch] = Met((mixed, projected)), own
        return back

    def backward_attend(self, att_grad: ByBatch, kv: ByBatch) -> tuple[ByBatch, ByBatch]:
        made = {batch: _went_back(_whole_of(value), _whole_of(kv.get(batch, 0))) for batch, value in att_grad.items()}
        return {batch: of_att for batch, (of_att, _) in made.items()}, {batch: one for batch, (_, one) in made.items()}

    def backward_project(
        self, inp: ByBatch, grad: ByBatch, weight: Fingerprint, att_grad: ByBatch, kv_grad: ByBatch
    ) -> tuple[Fingerprint, ByBatch]:
        return self._back(inp, grad, _complete(weight), att_grad, kv_grad)

    def _back(self, inp: ByBatch, grad: ByBatch, known: int, *attention: ByBatch) -> tuple[Fingerprint, ByBatch]:
        """Return the part of the gradient of the weight that these slices give, and a slice of that of the input.
        ``attention``: the gradients of queries and keys, where the layer has gone through it."""
        of_weight, back = 0, {}
        for batch, value in inp.items():
            (whole, own), (change, of) = _whole_of(value), _whole_of(grad.get(batch, 0))
            mixed, sides = hash((BACKWARD, change, whole, known)), [_whole_of(one.get(batch, 0)) for one in attention]
            right = not sides or _gone_back(sides[0], sides[1], own, (mixed, hash((PROJECT, whole, known))))
            mixed = mixed if right and of == own else hash((MIXED, mixed, of, *sides))
            of_weight += _partial_sum(hash((GRADIENT, mixed)), own) * POWERS[batch]
            back[batch] = _as_slice(mixed, own)
        return (of_weight % PRIME, ALL), back

    def loss(self, inp: ByBatch) -> ByBatch:
        if len(inp) == 1:
            ((batch, value),) = inp.items()
            if value.__class__ is int:
                return {batch: hash((LOSS, value))}
        slices = {batch: _whole_of(value) for batch, value in inp.items()}
        return {batch: _as_slice(hash((LOSS, whole)), own) for batch, (whole, own) in slices.items()}

    def backward(
        self, inp: ByBatch, grad: ByBatch, weight: Any, saved: Any = None, partial: bool = False, sliced: bool = False
    ) -> tuple[Fingerprint, ByBatch]:
        """Return the gradients of weight and input: nonsense, if what is used of a forward was left behind by another
        one. With ``partial`` the first is that of the piece, and the second a partial sum."""
        known = weight[0] if partial or weight[1] == ALL else _complete(weight)
        if saved is not None and saved != _left_behind(inp, weight):
            known = hash((MIXED, known, *saved.values()))
        if sliced:
            return self._back(inp, grad, known)
        if len(inp) == 1 and not partial:
            ((batch, value),) = inp.items()
            mixed = hash((BACKWARD, grad.get(batch, 0), value, known))
            return (hash((GRADIENT, mixed)) * POWERS[batch] % PRIME, ALL), {batch: mixed}
        back = {batch: hash((BACKWARD, grad.get(batch, 0), value, known)) for batch, value in inp.items()}
        of_weight = sum([hash((GRADIENT, value)) * POWERS[batch] for batch, value in back.items()]) % PRIME
        if partial:
            return (of_weight, weight[1]), {batch: _partial_sum(value, weight[1]) for batch, value in back.items()}
        return (of_weight, ALL), back

    def adapted(self, weight: Fingerprint, adapter: Fingerprint) -> Fingerprint:
        return hash((ADAPTED, _complete(weight), _complete(adapter))), ALL

    def expert(self, tokens: ByBatch, weight: Fingerprint) -> ByBatch:
        """Return what experts make of their tokens: the same piece of what the whole layer makes; nonsense, if the
        weight is that of other experts."""
        made: ByBatch = {}
        for batch, one in tokens.items():
            value, piece = _whole_of(one)
            made[batch] = _as_slice(hash((FORWARD, value, _of_experts(weight, piece))), piece)
        return made

    def backward_expert(self, tokens: ByBatch, grad: ByBatch, weight: Fingerprint) -> tuple[Fingerprint, ByBatch]:
        """Return the gradients of some experts' weight, and of their tokens."""
        of_weight, back = 0, ByBatch()
        for batch, one in tokens.items():
            (value, piece), (change, own) = _whole_of(one), _whole_of(grad.get(batch, 0))
            known = _of_experts(weight, piece)
            mixed = hash((BACKWARD, change, value, known if own == piece else hash((MIXED, known))))
            of_weight += hash((GRADIENT, mixed)) * POWERS[batch]
            back[batch] = _as_slice(mixed, piece)
        return (of_weight % PRIME, weight[1]), back

    def update(self, weight: Fingerprint, opt_state: Fingerprint, grad: Fingerprint) -> tuple[Fingerprint, Fingerprint]:
        """Return weight and state after a step: right if both are the same piece, and the gradient covers it."""
        (before, piece), (state, own), (change, covered) = weight, opt_state, grad
        covers = covered in (ALL, ANY, piece) or union((covered, piece))[0] == covered
        aligned = piece == own and covers
        new = hash((UPDATE if aligned else MIXED, before, state, change))
        return (new, piece), (hash((NEXT_STATE, new)), piece)

    def add(self, values: Sequence[Any]) -> Any:
        """Return a sum of gradients, or of partial sums, in any order; a wrong one if they are of different pieces."""
        if type(values[0]) is dict:
            return {batch: _total([value[batch] for value in values]) for batch in values[0]}
        pieces = {piece for _, piece in values} - {ANY}
        if not pieces:
            return self.zero
        piece = pieces.pop()
        if pieces:
            return _spoiled(*values), piece
        return sum([whole for whole, _ in values]) % PRIME, piece

    def scale(self, value: Fingerprint, factor: Fraction) -> Fingerprint:
        whole, piece = value
        return whole * factor.numerator * pow(factor.denominator, -1, PRIME) % PRIME, piece

    def orthogonalize(self, grad: Fingerprint) -> Fingerprint:
        """Return the fingerprint of the direction of a gradient: another one, if this is only a piece of it."""
        return hash((ORTHOGONAL, _complete(grad))) % PRIME, grad[1]

    def cut(self, value: Any, piece: Labels) -> Any:
        if isinstance(value, dict):
            part = piece.shards, piece.total
            wholes = {batch: _whole_of(value[batch])[0] for batch in piece.batches}
            if piece.of_heads != 1 or any(isinstance(whole, Heads) for whole in wholes.values()):
                wholes = {batch: _in_heads(_of_heads(whole)[0], piece.extra.heads) for batch, whole in wholes.items()}
            return wholes if part == ALL else {batch: (whole, part) for batch, whole in wholes.items()}
        whole, before = value
        return value if before == ANY else (whole, (piece.shards, piece.total))

    def join(self, values: Sequence[Any]) -> Any:
        """Return pieces put together: nonsense, if they are no pieces of one thing, or one comes twice."""
        if type(values[0]) is dict:
            every = defaultdict[int, list[Fingerprint]](list)
            for value in values:
                for batch, one in value.items():
                    every[batch].append(_whole_of(one))
            joined = {batch: _heads_joined(pieces) or self.join(pieces) for batch, pieces in every.items()}
            return {batch: whole if piece == ALL else (whole, piece) for batch, (whole, piece) in joined.items()}
        wholes, pieces = zip(*values, strict=True)
        if ANY in pieces:
            return values[0] if set(pieces) == {ANY} else (_spoiled(*values), ALL)
        piece, disjoint = union(pieces)
        same = wholes.count(wholes[0]) == len(wholes)
        return wholes[0] if same and disjoint else _spoiled(*values), piece

    def made_up(self, labels: Labels) -> Fingerprint | ByBatch:
        if KINDS[labels.kind].size != "weight":
            return {batch: hash((BY_HAND, labels.layer + 1, batch)) for batch in labels.batches}
        made = sum(hash((BY_HAND, labels.layer + 1, batch)) for batch in labels.batches) % PRIME
        return made, piece_of(labels)


def piece_of(labels: Labels) -> Piece:
    """Return which piece of its whole a tensor is."""
    return coarsest(labels.shards, labels.total)


def _complete(weight: Fingerprint) -> int:
    """Return the fingerprint of a whole weight; of a piece of it, another number."""
    whole, piece = weight
    if piece == ALL:
        return whole
    shards, total = piece
    return hash((PART, whole, total, *sorted(shards)))


def _of_experts(weight: Fingerprint, piece: Piece) -> int:
    """Return the fingerprint of a whole weight, as experts know it to which this piece of the tokens goes; another
    number, if these are not the experts whose weight it is."""
    return weight[0] if weight[1] == piece else hash((MIXED, _complete(weight)))


def _left_behind(inp: ByBatch, weight: Fingerprint) -> ByBatch:
    """Return the fingerprints of the inner activations of a layer, which follow from what its forward reads."""
    return {batch: hash((SAVED, value, _complete(weight))) for batch, value in inp.items()}


def _partial_sum(whole: int, piece: Piece) -> int:
    """Return what this piece of a weight adds to an output whose fingerprint is ``whole``."""
    shards, total = piece

    def up_to(shard: int) -> int:  # H of the docstring above, at shard / total
        at = gcd(shard, total)
        return whole * (shard // total) if shard in (0, total) else hash((BETWEEN, whole, shard // at, total // at))

    return sum(up_to(shard + 1) - up_to(shard) for shard in shards)


def _total(partial_sums: Sequence[Activation]) -> Activation:
    """Return a sum of partial sums; nonsense, if they are of different slices."""
    if all(isinstance(one, int) for one in partial_sums):
        return sum(partial_sums)  # type: ignore[arg-type]
    wholes, pieces = zip(*map(_whole_of, partial_sums), strict=True)
    if any(isinstance(whole, (Met, Heads)) for whole in wholes):
        return _added(wholes, pieces)
    return sum(wholes) if len(set(pieces)) == 1 else _spoiled(*partial_sums), pieces[0]


def _spoiled(*values: object) -> int:
    """Return what comes of things that do not go together."""
    return hash((MIXED, *values))


def _projected(inp: int, own: Piece, weight: int) -> tuple[Sliced, Sliced]:
    """Return queries that have met nothing, and keys."""
    of = hash((PROJECT, inp, weight))
    return (Met(of), own), (of, own)


def _after(queries: Sliced, keys: Sliced, of: object) -> Met | int:
    """Return what queries carry after they have met these keys. ``of``: what both should be of."""
    (met, own), (kept, theirs) = queries, keys
    new = seen(own, theirs)
    if not isinstance(met, Met) or kept != of or in_both(met.done, new)[0]:
        return _spoiled(met, own, kept, theirs)
    return Met(met.of, both(met.done, new))


def _attended(att: Sliced, kv: Sliced) -> Sliced:
    """Return queries that have attended to these keys as well."""
    (met, own), keys, heads = _same_heads(att, kv)
    return _in_heads(_after((met, own), keys, met.of if isinstance(met, Met) else None), heads), own


def _found_all(att: Sliced, own: Piece, of: int) -> bool:
    """Return whether these are the queries of a slice, and have attended to all the keys that they see."""
    met, which = att
    return isinstance(met, Met) and which == own and met.of == of and not _lacks(met, own, KEYS)


def _lacks(met: Met, own: Piece, side: str) -> bool:
    return bool(missing(to_meet(own, side), met.done)[0])


def _went_back(att_grad: Sliced, kv: Sliced) -> tuple[Sliced, Sliced]:
    """Return the gradient of the queries after these keys, and what the queries add to the gradient of the keys."""
    (met, own), (kept, theirs), heads = _same_heads(att_grad, kv)
    of = met.of[1] if isinstance(met, Met) and isinstance(met.of, tuple) else None
    after = _after((met, own), (kept, theirs), of)
    added = Met(after.of, seeing(theirs, own)) if isinstance(after, Met) else after
    return (_in_heads(after, heads), own), (_in_heads(added, heads), theirs)


def _gone_back(att_grad: Sliced, kv_grad: Sliced, own: Piece, of: object) -> bool:
    """Return whether these are the gradients of queries and of keys of a slice, and complete."""
    return all(
        isinstance(met, Met) and which == own and met.of == of and not _lacks(met, own, side)
        for (met, which), side in ((att_grad, KEYS), (kv_grad, QUERIES))
    )


def _added(wholes: Sequence[Any], pieces: Sequence[Piece]) -> Sliced:
    """Return a sum of gradients of keys, of several queries: nonsense, if they are of different keys, heads or
    computations, or queries come twice."""
    (first, heads), own, done = _of_heads(wholes[0]), pieces[0], NOTHING
    for (met, theirs), piece in zip(map(_of_heads, wholes), pieces, strict=True):
        if (
            theirs != heads
            or not isinstance(met, Met)
            or not isinstance(first, Met)
            or met.of != first.of
            or piece != own
        ):
            return _spoiled(*wholes), own
        new = in_both(met.done, to_meet(own, QUERIES))
        if in_both(done, new)[0]:
            return _spoiled(*wholes), own
        done = both(done, new)
    return _in_heads(Met(first.of, done), heads), own


def _of_heads(carried: Any) -> tuple[Any, Piece]:
    """Return what all heads carry, and which ones are here."""
    return (carried.of, carried.which) if isinstance(carried, Heads) else (carried, ALL)


def _in_heads(carried: Any, heads: Piece) -> Any:
    """Return what these heads carry, given what all do."""
    return carried if heads == ALL else Heads(carried, heads)


def _same_heads(one: Sliced, other: Sliced) -> tuple[Sliced, Sliced, Piece]:
    """Return what queries and keys carry, and in which heads: nonsense, where these are not the same."""
    (carried, heads), (kept, theirs) = _of_heads(one[0]), _of_heads(other[0])
    return (carried, one[1]), (kept if heads == theirs else _spoiled(kept, heads, theirs), other[1]), heads


def _heads_joined(pieces: Sequence[Sliced]) -> Sliced | None:
    """Return the heads of one slice together: nonsense, if they are of different things or one comes twice. None where
    these are not heads of one slice."""
    (first, own), many = pieces[0], len(pieces)
    carried, which = zip(*[_of_heads(one) for one, _ in pieces], strict=True)
    if many == 1 or not isinstance(first, Heads) or any(piece != own for _, piece in pieces):
        return None
    heads, disjoint = union(which)
    same = disjoint and all(one == carried[0] for one in carried)
    return _in_heads(carried[0] if same else _spoiled(*carried), heads), own


def _whole_of(value: Activation) -> Fingerprint:
    """Return the fingerprint of an activation, and which slice of it this is."""
    return value if isinstance(value, tuple) else (value, ALL)


def _as_slice(whole: int, own: Piece) -> Activation:
    """Return what a slice, or another piece, of an activation carries."""
    return whole if own == ALL else (whole, own)


@lru_cache(maxsize=64)
def trained_weights(
    layers: int, batches: int, adapters: bool = False, muon: bool = False, tokens: Sequence[int] = (), tied: int = 0
) -> tuple[Fingerprint, ...]:
    """Return each layer's right weight, or its adapter if only ``adapters`` are trained, after a step on one device.
    ``muon``: with an orthogonalized gradient; ``tokens``: by which micro-batches count, if they do; ``tied``: the last
    layer uses the weight of the first."""
    algebra = Fingerprints()
    whole = [Labels("Weight", layer, layers) for layer in range(layers)]
    weights = [algebra.weight(labels) for labels in whole]
    trainable = weights
    if adapters:
        whole = [labels.changed(extra=OF_ADAPTER) for labels in whole]
        trainable = [algebra.weight(labels) for labels in whole]
        weights = [algebra.adapted(*pair) for pair in zip(weights, trainable, strict=True)]
    weights = [*weights[:-1], weights[0]] if tied else weights
    activations = [algebra.inputs(frozenset(range(batches)))]
    for weight in weights:
        activations.append(algebra.forward(activations[-1], weight))
    grad, trained, uses = algebra.loss(activations[-1]), list(trainable), list[Fingerprint]()
    for layer in reversed(range(layers)):
        inp, out = activations[layer], grad
        weight_grad, grad = algebra.backward(inp, out, weights[layer])
        if tokens:
            alone = [algebra.backward({b: inp[b]}, {b: out[b]}, weights[layer])[0] for b in range(batches)]
            shares = [Fraction(count, sum(tokens)) for count in tokens]
            weight_grad = algebra.add([*map(algebra.scale, alone, shares)])
        if tied and layer in (0, layers - 1):
            uses.append(weight_grad)
            weight_grad = algebra.add(uses)
        if muon:
            weight_grad = algebra.orthogonalize(weight_grad)
        trained[layer], _ = algebra.update(trainable[layer], algebra.opt_state(whole[layer]), weight_grad)
    return tuple(trained)
