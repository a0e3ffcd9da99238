"""A layer in three steps, for slices of a sequence: figures, values, what is refused and what is said of it."""

import copy
import json
import pickle
import re
from collections.abc import Callable
from fractions import Fraction
from itertools import chain, combinations, product
from typing import Any

import pytest

from drawing import draw, perfetto, play, reference
from lib import (
    Activation,
    Attended,
    AttendedGrad,
    Cost,
    KeysValues,
    KeysValuesGrad,
    Model,
    PuzzleError,
    RingCost,
    WeightGrad,
    run,
)
from lib.course.specs import COSTS, cost_named
from lib.machine.check import check_finals
from lib.machine.fingerprints import Fingerprints
from lib.record.causal import ALL, share
from lib.record.codes import read_code
from lib.record.labels import ExtraLabels, Labels, of_batches
from lib.record.shards import refined
from tests.corpus import changed
from tests.drawing_events import titles
from tests.marks import needs_torch
from tests.slices import PROGRAMS, gathering, heads, in_steps, own_slices, ring, whole_layers

SIZE: dict[str, Any] = {"ranks": 4, "layers": 2, "batches": 1}
HEADS = {"heads": heads(), "heads, zigzag": heads(zigzag=True)}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", [*PROGRAMS, *HEADS])
def test_right_in_all_ways(name: str, ranks: int) -> None:
    if name.startswith("ring") and ranks == 1:
        return  # a rank does not pass to itself
    run((PROGRAMS | HEADS)[name], ranks=ranks, layers=3, batches=1).verify()


@pytest.mark.parametrize("zigzag", [False, True])
def test_a_mesh_of_data_and_context(zigzag: bool) -> None:
    """Keys and values are gathered along one axis, gradients of weights are summed over all ranks."""
    run(gathering(zigzag, axis="context"), 6, 3, 2, mesh={"data": 2, "context": 3}).verify()


@pytest.mark.parametrize("zigzag", [False, True])
def test_heads_inside_of_a_node_and_a_ring_of_nodes(zigzag: bool) -> None:
    """All-to-alls in a node turn slices into heads; keys and values of the same heads go from node to node."""
    run(heads(zigzag, mesh=True), 6, 3, 1, mesh={"node": 2, "gpu": 3}).verify()


def test_heads_in_two_levels_and_home_again() -> None:
    """Cut in a node and again between nodes, what goes home last in, first out is what it was."""

    async def there_and_back(model: Model) -> Model:
        whole_layers(model)
        acts = model.activations
        acts["inp"] = own_slices(model, model.get_activation([0]), None, zigzag=True)
        acts["att"], acts["kv"] = model.project(0, acts["inp"], model.weights[0])
        for key in ("att", "kv"):
            before = acts[key]
            for axis in ("gpu", "node"):
                acts[key] = await model.alltoall(acts.pop(key), 0, axis)
            place = model.axis_index("gpu") * 2 + model.axis_index("node")
            assert (acts[key].heads, acts[key].of_heads, acts[key].total) == ({place}, 6, 1)
            assert acts[key].memory() == before.memory()
            for axis in ("node", "gpu"):
                acts[key] = await model.alltoall(acts.pop(key), 0, axis)
            assert acts[key] == before
        return model

    done = run(there_and_back, 6, 1, 1, mesh={"node": 2, "gpu": 3})
    assert sum(event.kind == "alltoall" for event in done.events) == 6 * 2 * 4


def test_three_steps_are_a_forward() -> None:
    """On one rank, with the whole sequence: the same values, at the same price."""
    done = run(in_steps, ranks=1, layers=2, batches=1)
    assert done.time == 2 * (1 + 1 + 0.5)


# -- the log -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_log_says_which_slices_queries_and_keys_are(name: str) -> None:
    """Each query meets each slice that it sees once, forward and backward, as the labels of the operands say."""
    done = run(PROGRAMS[name], **SIZE)
    for kind, layer in product(("attend", "backward_attend"), range(2)):
        pairs: list[tuple[int, int]] = []
        for event in done.events:
            if (event.kind, event.layer) == (kind, layer):
                queries, keys = (refined(*one, 8) for one in event.slices)
                own = {event.rank, 7 - event.rank} if "zigzag" in name else {2 * event.rank, 2 * event.rank + 1}
                assert queries == own
                pairs += product(queries, keys)
        assert sorted(pair for pair in pairs if pair[0] >= pair[1]) == [(q, k) for q in range(8) for k in range(q + 1)]
    steps = [event for event in done.events if event.kind in ("project", "rest", "backward_rest", "backward_project")]
    assert {len(set(event.slices)) for event in steps} == {1} and all(step.slices[0][1] > 1 for step in steps)
    assert all(event.slices == () for event in done.events if event.kind in ("update", "allgather", "pass_to"))


