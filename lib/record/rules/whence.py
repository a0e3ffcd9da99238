"""Whence a tensor of the wrong layer has come, and which rank makes the one that is wanted.

Each function below is about one case of a tensor that another rank has sent. It returns what to write in that case, and
else an empty text. ``CASES`` has them in the order in which they are asked.
"""

from typing import NamedTuple

from ...basics.errors import numbered
from ..labels import Labels
from ..operations import Rank


class Stray(NamedTuple):
    """A tensor that ``sender`` has sent, where one of another ``kind`` or ``layer`` is wanted, and the receive to write
    for that one, if it is another rank's."""

    rank: Rank
    labels: Labels
    kind: str
    layer: int
    sender: int
    wanted: str

    def are(self, kind: str) -> bool:
        """Return whether the tensor that has come and the one that is wanted are both of this kind."""
        return self.kind == self.labels.kind == kind

    def is_its_senders(self) -> bool:
        """Return whether the layer that would read the tensor is its sender's."""
        return self.sender == self.rank.elsewhere(self.labels.layer, self.labels.batches)

    def should_be_its_senders(self) -> bool:
        """Return whether what is wanted comes of the same rank."""
        return f"src={self.sender})" in self.wanted


def whence(rank: Rank, labels: Labels, kind: str, layer: int, own: str) -> str:
    """Return from which rank a tensor of the wrong layer has come, if it has, and which one makes what is wanted: an
    activation of a layer, or its gradient. Where all this is the rank's ``own``, return that text."""
    came, wanted = rank.sender(labels), rank.comes_from(kind, layer, labels.batches)
    if came is None:
        first = rank.elsewhere(0) if wanted and labels.kind == "Activation" and labels.layer == 0 else None
        return f"the input is for layer 0, which is on rank {first}; {wanted}" if first is not None else wanted or own
    stray = Stray(rank, labels, kind, layer, came[0], wanted)
    plain = f"it came from rank {came[0]}; {wanted or own}"
    if not wanted and labels.kind == kind == "Activation":
        plain = (
            f"it came from rank {came[0]}, for layer {labels.layer}: does this rank get the messages of two pipelines, "
        )
        plain += f"or of another layer than the one that it runs here? If not, {own}"
    return next(filter(None, (case(stray) for case in CASES)), plain)


def _nobodys(stray: Stray) -> str:
    nobodys = stray.are("Activation") and stray.rank.nobodys(stray.labels.layer)
    return f"it came from rank {stray.sender}; {nobodys}" if nobodys else ""


def _layers_left_between(stray: Stray) -> str:
    left = stray.are("Activation") and stray.rank.left_between(stray.sender, stray.labels, stray.layer)
    return f"it came from rank {stray.sender}, and {left}" if left else ""


def _of_the_first_input(stray: Stray) -> str:
    if stray.labels.kind != "ActivationGrad" or stray.labels.layer >= 0:
        return ""
    sent = f"rank {stray.sender} has sent what backward(layer 0) gives, the gradient of the first input"
    return f"{sent}: nobody needs it, so leave out that pass_to"


def _left_out_at_the_end(stray: Stray) -> str:
    return stray.rank.left_out_at_the_end(stray.labels) if stray.are("ActivationGrad") else ""


def _given_without_a_message(stray: Stray) -> str:
    rank, layer = stray.rank, stray.layer
    own_ones = rank.has_run("backward", layer) - rank.has_run("backward", layer - 1)
    if stray.kind != "ActivationGrad" or not own_ones:
        return ""
    gave = f"backward({layer}, ...) has run on this rank for {numbered('micro-batch', own_ones)}, and what it gave is"
    return f"{gave} the gradient for layer {layer - 1}, with no message: receive for the last of its layers only"


def _sent_in_another_order(stray: Stray) -> str:
    labels = stray.labels
    if not stray.are("ActivationGrad") or not labels.batches <= stray.rank.has_run("forward", labels.layer):
        return ""
    which = f"that of layer {labels.layer}, {numbered('micro-batch', labels.batches)}, is for this rank, too"
    order = "let both ranks do the backwards in the same order of layers and micro-batches"
    return f"{which}, and rank {stray.sender} has sent it first: {order}"


def _sent_instead(stray: Stray) -> str:
    if not stray.should_be_its_senders():
        return ""
    instead = stray.rank.sent_instead(stray.sender, stray.kind, stray.labels, stray.layer)
    goes_on = f". What it has sent is read by layer {stray.labels.layer} of its own, and stays there"
    return f"{instead}{goes_on}" if instead and stray.is_its_senders() else instead


def _read_by_its_sender(stray: Stray) -> str:
    labels, sender = stray.labels, stray.sender
    if not stray.is_its_senders():
        return ""
    if stray.are("ActivationGrad"):
        return (
            f"rank {sender} has sent the gradient that its own layer {labels.layer} reads: leave that send out. Each "
            "rank passes on what its own backward gives, of the first of its layers, to the rank before"
        )
    fix = f"rank {sender} has sent the {labels.kind} of layer {labels.layer}, a layer that is its own: let it send "
    fix += f"only what other ranks read. Or should this rank have layer {labels.layer}?"
    if not stray.are(labels.kind) or not labels.batches:
        return fix
    verb, end, near = ("forward", "last", "above")
    if stray.kind == "ActivationGrad":
        verb, end, near = ("backward", "first", "below")
    reads = f"it reads that itself, {verb}({labels.layer}, ...), and what the {verb} of that stage's {end} layer gives"
    return f"{fix} If not, {reads} goes on, to the rank that has the layer {near}, and to no other"


def _received_in_another_order(stray: Stray) -> str:
    if not stray.should_be_its_senders():
        return ""
    came = f"it came from rank {stray.sender}, and so does what is wanted"
    return f"{came}: receive in the order in which that rank sends"


def _received_in_each_turn(stray: Stray) -> str:
    layer = stray.layer
    if stray.wanted or not stray.are("Activation") or not stray.rank.has_run("forward", layer - 1):
        return ""
    own = f"forward({layer - 1}, ...) of this rank gave what layer {layer} reads: receive for this rank's "
    return f"it came from rank {stray.sender}, and took its place. {own}first layer only, not in each turn of a loop"


CASES = (
    _nobodys,
    _layers_left_between,
    _of_the_first_input,
    _left_out_at_the_end,
    _given_without_a_message,
    _sent_in_another_order,
    _sent_instead,
    _read_by_its_sender,
    _received_in_another_order,
    _received_in_each_turn,
)
