"""Whatever lists operations lists all of the table: the reference, help, pictures, codes, and the corpora."""

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

CORPUS = Path(__file__).parent / "corpus"
SOURCES = CORPUS.parent.parent / "solutions"


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


@pytest.mark.parametrize("number", range(25, 29))
def test_a_corpus_has_honest_programs_mistakes_and_ways_round_the_work(number: int) -> None:
    [path] = CORPUS.glob(f"p{number}_*.py")
    wrong, _, round_the_work = path.read_text(encoding="utf-8").partition("# -- round the work")
    honest, _, mistakes = wrong.partition("MISTAKES = [")
    assert honest.count("    changed(") >= 1
    assert mistakes.count("    changed(") >= 6
    assert round_the_work.count("    changed(") >= 4
