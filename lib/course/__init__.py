"""What the puzzles ask for.

========  ======================================================================
layouts   what each rank begins and ends with, and at which sizes
demands   what a puzzle demands of the log beyond layout, time and memory
specs     the puzzles, as their sources say
sketches  what of a solution may be shown
========  ======================================================================
"""
