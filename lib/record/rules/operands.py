"""What a weight, an input and a gradient have to be, whatever reads them: whole, of their layer, not yet updated."""

from collections.abc import Collection, Mapping
from typing import Any

from ...basics.arguments import one_of
from ...basics.errors import Place, PuzzleError, show_set
from ..labels import Labels
from ..operations import Rank

STEP_ZERO = "of step 0, for every micro-batch of the batch"
AN_ADAPTER = {"given": "an adapter", "wanted": "the layer's own weight"}
NO_ADAPTER = {"given": "the layer's own weight", "wanted": "an adapter"}


def named_right(rank: Rank, where: Place, layer: int, layers: Mapping[str, int]) -> None:
    """Raise PuzzleError if all operands are of one layer, and that is not the one that is named."""
    others = set(layers.values())
    if layer is None or isinstance(layer, str):
        one_of("layer", layer, rank.layers, where._replace(layer=None))
    if layer not in others and len(others) == 1:
        (own,), (*first, last) = others, layers
        what, expected, got = f"{', '.join(first)} and {last} are", f"layer {layer}", f"layer {own}"
        raise PuzzleError("layer_mismatch", where=where, expected=expected, got=got, what=what, layer=own)


def is_whole(name: str, where: Place, labels: Labels, more: Collection[str]) -> None:
    """Raise PuzzleError for a sum that lacks partial sums, and for slices of a sequence, unless a call says that it
    takes them, and nothing else."""
    if labels.of != 1:
        got, expected = f"partial sum {show_set(labels.parts)} of {labels.of}", "all partial sums, added up"
    elif labels.total != 1 and [*more] != ["sliced"]:
        got, expected = f"slice {show_set(labels.shards)} of {labels.total}", "the whole sequence"
    else:
        return
    part = "a slice of the sequence" if labels.of == 1 else "not the whole sum"
    raise PuzzleError("incomplete", where=where, expected=expected, got=got, what=f"the {name}", part=part)


def adapter_fits(rank: Rank, where: Place, layer: int, adapter: Labels, partial: bool) -> None:
    """Raise PuzzleError unless this is the complete adapter of the layer, not yet updated, of a layer that is computed
    as a whole."""
    if partial:
        problem, expected = "a layer that is computed in pieces takes no adapter", "partial=True or adapter=..."
        raise PuzzleError(problem, where=where, expected=f"{expected}, and not both")
    if not adapter.adapter:
        expected, got = "a Weight with adapter=True", str(adapter)
        raise PuzzleError("adapter_or_weight", where=where, expected=expected, got=got, **NO_ADAPTER)
    if adapter.layer != layer:
        raise layer_mismatch("the adapter", where, layer, adapter)
    _is_ready(rank, "the adapter", where, adapter, complete=True)


def weight_fits(rank: Rank, where: Place, layer: int, weight: Labels, partial: bool) -> None:
    """Raise PuzzleError unless this is the layer's own weight, not yet updated, and complete unless ``partial``."""
    if weight.adapter:
        expected = f"the weight of layer {layer}, and beside it its adapter"
        raise PuzzleError("adapter_or_weight", where=where, expected=expected, got=str(weight), **AN_ADAPTER)
    if weight.layer != (own := weight_of(rank, layer)):
        raise layer_mismatch("the weight", where, own, weight)
    _is_ready(rank, "the weight", where, weight, complete=not partial)


def weight_of(rank: Rank, layer: int) -> int:
    """Return whose weight a layer uses: its own, or the last one that of layer 0, where they are tied."""
    return 0 if rank.tied and layer == rank.layers - 1 else layer


def _is_ready(rank: Rank, what: str, where: Place, weight: Labels, complete: bool) -> None:
    """Raise PuzzleError unless a weight, or an adapter, is not yet updated, and ``complete`` if it has to be."""
    if complete and not weight.is_whole():
        expected = f"all shards of {what} of layer {weight.layer}"
        got, part = str(weight), "not complete"
        raise PuzzleError("incomplete", where=where, expected=expected, got=got, what=what, part=part)
    if weight.step and rank.graded:
        expected = f"{what} {STEP_ZERO}"
        raise PuzzleError("updated_before", where=where, expected=expected, got=str(weight), what=what)


def layer_mismatch(what: str, where: Place, layer: object, labels: Labels, expected: str = "") -> PuzzleError:
    """Return the error of an operand of another layer than its operation. ``what``: what it is called there."""
    expected, got, own = expected or f"layer {layer}", str(labels), labels.layer
    facts: dict[str, Any] = {"what": f"{what} is that", "layer": own}
    return PuzzleError("layer_mismatch", where=where, expected=expected, got=got, operands=[labels], **facts)


def batches_mismatch(what: str, where: Place, expected: str, labels: Labels) -> PuzzleError:
    """Return the error of an operand of other micro-batches than another one. ``what``: both of them."""
    got = show_set(labels.batches)
    facts = {"what": what, "labels": "micro-batches"}
    return PuzzleError("mismatch", where=where, expected=expected, got=got, operands=[labels], **facts)
