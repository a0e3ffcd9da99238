"""What a verdict tells of an error, in parts: the same in a notebook and at a shell, and what is read off them."""

import json
import math
from functools import cache
from typing import Any
from xml.etree import ElementTree

import pytest

from lib import Model, PuzzleError, grade, run, why
from lib.basics.errors import Place
from lib.course import outlines
from lib.course.ideas import IDEAS
from lib.course.specs import puzzles
from lib.grading import page
from lib.grading.judge import judge
from lib.grading.verdict import FAIL, Mistake, Report, Verdict
from lib.recording.safe import pack_error
from lib.recording.wire import Wire
from lib.referee.files import as_json
from tests.corpus import Program
from tests.corpus.mistakes import MISTAKES
from tests.test_corpus import function, near, titles
from tests.test_grading import SOLUTIONS

NAMES = """
ddp: the weight of the wrong layer
ddp: no sum
gpipe: an input out of range
fsdp: no gather
fsdp: no await at the gather
pipeline: all receive first
grad_accum: all at once
fsdp: data parallel
fsdp: final weights of rank 0 only
fsdp: six layers in mind
replica_fsdp: two replicas in mind
"""
TOLD = [
    program for program, title in zip(MISTAKES, titles(MISTAKES), strict=True) if title in NAMES.strip().split("\n")
]


@cache
def in_a_notebook(program: Program) -> Verdict:
    return grade(function(program), program.puzzle).verdict  # type: ignore[arg-type]


def told(verdict: Verdict) -> str:
    """The message, put together from the parts."""
    assert verdict.error is not None
    problem, place, expected, got, line, _ = verdict.error
    error = PuzzleError(problem, where=place, expected=expected, got=got, line=line)
    held = f"right at its own size, but not with {verdict.failed_at}\n" if verdict.failed_at else ""
    return f"{held}{error}"


@pytest.mark.parametrize("program", TOLD, ids=titles(TOLD))
def test_the_parts_are_the_same_in_a_notebook_and_at_a_shell(program: Program) -> None:
    assert len(TOLD) == len(NAMES.strip().split("\n"))
    here, far = in_a_notebook(program), near(program)
    assert here.error is not None and far.error is not None
    assert here.error._replace(line="") == far.error._replace(line="")
    assert "test_corpus.py" in far.error.line or here.error.line == far.error.line  # else no line is the learner's
    assert told(here) == here.message and told(far) == far.message


def test_the_place_is_told_in_fields() -> None:
    def ddp(model: Model) -> None:
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        model.activations[0] = model.get_activation([model.rank])
        model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
        model.forward(1, model.activations[1], model.weights[0])

    verdict = grade(ddp).verdict
    error = verdict.as_json()["error"]
    where, line = error.pop("where"), error.pop("line")
    assert error == {
        "problem": "the weight is that of layer 0",
        "expected": "layer 1",
        "got": "Weight(layer=0, layers=2, step=0, shards={0}, total=1)",
        "rule": "layer_mismatch",
    }
    assert where.pop("text") in verdict.message
    assert where == {"rank": 0, "operation": "forward", "layer": 1, "micro_batches": [0], "tick": 1.0, "detail": ""}
    assert line.endswith("model.forward(1, model.activations[1], model.weights[0])")


def test_blank_or_over_the_target_is_no_error() -> None:
    [slow] = [program for program in MISTAKES if program.name == "a gather too many"]
    for verdict, right in ((grade(lambda model: model, "basic").verdict, None), (in_a_notebook(slow), True)):
        assert verdict.right is right and verdict.error is None and verdict.as_json()["error"] is None


def test_of_a_slow_program_the_chain_is_told_as_a_sum_and_what_comes_too_often() -> None:
    [slow] = [program for program in MISTAKES if program.name == "one micro-batch all the way at a time"]
    for verdict in (in_a_notebook(slow), near(slow)):
        assert verdict.chain == "74.6 = 32 forward + 32 backward + 9.6 messages + 1 update"
        assert f"where the time goes:  {verdict.chain} (the longest chain" in page.text(verdict, why=True)
        assert verdict.chain not in page.text(verdict) and verdict.as_json()["chain"] == verdict.chain


def test_of_what_is_fast_enough_or_wrong_no_chain_is_told() -> None:
    [big] = [program for program in MISTAKES if program.name == "the activations kept"][:1]
    for verdict in (in_a_notebook(big), in_a_notebook(TOLD[0]), grade(SOLUTIONS["grad_accum"]).verdict):
        assert verdict.chain == "" and "where the time goes" not in dict(verdict.facts())


def test_what_is_right_and_within_the_target_is_not_explained() -> None:
    verdict = grade(SOLUTIONS["ddp"]).verdict
    assert verdict.explanation is None and verdict.as_json()["explanation"] is None and not verdict.as_json()["peak"]


