"""The operations of the compute stream: what each takes, insists on and makes, a row for each.

The values would find most mistakes at the end of a run. The rules find them at the operation where they happen.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from .kinds import SAVED
from .labels import OF_ADAPTER, ExtraLabels, Labels, another_part, of_batches, of_weight
from .operations import Computation, More, Rank, Value, Values
from .rules.operands import weight_of
from .rules.passes import backward_rule, forward_rule, left_behind, loss_rule
from .rules.updates import ORTHOGONAL, orthogonalize_rule, update_rule

# -- forward and backward -------------------------------------------------------------------------


def _partial(labels: Labels, weight: Labels) -> Labels:
    """Return the labels of what a piece of a weight gives: a partial sum."""
    return labels.changed(extra=ExtraLabels(*weight.piece()))


def _output(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    """Return the labels of a layer's output, and those of its inner activations where some are kept."""
    inp, weight = labels[:2]
    out = of_batches("Activation", layer + 1, rank.layers, inp.batches, rank.batches)
    if not more:
        return [out]
    if "sliced" in more:
        out = another_part(out, *inp.piece())
    if "partial" in more:
        out = _partial(out, weight)
    return [out, left_behind(layer, inp, weight, more["keep"])] if "keep" in more else [out]


def _outputs(values: Values, given: Sequence[Value], more: More) -> Sequence[Value]:
    """Return the value of a layer's output, and that of its inner activations where some are kept."""
    inp, weight = given
    if not more:
        return [values.forward(inp, weight)]
    if "adapter" in more:
        weight = values.adapted(weight, more["adapter"])
    if "keep" in more:
        return values.keeping(inp, weight, more["keep"], "partial" in more)
    return [values.forward(inp, weight, **{name: True for name in IN_PARTS if name in more})]


def _gradients(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    """Return the labels of the gradients of a layer's weight, or of its adapter, and of its input."""
    batches, grad, weight, own = labels[0].batches, labels[1], labels[2], weight_of(rank, layer)
    of_weight = of_batches("WeightGrad", own, rank.layers, batches, rank.batches)
    of_input = of_batches("ActivationGrad", layer - 1, rank.layers, batches, rank.batches)
    if rank.tied and not own:
        of_weight = of_weight.changed(extra=ExtraLabels(uses=frozenset([(batch, layer) for batch in batches])))
    if not more:
        return [of_weight, of_input]
    if "sliced" in more:
        of_input, (parts, of) = another_part(of_input, *grad.piece()), grad.piece()
        of_weight = of_weight.changed(extra=of_weight.extra._replace(parts=parts, of=of))
    if "partial" in more:
        of_weight, of_input = another_part(of_weight, *weight.piece()), _partial(of_input, weight)
    if "adapter" in more:
        of_weight = of_weight.changed(extra=OF_ADAPTER)
    return [of_weight, of_input]


def _of_the_loss(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    """Return the labels of the gradient of the loss: of a slice of the last activation, the same slice."""
    grad = of_batches("ActivationGrad", rank.layers - 1, rank.layers, labels[0].batches, rank.batches)
    return [another_part(grad, *labels[0].piece()) if more else grad]


def _both_gradients(values: Values, given: Sequence[Value], more: More) -> tuple[Value, Value]:
    """Return the values of the gradients of a layer's weight, or of its adapter, and of its input."""
    inp, grad, weight = given
    if not more:
        return values.backward(inp, grad, weight)
    weight = values.adapted(weight, more["adapter"]) if "adapter" in more else weight
    return values.backward(inp, grad, weight, more.get("saved"), **{name: True for name in IN_PARTS if name in more})


IN_PARTS = ("partial", "sliced")  # the options of a call with a piece of a weight, or with slices of a sequence
OVERLAPPED = "overlapped"
"""The option of a backward that runs beside the forwards right before it."""
OVERLAPPED_WORD = f"{OVERLAPPED}=True"
"""What the log says of such a backward."""
KEEP = ("all", "selective")
"""How much of a layer's inner activations a forward may keep."""

FORWARD = Computation(
    kind="forward",
    code="F",
    word="forward",
    trains=True,
    takes={"inp": "Activation", "weight": "Weight"},
    may_take={"adapter": "Weight"},
    options={"partial": (True,), "sliced": (True,), "keep": KEEP},
    rule=forward_rule,
    makes=_output,
    value=_outputs,
)

LOSS = Computation(
    kind="loss",
    code="L",
    word="loss",
    layered=False,
    takes={"inp": "Activation"},
    options={"sliced": (True,)},
    share=lambda labels: Fraction(len(labels[0].shards), labels[0].total),
    rule=loss_rule,
    makes=_of_the_loss,
    value=lambda values, given, more: [values.loss(given[0])],
)

BACKWARD = Computation(
    kind="backward",
    code="B",
    word="backward",
    trains=True,
    backward=True,
    takes={"inp": "Activation", "grad": "ActivationGrad", "weight": "Weight"},
    may_take={"saved": SAVED, "adapter": "Weight"},
    options={"partial": (True,), "sliced": (True,), OVERLAPPED: (True,)},
    with_adapter="backward_input",
    rule=backward_rule,
    makes=_gradients,
    value=_both_gradients,
    weight_grads=True,
)

_HALF = replace(BACKWARD, unless_given=("backward", 2), may_take={"saved": SAVED}, with_adapter="")
"""What the two halves of a backward share. Each leaves out the gradient that the other one makes."""

BACKWARD_INPUT = replace(
    _HALF,
    kind="backward_input",
    code="BI",
    word="backward for the input",
    words=("backward_input",),
    makes=lambda rank, layer, labels, more: _gradients(rank, layer, labels, more)[1:],
    value=lambda values, given, more: _both_gradients(values, given, more)[1:],
    weight_grads=False,
)

BACKWARD_WEIGHT = replace(
    _HALF,
    kind="backward_weight",
    code="BW",
    word="backward for the weight",
    words=("backward_weight",),
    makes=lambda rank, layer, labels, more: _gradients(rank, layer, labels, more)[:1],
    value=lambda values, given, more: _both_gradients(values, given, more)[:1],
)

# -- the optimizer step ---------------------------------------------------------------------------


def _stepped(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    """Return the labels of the weight and of its state after an optimizer step."""
    _, weight, opt_state = labels
    step, shards, total = weight.step + 1, weight.shards, weight.total
    return [of_weight(one.kind, layer, rank.layers, step, shards, total, one.extra) for one in (weight, opt_state)]


UPDATE = Computation(
    kind="update",
    code="U",
    word="update",
    elsewhere=("step",),
    takes={"weight_grad": "WeightGrad", "weight": "Weight", "opt_state": "OptState"},
    rule=update_rule,
    makes=_stepped,
    value=lambda values, given, more: values.update(given[1], given[2], given[0]),
    by_batch=False,
    on_host=True,
)

ORTHOGONALIZE = Computation(
    kind=ORTHOGONAL,
    code="O",
    word=ORTHOGONAL,
    words=(ORTHOGONAL,),
    takes={"grad": "WeightGrad"},
    rule=orthogonalize_rule,
    makes=lambda rank, layer, labels, more: [labels[0].changed(extra=ExtraLabels(direction=True))],
    value=lambda values, given, more: [values.orthogonalize(given[0])],
    by_batch=False,
)

ROWS = (FORWARD, LOSS, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, ORTHOGONALIZE, UPDATE)
"""The operations of the compute stream, in the order in which they are listed for people."""
