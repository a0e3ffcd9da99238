"""``asyncio.run`` inside a running loop, for learners who call it in a notebook's cell."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys

from ..basics.errors import PuzzleError


def allow_nested_loops() -> None:
    """Let ``asyncio.run(...)`` work in a notebook's cell. Never needed here: ``await`` and ``run`` do.

    It patches asyncio for the whole process (by nest_asyncio2 where that is installed, else by nest-asyncio), so it is
    never done unasked. Does nothing when no loop is running. Raises PuzzleError where it would break things:
    nest-asyncio 1.6.0 on Python 3.14 and later, loops that are not asyncio's own.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    patches = [name for name in ("nest_asyncio2", "nest_asyncio") if importlib.util.find_spec(name) is not None]
    or_else = ""
    if not isinstance(loop, asyncio.BaseEventLoop):
        problem = f"a loop of type {type(loop).__module__}.{type(loop).__name__} cannot be nested"
        or_else = ", or run(fn, ...)"
    elif "nest_asyncio2" not in patches and sys.version_info >= (3, 14):
        problem = "nest-asyncio 1.6.0 breaks asyncio on Python 3.14 and later, for the whole process"
        or_else = ", or install nest_asyncio2"
    elif patches:
        importlib.import_module(patches[0]).apply()
        return
    else:
        problem = "neither nest_asyncio2 nor nest_asyncio is installed"
    cure = f"await asyncio.gather(...) instead of asyncio.run(...){or_else}"
    raise PuzzleError(problem, where="allow_nested_loops", cure=cure)
