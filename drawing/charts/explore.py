"""Sliders for the size of a machine, above the picture of a learner's function."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from lib.basics.errors import PuzzleError
from lib.learner.model import Model
from lib.machine.cost import Cost
from lib.running.run import check_function, run

from ..ink.svg import escape
from ..schedule.picture import draw

RANKS, LAYERS, EACH, SLOWER = 64, 24, 8, 10
"""The largest values of the sliders."""
WIDE = {"width": "auto", "min_width": "0"}
"""The layout of what takes the width of its page, and no more."""
NO_WIDER = "width:0;min-width:100%"
"""The look of what is never wider than its widget, which would otherwise grow to the width of its picture."""
WHOLE_WORDS = "white-space:pre-wrap;word-break:normal;overflow-wrap:break-word"
"""The look of an error, which wraps between words."""
TIMEOUT = 5.0
"""Seconds for a run: whoever moves a slider wants to see something soon."""


def explore(fn: Callable[[Model], Any], *, ranks: int = 4, layers: int = 6, each: int = 1) -> Any:
    """Sliders for ranks, layers, micro-batches per rank and the speed of the links, above the picture of your function.

    ``ranks``, ``layers`` and ``each`` (micro-batches for each rank) are where the sliders begin. What is wrong with the
    function at a size is shown in place of the picture. Without ipywidgets, which Jupyter brings along, there is one
    picture, and a sentence that says so. Raises PuzzleError for anything that is not a function.
    """
    check_function(fn)
    if find_spec("ipywidgets") is None:
        print("Sliders need ipywidgets, which is not here: pip install ipywidgets. This is how they would begin.")
        return draw(run(fn, ranks=ranks, layers=layers, batches=ranks * each))
    from ipywidgets import HTML, IntSlider, VBox, interactive_output

    def slider(value: int, most: int, name: str) -> Any:
        how = {"description": name, "continuous_update": False, "style": {"description_width": "min(16em, 45%)"}}
        return IntSlider(min(max(value, 1), most), 1, most, layout=WIDE | {"max_width": "60em"}, **how)

    sliders = {
        "ranks": slider(ranks, RANKS, "ranks"),
        "layers": slider(layers, LAYERS, "layers"),
        "each": slider(each, EACH, "micro-batches each"),
        "slower": slider(1, SLOWER, "links slower, times"),
    }
    shown = HTML(layout=WIDE)

    def follow(**sizes: int) -> None:
        shown.value = f'<div style="{NO_WIDER}">{picture(fn, **sizes)}</div>'

    interactive_output(follow, sliders)
    return VBox([*sliders.values(), shown], layout=WIDE)


def picture(fn: Callable[[Model], Any], ranks: int, layers: int, each: int, slower: int) -> str:
    """Return the picture of a run at this size as HTML, or what is wrong with it and the run up to there."""
    usual = Cost()
    cost = Cost(collective=usual.collective * slower, send=usual.send * slower, receive=usual.receive)
    try:
        done = run(fn, ranks=ranks, layers=layers, batches=ranks * each, cost=cost, timeout=TIMEOUT)
    except PuzzleError as error:
        failed = draw(error.run)._repr_html_() if error.run is not None else ""
        return f'<pre style="{WHOLE_WORDS}">{escape(str(error))}</pre>{failed}'
    return draw(done)._repr_html_()
