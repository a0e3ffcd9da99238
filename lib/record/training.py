"""The operations of the compute stream: what each insists on, what it makes, and its row.

The values would find most of these mistakes at the end of a run. The rules find them at the operation where they
happen, and say what to write instead.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from ..basics.errors import Fix, Place, PuzzleError, numbered, show_axis, show_layers, show_set
from . import causal
from .kinds import SAVED
from .labels import (
    DEALT,
    IN_A_V,
    NO_EXTRA,
    OF_ADAPTER,
    SLICES,
    ExtraLabels,
    Labels,
    experts_of,
    of_batches,
    of_weight,
    same_pieces,
    within,
)
from .operations import Computation, More, Rank, Value, Values
from .shards import NONE, coarsest, show_part  # fmt: skip

# -- forward and backward -------------------------------------------------------------------------


def forward_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless the weight is of step 0 and complete (with ``partial`` it may be a piece), the input is
    complete, and both are of this layer, as the adapter is, if there is one."""
    inp, weight = labels
    partial = bool(more) and "partial" in more
    if more and "adapter" in more:
        where = rank.place("forward", layer, inp.batches)
        named_right(rank, where, layer, {"input": inp.layer, "weight": weight.layer, "adapter": more["adapter"].layer})
        _adapter_fits(rank, where, layer, more["adapter"], partial)
    whole = len(weight.shards) == weight.total or partial
    plain = inp.total == 1 and inp.extra.of == 1 and not weight.extra.adapter
    if weight.layer != layer or inp.layer != layer or weight.step or not whole or not plain:
        where = rank.place("forward", layer, inp.batches)
        named_right(rank, where, layer, {"input": inp.layer, "weight": weight.layer})
        weight_fits(rank, where, layer, weight, partial)
        _is_whole(rank, "input", where, inp)
        if inp.layer != layer:
            given = f"what forward({layer - 1}, ...) gives" if layer else "what get_activation gives"
            problem, expected = f"the input is that of layer {inp.layer}", f"an Activation with layer={layer}: {given}"
            own = f"store {given} under its layer, and take it from there: model.activations[{layer}]"
            where_from = functools.partial(whence, rank, inp, "Activation", layer, own)
            fix_for = {
                DEALT: lambda: rank.dealt_otherwise() or rank.out_of_turn(inp) or where_from(),
                IN_A_V: lambda: rank.not_in_a_v() or where_from(),
            }
            error = PuzzleError(problem, where=where, expected=expected, got=str(inp), fix=where_from, fix_for=fix_for)
            error.sought = "Activation", layer, inp.batches
            raise error


