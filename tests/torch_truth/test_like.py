"""``python -m lib run FILE:function --like torch``: what it prints, and its exit status."""

import subprocess
import sys
from pathlib import Path

import pytest

from lib import Model, PuzzleError, run
from lib.engines import shell, torch_order
from lib.engines.like import CONTEXT, COUNTERPARTS, NONE, first_difference, steps_of
from lib.engines.torch_order import Rank
from solutions.build.sources.files import ROOT
from tests.marks import compares_with_torch
from tests.test_closed_forms import program

FSDP = """\
Correct!
fsdp on 4 ranks beside PyTorch 2.13: fully_shard on each layer and on the model
Rank 0 differs first at its step 14.
There stands line {line} of p04_fsdp.py in fsdp: grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)

         yours    PyTorch
     9   4AG      4AG
    10   4F0      4F0
    11   5AG      5AG
    12   5F0      5F0
    13   5AG      5AG
    14 > 5B0      4AG
    15   5RS      5B0
    16   4AG      5RS
    17   4B0      3AG
    18   4RS      4B0
    19   3AG      4RS

FSDP2 issues the next all-gather before this backward: the weight comes while the rank computes.
Apart from the order it is the same: each kind of step as often as in PyTorch.
"""  # noqa: E501 (a line of a notebook)


def like(capsys: pytest.CaptureFixture[str], what: str, *more: str) -> tuple[int, str, str]:
    status = shell.main(["run", what, "--like", "torch", *more])
    seen = capsys.readouterr()
    return status, seen.out, seen.err


def source(name: str) -> str:
    return str(ROOT / "solutions" / name)


def test_the_first_difference_is_marked_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Path(source("p04_fsdp.py")).read_text(encoding="utf-8").splitlines()
    written = "model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)"
    line = next(at for at, text in enumerate(lines, 1) if written in text)
    assert like(capsys, source("p04_fsdp.py:fsdp")) == (1, FSDP.format(line=line), "")


def test_what_is_identical_is_said_to_be_at_any_size(capsys: pytest.CaptureFixture[str]) -> None:
    for sizes in ([], ["--ranks", "3", "--layers", "5", "--batches", "3"]):
        status, out, err = like(capsys, source("p12_prefetch.py:prefetch"), *sizes)
        assert (status, err) == (0, "") and "Identical, on every rank" in out
        assert f"prefetch on {sizes[1] if sizes else 4} ranks beside PyTorch 2.13: fully_shard" in out


@pytest.mark.parametrize(
    ("what", "more", "says"),
    [
        ("p03_wsdp.py:wsdp", (), "wsdp is not compared. PyTorch has nothing that divides weights and states"),
        ("p12_prefetch.py:fsdp_blocking", (), "--like goes by the function's name, and PyTorch is known for basic,"),
        ("p06_gpipe.py:gpipe", ("--engine", "local"), "--like compares a simulated run: leave --engine out"),
        ("p13_one_f_one_b.py:one_f_one_b", ("--batches", "3"), "wants at least as many micro-batches as ranks"),
    ],
)
def test_what_cannot_be_compared_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], what: str, more: tuple[str, ...], says: str
) -> None:
    status, out, err = like(capsys, source(what), *more)
    assert status == 2 and says in err and "beside" not in out


@pytest.mark.process
@pytest.mark.slow
@compares_with_torch
def test_what_is_said_of_context_parallel_is_what_torch_says() -> None:
    """Once it attends on a processor, it can be recorded."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.torch_truth.context"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("NotImplementedError: ") and done.stdout.strip() in CONTEXT
    assert NONE["context_parallel"] == NONE["ring_attention"] == CONTEXT


def test_pytorchs_dualpipev_wants_as_many_micro_batches_as_stages() -> None:
    with pytest.raises(PuzzleError, match=r"as many micro-batches as stages[\s\S]*3 for 4 stages"):
        torch_order.dual_pipe_v(Rank(0, (0, 1), layers=4, turns=3))


def test_a_wrong_program_is_told_what_is_wrong_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("async def ddp(model):\n    await model.receive()\n")
    status, out, err = like(capsys, str(tmp_path / "mine.py:ddp"))
    assert status == 1 and "beside" not in out and "deadlock" in out + err


def test_pytorchs_rounds_are_equally_large() -> None:
    with pytest.raises(PuzzleError, match="rounds of equally many micro-batches"):
        torch_order.interleaved(Rank(0, (0, 1), layers=4, turns=5))


def differs(puzzle: str, file: str, name: str, ranks: int, layers: int, batches: int) -> tuple[int, str, str, str]:
    found = first_difference(run(program(file, name), ranks, layers, batches).models, COUNTERPARTS[puzzle])
    assert found is not None
    return found.rank, str(found.yours[found.place][0]), str(found.theirs[found.place]), found.why.split(":")[0]


def test_each_kind_of_difference_is_found() -> None:
    early = differs("ddp", "p02_ddp", "ddp", 4, 2, 4)
    assert early[:3] == (0, "U", "0B0") and early[3].startswith("PyTorch's optimizer begins when")
    late = differs("ddp", "p02_ddp", "ddp_overlap", 4, 2, 4)  # the same order, but an update begins before the last sum
    assert late[:3] == (0, "U", "U") and late[3].startswith("The first update begins at tick 4, while a sum")
    kept = differs("prefetch", "p12_prefetch", "prefetch_in_21_8", 4, 6, 4)
    assert kept[:3] == (0, "4AG", "5AG") and kept[3].startswith("By default FSDP2 frees the last layer")
    more = differs("one_f_one_b", "p13_one_f_one_b", "one_f_one_b_in_47_4", 4, 8, 8)
    assert more[:3] == (0, "0F4", "1B0") and "holds one micro-batch less" in more[3]
    whole = differs("fsdp", "p03_wsdp", "wsdp", 4, 6, 4)
    assert whole[:3] == (0, "5B0", "4AG")
    split = differs("zero_bubble", "p16_zero_bubble", "never_split", 4, 4, 8)
    assert split[:3] == (0, "0B0", "0BI0")


def test_a_gather_right_before_a_forward_or_after_it_is_the_same_step() -> None:
    size = {"ranks": 4, "layers": 6, "batches": 4}
    ahead, after = (run(program("p12_prefetch", name), **size) for name in ("prefetch", "fsdp_blocking"))
    forwards = [[str(step) for step, _ in steps_of(done.models[0])][:12] for done in (ahead, after)]
    assert forwards[0] == forwards[1] == [f"{layer}{kind}" for layer in range(6) for kind in ("AG", "F0")]


def test_the_micro_batches_of_a_rank_are_counted_in_its_order() -> None:
    def fine(model: Model) -> Model:
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        for mb in (2, 0, 1):
            model.activations[mb] = model.forward(0, model.get_activation([mb]), model.weights[0])
        return model

    [model] = run(fine, ranks=1, layers=1, batches=3).models
    assert [step.turn for step, _ in steps_of(model)] == [0, 1, 2]
