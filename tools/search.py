"""Search for schedules that are faster or smaller than those of a puzzle's frontier.

    python -m tools.search PUZZLE [--seconds N] [--seed N] [--begin PROGRAM ...] [--show TICKS] [--keep FILE]

Every program of the puzzle's file is run once, and what each rank does is written down as a list of steps: a call is
started, its result is awaited, a layer is computed, a gradient is added. Then the search changes these lists a little
at a time, runs them, and keeps what is right and better than what it knew:

- a step moves to another place, with all that it needs or that needs it: so calls start earlier, results are awaited
  later, another layer or micro-batch comes next, updates fill gaps;
- a weight that is gathered twice is kept from the first time.

Whatever a step gives is stored until the last step that needs it, and what is updated or frozen to the end, so a list
takes as little memory as its order allows. Ranks whose lists are of one form change together. Within the target, the
front of the fastest and smallest is printed.

The search is at random, and proves nothing. It knows the puzzle's own size only, makes no operation again that the
program makes once, changes one form of rank at a time, and moves no work to another rank. What it finds is to be
written as a program for all sizes, by hand, and a program with the same idea throughout is often better still.
"""

import argparse
import inspect
import math
import pickle
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from lib import Model, PuzzleError, run
from lib.basics.units import Elements, show_ticks
from lib.course.specs import Puzzle, cost_named, find
from lib.grading.judge import check
from lib.grading.submission import load
from lib.learner import tensors
from lib.record.kinds import KINDS
from lib.record.table import in_stream

SOLUTIONS = Path(__file__).resolve().parent.parent / "solutions"
CALLS = (*in_stream("collective"), *in_stream("message"))
FIXED = ("load_weights", "load_adapter")  # what is held from the beginning is loaded there
STEPS = (
    *FIXED,
    *("get_activation", "fake_grad", "set_final_weight"),
    *in_stream("compute"),
)


class Step(NamedTuple):
    """One step of a rank: an operation or the start of a call, by its verb, or ``await``; values have numbers."""

    verb: str
    args: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]
    gives: tuple["Value", ...]

    def needs(self) -> Iterable["Value"]:
        """Yield the values among its operands."""
        for one in (*self.args, *(value for _, value in self.options)):
            if isinstance(one, Value):
                yield one
            elif isinstance(one, list):
                yield from (each for each in one if isinstance(each, Value))

    def with_value(self, old: "Value", new: "Value") -> "Step":
        """Return the same step with another operand in the place of one."""

        def other(one: Any) -> Any:
            return [other(each) for each in one] if isinstance(one, list) else new if one == old else one

        return self._replace(
            args=tuple(map(other, self.args)), options=tuple((name, other(value)) for name, value in self.options)
        )


class Value(NamedTuple):
    """What a step gives, by number: a tensor, or a call that has been started."""

    number: int


Schedule = list[Step]


# -- to write down what a program does -----------------------------------------------------------------------------


class Notes:
    """A model that writes down what the program does with it."""

    def __init__(self, model: Model, known: dict[int, tuple["Notes", Any, Value]]) -> None:
        self._model, self.steps, self._known, self._numbers = model, list[Step](), known, 0

    def value(self, thing: Any) -> Value:
        """Return a number for a tensor or a call."""
        self._numbers += 1
        self._known[id(thing)] = (self, thing, Value(self._numbers))  # it is kept, so that no other has its id
        return Value(self._numbers)

    def note(self, verb: str, args: Sequence[Any], options: dict[str, Any], given: Any) -> None:
        """Note a step and what it has given."""

        def plain(one: Any) -> Any:
            if isinstance(one, (list, tuple, range)):
                return [plain(each) for each in one]
            return self._known[id(one)][2] if id(one) in self._known else one

        results = given if isinstance(given, (list, tuple)) else () if given is None else (given,)
        named = tuple((name, plain(value)) for name, value in options.items())
        operands = tuple(map(plain, args))
        self.steps.append(Step(verb, operands, named, tuple(map(self.value, results))))

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._model, name)
        if name in CALLS:
            return lambda *args, **options: Awaited(self, name, args, options, own(*args, **options))
        if name not in STEPS:
            return own

        def noted(*args: Any, **options: Any) -> Any:
            given = own(*args, **options)
            self.note(name, args, options, given)
            return given

        return noted


