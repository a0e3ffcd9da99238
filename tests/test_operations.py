"""The table of operations: a new one is one row, and works everywhere at once; an unknown one is refused."""

import ast
import inspect
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from drawing import draw, draw_primitive, perfetto, play, reference
from drawing.ink import theme
from lib import Cost, Model, PuzzleError, Run, run
from lib.basics.errors import show_set
from lib.course.specs import COSTS
from lib.learner.dist import Dist
from lib.machine.cost import Shape
from lib.machine.rank_state import RankState
from lib.machine.simulator import LocalSimulator
from lib.real import A100_MEGATRON, GPT_175B
from lib.record.codes import read_code
from lib.record.kinds import KINDS, MEMORY_KINDS, SLOT
from lib.record.labels import Labels, of_batches
from lib.record.table import OPERATIONS, add, collective, computation, grantable, in_stream, operation
from lib.record.training import FORWARD
from lib.referee.loaded import Loaded, Submission
from lib.referee.referee import Referee
from tests import toys
from tests.marks import needs_torch

ROOT = Path(__file__).parent.parent
SIZE: dict[str, Any] = {"ranks": 2, "layers": 2, "batches": 2, "cost": toys.ToyCost()}
WEIGHT = Labels("Weight", 1, 3)
INPUT, GRADIENT = (of_batches(kind, 1, 3, frozenset({0, 1}), 2) for kind in ("Activation", "WeightGrad"))


@pytest.fixture
def new_operations() -> Iterator[None]:
    toys.register()
    yield
    toys.unregister()


# -- a new one, from outside, in one place --------------------------------------------------------


@pytest.mark.usefixtures("new_operations")
def test_new_operations_run_are_timed_checked_and_printed() -> None:
    done = run(toys.data_parallel, **SIZE)
    done.check()
    # 2 broadcasts, 2 forwards and refreshes, 2 backwards and reductions, 2 updates
    assert done.time == 2 * 0.3 + 2 * (1 + 2) + 2 * (1 + 0.3) + 2 * 0.5
    text = str(done)
    assert " 0TB" in text and " 1X1" in text
    assert read_code("1X1").kind == "refresh" and read_code("0TB").kind == "toy_broadcast"


@pytest.mark.usefixtures("new_operations")
@pytest.mark.parametrize("engine", ["local", pytest.param("processes", marks=pytest.mark.process)])
@needs_torch
def test_new_operations_run_on_real_tensors(engine: str) -> None:
    done = run(toys.data_parallel, **SIZE, engine=engine, dtype="float64")
    done.check()
    assert done.events == run(toys.data_parallel, **SIZE).events


@pytest.mark.process
@pytest.mark.usefixtures("new_operations")
def test_new_operations_run_in_a_worker_of_the_grader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker has a table of its own, which its submission may add to; what counts is the grader's."""
    monkeypatch.setitem(COSTS, "toy", toys.ToyCost())  # type: ignore[index]
    (tmp_path / "toys_here.py").write_text(
        (ROOT / "tests" / "toys.py").read_text(encoding="utf-8").split("async def data_parallel")[0]
        + "\nregister()\nfrom lib.course.specs import COSTS\nCOSTS['toy'] = ToyCost()\n",
        encoding="utf-8",
    )
    program = inspect.getsource(toys.data_parallel).replace(
        "    from tests.toys import register", "    import toys_here"
    )
    program = "from __future__ import annotations\n" + program.replace("    register()\n", "", 1)
    size = {name: SIZE[name] for name in ("ranks", "layers", "batches")}
    submission = Submission("attempt.py", "import toys_here\n" + program, str(tmp_path))
    with closing(Loaded(submission, Referee(20.0))) as code:
        outcome = code.run("data_parallel", size, [], "toy")
    outcome.check()
    assert outcome.events == run(toys.data_parallel, **SIZE).events


# -- a collective with another result for every rank, and kinds of tensor, from outside ------------

DEALT: dict[str, Any] = {"ranks": 4, "layers": 2, "batches": 4}


