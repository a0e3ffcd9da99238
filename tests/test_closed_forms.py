"""What the field's formulas say of the techniques of puzzles 9 and up, and what they take here, at many sizes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from lib import Cost, Model, Run, run
from lib.grading.submission import load
from lib.record.kinds import MEMORY_KINDS
from solutions import build

WEIGHT = Cost().weight_elements
HALVES = Cost(allreduce=0.6, allreduce_across=3.0)
RANKS = (2, 3, 4, 8)


@cache
def program(file: str, name: str) -> Callable[[Model], Any]:
    text = (build.ROOT / "solutions" / f"{file}.py").read_text(encoding="utf-8")
    return load(f"{file}.py", text)[0][name]  # type: ignore[no-any-return]


def sent(done: Run, rank: int = 0) -> Fraction:
    """How many elements a rank sends in collectives, if each is carried out as a ring: of n ranks, (n - 1)/n of the
    whole tensor, and twice that for an all-reduce."""
    total = Fraction(0)
    for event in done.models[rank].log:
        if event.group and event.kind in ("allgather", "scatterreduce", "allreduce"):
            n = len(event.group)
            whole = n * event.elements if event.kind == "allgather" else event.elements
            total += (2 if event.kind == "allreduce" else 1) * Fraction(n - 1, n) * whole
    return total


def at_most(done: Run, kind: str, rank: int = 0) -> Fraction:
    """The most elements of a kind that a rank holds at any time: "weights", "opt_states", ..."""
    place = MEMORY_KINDS.index(kind)
    return Fraction(max(event.held[place] for event in done.models[rank].log))


def kept(done: Run, kind: str, rank: int = 0) -> Fraction:
    """The elements of tensors of a kind that a rank has at its end: "Weight", "OptState", ..."""
    sizes = [Cost().elements(one.labels) for one in done.final_states[rank].kept if one.labels.kind == kind]
    return Fraction(sum(sizes))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("layers", [1, 6])
def test_zero1_sends_what_data_parallel_sends_and_divides_the_states(ranks: int, layers: int) -> None:
    """4 + 12/n of the 16 bytes of a parameter (ZeRO, arXiv 1910.02054), and the volume of an all-reduce."""
    size = {"ranks": ranks, "layers": layers, "batches": 2 * ranks, "cost": HALVES}
    plain, zero1 = (run(program("p09_zero1", name), **size) for name in ("ddp_twice", "zero1"))
    whole = layers * WEIGHT
    assert sent(zero1) == sent(plain) == 2 * Fraction(ranks - 1, ranks) * whole
    assert kept(zero1, "Weight") == at_most(zero1, "weight_grads") == whole
    assert at_most(zero1, "opt_states") * ranks == at_most(plain, "opt_states") == whole
    assert zero1.time == plain.time


PIPELINES = [(p, m) for p in (2, 3, 4, 6) for m in (p, p + 1, 2 * p, 13)]
HALVES_AT = [(Fraction(1, 2), Fraction(1, 2)), (1, 1), (1, Fraction(1, 4)), (Fraction(3, 4), Fraction(1, 2))]


@pytest.mark.parametrize(("p", "m"), PIPELINES)
@pytest.mark.parametrize(("b", "w"), HALVES_AT)
def test_zero_bubble_takes_what_zb_h1_takes_and_holds_p_micro_batches(p: int, m: int, b: Any, w: Any) -> None:
    """m(F + B + W) + (p - 1)(F + B - W) for W up to F (Qi et al., arXiv 2401.10241), and the update."""
    free = Cost(send=0, send_across=0, receive=0, backward=b + w, backward_input=b, backward_weight=w)
    done = run(program("p16_zero_bubble", "zb_h1"), p, p, m, cost=free)
    whole = run(program("p16_zero_bubble", "never_split"), p, p, m, cost=free)
    assert done.time == m * (1 + b + w) + (p - 1) * (1 + b - w) + Fraction(1, 2)
    assert whole.time == m * (1 + b + w) + (p - 1) * (1 + b + w) + Fraction(1, 2)
    for rank in range(p):
        ahead = [event.batches for event in done.models[rank].log if event.kind in ("forward", "backward_weight")]
        alive: set[int] = set()
        most = 0
        for batches in ahead:
            alive ^= batches  # comes with its forward, goes with the half for its weight
            most = max(most, len(alive))
        assert most == min(p, m)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("each", [1, 2, 5])
def test_zero2_keeps_a_piece_of_the_gradients_and_sends_one_more_than_it_has_micro_batches(
    ranks: int, each: int
) -> None:
    """2 + 14/n of the 16 bytes of a parameter, besides one layer's gradient on its way; (K + 1) times the model."""
    layers = 5
    done = run(program("p10_zero2", "zero2"), ranks, layers, each * ranks, cost=HALVES)
    whole = layers * WEIGHT
    assert sent(done) == (each + 1) * Fraction(ranks - 1, ranks) * whole
    assert kept(done, "Weight") == at_most(done, "opt_states") * ranks == whole
    one_layer = WEIGHT - (Fraction(WEIGHT, ranks) if each == 1 else 0)  # in its place there is no piece of a sum yet
    assert at_most(done, "weight_grads") == Fraction(whole, ranks) + one_layer
    first_update = next(event for event in done.models[0].log if event.kind == "update")
    assert first_update.held[MEMORY_KINDS.index("weight_grads")] * ranks == whole
