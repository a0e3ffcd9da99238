"""The contract's table, exactly; and that no figure depends on the order in which ranks start."""

import asyncio
import random
from typing import Any

import pytest

from lib import Dist, Model, run
from lib.course.layouts import mesh_of
from lib.course.specs import cost_named, puzzles
from tests.programs import solutions

TABLE = {
    "basic": (17.0, 2621440, 2621440),
    "grad_accum": (17.0, 1966080, 1966080),
    "ddp": (5.6, 1835008, 1572864),
    "wsdp": (20.4, 2752512, 2621440),
    "fsdp": (20.4, 2359296, 1966080),
    "pipeline": (67.4, 3145728, 2621440),
    "gpipe": (33.8, 4194304, 2883584),
    "pipeline_fsdp": (16.0, 966656, 704512),
    "replica_fsdp": (55.8, 2162688, 2162688),
}
"""Puzzle: time, memory of the target, memory that a plain solution reaches at least. Of later ones the spec says it."""
CASES = [pytest.param(fn, spec, id=spec["name"]) for fn, spec in solutions()]
SMALL = [pytest.param(fn, spec, id=spec["name"]) for fn, spec in solutions(small=True)]
BY_HAND = [one for one in SMALL if not {"links", "tokens"} & {*one.values[1]["size"]} and one.id != "muon"]
"""Puzzles of a machine that ``Dist`` can make; only ``run`` has the others."""


def test_the_table_is_complete() -> None:
    assert [case.id for case in CASES][: len(TABLE)] == list(TABLE)


@pytest.mark.parametrize(("fn", "spec"), CASES)
def test_targets_and_solutions(fn: Any, spec: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked = spec["target"]
    time, target, plain = TABLE.get(spec["name"], (asked["time"], asked["memory"], asked["memory"]))
    assert asked == {"time": time, "memory": target}
    result = run(fn, **spec["size"], cost=cost_named(spec.get("cost", "default")))
    result.check()
    assert capsys.readouterr().out == "Correct!\n"
    took, memory = puzzles()[spec["name"]].scored(result.time, result.memory)
    assert took == time if spec["name"] in TABLE else took <= time
    assert memory <= plain


@pytest.mark.parametrize(("fn", "spec"), SMALL)
def test_order_of_start_changes_nothing(fn: Any, spec: dict[str, Any]) -> None:
    ranks = mesh_of(spec["size"]).everyone
    shuffled = random.Random(1).sample(range(ranks), ranks)
    logs = [run(fn, **spec["size"], _order=order).events for order in (range(ranks), range(ranks)[::-1], shuffled)]
    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0]) > ranks


@pytest.mark.parametrize(("fn", "spec"), BY_HAND)
def test_plain_gather_gives_the_same_figures(fn: Any, spec: dict[str, Any]) -> None:
    size = dict(spec["size"])
    machine = {name: size.pop(name) for name in ("mesh", "node_size", "hosts", "experts") if name in size}
    dist = Dist(size.pop("ranks"), **machine)
    train = size.pop("train", "weights")

    async def everyone() -> list[Model]:
        models = [Model(rank=rank, dist=dist, **size) for rank in range(dist.ranks + dist.hosts)]
        results = [fn(model) for model in models]
        return list(await asyncio.gather(*results)) if asyncio.iscoroutine(results[0]) else results

    models = asyncio.run(everyone())
    Model.check(models, train=train)
    expected = run(fn, **spec["size"])
    assert max(event.end for model in models for event in model.log) == expected.time
    devices = [model for model in models if not model.is_host]
    assert max(event.memory for model in devices for event in model.log) == expected.memory
