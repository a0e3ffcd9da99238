"""What the puzzles ask for.

=========  ======================================================================
layouts    what each rank begins and ends with
sizes      at which other sizes a puzzle is graded
ideas      what a puzzle asks for beyond layout and target, a sentence and a check each
specs      the puzzles: size, target, layout, hints; and the costs that they may name
bounds     what no schedule of a pipeline beats, computed from the prices
points     the points of a pass: for the star, for nearness to the frontier
outlines   what of a solution may be shown, and what of it is secret
solutions  the solution of a puzzle, as it is shown
variants   other sizes, prices and targets in place of those
=========  ======================================================================
"""
