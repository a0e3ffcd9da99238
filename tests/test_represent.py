"""Ranks that stand for others: as the whole machine, or refused."""

import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drawing import compare, draw, perfetto
from lib import Cost, Model, PuzzleError, Run, grade, run
from lib.course.sizes import other_sizes
from lib.course.specs import Size, cost_named, puzzles
from lib.real import A100_MEGATRON, Transformer, report
from lib.record.figures.score import idle_share
from lib.represent.symmetry import Derived, Unlike
from lib.running.run import Timed
from lib.study.planned import pipelined
from tests import slices
from tests.corpus.honest import HONEST
from tests.corpus.mistakes import MISTAKES
from tests.one_rank_differs import one_rank_differs
from tests.programs import SMALLER, SOLUTIONS, small_size
from tests.slow import EVERYTHING, some
from tests.test_hosts import zero_offload
from tests.test_whole_gradient import reduce_scatter, sharded
from tools.bench import fsdp, hybrid
from tools.programs import fsdp_accumulating

MODULES = {name: importlib.import_module(f"solutions.{name}") for name in SOLUTIONS}
PASS_MESSAGES = {"pipeline", "gpipe", "pipeline_fsdp", "one_f_one_b", "interleaved", "zero_bubble", "zbv"}
PASS_MESSAGES |= {"ring_attention", "ring_allreduce", "small_messages"}
"""Programs whose only axis is one along which messages are passed."""
UNEVEN = {"context_parallel", "expert_parallel", "two_batch_overlap", "muon"}
"""Programs whose ranks do not all compute as much, or have pieces that do not move on by one step."""
ONLY_TIMED = {"tensor_parallel", "sequence_parallel", "offload"}
"""Programs of which nothing is proved where some ranks are not run: partial sums and hosts do not follow."""


def best() -> Iterator[Any]:
    """Every program of the solutions that the frontier of its puzzle names, and that puzzle."""
    for puzzle in puzzles().values():
        proved = not puzzle.repair and puzzle.size.keys().isdisjoint({"links", "tokens"})
        for name in sorted({puzzle.name, *[point["by"] for point in puzzle.frontier]} if proved else ()):
            program = getattr(MODULES[puzzle.file], name, None)
            if program is not None:
                in_turn = puzzle.name in SMALLER and name != puzzle.name
                marks = pytest.mark.slow if in_turn else ()
                yield pytest.param(program, puzzle, id=f"{puzzle.name}-{name}", marks=marks)


def same(one: Run, two: Run) -> bool:
    """Whether two runs have the same figures and the same log, record by record."""
    figures = [(done.time, done.memory, done.host_memory, done.events) for done in (one, two)]
    return figures[0] == figures[1]


def proved(done: Run) -> bool:
    """Whether a run with ranks that stand for others has proved what these do."""
    assert isinstance(done, Timed)
    return done.proved


SOLVED = [one for one in best() if getattr(one.values[0], "__name__", "") == one.values[1].name]
FASTER = some([one for one in best() if one.id not in {solved.id for solved in SOLVED}], 6)
"""Every solution, and some of all other programs of a frontier."""


