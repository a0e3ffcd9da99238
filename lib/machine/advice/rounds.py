"""Stages that go round the ranks: rounds of micro-batches, and the forwards that come before the first backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...basics.errors import numbered
from ...record.shards import NONE
from ...record.training import BACKWARD, FORWARD
from ..past.asked import Asked
from ..past.own import Step

SEVERAL_KINDS = "several_kinds"
"""The rule of a puzzle in which a learner chooses the pipelines."""


def against_rounds(ranks: Mapping[int, Asked], waiting: Mapping[int, int | None]) -> str:
    """Return in what the ranks depart from interleaved 1F1B: how the layers are dealt, how large a round is, or how
    many forwards come before the first backward. ``waiting``: those that want a gradient or what a gradient is made
    of, or wait for a message; with the rank that it is to come from, if any."""
    if len(ranks) < 2 or any(one.layers % len(ranks) or one.is_host for one in ranks.values()):
        return ""
    return ranks[min(ranks)].dealt_otherwise() or _other_rounds(ranks) or _too_few(ranks, waiting) or _too_many(ranks)


def of_its_pipeline(rank: Asked) -> str:
    """Return in what a rank that looks for what a backward reads departs from interleaved 1F1B, where it is one stage
    of several pipelines whose layers are dealt out to their stages like cards; or an empty text."""
    pipeline = _pipeline_of(rank)
    waiting = {stage: None for stage, one in pipeline.items() if one is rank}
    return _of_stages(_other_rounds(pipeline) or _too_few(pipeline, waiting))


def rounds_of_its_pipeline(rank: Asked) -> str:
    """Return which rank of such a pipeline takes too few or too many micro-batches through its first layer before it
    goes on to its next one, or does too many forwards before its first backward, or an empty text."""
    pipeline = _pipeline_of(rank)
    return _of_stages(_other_rounds(pipeline) or _too_many(pipeline))


def _pipeline_of(rank: Asked) -> Mapping[int, Asked]:
    """Return the ranks with the same micro-batches as this one by their stages, where several pipelines have their
    layers dealt out to their stages like cards; nothing where that is not so."""
    ranks, own = rank.ranks, rank.trained_on()
    stages = dict(enumerate(sorted(one for one in ranks if own & ranks[one].trained_on())))
    size = len(stages)
    if size < 2 or size == len(ranks):
        return {}
    for stage, one in stages.items():
        if ranks[one].layers % size or ranks[one].layers_loaded() != {*range(stage, ranks[one].layers, size)}:
            return {}
    return {stage: ranks[one] for stage, one in stages.items()}


def _of_stages(said: str) -> str:
    """Return what is said of a pipeline of all ranks as a sentence on one of several pipelines."""
    return said.replace("model.RANKS", "stages").replace("there are ranks", "there are stages")


def _other_rounds(ranks: Mapping[int, Asked]) -> str:
    """Return which rank takes too few or too many micro-batches through its first layer before it goes on to its next
    one."""
    if skipped := _begins_late(ranks):
        return skipped
    for _, one in sorted(ranks.items()):
        for verb, steps in ((FORWARD.kind, one.forwards()), (BACKWARD.kind, one.backwards())):
            took, then = first_round(steps)
            if then is not None and took not in rounds_of(len(ranks)):
                return round_in_words(one.rank, verb, steps, len(ranks), one.batches)
    return ""


def _begins_late(ranks: Mapping[int, Asked]) -> str:
    """Return that the first micro-batch of a pipeline has been left out, where its first rank begins with a later one;
    or an empty text."""
    for _, one in sorted(ranks.items()):
        layer, batches = next(iter(one.forwards()), (None, NONE))
        first = min(batches, default=0)
        everyone = one.ranks.values()
        if layer == 0 and first and not any(first - 1 in other.has_run(FORWARD.kind, 0) for other in everyone):
            if len(one.ranks) < one.mesh.everyone or any(
                min(other.trained_on(), default=first) < first for other in everyone
            ):
                return ""
            begins = (
                f"rank {one.rank} begins with forward(0, ...) of micro-batch {first}, and micro-batch {first - 1} has "
            )
            begins += (
                "gone through on no rank: does its first loop, or the count of its turns, begin at 1, and not at 0? "
            )
            return f"{begins}range(1, n) leaves out 0"
    return ""


def rounds_of(size: int) -> range:
    """Return how many micro-batches may go through a layer before the next one: one more in the first round helps."""
    return range(size, size + 2)


def round_in_words(rank: int, verb: str, steps: Sequence[Step], size: int, batches: int) -> str:
    """Return how many micro-batches a rank takes through its first layer before the next one, and that a round has as
    many as there are ranks, which is the ``size``."""
    took, then = first_round(steps)
    all_of_them = batches > size and took == batches
    first = min(steps[0][1], default=0)
    many, layer = "all micro-batches" if all_of_them else f"{took} micro-batch{'es' * (took > 1)}", steps[0][0]
    said = f"rank {rank} takes {many} through {verb}(layer {layer}) before {verb}(layer {then}): a round is as many "
    said += f"micro-batches as there are ranks, {size}. Take {numbered('micro-batch', range(first, first + size))} "
    return f"{said}through layer {layer}, then the same ones through layer {then}, and so on, and then the next round"


def first_round(steps: Sequence[Step]) -> tuple[int, int | None]:
    """Return how many micro-batches go through the first layer of these steps before another one, and which layer is
    that, if there is one."""
    for at, (layer, _) in enumerate(steps):
        if layer != steps[0][0]:
            return at, layer
    return len(steps), None


def _too_many(ranks: Mapping[int, Asked]) -> str:
    """Return which rank has done more forwards before its first backward than it needs, where others have begun theirs:
    they wait for its backwards, and it for their forwards."""
    size = len(ranks)
    for stage, one in sorted(ranks.items()):
        chunks, done = one.layers // size, len(one.forwards())
        enough = (chunks - 1) * size + 1 + 2 * (size - 1 - stage)
        begun = any(other.backwards() for other in ranks.values())
        if begun and chunks > 1 and enough < done < chunks * len(one.trained_on()) and not one.backwards():
            said = f"rank {one.rank} has done {done} forwards and no backward, and {enough} come before its first one: "
            return f"{said}(len(mine) - 1) * model.RANKS + 1 on the last rank, and on each rank before it two more"
    return ""


def not_by_turns(ranks: Mapping[int, Asked]) -> str:
    """Return which rank begins its backwards after fewer forwards than in interleaved 1F1B, or does two of a kind one
    after the other from then on, so that messages come in another order than they are read; or an empty text."""
    size = len(ranks)
    for stage, one in sorted(ranks.items()):
        chunks, letters = one.layers // size, {FORWARD.kind: "f", BACKWARD.kind: "b"}
        before, begun, then = "".join(letters.get(step.kind, "") for step in one.log).partition("b")
        enough = min((chunks - 1) * size + 1 + 2 * (size - 1 - stage), chunks * one.batches)
        if chunks > 1 and begun and len(before) < enough:
            said = f"rank {one.rank} begins its first backward after {len(before)} forwards, and {enough} come first: "
            return f"{said}(len(mine) - 1) * model.RANKS + 1 on the last rank, and on each rank before it two more"
        left = len(before) + then.count("f") < chunks * one.batches
        by_turns = begun + (then if left else then[: then.rfind("f") + 1])
        if chunks > 1 and not one.has_tasks() and ("ff" in by_turns or "bb" in by_turns):
            row = "backwards" if "bb" in by_turns else "forwards"
            said = (
                f"rank {one.rank} does {row} one after the other while it has forwards left: after its first backward "
            )
            return f"{said}each rank does one forward and one backward by turns"
    return ""


def _too_few(ranks: Mapping[int, Asked], waiting: Mapping[int, int | None]) -> str:
    """Return which rank begins its backward after too few forwards."""
    size = len(ranks)
    if any(peer == (rank + 1) % size and not ranks[rank].forwards() for rank, peer in waiting.items() if size > 2):
        return ""  # who has run nothing wants no gradient, and asks the wrong neighbor
    for rank, peer in sorted(waiting.items()):
        done = len(ranks[rank].forwards())
        if peer == (rank - 1) % size and size > 2 and done == ranks[rank].layers // size * ranks[rank].batches:
            said = (
                f"rank {rank} has done all of its {done} forwards, of {numbered('layer', ranks[rank].layers_run())}, "
            )
            said += "and waits for the input of one more: do a forward only as long as one is left, and then backwards "
            return f"{said}alone"
    for rank, peer in sorted(waiting.items()):
        one = ranks[rank]
        chunks, done = one.layers // size, len(one.forwards())
        least = (chunks - 1) * size + 1
        wants_gradient, back = peer is None or (size > 2 and peer == (rank + 1) % size), len(one.backwards())
        if peer is None and 0 < back < size and done < least + back:
            turns = "after its first backward each rank does one forward and one backward by turns"
            said = f"rank {one.rank} comes to backward number {back + 1} after {done} forwards"
            return f"{said}, which is too soon: {turns}"
        row, then = first_round(one.backwards())
        if peer is None and then is None and back == row == size and chunks > 1 and done < one.batches * chunks:
            layer = one.backwards()[0][0]
            said = f"rank {one.rank} has taken {row} micro-batches back through layer {layer}, and none through layer "
            said += f"{layer - size}: as many as there are ranks, a round, go back through one layer"
            return f"{said}, then the same ones through the one before"
        took, then = first_round(one.forwards())
        if peer is None and not back and then is None and took > size and chunks > 1:
            layer = one.forwards()[0][0]
            said = f"rank {one.rank} has taken {took} micro-batches through layer {layer}, none through layer "
            said += f"{layer + size}: a round is as many micro-batches as there are ranks, {size}, through one layer"
            return f"{said}, then the same ones through the next"
        if wants_gradient and done < least and not back:
            said = f"rank {one.rank} begins its first backward after {done} forward{'s' * (done != 1)}, which is too "
            said += (
                f"soon: a micro-batch goes round the ranks {chunks} times before that, and {size} of them, a round, go "
            )
            said += "through each stage before the next one. More forwards have to come before: the last rank needs "
            said += f"(len(mine) - 1) * model.RANKS + 1, here {least}, and each rank before it two more than the next"
            return said
        after, enough = ranks.get(rank + 1), least + 2 * (size - 1 - rank)
        waits = after is not None and waiting.get(rank + 1) == rank and not after.backwards()
        if wants_gradient and waits and done < enough and not back:
            said = f"rank {rank} begins its first backward after {done} forwards, while rank {rank + 1} waits for one "
            return f"{said}more from it: let each rank do two forwards more than the next one before that"
    return ""
