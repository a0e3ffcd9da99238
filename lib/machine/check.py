"""Right or wrong: what the ranks end with, against plain training on one device."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from ..basics.arguments import one_of_names
from ..basics.errors import Place, PuzzleError, numbered, show_set
from ..record.labels import Labels
from ..record.rules.operands import AN_ADAPTER, NO_ADAPTER
from ..record.shards import union
from .fingerprints import Fingerprints, piece_of, trained_weights
from .interface import FinalState, Piece

BRIEFLY = {
    "no_final_weight": "layer {} has no final weight",
    "incomplete": "the final weight of layer {} is not complete",
    "not_updated": "the final weight of layer {} is not the updated one",
    "wrong_value": "the final weight of layer {} has a wrong value",
}
"""The rules that the check finds broken, in so few words that they fit under a title."""
Finals = Callable[[int, list[tuple[int, Piece]]], list[tuple[int, Piece]] | None]
"""What gives the final weights of a layer on all ranks, by those of the ranks that were run (``represent``). None where
they are as those of a layer before: then the others are right if these are."""
TRAINED = ("weights", "adapters", "muon")
"""What may be trained: the layers' own weights; adapters beside weights that stay as they are; or the weights, with
gradients that are orthogonalized first."""


def check_finals(
    states: Sequence[FinalState],
    train: str = TRAINED[0],
    everyone: Callable[[], Finals] | None = None,
    quiet: bool = False,
    tied: bool = False,
) -> bool:
    """Check every layer's final weights: of step 1, together complete, and right in value; or where ``train`` says
    "adapters" its final adapters, and that weights have stayed as they were. Return whether any of them is made up
    (whose value says nothing). Raise PuzzleError if anything is wrong. ``everyone`` gives the final weights of all
    ranks where these are the states of some. ``quiet``: the error lists all wrong layers, the ranks that have them, and
    whether copies of a piece agree."""
    one_of_names("train", train, TRAINED)
    adapters, of_all = train == TRAINED[1], everyone and everyone()
    layers, batches = states[0].layers, states[0].batches
    made_up, trained = False, trained_weights(layers, batches, adapters, train == TRAINED[2], states[0].tokens, tied)
    if adapters:
        _check_frozen(states)
    found = defaultdict[tuple[frozenset[int], str], list[int]](list)
    for layer in range(layers - tied):
        finals = [(state.rank, state.finals[layer]) for state in states if layer in state.finals]
        every = finals if of_all is None else of_all(layer, finals)
        if every is not None:
            _check_complete(layer, every, adapters)
            finals = every
        made_up = made_up or any(final.made_up for _, final in finals)
        pieces = [piece_of(final.labels) for _, final in finals]
        marks = [getattr(final.value, "mark", final.value) for _, final in finals]  # of real tensors it is in the value
        rows = zip(finals, pieces, marks, strict=True)
        wrong = {at: one for (at, one), piece, mark in rows if not one.made_up and mark != (trained[layer][0], piece)}
        if wrong and not quiet:
            rank, final = next(iter(wrong.items()))
            expected = "the weight of step 0, updated once with the gradient of every micro-batch exactly once"
            facts = {"what": "the final weight has a wrong value: it is"}
            raise _wrong("wrong_value", Place(rank, layer=layer), expected, final.labels, facts)
        if wrong:
            agree = "agree" if len({*zip(pieces, marks, strict=True)}) == len({*pieces}) else "differ"
            found[frozenset(wrong), f" (copies {agree})" * (len(pieces) > len({*pieces}))].append(layer)
    if found:
        listed = [f"{numbered('layer', own)} on {numbered('rank', ranks)}{how}" for (ranks, how), own in found.items()]
        what = f"the final weights of {' and of '.join(listed)} are"
        raise PuzzleError("wrong_value", where=Place(layer=min(map(min, found.values()))), line="", what=what)
    return made_up


def _wrong(rule: str, where: Place, expected: str, labels: Labels, facts: Mapping[str, str] = {}) -> PuzzleError:
    """Return the error of a weight that a rank ends with."""
    return PuzzleError(rule, where=where, expected=expected, got=str(labels), operands=[labels], line="", **facts)


def _check_complete(layer: int, finals: Sequence[tuple[int, Piece]], adapters: bool) -> None:
    """Raise PuzzleError unless these are weights of a layer, or its adapter, after one step, and together all of it."""
    for rank, final in finals:
        labels = final.labels
        where = Place(rank, layer=layer, detail="final weight")
        if labels.adapter != adapters:
            where, own = where._replace(layer=labels.layer), "adapter" if adapters else "weight"
            raise _wrong(
                "adapter_or_weight", where, f"the updated {own}", labels, NO_ADAPTER if adapters else AN_ADAPTER
            )
        if labels.kind != "Weight" or labels.layer != layer or labels.step != 1:
            raise _wrong("not_updated", where, f"a Weight with layer={layer}, step=1", labels)
    (have, total), _ = union(tuple((final.labels.shards, final.labels.total) for _, final in finals))
    where = Place(layer=layer)
    if not finals:
        raise PuzzleError("no_final_weight", where=where, expected="one for every layer", line="")
    if len(have) < total:
        expected = "all ranks' shards together make the whole weight"
        got = f"shards {show_set(frozenset(range(total)) - have)} of {total} are missing"
        facts = {"what": "the final weight", "part": "not complete"}
        raise PuzzleError("incomplete", where=where, expected=expected, got=got, line="", **facts)


def _check_frozen(states: Sequence[FinalState]) -> None:
    """Raise PuzzleError for a weight that is stored at the end and is not as it was at the beginning."""
    began = Fingerprints()
    for state in states:
        for labels, value, made_up in state.kept:
            if labels.kind == "Weight" and not labels.adapter and not made_up:
                mark = getattr(value, "mark", value)
                if labels.step or mark != (began.weight(labels)[0], piece_of(labels)):
                    where, expected = Place(state.rank, layer=labels.layer), "the weight as it was loaded, of step 0"
                    raise _wrong("frozen_changed", where, expected, labels)
