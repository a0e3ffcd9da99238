"""Everything that ``drawing`` offers, and ``show_verdict``. It is imported when one of these is first asked for."""

from .beside.compare import compare
from .beside.outline import beside_target, draw_sketch
from .beside.race import race
from .charts.attempts import draw_attempts
from .charts.course import draw_course
from .charts.explore import explore
from .charts.sweep import draw_sweep
from .charts.verdict import draw_card, show_verdict
from .ink.figure import Figure
from .ink.trace import Trace
from .lookup import reference
from .playing.perfetto import perfetto
from .playing.player import Player, board, play
from .schedule.picture import draw
from .small.attention import draw_attention
from .small.holds import holds
from .small.primitives import draw_primitive
from .small.tensors import draw_group, draw_tensor
from .small.tokens import draw_tokens
