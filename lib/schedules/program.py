"""Rows of actions as a function of a model, which ``run``, ``draw``, ``grade`` and the engines take like any other."""

from collections.abc import Awaitable, Callable

from ..basics.arguments import describe, one_of_names
from ..basics.errors import PuzzleError
from ..learner.model import Model
from ..learner.tensors import WeightGrad
from .actions import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, RECV_B, RECV_F, SEND_B, SEND_F, Action
from .messages import check_ends, complete
from .order import Order
from .rows import read_rows

AWAITED = ("at use", "at once")


class Schedule:
    """A pipeline schedule. It is called with a model, as a learner's function is: ``run(schedule(rows), ...)``.

    ``stages``, ``ranks`` and ``micro_batches`` are those of the rows, ``rank_of`` has the rank of each stage, and
    ``rows`` the actions of each rank, with the messages between them.
    """

    def __init__(self, source: object, receives: str = AWAITED[0]) -> None:
        one_of_names("receives", receives, AWAITED)
        self.__name__, rows = read_rows(source)
        self.order = Order(rows)
        self.at_once = receives == "at once"
        self.cells = complete(rows, self.order, self.at_once)
        check_ends(self.cells, self.order, self.at_once)
        self.ranks, self.stages = self.order.ranks, self.order.stages
        self.micro_batches, self.rank_of = self.order.micro_batches, self.order.rank_of

    @property
    def rows(self) -> list[list[str]]:
        """The actions of each rank, as PyTorch writes them."""
        return [[str(cell.action) for cell in row] for row in self.cells]

    @property
    def sizes(self) -> dict[str, int]:
        """The ranks, layers and micro-batches of the smallest run: ``run(plan, **plan.sizes)``."""
        return {"ranks": self.ranks, "layers": self.stages, "batches": self.micro_batches}

    def __repr__(self) -> str:
        size = f"{self.ranks} ranks, {self.stages} stages, {self.micro_batches} micro-batches"
        return f"Schedule({self.__name__}: {size})"

    async def __call__(self, model: Model) -> Model:
        """Train a model by this schedule. Raises PuzzleError if it has other ranks, layers or micro-batches."""
        self._check(model)
        rank = _Rank(model, self)
        for cell in self.cells[model.rank]:
            for action in cell.action.parts():
                await rank.do(action)
        await rank.finish()
        return model

    def _check(self, model: Model) -> None:
        came = {"ranks": model.RANKS, "layers": model.LAYERS, "batches": model.BATCHES}
        wanted = self.sizes | {"layers": max(1, model.LAYERS // self.stages) * self.stages}
        if came != wanted:
            fix = f"run(..., {', '.join(f'{name}={size}' for name, size in wanted.items())})"
            problem = (
                f"this schedule is for {self.ranks} ranks and {self.micro_batches} micro-batches, and the layers are "
            )
            problem += f"divided evenly among its {self.stages} stages"
            raise PuzzleError(problem, where=self.__name__, got=describe(came), fix=fix, line="")


def schedule(source: object, receives: str = AWAITED[0]) -> Schedule:
    """Return a pipeline schedule as a function, which ``run``, ``draw``, ``compare``, ``grade``, ``sweep`` and the
    engines take like any other.

    ``source``: a text, or the path of a file, with rows of actions as torch.distributed.pipelining prints, writes and
    loads them: ``0F0`` is the forward of stage 0 for micro-batch 0, ``B`` a backward, ``I`` and ``W`` its two halves,
    ``0SEND_F0`` and ``1RECV_F0`` a message. Rows without messages get them. A row belongs to a rank.

    ``receives``: whether a receive is awaited ``"at use"``, by the work that reads what comes, or ``"at once"``.

    Raises PuzzleError, with the row and the column, for what is no action, for a stage on two ranks, for missing work
    and messages, and for rows that come to no end.

    >>> from lib import run, schedule
    >>> rows = '''0F0, 0F1, 0B0, 0B1
    ...           1F0, 1B0, 1F1, 1B1'''
    >>> done = run(schedule(rows), ranks=2, layers=2, batches=2)
    >>> done.time
    11.5
    """
    return Schedule(source, receives)


class _Rank:
    """What one rank of a pipeline has at hand while it works through its row."""

    def __init__(self, model: Model, plan: Schedule) -> None:
        self.model, self.plan = model, plan
        self.per_stage = model.LAYERS // plan.stages
        self.coming: dict[tuple[str, int, int], Awaitable[object]] = {}
        self.sending: list[Awaitable[None]] = []
        for stage in self.mine():
            for layer in self.layers(stage):
                model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        self.verbs: dict[str, Callable[[int, int], Awaitable[None]]] = {
            FORWARD: self.forward,
            BACKWARD: self.backward,
            BACKWARD_INPUT: self.backward_input,
            BACKWARD_WEIGHT: self.backward_weight,
            SEND_F: self.send_output,
            SEND_B: self.send_grad,
            RECV_F: self.receive_input,
            RECV_B: self.receive_grad,
        }

    def mine(self) -> list[int]:
        """The stages of this rank."""
        return [stage for stage, rank in self.plan.rank_of.items() if rank == self.model.rank]

    def layers(self, stage: int) -> range:
        """The layers of a stage."""
        return range(stage * self.per_stage, (stage + 1) * self.per_stage)

    async def do(self, action: Action) -> None:
        """Carry out one action. UNSHARD, RESHARD and REDUCE_GRAD do nothing where each weight is whole on its rank."""
        verb = self.verbs.get(action.kind)
        if verb is not None and action.micro_batch is not None:
            await verb(action.stage, action.micro_batch)

    async def forward(self, stage: int, mb: int) -> None:
        """F: all layers of a stage, whose inputs stay until the backward."""
        model, layers = self.model, self.layers(stage)
        if stage == 0:
            model.activations[0, mb] = model.get_activation([mb])
        elif (RECV_F, stage, mb) in self.coming:
            model.activations[layers.start, mb] = await self.coming.pop((RECV_F, stage, mb))
        for layer in layers:
            model.activations[layer + 1, mb] = model.forward(layer, model.activations[layer, mb], model.weights[layer])

    async def _grad(self, stage: int, mb: int) -> None:
        """Store the gradient of a stage's output: made here, or received."""
        model, end = self.model, self.layers(stage).stop
        if stage == self.plan.stages - 1:
            model.grad_activations[end, mb] = model.loss(model.activations.pop((end, mb)))
        elif (RECV_B, stage, mb) in self.coming:
            model.grad_activations[end, mb] = await self.coming.pop((RECV_B, stage, mb))

    async def backward(self, stage: int, mb: int) -> None:
        """B: both halves at once, layer after layer."""
        model = self.model
        await self._grad(stage, mb)
        for layer in reversed(self.layers(stage)):
            inp, grad = model.activations.pop((layer, mb)), model.grad_activations.pop((layer + 1, mb))
            of_weight, grad = model.backward(layer, inp, grad, model.weights[layer])
            if layer > 0:
                model.grad_activations[layer, mb] = grad
            self._add(layer, of_weight)

    async def backward_input(self, stage: int, mb: int) -> None:
        """I: the gradient of the stage's input; the inputs and gradients of its layers stay until W."""
        model = self.model
        await self._grad(stage, mb)
        for layer in reversed(self.layers(stage)):
            inp, grad = model.activations[layer, mb], model.grad_activations[layer + 1, mb]
            grad = model.backward_input(layer, inp, grad, model.weights[layer])
            if layer > 0:
                model.grad_activations[layer, mb] = grad

    async def backward_weight(self, stage: int, mb: int) -> None:
        """W: the gradients of the stage's weights."""
        model = self.model
        for layer in reversed(self.layers(stage)):
            inp, grad = model.activations.pop((layer, mb)), model.grad_activations.pop((layer + 1, mb))
            self._add(layer, model.backward_weight(layer, inp, grad, model.weights[layer]))

    def _add(self, layer: int, grad: WeightGrad) -> None:
        so_far = self.model.grad_weights.get(layer)
        self.model.grad_weights[layer] = grad if so_far is None else so_far + grad

    async def send_output(self, stage: int, mb: int) -> None:
        """SEND_F: to the rank of the next stage, while this rank goes on."""
        there = self.plan.rank_of[stage + 1]
        out = self.model.activations.pop((self.layers(stage).stop, mb))
        self.sending.append(self.model.pass_to(there, out))

    async def send_grad(self, stage: int, mb: int) -> None:
        """SEND_B: to the rank of the stage before, while this rank goes on."""
        there = self.plan.rank_of[stage - 1]
        key = self.layers(stage).start, mb
        self.sending.append(self.model.pass_to(there, self.model.grad_activations.pop(key)))

    async def receive_input(self, stage: int, mb: int) -> None:
        """RECV_F: from the rank of the stage before."""
        call = self.model.receive(src=self.plan.rank_of[stage - 1])
        if self.plan.at_once:
            self.model.activations[self.layers(stage).start, mb] = await call
        else:
            self.coming[RECV_F, stage, mb] = call

    async def receive_grad(self, stage: int, mb: int) -> None:
        """RECV_B: from the rank of the next stage."""
        call = self.model.receive(src=self.plan.rank_of[stage + 1])
        if self.plan.at_once:
            self.model.grad_activations[self.layers(stage).stop, mb] = await call
        else:
            self.coming[RECV_B, stage, mb] = call

    async def finish(self) -> None:
        """Update all layers of this rank, once every micro-batch is done."""
        model = self.model
        for layer in [layer for stage in self.mine() for layer in self.layers(stage)]:
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])
        for call in self.sending:
            await call
