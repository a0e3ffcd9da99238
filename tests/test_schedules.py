"""Schedules as rows of actions: those of PyTorch run here, and rows that cannot be run say where."""

import re
from collections import Counter
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drawing import draw, perfetto
from lib import Cost, Model, PuzzleError, run, schedule
from lib.course.specs import cost_named, puzzles
from lib.schedules.task import Task
from solutions.build.pages import pipelines
from solutions.build.pictures import race
from solutions.build.sources.files import ROOT
from solutions.p00_basic import basic
from solutions.p02_ddp import ddp
from solutions.p05_pipeline import pipeline
from solutions.p07_pipeline_fsdp import pipeline_fsdp
from solutions.p11_checkpointing import across_layers
from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p14_interleaved import interleaved
from solutions.p15_breadth_first import breadth_first
from solutions.p16_zero_bubble import zero_bubble
from solutions.p17_tensor_parallel import tensor_parallel
from solutions.p26_ring_attention import ring_attention
from solutions.p27_expert_parallel import expert_parallel
from solutions.p29_zbv import as_pytorch_does, zbv
from solutions.p30_dualpipe import cut_in_half, dualpipe, in_halves
from tests.marks import compares_with_torch, needs_torch
from tests.torch_truth.schedules import LOOPED, QUICK, SINGLE, SIZES, done, possible, single, table, torch_rows

TWO = "0F0, 0F1, 0B0, 0B1\n1F0, 1B0, 1F1, 1B1"
PAIRS = cost_named("pairs")
BLOCKING = """
[0UNSHARD, 2UNSHARD, 0F0, 0SEND_F0, 2RECV_F0, 0F1, 0SEND_F1, 2RECV_F1, 2F0, 2SEND_F0, 2F1, 2SEND_F1, 2RECV_B0, 2B0, 2SEND_B0, 2RECV_B1, 2B1, 2SEND_B1, 2REDUCE_GRAD, 2RESHARD, 0RECV_B0, 0B0, 0RECV_B1, 0B1, 0REDUCE_GRAD, 0RESHARD]
[1UNSHARD, 3UNSHARD, 1RECV_F0, 1F0, 1SEND_F0, 1RECV_F1, 1F1, 1SEND_F1, 3RECV_F0, 3F0, 3RECV_F1, 3B0, 3SEND_B0, 1RECV_B0, 3F1, 3B1, 3SEND_B1, 1RECV_B1, 3REDUCE_GRAD, 3RESHARD, 1B0, 1SEND_B0, 1B1, 1SEND_B1, 1REDUCE_GRAD, 1RESHARD]
"""  # noqa: E501 - the rows that PyTorch printed, as they stand in https://github.com/pytorch/pytorch/issues/172668
STEPS = """
         Rank 0 Rank 1
Step 0:  0F0
Step 1:  0F1    1F0
Step 2:         1B0
Step 3:  0B0    1F1
Step 4:         1B1
Step 5:  0B1
"""


@pytest.mark.parametrize(("receives", "ticks"), [("at once", 26), ("at use", 17)])
def test_receives_that_block_cost_half_of_the_step(receives: str, ticks: float) -> None:
    """The rows of pytorch 172668: with receives that block, a rank waits for what it does not need yet."""
    plan = schedule(BLOCKING, receives=receives)
    assert run(plan, **plan.sizes, cost=Cost(send=0.5, receive=0.5)).time == ticks


