"""Programs about layers with experts as learners write them, from the first idea to the best that is known."""

from collections.abc import Awaitable, Callable
from typing import Any

from lib import Model, WeightGrad


def load(model: Model) -> None:
    """Load all of every dense layer, and this rank's piece of the experts of the others."""
    for layer in range(model.LAYERS):
        piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)


def update(model: Model, layer: int, grad: WeightGrad) -> None:
    """Make the update of a layer, and hand in its weight."""
    weight, state = model.weights[layer], model.opt_states[layer]
    model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)
    model.set_final_weight(layer, model.weights[layer])


def mine(model: Model) -> list[int]:
    """The micro-batches of this rank."""
    return list(range(model.rank, model.BATCHES, model.RANKS))


async def forward(model: Model, batches: list[int]) -> None:
    """Carry micro-batches through all layers, and leave the gradient of the last output."""
    acts = model.activations
    acts[0] = model.get_activation(batches)
    for layer in range(model.LAYERS):
        if model.experts(layer):
            acts["tokens", layer] = await model.alltoall(acts.pop(layer), layer)
            acts["out"] = model.expert(layer, acts["tokens", layer], model.weights[layer])
            acts[layer + 1] = await model.alltoall(acts.pop("out"), layer + 1)
        else:
            acts[layer + 1] = model.forward(layer, acts[layer], model.weights[layer])
    model.grad_activations[0] = model.loss(acts.pop(model.LAYERS))


async def one_after_the_other(model: Model) -> Model:
    """Each micro-batch forward and back, the dense gradients summed in the backward of the last one."""
    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    load(model)
    calls: dict[int, Awaitable[WeightGrad]] = {}
    for batch in mine(model):
        await forward(model, [batch])
        for layer in reversed(range(model.LAYERS)):
            weight = model.weights[layer]
            if model.experts(layer):
                grads[0] = await model.alltoall(grads.pop(0), layer)
                grad, grads[0] = model.backward_expert(layer, acts.pop(("tokens", layer)), grads.pop(0), weight)
                sums[layer] = sums[layer] + grad if layer in sums else grad
                grads[0] = await model.alltoall(grads.pop(0), layer - 1)
            else:
                grad, grads[0] = model.backward(layer, acts.pop(layer), grads.pop(0), weight)
                sums[layer] = sums[layer] + grad if layer in sums else grad
                if batch == mine(model)[-1]:
                    calls[layer] = model.allreduce(sums.pop(layer), layer)
        del grads[0]  # that of the input: nobody needs it
    for layer in reversed(range(model.LAYERS)):
        update(model, layer, await calls[layer] if layer in calls else sums.pop(layer))
    return model


async def tokens_before_sums(model: Model) -> Model:
    """Each all-to-all is called before the sum of the dense layer above, and an update is made while tokens travel."""
    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    load(model)
    await forward(model, mine(model))
    ready: list[int] = []  # layers whose gradient is complete

    def update_one() -> None:
        if ready:
            layer = ready.pop(0)
            update(model, layer, sums.pop(layer))

    for layer in reversed(range(model.LAYERS)):
        weight = model.weights[layer]
        if not model.experts(layer):
            sums[layer], grads[0] = model.backward(layer, acts.pop(layer), grads.pop(0), weight)
            continue
        tokens = model.alltoall(grads.pop(0), layer)
        update_one()
        total = model.allreduce(sums.pop(layer + 1), layer + 1) if layer + 1 in sums else None
        grads[0] = await tokens
        sums[layer], grads[0] = model.backward_expert(layer, acts.pop(("tokens", layer)), grads.pop(0), weight)
        home = model.alltoall(grads.pop(0), layer - 1)
        ready.append(layer)
        if total is not None:
            sums[layer + 1] = await total
            ready.append(layer + 1)
        update_one()
        grads[0] = await home
    last = model.allreduce(sums.pop(0), 0)
    while ready:
        update_one()
    update(model, 0, await last)
    return model


async def gathered(model: Model) -> Model:
    """As FSDP does it: experts are gathered for forward and backward, and dense gradients summed at the end."""
    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    load(model)
    acts[0] = model.get_activation(mine(model))
    for layer in range(model.LAYERS):
        own = model.weights[layer]
        weight = await model.allgather(own, layer) if model.experts(layer) else own
        acts[layer + 1] = model.forward(layer, acts[layer], weight)
    grads[0] = model.loss(acts.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        own = model.weights[layer]
        weight = await model.allgather(own, layer) if model.experts(layer) else own
        grad, grads[0] = model.backward(layer, acts.pop(layer), grads.pop(0), weight)
        sums[layer] = await model.scatterreduce(grad, layer) if model.experts(layer) else grad
    dense = range(0, model.LAYERS, 2)
    calls = {layer: model.allreduce(sums.pop(layer), layer) for layer in dense}
    for layer in range(1, model.LAYERS, 2):
        update(model, layer, sums.pop(layer))
    for layer in dense:
        update(model, layer, await calls[layer])
    return model


def by_turns(while_home: int = 0, while_out: int = 0, behind: int = 0) -> Callable[[Model], Any]:
    """Return the program in which the tokens of one micro-batch travel while the other is computed. It makes so many
    updates after the backward of each dense layer, and after that of each layer with experts; those of dense layers
    only at the end, or ``behind`` layers later."""

    async def turns(model: Model) -> Model:
        acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
        load(model)
        own, on_their_way = mine(model), dict[int, Awaitable[Any]]()
        for layer in range(model.LAYERS):
            for turn, batch in enumerate(own):
                inp = await on_their_way.pop(turn) if layer else model.get_activation([batch])
                acts[turn, layer] = inp
                verb = model.expert if model.experts(layer) else model.forward
                acts["out"] = verb(layer, acts[turn, layer], model.weights[layer])
                on_their_way[turn] = model.alltoall(acts.pop("out"), layer + 1)
        for turn in range(len(own)):
            acts["last"] = await on_their_way.pop(turn)
            grads[0] = model.loss(acts.pop("last"))
            on_their_way[turn] = model.alltoall(grads.pop(0), model.LAYERS - 1)
        ready, calls = list[int](), dict[int, Awaitable[WeightGrad]]()

        def updates(count: int) -> None:
            for _ in range(min(count, len(ready))):
                layer = ready.pop(0)
                update(model, layer, sums.pop(layer))

        for layer in reversed(range(model.LAYERS)):
            for turn in range(len(own)):
                grads[0] = await on_their_way.pop(turn)
                verb = model.backward_expert if model.experts(layer) else model.backward
                grad, grads[0] = verb(layer, acts.pop((turn, layer)), grads.pop(0), model.weights[layer])
                sums[layer] = sums[layer] + grad if layer in sums else grad
                if layer:
                    on_their_way[turn] = model.alltoall(grads.pop(0), layer - 1)
            if model.experts(layer):
                ready.append(layer)
                updates(while_out)
            else:
                calls[layer] = model.allreduce(sums.pop(layer), layer)
                updates(while_home)
            for above in [above for above in calls if behind and above > layer + behind]:
                sums[above] = await calls.pop(above)
                ready.append(above)
        updates(len(ready))
        for layer in sorted(calls, reverse=True):
            update(model, layer, await calls[layer])
        return model

    return turns
