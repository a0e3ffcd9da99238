"""The table of operations. A new one is a row here, or is added from outside with ``add``."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn

from ..basics.errors import PuzzleError
from .attention import ROWS as STEPS
from .collectives import ROWS as COLLECTIVES
from .experts import ALLTOALL
from .experts import ROWS as OF_EXPERTS
from .labels import AXES, EXCHANGES, HOSTS, LISTS, SLICES
from .operations import Collective, Computation, Message, Operation, TracedCall, TracedWork
from .training import ROWS as COMPUTATIONS

SEND = Message(kind="pass_to", code=">", word="send", elsewhere=("send", "isend"), price="send", on_host=True)
RECEIVE = Message(kind="receive", code="<", word="receive", elsewhere=("recv", "irecv"), on_host=True)

OPERATIONS: dict[str, Operation] = {
    row.kind: row for row in (*COMPUTATIONS, *STEPS, *OF_EXPERTS, *COLLECTIVES, ALLTOALL, SEND, RECEIVE)
}
"""Every operation by its verb, in the order in which they are listed for people."""


TRACED: dict[str, Operation] = {
    row.kind: row
    for row in (
        TracedWork(kind="compute", code="", word="other work"),
        TracedWork(kind="unrecorded", code="", word="not recorded"),
        TracedCall(kind="broadcast", code="", word="broadcast"),
        TracedCall(kind="reduce", code="", word="reduce"),
        TracedCall(kind="gather", code="", word="gather"),
        TracedCall(kind="scatter", code="", word="scatter"),
        TracedCall(kind="barrier", code="", word="barrier"),
        TracedCall(kind="exchange", code="", word="sends and receives"),
        TracedCall(kind="communicate", code="", word="other communication"),
    )
}
"""What only profiles of real runs have (see ``lib.real.traces``): no learner writes it, and it has no price."""


def row_of(kind: str) -> Operation | None:
    """Return the row of an operation, or of what only profiles have; None for a mark in the log."""
    return OPERATIONS.get(kind) or TRACED.get(kind)


class Verbs:
    """The verbs of operations that were added to the table, as methods: every Model has them."""


def add(*rows: Operation) -> None:
    """Add operations to the table, and their verbs to Model. Raise PuzzleError for a verb or a code that is taken."""
    for row in rows:
        if row.kind in OPERATIONS or row.code in {known.code for known in OPERATIONS.values()}:
            raise PuzzleError(f"there is an operation {row.kind}, or a code {row.code}, already", line="")
        OPERATIONS[row.kind] = row
        if row.verb is not None:
            setattr(Verbs, row.kind, row.verb)


def operation(kind: object) -> Operation:
    """Return the row of an operation. Raise PuzzleError if there is none."""
    row = OPERATIONS.get(kind) if isinstance(kind, str) else None
    if row is None:
        raise PuzzleError(f"there is no operation {kind!r}", expected=", ".join(OPERATIONS), line="")
    return row


def meant(name: str, names: Iterable[str] = ()) -> str:
    """Return which verb, or which of these names, somebody means by a name: one of the field, of torch, or one
    misspelt; or nothing.

    >>> meant("reduce_scatter"), meant("recv"), meant("nothing"), meant("weight", ["weights"])
    ('scatterreduce', 'receive', '', 'weights')
    """
    known = {_letters(one): one for one in names if one[0] != "_"}
    known |= {_letters(one): row.kind for row in OPERATIONS.values() for one in (row.word, *row.elsewhere, row.kind)}
    near = get_close_matches(_letters(name), known, n=1, cutoff=0.8)
    return known[near[0]] if near else ""


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def computation(kind: str) -> Computation:
    """Return the row of an operation of the compute stream. Raise PuzzleError if there is none."""
    row = OPERATIONS.get(kind)
    return row if isinstance(row, Computation) else _refuse(kind, "operation of the compute stream", "compute")


def collective(kind: str) -> Collective:
    """Return the row of a collective. Raise PuzzleError if there is none."""
    row = OPERATIONS.get(kind)
    return row if isinstance(row, Collective) else _refuse(kind, "collective", "collective")


def _refuse(kind: str, what: str, stream: str) -> NoReturn:
    operation(kind)
    raise PuzzleError(f"{kind} is no {what}", expected=", ".join(in_stream(stream)), line="")


def sums(kind: str) -> bool:
    """Return whether an operation adds up what several ranks bring."""
    row = OPERATIONS.get(kind)
    return isinstance(row, Collective) and row.sums


def in_stream(*streams: str) -> list[str]:
    """Return the verbs of the operations of these streams, in order."""
    return [row.kind for row in OPERATIONS.values() if row.stream in streams]


def grantable() -> tuple[str, ...]:
    """Return the features that a puzzle may enable: operations, their optional operands and options, and others."""
    found: list[str] = []
    for row in OPERATIONS.values():
        if isinstance(row, Computation):
            found += row.grants(row.may_take, {name: values[0] for name, values in row.options.items()})
        else:
            found += row.words
    return tuple(dict.fromkeys([*found, SLICES, LISTS, HOSTS, AXES, EXCHANGES]))


def stream_of(kind: str) -> str:
    """Return the stream of an operation, or an empty text for a mark in the log."""
    row = row_of(kind)
    return row.stream if row else ""


def makes_weight_grads(kind: str) -> bool:
    """Return whether an operation makes gradients of weights."""
    row = OPERATIONS.get(kind)
    return isinstance(row, Computation) and row.weight_grads


def training() -> list[str]:
    """Return the verbs of the operations that carry micro-batches through a layer."""
    return [row.kind for row in OPERATIONS.values() if row.trains]


def work_on_layers() -> set[str]:
    """Return the verbs of the operations that need a layer, or bring its parts together."""
    return {*training(), *in_stream("collective")}
