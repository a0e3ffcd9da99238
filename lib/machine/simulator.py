"""The simulator of a machine in this process: everything that decides right or wrong (see ``interface``)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter, index
from typing import cast

from ..basics.arguments import AS_NUMBERS, one_of
from ..basics.errors import GRADED, Fix, PuzzleError, show_layers, show_set
from ..basics.loops import counted_on
from ..basics.units import Elements
from ..record.attention import BACKWARD_PROJECT
from ..record.collectives import ALLGATHER
from ..record.events import END, LOADS, Event
from ..record.experts import ALLTOALL
from ..record.kinds import KINDS
from ..record.labels import (
    ADAPTER,
    DEALT,
    IN_A_V,
    NO_EXTRA,
    OF_ADAPTER,
    PARTIAL,
    STAGES_IN_A_V,
    ExtraLabels,
    Labels,
    of_weight,
)
from ..record.operations import NO_OPTIONS, Collective, Operation, Options, Value, Values
from ..record.shards import FINEST, NONE, one_shard
from ..record.table import collective, computation, sums
from ..record.training import BACKWARD, LOSS, OVERLAPPED, UPDATE
from . import deferred_memory
from .advice.ring import back_to_first, not_received, not_replaced, once_more_round, other_way, too_few_received
from .advice.rounds import against_rounds, not_by_turns, of_its_pipeline
from .advice.sought import Sought, sought_before
from .advice.stages import (
    BOTH_ENDS,
    first_gradient,
    gathered_elsewhere,
    gradient_from,
    gradient_made_here,
    gradient_to_come,
    input_to_come,
    loss_elsewhere,
    no_input_taken,
    no_last_stage,
    not_at_both_ends,
    or_its_own,
    own_gradient,
    own_input,
    run_by_nobody,
    sent_away,
    sent_to_it,
    to_be_summed,
    to_itself,
)
from .cost import Shape
from .failure import Wait
from .fingerprints import Fingerprints
from .in_flight import InFlight, labels_of_each
from .interface import AnySimulator, Simulator
from .mesh import Axis, Mesh
from .network import Network, Watcher
from .rank_state import MADE_UP, Origin, RankState, TensorState, Terms

RING_OF_STAGES = (
    "; the stages of each pipeline are a ring: after stage comes (stage + 1) % stages, from its first rank on"
)
ALONE = "with one rank there is nobody to send to"
HOPS = "n ranks have n - 1 hops, range(model.RANKS - 1); or if model.RANKS > 1"
HOME = "this gradient is home, so send and receive it only where there are others: if model.RANKS > 1"
"""What a message to itself lacks where there is one rank, and which messages n ranks send."""
KEPT = "keep it stored; to a neighbor: model.pass_to(model.rank - 1, ...), or model.rank + 1"
NEIGHBOR_STAGES = (
    "a stage and the next one are on different ranks: of pipelines with so many stages, model.rank % stages is the "
    "stage, model.rank // stages the pipeline, and the next stage is on model.rank + 1, after the last one on first"
)
ON_A_RING = "on a ring, (model.rank - 1) % model.RANKS and + 1"
NEIGHBORS = f"the first rank has none before it, the last none after it; {ON_A_RING}"
labels_of, value_of = attrgetter("labels"), attrgetter("value")  # functions of C: asked for at every operation

FIRST_AND_LAST = (
    "the first rank of a row has none before it, the last none after it, and they receive nothing there: "
    "model.get_activation gives the first one its input, and model.loss the last one its gradient. The others receive "
    "from their neighbor, model.rank - 1 or + 1, for the first layer of their own, or the last, and for no other"
)


def loading(verb: str) -> str:
    """Return how a piece is loaded, with what its numbers mean."""
    return f"model.{verb}(layer, shard, total): number `shard` of `total` equal pieces, counted from 0"


def new_simulator(
    shape: Shape, graded: bool = False, strict: bool = True, values: Values | None = None
) -> AnySimulator:
    """Create the simulator of a machine behind opaque handles."""
    simulator: Simulator[RankState, TensorState, InFlight] = LocalSimulator(shape, graded, strict, values)
    return cast(AnySimulator, simulator)


def second_model(rank: int) -> PuzzleError:
    """Return the error of a second Model of one rank, on a machine that is running."""
    fix = "use the model that the function is given"
    return PuzzleError(f"rank {rank} of this machine has its Model", where="Model", fix=fix)


class LocalSimulator:
    """The simulator of all ranks of one machine.

    ``graded``: the rules of ``run`` (one owner, nothing made up, each piece and each input taken once). ``strict``:
    whether sets are checked at each operation; off, only the values can tell. ``values``: what tensors carry,
    fingerprints unless given. ``watcher`` hears when tensors can really move. ``network`` makes the links between the
    ranks.
    """

    rank_type: type[RankState] = RankState

    def __init__(
        self,
        shape: Shape,
        graded: bool = False,
        strict: bool = True,
        values: Values | None = None,
        watcher: Watcher | None = None,
        network: Callable[[Mesh, Terms, Watcher | None], Network] = Network,
    ) -> None:
        self.shape, self.mesh = shape, shape.mesh
        self.terms = Terms(
            shape.cost, Fingerprints() if values is None else values, graded, strict, shape.mesh, shape.experts
        )
        self.network = network(shape.mesh, self.terms, watcher)
        # Bound as they are, a question costs one call less.
        self.wait, self.fetch, self.decide_next = self.network.wait, self.network.fetch, self.network.decide_next
        self.unfinished, self.deadlock = self.network.unfinished, self.network.deadlock

    def open(self, rank: int, layers: int, batches: int) -> RankState:
        if self.terms.graded and rank in self.network.links:
            raise second_model(rank)
        state = self.rank_type(rank, layers, batches, self.terms, rank in self.mesh.beside)
        self.network.open(state)
        return state

    # -- sources ------------------------------------------------------------------------

    def load_weights(self, rank: RankState, layer: int, shard: int, total: int) -> tuple[TensorState, TensorState]:
        return self._load(rank, "load_weights", layer, shard, total, NO_EXTRA)

    def load_adapter(self, rank: RankState, layer: int, shard: int, total: int) -> tuple[TensorState, TensorState]:
        return self._load(rank, "load_adapter", layer, shard, total, OF_ADAPTER)

    def _load(
        self, rank: RankState, verb: str, layer: int, shard: int, total: int, extra: ExtraLabels
    ) -> tuple[TensorState, TensorState]:
        """Return a piece of a weight, or of an adapter, and of its state."""
        if not 1 <= total <= FINEST:
            where, expected = rank.place(verb, layer), f"a number from 1 to {FINEST:,}"
            problem, fix = f"a weight cannot be cut into {total} shards", "one piece for each rank is enough"
            raise PuzzleError(problem, where=where, expected=expected, fix=fix)
        layer = self._layer(rank, layer, verb)
        if type(shard) is not int or not 0 <= shard < total:
            own = f"; that of this rank is model.{verb}({layer}, model.rank, model.RANKS)"
            fix = loading(verb) + own * (total == rank.mesh.ranks)
            shard = one_of("shard", shard, total, rank.place(verb, layer), fix)
        rank.cuts.check(total)
        rank.mark(verb, layer, NONE, (ADAPTER,) * extra.adapter)
        origin = len(rank.log) if rank.graded else None
        weight = of_weight("Weight", layer, rank.layers, 0, one_shard(shard), total, extra)
        state = of_weight("OptState", layer, rank.layers, 0, one_shard(shard), total, extra)
        values = rank.values
        return rank.mint(weight, values.weight(weight), origin), rank.mint(state, values.opt_state(state), origin)

    def get_activation(self, rank: RankState, batches: frozenset[int]) -> TensorState:
        batches = self._batches(rank, batches, "get_activation")
        if not batches:
            where, fix = rank.place("get_activation"), "for example [model.rank], or range(model.BATCHES)"
            raise PuzzleError("get_activation needs at least one micro-batch", where=where, fix=fix)
        rank.mark("get_activation", 0, batches)
        labels = Labels("Activation", 0, rank.layers, batches=batches, total_batches=rank.batches)
        return rank.mint(labels, rank.values.inputs(batches), len(rank.log) if rank.graded else None)

    def fake_grad(self, rank: RankState, layer: int, batches: frozenset[int]) -> TensorState:
        layer = self._layer(rank, layer, "fake_grad")
        batches = self._batches(rank, batches, "fake_grad")
        labels = Labels("WeightGrad", layer, rank.layers, batches=batches, total_batches=rank.batches)
        value, origin = (rank.values.made_up(labels), MADE_UP) if batches else (rank.values.zero, None)
        return rank.mint(labels, value, origin)

    # -- operations of the compute stream ---------------------------------------------------

    def compute(
        self,
        rank: RankState,
        kind: str,
        layer: int | None,
        operands: Sequence[TensorState],
        options: Options = NO_OPTIONS,
    ) -> list[TensorState]:
        """Carry out an operation of the compute stream: its row says what it insists on and what it makes."""
        row = computation(kind)
        labels, values = [*map(labels_of, operands)], [*map(value_of, operands)]
        words, more, more_values = row.words, NO_OPTIONS, NO_OPTIONS
        needed: Sequence[Labels] = labels  # those that every call has; the others are among ``more``, by name
        needed_values: Sequence[Value] = values
        if options or len(operands) != len(row.takes):
            names = row.following([one.kind for one in labels])
            words = row.grants(names, options)
            needed, more = row.given(names, labels, options)
            needed_values, more_values = row.given(names, values, options)
        origin: Origin = None
        for tensor in operands:
            # As is_free has it, without the call.
            if (
                tensor.rank is not rank
                or tensor.origin
                or not (tensor.stored or tensor.since >= tensor.temporaries.ended)
            ):
                rank.examine(tensor, kind, layer if row.layered else None)
                origin = origin or tensor.origin
            if tensor.brought and row is UPDATE and rank.is_regained(tensor):
                rank.regained.append(tensor.labels)
        if not row.layered:
            layer = labels[0].layer
        if rank.is_host and not row.on_host:
            raise _not_on_host(rank, row, layer)
        if rank.strict:
            try:
                row.rule(rank, layer, needed, more)
            except PuzzleError as error:  # operations may share a rule
                error.place = error.place._replace(operation=kind)
                error.came = rank.arrivals_of(error.got, labels)
                raise
        made = row.makes(rank, layer, needed, more)
        results = row.value(rank.values, needed_values, more_values)
        if len(made) != len(results):
            raise ValueError(f"{kind} makes {len(made)} tensors of {len(results)} values")
        if labels[-1].extra.adapter and ADAPTER not in words:
            words = (*words, ADAPTER)
        cost = rank.cost
        workspace = 0 if cost.without_workspace else cost.workspace(kind, *labels)
        length = cost.compute_on_host(kind, *labels) if rank.is_host else cost.compute(kind, *labels)
        if options and OVERLAPPED in options:
            length -= rank.saved_beside(kind, layer, labels[0].batches, length)
        if cost.uneven is not None and not rank.is_host:
            length = cost.times(length, cost.uneven.of_computing(rank.rank, len(rank.log)))
        rank.record(kind, layer, labels[0].batches, words, operands, length, workspace)
        if row.share is not None:
            rank.note_slices(kind, labels)
        if not cost.leaves_nothing and row.trains:
            rank.leave_behind(row, layer, labels)
        one = len(made) == 1  # as of a forward
        minted = [rank.mint(made[0], results[0], origin)] if one else [*map(rank.mint, made, results, repeat(origin))]
        rank.owe(minted, len(rank.log) - 1)
        return minted

    def set_final_weight(self, rank: RankState, layer: int, weight: TensorState) -> None:
        layer = self._layer(rank, layer, "set_final_weight")
        if not weight.is_free(rank):
            rank.examine(weight, "set_final_weight", layer)
        if rank.strict and weight.labels.layer != layer:
            raise _other_layer(rank, "set_final_weight", layer, weight, "the weight is that of layer")
        rank.finals[layer] = weight.piece()
        if weight.makers and weight.rank is rank:
            rank.read(weight)

    # -- communication ----------------------------------------------------------------------

    def meet(self, rank: RankState, kind: str, operand: TensorState | None, layer: int, axis: Axis) -> InFlight:
        row = collective(kind)
        if operand is None:
            if row.everyone:
                raise PuzzleError(f"every rank brings a tensor to {kind}", where=rank.place(kind, layer))
        else:
            # As is_free has it, without the call.
            if (
                operand.rank is not rank
                or operand.origin
                or not (operand.stored or operand.since >= operand.temporaries.ended)
            ):
                rank.examine(operand, kind, layer)
            if rank.strict and rank.graded and operand.labels.layer != layer:
                error = _other_layer(rank, kind, layer, operand, f"the {operand.labels.kind} is of layer")
                error.came = rank.arrival(operand.labels)
                raise error
        if rank.is_host:
            raise _not_on_host(rank, row, layer)
        if row.rule is not None and operand is not None and rank.strict:
            row.rule(rank, layer, operand.labels, self.mesh.group(rank.rank, axis).ranks)
        try:
            return self.network.meet(self.network.links[rank.rank], row, layer, axis, operand)
        except PuzzleError as error:
            whole = operand is not None and len(operand.labels.batches) == rank.batches
            if not self.mesh.axes and whole and operand.labels.kind == "WeightGrad":  # type: ignore[union-attr]
                error.fix = rank.different_experts(layer) or error.fix
            raise

    def meet_list(
        self,
        rank: RankState,
        kind: str,
        operands: Sequence[TensorState | None],
        layers: Sequence[int],
        axis: Axis,
    ) -> InFlight:
        row = collective(kind)
        if rank.is_host:
            raise _not_on_host(rank, row, None)
        known = _check_list(rank, row, labels_of_each(operands), layers)
        for operand, layer in zip(operands, known, strict=True):
            if operand is not None:
                if not operand.is_free(rank):
                    rank.examine(operand, kind, layer)
                if rank.strict and operand.labels.layer != layer:
                    error = _other_layer(rank, kind, layer, operand, f"the {operand.labels.kind} is of layer")
                    error.fix = "the list of layers goes with that of the tensors, in the same order: "
                    error.fix += "[one.layer for one in tensors]"
                    raise error
                if row.rule is not None and rank.strict:
                    row.rule(rank, layer, operand.labels, self.mesh.group(rank.rank, axis).ranks)
        return self.network.meet(self.network.links[rank.rank], row, known, axis, tuple(operands))

    def pass_to(self, rank: RankState, receiver: int, operand: TensorState | None, plain: object) -> InFlight:
        if operand is not None and not KINDS[operand.labels.kind].cut:
            problem, fix = "what forward leaves behind is not sent", "use it on the rank that has computed the layer"
            raise PuzzleError(problem, where=rank.place(f"pass_to({receiver})"), got=str(operand.labels), fix=fix)
        # From device to device the text costs more than the check.
        if rank.is_host or type(receiver) is not int or not 0 <= receiver < self.mesh.ranks:
            receiver = self._other_rank("rank", receiver, rank, "pass_to", operand)
        if receiver == rank.rank:
            where, labels = rank.place("pass_to"), None if operand is None else operand.labels
            raise PuzzleError(
                "a rank cannot pass to itself",
                where=where,
                fix=lambda: (
                    self._alone(labels) or (rank.goes_to(labels) if labels else "") or to_itself(rank, labels) or KEPT
                ),
                fix_for={
                    "four_stages": lambda: to_itself(rank, labels, one_rank_each=True) or to_be_summed(labels) or KEPT,
                    "several_kinds": NEIGHBOR_STAGES,
                    BOTH_ENDS: lambda: not_at_both_ends(rank) or (rank.goes_to(labels) if labels else "") or KEPT,
                },
            )
        if operand is not None and not operand.is_free(rank):
            rank.examine(operand, f"pass_to({receiver})")
        return self.network.send(self.network.links[rank.rank], receiver, operand, plain)

    def seeks(
        self, rank: RankState, where: str, kind: str, layer: int, batches: frozenset[int], above: int, here: str,
        below: str,
    ) -> None:  # fmt: skip
        rank.sought = len(rank.log), Sought(where, kind, layer, batches, above, here, below)

    def receive(self, rank: RankState, src: int | None) -> InFlight:
        if src is not None:
            if rank.is_host or type(src) is not int or not 0 <= src < self.mesh.ranks:
                src = self._other_rank("src", src, rank, "receive")
            if src == rank.rank:
                plain = "what is stored can be used as it is; from a neighbor: src=model.rank - 1"

                at = len(rank.log)

                def from_another() -> str:
                    if here := sought_before(rank, at, src) or sent_away(rank) or first_gradient(rank):
                        return here
                    there = or_its_own(rank, rank.from_another() or sent_to_it(rank))
                    needs = rank.needs_no_message()
                    return there or own_gradient(rank) or gradient_made_here(rank) or needs or own_input(rank) or plain

                fix: Fix = from_another
                if rank.is_host:
                    fix = "this rank is the host: gradients come from its devices, receive(src=model.devices[0])"
                fix_for: dict[str, Fix] = {
                    "several_kinds": NEIGHBOR_STAGES,
                    BOTH_ENDS: lambda: not_at_both_ends(rank) or from_another(),
                    IN_A_V: lambda: rank.not_in_a_v() or from_another(),
                }
                where = rank.place("receive")
                raise PuzzleError("a rank cannot receive from itself", where=where, fix=fix, fix_for=fix_for)
        return self.network.receive(self.network.links[rank.rank], src)

    # -- storage and figures ------------------------------------------------------------------

    store = staticmethod(RankState.store)
    drop = staticmethod(RankState.drop)
    share = staticmethod(RankState.share)
    final_state = staticmethod(RankState.final_state)

    def time(self, rank: RankState) -> float:
        return rank.tick

    def stored(self, rank: RankState) -> Elements:
        return sum(rank.held)

    def events(self, rank: RankState) -> list[Event]:
        return deferred_memory.events_so_far(self.network.links[rank.rank])

    def sender(self, rank: RankState, tensor: TensorState) -> tuple[int, int] | None:
        return rank.sender(tensor.labels)

    def moment(self, rank: RankState, at: int) -> str:
        return rank.moment(rank.log[at].end)

    def comes_from(self, rank: RankState, kind: str, layer: int, batches: frozenset[int]) -> str:
        return rank.comes_from(kind, layer, batches)

    def not_taken(self, rank: RankState, kind: str, layer: int) -> str:
        return self.network.links[rank.rank].not_taken(kind, layer)

    def against_rounds(self, rank: RankState, backward: bool) -> str:
        own = of_its_pipeline(rank) if backward else ""
        return own or against_rounds(rank.ranks, {rank.rank: None} if backward else {})

    def not_by_turns(self, rank: RankState) -> str:
        return not_by_turns(rank.ranks)

    has_run = staticmethod(RankState.has_run)
    left_undone = staticmethod(RankState.left_undone)
    has_loaded = staticmethod(RankState.has_loaded)
    sent_to = staticmethod(RankState.sent_to)
    summed_by = staticmethod(RankState.summed_by)
    empty_share = staticmethod(RankState.empty_share)
    has_tasks = staticmethod(RankState.has_tasks)
    nobodys = staticmethod(RankState.nobodys)
    run_by_nobody = staticmethod(run_by_nobody)
    loss_elsewhere = staticmethod(loss_elsewhere)
    gathered_elsewhere = staticmethod(gathered_elsewhere)
    gradient_from = staticmethod(gradient_from)
    input_to_come = staticmethod(input_to_come)
    gradient_to_come = staticmethod(gradient_to_come)
    dealt_otherwise = staticmethod(RankState.dealt_otherwise)
    not_in_a_v = staticmethod(RankState.not_in_a_v)
    met_by = staticmethod(RankState.met_by)
    not_summed = staticmethod(RankState.not_summed)
    input_elsewhere = staticmethod(RankState.input_elsewhere)
    unawaited = staticmethod(RankState.unawaited)
    not_received = staticmethod(not_received)
    just_sent = staticmethod(RankState.just_sent)
    not_replaced = staticmethod(not_replaced)
    too_few_received = staticmethod(too_few_received)
    owner = staticmethod(RankState.elsewhere)

    def waiting(self, rank: RankState) -> list[Wait]:
        return [call.wait() for call in rank.log if isinstance(call, InFlight) and call.end is None]

    # -- the end ------------------------------------------------------------------------------

    def finish(self, rank: RankState) -> None:
        rank.mark(END, None)

    def finish_logs(self, ranks: Iterable[RankState]) -> list[Sequence[Event]]:
        logs = [deferred_memory.finish_log(self.network.links[rank.rank]) for rank in ranks]
        self.terms.samples.clear()  # nobody will take another one
        return logs

    # -- arguments ------------------------------------------------------------------------------

    def _layer(self, rank: RankState, layer: int, operation: str) -> int:
        if type(layer) is int and 0 <= layer < rank.layers:
            return layer  # the text below costs more than the check
        fix = "for layer in range(model.LAYERS), whatever their number is at this size"
        fix = f"{_no_layer(rank, layer)}{fix}"
        try:
            return one_of("layer", layer, rank.layers, rank.place(operation), fix)
        except PuzzleError as error:
            if self.mesh.ranks > 1 and operation in LOADS:
                share = "the layers of this rank are range(model.rank * share, (model.rank + 1) * share), with share = "
                share += "model.LAYERS // model.RANKS"
                dealt = "the layers of this rank are range(model.rank, model.LAYERS, model.RANKS)"
                start = _no_layer(rank, layer)
                in_a_v = f"{start}{STAGES_IN_A_V}"
                error.fix_for = {DEALT: f"{start}{dealt}", IN_A_V: in_a_v, "stages": f"{start}{share}"}
            raise

    def _alone(self, labels: Labels | None) -> str:
        """Return what to do about a message to itself where there is one device, or an empty text."""
        if self.mesh.ranks > 1:
            return ""
        if self.mesh.hosts:
            return "model.host is the number of the host: model.pass_to(model.host, ...)"
        return f"{ALONE}: {HOME if labels is not None and labels.kind == 'KeysValuesGrad' else HOPS}"

    def _other_rank(
        self, name: str, other: int, rank: RankState, operation: str, tensor: TensorState | None = None
    ) -> int:
        """Return the number of the rank that a message goes to, or comes from. Raise PuzzleError where there is no way:
        a host is linked to its devices only."""
        where, mesh = rank.place(operation), self.mesh
        try:
            known = one_of(name, other, mesh.everyone, where, NEIGHBORS)
        except PuzzleError as error:
            if error.got[:1] in ("(", "["):  # several, as a worker shows them
                error.fix = "one rank, and not several: model.devices[0] is the first" if mesh.hosts else "one rank"
            elif tensor is not None:
                error.fix = lambda: (
                    rank.same_stage(other, sends=True)
                    or rank.goes_to(tensor.labels)
                    or back_to_first(rank, tensor.labels)
                    or no_last_stage(rank, tensor.labels, other)
                    or other_way(rank, tensor.labels, other)
                    or NEIGHBORS
                )
                error.fix_for = {
                    IN_A_V: lambda: rank.not_in_a_v() or rank.goes_to(tensor.labels) or NEIGHBORS,
                    BOTH_ENDS: lambda: not_at_both_ends(rank) or rank.goes_to(tensor.labels) or NEIGHBORS,
                    "several_kinds": lambda: (rank.goes_to(tensor.labels) or NEIGHBORS) + RING_OF_STAGES,
                }
            elif operation == "receive":
                at = len(rank.log)
                error.fix = lambda: (
                    sought_before(rank, at, other)
                    or loss_elsewhere(rank)
                    or rank.round_the_ring(other)
                    or once_more_round(rank, other)
                    or rank.needs_no_message()
                    or rank.same_stage(other)
                    or gradient_made_here(rank)
                    or no_input_taken(rank) * (mesh.ranks > rank.batches and not mesh.axes)
                    + FIRST_AND_LAST
                    + f"; {ON_A_RING}" * rank.on_a_ring()
                )
                error.fix_for = {
                    IN_A_V: lambda: (
                        rank.not_in_a_v()
                        or sought_before(rank, at, other)
                        or first_gradient(rank)
                        or or_its_own(rank, rank.from_another())
                        or own_gradient(rank)
                        or gradient_from(rank)
                        or own_input(rank)
                        or FIRST_AND_LAST
                    )
                }
            raise
        if (rank.is_host or known >= mesh.ranks) and mesh.host_of(known) != mesh.host_of(rank.rank):
            if rank.is_host:
                problem = f"this rank is a host, linked to its own devices only, and rank {known} is none of them"
                right: int | None = mesh.beside[rank.rank][0]
                fix = "model.devices has the ranks of its devices"
            else:
                problem = f"rank {known} is a host, linked to its own devices only: {show_set(mesh.beside[known])}"
                right = mesh.host_of(rank.rank)
                fix = "this device's own host is model.host; from device to device: model.pass_to"
            raise PuzzleError(problem, where=where, expected=f"{name}={right}", got=f"{name}={known}", fix=fix)
        return known

    def _batches(self, rank: RankState, batches: frozenset[int], operation: str) -> frozenset[int]:
        if all(0 <= index(batch) < rank.batches for batch in batches):
            return batches
        where, expected = rank.place(operation), f"micro-batches from 0 to {rank.batches - 1}"
        every, ranks = "for batch in range(model.BATCHES), whatever their number is at this size", self.mesh.ranks

        def which() -> str:  # in a pipeline the first rank takes them all
            if taken := rank.has_had_its_share(batches):
                return taken if rank.others_have(0) or not taken.endswith("too long?") else f"{taken} Do it {every}"
            return rank.dealt() if ranks > 1 and rank.others_have(0) else every

        def of_run() -> str:  # no puzzle's, which would have its own number of them
            one_each = rank.batches == 1 < ranks and all(batch < ranks for batch in batches)
            few = f"this run has 1 micro-batch for {ranks} ranks, and run(..., batches={ranks}) has one for each. Else "
            return few * one_each + which()

        alone = "there is one micro-batch only, number 0: model.get_activation([0])"
        cut = "all ranks train slices of the same micro-batches: model.get_activation([batch]).shard(model.rank, "
        cut += f"model.RANKS), for batch in range(model.BATCHES), which is {rank.batches} here"
        fix_for: dict[str, Fix] = {
            "project": cut,
            "weights_stay": alone if rank.batches == 1 else every,
            "four_stages": lambda: which() + _in_columns(ranks, rank.batches),
        }
        fix_for |= dict.fromkeys(("sharded", "states_sharded"), rank.dealt)  # also where one rank has them all
        fix_for[GRADED] = which
        problem = "a micro-batch is out of range"
        if operation == "fake_grad":
            zero = "a rank that has nothing to add brings the gradient of no micro-batches: model.fake_grad(layer, [])"
            raise PuzzleError(problem, where=where, expected=expected, got=show_set(batches), fix=zero)
        raise PuzzleError(problem, where=where, expected=expected, got=show_set(batches), fix=of_run, fix_for=fix_for)


def _in_columns(ranks: int, batches: int) -> str:
    """Return, as the end of a sentence, which micro-batch a rank has where the ranks of a stage follow one another."""
    return f"; and where ranks 0 to {batches - 1} are the first stage, model.rank % {batches}" * (ranks > batches)


def _not_on_host(rank: RankState, row: Operation, layer: int | None) -> PuzzleError:
    """Return the error of a host that calls an operation of the devices."""
    if row.stream == "compute":
        problem = f"a host computes no {row.word}: that is for devices"
        fix = "`if model.is_host:` begins what is for hosts only, `if not model.is_host:` what is for devices"
    else:
        problem = f"a host takes part in no {row.word}: that is among devices"
        fix = "a host sends and receives: model.pass_to(device, v), model.receive(device), for device in model.devices"
    return PuzzleError(problem, where=rank.place(row.kind, layer), got=f"rank {rank.rank}, a host", fix=fix)


def _no_layer(rank: RankState, layer: object) -> str:
    """Return the beginning of a sentence on a layer after the last one, or on a text as one; or an empty text."""
    if isinstance(layer, str):
        return AS_NUMBERS
    return f"there is no layer {layer}: LAYERS is {rank.layers}; " if type(layer) is int and layer > 0 else ""


def _in_parts(rank: RankState, labels: Labels) -> str:
    """Return what ranks add up where each has a piece of the weight, and another tensor of a backward with
    ``partial=True`` is brought to a sum; or an empty text."""
    own, right = labels.layer, "grad, part = model.backward"
    partial = any(
        one.kind == BACKWARD.kind and one.layer == own and PARTIAL in getattr(one, "words", ()) for one in rank.log
    )
    if not partial:
        return ""
    second = f"gives for its input, the second of the two: {right}({own}, ..., partial=True), and the sum is of part"
    if labels.kind == "WeightGrad":
        first = (
            "this is a gradient of the weight, the first of the two that backward gives: are the two exchanged where "
        )
        return f"{first}they are made? What ranks add up here is what backward({own}, ...) {second}"
    if labels.kind == "ActivationGrad" and labels.of == 1 == labels.total:
        read = f"this is what backward({own}, ...) has read, and not what it has given"
        return f"{read}. What ranks add up here is what it {second}"
    return ""


def _other_layer(rank: RankState, kind: str, layer: int, tensor: TensorState, problem: str) -> PuzzleError:
    where, own = rank.place(kind, layer), tensor.labels.layer
    fix: Fix = (
        f"name the layer of the tensor, {own}, or take the tensor of layer {layer}; or is it under another's key?"
    )
    if kind == "set_final_weight" and (order := rank.gathered_in_turn(layer, own)):
        fix = f"set the weight of layer {own} as that, or take that of layer {layer}: {order}"
    gathers = kind == ALLGATHER.kind and tensor.labels.kind == "Activation"
    if gathers and type(layer) is int and own == layer + 1 and rank.has_run(LOSS.kind, rank.layers):
        fix = (
            f"it is what forward({layer}, ...) gives. Is the input of layer {layer} meant, for its backward? Then keep "
        )
        fix += f"a slice of what forward({layer}, ...) reads. Else name the layer of the tensor, {own}"
    left = type(layer) is int and own < layer and rank.with_gradients(layer) and not rank.summed_over(layer)
    if left and tensor.labels.kind == "WeightGrad" and sums(kind) and rank.has_run(BACKWARD.kind, own):
        fix = (
            f"this is what backward({own}, ...) has given, and that of layer {layer} was made before: is there one key "
        )
        fix += (
            f"for all layers? Store each gradient under its own, model.grad_weights[{layer}], or call its sum before "
        )
        fix += "the next backward"
    if type(layer) is int and abs(layer - own) == 1 and tensor.labels.kind == "WeightGrad" and sums(kind):
        written, right = counted_on(kind)
        if written:
            fix = (
                f"this call names layer {layer}, as `{written}`, and the gradient is that of layer {own}: name its own "
            )
            fix += f"layer, model.{kind}(..., {right})"
    if came := rank.sender(tensor.labels):
        fix = f"it came from rank {came[0]}: receive in the order of layers in which that rank sends, or store it "
        fix += "by what it is, tensor.layer"
    if (
        tensor.labels.kind == "ActivationGrad"
        and tensor.labels.of == 1 == tensor.labels.total
        and kind != ALLTOALL.kind
    ):
        of = layer if type(layer) is int and layer < rank.layers else own
        fix = "what ranks add up is the gradient of the weight, the first of the two that backward gives: "
        fix += f"grad, model.grad_activations[{of}] = model.backward({of}, ...)"
        if type(layer) is int and rank.summed_by(layer):
            fix = f"the gradient of layer {layer}'s weight has been summed, and that is all that ranks add up: each "
            fix += "keeps the gradients of its own activations, so leave this call out"
    if sums(kind) and type(layer) is int and own == layer + 1 and (other := _in_parts(rank, tensor.labels)):
        fix = other
    if tensor.labels.kind == "ActivationGrad" and type(layer) is int and rank.has_run(BACKWARD_PROJECT.kind, layer):
        made = f"{BACKWARD_PROJECT.kind}({layer}, ...)"
        fix = "this is a gradient of an activation, the second of what backward_project gives, and the weight's "
        fix += f"gradient is the first: are they exchanged where they are made? grad, inp_grad = model.{made}"
    if tensor.labels.kind == "WeightGrad" and not tensor.labels.batches:
        fix = _of_zero_gradient(rank, kind, layer, own)
    if type(layer) is int and layer > rank.layers - (not KINDS[tensor.labels.kind].by_batch):
        fix = f"{_no_layer(rank, layer)}name the layer of the tensor, {own}"
    problem, expected = f"{problem} {own}", f"layer {layer}"
    return PuzzleError(problem, where=where, expected=expected, got=str(tensor.labels), fix=fix)


def _of_zero_gradient(rank: RankState, kind: str, layer: int, own: int) -> str:
    """Return what to do about the zero gradient of its ``own`` layer that is brought to the sum of another one."""
    gathers = [one.layer for one in rank.log if one.kind == ALLGATHER.kind]
    if gathers.count(own) > gathers.count(layer):
        came = f"it is the turn of layer {own}, whose weight was gathered again, and not that of layer {layer}"
        return f"{came}: model.{kind}(grad, {own})"
    if gathers.count(own) < gathers.count(layer) or not gathers:
        return f"the zero gradient is that of the layer of this call: model.fake_grad({layer}, [])"
    both = f"model.fake_grad(layer, []) and model.{kind}(grad, layer)"
    return f"the zero gradient is that of layer {own}, and both name the layer of this turn: {both}"


def _check_list(
    rank: RankState, row: Collective, labels: Sequence[Labels | None], layers: Sequence[object]
) -> tuple[int, ...]:
    """Return the layers of a list that is brought to one collective. Raise PuzzleError unless they are whole numbers,
    with one tensor of one kind for each layer, and each layer once. A tensor is None where the rank brings nothing."""
    kind, example = row.kind, f"for example await model.{row.kind}([one, two], [0, 1])"
    if not labels or len(labels) != len(layers):
        problem = f"{_many(len(labels), 'tensor')} with {_many(len(layers), 'layer')}"
        expected = "at least one tensor, and for each tensor its layer"
        raise PuzzleError(problem, where=rank.place(kind, None), expected=expected, fix=example)
    known = tuple(
        layer if type(layer) is int else one_of("layer", layer, rank.layers, rank.place(kind, None), example)
        for layer in layers
    )
    layer, times = Counter(known).most_common(1)[0]
    if times > 1:
        problem, expected = f"layer {layer} is in the list {times} times", "each layer once"
        got, fix = show_layers(known), "one call for each, or add the gradients up before"
        raise PuzzleError(problem, where=rank.place(kind, layer), expected=expected, got=got, fix=fix)
    for layer, one in zip(known, labels, strict=True):
        if one is None and row.everyone:
            where = rank.place(kind, layer)
            raise PuzzleError(f"every rank brings a tensor of each layer to {kind}", where=where, fix=example)
    kinds = [name for name in KINDS if any(one is not None and one.kind == name for one in labels)]
    if len(kinds) > 1:
        problem, expected = f"{' and '.join(kinds)} in one list", "tensors of one kind"
        fix = f"one {kind} for each kind"
        raise PuzzleError(problem, where=rank.place(kind, known[0]), expected=expected, fix=fix)
    if len({one.adapter for one in labels if one is not None and (one.batches or not KINDS[one.kind].batched)}) > 1:
        problem, fix = "tensors of adapters and of the layers' own weights in one list", f"one {kind} for each"
        raise PuzzleError(problem, where=rank.place(kind, known[0]), expected="either of them", fix=fix)
    return known


def _many(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'s' * (count != 1)}"
