"""Figures in texts: the build computes them, and refuses those that nothing computes."""

import builtins
import doctest
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest

import lib
from lib import Cost
from solutions.build.figures import words, writing
from solutions.build.figures.pages import check_figures
from solutions.build.notebooks.notebook import notebook_of
from solutions.build.runs import programs
from solutions.build.sources.files import BuildError, read_cells
from solutions.build.sources.specs import specs_of
from solutions.build.tables.puzzles import with_hints

SPEC = """\
# %% tags=["spec"]
PUZZLE = {
    "number": 0,
    "name": "basic",
    "title": "Plain",
    "size": {"ranks": 1, "layers": 2, "batches": 4},
    "other_sizes": "one_rank",
    "target": {"time": 17.0, "memory": 2621440},
    "frontier": [{"time": 17.0, "memory": 1, "by": "basic"}],
    "layout": "whole",
    "ideas": [],
    "difficulty": "easy",
    "minutes": 5,
    "hints": ["Here are 4 micro-batches.", "second", "third"],
}

"""
PROGRAM = """\
# %%
from drawing import draw
from lib import Model, run


def basic(model: Model) -> Model:
    ### BEGIN SOLUTION
    model.weights[0], _ = model.load_weights(0)
    for mb in range(model.BATCHES):
        model.forward(0, model.get_activation([mb]), model.weights[0])
    ### END SOLUTION
    return model


def twice(model: Model) -> Model:
    return basic(model)


def shown(static=False):
    return draw(run(twice, layers=2, batches=4), static=static)

"""


def page(tmp_path: Path, text: str, cell: str = "done = run(basic, **size)") -> Path:
    """A source with this text and these figures."""
    folder = tmp_path / "solutions"
    folder.mkdir(exist_ok=True)
    path = folder / "p00_basic.py"
    lines = "\n".join(f"# {line}" for line in text.split("\n"))
    said = f'# %% [markdown]\n# # Plain\n#\n{lines}\n\n{SPEC}{PROGRAM}# %% tags=["figures"]\n{cell}\n'
    path.write_text(said, encoding="utf-8")
    return path


def text_of(path: Path) -> str:
    return "".join(notebook_of(path)["cells"][0]["source"])


def refused(path: Path) -> str:
    with pytest.raises(BuildError) as raised:
        check_figures(path)
        text_of(path)
    return str(raised.value)


def test_the_examples_hold() -> None:
    assert [doctest.testmod(module).failed for module in (words, writing)] == [0, 0]


def test_a_text_has_the_figures_of_the_run_that_it_names(tmp_path: Path) -> None:
    path = page(tmp_path, "It takes {{done.time}} ticks, {{done.time / target.time:percent}} of {{target.time}}.")
    assert "It takes 4 ticks, 24 percent of 17." in text_of(path)
    check_figures(path)


def test_neither_a_notebook_nor_a_module_has_the_cell_of_figures(tmp_path: Path) -> None:
    path = page(tmp_path, "text", "absurd = run(no_such_program)")
    assert "no_such_program" not in str(read_cells(path)[:-1])
    assert "p00_basic.py: its figures: NameError: name 'no_such_program'" in refused(path)
    for solved in (False, True):
        assert "done" not in str(notebook_of(page(tmp_path, "text"), solved)["cells"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("It takes 5.5 ticks.", "It takes 5.5 ticks."),
        ("It takes 4 ticks.", "It takes 4 ticks."),  # the puzzle has 4 micro-batches, but no figure of that size
        ("The peak is\n1,966,080 elements.", "1,966,080"),
        ("| ticks | 12 |", "12"),
        ("3/11 of the time, 27 percent", "3/11"),
        ("The card has 80 GB.", "80 GB"),
    ],
)
def test_a_figure_that_nothing_computes_is_refused(tmp_path: Path, text: str, said: str) -> None:
    message = refused(page(tmp_path, text))
    assert "these figures are not computed" in message and said in message


@pytest.mark.parametrize(
    "text",
    [
        "Of 4 micro-batches and 2 layers, one is done first.",
        "As in puzzles 6, 13 and 16, rank 5 sends layer 7 to ranks 8 to 11 (arXiv 2205.05198, table 5).",
        "On an H100, Llama 3 70B, GPT-3, an RTX 4090 and PCIe 4, in 16 bits or a 16-bit format, since July 2025.",
        "`run(f, ranks=37, layers=99)`, 10¹⁴ and [a link](p37_other.ipynb).",
        "```\nprint(3.75)\n```",
        "1. first\n2. second\n3. third",
    ],
)
def test_names_code_and_sizes_are_no_figures(tmp_path: Path, text: str) -> None:
    path = page(tmp_path, text)
    check_figures(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{done.tim}}", "p00_basic.py: {{done.tim}}: AttributeError"),
        ("{{19.5}}", "a figure needs a name"),
        ("{{1 / batches / 3}}", "say how it is to be rounded"),
        ("{{done.time:furlongs}}", "Invalid format specifier|unknown"),
    ],
)
def test_a_placeholder_that_gives_no_figure_is_quoted(tmp_path: Path, text: str, said: str) -> None:
    message = refused(page(tmp_path, text))
    assert any(one in message for one in said.split("|"))


