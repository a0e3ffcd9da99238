"""From a function to a verdict that can be read, stored and sent.

===========  ======================================================================
verdict      the one result: what came of an attempt, of several
seal         whether this library is still what it was
submission   what is taken of a learner's notebook or script
answers      what a learner wrote for one puzzle, to begin another with it
reasons      why a run fails, or is slower or larger than the target, beside right runs
judge        right or not, at its own size and others; layout, ideas, target
page         a verdict to be read: a few lines and a fold, as text and for notebooks
hints        a hint in words, and which one fits the last attempt
progress     the best so far, in a small file beside the notebooks
commandline  a function in a file and the machine that runs it, for commands at a shell
notebook     grade, why, hint, progress, attempt, start_from and solution, as a learner calls them
===========  ======================================================================
"""
