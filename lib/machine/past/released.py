"""What to write instead of using a tensor that no longer exists: it was not stored when its rank went on.

Each function below is about one case. It returns what to write in that case, and else an empty text. ``CASES`` has them
in the order in which they are asked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...basics.errors import Place, numbered, show_call
from ...record.attention import BACKWARD_ATTEND
from ...record.collectives import ALLGATHER, SCATTERREDUCE
from ...record.kinds import KINDS
from ...record.labels import Labels, same_pieces
from ...record.rules.incomplete import not_in_place
from ...record.table import RECEIVE, SEND, stream_of, sums
from ...record.training import BACKWARD, FORWARD, LOSS
from .asked import Asked

STORING, UPDATE = "storing it", "update"
ACTIVATIONS, OF_KEYS = ("Activation", "ActivationGrad"), ("KeysValues", "KeysValuesGrad")


class Lost(NamedTuple):
    """A tensor that no longer exists, and its use. ``verb``, ``layer``: the operation that ended its life, at the place
    ``at`` in the log. ``used``: whether that has used it; ``brought``: whether a call has brought it; ``handed``:
    whether it was a temporary of another coroutine. ``sum_by``: the reduction to name."""

    rank: Asked
    labels: Labels
    where: Place
    verb: str
    layer: Any
    at: int
    used: bool
    brought: bool
    handed: bool
    sum_by: str

    @property
    def kind(self) -> str:
        """What it is."""
        return self.labels.kind

    @property
    def own(self) -> int:
        """The layer that it is of."""
        return self.labels.layer

    @property
    def store(self) -> str:
        """The dictionary in which such a tensor is kept by habit."""
        return f"model.{KINDS[self.kind].store}[...]"

    @property
    def ended(self) -> str:
        """The operation that ended its life, as text."""
        return show_call(self.verb, self.layer)

    def just_before(self) -> bool:
        """Return whether that was the last operation before its use."""
        return self.at == len(self.rank.log) - 1

    def was_sent(self) -> bool:
        """Return whether it went away in a message."""
        return self.verb.startswith(SEND.kind)

    def is_sent(self) -> bool:
        """Return whether its use is to be sent."""
        return self.where.operation.startswith(SEND.kind)

    def by_batch(self) -> bool:
        """Return whether each micro-batch has such a tensor of its own."""
        return KINDS[self.kind].by_batch


def instead(lost: Lost) -> str:
    """Return what to write instead of using a tensor that no longer exists."""
    return next(filter(None, (case(lost) for case in CASES)))


def keep(lost: Lost) -> str:
    """Return how to keep it until its use."""
    if lost.used and lost.was_sent():
        there = f"rank {lost.rank.rank} has sent it, {lost.verb}, and has it no more"
        return f"{there}: store it before that, {lost.store}, to use it here as well"
    plain = _plainly_kept(lost)
    since = lost.rank.log[lost.at + 1 :]
    again = lost.verb == ALLGATHER.kind and any(record.kind == FORWARD.kind for record in since)
    if lost.used and (lost.where.operation, lost.where.layer) == (lost.verb, lost.layer) and not again:
        return f"{lost.ended} has used it already: is it done twice? Else {plain}"
    return plain


def _plainly_kept(lost: Lost) -> str:
    plain = f"store it to keep it, in {lost.store}, as soon as it is made"
    if lost.kind not in ACTIVATIONS:
        return plain
    if not lost.used:
        return f"{plain}. Was it there, and was popped before {lost.ended}? Leave pop to its last use"
    read = f"; if it was there, {lost.ended} has read it: leave pop to its last use"
    return plain + read * (not lost.was_sent())


def _handed_to_a_task(lost: Lost) -> str:
    if not lost.handed:
        return ""
    store, verb = f"model.{KINDS[lost.kind].store}[{lost.own}]", lost.where.operation
    fix = "a task begins only when the function that has made it awaits something, and by then rank "
    fix += f"{lost.rank.rank} has gone on to {lost.ended}: "
    if stream_of(verb) == "collective":
        fix += f"start the call before that, call = model.{verb}(..., {lost.own}), and let the task begin with `await "
        fix += "call`; or "
    return f"{fix}store the tensor where it is made, {store}, and let the task take it out"


def _not_what_update_gave(lost: Lost) -> str:
    own = lost.own
    if lost.where.operation == "set_final_weight" and not lost.labels.step:
        fix = "this is not the weight that model.update gives; set that: "
        return f"{fix}model.set_final_weight({own}, model.weights[{own}])"
    if (lost.verb, lost.layer) == (UPDATE, own) and lost.kind in ("Weight", "OptState") and not lost.labels.step:
        gives = f"model.update({own}, ...) has run, and gives the new weight and the new state"
        return f"{gives}: go on with what it gives, weight, opt_state = model.update({own}, ...)"
    return ""


def _sent_after_its_backward(lost: Lost) -> str:
    if (lost.verb, lost.kind, lost.layer) != (BACKWARD.kind, "ActivationGrad", lost.own) or not lost.is_sent():
        return ""
    gives = f"the second of the two that it gives: grad, inp_grad = model.{lost.verb}({lost.own}, ...)"
    return f"this is what {lost.ended} has read. What goes on is the gradient of its input, {gives}"


def _sent_after_its_loss(lost: Lost) -> str:
    if lost.verb != LOSS.kind or not lost.is_sent():
        return ""
    fix = "the output of the last layer goes into model.loss, and to no other rank: leave out this send where the "
    return f"{fix}loss is called, with an `else`"


def _sent_after_an_update(lost: Lost) -> str:
    if lost.verb != UPDATE or not lost.is_sent() or lost.kind not in ACTIVATIONS:
        return ""
    first = f"send this first, and call {lost.ended} after that: another rank waits for it, and for no update"
    return f"{first}. What no dictionary holds is gone after the next call"


def _cut_twice(lost: Lost) -> str:
    twice = lost.kind == "Activation" and lost.labels.total == lost.rank.mesh.ranks**2 > 4
    return lost.rank.cut_again(lost.labels) if twice else ""


def _of_nothing(lost: Lost) -> str:
    if lost.kind != "WeightGrad" or lost.labels.batches:
        return ""
    fix = "model.fake_grad after that; where this rank runs the layer it brings what backward gives: "
    return f"{fix}grad, model.grad_activations[{lost.own}] = model.backward({lost.own}, ...)"


def _partial_sum(lost: Lost) -> str:
    if not lost.by_batch() or lost.labels.of < 2 or not sums(lost.verb) or lost.where.operation == lost.verb:
        return ""
    gives = f"go on with the sum, which that call gives, total = await model.{lost.verb}(..., {lost.layer})"
    gathers = f"; that is a slice of it, and await model.{ALLGATHER.kind}(total, {lost.layer}) gives all of it"
    all_of_it = gathers * (lost.verb == SCATTERREDUCE.kind)
    return f"this is only one of the partial sums that {lost.ended} adds up: {gives}{all_of_it}"


def _keys(lost: Lost) -> str:
    """Of keys and values, or their gradient."""
    operation, labels = lost.where.operation, lost.labels
    if lost.kind == "KeysValues":
        if lost.brought and operation == BACKWARD_ATTEND.kind:
            again = f"kv = await model.{ALLGATHER.kind}(kv, {lost.own})"
            stored = f"gather them again right before {operation}, {again}, of what this rank has stored"
            return f"{stored}; or {_plainly_kept(lost)}"
        if operation == lost.verb and not lost.used and labels.is_whole():
            whole = "keys and values that were gathered are those of this rank, too"
            return f"{whole}: one attend with all of them is enough"
    elif lost.kind in OF_KEYS and lost.was_sent():
        if not lost.rank.is_home_of(lost.own, labels.batches, labels.piece()):
            home = "the gradient of another rank's keys and values, and has gone on to it"
            return f"this is {home}: take this rank's own, which comes last, kv_grad = await model.receive(...)"
        if operation == "+":
            first = "add what has come to it first, and pass on the sum"
            return f"{first}: the gradient goes round with the keys that it is of"
    return ""


def _piece_in_place_of_a_sum(lost: Lost) -> str:
    if lost.kind != "WeightGrad" or lost.labels.is_whole() or lost.rank.mesh.axes:
        return ""
    verb = lost.rank.not_brought(lost.own, lost.labels.batches)
    if not verb:
        return ""
    cut = (
        f"this piece was cut from the gradient of {numbered('micro-batch', lost.labels.batches)}, which this rank has "
    )
    cut += f"brought to no sum over the ranks, as it has another one of layer {lost.own}: in place of the cut, "
    return f"{cut}grad = await model.{verb}(grad, {lost.own})"


def _added_to_what_comes(lost: Lost) -> str:
    if lost.verb != RECEIVE.kind or lost.where.operation != "+":
        return ""
    return "it was taken out, and then the receive went on without it: first came = await model.receive(...), then add"


def _added_to_a_gathered_sum(lost: Lost) -> str:
    gathered = lost.rank.log[lost.at].labels if lost.verb == ALLGATHER.kind and lost.where.operation == "+" else None
    if lost.kind != "WeightGrad" or gathered is None or gathered.kind != lost.kind or gathered.layer != lost.own:
        return ""
    grad, piece = f"model.grad_weights[{lost.own}]", f"piece = await model.{SCATTERREDUCE.kind}(grad, {lost.own})"
    whole = "leave out that gather: to add up, pieces are enough"
    return f"{whole}. Sum this gradient by itself, {piece}, and add that to the piece so far, {grad} + piece"


def _gradient_by_messages(lost: Lost) -> str:
    if lost.kind != "WeightGrad":
        return ""
    rank, sum_by, sent = lost.rank, lost.sum_by, lost.was_sent()
    by_hand = lost.where.operation in ("+", "shard") or lost.is_sent()
    if (sent or lost.verb == RECEIVE.kind) and by_hand and not rank.is_host:
        verb = SCATTERREDUCE.kind if lost.where.operation == "shard" else sum_by
        return f"{keep(lost)}; or let one call add up those of all ranks, grad = await model.{verb}(grad, {lost.own})"
    if lost.used and sent:
        back = "" if rank.mesh.hosts else f", such as await model.{sum_by}(grad, {lost.own}) on every rank"
        return f"{keep(lost)}; the sum is where it went, and comes back as a message or by a collective{back}"
    return ""


def _gathered_for_an_update(lost: Lost) -> str:
    if lost.where.operation != UPDATE:
        return ""
    own, labels, rank = lost.own, lost.labels, lost.rank
    loaded, gathers = rank.loaded_piece(own, labels.adapter), lost.verb == ALLGATHER.kind
    if gathers and lost.kind == "WeightGrad" and loaded is not None and loaded.is_whole() and not labels.is_whole():
        gathered = rank.log[lost.at].labels.kind
        return (
            not_in_place(lost.verb, rank.log[lost.at].op)
            if gathered == lost.kind
            else _one_piece_of_each(KINDS[gathered].word)
        )
    if gathers and lost.layer == own and lost.kind in ("WeightGrad", "OptState"):
        leave = "leave out that gather: an update takes the pieces of weight and state that this rank has"
        return f"{leave}; or {keep(lost)}"
    if lost.kind != "Weight" or labels.is_whole():
        return ""
    if loaded is not None and not loaded.is_whole() and not same_pieces(loaded, labels):
        return f"update the piece that this rank has loaded, model.weights[{own}], and not another one"
    after = f"gather after the update, what that gives, await model.allgather(weight, {own})"
    return f"{after}; or {keep(lost)}" if gathers else ""


def _one_piece_of_each(gathered: str) -> str:
    """Return what to do where something else than the gradient is gathered for an update, beside a piece of it."""
    leave = f"leave out that gather of the {gathered}: an update takes the same piece of gradient, weight and state"
    return f"{leave}, so cut a weight that is whole, weight.shard(i, n), and gather the new one, after the update"


def _gathered_too_soon(lost: Lost) -> str:
    if lost.verb != ALLGATHER.kind or not lost.by_batch():
        return ""
    if _was_gathered(lost):
        first = f"store what the first gather gives, {lost.store} = await model.{lost.verb}(...), and take it out for "
        return f"{first}its last use: what no dictionary holds is gone after the next call"
    if lost.just_before():
        if lost.used:
            return f"gather first, and take this out of its dictionary, or make it, after that; or {keep(lost)}"
        held = f"no dictionary of the model holds this during {lost.ended}: store it, in {lost.store}, as soon as it is"
        if (lost.kind, lost.where.operation) == ("Activation", FORWARD.kind):
            return f"{held} made, and leave it there: the backward of the layer reads it, too"
        return f"{held} made, and take it out after that; or gather first, and make it after that"
    return ""


def _was_gathered(lost: Lost) -> bool:
    """Return whether the tensor is itself what a gather has given."""
    labels = lost.labels
    return lost.brought and any(
        record.kind == ALLGATHER.kind
        and (record.labels.kind, record.labels.layer) == (labels.kind, labels.layer)
        and record.labels.total > labels.total
        for record in lost.rank.log[: lost.at]
    )


def _received_too_soon(lost: Lost) -> str:
    if lost.verb != RECEIVE.kind or not lost.brought or not lost.just_before():
        return ""
    return f"receive first, and make the call that gives this after that; or {keep(lost)}"


def _whole_weight(lost: Lost) -> str:
    if lost.kind != "Weight" or lost.labels.step or not lost.labels.is_whole():
        return ""
    loaded = lost.rank.loaded_piece(lost.own, lost.labels.adapter)
    if lost.brought and lost.where.operation == UPDATE and loaded is not None and not loaded.is_whole():
        pieces = "an update takes the pieces of weight and state that this rank has loaded, model.weights[...] and "
        return f"{pieces}model.opt_states[...], and not what was gathered"
    if not lost.brought or lost.just_before():
        return f"{keep(lost)}, which takes its memory" + "; or gather it again where it is needed" * lost.brought
    if lost.where.operation == STORING:
        again = f"model.allgather(model.weights[{lost.own}], {lost.own})"
        return f"store it as soon as it is awaited. If it is awaited again, make a call for each use, such as {again}"
    return f"gather it again where it is needed, right before this; or {keep(lost)}, which takes its memory"


CASES = (
    _handed_to_a_task,
    _not_what_update_gave,
    _sent_after_its_backward,
    _sent_after_its_loss,
    _sent_after_an_update,
    _cut_twice,
    _of_nothing,
    _partial_sum,
    _keys,
    _piece_in_place_of_a_sum,
    _added_to_what_comes,
    _added_to_a_gathered_sum,
    _gradient_by_messages,
    _gathered_for_an_update,
    _gathered_too_soon,
    _received_too_soon,
    _whole_weight,
    keep,
)
