"""The worker's end of the line: ``Simulator`` that ask for everything, so that only labels and numbers are in this
process.

Its methods are those of ``machine.interface.Simulator``, where they are explained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import index
from types import CodeType
from typing import Any, cast

from ..basics.arguments import describe
from ..basics.errors import Deadlock, PuzzleError, learner_frame, line_at, show_line
from ..basics.units import Elements
from ..machine.failure import Wait
from ..machine.fingerprints import piece_of
from ..machine.interface import AnySimulator, FinalState, Piece, Simulator, Token
from ..machine.simulator import second_model
from ..record.events import Event
from ..record.labels import Labels
from ..record.operations import NO_OPTIONS, Options
from ..running.limits import TimeIsUp
from .wire import LONGEST, Wire, pack, read_labels, unpack_elements, unpack_error, unpack_event, unpack_labels, written

HELD = LONGEST // 2  # bytes that are told at most before something is asked
LOOKS = ("time", "stored", "events", "finals", "by_hand", "decide_next", "deadlock")
"""Questions that an error may ask itself, or that no code of a rank's asks: no earlier mistake is raised there."""


class RemoteRank:
    """The handle of a rank: its number, and a function that names the coroutine that runs."""

    def __init__(self, rank: int, layers: int = 0, batches: int = 0) -> None:
        self.rank, self.layers, self.batches = rank, layers, batches
        self.running: Callable[[], object] | None = None


class RemoteTensor(Token):
    """The handle of a tensor: its number in the grader's simulator."""

    def __init__(self, simulator: RemoteSimulator, rank: RemoteRank, number: int, labels: Labels, memory: Elements):
        self.simulator, self.rank, self.number = simulator, rank, number
        self.labels, self.memory = labels, memory

    def shard(self, index: int, total: int) -> Any:
        return self.simulator.ask("shard", self.rank, self.number, index, total)

    def combine(self, other: Token) -> Any:
        return self.simulator.ask("combine", self.rank, self.number, self.simulator.number(other))

    def add(self, other: Token) -> Any:
        return self.simulator.ask("add", self.rank, self.number, self.simulator.number(other))


class RemoteCall:
    """The handle of a call: its number in the grader's simulator."""

    waiter: Callable[[], None]

    def __init__(
        self, rank: RemoteRank, kind: str, layer: int | None, number: int, layers: tuple[int, ...] = ()
    ) -> None:
        self.rank, self.kind, self.layer, self.number, self.layers = rank, kind, layer, number, layers
        self.woken = False  # whether its waiter has been woken
        self.foreseen: Any = None  # the tensor that it has brought, or a list of them, when that is known


class Told:
    """Messages to be written before the next question, and where in the learner's code each of them comes from."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.size = 0  # of them all, in bytes
        self.places: list[tuple[CodeType, int] | None] = []

    def add(self, text: str) -> None:
        """Add a message that is JSON already."""
        frame = learner_frame()
        self.places.append(frame and (frame.f_code, frame.f_lasti))  # its line costs more, and is hardly ever asked for
        self.size += len(text)
        self.texts.append(text)

    def line(self, place: int) -> str:
        """Return the learner's line from which the message in this place comes."""
        at = self.places[place]
        return "" if at is None else show_line(at[0], line_at(*at))


def remote_simulator(wire: Wire) -> AnySimulator:
    """Return simulator at the other end of a line, for a learner's side that looks into no handle."""
    simulator: Simulator[RemoteRank, RemoteTensor, RemoteCall] = RemoteSimulator(wire)
    return cast(AnySimulator, simulator)


