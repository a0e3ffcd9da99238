"""Every call that changes a run, and the kinds of its arguments: how each is written, and how it is read again.

A recording is a list of such calls, each ``[verb, rank, coroutine, *arguments]``. Tensors and calls are written as
their numbers, counted in the order in which they came to be. What is read is checked: anybody may have written it.
"""

import re
from collections.abc import Callable, Collection
from fractions import Fraction
from operator import index
from typing import Any, NamedTuple, Protocol

from ..basics.arguments import describe, one_of
from ..machine.in_flight import InFlight
from ..machine.rank_state import RankState, TensorState
from ..record.kinds import ADDED, JOINED, KINDS
from ..record.labels import Labels
from ..record.operations import Collective, Computation, Operation
from ..record.table import OPERATIONS
from .safe import number, numbers, shown
from .wire import ProtocolError

MOST_PIECES = 4_000_000
LONGEST_LINES = 1000  # characters of the lines at which a rank and its tasks wait
"""Shards and partial sums of all tensors that the calls of a run make and take: these bound what comes of them."""


class Reader(Protocol):
    """What reading an argument needs: the run's tensors and calls by number, and which call is being carried out."""

    layers: int
    tensors: list[TensorState]
    calls: list[InFlight]
    state: RankState
    operation: str
    """The verb, or the operation that its first argument names: where a mistake is."""

    def count(self, labels: Labels) -> None:
        """Count the pieces of a tensor. Raise PuzzleError for too many in a run."""


class Described(str):
    """What a learner gave for a number, as its repr."""

    __repr__ = str.__str__


class Kind(NamedTuple):
    """A kind of argument. ``read`` raises ProtocolError for what ``write`` never writes, and PuzzleError for a
    learner's mistake. ``write`` gets the ``Recorder`` besides the argument; without it that is written as it is."""

    read: Callable[[Reader, Any], Any]
    write: Callable[[Any, Any], Any] | None = None


# -- reading -----------------------------------------------------------------------------------------------------


def _read_call(reader: Reader, place: object) -> InFlight:
    if type(place) is not int or not 0 <= place < len(reader.calls):
        raise ProtocolError("no call of that number")
    return reader.calls[place]


def _of_type(*types: type) -> Callable[[Reader, Any], Any]:
    def read(reader: Reader, value: object) -> Any:
        if type(value) not in types:
            raise ProtocolError(f"something else than {' or '.join(kind.__name__ for kind in types)}")
        return value

    return read


def _read_operation(*types: type[Operation]) -> Callable[[Reader, Any], str]:
    def read(reader: Reader, value: object) -> str:
        if type(value) is not str or not isinstance(OPERATIONS.get(value), types):
            raise ProtocolError("no operation of this kind")
        reader.operation = value
        return value

    return read


def _read_anything(reader: Reader, value: object) -> Any:
    """Return what should be a whole number for the simulator to check, and a text only after it was made safe."""
    if type(value) is list and len(value) == 1 and type(value[0]) is str:
        return Described(shown(value[0], 200))
    if type(value) is str:
        return shown(value, 200)
    return number(value) if type(value) is int else _read_plain(reader, value)


def read_layer(reader: Reader, value: object) -> int:
    """Return a layer as an int. Raise PuzzleError for anything else."""
    if isinstance(value, (bool, float)) and value % 1 == 0:
        value = int(value)  # as in a notebook, where it is equal to its layer
    if type(value) is not int:
        given, place = _read_anything(reader, value), reader.state.place(reader.operation)
        value = one_of("layer", given, reader.layers, place)
    return number(value)


def of_kind(tensor: TensorState, kinds: Collection[str]) -> TensorState:
    """Return the tensor. Raise ProtocolError unless it is of one of these kinds."""
    if tensor.labels.kind not in kinds:
        raise ProtocolError("a tensor of another kind")
    return tensor


def _tensor(kinds: Collection[str]) -> Kind:
    """Return the kind of argument that is a tensor of one of these kinds."""

    def read(reader: Reader, place: object) -> TensorState:
        tensors = reader.tensors
        # As of_kind has it, without the call: this is asked of every operand.
        if type(place) is not int or not 0 <= place < len(tensors):
            raise ProtocolError("no tensor of that number")
        tensor = tensors[place]
        labels = tensor.labels
        reader.count(labels)
        if labels.kind not in kinds:
            raise ProtocolError("a tensor of another kind")
        return tensor

    return Kind(read, lambda writer, token: writer.numbers[token])


def _or_none(kind: Kind) -> Kind:
    """Return the kind of argument that is of this kind, or None."""
    read, write = kind.read, kind.write
    return Kind(
        lambda reader, value: None if value is None else read(reader, value),
        write and (lambda writer, value: None if value is None else write(writer, value)),
    )


