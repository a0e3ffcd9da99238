"""Finds what an explanation says that the recordings do not show, without the notes that it was made from.

Calls are read from the recording itself. Which tensors each call has made is found by a replay of its own, and where
they were stored by what was written down beside the calls.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from lib.basics.errors import PuzzleError
from lib.course.layouts import Size
from lib.course.specs import machine_of
from lib.explain.statement import OWN, CallFact, KeptFact, Statement, TensorFact
from lib.explain.words import call_words
from lib.machine.simulator import LocalSimulator
from lib.record.labels import Labels
from lib.record.table import stream_of
from lib.recording.replay import Replay

LINKS = ("collective", "message")
NAMED = ("compute", "meet", "meet_list")  # calls that name their operation first
OPERANDS = {"compute": 5, "meet": 4, "meet_list": 4, "pass_to": 4, "set_final_weight": 4}
OPERANDS |= {"shard": 3, "scale": 3, "store": 3}


class Log:
    """A recording, and what each of its calls has made. ``of``: the call that has made the tensor of that number."""

    def __init__(self, recording: Mapping[str, Any], size: Size, cost: str) -> None:
        self.calls: list[list[Any]] = recording["calls"]
        self.lines, self.places, self.kept = recording["diary"]
        simulator = LocalSimulator(machine_of(size, cost), graded=True)
        replay = Replay(simulator, size["layers"], size["batches"], size.get("train", "weights"))
        self.of: list[int] = []
        self.fetches: dict[int, int] = {}  # by a communication where its result was fetched
        self.failed: set[int] = set()
        handles: list[int] = []
        for at, call in enumerate(self.calls):
            try:
                replay.carry_out(call)
            except PuzzleError:
                self.failed.add(at)  # it has made nothing, and read nothing
            by = handles[call[3]] if call[0] == "fetch" else at
            self.fetches |= {by: at} if call[0] == "fetch" else {}
            self.of += [by] * (len(replay.tensors) - len(self.of))
            handles += [at] * (len(replay.calls) - len(handles))
        self.labels: list[Labels] = [tensor.labels for tensor in replay.tensors]

    def kind(self, at: int) -> str:
        """The verb of a call, in the learner's words."""
        call = self.calls[at]
        return str(call[3] if call[0] in NAMED else call[0])

    def line(self, at: int) -> int:
        return int(self.places[self.lines[at]][0])

    def operands(self, at: int) -> list[int]:
        """The numbers of the tensors that a call takes."""
        call = self.calls[at]
        if call[0] in ("add", "combine"):
            return list(call[3:5])
        found = call[OPERANDS[call[0]]] if call[0] in OPERANDS else []
        return [one for one in (found if isinstance(found, list) else [found]) if one is not None]

    def made(self, tensor: TensorFact) -> list[int]:
        """The numbers of the tensors that a fact may mean."""
        return [at for at, by in enumerate(self.of) if by == tensor.maker.at and self.labels[at] == tensor.labels]

    def calls_of(self, rank: int, kind: str) -> list[int]:
        """The places of the calls of a rank that have this verb."""
        return [at for at, call in enumerate(self.calls) if call[1] == rank and self.kind(at) == kind]

    def ended(self) -> set[int]:
        return {call[1] for call in self.calls if call[0] == "finish"}


def untrue(said: Statement, own: Log, right: Log) -> Iterator[str]:
    """Yield what of a statement is not so."""
    for name, thing in said.facts.items():
        for one in thing if isinstance(thing, tuple) and thing and isinstance(thing[0], CallFact) else [thing]:
            if isinstance(one, (CallFact, TensorFact)):
                yield from _untrue_fact(one, own if one.run == OWN else right, name)
            elif isinstance(one, KeptFact):
                rows = [row[:] for row in own.kept if (row[1], row[3], row[4]) == (one.way, one.store, one.key)]
                if one.line.number not in [own.places[row[5]][0] for row in rows]:
                    yield f"{name}: {one}"
    reader = said.facts.get("reader" if said.name == "first_through" else "call")
    if said.name in ("first_through", "comes_from") and reader.kind == "pass_to":
        sends, others = (log.calls_of(reader.rank, "pass_to") for log in (own, right))
        turn = sends.index(reader.at)
        if turn < len(others) and _labels(own, sends[turn]) == _labels(right, others[turn]):
            yield f"{said.name}: a right run sends that as well"
    if (test := TESTS.get(said.name)) is not None and not test(said.facts, own, right):
        yield said.name


