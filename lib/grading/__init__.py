"""From a function to a verdict that can be read, stored and sent.

===========  ======================================================================
points       the points of a pass: for the star, for nearness to the frontier
peak         what a run holds where its memory is highest, as facts
verdict      the one result: what came of an attempt, of several
seal         whether this library is still what it was
beside       what is taken of files beside it
submission   what is taken of a learner's notebook or script
answers      what a learner wrote for one puzzle, to begin another with it
references   right runs of a puzzle, with which others are compared
reasons      why a run fails, or is slower or larger than the target
judge        right or not, at its own size and others; layout, ideas, target
standing     how a run stands to the puzzle of its name, for pictures
page         a verdict to be read: a few lines and a fold, as text and for notebooks
why          more of what the last verdict, or the last run that failed, shows
progress     the best so far, in a small file beside the notebooks
commandline  what commands at a shell have in common
notebook     grade, hint, progress, start_from, attempt and solution, as a learner calls them
===========  ======================================================================
"""