class Awaited:
    """A call under way, in a program that is written down."""

    def __init__(self, notes: Notes, verb: str, args: Any, options: dict[str, Any], call: Any) -> None:
        self.notes, self.call = notes, call
        self.given: list[Any] = []
        notes.note(verb, args, options, self)

    def __await__(self) -> Any:
        if not self.given:
            given = yield from self.call.__await__()
            self.given.append(given)
            self.notes.note("await", (self,), {}, self.given[0])
        return self.given[0]


@contextmanager
def noting(known: dict[int, tuple[Notes, Any, Value]]) -> Iterator[None]:
    """Note what is done with tensors themselves, too: sums, and pieces that are cut out."""
    before = [
        (kind, name, vars(kind)[name])
        for kind in vars(tensors).values()
        if inspect.isclass(kind)
        for name in ("__add__", "shard", "combine")
        if name in vars(kind)
    ]

    def noted(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, *args: Any) -> Any:
            given = own(self, *args)
            if id(self) in known and given is not self:
                known[id(self)][0].note(name.strip("_"), (self, *args), {}, given)
            return given

        return method

    for kind, name, own in before:
        setattr(kind, name, noted(name, own))
    try:
        yield
    finally:
        for kind, name, own in before:
            setattr(kind, name, own)


def schedules_of(program: Callable[[Any], Any], puzzle: Puzzle) -> list[Schedule]:
    """Return the steps of each rank in a program."""
    notes: dict[int, Notes] = {}
    known: dict[int, tuple[Notes, Any, Value]] = {}

    async def noted(model: Model) -> Model:
        notes[model.rank] = Notes(model, known)
        done = program(notes[model.rank])
        if inspect.isawaitable(done):
            await done
        return model

    with noting(known):
        run(noted, **puzzle.size, cost=cost_named(puzzle.cost))
    return [notes[rank].steps for rank in sorted(notes)]


# -- to run a list of steps ----------------------------------------------------------------------------------------


def stays(step: Step, adapters: bool) -> tuple[Value, ...]:
    """Return what a rank keeps to its end of what a step gives: what is updated, and frozen weights."""
    if step.verb == "update":
        return step.gives
    return step.gives[:1] if adapters and step.verb == "load_weights" else ()


async def follow(model: Model, schedules: Sequence[Schedule], adapters: bool = False) -> Model:
    """Do the steps of the rank. Each tensor is stored from the step that gives it until the last that needs it."""
    steps = schedules[model.rank]
    last = {value: at for at, step in enumerate(steps) for value in step.needs()}
    for step in steps:
        for value in stays(step, adapters):
            last[value] = len(steps)
    calls: dict[Value, Any] = {}
    where: dict[Value, Any] = {}

    hand: dict[Value, Any] = {}

    def keep(value: Value, tensor: Any, at: int) -> None:
        if last.get(value, -1) == at + 1 < len(steps):
            hand[value] = tensor
        elif last.get(value, -1) > at:
            where[value] = getattr(model, KINDS[type(tensor).__name__].store)
            where[value]["value", value.number] = tensor

    def operand(one: Any, at: int) -> Any:
        if isinstance(one, list):
            return [operand(each, at) for each in one]
        if not isinstance(one, Value):
            return one
        if one in hand:
            return hand.pop(one)
        store, key = where[one], ("value", one.number)
        return store.pop(key) if last[one] == at and key in store else store[key]

    for at, step in enumerate(steps):
        if step.verb == "await":
            found = await calls.pop(step.args[0])
            for value, tensor in zip(step.gives, found if isinstance(found, list) else [found], strict=False):
                keep(value, tensor, at)
            continue
        args = [operand(one, at) for one in step.args]
        options = {name: operand(one, at) for name, one in step.options}
        if step.verb == "add":
            given: Any = args[0] + args[1]
        elif step.verb in ("shard", "combine"):
            given = getattr(args[0], step.verb)(*args[1:])
        else:
            given = getattr(model, step.verb)(*args, **options)
        if step.verb in CALLS:
            calls[step.gives[0]] = given
            continue
        for value, tensor in zip(step.gives, given if isinstance(given, tuple) else (given,), strict=False):
            if tensor is not None:
                keep(value, tensor, at)
    return model


