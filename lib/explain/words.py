"""The sentences of an explanation, made last, and in one place.

A sentence has places for facts: ``{tensor}`` is told by what it is, ``{tensor:made}`` with what has made it, ``{call}``
as it is written, ``{call:line}`` by its line. A part between brackets is left out where a fact in it is missing. What a
right run does is said of the one that this run is compared with. Three levels: 1 what is wrong with which operand, and
where; 2 what a right run does there; 3 the line of that run, beside the learner's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..basics.errors import numbered, show_axis, show_call, show_set
from ..record.kinds import KINDS
from ..record.labels import Labels
from ..record.table import stream_of
from ..recording.lines import READ, STORED, TAKEN
from .notes import ADD, COMBINE, NO_LINE, PARTS, SHARD, Line
from .statement import CallFact, Explanation, KeptFact, Statement, TensorFact

MOST_WORDS = 45
"""Words of a verdict before its figures."""
SHORT = 25  # words of a problem that is told beside a line to look at


class Sentence(NamedTuple):
    """How a statement is told. ``look``: how, where it is the place to look at; ``note``: a short one that teaches."""

    text: str
    look: str = ""
    note: str = ""


SENTENCES: Mapping[str, Sentence] = {
    # -- what the run shows by itself --------------------------------------------------------------------------------
    "given": Sentence("{call} is given {tensor}, made by {tensor:made}[; it {out:how}]"),
    "taken_before_wait": Sentence(
        "{kept:how}, and {line} has waited for {call} before {tensor} was used",
        "{line}, which takes {tensor} out and waits before it is used",
        "Python takes the arguments from left to right: put the `await` on a line of its own, above.",
    ),
    "unawaited": Sentence(
        "{call} of {call:line} has not been awaited",
        "{call:line}, whose {call} has not been awaited",
        "A communication gives its result to `await`, and a call until then.",
    ),
    "is_in": Sentence("{tensor} {kept:how}", "{kept:line}, which stores {tensor} in {kept:where}"),
    "taken_out": Sentence("{tensor} {kept:how}[, before {reader} of {reader:line}]"),
    "stored_over": Sentence(
        "{tensor} {kept:how}, and {line} has stored {over} over it before anything read it",
        "{line}, which stores {over} over {tensor}",
        "A key holds one tensor: what was there before is gone.",
    ),
    "never_stored": Sentence(
        "{tensor} was never stored[; {reader} of {reader:line} has read it]",
        note="A tensor that is in no dictionary is gone after the next operation.",
    ),
    "unread": Sentence("nothing has read {tensor} of {tensor:line}[; it {kept:how}]"),
    "result_stored_over": Sentence(
        "{tensor} went into {call} of {call:line}, and {line} has stored {over} over its result",
        note="A key holds one tensor: what was there before is gone.",
    ),
    "result_unread": Sentence("{tensor} went into {call} of {call:line}, and nothing has read its result"),
    "not_awaited": Sentence("{tensor} went into {call} of {call:line}, which was never awaited"),
    "read_last": Sentence("{tensor} was read last by {call} of {call:line}"),
    "made_here": Sentence("here {tensor} was made by {tensor:made}"),
    "key_gone": Sentence(
        "{tensor} was there: it {kept:how}[, before {reader} of {reader:line}]",
        "{kept:line}, where {tensor} goes from {kept:where}",
    ),
    "key_unknown": Sentence("rank {rank} has never stored anything in {store}\\[{key:key}][; there were {keys:list}]"),
    "waits": Sentence(
        "rank {rank} waits at {call:line} in {call}[, for {ranks:ranks}]",
        note="Every rank of a group calls a collective, and all in one order; a receive needs a send.",
    ),
    "returned": Sentence("{ranks:ranks} returned"),
    "lacks_batch": Sentence("the part of micro-batch {batch} is lacking: it was made by {tensor:made}"),
    "never_made": Sentence(
        "no rank has made the {labels:kind} of micro-batch {batch}"
        "[: the last that has worked on it is {call} of {call:line}, on rank {call:rank}]"
    ),
    # -- beside a right run ------------------------------------------------------------------------------------------
    "look_at_operand": Sentence(
        "{call} of {call:line} is given {tensor}",
        "[{out:line}, where {call} gets {tensor}][!out: {tensor:line}, which makes {tensor}]",
    ),
    "first_through": Sentence(
        "in a right run {tensor}[, before {reader},] first goes through {right_steps:steps}",
    ),
    "not_through": Sentence("{tensor} has gone through {steps:steps}; in a right run it has not"),
    "members": Sentence("{call} of {call:line} brings {count} tensors together; in a right run {right_count}"),
    "sum_lacks": Sentence(
        "{tensor}[, which goes into {reader},] is a sum of {count}; in a right run of {right_count}, and what is "
        "missing is made by {right:made}"
    ),
    "sum_has": Sentence(
        "{tensor}[, which goes into {reader},] has in it what {part:made} has made[ too often {often:}]"
        "[!often: , which in a right run it has not]"
    ),
    "takes": Sentence("{call} of {call:line} takes {count} micro-batches; in a right run {right_count} at a time"),
    "comes_from": Sentence(
        "[{reader} is given ]{tensor}, made by {tensor:made}; in a right run that is {right}, made by {right:made}"
    ),
    "other_tensor": Sentence("{call} is given {tensor}; in a right run {right}"),
    "other_peer": Sentence("{call} of {call:line} names rank {call:peer}; in a right run that is rank {right:peer}"),
    "takes_again": Sentence(
        "{call} of {call:line} takes {batches:batches}, which {earlier:line} has taken on rank {earlier:rank}",
        "{call:line}, which takes {batches:batches} again, after {earlier:line}",
        "The input of each micro-batch is taken once, and kept until its last use.",
    ),
    "again": Sentence(
        "{call} of {earlier:line} comes again at {call:line}; in a right run {right_count:times}",
        "{call:line}, which makes {call} again, after {earlier:line}",
    ),
    "with_layer": Sentence(
        "in a right run {right} is given this",
        "{call:line}, where {call} is given what belongs to another layer",
    ),
    "no_such_call": Sentence("a right run has no {call} on rank {call:rank}"),
    "goes_next": Sentence("there {tensor} goes into {right}"),
    "comes_next": Sentence("what a right run has on rank {rank}, and this one has not come to: {right}"),
    "arrives": Sentence("in a right run {right_reader} reads what {right} has brought"),
    "not_made": Sentence("{right} has not been made here[; in a right run {right_reader} reads it]"),
    "would_bring": Sentence("in a right run {right_send} of rank {right_send:rank} sends {right} there"),
    "could_go_on": Sentence("rank {rank} has what {right} needs, which a right run does next"),
    "loads": Sentence("rank {rank} loads {layers:layers}[, at {call:line}]; in a right run {right_layers:layers}, by {right:verb}"),
    "no_final": Sentence("rank {rank} never calls set_final_weight for layer {layer}; a right run does"),
    "final_of_other": Sentence("{call} of {call:line} is not called on rank {call:rank} in a right run"),
    "departs": Sentence(
        "rank {rank}[, after {before} of {before:line}]: [{awaits:}awaits ][{call} comes][!call: nothing more comes]"
        "; in a right run [{right_awaits:}the end of ][{right}][!right: nothing more] comes there[{later:}, which "
        "comes later here][{known:}, and this later]",
        "{line}, on rank {rank}[{call:}, from where the order is another one: {call}]"
        "[!call: , after which nothing more comes]",
    ),
    # -- what the text shows -----------------------------------------------------------------------------------------
    "never_run": Sentence("{line} calls {name}(...) without `await`: nothing of it runs", "{line}: await {name}(...)"),
    "without_await": Sentence("{line} calls {name} without `await`", "{line}, which calls {name} without `await`"),
    "no_value": Sentence("no line gives `{name}`, of {line}, a value", "{line}: nothing gives `{name}` a value"),
    "no_value_yet": Sentence(
        "`{name}`, of {line}, gets a value at line {later} first",
        "line {later}, the first that gives `{name}` a value",
    ),
    "exchanged": Sentence(
        "{line} gives `{given}` to {name} as argument {place}, which is its `{wanted}`",
        "{line}, which gives `{given}` to {name} in the place of its `{wanted}`",
    ),
    "written_out": Sentence(
        "{line} has {number} written out: {name} is {number} at the puzzle's own size, and {here} at this one",
        "{line}, where {number} is written out: {name} is {here} at this size",
    ),
    # -- what it costs -----------------------------------------------------------------------------------------------
    "more_often": Sentence(
        "{call} and the like, {call:kind}, come {count} times more often than in the run of the target[, as at {lines:lines}]"
    ),
    "less_often": Sentence("{right:kind} comes {count} times less often than in the run of the target"),
    "held": Sentence(
        "at the peak, {call} of {call:line} on rank {call:rank}, {count} more of the kind of {tensor} are stored than "
        "at that of the target's run: this one {kept:how}[, was last read at {out:line}][, is next read by {reader} of "
        "{reader:line}][!reader:  and is not read any more]",
        "{kept:line}, which stores {tensor}[: it is there at the peak, and last read at {out:line}]",
        "`pop` takes a tensor out of its dictionary: its memory is free after its last use.",
    ),
    "flying": Sentence(
        "at the peak, {peak} of {peak:line}, {count} communications are not awaited yet, at that of the target's run "
        "{right_count}: the first is {call} of {call:line}",
        "{call:line}, whose {call} is not awaited yet at the peak",
        "What a communication carries is in memory until it is awaited.",
    ),
}  # fmt: skip
"""By the name of a statement how it is told."""
_PART = re.compile(r"(?<!\\)\[(?:!(\w+): )?([^\[\]]*(?:\\\[[^\]]*\][^\[\]]*)?)\]")
_FACT = re.compile(r"\{(\w+)(?::(\w*))?\}")


def sentence(statement: Statement, look: bool = False) -> str:
    """Return a statement as a sentence, without a full stop; with ``look`` as a place to look at."""
    row = SENTENCES[statement.name]
    text = row.look if look and row.look else row.text
    facts = statement.facts

    def part(found: re.Match[str]) -> str:
        unless, inner = found.groups()
        if unless is not None:
            return "" if _is_there(facts[unless]) else inner
        return inner if all(_is_there(facts[name]) for name, _ in _FACT.findall(inner)) else ""

    text = _PART.sub(part, text).replace("\\[", "[")
    return _FACT.sub(lambda found: _told(facts[found[1]], found[2]), text)


def _is_there(thing: Any) -> bool:
    return thing is not None and thing is not False and thing not in ((), NO_LINE)


def _told(thing: Any, how: str | None) -> str:
    """Return a fact in words, in the way that a sentence asks for."""
    if how == "":
        return ""  # it only decides whether its part is said
    if isinstance(thing, CallFact):
        return _OF_CALLS[how](thing)
    if isinstance(thing, TensorFact):
        return _OF_TENSORS[how](thing)
    if isinstance(thing, KeptFact):
        return _OF_KEPT[how](thing)
    if isinstance(thing, Line):
        return line_words(thing)
    return str(thing) if how is None else _OF_OTHERS[how](thing)


def line_words(line: Line) -> str:
    """Return a line by its number."""
    return f"line {line.number or '?'}" + (f" of {line.file}" if line.file else "")


def call_words(call: CallFact) -> str:
    """Return a call as text: ``forward(layer 3, micro-batch 0)``, ``receive(from rank 1)``."""
    if call.kind in PARTS:
        return {SHARD: "the cut", COMBINE: "the joint", ADD: "the sum (+)"}[call.kind]
    if call.kind in ("pass_to", "receive"):
        what = f"{'from' if call.kind == 'receive' else 'to'} rank {call.peer}" if call.peer is not None else ""
        return f"{call.kind}({what})"
    layer = list(call.layer) if isinstance(call.layer, tuple) else call.layer
    inside = show_call("", layer)[1:-1] if layer is not None else ""
    by_batch = stream_of(call.kind) == "compute" or call.kind == "get_activation"
    batches = numbered("micro-batch", call.batches) if call.batches and by_batch else ""
    axis = f"axis={show_axis(call.axis)}" if call.axis is not None else ""
    return f"{call.kind}({', '.join(filter(None, [inside, batches * (call.kind != 'update'), axis]))})"


def tensor_words(labels: Labels) -> str:
    """Return a tensor by what it is: ``the weight gradient of layer 3, micro-batch 0``."""
    row = KINDS[labels.kind]
    word = row.of_adapter if labels.adapter and row.of_adapter else row.word
    batches = f", {numbered('micro-batch', labels.batches)}" if labels.batches else ""
    piece = ""
    if labels.total > 1 and len(labels.shards) < labels.total:
        piece = f", {row.piece} {show_set(labels.shards)} of {labels.total}"
    return f"the {word} of layer {labels.layer}{batches}{piece}"


def _made(tensor: TensorFact) -> str:
    """Return what has made a tensor, and where it came from before."""
    maker, source = tensor.maker, tensor.source
    if maker.kind == ADD:
        first = f", of {_at(source)} and others" if source is not None else ""
        return f"a sum of {tensor.summed} at {line_words(maker.line)}{first}" if maker.run == "own" else _at(maker)
    came = f", of {_at(source)} on rank {source.rank}" if source is not None else ""
    return f"{_at(maker)}{came}"


def _at(call: CallFact) -> str:
    """Return a call with its line, or that of a right run without."""
    return f"{call_words(call)} of {line_words(call.line)}" if call.run == "own" else call_words(call)


def _of_kept(kept: KeptFact) -> str:
    there = _where(kept)
    if kept.way == STORED:
        return f"is in {there}, stored at {line_words(kept.line)}"
    if kept.way in (TAKEN, READ):
        return f"was {kept.way}{' out' * (kept.way == TAKEN)} from {there} at {line_words(kept.line)}"
    return f"was in {there} until {line_words(kept.line)} stored another over it"


def _where(kept: KeptFact) -> str:
    return f"{kept.store}[{key_words(kept.key)}]"


def key_words(key: str) -> str:
    """Return a key as it is written between brackets: a pair without parentheses."""
    return key[1:-1] if key[:1] == "(" and "," in key else key


def _layers(layers: tuple[int, ...]) -> str:
    return numbered("layer", layers) if layers else "no layers"


_OF_CALLS: Mapping[str | None, Callable[[CallFact], str]] = {
    None: call_words,
    "line": lambda call: line_words(call.line),
    "rank": lambda call: str(call.rank),
    "peer": lambda call: str(call.peer),
    "verb": lambda call: call.kind,
    "kind": lambda call: call.kind + (f" of {KINDS[call.carries[0]].words}" if stream_of(call.kind) == "collective" and call.carries else ""),
}  # fmt: skip
_OF_KEPT: Mapping[str | None, Callable[[KeptFact], str]] = {
    "how": _of_kept,
    "where": _where,
    "line": lambda kept: line_words(kept.line),
}
_OF_TENSORS: Mapping[str | None, Callable[[TensorFact], str]] = {
    None: lambda tensor: tensor_words(tensor.labels),
    "made": _made,
    "line": lambda tensor: line_words(tensor.maker.line),
}
_OF_OTHERS: Mapping[str, Callable[[Any], str]] = {
    "ranks": lambda ranks: numbered("rank", ranks),
    "batches": lambda batches: numbered("micro-batch", batches),
    "layers": _layers,
    "key": key_words,
    "list": lambda keys: ", ".join(map(key_words, keys)),
    "lines": lambda lines: " and ".join(map(line_words, lines)),
    "steps": lambda steps: " and then ".join(map(call_words, steps)),
    "times": lambda count: "once" if count == 1 else f"{count} times",
    "kind": lambda labels: tensor_words(labels._replace(batches=frozenset())).removeprefix("the "),
}


# -- the whole ---------------------------------------------------------------------------------------------------------


def verdict(explanation: Explanation, problem: str) -> list[str]:
    """Return the lines of a verdict before its figures: what is wrong, and the line to look at if there is one."""
    said = problem.partition("\n")[0]
    look = next((sentence(one, look=True) for one in explanation.look_at), "")
    if look:
        said = _shortened(said, SHORT)
        look = f"look at:  {_shortened(look, MOST_WORDS - 2 - len(said.split()))}"
    return [one for one in (_shortened(said, MOST_WORDS), look) if one]


def why(explanation: Explanation, level: int = 2) -> list[str]:
    """Return an explanation as sentences, up to a level."""
    said = [*explanation.look_at, *explanation.given]
    told = [f"look at {sentence(one, look=True)}" for one in explanation.look_at]
    told += map(sentence, explanation.given)
    if level > 1:
        deeper = [one for one in explanation.look_at if SENTENCES[one.name].look and one.name != "look_at_operand"]
        told += map(sentence, [*deeper, *explanation.difference])
        said += explanation.difference
        if not explanation.reference:
            told.append("there is no right run at hand to compare this with")
    told += dict.fromkeys(SENTENCES[one.name].note for one in said if SENTENCES[one.name].note)
    if level > 2:
        told += [f"a right run has `{line}`" for line in dict.fromkeys(_right_lines(explanation))]
    return [*dict.fromkeys(told)]


def _right_lines(explanation: Explanation) -> Iterator[str]:
    for one in explanation.statements():
        for name, thing in one.facts.items():
            maker = thing.maker if isinstance(thing, TensorFact) else thing
            if name.startswith("right") and isinstance(maker, CallFact) and maker.line.text:
                yield maker.line.text


def _shortened(text: str, most: int) -> str:
    """Return the first words of a text, and whole where it has no more."""
    words = text.split(" ")
    return text if len(words) <= most else " ".join(words[: max(most, 1)]).rstrip(",;:") + " ..."
