"""Where the time and the memory of a run on a cluster go, as text."""

from __future__ import annotations

from collections import Counter

from ..basics.arguments import describe
from ..basics.errors import PuzzleError
from ..basics.units import show_bytes
from ..machine.check import TRAINED
from ..machine.outcome import Outcome
from ..record.events import Event
from ..record.experts import ALLTOALL
from ..record.figures.breakdown import TALK, idle_of, name_of, time_parts
from ..record.figures.score import part_of_time, peak_event, spans_boxes
from ..record.kinds import MEMORY_KINDS
from ..record.operations import Computation
from ..record.table import OPERATIONS, RECEIVE, collective
from ..record.training import BACKWARD, FORWARD, LOSS, UPDATE
from .changes import changes
from .hardware import FITS
from .prices import RealCost


def report(run: Outcome) -> str:
    """Return where time goes, where memory goes at its peak, what goes over which links, and how much of that is
    exposed, which means that nothing is computed meanwhile; and what each single change would take away, or add, such
    as to compute less again, by the prices (see ``changes``). Raises PuzzleError for a run whose cost is in ticks."""
    cost = getattr(run, "cost", None)
    if not isinstance(cost, RealCost):
        got = repr(run) if isinstance(run, Outcome) else describe(run)
        expected = "report(run(..., cost=cluster.cost(model)))"
        raise PuzzleError("report takes a run on a cluster", where="report", got=got, expected=expected)
    if not run.attempted:
        return f"{run.name}: not attempted yet"
    gpus = run.ranks * cost.gpus
    head = f"{run.name}, {cost}, {run.batches} micro-batch{'es' * (run.batches > 1)} on {gpus:,} GPU{'s' * (gpus > 1)}"
    head += f", {cost.gpus} a rank" * (cost.gpus > 1) + "".join(f" ({note})" for note in (run.note, run.fault) if note)
    return "\n".join([head, *_time(run, cost), *_memory(run, cost), *_volume(run, cost), *_helps(run, cost)])


def _helps(run: Outcome, cost: RealCost) -> list[str]:
    """Return what each single change would take away or add. Of a program that keeps activations itself, or divides
    layers or experts, it is not known."""
    plain = {FORWARD.kind, BACKWARD.kind, LOSS.kind, UPDATE.kind}
    typical, _ = run.typical
    done = {event.kind for event in typical if isinstance(OPERATIONS.get(event.kind), Computation)}
    whole = not any("partial" in word or "keep" in word for event in typical for word in event.words)
    if not done <= plain or not {FORWARD.kind, BACKWARD.kind} <= done or not whole or run.hosts:
        return []
    head = f"\nwhat would change with (this run has recompute={cost.recomputed!r})"
    return [head, *(f"  {one.line(run)}" for one in changes(run, cost))]


def _time(run: Outcome, cost: RealCost) -> list[str]:
    mfu = f"; MFU {cost.mfu(run.time, run.batches, run.ranks)}" if run.train == TRAINED[0] else ""
    tokens = run.batches * cost.model.tokens(cost.micro_batch) / run.time if run.time else 0.0
    lines = [
        f"\ntime: {run.time:.4g} s a step, {tokens:,.0f} tokens a second,",
        f"      {tokens / run.ranks / cost.gpus:,.0f} on each GPU{mfu}",
    ]
    parts = time_parts(*run.typical, run.time)
    rows = sorted([(float(part), name_of(kind)) for kind, part in parts.items() if kind in OPERATIONS], reverse=True)
    traffic = _traffic(run, cost)
    if traffic:
        rows.append((traffic, "of these, traffic within layers"))
    rows += [(float(parts.get(TALK, 0)), "communication that nothing hides"), (float(idle_of(parts)), "bubble")]
    return [*lines, *(f"  {100 * part:5.1f} %  {word}" for part, word in rows)]


def _traffic(run: Outcome, cost: RealCost) -> float:
    """Return the part of all ranks' time that is tensor-parallel traffic, inside the price of layers."""
    if not cost.traffic or not run.time:
        return 0.0
    typical, ranks = run.typical
    events = [event for event in typical if event.kind in OPERATIONS]
    done = sum(float(event.end - event.start) * cost.traffic_of(event.kind) for event in events)
    return done / run.time / ranks


def _memory(run: Outcome, cost: RealCost) -> list[str]:
    peak = peak_event(run.typical[0])
    room, sheet = cost.cluster.room, cost.cluster.memory
    fits = "fits" if cost.fits(run.memory) else "does not fit"
    lines = [f"\nmemory: {show_bytes(run.memory)} at the peak; it {fits} {show_bytes(room)},"]
    lines.append(f"        {100 * FITS:.0f} percent of the {show_bytes(sheet)} of a GPU")
    if peak is None:
        return lines
    held = sorted(zip(peak.held, MEMORY_KINDS, strict=True), reverse=True)
    lines.append(f"  on rank {peak.rank} at {run.unit.at(f'{peak.issued:.4g}')}, when {peak.kind} began:")
    return [*lines, *(f"  {show_bytes(size):>8}  {kind.replace('_', ' ')}" for size, kind in held if size)]


def _volume(run: Outcome, cost: RealCost) -> list[str]:
    size: Counter[str] = Counter()
    times: dict[str, list[Event]] = {name: [] for name in cost.tiers}
    typical, ranks = run.typical
    for event in typical:
        if event.op is not None and event.kind != RECEIVE.kind:
            part = over_cards(event, run) if spans_boxes(event, run.node_size, run.devices_of) else 0.0
            for tier, share in zip(cost.tiers, (1 - part, part), strict=True):
                if share:
                    size[tier] += round(share * sent_by(event))
                    times[tier].append(event)
    lines = ["\nlinks, from each GPU on the average:"]
    for tier, events in times.items():
        if events:
            busy = part_of_time(events, run.time, ranks)
            lines.append(f"  {show_bytes(size[tier] / ranks):>8}  {tier}, busy for {100 * busy:.1f} % of the time")
    if cost.traffic:
        lines.append("  and traffic within layers, of tensor, context or expert parallelism, which is in their price")
    return lines if len(lines) > 1 or cost.traffic else []


def over_cards(event: Event, run: Outcome) -> float:
    """Return which part of what a rank sends leaves its node. A ring leaves each node once, and NCCL has several, each
    over another card (src/graph/rings.cc): of its ranks there each sends that part; in an all-to-all to all others."""
    ranks, near = len(event.group), max(Counter(rank // (run.node_size or 1) for rank in event.group).values())
    return (ranks - near) / (ranks - 1) if event.kind == ALLTOALL.kind else 1 / near


def sent_by(event: Event) -> float:
    """Return the bytes that a rank sends: in a ring (n - 1)/n of the whole, in an all-reduce twice that."""
    ranks = len(event.group)
    if event.stream != "collective":
        return float(event.elements)
    row = collective(event.kind)
    whole = float(event.elements) * (1 if row.sums else ranks)
    return row.rounds * whole * (ranks - 1) / ranks
