"""The check by value: what is wrong fails with the set rules switched off, what is honest passes."""

from collections.abc import Callable
from itertools import combinations_with_replacement, permutations
from typing import Any

import pytest

from lib import Model, PuzzleError, run
from lib.machine.check import check_finals
from lib.machine.fingerprints import Fingerprints
from lib.record.labels import Labels
from lib.record.shards import coarsest

SIZE = {"ranks": 4, "layers": 2, "batches": 8, "mesh": {"replica": 2, "shard": 2}}


def hybrid(
    *,
    every_time: bool = False,
    reduce_axis: str = "replica",
    never: bool = False,
    same_data: bool = False,
    stale: bool = False,
    piece: int = 0,
    state: str = "",
) -> Callable[[Model], Any]:
    """Replica-FSDP of two micro-batches a rank, with one thing wrong (or none)."""

    async def program(model: Model) -> None:
        shard, replica = model.axis_index("shard"), model.axis_index("replica")
        for layer in range(model.LAYERS):
            model.weights[layer], opt_state = model.load_weights(layer, shard, 2)
            model.opt_states[layer] = opt_state.shard(replica, 2)
        if state == "other layer":
            model.opt_states[0], model.opt_states[1] = model.opt_states[1], model.opt_states[0]
        if state == "other shard":
            other = model.load_weights(0, 1 - shard, 2)[1]
            model.opt_states[0] = other.shard(replica, 2)
        who = model.axis_index("shard") if same_data else model.rank
        for batch in (2 * who, 2 * who + 1):
            model.activations[0] = model.get_activation([batch])
            for layer in range(model.LAYERS):
                weight = await model.allgather(model.weights[layer], layer, "shard")
                model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
            model.grad_activations[0] = model.loss(model.activations[model.LAYERS])
            for layer in reversed(range(model.LAYERS)):
                weight = await model.allgather(model.weights[layer], layer, "shard")
                grad, model.grad_activations[0] = model.backward(
                    layer, model.activations[layer], model.grad_activations[0], weight
                )
                grad = await model.scatterreduce(grad, layer, "shard")
                model.grad_weights[layer] = model.grad_weights[layer] + grad if layer in model.grad_weights else grad
                if every_time:
                    model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer, "replica")
            if stale and batch % 2 == 0:
                model.weights[1], _ = model.update(1, model.grad_weights[1], model.weights[1], model.opt_states[1])
        for layer in range(model.LAYERS):
            if every_time or never:
                grad = model.grad_weights[layer]
            else:
                grad = await model.allreduce(model.grad_weights[layer], layer, reduce_axis)
            model.grad_weights[layer] = grad.shard((replica + piece) % 2, 2)
            weight, model.opt_states[layer] = model.update(
                layer, model.grad_weights[layer], model.weights[layer].shard(replica, 2), model.opt_states[layer]
            )
            model.weights[layer] = await model.allgather(weight, layer, "replica")
            model.set_final_weight(layer, model.weights[layer])

    return program


def test_the_honest_one_passes() -> None:
    run(hybrid(), **SIZE).check()
    run(hybrid(), **SIZE, _strict=False).check()