def test_pictures_and_files_for_perfetto_say_the_slices() -> None:
    done = run(ring(zigzag=True), **SIZE)
    said = "queries: slice {1, 6} of 8\nkeys: slice {0, 7} of 8"
    assert any(said in text for text in titles(draw(done)))
    found = [entry.get("args", {}) for entry in json.loads(perfetto(done))["traceEvents"] if entry["ph"] == "X"]
    assert any((one.get("queries"), one.get("keys")) == ("slice {1, 6} of 8", "slice {0, 7} of 8") for one in found)


def test_the_log_says_in_which_heads_queries_attend() -> None:
    done = run(heads(), **SIZE)
    found = {event.rank: event.slices for event in done.events if event.kind in ("attend", "backward_attend")}
    assert found == {rank: (ALL, ALL, (frozenset({rank}), 4)) for rank in range(4)}
    assert any("heads: part {1} of 4 of the heads" in text for text in titles(draw(done)))
    said = [entry.get("args", {}) for entry in json.loads(perfetto(done))["traceEvents"] if entry["ph"] == "X"]
    assert any(one.get("heads") == "part {3} of 4 of the heads" for one in said)


# -- prices and sizes ----------------------------------------------------------------------------------------


def test_steps_cost_their_shares() -> None:
    cost = Cost(forward=8, backward=8)
    whole, quarter = (
        of_batches("Activation", 0, 2, frozenset({0}), 1),
        Labels("Activation", 0, 2, batches=frozenset({0}), total_batches=1, shards=frozenset({3}), total=4),
    )
    weight, att = Labels("Weight", 0, 2), quarter.changed(kind="Attended")
    assert [cost.compute(*one) for one in (("project", whole, weight), ("project", quarter, weight))] == [
        cost.per_tick,
        Fraction(cost.per_tick, 4),
    ]
    assert cost.compute("rest", whole, weight, whole.changed(kind="Attended")) == 5 * cost.per_tick
    keys = whole.changed(kind="KeysValues")
    assert cost.compute("attend", att, keys) == Fraction(2 * 7, 16) * cost.per_tick  # 3 blocks, and one on the diagonal
    first = att.changed(shards=frozenset({0}))
    assert cost.compute("attend", first, keys) == Fraction(2, 16) * cost.per_tick
    assert cost.compute("attend", first, keys.changed(shards=frozenset({1}), total=2)) == 0  # nobody sees these


def test_some_heads_cost_their_share() -> None:
    one, cost = Labels("Attended", 0, 2, batches=frozenset({0}), total_batches=1), Cost(forward=8, backward=8)
    heads_of = [
        each.changed(extra=ExtraLabels(heads=(frozenset({3}), 4))) for each in (one, one.changed(kind="KeysValues"))
    ]
    assert cost.compute("attend", *heads_of) == Fraction(2, 4) * cost.per_tick


def test_shares_of_all_blocks_add_up() -> None:
    for cut in (1, 2, 3, 8):
        blocks = [((frozenset({q}), cut), (frozenset({k}), cut)) for q in range(cut) for k in range(cut)]
        assert sum(share(*block) for block in blocks) == 1


def test_sizes() -> None:
    cost, batches = Cost(keys_values_elements=100, attended_elements=300), frozenset({0, 1})
    sizes = [of_batches(k, 0, 2, batches, 2) for k in ("KeysValues", "KeysValuesGrad", "Attended", "AttendedGrad")]
    assert [cost.elements(labels) for labels in sizes] == [200, 200, 600, 1200]
    assert cost.elements(sizes[0].changed(shards=frozenset({1}), total=4)) == 50
    third = [one.changed(extra=one.extra._replace(heads=(frozenset({1}), 3))) for one in sizes]
    assert [cost.elements(labels) for labels in third] == [Fraction(200, 3), Fraction(200, 3), 200, 400]
    assert Cost().elements(sizes[0]) == 4 * Cost().activation_elements == Cost().elements(sizes[3]) / 2


