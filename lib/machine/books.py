"""The books of a machine, and the narrow interface to them.

On the learner's side, ``Model`` and tensors hold labels and opaque tokens. Everything that decides
right or wrong is here: lives, values, clocks, log. The methods below are the whole interface: they
take an account (given out by ``open``), plain values, and tokens of tensors (``Entry``) and of calls
(``Flight``), and return such; a token offers its ``labels`` and ``memory``, and ``shard``, ``combine``
and ``add``, which give tokens again. So the books can stand in this process, as here, or at the other
end of a pipe, with numbers for tokens: nobody else looks inside.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from ..basics.errors import Deadlock, PuzzleError, show_set
from ..basics.units import Elements
from ..record.labels import FINEST, NONE, WHOLE, Cuts, make_labels, same_pieces, within
from . import rules
from .cost import Cost
from .in_flight import Flight
from .late_memory import settle as settle_log
from .late_memory import settled_events
from .mesh import Mesh, one_of
from .network import Network
from .rank_state import Account, Piece
from .tensor_state import Entry
from .values import Fingerprints


def second_model(rank: int) -> PuzzleError:
    """What to say to somebody who makes a Model of a machine that is running."""
    return PuzzleError(
        f"rank {rank} of this machine has its Model", where="Model", cure="use the model that the function is given"
    )


class Books:
    """The books of all ranks of one machine.

    ``graded``: the rules of ``run`` (one owner, nothing made up, each piece loaded once). ``strict``: whether
    sets are checked at each operation; off, only the values can tell. ``values``: what tensors carry, with the
    methods of Fingerprints, which are what they carry by default.
    """

    def __init__(self, mesh: Mesh, cost: Cost, graded: bool = False, strict: bool = True, values: Any = None) -> None:
        self.mesh, self.cost, self.graded, self.strict = mesh, cost, graded, strict
        self.values = Fingerprints() if values is None else values
        self.cuts = Cuts()
        self.network = Network(mesh, cost, self.values, strict)
        self.prices = {kind: cost.grains(kind) for kind in ("forward", "backward", "loss", "update")}

    def open(self, rank: int, layers: int, batches: int) -> Account:
        """The account of a rank; what the rank had before is void."""
        old = self.network.accounts.get(rank)
        if old is not None:
            if self.graded:
                raise second_model(rank)
            self.network.forget(old)
        account = Account(rank, layers, batches, self.cost, self.values, self.cuts, self.graded, self.strict)
        self.network.accounts[rank] = account
        return account

    # -- sources ------------------------------------------------------------------------

    def load_weights(self, account: Account, layer: int, shard: int, total: int) -> tuple[Entry, Entry]:
        """A piece of the weight and of the optimizer state of a layer, of step 0."""
        if not 1 <= total <= FINEST:
            raise PuzzleError(
                f"a weight cannot be cut into {total} shards",
                expected=f"a number from 1 to {FINEST:,}",
                where=f"rank {account.rank}, load_weights({layer})",
            )
        layer = self._layer(account, layer, "load_weights")
        if shard.__class__ is not int or not 0 <= shard < total:
            shard = one_of(f"rank {account.rank}, load_weights({layer}): shard", shard, total)
        if total > 1:
            self.cuts.check(total)
        account.loads.append(len(account.log))
        loads = (len(account.loads),) if account.graded else ()
        account.mark("load_weights", layer)
        weight = make_labels(("Weight", layer, account.layers, 0, NONE, 0, frozenset((shard,)), total))
        state = make_labels(("OptState", *weight[1:]))
        memory = self.cost.elements(weight)
        return (
            account.mint(weight, self.values.weight(weight), False, memory, loads),
            account.mint(state, self.values.opt_state(state), False, memory, loads),
        )

    def get_activation(self, account: Account, batches: frozenset[int]) -> Entry:
        """The input of layer 0 for these micro-batches."""
        batches = self._batches(account, batches, "get_activation")
        if not batches:
            raise PuzzleError("get_activation needs at least one micro-batch", where=f"rank {account.rank}")
        account.mark("get_activation", 0, batches)
        labels = make_labels(("Activation", 0, account.layers, 0, batches, account.batches, WHOLE, 1))
        return account.mint(labels, self.values.inputs(batches))

    def fake_grad(self, account: Account, layer: int, batches: frozenset[int]) -> Entry:
        """A gradient out of nothing; of no micro-batches it is the honest zero."""
        layer = self._layer(account, layer, "fake_grad")
        batches = self._batches(account, batches, "fake_grad")
        labels = make_labels(("WeightGrad", layer, account.layers, 0, batches, account.batches, WHOLE, 1))
        return account.mint(labels, self.values.made_up(labels) if batches else self.values.zero, bool(batches))

    # -- operations of the compute lane ---------------------------------------------------

    def forward(self, account: Account, layer: int, inp: Entry, weight: Entry) -> Entry:
        """The activation that a layer makes of its input."""
        if inp.home is not account or weight.home is not account:
            self._examine(account, f"forward(layer {layer})", inp, weight)
        labels = inp.labels
        if self.strict:
            rules.forward(account, layer, labels, weight.labels)
        batches = labels.batches
        account.record("forward", layer, batches, (inp, weight), self.prices["forward"] * len(batches))
        return account.mint(
            make_labels(("Activation", layer + 1, account.layers, 0, batches, account.batches, WHOLE, 1)),
            self.values.forward(inp.value, weight.value),
            inp.made_up or weight.made_up,
            inp.memory,
        )

    def loss(self, account: Account, inp: Entry) -> Entry:
        """The gradient of the loss with respect to the last activation."""
        if inp.home is not account:
            self._examine(account, "loss", inp)
        labels = inp.labels
        if self.strict:
            rules.loss(account, labels)
        batches = labels.batches
        account.record("loss", account.layers, batches, (inp,), self.prices["loss"] * len(batches))
        return account.mint(
            make_labels(("ActivationGrad", account.layers - 1, account.layers, 0, batches, account.batches, WHOLE, 1)),
            self.values.loss(inp.value),
            inp.made_up,
            inp.memory,
        )

    def backward(self, account: Account, layer: int, inp: Entry, grad: Entry, weight: Entry) -> tuple[Entry, Entry]:
        """The gradients of the weight and of the input of a layer."""
        if inp.home is not account or grad.home is not account or weight.home is not account:
            self._examine(account, f"backward(layer {layer})", inp, grad, weight)
        if self.strict:
            rules.backward(account, layer, inp.labels, grad.labels, weight.labels)
        batches = inp.labels.batches
        account.record("backward", layer, batches, (inp, grad, weight), self.prices["backward"] * len(batches))
        of_weight, of_input = self.values.backward(inp.value, grad.value, weight.value)
        made_up = inp.made_up or grad.made_up or weight.made_up
        sets = (account.layers, 0, batches, account.batches, WHOLE, 1)
        return (
            account.mint(make_labels(("WeightGrad", layer, *sets)), of_weight, made_up, weight.memory),
            account.mint(make_labels(("ActivationGrad", layer - 1, *sets)), of_input, made_up, inp.memory),
        )

    def update(self, account: Account, layer: int, grad: Entry, weight: Entry, opt_state: Entry) -> tuple[Entry, Entry]:
        """Weight and state after an optimizer step."""
        operands = (grad, weight, opt_state)
        if grad.home is not account or weight.home is not account or opt_state.home is not account:
            self._examine(account, f"update(layer {layer})", *operands)
        g, w, o = grad.labels, weight.labels, opt_state.labels
        if self.strict:
            rules.update(account, layer, g, w, o)
        account.record("update", layer, g.batches, operands, self.prices["update"])
        aligned = self.strict or (same_pieces(w, o) and within(w, g))
        values = self.values.update(weight.value, opt_state.value, grad.value, aligned)
        made_up = grad.made_up or weight.made_up or opt_state.made_up
        rest = (layer, account.layers, w.step + 1, NONE, 0, w.shards, w.total)
        return (
            account.mint(make_labels(("Weight", *rest)), values[0], made_up, weight.memory),
            account.mint(make_labels(("OptState", *rest)), values[1], made_up, opt_state.memory),
        )

    def set_final_weight(self, account: Account, layer: int, weight: Entry) -> None:
        """What the rank answers for a layer. No operation and no storage."""
        layer = self._layer(account, layer, "set_final_weight")
        if weight.home is not account:
            self._examine(account, f"set_final_weight({layer})", weight)
        if self.strict and weight.labels.layer != layer:
            raise PuzzleError(
                f"the weight is that of layer {weight.labels.layer}",
                where=f"rank {account.rank}, set_final_weight({layer})",
                expected=f"layer {layer}",
                got=str(weight.labels),
            )
        account.finals[layer] = Piece(weight.labels, weight.value, weight.made_up)

    # -- communication ----------------------------------------------------------------------

    def meet(self, account: Account, kind: str, operand: Entry, layer: int, axis: str | None) -> Flight:
        """Start a collective."""
        if operand.home is not account:
            self._examine(account, f"{kind}(layer {layer})", operand)
        if self.strict and operand.labels.layer != layer and self.graded:
            raise PuzzleError(
                f"the {operand.labels.kind} is of layer {operand.labels.layer}",
                where=f"rank {account.rank}, {kind}(layer {layer})",
                expected=f"layer {layer}",
                got=str(operand.labels),
            )
        flight = Flight(account, kind, layer)
        network = self.network
        network.meet(flight, axis)
        self._issue(flight, operand)
        network.enqueue(flight)
        return flight

    def pass_to(self, account: Account, rank: int, operand: Entry | None, plain: object) -> Flight:
        """Start a send of a tensor, or of a plain value where ``operand`` is None."""
        if rank.__class__ is not int or not 0 <= rank < self.mesh.ranks:
            rank = one_of(f"rank {account.rank}, pass_to: rank", rank, self.mesh.ranks)
        if rank == account.rank:
            raise PuzzleError("a rank cannot pass to itself", where=f"rank {rank}, pass_to", cure="keep it stored")
        if operand is not None and operand.home is not account:
            self._examine(account, f"pass_to({rank})", operand)
        flight = Flight(account, "pass_to", operand.labels.layer if operand else None)
        flight.peer, flight.result = rank, plain
        flight.op = (account.rank, rank, account.sent.get(rank, 0))
        account.sent[rank] = account.sent.get(rank, 0) + 1
        self._issue(flight, operand)
        self.network.enqueue(flight)
        return flight

    def receive(self, account: Account, src: int | None) -> Flight:
        """Start a receive: the next message, or the next from ``src``."""
        if src is not None:
            if src.__class__ is not int or not 0 <= src < self.mesh.ranks:
                src = one_of(f"rank {account.rank}, receive: src", src, self.mesh.ranks)
            if src == account.rank:
                raise PuzzleError("a rank cannot receive from itself", where=f"rank {src}, receive")
        flight = Flight(account, "receive", None)
        flight.peer = src
        self._issue(flight, None)
        account.receives.append(flight)
        self.network.deliver(account.rank)
        return flight

    def _issue(self, flight: Flight, operand: Entry | None) -> None:
        account = flight.account
        if operand is None:
            flight.held = account.sample(flight.kind, flight.layer, ())
        else:
            flight.carry(operand)
            flight.held = account.sample(flight.kind, flight.layer, (operand,))
        account.log.append(flight)
        account.open[flight.number] = flight

    def wait(self, flight: Flight, waiter: Callable[[], None]) -> bool:
        """Whether a call can be fetched now; if not, ``waiter`` is called when it can."""
        return self.network.wait(flight, waiter)

    def fetch(self, flight: Flight) -> Any:
        """The result of an ended call (an Entry, a plain value, or None); moves the rank's clock."""
        return self.network.fetch(flight)

    def settle(self) -> bool:
        """All coroutines wait: wake one. False when none ever can be."""
        return self.network.settle()

    # -- storage ------------------------------------------------------------------------------

    # The rest of the interface is the account's own; bound as it is, a store costs one call less.
    store = staticmethod(Account.store)
    drop = staticmethod(Account.drop)
    share = staticmethod(Account.share)
    closing = staticmethod(Account.closing)
    settled = staticmethod(settle_log)
    events = staticmethod(settled_events)

    def time(self, account: Account) -> float:
        """The rank's clock, in ticks."""
        return account.clock / account.grain

    def stored(self, account: Account) -> Elements:
        """Elements that are stored now."""
        return sum(account.held)

    # -- the end ------------------------------------------------------------------------------

    def finish(self, account: Account) -> None:
        """The rank's function has ended: a last sample."""
        account.mark("end", None)

    def unfinished(self) -> PuzzleError | None:
        """A call never awaited, a message never received."""
        return self.network.unfinished()

    def deadlock(self, finished: frozenset[int], lines: dict[int, str]) -> Deadlock:
        """What to say when nobody can go on."""
        return self.network.deadlock(finished, lines)

    # -- arguments ------------------------------------------------------------------------------

    def _examine(self, account: Account, use: str, *entries: Entry) -> None:
        for entry in entries:
            if entry.home is not account:
                account.examine(entry, use)

    def _layer(self, account: Account, layer: int, where: str) -> int:
        if layer.__class__ is int and 0 <= layer < account.layers:
            return layer  # the text below costs more than the check
        return one_of(f"rank {account.rank}, {where}: layer", layer, account.layers)

    def _batches(self, account: Account, batches: frozenset[int], where: str) -> frozenset[int]:
        if all(0 <= index(batch) < account.batches for batch in batches):
            return batches
        raise PuzzleError(
            "a micro-batch is out of range",
            where=f"rank {account.rank}, {where}",
            expected=f"micro-batches from 0 to {account.batches - 1}",
            got=show_set(batches),
        )
