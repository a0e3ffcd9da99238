"""What a peak is made of, and what of it is named: checked against the log alone, on programs that are right but too
large."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from lib import Model, PuzzleError, Run, grade, run
from lib.course.outlines import Holding, solution_peak
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading.advice.holding import WHERE, Excess, as_json, costs_memory, what_of
from lib.grading.judge import check, with_peak
from lib.machine.lives import Peak
from lib.record.figures.score import memory_parts, peak_event
from tests.corpus import HEAD, Program, changed, functions
from tests.corpus.mistakes import MISTAKES
from tests.programs import SOLUTIONS, solved
from tests.slow import some
from tests.test_corpus import function, near

SMALL = [puzzle for puzzle in puzzles().values() if puzzle.name != "compose" and puzzle.name in functions()]
SOME = some(SMALL, 3)
Function = Callable[[Model], Any]


def kept_too_long() -> Iterator[Program]:
    """Every solution with one tensor kept that it takes out: ``pop(key)`` becomes ``[key]``."""
    for puzzle in SMALL:
        source = functions()[puzzle.name]
        for found in re.finditer(r"(model\.\w+)\.pop\(", source):
            end, depth = found.end(), 1
            while depth:
                depth += {"(": 1, ")": -1}.get(source[end], 0)
                end += 1
            key = source[found.end() : end - 1]
            text = f"{source[: found.start()]}{found[1]}[{key}]{source[end:]}"
            yield Program(puzzle.name, f"{found[1]}[{key}] kept, from {found.start()}", f"{HEAD}{text}\n")


def large(puzzle: Puzzle, fn: Function) -> Run | None:
    """The run of a program that is right for a puzzle but takes too much memory, or None for any other."""
    try:
        done = run(fn, **puzzle.size, cost=cost_named(puzzle.cost))
        check(done, puzzle, puzzle.size)
    except PuzzleError:
        return None
    return done if puzzle.size_unit.scored(done.memory) > puzzle.target["memory"] else None


def programs_of_the_course() -> Iterator[Function]:
    """Every function of one model in the sources of the puzzles."""
    for file in [*SOLUTIONS, "repairs"]:
        module = importlib.import_module(f"solutions.{file}")
        for fn in vars(module).values():
            here = inspect.iscoroutinefunction(fn) and fn.__module__ == module.__name__
            if here and len(inspect.signature(fn).parameters) == 1:
                yield fn


@cache
def held_by_solution(name: str) -> dict[str, Any]:
    """What a puzzle's solution holds at its peak, from its log."""
    event = peak_event(solved(name).device_events)
    assert event is not None
    return memory_parts(event)


def look_at_verdict(puzzle: Puzzle, fn: Function, rank: int) -> None:
    """What the verdict says is in the list that it has, and begins with the kind that is most above what the solution
    holds, and with what the solution holds of it."""
    verdict = grade(fn, puzzle.name).verdict
    said, rows = verdict.costs_memory, verdict.as_json()["peak"]
    assert sum(row["elements"] for row in rows) == verdict.as_json()["peak_memory"]
    assert verdict.peak_memory is not None and puzzle.size_unit.scored(verdict.peak_memory) == verdict.memory
    held, things = Counter[str](), Counter[tuple[str, str]]()
    for row in rows:
        held[row["memory"]] += row["elements"]
        things[row["memory"], row["what"]] += 1
    more = {kind: held[kind] - held_by_solution(puzzle.name).get(kind, 0) for kind in held}
    most = {kind for kind in more if more[kind] == max(more.values())}
    theirs = {kind: [group for group in solution_peak(puzzle) if group.memory == kind] for kind in most}
    beginnings = [
        f"rank {rank} holds {counted(number, what)}{WHERE.get(kind, '')} at its peak, "
        for (kind, what), number in things.items()
        if kind in most
    ]
    beside = [f"the target's program {beside}." for kind in most for beside in in_words(theirs[kind])]
    assert said.startswith(tuple(beginnings)), said
    assert any(words in said for words in beside), (said, beside)
    assert not re.search(r"again; nothing|read next by [^;]*; nothing", said)
    if named := re.search(r"What need not be there is (.*?) that nothing", said):
        stored = [row for row in rows if row["memory"] not in ("in_flight", "inbox") and not row["result"]]
        never = Counter(row["what"] for row in stored if row["read_next"] is None)
        known = {counted(number, what) for what, most in never.items() for number in range(1, most + 1)}
        assert {*named[1].split(" and ")} <= known, said


