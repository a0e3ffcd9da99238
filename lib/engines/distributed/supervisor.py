"""Watches over the processes of a run: whether all will do the same, who is at which operation, and who has died.

It computes nothing and decides nothing: what the ranks do is known from the simulated run. Each rank has one line to
here, on which it says, in this order:

======================================  ======================================================================
``rank``, ``pid``, ``backend`` ...      who it is
``("ready", fingerprint)``              that it has run the function for itself, and what log it has found
``("at", records, waits)``              how many records of its log have begun, and whether it waits for others
``("failed", error, broken)``           what went wrong; ``broken``: only its links, often as another has died
``("done", report)``                    that it has come to the end, and what it has measured
======================================  ======================================================================

When all are ready they hear ``("go", now)``; whoever has found another log hears ``("show", now)`` instead, and
answers ``("log", lines)``.
"""

import hmac
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from itertools import zip_longest
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from ...basics.errors import Place, PuzzleError, show_call, show_set
from ...record.events import END, Event
from ...record.figures.score import makespan, peak
from ...running.execution import cause
from ...running.run import Run, attach_run
from .recording import Rehearsal

PATIENCE = 1.0
"""Seconds to wait, when a rank has failed, for others that make the same mistake, of which the lowest is named; and for
the reason, when a rank has only lost its links."""


class Starter(Protocol):
    """Whoever has started the ranks."""

    engine: str  # its name
    patience: float  # seconds within which it knows how a rank has ended that has hung up: 0 if it will not say

    def deaths(self) -> Mapping[int, str]:
        """Return the ranks whose process has ended or was stopped, and how, in the order in which that happened. Raise
        PuzzleError if the run cannot go on."""


class RankProcess:
    """The process of one rank, as far as is known here. ``hello``: what it says of itself; ``reached``: how many
    records of its log have begun; ``waits``: whether it waits for other ranks."""

    def __init__(self, line: Connection, hello: Mapping[str, Any]) -> None:
        self.line, self.hello, self.rank = line, hello, int(hello["rank"])
        self.fingerprint, self.reached, self.waits, self.gone = "", 0, False, False
        self.heard = time.monotonic()
        self.error: PuzzleError | None = None
        self.broken = False
        self.report: dict[str, Any] = {}

    @property
    def runs(self) -> bool:
        """Whether it has not yet said how it ended."""
        return not self.report and self.error is None


class Supervisor:
    """Watches the processes that carry out a simulated run. ``timeout``: seconds for which one may be silent while it
    does not wait for others."""

    def __init__(
        self, rehearsed: Rehearsal, ranks: Sequence[RankProcess], starter: Starter, timeout: float | None
    ) -> None:
        self.done, self.plan, self.alone = rehearsed
        self.ranks, self.starter, self.timeout = ranks, starter, timeout
        self.going = False  # whether real operations have begun

    def serve(self) -> None:
        """Hear the ranks until all have reported. Raise PuzzleError, with the run so far, if one fails."""
        try:
            while not all(rank.report for rank in self.ranks):
                deaths = self.starter.deaths()
                lines = {rank.line: rank for rank in self.ranks if not rank.gone}
                speaking = [lines[line] for line in wait(list(lines), 0.05)]  # type: ignore[index]
                for rank in speaking:
                    self._hear(rank)
                first = next((self.ranks[rank] for rank in deaths if self.ranks[rank].runs), None)
                if first is not None and first not in speaking:  # what a rank has said before it died counts
                    raise self._lost(first, deaths[first.rank])
                self._look_after()
                if not self.going and all(rank.fingerprint for rank in self.ranks):
                    self._compare()
        except PuzzleError as error:
            attach_run(error, self._so_far(), self.done.models)
            raise

    def _hear(self, rank: RankProcess) -> None:
        rank.heard = time.monotonic()
        try:
            while rank.line.poll():
                match rank.line.recv():
                    case "at", reached, waits:
                        rank.reached, rank.waits = reached, waits
                    case "ready", fingerprint:
                        rank.fingerprint, rank.waits = fingerprint, True
                    case "log", lines:
                        raise self._differs(rank, lines)
                    case "failed", error, broken:
                        rank.error, rank.broken = error, broken
                        self._place(error, rank)
                    case "done", report:
                        rank.report = report
        except (EOFError, OSError):
            rank.gone = True

    def _compare(self) -> None:
        """Let all begin, if all have found the log that was found here. Otherwise ask one for its own."""
        others = [rank for rank in self.ranks if rank.fingerprint != self.plan.fingerprint]
        self.going = True
        for rank in others[:1] or self.ranks:
            with suppress(OSError):  # if it is dead, that is found out later
                rank.line.send(("show" if others else "go", time.monotonic()))
                rank.heard, rank.waits = time.monotonic(), False

    # -- what goes wrong -------------------------------------------------------------------------------

    def _look_after(self) -> None:
        """Raise PuzzleError for a rank that has hung up or failed, or of which nothing is heard."""
        now = time.monotonic()
        for rank in self.ranks:
            if rank.runs and rank.gone and now > rank.heard + self.starter.patience:
                raise self._lost(rank, "has ended or hung up")
        failed = [(rank, rank.error) for rank in self.ranks if rank.error is not None]
        wrong = [error for rank, error in failed if not rank.broken]
        busy = any(rank.runs and not rank.waits for rank in self.ranks)
        if (wrong and not busy) or (failed and now > min(rank.heard for rank, _ in failed) + PATIENCE):
            raise cause(wrong or [error for _, error in failed]) from None
        allowed = (self.timeout or 0) + (0 if self.going else self.alone * len(self.ranks))
        for rank in self.ranks:
            if self.timeout and rank.runs and not rank.waits and now > rank.heard + allowed:
                raise self._late(rank)

    def _lost(self, rank: RankProcess, how: str) -> PuzzleError:
        error = PuzzleError(f"its process (pid {rank.hello['pid']}) {how}; {self._came_to(rank)}", line="")
        return self._place(error, rank)

    def _late(self, rank: RankProcess) -> PuzzleError:
        others = [(one, event) for one in self.ranks if one.runs and one.waits and (event := self._event(one))]
        waiting = [f"rank {one.rank} waits in {_shown(event)} [{self._line(one)}]" for one, event in others]
        problem = f"nothing was heard of it for {self.timeout:g} seconds; {self._came_to(rank)}"
        return self._place(PuzzleError(problem, got="; ".join(waiting[:8]), line=""), rank)

    def _differs(self, rank: RankProcess, lines: Sequence[str]) -> PuzzleError:
        """Return the error of a function that does something else in the process of a rank than here."""
        pairs = zip_longest(self.plan.log, lines, fillvalue="nothing more")
        here, there = next((here, there) for here, there in pairs if here != there)
        problem, where = "the function does not do the same in every process", Place(detail=self.done.name)
        expected = f"{here}, as in the process that started the run"
        got = f"{there}, in the process of rank {rank.rank}"
        return PuzzleError(problem, where=where, expected=expected, got=got, line="")

    # -- where a rank is -------------------------------------------------------------------------------

    def _event(self, rank: RankProcess) -> Event | None:
        """Return the record that a rank has begun last."""
        return self.done.models[rank.rank].log[rank.reached - 1] if rank.reached else None

    def _line(self, rank: RankProcess) -> str:
        """Return the learner's line of what a rank has begun last."""
        lines = self.done.models[rank.rank].lines()[: rank.reached]
        return str(next((line for line in reversed(lines) if line is not None), ""))

    def _came_to(self, rank: RankProcess) -> str:
        """Return how far a rank came, as a part of a sentence."""
        event = self._event(rank)
        if event is None:
            return "it had begun no operation"
        if event.kind == END:
            return "it had come to the end of its function"
        return f"its last operation was {_shown(event)}"

    def _place(self, error: PuzzleError, rank: RankProcess) -> PuzzleError:
        """Return the error with the place in the run to which a rank has come."""
        event = self._event(rank)
        error.place = error.place._replace(rank=rank.rank, tick=None if event is None else event.issued)
        error.line = error.line or self._line(rank)
        return error

    def _so_far(self) -> Run:
        """Return the run as far as the ranks have come."""
        shown, reached = copy(self.done), {rank.rank: rank.reached for rank in self.ranks}
        logs = [model.log[: reached.get(model.rank, 0)] for model in self.done.models]
        shown.events = tuple(event for log in logs for event in log)
        shown.time = makespan(shown.events)
        shown.memory = max(map(peak, logs[: self.done.ranks]), default=0)
        shown.host_memory = max(map(peak, logs[self.done.ranks :]), default=0)
        return shown


