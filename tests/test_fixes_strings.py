"""What mistakes are told whose keys are texts, as f"{layer}/{mb}", or have a name beside the layer: rows as in
``test_fixes``."""

from __future__ import annotations

import pytest

from lib import Model, grade, run
from lib.basics.errors import PuzzleError
from lib.learner.texts import Texts, forms
from lib.record.labels import Labels
from tests.corpus import Program, changed, function, whole
from tests.test_corpus import LONG
from tests.test_corpus import function as defined
from tests.test_fixes import Row
from tests.test_fixes_later import check_words

FORMS = (
    "{0}/{1}",
    "{0}-{1}",
    "{1}_{0}",
    "L{0}M{1}",
    "act {0}, {1}",
    "({1}, {0})",
    "mb{1}:layer{0}",
)
"""Of keys, with the layer and the micro-batch."""
TOO_SOON = (
    "begins its first backward after {} forwards, which is too soon",
    "here 5, and each rank before it two more",
)
AHEAD = "(len(mine) - 1) * ranks + 1"


def spelled(form: str, *edits: tuple[str, str]) -> Program:
    """Return the solution of puzzle 14 with these edits, and with keys that are texts of a form."""
    source = function("interleaved")
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    for pair in ("layer, mb", "top + 1, mb"):
        text = "f" + repr(form.format(*(f"{{{one}}}" for one in pair.split(", "))))
        source = source.replace(f"activations[{pair}]", f"activations[{text}]").replace(
            f"pop(({pair}))", f"pop({text})"
        )
    return whole("interleaved", f"keys {form}", source)


@pytest.mark.parametrize("form", FORMS)
def test_a_backward_too_early_is_told_so_whatever_form_keys_have(form: str) -> None:
    row = Row(spelled(form, (AHEAD, AHEAD[:-4])), (TOO_SOON[0].format(4), TOO_SOON[1]), ("is it under another key",))
    check_words(row)
    assert grade(defined(spelled(form)), "interleaved", timeout=LONG).right  # and without the mistake it is right


@pytest.mark.parametrize("form", FORMS)
def test_keys_are_named_in_the_form_in_which_they_are_written(form: str) -> None:
    async def pops(model: Model) -> Model:
        for layer in range(2):
            model.weights[layer], _ = model.load_weights(layer)
        for mb in range(2):
            model.activations[form.format(0, mb)] = model.get_activation([mb])
            out = model.forward(0, model.activations[form.format(0, mb)], model.weights[0])
            model.activations[form.format(2, mb)] = model.forward(1, out, model.weights[1])
        model.activations[form.format(1, 1)]
        return model

    with pytest.raises(PuzzleError) as caught:
        run(pops, 1, 2, 2)
    where = f"model.activations[{form.format(1, 1)!r}] = model.forward(0, ...)"
    assert caught.value.fix.startswith(f"forward(0, ...) gave it, and it was never stored under this key: {where}")


def test_texts_whose_numbers_mean_something_else_are_not_read() -> None:
    labels = [Labels("Activation", 3, 8, batches=frozenset([mb]), total_batches=8) for mb in range(4)]
    assert forms((f"x{40 + at}", one) for at, one in enumerate(labels)) == {}
    assert forms((f"{at + 10}/{at + 20}", one) for at, one in enumerate(labels)) == {}
    assert forms((f"03/{at:02}", one) for at, one in enumerate(labels)) == {}
    assert forms((f"3/{at}", one) for at, one in enumerate(labels)) == {2: ("", "/", "")}
    assert forms((f"in {at}", one) for at, one in enumerate(labels)) == {1: ("in ", "")}


def test_what_is_said_of_keys_is_spelled_in_all_places() -> None:
    texts = Texts("activations", {"activations": {2: ("", "/", "")}, "weights": {1: ("w", "")}}, layer_last=True)
    for said, then in (
        ("model.activations[0, 7] = ...", "model.activations['0/7'] = ..."),
        ("model.activations.pop((0, 7)), and (1, 7) not in model.activations", "model.activations.pop('0/7'), and '1/7' not in model.activations"),
        ("a key of its own, model.activations[layer, micro_batch]", "a key of its own, model.activations[f'{micro_batch}/{layer}']"),
        ("model.weights[3], model.weights[layer], store it as [0, 7]", "model.weights['w3'], model.weights[f'w{layer}'], store it as ['0/7']"),
        ("model.opt_states[3] and model.load_weights(3, 0)", "model.opt_states[3] and model.load_weights(3, 0)"),
    ):  # fmt: skip
        assert texts.spelled(said) == then


