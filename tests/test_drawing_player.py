"""The page that plays a schedule: what stands in it. (What it does is looked at in a browser.)"""

import ast
import html
import linecache
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from drawing import draw, play
from drawing.ink.svg import escape
from drawing.ink.trace import trace_of
from drawing.playing.playback import CARDS
from drawing.playing.player import OPERATIONS, STILL
from drawing.schedule.layout import rows_of
from drawing.schedule.picture import LARGEST, picture_for_player
from lib import Model, PuzzleError, run
from lib.record.events import MARKS
from tests.drawing_events import chain, data, event, sharded_run, staged_run, trace


def test_every_operation_that_takes_time_can_be_stepped_to() -> None:
    made = staged_run(4, 4)
    rows = data(play(made))["rows"]
    timed = [event for event in made.events if event.kind not in MARKS and event.length]
    assert sum(len(row["ops"]) for row in rows) == len(timed)
    assert sorted(op[1] for row in rows for op in row["ops"]) == sorted(event.start for event in timed)


def test_memory_is_there_by_kind_and_sums_up() -> None:
    made = staged_run(4, 4)
    shown = data(play(made, memory_target=2_000_000))
    assert max(sum(shown["held"][place]) for row in shown["rows"] for place in row["held"][1::2]) == made.memory
    assert [name for name, _ in shown["kinds"]] == [
        "weights", "optimizer states", "weight gradients", "activations", "activation gradients",
        "messages not received yet",
    ]  # fmt: skip
    assert shown["target"] == 2_000_000


def test_every_operation_knows_the_learners_line() -> None:
    made = staged_run(2, 2)
    shown = data(play(made))
    code = shown["code"]
    assert code[0][1].startswith("async def staged")
    for row in shown["rows"]:
        for op in row["ops"]:
            words, (number, text) = shown["words"][op[4]], code[op[5]]
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
    assert "model.forward(0" in shown["code"][op[5]][1]


def test_models_by_hand_and_code_without_source_can_be_played() -> None:
    space: dict[str, Any] = {}
    source = "def f(model):\n    w, _ = model.load_weights(0)\n    model.forward(0, model.get_activation([0]), w)\n"
    exec(compile(source, "<nowhere>", "exec"), space)
    made = run(space["f"])
    assert data(play(made))["code"] == []
    assert [op[5] for op in data(play(made))["rows"][0]["ops"]] == [-1]
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


STILL_AND_FRAME = re.compile(
    r'<style>[^<]*</style><div class="ltp-still"><div [^>]*><img (?P<image>[^>]*)></div><p>(?P<words>[^<]*)</p></div>'
    r'<iframe class="ltp-player" srcdoc="(?P<page>[^"]*)" title="player of staged"[^>]*></iframe>'
)


