"""Formatters for a notebook: runs, verdicts and tensors show themselves as HTML, hints as Markdown."""

from __future__ import annotations

import re
import sys
from typing import Any

from lib.basics.errors import PuzzleError
from lib.grading.hints import Hint
from lib.grading.notebook import ShownVerdict
from lib.learner.tensors import TENSORS
from lib.real.traces.profile import Profile
from lib.running.run import Run
from lib.study.sweep import Sweep


def _pictures() -> Any:
    from . import pictures  # chalk takes its time: so only once something is shown

    return pictures


def register() -> None:
    """Register the formatters of our types with a running IPython. Elsewhere, and a second time, it changes nothing."""
    ipython = sys.modules.get("IPython")  # if it runs, it is imported
    shell: Any = ipython.get_ipython() if ipython is not None else None
    formatter = getattr(shell, "display_formatter", None)
    if formatter is None:
        return
    html = formatter.formatters["text/html"]
    html.for_type(Run, lambda run: _pictures().draw(run)._repr_html_())
    html.for_type(Profile, lambda profile: _pictures().draw(profile)._repr_html_())
    html.for_type(Sweep, _show_sweep)
    html.for_type(ShownVerdict, lambda shown: _pictures().show_verdict(shown))
    for kind in TENSORS:
        html.for_type(kind, lambda tensor: _pictures().draw_tensor(tensor)._repr_html_())
    formatter.formatters["text/markdown"].for_type(Hint, _show_hint)
    shell.events.register("post_run_cell", _show_failure)


def _show_sweep(sweep: Sweep) -> str:
    """Return the picture, if any run is right, and the table."""
    picture = _pictures().draw_sweep(sweep)._repr_html_() if sweep.front() else ""
    return picture + sweep.html()


def _show_failure(result: Any) -> None:
    """Show the failed run below a cell's error: as a picture, a player if it calls ``play``, or text at a terminal."""
    error = result.error_in_exec
    failed = error.run if isinstance(error, PuzzleError) else None
    if isinstance(failed, Run):
        display = sys.modules["IPython"].display.display
        shown = _pictures().play if re.search(r"\bplay\(", result.info.raw_cell) else _pictures().draw
        display({"text/html": shown(failed)._repr_html_(), "text/plain": str(failed)}, raw=True)


def _show_hint(hint: Hint) -> str:
    """Return a hint as Markdown, with its picture as an image."""
    picture = _pictures().draw_sketch(hint.puzzle, static=True)._repr_html_() if hint.has_schedule else ""
    return f"{hint.text}\n\n{picture}"
