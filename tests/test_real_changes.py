"""What a report says of single changes is what comes out if they are made."""

from dataclasses import replace
from typing import Any

import pytest

from lib import run
from lib.real import A100_MEGATRON, A100_TORCHTITAN, H100_DGX, Transformer, report
from lib.real.changes import changes
from lib.real.prices import RealCost
from lib.study.planned import pipelined, sharded

GPT = Transformer(16, 2048, 16, 1024, 32000, tied=True, name="GPT")
LLAMA = Transformer(16, 2048, 16, 2048, 32000, gated=True, attention="flash", name="Llama")
SIZES: dict[str, dict[str, Any]] = {
    "pipeline": {"fn": pipelined, "ranks": 4, "layers": 16, "batches": 8, "mesh": {"replica": 1, "stage": 4}},
    "sharded": {"fn": sharded, "ranks": 4, "layers": 16, "batches": 8, "mesh": {"replica": 1, "shard": 4}},
}
COSTS = {
    "GPT, selective": A100_MEGATRON.cost(GPT, tensor=2, recompute="selective", gradients=4),
    "Llama": H100_DGX.cost(LLAMA, micro_batch=2),
    "Llama, full": A100_TORCHTITAN.cost(LLAMA, recompute="full", gradients=4),
}
CHANGED: dict[str, dict[str, Any]] = {
    "nothing computed again": {"recomputed": "none"},
    "half of the layers computed again": {"recomputed": "full", "recompute_part": 0.5},
    "all layers computed again": {"recomputed": "full"},
    'optimizer="sgd"': {"optimizer": "sgd"},
    "gradients kept in 2 bytes": {"gradients": 2},
    "layers in 8 bits": {"fp8": True},
    "what forward leaves behind on the host until backward": {"offload": 1.0},
    "sequence parallelism": {"sequence_parallel": True},
}


@pytest.mark.parametrize("prices", COSTS)
@pytest.mark.parametrize("program", SIZES)
def test_each_change_is_what_comes_out_if_it_is_made(program: str, prices: str) -> None:
    cost: RealCost = COSTS[prices]
    done = run(**SIZES[program], cost=cost)
    found = {one.name: one for one in changes(done, cost)}
    assert found
    for name in CHANGED.keys() & found.keys():
        made = run(**SIZES[program], cost=replace(cost, **CHANGED[name]))
        assert found[name].seconds == pytest.approx(made.seconds, rel=0.04), name
        assert found[name].bytes == pytest.approx(made.bytes, rel=0.08), name


def test_a_report_says_what_would_help_and_what_would_not_fit() -> None:
    cost = replace(H100_DGX, memory=7.7e9).cost(LLAMA, micro_batch=2, recompute="full")
    said = report(run(**SIZES["sharded"], cost=cost)).splitlines()
    lines = said[said.index("what would change with (this run has recompute='full')") + 1 :]
    assert lines == sorted(lines, key=lambda line: line.endswith("does not fit"))
    [none] = [line for line in lines if line.startswith("  nothing computed again: ")]
    assert "% faster" in none and "GB more" in none and none.endswith(": does not fit")
    [sgd] = [line for line in lines if "sgd" in line]
    assert "GB less" in sgd and not sgd.endswith("fit")
