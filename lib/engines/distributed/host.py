"""Keeps the simulator of a run whose ranks are processes.

Every rank asks here before it computes and before it sends, as a worker asks the grader, and the same clerk answers
from the same simulator. So rules, clock, memory, log and messages are those of the simulated machine. Numbers never
come here. When a collective is complete, or a message has found its receiver, the ranks are told to move the real
tensors among themselves, all in the same order.
"""

import hmac
import os
import secrets
import selectors
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

from ...basics.errors import Place, PuzzleError, show_call, show_set
from ...basics.units import Elements
from ...learner.dist import Dist
from ...learner.model import Model
from ...machine.check import TRAINED
from ...machine.cost import Cost, Shape
from ...machine.in_flight import InFlight
from ...machine.interface import AnySimulator
from ...machine.rank_state import RankState
from ...machine.simulator import LocalSimulator
from ...record.events import LOADS
from ...record.table import SEND
from ...remote.clerk import Clerk
from ...remote.wire import ProtocolError, Wire, pack, unpack_error
from ...running.execution import cause
from ...running.workload import Workload

RECORDED = (*LOADS, "get_activation", "compute", "meet", "meet_list", "pass_to", "receive", "finish")
"""Questions that leave a record in the log."""
COLLECTING = 60.0  # seconds within which the final weights have to be compared
PATIENCE = 1.0  # seconds to wait for the reason, when a rank is only broken
GRACE = 1.0  # seconds for the other ranks to make the same mistake, when one has made it: the lowest is named


class Supervisor(Protocol):
    """Whoever has started the ranks."""

    engine: str
    """The name of the engine."""
    patience: float
    """Seconds within which it knows how a rank has ended that has hung up: 0 if it will not say."""

    def deaths(self) -> Mapping[int, str]:
        """Return the ranks whose process has ended or was stopped, and how, in the order in which that happened. Raise
        PuzzleError if the run cannot go on."""


class Client:
    """The process of one rank, as far as the host knows it. ``hello``: what it says of itself."""

    def __init__(self, rank: int, ask: Wire, lane: Wire, hello: Mapping[str, Any]) -> None:
        self.rank, self.ask, self.lane, self.hello = rank, ask, lane, hello
        self.waits = self.timer = self.done = False
        self.woken: list[int] = []
        self.last = self.line = self.waiting = ""  # its last operation, the line of that, and a line that waits
        self.heard, self.gone = time.monotonic(), False
        self.error: PuzzleError | None = None
        self.broken = False  # whether its error is only that another rank is gone
        self.report: dict[str, Any] = {}
        self.stored: list[Elements] = []
        self.now: Elements = 0

    @property
    def lacks(self) -> bool:
        """Whether it has not yet said how it ended."""
        return not self.done and self.error is None

    def came_to(self) -> str:
        """Return how far it came, as a part of a sentence."""
        if self.last == "finish":
            return "it had come to the end of its function"
        return f"its last operation was {self.last}" if self.last else "it had begun no operation"


def _tell(wire: Wire, message: list[Any]) -> None:
    """Answer what a rank has asked, or tell its lane what to do. If it is dead, ``Host`` finds out later."""
    with suppress(OSError):
        wire.send(message)