def counted(number: int, what: str) -> str:
    """A number of things of a list in words, as a verdict says it: the first noun has the plural."""
    if what.startswith("inner activations that"):
        return what
    noun, rest = re.match(r"(.*?)((?: of | \(|$).*)", what).groups()  # type: ignore[union-attr]
    return f"{number} {noun}{'s' * (number != 1 and not what.startswith('layer'))}{rest}"


def in_words(groups: Sequence[Holding]) -> list[str]:
    """What a verdict may say of what a solution holds: a number, or all of it."""
    all_of_them = [
        group.what
        if "that a backward" in group.what
        else f"{group.number} {group.what.format(s='s' * (group.number != 1))}"
        for group in groups
    ]
    *others, last = all_of_them or ["none"]
    return [
        *[str(group.number) for group in groups if len(groups) == 1],
        f"{', '.join(others)} and {last}" if others else last,
    ]


def look(puzzle: Puzzle, fn: Function, done: Run) -> None:
    """Check all that is said of the peak of a run."""
    event = peak_event(done.device_events)
    noted = with_peak(
        done, puzzle.size, lambda size, rank: run(fn, **size, cost=cost_named(puzzle.cost), _watched=rank)
    )
    assert event is not None and noted is not None and noted.events == done.events
    peak = noted.peak
    assert isinstance(peak, Peak) and peak.rank == event.rank
    held = Counter[str]()
    for one in peak.held:
        held[one.memory] += one.elements  # type: ignore[assignment]
    assert dict(held) == memory_parts(event)  # the sizes add up, kind by kind
    assert sum(row["elements"] for row in as_json(noted)) == done.memory
    json.dumps(as_json(noted))
    more = {kind: held[kind] - held_by_solution(puzzle.name).get(kind, 0) for kind in held}
    excess = Excess(noted, peak, puzzle)
    assert more[excess.memory] == max(more.values())
    rows = [one for one in peak.held if one.memory == excess.memory]
    assert {*map(id, excess.rows)} <= {*map(id, rows)} and excess.what in map(what_of, excess.rows)
    said = costs_memory(noted, puzzle)
    plain = re.escape(excess.what).replace(r"\{s\}", "s?")
    assert re.match(rf"rank {event.rank} holds (\d+ )?{plain}", said), said
    look_at_verdict(puzzle, fn, event.rank)
    records = sum(event.rank == peak.rank for event in done.events)
    for thing in peak.held:
        assert -1 <= thing.made < records
        assert thing.last is None or thing.last <= peak.at
        assert thing.following is None or peak.at < thing.following < records
    assert "{s}" not in said


@pytest.mark.parametrize("puzzle", SOME, ids=[puzzle.name for puzzle in SOME])
def test_what_is_most_above_the_solution_is_named_where_a_tensor_is_kept_too_long(puzzle: Puzzle) -> None:
    tried = 0
    for program in kept_too_long():
        if program.puzzle == puzzle.name:
            fn: Any = function(program)
            if (done := large(puzzle, fn)) is not None:
                look(puzzle, fn, done)
                said, store = grade(fn, puzzle.name).verdict.costs_memory, program.name.split("[")[0]
                assert f"{store}.pop(" in said or f"del {store}[" in said, said  # the line that is missing
                tried += 1
    if puzzle.name in ("basic", "grad_accum", "zero1", "checkpointing", "one_f_one_b", "sequence_parallel"):
        assert tried


