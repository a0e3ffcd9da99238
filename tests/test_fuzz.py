"""Correct programs, broken at random: none is accepted unless its numbers are right, none hangs, none breaks lib.

The programs are the puzzles' solutions and others, and programs with slices and experts that are made at random.

FUZZ_EXAMPLES=20000 makes it a long search (see tests/slow.py, too).
"""

import ast
import itertools
import math
import os
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

import lib.machine.simulator
from lib import Model, PuzzleError, Run, run
from lib.course.layouts import Size
from lib.course.sizes import other_sizes
from lib.course.specs import Puzzle, puzzles
from lib.grading.submission import load
from lib.machine.check import check_finals
from tests import arithmetic, experts, slices
from tests.corpus import HEAD, Program, function
from tests.corpus.honest import HONEST
from tests.corpus.lists import MISTAKES as LISTS
from tests.programs import small_size
from tests.random_layers import experts_program, sliced_program
from tests.slow import some

pytestmark = [
    # A broken program leaves coroutines behind that nobody awaits.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PARTS = some(range(10))
EACH = int(os.environ.get("FUZZ_EXAMPLES", "800")) // 10
LIB = str(Path(lib.machine.simulator.__file__).parent)


def smallest(puzzle: Puzzle) -> Size:
    """The smallest size at which there are several of all of which the puzzle has several."""
    own, least = puzzle.size, {"ranks": 3, "layers": 2, "batches": 2}

    def has_several(size: Size) -> bool:
        axes = (size.get("mesh") or {}).values()
        return all(size[name] >= min(own[name], number) for name, number in least.items()) and 1 not in axes

    found = [own, *filter(has_several, other_sizes(puzzle.other_sizes, own))]
    return min(found, key=lambda size: math.prod(size[name] for name in least))


SIZES = {name: smallest(one) for name, one in puzzles().items() if "tied" not in one.size}  # numbers know no tie
SECOND = (("ddp", "ddp_overlap"), ("wsdp", "wsdp_prefetch"), ("gpipe", "one_forward_one_backward"))
PROGRAMS = [
    *(Program(name, name, HEAD + function(name)) for name in SIZES),
    *(Program(name, other, HEAD + function(other).replace(f"def {other}(", f"def {name}(")) for name, other in SECOND),
    *(program for program in LISTS if program.puzzle in SIZES),  # right, and refused by the grader only
    *(
        program
        for program in HONEST
        if program.puzzle in SIZES and "print" not in program.source and "Model.check" not in program.source
    ),
]


# -- breaking ---------------------------------------------------------------------------------------------------

Change = Callable[[], None]


def changes(tree: ast.AST) -> Iterator[tuple[str, Change]]:
    """Every way in which a program can be broken by one change, and what kind of change it is."""
    nodes = list(ast.walk(tree))
    names = sorted({node.id for node in nodes if isinstance(node, ast.Name) and node.id.islower()})
    for node in nodes:
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield from of_statements(value)
            elif isinstance(value, ast.AST):
                yield from of_expression(node, field, value, names)
            elif isinstance(value, list):
                for place, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        yield from of_expression(value, place, item, names)
        if isinstance(node, (ast.List, ast.Tuple)) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
            yield "turn a list around", lambda node=node: node.elts.reverse()
            yield "cut a list short", lambda node=node: node.elts.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reversed":
            yield "another order", lambda node=node: setattr(node.func, "id", "list")
        if isinstance(node, ast.Call) and len(node.args) > 1:
            yield "swap two arguments", lambda node=node: node.args.insert(0, node.args.pop(1))
        if isinstance(node, ast.Call) and node.keywords:
            yield "drop a keyword", lambda node=node: node.keywords.pop()
    yield from of_families(tree)


REDUCTIONS, GATHERS, EXCHANGES = ("allreduce", "scatterreduce"), ("allgather",), ("alltoall",)


def of_families(tree: ast.AST) -> Iterator[tuple[str, Change]]:
    """Drop all calls of one family: all gathers, all reductions, all of one axis, all of one pass through the layers.

    What a call carries takes the place of what it would have brought.
    """
    calls = [
        (owner, field, value, value.value.func.attr)
        for owner in ast.walk(tree)
        for field, value in ast.iter_fields(owner)
        if isinstance(value, ast.Await)
        and isinstance(value.value, ast.Call)
        and isinstance(value.value.func, ast.Attribute)
        and value.value.func.attr in (*REDUCTIONS, *GATHERS, *EXCHANGES)
    ]
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)]

    def drop(family: list[Any]) -> Change:
        def change() -> None:
            for owner, field, value, _ in family:
                given = [*value.value.args, *(word.value for word in value.value.keywords if word.arg == "v")]
                setattr(owner, field, given[0])

        return change

    families = {"gathers": GATHERS, "reductions": REDUCTIONS, "all-to-alls": EXCHANGES}
    for name, verbs in (families | {"collectives": REDUCTIONS + GATHERS + EXCHANGES}).items():
        chosen = [call for call in calls if call[3] in verbs]
        if chosen:
            yield f"drop all {name}", drop(chosen)
        for axis in ("shard", "replica"):
            along = [call for call in chosen if ast.unparse(call[2]).rstrip(")").endswith(f"{axis!r}")]
            if along and len(along) < len(chosen):
                yield f"drop all {name} of one axis", drop(along)
        for loop in loops:
            inside = set(map(id, ast.walk(loop)))
            once = [call for call in chosen if id(call[2]) in inside]
            if once and len(once) < len(chosen):
                yield f"drop all {name} of one direction", drop(once)


