"""Verdicts, rules of form, progress and the notebook's grade."""

import ast
import json
import re
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree

import pytest

import lib
from drawing.ink import theme
from lib import Model, PuzzleError, grade, hint, progress, run, solution, start_from
from lib.basics.errors import show_set
from lib.basics.units import TICKS
from lib.course.ideas import IDEAS, place_at
from lib.course.layouts import LAYOUTS, WITH_ADAPTERS, Size, check_layout
from lib.course.outlines import OUTLINES
from lib.course.sizes import SIZES, other_sizes, show_size
from lib.course.specs import COSTS, Puzzle, cost_named, find, forget, kept, puzzles
from lib.grading import page, seal
from lib.grading.judge import judge, praise
from lib.grading.progress import LONGEST, Point, Progress
from lib.grading.submission import load
from lib.grading.verdict import ERROR, FAIL, PASS, TODO, Report, Verdict
from lib.machine.interface import FinalState
from lib.record.codes import legend
from lib.record.kinds import KINDS
from lib.record.table import OPERATIONS
from solutions.build.sources.files import ROOT
from tests.corpus.honest import HONEST
from tests.drawing_events import event
from tests.programs import COURSE, SMALLER, solutions
from tests.slow import EVERYTHING, some

SOLUTIONS = {spec["name"]: fn for fn, spec in solutions()}


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in some([*SOLUTIONS], 3) if EVERYTHING or name not in SMALLER])
def test_solutions_pass_in_a_notebook(name: str) -> None:
    verdict = grade(SOLUTIONS[name])
    assert (verdict.status, verdict.right) == (PASS, True)
    assert [*verdict.held_at] == [
        show_size(size) for size in other_sizes(puzzles()[name].other_sizes, puzzles()[name].size)
    ]


def test_a_size_is_told_in_words() -> None:
    assert show_size({"ranks": 1, "layers": 1, "batches": 1}) == "1 rank, 1 layer, 1 micro-batch"
    assert show_size({"ranks": 4, "layers": 6, "batches": 8}) == "4 ranks, 6 layers, 8 micro-batches"
    nodes = {"ranks": 6, "layers": 2, "batches": 12, "mesh": {"replica": 2, "shard": 3}}
    assert show_size(nodes) == "6 ranks, 2 layers, 12 micro-batches, mesh replica 2 x shard 3"


def test_every_word_of_a_spec_is_known() -> None:
    assert {puzzle.layout for puzzle in puzzles().values()} == LAYOUTS.keys() | WITH_ADAPTERS.keys()
    assert {puzzle.other_sizes for puzzle in puzzles().values()} == SIZES.keys()


def test_right_at_one_size_only_names_the_size_that_broke_it() -> None:
    def basic(model: Model) -> None:
        if model.LAYERS == 2:
            SOLUTIONS["basic"](model)

    verdict = grade(basic)
    assert verdict.status == FAIL and verdict.right is False
    assert f"right at its own size, but not with {verdict.failed_at}" in verdict.message
    assert verdict.time == 17.0


def test_the_grader_says_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("lib.grading.notebook.judge", fails)
    monkeypatch.setattr("lib.grading.notebook.broken_seal", lambda: "")
    verdict = grade(SOLUTIONS["basic"])
    assert verdict.status == ERROR and "the grader failed: ZeroDivisionError: oh" in verdict.message


@pytest.mark.parametrize("layers", [4, 8, 12, 16])
def test_a_stage_is_a_quarter_of_the_layers(layers: int) -> None:
    quarter = layers // 4
    mine = [event(3, kind, 0, 1, layer) for kind in ("forward", "backward") for layer in range(quarter)]
    others = [event(1, "forward", 0, 1, layer) for layer in range(quarter, 2 * quarter)]
    elsewhere = [event(3, kind, 2, 3, layers - 1) for kind in ("load_weights", "allgather", "update")]
    IDEAS["four_stages"].check(Mock(events=[*mine, *others, *elsewhere], layers=layers, unit=TICKS))
    for kind in ("forward", "backward"):
        more = event(3, kind, 4, 5, layers - 1)
        with pytest.raises(PuzzleError) as raised:
            IDEAS["four_stages"].check(Mock(events=[*mine, *others, *elsewhere, more], layers=layers, unit=TICKS))
        error = raised.value
        assert (error.place.rank, error.place.operation, error.place.layer) == (3, kind, layers - 1)
        assert (error.place.tick, error.place.detail) == (4, "at tick 4")
        assert error.problem == f"it runs {quarter + 1} of {layers} layers"
        assert error.expected == IDEAS["four_stages"].sentence


# -- layouts: what a rank begins and ends with --------------------------------------------------------------

LAID = {
    "whole": ("ddp", {"ranks": 3, "layers": 2, "batches": 3}),
    "sharded": ("fsdp", {"ranks": 3, "layers": 2, "batches": 3}),
    "states_sharded": ("zero1", {"ranks": 3, "layers": 2, "batches": 6}),
    "stages": ("gpipe", {"ranks": 2, "layers": 4, "batches": 3}),
    "sharded_stages": ("breadth_first", {"ranks": 6, "layers": 4, "batches": 15, "mesh": {"stage": 2, "shard": 3}}),
    "hybrid_sharded": ("repair_groups", {"ranks": 6, "layers": 2, "batches": 6, "mesh": {"replica": 2, "shard": 3}}),
    "replica_sharded": ("replica_fsdp", {"ranks": 6, "layers": 2, "batches": 12, "mesh": {"replica": 2, "shard": 3}}),
    "both_ends": ("dualpipe", {"ranks": 4, "layers": 8, "batches": 10, "mesh": {"half": 2, "place": 2}}),
    "experts_sharded": ("expert_parallel", {"ranks": 3, "layers": 2, "batches": 3, "experts": 6}),
    "trainers_and_generators": (
        "weight_sync",
        {"ranks": 12, "layers": 3, "batches": 6, "mesh": {"side": 2, "place": 6}, "node_size": 6},
    ),
    "tied_stages": ("repair_ends", {"ranks": 2, "layers": 6, "batches": 3, "tied": True}),
    "anywhere": ("compose", {"ranks": 6, "layers": 6, "batches": 12, "mesh": {"x": 2, "y": 1, "z": 3}}),
}
"""A solution for each layout, and a size with no two numbers alike that mean different things."""


