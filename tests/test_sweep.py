"""Many runs at once: every combination, the same figures as one by one, the front, what is wrong, and the picture."""

import csv
import sys
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest

from drawing import draw_sweep, explore
from drawing.charts.explore import picture
from lib import Cost, Model, PuzzleError, RingCost, Sweep, run, sweep
from lib.basics.columns import in_columns
from lib.basics.errors import COLUMNS
from lib.course.specs import COSTS
from lib.real import A100_MEGATRON, Transformer
from lib.study.sweep import Trial
from tests.browser import Browser
from tests.test_grading import SOLUTIONS

module = import_module("lib.study.sweep")  # the name in the package is the function
PROGRAMS = [SOLUTIONS[name] for name in ("ddp", "wsdp", "fsdp", "zero1")]


def wrong(model: Model) -> None:
    model.load_weights(99)


def loud(model: Model) -> Model:
    print("many words")
    return SOLUTIONS["basic"](model)  # type: ignore[no-any-return]


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.process)])
def test_every_program_runs_at_every_size_with_the_figures_of_a_single_run(processes: int) -> None:
    cost = Cost(allreduce=0.6)
    done = sweep(PROGRAMS, ranks=[2, 4], layers=(1, 3), batches=lambda n: [n, 2 * n], cost=cost, processes=processes)
    wanted = [
        (
            fn.__name__,
            {"ranks": n, "layers": layers, "batches": batches, "mesh": None, "node_size": None, "experts": None},
        )
        for n in (2, 4)
        for layers in (1, 3)
        for batches in (n, 2 * n)
        for fn in PROGRAMS
    ]
    assert [(trial.name, trial.size) for trial in done.trials] == wanted
    for trial, fn in zip(done.trials, 8 * PROGRAMS, strict=True):
        try:
            alone = run(fn, **{**trial.size, "experts": 0}, cost=cost)
            alone.verify()
        except PuzzleError as error:
            assert trial.error == str(error).split("\n")[0]
        else:
            assert (trial.time, trial.memory, trial.error) == (alone.time, alone.memory, "")
    assert sum(bool(trial.error) for trial in done.trials) == 12  # all but zero1 have one micro-batch for each rank


def test_layers_may_have_experts(tmp_path: Path) -> None:
    """Programs of puzzles 25 to 28 are swept as all others are, and a size without experts says what is missing."""
    cost, programs = COSTS["experts"], [SOLUTIONS["expert_parallel"], SOLUTIONS["two_batch_overlap"]]
    done = sweep(programs, ranks=[2, 4], layers=4, experts=[8, 16, None], cost=cost, processes=1)
    for trial, fn in zip(done.trials, 6 * programs, strict=True):
        if trial.size["experts"] != 8:  # the prices are those of 8 experts
            assert trial.error
        else:
            alone = run(fn, **trial.size, cost=cost)
            assert (trial.time, trial.memory, trial.error) == (alone.time, alone.memory, "")
    assert "experts 8" in str(done) and ">experts</th>" in done.html()
    done.save(tmp_path / "all.csv")
    rows = [*csv.DictReader((tmp_path / "all.csv").read_text().splitlines())]
    assert [row["experts"] for row in rows] == 2 * (2 * ["8"] + 2 * ["16"] + 2 * [""])
    long = sweep([SOLUTIONS["context_parallel"], SOLUTIONS["ring_attention"]], ranks=[2, 3], batches=1, processes=1)
    assert not any(trial.error for trial in long.trials)


