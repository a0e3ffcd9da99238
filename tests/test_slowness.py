"""What makes a right run slow, beside the program of the target or of the star: checked against the log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from lib import PuzzleError, Run, grade, run
from lib.course.outlines import solution_chain
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading.advice.lateness import Late, late_messages
from lib.grading.advice.slowness import Slowness, chain_efforts, word_of
from lib.grading.judge import check
from lib.record.events import Event
from lib.record.figures.chain import MESSAGES, chain_of
from lib.record.table import SEND
from tests.corpus import Program, changed
from tests.corpus.honest import HONEST
from tests.corpus.mistakes import MISTAKES
from tests.programs import solutions, solved
from tests.slow import EVERYTHING, some
from tests.test_corpus import function, titles
from tests.test_peak import programs_of_the_course

SMALL = [puzzle for puzzle in puzzles().values() if puzzle.name != "compose"]
SOME = some(SMALL, 3)
SOME_MISTAKES = some(MISTAKES, 3)


def slow(puzzle: Puzzle, fn: Any) -> Run | None:
    """The run of a program that is right for a puzzle but too slow, or None for any other."""
    try:
        done = run(fn, **puzzle.size, cost=cost_named(puzzle.cost))
        check(done, puzzle, puzzle.size)
    except PuzzleError:
        return None
    return done if puzzle.unit.scored(done.time) > puzzle.target["time"] else None


OUTPUTS = {"forward": ("Activation", 1), "backward": ("ActivationGrad", -1), "backward_input": ("ActivationGrad", -1)}


def could_be_sent(done: Run, send: Event) -> tuple[float, list[Event]]:
    """From the log alone: when a rank could have sent a tensor, had it begun nothing else since the last thing had come
    that the tensor is made from; and what else it has computed since then. The tensors are followed from the message
    back to what has come."""
    own = [event for event in done.events if event.rank == send.rank]
    at = next(place for place, event in enumerate(own) if event is send)
    wanted, made_by, came = {(send.tensor, send.layer)}, list[Event](), list[float]()
    beside = False
    for event in reversed(own[:at]):
        beside = beside and event.kind == "forward"
        if beside:
            made_by.append(event)
        if event.kind == "allgather" and event.tensor == "Weight":
            came += [event.end] * any(one.layer == event.layer for one in made_by)
        if not event.batches & send.batches:
            continue
        what, step = OUTPUTS.get(event.kind, ("", 0))
        if event.kind == "receive" and (event.tensor, event.layer) in wanted:
            came.append(event.end)
            wanted.discard((event.tensor, event.layer))
        elif event.kind == "loss" and ("ActivationGrad", done.layers - 1) in wanted:
            wanted.add(("Activation", done.layers))
        elif what and event.layer is not None and (what, event.layer + step) in wanted:
            made_by.append(event)
            beside = beside or "overlapped=True" in event.words
            wanted |= {("Activation", event.layer), (what, event.layer)}
    since = max(came)
    after = [event for event in own[:at] if event.stream == "compute" and event.end > since and event.length]
    begins = max([since, *(event.end for event in after if event.start < since)])
    others = [event for event in after if event not in made_by]
    return begins + sum(event.length for event in after if event in made_by and event.start >= begins), others


def look_at_waiting(done: Run, late: Late) -> None:
    """The rank that waits is idle for as long as is said, the tensor could have been sent when that is said, and all
    that the sender has computed besides is named."""
    until, between = late.send.issued, late.between
    busy = [(event.start, event.end) for event in done.events if event.rank == late.rank and event.length]
    assert late.send.kind == SEND.kind and late.rank == late.send.group[1] and late.delay > 0
    assert not any(start < until and end > until - late.delay + 1e-6 for start, end in busy)
    ready, others = could_be_sent(done, late.send)
    assert late.ready == pytest.approx(ready) and late.ready <= until - late.delay + 1e-6
    assert between and list(between) == others


def look(puzzle: Puzzle, done: Run) -> str:
    """Check what is said of a slow run, and return it."""
    chain = chain_of(done.events)
    said = Slowness(done, chain, puzzle, "target").in_words()
    own, ours = chain_efforts(chain), solution_chain(puzzle)
    more = {word: own[word].ticks - (ours[word].ticks if word in ours else 0.0) for word in own}
    assert sum(effort.ticks for effort in own.values()) == pytest.approx(done.time)
    word = max(more, key=lambda one: more[one])  # what is most more on the chain is named: as more work, or there
    assert word[:8] in said or (word == MESSAGES and "send" in said), (said, more)
    found = list(late_messages(done, {*chain.events}))
    for late in found:
        look_at_waiting(done, late)
    if ticks := re.search(r"could send it at tick ([\d.]+) and does at tick ([\d.]+)", said):
        late = max(found, key=lambda one: one.delay)
        shown = (float(ticks[1]), float(ticks[2]))
        assert shown == pytest.approx((could_be_sent(done, late.send)[0], late.send.issued), rel=1e-3)
    return said


@pytest.mark.long
def test_what_is_said_of_slow_programs_of_the_corpus_is_true() -> None:
    tried = 0
    for program in SOME_MISTAKES:
        if program.puzzle != "compose":
            try:
                fn = function(program)
            except Exception:
                continue  # one that does not even load
            if (done := slow(puzzles()[program.puzzle], fn)) is not None:
                look(puzzles()[program.puzzle], done)
                tried += 1
    assert tried > (40 if EVERYTHING else 10)


@pytest.mark.long
@pytest.mark.parametrize("puzzle", SOME, ids=[puzzle.name for puzzle in SOME])
def test_what_is_said_of_slow_programs_of_the_course_is_true(puzzle: Puzzle) -> None:
    for fn in programs_of_the_course():
        if (done := slow(puzzle, fn)) is not None:
            look(puzzle, done)


def all_that_could_be_sent(puzzle: Puzzle, fn: Any) -> list[Late]:
    """Check what a program's ranks could send sooner, and return it; of a program that stops, nothing."""
    try:
        done = run(fn, **puzzle.size, cost=cost_named(puzzle.cost))
    except PuzzleError:
        return []
    found = list(late_messages(done, {*chain_of(done.events).events}))
    for late in found:
        look_at_waiting(done, late)
    return found