def ended(layout: str) -> tuple[dict[str, Any], tuple[FinalState, ...]]:
    name, size = LAID[layout]
    assert puzzles()[name].layout == layout
    honest = next(program for program in HONEST if program.puzzle == name)
    states = tuple(run(load("attempt.py", honest.source)[0][name], **size).final_states)  # type: ignore[arg-type]
    size = {**size, "tensor": puzzles()[name].tensor}
    check_layout(layout, size, states)
    return size, states


def refused(layout: str, size: dict[str, Any], states: Sequence[FinalState], rank: int, **other: Any) -> PuzzleError:
    """What is said of a rank that differs from the others in this."""
    changed = [state._replace(**other) if state.rank == rank else state for state in states]
    with pytest.raises(PuzzleError) as raised:
        check_layout(layout, size, changed)
    assert raised.value.place.rank == rank
    return raised.value


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rank_that_begins_or_ends_with_other_pieces_is_named(layout: str) -> None:
    size, states = ended(layout)
    ended_with = {"Weight": "final weight", "OptState": "updated optimizer state"}
    for state in states:
        rank = state.rank
        for layer, final in state.finals.items():
            states_of = [
                piece for piece in state.kept if piece.labels.kind == "OptState" and piece.labels.layer == layer
            ]
            ends = [("finals", final.labels), *[("kept", one.labels) for one in states_of]]
            parts = dict(ends)  # generators have no states
            for name, part in parts.items():
                less = {key: one for key, one in state.finals.items() if key != layer}
                rest: Any = less if name == "finals" else tuple(one for one in state.kept if one not in states_of)
                error = refused(layout, size, states, rank, **{name: rest})
                assert error.problem == f"it ends without the {ended_with[part.kind]} of layer {layer}"
                wanted = f"shard {{{min(part.shards)}}} of {part.total}" if part.total > 1 else "all of it"
                assert (error.expected, error.got) == (wanted, "nothing of it")
                assert error.rule == "wrong_part" and error.facts["layer"] == layer
                others = [part.changed(shards=frozenset({(min(part.shards) + 1) % 7}), total=7)]
                if not part.is_whole():  # all of it where a piece is wanted
                    others.append(part.changed(shards=frozenset({0}), total=1))
                for other in others:
                    swapped: Any = less | {layer: final._replace(labels=other)}
                    if name == "kept":
                        swapped = (*rest, states_of[0]._replace(labels=other))
                    error = refused(layout, size, states, rank, **{name: swapped})
                    wrong_part = f"it ends with the wrong part of the {ended_with[part.kind]} of layer {layer}"
                    got = "all of it" if other.is_whole() else f"shard {show_set(other.shards)} of 7"
                    assert (error.problem, error.expected, error.got) == (wrong_part, wanted, got)
                if name == "kept":  # of step 0 or 2, of another kind: not what its update has made
                    for wrong in (part.changed(step=0), part.changed(step=2), part.changed(kind="Weight")):
                        late = refused(layout, size, states, rank, kept=(*rest, states_of[0]._replace(labels=wrong)))
                        assert late.got == "nothing of it"
        one = next(iter(state.finals.values()))
        error = refused(
            layout, size, states, rank, finals=state.finals | {9: one._replace(labels=one.labels.changed(layer=9))}
        )
        assert error.problem.endswith("the final weight of layer 9") and error.expected == "nothing of it"


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("stages", "anywhere")])
def test_a_rank_that_loads_other_pieces_is_named(layout: str) -> None:
    size, states = ended(layout)
    for state in states:
        for part in state.began:
            rest = tuple(one for one in state.began if one != part)
            wanted = f"shard {{{min(part.shards)}}} of {part.total}" if part.total > 1 else "all of it"
            for began, got in (
                (rest, "nothing of it"),
                ((*rest, part.changed(shards=frozenset({2}), total=5)), "shard {2} of 5"),
            ):
                error = refused(layout, size, states, state.rank, began=began)
                how_much = "without the" if got == "nothing of it" else "with the wrong part of the"
                assert error.problem == f"it begins {how_much} {KINDS[part.kind].word} of layer {part.layer}"
                assert (error.expected, error.got, error.facts["when"]) == (wanted, got, "begins")


def test_generators_end_with_as_many_pieces_as_the_spec_says() -> None:
    size, states = ended("trainers_and_generators")
    error = refused("trainers_and_generators", size | {"tensor": 3}, states, 6)
    assert (error.expected, error.got) == ("shard {0} of 3", "shard {0} of 2")
    error = refused("trainers_and_generators", size | {"tensor": 6}, states, 6)
    assert (error.expected, error.got) == ("shard {0} of 6", "shard {0} of 2")


def test_a_piece_may_be_loaded_in_parts() -> None:
    size, states = ended("sharded")
    first = states[1]
    halves = [part.changed(shards=frozenset({half}), total=6) for part in first.began for half in (2, 3)]
    check_layout("sharded", size, [states[0], first._replace(began=tuple(halves)), states[2]])


def test_a_state_loaded_after_work_on_its_layer_is_told() -> None:
    size, states = ended("sharded")
    late = tuple(part for part in states[2].began if part.kind == "OptState")
    error = refused("sharded", size, states, 2, late=late)
    assert error.problem == f"it has loaded the optimizer state of layer {late[0].layer} only after work on that layer"


