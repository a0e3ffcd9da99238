"""The same calls at the same size are carried out once, whoever sends them, and the verdicts are the same."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import pytest

from lib.course.sizes import other_sizes
from lib.course.specs import puzzles
from lib.grading.verdict import FAIL, PASS, Verdict
from lib.machine.outcome import Outcome
from lib.recording.replay import Replay
from lib.referee import known
from lib.referee.attempts import Attempt
from lib.referee.examiner import Judge
from lib.referee.loaded import Submission
from lib.referee.referee import Referee
from tests.corpus import HEAD, function

pytestmark = pytest.mark.process
DDP = puzzles()["ddp"]
SIZES = 1 + len(other_sizes(DDP.other_sizes, DDP.size))
HONEST = HEAD + function("ddp")
OTHER_WORDS = HONEST.replace("model", "machine").replace("machine: Model", "machine") + "\n# in other words\n"
AT_FOUR = HONEST.replace("    return model", "    assert model.RANKS == 4\n    return model")
OTHER_CALLS = HONEST.replace(".activations.pop(model.LAYERS)", ".activations[model.LAYERS]")
LARGE = (
    OTHER_CALLS.replace(".pop(layer)", "[layer]")
    .replace(".pop(layer + 1)", "[layer + 1]")
    .replace("grad = await", "model.grad_weights[layer] = grad\n        grad = await")
)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Each replay that this process begins."""
    begun: list[Any] = []
    play = Replay.play

    def counted(self: Replay, *rest: Any) -> None:
        begun.append(self)
        play(self, *rest)

    monkeypatch.setattr(Replay, "play", counted)
    yield begun


def verdict(judge: Judge, source: str, name: str = "ddp") -> Verdict:
    """The verdict on an answer, but for how long it took."""
    return replace(judge.verdict(Attempt(puzzles()[name], Submission("x.py", source))), seconds=0.0)


def test_who_makes_the_same_calls_gets_the_same_verdict_and_no_replay(replays: list[Any]) -> None:
    with closing(Judge(Referee(20.0))) as judge:
        first = verdict(judge, HONEST)
        assert first.status == PASS and len(replays) == SIZES
        assert verdict(judge, OTHER_WORDS) == first and len(replays) == SIZES
        assert verdict(judge, OTHER_CALLS).status == PASS and len(replays) == 2 * SIZES


def test_what_fails_is_carried_out_again_and_fails_again(replays: list[Any]) -> None:
    with closing(Judge(Referee(20.0))) as judge:
        assert verdict(judge, HONEST).status == PASS
        for _ in range(2):
            replays.clear()
            failed = verdict(judge, AT_FOUR)
            assert (failed.status, failed.right) == (FAIL, False) and "assert model.RANKS == 4" in failed.message
            assert [type(one) for one in replays].count(Replay) == 1  # its own size is known


def test_lines_in_a_verdict_are_those_of_whose_it_is(replays: list[Any]) -> None:
    """Notes on a peak name a learner's lines, and two who do the same wrote them in other places."""
    with closing(Judge(Referee(20.0))) as judge:
        first = verdict(judge, LARGE)
        replays.clear()
        second = verdict(judge, "\n" * 7 + LARGE)
    lines = [[int(row["made"]["line"].split()[1].rstrip(":")) for row in one.peak] for one in (first, second)]
    assert lines[0] and lines[1] == [line + 7 for line in lines[0]]


def test_the_same_calls_of_another_size_or_puzzle_are_others() -> None:
    size = DDP.size
    recorded = known.Recorded(0, "ddp", size, "default", b"[]", 0.0)
    others = [{"name": "wsdp"}, {"size": size | {"batches": 8}}, {"cost": "gpt_3_on_a100"}, {"line": b"[1]"}]
    assert len({recorded.digest, *(recorded._replace(**other).digest for other in others)}) == 1 + len(others)
    assert recorded.digest == recorded._replace(number=3, deadline=9.0, size={**size}).digest


def test_outcomes_are_forgotten_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MOST_BYTES", 10)
    recorded = [known.Recorded(0, "ddp", DDP.size, "default", bytes([65 + place] * 4), 0.0) for place in range(3)]
    found, outcomes = known.Known(), [cast(Outcome, object()) for _ in recorded]
    for one, outcome in zip(recorded[:2], outcomes, strict=False):
        found.keep(one, outcome)
    assert found.outcome(recorded[0]) is outcomes[0]
    found.keep(recorded[2], outcomes[2])
    assert [found.outcome(one) for one in recorded] == [None, outcomes[1], outcomes[2]]
