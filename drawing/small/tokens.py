"""Tokens of a layer on their way to its experts, the hottest ones seen: ``draw_tokens``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError, numbered
from lib.basics.units import Elements
from lib.record.experts import OUTWARD
from lib.record.figures.breakdown import share_text
from lib.record.figures.dealt import Traffic, traffic_of
from lib.record.labels import Labels
from lib.running.run import Run

from ..ink import theme
from ..ink.figure import PHONE, Figure, at_any_width
from ..ink.letters import wrapped
from ..ink.marks import Diagram, Point, Style, Titled, box, label, lines, poly, style, together
from ..schedule.layout import PAD
from ..schedule.picture import card, sentences

WIDTH, TOP, TALL, LOWEST = 733.0, 90.0, 320.0, 12.0
"""In pixels: the width of the picture, where its bands begin, how tall all of them are together, and how tall an expert
with the mean number of tokens is at least."""
CLOSE, APART = 3.0, 12.0
"""Pixels between two things of a rank, and between two ranks."""
MOST_RANKS, MOST_BOXES = 16, 64
"""There is no room for more."""
STEPS = 14
"""How many straight pieces the edge of a band has."""
PALE, STRONG = 0.14, 0.42
"""How opaque a band is at least, and how much more where an expert has the most tokens."""


Room = tuple[float, float]
"""Of a thing among others below each other: the y of its top, and its height."""
Homes = dict[tuple[int, int], Room]
"""The place of each micro-batch, by the rank that brings it."""


class Across(NamedTuple):
    """Where things are from left to right, in pixels: micro-batches, experts, and the bars of time."""

    width: float
    home: float
    home_ends: float
    experts: float
    experts_end: float
    bars: float
    bars_end: float


WIDE = Across(WIDTH, PAD + 48, PAD + 92, 368, 452, 512, WIDTH - PAD - 84)
SLIM = Across(PHONE, PAD + 46, PAD + 70, 188, 218, 274, PHONE - PAD - 32)


def draw_tokens(run: Run, layer: int = 1, *, static: bool = False) -> Figure:
    """The tokens of a layer on their way to its experts: the micro-batches of all ranks at the left, the experts at the
    right, and between them bands as thick as tokens are many. Beside each rank with experts is how long these take: the
    hottest, for which all wait, are red.

    Raises PuzzleError for anything that is not a run, and for a layer whose tokens did not go to experts.
    """
    if not isinstance(run, Run):
        problem, expected = "draw_tokens takes a run", "draw_tokens(run(expert_parallel, ..., experts=8))"
        raise PuzzleError(problem, where="draw_tokens", expected=expected, got=describe(run))
    found = {one: traffic_of(run.events, one, run.experts, partial(_load, run, one)) for one in range(run.layers)}
    sent = {one: traffic for one, traffic in found.items() if traffic is not None}
    if type(layer) is not int or layer not in sent:
        problem = f"no tokens of layer {describe(layer)} went to experts in this run"
        expected = numbered("layer", sent) if sent else "a run with await model.alltoall(...) and model.expert(...)"
        raise PuzzleError(problem, where="draw_tokens", expected=expected)
    traffic = sent[layer]
    if len(traffic.brought) > MOST_RANKS or len(traffic.experts) > MOST_BOXES:
        expected = f"up to {MOST_RANKS} ranks and {MOST_BOXES} experts"
        got = f"{len(traffic.brought)} ranks, {len(traffic.experts)} experts"
        raise PuzzleError("there is no room for so many", where="draw_tokens", expected=expected, got=got)
    texts = _sentences(run, traffic, [*sent.values()])
    return at_any_width(partial(_drawn, run, traffic, texts), WIDE, SLIM, static)


def _load(run: Run, layer: int, expert: int) -> Elements:
    """Return how many elements of each micro-batch go to an expert."""
    tokens = Labels(OUTWARD["Activation"], layer, run.layers, batches=frozenset({0}), total_batches=run.batches)
    return run.cost.elements(tokens.changed(shards=frozenset({expert}), total=run.experts))


# -- in words ---------------------------------------------------------------------------------------


def _sentences(run: Run, traffic: Traffic, others: Sequence[Traffic]) -> list[str]:
    """Return what is said below the picture: for whom all wait, in this layer and in the others."""
    if not any(one.hottest for one in others):
        return ["Every rank gets equally many tokens, so nobody waits for a busy expert."]
    texts = ["In this layer every rank gets equally many tokens."]
    if traffic.hottest:
        hot, most = numbered("rank", traffic.hottest), run.unit.lasting(max(traffic.ticks.values()))
        verb, times = "is" if len(traffic.hottest) == 1 else "are", f"{traffic.against_the_mean:.3g} times the mean"
        texts = [f"The busiest {verb} {hot}: {most}, {times}. No token goes home before these are done."]
    if len(others) > 1:
        elsewhere = [one for one in others if one.layer != traffic.layer]
        rest = [f"{numbered('rank', one.hottest) if one.hottest else 'none'} in layer {one.layer}" for one in elsewhere]
        texts.append(f"The busiest elsewhere: {', '.join(rest)}.")
    return texts


# -- drawn ------------------------------------------------------------------------------------------


def _drawn(run: Run, traffic: Traffic, texts: Sequence[str], across: Across) -> Figure:
    """Return the picture, with things from left to right as they are in a wide or in a narrow place."""
    heres = [(rank, batch) for rank, batches in traffic.brought.items() for batch in batches]
    went = {one: [expert for expert in traffic.experts if one[1] in traffic.came[expert.rank]] for one in heres}
    loads = [float(expert.load) * len(traffic.came[expert.rank]) for expert in traffic.experts]
    scale = max(TALL, LOWEST * len(loads)) / sum(loads)
    sent = [scale * float(sum(expert.load for expert in went[one])) for one in heres]
    homes = dict(zip(heres, _stacked([rank for rank, _ in heres], sent), strict=True))
    rooms = _stacked([expert.rank for expert in traffic.experts], [scale * load for load in loads])
    title = f"Tokens of layer {traffic.layer} on their way to {run.experts} experts"
    whole = Labels("Activation", traffic.layer, run.layers, batches=frozenset({0}), total_batches=run.batches)
    chosen = float(sum(_load(run, traffic.layer, one) for one in range(run.experts)) / run.cost.elements(whole))
    note = "The thicker a band, the more tokens." + f" Each token goes to {chosen:g} experts." * (chosen > 1)
    heads = [
        (PAD, 42.0 + 13 * at, line, "start") for at, line in enumerate(wrapped(note, 10.5, across.width - 2 * PAD))
    ]
    heads += [(PAD, TOP - 13, "micro-batches", "start"), (across.experts_end, TOP - 13, "experts", "end")]
    heads += [(across.bars, TOP - 13, "time for its experts", "start")]
    parts: list[Diagram] = [
        label(PAD, 24, title, 14, style(theme.INK), "start", 650),
        *(label(x, y, text, 10.5, style(theme.MUTE), anchor) for x, y, text, anchor in heads),
        *_bands(traffic, homes, rooms, across, scale),
        *_boxes(traffic, homes, rooms, across),
        *_time_bars(run, traffic, rooms, across),
    ]
    bottom = max(top + tall for top, tall in (*homes.values(), *rooms))
    below, y = sentences(texts, bottom + 12, across.width)
    each = []
    for rank, ticks in traffic.ticks.items():
        own = numbered("expert", [one.number for one in traffic.experts if one.rank == rank])
        each.append(f"rank {rank} computes {own}, {run.unit.lasting(ticks)}")
    words = f"{title}. {'; '.join(each)}. {' '.join(texts)}"
    return card([*parts, *below], across.width, y + 4, words, title=title)


def _stacked(ranks: Sequence[int], heights: Sequence[float]) -> list[Room]:
    """Return the places of things of these heights below each other, those of a rank closer."""
    found, y = list[Room](), TOP
    for rank, after, tall in zip(ranks, [*ranks[1:], None], heights, strict=True):
        found.append((y, tall))
        y += tall + (CLOSE if rank == after else APART)
    return found


def _bands(traffic: Traffic, homes: Homes, rooms: Sequence[Room], across: Across, scale: float) -> Iterator[Diagram]:
    """Yield the bands, those of the hottest ranks last."""
    right, most = [top for top, _ in rooms], max(expert.load for expert in traffic.experts)
    found = list[tuple[bool, Diagram]]()
    for (rank, batch), (y, tall) in homes.items():
        for at, expert in enumerate(traffic.experts):
            if batch not in traffic.came[expert.rank]:
                continue
            thick = float(expert.load) * scale
            how = style(_color(traffic, expert.rank), None, 0, PALE + STRONG * float(expert.load / most))
            text = f"micro-batch {batch} of rank {rank} to expert {expert.number} on rank {expert.rank}: "
            text += f"{share_text(thick / tall)} of its tokens"
            band = poly(_band(across.home_ends, across.experts, y, right[at], thick), how)
            found.append((expert.rank in traffic.hottest, Titled(text, band)))
            y, right[at] = y + thick, right[at] + thick
    yield from [band for _, band in sorted(found, key=lambda one: one[0])]


def _color(traffic: Traffic, rank: int) -> str:
    return theme.CHAIN if rank in traffic.hottest else theme.TALK


def _band(x0: float, x1: float, y0: float, y1: float, thick: float) -> list[Point]:
    """Return the corners of a band between two heights, which begins and ends level."""
    parts = [step / STEPS for step in range(STEPS + 1)]
    upper = [(x0 + (x1 - x0) * part, y0 + (y1 - y0) * part * part * (3 - 2 * part)) for part in parts]
    return [*upper, *[(x, y + thick) for x, y in reversed(upper)]]


def _boxes(traffic: Traffic, homes: Homes, rooms: Sequence[Room], across: Across) -> Iterator[Diagram]:
    """Yield the micro-batches with their ranks, and the experts."""

    def named(x0: float, x1: float, room: Room, how: Style, word: str, number: int) -> Diagram:
        (y, tall), text = room, f"{word} {number}" if across is WIDE else str(number)
        words = [label((x0 + x1) / 2, y + tall / 2, text, 10.5, style(theme.INK))] if tall >= 11 else []
        return together([box(x0, y, x1 - x0, max(tall, 1.5), how, 3), *words])

    for rank, batches in traffic.brought.items():
        middle = (homes[rank, batches[0]][0] + sum(homes[rank, batches[-1]])) / 2
        yield label(PAD, middle, f"rank {rank}", 11, style(theme.INK), "start", 600)
    for (_, batch), room in homes.items():
        yield named(across.home, across.home_ends, room, style(theme.LANE, theme.MUTE, 1), "mb", batch)
    for expert, room in zip(traffic.experts, rooms, strict=True):
        how = style(theme.CARD, _color(traffic, expert.rank), 1.4)
        shape = named(across.experts, across.experts_end, room, how, "expert", expert.number)
        yield Titled(f"expert {expert.number} on rank {expert.rank}", shape)


def _time_bars(run: Run, traffic: Traffic, rooms: Sequence[Room], across: Across) -> Iterator[Diagram]:
    """Yield how long the experts of each rank take, and the time at which the hottest ones are done."""
    most, ink, ends = max(traffic.ticks.values()), style(theme.INK), across.bars_end
    if traffic.hottest:
        yield lines([(ends, rooms[0][0], ends, sum(rooms[-1]))], style(None, theme.CHAIN, 1, dash=(3, 3)))
    for rank, ticks in traffic.ticks.items():
        own = [place for expert, place in zip(traffic.experts, rooms, strict=True) if expert.rank == rank]
        middle, long = (own[0][0] + sum(own[-1])) / 2, (ends - across.bars) * ticks / most
        yield label(across.experts_end + 8, middle, f"rank {rank}", 11, ink, "start", 600)
        yield box(across.bars, middle - 8, long, 16, style(_color(traffic, rank)), 2)
        if long < ends - across.bars - 1:
            yield box(across.bars + long, middle - 8, ends - across.bars - long, 16, style(theme.GAP), 2)
        text = run.unit.lasting(ticks) if across is WIDE else run.unit.show(ticks)
        yield label(ends + 6, middle, text, 11, ink, "start", 650 if rank in traffic.hottest else 400)
