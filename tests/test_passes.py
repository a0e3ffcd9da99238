"""Whose code passes where: every program of solutions/, renamed, in every puzzle, at all of its sizes."""

import inspect
import json
import re
from ast import literal_eval
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

import pytest

from lib import Model, PuzzleError, Run, run
from lib.basics.units import TICKS
from lib.course.layouts import Size
from lib.course.outlines import solution_figures
from lib.course.sizes import other_sizes
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading import judge
from lib.grading.submission import load
from lib.grading.verdict import PASS, Verdict
from solutions.build.sources.files import ROOT, is_puzzle, sources
from tests.programs import COURSE, SMALLER
from tests.slow import EVERYTHING, some

ONE_STAGE = "with one rank a pipeline is one stage, and its micro-batches are accumulated"
REPAIRED = "the repaired program is that of this puzzle"
ROUND_THE_RING = "stages in thin pieces are the better schedule"
IN_PIECES = "gradients in pieces are the better technique"
COMPARED = "it is this puzzle's program, to be compared"
ONE_EACH = "with one micro-batch a rank it is puzzle 4's program"
AS_RANKS = "with as many micro-batches as ranks each rank has one"
ALIKE = "with ranks that are alike, it does not matter which has which micro-batches"
NO_EXPERTS = "where layers have no experts it is the plain program"
ONE_F_ONE_B = (
    "one_forward_one_backward, never_split, one_forward_one_backward_ahead, one_f_one_b, one_f_one_b_overlapped, "
    "sends_that_wait, one_more_forward, repair_handshake"
)
SUM = "ddp, ddp_twice, one_chain_after_the_other, repair_experts, repair_quiet, repair_skip, repair_straggler"
MEANT = {
    "basic": {
        "the batch may travel in pieces": "grad_accum, repair_local",
        ONE_STAGE: ONE_F_ONE_B,
        "with one rank a pipeline is plain training": "pipeline, pipeline of p06_gpipe",
        "where nothing inside a layer is counted it is plain training": "keep_nothing",
        "with one rank it is gradient accumulation": "sums_in_the_last_backward",
        NO_EXPERTS: "experts_gathered",
    },
    "grad_accum": {
        ONE_STAGE: ONE_F_ONE_B,
        REPAIRED: "repair_local",
    },
    "repair_local": {
        ONE_STAGE: ONE_F_ONE_B,
        REPAIRED: "grad_accum",
    },
    "gpipe": {
        "micro-batches one by one": "never_split",
        ROUND_THE_RING: "interleaved_ahead, interleaved_overlapped",
        "it is GPipe with the better schedule": "one_f_one_b, one_f_one_b_overlapped, repair_handshake",
    },
    "one_f_one_b": {
        "micro-batches one by one": "never_split",
        ROUND_THE_RING: "interleaved_overlapped",
        "it is this puzzle's schedule, with one more forward": "one_forward_one_backward",
        REPAIRED: "repair_handshake",
    },
    "zero1": {IN_PIECES: "zero2_overlap"},
    "ddp": {
        NO_EXPERTS: "expert_parallel, repair_experts",
        COMPARED: "flat_ring",
        "puzzle 12 shows on data parallel how chains overlap": "one_chain_after_the_other",
        AS_RANKS: "ddp_twice, repair_skip, repair_quiet, repair_straggler",
    },
    "expert_parallel": {COMPARED: "updates_while_tokens_travel", "its sums are awaited at once": "repair_experts"},
    "repair_twice": {
        REPAIRED: "sums_in_the_last_backward, sums_under_updates, ddp_twice",
        ALIKE: "repair_straggler",
        "it is the same work, and two micro-batches a rank are one of its sizes": "repair_quiet",
    },
    "repair_quiet": {REPAIRED: "sums_in_the_last_backward, sums_under_updates, ddp_twice", ALIKE: "repair_straggler"},
    "repair_straggler": {REPAIRED: "sums_under_updates"},
    "wsdp": {
        IN_PIECES: (
            "fsdp_blocking, fsdp_again, prefetch, prefetch_overlapped, repair_bargain, fsdp_overlapped, fsdp, "
            "fsdp_one_by_one, fsdp_at_once, fsdp_at_once_ahead, fsdp_two_at_once_ahead"
        ),
        ONE_EACH: "pipeline_fsdp_overlapped, fsdp_on_nodes, pipeline_fsdp",
        COMPARED: "fsdp_through_one_card",
    },
    "fsdp": {
        COMPARED: "fsdp_blocking, fsdp_again, fsdp_through_one_card, fsdp_one_by_one, fsdp_at_once",
        "some of its settings are small enough": "prefetch_overlapped",
        REPAIRED: "repair_bargain",
        ONE_EACH: "pipeline_fsdp_overlapped, fsdp_on_nodes, pipeline_fsdp",
    },
    "repair_bargain": {
        REPAIRED: (
            "fsdp_blocking, fsdp_again, fsdp, fsdp_overlapped, fsdp_through_one_card, fsdp_one_by_one, fsdp_at_once"
        ),
        "some of its settings are small enough": "prefetch_overlapped",
        ONE_EACH: "fsdp_on_nodes, pipeline_fsdp, pipeline_fsdp_overlapped",
    },
    "prefetch": {
        "one of its settings gathers before the first backward, and keeps the last weight": "fsdp_overlapped",
        "with as many micro-batches as ranks it has one stage, and that setting": "pipeline_fsdp_overlapped",
        COMPARED: "fsdp_at_once_ahead, fsdp_two_at_once_ahead",
    },
    "repair_groups": {
        "it is the same work, with any number of micro-batches a rank": "repair_book",
        REPAIRED: "hsdp, hybrid_overlapped",
    },
    "repair_deferred": {REPAIRED: "deferred_in_exchanges, sends_that_wait, one_more_forward"},
    "repair_ring": {"gradients that are summed in another way are as right": f"{SUM}, flat_ring"},
    "repair_crosswise": {"one sum over all ranks is as right": f"{SUM}, flat_ring, repair_ring"},
    "pipeline": {COMPARED: "pipeline of p06_gpipe"},
    "repair_deadlock": {"it is a pipeline of two stages": "pipeline, pipeline of p06_gpipe"},
    "tensor_parallel": {COMPARED: "tensor_parallel_long"},
    "repair_experts": {REPAIRED: "expert_parallel, tokens_before_sums, updates_while_tokens_travel"},
    "repair_zigzag": {
        REPAIRED: "plain_zigzag, zigzag_with_sums_behind, context_parallel_overlapped",
        "keys and values that go round are as right": "ring_attention, ring_attention_overlapped, ring_in_order",
    },
    "repair_book": {REPAIRED: "hybrid_overlapped"},
    "context_parallel": {REPAIRED: "repair_zigzag"},
    "ring_allreduce": {"it is an all-reduce by hand, in fewer and longer messages": "halving of p32_small_messages"},
    "small_messages": {"its messages are few": "halving"},
    "repair_handshake": {REPAIRED: "sends_that_wait, one_f_one_b_overlapped"},
    "repair_rows": {"layers that are all in pieces are as right": "sequence_parallel_overlapped"},
}
"""Puzzle, and why which programs of other files are meant to pass there."""
PASSING = {(name, puzzle) for puzzle, why in MEANT.items() for names in why.values() for name in names.split(", ")}


