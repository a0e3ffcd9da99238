"""What a verdict shows below its words in a notebook, and the card to keep."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from drawing import draw_card
from drawing.charts.verdict import CARD_SIZE, CELEBRATION, show_verdict
from drawing.ink import theme
from lib import Model, PuzzleError, grade, run
from lib.grading import notebook, page, seal
from lib.grading.progress import FOLDER
from solutions.p01_grad_accum import grad_accum
from solutions.p02_ddp import ddp
from tests.browser import Browser
from tests.drawing_events import SVG, texts
from tests.programs import COURSE, solved

LABELS = re.compile(r'<svg [^>]*class="ltp (?!narrow)[^>]*aria-label="([^"]*)"')
KEPT = re.compile(r'<a download="(\w+)\.svg" href="data:image/svg\+xml;base64,([^"]*)" style="[^"]*">([^<]*)</a>')


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is kept in a folder of the test."""
    monkeypatch.setenv(FOLDER, str(tmp_path))


def wasteful(slow: bool = False, large: bool = False) -> Callable[[Model], Any]:
    """Data parallel that computes something in vain, or holds something that it does not need."""

    async def my_ddp(model: Model) -> Model:
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        model.activations[0] = model.get_activation([model.rank])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
        for _ in range(4 * slow):
            model.forward(0, model.activations[0], model.weights[0])
        for at in range(9 * large):
            model.weights["copy", at] = model.weights[0]
        grad_out = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp = model.activations.pop(layer)
            model.grad_weights[layer], grad_out = model.backward(layer, inp, grad_out, model.weights[layer])
        for at in range(9 * large):
            del model.weights["copy", at]
        for layer in reversed(range(model.LAYERS)):
            grad = await model.allreduce(model.grad_weights.pop(layer), layer)
            new = model.update(layer, grad, model.weights[layer], model.opt_states[layer])
            model.weights[layer], model.opt_states[layer] = new
            model.set_final_weight(layer, model.weights[layer])
        return model

    return my_ddp


FOLDED = "Yours beside the outline"


def seen(fn: Callable[[Model], Any], puzzle: str = "ddp") -> tuple[notebook.ShownVerdict, str, list[str]]:
    """A verdict, what it shows, and what its pictures are, in words."""
    verdict = grade(fn, puzzle)
    html = show_verdict(verdict)
    return verdict, html, LABELS.findall(html)


def test_a_pass_without_its_star_has_its_point_the_outline_of_the_star_and_a_card() -> None:
    verdict, html, pictures = seen(ddp)
    assert verdict.status == "PASS" and not verdict.starred
    assert html.count(CELEBRATION) == 1
    [point, outline] = [words for words in pictures if not words.startswith("Eight processors")]
    assert point.startswith("ddp: your attempts. 1 right attempt, 1 within the target.")
    assert outline.startswith("Yours: ") and "One that meets the star: " in outline
    assert html.rindex("<details") < html.index(outline) < html.rindex("</details>")
    assert "draw_attempts" not in html  # it is there


def test_with_the_star_there_is_nothing_to_reach_and_the_card_has_a_star() -> None:
    verdict, html, _ = seen(grad_accum, "grad_accum")
    assert verdict.starred and FOLDED not in html
    [(name, data, words)] = KEPT.findall(html)
    card = base64.b64decode(data).decode()
    assert name == "grad_accum" and "the star" in words and len(card) <= CARD_SIZE
    assert theme.GOLD in card and ElementTree.fromstring(card).tag == f"{SVG}svg"
    assert "the star" not in KEPT.findall(seen(ddp)[1])[0][2]


@pytest.mark.parametrize(("slow", "large"), [(True, False), (False, True), (True, True)])
def test_what_is_over_the_target_is_drawn(slow: bool, large: bool) -> None:
    verdict, html, pictures = seen(wasteful(slow, large))
    assert verdict.right and verdict.status == "FAIL"
    [point, drawn, outline] = pictures
    assert "1 right attempt, 0 within the target." in point and "One that meets the target: " in outline
    assert ("the longest chain (all else is pale)" in html) == slow
    assert ("made what is in memory at the peak" in html) == large
    assert "target 5.6" in html and drawn.startswith("my_ddp: ")  # whatever the function is called
    assert not KEPT.search(html)


def test_what_is_wrong_or_blank_is_told_in_words() -> None:
    async def blank(model: Model) -> Model:
        return model

    async def half(model: Model) -> Model:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        return model

    async def wrong(model: Model) -> Model:
        model.forward(0, model.weights[0], model.weights[0])  # type: ignore[call-overload]
        return model

    def no_coroutine(model: Model) -> int:
        return 1

    for fn in (blank, half, wrong, no_coroutine):
        verdict = grade(fn, "ddp")
        assert not verdict.right and show_verdict(verdict) == page.table(verdict.verdict)


def test_a_large_run_is_not_drawn_but_has_its_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "LARGEST", 20)
    monkeypatch.setattr(seal, "_sealed", [])  # which would see that
    verdict, html, pictures = seen(ddp)
    assert verdict.run is None and [words for words in pictures if "your attempts" in words]
    assert FOLDED not in html and not KEPT.search(html)


@pytest.mark.parametrize("name", [name for name in COURSE if name != "compose"])
def test_a_card_has_the_schedule_and_the_figures(name: str) -> None:
    done = solved(name)
    figure = draw_card(done)
    shown = " ".join(texts(figure))
    assert f"time {done.unit.brief(done.time)} " in shown and f"memory, elements {int(done.memory):,} " in shown
    assert "target " in shown and "rank" in shown and len(figure.svg()) <= 2 * CARD_SIZE


def test_a_card_of_what_does_not_pass_has_no_mark() -> None:
    done = run(wasteful(slow=True, large=True), ranks=4, layers=2, batches=4)
    for color in (theme.GOLD, theme.GOOD):
        assert color not in draw_card(done, "ddp").svg()
    with pytest.raises(PuzzleError, match="takes a run"):
        draw_card(3)  # type: ignore[arg-type]
    with pytest.raises(PuzzleError, match="there is no puzzle"):
        draw_card(done)
    with pytest.raises(PuzzleError, match="the target of ddp is for another size"):
        draw_card(run(wasteful(slow=True), ranks=4, layers=6, batches=4), "ddp")


NAMES = """() => [...document.querySelectorAll("table tr")].map(row => {
    const [name, fact] = [...row.children].map(one => one.getBoundingClientRect());
    return [name.bottom <= fact.top, name.right <= fact.left, fact.right];
})"""


@pytest.mark.parametrize("width", [360, 733])
def test_on_a_phone_names_stand_above_what_they_name(browser: Browser, width: int) -> None:
    async def wrong(model: Model) -> None:
        model.forward(0, model.weights[0], model.weights[0])  # type: ignore[call-overload]

    for fn in (ddp, wrong):
        rows = browser.show(show_verdict(grade(fn, "ddp")), NAMES, width=width, judged=False).measured
        assert len(rows) > 2
        for above, beside, right in rows:
            assert right <= width and (above, beside) == ((True, False) if width == 360 else (False, True))