def test_a_stage_loads_its_own_layers_and_as_many_as_the_others() -> None:
    size, states = ended("stages")
    both = states[0].began + states[1].began
    error = refused("stages", size, states, 1, began=both)
    assert error.problem == "it loads layers {0-3}, of which rank 0 has loaded {0, 1}"
    assert error.expected == "2 layers for each rank, each layer on one rank"
    assert error.rule == "other_layers"
    error = refused("stages", size, states, 1, began=states[0].began)
    assert error.problem == "it loads layers {0, 1}, of which rank 0 has loaded {0, 1}"
    for few in (states[1].began[:2], states[1].began[2:]):
        assert refused("stages", size, states, 1, began=few).problem == f"it loads layers {{{few[0].layer}}}"
    one = {"ranks": 2, "layers": 2, "batches": 1}
    error = refused("stages", one, run(SOLUTIONS["gpipe"], **one).final_states, 0, began=())
    assert (error.problem, error.expected) == ("it loads layers {}", "1 layer for each rank, each layer on one rank")


def test_the_ranks_of_a_stage_load_the_same_layers_and_other_stages_others() -> None:
    size, states = ended("sharded_stages")
    expected = "2 layers for each stage, each layer on one stage"
    first, second = states[:3], states[3:]
    for state in first[1:]:  # with the layers of the other stage
        error = refused("sharded_stages", size, states, state.rank, began=second[0].began)
        assert error.problem == "it loads layers {1, 3}, and rank 0, of the same stage, {0, 2}"
        assert error.expected == expected
    for state in second:
        error = refused("sharded_stages", size, states, state.rank, began=first[0].began)
        assert error.problem == "it loads layers {0, 2}, of which rank 0 has loaded {0, 2}"
        assert error.expected == expected
    for state in states:
        for few in (state.began[:2], state.began[2:], ()):
            error = refused("sharded_stages", size, states, state.rank, began=few)
            assert error.problem.startswith(f"it loads layers {show_set({part.layer for part in few})}")
            assert ("of the same stage" in error.problem) == (state not in (first[0], second[0]))
            assert error.expected == expected
    moved = [state._replace(rank=rank) for rank, state in enumerate((*second, *first))]
    check_layout("sharded_stages", size, moved)  # which stage has which layers is free


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [(lib.learner.model.Model, "load_weights", lambda *a: None), (lib.grading.judge, "check", lambda *a: None)],
)
def test_a_changed_library_is_seen(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: Any) -> None:
    monkeypatch.setattr(owner, name, value)
    verdict = grade(SOLUTIONS["basic"])
    assert verdict.status == FAIL and name in verdict.message and "restart the kernel" in verdict.message


def test_a_changed_table_of_operations_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    row = OPERATIONS["update"]
    monkeypatch.setitem(OPERATIONS, "update", OPERATIONS["forward"])
    assert seal.broken_seal().endswith(".OPERATIONS")
    monkeypatch.undo()
    monkeypatch.setitem(vars(row), "rule", lambda *a: None)
    assert seal.broken_seal().endswith(".UPDATE")


FAMILY: Any = SIZES["one_rank"]
FIRST, OWN_LAYERS = FAMILY[0], IDEAS["own_layers"]


def puzzle_replaced() -> None:
    puzzles()["basic"] = find("basic")._replace(target={"time": 99, "memory": 10**9})


@pytest.mark.parametrize(
    ("named", "change", "back"),
    [
        ("lib/specs.json", lambda: find("basic").target.update(time=99), forget),
        ("lib/specs.json", puzzle_replaced, forget),
        ("lib/outlines.json", lambda: kept(OUTLINES)["basic"].clear(), forget),
        ("COSTS", lambda: vars(COSTS["default"]).update(forward=0), lambda: vars(COSTS["default"]).update(forward=1)),
        ("IDEAS", lambda: IDEAS.update(own_layers=IDEAS["in_a_v"]), lambda: IDEAS.update(own_layers=OWN_LAYERS)),
        ("SIZES", lambda: FAMILY.__setitem__(0, FAMILY[1]), lambda: FAMILY.__setitem__(0, FIRST)),
    ],
)
def test_a_table_that_a_function_changes_is_named_instead_of_a_verdict(named: str, change: Any, back: Any) -> None:
    def changes(model: Model) -> Any:
        change()
        return SOLUTIONS["basic"](model)

    assert grade(SOLUTIONS["basic"], "basic").status == PASS
    try:
        verdict = grade(changes, "basic")
    finally:
        back()
    assert verdict.status == FAIL and re.search(rf"{named} is not what it was", verdict.message)
    assert grade(SOLUTIONS["basic"], "basic").status == PASS


def test_each_function_method_and_code_is_looked_at() -> None:
    seen = {(id(now), key) for _, now, before in seal._sealed for key in before}
    codes, kept = {function for function, _ in seal._codes}, {of: before for of, _, before in seal._sealed}
    modules = [one for name, one in kept[""].items() if name.startswith("lib.")]
    assert len(modules) > 100 and len(codes) > 2000
    for module in modules:
        for key, value in vars(module).items():
            if isinstance(value, types.FunctionType) and value.__module__.startswith("lib."):
                assert (id(vars(module)), key) in seen and value in codes, f"{module.__name__}.{key}"
            if isinstance(value, type) and value.__module__ == module.__name__:
                own = [one for one in vars(value).values() if isinstance(one, types.FunctionType)]
                now = {
                    k: one for k, one in vars(value).items() if k.isupper() or callable(one) or hasattr(one, "__get__")
                }
                assert now == kept[f"{module.__name__}.{value.__qualname__}."] and codes >= {*own}, value


def test_changed_builtins_and_code_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seal.broken_seal() == ""
    for place in ("builtins.len", "lib.machine.outcome.Outcome.time"):
        monkeypatch.setattr(place, lambda thing: 1)
        assert seal.broken_seal() == place.removeprefix("builtins.")
        monkeypatch.undo()
    code = lib.machine.check.check_finals.__code__
    try:
        lib.machine.check.check_finals.__code__ = (lambda final_states: False).__code__
        assert "check_finals.__code__" in seal.broken_seal()
    finally:
        lib.machine.check.check_finals.__code__ = code
    assert seal.broken_seal() == ""


