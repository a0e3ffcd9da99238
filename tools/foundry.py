"""The rows of LLM Foundry's benchmark: how far each is off, and whether we say that it fits.

The table is in scripts/train/benchmarking of github.com/mosaicml/llm-foundry (MosaicML, 2023, Apache License 2.0):
``mpt_a100.csv`` has what its rows with A100s say. All of them ran. MPT is of the GPT family, with 50,368 words and
flash attention; PyTorch's FSDP keeps weights and gradients in 4 bytes, gathers in 2, and reduces in 4, or in 2 where it
is called PURE. Every third row was kept back while two numbers of each stack were fitted on the others.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

from lib import Run, run
from lib.real import A100_40_LLM_FOUNDRY, A100_LLM_FOUNDRY, Cluster, Transformer
from lib.real.prices import RealCost
from tools.programs import fsdp_accumulating

SIZES = {
    "125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16), "3b": (32, 2560, 20),
    "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56), "70b": (80, 8192, 64),
}  # fmt: skip
"""Layers, width and heads of MPT: scripts/train/yamls/pretrain of the same repository."""
CLUSTERS = {"a100_80gb": A100_LLM_FOUNDRY, "a100_40gb": A100_40_LLM_FOUNDRY}
KEPT_BACK = 3  # every third row was not fitted


class Row(NamedTuple):
    """A row of the table. ``tokens``: a second, of each GPU; ``held_back``: whether it was not fitted."""

    model: Transformer
    cluster: Cluster
    gpus: int
    micro_batch: int
    batches: int  # of a GPU and step
    recompute: str
    reduced: int
    tokens: float
    held_back: bool

    @property
    def seconds(self) -> float:
        """What a step took."""
        return self.batches * self.model.tokens(self.micro_batch) / self.tokens

    @property
    def cost(self) -> RealCost:
        """Our prices."""
        return self.cluster.cost(
            self.model, micro_batch=self.micro_batch, recompute=self.recompute, stored=4, gradients=4, gathered=2,
            reduced=self.reduced,
        )  # fmt: skip


def rows() -> list[Row]:
    """Return all rows. Those of a cluster are counted by themselves."""
    found, seen = [], dict.fromkeys(CLUSTERS, 0)
    with open(Path(__file__).with_name("mpt_a100.csv"), encoding="utf-8") as file:
        for line in csv.DictReader(file):
            layers, hidden, heads = SIZES[line["model"]]
            name = f"MPT {line['model']}"
            model = Transformer(layers, hidden, heads, int(line["seq"]), 50368, tied=True, attention="flash", name=name)
            recompute, reduced = "full" if line["ckpt"] == "True" else "none", 2 if line["mode"] == "PURE" else 4
            sizes = int(line["gpus"]), int(line["micro"]), int(line["accum"])
            kept_back = seen[line["gpu"]] % KEPT_BACK == 1
            seen[line["gpu"]] += 1
            found.append(Row(model, CLUSTERS[line["gpu"]], *sizes, recompute, reduced, float(line["tps"]), kept_back))
    return found


class Done(NamedTuple):
    """A row beside ours: ``off``, how much longer our step takes, as a part of the published one."""

    row: Row
    seconds: float
    memory: int
    fits: bool

    @property
    def off(self) -> float:
        """How far ours is off."""
        return self.seconds / self.row.seconds - 1


def done(row: Row) -> Done:
    """Return a row with our figures. The time grows evenly with the micro-batches, and from the second on no more is in
    memory: two short runs tell that of a long step. Ranks are represented, since all do the same."""
    short, longer = (_run(row, batches) for batches in (1, 2))
    last = longer if row.batches > 1 else short
    seconds = short.seconds + (longer.seconds - short.seconds) * (row.batches - 1)
    return Done(row, seconds, last.bytes, last.fits)


def estimated(row: Row) -> float:
    """Return how far a row is off by the prices alone, without a run: but for what is exposed of gathers and sums."""
    cost = row.cost
    each = row.model.layers * (cost.forward + cost.backward) + cost.loss
    return float(row.batches * each + cost.update_takes(row.model.size / row.gpus)) / row.seconds - 1


def left_out(key: Callable[[Row], object]) -> Errors:
    """Return how far rows are off if none with the same ``key`` was seen: both numbers of each stack are fitted on all
    other rows of its cluster, one key after the other. What is as far off as with our own numbers follows from no fit
    to single rows. By the prices alone, as in ``estimated``."""
    every, off = rows(), _off_with_other_numbers()
    tried, found = [*off[0]], []
    for kept, cluster in {(key(row), row.cluster) for row in every}:
        seen = [off[at] for at, row in enumerate(every) if row.cluster == cluster and key(row) != kept]
        best = min(tried, key=lambda one, seen=seen: median(abs(each[one]) for each in seen))  # type: ignore[misc]
        found += [off[at][best] for at, row in enumerate(every) if row.cluster == cluster and key(row) == kept]
    return errors("", found)


HALVES: dict[str, Callable[[Row], object]] = {
    "every second size": lambda row: [*SIZES].index(row.model.name.removeprefix("MPT ")) % 2,
    "small or large": lambda row: row.model.size > 2e9,
    "every second length": lambda row: row.model.sequence.bit_length() % 2,
    "short or long": lambda row: row.model.sequence > 2048,
}
"""Ways to divide the rows into two halves, so that one can be fitted without the other."""


@cache
def _off_with_other_numbers() -> list[dict[tuple[float, float], float]]:
    """Return how far each row is off with each pair of numbers that might be fitted to a stack."""
    tried = [(more, back) for more in (-0.06, -0.04, -0.02, 0, 0.02, 0.04, 0.06) for back in (0.26, 0.28, 0.3, 0.32)]

    def priced(row: Row, more: float, back: float) -> float:
        cluster = replace(row.cluster, reached=row.cluster.reached + more, attention_back_reached=back)
        return estimated(row._replace(cluster=cluster))

    return [{one: priced(row, *one) for one in tried} for row in rows()]


def fits(row: Row) -> bool:
    """Return whether we say that a row fits."""
    return _run(row, min(2, row.batches)).fits


def _run(row: Row, batches: int) -> Run:
    count = batches * row.gpus
    return run(fsdp_accumulating, row.gpus, row.model.layers, count, cost=row.cost, represent=True, timeout=None)


class Errors(NamedTuple):
    """How far the rows of a set are off, in parts of what was published."""

    name: str
    rows: int
    median: float  # without regard to the sign
    worst: float
    signed: float  # the median with its sign
    refused: int | None = None  # rows that ran, of which we say that they do not fit; None where memory is not known


def errors(name: str, offs: Iterable[float], refused: int | None = None) -> Errors:
    """Return the errors of a set."""
    each = [*offs]
    return Errors(name, len(each), median(map(abs, each)), max(each, key=abs), median(each), refused)


def groups(found: Sequence[Done]) -> Iterator[Errors]:
    """Yield the errors of all rows, of those that were kept back, by GPU, by length and by size."""
    chosen: list[tuple[str, Callable[[Row], bool]]] = [
        ("all", lambda row: True),
        ("fitted", lambda row: not row.held_back),
        ("kept back", lambda row: row.held_back),
        *((cluster.name, lambda row, one=cluster: row.cluster == one) for cluster in CLUSTERS.values()),
    ]
    for least, most in ((512, 1024), (2048, 2048), (4096, 8192), (16384, 65536)):
        said = f"{least:,} tokens" if least == most else f"{least:,} to {most:,} tokens"
        chosen.append((said, lambda row, a=least, b=most: a <= row.model.sequence <= b))  # type: ignore[misc]
    for low, high in ((0, 1), (1, 10), (10, 100)):
        said = f"{low} to {high} billion parameters"
        chosen.append((said, lambda row, a=low, b=high: a <= row.model.size / 1e9 < b))  # type: ignore[misc]
    for name, belongs in chosen:
        some = [one for one in found if belongs(one.row)]
        yield errors(name, (one.off for one in some), sum(not one.fits for one in some))


def text(sets: Sequence[Errors]) -> str:
    """Return errors as a table, in percent."""
    wide = max(len(one.name) for one in sets)
    lines = [f"{'':{wide}}  rows  median  worst  signed  does not fit"]
    for one in sets:
        figures = f"{100 * one.median:6.1f}  {100 * one.worst:+5.0f}  {100 * one.signed:+6.1f}"
        refused = "" if one.refused is None else f"{one.refused:12}"
        lines.append(f"{one.name:{wide}}  {one.rows:4}  {figures}  {refused}".rstrip())
    return "\n".join(lines)
