"""The programs that the gallery shows. They train nothing, so that they give no puzzle away."""

from lib import Activation, Model


def load(model: Model) -> None:
    """Load the layers of this rank."""
    share = model.LAYERS // model.RANKS
    for layer in range(model.rank * share, (model.rank + 1) * share):
        model.weights[layer], _ = model.load_weights(layer)


def own_layers(model: Model, act: Activation) -> Activation:
    """Take a micro-batch through the layers of this rank."""
    share = model.LAYERS // model.RANKS
    for layer in range(model.rank * share, (model.rank + 1) * share):
        model.activations[layer] = act
        act = model.forward(layer, act, model.weights[layer])
        del model.activations[layer]
    return act


async def evaluate(model: Model) -> None:
    """Each rank runs its own layers, and the micro-batches follow one another."""
    load(model)
    if model.rank == 0:
        for mb in range(model.BATCHES):
            await model.pass_to(1, own_layers(model, model.get_activation([mb])))
        return
    for _ in range(model.BATCHES):
        act = own_layers(model, await model.receive(src=model.rank - 1))
        if model.rank == model.RANKS - 1:
            model.loss(act)
        else:
            await model.pass_to(model.rank + 1, act)


async def one_too_few(model: Model) -> None:
    """The same with a mistake: the first micro-batch is left out."""
    load(model)
    if model.rank == 0:
        for mb in range(1, model.BATCHES):
            await model.pass_to(1, own_layers(model, model.get_activation([mb])))
        return
    for _ in range(model.BATCHES):
        act = own_layers(model, await model.receive(src=model.rank - 1))
        if model.rank == model.RANKS - 1:
            model.loss(act)
        else:
            await model.pass_to(model.rank + 1, act)
