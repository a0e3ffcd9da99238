"""Runs and tensors show themselves in a notebook, each as one text/html output."""

from __future__ import annotations

import sys
from typing import Any

from lib.run import Run
from lib.tensors import TENSORS, Tensor

from .picture import draw
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


def _show_run(run: Run) -> str:
    return draw(run)._repr_html_()


def _show_tensor(tensor: Tensor) -> str:
    return draw_tensor(tensor)._repr_html_()