@pytest.mark.parametrize(("program", "puzzle"), [*SOLVED, *FASTER])
def test_every_solution_is_timed_as_on_the_whole_machine(
    program: Callable[[Model], Any], puzzle: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    name = getattr(program, "__name__", "")  # settings of one program have none
    whole_size = puzzle.name not in SMALLER or EVERYTHING
    own = puzzle.size if name == puzzle.name and whole_size else small_size(puzzle.name)
    cost, refused, sizes = cost_named(puzzle.cost), [], [own, *other_sizes(puzzle.other_sizes, puzzle.size)]
    largest = sorted(sizes, key=lambda size: size.get("ranks", 1))[-3:]
    for size in [own, *sizes[1:3], *largest]:
        whole = run(program, **size, cost=cost, represent=False)
        for axis in (True, *(size.get("mesh") or ())):
            try:
                few = run(program, **size, cost=cost, represent=axis)
            except Unlike as error:
                assert puzzle.name in UNEVEN or "pass messages" in error.problem
                refused.append(axis)
                continue
            assert same(few, whole)
            assert few.note
            assert few.note in repr(few)
            if puzzle.name not in ONLY_TIMED or len(few.models) == whole.ranks + whole.hosts:
                assert proved(few) and few.verify() == whole.verify()
            else:
                assert not proved(few)
    if puzzle.name in PASS_MESSAGES | UNEVEN:
        assert {*refused} == {True}
    elif puzzle.name == "compose":  # one axis is for replicas, the others are stages
        assert {*refused} == {True, "z"} | ({"y"} if name != "compose_overlapped" else set())
    elif puzzle.name in ("dualpipe", "weight_sync"):  # micro-batches, or weights, go along both
        assert {*refused} == {True, *puzzle.size["mesh"]}
    elif puzzle.name == "breadth_first":
        assert {*refused} == {True, "stage"}
    else:
        assert not refused


DATA_PARALLEL = [
    "ddp",
    "wsdp",
    "fsdp",
    "zero1",
    "zero2",
    "prefetch",
    "buckets",
    "lora",
    "replica_fsdp",
    "hierarchical",
    "hpz",
]


@pytest.mark.parametrize("name", DATA_PARALLEL)
def test_every_solution_whose_ranks_do_the_same_on_five_times_as_many(name: str) -> None:
    puzzle = puzzles()[name]
    program, cost, size = getattr(MODULES[puzzle.file], name), cost_named(puzzle.cost), dict(puzzle.size)
    size |= {"ranks": 5 * size["ranks"], "batches": 5 * size["batches"]}
    if mesh := dict(size.get("mesh", {})):
        mesh["replica"] *= 5
        size["mesh"] = mesh
    few = run(program, **size, cost=cost, represent=True)
    assert same(few, run(program, **size, cost=cost, represent=False))
    assert len(few.models) == (16 if mesh else 4) < size["ranks"]
    assert proved(few) and few.verify() == "Correct!"


@pytest.mark.parametrize("ranks", [5, 8, 24, 33])
@pytest.mark.parametrize("each", [1, 3])
def test_more_ranks_than_are_run(ranks: int, each: int) -> None:
    """Micro-batches dealt out one by one, and in blocks; shards in turn; a machine of boxes."""
    for program in (fsdp_accumulating, sharded(reduce_scatter, each), sharded(reduce_scatter, each, "up")):
        size: dict[str, Any] = {"ranks": ranks, "layers": 3, "batches": ranks * each, "node_size": 4}
        few = run(program, **size, represent=True)
        assert same(few, run(program, **size, represent=False))
        assert len(few.models) == 4
        assert proved(few) and few.verify() == "Correct!"


@pytest.mark.parametrize("represent", ["replica", "shard", True, ("shard", "replica")])
def test_axes_of_a_mesh(represent: Any) -> None:
    size: dict[str, Any] = {"ranks": 48, "layers": 3, "batches": 48, "mesh": {"replica": 6, "shard": 8}, "node_size": 8}
    few = run(hybrid, **size, represent=represent)
    assert same(few, run(hybrid, **size, represent=False))
    assert len(few.models) == {"replica": 32, "shard": 24}.get(str(represent), 16)


def test_messages_that_stay_in_their_place_of_a_folded_axis() -> None:
    size: dict[str, Any] = {"ranks": 18, "layers": 2, "batches": 27, "mesh": {"stage": 2, "replica": 9}}
    for boxes in (None, 9):
        few = run(pipelined, **size, node_size=boxes, represent="replica")
        assert same(few, run(pipelined, **size, node_size=boxes, represent=False))
        assert len(few.models) == 8


def test_links_that_are_not_the_same_everywhere_are_refused() -> None:
    size: dict[str, Any] = {"ranks": 18, "layers": 2, "batches": 27, "mesh": {"stage": 2, "replica": 9}}
    with pytest.raises(Unlike, match="leave a node in some places only"):
        run(pipelined, **size, node_size=12, represent="replica")
    with pytest.raises(Unlike, match="3 of shard: ranks 0, 1, 2 share a node, of shard: ranks 3, 4, 5 2"):
        run(hybrid, 12, 2, 12, mesh={"replica": 4, "shard": 3}, node_size=4, represent="replica")


# -- functions that are not the same on all ranks ---------------------------------------------


def more_where(more: Callable[[Model], bool]) -> Callable[[Model], Any]:
    """A program in which some ranks do something more before all do the same."""

    async def program(model: Model) -> Model:
        if more(model):
            model.activations["more"] = model.get_activation([(model.rank + 1) % model.RANKS])
        return await fsdp(model)

    return program


async def as_many_as_its_number(model: Model) -> Model:
    """What it does is counted by its rank."""
    for _ in range(model.rank):
        model.get_activation([0])
    return await fsdp(model)


async def in_a_ring(model: Model) -> Model:
    """Messages along the axis."""
    await model.pass_to((model.rank + 1) % model.RANKS, "hello")
    await model.receive()
    return await fsdp(model)


async def the_other_way_round(model: Model) -> Model:
    """Shards that are turned: the last rank has the first."""
    place = (model.rank + 1) % model.RANKS
    model.weights[0], model.opt_states[0] = model.load_weights(0, place, model.RANKS)
    await model.allgather(model.weights[0], 0)
    return model


async def one_asks_for_each(model: Model) -> Model:
    """It asks of every micro-batch whose it is."""
    [batch for batch in range(model.BATCHES) if batch % model.RANKS == model.rank]
    return await fsdp(model)


async def raises_on_one(model: Model) -> Model:
    """An error on one rank."""
    if model.rank in {23, 24, 1000}:
        raise ValueError
    return await fsdp(model)


async def reads_what_is_not_there(model: Model) -> Model:
    """A wrong key on one rank."""
    await fsdp(model)
    for rank in range(model.rank, model.rank + 1):
        if rank == 23:
            model.activations.pop(model.LAYERS)
    return model


async def ends_early_on_one(model: Model) -> Model:
    """One rank forgets the end."""
    await fsdp(model)
    for rank in range(model.rank, model.rank + 1):
        if rank == 23:
            return model
    model.set_final_weight(0, model.weights[0])
    return model


async def keeps_more_on_one(model: Model) -> Model:
    """One rank keeps in memory what the others throw away."""
    done = await fsdp(model)
    if hash(model.rank) != 23:
        done.opt_states.clear()
    done.set_final_weight(0, done.weights[0])
    return done


async def upper_half_does_more(model: Model) -> Model:
    """The first ranks are alike, and a later one does something more in the end."""
    await fsdp(model)
    for _ in range(model.rank // 20):
        model.activations["more"] = model.get_activation([(model.rank + 1) % model.RANKS])
    return model


async def other_micro_batches(model: Model) -> None:
    """The second rank has more micro-batches than the first one."""
    own = [model.rank] if model.rank != 1 else [1, 39]
    model.activations[0] = model.get_activation(own if model.rank < 39 else [38])


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (other_micro_batches, "rank 1 differs in its get_activation of layer 0, in batches"),
        (more_where(lambda model: model.rank == 23), "rank 23 differs"),
        (more_where(lambda model: model.rank in range(21, 30) and model.rank % 7 == 3), "rank 24 differs"),
        (as_many_as_its_number, "records"),
        (more_where(lambda model: not model.rank & 3), "records"),
        (in_a_ring, "pass messages"),
        (the_other_way_round, "no piece 40 of 40|piece 40 of 40|follows from"),
        (upper_half_does_more, "rank 20 differs in its end and get_activation"),
        (more_where(lambda model: [False, True][int(model.rank) == 23]), "rank 23 calls get_activation where rank 0"),
        (more_where(lambda model: f"{model.rank}" == "23"), "rank 23 calls get_activation where rank 0"),
        (raises_on_one, "on rank 23 only: the function raised ValueError"),
        (more_where(lambda model: type(model.rank) is int), "rank 0 calls get_activation where rank 0"),
        (reads_what_is_not_there, "on rank 23 only: nothing is stored in activations under 3"),
        (ends_early_on_one, "rank 23 ends where rank 0 calls set_final_weight"),
        (keeps_more_on_one, "rank 23 calls drop with something else than follows|rank 23 calls"),
    ],
)
def test_a_function_that_is_not_the_same_for_all_is_refused(program: Any, said: str) -> None:
    with pytest.raises(Unlike, match=said):
        run(program, 40, 3, 40, represent=True)


