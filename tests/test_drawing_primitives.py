"""What collectives do, as pictures of what a run did."""

import pytest

from drawing import draw_primitive
from drawing.small.primitives import primitives
from lib import Cost, PuzzleError
from lib.record.experts import ALLTOALL
from lib.record.table import collective, in_stream
from tests.drawing_events import outside, texts, titles


@pytest.mark.parametrize("kind", primitives())
def test_the_picture_keeps_inside_and_has_words(kind: str) -> None:
    figure = draw_primitive(kind)
    assert outside(figure) == []
    assert {"before", "after", "rank 0", "rank 1"} <= set(texts(figure))
    assert len(figure.svg()) < 26_000


def test_all_reduce_gives_everyone_the_sum() -> None:
    said = titles(draw_primitive("allreduce", ranks=3))
    for rank in range(3):
        assert any(f"complete, micro-batch {rank} of 3" in title for title in said)
    assert sum("complete, micro-batches 0-2 of 3" in title for title in said) == 3


def test_all_gather_gives_everyone_the_whole() -> None:
    said = titles(draw_primitive("allgather"))
    assert [title for title in said if "shard" in title] == [
        f"weight of layer 0 of 1, shard {rank} of 4, step 0: 65,536 elements" for rank in range(4)
    ]
    assert sum("complete, step 0: 262,144" in title for title in said) == 4


def test_reduce_scatter_gives_everyone_a_piece_of_the_sum() -> None:
    said = titles(draw_primitive("scatterreduce"))
    for rank in range(4):
        assert f"weight gradient of layer 0 of 1, shard {rank} of 4, micro-batches 0-3 of 4: 65,536 elements" in said


OF_ACTIVATIONS = {
    "allreduce": ("layer 1 of 1, partial sum {} of 4", "layer 1 of 1, micro-batch 0 of 1: 131,072"),
    "scatterreduce": ("layer 1 of 1, partial sum {} of 4", "layer 1 of 1, slice {} of 4, micro-batch 0 of 1: 32,768"),
    "allgather": ("layer 0 of 1, slice {} of 4", "layer 0 of 1, micro-batch 0 of 1: 131,072"),
    "alltoall": ("layer 0 of 1, slice {} of 4", "layer 0 of 1, part {} of 4 of the heads, micro-batch 0 of 1: 65,536"),
}


@pytest.mark.parametrize("kind", [kind for kind in in_stream("collective") if collective(kind).of_activations])
def test_a_collective_of_activations_adds_up_partial_sums_joins_slices_or_makes_heads(kind: str) -> None:
    figure = draw_primitive(kind, activations=True)
    before, after = figure.summary.split(" after: ")
    brought = "keys and values" if kind == ALLTOALL.kind else "activation"
    for rank in range(4):
        for said, words in zip((before, after), OF_ACTIVATIONS[kind], strict=True):
            assert f"rank {rank}: {brought} of {words.format(rank)}" in said
    assert outside(figure) == []


def test_what_has_no_activations_is_drawn_as_ever() -> None:
    assert draw_primitive("pass_to", activations=True).summary == draw_primitive("pass_to").summary


def test_a_send_moves_a_tensor() -> None:
    figure = draw_primitive("pass_to")
    assert figure.summary.endswith(
        "before: rank 0: activation of layer 0 of 1, micro-batch 0 of 2: 131,072 elements; rank 1: nothing. "
        "after: rank 0: nothing; rank 1: activation of layer 0 of 1, micro-batch 0 of 2: 131,072 elements."
    )


def test_times_are_those_of_the_machine() -> None:
    assert (Cost().collective, Cost().send) == (0.3, 0.2)
    assert "0.3 ticks; each rank takes part with 65,536 elements" in texts(draw_primitive("allgather"))
    assert "0.2 ticks on each side, 131,072 elements" in texts(draw_primitive("pass_to"))


def test_an_unknown_one_is_refused_with_the_known() -> None:
    with pytest.raises(PuzzleError, match="no such primitive") as caught:
        draw_primitive("teleport")
    assert "allgather" in caught.value.expected


@pytest.mark.parametrize("ranks", [0, 1, 17, 2.0, None, True])
def test_a_machine_that_has_no_room_is_refused(ranks: object) -> None:
    with pytest.raises(PuzzleError, match="no such machine"):
        draw_primitive("allgather", ranks=ranks)  # type: ignore[arg-type]
