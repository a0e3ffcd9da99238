"""Micro-batches that count by their tokens, and updates that take orthogonalized gradients."""

from fractions import Fraction
from typing import Any

import pytest

from lib import Cost, Model, PuzzleError, Run, run
from lib.course.layouts import check_layout
from lib.machine.cost import Shape
from lib.machine.fingerprints import PRIME, Fingerprints, trained_weights
from lib.machine.simulator import LocalSimulator
from lib.record.labels import Labels, scaled, total_of
from lib.recording.recorder import recorded_run
from lib.recording.replay import Replay
from lib.recording.wire import ProtocolError
from solutions.p33_token_mean import token_mean, token_mean_in_pieces
from solutions.p34_muon import muon_by_sums
from solutions.repairs import repair_ends

from .corpus import Program, changed, p33_token_mean, p34_muon
from .marks import needs_torch

TOKENS = (40, 10, 30, 5, 25, 20, 15, 35)
SIZES: dict[str, dict[str, Any]] = {
    "token_mean": {"ranks": 4, "layers": 4, "batches": 8, "tokens": TOKENS},
    "repair_ends": {"ranks": 4, "layers": 8, "batches": 4, "quiet": True, "tied": True},
    "muon": {"ranks": 4, "layers": 8, "batches": 4, "train": "muon", "cost": Cost(orthogonalize=2)},
}


def ends(program: Program, strict: bool = False, **how: Any) -> Any:
    names: dict[str, Any] = {}
    exec(compile(program.source, program.name, "exec"), names)
    done = run(names[program.puzzle], **SIZES[program.puzzle], _strict=strict, **how)
    return done if how else done.check()


@pytest.mark.parametrize("program", [*p33_token_mean.MISTAKES, *p34_muon.MISTAKES], ids=lambda one: one.name)
def test_what_is_refused_where_it_happens_is_wrong_by_value_alone(program: Program) -> None:
    if program.name != "the counts of this size":  # it is right at this one
        with pytest.raises(PuzzleError):
            ends(program)


def test_a_wrong_weight_is_told_by_its_facts() -> None:
    with pytest.raises(PuzzleError, match="micro-batch 0 counts 1/8, and has 40 of 180 tokens") as refused:
        ends(p33_token_mean.MISTAKES[0], strict=True)
    error = refused.value
    assert (error.rule, error.expected, error.place.operation) == ("wrong_count", "40/180", "update")
    assert error.facts == {"batch": "0", "count": "1/8", "tokens": "40", "total": "180"}


def test_equal_tokens_are_a_plain_mean_and_one_micro_batch_counts_once() -> None:
    assert trained_weights(2, 4, tokens=(8,) * 4) == trained_weights(2, 4, tokens=(1,) * 4) != trained_weights(2, 4)
    assert trained_weights(2, 1, tokens=(7,)) == trained_weights(2, 1) != trained_weights(2, 1, muon=True)
    assert run(muon_by_sums, 1, 2, 1, train="muon", tokens=(4,)).verify() == "Correct!"
    with pytest.raises(PuzzleError, match="ranks do not all do the same"):
        run(token_mean, **SIZES["token_mean"], represent=True)


def product(what: str) -> Any:
    async def program(model: Model) -> Model:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([model.rank])
        out = model.loss(model.forward(0, model.activations[0], model.weights[0]))
        grad, _ = model.backward(0, model.activations[0], out, model.weights[0])
        model.grad_weights[0] = eval(what, {}, {"grad": grad, "model": model, "out": out})
        return model

    return program


REFUSED = [
    ("grad / model.RANKS", (), "the sum over its micro-batches, and not the mean"),
    ("2 * grad", (), "the sum over its micro-batches, and not the mean"),
    ("1 / grad", (3, 4), "a WeightGrad cannot be a divisor\n"),
    ("1 - grad", (), "a WeightGrad cannot be subtracted\n"),
    ("out * 2", (3, 4), "an ActivationGrad cannot be multiplied\n"),
    ("grad * 'n'", (3, 4), "a product takes a number"),
    ("grad * float('nan')", (3, 4), "a product takes a number"),
    ("grad * float('-inf')", (), "a product takes a number"),
    ("grad / 0", (3, 4), "a quotient takes a number other than 0"),
    ("grad", 5, "tokens must be a list of numbers"),
    ("grad / model.receive()", (3, 4), "forget `await`"),
    ("grad * model.tokens(1)", (3, 4), "rank 0 has not taken micro-batch 1"),
    ("grad * model.tokens(0)", (), "micro-batches have no tokens here"),
    ("model.orthogonalize(0, grad)", (), r"takes nothing outside of run\(..., train=\"muon\"\)"),
    ("grad", (3,), "tokens has a number for each micro-batch"),
    ("grad", (0, 1), "tokens must be a whole number from 1 up"),
]


@pytest.mark.parametrize(("what", "tokens", "says"), REFUSED)
def test_what_is_multiplied_by_what(what: str, tokens: Any, says: str) -> None:
    with pytest.raises(PuzzleError, match=says):
        run(product(what), 2, 1, 2, tokens=tokens)


SUM = "        sums[0] = sums[0] + await model.receive(src=other)\n"
MINE = "uses = {layer: 0 if layer == end - 1 else layer"


