"""What the names in profiles mean: those of collectives, of PyTorch's own labels, and of labels that people write."""

import re
from functools import lru_cache
from typing import NamedTuple

from ...record.table import OPERATIONS, RECEIVE, SEND, stream_of
from ...record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, UPDATE
from .calls import NOBODY

EXCHANGE, OTHER_CALL, WORK, UNRECORDED = "exchange", "communicate", "compute", "unrecorded"
MESSAGES = (SEND.kind, RECEIVE.kind)
_LIBRARIES = re.compile(r"^(nccl|rccl|gloo|xccl|hccl|ucc|mpi|mccl|c10d|c10d_functional)+(dev)?(generic)?(kernel)?")
_TRACED = ((EXCHANGE, ("sendrecv", "coalesced")), *((kind, (kind,)) for kind in ("broadcast", "barrier")))
_KNOWN = tuple((row.kind, row.elsewhere) for row in OPERATIONS.values() if row.stream in ("collective", "message"))
_LAST = tuple((kind, (kind,)) for kind in ("reduce", "gather", "scatter"))
_CALLS = [(name.replace("_", ""), kind) for kind, names in (*_TRACED, *_KNOWN, *_LAST) for name in names]
"""How the names of calls begin, without the name of their library, and the verbs for them. The order counts."""
BYTES = {"bool": 1, "byte": 1, "char": 1, "uint8": 1, "int8": 1, "short": 2, "half": 2, "bfloat16": 2, "float16": 2}
BYTES |= {"int": 4, "float": 4, "float32": 4, "int32": 4, "long": 8, "double": 8, "float64": 8, "int64": 8}
BYTES |= {"complexfloat": 8, "complexdouble": 16, "unsigned char": 1, "long int": 8, "c10::half": 2, "c10::bfloat16": 2}
"""Bytes of a number, by the names that profiles have for its type."""
BACKWARD_NODE = "autograd::engine::evaluate_function"
STEP = re.compile(r"^ProfilerStep\s*#(\d+)$")
_ACTION = re.compile(r"^PP:(\d+)([FBIW])(\d+)$")
_ACTIONS = {"F": FORWARD.kind, "B": BACKWARD.kind, "I": BACKWARD_INPUT.kind, "W": BACKWARD_WEIGHT.kind}
_NUMBERED = re.compile(r"^(Forward|Backward) (\d+)$")
_OWN = re.compile(r"^\W*([a-z_]+)(?![\w.:#]|\s*\()", re.IGNORECASE)
_USUAL = {row.kind: row.kind for row in (FORWARD, BACKWARD, UPDATE)} | {"optimizer": UPDATE.kind}
_LAYER = re.compile(r"\blayer\W*(\d+)", re.IGNORECASE)
_BATCH = re.compile(r"\b(?:mb|micro.?batch(?:es)?)\W*(\d+(?:\W+\d+)*)", re.IGNORECASE)


class Label(NamedTuple):
    """The work that goes on inside a span. ``whole``: whether all of the span is work."""

    kind: str
    layer: int | None = None
    batches: frozenset[int] = NOBODY
    whole: bool = False


@lru_cache(maxsize=4096)
def call_of(name: str) -> str:
    """Return the verb for a call of the network, or an empty text if a name is not one.

    >>> call_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    'allreduce'
    >>> call_of("gloo:all_gather"), call_of("_reduce_scatter_base"), call_of("nccl:recv 0<-1"), call_of("aten::mm")
    ('allgather', 'scatterreduce', 'receive', '')
    """
    letters = re.sub("[^a-z0-9]", "", name.lower().partition("(")[0])
    bare = _LIBRARIES.sub("", letters)
    found = next((verb for begins, verb in _CALLS if bare.startswith(begins)), "")
    return found or (OTHER_CALL if bare != letters else "")


def is_kernel_of_network(name: str) -> bool:
    """Return whether a kernel belongs to NCCL, or to AMD's RCCL."""
    return name.startswith(("nccl", "rccl")) or "ncclDevKernel" in name or "rcclGenericKernel" in name


@lru_cache(maxsize=4096)
def label_of(name: str) -> Label | None:
    """Return the work that a label stands for: one of PyTorch's, or one that you have written with
    ``record_function("forward layer 3 mb 1")``. None for any other name.

    >>> label_of("PP:2F1")
    Label(kind='forward', layer=2, batches=frozenset({1}), whole=False)
    >>> label_of("Optimizer.step#AdamW.step").kind, label_of("## backward ##").kind, label_of("aten::mm")
    ('update', 'backward', None)
    >>> label_of("forward layer 3 mb 1")
    Label(kind='forward', layer=3, batches=frozenset({1}), whole=True)
    """
    if found := _ACTION.match(name):
        stage, action, batch = found.groups()
        return Label(_ACTIONS[action], int(stage), frozenset([int(batch)]))
    if name.startswith("Optimizer.step#"):
        return Label(UPDATE.kind)
    if name.startswith(BACKWARD_NODE):
        return Label(BACKWARD.kind)
    if found := _NUMBERED.match(name):
        return Label(found[1].lower(), None, frozenset([int(found[2])]))
    if found := _OWN.match(name):
        word, layer, batch = found[1].lower(), _LAYER.search(name), _BATCH.search(name)
        kind = _USUAL.get(word, word if layer and stream_of(word) == "compute" else "")
        batches = frozenset(map(int, re.findall(r"\d+", batch[1]))) if batch else NOBODY
        return Label(kind, int(layer[1]) if layer else None, batches, True) if kind else None
    return None


def bytes_of(count: int, dtype: object) -> int:
    """Return the bytes of so many numbers of a type, or 0 if the type is not known."""
    return count * BYTES.get(str(dtype).lower(), 0)
