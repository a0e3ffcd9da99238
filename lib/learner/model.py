"""A rank as the learner sees it: five dictionaries and the verbs of training."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from array import array
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from itertools import zip_longest
from types import CodeType, FrameType
from typing import Any, TypeVar, overload
from weakref import ref

from ..basics.arguments import describe, forgotten_await, one_of, set_of, whole_number
from ..basics.errors import Line, Place, PuzzleError, Spot, is_learners, line_at, show_line, with_article
from ..basics.units import Elements
from ..machine.check import TRAINED, check_finals
from ..machine.failure import Wait
from ..machine.interface import CallHandle, FinalState
from ..machine.simulator import loading
from ..record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from ..record.events import Event
from ..record.kinds import KINDS, STORES
from ..record.operations import Collective, Computation
from ..record.table import Verbs, collective, sums
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS, UPDATE
from .calls import Call, Caller
from .dist import Dist
from .experts import ExpertVerbs
from .origins import Origins
from .pricing import priced
from .slices import SliceVerbs
from .storage import Answers, Storage
from .tensors import (
    CLASSES,
    TENSORS,
    Activation,
    ActivationGrad,
    Batched,
    OptState,
    Saved,
    Sharded,
    Tensor,
    Tokens,
    TokensGrad,
    Weight,
    WeightGrad,
    expect,
    of_token,
)

PLAIN = (str, int, float, bool, type(None))
LISTS = (list, tuple, range)  # what stands for several tensors, or for their layers
LONGEST = 1000  # characters of a plain message: messages are priced as if they weighed nothing
Cut = TypeVar("Cut", bound=Sharded)  # what can be joined, and what can be summed
Summed = TypeVar("Summed", bound=WeightGrad | Batched)


GIVEN_TOGETHER = {
    frozenset({"Attended", "KeysValues"}): "att, kv = model.project(layer, inp, weight)",
    frozenset({"AttendedGrad", "KeysValuesGrad"}): "att_grad, kv_grad = model.backward_attend(layer, att_grad, kv)",
    frozenset({"Weight", "OptState"}): "weight, opt_state = model.load_weights(layer)",
}
"""Which call gives two kinds of tensor, that another one takes."""


def written(verb: str) -> str:
    """Return how a verb of a model is called, with the arguments that it needs.

    >>> written("pass_to")
    'await model.pass_to(rank, v)'
    """
    signature = inspect.signature(getattr(Model, verb))
    needed = [name for name, one in signature.parameters.items() if one.default is one.empty and name != "self"]
    return f"{'await ' * ('Awaitable' in str(signature.return_annotation))}model.{verb}({', '.join(needed)})"


def _exchanged(operands: Mapping[str, object]) -> str:
    """Return, as the end of a sentence, which call has given two operands that are exchanged, where one gives both.
    ``operands``: by the kinds that they should be of."""
    both = frozenset(kind for kind, operand in operands.items() if type(operand) is not CLASSES[kind])
    gives = GIVEN_TOGETHER.get(both)
    if both == {"Activation", "ActivationGrad"}:
        stored = "or are they exchanged where they are stored, each in the other's dictionary or name?"
        return f"; {stored} What asyncio.gather gives is in the order of its calls"
    return f"; or are they exchanged where they are made? {gives}, in that order" if gives else ""


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
            raise PuzzleError("dist must be a Dist", where="Model", got=describe(dist), fix="dist=Dist(4)")
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
        among: list[ref[Origins]] = []
        for store in STORES:
            setattr(self, store, Storage(self._simulator, self._handle, store, among))

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute of your own. Raises PuzzleError for what the machine has: it would no longer know of it."""
        replaced = name in Model.__annotations__ and getattr(self, name, value) is not value
        if replaced or (not name.startswith("_") and hasattr(Model, name)):
            where = Place(self._rank, detail=f"model.{name} = ...")
            fix = "choose another name for what is your own"
            if name in STORES:
                fix = f"model.{name}.clear() empties it, model.{name}.update(...) stores several tensors"
            raise PuzzleError(f"model.{name} cannot be replaced", where=where, got=describe(value), fix=fix)
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
        return self._rank in self.dist._mesh.beside

    @property
    def host(self) -> int | None:
        """The rank of the host beside this device (of a host its own). None on a machine without hosts."""
        return self.dist._mesh.host_of(self._rank)

    @property
    def devices(self) -> tuple[int, ...]:
        """The ranks of the devices that this host is beside. Empty on a device."""
        return self.dist._mesh.beside.get(self._rank, ())

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
            fix = "the place of a device: model.devices has the ranks of this host's"
            raise PuzzleError(f"a host is on no axis, so not on {axis!r}", where=self._place("axis_index"), fix=fix)
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
                fix = f"places go from 0 to model.axis_size({axis!r}) - 1, which is {mesh.size(axis) - 1} here"
                one_of(axis, place, mesh.size(axis), self._place("rank_at"), fix)
        if self.is_host and (missing := mesh.axes.keys() - coords.keys()):
            problem, fix = "a host has no coordinates of its own", f"name {', '.join(sorted(missing))} as well"
            raise PuzzleError(problem, where=self._place("rank_at"), fix=fix)
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
            total = whole_number("total", total, where=self._place(verb), fix=loading(verb))
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
        self, layer: int, inp: Activation, weight: Weight, *, partial: bool = False, adapter: Weight | None = None
    ) -> Activation: ...
    @overload
    def forward(
        self,
        layer: int,
        inp: Activation,
        weight: Weight,
        *,
        partial: bool = False,
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
        keep: str | None = None,
        adapter: Weight | None = None,
    ) -> Any:
        """The layer's output, which is the input of the next layer. Takes {price}.

        Needs the layer's complete weight, not yet updated, and its input. With ``partial=True`` the weight may be a
        piece: it takes that share of the time, and gives a partial sum of the output. With ``keep="all"``, or
        ``"selective"`` for less, it gives the output and what it leaves behind for backward, a ``Saved``. ``adapter``:
        the layer's complete adapter, if it has one. Only some puzzles allow these three.
        """
        if partial is not False or keep is not None or adapter is not None:
            results = self._compute(FORWARD, layer, inp, weight, adapter, partial=partial, keep=keep)
            return results[0] if keep is None else tuple(results)
        if type(inp) is not Activation or type(weight) is not Weight:
            self._refuse(FORWARD, layer, inp, weight)
        made = self._simulator.compute(self._handle, FORWARD.kind, layer, (inp._token, weight._token))
        self._note(sys._getframe(1))
        return of_token(made[0])

    @priced
    def loss(self, inp: Activation, *, sliced: bool = False) -> ActivationGrad:
        """The gradient of the loss with respect to the last activation (``inp.layer == LAYERS``). Takes {price}. With
        ``sliced=True`` the activation may be a slice of the sequence: then so is the gradient. Only some puzzles allow
        that."""
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
        overlapped: bool = False,
        adapter: Weight | None = None,
    ) -> tuple[WeightGrad, ActivationGrad]:
        """The gradients of the layer's weight and of its input. Takes {price}.

        Needs what forward needed, and the gradient of the layer's output for the same micro-batches. ``saved``: what
        forward left behind; what it lacks is computed again. With ``partial=True`` the weight may be a piece: then the
        first gradient is that of the piece, and the second a partial sum. With ``adapter``, the layer's adapter, the
        first gradient is that of the adapter: the weight is frozen, and it takes as long as backward_input. With
        ``overlapped=True`` it runs beside the forwards of other micro-batches right before it, since which the rank has
        awaited nothing: together they save ``Cost.overlapped`` times the shorter one. Only some puzzles allow that.
        """
        if saved is not None or partial is not False or adapter is not None or overlapped is not False:
            of_weight, of_input = self._compute(
                BACKWARD, layer, inp, grad, weight, saved, adapter, partial=partial, overlapped=overlapped
            )
            return of_weight, of_input
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
                where = self._place(row.kind, layer)
                fix = f"model.{row.kind}(..., {name}={known[0]!r}), or leave {name} out"
                problem = f"unknown value for {name}"
                raise PuzzleError(problem, where=where, expected=expected, got=describe(value), fix=fix)
            chosen[name] = value
        return chosen

    def _refuse(self, row: Computation, layer: int | None, *operands: object) -> None:
        """Raise PuzzleError for the first operand that is of another kind than its row says."""
        verb = f"model.{row.kind}({', '.join([*['layer'] * row.layered, *row.takes])})"
        exchanged = sorted(type(one).__name__ for one in operands[: len(row.takes)]) == sorted(row.takes.values())
        for operand, (name, wanted) in zip(operands, {**row.takes, **row.may_take}.items(), strict=False):
            if operand is None and name in row.may_take:
                continue
            if type(operand) is not CLASSES[wanted]:
                if name in row.may_take:
                    verb = f"{verb[:-1]}, {name}={name})"
                if exchanged and name in row.takes:
                    verb += ", in this order" + _exchanged(dict(zip(row.takes.values(), operands, strict=False)))
                    expect(self._place(row.kind, layer), name, operand, wanted, verb, in_order=True)
                whence = functools.partial(self._whence, row, layer, operand, wanted)
                in_rounds = functools.partial(self._in_rounds, operand)
                expect(self._place(row.kind, layer), name, operand, wanted, verb, whence, in_rounds)

    def _in_rounds(self, operand: object) -> str:
        """Return in what the order of work departs from rounds, if an operand of another kind has come as a message."""
        if not isinstance(operand, Tensor) or self._simulator.sender(self._handle, operand._token) is None:
            return ""
        if isinstance(operand, Activation) and self._simulator.nobodys(self._handle, operand.layer):
            return ""
        return self._simulator.against_rounds(self._handle, False) or self._simulator.not_by_turns(self._handle)

    def _whence(self, row: Computation, layer: object, operand: object, wanted: str) -> str:
        """Return from which rank an operand of another kind than is wanted has come, and where the right one is; an
        empty text if it is this rank's own."""
        came = self._simulator.sender(self._handle, operand._token) if isinstance(operand, Tensor) else None
        if came is None or not isinstance(operand, Tensor):
            return self._of_experts(row, layer, operand)
        of_layer = self._layers if row is LOSS else layer
        right = self._simulator.nobodys(self._handle, operand.layer) if isinstance(operand, Activation) else ""
        if right:
            sender, at = came
            line = f", received in {self._line(at)}" if self._line(at) else ""
            return f"it came from rank {sender} {self._simulator.moment(self._handle, at)}{line}; {right}"
        if isinstance(of_layer, int) and KINDS[wanted].by_batch:
            of_layer += wanted == "ActivationGrad"
            batches: frozenset[int] = getattr(operand, "batches", frozenset())
            right = self._simulator.comes_from(self._handle, wanted, of_layer, batches)
        sender, at = came
        line = f", received in {self._line(at)}" if self._line(at) else ""
        if KINDS[wanted].by_batch and not KINDS[type(operand).__name__].by_batch:
            right = f"let that rank send the {wanted}, and no {type(operand).__name__}"
        elif wanted != type(operand).__name__ and not right:
            right = f"let that rank send the {wanted} in place of this"
        if {wanted, type(operand).__name__} == {"KeysValues", "KeysValuesGrad"}:
            right = "keys and values come from there, and their gradient, too: receive them in the order in which that "
            right += "rank sends them"
            if isinstance(layer, int):
                right += self._simulator.too_few_received(self._handle, sender, layer)
        elif f"src={sender})" in right:
            right = "so does what is wanted: receive in the order in which that rank sends, or store what comes under "
            right += "what it is: its kind, its layer and its micro-batch"
        return f"it came from rank {sender} {self._simulator.moment(self._handle, at)}{line}{right and '; '}{right}"

    def _of_experts(self, row: Computation, layer: object, operand: object) -> str:
        """Return what to do about tokens where an activation is asked for, or the other way round, in a model with
        experts; an empty text for anything else."""
        if isinstance(operand, Tokens) and row is LOSS:
            home = f"await model.alltoall(out, {self._layers}), with what model.expert({self._layers - 1}, ...) gives"
            return f"the loss reads the output of the last layer, when it is home: {home}"
        if not isinstance(layer, int) or not 0 <= layer < self._layers or not self.experts(layer):
            return ""
        if isinstance(operand, (Tokens, TokensGrad)) and row in (FORWARD, BACKWARD):
            verb = "backward_expert" if row is BACKWARD else "expert"
            gives = "of_weight, grad" if row is BACKWARD else "out"
            return f"layer {layer} has experts, and tokens are for these: {gives} = {written(verb)}"
        if isinstance(operand, Activation) and operand.layer != layer:
            return f"this is of layer {operand.layer}, and not {layer}: is the result of another call taken here?"
        if isinstance(operand, Activation) and self._simulator.has_run(self._handle, "expert", layer):
            kept = f"model.expert({layer}, ...) has read the tokens that alltoall gave: keep those for the backward"
            return f"{kept}, stored in model.activations under a key of their own"
        return ""

    def _written_at(self, at: int) -> str:
        """Return the line of the learner's code that has written an entry of the log; an empty text if it is ours."""
        code = self._codes[at] if at < len(self._codes) else None
        return "" if code is None or not is_learners(code) else show_line(code, line_at(code, self._places[at]))

    def _line(self, at: int) -> str:
        """Return where in the learner's code an entry of the log was written, without the code."""
        line = self._written_at(at)
        return f"line {line.number}" if isinstance(line, Spot) else ""

    def set_final_weight(self, layer: int, weight: Weight) -> None:
        """Hands in the rank's final weight of a layer, or its shards of it. Takes no time, and does not store the
        weight. Where adapters are trained, it is the layer's adapter."""
        if type(weight) is not Weight:
            where = self._place("set_final_weight", layer if isinstance(layer, int) else None)
            whence = functools.partial(self._whence, UPDATE, layer, weight, "Weight")
            verb = f"{written('set_final_weight')}, with the weight that model.update gives"
            expect(where, "weight", weight, "Weight", verb, whence)
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
            problem = f"a list of {one} comes with the list of their {other}"
            got, fix = f"{describe(v)}, {describe(layer)}", f"await model.{row.kind}([one, two], [0, 1])"
            fix += ", or one tensor with its layer"
            if isinstance(v, tuple) and len({type(one) for one in v} & {*TENSORS}) == len(v) == 2:
                both = [f"model.{KINDS[type(one).__name__].store}[{layer}]" for one in v]
                problem, maker = (
                    f"{row.kind} takes one tensor, and this is two in one name",
                    "an operation has given both",
                )
                fix = f"{maker}: take each by a name of its own, {both[0]}, {both[1]} = ..., and hand in one of them"
            raise PuzzleError(problem, where=self._place(row.kind), got=got, fix=forgotten_await(v) or fix)
        for one, its_layer in zip_longest(v, layer[: len(v)]):
            self._refuse_brought(row, one, its_layer)
        return True

    def _refuse_brought(self, row: Collective, v: object, layer: object) -> None:
        """Raise PuzzleError for something that cannot be brought to a collective."""
        if type(v).__name__ in row.takes or (v is None and not row.everyone):
            return
        where = self._place(row.kind, layer if isinstance(layer, int) else None)
        kinds = [kind for kind in row.takes if not KINDS[kind].by_batch] or row.takes  # those are for few puzzles
        awaited = forgotten_await(v)
        problem = f"{row.kind} takes {'a tensor' if awaited else with_article(' or '.join(kinds))}"
        fix = awaited or written(row.kind)
        if type(layer) in TENSORS and isinstance(v, int):
            fix += ": first the tensor, then its layer; here they are exchanged"
        if isinstance(v, WeightGrad) and not sums(row.kind) and v.layer == layer and self.experts(v.layer):
            fix = "the gradient of experts stays with them, as their weights do: each rank updates its own with what "
            fix += "backward_expert has given, and nothing of it travels"
        elif isinstance(v, WeightGrad) and not sums(row.kind):
            fix = "the gradient of a weight comes first of what a backward gives, and that of its input is the second: "
            fix += f"of_weight, grad = {written('backward_expert')}"
        if type(v).__name__ == "AttendedGrad":
            fix = "the gradient of queries stays on its rank, and that of keys and values is summed: "
            fix += f"att_grad, kv_grad = {written('backward_attend')}, in this order"
        if sums(row.kind) and isinstance(v, (Weight, OptState)):
            fix = f"the pieces of a weight are joined: await model.{ALLGATHER.kind}(v, layer); gradients are summed"
            if isinstance(v, OptState):
                fix = "only gradients are summed. A state stays where it is: an update takes it, and gives the new one"
            elif v._token.labels.is_whole():
                fix = "only gradients are summed. A piece of a weight is what this rank has loaded, "
                fix += "or weight.shard(model.rank, model.RANKS)"
        if (v is None or (type(v) is int and v == 0)) and sums(row.kind) and type(layer) is int:
            fix = f"a rank that has nothing to add brings model.fake_grad({layer}, [])"
        elif v is None:
            fix = "None is what .get gives where nothing is stored: every rank of the group brings a piece of its own, "
            fix += f"of a weight what it has loaded, model.load_weights({layer}, model.rank, model.RANKS)"
        elif isinstance(v, Storage):
            fix = f"one tensor of it: model.{v._name}[{layer}]"
        raise PuzzleError(problem, where=where, got=describe(v), fix=fix)

    @priced
    def pass_to(self, rank: int, v: Any) -> Awaitable[None]:
        """Sends one tensor (or a small plain value: a text, a number, None) to a rank. Takes {price}.

        Example, in PyTorch {torch}: ``await model.pass_to(model.rank + 1, model.activations[4])``
        """
        tensor = type(v) in TENSORS
        if type(rank) is not int and isinstance(rank, Tensor):
            fix = f"{written('pass_to')}: first the rank, then what it gets; here they are exchanged"
            raise PuzzleError("a rank is a number", where=self._place("pass_to"), got=describe(rank), fix=fix)
        if self._watched is not None:
            rank, v = self._watched.end(rank), v if tensor else int(v) if isinstance(v, int) else v
        if not tensor and (type(v) not in PLAIN or len(str(v)) > LONGEST):
            problem, got = "pass_to sends one tensor, or a text, a number or None", describe(v)
            fix = forgotten_await(v) or "one pass_to for each tensor"
            if type(v) in PLAIN:
                problem, got = f"a plain message is at most {LONGEST:,} characters long", f"{len(str(v)):,} characters"
                fix = "tensors carry what is large; a message is for a word or a number beside them"
            raise PuzzleError(problem, where=self._place(f"pass_to({rank})"), got=got, fix=fix)
        if self._by_hand:
            self._share()
        call = self._simulator.pass_to(self._handle, rank, v._token if tensor else None, None if tensor else v)
        return self._call(call, sys._getframe(1))

    @priced
    def receive(self, src: int | None = None) -> Awaitable[Any]:
        """The next message from rank ``src``, or from any rank. Waits until it is there, then takes {price}.

        Example, in PyTorch {torch}: ``model.activations[4] = await model.receive(model.rank - 1)``
        """
        if self._by_hand:
            self._share()
        if self._watched is not None:
            src = self._watched.end(src)
        for store in (self.activations, self.grad_activations):
            if store._missed is not None and (sought := store.missed()) is not None:
                self._simulator.seeks(self._handle, *sought)
        return self._call(self._simulator.receive(self._handle, src), sys._getframe(1))

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
            fix = "let the function end in `return model`, and pass the list of what the ranks return"
            raise PuzzleError("check takes the models of all ranks", got=describe(models), fix=fix)
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
