"""The kinds of tensor, one row for each. Whatever lists or counts tensors by kind uses this table."""

from typing import NamedTuple

_LAYER, _BATCHES, _SHARDS, _PARTS, _ADAPTER = (
    ("layer", "layers"),
    ("batches", "total_batches"),
    ("shards", "total"),
    ("parts", "of"),
    ("adapter",),
)


class Kind(NamedTuple):
    """One kind of tensor."""

    name: str  # its class in ``lib``
    word: str  # the field's word for it
    store: str  # the dictionary of a Model in which it is kept by habit
    memory: str  # its name among MEMORY_KINDS, and so in the log and in pictures
    size: str  # whose size it has, in whole or in part: a weight, an activation, or what forward leaves behind
    fields: tuple[str, ...]  # the labels that it has, in the order of its constructor
    brief: tuple[str, ...] = ()  # those of them that are said only where they are not those of a whole
    cut: bool = True  # whether it can be cut into pieces

    @property
    def stepped(self) -> bool:
        """Whether it counts the optimizer steps that it has been through."""
        return "step" in self.fields

    @property
    def batched(self) -> bool:
        """Whether it belongs to micro-batches."""
        return "batches" in self.fields


_WEIGHT, _SLICES = (*_LAYER, "step", *_SHARDS, *_ADAPTER), (*_SHARDS, *_PARTS)

ROWS = (
    Kind("Weight", "weight", "weights", "weights", "weight", _WEIGHT, _ADAPTER),
    Kind("OptState", "optimizer state", "opt_states", "opt_states", "weight", _WEIGHT, _ADAPTER),
    Kind(
        *("WeightGrad", "weight gradient", "grad_weights", "weight_grads", "weight"),
        fields=(*_LAYER, *_BATCHES, *_SHARDS, *_ADAPTER),
        brief=_ADAPTER,
    ),
    Kind(
        *("Activation", "activation", "activations", "activations", "activation"),
        fields=(*_LAYER, *_BATCHES, *_SLICES),
        brief=_SLICES,
    ),
    Kind(
        *("ActivationGrad", "activation gradient", "grad_activations", "activation_grads", "activation"),
        fields=(*_LAYER, *_BATCHES, *_SLICES),
        brief=_SLICES,
    ),
    Kind(
        *("Saved", "inner activation", "activations", "activations", "saved"),
        fields=(*_LAYER, *_BATCHES, "keep", *_SHARDS),
        brief=_SHARDS,
        cut=False,
    ),
)
KINDS = {row.name: row for row in ROWS}
STORES = tuple(dict.fromkeys(row.store for row in ROWS))
"""The dictionaries of a Model."""

MEMORY_KINDS = (*dict.fromkeys(row.memory for row in ROWS), "in_flight", "inbox")
"""What memory is used for: the kinds of tensor, what unfinished calls carry or have made, and messages that have
arrived and are not yet received."""
SLOT = {row.name: MEMORY_KINDS.index(row.memory) for row in ROWS}  # where a kind of tensor stands among MEMORY_KINDS
IN_FLIGHT, INBOX = MEMORY_KINDS.index("in_flight"), MEMORY_KINDS.index("inbox")
ACTIVATIONS = tuple(row.name for row in ROWS if row.size == "activation")
"""The kinds of which there are summands and slices."""
SAVED = "Saved"
"""The kind that stays where it was made: it is neither sent nor cut nor brought to a collective."""
INNER = SLOT[SAVED]
"""Where the inner activations of a layer count, those that a backward makes again as well."""
