"""Programs that keep more at larger sizes than at the puzzle's own: they are refused there with words, whatever it is
that they keep."""

from __future__ import annotations

from functools import partial

import pytest

from lib import grade
from lib.grading.verdict import PASS
from tests.corpus import Program, whole
from tests.test_corpus import LONG, function

UPPER_HALF = """
async def wsdp(model):
    last, ranks, rank = model.LAYERS, model.RANKS, model.rank
    for layer in range(last):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, rank, ranks)
    model.activations[0] = model.get_activation([rank])
    for layer in range(last):
        whole = await model.allgather(model.weights[layer], layer)
        if layer >= last - last // 2:
            model.weights["top", layer] = whole
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], whole)
        del whole
    model.grad_activations[last] = model.loss(model.activations.pop(last))
    for layer in reversed(range(last)):
        top = layer >= last - last // 2
        whole = model.weights.pop(("top", layer)) if top else await model.allgather(model.weights[layer], layer)
        grad, model.grad_activations[layer] = model.backward(
            layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), whole
        )
        del whole
        grad = await model.allreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        del grad
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
SOME_KEPT = """
async def fsdp(model):
    last, ranks, rank = model.LAYERS, model.RANKS, model.rank
    for layer in range(last):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, rank, ranks)
    model.activations[0] = model.get_activation([rank])
    for layer in range(last):
        model.weights["now", layer] = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights["now", layer])
        if layer < last - {}:
            del model.weights["now", layer]
    model.grad_activations[last] = model.loss(model.activations.pop(last))
    for layer in reversed(range(last)):
        if ("now", layer) not in model.weights:
            model.weights["now", layer] = await model.allgather(model.weights[layer], layer)
        grad, model.grad_activations[layer] = model.backward(
            layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1),
            model.weights.pop(("now", layer)),
        )
        model.grad_weights[layer] = await model.scatterreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
PROGRAMS = [
    whole("wsdp", "whole weights of the upper half", UPPER_HALF),
    *(whole("fsdp", f"whole weights of {many}", SOME_KEPT.replace("{}", many)) for many in ("last // 2", "last // 3")),
    *(
        whole("fsdp", f"whole weights of {many}", SOME_KEPT.replace("{}", many))
        for many in ("max(1, last - 5)", "2 * (last > 6)", "(last > 6) * last // 2")
    ),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: f"{program.puzzle}: {program.name}")
def test_what_is_kept_at_larger_sizes_only_is_refused_with_words(program: Program) -> None:
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    if not verdict.right:
        assert "it takes" in verdict.message and "instead:" in verdict.message, verdict.message
    else:
        assert verdict.status == PASS or verdict.costs_memory, verdict.message


def test_some_of_them_are_refused_at_another_size_alone() -> None:
    found = [grade(function(program), program.puzzle, timeout=LONG).verdict for program in PROGRAMS]  # type: ignore[arg-type]
    assert sum("right at its own size, but not with" in verdict.message for verdict in found) > 2


def test_a_partial_function_is_graded_as_the_puzzle_of_its_function() -> None:
    fsdp = function(whole("fsdp", "nothing kept", SOME_KEPT.replace("{}", "0")))
    assert grade(partial(fsdp)).verdict.puzzle.name == "fsdp"  # type: ignore[arg-type]