async def loads_both_ways(model: Model) -> Model:
    """From both ends, one piece of a weight for each rank: rank 13 comes to the same one twice."""
    model.activations["more"] = model.load_weights(0, 39 - model.rank, 80)[0]
    return await fsdp(model)


def test_pieces_that_meet_on_one_rank_only_are_not_taken_for_proved() -> None:
    assert not proved(run(loads_both_ways, 40, 3, 40, represent=True))
    with pytest.raises(PuzzleError, match=r"rank 13, load_weights.*has taken that piece"):
        run(loads_both_ways, 40, 3, 40)


async def with_questions(model: Model) -> Model:
    """Questions whose answers change nothing."""
    if model.rank == 17 or model.rank >= 30:
        model.LAYERS  # noqa: B018
    half = "upper" if model.rank * 2 >= model.RANKS else "lower"
    assert half in ("upper", "lower")
    return await fsdp(model)


async def another_order_at_the_end(model: Model) -> Model:
    """The last one begins at the other end."""
    for layer in [*range(model.LAYERS)] if model.rank < model.RANKS - 1 else [*reversed(range(model.LAYERS))]:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    return model


def test_one_of_a_thousand_is_found() -> None:
    with pytest.raises(Unlike, match="rank 1023 "):
        run(another_order_at_the_end, 1024, 2, 1024, represent=True)


