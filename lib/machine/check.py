"""Right or wrong: what the ranks end with, against plain training on one device."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from ..basics.errors import PuzzleError, show_set
from ..record.labels import Labels, refined
from .rank_state import Closing, Piece
from .values import trained_weights


def check_finals(closings: Sequence[Closing]) -> bool:
    """Every layer's final weights: of step 1, together complete, and right in value.

    Gives whether any of them is made up (whose value says nothing). Raises PuzzleError if anything is wrong.
    """
    layers, batches = closings[0].layers, closings[0].batches
    made_up = False
    for layer in range(layers):
        finals = [(closing.rank, closing.finals[layer]) for closing in closings if layer in closing.finals]
        for rank, final in finals:
            _check_labels(rank, layer, final.labels)
        missing = missing_shards([final.labels for _, final in finals])
        if missing:
            shards, total = missing
            raise PuzzleError(
                "the final weight is not complete" if finals else "no rank has set a final weight",
                where=f"layer {layer}",
                expected="all ranks' shards together make the whole weight" if finals else "one for every layer",
                got=f"shards {show_set(shards)} of {total} are missing" if finals else "",
                cure=f"after update: model.set_final_weight({layer}, weight)",
                line="",
            )
        for rank, final in finals:
            made_up = made_up or final.made_up
            mark = getattr(final.value, "mark", final.value)  # with real tensors the fingerprint is in the value
            if not final.made_up and mark != trained_weights(layers, batches)[layer]:
                raise _wrong_value(rank, layer, final)
    return made_up


def missing_shards(parts: Sequence[Labels]) -> tuple[frozenset[int], int] | None:
    """The shards that the parts together lack, and of how many; None if they make the whole."""
    forms = {(part.shards, part.total) for part in parts}
    total = lcm(*(total for _, total in forms))
    have: set[int] = set()
    for shards, form in forms:
        have |= refined(shards, form, total)
    return (frozenset(range(total)) - have, total) if len(have) < total else None


def _check_labels(rank: int, layer: int, labels: Labels) -> None:
    if labels.kind != "Weight" or labels.layer != layer or labels.step != 1:
        raise PuzzleError(
            "that is no weight of this layer after one optimizer step",
            where=f"rank {rank}, final weight of layer {layer}",
            expected=f"a Weight with layer={layer}, step=1",
            got=str(labels),
            cure=f"weight, opt_state = model.update({layer}, ...); model.set_final_weight({layer}, weight)",
            line="",
        )


def _wrong_value(rank: int, layer: int, final: Piece) -> PuzzleError:
    return PuzzleError(
        "the final weight has a wrong value: it is not what plain training on one device gives",
        where=f"rank {rank}, layer {layer}",
        expected="the weight of step 0, updated once with the gradient of every micro-batch exactly once",
        got=str(final.labels),
        cure="look for a micro-batch that counts twice or not at all, a reduction over the wrong group, "
        "or a state or weight that went stale",
        line="",
    )
