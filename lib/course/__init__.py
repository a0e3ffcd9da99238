"""What the puzzles ask for.

========  ======================================================================
costs     the prices that a puzzle may name
layouts   what each rank begins and ends with, and at which sizes a puzzle is tried
rules     what a puzzle asks of the log beyond layout, time and memory
specs     the puzzles: size, target, layout, hints
sketches  what of a solution may be shown
========  ======================================================================
"""
