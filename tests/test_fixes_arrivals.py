"""How something that is wrong has come from other ranks: from whom, when, and in which line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lib import Deadlock, grade, run
from lib.basics.errors import show_line
from lib.record.kinds import KINDS
from tests.corpus import Program, changed, whole
from tests.corpus import function as function_of
from tests.test_corpus import function

CAME = r"it came from rank {} at tick [\d.]+, received in line \d+"
RECEIVE = "model.grad_activations[end] = await model.receive(src=model.rank + 1)\n"
OTHERS = changed(
    "gpipe",
    "one receive too many",
    (RECEIVE, f"{RECEIVE}            if model.rank == 1 and mb == 0:\n                {RECEIVE}"),
)
TO_A_HOST = changed(
    "offload",
    "the gradient of the input is sent to the host",
    ("model.pass_to(model.host, grad)", "model.pass_to(model.host, model.grad_activations[layer])"),
)
OF_QUERIES = changed(
    "ring_attention",
    "the gradient of queries goes round",
    ('model.pass_to(after, grads.pop("kv"))', 'model.pass_to(after, grads["att"])'),
)
ANYONE = changed(
    "one_f_one_b",
    "from anyone",
    ("model.receive(src=model.rank - 1)", "model.receive()"),
    ("model.receive(src=model.rank + 1)", "model.receive()"),
)
CASES = {
    "another micro-batch": (OTHERS, CAME.format(2)),
    "of the input": (TO_A_HOST, CAME.format(0)),
    "of queries": (OF_QUERIES, CAME.format(3)),
    "from anyone": (ANYONE, CAME.format(0)),
}


@pytest.mark.parametrize(("program", "came"), CASES.values(), ids=CASES)
def test_what_is_wrong_and_came_as_a_message_has_its_sender_its_tick_and_its_line(program: Program, came: str) -> None:
    message = grade(function(program), program.puzzle).verdict.message
    assert re.search(came, message), message


def test_who_has_sent_a_micro_batch_twice_is_named_with_the_second_send() -> None:
    old = "await model.pass_to(model.rank + 1, model.activations.pop((end, mb)))"
    new = "await model.pass_to(model.rank + 1, model.activations[end, mb if model.rank != 1 else max(mb - 1, 0)])"
    message = grade(function(changed("gpipe", "sent twice", (old, new))), "gpipe").verdict.message
    assert "rank 1 has sent rank 2 the Activation of layer 4, micro-batch 0, twice" in message, message
    assert re.search(r"rank 1 has sent it for the second time at tick [\d.]+, sent in line \d+", message), message


LONG = """
def solve(model):
    weights[layer], opt_states[layer] = model.update(
        layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
    )
    first, second = model.backward(
        layer, model.activations.pop(layer), model.grad_activations.pop(layer), model.weights[layer],
        layer, model.activations.pop(layer), model.grad_activations.pop(layer),
    )
    if (layer == 1):
        pass
"""


def test_a_quoted_call_has_as_many_brackets_closed_as_opened(tmp_path: Path) -> None:
    file = tmp_path / "learner.py"
    file.write_text(LONG, encoding="utf-8")
    code = compile(LONG, str(file), "exec")
    for number in (3, 6, 10):
        text = show_line(code, number)
        assert text.count("(") == text.count(")") and text.count("[") == text.count("]"), text
    assert show_line(code, 3).endswith("model.opt_states[layer])")


def test_several_of_a_kind_have_a_plural() -> None:
    assert KINDS["KeysValues"].words == "keys and values" and KINDS["Weight"].words == "weights"
    assert not [kind.words for kind in KINDS.values() if "ss" in kind.words]


def test_a_ring_of_slices_that_waits_is_told_what_a_ring_does() -> None:
    source = function_of("ring_attention")
    forward, back = source.split("sums = {}")
    forward = forward.replace("if step < n - 1 else None", "if step < n - 2 else None")
    forward = forward.replace("            if send:", "            if step < n - 1:")
    forward = forward.replace("await send\n", "await (send or asyncio.sleep(0))\n")
    program = whole("ring_attention", "sends too seldom", f"{forward}sums = {{}}{back}")
    message = grade(function(program), "ring_attention").verdict.message
    assert "a step that receives has sent before that" in message and "runs the layer before" not in message, message
    assert "rank 0 waits for receive from rank 3 (KeysValues of layer 0), since tick" in message, message


SKIP = ("if not is_last:", "if not is_last and (model.rank != 1 or mb != 2):")
ASTRAY = ("model.pass_to(model.rank + 1, ", "model.pass_to((model.rank + 2) % model.RANKS, ")


@pytest.mark.parametrize("edit", [SKIP, ASTRAY])
def test_every_rank_of_a_deadlock_is_told_what_it_wants_and_has_done_last(edit: tuple[str, str]) -> None:
    message = grade(function(changed("gpipe", "stuck", edit)), "gpipe").verdict.message
    rows = [row for row in message.split("\n") if "waits for receive" in row]
    assert len(rows) == 4, message
    for row in rows:
        assert re.search(r"\(an Activation(Grad)? of layer \d\), since tick [\d.]+, after ", row), row


def test_a_notebook_says_what_each_rank_of_a_deadlock_wants() -> None:
    with pytest.raises(Deadlock) as raised:
        run(function(changed("gpipe", "stuck", SKIP)), ranks=4, layers=8, batches=4)
    assert "for a message from rank 1 (an Activation of layer 4), since" in " ".join(raised.value.briefly)
