"""Real models on real machines: what a step of training takes in seconds and bytes, and what a profile says of one.

===========  ======================================================================
transformer  weights, operations, and bytes of a transformer
hardware     GPUs in nodes: how fast they compute and what links them
layer        what a layer takes, with the traffic within it
prices       a Cost of both, in seconds and bytes, and the Cluster that gives it
changes      what each single change of a run would take away, or add
report       where time and memory of a run go, as text
presets      models and clusters whose figures are published
traces       profiles of real runs, which are drawn and compared like runs
real         this file: what is imported from it
===========  ======================================================================
"""

from .presets import *  # noqa: F403  (every model and cluster there)
from .prices import Cluster as Cluster
from .report import report as report
from .transformer import COMPILED as COMPILED
from .transformer import EAGER as EAGER
from .transformer import FUSED as FUSED
from .transformer import Transformer as Transformer
