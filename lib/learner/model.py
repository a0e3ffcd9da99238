"""A rank as the learner sees it: five dictionaries and the verbs of training."""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from inspect import isawaitable, signature
from itertools import zip_longest
from operator import index
from types import CodeType, FrameType
from typing import Any, TypeVar, overload

from ..basics.arguments import describe, one_of, set_of, whole_number
from ..basics.errors import Line, Place, PuzzleError, is_learners, line_at, with_article
from ..basics.units import Elements
from ..machine.check import TRAINED, check_finals
from ..machine.failure import Wait
from ..machine.interface import CallHandle, FinalState
from ..record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from ..record.events import Event
from ..record.kinds import KINDS, STORES
from ..record.operations import Collective, Computation
from ..record.table import Verbs, collective
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS, ORTHOGONALIZE, UPDATE
from .calls import Call, Caller, Exchange
from .dist import Dist
from .experts import ExpertVerbs
from .pricing import priced
from .slices import SliceVerbs
from .storage import Answers, Storage
from .tensors import (
    TENSORS,
    Activation,
    ActivationGrad,
    Batched,
    OptState,
    Saved,
    Sharded,
    Tensor,
    Weight,
    WeightGrad,
    expect,
    of_token,
    unfit,
)

PLAIN = (str, int, float, bool, type(None))
LISTS = (list, tuple, range)  # what stands for several tensors, or for their layers
LONGEST = 1000  # characters of a plain message: messages are priced as if they weighed nothing
Cut = TypeVar("Cut", bound=Sharded)  # what can be joined, and what can be summed
Summed = TypeVar("Summed", bound=WeightGrad | Batched)


def call_of(verb: str) -> str:
    """Return how a verb of a model is called, with the arguments that it needs.

    >>> call_of("pass_to")
    'await model.pass_to(rank, v)'
    """
    known = signature(getattr(Model, verb))
    needed = [name for name, one in known.parameters.items() if one.default is one.empty and name != "self"]
    return f"{'await ' * ('Awaitable' in str(known.return_annotation))}model.{verb}({', '.join(needed)})"