def _untrue_fact(one: CallFact | TensorFact, log: Log, name: str) -> Iterator[str]:
    if isinstance(one, TensorFact):
        yield from _untrue_fact(one.maker, log, name)
        if not log.made(one):
            yield f"{name}: no {one.labels} of {one.maker.kind}"
        return
    if one.at == len(log.calls):  # it was refused before it came to the machine, and its rank has ended there
        if one.rank in log.ended() or any(at for at in log.calls_of(one.rank, one.kind) if at in log.failed):
            yield f"{name}: {one} was not refused"
        return
    call = log.calls[one.at]
    if (call[1], log.kind(one.at), log.line(one.at)) != (one.rank, one.kind, one.line.number):
        yield f"{name}: {one}, and not {call}"
    if one.carries != tuple(log.labels[at].kind for at in log.operands(one.at)):
        yield f"{name}: carries"


def _read(facts: Mapping[str, Any], log: Log) -> list[int]:
    numbers = log.made(facts["tensor"])
    calls = [at for at, call in enumerate(log.calls) if call[0] != "store" and at not in log.failed]
    return [at for at in calls if set(numbers) & set(log.operands(at))]


def _is_stored(facts: Mapping[str, Any], own: Log, right: Log) -> bool:
    kept, numbers, rank = facts["kept"], own.made(facts["tensor"]), facts["tensor"].maker.rank
    rows = [row for row in own.kept if row[1] != "read" and (row[3], row[4]) == (kept.store, kept.key)]
    rows = [row for row in rows if own.calls[own.of[row[2]]][1] == rank and row[1] != "replaced"]
    return rows[-1][1] == "stored" and rows[-1][2] in numbers


def _given(facts: Mapping[str, Any], own: Log, right: Log) -> bool:
    if facts["call"].at == len(own.calls):  # refused: its rank had the tensor
        return own.calls[max(map(own.of.__getitem__, own.made(facts["tensor"])))][1] == facts["call"].rank
    return bool(set(own.made(facts["tensor"])) & set(own.operands(facts["call"].at)))


def _alike(log: Log, call: CallFact, own: Log) -> list[int]:
    """The calls of a rank with the verb, the layer or the receiver, and the kinds and micro-batches of the operands."""
    return [at for at in log.calls_of(call.rank, call.kind) if _shown(log, at) == _shown(own, call.at)]


def _shown(log: Log, at: int) -> tuple[object, ...]:
    if at == len(log.calls):  # refused
        return ()
    raw = log.calls[at]
    named = {"compute": 4, "meet": 5, "meet_list": 5, "pass_to": 3, "load_weights": 3, "load_adapter": 3}
    operands = [log.labels[one] for one in log.operands(at)]
    batches = {one.batches for one in operands} if raw[0] != "meet" else set()
    axis = raw[6] if raw[0] == "meet" else None
    kinds = [(one.kind, one.layer) if raw[0] == "pass_to" else one.kind for one in operands if raw[0] != "compute"]
    return log.kind(at), raw[named[raw[0]]] if raw[0] in named else None, axis, kinds, batches


def _labels(log: Log, at: int) -> list[Labels]:
    return [log.labels[one] for one in log.operands(at)]


def _is_kept(facts: Mapping[str, Any], own: Log) -> bool:
    """Whether a tensor is in a dictionary at the end, or taken out since the last call of its rank."""
    rank = facts["tensor"].maker.rank
    last = max(at for at, call in enumerate(own.calls) if call[1] == rank and call[0] not in ("store", "drop"))
    for number in own.made(facts["tensor"]):
        rows = [row for row in own.kept if row[2] == number and row[1] != "read"]
        there = Counter((row[3], row[4]) for row in rows if row[1] == "stored")
        there.subtract((row[3], row[4]) for row in rows if row[1] != "stored")
        if any(count > 0 for count in there.values()) or any(row[1] == "taken" and row[0] > last for row in rows):
            return True
    return False


