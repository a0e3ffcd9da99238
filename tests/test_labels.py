"""Laws of shards and tensors."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Activation, ActivationGrad, OptState, PuzzleError, Weight, WeightGrad
from lib.machine.check import check_finals
from lib.machine.interface import FinalState, Piece
from lib.record.labels import FINEST, Labels, coarsest, cut, join, union


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_cut_and_join_are_inverse(total: int, pieces: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, total - 1))
    stop = data.draw(st.integers(start + 1, total))
    shards, coarse = coarsest(frozenset(range(start, stop)), total)
    part = Labels("Weight", 0, 1, 0, shards=shards, total=coarse)
    cuts = [cut(part, index, pieces) for index in range(pieces)]
    assert join(data.draw(st.permutations(cuts)), "") == part


def test_a_shard_of_a_shard() -> None:
    weight = Weight(0, 2, 0)
    piece = weight.shard(2, 4).shard(1, 2)
    assert (piece.shards, piece.total) == ({5}, 8)
    joined = weight.shard(4, 8).combine(weight.shard(5, 8))
    assert (joined.shards, joined.total) == ({2}, 4)
    assert joined.memory() == 512 * 512 // 4


def test_any_iterable_is_kept_as_a_frozenset() -> None:
    assert Weight(0, 2, 0, [0, 1], 4).shards == frozenset({0, 1})
    assert Activation(0, 2, range(3), 4).batches == frozenset({0, 1, 2})
    assert WeightGrad(1, 2, iter([0]), 4).batches == frozenset({0})


def test_sizes_are_exact() -> None:
    third = Weight(0, 2, 0, {1}, 3)
    assert third.memory() * 3 == 512 * 512
    assert OptState(0, 2, 0).memory() == 512 * 512
    assert Activation(0, 2, [0, 1], 4).memory() == ActivationGrad(0, 2, [2, 3], 4).memory() == 2 * 512 * 256
    assert WeightGrad(0, 2, [], 4).memory() == 0
    assert Weight(0, 2, 0).is_complete() and not third.is_complete()


def test_gradients_add_up_once() -> None:
    grads = [WeightGrad(0, 2, [batch], 4) for batch in range(4)]
    assert sum(grads).batches == frozenset(range(4))  # type: ignore[union-attr]
    with pytest.raises(PuzzleError, match="count twice"):
        sum(grads) + grads[1]
    with pytest.raises(PuzzleError, match="different layers"):
        grads[0] + WeightGrad(1, 2, [1], 4)
    assert (grads[0] + WeightGrad(0, 2, [], 4)).batches == {0}


def test_equal_by_labels_also_when_copied() -> None:
    weight = Weight(0, 2, 0, {0, 1}, 4)
    assert weight == Weight(0, 2, 0, {0}, 2) and hash(weight) == hash(Weight(0, 2, 0, {0}, 2))
    assert copy.deepcopy(weight) == weight == pickle.loads(pickle.dumps(weight))
    assert weight != OptState(0, 2, 0, {0, 1}, 4)
    assert not issubclass(ActivationGrad, Activation)
    assert repr(weight) == "Weight(layer=0, layers=2, step=0, shards={0, 1}, total=4)"


def test_the_micro_batches_that_count_twice_are_named_and_no_others() -> None:
    one, other = WeightGrad(0, 2, [0, 1, 2], 4), WeightGrad(0, 2, [1, 3], 4)
    with pytest.raises(PuzzleError, match=r"^\+: micro-batch 1 is in more than one of them"):
        one + other


def test_no_tensor_is_cut_finer_than_the_finest() -> None:
    assert Weight(0, 2, 0).shard(FINEST - 1, FINEST).total == FINEST
    with pytest.raises(PuzzleError, match="at most 65,536 pieces"):
        Weight(0, 2, 0).shard(0, FINEST + 1)


@pytest.mark.parametrize(
    ("labels", "fits"),
    [
        ({}, True),
        ({"kind": "OptState"}, False),
        ({"layer": 1}, False),
        ({"step": 0}, False),
    ],
)
def test_a_final_weight_is_a_weight_of_its_layer_after_one_step(labels: dict[str, Any], fits: bool) -> None:
    final = Labels("Weight", 0, 1, step=1)._replace(**labels)
    state = FinalState(0, 1, 1, (), (), (), {0: Piece(final, None, True)})
    if fits:
        assert check_finals([state])  # made up, which says nothing of its value
    else:
        with pytest.raises(PuzzleError, match="no weight of this layer after one optimizer step"):
            check_finals([state])


def test_a_union_of_many_fine_parts_takes_no_more_than_two_of_them() -> None:
    """Beside one of 65,536 pieces each of these parts is written out, and not all of them at once."""
    parts = [(frozenset(range(at, 64, 2)), 64) for at in range(2)] * 40
    tracemalloc.start()
    (shards, total), disjoint = union((*parts, (frozenset({0}), 65536)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (shards, total, disjoint) == (frozenset({0}), 1, False)
    assert peak < 40e6
