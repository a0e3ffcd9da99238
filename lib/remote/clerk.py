"""The grader's end of the line: it answers a worker from the simulator, and believes nothing that the worker says.

A worker knows tensors and calls by their numbers only. Every number is looked up here, and the kind of every operand is
checked here. So a right outcome needs the messages of a right run, whoever writes them: tampering is not forbidden, it
is pointless.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from ..basics.arguments import one_of
from ..basics.errors import PuzzleError, witnessed
from ..machine.check import TRAINED
from ..machine.in_flight import InFlight
from ..machine.outcome import Outcome
from ..machine.rank_state import RankState, Result, Results, TensorState, made_by_hand
from ..machine.simulator import LocalSimulator
from ..record.kinds import JOINED
from ..record.operations import Collective, Computation
from ..record.table import OPERATIONS
from .wire import ProtocolError, Wire, number, numbers, pack, pack_error, pack_labels, presentable, shown, unpack_labels

T = TypeVar("T")

MOST, MOST_BYTES, MOST_PIECES = 500_000, 1 << 25, 2_000_000
"""Messages, bytes and pieces of one run: what comes of them is kept here until its end, and must be limited."""
MOST_ERRORS = 100
"""Errors of each rank: a run in which every rank makes the same mistake comes to its end, and tells where it is."""
AFTERWARDS = ("decide_next", "deadlock", "by_hand", "time", "stored", "finals", "events")
"""The verbs that may still be used for a rank that has finished."""
STARTS = ("meet", "meet_list", "pass_to", "receive")
"""The verbs that start a call. The worker counts these, and so knows a call's number without having asked."""
TOLD = frozenset(["store", "drop", "set_final_weight", "wait", "fetch", *STARTS])
"""The verbs of which a worker learns nothing, unless something is wrong with them. (What it waits for wakes it.)"""
ENDINGS = ("done", "failed", "missing")  # what a worker says last


