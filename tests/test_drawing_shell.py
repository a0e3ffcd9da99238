"""``python -m lib draw``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drawing.shell import DRAWN, FAILED, USAGE, main

ROOT = Path(__file__).resolve().parent.parent
GPIPE = str(ROOT / "solutions" / "p06_gpipe.py")

OWN = """
from lib import run

async def mine(model):
    model.weights[0], _ = model.load_weights(0)
    model.activations[0] = model.forward(0, model.get_activation([0]), model.weights[0])

run(mine)  # an experiment: not run again
print("never printed")
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return str(path)


@pytest.mark.process
def test_from_the_command_line(own: str, tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    command = [sys.executable, "-W", "error", "-m", "lib", "draw", f"{own}:mine", "--ranks", "2", "-o", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{out} is written\n", "")
    assert out.read_text(encoding="utf-8").startswith("<svg ")


@pytest.mark.process
@pytest.mark.parametrize("command", ["draw", "run"])
def test_nothing_is_said_where_nobody_reads_on(own: str, command: str) -> None:
    """As in ``python -m lib draw rows.csv | head``."""
    whole = [sys.executable, "-m", "lib", command, f"{own}:mine", "--ranks", "2"]
    process = subprocess.Popen(whole, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == ("", 1)
    process.stderr.close()


def test_without_a_file_the_grid_is_printed(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([own, "--ranks", "2"]) == DRAWN
    spent = "where the time of all ranks goes: forward 100%"
    assert capsys.readouterr().out.splitlines()[1:] == [spent, "tick    0", "rank 0  0F0", "rank 1  0F0"]


def test_a_puzzles_function_is_run_at_the_puzzles_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{GPIPE}:gpipe"]) == DRAWN
    assert capsys.readouterr().out.startswith("gpipe on 4 ranks: time 33.8 ticks, peak memory 2,883,584 elements")
    assert main([f"{GPIPE}:gpipe", "--layers", "4", "--batches", "2"]) == DRAWN
    assert "gpipe on 4 ranks" in capsys.readouterr().out
    replica = str(ROOT / "solutions" / "p08_replica_fsdp.py")
    mesh = ["--ranks", "4", "--layers", "2", "--batches", "8", "--mesh", "replica=2,shard=2", "--node-size", "2"]
    assert main([f"{replica}:replica_fsdp", *mesh]) == DRAWN
    assert "replica_fsdp on 4 ranks" in capsys.readouterr().out


@pytest.mark.parametrize("ending", ["svg", "html", "json", "txt"])
def test_the_ending_says_what_is_written(ending: str, tmp_path: Path) -> None:
    out = tmp_path / f"schedule.{ending}"
    assert main([f"{GPIPE}:gpipe", "--title", "A title", "-o", str(out)]) == DRAWN
    text = out.read_text(encoding="utf-8")
    if ending == "json":
        assert json.loads(text)["traceEvents"]
    elif ending == "txt":
        assert text.startswith("gpipe on 4 ranks")
    else:
        assert "A title" in text
        assert text.startswith("<!doctype html>" if ending == "html" else "<svg ")


def test_several_functions_are_compared_and_one_is_played(tmp_path: Path) -> None:
    size = ["--ranks", "4", "--layers", "8", "--batches", "4"]
    both = tmp_path / "both.svg"
    assert main([f"{GPIPE}:gpipe", f"{GPIPE}:one_forward_one_backward", *size, "-o", str(both)]) == DRAWN
    assert "2 schedules under one time axis" in both.read_text(encoding="utf-8")
    assert main([f"{GPIPE}:gpipe", f"{GPIPE}:gpipe", *size, "-o", str(both)]) == DRAWN
    assert f"{GPIPE}:gpipe (4 ranks" in both.read_text(encoding="utf-8")
    page = tmp_path / "page.html"
    assert main([f"{GPIPE}:gpipe", "--play", "-o", str(page)]) == DRAWN
    assert "const data = " in page.read_text(encoding="utf-8")


def test_a_notebook_can_be_drawn(own: str, tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": OWN}]
    path = tmp_path / "own.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert main([f"{path}:mine", "-o", str(tmp_path / "x.txt")]) == DRAWN


def test_rows_of_a_schedule_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the size of the rows, or with more layers; what is wrong with them says where."""
    rows, out = tmp_path / "mine.csv", tmp_path / "mine.svg"
    rows.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", encoding="utf-8")
    assert main([str(rows), "-o", str(out)]) == DRAWN
    assert "<svg" in out.read_text(encoding="utf-8")
    assert main([str(rows), "--layers", "4"]) == DRAWN
    assert "mine on 2 ranks" in capsys.readouterr().out
    rows.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1X1\n", encoding="utf-8")
    assert main([str(rows)]) == FAILED
    assert "the row of rank 1, column 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.py:f"], "cannot be read"),
        ([f"{GPIPE}:gpip"], "it has gpipe, one_forward_one_backward"),
        ([GPIPE], "which function of"),
        ([f"{GPIPE}:gpipe", "-o", "x.png"], ".svg, .html, .json, .txt"),
        ([f"{GPIPE}:gpipe", "--play"], "-o schedule.html"),
        ([f"{GPIPE}:gpipe", f"{GPIPE}:gpipe", "-o", "x.json"], "one schedule"),
        ([f"{GPIPE}:gpipe", f"{GPIPE}:gpipe", "-o", "x.svg", "--title", "x"], "for one function"),
    ],
)
def test_what_is_not_understood_says_why(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == USAGE
    assert says in capsys.readouterr().err


def test_axes_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([f"{GPIPE}:gpipe", "--mesh", "replica"])
    assert caught.value.code == USAGE
    assert "replica=2,shard=4" in capsys.readouterr().err


def test_a_function_that_fails_is_drawn_up_to_its_error_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("async def wrong(model):\n    await model.receive()\n", encoding="utf-8")
    assert main([f"{path}:wrong", "-o", str(tmp_path / "x.svg")]) == FAILED
    assert "receive from anyone" in capsys.readouterr().err
    assert "rank 0 waits for a message from any rank" in (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert main([f"{path}:wrong", "--ranks", "2"]) == FAILED
    said = capsys.readouterr()
    assert said.out.splitlines()[1:4] == ["tick    0", "rank 0  ~", "rank 1  ~"] and "deadlock" in said.err


def test_where_nothing_was_run_nothing_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("def wrong(): ...\n", encoding="utf-8")
    assert main([f"{path}:wrong", "-o", str(tmp_path / "x.svg")]) == FAILED
    assert "the model" in capsys.readouterr().err and not (tmp_path / "x.svg").exists()
    assert main([f"{GPIPE}:gpipe", "-o", str(tmp_path / "no" / "x.svg")]) == FAILED
    assert "cannot be written" in capsys.readouterr().err
