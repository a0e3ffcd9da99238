"""Keeps the books of a run whose ranks are processes.

Every rank asks here before it computes and before it sends, as a worker asks the grader, and the same clerk answers
from the same books. So rules, clock, memory, log and messages are those of the simulated machine. Numbers never
come here. When a collective is complete, or a message has found its receiver, the ranks are told to move the real
tensors among themselves, all in the same order.
"""

from __future__ import annotations

import hmac
import selectors
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

from ...basics.errors import Place, PuzzleError, show_call
from ...basics.units import Elements
from ...learner.dist import Dist
from ...learner.model import Model
from ...machine.books import LocalBooks
from ...machine.cost import Cost
from ...machine.in_flight import InFlight
from ...machine.interface import AnyBooks
from ...machine.rank_state import RankState
from ...machine.shape import Shape
from ...record.labels import Labels
from ...record.table import SEND
from ...remote.clerk import Clerk
from ...remote.wire import Wire, pack, unpack_error
from ...running.workload import Workload

RECORDED = ("load_weights", "get_activation", "compute", "meet", "pass_to", "receive")
"""Questions that leave a record in the log, as the end of a rank does."""
COLLECTING = 60.0
"""Seconds within which the final weights have to be compared."""
PATIENCE = 1.0
"""Seconds to wait for the reason, when a rank has hung up and may be dead."""


class Move(NamedTuple):
    """Tensors that can now be moved: the calls of a group in its order, or a send and its receive."""

    kind: str
    calls: Sequence[InFlight]
    inputs: Sequence[Labels | None]
    outputs: Sequence[Labels]


class Moves:
    """What can be moved and was not yet told to the ranks (a ``Watcher`` of the network)."""

    def __init__(self) -> None:
        self.waiting: list[Move] = []

    def met(
        self, kind: str, calls: Sequence[InFlight], inputs: Sequence[Labels | None], outputs: Sequence[Labels]
    ) -> None:
        self.waiting.append(Move(kind, calls, inputs, outputs))

    def received(self, sent: InFlight, call: InFlight) -> None:
        if call.labels is not None:
            self.waiting.append(Move(SEND.kind, [sent, call], [call.labels], [call.labels]))

    def pop_all(self) -> list[Move]:
        """Return all of them, and forget them."""
        moves, self.waiting = self.waiting, []
        return moves


class HostClerk(Clerk):
    """The grader's clerk, for ranks that ask one by one: it knows which call has which number."""

    def __init__(self, books: LocalBooks, work: Workload, ranks: Sequence[RankState]) -> None:
        super().__init__(books, work.layers, work.batches, ranks)
        self.numbers: dict[InFlight, int] = {}

    def _pack(self, result: Any) -> Any:
        packed = super()._pack(result)
        if isinstance(result, InFlight):
            self.numbers[result] = packed
        return packed


class Client:
    """The process of one rank, as far as the host knows it."""

    def __init__(self, rank: int, ask: Wire, lane: Wire, hello: Mapping[str, Any]) -> None:
        self.rank, self.ask, self.lane, self.pid = rank, ask, lane, int(hello["pid"])
        self.waits = self.timer = False
        self.done = False
        self.woken: list[int] = []
        self.doing, self.line = "starting", ""
        self.waiting = ""
        self.heard = time.monotonic()
        self.gone: float | None = None
        self.error: PuzzleError | None = None
        self.failed = 0.0
        self.report: dict[str, Any] = {}
        self.stored: list[Elements] = []
        self.now: Elements = 0

    def reply(self, answer: list[Any]) -> None:
        """Answer what it has asked. If it is dead, it does not hear that, and ``Host`` finds out later."""
        with suppress(OSError):
            self.ask.send(answer)

    def tell(self, order: list[Any]) -> None:
        """Tell its lane what to do."""
        with suppress(OSError):
            self.lane.send(order)