def test_what_others_published_needs_its_source_on_the_page(tmp_path: Path) -> None:
    cell = 'gpus = published(16_384, "arXiv 2407.21783")'
    assert "16,384 GPUs (arXiv\n2407.21783)" in text_of(page(tmp_path, "{{gpus}} GPUs (arXiv\n2407.21783)", cell))
    assert "is from arXiv 2407.21783, which no text names" in refused(page(tmp_path, "{{gpus}} GPUs", cell))


def test_a_picture_shows_a_run_that_the_page_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "all_that_is_there", vars(builtins), raising=False)  # as a debugger may do
    picture = "![so](picture:shown)"
    assert "the picture shown shows a run of twice that has no name" in refused(page(tmp_path, picture))
    named = page(tmp_path, picture, "again = run(twice, layers=2, batches=4)")
    assert "data:image/svg+xml" in text_of(named)


def test_prices_in_a_text_are_those_of_the_puzzle(tmp_path: Path) -> None:
    assert "Cost(send=0.1) is not what basic costs" in refused(page(tmp_path, "Use `cost=Cost(send=0.1)`."))
    path = page(tmp_path, "Use `cost=Cost(forward=1,\nsend=0.2)`.")
    check_figures(path)


def test_hints_have_figures_too(tmp_path: Path) -> None:
    path = page(tmp_path, "text")
    said = path.read_text(encoding="utf-8").replace('"second"', '"It takes {{done.time}} ticks."')
    path.write_text(said, encoding="utf-8")
    [puzzle] = specs_of(path)
    assert with_hints(path.parent, puzzle)["hints"][1] == "It takes 4 ticks."
    path.write_text(said.replace("{{done.time}}", "9"), encoding="utf-8")
    assert "It takes 9 ticks." in refused(path)


@pytest.mark.parametrize(
    ("value", "way", "said"),
    [
        (20.400000000000002, "", "20.4"),
        (1e6, "", "1,000,000"),
        (Fraction(7, 4), "", "7/4"),
        (Fraction(1, 64), "word", "a 64th"),
        (12, "word", "twelve"),
        (0.155, "%", "16%"),
        (2.5, ".2f", "2.50"),
    ],
)
def test_a_figure_is_written_as_asked(value: float, way: str, said: str) -> None:
    assert writing.show(value, way) == said


def test_a_sum_shows_its_parts_and_its_value() -> None:
    names = {"m": 8, "f": 1, "b": 0.5, "u": 0.5}
    assert writing.shown("m * (f + b + b) + u:=", names) == "8 x (1 + 0.5 + 0.5) + 0.5 = 16.5"
    assert writing.shown("m - (f - b):=.0f", names) == "8 - (1 - 0.5) = 8"
    assert writing.shown("m / (f * u):=", names) == "8 / (1 x 0.5) = 16"


@pytest.mark.parametrize("parts", [[1, 1, 1], [1, 2, 3], [0.1, 0.2, 0.05, 7], [5], [664, 335, 1]])
def test_shares_of_one_whole_add_up(parts: list[float]) -> None:
    found = words.shares(parts)
    assert sum(found) == 1
    for share, part in zip(found, parts, strict=True):
        assert abs(share - Fraction(str(part)) / sum(map(Fraction, map(str, parts)))) < Fraction(1, 100)


def test_a_program_runs_once_at_one_size(tmp_path: Path) -> None:
    names = programs.program("p.py", PROGRAM)
    first = programs.once(names["basic"], layers=2, batches=4, cost=Cost())
    assert programs.once(names["basic"], batches=4, cost=Cost(), layers=2) is first
    assert programs.once(names["basic"], batches=4, cost=Cost(forward=2), layers=2) is not first


def test_no_page_depends_on_how_fast_a_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lib, "run", lambda *_, timeout, **__: SimpleNamespace(time=timeout))
    assert programs.once(lambda model: model, 2).time == programs.PATIENCE
    assert programs.once(lambda model: model, 2, timeout=1).time == 1
