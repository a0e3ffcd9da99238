"""The work of a replay grows as its recording does: floods of every verb, of one length and of eight times that."""

import gc
import math
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from lib import PuzzleError
from lib.machine.cost import Shape
from lib.machine.simulator import LocalSimulator
from lib.recording.replay import Replay
from lib.recording.verbs import VERBS
from tests.slow import some

LAYERS = BATCHES = 3
FEW, TIMES, MOST = 700, 8, 24
"""Calls of a short flood, how many times as long the long one is, and how many times its work that may take: work that
grows with the square of the length takes 64 times as much."""

Calls = Iterator[list[Any]]


def load(rank: int, layer: int = 0, shard: int = 0, total: int = 1) -> list[Any]:
    return ["load_weights", rank, None, layer, shard, total]


def unmatched_and_decided(n: int) -> Calls:
    """Receives from a rank that sends nothing, or from anyone, and messages of another, each decision asked for."""
    for at in range(n):
        yield ["receive", 0, None, 1 if at % 2 else None]
        yield ["pass_to", 2, None, 0, None, at]
        yield ["wait", 0, None, 2 * at]
        yield ["decide_next", 0, None]


def sent_while_it_is_carried(n: int) -> Calls:
    """One tensor in many calls at the same time, and then in more that are fetched at once."""
    yield from [load(0), ["store", 0, None, 0]]
    yield from repeat(["pass_to", 0, None, 1, 0, None], n)
    for at in range(n, 2 * n):
        yield ["pass_to", 0, None, 1, 0, None]
        yield ["wait", 0, None, at]
        yield ["fetch", 0, None, at, 1]


def piece_after_piece(n: int) -> Calls:
    for at in range(n):
        yield load(0, 0, at, n)
        yield ["store", 0, None, 2 * at]


def pieces_in_another_order(n: int) -> Calls:
    for at in range(n):
        yield load(0, 0, at * 701 % n if n % 701 else n - 1 - at, n)
        yield ["store", 0, None, 2 * at]


def cuts_of_one_load(n: int) -> Calls:
    yield load(0)
    for at in range(n):
        yield ["shard", 0, None, 0, at % 4096, 4096]
        yield ["store", 0, None, 2 + at]


def loaded_twice(n: int) -> Calls:
    """As many mistakes as are allowed, each about all that was loaded before."""
    yield from piece_after_piece(n)
    for at in range(200):
        yield load(0, 0, at, 256)
        yield ["store", 0, None, 2 * (n + at)]


def gone_long_ago(n: int) -> Calls:
    """Mistakes about tensors of long ago, of which each looks for what has ended them."""
    yield from repeat(["fake_grad", 0, None, 0, []], 250)
    yield from repeat(load(0), n)
    yield ["get_activation", 0, None, [0]]
    yield ["pass_to", 0, None, 1, 250 + 2 * n, None]
    for at in range(250):
        yield ["store", 0, None, at]


def sums(n: int) -> Calls:
    for at in range(n):
        for rank in range(3):
            yield ["fake_grad", rank, None, 0, []]
            yield ["meet", rank, None, "allreduce", at * 3 + rank, 0, None]
    for at in range(n):
        for rank in range(3):
            yield ["fetch", rank, None, at * 3 + rank, None]


def lists_of_sums(n: int) -> Calls:
    made = 0
    for _ in range(n):
        for rank in range(3):
            yield from (["fake_grad", rank, None, layer, []] for layer in range(LAYERS))
            yield ["meet_list", rank, None, "allreduce", [*range(made, made + LAYERS)], [*range(LAYERS)], None]
            made += LAYERS


def other_sums_than_the_others(n: int) -> Calls:
    for at in range(n):
        for rank in range(2):
            yield ["fake_grad", rank, None, rank, []]
            yield ["meet", rank, None, "allreduce", at * 2 + rank, rank, None]
        if not at % 50:
            yield ["decide_next", 0, None]


def stored_and_dropped(n: int) -> Calls:
    yield from [load(0), ["store", 0, None, 0]]
    yield from chain.from_iterable(repeat([["store", 0, None, 0], ["drop", 0, None, 0]], n))


