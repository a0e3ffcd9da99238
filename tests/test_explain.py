"""Explanations of wrong, slow and large runs: that they lead, that they say what is so, and how they say it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from lib.basics.errors import Place, PuzzleError
from lib.course.specs import machine_of, puzzles
from lib.explain.compare import Comparison, _paired, _turns, nearest
from lib.explain.explanation import explain, facts_of
from lib.explain.notes import Line, noted
from lib.explain.spelling import spelled
from lib.explain.statement import OWN, RIGHT, CallFact, Explanation, KeptFact, Statement, TensorFact, as_json
from lib.explain.words import MOST_WORDS, SENTENCES, sentence, verdict, why
from lib.grading.reasons import Reasons, is_explained, references_of
from lib.grading.verdict import FAIL
from lib.learner.model import Model
from lib.record.labels import Labels
from lib.recording.diary import read_diary
from lib.recording.recorder import recorded_run
from lib.recording.wire import ProtocolError
from tests.explain_truth import Log, untrue
from tests.explained import FILE, MECHANISMS, TURNS, Row, golden, mechanism, right_recording, table
from tests.slow import EVERYTHING
from tools.localize import leads, lines_of, references

SHARE = 0.9
DDP = puzzles()["ddp"]


# -- do they lead, and is it so ------------------------------------------------------------------------------------


def test_the_changed_line_or_the_verb_left_out_is_named() -> None:
    rows = table()
    missed = [one.mistake[:3] for one, program, explanation, _ in rows if not leads(one, explanation, program.error)]
    assert len(rows) > 0.9 * len(TURNS) * len({row.drawn.mistake.puzzle for row in rows}) > 48
    assert len(missed) <= (1 - SHARE) * len(rows), missed


def test_an_error_about_tensors_is_never_without_words() -> None:
    rows = [
        (one.mistake[:3], explanation) for one, program, explanation, _ in table() if facts_of(program.error).operands
    ]
    silent = [mistake for mistake, explanation in rows if not explanation.statements()]
    assert len(rows) > 8 * len(TURNS) and not silent


def test_few_lines_are_named_besides() -> None:
    counts = [len(lines_of(explanation, program.error)) for _, program, explanation, _ in table()]
    assert 0 < sum(counts) / len(counts) < 3


def untruths(row: Row) -> Iterator[str]:
    one, program, explanation, _ = row
    cost = puzzles()[one.mistake.puzzle].cost
    own, right = (Log(of, program.size, cost) for of in (program.recording, right_recording(one, program)))
    for statement in explanation.statements():
        yield from untrue(statement, own, right)


def test_everything_that_is_said_is_what_the_recordings_show() -> None:
    assert [(row.drawn.mistake[:3], found) for row in table() for found in untruths(row)] == []
    assert len({said.name for row in table() for said in row.explanation.statements()}) > 20


def test_explanations_as_data_are_those_that_are_kept() -> None:
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    found = golden()
    assert found == {name: kept[name] for name in found} and len(found) > (len(kept) - 1 if EVERYTHING else 120)


def test_of_several_right_runs_the_nearest_is_taken_also_for_a_run_that_ends_early() -> None:
    right = references(puzzles()["gpipe"], puzzles()["gpipe"].size, "all")
    assert len({found.reference.name for one in right if (found := nearest(one.notes, right))}) >= 3
    for one in right:
        calls = one.recording["calls"]
        early = noted({"calls": calls[: len(calls) // 2], "failed": []}, one.size, one.cost)
        for notes, least in ((one.notes, 2.0), (early, 1.8)):
            assert (beside := nearest(notes, right)) and beside.score == Comparison(notes, one).score >= least


def test_a_verdict_is_short() -> None:
    lengths = []
    for _, program, explanation, _ in table():
        problem = str(getattr(program.error, "problem", program.verdict.message))
        lines = verdict(explanation, problem)
        assert len(lines) <= 2 and all(lines)
        lengths.append(sum(len(line.split()) for line in lines))
    assert max(lengths) <= MOST_WORDS
    assert median(lengths) <= 25


def test_every_statement_has_a_sentence_with_no_gap() -> None:
    for _, _, explanation, _ in table():
        for statement in explanation.statements():
            for told in (sentence(statement), sentence(statement, look=True)):
                assert told and not re.search(r"\{[a-z]|\[[ ,!{]|None|  | ,|\.$", told), told


# -- how it is told --------------------------------------------------------------------------------------------------


def call(kind: str, run: str = OWN, layer: Any = 2, line: int = 7, **more: Any) -> CallFact:
    known = {"batches": (), "axis": None, "options": (), "peer": None, "carries": (), "rank": 1, "at": 9, **more}
    return CallFact(run=run, kind=kind, layer=layer, line=Line(line, f"{kind}()"), **known)


def tensor(kind: str = "WeightGrad", run: str = OWN, **more: Any) -> TensorFact:
    labels = Labels(kind, 2, 4, batches=frozenset({0}), total_batches=2)
    known = {"maker": call("backward", run, line=5, batches=(0,)), "source": None, "summed": 1, **more}
    return TensorFact(run=run, labels=labels, **known)


def kept(way: str = "stored") -> KeptFact:
    return KeptFact(way, "grad_weights", "(2, 0)", Line(6))


REDUCED = call("allreduce", carries=("WeightGrad",))
GRAD, OTHER = tensor(), tensor("ActivationGrad")
THEIRS = tensor(run=RIGHT)
RIGHT_CALL = call("scatterreduce", RIGHT, line=20, carries=("WeightGrad",))
TAKEN, FORWARD = call("get_activation", layer=None, batches=(0,)), call("forward", RIGHT)
AT_PEAK = {"count": 2, "out": kept("read"), "right": RIGHT_CALL}
DEPARTS = {"rank": 1, "line": Line(7), "call": REDUCED, "awaits": False, "before": call("backward", line=5)}
DEPARTS |= {"right": RIGHT_CALL, "right_awaits": False, "ends": "returns", "when": "there"}

TEXTS: dict[str, str] = json.loads(Path(__file__).with_name("told.json").read_text(encoding="utf-8"))
TOLD: dict[str, dict[str, Any]] = {
    "given": {"call": REDUCED, "tensor": GRAD, "out": kept("read")},
    "gone": {"call": REDUCED, "tensor": GRAD, "out": None},
    "unawaited": {"call": REDUCED},
    "is_in": {"tensor": GRAD, "kept": kept(), "rank": 1},
    "stored_over": {"tensor": GRAD, "kept": kept(), "over": GRAD, "line": Line(8), "unread": True},
    "unread": {"tensor": GRAD, "kept": None},
    "result_lost": {"tensor": GRAD, "call": REDUCED, "flying": False},
    "read_last": {"tensor": GRAD, "call": REDUCED, "kept": kept("taken")},
    "not_received": {"tensor": GRAD, "call": call("pass_to", peer=2)},
    "key_gone": {"tensor": GRAD, "kept": kept("taken"), "reader": REDUCED},
    "waits": {"rank": 1, "call": REDUCED, "ranks": (0, 2), "unposted": None},
    "returned": {"ranks": (0, 1)},
    "lacks_batch": {"batch": 0, "tensor": None, "labels": GRAD.labels},
    "look_at": {"call": REDUCED, "tensor": GRAD, "out": None},
    "first_through": {"tensor": GRAD, "reader": REDUCED, "right_steps": (RIGHT_CALL, call("backward", batches=(0,)))},
    "sum_lacks": {"tensor": GRAD, "reader": REDUCED, "right": THEIRS, "count": 1, "right_count": 2},
    "comes_from": {"tensor": GRAD, "call": REDUCED, "out": kept("read"), "right": tensor("ActivationGrad", RIGHT)},
    "other_peer": {"call": call("pass_to", peer=2), "right": call("pass_to", RIGHT, peer=3)},
    "other_call": {"call": call("allreduce", axis="replica"), "right": RIGHT_CALL},
    "goes_elsewhere": {"call": REDUCED, "tensor": GRAD, "right": THEIRS, "right_reader": RIGHT_CALL},
    "lacks_operand": {"call": call("forward"), "right": THEIRS},
    "takes_again": {"call": TAKEN, "earlier": call("get_activation", line=3), "batches": frozenset({0})},
    "again": {"call": REDUCED, "earlier": call("allreduce", line=3), "right_count": 1},
    "comes_next": {"rank": 1, "right": RIGHT_CALL, "more": True},
    "not_made": {"right": THEIRS, "right_reader": RIGHT_CALL},
    "layers": {"rank": 1, "verb": "load_weights", "line": Line(7), "layers": ("0", "1"), "right_layers": ("2",)},
    "no_final": {"rank": 1, "layer": 0, "right": THEIRS},
    "departs": DEPARTS,
    "without_await": {"line": Line(3), "call": "helper"},
    "written_out": {"line": Line(3), "number": 4, "sizes": "model.RANKS is 2"},
    "more_often": {"call": REDUCED, "count": 3, "line": Line(7)},
    "held": {"call": REDUCED, "tensor": GRAD, "kept": kept(), "reader": None, **AT_PEAK},
    "dead": {"call": REDUCED, "tensor": GRAD, "kept": kept(), "reader": None, **AT_PEAK},
    "flying": {"call": REDUCED, "count": 2, "right_count": 0, "peak": call("forward", line=4), "right": RIGHT_CALL},
}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_tells_its_facts(name: str) -> None:
    facts = TOLD[name]
    assert sentence(Statement(name, facts)) == TEXTS[name]
    if SENTENCES[name].look:
        assert sentence(Statement(name, facts), look=True).startswith("line ")


def test_an_explanation_has_three_levels() -> None:
    said = Statement("sum_lacks", {**TOLD["sum_lacks"], "right": tensor(run=RIGHT, maker=RIGHT_CALL)})
    whole = Explanation(
        Place(1),
        (Statement("given", TOLD["given"]),),
        (Statement("look_at", {**TOLD["look_at"], "out": kept("read")}),),
        (said,),
        "solution",
    )
    first, second, third = (why(whole, level) for level in (1, 2, 3))
    where = "look at line 6, where allreduce(layer 2) gets the weight gradient of layer 2, micro-batch 0, from line 5"
    assert first == [where, TEXTS["given"]]
    assert second == [*first, sentence(said)]
    assert third == [*second, "a right run has `scatterreduce()`"]
    assert why(whole._replace(reference=""))[-1] == "this was not compared with a right run"
    assert json.loads(json.dumps(as_json(whole)))["look_at"][0]["call"]["line"] == 7


def test_a_long_verdict_is_cut() -> None:
    lines = verdict(Explanation(Place(1), look_at=(Statement("unawaited", {"call": REDUCED}),)), "word " * 60)
    assert sum(len(line.split()) for line in lines) <= MOST_WORDS
    assert lines[1] == "look at:  line 7, whose allreduce(layer 2) has not been awaited"


# -- runs, and what is written down of them ---------------------------------------------------------------------------


def of_ddp(source: str) -> tuple[dict[str, Any], PuzzleError | None]:
    names: dict[str, Any] = {}
    exec(compile(source, "answer.py", "exec"), names)
    size = DDP.size
    return recorded_run(names["ddp"], machine_of(size, DDP.cost), size["layers"], size["batches"], 10)


WAITS = """
async def ddp(model):
    model.grad_weights[0] = model.fake_grad(0, [])
    if model.rank == 0:
        await model.allreduce(model.grad_weights[0], 0)
    await model.receive(src=0)
