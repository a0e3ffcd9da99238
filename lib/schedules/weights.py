"""The weights of a rank's stages: whole, or a shard of each that is gathered when a row says UNSHARD."""

from collections.abc import Awaitable, Iterable

from ..learner.model import Model
from ..learner.tensors import Weight, WeightGrad

AXIS = "shard"


class Weights:
    """Weights that are whole on their rank, and their gradients."""

    def __init__(self, model: Model, layers: Iterable[int]) -> None:
        self.model, self.layers = model, [*layers]
        for layer in self.layers:
            model.weights[layer], model.opt_states[layer] = self.load(layer)

    def load(self, layer: int) -> tuple[Weight, object]:
        """Load what this rank has of a layer."""
        return self.model.load_weights(layer)

    async def unshard(self, layers: Iterable[int]) -> None:
        """UNSHARD, RESHARD and REDUCE_GRAD: there is nothing to do where weights are whole."""

    reshard = reduce = unshard

    async def whole(self, layer: int) -> Weight:
        """Return the whole weight of a layer."""
        return self.model.weights[layer]  # type: ignore[no-any-return]

    def add(self, layer: int, grad: WeightGrad) -> None:
        """Add the gradient of a micro-batch to those before."""
        so_far = self.model.grad_weights.get(layer)
        self.model.grad_weights[layer] = grad if so_far is None else so_far + grad

    async def update(self) -> None:
        """Update all layers, once every micro-batch is done."""
        model = self.model
        for layer in self.layers:
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])


class Shards(Weights):
    """Weights of which a rank has a shard, as FSDP keeps them: the ranks along the axis have the others. A layer that
    is needed and was not gathered is gathered then, and gradients that no row sums are summed before the update."""

    def __init__(self, model: Model, layers: Iterable[int]) -> None:
        self.gathering = dict[int, Awaitable[Weight]]()
        self.summing = dict[int, Awaitable[WeightGrad]]()
        super().__init__(model, layers)

    def load(self, layer: int) -> tuple[Weight, object]:
        """Load the shard of this rank."""
        return self.model.load_weights(layer, self.model.axis_index(AXIS), self.model.axis_size(AXIS))

    async def unshard(self, layers: Iterable[int]) -> None:
        """UNSHARD: begin to gather the weights of some layers."""
        for layer in layers:
            if layer not in self.gathering and ("whole", layer) not in self.model.weights:
                self.gathering[layer] = self.model.allgather(self.model.weights[layer], layer, axis=AXIS)

    async def reshard(self, layers: Iterable[int]) -> None:
        """RESHARD: keep the shards only."""
        for layer in layers:
            if layer in self.gathering:  # nobody has used it
                await self.gathering.pop(layer)
            self.model.weights.pop(("whole", layer), None)

    async def reduce(self, layers: Iterable[int]) -> None:
        """REDUCE_GRAD: begin to sum the gradients over the shards' ranks."""
        for layer in layers:
            grad = self.model.grad_weights.pop(layer)
            self.summing[layer] = self.model.scatterreduce(grad, layer, axis=AXIS)

    async def whole(self, layer: int) -> Weight:
        """Return the whole weight of a layer, once it has come."""
        await self.unshard([layer])
        if layer in self.gathering:
            self.model.weights["whole", layer] = await self.gathering.pop(layer)
        return self.model.weights["whole", layer]  # type: ignore[no-any-return]

    async def update(self) -> None:
        """Update all layers, once their sums have come."""
        await self.reduce(layer for layer in self.layers if layer not in self.summing)
        await self.reshard(self.layers)
        for layer, call in self.summing.items():
            self.model.grad_weights[layer] = await call
        await super().update()