def test_what_programs_of_the_course_could_send_sooner_is_true() -> None:
    """That of zbv receives at tick 47 and needs two backwards of a tick: nobody could have sent it at 47."""
    for fn in programs_of_the_course():
        for puzzle in SMALL:
            if fn.__module__ == f"solutions.{puzzle.file}":
                found = all_that_could_be_sent(puzzle, fn)
                if fn.__name__ == puzzle.name:
                    assert bool(found) == (puzzle.name in ("gpipe", "zbv", "dualpipe", "repair_deadlock"))


@pytest.mark.long
@pytest.mark.parametrize("corpus", [HONEST, SOME_MISTAKES], ids=["honest", "mistakes"])
def test_what_programs_of_the_corpora_could_send_sooner_is_true(corpus: Sequence[Program]) -> None:
    tried = 0
    for program in corpus:
        if program.puzzle != "compose":
            try:
                fn = function(program)
            except Exception:
                continue  # one that does not even load
            tried += len(all_that_could_be_sent(puzzles()[program.puzzle], fn))
    assert tried


def told(puzzle: str, title: str) -> str:
    """What is said of a slow program of the corpus in its verdict."""
    [program] = [one for one, known in zip(MISTAKES, titles(MISTAKES), strict=True) if known == f"{puzzle}: {title}"]
    verdict = grade(function(program), puzzle).verdict  # type: ignore[arg-type]
    assert (verdict.status, verdict.right) == ("FAIL", True), verdict.message
    return verdict.costs_time


IN_TURN = "the ranks work one after the other: let each begin its next micro-batch while others work"
AWAITED = "while allgather(layer 1) is on its way: start it before forward(layer 0), and await it after that"
FORWARDS_FIRST = (
    "Rank 2 waits 4.2 ticks for the activation gradient of micro-batch 0: rank 3 could send it at tick 11.2 and does "
    "at tick 28, since it does forward of micro-batches 1-7 first"
)
ACROSS = (
    "8 all-reduces between nodes of whole gradients, of 2.2 ticks each, those of the target take 1: reduce-scatter "
    "inside the node first, and gather after the sum of the pieces; 8 all-reduces inside nodes"
)


@pytest.mark.parametrize(
    ("puzzle", "title", "says"),
    [
        ("gpipe", "one micro-batch all the way at a time", IN_TURN),
        ("prefetch", "puzzle 4: each call awaited", AWAITED),
        ("one_f_one_b", "GPipe", FORWARDS_FIRST),
        ("hierarchical", "everything across", ACROSS),
        (
            "buckets",
            "all sums first, then all updates",
            "start the next call first, and do these while it is on its way",
        ),
        ("checkpointing", "nothing kept", "12 of 12 backwards make all inner activations again"),
        ("zero_bubble", "both halves at once", "8 backward for the weight (4 ticks) are on the longest chain"),
    ],
)
def test_what_to_write_is_said(puzzle: str, title: str, says: str) -> None:
    assert says in told(puzzle, title)


