"""Whose code passes where: every program of solutions/, renamed, in every puzzle, at all of its sizes."""

from __future__ import annotations

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
from tests.programs import SMALLER
from tests.slow import EVERYTHING, some

ONE_STAGE = "with one rank a pipeline is one stage, and its micro-batches are accumulated"
ONE_F_ONE_B = ("one_f_one_b", "one_f_one_b_overlapped")
REPAIRED = "the repaired program is that of this puzzle"
ROUND_THE_RING = "stages in thin pieces are the better schedule"
FSDP_OF_NODES = ("fsdp_one_by_one", "fsdp_at_once", "fsdp_at_once_ahead", "fsdp_two_at_once_ahead")
MEANT = {
    ("grad_accum", "basic"): "the batch may travel in pieces",
    ("one_forward_one_backward", "basic"): ONE_STAGE,
    ("pipeline", "basic"): "with one rank a pipeline is plain training",
    ("pipeline of p06_gpipe", "basic"): "with one rank a pipeline is plain training",
    ("keep_nothing", "basic"): "where nothing inside a layer is counted it is plain training",
    ("repair_local", "basic"): "the batch may travel in pieces",
    ("one_forward_one_backward", "grad_accum"): ONE_STAGE,
    ("one_forward_one_backward_ahead", "grad_accum"): ONE_STAGE,
    ("repair_local", "grad_accum"): REPAIRED,
    **{
        (name, puzzle): ONE_STAGE if puzzle in ("basic", "grad_accum", "repair_local") else "micro-batches one by one"
        for name in ("never_split",)
        for puzzle in ("basic", "grad_accum", "repair_local", "gpipe", "one_f_one_b")
    },
    ("zero2_overlap", "zero1"): "gradients in pieces are the better technique",
    ("expert_parallel", "ddp"): "where layers have no experts it is data parallel",
    ("updates_while_tokens_travel", "expert_parallel"): "it is that puzzle's program, to be compared",
    ("flat_ring", "ddp"): "it is puzzle 2's program, to be compared",
    ("one_chain_after_the_other", "ddp"): "puzzle 12 shows on data parallel how chains overlap",
    ("ddp_twice", "ddp"): "with as many micro-batches as ranks each rank has one",
    **{
        (name, one): REPAIRED
        for name in ("sums_in_the_last_backward", "sums_under_updates")
        for one in ("repair_twice", "repair_quiet")
    },
    ("sums_under_updates", "repair_straggler"): REPAIRED,
    ("sums_in_the_last_backward", "basic"): "with one rank it is gradient accumulation",
    ("ddp_twice", "repair_twice"): REPAIRED,
    ("ddp_twice", "repair_quiet"): REPAIRED,
    ("fsdp_blocking", "wsdp"): "gradients in pieces are the better technique",
    ("fsdp_blocking", "fsdp"): "it is puzzle 4's program, to be compared",
    ("fsdp_blocking", "repair_bargain"): REPAIRED,
    ("fsdp_again", "wsdp"): "gradients in pieces are the better technique",
    ("fsdp_again", "fsdp"): "it is puzzle 4's program, to be compared",
    ("fsdp_again", "repair_bargain"): REPAIRED,
    ("prefetch", "wsdp"): "gradients in pieces are the better technique, and the next weight ahead is, too",
    ("prefetch_overlapped", "wsdp"): "gradients in pieces are the better technique, and the next weight ahead is, too",
    ("prefetch_overlapped", "fsdp"): "some of its settings are small enough",
    ("prefetch_overlapped", "repair_bargain"): "some of its settings are small enough",
    ("fsdp_overlapped", "prefetch"): "one of its settings gathers before the first backward, and keeps the last weight",
    ("pipeline_fsdp_overlapped", "prefetch"): "with as many micro-batches as ranks it has one stage, and that setting",
    ("repair_skip", "ddp"): "with as many micro-batches as ranks nobody is without one",
    ("repair_quiet", "ddp"): "with as many micro-batches as ranks each rank has one",
    ("repair_straggler", "ddp"): "with as many micro-batches as ranks each rank has one",
    ("repair_straggler", "repair_twice"): "with ranks that are alike, it does not matter which has which micro-batches",
    ("repair_straggler", "repair_quiet"): "with ranks that are alike, it does not matter which has which micro-batches",
    ("repair_quiet", "repair_twice"): "it is the same work, and two micro-batches a rank are one of its sizes",
    ("repair_bargain", "wsdp"): "gradients in pieces are the better technique",
    ("repair_bargain", "fsdp"): REPAIRED,
    ("fsdp", "repair_bargain"): REPAIRED,
    ("fsdp_overlapped", "repair_bargain"): REPAIRED,
    ("fsdp_on_nodes", "repair_bargain"): "with one micro-batch a rank it is puzzle 4's program",
    ("pipeline_fsdp", "repair_bargain"): "with as many micro-batches as ranks there is one stage: puzzle 4's program",
    ("pipeline_fsdp_overlapped", "repair_bargain"): "with as many micro-batches as ranks there is one stage",
    ("repair_book", "repair_groups"): "it is the same work, with any number of micro-batches a rank",
    ("fsdp_overlapped", "wsdp"): "gradients in pieces are the better technique",
    ("pipeline_fsdp_overlapped", "wsdp"): "with as many micro-batches as ranks there is one stage: puzzle 4's program",
    ("pipeline_fsdp_overlapped", "fsdp"): "with as many micro-batches as ranks there is one stage: puzzle 4's program",
    ("fsdp", "wsdp"): "gradients in pieces are the better technique",
    ("fsdp_through_one_card", "wsdp"): "it is puzzle 4's program, to be compared",
    ("fsdp_through_one_card", "fsdp"): "it is puzzle 4's program, to be compared",
    ("fsdp_through_one_card", "repair_bargain"): REPAIRED,
    ("hsdp", "repair_groups"): REPAIRED,
    **{(name, "wsdp"): "gradients in pieces are the better technique" for name in FSDP_OF_NODES},
    **{(name, "fsdp"): "it is puzzle 4's program, to be compared" for name in FSDP_OF_NODES[:2]},
    **{(name, "repair_bargain"): REPAIRED for name in FSDP_OF_NODES[:2]},
    ("fsdp_at_once_ahead", "prefetch"): "it is puzzle 12's program, to be compared",
    ("fsdp_two_at_once_ahead", "prefetch"): "so is this, where each rank has two micro-batches",
    ("fsdp_on_nodes", "wsdp"): "with one micro-batch a rank it is puzzle 4's program",
    ("pipeline_fsdp", "wsdp"): "with as many micro-batches as ranks there is one stage, and it is puzzle 4's program",
    ("fsdp_on_nodes", "fsdp"): "with one micro-batch a rank it is puzzle 4's program",
    ("pipeline_fsdp", "fsdp"): "with as many micro-batches as ranks there is one stage, and it is puzzle 4's program",
    ("pipeline of p06_gpipe", "pipeline"): "it is this puzzle's program, to be compared",
    ("grad_accum", "repair_local"): REPAIRED,
    ("one_forward_one_backward", "repair_local"): ONE_STAGE,
    ("one_forward_one_backward_ahead", "repair_local"): ONE_STAGE,
    ("one_forward_one_backward_ahead", "basic"): ONE_STAGE,
    ("interleaved_overlapped", "one_f_one_b"): ROUND_THE_RING,
    ("interleaved_ahead", "gpipe"): ROUND_THE_RING,
    ("interleaved_overlapped", "gpipe"): ROUND_THE_RING,
    ("pipeline", "repair_deadlock"): "it is a pipeline of two stages",
    ("pipeline of p06_gpipe", "repair_deadlock"): "it is a pipeline of two stages",
    **{(name, one): ONE_STAGE for name in ONE_F_ONE_B for one in ("basic", "grad_accum", "repair_local")},
    **{(name, "gpipe"): "it is GPipe with the better schedule" for name in ONE_F_ONE_B},
    ("tensor_parallel_long", "tensor_parallel"): "it is that puzzle's program, to be compared",
    **{
        (name, "repair_experts"): REPAIRED
        for name in ("expert_parallel", "tokens_before_sums", "updates_while_tokens_travel")
    },
    **{
        (name, "repair_zigzag"): REPAIRED
        for name in ("plain_zigzag", "zigzag_overlapped", "zigzag_with_sums_behind", "context_parallel_overlapped")
    },
    **{(name, "repair_book"): REPAIRED for name in ("hybrid_overlapped",)},
    **{(name, "repair_groups"): REPAIRED for name in ("hybrid_overlapped",)},
    **{
        (name, "repair_zigzag"): "keys and values that go round are as right"
        for name in ("ring_attention", "ring_attention_overlapped")
    },
    ("experts_gathered", "basic"): "where layers have no experts it is plain training",
    ("repair_zigzag", "context_parallel"): REPAIRED,
    ("repair_experts", "ddp"): "where no layer has experts it is data parallel",
    ("one_forward_one_backward", "one_f_one_b"): "it is this puzzle's schedule, with one more forward",
}
"""(program, puzzle of another file): why it is meant to pass there."""


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
    passing = [
        name for name, (file, _) in programs().items() if file == puzzle.file or (reason(name), puzzle.name) in MEANT
    ]
    others = [name for name in programs() if name not in passing]
    return list(dict.fromkeys([*always, *some(passing), *some(others, 12)]))


