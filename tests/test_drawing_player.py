"""The page that plays a schedule: what stands in it. (What it does is looked at in a browser.)"""

from __future__ import annotations

import ast
import asyncio
import html
import json
import linecache
import re
from pathlib import Path
from typing import Any

import pytest

from drawing import play
from drawing.player import CARDS, OPERATIONS, Player
from lib import Dist, Model, PuzzleError, run
from lib.record.events import MARKS
from tests.drawing_events import chain, event, sharded_run, staged_run, trace


def data(player: Player) -> dict[str, Any]:
    found = re.search(r"^const data = (.*);$", player.page, re.MULTILINE)
    assert found is not None
    return dict(json.loads(found[1]))


def test_every_operation_that_takes_time_can_be_stepped_to() -> None:
    made = staged_run(4, 4)
    rows = data(play(made))["rows"]
    timed = [event for event in made.events if event.kind not in MARKS and event.length]
    assert sum(len(row["ops"]) for row in rows) == len(timed)
    assert sorted(op[1] for row in rows for op in row["ops"]) == sorted(event.start for event in timed)


def test_memory_is_there_by_kind_and_sums_up() -> None:
    made = staged_run(4, 4)
    shown = data(play(made, memory_target=2_000_000))
    assert max(sum(sample[1:]) for row in shown["rows"] for sample in row["held"]) == made.memory
    assert [name for name, _ in shown["kinds"]] == [
        "weights", "optimizer states", "weight gradients", "activations", "activation gradients", "inbox",
    ]  # fmt: skip
    assert shown["target"] == 2_000_000


def test_every_operation_knows_the_learners_line() -> None:
    made = staged_run(2, 2)
    shown = data(play(made))
    code = shown["code"]
    assert code[0][1].startswith("async def staged")
    for row in shown["rows"]:
        for op in row["ops"]:
            words, (number, text) = shown["words"][op[5]], code[op[6]]
            verb = {"send": "pass_to", "receive": "receive"}.get(words.split()[0], words.split()[0])
            assert verb in text, (words, number, text)


def test_helpers_are_shown_with_the_function() -> None:
    def helper(model: Model) -> None:
        weight, _ = model.load_weights(0)
        model.activations[0] = model.forward(0, model.get_activation([0]), weight)

    def outer(model: Model) -> None:
        helper(model)

    shown = data(play(run(outer)))
    op = shown["rows"][0]["ops"][0]
    assert "model.forward(0" in shown["code"][op[6]][1]


def test_models_by_hand_and_code_without_source_can_be_played() -> None:
    space: dict[str, Any] = {}
    source = "def f(model):\n    w, _ = model.load_weights(0)\n    model.forward(0, model.get_activation([0]), w)\n"
    exec(compile(source, "<nowhere>", "exec"), space)
    made = run(space["f"])
    assert data(play(made))["code"] == []
    assert [op[6] for op in data(play(made))["rows"][0]["ops"]] == [-1]
    assert data(play(made.models))["rows"]
    assert data(play(trace(chain(0, 3))))["code"] == []


