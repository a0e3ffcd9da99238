"""Pictures of schedules and tensors, built on chalk.

``draw(run)`` shows a schedule, ``draw_group(model.weights)`` a dictionary of tensors; after importing
this package, runs and tensors show themselves in a notebook. The modules, numbers first, chalk last:

=================  ===============================================================
trace              what a picture is drawn from
theme              colors, by role and by kind
words              numbers, names and sentences
layout             rows, lanes, places: numbers only
marks              cheap chalk leaves
operations         how an operation looks
timeline, coarse   the rows, box by box or column by column
links              arrows from sends to receives
header             title and figures
memory, legend     the panels below the rows
svg, figure        from chalk's tree to SVG; a diagram that shows itself
picture            all of it: ``draw``
tensors, group     small pictures: ``draw_group``
notebook           how runs and tensors show themselves
=================  ===============================================================
"""

from .figure import Figure
from .group import draw_group
from .notebook import register
from .picture import draw
from .tensors import draw_tensor
from .trace import Trace

__all__ = ["Figure", "Trace", "draw", "draw_group", "draw_tensor"]

register()
