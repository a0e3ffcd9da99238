"""Why a right run is slow, beside the target's program: what it does more often or for longer, what of that stands on
its longest chain, and who waits for a message that could have been sent sooner."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations

from ...basics.errors import numbered, show_call
from ...course.outlines import (
    Effort,
    is_known,
    solution_calls,
    solution_chain,
    solution_lateness,
    solution_work,
)
from ...course.specs import Puzzle, cost_named
from ...machine.outcome import Outcome
from ...record.attention import PROJECT
from ...record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from ...record.events import Event
from ...record.figures.chain import MESSAGES, Chain
from ...record.figures.score import Work, peak_event, spans_boxes, work
from ...record.figures.waiting import NEARLY, Waiting
from ...record.kinds import KINDS
from ...record.labels import LISTS
from ...record.table import OPERATIONS, SEND, in_stream, makes_weight_grads, sums
from ...record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS, OVERLAPPED, UPDATE
from .holding import runs_all
from .lateness import ASIDE, late_messages, named_in_words
from .needless import (
    AT_THE_END,
    Told,
    behind_in_words,
    beside_in_words,
    by_rank,
    early_receive,
    inputs_in_words,
    is_beside,
    late_send,
    messages_in_words,
    needless_waits,
    sums_in_words,
)
from .needless import in_words as needless_in_words
from .ordering import Ordering, several_stages
from .shares import better_shares, dealt

PIECES = ": reduce-scatter inside the node first, and gather after the sum of the pieces"
"""What to do about whole gradients that go from node to node."""
KEYS = "KeysValues"
"""What goes round a ring of ranks."""
LEAST, MUCH = 0.01, 0.1
"""As parts of a time: an operation that takes so much longer is longer; so much of a chain is worth to be
hidden."""


MOST_LINES = 2  # of the learner that are shown for calls that are too many


def efforts(outcome: Outcome) -> dict[tuple[str, bool], Effort]:
    """Return how often the busiest rank carries out each operation, by its verb and whether it goes from node to node,
    and for how long, as a sum of ticks."""
    events = outcome.distinct if outcome.node_size in (None, 1) else outcome.events  # others may cross other nodes
    counts = work(events, outcome.node_size, outcome.beside)
    ticks = defaultdict[tuple[str, bool, int], float](float)
    for event in events:
        ticks[event.kind, spans_boxes(event, outcome.node_size, outcome.beside), event.rank] += event.length
    return {
        (kind, across): Effort(max(by_rank.values()), max(ticks[kind, across, rank] for rank in by_rank))
        for (kind, across), by_rank in counts.items()
    }


def calls_of(events: Sequence[Event]) -> dict[tuple[str, str, int], int]:
    """Return how often the busiest rank makes each collective of one layer, by verb, kind of the tensor, and
    layer."""
    counts, most = Counter[tuple[int, str, str, int]](), dict[tuple[str, str, int], int]()
    for event in events:
        if event.stream == "collective" and event.tensor and event.layer is not None and not event.layers:
            counts[event.rank, event.kind, event.tensor, event.layer] += 1
    for (_, kind, tensor, layer), times in counts.items():
        most[kind, tensor, layer] = max(times, most.get((kind, tensor, layer), 0))
    return most


def in_vain(own: Sequence[Event], places: Sequence[int]) -> list[int]:
    """Return those of these places in a rank's events at which it makes a call, and then makes the same one again, and
    nothing is computed with the layer in between, though the rank has run it."""
    found = list[int]()
    for at, after in combinations(places, 2):
        layer, same = own[at].layer, (own[at].tensor, own[at].layer) == (own[after].tensor, own[after].layer)
        uses = [place for place, one in enumerate(own) if one.stream == "compute" and one.layer == layer]
        if same and len(uses) > 1 and not any(at < place < after for place in uses):
            found += [at, after]
    return found


def chain_efforts(chain: Chain) -> dict[str, Effort]:
    """Return how often each operation stands on a chain, by the words of ``Chain.parts``, and for how long."""
    counts = defaultdict[str, int](int)
    for _, event in chain.links:
        if event.length:
            counts[word_of(event.kind)] += 1
    return {word: Effort(counts[word], ticks) for ticks, word in chain.parts}


def word_of(kind: str) -> str:
    """Return the word for an operation in a chain."""
    row = OPERATIONS.get(kind)
    return kind if row is None else MESSAGES if row.stream == "message" else row.word


HALVES_TOO = {word_of(kind) for kind in (BACKWARD.kind, BACKWARD_INPUT.kind, BACKWARD_WEIGHT.kind)}

LinesAt = Callable[[int, Sequence[int]], Sequence[str]]
"""Returns the lines of the learner's code at some places of a rank's log, as far as they are known."""


def shares_of(outcome: Outcome, puzzle: Puzzle) -> str:
    """Return how else the ranks could share the batch, where each micro-batch is on one rank, all that run any layer
    run the same ones, and the busiest of them could have less to do; or an empty text."""
    carried: dict[int, set[int]] = {rank: set() for rank in range(outcome.ranks)}
    layers = defaultdict[int, set[int | None]](set)
    for event in outcome.events:
        if event.kind == FORWARD.kind:
            carried[event.rank] |= event.batches
            layers[event.rank].add(event.layer)
    apart = sum(map(len, carried.values())) == len(set[int]().union(*carried.values()))
    if not apart or any(own != next(iter(layers.values())) for own in layers.values()):
        return ""
    uneven = cost_named(puzzle.cost).uneven
    counts = {rank: len(batches) for rank, batches in carried.items()}
    return better_shares(counts, dict(uneven.slow) if uneven is not None else {})


def run_twice(events: Sequence[Event], puzzle: Puzzle, goal: str) -> str:
    """Return which ranks run the same layer on the same micro-batches, where the goal's program does less forwards on a
    rank; or an empty text."""
    forwards = [event for event in events if event.kind == FORWARD.kind]
    ours = sum(one.times for (kind, _), one in solution_work(puzzle, goal).items() if kind == FORWARD.kind)
    if not ours or max(Counter(event.rank for event in forwards).values(), default=0) <= ours:
        return ""
    ran = defaultdict[int | None, dict[frozenset[int], set[int]]](lambda: defaultdict(set))
    for event in forwards:
        if not event.words:
            ran[event.layer][event.batches].add(event.rank)
    for layer, ranks in ran.items():
        twice = {batches: on for batches, on in ranks.items() if len(on) > 1}
        if twice:
            on = next(iter(twice.values()))
            same = frozenset[int]().union(*[batches for batches, others in twice.items() if others == on])
            said = f"{numbered('rank', on)} all run layer {layer} on {numbered('micro-batch', same)}, where one rank "
            return f"{said}is enough for each: give every pipeline, or every replica, micro-batches of its own"
    return ""


class Slowness:
    """A slow run beside the program of a goal, "target" or "star". ``chain``: its longest one; ``lines_at``: finds the
    learner's lines at these places of a rank's log."""

    def __init__(
        self, outcome: Outcome, chain: Chain, puzzle: Puzzle, goal: str, lines_at: LinesAt = lambda rank, places: []
    ) -> None:
        self.lines_at = lines_at
        self.outcome, self.puzzle, self.goal, self.unit = outcome, puzzle, goal, puzzle.unit
        self.done, self.known = efforts(outcome), solution_work(puzzle, goal)
        self.chain, self.their_chain = chain_efforts(chain), solution_chain(puzzle, goal)
        if any(self._costs_no_more(*which, own) for which, own in self.done.items()):
            pieces = self.their_chain.get(word_of(SCATTERREDUCE.kind), Effort(0, 0.0))
            self.their_chain = {**self.their_chain, word_of(ALLREDUCE.kind): pieces}
        self.their_chain = self._halves_on_their_chain()
        self.in_order = chain.events  # of the longest chain
        self.events_on_chain = {*chain.events}
        self.order = Ordering(outcome, puzzle, goal)
        self.named: set[str] = set()  # the operations of which more is done than by the goal's program

    def in_words(self, first: str = "") -> str:
        """Return what makes the run slower than the goal's program, with what to write. ``first``: what is said before
        anything else, and all where that program is not known here."""
        if not is_known(self.puzzle):
            return first
        more = "; ".join([*self.more_work(), *self.made_again(), *self.beside_nothing()])
        if self._costs_as_much():
            more, self.named = "", set()
        instead = ", ".join(self.instead())
        more += f"; instead of that the {self.goal} has {instead}" if instead and self.named else ""
        order = [self.order.in_words(), self.on_the_chain()]
        twice = run_twice(self.outcome.events, self.puzzle, self.goal)
        many = self.all_on_each() or twice or self.on_few()
        slow = "" if many else shares_of(self.outcome, self.puzzle)
        waits = "" if self.goal == "target" else self._mostly_waiting()
        said = [
            first,
            many,
            waits,
            self.several_at_once(),
            slow or more,
            self.in_lists(),
            *(order[::-1] if self.order.thick or self.goal == "star" else order),
        ]
        said.append(self.late_messages())
        return ". ".join(f"{one[0].upper()}{one[1:]}" if at else one for at, one in enumerate(filter(None, said)))

    def _is_large_on(self, ranks: Container[int]) -> bool:
        """Return whether the run takes more memory than the goal, too, and its peak is on one of these ranks."""
        most = self.puzzle.star if self.goal == "star" else self.puzzle.target
        peak = peak_event(self.outcome.device_events)
        if not most or peak is None or peak.rank not in ranks:
            return False
        return bool(self.puzzle.size_unit.scored(self.outcome.memory) > most["memory"])

    def _costs_as_much(self) -> bool:
        """Return whether all that is done more often than by the goal's program is by collectives, and these take no
        longer in all than those of that one."""
        ways, none = {*self.done, *self.known}, Effort(0, 0.0)
        both = [(kind, self.done.get((kind, far), none), self.known.get((kind, far), none)) for kind, far in ways]
        over = sum(own.ticks - ours.ticks for kind, own, ours in both if OPERATIONS[kind].stream == "collective")
        return bool(self.named) and self.named <= {*map(word_of, in_stream("collective"))} and over <= NEARLY

    def all_on_each(self) -> str:
        """Return what to do where every rank runs all micro-batches, and those of the goal's program deal them out; or
        an empty text."""
        if not runs_all(self.outcome, self.puzzle, self.goal):
            return ""
        own = dealt(self.outcome.ranks, self.outcome.batches)
        return (
            f"every rank runs all {self.outcome.batches} micro-batches, where one rank is enough for each; {own}. "
            "Then sum the gradients over the ranks"
        )

    def several_at_once(self) -> str:
        """Return how many micro-batches a forward of a pipeline is of, where those of the goal's program are of one
        each; or an empty text."""
        runs = [event for event in self.outcome.events if event.kind == FORWARD.kind and not event.words]
        sizes, whole = {len(event.batches) for event in runs}, self.outcome.layers * self.outcome.batches
        all_layers = len({event.layer for event in runs if event.rank == 0}) == self.outcome.layers
        none = Effort(0, 0.0)
        theirs = self.known.get((FORWARD.kind, False), none).times
        if all_layers or min(sizes, default=1) < 2 or theirs * self.outcome.ranks != whole:
            return ""
        ways = (SEND.kind, False), (SEND.kind, True)
        own, ours = (sum(of.get(way, none).times for way in ways) for of in (self.done, self.known))
        if own >= ours:  # whoever sends as seldom takes as many at once
            return ""
        many = " or ".join(map(str, sorted(sizes)))
        said = f"each forward is of {many} micro-batches at once, in the {self.goal}'s program of one"
        return f"{said}: with smaller steps the next stage begins sooner"

    def on_few(self) -> str:
        """Return which ranks run no layer, where the busiest one does more forwards than in the goal's program; or an
        empty text."""
        own, ours = (of.get((FORWARD.kind, False), Effort(0, 0.0)).times for of in (self.done, self.known))
        run = {event.rank for event in self.outcome.events if event.kind == FORWARD.kind}
        idle = {*range(self.outcome.ranks)} - run
        pipelines = self.outcome.ranks // len(run) if run else 0
        if own <= ours or not run or not idle or self.outcome.ranks % len(run):
            return ""
        said = (
            f"{numbered('rank', idle)} {'runs' if len(idle) == 1 else 'run'} no layer, and {numbered('rank', run)} all "
        )
        if self.outcome.batches == 1:
            return f"{said.removesuffix('all ')}all of its one micro-batch: {self._one_for_all()}"
        if len(run) == 1:
            share = dealt(self.outcome.ranks, self.outcome.batches)
            stages = any(kind == SEND.kind for kind, _ in self.known)
            do = "let each rank run layers of its own, as a stage" if stages else f"let all ranks train; {share}"
            return f"{said}micro-batches: {do}"
        if self.outcome.batches < pipelines:
            return f"{said}micro-batches: let every rank run layers"
        place = f"model.rank // {len(run)} is the number of a pipeline, and model.rank % {len(run)} that of a stage"
        return f"{said}micro-batches: let each {len(run)} ranks take micro-batches of their own, {place}"

    def _one_for_all(self) -> str:
        """Return how the ranks share one micro-batch: in slices of its sequence, where the goal's program has steps of
        layers, and otherwise layer by layer."""
        if any(kind == PROJECT.kind for kind, _ in self.known):
            cut = "model.get_activation([0]).shard(model.rank, model.RANKS)"
            return f"let each rank carry its own slice of the sequence through all layers, {cut}"
        return "let each rank run a part of it"

    def _lasting(self, ticks: float) -> str:
        return self.unit.lasting(_rounded(ticks))

    def more_work(self) -> Iterator[str]:
        """Yield what a rank does more often than any rank of the goal's program, or for longer, communication first."""
        for kind in [*in_stream("collective", "message"), *in_stream("compute")]:
            for across in (True, False):
                own, ours = self.done.get((kind, across)), self.known.get((kind, across), Effort(0, 0.0))
                if own is None or self._costs_no_more(kind, across, own):
                    continue
                halves, own = own.times, self._without_halves(kind, across, own)
                halves -= own.times
                if own.times > ours.times or own.ticks > ours.ticks * (1 + LEAST):
                    self.named.add(word_of(kind))
                if kind == LOSS.kind:
                    if own.times > ours.times > 0:
                        yield self._pipelines(own.times, ours.times)
                    continue  # it takes no time
                if own.times > ours.times:
                    by_rank = self._counts[kind, across]
                    equal = len(by_rank) == self.outcome.ranks and len(set(by_rank.values())) == 1
                    first = min(rank for rank in by_rank if by_rank[rank] == own.times + halves)
                    busiest = "" if equal else f" on rank {first}"
                    named = self._times(kind, across, own.times)
                    compared = f"{named}{busiest}, the {self.goal} has {ours.times or 'none'}"
                    has_such = ours.times or kind == SEND.kind
                    once = self._sum_of_each(kind, own.times, ours.times)
                    kept = self._kept_from_forward(kind)
                    which = self._made_in_vain(kind) or kept if self.goal == "star" else ""
                    if not which and has_such and (self.goal == "target" or self._is_of_one_layer(kind)):
                        which = self._which(kind, first, own.times)
                    which = self._beside_halves(kind, across) if halves else which
                    home = self._home_again(first) if kind == SEND.kind else ""
                    yield compared + (
                        once
                        or which
                        or kept
                        or home
                        or self._of_first_input(kind)
                        or self._piece_only(kind)
                        or self._gathered_again(kind, first)
                        or self._slices_instead(kind)
                    )
                elif own.ticks > ours.ticks * (1 + LEAST):
                    each = [self.unit.brief(_rounded(one.ticks / one.times)) for one in (own, ours)]
                    named = self._times(kind, across, own.times)
                    whole = across and self._whole_gradients(kind)
                    named += " of whole gradients," if whole else ""
                    named += f" of {each[0]} {self.unit.name} each, those of the {self.goal} take {each[1]}"
                    yield named + PIECES * whole + self._uneven(kind) + self._queries_go_round(kind)

    def _costs_no_more(self, kind: str, across: bool, own: Effort) -> bool:
        """Return whether these are whole sums of gradients in place of as many sums of pieces, which would take as long
        as they do."""
        pieces = self.known.get((SCATTERREDUCE.kind, across), Effort(0, 0.0))
        done = self.done.get((SCATTERREDUCE.kind, across), Effort(0, 0.0))
        if kind != ALLREDUCE.kind or (kind, across) in self.known:
            return False
        return own.times + done.times == pieces.times and own.ticks + done.ticks <= pieces.ticks + NEARLY

    def _in_halves(self, across: bool) -> int:
        """Return how many all-reduces of the goal's program are made here as a reduce-scatter and a gather each, where
        these two take no longer; or 0."""
        none = Effort(0, 0.0)
        kinds = (ALLREDUCE.kind, SCATTERREDUCE.kind, ALLGATHER.kind)
        (whole, first, last), (theirs, known, _) = (
            [of.get((kind, across), none) for kind in kinds] for of in (self.done, self.known)
        )
        number = first.times - known.times
        if number <= 0 or number != theirs.times - whole.times or last.times < number:
            return 0
        each = first.ticks / first.times + last.ticks / last.times
        return number if each <= theirs.ticks / theirs.times + NEARLY else 0

    def _halves_on_their_chain(self) -> dict[str, Effort]:
        """Return what stands on the longest chain of the goal's program, with halves in place of those of its
        all-reduces that are made in halves here."""
        chain, words = dict(self.their_chain), [word_of(one.kind) for one in (ALLREDUCE, SCATTERREDUCE, ALLGATHER)]
        whole, *halves = (chain.get(word, Effort(0, 0.0)) for word in words)
        for across in (True, False):
            if number := self._in_halves(across):
                part = min(number, whole.times)
                ticks = part * whole.ticks / max(1, whole.times)
                chain[words[0]] = Effort(whole.times - part, whole.ticks - ticks)
                for word, half in zip(words[1:], halves, strict=True):
                    chain[word] = Effort(half.times + part, half.ticks + ticks / 2)
        return chain

    def _without_halves(self, kind: str, across: bool, own: Effort) -> Effort:
        """Return how often an operation is done, and for how long, but for halves of all-reduces."""
        number = self._in_halves(across) if kind in (SCATTERREDUCE.kind, ALLGATHER.kind) else 0
        return Effort(own.times - number, own.ticks - number * own.ticks / own.times) if number else own

    def _beside_halves(self, kind: str, across: bool) -> str:
        """Return, as the end of a sentence, how many calls of a verb are halves of all-reduces, and so not counted, and
        which of the others the goal's program has not."""
        known, done = solution_calls(self.puzzle, self.goal), calls_of(self.outcome.events)
        more = list[tuple[str, int]]()
        for (verb, tensor, layer), calls in done.items():
            halves = done.get((SCATTERREDUCE.kind, tensor, layer), 0) - known.get(
                (SCATTERREDUCE.kind, tensor, layer), 0
            )
            if verb == kind and calls - max(0, halves) > known.get((verb, tensor, layer), 0):
                more.append((tensor, layer))
        beside = f", beside {self._in_halves(across)} that with a reduce-scatter each take as long as its all-reduces"
        if not more:
            return beside
        first = "get_activation gives that of layer 0 whole: run its forward before it is cut"
        last = self.outcome.layers - 1
        kept = f"backward({last}, ...) comes first: keep the input of layer {last} whole from its forward until then"
        said = [first] * (("Activation", 0) in more) + [kept] * (("Activation", last) in more)
        return f"{beside}. Those that it has not are of {self._of(more)}{': ' * bool(said)}{', and '.join(said)}"

    def _pipelines(self, own: int, ours: int) -> str:
        """Return how many micro-batches a pipeline has beside those of the goal's program, as so many losses say."""
        more = "more pipelines, of fewer stages each, " if self.outcome.ranks > 1 else "fewer "
        return (
            f"the last layer runs {own} micro-batches on a rank, in the {self.goal}'s program {ours}: {more}have less"
        )

    def _uneven(self, kind: str) -> str:
        """Return which rank computes longest with a verb and which one shortest, where that differs much: what they
        were given is not the same work; or an empty text."""
        ticks = defaultdict[int, float](float)
        for event in self.outcome.events:
            if event.kind == kind and event.stream == "compute":
                ticks[event.rank] += event.length
        most, least = (find(ticks, key=lambda rank: ticks[rank], default=0) for find in (max, min))
        if ticks[least] * (1 + MUCH) >= ticks[most]:
            return ""
        long, short = (self._lasting(ticks[rank]) for rank in (most, least))
        return (
            f" (rank {most} computes {long}, rank {least} {short}, and the others wait for the slowest: give all ranks "
            "the same work)"
        )

    def _which(self, kind: str, rank: int, times: int) -> str:
        """Return which calls of a verb the target's program has not, or has less often, with the lines that make them;
        or what a rank could do instead of a message. ``times``: how many calls of the verb the rank makes."""
        if kind == SEND.kind:
            sent = self._own_instead() or self._output_sent()
            return sent and f": {sent.removeprefix(': ')}"
        known = solution_calls(self.puzzle, self.goal)
        more = {
            (tensor, layer): calls - known.get((verb, tensor, layer), 0)
            for (verb, tensor, layer), calls in calls_of(self.outcome.events).items()
            if verb == kind and calls > known.get((verb, tensor, layer), 0)
        }
        if not more:
            return ""
        own = [event for event in self.outcome.events if event.rank == rank]
        places = [at for at, event in enumerate(own) if event.kind == kind and (event.tensor, event.layer) in more]
        lines = [*dict.fromkeys(filter(None, self.lines_at(rank, places)))]
        enough = ""
        if len(lines) > MOST_LINES:
            lines = [*dict.fromkeys(filter(None, self.lines_at(rank, in_vain(own, places))))]
            enough = ": nothing is computed with the layer between these, so one of them is enough"
        at = f" ({'; '.join(lines)}{enough})" if 0 < len(lines) <= MOST_LINES else ""
        which, done = self._of(more), calls_of(self.outcome.events)
        left = [call[1:] for call in known if call[0] == kind and call not in done]
        number = sum(more.values())
        said = f": {number} more, of {which}{at}"
        if number != times - sum(one.times for (verb, _), one in self.known.items() if verb == kind):
            said = f", of {which}{at}"  # counted over stages that are others in the target's program
        if left and number == times:
            said = f", of {self._of(left)}, where these are of {which}{at}"
        elif left:
            said = f": {number} of these it has not, of {which}{at}"
        if kind == ALLGATHER.kind and any(tensor == "OptState" for tensor, _ in more):
            said += ": update this rank's pieces of weight and state, which needs none of these"
            said += ", and gather what that gives" * any(tensor == "Weight" for tensor, _ in left)
        if (
            kind == ALLGATHER.kind
            and {tensor for tensor, _ in more} == {"WeightGrad"}
            and self.puzzle.layout != "whole"
        ):
            said += ": model.update takes this rank's pieces, of gradient, weight and state: leave these out"
        if kind == ALLGATHER.kind and [*more] == [("ActivationGrad", self.outcome.layers - 1)] and not left:
            said += ": model.loss gives each rank all of that gradient, so leave out its cut and its gather"
        if kind == ALLGATHER.kind and [*more] == [("Activation", self.outcome.layers - 1)] and not left:
            said += ": the backward of that layer is the first, so keep its input whole until then"
        return said

    def _is_of_one_layer(self, kind: str) -> bool:
        """Return whether all calls of a verb that the goal's program has less often are of one layer."""
        known, done = solution_calls(self.puzzle, self.goal), calls_of(self.outcome.events)
        return len([one for one, times in done.items() if one[0] == kind and times > known.get(one, 0)]) == 1

    def _made_in_vain(self, kind: str) -> str:
        """Return which calls of a verb ranks make twice, with nothing computed in between with their layer, and the
        lines that make them, where these are few; or an empty text."""
        layers, lines = set[int](), dict[str, None]()
        for rank, own in by_rank(self.outcome.events).items() if kind in in_stream("collective") else ():
            places = in_vain(own, [at for at, event in enumerate(own) if event.kind == kind and not event.layers])
            layers |= {layer for at in places if (layer := own[at].layer) is not None}
            lines |= dict.fromkeys(filter(None, self.lines_at(rank, places)))
        if not layers or len(lines) > MOST_LINES:
            return ""
        at = f" ({'; '.join(lines)})" * bool(lines)
        twice = f"{kind} of {numbered('layer', layers)} is called twice with nothing computed with the layer in between"
        return f": {twice}{at}, so one of the two is enough"

    def _kept_from_forward(self, kind: str) -> str:
        """Return which weights the goal's program gathers once, and this one twice, where nothing else is gathered more
        often; or an empty text."""
        known, done = solution_calls(self.puzzle, self.goal), calls_of(self.outcome.events)
        more = {call for call, times in done.items() if call[0] == kind and times > known.get(call, 0)}
        twice = {layer for verb, tensor, layer in more if tensor == "Weight" and known.get((verb, tensor, layer)) == 1}
        if kind != ALLGATHER.kind or not twice or len(twice) < len(more) or any(done[call] != 2 for call in more):
            return ""
        return f": the weight of {numbered('layer', twice)} it gathers once, and keeps from forward to backward"

    @staticmethod
    def _of(calls: Collection[tuple[str, int]]) -> str:
        """Return the tensors of calls in words. ``calls``: the kind and the layer of each."""
        said = []
        for one in dict.fromkeys(tensor for tensor, _ in calls):
            layers = [layer for tensor, layer in calls if tensor == one]
            where = "the first input, which nobody needs" if min(layers) < 0 else numbered("layer", layers)
            said.append(f"{KINDS[one].words} of {where}")
        return " and ".join(said)

    def _of_first_input(self, kind: str) -> str:
        """Return that calls of a verb carry the gradient of the first input, if some do and the goal's do not."""
        first = [(verb, tensor, layer) for verb, tensor, layer in calls_of(self.outcome.events) if layer < 0]
        own = [call for call in first if call[0] == kind and call not in solution_calls(self.puzzle, self.goal)]
        return f": one of these is of {self._of([call[1:] for call in own])}" if own else ""

    def _own_instead(self) -> str:
        """Return how a rank comes by itself to what it is sent, where the target's program sends nothing."""
        sent = {(event.tensor, event.layer) for event in self.outcome.events if event.kind == SEND.kind}
        if any(kind == SEND.kind for kind, _ in self.known) or len(sent) != 1:
            return ""
        [(tensor, layer)] = sent
        if (tensor, layer) == ("Activation", 0):
            return ": every rank can take the input itself, model.get_activation(...)"
        if (tensor, layer) == ("ActivationGrad", self.outcome.layers - 1):
            return ": every rank that has the output can call model.loss itself, which takes no time"
        return ""

    def _slices_instead(self, kind: str) -> str:
        """Return that each rank keeps a slice of an input, where the goal's program gathers these, and this one sends
        them, or runs layers again to have them; or an empty text."""
        gathers = any(call[:2] == (ALLGATHER.kind, "Activation") for call in solution_calls(self.puzzle, self.goal))
        events = [one for one in self.outcome.events if one.kind == kind and one.layer is not None]
        runs = Counter((one.rank, one.layer, one.batches) for one in events)
        layers = {SEND.kind: {one.layer or 0 for one in events if one.tensor == "Activation"}}
        layers[FORWARD.kind] = {layer + 1 for (_, layer, _), times in runs.items() if times > 1 and layer is not None}
        if not gathers or not layers.get(kind):
            return ""
        keep = f"keep this rank's slice of the input of {numbered('layer', layers[kind])}"
        return f": {keep}, .shard(model.rank, model.RANKS), and gather it right before its backward"

    def _queries_go_round(self, kind: str) -> str:
        """Return that a rank sends queries in place of keys, in puzzles in which these go round; or an empty text."""
        sent = {one.tensor for one in self.outcome.events if one.kind == SEND.kind == kind}
        queries = [KINDS[one].word for one in ("Attended", "AttendedGrad") if one in sent]
        if "keys_go_round" not in self.puzzle.ideas or not queries:
            return ""
        words = " and ".join(queries)
        said = f": these carry {words}, and those of the {self.goal} keys and values and their gradient"
        keys = "keys stay as they are, and can go on while a rank attends"
        return f"{said}. Each attend changes the queries, so that their hop waits for it; {keys}"

    def _home_again(self, rank: int) -> str:
        """Return how many of a rank's sends bring keys and values home again round a ring, in puzzles that have one; or
        an empty text."""
        own = [
            one.layer
            for one in self.outcome.events
            if one.rank == rank and one.kind == SEND.kind and one.tensor == KEYS
        ]
        enough = 2 * (self.outcome.ranks - 1)
        number = sum(times - enough for times in Counter(own).values() if times > enough)
        if "keys_go_round" not in self.puzzle.ideas or not number:
            return ""
        hops = "n ranks have n - 1 hops in a layer forward, and as many back"
        return f": {number} of them bring keys and values back to the rank that has them, and {hops}"

    def _sum_of_each(self, kind: str, times: int, known: int) -> str:
        """Return what to do about a reduction of the gradient of each micro-batch, where the goal's program has one of
        the sum of all micro-batches of a rank; or an empty text."""
        batches = defaultdict[int, set[frozenset[int]]](set)
        for event in self.outcome.events:
            if makes_weight_grads(event.kind):
                batches[event.rank].add(event.batches)
        own = max(map(len, batches.values()), default=1)
        known = known or sum(one.times for (verb, _), one in self.known.items() if sums(verb))
        calls = Counter((event.rank, event.layer) for event in self.outcome.events if event.kind == kind)
        each = own > 1 and max(calls.values(), default=0) >= own  # over two axes in turn a sum is two calls
        if not sums(kind) or not each or (times != own * known and own <= known):
            return ""
        return ": add up the gradients of all micro-batches of a rank first, and sum over the ranks once for each layer"

    def _piece_only(self, kind: str) -> str:
        """Return what sums and cuts at once, where gradients are summed as a whole, and the goal's program only ever
        has pieces of the sums; or an empty text."""
        known = {verb for verb, tensor, _ in solution_calls(self.puzzle, self.goal) if tensor == "WeightGrad"}
        tensors = {(event.tensor, bool(event.layers)) for event in self.outcome.events if event.kind == kind}
        if kind != ALLREDUCE.kind or kind in known or SCATTERREDUCE.kind not in known:
            return ""
        call = f"await model.{SCATTERREDUCE.kind}(grad, layer"
        piece = f": each rank needs its piece of the sum only, {call}) in place of each of these"
        return piece if tensors == {("WeightGrad", False)} and not self.outcome.mesh else ""

    def _gathered_again(self, kind: str, rank: int) -> str:
        """Return what sums and cuts at once, where a rank gathers what all-reduces gave before anything is computed
        with it; or an empty text."""
        if kind != ALLREDUCE.kind or self.outcome.mesh:  # over one of several axes, pieces are summed
            return ""
        again, at, summed = 0, list[str](), dict[tuple[object, ...], int]()
        for place, event in enumerate(event for event in self.outcome.events if event.rank == rank):
            what = (event.tensor, event.layer, event.batches)
            if event.kind == kind:
                summed[what] = place
            elif event.kind == ALLGATHER.kind and what in summed:
                again, at = again + 1, [*at, *self.lines_at(rank, [summed.pop(what)])]
            elif event.stream == "compute":
                summed = {one: place for one, place in summed.items() if one[1] != event.layer}
        lines = [*dict.fromkeys(filter(None, at))]
        if not again or len(lines) > MOST_LINES:
            return ""
        said = f": what {again} of them give is whole on every rank, and is cut and gathered again before it is used. "
        said += f"model.{SCATTERREDUCE.kind} in place of the all-reduce sums and cuts in one call"
        return f"{said} ({'; '.join(lines)})" if lines else said

    def _whole_gradients(self, kind: str) -> bool:
        """Return whether whole gradients go over the slow links in every call of a collective."""
        calls = [event for event in self.outcome.events if event.kind == kind and event.tensor == "WeightGrad"]
        calls = [event for event in calls if spans_boxes(event, self.outcome.node_size, self.outcome.beside)]
        return bool(calls) and all(event.elements == self.outcome.cost.weight_elements for event in calls)

    def in_lists(self) -> str:
        """Return how fewer calls do the same, where the puzzle grants lists and this has more calls than the goal."""
        if LISTS not in self.puzzle.words:
            return ""
        more = [
            kind
            for (kind, across), own in self.done.items()
            if kind in in_stream("collective") and own.times > self.known.get((kind, across), Effort(0, 0.0)).times
        ]
        if not more:
            return self._too_long_lists()
        return f"one call takes several layers: model.{more[0]}([grad, ...], [layer, ...])"

    def _too_long_lists(self) -> str:
        """Return that a call takes more layers than one of the goal's program, as it makes fewer calls; or nothing."""
        for (kind, across), own in self.done.items():
            ours = self.known.get((kind, across), Effort(0, 0.0)).times
            if kind in in_stream("collective") and 0 < own.times < ours:
                takes = max(len(event.layers) for event in self.outcome.events if event.kind == kind)
                fewer = (
                    f"{self._times(kind, across, own.times)}, the {self.goal} has {ours}: a call takes up to {takes}"
                )
                return f"{fewer} layers, and begins only when the last of them is there, so let it take fewer"
        return ""

    def instead(self) -> Iterator[str]:
        """Yield the communication that the goal's program has, and this one has not."""
        for (kind, across), ours in self.known.items():
            own = self.done.get((kind, across), Effort(0, 0.0)).times
            whole = self.done.get((ALLREDUCE.kind, across))
            if kind == SCATTERREDUCE.kind and whole and self._costs_no_more(ALLREDUCE.kind, across, whole):
                continue
            if kind == ALLREDUCE.kind and self._in_halves(across):
                continue
            if (kind in in_stream("collective") and own < ours.times) or (OPERATIONS[kind].trains and not own):
                yield self._times(kind, across, ours.times) + f" (this one {own})" * bool(own)

    @cached_property
    def _counts(self) -> Work:
        """How often each rank does what, looked at only where that is too often."""
        return work(self.outcome.events, self.outcome.node_size, self.outcome.beside)

    def made_again(self) -> Iterator[str]:
        """Yield how many backwards make what a forward could have kept."""
        if "saved" in self.puzzle.words and word_of(BACKWARD.kind) in self.named:
            rows = [(event, OPERATIONS[event.kind]) for event in self.outcome.events if event.kind in OPERATIONS]
            backwards = [event for event, row in rows if row.backward]
            if again := sum("saved" not in event.words for event in backwards):
                kept = any("keep" in event.words for event, _ in rows)
                use = ": hand in what forward has kept, model.backward(..., saved=saved)" * kept
                yield f"{again} of {len(backwards)} backwards make all inner activations again{use}"

    def beside_nothing(self) -> Iterator[str]:
        """Yield that no backward runs beside a forward, where that saves time."""
        if OVERLAPPED not in "".join(self.puzzle.words) or not self.named & HALVES_TOO:
            return
        backwards = [event for event in self.outcome.events if event.kind == BACKWARD.kind]
        if not any(OVERLAPPED in "".join(event.words) for event in backwards):
            option = f"model.{BACKWARD.kind}(..., {OVERLAPPED}=True)"
            yield f"no backward runs beside a forward: right after a forward of another micro-batch, {option}"

    def _times(self, kind: str, across: bool, count: int) -> str:
        row = OPERATIONS[kind]
        plural = ("es" if row.word.endswith("s") else "s") * (count != 1 and " " not in row.word)
        both = (kind, not across) in self.done or (kind, not across) in self.known
        where = " between nodes" if across else " inside nodes" if both else ""
        return f"{count} {row.word}{plural}{' of a micro-batch' * row.by_batch}{where}"

    def on_the_chain(self) -> str:
        """Return what takes most more of the longest chain than of the goal's, with what to do about it."""
        none = Effort(0, 0.0)
        excess = {word: own.ticks - self.their_chain.get(word, none).ticks for word, own in self.chain.items()}
        word = max(excess, key=lambda one: excess[one], default="")
        if word in self.named:  # more of it is done, which has been said
            aside = {word_of(kind): excess.get(word_of(kind), 0) for kind in ASIDE if self._is_alone(kind)}
            word = max(aside, key=lambda one: aside[one], default="")
        if not word or excess[word] <= NEARLY or word in self.named:
            return ""
        said = self._on_chain(word)
        return f"{said}{self._others_beside(excess, word)}" if AT_THE_END in said else said

    def _others_beside(self, excess: Mapping[str, float], but: str) -> str:
        """Return, as a sentence to be added, beside what a call could be on its way of which more is on the longest
        chain than on the goal's, before the last backward; or an empty text. ``excess``: by the words of a chain."""
        words = {word_of(kind): kind for kind in in_stream("collective")}
        ranks = by_rank(self.outcome.events)
        for word in sorted(excess, key=lambda one: -excess[one]):
            if word != but and word in words and excess[word] > NEARLY and word not in self.named:
                calls = [one for one in self.in_order if one.kind == words[word] and one.length]
                if beside := beside_in_words(ranks, calls):
                    return f". {beside[0].upper()}{beside[1:]}"
        return ""

    def _is_alone(self, kind: str) -> bool:
        """Return whether much of the longest chain is operations of a verb that run while their rank's links are
        idle."""
        ranks = by_rank(self.outcome.events)
        mine = [one for one in self.events_on_chain if one.kind == kind]
        calls = {rank: [one for one in own if one.stream == "collective"] for rank, own in ranks.items()}
        alone = [one for one in mine if not any(is_beside(call, one.start, one.end) for call in calls[one.rank])]
        return sum(one.length for one in alone) > MUCH * self.outcome.time

    def _mostly_waiting(self) -> str:
        """Return which communication the longest chain waits for, where that costs more than that there is more of it
        than in the goal's program; or an empty text."""
        more = defaultdict[str, float](float)
        for (kind, across), own in self.done.items():
            ours = self.known.get((kind, across), Effort(0, 0.0))
            more[word_of(kind)] += max(0, own.times - ours.times) * own.ticks / own.times
        none = Effort(0, 0.0)
        waits = {
            word: own.ticks - self.their_chain.get(word, none).ticks - 2 * more[word]
            for word, own in self.chain.items()
            if word in self.named and any(word_of(kind) == word for kind in in_stream("collective", "message"))
        }
        word = max(waits, key=lambda one: waits[one], default="")
        return self._on_chain(word) if word and waits[word] > NEARLY else ""

    def _on_chain(self, word: str) -> str:
        """Return how much of an operation is on the longest chain, and on the goal's, with what to do about it."""
        none = Effort(0, 0.0)
        own, theirs = self.chain[word], self.their_chain.get(word, none)
        plural = "" if own.times == 1 or word == MESSAGES or " " in word else "es" if word.endswith("s") else "s"
        said = f"{own.times} {word}{plural}{self._layers_on_chain(word)} ({self._lasting(own.ticks)}) "
        said += f"{'is' if own.times == 1 else 'are'} on the longest chain, on that of the {self.goal} "
        said += f"{theirs.times or 'none'}"
        said += f" ({self._lasting(theirs.ticks)})" * bool(theirs.times)
        advice = self._advice(word)
        return f"{said}: {advice}" if advice else said

    def _layers_on_chain(self, word: str) -> str:
        """Return of which layers the collectives of a word are that stand on the longest chain, where these are few."""
        on_chain = {
            event for event in self.events_on_chain if event.stream == "collective" and word_of(event.kind) == word
        }
        layers = {event.layer for event in on_chain if event.layer is not None and not event.layers}
        return f" of {numbered('layer', layers)}" if 0 < len(layers) <= MOST_LINES else ""

    def _advice(self, word: str) -> str:
        """Return what to do about an operation that is no more work than the goal's, but more of the chain."""
        [kind, *_] = [kind for kind in OPERATIONS if word_of(kind) == word]
        collectives = sum(event.length for event in self.events_on_chain if event.stream == "collective")
        if word == MESSAGES and self.order.ahead:
            return ""  # which order helps has been said
        if word == MESSAGES and (sent := self._output_sent()):
            return sent
        if word == MESSAGES:
            own = messages_in_words(self.outcome.events, self.in_order, self._line_of)
            found = [one for one in (self._late_send(), self._early_receive(), own) if one is not None]
            plain = "start a send or a receive before the work that does not need it, and await it after that"
            return min(found, key=lambda one: one.at, default=Told(0, plain)).words
        needless = tuple(needless_waits(self.outcome.device_events))
        if OPERATIONS[kind].stream == "collective":
            if early := needless_in_words(needless, self.events_on_chain, kind):
                return early
            if of_sums := sums_in_words(self.outcome.events, self.in_order, kind, self._lasting):
                return of_sums
            weights = [one for one in self.in_order if one.kind == kind and one.tensor == "Weight" and one.length]
            ahead = "make the call before the work that does not need its result, and await it where it is needed"
            if behind := behind_in_words(by_rank(self.outcome.events), weights):
                return behind
            if self._gathers_for_use(kind):
                ahead = "gather the next layer's weight before the work of this one"
            beside = beside_in_words(by_rank(self.outcome.events), weights)
            return f"{ahead} ({beside})" if beside else ahead
        if kind in ASIDE and not any(event.kind == SEND.kind for event in self.outcome.events):
            return "start the next call first, and do these while it is on its way"
        if kind in ASIDE:
            sends = self._before_a_send(kind)
            if kind == UPDATE.kind and not sends and (gap := self._idle_before(kind)):
                return gap
            ranks = sends or {event.rank for event in self.events_on_chain if event.kind == kind}
            if kind == BACKWARD_WEIGHT.kind and (late := self.order.late_halves(ranks)):
                return f"{late}{''.join(self._halves_at_the_end())}"
            on = f", on {numbered('rank', ranks)}" * (0 < len(ranks) < self.outcome.ranks)
            halves = ": the weight half of a micro-batch after the input half of the next one"
            if self._is_large_on(ranks):
                halves = ", but no later than right after what others wait for is sent: memory is over, too"
            halves += "".join(self._halves_at_the_end())
            these = f"do these afterwards{on}{halves * (kind == BACKWARD_WEIGHT.kind)}"
            return f"let what others wait for go on first, and {these}"
        if self.outcome.hosts:
            return (
                "device and host work one after the other there: send each gradient as soon as it is there, and go on"
            )
        if early := needless_in_words(needless, self.events_on_chain):
            return early
        if collectives > MUCH * self.outcome.time:
            if kind == BACKWARD.kind and (gather := inputs_in_words(by_rank(self.outcome.events), self.in_order)):
                return gather
            of_weights = [one.kind for one in self.outcome.events if one.tensor == "WeightGrad" and sums(one.kind)]
            such = f", as {of_weights[0]} of a gradient right after its backward" if of_weights else ""
            goes_on = "and go on with the next layer while it is on its way"
            return f"make a call as soon as what it needs is there{such}, {goes_on}"
        if kind in (FORWARD.kind, BACKWARD.kind) and self.order.thick:
            advice = "each rank has one thick stage of several layers, the {}'s ranks have several thin ones: deal the "
            dealt_out = (
                "stage, model.LAYERS, stages"
                if self.puzzle.size.get("mesh")
                else "model.rank, model.LAYERS, model.RANKS"
            )
            return f"{advice.format(self.goal)}layers out, range({dealt_out})"
        computing = sum(event.length for event in self.outcome.device_events if event.stream == "compute")
        if self.outcome.ranks > 1 and computing <= self.outcome.time:
            return "the ranks work one after the other: let each begin its next micro-batch while others work"
        return ""

    def _line_of(self, event: Event, at: int) -> str:
        """Return the learner's line of an event, at its place in the log of its rank, or an empty text."""
        return next(iter(self.lines_at(event.rank, [at])), "")

    def _output_sent(self) -> str:
        """Return which rank sends the output of the last layer; or an empty text."""
        for rank, own in by_rank(self.outcome.events).items():
            sent = (SEND.kind, "Activation", self.outcome.layers)
            at = next((at for at, one in enumerate(own) if (one.kind, one.tensor, one.layer) == sent), None)
            if at is not None:
                line = self._line_of(own[at], at)
                sends = f"rank {rank} sends away the output of the last layer{f' ({line})' if line else ''}"
                return (
                    f"{sends}: the rank that has run that layer calls model.loss itself, and the gradient stays there"
                )
        return ""

    def _late_send(self) -> Told | None:
        """Return which send of the longest chain could be made before a computation."""
        if (found := late_send(self.outcome.events, self.in_order)) is None:
            return None
        event, at, before = found
        line = self._line_of(event, at)
        what = f"the {KINDS[event.tensor or ''].word}" + (f" ({line})" if line else "")
        said = (
            f"rank {event.rank} sends {what} after {show_call(before.kind, before.layer)}, which does not change them"
        )
        return Told(self.in_order.index(event), f"{said}: make that pass_to before it, and await it after it")

    def _early_receive(self) -> Told | None:
        """Return which message of the longest chain could be awaited after a computation."""
        if (found := early_receive(self.outcome.events, self.in_order)) is None:
            return None
        came, place, then = found
        line = self._line_of(came, place)
        what = f"the {KINDS[came.tensor or ''].word}" + (f" ({line})" if line else "")
        waits = f"rank {came.rank} waits for {what} before {show_call(then.kind, then.layer)}, which does not need it"
        at = next(at for at, one in enumerate(self.in_order) if one.kind == SEND.kind and one.op == came.op)
        return Told(at, f"{waits}: await that receive a step later, right before what came is added")

    def _halves_at_the_end(self) -> Iterator[str]:
        """Yield, as the end of a sentence, which rank has several weight halves on the longest chain after its last
        input half."""
        on_chain = defaultdict[int, list[Event]](list)
        for event in self.events_on_chain:
            if event.kind == BACKWARD_WEIGHT.kind:
                on_chain[event.rank].append(event)
        for rank, halves in sorted(on_chain.items()):
            own = [
                event.end for event in self.outcome.events if event.rank == rank and event.kind == BACKWARD_INPUT.kind
            ]
            left = [event for event in halves if event.start >= max(own, default=0.0)]
            if len({event.batches for event in left}) > 1:
                some = numbered("micro-batch", {batch for event in left for batch in event.batches})
                has = f". Rank {rank} has those of {some} left after its last input half"
                yield f"{has}: do one where it is idle before"

    def _gathers_for_use(self, kind: str) -> bool:
        """Return whether a collective of this verb brings a weight that the next computation of its rank reads."""
        if kind != ALLGATHER.kind:
            return False
        calls = [one for one in self.events_on_chain if one.kind == kind and one.tensor == "Weight"]
        call = min(calls, key=lambda one: (one.start, one.rank), default=None)
        own = [one for one in self.outcome.events if call is not None and one.rank == call.rank]
        after = next((one for one in own if call and one.stream == "compute" and one.start >= call.end), None)
        return call is not None and after is not None and after.layer == call.layer and after.kind != UPDATE.kind

    def _idle_before(self, kind: str) -> str:
        """Return in which gap a rank could carry out an operation of this verb that is on the longest chain, after all
        that it sends; or an empty text. Each is made for a layer of which the gradient is complete by then."""
        by_rank = defaultdict[int, list[Event]](list)
        for event in self.outcome.events:
            by_rank[event.rank].append(event)
        waiting = Waiting(by_rank, self.outcome.time)
        for late in sorted((one for one in self.events_on_chain if one.kind == kind), key=lambda one: one.start):
            own = by_rank[late.rank]
            ready = max((one.end for one in own if one.tensor == "WeightGrad" and one.layer == late.layer), default=0.0)
            for gap in waiting.gaps(late.rank):
                begins = max(gap.start, ready)
                if gap.call is not None and gap.end - begins > NEARLY and gap.end <= late.start:
                    when, idle = self.unit.at(self.unit.brief(_rounded(begins))), self._lasting(gap.end - begins)
                    waits = (
                        f"rank {late.rank} waits {idle} for {show_call(gap.call.kind, gap.call.layer)} from {when} on"
                    )
                    done = f"and has the whole gradient of layer {late.layer} by then"
                    return f"{waits}, {done}: do {show_call(kind, late.layer)} there, and not at the end"
        return ""

    def _before_a_send(self, kind: str) -> set[int]:
        """Return the ranks that send something after an operation of this verb that is on the longest chain."""
        last = dict[int, float]()
        for event in self.outcome.events:
            if event.kind == SEND.kind:
                last[event.rank] = max(event.start, last.get(event.rank, 0.0))
        on_chain = [event for event in self.events_on_chain if event.kind == kind]
        return {event.rank for event in on_chain if event.end <= last.get(event.rank, 0.0)}

    def late_messages(self) -> str:
        """Return for what message a rank waits longest though its sender could have sent it, or an empty text."""
        found = sorted(late_messages(self.outcome, self.events_on_chain), key=lambda late: -late.delay)
        together = sum(one.delay for one in found)
        if together <= solution_lateness(self.puzzle, self.goal) + NEARLY:
            return ""
        late = found[0]
        layers = several_stages(self.outcome)  # then the micro-batch alone does not tell which stage's it is
        what = f"the {KINDS[late.send.tensor].word}" if late.send.tensor else "a value"
        what += f" of layer {late.send.layer}," * (layers and late.send.layer is not None)
        what += f"{' of' * (not layers)} {numbered('micro-batch', late.send.batches)}" if late.send.batches else ""
        ready, sent = (self.unit.at(self.unit.brief(_rounded(tick))) for tick in (late.ready, late.send.issued))
        said = f"rank {late.rank} waits {self._lasting(late.delay)} for {what}: rank {late.send.rank} could send it "
        said += f"at {ready} and does at {sent}, since it does {named_in_words(late.between, layers)} first"
        others = len(found) - 1
        return said + (f" ({others} more such waits, {self._lasting(together)} in all)" if others else "")


def _rounded(ticks: float) -> float:
    """Return a time with four digits, which is enough to be read."""
    return float(f"{ticks:.4g}")