@cache
def programs() -> dict[str, tuple[str, Callable[[Model], Any]]]:
    """Every function of one model in solutions/, and every partial of one, by its name, with its file."""
    found: dict[str, tuple[str, Callable[[Model], Any]]] = {}
    for path in filter(is_puzzle, sources()):
        for name, fn in load(path.name, path.read_text(encoding="utf-8"))[0].items():
            own = inspect.isfunction(fn) and fn.__module__ == "submission"
            if isinstance(fn, partial) or (own and list(inspect.signature(fn).parameters) == ["model"]):
                found[f"{name} of {path.stem}" if name in found else name] = path.stem, fn
    return found


@lru_cache(maxsize=20)
def came_of(in_puzzle: str, program: str, size: str) -> Run | PuzzleError:
    """What comes of a program at a size, however long that takes here. Sizes of one program are asked for together."""
    _, fn = programs()[program]
    try:
        return run(fn, **literal_eval(size), cost=cost_named(puzzles()[in_puzzle].cost), timeout=None)
    except PuzzleError as error:
        return error


def runs_of(puzzle: Puzzle, program: str) -> Callable[[Size], Run]:
    """What runs a program at a size, once."""

    def at(size: Size) -> Run:
        found = came_of(puzzle.name, program, repr(size))
        if isinstance(found, PuzzleError):
            raise found
        return found

    return at


@cache
def judged(in_puzzle: str, program: str) -> Verdict:
    """The verdict on a program."""
    puzzle = puzzles()[in_puzzle]
    return judge.judge(puzzle, runs_of(puzzle, program))


