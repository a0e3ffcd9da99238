"""Of a student's seconds, only those count in which the worker runs what the student has written."""

import math
from contextlib import closing
from typing import Any

import pytest

from lib.course.specs import puzzles
from lib.grading.verdict import FAIL, PASS
from lib.recording.replay import Replay
from lib.recording.wire import Wire
from lib.referee.attempts import Attempt
from lib.referee.examiner import Judge
from lib.referee.loaded import Submission
from lib.referee.referee import Referee
from lib.referee.sandbox import Worker
from lib.referee.session import CHECKING, Allowance, Turn
from tests.corpus import HEAD, function

HONEST = HEAD + function("ddp")
PROGRAMS = {
    "right": HONEST,
    "wrong at another size": HONEST.replace("    return model", "    assert model.RANKS == 4\n    return model"),
    "too large, so that its peak is looked at": HONEST.replace(".pop(layer)", "[layer]").replace(
        ".pop(layer + 1)", "[layer + 1]"
    ),
    "wrong": HONEST.replace("model.update", "model.none"),
    "not there": "x = 1\n",
    "not to be loaded": "def ddp(model) 1\n",
    "of another puzzle": HEAD + function("fsdp").replace("def fsdp", "def ddp"),
}


@pytest.mark.process
@pytest.mark.parametrize("name", PROGRAMS)
def test_only_a_students_own_code_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now, seen = [(math.inf, False)], list[tuple[str, bool]]()

    def noted(owner: Any, method: str) -> None:
        before = getattr(owner, method)

        def called(self: Any, *rest: Any) -> Any:
            seen.append((method, now[-1][1]))
            return before(self, *rest)

        monkeypatch.setattr(owner, method, called)

    for owner, method in ((Replay, "play"), (Worker, "begin"), (Worker, "close"), (Wire, "receive_line")):
        noted(owner, method)
    watch = lambda seconds, learners: now.append((seconds, learners))  # noqa: E731
    with closing(Judge(Referee(20.0, watch=watch))) as judge:
        verdict = judge.verdict(Attempt(puzzles()["ddp"], Submission("x.py", PROGRAMS[name])))
    assert (verdict.status == PASS) == (name == "right")
    assert {method for method, learners in seen if learners} == {"receive_line"}
    assert now[-1] == (math.inf, False)


def test_what_the_grader_takes_to_check_is_limited_too_and_said() -> None:
    """A flood of calls is cheap to send."""
    allowance = Allowance(10.0, used=9.0, checked=10.0 * CHECKING - 1)
    assert not allowance.used_up()
    allowance.checked += 1
    turn = Turn([Attempt(puzzles()["ddp"], None)], ["ddp"], allowance=allowance)
    assert turn.due() is None and turn.verdicts[0].status == FAIL
    assert turn.verdicts[0].message.startswith(
        "not graded: to check the calls of this student's programs has taken 40 s"
    )