def backward_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError for what forward refuses, and unless the gradient is that of the output, for the same micro-
    batches, and what forward left behind, if given, is of the same layer, piece and micro-batches."""
    inp, grad, weight = labels
    partial = bool(more) and "partial" in more
    if (
        weight.layer == inp.layer == grad.layer == layer
        and inp.batches == grad.batches
        and (len(weight.shards) == weight.total or partial)
        and not weight.step
        and inp.total == grad.total == 1
        and inp.extra is NO_EXTRA is grad.extra
        and not weight.extra.adapter
        and (not more or not ("saved" in more or "adapter" in more))
    ):
        return
    where = rank.place("backward", layer, inp.batches)
    named_right(rank, where, layer, {"input": inp.layer, "gradient": grad.layer, "weight": weight.layer})
    if "adapter" in more:
        _adapter_fits(rank, where, layer, more["adapter"], partial)
    weight_fits(rank, where, layer, weight, partial)
    _is_whole(rank, "input", where, inp)
    _is_whole(rank, "gradient", where, grad)
    if inp.layer != layer:
        problem = f"the input is that of layer {inp.layer}"
        expected = f"the Activation that forward({layer}, ...) read (layer={layer})"
        fix = f"keep what forward({layer}, ...) reads until then, stored under its layer: model.activations[{layer}]"
        error = PuzzleError(problem, where=where, expected=expected, got=str(inp), fix=fix)
        error.sought = "Activation", layer, grad.batches if grad.layer == layer else inp.batches
        raise error
    if grad.layer != layer:
        problem, last = f"the gradient is that of layer {grad.layer}", layer == rank.layers - 1
        given = "what model.loss gives" if last else f"what backward({layer + 1}, ...) gives"
        own = f"{given}, stored under its layer: model.grad_activations[{layer + 1}]; "
        own += "backward goes from the last layer down to the first"
        expected = f"an ActivationGrad with layer={layer}: {given}"
        where_from = functools.partial(whence, rank, grad, "ActivationGrad", layer + 1, own)
        if grad.layer == layer - 1 and grad.batches <= rank.has_run(BACKWARD_INPUT.kind, layer) != frozenset():
            both = (
                f"this is what {BACKWARD_INPUT.kind}({layer}, ...) gives, and goes on from here. Both halves read the "
            )
            both += "same gradient, that of the layer's output: keep it stored until the half for the weight, "
            both += f"model.grad_activations[{layer + 1}, micro_batch]"
            raise PuzzleError(problem, where=where, expected=expected, got=str(grad), fix=both)
        fix_for = {
            DEALT: lambda: rank.dealt_otherwise() or where_from(),
            IN_A_V: lambda: rank.not_in_a_v() or where_from(),
        }
        error = PuzzleError(problem, where=where, expected=expected, got=str(grad), fix=where_from, fix_for=fix_for)
        error.sought = "ActivationGrad", layer, inp.batches
        raise error
    if inp.batches != grad.batches:
        raise _of_other_batches(rank, where, layer, inp, grad)
    if "saved" in more:
        saved = more["saved"]
        _saved_fits(where, saved, _left_behind(layer, inp, weight, saved.keep))


def _of_other_batches(rank: Rank, where: Place, layer: int, inp: Labels, grad: Labels) -> PuzzleError:
    """Return the error about a gradient that is of other micro-batches than the input."""
    expected, got = f"a gradient for micro-batches {show_set(inp.batches)}", show_set(grad.batches)
    problem = "input and gradient are of different micro-batches"
    fix = "take both under the same micro-batch, and receive gradients in the order in which they are sent"
    if inp.batches <= rank.has_run(BACKWARD_INPUT.kind, layer):
        fix = f"the gradient of {numbered('micro-batch', inp.batches)} was here for {BACKWARD_INPUT.kind}, and another "
        fix += f"one has taken its place: a key for each, model.grad_activations[{layer + 1}, micro_batch]"
    elif layer == rank.layers - 1 and inp.batches <= rank.has_run(LOSS.kind, rank.layers):
        fix = f"model.loss gave the gradient of {numbered('micro-batch', inp.batches)}, and another one has taken its "
        fix += f"place: a key for each, model.grad_activations[{layer + 1}, micro_batch], or the loss right before this"
    elif grad.batches <= rank.has_run("forward", layer) and rank.lacks_inputs():
        fix = f"this rank has run layer {layer} for {numbered('micro-batch', grad.batches)}, too: give each input a "
        fix += f"key of its own, model.activations[{layer}, micro_batch], or the next one takes its place; and take "
        fix += "out that of the gradient's micro-batch"
    elif came := rank.sender(grad):
        sender = came[0]
        fix = f"the gradient came from rank {sender}: let both ranks take the micro-batches in the same order, "
        fix += "and receive each message once"
        found = functools.partial(_not_sent, rank, sender, layer, inp.batches, fix)
        return PuzzleError(
            problem, where=where, expected=expected, got=got, fix=rank.left_out_at_the_end(grad) or found
        )
    return PuzzleError(problem, where=where, expected=expected, got=got, fix=fix)


def _not_sent(rank: Rank, sender: int, layer: int, batches: frozenset[int], fix: str) -> str:
    """Return what to do where a rank has sent no gradient of these micro-batches, or the ``fix`` if it has."""
    if not rank.not_sent_by(sender, "ActivationGrad", layer, batches):
        return fix
    if otherwise := rank.other_way(sender, layer + 1, batches):
        return otherwise
    none = f"rank {sender} has not sent that of {numbered('micro-batch', batches)}"
    return f"{none}: one pass_to for each micro-batch, right after the backward of its first layer"


def _left_behind(layer: int, inp: Labels, weight: Labels, keep: str) -> Labels:
    """Return the labels of the inner activations that a forward leaves behind."""
    labels = inp.changed(kind=SAVED, layer=layer, shards=weight.shards, total=weight.total)
    return labels.changed(extra=ExtraLabels(keep=keep)).coarse()


def _saved_fits(where: Place, saved: Labels, right: Labels) -> None:
    """Raise PuzzleError unless these inner activations are what forward has left behind there."""
    if saved.coarse() == right:
        return
    differ = "layer" if saved.layer != right.layer else "micro-batch"
    if saved.layer == right.layer and saved.batches == right.batches:
        differ = "piece of the weight"
    problem, fix = f"the inner activations are of another {differ}", "keep what forward gives under its layer and its "
    fix += "micro-batch, model.activations[layer, mb, 'saved'], and take it out there for backward"
    raise PuzzleError(problem, where=where, expected=str(right), got=str(saved), fix=fix)


def named_right(rank: Rank, where: Place, layer: int, layers: Mapping[str, int]) -> None:
    """Raise PuzzleError if all operands are of one layer, and that is not the one that is named."""
    others = set(layers.values())
    if layer not in others and len(others) == 1:
        (own,), (*first, last) = others, layers
        problem = f"{', '.join(first)} and {last} are of layer {own}"
        fix = f"name their layer: {own} in place of {layer}"
        if not 0 <= layer < rank.layers:
            fix = f"there is no layer {layer}: LAYERS is {rank.layers}; {fix}"
        raise PuzzleError(problem, where=where, expected=f"layer {layer}", got=f"layer {own}", fix=fix)


def whence(rank: Rank, labels: Labels, kind: str, layer: int, own: str) -> str:
    """Return from which rank a tensor of the wrong layer has come, if it has, and which one makes what is wanted: an
    activation of a layer, or its gradient. Where all this is the rank's ``own``, return that text."""
    came, wanted = rank.sender(labels), rank.comes_from(kind, layer, labels.batches)
    if came is None:
        first = rank.elsewhere(0) if wanted and labels.kind == "Activation" and labels.layer == 0 else None
        return f"the input is for layer 0, which is on rank {first}; {wanted}" if first is not None else wanted or own
    if kind == labels.kind == "Activation" and (nobodys := rank.nobodys(labels.layer)):
        return f"it came from rank {came[0]}; {nobodys}"
    if kind == labels.kind == "Activation" and (left := rank.left_between(came[0], labels, layer)):
        return f"it came from rank {came[0]}, and {left}"
    if labels.kind == "ActivationGrad" and labels.layer < 0:
        sent = f"rank {came[0]} has sent what backward(layer 0) gives, the gradient of the first input"
        return f"{sent}: nobody needs it, so leave out that pass_to"
    if kind == labels.kind == "ActivationGrad" and (left := rank.left_out_at_the_end(labels)):
        return left
    if kind == "ActivationGrad" and (own_ones := rank.has_run("backward", layer) - rank.has_run("backward", layer - 1)):
        gave = (
            f"backward({layer}, ...) has run on this rank for {numbered('micro-batch', own_ones)}, and what it gave is"
        )
        return f"{gave} the gradient for layer {layer - 1}, with no message: receive for the last of its layers only"
    if kind == labels.kind == "ActivationGrad" and labels.batches <= rank.has_run("forward", labels.layer):
        which = f"that of layer {labels.layer}, {numbered('micro-batch', labels.batches)}, is for this rank, too"
        order = "let both ranks do the backwards in the same order of layers and micro-batches"
        return f"{which}, and rank {came[0]} has sent it first: {order}"
    from_there = f"src={came[0]})" in wanted
    its_own = came[0] == rank.elsewhere(labels.layer, labels.batches)
    if from_there and (instead := rank.sent_instead(came[0], kind, labels, layer)):
        goes_on = f": layer {labels.layer} is its own, and goes on there without a message"
        return f"{instead}{goes_on}" if its_own else instead
    if its_own and kind == labels.kind == "ActivationGrad":
        fix = (
            f"rank {came[0]} has sent the gradient that its own layer {labels.layer} reads: leave that send out. Each "
        )
        return f"{fix}rank passes on what its own backward gives, of the first of its layers, to the rank before"
    if its_own:
        fix = (
            f"rank {came[0]} has sent the {labels.kind} of layer {labels.layer}, a layer that is its own: let it send "
        )
        fix += f"only what other ranks read. Or should this rank have layer {labels.layer}?"
        if kind != labels.kind or not labels.batches:
            return fix
        verb, end, near = ("backward", "first", "below") if kind == "ActivationGrad" else ("forward", "last", "above")
        reads = (
            f"it reads that itself, {verb}({labels.layer}, ...), and what the {verb} of that stage's {end} layer gives"
        )
        return f"{fix} If not, {reads} goes on, to the rank that has the layer {near}, and to no other"
    if from_there:
        return f"it came from rank {came[0]}, and so does what is wanted: receive in the order in which that rank sends"
    if not wanted and kind == labels.kind == "Activation" and rank.has_run("forward", layer - 1):
        own = f"forward({layer - 1}, ...) of this rank gave what layer {layer} reads: receive for this rank's "
        return f"it came from rank {came[0]}, and took its place. {own}first layer only, not in each turn of a loop"
    return f"it came from rank {came[0]}; {wanted or own}"


