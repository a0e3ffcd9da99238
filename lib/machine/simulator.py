"""The simulator of a machine in this process: everything that decides right or wrong (see ``interface``)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter, index
from typing import cast

from ..basics.arguments import one_of
from ..basics.errors import PuzzleError, show_layers, show_set
from ..basics.units import Elements
from ..record.events import END, Event
from ..record.kinds import KINDS
from ..record.labels import ADAPTER, NO_EXTRA, OF_ADAPTER, ExtraLabels, Labels, of_weight
from ..record.operations import NO_OPTIONS, Collective, Operation, Options, Value, Values
from ..record.rules.operands import layer_mismatch
from ..record.shards import FINEST, NONE, one_shard
from ..record.table import collective, computation
from ..record.training import OVERLAPPED
from . import deferred_memory
from .cost import LINKS, Shape
from .failure import Wait
from .fingerprints import Fingerprints
from .in_flight import InFlight, labels_of_each
from .interface import AnySimulator, Simulator
from .mesh import Axis, Mesh
from .network import Network, Watcher
from .rank_state import MADE_UP, Origin, RankState, TensorState, Terms
from .waiting import WaitingNetwork

labels_of, value_of = attrgetter("labels"), attrgetter("value")  # functions of C: asked for at every operation


def new_simulator(
    shape: Shape, graded: bool = False, strict: bool = True, values: Values | None = None
) -> AnySimulator:
    """Create the simulator of a machine behind opaque handles."""
    simulator: Simulator[RankState, TensorState, InFlight] = LocalSimulator(shape, graded, strict, values)
    return cast(AnySimulator, simulator)


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
        network: Callable[[Mesh, Terms, Watcher | None], Network] | None = None,
    ) -> None:
        self.shape, self.mesh = shape, shape.mesh
        values, strict = Fingerprints() if values is None else values, strict and not shape.quiet
        self.terms = Terms(shape.cost, values, graded, strict, shape.experts, shape.tokens, shape.muon, shape.tied)
        if network is None:
            network = Network if shape.links == LINKS[0] else partial(WaitingNetwork, shape.links == LINKS[-1])
        self.network = network(shape.mesh, self.terms, watcher)
        # Bound as they are, a question costs one call less.
        self.wait, self.fetch, self.decide_next = self.network.wait, self.network.fetch, self.network.decide_next
        self.unfinished, self.deadlock, self.group = self.network.unfinished, self.network.deadlock, self.network.group

    def open(self, rank: int, layers: int, batches: int) -> RankState:
        if self.terms.graded and rank in self.network.links:
            problem, expected = f"rank {rank} of this machine has its Model", "the model that the function is given"
            raise PuzzleError(problem, where="Model", expected=expected)
        if len(tokens := self.terms.tokens) not in (0, batches):
            problem, expected = "tokens has a number for each micro-batch", _many(batches, "number")
            raise PuzzleError(problem, where="run", expected=expected, got=str(len(tokens)))
        if self.shape.tied and layers < 2:
            raise PuzzleError("a layer alone is tied to no other", where="run", expected="layers=2 or more")
        state = self.rank_type(rank, layers, batches, self.terms, rank in self.mesh.devices_of)
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
            raise PuzzleError("too_many_pieces", where=where, expected=expected, got=f"{total} shards")
        layer = self._layer(rank, layer, verb)
        if type(shard) is not int or not 0 <= shard < total:
            shard = one_of("shard", shard, total, rank.place(verb, layer))
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
            where, facts = rank.place("get_activation"), {"verb": "get_activation", "kind": "at least one micro-batch"}
            raise PuzzleError("not_brought", where=where, **facts)
        rank.mark("get_activation", 0, batches)
        labels = Labels("Activation", 0, rank.layers, batches=batches, total_batches=rank.batches)
        return rank.mint(labels, rank.values.inputs(batches), len(rank.log) if rank.graded else None)

    def fake_grad(self, rank: RankState, layer: int, batches: frozenset[int]) -> TensorState:
        layer = self._layer(rank, layer, "fake_grad")
        batches = self._batches(rank, batches, "fake_grad")
        labels = Labels("WeightGrad", layer, rank.layers, batches=batches, total_batches=rank.batches)
        value, origin = (rank.values.made_up(labels), MADE_UP) if batches else (rank.values.zero, None)
        return rank.mint(labels, value, origin)

    def tokens(self, rank: RankState, batch: int) -> int:
        where = rank.place("tokens")
        if not rank.tokens:
            raise PuzzleError("micro-batches have no tokens here", where=where, expected="run(..., tokens=...)")
        known = one_of("batch", batch, rank.batches, where)
        if not any(record.kind == "get_activation" and known in record.batches for record in rank.log):
            problem = f"rank {rank.rank} has not taken micro-batch {known}"
            raise PuzzleError(problem, where=where, expected="one whose input it has taken")
        return rank.tokens[known]

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
        if not row.layered:
            layer = labels[0].layer
        if rank.is_host and not row.on_host:
            raise _not_on_host(rank, row, layer)
        if rank.strict:
            try:
                row.rule(rank, layer, needed, more)
            except PuzzleError as error:  # operations may share a rule
                error.place = error.place._replace(operation=kind)
                error.operands = tuple(labels)
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
        if row.share is not None or (labels[0].total != 1 and labels[0].kind == "Activation"):
            rank.note_slices(labels)
        if not cost.leaves_nothing and row.trains:
            rank.leave_behind(row, layer, labels)
        one = len(made) == 1  # as of a forward
        return [rank.mint(made[0], results[0], origin)] if one else [*map(rank.mint, made, results, repeat(origin))]

    def set_final_weight(self, rank: RankState, layer: int, weight: TensorState) -> None:
        layer = self._layer(rank, layer, "set_final_weight")
        if not weight.is_free(rank):
            rank.examine(weight, "set_final_weight", layer)
        if rank.strict and weight.labels.layer != layer:
            where = rank.place("set_final_weight", layer)
            raise layer_mismatch("the weight", where, layer, weight.labels)
        rank.finals[layer] = weight.piece()

    # -- communication ----------------------------------------------------------------------

    def meet(self, rank: RankState, kind: str, operand: TensorState | None, layer: int, axis: Axis) -> InFlight:
        row = collective(kind)
        if operand is None:
            if row.everyone:
                raise PuzzleError("nothing_brought", where=rank.place(kind, layer), who="every rank brings", kind=kind)
        else:
            # As is_free has it, without the call.
            if (
                operand.rank is not rank
                or operand.origin
                or not (operand.stored or operand.since >= operand.temporaries.ended)
            ):
                rank.examine(operand, kind, layer)
            if rank.strict and rank.graded and operand.labels.layer != layer:
                raise layer_mismatch(f"the {operand.labels.kind}", rank.place(kind, layer), layer, operand.labels)
        if rank.is_host:
            raise _not_on_host(rank, row, layer)
        if row.rule is not None and operand is not None and rank.strict:
            row.rule(rank, layer, operand.labels, self.mesh.group(rank.rank, axis).ranks)
        return self.network.meet(self.network.links[rank.rank], row, layer, axis, operand)

    def meet_list(
        self, rank: RankState, kind: str, operands: Sequence[TensorState | None], layers: Sequence[int], axis: Axis
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
                    raise layer_mismatch(f"the {operand.labels.kind}", rank.place(kind, layer), layer, operand.labels)
                if row.rule is not None and rank.strict:
                    row.rule(rank, layer, operand.labels, self.mesh.group(rank.rank, axis).ranks)
        return self.network.meet(self.network.links[rank.rank], row, known, axis, tuple(operands))

    def pass_to(self, rank: RankState, receiver: int, operand: TensorState | None, plain: object) -> InFlight:
        if operand is not None and not KINDS[operand.labels.kind].cut:
            where, got = rank.place(f"pass_to({receiver})"), str(operand.labels)
            raise PuzzleError("not_brought", where=where, got=got, verb="pass_to", kind="no inner activations")
        # From device to device the text costs more than the check.
        if rank.is_host or type(receiver) is not int or not 0 <= receiver < self.mesh.ranks:
            receiver = self._other_rank("rank", receiver, rank, "pass_to")
        if receiver == rank.rank:
            raise PuzzleError("with_itself", where=rank.place("pass_to"), does="pass to")
        if operand is not None and not operand.is_free(rank):
            rank.examine(operand, f"pass_to({receiver})")
        return self.network.send(self.network.links[rank.rank], receiver, operand, plain)

    def receive(self, rank: RankState, src: int | None) -> InFlight:
        if src is not None:
            if rank.is_host or type(src) is not int or not 0 <= src < self.mesh.ranks:
                src = self._other_rank("src", src, rank, "receive")
            if src == rank.rank:
                raise PuzzleError("with_itself", where=rank.place("receive"), does="receive from")
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

    def waiting(self, rank: RankState) -> list[Wait]:
        return [self.network.wait_of(call) for call in rank.log if isinstance(call, InFlight) and call.end is None]

    # -- the end ------------------------------------------------------------------------------

    def finish(self, rank: RankState) -> None:
        rank.mark(END, None)

    def finish_logs(self, ranks: Iterable[RankState]) -> list[Sequence[Event]]:
        logs = [deferred_memory.finish_log(self.network.links[rank.rank]) for rank in ranks]
        self.terms.samples.clear()  # nobody will take another one
        return logs

    # -- arguments ------------------------------------------------------------------------------

    def _layer(self, rank: RankState, layer: int, operation: str) -> int:
        if type(layer) is int and 0 <= layer < rank.layers - rank.tied:
            return layer  # the text below costs more than the check
        return one_of("layer", layer, rank.layers - rank.tied, rank.place(operation))

    def _other_rank(self, name: str, other: int, rank: RankState, operation: str) -> int:
        """Return the number of the rank that a message goes to, or comes from. Raise PuzzleError where there is no way:
        a host is linked to its devices only."""
        where, mesh = rank.place(operation), self.mesh
        known = one_of(name, other, mesh.everyone, where)
        if (rank.is_host or known >= mesh.ranks) and mesh.host_of(known) != mesh.host_of(rank.rank):
            host = rank.rank if rank.is_host else known
            right = mesh.devices_of[host][0] if rank.is_host else mesh.host_of(rank.rank)
            raise PuzzleError(
                "not_linked",
                where=where,
                expected=f"{name}={right}",
                got=f"{name}={known}",
                host=host,
                devices=frozenset(mesh.devices_of[host]),
            )
        return known

    def _batches(self, rank: RankState, batches: frozenset[int], operation: str) -> frozenset[int]:
        if all(0 <= index(batch) < rank.batches for batch in batches):
            return batches
        where, expected = rank.place(operation), f"micro-batches from 0 to {rank.batches - 1}"
        raise PuzzleError("out_of_range", what="a micro-batch", where=where, expected=expected, got=show_set(batches))


def _not_on_host(rank: RankState, row: Operation, layer: int | None) -> PuzzleError:
    """Return the error of a host that calls an operation of the devices."""
    does = f"computes no {row.word}" if row.stream == "compute" else f"takes part in no {row.word}"
    where, expected = rank.place(row.kind, layer), "a device"
    return PuzzleError("not_on_host", where=where, expected=expected, got=f"rank {rank.rank}, a host", does=does)


def _check_list(
    rank: RankState, row: Collective, labels: Sequence[Labels | None], layers: Sequence[object]
) -> tuple[int, ...]:
    """Return the layers of a list that is brought to one collective. Raise PuzzleError unless they are whole numbers,
    with one tensor of one kind for each layer, and each layer once. A tensor is None where the rank brings nothing."""
    kind, where = row.kind, rank.place(row.kind, None)
    if not labels or len(labels) != len(layers):
        why = f"{_many(len(labels), 'tensor')} with {_many(len(layers), 'layer')}"
        expected = "at least one tensor, and for each tensor its layer"
        raise PuzzleError("list_unfit", where=where, expected=expected, why=why)
    known = tuple(layer if type(layer) is int else one_of("layer", layer, rank.layers, where) for layer in layers)
    layer, times = Counter(known).most_common(1)[0]
    if times > 1:
        where, why = where._replace(layer=layer), f"layer {layer} is in the list {times} times"
        raise PuzzleError("list_unfit", where=where, expected="each layer once", got=show_layers(known), why=why)
    for layer, one in zip(known, labels, strict=True):
        if one is None and row.everyone:
            where = where._replace(layer=layer)
            raise PuzzleError("nothing_brought", where=where, who="every rank brings", kind=kind)
    brought, where = [one for one in labels if one is not None], where._replace(layer=known[0])
    kinds = [name for name in KINDS if any(one.kind == name for one in brought)]
    if len(kinds) > 1:
        why = f"{' and '.join(kinds)} in one list"
        raise PuzzleError("list_unfit", where=where, expected="tensors of one kind", why=why)
    if len({one.adapter for one in brought if one.batches or not KINDS[one.kind].batched}) > 1:
        why = "tensors of adapters and of the layers' own weights in one list"
        raise PuzzleError("list_unfit", where=where, expected="either of them", why=why)
    return known


def _many(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'s' * (count != 1)}"
