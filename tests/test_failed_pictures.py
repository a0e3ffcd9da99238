"""A run that fails is shown up to its error, with a flag where it is, and with who waits for whom."""

import asyncio
import re
import signal
from functools import cache
from typing import Any

import pytest

from drawing import compare, draw, play
from drawing.ink import theme
from drawing.ink.trace import trace_of
from lib import Model, PuzzleError, run
from lib.basics.errors import Place
from tests.drawing_events import SVG, data, outside, parse, sharded_run, texts, titles
from tests.failures import CASES, IDS, Case, endless, failed

cases = pytest.mark.parametrize("case", CASES, ids=IDS)


@cache
def error_of(index: int) -> PuzzleError:
    return failed(CASES[index])


def error(case: Case) -> PuzzleError:
    return error_of(CASES.index(case))


@cases
def test_the_run_knows_where_it_failed_and_who_waits(case: Case) -> None:
    failure = error(case).run.failure
    assert failure.says.startswith(case.says)
    assert [sentence for _, sentence in failure.sentences()][: len(case.sentences)] == case.sentences
    assert len(failure.sentences()) == len(case.sentences) or len(case.sentences) == 3


@cases
def test_the_text_has_the_same_marks(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # a long line would be folded
    done = error(case).run
    lines = str(done).splitlines()
    rows = dict(re.findall(r"^(rank \d+)  +(.*)$", "\n".join(lines[1 : done.ranks + 2]), re.MULTILINE))
    assert len(rows) == done.ranks
    for rank in range(done.ranks):
        flagged, waits = done.failure.place.rank == rank, rank in [wait.rank for wait in done.failure.waits]
        row = rows[f"rank {rank}"]
        assert ("!" in row, row.endswith("~")) == (flagged, waits and not flagged), row
    assert done.failure.says in lines
    assert [line[2:] for line in lines if line[2:] in case.sentences] == case.sentences


def test_ranks_that_wait_do_so_from_when_they_began_to() -> None:
    async def late(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        if model.rank:
            model.activations[0] = model.get_activation([0])
            model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
            model.weights["none"]
        await model.allreduce(model.fake_grad(0, []), 0)

    with pytest.raises(PuzzleError) as caught:
        run(late, ranks=2)
    assert str(caught.value.run).splitlines()[1:4] == ["tick    0   1", "rank 0  ~   ~", "rank 1  0F0 !"]


def test_time_that_is_up_ends_one_rank_and_the_others_go_on_to_where_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy(model: Model) -> None:
        if model.rank == 1:  # the limit strikes here, however busy the machine is
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.2)
        while model.rank == 1:
            all(map(type(model).rank.fget, [model] * 1000))  # the alarm comes while code of ours runs
        for _ in range(300_000):
            pass
        await model.allreduce(model.fake_grad(0, []), 0)

    monkeypatch.setattr("lib.running.limits.SOON", (0.001, 0.001))
    with pytest.raises(PuzzleError) as caught:
        run(busy, ranks=4, timeout=30)
    assert [wait.rank for wait in caught.value.run.failure.waits] == [0, 2, 3]


def test_a_call_behind_others_of_its_rank_says_so() -> None:
    async def queued(model: Model) -> None:
        other = 1 - model.rank
        first = model.allreduce(model.fake_grad(0, []), 0) if model.rank else None
        await model.pass_to(other, "x")
        await model.receive(other)
        await model.allgather(model.load_weights(0, model.rank, 2)[0], 0)
        await first if first else None

    with pytest.raises(PuzzleError) as caught:
        run(queued, ranks=2)
    said = [sentence for _, sentence in caught.value.run.failure.sentences()]
    assert "rank 1 waits to send to rank 0, behind its own earlier calls, since tick 0" in said


def test_who_waits_for_no_call_waits_for_something_else() -> None:
    async def lost(model: Model) -> None:
        if model.rank:
            await asyncio.get_running_loop().create_future()
        await model.receive(1)

    with pytest.raises(PuzzleError) as caught:
        run(lost, ranks=2)
    said = [sentence for _, sentence in caught.value.run.failure.sentences()]
    assert "rank 1 waits for something that no rank will do, since tick 0" in said


@pytest.mark.parametrize("place", ["here", Place(99, ["x"], "y", tick=-1.0)])  # type: ignore[arg-type]
def test_a_learner_may_raise_errors_with_any_place(place: Any) -> None:
    def raises(model: Model) -> None:
        raise PuzzleError("oh", line="", where=place)

    with pytest.raises(PuzzleError) as caught:
        run(raises, ranks=2)
    assert caught.value.run.failure.tick == 0
    assert "<svg" in draw(caught.value.run)._repr_html_()


def test_an_endless_loop_is_told_with_its_rank_and_line() -> None:
    [case] = [case for case in CASES if case.fn is endless]
    assert re.search(r"while model.rank == 1|await asyncio.sleep\(0\)", error(case).line)  # wherever it is just then


def flags(figure: Any) -> list[str]:
    """The hover texts of flags."""
    return [title for title in titles(figure) if re.search(r"\ntick [\d.]+$", title)]


@cases
def test_the_picture_has_one_flag_and_a_hatched_box_for_each_row_that_waits(case: Case) -> None:
    done = error(case).run
    figure, trace = draw(done), trace_of(done)
    [flagged] = flags(figure)
    assert flagged.startswith(case.says) and flagged.endswith(f"tick {done.failure.tick:g}")
    waiting = [title for title in titles(figure) if title.endswith(", and for ever")]
    rows = {title.partition(":")[0] for title in waiting}
    assert len(rows) == len(waiting) and bool(rows) == bool(done.failure.waits)
    named = {rank for row in rows for rank in _ranks(row)}
    assert named == {wait.rank for wait in done.failure.waits}
    said = texts(figure)
    assert [sentence for sentence in case.sentences if sentence in said] == case.sentences
    assert any(text.rstrip("…") and done.failure.says.startswith(text.rstrip("…")) for text in said)
    assert outside(figure) == []
    assert trace.until > trace.time or not trace.time
    red = [element for element in parse(figure).iter(SVG + "path") if element.get("stroke") == theme.BAD]
    assert bool(red) == bool(waiting)
    for shown in (said, texts(figure.narrow)):  # every sign has its meaning, on a phone, too
        assert ("waits for ever" in shown) == bool(waiting) and "where it stopped" in shown


def _ranks(row: str) -> list[int]:
    spans = [span.split("-") for span in row.removeprefix("ranks").removeprefix("rank").split(",")]
    return [rank for span in spans for rank in range(int(span[0]), int(span[-1]) + 1)]


def test_many_ranks_share_rows_but_for_the_one_that_failed() -> None:
    many = next(case for case in CASES if case.size.get("ranks") == 64 and "no attribute 'nothing'" in case.says)
    said = texts(draw(error(many).run))
    assert [text for text in said if re.fullmatch(r"(\d+ of )?ranks? [\d.,-]+", text)][:2] == [
        "63 of ranks 0-63",
        "rank 2",
    ]


def test_of_very_many_that_wait_the_circle_is_named_first_and_the_rest_counted() -> None:
    said = texts(draw(error(CASES[-1]).run))
    shown = [text for text in said if " waits for " in text and "since" in text]
    assert shown[:2] == CASES[-1].sentences[:2]
    assert "and 59 more ranks or groups of ranks wait" in said and len(shown) == 5


def test_what_waits_is_written_into_its_row_as_far_as_there_is_room() -> None:
    sums = next(case for case in CASES if case.fn.__name__ == "other_order")
    wide, narrow = texts(draw(error(sums).run)), texts(draw(error(sums).run, width=560))
    assert wide.count("waits for ranks 1, 3 in all-reduce of layer 1") == 2
    assert narrow.count("waits for ranks 1, 3") == 2 and "waits for ranks 1, 3 in all-reduce of layer 1" not in narrow


@cases
def test_a_player_opens_at_the_end_and_says_who_waits(case: Case) -> None:
    done = error(case).run
    shown = data(play(done))
    assert shown["opens"] == shown["time"] > done.time or done.time == shown["opens"] - 1 == 0
    stuck = {row["brief"]: row["stuck"] for row in shown["rows"]}
    ended = [str(rank) for rank in done.failure.ended]
    assert all(stuck[brief] is None for brief in ended if brief in stuck)
    for wait in done.failure.waits:
        if str(wait.rank) in stuck:
            since, words, line = stuck[str(wait.rank)]
            assert (since, words) == (wait.since, f"waits {wait.what}")
            assert line == -1 or re.search(r"await|model\.", shown["code"][line][1])
    rank = done.failure.place.rank
    if rank not in {None, *done.failure.ended, *(wait.rank for wait in done.failure.waits)}:
        assert stuck[str(rank)][1].startswith("error")


def test_a_right_run_is_stuck_nowhere() -> None:
    assert '"stuck":null' in play(sharded_run()).page


def test_lines_are_known_though_a_call_has_not_ended() -> None:
    early = next(case for case in CASES if case.fn.__name__ == "left_early")
    model = error(early).run.models[0]
    assert [event.kind for event in model.log][-1] == "forward"
    assert len(model.lines()) == len(model.log) and "model.forward" in str(model.lines()[-1])
    assert "await model.allreduce" in str(error(early).run.failure.waits[0].line)


def test_a_failed_run_stands_beside_others() -> None:
    right, wrong = sharded_run(4, 2), error(CASES[0]).run
    figure = compare(right, wrong)
    assert flags(figure) and "ranks 0, 2, 3" not in texts(figure)
    assert "only tensors can be stored" in figure.summary
    assert "6" in texts(figure) and right.time == 6.5  # the axis goes on to the end of the one that is right


def forward_only(model: Model) -> Model:
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    model.activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
    return model


def basic(model: Model) -> Model:
    return forward_only(model)


def test_what_does_not_train_the_model_meets_no_target_and_says_what_is_missing() -> None:
    done = run(basic, layers=2, batches=4)
    says = "does not train the model: layer 0 has no final weight"
    assert done.fault == says
    figure = draw(done)
    [shown] = [element for element in parse(figure).iter(SVG + "text") if element.text == says]
    assert (shown.get("fill"), shown.get("class")) == (theme.BAD, "f-bad")
    assert theme.GOOD not in figure.svg().partition("</style>")[2]
    assert any(text.startswith("target ") for text in texts(figure))
    assert "met)" not in figure.summary and says in figure.summary
    assert says in play(done).page
    right = sharded_run(1, 2)
    table = compare(done, right)
    assert says in texts(table) and says in table.summary
    bold = [e.text for e in parse(table).iter(SVG + "text") if e.get("font-weight") == "700"]
    assert bold == []  # the figures of one that does not count are no better than those of the other


def test_a_right_run_has_its_ticks_and_no_fault() -> None:
    done = sharded_run()
    assert done.fault == "" == trace_of(done).fault
    figure = draw(done, time_target=999, memory_target=10**9)
    assert figure.svg().partition("</style>")[2].count(theme.GOOD) >= 2


@pytest.mark.parametrize(
    ("ends", "says"),
    [("nothing", "layer 0 has no final weight"), ("stale", "the final weight of layer 0 is not the updated one")],
)
def test_the_fault_is_said_in_a_line(ends: str, says: str) -> None:
    def program(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        model.activations[0] = model.get_activation([0])
        if ends == "nothing":
            model.forward(0, model.activations[0], model.weights[0])
        if ends == "stale":
            model.forward(0, model.activations[0], model.weights[0])
            model.set_final_weight(0, model.weights[0])

    done = run(program, layers=1)
    assert done.fault == f"does not train the model: {says}"
    assert str(done).count("\n") >= 2


@cases
def test_who_waits_is_said_above_the_rows_on_a_phone_too(case: Case) -> None:
    done = error(case).run
    figure = draw(done)
    for _, sentence in done.failure.sentences()[:2]:
        words = sentence[:20]
        wide = texts(figure)
        assert [at for at, text in enumerate(wide) if text.startswith(words)]
        assert figure.narrow is not None
        assert any(text.startswith(words) for text in texts(figure.narrow))
        if "Memory" in wide:
            assert next(at for at, text in enumerate(wide) if text.startswith(words)) < wide.index("Memory")