def verdicts() -> list[Verdict]:
    one, two, three, four = list(puzzles().values())[:4]
    return [
        Verdict(one, PASS, "Correct", True, 17.0, 2621440, 0.25, ("1 rank",)),
        Verdict(two, FAIL, "rank 0: <b>wrong</b>\n  expected: &", False, next_hint='hint("x")'),
        Verdict(three, TODO, "not attempted yet"),
        Verdict(four, ERROR, "the grader failed"),
    ]


def test_tables_are_tables_and_say_the_status_in_a_word() -> None:
    for verdict in verdicts():
        html = page.table(verdict)
        root = ElementTree.fromstring(html)
        assert verdict.status in "".join(root.itertext()) and verdict.puzzle.title in "".join(root.itertext())
        assert all(head.get("scope") == "row" for head in root.iter("th"))
        assert not re.search(r"<script|https?:|url\(|src=", html)
    assert "&lt;b&gt;wrong" in page.table(verdicts()[1])


def test_text_is_complete_and_plain() -> None:
    text = page.report_text(Report(verdicts(), "nowhere"))
    for word in (PASS, FAIL, TODO, ERROR, "1 of 4 puzzles pass", "17 ticks", 'hint("x")', "Graded nowhere"):
        assert word in text
    assert "\033" not in text
    colored = page.report_text(Report(verdicts()), color=True)
    assert "\033[32mPASS \033[0m" in colored
    assert re.sub(r"\033\[\d+m", "", colored) == page.report_text(Report(verdicts()))


def passes() -> list[Verdict]:
    """One without its star, one with it, one that has none and is better than the best known."""
    figures = (("wsdp", 20.4, 1966080), ("gpipe", 5.0, 2490368), ("repair_skip", 5.6, 1572863))
    return [Verdict(puzzles()[name], PASS, "", True, time, memory, 0.5, ("a", "b")) for name, time, memory in figures]


def test_a_report_has_a_line_for_a_pass_and_all_of_the_others() -> None:
    told = page.report_text(Report([*passes(), *verdicts()[1:]])).split("\n")
    assert told[1:5] == [
        "PASS  puzzle 3   wsdp         20.4 ticks  1,966,080 elements  the star asks for                   17.1 ticks  "
        "1,966,080 elements",
        "PASS  puzzle 6   gpipe           5 ticks  2,490,368 elements  \N{BLACK STAR} star, better than the best known",
        "PASS  puzzle R6  repair_skip   5.6 ticks  1,572,863 elements  better than the best known",
        "FAIL  puzzle 1  grad_accum: rank 0: <b>wrong</b>",
    ]
    said = replace(passes()[0], printed="one\ntwo\n", note="progress could not be saved")
    assert page.report_text(Report([said])).split("\n")[3:] == [
        "      printed:  one",
        "                two",
        "      note:     progress could not be saved",
    ]


def test_a_verdict_tells_no_more_than_a_learner_needs() -> None:
    def facts(**changed: Any) -> dict[str, str]:
        return dict(replace(passes()[0], **changed).facts())

    plain = facts()
    assert plain["also right at"] == "2 other sizes" and "bubble" not in plain
    assert facts(held_at=("a",))["also right at"] == "1 other size"
    slow = facts(status=FAIL, held_at=())
    assert slow["bubble"] == "50 percent of all ranks' time" and "also right at" not in slow
    assert "bubble" not in facts(status=FAIL, idle=0.001) and "bubble" not in facts(status=FAIL, idle=None)
    told = passes()[0].as_json()
    assert (told["held_at"], told["idle"]) == (["a", "b"], 0.5)  # programs want all


