"""An error as a notebook or IPython shows it: the message and the learner's line, no frame of ours, and the picture."""

import asyncio
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from drawing import notebook
from lib import Deadlock, Dist, Model, PuzzleError, run
from lib.basics.errors import COLUMNS, Spot
from tests.failures import CASES, failed
from tests.kernels import Outputs, htmls, in_a_kernel, text

SETUP = "import sys; sys.path.insert(0, {!r})\nfrom lib import Model, run\nfrom drawing import draw"
ROOT = Path(__file__).resolve().parent.parent
FORGOTTEN = """
async def ddp(model):
    weight, state = model.load_weights(0, model.rank, model.RANKS)
    model.weights[0] = weight
    model.activations[0] = model.get_activation([model.rank])
    model.weights[1] = model.allgather(weight, 0)
    model.activations[1] = model.forward(0, model.activations[0], model.weights[1])
    # the end
    return model
draw(run(ddp, ranks=2, layers=1, batches=2))
"""
SHOWN = """\
PuzzleError: rank 0, weights[1]: only tensors can be stored in weights: did you forget
    `await`?
  got:      <allgather(layer 0) of rank 0, in flight>

      3     model.weights[0] = weight
      4     model.activations[0] = model.get_activation([model.rank])
----> 5     model.weights[1] = model.allgather(weight, 0)
      6     model.activations[1] = model.forward(0, model.activations[0], model.weights[1])
      7     # the end"""


def rendered(error: PuzzleError) -> str:
    """What IPython prints."""
    return "\n".join(error._render_traceback_())


def case(name: str) -> Any:
    return next(case for case in CASES if case.fn.__name__ == name)


def test_the_line_stands_among_its_neighbors() -> None:
    lines = rendered(failed(case("wrong_operand"))).splitlines()
    code = lines[lines.index("") + 1 :]
    assert len(code) == 5 and code[2].startswith("---->") and "model.forward(0," in code[2]
    assert not any(line.startswith("---->") for line in (*code[:2], *code[3:]))
    assert not any("at:  " in line for line in lines)


def test_an_exception_of_the_learners_is_told_with_what_led_to_it() -> None:
    said = rendered(failed(case("own_exception")))
    assert "  called at: line " in said and "helper(model)" in said
    assert "  after:    KeyError: 'x'" in said
    assert re.search(r"^----> +\d+ .*model\.nothing", said, re.MULTILINE)
    assert "Traceback" not in said and "lib/" not in said


def test_a_deep_recursion_stays_short() -> None:
    def deep(model: Any, depth: int = 0) -> None:
        deep(model, depth + 1) if depth < 50 else model.nothing

    with pytest.raises(PuzzleError) as caught:
        run(deep)
    assert rendered(caught.value).count("called at: ") == 3


def test_a_deadlock_shows_the_lines_at_which_ranks_wait() -> None:
    said = rendered(failed(case("left_early")))
    head = (
        "Deadlock: no rank can ever go on\n  rank 3 has returned\n  ranks 0-2 wait for rank 3 in all-reduce of layer 0"
    )
    assert said.startswith(f"{head}, since tick 1\n\nranks 0-2 wait here:\n")
    assert said.count("---->") == 1


def test_of_a_deadlock_of_many_only_the_first_are_named() -> None:
    said = rendered(failed(CASES[-1])).splitlines()
    assert said[1:3] == [f"  {sentence}" for sentence in CASES[-1].sentences[:2]]
    assert "  and 56 more like these" in said and len(said) < 30


def test_a_deadlock_by_hand_lists_who_waits() -> None:
    async def waits(model: Model) -> None:
        await model.receive()

    async def both() -> None:
        dist = Dist(2)
        await asyncio.gather(*[waits(Model(rank, dist, 1, 1)) for rank in range(2)])

    with pytest.raises(Deadlock) as caught:
        asyncio.run(both())
    said = rendered(caught.value)
    assert "ranks 0, 1 wait for receive from anyone" in said
    assert "ranks 0, 1 wait here:" in said and "await model.receive()" in said


