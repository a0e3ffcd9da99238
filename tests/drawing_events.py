"""Runs and made-up traces for the tests of pictures, and what is read back from a picture."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any
from xml.etree import ElementTree

from drawing import Figure, Player, Trace
from lib import Model, Run, run
from lib.record.events import Event
from tests.experts import finish
from tests.programs import PATIENCE

SVG = "{http://www.w3.org/2000/svg}"


def event(
    rank: int,
    kind: str,
    start: float,
    end: float,
    layer: int | None = 0,
    batches: Iterable[int] = (0,),
    held: tuple[int, ...] = (4, 4, 0, 2, 0, 0, 0),
    **more: Any,
) -> Event:
    """An event issued when it starts."""
    return Event(rank, kind, layer, frozenset(batches), start, start, end, held, **more)


def data(player: Player) -> dict[str, Any]:
    """What the page of a player was given to show."""
    found = re.search(r"^const data = (.*);$", player.page, re.MULTILINE)
    assert found is not None
    return dict(json.loads(found[1]))


def trace(*ranks: Sequence[Event], layers: int = 4, batches: int = 4, **more: Any) -> Trace:
    """The trace of these ranks."""
    return Trace(dict(enumerate(ranks)), layers, batches, **more)


def chain(rank: int, count: int, layers: int = 4, offset: float = 0.0) -> list[Event]:
    """Forwards and backwards, one after the other."""
    return [
        event(rank, ("forward", "backward")[at % 2], at + offset, at + 1 + offset, at % layers, [at % 4])
        for at in range(count)
    ]


async def sharded(model: Model) -> Model:
    """FSDP with the next weight gathered while a layer computes."""
    rank, ranks = model.rank, model.RANKS
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, rank, ranks)
    model.activations[0] = model.get_activation([rank])
    coming = model.allgather(model.weights[0], 0)
    for layer in range(model.LAYERS):
        model.weights["full"] = await coming
        if layer + 1 < model.LAYERS:
            coming = model.allgather(model.weights[layer + 1], layer + 1)
        weight = model.weights.pop("full")
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer)
        grad, model.grad_activations[layer] = model.backward(
            layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), weight
        )
        model.grad_weights[layer] = await model.scatterreduce(grad, layer)
    return finish(model)


@cache
def sharded_run(ranks: int = 4, layers: int = 3, **more: Any) -> Run:
    return run(sharded, ranks, layers, ranks, timeout=PATIENCE, **more)


@cache
def staged_run(stages: int = 4, batches: int = 4, **more: Any) -> Run:
    from tools.bench import staged  # here, since it imports nearly all that there is

    return run(staged, stages, stages, batches, timeout=PATIENCE, **more)


def parse(figure: Figure) -> ElementTree.Element:
    """The picture as XML; fails where it is not well formed."""
    return ElementTree.fromstring(figure.svg())


def titles(figure: Figure) -> list[str]:
    """All hover texts."""
    return [element.text or "" for element in parse(figure).iter(SVG + "title")]


def operation_titles(figure: Figure) -> list[str]:
    """The hover texts of operations."""
    return [title for title in titles(figure) if re.search(r"\n(tick )?[\d.]+ to [\d.]+( ms)?(\n|$)", title)]


def texts(figure: Figure) -> list[str]:
    """All that is written."""
    return ["".join(element.itertext()) for element in parse(figure).iter(SVG + "text")]


NUMBER = r"-?\d+(?:\.\d+)?"


def corners(figure: Figure) -> Iterator[tuple[float, float]]:
    """All coordinates of shapes and texts, moved as their groups are."""
    yield from _corners(parse(figure), 0.0, 0.0)


def outside(figure: Figure) -> list[tuple[float, float]]:
    """The corners that lie outside of the picture."""
    width, height = figure.size
    return [(x, y) for x, y in corners(figure) if not (0 <= x <= width and 0 <= y <= height)]


def _corners(element: ElementTree.Element, dx: float, dy: float) -> Iterator[tuple[float, float]]:
    moved = [float(n) for n in re.findall(NUMBER, element.get("transform", ""))]
    if moved:
        assert moved[:4] == [1, 0, 0, 1]
        dx, dy = dx + moved[4], dy + moved[5]
    for x, y in _own_corners(element):
        yield x + dx, y + dy
    for child in element:
        yield from _corners(child, dx, dy)


def _own_corners(element: ElementTree.Element) -> Iterator[tuple[float, float]]:
    if element.tag in (SVG + "rect", SVG + "text"):
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        yield x, y
        yield x + float(element.get("width", 0)), y + float(element.get("height", 0))
    x = y = 0.0
    for command, rest in re.findall(rf"([MLhlvz])((?: ?{NUMBER})*)", element.get("d", "")):
        numbers = [float(n) for n in re.findall(NUMBER, rest)]
        if command in "ML":
            x, y = numbers
        elif command == "l":
            x, y = x + numbers[0], y + numbers[1]
        elif command == "h":
            x += numbers[0]
        elif command == "v":
            y += numbers[0]
        yield x, y
