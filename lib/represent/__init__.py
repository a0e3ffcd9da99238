"""Ranks that stand for others: a few are run for all that do the same, and the run is timed, not proved.

==========  ======================================================================
coordinate  a rank's number that knows what it would be on other ranks
symmetry    which ranks are run, for whom they stand, and what they determines
links       the links between them, at which the others are thought of
==========  ======================================================================
"""