def _for_a_slice(rank: Rank, name: str, where: Place, labels: Labels) -> tuple[str, dict[str, Fix]]:
    """Return what to write instead of a slice where the whole sequence is needed, and in some puzzles."""
    layer = labels.layer
    call = f"await model.allgather(..., {layer})"
    fix = f"gather the slices of all ranks of the group: {call}; together they are all of it, each "
    fix += "tensor.shard(model.rank, model.RANKS)"
    if name == "input" and where.operation != LOSS.kind:
        fix += ". The weight is not gathered: partial=True takes this rank's piece"
    uncut = "leave activations uncut: each rank trains on whole micro-batches of its own, model.get_activation([...])"
    if labels.kind == "ActivationGrad" and labels.layer == labels.layers - 1:
        fix = "model.loss gives each rank all of this gradient: leave out its .shard(...)"
    whole = f"activations stay whole here: no cuts, and sums come of await model.allreduce(..., {layer})"
    steps = f"a slice goes through a layer in steps: att, kv = model.project({layer}, inp, weight) is the first"
    if name == "gradient" or where.operation == BACKWARD.kind:
        steps = "a slice goes back in steps: att_grad = model.backward_rest(layer, inp, grad, weight, att) is the first"
    if where.operation == LOSS.kind:
        steps = "model.loss(out, sliced=True) takes a slice, and gives a slice"
    fix_for: dict[str, Fix] = {"project": steps, SLICES: lambda: rank.cut_again(labels) or fix, "partial=True": whole}
    fix_for |= dict.fromkeys(("whole", "sharded", "states_sharded", "replica_sharded"), uncut)
    return fix, fix_for


def _is_whole(rank: Rank, name: str, where: Place, labels: Labels) -> None:
    """Raise PuzzleError for a sum that lacks partial sums, and for slices of a sequence."""
    if labels.of != 1:
        call = f"await model.allreduce(..., {labels.layer})"
        problem, got = f"the {name} is not the whole sum", f"partial sum {show_set(labels.parts)} of {labels.of}"
        fix = f"add up what all ranks of the group have computed with their pieces of the weight: {call}"
        fix = rank.weights_cut_again(labels) or fix
        raise PuzzleError(problem, where=where, expected="all partial sums, added up", got=got, fix=fix)
    if labels.total != 1:
        problem, got = f"the {name} is a slice of the sequence", f"slice {show_set(labels.shards)} of {labels.total}"
        fix, fix_for = _for_a_slice(rank, name, where, labels)
        raise PuzzleError(problem, where=where, expected="the whole sequence", got=got, fix=fix, fix_for=fix_for)


def _adapter_fits(rank: Rank, where: Place, layer: int, adapter: Labels, partial: bool) -> None:
    """Raise PuzzleError unless this is the complete adapter of the layer, not yet updated, of a layer that is computed
    as a whole."""
    if partial:
        problem, fix = "a layer that is computed in pieces takes no adapter", "leave out partial=True, or adapter=..."
        raise PuzzleError(problem, where=where, fix=fix)
    if not adapter.adapter:
        problem, expected = "that is no adapter, but the layer's own weight", "a Weight with adapter=True"
        fix = f"adapter, opt_state = model.load_adapter({layer}), and then adapter=adapter"
        raise PuzzleError(problem, where=where, expected=expected, got=str(adapter), fix=fix)
    if adapter.layer != layer:
        problem, fix = f"the adapter is that of layer {adapter.layer}", f"the one that load_adapter({layer}) has given"
        raise PuzzleError(problem, where=where, expected=f"layer {layer}", got=str(adapter), fix=fix)
    if not adapter.is_whole():
        problem, expected = "the adapter is not complete", f"all shards of the adapter of layer {layer}"
        fix = f"adapter = await model.allgather(adapter, {layer}), or load all of it: model.load_adapter({layer})"
        raise PuzzleError(problem, where=where, expected=expected, got=str(adapter), fix=fix)
    if adapter.step and rank.graded:
        problem, fix = "the adapter has been updated already", "update it after the last backward that needs it"
        expected = "the adapter of step 0, for every micro-batch of the batch"
        raise PuzzleError(problem, where=where, expected=expected, got=str(adapter), fix=fix)