@dataclass
class Found:
    """Schedules of all ranks, and what they take."""

    schedules: list[Schedule]
    time: float
    memory: Elements
    of: str = field(default="", compare=False)


def measured(puzzle: Puzzle, schedules: list[Schedule], of: str = "") -> Found | None:
    """Return what schedules take at the puzzle's own size, or None if something is wrong with them."""
    program = partial(follow, schedules=schedules, adapters=puzzle.size.get("train") == "adapters")
    try:
        done = run(program, **puzzle.size, cost=cost_named(puzzle.cost), timeout=None)
        check(done, puzzle, puzzle.size)
    except (PuzzleError, KeyError):
        return None
    return Found(schedules, *puzzle.scored(done.time, done.memory), of)


# -- to change it --------------------------------------------------------------------------------------------------


def forms(schedules: Sequence[Schedule]) -> list[list[int]]:
    """Return the ranks in groups whose schedules differ in numbers of layers, micro-batches and ranks alone."""
    groups = defaultdict[object, list[int]](list)
    for rank, steps in enumerate(schedules):
        groups[tuple((step.verb, tuple(step.needs()), step.gives) for step in steps)].append(rank)
    return list(groups.values())


def moved(steps: Schedule, at: int, to: int) -> Schedule:
    """Return the steps with one at another place, together with those between that it needs, or that need it."""
    if to < at:
        needed = set(steps[at].needs())
        before, rest = list[Step](), list[Step]()
        for step in reversed(steps[to:at]):
            if needed & set(step.gives):
                before.insert(0, step)
                needed |= set(step.needs())
            else:
                rest.insert(0, step)
        return [*steps[:to], *before, steps[at], *rest, *steps[at + 1 :]]
    given = set(steps[at].gives)
    after, rest = list[Step](), list[Step]()
    for step in steps[at + 1 : to + 1]:
        if given & set(step.needs()):
            after.append(step)
            given |= set(step.gives)
        else:
            rest.append(step)
    return [*steps[:at], *rest, steps[at], *after, *steps[to + 1 :]]


def kept(steps: Schedule, first: int, second: int) -> Schedule:
    """Return the steps with what the first of two equal gathers brings in the place of what the second brings."""
    old, new = (next(step for step in steps if step.args[:1] == steps[at].gives) for at in (second, first))
    left = [step for at, step in enumerate(steps) if at != second and step is not old]
    return [step.with_value(old.gives[0], new.gives[0]) for step in left]


def gathers_of(steps: Schedule) -> list[tuple[int, int]]:
    """Return pairs of places at which the same is gathered."""
    places = defaultdict[object, list[int]](list)
    for at, step in enumerate(steps):
        if step.verb == "allgather" and isinstance(step.args[0], Value):
            places[step.args[0], step.options].append(at)
    return [(all_of[0], other) for all_of in places.values() for other in all_of[1:]]


def changed(schedules: list[Schedule], random: Random) -> list[Schedule] | None:
    """Return schedules with one change at random, the same for all ranks of one form."""
    group = random.choice(forms(schedules))
    steps, kind = schedules[group[0]], random.random()
    new = list(schedules)
    if kind < 0.03 and (pairs := gathers_of(steps)):
        first, second = random.choice(pairs)
        for rank in group:
            new[rank] = kept(schedules[rank], first, second)
        return new
    movable = [at for at, step in enumerate(steps) if step.verb not in FIXED]
    at = random.choice(movable)
    by = max(1, round(math.exp(random.uniform(0, math.log(len(steps) / 2)))))
    to = min(max(at + random.choice((-by, by)), movable[0]), len(steps) - 1)
    for rank in group:
        new[rank] = moved(schedules[rank], at, to)
    return new


# -- to search -----------------------------------------------------------------------------------------------------


def better(found: Found, known: Iterable[Found]) -> bool:
    """Return whether nothing that is known is as fast in so little memory."""
    return not any(one.time <= found.time and one.memory <= found.memory for one in known)