def of_statements(body: list[ast.stmt]) -> Iterator[tuple[str, Change]]:
    for place, statement in enumerate(body):
        yield "drop a statement", lambda at=place: body.__setitem__(at, ast.Pass())
        yield "repeat a statement", lambda at=place: body.insert(at, body[at])
        if place:
            yield "swap two statements", lambda at=place: body.insert(at - 1, body.pop(at))
        if isinstance(statement, (ast.For, ast.If)):
            yield (
                "once instead of in a loop",
                lambda at=place, inner=statement.body: body.__setitem__(slice(at, at + 1), inner),
            )
            if len(statement.body) > 1:
                yield "out of a loop", lambda at=place, loop=statement: body.insert(at + 1, loop.body.pop())


def of_expression(owner: Any, field: Any, value: ast.AST, names: list[str]) -> Iterator[tuple[str, Change]]:
    def put(new: ast.AST) -> Change:
        return (
            (lambda: owner.__setitem__(field, new)) if isinstance(owner, list) else (lambda: setattr(owner, field, new))
        )

    match value:
        case ast.Constant(value=bool() | None):
            pass
        case ast.Constant(value=int(number)):
            yield "change a number", put(ast.Constant(number + 1))
            yield "change a number", put(ast.Constant(number - 1))
        case ast.Constant(value="shard" | "replica" as axis):
            yield "change an axis", put(ast.Constant({"shard": "replica", "replica": "shard"}[axis]))
        case ast.Await(value=inner):
            yield "lose an await", put(inner)
        case ast.BinOp(left=left, right=right):
            yield "one of two operands", put(left)
            yield "one of two operands", put(right)
        case ast.Compare() | ast.IfExp():
            yield "negate", put(ast.UnaryOp(ast.Not(), value)) if isinstance(value, ast.Compare) else put(value.orelse)
        case ast.Name(ctx=ast.Load()):
            for other in names[:: max(1, len(names) // 4)]:
                yield "another name", put(ast.Name(other, ast.Load()))
        case ast.Call(func=ast.Attribute(value=store, attr="pop"), args=[key, *_]):
            yield "keep instead of take", put(ast.Subscript(store, key, ast.Load()))
        case ast.Call(func=ast.Attribute(attr=verb) as called) if verb in REDUCTIONS + GATHERS + EXCHANGES:
            for other in ("allreduce", "scatterreduce", "allgather", "alltoall"):
                if other != verb:
                    yield (
                        "another collective",
                        put(ast.Call(ast.Attribute(called.value, other, ast.Load()), value.args, value.keywords)),
                    )
        case ast.Subscript(value=store, slice=key, ctx=ast.Load()):
            yield "take instead of keep", put(ast.Call(ast.Attribute(store, "pop", ast.Load()), [key], []))


def broken(source: str, choices: list[tuple[int, int]]) -> tuple[str, list[str]]:
    """A source with some changes, each chosen by its kind and its place; and their kinds."""
    tree = ast.parse(source)
    kinds = []
    for which, where in choices:
        found: dict[str, list[Change]] = {}
        for kind, change in changes(tree):
            found.setdefault(kind, []).append(change)
        kind = sorted(found)[which % len(found)]
        found[kind][where % len(found[kind])]()
        kinds.append(kind)
    return ast.unparse(ast.fix_missing_locations(tree)), kinds


# -- judging ------------------------------------------------------------------------------------------------------


def outcome(fn: Any, size: dict[str, Any], **how: Any) -> Run | PuzzleError:
    """What becomes of a run. Anything but a PuzzleError goes through, and so does an error inside lib."""
    try:
        return run(fn, **size, **how)
    except PuzzleError as error:
        cause = error.__cause__
        # With the rules off, which nobody but tests can do, nonsense may reach further in.
        if how.get("_strict", True) and cause is not None and not isinstance(cause, PuzzleError):
            last = traceback.extract_tb(cause.__traceback__)[-1]
            assert not last.filename.startswith(LIB), "".join(traceback.format_exception(cause))
        return error


def refusal(result: Run | PuzzleError) -> str:
    """Why a result is not accepted; empty if it is."""
    if isinstance(result, PuzzleError):
        return result.problem
    try:
        return "made up" if check_finals(result.final_states, result.train) else ""
    except PuzzleError as error:
        return error.problem


def accepted(result: Run | PuzzleError) -> bool:
    return not refusal(result)


def right(result: Run | PuzzleError, size: dict[str, Any]) -> bool:
    """Whether the final weights, as numbers, are those of plain training: all ranks', together complete."""
    if isinstance(result, PuzzleError):
        return False
    how = result.train == "adapters", bool(size.get("experts")), result.train == "muon", size.get("tokens") or ()
    wanted = arithmetic.trained(size["layers"], size["batches"], *how, bool(size.get("quiet")))
    for layer, weight in enumerate(wanted):
        finals = [state.finals[layer].value for state in result.final_states if layer in state.finals]
        if {at for final in finals for at in final} != set(weight):
            return False
        if not all(arithmetic.error(layer, final, weight) < 1e-9 for final in finals):
            return False
    return True


def with_numbers(fn: Any, size: dict[str, Any], strict: bool) -> Run | PuzzleError:
    """A run whose tensors carry numbers."""
    with pytest.MonkeyPatch.context() as patch:
        how = bool(size.get("experts")), bool(size.get("quiet"))
        patch.setattr(lib.machine.simulator, "Fingerprints", partial(arithmetic.Numbers, *how))
        return outcome(fn, size, _strict=strict)


def compile_(source: str, name: str) -> Any:
    names, trouble, *_ = load("mutant.py", source)
    return names.get(name), trouble


COUNTS: Counter[str] = Counter()


drawn = partial(settings, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@drawn(max_examples=EACH)
@given(st.sampled_from(PROGRAMS), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400)), min_size=1, max_size=3))
@example(PROGRAMS[0], [])
def search(program: Program, choices: list[tuple[int, int]]) -> None:
    """Break a program, run it in three ways, compare."""
    judge(program.source, program.puzzle, SIZES[program.puzzle], choices)