@pytest.mark.parametrize("prices", [{"attend": 1}, {"forward": 4, "project": 1, "attend": 1, "rest": 1}])
def test_prices_that_do_not_add_up_are_refused(prices: dict[str, float]) -> None:
    with pytest.raises(PuzzleError, match="three steps") as told:
        Cost(**prices)
    assert "project, attend, rest" in str(told.value)
    assert Cost(forward=4, project=1, attend=1, rest=2).price("rest") == 2


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("layers", [2, 5])
def test_gather_takes_what_the_formula_says(ranks: int, layers: int) -> None:
    """Zigzag, each call awaited where it is made: L (f + b) / n + L (2g + s + r + u)."""
    cost = COSTS["long_context"]
    assert isinstance(cost, RingCost)
    hop, rate = Fraction(1, 100) * (ranks - 1), Fraction(ranks - 1, ranks * 655_360)
    gather = scatter = hop + rate * cost.keys_values_elements
    total = 2 * (hop + rate * cost.weight_elements)
    expected = layers * (Fraction(12, ranks) + 2 * gather + scatter + total + Fraction(1, 2))
    done = run(gathering(zigzag=True), ranks, layers, 1, cost=cost)
    assert done.time == pytest.approx(float(expected))


# -- values ----------------------------------------------------------------------------------------------------


def subsets(of: int) -> list[tuple[int, ...]]:
    return [*chain.from_iterable(combinations(range(of), count) for count in range(of + 1))]


def part(whole: Any, cut: int, shard: int, values: Fingerprints) -> Any:
    return values.cut(whole, Labels("Activation", 0, 1, batches=frozenset({0}), shards=frozenset({shard}), total=cut))


@pytest.mark.parametrize("cut", [2, 3, 4])
def test_queries_are_right_once_they_have_met_all_that_they_see(cut: int) -> None:
    """By value alone, in any order: keys that they do not see add nothing, one twice or one missing spoils all."""
    values = Fingerprints()
    weight, inp = values.weight(Labels("Weight", 0, 1)), values.inputs(frozenset({0}))
    out = values.forward(inp, weight)
    for query in range(cut):
        own = part(inp, cut, query, values)
        for met in [*subsets(cut), *product(range(cut), repeat=2)]:
            att, _ = values.project(own, weight)
            for key in met:
                _, kv = values.project(part(inp, cut, key, values), weight)
                att = values.attend(att, kv)
            seen = [key for key in met if key <= query]
            right = values.rest(own, weight, att) == part(out, cut, query, values)
            assert right == (sorted(seen) == [*range(query + 1)]), (query, met)


@pytest.mark.parametrize("cut", [2, 3, 4])
def test_gradients_of_keys_are_right_once_all_queries_have_added(cut: int) -> None:
    values = Fingerprints()
    weight, inp = values.weight(Labels("Weight", 0, 1)), values.inputs(frozenset({0}))
    grad = values.loss(values.forward(inp, weight))
    whole_weight, whole_inp = values.backward(inp, grad, weight)
    slices, back = (
        [part(inp, cut, one, values) for one in range(cut)],
        [part(grad, cut, one, values) for one in range(cut)],
    )
    kvs, atts, gone = [values.project(one, weight)[1] for one in slices], [], []
    for query in range(cut):
        att = values.project(slices[query], weight)[0]
        for kv in kvs:
            att = values.attend(att, kv)
        att_grad, given = values.backward_rest(slices[query], back[query], weight, att), []
        for kv in kvs:
            att_grad, kv_grad = values.backward_attend(att_grad, kv)
            given.append(kv_grad)
        atts.append(att_grad)
        gone.append(given)
    for key in range(cut):
        for added in [one for one in [*subsets(cut), *product(range(cut), repeat=2)] if one]:
            kv_grad = values.add([gone[query][key] for query in added])
            _, of_inp = values.backward_project(slices[key], back[key], weight, atts[key], kv_grad)
            seeing = [query for query in added if query >= key]
            assert (of_inp == part(whole_inp, cut, key, values)) == (sorted(seeing) == [*range(key, cut)]), (key, added)
    complete = [values.add([gone[query][key] for query in range(cut)]) for key in range(cut)]
    parts = [values.backward_project(slices[one], back[one], weight, atts[one], complete[one])[0] for one in range(cut)]
    for chosen in subsets(cut)[1:]:
        assert (values.add([parts[one] for one in chosen]) == whole_weight) == (len(chosen) == cut)