def tied(ranks: int, *edits: tuple[str, str], **how: Any) -> Run:
    """A run of R13, repaired, with edits. On one rank each micro-batch brings one use after the other."""
    edits += ("if rank in (0,", "if ranks > 1 and rank in (0,"), ("in uses.values()", "in {*uses.values()}")
    names: dict[str, Any] = {}
    exec(changed("repair_ends", "", *edits).source, names)
    return run(names["repair_ends"], ranks, 4, 3, tied=True, **how)


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_tied_weight_takes_the_sum_of_both_uses(ranks: int) -> None:
    assert tied(ranks).verify() == "Correct!"
    check_layout("tied_stages", {"ranks": ranks, "layers": 4, "tied": True}, tied(ranks).final_states)
    of = "layer, sums.pop(layer), model"
    assert tied(ranks, (of, of.replace("(layer)", "(layer) / 3")), tokens=(2, 2, 2)).verify() == "Correct!"
    muon = "layer, model.orthogonalize(layer, sums.pop(layer)), model"
    assert tied(ranks, (of, muon), train="muon").verify() == "Correct!"
    with pytest.raises(PuzzleError, match="ranks do not all do the same"):
        tied(ranks, represent=True)


NOT_TIED = [
    (SUM, "        await model.receive(src=other)\n", 0, "is missing what layer 3 gives of micro-batches 0-2"),
    (MINE, "uses = {layer: layer", 3, "layer is out of range"),
    (SUM, SUM + "        sums[0] = sums[0] + sums[0]\n", 0, "micro-batches 0-2 would be counted more than once"),
]


@pytest.mark.parametrize(("old", "new", "rank", "says"), NOT_TIED)
def test_what_is_no_sum_of_both_uses_is_refused(old: str, new: str, rank: int, says: str) -> None:
    with pytest.raises(PuzzleError, match=says) as refused:
        tied(4, (old, new))
    assert refused.value.place.rank == rank
    with pytest.raises(PuzzleError, match=r"out of range|not what plain training"):  # and by value alone
        tied(4, (old, new), quiet=True).verify()


def test_uses_are_labels_of_which_slices_are_parts() -> None:
    one, two = (Labels("WeightGrad", 0, 4, batches=frozenset({0}), total_batches=1) for _ in range(2))
    one, two = (part.changed(extra=part.extra._replace(uses=frozenset({(0, at)}))) for part, at in ((one, 0), (two, 3)))
    assert "use in layer 3)" in str(two) and "use in layers 0, 3)" in str(total_of([one, two], "+"))
    halves = [p.changed(extra=p.extra._replace(parts=frozenset({at}), of=2)) for p in (one, two) for at in (0, 1)]
    assert total_of(halves, "+") == total_of([one, two], "+")
    with pytest.raises(PuzzleError, match=r"slice \{0\} of 2 of micro-batch 0 would be counted more than once"):
        total_of([*halves[:2], halves[0]], "+")


def test_tied_weights_take_two_layers() -> None:
    with pytest.raises(PuzzleError, match="a layer alone is tied to no other"):
        run(product("grad"), 1, 1, 1, tied=True)


def test_labels_and_fingerprints_keep_what_each_micro_batch_counts_by() -> None:
    one, two = (Labels("WeightGrad", 0, 1, batches=frozenset({b}), total_batches=3) for b in (0, 2))
    both = total_of([scaled(two, Fraction(3)), scaled(one, Fraction(1, 2))], "+")
    assert both.extra.factors == ((0, Fraction(1, 2)), (2, Fraction(3))) and "1/2 x 0, 3 x 2" in str(both)
    assert scaled(scaled(both, Fraction(2)), Fraction(1, 2)) == both
    slices = [one.changed(extra=one.extra._replace(parts=frozenset({part}), of=2)) for part in (0, 1)]
    assert total_of([scaled(part, Fraction(5)) for part in slices], "+").extra.factors == ((0, Fraction(5)),)
    with pytest.raises(PuzzleError, match="out of range"):
        scaled(scaled(one, Fraction(10**150)), Fraction(10**60))
    algebra, value = Fingerprints(), (1234567, (frozenset({0}), 1))
    assert algebra.scale(algebra.scale(value, Fraction(2, 7)), Fraction(7, 2)) == value
    assert algebra.orthogonalize((value[0], (frozenset({0}), 2)))[0] != algebra.orthogonalize(value)[0] < PRIME


def test_products_are_recorded_and_carried_out_again() -> None:
    shape = Shape.of(4, tokens=TOKENS)
    recording, error = recorded_run(token_mean, shape, 4, 8, 10.0)
    at = next(at for at, call in enumerate(recording["calls"]) if call[0] == "scale")
    for factor in (recording["calls"][at][-1], "40/0", "4e9", "1" * 201, "", 40, "40/"):
        replay, right = Replay(LocalSimulator(shape, graded=True), 4, 8), recording["calls"][at][-1] == factor
        recording["calls"][at][-1] = factor
        try:
            replay.play({part: recording[part] for part in ("calls", "failed")}, float("inf"))
            assert right and error is None and replay.outcome("again").verify() == "Correct!"
        except ProtocolError:
            assert not right


@needs_torch
@pytest.mark.parametrize("layer", ["mlp", "block"])
def test_real_tensors_are_right_and_wrong_where_the_simulated_ones_are(layer: str) -> None:
    how: dict[str, Any] = {"engine": "local", "layer": layer, "dtype": "float64", "hidden": 32}
    for program in (token_mean, token_mean_in_pieces, repair_ends):
        assert "off by" in run(program, **SIZES.get(program.__name__, SIZES["token_mean"]), **how).verify()
    one_use = changed("repair_ends", "of its two uses each copy has one", ("sums[0] + await", "await"))
    for wrong in (p33_token_mean.MISTAKES[0], *p34_muon.MISTAKES[:4], one_use):
        assert not ends(wrong, **how).agreement.ok
