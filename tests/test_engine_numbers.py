"""Numbers in tensors: pieces against plain slices, operations against torch, what is wrong against the reference."""

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.basics.errors import PuzzleError
from lib.machine.fingerprints import Fingerprints
from lib.record.labels import Labels, cut
from lib.running.workload import KINDS, Workload
from tests.marks import MISSING, NO_TORCH

if "torch" in MISSING:
    pytest.skip(NO_TORCH, allow_module_level=True)

import torch

from lib.engines import data, layers, numbers, pieces, reference
from lib.engines.numbers import Numbers, Value
from lib.engines.pairs import Pairs
from lib.engines.pieces import Pieces

WORK = Workload(layers=2, batches=4, hidden=6, length=3)
NUMBERS = Numbers(WORK)
EVERY = frozenset(range(4))


def weight_labels(shards: set[int], total: int, kind: str = "Weight", layer: int = 0) -> Labels:
    batches = (EVERY, 4) if kind == "WeightGrad" else (frozenset(), 0)
    return Labels(kind, layer, 2, 0, *batches, frozenset(shards), total)


def flat(value: Value) -> Any:
    assert isinstance(value, Pieces)
    return value.flat


def numel(value: Value) -> int:
    """How many numbers a value really has."""
    return sum(tensor.numel() for tensor in numbers.stored(value))


def nbytes(value: Value) -> int:
    """The bytes that a value occupies, with those of buffers behind views."""
    buffers = [tensor.untyped_storage() for tensor in numbers.stored(value)]
    return sum({buffer.data_ptr(): buffer.nbytes() for buffer in buffers}.values())


def is_nan(value: Value) -> bool:
    return all(bool(tensor.isnan().all()) and tensor.numel() > 0 for tensor in numbers.stored(value))


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 6))
def test_finer_pieces_make_up_coarser_ones_whatever_the_size(parameters: int, total: int, factor: int) -> None:
    for shard in range(total):
        finer = {shard * factor + part for part in range(factor)}
        assert pieces.spans_of(finer, total * factor, parameters) == pieces.spans_of({shard}, total, parameters)
    assert pieces.spans_of(range(total), total, parameters) == ((0, parameters),)


