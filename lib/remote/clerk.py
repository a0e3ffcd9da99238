"""The grader's end of the line: answers a worker out of the books, and believes nothing of what it says.

A worker knows numbers of tensors and calls. Every number is looked up here, every operand's kind is checked
here, and what is released is gone from here. So the only way to a right outcome is the messages of a run that
is right, whoever writes them: tampering is not forbidden, it is pointless.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..basics.errors import PuzzleError, witnessed
from ..basics.units import Elements
from ..machine.books import Books
from ..machine.collectives import TAKES
from ..machine.in_flight import Flight
from ..machine.mesh import one_of
from ..machine.outcome import Outcome
from ..machine.rank_state import Account
from ..machine.tensor_state import Entry, made_by_hand
from ..record.labels import SHARDED
from .wire import (
    LONGEST_TEXT,
    PARTS,
    Garbled,
    Wire,
    number,
    numbers,
    pack_elements,
    pack_error,
    pack_event,
    pack_labels,
    shown,
    unpack_labels,
)

MOST, MOST_BYTES, MOST_ERRORS = 500_000, 1 << 25, 100
"""Of one run: what comes of its messages is kept here until its end, and must end somewhere."""

AFTERWARDS = ("settle", "deadlock", "by_hand", "time", "stored", "finals", "events")
"""What may still be asked in the name of a rank that has finished."""

ENDINGS = ("done", "failed", "missing")
"""What a worker says last."""


class Coroutine:
    """Stands for a coroutine in a worker: it is itself, and nothing else."""


class Clerk:
    """Holds the books of one run, and gives out numbers for what is in them."""

    def __init__(self, books: Books, layers: int, batches: int) -> None:
        self.books, self.layers = books, layers
        self.accounts = [books.open(rank, layers, batches) for rank in range(books.mesh.ranks)]
        self.entries: list[Entry] = []
        self.flights: list[Flight] = []
        self.woken: list[int] = []
        self.asked = ""  # who says what, in the message in hand
        self.holder: object = None  # the coroutine that the message in hand comes from
        self.holders: dict[int, object] = {}  # for each number one thing, as the books have it for each coroutine
        self.finished: set[int] = set()
        self.errors: list[PuzzleError] = []

    def serve(self, wire: Wire, deadline: float) -> list[Any]:
        """Answer until the worker says how it ended; gives that. Raises what Wire.receive raises."""
        token = witnessed.set(self.errors)
        try:
            for _ in range(MOST):
                if len(self.errors) > MOST_ERRORS:
                    raise self.errors[0]
                if wire.read > MOST_BYTES:
                    break
                message = wire.receive(deadline)
                if type(message) is not list or not message:
                    raise Garbled("no message")
                if message[0] in ENDINGS:
                    return message
                wire.send(self.answer(message), deadline)
        finally:
            witnessed.reset(token)
        raise Garbled(f"more than {MOST:,} messages, or {MOST_BYTES >> 20} MiB of them, in one run")

    def answer(self, message: list[Any]) -> list[Any]:
        """[0, result, woken calls] or [1, error, woken calls]. Raises Garbled."""
        if len(message) < 3 or type(message[0]) is not str or message[0] not in VERBS:
            raise Garbled("no verb")
        verb, rank, holder, *arguments = message
        act, kinds = VERBS[verb]
        if len(arguments) != len(kinds) or (holder is not None and type(holder) is not int):
            raise Garbled(f"other arguments than those of {verb}")
        account = self._account(rank)
        if rank in self.finished and verb not in AFTERWARDS:
            raise Garbled(f"{verb} of a rank that has finished")
        self.holder, self.woken = None if holder is None else self.holders.setdefault(holder, Coroutine()), []
        self.asked = f"rank {rank}, {verb}"
        try:
            known = [kind(self, argument) for kind, argument in zip(kinds, arguments, strict=True)]
            return [0, self._pack(act(self, account, *known)), self.woken]
        except PuzzleError as error:
            return [1, pack_error(_presentable(error)), self.woken]

    def outcome(self, name: str) -> Outcome:
        """What the run leaves. Raises the first PuzzleError that was made in it, or of what is left unfinished."""
        if self.errors:
            raise self.errors[0]
        for account in self.accounts:
            if account.rank not in self.finished:
                self.books.finish(account)
        unfinished = self.books.unfinished()
        if unfinished is not None:
            raise _presentable(unfinished)
        closings = [self.books.closing(account, self._stored(account)) for account in self.accounts]
        return Outcome(name, self.books.mesh, closings, [self.books.settled(account) for account in self.accounts])

    def _stored(self, account: Account) -> list[Entry]:
        return [entry for entry in self.entries if entry.stored and entry.account is account]

    # -- arguments ----------------------------------------------------------------------------------

    def _account(self, rank: Any) -> Account:
        if type(rank) is not int or not 0 <= rank < len(self.accounts):
            raise Garbled("no rank")
        return self.accounts[rank]

    def _entry(self, at: Any, *kinds: str) -> Entry:
        if type(at) is not int or not 0 <= at < len(self.entries):
            raise Garbled("no tensor of that number")
        entry = self.entries[at]
        if kinds and entry.labels.kind not in kinds:
            raise Garbled("a tensor of another kind")
        return entry

    def _flight(self, at: Any) -> Flight:
        if type(at) is not int or not 0 <= at < len(self.flights):
            raise Garbled("no call of that number")
        return self.flights[at]

    # -- results ------------------------------------------------------------------------------------

    def _pack(self, result: Any) -> Any:
        if isinstance(result, Entry):
            self.entries.append(result)
            return ["tensor", len(self.entries) - 1, pack_labels(result.labels), pack_elements(result.memory)]
        if isinstance(result, Flight):
            self.flights.append(result)
            return len(self.flights) - 1
        if isinstance(result, tuple):
            return [self._pack(one) for one in result]
        return result

    # -- what is more than a call of the books ----------------------------------------------------------

    def _meet(self, account: Account, kind: str, operand: Entry, layer: Any, axis: str | None) -> Flight:
        if operand.labels.kind not in TAKES[kind]:
            raise Garbled("a tensor of another kind")
        return self.books.meet(account, kind, operand, layer, axis)

    def _wait(self, account: Account, at: Any) -> bool:
        flight = self._flight(at)
        if flight.fetched or flight.account is not account:
            raise Garbled("waiting for what cannot be fetched")
        return self.books.wait(flight, lambda: self.woken.append(at))

    def _fetch(self, account: Account, flight: Flight) -> Any:
        if flight.end is None or flight.fetched or flight.account is not account:
            raise Garbled("fetching what is not there")
        result = self.books.fetch(flight)
        return result if isinstance(result, Entry) else ["plain", result]

    def _store(self, account: Account, entry: Entry) -> None:
        self.books.store(account, entry)

    def _drop(self, account: Account, entry: Entry) -> None:
        if not entry.stored or entry.account is not account:
            raise Garbled("dropping what is not stored")
        self.books.drop(account, entry)

    def _share(self, account: Account) -> None:
        self.books.share(account, lambda: self.holder)

    def _finish(self, account: Account) -> None:
        self.finished.add(account.rank)
        self.books.finish(account)

    def _deadlock(self, account: Account, lines: dict[int, str]) -> None:
        raise self.books.deadlock(frozenset(self.finished), lines)


def _presentable(error: PuzzleError) -> PuzzleError:
    """The error, with nothing in it that a worker may have put there to be shown, and no part too long."""
    for part in PARTS:
        setattr(error, part, shown(getattr(error, part), LONGEST_TEXT - len(" ...")))
    return error


# -- the language ---------------------------------------------------------------------------------------


def _tensor(*kinds: str) -> Callable[[Clerk, Any], Entry]:
    return lambda clerk, at: clerk._entry(at, *kinds)


def _or_none(kind: Callable[[Clerk, Any], Any]) -> Callable[[Clerk, Any], Any]:
    return lambda clerk, argument: None if argument is None else kind(clerk, argument)


def _plain(clerk: Clerk, value: Any) -> Any:
    if value is not None and type(value) not in (int, float, bool, str):
        raise Garbled("no plain value")
    return value


def _layer(clerk: Clerk, value: Any) -> int:
    """A whole number. What is none was sent as what it shows (see remote), and is a mistake like any other."""
    if type(value) in (bool, float) and value % 1 == 0:
        value = int(value)  # as in a notebook, where it is equal to its layer
    if type(value) is not int:
        value = one_of(f"{clerk.asked}: layer", _shown(clerk, value), clerk.layers)
    return number(value)


def _shown(clerk: Clerk, value: Any) -> Any:
    """What is to be a number, to be refused in the books; a text safe to show."""
    return shown(value, 200) if type(value) is str else _plain(clerk, value)


def _text(clerk: Clerk, value: Any) -> str:
    if type(value) is not str:
        raise Garbled("no text")
    return value


def _axis(clerk: Clerk, value: Any) -> str:
    return shown(_text(clerk, value), 200)


def _number(clerk: Clerk, value: Any) -> int:
    return number(value)


def _numbers(clerk: Clerk, values: Any) -> frozenset[int]:
    return numbers(values)


def _collective(clerk: Clerk, value: Any) -> str:
    if type(value) is not str or value not in TAKES:
        raise Garbled("no collective")
    return value


def _piece(clerk: Clerk, value: Any) -> int:
    if number(value) < 0:
        raise Garbled("no piece")
    return number(value)


def _lines(clerk: Clerk, value: Any) -> dict[int, str]:
    if type(value) is not list or not all(type(row) is list and len(row) == 2 for row in value):
        raise Garbled("no lines")
    return {number(rank): shown(_text(clerk, text), 200) for rank, text in value}


def _labels(clerk: Clerk, value: Any) -> Any:
    return unpack_labels(value)


def _combine(clerk: Clerk, account: Account, one: Entry, other: Entry) -> Entry:
    if one.labels.kind != other.labels.kind:
        raise Garbled("a tensor of another kind")
    return one.combine(other)


def _finals(clerk: Clerk, account: Account) -> list[Any]:
    return [[layer, pack_labels(final.labels), *final[1:]] for layer, final in account.finals.items()]


def _memory(clerk: Clerk, account: Account) -> int | str:
    elements: Elements = clerk.books.stored(account)
    return pack_elements(elements)


_input, _gradient, _weight = _tensor("Activation"), _tensor("ActivationGrad"), _tensor("Weight")
_weight_gradient, _state, _any = _tensor("WeightGrad"), _tensor("OptState"), _tensor()
_call = Clerk._flight

VERBS: dict[str, tuple[Callable[..., Any], tuple[Callable[[Clerk, Any], Any], ...]]] = {
    "load_weights": (lambda c, a, *r: c.books.load_weights(a, *r), (_shown, _shown, _number)),
    "get_activation": (lambda c, a, *r: c.books.get_activation(a, *r), (_numbers,)),
    "fake_grad": (lambda c, a, *r: c.books.fake_grad(a, *r), (_shown, _numbers)),
    "forward": (lambda c, a, *r: c.books.forward(a, *r), (_layer, _input, _weight)),
    "loss": (lambda c, a, *r: c.books.loss(a, *r), (_input,)),
    "backward": (lambda c, a, *r: c.books.backward(a, *r), (_layer, _input, _gradient, _weight)),
    "update": (lambda c, a, *r: c.books.update(a, *r), (_layer, _weight_gradient, _weight, _state)),
    "set_final_weight": (lambda c, a, *r: c.books.set_final_weight(a, *r), (_shown, _weight)),
    "meet": (Clerk._meet, (_collective, _any, _layer, _or_none(_axis))),
    "pass_to": (lambda c, a, *r: c.books.pass_to(a, *r), (_shown, _or_none(_any), _plain)),
    "receive": (lambda c, a, *r: c.books.receive(a, *r), (_shown,)),
    "wait": (Clerk._wait, (_number,)),
    "fetch": (Clerk._fetch, (_call,)),
    "settle": (lambda c, a: c.books.settle(), ()),
    "store": (Clerk._store, (_any,)),
    "drop": (Clerk._drop, (_any,)),
    "shard": (lambda c, a, entry, *r: entry.shard(*r), (_tensor(*SHARDED), _piece, _piece)),
    "combine": (_combine, (_tensor(*SHARDED), _tensor(*SHARDED))),
    "add": (lambda c, a, one, other: one.add(other), (_weight_gradient, _weight_gradient)),
    "by_hand": (lambda c, a, labels: made_by_hand(labels), (_labels,)),
    "share": (Clerk._share, ()),
    "finish": (Clerk._finish, ()),
    "deadlock": (Clerk._deadlock, (_lines,)),
    "time": (lambda c, a: c.books.time(a), ()),
    "stored": (_memory, ()),
    "finals": (_finals, ()),
    "events": (lambda c, a: [pack_event(event) for event in c.books.events(a)], ()),
}
"""What a worker may say, and with which arguments."""
