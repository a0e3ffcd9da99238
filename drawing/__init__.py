"""Pictures of schedules and tensors, built on chalk.

``draw(run)`` shows a schedule, ``compare(a, b)`` several, ``play(run)`` plays it; ``draw_group(model.weights)``
shows a dictionary of tensors, ``draw_primitive("allgather")`` what a collective does; ``perfetto(run)`` is a file
for another viewer. In a notebook runs and tensors show themselves. A module imports only what stands above it:

=========  ==================================================================================
ink        what pictures are made of: a run's data, colors, words, chalk's leaves, SVG, files
schedule   a schedule under its axis of time: ``draw``
small      small pictures of one idea, composed with chalk's combinators
beside     several schedules beside each other
playing    a schedule that plays: a page of one's own, and a file for another viewer
charts     many runs, or all puzzles, in one chart
lookup     the whole interface on one page: ``reference``
pictures   all of these in one place, which is imported when one is first asked for
notebook   how runs and tensors show themselves
shell      ``python -m lib draw``
=========  ==================================================================================
"""

from typing import TYPE_CHECKING, Any

from .notebook import register

__all__ = ["Figure", "Player", "Trace", "beside_target", "board", "compare", "draw", "draw_attempts", "draw_attention"]
__all__ += ["draw_card", "draw_course", "draw_group", "draw_primitive", "draw_sketch", "draw_sweep", "draw_tensor"]
__all__ += ["draw_tokens", "explore", "holds", "perfetto", "play", "race", "reference"]

if TYPE_CHECKING:
    from .pictures import *
else:

    def __getattr__(name: str) -> Any:
        """Import all once one is asked for: without chalk ``import lib, drawing`` takes 0.6 of the time."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import pictures

        globals().update({known: getattr(pictures, known) for known in __all__})
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register()