def coroutines_without_end(n: int) -> Calls:
    yield from [["share", 0, 0], ["share", 0, 1], load(0), ["store", 0, 0, 0]]
    for at in range(n):
        yield ["shard", 0, at + 2, 0, 0, 2]
        yield ["receive", 0, at + 3, 1]
        yield ["wait", 0, at + 3, at]
    for at in range(n):
        yield ["shard", 0, at + 2, 0, 1, 2]
    yield ["finish", 0, None]


def waited_for_again(n: int) -> Calls:
    yield from [["share", 0, 0], ["pass_to", 0, 0, 1, None, 1]]
    for _ in range(n):
        yield ["wait", 0, 0, 0]
        yield ["decide_next", 0, None]


def trained(n: int) -> Calls:
    """Operations of the compute stream."""
    yield from [load(0), ["store", 0, None, 0], ["get_activation", 0, None, [0]], ["store", 0, None, 2]]
    for _ in range(n):
        yield ["compute", 0, None, "forward", 0, [2, 0], {}]
        yield ["set_final_weight", 0, None, 0, 0]


def added(n: int) -> Calls:
    yield from [["fake_grad", 0, None, 0, []], ["store", 0, None, 0]]
    yield from repeat(["add", 0, None, 0, 0], n)
    yield from [["load_adapter", 0, None, 0, 0, 1], ["store", 0, None, n + 1]]
    for at in range(n):
        yield ["shard", 0, None, n + 1, 0, 2]
        yield ["shard", 0, None, n + 1, 1, 2]
        yield ["combine", 0, None, n + 3 + 3 * at, n + 4 + 3 * at]


def scaled(n: int) -> Calls:
    yield from [["fake_grad", 0, None, 0, []], ["store", 0, None, 0]]
    yield from repeat(["scale", 0, None, 0, "1/2"], n)


def exchanged(n: int) -> Calls:
    """Exchanges, each of which is one call in the queue of its rank."""
    for at in range(n):
        yield from (["group", 0, None, True], ["pass_to", 0, None, 1, None, at], ["group", 0, None, False])


def stands_still(n: int) -> Calls:
    """A deadlock of many calls."""
    for at in range(n):
        yield ["receive", at % 2, None, 2]
        yield ["wait", at % 2, None, at]
    yield ["deadlock", 0, None, [[0, "here"], [1, "there"]]]
    yield ["finish", 2, None]


FLOODS: list[Callable[[int], Calls]] = [
    unmatched_and_decided, sent_while_it_is_carried,
    piece_after_piece, pieces_in_another_order, cuts_of_one_load, loaded_twice, gone_long_ago,
    sums, lists_of_sums, other_sums_than_the_others, stored_and_dropped,
    coroutines_without_end, waited_for_again, trained, added, scaled, exchanged, stands_still,
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def only_what_is_new_is_collected() -> Iterator[None]:
    """What other tests have left is put aside: to look through it before each flood would take most of the time."""
    gc.freeze()
    yield
    gc.unfreeze()


def work(flood: Callable[[int], Calls], count: int) -> float:
    """Seconds of processor time to replay a flood, and to make of it all that can be made."""
    calls = [*flood(count)]
    replay = Replay(LocalSimulator(Shape.of(3), graded=True), LAYERS, BATCHES)
    gc.collect()
    gc.disable()
    start = time.process_time()
    for call in calls:
        try:
            replay.carry_out(call)
        except PuzzleError as error:
            replay.errors.append(error)
    replay.errors, errors = [], replay.errors
    try:
        list(replay.outcome("flood").events)
    except PuzzleError:
        for rank in replay.simulator.finish_logs(replay.ranks):
            list(rank)
    seconds = time.process_time() - start
    gc.enable()
    assert len(errors) <= 300
    return seconds


def test_every_verb_is_in_a_flood() -> None:
    assert {call[0] for flood in FLOODS for call in flood(2)} == {*VERBS}


@pytest.mark.parametrize("flood", some(FLOODS, 3), ids=lambda flood: flood.__name__)
def test_a_longer_flood_takes_no_more_work_for_each_call(flood: Callable[[int], Calls]) -> None:
    ratio = math.inf
    for _ in range(4):  # other programs may take the processor's caches meanwhile
        ratio = min(ratio, work(flood, TIMES * FEW) / work(flood, FEW))
        if ratio < MOST:
            return
    pytest.fail(f"{TIMES} times as many calls take {ratio:.0f} times as long")