@drawn(max_examples=max(4, EACH // 4))
@given(
    st.sampled_from([sliced_program, experts_program]),
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400)), max_size=1),
)
def search_made(make: Callable[[random.Random], tuple[str, dict[str, Any]]], number: int, choices: Any) -> None:
    """Make a program at random, with slices or with experts, break it once or not at all, and do the same."""
    source, size = make(random.Random(number))
    found = judge(source, "program", size, choices)
    assert choices or found == "accepted", source


def judge(whole: str, name: str, size: dict[str, Any], choices: list[tuple[int, int]]) -> str:
    """Change a source, run the function of that name in three ways, compare, and return what became of it."""
    source, _ = broken(whole, choices)
    fn, _ = compile_(source, name)
    if not callable(fn):
        return "no program"
    COUNTS["programs"] += 1
    strictly, loosely = outcome(fn, size), outcome(fn, size, _strict=False)
    if not accepted(loosely) and "wrong value" not in refusal(loosely) and not accepted(strictly):
        COUNTS["refused"] += 1  # before its values were looked at: nothing to compare
        return "refused"
    by_value, by_numbers = accepted(loosely), right(with_numbers(fn, size, strict=False), size)
    assert by_numbers or not by_value, source
    assert not by_numbers or "wrong value" not in refusal(loosely), source
    COUNTS["right by the numbers" if by_numbers else "refused"] += 1
    if accepted(strictly):
        COUNTS["accepted"] += 1
        assert by_numbers, source
        return "accepted"
    if by_numbers:
        COUNTS[f"right, but refused: {refusal(strictly)[:40]}"] += 1
    return "refused"


def test_programs_made_at_random_with_slices_and_experts() -> None:
    COUNTS.clear()
    for part in PARTS:
        seed(part)(search_made)()
    print(dict(COUNTS.most_common()))
    assert COUNTS["accepted"] > 0 and COUNTS["refused"] > 0