def _shown(event: Event) -> str:
    return show_call(event.kind, event.layers or event.layer)


# -- how ranks come here -------------------------------------------------------------------------------


def this_machine() -> str:
    """Return a name of this machine since it was started: processes with the same one have the same monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        return socket.gethostname()


class Door:
    """Where the ranks of a run connect. Raise PuzzleError if there cannot be as many connections."""

    def __init__(self, address: str, ranks: int) -> None:
        limit, needed = os.sysconf("SC_OPEN_MAX"), len(os.listdir("/dev/fd")) + 4 * ranks + 16
        if 0 <= limit < needed:
            problem = f"a process may not open as many files and connections as {ranks} ranks take"
            expected, got = f"at least {needed} (ulimit -n {needed})", f"a limit of {limit:,}"
            raise PuzzleError(problem, where="starting the processes", expected=expected, got=got, line="")
        self.ranks = ranks
        self.key = secrets.token_hex(16)
        self.listener = socket.create_server((address, 0), backlog=256)
        self.lines: list[Connection] = []

    def place(self, address: str) -> dict[str, Any]:
        """Return where a rank that knows this machine by such an address has to come, and what it has to show."""
        port = self.listener.getsockname()[1]
        return {"address": address, "port": port, "key": self.key, "boot": this_machine()}

    def admit(self, timeout: float, starter: Starter) -> list[RankProcess]:
        """Return all ranks when they are there. Raise PuzzleError if one is missing."""
        there: dict[int, RankProcess] = {}
        deadline = time.monotonic() + timeout
        self.listener.settimeout(0.1)
        while len(there) < self.ranks:
            for rank, how in starter.deaths().items():
                if rank not in there:  # what one that was there has said before it died is heard later
                    raise PuzzleError(f"its process {how}; it had not begun", where=Place(rank), line="")
            if time.monotonic() > deadline:
                missing = show_set(set(range(self.ranks)) - there.keys())
                problem = f"ranks {missing} did not come within {timeout:g} seconds"
                raise PuzzleError(problem, where="starting the processes", line="")
            with suppress(TimeoutError, EOFError, OSError):
                end, _ = self.listener.accept()
                end.settimeout(None)
                line = Connection(end.detach())
                self.lines.append(line)
                if line.poll(5) and hmac.compare_digest(line.recv_bytes(len(self.key)), self.key.encode()):
                    process = RankProcess(line, line.recv())
                    there[process.rank] = process
                else:
                    line.close()  # some other program
        return [there[rank] for rank in range(self.ranks)]

    def close(self) -> None:
        """Admit nobody else, and hang up on everyone."""
        self.listener.close()
        for line in self.lines:
            line.close()
