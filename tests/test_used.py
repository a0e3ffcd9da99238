"""Nothing is done for nothing: a sweep over solutions with a needless piece of work in each, and what is let be."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from lib import Model, PuzzleError, run
from lib.course.specs import cost_named, puzzles
from lib.course.used import check_used
from lib.grading.judge import judge
from lib.grading.verdict import FAIL
from tests.corpus import HEAD, function
from tests.programs import COURSE, REPAIRS, SMALLER, solved
from tests.slow import EVERYTHING

PROGRAMS = [name for name in (*COURSE, *REPAIRS) if name not in SMALLER]

NEEDLESS = """
DONE = []

async def needless(model, own, kind):
    if model.rank in DONE or (model.RANKS, model.LAYERS, model.BATCHES) == own:
        return
    n, r = model.RANKS, model.rank
    after, before = (r + 1) % n, (r - 1) % n
    verb, _, store = kind.partition(" ")
    kept = next(iter(getattr(model, store).values()), None) if store else None
    if verb == "sum":
        await model.allreduce(model.fake_grad(0, []), 0)
    elif verb == "forward":
        for inp in model.activations.values():
            weights = [one for one in model.weights.values() if isinstance(inp, Activation) and one.layer == inp.layer]
            if weights and weights[0].is_complete():
                model.forward(inp.layer, inp, weights[0])
                break
        else:
            return
    elif kept is None or n == 1:
        return
    elif verb == "gather":
        weight = await model.allgather(kept.shard(r, n) if kept.is_complete() else kept, kept.layer)
        model.weights["kept"] = weight
    elif verb == "send":
        send = model.pass_to(after, kept)
        await model.receive(src=before)
        await send
    elif verb == "copy":
        if r == 0:
            await model.pass_to(1, kept)
        elif r == 1:
            getattr(model, store)["copy"] = await model.receive(src=0)
        else:
            return
    DONE.append(r)
"""
"""It does one needless thing, once on each rank, at other sizes than the puzzle's own: there is time for it."""
KINDS = (
    *("sum", "forward", "gather weights", "send weights", "send activations", "send grad_weights"),
    *("send opt_states", "copy weights"),
)


