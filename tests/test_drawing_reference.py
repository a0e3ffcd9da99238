"""The page to look things up."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from drawing import reference
from drawing.primitives import primitives
from drawing.reference import FUNCTIONS, MODEL
from lib import Cost, Model
from lib.record.table import in_lane
from tests.browser import Browser


def test_it_names_every_public_method_and_price() -> None:
    public = {name for name in vars(Model) if not name.startswith("_") and name not in Model.__annotations__}
    verbs = set(in_lane("compute", "collective", "message"))
    assert {name for names in MODEL.values() for name in names} | verbs | {"set_final_weight"} == public
    text = str(reference())
    for name in Cost.__dataclass_fields__:
        assert f"\n  {name}\n" in text
    for function in FUNCTIONS:
        assert f"\n  {function.__name__}(" in text


def test_it_says_how_to_write_a_call_and_what_it_insists_on() -> None:
    text = str(reference())
    for written in (
        "await model.allgather(v, layer, axis=None)",
        "model.load_weights(layer, shard=0, total=1)",
        "model.rank_at(**coords)",
        "Model.check(models)",
    ):
        assert f"\n  {written}\n" in text, written
    assert (
        "\n  run(fn, ranks=1, layers=2, batches=1, mesh=None, node_size=None, cost=None, timeout=10.0, hosts=0, engine="
        in text
    )
    assert "Needs the layer's complete weight, not yet updated" in text
    assert "0.3 ticks (1.5 between boxes)" in text
    assert "``" not in text


def test_it_is_a_page_with_tables_and_pictures(tmp_path: Path) -> None:
    root = ElementTree.fromstring(f"<div>{reference()._repr_html_()}</div>")
    assert len(root.findall(".//caption")) == len(reference().entries()) == len(root.findall(".//table"))
    assert all(head.get("scope") == "row" for head in root.iter("th"))
    assert len([e for e in root.iter() if e.tag.endswith("svg")]) == len(primitives())
    reference().save(tmp_path / "reference.html")
    assert "all-gather" in (tmp_path / "reference.html").read_text(encoding="utf-8")
    assert len(reference()._repr_html_()) < 150_000


def test_it_has_no_violation_in_a_browser(browser: Browser) -> None:
    sight = browser.show(reference()._repr_html_(), "() => document.documentElement.scrollWidth")
    assert sight.measured == 900
    assert sight.violations == {}