class Host:
    """Answers the ranks of one run (and is the ``Watcher`` of its network)."""

    def __init__(
        self,
        name: str,
        shape: Shape,
        work: Workload,
        timeout: float | None,
        ranks: Sequence[Client],
        supervisor: Supervisor,
    ) -> None:
        self.name, self.timeout, self.supervisor = name, timeout, supervisor
        self.ranks = {client.rank: client for client in ranks}
        self.simulator = LocalSimulator(shape, graded=True, watcher=self)
        dist = Dist.of(shape, cast(AnySimulator, self.simulator))
        self.models = [Model(rank, dist, work.layers, work.batches) for rank in range(shape.everyone)]
        handles = [cast(RankState, model._handle) for model in self.models]
        self.clerk = Clerk(self.simulator, work.layers, work.batches, handles, work.train)
        self.numbers: dict[object, int] = {}  # the clerk's numbers of calls
        self.moves: list[tuple[str, Sequence[InFlight], Sequence[Any], Sequence[Any]]] = []
        """Tensors that can now be moved: a verb, the calls of a group in its order or a send and its receive, and the
        labels of what they bring and get, or lists of labels."""
        weight, activation, adapter = ranks[0].hello["sizes"]
        self.real = Cost(weight_elements=weight, activation_elements=activation, adapter_elements=adapter)
        """Sizes of the real tensors, by which what is stored is counted."""
        self.numbers_of_a_layer = weight if work.train == TRAINED[0] else adapter
        self.out = sys.stdout  # which a rank in the same process will replace
        self.selector = selectors.DefaultSelector()

    def met(self, kind: str, calls: Sequence[InFlight], inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.moves.append((kind, calls, inputs, outputs))

    def received(self, sent: InFlight, call: InFlight) -> None:
        if call.labels is not None:
            self.moves.append((SEND.kind, [sent, call], [call.labels], [call.labels]))

    # -- the run -----------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer until all ranks have ended. Raise PuzzleError for what is wrong with the function or a rank."""
        with self.selector:
            for state in self.ranks.values():
                self.selector.register(state.ask.end, selectors.EVENT_READ, state)
                _tell(state.lane, ["start", time.monotonic()])
            while self._left():
                deaths = self.supervisor.deaths()
                speaking = [key.data for key, _ in self.selector.select(0.05)]
                for state in speaking:
                    self._hear(state)
                first = next((self.ranks[rank] for rank in deaths if self.ranks[rank].lacks), None)
                if first is not None and first not in speaking:  # what a rank has said before it died counts
                    raise _lost(first, deaths[first.rank])
                self._look_after()
        if self.clerk.errors:
            raise self.clerk.errors[0]

    def collect(self) -> list[Any]:
        """Return the rows of the comparison with the reference, which rank 0 makes of all final weights. By then every
        rank has moved all that it had to: when that was becomes part of its report."""
        finals = [[state.rank, *final] for state in self.ranks.values() for final in state.report["finals"]]
        for state in self.ranks.values():
            _tell(state.lane, ["collect", finals])
        rows: list[Any] = []
        try:
            for state in self.ranks.values():
                compared, times = state.lane.receive(time.monotonic() + COLLECTING, longest=None)
                rows += compared
                moved = dict(map(tuple, times))
                state.report["took"] = [moved.get(at) if isinstance(at, int) else at for at in state.report["took"]]
        except (EOFError, OSError):
            ends = self.supervisor.deaths() or {state.rank: "has ended or hung up"}
            dead = "; ".join(f"rank {rank} {how}" for rank, how in ends.items())
            raise PuzzleError("the final weights cannot be brought together", got=dead, line="") from None
        for state in self.ranks.values():
            _tell(state.lane, ["end"])
        return rows

    def _left(self) -> list[Client]:
        return [state for state in self.ranks.values() if not state.done]

    def _hear(self, state: Client) -> None:
        state.heard, more = time.monotonic(), True
        while more:
            try:
                said = state.ask.receive(longest=None)
            except (EOFError, OSError):
                self.selector.unregister(state.ask.end)
                state.gone = True
                return
            self._answer(state, *said)
            more = b"\n" in state.ask.buffer

    def _answer(self, state: Client, message: list[Any], line: str) -> None:
        verb = message[0]
        if verb == "print":
            if self.out is not None:
                self.out.write(message[1])
                self.out.flush()
            return
        if verb == "failed":
            state.error, state.broken = PuzzleError(**unpack_error(message[1])), message[2]
            self.selector.unregister(state.ask.end)
            return
        if verb == "done":
            state.done, state.report = True, message[1]
            self.selector.unregister(state.ask.end)
        else:
            state.line = line or state.line
            if verb == "decide_next":
                state.waits, state.timer, state.waiting = True, message[3], message[4]
            else:
                self._ask_clerk(state, verb, message)
        self._go_on()

    def _ask_clerk(self, state: Client, verb: str, message: list[Any]) -> None:
        """Reply with the clerk's answer, and count what is stored of the real tensors, by their labels."""
        if verb in RECORDED:
            state.stored.append(state.now)
            state.last = _doing(verb, message)
        failed, result, _ = self.clerk.answer(message)
        if verb in ("store", "drop"):
            size = self.real.elements(self.clerk.tensors[message[3]].labels)
            state.now += size if verb == "store" else -size
        self._wake_and_move()
        mine, state.woken = state.woken, []
        _tell(state.ask, [failed, result, [[number, None] for number in mine]])

    def _wake_and_move(self) -> None:
        """Note who can go on, and tell the ranks what to move: all in the same order, so no two wait for each other."""
        for number in self.clerk.woken:
            self.ranks[self.clerk.call(number).rank.rank].woken.append(number)
        for number in range(len(self.numbers), len(self.clerk.calls)):
            self.numbers[self.clerk.calls[number]] = number
        moves, self.moves = self.moves, []
        for kind, calls, inputs, outputs in moves:
            ranks = [call.rank.rank for call in calls]
            packed = pack([inputs, outputs])
            for call in calls:
                _tell(self.ranks[call.rank.rank].lane, [kind, self.numbers[call], ranks, *packed])

    def _go_on(self) -> None:
        """Let the ranks go on that can. When all wait, decide what ends first. Raise Deadlock when nothing can."""
        while True:
            for state in self.ranks.values():
                if state.waits and state.woken:
                    woken, state.woken, state.waits = state.woken, [], False
                    _tell(state.ask, [0, True, [[number, None] for number in woken]])
            left = self._left()
            if not left or not all(state.waits for state in left):
                return
            self.clerk.woken = []
            if not self.simulator.decide_next():
                break
            self._wake_and_move()
        timed = next((state for state in left if state.timer), None)
        if timed is None:
            lines = {state.rank: state.waiting for state in left}
            raise self.simulator.deadlock(lines, frozenset(self.clerk.finished))
        timed.waits = False
        _tell(timed.ask, [0, False, []])

    # -- what goes wrong -------------------------------------------------------------------------------

    def _look_after(self) -> None:
        """Raise PuzzleError for a rank that has hung up or failed, or of which nothing is heard."""
        silent = {state: time.monotonic() - state.heard for state in self._left()}
        for state, seconds in silent.items():
            if state.gone and seconds > self.supervisor.patience:
                raise _lost(state, "has ended or hung up")
        # Others may make the same mistake at once; and where a rank is only broken, the reason may be found soon.
        wrong = {state: seconds for state, seconds in silent.items() if state.error is not None and not state.broken}
        busy = any(state.error is None and not state.waits for state in silent)
        if wrong and (max(wrong.values()) > GRACE or not busy):
            raise cause([state.error for state in wrong if state.error is not None]) from None
        for state, seconds in silent.items():
            if state.error is not None and seconds > PATIENCE:
                raise state.error
        for state, seconds in silent.items():
            if self.timeout and seconds > self.timeout and not state.waits and state.error is None:
                raise self._late(state)

    def _late(self, state: Client) -> PuzzleError:
        waiting = [
            f"rank {other.rank} waits in {other.last}" + (f" [{other.waiting}]" if other.waiting else "")
            for other in self._left()
            if other.waits and other.last
        ]
        return PuzzleError(
            f"nothing was heard of it for {self.timeout:g} seconds; {state.came_to()}",
            where=Place(state.rank),
            got="; ".join(waiting[:8]),
            fix="look for a loop that never ends; slow machines and large layers need a longer timeout",
            line=state.line,
        )


def _lost(state: Client, how: str) -> PuzzleError:
    problem = f"its process (pid {state.hello['pid']}) {how}; {state.came_to()}"
    return PuzzleError(problem, where=Place(state.rank), line=state.line)


def _doing(verb: str, message: Sequence[Any]) -> str:
    """Return what a question is about, for people: the operation and its layer."""
    if verb in ("compute", "meet", "meet_list"):
        return show_call(message[3], message[4 if verb == "compute" else 5])
    return show_call(verb, message[3] if verb in LOADS else None)


# -- how ranks come here -------------------------------------------------------------------------------


def this_machine() -> str:
    """Return a name of this machine since it was started: processes with the same one have the same monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        return socket.gethostname()


def open_standard_streams() -> None:
    """Open on nothing whatever is closed of the three standard streams, as under cron. Otherwise a socket would take
    the number of one, and would be taken for it."""
    while (opened := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(opened)


def _check_descriptors(ranks: int) -> None:
    """Raise PuzzleError unless the simulator and each rank, which has a line to each other one, may open all that they
    take."""
    limit, needed = os.sysconf("SC_OPEN_MAX"), len(os.listdir("/dev/fd")) + 4 * ranks + 16
    if 0 <= limit < needed:
        raise PuzzleError(
            f"a process may not open as many files and connections as {ranks} ranks take",
            where="starting the processes",
            expected=f"at least {needed:,}",
            got=f"a limit of {limit:,}",
            fix=f"ulimit -n {needed}, in the shell, before Python is started; or take fewer ranks",
            line="",
        )


class Door:
    """Where the ranks of a run connect: each with two lines, one to ask, one to be told what to move. Raise PuzzleError
    if there cannot be as many lines."""

    def __init__(self, address: str, ranks: int) -> None:
        _check_descriptors(ranks)
        self.ranks, self.opened = ranks, time.monotonic()
        self.token = secrets.token_hex(16)
        self.listener = socket.create_server((address, 0), backlog=256)
        self.ends: list[socket.socket] = []

    def place(self, address: str) -> dict[str, Any]:
        """Return where a rank that knows this machine by such an address has to come, and what it has to show."""
        port = self.listener.getsockname()[1]
        return {"address": address, "port": port, "token": self.token, "boot": this_machine()}

    def admit(self, timeout: float, supervisor: Supervisor) -> list[Client]:
        """Return all ranks when they are there. Raise PuzzleError if one is missing."""
        lines: dict[tuple[int, str], Wire] = {}
        hellos: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + timeout
        self.listener.settimeout(0.1)
        while len(lines) < 2 * self.ranks:
            for rank, how in supervisor.deaths().items():
                raise PuzzleError(f"its process {how}; it had not begun", where=Place(rank), line="")
            if time.monotonic() > deadline:
                missing = sorted(set(range(self.ranks)) - {rank for rank, _ in lines})
                problem = f"ranks {show_set(missing)} did not come within {timeout:g} seconds"
                fix = "see whether this machine is short of memory or very busy, and run it again"
                raise PuzzleError(problem, where="starting the processes", fix=fix, line="")
            try:
                end, _ = self.listener.accept()
            except TimeoutError:
                continue
            self.ends.append(end)
            wire = Wire(end)
            try:
                hello = wire.receive(time.monotonic() + 5)
                token = hello.get("token") if isinstance(hello, dict) else None
                known = hmac.compare_digest(str(token).encode(), self.token.encode())
            except (EOFError, OSError, ProtocolError):
                known = False
            if not known:
                end.close()  # some other program
                continue
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines[hello["rank"], hello["line"]], hellos[hello["rank"]] = wire, hello
        return [Client(rank, lines[rank, "ask"], lines[rank, "lane"], hellos[rank]) for rank in range(self.ranks)]

    def close(self) -> None:
        """Admit nobody else, and hang up on everyone."""
        for end in (self.listener, *self.ends):
            end.close()
