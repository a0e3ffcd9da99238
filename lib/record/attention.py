"""A layer in three steps, for slices of a sequence, and backwards in three: what each insists on, and makes.

A layer is attention and a rest. ``project`` makes queries that have attended to nothing yet, keys and values;
``attend`` lets queries attend to some keys; ``rest`` does all else, once the queries have attended to every key that
they see. Backwards it is ``backward_rest``, ``backward_attend`` for each of these blocks, ``backward_project``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from ..basics.errors import Place, PuzzleError, show_set
from ..basics.units import divided
from .causal import NOTHING, both, in_both, seeing, seen, share, show_heads, show_slices
from .kinds import KINDS
from .labels import NO_EXTRA, ExtraLabels, Labels
from .operations import Computation, More, Rank, Value, Values
from .rules.operands import batches_mismatch, layer_mismatch, named_right, weight_fits
from .training import BACKWARD, FORWARD

MEETS = {"Attended": "attended to", "AttendedGrad": "gone back to"}
"""How queries meet keys, in words."""
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
        if one.kind == "Weight":
            weight_fits(rank, where, layer, one, False)
        elif one.layer != layer:
            raise layer_mismatch(name, where, layer, one)
        elif one.batches != first.batches:
            expected = f"micro-batches {show_set(first.batches)}"
            raise batches_mismatch(f"{next(iter(labels))} and {name}", where, expected, one)
        elif one.kind in ("Activation", "ActivationGrad") and one.extra.of != 1:
            expected, facts = "a slice of the sequence", {"what": name, "part": "not the whole sum"}
            raise PuzzleError("incomplete", where=where, expected=expected, got=str(one), **facts)
    return where


def _all_heads(where: Place, labels: dict[str, Labels]) -> None:
    """Raise PuzzleError for a tensor of some heads of attention only."""
    for name, one in labels.items():
        if one.of_heads != 1:
            expected = f"all heads, of {show_slices(next(iter(labels.values())).piece())}"
            got, part = str(one), "of some heads only"
            raise PuzzleError("incomplete", where=where, expected=expected, got=got, what=name, part=part)


def _same_slices(where: Place, labels: dict[str, Labels]) -> None:
    """Raise PuzzleError unless all but the weight are the same slices of the sequence."""
    (first, own), *others = [(name, one) for name, one in labels.items() if one.kind != "Weight"]
    for name, one in others:
        if one.piece() != own.piece():
            expected = show_slices(own.piece())
            facts = {"what": f"{first} and {name}", "labels": "slices"}
            raise PuzzleError("mismatch", where=where, expected=expected, got=str(one), **facts)


def _complete(where: Place, one: Labels) -> None:
    """Raise PuzzleError unless queries have met all keys that they see, or keys all queries that see them."""
    unmet = one.unmet()
    if unmet[0] and one.kind == "KeysValuesGrad":
        what, part = "the gradient of keys and values", f"what the queries of {show_slices(unmet)} add to it"
        expected = "what every slice that sees them gives"
        raise PuzzleError("missing_part", where=where, expected=expected, got=str(one), what=what, part=part)
    if unmet[0]:
        expected, met = "every slice up to their own", MEETS[one.kind]
        raise PuzzleError(
            "missing_keys", where=where, expected=expected, got=str(one), met=met, slices=show_slices(unmet)
        )


def slices_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless all operands are of this layer, the same slices and the same micro-batches, the weight
    is whole and of step 0, and queries and keys have met all that they have to meet."""
    operands = {NAMES[one.kind]: one for one in labels}
    where = _check(rank, PROJECT.kind, layer, operands)
    _all_heads(where, operands)
    _same_slices(where, operands)
    for one in labels:
        if KINDS[one.kind].meets:
            _complete(where, one)


def block_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless queries and keys are of this layer, the same micro-batches and the same heads, and these
    keys are new to these queries."""
    queries, keys = labels
    where = _check(rank, ATTEND.kind, layer, {NAMES[one.kind]: one for one in labels})
    if queries.extra.heads != keys.extra.heads:
        own, others = show_heads(queries.extra.heads), show_heads(keys.extra.heads)
        facts = {"what": f"{NAMES[queries.kind]} and kv", "labels": "heads"}
        raise PuzzleError("mismatch", where=where, expected=f"keys and values of {own}", got=others, **facts)
    twice = in_both(queries.done(), seen(queries.piece(), keys.piece()))
    if twice[0]:
        what = f"{show_slices(twice)} of the keys"
        raise PuzzleError("counted_twice", where=where, expected="keys not attended to", got=str(keys), what=what)


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


def _attended_back(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    queries, keys = labels
    parts, of = seeing(keys.piece(), queries.piece())
    of_keys = keys.changed(kind="KeysValuesGrad", extra=keys.extra._replace(parts=parts, of=of))
    return [_after(labels), of_keys]


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
    makes=lambda rank, layer, labels, more: FORWARD.makes(rank, layer, labels, {"sliced": True}),
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
    makes=lambda rank, layer, labels, more: BACKWARD.makes(rank, layer, labels, {"sliced": True}),
    value=_of("backward_project"),
    weight_grads=True,
)

ROWS = (PROJECT, ATTEND, REST, BACKWARD_REST, BACKWARD_ATTEND, BACKWARD_PROJECT)
"""The three steps of a layer, and the three backwards."""