def test_a_line_that_cannot_be_had_is_told_as_before() -> None:
    error = PuzzleError("oh", line="line 3 in f: x")
    assert rendered(error) == "PuzzleError: oh\n  at:       line 3 in f: x"
    spot = Spot("line 9 in f")
    spot.file, spot.number = "no such file", 9
    assert rendered(PuzzleError("oh", line=spot)) == "PuzzleError: oh\n  at:       line 9 in f"


def test_plain_python_shows_what_it_always_did() -> None:
    error = failed(case("wrong_operand"))
    assert str(error) in "".join(traceback.format_exception(error))
    assert "  at:       line " in str(error)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A shell of IPython's, with what drawing adds to it."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    config = Config()
    config.HistoryManager.enabled = False
    before, hook = sys.modules.get("__main__"), sys.displayhook
    opened = InteractiveShell.instance(config=config)
    try:
        notebook.register()
        notebook.register()
        opened.run_cell(SETUP.format(str(ROOT)))
        yield opened
    finally:
        InteractiveShell.clear_instance()
        sys.displayhook = hook
        if before is not None:
            sys.modules["__main__"] = before


def shown(shell: Any, cell: str) -> tuple[str, list[dict[str, str]]]:
    """What a cell prints, and what it displays."""
    with capture_output() as captured:
        shell.run_cell(cell)
    return captured.stdout, [output.data for output in captured.outputs]


def test_a_shell_shows_the_message_the_line_and_the_run(shell: Any) -> None:
    said, displayed = shown(shell, FORGOTTEN)
    assert said.strip() == SHOWN
    [picture] = displayed
    assert "<svg" in picture["text/html"] and "the error is on rank 0 at tick 0" in picture["text/html"]
    assert picture["text/plain"].splitlines()[1:3] == ["tick    0", "rank 0  0AG!"]


def test_a_cell_that_plays_shows_a_player(shell: Any) -> None:
    cell = FORGOTTEN.replace("draw(run", "from drawing import play\nplay(run")
    said, [player] = shown(shell, cell)
    assert said.strip() == SHOWN and "<iframe " in player["text/html"]


def test_an_error_without_a_run_has_no_picture(shell: Any) -> None:
    said, displayed = shown(shell, "draw(3)")
    assert said.startswith("PuzzleError: draw takes a Run") and "----> 1 draw(3)" in said and displayed == []


def test_other_errors_are_left_alone(shell: Any) -> None:
    said, displayed = shown(shell, "1 / 0")
    assert "Traceback" in said and "ZeroDivisionError" in said and displayed == []


@pytest.mark.process
def test_a_notebook_shows_the_picture_below_the_message(tmp_path: Path) -> None:
    cells = [SETUP.format(str(ROOT)), FORGOTTEN, "print(6 * 7)"]
    setup, broken, after = asyncio.run(in_a_kernel(tmp_path, cells))
    assert setup == [] and text(after) == "42\n"
    [error, picture] = broken
    assert (error["output_type"], error["ename"]) == ("error", "PuzzleError")
    assert "\n".join(error["traceback"]) == SHOWN
    _flagged([picture])


def _flagged(outputs: Outputs) -> None:
    [html] = htmls(outputs)
    assert "only tensors can be stored" in html and "the error is on rank 0 at tick 0" in html


def test_a_notebook_breaks_no_word_of_an_error() -> None:
    """Its lines have room for COLUMNS letters; what it breaks itself, it breaks anywhere."""
    for one in CASES:
        error = failed(one)
        said = rendered(error).partition("\n\n")[0]
        assert all(len(line) <= COLUMNS or " " not in line.strip() for line in said.splitlines()), said
        words = " ".join([str(error), *getattr(error, "briefly", ())]).split()
        assert {word for word in said.split() if len(word) > 30} <= {*words, *said.split()}


def test_the_pieces_of_a_line_stand_below_its_text() -> None:
    error = PuzzleError("a problem", expected="brief", got="in one word " * 12, where="here")
    lines = rendered(error).splitlines()
    assert lines[1] == "  expected: brief" and lines[2].startswith("  got:      in one word")
    assert lines[3].startswith(" " * 12 + "one word") and len(lines[2]) <= COLUMNS
