"""What a rank prints says whose it is, and when."""

import sys
from contextlib import closing

import pytest

from lib import Dist, Model, run
from lib.course.specs import puzzles
from lib.referee.loaded import Loaded, Submission
from lib.referee.referee import Referee


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_print_begins_with_rank_and_tick(capsys: pytest.CaptureFixture[str]) -> None:
    async def talk(model: Model) -> None:
        print("at first", 1)
        if model.rank == 0:
            await model.pass_to(1, "x")
        else:
            print("got", await model.receive())

    run(talk, ranks=2)
    print("after")
    assert sorted(lines(capsys)) == [
        "[rank 0, tick 0] at first 1",
        "[rank 1, tick 0.4] got x",
        "[rank 1, tick 0] at first 1",
        "after",
    ]


def test_lines_of_two_ranks_do_not_run_into_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    async def talk(model: Model) -> None:
        print("a", end=" ")
        print("b", end=" ")
        await model.allreduce(model.fake_grad(0, []), 0)
        print("c\nd")
        print()

    run(talk, ranks=2, layers=1)
    assert lines(capsys) == [
        "[rank 0, tick 0] a b ",
        "[rank 1, tick 0] a b c",  # the last one to come goes on first
        "d",
        "[rank 1, tick 0.3] ",
        "[rank 0, tick 0.3] c",
        "d",
        "[rank 0, tick 0.3] ",
    ]


def test_status_is_labelled_once_by_hand_too(capsys: pytest.CaptureFixture[str]) -> None:
    def program(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.status()

    run(program, layers=1)
    inside = lines(capsys)
    program(Model(0, Dist(1), 1, 1))
    assert lines(capsys) == inside
    assert inside[0] == "[rank 0, tick 0] 262,144 elements stored"
    assert inside[1].startswith("  weights[0] = Weight(")


def test_a_run_inside_a_rank_names_the_inner_rank_only(capsys: pytest.CaptureFixture[str]) -> None:
    def inner(model: Model) -> None:
        print("inner")

    def outer(model: Model) -> None:
        run(inner, ranks=2)
        print("outer")

    run(outer)
    assert lines(capsys) == ["[rank 0, tick 0] inner", "[rank 1, tick 0] inner", "[rank 0, tick 0] outer"]


def test_the_stream_comes_back_whatever_happens(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout

    def breaks(model: Model) -> None:
        print("so far", flush=True)
        raise ValueError

    with pytest.raises(AssertionError):
        run(breaks)
    assert sys.stdout is before
    assert lines(capsys) == ["[rank 0, tick 0] so far"]


@pytest.mark.process
def test_at_a_shell_too() -> None:
    said: list[str] = []
    source = "def basic(model):\n    model.get_activation([0])\n    print('hello')\n"
    with closing(Loaded(Submission("x.py", source), Referee(20.0))) as code:
        code.run("basic", puzzles()["basic"].size, said)
    assert said == ["[rank 0, tick 0] hello\n"]