def test_the_page_needs_nothing_else() -> None:
    page = play(staged_run(2, 2)).page
    assert set(re.findall(r"\w+://[^\"' <]*", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(?:src|href|@import|fetch|XMLHttpRequest|eval|innerHTML)\b", page)


def test_names_cannot_end_the_script_or_the_page() -> None:
    nasty = "</script><script>alert(1)</script>\"'$data <!--"
    player = play(staged_run(2, 2), title=nasty)
    assert player.page.count("<script>") == player.page.count("</script>") == 1
    assert "alert(1)" in player.page  # as text: escaped
    assert "<script>alert" not in player.page
    assert data(player)["rows"]


def test_it_shows_itself_in_a_frame_with_words_where_frames_are_taken_out(tmp_path: Path) -> None:
    player = play(staged_run(2, 2))
    shown = player._repr_html_()
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" title="player of staged"[^>]*>([^<]*)</iframe>', shown)
    assert frame is not None
    assert html.unescape(frame[1]) == player.page
    assert "play(run).save('player.html')" in frame[2]
    player.save(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text(encoding="utf-8") == player.page
    assert len(repr(player)) < 200


def test_only_html_is_written(tmp_path: Path) -> None:
    with pytest.raises(PuzzleError, match=r"x\.svg has no known ending"):
        play(staged_run(2, 2)).save(tmp_path / "x.svg")
    with pytest.raises(PuzzleError, match="cannot be written"):
        play(staged_run(2, 2)).save(tmp_path / "no" / "x.html")


def test_a_page_too_large_for_a_notebook_says_so() -> None:
    large = play(
        trace(*([event(rank, "forward", at + rank, at + rank + 1) for at in range(310)] for rank in range(64)))
    )
    assert len(large._repr_html_()) < 1_500_000
    assert "save(" in large._repr_html_()


def test_many_ranks_have_cards_for_the_first_rows() -> None:
    assert len(data(play(trace(*(chain(rank, 4, offset=rank) for rank in range(100)))))["rows"]) == CARDS
    assert len(data(play(sharded_run(32, 2)))["rows"]) == 1


def test_a_card_of_several_ranks_says_what_is_true_of_all() -> None:
    async def cross(model: Model) -> None:
        if model.rank < 16:
            await model.pass_to(16 + model.rank, "hello")
        else:
            await model.receive()
        if model.rank == 3:
            model.weights[0], _ = model.load_weights(0)

    shown = data(play(run(cross, 32)))
    assert [row["name"] for row in shown["rows"]] == ["ranks 0-15", "ranks 16-31"]
    assert shown["words"] == ["send", "are done", "receive", "wait"]
    assert [row["holder"] for row in shown["rows"]] == ["rank 3: ", ""]
    assert max(sample[1] for sample in shown["rows"][0]["held"]) == 262144


def test_what_has_no_card_is_counted_and_compute_comes_before_what_it_hides() -> None:
    assert data(play(trace(*(chain(rank, 4, offset=rank) for rank in range(100)))))["more"] == 36
    assert data(play(staged_run()))["more"] == 0
    many = data(play(trace(*([event(rank, "forward", rank, rank + 1)] for rank in range(600)))))
    assert [len(row["ops"]) for row in many["rows"]] == [1] * CARDS
    assert many["rows"][1]["name"] == "rank 1"
    hidden = data(play(sharded_run(2, 2)))["rows"][0]["ops"]
    assert {op[7] for op in hidden} == {0, 1}


def test_calls_in_flight_can_be_played() -> None:
    async def waiting() -> None:
        models = [Model(rank, dist) for dist in [Dist(2)] for rank in range(2)]
        models[0].weights[0], _ = models[0].load_weights(0)
        models[0].activations[0] = models[0].forward(0, models[0].get_activation([0]), models[0].weights[0])
        call = models[0].receive(1)
        assert len(models[0].lines()) == len(models[0].log)
        assert data(play(models))["rows"]
        await models[1].pass_to(0, "now")
        await call
        assert all(line is not None for line in models[0].lines())

    asyncio.run(waiting())


def test_too_many_operations_are_refused() -> None:
    with pytest.raises(PuzzleError, match="too many operations to play"):
        play(trace(chain(0, OPERATIONS + 1)))


def test_what_is_not_attempted_says_so() -> None:
    async def fsdp(model: Model) -> Model:
        return model

    player = play(run(fsdp, 4))
    assert "fsdp: not attempted yet" in player.page
    with pytest.raises(PuzzleError, match="takes a Run"):
        play(None)


def test_code_that_is_in_no_function_is_shown_cell_by_cell_in_the_order_in_which_it_ran() -> None:
    """As in the tour: a cell's statements are compiled one by one, each under the name of the cell."""
    cells = {
        "<zz first>": "from lib import Model\nmodel = Model(layers=1)\nmodel.weights[0], _ = model.load_weights(0)\n",
        "<aa then>": """x = model.get_activation([0])
acts = model.activations
acts[1] = model.forward(
    0, x, model.weights[0]
)
""",
    }
    names: dict[str, Any] = {}
    for file, text in cells.items():
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        for statement in ast.parse(text).body:
            compiled = compile(ast.Module([statement], []), file, "exec")
            exec(compiled.replace(co_name=f"<cell line: {statement.lineno}>"), names)
    shown = data(play(names["model"]))
    assert [number for number, _ in shown["code"]] == [1, 2, 3, 1, 2, 3, 4, 5]
    assert [text for _, text in shown["code"]] == "".join(cells.values()).splitlines()
    assert [shown["code"][op[6]] for op in shown["rows"][0]["ops"]] == [[3, "acts[1] = model.forward("]]
