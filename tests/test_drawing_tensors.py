"""Small pictures of tensors, and how everything shows itself in a notebook."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chalk.backend.svg import render as chalk_render
from IPython.core.interactiveshell import InteractiveShell

import drawing.notebook
from drawing import Figure, draw_group, draw_tensor
from drawing.ink.letters import text_width
from drawing.schedule.layout import hatching
from lib import Activation, ActivationGrad, Attended, KeysValues, Model, OptState, PuzzleError, Weight, WeightGrad
from tests.drawing_events import outside, parse, staged_run, texts, titles

ROOT = Path(__file__).resolve().parent.parent
TENSORS = {
    "a whole weight": (Weight(0, 2, 0), "weight of layer 0 of 2, complete, step 0: 262,144 elements"),
    "an updated shard": (Weight(1, 4, 1, [2], 4), "weight of layer 1 of 4, shard 2 of 4, step 1: 65,536 elements"),
    "two shards": (
        OptState(0, 2, 0, [0, 3], 4),
        "optimizer state of layer 0 of 2, shards 0, 3 of 4, step 0: 131,072 elements",
    ),
    "a gradient": (
        WeightGrad(1, 2, [0, 1, 3], 4, [1], 2),
        "weight gradient of layer 1 of 2, shard 1 of 2, micro-batches 0, 1, 3 of 4: 131,072 elements",
    ),
    "no gradient": (
        WeightGrad(1, 2, [], 4),
        "weight gradient of layer 1 of 2, complete, micro-batches none of 4: 0 elements",
    ),
    "the last activation": (
        Activation(2, 2, [3], 4),
        "activation of layer 2 of 2, micro-batch 3 of 4: 131,072 elements",
    ),
    "the gradient of the input": (
        ActivationGrad(-1, 2, [0, 1], 4),
        "activation gradient of layer -1 of 2, micro-batches 0, 1 of 4: 262,144 elements",
    ),
    "a slice": (
        Activation(1, 2, [0], 1, [1], 4),
        "activation of layer 1 of 2, slice 1 of 4, micro-batch 0 of 1: 32,768 elements",
    ),
    "a partial sum": (
        Activation(1, 2, [0], 1, parts=[1], of=4),
        "activation of layer 1 of 2, partial sum 1 of 4, micro-batch 0 of 1: 131,072 elements",
    ),
    "some heads of all slices": (
        KeysValues(1, 2, [0], 1, heads=[1, 2], of_heads=4),
        "keys and values of layer 1 of 2, parts 1, 2 of 4 of the heads, micro-batch 0 of 1: 131,072 elements",
    ),
    "queries that have met some keys": (
        Attended(1, 2, [0], 1, [1], 2, [0, 2], 4),
        "attended queries of layer 1 of 2, slice 1 of 2, has met keys 0, 2 of 4, micro-batch 0 of 1: 131,072 elements",
    ),
    "slices of a sum of two partial sums": (
        ActivationGrad(0, 2, [0, 2], 4, [0, 2], 4, [0, 1], 3),
        "activation gradient of layer 0 of 2, slices 0, 2 of 4, partial sums 0, 1 of 3, micro-batches 0, 2 of 4: "
        "131,072 elements",
    ),
    "very many pieces": (
        Weight(500, 1000, 0, [7], 4096),
        "weight of layer 500 of 1000, shard 7 of 4096, step 0: 64 elements",
    ),
}


@pytest.mark.parametrize(("tensor", "words"), TENSORS.values(), ids=TENSORS)
def test_a_tensor_shows_its_layer_and_its_part(tensor: Any, words: str, tmp_path: Path) -> None:
    figure = draw_tensor(tensor)
    assert titles(figure) == [words] == [figure.summary]
    assert outside(figure) == []
    assert len(figure.svg()) < 12_000
    chalk_render(figure, str(tmp_path / "stock.svg"), height=100)


def filled(figure: Figure) -> list[str]:
    """Shapes filled with a color of a layer."""
    colors = {drawing.ink.theme.layer_color(layer, 3) for layer in range(3)}
    return [element.get("d", "rect") for element in parse(figure).iter() if element.get("fill") in colors]


def test_more_shards_fill_more_cells() -> None:
    one, two = (draw_tensor(Weight(0, 3, 0, shards, 8)) for shards in ([1], [1, 4]))
    assert one.svg() != two.svg()
    assert [path.count("M") for path in filled(two)] == [0, 2]  # the layer's cell, and the two shards


def test_a_slice_is_a_part_of_the_width() -> None:
    """Of the width of a whole one, at its place, in a row for each micro-batch."""
    whole, *slices = (
        [spans_of_boxes(path) for path in filled(draw_tensor(Activation(0, 3, [0, 2], 3, *part)))][-1]
        for part in ((), ([0], 4), ([3], 4), ([1, 2], 4))
    )
    (left, right), rows = whole[0], len(whole)
    quarter = (right - left) / 4
    assert rows == 2 and set(whole) == {(left, right)}
    for found, (first, last) in zip(slices, ((0, 1), (3, 4), (1, 3)), strict=True):
        assert min(start for start, _ in found) == pytest.approx(left + first * quarter, abs=0.1)
        assert max(end for _, end in found) == pytest.approx(left + last * quarter, abs=0.1)
        assert sum(end - start for start, end in found) == pytest.approx(rows * (last - first) * quarter, abs=0.2)


def spans_of_boxes(path: str) -> list[tuple[float, float]]:
    """From where to where the boxes of a path go, from left to right."""
    found = []
    for box in path.split("M")[1:]:
        x, width = re.match(r"\s*(-?[\d.]+)[ ,]-?[\d.]+\s*h\s*(-?[\d.]+)", box).groups()  # type: ignore[union-attr]
        found.append((float(x), float(x) + float(width)))
    return found


def test_a_partial_sum_has_lines_and_the_sign_of_a_sum() -> None:
    """So that it is told from a whole one without its color."""
    whole, one, two = (draw_tensor(Activation(0, 3, [0], 1, parts=parts, of=4)) for parts in (range(4), [1], [0, 3]))
    signs = [[text for text in texts(figure) if "\u03a3" in text] for figure in (whole, one, two)]
    assert signs == [[], ["\u03a3 1/4"], ["\u03a3 2/4"]]
    assert "partial sum 1 of 4" in texts(one) and "partial sums 0, 3 of 4" in texts(two) and "mb 0 of 1" in texts(whole)
    strokes = [figure.svg().count("stroke-width") for figure in (whole, one)]
    assert strokes[1] > strokes[0]
    box = (23.0, 25.0, 87.0, 34.0)
    for x1, y1, x2, y2 in hatching(*box):  # none goes beyond the box
        assert 23 <= x1 < x2 <= 110 and 59 >= y1 > y2 >= 25
        assert x2 - x1 == pytest.approx(y1 - y2)


def test_a_dictionary_shows_its_keys_in_order() -> None:
    model = Model(layers=3)
    for layer in (2, 0, 1):
        model.weights[layer] = model.load_weights(layer)[0]
    figure = draw_group(model.weights)
    assert [text for text in texts(figure) if text in "012"] == ["2", "0", "1"]
    assert len(titles(figure)) == 3


def test_dictionaries_by_name_are_rows() -> None:
    model = Model(layers=3)
    model.weights["a<b"], model.opt_states[0] = model.load_weights(0)
    figure = draw_group({"weights": model.weights, "opt_states": model.opt_states, "grads": model.grad_weights})
    assert {"weights", "opt_states", "grads", "a<b", "empty"} <= set(texts(figure))
    assert figure.summary.startswith("weights: a<b: weight of layer 0 of 3")


@pytest.mark.parametrize(
    ("group", "count"), [([Weight(0, 2, 0)] * 20, 20), (Weight(0, 2, 0), 1), ({}, 0), ((t for t in ()), 0)]
)
def test_groups_of_any_size_keep_inside(group: object, count: int) -> None:
    figure = draw_group(group)
    assert len(titles(figure)) == count
    assert figure.size[0] < 1100
    assert outside(figure) == []
    assert ("empty" in texts(figure)) == (count == 0)
    assert draw_group(group, static=True)._repr_html_().count("<img ") == 1


def test_long_keys_and_many_of_them_are_cut() -> None:
    weight = Weight(0, 2, 0)
    for group in (
        {"k" * 10_000 + str(at): weight for at in range(200)},
        {f"rank {at}": {} for at in range(5000)},
        {"n" * 9000: dict.fromkeys(range(3), weight)},
    ):
        figure = draw_group(group)
        assert len(figure._repr_html_()) < 700_000
        assert figure.size[0] < 1300
    assert "and 4,936 more" in texts(draw_group({f"rank {at}": {} for at in range(5000)}))
    wide = draw_group([Activation(0, 2, range(0, 200, 13), 200)])
    assert max(text_width(text, 8.5) for text in texts(wide)) <= 125


@pytest.mark.parametrize("wrong", [None, 3, "weights", [1], {"a": 1}, {"a": {"b": 1}}, {"a": Weight(0, 1, 0), "b": {}}])
def test_what_is_no_tensor_is_refused(wrong: object) -> None:
    with pytest.raises(PuzzleError, match="draw_group takes tensors"):
        draw_group(wrong)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """An IPython that looks as if it ran."""
    made = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: made)
    drawing.notebook.register()
    drawing.notebook.register()
    return made


@pytest.mark.parametrize("thing", [*(tensor for tensor, _ in TENSORS.values()), staged_run(2, 2)], ids=repr)
def test_tensors_and_runs_show_themselves_as_one_picture(shell: InteractiveShell, thing: object) -> None:
    data, _ = shell.display_formatter.format(thing)  # type: ignore[union-attr]
    assert sorted(data) == ["text/html", "text/plain"]
    assert data["text/html"].count("<svg ") - data["text/html"].count('class="ltp narrow"') == 1
    assert data["text/plain"] == repr(thing)


@pytest.mark.process
def test_importing_elsewhere_changes_nothing_and_loads_neither_ipython_nor_chalk() -> None:
    code = "import sys, drawing, importlib; importlib.reload(drawing); assert not {'IPython', 'chalk'} & {*sys.modules}"
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=True)


def test_an_ipython_that_does_not_run_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    drawing.notebook.register()
