"""Laws of shards and tensors."""

import copy
import pickle
import tracemalloc
from fractions import Fraction
from math import lcm
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import Activation, ActivationGrad, OptState, PuzzleError, Saved, Tokens, Weight, WeightGrad
from lib.machine.check import check_finals
from lib.machine.interface import FinalState, Piece
from lib.record.labels import OF_ADAPTER, Labels, cut, join, overlap, same_pieces, total_of, within
from lib.record.shards import FINEST, coarsest, union


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_cut_and_join_are_inverse(total: int, pieces: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, total - 1))
    stop = data.draw(st.integers(start + 1, total))
    shards, coarse = coarsest(frozenset(range(start, stop)), total)
    part = Labels("Weight", 0, 1, 0, shards=shards, total=coarse)
    cuts = [cut(part, index, pieces) for index in range(pieces)]
    assert join(data.draw(st.permutations(cuts)), "") == part


FINE = lcm(*range(1, 9))
"""Into so many points a whole can be cut that every piece of an eighth, a seventh ... is some of them."""


@st.composite
def parts(draw: st.DrawFn) -> Labels:
    """Some of the pieces that a whole is cut into, however they are written."""
    total = draw(st.integers(1, 8))
    shards = draw(st.frozensets(st.integers(0, total - 1), min_size=1))
    return Labels("Weight", 0, 1, shards=shards, total=total)


def points(part: Labels) -> set[int]:
    size = FINE // part.total
    return {shard * size + point for shard in part.shards for point in range(size)}


@settings(max_examples=150)
@given(parts(), parts())
def test_pieces_are_sets_of_points(one: Labels, other: Labels) -> None:
    """Equal, inside, in common, joined: as of the points that pieces are made of."""
    mine, its = points(one), points(other)
    assert same_pieces(one, other) == (mine == its)
    assert within(one, other) == (mine <= its) and within(one, one.coarse()) and within(one.coarse(), one)
    assert overlap(one, other) == bool(mine & its)
    assert one.is_whole() == (len(mine) == FINE)
    (have, total), _ = union(((one.shards, one.total), (other.shards, other.total)))
    missing = (frozenset(range(total)) - have, total) if len(have) < total else (frozenset(), 1)
    assert points(one.changed(shards=missing[0], total=missing[1])) == {*range(FINE)} - mine - its
    if mine & its:
        with pytest.raises(PuzzleError, match="a shard would be counted more than once"):
            join([one, other], "combine")
    else:
        joined = join([one, other], "combine")
        assert points(joined) == mine | its and joined == joined.coarse()
    coarse = one.coarse()
    assert points(coarse) == mine
    for fewer in range(1, coarse.total):  # no larger pieces will do
        size = FINE // fewer
        assert FINE % fewer or any(0 < len(mine & {*range(at, at + size)}) < size for at in range(0, FINE, size))


@settings(max_examples=100)
@given(parts(), st.integers(1, 4), st.data())
def test_a_part_without_gaps_is_cut_into_equal_pieces_one_after_the_other(
    part: Labels, pieces: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(-1, pieces))
    gaps = max(part.shards) - min(part.shards) >= len(part.shards)
    if not 0 <= index < pieces:
        with pytest.raises(PuzzleError, match=f"piece {index} of {pieces} is out of range"):
            cut(part, index, pieces)
    elif gaps:
        with pytest.raises(PuzzleError, match="a part with gaps cannot be cut"):
            cut(part, index, pieces)
    else:
        found = cut(part, index, pieces)
        size = Fraction(len(part.shards), part.total * pieces)
        begins = Fraction(min(part.shards), part.total) + index * size
        assert Fraction(min(found.shards), found.total) == begins
        assert Fraction(max(found.shards) + 1, found.total) == begins + size
        assert Fraction(len(found.shards), found.total) == size and found == found.coarse()


def test_of_nothing_the_whole_is_missing_and_nothing_can_be_cut() -> None:
    assert union(()) == ((frozenset(), 1), True)
    with pytest.raises(PuzzleError, match="a part with gaps"):
        cut(Labels("Weight", 0, 1, shards=frozenset(), total=4), 0, 2)


@pytest.mark.parametrize("count", [2, 8, 9])
@pytest.mark.parametrize("where", ["+", ""])
def test_a_sum_that_counts_twice_shows_up_to_eight_of_its_gradients(count: int, where: str) -> None:
    grads = [
        Labels("WeightGrad", 0, 2, batches=frozenset({0, place}), total_batches=9) for place in range(1, count + 1)
    ]
    with pytest.raises(PuzzleError) as raised:
        total_of(grads, where)
    error = raised.value
    assert error.problem == "micro-batch 0 would be counted more than once"
    shown = ", ".join(f"{{0, {place}}}" for place in range(1, min(count, 8) + 1))
    assert error.got == shown + (" ..." if count > 8 else "")
    assert total_of(grads, where, strict=False).batches == frozenset(range(count + 1))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"layer": 1}, "gradients of different layers do not add up"),
        ({"layer": 1, "batches": frozenset()}, "gradients of different layers do not add up"),
        ({"shards": frozenset({0})}, "gradients of different shards do not add up"),
        ({"total": 4}, "gradients of different shards do not add up"),
        ({"shards": frozenset({0}), "total": 4}, "gradients of different shards do not add up"),
        ({"shards": frozenset({0}), "total": 4, "batches": frozenset()}, ""),  # nothing has any form
        ({"shards": frozenset({2, 3}), "total": 4}, ""),
        ({}, ""),
    ],
)
def test_gradients_add_up_that_are_of_one_layer_and_one_piece(other: dict[str, Any], says: str) -> None:
    one = Labels("WeightGrad", 0, 2, batches=frozenset({0}), total_batches=2, shards=frozenset({1}), total=2)
    two = one.changed(batches=frozenset({1})).changed(**other)
    for grads in ([one, two], [two, one], [one.changed(batches=frozenset()), one, two]):
        if says:
            with pytest.raises(PuzzleError, match=says):
                total_of(grads, "+")
            assert total_of(grads, "+", strict=False).batches == one.batches | two.batches
        else:
            total = total_of(grads, "+")
            assert total.batches == one.batches | two.batches and same_pieces(total, one)


