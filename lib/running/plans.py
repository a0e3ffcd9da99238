"""What a planner has found, as a table: plans in order, which of them are equal, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..basics.columns import in_columns
from ..basics.units import show_bytes
from .sweep import beats
from .ways import Plan

ALIKE = 0.08
"""The relative error of the model of a cluster: times within this of the fastest count as equal."""
SHOWN = 20  # plans of a table
HEADS = ("program", "replicas x stages x tensor", "chunks", "micro-batch", "recompute", "s", "memory", "MFU", "", "")


class Plans:
    """The result of a search. ``plans``: those that fit; first those within 8 percent of the fastest, from small to
    large, then the others by seconds. ``tried``: the number of plans that were run or ruled out. ``dropped``: what was
    left out, with the number of ways and an example."""

    def __init__(self, plans: Sequence[Plan], tried: int, dropped: Mapping[str, tuple[int, str]] | None = None) -> None:
        fastest = min(plan.seconds for plan in plans)
        self.limit = fastest * (1 + ALIKE)
        self.plans = sorted(
            plans, key=lambda plan: (0, plan.bytes, plan.seconds) if self.ties(plan) else (1, plan.seconds, plan.bytes)
        )
        self.tried, self.dropped = tried, dict(dropped or {})

    @property
    def best(self) -> Plan:
        """The first plan: of those that are as fast as the fastest, the one that takes the least memory."""
        return self.plans[0]

    def ties(self, plan: Plan) -> bool:
        """Return whether a plan is as fast as the fastest, within the error of the model."""
        return plan.seconds <= self.limit

    def front(self) -> list[Plan]:
        """Return the plans that no other one beats in seconds and bytes: the Pareto front, from fast to small."""
        front = [plan for plan in self.plans if not any(beats(other.figures, plan.figures) for other in self.plans)]
        return sorted(front, key=lambda plan: plan.seconds)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table as texts."""
        front = self.front()
        return [
            (
                plan.name, _mesh(plan), str(plan.chunks), str(plan.micro_batch), plan.recomputed, f"{plan.seconds:.3g}",
                show_bytes(plan.bytes), f"{100 * plan.mfu:.0f}%", "=" * self.ties(plan), "front" * (plan in front),
            )
            for plan in self.plans
        ]  # fmt: skip

    def __str__(self) -> str:
        rows = [HEADS, *self.rows()]
        more = len(rows) - 1 - SHOWN
        lines = in_columns(rows[: SHOWN + 1]) + [f"and {more} more, in plans.rows()"] * (more > 0)
        lines.append(f"=: as fast as the fastest, within {100 * ALIKE:.0f} percent")
        lines.append("front: no other plan is both as fast and as small; each of these trades seconds for memory")
        lines.append(f"{self.tried:,} ways were considered. Left out:")
        lines += [f"  {many:,}: {why} ({example})" for why, (many, example) in self.dropped.items()]
        return "\n".join(lines if self.dropped else [*lines[:-1], f"{self.tried:,} ways were considered"])

    __repr__ = __str__


def _mesh(plan: Plan) -> str:
    """Return the mesh of a plan as text, with the axes that few plans have by name."""
    said = f"{plan.replicas} x {plan.stages} x {plan.tensor}"
    said += f", context {plan.context}" if plan.context > 1 else ""
    said += f", experts {plan.expert_parallel}" if plan.expert_parallel > 1 else ""
    said += ", activations on hosts" if plan.offload else ""
    said += ", states on hosts" if plan.states_on_hosts else ""
    return said + (f", {max(plan.split)} or {min(plan.split)} layers" if plan.split else "")
