"""What the verbs of a model give, as a type checker sees it: ``make lint`` proves it, and nothing runs it."""

from typing import assert_type

from lib import Activation, ActivationGrad, Model, OptState, Saved, Weight, WeightGrad


async def types(model: Model) -> None:
    """Every verb gives the kind of tensor that it makes; a tensor gives one, and a list gives a list."""
    weight, state = model.load_weights(0, model.rank, model.RANKS)
    assert_type(weight, Weight)
    assert_type(state, OptState)
    assert_type(weight.shard(0, 2), Weight)
    assert_type(weight.shard(0, 2).combine(weight.shard(1, 2)), Weight)
    assert_type(await model.allgather(weight, 0), Weight)
    assert_type(await model.allgather([weight, weight], [0, 1]), list[Weight])
    assert_type(await model.allgather(state, 0, axis="shard"), OptState)
    inp = model.get_activation([0])
    assert_type(inp, Activation)
    out = model.forward(0, inp, weight)
    assert_type(out, Activation)
    assert_type(model.forward(0, inp, weight, partial=True), Activation)
    assert_type(model.forward(0, inp, weight, keep="all"), tuple[Activation, Saved])
    assert_type(await model.allreduce(out, 1), Activation)
    grad = model.loss(out)
    assert_type(grad, ActivationGrad)
    of_weight, of_input = model.backward(0, inp, grad, weight)
    assert_type(of_weight, WeightGrad)
    assert_type(of_input, ActivationGrad)
    assert_type(model.backward_input(0, inp, grad, weight), ActivationGrad)
    assert_type(model.backward_weight(0, inp, grad, weight), WeightGrad)
    assert_type(of_weight + of_weight, WeightGrad)
    assert_type(await model.allreduce(of_weight, 0), WeightGrad)
    assert_type(await model.scatterreduce([of_weight], [0]), list[WeightGrad])
    assert_type(await model.scatterreduce(of_input, 0), ActivationGrad)
    assert_type(model.update(0, of_weight, weight, state), tuple[Weight, OptState])
    assert_type(model.fake_grad(0, []), WeightGrad)
    await model.allreduce(weight, 0)  # type: ignore[call-overload]  # a weight is not summed
    await model.allgather(weight, [0])  # type: ignore[call-overload]  # a list of layers comes with a list
    assert_type(await model.pass_to(1, weight), None)
