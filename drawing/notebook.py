"""Runs and tensors show themselves in a notebook, each as one text/html output; a hint shows its picture."""

from __future__ import annotations

import sys
from typing import Any

from lib.grading.notebook import Hint
from lib.learner.tensors import TENSORS, Tensor
from lib.running.run import Run

from .picture import draw
from .sketch import draw_sketch
from .tensors import draw_tensor


def register() -> None:
    """Tell a running IPython how to show our types. Elsewhere nothing happens; twice is as good as once."""
    ipython = sys.modules.get("IPython")  # if it runs, it is imported
    shell: Any = ipython.get_ipython() if ipython is not None else None
    formatter = getattr(shell, "display_formatter", None)
    if formatter is None:
        return
    html = formatter.formatters["text/html"]
    html.for_type(Run, _show_run)
    for kind in TENSORS:
        html.for_type(kind, _show_tensor)
    formatter.formatters["text/markdown"].for_type(Hint, _show_hint)


def _show_run(run: Run) -> str:
    return draw(run)._repr_html_()


def _show_tensor(tensor: Tensor) -> str:
    return draw_tensor(tensor)._repr_html_()


def _show_hint(hint: Hint) -> str:
    """As an image with its data, which hosts show in Markdown, too."""
    picture = draw_sketch(hint.puzzle, static=True)._repr_html_() if hint.sketched else ""
    return f"{hint.text}\n\n{picture}"