def test_more_questions_than_ranks_that_can_be_run() -> None:
    few = run(one_asks_for_each, 40, 3, 40, represent=True)
    assert same(few, run(one_asks_for_each, 40, 3, 40, represent=False)) and proved(few)


def test_questions_that_change_nothing_are_allowed() -> None:
    few = run(with_questions, 40, 3, 40, represent=True)
    assert same(few, run(with_questions, 40, 3, 40, represent=False)) and proved(few)
    assert len(few.models) > 4  # those with other answers were run, too


def test_a_rank_computes_with_its_number_as_with_any() -> None:
    seen = []

    async def program(model: Model) -> Model:
        rank = model.rank
        sums = rank + 1, 1 - rank, rank * 3 % 5, 7 // (rank + 1), rank / 2, -rank
        seen.append((*sums, f"{rank:03d}", [5, 6, 7][rank % 3]))
        assert isinstance(rank, int)
        assert {rank: 1}[int(rank)] == 1
        assert sorted([3, rank, 1]) == sorted([3, int(rank), 1])
        return await fsdp(model)

    run(program, 40, 1, 40, represent=True)
    assert seen[0] == (1, 1, 0, 7, 0.0, 0, "000", 5)
    assert seen[1] == (2, 0, 3, 3, 0.5, -1, "001", 6)


def test_a_host_for_each_device_is_foretold_and_one_for_a_box_needs_all_its_devices() -> None:
    lone: dict[str, Any] = {"ranks": 9, "layers": 3, "batches": 9, "hosts": 9}
    program, cost = MODULES["p22_offload"].offload, cost_named("slow_host")
    assert puzzles()["offload"].size["hosts"] == puzzles()["offload"].size["ranks"]
    few = run(zero_offload, **lone, cost=cost, represent=True)
    assert same(few, run(zero_offload, **lone, cost=cost, represent=False)) and len(few.models) == 8
    with pytest.raises(Unlike, match="have one host, and only some of them would be run"):
        run(program, 8, 3, 8, node_size=8, hosts=1, cost=cost, represent=True)