def weight_fits(rank: Rank, where: Place, layer: int, weight: Labels, partial: bool) -> None:
    """Raise PuzzleError unless this is the layer's own weight, not yet updated, and complete unless ``partial``."""
    if weight.adapter:
        problem = "an adapter is no weight of its own"
        expected = f"the weight of layer {layer}, and beside it its adapter"
        fix = f"weight=model.weights[{layer}], adapter=...: the adapter comes beside the weight, not in its place"
        raise PuzzleError(problem, where=where, expected=expected, got=str(weight), fix=fix)
    if weight.layer != layer:
        problem, expected = f"the weight is that of layer {weight.layer}", f"layer {layer}"
        own = f"what load_weights({layer}, ...) gives: model.weights[{layer}], where it is stored under its layer"

        def loaded() -> str:
            return own if partial else _gathered_ahead(rank, weight, rank.whole_weight(layer)) or own

        plain = functools.partial(_not_loaded, rank, layer, loaded)
        dealt = {DEALT: lambda: rank.dealt_otherwise() or plain()}
        error = PuzzleError(problem, where=where, expected=expected, got=str(weight), fix=plain, fix_for=dealt)
        error.sought = "Weight", layer, NONE
        raise error
    if not partial and not weight.is_whole():
        expected, problem = f"all shards of the weight of layer {layer}", "the weight is not complete"
        piece = f"compute with this rank's piece, model.weights[{layer}], and partial=True"
        fix_for: dict[str, Fix] = {
            "partial=True": f"{piece}: the result is a partial sum, to be added up over the ranks"
        }
        whole = f"load all of it, model.load_weights({layer}), and keep all of it until its last forward and backward"
        if rank.has_copy(layer):
            whole = f"this rank has loaded all of the weight of layer {layer}, and cut it since: keep all of it until "
            whole += "its last forward and backward, those of the rank's last micro-batch"
        fix_for |= dict.fromkeys(("whole", "stages", "states_sharded"), whole)
        gather: Fix = functools.partial(rank.whole_from_pieces, weight)
        if experts_of(layer, rank.experts):
            gather = f"tokens go to the experts: await model.alltoall(..., {layer}), and model.expert with this piece"
        else:
            fix_for["experts_sharded"] = (
                f"here each rank has all of a layer without experts: model.load_weights({layer})"
            )
        on_mesh = functools.partial(rank.whole_on_mesh, weight)
        fix_for |= dict.fromkeys(("replica_sharded", "hybrid_sharded", "sharded_stages"), on_mesh)
        raise PuzzleError(problem, where=where, expected=expected, got=str(weight), fix=gather, fix_for=fix_for)
    if weight.step and rank.graded:
        problem = "the weight has been updated already"
        expected = "the weight of step 0, for every micro-batch of the batch"
        fix = "update a layer after the last forward and backward that need its weight"
        raise PuzzleError(problem, where=where, expected=expected, got=str(weight), fix=fix)


def loss_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless the input is the output of the last layer."""
    (inp,) = labels
    if inp.layer != rank.layers:
        where = rank.place("loss", None, inp.batches)
        problem = "the loss reads the output of the last layer"
        top = rank.layers - 1
        gives = "rest" if any(rank.has_run("rest", one) for one in range(rank.layers)) else "forward"
        expected = f"an Activation with layer={rank.layers}: what {gives}({top}, ...) gives"
        fix = "run every layer from 0 to model.LAYERS - 1 first, and then the loss once: "
        fix += "model.loss(model.activations[model.LAYERS]); "
        fix += "in a pipeline only the last stage has that"
        if inp.batches <= rank.has_run(gives, top):
            sliced_too = ", sliced=True" * (inp.total != 1)
            fix = f"this is the input of layer {inp.layer}, and {gives}({top}, ...) has run: the loss reads what that "
            fix += f"gave, model.loss(model.activations[model.LAYERS]{sliced_too})"
        if rank.sender(inp) and rank.has_run("forward", top):
            fix = f"this rank runs forward({top}, ...) itself, and the loss reads what it gives: keep "
            fix += "that under a key, and neither send nor receive it"
        if inp.batches <= rank.has_run("loss", rank.layers):
            fix = f"model.loss has had the output of {numbered('micro-batch', inp.batches)} already, and this is the "
            fix += f"input of layer {inp.layer}: leave this call out"
        which: Fix = lambda: rank.left_out(inp.layer) or fix  # noqa: E731
        raise PuzzleError(problem, where=where, expected=expected, got=str(inp), fix=which)
    sliced = bool(more) and "sliced" in more
    if (inp.total != 1 and not sliced) or inp.extra.of != 1:
        _is_whole(rank, "input", rank.place("loss", None, inp.batches), inp)


def _partial(labels: Labels, weight: Labels) -> Labels:
    """Return the labels of what a piece of a weight gives: a partial sum."""
    parts, of = coarsest(weight.shards, weight.total)
    return labels.changed(extra=ExtraLabels(parts, of))


def _output(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    """Return the labels of a layer's output, and those of its inner activations where some are kept."""
    inp, weight = labels
    out = of_batches("Activation", layer + 1, rank.layers, inp.batches, rank.batches)
    if not more:
        return [out]
    if "partial" in more:
        out = _partial(out, weight)
    return [out, _left_behind(layer, inp, weight, more["keep"])] if "keep" in more else [out]