def test_the_update_before_the_gradient_is_passed_on_is_named() -> None:
    """The mistake of puzzle 5: each stage updates its layers, and then passes the gradient on."""
    source = """
async def pipeline(model):
    per = model.LAYERS // model.RANKS
    first, end = model.rank * per, (model.rank + 1) * per
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    if first == 0:
        model.activations[0] = model.get_activation(range(model.BATCHES))
    else:
        model.activations[first] = await model.receive(model.rank - 1)
    for layer in range(first, end):
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
    if end == model.LAYERS:
        model.grad_activations[end] = model.loss(model.activations.pop(end))
    else:
        await model.pass_to(model.rank + 1, model.activations.pop(end))
        model.grad_activations[end] = await model.receive(model.rank + 1)
    for layer in reversed(range(first, end)):
        grad, model.grad_activations[layer] = model.backward(
            layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), model.weights[layer]
        )
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    if first:
        await model.pass_to(model.rank - 1, model.grad_activations.pop(first))
"""
    verdict = grade(function(Program("pipeline", "update first", source)), "pipeline").verdict  # type: ignore[arg-type]
    assert verdict.right is True and verdict.status == "FAIL", verdict.message
    assert "8 updates (4 ticks) are on the longest chain, on that of the target 2 (1 tick)" in verdict.costs_time
    assert "let what others wait for go on first" in verdict.costs_time


def test_nobody_waits_where_nobody_does() -> None:
    """What attempts are told whose ranks are never idle has no word of waiting."""
    for program in MISTAKES:
        if program.puzzle in ("hierarchical", "fsdp", "prefetch"):
            done = slow(puzzles()[program.puzzle], function(program))
            if done is not None:
                said = look(puzzles()[program.puzzle], done)
                assert "waits" not in said and "one after the other" not in said


@pytest.mark.parametrize("name", ["fsdp", "ddp", "one_f_one_b", "checkpointing"])
def test_a_pass_without_its_star_is_told_what_the_star_does_otherwise(name: str) -> None:
    puzzle = puzzles()[name]
    [program] = [fn for fn, spec in solutions() if spec["name"] == name]
    verdict = grade(program).verdict
    assert verdict.status == "PASS" and not verdict.starred
    slower = solved(name).time > puzzle.star["time"]  # type: ignore[index]
    assert bool(verdict.costs_time) == bool(verdict.chain) == slower
    assert "the star" in verdict.costs_time or not slower
    shown = dict(verdict.facts())
    assert shown.get("costs time", "") == verdict.costs_time and shown.get("costs memory", "") == verdict.costs_memory
    larger = solved(name).memory > puzzle.star["memory"]  # type: ignore[index]
    assert bool(verdict.costs_memory) == larger and ("the star's program" in verdict.costs_memory or not larger)


def test_each_operation_has_one_word_in_a_chain() -> None:
    assert word_of("pass_to") == word_of("receive") == "messages" and word_of("allgather") == "all-gather"


@pytest.mark.parametrize("name", ["ring_attention", "context_parallel"])
def test_one_micro_batch_is_not_dealt_out(name: str) -> None:
    """All of a program for many micro-batches is on rank 0, where there is one: others have a slice of it each."""
    from solutions import repairs

    verdict = grade(repairs.repair_skip, name).verdict
    assert verdict.right is True and "of its one micro-batch: let each rank carry its own slice" in verdict.costs_time
    assert "micro-batches of their own" not in verdict.costs_time and "each 1 ranks" not in verdict.costs_time


def halves_late(late: str) -> Any:
    """The solution of puzzle 16 with its weight halves later or sooner."""
    before = "ahead, late = min(model.RANKS - model.rank, model.BATCHES), int(is_last)"
    return function(changed("zero_bubble", late, (before, before.replace("int(is_last)", late))))


@pytest.mark.parametrize("late", ["model.BATCHES", "0", "1", "2", "3", "model.rank", "model.RANKS", "4 - model.rank"])
def test_time_and_memory_do_not_ask_for_both_orders_of_weight_halves(late: str) -> None:
    verdict = grade(halves_late(late), "zero_bubble").verdict
    if verdict.costs_time and verdict.costs_memory:
        peak = re.match(r"rank (\d+)", verdict.costs_memory)
        later = re.search(r"do these afterwards(, on ranks? ([\d, -]+))?(, but no later)?", verdict.costs_time)
        if peak and later and "come sooner" in verdict.costs_memory:
            assert later[3] or (later[2] and peak[1] not in re.findall(r"\d+", later[2])), verdict.costs_time
    if late == "model.BATCHES":
        assert "up to 8 weight halves wait at a time, in the target's program 1: do them sooner" in verdict.costs_time
        assert "come sooner: up to 8 wait at a time, in the target's program 1." in verdict.costs_memory