def _made_there(tensor: TensorFact, log: Log) -> bool:
    """Whether a rank has this tensor, made by a call of the same verb."""
    calls = [log.of[at] for at, one in enumerate(log.labels) if one == tensor.labels]
    return any((log.kind(at), log.calls[at][1]) == (tensor.maker.kind, tensor.maker.rank) for at in calls)


def _layer(raw: list[Any]) -> Any:
    return raw[4] if raw[0] == "compute" else raw[5] if raw[0] in NAMED else None


def _layers(log: Log, facts: Mapping[str, Any]) -> set[str]:
    calls = [at for at in log.calls_of(facts["rank"], facts["verb"]) if at not in log.failed]
    return {str(_shown(log, at)[1]) for at in calls}


def _summed(log: Log, number: int) -> list[int]:
    """The tensors that were added up by hand to one, or itself."""
    at = log.of[number]
    parts = log.operands(at) if log.calls[at][0] == "add" else []
    return [leaf for one in parts for leaf in _summed(log, one)] or [number]


def _is_done(log: Log, at: int, call: CallFact) -> bool:
    """Whether a call is of the verb, the rank and the layer of another one."""
    raw = log.calls[at]
    return (raw[1], log.kind(at)) == (call.rank, call.kind) and _layer(raw) == call.layer


def _held(call: CallFact, labels: Labels, log: Log) -> int:
    """How many tensors of a kind, whole or in part, the dictionaries of a rank hold where a call begins."""
    there: dict[tuple[str, str], int] = {}
    for at, way, number, store, key, _ in log.kept:
        if at <= call.at and log.calls[log.of[number]][1] == call.rank and way in ("stored", "taken"):
            there.pop((store, key), None)
            there |= {(store, key): number} if way == "stored" else {}
    like = [log.labels[one] for one in there.values()]
    sorts = [(one.kind, one.is_whole(), one.adapter) for one in like]
    return sorts.count((labels.kind, labels.is_whole(), labels.adapter))


def _given_alike(own: Log, at: int, right: Log, other: int) -> bool:
    """Whether two calls are given the same part of the same, made by the same verb."""
    sides = [[(log.labels[one], log.kind(log.of[one])) for one in log.operands(call)]
             for log, call in ((own, at), (right, other))]  # fmt: skip
    return sides[0] == sides[1]


def _is_twin(own: Log, right: Log, facts: Mapping[str, Any], at: int) -> bool:
    """Whether a call of a right run is written as one of this run, and is given the same."""
    ways = [
        [raw[4], raw[6]] if raw[0] == "compute" else raw[5:7] if raw[0] in NAMED else raw[3:4]
        for raw in (own.calls[facts["call"].at], right.calls[at])
    ]
    return ways[0] == ways[1] and _given_alike(own, facts["call"].at, right, at)


def _looked_up(facts: Mapping[str, Any], own: Log) -> bool:
    """Whether a tensor was not read in a dictionary for another call, which has it at the same line."""
    if (out := facts["out"]) is None or out.way != "read":
        return True
    rows = [row for row in own.kept if row[1] == "read" and row[2] in own.made(facts["tensor"])]
    read = max(row[0] for row in rows if own.places[row[5]][0] == out.line.number and row[0] <= facts["call"].at)
    return out.line.number not in [own.line(at) for at in _read(facts, own) if read <= at < facts["call"].at]


def _open(call: CallFact, log: Log) -> int:
    """How many communications of a rank have begun before a call, and are fetched later, if ever."""
    begun = [at for at in range(call.at) if log.calls[at][1] == call.rank and stream_of(log.kind(at)) in LINKS]
    return len([at for at in begun if log.fetches.get(at, call.at + 1) > call.at])


def _told(call: CallFact | None, awaits: bool) -> str:
    return f"{awaits} {call and call_words(call)}"


def _more(call: CallFact, log: Log, other: Log) -> int:
    """How many more calls of a verb, with operands of these kinds if it is a communication, one run has."""
    counts = []
    for one in (log, other):
        calls = [at for at in range(len(one.calls)) if one.kind(at) == call.kind]
        kinds = [{one.labels[number].kind for number in one.operands(at)} for at in calls]
        counts.append(len(calls) if stream_of(call.kind) == "compute" else kinds.count({*call.carries}))
    return counts[0] - counts[1]


