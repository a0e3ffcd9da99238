"""The hints of all puzzles: each fits that for which one is sent to it, and can be read alone."""

import re

import pytest

from lib.basics.folders import SOLUTIONS
from lib.course.outlines import outline
from lib.course.specs import Puzzle, puzzles

ABOUT = {
    "slow": re.compile(r"\b(time|ticks|waits?|long|longer|while|meanwhile|on (its|their) way|sooner|network)\b"),
    "large": re.compile(r"\b(memory|room)\b"),
}
"""Words of which one is in a hint for whoever is too slow, or too large."""
LEANS = re.compile(
    r"\bas (above|before)\b|(?<!layer )\babove\b"
    r"|^(and|then|it|that|this|these|those|after (that|those|it))\b",
    re.IGNORECASE,
)
"""How a text reads that needs what was said before it."""
each_puzzle = pytest.mark.parametrize("puzzle", puzzles().values(), ids=puzzles())


@each_puzzle
def test_the_hint_for_what_is_slow_is_about_time_and_that_for_what_is_large_about_memory(puzzle: Puzzle) -> None:
    for what, number in (puzzle.hints_for or {}).items():
        hint = puzzle.hints[number - 1]
        assert ABOUT[what].search(hint), (puzzle.name, what, number, hint)
        assert number < len(puzzle.hints), "the last one comes only when it is asked for again"


@each_puzzle
def test_each_hint_can_be_read_alone(puzzle: Puzzle) -> None:
    for hint in filter(None, [*puzzle.hints, puzzle.star_hint]):
        assert not LEANS.search(hint), (puzzle.name, hint)


@pytest.mark.parametrize(
    ("name", "what"), [("repair_bargain", "large"), ("repair_book", "slow"), ("repair_straggler", "slow")]
)
def test_the_last_hint_of_a_repair_is_about_what_its_bug_costs(name: str, what: str) -> None:
    assert ABOUT[what].search(puzzles()[name].hints[-1])


def communicates_only(puzzle: Puzzle, goal: str) -> float:
    """For how long the ranks of a goal's program communicate and do not compute, all together."""
    drawn = outline(puzzle, goal)
    busy, compute = (
        sum(end - start for spans in of.values() for start, end in spans) for of in (drawn.busy, drawn.compute)
    )
    return busy - compute


def test_each_page_whose_star_hides_communication_points_to_the_example_of_that_skill() -> None:
    wants = {"offload", "compose"}  # by its target, and by what its star does at the end
    for name, puzzle in puzzles().items():
        if puzzle.star and communicates_only(puzzle, "star") < communicates_only(puzzle, "target") - 1e-9:
            wants.add(name)
    assert len(wants) >= 24 and "prefetch" in wants and not wants & {"basic", "pipeline", "zero_bubble", "zbv"}
    pages = {puzzles()[name].file for name in wants - {"prefetch"}} | {"laboratory", "for_real"}
    for page in sorted(pages):
        text = (SOLUTIONS / f"{page}.py").read_text(encoding="utf-8")
        assert "(p12_prefetch.ipynb)" in text or "(p02_ddp.ipynb)" in text or page == "p02_ddp", page
    assert "# ### Optional: start now, fetch later" in (SOLUTIONS / "p02_ddp.py").read_text(encoding="utf-8")
    assert "# ### A skill: several chains at once" in (SOLUTIONS / "p12_prefetch.py").read_text(encoding="utf-8")
