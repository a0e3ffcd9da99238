"""The worker's end of the line: books of which only labels and numbers are in this process.

The same methods as Books, so Model, tensors and calls work with either.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from ..basics.errors import Deadlock, PuzzleError
from ..basics.units import Elements
from ..learner.tensors import describe
from ..machine.books import second_model
from ..machine.rank_state import Closing, Piece
from ..machine.tensor_state import Token
from ..record.events import Event
from ..record.labels import Labels, make_labels
from ..running.limits import TimeIsUp
from .wire import Wire, pack_labels, unpack_elements, unpack_error, unpack_event, unpack_labels


class RemoteAccount:
    """A rank's account: here it is a number, and how to name the coroutine that runs."""

    def __init__(self, rank: int, layers: int = 0, batches: int = 0) -> None:
        self.rank, self.layers, self.batches = rank, layers, batches
        self.holder: Callable[[], object] | None = None


class RemoteEntry(Token):
    """A tensor in the grader's books, by its number."""

    def __init__(self, books: RemoteBooks, account: RemoteAccount, number: int, labels: Labels, memory: Elements):
        self.books, self.account, self.number = books, account, number
        self.labels, self.memory = labels, memory

    def shard(self, index: int, total: int) -> Any:
        """Piece ``index`` of ``total`` of this one."""
        return self.books.ask("shard", self.account, self.number, index, total)

    def combine(self, other: Token) -> Any:
        """This part and that one as one."""
        return self.books.ask("combine", self.account, self.number, self.books.number(other))

    def add(self, other: Token) -> Any:
        """The sum of two gradients."""
        return self.books.ask("add", self.account, self.number, self.books.number(other))


class RemoteFlight:
    """A call in the grader's books, by its number."""

    waiter: Callable[[], None] | None = None

    def __init__(self, account: RemoteAccount, kind: str, layer: object, number: int) -> None:
        self.account, self.kind, self.layer, self.number = account, kind, layer, number


