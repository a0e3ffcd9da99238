"""Calls that a rank has started and never awaited, beside those like them that it has awaited, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ...basics.errors import numbered, show_call
from ...record.events import MARKS
from ...record.shards import NONE
from ...record.table import RECEIVE, SEND
from ...record.training import FORWARD


class Unawaited:
    """The calls of a rank that are like one which nobody has awaited. ``log``: of the rank; ``fetched``: of each call
    that was awaited, how long the log was then, and the call's place in it; ``layers``: of the model."""

    def __init__(self, log: Sequence[Any], fetched: Sequence[int], call: Any, layers: int = 0) -> None:
        self.log, self.call, self.layers = log, call, layers
        self.taken = dict(zip(fetched[1::2], fetched[::2], strict=True))
        self.alike = [at for at, one in enumerate(log) if _is_like(one, call)]
        self.left = [at for at in self.alike if at not in self.taken]
        self.done = [at for at in self.alike if at in self.taken]

    LEFT_OUT = ". Does a condition leave the others out, such as `if layer in calls` of a layer that is not there yet?"

    def to_await(self) -> str:
        """Return what to write: which of such calls are awaited, and when, or how many are left."""
        labels = self.call.labels
        if self.call.group is not None and labels is not None and labels.kind == "ActivationGrad" and labels.layer < 0:
            return "it carries the gradient of the first input, which nobody needs: leave it out for layer 0"
        if cut_short := [at for at in self.left if self.log[at].awaited]:
            one = show_call(self.log[cut_short[0]].kind, self.log[cut_short[0]].layer)
            return (
                f"a task that awaited {one} was cancelled before that came: await the task, in place of task.cancel()"
            )
        write = f"await model.{self.call.kind}(...), on the spot or later"
        if not self.done and len(self.left) > 1:
            return f"{write}: of {len(self.left)} such calls on this rank none is awaited: keep what each gives"
        if self.layers == 1:  # what is awaited a turn later at other sizes
            write += "; with one layer no later turn of a loop over the layers does that: await what is left after it"
        return self._once_too_often() or self.beside_others() or write

    def beside_others(self) -> str:
        """Return which of such calls are awaited, and what that says of those that are left at the end of a run; or an
        empty text where none is awaited."""
        if not self.done:
            return ""
        own = self._named(self.left)
        if not self.when or self.left[-1] < self.done[0]:
            before = self.left[-1] < self.done[0]
            which = own or ("this one" if len(self.left) == 1 else f"these {len(self.left)}")
            said = f"await {which}, too{', which all come before' * (before and len(self.left) > 1)}: {self.awaited}"
            return said + self.LEFT_OUT * (before and len(self.left) > 1)
        if self.left[0] < self.done[-1]:
            why = "Does the next call take its place before that, or does a condition leave it out?"
            return f"await {own or f'the other {len(self.left)}'}, too: {self.awaited}. {why}"
        own = own or ("the last one" if len(self.left) == 1 else f"the last {len(self.left)}")
        in_turn = self.taken[self.done[0]] <= self.left[-1]
        where = " after the loop, and go on with it as with the others" if in_turn else ", too"
        return f"await {own}{where}: {self.awaited}{self._others_left() * in_turn}"

    def _others_left(self) -> str:
        """Return, as a sentence, which other call is not awaited either, after the last that is; or an empty text."""
        for at, one in enumerate(self.log):
            call = getattr(one, "group", None) is not None and at not in self.taken and at not in self.left
            if call and at > self.done[-1] and one.layer is not None:
                return f". {show_call(one.kind, one.layer)} is not awaited either: does the loop take too few turns?"
        return ""

    def _once_too_often(self) -> str:
        """Return that a rank makes such a collective more often for this layer than for others, or an empty text."""
        times = Counter(self.log[at].layer for at in self.alike)
        own, fewest = times[self.call.layer], min(times.values())
        if self.call.layer is None or own == fewest or self.call.kind == SEND.kind:
            return ""
        others = numbered("layer", {layer for layer in times if times[layer] == fewest})
        calls = f"this rank calls {self.call.kind} {_times(own)} for layer {self.call.layer}"
        return f"leave this one out, if nothing needs its result: {calls}, and {_times(fewest)} for {others}"

    @property
    def awaited(self) -> str:
        """Which of such calls are awaited, and when; an empty text where none is."""
        if not self.done:
            return ""
        one = len(self.done) == 1
        which = self._named(self.done) or f"{len(self.done)} such call{'s' * (not one)}"
        on_the_spot = f", where {'it is' if one else 'they are'} called"
        return f"{which} {'is' if one else 'are'} awaited{f' later{self.when}' if self.when else on_the_spot}"

    @cached_property
    def when(self) -> str:
        """After which operation the last of these calls was awaited that was not awaited on the spot, in parentheses;
        or an empty text where all were."""
        for at in reversed(self.done):
            between = [one for one in self.log[at + 1 : self.taken[at]] if one.kind not in MARKS]
            if between:
                after = f"after {show_call(between[-1].kind, between[-1].layers or between[-1].layer)}"
                which = self._named([at]) or "the last one"
                return f" ({which} {after})" if len(self.done) > 1 else f" ({after})"
        return ""

    def _named(self, some: Sequence[int]) -> str:
        """Return by their layers, or by their micro-batches, which of these calls some are; or an empty text where that
        does not tell them apart."""
        layers = {at: frozenset(self.log[at].layers or [self.log[at].layer]) for at in self.alike}
        batches = {at: self.log[at].labels.batches if self.log[at].labels else NONE for at in self.alike}
        for what, known in (("layer", layers), ("micro-batch", batches)):
            own = [one for of in known.values() for one in of]
            if len(own) == len({*own}) >= len(self.alike) and None not in own:
                which = numbered(what, {one for at in some for one in known[at]})
                return f"{'that' if len(some) == 1 else 'those'} of {which}"
        return ""

    def too_many(self, came: int) -> str:
        """Return what to do about a receive that is one of more than the messages that ``came``; or an empty text."""
        started = len(self.alike)
        if self.call.kind != RECEIVE.kind or started <= came:
            return ""
        forwards = [one.layer for one in self.log if one.kind == FORWARD.kind]
        from_whom = "" if self.call.peer is None else f" from rank {self.call.peer}"
        messages = f"{came} message{'s' * (came != 1)} {'come' if came != 1 else 'comes'}"
        said = f"this rank starts {started} receives{from_whom}, and {messages}: start none after the last message"
        if 0 < forwards.count(0) <= started - came and forwards.count(0) < len(forwards):
            said += ", and none for layer 0, whose input is that of model.get_activation"
        return said


def _times(number: int) -> str:
    return ("never", "once", "twice")[number] if number < 3 else f"{number} times"


def _is_like(one: Any, call: Any) -> bool:
    """Return whether a record is a call of the same verb, with such a tensor, to the same rank or from it."""
    if one.kind != call.kind or getattr(one, "awaited", None) is None:
        return False
    if call.kind == RECEIVE.kind:
        return None in (one.peer, call.peer) or one.peer == call.peer  # of what has not come nobody knows what it is
    kinds = [None if known.labels is None else known.labels.kind for known in (one, call)]
    return kinds[0] == kinds[1] and (call.kind != SEND.kind or one.peer == call.peer)
