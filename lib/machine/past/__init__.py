"""What the ranks have done before, for rules and errors that ask. An error asks about other ranks when a run has ended.

=========  ======================================================================
own        what a rank has done, from its own log
awaited    calls that a rank has never awaited, beside those that it has
work_done  what the ranks have run, loaded and sent
sums_made  what the ranks have added up
asked      what the ranks have cut and gathered, and all that errors ask of a rank
released   what to write instead of using a tensor that no longer exists
=========  ======================================================================
"""
