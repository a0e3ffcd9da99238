"""What a step takes on real GPUs: each notebook says it of its own puzzle's solution, and anyone can run it again."""

import base64
import json
import re
from pathlib import Path

import pytest

from lib import run
from lib.course.specs import cost_named
from lib.real import A100_MEGATRON, GPT_2_XL, LLAMA_3_8B, RTX_4090
from lib.real.prices import RealCost
from solutions.build.pictures.in_texts import check_pictures, with_pictures
from solutions.build.runs import priced
from solutions.build.sources.files import ROOT, BuildError, Cell, notebook_name, read_cells, sources
from solutions.build.sources.specs import specs_of
from solutions.p01_grad_accum import grad_accum
from solutions.p23_lora import lora

PRICED_ITSELF = "p24_compose"
"""The one puzzle that is in seconds from the beginning."""
NOT_ON_A_CLUSTER = {
    "p31_ring_allreduce",  # its machine is one of wires that take in one message at a time: no cluster here has such
    "p32_small_messages",  # the same, and its gradients take half a hop: those of a model take much longer
    "p34_muon",  # no cluster here has a price for orthogonalize
}
SOURCES = [
    path
    for path in sources()
    if re.match(r"p(0[2-9]|[1-9]\d)_", path.stem) and path.stem not in {PRICED_ITSELF, *NOT_ON_A_CLUSTER}
]
NOT_FITTING = {"ddp", "pipeline", "gpipe"}
"""What these take too much of is what the puzzles after them save."""


def cells(path: Path) -> list[str]:
    return [cell.source for cell in read_cells(path) if priced.TAG in cell.tags]


def texts(path: Path, kind: str) -> list[str]:
    """The cells of a notebook as it is shipped."""
    notebook = json.loads((ROOT / "puzzles" / notebook_name(path)).read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_every_puzzle_from_2_on_has_its_price() -> None:
    assert len(SOURCES) >= 22
    own = specs_of(ROOT / "solutions" / f"{PRICED_ITSELF}.py")[0]
    assert isinstance(cost_named(own["cost"]), RealCost)
    assert [path.stem for path in SOURCES if len(cells(path)) != 1] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_says_what_the_run_of_its_solution_takes(path: Path) -> None:
    [cell], done = cells(path), priced.priced_run(path)
    assert done is not None
    name = specs_of(path)[0]["name"]
    assert done.name == name and done.train == specs_of(path)[0]["size"].get("train", "weights")
    assert done.fits == (name not in NOT_FITTING)
    [said] = [text for text in texts(path, "markdown") if "Priced:" in text]
    words = said.partition("Priced:")[2].partition("\n")[0]
    assert f"takes **{done.seconds:.3g} s**. " in words and f"({done.cost.cluster.name}" in words  # type: ignore[attr-defined]
    gigabytes = float(words.partition("a GPU holds **")[2].partition(" GB")[0])
    assert gigabytes == pytest.approx(done.bytes / 1e9, rel=0.005)
    assert (f"{100 * done.mfu:.1f} % of the peak" in words) == (done.train == "weights")
    assert ("does not fit" in words) == (not done.fits)
    picture = re.search(r"data:image/svg\+xml;base64,([\w+/=]+)", said)
    assert picture is not None and len(picture[1]) < 75_000
    drawn = base64.b64decode(picture[1]).decode()
    assert f"time {done.seconds:.4g} s" in said and "tick" not in drawn and "elements" not in drawn
    assert ">update<" in drawn.partition('class="slim"')[2]  # a phone has the words of the legend, too
    assert cell in texts(path, "code")  # a learner's own function is run by the same cell


def test_a_line_names_model_machine_and_batch() -> None:
    cost = A100_MEGATRON.cost(GPT_2_XL, micro_batch=2, tensor=5)
    said = priced.line(run(grad_accum, layers=48, batches=3, cost=cost))
    assert (
        "trains **GPT-2 XL** on 5 GPUs (A100 80 GB, Megatron 2022, 5 to a rank). A step has 3 micro-batches of" in said
    )
    assert " 2,048 tokens" in said and "fit" not in said and said.endswith(" by Megatron's formula (MFU).")
    alone = priced.line(run(grad_accum, layers=32, cost=RTX_4090.cost(LLAMA_3_8B)))
    room = f"no more than {RTX_4090.room / 1e9:.1f} GB can be filled: **it does not"
    assert "1 GPU (RTX 4090). A step has one micro-batch" in alone and room in alone


def test_adapters_have_no_part_of_the_peak() -> None:
    cost = A100_MEGATRON.cost(GPT_2_XL, adapter_rank=8)
    said = priced.line(run(lora, ranks=2, layers=48, batches=2, cost=cost, train="adapters"))
    assert "MFU" not in said and said.endswith(" of 85.9 GB (1 GB is 10⁹ bytes here; makers of cards count in 2³⁰).")


SOURCE = "from lib import Model, run\n\ndef idle(model):\n    return model\n"


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("x = 3", "p02_ddp.py: its cell tagged priced is to give a run on a cluster the name priced"),
        ("priced = run(idle)", "give a run on a cluster the name priced"),
        (
            "from lib.real import *\npriced = run(idle, layers=32, cost=RTX_4090.cost(LLAMA_3_8B))",
            "p02_ddp.py: .*idle is not attempted yet",
        ),
    ],
)
def test_a_cell_that_prices_nothing_is_refused(tmp_path: Path, cell: str, said: str) -> None:
    source = tmp_path / "p02_ddp.py"
    source.write_text(f'# %%\n{SOURCE}\n# %% tags=["priced"]\n{cell}\n', encoding="utf-8")
    with pytest.raises(BuildError, match=said):
        with_pictures(source, "![x](picture:priced)")


def test_a_source_without_such_a_cell_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "p02_ddp.py"
    source.write_text(f"# %%\n{SOURCE}", encoding="utf-8")
    with pytest.raises(BuildError, match=r'exactly one cell with tags=\["priced"\] is needed, 0 found'):
        check_pictures(source, [*read_cells(source), Cell("markdown", "![x](picture:priced)")])