def test_badges_can_be_read() -> None:
    assert all(theme.contrast(color, "#ffffff") >= 4.5 for color in page.COLORS.values())


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As in a notebook whose kernel runs in an empty folder."""
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM_TRAINING_PUZZLES_PROGRESS", raising=False)
    return tmp_path


def wrong(model: Model) -> None:
    model.load_weights(9)


def test_the_best_so_far_is_kept(kernel: Path) -> None:
    assert f"0 of {len(COURSE)} puzzles solved" in str(progress())
    grade(wrong, "basic")
    assert progress().best["basic"]["status"] == FAIL
    grade(SOLUTIONS["basic"])
    assert progress().best["basic"] == {"status": PASS, "time": 17.0, "memory": 2621440}
    grade(SOLUTIONS["grad_accum"], "basic")  # as fast, and smaller
    assert progress().best["basic"]["memory"] == 1966080
    grade(SOLUTIONS["basic"])
    grade(wrong, "basic")
    grade(lambda model: model, "fsdp")  # not attempted: nothing to keep
    assert progress().best == {"basic": {"status": PASS, "time": 17.0, "memory": 1966080}}
    shown = str(progress())
    assert f"Progress: 1 of {len(COURSE)} puzzles solved" in shown and "1,966,080" in shown
    root = ElementTree.fromstring(f"<div>{progress()._repr_html_()}</div>")
    assert len(root.findall("table/tbody/tr")) == len(puzzles()) and {th.get("scope") for th in root.iter("th")} == {
        "row",
        "col",
    }


def stored_again(*keys: str) -> Callable[[Model], Model]:
    """Puzzle 0, right, with its input under more keys than one. Each counts."""

    def fat(model: Model) -> Model:
        inp = model.get_activation(range(model.BATCHES))
        model.activations.update(dict.fromkeys(keys, inp))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Model, "get_activation", lambda model, batches: inp)
            return SOLUTIONS["basic"](model)

    return fat


def test_right_attempts_are_kept_as_a_trail(kernel: Path) -> None:
    basic, small = SOLUTIONS["basic"], SOLUTIONS["grad_accum"]
    over, passed, better = Point(17.0, 3145728, False), Point(17.0, 2621440, True), Point(17.0, 1966080, True)
    for fn, trail in (
        (wrong, []),
        (stored_again("twice"), [over]),
        (small, [over, better]),
        (basic, [over, better, passed]),  # not the best, and yet the newest
        (small, [over, passed, better]),  # the same again is the newest again
        (lambda model: model, [over, passed, better]),
    ):
        grade(fn, "basic")
        assert progress().trail.get("basic", []) == trail
    assert progress().best["basic"] == {"status": PASS, "time": 17.0, "memory": 1966080}


def test_a_trail_has_an_end_and_an_old_file_has_none(kernel: Path) -> None:
    old = {"version": 1, "best": {"basic": {"status": "PASS", "time": 17.0, "memory": 2621440}}, "hints": {"ddp": 1}}
    (kernel / "progress.json").write_text(json.dumps(old))
    kept = progress()
    assert (kept.trail, kept.note, kept.hints) == ({}, "", {"ddp": 1})
    for number in range(LONGEST + 5):
        kept.record(Verdict(puzzles()["wsdp"], FAIL, "", True, 20.0 + number, 1966080))
    assert [point.time for point in progress().trail["wsdp"]] == [20.0 + n for n in range(5, LONGEST + 5)]
    assert progress().best.keys() == {"basic", "wsdp"} and progress().hints == {"ddp": 1}


def test_a_right_attempt_mentions_the_picture_once_in_a_notebook(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for fn, count in ((SOLUTIONS["basic"], 1), (stored_again("twice"), 1), (wrong, 0)):
        verdict = grade(fn, "basic")
        told = page.text(verdict.verdict, why=True)
        assert told.count('import draw_attempts; draw_attempts("basic")') == count
        assert page.table(verdict.verdict).count("draw_attempts(&quot;basic&quot;)") == count
    monkeypatch.delitem(sys.modules, "ipykernel")
    assert "draw_attempts" not in page.text(grade(SOLUTIONS["basic"]).verdict, why=True)  # no picture is shown there


def test_a_pass_counts_outside_a_notebook_and_hints_begin_anew_with_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM_TRAINING_PUZZLES_PROGRESS")
    hint("basic")
    assert list(tmp_path.iterdir()) == []
    grade(SOLUTIONS["basic"])
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]
    assert progress().solved == ["basic"] and "async def" not in str(solution("ddp"))
    assert "def basic" in str(solution("basic"))


@pytest.mark.parametrize(
    "broken",
    ["", "{", "[]", "null", '{"version": 1}', '{"version": 1e999}', "\x00" * 100, "[" * 100_000,
     '{"version": 1, "best": {}, "hints": {}, "trail": 3}', '{"version": 1, "best": {}, "hints": {}, "trail": []}'],
)  # fmt: skip
def test_a_broken_file_is_set_aside_and_said(kernel: Path, broken: str) -> None:
    (kernel / "progress.json").write_text(broken)
    found = progress()
    assert "was broken; it is kept as progress-broken-" in str(found)
    aside = [path for path in kernel.iterdir() if path.name.startswith("progress-broken-")]
    assert [path.read_text() for path in aside] == [broken]
    grade(SOLUTIONS["basic"])
    assert json.loads((kernel / "progress.json").read_text())["best"]["basic"]["status"] == PASS


@pytest.fixture
def new_session(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """As when a kernel is started in that folder: call it for another one."""

    def begin() -> None:
        monkeypatch.setattr("lib.grading.notebook._given", {})

    begin()
    return begin


def heads(*hints: Any) -> list[str]:
    return [
        re.sub(r"; hint\(.*?\) shows the first", "", str(one).partition("\n")[0]).partition(";")[0] for one in hints
    ]


def test_a_new_kernel_goes_on_with_the_hints_where_the_last_one_stopped(new_session: Callable[[], None]) -> None:
    assert heads(hint("ddp")) == ["Hint 1 of 3 for ddp"]
    new_session()
    assert heads(hint("ddp"), hint("ddp"), hint("ddp")) == [f"Hint {number} of 3 for ddp" for number in (2, 3, 3)]
    assert heads(hint("ddp", 1), hint("fsdp")) == ["Hint 1 of 3 for ddp", "Hint 1 of 3 for fsdp"]
    with pytest.raises(PuzzleError, match="ddp has no hint 4"):
        hint("ddp", 4)


def test_a_hint_tells_ranks_once_that_do_the_same() -> None:
    for name, puzzle in puzzles().items():
        said = str(hint(name, min(2, len(puzzle.hints))))
        rows = {line.split("  ")[0] for line in said.splitlines() if re.match(r"rank \d+  ", line)}
        together = re.search(r"ranks 2-(\d+) do the same as rank 0, on their own micro-batches", said)
        many = name in ("replica_fsdp", "buckets", "hierarchical", "hpz", "repair_groups", "repair_book")
        assert bool(together) == many, name
        assert not together or rows == {"rank 0", "rank 1"}, name


def test_what_a_code_means_is_said_with_a_rank_that_every_machine_with_messages_has() -> None:
    assert (legend("pass_to"), legend("receive")) == (">1 send to rank 1", "<1 receive from rank 1")


def test_where_nothing_can_be_saved_the_session_remembers(
    new_session: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Progress, "save", lambda self: None)
    assert heads(hint("ddp"), hint("ddp")) == ["Hint 1 of 3 for ddp", "Hint 2 of 3 for ddp"]


def test_hints_fit_the_last_verdict(new_session: Callable[[], None]) -> None:
    assert find("basic").hints_for == {"slow": 2, "large": 2}
    grade(wrong, "basic")  # wrong: from the first on
    assert heads(hint("basic")) == ["Hint 1 of 3 for basic"]
    new_session()
    Progress().path.unlink()
    verdict = grade(stored_again("twice"), "basic")
    assert verdict.right and verdict.memory > find("basic").target["memory"]
    assert heads(hint("basic")) == ["Hint 2 of 3 for basic (your last program is right, but too large)"]
    assert heads(hint("basic")) == ["Hint 3 of 3 for basic"]  # and on in their order


def test_hints_fit_how_the_last_attempt_ended_in_a_new_kernel_and_at_a_shell(new_session: Callable[[], None]) -> None:
    spec = find("basic")
    large = Verdict(spec, FAIL, "", True, 17.0, spec.target["memory"] + 1)
    slow = Verdict(spec, FAIL, "", True, 18.0, spec.target["memory"])
    passes = Verdict(spec, PASS, "", True, 17.0, spec.target["memory"])
    wrong = Verdict(spec, FAIL, "", False, 17.0, 1966080)
    stopped = Verdict(spec, FAIL, "", False)
    for verdict, index, why in (
        (large, 1, "too large"),
        (stopped, 0, ""),
        (slow, 1, "too slow"),
        (passes, 3, "have passed, and have no star yet"),
        (wrong, 0, ""),
        (large, 3, "have passed, and have no star yet"),
    ):
        kept = Progress()
        kept.record(verdict)
        kept.hints.clear()
        kept.save()
        found, said = Progress().fitting(spec)  # what a shell and a new kernel ask
        assert found == index and (why in said if why else not said), verdict
        new_session()
        head = hint("basic").text.partition("\n")[0]
        assert head.startswith("The question" if index == 3 else f"Hint {index + 1} ") and why in head
        assert ("(you" in head) == bool(why)


def test_after_a_pass_without_its_star_there_is_a_question_for_it(new_session: Callable[[], None]) -> None:
    passed = "The question for the star of ddp (you have passed, and have no star yet)"
    assert grade(SOLUTIONS["ddp"]).verdict.status == PASS
    first, again = hint("ddp"), hint("ddp")
    Progress().record(Verdict(find("ddp"), FAIL, "", True, 5.0, 2_000_000))  # tried for the star, and is too large
    assert heads(first, again, hint("ddp")) == [passed] * 3 and str(first).endswith(find("ddp").star_hint)
    new_session()
    assert heads(hint("ddp")) == [passed]
    assert heads(hint("ddp", 1)) == ["Hint 1 of 3 for ddp"]
    grade(wrong, "ddp")  # the last program is wrong: its hints are what is due
    assert heads(hint("ddp")) == ["Hint 1 of 3 for ddp"]
    new_session()
    assert heads(hint("ddp")) == ["Hint 2 of 3 for ddp"]


def test_every_star_that_is_more_than_its_target_has_a_question() -> None:
    for puzzle in puzzles().values():
        assert bool(puzzle.star_hint) == (puzzle.star is not None and puzzle.star != puzzle.target), puzzle.name
        assert not puzzle.star_hint or puzzle.star_hint.endswith("?"), puzzle.name
        assert puzzle.repair or {*(puzzle.hints_for or {})} == {"slow", "large"}, puzzle.name


def test_the_last_hint_offers_what_can_be_had(new_session: Callable[[], None]) -> None:
    head = str(hint("fsdp", 3)).partition("\n")[0]
    assert head == ('Hint 3 of 3 for fsdp; that was the last. Still stuck? solution("fsdp", sure=True) shows ours')
    assert "not solved yet" not in str(solution("fsdp", sure=True))


# -- to begin with what is there, and to go on ---------------------------------------------------------

DDP = "import math, random\n\nHALF = 2\n\n\ndef mine(n):\n    return math.floor(n / HALF)\n\n\n"
DDP += "async def ddp(model):\n    # As in ddp.\n    mine(3)\n    return model"
WSDP = DDP.replace("import math, random\n\n", "import math, random\n").replace("ddp", "wsdp")


def written(folder: Path, *cells: str) -> None:
    data = {"cells": [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]}
    (folder / "p02_ddp.ipynb").write_text(json.dumps(data), encoding="utf-8")


def test_an_answer_comes_with_what_it_needs_and_by_its_new_name(kernel: Path) -> None:
    head, _, function = DDP.rpartition("\n\n\n")
    written(kernel, "%matplotlib inline\nimport lib", head, "this is no Python", function + "\n\n\ngrade(ddp)")
    assert start_from("ddp") == WSDP
    assert start_from("ddp", "fsdp") == WSDP.replace("wsdp", "fsdp")


def test_a_running_notebook_gets_it_in_a_new_cell(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(kernel, DDP)
    cells: list[str] = []
    shell = types.SimpleNamespace(set_next_input=cells.append)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    said = start_from(2)  # type: ignore[arg-type]
    assert cells == [WSDP] and "what was in p02_ddp.ipynb when it was last saved is in a new cell below" in said
    Progress().record(Verdict(find("ddp"), PASS, "", True, 5.6, 1835008), code=DDP.replace("HALF", "TWO"))
    said = start_from(2, "pipeline")  # type: ignore[arg-type]
    assert "TWO" in cells[1] and "Your answer to puzzle 2 is in a new cell below, as `pipeline`." in said


def test_an_answer_begins_as_its_new_puzzle_does(kernel: Path) -> None:
    grade(SOLUTIONS["basic"])
    head, docstring, *_ = start_from("basic", "pipeline").split("\n")
    assert (head, docstring) == ("async def pipeline(model: Model) -> Model:", '    """Pipeline parallel."""')
    assert start_from("basic").startswith("def grad_accum(")


def test_a_verdict_says_that_it_is_on_an_older_function(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for last, older in (("def basic(model):\n    pass", ""), ("def basic(model):\n    await it", "did not run")):
        monkeypatch.setattr(sys.modules["__main__"], "In", ["", last, "grade(basic)"], raising=False)
        shown = grade(SOLUTIONS["basic"])
        assert (older in shown.note) and (older in page.table(shown.verdict).partition("<details>")[0])
        assert bool(older) == ("the one before" in shown.note)


def test_without_the_notebook_it_is_what_has_passed(kernel: Path) -> None:
    with pytest.raises(PuzzleError, match="no answer of yours to basic here") as found:
        start_from("basic")
    assert "p00_basic.ipynb" in str(found.value)
    grade(SOLUTIONS["basic"])
    assert "model.set_final_weight" in start_from("basic")
    (kernel / "p00_basic.ipynb").write_text((ROOT / "puzzles" / "p00_basic.ipynb").read_text(), encoding="utf-8")
    assert "model.backward" in start_from("basic")  # and not the blank


def test_a_pass_leads_on_to_the_next_puzzle(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = grade(SOLUTIONS["basic"])
    assert re.search("next: +puzzle 1: Gradient accumulation, in p01_grad_accum.ipynb", str(passed))
    (kernel / "p01_grad_accum.ipynb").touch()
    link = '<a href="p01_grad_accum.ipynb">puzzle 1: Gradient accumulation</a>'
    seen, _, folded = grade(SOLUTIONS["basic"])._repr_html_().partition("<details>")
    assert link in seen and link in folded
    monkeypatch.setenv("LLM_TRAINING_PUZZLES_NOTEBOOKS", "https://x.org/")
    assert (
        link.replace('="', '="https://x.org/').replace('">', '" target="_blank">')
        in grade(SOLUTIONS["basic"])._repr_html_()
    )
    assert "Gradient accumulation" not in str(grade(wrong, "basic"))


@pytest.mark.parametrize("puzzle", list(puzzles().values()), ids=list(puzzles()))
def test_a_solution_is_shown_to_who_is_sure(puzzle: Puzzle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_TRAINING_PUZZLES_PROGRESS", str(tmp_path))
    asked = str(solution(puzzle.name))
    assert "sure=True" in asked and "hint(" in asked
    assert "model.load_weights" not in asked
    shown = str(solution(puzzle.name, sure=True))
    code = re.findall("```python\n(.*?)\n```", shown, re.DOTALL)
    assert re.search(rf"def {puzzle.name}\(model", code[0])
    assert "SOLUTION" not in shown and "{{" not in shown  # its text has its figures
    for block in code:
        ast.parse(block)


def test_where_there_are_no_solutions_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.course.solutions.SOLUTIONS", tmp_path)
    with pytest.raises(PuzzleError, match="is not here"):
        solution("fsdp", sure=True)
    with pytest.raises(PuzzleError, match="did you mean 'fsdp'"):
        solution("fdsp")
    assert str(hint("fsdp", 3)).partition("\n")[0] == "Hint 3 of 3 for fsdp; that was the last"


def test_over_the_target_it_says_where_memory_is_highest_and_what_it_is() -> None:
    assert re.search(
        r"over the target: [\d,]+ elements, target 2,621,440 \(on rank 0 at tick 8, when loss\(layer 2\) began: "
        r"weights 524,288, opt states 524,288, activations [\d,]+\)",
        grade(stored_again("twice", "thrice"), "basic").message,
    )


def reached(name: str, time: float, memory: int) -> str:
    return praise(Mock(time=time, memory=memory), puzzles()[name])


def test_what_is_missing_to_the_star_is_said_and_how_good_it_is_without_it() -> None:
    passed = "Correct, within the target."
    assert reached("wsdp", 20.4, 2752512) == f"{passed} For the star, save another 3.3 ticks and 786,432 elements."
    assert reached("wsdp", 20.4, 1966080) == f"{passed} For the star, save another 3.3 ticks."
    assert reached("wsdp", 17.1, 1966180) == f"{passed} For the star, save another 100 elements."
    assert reached("wsdp", 17.1, 1966080) == "Correct, and the star is yours."
    assert reached("wsdp", 15.3, 2228224) == (
        f"{passed} For the star, save another 262,144 elements. These figures are among the best known."
    )
    assert reached("ddp", 5.0, 1835008) == (
        "Correct, and the star is yours. No program that passes is faster: 5 ticks is the bound. "
        "These figures are among the best known."
    )
    better = "Better than the best known: nothing that we know is as fast in so little memory!"
    assert reached("ddp", 4.9, 1835008) == f"Correct, and the star is yours. {better}"
    assert reached("ddp", 5.3, 1700000) == f"{passed} For the star, save another 0.3 ticks. {better}"
    assert reached("repair_skip", 5.6, 1572864) == f"{passed} These figures are among the best known."
    assert reached("repair_skip", 5.6, 1572863) == f"{passed} {better}"


def test_a_star_is_shown_wherever_a_verdict_is() -> None:
    from solutions.p02_ddp import ddp_overlap

    with_star, without = grade(ddp_overlap, "ddp").verdict, grade(SOLUTIONS["ddp"]).verdict
    assert with_star.starred and not without.starred
    assert not replace(with_star, status=FAIL).starred
    assert page.text(with_star).startswith("PASS  puzzle 2  ddp  \N{BLACK STAR} star: Correct, and the star is yours.")
    assert "\N{BLACK STAR}" in page.table(with_star)
    assert "\N{BLACK STAR}" not in page.text(without) + page.table(without)
    facts, plain = dict(with_star.facts()), dict(without.facts())
    assert facts["best known"] == "5 ticks with 1,835,008 elements; 5.6 ticks with 1,572,864 elements"
    assert "best known" not in plain  # whoever is on the way sees where to, and not how far one can get
    assert facts["time"] == "5 ticks (target 5.6, star 5)"
    assert facts["and now?"] == 'solution("ddp") shows ours'  # before, it says what else it gives away
    assert plain["and now?"] == 'solution("ddp") shows ours, and may give the star away'
    assert plain["peak memory"] == "1,572,864 elements (target 1,835,008, star 1,835,008)"
    assert dict(grade(SOLUTIONS["fsdp"], "wsdp").verdict.facts())["time"] == "20.4 ticks (target 20.4, star 17.1)"
    repaired = Verdict(puzzles()["repair_skip"], PASS, "", True, 5.6, 1572864)
    assert dict(repaired.facts())["time"] == "5.6 ticks (target 5.6)" and not repaired.starred
    assert Report([with_star, without]).headline() == "2 of 2 puzzles pass, 1 with the star"
    assert Report([without]).headline() == "1 of 1 puzzle passes"


def test_json_keeps_its_fields_and_tells_the_star() -> None:
    told = grade(SOLUTIONS["ddp"]).verdict.as_json()
    assert told["target"] == {"time": 5.6, "memory": 1835008}
    assert told["best_known"] == {"time": 5.0, "memory": 1835008}  # the fastest that we know
    assert told["frontier"] == [{"time": 5.0, "memory": 1835008}, {"time": 5.6, "memory": 1572864}]
    assert (told["star"], told["starred"]) == ({"time": 5.0, "memory": 1835008}, False)
    assert json.loads(json.dumps(told)) == told


def test_a_star_that_was_won_is_not_lost_to_a_faster_attempt(kernel: Path) -> None:
    def verdict(time: float, memory: int, status: str = PASS) -> Verdict:
        return Verdict(puzzles()["wsdp"], status, "", True, time, memory)

    kept = progress()
    assert f"0 of {len(COURSE)} stars" in str(kept)
    for time, memory, starred in (
        (15.3, 2490368, False),
        (17.1, 1966080, True),
        (15.3, 2490368, True),
        (16.8, 1966080, True),
    ):
        kept.record(verdict(time, memory))
        assert progress().starred == ["wsdp"] * starred
    assert progress().best["wsdp"] == {"status": PASS, "time": 16.8, "memory": 1966080}
    kept.record(verdict(1.0, 1, FAIL))
    assert f"Progress: 1 of {len(COURSE)} puzzles solved, 1 of {len(COURSE)} stars" in str(progress())
    [row] = [row for row in progress().rows() if row[1] == "Weight-sharded data parallel"]
    assert row[2:6] == (PASS, "\N{BLACK STAR}", "16.8", "1,966,080") and row[-2:] == ("17.1", "1,966,080")
    assert {len(row) for row in progress().rows()} == {10}


def scored(time: float, memory: float) -> Verdict:
    """The verdict on a right run of the last puzzle that takes so long and so much."""
    puzzle = puzzles()["compose"]

    def at(size: Size) -> Any:
        done = composed(json.dumps(size))
        if size == puzzle.size:
            vars(done).update(time=time, memory=memory)
        else:
            vars(done).update(memory=1)  # so little that only the figures at home decide
        return done

    return judge(puzzle, at)


@cache
def composed(size: str) -> Any:
    """The run of the last puzzle's solution at a size, which is large."""
    return run(SOLUTIONS["compose"], **json.loads(size), cost=cost_named("gpt_3_on_a100"))


