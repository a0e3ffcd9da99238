"""Why a run is wrong, slow or large: found in its notes, and beside those of a right run, without any special case.

Two questions need the run alone: what was given to the call that failed, and where does it come from. The others need a
right run: in what do the operands differ, does a call come too often, who could go on, what comes otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from ..basics.errors import NOWHERE, Place
from ..course.layouts import Size
from ..machine.cost import Cost
from ..machine.failure import Failure
from ..recording.diary import LONGEST_KEY, STORED
from .compare import Comparison, Reference, nearest, whereabouts
from .costs import larger, slower
from .lineage import on_the_way, out_of
from .notes import ADD, NO_LINE, STORE, Call, Line, Notes, noted
from .spelling import spelled
from .statement import LOOK_AT, Explanation, Statement, fact, say

PLACES = {LOOK_AT, "other_peer", "other_call", "goes_elsewhere", "lacks_operand", "departs", "again"}
PLACES |= {"stored_over", "takes_again"}
"""The statements on operands that name a line to look at."""
VALUES = {"no_final_weight", "incomplete", "not_updated", "wrong_value", "frozen_changed", "wrong_part"}
"""The rules of what a run ends with, which are broken where the values of its final weights come from."""
MOST = 4  # statements on operands, and on what a call needs


class Wrong(NamedTuple):
    """The facts of an error: the number of its line, or 0; those of its rule by name, as text; what it has got."""

    place: Place
    rule: str
    line: int
    facts: Mapping[str, str]
    got: str
    operands: frozenset[str]


def facts_of(error: Any) -> Wrong:
    """Return the facts of an error. A learner may raise one with anything in it, or nothing."""
    place, rule, facts = getattr(error, "place", NOWHERE), getattr(error, "rule", ""), getattr(error, "facts", {})
    found = re.match(r"line (\d+)", str(getattr(error, "line", "")))
    return Wrong(
        place if isinstance(place, Place) else NOWHERE,
        rule,
        int(found[1]) if found else 0,
        {name: str(one)[:LONGEST_KEY] for name, one in facts.items()},
        str(getattr(error, "got", "")),
        frozenset(map(str, getattr(error, "operands", ()))),
    )


def explain(
    recording: Mapping[str, Any],
    error: Exception | None,
    references: Sequence[Reference],
    size: Size,
    cost: str | Cost,
    source: str = "",
    own_size: Size | None = None,
    over: Collection[str] = ("time", "memory"),
) -> Explanation:
    """Return why a recorded run is wrong or, where there is no ``error``, why it is slower or larger than another.

    ``references``: right runs at this size; without any, less is said. ``size`` and ``cost`` are those of the run,
    ``own_size`` is the puzzle's own. ``source``: the text of the program, as far as it is known. ``over``: which
    figures of a right run are over its target.
    Raise ProtocolError for what is no recording."""
    notes = noted(recording, size, cost)
    comparison = nearest(notes, references, any_way=error is None)
    name = comparison.reference.name if comparison is not None else ""
    written = frozenset(call.line.text for call in notes.all_calls())
    if error is None:
        return _of_costs(comparison, over)._replace(reference=name, written=written)
    wrong = facts_of(error)
    notes.until = inf if wrong.place.tick is None else float(wrong.place.tick)
    found = Explaining(notes, wrong, comparison).explanation()
    text = [*spelled(source, size, own_size or size)] if source else []
    given = (*found.given, *text[0 if found.look_at else 1 :])
    return found._replace(look_at=found.look_at or tuple(text[:1]), given=given, reference=name, written=written)


def _of_costs(comparison: Comparison | None, over: Collection[str]) -> Explanation:
    if comparison is None or (own := comparison.notes.outcome) is None or (right := comparison.right.outcome) is None:
        return Explanation(NOWHERE)
    told: list[tuple[Any, list[Statement]]] = []
    if "time" in over and own.time > right.time:
        found, order = [*slower(comparison)], [*comparison.order(awaits=True), *comparison.order()]
        order = [one for one in order if one.facts["awaits"] or not one.facts["right_awaits"]][:1]  # no later await
        more = [one.facts["call"].kind for one in found if one.name == "more_often"]
        seen = [one for one in order if not more or getattr(one.facts["call"], "kind", "") in more]
        told.append((own.time / right.time, found if found and found[0].name in PLACES else [*seen, *found]))
    if "memory" in over and own.memory > right.memory:
        found = [*larger(comparison)] or [one for one in slower(comparison) if one.name in PLACES]
        told.append((own.memory / right.memory, found))
    statements = [one for _, part in sorted(told, key=lambda part: -float(part[0])) for one in part]
    return Explanation(NOWHERE, (), tuple(statements[:1]), tuple(statements[1:]), compared_with="the target's run")


class Explaining:
    """One wrong run that is explained."""

    def __init__(self, notes: Notes, wrong: Wrong, comparison: Comparison | None) -> None:
        self.notes, self.wrong, self.comparison = notes, wrong, comparison
        self.given, self.looks, self.differences = list[Statement](), list[Statement](), list[Statement]()

    def explanation(self) -> Explanation:
        """Return the explanation."""
        wrong = self.wrong
        failed = self.notes.failed(wrong.place.rank, wrong.operands) or self._refused()
        if wrong.rule == "deadlock":
            self._deadlock()
        elif failed is not None:
            self._of_call(failed)
        elif wrong.rule == "not_stored":
            self._of_key()
        else:
            self._of_the_end()
        return Explanation(wrong.place, tuple(self.given), tuple(self.looks), tuple(self.differences))

    def _refused(self) -> Call | None:
        """Return a call that was given a tensor which it does not take: it is not on the machine, nor its options."""
        place, calls = self.wrong.place, self.notes.calls.get(self.wrong.place.rank or 0, ())
        given = [one for call in calls for one in call.results if str(one.labels) == self.wrong.got][-1:]
        if not given or not place.operation or place.rank is None or place.rank in self.notes.finished:
            return None
        end, line, wants = self.notes.end, Line(self.wrong.line), self.wrong.facts.get("kind", "")
        facts: dict[str, Any] = {"batches": given[0].labels.batches, "operands": given, "failed": True, "wants": wants}
        layer = given[0].labels.layer if place.layer is None else place.layer
        return Call(end, place.rank, place.operation, layer, line, given[0].call.tick, end, **facts)

    def _of_call(self, failed: Call) -> None:
        """Explain a call that has failed."""
        rule, comparison, reader = self.wrong.rule, self.comparison, failed
        failed = failed.operands[0].call if failed.kind == STORE else failed  # what is stored is looked at only then
        told = [*comparison.otherwise(failed, rule)] if comparison is not None and failed.at < self.notes.end else []
        given = sorted(failed.operands, key=lambda one: one.labels.layer == failed.layer) if reader is failed else []
        if rule == "not_kept" and not told:
            lost = [one for one in reader.operands if one.labels.in_words() == self.wrong.facts.get("tensor")][:1]
            left = [next((kept for kept in reversed(one.kept) if kept.way != STORED), None) for one in lost]
            self.looks = [say("gone", tensor=one, call=reader, out=out) for one, out in zip(lost, left, strict=True)]
        if comparison is not None:
            if failed.kind != ADD or rule == "counted_twice":  # otherwise either operand may be the wrong one
                told = told or [*comparison.operands(failed)]
            if rule == "calls_differ":  # it is the order of the calls that differs, and not what they bring
                told = [one for one in told if one.name == "other_call"] or self._differ(comparison)
            self._tell(told)
            about = [one.facts["tensor"].labels for one in (*self.looks, *self.differences) if one.facts.get("tensor")]
            if about:  # only of operands that this is in, and as near as it is
                ways = [[back.labels for back, _ in on_the_way(None, replace(failed, operands=[one]))] for one in given]
                far = [min((way.index(one) for one in about if one in way), default=inf) for way in ways]
                given = [one for one, steps in zip(given, far, strict=True) if steps == min(far) < inf]
            elif self.looks or self.differences:
                given = given[:1]
            elif rule != "counted_twice":
                self._next(comparison, failed.rank)
        given = given[:MOST] if rule != "not_kept" else []
        self.given += [say("given", tensor=one, call=failed, out=out_of(one, failed)) for one in given]

    def _differ(self, comparison: Comparison) -> list[Statement]:
        """Return which one of two ranks departs from the order of collectives in a right run, if only one does."""
        ranks = [self.wrong.facts.get(name) for name in ("one", "other")]
        order = comparison.order(streams=("collective",))
        departs = [one for one in order if str(one.facts["rank"]) in ranks and one.facts["call"]]
        return departs if len(departs) == 1 else []

    def _tell(self, statements: Iterable[Statement]) -> None:
        """Take over what was found beside the right run, the first place to look at among it."""
        found = [*statements]
        lines = [one for one in found if one.name in PLACES and one.facts.get("line", LOOK_AT) not in (None, NO_LINE)]
        self.looks += lines[: self.wrong.rule != "wrong_value" or self.wrong.place.rank is not None]  # else it is quiet
        self.differences += [one for one in found if one.name != LOOK_AT and one not in self.looks]

    def _of_key(self) -> None:
        """Explain that a dictionary was asked for what it has not."""
        rank, (store, key) = self.wrong.place.rank or 0, (self.wrong.facts.get(name, "") for name in ("store", "key"))
        kept = self.notes.kept.get((rank, store, key), [])
        if kept:
            reader = next((call for call in kept[-1].tensor.readers if call.at > kept[-1].at), None)
            self.given.append(say("key_gone", kept=kept[-1], tensor=kept[-1].tensor, reader=reader))
        else:
            last = [one[-1] for where, one in self.notes.kept.items() if where[:2] == (rank, store)]
            left = [one for one in last if one.way == STORED and not one.tensor.looked_up]
            for one in sorted(left, key=lambda one: one.at)[-1:]:  # what was stored last, and nobody has read there
                self.given += whereabouts(one.tensor, self.notes)
        if self.comparison is not None:
            self._next(self.comparison, rank)
        if kept and kept[-1].line.number != self.wrong.line:
            self.looks, self.given = self.given, []

    def _of_the_end(self) -> None:
        """Explain what was found after the run, or before a call has come to the machine, or was raised between two."""
        comparison, place = self.comparison, self.wrong.place
        rank = place.rank if place.rank in self.notes.calls else None
        if rank is not None and rank not in self.notes.finished:
            if self.wrong.rule == "forgot_await":  # a communication came in the place of its result
                calls = [one for one in self.notes.work(rank) if one.stream != "compute" and one.fetched is None]
                near = sorted(calls, key=lambda one: (one.layer == place.layer, one.at))
                self.looks += [say("unawaited", call=call) for call in near[-1:]]
            elif comparison is not None:
                self._next(comparison, rank)
        elif comparison is not None:
            ends = self.wrong.rule in VALUES and self.wrong.facts.get("when") != "begins"
            if ends:
                self._tell(comparison.finals(rank, place.layer))
            self.differences = self.differences or [*comparison.layers()]
            if not self.differences and ends:
                self._next(comparison, rank or 0)

    def _next(self, comparison: Comparison, rank: int) -> None:
        """Say what a rank comes to next in the right run; of a key, and at the end, where this run departs from it."""
        self.differences += comparison.layers()
        self.differences += [*comparison.next_on(rank, self.wrong.facts.get("store", ""), self.wrong.place)][: MOST + 1]
        if self.wrong.rule == "not_stored" or rank in self.notes.finished:
            known = [*map(fact, comparison.beyond(self.notes, comparison.right, rank))]  # not those in another order
            known += [None] * (rank in self.notes.finished)
            departs = [one for one in comparison.order() if one.facts["rank"] == rank and one.facts["call"] in known]
            self._tell(departs[: not self.looks])

    def _deadlock(self) -> None:
        """Explain that no rank can ever go on."""
        self.given += self._waits()
        if (comparison := self.comparison) is None:
            return
        order = comparison.order(streams=("collective", "message"), stuck=True)
        self._tell(order[:1])
        self.differences += [*comparison.layers(), *order[1:2]]

    def _waits(self) -> Iterator[Statement]:
        """Yield who waits for whom: of each line one rank, those first that wait for each other."""
        seen: set[int] = set()
        knot = Failure("", NOWHERE, 0.0, tuple(wait for _, wait, _ in self.notes.waits.values())).knot()
        for rank in dict.fromkeys([*knot, *sorted(self.notes.waits)]):
            _, wait, call = self.notes.waits.get(rank, (None, None, None))
            if call is not None and wait is not None and (call.line.number not in seen or rank in knot[:2]):
                seen.add(call.line.number)
                others = () if call.peer is not None else tuple(one for one in wait.others if one != rank)
                yield say("waits", rank=rank, call=call, ranks=others, unposted=wait.unposted)
        if self.notes.finished:
            yield say("returned", ranks=tuple(sorted(self.notes.finished)))
