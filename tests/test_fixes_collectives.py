"""What a program is told that leaves a collective out, or calls another one: no fix names one that the puzzle's rules
forbid, or that leads to the next error."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from lib import grade
from lib.course.specs import Puzzle, puzzles
from lib.grading.verdict import Verdict
from tests.corpus import HEAD, Program, functions
from tests.test_corpus import function

SUMS = ("allreduce", "scatterreduce")
COLLECTIVES = (*SUMS, "allgather", "alltoall")
CALL = re.compile(rf"model\.({'|'.join(COLLECTIVES)})\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
WITH = [one for one in puzzles().values() if one.name in functions() and "model.all" in functions()[one.name]]
SMALL = [puzzle for puzzle in WITH if puzzle.name != "compose"]
Verb = tuple[str, str]


def verbs_in(text: str) -> set[Verb]:
    """The collectives that a text names, each with its axis as it is written."""
    return {(verb, axis_in(arguments)) for verb, arguments in CALL.findall(text)}


def axis_in(arguments: str) -> str:
    found = re.search(r'axis=("\w+"|\([^()]*\)|\w+)', arguments)
    return found[1] if found else ""


def wrong(puzzle: Puzzle) -> Iterator[tuple[str, str]]:
    """The solution with each of its collectives left out, exchanged for another sum, or over other ranks."""
    source = functions()[puzzle.name]
    for node in ast.walk(ast.parse(source)):
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.func.attr not in COLLECTIVES
        ):
            continue
        call, verb = ast.get_source_segment(source, node), node.func.attr
        assert call is not None
        brought = ast.get_source_segment(source, node.args[0])
        at = f"{verb} in line {node.lineno}"
        yield f"without {at}", source.replace(f"await {call}", str(brought), 1)
        for other in SUMS:
            if verb in SUMS and verb != other:
                yield f"{other} for {at}", source.replace(call, call.replace(f".{verb}(", f".{other}(", 1), 1)
        for axis in [*(puzzle.size.get("mesh") or {}), ""]:
            own = axis_in(call).strip('"')
            if own == axis:
                continue
            bare = re.sub(r", axis=[^)]*", "", call)
            over = bare[:-1] + f', axis="{axis}")' * bool(axis) + ")" * (not axis)
            yield f"over {axis or 'all ranks'}, {at}", source.replace(call, over, 1)


@cache
def judged(name: str, source: str) -> Verdict:
    return grade(function(Program(name, "", HEAD + source + "\n")), name).verdict


CASES = [
    (puzzle, name, source) for puzzle in SMALL for name, source in wrong(puzzle) if source != functions()[puzzle.name]
]


@cache
def right(name: str) -> set[Verb]:
    """The collectives of a puzzle's solution, of the programs on its frontier, and of those changed ones that pass."""
    programs = {name, *(point["by"] for point in puzzles()[name].frontier if "by" in point)} & {*functions()}
    passing = [source for puzzle, _, source in CASES if puzzle.name == name and judged(name, source).status == "PASS"]
    return {verb for source in [*map(functions().__getitem__, programs), *passing] for verb in verbs_in(source)}


@pytest.mark.parametrize(("puzzle", "source"), [pytest.param(p, s, id=f"{p.name}, {name}") for p, name, s in CASES])
def test_a_fix_names_only_collectives_of_right_programs(puzzle: Puzzle, source: str) -> None:
    verdict = judged(puzzle.name, source)
    if verdict.right:
        return
    fix = verdict.message.partition("instead:")[2].partition("\n")[0]
    known = right(puzzle.name)
    called = verbs_in("; ".join(fix.split("await ")[1:]))
    bare = set(re.findall(r"(?:or|to|with) model\.(\w+)\b(?!\()", fix)) & {*COLLECTIVES}
    missing = {(verb, axis) for verb, axis in called - known if axis or "axis=..." not in fix}
    assert not missing, verdict.message
    assert bare <= {verb for verb, _ in known}, verdict.message


@pytest.mark.parametrize("puzzle", ["context_parallel", "ring_attention", "repair_zigzag"])
def test_data_parallel_where_ranks_share_a_sequence_is_told_to_take_slices(puzzle: str) -> None:
    source = functions()["ddp"].replace("def ddp(", f"def {puzzle}(").replace("[model.rank]", "[0]")
    message = judged(puzzle, source).message
    assert "share it by its sequence" in message and "layers of its own" not in message, message


def test_a_gradient_that_is_cut_over_some_ranks_where_weights_are_over_all_is_told_the_one_sum() -> None:
    source = functions()["hpz"].replace(
        "model.scatterreduce(grad, layer)", 'model.scatterreduce(grad, layer, axis="shard")'
    )
    assert "grad = await model.scatterreduce(grad, 5)" in judged("hpz", source).message