@pytest.mark.long
@pytest.mark.parametrize("puzzle", SOME, ids=[puzzle.name for puzzle in SOME])
def test_what_is_most_above_the_solution_is_named_of_every_program_of_the_course(puzzle: Puzzle) -> None:
    tried = 0
    for fn in programs_of_the_course():
        if (done := large(puzzle, fn)) is not None:
            look(puzzle, fn, done)
            tried += 1
    if puzzle.name in ("basic", "grad_accum", "zero2", "one_f_one_b", "hierarchical"):
        assert tried


@pytest.mark.parametrize("puzzle", SMALL, ids=[puzzle.name for puzzle in SMALL])
def test_what_a_solution_holds_at_its_peak_is_known(puzzle: Puzzle) -> None:
    known = Counter[str]()
    for group in solution_peak(puzzle):
        assert group.number > 0
        known[group.memory] += group.elements  # type: ignore[assignment]
    assert dict(known) == held_by_solution(puzzle.name)


def costs(puzzle: str, name: str) -> str:
    """What costs memory in a program of the corpus."""
    [program] = [one for one in MISTAKES if (one.puzzle, one.name) == (puzzle, name)]
    verdict = grade(function(program), puzzle).verdict  # type: ignore[arg-type]
    assert verdict.right is True and verdict.status == "FAIL", verdict.message
    return verdict.costs_memory


BARGAIN = "5 of them (layers 0-4) come from allgather at 0.3 to 5.5 ticks, and are read next by backward at 9.6 to 16.8"
PIECE = "Keep only this rank's piece, right after each backward: await model.scatterreduce(grad, layer)."


@pytest.mark.parametrize(
    ("puzzle", "name", "says"),
    [
        ("repair_bargain", "as it is", BARGAIN),
        ("repair_bargain", "as it is", "model.weights.pop(...), and gather it again for the next one."),
        ("one_f_one_b", "GPipe", "rank 3 holds 21 activations at its peak, the target's program 9. 12 of them"),
        ("one_f_one_b", "GPipe", "Let the backward of a micro-batch come sooner"),
        ("zero2", "ZeRO-1: whole gradients", PIECE),
        ("checkpointing", "everything of every layer", "12 inner activations (keep='all')"),
        (
            "checkpointing",
            "kept and never taken out",
            "inner activations (keep='selective') that nothing reads again",
        ),
        ("one_f_one_b", "eight little sums", "Add a gradient to the sum of its layer as soon as it is there."),
        ("fsdp", "gathers in flight as a store", "11 weights in calls on their way"),
        ("zero_bubble", "all weight halves at the end", "Let backward_weight come sooner"),
    ],
)
def test_what_to_write_is_said(puzzle: str, name: str, says: str) -> None:
    assert says in costs(puzzle, name)


def test_old_weights_beside_new_ones_are_there_twice() -> None:
    update = "model.weights[layer], model.opt_states[layer] = model.update("
    beside = "model.weights['new', layer], model.opt_states['new', layer] = model.update("
    final = "model.set_final_weight(layer, model.weights[layer])"
    answer = final.replace("[layer]", "['new', layer]")
    verdict = grade(function(changed("grad_accum", "beside", (update, beside), (final, answer))), "grad_accum").verdict  # type: ignore[arg-type]
    assert "is there twice: from load_weights and update at" in verdict.costs_memory, verdict.message
    assert "store it in the place of the old one, model.weights.pop(...)" in verdict.costs_memory