@given(st.data())
def test_pieces_cut_and_joined_in_any_way_are_plain_slices(draw: st.DataObject) -> None:
    parameters = draw.draw(st.integers(1, 60))
    whole = torch.arange(2.0 * parameters).view(2, parameters)
    total = draw.draw(st.integers(1, 12))
    shards = draw.draw(st.sets(st.integers(0, total - 1), min_size=1))
    parts, wanted = [], set()
    for shard in draw.draw(st.permutations(sorted(shards))):
        factor = draw.draw(st.integers(1, 4))  # each shard again in pieces, of another total
        for piece in draw.draw(st.permutations(range(factor))):
            spans = pieces.spans_of({shard * factor + piece}, total * factor, parameters)
            parts.append(Pieces(spans, pieces.select(Pieces(((0, parameters),), whole), spans)))
        wanted |= set(range(shard * parameters // total, (shard + 1) * parameters // total))
    joined = pieces.together(parts)
    assert torch.equal(joined.flat, whole[:, sorted(wanted)])
    assert pieces.size(joined.spans) == len(wanted)
    again = draw.draw(st.integers(1, 12))
    some = pieces.spans_of(draw.draw(st.sets(st.integers(0, again - 1))), again, parameters)
    taken = pieces.select(joined, some)
    places = [at for start, stop in some for at in range(start, stop)]
    lost = [at for at, gone in zip(places, taken[0].isnan().tolist(), strict=True) if gone]
    assert lost == sorted(set(places) - wanted)
    held = [at for at in places if at in wanted]
    assert torch.equal(taken[:, ~taken[0].isnan()], whole[:, held])


def test_a_cut_keeps_nothing_else_in_memory() -> None:
    whole = weight_labels({0}, 1)
    value = NUMBERS.weight(whole)
    piece = NUMBERS.cut(value, weight_labels({1}, 4))
    assert (numel(piece), nbytes(piece)) == (9, 36)
    state = NUMBERS.opt_state(weight_labels({1}, 4, "OptState"))
    assert (numbers.elements(state), numel(state), nbytes(state)) == (9, 18, 72)
    assert numbers.elements(NUMBERS.inputs(frozenset({0, 2}))) == 2 * 18
    assert numbers.elements(NUMBERS.zero) == nbytes(NUMBERS.zero) == 0


def test_what_does_not_fit_is_nan() -> None:
    half, other = weight_labels({0}, 2), weight_labels({1}, 2)
    weight, state = NUMBERS.weight(half), NUMBERS.opt_state(other)
    grad = NUMBERS.of(weight_labels({0}, 1, "WeightGrad"), torch.ones(1, 36))
    assert all(map(is_nan, NUMBERS.update(weight, state, grad)))
    good = NUMBERS.opt_state(half)
    assert not any(map(is_nan, NUMBERS.update(weight, good, grad)))
    lacking = NUMBERS.of(weight_labels({1}, 2, "WeightGrad"), torch.ones(1, 18))
    assert is_nan(NUMBERS.update(weight, good, lacking)[0])
    assert is_nan(NUMBERS.join([weight, weight]))
    third = NUMBERS.of(weight_labels({0}, 3, "WeightGrad"), torch.ones(1, 12))
    assert is_nan(NUMBERS.add([third, grad]))
    x = NUMBERS.inputs(frozenset({0, 1}))
    assert all(torch.isnan(y).any() for y in numbers.stored(NUMBERS.forward(x, weight)))
    whole = NUMBERS.weight(weight_labels({0}, 1))
    of_weight, of_input = NUMBERS.backward(x, NUMBERS.loss(NUMBERS.inputs(frozenset({0}))), whole)
    assert flat(of_weight).isnan().any()
    assert isinstance(of_input, dict)
    assert not of_input[0].flat.isnan().any() and of_input[1].flat.isnan().any()
    assert is_nan(NUMBERS.made_up(weight_labels({0}, 1, "WeightGrad")))


def test_the_gradient_of_nothing_fits_every_form() -> None:
    grad = NUMBERS.of(weight_labels({1}, 3, "WeightGrad"), torch.arange(12.0)[None])
    for values in ([grad, NUMBERS.zero], [NUMBERS.zero, grad]):
        total = NUMBERS.add(values)
        assert torch.equal(flat(total), flat(grad))
    zero = NUMBERS.add([NUMBERS.zero, NUMBERS.zero])
    nothing = Labels("WeightGrad", 0, 2, 0, frozenset(), 4)
    assert NUMBERS.cut(zero, cut(nothing, 1, 2)) is None
    assert NUMBERS.join([zero, zero]) is None
    for labels in (nothing, weight_labels({1, 2}, 3, "WeightGrad")):
        sent = NUMBERS.expand(zero, labels)
        assert sent.shape == NUMBERS.shape(labels) and not sent.any()
    assert NUMBERS.of(nothing, NUMBERS.expand(zero, nothing)) is NUMBERS.zero


def test_values_there_and_back_as_plain_tensors() -> None:
    state = weight_labels({1, 2}, 4, "OptState")
    activation = Labels("Activation", 0, 2, 0, frozenset({3, 1}), 4)
    for labels, value in (
        (state, NUMBERS.opt_state(state)),
        (activation, NUMBERS.inputs(activation.batches)),
        (activation._replace(batches=frozenset({2})), NUMBERS.inputs(frozenset({2}))),
    ):
        sent = NUMBERS.expand(value, labels)
        assert tuple(sent.shape) == NUMBERS.shape(labels) and sent.is_contiguous()
        back = pickle.loads(pickle.dumps(NUMBERS.of(labels, sent)))
        assert torch.equal(NUMBERS.expand(back, labels), sent)
        assert nbytes(NUMBERS.of(labels, sent)) == 4 * numel(value)
        assert all(map(torch.equal, numbers.stored(back), numbers.stored(value)))
        if isinstance(value, Pieces):
            assert back.step == value.step == data.WARM
    with pytest.raises(ValueError, match="has shape"):
        NUMBERS.of(state, torch.zeros(1, 18))


def test_attention_looks_back_only_and_agrees_with_torch() -> None:
    work = Workload(layer="block", dtype="float64", hidden=32, length=5)
    x, w = data.inputs(work, 0), data.weight(work, 0)
    changed = x.clone()
    changed[3:] += 1
    before, after = layers.apply("block", x, w), layers.apply("block", changed, w)
    assert torch.equal(before[:3], after[:3]) and not torch.equal(before[3:], after[3:])

    functional = torch.nn.functional
    gain1, qkv, out, gain2, up, down = (
        part.view(shape)
        for part, shape in zip(
            w.split([math.prod(shape) for shape in layers.LAYERS["block"].shapes(32)]),
            layers.LAYERS["block"].shapes(32),
            strict=True,
        )
    )
    q, k, v = (
        part.unflatten(-1, (2, 16)).transpose(0, 1)
        for part in (functional.layer_norm(x, (32,), gain1) @ qkv).chunk(3, -1)
    )
    attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    middle = x + attended.transpose(0, 1).reshape(5, 32) @ out
    wanted = middle + functional.gelu(functional.layer_norm(middle, (32,), gain2) @ up) @ down
    assert torch.allclose(before, wanted, rtol=1e-12, atol=1e-12)


def test_data_follow_from_the_seed_and_are_all_different() -> None:
    same, other = Workload(2, 4, hidden=6, length=3), Workload(2, 4, hidden=6, length=3, seed=1)
    drawn = [make(WORK, index) for make in (data.inputs, data.target) for index in range(2)]
    drawn += [data.weight(WORK, 0).view(-1)[:18].view(3, 6), data.weight(WORK, 1).view(-1)[:18].view(3, 6)]
    assert len({tuple(tensor.flatten().tolist()) for tensor in drawn}) == len(drawn)
    assert torch.equal(data.inputs(WORK, 1), data.inputs(same, 1))
    assert not torch.equal(data.inputs(WORK, 1), data.inputs(other, 1))
    doubled = Workload(2, 4, dtype="float64", hidden=6, length=3)
    assert torch.equal(data.moments(WORK, 0), data.moments(doubled, 0).float())
    assert (data.moments(WORK, 0) != 0).all() and (data.moments(WORK, 0)[1] > 0).all()


def test_adam_is_that_of_torch_step_by_step() -> None:
    work = Workload(dtype="float64", hidden=6)
    weight = torch.nn.Parameter(data.weight(work, 0))
    moments, mine = data.moments(work, 0), data.weight(work, 0)[None]
    adam = torch.optim.Adam([weight], lr=data.RATE, betas=data.BETAS, eps=data.EPSILON)
    m, v = moments.clone()
    adam.state[weight] = {"step": torch.tensor(float(data.WARM)), "exp_avg": m, "exp_avg_sq": v}
    for step in range(3):
        weight.grad = data.weight(work, 1 + step) / 10
        adam.step()
        mine, moments = numbers.adam(mine, weight.grad[None], moments, data.WARM + 1 + step)
        assert torch.allclose(mine[0], weight.detach(), rtol=0, atol=1e-15)


def test_a_direction_is_that_of_torch_up_to_its_bfloat16() -> None:
    gradient = data.weight(Workload(hidden=24), 0).view(-1, 48)
    weight = torch.nn.Parameter(torch.zeros_like(gradient))
    weight.grad = gradient.clone()
    torch.optim.Muon([weight], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False).step()
    assert torch.allclose(numbers.newton_schulz(gradient), -weight.detach(), rtol=0, atol=0.02)


def answers(work: Workload, ranks: int = 2) -> dict[int, dict[int, Value]]:
    """What ranks that know the reference would answer."""
    whole = ((0, layers.parameters(work.layer, work.hidden)),)
    return {
        rank: {layer: Pieces(whole, weight.clone()[None]) for layer, weight in enumerate(reference.reference(work))}
        for rank in range(ranks)
    }


def test_the_reference_agrees_with_itself() -> None:
    agreement = reference.compare(WORK, answers(WORK))
    agreement.check()
    assert agreement.ok and (agreement.relative, agreement.spread) == (0, 0)
    assert str(agreement).startswith("agrees with the reference")
    assert len(str(agreement).splitlines()) == 3


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_nan_fails(poison: float) -> None:
    found = answers(WORK)
    flat(found[1][0])[0, 7] = poison
    agreement = reference.compare(WORK, found)
    assert not agreement.ok and not agreement.relative <= 1e30
    assert (agreement.worst.rank, agreement.worst.layer, agreement.worst.at) == (1, 0, 7)
    assert "DOES NOT AGREE" in str(agreement)
    with pytest.raises(PuzzleError, match=r"rank 1, layer 0.*wrong numbers"):
        agreement.check()


def test_an_error_names_layer_rank_size_and_tolerance() -> None:
    found = answers(WORK)
    flat(found[0][1])[0, 30] += 1
    with pytest.raises(PuzzleError) as caught:
        reference.compare(WORK, found).check()
    text = str(caught.value)
    assert "rank 0, layer 1" in text and "0.0001 (float32)" in text and "at number 30" in text


def test_replicas_must_be_equal_to_the_last_bit() -> None:
    found = answers(WORK)
    one = flat(found[1][1])
    one[0, 3] = torch.nextafter(one[0, 3], torch.tensor(9.0))
    agreement = reference.compare(WORK, found)
    assert agreement.relative < 1e-4 and 0 < agreement.spread < 1e-6 and not agreement.ok
    with pytest.raises(PuzzleError, match="different numbers"):
        agreement.check()


def test_what_is_missing_fails() -> None:
    found = answers(WORK, ranks=1)
    found[0][1] = Pieces(((0, 35),), flat(found[0][1])[:, :35])
    agreement = reference.compare(WORK, found)
    assert agreement.relative == math.inf and agreement.rows[1].missing == 1
    with pytest.raises(PuzzleError, match="not complete"):
        agreement.check()
    none = reference.compare(WORK, {0: {}})
    assert not none.ok and "set by no rank" in str(none)


def test_the_reference_by_finite_differences() -> None:
    """Of the loss itself, for some numbers of a weight: nothing of the engine's backward is in this."""
    work = Workload(2, 2, "block", "float64", hidden=4, length=3)
    weights = [data.weight(work, layer) for layer in range(2)]

    def loss() -> float:
        total = 0.0
        for batch in range(2):
            x = data.inputs(work, batch)
            for weight in weights:
                x = layers.apply("block", x, weight)
            total += float((x - data.target(work, batch)).square().sum()) / 2 / 6
        return total

    m, v = data.moments(work, 0)
    for at in (0, 5, 40, 120):
        start = float(weights[0][at])
        weights[0][at] = start + 1e-6
        above = loss()
        weights[0][at] = start - 1e-6
        grad = (above - loss()) / 2e-6
        weights[0][at] = start
        fair = [(0.9 * m[at] + 0.1 * grad) / (1 - 0.9**11), (0.95 * v[at] + 0.05 * grad**2) / (1 - 0.95**11)]
        wanted = start - 1e-2 * float(fair[0]) / (math.sqrt(float(fair[1])) + 1e-8)
        assert float(reference.reference(work)[0][at]) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_on_the_device(kind: str) -> None:
    """On torch's device without memory, which refuses to be mixed with another, as a GPU does."""
    there = Numbers(Workload(1, 2, kind, hidden=8, length=3), device="meta")
    whole, state, grad = (
        Labels(name, 0, 1, 0, *sets)
        for name, *sets in (("Weight",), ("OptState",), ("WeightGrad", frozenset({0, 1}), 2))
    )
    weight, x = there.weight(whole), there.inputs(frozenset({0, 1}))
    of_weight, of_input = there.backward(x, there.loss(there.forward(x, weight)), weight)
    halves = [there.cut(there.add([of_weight, there.zero]), cut(grad, part, 2)) for part in range(2)]
    new = there.update(weight, there.opt_state(state), there.join(halves))
    zeros = there.expand(there.zero, grad)
    nans = there.made_up(grad)
    values = [of_weight, of_input, *halves, *new, nans, there.of(grad, zeros)]
    assert {tensor.device.type for value in values for tensor in numbers.stored(value)} == {"meta"}


@pytest.mark.parametrize("at_once", [False, True])
def test_a_pair_has_the_fingerprint_of_the_one_and_the_numbers_of_the_other(at_once: bool) -> None:
    """Of a step of training, whether numbers are made at once or when they are asked for."""
    made: list[list[Any]] = []
    for values in (Fingerprints(), NUMBERS, Pairs(NUMBERS, at_once), Pairs()):
        whole = Labels("Weight", 0, 2)
        weight, state = values.weight(whole), values.opt_state(whole)
        out = values.forward(values.inputs(EVERY), weight)
        of_weight, of_input = values.backward(values.inputs(EVERY), values.loss(out), weight)
        halves = [values.cut(of_weight, cut(weight_labels({0}, 1, "WeightGrad"), part, 2)) for part in range(2)]
        grad = values.add([values.join(halves), values.zero])
        made.append([weight, state, out, of_weight, of_input, *halves, grad, *values.update(weight, state, grad)])
    marks, plain, pairs, alone = made
    assert all(pair.make is None for pair in pairs) == at_once
    assert [pair.mark for pair in pairs] == [pair.mark for pair in alone] == marks
    for pair, value in zip(pairs, plain, strict=True):
        assert all(map(torch.equal, numbers.stored(pair.made()), numbers.stored(value)))
        assert pair.make is None and pair.made() is pair.numbers
    assert all(pair.made() is None for pair in alone)
