"""The page to look things up."""

import json
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest

from drawing import reference
from drawing.small.primitives import primitives
from lib import Cost, Model, PuzzleError
from lib.course.specs import puzzles
from lib.grading.progress import VERSION
from lib.record.table import in_stream
from solutions.build.tables.reference import FUNCTIONS, MODEL, table_of_reference
from tests.browser import BROKEN, Browser, Page
from tests.programs import COURSE

ROOT = Path(__file__).parent.parent


def test_it_names_every_public_method_and_price() -> None:
    own = {name for cls in Model.__mro__ if cls.__module__.startswith("lib.learner") for name in vars(cls)}
    public = {name for name in own if not name.startswith("_") and name not in Model.__annotations__}
    verbs = set(in_stream("compute", "collective", "message"))
    assert {name for names in MODEL.values() for name in names} | verbs | {"set_final_weight"} == public
    text = str(reference("all"))
    for name in [one.name for one in fields(Cost) if Cost().price(one.name) is not None]:
        assert f"\n  {name}\n" in text
    for function in FUNCTIONS:
        assert f"\n  {function.__name__}(" in text


def test_its_table_is_made_of_the_docstrings_that_there_are() -> None:
    assert (ROOT / "drawing" / "reference.json").read_text(encoding="utf-8") == table_of_reference()


def test_an_operation_that_the_table_does_not_have_yet_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    page = import_module("drawing.lookup")
    older = [row for row in page._table() if ".allgather(" not in row[1]]
    monkeypatch.setattr(page, "_table", lambda: older)
    assert "model.allgather(v, layer, axis)" in str(reference("all"))


def test_it_says_how_to_write_a_call_and_what_it_insists_on() -> None:
    text = str(reference("all"))
    for written in (
        "await model.allgather(v, layer, axis=None)",
        "model.load_weights(layer, shard=0, total=1)",
        "model.rank_at(**coords)",
        "model.load_adapter(layer, shard=0, total=1)",
        "Model.check(models, train='weights')",
        "tensor.shard(index, total)",
    ):
        assert f"\n  {written}\n" in text, written
    size = "ranks=1, layers=2, batches=1, mesh=None, node_size=None, cost=None"
    kinds = "train='weights', hosts=0, experts=0, links='eager', tokens=(), quiet=False, tied=False"
    assert f"\n  run(fn, {size}, timeout=10.0, {kinds}, engine=" in text
    assert "Needs the layer's complete weight, not yet updated" in text
    assert "0.3 ticks (1.5 between nodes)" in text
    assert "iece index of total equal pieces" in text
    assert "``" not in text


def test_a_group_of_later_puzzles_says_so() -> None:
    later = {group for group in reference("all").entries() if "puzzle" in group}
    numbered = {"Mesh, from puzzle 8 on", "Hosts, in puzzle 22", "Adapters, in puzzle 23"}
    assert later == {
        *numbered,
        "Layers with experts, in puzzle 27",
        "Tokens, in puzzle 33",
        "Where sends wait, in puzzle 36: run(..., links=...)",
    }


def test_it_shows_what_a_puzzle_needs_and_the_rest_is_one_click_away() -> None:
    for name, here, later in (
        ("basic", "model.forward(", "model.allreduce("),
        ("ddp", "model.allreduce(", "model.allgather("),
        ("prefetch", "tensor.shard(", "model.backward_input("),
        ("offload", "model.host", "model.load_adapter("),
    ):
        page = reference(name)
        first, _, rest = page._repr_html_().partition("<details>")
        assert here in first and later not in first and later in rest, name
        assert here in str(page) and later not in str(page) and 'reference("all") has them all' in str(page)
    assert "<details>" not in reference(COURSE[-1])._repr_html_() + reference("all")._repr_html_()
    assert "grad + other_grad" in str(reference("basic"))
    with pytest.raises(PuzzleError, match="no puzzle"):
        reference("fsdq")


OF = {
    "ddp": ("all-reduce",),
    "wsdp": ("shard=0",),
    "replica_fsdp": ("axis=", "mesh=", "node_size", "between nodes", "_across"),
    "checkpointing": ("keep=", "saved=", "recompute"),
    "zero_bubble": ("backward_input", "backward_weight"),
    "tensor_parallel": ("partial=", "partial sum of"),
    "buckets": ("the list of their layers",),
    "offload": ("hosts=", "a host", "host_update"),
    "lora": ("adapter=", "train=", "adapters"),
    "context_parallel": ("sliced=", "attend"),
    "expert_parallel": ("experts=", "has 8 experts"),
    "dualpipe": ("overlapped=",),
    "token_mean": ("tokens=",),
    "muon": ("orthogonalize",),
    "sends_that_wait": ("links=", "exchange"),
}
"""Words that are about a puzzle, and none before it."""