class Host:
    """Answers the ranks of one run. ``real``: sizes of the real tensors, by which what is stored is counted."""

    def __init__(self, shape: Shape, work: Workload, timeout: float | None, name: str) -> None:
        self.name, self.timeout = name, timeout
        self.moves = Moves()
        self.books = LocalBooks(shape, graded=True, watcher=self.moves)
        dist = Dist.of(shape, cast(AnyBooks, self.books))
        self.models = [Model(rank, dist, work.layers, work.batches) for rank in range(shape.ranks)]
        self.clerk = HostClerk(self.books, work, [cast(RankState, model._handle) for model in self.models])
        self.ranks: dict[int, Client] = {}
        self.real: Cost | None = None
        self.out = sys.stdout
        self.selector = selectors.DefaultSelector()
        self.deaths: Callable[[], dict[int, str]] = dict
        """Ranks whose process has ended, and how, as far as a supervisor knows."""

    # -- the run -----------------------------------------------------------------------------------

    def serve(self, ranks: Sequence[Client], real: Cost) -> None:
        """Answer until all ranks have ended. Raise PuzzleError for what is wrong with the function or a rank."""
        with self.selector:
            self._serve(ranks, real)

    def _serve(self, ranks: Sequence[Client], real: Cost) -> None:
        self.real = real
        self.ranks = {state.rank: state for state in ranks}
        for state in ranks:
            self.selector.register(state.ask.end, selectors.EVENT_READ, state)
            state.heard = time.monotonic()
            state.tell(["start"])
        while not all(state.done for state in ranks):
            for key, _ in self.selector.select(0.05):
                self._hear(key.data)
            self._look_after()
        if self.clerk.errors:
            raise self.clerk.errors[0]

    def collect(self) -> list[Any]:
        """Return the rows of the comparison with the reference, which rank 0 makes of all final weights."""
        finals = [[state.rank, *final] for state in self.ranks.values() for final in state.report["finals"]]
        for state in self.ranks.values():
            state.tell(["collect", finals])
        try:
            said, _ = self.ranks[0].ask.receive(time.monotonic() + COLLECTING, longest=None)
        except (EOFError, OSError):
            dead = "; ".join(f"rank {rank} {how}" for rank, how in self.deaths().items())
            raise PuzzleError("the final weights cannot be brought together", got=dead, line="") from None
        for state in self.ranks.values():
            state.tell(["end"])
        rows: list[Any] = said[1]
        return rows

    def _hear(self, state: Client) -> None:
        state.heard = time.monotonic()
        try:
            said = state.ask.receive(longest=None)
        except (EOFError, OSError):
            self.selector.unregister(state.ask.end)
            state.gone = time.monotonic()
            return
        while True:
            self._answer(state, *said)
            if b"\n" not in state.ask.buffer or state.waits:
                return
            said = state.ask.receive(longest=None)

    def _answer(self, state: Client, message: list[Any], line: str) -> None:
        verb = message[0]
        if verb == "print":
            self.out.write(message[1])
            self.out.flush()
            return
        if verb == "done":
            state.done, state.report = True, message[1]
            self.selector.unregister(state.ask.end)
            self._go_on()
            return
        if verb == "failed":
            state.error, state.failed = PuzzleError(**unpack_error(message[1])), time.monotonic()
            if not message[2]:
                raise state.error from None
            self.selector.unregister(state.ask.end)  # another rank may be the reason, and be found soon
            return
        state.line = line or state.line
        if verb == "decide_next":
            state.waits, state.timer, state.waiting = True, message[3], message[4]
            self._go_on()
            return
        if verb in (*RECORDED, "finish"):
            state.stored.append(state.now)
            state.doing = _doing(verb, message)
        answer = self.clerk.answer(message)
        self._count(state, verb, message)
        self._wake(answer.pop())
        self._move()
        mine, state.woken = state.woken, []
        state.reply([*answer, mine])
        self._go_on()

    def _count(self, state: Client, verb: str, message: list[Any]) -> None:
        """Count what is stored of the real tensors, by their labels."""
        if verb in ("store", "drop") and self.real is not None:
            size = self.real.elements(self.clerk.tensors[message[3]].labels)
            state.now += size if verb == "store" else -size

    def _wake(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.ranks[self.clerk.calls[number].rank.rank].woken.append(number)

    def _move(self) -> None:
        """Tell the ranks what to move. All hear of it in the same order, so no two wait for each other."""
        for kind, calls, inputs, outputs in self.moves.pop_all():
            numbers = [self.clerk.numbers[call] for call in calls]
            ranks = [call.rank.rank for call in calls]
            packed = pack([inputs, outputs])
            for number, rank in zip(numbers, ranks, strict=True):
                self.ranks[rank].tell([kind, number, ranks, *packed])

    def _go_on(self) -> None:
        """Let the ranks go on that can. When all wait, decide what ends first. Raise Deadlock when nothing can."""
        while True:
            for state in self.ranks.values():
                if state.waits and state.woken:
                    woken, state.woken, state.waits = state.woken, [], False
                    state.reply([0, True, woken])
            left = [state for state in self.ranks.values() if not state.done]
            if not left or not all(state.waits for state in left):
                return
            self.clerk.woken = []
            if self.books.decide_next():
                self._wake(self.clerk.woken)
                self._move()
                continue
            timed = next((state for state in left if state.timer), None)
            if timed is not None:
                timed.waits = False
                timed.reply([0, False, []])
                return
            lines = {state.rank: state.waiting for state in left}
            raise self.books.deadlock(lines, frozenset(self.clerk.finished))

    # -- what goes wrong -------------------------------------------------------------------------------

    def _look_after(self) -> None:
        """Raise PuzzleError for a rank that has died, or of which nothing is heard."""
        now = time.monotonic()
        deaths = self.deaths()
        left = [state for state in self.ranks.values() if not state.done]
        for state in left:
            how = deaths.get(state.rank)
            if how is not None and state.error is None:
                if b"\n" not in state.ask.buffer and state.gone is None:
                    self._drain(state)
                if not state.done:
                    raise self._lost(state, how)
            if state.gone is not None and now - state.gone > PATIENCE:
                raise self._lost(state, "has hung up")
        for state in left:
            if state.error is not None and now - state.failed > PATIENCE:
                raise state.error
        silent = [
            state
            for state in left
            if not state.waits and not state.error and self.timeout and now - state.heard > self.timeout
        ]
        if silent:
            raise self._late(silent[0], left)

    def _drain(self, state: Client) -> None:
        """Read what a rank has said before it died: it counts."""
        state.ask.end.settimeout(0.0)
        try:
            while not state.done:
                said = state.ask.receive(longest=None)
                if said[0][0] in ("done", "failed", "print"):
                    self._answer(state, *said)
        except (EOFError, OSError):
            pass
        finally:
            state.ask.end.settimeout(None)

    def _lost(self, state: Client, how: str) -> PuzzleError:
        return PuzzleError(
            f"its process (pid {state.pid}) {how} while in {state.doing}",
            where=Place(state.rank),
            line=state.line,
        )

    def _late(self, state: Client, left: Sequence[Client]) -> PuzzleError:
        waiting = [
            f"rank {other.rank} waits in {other.doing}" + (f" [{other.waiting}]" if other.waiting else "")
            for other in left
            if other.waits
        ]
        return PuzzleError(
            f"nothing was heard of it for {self.timeout:g} seconds, since {state.doing}",
            where=Place(state.rank),
            got="; ".join(waiting[:8]),
            cure="look for a loop that never ends; slow machines and large layers need a longer timeout",
            line=state.line,
        )


def _doing(verb: str, message: Sequence[Any]) -> str:
    """Return what a question is about, for people: the operation and its layer."""
    if verb == "compute":
        return show_call(message[3], message[4])
    if verb == "meet":
        return show_call(message[3], message[5])
    return show_call(verb, message[3] if verb == "load_weights" else None)


# -- how ranks come here -------------------------------------------------------------------------------


class Door:
    """Where the ranks of a run connect: each with two lines, one to ask, one to be told what to move."""

    def __init__(self, address: str, token: str) -> None:
        self.token = token
        self.listener = socket.create_server((address, 0), backlog=256)
        self.ends: list[socket.socket] = []

    @property
    def port(self) -> int:
        """The port to connect to."""
        return int(self.listener.getsockname()[1])

    def admit(
        self, ranks: int, timeout: float, deaths: Callable[[], dict[int, str]]
    ) -> list[tuple[Client, dict[str, Any]]]:
        """Return all ranks when they are there, with what each says of itself. Raise PuzzleError if one is missing."""
        lines: dict[tuple[int, str], tuple[Wire, dict[str, Any]]] = {}
        deadline = time.monotonic() + timeout
        self.listener.settimeout(0.1)
        while len(lines) < 2 * ranks:
            for rank, how in deaths().items():
                raise PuzzleError(f"its process {how} before it began", where=Place(rank), line="")
            if time.monotonic() > deadline:
                missing = sorted(set(range(ranks)) - {rank for rank, _ in lines})
                raise PuzzleError(
                    f"ranks {missing} did not come within {timeout:g} seconds", where="starting the processes", line=""
                )
            try:
                end, _ = self.listener.accept()
            except TimeoutError:
                continue
            self.ends.append(end)
            wire = Wire(end)
            try:
                hello = wire.receive(time.monotonic() + 5)
                end.settimeout(None)
            except (EOFError, OSError):
                end.close()
                continue
            if not hmac.compare_digest(str(hello.get("token")), self.token):
                end.close()  # some other program
                continue
            if hello.get("failed"):
                raise PuzzleError(**unpack_error(hello["failed"]))
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines[hello["rank"], hello["line"]] = wire, hello
        return [
            (
                Client(rank, lines[rank, "ask"][0], lines[rank, "lane"][0], lines[rank, "ask"][1]),
                lines[rank, "ask"][1],
            )
            for rank in range(ranks)
        ]

    def close(self) -> None:
        """Admit nobody else, and hang up on everyone."""
        for end in (self.listener, *self.ends):
            end.close()
