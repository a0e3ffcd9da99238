"""Published rows that nothing is fitted on, beside what ``lib`` gives: ``python -m tools.open_rows``."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from lib import Plan
from lib.real import (
    A100_MEGATRON,
    GPT_175B,
    H100_MEGATRON,
    H100_TORCHTITAN,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_3_405B,
    Cluster,
    Transformer,
)
from lib.study.plan import Search
from tools.published import FSDP2

_PAX = "Pax (JAX) A100 bf16"
MODELS: dict[str, Transformer] = {
    "LLAMA3_8B": LLAMA_3_8B,
    "8B": LLAMA_3_8B,
    "LLAMA3_70B": LLAMA_3_70B,
    "LLAMA3.1_405B": LLAMA_3_405B,
    "405B": LLAMA_3_405B,
    "126M": Transformer(12, 768, 12, 2048, 50304, tied=True, name="GPT 126M"),
    "5B": Transformer(24, 4096, 32, 2048, 50304, tied=True, name="GPT 5B"),
    "175B": GPT_175B,
}
"""By the first word of a row's name. Those of Pax, rosetta/rosetta/projects/pax of github.com/NVIDIA/JAX-Toolbox, write
scores of attention to memory: Transformer Engine's fused attention was off in JAX unless NVTE_FUSED_ATTN=1 was set,
until November 2025 (pull request 2363 of github.com/NVIDIA/TransformerEngine), and the scripts of Pax do not set it."""
OF_PRODUCTS_ALONE = "selective"
"""What GPT5B computes again (CHECKPOINT_POLICY in paxml/contrib/gpu/scripts_gpu/configs.py of github.com/google/paxml):
it keeps the results of products with weights, so scores are made again."""
CLUSTERS: dict[str, Cluster] = {
    "H100 80 GB": H100_MEGATRON,
    H100_TORCHTITAN.name: H100_TORCHTITAN,
    A100_MEGATRON.name: A100_MEGATRON,
}


class Row(NamedTuple):
    """A row of the table, as a way to train. ``tokens``: a second, of each GPU."""

    group: str
    name: str
    model: Transformer
    cluster: Cluster
    batch: int
    way: Plan
    tokens: float
    given: dict[str, Any]

    def took(self, cluster: Cluster | None = None) -> Plan:
        """Return what a step takes, on its cluster or another one."""
        search = Search(self.model, replace(cluster or self.cluster, gpus=self.cluster.gpus), self.batch, **self.given)
        way = search.every.complete(self.way)
        return search.run(way._replace(split=search.every._split(way.layers) or None) if way.stages > 1 else way)

    def off(self, seconds: float) -> float:
        """Return how much longer a step takes than was measured, as a part of that."""
        assert self.cluster.gpus is not None
        return seconds * self.tokens * self.cluster.gpus / (self.batch * self.model.sequence) - 1


def rows() -> list[Row]:
    """Return all rows. Where a pipeline of torchtitan has a batch of several sequences for each stage, a micro-batch is
    so many, as is its default (``pipeline_parallel_microbatches``)."""
    with open(Path(__file__).with_name("open_2026.csv"), encoding="utf-8") as file:
        return [_row(line) for line in csv.DictReader(file)]


def _row(line: dict[str, str]) -> Row:
    group, name, gpus, batch = line["group"], line["name"], int(line["gpus"]), int(line["global_batch"])
    model = replace(MODELS[name.split()[0]], sequence=int(line["sequence"]))
    tensor, stages, chunks, context = (int(line[key]) for key in ("tp", "pp", "vp", "cp"))
    replicas = gpus // tensor // stages // context
    micro_batch = int(line["micro_batch"])
    titan = "torchtitan" in group
    if titan and stages > 1:
        micro_batch = batch // replicas // stages
    kind = "sharded" if stages == 1 else "pipeline" if chunks == 1 else "interleaved"
    if " DP" in name:
        kind = "zero1"
    recompute = OF_PRODUCTS_ALONE if name.startswith("5B") else line["recompute"]
    way = Plan(kind, replicas, stages, chunks, tensor, micro_batch, recompute, context=context)
    given: dict[str, Any] = {"fp8": line["fp8"] == "True", **(FSDP2 if titan else {})}
    cluster = replace(CLUSTERS[line["cluster_preset"]], gpus=gpus)
    return Row(group, name, model, cluster, batch, way, float(line["published_tokens_s_gpu"]), given)