def bodies(node: ast.AST, in_coroutine: bool) -> Iterator[list[ast.stmt]]:
    """The lists of statements of a program in which something can be awaited."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        in_coroutine = isinstance(node, ast.AsyncFunctionDef)
    for field in ("body", "orelse"):
        body = getattr(node, field, None)
        if isinstance(body, list):
            if in_coroutine:
                yield body
            for statement in body:
                yield from bodies(statement, in_coroutine)


def places(tree: ast.AST) -> list[tuple[list[ast.stmt], int]]:
    """Where a statement can be put: before each one, and after the last of a list."""
    found = []
    for body in bodies(tree, False):
        ends = bool(body) and isinstance(body[-1], ast.Return | ast.Continue | ast.Break)
        found += [(body, at) for at in range(len(body) + (not ends))] if body else []
    return found


def with_needless(name: str, place: int, kind: str) -> str:
    """The solution of a puzzle with one needless thing at a place."""
    tree = ast.parse(function(name))
    [program] = [one for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    size, model = puzzles()[name].size, program.args.args[0].arg
    body, at = places(program)[place]
    own = size["ranks"], size["layers"], size["batches"]
    body[at:at] = ast.parse(f"await needless({model}, {own}, {kind!r})").body
    return HEAD + NEEDLESS + ast.unparse(ast.fix_missing_locations(tree))


@cache
def sweep(name: str) -> list[tuple[int, str]]:
    """Each place of a solution with each kind of needless work, in an order that has all kinds soon."""
    program = ast.parse(function(name)).body[0]
    everything = [(place, kind) for place in range(len(places(program))) for kind in KINDS]
    random.Random(name).shuffle(everything)
    return everything


@pytest.mark.parametrize("name", [name for name in PROGRAMS if sweep(name)])
def test_a_solution_that_does_one_needless_thing_at_other_sizes_does_not_pass(name: str) -> None:
    """In some places, and in some ways."""
    puzzle = puzzles()[name]
    for place, kind in sweep(name)[: 16 if EVERYTHING else 3]:
        names: dict[str, Any] = {}
        exec(compile(with_needless(name, place, kind), "needless.py", "exec"), names)
        program = names[name]
        verdict = judge(puzzle, lambda size, program=program: run(program, **size, cost=cost_named(puzzle.cost)))
        if names["DONE"]:  # there was something to send, and so on
            assert verdict.status == FAIL, f"{kind} at place {place}"


@pytest.mark.parametrize("name", [*COURSE, *REPAIRS])
def test_solutions_do_nothing_for_nothing(name: str) -> None:
    check_used(solved(name, small=True))


# -- one at a time ---------------------------------------------------------------------------------------------


def plainly(model: Model) -> None:
    """One layer, trained on one rank, or on all of them."""
    model.weights[0], model.opt_states[0] = model.load_weights(0)
    model.activations[0] = model.get_activation([model.rank])
    model.grad_activations[1] = model.loss(model.forward(0, model.activations[0], model.weights[0]))
    grad, _ = model.backward(0, model.activations[0], model.grad_activations.pop(1), model.weights[0])
    model.grad_weights[0] = grad


async def trained(model: Model) -> None:
    grad = await model.allreduce(model.grad_weights.pop(0), 0)
    weight, model.opt_states[0] = model.update(0, grad, model.weights.pop(0), model.opt_states[0])
    model.set_final_weight(0, weight)


def unused(then: Any, ranks: int = 2) -> str:
    """What is said of a program that does something between its backward and its update; nothing if all is used."""

    async def program(model: Model) -> None:
        plainly(model)
        await then(model)
        await trained(model)

    try:
        check_used(run(program, ranks=ranks, layers=1, batches=ranks))
    except PuzzleError as error:
        return str(error)
    return ""


async def nothing(model: Model) -> None:
    pass


async def barrier(model: Model) -> None:
    await model.allreduce(model.fake_grad(0, []), 0)


async def added(model: Model) -> None:
    zero = await model.allreduce(model.fake_grad(0, []), 0)
    model.grad_weights[0] = model.grad_weights.pop(0) + zero


async def cut_and_dropped(model: Model) -> None:
    whole = await model.allgather(model.weights[0].shard(model.rank, model.RANKS), 0)
    whole.shard(0, 2)


async def joined_and_dropped(model: Model) -> None:
    send = model.pass_to(1 - model.rank, model.weights[0].shard(0, 2))
    theirs = await model.receive()
    theirs.combine(model.weights[0].shard(1, 2))
    await send


async def one_uses_it(model: Model) -> None:
    weight = model.weights[0].shard(model.rank, model.RANKS)
    weight = await model.allgather(weight, 0)
    if model.rank == 1:
        model.weights["whole"] = weight
        model.grad_activations[1] = model.loss(model.forward(0, model.activations[0], weight))
        grad, _ = model.backward(0, model.activations[0], model.grad_activations.pop(1), model.weights.pop("whole"))
        model.grad_weights[0] = grad


async def plain(model: Model) -> None:
    send = model.pass_to(1 - model.rank, "ready")
    assert await model.receive() == "ready"
    await send


async def forward(model: Model) -> None:
    model.forward(0, model.activations[0], model.weights[0])


async def list_of_one(model: Model) -> None:
    await model.allreduce([model.fake_grad(0, [])], [0])


async def relayed(model: Model) -> None:
    """Rank 0 gets back from rank 1 what it has sent: a whole weight, which is no ring."""
    if model.rank == 0:
        await model.pass_to(1, model.weights[0])
        await model.receive()
    else:
        model.weights["copy"] = await model.receive()
        await model.pass_to(0, model.weights.pop("copy"))


async def full_ring(model: Model) -> None:
    """All pieces go all the way round, and each is joined with the others but for the one that comes home."""
    n, r = model.RANKS, model.rank
    model.weights["piece"] = own = model.weights[0].shard(r, n)
    model.weights["so far"] = own
    for step in range(n):
        send = model.pass_to((r + 1) % n, model.weights["piece"])
        model.weights["piece"] = await model.receive(src=(r - 1) % n)
        await send
        if step < n - 1:
            model.weights["so far"] = model.weights["so far"].combine(model.weights["piece"])
    del model.weights["piece"]
    model.grad_activations[1] = model.loss(model.forward(0, model.activations[0], model.weights["so far"]))
    grad, _ = model.backward(0, model.activations[0], model.grad_activations.pop(1), model.weights.pop("so far"))
    model.grad_weights[0] = grad


async def swapped(model: Model) -> None:
    """Each rank gives another one a piece that both have."""
    if model.rank < 2:
        send = model.pass_to(1 - model.rank, model.weights[0].shard(0, 2))
        await model.receive()
        await send


def what(name: str) -> str:
    """What is said of an operation that is for nothing."""
    return f"uses what {name} gives"


@pytest.mark.parametrize(
    ("then", "says"),
    [
        (nothing, ""),
        (plain, ""),
        (added, ""),
        (barrier, what("allreduce(layer 0)")),
        (list_of_one, what("allreduce(layers [0])")),
        (cut_and_dropped, what("allgather(layer 0)")),
        (joined_and_dropped, "the weight that comes from rank"),
        (relayed, "the weight that comes from rank 1"),
        (swapped, "the weight that comes from rank"),
        (forward, what("forward(layer 0)")),
    ],
)
def test_what_nobody_uses(then: Any, says: str) -> None:
    found = unused(then)
    assert says in found and bool(says) == bool(found), found


def test_of_a_collective_it_is_enough_that_one_rank_uses_what_it_gives() -> None:
    """The backward that this makes again was for nothing the first time."""
    found = unused(one_uses_it)
    assert "allgather" not in found and found.startswith("rank 1, ") and what("backward(layer 0)") in found


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_ring_may_be_a_full_one(ranks: int) -> None:
    found = unused(full_ring, ranks)
    assert "comes from" not in found and what("backward(layer 0)") in found