def test_it_shows_itself_in_a_frame_with_a_picture_where_frames_are_taken_out(tmp_path: Path) -> None:
    made = staged_run(2, 2)
    player = play(made)
    shown = STILL_AND_FRAME.fullmatch(player._repr_html_())
    assert shown is not None
    assert html.unescape(shown["page"]) == player.page
    assert "play(run).save('player.html')" in html.unescape(shown["words"])
    assert f'alt="{draw(made).summary}"' in html.unescape(shown["image"])
    player.save(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text(encoding="utf-8") == player.page
    assert len(repr(player)) < 200


def test_only_html_is_written(tmp_path: Path) -> None:
    with pytest.raises(PuzzleError, match=r"x\.svg has no known ending"):
        play(staged_run(2, 2)).save(tmp_path / "x.svg")
    with pytest.raises(PuzzleError, match="cannot be written"):
        play(staged_run(2, 2)).save(tmp_path / "no" / "x.html")


@pytest.mark.slow
@pytest.mark.long
def test_a_page_too_large_for_a_notebook_says_so_and_shows_a_picture() -> None:
    def held(rank: int, at: int) -> tuple[int, ...]:
        return at + rank, 200_000 + at, 0, 300_000 + at, 400_000 + at, 500_000 + at, 0

    large = play(
        trace(
            *(
                [
                    event(rank, "forward", at + rank / 7, at + rank / 7 + 0.654321, held=held(rank, at))
                    for at in range(310)
                ]
                for rank in range(64)
            )
        )
    )
    shown = large._repr_html_()
    assert len(shown) < LARGEST < len(large.page)
    assert "save(" in shown and "<img " in shown and "<iframe" not in shown


def test_a_large_picture_is_rougher_so_that_the_player_fits_into_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    made = trace(*([event(rank, "forward", 2 * at, 2 * at + 1) for at in range(120)] for rank in range(8)))
    fine = play(made)
    assert fine.page.count("<rect") > 8 * 120 and "<iframe" in fine._repr_html_()
    less = len(escape(fine.page)) + STILL - 1
    monkeypatch.setattr("drawing.playing.player.LARGEST", less)
    coarse = play(made)
    assert coarse.page.count("<rect") < 8 * 120 and "<iframe" in coarse._repr_html_()
    assert data(coarse)["rows"] == data(fine)["rows"]


def test_many_ranks_are_all_played_and_some_of_them_have_a_card_at_a_time() -> None:
    shown = data(play(trace(*(chain(rank, 4, offset=rank) for rank in range(100)))))
    assert (len(shown["rows"]), shown["cards"], shown["left_out"]) == (100, CARDS, "")
    assert len(data(play(sharded_run(32, 2)))["rows"]) == 1


LONG = OPERATIONS // 20
"""Operations of a rank of which twenty, and no more, can be played."""


@pytest.mark.slow
@pytest.mark.long
def test_of_too_many_operations_those_of_some_ranks_are_played_and_the_page_says_which() -> None:
    ranks = [chain(rank, LONG, offset=rank) for rank in range(100)]
    ranks[37] = [event(37, "forward", 40 + at, 41 + at, held=(900, 0, 0, 0, 0, 0, 0)) for at in range(LONG)]
    shown = data(play(trace(*ranks)))
    names = [int(row["brief"]) for row in shown["rows"]]
    assert len(names) == 20 and names == sorted(names)
    assert {0, 37, 99} <= {*names}  # the first, the last, and the peak
    assert max(b - a for a, b in pairwise(names)) <= 6  # the others spread over the machine
    assert shown["left_out"].startswith("20 of 100 ranks are played: 0, ") and "99 (20)" in shown["left_out"]
    assert "play(run, ranks=[...])" in shown["left_out"]


def test_one_may_name_the_ranks_to_play() -> None:
    many = trace(*(chain(rank, 4, offset=rank) for rank in range(100)))
    shown = data(play(many, ranks=[70, 3]))
    assert [row["name"] for row in shown["rows"]] == ["rank 3", "rank 70"]
    assert shown["left_out"].startswith("2 of 100 ranks are played: 3, 70.")
    assert [row["name"] for row in data(play(sharded_run(32, 2), ranks=[5]))["rows"]] == ["ranks 0-31"]


@pytest.mark.parametrize("ranks", [[4], [-1], [], 2, ["0"]])
def test_there_must_be_such_ranks(ranks: Any) -> None:
    with pytest.raises(PuzzleError, match="no such ranks") as caught:
        play(staged_run(4, 4), ranks=ranks)
    assert caught.value.expected == "a list of ranks from 0 to 3"


@pytest.mark.long
def test_named_ranks_may_have_too_many_operations() -> None:
    long = trace(*(chain(rank, LONG, offset=rank) for rank in range(30)))
    assert len(data(play(long, ranks=range(20)))["rows"]) == 20
    with pytest.raises(PuzzleError, match="too many operations to play") as caught:
        play(long, ranks=range(21))
    assert (caught.value.got, caught.value.expected) == ("21,000", "at most 20,000; of fewer ranks")


def test_the_line_of_an_error_is_shown_though_no_operation_was_written_there() -> None:
    def wrong(model: Model) -> None:
        model.weights[0] = 3  # type: ignore[assignment]

    with pytest.raises(PuzzleError) as caught:
        run(wrong)
    shown = data(play(caught.value.run))
    [_, words, line] = shown["rows"][0]["stuck"]
    assert words.startswith("error") and shown["code"][line][1].strip().startswith("model.weights[0] = 3")
    assert "model.weights[0] = 3" in shown["error"]["line"] and "only tensors" in shown["error"]["says"]


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
    assert {"send", "are done", "receive", "wait"} <= {*shown["words"]}
    assert [row["holder"] for row in shown["rows"]] == ["rank 3: ", ""]
    assert max(shown["held"][place][0] for place in shown["rows"][0]["held"][1::2]) == 262144


def test_what_is_not_attempted_says_so() -> None:
    async def fsdp(model: Model) -> Model:
        return model

    done = run(fsdp, 4)
    player = play(done)
    assert "fsdp: not attempted yet" in player.page
    assert player._repr_html_() == draw(done)._repr_html_()
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
    assert [shown["code"][op[5]] for op in shown["rows"][0]["ops"]] == [[3, "acts[1] = model.forward("]]


def test_the_picture_of_a_player_has_the_rows_of_the_player_where_a_drawing_folds_them() -> None:
    made = trace_of(sharded_run(8, 60))
    for rough in (0, 2):
        shown = picture_for_player(made, rough, 100.0)
        assert (
            [ranks for ranks, _, _ in shown.rows] == [row.ranks for row in rows_of(made)] == [[at] for at in range(8)]
        )
    assert [ranks for ranks, _, _ in draw(made).rows] == [[*range(8)]]