@pytest.mark.parametrize("program", TOLD, ids=titles(TOLD))
def test_the_verdict_is_short_and_says_the_same_at_a_shell(program: Program) -> None:
    here, far = in_a_notebook(program), near(program)
    lines = page.text(here).split("\n")
    figures = lines[-1] if "hint(" in lines[-1] else ""
    assert 2 <= len(lines) <= 4 and figures
    assert sum(len(line.split()) for line in lines[:-1]) <= 52, lines  # status, number and name among them
    assert here.explanation is not None and far.explanation is not None
    assert far.as_json()["explanation"].keys() == here.as_json()["explanation"].keys()
    assert [one.name for one in here.explanation.statements()] == [one.name for one in far.explanation.statements()]


@pytest.mark.parametrize("name", IDEAS)
def test_the_sentence_of_an_idea_is_told_whole(name: str) -> None:
    error = PuzzleError("idea", expected=IDEAS[name].sentence, line="", found="word " * 40, idea=name)
    verdict = Verdict(puzzles()["fsdp"], FAIL, str(error), error=Mistake.of(error))
    for shown in (page.text(verdict), "".join(ElementTree.fromstring(page.table(verdict)).itertext())):
        assert f'on the page: "{IDEAS[name].sentence}"' in shown


def test_why_says_more_than_a_verdict_and_each_level_more() -> None:
    [program] = [program for program in TOLD if program.name == "no gather"]
    grade(function(program), program.puzzle)  # type: ignore[arg-type]
    levels = [why(level) for level in (1, 2, 3)]
    assert len(levels[0]) < len(levels[1]) and levels[2].startswith(levels[1]) and "right run" not in levels[0]
    assert levels[2].endswith("a right run has `weight = await model.allgather(model.weights[layer], layer)`")
    with pytest.raises(PuzzleError, match="three levels"):
        why(4)


def test_why_explains_a_run_that_has_failed() -> None:
    [program] = [program for program in TOLD if program.name == "no gather"]
    fn: Any = function(program)
    with pytest.raises(PuzzleError):
        run(fn, **puzzles()["fsdp"].size)
    assert "forward(layer 0" in why() and "allgather" in why()


def test_without_what_is_secret_the_star_has_no_outline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an agent's container."""
    monkeypatch.setattr(outlines, "programs", dict)
    with pytest.raises(PuzzleError, match="the outline of the star of ddp is not here"):
        outlines.outline(puzzles()["ddp"], "star")


def bound_of(name: str, fn: Any) -> tuple[Verdict, str]:
    """A verdict, and what it tells of the bound, which is the same wherever it is told."""
    verdict = grade(fn, name).verdict
    said = dict(verdict.facts()).get("bound", "")
    for shown in (page.text(verdict, why=True), page.table(verdict)):
        assert said in shown and ("bound" in shown) == bool(said)
    return verdict, said


def test_the_bound_is_told_between_time_and_memory() -> None:
    verdict, said = bound_of("one_f_one_b", SOLUTIONS["one_f_one_b"])
    assert said == (
        "no program that passes is faster than 40.9 ticks; "
        "if each rank has one stage and updates it, none is faster than 47.4"
    )
    assert [name for name, _ in verdict.facts()][:3] == ["time", "bound", "peak memory"]
    assert verdict.as_json()["bound"] == {"time": 40.9, "one_stage": 47.4}
    assert verdict.right and "the bound" not in verdict.message


def test_where_there_is_one_bound_only_one_is_told() -> None:
    verdict, said = bound_of("breadth_first", SOLUTIONS["breadth_first"])
    assert said == "no program that passes is faster than 39.9 ticks"
    assert verdict.as_json()["bound"] == {"time": 39.9, "one_stage": None}


def test_what_meets_the_bound_hears_so() -> None:
    from solutions.p06_gpipe import one_forward_one_backward_ahead
    from solutions.p16_zero_bubble import zb_h1

    star, told = "Correct, and the star is yours.", "no program that passes is faster: {} ticks is the bound."
    verdict, _ = bound_of("zero_bubble", zb_h1)
    assert verdict.message.startswith(f"{star} {told.format(19.5).capitalize()} These figures are")
    verdict, _ = bound_of("gpipe", one_forward_one_backward_ahead)
    assert verdict.message == f"{star} If each rank has one stage and updates it, {told.format(31.4)}"
    assert "bound" not in grade(SOLUTIONS["zero_bubble"]).verdict.message


