"""Layers with experts: values, labels, prices, memory, and what is said of mistakes."""

import inspect
import json
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from drawing import draw, draw_primitive, perfetto, play
from lib import Cost, ExpertCost, ExpertRingCost, Model, PuzzleError, run
from lib.course.specs import COSTS
from lib.machine.cost import Shape
from lib.record.codes import read_code
from lib.record.labels import Labels
from lib.record.table import grantable
from tests import experts
from tests.test_closed_forms import program as solution
from tests.test_recording import through_a_recording

EXPERTS = COSTS["experts"]
EXPERT_PARALLEL, GATHERED = (solution("p27_expert_parallel", name) for name in ("expert_parallel", "experts_gathered"))
TOKENS_FIRST = solution("p27_expert_parallel", "tokens_before_sums")
BY_TURNS = solution("p28_two_batch_overlap", "two_batch_overlap")
SIZE: dict[str, Any] = {"ranks": 4, "layers": 4, "batches": 4, "experts": 8}


@pytest.mark.parametrize("ranks, layers, each", [(1, 2, 1), (2, 2, 1), (2, 5, 2), (4, 4, 1), (8, 6, 3)])
@pytest.mark.parametrize("program", [experts.plain, GATHERED])
def test_experts_train_as_any_layer_does(program: Any, ranks: int, layers: int, each: int) -> None:
    done = run(program, ranks, layers, ranks * each, experts=8)
    assert done.verify() == "Correct!"


def test_tokens_of_several_groups_of_micro_batches_are_added_up() -> None:
    assert run(experts.in_two_groups, 4, 4, 8, experts=8).verify() == "Correct!"


