"""How a run stands to the puzzle of its name is found once, for the first picture of it."""

import pytest

from drawing import draw
from drawing.ink import standing
from drawing.ink.trace import trace_of
from lib import Model, Run, run
from lib.course.specs import puzzles
from lib.machine import outcome
from tests.programs import solved


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been checked, in order."""
    done: list[str] = []
    for module, name in ((standing, "check"), (outcome, "check_finals")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, real=real, name=name, **k: (done.append(name), real(*a, **k))[1])
    return done


def test_two_pictures_of_a_run_check_it_once(asked: list[str]) -> None:
    done = solved("fsdp")
    draw(done)
    draw(done)
    assert asked == ["check_finals", "check"]


def test_what_is_proved_is_not_proved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done = solved("fsdp")
    assert done.fault == ""
    monkeypatch.setattr("lib.machine.outcome.check_finals", None)
    assert trace_of(done).fault == "" and trace_of(done).time_target == puzzles()["fsdp"].target["time"]


def test_a_run_that_does_not_train_the_model_is_not_asked_further(asked: list[str]) -> None:
    def fsdp(model: Model) -> None:
        model.forward(0, model.get_activation([model.rank]), model.load_weights(0)[0])

    done = run(fsdp, **puzzles()["fsdp"].size)
    assert "no final weight" in trace_of(done).fault
    assert asked == ["check_finals"] and standing.standing_of(done) == (puzzles()["fsdp"], "")


def test_a_right_run_in_a_way_that_the_puzzle_does_not_ask_for_is_refused_in_a_line() -> None:
    done = misnamed("ddp", "fsdp")
    assert trace_of(done).fault == standing.standing_of(done).refused != ""
    assert "\n" not in standing.standing_of(done).refused


def misnamed(name: str, as_if: str) -> Run:
    """The run of a solution at the size of another puzzle, and under its name."""
    from solutions import p02_ddp

    async def program(model: Model) -> None:
        await getattr(p02_ddp, name)(model)

    program.__name__ = as_if
    return run(program, **puzzles()[as_if].size)
