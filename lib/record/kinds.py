"""The kinds of tensor, one row for each. Whatever lists or counts tensors by kind uses this table."""

from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of tensor."""

    name: str  # its class in ``lib``
    word: str  # the field's word for it
    store: str  # the dictionary of a Model in which it is kept by habit
    memory: str  # its name among MEMORY_KINDS, and so in the log and in pictures
    sharded: bool = False  # whether it can be cut into shards
    stepped: bool = False  # whether it counts the optimizer steps that it has been through
    batched: bool = False  # whether it belongs to micro-batches

    @property
    def fields(self) -> tuple[str, ...]:
        """The labels that it has, in the order of its constructor."""
        steps = ("step",) if self.stepped else ()
        batches = ("batches", "total_batches") if self.batched else ()
        shards = ("shards", "total") if self.sharded else ()
        return ("layer", "layers", *steps, *batches, *shards)


ROWS = (
    Kind("Weight", "weight", "weights", "weights", sharded=True, stepped=True),
    Kind("OptState", "optimizer state", "opt_states", "opt_states", sharded=True, stepped=True),
    Kind("WeightGrad", "weight gradient", "grad_weights", "weight_grads", sharded=True, batched=True),
    Kind("Activation", "activation", "activations", "activations", batched=True),
    Kind("ActivationGrad", "activation gradient", "grad_activations", "activation_grads", batched=True),
)
KINDS = {row.name: row for row in ROWS}

MEMORY_KINDS = (*(row.memory for row in ROWS), "in_flight", "inbox")
"""What memory is used for: the kinds of tensor, what unfinished calls carry or have made, and messages that have
arrived and are not yet received."""
SLOT = {row.name: place for place, row in enumerate(ROWS)}  # where a kind of tensor stands among MEMORY_KINDS
IN_FLIGHT, INBOX = MEMORY_KINDS.index("in_flight"), MEMORY_KINDS.index("inbox")