TESTS: Mapping[str, Any] = {
    "given": _given,
    "look_at": lambda facts, own, right: _given(facts, own, right) and _looked_up(facts, own),
    "is_in": _is_stored,
    "unread": lambda facts, own, right: not _read(facts, own),
    "read_last": lambda facts, own, right: (
        max(_read(facts, own)) == facts["call"].at
        and facts["call"].kind != "pass_to"
        and (facts["kept"] is not None or not _is_kept(facts, own))
    ),
    "result_lost": lambda facts, own, right: (
        facts["call"].at in _read(facts, own) and not (facts["flying"] and facts["call"].at in own.fetches)
    ),
    "not_made": lambda facts, own, right: not _made_there(facts["right"], own),
    "comes_next": lambda facts, own, right: not [at for at in own.failed if _is_done(own, at, facts["right"])],
    "gone": lambda facts, own, right: _given(facts, own, right) and not _is_kept(facts, own),
    "dead": lambda facts, own, right: all(at < facts["call"].at for at in _read(facts, own)),
    "held": lambda facts, own, right: (
        facts["count"]
        == _held(facts["call"], facts["tensor"].labels, own) - _held(facts["right"], facts["tensor"].labels, right)
    ),
    "unawaited": lambda facts, own, right: facts["call"].at not in own.fetches,
    "waits": lambda facts, own, right: facts["call"].at not in own.fetches and facts["rank"] not in own.ended(),
    "returned": lambda facts, own, right: set(facts["ranks"]) == own.ended(),
    "again": lambda facts, own, right: (
        facts["earlier"].at < facts["call"].at
        and len(_alike(own, facts["call"], own)) > facts["right_count"]
        and facts["right_count"] == len(_alike(right, facts["call"], own))
    ),
    "goes_elsewhere": lambda facts, own, right: (
        facts["right_reader"].at in (read := _read({"tensor": facts["right"]}, right))
        and _shown(own, facts["call"].at) not in [_shown(right, at) for at in read]
    ),
    "takes_again": lambda facts, own, right: bool(
        set(own.calls[facts["call"].at][3]) & set(own.calls[facts["earlier"].at][3])
    ),
    "other_call": lambda facts, own, right: (
        call_words(facts["call"]) != call_words(facts["right"])
        and not [at for at in right.calls_of(facts["call"].rank, facts["call"].kind) if _is_twin(own, right, facts, at)]
        and _given_alike(own, facts["call"].at, right, facts["right"].at)
    ),
    "no_final": lambda facts, own, right: (
        facts["rank"] in own.ended()
        and not [at for at in own.calls_of(facts["rank"], "set_final_weight") if own.calls[at][3] == facts["layer"]]
    ),
    "layers": lambda facts, own, right: (
        [_layers(log, facts) for log in (own, right)] == [set(facts["layers"]), set(facts["right_layers"])]
    ),
    "stored_over": lambda facts, own, right: any(
        row[1] == "stored"
        and own.places[row[5]][0] == facts["line"].number
        and row[2] in own.made(facts["over"])
        and not set(own.made(facts["tensor"])) & set(_summed(own, row[2]))
        for row in own.kept
    ),
    "other_peer": lambda facts, own, right: facts["call"].peer != facts["right"].peer,
    "first_through": lambda facts, own, right: (
        bool(facts["right_steps"])
        and _shown(own, facts["reader"].at) != _shown(right, facts["right_steps"][0].at)
        and _given({"tensor": facts["tensor"], "call": facts["reader"]}, own, right)
    ),
    "comes_from": lambda facts, own, right: (
        _given(facts, own, right)
        and (
            (facts["tensor"].labels, facts["tensor"].maker.kind) != (facts["right"].labels, facts["right"].maker.kind)
            or facts["tensor"].maker.axis != facts["right"].maker.axis
        )
    ),
    "departs": lambda facts, own, right: (
        _told(facts["call"], facts["awaits"]) != _told(facts["right"], facts["right_awaits"])
        and (facts["call"] is not None or facts["rank"] in own.ended() or facts["ends"] == "fails")
    ),
    "flying": lambda facts, own, right: facts["count"] == _open(facts["peak"], own) > facts["right_count"],
    "more_often": lambda facts, own, right: facts["count"] == _more(facts["call"], own, right),
}
"""What a sentence says beside its facts, by the name of its statement, as a test on both recordings."""