class RemoteSimulator:
    """Simulator that ask the grader. What has no result is told with the next question."""

    tensor_type: type[RemoteTensor] = RemoteTensor
    counts = True  # whether no other worker makes tensors in the same simulator, so that their numbers are known

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.asking = False
        self.told = Told()
        self.mistakes: dict[int, PuzzleError] = {}  # by rank: what was wrong with what it told, to be raised there
        self.opened: set[int] = set()
        self.started = 0  # calls: they are numbered in this order
        self.tensors = 0  # numbered in the order in which they are made, or fetched
        self.several = False  # whether a rank has several coroutines
        self.flushing = False  # whether the loop will ask if nobody does
        self.calls: dict[int, RemoteCall] = {}
        self.coroutines: dict[object, int] = {}  # keeps the tasks alive, so that no two get the same number
        self.by_hand: dict[int, tuple[Token, int]] = {}

    def ask(self, verb: str, rank: RemoteRank, *arguments: Any) -> Any:
        """Return the grader's answer. Raise the PuzzleError that it answers with, at the learner's line, or that of
        something which this rank has told before, at the line of that."""
        if self.asking:
            raise TimeIsUp  # it was raised during a question, and caught: from now on answers would not fit
        self.asking = True
        question, told = self._message(verb, rank, arguments), self.told
        if told.texts:
            self.told = Told()
            question = f"[{','.join(told.texts)},{question}]"
        self.wire.write(question)
        failed, result, woken, *wrong = self.wire.receive(longest=None)
        self.asking = False
        for number, packed in woken:
            call = self.calls[number]
            call.woken, call.foreseen = True, self._unpack(call.rank, packed)
            call.waiter()
        for place, where, error in wrong[0] if wrong else ():
            self.mistakes.setdefault(where, PuzzleError(**unpack_error(error) | {"line": told.line(place)}))
        answer = None if failed else self._unpack(rank, result)  # also where nobody gets it: tensors are counted there
        if rank.rank in self.mistakes and verb not in LOOKS:
            raise self.mistakes.pop(rank.rank)
        if failed and verb == "deadlock":
            raise Deadlock(**unpack_error(result))
        if failed:
            raise PuzzleError(**unpack_error(result) | {"line": None})  # known at this end: the learner's
        return answer

    def tell(self, verb: str, rank: RemoteRank, *arguments: Any) -> None:
        """Write a message with the next question. What is wrong with it is raised at the next question of its rank."""
        text = self._message(verb, rank, arguments)
        if self.told.size + len(text) > HELD:
            self.ask(verb, rank, *arguments)
        else:
            self.told.add(text)

    def start(self, verb: str, rank: RemoteRank, *arguments: Any) -> int:
        """Start a call, and return its number."""
        self.started += 1
        self.soon(verb, rank, *arguments)
        return self.started - 1

    def soon(self, verb: str, rank: RemoteRank, *arguments: Any) -> None:
        """Tell what may wake others, before everyone waits. Where a rank has several coroutines, it may matter to them
        when exactly others are woken by this: then it is asked."""
        if self.several or not self._flushed():
            self.ask(verb, rank, *arguments)
        else:
            self.tell(verb, rank, *arguments)

    def _flushed(self) -> bool:
        """Return whether the loop, if it goes on, writes what is told: others may wait for that."""
        if not self.flushing:
            with suppress(RuntimeError):  # in a thread of the learner's there is no loop
                asyncio.get_running_loop().call_soon(self._flush)
                self.flushing = True
        return self.flushing

    def _flush(self) -> None:
        self.flushing = False
        if self.told.texts:
            self.ask("time", RemoteRank(0))

    def _message(self, verb: str, rank: RemoteRank, arguments: Sequence[Any]) -> str:
        """Return a message as JSON."""
        running = rank.running() if rank.running is not None else None
        coroutine = None if running is None else self.coroutines.setdefault(running, len(self.coroutines))
        return f'["{verb}",{",".join(map(written, (rank.rank, coroutine, *arguments)))}]'

    def _unpack(self, rank: RemoteRank, result: Any) -> Any:
        if type(result) is not list or not result:
            return result
        if result[0] == "tensor":
            _, number, labels, memory = result
            self.tensors = self.tensors if number is None else number + 1
            return self.tensor_type(self, rank, number, read_labels(labels), unpack_elements(memory))
        return [self._unpack(rank, one) for one in result]

    def number(self, token: Token) -> int:
        """Return the number of a tensor. One made by hand, or of another machine, is first entered as made up."""
        if isinstance(token, RemoteTensor) and token.simulator is self:
            return token.number
        if id(token) not in self.by_hand:
            made = self.ask("by_hand", RemoteRank(0), pack(token.labels))
            self.by_hand[id(token)] = token, made.number
        return self.by_hand[id(token)][1]

    def open(self, rank: int, layers: int, batches: int) -> RemoteRank:
        """Return the handle of a rank, which the grader has opened."""
        if rank in self.opened:
            raise second_model(rank)
        self.opened.add(rank)
        return RemoteRank(rank, layers, batches)

    def load_weights(self, rank: RemoteRank, layer: Any, shard: Any, total: int) -> Any:
        return self.ask("load_weights", rank, plain(layer), plain(shard), index(total))

    def load_adapter(self, rank: RemoteRank, layer: Any, shard: Any, total: int) -> Any:
        return self.ask("load_adapter", rank, plain(layer), plain(shard), index(total))

    def get_activation(self, rank: RemoteRank, batches: frozenset[int]) -> Any:
        return self.ask("get_activation", rank, sorted(batches))

    def fake_grad(self, rank: RemoteRank, layer: Any, batches: frozenset[int]) -> Any:
        return self.ask("fake_grad", rank, plain(layer), sorted(batches))

    def compute(
        self,
        rank: RemoteRank,
        kind: str,
        layer: Any,
        operands: Sequence[Token],
        options: Options = NO_OPTIONS,
    ) -> Any:
        return self.ask("compute", rank, kind, plain(layer), [self.number(operand) for operand in operands], options)

    def set_final_weight(self, rank: RemoteRank, layer: Any, weight: Token) -> None:
        self.tell("set_final_weight", rank, plain(layer), self.number(weight))

    def meet(self, rank: RemoteRank, kind: str, operand: Token | None, layer: Any, axis: Any) -> RemoteCall:
        number = None if operand is None else self.number(operand)
        return self._started(rank, kind, layer, self.start("meet", rank, kind, number, plain(layer), axis))

    def meet_list(
        self, rank: RemoteRank, kind: str, operands: Sequence[Token | None], layers: Sequence[Any], axis: Any
    ) -> RemoteCall:
        numbers = [None if operand is None else self.number(operand) for operand in operands]
        number = self.start("meet_list", rank, kind, numbers, [*map(plain, layers)], axis)
        return self._started(rank, kind, layers[0], number, tuple(layers))

    def pass_to(self, rank: RemoteRank, receiver: Any, operand: Token | None, value: object) -> RemoteCall:
        number = None if operand is None else self.number(operand)
        layer = None if operand is None else operand.labels.layer
        return self._started(rank, "pass_to", layer, self.start("pass_to", rank, plain(receiver), number, value))

    def receive(self, rank: RemoteRank, src: Any) -> RemoteCall:
        return self._started(rank, "receive", None, self.start("receive", rank, plain(src)))

    def _started(
        self, rank: RemoteRank, kind: str, layer: Any, number: int, layers: tuple[int, ...] = ()
    ) -> RemoteCall:
        call = self.calls[number] = RemoteCall(rank, kind, layer, number, layers)
        return call

    def wait(self, call: RemoteCall, waiter: Callable[[], None]) -> bool:
        call.waiter, call.woken = waiter, False
        self.soon("wait", call.rank, call.number)
        return call.woken

    def fetch(self, call: RemoteCall) -> Any:
        if self.counts and call.foreseen is not None:
            self.tell("fetch", call.rank, call.number)
            for tensor in call.foreseen if isinstance(call.foreseen, list) else [call.foreseen]:
                tensor.number = self.tensors
                self.tensors += 1
            return call.foreseen
        result = self.ask("fetch", call.rank, call.number)
        return result[1] if isinstance(result, list) and result[0] == "plain" else result

    def decide_next(self) -> bool:
        return bool(self.ask("decide_next", RemoteRank(0)))

    def store(self, rank: RemoteRank, token: Token) -> None:
        self.tell("store", rank, self.number(token))

    def drop(self, rank: RemoteRank, token: Token) -> None:
        self.tell("drop", rank, self.number(token))

    def share(self, rank: RemoteRank, holder: Callable[[], object]) -> None:
        if rank.running is None:
            rank.running, self.several = holder, True
            self.ask("share", rank)

    def time(self, rank: RemoteRank) -> float:
        return float(self.ask("time", rank))

    def stored(self, rank: RemoteRank) -> Elements:
        return unpack_elements(self.ask("stored", rank))

    def events(self, rank: RemoteRank) -> list[Event]:
        return [unpack_event(event) for event in self.ask("events", rank)]

    def finish_logs(self, ranks: Iterable[RemoteRank]) -> list[Sequence[Event]]:
        return [self.events(rank) for rank in ranks]  # the grader keeps its own

    def final_state(self, rank: RemoteRank, stored: Iterable[Token]) -> FinalState:
        """Return what the rank has handed in, for the learner's own check. What counts is in the grader's simulator."""
        finals = {}
        for layer, packed, whole, made_up in self.ask("finals", rank):
            labels = unpack_labels(packed)
            finals[layer] = Piece(labels, (whole, piece_of(labels)), made_up)
        return FinalState(rank.rank, rank.layers, rank.batches, (), (), (), finals)

    def waiting(self, rank: RemoteRank) -> list[Wait]:
        return []  # the grader knows, and nobody draws here

    def unfinished(self) -> PuzzleError | None:
        return None  # the grader looks itself

    def finish(self, rank: RemoteRank) -> None:
        self.ask("finish", rank)

    def deadlock(self, lines: Mapping[int, str], finished: frozenset[int] | None = None) -> Deadlock:
        for mistake in self.mistakes.values():
            raise mistake  # nobody has heard of it who waits for ever
        try:
            self.ask("deadlock", RemoteRank(0), [[rank, line[:200]] for rank, line in lines.items()])
        except Deadlock as deadlock:
            return deadlock
        raise AssertionError("the grader answers this with an error")


def plain(value: Any) -> Any:
    """Return the argument as JSON can carry it. What is no number is sent as its repr, and refused by the simulator."""
    if value is None or type(value) in (int, float, bool):
        return value
    try:
        return index(value)
    except TypeError:
        return value[:200] if type(value) is str else describe(value)
