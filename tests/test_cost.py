"""Prices and sizes: the cost alone decides them, and prices that know sizes agree with closed forms."""

import ast
import pickle
from collections import Counter
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass
from fractions import Fraction
from operator import add, eq, ge, gt, le, lt, mul, ne, neg, pos, sub, truediv
from pathlib import Path
from typing import Any

import pytest

from lib import Cost, Model, PuzzleError, RingCost, run
from lib.basics.units import Ratio, exact, whole_or_ratio
from lib.course.layouts import mesh_of
from lib.course.specs import COSTS
from lib.machine.cost import TimeUnits
from lib.machine.mesh import Group
from lib.machine.rank_state import TensorState
from lib.real.prices import PRICED, RealCost
from lib.record.labels import Labels
from lib.record.table import in_stream, operation
from tests.programs import solutions

W = Cost().weight_elements
RATES = [
    {"latency": 0.01, "bandwidth": 1_000_000},
    {"latency": 0, "bandwidth": 1000},
    {"latency": Fraction(1, 3), "bandwidth": 7_777, "latency_across": 2, "bandwidth_across": 0.5},
    {"latency": 0.25, "bandwidth": 3, "bandwidth_across": 1_000_000},
]
ROUNDS = {"allgather": 1, "scatterreduce": 1, "allreduce": 2}


async def meet_once(model: Model, kind: str) -> None:
    """One collective for one whole tensor, and nothing else."""
    if kind == "allgather":
        await model.allgather(model.load_weights(0, model.rank, model.RANKS)[0], 0)
    else:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([model.rank])
        grad = model.loss(model.forward(0, model.activations[0], model.weights[0]))
        grad, _ = model.backward(0, model.activations[0], grad, model.weights[0])
        await getattr(model, kind)(grad, 0)


@pytest.mark.parametrize("kind", ROUNDS)
@pytest.mark.parametrize("rates", RATES, ids=str)
def test_a_ring_takes_what_the_alpha_beta_model_says(kind: str, rates: dict[str, Any]) -> None:
    cost = RingCost(**rates)
    for ranks in (1, 2, 3, 5, 8):
        for node_size in (None, 2, ranks):

            async def program(model: Model) -> None:
                await meet_once(model, kind)

            done = run(program, ranks=ranks, layers=1, batches=ranks, node_size=node_size, cost=cost)
            across = node_size is not None and ranks > node_size
            latency = exact(cost.latency_across if across else cost.latency)
            bandwidth = min(exact(cost.bandwidth), exact(cost.bandwidth_across) if across else exact(cost.bandwidth))
            wanted = ROUNDS[kind] * ((ranks - 1) * latency + Fraction(ranks - 1, ranks) * W / bandwidth)
            before = 0 if kind == "allgather" else 2
            assert done.time == float(before + wanted)
            assert {event.end - event.start for event in done.events if event.kind == kind} == {
                float(before + wanted) - before
            }


@pytest.mark.parametrize("rates", RATES, ids=str)
def test_a_message_takes_latency_and_size_by_bandwidth(rates: dict[str, Any]) -> None:
    cost = RingCost(**rates)
    for batches in (1, 3):
        for node_size in (None, 1):

            async def program(model: Model) -> None:
                if model.rank == 0:
                    await model.pass_to(1, model.get_activation(range(model.BATCHES)))
                    await model.pass_to(1, "done")
                else:
                    await model.receive()
                    await model.receive()

            done = run(program, ranks=2, layers=1, batches=batches, node_size=node_size, cost=cost)
            latency = exact(cost.latency_across if node_size else cost.latency)
            bandwidth = exact(cost.bandwidth_across if node_size else cost.bandwidth)
            first = latency + batches * cost.activation_elements / bandwidth
            ends = [event.end for event in done.events if event.kind == "receive"]
            assert ends == [float(first), float(first + latency)]


