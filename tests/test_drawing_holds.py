"""What each GPU holds at a moment: nothing drawn is false, and nothing that is held is missing."""

from bisect import bisect_right
from itertools import combinations
from random import Random
from typing import Any

import pytest

from drawing import holds, play
from drawing.ink.marks import leaves
from drawing.small.holds import PART, contents_of, moving, strip, ways_of
from lib import Model, PuzzleError, Run, run
from lib.machine.pieces import PASSING, STORED, TRAVELS
from lib.record.kinds import MEMORY_KINDS
from solutions.p04_fsdp import fsdp
from tests.drawing_events import outside, titles
from tests.programs import COURSE, solved

FSDP: dict[str, Any] = {"ranks": 4, "layers": 6, "batches": 4}


@pytest.mark.parametrize("name", COURSE)
def test_cells_add_up_to_each_sample_of_memory(name: str) -> None:
    done, chance = solved(name, small=True), Random(name)
    contents = contents_of(done)
    for rank, log in contents.trace.by_rank.items():
        highest = max(log, key=lambda event: event.memory)
        assert contents.trace.by_rank[rank][contents.sample(rank, highest.issued)].held == highest.held
        for tick in [0.0, highest.issued, done.time, *(chance.uniform(0, done.time) for _ in range(12))]:
            sample, held = log[contents.sample(rank, tick)], contents.held(rank, tick)
            stays = [one for one in held if one.how != TRAVELS]
            known = [sum(one.elements for one in stays if one.memory == kind) for kind in MEMORY_KINDS]
            travels = sum(one.elements for one in held if one.how == TRAVELS)
            assert (*known[:-2],) == sample.held[:-2] and travels == sum(sample.held[-2:])
            drawn = [leaf.shape.items for one in held for leaf in leaves([strip(contents, one)])]
            assert [len(boxes) for boxes in drawn] == [len(one.cells) for one in held]
            apart = [(x, y, x + wide, y + tall) for boxes in drawn for x, y, wide, tall in boxes]
            for (a, b, c, d), (e, f, g, h) in combinations(apart, 2):
                assert c <= e + 1e-6 or g <= a + 1e-6 or d <= f + 1e-6 or h <= b + 1e-6


def test_the_picture_shows_all_of_it_and_keeps_inside() -> None:
    done = run(fsdp, **FSDP)
    for figure in (holds(done), holds(done, 0, 2.7, 12.45), holds(run(fsdp, ranks=16, layers=30, batches=16), 9)):
        assert outside(figure) == [] and figure.narrow and outside(figure.narrow) == []
    sizes = [int(title.rsplit(": ", 1)[1].split()[0].replace(",", "")) for title in titles(holds(done))]
    assert sum(sizes) == 4 * done.memory


def test_for_one_operation_a_layer_is_whole() -> None:
    contents = contents_of(run(fsdp, **FSDP))
    [gather] = contents.now(1, 2.7)
    assert (gather.kind, gather.layer) == ("allgather", 2) and [*ways_of(gather)] == [(2, "weights", "right", "left")]
    for tick, cells in {2.7: [(1, STORED)], 3.4: [(1, STORED), (4, PASSING)], 4.2: [(1, STORED)]}.items():
        held = [one for one in contents.held(1, tick) if (one.layer, one.memory) == (2, "weights")]
        assert [(len(one.cells), one.how) for one in held] == cells


def test_notes_are_taken_when_somebody_asks_and_printing_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    counted: list[int] = []

    def program(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        counted.append(model.rank)
        print("here")

    done = run(program, ranks=2)
    assert not done.stays and counted == [0, 1]
    holds(done)
    assert counted == [0, 1] * 2 and capsys.readouterr().out.count("here") == 2


def failed() -> Run:
    with pytest.raises(PuzzleError) as caught:
        run(lambda model: model.weights[0])
    assert isinstance(caught.value.run, Run)
    return caught.value.run


def differs() -> Run:
    loaded: list[int] = []

    def program(model: Model) -> None:
        loaded.append(len(loaded))
        for layer in loaded:
            model.weights[layer], _ = model.load_weights(layer)

    return run(program, layers=4)


WRONG: dict[str, Any] = {
    "holds takes a run": lambda: holds([]),
    "there is no room for so many": lambda: holds(run(fsdp, ranks=17, layers=2, batches=17)),
    "it has failed": lambda: holds(failed()),
    "some of its ranks stand for others": lambda: holds(run(fsdp, **FSDP, represent=True)),
    "something else each time": lambda: holds(differs()),
    "no moment of this run": lambda: holds(run(fsdp, **FSDP), 20.5),
    "moment of this run": lambda: holds(run(fsdp, **FSDP), True),
}


def test_before_a_puzzle_is_solved_its_page_shows_that_nothing_is_held() -> None:
    async def nothing(model: Model) -> Model:
        return model

    assert "in memory nothing" in str(holds(run(nothing, **FSDP), 3.1))


@pytest.mark.parametrize("problem", WRONG)
def test_what_cannot_be_shown_is_refused_with_the_reason(problem: str) -> None:
    with pytest.raises(PuzzleError, match=problem):
        WRONG[problem]()
    assert PART in play(run(fsdp, **FSDP)).page and f'class="{PART}"' not in play(failed()).page


@pytest.mark.parametrize("name", ["fsdp", "gpipe", "offload"])
def test_a_player_shows_at_each_moment_what_is_held_then_and_travels(name: str) -> None:
    contents, chance = contents_of(solved(name)), Random(name)
    figure, times = moving(contents)
    assert outside(figure) == [] and figure.svg().count(f'class="{PART}"') == len(times)
    for tick in (0.0, *(chance.uniform(0, contents.trace.time) for _ in range(40)), contents.trace.time):
        expected = 0
        for rank, log in contents.trace.by_rank.items():
            at = max(at for at, event in enumerate(log) if event.issued <= tick)
            held = {one._replace(start=0, stop=0) for one in contents.pieces[rank] if one.start <= at < one.stop}
            expected += len(held) + len({way for event in contents.now(rank, tick) for way in ways_of(event)})
        assert sum(bisect_right(came, tick) > bisect_right(went, tick) for came, went in times) == expected