def _outputs(values: Values, given: Sequence[Value], more: More) -> Sequence[Value]:
    """Return the value of a layer's output, and that of its inner activations where some are kept."""
    inp, weight = given
    if not more:
        return [values.forward(inp, weight)]
    weight, partial = _trained(values, weight, more), "partial" in more
    if "keep" in more:
        return values.keeping(inp, weight, more["keep"], partial)
    return [values.forward(inp, weight, partial)]


def _trained(values: Values, weight: Value, more: More) -> Value:
    """Return the value of a weight, or what stands in its place where it is frozen and has an adapter."""
    return values.adapted(weight, more["adapter"]) if "adapter" in more else weight


def _gradients(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    """Return the labels of the gradients of a layer's weight, or of its adapter, and of its input."""
    batches, weight = labels[0].batches, labels[2]
    of_weight = of_batches("WeightGrad", layer, rank.layers, batches, rank.batches)
    of_input = of_batches("ActivationGrad", layer - 1, rank.layers, batches, rank.batches)
    if not more:
        return [of_weight, of_input]
    if "partial" in more:
        shards, total = coarsest(weight.shards, weight.total)
        of_weight, of_input = of_weight.changed(shards=shards, total=total), _partial(of_input, weight)
    if "adapter" in more:
        of_weight = of_weight.changed(extra=OF_ADAPTER)
    return [of_weight, of_input]


def _of_the_loss(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> list[Labels]:
    """Return the labels of the gradient of the loss: of a slice of the last activation, the same slice."""
    (inp,) = labels
    grad = of_batches("ActivationGrad", rank.layers - 1, rank.layers, inp.batches, rank.batches)
    return [grad.changed(shards=inp.shards, total=inp.total) if more else grad]


def _both_gradients(values: Values, given: Sequence[Value], more: More) -> tuple[Value, Value]:
    """Return the values of the gradients of a layer's weight, or of its adapter, and of its input."""
    inp, grad, weight = given
    if not more:
        return values.backward(inp, grad, weight)
    return values.backward(inp, grad, _trained(values, weight, more), more.get("saved"), partial="partial" in more)


OVERLAPPED = "overlapped"
"""The option of a backward that runs beside the forwards right before it."""
BESIDE = f"{OVERLAPPED}=True"
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
    options={"partial": (True,), "keep": KEEP},
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
    options={"partial": (True,), OVERLAPPED: (True,)},
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


SUM_FIRST = "train on all micro-batches and add up their gradients, then update"


def not_in_place(verb: str, then: str = "update with that") -> str:
    """Return the fix where a gradient that went into a reduction is used as if it were the sum."""
    fix = f"model.{verb} does not change the gradient that it is given, it returns a new one: "
    return fix + f"write grad = await model.{verb}(grad, layer), and {then}"


def update_rule(rank: Rank, layer: int, labels: Sequence[Labels], more: More) -> None:
    """Raise PuzzleError unless the gradient has every micro-batch once and covers the weight, and weight and state are
    the same pieces, of one layer and step."""
    grad, weight, opt_state = labels
    if (
        layer == grad.layer == weight.layer == opt_state.layer
        and grad.extra == weight.extra == opt_state.extra
        and len(grad.batches) == rank.batches
        and weight.step == opt_state.step
        and same_pieces(weight, opt_state)
        and within(weight, grad)
    ):
        return
    where = rank.place("update", layer)
    named_right(rank, where, layer, {"gradient": grad.layer, "weight": weight.layer, "state": opt_state.layer})
    _same_thing(where, layer, {"weight_grad": grad, "weight": weight, "opt_state": opt_state})
    if len(grad.batches) != rank.batches:
        missing = frozenset(range(rank.batches)) - grad.batches
        problem = f"the gradient is missing {numbered('micro-batch', missing)}"
        expected, got = f"all of {show_set(range(rank.batches))}", show_set(grad.batches)
        complete = functools.partial(_completed, rank, layer, grad, missing, rank.fetches())
        cut = functools.partial(complete, sum_by="scatterreduce")
        summed: dict[str, Fix] = {"no_whole_gradient": cut}
        raise PuzzleError(problem, where=where, expected=expected, got=got, fix=complete, fix_for=summed)
    if grad.extra.of != 1:
        raise _of_some_slices(rank, where, layer, grad)
    if weight.step != opt_state.step:
        problem, expected = "weight and optimizer state are of different steps", f"step {weight.step}"
        fix = f"each update makes both anew: store both, and take both, model.opt_states[{layer}] as well"
        raise PuzzleError(problem, where=where, expected=expected, got=str(opt_state), fix=fix)
    pieces = show_part(weight.shards, weight.total)
    if not same_pieces(weight, opt_state):
        problem, expected = "weight and optimizer state hold different shards", f"{pieces}, as the weight"
        alike = functools.partial(_held_alike, rank, layer, weight, opt_state)
        whole = "gather the gradient before that"
        if weight.is_whole() and grad.is_whole():
            whole = f"leave the state whole, as model.load_weights({layer}) gives it, and as weight and gradient are"
        all_of_it = {"whole": f"here each rank updates all of a layer, weight and state: {whole}"}
        raise PuzzleError(problem, where=where, expected=expected, got=str(opt_state), fix=alike, fix_for=all_of_it)
    problem, expected, fix_for = "the gradient does not cover the weight", f"at least {pieces}", dict[str, Fix]()
    cover: Fix = functools.partial(_cut_alike, rank, layer, grad, weight)
    if within(grad, weight) and experts_of(layer, rank.experts):
        cover = "what model.backward_expert gives is the gradient of this rank's experts already: leave it whole"
    elif within(grad, weight):
        gather = f"gather the gradient: grad = await model.allgather(grad, {layer}{rank.last_cut(layer)})"
        gather += ", over the ranks that have cut it, and no others" * (not rank.last_cut(layer))
        again = "" if weight.is_whole() else "is the gradient cut twice, as model.scatterreduce cuts it already? Else "
        if grad.total % weight.total:
            again = f"the gradient is cut into {grad.total} pieces, and the weight into {weight.total}: cut it as the "
            again += "weight, or leave it whole. Else "
        cover = functools.partial(_cut_alike, rank, layer, grad, weight, again)
        fix_for = {"no_whole_gradient": cover, "whole": gather, "stages": gather, "states_sharded": cover}
        if weight.is_whole():
            shard = "here each rank loads, keeps and updates its shard of every layer: "
            fix_for = {"sharded": f"{shard}model.load_weights({layer}, model.rank, model.RANKS)", **fix_for}
            if rank.is_cut(layer) and not rank.last_cut(layer):
                whole = (
                    f"grad = await model.allreduce(grad, {layer}) in place of model.scatterreduce, which leaves each "
                )
                every = f"{whole}rank a piece: here each rank updates all of a layer"
                dense = every.replace("a layer", "a layer without experts")
                fix_for = {**fix_for, "whole": every, "experts_sharded": dense}
            if pieces := rank.cut_twice(layer):
                fix_for = {**fix_for, "whole": f"{pieces}. Or {gather}"}
        cover = functools.partial(_cut_alike, rank, layer, grad, weight, f"{again}{gather}; or ")
        if grad.adapter and weight.is_whole() and rank.is_cut(layer):
            whole = f"grad = await model.allreduce(grad, {layer}) in place of model.scatterreduce"
            cover, fix_for = f"{whole}: each rank has all of the adapter, and updates all of it", {}
        if further := rank.cut_further(layer, grad):
            cover = further
            fix_for = {**fix_for, **dict.fromkeys(("whole", "no_whole_gradient", "states_sharded"), cover)}
        own = "update with the gradient that backward(..., partial=True) gives: it is that of this rank's piece of the "
        own += "weight, and is neither cut nor gathered"
        if weight.is_whole():
            own = f"here each rank loads, keeps and updates its piece of every layer: model.load_weights({layer}, "
            own += "model.rank, model.RANKS). The gradient is that of this piece already"
        fix_for = {"weights_stay": own, **fix_for}
    fix_for = {"hybrid_sharded": functools.partial(_cut_once, rank, layer, cover), **fix_for}
    raise PuzzleError(problem, where=where, expected=expected, got=str(grad), fix=cover, fix_for=fix_for)


def _of_some_slices(rank: Rank, where: Place, layer: int, grad: Labels) -> PuzzleError:
    """Return the error about a gradient that is not summed over the whole sequence."""
    slices, of = causal.missing(causal.ALL, grad.done())
    problem = "the gradient is of some slices of the sequence only: slices "
    problem += f"{show_set(slices)} of {of} are missing"
    fix = f"add up the gradients of all ranks that have slices of the sequence: await model.allreduce(grad, {layer})"
    if none := rank.slices_of_none(layer, grad.batches, (slices, of))[0]:
        problem += f"; slices {show_set(none)} were computed by no rank"
        fix = "every slice needs a rank: inp.shard(model.rank, model.RANKS)"
    expected = "all slices of each micro-batch"
    return PuzzleError(problem, where=where, expected=expected, got=str(grad), fix=fix)


def _not_loaded(rank: Rank, layer: int, otherwise: Callable[[], str]) -> str:
    """Return what to do about the weight of a layer that this rank has not loaded, while it has loaded others; or else
    what to do ``otherwise``."""
    own = rank.layers_loaded()
    if not own or layer in own:
        return otherwise()
    has = f"this rank has loaded {numbered('layer', own)}, and not layer {layer}"
    return f"{has}: load the layers that it runs, model.load_weights({layer}, ...), or run those that it has loaded"


def _gathered_ahead(rank: Rank, weight: Labels, gather: str) -> str:
    """Return how a rank gathers a weight, in place of one that it has gathered of another layer; or an empty text."""
    if not gather or not weight.is_whole() or not rank.has_gathered(weight):
        return gather
    ahead = "to gather one turn ahead, make the first call before the loop, and await each before you make the next one"
    ahead += ", which the next turn awaits"
    return f"{gather}; or {ahead}"


def _held_alike(rank: Rank, layer: int, weight: Labels, opt_state: Labels) -> str:
    """Return how a rank comes to the same piece of a weight and of its state."""
    if within(opt_state, weight) and rank.has_gathered(weight):
        own = f"model.weights[{layer}]"
        fix = f"update the piece that this rank has loaded, and not what was gathered: model.update({layer}, grad, "
        return f"{fix}{own}, model.opt_states[{layer}]), with that piece still in {own}"
    if within(opt_state, weight) and weight.is_whole() and rank.owns_piece(opt_state):
        fix = "update the piece of the weight whose state this rank has, "
        return f"{fix}model.weights[{layer}].shard(model.rank, model.RANKS): cut both alike, with the same numbers"
    if within(weight, opt_state) and opt_state.is_whole() and rank.has_copy(layer):
        return f"cut the state as the weight is cut: opt_state.shard{rank.numbers_of(weight)}"
    if within(weight, opt_state) and opt_state.is_whole() and rank.owns_piece(weight):
        load = (
            f"model.weights[{layer}], model.opt_states[{layer}] = model.load_weights({layer}, model.rank, model.RANKS)"
        )
        return f"load of the state the piece that goes with that of the weight, both by one call, {load}"
    if numbers := rank.cut_along(weight) or rank.cut_along(opt_state):
        return f"cut both alike, out of what load_weights gave: weight.shard{numbers} and opt_state.shard{numbers}"
    if len(weight.shards) == len(opt_state.shards) == 1 and not (weight.is_whole() or opt_state.is_whole()):
        same = "weight.shard and model.load_weights, which gives the state, with the same numbers, "
        known = [rank.numbers_of(weight), rank.numbers_of(opt_state)]
        along = [one for one in known if "axis_index" in one and rank.axes_of_layers()]
        by_place = ["model." in one for one in known]
        if not along and by_place[0] != by_place[1]:
            odd, even = ("state", "weight") if by_place[0] else ("weight", "state")
            of, numbers = (opt_state, known[0]) if by_place[0] else (weight, known[1])
            is_piece = f"the {odd} is piece {min(of.shards)} of {of.total}, and the {even} is cut by {numbers}"
            return f"{is_piece}: cut both alike, the {odd} by {numbers} as well"
        return f"cut both alike: {same}{' or '.join(along or known)}"
    return "cut both alike: weight.shard(i, n) and opt_state.shard(i, n), with the same i and n"


def _cut_alike(rank: Rank, layer: int, grad: Labels, weight: Labels, before: str = "") -> str:
    """Return which piece of a weight goes with the piece of a gradient that a rank has."""
    fix = "hold the piece of weight and state whose gradient this rank has, as a reduce-scatter gives piece i to the "
    if over := rank.cut_of(layer):
        return f"{before}{over}; {fix}i-th rank of its group"
    cut = rank.other_piece(layer, grad)
    if not cut and rank.owns_piece(grad) and weight.total != grad.total:
        cut = f"that is one of {grad.total}: weight.shard(model.rank, model.RANKS), and opt_state.shard alike"
    numbers = rank.numbers_of(grad)
    if not cut and len(grad.shards) == 1 and not grad.is_whole() and "model." in numbers:
        cut = f"this one is {numbers}: weight.shard with these two numbers, and opt_state.shard alike"
    return f"{before}{fix}i-th rank of its group{cut and f'; {cut}'}"


def _cut_once(rank: Rank, layer: int, otherwise: Fix) -> str:
    """Return how the gradient of a layer is cut as its weight is, where that is right as it is loaded, over one axis;
    or what to do ``otherwise``."""
    return rank.cut_once(layer) or (otherwise() if callable(otherwise) else otherwise)


def _completed(
    rank: Rank, layer: int, grad: Labels, missing: frozenset[int], fetches: int, sum_by: str = "allreduce"
) -> str:
    """Return how a rank gets the gradient of the micro-batches that its own one lacks. ``fetches``: how many calls it
    had awaited by then; ``sum_by``: the reduction to name where it has called none."""
    if verb := rank.reduced(layer, grad.batches):
        return not_in_place(verb)
    if not rank.ran_nothing() and (idle := rank.not_gone_back(layer, missing)):
        return idle
    if verb := rank.reduced_alone(layer, grad.batches):
        whole = frozenset(range(rank.batches))
        if all(rank.run_by_none(one, whole) == whole for one in range(rank.layers)):
            asks = "is the condition under which a rank runs a layer ever true? The layers of a stage are range(first, "
            asks += "first + n), which ends before first + n, and n is model.LAYERS // stages: there can be more ranks "
            return f"no rank has run any layer: {asks}than layers"
        if idle := rank.ran_nothing():
            stage = (
                "is it a stage that is not there? With several pipelines, model.rank % stages is the stage. Or is the "
            )
            stage += "range of layers empty? A stage has model.LAYERS // stages, at least one, range(first, first + "
            stage += "model.LAYERS // stages): there can be more ranks than layers"
            return f"{idle} run no layer, and brought no gradient: {stage}"
        fix = f"no other rank has brought a micro-batch to model.{verb} of layer {layer}: each brings the gradient "
        return fix + f"that it has computed, and model.fake_grad({layer}, []) only where it has none"
    if part := rank.replaced_sum(layer, grad, fetches) or rank.summed_in_part(layer, grad):
        return part
    if own := missing & rank.with_gradients(layer):
        fix = f"this rank has computed the gradient of {numbered('micro-batch', own)} as well: store the first one, "
        return f"{fix}and add it to the others, model.grad_weights[{layer}] = model.grad_weights[{layer}] + grad"
    if undone := missing & rank.has_run(FORWARD.kind, layer):
        return _backward_to_come(rank, layer, missing, undone)
    if rank.is_host and rank.has_not_come(layer, missing):
        first = f"those of {numbered('micro-batch', missing)} for layer {layer} have not been received by then"
        return (
            f"{first}: receive one message of the device for each layer and each micro-batch, and update after the last"
        )
    if rank.is_host:
        fix = "gradients come from the devices, one message for each micro-batch: keep the gradient of the first "
        return fix + f"micro-batch, add those of the others to it, model.grad_weights[{layer}] + grad, and then update"
    if none := rank.run_by_none(layer, missing):
        if alone := rank.sum_of_some():
            return alone
        ran = f"layer {layer} has not run on {numbered('micro-batch', none)} by then"
        if not rank.others_have(layer):
            return f"{ran}: {SUM_FIRST}"
        if fewest := rank.has_fewest(none):
            return f"{ran}, on any rank; {fewest}"
        train = "train on all of them, and update after the last one. Is a loop too short?"
        return f"{ran}, on any rank: {train} Else {rank.dealt()}"
    if often := rank.sums_often(layer):
        return often
    if alone := rank.met_by_others("WeightGrad", layer):
        return alone
    if left := rank.over_copies(layer) or rank.left_to_sum(layer, grad) or rank.sum_of_some():
        return left
    if verb := rank.not_brought(layer, grad.batches):
        fix = f"model.{verb} of layer {layer} was called with another gradient: call it after this backward, with what "
        return fix + f"that gives, grad = await model.{verb}(grad, {layer})"
    if others := rank.not_theirs(layer, missing):
        return others
    if rank.others_have(layer):
        if rank.owns_piece(grad) and not rank.is_cut(layer) and not rank.axes_of_layers():
            both = f"grad = await model.scatterreduce(grad, {layer}) of the whole gradient sums and cuts"
            return f"shard cuts, and sums nothing over the ranks: in place of it {both}"
        verb, layers = rank.never_reduced()
        if layer in layers:
            which = f"layer {layer} was" if len(layers) == 1 else f"{show_layers(layers)} were"
            return f"{which} never summed over the ranks: bring all gradients to model.{verb}, the last ones, too"
        if axes := rank.axes_of_layers():
            over = " and then ".join(f"axis={show_axis(axis)}" for axis in axes)
            return (
                f"add up the gradients of the ranks that have layer {layer}, too, before the update: grad = await "
                f"model.allreduce(grad, {layer}, {over}), or model.scatterreduce, which gives a rank its piece of "
                "the sum"
            )
        if rank.experts and not experts_of(layer, rank.experts):
            dense = f"layer {layer} has no experts, so add up the gradients of all ranks"
            call = f"grad = await model.allreduce(grad, {layer}), where `not model.experts(layer)`"
            return f"{dense}, {call}; those of experts need no sum"
        if sum_by != "allreduce":
            return f"add up the gradients of all ranks before the update: grad = await model.{sum_by}(grad, {layer})"
        return (
            f"add up the gradients of all ranks before the update: grad = await model.allreduce(grad, {layer}), or "
            "model.scatterreduce, which gives a rank its piece of the sum"
        )
    return SUM_FIRST


def _backward_to_come(rank: Rank, layer: int, missing: frozenset[int], undone: frozenset[int]) -> str:
    """Return which backward a rank has to do before an update. ``missing``: the micro-batches that the gradient lacks;
    ``undone``: those of them that this rank has carried forward, and not back."""
    halves = rank.has_run(BACKWARD_INPUT.kind, layer) & undone
    if rank.has_run(BACKWARD_INPUT.kind, layer) and not halves | (missing - undone):
        return (
            f"neither half of the backward of layer {layer} has run for {numbered('micro-batch', undone)} by then: "
            "add up what model.backward_weight gives for all of them, and update once, after the last. Does this "
            "rank's order of work have one for each of these?"
        )
    if rank.has_run(BACKWARD_INPUT.kind, layer) and missing - undone and rank.run_by_none(layer, missing):
        return f"this update is too soon: {SUM_FIRST}"
    verb = BACKWARD_WEIGHT.kind if halves else BACKWARD.kind
    verb = "backward_expert" if experts_of(layer, rank.experts) else verb
    half = "the weight's half of the backward" if halves else "the backward"
    then = "then one update, with the sum of all gradients" if rank.with_gradients(layer) else "and then the update"
    what = f"{half} of {numbered('micro-batch', halves or undone)}"
    left = _backwards_left(rank) if verb == BACKWARD.kind else ""
    return f"{what} was never done for layer {layer} before this: model.{verb}({layer}, ...), {then}{left}"


def _backwards_left(rank: Rank) -> str:
    """Return how many backwards a rank has done that has done all forwards, of several micro-batches, and only some of
    the backwards; or an empty text."""
    done, back = (
        [len(own) for layer in range(rank.layers) if (own := rank.has_run(kind, layer))]
        for kind in (FORWARD.kind, BACKWARD.kind)
    )
    if len({*done}) != 1 or done[0] < 2 or not back or sum(back) > sum(done) - 2:
        return ""
    return (
        f". This rank has done {sum(done)} forwards and {sum(back)} backwards: do those that are left after the last "
        "forward (a zip ends with its shorter list)"
    )


def _same_thing(where: Place, layer: int, labels: Mapping[str, Labels]) -> None:
    """Raise PuzzleError unless a gradient, a weight and a state are all of this layer, and all of it or its adapter."""
    for name, one in labels.items():
        if one.layer != layer:
            problem = f"{name} is of layer {one.layer}"
            fix = f"model.update({layer}, ...) takes all of layer {layer}: is one under the key of another, or is "
            fix += f"{layer} the wrong number? Every tensor knows its own, {name}.layer"
            if name == "weight_grad" and all(other.layer == layer for key, other in labels.items() if key != name):
                fix = f"weight and state are of layer {layer}, and the gradient is of layer {one.layer}: is it under "
                fix += f"the key of another, or is {layer} the wrong number? Or is it a sum that is awaited in a later "
                fix += "turn? Then go by the layer of the turn that called it, here and for the keys: keep that number "
                fix += f"beside it, or take {name}.layer"
            raise PuzzleError(problem, where=where, expected=f"layer {layer}", got=str(one), fix=fix)
    grad = labels["weight_grad"]
    if len({one.adapter for one in labels.values() if one is not grad or one.batches}) > 1:
        problem = "an adapter is updated with its own gradient and state, and a weight with its own"
        got = ", ".join(f"{name} of {'an adapter' if one.adapter else 'a weight'}" for name, one in labels.items())
        fix = f"what load_adapter({layer}) gave, with the gradient of a backward that was given adapter=..."
        raise PuzzleError(problem, where=where, expected="all three of one and the same", got=got, fix=fix)


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

ROWS = (FORWARD, LOSS, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, UPDATE)
"""The operations of the compute stream, in the order in which they are listed for people."""
