"""Each idea is used, is said on the page of each puzzle that names it, and rejects a program that nothing else does."""

import json

import pytest

from lib import PuzzleError, run
from lib.course.ideas import IDEAS
from lib.course.layouts import check_layout
from lib.course.specs import cost_named, puzzles
from lib.grading.judge import check_features, over_target
from lib.machine.check import TRAINED, check_finals
from solutions.build.sources.files import ROOT
from tests.corpus import changed
from tests.corpus.mistakes import MISTAKES
from tests.test_corpus import function

IDLE = "if mb >= model.BATCHES:\n            pass\n        elif"
TWO_STAGES = changed(
    "pipeline_fsdp",
    "two stages",
    ("stages = model.RANKS // model.BATCHES", "stages = 2"),
    ("if layer == first and is_first:", f"{IDLE} layer == first and is_first:"),
    ("if first <= layer <= last:", "if first <= layer <= last and mb < model.BATCHES:"),
    ("if layer == last and not is_last:", "if layer == last and not is_last and mb < model.BATCHES:"),
    ("if layer == last and is_last:", f"{IDLE} layer == last and is_last:"),
    ("if layer == first and not is_first:", "if layer == first and not is_first and mb < model.BATCHES:"),
)  # fmt: skip
ONLY = {
    "one_micro_batch": ("zero1", "both micro-batches at once"),
    "whole_batch": ("pipeline", "micro-batches one by one: GPipe"),
    "as_many_each": ("hpz", "half of the ranks rest"),
    "own_layers": ("zbv", "two ranks load each other's layers, and send weights"),
    "four_stages": ("pipeline_fsdp", "two stages"),
    "dealt_like_cards": ("interleaved", "the second rank is dealt the first layer"),
    "in_a_v": ("zbv", "the V begins at the last rank"),
    "through_all_ranks": ("dualpipe", "from one half to the other and back"),
    "several_kinds": ("compose", "FSDP, two at once, gathered ahead"),
    "each_slice_on_one_rank": ("context_parallel", "keys of layer 0 are made on every rank"),
    "weights_stay": ("ddp", "a weight in shards until it is needed"),
    "only_updated_weights": ("zero1", "a weight gathered once more, and not used"),
    "generators_receive": ("weight_sync", "a generator computes the loss of micro-batch 0"),
    "updates_on_hosts": ("offload", "the state of layer 0 stays on the device, and is updated there"),
    "keys_by_collectives": ("context_parallel", "keys sent to the next rank"),
    "keys_go_round": ("ring_attention", "the keys of one layer gathered"),
    "summed_across_once": ("replica_fsdp", "across the nodes after every micro-batch"),
    "no_whole_gradient": ("fsdp", "puzzle 3"),
    "by_hand": ("ring_allreduce", "the machine's two halves"),
}
"""Of each idea a program that only it rejects."""


def test_every_idea_is_used_and_a_puzzle_has_at_most_three() -> None:
    named = [name for puzzle in puzzles().values() for name in puzzle.ideas]
    assert {*named} == IDEAS.keys() == ONLY.keys()
    assert all(len(puzzle.ideas) <= 3 for puzzle in puzzles().values())


def test_the_pages_say_them() -> None:
    for puzzle in puzzles().values():
        notebook = json.loads((ROOT / "puzzles" / f"{puzzle.file}.ipynb").read_text(encoding="utf-8"))
        text = " ".join(" ".join("".join(cell["source"]) for cell in notebook["cells"]).split())
        assert " ".join(f"- {IDEAS[name].sentence}" for name in puzzle.ideas) in text, puzzle.name


def test_each_alone_rejects_a_program() -> None:
    for name in ONLY:
        rejects_alone(name)


def rejects_alone(name: str) -> None:
    of, title = ONLY[name]
    [program] = [one for one in [*MISTAKES, TWO_STAGES] if (one.puzzle, one.name) == (of, title)]
    puzzle = puzzles()[of]
    outcome = run(function(program), **puzzle.size, cost=cost_named(puzzle.cost), timeout=60.0)  # type: ignore[arg-type]
    check_features(outcome, puzzle)
    check_finals(outcome.final_states, puzzle.size.get("train", TRAINED[0]))
    check_layout(puzzle.layout, {**puzzle.size, "tensor": puzzle.tensor}, outcome.final_states)
    assert not over_target(outcome, puzzle)
    for other in puzzle.ideas:
        if other != name:
            IDEAS[other].check(outcome)
    with pytest.raises(PuzzleError) as error:
        IDEAS[name].check(outcome)
    assert error.value.expected == IDEAS[name].sentence