class Clerk:
    """Keeps the simulator of one run, and numbers the tensors and calls in them."""

    def __init__(
        self,
        simulator: LocalSimulator,
        layers: int,
        batches: int,
        ranks: Sequence[RankState] | None = None,
        train: str = TRAINED[0],
    ) -> None:
        """``ranks``: the ranks of the simulator, if they are open already; ``train``: what is to be trained."""
        self.simulator, self.layers, self.train = simulator, layers, train
        self.ranks = ranks or [simulator.open(rank, layers, batches) for rank in range(simulator.mesh.everyone)]
        self.tensors: list[TensorState] = []
        self.calls: list[InFlight | PuzzleError] = []  # an error for a call that could not be started
        self.woken: list[int] = []  # calls that have ended, by the messages of the last line
        self.pieces = 0
        self.asked: tuple[RankState, str] = self.ranks[0], ""  # who asks, and for what
        self.coroutine: object = None  # the coroutine from which that message comes
        self.coroutines: dict[int, object] = {}  # an object for each number of a coroutine
        self.finished: set[int] = set()
        self.errors: list[PuzzleError] = []

    def serve(self, wire: Wire, deadline: float) -> list[Any]:
        """Answer until the worker says how it ended, and return that. Raise ProtocolError, or what Wire.receive
        raises."""
        token = witnessed.set(self.errors)
        try:
            messages = 0
            while messages < MOST and wire.read <= MOST_BYTES:
                if len(self.errors) > MOST_ERRORS * len(self.ranks):
                    raise self.errors[0]
                line = wire.receive(deadline)
                if type(line) is not list or not line:
                    raise ProtocolError("no message")
                if type(line[0]) is not list and line[0] in ENDINGS:
                    return line
                several = line if type(line[0]) is list else [line]
                messages += len(several)
                wire.send(self.answer_all(several), deadline)
        finally:
            witnessed.reset(token)
        raise ProtocolError(f"more than {MOST:,} messages, or {MOST_BYTES >> 20} MiB of them, in one run")

    def answer(self, message: list[Any]) -> list[Any]:
        """Return the answer to a single message, as ``answer_all`` does."""
        return self.answer_all([message])

    def answer_all(self, messages: list[Any]) -> list[Any]:
        """Carry out what is told, and return the answer to the last message, which asks: [0, result, woken calls] or
        [1, error, woken calls]. Where something that was told is wrong, its place, its rank and the error are in the
        answer as well. Raise ProtocolError for anything unexpected."""
        self.woken, mistakes = [], []
        for place, message in enumerate(messages[:-1]):
            failed, error = self._carry_out(message, TOLD)
            if failed:
                mistakes.append([place, message[1], error])
        failed, result = self._carry_out(messages[-1], VERBS)
        woken = [[at, foreseen(self.calls[at])] for at in self.woken]
        return [failed, result, woken, mistakes] if mistakes else [failed, result, woken]

    def _carry_out(self, message: Any, verbs: Collection[str]) -> tuple[int, Any]:
        """Return 0 and the result of a message with one of these verbs, or 1 and the error."""
        if type(message) is not list or len(message) < 3:
            raise ProtocolError("no message")
        verb, rank, coroutine, *arguments = message
        if type(verb) is not str or verb not in verbs:
            raise ProtocolError("no verb")
        act, kinds = VERBS[verb]
        if len(arguments) != len(kinds) or (coroutine is not None and type(coroutine) is not int):
            raise ProtocolError(f"other arguments than those of {verb}")
        state = _at(self.ranks, rank, "rank")
        if rank in self.finished:
            if verb == "drop":
                return 0, None  # by an object that Python frees late: it matters no more
            if verb not in AFTERWARDS:
                raise ProtocolError(f"{verb} of a rank that has finished")
        self.coroutine = None if coroutine is None else self.coroutines.setdefault(coroutine, object())
        self.asked = state, verb
        try:
            result = act(self, state, *[kind(self, argument) for kind, argument in zip(kinds, arguments, strict=True)])
            return 0, None if result is None else self._pack(result)
        except PuzzleError as error:
            if verb in STARTS:
                self.calls.append(error)
            return 1, pack_error(presentable(error))

    def call(self, at: Any) -> InFlight:
        """Return the call of a number. Raise the PuzzleError of one that could not be started, or ProtocolError."""
        call = _at(self.calls, at, "call of that number")
        if isinstance(call, PuzzleError):
            raise call
        return call

    def outcome(self, name: str) -> Outcome:
        """Return the outcome of the run. Raise the first PuzzleError made in it, or one for what is unfinished."""
        if self.errors:
            raise self.errors[0]
        for state in self.ranks:
            if state.rank not in self.finished:
                self.simulator.finish(state)
        if (unfinished := self.simulator.unfinished()) is not None:
            raise presentable(unfinished)
        states = [self.simulator.final_state(state, self.tensors) for state in self.ranks]
        return Outcome(name, self.simulator.shape, states, self.simulator.finish_logs(self.ranks), self.train)

    def _pack(self, result: Any) -> Any:
        if isinstance(result, TensorState):
            self.tensors.append(result)
            self.pieces += len(result.labels.shards) + len(result.labels.parts)
            if self.pieces > MOST_PIECES:
                problem, fix = "the tensors of this run have too many pieces", "cut and join tensors less finely"
                raise PuzzleError(problem, expected=f"at most {MOST_PIECES:,}, all together", fix=fix, line="")
            return ["tensor", len(self.tensors) - 1, pack_labels(result.labels), pack(result.memory)]
        if isinstance(result, InFlight):
            self.calls.append(result)
            return len(self.calls) - 1
        return [self._pack(one) for one in result] if isinstance(result, (tuple, list)) else pack(result)

    def _compute(
        self, state: RankState, kind: str, layer: Any, places: list[Any], options: dict[str, Any]
    ) -> list[TensorState]:
        row = OPERATIONS.get(kind)
        if not isinstance(row, Computation):
            raise ProtocolError("no operation of the compute lane")
        for name, value in options.items():
            known = row.options.get(name, ())
            if value not in known or type(value) is not type(known[0]):
                raise ProtocolError("no option of the operation")
        self.asked = state, kind
        if row.layered:
            layer = _layer(self, layer)
        elif layer is not None:
            raise ProtocolError("a layer where there is none")
        operands = [_any(self, at) for at in places]
        kinds = [operand.labels.kind for operand in operands]
        try:
            row.following(kinds)
        except ValueError:
            kinds = []
        if kinds[: len(row.takes)] != [*row.takes.values()]:
            raise ProtocolError("other operands than those of the operation")
        return self.simulator.compute(state, kind, layer, operands, options)

    def _meet(self, state: RankState, kind: str, operand: TensorState | None, layer: Any, axis: str | None) -> InFlight:
        row = OPERATIONS.get(kind)
        if not isinstance(row, Collective) or (operand is None and row.everyone):
            raise ProtocolError("no collective")
        if operand is not None:
            _of_kind(operand, row.takes)
        return self.simulator.meet(state, kind, operand, layer, axis)

    def _meet_list(
        self, state: RankState, kind: str, places: list[Any], layers: list[Any], axis: str | None
    ) -> InFlight:
        row = OPERATIONS.get(kind)
        if not isinstance(row, Collective) or (None in places and row.everyone):
            raise ProtocolError("no collective")
        self.asked = state, kind
        operands = [_or_none(_tensor(*row.takes))(self, at) for at in places]
        return self.simulator.meet_list(state, kind, operands, [_shown_number(self, layer) for layer in layers], axis)

    def _wait(self, state: RankState, at: Any) -> None:
        """Wake the worker when a call can be fetched: now, or when that is so."""

        def wake() -> None:
            self.woken.append(at)

        try:
            call = self.call(at)
        except PuzzleError:
            wake()  # it will hear of the error there, too
            raise
        if call.fetched or call.rank is not state:
            raise ProtocolError("waiting for what cannot be fetched")
        if self.simulator.wait(call, wake):
            wake()

    def _fetch(self, state: RankState, call: InFlight) -> Any:
        if not call.over or call.fetched or call.rank is not state:
            raise ProtocolError("fetching what is not there")
        result = self.simulator.fetch(call)
        return result if isinstance(result, (TensorState, list)) else ["plain", result]

    def _drop(self, state: RankState, tensor: TensorState) -> None:
        if tensor.rank is not state:
            raise ProtocolError("dropping what another rank has")
        self.simulator.drop(state, tensor)

    def _finish(self, state: RankState) -> None:
        self.finished.add(state.rank)
        self.simulator.finish(state)

    def _deadlock(self, state: RankState, lines: dict[int, str]) -> None:
        raise self.simulator.deadlock(lines, frozenset(self.finished))