def test_a_mesh_may_follow_from_the_ranks() -> None:
    fn = SOLUTIONS["replica_fsdp"]
    two_boxes = {"mesh": lambda n: {"replica": 2, "shard": n // 2}, "node_size": lambda n: n // 2}
    done = sweep(fn, ranks=[4, 8], batches=lambda n: 2 * n, **two_boxes, processes=1)  # type: ignore[arg-type]
    assert [(trial.size["mesh"], trial.size["node_size"], trial.error) for trial in done.trials] == [
        ({"replica": 2, "shard": 2}, 2, ""),
        ({"replica": 2, "shard": 4}, 4, ""),
    ]
    assert done.trials[1].time == 55.8


def trials(*figures: tuple[float, int]) -> Sweep:
    return Sweep([Trial(f"p{at}", {"ranks": 2}, time, memory) for at, (time, memory) in enumerate(figures)])


def test_the_front_is_what_nothing_of_the_same_size_beats() -> None:
    made = trials((1, 9), (2, 5), (2, 6), (3, 5), (4, 1), (1, 9))
    assert [trial.name for trial in made.front()] == ["p0", "p1", "p4", "p5"]
    elsewhere = Trial("q", {"ranks": 4}, 9, 9)
    assert Sweep([*made.trials, elsewhere]).front()[-1] == elsewhere
    broken = Trial("r", {"ranks": 2}, 0, 0, error="no")
    assert broken not in Sweep([*made.trials, broken]).front()


def test_a_wrong_program_has_its_error_in_its_row_and_what_is_printed_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    done = sweep([wrong, loud], ranks=1, layers=2, batches=4, processes=1)
    assert [bool(trial.error) for trial in done.trials] == [True, False]
    assert "layer is out of range" in str(done) and "front" in str(done)
    printed = capsys.readouterr()
    assert "many words" not in printed.out and printed.err == ""
    assert "1 of 2 runs" in printed.out and printed.out.endswith("\r")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    sweep([wrong, loud], processes=1)
    assert capsys.readouterr().out == ""  # in a file nobody looks at a bar


def test_a_sweep_is_written_as_a_table(tmp_path: Path) -> None:
    done = sweep([*PROGRAMS[:2], wrong], ranks=4, processes=1)
    done.save(tmp_path / "sweep.csv")
    with open(tmp_path / "sweep.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["program"], row["ticks"], row["elements"], row["front"]) for row in rows] == [
        ("ddp", "16.8", "4194304", "1"),
        ("wsdp", "20.4", "1966080", "1"),
        ("wrong", "", "", "0"),
    ]
    assert rows[2]["error"].startswith("rank 0, load_weights: layer is out of range")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: sweep([3]), "takes a function"),  # type: ignore[list-item]
        (lambda: sweep([]), "a sweep is of 1 to 2,000 runs"),
        (lambda: sweep(PROGRAMS, ranks=[]), "a sweep is of 1 to 2,000 runs"),
        (lambda: sweep(PROGRAMS, ranks=range(1, 999)), "a sweep is of 1 to 2,000 runs"),
        (lambda: sweep(PROGRAMS, processes=0), "processes must be a whole number from 1 up"),
        (lambda: draw_sweep(3), "draw_sweep takes a sweep"),  # type: ignore[arg-type]
        (lambda: draw_sweep(Sweep([Trial("a", {}, error="no")])), "no program of the sweep is right"),
    ],
)
def test_what_is_no_sweep_is_refused(call: object, says: str) -> None:
    with pytest.raises(PuzzleError, match=says):
        call()  # type: ignore[operator]


def test_the_picture_has_a_point_for_each_right_trial() -> None:
    done = sweep(PROGRAMS[:3], ranks=[2, 4], processes=1)
    root = ElementTree.fromstring(draw_sweep(done).svg())
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    for trial in done.trials:
        assert sum(f"{trial.name}\nranks {trial.size['ranks']}" in (title or "") for title in titles) == 1
    assert "What no other of the same size beats: ddp, ranks 2" in draw_sweep(done).summary


def test_the_target_of_one_puzzle_at_its_size_and_prices_is_a_box() -> None:
    size = {"ranks": 4, "layers": 6, "batches": 4, "mesh": None, "node_size": None, "experts": None}
    own = [Trial("fsdp", size, 20.4, 1966080), Trial("mine", size, 19.0, 2500000)]
    said = "within the target of fsdp"

    def shown(*more: Trial, cost: Cost | None = None) -> str:
        return draw_sweep(Sweep([*own, *more], cost)).svg()

    assert said in shown() and said in shown(cost=Cost()) and "20.4 ticks, 2,359,296 elements<" in shown()
    assert "the target of fsdp: 20.4 ticks" in draw_sweep(Sweep(own)).summary
    assert "target" not in shown(cost=Cost(collective=1))
    assert "target" not in shown(Trial("mine", size | {"layers": 4}, 14.0, 1000000))  # no target of that size
    assert "target" not in shown(Trial("wsdp", size, 20.4, 1966080))  # which of two?
    assert sweep(PROGRAMS[:1], ranks=[2], cost=Cost(), processes=1).cost == Cost()


def test_the_picture_has_no_violation_in_a_browser(browser: Browser) -> None:
    sight = browser.show(draw_sweep(sweep(PROGRAMS[:3], ranks=[2, 4], processes=1))._repr_html_())
    assert sight.violations == {} and sight.colors > 20


def test_the_picture_of_a_slider_follows_the_size_and_tells_what_is_wrong() -> None:
    ddp = SOLUTIONS["ddp"]
    at_8, slow = picture(ddp, 8, 2, 1, 1), picture(ddp, 8, 2, 1, 10)
    assert "8 ranks" in at_8 and "5.6" in at_8
    assert run(ddp, ranks=8, layers=2, batches=8, cost=Cost(collective=3.0, send=2.0)).time == 11.0 and "11" in slow
    wrong = picture(ddp, 2, 2, 2, 1)  # two micro-batches on each rank are too many for it
    assert wrong.startswith("<pre ") and "missing micro-batches 2, 3" in wrong and "<svg" in wrong