def test_labels_that_are_not_given_say_the_whole_of_step_0_and_no_micro_batches() -> None:
    given = {"step": 0, "batches": frozenset(), "total_batches": 0, "shards": frozenset({0}), "total": 1}
    given["extra"] = (frozenset({0}), 1, "", False, (), (), (frozenset({0}), 1), (), frozenset(), False)
    assert Labels("Weight", 1, 2)._asdict() == {"kind": "Weight", "layer": 1, "layers": 2, **given}
    assert Labels("Weight", 1, 2).is_whole() and Labels("Weight", 1, 2) == Labels("Weight", 1, 2).coarse()


def test_a_sum_of_one_gradient_is_that_gradient() -> None:
    for batches in (frozenset[int](), frozenset({0, 2})):
        grad = Labels("WeightGrad", 0, 2, batches=batches, total_batches=4, shards=frozenset({2, 3}), total=4)
        assert total_of([grad], "") == grad


def test_sizes_are_exact() -> None:
    third = Weight(0, 2, 0, {1}, 3)
    assert third.memory() * 3 == 512 * 512
    assert OptState(0, 2, 0).memory() == 512 * 512
    assert Activation(0, 2, [0, 1], 4).memory() == ActivationGrad(0, 2, [2, 3], 4).memory() == 2 * 512 * 256
    assert WeightGrad(0, 2, [], 4).memory() == 0
    assert Weight(0, 2, 0).is_complete() and not third.is_complete()


def test_equal_by_labels_also_when_copied() -> None:
    weight = Weight(0, 2, 0, {0, 1}, 4)
    assert weight == Weight(0, 2, 0, {0}, 2) and hash(weight) == hash(Weight(0, 2, 0, {0}, 2))
    saved = Saved(1, 4, {0}, 2)
    assert saved == Saved(1, 4, {0}, 2, "all", {0, 1}, 2) != Saved(1, 4, {0}, 2, "selective")
    assert repr(saved) == "Saved(layer=1, layers=4, batches={0}, total_batches=2, keep='all')"
    for one in (weight, saved, Tokens(1, 2, {0, 1}, 2, {0}, 2)):
        assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one)) and repr(copy.copy(one)) == repr(one)
    with pytest.raises(PuzzleError, match="no such keep"):
        Saved(1, 4, {0}, 2, "some")
    assert weight != OptState(0, 2, 0, {0, 1}, 4)
    assert not issubclass(ActivationGrad, Activation)
    assert repr(weight) == "Weight(layer=0, layers=2, step=0, shards={0, 1}, total=4)"


def test_no_tensor_is_cut_finer_than_the_finest() -> None:
    assert Weight(0, 2, 0).shard(FINEST - 1, FINEST).total == FINEST
    with pytest.raises(PuzzleError, match="a number from 1 to 65,536"):
        Weight(0, 2, 0).shard(0, FINEST + 1)
    with pytest.raises(PuzzleError, match="a number from 1 to 65,536"):  # nor are two that have no pieces in common
        Weight(0, 2, 0, {1}, FINEST).combine(Weight(0, 2, 0, {0}, 3))


SAID = {
    "the activation gradient of the input, micro-batch 0": Labels("ActivationGrad", -1, 4, batches=frozenset({0})),
    "the activation gradient of layer 0": Labels("ActivationGrad", 0, 4),
    "the weight of layer 0, shard {0} of 4": Labels("Weight", 0, 4, shards=frozenset({0}), total=4),
    "the weight of layer 1": Labels("Weight", 1, 4, shards=frozenset({0, 1}), total=2),
    "the activation of layer 3, micro-batches 0, 1, slice {1} of 2": Labels(
        "Activation", 3, 4, batches=frozenset({0, 1}), shards=frozenset({1}), total=2
    ),
    "the adapter of layer 2": Labels("Weight", 2, 4, extra=OF_ADAPTER),
}


@pytest.mark.parametrize("said", SAID)
def test_a_tensor_is_told_in_words(said: str) -> None:
    assert SAID[said].in_words() == said


@pytest.mark.parametrize(
    ("labels", "fits"), [({}, True), ({"kind": "OptState"}, False), ({"layer": 1}, False), ({"step": 0}, False)]
)
def test_a_final_weight_is_a_weight_of_its_layer_after_one_step(labels: dict[str, Any], fits: bool) -> None:
    final = Labels("Weight", 0, 1, step=1)._replace(**labels)
    state = FinalState(0, 1, 1, (), (), (), {0: Piece(final, None, True)})
    if fits:
        assert check_finals([state])  # made up, which says nothing of its value
    else:
        with pytest.raises(PuzzleError, match="not the weight of this layer after one optimizer step"):
            check_finals([state])


@pytest.mark.long
def test_a_union_of_many_fine_parts_takes_no_more_than_two_of_them() -> None:
    """Beside one of 65,536 pieces each of these parts is written out, and not all of them at once."""
    parts = [(frozenset(range(at, 64, 2)), 64) for at in range(2)] * 10
    tracemalloc.start()
    (shards, total), disjoint = union((*parts, (frozenset({0}), 65536)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (shards, total, disjoint) == (frozenset({0}), 1, False)
    assert peak < 40e6
