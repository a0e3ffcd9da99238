"""The sentences of an explanation, made last, and in one place.

A sentence has places for facts: ``{tensor}`` is told by what it is, ``{tensor:made}`` with what has made it, ``{call}``
as it is written, ``{call:line}`` by its line. A part between brackets is left out where a fact in it is missing. What a
right run does is said of the one that this run is compared with. Three levels: 1 what is wrong with which operand, and
where; 2 what a right run does there; 3 the line of that run, beside the learner's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..basics.errors import numbered, show_layers
from ..record.kinds import KINDS
from ..record.table import stream_of
from ..recording.diary import READ, STORED, TAKEN
from .notes import ADD, COMBINE, NO_LINE, PARTS, SCALE, SHARD, Line
from .statement import A_RIGHT_RUN, LOOK_AT, RIGHT, CallFact, Explanation, KeptFact, Statement, TensorFact

MOST_WORDS = 45  # of a verdict before its figures
SHORT = 15  # words of a problem for which there is room beside a line to look at


class Sentence(NamedTuple):
    """How a statement is told. ``look``: how, where it is the place to look at; ``note``: what it teaches."""

    text: str
    look: str = ""
    note: str = ""


SENTENCES: Mapping[str, Sentence] = {
    # -- what the run shows by itself
    "given": Sentence("on rank {call:rank} {call} is given {tensor}, {tensor:made}[; it {out:how}]"),
    "gone": Sentence(
        "what rank {call:rank} uses here is {tensor}, {tensor:made}[; it {out:how}]",
        "[{out:line}, where {tensor} leaves {out:where}][!out: {tensor:line}, which {tensor:makes} {tensor}: none of "
        "the model's dictionaries holds it]",
        "After the next operation only what is in one of the model's dictionaries is still there."),
    "unawaited": Sentence(
        "{call} of {call:line} has not been awaited", "{call:line}, whose {call} has not been awaited",
        "A communication gives you its result only when you `await` it."),
    "is_in": Sentence("{tensor}, {tensor:made}, {kept:how} on rank {rank}"),
    "stored_over": Sentence(
        "{tensor}, {tensor:made}, was in {kept:where}; {line} has stored {over} over it"
        "[{unread:}, before it was read]",
        "{line}, which stores {over} over {tensor}",
        "A key holds one tensor: what was there before is gone."),
    "unread": Sentence("nothing has read {tensor}, {tensor:made}[; it {kept:how}]"),
    "result_lost": Sentence(
        "{tensor} went into {call} of {call:line}[!flying: , and nothing has read its result]"
        "[{flying:}, and its result was not fetched by then]"),
    "read_last": Sentence(
        "{tensor}, {tensor:made}, was read last by {call} of {call:line}[; it {kept:how}]"),
    "not_received": Sentence("{tensor} went into {call:brief} of {call:line}, and was not received yet"),
    "key_gone": Sentence(
        "{tensor} was there: it {kept:how}[, before {reader} of {reader:line}]",
        "{kept:line}, where {tensor} leaves {kept:where}"),
    "waits": Sentence(
        "rank {rank} waits in {call} of {call:line}[, for {ranks:ranks}][, until rank {unposted} posts a receive]",
        note="All ranks of a group make the same collectives in the same order; sends and receives come in pairs."),
    "returned": Sentence("{ranks:ranks} returned"),
    "lacks_batch": Sentence(
        "the part of micro-batch {batch} is missing[: it was {tensor:made}]"
        "[!tensor: : no rank had made the {labels:kind} of it by then]"),
    # -- beside a right run
    "look_at": Sentence(
        "{call} of {call:line} is given {tensor}",
        "[{out:line}, where {call:brief} gets {tensor}, from {tensor:line}]"
        "[!out: {tensor:line}, which {tensor:makes} {tensor}]"),
    "first_through": Sentence("in a right run {tensor}[, before {reader:brief},] goes through {right_steps:steps}"),
    "sum_lacks": Sentence(
        "{tensor}[, which goes into {reader:brief},] adds up {count:parts}; a right run adds up {right_count}, "
        "among them one that is missing here, {right:made}"),
    "comes_from": Sentence(
        "on rank {call:rank} {call:brief} is given {tensor}, {tensor:made}[; it {out:how}]; in a right run that is "
        "{right}, {right:made}"),
    "other_peer": Sentence(
        "{call} of {call:line}, on rank {call:rank}, is with rank {call:peer}; in a right run with rank {right:peer}",
        "{call:line}, where rank {call:rank} has {call}"),
    "other_call": Sentence(
        "with what {call} of {call:line} is given, a right run has {right}",
        "{call:line}, where a right run has {right}, and not {call}"),
    "goes_elsewhere": Sentence(
        "in a right run {right} goes into {right_reader}, and not into {call}",
        "{call:line}, where {call} is given {tensor}"),
    "lacks_operand": Sentence(
        "{call} of {call:line} is not given {right}; in a right run it is", "{call:line}, for the operands of {call}"),
    "takes_again": Sentence(
        "{call} of {call:line}, on rank {call:rank}, takes {batches:batches}, which rank {earlier:rank} has taken at "
        "{earlier:line}",
        "{call:line}, where rank {call:rank} takes {batches:batches}, as rank {earlier:rank} did at {earlier:line}",
        "The input of each micro-batch is taken once, and kept until its last use."),
    "again": Sentence(
        "{call} of {earlier:line} comes again at {call:line}; in a right run it comes {right_count:times}",
        "{call:line}, which makes {call} again, after {earlier:line}"),
    "comes_next": Sentence(
        "on rank {rank} a right run goes on to {right}[ once {more:}more]; this run does not get there"),
    "not_made": Sentence(
        "on rank {right_reader:rank} {right} was not there by then; in a right run it is {right:made}"),
    "layers": Sentence(
        "rank {rank} calls {verb} for {layers:layers}[, at {line}]; in a right run for {right_layers:layers}"),
    "no_final": Sentence("rank {rank} never calls set_final_weight for layer {layer}; a right run does"),
    "departs": Sentence(
        "[after {before} of {before:line} ]rank {rank}[{call:} comes to ][{awaits:}the end of ][{call}][!call:  {ends}]"
        "; in a right run [{right_awaits:}the end of ][{right} comes {when}][!right: it returns]",
        "{line}, [{call:}where][!call: after which] rank {rank}[{call:} comes to ][{awaits:}the end of ][{call}]"
        "[!call:  {ends}]; in a right run "
        "[{right_awaits:}the end of ][{right} comes {when}][!right: it returns]"),
    # -- what the text shows
    "without_await": Sentence("{line} calls {call} without `await`", "{line}, which calls {call} without `await`"),
    "written_out": Sentence(
        "{line} has {number} written out, as at the puzzle's own size; at this one {sizes}",
        "{line}, where {number} is written out: at this size {sizes}"),
    # -- what it costs
    "more_often": Sentence(
        "{line}: all ranks together have {count} more {call:kind} than in the target's run"),
    "held": Sentence(
        "at the peak ({call} of {call:line} on rank {call:rank}) {count:more} like {tensor} than at {right} in the "
        "target's run: this one in {kept:where}, since {kept:line}[, was last read at {out:line}]"
        "[, is next read by {reader} of {reader:line}]",
        "{kept:line}, which stores {tensor}: {count:more} like it at the peak than in the target's run"),
    "dead": Sentence(
        "{tensor} is in {kept:where} at the peak ({call} of {call:line} on rank {call:rank})[, was last read at "
        "{out:line}], and nothing reads it any more: `pop` takes it out",
        "{kept:line}, which stores {tensor}: it is still there at the peak, and nothing reads it any more"),
    "flying": Sentence(
        "at the peak ({peak} of {peak:line}) {count:calls} not fetched yet (at {right} in the target's run "
        "{right_count}); the first is {call} of {call:line}",
        "{call:line}, whose {call} is not fetched yet at the peak",
        "What a communication carries is in memory until its `await` has given you the result."),
}  # fmt: skip
"""By the name of a statement how it is told."""
_PART = re.compile(r"\[(?:!(\w+): )?([^\[\]]*)\]")
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

    def told(found: re.Match[str]) -> str:  # no words where a fact only decides what is said
        thing, how = facts[found[1]], found[2]
        return "" if how == "" else str(_WAYS.get((type(thing), how), _WAYS.get(how, str))(thing))

    return _FACT.sub(told, _PART.sub(part, text))


def _is_there(thing: Any) -> bool:
    return thing is not None and thing is not False and thing not in ((), NO_LINE)


def line_words(line: Line) -> str:
    """Return a line by its number."""
    return f"line {line.number or '?'}" + (f" of {line.file}" if line.file else "")


def call_words(call: CallFact) -> str:
    """Return a call as text: ``forward(layer 3, micro-batch 0)``, ``receive(from rank 1)``."""
    if call.kind in PARTS:
        product = "the product" + "".join(call.options)
        return {SHARD: "the cut", COMBINE: "the joint", ADD: "the sum (+)", SCALE: product}[call.kind]
    if stream_of(call.kind) == "message":
        what = [f"{KINDS[kind].word} of layer {call.layer}" for kind in call.carries]
        peer = [f"rank {call.peer}"] if call.peer is not None else []
        what += [numbered("micro-batch", call.batches)] if what and call.batches else []
        return f"{call.kind}({', '.join([*peer, *what])})"
    inside = show_layers(call.layer) if call.layer is not None else ""
    by_batch = stream_of(call.kind) == "compute" or call.kind == "get_activation"
    batches = numbered("micro-batch", call.batches) if call.batches and by_batch else ""
    axis = f"axis={call.axis!r}".replace("'", '"') if call.axis is not None else ""
    return f"{call.kind}({', '.join(filter(None, [inside, batches * (call.kind != 'update'), axis, *call.options]))})"


def _made(tensor: TensorFact) -> str:
    """Return what has made a tensor or brought it, and where it came from before."""
    maker, source = tensor.maker, tensor.source
    several = source is not None and (tensor.summed > 1 or tensor.labels.batches > {*source.batches})
    of = f", of {_at(source)} on rank {source.rank}{' and others' * several}" if source is not None else ""
    if maker.kind == ADD and maker.run == "own":
        return f"made by a sum of {tensor.summed} at {line_words(maker.line)}{of}"
    by = f"brought to rank {maker.rank} by" if maker.kind == "receive" else "made by"
    return f"{by} {_at(maker)}{of}"


def _at(call: CallFact) -> str:
    """Return a call with its line, or that of a right run without."""
    return f"{call_words(call)} of {line_words(call.line)}" if call.run == "own" else call_words(call)


def _of_kept(kept: KeptFact) -> str:
    there = f"{kept.store}[{key_words(kept.key)}]"
    if kept.way == STORED:
        return f"is in {there}, stored at {line_words(kept.line)}"
    if kept.way in (TAKEN, READ):
        return f"was {kept.way}{' out' * (kept.way == TAKEN)} from {there} at {line_words(kept.line)}"
    return f"was in {there} until {line_words(kept.line)} stored another over it"


def key_words(key: str) -> str:
    """Return a key as it is written between brackets: a pair without parentheses."""
    return key[1:-1] if key[:1] == "(" and "," in key else key


_WAYS: Mapping[Any, Callable[[Any], object]] = {
    (Line, None): line_words,
    (CallFact, None): call_words,
    (CallFact, "kind"): lambda call: call.kind + "".join(f" of {KINDS[kind].words}" for kind in call.carries[:1]),
    (TensorFact, None): lambda tensor: tensor.labels.in_words(),
    (TensorFact, "line"): lambda tensor: line_words(tensor.maker.line),
    "makes": lambda tensor: "receives" if tensor.maker.kind == "receive" else "makes",
    "made": _made,
    "how": _of_kept,
    "where": lambda kept: f"{kept.store}[{key_words(kept.key)}]",
    "line": lambda thing: line_words(thing.line),
    "rank": lambda call: call.rank,
    "peer": lambda call: call.peer,
    "ranks": lambda ranks: numbered("rank", ranks),
    "batches": lambda batches: numbered("micro-batch", batches),
    "layers": lambda layers: numbered("layer", map(int, layers)) if layers else "no layers",
    "steps": lambda steps: " and then ".join(call_words(one._replace(batches=())) for one in steps),
    "more": lambda count: f"{count} more tensor{'s are' if count > 1 else ' is'} stored",
    "calls": lambda count: f"{count} communication{'s are' if count > 1 else ' is'}",
    "parts": lambda count: f"{count} tensor{'s' * (count != 1)}",
    "brief": lambda call: call_words(call._replace(carries=())),
    "times": lambda count: "once" if count == 1 else "never" if not count else f"{count} times",
    "kind": lambda labels: labels.changed(batches=frozenset()).in_words().removeprefix("the "),
}
"""How facts are told, by the way that a sentence asks for, and where it matters by their type."""


# -- the whole ---------------------------------------------------------------------------------------------------------


def verdict(explanation: Explanation, problem: str) -> list[str]:
    """Return the lines of a verdict before its figures: what is wrong, and the line to look at if there is one."""
    waits = [sentence(one) for one in explanation.given if one.name in ("waits", "returned")]
    text = f"deadlock: {'; '.join(waits[:2])}" if waits else problem.partition("\n")[0]
    look = next((sentence(one, look=True) for one in explanation.look_at), "")
    if look:
        look = f"look at:  {_shortened(look.replace(A_RIGHT_RUN, explanation.compared_with), MOST_WORDS - SHORT)}"
        text = _shortened(text, MOST_WORDS - len(look.split()))
    return [one for one in (_shortened(text, MOST_WORDS), look) if one]


def why(explanation: Explanation, level: int = 2) -> list[str]:
    """Return an explanation as sentences, up to a level."""
    given, differences = explanation.given, explanation.difference if level > 1 else ()
    again = [(one.facts["call"], one.facts["tensor"]) for one in differences if one.name == "comes_from"]
    given = tuple(one for one in given if (one.facts.get("call"), one.facts.get("tensor")) not in again)
    told = [_looked_at(one, level) for one in explanation.look_at]
    told += map(sentence, [*given, *differences])
    if level > 1 and not explanation.reference:
        told.append("this was not compared with a right run")
    told += (SENTENCES[one.name].note for one in (*explanation.look_at, *explanation.given, *differences))
    if level > 2:
        told += (f"a right run has `{line}`" for line in _right_lines(explanation))
    return [one.replace(A_RIGHT_RUN, explanation.compared_with) for one in dict.fromkeys(told) if one]


def _looked_at(one: Statement, level: int) -> str:
    """Return a place to look at; above level 1 with the whole sentence, if there is more to it."""
    look = f"look at {sentence(one, look=True)}"
    more = level > 1 and SENTENCES[one.name].look and one.name != LOOK_AT
    return f"{re.split('[,:]', look)[0]}: {sentence(one)}" if more else look


def _right_lines(explanation: Explanation) -> list[str]:
    """Return the lines of a right run that are spoken of, and that this one does not have."""
    texts: list[str] = []
    for things in (things for one in explanation.statements() for things in one.facts.values()):
        for thing in things if type(things) is tuple else (things,):
            maker = thing.maker if isinstance(thing, TensorFact) else thing
            texts += [maker.line.text] if isinstance(maker, CallFact) and maker.run == RIGHT else []
    return [text for text in texts if text and text not in explanation.written]


def _shortened(text: str, most: int) -> str:
    """Return the first words of a text, and whole where it has no more."""
    words = text.split(" ")
    return text if len(words) <= most else " ".join(words[: max(most, 1)]).rstrip(",;:") + "..."
