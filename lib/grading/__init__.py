"""From a function to a verdict that can be read, stored and sent.

===========  ======================================================================
points       the points of a pass: for the star, for nearness to the frontier
verdict      the one result: what came of an attempt, of several
advice       what costs time and memory, beside the program of a goal, and what the text of a program shows
judge        right or not, at its own size and others; layout, rules, targets
standing     how a run stands to the puzzle of its name, for pictures
page         a verdict to be read: a table for notebooks, a text
progress     the best so far, in a small file beside the notebooks
seal         whether this library is still what it was
beside       what is taken of files beside it
submission   what is taken of a learner's notebook or script
answers      what a learner wrote for one puzzle, to begin another with it
commandline  what commands at a shell have in common
notebook     grade, hint, progress, start_from, attempt and solution, as a learner calls them
===========  ======================================================================
"""
