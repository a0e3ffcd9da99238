"""What a rank has to do for real is recorded alike in every process, and can be done without waiting for ever."""

from typing import Any

import pytest

from lib import Model, PuzzleError, run
from lib.engines.distributed.recording import Move, Plan, Setup, record
from lib.machine.cost import Shape
from lib.running.run import Settings
from lib.running.workload import Workload
from tests.programs import layers_of, solutions

SOLUTIONS = {spec["name"]: (fn, spec["size"]) for fn, spec in solutions(small=True)}


def plans_of(fn: Any, ranks: int, layers: int, batches: int, train: str = "weights", **machine: Any) -> list[Plan]:
    shape = Shape.of(ranks, muon=train == "muon", **machine)
    work = Workload(layers, batches, layers_of(fn, machine)[0], train=train).on(shape)
    return [record(fn, Setup(shape, work, Settings()), rank).plan for rank in range(shape.everyone)]


def carried_out(plans: list[Plan]) -> bool:
    """Whether all ranks come to their end, if each does its steps in order, and its moves in order, one at a time."""
    steps = [list(plan.steps) for plan in plans]
    moves: list[list[Move]] = [[move for move in plan.moves if plan.rank in move.ranks] for plan in plans]
    started: list[set[int]] = [set() for _ in plans]
    brought: list[set[int]] = [set() for _ in plans]
    goes_on = True
    while goes_on:
        goes_on = False
        for rank, todo in enumerate(steps):
            while todo and (todo[0][0] != "wait" or todo[0][1] in brought[rank]):
                step, *arguments = todo.pop(0)
                if step == "start":
                    started[rank].add(arguments[0])
                goes_on = True
        for move in [own[0] for own in moves if own]:
            members = list(zip(move.ranks, move.places, strict=True))
            if all(moves[rank][:1] == [move] and place in started[rank] for rank, place in members):
                for rank, place in members:
                    moves[rank].pop(0)
                    brought[rank].add(place)
                goes_on = True
    return not any(steps) and not any(moves)


@pytest.mark.parametrize("name", SOLUTIONS)
def test_every_process_finds_the_same_log_and_nobody_waits_for_ever(name: str) -> None:
    fn, size = SOLUTIONS[name]
    plans = plans_of(fn, **size)
    assert len({plan.fingerprint for plan in plans}) == 1 and plans[0].moves == plans[-1].moves
    records = [sum(step in ("load", "compute", "start", "record") for step, *_ in plan.steps) for plan in plans]
    assert records == [len(model.log) for model in run(fn, **size).models]
    assert carried_out(plans)


def test_another_log_has_another_fingerprint() -> None:
    def fingerprint(layer: int, final: bool) -> str:
        def program(model: Model) -> None:
            model.weights[0], _ = model.load_weights(layer)
            if final:
                model.set_final_weight(layer, model.weights[0])

        return plans_of(program, 1, 2, 1)[0].fingerprint

    assert len({fingerprint(*kind) for kind in [(0, False), (1, False), (1, True)]}) == 3
    assert fingerprint(1, True) == fingerprint(1, True)


def test_kill_is_a_rank_and_a_record() -> None:
    for kill in (2, [1, 1], (1, True), (1, 2, 3)):
        with pytest.raises(PuzzleError, match="kill is a rank and a record of its log"):
            run(lambda model: None, kill=kill)  # type: ignore[arg-type]