class RemoteBooks:
    """Asks the grader, one message and one answer at a time."""

    entry_type: type[RemoteEntry] = RemoteEntry

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.asking = False
        self.opened: set[int] = set()
        self.flights: dict[int, RemoteFlight] = {}
        self.holders: dict[object, int] = {}  # holds on to tasks, so that no number is given twice
        self.by_hand: dict[int, tuple[Token, int]] = {}

    def ask(self, verb: str, account: RemoteAccount, *arguments: Any) -> Any:
        """The grader's answer. Raises the PuzzleError that it answers with, at the learner's line."""
        if self.asking:
            raise TimeIsUp  # it struck in the middle of a question, and was swallowed: answers no longer fit
        self.asking = True
        running = account.holder() if account.holder is not None else None
        holder = None if running is None else self.holders.setdefault(running, len(self.holders))
        self.wire.send([verb, account.rank, holder, *arguments])
        failed, result, woken = self.wire.receive(longest=None)
        self.asking = False
        for number in woken:
            waiter = self.flights[number].waiter
            if waiter is not None:
                waiter()
        if failed:
            kind = Deadlock if verb == "deadlock" else PuzzleError
            parts = unpack_error(result)
            if kind is PuzzleError:
                del parts["line"]  # known at this end: the learner's
            raise kind(**parts)
        return self._unpack(account, result)

    def _unpack(self, account: RemoteAccount, result: Any) -> Any:
        if type(result) is not list or not result:
            return result
        if result[0] == "tensor":
            _, number, labels, memory = result
            kind, layer, layers, step, batches, total_batches, shards, total = labels
            known = make_labels(
                (kind, layer, layers, step, frozenset(batches), total_batches, frozenset(shards), total)
            )
            return self.entry_type(self, account, number, known, unpack_elements(memory))
        return [self._unpack(account, one) for one in result]

    def number(self, token: Token) -> int:
        """The number of a tensor; one made by hand, or of another machine, gets one as made up."""
        if isinstance(token, RemoteEntry) and token.books is self:
            return token.number
        if id(token) not in self.by_hand:
            made = self.ask("by_hand", RemoteAccount(0), pack_labels(token.labels))
            self.by_hand[id(token)] = token, made.number
        return self.by_hand[id(token)][1]

    # -- the interface of Books -----------------------------------------------------------------------

    def open(self, rank: int, layers: int, batches: int) -> RemoteAccount:
        """The account of a rank; the grader has opened it."""
        if rank in self.opened:
            raise second_model(rank)
        self.opened.add(rank)
        return RemoteAccount(rank, layers, batches)

    def load_weights(self, account: RemoteAccount, layer: Any, shard: Any, total: int) -> Any:
        """A piece of the weight and of the optimizer state of a layer."""
        return self.ask("load_weights", account, plain(layer), plain(shard), index(total))

    def get_activation(self, account: RemoteAccount, batches: frozenset[int]) -> Any:
        """The input of layer 0 for these micro-batches."""
        return self.ask("get_activation", account, sorted(batches))

    def fake_grad(self, account: RemoteAccount, layer: Any, batches: frozenset[int]) -> Any:
        """A gradient out of nothing."""
        return self.ask("fake_grad", account, plain(layer), sorted(batches))

    def forward(self, account: RemoteAccount, layer: Any, *operands: Token) -> Any:
        """The activation that a layer makes of its input."""
        return self.ask("forward", account, plain(layer), *map(self.number, operands))

    def loss(self, account: RemoteAccount, inp: Token) -> Any:
        """The gradient of the loss."""
        return self.ask("loss", account, self.number(inp))

    def backward(self, account: RemoteAccount, layer: Any, *operands: Token) -> Any:
        """The gradients of the weight and of the input of a layer."""
        return self.ask("backward", account, plain(layer), *map(self.number, operands))

    def update(self, account: RemoteAccount, layer: Any, *operands: Token) -> Any:
        """Weight and state after an optimizer step."""
        return self.ask("update", account, plain(layer), *map(self.number, operands))

    def set_final_weight(self, account: RemoteAccount, layer: Any, weight: Token) -> None:
        """What the rank answers for a layer."""
        self.ask("set_final_weight", account, plain(layer), self.number(weight))

    def meet(self, account: RemoteAccount, kind: str, operand: Token, layer: Any, axis: Any) -> RemoteFlight:
        """Start a collective."""
        return self._flight(
            account, kind, layer, self.ask("meet", account, kind, self.number(operand), plain(layer), axis)
        )

    def pass_to(self, account: RemoteAccount, rank: Any, operand: Token | None, value: object) -> RemoteFlight:
        """Start a send."""
        number = None if operand is None else self.number(operand)
        layer = None if operand is None else operand.labels.layer
        return self._flight(account, "pass_to", layer, self.ask("pass_to", account, plain(rank), number, value))

    def receive(self, account: RemoteAccount, src: Any) -> RemoteFlight:
        """Start a receive."""
        return self._flight(account, "receive", None, self.ask("receive", account, plain(src)))

    def _flight(self, account: RemoteAccount, kind: str, layer: object, number: int) -> RemoteFlight:
        flight = self.flights[number] = RemoteFlight(account, kind, layer, number)
        return flight

    def wait(self, flight: RemoteFlight, waiter: Callable[[], None]) -> bool:
        """Whether a call can be fetched now; if not, ``waiter`` is called when it can."""
        flight.waiter = waiter
        return bool(self.ask("wait", flight.account, flight.number))

    def fetch(self, flight: RemoteFlight) -> Any:
        """The result of an ended call."""
        result = self.ask("fetch", flight.account, flight.number)
        return result if isinstance(result, Token) else result[1]

    def settle(self) -> bool:
        """All coroutines wait: wake one."""
        return bool(self.ask("settle", RemoteAccount(0)))

    def store(self, account: RemoteAccount, token: Token) -> None:
        """A dictionary of this rank now holds the tensor (once more)."""
        self.ask("store", account, self.number(token))

    def drop(self, account: RemoteAccount, token: Token) -> None:
        """A dictionary of this rank no longer holds the tensor (once less)."""
        self.ask("drop", account, self.number(token))

    def share(self, account: RemoteAccount, holder: Callable[[], object]) -> None:
        """From now on several coroutines may run in this rank."""
        if account.holder is None:
            account.holder = holder
            self.ask("share", account)

    def time(self, account: RemoteAccount) -> float:
        """The rank's clock, in ticks."""
        return float(self.ask("time", account))

    def stored(self, account: RemoteAccount) -> Elements:
        """Elements that are stored now."""
        return unpack_elements(self.ask("stored", account))

    def events(self, account: RemoteAccount) -> list[Event]:
        """The rank's log so far."""
        return [unpack_event(event) for event in self.ask("events", account)]

    def closing(self, account: RemoteAccount, stored: list[Token]) -> Closing:
        """What the rank has handed in, for a check of the learner's own; the one that counts is the grader's."""
        finals = {
            layer: Piece(unpack_labels(labels), value, made_up)
            for layer, labels, value, made_up in self.ask("finals", account)
        }
        return Closing(account.rank, account.layers, account.batches, (), (), (), finals)

    def finish(self, account: RemoteAccount) -> None:
        """The rank's function has ended."""
        self.ask("finish", account)

    def deadlock(self, finished: frozenset[int], lines: dict[int, str]) -> Deadlock:
        """What to say when nobody can go on."""
        try:
            self.ask("deadlock", RemoteAccount(0), [[rank, line[:200]] for rank, line in lines.items()])
        except Deadlock as deadlock:
            return deadlock
        raise AssertionError("the grader answers this with an error")


def plain(value: Any) -> Any:
    """An argument that is to be a number, in a form that can be sent: what is none is sent as what it shows."""
    if value is None or type(value) in (int, float, bool):
        return value
    try:
        return index(value)
    except TypeError:
        return value[:200] if type(value) is str else describe(value)
