"""From a function to a verdict that can be read, stored and sent.

===========  ======================================================================
points       the points of a pass: for the star, for nearness to the frontier
verdict      the one result: what came of an attempt, of several
holding      what a run holds at its peak, beside the program of a goal, and what of that for nothing
needless     calls that could be made, or awaited, at another time
ordering     in which order the ranks of a pipeline work, beside the program of a goal
slowness     what makes a run slow, beside the program of a goal
fitting      what to write instead, where that depends on the puzzle
sources      what the text of a program shows: coroutines that nobody awaits, numbers
judge        right or not, at its own size and others; layout, rules, targets
standing     how a run stands to the puzzle of its name, for pictures
page         a verdict to be read: a table for notebooks, a text
progress     the best so far, in a small file beside the notebooks
seal         whether this library is still what it was
submission   what is taken of a learner's notebook or script
answers      what a learner wrote for one puzzle, to begin another with it
commandline  what commands at a shell have in common
notebook     grade, hint, progress, start_from, attempt and solution, as a learner calls them
===========  ======================================================================
"""