WRONG = {
    "running sum reduced every micro-batch": {"every_time": True},
    "reduced over the wrong axis": {"reduce_axis": "shard"},
    "never reduced across replicas": {"never": True},
    "replicas read the same micro-batches": {"same_data": True},
    "forward with an updated weight": {"stale": True},
    "gradient piece of the wrong index": {"piece": 1},
    "state of another layer": {"state": "other layer"},
    "state of another shard": {"state": "other shard"},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_wrong_by_value_alone(wrong: dict[str, Any]) -> None:
    result = run(hybrid(**wrong), **SIZE, _strict=False)
    with pytest.raises(PuzzleError, match="wrong value"):
        result.check()


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_wrong_by_the_rules_too(wrong: dict[str, Any]) -> None:
    with pytest.raises(PuzzleError):
        run(hybrid(**wrong), **SIZE).check()


ALGEBRA = Fingerprints()
LAYER = Labels("Weight", 1, 3)


def gradient(*batches: int) -> Any:
    """The gradient of layer 1 of these micro-batches, each with an input of its own."""
    inputs = ALGEBRA.inputs(frozenset(batches))
    return ALGEBRA.backward(inputs, ALGEBRA.loss(inputs), ALGEBRA.weight(LAYER))[0]


def piece(*shards: int, of: int) -> Labels:
    found, total = coarsest(frozenset(shards), of)
    return LAYER.changed(shards=found, total=total)


def test_a_sum_is_the_same_in_any_order_and_any_tree_and_no_other_is_the_same() -> None:
    parts = [gradient(batch) for batch in range(4)]
    whole = gradient(0, 1, 2, 3)
    for order in permutations(parts):
        assert ALGEBRA.add(order) == whole
        assert ALGEBRA.add([ALGEBRA.add(order[:2]), ALGEBRA.add(order[2:])]) == whole
        assert ALGEBRA.add([ALGEBRA.zero, *order, ALGEBRA.zero]) == whole
    assert ALGEBRA.add([ALGEBRA.zero, ALGEBRA.zero]) == ALGEBRA.zero
    sums = [ALGEBRA.add(some) for count in range(1, 4) for some in combinations_with_replacement(parts, count)]
    assert len({*sums, whole}) == len(sums) + 1
    cut_up = [ALGEBRA.cut(part, piece(0, of=2)) for part in parts]
    assert ALGEBRA.add(cut_up) == ALGEBRA.cut(whole, piece(0, of=2))
    assert ALGEBRA.add([*cut_up[:3], ALGEBRA.cut(parts[3], piece(1, of=2))]) not in (ALGEBRA.add(cut_up), whole)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_pieces_put_together_are_the_whole_and_no_other_pieces_are(count: int) -> None:
    for whole in (ALGEBRA.weight(LAYER), ALGEBRA.opt_state(LAYER), gradient(0, 1)):
        pieces = [ALGEBRA.cut(whole, piece(place, of=count)) for place in range(count)]
        for order in (pieces, pieces[::-1]):
            assert ALGEBRA.join(order) == whole
        assert ALGEBRA.cut(ALGEBRA.zero, piece(0, of=count)) == ALGEBRA.zero
        other = ALGEBRA.cut(ALGEBRA.weight(Labels("Weight", 2, 3)), piece(count - 1, of=count))
        for wrong in (pieces[:-1], [*pieces, pieces[0]], [*pieces[:-1], other] if count > 1 else []):
            assert not wrong or ALGEBRA.join(wrong) != whole
        assert ALGEBRA.join([*pieces, ALGEBRA.zero]) != whole
    assert ALGEBRA.join([ALGEBRA.zero] * count) == ALGEBRA.zero
    assert ALGEBRA.join([*[ALGEBRA.zero] * count, gradient(0)]) != gradient(0)


def test_a_piece_of_a_weight_gives_other_activations_and_gradients_than_the_whole() -> None:
    inputs, whole = ALGEBRA.inputs(frozenset({0, 1})), ALGEBRA.weight(LAYER)
    some = [whole, *[ALGEBRA.cut(whole, piece(*shards, of=4)) for shards in ([0], [1], [0, 1], [2, 3], [0, 1, 2])]]
    grads = ALGEBRA.loss(inputs)
    for results in (
        [ALGEBRA.forward(inputs, weight)[0] for weight in some],
        [ALGEBRA.backward(inputs, grads, weight)[0] for weight in some],
        [ALGEBRA.backward(inputs, grads, weight)[1][1] for weight in some],
        [ALGEBRA.backward(inputs, {0: grads[0]}, weight)[0] for weight in some],
    ):
        assert len(set(results)) == len(some)


def test_an_update_is_right_for_any_piece_that_the_gradient_covers() -> None:
    weight, state, grad = ALGEBRA.weight(LAYER), ALGEBRA.opt_state(LAYER), gradient(0, 1)
    new_weight, new_state = ALGEBRA.update(weight, state, grad)
    assert len({new_weight, new_state, weight, state}) == 4
    for shards, of in (([1], 2), ([0], 3), ([2, 3], 4), ([0, 1, 2], 4)):
        part = piece(*shards, of=of)
        right = (ALGEBRA.cut(new_weight, part), ALGEBRA.cut(new_state, part))
        one, two = ALGEBRA.cut(weight, part), ALGEBRA.cut(state, part)
        more = piece(*shards, of - 1 if of - 1 not in shards else 0, of=of)
        for covers in (part, more, LAYER):
            assert ALGEBRA.update(one, two, ALGEBRA.cut(grad, covers)) == right
        for wrong in (
            ALGEBRA.update(one, state, grad),
            ALGEBRA.update(weight, two, grad),
            ALGEBRA.update(one, two, ALGEBRA.cut(grad, piece(of - 1 if of - 1 not in shards else 0, of=of))),
        ):
            assert wrong[0] not in (right[0], new_weight) and wrong[1] not in (right[1], new_state)
    assert ALGEBRA.update(weight, state, gradient(0)) != (new_weight, new_state)


def test_what_does_not_go_together_stays_wrong_whatever_comes_of_it() -> None:
    """With the rules off a run goes on with it: nothing breaks, and nothing is right by accident."""
    one, other = (ALGEBRA.cut(gradient(batch), piece(batch, of=2)) for batch in (0, 1))
    weight, state, inputs = ALGEBRA.weight(LAYER), ALGEBRA.opt_state(LAYER), ALGEBRA.inputs(frozenset({0, 1}))
    right = gradient(0, 1)
    wrong = [ALGEBRA.add([one, other]), ALGEBRA.add([other, one, one]), ALGEBRA.join([other, one, one])]
    grads = [*wrong, *[ALGEBRA.join([value, one]) for value in wrong]]
    grads += [
        ALGEBRA.add([value, ALGEBRA.cut(right, LAYER.changed(shards=value[1][0], total=value[1][1]))])
        for value in wrong
    ]
    new = [ALGEBRA.update(weight, state, (grad[0], right[1])) for grad in grads]
    new += [ALGEBRA.update(ALGEBRA.join([weight, weight]), state, right), ALGEBRA.update(weight, weight, right)]
    assert ALGEBRA.update(weight, state, right) not in new
    assert ALGEBRA.forward(inputs, ALGEBRA.join([weight, weight])) != ALGEBRA.forward(inputs, weight)


def test_one_final_weight_that_is_made_up_is_told() -> None:
    states = run(hybrid(), **SIZE).final_states
    assert check_finals(states) is False
    for state in states:
        for layer, final in state.finals.items():
            other = state._replace(finals=state.finals | {layer: final._replace(made_up=True, value=None)})
            assert check_finals([other if one is state else one for one in states]) is True
            wrong = state._replace(finals=state.finals | {layer: final._replace(value=ALGEBRA.weight(LAYER))})
            with pytest.raises(PuzzleError, match="wrong value") as raised:
                check_finals([wrong if one is state else one for one in states])
            assert (raised.value.place.rank, raised.value.place.layer) == (state.rank, layer)


def test_what_is_made_up_is_like_nothing_honest_and_like_nothing_else_made_up() -> None:
    """Also at the two ends: the gradient of what goes into layer 0 is named by layer -1."""
    seen = [ALGEBRA.weight(LAYER), ALGEBRA.opt_state(LAYER), ALGEBRA.zero, gradient(0), gradient(1)]
    for layer in range(-1, 4):
        for batches in ({0}, {1}, {0, 1}):
            labels = Labels("WeightGrad", layer, 3, batches=frozenset(batches), total_batches=2)
            seen += [ALGEBRA.made_up(labels), ALGEBRA.made_up(labels.changed(shards=frozenset({1}), total=2))]
    assert len(set(seen)) == len(seen)
    ends = [Labels("ActivationGrad", layer, 3, batches=frozenset({0, 1}), total_batches=2) for layer in range(-1, 4)]
    found = [number for labels in ends for number in ALGEBRA.made_up(labels).values()]
    assert len({*found, *ALGEBRA.inputs(frozenset({0})).values()}) == 2 * len(ends) + 1
