"""Ranks that stand for others: a few are run for all that do the same, and the run is timed, not proved.

==========  ======================================================================
coordinate  an int that knows its value on every rank
symmetry    which ranks are run, for whom they stand, and what follows from them
links       a network that adds the ranks that are not simulated
==========  ======================================================================
"""
