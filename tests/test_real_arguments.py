"""What somebody may hand to models, clusters, prices and the planner: whatever cannot be is refused with what would do,
never with an error of Python's, and never taken."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from lib import PuzzleError, plan, run
from lib.real import A100_MEGATRON, Cluster, Transformer, report
from lib.real.transformer import OF_EXPERTS
from solutions.p02_ddp import ddp
from solutions.p12_prefetch import prefetch
from tests.steps import lines_run

SMALL = Transformer(12, 1024, 16, 512, 8192, tied=True, name="small")
SPARSE = replace(SMALL, gated=True, attention="flash", experts=8, chosen=2, expert_hidden=512, name="sparse")
EIGHT = replace(A100_MEGATRON, gpus=8)
NAN, INFINITE = float("nan"), float("inf")
NEVER: list[Any] = [-1, -2.5, NAN, INFINITE, -INFINITE, [], {}, (), object(), 3 + 2j, b"8", lambda: 8]
"""No argument is any of these."""
NO_WHOLE_NUMBER = [*NEVER, 0, 2.5, "8", True]
NO_COUNT = [*NEVER, 2.5, "8", True]
NO_NUMBER = [*NEVER, "8", True]
NO_NAME = [*NEVER, "nothing", 0, 2.5, True, None]
NO_FLAG = [*NEVER, 0, 2.5, "yes", None]
NO_TEXT = [*NEVER, 0, 2.5, True, None]
NO_WIDTH = [*NO_NUMBER, 0, 65]


def arguments() -> dict[str, tuple[Callable[[Any], object], list[Any]]]:
    """Every argument by its name: what to do with it, and what it cannot be."""
    found: dict[str, tuple[Callable[[Any], object], list[Any]]] = {}

    def changed(what: Any, name: str) -> Callable[[Any], object]:
        return lambda value: replace(what, **{name: value})

    for field in fields(Transformer):
        kind = {"name": NO_TEXT, "attention": NO_NAME, "latent": [*NEVER, 0, 2.5, "8", True, (1536, 512)]}
        kind |= dict.fromkeys(("gated", "tied", "head_norms", "wide_norms"), NO_FLAG)
        kind |= {key: [*NO_COUNT, 2] for key in ("experts", *OF_EXPERTS[:-1])}  # without the others, 2 cannot be either
        found[f"Transformer.{field.name}"] = changed(SMALL, field.name), kind.get(field.name, NO_WHOLE_NUMBER)
    for name in ("experts", "chosen", "expert_hidden"):
        found[f"Transformer.{name} of a model with experts"] = changed(SPARSE, name), [*NO_WHOLE_NUMBER]
    for field in fields(Cluster):
        kind = dict.fromkeys(("fused", "overlap", "ring", "sent_once"), NO_FLAG)
        kind |= {"fused_norms": NO_FLAG[:-1], "name": NO_TEXT}
        other = NO_WHOLE_NUMBER if field.name.startswith("gpus") else NO_NUMBER
        above = ["peak", "memory", "memory_bandwidth", "link", "nic", "host_bandwidth", "host_link"]
        part = [0, 1.5] if field.name.endswith("reached") else [0] if field.name in above else []
        found[f"Cluster.{field.name}"] = changed(EIGHT, field.name), [*kind.get(field.name, other), *part]
    prices = {
        **dict.fromkeys(("micro_batch", "tensor", "adapter_rank", "context", "expert_parallel"), NO_WHOLE_NUMBER),
        "experts": [*NO_COUNT, 8],
        "split": [*NEVER[:-3], 0, 2.5, "12", True, (6, 5), (12, 0), (6.0, 6.0)],
        **{key: [*NO_NUMBER, 1.5] for key in ("recompute_part", "offload")},
        "fp8": NO_FLAG,
        "overlap": NO_FLAG[:-1],
        "zero": [*NO_COUNT, 0, 2],
        "recompute": [*(name for name in NO_NAME if name != ()), ("mlp", "attention"), ("mlp", 3)],
        **dict.fromkeys(("optimizer", "mfu"), NO_NAME),
        **dict.fromkeys(("gathered", "reduced"), NO_WIDTH),
        "stored": [*NO_WIDTH, None],
        "gradients": [*NO_WIDTH, None],
        "sequence_parallel": NO_FLAG,
    }
    for name, wrong in prices.items():
        found[f"cost {name}"] = lambda value, name=name: EIGHT.cost(SMALL, **{name: value}), wrong  # type: ignore[misc]
    found["cost frozen_bits"] = lambda bits: EIGHT.cost(SMALL, adapter_rank=8, frozen_bits=bits), NO_WIDTH
    found["cost model"] = EIGHT.cost, [*NO_TEXT, "small", EIGHT]
    found["plan model"] = lambda model: plan(model, EIGHT, 16, sharded=prefetch), [*NO_TEXT, "small", EIGHT]
    found["plan cluster"] = lambda cluster: plan(SMALL, cluster, 16, sharded=prefetch), [*NO_TEXT, "A100", SMALL]
    found["plan batch"] = lambda batch: plan(SMALL, EIGHT, batch, sharded=prefetch), [*NO_WHOLE_NUMBER, None]
    found["plan sharded"] = lambda fn: plan(SMALL, EIGHT, 16, sharded=fn), [*NEVER[:-1], 0, "fsdp", True]
    found["report"] = report, [*NO_TEXT, "run", EIGHT]
    found["run cost"] = lambda cost: run(ddp, 2, 12, 2, cost=cost), [*NEVER, 0, "A100", True, EIGHT, SMALL]
    for name in ("tokens", "model_flops", "activation_bytes", "boundary_bytes", "loss_bytes", "adapter_parameters"):
        found[f"Transformer.{name}()"] = getattr(SMALL, name), [*NO_WHOLE_NUMBER, None]
    for name, wrong in {"stored": NO_WIDTH, "gradients": NO_WIDTH, "optimizer": NO_NAME}.items():
        found[f"state_bytes {name}"] = lambda value, name=name: SMALL.state_bytes(**{name: value}), wrong  # type: ignore[misc]
    found["state_bytes parameters"] = lambda count: SMALL.state_bytes(parameters=count), NO_WHOLE_NUMBER
    return found


ARGUMENTS = arguments()
HUGE: dict[str, Callable[[], object]] = {
    "layers": lambda: plan(replace(SMALL, layers=10**9), EIGHT, 16),
    "hidden": lambda: plan(replace(SMALL, hidden=16 * 10**12), EIGHT, 16),
    "vocabulary": lambda: plan(replace(SMALL, vocabulary=10**15), EIGHT, 16),
    "gpus": lambda: plan(SMALL, replace(EIGHT, gpus=10**30), 16),
    "memory": lambda: plan(SMALL, replace(EIGHT, memory=1.0), 16),
    "adapter_rank": lambda: plan(SMALL, EIGHT, 16, adapter_rank=10**30),
    "tensor": lambda: EIGHT.cost(SMALL, tensor=10**30),
}


@pytest.mark.parametrize("name", HUGE)
def test_what_is_too_large_is_refused_soon_with_what_would_do(name: str) -> None:
    def refused() -> None:
        with pytest.raises(PuzzleError) as caught:
            HUGE[name]()
        assert caught.value.expected and caught.value.got

    assert lines_run(refused) < 100_000


class Narrow:
    """A whole number as other libraries have them, such as an ``int32`` of NumPy: it is one, and does not compute as
    Python's do."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_whole_numbers_of_other_libraries_become_those_of_python() -> None:
    """They would overflow, for a model of 70 billion parameters has more than an ``int32`` can count."""
    other: Any = Narrow
    model = replace(SMALL, layers=other(12), hidden=other(1024), head_width=other(64))
    sparse = replace(SPARSE, experts=other(8), chosen=other(2), expert_hidden=other(512))
    assert model.size == SMALL.size and sparse == SPARSE and type(sparse.experts) is int
    found = plan(SMALL, replace(EIGHT, gpus=other(8)), other(16), sharded=prefetch)
    assert str(found) == str(plan(SMALL, EIGHT, 16, sharded=prefetch))
    assert type(replace(EIGHT, gpus_per_box=other(8)).gpus_per_box) is int


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_cannot_be_is_refused_and_said(name: str) -> None:
    do, wrong = ARGUMENTS[name]
    for value in wrong:
        with pytest.raises(PuzzleError) as caught:
            do(value)
            pytest.fail(f"{name} takes {value!r}")
        said = str(caught.value)
        assert "must be" in said or "expected" in said, said
