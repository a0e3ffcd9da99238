"""Rows of actions as a function of a model, which ``run``, ``draw``, ``grade`` and the engines take like any other."""

from collections.abc import Awaitable, Callable
from typing import Any

from ..basics.arguments import describe, one_of_names
from ..basics.errors import PuzzleError
from ..learner.model import Model
from ..machine.cost import LINKS
from .actions import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    RECEIVES,
    RECV_B,
    RECV_F,
    REDUCE_GRAD,
    RESHARD,
    SEND_F,
    SENDS,
    UNSHARD,
    Action,
)
from .messages import check_ends, complete
from .order import TO_INPUT, Order
from .rows import read_rows
from .weights import AXIS, Shards, Weights

STAGE = "stage"
AWAITED = ("at use", "at once")


class Schedule:
    """A pipeline schedule. It is called with a model, as a learner's function is: ``run(schedule(rows), ...)``.

    ``stages``, ``ranks`` and ``micro_batches`` are those of the rows, ``rank_of`` has the rank of each stage, and
    ``rows`` the actions of each rank, with the messages between them.
    """

    def __init__(self, source: object, receives: str = AWAITED[0], links: str = LINKS[0]) -> None:
        one_of_names("receives", receives, AWAITED)
        one_of_names("links", links, LINKS)
        self.__name__, rows = read_rows(source)
        self.order = Order(rows)
        self.at_once, self.links = receives == "at once", links
        self.cells = complete(rows, self.order, self.at_once)
        check_ends(self.cells, self.order, self.at_once, links)
        self.ranks, self.stages = self.order.ranks, self.order.stages
        self.micro_batches, self.rank_of = self.order.micro_batches, self.order.rank_of

    @property
    def rows(self) -> list[list[str]]:
        """The actions of each rank, as PyTorch writes them."""
        return [[str(cell.action) for cell in row] for row in self.cells]

    @property
    def sizes(self) -> dict[str, Any]:
        """The ranks, layers and micro-batches of the smallest run, on its links: ``run(plan, **plan.sizes)``."""
        of_links = {} if self.links == LINKS[0] else {"links": self.links}
        return {"ranks": self.ranks, "layers": self.stages, "batches": self.micro_batches, **of_links}

    def __repr__(self) -> str:
        size = f"{self.ranks} ranks, {self.stages} stages, {self.micro_batches} micro-batches"
        return f"Schedule({self.__name__}: {size})"

    async def __call__(self, model: Model) -> Model:
        """Train a model by this schedule. Raises PuzzleError if it has other ranks, layers or micro-batches."""
        self._check(model)
        rank = _Rank(model, self)
        for cell in self.cells[rank.place]:
            await rank.do(cell.action)
        await rank.finish()
        return model

    def _check(self, model: Model) -> None:
        shards = _shards(model)
        came = {"ranks": model.RANKS, "layers": model.LAYERS, "batches": model.BATCHES}
        wanted = {
            "ranks": self.ranks * shards,
            "layers": max(1, model.LAYERS // self.stages) * self.stages,
            "batches": self.micro_batches * shards,
        }
        if came != wanted:
            problem = f"this schedule is for {self.ranks} ranks and {self.micro_batches} micro-batches"
            problem += f", of which there are {shards} times as many" if shards > 1 else ""
            problem += f", and the layers are divided evenly among its {self.stages} stages"
            expected = f"run(..., {', '.join(f'{name}={size}' for name, size in wanted.items())})"
            expected += (
                "; for more sizes than one, a function that makes the rows: await schedule(rows_of(model))(model)"
            )
            raise PuzzleError(problem, where=self.__name__, got=describe(came), expected=expected, line="")


def _shards(model: Model) -> int:
    """Return how many ranks share a stage. Raise PuzzleError for a mesh that is not of stages and shards."""
    axes = dict(model.dist._mesh.axes)
    if axes and axes.keys() != {STAGE, AXIS}:
        expected = f'mesh={{"{STAGE}": 4, "{AXIS}": 2}}, or no mesh'
        raise PuzzleError(
            "a schedule runs on a mesh of stages and shards", got=describe(axes), expected=expected, line=""
        )
    return axes.get(AXIS, 1)


def schedule(source: object, receives: str = AWAITED[0], links: str = LINKS[0]) -> Schedule:
    """Return a pipeline schedule as a function, which ``run``, ``draw``, ``compare``, ``grade``, ``sweep`` and the
    engines take like any other.

    ``source``: a text, the path of a file, or lists, with rows of actions as torch.distributed.pipelining prints,
    writes and loads them: ``0F0`` is the forward of stage 0 for micro-batch 0, ``B`` a backward, ``I`` and ``W`` its
    two halves, ``0SEND_F0`` and ``1RECV_F0`` a message. Rows without messages get them. A row belongs to a rank.

    On a mesh such as ``{"stage": 4, "shard": 2}`` the ranks of a stage have a shard of its weights and micro-batches of
    their own each. ``0UNSHARD`` gathers the weights of stage 0, ``0RESHARD`` keeps the shards only, and
    ``0REDUCE_GRAD`` sums the gradients; without a mesh, where weights are whole, these do nothing.

    ``receives``: whether a receive is awaited ``"at use"``, by the work that reads what comes, or ``"at once"``.
    ``links``: on which links the rows have to come to an end, as ``run`` has them.

    Raises PuzzleError, with the row and the column, for what is no action, for a stage on two ranks, for missing work
    and messages, and for rows that come to no end.

    >>> from lib import run, schedule
    >>> rows = '''0F0, 0F1, 0B0, 0B1
    ...           1F0, 1B0, 1F1, 1B1'''
    >>> done = run(schedule(rows), ranks=2, layers=2, batches=2)
    >>> done.time
    7.3
    """
    return Schedule(source, receives, links)


class _Rank:
    """What one rank of a pipeline has at hand while it works through its row."""

    def __init__(self, model: Model, plan: Schedule) -> None:
        self.model, self.plan, self.shards = model, plan, _shards(model)
        sharded = STAGE in model.dist._mesh.axes
        self.place = model.axis_index(STAGE) if sharded else model.rank
        self.per_stage = model.LAYERS // plan.stages
        self.coming: dict[tuple[str, int, int], Awaitable[object]] = {}
        self.sending: list[Awaitable[None]] = []
        self.overlapped = False
        """Whether what is carried out is the backward of an overlapped pair."""
        mine = [stage for stage, rank in plan.rank_of.items() if rank == self.place]
        self.weights = (Shards if sharded else Weights)(
            model, [layer for stage in mine for layer in self.layers(stage)]
        )
        self.verbs: dict[str, Callable[[int, int], Awaitable[None]]] = {
            FORWARD: self.forward,
            BACKWARD: self.backward,
            BACKWARD_INPUT: self.backward_input,
            BACKWARD_WEIGHT: self.backward_weight,
        }
        self.of_weights: dict[str, Callable[[range], Awaitable[None]]] = {
            UNSHARD: self.weights.unshard,
            RESHARD: self.weights.reshard,
            REDUCE_GRAD: self.weights.reduce,
        }

    def rank_of(self, stage: int) -> int:
        """The rank of a stage that this rank sends to and receives from."""
        place = self.plan.rank_of[stage]
        if self.place == self.model.rank and self.shards == 1:
            return place
        return self.model.rank_at(**{STAGE: place, AXIS: self.model.axis_index(AXIS)})

    def layers(self, stage: int) -> range:
        """The layers of a stage."""
        return range(stage * self.per_stage, (stage + 1) * self.per_stage)

    async def do(self, action: Action) -> None:
        """Carry out one action. Two that overlap wait for all that both read, where that saves anything; else they are
        done one after the other."""
        together = bool(action.both) and bool(self.model.dist.cost.overlapped)
        for part in action.parts() if together else ():
            await self._bring(part)
            for layer in self.layers(part.stage):
                await self.weights.whole(layer)
        for part in action.parts():
            if part.micro_batch is None:
                await self.of_weights[part.kind](self.layers(part.stage))
                continue
            if part.kind in SENDS:
                self.send(part.kind, part.stage, part.micro_batch)
            elif part.kind in RECEIVES:
                await self.receive(part.kind, part.stage, part.micro_batch)
            else:
                if not together:
                    await self._bring(part)
                self.overlapped = bool(action.both) and part.kind != FORWARD
                await self.verbs[part.kind](part.stage, part.micro_batch)

    async def _bring(self, action: Action) -> None:
        """Store what a forward or a backward reads, once it is there."""
        if action.micro_batch is not None and action.kind == FORWARD:
            await self._input(action.stage, action.micro_batch)
        elif action.micro_batch is not None and action.kind in TO_INPUT:
            await self._grad(action.stage, action.micro_batch)

    async def _input(self, stage: int, mb: int) -> None:
        """Store a stage's input: the training data, or received."""
        model = self.model
        if stage == 0:
            shard = model.axis_index(AXIS) if self.shards > 1 else 0
            model.activations[0, mb] = model.get_activation([mb * self.shards + shard])
        elif (RECV_F, stage, mb) in self.coming:
            model.activations[self.layers(stage).start, mb] = await self.coming.pop((RECV_F, stage, mb))

    async def forward(self, stage: int, mb: int) -> None:
        """F: all layers of a stage, whose inputs stay until the backward."""
        model = self.model
        for layer in self.layers(stage):
            weight = await self.weights.whole(layer)
            model.activations[layer + 1, mb] = model.forward(layer, model.activations[layer, mb], weight)

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
        for layer in reversed(self.layers(stage)):
            weight = await self.weights.whole(layer)  # first: while it is gathered, all else stays stored
            inp, grad = model.activations.pop((layer, mb)), model.grad_activations.pop((layer + 1, mb))
            of_weight, grad = model.backward(layer, inp, grad, weight, overlapped=self.overlapped)
            if layer > 0:
                model.grad_activations[layer, mb] = grad
            self.weights.add(layer, of_weight)

    async def backward_input(self, stage: int, mb: int) -> None:
        """I: the gradient of the stage's input; the inputs and gradients of its layers stay until W."""
        model = self.model
        for layer in reversed(self.layers(stage)):
            weight = await self.weights.whole(layer)
            inp, grad = model.activations[layer, mb], model.grad_activations[layer + 1, mb]
            grad = model.backward_input(layer, inp, grad, weight, overlapped=self.overlapped)
            if layer > 0:
                model.grad_activations[layer, mb] = grad

    async def backward_weight(self, stage: int, mb: int) -> None:
        """W: the gradients of the stage's weights."""
        model = self.model
        for layer in reversed(self.layers(stage)):
            weight = await self.weights.whole(layer)  # first: while it is gathered, all else stays stored
            inp, grad = model.activations.pop((layer, mb)), model.grad_activations.pop((layer + 1, mb))
            of_weight = model.backward_weight(layer, inp, grad, weight, overlapped=self.overlapped)
            self.weights.add(layer, of_weight)

    def send(self, kind: str, stage: int, mb: int) -> None:
        """SEND_F and SEND_B: to the rank of the next stage, or of the one before, while this rank goes on."""
        model, layers = self.model, self.layers(stage)
        if kind == SEND_F:
            there, result = stage + 1, model.activations.pop((layers.stop, mb))
        else:
            there, result = stage - 1, model.grad_activations.pop((layers.start, mb))
        self.sending.append(model.pass_to(self.rank_of(there), result))

    async def receive(self, kind: str, stage: int, mb: int) -> None:
        """RECV_F and RECV_B: from the rank of the stage before, or of the next one."""
        there, bring = (stage - 1, self._input) if kind == RECV_F else (stage + 1, self._grad)
        self.coming[kind, stage, mb] = self.model.receive(src=self.rank_of(there))
        if self.plan.at_once:
            await bring(stage, mb)

    async def finish(self) -> None:
        """Update the layers of this rank, and see to it that all has been sent."""
        await self.weights.update()
        for call in self.sending:
            await call
