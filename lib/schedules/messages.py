"""The messages of a schedule: put into rows that have none, checked in rows that have them; and who waits for whom."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence, Set

from ..basics.errors import PuzzleError
from ..machine.cost import LINKS
from .actions import BACKWARD, FORWARD, RECEIVES, RECV_B, SEND_F, SENDS, Action
from .order import Message, Order, parts_of, wrong
from .rows import Cell, Rows

Pair = tuple[int, int]
"""The rank that sends, and the rank that receives."""
IN_ORDER = "between two ranks messages come in the order in which they are sent"


def complete(rows: Rows, order: Order, at_once: bool) -> Rows:
    """Return rows with all messages in them. If a text has receives, it has to have all: then they are checked, and
    PuzzleError is raised for one that is missing, that nobody needs, or that stands in the wrong order.

    If it has none, each result is sent at once, or where the text says so. A receive stands where its message is sent,
    as PyTorch puts it (``_add_send_recv``), so that it is on its way while the rank works. A rank that waits
    ``at_once`` would lose that time: there a receive stands right before the work that reads what comes.
    """
    given = {part for _, part in parts_of(rows) if part.kind in (*SENDS, *RECEIVES)}
    if not any(part.kind in RECEIVES for part in given):
        rows = (_received_at_use if at_once else _received_when_sent)(rows, order, given)
    if given:
        _check(rows, order)
    return rows


def _received_when_sent(rows: Rows, order: Order, late: Set[Action]) -> Rows:
    """Let the ranks take turns, an action each. What one sends, the other receives then, so no rows can be mixed up."""
    left = [deque(row) for row in rows]
    complete: list[list[Cell]] = [[] for _ in rows]
    received = set[Action]()
    before = -1
    while before != (before := sum(map(len, left))):
        for rank, row in enumerate(left):
            if not row or any(read.received not in received for read in _read_by(row[0], order)):
                continue
            cell = row.popleft()
            complete[rank].append(cell)
            for made in _sent_with(cell, order, late):
                if made.sent != cell.action:
                    complete[rank].append(cell._replace(action=made.sent))
                complete[made.receiver].append(Cell(made.received, made.receiver, cell.column))
                received.add(made.received)
    _refuse_endless([(row[0], _read_by(row[0], order), "") for row in left if row])
    return tuple(map(tuple, complete))


def _received_at_use(rows: Rows, order: Order, late: Set[Action]) -> Rows:
    """Receive each message right before it is read, and with it those that were sent here before it."""
    coming = defaultdict[Pair, deque[Message]](deque)
    for row in rows:
        for made in (made for cell in row for made in _sent_with(cell, order, late)):
            coming[made.sender, made.receiver].append(made)

    def with_messages(row: Sequence[Cell]) -> Iterator[Cell]:
        received = set[Action]()
        for cell in row:
            for read in _read_by(cell, order):
                while read.received not in received:
                    first = coming[read.sender, read.receiver].popleft().received
                    received.add(first)
                    yield cell._replace(action=first)
            yield cell
            for made in _sent_with(cell, order, late):
                if made.sent != cell.action:
                    yield cell._replace(action=made.sent)

    return tuple(tuple(with_messages(row)) for row in rows)


def _read_by(cell: Cell, order: Order) -> list[Message]:
    return [read for part in cell.action.parts() if (read := order.message_before(part)) is not None]


def _made_by(cell: Cell, order: Order) -> list[Message]:
    return [made for part in cell.action.parts() if (made := order.message_after(part)) is not None]


def _sent_with(cell: Cell, order: Order, late: Set[Action]) -> list[Message]:
    """Return the messages that go out with a cell: that of a send, or those of its results that are not sent later."""
    if cell.action.kind in SENDS:
        made = order.message_after(cell.action._replace(kind=FORWARD if cell.action.kind == SEND_F else BACKWARD))
        return [made] if made is not None else []
    return [made for made in _made_by(cell, order) if made.sent not in late]


def _check(rows: Rows, order: Order) -> None:
    messages = [made for row in rows for cell in row for made in _made_by(cell, order)]
    by_action = {action: made for made in messages for action in (made.sent, made.received)}
    for row in rows:
        _check_places(row, order, by_action)
    there = {cell.action for row in rows for cell in row if cell.action.kind in (*SENDS, *RECEIVES)}
    for made in messages:
        for action, rank in ((made.sent, made.sender), (made.received, made.receiver)):
            if action not in there:
                problem = f"{action} is missing: rank {made.sender} has something for rank {made.receiver}"
                after = next((cell for cell in rows[rank] if made in _made_by(cell, order)), None)
                expected = f"{action}" if after is None else f"{after.action}, {action}: after column {after.column}"
                raise PuzzleError(problem, where=f"the row of rank {rank}", expected=expected, line="")
    for pair in {(made.sender, made.receiver) for made in messages}:
        sent, received = (
            [cell for cell in rows[rank] if cell.action in by_action and cell.action.kind in kinds]
            for rank, kinds in zip(pair, (SENDS, RECEIVES), strict=True)
        )
        of_pair = [[cell for cell in cells if _pair(by_action[cell.action]) == pair] for cells in (sent, received)]
        for out, come in zip(*of_pair, strict=True):
            if (wanted := by_action[out.action].received) != come.action:
                problem = f"what comes here is another message, {out.action} of rank {out.rank}, column {out.column}"
                raise wrong(come, problem, f"{wanted}: {IN_ORDER}")


def _pair(made: Message) -> Pair:
    return made.sender, made.receiver


def _check_places(row: Sequence[Cell], order: Order, by_action: dict[Action, Message]) -> None:
    """Raise PuzzleError for a message that does not exist, that stands twice, or too early or too late in its row."""
    done = set[Action]()
    for cell in row:
        for read in _read_by(cell, order):
            if read.received not in done:
                raise wrong(cell, f"{read.received} does not come before it", f"{read.received}, {cell.action}")
        if cell.action.kind in (*SENDS, *RECEIVES):
            if cell.action in done:
                raise wrong(cell, "this stands in the row twice", "leave one of them out")
            if cell.action not in by_action:
                raise wrong(cell, "there is no such message", _why_none(cell.action, order))
            if cell.action.kind in SENDS and cell.action not in {made.sent for made in _after(done, order)}:
                raise wrong(cell, "what it sends is not computed before it", f"compute it, then {cell.action}")
        done.update(cell.action.parts())


def _after(done: Iterable[Action], order: Order) -> list[Message]:
    return [made for action in done if (made := order.message_after(action)) is not None]


def _why_none(action: Action, order: Order) -> str:
    there = action.stage + (1 if action.kind in (SEND_F, RECV_B) else -1)
    if there not in order.rank_of:
        return f"leave it out: there is no stage {there}"
    if order.rank_of[there] == order.rank_of[action.stage]:
        return f"leave it out: stages {action.stage} and {there} are both on rank {order.rank_of[there]}"
    return f"leave it out: stage {action.stage} does nothing with micro-batch {action.micro_batch}"


def check_ends(rows: Rows, order: Order, at_once: bool, links: str) -> None:
    """Raise PuzzleError, with what each rank waits for, if the rows come to no end on these links (see ``run``).
    ``at_once``: a rank waits at a receive until the message has come, and not only at the work that reads it."""
    made = {one.sent: one for row in rows for cell in row for one in _made_by(cell, order)}
    senders = {one.received: one for one in made.values()}

    def steps(row: Sequence[Cell]) -> Iterator[tuple[Cell, Action | None, list[Message]]]:
        """Yield what a rank calls, each with the messages that it waits for before."""
        for cell in row:
            yield cell, cell.action, _read_by(cell, order)
            if at_once and cell.action in senders:
                yield cell, None, [senders[cell.action]]

    left, queues = [deque(steps(row)) for row in rows], [deque[Action]() for _ in rows]
    posted, gone, before = set[Action](), set[Action](), None
    while before != (before := len(posted) + len(gone) - sum(map(len, left))):
        for row, queue in zip(left, queues, strict=True):
            while row and all(one.sent in gone for one in row[0][2]):
                action = row.popleft()[1]
                if action in made or (action in senders and links == LINKS[-1]):
                    queue.append(action)
                elif action is not None:
                    posted.add(action)
            while queue:
                posted.add(first := queue[0])
                if first in made and (links == LINKS[0] or made[first].received in posted):
                    gone.add(first)
                if (senders[first].sent if first in senders else first) not in gone:
                    break
                queue.popleft()
    why = {one.sent: f", behind {one.sent}: rank {one.receiver} has not posted {one.received}" for one in made.values()}
    why |= {
        one.received: f", behind {one.received}: rank {one.sender} has not sent {one.sent}" for one in made.values()
    }
    _refuse_endless(
        (row[0][0], [one for one in row[0][2] if one.sent not in gone], "".join(why[first] for first in [*queue][:1]))
        for row, queue in zip(left, queues, strict=True)
        if row
    )


def _refuse_endless(stuck: Iterable[tuple[Cell, Sequence[Message], str]]) -> None:
    waits = [
        f"rank {cell.rank} waits in column {cell.column}, {cell.action}, for {first.sent} of rank {first.sender}{why}"
        for cell, (first, *_), why in stuck
    ]
    if waits:
        raise PuzzleError(f"these rows come to no end: {'; '.join(waits)}", where="schedule", line="")
