"""The kinds of tensor, one row for each. Whatever lists, sizes, cuts or sums tensors by kind uses this table."""

from typing import NamedTuple

_LAYER, _BATCHES, _SHARDS = ("layer", "layers"), ("batches", "total_batches"), ("shards", "total")
_PARTS, _ADAPTER, _HEADS = ("parts", "of"), ("adapter",), ("heads", "of_heads")
KEYS, QUERIES = "keys", "queries"
"""The two sides of attention, by which a kind says of which side its ``parts`` are."""
SHARD, SLICE, PART = "shard", "slice", "part"
"""The names of a piece of a tensor: of a weight, of a sequence, and of what is dealt to experts."""


class Kind(NamedTuple):
    """One kind of tensor. A new one is a row below and a class in ``learner.tensors``."""

    name: str  # its class in ``lib``
    word: str  # the field's word for it
    store: str  # the dictionary of a Model in which it is kept by habit
    memory: str  # its name among MEMORY_KINDS, and so in the log and in pictures
    size: str  # whose size it has: ``weight``, ``activation`` ...: a ``Cost`` has it in its field ``..._elements``
    fields: tuple[str, ...]  # the labels that it has, in the order of its constructor
    brief: tuple[str, ...] = ()  # fields that repr leaves out at their defaults
    cut: bool = True  # whether it can be cut into pieces, sent, and brought to a collective
    piece: str = SHARD  # what a piece of it is called
    adds: str = ""
    """Over what tensors of this kind are summed, if they are: ``batches``, partial sums (``parts``), or ``queries``."""
    meets: str = ""  # in attention: whose slices its ``parts`` are, which it has been through, ``keys`` or ``queries``
    wide: int = 0
    """Its size in activations, if the ``Cost`` has no field for it. 0: not known, and refused without such a field."""
    times: int = 1  # how often that size it has
    granted: bool = False  # whether a rank that may make it may also communicate its pieces
    returns: bool = False  # whether a gather of it notes whose pieces are whose, for the sum that goes back
    of_adapter: str = ""  # the field's word for it where it is of an adapter, if it can be

    @property
    def words(self) -> str:
        """The field's word for several of it."""
        head, of, rest = self.word.partition(" of ")
        return head.removesuffix("s") + "s" + of + rest

    @property
    def stepped(self) -> bool:
        """Whether it counts the optimizer steps that it has been through."""
        return "step" in self.fields

    @property
    def batched(self) -> bool:
        """Whether it belongs to micro-batches."""
        return "batches" in self.fields

    @property
    def by_batch(self) -> bool:
        """Whether it has numbers of its own for each micro-batch, as all have that are not of a weight's size."""
        return self.batched and self.size != "weight"

    @property
    def by_heads(self) -> bool:
        """Whether it can be cut by the heads of attention as well."""
        return "heads" in self.fields


_WEIGHT, _SLICES = (*_LAYER, "step", *_SHARDS, *_ADAPTER), (*_SHARDS, *_PARTS)
_INPUT = Kind(
    *("Activation", "activation", "activations", "activations", "activation"),
    fields=(*_LAYER, *_BATCHES, *_SLICES),
    brief=_SLICES,
    piece=SLICE,
    adds="parts",
    wide=1,
)
_KEYS = _INPUT._replace(
    name="KeysValues",
    word="keys and values",
    size="keys_values",
    fields=(*_LAYER, *_BATCHES, *_SHARDS, *_HEADS),
    brief=(*_SHARDS, *_HEADS),
    adds="",
    wide=2,
    granted=True,
    returns=True,
)
_MET = _INPUT._replace(
    name="Attended",
    word="attended queries",
    size="attended",
    fields=(*_INPUT.fields, *_HEADS),
    brief=(*_INPUT.brief, *_HEADS),
    adds="",
    wide=2,
    granted=True,
    meets=KEYS,
)
_TOKENS = Kind(
    *("Tokens", "tokens", "activations", "activations", "activation"),
    fields=(*_LAYER, *_BATCHES, *_SHARDS),
    piece=PART,
    wide=1,
)

ROWS = (
    Kind("Weight", "weight", "weights", "weights", "weight", _WEIGHT, _ADAPTER, of_adapter="adapter"),
    Kind(
        *("OptState", "optimizer state", "opt_states", "opt_states", "weight"),
        fields=_WEIGHT,
        brief=_ADAPTER,
        of_adapter="adapter state",
    ),
    Kind(
        *("WeightGrad", "weight gradient", "grad_weights", "weight_grads", "weight"),
        fields=(*_LAYER, *_BATCHES, *_SHARDS, *_ADAPTER, *_PARTS),
        brief=(*_ADAPTER, *_PARTS),
        adds="batches",
        of_adapter="adapter gradient",
    ),
    _INPUT,
    _INPUT._replace(
        name="ActivationGrad", word="activation gradient", store="grad_activations", memory="activation_grads"
    ),
    Kind(
        *("Saved", "inner activation", "activations", "activations", "saved"),
        fields=(*_LAYER, *_BATCHES, "keep", *_SHARDS),
        brief=_SHARDS,
        cut=False,
    ),
    _KEYS,
    _MET._replace(
        name="KeysValuesGrad",
        word="gradient of keys and values",
        store="grad_activations",
        memory="activation_grads",
        size="keys_values",
        adds=QUERIES,
        meets=QUERIES,
    ),
    _MET,
    _MET._replace(
        name="AttendedGrad",
        word="gradient of attended queries",
        store="grad_activations",
        memory="activation_grads",
        times=2,
    ),
    _TOKENS,
    _TOKENS._replace(name="TokensGrad", word="gradient of tokens", store="grad_activations", memory="activation_grads"),
)
KINDS: dict[str, Kind] = {}
STORES = tuple(dict.fromkeys(row.store for row in ROWS))
"""The dictionaries of a Model."""

MEMORY_KINDS = (*dict.fromkeys(row.memory for row in ROWS), "in_flight", "inbox")
"""What memory is used for: kinds of tensor, what unfinished calls carry or have made, and messages not yet received."""
SLOT: dict[str, int] = {}  # where a kind of tensor stands among MEMORY_KINDS
JOINED: list[str] = []
SUMMED: list[str] = []
ADDED: list[str] = []
"""The kinds of which there are pieces that can be joined, and those that can be summed: what collectives take; and of
these the ones that a rank can add up by itself."""
IN_FLIGHT, INBOX = MEMORY_KINDS.index("in_flight"), MEMORY_KINDS.index("inbox")


def add_kind(row: Kind) -> None:
    """Add a kind of tensor to the table. It is kept in the dictionaries, and counted as the memory, that there are."""
    KINDS[row.name], SLOT[row.name] = row, MEMORY_KINDS.index(row.memory)
    JOINED.extend([row.name] * row.cut)
    SUMMED.extend([row.name] * bool(row.adds))
    ADDED.extend([row.name] * (row.adds in ("batches", QUERIES)))


for _row in ROWS:
    add_kind(_row)
SAVED = "Saved"
"""The kind that stays where it was made: it is neither sent nor cut nor brought to a collective."""
INNER = SLOT[SAVED]
"""The place among MEMORY_KINDS where inner activations count, those that a backward makes again as well."""
