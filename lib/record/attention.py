"""A layer in three steps, for slices of a sequence, and backwards in three: what each insists on, and makes.

A layer is attention and a rest. ``project`` makes queries that have attended to nothing yet, keys and values;
``attend`` lets queries attend to some keys; ``rest`` does all else, once the queries have attended to every key that
they see. Backwards it is ``backward_rest``, ``backward_attend`` for each of these blocks, ``backward_project``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial, reduce

from ..basics.errors import NO_OTHERS, Fix, Place, PuzzleError, show_set
from ..basics.units import divided
from .causal import NOTHING, Slices, both, in_both, missing, seeing, seen, share, show_heads, show_slices
from .kinds import KINDS
from .labels import GATHERED, NO_EXTRA, RING, ExtraLabels, Labels, of_batches, within
from .operations import Computation, More, Rank, Value, Values
from .rules.operands import named_right, weight_fits
from .rules.whence import whence
from .training import BACKWARD, FORWARD

MEETS = {
    "Attended": ("attended to", "att = model.attend(layer, att, kv)"),
    "AttendedGrad": ("gone back to", "att_grad, kv_grad = model.backward_attend(layer, att_grad, kv)"),
}
"""How queries meet keys: in words, and as a call."""
CUT = "cut the input before it goes into model.project, inp.shard(model.rank, model.RANKS)"
NAMES = {
    "Activation": "inp",
    "ActivationGrad": "grad",
    "Weight": "weight",
    "Attended": "att",
    "KeysValues": "kv",
    "AttendedGrad": "att_grad",
    "KeysValuesGrad": "kv_grad",
}
"""What the operands are called, by their kinds: no operation has two of one kind."""


def _check(rank: Rank, verb: str, layer: int, labels: dict[str, Labels]) -> Place:
    """Return where this is. Raise PuzzleError unless all operands are of this layer (a gradient that backward reads,
    and what goes with it) and of the same micro-batches."""
    first = next(iter(labels.values()))
    where: Place = rank.place(verb, layer, first.batches)
    named_right(rank, where, layer, {name: one.layer for name, one in labels.items()})
    for name, one in labels.items():
        if one.layer != layer:
            problem, expected = f"{name} is of layer {one.layer}", f"layer {layer}"
            own = f"take what belongs to layer {layer}: is one stored under the key of another?"
            if one.kind == "ActivationGrad" and layer < one.layer:
                own = f"what backward_project({layer + 1}, ...) gives: backward goes from the last layer down to the "
                own += "first, for layer in reversed(range(model.LAYERS))"
            found = partial(whence, rank, one, one.kind, layer, own)
            fix = found if one.kind in ("Activation", "ActivationGrad") else _left_over(rank, one, own)
            raise PuzzleError(problem, where=where, expected=expected, got=str(one), fix=fix)
        if one.kind == "Weight":
            weight_fits(rank, where, layer, one, False)
        elif one.batches != first.batches:
            problem = f"{next(iter(labels))} and {name} are of different micro-batches"
            expected, got = f"micro-batches {show_set(first.batches)}", show_set(one.batches)
            raise PuzzleError(problem, where=where, expected=expected, got=got, fix="take both of one micro-batch")
        elif one.kind in ("Activation", "ActivationGrad") and one.extra.of != 1:
            problem, fix = f"{name} is a partial sum", "layers in three steps are computed with the whole weight"
            raise PuzzleError(problem, where=where, expected="a slice of the sequence", got=str(one), fix=fix)
    return where


def _left_over(rank: Rank, one: Labels, own: str) -> str:
    """Return what to do about keys and values, or their gradient, of another layer: as many receives as passes, where
    they came as a message; else the ``own`` text."""
    came = rank.sender(one)
    if came is None:
        return own
    return (
        f"it came from rank {came[0]}, which has passed on more of layer {one.layer} than this rank has received in "
        "that layer: in each layer as many receives as passes, so that nothing is left over"
    )


def _of_other_slices(where: Place, one: Labels, own: Labels) -> str:
    """Return what to do about a tensor of other slices than the first operand, its ``own`` ones."""
    if one.kind in MEETS and own.is_whole():
        return f"{CUT}: then all that comes of it is of that slice"
    if one.kind == "ActivationGrad" and within(own, one):
        return (
            "model.loss(out, sliced=True) takes this rank's slice of the output, and gives that slice of the gradient"
        )
    if one.kind == "Attended" and within(own, one):
        fix = f"model.project({one.layer}, inp, weight) of the input that model.rest reads: of the other slices "
        return f"{fix}only keys and values are needed, and those are gathered or passed on"
    return f"take both of the same slices, {show_slices(own.piece())}"


def _all_heads(where: Place, labels: dict[str, Labels]) -> None:
    """Raise PuzzleError for a tensor of some heads of attention only."""
    for name, one in labels.items():
        if one.of_heads != 1:
            problem = f"{name} is of some heads only"
            fix = f"turn heads into slices again first, over the ranks over which they came: {name} = await "
            fix += f"model.alltoall({name}, {one.layer})"
            expected = f"all heads, of {show_slices(next(iter(labels.values())).piece())}"
            raise PuzzleError(problem, where=where, expected=expected, got=str(one), fix=fix)


def _same_heads(where: Place, queries: Labels, keys: Labels) -> None:
    """Raise PuzzleError unless queries and keys are of the same heads."""
    if queries.extra.heads == keys.extra.heads:
        return
    name, late = NAMES[queries.kind], NAMES[queries.kind if queries.of_heads == 1 else keys.kind]
    problem = f"{name} is of {show_heads(queries.extra.heads)}, and kv of {show_heads(keys.extra.heads)}"
    fix: Fix = f"turn slices into heads of both before they meet: {late} = await model.alltoall({late}, {keys.layer})"
    if 1 not in (queries.of_heads, keys.of_heads):
        fix = "queries and keys become heads over the same ranks, so that both have those of this rank's place; and "
        fix += "keys are passed on only between ranks that have the same heads"
    expected = f"keys and values of {show_heads(queries.extra.heads)}"
    raise PuzzleError(problem, where=where, expected=expected, got=str(keys), fix=fix)


def _same_slices(rank: Rank, where: Place, labels: dict[str, Labels]) -> None:
    """Raise PuzzleError unless all but the weight are the same slices of the sequence."""
    sliced = {name: one for name, one in labels.items() if one.kind != "Weight"}
    (first, own), *others = sliced.items()
    for name, one in others:
        if one.piece() != own.piece():
            problem = f"{name} is of another slice than {first}"
            if one.kind == "KeysValuesGrad":
                problem = "the gradient of keys and values is of another slice"
            fix, fix_for = _of_other_slices(where, one, own), NO_OTHERS
            if one.kind == "KeysValuesGrad":
                gathered = f"kv_grad = await model.scatterreduce(kv_grad, {one.layer}) gives each rank the slices that "
                gathered += "it had brought to the gather"
                to = rank.home_of(one.layer, one.batches, one.piece())
                ring = f"pass it on until it is back{to}"
                fix, fix_for = _home("bring it home first: ", gathered, ring)
                home = rank.a_step_less(one) or f"bring it home first: {ring}"
                left = partial(rank.own_not_received, one.layer, one.batches, own.piece(), home)
                fix_for = {**fix_for, RING: left}
                if begun := rank.began_with(one.layer, one.batches, own.piece()):
                    fix_for = {**fix_for, RING: begun}
            expected = f"{show_slices(own.piece())}"
            raise PuzzleError(problem, where=where, expected=expected, got=str(one), fix=fix, fix_for=fix_for)


def _home(begins: str, gathered: str, ring: str) -> tuple[str, Mapping[str, Fix]]:
    """Return what to do about keys and values, or their gradients, where they are gathered and where they go round a
    ring: in any puzzle, and in those whose rules allow one of the two."""
    fix = f"{begins}{gathered}; on a ring {ring}"
    return fix, {GATHERED: f"{begins}{gathered}", RING: f"{begins}{ring}"}


def _not_met(rank: Rank, one: Labels, unmet: Slices) -> tuple[str, Mapping[str, Fix]]:
    """Return what to do about queries, or their gradient, that have not met all keys that they see."""
    call = MEETS[one.kind][1]
    verb = call.partition("model.")[2].partition("(")[0]
    blocks = rank.blocks(verb, one.layer, one.batches)
    if one.kind == "Attended" and (times := rank.projected_again(one.layer, one.batches)) > 1:
        fix = f"project({one.layer}, ...) has run {times} times on this rank, and what it gives are new queries, "
        return f"{fix}which have attended to nothing: project once, before the steps", {}
    if not one.done()[0] and one.batches <= rank.has_run(verb, one.layer):
        return f"model.{verb} does not change the queries that it is given, it returns new ones: {call}", {}
    if one.done()[0] and not missing(unmet, reduce(both, blocks, NOTHING))[0]:
        fix = f"this rank has run {verb} with these as well, and what that gave is not in these queries: each of the "
        return f"{fix}{len(blocks)} begins with what the one before has given, so store that, {call}", {}
    if one.done()[0] and not missing(unmet, one.piece())[0]:
        return f"these are of this rank's own slice: {call} with its own keys and values, too", {}
    gathered = f"gather them, await model.allgather(kv, {one.layer})"
    ring = "they come from the other ranks, round the ring: one attend for each of these, before this"
    if len(blocks) == 1 and rank.passes_on("KeysValues", one.layer):
        step = "rest" if one.kind == "Attended" else "backward_project"
        ring += f". So far there is one {verb} in this layer: is {step} in the loop? It comes once, after that"
    return _home(f"{call} with the keys and values of these slices: ", gathered, ring)


def _complete(rank: Rank, where: Place, one: Labels) -> None:
    """Raise PuzzleError unless queries have met all keys that they see, or keys all queries that see them."""
    unmet = one.unmet()
    if not unmet[0]:
        return
    fix_for: Mapping[str, Fix]
    if one.kind == "KeysValuesGrad":
        problem = f"the gradient of keys and values lacks what the queries of {show_slices(unmet)} add to it"
        expected = "what every slice that sees them gives"
        gathered = f"kv_grad = await model.scatterreduce(kv_grad, {one.layer})"
        ring = "in each step add what has come with these keys to what this rank's queries give, kv_grad = kv_grad + "
        ring += "theirs, and pass on the sum; theirs = await model.receive(...) of the step before"
        fix, fix_for = _home("add up what all queries give: ", gathered, ring)
    else:
        problem = f"the queries have not {MEETS[one.kind][0]} {show_slices(unmet)}"
        expected = "every slice up to their own"
        fix, fix_for = _not_met(rank, one, unmet)
    none = rank.slices_of_none(one.layer, one.batches, unmet)
    if none[0]:
        problem += ", which no rank has projected" + f": {show_slices(none)}" * (none != unmet)
        fix = f"every slice needs a rank: inp.shard(model.rank, model.RANKS), and model.project({one.layer}, ...) of it"
        if len(one.shards) == 1:  # a slice of the front, and none of the back
            fix = f"{fix}; or two for each rank, one from the other end, .combine(inp.shard(2 * n - 1 - r, 2 * n))"
        fix_for = NO_OTHERS
    raise PuzzleError(problem, where=where, expected=expected, got=str(one), fix=fix, fix_for=fix_for)


def _once(rank: Rank, where: Place, queries: Labels, keys: Labels) -> None:
    """Raise PuzzleError where queries have met some of these keys before."""
    twice = in_both(queries.done(), seen(queries.piece(), keys.piece()))
    if twice[0]:
        problem = f"these queries have attended to {show_slices(twice)} before"
        fix = "let them attend to each slice of the keys once: all of them after a gather, or those that are here and "
        fix += "then what each receive brings"
        found = partial(_met_before, rank, queries, keys, fix)
        raise PuzzleError(problem, where=where, expected="other keys", got=str(keys), fix=found)


def _met_before(rank: Rank, queries: Labels, keys: Labels, own: str) -> str:
    """Return what to do about keys that queries have met before: their own ones back after a whole turn, or those of a
    neighbor that has sent them twice. Else which ranks have the same slices, or the ``own`` text."""
    came = rank.sender(keys)
    shared = _shared(rank, queries, "")
    if came is None or shared:
        return shared or own
    if keys.piece() == queries.piece():
        return (
            "these are this rank's own keys and values, back after a whole turn of the ring: n ranks have n attends in "
            "a layer, and n - 1 hops, so pass nothing on in the last step"
        )
    if rank.came_once(keys):
        return (
            "this rank has attended to these in the step before: in each step attend to what is here, its own keys "
            "first, then receive the next ones, so that the last ones that come have an attend, too"
        )
    return (
        f"rank {came[0]} has sent these keys and values twice: in each step pass on what came in the step before, kv = "
        "await model.receive(...), and not the first ones again"
    )


def _shared(rank: Rank, queries: Labels, own: str) -> str:
    """Return which ranks have the same slices of a sequence, or the ``own`` text where no two have."""
    if queries.total == 1:
        return f"these are queries of the whole sequence, as on every rank: {CUT}"
    return rank.share_slices(queries.layer, queries.batches) or own


def slices_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless all operands are of this layer, the same slices and the same micro-batches, the weight
    is whole and of step 0, and queries and keys have met all that they have to meet."""
    operands = {NAMES[one.kind]: one for one in labels}
    where = _check(rank, PROJECT.kind, layer, operands)
    _all_heads(where, operands)
    _same_slices(rank, where, operands)
    for one in labels:
        if KINDS[one.kind].meets:
            _complete(rank, where, one)