@pytest.mark.long
def test_of_seconds_and_bytes_two_digits_count_and_are_told() -> None:
    for time, memory, status, told in (
        (14.49, 48.4e9, PASS, "14 s"),
        (14.51, 48.4e9, FAIL, "15 s"),
        (13.49, 44.4e9, PASS, "13 s"),
        (13.9, 79.6e9, FAIL, "14 s"),
    ):
        verdict = scored(time, memory)
        assert (verdict.status, verdict.starred) == (status, time == 13.49)
        facts = dict(verdict.facts())
        assert facts["time"] == f"{told} (target 14 s, star 13 s)"
        assert facts["peak memory"].endswith(" GB (target 79 GB, star 49 GB)")
        assert verdict.as_json()["units"] == {"time": "s", "memory": "bytes"}
    assert "over the target: 15 s, target 14 s" in scored(14.51, 48.4e9).message
    assert "over the target: 80 GB, target 79 GB (on rank 0 at " in scored(13.9, 79.6e9).message
    assert scored(13.9, 44e9).message.endswith("For the star, save another 1 s.")
    assert "Better than the best known" in scored(12.6, 40e9).message


def test_of_ticks_and_elements_every_digit_counts() -> None:
    puzzle = puzzles()["fsdp"]
    assert puzzle.scored(20.400001, 2359297) == (20.400001, 2359297)
    assert puzzle.describe(20.4, 2359296) == ("20.4 ticks", "2,359,296 elements")
    assert puzzle.brief(20.4, 2359296) == ("20.4", "2,359,296")
    assert puzzles()["compose"].brief(13.6, 62e9) == ("13.6 s", "62 GB")
    verdict = judge(puzzle, lambda size: run(SOLUTIONS["fsdp"], **size))
    assert verdict.as_json()["units"] == {"time": "ticks", "memory": "elements"}