def test_broken_programs() -> None:
    COUNTS.clear()
    for part in PARTS:
        seed(part)(search)()
    print(dict(COUNTS.most_common()))
    count = EACH * len(PARTS)
    assert COUNTS["programs"] > count / 2  # and it has seen programs of both kinds
    assert COUNTS["accepted"] > count / 50
    assert COUNTS["refused"] > count / 4


# -- the judge itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [True, False])
def test_whole_families_of_calls_cannot_be_dropped(strict: bool) -> None:
    """Of every program with collectives: without all of a family it is refused, by its value alone if it must be."""
    dropped, programs = 0, some(PROGRAMS, 12)
    for program in programs:
        for place in range(len(list(of_families(ast.parse(program.source))))):
            tree = ast.parse(program.source)
            _, change = next(itertools.islice(of_families(tree), place, None))
            change()
            fn, _ = compile_(ast.unparse(ast.fix_missing_locations(tree)), program.puzzle)
            size = SIZES[program.puzzle]
            if accepted(outcome(fn, size, _strict=strict)):
                assert right(with_numbers(fn, size, strict), size), ast.unparse(tree)
            else:
                dropped += 1
    assert dropped > 30 * len(programs) / len(PROGRAMS)  # most of these are wrong: there is something to refuse


@pytest.mark.parametrize("layer", [0, 1], ids=["dense", "experts"])
def test_gradients_are_those_of_the_loss(layer: int) -> None:
    x, w = arithmetic.first_input(0), arithmetic.first_weight(layer, experts=True)

    def loss(x: arithmetic.Vector, w: arithmetic.Vector) -> float:
        return math.fsum(y * y for y in arithmetic.layer_forward(x, w).values())

    of_weight, of_input = arithmetic.layer_backward(x, w, arithmetic.loss_gradient(arithmetic.layer_forward(x, w)))
    step = 1e-6
    for thing, gradient in ((x, of_input), (w, of_weight)):
        for at in list(thing)[::7]:
            thing[at] += step
            above = loss(x, w)
            thing[at] -= 2 * step
            below = loss(x, w)
            thing[at] += step
            assert math.isclose((above - below) / (2 * step), gradient[at], rel_tol=1e-6, abs_tol=1e-8)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", SIZES)
def test_solutions_are_right_by_the_numbers(name: str, strict: bool) -> None:
    fn, _ = compile_(HEAD + function(name), name)
    for size in (SIZES[name], small_size(name)):
        assert right(with_numbers(fn, size, strict), size)


def test_the_search_finds_a_checker_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker whose values do not see which micro-batches are in a gradient is caught by a simple mutant."""
    program = PROGRAMS[1]
    source = program.source.replace("grad if mb == 0 else model.grad_weights[layer] + grad", "grad")
    assert source != program.source
    fn, _ = compile_(source, program.puzzle)
    size = SIZES[program.puzzle]
    assert not accepted(outcome(fn, size, _strict=False)) and not right(with_numbers(fn, size, False), size)
    blind = lambda self, weight, opt_state, grad: (weight, opt_state)  # noqa: E731
    monkeypatch.setattr("lib.machine.fingerprints.Fingerprints.update", blind)
    lib.machine.fingerprints.trained_weights.cache_clear()
    try:
        assert accepted(outcome(fn, size, _strict=False)) and not right(with_numbers(fn, size, False), size)
    finally:
        monkeypatch.undo()
        lib.machine.fingerprints.trained_weights.cache_clear()


async def of_other_experts(model: Model) -> Model:
    """Every rank has the weights of the experts of the next one."""
    experts.load(model, ((model.rank + 1) % model.RANKS, model.RANKS))
    return await experts.train(model)


@pytest.mark.parametrize(
    ("wrong", "size", "rule", "blind"),
    [
        (slices.gathering(mistake="own keys only"), {"batches": 1}, "_lacks", lambda met, own, side: False),
        (of_other_experts, {"batches": 2, "experts": 8}, "_of_experts", lambda weight, piece: weight[0]),
    ],
    ids=["keys that are missing", "other experts"],
)
def test_and_one_that_is_blind_for_slices_or_experts(
    monkeypatch: pytest.MonkeyPatch, wrong: Any, size: dict[str, Any], rule: str, blind: Any
) -> None:
    """Without one of its rules of value the machine takes what the numbers do not."""
    size = {"ranks": 2, "layers": 2, **size}
    assert not accepted(outcome(wrong, size, _strict=False)) and not right(with_numbers(wrong, size, False), size)
    monkeypatch.setattr(lib.machine.fingerprints, rule, blind)
    assert accepted(outcome(wrong, size, _strict=False))
