"""Layers with experts on real tensors, beside torch's autograd, which knows no ranks and sends no tokens."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from lib import Cost, ExpertCost, Model, PuzzleError, run
from lib.course.specs import COSTS
from lib.machine.cost import Shape
from lib.record.labels import Labels
from lib.running.workload import Workload
from tests import experts
from tests.marks import needs_processes, needs_torch
from tests.programs import solutions
from tests.test_closed_forms import program

SIZE: dict[str, Any] = {"layers": 4, "batches": 8, "experts": 8, "layer": "experts", "hidden": 32}
UNEVEN = ExpertCost(loads=(9, 0, 0, 0, 1, 2, 0, 1), chosen=3)
SECTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (program("p27_expert_parallel", "expert_parallel"), {"ranks": 4, "batches": 4}),
    "gathered": (program("p27_expert_parallel", "experts_gathered"), {"ranks": 4}),
    "by turns": (program("p28_two_batch_overlap", "updates_while_tokens_travel"), {"ranks": 4}),
    "in two levels": (experts.in_two_levels(("gpu", "box")), {"ranks": 4, "mesh": {"box": 2, "gpu": 2}}),
    "copies": (experts.copies, {"ranks": 8, "mesh": {"replica": 2, "expert": 4}}),
}


def real(name: str, **how: Any) -> Any:
    fn, size = SECTIONS[name]
    return run(fn, **{"timeout": None, "engine": "local", **SIZE, **size, **how})


@needs_torch
@pytest.mark.parametrize(("dtype", "most"), [("float64", 1e-14), ("float32", 5e-6)])
@pytest.mark.parametrize("cost", [Cost(), COSTS["experts"], UNEVEN], ids=["even", "two of eight", "three of eight"])
@pytest.mark.parametrize("name", SECTIONS)
def test_they_agree_with_training_as_a_whole(name: str, cost: Cost, dtype: str, most: float) -> None:
    done = real(name, cost=cost, dtype=dtype)
    assert done.agreement.relative <= most and done.agreement.spread == 0
    assert done.verify().startswith(f"Correct! With real tensors (local, experts, {dtype})")


IN_OTHER_WAYS = ("fsdp", "checkpointing", "zero_bubble", "tensor_parallel", "sequence_parallel", "lora")


@needs_torch
@pytest.mark.parametrize("name", IN_OTHER_WAYS)
def test_layers_with_experts_train_in_all_other_ways(name: str) -> None:
    """Gathered, made again, in halves, in pieces, and with adapters: whoever knows of no experts trains them."""
    fn, size = next((fn, spec["size"]) for fn, spec in solutions(small=True) if spec["name"] == name)
    how = {key: value for key, value in SIZE.items() if key not in ("layers", "batches")}
    cost = {} if "cost" in size else {"cost": COSTS["experts"]}
    done = run(fn, **size, **cost, **how, engine="local", dtype="float64", timeout=None)
    assert done.agreement.relative <= 1e-14


@needs_torch
@pytest.mark.parametrize("cost", [ExpertCost(), COSTS["experts"], UNEVEN, ExpertCost(experts=1)])
@pytest.mark.parametrize("length", [1, 5, 16])
def test_tokens_go_where_the_loads_say(cost: ExpertCost, length: int) -> None:
    from lib.engines import data

    work = Workload(layer="experts", length=length, hidden=16).on(Shape.of(1, cost=cost, experts=cost.experts))
    loads, rows = cost.loads or (1,) * cost.experts, length * cost.chosen
    for layer in (1, 3, 7):
        ended = data.ends(work, layer)
        for expert, (first, last) in enumerate(pairwise(ended)):
            exact = rows * loads[(expert + layer // 2) % cost.experts] / sum(loads)
            assert abs(last - first - exact) < 1
        tokens, gates = data.routes(work, layer, 0)
        assert Counter(tokens.tolist()) == dict.fromkeys(range(length), cost.chosen)
        for token in range(length):
            assert float(gates[tokens == token].sum()) == pytest.approx(1)
        whole = data.gates(work, layer, 0)
        assert whole is not None and whole.shape == (length, 8) and data.gates(work, layer - 1, 0) is None
        others = data.routes(work, layer, 1).tokens  # each micro-batch has its own
        assert length < 5 or work.experts == 1 or not tokens.equal(others)


@needs_torch
@pytest.mark.parametrize("cost", [COSTS["experts"], UNEVEN])
def test_tokens_are_as_large_as_their_labels_say_and_come_home_summed(cost: ExpertCost) -> None:
    from lib.engines.numbers import Numbers, elements

    numbers = Numbers(Workload(4, 2, "experts", "float64", hidden=16, length=7).on(Shape.of(1, cost=cost, experts=8)))
    home = Labels("Activation", 4, 4, batches=frozenset({0, 1}), total_batches=2)
    for total in (1, 2, 4, 8):
        pieces = [home.changed(kind="Tokens", layer=3, shards=frozenset({at}), total=total) for at in range(total)]
        dealt = [numbers.cut(numbers.inputs(home.batches), piece) for piece in pieces]
        assert [*map(elements, dealt)] == [*map(numbers.count, pieces)]
        assert sum(map(elements, dealt)) == 2 * 7 * 16 * cost.chosen
        for batch, summed in numbers.cut(numbers.join(dealt[::-1]), home).items():
            wanted = cost.chosen * numbers.inputs(home.batches)[batch].flat  # a copy for each expert
            assert (summed.flat == wanted).all()


@needs_torch
@pytest.mark.parametrize("change", ["another expert", "stays away"])
def test_numbers_find_mistakes_without_the_rules(change: str) -> None:
    """The weight of experts to which these tokens do not go, and gradients that are summed where none is needed."""

    async def program(model: Model) -> Model:
        turned = (model.rank + (change == "another expert")) % model.RANKS
        experts.load(model, (turned, model.RANKS))
        return await experts.train(model, copies=None if change == "another expert" else "all")

    done = run(program, 4, mesh={"all": 4}, engine="local", dtype="float64", timeout=None, _strict=False, **SIZE)
    assert not done.agreement.relative <= 1e-4


@needs_torch
@pytest.mark.parametrize("engine", ["local", "processes"])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"layer": "mlp"}, r"'mlp' has no experts\n  expected: layer=\"experts\""),
        ({"layer": "block"}, r"'block' has no experts"),
        ({"experts": 0}, r"not said how many experts"),
        ({"hidden": 24}, r"hidden=24 a layer has 12 units(?s:.*)as with hidden=32"),
        ({"hidden": 4}, "as with hidden=16"),
    ],
)
def test_what_has_no_experts_is_refused(engine: str, how: dict[str, Any], said: str) -> None:
    with pytest.raises(PuzzleError, match=said):
        run(experts.plain, 4, engine=engine, **{**SIZE, **how})


@needs_processes
@pytest.mark.process
@pytest.mark.parametrize("name", ["plain", "in two levels", "copies"])
def test_tokens_travel_between_processes(name: str) -> None:
    """Each process gets the tokens of its experts only: the same numbers as in one process, and as many are stored as
    the labels say."""
    size = {"in two levels": {"ranks": 4}, "copies": {"ranks": 4, "mesh": {"replica": 2, "expert": 2}}}
    how = {"cost": COSTS["experts"], "dtype": "float64", **size.get(name, {"ranks": 2, "batches": 2})}
    done = real(name, engine="processes", **{**how, "timeout": 60})
    assert done.agreement.relative == real(name, **how).agreement.relative <= 1e-14
    right, counted = done.stored
    assert right == counted > 0
    took = [event.length for event in done.measured.events if event.kind == "alltoall"]
    assert took and all(length > 0 for length in took)