def anywhere(begin: Callable[[Model], None]) -> None:
    size = {"ranks": 2, "layers": 2, "batches": 2}
    check_layout("anywhere", size, run(begin, **size).final_states)


def test_all_ranks_together_begin_with_everything() -> None:
    def nothing_of_the_last(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)

    def half(model: Model) -> None:
        for layer in range(2):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer, 0, 2)

    def no_state(model: Model) -> None:
        model.weights[0], state = model.load_weights(0)
        model.weights[1], model.opt_states[1] = model.load_weights(1)
        if model.rank == 0:
            model.opt_states[0] = state

    for begin, words in (
        (nothing_of_the_last, "no rank begins with all of the Weight of layer 1"),
        (half, "no rank begins with all of the Weight of layer 0"),
        (no_state, "it begins without a part of the optimizer state of layer 0"),
    ):
        with pytest.raises(PuzzleError, match=words):
            anywhere(begin)


def test_pieces_of_any_form_may_be_anywhere_and_are_handed_in() -> None:
    def uneven(model: Model) -> None:
        for layer, total in enumerate((1, 2)):
            if total == 2 or model.rank == 1:
                piece = model.load_weights(layer, model.rank % total, total)
                model.weights[layer], model.opt_states[layer] = piece

    with pytest.raises(PuzzleError, match=r"it ends without the final weight"):
        anywhere(uneven)


def test_rules_say_when_in_the_unit_of_the_puzzle() -> None:
    def moment(puzzle: str) -> str:
        return str(place_at(event(0, "forward", 5.97963, 7.0, 15), puzzles()[puzzle].unit))

    assert moment("compose") == "rank 0, forward(layer 15), at 5.98 s"
    assert moment("fsdp") == "rank 0, forward(layer 15), at tick 5.9796"
