"""What PyTorch starts in a step of training: work, collectives and sends of a rank in their order, for any sizes.

Nothing here needs torch. Each order was written down from recordings of the version below, and a test records anew and
compares (``tests/torch_truth``). It is the order in which the program makes its calls. A GPU then carries them out side
by side: what is computed in one queue, what is sent in others.

>>> at = Rank(0, (0, 1), layers=2, turns=1)
>>> print(*fully_shard(at))
0AG 0F0 1AG 1F0 1AG 0AG 1B0 1RS 0B0 0RS U
>>> print(*ddp(at))
0F0 1F0 1B0 1AR 0B0 0AR U
>>> print(*gpipe(Rank(0, (0, 1), layers=2, turns=2)))
0F0 >1 0F1 >1 0B0 0B1 U
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..basics.errors import PuzzleError
from ..record.codes import Code
from ..record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from ..record.table import SEND
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD
from ..record.training import UPDATE as OPTIMIZER

TORCH = "2.13"
"""The version of PyTorch that was recorded."""


class Step(NamedTuple):
    """One call. ``turn`` counts the micro-batches of a rank, in the order in which it first works on them; a collective
    has none. ``group`` has the ranks of a collective, or (sender, receiver)."""

    kind: str  # our verb for it: ``forward``, ``allgather``, ``pass_to`` ...
    layers: tuple[int, ...] = ()
    turn: int | None = None
    group: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.kind == SEND.kind:
            return str(Code(self.kind, None, frozenset(self.group[1:])))
        turns = frozenset() if self.turn is None else frozenset({self.turn})
        return str(Code(self.kind, self.layers[0] if self.layers else None, turns, self.layers[1:] and self.layers))


class Rank(NamedTuple):
    """A rank, and what it has to do."""

    place: int  # where it stands among ``members``
    members: tuple[int, ...]  # the ranks between which the layers are divided, or each layer, or the micro-batches
    layers: int
    turns: int  # its micro-batches
    twins: tuple[int, ...] = ()  # the ranks that have the same shards, this one among them


Work = tuple[str, int, int]
"""A verb, a stage of a pipeline, and a turn."""
UPDATE = Step(OPTIMIZER.kind)
"""The optimizer's step: all layers of the rank at once."""


# -- each rank has all layers ------------------------------------------------------------------------------------


def plain(at: Rank) -> list[Step]:
    """Training without anybody else: ``backward()`` for each micro-batch, then the optimizer's ``step()``."""
    passes = [(kind, turn) for turn in range(at.turns) for kind in (FORWARD.kind, BACKWARD.kind)]
    return [*(step for kind, turn in passes for step in _pass(kind, range(at.layers), turn)), UPDATE]


def ddp(at: Rank) -> list[Step]:
    """``DistributedDataParallel`` from the second step on, ``no_sync()`` in all turns but the last. Each layer
    fills a bucket."""
    steps = []
    for step in plain(at):
        steps.append(step)
        if step.kind == BACKWARD.kind and step.turn == at.turns - 1:
            steps.append(Step(ALLREDUCE.kind, step.layers, None, at.members))
    return steps


def fully_shard(at: Rank) -> list[Step]:
    """FSDP2: ``fully_shard`` on every layer, then on the model. With ``twins`` on a mesh of replicas and shards, which
    sum after the last turn: ``set_requires_all_reduce(False)`` in the others."""
    steps = []
    for turn in range(at.turns):
        for forward in _pass(FORWARD.kind, range(at.layers), turn):
            steps += [Step(ALLGATHER.kind, forward.layers, None, at.members), forward]
        steps.append(Step(ALLGATHER.kind, (at.layers - 1,), None, at.members))
        for backward in _pass(BACKWARD.kind, range(at.layers), turn):
            [layer] = backward.layers
            if layer > 0:
                steps.append(Step(ALLGATHER.kind, (layer - 1,), None, at.members))
            steps += [backward, Step(SCATTERREDUCE.kind, (layer,), None, at.members)]
            if at.twins and turn == at.turns - 1:
                steps.append(Step(ALLREDUCE.kind, (layer,), None, at.twins))
    return [*steps, UPDATE]


def _pass(kind: str, layers: range, turn: int) -> list[Step]:
    """Return work on some layers, from the top down unless it is a forward pass."""
    return [Step(kind, (layer,), turn) for layer in (layers if kind == FORWARD.kind else reversed(layers))]