def some(whole: Any, cut: int, shard: int, head: int, values: Fingerprints) -> Any:
    """A slice of what goes into attention, of some heads: both of ``cut``."""
    labels = Labels("KeysValues", 0, 1, batches=frozenset({0}), shards=frozenset({shard}), total=cut)
    return values.cut(whole, labels.changed(extra=ExtraLabels(heads=(frozenset({head}), cut))))


def test_heads_are_right_once_each_has_met_its_own_keys() -> None:
    """By value alone: of all ways in which the two halves of the heads of a slice's queries may attend to halves of
    keys, and be put together, the honest ones come out right and no other."""
    values, cut = Fingerprints(), 2
    weight, inp = values.weight(Labels("Weight", 0, 1)), values.inputs(frozenset({0}))
    out, (att, kv) = values.forward(inp, weight), values.project(inp, weight)
    blocks, right, tried = [*product(range(cut), repeat=2)], 0, 0
    for query in range(cut):
        met = dict[tuple[int, tuple[Any, ...]], Any]()
        for head in range(cut):
            for chosen in [*chain.from_iterable(combinations(blocks, count) for count in range(5)), (blocks[0],) * 2]:
                one = some(att, cut, query, head, values)
                for key, theirs in chosen:
                    one = values.attend(one, some(kv, cut, key, theirs, values))
                met[head, chosen] = one
        for first, second in product(met, repeat=2):
            got = values.rest(part(inp, cut, query, values), weight, values.join([met[first], met[second]]))
            needed = [(key, head) for head in (first[0], second[0]) for key in range(query + 1)]
            seen = [block for _, chosen in (first, second) for block in chosen if block[0] <= query]
            own = all(block[1] == head for head, chosen in (first, second) for block in chosen)
            honest = first[0] != second[0] and own and sorted(seen) == sorted(needed)
            assert (got == part(out, cut, query, values)) == honest, (query, first, second)
            right, tried = right + honest, tried + 1
    assert (right, tried) == (10, 2 * 34 * 34)


def test_gradients_of_heads_are_right_once_all_are_home() -> None:
    """Of all ways to put together the gradients of keys of two slices and two halves of the heads, as queries of both
    slices give them: one of each is right, and every other one is not."""
    values, cut = Fingerprints(), 2
    weight, inp = values.weight(Labels("Weight", 0, 1)), values.inputs(frozenset({0}))
    grad, (att, kv) = values.loss(values.forward(inp, weight)), values.project(inp, weight)
    gone = values.backward_rest(inp, grad, weight, values.attend(att, kv))
    own = [some(gone, cut, 0, head, values) for head in range(cut)]
    for head in range(cut):
        own[head], _ = values.backward_attend(own[head], some(kv, cut, 0, head, values))
    given = {
        (query, head): values.backward_attend(some(gone, cut, query, head, values), some(kv, cut, 0, head, values))[1]
        for query, head in product(range(cut), repeat=2)
    }
    _, back = values.backward(inp, grad, weight)
    whole, right = part(back, cut, 0, values), 0
    ways = [one for count in range(1, 4) for one in combinations(given, count)] + [(one, one) for one in given]
    for first, second in product(ways, repeat=2):
        kv_grad = values.join([values.add([given[one] for one in way]) for way in (first, second)])
        arguments = part(inp, cut, 0, values), part(grad, cut, 0, values), weight, values.join(own), kv_grad
        honest = {first, second} == {((0, 0), (1, 0)), ((0, 1), (1, 1))}
        assert (values.backward_project(*arguments)[1] == whole) == honest, (first, second)
        right += honest
    assert right == 2