def is_right_in_small(puzzle: Puzzle, program: str) -> bool:
    """Whether a program is right at two of the sizes. Who passes is; of other puzzles' programs few are, and the rest
    need not be run at the puzzle's own size, which may take long."""
    sizes = other_sizes(puzzle.other_sizes, puzzle.size)
    try:
        for size in (sizes[len(sizes) // 4], sizes[-1]):
            judge.check(runs_of(puzzle, program)(size), puzzle, size)
    except PuzzleError:
        return False
    return True


def called(name: str, puzzle: Puzzle) -> str:
    """What a program is called among all, if a puzzle's file, or else another, gives it this name."""
    own = f"{name} of {puzzle.file}"
    return own if own in programs() else name


def reason(name: str) -> str:
    """Under which name MEANT has a program: one for all settings of one function."""
    return re.sub("_in_[0-9_]+$", "_overlapped", name)


def tried(puzzle: Puzzle) -> list[str]:
    """All programs. Of those that are known to pass `make test` takes the solution, the frontier and some more; of all
    others some, and none at a puzzle of real size."""
    always = [puzzle.name, *(called(point["by"], puzzle) for point in puzzle.frontier)]
    if puzzle.name in SMALLER and not EVERYTHING:
        return always
    files = {name: file for name, (file, _) in programs().items()}
    passing = [name for name in files if files[name] == puzzle.file or (reason(name), puzzle.name) in PASSING]
    others = [name for name in files if name not in passing]
    return list(dict.fromkeys([*always, *some(passing), *some(others, 12)]))


@pytest.mark.parametrize("puzzle", puzzles().values(), ids=puzzles())
def test_who_passes_is_meant_to(puzzle: Puzzle) -> None:
    verdicts = {name: judged(puzzle.name, name) for name in tried(puzzle) if is_right_in_small(puzzle, name)}
    passed = {name for name, verdict in verdicts.items() if verdict.status == PASS}
    for name in passed:  # nothing that we have is better than what we say is known
        assert "Better than" not in verdicts[name].message, name
    own = {name for name, (file, _) in programs().items() if file == puzzle.file and not puzzle.repair} | {puzzle.name}
    of = {reason(name) for name in passed - own}
    meant = {program for program, where in PASSING if where == puzzle.name}
    assert puzzle.name in passed
    assert of <= meant and (of == meant or not EVERYTHING)


POINTS = [(puzzle, point) for puzzle in puzzles().values() for point in puzzle.frontier]


@pytest.mark.parametrize(("puzzle", "point"), POINTS, ids=[f"{puzzle.name} {point['by']}" for puzzle, point in POINTS])
def test_a_program_of_the_frontier_passes_everywhere_with_its_figures(puzzle: Puzzle, point: dict[str, Any]) -> None:
    verdict = judged(puzzle.name, called(point["by"], puzzle))
    assert (verdict.status, *puzzle.listed(verdict.time, verdict.memory)) == (PASS, point["time"], point["memory"])
    assert puzzle.repair or verdict.starred == puzzle.has_star(point["time"], point["memory"])
    assert "These figures are among the best known." in verdict.message


SOLVED = ("grad_accum", "pipeline")
"""Puzzles whose solution has the star."""
STARS = [puzzle for puzzle in puzzles().values() if not puzzle.repair]


@pytest.mark.parametrize("puzzle", STARS, ids=[puzzle.name for puzzle in STARS])
def test_the_star_takes_more_than_the_solution_and_can_be_had(puzzle: Puzzle) -> None:
    assert any(puzzle.has_star(point["time"], point["memory"]) for point in puzzle.frontier)
    home = solution_figures(puzzle)
    assert puzzle.has_star(*puzzle.scored(home.time, home.memory)) == (puzzle.name in SOLVED)
    notebook = json.loads((ROOT / "puzzles" / f"{puzzle.file}.ipynb").read_text(encoding="utf-8"))
    text = " ".join(" ".join("".join(cell["source"]) for cell in notebook["cells"]).split()).replace("**", "")
    for figures in filter(None, (puzzle.target, puzzle.star)):
        time, memory = puzzle.describe(figures["time"], figures["memory"])
        if puzzle.unit is TICKS:
            said = rf"(?<![\d.]){figures['time']:g}(\.0)? ticks, (peak memory )?{figures['memory']:,} elements"
            assert re.search(said, text)
        else:
            assert f"{time.removesuffix(' s')} seconds" in text and memory in text
    assert "star" in text


WEAK = {name: name for name in COURSE if name not in SOLVED} | {
    "gpipe": "one_forward_one_backward",
    "pipeline_fsdp": "pipeline_fsdp_in_12_3",
    "context_parallel": "plain_zigzag",
}
"""Programs that pass, and have not the idea that the star is for."""


@pytest.mark.parametrize("name", WEAK)
def test_who_lacks_the_idea_lacks_the_star_and_is_told_by_how_much(name: str) -> None:
    puzzle = puzzles()[name]
    verdict = judged(name, called(WEAK[name], puzzle))
    assert verdict.status == PASS and not verdict.starred
    assert "For the star, save another" in verdict.message