@pytest.mark.usefixtures("new_operations")
def test_what_is_dealt_out_is_timed_checked_and_printed() -> None:
    done = run(toys.dealing, **DEALT)
    done.check()
    # a layer: dealt out and home again, a forward, a backward and a reduction, an update
    assert done.time == 2 * (0.3 + 0.3 + 1 + 1 + 0.3 + 0.5)
    assert " 0TD 0-0TD 0F0 " in str(done) and read_code("0TD").kind == "toy_deal"
    dealt = next(event for event in done.events if event.kind == "toy_deal" and event.tensor == "Activation")
    assert dealt.words == ("toy_deal",) and "toy_deal" in grantable()
    assert [event.tensor for event in done.models[1].log if event.kind == "toy_deal"] == ["Activation", "ToyTokens"] * 2


@pytest.mark.usefixtures("new_operations")
def test_every_rank_gets_another_piece_and_its_own_again() -> None:
    seen: dict[int, list[Any]] = {}

    async def program(model: Model) -> None:
        own = model.activations[0] = model.get_activation([model.rank, model.rank + 2])
        tokens = model.activations[1] = await model.toy_deal(own, 0)
        seen[model.rank] = [tokens, tokens.memory(), await model.toy_deal(tokens, 0), own]

    run(program, ranks=2, layers=1, batches=4)
    for rank, (tokens, memory, home, own) in seen.items():
        says = f"ToyTokens(layer=0, layers=1, batches={{0-3}}, total_batches=4, shards={{{rank}}}, total=2)"
        assert (str(tokens), memory, home) == (says, 4 * Cost().activation_elements // 2, own)


@pytest.mark.usefixtures("new_operations")
def test_what_does_not_go_together_is_not_dealt_out() -> None:
    async def twice(model: Model) -> None:
        await model.toy_deal(model.get_activation([0]), 0)

    async def another_kind(model: Model) -> None:
        await model.toy_deal(model.load_weights(0)[0], 0)

    with pytest.raises(PuzzleError, match="a micro-batch comes twice"):
        run(twice, ranks=2)
    with pytest.raises(PuzzleError, match="toy_deal takes an Activation or ToyTokens"):
        run(another_kind, ranks=2)


@pytest.mark.usefixtures("new_operations")
@pytest.mark.parametrize("engine", ["local", pytest.param("processes", marks=pytest.mark.process)])
@needs_torch
def test_what_is_dealt_out_are_numbers_too(engine: str) -> None:
    size = DEALT | {"ranks": 2, "batches": 2}
    done = run(toys.dealing, **size, engine=engine, dtype="float64")
    done.check()
    assert done.events == run(toys.dealing, **size).events
    assert run(toys.passing_keys, ranks=2, engine=engine).events == run(toys.passing_keys, ranks=2).events


@pytest.mark.usefixtures("new_operations")
def test_a_few_ranks_stand_for_many_that_deal_out() -> None:
    size = {"ranks": 16, "layers": 2, "batches": 16}
    done = run(toys.dealing, **size, represent=True)
    assert "of which 4 were run" in repr(done) and done.verify() == "Correct!"
    assert done.events == run(toys.dealing, **size).events


@pytest.mark.usefixtures("new_operations")
def test_what_is_new_is_drawn_in_words_and_has_signs_of_its_family() -> None:
    assert "\n  model.refresh(layer, inp)\n" in str(reference("all"))
    done = run(toys.dealing, **DEALT)
    for picture in (draw(done)._repr_html_(), play(done)._repr_html_(), perfetto(done), reference()._repr_html_()):
        assert "toy deal" in picture or "toy_deal" in picture
    said = draw_primitive("toy_deal").summary
    for rank in range(4):
        assert f"rank {rank}: activation of layer 0 of 1, micro-batch {rank} of 4: 131,072 elements" in said
        assert f"rank {rank}: toy tokens of layer 0 of 1, part {rank} of 4, micro-batches 0-3 of 4: 131,072" in said
    assert theme.kind_color("toy_deal") == theme.OPERATION_COLORS["collective"]
    assert theme.glyph_of("toy_deal") and not theme.glyph_of("toy_keys")


@pytest.mark.usefixtures("new_operations")
def test_a_kind_that_an_operation_makes_is_cut_sent_joined_and_gathered_at_prices_of_its_own() -> None:
    @dataclass(frozen=True)
    class Priced(Cost):
        toy_keys: float = 2
        toy_keys_elements: int = 1000

    done, dearer = run(toys.passing_keys, ranks=4), run(toys.passing_keys, ranks=4, cost=Priced())
    assert (done.time, dearer.time) == (0.25 + 0.2 + 0.2 + 0.3, 2 + 0.2 + 0.2 + 0.3)
    sizes = [{e.elements for e in one.events if e.tensor == "ToyKeys"} for one in (done, dearer)]
    assert sizes == [{Cost().activation_elements // 4}, {250}]


@pytest.mark.usefixtures("new_operations")
def test_a_size_or_a_price_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Labels("ToyKeys", 0, 96, batches=frozenset({0}), total_batches=1)
    monkeypatch.setitem(KINDS, "ToyKeys", toys.TOY_KEYS._replace(wide=0))
    with pytest.raises(PuzzleError, match="Cost has no size for ToyKeys"):
        Cost().elements(keys)
    cost = A100_MEGATRON.cost(GPT_175B)
    with pytest.raises(PuzzleError, match="RealCost has no size for ToyKeys"):
        cost.elements(keys)
    inp, tokens = keys.changed(kind="Activation"), keys.changed(kind="ToyTokens")
    with pytest.raises(PuzzleError, match="RealCost has no price for toy_keys"):
        cost.compute("toy_keys", inp)
    assert cost.elements(tokens) == cost.elements(inp) == cost.activation_elements
    done = run(toys.dealing, **DEALT | {"layers": 96}, cost=cost)
    lengths = {round(event.length, 9) for event in done.events if event.kind == "toy_deal"}
    assert lengths == {round(event.length, 9) for event in run_of_gathers(cost).events if event.kind == "allgather"}


def run_of_gathers(cost: Cost) -> Run:
    """A gather as large as what ``dealing`` deals out."""

    async def program(model: Model) -> None:
        await model.allgather(model.get_activation([0]).shard(model.rank, model.RANKS), 0)

    return run(program, ranks=4, layers=96, cost=cost)


@pytest.mark.usefixtures("new_operations")
def test_a_verb_or_a_code_is_given_once() -> None:
    for taken in (
        toys.TOY_BROADCAST,
        replace(toys.TOY_BROADCAST, code="other"),
        replace(toys.TOY_BROADCAST, kind="other"),
    ):
        with pytest.raises(PuzzleError, match="already"):
            add(taken)
    assert "other" not in OPERATIONS


@pytest.mark.usefixtures("new_operations")
def test_a_price_that_nobody_named_is_asked_for() -> None:
    with pytest.raises(PuzzleError, match="Cost has no price for refresh"):
        run(toys.data_parallel, **(SIZE | {"cost": Cost()}))


@pytest.mark.usefixtures("new_operations")
def test_to_other_collectives_everyone_brings_a_tensor() -> None:
    async def program(model: Model) -> None:
        await model.allreduce(None, 0)  # type: ignore[arg-type]

    with pytest.raises(PuzzleError, match="allreduce takes a WeightGrad"):
        run(program, ranks=2)


def test_the_simulator_asks_for_a_tensor_as_well() -> None:
    simulator = LocalSimulator(Shape.of(1), graded=True)
    with pytest.raises(PuzzleError, match="every rank brings a tensor to allreduce"):
        simulator.meet(simulator.open(0, 2, 1), "allreduce", None, 0, None)


def test_operations_may_share_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATIONS, "toy_forward", replace(FORWARD, kind="toy_forward", code="TF"))
    simulator = LocalSimulator(Shape.of(1), graded=True)
    rank = simulator.open(0, 2, 1)
    weight, _ = simulator.load_weights(rank, 0, 0, 1)
    with pytest.raises(PuzzleError, match=r"toy_forward\(layer 1\), .*input and weight are of layer 0"):
        simulator.compute(rank, "toy_forward", 1, [simulator.get_activation(rank, frozenset({0})), weight])


@pytest.mark.usefixtures("new_operations")
def test_somebody_has_to_bring_a_tensor() -> None:
    async def program(model: Model) -> None:
        inp = model.activations[0] = model.get_activation([0])
        for _ in range(1 + model.rank):
            model.refresh(0, inp)
        await model.toy_broadcast(None, 1)

    for order in ([0, 1, 2], [2, 1, 0]):
        with pytest.raises(PuzzleError, match="no rank brings a tensor") as raised:
            run(program, ranks=3, cost=toys.ToyCost(), _order=order)
        place = raised.value.place
        assert (place.operation, place.layer, place.detail) == ("toy_broadcast", 1, "of all ranks")
        assert place.tick == 2.0  # that of the first of the group


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_each_member_gets_its_own_result_and_the_largest_is_what_is_priced(ranks: int) -> None:
    """Also where the first and the last get the same thing, and those between them something else, and larger."""

    def ends_apart(parts: Any, values: Any, strict: bool) -> Any:
        mine, whole = parts[0], toys.from_the_first([(parts[0][0]._replace(total=1), parts[0][1])], values)[0]
        return [mine if place in (0, len(parts) - 1) else whole for place in range(len(parts))]

    row = replace(toys.TOY_BROADCAST, kind="ends_apart", code="EA", everyone=True, result=ends_apart)
    sizes: list[Any] = []

    class Watched(Cost):
        def meeting(self, kind: str, tensor: Any, size: Any, group: Any) -> Any:
            sizes.append(size)
            return super().meeting(kind, tensor, size, group)

    simulator = LocalSimulator(Shape.of(ranks, cost=Watched()), graded=True)
    members = [simulator.open(rank, 1, 1) for rank in range(ranks)]
    add(row)
    try:
        calls = [simulator.meet(one, row.kind, simulator.load_weights(one, 0, 0, 4)[0], 0, None) for one in members]
    finally:
        toys.remove(row)
    totals = [call.result.labels.total for call in calls if call.result]
    assert totals == [4 if rank in (0, ranks - 1) else 1 for rank in range(ranks)]
    assert sizes == [Cost().weight_elements // (4 if ranks < 3 else 1)]


def test_a_collective_that_gives_too_few_results_is_no_other_collective() -> None:
    def too_few(parts: Any, values: Any, strict: bool) -> Any:
        return parts[:2]

    row = replace(toys.TOY_BROADCAST, kind="too_few", code="TF", everyone=True, result=too_few)
    simulator = LocalSimulator(Shape.of(4), graded=True)
    members = [simulator.open(rank, 1, 1) for rank in range(4)]
    add(row)
    try:
        with pytest.raises(ValueError, match="shorter"):
            for place, one in enumerate(members):
                simulator.meet(one, row.kind, simulator.load_weights(one, 0, place, 4)[0], 0, None)
    finally:
        toys.remove(row)


def test_a_computation_with_more_values_than_labels_is_refused(
    new_operations: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = replace(toys.REFRESH, value=lambda values, given, more: [*given, *given])
    monkeypatch.setitem(OPERATIONS, "refresh", twice)
    simulator = LocalSimulator(Shape.of(1, cost=toys.ToyCost()), graded=True)
    rank = simulator.open(0, 1, 1)
    with pytest.raises(ValueError, match="refresh makes 1 tensors of 2 values"):
        simulator.compute(rank, "refresh", 0, [simulator.get_activation(rank, frozenset([0]))])


# -- what each of the compute stream insists on, and makes ----------------------------------------------

NEEDED = {  # of the layer in the middle of three, where there are two micro-batches
    "forward": {"inp": INPUT, "weight": WEIGHT},
    "loss": {"inp": INPUT.changed(layer=3)},
    "backward": {"inp": INPUT, "grad": INPUT.changed(kind="ActivationGrad"), "weight": WEIGHT},
    "update": {"weight_grad": GRADIENT, "weight": WEIGHT, "opt_state": WEIGHT.changed(kind="OptState")},
}
OTHERS: list[tuple[str, str, dict[str, Any], str]] = [
    *[("forward", "inp", {"layer": layer}, f"the input is that of layer {layer}") for layer in (0, 2)],
    *[("backward", "inp", {"layer": layer}, f"the input is that of layer {layer}") for layer in (0, 2)],
    *[("backward", "grad", {"layer": layer}, f"the gradient is that of layer {layer}") for layer in (0, 2)],
    ("backward", "inp", {"batches": frozenset({0})}, "input and gradient are of different micro-batches"),
    ("backward", "grad", {"batches": frozenset({1})}, "input and gradient are of different micro-batches"),
    *[
        (kind, "weight", other, says)
        for kind in ("forward", "backward")
        for other, says in (
            ({"layer": 0}, "the weight is that of layer 0"),
            ({"layer": 2}, "the weight is that of layer 2"),
            ({"total": 2}, "the weight is not complete"),
            ({"shards": frozenset({0, 1, 3}), "total": 4}, "the weight is not complete"),
            ({"step": 1}, "the weight has been updated already"),
        )
    ],
    *[("loss", "inp", {"layer": at}, "`loss` reads the output of the last layer, and of no other") for at in (0, 2)],
    *[
        ("update", name, {"layer": layer}, f"{name} is that of layer {layer}")
        for name in NEEDED["update"]
        for layer in (0, 2)
    ],
    ("update", "weight_grad", {"batches": frozenset({0})}, "the gradient is missing micro-batch 1"),
    ("update", "weight_grad", {"batches": frozenset()}, "the gradient is missing micro-batches 0, 1"),
    ("update", "weight", {"step": 1}, "weight and optimizer state are of different steps"),
    ("update", "opt_state", {"step": 1}, "weight and optimizer state are of different steps"),
    ("update", "weight", {"total": 2}, "weight and optimizer state are of different shards"),
    (
        "update",
        "opt_state",
        {"shards": frozenset({1}), "total": 2},
        "weight and optimizer state are of different shards",
    ),
    ("update", "weight_grad", {"total": 2}, "the gradient is missing shards that the weight has"),
]


def middle(graded: bool = True) -> RankState:
    """A rank with three layers and two micro-batches."""
    return LocalSimulator(Shape.of(1), graded=graded).open(0, 3, 2)


def layer_of(kind: str) -> Any:
    return 1 if OPERATIONS[kind].layered else None


@pytest.mark.parametrize(("kind", "operand", "other", "says"), OTHERS)
def test_an_operation_refuses_an_operand_that_differs_in_one_label(
    kind: str, operand: str, other: dict[str, Any], says: str
) -> None:
    """It names the operation, its layer and its micro-batches, and shows the operand that does not fit."""
    given = NEEDED[kind] | {operand: NEEDED[kind][operand].changed(**other)}
    with pytest.raises(PuzzleError) as raised:
        computation(kind).rule(middle(), layer_of(kind), [*given.values()], {})
    error = raised.value
    assert error.problem == says
    batches = None if kind == "update" else given["inp"].batches
    assert (error.place.rank, error.place.operation, error.place.layer) == (0, kind, layer_of(kind))
    assert error.place.batches == batches
    assert error.got in {str(labels) for labels in given.values()} | {
        show_set(labels.batches) for labels in given.values()
    }


def test_an_update_is_of_the_same_piece_however_it_is_written_and_the_gradient_may_be_more() -> None:
    rank, rule = middle(), computation("update").rule
    quarters, half = {"shards": frozenset({2, 3}), "total": 4}, {"shards": frozenset({1}), "total": 2}
    state = WEIGHT.changed(kind="OptState")
    for covers in ({}, half, quarters, {"shards": frozenset({1, 2, 3}), "total": 4}):
        rule(rank, 1, [GRADIENT.changed(**covers), WEIGHT.changed(**quarters), state.changed(**half)], {})
        rule(rank, 1, [GRADIENT.changed(**covers), WEIGHT.changed(**half), state.changed(**quarters)], {})
    with pytest.raises(PuzzleError, match="is missing shards"):
        rule(rank, 1, [GRADIENT.changed(total=2), WEIGHT.changed(**half), state.changed(**quarters)], {})


def test_by_hand_an_updated_weight_goes_on() -> None:
    """In a demonstration a second step may follow the first."""
    newer = WEIGHT.changed(step=1)
    computation("forward").rule(middle(graded=False), 1, [INPUT, newer], {})
    computation("backward").rule(middle(graded=False), 1, [INPUT, INPUT.changed(kind="ActivationGrad"), newer], {})


@pytest.mark.parametrize(
    ("kind", "makes"),
    [
        ("forward", [INPUT.changed(layer=2)]),
        ("loss", [INPUT.changed(kind="ActivationGrad", layer=2)]),
        ("backward", [GRADIENT, INPUT.changed(kind="ActivationGrad", layer=0)]),
        ("update", [WEIGHT.changed(step=1), WEIGHT.changed(kind="OptState", step=1)]),
    ],
)
def test_an_operation_takes_what_fits_and_makes_what_the_next_one_needs(kind: str, makes: list[Labels]) -> None:
    for graded in (True, False):
        computation(kind).rule(middle(graded), layer_of(kind), [*NEEDED[kind].values()], {})
    assert computation(kind).makes(middle(), layer_of(kind), [*NEEDED[kind].values()], {}) == makes


# -- an unknown one is refused where it is met -----------------------------------------------------


@pytest.mark.parametrize("kind", ["refresh", "receive", "", None])
def test_what_is_no_operation_of_the_compute_lane_is_refused(kind: Any) -> None:
    simulator = LocalSimulator(Shape.of(1), graded=True)
    rank = simulator.open(0, 2, 1)
    says = f"{kind} is no operation of the compute stream" if kind in OPERATIONS else f"there is no operation {kind!r}"
    with pytest.raises(PuzzleError, match=says):
        simulator.compute(rank, kind, 0, [])
    with pytest.raises(PuzzleError, match=says) as raised:
        computation(kind)
    assert raised.value.expected.startswith(", ".join(in_stream("compute")))
    says = f"{kind} is no collective" if kind in OPERATIONS else says
    for ask in (
        lambda: simulator.meet(rank, kind, simulator.load_weights(rank, 0, 0, 1)[0], 0, None),
        lambda: collective(kind),
    ):
        with pytest.raises(PuzzleError, match=says):
            ask()


def test_a_model_has_no_other_verbs() -> None:
    with pytest.raises(AttributeError):
        Model(0, Dist(1)).toy_broadcast  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(PuzzleError, match="there is no operation 'toy_broadcast'"):
        operation("toy_broadcast")


# -- one home ---------------------------------------------------------------------------------------


def test_the_names_of_operations_stand_in_few_files() -> None:
    """Whoever lists operations reads the table: names are spelled where they live and where learners call them."""
    rules = (path.stem for path in (ROOT / "lib/record/rules").glob("*.py"))
    rows = {
        f"lib/record/{name}.py" for name in ("training", "attention", "collectives", *map("rules/{}".format, rules))
    }
    homes = {*rows, "lib/learner/model.py", "drawing/ink/theme.py"}
    spelled = {
        path.relative_to(ROOT).as_posix()
        for folder in ("lib", "drawing")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in ("forward", "backward", "scatterreduce", "allgather")
    }
    assert spelled <= homes


def test_the_kinds_of_tensor_are_one_table() -> None:
    kinds = list(dict.fromkeys(row.memory for row in KINDS.values()))
    assert kinds == list(MEMORY_KINDS[: len(kinds)]) and len(kinds) == 5
    assert {name: MEMORY_KINDS[slot] for name, slot in SLOT.items()} == {n: row.memory for n, row in KINDS.items()}
    assert [store._name for store in Model().storage()] == ["weights", "opt_states", *STORES_IN_ORDER]
    assert {store._name for store in Model().storage()} == {row.store for row in KINDS.values()}


STORES_IN_ORDER = ("activations", "grad_activations", "grad_weights")  # as the contract has it