SHARD = """
async def wsdp(model: Model) -> Model:
    top = model.LAYERS - 1
    for layer in range(model.LAYERS):
        model.weights[{own}], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.weights[{all}] = await model.allgather(model.weights[{own}], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights.pop({one}))
    model.grad_activations[top + 1] = model.loss(model.activations.pop(top + 1))
    for layer in reversed(range(model.LAYERS)):
        if layer < top:
            model.weights[{all}] = await model.allgather(model.weights[{own}], layer)
        grad, model.grad_activations[layer] = model.backward(layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), model.weights.pop({one}))
        {update}
        model.weights[{own}], model.opt_states[layer] = model.update(layer, grad, model.weights[{own}], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[{own}])
    return model
"""
SUM = "grad = await model.allreduce(grad, layer)"


def kept(own: str, everything: str, update: str = SUM, *edits: tuple[str, str]) -> Program:
    """Return a program of puzzle 3 whose pieces and whole weights have these keys, and that takes out the last one."""
    one = f"({everything})" if "," in everything else everything
    source = SHARD.format(own=own, all=everything, one=one, update=update)
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return whole("wsdp", f"pieces {own} and {everything}", source)


OTHERS = '"w", layer'
ROWS = [
    Row(kept('"shard", layer', '"whole"'), ("model.weights['whole'] = await model.allgather(model.weights['shard', layer], layer)", "Or is it to stay from forward(5, ...) on?")),
    Row(kept('"mine", layer', '"full", layer'), ("gather it anew, model.weights['full', 5] = await model.allgather(model.weights['mine', 5], 5)",)),
    Row(kept('f"w{layer}"', '"whole"'), ("model.weights['whole'] = await model.allgather(model.weights[f'w{layer}'], layer)",)),
    Row(kept("layer", '"whole"'), ("model.weights['whole'] = await model.allgather(model.weights[layer], layer)",)),
    *[
        Row(kept(own, everything, "pass", ("if layer < top", "if True")), ("grad = await model.allreduce(grad, 5)",), ("scatterreduce",))
        for own, everything in (("layer", '"whole"'), (OTHERS, '"full", layer'))
    ],
    Row(changed("fsdp", "no sum", ("await model.scatterreduce(grad, layer)", "grad.shard(model.rank, model.RANKS)")), ("scatterreduce",)),
    Row(
        kept("layer", '"all", layer', SUM, ("if layer < top", "if True"), ('        model.weights["all", layer] = await model.allgather(model.weights[layer], layer)\n        model.activations', "        model.activations"), ("    model.activations[0] =", '    for layer in range(model.LAYERS):\n        model.weights["all", layer] = await model.allgather(model.weights[layer], layer)\n    model.activations[0] =')),
        ("11 gathered weights are there that are read only later", "gather each for the operation that reads it, at most one ahead"),
        ("do the same at every size",),
    ),
    Row(
        kept("layer", "layer", SUM, ("model.weights.pop(layer)", "model.weights[layer]"), ("if layer < top", "if layer < 0")),
        ("the piece of layer 5 was in model.weights[5], and all of it was stored over it: give what is gathered a key of its own",),
    ),
    Row(
        kept("layer", '"all"', SUM, ("if layer < top", "if True"), ("        grad = await", "        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)\n        grad = await")),
        ("load it once, before all loops, and keep it: model.weights[5], without pop",),
    ),
    Row(
        changed("interleaved", "the order of layers for a count", ("model.weights[layer])\n        if layer == top", "model.weights[model.rank * len(mine) + layer // ranks])\n        if layer == top")),
        ("layer 2 is that of rank 2, and this rank has layer", "does this line count the layers of a rank in another way?"),
        ("are these the ones that it should have",),
    ),
    Row(
        changed("interleaved", "half of the rounds", ("range(0, model.BATCHES, ranks)", "range(0, model.BATCHES // 2, ranks)"), ("    for layer in mine:\n        model.weights[layer], model.opt_states[layer] = model.update", "    for layer in mine if len(backwards) == len(mine) * model.BATCHES else ():\n        model.weights[layer], model.opt_states[layer] = model.update")),
        ("rank 0 ends after 8 of its 16 forwards: it has layers 0, 4, and each of 8 micro-batches goes through each of them"),
        ("A list that is cleared",),
    ),
    Row(
        changed("gpipe", "half of the batch", ("for mb in range(model.BATCHES)", "for mb in range(model.BATCHES // 2)"), ("    for layer in range(first, end):\n        model.weights[layer], model.opt_states[layer] = model.update", "    for layer in range(first, end if mb == model.BATCHES - 1 else first):\n        model.weights[layer], model.opt_states[layer] = model.update")),
        ("rank 0 ends after 4 of its 8 forwards: it has layers 0, 1, and each of 4 micro-batches goes through each of them",),
    ),
    *[
        Row(
            changed("interleaved", name, ("        if turn < len(forwards):\n            await forward(*forwards[turn])", f"        await forward(*{next_one})"), ("    for turn, work in", f"    {first}\n    for turn, work in")),
            ("this rank has run layers", "forward on all 8 micro-batches: does the order of its work have one forward too many?"),
        )
        for name, first, next_one in (
            ("forwards from a list, one too many", "left = forwards[ahead:]", "left.pop(0)"),
            ("forwards of an iterator, one too many", "left = iter(forwards[ahead:])", "next(left)"),
        )
    ],
    Row(
        changed("interleaved", "the last rank receives no gradient, under a name alone", ("grad_out = await model.receive(src=after)", 'grad_out = model.grad_activations.pop("next")')),
        ("Is this the gradient for layer", "await model.receive(src="),
        ("A sum begins",),
    ),
    Row(
        changed("interleaved", "a sum begins with each round", ("grad if mb == 0 else", "grad if mb % ranks == 0 else")),
        ("and the sum of micro-batches 4-7 is without it: does a condition begin the sum anew?",),
        ("store the first one, and add it to the others",),
    ),
    Row(
        changed("gpipe", "a sum begins in the middle", ("grad if mb == 0 else", "grad if mb in (0, 2) else")),
        ("gradient of micro-batches 0, 1 as well, and the sum of micro-batches 2, 3 is without it",),
    ),
    Row(spelled("{1}", ("if layer == top:\n            grad_out = model.loss(model.activations.pop((top + 1, mb)))", 'if layer == top:\n            grad_out = model.loss(model.activations.pop(("out", mb)))'), ("model.activations[top + 1, mb] = out", 'model.activations["out", mb] = out')), ("each input has a key of its own, model.activations[layer, micro_batch]",), ("without pop keeps it",)),
]  # fmt: skip

LATE = """
async def wsdp(model: Model) -> Model:
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    async def {name}(layer):
        grad = await model.allreduce(model.grad_weights.pop(layer), layer)
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
    {kept} = []
    {loop}
        weight = await model.allgather(model.weights[layer], layer)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), weight)
        {kept}.append({name}(layer))
    await asyncio.gather(*{kept})
    return model
"""


@pytest.mark.parametrize(
    ("name", "kept", "loop"),
    [
        ("finish", "todo", "for layer in reversed(range(model.LAYERS)):"),
        ("summed", "calls", "layer = model.LAYERS\n    while layer > 0:\n        layer -= 1"),
    ],
)
def test_coroutines_that_begin_after_the_loop_are_told_so(name: str, kept: str, loop: str) -> None:
    program = whole("wsdp", name, LATE.format(name=name, kept=kept, loop=loop))
    costs = grade(defined(program), "wsdp", timeout=LONG).verdict.costs_memory
    assert f"{name}(layer) only begins where {kept} is awaited" in costs, costs
    started = program.source.replace(f"append({name}(layer))", f"append(asyncio.create_task({name}(layer)))")
    assert "only begins where" not in str(grade(defined(program._replace(source=started)), "wsdp", timeout=LONG))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    check_words(row)