@pytest.mark.parametrize("boxes, gpus", [(2, 2), (2, 4), (4, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("home", [("box", "gpu"), ("gpu", "box")])
def test_tokens_go_out_in_two_levels_and_home_in_any_order(boxes: int, gpus: int, home: tuple[str, str]) -> None:
    mesh = {"box": boxes, "gpu": gpus}
    done = run(experts.in_two_levels(home), boxes * gpus, 4, 2 * boxes * gpus, mesh, experts=8)
    assert done.verify() == "Correct!"


@pytest.mark.parametrize("replicas, size", [(2, 2), (2, 4), (3, 2), (4, 2)])
def test_gradients_of_experts_are_summed_over_their_copies(replicas: int, size: int) -> None:
    ranks = replicas * size
    done = run(experts.copies, ranks, 4, ranks, {"replica": replicas, "expert": size}, experts=8)
    assert done.verify() == "Correct!"


def test_only_odd_layers_have_experts() -> None:
    seen: list[list[int]] = []

    def look(model: Model) -> Model:
        seen.append([model.experts(layer) for layer in range(model.LAYERS)])
        return model

    run(look, layers=5, experts=8)
    run(look, layers=5)
    assert seen == [[0, 8, 0, 8, 0], [0] * 5]


def test_tokens_are_of_all_micro_batches_of_the_group_and_of_some_experts() -> None:
    seen: dict[int, list[Any]] = {}

    async def look(model: Model) -> Model:
        experts.load(model)
        inp = model.forward(0, model.get_activation(experts.own_batches(model)), model.weights[0])
        tokens = model.activations["tokens"] = await model.alltoall(inp, 1)
        out = model.expert(1, tokens, model.weights[1])
        seen[model.rank] = [tokens, out, await model.alltoall(out, 2)]
        return model

    run(look, 2, 2, 4, experts=8)
    assert [str(one) for one in seen[1]] == [
        "Tokens(layer=1, layers=2, batches={0-3}, total_batches=4, shards={1}, total=2)",
        "Tokens(layer=2, layers=2, batches={0-3}, total_batches=4, shards={1}, total=2)",
        "Activation(layer=2, layers=2, batches={1, 3}, total_batches=4)",
    ]


@pytest.mark.parametrize("cost", [ExpertCost(), EXPERTS, ExpertCost(experts=4, loads=(3, 0, 1, 1), chosen=3)])
@pytest.mark.parametrize("layer", [1, 3, 7])
def test_the_tokens_of_all_experts_are_all_that_travels(cost: ExpertCost, layer: int) -> None:
    whole = Labels("Tokens", layer, 8, batches=frozenset({0, 1}), total_batches=4)
    for kind, same in (("Tokens", layer + 1), ("TokensGrad", layer - 1)):
        for total in (1, 2, 4, 8):
            pieces = [whole.changed(kind=kind, shards=frozenset({shard}), total=total) for shard in range(total)]
            assert sum(map(cost.elements, pieces)) == 2 * cost.chosen * cost.activation_elements
            for one in pieces:  # what comes in and what goes out belong to the same experts
                assert cost.elements(one) == cost.elements(one.changed(layer=same))
                assert cost.elements(one) == cost.elements(one.changed(kind="Tokens"))


def test_a_layer_with_experts_is_as_large_as_they_are() -> None:
    cost = ExpertCost(experts=4, expert_elements=100, weight_elements=7)
    for kind, size in (("Weight", 400), ("OptState", 400), ("WeightGrad", 400)):
        labels = Labels(kind, 1, 4, batches=frozenset({0}) if kind == "WeightGrad" else frozenset(), total_batches=1)
        assert cost.elements(labels) == size and cost.elements(labels.changed(layer=2)) == 7
        assert cost.elements(labels.changed(shards=frozenset({1}), total=8)) == size / 8
    assert cost.elements(Labels("WeightGrad", 1, 4)) == 0


def hottest(cost: ExpertCost, layer: int, ranks: int) -> Fraction:
    """The load of the rank with most tokens, against the mean."""
    loads = cost.loads or (1,) * cost.experts
    turned = [loads[(expert + layer // 2) % cost.experts] for expert in range(cost.experts)]
    each = cost.experts // ranks
    return Fraction(max(sum(turned[r * each : (r + 1) * each]) for r in range(ranks)) * ranks, sum(loads))


LOADS = [(), (4, 2, 2, 2, 2, 2, 1, 1), (9, 0, 0, 0, 0, 1, 0, 0)]


@pytest.mark.parametrize("ranks, layers, each, loads", [*product((1, 2, 4, 8), (2, 4, 8), (1, 2), LOADS)])
def test_all_wait_for_the_hottest_expert(ranks: int, layers: int, each: int, loads: tuple[int, ...]) -> None:
    cost = replace(EXPERTS, loads=loads)
    done = run(experts.plain, ranks, layers, ranks * each, cost=cost, experts=8)
    f, b, u = cost.forward * each, cost.backward * each, Fraction(cost.update)
    latency, bandwidth, share = Fraction("0.02"), cost.bandwidth, Fraction(ranks - 1, ranks)
    dense_sum = 2 * ((ranks - 1) * latency + share * cost.weight_elements / bandwidth)
    time, whole = layers * u + layers // 2 * dense_sum, each * cost.activation_elements
    for layer in range(1, layers, 2):
        h = hottest(cost, layer, ranks)
        a = (ranks - 1) * latency + share * max(whole, whole * cost.chosen * h) / bandwidth
        time += (f + f * h + 2 * a) + (b + b * h + 2 * a)
    assert done.time == pytest.approx(float(time), abs=1e-9)


EVEN, FLAT = replace(EXPERTS, loads=()), ExpertCost(loads=EXPERTS.loads)
FAR = COSTS["far_experts"]
QUOTED: list[tuple[Any, int, Cost, float, int]] = [
    (EXPERT_PARALLEL, 4, EXPERTS, 38.02, 9_699_328),
    (TOKENS_FIRST, 4, EXPERTS, 34.9475, 8_650_752),
    (GATHERED, 4, EXPERTS, 43.12, 11_141_120),
    (EXPERT_PARALLEL, 4, EVEN, 32.62, 9_699_328),
    (EXPERT_PARALLEL, 4, FLAT, 28.7, 9_699_328),
    (GATHERED, 4, FLAT, 23.6, 11_141_120),
    (BY_TURNS, 8, FAR, 62.28, 10_747_904),
    (solution("p28_two_batch_overlap", "updates_while_tokens_travel"), 8, FAR, 60.32, 10_616_832),
]


@pytest.mark.parametrize("program, batches, cost, time, memory", QUOTED)
def test_figures_that_are_quoted(program: Any, batches: int, cost: Cost, time: float, memory: int) -> None:
    done = run(program, 4, 8, batches, cost=cost, experts=8)
    assert (done.time, done.memory, done.verify()) == (time, memory, "Correct!")


@pytest.mark.parametrize("ranks, layers", [*product((1, 2, 4, 8), (2, 4, 6, 10))])
@pytest.mark.parametrize("each", [1, 2, 3])
def test_the_programs_are_right_at_other_sizes(ranks: int, layers: int, each: int) -> None:
    for program in dict.fromkeys(program for program, *_ in QUOTED):
        if program is EXPERT_PARALLEL and each > 1:
            continue  # it is written for one micro-batch a rank
        assert run(program, ranks, layers, ranks * each, cost=EXPERTS, experts=8).verify() == "Correct!"


@pytest.mark.parametrize("layers, loads", [*product((2, 4, 8), LOADS)])
def test_turns_hide_the_tokens_behind_the_other_micro_batch(layers: int, loads: tuple[int, ...]) -> None:
    """Where an all-to-all takes no longer than what is computed for one micro-batch, nobody waits for tokens but at
    both ends: of each layer as much is left as its hottest rank computes. That is exact where all experts get as many;
    else ranks run ahead where they are not the hottest, and some of it is saved."""
    cost = replace(FAR, loads=loads, latency=0, bandwidth=4_000_000)
    done = run(BY_TURNS, 4, layers, 8, cost=cost, experts=8)
    least = 2 * sum((cost.forward + cost.backward) * (1 + hottest(cost, layer, 4)) for layer in range(1, layers, 2))
    ends = 4 * cost.chosen * cost.activation_elements / cost.bandwidth + layers * cost.update
    saved = 0 if not loads else 0.02 * least
    assert least - saved <= done.time <= least + ends + 2 * cost.weight_elements / cost.bandwidth


def test_a_price_in_the_cost_is_taken() -> None:
    dear = run(experts.plain, cost=Dear(), **SIZE)
    assert {round(event.length, 9) for event in dear.events if event.kind == "expert"} == {7.0}


@dataclass(frozen=True)
class Dear(ExpertCost):
    """Experts have a price of their own."""

    expert: int = 7


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"experts": 0}, "experts is a number of experts"),
        ({"chosen": 1.5}, "chosen is a number of experts"),
        ({"experts": 4, "chosen": 5}, "a token cannot go to 5 of 4 experts"),
        ({"loads": (1, 2)}, "8 whole numbers from 0 up"),
        ({"loads": (0,) * 8}, "8 whole numbers"),
        ({"loads": [1] * 8}, "8 whole numbers"),
        ({"forward": -1}, "forward is no price"),
        ({"expert_elements": "many"}, "expert_elements is no price"),
    ],
)
@pytest.mark.parametrize("kind", [ExpertCost, ExpertRingCost])
def test_prices_that_are_none_are_refused(kind: Any, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(PuzzleError, match=said):
        kind(**fields)


@pytest.mark.parametrize("number", [0, 4])
def test_prices_are_of_as_many_experts_as_the_layers_have(number: int) -> None:
    with pytest.raises(PuzzleError, match=r"(?s)of layers with 8 experts.*experts=8"):
        run(experts.plain, 4, 2, 4, cost=EXPERTS, experts=number)
    assert Shape.of(4, cost=EXPERTS, experts=8).experts == 8 and Shape.of(4, cost=Cost()).experts == 0


SOURCE = inspect.getsource(experts)
COPIES = {"mesh": {"replica": 2, "expert": 2}}
SUMS = "if copies is not None or not model.experts(layer):"
OUT = "await travel(model, acts.pop(layer), layer, out, acts)"
MISTAKES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    # what is written, and in its place; size; what is wrong, and what to write
    "gradients of experts summed": (f"{SUMS} -> if True:", {}, "gradients of different shards"),
    "gradients of experts summed over all": (
        "axis = copies if model.experts(layer) else None -> axis = None",
        COPIES,
        "gradients of different shards",
    ),
    "gradients of copies not summed": (f"{SUMS} -> if not model.experts(layer):", COPIES, "missing micro-batches 2, 3"),
    "dense gradients not summed": (f"{SUMS} -> if False:", {}, "missing micro-batches 1-3"),
    "dense gradients summed over the copies": (
        "axis = copies if model.experts(layer) else None -> axis = copies",
        COPIES,
        "missing micro-batches 1, 3",
    ),
    "experts of another rank": (
        "(model.rank, model.RANKS)) if -> ((model.rank + 1) % model.RANKS, model.RANKS)) if",
        {},
        "Tokens and weight are of different experts",
    ),
    "home over the other axis": (
        'home=("expert",) -> home=("replica",)',
        COPIES,
        "tokens must go home over the same ranks over which they came",
    ),
    "not home": (
        "home: Sequence[str | None] = (None,) -> home: Sequence[str | None] = ()",
        {},
        "inp must be an Activation",
    ),
    "gradients not home": ("layer - 1, home, grads -> layer - 1, (), grads", {}, "grad must be an ActivationGrad"),
    "gradients not sent": (
        "grad = await travel(model, grad, layer, out, grads) -> pass",
        {},
        "grad must be a TokensGrad",
    ),
    "not sent": (f"{OUT} -> acts.pop(layer)", {}, "tokens must be Tokens"),
    "out of a dense layer": (
        "if model.experts(layer):\n                acts -> if True:\n                acts",
        {},
        "layer 0 is dense",
    ),
    "a piece of the experts in a plain forward": (
        "if model.experts(layer):\n                acts -> if False:\n                acts",
        {},
        "the weight is not complete",
    ),
    "slices": (
        f"{OUT} -> {OUT.replace('pop(layer)', 'pop(layer).shard(model.rank, model.RANKS)')}",
        {},
        "the Activation is a slice of the sequence expected: whole micro-batches",
    ),
    "one micro-batch for two": (
        "list(range(model.rank, model.BATCHES, model.RANKS)) -> [max(model.rank, 1)]",
        {},
        r"^alltoall\(layer 1\), of all ranks: micro-batch 1 would be counted more than once",
    ),
    "the layer of the way out on the way home": (
        "layer + 1, home, acts -> layer, home, acts",
        {},
        "the Tokens is that of layer 2",
    ),
    "more ranks than experts": (" -> ", {"ranks": 16, "batches": 16}, "8 experts are not dealt to 16 ranks"),
}
# With the rules off these are no mistakes: the layer that a call names is a name, and an expert may be cut in two.
RIGHT = {"the layer of the way out on the way home", "more ranks than experts"}


def program(changes: str, size: dict[str, Any]) -> Any:
    """Return the plain program, or that with copies of experts, with changes."""
    source = SOURCE
    for change in re.split(r"\n(?! )", changes):
        written, other = change.split(" -> ")
        assert written in source
        source = source.replace(written, other) if written else source
    names: dict[str, Any] = {}
    exec(compile(source, "<changed>", "exec"), names)
    return names["copies" if "mesh" in size else "plain"]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_with_experts_is_named(name: str) -> None:
    changes, size, problem = MISTAKES[name]
    with pytest.raises(PuzzleError) as caught:
        run(program(changes, size), **SIZE | size)
    said = " ".join(str(caught.value).split())
    assert re.search(problem, said), said


@pytest.mark.parametrize("name", sorted(MISTAKES.keys() - RIGHT))
def test_with_the_rules_off_the_values_find_it(name: str) -> None:
    changes, size, *_ = MISTAKES[name]
    with pytest.raises(PuzzleError):
        run(program(changes, size), **SIZE | size, _strict=False).verify()


def test_experts_are_asked_for() -> None:
    async def out(model: Model) -> Model:
        model.activations[1] = model.forward(0, model.get_activation([0]), model.load_weights(0)[0])
        model.activations["tokens"] = await model.alltoall(model.activations[1], 1)
        return model

    with pytest.raises(PuzzleError, match="layer 1 is dense"):
        run(out)
    with pytest.raises(PuzzleError, match="experts"):
        run(out, experts=-1)


ALIKE: list[tuple[Any, dict[str, Any], Any]] = [
    *[
        (experts.plain, {"ranks": n, "experts": n, "cost": cost}, True)
        for n in (8, 16)
        for cost in (Cost(), replace(EXPERTS, experts=n, loads=()))
    ],
    (experts.copies, {"ranks": 16, "experts": 2, "mesh": {"replica": 8, "expert": 2}}, "replica"),
    *[
        (experts.in_two_levels(home), {"ranks": n * m, "experts": n * m, "mesh": {"box": n, "gpu": m}}, True)
        for home in (("box", "gpu"), ("gpu", "box"))
        for n, m in ((8, 2), (2, 8), (8, 8))
    ],
]


@pytest.mark.parametrize("program, size, axis", ALIKE)
def test_ranks_stand_for_others_where_all_experts_are_alike(program: Any, size: dict[str, Any], axis: Any) -> None:
    size = {"layers": 4, "batches": size["ranks"], **size}
    done = run(program, **size, represent=axis)
    assert len(done.models) < size["ranks"] and done.events == run(program, **size, represent=False).events


def test_a_recording_of_a_run_gives_the_same_when_it_is_replayed() -> None:
    size: dict[str, Any] = {"ranks": 8, "layers": 4, "batches": 8, "mesh": {"box": 2, "gpu": 4}, "experts": 8}
    outcome = through_a_recording(experts.in_two_levels(("gpu", "box")), size, "experts")
    assert outcome.verify() == "Correct!"
    assert outcome.events == run(experts.in_two_levels(("gpu", "box")), cost=EXPERTS, **size).events


def test_the_log_as_text_has_them() -> None:
    said = str(run(experts.plain, **SIZE))
    assert " 1AA " in said and " 1E0-3 " in said and " 1BE0-3 " in said
    assert [read_code(code).kind for code in ("1AA", "1E0-3", "1BE0-3")] == ["alltoall", "expert", "backward_expert"]


def test_they_are_drawn_played_and_traced() -> None:
    done = run(experts.plain, **SIZE)
    for picture in (draw(done), play(done), draw_primitive("alltoall")):
        assert "all-to-all" in picture._repr_html_()
    events = json.loads(perfetto(done))["traceEvents"]
    assert {"alltoall", "expert", "backward_expert"} <= {event.get("cat") for event in events}


def test_a_puzzle_has_to_grant_them() -> None:
    assert {"alltoall", "expert"} <= {*grantable()}
    words = {event.kind: event.words for event in run(experts.plain, **SIZE).events}
    assert words["alltoall"] == ("alltoall",) and words["expert"] == words["backward_expert"] == ("expert",)
    assert run(GATHERED, **SIZE).verify() == "Correct!"
    assert not any(event.words for event in run(GATHERED, **SIZE).events)
