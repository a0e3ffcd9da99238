"""What a picture costs: microseconds and bytes an event, beside the raw strings and beside chalk's own combinators.

The floor writes one SVG path for each color, with no chalk, no axis, no legend, no memory and no hover texts. The
other end builds the rows alone, boxes with their numbers and signs, with chalk's combinators, and writes them with
chalk's renderer.
Processor time, the best of several rounds, floor and picture one after the other.

    python -m tools.bench_drawing
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial

import chalk
from chalk.backend.svg import render as chalk_render
from colour import Color

from drawing import draw
from drawing.ink import theme
from drawing.ink.trace import Trace, trace_of
from lib import run
from lib.record.events import MARKS, Event
from tools.bench import fsdp, pipeline, timed

ROUNDS = 5


def one_forward_one_backward(stages: int, batches: int) -> Trace:
    """1F1B without communication, written down: as many events as one likes in no time."""
    ranks: dict[int, list[Event]] = {}
    done: dict[tuple[str, int, int], int] = {}
    for stage in range(stages):
        ranks[stage] = []
    orders = {}
    for stage in range(stages):
        warm = min(batches, stages - stage)
        order = [("forward", batch) for batch in range(warm)]
        for batch in range(batches):
            order.append(("backward", batch))
            if warm + batch < batches:
                order.append(("forward", warm + batch))
        orders[stage] = order
    clock = dict.fromkeys(range(stages), 0)
    waiting = set(range(stages))
    while waiting:
        for stage in sorted(waiting):
            while orders[stage]:
                kind, batch = orders[stage][0]
                before = (kind, stage - 1 if kind == "forward" else stage + 1, batch)
                if 0 <= before[1] < stages and before not in done:
                    break
                start = max(clock[stage], done.get(before, 0))
                done[kind, stage, batch] = clock[stage] = start + 1
                held = (8, 8, 0, 4 * (batch % stages), 0, 0, 0)
                event = Event(stage, kind, stage, frozenset((batch,)), start, start, start + 1, held)
                ranks[stage].append(event)
                orders[stage].pop(0)
            else:
                waiting.discard(stage)
    return Trace(ranks, stages, batches, title="1F1B")


def operations(trace: Trace) -> list[Event]:
    """The events that are drawn."""
    return [event for event in trace.events if event.kind not in MARKS]


def raw_strings(trace: Trace) -> str:
    """The boxes of a schedule as text, one path for each color."""
    per_tick = 826 / trace.time
    paths: dict[tuple[str, int | None], list[str]] = {}
    for event in operations(trace):
        x, width = 94 + event.start * per_tick, event.length * per_tick
        box = f"M{x:.2f} {event.rank * 20}h{width:.2f}v18h-{width:.2f}z"
        paths.setdefault((event.kind, event.layer), []).append(box)
    parts = (f'<path fill="#123456" d="{"".join(boxes)}"/>' for boxes in paths.values())
    return f"<svg>{''.join(parts)}</svg>"


def stock_box(event: Event, layers: int) -> chalk.Diagram:
    """A box with a number, or with a sign and the color of its layer."""
    color = Color(theme.layer_color(event.layer or 0, layers))
    if event.kind in theme.GLYPHS:
        box = chalk.rectangle(event.length, 1).fill_color(Color(theme.kind_color(event.kind))).line_width(0)
        strip = chalk.rectangle(event.length, 0.14).fill_color(color).line_width(0).align_b()
        sign = chalk.triangle(event.length / 2).fill_color(Color("#ffffff")).line_width(0)
        return (box.align_b() + strip).center_xy() + sign
    number = chalk.text(str(min(event.batches, default="")), 0.4).fill_color(Color("#ffffff")).line_width(0)
    return chalk.rectangle(event.length, 1).fill_color(color).line_width(0) + number


def stock_chalk(trace: Trace, path: str) -> None:
    """The rows of a schedule as one would write them with chalk: boxes and gaps side by side, rows below each other."""
    rows = []
    for events in trace.by_rank.values():
        row, reached = chalk.empty(), 0.0
        for event in sorted((e for e in events if e.kind not in MARKS and e.length), key=lambda e: e.start):
            if event.start > reached:
                row = row | chalk.hstrut(event.start - reached)
            row = row | stock_box(event, trace.layers)
            reached = event.end
        rows.append(row.align_l())
    chalk_render(chalk.vcat(rows, 0.2), path, height=500)


CASES: list[tuple[str, Callable[[], Trace]]] = [
    ("fsdp, 4 ranks, 6 layers", lambda: trace_of(run(fsdp, 4, 6, 4))),
    ("fsdp, 16 ranks, 6 layers", lambda: trace_of(run(fsdp, 16, 6, 16))),
    ("pipeline, 16 stages, 32 micro-batches", lambda: trace_of(run(pipeline, 16, 16, 32))),
    ("pipeline, 64 stages, 64 micro-batches", lambda: trace_of(run(pipeline, 64, 64, 64, timeout=None))),
    ("1F1B, 256 stages, 96 micro-batches", lambda: one_forward_one_backward(256, 96)),
    ("1F1B, 512 stages, 96 micro-batches", lambda: one_forward_one_backward(512, 96)),
    ("1F1B, 1,024 stages, 96 micro-batches", lambda: one_forward_one_backward(1024, 96)),
    ("fsdp, 1,024 ranks, 6 layers", lambda: trace_of(run(fsdp, 1024, 6, 1024, timeout=None))),
]
STOCK = 2
"""Cases that chalk's combinators can draw in seconds."""


def main() -> None:
    """Print the table."""
    print(f"{'':40} {'events':>8} {'us/event':>9} {'floor':>7} {'ratio':>6} {'bytes/event':>12} {'kB':>6}")
    for place, (name, make) in enumerate(CASES):
        made = make()
        count = len(operations(made))
        fresh = [Trace(made.by_rank, made.layers, made.batches) for _ in range(ROUNDS)]  # nothing is remembered
        pairs = [(timed(partial(shown, trace)), timed(partial(raw_strings, made))) for trace in fresh]
        cost, floor = (min(times) / count * 1e6 for times in zip(*pairs, strict=True))
        size = len(shown(made))
        print(
            f"{name:40} {count:8} {cost:9.2f} {floor:7.2f} {cost / floor:6.1f} {size / count:12.0f} {size / 1e3:6.0f}"
        )
        if place < STOCK:
            with tempfile.TemporaryDirectory() as folder:
                stock = timed(partial(stock_chalk, made, f"{folder}/stock.svg")) / count * 1e6
            print(f"    with chalk's combinators {stock:.0f} us an event, {stock / cost:.0f} times as long")


def shown(trace: Trace) -> str:
    """A picture as a notebook gets it."""
    return draw(trace)._repr_html_()


if __name__ == "__main__":
    main()