@pytest.mark.parametrize("name", ["basic", "ddp", "fsdp", "prefetch", "tensor_parallel", "lora", "zbv", "repair_twice"])
def test_it_shows_no_word_of_later_puzzles_and_each_of_them_one_click_away(name: str) -> None:
    puzzle, page = puzzles()[name], reference(name)
    reached = puzzle.comes_after if puzzle.repair else puzzle.number
    shown, _, rest = page._repr_html_().partition("<details>")
    own = page.entries()
    running = own.pop("Running, grading, drawing")
    text = str([*own.values(), running[0]])
    assert running[0][0].startswith("run(fn, ranks=1")
    for about, words in OF.items():
        for word in words:
            later = int(puzzles()[about].number) > int(reached or 0)
            assert (word in text) != later, (name, about, word)
            assert not later or word in rest, (name, about, word)
    everything, above = (
        {row for group, rows in one.entries().items() if group for row in rows} for one in (reference("all"), page)
    )
    assert {row for rows in page.rest().values() for row in rows} == everything - above
    assert shown.count("<figure") + rest.count("<figure") <= reference("all")._repr_html_().count("<figure")


def test_it_shows_what_the_puzzle_after_the_last_solved_one_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_TRAINING_PUZZLES_PROGRESS", str(tmp_path))
    assert str(reference()) == str(reference("basic"))
    best = {"ddp": {"status": "PASS", "time": 5.6, "memory": 1572864}}
    (tmp_path / "progress.json").write_text(json.dumps({"version": VERSION, "best": best}))
    assert str(reference()) == str(reference("wsdp"))


def names(puzzle: str) -> set[str]:
    """What there is for a puzzle, by its name."""
    written = [written for group, rows in reference(puzzle).entries().items() if group for written, _ in rows]
    return {re.sub(r"^(await )?(model|Model|tensor)\.|\(.*", "", one) for one in written}


def test_every_notebook_finds_in_the_reference_what_it_writes() -> None:
    order = [puzzle for puzzle in puzzles().values() if not puzzle.repair]
    for puzzle in order:
        text = (ROOT / "puzzles" / f"{puzzle.file}.ipynb").read_text()
        for name in names("all") - names(puzzle.name):
            assert f".{name}(" not in text, (puzzle.name, name)
    taught = [name for puzzle in puzzles().values() for name in puzzle.teaches]
    assert len(taught) == len({*taught}) and {"allreduce", "shard", "load_adapter"} <= {*taught}


def test_it_is_a_page_with_tables_and_pictures(tmp_path: Path) -> None:
    root = ElementTree.fromstring(f"<div>{reference('all')._repr_html_()}</div>")
    entries = {group: rows for group, rows in reference("all").entries().items() if group}
    assert [len(found.findall("div")) for found in root.iter("dl")] == [len(rows) for rows in entries.values()]
    assert [p.text for p in root.findall("p")][1:] == list(entries)
    assert all([child.tag for child in row] == ["dt", "dd"] for found in root.iter("dl") for row in found)
    pictures = [one for one in root.iter() if one.tag.endswith("svg") and one.get("class") != "ltp narrow"]
    assert len(pictures) == len(primitives())
    reference("all").save(tmp_path / "reference.html")
    assert "all-gather" in (tmp_path / "reference.html").read_text(encoding="utf-8")
    assert len(reference("all")._repr_html_()) < 43_500 * len(primitives())


def test_it_has_no_violation_in_a_browser(browser: Browser) -> None:
    sight = browser.show(reference("all")._repr_html_(), "() => document.documentElement.scrollWidth")
    assert sight.measured == 900
    assert sight.violations == {}


COLUMNS = """() => [...document.querySelectorAll("dl")].map(list => [...list.children].map(row => {
    const [call, says] = [...row.children].map(one => one.getBoundingClientRect());
    return [call.left, says.left, says.top >= call.bottom];
}))"""


@pytest.mark.parametrize(("width", "below"), [(590, True), (640, False)])
def test_its_columns_begin_at_the_same_place_and_are_one_on_a_narrow_page(
    browser: Browser, width: int, below: bool
) -> None:
    *calls, prices = browser.show(reference("all")._repr_html_(), COLUMNS, width=width, judged=False).measured
    assert {under for rows in calls for _, _, under in rows} == {below}
    assert len({left for rows in calls for left, _, _ in rows}) == 1
    assert len({left for rows in calls for _, left, _ in rows}) == 1
    assert len({left for left, _, _ in prices}) == max(1, (width + 28) // 268)  # they use the width


def test_no_default_is_told_by_its_place_in_memory() -> None:
    assert "sweep(programs, " in str(reference("all")) and " at 0x" not in str(reference("all"))


def test_no_word_is_broken(browser: Browser, tmp_path: Path) -> None:
    def work(page: Page) -> list[list[str]]:
        found = [page.evaluate(BROKEN, "dt, dd, p")]
        page.add_style_tag(content="dd { word-break: break-all }")
        return [*found, page.evaluate(BROKEN, "dt, dd, p")]

    reference("all").save(tmp_path / "reference.html")
    found, squeezed = browser.visit((tmp_path / "reference.html").as_uri(), work, 360)
    assert found == [] and squeezed