def test_without_widgets_a_sentence_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["drawing.charts.explore"], "find_spec", lambda name: None)
    alone = explore(SOLUTIONS["ddp"], layers=2)
    assert "pip install ipywidgets" in capsys.readouterr().out and "ddp: 4 ranks, 2 layers" in alone.summary
    with pytest.raises(PuzzleError, match="takes a function"):
        explore(3)  # type: ignore[arg-type]


def test_moving_a_slider_draws_anew() -> None:
    box = explore(SOLUTIONS["ddp"], layers=2)
    ranks, layers, each, slower, shown = box.children
    assert [one.value for one in (ranks, layers, each, slower)] == [4, 2, 1, 1] and "4 ranks" in shown.value
    ranks.value = 16
    assert "16 ranks" in shown.value
    each.value = 2
    assert "missing micro-batches" in shown.value


def test_a_sweep_on_a_cluster_is_in_seconds_and_bytes(tmp_path: Path) -> None:
    cost = A100_MEGATRON.cost(Transformer(6, 512, 8, 256, 1024, tied=True))
    made = sweep([SOLUTIONS["fsdp"]], ranks=[2, 4], layers=6, cost=cost, processes=1)
    head, row = str(made).splitlines()[:2]
    assert head.split() == ["program", "size", "s", "bytes", "bubble"] and " MB" in row
    made.save(tmp_path / "a.csv")
    assert ",s,bytes," in (tmp_path / "a.csv").read_text(encoding="utf-8")
    drawn = draw_sweep(made)
    assert "in bytes" in drawn.svg() and "time, in s" in drawn.svg() and " MB" in drawn.summary
    assert "ticks" not in drawn.svg() and "elements" not in drawn.svg()


def test_its_table_has_a_row_for_each_run_with_rounded_figures_and_whole_words() -> None:
    made = sweep([*PROGRAMS[:2], wrong], ranks=[2, 3], cost=RingCost(), processes=1)
    html = made.html()
    root = ElementTree.fromstring(html)
    heads = [cell.text or "" for cell in root.iter("th") if cell.get("scope") == "col"]
    assert heads == ["program", "ranks", "layers", "batches", "ticks", "elements", "bubble", ""]
    rows = [[cell.text or "" for cell in row] for row in root.iter("tr")][1:]
    assert [row[0] for row in rows] == [trial.name for trial in made.trials]
    for row, trial in zip(rows, made.trials, strict=True):
        assert row[1:4] == [str(trial.size[name]) for name in ("ranks", "layers", "batches")]
        if not trial.error:
            assert float(row[4]) == pytest.approx(trial.time, abs=0.005) and len(row[4].partition(".")[2]) <= 2
    assert any(trial.time != round(trial.time, 2) for trial in made.trials)  # there was something to round
    assert [row[-1] for row in rows if row[0] == "wrong"] == [trial.error for trial in made.trials if trial.error]
    assert "break-word" in html and "break-all" not in html and "<pre" not in html


def test_a_program_without_a_point_is_not_in_the_legend() -> None:
    drawn = draw_sweep(sweep([wrong, *PROGRAMS[:2]], ranks=[2], processes=1))
    shown = [element.text for element in ElementTree.fromstring(drawn.svg()).iter() if element.tag.endswith("}text")]
    assert {"ddp", "wsdp"} <= {*shown} and "wrong" not in shown


def test_sliders_and_picture_take_the_room_of_the_page_and_no_more(browser: Browser) -> None:
    """Within a widget a picture is in a row that would grow with it."""
    box = explore(SOLUTIONS["ddp"], layers=2)
    inside = f'<div style="display:flex;width:850px"><div style="flex:1 1 auto">{box.children[-1].value}</div></div>'
    wide = "document.querySelector('svg.ltp:not(.narrow)').getBoundingClientRect().width"
    measure = f"() => [{wide}]"
    assert browser.show(inside, measure, width=900, judged=False).measured == [850]
    assert [child.layout.width for child in (box, *box.children)] == ["auto"] * 6


def test_a_printed_table_breaks_no_word_in_a_narrow_cell() -> None:
    """A notebook breaks lines that are too long wherever they end, in the middle of a word, too."""
    made = sweep([SOLUTIONS["interleaved"], SOLUTIONS["ddp"]], ranks=2, layers=[4, 8], batches=[3, 8], processes=1)
    lines = str(made).splitlines()
    assert max(map(len, lines)) <= COLUMNS and any("gradient is missing" in line for line in lines)
    assert " ".join(str(made).split()) == " ".join(" ".join(in_columns([made.heads(), *made.rows()])).split())
