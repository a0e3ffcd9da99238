"""The longest chain of a run: its sum is the run's time, each of its links is a cause, and slack is exact."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from fractions import Fraction
from itertools import count, pairwise
from typing import Any

import pytest

from lib import Cost, Model, PuzzleError, RingCost, WireCost, run
from lib.course.specs import cost_named, puzzles
from lib.grading.submission import load
from lib.machine.cost import TimeUnits
from lib.machine.in_flight import RankLinks
from lib.machine.network import Network
from lib.record.events import Event
from lib.record.figures.chain import Chain, chain_of, slack_of
from lib.running.run import Run
from tests.corpus.honest import HONEST
from tests.plain_programs import inputs_at_will, perform, program_of
from tests.programs import small_size, solutions
from tests.slow import some
from tests.steps import lines_run

ALL = [pytest.param(fn, spec, id=spec["name"]) for fn, spec in solutions()]
SMALL = [pytest.param(fn, spec, id=spec["name"]) for fn, spec in solutions(small=True)]
SOME = some(SMALL, 3)
ON_LINKS = [one for one in SOME if not isinstance(cost_named(one.values[1].get("cost", "default")), WireCost)]
"""Where messages are taken in one at a time, how long a receive takes depends on others. Slack is not for that."""
SEEDS = range(400)
BY_TIME = 148
"""A random program that joins collectives in whatever order its messages come. Where one is late, it is stuck."""
SUMS = {
    "basic": "17 = 8 forward + 8 backward + 1 update",
    "ddp": "5.6 = 2 forward + 2 backward + 1 update + 0.6 all-reduce",
    "gpipe": "33.8 = 14 forward + 14 backward + 4.8 messages + 1 update",
    "pipeline_fsdp": "16 = 4 forward + 4 backward + 2.4 all-gather + 2.4 messages + 2 update + 1.2 reduce-scatter",
    "zero_bubble": "20.5 = 11 forward + 5.5 backward for the input + 3.5 backward for the weight + 0.5 update",
    "checkpointing": "48.18 = 30.18 backward + 12 forward + 6 update",
    "offload": "68 = 33 update + 21 backward + 12 forward + 2 messages",
    "compose": "13.90769549 = 8.577001782 backward + 4.489170037 forward + 0.269875168 loss + 0.245134535 "
    "reduce-scatter + 0.245134535 all-gather + 0.069666914 messages + 0.011712516 update",
}


def played(fn: Callable[[Model], Any], spec: dict[str, Any], cost: Cost | None = None) -> Run:
    return run(fn, **spec["size"], cost=cost or cost_named(spec.get("cost", "default")))


def random_runs(seeds: Sequence[int] = SEEDS) -> Iterator[tuple[Callable[[Model], Any], dict[str, Any], Run]]:
    """Random programs that come to their end, with several coroutines in a rank."""
    for seed in seeds:
        program = program_of(random.Random(seed), linked=False)
        try:
            yield perform(program), program.size, run(perform(program), **program.size)
        except PuzzleError:
            continue


def check_chain(done: Run) -> Chain:
    """The chain covers all of the run, and each link is a cause."""
    chain = chain_of(done.events)
    assert chain.time == done.time
    if not done.time:
        return chain
    assert chain.links[0].entered.start == 0.0
    assert all(came.op == went.op and came.kind == went.kind for came, went in chain.links)
    assert all(came is went or came.stream == "collective" for came, went in chain.links)
    for (_, before), (after, _) in pairwise(chain.links):
        assert before.end == after.start and is_cause(before, after, done.events), (before, after)
    exact = sum(Fraction(event.end) - Fraction(event.start) for _, event in chain.links)
    assert exact == Fraction(done.time)
    assert abs(sum(Fraction(str(ticks)) for ticks, _ in chain.parts) - Fraction(done.time)) < Fraction(1, 10**7)
    return chain


def is_cause(before: Event, after: Event, events: Sequence[Event]) -> bool:
    """Whether one operation has to end before the other can begin, said plainly."""
    if after.kind == "receive" and before.kind == "pass_to" and before.op == after.op:
        return True
    if before.rank != after.rank:  # where sends wait: the receive of this message was posted then
        asked = [one for one in events if one.kind == "receive" and (one.op, one.rank) == (after.op, before.rank)]
        return after.kind == "pass_to" and any(before.end in (one.issued, one.ready) for one in asked)
    log = [event for event in events if event.rank == after.rank]
    first, second = (next(at for at, one in enumerate(log) if one is event) for event in (before, after))
    network = [at for at, one in enumerate(log) if one.stream == "collective" or one.kind == "pass_to" or one.slot]
    if first in network and second in network and network.index(second) == network.index(first) + 1:
        return True
    if before.kind == after.kind == "receive":
        between = [one for one in log if one.kind == "receive" and before.start < one.start < after.start]
        if not between:
            return True
    fetched = [place for one in log[: second + 1] for place in one.awaited]
    known = first < second if before.stream == "compute" else first in fetched
    return known and after.issued == after.start


@pytest.mark.parametrize(("fn", "spec"), ALL)
def test_the_sum_of_a_solution(fn: Callable[[Model], Any], spec: dict[str, Any]) -> None:
    done = played(fn, spec)
    total = str(check_chain(done))
    assert total == SUMS.get(spec["name"], total) and total.startswith(f"{done.time:.10g} = ")


def test_the_honest_corpus_has_such_chains() -> None:
    for program in some(HONEST, 8):
        names, *_ = load("attempt.py", program.source)
        spec, size = puzzles()[program.puzzle], small_size(program.puzzle)
        check_chain(run(names[program.puzzle], **size, cost=cost_named(spec.cost)))


@pytest.mark.usefixtures(inputs_at_will.__name__)
def test_random_programs_have_such_chains() -> None:
    seen = Counter[str]()
    seeds = some(SEEDS, 3)
    for _, _, done in random_runs(seeds):
        chain = check_chain(done)
        seen.update(event.kind for event in chain.events)
        seen["runs"] += 1
        seen["changes rank"] += sum(came is not went for came, went in chain.links)
        seen["no time"] += sum(not event.length for event in chain.events)
    share = len(seeds) / len(SEEDS)
    assert seen["runs"] > 200 * share and seen["changes rank"] > 20 * share and seen["no time"] > 5 * share
    kinds = ("forward", "backward", "pass_to", "receive", "allgather", "allreduce")
    assert min(seen[kind] for kind in kinds) > 20 * share


def test_prices_that_are_no_round_numbers() -> None:
    for fn, spec in some([*solutions(small=True)], 3):
        check_chain(played(fn, spec, RingCost(latency=Fraction(1, 30), bandwidth=700_000, forward=0.7)))


def longer(base: Cost, lane: str, nth: int, more: Fraction) -> Cost:
    """The same prices, but the ``nth`` operation of a lane that the machine decides takes so many ticks more."""
    asked = count()

    class Longer(type(base)):  # type: ignore[misc]
        def extra(self, its_lane: str) -> TimeUnits:
            return self.in_time_units(more) if its_lane == lane and next(asked) == nth else 0

        def compute(self, *what: Any) -> TimeUnits:
            return super().compute(*what) + self.extra("compute")

        def compute_on_host(self, *what: Any) -> TimeUnits:
            return super().compute_on_host(*what) + self.extra("compute")

        def meeting(self, *what: Any) -> TimeUnits:
            return super().meeting(*what) + self.extra("collective")

        def message(self, *what: Any) -> TimeUnits:
            return base.message(*what) + self.extra("send")

        def transfer_to_host(self, *what: Any) -> TimeUnits:
            return super().transfer_to_host(*what) + self.extra("send")

    made: Cost = Longer(**{field.name: getattr(base, field.name) for field in fields(base)})
    return made


def lengthened(
    fn: Callable[[Model], Any], size: dict[str, Any], cost: Cost, lane: str, nth: int, more: Fraction
) -> Run:
    """A run in which one operation takes so many ticks more."""
    if lane != "receive":
        return run(fn, **{**size, "cost": longer(cost, lane, nth, more)})
    asked = count()
    receive = Network._receive

    class Slower:
        """The prices while one receive is worked out: its own is the first that is asked for."""

        receiving = cost.receiving + cost.in_time_units(more)

        def __getattr__(self, name: str) -> Any:
            return getattr(cost, name)

    def one_longer(self: Network, *what: Any) -> None:
        if next(asked) != nth:
            return receive(self, *what)
        note, self.cost = self._note_candidate, Slower()  # type: ignore[assignment]

        def noted(lanes: Any) -> None:
            self.cost = cost
            note(lanes)

        self._note_candidate = noted  # type: ignore[method-assign]
        try:
            receive(self, *what)
        finally:
            del self._note_candidate
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Network, "_receive", one_longer)
        return run(fn, **{**size, "cost": cost})


def noted_calls(patch: pytest.MonkeyPatch) -> dict[int, list[tuple[object, ...]]]:
    """What each rank starts from now on, in this order."""
    started: dict[int, list[tuple[object, ...]]] = {}

    def noted(name: str, known: int) -> Callable[..., Any]:
        start = getattr(Network, name)

        def note(self: Network, links: RankLinks, *what: Any) -> Any:
            started.setdefault(links.rank.rank, []).append((name, *what[:known]))
            return start(self, links, *what)

        return note

    for name, known in {"meet": 3, "send": 1, "receive": 1}.items():
        patch.setattr(Network, name, noted(name, known))
    return started


def tried(fn: Callable[[Model], Any], size: dict[str, Any], cost: Cost, *longer: Any) -> Run | None:
    """A run in which one operation takes more ticks. None if it fails, which it does only where some rank has started
    its calls in another order: two ranks that join the same two collectives in opposite orders wait for each other, on
    the machine as on GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        started = noted_calls(patch)
        try:
            return lengthened(fn, size, cost, *longer)
        except PuzzleError:
            before_it_failed = dict(started)
        started.clear()
        run(fn, **{**size, "cost": cost})
    assert any(calls != started[rank][: len(calls)] for rank, calls in before_it_failed.items())
    TOLD["fails"] += 1
    return None


