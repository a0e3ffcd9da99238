"""The event log: one frozen record for each thing that a rank did, and when.

The log is the only truth about a run. Score, check, text grid and pictures are pure functions
of it; nothing else is measured anywhere.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ..basics.units import Elements
from .causal import Slices
from .table import SEND, stream_of

END = "end"  # the rank's function has returned
LOADS = ("load_weights", "load_adapter")
MARKS = (*LOADS, "get_activation", END)
"""Records of moments that are no operations: they take no time, and memory is sampled there."""


class Event(NamedTuple):
    """One operation of one rank. Times in ticks, sizes in elements.

    ``op`` is shared by the ranks of a collective and by a send and its receive; it is None for compute and marks.
    ``group`` names the ranks of a collective in group order, or ``(sender, receiver)``.
    """

    rank: int
    kind: str  # the verb that the learner wrote: ``forward``, ``allgather``, ``pass_to`` ...
    layer: int | None
    batches: frozenset[int]  # micro-batches that the operation works on or carries
    issued: float  # the rank's clock when the call was made: memory is sampled then
    start: float
    end: float
    held: tuple[Elements, ...]  # elements by MEMORY_KINDS (see ``kinds``) in the sample taken at ``issued``
    op: tuple[object, ...] | None = None
    group: tuple[int, ...] = ()
    tensor: str | None = None  # what a communication carries: ``Weight``, ``WeightGrad`` ..., or None for a plain value
    elements: Elements = 0  # size of what is carried
    words: tuple[str, ...] = ()  # what it uses that a puzzle has to grant
    layers: tuple[int, ...] = ()
    """All layers of a collective that got a list, in its order: ``layer`` is the first of them, ``batches`` and
    ``elements`` are those of all its tensors together. Empty for everything else."""
    awaited: tuple[int, ...] = ()
    """The communications whose results its rank has fetched since the record before, by their places in the rank's log:
    they have moved its clock to the end of the last of them, unless it was later already."""
    slices: tuple[Slices, ...] = ()
    """Of a step of a layer (``Computation.share``): which slices of the sequence each operand is that has any, in their
    order. Of attention these are the queries and the keys, and then which heads, where these are not all. Empty for
    everything else."""
    ready: float | None = None
    """Where sends wait for their receives: when a send was first on its link, and when a receive was posted. A send
    starts when both are. None for everything else."""
    slot: int | None = None
    """Of a part of an exchange, and of a receive that stands in its rank's queue of calls: the place in the rank's log
    of the first record that shares its place in that queue. None for everything else."""

    @property
    def stream(self) -> str:
        """``compute``, ``collective`` or ``message``, or an empty text for a mark."""
        return stream_of(self.kind)

    @property
    def memory(self) -> Elements:
        """Elements in memory when the operation was issued."""
        return sum(self.held)

    @property
    def length(self) -> float:
        """Ticks from start to end."""
        return self.end - self.start

    @property
    def waited(self) -> float:
        """Ticks for which a send has waited for its receive."""
        return self.start - self.ready if self.kind == SEND.kind and self.ready is not None else 0.0


# Skips the keyword-friendly constructor: events are made by the hundred thousand.
make_event: Callable[[tuple[Any, ...]], Event] = partial(tuple.__new__, Event)