@pytest.mark.parametrize("rules", [True, False])
@pytest.mark.parametrize(
    ("program", "said"),
    [
        (gathering(mistake="own keys only"), ("rest", "have not attended to slice {0} of 4")),
        (ring(steps=-1), ("rest", "have not attended to slice")),
        (ring(zigzag=True, mistake="only step <= rank"), ("rest", "have not attended to slice", "of 8")),
        (ring(steps=1), ("attend", "slice {0} of 4 of the keys would be counted more than once")),
        (
            gathering(mistake="own, and then all"),
            ("attend", "slice {0} of 4 of the keys would be counted more than once"),
        ),
        (gathering(mistake="keys of another layer"), ("attend", "kv is that of layer 0", "layer 1")),
        (gathering(mistake="keys not summed"), ("backward_project", "missing what the queries of slice")),
        (gathering(mistake="keys not sent home"), ("backward_project", "inp and kv_grad are of different slices")),
        (ring(mistake="not sent home"), ("backward_project", "inp and kv_grad are of different slices")),
        (ring(mistake="added twice"), ("+", "would be counted more than once", "once")),
        (gathering(mistake="weights not summed"), ("update", "the gradient is missing slice {1-3} of 4")),
        (gathering(mistake="a slice of nobody"), ("rest", "have not attended to slice")),
        (
            heads(mistake="queries not turned"),
            ("attend", "att and kv are of different heads", "keys and values of all heads"),
        ),
        (heads(mistake="keys not turned"), ("attend", "different heads", "got:      all heads")),
        (heads(mistake="attends first"), ("alltoall", "not parts of one tensor")),
        (heads(mistake="keys of the next rank"), ("attend", "different heads", "got:      part {3} of 4 of the heads")),
        (heads(mistake="not brought home"), ("rest", "att is of some heads only")),
        (heads(mistake="gradient not turned"), ("backward_attend", "different heads", "keys and values of all heads")),
        (heads(mistake="queries' gradient not home"), ("backward_project", "att_grad is of some heads only")),
        (heads(mistake="keys' gradient summed"), ("scatterreduce", "different heads")),
        (heads(mistake="keys' gradient not home"), ("backward_project", "kv_grad is of some heads only")),
    ],
)
def test_mistakes_are_found(program: Callable[[Model], Any], said: tuple[str, ...], rules: bool) -> None:
    """By the rules at the operation, and without them by the values at the end."""
    with pytest.raises(PuzzleError) as told:
        check_finals(run(program, **SIZE, _strict=rules).final_states)
    if rules:
        assert all(text in str(told.value) for text in said), str(told.value)


def of_weight(batches: set[int], slices: set[int]) -> WeightGrad:
    return WeightGrad(0, 2, batches, 2, parts=slices, of=4)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (
            [of_weight({0}, {1}), of_weight({0}, {1, 2})],
            "slice {1} of 4 of micro-batch 0 would be counted more than once",
        ),
        ([of_weight({0}, {0}), of_weight({1}, {1})], "gradients of different slices of the sequence do not add up"),
        (
            [KeysValuesGrad(0, 2, {0}, 1, {1}, 4, {1}, 4), KeysValuesGrad(0, 2, {0}, 1, {2}, 4, {2}, 4)],
            "gradients of different keys and values do not add up",
        ),
    ],
)
def test_what_does_not_add_up(parts: list[Any], says: str) -> None:
    with pytest.raises(PuzzleError, match=re.escape(says)):
        parts[0] + parts[1]


def test_sums_of_slices_and_micro_batches() -> None:
    """Slices of one micro-batch, the same slice of several, and sums of these, in any order."""
    assert of_weight({0}, {0}) + of_weight({0}, {1}) == of_weight({0}, {0, 1})
    assert of_weight({0}, {2}) + of_weight({1}, {2}) == of_weight({0, 1}, {2})
    rows = [of_weight({0}, {one}) + of_weight({1}, {one}) for one in range(4)]
    assert sum(rows[1:], start=rows[0]) == WeightGrad(0, 2, {0, 1}, 2)


# -- tensors, texts, pictures ------------------------------------------------------------------------------------


