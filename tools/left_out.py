"""How far published rows are off if those that a number was fitted on are left out: ``python -m tools.left_out``.

A number that rows are fitted to may follow their errors. So each group of rows is left out, one after the other: the
numbers that it decides are then those that the other groups and the sources give, and the rows left out are predicted.
The open rows (``tools/open_rows.py``) are those that no number is fitted on; some of their clusters have such numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from statistics import median
from typing import NamedTuple

from lib.real import A100_LLM_FOUNDRY, A100_MEGATRON, A100_TORCHTITAN, H100_DGX, H100_TORCHTITAN, Cluster
from tools import foundry, open_rows, papers
from tools.foundry import Errors, errors
from tools.open_rows import Row

PARTS = (0.5, 0.8)
"""A step takes as long as its products, which go with 1 over the part of the peak, and all the rest: two runs tell it
for any part."""
BEST_PRODUCT = 0.87
"""The most that a product reached on an A100: github.com/stas00/ml-engineering, 2025."""
ONE_PRODUCT = (1600, 237 / 312)
"""The smallest dimension of a product, and the part of the peak that it reached: gist.github.com/rizar, 2022."""
HALF = round(ONE_PRODUCT[0] * (BEST_PRODUCT / ONE_PRODUCT[1] - 1))
"""``half_reached_at`` of an A100 if it is known of that product alone; LLM Foundry's rows gave 300."""


class Left(NamedTuple):
    """A group that is left out: its ``numbers``, with it and without, the errors of its own rows, of the open rows."""

    name: str
    numbers: str
    own: tuple[Errors, Errors]
    open: tuple[Errors, Errors]


class Step(NamedTuple):
    """The seconds of an open row for any part of the peak: ``rest`` + ``slope`` / part."""

    row: Row
    rest: float
    slope: float

    def off(self, part: float) -> float:
        """Return how far it is off."""
        return self.row.off(self.rest + self.slope / part)


def steps(change: Callable[[Cluster], Cluster] = lambda cluster: cluster) -> list[Step]:
    """Return all open rows, on clusters with other numbers."""
    found = []
    for row in open_rows.rows():
        slow, fast = (row.took(replace(change(row.cluster), reached=part)).seconds for part in PARTS)
        slope = (slow - fast) / (1 / PARTS[0] - 1 / PARTS[1])
        found.append(Step(row, fast - slope / PARTS[1], slope))
    return found


def off_with(found: Sequence[Step], reached: dict[str, float]) -> list[float]:
    """Return how far open rows are off, with other parts of the peak for the clusters of these names."""
    return [one.off(reached.get(one.row.cluster.name, one.row.cluster.reached)) for one in found]


def stack_left_out(stack: papers.Stack, others: float, found: Sequence[Step]) -> Left:
    """Return what comes out if all rows of a stack are left out, and its part of the peak is what ``others`` have."""
    name, part = stack.cluster.name, stack.cluster.reached
    own = []
    for reached in (part, others):
        cluster = replace(stack.cluster, reached=reached)
        took = [row[3](cluster) for row in stack.rows]
        known = [row[2] if row[1] == "s" else stack.tokens[at] / row[2] for at, row in enumerate(stack.rows)]
        own.append(errors(stack.name, (mine / theirs - 1 for mine, theirs in zip(took, known, strict=True))))
    now, then = off_with(found, {}), off_with(found, {name: others})
    numbers = f"`reached` {part:.2f} → {others:.2f}"
    return Left(stack.name, numbers, (own[0], own[1]), (errors("open", now), errors("open", then)))


def foundry_left_out(found: Sequence[Step]) -> Left:
    """Return the same for LLM Foundry's rows: both stacks compute as the other A100s do, attention goes backward as
    much slower as FlashAttention-2, and how products slow down when small is known of one of them."""
    slower = (A100_TORCHTITAN.attention_back_reached or 1) / (A100_TORCHTITAN.attention_reached or 1)
    back = slower * (A100_LLM_FOUNDRY.attention_reached or 1)
    reached = median((A100_MEGATRON.reached, A100_TORCHTITAN.reached))
    rows = foundry.rows()

    def changed(cluster: Cluster) -> Cluster:
        return replace(cluster, reached=reached, attention_back_reached=back, half_reached_at=HALF)

    without = [row._replace(cluster=changed(row.cluster)) for row in rows]
    own = [errors("LLM Foundry", map(foundry.estimated, some)) for some in (rows, without)]

    def other_curve(cluster: Cluster) -> Cluster:
        return replace(cluster, half_reached_at=cluster.half_reached_at * HALF / A100_LLM_FOUNDRY.half_reached_at)

    now, then = off_with(found, {}), off_with(steps(other_curve), {})
    numbers = f"`reached` 0.78 and 0.74 → {reached:.2f}, `attention_back_reached` 0.30 → {back:.2f}, "
    numbers += f"`half_reached_at` 300 → {HALF:.0f}"
    return Left("LLM Foundry, A100", numbers, (own[0], own[1]), (errors("open", now), errors("open", then)))


def left_out(found: Sequence[Step]) -> Iterator[Left]:
    """Yield all groups that numbers are fitted on."""
    a100 = {one.name: one.reached for one in foundry.CLUSTERS.values()}
    a100 |= {one.name: one.reached for one in (A100_MEGATRON, A100_TORCHTITAN)}
    for stack in papers.stacks():
        others = median(part for name, part in a100.items() if name != stack.cluster.name)
        yield stack_left_out(stack, H100_DGX.reached if stack.cluster == H100_TORCHTITAN else others, found)
    yield foundry_left_out(found)


def groups(found: Sequence[Step]) -> Iterator[tuple[str, Errors]]:
    """Yield the errors of the open rows by group, and of all."""
    by_group: dict[str, list[float]] = {}
    for one in found:
        by_group.setdefault(one.row.group, []).append(one.off(one.row.cluster.reached))
    for name, offs in by_group.items():
        yield name, errors(name, offs)
    yield "all open rows", errors("", [off for offs in by_group.values() for off in offs])


BEGINS, ENDS = "<!-- left out, made by `python -m tools.left_out` -->", "<!-- end of left out -->"


def page(left: Sequence[Left], open_errors: Sequence[tuple[str, Errors]]) -> str:
    """Return both tables, in percent: medians, and after a stroke medians with their sign."""

    def pair(one: Errors) -> str:
        return f"{100 * one.median:.1f} / {100 * one.signed:+.1f}"

    rows = [("open rows", "rows", "median", "worst", "median with its sign"), ("---",) * 5]
    for name, one in open_errors:
        figures = f"{100 * one.median:.1f}", f"{100 * one.worst:+.0f}", f"{100 * one.signed:+.1f}"
        rows.append((name, f"{one.rows}", *figures))
    first = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    head = ("left out", "rows", "numbers, with them → without", "these rows", "without", "open rows", "without")
    more = [head, ("---",) * len(head)]
    for each in left:
        more.append((each.name, f"{each.own[0].rows}", each.numbers, *map(pair, (*each.own, *each.open))))
    return f"{first}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in more)


def main() -> None:
    """Print the tables, and write them into the page on real machines with the day."""
    found = steps()
    table = page([*left_out(found)], [*groups(found)])
    print(table)
    text = papers.PAGE.read_text(encoding="utf-8")
    if "--write" in sys.argv:
        day = date.today()
        table = f"Made on {day.day} {day:%B %Y}.\n\n{table}"
        papers.PAGE.write_text(papers.between(text, BEGINS, ENDS, f"\n{table}\n"), encoding="utf-8")


if __name__ == "__main__":
    main()