@pytest.mark.parametrize(
    ("puzzle", "name"),
    [
        ("repair_bargain", "as it is"),
        ("one_f_one_b", "eight little sums"),
        ("zero2", "ZeRO-1: whole gradients"),
        ("offload", "gradients added up on the device"),
        ("one_f_one_b", "what was passed on is kept"),
    ],
)
def test_the_verdict_at_a_shell_has_the_same_list_with_lines(puzzle: str, name: str) -> None:
    """Also of what is added up, cut and joined, which a replay carries out in another way."""
    [program] = [one for one in MISTAKES if (one.puzzle, one.name) == (puzzle, name)]
    there, here = near(program), grade(function(program), program.puzzle).verdict  # type: ignore[arg-type]

    def without_files(thing: object) -> object:
        return re.sub(r" of \S+\.py", "", json.dumps(thing))

    assert there.costs_memory and without_files(there.costs_memory) == without_files(here.costs_memory)
    assert without_files(there.as_json()["peak"]) == without_files(here.as_json()["peak"])
    assert sum(row["elements"] for row in there.as_json()["peak"]) == there.memory
    assert all(row["made"]["line"] for row in there.peak if row["made"])


def test_of_a_program_that_does_something_else_each_time_nothing_is_said() -> None:
    times = []  # notes are taken of rank 0, and in another run of the rank whose peak is largest

    async def ddp(model: Model) -> Model:
        times.append(model)
        return await _keeping(model, model.rank == 1 and len(times) <= model.RANKS)

    verdict = grade(ddp).verdict
    assert verdict.right is True and "over the target" in verdict.message and verdict.costs_memory == ""
    assert verdict.as_json()["peak"] == []


async def _keeping(model: Model, keep: bool) -> Model:
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
    grad = model.grad_activations[model.LAYERS] = model.loss(model.activations[model.LAYERS])
    if not keep:
        model.activations.pop(model.LAYERS)
    for layer in reversed(range(model.LAYERS)):
        inp = model.activations[layer] if keep else model.activations.pop(layer)
        out = model.grad_activations[layer + 1] if keep else model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], grad = model.backward(layer, inp, out, model.weights[layer])
        model.grad_activations[layer] = grad
    for layer in range(model.LAYERS):
        whole = await model.allreduce(model.grad_weights.pop(layer), layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, whole, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


def test_a_gradient_too_many_beside_a_host_is_sent_to_it() -> None:
    """All gradients on the device, where the host could have them: the order of the work is not what decides."""
    done = grade(renamed("offload", "offload_blocking"), "offload").verdict
    assert done.right is True and "the target's program 1." in done.costs_memory, done.message
    assert "model.pass_to(model.host, grad)" in done.costs_memory and "decides" not in done.costs_memory


def test_what_is_received_counts_from_when_it_came() -> None:
    """Rank 3 of GPipe waits from tick 0 on for its first input, which comes at 7.2."""
    [program] = [one for one in MISTAKES if (one.puzzle, one.name) == ("one_f_one_b", "GPipe")]
    fn: Any = function(program)
    verdict = grade(fn, program.puzzle).verdict
    done = run(fn, **puzzles()[program.puzzle].size)
    event = peak_event(done.device_events)
    assert event is not None
    came = {one.end for one in done.events if one.rank == event.rank and one.kind == "receive"}
    received = [row["made"]["tick"] for row in verdict.peak if row["made"] and row["made"]["operation"] == "receive"]
    assert (
        {*received} <= came
        and min(received) > 0
        and "come from receive and forward at 0 to" not in verdict.costs_memory
    )


def test_where_sizes_are_rounded_the_list_adds_up_to_the_peak_without_that() -> None:
    verdict = grade(renamed("compose", "whole_states"), "compose").verdict
    held = sum(row["elements"] for row in verdict.as_json()["peak"])
    assert verdict.right is True and held == verdict.peak_memory != verdict.memory, verdict.message


def renamed(puzzle: str, name: str) -> Function:
    """Another program of a puzzle's source."""
    module = importlib.import_module(f"solutions.{puzzles()[puzzle].file}")
    return getattr(module, name)  # type: ignore[no-any-return]