def foreseen(call: InFlight | PuzzleError) -> Any:
    """Return what will be fetched of a call that has ended, as it is packed, but for numbers: it is entered when it is
    fetched. Return None where that is no tensor. The worker that knows it need not ask when it fetches it."""
    match None if isinstance(call, PuzzleError) else call.result:
        case Result(labels=labels, memory=memory):
            return ["tensor", None, pack_labels(labels), pack(memory)]
        case Results(each=each):
            return [["tensor", None, pack_labels(one.labels), pack(one.memory)] for one in each]
    return None


Check = Callable[[Clerk, Any], Any]
"""Returns what an argument stands for. Raises ProtocolError where it can be none of the library's."""


def _at(things: Sequence[T], at: Any, what: str) -> T:
    if type(at) is not int or not 0 <= at < len(things):
        raise ProtocolError(f"no {what}")
    return things[at]


def _of_kind(tensor: TensorState, kinds: Collection[str]) -> TensorState:
    if tensor.labels.kind not in kinds:
        raise ProtocolError("a tensor of another kind")
    return tensor


def _any(clerk: Clerk, at: Any) -> TensorState:
    return _at(clerk.tensors, at, "tensor of that number")


def _tensor(*kinds: str) -> Check:
    return lambda clerk, at: _of_kind(_any(clerk, at), kinds)


def _or_none(kind: Check) -> Check:
    return lambda clerk, argument: None if argument is None else kind(clerk, argument)


def _alone(kind: Callable[[Any], Any]) -> Check:
    return lambda clerk, argument: kind(argument)


def _plain(clerk: Clerk, value: Any) -> Any:
    if value is not None and type(value) not in (int, float, bool, str):
        raise ProtocolError("no plain value")
    return value


def _layer(clerk: Clerk, value: Any) -> int:
    """Return a layer as an int. Raise PuzzleError for anything else, which ``remote_simulator`` has sent as its
    repr."""
    if type(value) in (bool, float) and value % 1 == 0:
        value = int(value)  # as in a notebook, where it is equal to its layer
    if type(value) is not int:
        value = one_of("layer", _shown(clerk, value), clerk.layers, RankState.place(*clerk.asked))
    return number(value)