@pytest.mark.parametrize(("name", "of"), [("fsdp", "fsdp"), ("repair_deadlock", "pipeline")])
def test_of_what_is_no_pipeline_and_of_repairs_none_is_told(name: str, of: str) -> None:
    verdict, said = bound_of(name, SOLUTIONS[of])
    assert verdict.time is not None and said == "" and verdict.as_json()["bound"] is None


def rows(verdict: Verdict) -> dict[str, str]:
    """The table of a verdict, by the name of the row."""
    root = ElementTree.fromstring(page.table(verdict))
    return {"".join(row[0].itertext()): "".join(row[1].itertext()) for row in root.iter("tr")}


@pytest.mark.parametrize("program", TOLD, ids=titles(TOLD))
def test_the_table_and_the_long_text_have_each_part(program: Program) -> None:
    verdict = in_a_notebook(program)
    error, table = verdict.error, rows(verdict)
    assert error is not None
    assert table["wrong"] == error.problem
    assert list(table)[1 : 1 + len(error.parts)] == [name for name, _ in error.parts]
    assert {name: table[name] for name, _ in error.parts} == dict(error.parts)
    assert not verdict.failed_at or f"with {verdict.failed_at}" in page.text(verdict).split("\n")[0]
    for part in (error.problem, error.expected, error.got, error.line):
        for line in part.split("\n"):
            assert line in page.text(verdict, why=True)


def test_what_a_learner_writes_is_only_shown() -> None:
    error = PuzzleError("<b>", where=Place(1, detail="<i>"), got="<u>", line="<p>")
    verdict = Verdict(puzzles()["ddp"], FAIL, str(error), error=Mistake.of(error))
    assert rows(verdict) == {"wrong": "<b>", "where": "rank 1, <i>", "got": "<u>", "at": "<p>"}


class Bare(PuzzleError):
    def __init__(self) -> None: ...

    def __str__(self) -> str:
        return "oh"


def test_errors_of_a_learners_own_kind_have_what_they_have() -> None:
    assert Mistake.of(Bare()) == Mistake("oh")
    odd = PuzzleError("oh", where=Place(0, layer="x"), got=3, line="")  # type: ignore[arg-type]
    assert Mistake.of(odd) == Mistake("oh", Place(0, detail="layer x, "), got="3")

    def raises(model: Model) -> None:
        raise Bare

    verdict = grade(raises, "basic").verdict
    assert (verdict.status, verdict.message, verdict.error) == (FAIL, "oh", Mistake("oh"))


@pytest.mark.parametrize("tick", [math.inf, math.nan, -1.0, 10**400])
def test_json_has_ordinary_numbers_only(tick: Any) -> None:
    error = PuzzleError("oh", where=Place(0, tick=tick, batches=frozenset({2, 0})), line="")
    verdict = judge(puzzles()["basic"], lambda size: raising(error))
    text = as_json([Report([verdict])])
    where = json.loads(text, parse_constant=pytest.fail)["results"][0]["error"]["where"]
    assert where["tick"] is None and where["micro_batches"] == [0, 2]


def raising(error: PuzzleError) -> Any:
    raise error


FORGED = """
from lib import PuzzleError
from lib.basics.errors import Place

def basic(model):
    where = Place(0, "\\x1b[2J", 3, frozenset([1]), {tick}, "\\x07")
    raise PuzzleError("\\x1b[31m" + 9000 * "x", where=where, got="\\x00")
"""


@pytest.mark.parametrize("tick", ["float('nan')", "10 ** 400", "2.5"])
def test_what_a_program_says_by_itself_is_safe_to_show(tick: str) -> None:
    verdict = near(Program("basic", "forged", FORGED.format(tick=tick)))
    whole = json.loads(as_json([Report([verdict])]), parse_constant=pytest.fail)
    error = whole["results"][0]["error"]
    texts = [error.pop("problem"), *error.pop("where").values(), *error.values()]
    assert all(text.isprintable() and len(text) < 5000 for text in texts if isinstance(text, str))


def test_what_is_made_up_on_the_line_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grader takes parts of the kinds that this library sends, and no others."""
    sent: list[Any] = []
    send = Wire.send

    def twisted(self: Wire, message: Any, deadline: float | None = None) -> None:
        if isinstance(message, list) and message[1] == "failed":
            message[2]["where"] = [0, "forward", 3, "all", 0, ""]
            sent.append(message)
        send(self, message, deadline)

    monkeypatch.setattr(Wire, "send", twisted)
    source = "from lib import PuzzleError\n\ndef basic(model):\n    raise PuzzleError('oh')\n"
    verdict = near(Program("basic", "twisted", source))
    assert sent and verdict.error is not None and verdict.error.place == Place()
    assert "damaged its error" in verdict.error.problem
    assert pack_error(PuzzleError("oh")).keys() >= {"where", "rule"}