@pytest.mark.parametrize("puzzle", puzzles().values(), ids=puzzles())
def test_who_passes_is_meant_to(puzzle: Puzzle) -> None:
    verdicts = {name: judged(puzzle.name, name) for name in tried(puzzle) if is_right_in_small(puzzle, name)}
    passed = {name for name, verdict in verdicts.items() if verdict.status == PASS}
    for name in passed:  # nothing that we have is better than what we say is known
        assert "Better than" not in verdicts[name].message, name
    own = {name for name, (file, _) in programs().items() if file == puzzle.file and not puzzle.repair} | {puzzle.name}
    of = {reason(name) for name in passed - own}
    meant = {program for program, where in MEANT if where == puzzle.name}
    assert puzzle.name in passed
    assert of <= meant and (of == meant or not EVERYTHING)


POINTS = [(puzzle, point) for puzzle in puzzles().values() for point in puzzle.frontier]


@pytest.mark.parametrize(("puzzle", "point"), POINTS, ids=[f"{puzzle.name} {point['by']}" for puzzle, point in POINTS])
def test_a_program_of_the_frontier_passes_everywhere_with_its_figures(puzzle: Puzzle, point: dict[str, Any]) -> None:
    verdict = judged(puzzle.name, called(point["by"], puzzle))
    assert (verdict.status, verdict.time, verdict.memory) == (PASS, point["time"], point["memory"])
    assert puzzle.repair or verdict.starred == puzzle.has_star(point["time"], point["memory"])
    assert "These figures are among the best known." in verdict.message