class Model(SliceVerbs, ExpertVerbs, Verbs):
    """Rank ``rank`` of the machine ``dist``, training ``layers`` layers on ``batches`` micro-batches.

    ``weights``, ``opt_states``, ``activations``, ``grad_activations`` and ``grad_weights`` are the memory of
    the rank: dictionaries with keys of your choice. A tensor that is in none of them is gone after the next operation.
    """

    _watched: Any = None
    """What notes, where this rank stands for others, what its code asks and gives (``represent.coordinate``)."""
    dist: Dist
    final_weights: Answers
    weights: Storage
    opt_states: Storage
    activations: Storage
    grad_activations: Storage
    grad_weights: Storage

    def __init__(self, rank: int = 0, dist: Dist | None = None, layers: int = 2, batches: int = 1) -> None:
        if dist is None:
            dist = Dist(1)
        if not isinstance(dist, Dist):
            raise PuzzleError("dist must be a Dist", where="Model", got=describe(dist))
        self.dist = dist
        self._rank = one_of("Model: rank", rank, dist._mesh.everyone)
        self._layers = whole_number("Model: layers", layers)
        self._batches = whole_number("Model: batches", batches)
        self._simulator = dist._simulator
        self._handle = self._simulator.open(self._rank, self._layers, self._batches)
        self._by_hand = dist._watch is not None
        self._shared = False
        self._caller = Caller(self._rank, self._simulator, self._handle, dist._watch)
        # Where each record of the log was written: a place in the code costs less than a line.
        self._codes: list[CodeType] = []
        self._places = array("i")
        self.final_weights = Answers()
        kind = getattr(self._simulator, "storage_type", Storage)  # a recorder has dictionaries that say more
        for store in STORES:
            setattr(self, store, kind(self._simulator, self._handle, store))

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute of your own. Raises PuzzleError for what the machine has: it would no longer know of it."""
        replaced = name in Model.__annotations__ and getattr(self, name, value) is not value
        if replaced or (not name.startswith("_") and hasattr(Model, name)):
            where = Place(self._rank, detail=f"model.{name} = ...")
            raise PuzzleError("frozen", where=where, got=describe(value), what=f"model.{name}", done="replaced")
        object.__setattr__(self, name, value)

    # -- what a rank knows of itself --------------------------------------------------------

    @property
    def rank(self) -> int:
        """This rank, from 0 to RANKS - 1. Of a host, it is RANKS or more."""
        return self._rank if self._watched is None else self._watched.rank

    @property
    def RANKS(self) -> int:
        """World size: how many ranks there are. Hosts do not count."""
        return self.dist.ranks

    @property
    def is_host(self) -> bool:
        """Whether this is no device but a host: a processor with a large memory that stores, updates, sends and
        receives."""
        return self._rank in self.dist._mesh.devices_of

    @property
    def host(self) -> int | None:
        """The rank of the host beside this device (of a host its own). None on a machine without hosts."""
        return self.dist._mesh.host_of(self._rank)

    @property
    def devices(self) -> tuple[int, ...]:
        """The ranks of the devices that this host is beside. Empty on a device."""
        return self.dist._mesh.devices_of.get(self._rank, ())

    @property
    def LAYERS(self) -> int:
        """How many layers the model has."""
        return self._layers

    @property
    def BATCHES(self) -> int:
        """How many micro-batches the whole batch has, over all ranks."""
        return self._batches

    @property
    def time(self) -> float:
        """The rank's clock, in ticks."""
        return self._simulator.time(self._handle)

    @property
    def log(self) -> tuple[Event, ...]:
        """Everything that the rank has done so far, in the order of its calls."""
        if self._watched is not None:
            self._watched.survey.take("the log of a rank")
        return tuple(self._simulator.events(self._handle))

    def lines(self) -> list[Line | None]:
        """Returns for each entry of ``log`` the line of your code that it comes from, or None."""
        places = list(zip(self._codes, self._places, strict=True))
        known = {(code, at): Line(code, line_at(code, at)) if is_learners(code) else None for code, at in set(places)}
        pending = {call.at for call in self._simulator.waiting(self._handle)}  # they have a line, and no record yet
        lines = [known[place] for at, place in enumerate(places) if at not in pending]
        count = len(self._simulator.events(self._handle))
        return [*lines, *[None] * (count - len(lines))] if len(lines) <= count else [None] * count

    def _line_of(self, call: int) -> Line | None:
        """Return the line of a call, by its place in the log."""
        code = self._codes[call] if call < len(self._codes) else None
        return Line(code, line_at(code, self._places[call])) if code is not None and is_learners(code) else None

    def _waits_for(self, place: Place) -> Wait | None:
        """Return the first unfinished call that the rank waits for, or that has failed there, with its line."""
        for call in self._simulator.waiting(self._handle):
            layers = call.layers or (call.layer,)
            if call.awaited or (call.kind == place.operation and place.layer in layers):
                return call._replace(line=self._line_of(call.at))
        return None

    def storage(self) -> tuple[Storage, Storage, Storage, Storage, Storage]:
        """Returns the five dictionaries: weights, opt_states, activations, grad_activations, grad_weights."""
        return self.weights, self.opt_states, self.activations, self.grad_activations, self.grad_weights

    def memory(self) -> Elements:
        """Returns the elements that are stored now, in all five dictionaries."""
        return self._simulator.stored(self._handle)

    def status(self) -> None:
        """Prints the clock, the memory in use, and every stored tensor."""
        cost = self.dist.cost
        when, held = cost.time_unit.at(f"{self.time:g}"), cost.size_unit.describe(self.memory())
        lines = [f"[rank {self.rank}, {when}] {held} stored"]
        lines += [f"  {store._name}[{key!r}] = {tensor!r}" for store in self.storage() for key, tensor in store.items()]
        print("\n".join(lines))

    def __repr__(self) -> str:
        return (
            f"Model(rank={self.rank}, RANKS={self.RANKS}, LAYERS={self.LAYERS}, BATCHES={self.BATCHES}, "
            f"time={self.time:g}, memory={self.memory()})"
        )

    def axis_index(self, axis: str | Sequence[str]) -> int:
        """Returns the position of this rank on a mesh axis, from 0 up; on several, its place in their group. Raises
        PuzzleError for an unknown axis."""
        mesh = self.dist._mesh
        known = mesh.named(axis)
        if self.is_host:
            raise PuzzleError(f"a host is on no axis, so not on {axis!r}", where=self._place("axis_index"))
        if self._watched is not None:
            return self._watched.index(mesh, known)  # type: ignore[no-any-return]
        return mesh.index(self._rank, known)

    def axis_size(self, axis: str | Sequence[str]) -> int:
        """Returns how many ranks there are along a mesh axis, or along several together. Raises PuzzleError for an
        unknown axis."""
        return self.dist._mesh.along(self.dist._mesh.named(axis))

    def rank_at(self, **coords: int) -> int:
        """Returns the rank at these mesh coordinates. On an axis that you leave out it is where this rank is."""
        mesh = self.dist._mesh
        for axis, place in coords.items():
            if type(place) is int or not 0 <= place < mesh.size(axis):
                one_of(axis, place, mesh.size(axis), self._place("rank_at"))
        if self.is_host and (missing := mesh.axes.keys() - coords.keys()):
            expected = f"{', '.join(sorted(missing))} as well"
            raise PuzzleError("a host has no coordinates of its own", where=self._place("rank_at"), expected=expected)
        if self._watched is not None:
            return self._watched.rank_at(mesh, coords)  # type: ignore[no-any-return]
        return mesh.rank_at({**mesh.coordinates(self._rank), **coords}) if mesh.axes else self._rank

    # -- sources ------------------------------------------------------------------------------

    def load_weights(self, layer: int, shard: int = 0, total: int = 1) -> tuple[Weight, OptState]:
        """A layer's weight and optimizer state, not yet updated. With ``shard`` and ``total`` it is one piece of each:
        number ``shard``, from 0, of ``total`` equal pieces. Takes no time. Each piece can be taken once."""
        return self._load("load_weights", layer, shard, total)

    def load_adapter(self, layer: int, shard: int = 0, total: int = 1) -> tuple[Weight, OptState]:
        """The adapter of a layer and its optimizer state, not yet updated: two small matrices whose product is added to
        the layer's weight (LoRA). In all else it is like ``load_weights``. Only some puzzles allow it."""
        return self._load("load_adapter", layer, shard, total)

    def _load(self, verb: str, layer: int, shard: int, total: int) -> tuple[Weight, OptState]:
        if self._watched is not None:
            shard, total = self._watched.given(shard), self._watched.given(total)
        if type(total) is not int or total < 1:
            total = whole_number("total", total, where=self._place(verb))
        weight, state = getattr(self._simulator, verb)(self._handle, layer, shard, total)
        self._note(sys._getframe(2))
        return of_token(weight), of_token(state)  # type: ignore[return-value]

    def get_activation(self, batches: Iterable[int]) -> Activation:
        """The input of layer 0 for these micro-batches. Takes no time. A rank can take each micro-batch once."""
        if self._watched is not None:
            batches = self._watched.batches(batches)
        wanted = set_of("batches", batches, where=Place(self._rank, "get_activation"))
        token = self._simulator.get_activation(self._handle, wanted)
        self._note(sys._getframe(1))
        return of_token(token)  # type: ignore[return-value]

    def tokens(self, batch: int) -> int:
        """How many tokens a micro-batch has. A rank knows it of those whose input it has taken. Takes no time."""
        return self._simulator.tokens(self._handle, batch)

    def fake_grad(self, layer: int, batches: Iterable[int]) -> WeightGrad:
        """A made-up gradient, for demonstrations. With no micro-batches, ``[]``, it is zero, and allowed everywhere: a
        rank contributes it to an all-reduce or a reduce-scatter when it has nothing to add."""
        if self._watched is not None:
            batches = self._watched.batches(batches)
        wanted = set_of("batches", batches, where=Place(self._rank, "fake_grad"))
        return of_token(self._simulator.fake_grad(self._handle, layer, wanted))  # type: ignore[return-value]

    # -- operations ----------------------------------------------------------------------------

    @overload
    def forward(
        self,
        layer: int,
        inp: Activation,
        weight: Weight,
        *,
        partial: bool = ...,
        sliced: bool = ...,
        adapter: Any = ...,
    ) -> Activation: ...
    @overload
    def forward(
        self,
        layer: int,
        inp: Activation,
        weight: Weight,
        *,
        partial: bool = False,
        sliced: bool = False,
        keep: str,
        adapter: Weight | None = None,
    ) -> tuple[Activation, Saved]: ...
    @priced
    def forward(
        self,
        layer: int,
        inp: Activation,
        weight: Weight,
        *,
        partial: bool = False,
        sliced: bool = False,
        keep: str | None = None,
        adapter: Weight | None = None,
    ) -> Any:
        """The layer's output, which is the input of the next layer. Takes {price}.

        Needs the layer's complete weight, not yet updated, and its input. With ``partial=True`` the weight may be a
        piece: it takes that share of the time, and gives a partial sum of the output. With ``sliced=True`` alone the
        input may be a slice of the sequence, and so is the output: the layer looks at each token by itself. With
        ``keep="all"``, or ``"selective"`` for less, it gives the output and what it leaves behind for backward, a
        ``Saved``. ``adapter``: the layer's complete adapter, if it has one. Only some puzzles allow these four.
        """
        if partial is not False or sliced is not False or keep is not None or adapter is not None:
            results = self._compute(FORWARD, layer, inp, weight, adapter, partial=partial, sliced=sliced, keep=keep)
            return results[0] if keep is None else tuple(results)
        if type(inp) is not Activation or type(weight) is not Weight:
            self._refuse(FORWARD, layer, inp, weight)
        made = self._simulator.compute(self._handle, FORWARD.kind, layer, (inp._token, weight._token))
        self._note(sys._getframe(1))
        return of_token(made[0])

    @priced
    def loss(self, inp: Activation, *, sliced: bool = False) -> ActivationGrad:
        """The gradient of the loss with respect to the last activation (``inp.layer == LAYERS``). Takes {price}. With
        ``sliced=True`` the activation, and so the gradient, may be a slice of the sequence. Some puzzles allow it."""
        if sliced is not False:
            return self._compute(LOSS, None, inp, sliced=sliced)[0]  # type: ignore[no-any-return]
        if type(inp) is not Activation:
            self._refuse(LOSS, None, inp)
        made = self._simulator.compute(self._handle, LOSS.kind, None, (inp._token,))
        self._note(sys._getframe(1))
        return of_token(made[0])  # type: ignore[return-value]

    @priced
    def backward(
        self,
        layer: int,
        inp: Activation,
        grad: ActivationGrad,
        weight: Weight,
        saved: Saved | None = None,
        *,
        partial: bool = False,
        sliced: bool = False,
        overlapped: bool = False,
        adapter: Weight | None = None,
    ) -> tuple[WeightGrad, ActivationGrad]:
        """The gradients of the layer's weight and of its input. Takes {price}.

        Needs what forward needed, and the gradient of the layer's output for the same micro-batches. ``saved``: what
        forward left behind; what it lacks is computed again. With ``partial=True`` the weight may be a piece: then the
        first gradient is that of the piece, and the second a partial sum. With ``sliced=True`` alone input and gradient
        may be a slice of the sequence: then the first is what this slice gives, to be summed over all slices, and the
        second is a slice. With ``adapter``, the layer's adapter, the first gradient is that of the adapter: the weight
        is frozen, and it takes as long as backward_input. With ``overlapped=True`` it runs beside the forwards of other
        micro-batches right before it, since which the rank has awaited nothing: together they save ``Cost.overlapped``
        times the shorter one. Only some puzzles allow that.
        """
        plain = partial is False and sliced is False and overlapped is False
        if not plain or saved is not None or adapter is not None:
            options = {"partial": partial, "sliced": sliced, "overlapped": overlapped}
            return tuple(self._compute(BACKWARD, layer, inp, grad, weight, saved, adapter, **options))
        if type(inp) is not Activation or type(grad) is not ActivationGrad or type(weight) is not Weight:
            self._refuse(BACKWARD, layer, inp, grad, weight)
        made = self._simulator.compute(self._handle, BACKWARD.kind, layer, (inp._token, grad._token, weight._token))
        self._note(sys._getframe(1))
        return of_token(made[0]), of_token(made[1])  # type: ignore[return-value]

    @priced
    def backward_input(
        self,
        layer: int,
        inp: Activation,
        grad: ActivationGrad,
        weight: Weight,
        saved: Saved | None = None,
        *,
        partial: bool = False,
        overlapped: bool = False,
    ) -> ActivationGrad:
        """The half of backward for the gradient of the layer's input, not that of its weight. Takes {price}.

        Needs what backward needs. The other half may come before it, or much later. Only some puzzles allow it.
        """
        made = self._compute(BACKWARD_INPUT, layer, inp, grad, weight, saved, partial=partial, overlapped=overlapped)
        return made[0]  # type: ignore[no-any-return]

    @priced
    def backward_weight(
        self,
        layer: int,
        inp: Activation,
        grad: ActivationGrad,
        weight: Weight,
        saved: Saved | None = None,
        *,
        partial: bool = False,
        overlapped: bool = False,
    ) -> WeightGrad:
        """The half of backward for the gradient of the layer's weight, not that of its input. Takes {price}.

        Needs what backward needs, so until then input and gradient have to be kept. Only some puzzles allow it.
        """
        made = self._compute(BACKWARD_WEIGHT, layer, inp, grad, weight, saved, partial=partial, overlapped=overlapped)
        return made[0]  # type: ignore[no-any-return]

    @priced
    def orthogonalize(self, layer: int, grad: WeightGrad) -> WeightGrad:
        """The nearest matrix to a layer's gradient whose rows are orthogonal, which Muon updates with. Takes {price}.

        Needs the whole gradient, summed over all micro-batches. What it gives can be cut, joined and sent. Two of them
        do not add up. Only ``run(..., train="muon")`` has it.
        """
        return self._compute(ORTHOGONALIZE, layer, grad)[0]  # type: ignore[no-any-return]

    @priced
    def update(
        self, layer: int, weight_grad: WeightGrad, weight: Weight, opt_state: OptState
    ) -> tuple[Weight, OptState]:
        """The optimizer step: the updated weight and state, with their ``step`` raised by 1. Takes {price}.

        The gradient must have every micro-batch exactly once, and cover the shards of the weight and the state.
        """
        if type(weight_grad) is not WeightGrad or type(weight) is not Weight or type(opt_state) is not OptState:
            self._refuse(UPDATE, layer, weight_grad, weight, opt_state)
        operands = (weight_grad._token, weight._token, opt_state._token)
        made = self._simulator.compute(self._handle, UPDATE.kind, layer, operands)
        self._note(sys._getframe(1))
        return of_token(made[0]), of_token(made[1])  # type: ignore[return-value]

    def _compute(self, row: Computation, layer: int | None, *operands: Tensor | None, **options: object) -> list[Any]:
        """Carry out an operation of the compute stream, and return its results. Optional operands, after the others,
        and options are None where they are not given; an option that may be True is False.

        The verbs above do the same one by one: with names instead of loops they take half the time.
        """
        self._refuse(row, layer, *operands)
        chosen = self._chosen(row, layer, options)
        tokens = [operand._token for operand in operands if operand is not None]
        made = self._simulator.compute(self._handle, row.kind, layer, tokens, chosen)
        self._note(sys._getframe(2))
        return [of_token(token) for token in made]

    def _chosen(self, row: Computation, layer: int | None, options: Mapping[str, object]) -> dict[str, object]:
        """Return the options that a call names. Raise PuzzleError for a value that one cannot have."""
        chosen = {}
        for name, value in options.items():
            known = row.options[name]
            unsaid = False if True in known else None
            if value is unsaid:
                continue
            if type(value) is not type(known[0]) or value not in known:
                expected = " or ".join(map(repr, (*known, unsaid)))
                where, problem = self._place(row.kind, layer), f"unknown value for {name}"
                raise PuzzleError(problem, where=where, expected=expected, got=describe(value))
            chosen[name] = value
        return chosen

    def _refuse(self, row: Computation, layer: int | None, *operands: object) -> None:
        """Raise PuzzleError for the first operand that is of another kind than its row says."""
        for operand, (name, wanted) in zip(operands, {**row.takes, **row.may_take}.items(), strict=False):
            if operand is not None or name in row.takes:
                expect(self._place(row.kind, layer), name, operand, wanted)

    def set_final_weight(self, layer: int, weight: Weight) -> None:
        """Hands in the rank's final weight of a layer, or its shards of it. Takes no time, and does not store the
        weight. Where adapters are trained, it is the layer's adapter."""
        if type(weight) is not Weight:
            expect(
                self._place("set_final_weight", layer if isinstance(layer, int) else None), "weight", weight, "Weight"
            )
        self._simulator.set_final_weight(self._handle, layer, weight._token)
        dict.__setitem__(self.final_weights, layer, weight)

    # -- communication ---------------------------------------------------------------------------

    @overload
    def allreduce(self, v: Summed, layer: int, axis: str | Sequence[str] | None = None) -> Awaitable[Summed]: ...
    @overload
    def allreduce(
        self, v: Sequence[Summed], layer: Sequence[int], axis: str | Sequence[str] | None = None
    ) -> Awaitable[list[Summed]]: ...
    @priced
    def allreduce(self, v: Any, layer: int | Sequence[int], axis: str | Sequence[str] | None = None) -> Awaitable[Any]:
        """All-reduce: sums the gradients of the group, and every rank of the group gets the sum. Takes {price}.

        The group is all ranks. With ``axis``, a mesh axis, it is this rank and those that differ from it in that
        coordinate only, and with several, ``axis=("replica", "context")``, in these only. A list of gradients with
        the list of their layers is one call for all of them: it gives a list.
        Partial sums of activations and of their gradients are summed in the same way (puzzle 17).

        Example, of two ranks that bring the gradients of micro-batches 0 and 1 (in PyTorch: {torch}):

        >>> from lib.learner.model import before_and_after
        >>> before_and_after("allreduce")
        rank 0 brings WeightGrad(layer=0, layers=1, batches={0}, total_batches=2, shards={0}, total=1)
        rank 1 brings WeightGrad(layer=0, layers=1, batches={1}, total_batches=2, shards={0}, total=1)
        rank 0 gets WeightGrad(layer=0, layers=1, batches={0, 1}, total_batches=2, shards={0}, total=1)
        rank 1 gets WeightGrad(layer=0, layers=1, batches={0, 1}, total_batches=2, shards={0}, total=1)
        """
        return self._meet(ALLREDUCE, v, layer, axis)

    @overload
    def allgather(self, v: Cut, layer: int, axis: str | Sequence[str] | None = None) -> Awaitable[Cut]: ...
    @overload
    def allgather(
        self, v: Sequence[Cut], layer: Sequence[int], axis: str | Sequence[str] | None = None
    ) -> Awaitable[list[Cut]]: ...
    @priced
    def allgather(self, v: Any, layer: int | Sequence[int], axis: str | Sequence[str] | None = None) -> Awaitable[Any]:
        """All-gather: joins the group's shards of a Weight, OptState or WeightGrad, and every rank of the group gets
        what they make together. Takes {price}. A list of shards with the list of their layers is one call for all of
        them: it gives a list.

        Example, of two ranks that bring a half of a weight each (in PyTorch: {torch}):

        >>> from lib.learner.model import before_and_after
        >>> before_and_after("allgather")
        rank 0 brings Weight(layer=0, layers=1, step=0, shards={0}, total=2)
        rank 1 brings Weight(layer=0, layers=1, step=0, shards={1}, total=2)
        rank 0 gets Weight(layer=0, layers=1, step=0, shards={0}, total=1)
        rank 1 gets Weight(layer=0, layers=1, step=0, shards={0}, total=1)
        """
        return self._meet(ALLGATHER, v, layer, axis)

    @overload
    def scatterreduce(self, v: Summed, layer: int, axis: str | Sequence[str] | None = None) -> Awaitable[Summed]: ...
    @overload
    def scatterreduce(
        self, v: Sequence[Summed], layer: Sequence[int], axis: str | Sequence[str] | None = None
    ) -> Awaitable[list[Summed]]: ...
    @priced
    def scatterreduce(
        self, v: Any, layer: int | Sequence[int], axis: str | Sequence[str] | None = None
    ) -> Awaitable[Any]:
        """Reduce-scatter: sums the gradients of the group, and rank number i of the group, from 0, gets piece i.
        Takes {price}. A list of gradients with the list of their layers is one call for them all: it gives a list.

        Example, of two ranks that bring the gradients of micro-batches 0 and 1 (in PyTorch: {torch}):

        >>> from lib.learner.model import before_and_after
        >>> before_and_after("scatterreduce")
        rank 0 brings WeightGrad(layer=0, layers=1, batches={0}, total_batches=2, shards={0}, total=1)
        rank 1 brings WeightGrad(layer=0, layers=1, batches={1}, total_batches=2, shards={0}, total=1)
        rank 0 gets WeightGrad(layer=0, layers=1, batches={0, 1}, total_batches=2, shards={0}, total=2)
        rank 1 gets WeightGrad(layer=0, layers=1, batches={0, 1}, total_batches=2, shards={1}, total=2)
        """
        return self._meet(SCATTERREDUCE, v, layer, axis)

    def _meet(self, row: Collective, v: Any, layer: Any, axis: Any) -> Call:
        """Start a collective, called by its verb."""
        several = False
        if type(layer) is not int or ((v is not None or row.everyone) and type(v).__name__ not in row.takes):
            several = self._brings_list(row, v, layer)
        if self._by_hand:
            self._share()
        if axis is not None and axis.__class__ is not str:
            axis = self.dist._mesh.named(axis)
        if several:
            tokens = [None if one is None else one._token for one in v]
            handle = self._simulator.meet_list(self._handle, row.kind, tokens, list(layer), axis)
        else:
            handle = self._simulator.meet(self._handle, row.kind, None if v is None else v._token, layer, axis)
        return self._call(handle, sys._getframe(2))

    def _brings_list(self, row: Collective, v: Any, layer: Any) -> bool:
        """Return whether tensors and layers are lists. Raise PuzzleError for what cannot be brought to a collective."""
        if type(v) not in LISTS and type(layer) not in LISTS:
            self._refuse_brought(row, v, layer)
            return False
        if type(v) not in LISTS or type(layer) not in LISTS:
            one, other = ("tensors", "layers") if type(v) in LISTS else ("layers", "tensors")
            got = f"{describe(v)}, {describe(layer)}"
            if isawaitable(v):
                self._refuse_brought(row, v, layer)
            why = f"a list of {one} comes with the list of their {other}"
            raise PuzzleError("list_unfit", where=self._place(row.kind), got=got, why=why)
        for one, its_layer in zip_longest(v, layer[: len(v)]):
            self._refuse_brought(row, one, its_layer)
        return True

    def _refuse_brought(self, row: Collective, v: object, layer: object) -> None:
        """Raise PuzzleError for something that cannot be brought to a collective."""
        if type(v).__name__ in row.takes or (v is None and not row.everyone):
            return
        where = self._place(row.kind, layer if isinstance(layer, int) else None)
        kinds = [kind for kind in row.takes if not KINDS[kind].by_batch] or row.takes  # those are for few puzzles
        raise unfit("not_brought", v, where, verb=row.kind, kind=with_article(" or ".join(kinds)))

    @priced
    def pass_to(self, rank: int, v: Any) -> Awaitable[None]:
        """Sends one tensor (or a small plain value: a text, a number, None) to a rank. Takes {price}.

        Example, in PyTorch {torch}: ``await model.pass_to(model.rank + 1, model.activations[4])``
        """
        return self._pass_to(rank, v, sys._getframe(1))

    def _pass_to(self, rank: int, v: Any, frame: FrameType) -> Call:
        tensor = type(v) in TENSORS
        if type(rank) is not int and isinstance(rank, Tensor):
            raise PuzzleError("a rank is a number", where=self._place("pass_to"), got=describe(rank))
        if self._watched is not None:
            rank, v = self._watched.end(rank), v if tensor else int(v) if isinstance(v, int) else v
        if not tensor and (type(v) not in PLAIN or len(str(v)) > LONGEST):
            where = self._place(f"pass_to({rank})")
            if type(v) not in PLAIN:
                raise unfit("not_brought", v, where, verb="pass_to", kind="one tensor, or a text, a number or None")
            problem, got = f"a plain message is at most {LONGEST:,} characters long", f"{len(str(v)):,} characters"
            raise PuzzleError(problem, where=where, got=got)
        if self._by_hand:
            self._share()
        call = self._simulator.pass_to(self._handle, rank, v._token if tensor else None, None if tensor else v)
        return self._call(call, frame)

    @priced
    def receive(self, src: int | None = None) -> Awaitable[Any]:
        """The next message from rank ``src``, or from any rank. Waits until it is there, then takes {price}.

        Example, in PyTorch {torch}: ``model.activations[4] = await model.receive(model.rank - 1)``
        """
        if self._by_hand:
            self._share()
        if self._watched is not None:
            src = self._watched.end(src)
        return self._call(self._simulator.receive(self._handle, src), sys._getframe(1))

    def exchange(self, sends: Iterable[tuple[int, Any]], receives: Iterable[int] = ()) -> Awaitable[list[Any]]:
        """Sends and receives in one call, and gives a list of what it has received. ``sends`` are pairs of a rank and
        what goes to it, ``receives`` the ranks to receive from. It takes one place among the rank's calls, in which
        its parts go on independently, those to one rank in order. Only some puzzles allow it.

        Example, in PyTorch dist.batch_isend_irecv: ``[grad] = await model.exchange([(1, output)], [1])``
        """
        if self._watched is not None:
            problem = "where ranks exchange messages, it cannot be proved what those do that are not run"
            raise PuzzleError(problem, where=self._place("exchange"))
        frame, pairs, sources = sys._getframe(1), [(rank, v) for rank, v in sends], [*map(index, receives)]
        self._simulator.group(self._handle, True)
        out = [self._pass_to(rank, v, frame) for rank, v in pairs]
        coming = [self._call(self._simulator.receive(self._handle, src), frame) for src in sources]
        self._simulator.group(self._handle, False)
        return Exchange(out, coming)

    # -- the answer --------------------------------------------------------------------------------

    def _watch(self, watched: Any) -> None:
        """Note from now on what the rank's code asks of its number, and what it gives to this (see ``represent``)."""
        object.__setattr__(self, "_watched", watched)  # what is declared above cannot be replaced otherwise

    @staticmethod
    def check(models: Iterable[Model], train: str = TRAINED[0]) -> None:
        """Checks that the final weights of these ranks are those that plain training on one device gives. With
        ``train="adapters"`` it checks the layers' adapters, and that their own weights have not been changed.

        Prints ``Correct!``, or raises a PuzzleError that says what is wrong.
        """
        if isinstance(models, Model):
            models = [models]
        try:
            models = list(models)
        except TypeError:
            models = []
        if not models or not all(isinstance(model, Model) for model in models):
            raise PuzzleError("check takes the models of all ranks", got=describe(models))
        made_up = check_finals([model._final_state() for model in models], train, models[0].dist._mesh.finals)
        print("Correct!" + (" (But a made-up gradient is in it, which a puzzle refuses.)" if made_up else ""))

    def _note(self, frame: FrameType) -> None:
        """Note where in the code the record just made was written."""
        self._codes.append(frame.f_code)
        self._places.append(frame.f_lasti)

    def _place(self, operation: str, layer: int | None = None) -> Place:
        """Return where this is, for an error."""
        return Place(self._rank, operation, layer, tick=self.time)

    def _call(self, handle: CallHandle, frame: FrameType) -> Call:
        self._codes.append(frame.f_code)
        self._places.append(frame.f_lasti)
        return Call(self._caller, handle, frame)

    def _final_state(self) -> FinalState:
        """Return what the rank ends with."""
        stored = [tensor._token for store in self.storage() for tensor in store.values()]
        return self._simulator.final_state(self._handle, stored)

    def _share(self) -> None:
        """Tell the simulator that several coroutines may run in this rank from now on."""
        if not self._shared:
            self._shared = True
            self._caller.share()


def before_and_after(verb: str) -> None:
    """Print what each of two ranks brings to a collective, and what it gets. (For docstrings.)"""
    dist = Dist(2)
    models = [Model(rank, dist, layers=1, batches=2) for rank in range(2)]
    brought = [collective(verb).example(model) for model in models]

    async def all_of_them() -> list[object]:
        return [*await asyncio.gather(*[getattr(model, verb)(brought[model.rank], 0) for model in models])]

    for rank, one in enumerate(brought):
        print(f"rank {rank} brings {one}")
    for rank, got in enumerate(asyncio.run(all_of_them())):
        print(f"rank {rank} gets {got}")