def order_of(done: Run) -> list[tuple[object, ...]]:
    """What happens on each rank in which order, whatever the time."""
    receives = [event for event in done.events if event.kind == "receive"]
    served = [(event.rank, event.op) for event in sorted(receives, key=lambda event: (event.rank, event.end))]
    logs = [(e.rank, e.kind, e.layer, e.batches, e.op, e.group, sorted(e.awaited)) for e in done.events]
    return [*logs, *served]


LITTLE = Fraction(1, 10)
TOLD: Counter[str] = Counter()


def check_slack(fn: Callable[[Model], Any], size: dict[str, Any], done: Run, chance: random.Random, tries: int) -> None:
    """Some operations are made longer: by their slack, which changes nothing, and by a little more, which the run is
    longer for, by just that. On the chain that is the first tick already."""
    cost, order = done.cost, order_of(done)
    rooms = slack_of(done.events)
    on_chain = {id(event) for event in chain_of(done.events).events}
    assert min(rooms, default=0) >= 0
    assert all(not room for event, room in zip(done.events, rooms, strict=True) if id(event) in on_chain)
    lanes = {"compute": "compute", "collective": "collective", "pass_to": "send", "receive": "receive"}
    once = {event.op if event.stream == "collective" else id(event): event for event in done.events}.values()
    kinds = [event.kind if event.stream == "message" else event.stream for event in once]
    amounts = {lanes[kind]: kinds.count(kind) for kind in lanes if kind in kinds}
    for _ in range(tries if amounts else 0):
        lane = chance.choice(list(amounts))
        nth = chance.randrange(amounts[lane])
        probe = tried(fn, size, cost, lane, nth, Fraction(1, 1000))
        if probe is None or len(probe.events) != len(done.events):
            continue  # another order, and another story
        grown = [
            at for at, (one, two) in enumerate(zip(done.events, probe.events, strict=True))
            if abs(one.length - two.length) > 1e-6
        ]  # fmt: skip
        if not grown or order_of(probe) != order:
            TOLD["none or another"] += 1
            continue
        [room] = {rooms[at] for at in grown}  # one operation, or all parts of a collective
        exact = Fraction(room).limit_denominator(max(5000, cost.per_tick))
        within, beyond = (tried(fn, size, cost, lane, nth, exact + more) for more in (Fraction(0), LITTLE))
        if within is not None and order_of(within) == order:
            assert within.time == done.time, (lane, nth, room)
            TOLD[f"{lane}: {'room' if room else 'no room'}"] += 1
        else:
            TOLD["overtaken"] += 1
        if beyond is not None and order_of(beyond) == order:
            assert abs(beyond.time - done.time - float(LITTLE)) < 1e-9, (lane, nth, room)
            TOLD["longer"] += 1


