"""Whatever lists operations lists all of the table: the reference, help, pictures, codes."""

import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from drawing import draw_primitive, reference
from drawing.ink import theme
from drawing.small.primitives import primitives
from lib import Model
from lib.record.table import OPERATIONS, in_stream

SOURCES = Path(__file__).parent.parent / "solutions"


@cache
def texts(folder: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))


@cache
def page() -> str:
    return reference("all")._repr_html_()


@pytest.mark.parametrize("kind", OPERATIONS)
def test_an_operation_is_in_the_reference_in_help_in_pictures_and_on_a_page(kind: str) -> None:
    verb = getattr(Model, kind)
    said = inspect.getdoc(verb)
    assert said and len(said) > 40
    assert re.search(rf"\b{kind}\b", page())
    assert theme.name_of(kind) and theme.kind_color(kind)
    assert re.search(rf"model\.{kind}\b", texts(SOURCES))


@pytest.mark.parametrize("kind", in_stream("collective"))
def test_a_collective_has_a_picture_of_before_and_after(kind: str) -> None:
    assert kind in primitives()
    assert "before" in draw_primitive(kind, ranks=2).svg()