# -- pipelines -----------------------------------------------------------------------------------------------------


def gpipe(at: Rank) -> list[Step]:
    """``ScheduleGPipe``."""
    work = [(kind, at.place, turn) for kind in (FORWARD.kind, BACKWARD.kind) for turn in range(at.turns)]
    return _steps(at, work, at.layers // len(at.members))


def one_f_one_b(at: Rank) -> list[Step]:
    """``Schedule1F1B``. Raise PuzzleError where it refuses to work: with fewer micro-batches than ranks."""
    if at.turns < len(at.members):
        problem = "PyTorch's Schedule1F1B wants at least as many micro-batches as ranks"
        raise PuzzleError(problem, got=f"{at.turns} on {len(at.members)} ranks")
    forwards = [(FORWARD.kind, at.place, turn) for turn in range(at.turns)]
    ahead = min(len(at.members) - at.place, at.turns)
    work = forwards[:ahead]
    for turn in range(at.turns):
        work += [(BACKWARD.kind, at.place, turn), *forwards[turn + ahead : turn + ahead + 1]]
    return _steps(at, work, at.layers // len(at.members))


def interleaved(at: Rank) -> list[Step]:
    """``ScheduleInterleaved1F1B``, with a layer in each stage."""
    forwards, backwards, ahead = _rounds(at, 2)
    work = forwards[:ahead]
    for turn, backward in enumerate(backwards, ahead):
        work += [*forwards[turn : turn + 1], backward]
    return _steps(at, work)


def looped_bfs(at: Rank) -> list[Step]:
    """``ScheduleLoopedBFS``, with a layer in each stage."""
    mine = range(at.place, at.layers, len(at.members))
    forwards = [(FORWARD.kind, stage, turn) for stage in mine for turn in range(at.turns)]
    return _steps(at, [*forwards, *[(BACKWARD.kind, stage, turn) for _, stage, turn in reversed(forwards)]])


def zero_bubble(at: Rank) -> list[Step]:
    """``ScheduleInterleavedZeroBubble``, with a layer in each stage."""
    forwards, backwards, ahead = _rounds(at, 1)
    inputs, weights = ([(kind, *one[1:]) for one in backwards] for kind in (BACKWARD_INPUT.kind, BACKWARD_WEIGHT.kind))
    work = forwards[:ahead]
    for turn, half in enumerate(inputs):
        work += [*forwards[turn + ahead : turn + ahead + 1], half]
        if turn >= at.place:
            work.append(weights.pop(0))
    return _steps(at, [*work, *weights])


def zbv(at: Rank) -> list[Step]:
    """``ScheduleZBVZeroBubble``: two stages on each rank, in a V."""
    ranks, lower, upper = len(at.members), at.place, 2 * len(at.members) - 1 - at.place
    ahead = ranks - at.place
    stages = [[(row.kind, stage) for row in (FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)] for stage in (upper, lower)]
    (up, up_input, up_weight), (down, down_input, down_weight) = stages
    pieces = [down] * (2 * ahead - 1) + [up, down] * at.place + [up, up_input, up_weight] * ahead
    pieces += [down, down_input, down_weight, up, up_input, up_weight] * (max(at.turns, 2 * ranks - 1) - ranks)
    pieces += [down_input, up_input] * at.place + [down_input, down_weight] * ahead
    pieces += [up_weight] * at.turns + [down_weight] * at.turns  # what is left of these
    turns = defaultdict[Any, Iterator[int]](lambda: iter(range(at.turns)))
    work = [(*one, turn) for one in pieces if (turn := next(turns[one], None)) is not None]
    return _steps(at, work, at.layers // (2 * ranks), in_a_v=True)


def dual_pipe_v(at: Rank) -> list[Step]:
    """``ScheduleDualPipeV``: two stages on each rank, in a V, and pairs of a forward and a backward. Raise PuzzleError
    where it refuses to work: with fewer micro-batches than stages."""
    ranks, lower, upper = len(at.members), at.place, 2 * len(at.members) - 1 - at.place
    if at.turns < 2 * ranks:
        problem = "PyTorch's ScheduleDualPipeV wants at least as many micro-batches as stages"
        raise PuzzleError(problem, got=f"{at.turns} for {2 * ranks} stages")
    stages = [[(row.kind, stage) for row in (FORWARD, BACKWARD, BACKWARD_INPUT)] for stage in (upper, lower)]
    (up, up_back, up_input), (down, down_back, down_input) = stages
    weight = BACKWARD_WEIGHT.kind, lower  # or of the upper stage: the half that waits longest
    below, ahead = at.place + 1, ranks - at.place - 1
    pairs = [(down, up_back), (up, down_back)] * (at.turns - 2 * ranks + below)
    pieces: list[Any] = [down] * 2 * ahead + [down, up] * below + [up_input, weight, up] * ahead
    pieces += pairs if ahead else [*pairs[0], *pairs[1:]]  # the first is no pair on the last rank
    pieces += [up_back, (up, down_back)] * ahead
    pieces += ([up_back, down_back] * below)[:below] + ([up_input, down_input] * below)[below:]
    pieces += [weight, down_input] * ahead
    turns, later = Counter[tuple[bool, int]](), deque[Work]()

    def numbered(kind: str, stage: int) -> Work:
        if kind == BACKWARD_WEIGHT.kind:
            return later.popleft()
        turn = turns[kind == FORWARD.kind, stage]
        turns[kind == FORWARD.kind, stage] += 1
        if kind == BACKWARD_INPUT.kind:
            later.append((BACKWARD_WEIGHT.kind, stage, turn))
        return kind, stage, turn

    work = [numbered(*one) if isinstance(one[0], str) else (numbered(*one[0]), numbered(*one[1])) for one in pieces]
    return _steps(at, [*work, *later], at.layers // (2 * ranks), in_a_v=True)


def _rounds(at: Rank, hop: int) -> tuple[list[Work], list[Work], int]:
    """Return a rank's forwards and backwards in rounds of micro-batches, and how many forwards come first: ``hop`` more
    for each rank that comes after. Raise PuzzleError where PyTorch refuses to work: with rounds of unequal sizes."""
    ranks, mine = len(at.members), range(at.place, at.layers, len(at.members))
    if at.turns % max(1, at.turns // ranks):
        problem = f"PyTorch's interleaved schedules want rounds of equally many micro-batches, {at.turns // ranks} here"
        expected = f"such as {at.turns // ranks * ranks} micro-batches"
        raise PuzzleError(problem, expected=expected, got=f"{at.turns} micro-batches")
    size = at.turns // max(1, at.turns // ranks)
    rounds = [range(first, first + size) for first in range(0, at.turns, size)]
    forwards = [(FORWARD.kind, stage, turn) for some in rounds for stage in mine for turn in some]
    backwards = [(BACKWARD.kind, stage, turn) for some in rounds for stage in reversed(mine) for turn in some]
    ahead = (len(mine) - 1) * size + hop * (ranks - 1 - at.place)
    return forwards, backwards, min(ahead, len(forwards))


def _steps(at: Rank, work: Iterable[Work | tuple[Work, Work]], share: int = 1, in_a_v: bool = False) -> list[Step]:
    """Return work layer by layer, each followed by the send of its result, and a pair by the sends of both. ``share``:
    the layers of a stage. ``in_a_v``: whether stages come back up the ranks, instead of beginning anew."""
    steps = list[Step]()
    for each in work:
        pair = (each,) if isinstance(each[0], str) else each
        for kind, stage, turn in pair:
            steps += _pass(kind, range(stage * share, (stage + 1) * share), turn)
        for one in pair:
            steps += _sent(at, one, share, in_a_v)
    return [*steps, UPDATE]


def _sent(at: Rank, work: Work, share: int, in_a_v: bool) -> list[Step]:
    """Return the send of what a piece of work has made, if the stage that reads it is on another rank."""
    (kind, stage, turn), ranks = work, len(at.members)
    border, reader = ((stage + 1) * share, stage + 1) if kind == FORWARD.kind else (stage * share, stage - 1)
    place = 2 * ranks - 1 - reader if in_a_v and reader >= ranks else reader % ranks
    if kind == BACKWARD_WEIGHT.kind or not 0 < border < at.layers or place == at.place:
        return []
    return [Step(SEND.kind, (border,), turn, (at.members[at.place], at.members[place]))]
