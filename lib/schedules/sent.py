"""Rows of a search as text: where some results are sent later than they are made, with all messages in it."""

from collections import defaultdict, deque
from collections.abc import Sequence

from .actions import BACKWARD, BACKWARD_INPUT, FORWARD, RECV_B, RECV_F, SEND_B, SEND_F, Action
from .figures import SENT, Plan, Work

Message = tuple[str, int, int]
"""SEND_F or SEND_B, the stage whose result is sent, and a micro-batch."""


def written(plan: Plan, rank_of: Sequence[int], right_before: bool) -> str:
    """Return rows as a text that ``schedule`` reads. If all is sent at once, messages are left out. Else each result
    is sent where its row says so, or at once, and received as soon as it is sent, or ``right_before`` the work that
    reads it, with what was sent before it.

    >>> print(written([[("F", 0, 0), ("B", 0, 0)], [("F", 1, 0), ("B", 1, 0)]], [0, 1], True))
    0F0,0B0
    1F0,1B0
    """
    if not any(work[0] in SENT for row in plan for work in row):
        return "\n".join(",".join(str(_action(work)) for work in row) for row in plan)
    return _Written(plan, rank_of, right_before).text()


def _action(work: Work) -> Action:
    kind, stage, mb = work
    return Action(stage, kind, mb)


class _Written:
    """Ranks that take turns, and write down what they do."""

    def __init__(self, plan: Plan, rank_of: Sequence[int], right_before: bool) -> None:
        self.rank_of, self.right_before = rank_of, right_before
        self.left = [deque(row) for row in plan]
        self.late = {work for row in plan for work in row if work[0] in SENT}
        self.rows: list[list[Action]] = [[] for _ in plan]
        self.coming = defaultdict[tuple[int, int], deque[Message]](deque)
        self.received = set[Message]()

    def text(self) -> str:
        """Return what they write."""
        moved = True
        while moved:
            moved = False
            for rank, row in enumerate(self.left):
                while row and self._does(rank, row[0]):
                    row.popleft()
                    moved = True
        return "\n".join(",".join(map(str, row)) for row in self.rows)

    def _does(self, rank: int, work: Work) -> bool:
        """Do a piece of work, if what it reads has been sent."""
        if (read := self._read_by(work)) is not None and read not in self.received:
            pair = self.rank_of[read[1]], rank
            if read not in self.coming[pair]:
                return False
            while read not in self.received:
                self._receive(rank, self.coming[pair].popleft())
        self.rows[rank].append(_action(work))
        made = work if work[0] in SENT else self._made_by(work)
        if made is not None and (work[0] in SENT or made not in self.late):
            self._send(rank, made, work[0] not in SENT)
        return True

    def _send(self, rank: int, made: Message, write: bool) -> None:
        if write:
            self.rows[rank].append(_action(made))
        to = self.rank_of[_reader(made)]
        if self.right_before:
            self.coming[rank, to].append(made)
        else:
            self._receive(to, made)

    def _receive(self, rank: int, sent: Message) -> None:
        kind, _, mb = sent
        self.rows[rank].append(Action(_reader(sent), RECV_F if kind == SEND_F else RECV_B, mb))
        self.received.add(sent)

    def _made_by(self, work: Work) -> Message | None:
        """Return the message with the result of a piece of work, if it goes to another rank."""
        kind, stage, mb = work
        if kind not in (FORWARD, BACKWARD, BACKWARD_INPUT):
            return None
        made = (SEND_F if kind == FORWARD else SEND_B), stage, mb
        there = _reader(made)
        return made if 0 <= there < len(self.rank_of) and self.rank_of[there] != self.rank_of[stage] else None

    def _read_by(self, work: Work) -> Message | None:
        """Return the message that a piece of work reads, if it is made on another rank."""
        kind, stage, mb = work
        source = stage - 1 if kind == FORWARD else stage + 1
        if kind not in (FORWARD, BACKWARD, BACKWARD_INPUT) or not 0 <= source < len(self.rank_of):
            return None
        return self._made_by((kind, source, mb))


def _reader(sent: Message) -> int:
    """The stage that reads what is sent."""
    return sent[1] + (1 if sent[0] == SEND_F else -1)