# -- a difference is found, and nothing wrong is proved -----------------------------------------


def never_better_than_the_whole(program: Any, size: dict[str, Any]) -> str:
    """Run a program with few ranks and with all. Return what came of the first, which is as the second, or refused."""
    done = []
    for represent in (True, False):
        try:
            done.append(run(program, **size, represent=represent))
        except PuzzleError as error:
            done.append(error.run)
            if represent:
                return "refused"
    few, whole = done
    assert not whole.failed
    assert same(few, whole)
    if not proved(few):
        return "timed"
    assert few.fault == whole.fault
    return "right" if not few.fault else "wrong"


def test_one_rank_that_differs_is_found_however_it_knows_its_number() -> None:
    size, found = {"ranks": 9, "layers": 2, "batches": 18}, Counter[str]()
    for seed in some(range(2000)):
        program = one_rank_differs(seed, 9)
        try:
            found[never_better_than_the_whole(program.function(), size)] += 1
        except AssertionError as error:
            raise AssertionError(program.source) from error
    assert min(found["refused"], found["right"]) > 10 and not found["wrong"]


def test_a_call_that_is_gathered_alone_is_followed() -> None:
    (alone,) = [one for one in HONEST if (one.puzzle, one.name) == ("wsdp", "gather of one call")]
    names = dict[str, Any]()
    exec(compile(alone.source, "alone.py", "exec"), names)
    size = {"ranks": 8, "layers": 2, "batches": 8}
    assert never_better_than_the_whole(names["wsdp"], size) == "right"


def test_what_is_proved_of_the_corpus_is_so_on_the_whole_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = Counter[str]()
    corpus = [one for one in (*MISTAKES, *HONEST) if one.puzzle in DATA_PARALLEL and "experiment" not in one.name]
    for one in some(corpus):
        puzzle, names = puzzles()[one.puzzle], dict[str, Any]()
        exec(compile(one.source, f"{one.puzzle}.py", "exec"), names)
        size: dict[str, Any] = {**puzzle.size, "cost": cost_named(puzzle.cost)}
        size |= {"ranks": 2 * size["ranks"], "batches": 2 * size["batches"], "layers": min(size["layers"], 4)}
        if mesh := dict(size.get("mesh", {})):
            mesh["replica"] *= 2
            size["mesh"] = mesh
        try:
            found[never_better_than_the_whole(names[one.puzzle], size)] += 1
        except AssertionError as error:
            raise AssertionError(f"{one.puzzle}: {one.name}") from error
    assert min(found["refused"], found["right"]) > 2


# -- what is said of it ---------------------------------------------------------------------


def test_a_run_says_that_it_is_proved() -> None:
    done, whole = run(fsdp, 64, 2, 64, represent=True), run(fsdp, 64, 2, 64, represent=False)
    said = "proved for all 64 ranks, of which 4 were run"
    for text in (repr(done), str(done), draw(done).svg(), str(perfetto(done))):
        assert said in text
    assert str(done).replace(f" ({said})", "") == str(whole)
    done.check()
    Model.check(done.models)
    assert "all 4 ranks were run" in repr(run(fsdp, 4, 2, 4, represent=True))


def test_it_says_everywhere_that_nothing_is_proved() -> None:
    done = run(MODULES["p17_tensor_parallel"].tensor_parallel, 64, 1, 1, represent=True)
    assert same(done, run(MODULES["p17_tensor_parallel"].tensor_parallel, 64, 1, 1, represent=False))
    said = "timed, not proved: 4 ranks were run for 64"
    assert said in repr(done)
    assert said in str(done)
    assert said in draw(done).svg()
    assert said in str(perfetto(done))
    with pytest.raises(PuzzleError, match="the final weights are not known"):
        done.check()
    with pytest.raises(PuzzleError, match="the final weights are not known"):
        Model.check(done.models)
    with pytest.raises(TypeError, match="represent"):  # a verdict is about all ranks
        grade(MODULES["p04_fsdp"].fsdp, represent=True)  # type: ignore[call-arg]