STARS = [puzzle for puzzle in puzzles().values() if not puzzle.repair]


@pytest.mark.parametrize("puzzle", STARS, ids=[puzzle.name for puzzle in STARS])
def test_the_star_takes_more_than_the_solution_and_can_be_had(puzzle: Puzzle) -> None:
    assert any(puzzle.has_star(point["time"], point["memory"]) for point in puzzle.frontier)
    home = solution_figures(puzzle)
    assert puzzle.has_star(*puzzle.scored(home.time, home.memory)) == (puzzle.name in ("grad_accum", "pipeline"))
    notebook = json.loads((ROOT / "puzzles" / f"{puzzle.file}.ipynb").read_text(encoding="utf-8"))
    text = " ".join(" ".join("".join(cell["source"]) for cell in notebook["cells"]).split())
    for figures in filter(None, (puzzle.target, puzzle.star)):  # named in the notebook, beside each other
        time, memory = puzzle.describe(figures["time"], figures["memory"])
        if puzzle.unit is TICKS:
            assert re.search(rf"\*\*{figures['time']:g}(\.0)?\*\* ticks", text)
            assert f"**{figures['memory']:,}** elements" in text
        else:
            assert f"**{time.removesuffix(' s')}** seconds" in text and f"**{memory}**" in text
    assert "star" in text


WEAK = {
    "basic": "basic",
    "ddp": "ddp",
    "wsdp": "wsdp",
    "fsdp": "fsdp",
    "gpipe": "one_forward_one_backward",
    "pipeline_fsdp": "pipeline_fsdp_in_12_3",
    "replica_fsdp": "replica_fsdp",
    "zero1": "zero1",
    "zero2": "zero2",
    "zero_bubble": "zero_bubble",
    "checkpointing": "checkpointing",
    "prefetch": "prefetch",
    "one_f_one_b": "one_f_one_b",
    "interleaved": "interleaved",
    "breadth_first": "breadth_first",
    "tensor_parallel": "tensor_parallel",
    "sequence_parallel": "sequence_parallel",
    "buckets": "buckets",
    "hierarchical": "hierarchical",
    "hpz": "hpz",
    "compose": "compose",
    "lora": "lora",
    "offload": "offload",
    "context_parallel": "plain_zigzag",
    "ring_attention": "ring_attention",
    "expert_parallel": "expert_parallel",
    "two_batch_overlap": "two_batch_overlap",
    "zbv": "zbv",
    "dualpipe": "dualpipe",
}
"""Programs that pass, and have not the idea that the star is for."""


@pytest.mark.parametrize("name", WEAK)
def test_who_lacks_the_idea_lacks_the_star_and_is_told_by_how_much(name: str) -> None:
    puzzle = puzzles()[name]
    verdict = judged(name, called(WEAK[name], puzzle))
    assert verdict.status == PASS and not verdict.starred
    assert "For the star, save another" in verdict.message