def _several(kind: Kind) -> Kind:
    """Return the kind of argument that is a list of this kind."""
    read, write = kind.read, kind.write
    assert write is not None

    def read_all(reader: Reader, values: object) -> list[Any]:
        if type(values) is not list:
            raise ProtocolError("no list")
        return [read(reader, value) for value in values]

    return Kind(read_all, lambda writer, values: [write(writer, value) for value in values])


def _read_options(reader: Reader, options: object) -> dict[str, Any]:
    row = OPERATIONS[reader.operation]
    if type(options) is not dict or not isinstance(row, Computation):
        raise ProtocolError("no options")
    for name, value in options.items():
        known = row.options.get(name, ())
        if type(value) not in map(type, known) or value not in known:
            raise ProtocolError("no option of the operation")
    return options


def _read_fraction(reader: Reader, value: object) -> Fraction:
    if type(value) is not str or not re.fullmatch(r"-?\d{1,200}(/[1-9]\d{0,199})?", value):
        raise ProtocolError("no fraction")
    return Fraction(value)


def _read_lines(reader: Reader, rows: object) -> dict[int, str]:
    if type(rows) is not list or not all(type(row) is list and len(row) == 2 and type(row[1]) is str for row in rows):
        raise ProtocolError("no lines")
    return {number(rank): shown(line, LONGEST_LINES) for rank, line in rows}


def _read_axis(reader: Reader, value: object) -> str | tuple[str, ...]:
    if type(value) is not list:
        return shown(_of_type(str)(reader, value), 200)
    return tuple([shown(_of_type(str)(reader, name), 200) for name in value])


_read_plain = _of_type(int, float, bool, str, type(None))


# -- writing -----------------------------------------------------------------------------------------------------


def _write_anything(writer: Any, value: Any) -> Any:
    """Return what a learner gave for a number. Anything else is written as its repr, and refused when it is read."""
    if value is None or type(value) in (float, bool):
        return value
    try:
        known = index(value)
    except TypeError:
        return value[:200] if type(value) is str else [describe(value)]
    return known if -(1 << 62) < known < 1 << 62 else f"a number of {known.bit_length()} bits"


COMPUTATION, COLLECTIVE = Kind(_read_operation(Computation)), Kind(_read_operation(Collective))
ANYTHING, LAYER = Kind(_read_anything, _write_anything), Kind(read_layer, _write_anything)
COUNT = Kind(lambda reader, value: number(value), lambda writer, value: min(index(value), 1 << 61))
NUMBERS = Kind(lambda reader, values: numbers(values), lambda writer, values: sorted(values))
TENSOR, WEIGHT, GRADIENT, SHARDED = _tensor(KINDS), _tensor(["Weight"]), _tensor(ADDED), _tensor(JOINED)
CALL = Kind(_read_call, lambda writer, call: writer.numbers_of_calls[call])
AXIS = _or_none(Kind(_read_axis, lambda writer, axis: [*axis] if isinstance(axis, tuple) else axis))
OPTIONS = Kind(_read_options, lambda writer, options: dict(options))
PLAIN = Kind(_read_plain)
LINES = Kind(_read_lines, lambda writer, lines: [[rank, line[:LONGEST_LINES]] for rank, line in lines.items()])

VERBS: dict[str, tuple[Kind, ...]] = {
    "load_weights": (ANYTHING, ANYTHING, COUNT),
    "load_adapter": (ANYTHING, ANYTHING, COUNT),
    "get_activation": (NUMBERS,),
    "fake_grad": (ANYTHING, NUMBERS),
    "compute": (COMPUTATION, ANYTHING, _several(TENSOR), OPTIONS),
    "set_final_weight": (ANYTHING, WEIGHT),
    "meet": (COLLECTIVE, _or_none(TENSOR), LAYER, AXIS),
    "meet_list": (COLLECTIVE, _several(_or_none(TENSOR)), _several(ANYTHING), AXIS),
    "pass_to": (ANYTHING, _or_none(TENSOR), PLAIN),
    "receive": (ANYTHING,),
    "group": (PLAIN,),
    "wait": (CALL,),
    "fetch": (CALL, _or_none(COUNT)),
    "decide_next": (),
    "store": (TENSOR,),
    "drop": (TENSOR,),
    "shard": (SHARDED, COUNT, COUNT),
    "combine": (SHARDED, SHARDED),
    "add": (GRADIENT, GRADIENT),
    "scale": (_tensor(["WeightGrad"]), Kind(_read_fraction, lambda writer, factor: str(factor)[:200])),
    "share": (),
    "finish": (),
    "deadlock": (LINES,),
}
"""Every verb, in the words of ``machine.interface.Simulator``, without the rank. ``fetch`` has the sender as well, of
a message; ``shard``, ``combine``, ``add`` and ``scale`` are methods of tensors."""
AFTERWARDS = ("decide_next", "deadlock")
"""The verbs that may still be used for a rank that has finished."""