@pytest.mark.parametrize("who", [0, 1, 2])
@pytest.mark.parametrize("kind", ["allreduce", "scatterreduce"])
def test_a_reduction_to_which_only_one_brings_something_takes_its_time(kind: str, who: int) -> None:
    async def program(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([0])
        grad = model.loss(model.forward(0, model.activations[0], model.weights[0]))
        model.grad_weights[0], _ = model.backward(0, model.activations[0], grad, model.weights[0])
        await getattr(model, kind)(model.grad_weights[0] if model.rank == who else model.fake_grad(0, []), 0)

    cost = RingCost(latency=0, bandwidth=W)
    assert run(program, ranks=3, layers=1, batches=1, cost=cost).time == float(2 + ROUNDS[kind] * Fraction(2, 3))


@pytest.mark.parametrize("name", [spec["name"] for _, spec in solutions()])
def test_every_solution_is_right_at_prices_from_sizes_whatever_the_order(name: str) -> None:
    fn, spec = next((fn, spec) for fn, spec in solutions(small=True) if spec["name"] == name)
    first = run(fn, **spec["size"], cost=RingCost())
    first.check()
    ranks = mesh_of(spec["size"]).everyone
    assert run(fn, **spec["size"], cost=RingCost(), _order=range(ranks)[::-1]).events == first.events
    on_their_way = name == "buckets" or "receive" in {event.kind for event in first.events}  # longer or shorter
    assert first.memory == run(fn, **spec["size"]).memory or on_their_way


def test_a_tensor_has_the_same_size_whatever_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded, computed, cut, joined, reduced, gathered, sent and received: sizes are those of the labels."""

    @dataclass(frozen=True)
    class Odd(Cost):
        def elements(self, labels: Labels) -> Any:
            each = {"Weight": 3, "WeightGrad": 5, "OptState": 7, "Activation": 11, "ActivationGrad": 13}[labels.kind]
            return super().elements(labels) * each

    cost, made, seen = Odd(), TensorState.__init__, Counter[str]()

    def looked_at(self: TensorState, labels: Labels, value: Any, memory: Any, *rest: Any) -> None:
        assert memory == cost.elements(labels), labels
        seen[labels.kind] += 1
        made(self, labels, value, memory, *rest)

    monkeypatch.setattr(TensorState, "__init__", looked_at)
    for fn, spec in solutions(small=True):
        if spec["name"] in ("zero1", "replica_fsdp", "one_f_one_b", "hierarchical"):
            run(fn, **spec["size"], cost=cost).check()
    assert len(seen) == 5 and min(seen.values()) > 20


def test_prices_may_depend_on_anything_that_labels_say() -> None:
    @dataclass(frozen=True)
    class Slow(Cost):
        def compute(self, kind: str, *labels: Labels) -> TimeUnits:
            return super().compute(kind, *labels) * (2 if labels[0].layer == 1 else 1)

        def transfer(self, size: Any, across: bool) -> TimeUnits:
            return self.in_time_units(Fraction(size) / 3_000_000)

        @property
        def shortest_transfer(self) -> TimeUnits:
            return self.receiving

    fn, spec = next((fn, spec) for fn, spec in solutions() if spec["name"] == "basic")
    assert run(fn, **spec["size"], cost=Slow()).time == 17.0 + 8.5
    fn, spec = next((fn, spec) for fn, spec in solutions() if spec["name"] == "gpipe")
    done = run(fn, **spec["size"], cost=Slow())
    done.check()
    assert run(fn, **spec["size"], cost=Slow(), _order=[3, 1, 2, 0]).events == done.events


@pytest.mark.parametrize("wrong", [{"bandwidth": 0}, {"bandwidth_across": 0}, {"latency": -1}, {"bandwidth": "fast"}])
def test_a_price_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PuzzleError, match="is no price"):
        RingCost(**wrong)


@pytest.mark.parametrize("wrong", [-1, -0.001, float("inf"), float("nan"), "1", None, [1], 1j])
def test_a_price_is_a_number_from_zero_up(wrong: Any) -> None:
    with pytest.raises(PuzzleError, match="forward is no price") as raised:
        Cost(forward=wrong)
    assert raised.value.got == repr(wrong)
    for price in (0, 0.0, 2, 0.3, Fraction(1, 3)):
        assert Cost(forward=price).compute("forward", Labels("Activation", 0, 1, batches=frozenset({0, 1}))) == (
            exact(price) * 2 * Cost(forward=price).per_tick
        )


def test_a_time_in_grains_is_that_time_whatever_the_grain() -> None:
    for cost in (Cost(), RingCost(), Cost(send=Fraction(1, 3), loss=0.125)):
        for ticks in (0, 1, 0.1, 0.3, *[Fraction(one, other) for one in range(1, 5) for other in range(1, 900, 7)]):
            assert Fraction(cost.in_time_units(ticks)) / cost.per_tick == exact(ticks)
        assert all(
            type(cost.in_time_units(price)) is int for price in (cost.forward, cost.update, cost.collective, cost.send)
        )


NUMBERS = [0, 1, -2, 7, *[Fraction(one, other) for one in (-5, 1, 4, 6) for other in (2, 3, 4, 9)], 0.25]


@pytest.mark.parametrize(
    "do", [add, sub, mul, truediv, lt, le, gt, ge, eq, ne, max, divmod], ids=lambda do: do.__name__
)
def test_a_ratio_is_a_fraction_in_all_that_is_done_with_it(do: Callable[[Any, Any], Any]) -> None:
    for one in [Fraction(6, 9), Fraction(-1, 4), Fraction(3), Fraction(0)]:
        for other in NUMBERS:
            others = [other, Ratio(other)] if isinstance(other, Fraction) else [other]
            for same in others:
                for pair, fast in (((one, other), (Ratio(one), same)), ((other, one), (same, Ratio(one)))):
                    assert _told(do, *fast) == _told(do, *pair)


def _told(do: Callable[[Any, Any], Any], *pair: Any) -> str:
    try:
        return repr(do(*pair))
    except ZeroDivisionError as error:
        return type(error).__name__


def test_a_ratio_is_written_kept_and_sent_as_a_fraction() -> None:
    for one in (Fraction(1, 3), Fraction(-4), Fraction(0)):
        fast = Ratio(one)
        for change in (neg, pos, abs, hash, float, bool, str, repr, lambda ratio: f"{float(ratio):.3g}", round):
            assert repr(change(fast)) == repr(change(one))  # type: ignore[operator]
        for again in (copy(fast), deepcopy(fast), pickle.loads(pickle.dumps(fast))):
            assert again == one and repr(again) == repr(one)
    assert [type(whole_or_ratio(one)) for one in (3, Fraction(3), Fraction(1, 3), Ratio(6, 3))] == [
        int,
        int,
        Ratio,
        int,
    ]


def test_every_cost_that_a_spec_may_name_prices_every_operation() -> None:
    group = Group((0, 1), {0: 0, 1: 1}, 2, "")
    for cost in COSTS.values():
        for kind in in_stream("compute"):
            if isinstance(cost, RealCost) and operation(kind) not in PRICED:
                continue  # those are refused
            operand = Labels("Activation", 0, 1, batches=frozenset({0}), total_batches=1)
            assert cost.compute(kind, operand, operand) >= 0
        for kind in in_stream("collective"):
            assert cost.meeting(kind, Labels("Weight", 0, 1), W, group) > 0
        for size, across in ((W, False), (0, False), (W, True), (0, True)):
            assert cost.transfer(size, across) >= cost.shortest_transfer - cost.receiving >= 0


def test_docstrings_read_their_prices_off_the_default_cost() -> None:
    for kind in in_stream("compute", "collective", "message"):
        assert Cost().in_words(kind) in (getattr(Model, kind).__doc__ or "")
    assert Cost().in_words("forward") == "1 tick per micro-batch" and Cost().in_words("loss") == "no time"
    assert Cost().in_words("update") == "0.5 ticks" and Cost().in_words("pass_to") == "0.2 ticks (1 between nodes)"


def test_no_price_stands_anywhere_else() -> None:
    root = Path(__file__).parent.parent / "lib"
    prices = {str(price) for price in (0.3, 1.5, 0.2)}
    for path in root.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "cost.py" and any(f"{price} tick" in text for price in prices):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    said = ast.get_docstring(node) or ""
                    assert not any(f"{price} tick" in said for price in prices), (path, node.name)