def programs_of(puzzle: Puzzle) -> dict[str, Callable[[Any], Any]]:
    """Return the programs of a puzzle's file."""
    path = SOLUTIONS / f"{puzzle.file}.py"
    names = load(path.name, path.read_text(encoding="utf-8"))[0]
    own = {name: fn for name, fn in names.items() if getattr(fn, "__module__", "") == "submission"}
    return {
        name: fn
        for name, fn in {**own, **{name: fn for name, fn in names.items() if isinstance(fn, partial)}}.items()
        if isinstance(fn, partial) or (inspect.isfunction(fn) and list(inspect.signature(fn).parameters) == ["model"])
    }


def search(puzzle: Puzzle, begin: Iterable[Found], seconds: float, random: Random) -> list[Found]:
    """Return the best that is found in so much time, from fast to small: none is better than another in both."""
    front: list[Found] = []
    most = puzzle.target

    def take(found: Found) -> None:
        if better(found, front):
            front[:] = [one for one in front if found.time > one.time or found.memory > one.memory] + [found]

    for found in begin:
        take(found)
    seeds, end = list(front), time.process_time() + seconds
    unit = min(one.memory for one in front) / 20
    while time.process_time() < end:
        here = random.choice(random.choice((front, front, seeds)))
        weigh = math.exp(random.uniform(-2.5, 2.5))  # how much a unit of memory counts, in ticks
        heat = random.choice((0.02, 0.1, 0.3))
        for turn in range(150):
            schedules = changed(here.schedules, random)
            there = schedules and measured(puzzle, schedules, here.of)
            if not there or there.time > 1.2 * most["time"] or there.memory > most["memory"]:
                continue
            take(there)
            worse = there.time - here.time + weigh * (there.memory - here.memory) / unit
            if worse <= 0 or random.random() < math.exp(-worse / heat / (1 + weigh) / (1 - turn / 160)):
                here = there
            if time.process_time() > end:
                break
    return sorted(front, key=lambda one: one.time)


def shown(steps: Schedule) -> str:
    """Return a rank's schedule as lines, with values by number."""
    made = {value: step for step in steps for value in step.gives}

    def text(one: Any) -> str:
        if isinstance(one, Value):
            step = made[one]
            of = made.get(step.args[0], step) if step.args and isinstance(step.args[0], Value) else step
            return f"v{one.number}({step.verb if step.verb != 'await' else of.verb})"
        return str(one)

    return "\n".join(
        f"  {step.verb} {', '.join(map(text, step.args))} -> {', '.join(f'v{v.number}' for v in step.gives)}"
        for step in steps
        if step.verb not in FIXED
    )


def main() -> None:
    """Search, and print the front."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("puzzle")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--begin", nargs="*", help="programs of the puzzle's file to begin with (all that are right)")
    parser.add_argument("--show", type=float, help="print the schedules of what takes so many ticks")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="go on from what is kept there, and keep the front")
    options = parser.parse_args()
    puzzle, begin = find(options.puzzle), []
    for name, program in programs_of(puzzle).items():
        if options.begin and name not in options.begin:
            continue
        try:
            found = measured(puzzle, schedules_of(program, puzzle), name)
        except (PuzzleError, TypeError, AttributeError, ValueError, KeyError) as error:
            print(f"{name}: not tried ({type(error).__name__} {error})")
            continue
        if found:
            begin.append(found)
            print(f"{name}: {show_ticks(found.time)} ticks, {found.memory:,} elements as steps")
    if options.keep and options.keep.exists():
        begin += pickle.loads(options.keep.read_bytes())
    if not begin:
        parser.error(f"no program of {puzzle.file}.py is right here")
    front = search(puzzle, begin, options.seconds, Random(options.seed))
    if options.keep:
        options.keep.write_bytes(pickle.dumps(front))
    for found in front:
        new = "  new" if puzzle.beats_all(found.time, found.memory) else ""
        print(f"{show_ticks(found.time):>8} {found.memory:>14,}  from {found.of}{new}")
        if options.show is not None and abs(found.time - options.show) < 1e-6:
            for group in forms(found.schedules):
                print(f"ranks {', '.join(map(str, group))}")
                print(shown(found.schedules[group[0]]))


if __name__ == "__main__":
    main()