def _shown(clerk: Clerk, value: Any) -> Any:
    """Return what should be a number for the simulator to check, and a text only after it was made safe to show."""
    return shown(value, 200) if type(value) is str else _plain(clerk, value)


def _shown_number(clerk: Clerk, value: Any) -> Any:
    """Return what should be a number, as ``_shown`` does. Raise ProtocolError for a whole one of no sensible size."""
    return number(value) if type(value) is int else _shown(clerk, value)


def _text(clerk: Clerk, value: Any) -> str:
    if type(value) is not str:
        raise ProtocolError("no text")
    return value


def _axis(clerk: Clerk, value: Any) -> str:
    return shown(_text(clerk, value), 200)


def _places(clerk: Clerk, value: Any) -> list[Any]:
    if type(value) is not list:
        raise ProtocolError("no list of tensors, or of layers")
    return value


def _options(clerk: Clerk, value: Any) -> dict[str, Any]:
    if type(value) is not dict or not all(type(one) in (str, bool) for one in value.values()):
        raise ProtocolError("no options")
    return value


def _piece(clerk: Clerk, value: Any) -> int:
    if number(value) < 0:
        raise ProtocolError("no piece")
    return number(value)


def _lines(clerk: Clerk, value: Any) -> dict[int, str]:
    if type(value) is not list or not all(type(row) is list and len(row) == 2 for row in value):
        raise ProtocolError("no lines")
    return {number(rank): shown(_text(clerk, text), 200) for rank, text in value}


_number, _numbers, _labels = _alone(number), _alone(numbers), _alone(unpack_labels)
_weight, _weight_gradient = _tensor("Weight"), _tensor("WeightGrad")
_sharded: Check = lambda clerk, at: _of_kind(_any(clerk, at), JOINED)  # noqa: E731

VERBS: dict[str, tuple[Callable[..., Any], tuple[Check, ...]]] = {
    "load_weights": (lambda c, a, *r: c.simulator.load_weights(a, *r), (_shown, _shown, _number)),
    "load_adapter": (lambda c, a, *r: c.simulator.load_adapter(a, *r), (_shown, _shown, _number)),
    "get_activation": (lambda c, a, *r: c.simulator.get_activation(a, *r), (_numbers,)),
    "fake_grad": (lambda c, a, *r: c.simulator.fake_grad(a, *r), (_shown, _numbers)),
    "compute": (Clerk._compute, (_text, _shown, _places, _options)),
    "set_final_weight": (lambda c, a, *r: c.simulator.set_final_weight(a, *r), (_shown, _weight)),
    "meet": (Clerk._meet, (_text, _or_none(_any), _layer, _or_none(_axis))),
    "meet_list": (Clerk._meet_list, (_text, _places, _places, _or_none(_axis))),
    "pass_to": (lambda c, a, *r: c.simulator.pass_to(a, *r), (_shown, _or_none(_any), _plain)),
    "receive": (lambda c, a, *r: c.simulator.receive(a, *r), (_shown,)),
    "wait": (Clerk._wait, (_number,)),
    "fetch": (Clerk._fetch, (Clerk.call,)),
    "decide_next": (lambda c, a: c.simulator.decide_next(), ()),
    "store": (lambda c, a, tensor: c.simulator.store(a, tensor), (_any,)),
    "drop": (Clerk._drop, (_any,)),
    "shard": (lambda c, a, tensor, *r: tensor.shard(*r), (_sharded, _piece, _piece)),
    "combine": (lambda c, a, one, other: one.combine(_of_kind(other, [one.labels.kind])), (_sharded, _sharded)),
    "add": (lambda c, a, one, other: one.add(other), (_weight_gradient, _weight_gradient)),
    "by_hand": (lambda c, a, labels: made_by_hand(labels), (_labels,)),
    "share": (lambda c, a: c.simulator.share(a, lambda: c.coroutine), ()),
    "finish": (Clerk._finish, ()),
    "deadlock": (Clerk._deadlock, (_lines,)),
    "time": (lambda c, a: c.simulator.time(a), ()),
    "stored": (lambda c, a: c.simulator.stored(a), ()),
    "finals": (lambda c, a: [[at, one.labels, one.value[0], one.made_up] for at, one in a.finals.items()], ()),
    "events": (lambda c, a: c.simulator.events(a), ()),
}
"""Every verb that a worker may use: what it does, and how each of its arguments is checked."""
