"""Which functions are known to do nothing but work with their model."""

import asyncio
import importlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from lib import Model, Weight
from lib.course.specs import puzzles
from lib.running.effects import only_its_model
from tools.bench import fsdp, hybrid, pipeline

BY_NAME = {one: puzzles()[one].file for one in puzzles() if not puzzles()[one].repair}
counted: list[int] = []
count = 0
table = {0: 1}


def test_solutions_work_with_their_models_only() -> None:
    functions = [getattr(importlib.import_module(f"solutions.{file}"), name) for name, file in BY_NAME.items()]
    assert not [fn.__name__ for fn in functions if not only_its_model(fn)]
    assert all(map(only_its_model, (fsdp, hybrid, pipeline)))


def printing(model: Model) -> None:
    print(model.rank)


def counting(model: Model) -> None:
    global count
    count += 1


def keeping(model: Model) -> None:
    counted.append(model.rank)


def reading(model: Model) -> None:
    model.activations[0] = model.get_activation([table[model.rank]])


def drawing_lots(model: Model) -> None:
    model.load_weights(random.randrange(2))


def opening(model: Model) -> None:
    open("/dev/null").close()


def catching(model: Model) -> None:
    try:
        model.forward(0, None, None)  # type: ignore[arg-type]
    except Exception:
        model.load_weights(0)


async def gathering_errors(model: Model) -> None:
    await asyncio.gather(model.allgather(None, 0), return_exceptions=True)  # type: ignore[call-overload, arg-type]


async def sleeping(model: Model) -> None:
    await asyncio.sleep(0.1)


def importing(model: Model) -> None:
    import time

    time.sleep(0)


def noting(model: Model) -> None:
    model.dist.seen = True  # type: ignore[attr-defined]


def of_the_machine(model: Model) -> None:
    vars(model.dist).update(seen=True)


def a_default(model: Model, seen: list[int] = []) -> None:  # noqa: B006
    seen.append(0)


def through_another(model: Model) -> None:
    counting(model)


def inside(model: Model) -> None:
    def inner() -> None:
        keeping(model)

    inner()


def deep(model: Model) -> None:
    model.__class__.seen = 1  # type: ignore[attr-defined]


def a_class(model: Model) -> None:
    class Seen:
        pass


def its_log(model: Model) -> None:
    model.load_weights(len(model.log))


def unknown(model: Model) -> None:
    no_such_name(model)  # type: ignore[name-defined] # noqa: F821


def outer() -> Callable[[Model], None]:
    """Return a function that writes to a name of its surroundings."""
    seen = 0

    def inner(model: Model) -> None:
        nonlocal seen
        seen += 1

    return inner


class Callable_:
    """Something else that can be called."""

    def __call__(self, model: Model) -> None:
        """Do nothing."""


HARMFUL: list[Any] = [
    printing, counting, keeping, reading, drawing_lots, opening, catching, gathering_errors, sleeping, importing,
    noting, of_the_machine, a_default, through_another, inside, deep, a_class, its_log, unknown, outer(), Callable_(),
    Callable_().__call__,
]  # fmt: skip


@pytest.mark.parametrize("fn", HARMFUL, ids=lambda fn: getattr(fn, "__name__", "callable"))
def test_an_effect_is_seen(fn: Callable[[Model], None]) -> None:
    assert not only_its_model(fn)


def everything_allowed() -> Callable[[Model], Any]:
    """Return a function with all that is allowed."""
    few = (1, 2)

    def helper(model: Model, more: int = 3) -> list[int]:
        return [one + more for one in range(model.RANKS) if one in few]

    async def both(model: Model) -> Model:
        seen = {}
        total = 0

        async def add(layer: int) -> None:
            nonlocal total
            total += layer
            seen[layer] = helper(model)

        await asyncio.gather(*[add(layer) for layer in range(model.LAYERS)])
        if isinstance(model.weights.get(0), Weight) or f"{model.rank}" not in sorted(map(str, seen)):
            seen.clear()
        return model

    return both


def test_what_changes_nothing_is_harmless() -> None:
    assert only_its_model(everything_allowed())
