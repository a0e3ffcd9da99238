"""Pictures of schedules and tensors, built on chalk.

Importing this package makes runs and tensors show themselves in a notebook.

============  =====================================================
picture       the whole picture of a run: ``draw``
timeline      rows of ranks;  memory, legend: the parts below
tensors       small pictures: ``draw_group``
trace         what a picture is drawn from
layout        numbers only;  theme: colors
figure        a picture that shows itself
svg, marks    the fast way from shapes to SVG
============  =====================================================
"""

from __future__ import annotations

from typing import Any

from lib.run import Run
from lib.tensors import TENSORS

from .figure import Figure
from .picture import draw
from .tensors import draw_group, draw_tensor

__all__ = ["Figure", "draw", "draw_group"]


def _show_in_notebooks() -> None:
    """Tell a running IPython how to show our types: one text/html each."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return
    shell: Any = get_ipython()  # type: ignore[no-untyped-call]
    if shell is None:
        return
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(Run, lambda run: draw(run)._repr_html_())
    for kind in TENSORS:
        html.for_type(kind, lambda tensor: draw_tensor(tensor)._repr_html_())


_show_in_notebooks()