@pytest.mark.parametrize(("fn", "spec"), ON_LINKS)
def test_slack_of_a_solution(fn: Callable[[Model], Any], spec: dict[str, Any]) -> None:
    TOLD.clear()
    check_slack(fn, spec["size"], played(fn, spec), random.Random(1), 8)
    assert TOLD["longer"] >= 5 and not TOLD["overtaken"], TOLD


@pytest.mark.usefixtures(inputs_at_will.__name__)
def test_slack_of_random_programs() -> None:
    TOLD.clear()
    seeds = [BY_TIME, *[seed for seed in some(SEEDS) if seed != BY_TIME]]
    for at, (fn, size, done) in enumerate(random_runs(seeds)):
        check_slack(fn, size, done, random.Random(at), 3)
    share = len(seeds) / len(SEEDS)
    assert TOLD["longer"] > 150 * share and TOLD["overtaken"] + TOLD["fails"] < TOLD["longer"] / 3
    assert TOLD["fails"]
    for lane in ("compute", "collective", "send", "receive"):
        assert min(TOLD[f"{lane}: room"], TOLD[f"{lane}: no room"]) >= int(6 * share)


def test_no_time_is_nothing() -> None:
    assert str(chain_of([])) == "0 = nothing" and slack_of([]) == []
    assert chain_of(run(lambda model: model).events).links == ()


def test_a_log_that_is_not_whole_is_refused() -> None:
    [(fn, spec)] = [(fn, spec) for fn, spec in solutions() if spec["name"] == "gpipe"]
    alone = [event for event in played(fn, spec).events if event.rank == 0]
    with pytest.raises(PuzzleError, match="nothing explains why receive begins"):
        chain_of(alone)


def test_an_event_takes_as_long_among_many() -> None:
    [fn] = [fn for fn, spec in solutions() if spec["name"] == "gpipe"]
    taken = []
    for batches in (30, 120):
        done = run(fn, ranks=16, layers=32, batches=batches)
        assert chain_of(done.events).time == done.time
        taken.append(lines_run(lambda events=done.events: chain_of(events)) / len(done.events))
    assert len(done.events) > 10_000
    assert taken[1] < 1.1 * taken[0]  # an event takes as much work among four times as many