def block_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless queries and keys are of this layer and the same micro-batches, and these keys are new to
    these queries."""
    queries, keys = labels
    where = _check(rank, ATTEND.kind, layer, {NAMES[one.kind]: one for one in labels})
    _same_heads(where, queries, keys)
    _once(rank, where, queries, keys)


def _slice(labels: Sequence[Labels]) -> int | Fraction:
    """Return the share of the sequence that the first operand is."""
    return divided(len(labels[0].shards), labels[0].total)


def _block(labels: Sequence[Labels]) -> int | Fraction:
    """Return the share of all pairs of a query and a key that it sees which these have, in their heads."""
    heads, of_heads = labels[0].extra.heads
    pairs = share(labels[0].piece(), labels[1].piece())
    return pairs if of_heads == 1 else pairs * Fraction(len(heads), of_heads)


def _nothing_met(labels: Labels, kind: str) -> Labels:
    return labels.changed(kind=kind, extra=ExtraLabels(*NOTHING))


def _after(labels: Sequence[Labels]) -> Labels:
    """Return the labels of queries that have met some keys more."""
    queries, keys = labels
    met = both(queries.done(), seen(queries.piece(), keys.piece()))
    return queries.changed(extra=queries.extra._replace(parts=met[0], of=met[1]))


def _projected(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    inp = labels[0].coarse()
    return [_nothing_met(inp, "Attended"), inp.changed(kind="KeysValues", extra=NO_EXTRA)]


def _output(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    return [labels[0].coarse().changed(layer=layer + 1, extra=NO_EXTRA)]


def _attended_back(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    queries, keys = labels
    parts, of = seeing(keys.piece(), queries.piece())
    of_keys = keys.changed(kind="KeysValuesGrad", extra=keys.extra._replace(parts=parts, of=of))
    return [_after(labels), of_keys]


def _both_gradients(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    grad = labels[1].coarse()
    of_weight = of_batches("WeightGrad", layer, rank.layers, grad.batches, rank.batches)
    if grad.total != 1:
        of_weight = of_weight.changed(extra=ExtraLabels(grad.shards, grad.total))
    return [of_weight, grad.changed(layer=layer - 1, extra=NO_EXTRA)]


def _of(verb: str) -> Callable[[Values, Sequence[Value], More], Sequence[Value]]:
    """Return the value of an operation: what the arithmetic's method of that name makes of the operands."""

    def value(values: Values, given: Sequence[Value], more: More) -> Sequence[Value]:
        made = getattr(values, verb)(*given)
        return made if isinstance(made, tuple) else [made]

    return value