"""


def test_of_a_deadlock_two_ranks_are_named_also_where_the_error_has_come_from_another_process() -> None:
    recording, error = of_ddp(WAITS)
    assert error is not None and error.rule == "deadlock"
    told = PuzzleError("deadlock", waits="rank 0 ...", line="")
    lines = verdict(explain(recording, told, (), DDP.size, DDP.cost), told.problem)
    waits = ["rank 0 waits in allreduce(layer 0) of line 5, for ranks 1-3", "rank 1 waits in receive(rank 0) of line 6"]
    assert lines == [f"deadlock: {'; '.join(waits)}"]


STORED_OVER = """
def ddp(model):
    model.weights[0], model.opt_states[0] = model.load_weights(0)
    model.activations["x"] = model.get_activation([model.rank])
    model.activations["y"] = model.forward(0, model.activations["x"], model.weights[0])
    model.activations["y"] = model.activations.pop("x")
    model.activations["z"]
"""


def test_what_dictionaries_do_is_noted() -> None:
    recording, error = of_ddp(STORED_OVER)
    notes = noted(recording, DDP.size, DDP.cost)
    ways = [(kept.way, kept.line.number) for kept in notes.kept[0, "activations", "'y'"]]
    assert ways == [("stored", 5), ("stored", 6), ("replaced", 6)]
    assert facts_of(error).line == 7 and facts_of(error).facts == {"store": "activations", "key": "'z'"}
    forward = next(call for call in notes.work(0) if call.kind == "forward")
    assert [tensor.looked_up[0].line.number for tensor in forward.operands] == [5, 5]


def test_a_recording_travels_as_json_and_replays_as_it_is() -> None:
    recording, _ = of_ddp(STORED_OVER)
    again = json.loads(json.dumps(recording))
    assert noted(again, DDP.size, DDP.cost).kept.keys() == noted(recording, DDP.size, DDP.cost).kept.keys()
    bare = {part: recording[part] for part in ("calls", "failed")}
    assert all(call.line == Line() for call in noted(bare, DDP.size, DDP.cost).all_calls())


@pytest.mark.parametrize(
    "diary",
    [
        {}, [[]], [[0], [], []], [["0"], [[1, "", ""]], []], [[], [[1, ""]], []],
        [[], [[1, "", ""]], [[0, "read", -1, "", "", 0]]], [[], [], [[0, "read", 0, "", "", 0]]],
        [[], [[1, "", ""]], [[0, "read", 0, "", 5, 0]]],
    ],
)  # fmt: skip
def test_what_no_recorder_has_written_is_refused(diary: object) -> None:
    with pytest.raises(ProtocolError):
        read_diary(diary)


def test_texts_of_a_diary_are_safe_to_show() -> None:
    _, places, kept_rows = read_diary([[0], [[1, "a\x1b[2J", ""]], [[0, "read", 0, "weights", "\u202e", 0]]])
    assert "\x1b" not in places[0][1] and "\u202e" not in kept_rows[0][4]


def test_a_learners_error_may_have_anything_in_it() -> None:
    class Odd(PuzzleError):
        def __init__(self) -> None:
            AssertionError.__init__(self, "odd")

    assert facts_of(Odd()).place == Place()
    recording, _ = of_ddp("def ddp(model): pass")
    assert explain(recording, Odd(), (), DDP.size, DDP.cost).given == ()


def test_no_line_of_a_learners_code_runs_again() -> None:
    ran = []

    def ddp(model: Model) -> None:
        ran.append(model.rank)
        model.activations[5]

    recording, error = recorded_run(ddp, machine_of(DDP.size, DDP.cost), 2, 4, 10)
    before = list(ran)
    explain(recording, error, (), DDP.size, DDP.cost)
    assert ran == before and before


# -- what the text shows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("async def g(model): ...\nasync def f(model):\n    g(model)", "line 3 calls g without `await`"),
        ("async def f(model):\n    model.pass_to(1, 2)", "line 2 calls pass_to without `await`"),
        ("def f(model):\n    for rank in range(3): pass",
         "line 2 has 3 written out, as at the puzzle's own size; at this one model.RANKS is 2 and model.BATCHES is 8"),
    ],
)  # fmt: skip
def test_what_the_text_of_a_program_shows(text: str, told: str) -> None:
    own = {"ranks": 3, "layers": 6, "batches": 3}
    assert [sentence(one) for one in spelled(text, {**own, "ranks": 2, "batches": 8}, own)][:1] == [told]


@pytest.mark.parametrize(
    "text",
    ["def f(model:", "async def f(model):\n    await model.pass_to(1, 2)", "def f(model):\n    return len(model) + 2"],
)  # fmt: skip
def test_nothing_is_said_of_a_text_that_shows_nothing(text: str) -> None:
    assert not [*spelled(text, {"ranks": 4, "layers": 6, "batches": 4}, {"ranks": 2, "layers": 6, "batches": 4})]


# -- mechanisms: a mistake, and what is said of it -----------------------------------------------------------------


def is_told(fact: object, thing: object) -> bool:
    """Whether a fact is what is told of it, or has it in its words."""
    return fact == thing or (isinstance(thing, str) and thing in str(getattr(fact, "labels", fact)))


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_a_mechanism_says_is_so(name: str) -> None:
    row, told = mechanism(name), MECHANISMS[name]["says"]
    assert row.program.verdict.status == FAIL and getattr(row.program.error, "rule", "") != "not_finished"
    said = [{"name": one.name, **one.facts} for one in row.explanation.statements()]
    assert [one for one in said if all(is_told(one.get(key), thing) for key, thing in told.items())]
    assert bool(row.explanation.reference) != MECHANISMS[name].get("another way", False)
    assert MECHANISMS[name].get("but not") not in [one["name"] for one in said]
    assert [*untruths(row)] == [] and "None" not in "".join([*why(row.explanation, 3), *verdict(row.explanation, "")])


def test_numbers_of_micro_batches_are_interchangeable_also_where_ranks_have_more_or_fewer() -> None:
    dealt = "[[3], [0, 1], [], [2]]", "[[0], [1], [2], [3]]"
    text = "def ddp(model):\n  for one in {}[model.rank]: model.activations[one] = model.get_activation([one])"
    notes = [noted(of_ddp(text.format(one))[0], DDP.size, DDP.cost) for one in reversed(dealt)]
    assert _paired(*map(_turns, notes)) == {0: 3, 1: 0, 2: 1, 3: 2}


def test_a_message_is_received_and_not_made() -> None:
    came = tensor(maker=call("receive", line=8, peer=0))
    look = Statement("look_at", {"call": REDUCED, "tensor": came, "out": None})
    assert sentence(look, look=True) == "line 8, which receives the weight gradient of layer 2, micro-batch 0"


def test_of_a_large_run_the_error_is_explained_without_a_right_run() -> None:
    compose = puzzles()["compose"]
    names: dict[str, Any] = {}
    exec(compile(WAITS.replace("ddp", "compose"), "answer.py", "exec"), names)
    sizes = machine_of(compose.size, compose.cost), compose.size["layers"], compose.size["batches"]
    recording, error = recorded_run(names["compose"], *sizes, 60)
    explanation = Reasons(compose, compose.size, recording, references_of, "").explanation(error)
    assert not is_explained(compose.size) and explanation is not None
    assert "waits" in [one.name for one in explanation.given] and not explanation.reference
