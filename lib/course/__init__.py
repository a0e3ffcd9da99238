"""What the puzzles ask for.

========  ======================================================================
layouts   what each rank begins and ends with
held      what a rank begins with it holds, as long as it is needed
sizes     at which other sizes a puzzle is graded
used      whether anything is computed or sent for nothing
rules     what a puzzle asks of the log beyond layout, time and memory
specs     the puzzles: size, target, layout, hints; and the costs that they may name
variants  other sizes, prices and targets in place of those
bounds    what no schedule of a pipeline beats, computed from the prices
outlines  what of a solution may be shown, and what it takes at other sizes
========  ======================================================================
"""