def _operands(*kinds: str) -> dict[str, str]:
    return {NAMES[kind]: kind for kind in kinds}


GRANTED = ("project",)
"""A puzzle grants all six steps by the name of the first."""

PROJECT = Computation(
    kind="project",
    code="P",
    word="projection",
    words=GRANTED,
    trains=True,
    takes=_operands("Activation", "Weight"),
    unless_given=(FORWARD.kind, 8),
    step_of=FORWARD.kind,
    share=_slice,
    rule=slices_rule,
    makes=_projected,
    value=_of("project"),
)

ATTEND = replace(
    PROJECT,
    kind="attend",
    code="A",
    word="attention",
    takes=_operands("Attended", "KeysValues"),
    unless_given=(FORWARD.kind, 4),
    share=_block,
    rule=block_rule,
    makes=lambda rank, layer, labels, more: [_after(labels)],
    value=_of("attend"),
)

REST = replace(
    PROJECT,
    kind="rest",
    code="R",
    word="rest of a layer",
    takes=_operands("Activation", "Weight", "Attended"),
    unless_given=(FORWARD.kind, Fraction(8, 5)),
    makes=_output,
    value=_of("rest"),
)

BACKWARD_REST = replace(
    REST,
    kind="backward_rest",
    code="BR",
    word="backward of the rest",
    backward=True,
    takes=_operands("Activation", "ActivationGrad", "Weight", "Attended"),
    unless_given=(BACKWARD.kind, 4),
    step_of=BACKWARD.kind,
    makes=lambda rank, layer, labels, more: [_nothing_met(labels[1].coarse(), "AttendedGrad")],
    value=_of("backward_rest"),
)

BACKWARD_ATTEND = replace(
    ATTEND,
    kind="backward_attend",
    code="BA",
    word="backward of attention",
    backward=True,
    takes=_operands("AttendedGrad", "KeysValues"),
    unless_given=(BACKWARD.kind, 4),
    step_of=BACKWARD.kind,
    makes=_attended_back,
    value=_of("backward_attend"),
)

BACKWARD_PROJECT = replace(
    BACKWARD_REST,
    kind="backward_project",
    code="BP",
    word="backward of the projection",
    takes=_operands("Activation", "ActivationGrad", "Weight", "AttendedGrad", "KeysValuesGrad"),
    unless_given=(BACKWARD.kind, 2),
    makes=_both_gradients,
    value=_of("backward_project"),
    weight_grads=True,
)

ROWS = (PROJECT, ATTEND, REST, BACKWARD_REST, BACKWARD_ATTEND, BACKWARD_PROJECT)
"""The three steps of a layer, and the three backwards."""