def test_three_forms_are_one_schedule(tmp_path: Path) -> None:
    file = tmp_path / "rows of mine.csv"
    file.write_text("0F0,,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    listed = "[0F0, None, 0F1, 0B0, 0B1]\n[1F0, 1B0, 1F1, 1B1]"
    plans = [schedule(source) for source in (TWO, STEPS, listed, file, str(file))]
    assert len({str(plan.rows) for plan in plans}) == 1
    assert [plan.__name__ for plan in plans] == ["schedule"] * 3 + ["rows of mine"] * 2
    rows: list[list[Any]] = [["0F0", None, "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    for lists in (rows, tuple(map(tuple, rows)), {1: rows[1], 0: rows[0]}):
        assert schedule(lists).rows == plans[0].rows, "the lists themselves, as PyTorch's functions return them"
    assert str(plans[0]) == "Schedule(schedule: 2 ranks, 2 stages, 2 micro-batches)"


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + TWO,
        TWO.replace("\n", ",\r\n") + ",\r\n",
        '"0F0","0F1","0B0","0B1"\n"1F0","1B0","1F1","1B1"',
        "{1: [1F0, 1B0, 1F1, 1B1], 0: [0F0, None, 0F1, 0B0, 0B1]}",
        "[['0F0', '0F1', '0B0', '0B1'], ['1F0', '1B0', '1F1', '1B1']]",
        "# two ranks\nrank 0: 0F0, 0F1, 0B0, 0B1\n# the last one\nrank 1: 1F0, 1B0, 1F1, 1B1",
    ],
)
def test_what_programs_leave_in_a_text_does_no_harm(text: str, tmp_path: Path) -> None:
    """The mark at the beginning that Excel writes, other ends of lines, quotes, and lists as Python prints them."""
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8", newline="")
    assert schedule(text).rows == schedule(tmp_path / "rows.csv").rows == schedule(TWO).rows


def test_a_single_long_row_is_a_text() -> None:
    """And not the path of a file, of which no system has one with so long a name."""
    rows = ",".join(f"0{kind}{mb}" for kind in "FB" for mb in range(200))
    assert schedule(rows).micro_batches == 200


def test_stages_of_several_layers_and_on_one_rank() -> None:
    """A stage has a share of the layers, and between stages of one rank nothing is sent."""
    folded = "0F0, 3F0, 3B0, 0B0\n1F0, 2F0, 2B0, 1B0"
    plan = schedule(folded)
    done = run(plan, ranks=2, layers=8, batches=1)
    assert [sum(cell.count("SEND") for cell in row) for row in plan.rows] == [2, 2]
    assert done.verify().startswith("Correct")
    assert "<svg" in draw(done)._repr_html_()


def test_the_halves_keep_what_they_need() -> None:
    whole, halves = (schedule(rows) for rows in ("0F0, 0B0\n1F0, 1B0", "0F0, 0I0, 0W0\n1F0, 1I0, 1W0"))
    runs = [run(plan, **plan.sizes, cost=Cost(send=0, receive=0)) for plan in (whole, halves)]
    assert runs[1].time == runs[0].time - 0.5, "the weight's half of stage 1 is done while stage 0 has its gradient"


PAIR = "0F0, (0F1;0B0)OVERLAP_F_B, 0B1"


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(("forward", "backward"), [(1, 2), (3, 2)])
@pytest.mark.parametrize("saved", [0, 0.3, 1])
def test_an_overlapped_pair_takes_from_the_sum_to_the_longer_one(
    saved: float, forward: int, backward: int, layers: int
) -> None:
    cost = Cost(overlapped=saved, forward=forward, backward=backward, update=0)
    done = run(schedule(PAIR), layers=layers, batches=2, cost=cost)
    assert done.time == pytest.approx(layers * (2 * (forward + backward) - saved * min(forward, backward)))
    assert done.verify().startswith("Correct")
    assert done.schedule().strip() == PAIR.replace(", ", ",")


def test_the_price_of_what_overlaps_is_said_beside_the_figures() -> None:
    done, apart = (
        run(schedule(rows), layers=1, batches=2, cost=Cost(overlapped=0.5)) for rows in (PAIR, "0F0, 0F1, 0B0, 0B1")
    )
    said = "saves 50% of the shorter one: Cost(overlapped=0.5)"
    assert said in repr(done)
    assert said in draw(done)._repr_html_()
    assert "overlap" not in repr(apart)
    assert perfetto(done).count('"overlapped":true') == 1


@pytest.mark.parametrize("saved", [-0.1, 1.5, float("nan"), "half"])
def test_no_more_is_saved_than_the_shorter_one(saved: Any) -> None:
    with pytest.raises(PuzzleError, match="a number from 0 to 1"):
        Cost(overlapped=saved)


def by_hand(model: Model) -> Any:
    """A rank with two forwards behind it, and what a backward of the first reads."""
    model.weights[0], _ = model.load_weights(0)
    for mb in range(2):
        model.activations[0, mb] = model.get_activation([mb])
        model.activations[1, mb] = model.forward(0, model.activations[0, mb], model.weights[0])
        if mb == 0:
            model.grad_activations[1] = model.loss(model.activations[1, 0])
    return lambda: model.backward(
        0, model.activations[0, 0], model.grad_activations[1], model.weights[0], overlapped=True
    )


def test_a_backward_overlaps_with_forwards_right_before_it_only() -> None:
    """Not with those before something that was awaited, nor with its own; what is left of a forward, with another."""

    async def after_a_message(model: Model) -> None:
        if model.rank:
            await model.pass_to(0, "now")
            return
        backward = by_hand(model)
        await model.receive(1)
        backward()

    def its_own(model: Model) -> None:
        backward = by_hand(model)
        model.activations[1] = model.forward(0, model.activations[0, 0], model.weights[0])
        backward()

    for program in (after_a_message, its_own):
        with pytest.raises(PuzzleError, match="there is no forward of another micro-batch just before it"):
            run(program, ranks=2, layers=1, batches=2, cost=Cost(overlapped=0.5))

    def twice(model: Model) -> None:
        backward = by_hand(model)
        for at in range(3):
            model.grad_weights[at], _ = backward()

    done = run(twice, layers=1, batches=2, cost=Cost(overlapped=1, forward=3, backward=2))
    assert done.time == 6 + 0 + 1 + 2


def test_on_shards_a_pair_overlaps_as_well() -> None:
    plan = schedule("0F0, 0F1, 0B0, 0B1\n1F0, 1F1_1B0, 1B1")
    machine = {"ranks": 4, "layers": 2, "batches": 4, "mesh": {"stage": 2, "shard": 2}}
    times = [run(plan, **machine, cost=Cost(overlapped=saved)).time for saved in (0, 1)]
    assert times[0] - times[1] == 1
    assert run(plan, **machine, cost=Cost(overlapped=1), represent="shard").time == times[1]


REFUSED = {
    "0F0, 0UNSHARD0, 0B0": "column 2",
    "0F0, (0F1;0SEND_F0)OVERLAP_F_B, 0B0": "column 2",
    "0F0, 0W0, 0I0": "0I0 does not come before it",
    "0F0, 0B0, 0I0, 0W0": "beside one of its halves",
    "0B0, 0F0": "0F0 does not come before it",
    "0UNSHARD, 0RESHARD": "no work in them",
    "0F0, 0B0\n0F1, 0B1": "stage 0 is on rank 0 already: 0F0 in column 1",
    "1F0, 0F0, 1B0, 0B0": "0F0 does not come before it",
    "0F0, 0B0, 0F1, 0B1\n1F1, 1B1, 1F0, 1B0": "these rows come to no end: rank 0 waits in column 2, 0B0, for 1SEND_B0",
    "0F0, 0RECV_B0, 0B0\n1RECV_F0, 1F0, 1B0, 1SEND_B0": "0SEND_F0 is missing",
    "0SEND_F0, 0F0, 0RECV_B0, 0B0\n1RECV_F0, 1F0, 1B0, 1SEND_B0": "what it sends is not computed before it",
    "0F0, 0SEND_F0, 0SEND_F0, 0RECV_B0, 0B0\n1RECV_F0, 1F0, 1B0, 1SEND_B0": "this stands in the row twice",
    "0F0, 0SEND_B0, 0SEND_F0, 0RECV_B0, 0B0\n1RECV_F0, 1F0, 1B0, 1SEND_B0": "there is no stage -1",
    "0F0, 0SEND_F0, 0F1, 0SEND_F1, 0RECV_B0, 0B0, 0RECV_B1, 0B1\n"
    "1RECV_F1, 1RECV_F0, 1F0, 1F1, 1B0, 1SEND_B0, 1B1, 1SEND_B1": "what comes here is another message, 0SEND_F0",
}


WRITES = [
    ("0F0, 0B0, 0Q1", "the row of rank 0, column 3", "expected: a stage, what is done and a micro-batch"),
    ("0F0, 0B0\n1F0, 0F1", "the row of rank 1, column 2, 0F1", "all actions of a stage stand in the row of one rank"),
    ("0F0, 0SEND_F0, 0RECV_B0, 0B0\n1F0, 1B0, 1SEND_B0", "the row of rank 1, column 1, 1F0", "expected: 1RECV_F0, 1F0"),
    ("0F0, 0F1, 0B0, 0B1\n1F0, 1B0, 1F2, 1B2", "the row of rank 1, column 3, 1F2", "numbered from 0 without a gap"),
    ("0F0, 0F1, 0B0, 0B1\n1F0, 1B0", "the row of rank 1:", "all of {0, 1}"),
    ("0F0, 0F1, 0B0", "the row of rank 0:", "once forward and once backward"),
    ("0F0, 0F0, 0B0", "the row of rank 0, column 2:", "once forward and once backward"),
    ("0F0, (0F1;0B1)OVERLAP_F_B, 0B0", "column 2, (0F1;0B1)OVERLAP_F_B", "0F1 does not come before it"),
    ("0F0, 0b0", "the row of rank 0, column 2: '0b0' is no action", "expected: a stage, what is done"),
    ("0F0, 0B0, 1W0\n1F0, 1I0", "the row of rank 0, column 3, 1W0: stage 1 is on rank 1 already: 1F0", "of one rank"),
    ("0F0, 0F1, 0I0, 0I1, 0W0", "the row of rank 0: 0W1 is missing", "once forward and once backward"),
    ("0B0, 0F1, 0B1", "the row of rank 0: 0F0 is missing", "once forward and once backward"),
    ("0F0, 0SEND_F0, 0RECV_B0, 0B0\n1RECV_F0, 1F0, 1B0", "the row of rank 1", "1B0, 1SEND_B0: after column 3"),
    ("0F0, 0B0, 0REDUCE_GRAD, 0REDUCE_GRAD", "rank 0, column 4, 0REDUCE_GRAD", "one of them"),
    ("0F0, 0F1, 0B0, 0REDUCE_GRAD, 0B1", "column 5, 0B1: it makes a gradient", "0B1, 0REDUCE_GRAD: a sum when all"),
    ("0F0, 0B0\n1UNSHARD", "the row of rank 1: stage 1 works on the micro-batches {}", "numbered from 0"),
    ("0F0, 0B0_0F1, 0B1", "column 2: '0B0_0F1' is no action", "(0F1;1B0)OVERLAP_F_B"),
    ("0F0, 0B0, 999999999F0", "column 3, 999999999F0: stage {1-3} does not occur", "stages numbered from 0"),
]


@pytest.mark.parametrize(("rows", "where", "write"), WRITES, ids=range(len(WRITES)))
def test_what_is_refused_says_the_row_the_column_and_what_to_write(rows: str, where: str, write: str) -> None:
    with pytest.raises(PuzzleError) as refused:
        schedule(rows + "\n")
    assert where in str(refused.value)
    assert write in str(refused.value)


def test_a_text_without_anything_has_no_action() -> None:
    for nothing in ("", "\n", [], [[], []]):
        with pytest.raises(PuzzleError, match="there is no action in this schedule"):
            schedule(nothing)


@pytest.mark.parametrize("rows", REFUSED, ids=range(len(REFUSED)))
def test_rows_that_cannot_be_run_say_where(rows: str) -> None:
    with pytest.raises(PuzzleError) as refused:
        schedule(rows + "\n")
    assert REFUSED[rows] in str(refused.value)


def test_a_receive_that_blocks_for_ever_is_found() -> None:
    """Each rank first receives what the other sends only later: fine at use, and a deadlock at once."""
    rows = """0F0, 0SEND_F0, 0RECV_B0, 0F1, 0SEND_F1, 0B0, 0RECV_B1, 0B1
              1RECV_F0, 1RECV_F1, 1F0, 1B0, 1SEND_B0, 1F1, 1B1, 1SEND_B1"""
    assert run(schedule(rows), ranks=2, layers=2, batches=2).verify().startswith("Correct")
    with pytest.raises(PuzzleError, match=r"rank 0 waits in column 3, 0RECV_B0, for 1SEND_B0 of rank 1; rank 1 waits"):
        schedule(rows, receives="at once")


GATHERED = """0UNSHARD, 0F0, 0F1, 0RESHARD, 0UNSHARD, 0B0, 0B1, 0REDUCE_GRAD, 0RESHARD
              1UNSHARD, 1F0, 1B0, 1F1, 1B1, 1REDUCE_GRAD, 1RESHARD"""


AGAIN = GATHERED.replace("0RESHARD, 0UNSHARD, 0B0", "0RESHARD, 0B0")


@pytest.mark.parametrize(("rows", "gathers"), [(TWO, 4), (GATHERED, 6), (AGAIN, 6)])
def test_on_a_mesh_the_weights_of_a_stage_are_shards(rows: str, gathers: int) -> None:
    """Four layers: two on each of two stages. What no row gathers is gathered at its use."""
    machine = {"ranks": 4, "layers": 4, "batches": 4, "mesh": {"stage": 2, "shard": 2}}
    done = run(schedule(rows), **machine)
    assert done.verify().startswith("Correct")
    kinds = Counter(event.kind for event in done.events if event.rank in (0, 2))
    assert (kinds["allgather"], kinds["scatterreduce"]) == (gathers, 4)


def test_a_mesh_of_other_axes_is_refused() -> None:
    with pytest.raises(PuzzleError, match="a mesh of stages and shards"):
        run(schedule(TWO), ranks=4, layers=2, batches=2, mesh={"stage": 2, "replica": 2})
    with pytest.raises(PuzzleError, match="of which there are 2 times as many"):
        run(schedule(TWO), ranks=4, layers=2, batches=2, mesh={"stage": 2, "shard": 2})


@pytest.mark.parametrize("source", [None, 7, ["0F0"], "missing.csv", "0\x00", Path(__file__).parent])
def test_what_is_no_text_and_no_file_is_refused(source: object) -> None:
    with pytest.raises(PuzzleError, match=r"a schedule is a text|cannot be read"):
        schedule(source)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.bin"
    file.write_bytes(bytes(range(128, 256)))
    with pytest.raises(PuzzleError, match="no text in UTF-8"):
        schedule(file)


@pytest.mark.parametrize("sizes", [{"ranks": 3}, {"layers": 3}, {"batches": 1}])
def test_a_run_at_another_size_says_which_fits(sizes: dict[str, int]) -> None:
    plan = schedule(TWO)
    with pytest.raises(PuzzleError, match=r"for 2 ranks and 2 micro-batches, and the layers are divided") as refused:
        run(plan, **{**plan.sizes, **sizes})
    assert "ranks=2" in refused.value.expected


# -- written -----------------------------------------------------------------------------------------------------------


PIPELINES = [
    (one_f_one_b, {"ranks": 4, "layers": 8, "batches": 8}),
    (interleaved, {"ranks": 2, "layers": 8, "batches": 4}),
    (zero_bubble, {"ranks": 4, "layers": 4, "batches": 8}),
    (zbv, {"ranks": 2, "layers": 8, "batches": 4}),
]


@pytest.mark.parametrize(("solution", "sizes"), PIPELINES, ids=[fn.__name__ for fn, _ in PIPELINES])
def test_a_pipeline_is_written_and_read_again(solution: Any, sizes: dict[str, int]) -> None:
    text = run(solution, **sizes).schedule()
    plan = schedule(text)
    done = run(plan, **sizes)
    assert done.verify().startswith("Correct")
    assert done.schedule() == text
    stages = {"interleaved": 8, "zbv": 4}.get(solution.__name__, sizes["ranks"])
    assert plan.stages == stages, "stages are as large as they can be"


def test_pairs_whose_layers_alternate_are_written_stage_by_stage() -> None:
    """As the pairs of thick stages, which take as long, and are as many as where a stage has one layer."""
    cost, mesh = Cost(backward=2, send=0, receive=0, overlapped=1), {"half": 1, "place": 2}
    thin, thick = (run(cut_in_half, ranks=2, layers=layers, batches=6, mesh=mesh, cost=cost) for layers in (4, 8))
    assert thick.schedule() == thin.schedule()
    assert thick.schedule().count("OVERLAP") == 2 * (2 * (6 - 2)) - 1
    again = run(schedule(thick.schedule()), ranks=2, layers=8, batches=6, cost=cost)
    assert (again.time, again.verify()[:8], again.schedule()) == (thick.time, "Correct!", thick.schedule())


WHOLE = "0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3B0\n"


@pytest.mark.parametrize(
    ("solution", "sizes", "rows"),
    [
        (basic, {"ranks": 1, "layers": 2, "batches": 2}, "0F0,0B0\n"),
        (pipeline, {"ranks": 4, "layers": 8, "batches": 4}, WHOLE),
        (pipeline_fsdp, {"ranks": 16, "layers": 4, "batches": 4}, WHOLE),
        (
            breadth_first,
            {"ranks": 4, "layers": 4, "batches": 4, "mesh": {"stage": 2, "shard": 2}},
            "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1\n",
        ),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_micro_batches_that_go_together_are_one_and_copies_of_a_pipeline_have_one_text(
    solution: Any, sizes: dict[str, Any], rows: str
) -> None:
    assert run(solution, **sizes).schedule() == rows
    plan = schedule(rows)
    assert run(plan, **plan.sizes).verify() == "Correct!"


BOTH_ENDS = [(2, 2, 4), (4, 8, 8), (6, 12, 14)]
"""Ranks, layers and micro-batches of DualPipe."""


@pytest.mark.parametrize("program", [dualpipe, in_halves])
@pytest.mark.parametrize(("ranks", "layers", "batches"), BOTH_ENDS)
def test_both_directions_of_dualpipe_are_written_as_one(program: Any, ranks: int, layers: int, batches: int) -> None:
    """What a micro-batch begins in one half it ends in the other, as another one does the other way round: the rows are
    those of a half, which has each layer once, and half of the micro-batches."""
    size: dict[str, Any] = {"ranks": ranks, "layers": layers, "batches": batches}
    done = run(program, **size, mesh={"half": 2, "place": ranks // 2}, cost=PAIRS)
    plan = schedule(done.schedule())
    assert (plan.ranks, plan.stages, plan.micro_batches) == (ranks // 2, ranks, batches // 2)
    again = run(plan, ranks=ranks // 2, layers=layers, batches=batches // 2, cost=PAIRS)
    assert again.verify() == "Correct!"
    assert ranks == 2 or again.schedule() == done.schedule()  # on one rank all layers can be one stage
    summed = Fraction(3, 10) * Fraction(2 * layers, ranks)  # less, where sums wait for nobody
    assert again.time <= done.time <= again.time + summed, "beside sums, it takes as long"
    if program is in_halves:
        half = {"ranks": ranks // 2, "layers": layers, "batches": batches // 2}
        cut = run(cut_in_half, **half, mesh={"half": 1, "place": ranks // 2}, cost=PAIRS)
        assert cut.schedule() == done.schedule()


def test_a_forward_that_is_done_again_is_not_written() -> None:
    """PyTorch's checkpoint does it inside the backward. Rows with both could not be loaded."""
    done = run(partial(across_layers, every=2), layers=4, batches=1)
    assert sum(event.kind == "forward" for event in done.events) > 4
    assert done.schedule() == "0F0,0B0\n"


@pytest.mark.parametrize(
    ("program", "sizes", "says"),
    [
        (ring_attention, {"ranks": 2, "layers": 2, "batches": 1}, "layer 0 is computed in steps, a slice of the"),
        (
            expert_parallel,
            {"ranks": 2, "layers": 2, "batches": 2, "experts": 8, "cost": cost_named("experts")},
            "layer 1 is computed by its experts, on tokens of several ranks",
        ),
    ],
)
def test_layers_that_are_no_whole_forwards_are_named(program: Any, sizes: dict[str, Any], says: str) -> None:
    with pytest.raises(PuzzleError, match=says) as refused:
        run(program, **sizes).schedule()
    assert "whole stages" in str(refused.value.expected)


def test_a_rank_without_work_has_no_row() -> None:
    assert run(schedule("0F0,0B0\n,\n1F0,1B0"), ranks=3, layers=2, batches=1).schedule() == "0F0,0B0\n1F0,1B0\n"


def test_a_schedule_is_not_drawn_before_it_is_run() -> None:
    with pytest.raises(PuzzleError, match=r"draw\(run\(plan, \*\*plan.sizes\)\), where plan is this schedule"):
        draw(schedule(TWO))


async def each_half_another_way(model: Model) -> Model:
    """Two pipelines of two ranks, of which the second one does all forwards first."""
    acts, place, half = model.activations, model.rank % 2, model.rank // 2
    model.weights[place], model.opt_states[place] = model.load_weights(place)
    mine = [2 * half, 2 * half + 1]
    for turn in [mine] if half else [[mb] for mb in mine]:
        for mb in turn:
            acts[mb] = await model.receive(model.rank - 1) if place else model.get_activation([mb])
            acts["out", mb] = model.forward(place, acts[mb], model.weights[place])
            if not place:
                await model.pass_to(model.rank + 1, acts.pop(("out", mb)))
        for mb in turn:
            grads = model.grad_activations
            grads[0] = model.loss(acts.pop(("out", mb))) if place else await model.receive(model.rank + 1)
            _, grads[0] = model.backward(place, acts.pop(mb), grads.pop(0), model.weights[place])
            if place:
                await model.pass_to(model.rank - 1, grads.pop(0))
    return model


async def in_other_groups(model: Model) -> Model:
    """The first layer takes two micro-batches at once, the other one of them."""
    weight, _ = model.load_weights(model.rank)
    model.forward(model.rank, model.get_activation([0] if model.rank else [0, 1]), weight)
    return model


def test_a_micro_batch_has_one_number() -> None:
    with pytest.raises(PuzzleError, match=r"goes in \{0\} here, and in .* on rank 0: a row has one number for both"):
        run(in_other_groups, ranks=2, layers=2, batches=2, _strict=False).schedule()


@pytest.mark.parametrize(
    ("program", "sizes", "says"),
    [
        (ddp, {"ranks": 2, "layers": 2, "batches": 2}, "each rank has all layers, so this is not a pipeline"),
        (
            tensor_parallel,
            {"ranks": 2, "layers": 2, "batches": 1},
            "layer 0 is on rank 0 as well, with the same micro-batches",
        ),
        (
            each_half_another_way,
            {"ranks": 4, "layers": 2, "batches": 4},
            "rank 2 has the same layers as rank 0, and does something else",
        ),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_rows_have_no_words_for_is_not_written(program: Any, sizes: dict[str, Any], says: str) -> None:
    with pytest.raises(PuzzleError) as refused:
        run(program, **sizes, _strict=False).schedule()
    assert refused.value.problem == says
    assert "PyTorch's rows have each stage on one rank" in str(refused.value.expected)


@compares_with_torch
@pytest.mark.parametrize(("F", "B", "W"), [(1, 2, 1), (2, 3, 1)])
@pytest.mark.parametrize("saved", [0, 0.5, 1])
def test_dualpipev_has_the_bubble_of_its_paper(saved: float, F: int, B: int, W: int) -> None:
    """On p ranks (p - 1)(F&B + B - 3W), where F&B is what a pair takes (the page of DualPipe at DeepSeek, for twice as
    many stages as ranks), where the backward for the input takes as long as a forward."""
    for ranks, batches in ((2, 4), (3, 6), (4, 8), (4, 12)):
        plan = schedule(torch_rows("DualPipeV", ranks, batches))
        pair, pairs = F + B - saved * min(F, B), 2 * (batches - ranks) - 1  # of the last rank
        halves = {"backward_input": B - W, "backward_weight": W}
        cost = Cost(overlapped=saved, forward=F, backward=B, **halves, send=0, receive=0, update=0)
        busy = (2 * batches - pairs) * (F + B) + pairs * pair
        assert run(plan, **plan.sizes, cost=cost).time == busy + (ranks - 1) * (pair + B - 3 * W)


def test_the_rows_that_a_search_has_found_are_in_the_docs() -> None:
    """They take the time of ZB-V, which is the bound, in less memory."""
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    rows = re.findall(r"^    (\d[FIW]\S+,\S+)$", page, re.MULTILINE)
    plan, cost = schedule("\n".join(rows)), Cost(backward=2, send=0, receive=0)
    done, known = run(plan, **plan.sizes, cost=cost), run(as_pytorch_does, ranks=4, layers=8, batches=8, cost=cost)
    assert (done.time, done.memory) == (known.time, 3_014_656) and done.memory < known.memory
    assert done.verify().startswith("Correct")
    assert Task("v", 4, 8, cost, True, None).bound() == done.time


@compares_with_torch
def test_zb_v_is_that_of_pytorch() -> None:
    for ranks, batches in ((2, 4), (3, 6), (4, 12)):
        rows = torch_rows("ZBVZeroBubble", ranks, batches).splitlines()
        done = run(as_pytorch_does, ranks=ranks, layers=2 * ranks, batches=batches)
        assert done.schedule().splitlines() == [",".join(filter(None, row.split(","))) for row in rows]


@compares_with_torch
@pytest.mark.parametrize("saved", [0, 0.5, 1])
def test_half_of_dualpipe_is_pytorch_s_dualpipev(saved: float) -> None:
    """By itself, without the other half: as fast in the same memory, and faster by what a pair saves, since PyTorch and
    DeepSeek leave one pair in the middle apart."""
    cost = Cost(backward=2, send=0, send_across=0, receive=0, overlapped=saved)
    for ranks, batches in ((2, 4), (3, 6), (4, 8), (4, 12)):
        plan = schedule(torch_rows("DualPipeV", ranks, batches))
        theirs, mesh = run(plan, **plan.sizes, cost=cost), {"half": 1, "place": ranks}
        ours = run(cut_in_half, ranks=ranks, layers=2 * ranks, batches=batches, mesh=mesh, cost=cost)
        assert (ours.time, ours.memory) == (theirs.time - saved, theirs.memory)


def test_pipelines_lie_side_by_side_in_the_docs() -> None:
    """With the figures that puzzles 29 and 30 and the report of DeepSeek-V3 name."""
    runs = race.side_by_side()
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    assert pipelines.table(runs).strip() in page
    for row in race.ROWS:
        assert runs[row.title].verify().startswith("Correct")
    for name, title in (("zbv", "ZB-V"), ("dualpipe", "DualPipe, pairs overlap")):
        star = puzzles()[name].star
        assert star is not None and runs[title].time == star["time"]


# -- PyTorch's own schedules -----------------------------------------------------------------------------------------


@compares_with_torch
@pytest.mark.parametrize("name", LOOPED)
def test_schedules_of_torch_are_right_by_value(name: str) -> None:
    """Each comes in and trains the model, with messages put in as fast and as small as with those of torch."""
    for ranks, batches in SIZES:
        if possible(name, ranks, batches):
            ours, theirs = (done(name, ranks, batches, with_messages) for with_messages in (False, True))
            assert ours.verify().startswith("Correct")
            assert (ours.time, ours.memory) == (theirs.time, theirs.memory), (ranks, batches)
            plan = schedule(torch_rows(name, ranks, batches), receives="at once")
            assert run(plan, **plan.sizes, cost=QUICK).time >= ours.time, (ranks, batches)


@compares_with_torch
@pytest.mark.parametrize(("ranks", "batches"), [(1, 3), (3, 4), (6, 12)])
def test_the_1f1b_that_torch_prints_is_refused(ranks: int, batches: int) -> None:
    """``get_schedule_ops`` numbers the forwards of the last rank from 1. Numbered from 0, they are right."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    rows: Any = get_schedule_ops("1F1B", ranks, batches, num_stages_per_rank=1)
    with pytest.raises(PuzzleError, match=f"the row of rank {ranks - 1}[:,]"):
        schedule(rows)
    mended = [[str(action) for action in row if action is not None] for row in rows]
    mended[-1] = [re.sub(r"F(\d+)", lambda found: f"F{int(found[1]) - 1}", action) for action in mended[-1]]
    plan = schedule(mended)
    assert run(plan, **plan.sizes).verify() == "Correct!"


@compares_with_torch
def test_the_table_in_the_docs_is_true() -> None:
    assert table() in (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    assert done("ZBVZeroBubble", 4, 8).time == 38.9, "as a trial with a program of its own found"


@pytest.mark.parametrize(("ranks", "batches"), SIZES)
@pytest.mark.parametrize("name", SINGLE)
def test_schedules_with_one_stage_a_rank(name: str, ranks: int, batches: int) -> None:
    plan = schedule(single(name, ranks, batches))
    done = run(plan, **plan.sizes, cost=Cost(send=0, receive=0))
    assert done.time == (batches + ranks - 1) * 2 + 0.5
    assert done.verify().startswith("Correct")


@needs_torch
def test_a_schedule_trains_real_tensors() -> None:
    plan = schedule("0F0, 0F1, 3F0, 3F1_3I0, 3I1, 3W0, 3W1, 0B0, 0B1\n1F0, 2F0, 1F1, 2F1, 2B0, 1B0, 2B1, 1B1")
    done = run(plan, ranks=2, layers=4, batches=2, engine="local", dtype="float64")
    assert done.verify().startswith("Correct")


PAGE = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")


def test_the_page_can_be_read_from_the_top_and_typed() -> None:
    """Its code runs as it stands, and names nothing that it has not made before."""
    names: dict[str, Any] = {}
    shown = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", PAGE, re.MULTILINE)
    code = [source for text in shown if "=" in (source := re.sub("^ {4}", "", text, flags=re.MULTILINE).strip())]
    for source in code:
        if "search(" not in source:  # its result is on the page, and compared in test_schedule_search.py
            source = source.replace("\n\ngrade(", "\n\nverdict = grade(")
            exec(compile(source, "docs/schedules.md", "exec"), names)
    assert len(code) == 10
    assert str(names["verdict"]).startswith("PASS  puzzle 13"), "rows for a model of any size"
    assert [names[name].time for name in ("held_up", "freed", "late", "turns")] == [26, 17, 18, 21]
    assert "takes 26 ticks where" in " ".join(PAGE.split()) and "and 17 where" in " ".join(PAGE.split())
    assert names["rows"].split() == BLOCKING.split()