def test_made_by_hand_and_copied() -> None:
    att = Attended(0, 2, {0}, 1, {1}, 4)
    assert att.parts == frozenset() and not att.is_complete()
    assert Attended(0, 2, {0}, 1, {1}, 4, {0}, 2).is_complete()
    assert KeysValuesGrad(0, 2, {0}, 1, {1}, 2, {1}, 2).is_complete()
    assert not KeysValuesGrad(0, 2, {0}, 1, {0}, 2, {1}, 2).is_complete()
    assert str(att) == "Attended(layer=0, layers=2, batches={0}, total_batches=1, shards={1}, total=4, parts={}, of=1)"
    some = Attended(0, 2, {0}, 1, heads={1}, of_heads=2, parts={0})
    assert not some.is_complete() and not KeysValues(0, 2, {0}, 1, heads={0, 1}, of_heads=4).is_complete()
    assert str(some) == "Attended(layer=0, layers=2, batches={0}, total_batches=1, heads={1}, of_heads=2)"
    grad = WeightGrad(0, 2, {0}, 1, parts={1}, of=2)
    for tensor in (
        some,
        KeysValuesGrad(0, 2, {0}, 1, heads={1}, of_heads=2),
        att,
        KeysValues(0, 2, {0}, 1),
        AttendedGrad(0, 2, {0}, 1),
        grad,
    ):
        assert copy.deepcopy(tensor) == tensor == pickle.loads(pickle.dumps(tensor))
    assert KeysValues(0, 2, {0}, 1).memory() == 2 * Activation(0, 2, {0}, 1).memory()
    assert not grad.is_complete()


def test_codes_and_pictures_know_the_steps() -> None:
    done = run(gathering(), **SIZE)
    text = str(done)
    assert all(code in text for code in ("0P0", "0A0", "0R0", "1BR0", "1BA0", "1BP0"))
    assert read_code("1BA0").kind == "backward_attend"
    assert draw(done) and play(done)
    assert "backward_attend" in reference("all")._repr_html_()


ROWS: dict[str, Any] = {"ranks": 4, "layers": 4, "batches": 1, "cost": cost_named("long_sequences")}


def rows(*edit: str) -> Callable[[Model], Any]:
    """R12, repaired, with an edit."""
    names: dict[str, Any] = {}
    exec(changed("repair_rows", "", *[edit] * bool(edit)).source, names)  # type: ignore[arg-type]
    return names["repair_rows"]  # type: ignore[no-any-return]


def test_a_layer_that_looks_at_each_token_by_itself_takes_a_slices_share() -> None:
    done = run(rows(), **ROWS)
    assert done.verify() == "Correct!" and {"sliced=True", "slices"} < {
        word for one in done.events for word in one.words
    }
    there = [one for one in done.models[1].log if one.kind in ("forward", "backward") and one.layer == 0]
    assert [one.length for one in there] == [0.25, 0.25]
    assert [{*one.slices} for one in there] == [{(frozenset({1}), 4)}] * 2
    inp, weight = Labels("Activation", 0, 1, batches=frozenset({0}), total_batches=1, total=4), Labels("Weight", 0, 1)
    price = Cost(saved_elements=400).workspace("backward", inp, inp.changed(kind="ActivationGrad"), weight)
    assert price == 100


ONE_BY_ONE = [
    ("inp, weight, sliced=True", "inp, weight", "the input is a slice of the sequence"),
    ("inp, weight, sliced=True", 'inp, weight, sliced=True, keep="all"', "the input is a slice of the sequence"),
    ("inp, weight, sliced=True", "inp, weight, sliced=1", "unknown value for sliced"),
    ("inp, weight, sliced=True", "inp, weight.shard(0, 2), sliced=True", "the weight is not complete"),
    (
        "acts.pop(layer), grads.pop",
        "acts.pop(layer).shard(0, 2), grads.pop",
        "input and gradient are of different slices",
    ),
    ("if layer % 2 == 0:", "if False:", "the gradient is missing slice {1-3} of 4"),
]


@pytest.mark.parametrize(("old", "new", "says"), ONE_BY_ONE)
def test_what_slices_of_a_plain_layer_are_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(PuzzleError, match=says):
        run(rows(old, new), **ROWS)
    with pytest.raises(PuzzleError):  # and by value alone
        run(rows(old, new), **ROWS, quiet=True).verify()


@needs_torch
def test_real_slices_of_a_plain_layer_agree() -> None:
    assert "off by" in run(rows(), **ROWS, engine="local").verify()