def test_what_is_said_in_a_line_needs_no_log_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(fsdp, 64, 2, 64, represent=True)
    monkeypatch.setattr(Derived, "events", lambda self: pytest.fail("a log was made"))
    assert done.attempted and not done.fault and done.verify() == "Correct!" and "64" in repr(done)


def test_a_puzzle_s_target_is_not_met_by_it() -> None:
    program, size = MODULES["p04_fsdp"].fsdp, puzzles()["fsdp"].size
    assert "target" in draw(run(program, **size)).svg()
    assert "target" not in draw(run(program, **size, represent=True)).svg()


def test_on_a_cluster() -> None:
    model = Transformer(layers=4, hidden=1024, heads=16, sequence=512, vocabulary=1000)
    size: Size = {"ranks": 32, "layers": 4, "batches": 32}
    cost = A100_MEGATRON.cost(model)
    few, whole = [run(fsdp, **size, cost=cost, represent=one) for one in (True, False)]
    assert same(few, whole)
    assert (few.seconds, few.bytes, few.fits, few.mfu) == (whole.seconds, whole.bytes, whole.fits, whole.mfu)
    assert report(few).replace(f" ({few.note})", "") == report(whole)
    assert few.note in report(few)


class Dearer(Cost):
    """A price that only one rank pays."""

    def compute(self, kind: str, *labels: Any) -> Any:
        """Return what an operation takes: more for one micro-batch."""
        return super().compute(kind, *labels) * (2 if 7 in labels[0].batches else 1)


def test_prices_of_one_s_own_are_only_timed() -> None:
    assert proved(run(fsdp, 24, 2, 24, represent=True, cost=Cost(forward=2)))
    assert not proved(run(fsdp, 24, 2, 24, represent=True, cost=Dearer()))


@pytest.mark.parametrize("represent", ["replica", ["ranks", "other"], 3, [], "", 0.5])
def test_what_is_no_axis_is_refused(represent: Any) -> None:
    with pytest.raises(PuzzleError, match="represent names no axis"):
        run(fsdp, 8, 2, 8, represent=represent)


def test_real_tensors_are_of_every_rank() -> None:
    with pytest.raises(PuzzleError, match="real tensors are computed by every rank"):
        run(fsdp, 8, 2, 8, represent=True, engine="local")


def test_an_error_of_the_function_is_told_as_always() -> None:
    async def wrong(model: Model) -> Model:
        model.forward(0, model.get_activation([model.rank]), None)
        return model

    with pytest.raises(PuzzleError, match="weight must be a Weight") as told:
        run(wrong, 40, 2, 40, represent=True)
    draw(told.value.run)


# -- what is made of it -------------------------------------------------------------------------

PICTURED: dict[str, dict[str, Any]] = {
    "fsdp": {"ranks": 24, "layers": 3, "batches": 24},
    "prefetch": {"ranks": 64, "layers": 6, "batches": 64},
    "hpz": {"ranks": 48, "layers": 3, "batches": 48, "mesh": {"replica": 6, "shard": 8}, "node_size": 8},
}


def pictured() -> Iterator[Any]:
    """Programs with sizes, and the axis along which ranks stand for others."""
    for name, size in PICTURED.items():
        yield pytest.param(getattr(MODULES[puzzles()[name].file], name), size, True, id=name)
    for axis in ("replica", "shard"):
        yield pytest.param(hybrid, PICTURED["hpz"], axis, id=f"hybrid-{axis}")
    stages = {"ranks": 40, "layers": 4, "batches": 40, "mesh": {"replica": 10, "stage": 4}}
    yield pytest.param(pipelined, stages, "replica", id="stages")


