"""What the simulator decides alone: whatever the learner's side has let through, or a worker has sent, is checked
again."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from lib import Model, PuzzleError, run
from lib.machine.cost import Shape
from lib.machine.rank_state import MADE_UP, RankState, TensorState
from lib.machine.simulator import LocalSimulator
from lib.record.labels import Labels
from lib.record.shards import FINEST
from tests.programs import solved

RANKS, LAYERS, BATCHES = 4, 3, 2
BOTH = frozenset(range(BATCHES))


def opened(graded: bool = True) -> tuple[LocalSimulator, list[RankState]]:
    """Simulator with ranks of three layers and two micro-batches."""
    simulator = LocalSimulator(Shape.of(RANKS), graded)
    return simulator, [simulator.open(rank, LAYERS, BATCHES) for rank in range(RANKS)]


Ask = Callable[[LocalSimulator, RankState, Any], Any]
NUMBERS: dict[str, tuple[str, int, Ask]] = {  # the operation, how many numbers there are, and how it is asked
    "load_weights, layer": ("load_weights", LAYERS, lambda simulator, rank, n: simulator.load_weights(rank, n, 0, 1)),
    "load_weights, shard": ("load_weights", 5, lambda simulator, rank, n: simulator.load_weights(rank, 0, n, 5)),
    "get_activation": (
        "get_activation",
        BATCHES,
        lambda simulator, rank, n: simulator.get_activation(rank, frozenset({n})),
    ),
    "fake_grad, layer": ("fake_grad", LAYERS, lambda simulator, rank, n: simulator.fake_grad(rank, n, frozenset())),
    "fake_grad": ("fake_grad", BATCHES, lambda simulator, rank, n: simulator.fake_grad(rank, 0, frozenset({0, n}))),
    "set_final_weight": (
        "set_final_weight",
        LAYERS,
        lambda simulator, rank, n: simulator.set_final_weight(
            rank, n, simulator.load_weights(rank, n if n in range(LAYERS) else 0, 0, 1)[0]
        ),
    ),
    "pass_to": ("pass_to", RANKS, lambda simulator, rank, n: simulator.pass_to(rank, n, None, "text")),
    "receive": ("receive", RANKS, lambda simulator, rank, n: simulator.receive(rank, n)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_go_from_zero_to_one_below_how_many_there_are(name: str) -> None:
    operation, how_many, ask = NUMBERS[name]
    for number in range(how_many):
        simulator, ranks = opened()
        ask(simulator, ranks[2 if number < 2 else 1], number)  # not to itself
    for number in (-1, how_many, how_many + 1):
        simulator, ranks = opened()
        with pytest.raises(PuzzleError, match="out of range") as raised:
            ask(simulator, ranks[3], number)
        assert (raised.value.place.rank, raised.value.place.operation) == (3, operation)
        assert raised.value.expected.endswith(f"from 0 to {how_many - 1}")
        assert ranks[3].log == [] or operation == "set_final_weight"  # a refusal leaves no trace


class Index:
    """Like the numbers of other libraries: no int, but as good as one."""

    def __index__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "name", ["load_weights, layer", "load_weights, shard", "fake_grad, layer", "pass_to", "receive"]
)
def test_what_is_no_whole_number_is_refused_and_what_is_as_good_as_one_is_one(name: str) -> None:
    operation, _, ask = NUMBERS[name]
    for other in (True, False, 1.0, 0.5, "1", [1]):
        simulator, ranks = opened()
        with pytest.raises(PuzzleError, match="out of range") as raised:
            ask(simulator, ranks[3], other)
        assert (raised.value.place.operation, raised.value.got) == (operation, repr(other))
    simulator, ranks = opened()
    made = ask(simulator, ranks[3], Index())
    if operation in ("pass_to", "receive"):
        assert made.peer == 1 and type(made.peer) is int
    else:
        labels = (made[0] if isinstance(made, tuple) else made).labels
        assert {type(number) for number in (labels.layer, *labels.shards)} == {int}
        assert 1 in (labels.layer, *labels.shards)


@pytest.mark.parametrize("pieces", [1, 2, FINEST])
def test_a_weight_is_cut_into_one_piece_up_to_the_finest(pieces: int) -> None:
    simulator, ranks = opened()
    weight, state = simulator.load_weights(ranks[0], 2, pieces - 1, pieces)
    assert (weight.labels.kind, state.labels.kind) == ("Weight", "OptState")
    assert {(one.labels.layer, one.labels.shards, one.labels.total) for one in (weight, state)} == {
        (2, frozenset({pieces - 1}), pieces)
    }


@pytest.mark.parametrize("pieces", [-1, 0, FINEST + 1])
def test_a_weight_is_cut_into_no_other_number_of_pieces(pieces: int) -> None:
    simulator, ranks = opened()
    with pytest.raises(PuzzleError, match=f"(?s)cannot be cut into so many pieces.*{pieces} shards"):
        simulator.load_weights(ranks[0], 0, 0, pieces)


@pytest.mark.parametrize("way", ["load_weights", "shard"])
def test_numbers_of_pieces_that_do_not_go_together_are_refused_before_sizes_grow_without_end(way: str) -> None:
    """Of a weight in thirds, one in fifths and so on, the sum of sizes is a fraction: of 256 binary digits at most."""
    simulator, ranks = opened()
    whole, _ = simulator.load_weights(ranks[0], 0, 0, 1)
    common, chosen = 1, (n for n in count(3) if all(n % other for other in range(2, int(n**0.5) + 1)))  # primes

    def cut(pieces: int) -> None:
        if way == "shard":
            whole.shard(0, pieces)
        else:
            simulator.load_weights(ranks[1], 1, 0, pieces)

    while common * (prime := next(chosen)) <= 1 << 256:
        cut(prime)
        common *= prime
    assert common > 1 << 255
    for pieces in (prime, 2):
        with pytest.raises(PuzzleError, match=f"too many different numbers of pieces, now into {pieces}"):
            cut(pieces)
    for pieces in (3, 35, 1):  # what goes into what there is makes nothing finer
        cut(pieces)


def test_a_rank_sends_itself_nothing() -> None:
    simulator, ranks = opened()
    with pytest.raises(PuzzleError, match="rank 1, pass_to: a rank cannot pass to itself"):
        simulator.pass_to(ranks[1], 1, None, "text")
    with pytest.raises(PuzzleError, match="rank 1, receive: a rank cannot receive from itself"):
        simulator.receive(ranks[1], 1)


def test_an_activation_is_of_some_micro_batch_and_a_gradient_of_none_is_no_lie() -> None:
    for graded in (True, False):
        simulator, ranks = opened(graded)
        with pytest.raises(PuzzleError, match="at least one micro-batch"):
            simulator.get_activation(ranks[0], frozenset())
        assert simulator.fake_grad(ranks[0], 0, frozenset()).origin is None
        assert simulator.fake_grad(ranks[0], 0, frozenset({1})).origin == MADE_UP


def test_a_graded_machine_has_one_model_a_rank_and_by_hand_a_new_one_takes_its_place() -> None:
    simulator, ranks = opened()
    with pytest.raises(PuzzleError, match="rank 2 of this machine has its Model"):
        simulator.open(2, LAYERS, BATCHES)
    simulator, ranks = opened(graded=False)
    again = simulator.open(2, LAYERS, BATCHES)
    assert again is not ranks[2] and again.log == []


WAYS: dict[str, Callable[[LocalSimulator, RankState, TensorState], Any]] = {
    "set_final_weight": lambda simulator, rank, weight: simulator.set_final_weight(rank, 1, weight),
    "allgather": lambda simulator, rank, weight: simulator.meet(rank, "allgather", weight, 1, None),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_weight_of_another_layer_is_refused(way: str) -> None:
    simulator, ranks = opened()
    for layer in (0, 2):
        with pytest.raises(PuzzleError, match=f"of layer {layer}$|of layer {layer}\n") as raised:
            WAYS[way](simulator, ranks[0], simulator.load_weights(ranks[0], layer, 0, 2)[0])
        assert (raised.value.place.operation, raised.value.place.layer) == (way, 1)
        assert raised.value.expected == "layer 1"
    WAYS[way](simulator, ranks[0], simulator.load_weights(ranks[0], 1, 0, 2)[0])


def test_by_hand_and_with_the_rules_off_a_gather_names_what_it_likes() -> None:
    """By hand layers are often left as they are; with the rules off, the values have to tell."""
    for graded, strict in ((False, True), (True, False)):
        simulator = LocalSimulator(Shape.of(1), graded, strict)
        rank = simulator.open(0, LAYERS, BATCHES)
        simulator.meet(rank, "allgather", simulator.load_weights(rank, 0, 0, 1)[0], 1, None)
    simulator.set_final_weight(rank, 2, simulator.load_weights(rank, 1, 0, 1)[0])


USES: dict[str, tuple[Any, Callable[[LocalSimulator, RankState, TensorState], Any]]] = {  # the layer that is named
    "forward": (0, lambda simulator, rank, one: simulator.compute(rank, "forward", 0, [one, one])),
    "loss": (None, lambda simulator, rank, one: simulator.compute(rank, "loss", None, [one])),
    "allgather": (0, lambda simulator, rank, one: simulator.meet(rank, "allgather", one, 0, None)),
    "set_final_weight": (0, lambda simulator, rank, one: simulator.set_final_weight(rank, 0, one)),
    "pass_to(3)": (None, lambda simulator, rank, one: simulator.pass_to(rank, 3, one, None)),
    "storing it": (None, lambda simulator, rank, one: simulator.store(rank, one)),
}


@pytest.mark.parametrize("use", USES)
def test_whoever_uses_a_tensor_that_is_not_its_own_is_told(use: str) -> None:
    layer, ask = USES[use]
    simulator, ranks = opened()
    for foreign in (simulator.load_weights(ranks[1], 0, 0, 1)[0], simulator.fake_grad(ranks[1], 0, frozenset())):
        with pytest.raises(PuzzleError, match="belongs to rank 1") as raised:
            ask(simulator, ranks[2], foreign)
        assert (raised.value.place.rank, raised.value.place.operation, raised.value.place.layer) == (2, use, layer)
    with pytest.raises(PuzzleError, match="is made up"):
        ask(simulator, ranks[2], simulator.fake_grad(ranks[2], 0, BOTH))
    for lost in (simulator.load_weights(ranks[2], 0, 0, 1)[0], simulator.fake_grad(ranks[2], 0, frozenset())):
        simulator.compute(ranks[2], "loss", None, [last(simulator, ranks[2])])
        with pytest.raises(PuzzleError, match=r"was not stored when rank 2 issued loss") as raised:
            ask(simulator, ranks[2], lost)
        assert (raised.value.place.rank, raised.value.place.operation, raised.value.place.layer) == (2, use, layer)


def test_what_is_cut_joined_or_added_is_the_ranks_own_and_alive() -> None:
    simulator, ranks = opened()
    zero, other = (simulator.fake_grad(rank, 0, frozenset()) for rank in ranks[2:])
    piece, missing = (simulator.load_weights(rank, 0, place, 2)[0] for place, rank in enumerate(ranks[2:]))
    for ask, operation in ((lambda: zero.add(other), "+"), (lambda: piece.combine(missing), "combine")):
        with pytest.raises(PuzzleError, match="belongs to rank 3") as raised:
            ask()
        assert (raised.value.place.rank, raised.value.place.operation) == (2, operation)
    simulator.compute(ranks[2], "loss", None, [last(simulator, ranks[2])])
    own = simulator.load_weights(ranks[2], 0, 1, 2)[0]
    for ask, operation in (
        (lambda: zero.add(zero), "+"),
        (lambda: piece.shard(0, 2), "shard"),
        (lambda: own.combine(piece), "combine"),
    ):
        with pytest.raises(PuzzleError, match="was not stored when rank 2 issued loss") as raised:
            ask()
        assert (raised.value.place.rank, raised.value.place.operation) == (2, operation)


def last(simulator: LocalSimulator, rank: RankState) -> TensorState:
    """What the last layer gives."""
    labels = Labels("Activation", LAYERS, LAYERS, batches=BOTH, total_batches=BATCHES)
    return rank.mint(labels, rank.values.inputs(BOTH))


def test_what_comes_of_something_made_up_is_made_up() -> None:
    simulator, [rank, *_] = opened(graded=False)
    weight, state = simulator.load_weights(rank, 0, 0, 1)
    simulator.store(rank, weight)
    simulator.store(rank, state)
    fake, zero = simulator.fake_grad(rank, 0, BOTH), simulator.fake_grad(rank, 0, frozenset())
    for one in (fake.shard(0, 2), fake.shard(0, 2).combine(fake.shard(1, 2)), fake.add(zero), zero.add(fake)):
        assert one.origin == MADE_UP
    for one in (zero.shard(0, 2), zero.shard(0, 2).combine(zero.shard(1, 2)), zero.add(zero)):
        assert one.origin is None
    new = simulator.compute(rank, "update", 0, [fake, weight, state])
    assert [one.origin for one in new] == [MADE_UP, MADE_UP]
    simulator.set_final_weight(rank, 0, new[0])
    assert rank.finals[0].made_up


def test_what_is_stored_is_counted_as_often_as_it_is_in_memory() -> None:
    simulator, ranks = opened()
    weight, state = simulator.load_weights(ranks[0], 0, 0, 1)
    assert simulator.stored(ranks[0]) == 0
    simulator.store(ranks[0], weight)
    simulator.store(ranks[0], state)
    simulator.store(ranks[0], weight)
    assert simulator.stored(ranks[0]) == 3 * weight.memory
    simulator.drop(ranks[0], weight)
    assert simulator.stored(ranks[0]) == 2 * weight.memory
    assert simulator.stored(ranks[1]) == 0


def test_of_what_is_said_to_be_stored_in_the_end_only_what_is_counts() -> None:
    simulator, ranks = opened(graded=False)
    stored, dropped, never, fake = (simulator.fake_grad(ranks[0], 0, some) for some in (BOTH, BOTH, BOTH, frozenset()))
    foreign = simulator.fake_grad(ranks[1], 0, BOTH)
    for rank, one in ((0, stored), (0, dropped), (0, fake), (1, foreign)):
        simulator.store(ranks[rank], one)
    simulator.drop(ranks[0], dropped)
    state = simulator.final_state(ranks[0], iter([stored, dropped, never, foreign, fake]))
    assert [(piece.labels.batches, piece.made_up) for piece in state.kept] == [(BOTH, True), (frozenset(), False)]
    assert (state.rank, state.layers, state.batches) == (0, LAYERS, BATCHES)
    assert state.began == state.late == () and state.finals == {}


@pytest.mark.parametrize("name", ["fsdp", "offload"])
def test_samples_that_are_equal_are_one_object(name: str) -> None:
    """Also those of several ranks, and those that hold what was in flight: a sixth of what a run keeps."""
    samples = [event.held for event in solved(name).events if all(type(size) is int for size in event.held)]
    assert len(samples) > 20
    assert len({id(sample) for sample in samples}) == len(set(samples))


def test_what_is_done_after_a_run_is_not_in_its_events() -> None:
    """Events are made when they are first read, of what the ranks had done by then: the end of the run."""
    kinds = [event.kind for event in run(_forward, layers=1).events]
    late = run(_forward, layers=1)
    late.models[0].get_activation([0])
    assert [event.kind for event in late.events] == kinds
    assert len(late.models[0].log) == len(kinds) + 1
    assert late.time == max(event.end for event in late.events)
    assert late.memory == max(sum(event.held) for event in late.events)


def _forward(model: Model) -> None:
    model.weights[0], model.opt_states[0] = model.load_weights(0)
    model.activations[0] = model.get_activation([0])
    model.forward(0, model.activations[0], model.weights[0])