@pytest.mark.parametrize(("program", "size", "axis"), [*pictured()])
def test_pictures_and_reports_are_those_of_all_ranks_and_need_no_other_log(
    program: Callable[[Model], Any], size: dict[str, Any], axis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = [Cost(), A100_MEGATRON.cost(Transformer(size["layers"], 1024, 16, 512, 1000))]
    for cost in costs:
        few, whole = [run(program, **size, cost=cost, represent=one) for one in (axis, False)]
        note, few.note = few.note, ""
        assert len(few.models) < whole.ranks and note
        monkeypatch.setattr(few, "verify", whole.verify)
        with monkeypatch.context() as patched:
            patched.setattr(Derived, "events", lambda self: pytest.fail("a log was made"))
            for options in ({}, {"links": "all"}, {"width": 2000.0}):
                assert draw(few, **options).svg() == draw(whole, **options).svg()
            assert compare(few, few).svg() == compare(whole, whole).svg()
            assert compare(few, whole).svg() == compare(whole, whole).svg()
            if cost is costs[1]:
                assert report(few) == report(whole)
            assert idle_share(*few.typical, few.time) == pytest.approx(idle_share(whole.events, whole.ranks))
            written = json.loads(perfetto(few))["traceEvents"]
        events = json.loads(perfetto(whole))["traceEvents"]
        processes = {one["pid"] for one in written}
        names = [one["args"]["name"] for one in written if one["name"] == "process_name"]
        shown = [one for one in written if one["ph"] != "M"]
        assert shown == [one for one in events if one["ph"] != "M" and one["pid"] in processes]
        assert len(processes) < whole.ranks and any(name.startswith("ranks 0, ") for name in names)
    assert draw(few, chain=True).svg() == draw(whole, chain=True).svg()


# -- slices of a sequence ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zigzag", [False, True])
def test_copies_of_ranks_with_slices_stand_for_each_other(zigzag: bool) -> None:
    """Along the axis of data each rank has the slices of all others, also where it joins two of them by itself."""
    mesh = {"data": 8, "context": 4}
    size: dict[str, Any] = {"ranks": 32, "layers": 2, "batches": 8, "mesh": mesh}
    few = run(slices.gathering(zigzag, axis="context"), **size, represent="data")
    whole = run(slices.gathering(zigzag, axis="context"), **size, represent=False)
    assert same(few, whole) and proved(few) and few.verify() == whole.verify() == "Correct!"


@pytest.mark.parametrize("mesh", [{"context": 4}, {"context": 8}, {"data": 8, "context": 4}], ids=str)
@pytest.mark.parametrize("zigzag", [False, True])
def test_the_axis_of_slices_is_refused_with_the_reason(zigzag: bool, mesh: dict[str, int]) -> None:
    """It once said that two memory samples differ, which did not."""
    ranks, data = mesh["context"] * mesh.get("data", 1), mesh.get("data", 1)
    with pytest.raises(Unlike, match=r"slice .* of [48]|total=16") as told:
        program = slices.gathering(zigzag, axis="context")
        run(program, ranks=ranks, layers=2, batches=data, mesh=mesh, represent="context")
    assert "attention is causal, so what a rank computes" in told.value.problem
    assert "held" not in told.value.problem


def test_heads_are_refused_with_the_reason() -> None:
    with pytest.raises(Unlike, match="what the heads of one rank carry is not derived here"):
        run(slices.heads(), ranks=8, layers=2, batches=1, represent=True)


async def joining(model: Model) -> Model:
    """Each rank joins a shard that it has loaded with the next one: another pair on each rank."""
    for shard in (model.rank, (model.rank + 1) % model.RANKS):
        model.weights[shard], _ = model.load_weights(0, shard, model.RANKS)
    model.weights["both"] = model.weights[model.rank].combine(model.weights[(model.rank + 1) % model.RANKS])
    return model


def test_ranks_that_join_other_pieces_than_the_first_are_not_proved() -> None:
    done = run(joining, ranks=8, layers=1, batches=8, represent=True)
    assert isinstance(done, Timed) and not done.proved
